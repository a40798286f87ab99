//! Where demands and actors go.

use hoplo_base::{ActorId, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::Shape;
use hoplo_wire::peer::Peer;

use super::Node;
use crate::sched::local;

impl Node {
    pub(in crate::node) fn on_demand(
        &mut self,
        process: ProcessId,
        job: JobId,
        key: u32,
        shape: Shape,
        wanted: u32,
    ) {
        match self.elsewhere(&shape) {
            None => {
                self.pass_to_scheduler(local::Event::Demanded { process, job, key, shape, wanted })
            }
            Some(node) => {
                self.deal(process, node);
                self.tell_job(node, job);
                self.send_peer(node, Peer::Demand { process, job, key, shape, wanted });
            }
        }
    }

    pub(in crate::node) fn place_actor(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
    ) {
        match self.elsewhere(&shape) {
            None => self.pass_to_scheduler(local::Event::ActorWaits {
                actor,
                incarnation,
                job,
                shape,
                held,
            }),
            Some(node) => {
                self.tell_job(node, job);
                let message = Peer::PlaceActor { actor, incarnation, job, shape, held };
                self.send_peer(node, message);
            }
        }
    }

    pub(in crate::node) fn unplace_actor(&mut self, actor: ActorId) {
        self.pass_to_scheduler(local::Event::ActorGaveUp { actor });
    }

    pub(super) fn placement_ended(&mut self, _actor: ActorId) {}

    fn elsewhere(&self, shape: &Shape) -> Option<NodeNumber> {
        if self.far.nodes.is_empty() || self.scheduler.could_run(&shape.resources) {
            return None;
        }
        let fits = |(node, entry): (&NodeNumber, &crate::control::NodeEntry)| {
            let lives = entry.state == crate::control::NodeState::Alive;
            (lives && entry.resources.covers(&shape.resources)).then_some(*node)
        };
        self.far.nodes.iter().find_map(fits)
    }
}
