//! As much of a daemon as a driver, a worker and an actor need to call each other: it greets, grants the
//! worker as the one lease, says where the actor lives, joins who asks for it, grants room, and is deaf to
//! the rest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use hoplo_base::{JobId, LeaseId, NodeNumber, ProcessId, ResourceSet};
use hoplo_client::{Client, Hooks, RunningCall};
use hoplo_folders::Wait;
use hoplo_shm::{Arena, Segment, fds};
use hoplo_wire::node::{ActorState, JobConfig, Role, ToClient, ToNode, Welcome, decode, encode};

pub const DRIVER: ProcessId = ProcessId(1 << 40 | 1 << 16 | 1);
pub const WORKER: ProcessId = ProcessId(1 << 40 | 2 << 16 | 2);
pub const ACTOR: ProcessId = ProcessId(1 << 40 | 3 << 16 | 3);
const PROCESSES: [ProcessId; 3] = [DRIVER, WORKER, ACTOR];
const ARENA_BYTES: u64 = 64 << 20;

/// The driver, the worker and the actor, all in this process.
pub fn clients() -> [Arc<Client>; 3] {
    let (_, segment) = Segment::create().unwrap();
    let arena = Arena::create(ARENA_BYTES).unwrap();
    let pairs = PROCESSES.map(|_| fds::socketpair().unwrap());
    let (theirs, sockets): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
    let node = Arc::new(Node { sockets, room: Mutex::new(0) });
    for process in PROCESSES {
        let (node, segment, arena) = (node.clone(), segment.try_clone().unwrap(), arena.clone());
        std::thread::spawn(move || node.serve(process, &segment, &arena));
    }
    let mut theirs = theirs.into_iter();
    PROCESSES.map(|process| {
        let is_driver = process == DRIVER;
        let role = if is_driver { Role::Driver } else { Role::Worker };
        let job = is_driver.then(JobConfig::default);
        let (hooks, mut wait) = (Box::new(NoHooks), Wait::for_ever());
        Client::connect(theirs.next().unwrap(), role, job, hooks, &mut wait).unwrap()
    })
}

struct Node {
    /// In the order of `PROCESSES`.
    sockets: Vec<OwnedFd>,
    /// What is granted of the arena, bytes.
    room: Mutex<u64>,
}

impl Node {
    fn serve(&self, process: ProcessId, segment: &OwnedFd, arena: &Arena) {
        let (mut buffer, mut filled) = (vec![0; 1 << 20], 0);
        let mut descriptors = Vec::new();
        loop {
            let received = fds::receive(self.socket(process), &mut buffer[filled..]).unwrap();
            if received.bytes == 0 {
                return;
            }
            filled += received.bytes;
            descriptors.extend(received.fds);
            let mut read = 0;
            while let Some((len, rest)) = buffer[read..filled].split_first_chunk::<4>() {
                let Some(body) = rest.get(..u32::from_le_bytes(*len) as usize) else { break };
                self.answer(process, decode(body).unwrap(), &mut descriptors, segment, arena);
                read += 4 + body.len();
            }
            buffer.copy_within(read..filled, 0);
            filled -= read;
        }
    }

    fn answer(
        &self,
        process: ProcessId,
        message: ToNode,
        descriptors: &mut Vec<OwnedFd>,
        segment: &OwnedFd,
        arena: &Arena,
    ) {
        match message {
            ToNode::Hello { .. } => {
                let welcome = ToClient::Welcome(Welcome {
                    process,
                    node: NodeNumber::alone(1),
                    job: JobId(1),
                    arena_bytes: ARENA_BYTES,
                    session_dir: String::new(),
                    config: JobConfig::default(),
                    slots: Vec::new(),
                    resources: ResourceSet::new(),
                });
                // Any file does for that of spilled objects: nothing is read from it.
                let with = [segment.as_fd(), arena.as_fd(), segment.as_fd()];
                self.say(process, &welcome, &with);
            }
            ToNode::LeaseDemand { key, wanted, .. } if wanted > 0 => {
                let lease = LeaseId(u64::from(key));
                let granted = ToClient::LeaseGranted { lease, key, worker: WORKER, gpus: vec![] };
                self.say(process, &granted, &[]);
            }
            ToNode::ActorWatch { actor } => {
                let state = ActorState::Alive { incarnation: 0, worker: ACTOR };
                self.say(process, &ToClient::ActorState { actor, state }, &[]);
            }
            ToNode::Connect { to } => {
                let channel = descriptors.remove(0);
                self.say(to, &ToClient::Connected { from: process }, &[channel.as_fd()]);
            }
            ToNode::ExtentWant { request, bytes, slots } => {
                let len = bytes.max(1 << 20);
                let mut room = self.room.lock().unwrap();
                let offset = *room;
                *room += len;
                let slots = (1..=slots).collect();
                self.say(process, &ToClient::ExtentGranted { request, offset, len, slots }, &[]);
            }
            _ => {}
        }
    }

    fn say(&self, process: ProcessId, message: &ToClient, with: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        let sent = fds::send(self.socket(process), &bytes, with).unwrap();
        assert_eq!(sent, bytes.len(), "a short message to a peer that reads");
    }

    fn socket(&self, process: ProcessId) -> &OwnedFd {
        &self.sockets[process.count() as usize - 1]
    }
}

struct NoHooks;

impl Hooks for NoHooks {
    fn output(&self, _: u32, _: &str, _: bool, _: &[String]) {}

    fn cancel(&self, _: hoplo_base::TaskId) {}

    fn warn(&self, line: &str) {
        panic!("{line}");
    }

    fn exit(&self, reason: &str) {
        panic!("{reason}");
    }

    fn running(&self) -> Vec<RunningCall> {
        Vec::new()
    }
}
