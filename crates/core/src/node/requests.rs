//! What processes ask for: each message becomes an event for a machine, or is answered here.

use std::sync::Arc;

use hoplo_base::ProcessId;
use hoplo_wire::Reason;
use hoplo_wire::node::{Tell, ToClient, ToNode};

use super::far::is_of_groups;
use super::fetcher::Fetcher;
use super::process::{Kind, Stage};
use super::queries::{Asker, Word};
use super::sweeps::Deferred;
use super::{Effect, Node};
use crate::actors::life::{self, Manner};
use crate::control::FunctionEntry;
use crate::objects;
use crate::sched::claim::Claimant;
use crate::sched::{groups, local, workers};

impl Node {
    pub(super) fn on_heard(&mut self, from: ProcessId, message: ToNode) {
        let process = self.processes.get(&from).expect("the shell knows who is buried");
        match process.stage {
            Stage::Starting { ticket } => self.on_worker_hello(from, ticket, message),
            Stage::Greeted => self.on_request(from, message),
            Stage::Closed { .. } | Stage::Ended { .. } | Stage::Examined { .. } => {
                panic!("{from} is heard after its connection was closed");
            }
        }
    }

    pub(super) fn on_request(&mut self, from: ProcessId, message: ToNode) {
        let process = &self.processes[&from];
        let (kind, job) = (process.kind, process.job);
        if self.is_joined() && kind != Kind::Tool && is_of_groups(&message) {
            return self.ask_planner(from, message);
        }
        if let Some(node) = self.decided_at(&message).filter(|_| kind != Kind::Tool) {
            return self.forward(node, from, message);
        }
        if kind != Kind::Tool && self.keep_waiting(from, &message) {
            return;
        }
        match message {
            ToNode::Query { request, kind, argument } => {
                self.on_query(Asker::Process(from), request, &kind, argument);
            }
            ToNode::Kv { request, namespace, operation } => {
                self.on_kv(from, request, &namespace, operation);
            }
            ToNode::Stop => self.begin_stop("asked for"),
            ToNode::Hello { .. } | ToNode::Job(_) => self.violation(from, "said hello twice"),
            _ if kind == Kind::Tool => self.violation(from, "is a tool, which may only query"),

            ToNode::LeaseDemand { key, shape, wanted } => {
                if let Some(gone) = self.group_is_gone(&shape.resources) {
                    let failure = gone.of_tasks;
                    return self.send(from, ToClient::LeaseFailed { key, failure });
                }
                self.on_demand(from, job, key, Arc::unwrap_or_clone(shape), wanted);
            }
            ToNode::LeaseReturn { lease } => {
                self.pass_to_scheduler(local::Event::Returned { process: from, lease });
            }
            ToNode::Blocked => self.pass_to_scheduler(local::Event::Blocked { worker: from }),
            ToNode::Unblocked => self.pass_to_scheduler(local::Event::Unblocked { worker: from }),
            ToNode::Retires { worker } => self.on_retires(from, worker),
            ToNode::Connect { to } => self.on_connect(from, to),
            ToNode::Title { title } => self.process_mut(from).title = title,

            ToNode::ExtentWant { request, bytes, slots } => {
                self.pass_to_objects(objects::Event::ExtentWanted { from, request, bytes, slots });
            }
            ToNode::ExtentReturn { offset, len } => {
                self.pass_to_objects(objects::Event::ExtentReturned { from, offset, len });
            }
            ToNode::ExtentRecalled => {
                self.pass_to_objects(objects::Event::ExtentRecalled { from });
            }
            ToNode::Notices(notices) => {
                for notice in notices {
                    self.note_escape(&notice);
                    self.note_result(from, &notice);
                    self.pass_to_objects(objects::Event::Noticed { from, notice });
                }
            }
            ToNode::Want { objects } => {
                let need = objects::Need::Bytes;
                self.pass_to_objects(objects::Event::Wanted { from, objects, need });
            }
            ToNode::WantWord { objects } => {
                let need = objects::Need::Word;
                self.pass_to_objects(objects::Event::Wanted { from, objects, need });
            }
            ToNode::Misplaced { objects } => {
                self.pass_to_objects(objects::Event::Misplaced { objects });
            }

            ToNode::Reduce { request, wish, members, more } => {
                self.reduce(from, request, wish, &members, more);
            }
            ToNode::ReduceMore { request, members, more } => {
                self.reduce_more(from, request, &members, more);
            }
            ToNode::ReduceMended { request, was } => self.reduce_mended(from, request, was),
            ToNode::ReduceOver { request } => self.reduce_over(from, request),
            ToNode::Assemble { request, bytes, parts } => {
                self.assemble(from, request, bytes, parts);
            }
            ToNode::AssembleOver { request } => self.assemble_over(from, request),

            ToNode::Export { function, bytes, contains } => {
                let of = (job, self.me());
                self.export(FunctionEntry::whole(of, function, bytes, contains));
            }
            ToNode::Fetch { function, call } => {
                let (job, submitter) = call.unwrap_or((job, from));
                let fetcher = Fetcher { process: from, job, submitter: submitter.node() };
                self.fetch(fetcher, function, false);
            }

            ToNode::ActorCreate { request, spec, get_if_exists } => {
                self.create_actor(from, job, request, spec, get_if_exists);
            }
            ToNode::ActorWatch { actor } => self.watch(from, actor),
            ToNode::ActorKill { actor, no_restart, of } => self.kill_actor(actor, no_restart, of),
            ToNode::ActorLookup { request, namespace, name } => {
                self.look_up_actor(from, request, (namespace, name));
            }
            ToNode::ActorStarted { actor, incarnation, result } => {
                let worker = from;
                let is_kept = result.is_ok();
                self.pass_to_actors(life::Event::Started { worker, actor, incarnation, result });
                if is_kept {
                    self.pass_to_pool(workers::Event::Kept { worker });
                }
            }
            ToNode::ActorExit { actor } => {
                self.pass_to_actors(life::Event::Left { worker: from, actor });
            }

            ToNode::ActorFailed { actor, failure } => {
                self.pass_to_actors(life::Event::Failed { worker: from, actor, failure });
            }
            ToNode::CallLogged { actor, incarnation, call } => {
                self.call_logged(from, actor, incarnation, call);
            }
            ToNode::Checkpointed { actor, incarnation, checkpoint } => {
                self.checkpointed(from, actor, incarnation, checkpoint);
            }

            ToNode::GroupCreate { request, spec } => self.create_group(from, job, request, spec),
            ToNode::GroupRemove { group } => {
                self.pass_to_groups(groups::Event::RemoveAsked { group });
            }
            ToNode::GroupWatch { request, group } => {
                self.pass_to_groups(groups::Event::Watched { from, request, group });
            }
            ToNode::GroupUnwatch { request, group: _ } => {
                self.pass_to_groups(groups::Event::Unwatched { from, request });
            }

            ToNode::Tell { to, message } => self.tell(from, to, message),
            ToNode::RevokeFar { worker, seqs } => {
                self.out.push(Effect::RevokeFar { caller: from, worker, seqs });
            }
            ToNode::TookOver { caller } => self.on_took_over(from, caller),
            ToNode::KillWorker { worker } => self.on_kill_worker(from, worker),
            ToNode::ChannelBroken { worker, why } => self.on_channel_broken(from, worker, why),
            ToNode::Inspected { request, json } => self.on_word(from, request, Word::Json(json)),
            ToNode::Explained { request, told } => self.on_word(from, request, Word::Why(told)),
            ToNode::Counted(counters) => {
                self.counters.tasks_finished += counters.tasks_finished;
                self.counters.method_calls_finished += counters.method_calls_finished;
                self.counters.objects_stored += counters.objects_stored;
                self.counters.bytes_stored += counters.bytes_stored;
            }
            ToNode::Ran(runs) => {
                self.history.ran(job, runs, self.wall_us);
                self.write_past_later();
            }
        }
    }

    pub(super) fn on_retires(&mut self, from: ProcessId, worker: ProcessId) {
        if self.has_lease_on(from, worker) {
            self.pass_to_pool(workers::Event::Retires { worker });
            self.pass_to_scheduler(local::Event::Retires { worker });
        }
    }

    /// The channel goes on to the worker; each will be told when the other is gone.
    fn on_connect(&mut self, from: ProcessId, to: ProcessId) {
        if self.is_far(to.node()) {
            return self.connect_far(from, to);
        }
        let Some(target) = self.processes.get_mut(&to) else {
            let obituary = self.obituary_of(to);
            let unstarted = Vec::new();
            return self.send(from, ToClient::ProcessGone { process: to, obituary, unstarted });
        };
        target.peers.insert(from);
        let speaks = target.stage.has_connection();
        self.process_mut(from).peers.insert(to);
        if speaks {
            self.send(to, ToClient::Connected { from });
            self.pass_to_pool(workers::Event::Connected { worker: to, peer: from });
        } // else it is dying: `from` hears how it died once that is known
    }

    /// One process tells another. Of a task whose owner is dead, who adopted it is told, once that is decided. Who
    /// makes it may have closed its connection, and then somebody adopts it when that one is buried.
    pub(super) fn tell(&mut self, from: ProcessId, to: ProcessId, message: Tell) {
        let to = match message {
            Tell::Cancel { task, .. } if task.owner == to => {
                if !self.processes.contains_key(&to) && self.objects.is_undecided(task) {
                    return self.sweeps.defer(Deferred::Tell { from, to, message });
                }
                // Nobody adopts what is not pending.
                let maker = self.objects.maker(task);
                if let Some(unheard) = self.unheard.get_mut(&maker.unwrap_or(to)) {
                    return unheard.told.push(Deferred::Tell { from, to, message });
                }
                let closed = maker.and_then(|maker| self.processes.get_mut(&maker));
                if let Some(closed) = closed.filter(|maker| !maker.stage.has_connection()) {
                    closed.unheard.insert(task, (from, message));
                    return;
                }
                maker.unwrap_or(to)
            }
            Tell::Cancel { .. } | Tell::Consumed { .. } => to,
        };
        self.send(to, ToClient::Told { from, message });
    }

    /// Only who has the lease may kill.
    pub(super) fn on_kill_worker(&mut self, from: ProcessId, worker: ProcessId) {
        if self.has_lease_on(from, worker) {
            let reason = "its task was cancelled by force".to_string();
            self.stop_process(worker, Manner::Kill, reason);
        }
    }

    /// Those who wait for the worker hear why it ended, and what it had not started is placed again. An actor's
    /// callers have no lease on it.
    pub(super) fn on_channel_broken(&mut self, from: ProcessId, worker: ProcessId, why: Reason) {
        let Some(process) = self.processes.get(&worker).filter(|it| it.is_worker()) else { return };
        if from == worker || process.peers.contains(&from) {
            let why = self.in_words(&why);
            self.log(format!("{worker} is stopped: {why}"));
            self.stop_process(worker, Manner::Kill, why);
        }
    }

    fn has_lease_on(&self, process: ProcessId, worker: ProcessId) -> bool {
        let claimant = self.scheduler.lease_on(worker).map(|lease| lease.claimant);
        matches!(claimant, Some(Claimant::Demand { process: holder, .. }) if holder == process)
    }
}
