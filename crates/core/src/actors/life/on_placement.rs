//! From a claim for a worker until the constructor has returned.

use hoplo_base::{ActorId, ProcessId};
use hoplo_wire::Failure;

use super::{ActorTable, Effect, Manner, Stage, WAITS_FOR_WORKER};

impl ActorTable {
    pub(super) fn on_placement_stuck(
        &mut self,
        id: ActorId,
        stuck: Option<String>,
        now_infeasible: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if let Stage::Placing { reason, infeasible } = &mut actor.stage {
            *reason = stuck.unwrap_or_else(|| WAITS_FOR_WORKER.to_string());
            *infeasible = now_infeasible;
            self.changed(id, effects);
        }
    }

    pub(super) fn on_placement_failed(
        &mut self,
        id: ActorId,
        incarnation: u32,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.get(&id) else { return };
        if actor.incarnation == incarnation && matches!(actor.stage, Stage::Placing { .. }) {
            let text = format!("{} could not start: {}", self.title(id), failure.text());
            self.bury(id, Failure::new(failure.kind, text), effects);
        }
    }

    pub(super) fn on_placed(
        &mut self,
        id: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
        effects: &mut Vec<Effect>,
    ) {
        let actor = self.actors.get_mut(&id);
        let waits = actor.filter(|actor| {
            actor.incarnation == incarnation && matches!(actor.stage, Stage::Placing { .. })
        });
        // It was killed while its worker was on the way: the worker is of no use to anybody else.
        let Some(actor) = waits else {
            let reason = "its actor was killed before it started".to_string();
            effects.push(Effect::Stop { worker, manner: Manner::Finish, reason });
            return;
        };
        actor.stage = Stage::Starting { worker };
        let spec = actor.spec.clone();
        self.by_worker.insert(worker, id);
        effects.push(Effect::Run { actor: id, incarnation, worker, gpus, spec });
        self.changed(id, effects);
    }

    pub(super) fn on_started(
        &mut self,
        worker: ProcessId,
        id: ActorId,
        incarnation: u32,
        result: Result<(), Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if actor.incarnation != incarnation || actor.stage != (Stage::Starting { worker }) {
            return;
        }
        match result {
            Ok(()) => {
                actor.stage = Stage::Alive { worker };
                effects.push(Effect::FinishStart { worker });
                // One that moves needs them where it starts next.
                if actor.restarts_left() == 0 && !actor.moving {
                    self.release_arguments(id, effects);
                }
                self.changed(id, effects);
            }
            Err(failure) => {
                let reason = "its constructor raised".to_string();
                effects.push(Effect::Stop { worker, manner: Manner::Finish, reason });
                self.bury(id, failure, effects);
            }
        }
    }
}
