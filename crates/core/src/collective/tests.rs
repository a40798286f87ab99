//! Reduces event by event, and random ones against what was asked for.

use std::collections::BTreeMap;

use hoplo_wire::{Fold, Location};
use proptest::prelude::*;

use super::*;
use crate::objects::haul;

const ME: NodeNumber = NodeNumber::alone(1);
const A: NodeNumber = NodeNumber::alone(2);
const B: NodeNumber = NodeNumber::alone(3);
const ASKER: ProcessId = ProcessId::new(ME, 1, 1);

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

struct Bench(Collective);

impl Bench {
    fn new() -> Self {
        Self(Collective::new(ME, haul(ME)))
    }

    fn feed(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.handle(event, &mut effects);
        self.0.check();
        effects
    }

    fn asks(&mut self, request: u64, members: Vec<Member>) -> Vec<Effect> {
        self.feed(Event::Asked { asker: ASKER, request, op: FoldOp::Sum, members })
    }

    /// What nodes were asked for.
    fn folds(&mut self, nodes: &[&[NodeNumber]]) -> Vec<(NodeNumber, Fold)> {
        let fold = |effect| match effect {
            Effect::Fold { at, fold } => (at, *fold),
            other => panic!("{other:?}"),
        };
        self.asks(1, members(nodes)).into_iter().map(fold).collect()
    }
}

fn made(index: u32) -> ObjectId {
    TaskId { owner: haul(ME), seq: 1 }.object(index)
}

#[test]
fn each_node_folds_its_own_into_what_the_one_before_it_made() {
    let folds = Bench::new().folds(&[&[ME], &[A], &[B], &[ME]]);
    let [(first, one), (last, two)] = &folds[..] else { panic!("{folds:?}") };
    assert_eq!((*first, one.from, one.upstream), (B, A, object(1)));
    assert_eq!((one.made, &one.operands[..], one.turn), (made(1), &[object(2)][..], 1));
    assert_eq!((*last, two.from, two.upstream), (ME, B, made(1)));
    assert_eq!((two.made, &two.operands[..], two.turn), (made(0), &[object(0), object(3)][..], 2));
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

#[test]
fn what_is_made_here_is_answered_and_ended_elsewhere() {
    let mut bench = Bench::new();
    bench.folds(&[&[A], &[B]]);
    let location = Location { slot: 3, generation: 1, offset: 4096, len: 100 };
    let effects = bench.feed(Event::Made { made: made(0), location });
    let answer = Effect::Answer { asker: ASKER, request: 1, location };
    assert_eq!(effects, [Effect::End { at: B, made: made(1) }, answer]);
    assert_eq!(bench.feed(Event::GivenUp { asker: ASKER, request: 1 }), [], "COLL-4");
    assert_eq!(bench.feed(Event::NodeGone { node: B }), [], "COLL-5");
}

#[test]
fn whatever_goes_wrong_ends_all_of_it_once() {
    let dead = Event::NodeGone { node: A };
    let gone = Event::ProcessGone { process: ASKER };
    let given_up = Event::GivenUp { asker: ASKER, request: 1 };
    let failed =
        Event::Failed { from: B, made: made(1), why: "it differs".to_string(), again: false };
    for (event, why) in
        [(dead, "died"), (gone, "gone"), (given_up, "nobody"), (failed.clone(), "it differs")]
    {
        let mut bench = Bench::new();
        bench.folds(&[&[A], &[B]]);
        let effects = bench.feed(event.clone());
        let [Effect::End { at: B, .. }, Effect::End { at: ME, made: here }, last] = &effects[..]
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
        assert_eq!(bench.asks(request, members(&[&[A], &[B]])).len(), 2);
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
