//! Members that come one after the other.

use super::*;

const C: NodeNumber = NodeNumber::alone(4);

impl Bench {
    fn asks_for_some(&mut self, request: u64, nodes: &[&[NodeNumber]]) -> Vec<Effect> {
        let wish = Wish { op: FoldOp::Sum, divide_by: Some(4), for_all: Some(object(RESULT)) };
        let members = members(nodes);
        self.feed(Event::Asked {
            asker: ASKER,
            request,
            wish,
            members,
            more: true,
            slow: BTreeSet::new(),
        })
    }

    /// The n-th member, at these nodes.
    fn comes(&mut self, nth: u64, nodes: &[NodeNumber], more: bool) -> Vec<Effect> {
        let members = vec![Member { object: object(nth), bytes: 1 << 20, nodes: nodes.to_vec() }];
        self.feed(Event::More { asker: ASKER, request: 1, members, more })
    }
}

/// Who makes what of which, and who is to have the result.
fn told(effects: Vec<Effect>) -> Vec<(NodeNumber, ObjectId, NodeNumber, ObjectId, bool)> {
    let told = |(at, fold): (NodeNumber, Fold)| {
        assert_eq!(fold.ring, None);
        (at, fold.made, fold.from, fold.upstream, fold.result == Some(object(RESULT)))
    };
    folds_of(effects).into_iter().map(told).collect()
}

#[test]
fn each_is_folded_as_it_comes_and_the_result_goes_to_all() {
    let mut bench = Bench::new();
    assert_eq!(bench.asks_for_some(1, &[&[A]]), [], "the first one only sends");
    assert_eq!(told(bench.comes(1, &[ME], true)), [(ME, made(1), A, object(0), false)]);
    assert_eq!(told(bench.comes(2, &[B], true)), [(B, made(2), ME, made(1), false)]);
    let last = bench.comes(3, &[C], false);
    let divides = |effect: &Effect| match effect {
        Effect::Fold { fold, .. } => fold.divide_by,
        other => panic!("{other:?}"),
    };
    assert_eq!(last.iter().map(divides).collect::<Vec<_>>(), [Some(4), None, None, None], "once");
    assert_eq!(
        told(last),
        [
            (C, made(3), B, made(2), true),
            (A, made(4), C, made(3), true),
            (ME, made(0), A, made(4), true),
            (B, made(6), ME, made(0), true),
        ]
    );
    assert_eq!(bench.comes(4, &[NodeNumber::alone(9)], true), [], "it has its last member");
    let ends = |list: &[(NodeNumber, u32)], sealed| -> Vec<Effect> {
        let end =
            |(at, index): &(NodeNumber, u32)| Effect::End { at: *at, made: made(*index), sealed };
        list.iter().map(end).collect()
    };
    let mut effects = ends(&[(ME, 1), (B, 2)], false);
    effects.push(Effect::Answer { asker: ASKER, request: 1, location: WHERE });
    assert_eq!(bench.feed(Event::Made { made: made(0), location: WHERE }), effects);
    let sealed = Event::Sealed { process: ASKER, object: object(RESULT), location: WHERE };
    assert_eq!(bench.feed(sealed), ends(&[(C, 3), (A, 4), (B, 6)], true), "COLL-7");
}

#[test]
fn who_asks_need_have_no_member_or_may_have_the_last_one() {
    let mut bench = Bench::new();
    bench.asks_for_some(1, &[&[A], &[B]]);
    let told_last = told(bench.comes(2, &[C], false));
    assert_eq!(told_last.last(), Some(&(ME, made(0), B, made(4), true)), "it is the last one");
    let mut bench = Bench::new();
    bench.asks_for_some(1, &[&[A], &[B]]);
    let told_last = told(bench.comes(2, &[ME], false));
    assert_eq!(
        told_last,
        [
            (ME, made(0), B, made(1), true),
            (A, made(3), ME, made(0), true),
            (B, made(4), A, made(3), true),
        ]
    );
}

#[test]
fn what_is_no_train_is_refused_and_ends_what_was_begun() {
    let is_refused = |effects: &[Effect], ended: usize| {
        let (last, ends) = effects.split_last().expect("it is answered");
        let no = match last {
            Effect::Refuse { asker: ASKER, request: 1, no } => no,
            other => panic!("{other:?}"),
        };
        assert!(no.again, "a ring may do: {no:?}");
        assert_eq!(ends.len(), ended, "COLL-5");
        assert!(ends.iter().all(|it| matches!(it, Effect::End { sealed: false, .. })));
    };
    let begun = || {
        let mut bench = Bench::new();
        bench.asks_for_some(1, &[&[A], &[B]]);
        bench
    };
    is_refused(&begun().comes(2, &[B], true), 1);
    is_refused(&begun().comes(2, &[], true), 1);
    let short = vec![Member { bytes: 5, ..members(&[&[C]]).remove(0) }];
    let more = Event::More { asker: ASKER, request: 1, members: short, more: true };
    is_refused(&begun().feed(more), 1);
    is_refused(&begun().feed(Event::NodeGone { node: A }), 1);
    is_refused(&begun().feed(Event::GivenUp { asker: ASKER, request: 1 }), 1);
    let none = Event::More { asker: ASKER, request: 1, members: vec![], more: false };
    is_refused(&begun().feed(none), 1);
    is_refused(&Bench::new().asks_for_some(1, &[]), 0);
    let mut bench = begun();
    bench.feed(Event::GivenUp { asker: ASKER, request: 1 });
    assert_eq!(bench.comes(2, &[C], false), [], "COLL-4: it was answered");
}

/// One whose member needs another reduce would wait for itself.
#[test]
fn they_take_no_place_of_other_reduces() {
    let mut bench = Bench::new();
    for request in 1..=REDUCES_AT_ONCE as u64 {
        assert_eq!(bench.asks_for_some(request, &[&[A]]), []);
    }
    let effects = bench.asks_for_some(99, &[&[A]]);
    assert!(matches!(&effects[..], [Effect::Refuse { request: 99, .. }]), "{effects:?}");
    assert_eq!(bench.asks(100, members(&[&[A], &[B]])).len(), 2);
}

#[test]
fn if_one_node_is_slow_what_all_read_begins_and_ends_there() {
    let asks = |nodes: &[&[NodeNumber]], slow: &[NodeNumber]| {
        let wish = Wish { op: FoldOp::Sum, divide_by: Some(4), for_all: Some(object(RESULT)) };
        let (members, slow) = (members(nodes), slow.iter().copied().collect());
        let asked = Event::Asked { asker: ASKER, request: 1, wish, members, more: false, slow };
        let mut bench = Bench::new();
        (bench.feed(asked), bench)
    };
    let nodes: &[&[NodeNumber]] = &[&[ME], &[A], &[B], &[C]];
    let (effects, mut bench) = asks(nodes, &[B]);
    assert_eq!(
        told(effects),
        [
            (ME, made(1), B, object(2), false),
            (A, made(2), ME, made(1), false),
            (C, made(3), A, made(2), true),
            (ME, made(0), C, made(3), true),
            (A, made(5), ME, made(0), true),
            (B, made(6), A, made(5), true),
        ]
    );
    let made = bench.feed(Event::Made { made: made(0), location: WHERE });
    let passed = Effect::PassedSlow { node: B, bytes: WHERE.len, since: Instant::ZERO };
    assert!(made.contains(&passed), "that shows whether it is slow still: {made:?}");
    let goes_round =
        |(effects, _): (_, Bench)| folds_of(effects).iter().all(|(_, fold)| fold.ring.is_some());
    assert!(goes_round(asks(nodes, &[])));
    assert!(goes_round(asks(nodes, &[NodeNumber::alone(9)])), "it has no member");
    assert!(goes_round(asks(nodes, &[A, B])), "one would carry twice as much for the other");
    assert!(goes_round(asks(&nodes[..2], &[A])), "it carries the same");
    assert!(goes_round(asks(&[&[ME], &[A], &[B], &[B]], &[A])), "two are at one node");
}
