//! A node in a thread, and processes that a test plays itself.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use hoplo_base::{JobId, ProcessId, TaskId};
use hoplo_folders::{Places, SessionFolder, Wait};
use hoplo_node::{Daemon, Options};
use hoplo_shm::fds;
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::node::{JobConfig, Role, Tell, ToClient, ToNode, Welcome, decode, encode};
use hoplo_wire::why::Told;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::fake::Order;

/// A condition that does not come within this time does not come at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a client gets with its welcome: the three of the store, and the carrier's bell.
pub(crate) const WELCOME_DESCRIPTORS: usize = 4;

pub(crate) struct Node {
    base: PathBuf,
    session: PathBuf,
    ended: RefCell<Receiver<()>>,
}

impl Node {
    pub(crate) fn start(configure: impl FnOnce(&mut Options)) -> Self {
        Self::start_for(None, configure)
    }

    /// `driver`: the socket of the one that starts it.
    pub(crate) fn start_for(driver: Option<OwnedFd>, configure: impl FnOnce(&mut Options)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = std::env::temp_dir().join(format!("hoplo-node-{}-{count}", std::process::id()));
        let program = std::env::current_exe().unwrap().display().to_string();
        let arguments = ["fake_zygote", "--exact", "--ignored", "--nocapture"];
        let mut options = Options {
            base: Places::only(base.clone()),
            num_cpus: Some(2.0),
            object_store_memory: Some(64 << 20),
            zygote: std::iter::once(program).chain(arguments.map(str::to_string)).collect(),
            ..Options::default()
        };
        configure(&mut options);
        let (tell_session, session) = channel();
        let (tell_end, ended) = channel();
        std::thread::spawn(move || {
            let mut daemon = Daemon::new(options).unwrap();
            driver.into_iter().for_each(|driver| daemon.add_master(driver).unwrap());
            tell_session.send(daemon.session_dir().to_path_buf()).unwrap();
            daemon.run(|_| ());
            let _ = tell_end.send(());
        });
        let session = session.recv_timeout(PATIENCE).expect("the daemon starts");
        Self { base, session, ended: RefCell::new(ended) }
    }

    pub(crate) fn session(&self) -> &Path {
        &self.session
    }

    pub(crate) fn stranger(&self) -> Player {
        Player::on(connect(&self.session).unwrap())
    }

    pub(crate) fn driver(&self) -> Player {
        let mut player = self.stranger();
        player.hello(Role::Driver);
        player
    }

    pub(crate) fn tool(&self) -> Player {
        let mut player = self.stranger();
        player.hello(Role::Tool);
        player
    }

    pub(crate) fn wait_for_end(&self, within: Duration) {
        self.ended.borrow_mut().recv_timeout(within).expect("the daemon ends in time");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(socket) = connect(&self.session) {
            let mut tool = Player::on(socket);
            tool.hello(Role::Tool);
            tool.send(&ToNode::Stop);
            let _ = self.ended.borrow_mut().recv_timeout(PATIENCE);
        }
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

fn connect(session: &Path) -> Result<OwnedFd, Box<dyn std::error::Error>> {
    let joined = SessionFolder::open(session)?.connect(&mut Wait::at_most(PATIENCE))?;
    rustix::io::ioctl_fionbio(&joined.socket, false)?;
    Ok(joined.socket)
}

/// One connection to the daemon.
pub(crate) struct Player {
    stream: UnixStream,
    bytes: Vec<u8>,
    heard: VecDeque<ToClient>,
    fds: Vec<OwnedFd>,
    welcome: Option<Welcome>,
}

impl Player {
    pub(crate) fn on(socket: OwnedFd) -> Self {
        let stream = UnixStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (bytes, heard, fds) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { stream, bytes, heard, fds, welcome: None }
    }

    /// Waits for ever: a worker has nothing else to do.
    pub(crate) fn patient(&self) {
        self.stream.set_read_timeout(None).unwrap();
    }

    pub(crate) fn hello(&mut self, role: Role) {
        let descriptors = match role {
            Role::Tool => 0,
            Role::Worker => WELCOME_DESCRIPTORS,
            // Held as long as it has the store mapped.
            Role::Driver => WELCOME_DESCRIPTORS + 1,
        };
        self.say_hello(role.clone());
        if role == Role::Driver {
            self.send(&ToNode::Job(Box::new(job())));
        }
        let welcome = self.wait("a welcome", |message| match message {
            ToClient::Welcome(welcome) => Some(*welcome),
            _ => None,
        });
        assert_eq!(self.fds.len(), descriptors);
        self.welcome = Some(welcome);
    }

    pub(crate) fn say_hello(&mut self, role: Role) {
        self.send(&ToNode::Hello {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            role,
        });
    }

    pub(crate) fn process(&self) -> ProcessId {
        self.welcome.as_ref().unwrap().process
    }

    pub(crate) fn send(&mut self, message: &ToNode) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        self.send_raw(&bytes);
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn send_with(&mut self, message: &ToNode, fd: OwnedFd) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        let sent = fds::send(&self.stream, &bytes, &[fd.as_fd()]).unwrap();
        self.send_raw(&bytes[sent..]);
    }

    pub(crate) fn order(&mut self, worker: ProcessId, order: Order) {
        let task = TaskId { owner: worker, seq: 0 };
        let message = Tell::Consumed { task, count: order as u64 };
        self.send(&ToNode::Tell { to: worker, message });
    }

    pub(crate) fn job_id(&self) -> JobId {
        self.welcome.as_ref().unwrap().job
    }

    pub(crate) fn query(&mut self, kind: &str, argument: &str) -> Value {
        let (kind, argument) = (kind.to_string(), argument.to_string());
        self.send(&ToNode::Query { request: 5, kind, argument });
        let json = self.wait("an answer", |message| match message {
            ToClient::Answer { request: 5, result, missing: _ } => Some(result.unwrap()),
            _ => None,
        });
        serde_json::from_str(&json).unwrap()
    }

    /// The first message that fits, heard already or to come; others are kept.
    pub(crate) fn wait<T>(&mut self, what: &str, mut fits: impl FnMut(ToClient) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut at = 0;
        loop {
            while at < self.heard.len() {
                if let Some(found) = fits(self.heard[at].clone()) {
                    self.heard.remove(at);
                    return found;
                }
                at += 1;
            }
            assert!(Instant::now() < deadline, "{what} does not come; came: {:?}", self.heard);
            assert!(self.hear(), "{what} does not come, the connection is closed");
        }
    }

    /// Whether a message that was heard so far fits.
    pub(crate) fn was_told(&self, fits: impl FnMut(&ToClient) -> bool) -> bool {
        self.heard.iter().any(fits)
    }

    /// Reads to the end; panics if there is none.
    pub(crate) fn is_closed(&mut self) -> bool {
        while self.hear() {}
        true
    }

    /// Reads more; false at the end.
    pub(crate) fn hear(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 16];
        match fds::receive(&self.stream, &mut buffer) {
            Ok(received) if received.bytes == 0 => return false,
            Ok(received) => {
                self.bytes.extend_from_slice(&buffer[..received.bytes]);
                self.fds.extend(received.fds);
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return false,
            Err(error) => panic!("nothing came: {error}"),
        }
        while let Some((head, body)) = self.bytes.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*head) as usize;
            if body.len() < len {
                break;
            }
            let message = decode(&body[..len]).unwrap();
            self.bytes.drain(..4 + len);
            match message {
                ToClient::Inspect { request, .. } => {
                    self.send(&ToNode::Inspected { request, json: "null".to_string() });
                }
                ToClient::Explain { request, .. } => {
                    self.send(&ToNode::Explained { request, told: Told::Links(vec![]) });
                }
                message => self.heard.push_back(message),
            }
        }
        true
    }

    pub(crate) fn take_message(&mut self) -> Option<ToClient> {
        self.heard.pop_front()
    }

    pub(crate) fn take_fd(&mut self) -> OwnedFd {
        self.fds.remove(0)
    }
}

pub(crate) fn job() -> JobConfig {
    JobConfig { log_to_driver: true, entrypoint: "test".to_string(), ..JobConfig::default() }
}

/// Asks again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::yield_now();
    }
}

pub(crate) fn kill(pid: i32) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// Dead, or at least a zombie.
pub(crate) fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, None | Some(Some('Z' | 'X')))
}
