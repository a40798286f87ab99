//! Two stores in one process, and the pieces between them.

use std::sync::Arc as Shared;
use std::sync::atomic::{AtomicU32, Ordering};

use hoplo_shm::CloseOutcome;

use super::*;

mod folds;
mod parts;
mod rings;

const HERE: NodeNumber = NodeNumber::alone(1);
const THERE: NodeNumber = NodeNumber::alone(2);
const ARENA_BYTES: u64 = 4 << 20;
const SLOT: u32 = 17;

struct Store {
    segment: Shared<Segment>,
    arena: Shared<Arena>,
    file: std::fs::File,
    hauler: Hauler,
    haul: Haul,
}

impl Store {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hoplo-test-haul-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = std::fs::File::options().create_new(true).read(true).write(true).clone();
        let file = options.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        let segment = Segment::create().unwrap().0;
        let arena = Arena::create(ARENA_BYTES).unwrap();
        let parts = Parts {
            segment: Shared::clone(&segment),
            arena: Shared::clone(&arena),
            spill_file: file.try_clone().unwrap().into(),
            wake: Bell::unheard().unwrap(),
        };
        let hauler = Hauler::new(parts).unwrap();
        let haul = hauler.haul().unwrap();
        Self { segment, arena, file, hauler, haul }
    }

    /// An object of these bytes, sealed.
    fn holding(bytes: &[u8], offset: u64) -> (Self, Location) {
        let store = Self::new();
        match offset.checked_sub(ARENA_BYTES) {
            None => {
                let mut claim = store.arena.claim(offset, bytes.len() as u64).unwrap();
                claim.copy_from_slice(bytes);
            }
            Some(at) => {
                std::os::unix::fs::FileExt::write_all_at(&store.file, bytes, at).unwrap();
            }
        }
        let generation = store.segment.object(SLOT).unwrap().seal().0;
        (store, Location { slot: SLOT, generation, offset, len: bytes.len() as u64 })
    }

    fn bytes(&self, place: Place) -> Vec<u8> {
        match place.offset.checked_sub(ARENA_BYTES) {
            None => self.arena.read(place.offset, place.len).unwrap().to_vec(),
            Some(at) => {
                let mut bytes = vec![0; place.len as usize];
                std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut bytes, at).unwrap();
                bytes
            }
        }
    }

    /// As the node closes what is to go: with the row of slot 0.
    fn close(&self, location: Location) -> CloseOutcome {
        let row = self.segment.pin_row(ProcessSlot::new(0).unwrap());
        let generation = Generation(location.generation);
        self.segment.object(location.slot).unwrap().close(location.slot, generation, [row])
    }

    /// As a process does to which it was given: it looks for no pins, and seals another one in its slot.
    fn seal_another(&self, location: Location) -> Location {
        let word = self.segment.object(location.slot).unwrap();
        let generation = Generation(location.generation);
        assert_eq!(word.close(location.slot, generation, []), CloseOutcome::Closed);
        assert!(word.free(generation));
        self.arena.claim(location.offset, location.len).unwrap().fill(7);
        Location { generation: word.seal().0, ..location }
    }

    /// The next piece for that node.
    fn piece(&mut self, to: NodeNumber) -> Option<Piece> {
        self.hauler.next(to)
    }

    /// From there, cut as records are.
    fn takes(&mut self, from: NodeNumber, piece: &Piece) {
        let (bytes, mut offset) = ((*piece.bytes).as_ref(), piece.offset);
        for record in bytes.chunks(16_384) {
            self.hauler.lands(from, piece.ticket, offset, record);
            offset = offset.saturating_add(record.len() as u64);
        }
        self.hauler.arrived(from, landed(piece));
    }
}

fn landed(piece: &Piece) -> Landed {
    Landed { ticket: piece.ticket, offset: piece.offset, len: piece.len() as u64 }
}

fn some_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn receive(ticket: u64, place: Place, written: u64) -> Order {
    Order::Receive { ticket, from: HERE, place, written }
}

fn send(ticket: u64, location: Location, offset: u64) -> Order {
    Order::Send { to: THERE, ticket, location, offset, until: u64::MAX, made: false }
}

/// All frames from one to the other; how many.
fn carry(from: &mut Store, to: &mut Store) -> usize {
    let mut frames = 0;
    assert_eq!(from.hauler.waiting(), [THERE]);
    while let Some(frame) = from.piece(THERE) {
        to.takes(HERE, &frame);
        frames += 1;
    }
    assert!(from.hauler.waiting().is_empty());
    frames
}

#[test]
fn every_byte_arrives_from_arena_and_file_to_arena_and_file() {
    for from_offset in [640, ARENA_BYTES + 8192] {
        for to_offset in [4096, ARENA_BYTES + 4096] {
            for len in [1, BULK_CHUNK_BYTES, BULK_CHUNK_BYTES + 1, (3 << 20) + 5] {
                let bytes = some_bytes(len);
                let (mut here, location) = Store::holding(&bytes, from_offset);
                let mut there = Store::new();
                let place = Place { slot: 3, offset: to_offset, len: len as u64 };
                there.haul.order(receive(9, place, 0));
                here.haul.order(send(9, location, 0));
                assert_eq!(carry(&mut here, &mut there), len.div_ceil(BULK_CHUNK_BYTES));
                assert_eq!(here.haul.done(), [Done::Sent { to: THERE, ticket: 9 }]);
                let generation = there.segment.object(3).unwrap().state().generation.0;
                assert_eq!(there.haul.done(), [Done::Received { ticket: 9, generation }]);
                assert!(
                    there.bytes(place) == bytes,
                    "{len} bytes from {from_offset} to {to_offset}"
                );
            }
        }
    }
}

#[test]
fn what_is_sent_is_pinned_until_no_piece_of_it_may_be_sent_again() {
    let bytes = some_bytes(2 * BULK_CHUNK_BYTES);
    let (mut here, location) = Store::holding(&bytes, 0);
    here.haul.order(send(1, location, 0));
    let first = here.piece(THERE).unwrap();
    assert_eq!(here.close(location), CloseOutcome::Pinned);
    let last = here.piece(THERE).unwrap();
    assert_eq!(here.haul.done(), [Done::Sent { to: THERE, ticket: 1 }]);
    drop(first);
    assert!(here.hauler.waiting().is_empty());
    assert_eq!(here.close(location), CloseOutcome::Pinned);
    assert!((*last.bytes).as_ref() == &bytes[BULK_CHUNK_BYTES..]);
    drop(last);
    assert!(here.hauler.waiting().is_empty());
    assert_eq!(here.close(location), CloseOutcome::Closed);
}

/// It lay nowhere else: an object of 64 bytes in each of many frames would have taken all pins.
#[test]
fn a_short_piece_is_copied_and_pins_nothing() {
    let (mut here, location) = Store::holding(&some_bytes(100), 0);
    here.haul.order(send(1, location, 0));
    let piece = here.piece(THERE).unwrap();
    assert!(here.hauler.waiting().is_empty() && here.hauler.pins.is_empty());
    assert!((*piece.bytes).as_ref() == some_bytes(100));
}

#[test]
fn pieces_are_expected_from_the_order_to_the_last_byte() {
    let bytes = some_bytes(BULK_CHUNK_BYTES + 5);
    let (mut here, location) = Store::holding(&bytes, 0);
    let mut there = Store::new();
    there.haul.order(receive(1, Place { slot: 3, offset: 0, len: bytes.len() as u64 }, 0));
    here.haul.order(send(1, location, 0));
    assert!(there.hauler.waiting().is_empty() && there.hauler.expects());
    pass(&mut here, &mut there);
    assert!(there.hauler.expects() && !here.hauler.expects());
    pass(&mut here, &mut there);
    assert!(!there.hauler.expects());
}

#[test]
fn a_piece_whose_connection_broke_lands_again() {
    let bytes = some_bytes(BULK_CHUNK_BYTES + 5);
    let (mut here, location) = Store::holding(&bytes, 0);
    let mut there = Store::new();
    let place = Place { slot: 3, offset: 0, len: bytes.len() as u64 };
    there.haul.order(receive(1, place, 0));
    here.haul.order(send(1, location, 0));
    let first = here.piece(THERE).unwrap();
    there.hauler.lands(HERE, 1, 0, &bytes[..20_000]);
    // Only what is new is written: it is cut otherwise this time.
    there.takes(HERE, &first);
    let last = here.piece(THERE).unwrap();
    there.takes(HERE, &last);
    assert!(matches!(&there.haul.done()[..], [Done::Received { ticket: 1, .. }]));
    assert!(there.bytes(place) == bytes);
}

/// What a relay or a reader may have seen does not change any more.
#[test]
fn what_has_landed_is_not_written_again_and_what_has_not_landed_does_not_arrive() {
    let mut there = Store::new();
    let place = Place { slot: 3, offset: 0, len: 100 };
    there.haul.order(receive(1, place, 0));
    let part = |offset, len| Landed { ticket: 1, offset, len };
    there.hauler.lands(HERE, 1, 0, &[1; 50]);
    there.hauler.arrived(HERE, part(0, 40));
    there.hauler.lands(HERE, 1, 30, &[2; 20]);
    there.hauler.lands(HERE, 1, 40, &[2; 10]);
    there.hauler.lands(HERE, 1, 60, &[2; 10]);
    there.hauler.lands(HERE, 1, 40, &[2; 70]);
    there.hauler.lands(THERE, 1, 40, &[2; 10]);
    there.hauler.lands(HERE, 1, u64::MAX, &[2; 10]);
    assert_eq!(there.bytes(place), [[1; 50], [0; 50]].concat());
    assert_eq!(there.haul.done(), []);
    // A piece that said where it would be, and was not there.
    there.hauler.arrived(HERE, part(40, 20));
    let done = there.haul.done();
    assert!(matches!(&done[..], [Done::Stopped { written: 50, .. }]), "{done:?}");
    there.hauler.lands(HERE, 1, 40, &[2; 10]);
    assert_eq!(there.bytes(place), [[1; 50], [0; 50]].concat());
}

#[test]
fn who_is_told_to_stop_sends_no_more_and_pins_nothing() {
    let (mut here, location) = Store::holding(&some_bytes(2 * BULK_CHUNK_BYTES), 0);
    here.haul.order(send(1, location, 0));
    here.piece(THERE).unwrap();
    here.haul.order(Order::StopSend { to: THERE, ticket: 1 });
    assert!(here.piece(THERE).is_none() && here.hauler.pins.is_empty());
    assert_eq!(here.haul.done(), []);
}

/// What was given to a process while it was sent: the next object in its slot is sent at once.
#[test]
fn who_is_told_to_stop_pins_nothing_when_the_next_one_begins() {
    let (mut here, location) = Store::holding(&some_bytes(2 * BULK_CHUNK_BYTES), 0);
    here.haul.order(Order::Send {
        to: THERE,
        ticket: 1,
        location,
        offset: 0,
        until: u64::MAX,
        made: true,
    });
    here.piece(THERE).unwrap();
    let other = here.seal_another(location);
    here.haul.order(Order::StopSend { to: THERE, ticket: 1 });
    here.haul.order(send(2, other, 0));
    let piece = here.piece(THERE);
    assert!(piece.is_some_and(|it| it.ticket == 2), "{:?}", here.haul.done());
}

#[test]
fn what_moved_meanwhile_is_not_sent() {
    let (mut here, location) = Store::holding(&some_bytes(100), 0);
    let stale = Location { generation: location.generation + 1, ..location };
    here.haul.order(send(1, stale, 0));
    assert!(here.hauler.waiting().is_empty());
    let done = here.haul.done();
    assert!(matches!(&done[..], [Done::SendFailed { moved: true, .. }]), "{done:?}");
}

#[test]
fn another_node_goes_on_where_the_first_attempt_ended() {
    let bytes = some_bytes(2 * BULK_CHUNK_BYTES + 9);
    let (mut here, location) = Store::holding(&bytes, 0);
    let mut there = Store::new();
    let place = Place { slot: 3, offset: 0, len: bytes.len() as u64 };
    there.haul.order(receive(1, place, 0));
    here.haul.order(send(1, location, 0));
    let frame = here.piece(THERE).unwrap();
    there.takes(HERE, &frame);
    there.haul.order(Order::StopReceive { ticket: 1 });
    assert!(there.hauler.waiting().is_empty());
    let late = here.piece(THERE).unwrap();
    there.takes(HERE, &late);
    let done = there.haul.done();
    let written = BULK_CHUNK_BYTES as u64;
    assert!(matches!(&done[..], [Done::Stopped { ticket: 1, written: it, .. }] if *it == written));
    here.haul.order(Order::StopSend { to: THERE, ticket: 1 });
    there.haul.order(receive(2, place, written));
    here.haul.order(send(2, location, written));
    assert_eq!(carry(&mut here, &mut there), 2);
    assert!(matches!(&there.haul.done()[..], [Done::Received { ticket: 2, .. }]));
    assert!(there.bytes(place) == bytes);
}

#[test]
fn a_chunk_out_of_place_or_beyond_the_end_stops_the_attempt_and_one_of_a_stranger_is_dropped() {
    let place = Place { slot: 3, offset: 0, len: 100 };
    for (offset, len) in [(1, 10), (0, 101), (u64::MAX, 1)] {
        let mut there = Store::new();
        there.haul.order(receive(1, place, 0));
        let piece = |ticket| Piece { ticket, offset, bytes: Shared::new(vec![7; len]) };
        there.takes(THERE, &piece(1));
        there.takes(HERE, &piece(2));
        assert_eq!(there.haul.done(), []);
        there.takes(HERE, &piece(1));
        let done = there.haul.done();
        assert!(matches!(&done[..], [Done::Stopped { written: 0, .. }]), "{done:?}");
        assert_eq!(there.bytes(place), [0; 100]);
    }
}

#[test]
fn with_its_link_each_attempt_ends() {
    let (mut here, location) = Store::holding(&some_bytes(2 * BULK_CHUNK_BYTES), 0);
    let place = Place { slot: 3, offset: 2 << 20, len: 100 };
    here.haul.order(Order::Receive { ticket: 5, from: THERE, place, written: 0 });
    here.haul.order(send(1, location, 0));
    here.hauler.lost(HERE);
    assert_eq!(here.haul.done(), [], "another node's");
    here.hauler.lost(THERE);
    let done = here.haul.done();
    assert!(
        matches!(
            &done[..],
            [
                Done::Stopped { ticket: 5, written: 0, .. },
                Done::SendFailed { ticket: 1, moved: false, .. }
            ]
        ),
        "{done:?}"
    );
    assert_eq!(here.close(location), CloseOutcome::Closed);
}

#[test]
fn a_place_that_is_written_already_is_refused() {
    let mut there = Store::new();
    let place = Place { slot: 3, offset: 0, len: 100 };
    there.haul.order(receive(1, place, 0));
    there.haul.order(receive(2, place, 0));
    assert!(there.hauler.waiting().is_empty());
    let done = there.haul.done();
    assert!(matches!(&done[..], [Done::Stopped { ticket: 2, .. }]), "{done:?}");
}

#[test]
fn of_two_objects_a_chunk_of_each_goes_in_turn() {
    let (mut here, location) = Store::holding(&some_bytes(2 * BULK_CHUNK_BYTES), 0);
    here.haul.order(send(1, location, 0));
    here.haul.order(send(2, location, 0));
    let mut tickets = Vec::new();
    while let Some(frame) = here.piece(THERE) {
        tickets.push(frame.ticket);
    }
    assert_eq!(tickets, [1, 2, 1, 2]);
    assert!(here.hauler.pins.is_empty());
}

// ---- relays ----

const YONDER: NodeNumber = NodeNumber::alone(3);
const PLACE: Place = Place { slot: 3, offset: 4096, len: 3 * BULK_CHUNK_BYTES as u64 };

/// A store with an object of three chunks, and one that receives it and sends it on to `YONDER`.
fn relaying() -> (Vec<u8>, Store, Store) {
    let bytes = some_bytes(3 * BULK_CHUNK_BYTES);
    let (mut here, location) = Store::holding(&bytes, 0);
    let mut there = Store::new();
    here.haul.order(send(9, location, 0));
    there.haul.order(receive(9, PLACE, 0));
    there.haul.order(Order::Relay { to: YONDER, ticket: 5, place: PLACE, offset: 0 });
    assert!(there.hauler.waiting().is_empty() && there.piece(YONDER).is_none(), "nothing is here");
    pass(&mut here, &mut there);
    (bytes, here, there)
}

/// One frame.
fn pass(here: &mut Store, there: &mut Store) {
    let frame = here.piece(THERE).unwrap();
    there.takes(HERE, &frame);
}

#[test]
fn what_has_come_is_sent_on_and_what_is_whole_is_pinned_for_it() {
    let (bytes, mut here, mut there) = relaying();
    let mut yonder = Store::new();
    let place = Place { slot: 8, offset: 0, len: PLACE.len };
    yonder.haul.order(Order::Receive { ticket: 5, from: THERE, place, written: 0 });
    let mut sent_on = |there: &mut Store| {
        let frame = there.piece(YONDER).expect("a chunk is there");
        yonder.takes(THERE, &frame);
    };
    assert_eq!(there.hauler.waiting(), [YONDER]);
    sent_on(&mut there);
    assert!(there.hauler.waiting().is_empty() && there.piece(YONDER).is_none(), "HAUL-5");
    pass(&mut here, &mut there);
    pass(&mut here, &mut there);
    let generation = there.segment.object(PLACE.slot).unwrap().state().generation.0;
    assert_eq!(there.haul.done(), [Done::Received { ticket: 9, generation }]);
    let location = Location { slot: PLACE.slot, generation, offset: PLACE.offset, len: PLACE.len };
    sent_on(&mut there);
    assert_eq!(there.close(location), CloseOutcome::Pinned);
    sent_on(&mut there);
    assert!(there.hauler.waiting().is_empty(), "what was sent is heard of");
    assert_eq!(there.close(location), CloseOutcome::Closed);
    assert_eq!(there.haul.done(), [Done::Sent { to: YONDER, ticket: 5 }]);
    assert!(yonder.bytes(place) == bytes);
}

/// Each node of a chain held a piece of 256 KiB until all of it was there: of 16 nodes the last one waited for 15 such pieces.
#[test]
fn what_has_landed_is_sent_on_before_its_piece_is_whole() {
    let (bytes, mut here, mut there) = relaying();
    there.piece(YONDER).unwrap();
    let piece = here.piece(THERE).unwrap();
    let (begin, end) = (piece.offset, piece.offset + 16_384);
    there.hauler.lands(HERE, 9, begin, &bytes[begin as usize..end as usize]);
    assert_eq!(there.hauler.waiting(), [YONDER]);
    let sent_on = there.piece(YONDER).unwrap();
    assert_eq!((sent_on.offset, sent_on.len()), (begin, 16_384));
    assert!((*sent_on.bytes).as_ref() == &bytes[begin as usize..end as usize]);
    // Its source is gone: the next one begins behind what landed.
    there.hauler.lost(HERE);
    let done = there.haul.done();
    assert!(matches!(done[..], [Done::Stopped { ticket: 9, written, .. }] if written == end));
}

#[test]
fn a_relay_waits_between_two_sources_and_goes_on_behind_what_it_sent() {
    let (_, mut here, mut there) = relaying();
    there.piece(YONDER).unwrap();
    there.hauler.lost(HERE);
    assert!(there.piece(YONDER).is_none());
    let written = BULK_CHUNK_BYTES as u64;
    assert!(
        matches!(there.haul.done()[..], [Done::Stopped { ticket: 9, written: it, .. }] if it == written)
    );
    there.haul.order(receive(10, PLACE, written));
    assert!(there.piece(YONDER).is_none());
    here.haul.order(Order::StopSend { to: THERE, ticket: 9 });
    let location = Location { slot: SLOT, generation: 1, offset: 0, len: PLACE.len };
    here.haul.order(send(10, location, written));
    pass(&mut here, &mut there);
    let frame = there.piece(YONDER).unwrap();
    assert_eq!(frame.offset, written);
}

#[test]
fn a_place_that_was_cleared_is_not_read_any_more() {
    let (_, _, mut there) = relaying();
    there.haul.order(Order::StopReceive { ticket: 9 });
    there.haul.order(Order::Clear { ticket: 11, slot: PLACE.slot });
    assert!(there.piece(YONDER).is_none());
    let done = there.haul.done();
    assert!(matches!(&done[..], [Done::Stopped { .. }, Done::Cleared { ticket: 11 }]), "{done:?}");
}

#[test]
fn what_does_not_come_is_not_relayed() {
    let mut store = Store::new();
    store.haul.order(Order::Relay { to: YONDER, ticket: 5, place: PLACE, offset: 0 });
    assert!(store.hauler.waiting().is_empty());
    let done = store.haul.done();
    assert!(matches!(&done[..], [Done::SendFailed { moved: true, .. }]), "{done:?}");
}

#[test]
fn who_waits_for_what_comes_holds_up_nothing_else() {
    let (_, _, mut there) = relaying();
    there.piece(YONDER).unwrap();
    let mut claim = there.arena.claim(2 << 20, 10).unwrap();
    claim.fill(1);
    drop(claim);
    let generation = there.segment.object(20).unwrap().seal().0;
    let location = Location { slot: 20, generation, offset: 2 << 20, len: 10 };
    there.haul.order(Order::Send {
        to: YONDER,
        ticket: 6,
        location,
        offset: 0,
        until: u64::MAX,
        made: false,
    });
    let frame = there.piece(YONDER).unwrap();
    assert_eq!(frame.ticket, 6);
}
