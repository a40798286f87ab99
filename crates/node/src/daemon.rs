//! The daemon's loop: reads what is there, lets the node decide, carries out what it says.
//!
//! ```text
//!   epoll --> read, decode --> event --> Node --> effects --> messages, forks, kills, files
//!     ^                          ^                   |
//!     |                          +---- answers <-----+
//!     +--- flush, timers, sweep
//! ```
//! One thread decides. What is decided is in `hoplo_core::node`; here is only what needs a descriptor, a pid, a file
//! or the clock. An effect that is answered at once queues its answer (`Daemon::answer`), which is handled when all
//! effects before it were carried out.
//!
//! # Sweeps (REF-5)
//! Asked for one, the daemon finishes the current batch. Then one `epoll_wait` without waiting names every
//! socket in which something lies, each is read until it would block, and all of it is handled. Before that, if there are channels
//! with other nodes, the carrier takes what lies in them (`far_calls`); the loop goes on meanwhile.

mod clients;
mod control;
mod effects;
mod environments;
mod far;
mod far_calls;
mod ids;
mod jobs;
mod lead;
mod parts;
mod past;
mod query;
mod scanned;
mod why;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hoplo_base::limits::{
    HEAD_SETTLED_AFTER, MEMBER_JUDGE_BEHIND_TOLD, RETURN_MEMORY_AFTER, TABLE_ROOM_KEPT,
    TURN_BYTES_MAX,
};
use hoplo_base::{Instant, JobId, ProcessId};
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::head::{Founded, Listening};
use hoplo_core::control::{Entry, NodeEntry, NodeState};
use hoplo_core::node::{Config, Effect, Event, Node, Rows};
use hoplo_core::objects;
use hoplo_folders::{Base, OwnSessionFolder, SessionFolder};
use hoplo_net::poll::Bell;
use hoplo_shm::heap;
use hoplo_wire::control::{Change, Refusal};

pub(crate) use self::lead::Seated;
use crate::cage::Cages;
use crate::carrier::haul::{Haul, Hauler};
use crate::carrier::{Carrier, Part, Told, Word};
use crate::children::{self, Families, Looks};
use crate::clock::clock;
use crate::descriptors::Descriptors;
use crate::environments::Environments;
use crate::error::StartError;
use crate::joining::{Invitation, Inviter, Joined, Listen};
use crate::options::Options;
use crate::poll::{Poller, Ready, Source};
use crate::store::Store;
use crate::stream::Amount;
use crate::zygote::Zygote;
use crate::{journal, machine, python};

use clients::Connections;
use control::{Control, free_disk};
use far::{Far, Happened};
use far_calls::FarCalls;
use jobs::Output;
use workers::WorkerSide;

#[derive(Debug)]
pub struct Daemon {
    pub(crate) now: Instant,
    pub(crate) node: Node,
    /// Answers to effects, and what else the node is to hear next.
    queue: VecDeque<Event>,
    /// Used again and again.
    effects: Vec<Effect>,
    pub(crate) sweep_wanted: bool,

    pub(crate) session: OwnSessionFolder,
    pub(crate) poller: Poller,
    pub(crate) listener: OwnedFd,
    signals: Option<UnixStream>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) connections: Connections,

    pub(crate) zygote: Zygote,
    pub(crate) environments: Environments,
    /// Pipes of workers that are not buried.
    pub(crate) workers: BTreeMap<ProcessId, WorkerSide>,
    /// Readable when their process has ended.
    pub(crate) lives: BTreeMap<ProcessId, OwnedFd>,
    pub(crate) outputs: BTreeMap<JobId, Output>,
    pub(crate) store: Store,
    pub(crate) cages: Cages,
    pub(crate) control: Control,
    /// Strangers that were dropped for what they sent.
    pub(crate) violations: u64,
    pub(crate) timers: BTreeSet<(Instant, Timer)>,
    pub(crate) stopped: bool,
    pub(crate) descriptors: Descriptors,
    /// Whose children processes are, and when that was looked at.
    pub(crate) families: Option<(Instant, Families)>,
    /// Processes whose parents end become our children.
    pub(crate) adopts: bool,
    /// Children that this process had before.
    pub(crate) not_ours: BTreeSet<u32>,
    pub(crate) orphan_looks: Looks,
    /// The control store is for the next head to go on with.
    stays: bool,
    goes_on: bool,
    /// For whoever starts it.
    moved: Option<String>,
    /// Of a head.
    invitation: Option<Invitation>,
    /// Of a head that waited to be one.
    _inviter: Option<Inviter>,
    joined: Option<Joined>,
    /// Of a head that others can join: its folder, and the file of its control nodes.
    renews_itself: Option<(PathBuf, Option<PathBuf>)>,
    renews: Duration,
    /// Where there are other nodes.
    pub(crate) carrier: Option<Carrier>,
    /// What moves bytes between the store and other nodes, where there may be some.
    pub(crate) haul: Option<Haul>,
    pub(crate) far_calls: FarCalls,
    /// Rung by it.
    wake: Bell,
    /// Once it ends.
    pub(crate) ends_because: String,
    /// Why it is of its cluster no more under this number.
    fenced: Option<String>,
    /// How late this head was in hearing its nodes, and when it noticed.
    behind: Option<(Instant, Duration)>,
}

/// Why a daemon ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody stopped it, or its driver left.
    Stopped,
    /// Its number was declared dead, or it has to take itself for it: it is to join again under another one.
    /// `head`: where the head of its cluster listens.
    Fenced { why: String, head: Option<String> },
}

/// The shell's own; what the node waits for is in its `next_deadline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// What its workers printed is to be sent.
    Output(JobId),
    /// Connections are accepted again.
    Accept,
    /// Processes that were killed may have left others behind.
    Orphans,
    /// Memory that is free goes back to the system.
    ReturnMemory,
    /// That connection has had the time to say who it is.
    Hello(u64),
    /// Nothing can be sent on that connection.
    Unsent(u64),
    /// On that one more waits to be read than may.
    Unread(u64),
    /// Its certificate ends some time after this.
    Renew,
    /// Python starts, if no task has needed it yet.
    Zygote,
    /// It waited to be head, is head, and does now what had time.
    OwnCertificate,
}

impl Daemon {
    pub fn new(options: Options) -> Result<Self, StartError> {
        Self::begin(options, None)
    }

    /// Everything is made, and the socket listens. `taken`: the place of a head over control nodes, if this process has waited for it.
    pub(crate) fn begin(
        options: Options,
        taken: Option<(Listening, Seated)>,
    ) -> Result<Self, StartError> {
        let has_waited = taken.is_some();
        let (listening, seated) = taken.unzip();
        let resources = options.node_resources()?;
        options.check_object_store(machine::memory().total)?;
        let base = match &options.session_dir {
            Some(_) if !options.head => options.base.find().unwrap_or(None),
            Some(_) | None => Some(options.base.make()?),
        };
        base.iter().for_each(Base::sweep);
        let claim = |base: &Base| base.claim_head(&crate::hello_of_tool());
        let over = options.over().is_some();
        let keeps = options.head && !over;
        let head = base.as_ref().filter(|_| keeps).map(claim).transpose()?;
        // The first node of a machine that joins a cluster, or is its head as others may be, is the one that programs find there.
        let free = |base: &&Base| {
            let shares = options.join.is_some() && !options.of_driver || over;
            shares && base.current().is_none()
        };
        let first = base.as_ref().filter(free).and_then(|base| claim(base).ok());
        let left = base.as_ref().filter(|_| keeps).and_then(Base::left);
        let left = left.as_ref().map(SessionFolder::path);
        let goes_on = left.is_some()
            && options.session_dir.as_deref().is_none_or(|wanted| Some(wanted) == left);
        let session = match (options.session_dir.as_deref().or(left), base) {
            (Some(path), base) => OwnSessionFolder::at(path, base)?,
            (None, base) => OwnSessionFolder::create(base.expect("a new session has a base"))?,
        };
        if let Some(backup) = &options.from_backup
            && let Err(error) = hoplo_control::backup::restore(backup, &session.control())
        {
            let stays = session.control().exists();
            session.close(stays);
            return Err(error.into());
        }
        let before = Cluster::head_at(&session.control());
        let (founded, joined) =
            match enter_cluster(&options, &session, before.as_deref(), listening) {
                Ok(entered) => entered,
                // The user is to set something right first: nothing is left until then, but what was there.
                Err(error) => {
                    session.close(goes_on);
                    return Err(error);
                }
            };
        let poller = Poller::new()?;
        let listener = session.listen()?;
        let objects = object_config(options.object_store_bytes());
        let mut store = Store::new(objects.arena_bytes, session.path().join("spill/objects"))?;
        poller.add(store.disk(), Source::Disk)?;
        let segment = store.segment();
        let now = clock();
        let descriptors = Descriptors::new()?;
        let session_dir = session.path().display().to_string();
        let kept_in = session.environments();
        let hostname = machine::hostname();
        let wake = poller.bell(Source::Carrier)?;
        let mut carrier = None;
        let mut haul = None;
        if joined.is_some() || founded.is_some() {
            heap::keep_free();
        }
        if let Some(Joined { node, cluster, ip, head, .. }) = &joined {
            let part = Part::Member { ip: *ip, head: head.clone() };
            let hauler = Hauler::new(store.haul_parts(wake.clone())?)?;
            haul = Some(hauler.haul()?);
            let (hostname, segment, bulk) = (hostname.clone(), segment.clone(), Box::new(hauler));
            let started =
                Carrier::start(cluster, *node, hostname, part, wake.clone(), segment, bulk)?;
            carrier = Some(started.0);
        }
        let address = match (&carrier, &founded) {
            (Some(carrier), _) => carrier.address().to_string(),
            (None, Some(founded)) => founded.address().to_string(),
            (None, None) => String::new(),
        };
        let python = options.python.as_ref();
        let mut labels = options.labels.clone();
        labels.extend(python.map(|version| (python::LABEL.to_string(), version.clone())));
        let row = |node| {
            let (hostname, session_dir) = (hostname.clone(), session_dir.clone());
            NodeEntry {
                node,
                head: joined.is_none(),
                hostname,
                resources: resources.clone(),
                labels: labels.clone(),
                store_bytes: objects.capacity_bytes,
                session_dir,
                pid: std::process::id(),
                address: address.clone(),
                state: NodeState::Alive,
            }
        };
        let (mut control, rows, node) = match &joined {
            Some(joined) => {
                let far = Far::open(&joined.cluster, &row(joined.node));
                let far = far.map_err(StartError::NotTaken)?;
                let mut control = Control::of_joined(far);
                if let Some(why) = python.and_then(|ours| control.other_python(ours)) {
                    // Its head finds out: nobody listens at the address of its row.
                    let _ = control.close();
                    session.close(goes_on);
                    return Err(StartError::Python(why));
                }
                (control, Rows::default(), joined.node)
            }
            None if let Some(founded) = founded.as_ref().filter(|_| over) => {
                match Control::over(founded, seated, wake.clone(), row) {
                    Ok(begun) => begun,
                    // Another one is head: this one leaves nothing.
                    Err(error) => {
                        session.close(false);
                        return Err(error);
                    }
                }
            }
            None => {
                let (kept, loss) = (options.head, options.accept_loss);
                let mut control = Control::open(&session, kept, loss, founded.as_ref())?;
                let (rows, node) = control.begin(&session.control(), random_u32()?, row)?;
                (control, rows, node)
            }
        };
        if let Some(kept) = control.kept() {
            poller.add(kept.wake(), Source::Archive)?;
        }
        let cluster = match (&options.join, &founded) {
            (Some(join), _) => Some(join.address.clone()),
            (None, founded) => founded.as_ref().map(|it| it.address().to_string()),
        };
        if let Some(cluster) = cluster.filter(|_| !options.of_driver) {
            session.is_of_cluster(&cluster)?;
        }
        let (mut invitation, mut inviter, mut moved) = (None, None, None);
        let is_founded = founded.is_some();
        let shared_memory = &store;
        if let Some(founded) = founded {
            let listen = options.listen.as_ref().expect("who founded one listens");
            let host = founded.host();
            if has_waited {
                // Nodes have lost their head, and wait.
                inviter = Some(Inviter::start(host, founded.cluster(), listen, &session)?);
            } else {
                let usual = Listen::usual_token_file(&session);
                invitation = Some(Invitation::write(&host, control.tokens(), listen, usual)?);
            }
            let address = host.address;
            moved = before.and_then(|before| moved_from(&before, address, &control.nodes()));
            let part = Part::Judge { address: address.to_string(), seeks: !over };
            let cluster = founded.cluster();
            let hauler = Hauler::new(shared_memory.haul_parts(wake.clone())?)?;
            haul = Some(hauler.haul()?);
            let (hostname, bulk) = (hostname.clone(), Box::new(hauler));
            let started =
                Carrier::start(cluster, node, hostname, part, wake.clone(), segment, bulk)?;
            control.serve(founded, started.1)?;
            carrier = Some(started.0);
        }
        let rings_carrier = match &carrier {
            Some(carrier) => carrier.bell().clone(),
            None => Bell::unheard()?,
        };
        store.rings_carrier(&rings_carrier)?;
        if let Some(haul) = &mut haul {
            haul.rings(rings_carrier.clone());
        }
        if let Some(network) = control.network() {
            poller.add(network, Source::Store)?;
        }
        let clustered = carrier.is_some();
        let renews_itself = is_founded.then(|| match options.over() {
            Some(file) => (session.head(), Some(file.to_path_buf())),
            None => (session.control(), None),
        });
        let config = Config {
            node,
            resources,
            objects,
            session_dir,
            keeps_rows: control.keeps_rows(),
            clustered,
            slots_resting: hoplo_base::limits::SLOTS_RESTING,
            processes_max: descriptors.processes_max(),
        };
        let mut node = Node::new(config, now);
        node.set_labels(options.labels.clone());
        node.scheduler.set_labels(options.labels.clone());
        let mut daemon = Self {
            now,
            node,
            queue: VecDeque::new(),
            effects: Vec::new(),
            sweep_wanted: false,
            session,
            poller,
            listener,
            signals: None,
            scratch: vec![0; 128 * 1024],
            connections: Connections::default(),
            environments: Environments::new(kept_in, options.zygote[0].clone()),
            zygote: Zygote::new(options.zygote, options.descriptors_of_workers, clustered),
            workers: BTreeMap::new(),
            lives: BTreeMap::new(),
            outputs: BTreeMap::new(),
            store,
            cages: Cages::new(machine::cgroup2()),
            control,
            violations: 0,
            timers: BTreeSet::new(),
            stopped: false,
            descriptors,
            families: None,
            adopts: false,
            not_ours: BTreeSet::new(),
            orphan_looks: Looks::default(),
            stays: false,
            goes_on,
            moved,
            invitation,
            _inviter: inviter,
            joined,
            renews_itself,
            renews: options.renews,
            carrier,
            haul,
            far_calls: FarCalls::default(),
            wake,
            ends_because: String::new(),
            fenced: None,
            behind: None,
        };
        daemon.node.set_wall_clock(micros());
        daemon.recall(rows);
        if daemon.joined.is_some() || daemon.renews_itself.is_some() {
            daemon.after(daemon.renews, Timer::Renew);
        }
        if has_waited {
            daemon.after(HEAD_SETTLED_AFTER, Timer::Zygote);
            daemon.after(HEAD_SETTLED_AFTER, Timer::OwnCertificate);
        } else {
            daemon.after(Duration::ZERO, Timer::Zygote);
        }
        if let Some(head) = head.or(first) {
            daemon.session.make_current(head)?;
        }
        Ok(daemon)
    }

    pub fn session_dir(&self) -> &Path {
        self.session.path()
    }

    /// A head before this one ended without `hoplo stop`; its tables are this one's.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// What becomes of the nodes of a head that listened elsewhere, and with whose tables this one goes on.
    pub fn moved(&self) -> Option<&str> {
        self.moved.as_deref()
    }

    /// How other machines join, if they may.
    pub fn invitation(&self) -> Option<String> {
        self.invitation.as_ref().map(Invitation::in_words)
    }

    /// A byte on it asks for an orderly stop.
    pub fn stop_on(&mut self, signals: UnixStream) -> io::Result<()> {
        signals.set_nonblocking(true)?;
        self.poller.add(&signals, Source::Signal)?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Whatever workers started ends with the daemon at the latest. What becomes a child of this process from
    /// now on is taken for such, but not in the first process of a container: all orphans are its children.
    pub fn adopt_orphans(&mut self) -> io::Result<()> {
        children::adopt_orphans()?;
        let me = std::process::id();
        self.adopts = me != 1;
        // To look through all processes of the machine takes milliseconds: for nobody, nearly always.
        if children::are_any() {
            self.not_ours = Families::look()?.children(me).into_iter().collect();
        }
        Ok(())
    }

    /// Until somebody stops it, or its master leaves. `closes` hears why while this node is still found by its session.
    pub fn run(mut self, closes: impl FnOnce(&Ended)) -> Ended {
        // What was begun before there was a loop.
        self.control.flush();
        let mut rows = self.control.node_rows();
        // Those that it read when it began or joined: the first turn may come late.
        rows.extend(self.control.take_changes());
        let is_head = self.carrier.is_some() && self.joined.is_none();
        // Over control nodes, its own may be held back until it has read what dead nodes left.
        let tells_of_me = is_head && (self.has_own(&rows) || self.control.is_over());
        self.tell_carrier(rows);
        // A head that begins again knows of nodes that are dead when their rows have passed the carrier, before its own. Who asks what ran
        // there must not be told that nothing did.
        while tells_of_me && !self.node.has_joined() && !self.stopped {
            self.turn();
        }
        self.resume_accepting();
        while !self.stopped {
            self.turn();
        }
        let fenced = self.fenced.clone();
        let head = self.joined.as_ref().map(|joined| joined.head.clone());
        let ended = fenced.map_or(Ended::Stopped, |why| Ended::Fenced { why, head });
        closes(&ended);
        self.close();
        ended
    }

    /// One round: wait, handle everything that came, time, a sweep if one is wanted, send.
    pub(crate) fn turn(&mut self) {
        self.ring_carrier();
        let timeout = self.next_deadline().map(|at| at.since(clock()));
        let ready = self.poller.wait(timeout).expect("epoll waits");
        self.now = clock();
        self.node.set_wall_clock(micros());
        self.handle_ready(ready, Amount::Bytes(TURN_BYTES_MAX));
        self.handle_time();
        if self.begins_sweep() {
            self.sweep_wanted = false;
            self.sweep();
        }
        self.ring_carrier(); // before the disk is waited for
        self.control.flush();
        let changes = self.control.take_changes();
        self.tell_carrier(changes);
        self.flush_all();
        #[cfg(debug_assertions)]
        self.node.check();
    }

    fn ring_carrier(&self) {
        if let Some(carrier) = &self.carrier {
            carrier.ring();
        }
    }

    /// What came over the control store's connections.
    fn turn_store(&mut self) {
        let me = self.node.config().node;
        for happened in self.control.turn(me) {
            match happened {
                Happened::Answered { ask, answer } => self.handle(Event::Answered { ask, answer }),
                Happened::NotSaved(refusal) => self.control.note_refusal(Some(refusal)),
                Happened::Fenced { why } => {
                    self.is_fenced(format!("this node was declared dead: {why}"));
                }
                Happened::Buried { ticket, node, stored } => {
                    if !matches!(stored, Ok(Some(_))) {
                        self.control.spares(node);
                    }
                    self.tell_verdict(ticket, stored);
                }
            }
        }
    }

    fn hear_carrier(&mut self) {
        self.wake.silence();
        if let Some(why) = self.control.lost_seat() {
            self.is_fenced(why);
        }
        let words = self.carrier.as_ref().map_or(0, Carrier::words_waiting);
        let hauled = self.haul.as_ref().map(Haul::done).unwrap_or_default();
        let returns = |(_, timer): &(Instant, Timer)| *timer == Timer::ReturnMemory;
        if !hauled.is_empty() && !self.timers.iter().any(returns) {
            // What moved bytes is kept for the next ones, for a while.
            self.after(RETURN_MEMORY_AFTER, Timer::ReturnMemory);
        }
        for done in hauled {
            self.handle(Event::Hauled { done });
        }
        for _ in 0..words {
            let Some(word) = self.carrier.as_ref().and_then(Carrier::word) else { break };
            match word {
                Word::Verdict { ticket, number, expected, why } => {
                    let why = why.to_string();
                    journal::log(format_args!("{number} is dead: {why}"));
                    if let Some(stored) = self.control.bury(ticket, number, expected, why) {
                        self.tell_verdict(ticket, stored);
                    }
                }
                Word::Fenced { why } => self.is_fenced(why),
                Word::Head { address } => self.head_is_at(address),
                Word::HeadSilent { since } => self.handle(Event::HeadSilent { since }),
                Word::HeadHeard => self.handle(Event::HeadHeard),
                Word::Behind { by } => self.is_behind(by),
                Word::Unreached { node, since } => {
                    self.handle(Event::NodeUnreached { node, since });
                }
                Word::Reached { node } => self.handle(Event::NodeReached { node }),
                Word::Over => {
                    self.control.cluster_ends();
                    let why = "the head of its cluster was stopped".to_string();
                    self.handle(Event::Stop { why });
                }
                word => self.hear_of_calls(word),
            }
        }
    }

    fn tell_verdict(&self, ticket: u64, stored: Result<Option<u64>, Refusal>) {
        let told = match stored {
            Ok(stored) => Told::Verdict { ticket, stored },
            Err(_) => Told::NoVerdict { ticket },
        };
        if let Some(carrier) = &self.carrier {
            carrier.tell(told);
        }
    }

    fn renew_certificate(&mut self) {
        if let Some(joined) = &self.joined {
            let nodes = self.control.nodes().into_iter();
            let heads = nodes.filter(|entry| entry.head && !entry.state.is_dead());
            joined.renew(heads.map(|entry| entry.address).collect());
        }
        if let Some((folder, over)) = &self.renews_itself
            && let Err(error) = Cluster::renew_head(folder, over.as_deref())
        {
            journal::log(format_args!("the head's certificate was not renewed: {error}"));
        }
        self.after(self.renews, Timer::Renew);
    }

    fn uses_own_certificate(&mut self) {
        if let Err(error) = self.control.asks_by_its_own() {
            journal::log(format_args!("the head does not use its own certificate yet: {error}"));
            self.after(HEAD_SETTLED_AFTER, Timer::OwnCertificate);
        }
    }

    fn starts_zygote(&mut self) {
        if let Err(error) = self.zygote.start(&self.poller) {
            // The first task tries again, and hears why.
            journal::log(format_args!("the zygote does not start: {error}"));
        }
    }

    /// The head goes on at another address than the one before it: its store is asked there, too.
    fn head_is_at(&mut self, address: String) {
        let Some(joined) = &mut self.joined else { return };
        journal::log(format_args!("the head is at {address} now; it was at {}", joined.head));
        joined.head.clone_from(&address);
        self.control.moves_to(&address);
        // Programs that name the head's address find this node by it.
        if self.session.cluster().is_some()
            && let Err(error) = self.session.is_of_cluster(&address)
        {
            journal::log(format_args!("where the head is was not written: {error}"));
        }
    }

    /// Its workers may run elsewhere already: they end here, and it goes on under another number.
    fn is_behind(&mut self, by: Duration) {
        self.behind = Some((self.now, by));
        journal::log(format_args!("{}", late_by(by)));
    }

    /// What people should know of how nodes are heard.
    pub(crate) fn members_trouble(&self) -> Option<String> {
        let (at, by) = self.behind?;
        let is_lately = self.now.since(at) < MEMBER_JUDGE_BEHIND_TOLD * 2;
        is_lately.then(|| late_by(by))
    }

    fn is_fenced(&mut self, why: String) {
        if self.fenced.is_none() {
            self.fenced = Some(why.clone());
            self.handle(Event::Fenced { why });
        }
    }

    /// Together they are in the order in which the claims have to hear of them at a start: who lives, who died, this node. They are told at
    /// once: a head that passed the death of the one before it, and did not know yet that it is head, told nobody.
    /// Whether this node's own row is among them, and says where it is.
    fn has_own(&self, rows: &[Change]) -> bool {
        let entries = rows.iter().flat_map(|change| &change.row).flat_map(NodeEntry::from_row);
        entries.into_iter().any(|entry| {
            entry.node == self.node.config().node
                && !entry.state.is_dead()
                && !entry.address.is_empty()
        })
    }

    fn tell_carrier(&self, mut changes: Vec<Change>) {
        let Some(carrier) = &self.carrier else { return };
        let me = self.node.config().node;
        let order = |change: &Change| {
            let entry = change.row.as_ref().and_then(|row| NodeEntry::from_row(row).ok());
            match entry {
                Some(entry) if entry.node == me => (2, change.index),
                Some(NodeEntry { state: NodeState::Settled { died, .. }, .. }) => (1, died),
                Some(entry) => (u64::from(entry.state.is_dead()), change.index),
                None => (0, change.index),
            }
        };
        changes.sort_by_key(order);
        let rows = changes.into_iter().filter_map(|Change { index, row, .. }| {
            let row = row?;
            let entry = Box::new(NodeEntry::from_row(&row).ok()?);
            Some(Told::Row { entry, version: row.version, index })
        });
        let rows: Vec<Told> = rows.collect();
        if !rows.is_empty() {
            carrier.tell_all(rows);
        }
    }

    pub(crate) fn handle_ready(&mut self, mut ready: Vec<Ready>, amount: Amount) {
        // Whoever knocks after a signal is not told that the node runs.
        ready.sort_by_key(|ready| ready.source != Source::Signal);
        for Ready { source, readable, writable } in ready {
            match source {
                Source::Listener => self.accept(),
                Source::Signal => {
                    self.stays = self.control.kept().is_some();
                    self.handle(Event::Stop { why: "a signal".to_string() });
                }
                Source::Disk => {
                    for event in self.store.disk_done() {
                        self.handle(event);
                    }
                }
                // The turn's flush takes what it says.
                Source::Archive => {}
                Source::Store => self.turn_store(),
                Source::Carrier => self.hear_carrier(),
                Source::Zygote => self.on_zygote(),
                Source::ZygoteOutput => self.on_zygote_output(),
                Source::Connection(number) => {
                    if writable {
                        self.connections.dirty.insert(number);
                    }
                    if readable {
                        self.read_connection(number, amount);
                    }
                }
                Source::Life(slot) => self.on_life(slot),
                Source::Builder(ticket) => self.on_builder_ended(ticket),
                Source::BuilderOutput(ticket) => self.on_builder_output(ticket),
                Source::Output { slot, stderr } => self.on_output(slot, stderr),
            }
        }
    }

    fn handle_time(&mut self) {
        while let Some((at, timer)) = self.timers.first().copied() {
            if at > self.now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Output(job) => self.send_output(job),
                Timer::Accept => self.resume_accepting(),
                Timer::Orphans => self.look_for_orphans(),
                Timer::ReturnMemory => self.return_memory(),
                Timer::Hello(number) => self.end_stranger(number),
                Timer::Unsent(number) => self.read_to_its_end(number),
                Timer::Unread(number) => self.end_unread(number),
                Timer::Renew => self.renew_certificate(),
                Timer::Zygote => self.starts_zygote(),
                Timer::OwnCertificate => self.uses_own_certificate(),
            }
        }
        self.control.on_time(self.now);
        if self.control.network_is_due() {
            self.turn_store();
        }
        if self.node.next_deadline().is_some_and(|at| at <= self.now) {
            self.handle(Event::Tick);
        }
    }

    /// One after the other.
    fn begins_sweep(&self) -> bool {
        self.sweep_wanted && self.far_calls.drains_for.is_none()
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.begins_sweep() {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let deadlines = [timer, self.node.next_deadline(), self.control.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Lets the node decide, and carries out what it says.
    pub(crate) fn handle(&mut self, event: Event) {
        self.queue.push_back(event);
        let mut effects = std::mem::take(&mut self.effects);
        while let Some(event) = self.queue.pop_front() {
            self.node.handle(self.now, event, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(effect);
            }
        }
        self.effects = effects;
    }

    /// The node hears it when what it said before is carried out.
    pub(crate) fn answer(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    pub(crate) fn after(&mut self, delay: Duration, timer: Timer) {
        self.timers.insert((self.now + delay, timer));
    }

    /// What tables and queues no longer need, and the allocator kept.
    fn return_memory(&mut self) {
        self.queue.shrink_to(TABLE_ROOM_KEPT);
        self.effects.shrink_to(TABLE_ROOM_KEPT);
        heap::return_free();
    }

    fn close(mut self) {
        self.flush_all();
        for process in self.node.processes().filter(|process| !process.stage.is_dead()) {
            if let Some(pid) = process.known_pid().filter(|_| process.is_worker()) {
                self.kill(process.id, pid);
            }
        }
        self.environments.close();
        self.zygote.stop();
        if self.adopts {
            self.descriptors.spend();
            let ended = children::end_all_in_time(&self.not_ours);
            if let Err(error) = ended {
                journal::log(format_args!(
                    "what workers started was killed and may live on: {error}"
                ));
            }
        }
        drop(self.listener);
        let why = match self.ends_because.as_str() {
            drained if self.node.drains() => drained,
            _ => "it was stopped",
        };
        // Of one that was declared dead the verdict stays: it names who goes on with what it had.
        if self.fenced.is_none() {
            self.control.leave(self.node.config().node, why, || {
                if let Some(carrier) = &self.carrier {
                    carrier.tell(Told::Leaves { why: why.to_string() });
                    carrier.ring();
                }
            });
        }
        // The cluster goes on, if need be with another head.
        let goes_on = self.stays || self.control.is_over();
        if let Some(carrier) = self.carrier.take().filter(|_| !goes_on) {
            carrier.tell(Told::Over);
        }
        if let Err(refusal) = self.control.close() {
            journal::log(format_args!("the control store was not closed: {refusal}"));
        }
        if let Some(invitation) = self.invitation.take_if(|_| !goes_on) {
            invitation.take_back();
        }
        // Who waits for the end of its connection finds nothing left.
        self.session.close(self.stays);
        drop(self.connections);
    }
}

/// As a head, or as one that joins it; most nodes are neither. `before`: where the head listened with whose tables this one goes on.
fn enter_cluster(
    options: &Options,
    session: &OwnSessionFolder,
    before: Option<&str>,
    listening: Option<Listening>,
) -> Result<(Option<Founded>, Option<Joined>), StartError> {
    let founded = options.listen.as_ref().filter(|_| options.head);
    let founded = founded.map(|listen| listen.found(session, before, listening)).transpose();
    let joined = options.join.as_ref().map(|join| join.join(session)).transpose()?;
    let founded = founded.map_err(|error| match machine::full_disk(session.path()) {
        Some(full) if !matches!(error, hoplo_control::net::head::HeadError::Listen(_)) => {
            StartError::Control(format!("{error}; {}", free_disk(&full)))
        }
        _ => StartError::Founding(error),
    });
    Ok((founded?, joined))
}

/// The head before this one listened elsewhere, and had nodes.
fn moved_from(before: &str, now: SocketAddr, nodes: &[NodeEntry]) -> Option<String> {
    let live = nodes.iter().filter(|entry| !entry.head && !entry.state.is_dead());
    let at: Vec<SocketAddr> = live.filter_map(|entry| entry.address.parse().ok()).collect();
    if at.is_empty() || before == now.to_string() {
        return None;
    }
    let far = at.iter().filter(|at| now.ip().is_loopback() && !at.ip().is_loopback()).count();
    let them = |count: usize| format!("{count} node{}", if count == 1 { "" } else { "s" });
    let mut text =
        format!("That head listened at {before}. It tells {} to come to {now}.", them(at.len()));
    if far > 0 {
        let far = them(far);
        text += &format!(
            "\nNote: other machines cannot come to {}, so that {far} will be lost. Start it with --host, and an address that they reach",
            now.ip()
        );
    }
    Some(text)
}

/// Since 1970.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn object_config(capacity_bytes: u64) -> objects::Config {
    let mut config = objects::Config::new(capacity_bytes);
    // Addresses are free, memory is not: large objects find a place although memory is in pieces.
    config.arena_bytes = capacity_bytes * hoplo_base::limits::ARENA_PER_STORE;
    config
}

fn random_u32() -> io::Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_le_bytes(bytes))
}

fn late_by(by: Duration) -> String {
    format!(
        "this head was {:.1} s late in hearing its nodes, so it finds the dead that much later: it was stopped, or its machine has too little CPU for \
         so many nodes",
        by.as_secs_f64()
    )
}
