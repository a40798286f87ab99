//! Which queued task goes to which leased worker, how many leases to ask for, when to give one back.
//!
//! A lease is filled up to about `PIPELINE_WORK` of expected work, by the measured time of each
//! function; a function that was never seen counts as that much, so it runs alone. Whatever was guessed wrong is
//! taken back by revoking frames that are not started: when a worker blocks, when it stalls behind a
//! long task, when another lease is idle, when the daemon recalls the lease.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{Instant, LeaseId, ProcessId, limits};
use hoplo_wire::Failure;
use hoplo_wire::node::{Shape, ToNode};

use super::tasks::Stage;
use super::{Effect, Session};

#[derive(Debug)]
pub(super) struct ShapeState {
    pub shape: Arc<Shape>,
    /// Tasks without a place; some may be finished (cancelled) or placed meanwhile: they are skipped.
    pub queue: VecDeque<u64>,
    pub leases: Vec<LeaseId>,
    /// What the daemon was told last, less what it granted.
    pub asked: u32,
    /// Why the daemon grants nothing, and whether it never can.
    pub stuck: Option<(String, bool)>,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub key: u32,
    pub worker: ProcessId,
    pub gpus: Vec<u32>,
    /// In ring order.
    pub in_flight: VecDeque<u64>,
    /// Nanoseconds of work in flight, by our guess.
    pub expected_ns: u64,
    /// The daemon wants it back: nothing more is placed.
    pub recalled: bool,
    /// Its worker waits in `get`, or runs far longer than guessed: nothing more is placed until it replies.
    pub held_up: bool,
    /// Its worker exits after what it runs.
    pub retiring: bool,
    /// Time of the last reply, or of the first placement after it was empty.
    pub progress_at: Instant,
    /// There was no progress for `LEASE_IDLE`: from now on its replies are drained as they come, lest an
    /// idle worker is kept because nobody here looks.
    pub overdue: bool,
}

/// How long calls of a function take, exponentially averaged, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(u64);

/// What a call costs beside the user's code.
const CALL_OVERHEAD_NS: u64 = 3_000;
const PIPELINE_NS: u64 = limits::PIPELINE_WORK.as_nanos() as u64;
/// A lease whose worker has not replied for so long is asked for what it has not started.
const STALL: Duration = Duration::from_millis(5);
/// Work worth moving to an idle lease.
const STEAL_NS: u64 = 200_000;

impl Session {
    pub(super) fn shape_key(&mut self, shape: &Arc<Shape>) -> u32 {
        if let Some(key) = self.shape_keys.get(shape) {
            return *key;
        }
        let key = self.shapes.len() as u32;
        self.shape_keys.insert(shape.clone(), key);
        self.shapes.push(ShapeState {
            shape: shape.clone(),
            queue: VecDeque::new(),
            leases: Vec::new(),
            asked: 0,
            stuck: None,
        });
        key
    }

    pub(super) fn enqueue(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let key = self.key_of(seq);
        self.shapes[key as usize].queue.push_back(seq);
        self.pump(now, key, effects);
    }

    pub(super) fn enqueue_first(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let key = self.key_of(seq);
        self.shapes[key as usize].queue.push_front(seq);
        self.pump(now, key, effects);
    }

    pub(super) fn key_of(&mut self, seq: u64) -> u32 {
        let shape = self.tasks[&seq].call.options.shape.clone();
        self.shape_key(&shape)
    }

    /// Places what has room, then tells the daemon what more could be used.
    pub(super) fn pump(&mut self, now: Instant, key: u32, effects: &mut Vec<Effect>) {
        while let Some(seq) = self.shapes[key as usize].queue.front().copied() {
            if self.tasks.get(&seq).is_none_or(|task| task.stage != Stage::Queued) {
                self.shapes[key as usize].queue.pop_front();
                continue;
            }
            let Some(lease_id) = self.roomiest(key) else { break };
            self.shapes[key as usize].queue.pop_front();
            let guess = self.guess_ns(seq);
            let lease = self.leases.get_mut(&lease_id).expect("it was just found");
            if lease.in_flight.is_empty() {
                lease.progress_at = now;
            }
            lease.in_flight.push_back(seq);
            lease.expected_ns += guess;
            let worker = lease.worker;
            self.place(now, seq, worker, effects);
        }
        self.tell_demand(key, effects);
    }

    fn guess_ns(&self, seq: u64) -> u64 {
        let function = self.tasks[&seq].call.options.function;
        self.paces.get(&function).map_or(PIPELINE_NS, |pace| pace.0 + CALL_OVERHEAD_NS)
    }

    /// The lease with the least work that may take more.
    fn roomiest(&self, key: u32) -> Option<LeaseId> {
        let leases = &self.shapes[key as usize].leases;
        let open = leases.iter().filter(|id| self.leases[*id].has_room());
        open.min_by_key(|id| self.leases[*id].expected_ns).copied()
    }

    fn tell_demand(&mut self, key: u32, effects: &mut Vec<Effect>) {
        let state = &self.shapes[key as usize];
        let mut wanted = state.queue.len();
        if wanted == 0 {
            let behind = |lease: &super::Lease| {
                let heavy = lease.held_up || lease.expected_ns > PIPELINE_NS / 2;
                if heavy { lease.in_flight.len().saturating_sub(1) } else { 0 }
            };
            wanted = state.leases.iter().map(|id| behind(&self.leases[id])).sum();
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(limits::LEASE_DEMAND_MAX);
        let asked = state.asked;
        let more = wanted > asked && (asked == 0 || wanted >= 2 * asked);
        let none = wanted == 0 && asked > 0;
        if more || none {
            let shape = (*state.shape).clone();
            self.shapes[key as usize].asked = wanted;
            if none {
                self.shapes[key as usize].stuck = None;
            }
            effects.push(Effect::Node(ToNode::LeaseDemand { key, shape, wanted }));
        }
    }

    pub(super) fn lease_granted(
        &mut self,
        now: Instant,
        id: LeaseId,
        key: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
        effects: &mut Vec<Effect>,
    ) {
        let state = &mut self.shapes[key as usize];
        state.asked = state.asked.saturating_sub(1);
        state.stuck = None;
        state.leases.push(id);
        let lease = Lease {
            key,
            worker,
            gpus,
            in_flight: VecDeque::new(),
            expected_ns: 0,
            recalled: false,
            held_up: false,
            retiring: false,
            progress_at: now,
            overdue: false,
        };
        let old = self.workers.insert(worker, id);
        assert!(old.is_none(), "SES-1: {worker} is leased to us twice");
        self.leases.insert(id, lease);
        self.pump(now, key, effects);
        self.steal(key, effects);
    }

    pub(super) fn lease_recalled(&mut self, now: Instant, id: LeaseId, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        let before = lease.is_reason();
        lease.recalled = true;
        self.reasons += u64::from(!before); // somebody waits for what it runs to end
        let worker = lease.worker;
        self.revoke_behind(id, 0, effects);
        self.return_if_done(now, worker, effects);
    }

    pub(super) fn lease_stuck(
        &mut self,
        key: u32,
        reason: Option<String>,
        infeasible: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.shapes.get_mut(key as usize) else { return };
        let told = state.stuck.as_ref().is_some_and(|(_, infeasible)| *infeasible);
        if let Some(reason) = &reason
            && infeasible
            && !told
        {
            let waiting = state.queue.front().and_then(|seq| self.tasks.get(seq));
            let name = waiting.map_or("a task", |task| &*task.call.options.name);
            let line = format!("{name} can never run here as it is: {reason}; it stays pending");
            effects.push(Effect::Warn { line });
        }
        state.stuck = reason.map(|reason| (reason, infeasible));
    }

    pub(super) fn lease_failed(
        &mut self,
        now: Instant,
        key: u32,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.shapes.get_mut(key as usize) else { return };
        state.asked = 0;
        for seq in std::mem::take(&mut state.queue) {
            if self.tasks.get(&seq).is_some_and(|task| task.stage == Stage::Queued) {
                self.fail_task(now, seq, failure, effects);
            }
        }
    }

    pub(super) fn worker_blocked(
        &mut self,
        _now: Instant,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(id) = self.workers.get(&worker).copied() else { return };
        let lease = self.leases.get_mut(&id).expect("both maps hold it");
        if lease.in_flight.is_empty() {
            return; // what blocked there has replied meanwhile
        }
        lease.held_up = true;
        self.revoke_behind(id, 0, effects);
    }

    /// Asks for the frames behind the first `keep`; the first frame too, if `keep` is 0 (it is kept if it
    /// was started).
    fn revoke_behind(&self, id: LeaseId, keep: usize, effects: &mut Vec<Effect>) {
        let lease = &self.leases[&id];
        let seqs: Vec<u64> = lease.in_flight.iter().skip(keep).copied().collect();
        if !seqs.is_empty() {
            effects.push(Effect::Revoke { worker: lease.worker, seqs });
        }
    }

    /// A call was replied to: the pace is learnt and the lease has room.
    pub(super) fn leave_worker(
        &mut self,
        now: Instant,
        worker: ProcessId,
        seq: u64,
        ran_ns: u32,
        retiring: bool,
    ) {
        let task = &self.tasks[&seq];
        if task.actor.is_none() {
            let ran = u64::from(ran_ns);
            let pace = self.paces.entry(task.call.options.function).or_insert(Pace(ran));
            pace.0 = (3 * pace.0 + ran) / 4;
        }
        self.leave_lease(now, worker, seq);
        if let Some(id) = self.workers.get(&worker) {
            let lease = self.leases.get_mut(id).expect("both maps hold it");
            lease.held_up = false;
            lease.retiring |= retiring;
        }
        if let Some(actor) = self.tasks[&seq].actor {
            self.leave_actor(actor, seq);
        }
    }

    pub(super) fn leave_lease(&mut self, now: Instant, worker: ProcessId, seq: u64) {
        let Some(id) = self.workers.get(&worker) else {
            if let Some(actor) = self.tasks[&seq].actor {
                self.leave_actor(actor, seq);
            }
            return;
        };
        let lease = self.leases.get_mut(id).expect("both maps hold it");
        let at = lease.in_flight.iter().position(|placed| *placed == seq);
        lease.in_flight.remove(at.expect("SES-1: it was placed there"));
        lease.progress_at = now;
        let before = lease.is_reason();
        lease.overdue = false;
        self.reasons -= u64::from(before && !lease.is_reason());
        lease.expected_ns = if lease.in_flight.is_empty() {
            lease.held_up = false;
            0
        } else {
            let count = lease.in_flight.len() as u64 + 1;
            lease.expected_ns - lease.expected_ns / count
        };
    }

    /// After a reply: the lease is refilled, given back, or helps another.
    pub(super) fn after_reply(
        &mut self,
        now: Instant,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(id) = self.workers.get(&worker) else { return };
        let lease = &self.leases[id];
        let key = lease.key;
        if lease.retiring && !lease.in_flight.is_empty() {
            self.revoke_behind(*id, 0, effects);
        }
        self.refill(now, worker, effects);
        self.steal(key, effects);
    }

    /// Frames were asked back. If none came, nothing more is asked for: the answer would be the same
    /// until replies are drained.
    pub(super) fn after_revocation(
        &mut self,
        now: Instant,
        worker: ProcessId,
        any: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(id) = self.workers.get(&worker) else { return };
        let key = self.leases[id].key;
        self.refill(now, worker, effects);
        if any {
            self.steal(key, effects);
        }
    }

    fn refill(&mut self, now: Instant, worker: ProcessId, effects: &mut Vec<Effect>) {
        let key = self.leases[&self.workers[&worker]].key;
        if self.return_if_done(now, worker, effects) {
            return;
        }
        if !self.shapes[key as usize].queue.is_empty() || self.shapes[key as usize].asked > 0 {
            self.pump(now, key, effects);
        }
    }

    fn return_if_done(
        &mut self,
        now: Instant,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(id) = self.workers.get(&worker).copied() else { return false };
        let lease = &self.leases[&id];
        // A retiring worker is on its way out: given back, it would be granted to the next one.
        if !lease.recalled || lease.retiring || !lease.in_flight.is_empty() {
            return false;
        }
        let key = lease.key;
        self.give_back(id, effects);
        self.pump(now, key, effects);
        true
    }

    /// This process is about to exit, and has no calls left: its leases go back, so that the daemon does not
    /// take their workers for busy with what it left.
    pub fn leave(&mut self, effects: &mut Vec<Effect>) {
        for id in self.leases.keys().copied().collect::<Vec<_>>() {
            if self.leases[&id].in_flight.is_empty() {
                self.give_back(id, effects);
            }
        }
        self.flush(effects);
    }

    fn give_back(&mut self, id: LeaseId, effects: &mut Vec<Effect>) {
        let lease = self.leases.remove(&id).expect("the caller has it");
        assert!(lease.in_flight.is_empty(), "SES-1: {id} is given back with calls in flight");
        self.reasons -= u64::from(lease.is_reason());
        self.workers.remove(&lease.worker);
        self.shapes[lease.key as usize].leases.retain(|other| *other != id);
        effects.push(Effect::Node(ToNode::LeaseReturn { lease: id }));
    }

    /// An idle lease takes over half of what waits behind the busiest one.
    fn steal(&mut self, key: u32, effects: &mut Vec<Effect>) {
        let state = &self.shapes[key as usize];
        if state.leases.len() < 2 || !state.queue.is_empty() {
            return;
        }
        let idle = |id: &&LeaseId| {
            let lease = &self.leases[*id];
            lease.in_flight.is_empty() && lease.has_room()
        };
        if !state.leases.iter().any(|id| idle(&id)) {
            return;
        }
        let busy = state.leases.iter().filter(|id| {
            let lease = &self.leases[*id];
            lease.in_flight.len() >= 2 && lease.expected_ns > STEAL_NS
        });
        if let Some(id) = busy.max_by_key(|id| self.leases[*id].expected_ns).copied() {
            let keep = self.leases[&id].in_flight.len().div_ceil(2);
            self.revoke_behind(id, keep, effects);
        }
    }

    pub(super) fn lease_deadline(&self) -> Option<Instant> {
        let due = |lease: &Lease| match lease.in_flight.len() {
            0 if lease.retiring => None,
            0 => Some(lease.progress_at + limits::LEASE_IDLE),
            count if count > 1 && !lease.held_up => Some(lease.progress_at + STALL),
            _ if lease.overdue => None,
            _ => Some(lease.progress_at + limits::LEASE_IDLE),
        };
        self.leases.values().filter_map(due).min()
    }

    pub(super) fn tick_leases(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let ids: Vec<LeaseId> = self.leases.keys().copied().collect();
        for id in ids {
            let lease = &self.leases[&id];
            let since = now.since(lease.progress_at);
            if lease.in_flight.is_empty() {
                if since >= limits::LEASE_IDLE && !lease.retiring {
                    self.give_back(id, effects);
                }
                continue;
            }
            if since >= limits::LEASE_IDLE && !lease.overdue {
                let lease = self.leases.get_mut(&id).expect("it is there");
                self.reasons += u64::from(!lease.is_reason());
                lease.overdue = true;
            }
            let lease = &self.leases[&id];
            if lease.in_flight.len() > 1 && since >= STALL && !lease.held_up {
                self.leases.get_mut(&id).expect("it is there").held_up = true;
                self.revoke_behind(id, 0, effects);
            }
        }
    }
}

impl Lease {
    /// Whether its replies must be drained though nobody may wait for them.
    pub(super) fn is_reason(&self) -> bool {
        self.recalled || self.overdue
    }

    fn has_room(&self) -> bool {
        !self.recalled
            && !self.held_up
            && !self.retiring
            && self.in_flight.len() < limits::PIPELINE_DEPTH_MAX
            && (self.in_flight.is_empty() || self.expected_ns < PIPELINE_NS)
    }
}
