//! What is known to have happened, by task, actor, object, process and job: failures are held against it (`failures`).
//!
//! It is written where the world makes it happen: in the kernel that ends a process, the program that cancels, the
//! ring that a call was taken from. What the machines say of it is no fact.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{RESTARTS_FAILED_MAX, STARTS_FAILED_MAX, WORKERS_UNTAKEN_MAX};
use hoplo_base::{ActorId, GroupId, JobId, NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_wire::FailureKind;
use hoplo_wire::node::LabelSelector;

#[derive(Debug, Default)]
pub struct Facts {
    calls: BTreeMap<TaskId, Call>,
    /// Tasks that others stand for: of their heirs, or of their own owners, where a result was lost.
    stand_ins: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Attempts that began, by task.
    pub starts: BTreeMap<TaskId, Vec<u32>>,
    /// Workers that a task was given to, begun or not.
    placed: BTreeMap<TaskId, BTreeSet<ProcessId>>,
    /// Workers that died, or hang for ever, before they had replied for a task that they had begun.
    broke_off: BTreeMap<TaskId, BTreeSet<ProcessId>>,
    /// True: with all that it submitted.
    cancelled: BTreeMap<TaskId, bool>,
    /// Ended so by the program itself, or for what it was denied.
    failed_by_itself: BTreeSet<(TaskId, FailureKind)>,
    actors: BTreeMap<ActorId, Actor>,
    /// Who killed which actor for good.
    pub killers: BTreeSet<(ProcessId, ActorId)>,
    /// Calls that their caller made after it had killed the actor.
    pub after_kill: BTreeSet<TaskId>,
    /// The worker of it that this process ended last, so that it starts again.
    pub ended_workers: BTreeMap<(ProcessId, ActorId), ProcessId>,
    /// Calls of such actors that were made after that.
    pub not_at: BTreeMap<TaskId, ProcessId>,
    /// The job with which each ends.
    groups: BTreeMap<GroupId, Option<JobId>>,
    groups_removed: BTreeSet<GroupId>,
    /// Their rows were refused.
    groups_unwritten: BTreeSet<GroupId>,
    /// Processes that run none of our code any more, however that came.
    ended: BTreeSet<ProcessId>,
    /// Of those, who did not leave by itself.
    pub died: BTreeSet<ProcessId>,
    /// Of those, which their daemon had not killed before.
    fell: BTreeSet<ProcessId>,
    /// Processes that the daemon has killed, and that may not have noticed.
    doomed: BTreeSet<ProcessId>,
    /// They were told to exit.
    sent_away: BTreeSet<ProcessId>,
    /// Processes that used too much memory when the daemon measured them.
    used_too_much: BTreeSet<ProcessId>,
    /// Workers that died or were not forked before their hello.
    failed_starts: BTreeMap<JobId, u32>,
    /// Disk space that was refused, and not told to whoever wants it.
    pub refused_reserves: u32,
    /// What is being read from the disk, by node and ticket.
    reads: BTreeMap<(NodeNumber, u64), ObjectId>,
    /// What the disk failed to read.
    pub not_read: BTreeSet<ObjectId>,
    /// Nodes that were killed.
    dead_nodes: BTreeSet<NodeNumber>,
    nodes_drained: u32,
}

/// What a process submitted: a task, a method's call, or a constructor.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// What ran in the submitter.
    pub parent: Option<TaskId>,
    /// The actor whose method it calls.
    pub actor: Option<ActorId>,
    /// Arguments that must be there before it runs: their failures are its own.
    pub refs: Vec<ObjectId>,
    /// What lies in other arguments.
    pub nested: Vec<ObjectId>,
    pub max_retries: i32,
    /// It is to run in a bundle of this one.
    pub group: Option<GroupId>,
    /// Where it may run, and where rather.
    pub labels: Vec<LabelSelector>,
    /// Its results are made again when they are lost: it is not a method's call, and its frame has its arguments.
    pub may_run_again: bool,
    pub streams: bool,
}

#[derive(Debug, Default)]
struct Actor {
    max_restarts: i32,
    /// The daemon was told of it.
    told: bool,
    /// For good, by somebody.
    killed: bool,
    /// Workers that it was at home in and that did not leave by themselves.
    died_in: BTreeSet<ProcessId>,
    /// Why they died. Each of these may cost it one restart.
    deaths: BTreeSet<Death>,
}

/// What a worker dies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Death {
    OfWorker(ProcessId),
    /// Its node died, or is dead to the others and ends. The workers of an actor that begin there again die of the same.
    OfNode(NodeNumber),
}

impl Facts {
    // ---- what happens ----

    pub fn submits(&mut self, task: TaskId, call: Call) {
        self.calls.insert(task, call);
    }

    pub fn creates(&mut self, actor: ActorId, max_restarts: i32) {
        self.actors.entry(actor).or_default().max_restarts = max_restarts;
    }

    pub fn makes_group(&mut self, group: GroupId, job: Option<JobId>) {
        self.groups.insert(group, job);
    }

    pub fn removes_group(&mut self, group: GroupId) {
        self.groups_removed.insert(group);
    }

    pub fn tells_of(&mut self, actor: ActorId) {
        self.actors.entry(actor).or_default().told = true;
    }

    /// Somebody asks the daemon to.
    pub fn kills(&mut self, actor: ActorId, no_restart: bool) {
        self.actors.entry(actor).or_default().killed |= no_restart;
    }

    /// True: it is new.
    pub fn stands_for(&mut self, original: TaskId, stands_for_it: TaskId) -> bool {
        self.stand_ins.entry(original).or_default().insert(stands_for_it)
    }

    pub fn is_placed(&mut self, task: TaskId, worker: ProcessId) {
        self.placed.entry(task).or_default().insert(worker);
    }

    pub fn cancels(&mut self, task: TaskId, recursive: bool) {
        *self.cancelled.entry(task).or_default() |= recursive;
    }

    pub fn fails_by_itself(&mut self, task: TaskId, kind: FailureKind) {
        self.failed_by_itself.insert((task, kind));
    }

    /// `running`: what it had begun and not replied to.
    pub fn dies(&mut self, process: ProcessId, running: impl IntoIterator<Item = TaskId>) {
        self.ended.insert(process);
        self.died.insert(process);
        if !self.doomed.contains(&process) {
            self.fell.insert(process);
        }
        for task in running {
            self.broke_off.entry(task).or_default().insert(process);
        }
    }

    /// It leaves by itself: nothing runs in it, and nothing is lost with it.
    pub fn leaves(&mut self, process: ProcessId) {
        self.ended.insert(process);
    }

    /// The daemon knew it as the home of this actor when it was buried. If that daemon had not killed it, it died of itself: also where others had called its
    /// node dead meanwhile, which had still to hear so and began the actor again in other workers (seed 10060421). It counts as well if its
    /// node stood still when it died, and was noted as dead with all its workers: the actor may begin there again, and die with that node then (seed 80127623).
    /// Who dies since its node ends, and told it to exit, dies with that node.
    pub fn was_buried(&mut self, actor: ActorId, worker: ProcessId) {
        match self.fell.contains(&worker) {
            true if self.sent_away.contains(&worker) => {
                self.loses(actor, worker, Death::OfWorker(worker));
            }
            true => {
                let actor = self.actors.entry(actor).or_default();
                actor.died_in.insert(worker);
                actor.deaths.insert(Death::OfWorker(worker));
            }
            false => self.lived_in(actor, worker),
        }
    }

    /// Its node is dead to the others, whether it has ended or not; or it was to begin there, and is dead.
    pub fn lived_in(&mut self, actor: ActorId, worker: ProcessId) {
        if self.dead_nodes.contains(&worker.node()) {
            self.loses(actor, worker, Death::OfNode(worker.node()));
        } else if self.died.contains(&worker) {
            self.loses(actor, worker, Death::OfWorker(worker));
        }
    }

    fn loses(&mut self, actor: ActorId, worker: ProcessId, death: Death) {
        let actor = self.actors.entry(actor).or_default();
        if actor.died_in.insert(worker) {
            actor.deaths.insert(death);
        }
    }

    pub fn node_dies(&mut self, node: NodeNumber) {
        self.dead_nodes.insert(node);
    }

    pub fn node_drains(&mut self) {
        self.nodes_drained += 1;
    }

    /// Actors that can start again do so elsewhere.
    pub fn some_node_drains(&self) -> bool {
        self.nodes_drained > 0
    }

    /// How often it may have started again by now: once for each death, and once for each node that was drained.
    pub fn restarts_due(&self, actor: ActorId) -> usize {
        self.deaths_of(actor) + self.nodes_drained as usize
    }

    /// That may have cost it a restart each. Who was in charge of it may die after it ordered a start, of which the next one knows only that: once its home
    /// is dead, each node's death may be such a one.
    fn deaths_of(&self, actor: ActorId) -> usize {
        let Some(it) = self.actors.get(&actor) else { return 0 };
        let home_is_dead = self.dead_nodes.contains(&actor.0.owner.node());
        let in_charge =
            self.dead_nodes.iter().filter(|_| home_is_dead).map(|it| Death::OfNode(*it));
        it.deaths.iter().copied().chain(in_charge).collect::<BTreeSet<_>>().len()
    }

    pub fn is_dead_node(&self, node: NodeNumber) -> bool {
        self.dead_nodes.contains(&node)
    }

    /// What it had is lost, and what was sent there.
    pub fn dooms(&mut self, process: ProcessId) {
        self.doomed.insert(process);
    }

    /// It was told to exit, and does.
    pub fn sends_away(&mut self, process: ProcessId) {
        self.sent_away.insert(process);
    }

    pub fn is_doomed(&self, process: ProcessId) -> bool {
        self.doomed.contains(&process)
    }

    pub fn some_node_died(&self) -> bool {
        !self.dead_nodes.is_empty()
    }

    pub fn uses_too_much(&mut self, process: ProcessId) {
        self.used_too_much.insert(process);
    }

    pub fn fails_to_start(&mut self, job: JobId) {
        *self.failed_starts.entry(job).or_default() += 1;
    }

    pub fn is_read(&mut self, node: NodeNumber, ticket: u64, object: ObjectId) {
        self.reads.insert((node, ticket), object);
    }

    pub fn reads(&mut self, node: NodeNumber, ticket: u64, fails: bool) {
        let object = self.reads.remove(&(node, ticket)).expect("it was begun");
        if fails {
            self.not_read.insert(object);
        }
    }

    pub fn streams(&self, task: TaskId) -> bool {
        self.calls.get(&task).is_some_and(|call| call.streams)
    }

    // ---- what happened ----

    /// What a failure of the task may come from: all that it needs, that these need, and so on; with itself.
    pub fn sources(&self, task: TaskId) -> (BTreeSet<TaskId>, BTreeSet<ObjectId>) {
        let (mut tasks, mut objects) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec![task];
        while let Some(task) = open.pop() {
            if !tasks.insert(task) {
                continue;
            }
            let Some(call) = self.calls.get(&task) else { continue };
            objects.extend(&call.refs);
            open.extend(call.refs.iter().map(|object| object.task));
            open.extend(call.actor.map(|actor| actor.0)); // its constructor
        }
        (tasks, objects)
    }

    /// Itself, or something that it descends from with all that this submitted.
    pub fn is_cancelled(&self, task: TaskId) -> bool {
        let parent = |task: &TaskId| self.calls.get(task).and_then(|call| call.parent);
        let mut ancestors = std::iter::successors(parent(&task), parent);
        let with_all = |task: TaskId| self.cancelled.get(&task) == Some(&true);
        self.cancelled.contains_key(&task) || ancestors.any(with_all)
    }

    /// What lies in the arguments of a task, a method's call or a constructor.
    pub fn arguments(&self, task: TaskId) -> impl Iterator<Item = ObjectId> {
        self.calls
            .get(&task)
            .into_iter()
            .flat_map(|call| call.refs.iter().chain(&call.nested))
            .copied()
    }

    /// Its owner lives, and it has retries left for sure: what was given to a node that died may have begun there.
    pub fn may_run_again(&self, task: TaskId) -> bool {
        let Some(call) = self.calls.get(&task).filter(|call| call.may_run_again) else {
            return false;
        };
        let runs =
            self.runs(task) + self.places(task).filter(|it| self.is_dead_node(it.node())).count();
        let has_retries = call.max_retries < 0 || runs as i64 <= i64::from(call.max_retries);
        has_retries && !self.ended.contains(&task.owner)
    }

    pub fn failed_itself(&self, task: TaskId, kind: FailureKind) -> bool {
        self.failed_by_itself.contains(&(task, kind))
    }

    /// A worker died in the midst of it, or one after the other before they took it, and no retry is left.
    pub fn crashed(&self, task: TaskId) -> bool {
        self.was_with_dead_node(task)
            || self.is_used_up(task)
                && (self.breaks(task).next().is_some() || self.is_untaken(task))
    }

    /// The same, and one of them used too much memory.
    pub fn ran_out_of_memory(&self, task: TaskId) -> bool {
        let hit = |worker: &ProcessId| self.used_too_much.contains(worker);
        let untaken = self.is_untaken(task) && self.untaken(task).iter().any(hit);
        (self.is_used_up(task) || self.was_with_dead_node(task))
            && (untaken || self.breaks(task).any(|worker| hit(&worker)))
    }

    /// The worker of its actor died in the midst of it, and it may not run again; or the actor went down so often that
    /// this cost the call its retries.
    pub fn is_unavailable(&self, task: TaskId) -> bool {
        let Some(call) = self.calls.get(&task) else { return false };
        let Some(actor) = call.actor.and_then(|actor| self.actors.get(&actor)) else {
            return false;
        };
        let broke_off = self.breaks(task).any(|worker| actor.died_in.contains(&worker));
        let often = actor.died_in.len() > RESTARTS_FAILED_MAX as usize;
        let no_more = self.is_used_up(task) || self.is_cancelled(task);
        self.was_with_dead_node(task) || (broke_off && no_more) || (often && call.max_retries >= 0)
    }

    /// Of the actor whose method it calls: killed for good, or all its restarts are used up.
    pub fn is_dead(&self, actor: ActorId) -> bool {
        let Some(it) = self.actors.get(&actor) else { return false };
        let deaths = self.deaths_of(actor) as i64;
        it.killed || (it.max_restarts >= 0 && deaths > i64::from(it.max_restarts))
    }

    pub fn went_down(&self, actor: ActorId) -> bool {
        self.actors.get(&actor).is_some_and(|actor| !actor.died_in.is_empty())
    }

    pub fn is_told(&self, actor: ActorId) -> bool {
        self.actors.get(&actor).is_some_and(|actor| actor.told)
    }

    /// With which it ends.
    pub fn job_of_group(&self, group: GroupId) -> Option<JobId> {
        self.groups.get(&group).copied().flatten()
    }

    pub fn is_not_written(&mut self, group: GroupId) {
        self.groups_unwritten.insert(group);
    }

    pub fn is_unwritten(&self, group: GroupId) -> bool {
        self.groups_unwritten.contains(&group)
    }

    pub fn is_removed(&self, group: GroupId) -> bool {
        self.groups_removed.contains(&group)
    }

    /// In which a task is to run, or the actor whose method it calls.
    pub fn group_of(&self, task: TaskId) -> Option<GroupId> {
        let call = self.calls.get(&task)?;
        let actor = call.actor.and_then(|actor| self.calls.get(&actor.0));
        actor.unwrap_or(call).group
    }

    /// Where it may run, and where rather.
    pub fn labels_of(&self, task: TaskId) -> &[LabelSelector] {
        self.calls.get(&task).map_or(&[], |call| &call.labels)
    }

    pub fn actor_of(&self, task: TaskId) -> Option<ActorId> {
        self.calls.get(&task)?.actor
    }

    pub fn starts_fail(&self, job: JobId) -> bool {
        self.failed_starts.get(&job).is_some_and(|failed| *failed >= STARTS_FAILED_MAX)
    }

    /// It may have begun there, or have been on its way: that costs a retry.
    fn was_with_dead_node(&self, task: TaskId) -> bool {
        let limited = self.calls.get(&task).is_some_and(|call| call.max_retries >= 0);
        let limited = limited || self.is_cancelled(task);
        limited && self.places(task).any(|worker| self.is_dead_node(worker.node()))
    }

    fn breaks(&self, task: TaskId) -> impl Iterator<Item = ProcessId> {
        self.broke_off.get(&task).into_iter().flatten().copied()
    }

    /// Workers that it was given to, and that ended without having begun it.
    fn untaken(&self, task: TaskId) -> BTreeSet<ProcessId> {
        let broke_off = self.broke_off.get(&task);
        let begun = |worker: &ProcessId| broke_off.is_some_and(|begun| begun.contains(worker));
        let ended = |worker: &ProcessId| self.ended.contains(worker) && !begun(worker);
        self.places(task).filter(ended).collect()
    }

    /// Workers that it was given to, or a task that stands for it.
    fn places(&self, task: TaskId) -> impl Iterator<Item = ProcessId> {
        let stand_ins = self.stand_ins.get(&task).into_iter().flatten().copied();
        let placed = stand_ins.chain([task]).filter_map(|task| self.placed.get(&task));
        placed.flatten().copied()
    }

    fn is_untaken(&self, task: TaskId) -> bool {
        self.untaken(task).len() > WORKERS_UNTAKEN_MAX as usize
    }

    /// Each run that began cost a retry but the first, and each worker beyond those that may die untaken.
    fn is_used_up(&self, task: TaskId) -> bool {
        let Some(call) = self.calls.get(&task) else { return false };
        call.max_retries >= 0 && self.runs(task) as i64 > i64::from(call.max_retries)
    }

    fn runs(&self, task: TaskId) -> usize {
        let begun = self.starts.get(&task).map_or(0, Vec::len);
        begun + self.untaken(task).len().saturating_sub(WORKERS_UNTAKEN_MAX as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeNumber = NodeNumber::FIRST;

    fn process(count: u32) -> ProcessId {
        ProcessId::new(NODE, count, 0)
    }

    #[test]
    fn a_worker_that_dies_while_its_node_stands_still_costs_a_restart_beside_that_of_its_node() {
        let (mut facts, actor) = (Facts::default(), ActorId(TaskId { owner: process(1), seq: 1 }));
        let (first, second) = (process(2), process(3));
        facts.node_dies(NODE);
        facts.lived_in(actor, first);
        assert_eq!(facts.restarts_due(actor), 1, "it stands still, and is dead to others");
        facts.dies(first, []);
        facts.was_buried(actor, first);
        facts.lived_in(actor, second);
        assert_eq!(facts.restarts_due(actor), 2, "it began there again");
    }

    #[test]
    fn a_worker_that_exits_with_its_node_costs_no_restart_beside_that_of_its_node() {
        let (mut facts, actor) = (Facts::default(), ActorId(TaskId { owner: process(1), seq: 1 }));
        let worker = process(2);
        facts.node_dies(NODE);
        facts.lived_in(actor, worker);
        facts.sends_away(worker);
        facts.dies(worker, []);
        facts.was_buried(actor, worker);
        assert_eq!(facts.restarts_due(actor), 1);
    }
}
