//! Which queued task goes to which leased worker, how many leases to ask for, when to give one back.
//!
//! A lease is filled up to about `PIPELINE_WORK` of expected work, by the measured time of each
//! function; a function that was never seen counts as that much, so it runs alone. Whatever was guessed wrong is
//! taken back by revoking frames that are not started: when a worker blocks, when it stalls behind a
//! long task, when another lease is idle, when the daemon recalls the lease.
//!
//! A lease whose queue is empty stays for a while: the next call may come. It goes at once when another shape of this
//! process lacks what it takes, as the daemon says.
//!
//! Of a shape that spreads, tasks go round (`spread`).
//!
//! A worker of this node comes before one of another node: of equal work it gets the call. A lease of another node that is
//! idle after `FAR_LEASE_TERM` goes back, so that the next call asks at home first: there may be room by now.

use std::collections::VecDeque;
use std::sync::Arc;

use hoplo_base::bundles::whole_cpus;
use hoplo_base::{ActorId, FunctionId, Instant, LeaseId, ProcessId, ResourceSet, TaskId, limits};
use hoplo_wire::node::{Shape, Strategy, ToNode};
use hoplo_wire::{Failure, FailureKind};

use super::call::Stage;
use super::shapes::{Lease, LeaseAt, Locality, Near, ShapeState, Spread, Wanted};
use super::{Effect, SessionMachine};
use crate::sched::claim::lack_of;

/// How long calls of a function take, exponentially averaged, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(u64);

/// The worker has replied to a call, and so does not stand still.
pub(super) struct Replied {
    /// It takes no more calls.
    pub retiring: bool,
}

/// What a call costs beside the user's code.
const CALL_OVERHEAD_NS: u64 = 3_000;
const PIPELINE_NS: u64 = limits::PIPELINE_WORK.as_nanos() as u64;
/// Work worth moving to an idle lease.
const STEAL_NS: u64 = 200_000;

impl SessionMachine {
    pub(super) fn shape_key(&mut self, shape: &Arc<Shape>) -> u32 {
        if let Some((known, key)) = &self.shape_known
            && Arc::ptr_eq(known, shape)
        {
            return *key;
        }
        let key = match self.shape_keys.get(shape) {
            Some(key) => *key,
            None => self.new_shape(shape),
        };
        self.shape_known = Some((shape.clone(), key));
        key
    }

    fn new_shape(&mut self, shape: &Arc<Shape>) -> u32 {
        let key = self.shapes.len() as u32;
        self.shape_keys.insert(shape.clone(), key);
        self.shapes.push(ShapeState::new(shape, None));
        key
    }

    pub(super) fn enqueue(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let key = self.queue_for(now, seq);
        self.shapes[key as usize].queue.push_back(seq);
        self.pump(now, key, effects);
    }

    pub(super) fn enqueue_first(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let key = self.queue_for(now, seq);
        self.shapes[key as usize].queue.push_front(seq);
        self.pump(now, key, effects);
    }

    pub(super) fn key_of(&mut self, seq: u64) -> u32 {
        let options = self.tasks[&seq].call.options.clone();
        self.shape_key(&options.shape)
    }

    fn queue_for(&mut self, now: Instant, seq: u64) -> u32 {
        let options = self.tasks[&seq].call.options.clone();
        let key = self.shape_key(&options.shape);
        if options.near_first {
            self.use_locality();
        }
        if self.locality == Locality::Used { self.near_key(now, seq, key) } else { key }
    }

    /// Places what has room, then tells the daemon what more could be used.
    pub(super) fn pump(&mut self, now: Instant, key: u32, effects: &mut Vec<Effect>) {
        loop {
            let state = &mut self.shapes[key as usize];
            let Some(seq) = state.queue.front().copied() else { break };
            let Some(task) = self.tasks.get(&seq).filter(|task| task.stage == Stage::Queued) else {
                state.queue.pop_front();
                continue;
            };
            let lease = match &state.spread {
                Some(spread) => spread.next(&mut state.leases, state.queue.len()),
                // The one with the least work.
                None => {
                    let open = state.leases.iter_mut().filter(|lease| lease.has_room());
                    open.min_by_key(|lease| lease.expected_ns)
                }
            };
            let Some(lease) = lease else { break };
            state.queue.pop_front();
            let pace = self.paces.get(&task.call.options.function);
            let guess = pace.map_or(PIPELINE_NS, |pace| pace.0 + CALL_OVERHEAD_NS);
            if lease.in_flight.is_empty() {
                lease.progress_at = now;
            }
            lease.in_flight.push_back(seq);
            lease.expected_ns += guess;
            lease.placed += 1;
            lease.look_in_time(&mut self.lease_look);
            let worker = lease.worker;
            self.place(now, seq, worker, effects);
        }
        self.tell_demand(now, key, effects);
    }

    pub(super) fn all_leases(&self) -> impl Iterator<Item = &Lease> {
        self.shapes.iter().flat_map(|state| &state.leases)
    }

    pub(super) fn lease_of(&self, worker: ProcessId) -> Option<&Lease> {
        self.workers.get(&worker).map(|at| self.lease(*at))
    }

    fn lease(&self, at: LeaseAt) -> &Lease {
        &self.shapes[at.key as usize].leases[at.at as usize]
    }

    fn lease_mut(&mut self, at: LeaseAt) -> &mut Lease {
        &mut self.shapes[at.key as usize].leases[at.at as usize]
    }

    fn insert_lease(&mut self, key: u32, lease: Lease) -> LeaseAt {
        let here = self.me.node();
        let leases = &mut self.shapes[key as usize].leases;
        let near = || leases.iter().take_while(|lease| lease.worker.node() == here).count();
        let at = if lease.worker.node() == here { near() } else { leases.len() };
        leases.insert(at, lease);
        let at = LeaseAt { key, at: at as u32 };
        self.note_places(at);
        at
    }

    pub(super) fn remove_lease(&mut self, at: LeaseAt) -> Lease {
        let lease = self.shapes[at.key as usize].leases.remove(at.at as usize);
        self.workers.remove(&lease.worker);
        self.note_places(at);
        self.reasons -= u64::from(lease.is_reason());
        if let Some(near) = &mut self.shapes[at.key as usize].near {
            near.moved(lease.progress_at);
        }
        lease
    }

    /// The leases from this one on have moved.
    fn note_places(&mut self, from: LeaseAt) {
        let leases = self.shapes[from.key as usize].leases.iter();
        for (index, moved) in leases.enumerate().skip(from.at as usize) {
            self.workers.insert(moved.worker, LeaseAt { key: from.key, at: index as u32 });
        }
    }

    fn tell_demand(&mut self, now: Instant, key: u32, effects: &mut Vec<Effect>) {
        let state = &self.shapes[key as usize];
        let mut wanted = state.queue.len();
        if wanted == 0 {
            let wider = state.could_be_wider();
            let behind = |lease: &Lease| {
                let heavy = lease.held_up || wider || lease.expected_ns > PIPELINE_NS / 2;
                if heavy { lease.in_flight.len().saturating_sub(1) } else { 0 }
            };
            wanted = state.leases.iter().map(behind).sum();
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(limits::LEASE_DEMAND_MAX);
        let asked = state.asked;
        let more = wanted > asked && (asked == 0 || wanted >= 2 * asked);
        let none = wanted == 0 && asked > 0;
        if more || none {
            let shape = state.shape.clone();
            let state = &mut self.shapes[key as usize];
            state.asked = wanted;
            if none {
                state.lacks = ResourceSet::new();
                state.stuck = None;
                state.end_hold(now);
            } else if asked > 0 {
                state.asks_for_more();
            } else if let Some(until) = state.hold_back(now) {
                self.lease_look = Some(self.lease_look.map_or(until, |at| at.min(until)));
            }
            effects.push(Effect::Node(ToNode::LeaseDemand { key, shape, wanted }));
        }
        if self.shapes[key as usize].near.is_some() {
            self.look_at_first(key);
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
        state.lacks = ResourceSet::new(); // The daemon asks again if more is lacking.
        state.stuck = None;
        let lease = Lease {
            id,
            worker,
            gpus,
            cpus: whole_cpus(&state.shape.resources),
            granted_at: now,
            in_flight: VecDeque::new(),
            expected_ns: 0,
            placed: state.joins_round(),
            cold: true,
            wanted: Wanted::Ourselves, // None of them was looked at yet.
            held_up: false,
            retiring: false,
            told_retiring: false,
            progress_at: now,
            overdue: false,
        };
        lease.look_in_time(&mut self.lease_look);
        assert!(!self.workers.contains_key(&worker), "SES-1: {worker} is leased to us twice");
        let at = self.insert_lease(key, lease);
        self.shapes[key as usize].end_hold(now);
        self.pump(now, key, effects);
        self.steal(key, effects);
        self.return_if_done(now, at, effects);
    }

    pub(super) fn lease_recalled(&mut self, now: Instant, id: LeaseId, effects: &mut Vec<Effect>) {
        let mut leases = self.shapes.iter_mut().flat_map(|state| &mut state.leases);
        let Some(lease) = leases.find(|lease| lease.id == id) else { return };
        let before = lease.is_reason();
        lease.wanted = Wanted::Others;
        self.reasons += u64::from(!before); // somebody waits for what it runs to end
        lease.revoke_behind(0, effects);
        let at = self.workers[&lease.worker];
        self.return_if_done(now, at, effects);
    }

    pub(super) fn lease_stuck(
        &mut self,
        key: u32,
        reason: Option<String>,
        infeasible: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.shapes.get_mut(key as usize) else { return };
        let told = state.stuck.as_ref().filter(|(_, infeasible)| *infeasible);
        let told = told.map(|(before, _)| lack_of(before));
        if let Some(reason) = &reason
            && infeasible
            && told != Some(lack_of(reason))
        {
            let waiting = state.queue.front().and_then(|seq| self.tasks.get(seq));
            let name = waiting.map_or("a task", |task| &*task.call.options.name);
            let line = format!("{name} can run nowhere yet: {reason}; it stays pending");
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
        state.lacks = ResourceSet::new();
        for seq in std::mem::take(&mut state.queue) {
            let Some(task) = self.tasks.get(&seq).filter(|task| task.stage == Stage::Queued) else {
                continue;
            };
            let failure = match failure.kind {
                FailureKind::TaskUnschedulable => {
                    let (id, name) = (TaskId { owner: self.me, seq }, &task.call.options.name);
                    let text = format!("{id} of {name} cannot run: {}", failure.text());
                    Failure::new(failure.kind, text)
                }
                _ => failure.clone(),
            };
            self.fail_task(now, seq, &failure, effects);
        }
    }

    pub(super) fn worker_blocked(
        &mut self,
        _now: Instant,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(at) = self.workers.get(&worker).copied() else { return };
        let lease = self.lease_mut(at);
        match lease.in_flight.len() {
            0 => {} // what blocked there has replied meanwhile
            // It is what blocks, or the next one, which begins now. To ask which would be a message there and one back.
            1 => lease.held_up = true,
            _ => lease.hold_up(effects),
        }
    }

    /// A task there is cancelled by force: its worker is killed, and must run none behind it by then.
    pub(super) fn clear_behind(&mut self, at: LeaseAt, effects: &mut Vec<Effect>) {
        self.lease_mut(at).hold_up(effects);
    }

    /// The worker has taken these calls and no others of those that were asked back; `seq` is among them, and cancelled by force.
    pub(super) fn kill_if_it_runs(
        &mut self,
        worker: ProcessId,
        seq: u64,
        taken: &[u64],
        effects: &mut Vec<Effect>,
    ) {
        let Some(at) = self.workers.get(&worker).copied() else { return };
        let lease = self.lease_mut(at);
        let mut behind = lease.in_flight.iter().skip_while(|one| **one != seq).skip(1).peekable();
        if behind.peek().is_none() {
            // Nothing more is placed there. It is kept until the worker is gone, as that of a worker that retires.
            (lease.retiring, lease.told_retiring) = (true, true);
            effects.push(Effect::Node(ToNode::KillWorker { worker }));
        } else if !behind.any(|one| taken.contains(one)) {
            self.clear_behind(at, effects); // they were placed since
        }
        // Else a later one has begun, so this one has ended: its reply is on its way.
    }

    pub(super) fn learn_pace(&mut self, function: FunctionId, ran_ns: u32) {
        let ran = u64::from(ran_ns);
        let pace = self.paces.entry(function).or_insert(Pace(ran));
        pace.0 = (3 * pace.0 + ran) / 4;
    }

    /// A call is not in the ring any more: it was replied to, or taken back.
    pub(super) fn remove_from_worker(
        &mut self,
        now: Instant,
        worker: ProcessId,
        seq: u64,
        actor: Option<ActorId>,
        replied: Option<Replied>,
    ) {
        if let Some(actor) = actor {
            return self.remove_from_actor(actor, seq); // whose worker is not leased
        }
        let at = self.workers[&worker];
        let lease = &mut self.shapes[at.key as usize].leases[at.at as usize];
        if let Some(Replied { retiring }) = replied {
            lease.held_up = false;
            lease.retiring |= retiring;
            let first = std::mem::take(&mut lease.cold);
            if first {
                self.shapes[at.key as usize].end_hold(now);
            }
        } else {
            self.shapes[at.key as usize].stays_its_share(at.at as usize);
        }
        let lease = &mut self.shapes[at.key as usize].leases[at.at as usize];
        if lease.in_flight.front() == Some(&seq) {
            lease.in_flight.pop_front();
        } else {
            let at = lease.in_flight.iter().position(|placed| *placed == seq);
            lease.in_flight.remove(at.expect("SES-1: it was placed there"));
        }
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
        lease.look_in_time(&mut self.lease_look);
    }

    /// After a reply: the lease is refilled, given back, or helps another.
    pub(super) fn after_reply(
        &mut self,
        now: Instant,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(at) = self.workers.get(&worker).copied() else { return };
        let lease = self.lease_mut(at);
        if lease.retiring && !std::mem::replace(&mut lease.told_retiring, true) {
            // The lease is kept until the worker is gone: given back, it would be granted to the next one.
            effects.push(Effect::Node(ToNode::Retires { worker }));
            lease.revoke_behind(0, effects);
        }
        self.refill(now, at, effects);
        self.steal(at.key, effects);
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
        let Some(at) = self.workers.get(&worker).copied() else { return };
        self.refill(now, at, effects);
        if any {
            self.steal(at.key, effects);
        }
    }

    fn refill(&mut self, now: Instant, at: LeaseAt, effects: &mut Vec<Effect>) {
        if self.return_if_done(now, at, effects) {
            return;
        }
        let state = &self.shapes[at.key as usize];
        if !state.queue.is_empty() || state.asked > 0 {
            self.pump(now, at.key, effects);
        }
    }

    fn return_if_done(&mut self, now: Instant, at: LeaseAt, effects: &mut Vec<Effect>) -> bool {
        let lease = self.lease(at);
        if lease.wanted == Wanted::Nobody || lease.retiring || !lease.in_flight.is_empty() {
            return false;
        }
        match lease.wanted {
            Wanted::Nobody => unreachable!("it was just looked at"),
            Wanted::Ourselves => return self.give_to_ourselves(now, at, effects),
            Wanted::Home => {
                self.pump(now, at.key, effects);
                if self.lease(at).in_flight.is_empty() {
                    self.give_back(at, effects);
                }
            }
            Wanted::Others => {
                self.give_back(at, effects);
                self.pump(now, at.key, effects);
            }
        }
        true
    }

    /// True if it got calls of its own shape, or is given back for those of another one.
    #[cold]
    fn give_to_ourselves(&mut self, now: Instant, at: LeaseAt, effects: &mut Vec<Effect>) -> bool {
        self.pump(now, at.key, effects);
        if !self.lease(at).in_flight.is_empty() {
            return true;
        }
        let takes = self.shapes[at.key as usize].shape.clone();
        let mut others =
            self.shapes.iter_mut().enumerate().filter(|(key, _)| *key as u32 != at.key);
        let Some((_, short)) = others.find(|(_, state)| state.lacks_some(&takes.resources)) else {
            self.lease_mut(at).wanted = Wanted::Nobody;
            return false;
        };
        for (name, parts) in takes.resources.iter() {
            short.lacks.set_parts(name, short.lacks.parts(name).saturating_sub(parts));
        }
        self.give_back(at, effects);
        true
    }

    /// What waits for this shape lacks what leases of other shapes take.
    pub(super) fn lease_idle_wanted(&mut self, now: Instant, key: u32, effects: &mut Vec<Effect>) {
        let Some(state) = self.shapes.get_mut(key as usize) else { return };
        let shape = state.shape.clone();
        state.lacks = ResourceSet::new();
        // 0: it was withdrawn while this was on its way.
        for (name, parts) in shape.resources.iter() {
            state.lacks.set_parts(name, parts.saturating_mul(u64::from(state.asked)));
        }
        let mut workers = Vec::new();
        for (other, state) in self.shapes.iter_mut().enumerate() {
            let takes = &state.shape.resources;
            let helps = takes.iter().any(|(name, _)| shape.resources.parts(name) > 0);
            if other as u32 == key || !helps {
                continue;
            }
            for lease in &mut state.leases {
                if lease.wanted != Wanted::Others {
                    lease.wanted = Wanted::Ourselves;
                    workers.push(lease.worker);
                }
            }
        }
        for worker in workers {
            self.return_if_done(now, self.workers[&worker], effects);
        }
    }

    /// This process is about to exit, and has no calls left: its leases go back, so that the daemon does not
    /// take their workers for busy with what it left. Of a worker that retires the daemon was told so before, since
    /// who is granted it would wait for what he queues there.
    pub fn return_leases(&mut self, effects: &mut Vec<Effect>) {
        let empty = self.all_leases().filter(|lease| lease.in_flight.is_empty());
        for worker in empty.map(|lease| lease.worker).collect::<Vec<_>>() {
            self.give_back(self.workers[&worker], effects);
        }
        self.flush(effects);
    }

    fn give_back(&mut self, at: LeaseAt, effects: &mut Vec<Effect>) {
        let lease = self.remove_lease(at);
        let id = lease.id;
        assert!(lease.in_flight.is_empty(), "SES-1: {id} is given back with calls in flight");
        effects.push(Effect::Node(ToNode::LeaseReturn { lease: id }));
    }

    /// An idle lease takes over half of what waits behind the busiest one.
    fn steal(&mut self, key: u32, effects: &mut Vec<Effect>) {
        let state = &self.shapes[key as usize];
        if state.leases.len() < 2 || !state.queue.is_empty() || state.keeps_shares() {
            return;
        }
        let idle = |lease: &Lease| lease.in_flight.is_empty() && lease.has_room();
        if !state.leases.iter().any(idle) {
            return;
        }
        let busy = state
            .leases
            .iter()
            .filter(|lease| lease.in_flight.len() >= 2 && lease.expected_ns > STEAL_NS);
        if let Some(lease) = busy.max_by_key(|lease| lease.expected_ns) {
            lease.revoke_behind(lease.in_flight.len().div_ceil(2), effects);
        }
    }

    /// What `lease_look` is a lower bound of.
    pub(super) fn lease_deadline(&self) -> Option<Instant> {
        let holds = self.shapes.iter().filter_map(ShapeState::hold_ends);
        let leases = self.all_leases().filter_map(Lease::due);
        leases.chain(holds).chain(self.patience_deadline()).min()
    }

    pub(super) fn tick_leases(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.end_holds(now, effects);
        let workers: Vec<ProcessId> = self.all_leases().map(|lease| lease.worker).collect();
        for worker in workers {
            let at = self.workers[&worker];
            let state = &mut self.shapes[at.key as usize];
            let lease = &mut state.leases[at.at as usize];
            let far = worker.node() != self.me.node() && state.shape.strategy == Strategy::Default;
            let old = now.since(lease.granted_at) >= limits::FAR_LEASE_TERM;
            if far && old && lease.wanted == Wanted::Nobody {
                lease.wanted = Wanted::Home;
            }
            let since = now.since(lease.progress_at);
            if lease.in_flight.is_empty() {
                if since >= limits::LEASE_IDLE && !lease.retiring {
                    self.give_back(at, effects);
                }
                continue;
            }
            if since >= limits::LEASE_IDLE && !lease.overdue {
                self.reasons += u64::from(!lease.is_reason());
                lease.overdue = true;
            }
            if lease.in_flight.len() > 1 && since >= limits::LEASE_STALL && !lease.held_up {
                lease.hold_up(effects);
            }
        }
        self.lease_look = self.lease_deadline();
    }
}

impl ShapeState {
    pub(super) fn new(shape: &Arc<Shape>, near: Option<Near>) -> Self {
        Self {
            shape: shape.clone(),
            queue: VecDeque::new(),
            leases: Vec::new(),
            asked: 0,
            lacks: ResourceSet::new(),
            stuck: None,
            spread: (shape.strategy == Strategy::Spread).then(Spread::default),
            near,
        }
    }

    fn lacks_some(&self, takes: &ResourceSet) -> bool {
        self.lacks.iter().any(|(name, _)| takes.parts(name) > 0)
    }
}

impl Lease {
    /// Whether its replies must be drained though nobody may wait for them.
    pub(super) fn is_reason(&self) -> bool {
        self.wanted == Wanted::Others || self.overdue
    }

    /// Nothing more is placed until it replies, and what was not started is taken back.
    fn hold_up(&mut self, effects: &mut Vec<Effect>) {
        self.held_up = true;
        self.revoke_behind(0, effects);
    }

    /// Asks for the frames behind the first `keep`; the first frame too, if `keep` is 0 (it is kept if it
    /// was started).
    fn revoke_behind(&self, keep: usize, effects: &mut Vec<Effect>) {
        let seqs: Vec<u64> = self.in_flight.iter().skip(keep).copied().collect();
        if !seqs.is_empty() {
            effects.push(Effect::Revoke { worker: self.worker, seqs });
        }
    }

    /// When a tick has something to do about it.
    fn due(&self) -> Option<Instant> {
        let after = match self.in_flight.len() {
            0 if self.retiring => return None,
            0 => limits::LEASE_IDLE,
            count if count > 1 && !self.held_up => limits::LEASE_STALL,
            _ if self.overdue => return None,
            _ => limits::LEASE_IDLE,
        };
        Some(self.progress_at + after)
    }

    /// SES-6: after a change that may make it due sooner.
    fn look_in_time(&self, look: &mut Option<Instant>) {
        if let Some(due) = self.due() {
            *look = Some(look.map_or(due, |at| at.min(due)));
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.wanted != Wanted::Others
            && !self.held_up
            && !self.retiring
            && self.in_flight.len() < limits::PIPELINE_DEPTH_MAX
            && (self.in_flight.is_empty() || self.expected_ns < PIPELINE_NS)
    }
}
