//! Actors outlive their home, as objects do (`far/estates`): the heir of the home goes on with them.
//!
//! ```text
//!   home  --KeepActor: spec, incarnation--> keeper            (the node that would be the heir now)
//!   home  --RunActor----------------------> the actor's node  (remembers the spec, and what the worker told the home)
//!
//!   the home dies:   keeper, the actor's node --ActorKnown--> heir      all have passed (FAR-5):  it takes them into its table,
//!                                                                       who watches them asks it
//! ```
//! An actor whose worker lives elsewhere than at the dead home goes on, and its callers notice nothing. One that was at the home has lost its
//! worker: it starts again if it may (the keeper holds its constructor's arguments), or ends.
//!
//! **What ends with its home:** an actor of a job whose driver was there, unless it is detached.
//!
//! **One with checkpoints** goes on from its log, which lies at two nodes (`keepers`): whoever has it besides the home tells the heir all of it.
//!
//! # Invariants
//! - FAR-7: what may start again without its home has a keeper, as long as there is another node.
//! - FAR-8: whatever is said about an actor of a dead home waits at the heir until all have passed the death, since until then the heir may not
//!   have heard of it. What its worker told the dead home is told again, in order.
//!
//! # Stories
//! 1. *The worker dies meanwhile.* Its node told of it as of one that lives. So `Gone` looks at what waits, too.
//! 2. *The heir dies.* Its heir is told all again: the actor's node knows it as before, and the first keeper keeps it until the one in charge
//!    lets it go.
//! 3. *Home and keeper die at once.* An actor that lived at the home starts again if it left a will (`wills`). Another one is lost, for want of
//!    anybody who knows what it was made from.
//! 4. *The keeper heard of an older incarnation* than the actor's node. The higher one counts; of equal ones the one with a worker.
//! 5. *It was killed, and its home died before anybody else heard so* (seed 13605). The head tells the heir of those whose rows say that they ended (`wills`), before it
//!    passes the death. Else an actor that somebody was told to be dead would go on, or start again, perhaps with a name that another one has by now.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::peer::{KnownActor, Peer};

use super::Node;
use crate::actors::life::{self, Manner};
use crate::actors::replay;
use crate::objects;
use crate::sched::claim::Claimant;
use crate::sched::local;

#[derive(Debug, Default)]
pub(super) struct Legacies {
    /// In our charge, by a death that not all have passed.
    known: BTreeMap<ActorId, Inherited>,
    /// Of these homes, those that had ended, by their rows.
    ended: BTreeSet<ActorId>,
    /// FAR-8: of processes here.
    waiting: Vec<(ProcessId, ToNode)>,
    /// Dead homes whose heirs do not decide yet.
    unsettled: BTreeSet<NodeNumber>,
}

#[derive(Debug)]
struct Inherited {
    known: KnownActor,
    /// Who keeps it.
    keepers: BTreeSet<NodeNumber>,
}

impl Legacies {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.ended.is_empty() && self.waiting.is_empty()
    }
}

/// What this is about, of what waits for an heir.
fn actor_of(message: &ToNode) -> Option<ActorId> {
    match message {
        ToNode::ActorWatch { actor }
        | ToNode::ActorKill { actor, .. }
        | ToNode::ActorStarted { actor, .. }
        | ToNode::ActorExit { actor }
        | ToNode::ActorFailed { actor, .. }
        | ToNode::CallLogged { actor, .. }
        | ToNode::Checkpointed { actor, .. } => Some(*actor),
        _ => None,
    }
}

/// What who tells this holds of it.
fn held(known: &KnownActor) -> Vec<ObjectId> {
    let mut held = arguments(known);
    held.extend(logged(known));
    held
}

/// What its log names.
fn logged(known: &KnownActor) -> impl Iterator<Item = ObjectId> {
    known.replay.iter().flat_map(|replay| replay.contains())
}

pub(super) fn arguments(known: &KnownActor) -> Vec<ObjectId> {
    if known.holds_arguments { known.spec.contains.clone() } else { Vec::new() }
}

impl Node {
    /// Whose table decides about it.
    pub(in crate::node) fn charge_of(&self, actor: ActorId) -> NodeNumber {
        self.in_charge(actor.handle())
    }

    /// `dead` was in charge of these homes; they have heirs. The jobs of its drivers are over.
    pub(super) fn actors_of_dead(&mut self, dead: NodeNumber, homes: &BTreeSet<NodeNumber>) {
        self.far.legacies.unsettled.extend(homes);
        let of_these = |actor: ActorId| {
            let home = actor.0.owner.node();
            home == dead || homes.contains(&home)
        };
        let hosted = self.far.hosted.iter().filter(|(_, hosted)| of_these(hosted.actor));
        for worker in hosted.map(|(worker, _)| *worker).collect::<Vec<_>>() {
            self.worker_of_dead(dead, worker);
        }
        let kept = self.kept().filter(|known| of_these(known.spec.actor));
        for known in kept.collect::<Vec<_>>() {
            match self.outlives(&known) {
                true => self.tell_heir(known),
                false => self.let_kept_go(known.spec.actor),
            }
        }
        for Inherited { known, keepers } in self.far.legacies.known.values_mut() {
            known.worker = known.worker.filter(|worker| worker.node() != dead);
            keepers.remove(&dead);
        }
        if !homes.contains(&dead) {
            self.actors_lost_with(dead); // there is no heir
        }
        let waiting = self.scheduler.claims().filter_map(|(claimant, ..)| match claimant {
            Claimant::Actor { actor, .. } => Some(actor).filter(|actor| of_these(*actor)),
            Claimant::Demand { .. } => None,
        });
        for actor in waiting.collect::<Vec<_>>() {
            self.pass_to_scheduler(local::Event::ActorGaveUp { actor });
        }
        self.keeper_died(dead);
    }

    /// An actor of a home that `dead` was in charge of.
    fn worker_of_dead(&mut self, dead: NodeNumber, worker: ProcessId) {
        let hosted = &self.far.hosted[&worker];
        let known = hosted.spec.as_ref().map(|(spec, incarnation)| KnownActor {
            spec: (**spec).clone(),
            job: self.processes.get(&worker).map_or(hoplo_base::JobId(0), |process| process.job),
            incarnation: *incarnation,
            moved: 0, // the keeper knows
            begun: true,
            worker: Some(worker),
            holds_arguments: !hosted.holds.is_empty(),
            replay: self.far.keepers.mirrors.replay(hosted.actor),
        });
        let Some(mut known) = known.filter(|known| self.outlives(known)) else {
            let reason = format!("the home node of its actor ({dead}) died");
            return self.stop_process(worker, Manner::Exit, reason);
        };
        if !known.holds_arguments {
            known.spec.contains = Vec::new();
        }
        let (actor, job, said) = (known.spec.actor, known.job, hosted.said.clone());
        self.deal(worker, self.charge_of(actor));
        self.tell_heir(known);
        let heir = self.charge_of(actor);
        for message in said {
            match self.is_far(heir) {
                true => {
                    let message = Box::new(message);
                    self.send_peer(heir, Peer::From { process: worker, job, message });
                }
                false => self.far.legacies.waiting.push((worker, message)),
            }
        }
    }

    /// It does not end with its home: nobody can be in charge of it but an heir.
    fn outlives(&self, known: &KnownActor) -> bool {
        let goes_on = !self.far.dead.contains_key(&known.job.node());
        let heir = self.charge_of(known.spec.actor);
        let somebody = heir != known.spec.actor.0.owner.node();
        let has_log = known.spec.checkpoints.is_none() || known.replay.is_some();
        somebody && has_log && (known.spec.detached || goes_on)
    }

    pub(super) fn tell_heir(&mut self, known: KnownActor) {
        let heir = self.charge_of(known.spec.actor);
        if !self.is_far(heir) {
            return self.on_actor_known(self.me(), known);
        }
        self.tell_job(heir, known.job);
        self.told_heir(known.spec.actor.handle());
        self.send_peer(heir, Peer::ActorKnown(Box::new(known)));
    }

    // ---- at the heir ----

    pub(super) fn on_actor_known(&mut self, from: NodeNumber, known: KnownActor) {
        let actor = known.spec.actor;
        let keeps = known.worker.is_none();
        let mut objects = held(&known);
        objects.push(actor.handle());
        self.pass_to_objects(objects::Event::NodeHeld { objects });
        let before = self.far.legacies.known.remove(&actor);
        let mut keepers = BTreeSet::new();
        keepers.extend(Some(from).filter(|_| keeps));
        let Some(Inherited { known: other, keepers: others }) = before else {
            self.far.legacies.known.insert(actor, Inherited { known, keepers });
            return;
        };
        keepers.extend(others);
        let rank = |known: &KnownActor| {
            let logged = known.replay.as_ref().map(|replay| replay.last());
            (known.incarnation, known.worker.is_some(), logged)
        };
        let (mut best, rest) =
            if rank(&known) > rank(&other) { (known, other) } else { (other, known) };
        let mut objects = vec![actor.handle()];
        objects.extend(logged(&rest));
        if best.holds_arguments {
            objects.extend(arguments(&rest));
        } else if rest.holds_arguments {
            (best.spec.contains, best.holds_arguments) = (rest.spec.contains, true);
        }
        best.begun |= rest.begun && rest.incarnation == best.incarnation;
        best.moved = best.moved.max(rest.moved);
        self.pass_to_objects(objects::Event::NodeReleased { objects });
        if let Some(worker) = rest.worker.filter(|worker| best.worker != Some(*worker)) {
            let reason = "its actor has started again elsewhere".to_string();
            self.stop_process(worker, Manner::Exit, reason);
        }
        self.far.legacies.known.insert(actor, Inherited { known: best, keepers });
    }

    /// Story 5.
    pub(super) fn on_actor_ended(&mut self, actor: ActorId) {
        if self.decides(actor) {
            self.kill_actor(actor, true, None);
        } else {
            self.far.legacies.ended.insert(actor);
        }
    }

    /// Story 1.
    pub(super) fn known_worker_gone(&mut self, process: ProcessId) {
        for Inherited { known, .. } in self.far.legacies.known.values_mut() {
            known.worker = known.worker.filter(|worker| *worker != process);
        }
    }

    /// FAR-8
    pub(super) fn waits_for_heir(&self, message: &ToNode) -> Option<ActorId> {
        actor_of(message).filter(|actor| {
            let (home, me) = (actor.0.owner.node(), self.me());
            let heir = self.charge_of(*actor);
            heir != me || (home != me && self.far.legacies.unsettled.contains(&home))
        })
    }

    /// A process here says this of an actor that is in our charge.
    pub(in crate::node) fn keep_waiting(&mut self, from: ProcessId, message: &ToNode) -> bool {
        let waits = self.waits_for_heir(message).is_some();
        if waits {
            self.far.legacies.waiting.push((from, message.clone()));
        }
        waits
    }

    /// What may be answered only when the tables of heirs are whole.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.far.legacies.unsettled.is_empty()
    }

    pub(super) fn decides(&self, actor: ActorId) -> bool {
        !self.far.legacies.unsettled.contains(&actor.0.owner.node())
    }

    /// All have passed some death: heirs decide.
    pub(super) fn legacies_settled(&mut self) {
        let unsettled = self.far.legacies.unsettled.iter().copied();
        let homes: BTreeSet<NodeNumber> =
            unsettled.filter(|home| self.far.claims.is_announced(*home)).collect();
        if homes.is_empty() {
            return;
        }
        self.far.legacies.unsettled.retain(|home| !homes.contains(home));
        let known = self.far.legacies.known.iter();
        let known = known.filter(|(actor, _)| homes.contains(&actor.0.owner.node()));
        for actor in known.map(|(actor, _)| *actor).collect::<Vec<_>>() {
            self.take_actor(actor);
        }
        self.far.legacies.ended.retain(|actor| !homes.contains(&actor.0.owner.node()));
        self.work_off_queue();
        self.hear_early();
        for (from, message) in std::mem::take(&mut self.far.legacies.waiting) {
            if self.processes.get(&from).is_some_and(|process| process.stage.has_connection()) {
                self.on_heard(from, message);
                self.work_off_queue();
            }
        }
        self.watch_again(&homes);
        self.names_settled(&homes);
    }

    pub(super) fn take_actor(&mut self, actor: ActorId) {
        let Inherited { known, mut keepers } =
            self.far.legacies.known.remove(&actor).expect("it was just told");
        let kept_here = keepers.remove(&self.me());
        let (home, worker, incarnation) = (actor.0.owner.node(), known.worker, known.incarnation);
        let row = self.actors.row(actor).filter(|row| !row.lost);
        let is_new = row.is_none();
        let ended = self.jobs.get(&known.job).is_none_or(|job| job.ended_us.is_some());
        let had_ended = self.far.legacies.ended.contains(&actor);
        let goes_on = (!ended || known.spec.detached) && !had_ended;
        // Its next worker may be sent the log at once.
        if let Some(replay) = known.replay.clone().filter(|_| goes_on && is_new) {
            self.pass_to_replays(replay::Event::Taken {
                actor,
                incarnation,
                replay,
                waits: worker,
            });
        }
        // Before it is told who keeps it from now on, perhaps the same node.
        match goes_on {
            true => self.is_replaced(actor, keepers),
            false => keepers.into_iter().for_each(|node| self.is_kept_no_more(actor, node)),
        }
        if let Some(worker) = worker.filter(|it| row.is_some_and(|row| row.worker != Some(*it))) {
            self.stop_process(worker, Manner::Exit, "its actor is another process".to_string());
        }
        let mut objects = held(&known);
        objects.push(actor.handle());
        if !goes_on {
            if let Some(worker) = worker {
                let reason = if had_ended { "its actor had ended" } else { "its job ended" };
                self.stop_process(worker, Manner::Exit, reason.to_string());
            }
        } else {
            let why = self.far.dead.get(&home).cloned().unwrap_or_default();
            let home_died = format!("its home node ({home}) died: {why}");
            let name = (known.spec.namespace.clone(), known.spec.name.clone());
            let known = Box::new(known);
            self.pass_to_actors(life::Event::Inherited { known, home_died });
            self.work_off_queue();
            self.keep_elsewhere(actor);
            self.acknowledge_calls(actor);
            if self.actors.named(&name) == Some(actor) {
                self.tell_name(name, actor);
            }
        }
        self.pass_to_objects(objects::Event::NodeReleased { objects });
        if let Some(worker) = worker.filter(|worker| !self.is_far(worker.node())) {
            // The table holds what its constructor needs.
            self.let_arguments_go(worker);
            self.far.hosted.remove(&worker);
            self.ends_mirror(actor);
        }
        if kept_here {
            self.let_kept_go(actor);
        }
    }

    /// Who watches one of theirs asks the heir how it is.
    fn watch_again(&mut self, homes: &BTreeSet<NodeNumber>) {
        let mut again: Vec<(ProcessId, ActorId)> = Vec::new();
        for (process, actors) in &self.far.watched {
            let theirs = actors.iter().filter(|actor| homes.contains(&actor.0.owner.node()));
            again.extend(theirs.map(|actor| (*process, *actor)));
        }
        for (process, actor) in again {
            let heir = self.charge_of(actor);
            if self.is_far(heir) {
                self.forward(heir, process, ToNode::ActorWatch { actor });
            } else {
                self.watches_no_more(process, actor);
                self.watch(process, actor);
            }
        }
    }

    /// Nobody told this node of some: they are lost.
    pub(in crate::node) fn watch(&mut self, from: ProcessId, actor: ActorId) {
        let home = actor.0.owner.node();
        if self.far.dead.contains_key(&home) && self.actors.row(actor).is_none() {
            let state = self.lost_actor(actor, home);
            return self.send(from, ToClient::ActorState { actor, state });
        }
        self.watch_actor(from, actor);
    }
}
