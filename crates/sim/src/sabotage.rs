//! Proof that the checks can fail: the world breaks a promise on purpose, and some seed must show it.
//!
//! Each stands for a rule of the machines that would be missing: what they decide is undone where it is carried out.

use std::time::Duration;

use hoplo_base::ProcessId;
use hoplo_core::session::Event;
use hoplo_wire::Value;
use hoplo_wire::node::{ToClient, ToNode};

use crate::cluster::{Cluster, Step};
use crate::faults::Plan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// What was spilled is read in the store again, and waits for room there: for that which others hold who
    /// wait for the same.
    ArgumentsWaitForRoom,
    /// That an object cannot be read now becomes its value.
    PassingFailureStays,
    /// A worker that waits keeps its CPU.
    NothingIsLent,
    /// Nobody hears that he is to run the tasks of the dead.
    NobodyAdopts,
    /// What lies in the sockets is not read before it is decided what is lost.
    SweepsReadNothing,
    /// A process's end is not told to the questions that wait for it.
    DeadAreAwaited,
}

impl Sabotage {
    /// The seed gets what it needs to show.
    pub fn suits(self, plan: &mut Plan) {
        match self {
            Self::ArgumentsWaitForRoom => {
                (plan.spill, plan.capacity_bytes) = (true, 3 << 20);
                plan.head_dies_at = None;
            }
            Self::PassingFailureStays => {
                (plan.spill, plan.capacity_bytes) = (true, 3 << 20);
                (plan.disk_failures, plan.kills) = (true, 1000);
                plan.head_dies_at = None;
            }
            Self::NobodyAdopts => {
                plan.kills = plan.kills.clamp(2, 4);
                plan.head_dies_at = None;
            }
            Self::SweepsReadNothing => {
                plan.kills = plan.kills.clamp(2, 4);
                plan.head_dies_at = None;
            }
            Self::DeadAreAwaited => {
                plan.kills = plan.kills.clamp(2, 4);
                plan.head_dies_at = None;
            }
            Self::NothingIsLent => plan.head_dies_at = None,
        }
    }
}

impl Cluster {
    /// Whether a message to the daemon gets lost.
    pub fn sabotage_loses(&self, message: &ToNode) -> bool {
        let lends = matches!(message, ToNode::Blocked | ToNode::Unblocked);
        self.sabotage == Some(Sabotage::NothingIsLent) && lends
    }

    /// What a process hears instead; `None`: nothing.
    pub fn sabotage_hears(&self, event: Event) -> Option<Event> {
        match (self.sabotage, event) {
            (Some(Sabotage::PassingFailureStays), Event::Unreadable { object, failure }) => {
                Some(Event::Ready { object, value: Value::Failed(failure), contains: vec![] })
            }
            (Some(Sabotage::NobodyAdopts), Event::Adopt { .. }) => None,
            (_, event) => Some(event),
        }
    }

    /// True: a question that waited for the dead alone goes on waiting.
    pub fn sabotage_keeps_answer(&self) -> bool {
        self.sabotage == Some(Sabotage::DeadAreAwaited) && self.daemon.reads_an_end
    }

    /// True: what is read would need room that others hold, and waits.
    pub fn sabotage_waits_for_room(&mut self, ticket: u64) -> bool {
        let waits = self.sabotage == Some(Sabotage::ArgumentsWaitForRoom)
            && self.memory.pinned_bytes() + self.memory.filling_bytes(ticket)
                > self.plan.capacity_bytes;
        if waits {
            self.after(Duration::from_millis(1), Step::DiskRead(ticket));
        }
        waits
    }

    /// A process that is told something, for the rule that a failure to read is told to who waits.
    pub fn hears_of_failed_read(&mut self, id: ProcessId, message: &ToClient) {
        if let ToClient::Unreadable { object, .. } = message {
            self.count("failed reads that were told");
            self.books.unreadable(id, *object);
        }
    }
}
