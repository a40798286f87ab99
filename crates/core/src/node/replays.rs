//! Actors with checkpoints: what their workers log, and what the next worker starts from.

use hoplo_base::{ActorId, ProcessId};
use hoplo_wire::node::{ActorSpec, Checkpoint, LoggedCall, Replay, ToClient};
use hoplo_wire::peer::Peer;

use super::Node;
use crate::actors::replay::{Effect, Event};
use crate::objects;

impl Node {
    /// Its next worker becomes what it was: absent for an actor without checkpoints.
    pub(super) fn begin_log(
        &mut self,
        spec: &ActorSpec,
        incarnation: u32,
        worker: ProcessId,
    ) -> Option<Box<Replay>> {
        spec.checkpoints?;
        let actor = spec.actor;
        let job = self.actors.row(actor).expect("it begins").job;
        let waits = spec.replies_wait(job, worker.node());
        self.pass_to_replays(Event::Begun { actor, incarnation, worker, waits });
        self.replays.replay(actor)
    }

    /// Replies to calls that lie wherever they have to may go.
    pub(super) fn acknowledge_calls(&mut self, actor: ActorId) {
        let mut effects = Vec::new();
        self.replays.acknowledge_again(actor, &mut effects);
        self.on_replays(effects);
    }

    pub(super) fn call_logged(
        &mut self,
        from: ProcessId,
        actor: ActorId,
        incarnation: u32,
        call: Box<LoggedCall>,
    ) {
        if self.actors.actor_of(from) == Some(actor) {
            self.pass_to_replays(Event::Logged { from, actor, incarnation, call });
        }
    }

    pub(super) fn checkpointed(
        &mut self,
        from: ProcessId,
        actor: ActorId,
        incarnation: u32,
        checkpoint: Box<Checkpoint>,
    ) {
        if self.actors.actor_of(from) == Some(actor) {
            self.pass_to_replays(Event::Checkpointed { actor, incarnation, checkpoint });
        }
    }

    pub(super) fn pass_to_replays(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.replays.handle(event, &mut effects);
        self.on_replays(effects);
    }

    fn on_replays(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Acknowledge { to, upto } => self.send(to, ToClient::CallsLogged { upto }),
                Effect::Keep { to, actor, incarnation, gained, word } => {
                    self.send_peer(to, Peer::KeepLog { actor, incarnation, gained, word });
                }
                Effect::NodeHold { objects } => {
                    self.pass_to_objects(objects::Event::NodeHeld { objects });
                }
                Effect::NodeRelease { objects } => {
                    self.pass_to_objects(objects::Event::NodeReleased { objects });
                }
                Effect::Violation { process, what } if self.is_far(process.node()) => {
                    self.violations += 1;
                    self.log(format!("{process}, of another node, {what}"));
                }
                Effect::Violation { process, what } => self.violation(process, &what),
            }
        }
    }
}
