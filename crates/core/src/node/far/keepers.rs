//! What other nodes know of an actor while its home lives, for the time when it does not (`legacies`).
//!
//! | of an actor that | its keeper has | its node, if it is not the home, has |
//! |---|---|---|
//! | runs at its home, or waits for a place | its spec, and its log if it makes checkpoints | - |
//! | starts elsewhere | the same: the order to its node may be lost with the home | what it has of one that runs, once the order is there |
//! | runs elsewhere | its spec; nothing if it makes checkpoints | its spec, what its worker said, and the log that it passed on; with a log also the constructor's arguments, if it may start again |
//!
//! The keeper is the node that would be the heir now, so it changes as nodes join, drain and die. One that is a keeper no more is told so when the next one has
//! said that it keeps the actor (`Kept`): else a home that dies in between would leave it to nobody. Where there is a log,
//! both say that they have heard, and until then no call is acknowledged (REPLAY-5): so no node has a log that is older than a reply.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, NodeNumber, ProcessId};
use hoplo_wire::node::{Replay, ToNode};
use hoplo_wire::peer::{Gained, KnownActor, Peer};

use super::Node;
use super::legacies::arguments;
use crate::actors::life::Standing;
use crate::actors::replay::{self, ReplayLogs};
use crate::objects;

#[derive(Debug, Default)]
pub(super) struct Keepers {
    /// Of actors in our charge: what their keeper was told last.
    pub(super) told: BTreeMap<ActorId, (NodeNumber, Standing)>,
    /// Who kept them before, and goes on until their keeper has confirmed.
    pub(super) replaced: BTreeMap<ActorId, Replaced>,
    /// The last word to a keeper of an actor without a log.
    word: u64,
    /// Of actors in others' charge, which asked this node to keep it.
    pub(super) kept: BTreeMap<ActorId, KnownActor>,
    /// Their logs.
    pub(super) logs: ReplayLogs,
    /// Logs of actors with checkpoints that workers here are, and that are in others' charge: what passed by here.
    pub(super) mirrors: ReplayLogs,
}

#[derive(Debug, Default)]
pub(super) struct Replaced {
    nodes: BTreeSet<NodeNumber>,
    /// What the keeper is to confirm.
    word: u64,
}

impl Node {
    /// Who would be in charge of what is at home here.
    pub(super) fn keeper(&self) -> Option<NodeNumber> {
        self.far.heir
    }

    /// FAR-7: its keeper hears what changed.
    pub(in crate::node) fn keep_elsewhere(&mut self, actor: ActorId) {
        let me = self.me();
        let standing = self.actors.stands_at(actor, me);
        let now = standing.and_then(|standing| Some((self.keeper()?, standing)));
        let before = self.far.keepers.told.get(&actor).copied();
        if before == now && now.is_some() {
            return;
        }
        let old = before.map(|(old, _)| old);
        let is_new = old != now.map(|(keeper, _)| keeper);
        if is_new && old.is_some() {
            self.is_replaced(actor, []);
        }
        let known = now.and_then(|(_, standing)| self.actors.known(actor, standing));
        let (Some((keeper, standing)), Some(mut known)) = (now, known) else {
            return self.lets_replaced_go(actor);
        };
        self.far.keepers.told.insert(actor, (keeper, standing));
        self.tell_job(keeper, known.job);
        let mut word = 0;
        if known.spec.checkpoints.is_some() {
            word = self.replays.tells(actor, keeper, Some(known.incarnation));
            known.replay = self.replays.replay(actor);
        }
        let keepers = &mut self.far.keepers;
        if let Some(replaced) = keepers.replaced.get_mut(&actor).filter(|_| is_new) {
            if word == 0 {
                keepers.word += 1;
                word = keepers.word;
            }
            replaced.word = word;
            replaced.nodes.remove(&keeper);
        }
        self.send_peer(keeper, Peer::KeepActor { known: Box::new(known), word });
    }

    /// These keep it, as does whoever was told so last, until the next one that is told has confirmed.
    pub(super) fn is_replaced(
        &mut self,
        actor: ActorId,
        nodes: impl IntoIterator<Item = NodeNumber>,
    ) {
        let keepers = &mut self.far.keepers;
        let last = keepers.told.remove(&actor).map(|(keeper, _)| keeper);
        let nodes: Vec<NodeNumber> = nodes.into_iter().chain(last).collect();
        if !nodes.is_empty() {
            keepers.replaced.entry(actor).or_default().nodes.extend(nodes);
        }
    }

    /// Its keeper has it, or it needs none.
    fn lets_replaced_go(&mut self, actor: ActorId) {
        let replaced = self.far.keepers.replaced.remove(&actor).unwrap_or_default();
        for node in replaced.nodes {
            self.is_kept_no_more(actor, node);
        }
    }

    /// Before replies hear of it: they wait for those, too, that are let go now.
    pub(super) fn on_kept(&mut self, from: NodeNumber, actor: ActorId, word: u64) {
        let keepers = &self.far.keepers;
        let is_keeper = keepers.told.get(&actor).is_some_and(|(keeper, _)| *keeper == from);
        if is_keeper && keepers.replaced.get(&actor).is_some_and(|it| it.word <= word) {
            self.lets_replaced_go(actor);
        }
        self.pass_to_replays(replay::Event::Kept { actor, node: from, word });
    }

    /// It keeps nothing any more.
    pub(super) fn keeper_died(&mut self, dead: NodeNumber) {
        self.far.keepers.told.retain(|_, (keeper, _)| *keeper != dead);
        for replaced in self.far.keepers.replaced.values_mut() {
            replaced.nodes.remove(&dead);
        }
        self.look_at_keeper();
        // Behind that: what the dead one did not confirm waits for the next keeper.
        self.pass_to_replays(replay::Event::NodeGone { node: dead });
    }

    pub(super) fn is_kept_no_more(&mut self, actor: ActorId, keeper: NodeNumber) {
        let word = self.replays.tells(actor, keeper, None);
        self.send_peer(keeper, Peer::UnkeepActor { actor, word });
    }

    /// Somebody else is the keeper now, perhaps.
    pub(super) fn look_at_keeper(&mut self) {
        let actors: Vec<ActorId> = self.actors.ids().collect();
        actors.into_iter().for_each(|actor| self.keep_elsewhere(actor));
    }

    // ---- of the keeper ----

    pub(super) fn on_keep_actor(&mut self, from: NodeNumber, mut known: KnownActor, word: u64) {
        let (actor, incarnation) = (known.spec.actor, known.incarnation);
        let objects = arguments(&known);
        if !objects.is_empty() {
            self.pass_to_objects(objects::Event::NodeHeld { objects });
        }
        let replay = known.replay.take();
        let before = self.far.keepers.kept.insert(actor, known);
        self.let_arguments_of_kept_go(before);
        if let Some(replay) = replay {
            let taken = replay::Event::Taken { actor, incarnation, replay, waits: None };
            self.copy_log(Copies::OfKept, taken);
        }
        self.did_as_told(from, actor, word);
    }

    pub(super) fn on_keep_log(
        &mut self,
        from: NodeNumber,
        actor: ActorId,
        incarnation: u32,
        gained: Gained,
        word: u64,
    ) {
        let event = match gained {
            Gained::Call(call) => {
                replay::Event::Logged { from: actor.0.owner, actor, incarnation, call }
            }
            Gained::Checkpoint(checkpoint) => {
                replay::Event::Checkpointed { actor, incarnation, checkpoint }
            }
        };
        self.copy_log(Copies::OfKept, event);
        self.did_as_told(from, actor, word);
    }

    pub(super) fn did_as_told(&mut self, by: NodeNumber, actor: ActorId, word: u64) {
        if word != 0 {
            self.send_peer(by, Peer::Kept { actor, word });
        }
    }

    pub(super) fn let_kept_go(&mut self, actor: ActorId) {
        let before = self.far.keepers.kept.remove(&actor);
        self.let_arguments_of_kept_go(before);
        self.copy_log(Copies::OfKept, replay::Event::Ended { actor });
    }

    fn let_arguments_of_kept_go(&mut self, kept: Option<KnownActor>) {
        let objects = kept.map(|known| arguments(&known)).unwrap_or_default();
        if !objects.is_empty() {
            self.pass_to_objects(objects::Event::NodeReleased { objects });
        }
    }

    /// What this node keeps of actors, each with its log.
    pub(super) fn kept(&self) -> impl Iterator<Item = KnownActor> {
        self.far.keepers.kept.iter().map(|(actor, known)| KnownActor {
            replay: self.far.keepers.logs.replay(*actor),
            ..known.clone()
        })
    }

    // ---- of the actor's node ----

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
        self.copy_log(Copies::OfHosted, event);
    }

    /// A worker of ours becomes an actor in another node's charge.
    pub(super) fn begins_mirror(&mut self, actor: ActorId, incarnation: u32, replay: Replay) {
        let replay = Box::new(replay);
        let taken = replay::Event::Taken { actor, incarnation, replay, waits: None };
        self.copy_log(Copies::OfHosted, taken);
    }

    pub(super) fn ends_mirror(&mut self, actor: ActorId) {
        self.copy_log(Copies::OfHosted, replay::Event::Ended { actor });
    }

    fn copy_log(&mut self, which: Copies, event: replay::Event) {
        let mut effects = Vec::new();
        let copies = match which {
            Copies::OfKept => &mut self.far.keepers.logs,
            Copies::OfHosted => &mut self.far.keepers.mirrors,
        };
        copies.handle(event, &mut effects);
        for effect in effects {
            match effect {
                replay::Effect::NodeHold { objects } => {
                    self.pass_to_objects(objects::Event::NodeHeld { objects });
                }
                replay::Effect::NodeRelease { objects } => {
                    self.pass_to_objects(objects::Event::NodeReleased { objects });
                }
                // Each is the home's to say.
                replay::Effect::Acknowledge { .. }
                | replay::Effect::Keep { .. }
                | replay::Effect::Violation { .. } => {}
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Copies {
    /// That this node keeps for who is in charge.
    OfKept,
    /// Of actors that workers here are.
    OfHosted,
}

#[cfg(test)]
impl Node {
    pub(in crate::node) fn keeps_actor(&self, actor: ActorId) -> bool {
        self.far.keepers.kept.contains_key(&actor)
    }

    pub(in crate::node) fn log_kept(&self, actor: ActorId) -> Option<Box<Replay>> {
        self.far.keepers.logs.replay(actor)
    }
}
