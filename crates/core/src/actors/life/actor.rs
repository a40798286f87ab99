//! One actor: what it waits for, where it runs, and how its watchers see it.

use hoplo_base::ProcessId;
use hoplo_wire::node::ActorState;

use super::{Actor, Effect, Stage, WAITS_FOR_WORKER};

impl Actor {
    pub(super) fn place(&self) -> Effect {
        Effect::Place {
            actor: self.spec.actor,
            incarnation: self.incarnation,
            job: self.job,
            shape: self.spec.shape.clone(),
            held: self.spec.held.clone(),
        }
    }

    pub(super) fn restarts_left(&self) -> u32 {
        match u32::try_from(self.spec.max_restarts) {
            Ok(max) => max.saturating_sub(self.incarnation - self.moved),
            Err(_) => u32::MAX,
        }
    }

    /// It may start again, and what its constructor needs is there.
    pub(super) fn can_move(&self) -> bool {
        let has_arguments = self.holds_arguments || self.spec.contains.is_empty();
        self.spec.max_restarts != 0 && has_arguments && self.cause.is_none() && !self.moving
    }

    pub(super) fn worker(&self) -> Option<ProcessId> {
        match self.stage {
            Stage::Starting { worker } | Stage::Alive { worker } => Some(worker),
            Stage::Placing { .. } | Stage::Dead { .. } => None,
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        matches!(self.stage, Stage::Dead { .. })
    }

    /// As its watchers see it.
    pub(super) fn state(&self) -> ActorState {
        let incarnation = self.incarnation;
        match (&self.stage, &self.restarts_because) {
            (Stage::Alive { worker }, _) => {
                let logs = self.spec.checkpoints.is_some();
                ActorState::Alive { incarnation, worker: *worker, logs }
            }
            (Stage::Dead { failure }, _) => ActorState::Dead { failure: failure.clone() },
            (Stage::Placing { .. } | Stage::Starting { .. }, Some(cause)) => {
                ActorState::Restarting { incarnation, cause: cause.clone() }
            }
            (Stage::Placing { reason, infeasible }, None) => {
                ActorState::Pending { reason: reason.clone(), infeasible: *infeasible }
            }
            (Stage::Starting { .. }, None) => {
                let reason = "its constructor runs".to_string();
                ActorState::Pending { reason, infeasible: false }
            }
        }
    }
}

impl Stage {
    pub(super) fn placing() -> Self {
        Stage::Placing { reason: WAITS_FOR_WORKER.to_string(), infeasible: false }
    }
}
