//! What processes ask for: each message becomes an event for a machine, or is answered here.

use std::os::fd::OwnedFd;

use hoplo_base::{FunctionId, JobId, ObjectId, ProcessId};
use hoplo_core::actors::life::{self, Manner};
use hoplo_core::control::rows::{FunctionEntry, function_key, kv_key};
use hoplo_core::control::{CasError, ControlStore, Entry, Table};
use hoplo_core::objects;
use hoplo_core::sched::local::{self, Claimant};
use hoplo_core::sched::workers;
use hoplo_wire::node::{KvOperation, Obituary, ToClient, ToNode};

use crate::clients::Kind;
use crate::daemon::{Daemon, Deferred, Work, single};

/// Keys that one answer holds.
const KV_KEYS_MAX: usize = 1 << 20;

impl Daemon {
    /// `Err`: the process does not keep to the protocol.
    pub(crate) fn on_request(
        &mut self,
        from: ProcessId,
        message: ToNode,
        fd: Option<OwnedFd>,
    ) -> Result<(), String> {
        let process = &self.processes[&from];
        let (kind, job) = (process.kind, process.job);
        match message {
            ToNode::Query { request, kind, argument } => {
                self.on_query(from, request, kind, argument);
            }
            ToNode::Kv { request, namespace, operation } => {
                self.on_kv(from, request, &namespace, operation);
            }
            ToNode::Stop => self.begin_stop("asked for"),
            ToNode::Hello { .. } => return Err("said hello twice".to_string()),
            _ if kind == Kind::Tool => return Err("a tool may only query".to_string()),

            ToNode::LeaseDemand { key, shape, wanted } => {
                let process = from;
                self.scheduler(local::Event::Demanded { process, job, key, shape, wanted });
            }
            ToNode::LeaseReturn { lease } => {
                self.scheduler(local::Event::Returned { process: from, lease });
            }
            ToNode::Blocked => self.scheduler(local::Event::Blocked { worker: from }),
            ToNode::Unblocked => self.scheduler(local::Event::Unblocked { worker: from }),
            ToNode::Connect { to } => {
                let fd = fd.expect("the message was read with its descriptor");
                self.on_connect(from, to, fd);
            }
            ToNode::Title { title } => {
                self.processes.get_mut(&from).expect("it speaks").title = title;
            }

            ToNode::ExtentWant { request, bytes, slots } => {
                self.objects(objects::Event::ExtentWanted { from, request, bytes, slots });
            }
            ToNode::ExtentReturn { offset, len } => {
                self.objects(objects::Event::ExtentReturned { from, offset, len });
            }
            ToNode::Notices(notices) => {
                for notice in notices {
                    self.note_escape(&notice);
                    self.objects(objects::Event::Noticed { from, notice });
                }
            }
            ToNode::Want { objects } => self.objects(objects::Event::Wanted { from, objects }),

            ToNode::Export { function, bytes, contains } => {
                self.on_export(FunctionEntry::whole(job, function, bytes, contains));
            }
            ToNode::Fetch { function } => self.answer_fetch(from, job, function, false),

            ToNode::ActorCreate { request, spec, get_if_exists } => {
                let creator = from;
                self.actors(life::Event::Created { creator, job, request, spec, get_if_exists });
            }
            ToNode::ActorWatch { actor } => {
                self.actors(life::Event::Watched { from, actor, swept: false });
            }
            ToNode::ActorKill { actor, no_restart } => {
                self.actors(life::Event::Killed { actor, no_restart });
            }
            ToNode::ActorLookup { request, namespace, name } => {
                let swept = false;
                self.actors(life::Event::LookedUp { from, request, namespace, name, swept });
            }
            ToNode::ActorStarted { actor, incarnation, result } => {
                let worker = from;
                self.actors(life::Event::Started { worker, actor, incarnation, result });
            }
            ToNode::ActorExit { actor } => {
                self.actors(life::Event::Left { worker: from, actor });
            }

            ToNode::Tell { to, message } => self.send(to, &ToClient::Told { from, message }),
            ToNode::KillWorker { worker } => self.on_kill_worker(from, worker),
            ToNode::Inspected { request, json } => self.on_inspected(from, request, &json),
            ToNode::Counted(counters) => {
                self.counters.tasks_finished += counters.tasks_finished;
                self.counters.method_calls_finished += counters.method_calls_finished;
                self.counters.objects_stored += counters.objects_stored;
                self.counters.bytes_stored += counters.bytes_stored;
            }
        }
        Ok(())
    }

    fn scheduler(&mut self, event: local::Event) {
        self.queue.push_back(Work::Scheduler(event));
    }

    fn actors(&mut self, event: life::Event) {
        self.queue.push_back(Work::Actors(event));
    }

    fn objects(&mut self, event: objects::Event) {
        self.queue.push_back(Work::Objects(event));
    }

    /// The channel goes on to the worker; each will be told when the other is gone.
    fn on_connect(&mut self, from: ProcessId, to: ProcessId, fd: OwnedFd) {
        let target = self.processes.get_mut(&to).filter(|process| process.connection.is_some());
        let Some(target) = target else {
            let obituary: Obituary = self.obituary_of(to);
            return self.send(from, &ToClient::ProcessGone { process: to, obituary });
        };
        target.peers.insert(from);
        self.processes.get_mut(&from).expect("it speaks").peers.insert(to);
        self.send_with(to, &ToClient::Connected { from }, Some(single(fd)));
        let connected = workers::Event::Connected { worker: to, peer: from };
        self.queue.push_back(Work::Pool(connected));
    }

    /// Only who has the lease may kill.
    fn on_kill_worker(&mut self, from: ProcessId, worker: ProcessId) {
        let claimant = self.scheduler.lease_on(worker).map(|lease| lease.claimant);
        if matches!(claimant, Some(Claimant::Demand { process, .. }) if process == from) {
            let reason = "its task was cancelled by force".to_string();
            self.stop_process(worker, Manner::Kill, reason);
        }
    }

    /// The same function is exported once a job, whoever comes first.
    fn on_export(&mut self, entry: FunctionEntry) {
        let objects: Vec<ObjectId> = entry.contains.clone();
        if self.control.get(&entry.key()).is_some() {
            return;
        }
        for part in entry.split() {
            if let Err(refusal) = self.control.put(part.key(), part.to_value()) {
                // Who fetches it hears that it is not there, and the log says why.
                return self.note_refusal(Some(refusal));
            }
        }
        if !objects.is_empty() {
            self.objects(objects::Event::NodeHeld { objects });
        }
    }

    /// An unknown function is answered after a sweep: its export may lie in another socket.
    pub(crate) fn answer_fetch(
        &mut self,
        process: ProcessId,
        job: JobId,
        function: FunctionId,
        swept: bool,
    ) {
        let row = self.control.get(&function_key(job, function));
        if row.is_none() && !swept {
            self.after_sweep.push(Deferred::Fetch { process, job, function });
            return;
        }
        let first = row.map(|row| FunctionEntry::from_row(&row).expect("it was validated"));
        let read = |key: &_| self.control.get(key);
        let whole = first.and_then(|first| first.joined(read).expect("it was validated"));
        let bytes = whole.map(|entry| entry.bytes);
        self.send(process, &ToClient::Function { function, bytes });
    }

    fn on_kv(&mut self, from: ProcessId, request: u64, namespace: &str, operation: KvOperation) {
        let (mut value, mut keys, mut refused) = (None, Vec::new(), None);
        match operation {
            KvOperation::Get { key } => {
                value = self.control.get(&kv_key(namespace, &key)).map(|row| row.value);
            }
            KvOperation::Put { key, value: new, overwrite: true } => {
                refused = self.control.put(kv_key(namespace, &key), new).err();
            }
            KvOperation::Put { key, value: new, overwrite: false } => {
                let key = kv_key(namespace, &key);
                match self.control.cas(key.clone(), 0, new) {
                    Ok(_) => {}
                    Err(CasError::Conflict { .. }) => {
                        value = self.control.get(&key).map(|row| row.value);
                    }
                    Err(CasError::Refused(refusal)) => refused = Some(refusal),
                }
            }
            KvOperation::Delete { key } => match self.control.delete(&kv_key(namespace, &key)) {
                Ok(gone) => value = gone.map(|row| row.value),
                Err(refusal) => refused = Some(refusal),
            },
            KvOperation::Keys { prefix } => {
                let all = kv_key(namespace, b"").bytes.len();
                let prefix = kv_key(namespace, &prefix).bytes;
                let page = self.control.scan(Table::Kv, &prefix, None, KV_KEYS_MAX);
                keys.extend(page.rows.into_iter().map(|(key, _)| key[all..].to_vec()));
            }
        }
        // What it says to have written is in the log's file.
        refused = refused.or_else(|| self.control.flush().err());
        let refused = refused.map(|refusal| refusal.to_string());
        self.send(from, &ToClient::KvAnswer { request, value, keys, refused });
    }
}
