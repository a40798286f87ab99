//! Coordinator: which replicas make up each shard's chain, and in which order.
//!
//! It owns one document, the [`ClusterConfig`], which lies in a store that changes it by compare-and-swap on its
//! revision (a file, etcd). Several coordinators may run; the one that is named in the document acts. Chains go on
//! when none does.
//!
//! ```text
//!                 not in the document                 named in it
//!  Starting --Loaded--> Following ---swap succeeds---> Acting ---plan differs from the document---> Store
//!      ^                  |   ^     (acting one proven    |                                           |
//!      |                  +---+      gone, or it stood    +<--Stored: Announce to all who listen------+
//!      |              again and      still for long)      |
//!      +-- Unreachable: what the document says is unknown-+-- Conflict: somebody else changed it
//! ```
//!
//! **Trouble** is heard of (reports of clients and neighbours, a lost connection, missed heartbeats) and not believed: the
//! process is probed. `Refused` (nobody listens there, or another incarnation does) proves its death: it is removed
//! at once. After `SUSPECT` of silence it is removed without proof, so the new tail waits for the old one's
//! lease. A member whose neighbour goes on finding it silent for `ACCUSED` is removed although it lives: somewhere between
//! them a link is cut, and the chain stands still. Nothing is timed on the path report, probe, swap, announce.
//! Where the dead member is the coordinator that acts, the same probe says so, and the next one takes its place and changes the
//! chain in one swap.
//!
//! **Who may be left alone.** A member is *whole* when it has all that was ever acknowledged: an entry is acknowledged when
//! it is stable at every member, so who was whole in an epoch is whole in the next. Only who was promoted from
//! `joining` may lack entries that were acknowledged just before, until it has acted in that epoch. The document says who came last and when
//! (`added`), its heartbeats say when it acts, and nobody is promoted before that. A chain is never changed to one without a living whole
//! member. If all of those are gone, the chain waits until one of them returns with its disk: for all
//! of them during `RESTORE_GRACE`, then the one with the longest log goes on alone and the others join. Where their disks
//! are gone, it waits for an operator (`loss`).
//!
//! **A chain begins** in two steps. Its first configuration says that it has not begun (`unbegun`): its members make an empty
//! base, and its head takes no updates. When all members act, which they do with the base on disk, the next configuration
//! says that it has begun. So if all members of the first one die before that, nothing was acknowledged, and whoever lives
//! begins it again (`begin_again`); a disk that is empty later is a loss.
//!
//! **Who was never heard of** is not known to live. A coordinator that has just begun knows members by their names in the
//! document alone, and probes them. Where a member has to leave (it is found dead, falls silent, says that its disk cannot be written,
//! is accused for long, or is wanted elsewhere), only those count as living that answered a probe which began no earlier:
//! they may have failed together, or before. An answer from before the config store was last waited for does not count either: that
//! may have taken long.
//!
//! # Invariants
//! - CONF-1: an epoch has one configuration of a chain: each change counts one epoch on, and only the swap makes it true.
//! - CONF-2: the next configuration of a chain has a member that is whole in the one before, or the one that returned with
//!   the disk of such a member, or the one with which an operator had it go on; or the chain had not begun.
//! - CONF-3: members are at most `replication` plus one (while one moves), none twice, no two on one node; who joins is on none of
//!   their nodes.
//! - CONF-4: at most one operation on the document is in flight; nothing is announced that is not stored.

mod explain;
mod form;
mod known;
mod loss;
mod plan;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::{Instant, limits};
use hoplo_wire::control::{
    ChainConfig, ClusterConfig, ClusterId, Epoch, FromCoordinator, Member, ReplicaId, Speaker,
    ToCoordinator, Wish,
};

pub use explain::{Explanation, line};
use known::Accusations;
pub use known::{Known, Standing};
pub use loss::{Left, Loss};
use watch::Watch;

#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// This coordinator, and where it listens.
    pub me: Member,
    pub cluster: ClusterId,
    /// For a new cluster.
    pub shards: u16,
    pub replication: u8,
    /// In which a new cluster begins. Who knows an earlier cluster under the same name (its control nodes have lost their
    /// disks, and begin anew) goes over to this one only if its epochs are later ones: shells give the seconds since 1970.
    pub founded: Epoch,
}

/// Counts the changes of the document; the store says how.
pub type Revision = u64;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// That incarnation answered.
    Alive,
    /// Nobody listens at its address, or another incarnation does.
    Refused,
    /// No answer in time.
    Silent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Heard {
        from: Speaker,
        message: ToCoordinator,
    },
    /// Its connection ended.
    Lost {
        from: Speaker,
    },
    Probed {
        ticket: u64,
        found: Probe,
    },
    /// The document; absent if there is none yet.
    Loaded {
        ticket: u64,
        document: Option<(Revision, ClusterConfig)>,
    },
    Stored {
        ticket: u64,
        revision: Revision,
    },
    /// The document is not of the expected revision; nothing was stored.
    Conflict {
        ticket: u64,
    },
    /// The store did not answer; it may have stored.
    Unreachable {
        ticket: u64,
        why: String,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Connect to it, and see who answers.
    Probe {
        ticket: u64,
        member: Member,
    },
    Load {
        ticket: u64,
    },
    /// `expected`: absent if there must be no document.
    Store {
        ticket: u64,
        expected: Option<Revision>,
        config: ClusterConfig,
    },
    /// To all replicas and clients that are connected.
    Announce(ClusterConfig),
    Answer {
        to: Speaker,
        message: FromCoordinator,
    },
}

pub struct Coordinator {
    options: CoordinatorOptions,
    /// What the document says, as far as this coordinator knows.
    document: Option<(Revision, ClusterConfig)>,
    /// Absent: it was never read.
    read: Option<Watch>,
    /// It may have changed: it has to be read before anything else.
    reload: bool,
    /// The operation on the document that is in flight.
    storing: Option<Storing>,
    retry_at: Option<Instant>,
    /// When the store last answered, or was given up: who lived before may be dead by now.
    waited_until: Option<Instant>,
    /// Why the store was of no use the last time.
    store_trouble: Option<String>,
    replicas: BTreeMap<ReplicaId, Known>,
    probes: BTreeMap<u64, Probed>,
    accusations: Accusations,
    /// By shard without a living whole member: when the first of them had returned.
    returned_since: BTreeMap<u16, Instant>,
    /// By shard with more members than it needs: since when.
    surplus_since: BTreeMap<u16, Instant>,
    /// One more of those just now: who stays is to be asked.
    found_surplus: bool,
    /// What operators want and is not in the document yet: a wish, and whether it is wished.
    wishes: Vec<(Wish, bool)>,
    looked_at: Instant,
    started_at: Instant,
    /// When a node registered that was not known before.
    newest_at: Instant,
    tickets: u64,
    story: VecDeque<(Instant, String)>,
}

#[derive(Clone, Debug)]
enum Storing {
    Load { ticket: u64 },
    Store { ticket: u64, config: ClusterConfig },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probed {
    Replica(ReplicaId),
    Acting(ReplicaId),
}

impl Coordinator {
    pub fn new(options: CoordinatorOptions, now: Instant) -> Self {
        assert!(
            options.shards > 0 && options.replication > 0,
            "a cluster has a shard and a replica"
        );
        Self {
            options,
            document: None,
            read: None,
            reload: false,
            storing: None,
            retry_at: None,
            waited_until: None,
            store_trouble: None,
            replicas: BTreeMap::new(),
            probes: BTreeMap::new(),
            accusations: Accusations::default(),
            returned_since: BTreeMap::new(),
            surplus_since: BTreeMap::new(),
            found_surplus: false,
            wishes: Vec::new(),
            looked_at: now,
            started_at: now,
            newest_at: now,
            tickets: 0,
            story: VecDeque::new(),
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        let waited_for_store = match event {
            Event::Loaded { .. }
            | Event::Stored { .. }
            | Event::Conflict { .. }
            | Event::Unreachable { .. } => true,
            Event::Heard { .. } | Event::Lost { .. } | Event::Probed { .. } | Event::Tick => false,
        };
        match event {
            Event::Heard { from, message } => self.on_message(now, from, message, effects),
            Event::Lost { from: Speaker::Replica(replica) } => self.suspect(now, replica, effects),
            Event::Lost { from: Speaker::Client(_) | Speaker::Coordinator(_) } => {}
            Event::Probed { ticket, found } => self.on_probed(now, ticket, found, effects),
            Event::Loaded { ticket, document } => self.on_loaded(now, ticket, document, effects),
            Event::Stored { ticket, revision } => self.on_stored(now, ticket, revision, effects),
            Event::Conflict { ticket } => self.on_conflict(now, ticket),
            Event::Unreachable { ticket, why } => self.on_unreachable(now, ticket, why),
            Event::Tick => {}
        }
        if waited_for_store {
            self.waited_until = Some(now);
            self.ask_who_outlived(now, effects);
        }
        if now.since(self.looked_at) >= limits::COORDINATOR_LOOKS {
            self.looked_at = now;
            self.look(now, effects);
        }
        self.advance(now, effects);
        if std::mem::take(&mut self.found_surplus) {
            self.ask_who_outlived(now, effects);
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        Some(self.looked_at + limits::COORDINATOR_LOOKS)
    }

    /// What the document says, as far as this coordinator knows.
    pub fn config(&self) -> Option<&ClusterConfig> {
        self.document.as_ref().map(|(_, config)| config)
    }

    /// Why the configuration can be neither read nor changed, as far as it was tried.
    pub fn trouble(&self) -> Option<&str> {
        self.store_trouble.as_deref()
    }

    /// It is named in the document, as far as it knows.
    pub fn acts(&self) -> bool {
        self.read.is_some()
            && self
                .config()
                .and_then(|config| config.acting.as_ref())
                .is_some_and(|acting| acting.coordinator.replica == self.options.me.replica)
    }

    /// Registered and known processes, and what is known of them.
    pub fn replicas(&self) -> impl Iterator<Item = (&ReplicaId, &Known)> {
        self.replicas.iter()
    }

    pub fn check(&self) {
        let Some(config) = self.config() else { return };
        config.shards.iter().for_each(check_chain);
        let most = usize::from(config.replication) + 1;
        let too_long = config.shards.iter().find(|chain| chain.members.len() > most);
        assert!(too_long.is_none(), "CONF-3: {too_long:?} has more than {most} members");
        assert!(self.probes.len() <= limits::REPLICAS_MAX * 2, "probes are bounded");
    }

    /// What happened lately.
    pub fn story(&self) -> String {
        let lines = self.story.iter();
        lines.map(|(at, line)| format!("{:>12.6} ms {line}\n", at.0 as f64 / 1e6)).collect()
    }

    fn note(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if self.story.len() == limits::CONTROL_STORY_LINES {
            self.story.pop_front();
        }
        self.story.push_back((now, line()));
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

/// CONF-3 for one chain.
fn check_chain(chain: &ChainConfig) {
    let mut nodes: Vec<_> =
        chain.members.iter().chain(&chain.joining).map(|member| member.replica.node).collect();
    nodes.sort_unstable();
    assert!(
        nodes.windows(2).all(|pair| pair[0] != pair[1]),
        "CONF-3: a node is twice in {chain:?}"
    );
    assert!(!chain.members.is_empty(), "CONF-2: {chain:?} has no member");
}

/// CONF-1 for one change of a chain.
fn check_change(from: &ChainConfig, to: &ChainConfig) {
    assert!(from.shard == to.shard && to.epoch.0 == from.epoch.0 + 1, "CONF-1: {from:?} to {to:?}");
    check_chain(to);
}
