//! Logs of actors with checkpoints, at their home: from what another process becomes what such an actor was.
//!
//! ```text
//!   worker                                   home (this machine)
//!     takes a call --------- CallLogged ---->  the log: calls in the order in which they ran
//!     runs it      <-------- CallsLogged ----  (only if the actor may outlive a node)
//!     replies
//!     checkpoint() --------- Checkpointed -->  the log up to there goes
//!     dies                                     its next worker is sent checkpoint and log:
//!                                              constructor, restore(state), the calls again, then ActorStarted
//! ```
//!
//! The frames are kept here, and not by their callers until the next checkpoint, as CLUSTER.md, section 7, and the OSDI paper have it. So
//! a caller may die, or its node, after its call: what others saw of its effects stays true. It costs the frame's bytes once more, in
//! a message that is sent anyway for the order.
//!
//! The log of an actor that may outlive a node lies at two nodes, and the heir of a home that dies goes on with the other one (`Taken`):
//! - The actor's node, if that is another one than its home, has what it passed on (`node/far/keepers`).
//! - Else the home's keeper has it, which the home tells what the log gains (`elsewhere`).
//!
//! So its replies wait for `CallsLogged`, and each call that was acknowledged is at both. A node that was declared dead is heard no more: none of
//! its calls is logged, so none of its replies leaves it. An actor that ends with its home has one log, and its replies do not wait: what its worker
//! wrote to its socket before it wrote the reply is read when it is dead (as for REF-4).
//!
//! Who drops duplicates is the worker: `core::worker::journal`. A call that was in flight when the worker died is sent again by its
//! caller. It is in the log, and was replayed, or it never ran.
//!
//! # Invariants
//! - REPLAY-1: the calls of a log follow its checkpoint: their indices go up by one from `upto + 1`.
//! - REPLAY-2: the home holds what the checkpoint and the calls of each log name, each object once for each of them.
//! - REPLAY-3: only the worker of the last incarnation that was sent a log adds to it.
//! - REPLAY-4: a log has no more than `REPLAY_LOG_BYTES_MAX`, so it fits a message with its checkpoint.
//! - REPLAY-5: see `elsewhere`.

mod elsewhere;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hoplo_base::limits::{REPLAY_LOG_BYTES_MAX, REPLAY_LOG_CALLS_MAX};
use hoplo_base::{ActorId, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::call::leave_node;
use hoplo_wire::node::{Checkpoint, LoggedCall, Replay};
use hoplo_wire::peer::Gained;

use self::elsewhere::Elsewhere;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It gets a worker: the log is that one's from now on. `waits`: its replies wait for `CallsLogged`.
    Begun {
        actor: ActorId,
        incarnation: u32,
        worker: ProcessId,
        waits: bool,
    },
    Logged {
        from: ProcessId,
        actor: ActorId,
        incarnation: u32,
        call: Box<LoggedCall>,
    },
    Checkpointed {
        actor: ActorId,
        incarnation: u32,
        checkpoint: Box<Checkpoint>,
    },
    /// The whole log of an actor, as another node knows it. `waits`: its worker, whose replies wait for `CallsLogged`.
    Taken {
        actor: ActorId,
        incarnation: u32,
        replay: Box<Replay>,
        waits: Option<ProcessId>,
    },
    /// A node has done all that it was told of this actor up to this word.
    Kept {
        actor: ActorId,
        node: NodeNumber,
        word: u64,
    },
    NodeGone {
        node: NodeNumber,
    },
    /// It is dead for good.
    Ended {
        actor: ActorId,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// `CallsLogged`
    Acknowledge {
        to: ProcessId,
        upto: u64,
    },
    /// `KeepLog`
    Keep {
        to: NodeNumber,
        actor: ActorId,
        incarnation: u32,
        gained: Gained,
        word: u64,
    },
    NodeHold {
        objects: Vec<ObjectId>,
    },
    NodeRelease {
        objects: Vec<ObjectId>,
    },
    Violation {
        process: ProcessId,
        what: String,
    },
}

#[derive(Debug, Default)]
pub struct ReplayLogs {
    logs: BTreeMap<ActorId, Log>,
}

#[derive(Debug, Default)]
struct Log {
    incarnation: u32,
    replay: Replay,
    bytes: usize,
    /// Its worker, if replies wait.
    waits: Option<ProcessId>,
    elsewhere: Elsewhere,
}

impl ReplayLogs {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Begun { actor, incarnation, worker, waits } => {
                let log = self.logs.entry(actor).or_default();
                assert!(log.incarnation <= incarnation, "REPLAY-3: {actor} goes back");
                log.incarnation = incarnation;
                log.waits = Some(worker).filter(|_| waits);
            }
            Event::Logged { from, actor, incarnation, call } => {
                self.on_logged(from, actor, incarnation, *call, effects);
            }
            Event::Checkpointed { actor, incarnation, checkpoint } => {
                self.on_checkpointed(actor, incarnation, *checkpoint, effects);
            }
            Event::Taken { actor, incarnation, replay, waits } => {
                self.handle(Event::Ended { actor }, effects);
                if !replay.contains().is_empty() {
                    effects.push(Effect::NodeHold { objects: replay.contains() });
                }
                let bytes = replay.calls.iter().map(LoggedCall::bytes).sum();
                let (replay, elsewhere) = (*replay, Elsewhere::default());
                self.logs.insert(actor, Log { incarnation, replay, bytes, waits, elsewhere });
            }
            Event::Kept { actor, node, word } => {
                if let Some(log) = self.logs.get_mut(&actor) {
                    log.elsewhere.confirmed(node, word);
                    log.acknowledge(effects);
                }
            }
            Event::NodeGone { node } => {
                for log in self.logs.values_mut() {
                    log.elsewhere.gone(node);
                    log.acknowledge(effects);
                }
            }
            Event::Ended { actor } => {
                if let Some(log) = self.logs.remove(&actor) {
                    release(log.replay.contains(), effects);
                }
            }
        }
    }

    /// From what its next worker starts.
    pub fn replay(&self, actor: ActorId) -> Option<Box<Replay>> {
        self.logs.get(&actor).map(|log| Box::new(log.replay.clone()))
    }

    /// Its worker has its order, or goes on under a new home: what lies wherever it has to is acknowledged once more.
    pub fn acknowledge_again(&mut self, actor: ActorId, effects: &mut Vec<Effect>) {
        let Some(log) = self.logs.get(&actor) else { return };
        if let (Some(to), upto @ 1..) = (log.waits, log.safe()) {
            effects.push(Effect::Acknowledge { to, upto });
        }
    }

    /// A node is told of this actor: from now on it keeps the log, as it is now, or lets it go. 0: there is no log, and no word of that node is needed.
    pub fn tells(&mut self, actor: ActorId, node: NodeNumber, keeps: Option<u32>) -> u64 {
        let Some(incarnation) = keeps else {
            return self.logs.get_mut(&actor).map_or(0, |log| log.elsewhere.lets_go(node));
        };
        let new = || Log { incarnation, ..Log::default() };
        self.logs.entry(actor).or_insert_with(new).elsewhere.keeps(node)
    }

    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// REPLAY-1, REPLAY-4.
    pub fn check(&self) {
        for (actor, log) in &self.logs {
            let first = log.replay.checkpoint.as_ref().map_or(0, |one| one.upto) + 1;
            for (index, call) in (first..).zip(&log.replay.calls) {
                assert_eq!(call.index, index, "REPLAY-1: {actor}");
            }
            let bytes: usize = log.replay.calls.iter().map(LoggedCall::bytes).sum();
            assert_eq!(bytes, log.bytes, "{actor}");
            assert!(bytes <= REPLAY_LOG_BYTES_MAX, "REPLAY-4: {actor}");
        }
    }

    fn on_logged(
        &mut self,
        from: ProcessId,
        actor: ActorId,
        incarnation: u32,
        mut call: LoggedCall,
        effects: &mut Vec<Effect>,
    ) {
        // It died, or its worker did, while this was on its way.
        let Some(log) = self.log_of(actor, incarnation) else { return };
        let bytes = call.bytes();
        let what = if call.index != log.last() + 1 {
            Some(format!("logs call {} of {actor} behind call {}", call.index, log.last()))
        } else if log.bytes + bytes > REPLAY_LOG_BYTES_MAX
            || log.replay.calls.len() >= REPLAY_LOG_CALLS_MAX
        {
            Some(format!("logs more calls of {actor} than a log takes"))
        } else {
            // A location means something there and now only.
            let malformed = leave_node(&mut call.frame).err();
            malformed.map(|error| format!("logs a call of {actor} that cannot be read: {error}"))
        };
        if let Some(what) = what {
            effects.push(Effect::Violation { process: from, what });
            return;
        }
        log.bytes += bytes;
        if !call.contains.is_empty() {
            effects.push(Effect::NodeHold { objects: call.contains.clone() });
        }
        if let Some((to, word)) = log.elsewhere.logs(call.index) {
            let gained = Gained::Call(Box::new(call.clone()));
            effects.push(Effect::Keep { to, actor, incarnation, gained, word });
        }
        log.replay.calls.push(call);
        log.acknowledge(effects);
    }

    fn on_checkpointed(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        checkpoint: Checkpoint,
        effects: &mut Vec<Effect>,
    ) {
        let Some(log) = self.log_of(actor, incarnation) else { return };
        if !checkpoint.contains.is_empty() {
            effects.push(Effect::NodeHold { objects: checkpoint.contains.clone() });
        }
        if let Some(to) = log.elsewhere.keeper() {
            // Whoever has the calls before it needs no checkpoint to be believed: no word is awaited.
            let (gained, word) = (Gained::Checkpoint(Box::new(checkpoint.clone())), 0);
            effects.push(Effect::Keep { to, actor, incarnation, gained, word });
        }
        let behind = log.replay.calls.partition_point(|call| call.index <= checkpoint.upto);
        let calls = log.replay.calls.split_off(behind);
        let calls = std::mem::replace(&mut log.replay.calls, calls);
        let before = Replay { checkpoint: log.replay.checkpoint.replace(checkpoint), calls };
        log.bytes -= before.calls.iter().map(LoggedCall::bytes).sum::<usize>();
        release(before.contains(), effects);
    }

    /// REPLAY-3
    fn log_of(&mut self, actor: ActorId, incarnation: u32) -> Option<&mut Log> {
        self.logs.get_mut(&actor).filter(|log| log.incarnation == incarnation)
    }
}

impl Log {
    fn last(&self) -> u64 {
        self.replay.last()
    }

    /// Up to this call it lies wherever it has to.
    fn safe(&self) -> u64 {
        self.elsewhere.safe(self.last())
    }

    fn acknowledge(&mut self, effects: &mut Vec<Effect>) {
        let last = self.last();
        if let (Some(to), Some(upto)) = (self.waits, self.elsewhere.newly_safe(last)) {
            effects.push(Effect::Acknowledge { to, upto });
        }
    }
}

fn release(objects: Vec<ObjectId>, effects: &mut Vec<Effect>) {
    if !objects.is_empty() {
        effects.push(Effect::NodeRelease { objects });
    }
}
