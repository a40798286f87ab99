//! The client: one per process. What user threads call.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use hoplo_base::limits::CLOSE_PATIENCE;
use hoplo_base::{Instant as Time, Map};
use hoplo_core::session::{Effect, SessionMachine};
use hoplo_folders::Wait;
use hoplo_shm::{Arena, Kept, Segment, SpillFile, Spins, Urgency};
use hoplo_wire::Failure;
use hoplo_wire::node::{JobConfig, Role, ToNode, Welcome};
use parking_lot::Mutex;

use crate::Hooks;
use crate::daemon::{self, Reader, Requests};
use crate::greet::{self, ConnectError, Greeted};
use crate::guarded::{Carrying, Core, Progress, Warnings, call_all};
use crate::lock::SessionLock;
use crate::ringer::Ringer;
use crate::ringer::slot_of;
use crate::store::Store;
use crate::work::Worker;
use crate::writer::News;

pub struct Client {
    pub(crate) welcome: Welcome,
    pub(crate) segment: Arc<Segment>,
    pub(crate) ringer: Ringer,
    pub(crate) arena: Arc<Arena>,
    pub(crate) core: SessionLock,
    pub(crate) news: Arc<News>,
    pub(crate) store: Mutex<Store>,
    pub(crate) requests: Mutex<Requests>,
    /// What a worker has beside: other processes' calls.
    pub(crate) worker: Worker,
    pub(crate) hooks: Arc<dyn Hooks>,
    /// Of those who wait for a reply.
    pub(crate) spins: Spins,
    pub(crate) is_worker: bool,
    pub(crate) gone: OnceLock<Failure>,
    /// Why its node stops, of a driver that was told.
    pub(crate) stopped: OnceLock<String>,
    pub(crate) closing: AtomicBool,
    /// The session panicked even when it was told that all is over: it is not asked any more.
    pub(crate) broken: AtomicBool,
    /// The thread that reads the daemon's socket has ended.
    pub(crate) node_ended: Latch,
    threads: Mutex<Vec<JoinHandle<()>>>,
    start: Instant,
    /// Of a driver: until it is closed the daemon lets alone what this process may read and write in the store. Arrays keep their client, so
    /// it is closed when the last one goes, which may be long after `close`, or when the process ends.
    _maps: Option<Kept>,
}

/// Opens once.
#[derive(Default)]
pub(crate) struct Latch {
    open: Mutex<bool>,
    opened: parking_lot::Condvar,
}

impl Latch {
    pub(crate) fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    /// False if it is still shut at `deadline`.
    fn wait_until(&self, deadline: Instant) -> bool {
        let mut open = self.open.lock();
        while !*open {
            if self.opened.wait_until(&mut open, deadline).timed_out() {
                return *open;
            }
        }
        true
    }
}

impl Client {
    /// Says Hello on a connected unix socket and waits for the Welcome. Starts the helper threads. A driver tells
    /// its `job`.
    pub fn connect(
        socket: OwnedFd,
        role: Role,
        job: Option<JobConfig>,
        hooks: Box<dyn Hooks>,
        wait: &mut Wait<'_>,
    ) -> Result<Arc<Client>, ConnectError> {
        let (is_worker, is_driver) = (role == Role::Worker, role == Role::Driver);
        let Greeted { welcome, incoming, fds } = greet::greet(&socket, role, job, wait)?;
        let hooks: Arc<dyn Hooks> = Arc::from(hooks);
        let (mut writer, mut reader) = daemon::open(socket, incoming, fds)?;
        if is_worker {
            writer.die_when_lost(Arc::clone(&hooks));
        }
        let (news, writing) = (writer.news(), writer.socket()?);
        let segment = Segment::open(reader.take_fd()?).map_err(std::io::Error::other)?;
        let arena =
            Arena::open(reader.take_fd()?, welcome.arena_bytes).map_err(std::io::Error::other)?;
        let me = welcome.process;
        let slots = welcome.slots.clone();
        let file = SpillFile::new(reader.take_fd()?);
        let ringer = Ringer::new(segment.clone(), me, reader.take_fd()?);
        let _maps = if is_driver { Some(reader.take_watched()?) } else { None };
        let store = Store::new(segment.clone(), arena.clone(), file, slot_of(me), slots);
        let core = Core {
            session: SessionMachine::new(me, welcome.job),
            effects: Vec::new(),
            carrying: Carrying::default(),
            peers: Map::default(),
            overflowing: 0,
            writer,
            watches: Map::default(),
            lend_at: None,
            due: Vec::new(),
            warnings: Warnings::default(),
            panicked: false,
            waiters: 0,
            progress: Progress::Idle,
            freed: false,
            timer: None,
            cool_at: None,
            streams: Map::default(),
            running: None,
        };
        let client = Arc::new(Client {
            welcome,
            segment,
            ringer,
            arena,
            core: SessionLock::new(core),
            news,
            store: Mutex::new(store),
            requests: Mutex::default(),
            worker: Worker::default(),
            hooks,
            spins: Spins::default(),
            is_worker,
            gone: OnceLock::new(),
            stopped: OnceLock::new(),
            closing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            node_ended: Latch::default(),
            threads: Mutex::default(),
            start: Instant::now(),
            _maps,
        });
        client.spawn_threads(reader, writing)?;
        Ok(client)
    }

    fn spawn_threads(self: &Arc<Self>, mut reader: Reader, writing: Kept) -> std::io::Result<()> {
        let (node, progress, writer) = (self.clone(), self.clone(), self.clone());
        let threads = [
            spawn("hoplo-node", move || {
                let end = node.watched(|| node.node_loop(&mut reader));
                node.node_is_gone(end);
                node.node_ended.open();
            })?,
            // What panicked leaves callbacks that are due: it goes on with those.
            spawn("hoplo-progress", move || {
                while progress.watched(|| progress.progress_loop()).is_none() {}
            })?,
            spawn("hoplo-writer", move || {
                writer.watched(|| writer.writer_loop(&writing));
            })?,
        ];
        self.threads.lock().extend(threads);
        Ok(())
    }

    /// `None`: it panicked, and everybody is told that this client is of no more use.
    fn watched<R>(&self, run: impl FnOnce() -> R) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(run)).ok();
        if result.is_none() {
            self.core.lock().panicked();
            if self.gone.get().is_some() {
                self.give_up(); // even that did not help
            }
        }
        result
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The daemon's obituary once it is gone.
    pub fn daemon_gone(&self) -> Option<Failure> {
        self.gone.get().cloned()
    }

    /// Flushes what is owed to the daemon, closes the socket, joins the helper threads. Every later call
    /// fails with `NodeDied`.
    pub fn close(&self) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        {
            let mut core = self.core.lock();
            let core = &mut *core;
            if !core.panicked {
                // What nobody writes in is not kept for who may still have arrays in the store.
                let idle = self.store.lock().give_back(u64::MAX);
                self.return_room(core, idle);
                core.session.flush(&mut core.effects);
                core.session.tell_runs(self.now(), &mut core.effects);
                self.carry_out(core);
                let counted = ToNode::Counted(core.session.take_counters());
                core.writer.send(&counted);
            }
            // Before the daemon hears of it: then it silences our bell for the slot's next owner.
            self.own_bell(Urgency::Must);
            core.writer.finish();
        }
        // The daemon says what is left to say (the workers' last lines), then closes.
        let (ended, patience) = (&self.node_ended, Instant::now() + CLOSE_PATIENCE);
        if !ended.wait_until(patience) {
            self.core.lock().writer.shutdown();
        }
        let me = std::thread::current().id();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A callback may close: a thread cannot join itself.
            if thread.thread().id() != me {
                thread.join().expect("what a helper thread runs is watched");
            }
        }
        self.fire_the_rest();
    }

    /// Who waits by a callback is told, since the progress thread tells nobody any more.
    fn fire_the_rest(&self) {
        let mut core = self.core.lock();
        let mut callbacks = std::mem::take(&mut core.due);
        callbacks.extend(std::mem::take(&mut core.watches).into_values());
        let warnings = std::mem::take(&mut core.warnings);
        drop(core);
        warnings.print(&*self.hooks);
        // A panic has been written to standard error, and this client has ended anyway.
        let _ = call_all(callbacks);
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    /// Runs `change` on the session and carries out what it decides.
    pub(crate) fn with<R>(
        &self,
        change: impl FnOnce(&mut SessionMachine, Time, &mut Vec<Effect>) -> R,
    ) -> R {
        let now = self.now();
        self.core.within(|core| {
            let result = change(&mut core.session, now, &mut core.effects);
            self.carry_out(core);
            self.arm(core);
            result
        })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_string()).stack_size(512 * 1024).spawn(run)
}
