//! Drain: a node leaves in order.
//!
//! ```text
//!   hoplo drain --> the head: row "draining" --everybody hears it--> others ask it for nothing more, and move their actors
//!                     \--Peer::Drain, how long--> the node: grants nothing, calls leases back, looks from time to time
//!                                                   nothing left, or its time is over --> it stops, and its row says why
//! ```
//! Homes fetch what this node has the last copy of (`objects/on_far`), and the head plans its bundles anew on other nodes (`sched/groups`).
//! An actor whose `max_restarts` is not 0 finishes the calls that its worker has and starts elsewhere; that is no restart of those it has.
//! An actor that cannot start again keeps the node, as do drivers there. So do actors that are at home there, but for those that live elsewhere and go on
//! under the node's heir (`far/legacies`). What keeps it when its time is over is lost with it.
//!
//! **Objects.** What others use of the node's own objects is handed over before it leaves: bytes to a node that keeps a copy, small values and errors to
//! its heir, as *last words* (`objects/on_leave`). The heir keeps these until it hears of the node's end, and is in charge then; if it hears that another node is, it
//! passes them on. They are taken back when nobody else uses the object any more: else what lies in it, without a value perhaps, would keep the
//! node. So only an object that others use and that has no value yet keeps it.
//!
//! **Leave.** A node that nothing keeps says so to all others, and leaves when each has heard it. The head writes its death then (`members`). What it said before, last replies and how many calls a
//! dead worker never took, lies in links that may be slow or cut: with the node it would be lost, and a call that never began would count
//! as begun. If something keeps the node meanwhile, or calls for a worker arrive, which is to be told that they never began, it asks again later.
//!
//! # Invariants
//! - DRAIN-1: a node that leaves before its time is over has said of each object that others use what it is, or another node has its bytes; and
//!   others have claimed all that they were sent, so that they use nothing else of its.
//! - DRAIN-2: a node that leaves before its time is over has nothing in a link to a node that lives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::limits::{DRAIN_LOOK, DRAIN_WITHIN};
use hoplo_base::{Instant, NodeNumber, ObjectId};
use hoplo_wire::node::ActorState;
use hoplo_wire::peer::{Known, Peer};

use super::Node;
use super::routing::named_by;
use crate::actors::life::{self, ActorRow};
use crate::control::NodeState;
use crate::node::queries::{Asker, Others, Report};
use crate::node::{Kind, Timer};
use crate::objects;
use crate::sched::claim::Claimant;
use crate::sched::{groups, local};

/// How the reason begins why a node is dead that left in order, or when its time was over.
pub const DRAINED: &str = "it was drained";

#[derive(Debug, Default)]
pub(super) struct Drains {
    /// This node's time is over then.
    until: Option<Instant>,
    /// Last words: which heir was told, and with which word.
    said: BTreeMap<ObjectId, (NodeNumber, u64)>,
    word: u64,
    /// The last word that each has confirmed.
    confirmed: BTreeMap<NodeNumber, u64>,
    /// The last `Leave`, and who has still to hear it. None: something kept it when it looked last.
    leave: Option<(u64, BTreeSet<NodeNumber>)>,
    /// Last words of others, and who said them.
    heard: BTreeMap<ObjectId, (NodeNumber, Known)>,
    /// Of a head: how long each node has that it was asked to drain.
    within: BTreeMap<NodeNumber, Duration>,
}

impl Node {
    /// It leaves: who wants to begin something here is to do that elsewhere.
    pub fn drains(&self) -> bool {
        self.far.drains.until.is_some()
    }

    // ---- the head ----

    /// `argument`: a node, and how many milliseconds it has.
    pub(in crate::node) fn on_drain_wanted(
        &mut self,
        asker: Asker,
        request: u64,
        whom: &str,
        within: Duration,
    ) {
        let wanted = match asker {
            Asker::Process(_) => self.to_drain(whom),
            Asker::Node(_) => Err("\"drain\" is no question to another node".to_string()),
        };
        match wanted {
            Ok(node) => {
                self.far.drains.within.insert(node, within);
                self.report(asker, request, Report::Drain { node }, Others::default());
            }
            Err(why) => self.deny(asker, request, why),
        }
    }

    fn to_drain(&self, whom: &str) -> Result<NodeNumber, String> {
        match self.far.head {
            None => {
                return Err(
                    "this node is alone: there is nothing to drain it to; `hoplo stop` ends it"
                        .to_string(),
                );
            }
            Some(head) if head != self.me() => {
                let head = self.node_name(head);
                return Err(format!(
                    "the head drains nodes: run `hoplo drain` on its machine, {head}"
                ));
            }
            Some(_) => {}
        }
        let hex = |node: NodeNumber| format!("{:06x}", node.number());
        let is_head =
            "it is the head, which cannot be drained: `hoplo stop` there ends the whole cluster";
        if hex(self.me()) == whom {
            return Err(is_head.to_string());
        }
        if let Some((_, why)) = self.far.dead.iter().find(|(node, _)| hex(**node) == whom) {
            return Err(format!("{whom} is dead already: {why}"));
        }
        let named =
            self.far.nodes.values().filter(|it| hex(it.node) == whom || it.hostname == whom);
        let named: Vec<_> = named.collect();
        if named.is_empty() && self.far.hostname == whom {
            return Err(is_head.to_string());
        }
        let [entry] = named[..] else {
            let is_none = named.is_empty();
            let all = if is_none { self.far.nodes.values().collect() } else { named };
            let all: Vec<String> =
                all.iter().map(|it| format!("{} ({})", hex(it.node), it.hostname)).collect();
            return Err(match (all.len(), is_none) {
                (0, _) => format!("there is no node {whom:?}: the head is the only one"),
                (_, true) => {
                    format!("no node that lives is {whom:?}: give one of {}", all.join(", "))
                }
                (several, false) => format!(
                    "{several} nodes that live are on {whom:?}: give the id of one: {}",
                    all.join(", ")
                ),
            });
        };
        if entry.state == NodeState::Draining {
            return Err(format!("{whom} is being drained already"));
        }
        Ok(entry.node)
    }

    // ---- everybody ----

    /// Its row says so.
    pub(super) fn on_draining(&mut self, node: NodeNumber) {
        if node == self.me() {
            self.begin_drain(DRAIN_WITHIN);
        } else if let Some(within) = self.far.drains.within.remove(&node) {
            let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            self.send_peer(node, Peer::Drain { within_ms });
        }
        if node != self.me() {
            self.tell_of_other(node);
            self.pass_to_objects(objects::Event::NodeDrains { node });
            self.pass_to_groups(groups::Event::NodeDrains { node });
        }
        self.pass_to_actors(life::Event::NodeDrains { node });
    }

    // ---- the node that leaves ----

    /// Said again, the time counts from now.
    pub(super) fn begin_drain(&mut self, within: Duration) {
        let is_first = self.far.drains.until.is_none();
        self.far.drains.until = Some(self.now + within);
        if is_first {
            self.log("is being drained");
            self.pass_to_scheduler(local::Event::Drains);
            self.pass_to_objects(objects::Event::NodeDrains { node: self.me() });
            self.after(DRAIN_LOOK, Timer::Drain);
        }
    }

    pub(in crate::node) fn look_whether_drained(&mut self) {
        let Some(until) = self.far.drains.until.filter(|_| !self.stopping) else { return };
        match self.kept_by() {
            None => self.begin_stop(DRAINED),
            Some(what) if until <= self.now => {
                self.begin_stop(&format!("{DRAINED}, and its time was over before {what}"));
            }
            Some(_) => self.after(DRAIN_LOOK, Timer::Drain),
        }
    }

    fn kept_by(&mut self) -> Option<String> {
        let kept_by = self.kept_by_work().or_else(|| {
            // Not before: the heir holds what it is handed until this node has left.
            self.hand_over();
            self.kept_by_objects()
        });
        if kept_by.is_some() {
            self.says_on();
        }
        kept_by.or_else(|| self.kept_by_links())
    }

    /// DRAIN-2
    fn kept_by_links(&mut self) -> Option<String> {
        let others: BTreeSet<NodeNumber> = self.far.nodes.keys().copied().collect();
        let Some((_, unheard)) = &mut self.far.drains.leave else {
            let drains = &mut self.far.drains;
            drains.word += 1;
            let word = drains.word;
            drains.leave = Some((word, others.clone()));
            others.iter().for_each(|node| self.send_peer(*node, Peer::Leave { word }));
            let nobody = others.is_empty();
            return (!nobody).then(|| "other nodes had heard that it leaves".to_string());
        };
        unheard.retain(|node| others.contains(node));
        let name = unheard.first().copied()?;
        Some(format!("{} had heard that it leaves", self.node_name(name)))
    }

    /// There is more to say.
    pub(super) fn says_on(&mut self) {
        self.far.drains.leave = None;
    }

    pub(super) fn on_leave_heard(&mut self, from: NodeNumber, heard: u64) {
        if let Some((word, unheard)) = &mut self.far.drains.leave
            && *word == heard
        {
            unheard.remove(&from);
            if unheard.is_empty() && !self.stopping && self.kept_by().is_none() {
                self.begin_stop(DRAINED);
            }
        }
    }

    /// What runs here, or is at home here and cannot go on elsewhere.
    fn kept_by_work(&self) -> Option<String> {
        if let Some((_, lease)) = self.scheduler.leases().next() {
            return Some(match lease.claimant {
                Claimant::Actor { actor, .. } => format!("{actor} ended"),
                Claimant::Demand { process, .. } => format!("tasks of {process} ended"),
            });
        }
        if let Some(driver) = self.processes.values().find(|it| it.kind == Kind::Driver) {
            return Some(format!("its driver {} left", driver.id));
        }
        let me = self.me();
        let stays = |row: &ActorRow| {
            let is_dead = matches!(row.state, ActorState::Dead { .. });
            !is_dead && !self.actors.goes_on_without(row.actor, me)
        };
        let row = self.actors.rows().find(stays)?;
        Some(format!("{}, which is at home there, ended", row.actor))
    }

    fn kept_by_objects(&self) -> Option<String> {
        // Their homes fetch the last copies, and say of each when it may go.
        let kept = self.objects.kept_for_homes();
        if kept > 0 {
            return Some(format!("{kept} objects on it were copied to their homes"));
        }
        let (used, heir) = (self.used_elsewhere(), self.keeper());
        let stays = used.into_iter().filter(|object| !self.is_handed_over(*object, heir));
        match stays.count() {
            0 if self.far.claims.is_settled() => None,
            0 => Some("others had claimed what it sent them".to_string()),
            some => {
                Some(format!("{some} objects of it were out of use elsewhere, or on other nodes"))
            }
        }
    }

    /// Objects in its charge. Of an actor's handle nothing is to be handed over: the actor goes on, keeps the node, or is dead.
    fn used_elsewhere(&self) -> Vec<ObjectId> {
        self.far.crossed.iter().copied().filter(|object| !objects::is_handle(*object)).collect()
    }

    /// DRAIN-1
    fn is_handed_over(&self, object: ObjectId, heir: Option<NodeNumber>) -> bool {
        let drains = &self.far.drains;
        self.objects.is_elsewhere(object)
            || drains.said.get(&object).is_some_and(|(to, word)| {
                heir == Some(*to) && drains.confirmed.get(to).is_some_and(|upto| upto >= word)
            })
    }

    fn hand_over(&mut self) {
        let objects = self.used_elsewhere();
        self.pass_to_objects(objects::Event::HandsOver { objects: objects.clone() });
        self.work_off_queue();
        let Some(heir) = self.keeper() else { return };
        for object in objects {
            let was_said = self.far.drains.said.get(&object).is_some_and(|(to, _)| *to == heir);
            if !was_said && let Some(known) = self.objects.last_words(object) {
                self.far.drains.word += 1;
                let word = self.far.drains.word;
                self.far.drains.said.insert(object, (heir, word));
                self.send_peer(heir, Peer::HandOver { object, known, word });
            }
        }
    }

    /// Nobody else uses it any more: the heir need not hold what lies in it, which may keep this node.
    pub(super) fn take_last_words_back(&mut self, object: ObjectId) {
        if let Some((heir, _)) = self.far.drains.said.remove(&object) {
            self.send_peer(heir, Peer::TakeBack { object });
        }
    }

    pub(super) fn on_handed_over(&mut self, heir: NodeNumber, word: u64) {
        self.far.drains.confirmed.insert(heir, word);
    }

    // ---- its heir ----

    /// It is held as the sender holds it.
    pub(super) fn on_hand_over(
        &mut self,
        from: NodeNumber,
        object: ObjectId,
        known: Known,
        word: u64,
    ) {
        self.send_peer(from, Peer::HandedOver { word });
        let objects = named_by(&known);
        self.pass_to_objects(objects::Event::NodeHeld { objects });
        if let Some((_, before)) = self.far.drains.heard.insert(object, (from, known)) {
            let objects = named_by(&before);
            self.pass_to_objects(objects::Event::NodeReleased { objects });
        }
    }

    pub(super) fn on_take_back(&mut self, from: NodeNumber, object: ObjectId) {
        let heard = &mut self.far.drains.heard;
        if heard.get(&object).is_some_and(|(by, _)| *by == from)
            && let Some((_, known)) = heard.remove(&object)
        {
            let objects = named_by(&known);
            self.pass_to_objects(objects::Event::NodeReleased { objects });
        }
    }

    /// That node has left, or died: what it said last is told to who is in charge.
    pub(super) fn pass_last_words(&mut self, of: NodeNumber) {
        let heard = std::mem::take(&mut self.far.drains.heard);
        let (said, others) = heard.into_iter().partition(|(_, (by, _))| *by == of);
        self.far.drains.heard = others;
        let said: BTreeMap<ObjectId, (NodeNumber, Known)> = said;
        for (object, (_, known)) in said {
            let (objects, node) = (named_by(&known), self.me());
            match self.in_charge(object) == node {
                true => self.pass_to_objects(objects::Event::FarKnows { node, object, known }),
                false => self.tell_known(object, known),
            }
            self.pass_to_objects(objects::Event::NodeReleased { objects });
            self.work_off_queue();
        }
    }
}
