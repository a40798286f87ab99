//! What this process knows of why something is not ready ([`crate::why`] follows it over all), and listings.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::limits::WHY_THINGS_MAX;
use hoplo_base::{ActorId, AnyId, ObjectId, ProcessId, ResourceSet, TaskId};
use hoplo_wire::Reason;

use crate::why::{Chain, Link, Thing};

use super::SessionMachine;
use super::actors::Status;
use super::call::Stage;
use super::refs::State;
use super::shapes::Near;

/// A line of `hoplo list tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLine {
    pub task: TaskId,
    pub name: String,
    /// `waiting`, `queued`, `running` (or next in a worker's ring), `worker lost`.
    pub stage: &'static str,
    pub attempt: u32,
    pub reason: String,
    /// The actor whose method it calls, or that it creates.
    pub actor: Option<ActorId>,
    pub creates: bool,
    /// The task that called.
    pub parent: Option<TaskId>,
    /// Who has it.
    pub worker: Option<ProcessId>,
    /// What it needs; of a method nothing.
    pub resources: ResourceSet,
}

impl SessionMachine {
    /// What this process knows of a thing, and what that waits for.
    pub fn link(&self, of: Thing) -> Option<Link> {
        match of {
            Thing::Object(object) => self.link_of_object(object),
            Thing::Task(task) => self.own_task(task).map(|task| self.link_of_task(task)),
            // Its worker knows.
            Thing::Placed(..) => None,
            Thing::Actor(actor) => self.link_of_actor(actor),
        }
    }

    /// What is known of an object here, without asking anybody else: one line.
    pub fn explain(&self, object: ObjectId) -> String {
        let mut chain = Chain::new(Thing::Object(object));
        while !chain.to_ask().is_empty() {
            // Where to go on is somebody else's to say.
            let ours = |thing: &&Thing| !matches!(thing, Thing::Placed(..));
            let links = chain.to_ask().iter().filter(ours).filter_map(|it| self.link(*it));
            chain.hear(links.collect());
        }
        chain.sentences().join("; ")
    }

    /// What of this process a person may mean by an id.
    pub fn named(&self, id: AnyId) -> Option<Thing> {
        if let Some(actor) = self.actors.keys().find(|actor| id.names_task(actor.0)) {
            return Some(Thing::Actor(*actor));
        }
        if let AnyId::Object(_) | AnyId::ShortObject { .. } = id {
            let object = self.objects.keys().filter(|object| id.names_object(**object)).min();
            return object.map(|object| Thing::Object(*object));
        }
        let seq = self.tasks.keys().filter(|seq| id.names_task(self.own(**seq))).min()?;
        Some(Thing::Task(self.own(*seq)))
    }

    fn own(&self, seq: u64) -> TaskId {
        TaskId { owner: self.me, seq }
    }

    fn own_task(&self, task: TaskId) -> Option<TaskId> {
        (task.owner == self.me && self.tasks.contains_key(&task.seq)).then_some(task)
    }

    fn link_of_object(&self, object: ObjectId) -> Option<Link> {
        let of = Thing::Object(object);
        let own = self.own_task(object.task);
        match self.objects.get(&object).map(|entry| &entry.state) {
            Some(State::Ready(_)) => return Some(Link::end(of, format!("{object} is ready"))),
            Some(State::Pending { .. }) => {}
            // The next item of a stream is known when it comes.
            None if own.is_some() => {}
            None => return None,
        }
        if let Some((run, why)) =
            self.run_of(object.task).filter(|_| !self.is_made_by_stream(object))
        {
            let task = self.tasks.get(&run.seq)?;
            let (name, attempt) = (&task.call.options.name, task.attempt + 1);
            let says = format!("{object} is made again by {run} of {name} (run {attempt}): {why}");
            return Some(Link {
                of,
                says: says.into(),
                waits_for: vec![Thing::Task(run)],
                only: true,
            });
        }
        let Some(task) = own else {
            let owner = object.task.owner;
            let says = Reason::from(format!("{object} is made by {} of ", object.task)).and(owner);
            // Whoever owns it knows more, if it lives.
            let waits_for = vec![Thing::Task(object.task)];
            return Some(Link { of, says, waits_for, only: true });
        };
        let name = &self.tasks[&task.seq].call.options.name;
        let says = format!("{object} is made by {task} of {name}").into();
        Some(Link { of, says, waits_for: vec![Thing::Task(task)], only: true })
    }

    fn link_of_task(&self, id: TaskId) -> Link {
        let task = &self.tasks[&id.seq];
        let says = Reason::from(format!("{id} of {} is ", task.call.options.name));
        let says = says.and(self.reason(id.seq));
        let (waits_for, only) = match task.stage {
            Stage::Waiting => {
                let missing = task.call.refs.iter().filter(|object| !self.is_ready(**object));
                (missing.take(WHY_THINGS_MAX).map(|object| Thing::Object(*object)).collect(), true)
            }
            Stage::Queued => self.queued_behind(id),
            Stage::Placed { worker } => (vec![Thing::Placed(worker, id)], true),
            Stage::Promised | Stage::Limbo => (Vec::new(), false),
        };
        Link { of: Thing::Task(id), says, waits_for, only }
    }

    /// The workers that could take it when they have ended what they run, and whether it must be these.
    fn queued_behind(&self, id: TaskId) -> (Vec<Thing>, bool) {
        let task = &self.tasks[&id.seq];
        if let Some(actor) = task.actor {
            let state = &self.actors[&actor];
            let line = task.parent.and_then(|caller| state.aside.get(&caller));
            let first = line.unwrap_or(&state.queue).front().map(|seq| self.own(*seq));
            return match state.status {
                // Calls keep their order: the first of the line may wait for its argument.
                Status::Alive { .. } if first.is_some_and(|it| it != id) => {
                    (first.map(Thing::Task).into_iter().collect(), true)
                }
                Status::Alive { worker } => (vec![Thing::Placed(worker, id)], true),
                Status::Unknown
                | Status::Pending { .. }
                | Status::Restarting { .. }
                | Status::Dead { .. } => (vec![Thing::Actor(actor)], true),
            };
        }
        let Some(state) = self.queue_of(id.seq) else {
            return (Vec::new(), false);
        };
        // Another worker may come free or be leased.
        let leases = state.leases.iter().take(WHY_THINGS_MAX);
        (leases.map(|lease| Thing::Placed(lease.worker, id)).collect(), false)
    }

    fn link_of_actor(&self, actor: ActorId) -> Option<Link> {
        let state = self.actors.get(&actor)?;
        let says = match &state.status {
            Status::Unknown => format!("{actor} is being looked up").into(),
            Status::Pending { reason, .. } => format!("{actor} is pending: {reason}").into(),
            Status::Alive { worker } => {
                let aside = state.aside.values().map(VecDeque::len).sum::<usize>();
                let queued = state.queue.len() + aside + state.incomplete.len();
                let sent = state.in_flight.len();
                Reason::from(format!("{actor} is alive in "))
                    .and(*worker)
                    .and("; of ")
                    .and(self.me)
                    .and(format!(": {sent} calls sent, {queued} queued"))
            }
            Status::Restarting { cause, .. } => format!("{actor} is restarting: {cause}").into(),
            Status::Dead { failure } => format!("{actor} is dead: {}", failure.text()).into(),
        };
        Some(Link::end(Thing::Actor(actor), says))
    }

    /// Where a task is and why it is there: `queued: needs GPU 1, node has 0`.
    fn reason(&self, seq: u64) -> Reason {
        let task = &self.tasks[&seq];
        if let (Some(actor), true) = (task.actor, task.stage != Stage::Waiting) {
            let state = &self.actors[&actor];
            return match (&state.status, task.stage) {
                (Status::Unknown, _) => format!("queued: {actor} is being looked up").into(),
                (Status::Pending { reason, .. }, _) => {
                    format!("queued: {actor} is pending: {reason}").into()
                }
                (Status::Restarting { cause, .. }, _) => {
                    format!("queued: {actor} is restarting: {cause}").into()
                }
                (Status::Alive { worker }, Stage::Placed { .. }) => {
                    let at = format!("running, or next in line, in {actor} (");
                    Reason::from(at).and(*worker).and(")")
                }
                (Status::Alive { .. }, _) => {
                    let aside = task.parent.and_then(|caller| state.aside.get(&caller));
                    let queue = aside.unwrap_or(&state.queue);
                    let before = queue.iter().take_while(|queued| **queued != seq).count();
                    let calls = before + state.in_flight.len();
                    Reason::from(format!("queued for {actor} behind {calls} calls of "))
                        .and(self.me)
                }
                (Status::Dead { .. }, _) => format!("about to fail: {actor} is dead").into(),
            };
        }
        match task.stage {
            Stage::Waiting => {
                let mut missing = task.call.refs.iter().filter(|object| !self.is_ready(**object));
                let first = missing.next();
                let more = missing.count();
                match first {
                    Some(object) if more == 0 => {
                        format!("waiting for its argument {object}").into()
                    }
                    Some(object) => {
                        format!("waiting for its argument {object} and {more} more").into()
                    }
                    None => "waiting".into(),
                }
            }
            Stage::Queued => {
                let Some(state) = self.queue_of(seq) else { return "queued".into() };
                let there =
                    |near: &Near| format!(" for node {}, where its arguments lie", near.node.hex());
                let there = state.near.as_ref().map_or(String::new(), there);
                match &state.stuck {
                    Some((reason, _)) => format!("queued{there}: {reason}").into(),
                    None if state.leases.is_empty() => {
                        format!("queued{there}: a worker is being leased").into()
                    }
                    None => {
                        let workers = state.leases.len();
                        format!("queued{there}: all {workers} leased workers are busy").into()
                    }
                }
            }
            Stage::Placed { worker } => Reason::from("running, or next in line, in ").and(worker),
            Stage::Promised => self.why_promised(seq).into(),
            Stage::Limbo => "waiting to hear how its worker ended".into(),
        }
    }

    /// How many tasks are in each stage: together as many as `task_lines` has, if it may tell all.
    pub fn task_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for task in self.tasks.values() {
            *counts.entry(task.stage.name()).or_default() += 1;
        }
        counts
    }

    /// Unfinished tasks in order of submission, at most `most`.
    pub fn task_lines(&self, most: usize) -> Vec<TaskLine> {
        let mut seqs: Vec<u64> = self.tasks.keys().copied().collect();
        seqs.sort_unstable();
        let line = |seq: u64| {
            let task = &self.tasks[&seq];
            TaskLine {
                task: TaskId { owner: self.me, seq },
                name: task.call.options.name.to_string(),
                stage: task.stage.name(),
                attempt: task.attempt,
                reason: self.reason(seq).to_string(),
                actor: task.actor,
                creates: task.creates.is_some(),
                parent: task.parent,
                worker: match task.stage {
                    Stage::Placed { worker } => Some(worker),
                    Stage::Waiting | Stage::Queued | Stage::Promised | Stage::Limbo => None,
                },
                resources: match task.actor {
                    Some(_) => ResourceSet::new(),
                    None => task.call.options.shape.resources.clone(),
                },
            }
        };
        seqs.into_iter().take(most).map(line).collect()
    }
}
