//! Parts of objects, in one room.

use super::*;

fn part(ticket: u64, at: u64, offset: u64, until: u64) -> Order {
    let place = Place { slot: 9, offset: 4096, len: 1 << 20 };
    Order::ReceivePart { ticket, from: HERE, place, at, offset, until }
}

#[test]
fn parts_go_to_their_places_and_what_lies_between_them_is_not_touched() {
    let bytes = some_bytes(2 * BULK_CHUNK_BYTES + 9);
    let (mut here, location) = Store::holding(&bytes, 0);
    let mut there = Store::new();
    there.arena.claim(4096, 1 << 20).unwrap().fill(7);
    let end = BULK_CHUNK_BYTES as u64 + 300;
    there.haul.order(part(1, 5, 100, end));
    there.haul.order(part(2, 700_000, 3, 4));
    for (ticket, offset, until) in [(1, 100, end), (2, 3, 4)] {
        let made = false;
        here.haul.order(Order::Send { to: THERE, ticket, location, offset, until, made });
    }
    assert_eq!(carry(&mut here, &mut there), 3);
    let came = [2, 1].map(|ticket| Done::PartCame { ticket });
    assert_eq!(there.haul.done(), came);
    let len = (end - 100) as usize;
    let room = there.bytes(Place { slot: 9, offset: 4096, len: 1 << 20 });
    assert_eq!(room[..5], [7; 5]);
    assert!(room[5..5 + len] == bytes[100..end as usize]);
    assert!(room[5 + len..700_000].iter().all(|byte| *byte == 7));
    assert_eq!(room[700_000..700_002], [bytes[3], 7]);
    // The room is nobody's claim any more.
    drop(there.arena.claim(4096, 1 << 20).unwrap());
}

#[test]
fn more_than_a_part_is_refused_and_what_stops_says_so() {
    let (mut here, location) = Store::holding(&some_bytes(1000), 0);
    let mut there = Store::new();
    there.haul.order(part(1, 0, 0, 100));
    here.haul.order(send(1, location, 0));
    let piece = here.piece(THERE).unwrap();
    there.takes(HERE, &piece);
    let done = there.haul.done();
    assert!(matches!(&done[..], [Done::Stopped { ticket: 1, .. }]), "{done:?}");
    there.haul.order(part(2, 0, 0, 100));
    there.haul.order(Order::StopReceive { ticket: 2 });
    assert!(there.hauler.waiting().is_empty());
    let done = there.haul.done();
    assert!(matches!(&done[..], [Done::Stopped { ticket: 2, lost: false, .. }]), "{done:?}");
}

#[test]
fn two_parts_of_one_place_are_refused() {
    let mut there = Store::new();
    there.haul.order(part(1, 0, 0, 100));
    there.haul.order(part(2, 99, 0, 100));
    assert!(there.hauler.waiting().is_empty());
    let done = there.haul.done();
    assert!(matches!(&done[..], [Done::Stopped { ticket: 2, .. }]), "{done:?}");
}
