//! Transfers event by event, and random ones against the bytes that should have come.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{PULLS_MAX, SERVE_TRIES_MAX, SERVES_MAX};
use hoplo_base::{ProcessId, TaskId};
use hoplo_wire::layout::Front;
use hoplo_wire::node::ToClient;
use hoplo_wire::{Failure, FailureKind, Fold, FoldOp, Location, Rest, Ring, Value};
use proptest::prelude::*;

use super::pull::Stage;
use super::*;

mod assemblies;
mod folds;
mod rings;
mod trains;

const ME: NodeNumber = NodeNumber::alone(1);
const HOME: NodeNumber = NodeNumber::alone(2);
const OTHER: NodeNumber = NodeNumber::alone(3);
/// Of what is pulled here.
const TURN: u64 = 10;

fn object(seq: u64) -> ObjectId {
    TaskId { owner: ProcessId::new(HOME, 1, 1), seq }.object(0)
}

struct Bench(Transfer);

impl Bench {
    fn new() -> Self {
        Self(Transfer::new(ME, Instant::ZERO))
    }

    fn feed(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.handle(self.0.now, event, &mut effects);
        self.0.check();
        effects
    }

    fn begin(&mut self, seq: u64, bytes: u64, sources: &[NodeNumber]) -> Vec<Effect> {
        let sources = sources.to_vec();
        self.feed(Event::Begin { object: object(seq), bytes, turn: TURN, sources })
    }

    /// A pull that has a page at 0 and slot 7. Its ticket is 2.
    fn receiving(sources: &[NodeNumber]) -> Self {
        let mut bench = Self::new();
        let wants = Effect::WantRoom { request: 1, bytes: 100, slots: 1 };
        assert_eq!(bench.begin(1, 100, sources), [wants]);
        let effects = bench.feed(granted(1, 0, 4096, &[7]));
        assert_eq!(effects.len(), 2, "{effects:?}");
        bench
    }

    fn asked(&mut self, ticket: u64, offset: u64) -> Vec<Effect> {
        self.feed(Event::Asked {
            from: OTHER,
            ticket,
            object: object(1),
            offset,
            until: u64::MAX,
            turn: TURN + 1,
            is_here: false,
        })
    }
}

fn granted(request: u64, offset: u64, len: u64, slots: &[u32]) -> Event {
    Event::Granted { request, offset, len, slots: slots.to_vec() }
}

fn attempt(ticket: u64, from: NodeNumber, place: Place, written: u64) -> [Effect; 2] {
    let begin = Effect::Order(Order::Receive { ticket, from, place, written });
    [
        begin,
        Effect::Fetch {
            to: from,
            ticket,
            object: object(1),
            offset: written,
            until: u64::MAX,
            turn: TURN,
        },
    ]
}

fn stopped(ticket: u64, written: u64) -> Event {
    Event::Done(Done::Stopped {
        ticket,
        written,
        why: "it is bad".to_string(),
        lost: false,
        front: None,
    })
}

fn no_bytes(from: NodeNumber, ticket: u64) -> Event {
    Event::NoBytes { from, ticket, why: "it is not here".to_string() }
}

const PLACE: Place = Place { slot: 7, offset: 0, len: 100 };
const LOCATION: Location = Location { slot: 3, generation: 5, offset: 640, len: 100 };

// ---- pulls ----

#[test]
fn when_no_source_is_left_the_room_goes_back_and_the_pull_has_failed() {
    let mut bench = Bench::receiving(&[HOME]);
    assert_eq!(bench.feed(no_bytes(HOME, 2)), [Effect::Order(Order::StopReceive { ticket: 2 })]);
    assert_eq!(bench.feed(no_bytes(HOME, 2)), [], "it is stopping");
    let effects = bench.feed(stopped(2, 64));
    let [Effect::ReturnRoom { offset: 0, len: 4096 }, Effect::PullFailed { why, .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert!(why.contains("it is not here"), "{why}");
}

/// Found by a seed. The home waited for one who waited for this node, which had been told by its home to fetch it, could not, and
/// waited for its home to tell it again.
#[test]
fn who_was_told_to_fetch_from_a_pull_that_failed_is_refused() {
    let mut bench = Bench::receiving(&[HOME]);
    bench.feed(no_bytes(HOME, 2));
    bench.feed(stopped(2, 0));
    let effects = bench.asked(1, 0);
    let why = "it could not be fetched there either".to_string();
    assert_eq!(effects, [Effect::NoBytes { to: OTHER, ticket: 1, why }]);
    let from = OTHER;
    let (object, offset, until, is_here) = (object(1), 0, u64::MAX, true);
    let asked = Event::Asked { from, ticket: 2, object, offset, until, turn: TURN + 1, is_here };
    assert_eq!(bench.feed(asked), [Effect::Want { object }], "it came another way");
}

/// Found by seed 10007648. The home had named nodes alone that were dead, and was asked again.
#[test]
fn who_waits_for_a_word_of_the_home_is_refused_when_that_word_begins_no_pull() {
    let mut bench = Bench::new();
    assert_eq!(bench.asked(1, 0), [Effect::Want { object: object(1) }]);
    let why = "it could not be fetched there either".to_string();
    let refused = |ticket: u64| [Effect::NoBytes { to: OTHER, ticket, why: why.clone() }];
    assert_eq!(bench.feed(Event::NotBegun { object: object(1), turn: TURN }), refused(1));
    assert_eq!(bench.asked(2, 0), refused(2), "it asked later");
    assert_eq!(bench.feed(Event::NotBegun { object: object(1), turn: TURN + 1 }), []);
}

#[test]
fn who_was_told_to_fetch_from_a_pull_that_had_no_room_is_refused() {
    let mut bench = Bench::new();
    bench.begin(1, 100, &[HOME]);
    let failure = Failure::new(FailureKind::OutOfDisk, "the disk is full");
    bench.feed(Event::Denied { request: 1, failure });
    let why = "it could not be fetched there either".to_string();
    assert_eq!(bench.asked(1, 0), [Effect::NoBytes { to: OTHER, ticket: 1, why }]);
}

#[test]
fn without_sources_no_room_is_asked_for() {
    let effects = Bench::new().begin(1, 100, &[ME]);
    assert!(matches!(&effects[..], [Effect::PullFailed { .. }]), "{effects:?}");
}

#[test]
fn who_is_denied_room_is_not_fetched() {
    let mut bench = Bench::new();
    bench.begin(1, 100, &[HOME]);
    let failure = Failure::new(FailureKind::OutOfDisk, "full");
    let effects = bench.feed(Event::Denied { request: 1, failure: failure.clone() });
    assert_eq!(effects, [Effect::PullDenied { object: object(1), failure }]);
}

#[test]
fn another_source_goes_on_where_the_first_one_ended() {
    let mut bench = Bench::receiving(&[HOME, OTHER]);
    let (first, second) = (HOME, OTHER);
    let effects = bench.feed(stopped(2, 64));
    let mut expected = vec![Effect::Enough { to: first, ticket: 2 }];
    expected.extend(attempt(3, second, PLACE, 64));
    assert_eq!(effects, expected);
    assert_eq!(bench.feed(no_bytes(first, 2)), [], "of an attempt that is over");
    let effects = bench.feed(Event::Done(Done::Received { ticket: 3, generation: 9 }));
    let location = Location { slot: 7, generation: 9, offset: 0, len: 100 };
    assert_eq!(effects, [Effect::Seal { object: object(1), location }]);
}

/// Who relays says only that it could not fetch it either. That counted as a try in vain beside the death itself, of which the home may not have heard yet.
#[test]
fn a_source_that_relayed_from_a_dead_one_failed_by_that_death() {
    let mut bench = Bench::receiving(&[OTHER, HOME]);
    assert_eq!(bench.feed(Event::NodeGone { node: HOME }), [], "it was not tried");
    bench.feed(no_bytes(OTHER, 2));
    let effects = bench.feed(stopped(2, 0));
    assert!(matches!(effects[1], Effect::PullFailed { lost: true, .. }), "{effects:?}");

    let mut bench = Bench::receiving(&[HOME, OTHER]);
    let why = "the link was lost".to_string();
    bench.feed(Event::Done(Done::Stopped { ticket: 2, written: 0, why, lost: true, front: None }));
    bench.feed(no_bytes(OTHER, 3));
    let effects = bench.feed(stopped(3, 0));
    assert!(matches!(effects[1], Effect::PullFailed { lost: true, .. }), "{effects:?}");
}

#[test]
fn what_came_whole_before_it_was_stopped_counts() {
    let mut bench = Bench::receiving(&[HOME]);
    let gone = Event::NodeGone { node: HOME };
    assert_eq!(bench.feed(gone), [Effect::Order(Order::StopReceive { ticket: 2 })]);
    let effects = bench.feed(Event::Done(Done::Received { ticket: 2, generation: 1 }));
    assert!(matches!(&effects[..], [Effect::Seal { .. }]), "{effects:?}");
}

#[test]
fn the_rest_of_an_extent_goes_back_at_once_and_the_range_when_the_object_goes() {
    let mut bench = Bench::new();
    bench.begin(1, 100, &[HOME]);
    let effects = bench.feed(granted(1, 8192, 3 * 4096, &[7]));
    assert_eq!(effects[0], Effect::ReturnRoom { offset: 12_288, len: 8192 });
    bench.feed(Event::Done(Done::Received { ticket: 2, generation: 1 }));
    let location = Location { slot: 7, generation: 1, offset: 8192, len: 100 };
    let message = ToClient::Reclaimed { object: object(1), location };
    let back = bench.feed(Event::told(message));
    assert_eq!(back, [Effect::ReturnRoom { offset: 8192, len: 4096 }]);
    // Its slot is used again.
    let wants = Effect::WantRoom { request: 3, bytes: 100, slots: 0 };
    assert_eq!(bench.begin(2, 100, &[HOME]), [wants]);
    let more = Effect::WantRoom { request: 4, bytes: 100, slots: 1 };
    assert_eq!(bench.begin(3, 100, &[HOME]), [more]);
    bench.feed(granted(4, 0, 4096, &[8]));
    bench.feed(granted(3, 8192, 4096, &[]));
}

#[test]
fn room_in_the_spill_file_goes_back_as_it_was_granted() {
    let mut bench = Bench::new();
    bench.begin(1, 100, &[HOME]);
    let place = Place { slot: 9, offset: 1 << 30, len: 100 };
    let granted = Event::FileGranted { request: 1, offset: 1 << 30, len: 100, slot: 9 };
    assert_eq!(bench.feed(granted), attempt(2, HOME, place, 0));
    let effects = bench.feed(stopped(2, 0));
    assert_eq!(effects[1], Effect::ReturnRoom { offset: 1 << 30, len: 100 });
}

#[test]
fn of_many_pulls_some_wait_and_none_is_begun_twice() {
    let mut bench = Bench::new();
    let all = PULLS_MAX as u64 + 3;
    let begun: usize = (1..=all).map(|seq| bench.begin(seq, 100, &[HOME]).len()).sum();
    assert_eq!(begun, PULLS_MAX);
    assert_eq!(bench.begin(1, 100, &[HOME]), [], "XFER-2");
    assert!(bench.0.explain(object(all)).unwrap().contains("other objects are being fetched"));
    let failure = Failure::new(FailureKind::StoreFull, "full");
    let effects = bench.feed(Event::Denied { request: 3, failure });
    assert!(matches!(&effects[1..], [Effect::WantRoom { bytes: 100, .. }]), "{effects:?}");
}

#[test]
fn a_recall_is_answered_and_nothing_is_kept() {
    let mut bench = Bench::receiving(&[HOME]);
    let recall = ToClient::ExtentRecall { bytes: 4096 };
    assert_eq!(bench.feed(Event::told(recall)), [Effect::AnswerRecall]);
}

// ---- serves ----

#[test]
fn what_is_not_here_is_refused_to_all_who_asked() {
    let mut bench = Bench::new();
    assert_eq!(bench.asked(1, 0), [Effect::Want { object: object(1) }]);
    assert_eq!(bench.asked(2, 0), [], "the directory is asked once");
    let failure = Failure::new(FailureKind::ObjectLost, "it is not here");
    let effects = bench.feed(Event::told(ToClient::Unreadable { object: object(1), failure }));
    let why = || "it is not here".to_string();
    let refusals = [1, 2].map(|ticket| Effect::NoBytes { to: OTHER, ticket, why: why() });
    assert_eq!(effects, refusals);
}

/// It may be waiting for this node, which waits for its word.
#[test]
fn for_the_home_of_an_object_the_directory_is_asked_in_another_way() {
    let mut bench = Bench::new();
    let (object, offset, turn) = (object(1), 0, 1);
    let from = object.task.owner.node();
    bench.asked(1, 0);
    let effects = bench.feed(Event::Asked {
        from,
        ticket: 7,
        object,
        offset,
        until: u64::MAX,
        turn,
        is_here: false,
    });
    assert_eq!(effects, [Effect::WantForHome { object }]);
}

#[test]
fn who_asks_for_bytes_behind_the_end_or_too_much_at_once_is_refused() {
    let mut bench = Bench::new();
    bench.asked(1, 100);
    let ready = Event::Ready { object: object(1), location: LOCATION };
    assert!(matches!(&bench.feed(ready)[..], [Effect::NoBytes { ticket: 1, .. }]));
    for ticket in 0..SERVES_MAX as u64 {
        let refused = bench.asked(ticket, 0).iter().any(|it| matches!(it, Effect::NoBytes { .. }));
        assert!(!refused, "{ticket}");
    }
    assert!(matches!(&bench.asked(1000, 0)[..], [Effect::NoBytes { ticket: 1000, .. }]));
    assert!(matches!(&bench.asked(0, 0)[..], [Effect::NoBytes { ticket: 0, .. }]));
}

#[test]
fn what_moved_is_looked_for_again_but_not_for_ever() {
    let mut bench = Bench::new();
    bench.asked(1, 40);
    for tries in 1..=SERVE_TRIES_MAX {
        let value = Value::Stored(LOCATION);
        let ready = ToClient::Ready { object: object(1), value, contains: Vec::new() };
        let (to, location, offset, made) = (OTHER, LOCATION, 40, false);
        let start =
            Effect::Order(Order::Send { to, ticket: 1, location, offset, until: u64::MAX, made });
        assert_eq!(bench.feed(Event::told(ready)), [start]);
        let why = "it moved".to_string();
        let effects =
            bench.feed(Event::Done(Done::SendFailed { to: OTHER, ticket: 1, moved: true, why }));
        let gives_up = matches!(&effects[..], [Effect::NoBytes { .. }]);
        assert_eq!(gives_up, tries == SERVE_TRIES_MAX, "{effects:?}");
    }
}

#[test]
fn who_has_enough_or_died_is_sent_nothing_more() {
    let mut bench = Bench::new();
    bench.asked(1, 0);
    bench.asked(2, 0);
    bench.feed(Event::Ready { object: object(1), location: LOCATION });
    bench.asked(3, 0);
    let stop = |ticket| Effect::Order(Order::StopSend { to: OTHER, ticket });
    assert_eq!(bench.feed(Event::Enough { from: OTHER, ticket: 1 }), [stop(1)]);
    assert_eq!(bench.feed(Event::Enough { from: OTHER, ticket: 1 }), []);
    assert_eq!(bench.feed(Event::NodeGone { node: OTHER }), [stop(2)]);
    assert_eq!(bench.feed(Event::Done(Done::Sent { to: OTHER, ticket: 2 })), []);
    assert!(bench.0.serves.is_empty());
}

// ---- relays ----

fn relay(ticket: u64, offset: u64) -> Effect {
    Effect::Order(Order::Relay { to: OTHER, ticket, place: PLACE, offset })
}

fn refused(effects: &[Effect], ticket: u64) -> bool {
    effects
        .iter()
        .any(|effect| matches!(effect, Effect::NoBytes { ticket: it, .. } if *it == ticket))
}

#[test]
fn what_is_being_pulled_is_sent_on_as_it_comes() {
    let mut bench = Bench::receiving(&[HOME]);
    assert_eq!(bench.asked(1, 64), [relay(1, 64)]);
    bench.feed(Event::Done(Done::Received { ticket: 2, generation: 1 }));
    let stop = Effect::Order(Order::StopSend { to: OTHER, ticket: 1 });
    assert_eq!(bench.feed(Event::Enough { from: OTHER, ticket: 1 }), [stop]);
}

/// Its home names this node as one that has all of it. The pull was of an earlier run, failed, and with it the only source of who asked.
#[test]
fn what_was_made_here_while_it_was_pulled_was_relayed_from_that_pull() {
    let mut bench = Bench::receiving(&[HOME]);
    let (object, offset, turn) = (object(1), 0, TURN + 1);
    let asked = Event::Asked {
        from: OTHER,
        ticket: 1,
        object,
        offset,
        until: u64::MAX,
        turn,
        is_here: true,
    };
    assert_eq!(bench.feed(asked), [Effect::Want { object }]);
    let ready = ToClient::Ready { object, value: Value::Stored(LOCATION), contains: Vec::new() };
    let (to, location, made) = (OTHER, LOCATION, false);
    let send = Order::Send { to, ticket: 1, location, offset, until: u64::MAX, made };
    assert_eq!(bench.feed(Event::told(ready)), [Effect::Order(send)]);
    bench.feed(no_bytes(HOME, 2));
    let effects = bench.feed(stopped(2, 64));
    assert!(!refused(&effects, 1), "{effects:?}");
}

#[test]
fn nobody_waits_for_itself() {
    let mut bench = Bench::receiving(&[HOME]);
    for turn in [TURN, TURN - 1] {
        let ticket = turn;
        let asked = Event::Asked {
            from: OTHER,
            ticket,
            object: object(1),
            offset: 0,
            until: u64::MAX,
            turn,
            is_here: false,
        };
        assert!(refused(&bench.feed(asked), ticket), "XFER-8");
    }
    assert!(refused(&bench.asked(1, 100), 1), "it has not so many bytes");
}

#[test]
fn who_asks_before_there_is_room_or_before_the_pull_waits_for_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.asked(1, 0), [Effect::Want { object: object(1) }]);
    bench.begin(1, 100, &[HOME]);
    assert_eq!(bench.asked(2, 0), []);
    let effects = bench.feed(granted(1, 0, 4096, &[7]));
    assert_eq!(effects[2..], [relay(1, 0), relay(2, 0)]);
    let value = Value::Stored(LOCATION);
    let ready = ToClient::Ready { object: object(1), value, contains: Vec::new() };
    assert_eq!(bench.feed(Event::told(ready)), [], "the first one was found otherwise");
}

#[test]
fn nobody_waits_for_a_pull_that_waits_for_a_place() {
    let mut bench = Bench::new();
    (2..2 + PULLS_MAX as u64).for_each(|seq| drop(bench.begin(seq, 100, &[HOME])));
    bench.asked(1, 0);
    assert!(refused(&bench.begin(1, 100, &[HOME]), 1));
    assert!(refused(&bench.asked(2, 0), 2));
}

#[test]
fn a_relay_waits_while_the_source_is_replaced() {
    let mut bench = Bench::receiving(&[HOME, OTHER]);
    bench.feed(no_bytes(HOME, 2));
    assert_eq!(bench.asked(1, 0), [], "it is stopping");
    let effects = bench.feed(stopped(2, 64));
    assert_eq!(effects[0..2], attempt(3, OTHER, PLACE, 64));
    assert_eq!(effects[2..], [relay(1, 0)]);
    // The shell had stopped by itself when this order came.
    let why = "it does not come here now".to_string();
    let failed = Done::SendFailed { to: OTHER, ticket: 1, moved: true, why };
    assert_eq!(bench.feed(Event::Done(failed)), [relay(1, 0)]);
}

#[test]
fn a_pull_that_fails_is_the_end_of_its_relays_and_its_room_goes_back_when_nobody_reads_there() {
    let mut bench = Bench::receiving(&[HOME]);
    bench.asked(1, 0);
    bench.feed(no_bytes(HOME, 2));
    let effects = bench.feed(stopped(2, 64));
    assert!(refused(&effects, 1), "{effects:?}");
    assert_eq!(effects[1..], [Effect::Order(Order::Clear { ticket: 3, slot: 7 })]);
    assert!(refused(&bench.asked(2, 0), 2));
    let effects = bench.feed(Event::Done(Done::Cleared { ticket: 3 }));
    assert_eq!(effects[0], Effect::ReturnRoom { offset: 0, len: 4096 }, "XFER-4");
    assert!(matches!(&effects[1..], [Effect::PullFailed { .. }]), "{effects:?}");
}

#[test]
fn what_is_written_to_the_file_or_has_no_room_is_not_relayed() {
    let mut bench = Bench::new();
    bench.begin(1, 100, &[HOME]);
    bench.asked(1, 0);
    let offset = 1 << 30;
    let effects = bench.feed(Event::FileGranted { request: 1, offset, len: 100, slot: 9 });
    assert!(refused(&effects, 1), "{effects:?}");
    assert!(refused(&bench.asked(2, 0), 2));

    let mut bench = Bench::new();
    bench.begin(1, 100, &[HOME]);
    bench.asked(1, 0);
    let failure = Failure::new(FailureKind::StoreFull, "full");
    assert!(refused(&bench.feed(Event::Denied { request: 1, failure }), 1));
}

// ---- slow sources ----

impl Bench {
    /// When it is looked next, so much is there.
    fn seen(&mut self, written: u64) -> Vec<Effect> {
        let Stage::Receiving { ticket, .. } = self.0.pulls[&object(1)].stage else { panic!() };
        self.0.now = self.0.next_deadline().expect("it is watched");
        assert_eq!(self.feed(Event::Tick), [Effect::Order(Order::Look { ticket })]);
        self.feed(Event::Done(Done::Seen { ticket, written }))
    }
}

#[test]
fn a_source_that_is_slow_is_told_and_one_that_does_not_answer_is_replaced() {
    let mut bench = Bench::receiving(&[HOME, OTHER]);
    for written in [20, 30, 50, 55] {
        assert_eq!(bench.seen(written), [], "{written}");
    }
    assert_eq!(bench.seen(60), [Effect::Slow { to: HOME, ticket: 2 }]);
    assert_eq!(bench.seen(60), []);
    let enough = Effect::Enough { to: HOME, ticket: 2 };
    assert_eq!(bench.seen(60), [enough, Effect::Order(Order::StopReceive { ticket: 2 })]);
    assert_eq!(bench.feed(stopped(2, 60)), attempt(3, OTHER, PLACE, 60));
    assert_eq!(bench.0.next_deadline(), None, "there is no other one");
}

#[test]
fn a_source_that_waits_itself_stays_for_as_long_as_it_says_so() {
    let mut bench = Bench::receiving(&[HOME, OTHER]);
    let slow = [Effect::Slow { to: HOME, ticket: 2 }];
    for _ in 0..10 {
        if bench.seen(10) == slow {
            bench.feed(Event::Waits { from: HOME, ticket: 2 });
        }
    }
    let Stage::Receiving { ticket: 2, .. } = bench.0.pulls[&object(1)].stage else { panic!() };
}

#[test]
fn who_has_bytes_and_does_not_get_rid_of_them_sends_the_asker_elsewhere() {
    let mut bench = Bench::receiving(&[HOME]);
    bench.asked(1, 0);
    let look = Effect::Order(Order::LookBehind { to: OTHER, ticket: 1 });
    assert_eq!(bench.feed(Event::Slow { from: OTHER, ticket: 1 }), [look]);
    let behind = |bytes| Event::Done(Done::Behind { to: OTHER, ticket: 1, bytes });
    assert_eq!(bench.feed(behind(10)), [Effect::Waits { to: OTHER, ticket: 1 }]);
    let effects = bench.feed(behind(1 << 20));
    assert_eq!(effects[0], Effect::Order(Order::StopSend { to: OTHER, ticket: 1 }));
    assert!(refused(&effects, 1));
    assert_eq!(bench.feed(behind(1 << 20)), []);

    // Who has all of it waits for nobody.
    let mut bench = Bench::new();
    bench.asked(1, 0);
    bench.feed(Event::Ready { object: object(1), location: LOCATION });
    assert!(refused(&bench.feed(Event::Slow { from: OTHER, ticket: 1 }), 1));
}

// ---- who lags ----

fn lags() -> Event {
    Event::Done(Done::Lags { to: OTHER, ticket: 1 })
}

fn now_from(turn: u64, now: u64, sources: &[NodeNumber]) -> Event {
    Event::NowFrom { object: object(1), turn, now, sources: sources.to_vec() }
}

#[test]
fn who_takes_slowly_what_is_relayed_to_it_is_told_of() {
    let mut bench = Bench::receiving(&[HOME]);
    assert_eq!(bench.feed(lags()), [], "it was taken back");
    bench.asked(1, 0);
    let told = Effect::Lags { object: object(1), node: OTHER, turn: TURN + 1 };
    assert_eq!(bench.feed(lags()), [told]);
    bench.feed(Event::Done(Done::Received { ticket: 2, generation: 9 }));
    assert_eq!(bench.feed(lags()), [], "it is whole, and sent to it");
}

#[test]
fn sources_for_what_is_over_or_is_fetched_in_another_turn_say_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.feed(now_from(TURN, TURN, &[OTHER])), []);
    let mut bench = Bench::receiving(&[HOME]);
    for none in [now_from(TURN - 1, TURN, &[OTHER]), now_from(TURN, TURN, &[ME])] {
        assert_eq!(bench.feed(none), []);
    }
    // Its room is given back.
    bench.asked(1, 0);
    bench.feed(no_bytes(HOME, 2));
    bench.feed(stopped(2, 64));
    assert_eq!(bench.feed(now_from(TURN, TURN, &[OTHER])), []);
    assert!(matches!(bench.0.pulls[&object(1)].stage, Stage::Clearing { .. }));
}

#[test]
fn who_is_behind_a_slow_node_goes_on_at_another_one_where_it_is() {
    let mut bench = Bench::receiving(&[OTHER]);
    bench.asked(1, 0);
    let effects = bench.feed(now_from(TURN, TURN, &[HOME, OTHER]));
    let enough = Effect::Enough { to: OTHER, ticket: 2 };
    assert_eq!(effects, [enough, Effect::Order(Order::StopReceive { ticket: 2 })]);
    let relay = Order::Relay { to: OTHER, ticket: 1, place: PLACE, offset: 0 };
    let mut expected = attempt(3, HOME, PLACE, 64).to_vec();
    expected.push(Effect::Order(relay));
    let effects = bench.feed(stopped(2, 64));
    assert_eq!(effects, expected[..2], "who is relayed to waited for nothing");
    assert_eq!(bench.feed(now_from(TURN, TURN, &[HOME])), [], "it is there");
}

#[test]
fn who_goes_to_the_end_of_the_chain_relays_no_more() {
    let mut bench = Bench::receiving(&[HOME]);
    bench.asked(1, 0);
    let effects = bench.feed(now_from(TURN, TURN + 5, &[OTHER, HOME]));
    assert_eq!(effects[0], Effect::Order(Order::StopSend { to: OTHER, ticket: 1 }), "XFER-8");
    assert!(refused(&effects, 1));
    let Effect::Fetch { to: OTHER, offset: 64, turn, .. } = bench.feed(stopped(2, 64))[1] else {
        panic!("it goes on there")
    };
    assert_eq!(turn, TURN + 5);
    assert!(refused(&bench.asked(3, 0), 3), "XFER-8");
}

#[test]
fn who_has_no_room_yet_begins_at_the_better_source() {
    let mut bench = Bench::new();
    bench.begin(1, 100, &[HOME]);
    bench.asked(1, 0);
    assert!(refused(&bench.feed(now_from(TURN, TURN + 1, &[OTHER])), 1), "XFER-8");
    let effects = bench.feed(granted(1, 0, 4096, &[7]));
    assert!(matches!(effects[1], Effect::Fetch { to: OTHER, offset: 0, .. }), "{effects:?}");
}

// ---- random ----

/// What the shell does with one ticket.
struct Attempt {
    place: Place,
    written: u64,
    told_to_stop: bool,
}

/// A naive shell and directory around the machine: ranges that are given and come back, bytes that are written.
#[derive(Default)]
struct World {
    requests: Vec<(u64, u64, u32)>,
    shell: BTreeMap<u64, Attempt>,
    /// Starts and lengths that the machine has, in the arena or the file.
    rooms: BTreeMap<u64, u64>,
    /// By object: how many pulls began less those that came to an end.
    open: BTreeMap<ObjectId, i64>,
    /// By the asker's ticket: where the shell reads what is still coming.
    relays: BTreeMap<u64, Place>,
    clears: Vec<(u64, u32)>,
    asks: u64,
    sealed: BTreeMap<u64, (ObjectId, Location)>,
    /// By slot of a place: bytes that were written, in order.
    next_offset: u64,
    next_slot: u32,
    slots: BTreeSet<u32>,
    /// What the directory was asked for.
    wants: Vec<ObjectId>,
    /// Folds that were asked for and are not over, and whether it was told that there will be none.
    folds: BTreeMap<ObjectId, bool>,
    /// Those of them that wait for another source.
    broken: BTreeSet<ObjectId>,
    /// Of those in a ring: what is to come of them, and whether that was sealed.
    rings: BTreeMap<ObjectId, (ObjectId, bool)>,
    /// As what the bytes at each place came.
    came_as: BTreeMap<u64, ObjectId>,
}

const FILE: u64 = 1 << 40;

impl World {
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::WantRoom { request, bytes, slots } => {
                    self.requests.push((request, bytes, slots));
                }
                Effect::ReturnRoom { offset, len } => {
                    let writes = self.shell.values().any(|attempt| {
                        let Place { offset: at, len: bytes, .. } = attempt.place;
                        at < offset + len && offset < at + bytes
                    });
                    assert!(!writes, "XFER-4: {offset}");
                    let reads = self.relays.values().any(|place| {
                        place.offset < offset + len && offset < place.offset + place.len
                    });
                    assert!(!reads, "XFER-4: {offset} is relayed");
                    let (start, had) =
                        self.rooms.range(..=offset).next_back().expect("it was granted");
                    let (start, end) = (*start, *start + *had);
                    assert!(offset + len <= end);
                    self.rooms.remove(&start);
                    if start < offset {
                        self.rooms.insert(start, offset - start);
                    }
                    if offset + len < end {
                        self.rooms.insert(offset + len, end - offset - len);
                    }
                }
                Effect::NoFold { made, .. } => {
                    let told = self.folds.get_mut(&made).expect("XFER-12: it is not over");
                    assert!(!std::mem::replace(told, true), "XFER-12: it was told before");
                }
                Effect::FoldBroke { made, .. } => {
                    assert_eq!(self.folds.get(&made), Some(&false), "XFER-12: it goes on");
                    assert!(self.broken.insert(made), "XFER-15: it was told before");
                }
                Effect::Want { object } | Effect::WantForHome { object } => self.wants.push(object),
                Effect::Seal { object, location } | Effect::SealMade { object, location } => {
                    let came_as = self.came_as[&location.offset];
                    if object.task.owner == maker() {
                        let is_kept = self.folds.contains_key(&object);
                        let in_ring = self.rings.contains_key(&object);
                        assert!(in_ring || !is_kept, "XFER-12: it is kept");
                    } else {
                        *self.open.get_mut(&object).unwrap() = 0;
                    }
                    let ring = (came_as != object).then(|| self.rings[&came_as]);
                    assert!(ring.is_none_or(|ring| ring == (object, true)), "XFER-13: {ring:?}");
                    assert!(self.rooms.contains_key(&location.offset), "{location:?}");
                    assert!(self.slots.contains(&location.slot));
                    assert!(self.sealed.insert(location.offset, (object, location)).is_none());
                }
                Effect::PullFailed { object, .. } | Effect::PullDenied { object, .. } => {
                    *self.open.get_mut(&object).unwrap() = 0;
                }
                Effect::Order(
                    Order::Receive { ticket, from: _, place, written }
                    | Order::Fold { ticket, from: _, place, written, .. },
                ) => {
                    assert!(self.rooms.contains_key(&place.offset), "XFER-3");
                    let attempt = Attempt { place, written, told_to_stop: false };
                    assert!(self.shell.insert(ticket, attempt).is_none(), "XFER-1");
                }
                Effect::Order(Order::FoldHere { ticket, place, written, .. }) => {
                    assert!(self.rooms.contains_key(&place.offset), "XFER-3");
                    let attempt = Attempt { place, written, told_to_stop: false };
                    assert!(self.shell.insert(ticket, attempt).is_none(), "XFER-1");
                }
                Effect::Order(Order::StopReceive { ticket }) => {
                    if let Some(attempt) = self.shell.get_mut(&ticket) {
                        attempt.told_to_stop = true;
                    }
                }
                Effect::Fetch { ticket, offset, .. } => {
                    assert_eq!(self.shell[&ticket].written, offset, "XFER-1");
                }
                Effect::Enough { .. } | Effect::NoBytes { .. } => {}
                // It is whole, and pinned.
                Effect::Order(Order::Send { location, .. }) => {
                    assert!(self.rooms.contains_key(&location.offset), "XFER-12");
                }
                Effect::Order(Order::Relay { ticket, place, .. }) => {
                    assert!(self.shell.values().any(|attempt| attempt.place == place), "XFER-8");
                    self.relays.insert(ticket, place);
                }
                Effect::Order(Order::StopSend { ticket, .. }) => {
                    self.relays.remove(&ticket);
                }
                Effect::Order(Order::Look { .. }) | Effect::Slow { .. } | Effect::Lags { .. } => {}
                Effect::Order(Order::Clear { ticket, slot }) => self.clears.push((ticket, slot)),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin { seq: u64, pages: u64, sources: u8 },
    Grant { nth: usize, how: u8 },
    Write { nth: usize, bytes: u64 },
    Stop { nth: usize },
    NoBytes { nth: usize, from: u32 },
    Gone { node: u32 },
    Reclaim { nth: usize },
    Ask { seq: u64, turn: u64 },
    Look { nth: usize },
    Enough { nth: usize },
    Clear { nth: usize },
    Fold { index: u32, operands: u8, from: u32, ring: Option<u64>, begin: u64 },
    FoldFrom { index: u32, from: u32, operands: u8 },
    FoldOver { index: u32, sealed: bool },
    AskFold { index: u32, turn: u64 },
    Found { nth: usize, well: bool },
    NowFrom { seq: u64, later: u64, sources: u8 },
    Lags { nth: usize },
}

/// Who owns what is folded.
fn maker() -> ProcessId {
    ProcessId::new(HOME, 0, 0)
}

fn made(index: u32) -> ObjectId {
    TaskId { owner: maker(), seq: 1 }.object(index)
}

fn step() -> impl Strategy<Value = Step> {
    let nth = 0..64usize;
    prop_oneof![
        3 => (1..40u64, 1..5u64, 0..8u8).prop_map(|(seq, pages, sources)| Step::Begin { seq, pages, sources }),
        3 => (nth.clone(), 0..6u8).prop_map(|(nth, how)| Step::Grant { nth, how }),
        4 => (nth.clone(), 1..20_000u64).prop_map(|(nth, bytes)| Step::Write { nth, bytes }),
        2 => nth.clone().prop_map(|nth| Step::Stop { nth }),
        1 => (nth.clone(), 2..5u32).prop_map(|(nth, from)| Step::NoBytes { nth, from }),
        1 => (2..5u32).prop_map(|node| Step::Gone { node }),
        2 => nth.clone().prop_map(|nth| Step::Reclaim { nth }),
        3 => (1..40u64, TURN..TURN + 3).prop_map(|(seq, turn)| Step::Ask { seq, turn }),
        1 => nth.clone().prop_map(|nth| Step::Enough { nth }),
        3 => nth.clone().prop_map(|nth| Step::Look { nth }),
        2 => nth.clone().prop_map(|nth| Step::Clear { nth }),
        3 => (0..6u32, 0..4u8, 1..5u32, prop::option::of(1..40u64), 0..9000u64)
            .prop_map(|(index, operands, from, ring, begin)| Step::Fold { index, operands, from, ring, begin }),
        2 => (0..6u32, 2..5u32, 0..4u8)
            .prop_map(|(index, from, operands)| Step::FoldFrom { index, from, operands }),
        2 => (0..6u32, any::<bool>()).prop_map(|(index, sealed)| Step::FoldOver { index, sealed }),
        2 => (0..6u32, 1..4u64).prop_map(|(index, turn)| Step::AskFold { index, turn }),
        2 => (1..40u64, 0..3u64, 0..8u8).prop_map(|(seq, later, sources)| Step::NowFrom { seq, later, sources }),
        1 => nth.clone().prop_map(|nth| Step::Lags { nth }),
        3 => (nth, prop::bool::weighted(0.8)).prop_map(|(nth, well)| Step::Found { nth, well }),
    ]
}

fn run(bench: &mut Bench, world: &mut World, step: Step) {
    let ticket_of =
        |world: &World, nth: usize| world.shell.keys().nth(nth % world.shell.len().max(1)).copied();
    let event = match step {
        Step::Begin { seq, pages, sources } => {
            let object = object(seq);
            if world.sealed.values().any(|(sealed, _)| *sealed == object) {
                return;
            }
            *world.open.entry(object).or_default() += 1;
            let sources = (0..3).filter(|bit| sources & (1 << bit) != 0);
            let sources = sources.map(|bit| NodeNumber::alone(2 + bit)).collect();
            // Whoever asks again asks for as many bytes.
            let bytes = bench.0.pulls.get(&object).map_or(pages * 4096 - seq, |pull| pull.bytes);
            Event::Begin { object, bytes, turn: TURN, sources }
        }
        Step::Grant { nth, how } => {
            if world.requests.is_empty() {
                return;
            }
            let nth = nth % world.requests.len();
            let (request, bytes, slots) = world.requests.swap_remove(nth);
            let offset = world.next_offset;
            world.next_offset += 1 << 20;
            world.next_slot += 1;
            let slot = world.next_slot;
            match how {
                0 => {
                    let failure = Failure::new(FailureKind::StoreFull, "full");
                    Event::Denied { request, failure }
                }
                1 => {
                    world.rooms.insert(FILE + offset, bytes);
                    world.slots.insert(slot);
                    Event::FileGranted { request, offset: FILE + offset, len: bytes, slot }
                }
                more => {
                    let len = bytes.next_multiple_of(4096) + u64::from(more - 2) * 4096;
                    world.rooms.insert(offset, len);
                    let slots = if slots == 0 { Vec::new() } else { vec![slot] };
                    world.slots.extend(&slots);
                    Event::Granted { request, offset, len, slots }
                }
            }
        }
        Step::Write { nth, bytes } => {
            let Some(ticket) = ticket_of(world, nth) else { return };
            let attempt = world.shell.get_mut(&ticket).unwrap();
            attempt.written = attempt.place.len.min(attempt.written + bytes);
            if attempt.written < attempt.place.len {
                return;
            }
            let place = attempt.place;
            world.shell.remove(&ticket);
            world.came_as.insert(place.offset, bench.0.tickets[&ticket]);
            // They are pinned now.
            world.relays.retain(|_, reads| *reads != place);
            Event::Done(Done::Received { ticket, generation: 1 })
        }
        Step::Stop { nth } => {
            let Some(ticket) = ticket_of(world, nth) else { return };
            let attempt = world.shell.remove(&ticket).unwrap();
            stopped(ticket, attempt.written)
        }
        Step::NoBytes { nth, from } => {
            let Some(ticket) = ticket_of(world, nth) else { return };
            no_bytes(NodeNumber::alone(from), ticket)
        }
        Step::Gone { node } => {
            let node = NodeNumber::alone(node);
            if node == HOME {
                world.folds.clear();
                world.broken.clear();
            }
            Event::NodeGone { node }
        }
        Step::Ask { seq, turn } => {
            world.asks += 1;
            let (ticket, from) = (world.asks, NodeNumber::alone(9));
            // Some of it a worker here has made.
            let is_here = ticket.is_multiple_of(4);
            Event::Asked {
                from,
                ticket,
                object: object(seq),
                offset: 0,
                until: u64::MAX,
                turn,
                is_here,
            }
        }
        Step::Look { nth } => {
            bench.0.now = bench.0.next_deadline().unwrap_or(bench.0.now);
            let effects = bench.feed(Event::Tick);
            world.take(effects);
            let Some(ticket) = ticket_of(world, nth) else { return };
            Event::Done(Done::Seen { ticket, written: world.shell[&ticket].written })
        }
        Step::Enough { nth } => {
            let asked = bench.0.serves.keys().nth(nth % bench.0.serves.len().max(1)).copied();
            let Some((from, ticket)) = asked else { return };
            Event::Enough { from, ticket }
        }
        Step::NowFrom { seq, later, sources } => {
            let object = object(seq);
            let Some(turn) = bench.0.pulls.get(&object).map(|pull| pull.turn) else { return };
            let sources = (0..3).filter(|bit| sources & (1 << bit) != 0);
            let sources = sources.map(|bit| NodeNumber::alone(2 + bit)).collect();
            Event::NowFrom { object, turn, now: turn + later, sources }
        }
        Step::Lags { nth } => {
            let asked = bench.0.serves.keys().nth(nth % bench.0.serves.len().max(1)).copied();
            let Some((to, ticket)) = asked else { return };
            Event::Done(Done::Lags { to, ticket })
        }
        Step::Clear { nth } => {
            if world.clears.is_empty() {
                return;
            }
            let nth = nth % world.clears.len();
            let (ticket, slot) = world.clears.swap_remove(nth);
            world.relays.retain(|_, reads| reads.slot != slot);
            Event::Done(Done::Cleared { ticket })
        }
        Step::FoldFrom { index, from, operands } => {
            let (made, from, upstream) = (made(index), NodeNumber::alone(from), object(100));
            let operands = (0..2).filter(|bit| operands & (1 << bit) != 0);
            let operands = operands.map(|bit| object(103 + bit)).collect();
            if !world.broken.remove(&made) {
                return;
            }
            Event::FoldFrom { asker: HOME, made, from, upstream, operands }
        }
        Step::Fold { index, operands, from, ring, begin } => {
            // Who asked for it asks once.
            let is_here = bench.0.pulls.contains_key(&made(index))
                || bench.0.wholes.contains_key(&made(index));
            if world.folds.contains_key(&made(index)) || is_here {
                return;
            }
            world.folds.insert(made(index), false);
            world.rings.remove(&made(index));
            if let Some(seq) = ring {
                world.rings.insert(made(index), (object(seq), false));
            }
            let result = ring.map(object);
            let ring = ring.map(|_| Ring { at: 0, of: 2 });
            let operands = (0..2).filter(|bit| operands & (1 << bit) != 0);
            let fold = Fold {
                made: made(index),
                op: FoldOp::Sum,
                bytes: 5000,
                from: NodeNumber::alone(from),
                upstream: object(100),
                operands: operands.map(|bit| object(101 + bit)).collect(),
                turn: 2,
                divide_by: None,
                ring,
                result,
                rest: (ring.is_none() && begin < 5000)
                    .then_some(Rest { from: begin, front: Front::default() }),
            };
            Event::FoldAsked { asker: HOME, fold: Box::new(fold) }
        }
        Step::FoldOver { index, sealed } => {
            // Who asked says one word.
            let is_said = world.folds.remove(&made(index)).is_none();
            world.broken.remove(&made(index));
            if let Some(ring) = world.rings.get_mut(&made(index)).filter(|_| !is_said) {
                ring.1 |= sealed;
            }
            Event::FoldOver { asker: HOME, made: made(index), sealed: sealed && !is_said }
        }
        Step::AskFold { index, turn } => {
            world.asks += 1;
            let (ticket, from) = (world.asks, NodeNumber::alone(9));
            Event::Asked {
                from,
                ticket,
                object: made(index),
                offset: 0,
                until: u64::MAX,
                turn,
                is_here: false,
            }
        }
        Step::Found { nth, well } => {
            if world.wants.is_empty() {
                return;
            }
            let nth = nth % world.wants.len();
            let object = world.wants.swap_remove(nth);
            match well && object.task.seq >= 100 {
                true => Event::Ready { object, location: Location { len: 5000, ..LOCATION } },
                false => Event::Unreadable { object, why: "it is lost".to_string() },
            }
        }
        Step::Reclaim { nth } => {
            let nth = nth % world.sealed.len().max(1);
            let Some(offset) = world.sealed.keys().nth(nth).copied() else { return };
            let (_, location) = world.sealed.remove(&offset).unwrap();
            if offset >= FILE {
                // Its place and slot are the node's.
                world.rooms.remove(&offset);
                world.slots.remove(&location.slot);
                return;
            }
            Event::Reclaimed { location }
        }
    };
    let effects = bench.feed(event);
    world.take(effects);
}

proptest! {
    #[test]
    fn every_pull_has_one_end_and_all_room_comes_back(steps in prop::collection::vec(step(), 1..200)) {
        let (mut bench, mut world) = (Bench::new(), World::default());
        for step in steps {
            run(&mut bench, &mut world, step);
        }
        // The world does its part for all that is under way.
        for index in 0..6 {
            run(&mut bench, &mut world, Step::FoldOver { index, sealed: false });
        }
        for _ in 0..1000 {
            run(&mut bench, &mut world, Step::Grant { nth: 0, how: 2 });
            run(&mut bench, &mut world, Step::Clear { nth: 0 });
            run(&mut bench, &mut world, Step::Look { nth: 0 });
            if world.shell.values().any(|attempt| attempt.told_to_stop) {
                let nth = world.shell.values().position(|attempt| attempt.told_to_stop).unwrap();
                run(&mut bench, &mut world, Step::Stop { nth });
            } else {
                run(&mut bench, &mut world, Step::Write { nth: 0, bytes: 1 << 20 });
            }
        }
        prop_assert!(world.open.values().all(|open| *open == 0), "XFER-7");
        prop_assert!(bench.0.pulls.is_empty() && bench.0.tickets.is_empty());
        prop_assert!(bench.0.wanting.is_empty() && bench.0.wholes.is_empty(), "XFER-12");
        while !world.sealed.is_empty() {
            run(&mut bench, &mut world, Step::Reclaim { nth: 0 });
        }
        prop_assert!(world.rooms.is_empty(), "{:?}", world.rooms);
        let kept: BTreeSet<u32> = bench.0.slots.iter().copied().collect();
        prop_assert_eq!(kept, world.slots, "XFER-6");
    }
}
