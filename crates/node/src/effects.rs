//! Carrying out what the machines decide: one function a machine, one arm an effect.

use hoplo_core::actors::life;
use hoplo_core::control::rows::actor_key;
use hoplo_core::control::{ActorEntry, ControlStore};
use hoplo_core::objects;
use hoplo_core::sched::{local, workers};
use hoplo_wire::node::{ActorState, Notice, ToClient};
use hoplo_wire::{Failure, FailureKind};

use crate::daemon::{Daemon, Deferred, Work};
use crate::journal;

impl Daemon {
    pub(crate) fn on_scheduler(&mut self, effect: local::Effect) {
        use local::Effect;
        match effect {
            Effect::AcquireWorker { lease, job, env, prefer } => {
                self.queue.push_back(Work::Pool(workers::Event::Wanted {
                    lease,
                    job,
                    env,
                    prefer,
                }));
            }
            Effect::CancelWorker { lease } => {
                self.queue.push_back(Work::Pool(workers::Event::Cancelled { lease }));
            }
            Effect::ReleaseWorker { worker } => {
                self.cages.release(worker);
                self.queue.push_back(Work::Pool(workers::Event::Released { worker }));
            }
            Effect::KillWorker { worker, owner } => {
                let reason = format!("{owner}, which it worked for, is gone");
                self.stop_process(worker, life::Manner::Exit, reason);
            }
            Effect::Grant { process, key, lease, worker, gpus } => {
                self.send(process, &ToClient::LeaseGranted { lease, key, worker, gpus });
                self.confine(worker);
            }
            Effect::PlaceActor { actor, incarnation, worker, gpus } => {
                let placed = life::Event::Placed { actor, incarnation, worker, gpus };
                self.queue.push_back(Work::Actors(placed));
                self.confine(worker);
            }
            Effect::Recall { process, lease } => {
                self.send(process, &ToClient::LeaseRecall { lease });
            }
            Effect::TellStuck { process, key, stuck } => {
                let infeasible = stuck.as_ref().is_some_and(|stuck| stuck.infeasible);
                let reason = stuck.map(|stuck| self.with_names(&stuck.reason));
                self.send(process, &ToClient::LeaseStuck { key, reason, infeasible });
            }
            Effect::TellActorStuck { actor, stuck } => {
                let infeasible = stuck.as_ref().is_some_and(|stuck| stuck.infeasible);
                let reason = stuck.map(|stuck| self.with_names(&stuck.reason));
                let stuck = life::Event::PlacementStuck { actor, reason, infeasible };
                self.queue.push_back(Work::Actors(stuck));
            }
            Effect::FailDemand { process, key, reason } => {
                let failure = Failure::new(FailureKind::RuntimeEnv, reason);
                self.send(process, &ToClient::LeaseFailed { key, failure });
            }
            Effect::FailActor { actor, incarnation, reason } => {
                let failed = life::Event::PlacementFailed { actor, incarnation, reason };
                self.queue.push_back(Work::Actors(failed));
            }
            Effect::TellBlocked { holder, worker } => {
                self.send(holder, &ToClient::WorkerBlocked { worker });
            }
        }
    }

    pub(crate) fn on_pool(&mut self, effect: workers::Effect) {
        use workers::Effect;
        match effect {
            Effect::Fork { attempt, job, env } => self.fork(attempt, job, &env),
            Effect::Assign { lease, worker } => {
                let assigned = local::Event::WorkerAssigned { lease, worker };
                self.queue.push_back(Work::Scheduler(assigned));
            }
            Effect::Fail { lease, reason } => {
                let failed = local::Event::WorkerFailed { lease, reason };
                self.queue.push_back(Work::Scheduler(failed));
            }
            Effect::Retire { worker, reason } => self.retire(worker, reason),
        }
    }

    pub(crate) fn on_actors(&mut self, effect: life::Effect) {
        use life::Effect;
        match effect {
            Effect::Place { actor, incarnation, job, shape, held } => {
                let waits = local::Event::ActorWaits { actor, incarnation, job, shape, held };
                self.queue.push_back(Work::Scheduler(waits));
            }
            Effect::Unplace { actor } => {
                self.queue.push_back(Work::Scheduler(local::Event::ActorGaveUp { actor }));
            }
            Effect::Run { actor: _, incarnation, worker, gpus, spec } => {
                self.send(worker, &ToClient::RunActor { spec, incarnation, gpus });
            }
            Effect::Settle { worker } => {
                self.queue.push_back(Work::Scheduler(local::Event::ActorStarted { worker }));
            }
            Effect::Stop { worker, manner, reason } => self.stop_process(worker, manner, reason),
            Effect::AnswerCreate { to, request, result } => {
                self.send(to, &ToClient::ActorCreated { request, result });
            }
            Effect::AnswerLookup { to, request, found } => {
                self.send(to, &ToClient::ActorFound { request, found });
            }
            Effect::Tell { to, actor, state } => {
                self.send(to, &ToClient::ActorState { actor, state });
            }
            Effect::AfterSweep(event) => self.after_sweep.push(Deferred::Actors(*event)),
            Effect::Hold { object, process } => {
                let notice = Notice::Hold { object, process };
                let noticed = objects::Event::Noticed { from: process, notice };
                self.queue.push_back(Work::Objects(noticed));
            }
            Effect::NodeHold { objects } => {
                self.queue.push_back(Work::Objects(objects::Event::NodeHeld { objects }));
            }
            Effect::NodeRelease { objects } => {
                self.queue.push_back(Work::Objects(objects::Event::NodeReleased { objects }));
            }
            Effect::Forget { actor } => {
                let gone = self.control.delete(&actor_key(actor));
                self.note_refusal(gone.err());
            }
            Effect::Save { actor } => {
                let row = self.actors.row(actor).expect("its row changed");
                let failure = match &row.state {
                    ActorState::Dead { failure } => Some(failure.clone()),
                    ActorState::Pending { .. }
                    | ActorState::Alive { .. }
                    | ActorState::Restarting { .. } => None,
                };
                self.save(&ActorEntry {
                    actor,
                    class_name: row.class_name,
                    name: row.name,
                    namespace: row.namespace,
                    job: row.job,
                    state: state_name(&row.state).to_string(),
                    incarnation: row.incarnation,
                    detached: row.detached,
                    handle: row.handle,
                    failure,
                    lost: row.lost,
                });
            }
        }
    }

    pub(crate) fn on_objects(&mut self, effect: objects::Effect) {
        use objects::Effect;
        match effect {
            Effect::Send { to, message: ToClient::ExtentDenied { request, failure } } => {
                let failure = Failure::new(failure.kind, self.with_names(&failure.text()));
                self.send(to, &ToClient::ExtentDenied { request, failure });
            }
            Effect::Send { to, message } => self.send(to, &message),
            Effect::Welcome { process, slots } => self.welcome(process, slots),
            Effect::Sweep { sweep } => self.sweep_asked = Some(sweep),
            Effect::Free { attempt, object: _, location } => {
                let result = self.store.free(location, self.slots.taken());
                self.queue.push_back(Work::Objects(objects::Event::Freed { attempt, result }));
            }
            Effect::Spill { attempt, object: _, location } => {
                if let Some(result) = self.store.spill(attempt, location, self.slots.taken()) {
                    let spilled = objects::Event::Spilled { attempt, result };
                    self.queue.push_back(Work::Objects(spilled));
                }
            }
            Effect::Restore { attempt, object: _, place, offset, slot } => {
                self.store.restore(attempt, place, offset, slot);
            }
            Effect::Forget { place } => self.store.forget(place),
            Effect::ResetSlots { slots } => self.store.reset_slots(&slots),
            Effect::Punch { offset, len } => {
                if let Err(error) = self.store.punch(offset, len) {
                    journal::log(format_args!("memory was not given back: {error}"));
                }
            }
            Effect::ActorUnreachable { actor } => {
                self.queue.push_back(Work::Actors(life::Event::Unreachable { actor }));
            }
            Effect::Violation { process, what } => self.violation_of(process, &what),
        }
    }
}

pub(crate) fn state_name(state: &ActorState) -> &'static str {
    match state {
        ActorState::Pending { .. } => "PENDING",
        ActorState::Alive { .. } => "ALIVE",
        ActorState::Restarting { .. } => "RESTARTING",
        ActorState::Dead { .. } => "DEAD",
    }
}
