//! Who finds a ring corrupt says so, and its callers hear why the worker behind it ended. They waited for ever.
#![allow(clippy::unwrap_used)]

mod daemon;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hoplo_base::{LeaseId, ObjectId, ProcessId, ResourceSet, limits};
use hoplo_client::{Call, Client, Content, IncomingCall, Waited, Work};
use hoplo_wire::call::CallView;
use hoplo_wire::node::{DeathCause, Obituary, ToClient, ToNode};
use hoplo_wire::reply::{ReplyHeader, ReplyKind, Returned};
use hoplo_wire::{FailureKind, Value};

use daemon::{Daemon, process};

const DRIVER: ProcessId = process(1);
const WORKER: ProcessId = process(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// Offsets in a channel's file, as `hoplo_shm::Channel` says.
const MAGIC: u64 = 0;
const REPLIES_TAIL: u64 = 512;
const CALLS: u64 = 4096;
const REPLIES: u64 = CALLS + limits::RING_BYTES as u64;

/// State of a frame that nobody took.
const READY: [u8; 4] = 1_u32.to_le_bytes();

/// What the daemon saw.
#[derive(Default)]
struct Seen {
    granted: bool,
    channel: Option<File>,
    /// Who said that whose channel is broken.
    broken: Vec<(ProcessId, ProcessId)>,
}

struct Story {
    driver: Arc<Client>,
    worker: Arc<Client>,
    seen: Arc<Mutex<Seen>>,
}

impl Story {
    /// `join` sees the channel before the worker does.
    fn new(join: fn(&File)) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let sees = seen.clone();
        let answer = move |daemon: &Daemon, from, message, descriptors: &mut Vec<OwnedFd>| {
            let mut seen = sees.lock().unwrap();
            match message {
                ToNode::LeaseDemand { key, wanted, .. } if wanted > 0 && !seen.granted => {
                    seen.granted = true;
                    let (lease, worker, gpus) = (LeaseId(u64::from(key)), WORKER, vec![]);
                    let granted = ToClient::LeaseGranted { lease, key, worker, gpus };
                    daemon.say(from, &granted, &[]);
                }
                ToNode::Connect { to } => {
                    let channel = File::from(descriptors.remove(0));
                    join(&channel);
                    daemon.say(to, &ToClient::Connected { from }, &[channel.as_fd()]);
                    seen.channel = Some(channel);
                }
                ToNode::ChannelBroken { worker, why } => {
                    seen.broken.push((from, worker));
                    let cause = DeathCause::Stopped { reason: why.to_string() };
                    let obituary = Obituary { pid: 7, cause, last_lines: vec![] };
                    let gone =
                        ToClient::ProcessGone { process: worker, obituary, unstarted: vec![] };
                    daemon.say(DRIVER, &gone, &[]);
                }
                _ => {}
            }
        };
        let [(driver, _), (worker, _)] = daemon::clients(|_| {}, answer);
        Self { driver, worker, seen }
    }

    /// The result of a call that may run once.
    fn call(&self) -> ObjectId {
        let options = daemon::call_options(ResourceSet::new(), 0);
        let call = Call { options, args: vec![], refs: vec![], nested: vec![], packed: false };
        self.driver.submit(call, None).object(0)
    }

    fn worker_takes(&self) -> IncomingCall {
        let Work::Call(call) = self.worker.wait_work() else { panic!("a call comes") };
        call
    }

    fn worker_replies(&self, call: &IncomingCall, bytes: usize) {
        let header = CallView::parse(&call.frame).unwrap().header;
        let reply = ReplyHeader {
            kind: ReplyKind::Finished,
            flags: 0,
            attempt: header.attempt,
            seq: call.tag,
            started_ns: 1,
            ran_ns: 100,
            index: 0,
        };
        let value = Value::Inline(vec![7; bytes].into());
        self.worker.reply(DRIVER, header.task, reply, &[Returned { value, contains: vec![] }]);
    }

    fn scribble(&self, offset: u64) {
        self.seen.lock().unwrap().channel.as_ref().unwrap().write_all_at(&[99; 8], offset).unwrap();
    }

    fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.seen.lock().unwrap()) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }

    /// Why it failed.
    fn failure(&self, object: ObjectId) -> String {
        let (ended, end) = sync_channel(1);
        let driver = self.driver.clone();
        std::thread::spawn(move || {
            while driver.wait(&[object], 1, None) != Waited::Ready {}
            ended.send(driver.read(object)).unwrap();
        });
        match end.recv_timeout(PATIENCE).expect("the wait ends") {
            Some(Content::Failed(failure)) if failure.kind == FailureKind::WorkerCrashed => {
                failure.text()
            }
            _ => panic!("it has no value, and its worker is gone"),
        }
    }

    fn is_told_once_by(&self, who: ProcessId) {
        self.until("somebody says so", |seen| !seen.broken.is_empty());
        assert_eq!(self.seen.lock().unwrap().broken, [(who, WORKER)]);
        for client in [&self.driver, &self.worker] {
            client.close();
        }
        assert_eq!(self.seen.lock().unwrap().broken, [(who, WORKER)]);
    }
}

#[test]
fn a_worker_that_found_a_corrupt_call_left_its_caller_waiting() {
    let story = Story::new(|_| {});
    let object = story.call();
    story.until("the call lies in the ring", |seen| {
        let mut state = [0; 4];
        let channel = seen.channel.as_ref();
        channel.is_some_and(|it| it.read_exact_at(&mut state, CALLS).is_ok() && state == READY)
    });
    story.scribble(CALLS);
    let deadline = Instant::now() + PATIENCE;
    while story.seen.lock().unwrap().broken.is_empty() {
        assert!(story.worker.next_work().is_none() && Instant::now() < deadline);
        std::thread::yield_now(); // the worker may not have heard of the channel yet
    }
    let text = story.failure(object);
    assert!(text.contains("cannot be read: ring is corrupt"), "{text}");
    story.is_told_once_by(WORKER);
}

#[test]
fn a_worker_that_could_not_reply_into_a_corrupt_ring_left_its_caller_waiting() {
    let story = Story::new(|_| {});
    let replies = |bytes: usize| {
        let object = story.call();
        story.worker_replies(&story.worker_takes(), bytes);
        object
    };
    // They leave no room for a third, unless the caller has read them.
    for object in [(); 2].map(|()| replies(limits::INLINE_BYTES_MAX)) {
        while story.driver.wait(&[object], 1, None) != Waited::Ready {}
    }
    story.scribble(REPLIES_TAIL);
    let object = replies(limits::INLINE_BYTES_MAX);
    let text = story.failure(object);
    assert!(text.contains("cannot be written: ring is corrupt"), "{text}");
    story.is_told_once_by(WORKER);
}

#[test]
fn a_worker_that_could_not_open_a_channel_left_its_caller_waiting() {
    let story = Story::new(|channel| channel.write_all_at(&[99; 8], MAGIC).unwrap());
    let object = story.call();
    story.is_told_once_by(WORKER);
    // It was not begun: it waited for another worker, and there is none here.
    assert!(matches!(story.driver.read(object), Some(Content::Failed(_))));
}

#[test]
fn a_caller_that_found_a_corrupt_reply_says_so_once() {
    let story = Story::new(|_| {});
    let object = story.call();
    let call = story.worker_takes();
    story.worker_replies(&call, 8);
    story.scribble(REPLIES);
    let text = story.failure(object);
    assert!(text.contains("cannot be read: ring is corrupt"), "{text}");
    story.is_told_once_by(DRIVER);
}

#[test]
fn a_call_whose_channel_no_worker_could_open_was_placed_in_new_ones_for_ever() {
    let granted = Arc::new(Mutex::new(0));
    let grants = granted.clone();
    let answer = move |daemon: &Daemon, from, message, _: &mut Vec<OwnedFd>| match message {
        ToNode::LeaseDemand { key, wanted, .. } if wanted > 0 => {
            let mut granted = grants.lock().unwrap();
            *granted += 1;
            let (lease, worker, gpus) = (LeaseId(*granted), process(10 + *granted), vec![]);
            daemon.say(from, &ToClient::LeaseGranted { lease, key, worker, gpus }, &[]);
        }
        ToNode::Connect { to } => {
            let reason = "it cannot open the channel: raise the limit".to_string();
            let cause = DeathCause::Stopped { reason };
            let obituary = Obituary { pid: 7, cause, last_lines: vec![] };
            daemon.say(
                from,
                &ToClient::ProcessGone { process: to, obituary, unstarted: vec![] },
                &[],
            );
        }
        _ => {}
    };
    let [(driver, _), (worker, _)] = daemon::clients(|_| {}, answer);
    let story = Story { driver, worker, seen: Arc::default() };
    let object = story.call();
    let text = story.failure(object);
    let workers = u64::from(limits::WORKERS_UNTAKEN_MAX) + 1;
    assert!(text.contains(&format!("{workers} workers in a row died")), "{text}");
    assert!(text.contains("raise the limit"), "{text}");
    assert_eq!(*granted.lock().unwrap(), workers);
    for client in [&story.driver, &story.worker] {
        client.close();
    }
}
