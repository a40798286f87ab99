//! The calls of this process whose results lie at other nodes: by them lost results are made again (`remake`).
//!
//! A kept call needs the lineage of its arguments, not their values. What could not be made again here (a value that was put, that a method returned, that
//! a task made at this node, that somebody else owns) it holds, if that is not large. All of it counts against `LINEAGE_BYTES_MAX`; over it the oldest lineage goes.
//!
//! What never runs again (a method, a call with packed arguments) keeps the reason here instead of its call, so that the error can say it.
//!
//! # Invariants
//! - LIN-1: the bytes of what is kept add up, and are within the bound, but for what runs.
//! - LIN-2: a call is kept only while one of its results may be missed, a kept call needs it, or it runs.
//! - LIN-3: a run that is said to be under way is a task that stands for the call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hoplo_base::limits::{LINEAGE_BYTES_MAX, LINEAGE_VALUE_BYTES_MAX};
use hoplo_base::{ActorId, Instant, NodeNumber, ObjectId, TaskId};
use hoplo_wire::{Failure, FailureKind, Value};

use super::{Call, Effect, SessionMachine};

/// As the daemon told it.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) node: Option<NodeNumber>,
    pub(super) why: String,
}

/// The lineages that this process keeps.
#[derive(Debug, Default)]
pub(super) struct Lineages {
    /// By the `seq` of the task.
    pub(super) kept: BTreeMap<u64, Kept>,
    pub(super) bytes: usize,
    /// The latest task whose lineage went because all were too much.
    pub(super) dropped: u64,
    /// Lost while the reply that brings it may be unread.
    pub(super) unread: BTreeMap<ObjectId, Loss>,
    /// Lost before the reply that brings it, which is being read.
    pub(super) read: Vec<(ObjectId, Loss)>,
    /// Nodes with which results were lost, as the user was told.
    pub(super) warned: BTreeSet<NodeNumber>,
}

/// One task that has ended.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) name: Arc<str>,
    pub(super) call: Result<Call, Never>,
    /// Of its latest run; 0 for the first.
    pub(super) attempt: u32,
    /// -1 is no limit.
    pub(super) retries_left: i32,
    pub(super) bytes: usize,
    /// Its results that were made at other nodes, and may be missed.
    pub(super) live: BTreeSet<u32>,
    /// Kept calls that have a result of it as argument.
    pub(super) needed_by: u32,
    /// The tasks of which it has results as arguments, as far as they are kept.
    pub(super) needs: Vec<u64>,
    /// Values that it has as arguments, and that could not be made again: each counts once.
    pub(super) holds: Vec<ObjectId>,
    /// The task that runs it again.
    pub(super) run: Option<u64>,
    /// Its results that this run is to make; of a stream's items those that it is past.
    pub(super) lost: BTreeSet<u32>,
    /// Why they are made again.
    pub(super) why: String,
}

/// Why a task does not run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Never {
    Method,
    Packed,
}

impl Never {
    pub(super) fn text(self) -> &'static str {
        match self {
            Never::Method => {
                "it is the result of a method, and those are not called again for it. What a task returns or yields is made again"
            }
            Never::Packed => {
                "its task has more arguments than a call frame takes, and they are not kept. Pass them as one list"
            }
        }
    }
}

impl Kept {
    fn may_run(&self) -> bool {
        self.call.is_ok() && self.retries_left != 0
    }

    /// LIN-2
    fn is_needed(&self) -> bool {
        !self.live.is_empty() || self.needed_by > 0 || self.run.is_some()
    }
}

impl SessionMachine {
    /// One of its results lies at another node.
    pub(super) fn keep_lineage(
        &mut self,
        now: Instant,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let seq = object.task.seq;
        if let Some(kept) = self.lineages.kept.get_mut(&seq) {
            kept.live.insert(object.index);
            return;
        }
        let Some(task) = self.tasks.get(&seq) else { return };
        let call = if task.actor.is_some() {
            Err(Never::Method)
        } else if task.call.packed {
            Err(Never::Packed)
        } else {
            Ok(task.call.clone())
        };
        let mut kept = Kept {
            name: task.call.options.name.clone(),
            call,
            attempt: task.stream.as_ref().map_or(0, |stream| stream.attempt).max(task.attempt),
            retries_left: task.retries_left,
            bytes: size_of::<Kept>(),
            live: BTreeSet::from([object.index]),
            needed_by: 0,
            needs: Vec::new(),
            holds: Vec::new(),
            run: None,
            lost: BTreeSet::new(),
            why: String::new(),
        };
        if let Ok(call) = &kept.call {
            kept.bytes += call.args.len();
            let arguments = call.refs.iter().chain(&call.nested).copied();
            for argument in arguments.collect::<BTreeSet<_>>() {
                kept.bytes += 2 * ObjectId::BYTES;
                if argument.task.owner == self.me
                    && let Some(needed) = self.lineages.kept.get_mut(&argument.task.seq)
                    && needed.may_run()
                {
                    needed.needed_by += 1;
                    kept.needs.push(argument.task.seq);
                } else if let Some(bytes) = self.bytes_to_hold(argument) {
                    kept.bytes += bytes;
                    kept.holds.push(argument);
                }
            }
        }
        for argument in &kept.holds {
            self.add_ref(*argument);
        }
        self.lineages.bytes += kept.bytes;
        self.lineages.kept.insert(seq, kept);
        self.bound_lineages(now, effects);
    }

    /// What it takes to hold an argument, unless that is too much. Of what was never looked at here nobody knows it. A handle is not held: its
    /// actor would not end.
    fn bytes_to_hold(&self, argument: ObjectId) -> Option<usize> {
        if argument == ActorId(argument.task).handle() {
            return None;
        }
        match self.value(argument) {
            None => Some(0),
            Some(Value::Inline(bytes)) => Some(bytes.len()),
            Some(Value::Failed(_)) => None,
            Some(Value::Stored(location)) => {
                (location.len <= LINEAGE_VALUE_BYTES_MAX).then_some(location.len as usize)
            }
        }
    }

    /// The oldest lineage goes when there is too much.
    fn bound_lineages(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while self.lineages.bytes > LINEAGE_BYTES_MAX {
            let mut idle = self.lineages.kept.iter().filter(|(_, kept)| kept.run.is_none());
            let Some(oldest) = idle.next().map(|(seq, _)| *seq) else { return };
            self.lineages.dropped = self.lineages.dropped.max(oldest);
            self.drop_lineage(now, oldest, effects);
        }
    }

    /// With those that nothing else needs.
    fn drop_lineage(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let mut over = vec![seq];
        while let Some(seq) = over.pop() {
            let Some(kept) = self.lineages.kept.remove(&seq) else { continue };
            self.lineages.bytes -= kept.bytes;
            self.drop_all(now, &kept.holds, effects);
            for needed in kept.needs {
                let Some(it) = self.lineages.kept.get_mut(&needed) else { continue };
                it.needed_by -= 1;
                if !it.is_needed() {
                    over.push(needed);
                }
            }
        }
    }

    pub(super) fn drop_if_unneeded(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        if self.lineages.kept.get(&seq).is_some_and(|kept| !kept.is_needed()) {
            self.drop_lineage(now, seq, effects);
        }
    }

    pub(super) fn lineage_over(
        &mut self,
        now: Instant,
        objects: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        for object in objects {
            self.lineages.unread.remove(object);
            if let Some(kept) = self.lineages.kept.get_mut(&object.task.seq) {
                kept.live.remove(&object.index);
            }
            self.drop_if_unneeded(now, object.task.seq, effects);
        }
    }

    /// The daemon is gone, and every other node with it.
    pub(super) fn forget_lineages(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let lineages = std::mem::take(&mut self.lineages);
        for kept in lineages.kept.into_values() {
            self.drop_all(now, &kept.holds, effects);
        }
    }

    #[cfg(test)]
    pub(super) fn kept_lineages(&self) -> usize {
        self.lineages.kept.len()
    }

    pub(super) fn check_lineages(&self) {
        let bytes: usize = self.lineages.kept.values().map(|kept| kept.bytes).sum();
        let runs = self.lineages.kept.values().all(|kept| kept.run.is_some());
        assert!(bytes == self.lineages.bytes, "LIN-1: {bytes}");
        assert!(bytes <= LINEAGE_BYTES_MAX || runs, "LIN-1: {bytes}");
        let mut needed: BTreeMap<u64, u32> = BTreeMap::new();
        let needs = self.lineages.kept.values().flat_map(|kept| &kept.needs);
        needs.for_each(|seq| *needed.entry(*seq).or_default() += 1);
        for (seq, kept) in &self.lineages.kept {
            assert!(kept.is_needed(), "LIN-2: {seq}");
            let count = needed.get(seq).copied().unwrap_or(0);
            assert!(kept.needed_by == count, "LIN-2: {seq} is needed by {count}");
            let original = TaskId { owner: self.me, seq: *seq };
            let stands =
                |run: u64| self.tasks.get(&run).is_some_and(|it| it.stands_for == Some(original));
            assert!(kept.run.is_none_or(stands), "LIN-3: {seq}");
            for other in [Some(*seq), kept.run].into_iter().flatten() {
                let left = self.tasks.get(&other).map_or(kept.retries_left, |it| it.retries_left);
                assert!(left == kept.retries_left, "SES-9: {seq}");
            }
        }
    }
}

/// Its task ran again and did not make it. What its own code, or its workers, did to it is what it is now; where it found no place, the loss
/// is.
pub(super) fn in_vain(object: ObjectId, why: &str, failure: Failure) -> Failure {
    if failure.kind != FailureKind::TaskUnschedulable {
        return failure;
    }
    let text = format!("{object} is lost: {why}. It cannot be made again: {}", failure.text());
    Failure::new(FailureKind::ObjectLost, text)
}
