//! What is between this node and others (docs/internals/far.md).
//!
//! ```text
//!   on_request --at home elsewhere--> Peer::From --> the home's on_request      (a process of ours speaks of what is there)
//!   send -------to a far process----> Peer::To ----> the other's send           (a machine of ours has something for it)
//!   objects ----Foreign, Unforeign--> claims ------> Peer::Claims               (references)
//!   carrier ----Passing-------------> covers, tokens, holds --> Go              (frames that name refs)
//! ```
//! A far process is known by its id: its node is in it. What this node does for it is kept in [`Far::strangers`], and ends with
//! `Peer::Gone`, or with its node. The other way round this node remembers which nodes a process of its own dealt with, and tells them of
//! its end.
//!
//! # Invariants
//! - FAR-1: nothing is sent to a node that is dead, or that the node table cannot have; and nothing of a dead one is heard. What is for
//!   a node whose row is on its way here (`comes`) waits in the carrier, which reaches nobody without a row.
//! - FAR-2: what leaves and names refs is covered before it leaves; an object of this home is held from its first crossing until the
//!   claims free it (`crossed`).
//! - FAR-3: what arrived in a call is held until the last word of that call has left, or one of the pair is gone.
//! - FAR-4: what a worker told it returns to a far caller is held until the reply has left and is covered, until the worker is dead and
//!   all its replies have left, or until the caller is gone (`core/objects/replies`). So for each far caller that has a channel to a
//!   worker here, and for none else, the directory knows what is to be held.
//! - FAR-10: the heir that is kept is the one that all rows together give.
//! - FAR-11: the local scheduler wants at least as much as the broker asked for at this node, else who waits would wait for ever.
//!   It wants more when a grant crossed the demand; a lease too many is given back.

mod actors;
mod bars;
mod bytes;
mod demands;
mod drain;
mod estates;
mod functions;
mod groups;
mod jobs;
mod keepers;
mod legacies;
mod members;
mod names;
mod objects;
mod peers;
mod processes;
mod reduces;
mod references;
mod routing;
mod wills;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::NODES_AHEAD_MAX;
use hoplo_base::{ActorId, Instant, JobId, LeaseId, NodeNumber, ObjectId, ProcessId};

use hoplo_wire::node::{ActorSpec, ToNode};
use hoplo_wire::peer::Load;

use self::objects::WantAhead;
use super::Node;
use crate::claims::{Claims, Epoch, Passing as Passed};
use crate::collective::Collective;
use crate::control::{JobEntry, NodeEntry};
use crate::objects::haul;
use crate::sched::place::Place;
use crate::sched::{Broker, GlobalScheduler};
use crate::transfer::Transfer;

pub use drain::DRAINED;
pub(super) use groups::is_of_groups;
pub use members::{heir_among, heir_of, outlived, settled};
pub(super) use wills::{has_ended, will_of};

#[derive(Debug)]
pub(super) struct Far {
    /// Of this one's row.
    hostname: String,
    /// Those that live, but for this one.
    nodes: BTreeMap<NodeNumber, NodeEntry>,
    /// Who of them would be in charge of what is at home here.
    heir: Option<NodeNumber>,
    /// The last number that the table gave, as far as this node heard. Rows are made in the order of their numbers, and each node hears
    /// all changes of them in order: so of an earlier one this node has heard, or never will.
    latest: Option<NodeNumber>,
    /// They have a number, and did not say yet where they are.
    unplaced: BTreeSet<NodeNumber>,
    /// Why each is dead that this node heard of.
    dead: BTreeMap<NodeNumber, String>,
    /// Questions for objects whose senders have heard of deaths that this node has still to hear of.
    ahead: Vec<WantAhead>,
    head: Option<NodeNumber>,
    /// Since when that says nothing.
    head_silent: Option<Instant>,
    /// Nodes that live, as far as is known, and that this one does not reach, since then.
    unreached: BTreeMap<NodeNumber, Instant>,
    /// The last one, which is dead: its address, and since when it said nothing. Until there is another one.
    head_lost: Option<(String, Instant)>,
    claims: Claims,
    /// Of a head: who has passed which death.
    passed: Passed,
    /// The last cover towards each node.
    covers: BTreeMap<NodeNumber, u64>,
    /// FAR-2.
    crossed: BTreeSet<ObjectId>,
    /// Small values that went behind a call, and the nodes that have them: until these release the object, or it is free.
    values_sent: BTreeMap<ObjectId, BTreeSet<NodeNumber>>,
    /// Used here, and of no home that could be claimed from.
    homeless: BTreeSet<ObjectId>,
    /// FAR-3: caller, worker, tag.
    calls: BTreeMap<(ProcessId, ProcessId, u64), Vec<ObjectId>>,
    /// Results that far workers made for callers of this node, and whose replies did not come yet.
    awaited: BTreeMap<(ProcessId, ProcessId), Vec<ObjectId>>,
    strangers: BTreeMap<ProcessId, Stranger>,
    /// Nodes that have to hear of a process's end.
    dealt: BTreeMap<ProcessId, BTreeSet<NodeNumber>>,
    /// Actors of other homes that processes of this node hear of, until they are dead.
    watched: BTreeMap<ProcessId, BTreeSet<ActorId>>,
    /// Channels of processes of this node to far workers.
    channels: BTreeSet<(ProcessId, ProcessId)>,
    /// Leases of processes of this node on far workers: who holds it.
    leases: BTreeMap<LeaseId, Leased>,
    /// Nodes that were told of a job of ours.
    told: BTreeMap<JobId, BTreeSet<NodeNumber>>,
    bars: bars::Bars,
    /// Workers of this node that are actors of other homes.
    hosted: BTreeMap<ProcessId, Hosted>,
    fetches: functions::Fetches,
    names: names::Names,
    group_asks: groups::GroupAsks,
    drains: drain::Drains,
    transfer: Transfer,
    collective: Collective,
    /// The haul is a party of the directory.
    hauls: bool,
    broker: Broker,
    /// Of a head.
    global: Option<GlobalScheduler>,
    /// `LocalScheduler::changes` when the load was looked at last.
    load_seen: u64,
    load_timer: bool,
    /// Its store and disk are, as broker and head were told.
    full: bool,
    /// Of deaths, up to which this node has passed them all; absent once that is told.
    passed_here: Option<Epoch>,
    passed_timer: bool,
    /// To which head what was told.
    load_told: Option<(NodeNumber, Load)>,
    estates: estates::Estates,
    keepers: keepers::Keepers,
    legacies: legacies::Legacies,
    /// Of who is heard next to be dead.
    wills: Vec<wills::Will>,
    /// Of a head, with them: actors of the same homes that had ended.
    ended: Vec<ActorId>,
    /// Of a head, with them: jobs of dead nodes whose rows say that they run.
    unended: Vec<JobEntry>,
    /// The entry of the store that told it.
    last_death: u64,
    /// The claims know that this node is a member.
    joined: bool,
    #[cfg(test)]
    pub(super) sabotage: Option<Sabotage>,
}

/// A rule that is taken away, so that a test sees what it is good for.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// What leaves is not covered (NREF-2).
    Cover,
    /// What crosses is not held at its home (FAR-2).
    Crossing,
    /// The last word of a call lets nothing go (FAR-3).
    End,
    /// What calls of a dead caller name goes with it (REF-2).
    TakeOver,
}

/// A process of another node that this one does something for.
#[derive(Debug)]
struct Stranger {
    job: JobId,
    /// Workers of this node that it has a channel to.
    workers: BTreeSet<ProcessId>,
}

/// An actor of another home that a worker of this node is, or becomes.
#[derive(Debug)]
struct Hosted {
    actor: ActorId,
    /// What its constructor's arguments name, and its log. When that has returned, the home may let go of them, and this node does
    /// (`constructor_returned`).
    holds: Vec<ObjectId>,
    /// For an heir of the home, and which incarnation this is; absent before it is to run.
    spec: Option<(Box<ActorSpec>, u32)>,
    /// What it told the home of itself.
    said: Vec<ToNode>,
}

#[derive(Clone, Copy, Debug)]
struct Leased {
    holder: ProcessId,
    worker: ProcessId,
}

impl Far {
    pub(super) fn new(here: Place, now: Instant) -> Self {
        let me = here.node;
        Self {
            nodes: BTreeMap::new(),
            hostname: String::new(),
            heir: None,
            latest: None,
            unplaced: BTreeSet::new(),
            dead: BTreeMap::new(),
            ahead: Vec::new(),
            head: None,
            head_silent: None,
            unreached: BTreeMap::new(),
            head_lost: None,
            claims: Claims::new(me),
            passed: Passed::default(),
            covers: BTreeMap::new(),
            crossed: BTreeSet::new(),
            values_sent: BTreeMap::new(),
            homeless: BTreeSet::new(),
            calls: BTreeMap::new(),
            awaited: BTreeMap::new(),
            strangers: BTreeMap::new(),
            dealt: BTreeMap::new(),
            watched: BTreeMap::new(),
            channels: BTreeSet::new(),
            leases: BTreeMap::new(),
            told: BTreeMap::new(),
            bars: bars::Bars::new(),
            hosted: BTreeMap::new(),
            fetches: functions::Fetches::default(),
            names: names::Names::default(),
            group_asks: groups::GroupAsks::default(),
            drains: drain::Drains::default(),
            transfer: Transfer::new(me, now),
            collective: Collective::new(me, haul(me)),
            hauls: false,
            broker: Broker::new(here),
            global: None,
            load_seen: 0,
            full: false,
            load_timer: false,
            passed_here: None,
            passed_timer: false,
            load_told: None,
            estates: estates::Estates::default(),
            keepers: keepers::Keepers::default(),
            legacies: legacies::Legacies::default(),
            wills: Vec::new(),
            ended: Vec::new(),
            unended: Vec::new(),
            last_death: 0,
            joined: false,
            #[cfg(test)]
            sabotage: None,
        }
    }
}

impl Far {
    /// Where another node is, without its port.
    fn host_address(&self, node: NodeNumber) -> Option<String> {
        let (host, _) = self.nodes.get(&node)?.address.rsplit_once(':')?;
        Some(host.to_string())
    }

    pub(super) fn check(&self, me: NodeNumber, now: Instant) {
        self.broker.check(now);
        if let Some(global) = &self.global {
            global.check();
        }
        self.transfer.check();
        self.collective.check();
        assert_eq!(self.heir, heir_of(me, self.nodes.values()), "FAR-10");
    }
}

impl Node {
    /// FAR-4: whose replies hold something.
    pub(super) fn check_far_replies(&self) {
        let served = self.far.strangers.iter().flat_map(|(caller, stranger)| {
            stranger.workers.iter().map(|worker| (*worker, *caller))
        });
        let mut pairs: BTreeSet<(ProcessId, ProcessId)> = served.collect();
        let held: BTreeSet<_> = self.objects.far_replies().collect();
        assert!(pairs.is_subset(&held), "FAR-4: of {pairs:?} only {held:?} hold");
        pairs.extend(self.sweeps.ended_replies());
        assert!(held.is_subset(&pairs), "FAR-4: {held:?} hold for ever, of {pairs:?}");
    }

    pub(super) fn me(&self) -> NodeNumber {
        self.config.node
    }

    pub(super) fn is_far(&self, node: NodeNumber) -> bool {
        node != self.config.node
    }

    /// Other nodes of the cluster that live, as the node table says.
    pub fn other_nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.far.nodes.values()
    }

    /// FAR-1: what is sent to it arrives there, or it is declared dead.
    pub(super) fn is_sent_to(&self, node: NodeNumber) -> bool {
        self.far.nodes.contains_key(&node) || self.comes(node)
    }

    /// Somebody named it, and its row is on its way here. A number that no row can have is none of this cluster: a
    /// ref of another one, or of a node that was forgotten long ago.
    fn comes(&self, node: NodeNumber) -> bool {
        if !self.config.clustered || node == self.me() || self.far.dead.contains_key(&node) {
            return false;
        }
        let follows = |latest| node.follows(latest, NODES_AHEAD_MAX);
        self.far.unplaced.contains(&node) || self.far.latest.map_or(node.is_given(), follows)
    }

    /// Workers of this node that are actors of other homes.
    pub fn hosted(&self) -> impl Iterator<Item = (ProcessId, ActorId)> {
        self.far.hosted.iter().map(|(worker, hosted)| (*worker, hosted.actor))
    }

    pub(super) fn is_other_node(&self, node: NodeNumber) -> bool {
        self.far.nodes.contains_key(&node)
    }

    pub(super) fn is_head(&self, node: NodeNumber) -> bool {
        self.far.head == Some(node)
    }

    pub(super) fn host_of(&self, node: NodeNumber) -> Option<&str> {
        self.far.nodes.get(&node).map(|entry| entry.hostname.as_str())
    }

    /// Nothing of any ref is under way between this node and others.
    pub fn is_quiet(&self) -> bool {
        let far = &self.far;
        far.claims.is_empty()
            && far.calls.is_empty()
            && far.crossed.is_empty()
            && far.estates.is_empty()
            && far.legacies.is_empty()
    }

    /// What [`Self::is_quiet`] looks at, for a failed test.
    #[cfg(test)]
    pub(super) fn what_is_left(&self) -> String {
        format!("{:?} {:?} {:?}", self.far.calls, self.far.crossed, self.far.claims)
    }

    #[cfg(test)]
    fn is_sabotaged(&self, rule: Sabotage) -> bool {
        self.far.sabotage == Some(rule)
    }
}
