#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::segment::{PINS_PER_PROCESS, ProcessSlot, Segment};

fn process(index: u32) -> ProcessSlot {
    ProcessSlot::new(index).unwrap()
}

fn table(segment: &Arc<Segment>, index: u32) -> PinTable {
    PinTable::new(segment.clone(), process(index))
}

fn close(segment: &Segment, slot: u32, generation: Generation) -> CloseOutcome {
    let live = (0..4).map(|index| segment.pin_row(process(index)));
    segment.object(slot).unwrap().close(slot, generation, live)
}

#[test]
fn a_pin_keeps_the_object_until_the_last_one_goes() {
    let (segment, fd) = Segment::create().unwrap();
    let mut pins = table(&Segment::open(&fd).unwrap(), 3);
    let generation = segment.object(5).unwrap().seal();
    let first = pins.pin(5, generation).unwrap();
    let second = pins.pin(5, generation).unwrap();
    assert_eq!(segment.pin_row(process(3)).pinned().collect::<Vec<_>>(), [5]);
    assert_eq!(close(&segment, 5, generation), CloseOutcome::Pinned);
    pins.unpin(first);
    assert_eq!(close(&segment, 5, generation), CloseOutcome::Pinned);
    pins.unpin(second);
    pins.check();
    assert_eq!(close(&segment, 5, generation), CloseOutcome::Closed);
    assert_eq!(close(&segment, 5, generation), CloseOutcome::Stale);
}

#[test]
fn a_life_of_a_slot() {
    let (segment, _fd) = Segment::create().unwrap();
    let mut pins = table(&segment, 0);
    let slot = segment.object(0).unwrap();
    let stale = |generation: Generation| PinError::Stale { slot: 0, generation: generation.0 };
    assert_eq!(pins.pin(0, Generation(0)), Err(stale(Generation(0))), "PIN-3");
    let first = slot.seal();
    assert_eq!(close(&segment, 0, first), CloseOutcome::Closed);
    assert_eq!(pins.pin(0, first), Err(PinError::Closing { slot: 0 }));
    assert!(slot.reopen(first) && !slot.reopen(first));
    let pin = pins.pin(0, first).unwrap();
    pins.unpin(pin);
    assert!(!slot.free(first), "only a closed object is freed");
    assert_eq!(close(&segment, 0, first), CloseOutcome::Closed);
    assert!(slot.free(first));
    assert_eq!(pins.pin(0, first), Err(stale(first)));
    let second = slot.seal();
    assert_ne!(first, second);
    assert_eq!(pins.pin(0, first), Err(stale(first)));
    let pin = pins.pin(0, second).unwrap();
    assert_eq!(pins.pin(0, first), Err(stale(first)), "held in another generation");
    pins.unpin(pin);
    assert!(pins.pin(u32::MAX, first).is_err(), "no such slot");
    assert!(pins.is_empty());
    pins.check();
}

#[test]
fn the_dead_pin_nothing_once_their_row_is_wiped() {
    let (segment, _fd) = Segment::create().unwrap();
    let generations = [0, 1].map(|slot| segment.object(slot).unwrap().seal());
    let mut dead = table(&segment, 2);
    for (slot, generation) in generations.into_iter().enumerate() {
        let _lost = dead.pin(slot as u32, generation).unwrap();
    }
    assert_eq!(close(&segment, 1, generations[1]), CloseOutcome::Pinned);
    assert_eq!(segment.pin_row(process(2)).wipe(), 2);
    assert_eq!(close(&segment, 1, generations[1]), CloseOutcome::Closed);
    assert!(table(&segment, 2).is_empty());
}

#[test]
fn a_full_table_says_so_and_recovers() {
    let (segment, _fd) = Segment::create().unwrap();
    let mut pins = table(&segment, 1);
    let slots = 0..PINS_PER_PROCESS as u32;
    let mut held: Vec<PinEntry> = slots
        .map(|slot| {
            let generation = segment.object(slot).unwrap().seal();
            pins.pin(slot, generation).unwrap()
        })
        .collect();
    let extra = PINS_PER_PROCESS as u32;
    let generation = segment.object(extra).unwrap().seal();
    assert_eq!(pins.pin(extra, generation), Err(PinError::TableFull));
    assert_eq!(close(&segment, extra - 1, generation), CloseOutcome::Pinned);
    pins.unpin(held.swap_remove(100));
    held.push(pins.pin(extra, generation).unwrap());
    pins.check();
    // The mark follows the highest entry down, also past words of the bitmap.
    held.into_iter().rev().for_each(|pin| pins.unpin(pin));
    pins.check();
    assert_eq!(segment.pin_row(process(1)).pinned().count(), 0);
}

/// Readers and an evictor on real threads, over two mappings; loom has the proof, this has speed.
#[test]
fn readers_never_see_a_slot_in_another_generation() {
    use std::sync::atomic::{AtomicU32, Ordering::*};
    const ROUNDS: u32 = 20_000;
    let (segment, fd) = Segment::create().unwrap();
    let first = segment.object(0).unwrap().seal();
    // What the object's bytes would be: the generation they belong to.
    let content = AtomicU32::new(first.0);
    std::thread::scope(|scope| {
        for index in 0..2 {
            let (theirs, content) = (Segment::open(&fd).unwrap(), &content);
            scope.spawn(move || {
                let mut pins = table(&theirs, index);
                loop {
                    let generation = theirs.object(0).unwrap().state().generation;
                    if generation.0 >= ROUNDS {
                        break;
                    }
                    if let Ok(pin) = pins.pin(0, generation) {
                        assert_eq!(content.load(Relaxed), generation.0, "PIN-1");
                        pins.unpin(pin);
                    }
                }
            });
        }
        let mut generation = first;
        while generation.0 < ROUNDS {
            if close(&segment, 0, generation) == CloseOutcome::Closed {
                content.store(generation.0 + 1, Relaxed);
                assert!(segment.object(0).unwrap().free(generation));
                generation = segment.object(0).unwrap().seal();
            }
        }
    });
}
