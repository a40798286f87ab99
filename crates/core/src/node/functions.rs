//! Functions that drivers and workers export: once a job and node, whoever comes first. Each node has rows of its own in the control store.
//!
//! They stay as long as somebody may ask for them: while the job's driver or one of its processes is there, while
//! a detached actor of the job may start again, and while a result is pending whose task another process
//! may have to run again, or does (its lineage names the function).

use std::collections::BTreeMap;

use hoplo_base::limits::{JOB_FUNCTION_BYTES_MAX, LINEAGE_DELAY};
use hoplo_base::{FunctionId, JobId, NodeNumber, ObjectId};
use hoplo_wire::call::CallView;
use hoplo_wire::control::{Key, Refusal, Row};
use hoplo_wire::node::{ActorState, ToClient};
use hoplo_wire::peer::Peer;

use super::fetcher::Fetcher;
use super::sweeps::Deferred;
use super::{Answer, Asked, Effect, Node, Question, Timer};
use crate::control::{Entry, FunctionEntry};
use crate::objects;

#[derive(Debug, Default)]
pub(super) struct Functions {
    /// In each job; the bytes lie in the control store.
    exported: BTreeMap<JobId, BTreeMap<FunctionId, Exported>>,
    /// Jobs that are over, and of each a pending result whose task needs one of its functions.
    needed: BTreeMap<JobId, ObjectId>,
}

#[derive(Debug)]
struct Exported {
    /// Rows, part 0 last.
    keys: Vec<Key>,
    /// Refs inside it, which the node holds.
    contains: Vec<ObjectId>,
    /// Of its pickle.
    bytes: usize,
}

/// A function of which the store is asked for rows.
#[derive(Debug)]
pub(super) struct Asker {
    function: FunctionId,
    for_whom: For,
    /// It was exported by another job only, as far as is known, and not all sockets were read since it was asked for: what its own job exported may lie unread.
    unread: bool,
}

#[derive(Debug)]
enum For {
    Process(Fetcher),
    /// A node whose process asked, for a call of this job.
    Node(NodeNumber, JobId),
    /// Processes here, and nobody else who lives has it: the store may have rows of it, of this job.
    Row(JobId),
}

impl Asker {
    pub(super) fn of_node(
        function: FunctionId,
        (node, job): (NodeNumber, JobId),
        unread: bool,
    ) -> Self {
        Self { function, for_whom: For::Node(node, job), unread }
    }

    pub(super) fn of_row(function: FunctionId, job: JobId) -> Self {
        Self { function, for_whom: For::Row(job), unread: false }
    }
}

impl Node {
    pub(super) fn export(&mut self, entry: FunctionEntry) {
        let (job, function, objects) = (entry.job, entry.function, entry.contains.clone());
        let joined = self.is_joined();
        let functions = self.functions.exported.entry(job).or_default();
        if functions.contains_key(&function) {
            return;
        }
        let bytes = entry.bytes.len();
        let before: usize = functions.values().map(|exported| exported.bytes).sum();
        if before + bytes > JOB_FUNCTION_BYTES_MAX {
            return self.refuse_export(job, before);
        }
        let kept = joined.then(|| entry.bytes.clone());
        let parts = entry.split();
        let keys = parts.iter().map(Entry::key).collect();
        functions.insert(function, Exported { keys, contains: objects.clone(), bytes });
        if let Some(bytes) = kept {
            self.keep_function(job, function, &bytes);
        }
        for part in parts {
            self.save(&part);
        }
        if !objects.is_empty() {
            self.pass_to_objects(objects::Event::NodeHeld { objects });
        }
    }

    /// Who fetches it hears that it is not there; the job's driver hears why.
    fn refuse_export(&mut self, job: JobId, before: usize) {
        let line = format!(
            "a function was not sent to workers: the processes of this job exported {before} bytes of functions \
             and classes, and may export {JOB_FUNCTION_BYTES_MAX}; define remote functions once, not in tasks"
        );
        self.log(format!("{job}: {line}"));
        let driver = self.jobs.get(&job).filter(|job| job.ended_us.is_none());
        if let Some(driver) = driver.map(|job| job.driver) {
            let (title, lines) = ("hoplo".to_string(), vec![line]);
            self.send(
                driver,
                ToClient::Output { pid: 0, title, address: None, stderr: true, lines },
            );
        }
    }

    /// An unknown function is answered after a sweep: its export may lie in another socket. The job is that of the task which calls it. A process
    /// that adopted a task of another job asks for what that one exported. An id is a hash of the content, so the same id is the same function, and
    /// what any job exported will do.
    pub(super) fn fetch(&mut self, fetcher: Fetcher, function: FunctionId, swept: bool) {
        let Fetcher { process, job, .. } = fetcher;
        if self.has_kept(process, function) {
            return;
        }
        match self.exported_keys(job, function) {
            Some((of, keys)) => {
                let (for_whom, unread) = (For::Process(fetcher), of != job && !swept);
                let asked = Asked::Function(Asker { function, for_whom, unread });
                self.ask(Question::Get { keys }, asked);
            }
            None if swept => {
                if !self.fetch_far(fetcher, function) {
                    self.send(process, ToClient::Function { function, bytes: None });
                }
            }
            None => self.sweeps.defer(Deferred::Fetch { fetcher, function }),
        }
    }

    /// Its rows, and of which job they are, if a process of this node exported it; of another job only if no process of this one did.
    pub(super) fn exported_keys(
        &self,
        job: JobId,
        function: FunctionId,
    ) -> Option<(JobId, Vec<Key>)> {
        let exported = &self.functions.exported;
        let own = exported.get_key_value(&job);
        let mut all = own.into_iter().chain(exported);
        all.find_map(|(of, functions)| {
            functions.get(&function).map(|exported| (*of, exported.keys.clone()))
        })
    }

    /// Absent when the store refused a part of it; then its log says why.
    pub(super) fn on_function_answer(&mut self, asker: &Asker, answer: Answer) {
        let function = asker.function;
        let rows = match answer {
            Answer::Keys(Ok(keys)) => return self.on_function_keys(asker, keys),
            Answer::Keys(Err(refusal)) => Err(refusal),
            Answer::Rows(rows) => rows,
            other => panic!("rows or keys were asked for, not {other:?}"),
        };
        let went = matches!(&rows, Ok(rows) if rows.contains(&None));
        let rows = match rows {
            Ok(rows) => rows,
            Err(refusal) => {
                self.log(format!("{function} could not be read: {refusal}"));
                if matches!(refusal, Refusal::Busy(_)) && self.asks_again(asker) {
                    return;
                }
                vec![None]
            }
        };
        let parts: Option<Vec<Vec<u8>>> = rows.into_iter().collect();
        let bytes = parts.and_then(|mut parts| {
            // Part 0 comes last.
            parts.rotate_right(1);
            let mut bytes = Vec::new();
            for value in parts {
                let row = Row { value, version: 0, index: 0, finished: false };
                bytes.append(&mut FunctionEntry::from_row(&row).ok()?.bytes);
            }
            Some(bytes)
        });
        match asker.for_whom {
            // It was another job's, and its rows went with that one. So it is unknown, and what is unknown is answered after a sweep.
            For::Process(fetcher) if bytes.is_none() && asker.unread => {
                if self.processes.contains_key(&fetcher.process) {
                    self.sweeps.defer(Deferred::Fetch { fetcher, function });
                }
            }
            For::Node(node, job) if bytes.is_none() && asker.unread => {
                self.sweeps.defer(Deferred::FarFetch { node, job, function });
            }
            For::Process(fetcher) => {
                let asks_on = bytes.is_none()
                    && self.processes.contains_key(&fetcher.process)
                    && self.fetch_far(fetcher, function);
                if !asks_on {
                    self.send(fetcher.process, ToClient::Function { function, bytes });
                }
            }
            For::Node(node, _) => self.send_peer(node, Peer::Function { function, bytes }),
            // Another node's rows may be there.
            For::Row(job) if went => self.ask_for_row(job, function),
            For::Row(_) => self.far_function_found(function, bytes),
        }
    }

    /// Nobody who lives has it: what one node wrote will do.
    fn on_function_keys(&mut self, asker: &Asker, keys: Vec<Vec<u8>>) {
        let (function, keys) = (asker.function, FunctionEntry::of_one_node(keys));
        match asker.for_whom {
            For::Row(_) if keys.is_empty() => self.far_function_found(function, None),
            For::Row(job) => {
                self.ask(Question::Get { keys }, Asked::Function(Asker::of_row(function, job)));
            }
            For::Process(_) | For::Node(..) => unreachable!("the keys of their rows are known"),
        }
    }

    /// The store did not answer in time: its control node is away, and comes back. Whoever waits, waits on.
    fn asks_again(&mut self, asker: &Asker) -> bool {
        let function = asker.function;
        match asker.for_whom {
            For::Process(fetcher) => {
                if self.processes.contains_key(&fetcher.process) {
                    self.fetch(fetcher, function, !asker.unread);
                }
                true
            }
            For::Row(job) => {
                self.ask_for_row(job, function);
                true
            }
            // That node asks the store itself.
            For::Node(..) => false,
        }
    }

    /// Something ended that may have needed functions of this job.
    pub(super) fn drop_functions_of_ended(&mut self, job: JobId) {
        let has_driver = self.jobs.get(&job).is_some_and(|job| job.ended_us.is_none());
        if has_driver || !self.functions.exported.contains_key(&job) {
            return;
        }
        let detached = self.actors.rows().any(|row| {
            let dead = matches!(row.state, ActorState::Dead { .. });
            row.job == job && row.detached && !dead
        });
        if detached || self.processes.values().any(|process| process.job == job) {
            return;
        }
        let Some(object) = self.needs_functions(job) else { return self.drop_functions(job) };
        if self.functions.needed.is_empty() {
            self.after(LINEAGE_DELAY, Timer::Functions);
        }
        self.functions.needed.insert(job, object);
    }

    /// A pending result whose task, run again, would ask for one of them.
    fn needs_functions(&self, job: JobId) -> Option<ObjectId> {
        let functions = self.functions.exported.get(&job)?;
        let mut lineages = self.objects.lineages();
        let found = lineages.find(|(_, lineage)| {
            let call = CallView::parse(&lineage.frame);
            call.is_ok_and(|call| functions.contains_key(&call.header.function))
        });
        found.map(|(object, _)| object)
    }

    pub(super) fn look_at_functions(&mut self) {
        let needed = std::mem::take(&mut self.functions.needed);
        for (job, object) in needed {
            if self.objects.pending(object).is_none() {
                self.drop_functions_of_ended(job);
            } else {
                self.functions.needed.insert(job, object);
            }
        }
        let armed = self.timers.iter().any(|(_, timer)| *timer == Timer::Functions);
        if !self.functions.needed.is_empty() && !armed {
            self.after(LINEAGE_DELAY, Timer::Functions);
        }
    }

    fn drop_functions(&mut self, job: JobId) {
        for exported in self.functions.exported.remove(&job).unwrap_or_default().into_values() {
            self.out.extend(exported.keys.into_iter().map(|key| Effect::Forget { key }));
            if !exported.contains.is_empty() {
                self.pass_to_objects(objects::Event::NodeReleased { objects: exported.contains });
            }
        }
    }
}
