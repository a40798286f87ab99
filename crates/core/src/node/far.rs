//! What is between this node and others (docs/internals/far.md).

use hoplo_base::{NodeNumber, ProcessId};
use hoplo_wire::node::{Obituary, ToClient};
use hoplo_wire::peer::Peer;

use super::{Effect, Node, Passing};
use crate::control::NodeEntry;

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
}
