//! `PlacementGroup.ready()`: a ref whose value the daemon's word completes, not a worker.
//!
//! It is a task as others are (it is listed, explained, cancelled, and its lineage goes where its ref goes), but its value
//! lies in its arguments, and instead of a lease it asks the daemon how the group is (`GroupWatch`). While it is pending, all
//! who ask here for the same group share it: a program that asks again and again adds nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use hoplo_base::{FunctionId, GroupId, Instant, ObjectId, TaskId};
use hoplo_wire::node::{GroupState, Inside, RuntimeEnv, Shape, ToNode};
use hoplo_wire::{Failure, FailureKind, Value};

use super::call::{Stage, Values};
use super::results::Origin;
use super::{Call, CallOptions, Effect, SessionMachine};

/// The function of a promise: no pickle has this hash.
pub(super) const READY: FunctionId = FunctionId([0xff; 16]);

/// Watches of this machine have numbers from here on, those of its shell below.
pub const PROMISED: u64 = 1 << 63;

/// What is pending of them.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Of this process: the task of each group.
    of: BTreeMap<GroupId, u64>,
    /// By task: what its group waits for, as the daemon said last.
    waits: BTreeMap<u64, String>,
}

impl SessionMachine {
    /// An object that gets `value` when the group is placed, and fails when the group is removed. The caller owns one count.
    pub fn group_ready(
        &mut self,
        now: Instant,
        group: GroupId,
        value: Vec<u8>,
        parent: Option<TaskId>,
        effects: &mut Vec<Effect>,
    ) -> ObjectId {
        if let Some(seq) = self.promises.of.get(&group) {
            let object = TaskId { owner: self.me, seq: *seq }.object(0);
            self.add_ref(object);
            return object;
        }
        let inside = Some(Inside { group, capture: false });
        let env = RuntimeEnv { group: inside, ..RuntimeEnv::default() };
        let options = CallOptions {
            function: READY,
            name: Arc::from("PlacementGroup.ready"),
            shape: Arc::new(Shape { env, ..Shape::default() }),
            returns: 1,
            flags: 0,
            max_retries: -1,
            max_calls: 0,
            job: None,
            stream_ahead: 0,
            max_pending_calls: 0,
            remembered: false,
            near_first: false,
            may_be_overtaken: false,
        };
        let (refs, nested) = (vec![], vec![]);
        let call = Call { options: Arc::new(options), args: value, refs, nested, packed: false };
        let task = self.create_task(call, None, parent);
        self.promises.of.insert(group, task.seq);
        self.promise(now, task.seq, effects);
        task.object(0)
    }

    /// A new task with the function `READY`.
    pub(super) fn promise(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        self.set_stage(seq, Stage::Promised);
        if let Some(failure) = self.node_died.clone() {
            return self.end_promise(now, seq, Value::Failed(failure), effects);
        }
        match self.promised_group(seq) {
            Some(group) => {
                let request = PROMISED | seq;
                effects.push(Effect::Node(ToNode::GroupWatch { request, group }));
            }
            None => {
                let text = "its lineage names no placement group";
                let failure = Failure::new(FailureKind::ObjectLost, text);
                self.end_promise(now, seq, Value::Failed(failure), effects);
            }
        }
    }

    /// The daemon says how a group is that `promise` asked about.
    pub(super) fn group_state(
        &mut self,
        now: Instant,
        request: u64,
        state: GroupState,
        effects: &mut Vec<Effect>,
    ) {
        let seq = request & !PROMISED;
        let Some(task) = self.tasks.get(&seq).filter(|task| task.stage == Stage::Promised) else {
            return; // it was cancelled
        };
        let value = match state {
            GroupState::Waits { why } => {
                self.promises.waits.insert(seq, why);
                return;
            }
            GroupState::Created => Value::Inline(task.call.args.as_slice().into()),
            GroupState::Removed { why } => {
                let group = self.promised_group(seq).expect("promise() asked about it");
                let text = format!("placement {group} is no more: {why}");
                Value::Failed(Failure::new(FailureKind::TaskGroupRemoved, text))
            }
        };
        self.end_promise(now, seq, value, effects);
    }

    /// Nobody is to wait for it any more.
    pub(super) fn cancel_promise(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        if let Some(group) = self.promised_group(seq) {
            let request = PROMISED | seq;
            effects.push(Effect::Node(ToNode::GroupUnwatch { request, group }));
        }
        let failure = self.cancelled_failure(seq);
        self.end_promise(now, seq, Value::Failed(failure), effects);
    }

    /// Where it is, for people.
    pub(super) fn why_promised(&self, seq: u64) -> String {
        if let Some(why) = self.promises.waits.get(&seq) {
            return format!("waiting, since {why}");
        }
        match self.promised_group(seq) {
            Some(group) => format!("waiting until placement {group} is placed"),
            None => "waiting".to_string(),
        }
    }

    pub(super) fn forget_promises(&mut self) {
        self.promises = Promises::default();
    }

    fn promised_group(&self, seq: u64) -> Option<GroupId> {
        self.tasks.get(&seq)?.call.options.shape.env.group.map(|inside| inside.group)
    }

    fn end_promise(&mut self, now: Instant, seq: u64, value: Value, effects: &mut Vec<Effect>) {
        if let Some(group) = self.promised_group(seq)
            && self.promises.of.get(&group) == Some(&seq)
        {
            self.promises.of.remove(&group);
        }
        self.promises.waits.remove(&seq);
        self.finish(now, seq, Values::from_buf([(value, vec![])]), Origin::Own, effects);
    }
}
