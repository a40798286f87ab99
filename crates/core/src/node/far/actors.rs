//! Actors that live elsewhere than at home. The home's table decides; the node where it lives has a worker for it.

use hoplo_base::{ActorId, NodeNumber, ProcessId};
use hoplo_wire::call::leave_node;
use hoplo_wire::node::{ActorSpec, ActorState, Replay, ToClient};
use hoplo_wire::peer::{Peer, StopManner};
use hoplo_wire::{Failure, FailureKind};

use super::{Hosted, Node};
use crate::actors::life::{self, Manner};
use crate::objects;
use crate::sched::claim::Claimant;

impl Node {
    /// The home gives a worker of ours an actor of its.
    pub(super) fn on_run_actor(
        &mut self,
        worker: ProcessId,
        spec: Box<ActorSpec>,
        incarnation: u32,
        gpus: Vec<u32>,
        replay: Option<Box<Replay>>,
    ) {
        let home = self.charge_of(spec.actor);
        if !self.far.hosted.contains_key(&worker) {
            // It is buried, and the home was told.
            self.deal(worker, home);
            return;
        }
        let (actor, mut holds) = (spec.actor, spec.contains.clone());
        holds.extend(replay.iter().flat_map(|replay| replay.contains()));
        if !holds.is_empty() {
            self.pass_to_objects(objects::Event::NodeHeld { objects: holds.clone() });
        }
        let (said, kept) = (Vec::new(), Some((spec.clone(), incarnation)));
        self.far.hosted.insert(worker, Hosted { actor, holds, spec: kept, said });
        if let Some(replay) = &replay {
            self.begins_mirror(actor, incarnation, (**replay).clone());
        }
        // Else the home hears of its end when it is buried. If the home dies before, its heir does, and is told by this node what was to run here
        // (seed 10023187).
        if self.speaks(worker) {
            self.send(worker, ToClient::RunActor { spec, incarnation, gpus, replay });
        }
    }

    /// A worker of ours was found for a far home's actor.
    pub(in crate::node) fn placed_for_home(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
    ) {
        let home = self.charge_of(actor);
        self.deal(worker, home);
        let (holds, spec, said) = (Vec::new(), None, Vec::new());
        self.far.hosted.insert(worker, Hosted { actor, holds, spec, said });
        self.send_peer(home, Peer::ActorPlaced { actor, incarnation, worker, gpus });
    }

    pub(in crate::node) fn actor_placed(
        &mut self,
        node: NodeNumber,
        actor: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
    ) {
        self.granted_at(Claimant::Actor { actor, incarnation }, node);
        self.pass_to_actors(life::Event::Placed { actor, incarnation, worker, gpus });
    }

    pub(in crate::node) fn actor_not_placed(
        &mut self,
        node: NodeNumber,
        actor: ActorId,
        incarnation: u32,
        failure: Failure,
    ) {
        self.failed_at(Claimant::Actor { actor, incarnation }, node);
        self.pass_to_actors(life::Event::PlacementFailed { actor, incarnation, failure });
    }

    /// What it keeps of the arguments, its process told before. The home and its keeper hold them for the next one; of an actor with
    /// checkpoints the keeper is let go when it has started (`keepers`), so this node does.
    pub(super) fn constructor_returned(&mut self, worker: ProcessId) {
        let Some(hosted) = self.far.hosted.get(&worker) else { return };
        let spec = hosted.spec.as_ref().map(|(spec, _)| spec);
        let stays = spec.filter(|spec| spec.checkpoints.is_some() && spec.max_restarts != 0);
        let stay = stays.map_or(0, |spec| spec.contains.len());
        self.let_held_go(worker, stay);
    }

    /// Its process is gone, or this node's table holds them.
    pub(super) fn let_arguments_go(&mut self, worker: ProcessId) {
        self.let_held_go(worker, 0);
    }

    /// All but the first ones.
    fn let_held_go(&mut self, worker: ProcessId, stay: usize) {
        let hosted = self.far.hosted.get_mut(&worker);
        let objects = hosted.map(|hosted| hosted.holds.split_off(stay)).unwrap_or_default();
        if !objects.is_empty() {
            self.pass_to_objects(objects::Event::NodeReleased { objects });
        }
    }

    /// `worker` is far.
    pub(in crate::node) fn run_far(
        &mut self,
        worker: ProcessId,
        mut spec: Box<ActorSpec>,
        incarnation: u32,
        gpus: Vec<u32>,
        replay: Option<Box<Replay>>,
    ) {
        if let Err(error) = leave_node(&mut spec.frame) {
            // Its worker cannot read it either, and says so.
            self.log(format!("the constructor's call of {} cannot be read: {error}", spec.actor));
        }
        let run = Peer::RunActor { worker, spec, incarnation, gpus, replay };
        self.send_peer(worker.node(), run);
    }

    pub(in crate::node) fn stop_far(&mut self, worker: ProcessId, manner: Manner, reason: String) {
        let manner = match manner {
            Manner::Finish => StopManner::Finish,
            Manner::Exit => StopManner::Exit,
            Manner::Kill => StopManner::Kill,
        };
        self.send_peer(worker.node(), Peer::StopWorker { worker, manner, reason });
    }

    /// Its home said that the actor is dead, and says nothing more.
    pub(super) fn watches_no_more(&mut self, process: ProcessId, actor: ActorId) {
        let Some(actors) = self.far.watched.get_mut(&process) else { return };
        actors.remove(&actor);
        if actors.is_empty() {
            self.far.watched.remove(&process);
        }
    }

    /// Nobody else would tell those who call them.
    pub(super) fn actors_lost_with(&mut self, home: NodeNumber) {
        let of_home = |actor: &ActorId| actor.0.owner.node() == home;
        let mut lost: Vec<(ProcessId, ActorId)> = Vec::new();
        for (process, actors) in &mut self.far.watched {
            lost.extend(actors.iter().filter(|actor| of_home(actor)).map(|it| (*process, *it)));
            actors.retain(|actor| !of_home(actor));
        }
        self.far.watched.retain(|_, actors| !actors.is_empty());
        for (process, actor) in lost {
            let state = self.lost_actor(actor, home);
            self.send(process, ToClient::ActorState { actor, state });
        }
    }

    /// What was at home at a node that is dead, or was never there.
    pub(super) fn lost_actor(&self, actor: ActorId, home: NodeNumber) -> ActorState {
        let why = match self.far.dead.get(&home) {
            Some(why) => format!("{actor} was lost with its home node ({home}): {why}"),
            None => format!("{actor} is not known: {home} is no node of this cluster"),
        };
        ActorState::Dead { failure: Failure::new(FailureKind::ActorDied, why) }
    }
}
