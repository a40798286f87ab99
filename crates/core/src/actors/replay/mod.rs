//! Logs of actors with checkpoints, at their home: from what another process becomes what such an actor was.
//!
//! ```text
//!   worker                                   home (this machine)
//!     takes a call --------- CallLogged ---->  the log: calls in the order in which they ran
//!     runs it      <-------- CallsLogged ----  (only if the home is another node)
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
//! Where the actor's node is its home, no reply waits: what its worker wrote to its socket before it wrote the reply is read when it is
//! dead (as for REF-4). Where it is another one, both may be lost with the node, so the reply waits for `CallsLogged`. A node that was
//! declared dead is heard no more: none of its calls is logged, so none of its replies leaves it.
//!
//! The node of the actor, if that is another one than its home, has a copy of the log (`node/far/legacies`): it passes on all that is in it. The heir of a
//! home that dies goes on with that copy (`Taken`). Each call that was acknowledged is in it.
//!
//! Who drops duplicates is the worker: `core::worker::journal`. A call that was in flight when the worker died is sent again by its
//! caller. It is in the log, and was replayed, or it never ran.
//!
//! # Invariants
//! - REPLAY-1: the calls of a log follow its checkpoint: their indices go up by one from `upto + 1`.
//! - REPLAY-2: the home holds what the checkpoint and the calls of each log name, each object once for each of them.
//! - REPLAY-3: only the worker of the last incarnation that was sent a log adds to it.
//! - REPLAY-4: a log has no more than `REPLAY_LOG_BYTES_MAX`, so it fits a message with its checkpoint.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hoplo_base::limits::{REPLAY_LOG_BYTES_MAX, REPLAY_LOG_CALLS_MAX};
use hoplo_base::{ActorId, ObjectId, ProcessId};
use hoplo_wire::call::leave_node;
use hoplo_wire::node::{Checkpoint, LoggedCall, Replay};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It gets a worker: the log is that one's from now on.
    Begun {
        actor: ActorId,
        incarnation: u32,
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
    /// The whole log of an actor, as another node knows it.
    Taken {
        actor: ActorId,
        incarnation: u32,
        replay: Box<Replay>,
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
}

impl ReplayLogs {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Begun { actor, incarnation } => {
                let log = self.logs.entry(actor).or_default();
                assert!(log.incarnation <= incarnation, "REPLAY-3: {actor} goes back");
                log.incarnation = incarnation;
            }
            Event::Logged { from, actor, incarnation, call } => {
                self.on_logged(from, actor, incarnation, *call, effects);
            }
            Event::Checkpointed { actor, incarnation, checkpoint } => {
                self.on_checkpointed(actor, incarnation, *checkpoint, effects);
            }
            Event::Taken { actor, incarnation, replay } => {
                self.handle(Event::Ended { actor }, effects);
                if !replay.contains().is_empty() {
                    effects.push(Effect::NodeHold { objects: replay.contains() });
                }
                let bytes = replay.calls.iter().map(LoggedCall::bytes).sum();
                self.logs.insert(actor, Log { incarnation, replay: *replay, bytes });
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

    /// The index of the last call in its log.
    pub fn last(&self, actor: ActorId) -> Option<u64> {
        self.logs.get(&actor).map(Log::last)
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
        let upto = call.index;
        log.replay.calls.push(call);
        if from.node() != actor.0.owner.node() {
            effects.push(Effect::Acknowledge { to: from, upto });
        }
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
    /// The index of the last call that is known.
    fn last(&self) -> u64 {
        let upto = self.replay.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.upto);
        self.replay.calls.last().map_or(upto, |call| call.index)
    }
}

fn release(objects: Vec<ObjectId>, effects: &mut Vec<Effect>) {
    if !objects.is_empty() {
        effects.push(Effect::NodeRelease { objects });
    }
}
