//! What is folded as it comes.

use hoplo_wire::plain::{ARRAY, DICT, LIST, STR};
use hoplo_wire::{FoldOp, Rest};

use super::*;

/// {"w": an array of so many f32}, with a gap of so many bytes.
pub(super) fn value(count: usize, flags: u8, gap: u8, number: impl Fn(usize) -> f32) -> Vec<u8> {
    let mut bytes = vec![DICT, 1, STR, 1, b'w', ARRAY, 11, flags, 1, 255];
    bytes.extend((count as u64).to_le_bytes());
    bytes.push(gap);
    bytes.extend(std::iter::repeat_n(0xaa + flags, usize::from(gap)));
    bytes.extend((0..count).flat_map(|at| number(at).to_ne_bytes()));
    bytes
}

const COUNT: usize = 300_001;
const OFFSET: u64 = 640;

fn own() -> Vec<u8> {
    value(COUNT, 2, 5, |at| at as f32)
}

fn fold(ticket: u64, place: Place, operands: Vec<Location>) -> Order {
    fold_behind(ticket, place, operands, 0, None)
}

/// So much of it is there, or what is in front of a rest.
fn fold_behind(
    ticket: u64,
    place: Place,
    operands: Vec<Location>,
    written: u64,
    rest: Option<Rest>,
) -> Order {
    let (from, op, divide_by, ring) = (HERE, FoldOp::Sum, None, None);
    Order::Fold { ticket, from, place, written, op, operands, divide_by, ring, rest }
}

fn fold_here(ticket: u64, place: Place, op: FoldOp, operands: [Location; 2]) -> Order {
    let [source, operand] = operands;
    let (written, operands, rest) = (0, vec![operand], None);
    Order::FoldHere { ticket, place, written, op, source, operands, rest }
}

fn there(len: usize) -> Place {
    Place { slot: 3, offset: 2 << 20, len: len as u64 }
}

fn sums(store: &Store, place: Place) -> Vec<u8> {
    let bytes = store.bytes(place);
    bytes[bytes.len() - 4 * COUNT..].to_vec()
}

fn wanted(number: impl Fn(usize) -> f32) -> Vec<u8> {
    (0..COUNT).flat_map(|at| number(at).to_ne_bytes()).collect()
}

#[test]
fn what_comes_is_folded_as_it_comes_and_sent_on() {
    // Its array begins elsewhere, and not at a multiple of a number's length.
    let come = value(COUNT, 0, 2, |at| 2.0 * at as f32);
    let (mut here, location) = Store::holding(&come, OFFSET);
    let (mut middle, operand) = Store::holding(&own(), OFFSET);
    let mut last = Store::new();
    let place = there(come.len());
    // The same member twice.
    middle.haul.order(fold(9, place, vec![operand, operand]));
    here.haul.order(send(9, location, 0));
    last.haul.order(receive(4, place, 0));
    middle.haul.order(Order::Relay { to: THERE, ticket: 4, place, offset: 0 });
    while let Some(piece) = here.piece(THERE) {
        middle.takes(HERE, &piece);
        // No number is cut in the middle, so what is relayed is whole numbers.
        while let Some(piece) = middle.piece(THERE) {
            last.takes(HERE, &piece);
        }
    }
    let want = wanted(|at| 4.0 * at as f32);
    assert!(sums(&middle, place) == want && sums(&last, place) == want);
    assert!(matches!(
        middle.haul.done()[..],
        [Done::Received { ticket: 9, .. }, Done::Sent { .. }]
            | [Done::Sent { .. }, Done::Received { ticket: 9, .. }]
    ));
    // HAUL-6: the operand can go.
    middle.hauler.waiting();
    assert_eq!(middle.close(operand), CloseOutcome::Closed);
}

#[test]
fn without_operands_what_comes_is_copied() {
    let bytes = some_bytes(1_000_000);
    let (mut here, location) = Store::holding(&bytes, OFFSET);
    let mut there_ = Store::new();
    let place = there(bytes.len());
    there_.haul.order(fold(9, place, vec![]));
    here.haul.order(send(9, location, 0));
    carry(&mut here, &mut there_);
    assert!(there_.bytes(place) == bytes);
}

#[test]
fn what_begins_here_is_made_when_it_is_sent() {
    let (mut here, source) = Store::holding(&own(), OFFSET);
    let mut there_ = Store::new();
    let place = there(own().len());
    here.haul.order(fold_here(9, place, FoldOp::Prod, [source; 2]));
    here.hauler.waiting();
    assert!(here.haul.done().is_empty());
    assert!(sums(&here, place).iter().all(|byte| *byte == 0), "nobody asked for it");
    there_.haul.order(receive(4, place, 0));
    here.haul.order(Order::Relay { to: THERE, ticket: 4, place, offset: 0 });
    carry(&mut here, &mut there_);
    let want = wanted(|at| (at as f32) * (at as f32));
    assert!(sums(&there_, place) == want && sums(&here, place) == want);
    let done = here.haul.done();
    assert!(matches!(done[..], [Done::Received { ticket: 9, .. }, Done::Sent { .. }]), "{done:?}");
}

/// Of two that were as long, the last chunk of the second one was sent before it was made, when the first one had become whole.
#[test]
fn of_two_that_begin_here_each_is_made_before_it_is_sent() {
    let bytes = value(100_001, 2, 5, |at| at as f32);
    let (mut here, source) = Store::holding(&bytes, OFFSET);
    let mut there_ = Store::new();
    let len = bytes.len() as u64;
    for number in 0..2 {
        let slot = 3 + number;
        let place = Place { slot, offset: u64::from(1 + number) << 20, len };
        let ticket = u64::from(number);
        here.haul.order(fold_here(ticket, place, FoldOp::Sum, [source; 2]));
        here.haul.order(Order::Relay { to: THERE, ticket, place, offset: 0 });
        there_.haul.order(receive(ticket, place, 0));
    }
    carry(&mut here, &mut there_);
    let want = value(100_001, 2, 5, |at| 2.0 * at as f32);
    for number in 0..2 {
        let offset = u64::from(1 + number) << 20;
        let place = Place { slot: 3 + number, offset, len };
        assert!(there_.bytes(place) == want, "{number}");
    }
}

/// A process was given its place while links had pieces of it: the next object in that slot could not be sent, and who read it
/// at another node heard that it is lost.
#[test]
fn what_was_sent_of_a_fold_is_lent_to_no_link() {
    for is_relayed in [true, false] {
        let come = some_bytes(3 * BULK_CHUNK_BYTES);
        let (mut here, location) = Store::holding(&come, OFFSET);
        let mut middle = Store::new();
        let place = there(come.len());
        middle.haul.order(fold(9, place, vec![]));
        here.haul.order(send(9, location, 0));
        middle.hauler.waiting();
        if is_relayed {
            middle.haul.order(Order::Relay { to: THERE, ticket: 4, place, offset: 0 });
        }
        while let Some(piece) = here.piece(THERE) {
            middle.takes(HERE, &piece);
        }
        let Place { slot, offset, len } = place;
        let generation = middle.segment.object(slot).unwrap().state().generation.0;
        let whole = Location { slot, generation, offset, len };
        if !is_relayed {
            middle.haul.order(Order::Send {
                to: THERE,
                ticket: 4,
                location: whole,
                offset: 0,
                until: u64::MAX,
                made: true,
            });
        }
        let pieces: Vec<Piece> = std::iter::from_fn(|| middle.piece(THERE)).collect();
        assert!(middle.haul.done().contains(&Done::Sent { to: THERE, ticket: 4 }));
        let other = middle.seal_another(whole);
        middle.haul.order(send(5, other, 0));
        assert!(middle.piece(THERE).is_some(), "{:?}", middle.haul.done());
        let sent: Vec<u8> = pieces.iter().flat_map(|it| (*it.bytes).as_ref().to_vec()).collect();
        assert!(sent == come, "{is_relayed}");
    }
}

fn why(store: &Store) -> String {
    match &store.haul.done()[..] {
        [Done::Stopped { ticket: 9, why, .. } | Done::Unfit { ticket: 9, why }] => why.clone(),
        other => panic!("{other:?}"),
    }
}

/// The last node of a chain, which has some of what it folds: the node before it died. With that, and what the rest has to be like.
fn left_alone(first: usize, gap: u8) -> (Store, Location, Place, Rest) {
    // What that one sent.
    let come = value(COUNT, 0, gap, |at| 3.0 * at as f32);
    let (mut dies, location) = Store::holding(&come, OFFSET);
    let (mut last, operand) = Store::holding(&own(), OFFSET);
    let place = there(come.len());
    last.haul.order(fold(9, place, vec![operand]));
    dies.haul.order(send(9, location, 0));
    for _ in 0..first {
        let piece = dies.piece(THERE).unwrap();
        last.takes(HERE, &piece);
    }
    last.hauler.waiting();
    last.hauler.lost(HERE);
    let [Done::Stopped { written, lost: true, front: Some(front), .. }] = &last.haul.done()[..]
    else {
        panic!("it was being folded")
    };
    assert_eq!(*written > 0, first > 0);
    let rest = Rest { from: *written, front: front.clone() };
    (last, operand, place, rest)
}

fn rest_of(ticket: u64, place: Place, operands: Vec<Location>, rest: Rest) -> Order {
    fold_behind(ticket, place, operands, rest.from, Some(rest))
}

/// At the node that was left alone, from another one.
fn goes_on(place: Place, operand: Location, written: u64) -> Order {
    fold_behind(9, place, vec![operand], written, None)
}

/// COLL-3: with the real bytes, at any mark, wherever the array of what is made again begins.
#[test]
fn what_is_made_again_is_folded_into_the_rest() {
    for (first, gap) in (0..=4).flat_map(|first| [0, 2, 7].map(|gap| (first, gap))) {
        let (mut last, operand, place, rest) = left_alone(first, 2);
        let written = rest.from;
        // The node before the dead one has this, and the dead one's member was the number itself.
        let (mut before, location) =
            Store::holding(&value(COUNT, 0, 2, |at| 2.0 * at as f32), OFFSET);
        let (mut anew, member) = Store::holding(&value(COUNT, 2, gap, |at| at as f32), OFFSET);
        anew.haul.order(rest_of(7, place, vec![member], rest));
        before.haul.order(send(7, location, written));
        last.haul.order(goes_on(place, operand, written));
        anew.haul.order(Order::Relay { to: THERE, ticket: 9, place, offset: written });
        while let Some(piece) = before.piece(THERE) {
            anew.takes(HERE, &piece);
            while let Some(piece) = anew.piece(THERE) {
                last.takes(HERE, &piece);
            }
        }
        assert!(sums(&last, place) == wanted(|at| 4.0 * at as f32), "from byte {written} on");
        assert!(matches!(last.haul.done()[..], [Done::Received { ticket: 9, .. }]));
    }
}

/// It has that member as its own as well, so the number is in it twice.
#[test]
fn what_is_made_again_at_the_node_that_was_left_alone_joins_there() {
    for gap in [5, 2] {
        let (mut last, operand, place, rest) = left_alone(3, gap);
        let written = rest.from;
        last.haul.order(rest_of(9, place, vec![operand; 2], rest));
        let come = value(COUNT, 0, gap, |at| 2.0 * at as f32);
        let (mut before, location) = Store::holding(&come, OFFSET);
        before.haul.order(send(9, location, written));
        carry(&mut before, &mut last);
        assert!(sums(&last, place) == wanted(|at| 4.0 * at as f32));
    }
}

#[test]
fn what_begins_a_chain_anew_is_sent_from_the_rest_on() {
    for (first, gap) in (0..=4).flat_map(|first| [0, 2, 7].map(|gap| (first, gap))) {
        let (mut last, operand, place, rest) = left_alone(first, 2);
        let member = value(COUNT, 2, gap, |at| 3.0 * at as f32);
        let (mut anew, source) = Store::holding(&member, OFFSET);
        let (written, op, operands, ticket) = (rest.from, FoldOp::Sum, vec![], 7);
        let rest = Some(rest);
        anew.haul.order(Order::FoldHere { ticket, place, written, op, source, operands, rest });
        if written == 0 && gap != 2 {
            // Nothing was sent of the first one, and this one is longer, or shorter.
            anew.hauler.waiting();
            let done = anew.haul.done();
            assert!(matches!(done[..], [Done::Stopped { ticket: 7, .. }]), "{done:?}");
            continue;
        }
        anew.haul.order(Order::Relay { to: THERE, ticket: 9, place, offset: written });
        last.haul.order(goes_on(place, operand, written));
        carry(&mut anew, &mut last);
        assert!(sums(&last, place) == wanted(|at| 4.0 * at as f32), "{written}, {gap}");
    }
}

#[test]
fn what_differs_from_what_was_lost_is_not_folded_into_the_rest() {
    let (_, _, place, rest) = left_alone(2, 2);
    let mut another = value(COUNT, 2, 2, |at| at as f32);
    another[4] = b'v';
    let others = [value(COUNT - 1, 2, 2, |at| at as f32), another];
    for other in &others {
        let (mut anew, member) = Store::holding(other, OFFSET);
        anew.haul.order(rest_of(9, place, vec![member], rest.clone()));
        anew.hauler.waiting();
        assert!(why(&anew).contains("differs from what was lost"));
    }
    let (mut anew, member) = Store::holding(&some_bytes(place.len as usize), OFFSET);
    anew.haul.order(rest_of(9, place, vec![member], rest.clone()));
    anew.hauler.waiting();
    why(&anew);
    let (mut anew, member) = Store::holding(&own(), OFFSET);
    anew.haul.order(rest_of(9, place, vec![member], Rest { from: 3, ..rest.clone() }));
    anew.hauler.waiting();
    assert!(why(&anew).contains("the front is longer"));
    let beyond = Rest { from: place.len + 1, ..rest };
    anew.haul.order(rest_of(9, place, vec![member], beyond));
    anew.hauler.waiting();
    assert!(why(&anew).contains("the front is longer"));
}

#[test]
fn what_differs_is_found_out() {
    // Another key, of the same length.
    let mut come = own();
    come[4] = b'v';
    let (mut here, location) = Store::holding(&come, OFFSET);
    let (mut middle, operand) = Store::holding(&own(), OFFSET);
    middle.haul.order(fold(9, there(come.len()), vec![operand]));
    here.haul.order(send(9, location, 0));
    let piece = here.piece(THERE).unwrap();
    middle.takes(HERE, &piece);
    assert!(why(&middle).contains("differ in structure"));
    // Another dtype, another shape, one array more or less.
    let array =
        |kind, count| [vec![ARRAY, kind, 0, 1, count, 0], vec![1; 4 * count as usize]].concat();
    let list = |items: &[Vec<u8>]| [vec![LIST, items.len() as u8], items.concat()].concat();
    let [ints, floats, four] = [array(6, 4), array(11, 4), array(11, 3)];
    let pairs = [
        (ints.clone(), floats.clone()),
        (floats.clone(), four.clone()),
        (list(&[floats.clone(), four.clone()]), list(&[four.clone(), floats.clone()])),
        (list(std::slice::from_ref(&floats)), list(&[floats.clone(), four])),
        (floats.clone(), list(&[floats])),
    ];
    for (come, own) in pairs.iter().flat_map(|(one, other)| [(one, other), (other, one)]) {
        let (mut here, location) = Store::holding(come, OFFSET);
        let (mut middle, operand) = Store::holding(own, OFFSET);
        middle.haul.order(fold(9, there(come.len()), vec![operand]));
        here.haul.order(send(9, location, 0));
        let piece = here.piece(THERE).unwrap();
        middle.takes(HERE, &piece);
        assert!(why(&middle).contains("differ in structure"), "{come:?} {own:?}");
    }
}

#[test]
fn what_nodes_do_not_fold_is_told() {
    let complex = [vec![ARRAY, 13, 0, 1, 2, 0], vec![1; 16]].concat();
    let cases = [(complex, "nodes do not fold C64 by Prod"), (vec![7; 22], "no array")];
    for (bytes, text) in cases {
        let (mut store, operand) = Store::holding(&bytes, OFFSET);
        let (place, from, op) = (there(bytes.len()), HERE, FoldOp::Prod);
        let operands = vec![operand];
        let (written, divide_by, ring, rest) = (0, None, None, None);
        let fold =
            Order::Fold { ticket: 9, from, place, written, op, operands, divide_by, ring, rest };
        store.haul.order(fold);
        store.hauler.waiting();
        let why = why(&store);
        assert!(why.contains(text), "{why}");
    }
    // An operand that moved, and room on disk.
    let (mut store, operand) = Store::holding(&own(), OFFSET);
    let stale = Location { generation: operand.generation + 1, ..operand };
    store.haul.order(fold(9, there(own().len()), vec![stale]));
    store.hauler.waiting();
    why(&store);
    let place = Place { slot: 3, offset: ARENA_BYTES + 4096, len: own().len() as u64 };
    store.haul.order(fold(9, place, vec![operand]));
    store.hauler.waiting();
    assert!(why(&store).contains("on disk"));
}

#[test]
fn a_mean_is_divided_where_the_chain_ends() {
    let come = value(COUNT, 0, 2, |at| 2.0 * at as f32);
    for operands in [0, 1] {
        let (mut here, location) = Store::holding(&come, OFFSET);
        let (mut last, operand) = Store::holding(&own(), OFFSET);
        let (place, from, op) = (there(come.len()), HERE, FoldOp::Sum);
        let (written, operands, divide_by, ring) = (0, vec![operand; operands], Some(3), None);
        let sum = 2.0 + operands.len() as f32;
        last.haul.order(Order::Fold {
            ticket: 9,
            from,
            place,
            written,
            op,
            operands,
            divide_by,
            ring,
            rest: None,
        });
        here.haul.order(send(9, location, 0));
        carry(&mut here, &mut last);
        assert!(sums(&last, place) == wanted(|at| sum * at as f32 / 3.0), "{sum}");
    }
}

/// Their sum may be too large for them: with a member of its own and without one, who divides refuses.
#[test]
fn nodes_make_no_mean_of_whole_and_short_numbers() {
    for (kind, bytes, text) in [(6, 8, "I32"), (3, 2, "U8"), (1, 2, "Bool"), (10, 4, "F16")] {
        let member = [vec![ARRAY, kind, 0, 1, 2, 0], vec![1; bytes]].concat();
        for operands in [0, 1] {
            let (mut here, location) = Store::holding(&member, OFFSET);
            let (mut last, operand) = Store::holding(&member, OFFSET);
            let (place, from, op) = (there(member.len()), HERE, FoldOp::Sum);
            let (written, operands, divide_by, ring) = (0, vec![operand; operands], Some(2), None);
            last.haul.order(Order::Fold {
                ticket: 9,
                from,
                place,
                written,
                op,
                operands,
                divide_by,
                ring,
                rest: None,
            });
            here.haul.order(send(9, location, 0));
            let piece = here.piece(THERE).unwrap();
            last.takes(HERE, &piece);
            let why = why(&last);
            assert!(why.contains(&format!("no mean of {text}")), "{why}");
        }
    }
}
