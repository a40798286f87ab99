//! The atomic protocols under loom: every interleaving and every permitted stale read.
//! How to run it: see the crate's documentation.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use hoplo_shm::{
    CloseOutcome, Doorbell, PinError, PinTable, ProcessSlot, Segment, SleepKind, Urgency,
    WriteError, model_ring,
};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

/// At most this many switches away from a thread that could go on; enough to find every bug that
/// we planted, and the only way to stay within seconds where three threads meet.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn take(consumer: &mut hoplo_shm::Consumer, taken: &mut Vec<u64>) {
    if let Some(frame) = consumer.next().unwrap() {
        let whole = frame.bytes().iter().all(|&byte| u64::from(byte) == frame.tag());
        assert!(whole, "RING-2: torn frame {}", frame.tag());
        taken.push(frame.tag());
    }
}

/// RING-2, RING-3: each frame is taken XOR revoked, whole, also where memory is used again.
/// `warm` frames go through first, so that the interesting ones meet the end of the ring.
fn publish_take_revoke(capacity: usize, payload: usize, warm: usize) {
    let (mut producer, mut consumer) = model_ring(capacity);
    for _ in 0..warm {
        producer.try_write(9, &[&vec![9; payload]]).unwrap();
        take(&mut consumer, &mut Vec::new());
    }
    let consuming = thread::spawn(move || {
        let mut taken = Vec::new();
        for _ in 0..2 {
            take(&mut consumer, &mut taken);
        }
        (consumer, taken)
    });
    let mut written = Vec::new();
    for tag in 1..=3_u8 {
        match producer.try_write(u64::from(tag), &[&vec![tag; payload]]) {
            Ok(position) => written.push((u64::from(tag), position)),
            Err(error) => assert!(matches!(error, WriteError::Full { .. }), "{error}"),
        }
    }
    let revoked: Vec<u64> =
        written.iter().filter(|(_, at)| producer.revoke(*at)).map(|(tag, _)| *tag).collect();
    let (mut consumer, mut taken) = consuming.join().unwrap();
    for _ in 0..3 {
        take(&mut consumer, &mut taken);
    }
    assert!(taken.is_sorted(), "out of order: {taken:?}");
    let mut all: Vec<u64> = taken.iter().chain(&revoked).copied().collect();
    all.sort_unstable();
    let expected: Vec<u64> = written.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(all, expected, "RING-3: taken {taken:?}, revoked {revoked:?}");
}

#[test]
fn ring_frames_are_taken_xor_revoked_where_memory_is_used_again() {
    // Two frames of 32 bytes fit: the third needs the room of the first.
    loom::model(|| publish_take_revoke(64, 16, 0));
}

#[test]
fn ring_frames_are_taken_xor_revoked_across_the_wrap() {
    // Frames of 48 bytes in 128: the third does not fit before the end.
    loom::model(|| publish_take_revoke(128, 32, 1));
}

/// BELL-1: loom reports a deadlock if a wake-up is lost. The value itself is Relaxed, so that the
/// bell alone must make it visible.
fn sleep_until(bell: &Doorbell, kind: SleepKind, value: &AtomicU32, wanted: u32) {
    loop {
        let sleeper = bell.prepare(kind);
        if value.load(Ordering::Relaxed) >= wanted {
            return;
        }
        sleeper.sleep(None);
    }
}

#[test]
fn bell_wakes_one_sleeper() {
    for (kind, urgency) in [
        (SleepKind::Strict, Urgency::Lazy),
        (SleepKind::Lenient, Urgency::Eager),
        (SleepKind::Idle, Urgency::Must),
    ] {
        bounded(3, move || {
            let bell = Arc::new(Doorbell::new());
            let value = Arc::new(AtomicU32::new(0));
            let (their_bell, their_value) = (bell.clone(), value.clone());
            let ringing = thread::spawn(move || {
                for round in 1..=2 {
                    their_value.store(round, Ordering::Relaxed);
                    their_bell.ring(urgency);
                }
            });
            sleep_until(&bell, kind, &value, 1);
            sleep_until(&bell, kind, &value, 2);
            ringing.join().unwrap();
        });
    }
}

#[test]
fn bell_with_two_ringers_loses_neither() {
    bounded(2, || {
        let bell = Arc::new(Doorbell::new());
        let value = Arc::new(AtomicU32::new(0));
        let ringing: Vec<_> = (0..2)
            .map(|_| {
                let (bell, value) = (bell.clone(), value.clone());
                thread::spawn(move || {
                    value.fetch_add(1, Ordering::Relaxed);
                    bell.ring(Urgency::Lazy);
                })
            })
            .collect();
        sleep_until(&bell, SleepKind::Strict, &value, 1);
        sleep_until(&bell, SleepKind::Strict, &value, 2);
        ringing.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn bell_wakes_two_sleepers_of_two_kinds() {
    bounded(2, || {
        let bell = Arc::new(Doorbell::new());
        let value = Arc::new(AtomicU32::new(0));
        let sleeping: Vec<_> = [SleepKind::Strict, SleepKind::Lenient]
            .into_iter()
            .map(|kind| {
                let (bell, value) = (bell.clone(), value.clone());
                thread::spawn(move || sleep_until(&bell, kind, &value, 1))
            })
            .collect();
        // A lazy ring first: it may drop the strict flag only.
        bell.ring(Urgency::Lazy);
        value.store(1, Ordering::Relaxed);
        bell.ring(Urgency::Must);
        sleeping.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn bell_survives_registrations_that_are_taken_back() {
    // BELL-2: flags dropped by one sleeper must not silence the bell for another.
    bounded(2, || {
        let bell = Arc::new(Doorbell::new());
        let value = Arc::new(AtomicU32::new(0));
        let fickle = {
            let bell = bell.clone();
            thread::spawn(move || {
                drop(bell.prepare(SleepKind::Strict));
                drop(bell.prepare(SleepKind::Strict));
            })
        };
        let ringing = {
            let (bell, value) = (bell.clone(), value.clone());
            thread::spawn(move || {
                bell.ring(Urgency::Lazy);
                value.store(1, Ordering::Relaxed);
                bell.ring(Urgency::Lazy);
            })
        };
        sleep_until(&bell, SleepKind::Strict, &value, 1);
        fickle.join().unwrap();
        ringing.join().unwrap();
    });
}

#[test]
fn bell_that_is_silenced_loses_nobody_who_registered_again_meanwhile() {
    // A daemon that ends buries its driver, whose thread was woken a moment ago and is about to sleep again.
    // 1. The daemon rings; the thread wakes, finds nothing, registers. 2. The daemon silences the bell.
    // 3. The driver shuts down and rings its own thread, which must hear it.
    bounded(3, || {
        let bell = Arc::new(Doorbell::new());
        let value = Arc::new(AtomicU32::new(0));
        let progress = {
            let (bell, value) = (bell.clone(), value.clone());
            thread::spawn(move || sleep_until(&bell, SleepKind::Idle, &value, 1))
        };
        let daemon = {
            let bell = bell.clone();
            thread::spawn(move || {
                bell.ring(Urgency::Must);
                bell.reset();
            })
        };
        value.store(1, Ordering::Relaxed);
        bell.ring(Urgency::Must);
        daemon.join().unwrap();
        progress.join().unwrap();
    });
}

/// The bytes of an object: loom panics if a reader meets a writer.
struct Bytes(UnsafeCell<u32>);

// SAFETY: loom watches every access.
unsafe impl Sync for Bytes {}

fn read_once(segment: &Arc<Segment>, bytes: &Bytes, process: u32) -> Result<(), PinError> {
    let process = ProcessSlot::new(process).unwrap();
    let first = hoplo_shm::Generation(1);
    let mut pins = PinTable::new(segment.clone(), process);
    let pin = pins.pin(0, first)?;
    // SAFETY: pinned, so that nobody writes.
    bytes.0.with(|byte| assert_eq!(unsafe { *byte }, 1, "read of another generation"));
    pins.unpin(pin);
    pins.check();
    Ok(())
}

/// PIN-1: what a reader has pinned is not taken away, and what is taken away is not pinned.
fn evict_against(readers: u32) {
    let segment = Segment::model();
    let bytes = Arc::new(Bytes(UnsafeCell::new(1)));
    let slot = segment.object(0).unwrap();
    let generation = slot.seal();
    let reading: Vec<_> = (0..readers)
        .map(|process| {
            let (segment, bytes) = (segment.clone(), bytes.clone());
            thread::spawn(move || read_once(&segment, &bytes, process))
        })
        .collect();
    let live = || (0..readers).map(|slot| segment.pin_row(ProcessSlot::new(slot).unwrap()));
    let outcome = slot.close(0, generation, live());
    if outcome == CloseOutcome::Closed {
        // SAFETY: closed for good, so that nobody reads.
        bytes.0.with_mut(|byte| unsafe { *byte = 2 });
        assert!(slot.free(generation));
        assert_ne!(slot.seal(), generation);
    }
    for thread in reading {
        match thread.join().unwrap() {
            Ok(()) | Err(PinError::Closing { .. }) => {}
            Err(PinError::Stale { .. }) => assert_eq!(outcome, CloseOutcome::Closed),
            Err(PinError::TableFull) => panic!("one pin fills no table"),
        }
    }
    assert_ne!(outcome, CloseOutcome::Stale);
}

#[test]
fn pins_hold_against_the_evictor() {
    loom::model(|| evict_against(1));
}

#[test]
fn pins_of_two_readers_hold_against_the_evictor() {
    loom::model(|| evict_against(2));
}

#[test]
fn pins_hold_while_the_mark_goes_up_and_down() {
    // PIN-2: another pin of the same process comes and goes while the evictor scans.
    loom::model(|| {
        let segment = Segment::model();
        let bytes = Arc::new(Bytes(UnsafeCell::new(1)));
        let (wanted, other) =
            (segment.object(0).unwrap().seal(), segment.object(1).unwrap().seal());
        let process = ProcessSlot::new(0).unwrap();
        let reading = {
            let (segment, bytes) = (segment.clone(), bytes.clone());
            thread::spawn(move || {
                let mut pins = PinTable::new(segment, process);
                let low = pins.pin(1, other).unwrap();
                let high = pins.pin(0, wanted);
                pins.unpin(low);
                if let Ok(high) = high {
                    // SAFETY: pinned, so that nobody writes.
                    bytes.0.with(|byte| assert_eq!(unsafe { *byte }, 1));
                    pins.unpin(high);
                }
                pins.check();
            })
        };
        let slot = segment.object(0).unwrap();
        if slot.close(0, wanted, [segment.pin_row(process)]) == CloseOutcome::Closed {
            // SAFETY: closed for good, so that nobody reads.
            bytes.0.with_mut(|byte| unsafe { *byte = 2 });
        }
        reading.join().unwrap();
    });
}
