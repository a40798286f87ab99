#![allow(clippy::unwrap_used)]

use super::*;
use crate::segment::{ProcessSlot, Segment};
use crate::{SleepKind, Urgency, WriteError};

#[test]
fn calls_and_replies_go_both_ways() {
    let (mut caller, fd) = Channel::create(4096, 1024).unwrap();
    let mut worker = Channel::open_worker(&fd).unwrap();
    caller.calls.try_write(1, &[b"call"]).unwrap();
    let call = worker.calls.next().unwrap().unwrap();
    worker.replies.try_write(call.tag(), &[call.bytes(), b"ed"]).unwrap();
    call.release();
    let reply = caller.replies.next().unwrap().unwrap();
    assert_eq!((reply.tag(), reply.bytes()), (1, &b"called"[..]));
}

#[test]
fn a_dead_workers_replies_are_read_and_its_calls_accounted_for() {
    let (mut caller, fd) = Channel::create(4096, 4096).unwrap();
    let mut worker = Channel::open_worker(&fd).unwrap();
    for tag in 1..=4 {
        caller.calls.try_write(tag, &[b"call"]).unwrap();
    }
    worker.calls.next().unwrap().unwrap().release();
    worker.replies.try_write(1, &[b"done"]).unwrap();
    // Begun, neither released nor answered; then the worker dies.
    std::mem::forget(worker.calls.next().unwrap());
    drop(worker);

    // The caller's end as another process would find it.
    drop(caller);
    let mut caller = Channel::open_caller(&fd).unwrap();
    let reply = caller.replies.next().unwrap().unwrap();
    assert_eq!((reply.tag(), reply.bytes()), (1, &b"done"[..]));
    reply.release();
    assert!(caller.replies.next().unwrap().is_none());
    let never_begun: Vec<u64> =
        caller.calls.unread().unwrap().iter().map(|frame| frame.tag).collect();
    assert_eq!(never_begun, [3, 4]);

    // A successor begins with what was never begun.
    let mut successor = Channel::open_worker(&fd).unwrap();
    assert_eq!(successor.calls.next().unwrap().unwrap().tag(), 3);
}

#[test]
fn sizes_are_checked_before_anything_is_mapped() {
    for bytes in [0, 128, 257, RING_BYTES_MAX * 2] {
        assert!(matches!(
            Channel::create(bytes, 4096),
            Err(ChannelError::Map(MapError::BadSize { .. }))
        ));
    }
    let (_caller, fd) = Channel::create(4096, 4096).unwrap();
    let lying = Header::new(1 << 20, 4096);
    let page = Mapping::new(&fd, PAGE, Access::ReadWrite).unwrap();
    // SAFETY: our own file; nobody else looks at the header now.
    unsafe { page.at::<Header>(0).write(lying) };
    assert!(matches!(Channel::open_worker(&fd), Err(ChannelError::Map(MapError::TooShort { .. }))));
}

/// A worker on another mapping echoes under load, both sleeping on their bells when idle.
#[test]
fn a_stream_of_calls_comes_back_in_order() {
    const CALLS: u64 = 50_000;
    let (mut caller, fd) = Channel::create(4096, 4096).unwrap();
    let (segment, segment_fd) = Segment::create().unwrap();
    let [ours, theirs] = [1, 2].map(|index| ProcessSlot::new(index).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = Channel::open_worker(&fd).unwrap();
            let segment = Segment::open(&segment_fd).unwrap();
            let mut done = 0;
            while done < CALLS {
                let sleeper = segment.doorbell(theirs).prepare(SleepKind::Strict);
                let mut moved = 0;
                while let Some(call) = worker.calls.next().unwrap() {
                    match worker.replies.try_write(call.tag(), &[call.bytes()]) {
                        Ok(_) => call.release(),
                        Err(error) => panic!("replies are fewer than calls: {error}"),
                    }
                    moved += 1;
                    segment.doorbell(ours).ring(Urgency::Eager);
                }
                done += moved;
                if moved == 0 {
                    sleeper.sleep(None);
                }
            }
        });
        let (mut sent, mut received) = (0, 0);
        while received < CALLS {
            let sleeper = segment.doorbell(ours).prepare(SleepKind::Lenient);
            let mut moved = false;
            // Fewer in flight than a ring of replies holds.
            while sent < CALLS && sent - received < 30 {
                let bytes = sent.to_le_bytes();
                let parts: &[&[u8]] = &[&bytes, &bytes[..(sent % 8) as usize]];
                match caller.calls.try_write(sent, parts) {
                    Ok(_) => sent += 1,
                    Err(WriteError::Full { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
                moved = true;
            }
            if moved {
                segment.doorbell(theirs).ring(Urgency::Lazy);
            }
            while let Some(reply) = caller.replies.next().unwrap() {
                assert_eq!(reply.tag(), received);
                assert_eq!(reply.bytes()[..8], received.to_le_bytes());
                assert_eq!(reply.bytes().len(), 8 + (received % 8) as usize);
                received += 1;
                moved = true;
            }
            if !moved {
                sleeper.sleep(None);
            }
        }
    });
}
