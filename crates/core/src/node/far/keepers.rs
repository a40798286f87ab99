//! What other nodes know of an actor while its home lives, for the time when it does not (`legacies`).

use std::collections::BTreeMap;

use hoplo_base::{ActorId, NodeNumber, ProcessId};
use hoplo_wire::node::{Replay, ToNode};
use hoplo_wire::peer::{KnownActor, Peer};

use super::Node;
use super::legacies::arguments;
use crate::actors::life::Standing;
use crate::actors::replay::{self, ReplayLogs};
use crate::objects;

#[derive(Debug, Default)]
pub(super) struct Keepers {
    /// Of actors in our charge: what their keeper was told last.
    pub(super) told: BTreeMap<ActorId, (NodeNumber, Standing)>,
    /// Of actors in others' charge, which asked this node to keep it.
    pub(super) kept: BTreeMap<ActorId, KnownActor>,
    /// Logs of actors with checkpoints that workers here are, and that are in others' charge: what passed by here.
    pub(super) mirrors: ReplayLogs,
}

impl Node {
    /// Who would be in charge of what is at home here.
    fn keeper(&self) -> Option<NodeNumber> {
        super::members::heir_of(self.me(), self.far.nodes.values())
    }

    /// FAR-7: its keeper hears what changed.
    pub(in crate::node) fn keep_elsewhere(&mut self, actor: ActorId) {
        let me = self.me();
        let standing = self.actors.stands_at(actor, me);
        let now = standing.and_then(|standing| Some((self.keeper()?, standing)));
        let before = self.far.keepers.told.get(&actor).copied();
        if before == now {
            return;
        }
        let keeper = now.map(|(keeper, _)| keeper);
        if let Some((old, _)) = before.filter(|(old, _)| Some(*old) != keeper) {
            self.far.keepers.told.remove(&actor);
            self.send_peer(old, Peer::UnkeepActor { actor });
        }
        if let Some((keeper, standing)) = now
            && let Some(known) = self.actors.known(actor, standing)
        {
            self.far.keepers.told.insert(actor, (keeper, standing));
            self.tell_job(keeper, known.job);
            self.send_peer(keeper, Peer::KeepActor(Box::new(known)));
        }
    }

    /// Somebody else is the keeper now, perhaps.
    pub(super) fn look_at_keeper(&mut self) {
        let actors: Vec<ActorId> = self.actors.ids().collect();
        actors.into_iter().for_each(|actor| self.keep_elsewhere(actor));
    }

    pub(super) fn on_keep_actor(&mut self, known: KnownActor) {
        let objects = arguments(&known);
        if !objects.is_empty() {
            self.pass_to_objects(objects::Event::NodeHeld { objects });
        }
        let before = self.far.keepers.kept.insert(known.spec.actor, known);
        self.let_kept_go(before);
    }

    pub(super) fn on_unkeep_actor(&mut self, actor: ActorId) {
        let before = self.far.keepers.kept.remove(&actor);
        self.let_kept_go(before);
    }

    fn let_kept_go(&mut self, kept: Option<KnownActor>) {
        let objects = kept.map(|known| arguments(&known)).unwrap_or_default();
        if !objects.is_empty() {
            self.pass_to_objects(objects::Event::NodeReleased { objects });
        }
    }

    /// A worker of ours tells its actor's home: told again to an heir.
    pub(super) fn remember_said(&mut self, worker: ProcessId, message: &ToNode) {
        let own = matches!(
            message,
            ToNode::ActorStarted { .. } | ToNode::ActorExit { .. } | ToNode::ActorFailed { .. }
        );
        if own && let Some(hosted) = self.far.hosted.get_mut(&worker) {
            hosted.said.push(message.clone());
        }
        let event = match message {
            ToNode::CallLogged { actor, incarnation, call } => replay::Event::Logged {
                from: worker,
                actor: *actor,
                incarnation: *incarnation,
                call: call.clone(),
            },
            ToNode::Checkpointed { actor, incarnation, checkpoint } => {
                replay::Event::Checkpointed {
                    actor: *actor,
                    incarnation: *incarnation,
                    checkpoint: checkpoint.clone(),
                }
            }
            _ => return,
        };
        self.mirror(event);
    }

    /// A worker of ours becomes an actor in another node's charge.
    pub(super) fn begins_mirror(&mut self, actor: ActorId, incarnation: u32, replay: Replay) {
        let replay = Box::new(replay);
        self.mirror(replay::Event::Taken { actor, incarnation, replay });
    }

    pub(super) fn ends_mirror(&mut self, actor: ActorId) {
        self.mirror(replay::Event::Ended { actor });
    }

    fn mirror(&mut self, event: replay::Event) {
        let mut effects = Vec::new();
        self.far.keepers.mirrors.handle(event, &mut effects);
        for effect in effects {
            match effect {
                replay::Effect::NodeHold { objects } => {
                    self.pass_to_objects(objects::Event::NodeHeld { objects });
                }
                replay::Effect::NodeRelease { objects } => {
                    self.pass_to_objects(objects::Event::NodeReleased { objects });
                }
                // Both are the home's to say.
                replay::Effect::Acknowledge { .. } | replay::Effect::Violation { .. } => {}
            }
        }
    }
}

#[cfg(test)]
impl Node {
    pub(in crate::node) fn keeps_actor(&self, actor: ActorId) -> bool {
        self.far.keepers.kept.contains_key(&actor)
    }
}
