//! Two machines and a link between them that loses nothing, against what everybody would expect.

mod random;

use std::collections::VecDeque;

use hoplo_base::{FunctionId, JobId, NodeNumber, ObjectId, ProcessId, TaskId, limits};
use hoplo_wire::call::{CALL_NAMES, CallHeader, CallKind, encode_trailer};
use hoplo_wire::node::{DeathCause, Obituary};
use hoplo_wire::reply::{ReplyHeader, ReplyKind, Returned, encode_returned};
use hoplo_wire::{Location, Value};

use super::*;

fn node(at: u32) -> NodeNumber {
    NodeNumber::alone(at)
}

fn pair(at: u32) -> Pair {
    let caller = ProcessId::new(node(1), at, at as u16);
    Pair { caller, worker: ProcessId::new(node(2), at, at as u16) }
}

fn died(why: &str) -> Obituary {
    let cause = DeathCause::Stopped { reason: why.to_string() };
    Obituary { pid: 1, cause, last_lines: vec![] }
}

fn object(pair: Pair, tag: u64, index: u32) -> ObjectId {
    TaskId { owner: pair.caller, seq: tag }.object(index)
}

fn call(pair: Pair, tag: u64, bytes: usize, named: &[ObjectId]) -> Vec<u8> {
    let header = CallHeader {
        kind: CallKind::Task,
        flags: CALL_NAMES,
        returns: 1,
        task: TaskId { owner: pair.caller, seq: tag },
        attempt: 0,
        max_calls: 0,
        function: FunctionId([0; 16]),
        job: JobId(1),
    };
    let mut out = header.encode(0, bytes, 0).to_vec();
    out.resize(out.len() + bytes, tag as u8);
    encode_trailer(named, &mut out);
    out
}

fn reply(tag: u64, kind: ReplyKind, value: Value, contains: &[ObjectId]) -> Vec<u8> {
    let header =
        ReplyHeader { kind, flags: 0, attempt: 0, seq: tag, started_ns: 0, ran_ns: 0, index: 4 };
    let mut out = header.encode(1).to_vec();
    encode_returned(&[Returned { value, contains: contains.to_vec() }], &mut out);
    out
}

fn inline() -> Value {
    Value::Inline((*b"v").into())
}

/// A daemon's machine, what it said to its decider and to its shell, and what waits there.
struct Side {
    carry: Carry,
    sent: VecDeque<Item>,
    asked: VecDeque<(u64, Passing)>,
    told: Vec<Effect>,
    /// What was written into this side's rings.
    written: Vec<(Pair, u64)>,
    /// Calls in a worker's ring that it has not taken: here they may be taken back.
    ring: Vec<(Pair, u64)>,
    covers: u64,
}

struct Two {
    sides: [Side; 2],
}

impl Side {
    fn new(at: u32) -> Self {
        Self {
            carry: Carry::new(node(at)),
            sent: VecDeque::new(),
            asked: VecDeque::new(),
            told: Vec::new(),
            written: Vec::new(),
            ring: Vec::new(),
            covers: 0,
        }
    }

    fn hear(&mut self, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Send { item, .. } => self.sent.push_back(item),
                Effect::Pass { ticket, frame } => self.asked.push_back((ticket, frame)),
                Effect::Look { .. } => {}
                Effect::TakeBack { pair, seqs, mut revoked } => {
                    let (back, kept): (Vec<u64>, Vec<u64>) =
                        seqs.into_iter().partition(|seq| self.ring.contains(&(pair, *seq)));
                    self.ring.retain(|(of, tag)| *of != pair || !back.contains(tag));
                    revoked.extend(back);
                    let mut more = Vec::new();
                    let event = Event::TakenBack { pair, seqs: revoked, kept };
                    self.carry.handle(event, &mut more);
                    effects.extend(more);
                }
                other => self.told.push(other),
            }
        }
        self.carry.check();
    }

    fn handle(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.carry.handle(event, &mut effects);
        self.hear(effects);
    }

    fn calls(&mut self, pair: Pair, tag: u64, bytes: usize, named: &[ObjectId]) {
        let mut effects = Vec::new();
        let frame = call(pair, tag, bytes, named);
        self.carry.took_call(pair, tag, &frame, &mut effects).unwrap();
        self.hear(effects);
    }

    fn replies(&mut self, pair: Pair, tag: u64, bytes: Vec<u8>) {
        self.ring.retain(|one| *one != (pair, tag));
        let mut effects = Vec::new();
        self.carry.took_reply(pair, tag, bytes, &mut effects).unwrap();
        self.hear(effects);
    }

    /// The decider lets the oldest go; false if nothing waits.
    fn go(&mut self) -> bool {
        let Some((ticket, frame)) = self.asked.pop_front() else { return false };
        let covers = frame.arrived.is_none() && !frame.named.is_empty();
        self.covers += u64::from(covers);
        self.handle(Event::Go { ticket, cover: if covers { self.covers } else { 0 } });
        true
    }

    fn writes(&mut self, pair: Pair) -> bool {
        let Some((tag, _)) = self.carry.front(pair) else { return false };
        self.written.push((pair, tag));
        if pair.worker.node() == self.carry.me {
            self.ring.push((pair, tag));
        }
        let mut effects = Vec::new();
        self.carry.written(pair, &mut effects);
        self.hear(effects);
        true
    }

    fn told(&mut self, wanted: impl Fn(&Effect) -> bool) -> Vec<Effect> {
        self.told.iter().filter(|effect| wanted(effect)).cloned().collect()
    }

    fn ended(&mut self) -> Vec<Effect> {
        self.told(|effect| matches!(effect, Effect::Ended { .. }))
    }

    fn revoked(&mut self) -> Vec<Effect> {
        self.told(|effect| matches!(effect, Effect::Revoked { .. }))
    }
}

impl Two {
    fn new(pairs: u32) -> Self {
        let mut two = Self { sides: [Side::new(1), Side::new(2)] };
        for at in 1..=pairs {
            two.sides.iter_mut().for_each(|side| side.handle(Event::Opened { pair: pair(at) }));
        }
        two
    }

    fn near(&mut self) -> &mut Side {
        &mut self.sides[0]
    }

    fn far(&mut self) -> &mut Side {
        &mut self.sides[1]
    }

    /// One item from that side arrives, through its bytes.
    fn arrives(&mut self, from: usize) -> bool {
        let Some(item) = self.sides[from].sent.pop_front() else { return false };
        let (mut bytes, mut items) = (Vec::new(), Vec::new());
        item.encode(&mut bytes);
        Item::parse_all(&bytes.into(), &mut items).unwrap();
        assert_eq!(items, [item]);
        let from_node = node(from as u32 + 1);
        let item = items.remove(0);
        self.sides[1 - from].handle(Event::Arrived { from: from_node, item });
        true
    }

    /// All that can move does.
    fn settles(&mut self) {
        loop {
            let mut moved = false;
            for at in 0..2 {
                while self.arrives(at) {
                    moved = true;
                }
                while self.sides[at].go() {
                    moved = true;
                }
                let pairs: Vec<Pair> = self.sides[at].carry.halves.keys().copied().collect();
                for pair in pairs {
                    while self.sides[at].writes(pair) {
                        moved = true;
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }
}

#[test]
fn a_call_that_names_refs_waits_for_both_deciders_and_what_follows_waits_behind_it() {
    let (mut two, pair) = (Two::new(1), pair(1));
    let named = [object(pair, 9, 0)];
    two.near().calls(pair, 1, 8, &named);
    two.near().calls(pair, 2, 8, &[]);
    assert!(two.near().sent.is_empty(), "CARRY-5");
    two.near().go();
    assert_eq!(two.near().sent.len(), 2);
    while two.arrives(0) {}
    assert!(!two.far().writes(pair), "CARRY-5");
    let passing = two.far().asked[0].1.clone();
    assert_eq!((passing.arrived, &passing.named[..]), (Some(1), &named[..]));
    two.settles();
    assert_eq!(two.far().written, [(pair, 1), (pair, 2)]);
    // Of its last reply the worker's decider is told, and nobody waits for it. Of one that names nothing of the other call nobody is told.
    two.far().replies(pair, 2, reply(2, ReplyKind::Finished, inline(), &[]));
    two.far().replies(pair, 1, reply(1, ReplyKind::Item, inline(), &[]));
    assert!(two.far().asked.is_empty());
    two.far().replies(pair, 1, reply(1, ReplyKind::StreamEnd, inline(), &[]));
    assert!(two.far().asked[0].1.is_last);
    while two.arrives(1) {}
    assert!(two.near().asked.is_empty());
    while two.near().writes(pair) {}
    assert_eq!(two.near().written, [(pair, 2), (pair, 1), (pair, 1)]);
    two.settles();
    assert_eq!(two.near().written.len(), 3);
}

#[test]
fn a_stored_result_is_named_by_its_call_and_elsewhere_only_its_node_is_told() {
    let (mut two, pair) = (Two::new(1), pair(1));
    two.near().calls(pair, 7, 0, &[]);
    two.settles();
    let place = Location { slot: 1, generation: 1, offset: 64, len: 9 };
    two.far().replies(pair, 7, reply(7, ReplyKind::Item, Value::Stored(place), &[]));
    assert_eq!(two.far().asked[0].1.named, [object(pair, 7, 4)]);
    while two.far().go() {}
    while two.arrives(1) {}
    while two.near().go() {}
    let frame = two.near().carry.front(pair).unwrap().1.to_vec();
    let view = hoplo_wire::reply::ReplyView::parse(&frame).unwrap();
    let value = view.values().next().unwrap().unwrap().0.to_value();
    assert_eq!(value, Value::Stored(Location::elsewhere(pair.worker.node(), place.len)));
}

#[test]
fn a_slow_worker_stops_its_own_caller_and_no_other() {
    let (mut two, slow, quick) = (Two::new(2), pair(1), pair(2));
    let mut tag = 0;
    while two.near().carry.takes(slow) {
        tag += 1;
        two.near().calls(slow, tag, 1000, &[]);
    }
    let most = limits::CARRY_CREDIT_BYTES / 1000 + 1;
    assert!((most / 2..=most).contains(&(tag as usize)), "CARRY-4: {tag}");
    while two.arrives(0) {}
    assert!(!two.near().carry.takes(slow) && two.near().carry.takes(quick));
    // It takes some: not each is told by itself.
    two.settles();
    let credits = two.far().written.len();
    assert!(two.near().carry.takes(slow) && credits == tag as usize);
    assert!(two.near().told.is_empty());
}

#[test]
fn a_revocation_overtakes_what_waits_for_room() {
    let (mut two, pair) = (Two::new(1), pair(1));
    let named = [object(pair, 9, 0)];
    for tag in 1..=3 {
        two.near().calls(pair, tag, 0, &named);
    }
    while two.near().go() {}
    while two.arrives(0) {}
    while two.far().go() {}
    two.far().writes(pair); // the ring is full after the first one
    two.near().handle(Event::Revoke { pair, seqs: vec![1, 2, 3, 4] });
    two.arrives(0);
    two.settles();
    let (seqs, kept) = (vec![2, 3, 1], vec![4]);
    assert_eq!(two.near().revoked(), [Effect::Revoked { pair, seqs, kept }]);
    assert_eq!(two.far().written, [(pair, 1)], "CARRY-7");
    // The deciders hear that the calls are over.
    assert_eq!(two.near().written, [], "there is no reply to write");
    two.far().handle(Event::WorkerGone { pair, unread: vec![], obituary: died("late") });
    two.settles();
    let unstarted = vec![];
    let ended = Effect::Ended { pair, unstarted, obituary: died("late") };
    assert_eq!(two.near().ended(), [ended]);
    assert!(two.near().carry.is_empty() && two.far().carry.is_empty());
}

#[test]
fn what_was_sent_after_a_death_never_began() {
    let (mut two, pair) = (Two::new(1), pair(1));
    for tag in 1..=3 {
        two.near().calls(pair, tag, 0, &[]);
    }
    two.settles();
    two.far().replies(pair, 1, reply(1, ReplyKind::Finished, inline(), &[]));
    // 2 was taken, 3 was not; 4 is on its way, 5 waits for the decider.
    two.near().calls(pair, 4, 0, &[]);
    two.near().calls(pair, 5, 0, &[object(pair, 9, 0)]);
    two.far().handle(Event::WorkerGone { pair, unread: vec![3], obituary: died("bang") });
    while two.arrives(1) {}
    assert_eq!(two.near().ended(), [], "CARRY-6: a reply is not written");
    two.near().writes(pair);
    let ended = Effect::Ended { pair, unstarted: vec![3, 4, 5], obituary: died("bang") };
    assert_eq!(two.near().ended(), [ended]);
    // What has its cover only now goes to the other decider, and ends there.
    two.settles();
    assert_eq!(two.far().written, [(pair, 1), (pair, 2), (pair, 3)]);
    assert!(two.near().carry.is_empty() && two.far().carry.is_empty());
}

#[test]
fn a_cover_that_was_given_too_late_still_arrives() {
    let (mut two, pair) = (Two::new(1), pair(1));
    let named = [object(pair, 9, 0)];
    two.near().calls(pair, 1, 0, &named);
    two.near().handle(Event::Closed { pair });
    two.near().go();
    while two.arrives(0) {}
    let passing = two.far().asked.pop_front().unwrap().1;
    assert_eq!((passing.arrived, passing.is_last, &passing.named[..]), (Some(1), true, &named[..]));
    assert!(two.far().carry.is_empty());
}

#[test]
fn a_call_may_come_before_its_channel_and_a_death_before_both() {
    let (mut two, pair) = (Two::new(0), pair(1));
    two.near().handle(Event::Opened { pair });
    two.near().calls(pair, 1, 0, &[]);
    two.settles();
    assert_eq!(two.far().written, []);
    two.far().handle(Event::WorkerGone { pair, unread: vec![], obituary: died("early") });
    two.settles();
    let ended = Effect::Ended { pair, unstarted: vec![1], obituary: died("early") };
    assert_eq!(two.near().ended(), [ended]);
    assert!(two.near().carry.is_empty() && two.far().carry.is_empty());
}

/// It stayed for ever as a tombstone that waited for the `Closed` that had come before.
#[test]
fn of_a_channel_that_is_made_after_its_caller_left_nothing_stays() {
    let (mut two, pair) = (Two::new(0), pair(1));
    two.near().handle(Event::Opened { pair });
    two.near().handle(Event::Closed { pair });
    two.settles();
    two.far().handle(Event::Opened { pair });
    two.far().handle(Event::Closed { pair });
    two.settles();
    assert!(two.near().carry.is_empty() && two.far().carry.is_empty());
}

#[test]
fn of_a_dead_node_what_was_never_sent_never_began() {
    let (mut two, pair) = (Two::new(1), pair(1));
    two.near().calls(pair, 1, 0, &[]);
    two.near().calls(pair, 2, 0, &[]);
    two.near().calls(pair, 3, 0, &[object(pair, 9, 0)]);
    let (node, unsent, obituary) = (node(2), vec![(pair, 2)], died("the node"));
    two.near().handle(Event::NodeDead { node, unsent, obituary: obituary.clone() });
    let ended = Effect::Ended { pair, unstarted: vec![2, 3], obituary: obituary.clone() };
    assert_eq!(two.near().ended(), [ended]);
    // Who opens a channel there now hears the same.
    let late = super::tests::pair(2);
    two.near().handle(Event::Opened { pair: late });
    let ended = Effect::Ended { pair: late, unstarted: vec![], obituary };
    assert_eq!(two.near().ended()[1], ended);
    while two.near().go() {}
    assert!(two.near().carry.is_empty());
}

/// It was dropped, though its caller had been given the tokens that it brings: what it named stayed for ever.
#[test]
fn a_reply_that_came_before_its_node_died_is_written_before_the_end() {
    let (mut two, pair) = (Two::new(1), pair(1));
    two.near().calls(pair, 1, 0, &[]);
    two.near().calls(pair, 2, 0, &[]);
    let (is_last, cover) = (true, 1);
    let bytes = Bytes::Own(reply(1, ReplyKind::Finished, inline(), &[object(pair, 9, 0)]));
    let named = vec![object(pair, 9, 0)];
    let frame = Frame { pair, tag: 1, is_last, cover, named, bytes };
    two.near().handle(Event::Arrived { from: node(2), item: Item::Reply(frame) });
    let (dead, unsent, obituary) = (node(2), vec![(pair, 2)], died("the node"));
    two.near().handle(Event::NodeDead { node: dead, unsent, obituary: obituary.clone() });
    assert_eq!(two.near().ended(), [], "the decider has not let the reply pass");
    two.near().calls(pair, 3, 0, &[]);
    assert!(two.near().go());
    assert_eq!(two.near().ended(), [], "it is not in the ring");
    assert!(two.near().writes(pair));
    let ended = Effect::Ended { pair, unstarted: vec![2, 3], obituary };
    assert_eq!(two.near().ended(), [ended]);
    assert!(two.near().carry.is_empty());
}

#[test]
fn who_speaks_of_pairs_of_others_changes_nothing() {
    let (mut two, pair) = (Two::new(1), pair(1));
    for item in [Item::Closed { pair }, Item::Credit { pair, of_calls: true, bytes: 1, frames: 1 }]
    {
        two.near().handle(Event::Arrived { from: node(3), item: item.clone() });
        two.far().handle(Event::Arrived { from: node(3), item });
    }
    let credit = Item::Credit { pair, of_calls: true, bytes: 1, frames: 1 };
    two.near().handle(Event::Arrived { from: node(2), item: credit });
    let nonsense = |effect: &Effect| matches!(effect, Effect::Nonsense { .. });
    assert_eq!(two.near().told(nonsense).len(), 3);
    assert_eq!(two.far().told(nonsense).len(), 2);
    assert_eq!((two.near().carry.len(), two.far().carry.len()), (1, 1));
}
