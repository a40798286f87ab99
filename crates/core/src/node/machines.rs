//! What the machines decide, carried out or handed on: one function a machine, one arm an effect.

use hoplo_base::ProcessId;
use hoplo_wire::node::{ActorState, Notice, ToClient};
use hoplo_wire::peer::Peer;
use hoplo_wire::{Failure, FailureKind, Reason};

use super::process::Kind;
use super::recall::actor_entry;
use super::sweeps::Deferred;
use super::{Effect, Node};
use crate::actors::{life, replay};
use crate::control::rows::actor_key;
use crate::objects;
use crate::sched::claim::{Claimant, Stuck};
use crate::sched::{environments, local, workers};

impl Node {
    pub(super) fn on_scheduler(&mut self, effect: local::Effect) {
        use local::Effect as From;
        match effect {
            From::AcquireWorker { lease, job, env, gpus, prefer } => {
                self.pass_to_pool(workers::Event::Wanted { lease, job, env, gpus, prefer });
            }
            From::MakeEnvironment { python } => {
                self.pass_to_environments(environments::Event::Wanted { python });
            }
            From::CancelWorker { lease } => self.pass_to_pool(workers::Event::Cancelled { lease }),
            From::ReleaseWorker { worker } => {
                self.out.push(Effect::Unconfine { process: worker });
                self.pass_to_pool(workers::Event::Released { worker });
            }
            From::KillWorker { worker, owner } => {
                let reason = format!("{owner}, which it worked for, is gone");
                self.stop_process(worker, life::Manner::Exit, reason);
            }
            From::Grant { process, key, lease, worker, gpus } => {
                if !self.is_far(process.node()) {
                    self.granted_at(Claimant::Demand { process, key }, self.me());
                }
                self.send(process, ToClient::LeaseGranted { lease, key, worker, gpus });
                self.confine(worker);
            }
            From::PlaceActor { actor, incarnation, worker, gpus } => {
                match self.is_far(self.charge_of(actor)) {
                    true => self.placed_for_home(actor, incarnation, worker, gpus),
                    false => self.actor_placed(self.me(), actor, incarnation, worker, gpus),
                }
                self.confine(worker);
            }
            From::Recall { process, lease } => self.send(process, ToClient::LeaseRecall { lease }),
            From::WantIdle { process, key } => {
                self.send(process, ToClient::LeaseIdleWanted { key });
            }
            From::TellStuck { process, key, stuck } => {
                if !self.is_far(process.node()) {
                    return self.stuck_here(Claimant::Demand { process, key }, stuck);
                }
                let (reason, infeasible) = self.told(stuck);
                self.send(process, ToClient::LeaseStuck { key, reason, infeasible });
            }
            From::TellActorStuck { actor, stuck } => {
                let home = self.charge_of(actor);
                if !self.is_far(home) {
                    return self.stuck_here(self.claim_of(actor), stuck);
                }
                let (reason, infeasible) = self.told(stuck);
                self.send_peer(home, Peer::ActorStuck { actor, reason, infeasible });
            }
            From::FailDemand { process, key, failure } => {
                if !self.is_far(process.node()) {
                    self.failed_at(Claimant::Demand { process, key }, self.me());
                }
                self.send(process, ToClient::LeaseFailed { key, failure });
            }
            From::FailActor { actor, incarnation, failure } => {
                let home = self.charge_of(actor);
                if self.is_far(home) {
                    self.send_peer(home, Peer::ActorNotPlaced { actor, incarnation, failure });
                } else {
                    self.actor_not_placed(self.me(), actor, incarnation, failure);
                }
            }
            From::TellBlocked { holder, worker } => {
                self.send(holder, ToClient::WorkerBlocked { worker });
            }
            From::AnswerBundles { group, attempt, refused } => {
                self.on_bundles_answered(group, attempt, refused);
            }
            From::EndWorker { worker, group } => self.end_worker_of_group(worker, group),
        }
    }

    pub(super) fn told(&self, stuck: Option<Stuck>) -> (Option<String>, bool) {
        let infeasible = stuck.as_ref().is_some_and(|stuck| stuck.infeasible);
        (stuck.map(|stuck| self.in_words(&stuck.reason)), infeasible)
    }

    pub(super) fn on_pool(&mut self, effect: workers::Effect) {
        use workers::Effect as From;
        match effect {
            From::Fork { ticket, job, env } => self.fork(ticket, job, env),
            From::Assign { lease, worker } => {
                self.pass_to_scheduler(local::Event::WorkerAssigned { lease, worker });
            }
            From::Fail { lease, failure } => {
                self.pass_to_scheduler(local::Event::WorkerFailed { lease, failure });
            }
            From::Retire { worker, reason } => self.retire(worker, reason),
        }
    }

    pub(super) fn on_actors(&mut self, effect: life::Effect) {
        use life::Effect as From;
        match effect {
            From::Place { actor, incarnation, job, shape, held } => {
                if let Some(gone) = self.group_is_gone(&shape.resources) {
                    let failure = gone.of_actors;
                    let failed = life::Event::PlacementFailed { actor, incarnation, failure };
                    return self.pass_to_actors(failed);
                }
                self.place_actor(actor, incarnation, job, shape, held);
            }
            From::Unplace { actor } => self.unplace_actor(actor),
            From::Run { actor, incarnation, worker, gpus, spec } => {
                let replay = self.begin_log(&spec, incarnation, worker);
                match self.is_far(worker.node()) {
                    true => self.run_far(worker, spec, incarnation, gpus, replay),
                    false => {
                        let run = ToClient::RunActor { spec, incarnation, gpus, replay };
                        self.send(worker, run);
                    }
                }
                self.acknowledge_calls(actor);
            }
            From::FinishStart { worker } if self.is_far(worker.node()) => {
                self.send_peer(worker.node(), Peer::ActorStarted { worker });
            }
            From::FinishStart { worker } => {
                self.pass_to_scheduler(local::Event::ActorStarted { worker })
            }
            From::Stop { worker, manner, reason } => self.stop_process(worker, manner, reason),
            From::AnswerCreate { to, request, result } => {
                self.send(to, ToClient::ActorCreated { request, result });
            }
            From::AnswerLookup { to, request, found } => {
                self.send(to, ToClient::ActorFound { request, found });
            }
            From::Tell { to, actor, state } => {
                self.send(to, ToClient::ActorState { actor, state });
            }
            From::NameFreed { name, actor } => self.free_name(name, actor),
            From::AfterSweep(event) => self.sweeps.defer(Deferred::Actors(*event)),
            From::Hold { object, process } => {
                // Who asked may be buried by now: it holds nothing.
                if self.processes.contains_key(&process) {
                    let notice = Notice::Hold { object, process };
                    self.pass_to_objects(objects::Event::Noticed { from: process, notice });
                }
            }
            From::NodeHold { objects } => {
                self.pass_to_objects(objects::Event::NodeHeld { objects })
            }
            From::NodeRelease { objects } => {
                self.pass_to_objects(objects::Event::NodeReleased { objects });
            }
            From::Forget { actor } => self.out.push(Effect::Forget { key: actor_key(actor) }),
            From::Save { actor } => {
                let row = self.actors.row(actor).expect("its row changed");
                let dead = matches!(row.state, ActorState::Dead { .. });
                if dead {
                    self.pass_to_replays(replay::Event::Ended { actor });
                }
                let ends = row.detached && dead;
                let job = row.job;
                self.save(&actor_entry(row, self.actors.will(actor)));
                self.keep_elsewhere(actor);
                if ends {
                    self.drop_functions_of_ended(job);
                }
            }
        }
    }

    pub(super) fn on_objects(&mut self, effect: objects::Effect) {
        use objects::Effect as From;
        match effect {
            From::Send { to, message } if to == self.haul() => self.far_haul_told(message),
            From::Send { to, message } => self.send(to, message),
            From::Deny { to, request, refusal } if to == self.haul() => {
                let failure = self.failure(&refusal);
                self.far_haul_told(ToClient::ExtentDenied { request, failure });
            }
            From::Deny { to, request, refusal } => {
                let failure = self.failure(&refusal);
                self.send(to, ToClient::ExtentDenied { request, failure });
            }
            From::Refuse { to, object, refusal } if to == self.haul() => {
                let failure = self.failure(&refusal);
                self.far_haul_told(ToClient::Unreadable { object, failure });
            }
            From::Refuse { to, object, refusal } => {
                let failure = self.failure(&refusal);
                self.send(to, ToClient::Unreadable { object, failure });
            }
            // Its slots come with the room that it asks for.
            From::Welcome { process, slots } if process == self.haul() => assert!(slots.is_empty()),
            From::Welcome { process, slots } => self.welcome(process, slots),
            From::Sweep { sweep } => self.sweeps.want(sweep),
            From::Free { ticket, object, location } => {
                self.out.push(Effect::Free { ticket, object, location });
            }
            From::Spill { ticket, object, location, place } => {
                self.out.push(Effect::Spill { ticket, object, location, place });
            }
            From::Restore { ticket, object, place, slot } => {
                self.out.push(Effect::Restore { ticket, object, place, slot });
            }
            From::Reserve { ticket, place } => self.out.push(Effect::Reserve { ticket, place }),
            From::Forget { range, end } => self.out.push(Effect::ForgetSpilled { range, end }),
            From::ResetSlots { slots } => self.out.push(Effect::ResetSlots { slots }),
            From::Punch { offset, len } => self.out.push(Effect::Punch { offset, len }),
            From::ReturnMemory => self.out.push(Effect::ReturnMemory),
            From::ActorUnreachable { actor } => {
                self.pass_to_actors(life::Event::Unreachable { actor });
            }
            From::Foreign { object } => self.on_foreign(object, true),
            From::Unforeign { object } => self.on_foreign(object, false),
            From::AskHome { object } => self.ask_home(object),
            From::Pull { object, bytes, turn, sources } => {
                self.far_pull(object, bytes, turn, sources);
            }
            From::TellHome { object, bytes, contains, maker, holder, word } => {
                let sealed = Peer::Sealed { object, bytes, contains, maker, holder, word };
                self.tell_home(object, word, sealed);
            }
            From::TellCopied { object, word, turn } => {
                self.tell_home(object, word, Peer::Copied { object, word, turn });
            }
            From::TellNotCopied { object } => {
                self.send_peer(self.in_charge(object), Peer::NotCopied { object });
            }
            From::TellKnown { object, known } => self.tell_known(object, known),
            From::TellNotAdopted { objects } => {
                if let Some(object) = objects.first() {
                    self.send_peer(self.in_charge(*object), Peer::NotAdopted { objects });
                }
            }
            From::TellMadeAt { maker, objects } => {
                if let Some(object) = objects.first() {
                    self.send_peer(self.in_charge(*object), Peer::MadeAt { node: maker, objects });
                }
            }
            From::AdoptAt { node, lineage, objects } => {
                self.send_peer(node, Peer::Adopt { lineage, objects });
            }
            From::TellNode { node, object, value, contains } => {
                self.send_peer(node, Peer::Value { object, value, contains });
            }
            From::TellSources { node, object, turn, now, sources } if node == self.me() => {
                self.now_from(object, turn, now, sources);
            }
            From::TellSources { node, object, turn, now, sources } => {
                self.send_peer(node, Peer::NowFrom { object, turn, now, sources });
            }
            From::TellDelayed { node, object } => {
                self.send_peer(node, Peer::Delayed { object });
            }
            From::AskCopy { node, object, copies } => {
                self.send_peer(node, Peer::KeepCopy { object, copies });
            }
            From::ForgetCopy { object, copy } => {
                self.send_peer(copy.node, Peer::Forget { object, word: copy.word });
            }
            From::Violation { process, what } => self.violation(process, &what),
        }
    }

    fn failure(&self, refusal: &objects::Refusal) -> Failure {
        let kind = match refusal.kind {
            FailureKind::OutOfDisk if !self.far_is_alone() => FailureKind::OutOfDiskHere,
            kind => kind,
        };
        Failure::new(kind, self.in_words(&refusal.reason))
    }

    /// For people, here and nowhere else: each process that is known is told apart, as `process:3 (driver, pid 77)`.
    /// Where the words come back from a process, they are a text as any other.
    pub(super) fn in_words(&self, reason: &Reason) -> String {
        reason.in_words(|id| self.name_of(id, None))
    }

    /// `told`: what its node calls it, if that is another one.
    pub(super) fn name_of(&self, id: ProcessId, told: Option<&str>) -> String {
        let host = self.host_of(id.node());
        let ours = self.own_name(id);
        let told = ours.as_deref().or(told);
        let words: Vec<&str> = told.into_iter().chain(host).collect();
        if words.is_empty() { id.to_string() } else { format!("{id} ({})", words.join(", ")) }
    }

    /// Of a process of this node.
    pub(super) fn own_name(&self, id: ProcessId) -> Option<String> {
        if id == self.haul() {
            return Some("the haul: copies from other nodes".to_string());
        }
        if let Some(pid) = self.mapped.get(&id) {
            return Some(format!("driver that has left, pid {pid}"));
        }
        let process = self.processes.get(&id)?;
        let kind = match process.kind {
            Kind::Driver => "driver",
            Kind::Worker => "worker",
            Kind::Tool => "tool",
        };
        Some(match process.known_pid() {
            Some(pid) => format!("{kind}, pid {pid}"),
            None => kind.to_string(),
        })
    }
}
