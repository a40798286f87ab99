//! Folds event by event.

use hoplo_base::limits::FOLDS_MAX;
use hoplo_wire::layout::Layout;

use super::*;

pub(super) const OPERAND: Location = Location { slot: 5, generation: 2, offset: 8192, len: 100 };
pub(super) const OP: FoldOp = FoldOp::Sum;

/// Of node `HOME`.
pub(super) fn made(index: u32) -> ObjectId {
    TaskId { owner: ProcessId::new(HOME, 0, 0), seq: 4 }.object(index)
}

pub(super) fn fold(operands: &[u64]) -> Fold {
    let operands = operands.iter().map(|seq| object(*seq)).collect();
    let (upstream, turn) = (object(9), 1);
    let (divide_by, ring, result, rest) = (None, None, None, None);
    let (made, op, bytes, from) = (made(1), OP, 100, OTHER);
    Fold { made, op, bytes, from, upstream, operands, turn, divide_by, ring, result, rest }
}

impl Bench {
    pub(super) fn folds(&mut self, fold: Fold) -> Vec<Effect> {
        self.feed(Event::FoldAsked { asker: HOME, fold: Box::new(fold) })
    }

    /// Its operand is object 1, its room is that of `receiving`, its ticket 2.
    fn folding() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.folds(fold(&[1])), [Effect::Want { object: object(1) }]);
        let wants = Effect::WantRoom { request: 1, bytes: 100, slots: 1 };
        let ready = Event::Ready { object: object(1), location: OPERAND };
        assert_eq!(bench.feed(ready), [wants]);
        let order = Order::Fold {
            ticket: 2,
            from: OTHER,
            place: PLACE,
            written: 0,
            op: OP,
            operands: vec![OPERAND],
            divide_by: None,
            ring: None,
            rest: None,
        };
        let fetch = Effect::Fetch {
            to: OTHER,
            ticket: 2,
            object: object(9),
            offset: 0,
            until: u64::MAX,
            turn: 1,
        };
        assert_eq!(bench.feed(granted(1, 0, 4096, &[7])), [Effect::Order(order), fetch]);
        bench
    }

    pub(super) fn next_node_asks(&mut self, ticket: u64, turn: u64) -> Vec<Effect> {
        let (from, object, offset) = (OTHER, made(1), 0);
        self.feed(Event::Asked {
            from,
            ticket,
            object,
            offset,
            until: u64::MAX,
            turn,
            is_here: false,
        })
    }

    fn over(&mut self) -> Vec<Effect> {
        self.feed(Event::FoldOver { asker: HOME, made: made(1), sealed: false })
    }

    pub(super) fn is_received(&mut self) -> Vec<Effect> {
        self.feed(Event::Done(Done::Received { ticket: 2, generation: 9 }))
    }
}

pub(super) const WHOLE: Location = Location { slot: 7, generation: 9, offset: 0, len: 100 };

fn relay(ticket: u64) -> Effect {
    Effect::Order(Order::Relay { to: OTHER, ticket, place: PLACE, offset: 0 })
}

fn no_fold(effects: &[Effect]) -> &str {
    let [.., Effect::NoFold { to: HOME, made: it, why, .. }] = effects else {
        panic!("{effects:?}")
    };
    assert_eq!(*it, made(1));
    why
}

#[test]
fn what_is_folded_is_sent_on_as_it_comes_and_kept_until_it_is_over() {
    let mut bench = Bench::folding();
    assert_eq!(bench.next_node_asks(1, 2), [relay(1)]);
    assert_eq!(bench.is_received(), [], "XFER-12: it is kept, and no object");
    let send = Order::Send {
        to: OTHER,
        ticket: 2,
        location: WHOLE,
        offset: 0,
        until: u64::MAX,
        made: true,
    };
    assert_eq!(bench.next_node_asks(2, 2), [Effect::Order(send)]);
    assert_eq!(bench.over(), [Effect::Seal { object: made(1), location: WHOLE }]);
    assert_eq!(bench.over(), []);
}

#[test]
fn nothing_is_folded_where_there_is_room_on_disk_only() {
    let mut bench = Bench::new();
    bench.next_node_asks(1, 2);
    bench.folds(fold(&[]));
    let offset = 1 << 30;
    let effects = bench.feed(Event::FileGranted { request: 1, offset, len: 100, slot: 9 });
    let back = Effect::ReturnRoom { offset, len: 100 };
    assert!(refused(&effects[..1], 1) && effects.contains(&back), "{effects:?}");
    assert_eq!(no_fold(&effects), "there is no room for it in memory");
}

#[test]
fn who_asks_before_the_fold_was_asked_for_waits() {
    let mut bench = Bench::new();
    assert_eq!(bench.next_node_asks(1, 2), []);
    bench.folds(fold(&[]));
    let effects = bench.feed(granted(1, 0, 4096, &[7]));
    assert_eq!(effects[2..], [relay(1)], "{effects:?}");
    // And hears so if there will be none.
    let mut bench = Bench::new();
    bench.next_node_asks(1, 2);
    bench.folds(fold(&[1]));
    let gone = Event::Unreadable { object: object(1), why: "it is lost".to_string() };
    let effects = bench.feed(gone);
    assert!(refused(&effects[..1], 1), "{effects:?}");
    assert!(no_fold(&effects).contains("it is lost"));
}

#[test]
fn the_last_fold_is_handed_over_to_who_asked_for_it() {
    let mut bench = Bench::new();
    let mine = TaskId { owner: ProcessId::new(ME, 0, 0), seq: 4 }.object(0);
    let it = Fold { made: mine, ..fold(&[]) };
    bench.feed(Event::FoldAsked { asker: ME, fold: Box::new(it) });
    bench.feed(granted(1, 0, 4096, &[7]));
    let handed = Effect::HandOver { made: mine, location: WHOLE };
    assert_eq!(bench.is_received(), [handed]);
}

#[test]
fn what_begins_at_this_node_is_fetched_from_nobody() {
    let mut bench = Bench::new();
    let effects = bench.folds(Fold { from: ME, upstream: object(1), ..fold(&[2]) });
    assert_eq!(effects, [1, 2].map(|seq| Effect::Want { object: object(seq) }));
    let source = Location { slot: 6, ..OPERAND };
    bench.feed(Event::Ready { object: object(1), location: source });
    bench.feed(Event::Ready { object: object(2), location: OPERAND });
    let operands = vec![OPERAND];
    let (written, rest) = (0, None);
    let order =
        Order::FoldHere { ticket: 2, place: PLACE, written, op: OP, source, operands, rest };
    assert_eq!(bench.feed(granted(1, 0, 4096, &[7])), [Effect::Order(order)]);
    assert_eq!(bench.over(), [Effect::Order(Order::StopReceive { ticket: 2 })]);
    let room = Effect::ReturnRoom { offset: 0, len: 4096 };
    assert_eq!(bench.feed(stopped(2, 0)), [room]);
}

#[test]
fn a_member_that_is_operand_twice_is_asked_for_once() {
    let mut bench = Bench::new();
    let effects = bench.folds(fold(&[1, 1]));
    assert_eq!(effects, [Effect::Want { object: object(1) }]);
    bench.feed(Event::Ready { object: object(1), location: OPERAND });
    let effects = bench.feed(granted(1, 0, 4096, &[7]));
    let Effect::Order(Order::Fold { operands, .. }) = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(operands[..], [OPERAND, OPERAND]);
}

#[test]
fn what_cannot_be_folded_is_told_once() {
    // What it begins with has another length.
    let mut bench = Bench::new();
    bench.folds(Fold { from: ME, upstream: object(1), ..fold(&[]) });
    let location = Location { len: 99, ..OPERAND };
    let effects = bench.feed(Event::Ready { object: object(1), location });
    assert!(no_fold(&effects).contains("99 bytes, and not 100"));
    // No room.
    let mut bench = Bench::new();
    bench.folds(fold(&[]));
    let failure = Failure::new(FailureKind::StoreFull, "it is full");
    let effects = bench.feed(Event::Denied { request: 1, failure });
    assert!(no_fold(&effects).contains("it is full"));
    // A source that does not send, or the shell: there is no second one.
    let mut bench = Bench::folding();
    let stop = Effect::Order(Order::StopReceive { ticket: 2 });
    assert_eq!(bench.feed(no_bytes(OTHER, 2)), [stop]);
    no_fold(&bench.feed(stopped(2, 10)));
    assert_eq!(bench.over(), []);
    let mut bench = Bench::folding();
    let effects = bench.feed(stopped(2, 10));
    assert_eq!(effects[0], Effect::Enough { to: OTHER, ticket: 2 });
    assert!(no_fold(&effects).contains("it is bad"));
}

/// What is there of it when its source dies.
fn rest() -> Rest {
    Rest { from: 40, front: Layout::front(&[7; 40], 100).unwrap_or_default() }
}

/// The shell heard first that the source is gone, and so much is there.
fn link_lost(ticket: u64) -> Event {
    let why = "the link was lost".to_string();
    let Rest { from: written, front } = rest();
    let front = Some(front);
    Event::Done(Done::Stopped { ticket, written, why, lost: true, front })
}

#[test]
fn a_fold_whose_source_died_goes_on_behind_what_it_has() {
    let mut bench = Bench::folding();
    assert_eq!(bench.next_node_asks(1, 2), [relay(1)]);
    let tells = Effect::FoldBroke { to: HOME, made: made(1), rest: rest() };
    assert_eq!(bench.feed(link_lost(2)), [Effect::Enough { to: OTHER, ticket: 2 }, tells.clone()]);
    assert_eq!(bench.feed(Event::NodeGone { node: NodeNumber::alone(8) }), [], "XFER-15: once");
    assert_eq!(bench.next_node_asks(2, 2), [], "it waits");
    let from = NodeNumber::alone(9);
    let goes_on = |asker| {
        let (upstream, operands) = (made(5), vec![]);
        Event::FoldFrom { asker, made: made(1), from, upstream, operands }
    };
    assert_eq!(bench.feed(goes_on(OTHER)), [], "it is not who asked for it");
    let effects = bench.feed(goes_on(HOME));
    let [Effect::Order(Order::Fold { ticket, written, rest, .. }), fetch, again] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((*written, rest), (40, &None), "its own room has the front");
    let (object, offset, until, turn) = (made(5), 40, u64::MAX, 1);
    assert_eq!(*fetch, Effect::Fetch { to: from, ticket: *ticket, object, offset, until, turn });
    assert_eq!(*again, relay(2), "who was relayed to before still is");
    assert_eq!(bench.feed(goes_on(HOME)), [], "it has a source");
    // That one may die as well.
    assert!(bench.feed(link_lost(*ticket)).contains(&tells));
    // And what is not lost ends it, though a source died before.
    let effects = bench.feed(goes_on(HOME));
    let Effect::Order(Order::Fold { ticket, .. }) = effects[0] else { panic!("{effects:?}") };
    no_fold(&bench.feed(stopped(ticket, 60))[..2]);
}

#[test]
fn what_is_made_again_at_the_node_that_waits_joins_its_operands() {
    let from = NodeNumber::alone(9);
    let broken = || {
        let mut bench = Bench::folding();
        bench.feed(link_lost(2));
        let (upstream, operands) = (made(5), vec![object(4)]);
        let goes_on = Event::FoldFrom { asker: HOME, made: made(1), from, upstream, operands };
        assert_eq!(bench.feed(goes_on.clone()), [Effect::Want { object: object(4) }]);
        assert_eq!(bench.feed(goes_on), [], "it is looked for");
        bench
    };
    let mut bench = broken();
    let found = Location { slot: 8, ..OPERAND };
    let effects = bench.feed(Event::Ready { object: object(4), location: found });
    let [Effect::Order(Order::Fold { operands, written, rest: it, .. }), Effect::Fetch { to, .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((&operands[..], *written, it), (&[OPERAND, found][..], 40, &Some(rest())));
    assert_eq!(*to, from);
    // It is gone, or the next source is before it is found.
    let gone = Event::Unreadable { object: object(4), why: "it is lost".to_string() };
    assert!(no_fold(&broken().feed(gone)).contains("it is lost"));
    let mut bench = broken();
    let tells = Effect::FoldBroke { to: HOME, made: made(1), rest: rest() };
    assert_eq!(bench.feed(Event::NodeGone { node: from }), [tells]);
    assert_eq!(bench.feed(Event::Ready { object: object(4), location: found }), []);
}

#[test]
fn a_fold_that_waits_for_another_source_ends_when_it_is_over() {
    let broken = || {
        let mut bench = Bench::folding();
        bench.feed(link_lost(2));
        bench
    };
    let room = Effect::ReturnRoom { offset: 0, len: 4096 };
    assert_eq!(broken().over(), std::slice::from_ref(&room));
    assert_eq!(broken().feed(Event::NodeGone { node: HOME }), std::slice::from_ref(&room));
    let mut bench = broken();
    bench.next_node_asks(1, 2);
    let effects = bench.over();
    assert!(refused(&effects[..1], 1) && effects[1] == room, "{effects:?}");
}

#[test]
fn of_a_death_before_anything_came_the_fold_ends() {
    let dead = Event::NodeGone { node: OTHER };
    // It waits for an operand.
    let mut bench = Bench::new();
    bench.folds(fold(&[1]));
    assert!(no_fold(&bench.feed(dead.clone())).contains("died"));
    // For room.
    let mut bench = Bench::new();
    bench.folds(fold(&[]));
    assert_eq!(bench.feed(dead), []);
    no_fold(&bench.feed(granted(1, 0, 4096, &[7])));
}

#[test]
fn what_takes_the_place_of_a_dead_node_makes_the_rest() {
    let mut bench = Bench::new();
    bench.folds(Fold { rest: Some(rest()), ..fold(&[]) });
    let effects = bench.feed(granted(1, 0, 4096, &[7]));
    let [Effect::Order(Order::Fold { written, rest: it, .. }), Effect::Fetch { offset, .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    let (written, offset) = (*written, *offset);
    assert_eq!((written, it, offset), (40, &Some(rest()), 40));
    let mut bench = Bench::new();
    bench.folds(Fold { rest: Some(rest()), from: ME, upstream: object(1), ..fold(&[]) });
    bench.feed(Event::Ready { object: object(1), location: OPERAND });
    let effects = bench.feed(granted(1, 0, 4096, &[7]));
    let [Effect::Order(Order::FoldHere { written: 40, rest: it, .. })] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(*it, Some(rest()));
}

#[test]
fn another_try_is_of_no_use_where_members_differ() {
    let again = |effects: Vec<Effect>| match &effects[..] {
        [.., Effect::NoFold { again, .. }] => *again,
        other => panic!("{other:?}"),
    };
    let mut bench = Bench::folding();
    assert!(again(bench.feed(stopped(2, 10))));
    let mut bench = Bench::folding();
    let why = "they differ".to_string();
    assert!(!again(bench.feed(Event::Done(Done::Unfit { ticket: 2, why }))));
    // It was told to stop meanwhile.
    let mut bench = Bench::folding();
    bench.over();
    let why = "they differ".to_string();
    let effects = bench.feed(Event::Done(Done::Unfit { ticket: 2, why }));
    assert_eq!(effects, [Effect::ReturnRoom { offset: 0, len: 4096 }]);
}

#[test]
fn whoever_is_relayed_to_hears_that_it_cannot_be_made() {
    let mut bench = Bench::folding();
    bench.next_node_asks(1, 2);
    let effects = bench.feed(stopped(2, 10));
    // Who asked for it first: else it may hear before that the other one lost its source.
    assert!(no_fold(&effects[..2]).contains("it is bad"));
    assert!(refused(&effects[2..3], 1), "{effects:?}");
    assert_eq!(effects[3..], [Effect::Order(Order::Clear { ticket: 3, slot: 7 })]);
    let effects = bench.feed(Event::Done(Done::Cleared { ticket: 3 }));
    assert_eq!(effects, [Effect::ReturnRoom { offset: 0, len: 4096 }], "XFER-12: once");
}

#[test]
fn what_is_over_ends_wherever_it_is() {
    let room = Effect::ReturnRoom { offset: 0, len: 4096 };
    // It waits for an operand.
    let mut bench = Bench::new();
    bench.folds(fold(&[1]));
    assert_eq!(bench.over(), []);
    assert_eq!(bench.feed(Event::Ready { object: object(1), location: OPERAND }), []);
    // For room.
    let mut bench = Bench::new();
    bench.folds(fold(&[]));
    assert_eq!(bench.over(), []);
    assert_eq!(bench.feed(granted(1, 0, 4096, &[7])), std::slice::from_ref(&room));
    // It comes.
    let mut bench = Bench::folding();
    let enough = Effect::Enough { to: OTHER, ticket: 2 };
    let stop = Effect::Order(Order::StopReceive { ticket: 2 });
    assert_eq!(bench.over(), [enough.clone(), stop.clone()]);
    assert_eq!(bench.feed(stopped(2, 10)), [room]);
    // It was whole before the shell heard that it is over.
    let mut bench = Bench::folding();
    assert_eq!(bench.over(), [enough, stop]);
    assert_eq!(bench.is_received(), [Effect::Seal { object: made(1), location: WHOLE }]);
}

#[test]
fn what_a_dead_node_asked_for_is_over() {
    let mut bench = Bench::folding();
    bench.is_received();
    let seal = Effect::Seal { object: made(1), location: WHOLE };
    assert_eq!(bench.feed(Event::NodeGone { node: HOME }), [seal]);
    assert_eq!(bench.0.folds(), 0);
}

#[test]
fn only_who_asked_for_it_may_end_it() {
    let mut bench = Bench::folding();
    assert_eq!(bench.feed(Event::FoldOver { asker: OTHER, made: made(1), sealed: false }), []);
    bench.is_received();
    assert_eq!(bench.feed(Event::FoldOver { asker: OTHER, made: made(1), sealed: false }), []);
    assert_eq!(bench.0.folds(), 1);
}

#[test]
fn nobody_has_folded_what_is_named_by_another_node() {
    let mut bench = Bench::new();
    for it in [made(1), object(1)] {
        let it = Fold { made: it, ..fold(&[]) };
        let effects = bench.feed(Event::FoldAsked { asker: OTHER, fold: Box::new(it) });
        assert_eq!(effects, []);
    }
    assert_eq!(bench.0.folds(), 0);
}

#[test]
fn there_are_only_so_many_folds() {
    let mut bench = Bench::new();
    for index in 0..FOLDS_MAX as u32 {
        let it = Fold { made: made(index + 2), ..fold(&[1]) };
        assert_eq!(bench.folds(it), [Effect::Want { object: object(1) }]);
    }
    assert!(no_fold(&bench.folds(fold(&[1]))).contains("too much"));
}
