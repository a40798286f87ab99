//! What goes round a ring.

use hoplo_wire::FoldOp;
use hoplo_wire::plain::{ARRAY, LIST};

use super::folds::value;
use super::*;

const OFFSET: u64 = 640;

/// Stores of nodes 1, 2, ... and the place of what they make.
struct Circle {
    stores: Vec<Store>,
    operands: Vec<Location>,
    place: Place,
}

fn node(at: usize) -> NodeNumber {
    NodeNumber::alone(at as u32 + 1)
}

impl Circle {
    /// Each node has one of these members, so many times.
    fn of(members: &[(Vec<u8>, usize)], op: FoldOp, divide_by: Option<u32>) -> Self {
        let of = members.len();
        let len = members[0].0.len() as u64;
        let place = Place { slot: 3, offset: 2 << 20, len };
        let hold = |(at, (bytes, times)): (usize, &(Vec<u8>, usize))| {
            let (store, operand) = Store::holding(bytes, OFFSET);
            store.haul.order(Order::Fold {
                ticket: at as u64,
                from: node((at + 1) % of),
                place,
                written: 0,
                op,
                operands: vec![operand; *times],
                divide_by,
                ring: Some((at as u32, of as u32)),
                rest: None,
            });
            let before = (at + of - 1) % of;
            let (to, ticket) = (node(before), before as u64);
            store.haul.order(Order::Relay { to, ticket, place, offset: 0 });
            (store, operand)
        };
        let (stores, operands) = members.iter().enumerate().map(hold).unzip();
        Self { stores, operands, place }
    }

    /// Until nothing moves any more. Who has more to send goes on for so many pieces.
    fn turns(&mut self, burst: usize) {
        let of = self.stores.len();
        loop {
            let mut moved = false;
            for at in 0..of {
                let to = (at + of - 1) % of;
                for _ in 0..burst {
                    let Some(piece) = self.stores[at].piece(node(to)) else { break };
                    self.stores[to].takes(node(at), &piece);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn done(&self) -> Vec<Vec<Done>> {
        self.stores.iter().map(|store| store.haul.done()).collect()
    }
}

fn is_received(done: &Done) -> bool {
    matches!(done, Done::Received { .. })
}

#[test]
fn all_nodes_of_a_ring_end_with_all_of_it() {
    // Stripes begin in the middle of a number, but for the layout. Longer and shorter than a chunk.
    for (count, of) in [(300_001, 2), (300_001, 3), (299_999, 5), (1000, 4)] {
        let member = |it: usize| value(count, 0, 5, move |at| (at % 1000 * it) as f32);
        // The second node has its member twice.
        let times = |it: usize| 1 + usize::from(it == 2);
        let members: Vec<_> = (1..=of).map(|it| (member(it), times(it))).collect();
        let total: usize = (1..=of).map(|it| it * times(it)).sum();
        for burst in [1, 3, 100] {
            let mut circle = Circle::of(&members, FoldOp::Sum, None);
            circle.turns(burst);
            let want = value(count, 0, 5, |at| (at % 1000 * total) as f32);
            for (at, (store, done)) in circle.stores.iter().zip(circle.done()).enumerate() {
                assert!(store.bytes(circle.place) == want, "node {at} of {of}, {burst}");
                assert!(done.iter().any(is_received) && done.len() == 2, "{done:?}");
            }
            // HAUL-6, HAUL-2: nothing is pinned any more.
            for (store, operand) in circle.stores.iter_mut().zip(&circle.operands) {
                store.hauler.waiting();
                assert_eq!(store.close(*operand), CloseOutcome::Closed);
            }
        }
    }
}

/// Stripes are cut between numbers of all lengths, and within gaps and names.
#[test]
fn arrays_of_all_kinds_go_round_in_one_value() {
    let array = |kind: u8, bytes: usize, count: usize, number: u8| {
        let front = [ARRAY, kind, 0, 1, count as u8, 7];
        [front.to_vec(), vec![9; 7], vec![number; bytes * count]].concat()
    };
    // Whole numbers of 1, 2, 4 and 8 bytes, whose bytes do not carry.
    let kinds = [(3, 1, 201), (5, 2, 101), (7, 4, 55), (9, 8, 33), (3, 1, 0), (9, 8, 1)];
    let list = |number: u8| {
        let arrays = kinds.map(|(kind, bytes, count)| array(kind, bytes, count, number));
        [vec![LIST, kinds.len() as u8], arrays.concat()].concat()
    };
    for of in 2..7 {
        let members: Vec<_> = (1..=of).map(|it| (list(it as u8), 1)).collect();
        let total: u8 = (1..=of as u8).sum();
        let mut circle = Circle::of(&members, FoldOp::Sum, None);
        circle.turns(1);
        for store in &circle.stores {
            assert!(store.bytes(circle.place) == list(total), "{of}: {:?}", store.haul.done());
        }
    }
}

#[test]
fn a_mean_is_divided_where_each_stripe_ends() {
    let members: Vec<_> = (1..=3).map(|it| (value(1001, 0, 5, |at| (at * it) as f32), 1)).collect();
    let mut circle = Circle::of(&members, FoldOp::Sum, Some(3));
    circle.turns(1);
    let want = value(1001, 0, 5, |at| (at * 6) as f32 / 3.0);
    assert!(circle.stores.iter().all(|store| store.bytes(circle.place) == want));
}

#[test]
fn a_link_that_breaks_in_the_middle_of_a_piece_costs_nothing() {
    let members: Vec<_> =
        (1..=2).map(|it| (value(100_000, 0, 5, |at| (at * it) as f32), 1)).collect();
    let mut circle = Circle::of(&members, FoldOp::Sum, None);
    let piece = circle.stores[0].piece(node(1)).unwrap();
    let bytes = (*piece.bytes).as_ref().to_vec();
    // A record of it lands, and then all of it once more.
    circle.stores[1].hauler.lands(node(0), piece.ticket, 0, &bytes[..16_384]);
    circle.stores[1].takes(node(0), &piece);
    circle.turns(1);
    let want = value(100_000, 0, 5, |at| (at * 3) as f32);
    assert!(circle.stores.iter().all(|store| store.bytes(circle.place) == want));
}

#[test]
fn members_that_lie_otherwise_do_not_go_round() {
    // Gaps of two arrays, together as long.
    let array = |gap: usize| {
        let front = vec![ARRAY, 11, 0, 1, 60, gap as u8];
        [front, vec![9; gap], vec![0; 240]].concat()
    };
    let list = |gaps: [usize; 2]| [vec![LIST, 2], array(gaps[0]), array(gaps[1])].concat();
    let mut circle = Circle::of(&[(list([3, 8]), 1), (list([4, 7]), 1)], FoldOp::Sum, None);
    circle.turns(1);
    let done = circle.done();
    assert!(done.iter().flatten().any(|it| matches!(it, Done::Unfit { .. })), "{done:?}");
    assert!(!done.iter().flatten().any(is_received), "{done:?}");
    // Two of one node.
    let (store, first) = Store::holding(&list([3, 8]), OFFSET);
    let len = first.len;
    let second = Location { slot: SLOT + 1, offset: OFFSET + 4096, ..first };
    let mut claim = store.arena.claim(second.offset, len).unwrap();
    claim.copy_from_slice(&list([4, 7]));
    drop(claim);
    let generation = store.segment.object(second.slot).unwrap().seal().0;
    let second = Location { generation, ..second };
    let mut store = store;
    let why = |store: &mut Store, operands: Vec<Location>, at: u32| {
        let place = Place { slot: 3, offset: 2 << 20, len };
        let (ticket, from, written, op) = (9, HERE, 0, FoldOp::Sum);
        let (divide_by, ring) = (None, Some((at, 2)));
        let fold =
            Order::Fold { ticket, from, place, written, op, operands, divide_by, ring, rest: None };
        store.haul.order(fold);
        store.hauler.waiting();
        match &store.haul.done()[..] {
            [Done::Unfit { ticket: 9, why }] => why.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert!(why(&mut store, vec![first, second], 0).contains("different places"));
    assert!(why(&mut store, vec![], 0).contains("no member"));
    assert!(why(&mut store, vec![first], 2).contains("no such ring"));
}
