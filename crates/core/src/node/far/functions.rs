//! Functions of jobs that others exported: asked for at a node that calls them, once a node.
//!
//! Whoever submits a call, or creates an actor, has exported its function, or class, at its own node. So a worker's question goes to the node of the process that
//! submitted the call first, to the node in charge of its actor, to those whose processes call here for that job, one after the other, then to the job's home, then
//! to the control store, where each node that exported a function has rows of it. They may be on their way while the node that wrote it is asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hoplo_base::limits::FAR_FUNCTION_BYTES_KEPT;
use hoplo_base::{FunctionId, JobId, NodeNumber, ProcessId};
use hoplo_wire::node::ToClient;
use hoplo_wire::peer::Peer;

use super::Node;
use crate::control::Table;
use crate::control::rows::function_prefix;
use crate::node::fetcher::Fetcher;
use crate::node::functions::Asker;
use crate::node::sweeps::Deferred;
use crate::node::{Asked, Question};

#[derive(Debug, Default)]
pub(super) struct Fetches {
    /// What is under way, by function.
    asked: BTreeMap<FunctionId, FarFetch>,
    kept: BTreeMap<FunctionId, (JobId, Arc<[u8]>)>,
    kept_bytes: usize,
}

/// A function that is asked for at other nodes.
#[derive(Debug)]
pub(in crate::node) struct FarFetch {
    job: JobId,
    /// Processes of ours that wait for it.
    waiting: Vec<Fetcher>,
    /// Who was asked last, and who is next.
    at: Option<NodeNumber>,
    next: VecDeque<NodeNumber>,
}

impl Node {
    /// Not exported here, whatever lay in sockets: true if somebody else is asked.
    pub(in crate::node) fn fetch_far(&mut self, fetcher: Fetcher, function: FunctionId) -> bool {
        // A head that is alone may have rows of jobs whose nodes are dead.
        if !self.config.clustered {
            return false;
        }
        let Fetcher { process, job, submitter } = fetcher;
        let asks_submitter = self.is_sent_to(submitter);
        if let Some(fetch) = self.far.fetches.asked.get_mut(&function) {
            fetch.waiting.push(fetcher);
            if asks_submitter && fetch.at != Some(submitter) && !fetch.next.contains(&submitter) {
                fetch.next.push_back(submitter);
            }
            return true;
        }
        let mut next: VecDeque<NodeNumber> = VecDeque::new();
        let creator = self.far.hosted.get(&process).map(|hosted| self.charge_of(hosted.actor));
        let callers = self.far.strangers.iter().filter(|(_, stranger)| stranger.job == job);
        let callers = callers.map(|(caller, _)| caller.node());
        for node in [submitter].into_iter().chain(creator).chain(callers).chain([job.node()]) {
            if self.is_sent_to(node) && !next.contains(&node) {
                next.push_back(node);
            }
        }
        let fetch = FarFetch { job, waiting: vec![fetcher], at: None, next };
        self.far.fetches.asked.insert(function, fetch);
        self.ask_next(function);
        true
    }

    /// True if it is sent to the process.
    pub(in crate::node) fn has_kept(&mut self, process: ProcessId, function: FunctionId) -> bool {
        let kept = self.far.fetches.kept.get(&function);
        let Some(bytes) = kept.map(|(_, bytes)| bytes.to_vec()) else { return false };
        self.send(process, ToClient::Function { function, bytes: Some(bytes) });
        true
    }

    fn ask_next(&mut self, function: FunctionId) {
        let Some(fetch) = self.far.fetches.asked.get_mut(&function) else { return };
        fetch.at = fetch.next.pop_front();
        let job = fetch.job;
        match fetch.at {
            Some(node) => self.send_peer(node, Peer::Fetch { job, function }),
            None => self.ask_for_row(job, function),
        }
    }

    /// Nobody who lives is known to have it: the store has a row of it, or nobody has it.
    pub(in crate::node) fn ask_for_row(&mut self, job: JobId, function: FunctionId) {
        let (table, prefix) = (Table::Function, function_prefix(job, function));
        let asked = Asked::Function(Asker::of_row(function, job));
        self.ask(Question::List { table, prefix }, asked);
    }

    /// The node, or the store, answered.
    pub(in crate::node) fn far_function_found(
        &mut self,
        function: FunctionId,
        bytes: Option<Vec<u8>>,
    ) {
        let next = self.far.fetches.asked.get(&function).is_some_and(|it| !it.next.is_empty());
        if bytes.is_none() && next {
            // One that waits named another node meanwhile.
            return self.ask_next(function);
        }
        let Some(fetch) = self.far.fetches.asked.remove(&function) else { return };
        if let Some(bytes) = &bytes {
            self.keep_function(fetch.job, function, bytes);
        }
        for fetcher in fetch.waiting {
            // It waited with those of another job, and what that one exported may be gone with it.
            let asks_on = bytes.is_none() && fetcher.job != fetch.job;
            if asks_on && self.processes.contains_key(&fetcher.process) {
                self.fetch(fetcher, function, true);
            } else {
                self.send(fetcher.process, ToClient::Function { function, bytes: bytes.clone() });
            }
        }
    }

    pub(in crate::node) fn keep_function(
        &mut self,
        job: JobId,
        function: FunctionId,
        bytes: &[u8],
    ) {
        let fetches = &mut self.far.fetches;
        let ended = self.jobs.get(&job).is_none_or(|job| job.ended_us.is_some());
        let known = fetches.kept.contains_key(&function);
        if ended || known || fetches.kept_bytes + bytes.len() > FAR_FUNCTION_BYTES_KEPT {
            return;
        }
        fetches.kept_bytes += bytes.len();
        fetches.kept.insert(function, (job, bytes.into()));
    }

    pub(super) fn on_far_function(
        &mut self,
        from: NodeNumber,
        function: FunctionId,
        bytes: Option<Vec<u8>>,
    ) {
        let asked = self.far.fetches.asked.get(&function).and_then(|fetch| fetch.at);
        if asked != Some(from) {
            return;
        }
        match bytes {
            Some(bytes) => self.far_function_found(function, Some(bytes)),
            None => self.ask_next(function),
        }
    }

    /// A node asks for what a process of ours exported.
    pub(super) fn on_far_fetch(&mut self, from: NodeNumber, job: JobId, function: FunctionId) {
        self.fetch_for_node(from, job, function, false);
    }

    pub(in crate::node) fn fetch_for_node(
        &mut self,
        node: NodeNumber,
        job: JobId,
        function: FunctionId,
        swept: bool,
    ) {
        let kept = self.far.fetches.kept.get(&function).map(|(_, bytes)| bytes.to_vec());
        if kept.is_none()
            && let Some((of, keys)) = self.exported_keys(job, function)
        {
            let unread = of != job && !swept;
            let asked = Asked::Function(Asker::of_node(function, (node, job), unread));
            return self.ask(Question::Get { keys }, asked);
        }
        if kept.is_some() || swept {
            return self.send_peer(node, Peer::Function { function, bytes: kept });
        }
        self.sweeps.defer(Deferred::FarFetch { node, job, function });
    }

    pub(super) fn fetches_of_dead(&mut self, node: NodeNumber) {
        let asked = self.far.fetches.asked.iter_mut();
        let mut again = Vec::new();
        for (function, fetch) in asked {
            fetch.next.retain(|next| *next != node);
            if fetch.at == Some(node) {
                again.push(*function);
            }
        }
        again.into_iter().for_each(|function| self.ask_next(function));
    }

    /// As if there had been no room for them.
    #[cfg(test)]
    pub(in crate::node) fn keeps_no_functions(&mut self) {
        self.far.fetches.kept.clear();
        self.far.fetches.kept_bytes = 0;
    }

    pub(in crate::node) fn fetches_of_ended(&mut self, job: JobId) {
        let fetches = &mut self.far.fetches;
        fetches.kept.retain(|_, (of, _)| *of != job);
        fetches.kept_bytes = fetches.kept.values().map(|(_, bytes)| bytes.len()).sum();
    }
}
