//! Two carriers over TLS on one machine, with rings at both ends and deciders that let everything go at once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use hoplo_base::{FunctionId, JobId, ObjectId, ResourceSet, TaskId, limits};
use hoplo_core::control::NodeState;
use hoplo_net::name::Role;
use hoplo_net::poll::Poller;
use hoplo_shm::{Channel, SleepKind, Urgency, WriteError};
use hoplo_wire::call::{CALL_NAMES, CallHeader, CallKind, CallView, encode_trailer};
use hoplo_wire::node::DeathCause;
use hoplo_wire::reply::{ReplyHeader, ReplyKind, ReplyView, Returned, encode_returned};
use hoplo_wire::{Location, Value};

use super::bulk::NoBulk;
use super::*;

/// For what comes about at once on any machine.
const SOON: Duration = Duration::from_secs(60);

const NOWHERE: &str = "127.0.0.1:9";

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon, as far as calls go.
struct Side {
    number: NodeNumber,
    segment: Arc<Segment>,
    carrier: Carrier,
    /// Rung when there are words.
    poller: Poller<4>,
    wake: Bell,
    covers: u64,
    heard: Vec<Word>,
    passed: Vec<Passing>,
}

/// A process: where it is rung, and how it rings the carrier.
#[derive(Clone)]
struct Process {
    segment: Arc<Segment>,
    id: ProcessId,
    carrier: Bell,
}

struct Two {
    near: Side,
    far: Side,
    _folder: Folder,
}

fn number(at: u32) -> NodeNumber {
    let first = NodeNumber::first_given(0);
    if at == 0 { first } else { first.next_given() }
}

impl Side {
    fn start(folder: &std::path::Path, at: u32, bulk: Box<dyn Bulk>) -> Self {
        let ip = "127.0.0.1".parse().unwrap();
        let part = |cluster: &Cluster| Part::Member { ip, head: cluster.nodes[0].clone() };
        Self::start_as(folder, at, bulk, part)
    }

    fn start_as(
        folder: &std::path::Path,
        at: u32,
        bulk: Box<dyn Bulk>,
        part: impl FnOnce(&Cluster) -> Part,
    ) -> Self {
        let number = number(at);
        let name = format!("{:x}", number.number());
        let path = folder.join("cluster.json");
        let days = hoplo_net::authority::Validity::days(1);
        let own = folder.join(&name);
        Cluster::certify(&path, Role::Node, &name, days, Some(&own)).unwrap();
        let cluster = Cluster::load(&own.join("cluster.json")).unwrap();
        let (segment, _fd) = Segment::create().unwrap();
        let poller = Poller::new().unwrap();
        let wake = poller.bell(1).unwrap();
        let part = part(&cluster);
        let started =
            Carrier::start(&cluster, number, name, part, wake.clone(), Arc::clone(&segment), bulk);
        let carrier = started.unwrap().0;
        let (heard, passed) = (Vec::new(), Vec::new());
        Self { number, segment, carrier, poller, wake, covers: 0, heard, passed }
    }

    fn process(&self, slot: u16) -> Process {
        let id = ProcessId::new(self.number, u32::from(slot), slot);
        let (segment, carrier) = (Arc::clone(&self.segment), self.carrier.bell().clone());
        Process { segment, id, carrier }
    }

    fn row(&self, state: NodeState) -> Box<NodeEntry> {
        Box::new(NodeEntry {
            node: self.number,
            head: false,
            hostname: format!("{:x}", self.number.number()),
            resources: ResourceSet::new(),
            labels: Default::default(),
            store_bytes: 0,
            session_dir: String::new(),
            pid: 0,
            address: self.carrier.address().to_string(),
            state,
        })
    }

    /// Waits for the carrier, and lets go what it asks about.
    fn turn(&mut self, timeout: Duration) {
        let mut ready = Vec::new();
        self.carrier.ring();
        self.poller.wait(Some(timeout), &mut ready).unwrap();
        self.wake.silence();
        while let Some(word) = self.carrier.word() {
            match word {
                Word::Passing { ticket, frame } => {
                    let covered = frame.arrived.is_none() && !frame.named.is_empty();
                    self.covers += u64::from(covered);
                    let cover = if covered { self.covers } else { 0 };
                    self.carrier.tell(Told::Go { ticket, cover });
                    self.passed.push(frame);
                }
                Word::Fenced { .. } => {} // there is no head
                word => self.heard.push(word),
            }
        }
    }
}

impl Process {
    fn ring_carrier(&self) {
        self.segment.doorbell(slot()).ring_with(Urgency::Lazy, || self.carrier.ring());
    }

    /// Looks until `done`, and sleeps between looks when it has looked for long.
    fn wait_until(&self, mut done: impl FnMut() -> bool) -> bool {
        let bell = self.segment.doorbell(ProcessSlot::new(self.id.slot() as u32).unwrap());
        let start = Instant::now();
        let mut looked = Instant::now();
        while start.elapsed() < SOON {
            if done() {
                return true;
            }
            if looked.elapsed() < Duration::from_micros(50) {
                std::thread::yield_now();
                continue;
            }
            let sleeper = bell.prepare(SleepKind::Strict);
            if done() {
                return true;
            }
            sleeper.sleep(Some(Duration::from_millis(100)));
            looked = Instant::now();
        }
        false
    }
}

impl Two {
    fn new(name: &str) -> Self {
        Self::made(name, str::to_string, Box::new(NoBulk))
    }

    /// The near node finds the far one at another address.
    fn by_way_of(name: &str, way: impl FnOnce(&str) -> String) -> Self {
        Self::made(name, way, Box::new(NoBulk))
    }

    /// The near node hauls this.
    fn made(name: &str, way: impl FnOnce(&str) -> String, bulk: Box<dyn Bulk>) -> Self {
        let two = Self::strangers(name, way, bulk);
        two.near_is_known();
        two
    }

    /// The far node does not know of the near one.
    fn strangers(name: &str, way: impl FnOnce(&str) -> String, bulk: Box<dyn Bulk>) -> Self {
        let dir = std::env::temp_dir().join(format!("hoplo-carry-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        // Nobody listens there: the two only lack a head.
        Cluster::of_head(&dir, NOWHERE).unwrap();
        let (near, far) = (Side::start(&dir, 0, bulk), Side::start(&dir, 1, Box::new(NoBulk)));
        let mut there = far.row(NodeState::Alive);
        there.address = way(&there.address);
        near.carrier.tell(Told::Row { entry: there, version: 1, index: 1 });
        for side in [&near, &far] {
            let entry = side.row(NodeState::Alive);
            side.carrier.tell(Told::Row { entry, version: 1, index: 2 });
        }
        Self { near, far, _folder: Folder(dir) }
    }

    /// But not where it is: the far one dials in vain.
    fn near_is_known(&self) {
        let mut entry = self.near.row(NodeState::Alive);
        entry.address = NOWHERE.to_string();
        self.far.carrier.tell(Told::Row { entry, version: 1, index: 3 });
    }

    /// A caller's end and a worker's end, with the two carriers between.
    fn connect(&self, slot: u16) -> (Process, CallerEnd, Process, WorkerEnd) {
        let (caller, worker) = (self.near.process(slot), self.far.process(slot));
        let channel = || Channel::create(limits::RING_BYTES, limits::RING_BYTES).unwrap();
        let (callers, fd) = channel();
        let end = Channel::open_worker(&fd).unwrap();
        let (from, to) = (caller.id, worker.id);
        self.near.carrier.tell(Told::Caller { caller: from, worker: to, end });
        let (end, fd) = channel();
        self.far.carrier.tell(Told::Worker { caller: from, worker: to, end });
        (caller, callers, worker, Channel::open_worker(&fd).unwrap())
    }

    /// Both deciders, until `done`.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < SOON, "{:?} {:?}", self.near.heard, self.far.heard);
            self.near.turn(Duration::from_millis(1));
            self.far.turn(Duration::from_millis(1));
        }
    }
}

fn call(task: TaskId, args: &[u8], named: &[ObjectId]) -> Vec<u8> {
    let header = CallHeader {
        kind: CallKind::Task,
        flags: CALL_NAMES,
        returns: 1,
        task,
        attempt: 0,
        max_calls: 0,
        function: FunctionId([0; 16]),
        job: JobId(1),
    };
    let mut out = header.encode(0, args.len(), 0).to_vec();
    out.extend_from_slice(args);
    encode_trailer(named, &mut out);
    out
}

fn reply(seq: u64, value: Value, contains: &[ObjectId]) -> Vec<u8> {
    let kind = ReplyKind::Finished;
    let header =
        ReplyHeader { kind, flags: 0, attempt: 0, seq, started_ns: 0, ran_ns: 0, index: 0 };
    let mut out = header.encode(1).to_vec();
    encode_returned(&[Returned { value, contains: contains.to_vec() }], &mut out);
    out
}

/// Replies to every call with its own arguments, until it is to stop.
fn echo(worker: &Process, end: &mut WorkerEnd, stop: &AtomicBool) -> Vec<u64> {
    let mut taken = Vec::new();
    worker.wait_until(|| {
        let mut some = false;
        while let Some(frame) = end.calls.next().unwrap() {
            let (tag, bytes) = (frame.tag(), frame.bytes().to_vec());
            drop(frame);
            let view = CallView::parse(&bytes).unwrap();
            let bytes = reply(tag, Value::Inline(view.args.into()), &[]);
            loop {
                match end.replies.try_write(tag, &[&bytes]) {
                    Ok(_) => break,
                    Err(WriteError::Full { .. }) => {
                        worker.ring_carrier();
                        std::thread::yield_now();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            taken.push(tag);
            some = true;
        }
        if some {
            worker.ring_carrier();
        }
        stop.load(Ordering::Acquire)
    });
    taken
}

fn task(caller: &Process, seq: u64) -> TaskId {
    TaskId { owner: caller.id, seq }
}

/// Writes them one after the other, and takes replies meanwhile; the bytes of the values, by their order.
fn call_all(caller: &Process, end: &mut CallerEnd, frames: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    let (mut written, mut replies) = (0, Vec::new());
    let done = caller.wait_until(|| {
        let before = written;
        while written < frames.len() {
            match end.calls.try_write(written as u64 + 1, &[&frames[written]]) {
                Ok(_) => written += 1,
                Err(WriteError::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        if written > before {
            caller.ring_carrier();
        }
        while let Some(frame) = end.replies.next().unwrap() {
            let value = ReplyView::parse(frame.bytes()).unwrap().values().next().unwrap().unwrap();
            let bytes = match value.0.to_value() {
                Value::Inline(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            };
            replies.push((frame.tag(), bytes));
        }
        replies.len() == frames.len()
    });
    assert!(done, "{} of {} came back", replies.len(), frames.len());
    replies
}

#[test]
fn ten_thousand_calls_and_large_ones_arrive_once_and_in_order() {
    let mut two = Two::new("order");
    let (caller, mut callers, worker, mut workers) = two.connect(1);
    let frames: Vec<Vec<u8>> = (1..=10_000_u64)
        .map(|seq| {
            let len = if seq % 500 == 0 { 100_000 } else { (seq % 100) as usize };
            let mut args = seq.to_le_bytes().to_vec();
            args.resize(8 + len, seq as u8);
            // Some name refs, and pass the deciders.
            let named = if seq % 100 == 7 { vec![task(&caller, seq).object(3)] } else { vec![] };
            call(task(&caller, seq), &args, &named)
        })
        .collect();
    let (stop, frames_ref) = (AtomicBool::new(false), &frames);
    let (replies, taken) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| echo(&worker, &mut workers, &stop));
        let all = scope.spawn(move || call_all(&caller, &mut callers, frames_ref));
        two.until(|_| all.is_finished());
        stop.store(true, Ordering::Release);
        (all.join().unwrap(), worker.join().unwrap())
    });
    let order: Vec<u64> = (1..=10_000).collect();
    assert_eq!(taken, order);
    assert_eq!(replies.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), order);
    for (tag, bytes) in &replies {
        assert_eq!(bytes[..8], tag.to_le_bytes());
        assert!(bytes[8..].iter().all(|byte| *byte == *tag as u8));
    }
    // Each that names refs at both ends, and its last reply, which names none, where it leaves. Some of it deciders may not have read yet.
    two.until(|two| two.near.passed.len() >= 100 && two.far.passed.len() >= 200);
    for (side, ends) in [(&two.near, 0), (&two.far, 100)] {
        assert_eq!(side.passed.iter().filter(|frame| !frame.is_reply).count(), 100);
        assert_eq!(
            side.passed.iter().filter(|frame| frame.is_last && frame.is_reply).count(),
            ends
        );
        assert_eq!(side.passed.len(), 100 + ends);
        assert!(side.passed.iter().all(|frame| frame.is_reply == frame.named.is_empty()));
    }
    let arrived: Vec<u64> = two.far.passed.iter().filter_map(|frame| frame.arrived).collect();
    assert_eq!(arrived, (1..=100).collect::<Vec<u64>>());
}

/// Passes bytes between whoever connects and `to`, and breaks each of the first connections after so many bytes: where, how many
/// broke, and how many there were.
fn breaking(to: &str, after: &[usize]) -> (String, Arc<AtomicU32>, Arc<AtomicU32>) {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (to, mut after, broken) = (to.to_string(), after.to_vec(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&broken);
    let dials = Arc::new(AtomicU32::new(0));
    let dialled = Arc::clone(&dials);
    std::thread::spawn(move || {
        for ours in listener.incoming() {
            let (Ok(ours), Ok(theirs)) = (ours, TcpStream::connect(&to)) else { return };
            dialled.fetch_add(1, Ordering::AcqRel);
            let last = if after.is_empty() { usize::MAX } else { after.remove(0) };
            let ways =
                [(ours.try_clone(), theirs.try_clone(), last), (Ok(theirs), Ok(ours), usize::MAX)];
            for (from, into, mut left) in ways {
                let (mut from, mut into, count) =
                    (from.unwrap(), into.unwrap(), Arc::clone(&count));
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
                        let passed = bytes.min(left);
                        left -= passed;
                        if into.write_all(&buffer[..passed]).is_err() {
                            break;
                        }
                        if left == 0 {
                            count.fetch_add(1, Ordering::AcqRel);
                            break;
                        }
                    }
                    let _ = from.shutdown(Shutdown::Both);
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, broken, dials)
}

#[test]
fn a_connection_that_breaks_costs_no_call() {
    let mut breaks = None;
    let mut two = Two::by_way_of("broken", |address| {
        let (address, broken, _) = breaking(address, &[20_000, 50_003, 9_999, 30_001]);
        breaks = Some(broken);
        address
    });
    let (caller, mut callers, worker, mut workers) = two.connect(1);
    let calls = 3_000;
    let frames = (1..=calls).map(|seq| {
        let named = if seq % 100 == 7 { vec![task(&caller, seq).object(3)] } else { vec![] };
        call(task(&caller, seq), &seq.to_le_bytes(), &named)
    });
    let (stop, frames) = (AtomicBool::new(false), &frames.collect::<Vec<_>>());
    let (replies, taken) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| echo(&worker, &mut workers, &stop));
        let all = scope.spawn(move || call_all(&caller, &mut callers, frames));
        two.until(|_| all.is_finished());
        stop.store(true, Ordering::Release);
        (all.join().unwrap(), worker.join().unwrap())
    });
    let order: Vec<u64> = (1..=calls).collect();
    assert_eq!(taken, order);
    assert_eq!(replies.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), order);
    assert_eq!(breaks.unwrap().load(Ordering::Acquire), 4);
}

/// The bytes that they take in a ring: each has a header of 16 bytes, and begins at a multiple of 16.
fn write_calls(caller: &Process, end: &mut CallerEnd, seqs: impl Iterator<Item = u64>) -> usize {
    let mut bytes = 0;
    for seq in seqs {
        let named = if seq % 2 == 0 { vec![task(caller, seq).object(1)] } else { vec![] };
        let frame = call(task(caller, seq), b"", &named);
        end.calls.try_write(seq, &[&frame]).unwrap();
        bytes += 16 + frame.len().next_multiple_of(16);
    }
    caller.ring_carrier();
    bytes
}

#[test]
fn a_call_that_was_taken_back_never_runs_and_one_that_began_is_kept() {
    let mut two = Two::new("revoke");
    let (caller, mut callers, _worker, mut workers) = two.connect(1);
    let bytes = write_calls(&caller, &mut callers, 1..=4);
    two.until(|_| workers.calls.pending_bytes() == bytes);
    assert_eq!(workers.calls.next().unwrap().unwrap().tag(), 1);
    let ids = |two: &Two| (two.near.process(1).id, two.far.process(1).id);
    let (from, to) = ids(&two);
    let seqs = vec![1, 3, 4];
    two.near.carrier.tell(Told::RevokeFar { caller: from, worker: to, seqs });
    let revoked = Word::Revoked { caller: from, worker: to, seqs: vec![3, 4], kept: vec![1] };
    two.until(|two| two.near.heard.contains(&revoked));
    assert_eq!(workers.calls.next().unwrap().unwrap().tag(), 2);
    assert!(workers.calls.next().unwrap().is_none());
    // The end of the one that had named refs was told where the worker is, and names none itself.
    let ended = |side: &Side| side.passed.iter().any(|it| it.tag == 4 && it.is_reply && it.is_last);
    assert!(ended(&two.far) && !ended(&two.near));
}

#[test]
fn a_worker_that_dies_leaves_its_replies_and_what_it_never_took() {
    let mut two = Two::new("gone");
    let (caller, mut callers, worker, mut workers) = two.connect(1);
    let bytes = write_calls(&caller, &mut callers, 1..=5);
    two.until(|_| workers.calls.pending_bytes() == bytes);
    for _ in 0..2 {
        workers.calls.next().unwrap().unwrap();
    }
    let place = Location { slot: 3, generation: 1, offset: 64, len: 5 };
    workers.replies.try_write(1, &[&reply(1, Value::Stored(place), &[])]).unwrap();
    let cause = DeathCause::Signaled { signal: 9 };
    let obituary = Obituary { pid: 7, cause, last_lines: vec!["bye".to_string()] };
    let (from, to) = (caller.id, worker.id);
    let told = obituary.clone();
    two.far.carrier.tell(Told::WorkerGone { caller: from, worker: to, obituary: told });
    let ended = Word::Ended { caller: from, worker: to, unstarted: vec![3, 4, 5], obituary };
    two.until(|two| two.near.heard.contains(&ended));
    // What is stored there is no place here.
    let frame = callers.replies.next().unwrap().unwrap();
    let view = ReplyView::parse(frame.bytes()).unwrap();
    let value = view.values().next().unwrap().unwrap().0.to_value();
    assert_eq!(value, Value::Stored(Location::elsewhere(to.node(), place.len)));
    let named = vec![task(&caller, 1).object(0)];
    assert!(two.near.passed.iter().any(|it| it.is_reply && it.named == named));
}

#[test]
fn a_sweep_hears_what_lies_in_rings() {
    let mut two = Two::new("drain");
    let (caller, mut callers, _worker, _workers) = two.connect(1);
    // Nobody rings.
    let named = vec![task(&caller, 1).object(1)];
    callers.calls.try_write(1, &[&call(task(&caller, 1), b"", &named)]).unwrap();
    two.near.carrier.tell(Told::Drain { n: 4 });
    two.until(|two| two.near.heard.contains(&Word::Drained { n: 4 }));
    assert_eq!(two.near.passed.len(), 1);
}

/// Has something new each time that it was asked, and rings for it.
struct RingsAgain {
    bell: Arc<Mutex<Option<Bell>>>,
    asked: Arc<AtomicU32>,
}

impl Bulk for RingsAgain {
    fn lands(&mut self, _: NodeNumber, _: u64, _: u64, _: &[u8]) {}

    fn arrived(&mut self, _: NodeNumber, _: bulk::Landed) {}

    fn expects(&self) -> bool {
        false
    }

    fn begun(&mut self) -> Vec<bulk::Begun> {
        Vec::new()
    }

    fn waiting(&mut self) -> Vec<NodeNumber> {
        if let Some(bell) = &*lock(&self.bell) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            bell.ring();
        }
        Vec::new()
    }

    fn next(&mut self, _: NodeNumber) -> Option<bulk::Piece> {
        None
    }

    fn lost(&mut self, _: NodeNumber) {}
}

/// It was heard and forgotten, and the next timer woke the carrier: 20 ms later, as long as a link was in use.
#[test]
fn a_ring_for_the_haul_is_not_lost_while_the_carrier_looks() {
    const RINGS: u32 = 10_000;
    let (bell, asked) = (Arc::default(), Arc::default());
    let bulk = RingsAgain { bell: Arc::clone(&bell), asked: Arc::clone(&asked) };
    let mut two = Two::made("rings", str::to_string, Box::new(bulk));
    // Only who has callers looks before it sleeps.
    let _ends = two.connect(1);
    *lock(&bell) = Some(two.near.carrier.bell().clone());
    two.near.carrier.bell().ring();
    two.until(|_| asked.load(Ordering::Relaxed) > RINGS);
}

#[test]
fn what_deciders_say_arrives_whole_and_in_order_before_a_death_is_told() {
    let mut two = Two::new("peers");
    let far = two.far.number;
    let long = Peer::NoBytes { ticket: 1, why: "x".repeat(1 << 20) };
    for cover in 1..=3 {
        let message =
            Box::new(if cover == 2 { long.clone() } else { Peer::Enough { ticket: cover } });
        two.near.carrier.tell(Told::SendPeer { to: far, cover, message });
    }
    let peers = |side: &Side| {
        let covers = side.heard.iter().filter_map(|word| match word {
            Word::Peer { cover, message, .. } => Some((*cover, (**message).clone())),
            _ => None,
        });
        covers.collect::<Vec<_>>()
    };
    two.until(|two| peers(&two.far).len() == 3);
    let wanted = vec![(1, Peer::Enough { ticket: 1 }), (2, long), (3, Peer::Enough { ticket: 3 })];
    assert_eq!(peers(&two.far), wanted);
    // The far node dies, and with it what was to be called there.
    let (caller, mut callers, worker, _workers) = two.connect(1);
    let entry = two.far.row(NodeState::dead("it is gone"));
    two.near.carrier.tell(Told::Row { entry: entry.clone(), version: 2, index: 9 });
    let ended = |word: &Word| {
        matches!(word, Word::Ended { caller: it, worker: of, obituary, .. }
        if *it == caller.id && *of == worker.id && obituary.headline().contains("it is gone"))
    };
    let member = Word::Member { entry, index: 9 };
    two.until(|two| two.near.heard.contains(&member));
    let at = two.near.heard.iter().position(ended).expect("its end was told");
    assert!(at < two.near.heard.iter().position(|word| *word == member).unwrap());
    let _ = callers.calls.try_write(1, &[b"nobody takes it"]);
}

/// The decider does not answer whom it does not know: a name that was asked for was not given.
#[test]
fn a_node_is_not_heard_before_its_row_has_come() {
    let mut dials = None;
    let by_way_of = |address: &str| {
        let (address, _, dialled) = breaking(address, &[]);
        dials = Some(dialled);
        address
    };
    let mut two = Two::strangers("row", by_way_of, Box::new(NoBulk));
    let dials = dials.unwrap();
    let (to, message) = (two.far.number, Box::new(Peer::Enough { ticket: 1 }));
    two.near.carrier.tell(Told::SendPeer { to, cover: 1, message });
    let heard = |two: &Two, what: fn(&Word) -> bool| two.far.heard.iter().position(what);
    let peer = |word: &Word| matches!(word, Word::Peer { .. });
    two.until(|two| dials.load(Ordering::Acquire) > 1 || heard(two, peer).is_some());
    assert_eq!(heard(&two, peer), None);
    two.near_is_known();
    two.until(|two| heard(two, peer).is_some());
    let row = heard(&two, |word| matches!(word, Word::Member { index: 3, .. }));
    assert!(row < heard(&two, peer), "{:?}", two.far.heard);
}

/// The kernel ends what a killed process has open one after the other: its port may take a probe, which ends then, and refuse the next one.
#[test]
fn a_probe_that_ends_without_a_word_is_made_again_at_once() {
    let dir = std::env::temp_dir().join(format!("hoplo-carry-{}-probed", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    Cluster::of_head(&dir, NOWHERE).unwrap();
    let _folder = Folder(dir.clone());
    let judge = |_: &Cluster| Part::Judge { address: NOWHERE.to_string(), seeks: false };
    let mut head = Side::start_as(&dir, 0, Box::new(NoBulk), judge);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    let entry = NodeEntry { node: number(1), address, ..*head.row(NodeState::Alive) };
    head.carrier.tell(Told::Row { entry: Box::new(entry), version: 1, index: 1 });
    // Another probe is made no sooner than that.
    let at_once = limits::MEMBER_PROBES_AGAIN;
    let ends = std::thread::spawn(move || {
        let mut dialled = None::<Instant>;
        loop {
            drop(port.accept().unwrap());
            if dialled.replace(Instant::now()).is_some_and(|before| before.elapsed() < at_once) {
                return;
            }
        }
    });
    let mut verdict = None;
    let start = Instant::now();
    while verdict.is_none() && start.elapsed() < SOON {
        head.turn(Duration::from_millis(100));
        for word in std::mem::take(&mut head.heard) {
            if let Word::Verdict { ticket, why, .. } = word {
                verdict = ends.is_finished().then(|| why.to_string());
                // It was silent, in a test that got no CPU: it is judged again.
                head.carrier.tell(Told::NoVerdict { ticket });
            }
        }
    }
    let why = verdict.expect("it is probed again at once");
    assert!(why.contains("nobody listens at its address"), "{why}");
}

#[test]
fn how_fast() {
    let mut two = Two::new("fast");
    let (caller, mut callers, worker, mut workers) = two.connect(1);
    let (stop, rounds) =
        (AtomicBool::new(false), if cfg!(debug_assertions) { 200 } else { 20_000 });
    let many = if cfg!(debug_assertions) { 2_000 } else { 500_000 };
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&worker, &mut workers, &stop));
        let (done, worker_stops) = (&done, &stop);
        scope.spawn(move || {
            let one = call(task(&caller, 1), b"x", &[]);
            call_all(&caller, &mut callers, std::slice::from_ref(&one));
            let mut times = Vec::new();
            for _ in 0..rounds {
                let start = Instant::now();
                call_all(&caller, &mut callers, std::slice::from_ref(&one));
                times.push(start.elapsed());
            }
            times.sort_unstable();
            let (median, high) = (times[times.len() / 2], times[times.len() * 9 / 10]);
            println!("one at a time: median {median:?}, nine of ten within {high:?}");
            let frames = vec![one; many];
            let start = Instant::now();
            call_all(&caller, &mut callers, &frames);
            let rate = many as f64 / start.elapsed().as_secs_f64();
            println!("pipelined: {rate:.0} calls a second");
            done.store(1, Ordering::Release);
            worker_stops.store(true, Ordering::Release);
        });
        two.until(|_| done.load(Ordering::Acquire) == 1 || stop.load(Ordering::Acquire));
    });
}
