//! The least of a daemon, in this process: it greets its clients, and hands what else they say to whoever plays the rest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hoplo_base::{FunctionId, JobId, NodeNumber, ProcessId, ResourceSet, TaskId};
use hoplo_client::{CallOptions, Client, Hooks, RunningCall};
use hoplo_folders::Wait;
use hoplo_shm::{Arena, Segment, fds};
use hoplo_wire::node::{JobConfig, Role, Shape, ToClient, ToNode, Welcome, decode, encode};

const ARENA_BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// The one in slot `number`, counted from 1: a driver; those above it are workers.
pub const fn process(number: u64) -> ProcessId {
    ProcessId(1 << 40 | number << 16 | number)
}

/// Of calls of one function with one result, as programs make them.
pub fn call_options(resources: ResourceSet, max_retries: i32) -> Arc<CallOptions> {
    Arc::new(CallOptions {
        function: FunctionId([1; 16]),
        name: Arc::from("f"),
        shape: Arc::new(Shape::of(resources)),
        returns: 1,
        flags: 0,
        max_retries,
        max_calls: 0,
        job: None,
        stream_ahead: 0,
        max_pending_calls: 0,
        remembered: true,
        near_first: false,
        may_be_overtaken: false,
    })
}

#[derive(Debug)]
pub struct Daemon {
    /// Of `process(1)` and so on.
    sockets: Vec<OwnedFd>,
    segment: OwnedFd,
    arena: Arc<Arena>,
}

/// A driver and workers, each with the thread that serves it until it hangs up. `told` hears what clients tell their
/// users; `answer` gets what was said by whom, with the descriptors that came and were not taken yet.
pub fn clients<const N: usize>(
    told: fn(&str),
    answer: impl Fn(&Daemon, ProcessId, ToNode, &mut Vec<OwnedFd>) + Clone + Send + 'static,
) -> [(Arc<Client>, JoinHandle<()>); N] {
    let (_, segment) = Segment::create().unwrap();
    let pairs = [(); N].map(|()| fds::socketpair().unwrap());
    let (theirs, sockets): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
    let arena = Arena::create(ARENA_BYTES).unwrap();
    let daemon = Arc::new(Daemon { sockets, segment, arena });
    let mut theirs = theirs.into_iter();
    std::array::from_fn(|at| {
        let (daemon, answer, from) = (daemon.clone(), answer.clone(), process(at as u64 + 1));
        let serves = std::thread::spawn(move || daemon.serve(from, &answer));
        let role = if at == 0 { Role::Driver } else { Role::Worker };
        let job = (role == Role::Driver).then(JobConfig::default);
        let (hooks, mut wait) = (Box::new(Told(told)), Wait::at_most(PATIENCE));
        let socket = theirs.next().expect("one for each");
        (Client::connect(socket, role, job, hooks, &mut wait).unwrap(), serves)
    })
}

impl Daemon {
    fn serve(
        &self,
        from: ProcessId,
        answer: &impl Fn(&Daemon, ProcessId, ToNode, &mut Vec<OwnedFd>),
    ) {
        let (mut buffer, mut filled) = (vec![0; 1 << 20], 0);
        let mut descriptors = Vec::new();
        // A client that ends with words of ours unread makes an error of it.
        while let Ok(received) = fds::receive(self.socket(from), &mut buffer[filled..])
            && received.bytes > 0
        {
            filled += received.bytes;
            descriptors.extend(received.fds);
            let mut read = 0;
            while let Some((len, rest)) = buffer[read..filled].split_first_chunk::<4>() {
                let Some(body) = rest.get(..u32::from_le_bytes(*len) as usize) else { break };
                match decode(body).unwrap() {
                    ToNode::Hello { .. } => self.greet(from),
                    message => answer(self, from, message, &mut descriptors),
                }
                read += 4 + body.len();
            }
            buffer.copy_within(read..filled, 0);
            filled -= read;
        }
    }

    fn greet(&self, process: ProcessId) {
        let welcome = ToClient::Welcome(Box::new(Welcome {
            process,
            node: NodeNumber::alone(1),
            job: JobId(1),
            arena_bytes: ARENA_BYTES,
            session_dir: String::new(),
            config: JobConfig::default(),
            slots: Vec::new(),
            resources: ResourceSet::new(),
            clustered: false,
        }));
        // Any file does for that of spilled objects, for what wakes the carrier, and for what a driver holds: nobody uses them.
        let any = self.segment.as_fd();
        let with = [self.segment.as_fd(), self.arena.as_fd(), any, any, any];
        let count = if process == self::process(1) { 5 } else { 4 };
        self.say(process, &welcome, &with[..count]);
    }

    pub fn say(&self, to: ProcessId, message: &ToClient, with: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        let sent = fds::send(self.socket(to), &bytes, with).unwrap();
        assert_eq!(sent, bytes.len(), "a short message to a peer that reads");
    }

    fn socket(&self, of: ProcessId) -> &OwnedFd {
        &self.sockets[of.count() as usize - 1]
    }
}

struct Told(fn(&str));

impl Hooks for Told {
    fn output(&self, _: Option<u32>, _: &str, _: Option<&str>, _: bool, _: &[String]) {}

    fn cancel(&self, _: TaskId) {}

    fn warn(&self, line: &str) {
        self.0(line);
    }

    fn exit(&self, reason: &str) {
        self.0(reason);
    }

    fn fail(&self, reason: &str) {
        self.0(reason);
    }

    fn running(&self) -> Vec<RunningCall> {
        Vec::new()
    }

    fn begun(&self) -> Option<Vec<(TaskId, Duration)>> {
        Some(Vec::new())
    }
}
