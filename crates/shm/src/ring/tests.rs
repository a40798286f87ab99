#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::channel::{CallerEnd, Channel, WorkerEnd};
use crate::sync::Ordering;

const CAPACITY: usize = 512;

fn ring() -> (Producer, Consumer, RingView) {
    let (caller, fd) = Channel::create(CAPACITY, CAPACITY).unwrap();
    let worker = Channel::open_worker(&fd).unwrap();
    let (CallerEnd { calls: producer, .. }, WorkerEnd { calls: consumer, .. }) = (caller, worker);
    let view = consumer.view().clone();
    (producer, consumer, view)
}

fn taken(consumer: &mut Consumer) -> Option<(u64, Vec<u8>)> {
    consumer.next().unwrap().map(|frame| (frame.tag(), frame.bytes().to_vec()))
}

#[test]
fn parts_arrive_as_one_payload() {
    let (mut producer, mut consumer, _) = ring();
    producer.try_write(7, &[b"ab", b"", b"cde"]).unwrap();
    producer.try_write(8, &[]).unwrap();
    assert!(!consumer.is_empty());
    assert_eq!(consumer.pending_bytes(), 48);
    let frame = consumer.next().unwrap().unwrap();
    assert_eq!((frame.tag(), frame.bytes()), (7, &b"abcde"[..]));
    assert!((frame.bytes().as_ptr() as usize).is_multiple_of(16));
    frame.release();
    assert_eq!(taken(&mut consumer), Some((8, vec![])));
    assert_eq!(taken(&mut consumer), None);
    assert!(consumer.is_empty());
    assert_eq!(producer.free_bytes(), Ok(CAPACITY));
}

#[test]
fn the_largest_frame_always_fits_an_empty_ring() {
    let (mut producer, mut consumer, _) = ring();
    let most = producer.frame_bytes_max();
    assert_eq!(most, CAPACITY / 2 - HEADER_BYTES);
    let large = vec![5; most];
    for step in 0..CAPACITY / 16 {
        producer.try_write(1, &[b"small"]).unwrap();
        assert_eq!(taken(&mut consumer), Some((1, b"small".to_vec())));
        producer.try_write(step as u64, &[&large]).unwrap();
        assert_eq!(taken(&mut consumer), Some((step as u64, large.clone())));
    }
    assert_eq!(
        producer.try_write(0, &[&large, b"x"]),
        Err(WriteError::FrameTooLarge { bytes: most + 1, bytes_max: most })
    );
}

#[test]
fn a_full_ring_takes_frames_again_once_some_are_released() {
    let (mut producer, mut consumer, _) = ring();
    let mut written = 0;
    while producer.try_write(written, &[&[0; 48]]).is_ok() {
        written += 1;
    }
    assert_eq!(written, CAPACITY as u64 / 64);
    let error = producer.try_write(0, &[]).unwrap_err();
    assert_eq!(error, WriteError::Full { needed: 16, free: 0 });
    assert!(error.is_retryable());
    taken(&mut consumer).unwrap();
    assert!(producer.try_write(written, &[&[0; 48]]).is_ok());
}

#[test]
fn a_taken_frame_is_not_revoked_and_a_revoked_one_not_taken() {
    let (mut producer, mut consumer, _) = ring();
    let first = producer.try_write(1, &[b"1"]).unwrap();
    let second = producer.try_write(2, &[b"2"]).unwrap();
    let third = producer.try_write(3, &[b"3"]).unwrap();
    let frame = consumer.next().unwrap().unwrap();
    assert!(producer.taken(first) && !producer.revoke(first), "held by the consumer");
    frame.release();
    assert!(producer.taken(first) && !producer.revoke(first), "released");
    assert!(producer.revoke(second) && !producer.revoke(second));
    assert!(!producer.taken(second) && !producer.taken(third));
    let third_only = [Unread { position: third, tag: 3 }];
    assert_eq!(producer.unread().unwrap(), third_only);
    assert_eq!(taken(&mut consumer), Some((3, b"3".to_vec())));
    assert_eq!(producer.unread().unwrap(), []);
}

#[test]
fn an_old_position_is_never_mistaken_for_a_new_frame() {
    let (mut producer, mut consumer, _) = ring();
    let old = producer.try_write(0, &[b"old"]).unwrap();
    taken(&mut consumer).unwrap();
    for tag in 1..=CAPACITY as u64 / 32 {
        producer.try_write(tag, &[b"new"]).unwrap();
        if tag < CAPACITY as u64 / 32 {
            taken(&mut consumer).unwrap();
        }
    }
    assert!(!producer.revoke(old));
    assert!(!producer.revoke(Position(u64::MAX)) && !producer.revoke(Position(8)));
    assert!(taken(&mut consumer).is_some());
}

#[test]
fn a_forgotten_guard_costs_its_frame_and_nothing_else() {
    let (mut producer, mut consumer, _) = ring();
    producer.try_write(1, &[b"1"]).unwrap();
    producer.try_write(2, &[b"2"]).unwrap();
    std::mem::forget(consumer.next().unwrap());
    assert_eq!(taken(&mut consumer), Some((2, b"2".to_vec())));
    assert_eq!(producer.free_bytes(), Ok(CAPACITY));
}

#[test]
fn an_impossible_tail_is_corrupt_for_the_producer() {
    let (mut producer, _consumer, view) = ring();
    let position = producer.try_write(1, &[&[0; 100]]).unwrap();
    for tail in [8, 256, u64::MAX - 15] {
        view.tail().store(tail, Ordering::Relaxed);
        assert!(producer.free_bytes().is_err(), "tail {tail}");
        assert!(producer.unread().is_err());
        assert!(!producer.revoke(position));
        assert!(Producer::attach(view.clone()).is_err());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Take,
    Revoke(usize),
    ReopenProducer,
    ReopenConsumer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..=CAPACITY / 2).prop_map(Step::Write),
        6 => (0..40_usize).prop_map(Step::Write),
        8 => Just(Step::Take),
        2 => any::<usize>().prop_map(Step::Revoke),
        1 => Just(Step::ReopenProducer),
        1 => Just(Step::ReopenConsumer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Against a queue: order, contents, and that a frame is taken XOR revoked.
    #[test]
    fn behaves_like_a_queue(steps in prop::collection::vec(step(), 1..200)) {
        let (mut producer, mut consumer, view) = ring();
        let mut queue: VecDeque<(u64, Position, Vec<u8>)> = VecDeque::new();
        let mut gone: Vec<Position> = Vec::new();
        for (tag, step) in steps.into_iter().enumerate() {
            let tag = tag as u64;
            match step {
                Step::Write(len) => {
                    let bytes: Vec<u8> = (0..len).map(|i| (i as u64 ^ tag) as u8).collect();
                    let (left, right) = bytes.split_at(len / 3);
                    match producer.try_write(tag, &[left, right]) {
                        Ok(position) => queue.push_back((tag, position, bytes)),
                        Err(WriteError::Full { needed, free }) => {
                            prop_assert!(needed > free);
                            // Revoked frames keep their room until the consumer passes.
                            prop_assert!(!consumer.is_empty());
                        }
                        Err(WriteError::FrameTooLarge { .. }) => {
                            prop_assert!(len > CAPACITY / 2 - HEADER_BYTES);
                        }
                        Err(WriteError::Corrupt(corrupt)) => panic!("{corrupt}"),
                    }
                }
                Step::Take => {
                    let expected = queue.pop_front();
                    gone.extend(expected.as_ref().map(|(_, position, _)| *position));
                    let expected = expected.map(|(tag, _, bytes)| (tag, bytes));
                    prop_assert_eq!(taken(&mut consumer), expected);
                }
                Step::Revoke(which) if !queue.is_empty() => {
                    let (_, position, _) = queue.remove(which % queue.len()).unwrap();
                    prop_assert!(!producer.taken(position));
                    prop_assert!(producer.revoke(position));
                    gone.push(position);
                }
                Step::Revoke(which) if !gone.is_empty() => {
                    prop_assert!(!producer.revoke(gone[which % gone.len()]));
                }
                Step::Revoke(_) => {}
                Step::ReopenProducer => producer = Producer::attach(view.clone()).unwrap(),
                Step::ReopenConsumer => consumer = Consumer::attach(view.clone()).unwrap(),
            }
            let unread = producer.unread().unwrap();
            let expected: Vec<_> =
                queue.iter().map(|&(tag, position, _)| Unread { position, tag }).collect();
            prop_assert_eq!(unread, expected);
            let free = producer.free_bytes().unwrap();
            prop_assert_eq!(free + consumer.pending_bytes(), CAPACITY);
        }
    }

    /// RING-4: whatever a peer scribbles over headers, head and tail, both ends answer with an
    /// error or with bytes inside the ring; they never panic, and they come to an end.
    #[test]
    fn nonsense_is_an_error(
        frames in prop::collection::vec(0..60_usize, 1..8),
        scribbles in prop::collection::vec((0..CAPACITY / 16, 0..16_usize, any::<u8>()), 0..12),
        states in prop::collection::vec((0..CAPACITY / 16, 0..6_u32), 0..4),
        head in prop::option::of(prop_oneof![any::<u64>(), (0..80_u64).prop_map(|n| n * 16)]),
        tail in prop::option::of(prop_oneof![any::<u64>(), (0..80_u64).prop_map(|n| n * 16)]),
    ) {
        let (mut producer, mut consumer, view) = ring();
        for len in frames {
            if producer.try_write(1, &[&vec![1; len]]).is_err() {
                break;
            }
        }
        for (unit, byte, value) in scribbles {
            let at = view.state(unit * 16).as_ptr().cast::<u8>();
            // SAFETY: inside the ring; this thread is the only one here.
            unsafe { at.add(byte).write(value) };
        }
        for (unit, state) in states {
            view.state(unit * 16).store(state, Ordering::Relaxed);
        }
        if let Some(head) = head {
            view.head().store(head, Ordering::Relaxed);
        }
        if let Some(tail) = tail {
            view.tail().store(tail, Ordering::Relaxed);
        }
        let bounded = |consumer: &mut Consumer| {
            for _ in 0..CAPACITY {
                match consumer.next() {
                    Ok(Some(frame)) => assert!(frame.bytes().len() <= CAPACITY),
                    Ok(None) | Err(_) => return,
                }
            }
            panic!("a ring of {CAPACITY} bytes yields frames for ever");
        };
        let _ = producer.unread();
        let _ = producer.try_write(2, &[&[2; 100]]);
        if let Ok(mut other) = Consumer::attach(view.clone()) {
            bounded(&mut other);
        }
        bounded(&mut consumer);
        let _ = Producer::attach(view).map(|mut producer| producer.unread().is_ok());
    }
}
