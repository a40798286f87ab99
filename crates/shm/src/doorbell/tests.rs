#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64 as StdAtomicU64, Ordering::*};

use super::*;
use crate::segment::{ProcessSlot, Segment};

const KINDS_AND_URGENCIES: [(SleepKind, [bool; 3]); 3] = [
    (SleepKind::Strict, [true, true, true]),
    (SleepKind::Lenient, [false, true, true]),
    (SleepKind::Idle, [false, false, true]),
];
const URGENCIES: [Urgency; 3] = [Urgency::Lazy, Urgency::Eager, Urgency::Must];

#[test]
fn a_ring_costs_a_call_only_for_the_kinds_it_reaches() {
    for (kind, reached) in KINDS_AND_URGENCIES {
        for (urgency, reached) in URGENCIES.into_iter().zip(reached) {
            let bell = Doorbell::new();
            assert!(!bell.ring(Urgency::Must), "nobody sleeps");
            let sleeper = bell.prepare(kind);
            assert!(bell.may_sleep(kind));
            assert_eq!(bell.ring(urgency), reached, "{kind:?} {urgency:?}");
            assert_eq!(bell.may_sleep(kind), !reached);
            assert!(!reached || !bell.ring(urgency), "one call is enough (BELL-2)");
            // Rung since prepare, whatever the urgency: no sleep.
            assert!(sleeper.rung());
            assert_eq!(sleeper.sleep(None), Slept::Woken);
        }
    }
}

#[test]
fn a_lenient_ring_asks_only_if_it_would_wake_somebody_more() {
    for (kind, asks) in
        [(SleepKind::Strict, false), (SleepKind::Lenient, true), (SleepKind::Idle, false)]
    {
        for answer in [false, true] {
            let bell = Doorbell::new();
            let sleeper = bell.prepare(kind);
            let mut asked = false;
            let woke = bell.ring_lenient(|| {
                asked = true;
                answer
            });
            assert_eq!((asked, woke), (asks, kind == SleepKind::Strict || asks && answer));
            assert_eq!(bell.may_sleep(kind), !woke);
            assert_eq!(sleeper.sleep(None), Slept::Woken);
        }
    }
}

#[test]
fn a_registration_that_is_not_needed_is_taken_back() {
    let bell = Doorbell::new();
    drop(bell.prepare(SleepKind::Strict));
    assert!(!bell.ring(Urgency::Must));
    let outer = bell.prepare(SleepKind::Lenient);
    drop(bell.prepare(SleepKind::Strict));
    assert!(bell.may_sleep(SleepKind::Lenient) && !bell.may_sleep(SleepKind::Strict));
    drop(bell.prepare(SleepKind::Lenient));
    assert!(bell.may_sleep(SleepKind::Lenient), "the outer one still needs it");
    drop(outer);
}

#[test]
fn a_timeout_ends_a_sleep_and_leaves_no_flag() {
    let bell = Doorbell::new();
    let sleeper = bell.prepare(SleepKind::Strict);
    assert_eq!(sleeper.sleep(Some(Duration::from_millis(1))), Slept::TimedOut);
    assert!(!bell.may_sleep(SleepKind::Strict));
}

#[test]
fn a_reset_silences_what_a_dead_process_left() {
    let bell = Doorbell::new();
    let living = bell.prepare(SleepKind::Idle);
    std::mem::forget(bell.prepare(SleepKind::Strict));
    bell.reset();
    assert!(!bell.ring(Urgency::Must));
    assert_eq!(living.sleep(None), Slept::Woken, "seq has moved");
}

#[test]
fn seq_and_registrations_wrap_apart_from_each_other() {
    let bell = Doorbell::new();
    bell.word.store(join(u32::MAX, !KINDS), Relaxed);
    let sleeper = bell.prepare(SleepKind::Strict);
    assert_eq!(bell.word.load(Relaxed), join(u32::MAX, 1));
    assert!(bell.ring(Urgency::Lazy));
    assert_eq!(bell.word.load(Relaxed), join(0, 0));
    assert_eq!(sleeper.sleep(None), Slept::Woken);
}

/// Two mappings of one segment, as two processes have them: each side waits for the other's
/// number, and any lost wake-up stops the test for good.
#[test]
fn two_mappings_wake_each_other() {
    const ROUNDS: u64 = 20_000;
    let (ours, fd) = Segment::create().unwrap();
    let theirs = Segment::open(&fd).unwrap();
    let slots = [0, 1].map(|index| ProcessSlot::new(index).unwrap());
    let turn = StdAtomicU64::new(0);
    let play = |segment: &Segment, me: usize| {
        for round in 0..ROUNDS {
            let mine = round * 2 + me as u64;
            loop {
                let sleeper = segment.doorbell(slots[me]).prepare(SleepKind::Strict);
                if turn.load(Relaxed) == mine {
                    break;
                }
                sleeper.sleep(None);
            }
            turn.store(mine + 1, Relaxed);
            segment.doorbell(slots[1 - me]).ring(Urgency::Lazy);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(&ours, 0));
        scope.spawn(|| play(&theirs, 1));
    });
    assert_eq!(turn.into_inner(), ROUNDS * 2);
}

#[test]
fn who_sleeps_elsewhere_is_woken_there_and_only_while_it_may_sleep() {
    let bell = Doorbell::new();
    let woken = std::cell::Cell::new(0);
    let ring = |urgency| bell.ring_with(urgency, || woken.set(woken.get() + 1));
    assert!(!ring(Urgency::Must), "nobody is registered");
    let sleeper = bell.prepare(SleepKind::Strict);
    assert!(!sleeper.rung());
    assert!(ring(Urgency::Lazy));
    assert!(sleeper.rung() && !ring(Urgency::Must), "it is woken once");
    drop(sleeper);
    let lenient = bell.prepare(SleepKind::Lenient);
    assert!(!ring(Urgency::Lazy) && ring(Urgency::Eager));
    drop(lenient);
    drop(bell.prepare(SleepKind::Strict));
    assert!(!ring(Urgency::Must), "it took its registration back");
    assert_eq!(woken.get(), 2);
}

/// Threads of every kind sleep on one bell until a last, urgent ring.
#[test]
fn an_urgent_ring_wakes_every_kind() {
    let (ours, fd) = Segment::create().unwrap();
    let theirs = Segment::open(&fd).unwrap();
    let slot = ProcessSlot::new(4095).unwrap();
    let done = StdAtomicU64::new(0);
    std::thread::scope(|scope| {
        for (kind, _) in KINDS_AND_URGENCIES.iter().cycle().take(6) {
            let (bell, done) = (theirs.doorbell(slot), &done);
            scope.spawn(move || {
                loop {
                    let sleeper = bell.prepare(*kind);
                    if done.load(Relaxed) == 1 {
                        break;
                    }
                    sleeper.sleep(None);
                }
            });
        }
        let bell = ours.doorbell(slot);
        while !KINDS_AND_URGENCIES.iter().all(|(kind, _)| bell.may_sleep(*kind)) {
            std::thread::yield_now();
        }
        bell.ring(Urgency::Lazy);
        done.store(1, Relaxed);
        bell.ring(Urgency::Must);
    });
}
