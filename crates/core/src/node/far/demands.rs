//! Where demands and actors go: the broker of this node, and on a head the global scheduler, wired to their schedulers.
//!
//! ```text
//!   LeaseDemand, Place --> Broker --Ask--> our local scheduler, or another node's (Peer::Demand, PlaceActor)
//!                            |  ^                                    |
//!                        Seek|  |Found            Grant, PlaceActor, Stuck, Failed: back to the broker of who asked
//!                            v  |
//!                    global scheduler of the head <--Load-- every node, when its load has changed
//! ```
//! While there is no other node the broker is passed by, but for what must run on another one.

use std::collections::BTreeMap;

use hoplo_base::limits::{LOAD_GATHERED, LOAD_TOLD_OF_EACH};
use hoplo_base::{ActorId, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{Shape, Strategy, ToClient};
use hoplo_wire::peer::{Found, Load, Peer};
use hoplo_wire::{Failure, FailureKind};

use super::Node;
use crate::actors::life;
use crate::control::{NodeEntry, NodeState};
use crate::node::Timer;
use crate::sched::claim::{Claimant, Stuck};
use crate::sched::place::Place;
use crate::sched::{GlobalScheduler, broker, global, groups, local};

impl Node {
    pub(in crate::node) fn on_demand(
        &mut self,
        process: ProcessId,
        job: JobId,
        key: u32,
        shape: Shape,
        wanted: u32,
    ) {
        // Who spreads hears from the broker how many will come.
        let broker = &self.far.broker;
        let here = shape.strategy != Strategy::Spread && !broker.names_another(&shape);
        if broker.is_alone() && here {
            let demanded = local::Event::Demanded { process, job, key, shape, wanted };
            return self.pass_to_scheduler(demanded);
        }
        let (claimant, held) = (Claimant::Demand { process, key }, ResourceSet::new());
        self.pass_to_broker(broker::Event::Demanded { claimant, job, shape, held, wanted });
    }

    pub(in crate::node) fn place_actor(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
    ) {
        if self.far.broker.is_alone() && !self.far.broker.names_another(&shape) {
            let waits = local::Event::ActorWaits { actor, incarnation, job, shape, held };
            return self.pass_to_scheduler(waits);
        }
        let (claimant, wanted) = (Claimant::Actor { actor, incarnation }, 1);
        self.pass_to_broker(broker::Event::Demanded { claimant, job, shape, held, wanted });
    }

    pub(in crate::node) fn unplace_actor(&mut self, actor: ActorId) {
        if self.far.broker.is_alone() {
            return self.pass_to_scheduler(local::Event::ActorGaveUp { actor });
        }
        self.pass_to_broker(broker::Event::GaveUp { actor });
    }

    // ---- what schedulers say, ours and those of other nodes ----

    /// `node` granted a lease, or placed an actor, for a process or actor that is at home here.
    pub(in crate::node) fn granted_at(&mut self, claimant: Claimant, node: NodeNumber) {
        if !self.far.broker.is_alone() {
            self.pass_to_broker(broker::Event::Granted { claimant, node });
        }
    }

    /// It can make no worker for it. Who wants it is told by the caller.
    pub(in crate::node) fn failed_at(&mut self, claimant: Claimant, node: NodeNumber) {
        if !self.far.broker.is_alone() {
            self.pass_to_broker(broker::Event::Failed { claimant, node });
        }
    }

    /// Our local scheduler says why it waits here.
    pub(in crate::node) fn stuck_here(&mut self, claimant: Claimant, stuck: Option<Stuck>) {
        if self.far.broker.is_alone() {
            return self.tell_stuck(claimant, stuck);
        }
        let node = self.me();
        self.pass_to_broker(broker::Event::Stuck { claimant, node, stuck });
    }

    /// Another node's does.
    pub(super) fn stuck_there(
        &mut self,
        node: NodeNumber,
        claimant: Claimant,
        reason: Option<String>,
        infeasible: bool,
    ) {
        let stuck = reason.map(|reason| Stuck { reason: reason.into(), infeasible });
        self.pass_to_broker(broker::Event::Stuck { claimant, node, stuck });
    }

    pub(super) fn actor_stuck_there(
        &mut self,
        node: NodeNumber,
        actor: ActorId,
        reason: Option<String>,
        infeasible: bool,
    ) {
        if let Some(claimant) = self.far.broker.claim_of(actor) {
            self.stuck_there(node, claimant, reason, infeasible);
        }
    }

    pub(in crate::node) fn claim_of(&self, actor: ActorId) -> Claimant {
        let claimed = self.far.broker.claim_of(actor);
        claimed.unwrap_or(Claimant::Actor { actor, incarnation: 0 })
    }

    fn tell_stuck(&mut self, claimant: Claimant, stuck: Option<Stuck>) {
        let (reason, infeasible) = self.told(stuck);
        match claimant {
            Claimant::Demand { process, key } => {
                self.send(process, ToClient::LeaseStuck { key, reason, infeasible });
            }
            Claimant::Actor { actor, .. } => {
                self.pass_to_actors(life::Event::PlacementStuck { actor, reason, infeasible });
            }
        }
    }

    // ---- the broker ----

    /// There is no other node, and nothing is left from when there was.
    pub(in crate::node) fn far_is_alone(&self) -> bool {
        self.far.broker.is_alone()
    }

    pub(in crate::node) fn pass_to_broker(&mut self, event: broker::Event) {
        let mut effects = Vec::new();
        self.far.broker.handle(self.now, event, &mut effects);
        for effect in effects {
            self.on_broker(effect);
        }
    }

    fn on_broker(&mut self, effect: broker::Effect) {
        use broker::Effect as From;
        match effect {
            From::Ask { node, claimant, job, shape, held, wanted } => match claimant {
                Claimant::Demand { process, key } => {
                    self.ask_for_leases(node, process, job, key, shape, wanted);
                }
                Claimant::Actor { actor, incarnation } if node == self.me() => {
                    let waits = local::Event::ActorWaits { actor, incarnation, job, shape, held };
                    self.pass_to_scheduler(waits);
                }
                Claimant::Actor { actor, incarnation } => {
                    self.tell_job(node, job);
                    let message = Peer::PlaceActor { actor, incarnation, job, shape, held };
                    self.send_peer(node, message);
                }
            },
            From::GiveUp { node, actor } if node == self.me() => {
                self.pass_to_scheduler(local::Event::ActorGaveUp { actor });
            }
            From::GiveUp { node, actor } => self.send_peer(node, Peer::UnplaceActor { actor }),
            From::Seek { seek, shape, wanted } => match self.far.head {
                Some(head) if head == self.me() => self.on_sought(head, seek, shape, wanted),
                Some(head) => self.send_peer(head, Peer::Seek { seek, shape, wanted }),
                // It asks again.
                None => {}
            },
            From::Look { claimant } => self.look_for_broker(claimant),
            From::Tell { claimant, stuck } => self.tell_stuck(claimant, stuck),
            From::Fail { claimant, why } => self.never_placed(claimant, &why),
            From::FailOfGroup { claimant, group } => {
                let gone = self.failures_of(group);
                self.fail_claim(claimant, gone.of_tasks, gone.of_actors);
            }
            From::Coming { claimant, wanted, count } => match claimant {
                Claimant::Demand { process, key } => {
                    self.send(process, ToClient::LeasesComing { key, wanted, count });
                }
                Claimant::Actor { .. } => {} // it is one
            },
            From::Recite => self.recite(),
        }
    }

    /// The node that it names is no more.
    fn never_placed(&mut self, claimant: Claimant, why: &str) {
        let text = |what: &str| {
            format!("the {what} {why}; name another node, or let it run elsewhere with soft=True")
        };
        let of_tasks = Failure::new(FailureKind::TaskUnschedulable, text("task"));
        let of_actors = Failure::new(FailureKind::ActorUnschedulable, text("actor"));
        self.fail_claim(claimant, of_tasks, of_actors);
    }

    /// Whoever wants it is told, the one or the other.
    fn fail_claim(&mut self, claimant: Claimant, of_tasks: Failure, of_actors: Failure) {
        match claimant {
            Claimant::Demand { process, key } => {
                self.send(process, ToClient::LeaseFailed { key, failure: of_tasks });
            }
            Claimant::Actor { actor, incarnation } => {
                let failure = of_actors;
                self.pass_to_actors(life::Event::PlacementFailed { actor, incarnation, failure });
            }
        }
    }

    fn ask_for_leases(
        &mut self,
        node: NodeNumber,
        process: ProcessId,
        job: JobId,
        key: u32,
        shape: Shape,
        wanted: u32,
    ) {
        if node == self.me() {
            let demanded = local::Event::Demanded { process, job, key, shape, wanted };
            return self.pass_to_scheduler(demanded);
        }
        self.deal(process, node);
        self.tell_job(node, job);
        self.send_peer(node, Peer::Demand { process, job, key, shape, wanted });
    }

    /// What waited here when the first other node came.
    fn recite(&mut self) {
        let me = self.me();
        let at_home = |claimant: &Claimant| match claimant {
            Claimant::Demand { process, .. } => process.node() == me,
            Claimant::Actor { actor, .. } => self.charge_of(*actor) == me,
        };
        let claims = self.scheduler.claims().filter(|claim| at_home(&claim.0));
        let events: Vec<broker::Event> = claims
            .map(|(claimant, job, shape, held, wanted)| {
                let (shape, held) = (shape.clone(), held.clone());
                broker::Event::WaitsHere { claimant, job, shape, held, wanted }
            })
            .collect();
        events.into_iter().for_each(|event| self.pass_to_broker(event));
    }

    pub(super) fn on_found(&mut self, seek: u64, found: Found) {
        self.pass_to_broker(broker::Event::Found { seek, found });
    }

    /// FAR-11
    pub(in crate::node) fn check_asked_here(&self) {
        let wanted: BTreeMap<Claimant, u32> =
            self.scheduler.claims().map(|(claimant, .., wanted)| (claimant, wanted)).collect();
        for (claimant, asked) in self.far.broker.asked_here() {
            let wants = wanted.get(&claimant).copied().unwrap_or(0);
            assert!(
                wants >= asked,
                "FAR-11: {claimant:?} asked for {asked}, and {wants} are wanted"
            );
        }
    }

    // ---- who may be asked ----

    /// A row says that a node lives, and whether it takes anything.
    pub(super) fn offers(&mut self, entry: &NodeEntry) {
        let node = entry.node;
        if node == self.me() && entry.head && self.far.global.is_none() {
            self.far.global = Some(GlobalScheduler::new(u64::from(node.number())));
            // At a start it hears of itself last.
            for before in self.far.nodes.values().cloned().collect::<Vec<_>>() {
                self.offers_to_all(&before);
            }
        }
        self.pass_to_broker(match entry.state == NodeState::Draining {
            true => broker::Event::Drains { node },
            false => broker::Event::Joined { place: place_of(entry) },
        });
        self.offers_to_all(entry);
        self.load_changed();
    }

    /// As the global scheduler is told, on a head.
    fn offers_to_all(&mut self, entry: &NodeEntry) {
        let node = entry.node;
        self.pass_to_global(match entry.state == NodeState::Draining {
            true => global::Event::Drains { node },
            false => global::Event::Joined { place: place_of(entry) },
        });
    }

    pub(super) fn offers_no_more(&mut self, node: NodeNumber) {
        self.pass_to_broker(broker::Event::Gone { node });
        self.pass_to_global(global::Event::Gone { node });
        self.pass_to_groups(groups::Event::NodeGone { node });
    }

    /// Who plans the placement groups that `named` did: the head, also while this node has not heard that an earlier one is dead.
    pub(in crate::node) fn planner(&self, named: NodeNumber) -> NodeNumber {
        if named == self.me() { named } else { self.far.head.unwrap_or(named) }
    }

    pub(in crate::node) fn labels_of(&self, node: NodeNumber) -> BTreeMap<String, String> {
        self.far.nodes.get(&node).map(|entry| entry.labels.clone()).unwrap_or_default()
    }

    // ---- the global scheduler, on a head ----

    pub(in crate::node) fn pass_to_global(&mut self, event: global::Event) {
        let Some(global) = &mut self.far.global else { return };
        let mut effects = Vec::new();
        global.handle(self.now, event, &mut effects);
        for global::Effect::Answer { asker, seek, found } in effects {
            match asker == self.config.node {
                true => self.on_found(seek, found),
                false => self.send_peer(asker, Peer::Where { seek, found }),
            }
        }
    }

    pub(super) fn on_sought(&mut self, asker: NodeNumber, seek: u64, shape: Shape, wanted: u32) {
        if wanted > 0 {
            self.tell_of_end(asker, &shape.resources);
        }
        self.pass_to_global(global::Event::Sought { asker, seek, shape, wanted });
    }

    pub(super) fn on_load(&mut self, node: NodeNumber, load: Load) {
        if self.far.global.is_some() && node != self.me() {
            self.groups_see(node, &load);
        }
        self.pass_to_global(global::Event::Reported { node, load });
    }

    // ---- our load ----

    /// After events: is told in a moment, if it has changed and there is somebody to tell.
    pub(in crate::node) fn watch_load(&mut self) {
        if self.far.head.is_some() && self.far.load_seen != self.scheduler.changes() {
            self.far.load_seen = self.scheduler.changes();
            self.load_changed();
        }
    }

    /// After events of the directory. That the node is full is told at once: what is placed here until then may fail.
    pub(in crate::node) fn watch_room(&mut self) {
        let full = self.objects.is_full();
        if std::mem::replace(&mut self.far.full, full) != full {
            self.pass_to_broker(broker::Event::Full { full });
            self.tell_load();
        }
    }

    fn load_changed(&mut self) {
        if !std::mem::replace(&mut self.far.load_timer, true) {
            let others = self.far.nodes.len() as u32;
            self.after(LOAD_GATHERED.max(LOAD_TOLD_OF_EACH * others), Timer::Load);
        }
    }

    pub(in crate::node) fn tell_load(&mut self) {
        self.far.load_timer = false;
        let Some(head) = self.far.head else { return };
        let load = Load { full: self.far.full, ..self.scheduler.load() };
        if self.far.load_told.as_ref() == Some(&(head, load.clone())) {
            return;
        }
        self.far.load_told = Some((head, load.clone()));
        match head == self.me() {
            true => self.on_load(head, load),
            false => self.send_peer(head, Peer::Load(Box::new(load))),
        }
    }

    pub(in crate::node) fn sched_deadline(&self) -> Option<hoplo_base::Instant> {
        let global = self.far.global.as_ref().and_then(GlobalScheduler::next_deadline);
        self.far.broker.next_deadline().into_iter().chain(global).min()
    }

    pub(in crate::node) fn sched_tick(&mut self) {
        if self.far.broker.next_deadline().is_some_and(|at| at <= self.now) {
            self.pass_to_broker(broker::Event::Tick);
        }
        let global = self.far.global.as_ref().and_then(GlobalScheduler::next_deadline);
        if global.is_some_and(|at| at <= self.now) {
            self.pass_to_global(global::Event::Tick);
        }
    }
}

fn place_of(entry: &NodeEntry) -> Place {
    let (labels, total) = (entry.labels.clone(), entry.resources.clone());
    Place { node: entry.node, labels, total }
}
