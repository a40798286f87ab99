//! Tasks that found no room at a node for their result or an argument run again, at another one if there is one.
//!
//! ```text
//!   worker: no room --reply (REPLY_NO_ROOM)--> caller: leases of the shape at that node go back, the task is Queued
//! ```
//! The node says with its load that it is full, so the next lease is of another node, as long as there is one that could run the task. Its
//! arguments that lie at the full node do not draw it there again. A run costs a retry, as the death of a worker does, and there are at most
//! `TURNED_AWAY_MAX` of them: where all nodes are full, the task fails soon.
//!
//! What is bound to its node fails at once: a method, a task of a placement group, or one with an affinity.

use hoplo_base::bundles::group_of;
use hoplo_base::limits::TURNED_AWAY_MAX;
use hoplo_base::{Instant, NodeNumber, ProcessId};
use hoplo_wire::node::Strategy;

use super::shapes::Wanted;
use super::tasks::Task;
use super::{Effect, SessionMachine};

impl Task {
    pub(super) fn may_run_elsewhere(&self) -> bool {
        let shape = &self.call.options.shape;
        self.actor.is_none()
            && self.turned_away < TURNED_AWAY_MAX
            && !matches!(shape.strategy, Strategy::Node { .. })
            && group_of(&shape.resources).is_none()
    }
}

impl SessionMachine {
    /// Before it runs again: `worker`, which it ran in, and others of that node take no more of its shape.
    #[cold]
    pub(super) fn leave_for_room(
        &mut self,
        now: Instant,
        seq: u64,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        let node = worker.node();
        let task = self.tasks.get_mut(&seq).expect("the caller has it");
        task.turned_away += 1;
        let (name, node_id) = (&task.call.options.name, node.hex());
        let line =
            format!("{name} runs again: node {node_id} has no room for what it reads or makes");
        effects.push(Effect::Warn { line });
        self.draws_no_more(seq, node);
        if let Some(at) = self.workers.get(&worker) {
            self.return_leases_at(now, at.key, node, effects);
        }
    }

    fn return_leases_at(
        &mut self,
        now: Instant,
        key: u32,
        node: NodeNumber,
        effects: &mut Vec<Effect>,
    ) {
        let mut leases = Vec::new();
        // First all of them: what one gives back is not for the next one.
        for lease in &mut self.shapes[key as usize].leases {
            if lease.worker.node() == node {
                let before = lease.is_reason();
                lease.wanted = Wanted::Others;
                self.reasons += u64::from(lease.is_reason()) - u64::from(before);
                leases.push(lease.id);
            }
        }
        for lease in leases {
            self.lease_recalled(now, lease, effects);
        }
    }
}
