//! What is between this node and others (docs/internals/far.md).

use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::{Obituary, ToClient};
use hoplo_wire::peer::{FarValue, Peer};

use super::{Effect, Node, Passing};
use crate::control::NodeEntry;
use crate::objects;

impl Node {
    pub(super) fn on_peer(&mut self, _from: NodeNumber, _cover: u64, _message: Peer) {}

    pub(super) fn on_member(&mut self, _entry: NodeEntry, _index: u64) {}

    pub(super) fn on_passing(&mut self, ticket: u64, _frame: Passing) {
        self.out.push(Effect::Go { ticket, cover: 0 });
    }

    pub(super) fn on_channel_ended(
        &mut self,
        caller: ProcessId,
        worker: ProcessId,
        unstarted: Vec<u64>,
        obituary: Obituary,
    ) {
        self.send(caller, ToClient::ProcessGone { process: worker, obituary, unstarted });
    }

    // ---- what the directory has for other nodes ----

    /// The daemon's own party in the directory.
    pub(super) fn haul(&self) -> ProcessId {
        objects::haul(self.config.node)
    }

    pub(super) fn far_haul_told(&mut self, _message: ToClient) {}

    pub(super) fn far_foreign(&mut self, _object: ObjectId) {}

    pub(super) fn far_unforeign(&mut self, _object: ObjectId) {}

    /// There is no other node.
    pub(super) fn far_ask_home(&mut self, object: ObjectId) {
        let why = format!(
            "{object} is lost: the process that made it is gone, or every reference to it was dropped, before this one was \
             used"
        );
        self.pass_to_objects(objects::Event::Lost { object, why });
    }

    pub(super) fn far_pull(&mut self, _object: ObjectId, _bytes: u64, _copies: Vec<NodeNumber>) {}

    pub(super) fn far_tell_home(
        &mut self,
        _object: ObjectId,
        _bytes: u64,
        _contains: Vec<ObjectId>,
    ) {
    }

    pub(super) fn far_tell_copied(&mut self, _object: ObjectId) {}

    pub(super) fn far_tell_node(
        &mut self,
        _node: NodeNumber,
        _object: ObjectId,
        _value: FarValue,
        _contains: Vec<ObjectId>,
    ) {
    }

    pub(super) fn far_forget_copy(&mut self, _node: NodeNumber, _object: ObjectId) {}
}
