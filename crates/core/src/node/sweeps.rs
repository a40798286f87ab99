//! What waits until all that lay in all sockets was read (REF-5).

use hoplo_base::{FunctionId, JobId, NodeNumber, ProcessId};
use hoplo_wire::node::Tell;

use super::fetcher::Fetcher;
use super::queries::{Asker, Here};
use super::{Effect, Node};
use crate::actors::life;
use crate::claims::Epoch;
use crate::objects;

#[derive(Debug, Default)]
pub(super) struct Sweeps {
    wanted: Batch,
    /// What the sweep that is under way answers.
    under_way: Option<Batch>,
    /// The shell was asked for a sweep that has not begun.
    asked: bool,
}

#[derive(Debug, Default)]
struct Batch {
    deferred: Vec<Deferred>,
    /// The directory's.
    sweep: Option<u64>,
}

/// A question about something that may lie unread in another socket.
#[derive(Debug)]
pub(super) enum Deferred {
    Actors(life::Event),
    Fetch {
        fetcher: Fetcher,
        function: FunctionId,
    },
    Tell {
        from: ProcessId,
        to: ProcessId,
        message: Tell,
    },
    /// Of people and programs, about what the daemon's tables say.
    Question {
        asker: Asker,
        request: u64,
        here: Here,
        asks_all: bool,
    },
    /// The claims'.
    Claims,
    /// What processes wrote before the death of this epoch was heard of is told to the heirs.
    Estates(Epoch),
    FarFetch {
        node: NodeNumber,
        job: JobId,
        function: FunctionId,
    },
    /// The worker is dead, and the carrier was told so: it has handed over its last replies when it has taken all that lies in rings.
    Replies {
        worker: ProcessId,
        caller: ProcessId,
    },
}

impl Sweeps {
    fn deferred(&self) -> impl Iterator<Item = &Deferred> {
        let batches = std::iter::once(&self.wanted).chain(&self.under_way);
        batches.flat_map(|batch| &batch.deferred)
    }

    /// Of dead workers, whose last replies may not have left.
    pub(super) fn ended_replies(&self) -> impl Iterator<Item = (ProcessId, ProcessId)> {
        self.deferred().filter_map(|deferred| match deferred {
            Deferred::Replies { worker, caller } => Some((*worker, *caller)),
            _ => None,
        })
    }

    pub(super) fn defer(&mut self, deferred: Deferred) {
        self.wanted.deferred.push(deferred);
    }

    pub(super) fn want(&mut self, sweep: u64) {
        let other = self.wanted.sweep.replace(sweep);
        assert!(other.is_none(), "the directory has one sweep under way at a time");
    }

    pub(super) fn begin(&mut self) {
        self.asked = false;
        let batch = std::mem::take(&mut self.wanted);
        let other = self.under_way.replace(batch);
        assert!(other.is_none(), "a sweep begins while another one is under way");
    }
}

impl Node {
    /// `on_swept_question` comes after a sweep.
    pub(super) fn sweep_before_question(
        &mut self,
        asker: Asker,
        request: u64,
        here: Here,
        asks_all: bool,
    ) {
        self.sweeps.defer(Deferred::Question { asker, request, here, asks_all });
    }

    /// Questions that are answered after a sweep.
    pub fn questions_before_sweep(&self) -> impl Iterator<Item = (Asker, u64)> {
        self.sweeps.deferred().filter_map(|deferred| match deferred {
            Deferred::Question { asker, request, .. } => Some((*asker, *request)),
            _ => None,
        })
    }

    pub(super) fn on_swept(&mut self) {
        let batch = self.sweeps.under_way.take().expect("a sweep has begun");
        for deferred in batch.deferred {
            match deferred {
                Deferred::Actors(event) => self.pass_to_actors(event),
                Deferred::Fetch { fetcher, function } => self.fetch(fetcher, function, true),
                Deferred::Tell { from, to, message } => self.tell(from, to, message),
                Deferred::Question { asker, request, here, asks_all } => {
                    self.on_swept_question(asker, request, here, asks_all);
                }
                // After the directory's, below: what it gives up by that is given up with the next one.
                Deferred::Claims => self.claims_swept(),
                Deferred::Estates(epoch) => self.estates_swept(epoch),
                Deferred::FarFetch { node, job, function } => {
                    self.fetch_for_node(node, job, function, true);
                }
                Deferred::Replies { worker, caller } => self.replies_ended(caller, worker),
            }
            self.work_off_queue();
        }
        if let Some(sweep) = batch.sweep {
            self.pass_to_objects(objects::Event::Swept { sweep });
        }
    }

    /// Once for all that wants one before it begins.
    pub(super) fn ask_for_sweep(&mut self) {
        let Batch { deferred, sweep } = &self.sweeps.wanted;
        let wanted = !deferred.is_empty() || sweep.is_some();
        if wanted && !self.sweeps.asked && self.sweeps.under_way.is_none() {
            self.sweeps.asked = true;
            self.out.push(Effect::Sweep);
        }
    }
}
