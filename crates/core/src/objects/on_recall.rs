//! Memory that processes have been granted and do not use, when it is short: who is asked for it, and for whose
//! answer a request waits.
//!
//! ```text
//!                     recall                  all was returned
//!   owes nothing ---------------> owes -----------------------------> owes nothing
//!                                   |  answered, with less: it keeps the rest
//!                                   |  dead: what it had is free
//!                                   +-------------------------------> owes nothing
//! ```
//! A process **answers** each recall: it returns what it can, in any number of pieces, and then says that this was
//! all. A request waits while somebody owes room, and goes on at once when nobody does.
//! - Who does not answer is waited for until `recall_grace` after it was last asked. While it owes, it is not
//!   asked for idle memory again: a process that is stopped delays one request, and not each. (It is asked for
//!   what comes free in its extents; else more would be spilled, in place of what is about to come back.)
//! - Who gave less than was asked has no more: what looks idle here is being written there. So it **keeps** that,
//!   and is not asked for it again, but for what came free there or was granted beyond what it wanted. It may give
//!   up what it was writing, which nobody hears: so this lasts for `recall_again`.
//!
//! What comes free in a process's extents while somebody waits is asked for at once. Only whole pages count: what
//! lies between two objects in one page nobody can return.

use hoplo_base::{Instant, ProcessId};
use hoplo_wire::node::ToClient;

use super::ObjectDirectory;
use super::config::PAGE;
use super::estate::Estate;
use super::event::Effect;

/// What one process was asked for.
#[derive(Debug, Default)]
pub(super) struct Recall {
    /// Recalls that it has not answered.
    unanswered: u32,
    /// Of what these asked for, what it did not return.
    due_bytes: u64,
    /// For so long a request waits for what is due.
    until: Instant,
    /// Until then, it is not asked for what it keeps.
    keeps_until: Instant,
}

impl Recall {
    pub(super) fn is_sound(&self) -> bool {
        self.unanswered > 0 || self.due_bytes == 0
    }

    /// What the process can be asked for, bytes.
    fn of(&self, estate: &Estate, now: Instant) -> u64 {
        if self.due_bytes > 0 {
            0
        } else if now < self.keeps_until {
            estate.fresh_bytes()
        } else {
            estate.idle_bytes()
        }
    }
}

impl ObjectDirectory {
    /// The process has returned what it could.
    pub(super) fn on_extent_recalled(&mut self, from: ProcessId, effects: &mut Vec<Effect>) {
        let Some(recall) = self.recalls.get_mut(&from).filter(|it| it.unanswered > 0) else {
            let what = "answered a recall of room, and was sent none".to_string();
            return self.violation(from, what, effects);
        };
        recall.unanswered -= 1;
        if recall.unanswered == 0 && recall.due_bytes > 0 {
            recall.due_bytes = 0;
            recall.keeps_until = self.now + self.config.recall_again;
            self.memory.keep(from);
        }
    }

    /// The process returned so much, asked or not.
    pub(super) fn came_back(&mut self, from: ProcessId, bytes: u64) {
        if let Some(recall) = self.recalls.get_mut(&from) {
            recall.due_bytes = recall.due_bytes.saturating_sub(bytes);
        }
    }

    /// While somebody waits for room, a process does not keep what just came free in its extents.
    pub(super) fn recall_what_came_free(
        &mut self,
        process: ProcessId,
        bytes: u64,
        effects: &mut Vec<Effect>,
    ) {
        if bytes > 0 && !self.requests.is_empty() {
            self.recall(process, bytes, effects);
        }
    }

    /// Asks those that have most idle memory in their extents for it.
    pub(super) fn recall_idle(&mut self, missing: u64, effects: &mut Vec<Effect>) {
        let never = Recall::default();
        let mut idle: Vec<(u64, ProcessId)> = (self.memory.estates())
            .filter(|(process, _)| self.processes.contains_key(process))
            .map(|(process, estate)| {
                let recall = self.recalls.get(&process).unwrap_or(&never);
                (recall.of(estate, self.now), process)
            })
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        idle.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = missing;
        for (bytes, process) in idle {
            let bytes = bytes.min(left.next_multiple_of(PAGE));
            self.recall(process, bytes, effects);
            left = left.saturating_sub(bytes);
            if left == 0 {
                break;
            }
        }
    }

    /// Until when somebody who owes room may be waited for; none if nobody may.
    pub(super) fn recalls_end(&self) -> Option<Instant> {
        let owing = self.recalls.values().filter(|recall| recall.due_bytes > 0);
        owing.map(|recall| recall.until).filter(|until| self.now < *until).max()
    }

    fn recall(&mut self, process: ProcessId, bytes: u64, effects: &mut Vec<Effect>) {
        let recall = self.recalls.entry(process).or_default();
        recall.unanswered += 1;
        recall.due_bytes += bytes;
        recall.until = self.now + self.config.recall_grace;
        let message = ToClient::ExtentRecall { bytes };
        effects.push(Effect::Send { to: process, message });
    }
}
