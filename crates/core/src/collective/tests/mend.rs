//! Chains of which nodes die.

use hoplo_wire::Rest;
use hoplo_wire::layout::Front;

use super::*;

const C: NodeNumber = NodeNumber::alone(4);
const D: NodeNumber = NodeNumber::alone(5);
fn rest() -> Rest {
    Rest { from: 4096, front: Front::default() }
}

fn member(seq: u64, node: NodeNumber) -> Member {
    Member { object: object(seq), bytes: 1 << 20, nodes: vec![node] }
}

fn broke(from: NodeNumber, index: u32) -> Event {
    Event::Broke { from, made: made(index), rest: rest() }
}

fn mended(request: u64, members: Vec<Member>) -> Event {
    Event::Mended { asker: ASKER, request: request + 1, was: request, members }
}

/// What the asker hears to be lost of the reduce that goes on then.
fn lost(effects: &[Effect]) -> Vec<ObjectId> {
    let [Effect::Refuse { asker: ASKER, no, .. }] = effects else { panic!("{effects:?}") };
    assert!(no.goes_on && no.again, "{no:?}");
    no.lost.clone()
}

/// The chain goes from `A`, which has object 0, over `B`, `C` and `D`, which have one member each, to this node.
fn chain() -> Bench {
    let mut bench = Bench::new();
    let folds = bench.folds(&[&[A], &[B], &[C], &[D]]);
    let order: Vec<NodeNumber> = folds.iter().map(|(at, _)| *at).collect();
    assert_eq!((order, folds[0].1.from), (vec![B, C, D, ME], A));
    bench
}

fn folds_among(effects: &[Effect]) -> Vec<(NodeNumber, Fold)> {
    let folds = effects.iter().filter_map(|effect| match effect {
        Effect::Fold { at, fold } => Some((*at, (**fold).clone())),
        _ => None,
    });
    folds.collect()
}

#[test]
fn a_member_made_again_is_folded_into_the_rest_at_its_new_node() {
    for death_first in [true, false] {
        let mut bench = chain();
        let mut events = [Event::NodeGone { node: B }, broke(C, 2)];
        if !death_first {
            events.reverse();
        }
        let [first, then] = events;
        assert_eq!(bench.feed(first), [], "it takes both");
        assert_eq!(lost(&bench.feed(then)), [object(1)]);
        assert_eq!(bench.0.lost(ASKER, 1), [object(1)]);
        let effects = bench.feed(mended(1, vec![member(1, D)]));
        let [(at, fold)] = &folds_among(&effects)[..] else { panic!("{effects:?}") };
        assert_eq!((*at, fold.from, fold.upstream), (D, A, object(0)));
        assert_eq!((&fold.operands[..], fold.rest.as_ref()), (&[object(1)][..], Some(&rest())));
        let goes_on = Effect::FoldFrom {
            at: C,
            made: made(2),
            from: D,
            upstream: fold.made,
            operands: vec![],
        };
        assert_eq!(effects.last(), Some(&goes_on));
        // It is answered once, under the number that it was asked for last.
        let effects = bench.feed(Event::Made { made: made(0), location: WHERE });
        let answer = Effect::Answer { asker: ASKER, request: 2, location: WHERE };
        assert_eq!(effects.last(), Some(&answer));
        let ends = effects.iter().filter(|it| matches!(it, Effect::End { .. })).count();
        assert_eq!(ends, 3, "of the new fold, C's and D's: {effects:?}");
    }
}

#[test]
fn what_was_sent_on_already_is_not_missed() {
    let mut bench = chain();
    assert_eq!(bench.feed(Event::NodeGone { node: B }), [], "C may have all of it");
    let effects = bench.feed(Event::Made { made: made(0), location: WHERE });
    assert!(matches!(effects.last(), Some(Effect::Answer { request: 1, .. })), "{effects:?}");
}

#[test]
fn a_chain_whose_first_node_dies_begins_where_its_member_is_made_again() {
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: A });
    assert_eq!(lost(&bench.feed(broke(B, 1))), [object(0)]);
    let effects = bench.feed(mended(1, vec![member(0, ME)]));
    let [(ME, fold)] = &folds_among(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((fold.from, fold.upstream, fold.operands.len()), (ME, object(0), 0));
    let goes_on =
        Effect::FoldFrom { at: B, made: made(1), from: ME, upstream: fold.made, operands: vec![] };
    assert_eq!(effects.last(), Some(&goes_on));
}

#[test]
fn nodes_that_die_side_by_side_leave_one_gap() {
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: B });
    bench.feed(broke(C, 2));
    // It was told of the first one. What it makes again is not enough now.
    assert_eq!(bench.feed(Event::NodeGone { node: C }), []);
    assert_eq!(bench.feed(broke(D, 3)), []);
    assert_eq!(bench.0.lost(ASKER, 1), [object(1), object(2)]);
    let effects = bench.feed(mended(1, vec![member(1, ME), member(2, ME)]));
    let [(ME, fold)] = &folds_among(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((fold.from, &fold.operands[..]), (A, &[object(1), object(2)][..]));
}

#[test]
fn a_node_that_lives_folds_its_own_once_more_with_what_is_made_again_there() {
    // U is B, which folded object 1 into A's.
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: C });
    bench.feed(broke(D, 3));
    let effects = bench.feed(mended(1, vec![member(2, B)]));
    assert_eq!(effects[0], Effect::End { at: B, made: made(1), sealed: false });
    let [(B, fold)] = &folds_among(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((fold.from, fold.upstream), (A, object(0)));
    assert_eq!(fold.operands, [object(2), object(1)]);
    // Or U is the first one, which has its member as it is.
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: B });
    bench.feed(broke(C, 2));
    let effects = bench.feed(mended(1, vec![member(1, A)]));
    let [(A, fold)] = &folds_among(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((fold.from, fold.upstream, &fold.operands[..]), (A, object(0), &[object(1)][..]));
}

#[test]
fn what_is_made_again_at_the_node_that_waits_is_folded_there() {
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: B });
    bench.feed(Event::NodeGone { node: C });
    bench.feed(broke(D, 3));
    let effects = bench.feed(mended(1, vec![member(1, D), member(2, D)]));
    let (from, upstream, operands) = (A, object(0), vec![object(1), object(2)]);
    assert_eq!(effects, [Effect::FoldFrom { at: D, made: made(3), from, upstream, operands }]);
    // One there, and the other one elsewhere.
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: B });
    bench.feed(Event::NodeGone { node: A });
    bench.feed(broke(C, 2));
    let effects = bench.feed(mended(1, vec![member(0, ME), member(1, C)]));
    let [(ME, fold)] = &folds_among(&effects)[..] else { panic!("{effects:?}") };
    let (from, upstream, operands) = (ME, fold.made, vec![object(1)]);
    let goes_on = Effect::FoldFrom { at: C, made: made(2), from, upstream, operands };
    assert_eq!(effects.last(), Some(&goes_on));
    // Nothing is left in front of it.
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: A });
    bench.feed(broke(B, 1));
    let effects = bench.feed(mended(1, vec![member(0, B)]));
    assert!(matches!(effects.last(), Some(Effect::Refuse { no, .. }) if no.again), "{effects:?}");
}

#[test]
fn what_cannot_be_mended_is_given_up_and_answered_once() {
    let broken = || {
        let mut bench = chain();
        bench.feed(Event::NodeGone { node: B });
        bench.feed(broke(C, 2));
        bench
    };
    let again = |effects: &[Effect]| match effects.last() {
        Some(Effect::Refuse { request: 2, no, .. }) => no.again && !no.goes_on,
        _ => false,
    };
    // It is nowhere, or what is there is something else.
    for members in [Vec::new(), vec![member(3, D)]] {
        let effects = broken().feed(mended(1, members));
        assert!(again(&effects), "{effects:?}");
    }
    // Meanwhile something else goes wrong: who was told hears of it when it asks again.
    let failed = Event::Failed { from: D, made: made(3), why: "full".to_string(), again: true };
    let mut bench = broken();
    let effects = bench.feed(failed);
    assert!(effects.iter().all(|it| matches!(it, Effect::End { .. })), "COLL-4: {effects:?}");
    let effects = bench.feed(mended(1, vec![member(1, D)]));
    assert!(again(&effects), "{effects:?}");
    let mut bench = broken();
    let effects = bench.feed(Event::GivenUp { asker: ASKER, request: 1 });
    assert!(effects.iter().all(|it| matches!(it, Effect::End { .. })), "COLL-4: {effects:?}");
    // Nothing of it was lost, or it was never asked for.
    let effects = chain().feed(mended(1, vec![member(1, D)]));
    assert!(again(&effects), "{effects:?}");
}

#[test]
fn who_took_the_place_of_a_dead_node_may_die_as_well() {
    let mut bench = chain();
    bench.feed(Event::NodeGone { node: B });
    bench.feed(broke(C, 2));
    let effects = bench.feed(mended(1, vec![member(1, D)]));
    let new = folds_among(&effects)[0].1.made;
    let effects = bench.feed(Event::NodeGone { node: D });
    assert_eq!(effects, [], "D was behind C as well, and nobody said yet that it waits");
    assert_eq!(lost(&bench.feed(broke(C, 2))), [object(1)]);
    assert_eq!(bench.feed(broke(ME, 0)), [], "it was told");
    assert_eq!(bench.0.lost(ASKER, 2).len(), 2);
    let effects = bench.feed(mended(2, vec![member(1, ME), member(3, B)]));
    let [(first, one), (second, two)] = &folds_among(&effects)[..] else { panic!("{effects:?}") };
    // Each gap by its own: C goes on, and behind it this node.
    assert!([*first, *second].contains(&ME) && [*first, *second].contains(&B), "{effects:?}");
    assert!(one.made != new && two.made != new && one.made != two.made);
}

/// Y makes the rest for C. When C dies, D needs more than that: it had less than C.
#[test]
fn what_begins_behind_the_mark_of_who_waits_is_no_source_for_it() {
    for (from, goes_on) in [(rest().from, true), (rest().from - 1, false)] {
        let mut bench = chain();
        bench.feed(Event::NodeGone { node: B });
        bench.feed(broke(C, 2));
        bench.feed(mended(1, vec![member(1, ME)]));
        bench.feed(Event::NodeGone { node: C });
        let rest = Rest { from, ..rest() };
        assert_eq!(lost(&bench.feed(Event::Broke { from: D, made: made(3), rest })), [object(2)]);
        let effects = bench.feed(mended(2, vec![member(2, A)]));
        let is_given_up = matches!(effects.last(), Some(Effect::Refuse { no, .. }) if !no.goes_on);
        assert_eq!(!is_given_up, goes_on, "{effects:?}");
    }
}

proptest! {
    /// Nodes of chains die in any order, and what was lost is made again anywhere. COLL-1 to COLL-6 by `check`. Each request is answered once, and each chain
    /// hangs together.
    #[test]
    fn chains_are_mended_or_given_up(
        nodes in prop::collection::vec(2..9u32, 3..8),
        deaths in prop::collection::vec((0..8usize, 1..9u32, any::<bool>()), 1..12),
    ) {
        let at: Vec<[NodeNumber; 1]> = nodes.iter().map(|it| [NodeNumber::alone(*it)]).collect();
        let given: Vec<&[NodeNumber]> = at.iter().map(|it| &it[..]).collect();
        let mut bench = Bench::new();
        let (mut request, mut dead) = (1, BTreeSet::new());
        let mut answered = 0;
        let mut sources: BTreeMap<ObjectId, (NodeNumber, NodeNumber, ObjectId)> = BTreeMap::new();
        let mut effects = bench.asks(request, members(&given));
        for (nth, again_at, says) in deaths {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Fold { at, fold } => {
                        prop_assert!(!dead.contains(&at) && !dead.contains(&fold.from));
                        sources.insert(fold.made, (at, fold.from, fold.upstream));
                    }
                    Effect::FoldFrom { at, made, from, upstream, .. } => {
                        prop_assert!(at != from && !dead.contains(&from), "nobody fetches from itself");
                        sources.insert(made, (at, from, upstream));
                    }
                    Effect::End { made, .. } => { sources.remove(&made); }
                    Effect::Refuse { request: it, .. } => {
                        prop_assert_eq!(it, request);
                        answered += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            prop_assert!(answered <= request, "COLL-4");
            let lost = bench.0.lost(ASKER, request);
            if !lost.is_empty() && says {
                prop_assert_eq!(answered, request, "it was told");
                let node = NodeNumber::alone(again_at);
                let members = match dead.contains(&node) {
                    true => Vec::new(),
                    false => lost.iter().map(|it| Member { object: *it, bytes: 1 << 20, nodes: vec![node] }).collect(),
                };
                effects = bench.feed(mended(request, members));
                request += 1;
                continue;
            }
            let living: Vec<NodeNumber> = sources.values().map(|it| it.0).filter(|it| *it != ME && !dead.contains(it)).collect();
            let Some(victim) = living.get(nth % living.len().max(1)).copied() else { break };
            dead.insert(victim);
            effects = bench.feed(Event::NodeGone { node: victim });
            let waits: Vec<(ObjectId, NodeNumber)> = sources.iter()
                .filter(|(_, (at, from, _))| *from == victim && *at != victim && !dead.contains(at))
                .map(|(made, (at, ..))| (*made, *at)).collect();
            for (made, from) in waits {
                effects.extend(bench.feed(Event::Broke { from, made, rest: rest() }));
            }
        }
    }
}
