//! Reduces event by event, and random ones against what was asked for.

mod mend;
mod trains;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_wire::{Fold, FoldOp, Location};
use proptest::prelude::*;

use hoplo_base::limits::STRIPE_BYTES_MIN;

use super::*;
use crate::objects::haul;

const ME: NodeNumber = NodeNumber::alone(1);
const A: NodeNumber = NodeNumber::alone(2);
const B: NodeNumber = NodeNumber::alone(3);
const ASKER: ProcessId = ProcessId::new(ME, 1, 1);
const RESULT: u64 = 99;

fn object(seq: u64) -> ObjectId {
    TaskId { owner: ASKER, seq }.object(0)
}

fn members(nodes: &[&[NodeNumber]]) -> Vec<Member> {
    let at = |(seq, nodes): (usize, &&[NodeNumber])| Member {
        object: object(seq as u64),
        bytes: 1 << 20,
        nodes: nodes.to_vec(),
    };
    nodes.iter().enumerate().map(at).collect()
}

/// All its members are there, and no node is known to be slow.
fn asked(request: u64, members: Vec<Member>, for_all: Option<ObjectId>) -> Event {
    let wish = Wish { op: FoldOp::Sum, divide_by: Some(4), for_all };
    Event::Asked { asker: ASKER, request, wish, members, more: false, slow: BTreeSet::new() }
}

struct Bench(Collective);

impl Bench {
    fn new() -> Self {
        Self(Collective::new(ME, haul(ME)))
    }

    fn feed(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.handle(Instant::ZERO, event, &mut effects);
        self.0.check();
        effects
    }

    fn asks(&mut self, request: u64, members: Vec<Member>) -> Vec<Effect> {
        self.feed(asked(request, members, None))
    }

    /// In a ring, as this object.
    fn asks_for_all(&mut self, request: u64, nodes: &[&[NodeNumber]]) -> Vec<Effect> {
        self.feed(asked(request, members(nodes), Some(object(RESULT))))
    }

    /// What nodes were asked for.
    fn folds(&mut self, nodes: &[&[NodeNumber]]) -> Vec<(NodeNumber, Fold)> {
        folds_of(self.asks(1, members(nodes)))
    }
}

fn folds_of(effects: Vec<Effect>) -> Vec<(NodeNumber, Fold)> {
    let fold = |effect| match effect {
        Effect::Fold { at, fold } => (at, *fold),
        other => panic!("{other:?}"),
    };
    effects.into_iter().map(fold).collect()
}

fn made(index: u32) -> ObjectId {
    TaskId { owner: haul(ME), seq: 1 }.object(index)
}

#[test]
fn each_node_folds_its_own_into_what_the_one_before_it_made() {
    let folds = Bench::new().folds(&[&[ME], &[A], &[B], &[ME]]);
    let [(first, one), (last, two)] = &folds[..] else { panic!("{folds:?}") };
    assert_eq!((*first, one.from, one.upstream), (B, A, object(1)));
    assert_eq!((one.made, &one.operands[..]), (made(1), &[object(2)][..]));
    assert_eq!((*last, two.from, two.upstream), (ME, B, made(1)));
    assert_eq!((two.made, &two.operands[..]), (made(0), &[object(0), object(3)][..]));
    assert!(one.turn < two.turn, "COLL-6");
    assert_eq!((one.divide_by, two.divide_by), (None, Some(4)), "in the end");
    assert!(one.ring.is_none() && two.ring.is_none());
}

#[test]
fn a_node_with_several_members_sends_once() {
    // One with a single member begins.
    let folds = Bench::new().folds(&[&[A], &[A], &[B]]);
    assert_eq!((folds[0].0, folds[0].1.from, folds[0].1.upstream), (A, B, object(2)));
    assert_eq!(folds[0].1.operands, [object(0), object(1)]);
    assert_eq!((folds[1].0, folds[1].1.operands.len()), (ME, 0));
    // Or one folds its own while it sends.
    let folds = Bench::new().folds(&[&[A], &[A], &[B], &[B]]);
    let order: Vec<(NodeNumber, usize)> =
        folds.iter().map(|(at, fold)| (*at, fold.operands.len())).collect();
    assert_eq!(order, [(A, 1), (B, 2), (ME, 0)]);
    assert_eq!((folds[0].1.from, folds[0].1.upstream), (A, object(1)));
}

#[test]
fn a_member_that_is_at_several_nodes_is_folded_where_others_are() {
    let folds = Bench::new().folds(&[&[A], &[B, A], &[ME, A], &[B]]);
    assert_eq!((folds[0].0, folds[0].1.from, folds[0].1.upstream), (A, B, object(3)));
    assert_eq!(folds[0].1.operands, [object(0), object(1)]);
    assert_eq!(folds[1].1.operands, [object(2)]);
}

const WHERE: Location = Location { slot: 3, generation: 1, offset: 4096, len: 100 };

#[test]
fn what_all_read_goes_round() {
    let folds = folds_of(Bench::new().asks_for_all(1, &[&[B], &[ME], &[A], &[B]]));
    let nodes: Vec<NodeNumber> = folds.iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes, [ME, A, B]);
    let names = [made(0), made(2), made(3)];
    for (at, (_, fold)) in folds.iter().enumerate() {
        let next = (at + 1) % 3;
        assert_eq!((fold.made, fold.from, fold.upstream), (names[at], nodes[next], names[next]));
        let ring = Ring { at: at as u32, of: 3 };
        assert_eq!((fold.ring, fold.divide_by, fold.turn), (Some(ring), Some(4), 1));
    }
    assert_eq!(folds[2].1.operands, [object(0), object(3)]);
}

#[test]
fn what_cannot_go_round_goes_along_a_chain() {
    let is_chain = |effects: Vec<Effect>| {
        let folds = folds_of(effects);
        !folds.is_empty() && folds.iter().all(|(_, fold)| fold.ring.is_none())
    };
    assert!(is_chain(Bench::new().asks_for_all(1, &[&[A], &[B]])), "none is here");
    let ask = |change: fn(&mut Vec<Member>)| {
        let mut members = members(&[&[ME], &[A]]);
        change(&mut members);
        Bench::new().feed(asked(1, members, Some(object(RESULT))))
    };
    assert!(is_chain(ask(|members| members[1].bytes += 1)), "they differ in length");
    assert!(is_chain(ask(|members| {
        members.iter_mut().for_each(|it| it.bytes = 2 * STRIPE_BYTES_MIN - 1);
    })));
    assert!(!is_chain(ask(|_| {})));
}

#[test]
fn those_that_wait_begin_when_others_end_in_their_order() {
    let mut bench = Bench::new();
    let many = REDUCES_AT_ONCE as u64;
    for request in 0..many {
        bench.asks(request, members(&[&[A], &[B]]));
    }
    for request in many..many + 4 {
        assert_eq!(bench.asks(request, members(&[&[A], &[B]])), []);
    }
    let task = |seq| TaskId { owner: haul(ME), seq };
    let begins = |effects: &[Effect], seq: u64| {
        let folds = effects.iter().filter_map(|effect| match effect {
            Effect::Fold { fold, .. } => Some(fold.made.task.seq),
            _ => None,
        });
        assert_eq!(folds.collect::<Vec<_>>(), [seq, seq], "{effects:?}");
    };
    let made = Event::Made { made: task(3).object(0), location: WHERE };
    begins(&bench.feed(made), many + 1);
    begins(&bench.feed(Event::GivenUp { asker: ASKER, request: 0 }), many + 2);
    // One that waits is given up: nobody was asked for anything.
    let effects = bench.feed(Event::GivenUp { asker: ASKER, request: many + 2 });
    assert!(matches!(&effects[..], [Effect::Refuse { .. }]), "{effects:?}");
    let effects = bench.feed(Event::ProcessGone { process: ASKER });
    let ends = effects.iter().filter(|effect| matches!(effect, Effect::End { .. })).count();
    let refused = effects.iter().filter(|effect| matches!(effect, Effect::Refuse { .. })).count();
    assert!(ends >= 2 * REDUCES_AT_ONCE && refused == REDUCES_AT_ONCE + 1, "{effects:?}");
}

#[test]
fn the_others_of_a_ring_hear_once_whether_theirs_became_the_result() {
    let sealed = |object, location| Event::Sealed { process: ASKER, object, location };
    let ends = |sealed| {
        let end = |(at, index)| Effect::End { at, made: made(index), sealed };
        [(A, 2), (B, 3)].map(end).to_vec()
    };
    let given = || {
        let mut bench = Bench::new();
        bench.asks_for_all(1, &[&[ME], &[A], &[B]]);
        let effects = bench.feed(Event::Made { made: made(0), location: WHERE });
        assert_eq!(effects, [Effect::Answer { asker: ASKER, request: 1, location: WHERE }]);
        bench
    };
    // It is sealed anew, so under another generation.
    let mut bench = given();
    assert_eq!(bench.feed(sealed(object(7), Location { slot: 4, ..WHERE })), [], "something else");
    let other = Event::Sealed { process: haul(ME), object: object(RESULT), location: WHERE };
    assert_eq!(bench.feed(other), [], "somebody else");
    let result = sealed(object(RESULT), Location { generation: 2, ..WHERE });
    assert_eq!(bench.feed(result.clone()), ends(true));
    assert_eq!(bench.feed(result), [], "COLL-5");
    // The result lies elsewhere: it is something else.
    let elsewhere = sealed(object(RESULT), Location { offset: 0, ..WHERE });
    assert_eq!(given().feed(elsewhere), ends(false), "COLL-7");
    // Its place was used for something else, which may be gone by now.
    assert_eq!(given().feed(sealed(object(7), WHERE)), ends(false), "COLL-7");
    let given_up = Event::GivenUp { asker: ASKER, request: 1 };
    assert_eq!(given().feed(given_up), ends(false), "COLL-7");
    // Who asked died before it was sealed.
    let mut bench = given();
    assert_eq!(bench.feed(Event::ProcessGone { process: ASKER }), ends(false));
    assert_eq!(bench.feed(Event::ProcessGone { process: ASKER }), [], "COLL-5");
}

#[test]
fn of_rings_whose_results_were_never_sealed_only_so_many_are_remembered() {
    let mut bench = Bench::new();
    let mut ended = 0;
    for request in 0..REDUCES_MAX as u64 + 3 {
        let folds = folds_of(bench.asks_for_all(request, &[&[ME], &[A]]));
        let effects = bench.feed(Event::Made { made: folds[0].1.made, location: WHERE });
        ended += effects.len() - 1;
    }
    assert_eq!(ended, 3);
}

#[test]
fn a_ring_ends_as_a_whole() {
    let mut bench = Bench::new();
    bench.asks_for_all(1, &[&[ME], &[A], &[B]]);
    let failed = Event::Failed { from: A, made: made(2), why: "full".to_string(), again: true };
    let effects = bench.feed(failed);
    let ended = effects.iter().filter(|it| matches!(it, Effect::End { sealed: false, .. })).count();
    assert!(ended == 3 && matches!(effects.last(), Some(Effect::Refuse { .. })), "{effects:?}");
}

#[test]
fn what_is_made_here_is_answered_and_ended_elsewhere() {
    let mut bench = Bench::new();
    bench.folds(&[&[A], &[B]]);
    let location = WHERE;
    let effects = bench.feed(Event::Made { made: made(0), location });
    let answer = Effect::Answer { asker: ASKER, request: 1, location };
    assert_eq!(effects, [Effect::End { at: B, made: made(1), sealed: false }, answer]);
    assert_eq!(bench.feed(Event::GivenUp { asker: ASKER, request: 1 }), [], "COLL-4");
    assert_eq!(bench.feed(Event::NodeGone { node: B }), [], "COLL-5");
}

#[test]
fn whatever_goes_wrong_ends_all_of_it_once() {
    let gone = Event::ProcessGone { process: ASKER };
    let given_up = Event::GivenUp { asker: ASKER, request: 1 };
    let failed =
        Event::Failed { from: B, made: made(1), why: "it differs".to_string(), again: false };
    for (event, why) in [(gone, "gone"), (given_up, "nobody"), (failed.clone(), "it differs")] {
        let mut bench = Bench::new();
        bench.folds(&[&[A], &[B]]);
        let effects = bench.feed(event.clone());
        let [Effect::End { at: B, .. }, Effect::End { at: ME, made: here, sealed: false }, last] =
            &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert_eq!(*here, made(0));
        let Effect::Refuse { asker: ASKER, request: 1, no } = last else { panic!("{last:?}") };
        assert!(no.why.contains(why), "{no:?}");
        assert_eq!(no.again, event != failed);
        assert_eq!(bench.feed(event), [], "COLL-4");
        assert_eq!(bench.feed(failed.clone()), [], "COLL-5");
    }
}

#[test]
fn what_others_say_of_folds_that_they_were_not_asked_for_is_nothing() {
    let mut bench = Bench::new();
    bench.folds(&[&[A], &[B]]);
    let why = String::new();
    for (from, object) in [(A, made(1)), (B, made(2)), (B, object(1))] {
        let failed = Event::Failed { from, made: object, why: why.clone(), again: true };
        assert_eq!(bench.feed(failed), [], "{from:?} {object}");
    }
}

#[test]
fn what_need_not_cross_a_link_is_refused() {
    let cases: [&[&[NodeNumber]]; 3] = [&[&[ME], &[ME]], &[&[A], &[]], &[]];
    for nodes in cases {
        let effects = Bench::new().asks(1, members(nodes));
        assert!(matches!(&effects[..], [Effect::Refuse { .. }]), "{nodes:?}: {effects:?}");
    }
    let many = vec![&[A][..]; REDUCE_MEMBERS_MAX + 1];
    let effects = Bench::new().asks(1, members(&many));
    assert!(matches!(&effects[..], [Effect::Refuse { .. }]));
}

#[test]
fn there_are_only_so_many_at_a_time() {
    let mut bench = Bench::new();
    for request in 1..=REDUCES_MAX as u64 {
        let begins = request <= REDUCES_AT_ONCE as u64;
        let folds = bench.asks(request, members(&[&[A], &[B]]));
        assert_eq!(folds.len(), if begins { 2 } else { 0 });
    }
    let effects = bench.asks(0, members(&[&[A], &[B]]));
    assert!(matches!(&effects[..], [Effect::Refuse { request: 0, .. }]), "{effects:?}");
    assert_eq!(bench.asks(1, members(&[&[A], &[B]])), [], "COLL-4");
}

proptest! {
    /// COLL-1, COLL-2, COLL-6 by `check`; and the chain hangs together, and each node sends once.
    #[test]
    fn every_chain_folds_each_member_once(nodes in prop::collection::vec(
        prop::collection::vec(1..7u32, 1..3), 1..20,
    )) {
        let nodes: Vec<Vec<NodeNumber>> = nodes
            .into_iter()
            .map(|nodes| nodes.into_iter().map(NodeNumber::alone).collect())
            .collect();
        let given: Vec<&[NodeNumber]> = nodes.iter().map(Vec::as_slice).collect();
        let mut bench = Bench::new();
        let effects = bench.asks(1, members(&given));
        if let [Effect::Refuse { .. }] = &effects[..] {
            prop_assert!(nodes.iter().all(|it| it.contains(&ME)));
            return Ok(());
        }
        let mut sends: BTreeMap<NodeNumber, u32> = BTreeMap::new();
        let mut before = None;
        for effect in &effects {
            let Effect::Fold { at, fold } = effect else { panic!("{effect:?}") };
            prop_assert!(*at != fold.from || before.is_none(), "only the first one begins by itself");
            prop_assert!(before.is_none_or(|it| it == (fold.from, fold.upstream)));
            *sends.entry(fold.from).or_default() += u32::from(*at != fold.from);
            before = Some((*at, fold.made));
        }
        prop_assert_eq!(before, Some((ME, made(0))));
        prop_assert!(sends.values().all(|count| *count <= 1), "{sends:?}");
    }
}
