//! What a new daemon makes of the rows that an earlier one left.
//!
//! With a head's daemon go its workers and all its objects. So a new one finds rows of what ran there: actors become
//! dead and tasks lost, with the reason, and jobs ended. Detached actors that left a will (`far/wills`) start again.
//! Kv rows stay as they are; functions stay that such an actor needs, or that a lost actor or task of their job might be
//! looked at with. What is at home on another node that lives is that node's (the number in
//! its id says where it is at home), and stays as it is. Placement groups go on that are detached, or whose job does
//! (`sched::groups::recalled`).

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{JobId, NodeNumber};
use hoplo_wire::control::{Key, Table};
use hoplo_wire::node::ActorState;
use hoplo_wire::peer::KnownActor;
use hoplo_wire::{Failure, FailureKind};

use super::far::will_of;
use super::{Effect, Node, heir_of};
use crate::actors::life::{ActorRow, Former};
use crate::control::{
    ActorEntry, ActorPhase, ControlStore, Entry, EventEntry, FunctionEntry, GroupEntry, JobEntry,
    NodeEntry, NodeState, TaskEntry, TaskState, store,
};

/// All that is in the tables. What does not parse was written by another program; it stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub nodes: Vec<NodeEntry>,
    pub jobs: Vec<JobEntry>,
    pub actors: Vec<ActorEntry>,
    pub tasks: Vec<TaskEntry>,
    pub groups: Vec<GroupEntry>,
    /// Every row of a function, by the job that it is of.
    pub functions: Vec<(JobId, Key)>,
}

/// Whose rows a new daemon leaves as they are.
struct Others {
    living: BTreeSet<NodeNumber>,
    /// Of the dead, earlier heads among them.
    heirs: BTreeMap<NodeNumber, NodeNumber>,
}

impl Others {
    fn have(&self, node: NodeNumber) -> bool {
        self.living.contains(&node)
    }

    /// Its home lives; or it may outlive its home, and who is in charge of what was at home there lives.
    fn have_charge_of(&self, row: &ActorEntry) -> bool {
        let mut node = row.actor.0.owner.node();
        if !row.detached && !self.have(node) && !self.have(row.job.node()) {
            return false; // it ended with its driver's node
        }
        // An heir is younger than the death that made it one: no chain goes round, and none is longer than this.
        for _ in 0..=self.heirs.len() {
            match self.heirs.get(&node) {
                Some(heir) if !self.have(node) => node = *heir,
                _ => break,
            }
        }
        self.have(node)
    }
}

impl Rows {
    pub fn read(store: &dyn ControlStore) -> Self {
        let mut functions = Vec::new();
        store::rows(store, Table::Function, |key, row| {
            if let Ok(entry) = FunctionEntry::from_row(row) {
                functions.push((entry.job, Key { table: Table::Function, bytes: key.to_vec() }));
            }
        });
        Self {
            nodes: store::entries(store),
            jobs: store::entries(store),
            actors: store::entries(store),
            tasks: store::entries(store),
            groups: store::entries(store),
            functions,
        }
    }
}

impl Rows {
    /// The next number that this store gives to a node. Where two ask, the row that is created decides.
    pub fn next_number(&self, random: u32) -> NodeNumber {
        let first = || NodeNumber::first_given(random);
        self.last_number().map_or_else(first, NodeNumber::next_given)
    }

    /// The last number that it has given.
    pub fn last_number(&self) -> Option<NodeNumber> {
        self.nodes.iter().map(|entry| entry.node).max()
    }

    fn others(&self) -> Others {
        let lives = |entry: &&NodeEntry| !entry.state.is_dead() && !entry.head;
        let living: BTreeSet<_> = self.nodes.iter().filter(lives).map(|entry| entry.node).collect();
        let heirs = self.nodes.iter().filter_map(|entry| match entry.state {
            NodeState::Dead { heir, .. } | NodeState::Settled { heir, .. } => {
                Some((entry.node, heir?))
            }
            NodeState::Alive | NodeState::Draining if living.contains(&entry.node) => None,
            // A head that did not say that it ends.
            NodeState::Alive | NodeState::Draining => {
                Some((entry.node, heir_of(entry.node, self.nodes.iter().filter(lives))?))
            }
        });
        Others { heirs: heirs.collect(), living }
    }
}

impl Node {
    /// Before the first event: makes of an earlier daemon's rows what is true now.
    pub fn recall(&mut self, rows: Rows, effects: &mut Vec<Effect>) {
        let (before, others) = (!rows.jobs.is_empty(), rows.others());
        for mut node in rows.nodes.into_iter().filter(|row| !others.have(row.node)) {
            if !node.state.is_dead() {
                let why = "its daemon ended, and another one went on with its store".to_string();
                // Where no other node lives, this one.
                let heir = others.heirs.get(&node.node).copied().unwrap_or(self.config.node);
                node.state = NodeState::Dead { why, heir: Some(heir) };
                self.save(&node);
            }
        }
        let mut kept = BTreeSet::new();
        for mut job in rows.jobs {
            if others.have(job.driver.node()) {
                kept.insert(job.job);
            } else if job.ended_us.is_none() {
                job.ended_us = Some(self.wall_us);
                self.save(&job);
            }
        }
        for row in rows.actors.iter().filter(|row| others.have_charge_of(row)) {
            if row.state == ActorPhase::Dead {
                continue;
            }
            kept.insert(row.job);
            self.recall_name((row.namespace.clone(), row.name.clone()), row.actor);
        }
        let ours = rows.actors.into_iter().filter(|row| !others.have_charge_of(row));
        let (again, lost) = self.recall_actors(ours, &mut kept);
        let ours = rows.tasks.into_iter().filter(|row| !others.have(row.task.owner.node()));
        let tasks = self.recall_tasks(ours, &mut kept);
        let ours = rows.groups.into_iter().filter(|row| !others.have(row.group.node()));
        self.recall_groups(ours, &others.living);
        self.awaits_names(others.living.clone());
        for (job, key) in rows.functions {
            // The row of a job that goes on may be on its way.
            if !kept.contains(&job) && !others.have(job.node()) {
                self.out.push(Effect::Forget { key });
            }
        }
        if before {
            self.events += 1;
            let again = match again {
                0 => String::new(),
                _ => format!("; start again: {again} detached actors"),
            };
            let text =
                format!("the node was started again; lost: {lost} actors, {tasks} tasks{again}");
            self.log(format!("goes on with the store of an earlier daemon: {text}"));
            let (at_us, seq) = (self.wall_us, self.events);
            self.save_last(&EventEntry { at_us, seq, text });
        }
        self.work_off_queue();
        effects.append(&mut self.out);
    }

    /// How many start again, and how many are lost.
    fn recall_actors(
        &mut self,
        entries: impl Iterator<Item = ActorEntry>,
        kept: &mut BTreeSet<JobId>,
    ) -> (u64, u64) {
        let (mut again, mut lost) = (0, 0);
        let mut effects = Vec::new();
        for mut entry in entries {
            // As the heir of its home: when this node hears that its home is dead.
            if self.config.clustered && will_of(&entry).is_some() {
                again += 1;
                kept.insert(entry.job);
                self.recall_name((entry.namespace, entry.name), entry.actor);
                continue;
            }
            entry.will = None;
            if entry.state != ActorPhase::Dead {
                lost += 1;
                let text = format!(
                    "{} {:?} ({}) was {} when its node's daemon ended without stopping it; \
                     actors do not survive that",
                    entry.class_name, entry.name, entry.actor, entry.state
                );
                entry.failure = Some(Failure::new(FailureKind::ActorDied, text));
                entry.lost = true;
                entry.state = ActorPhase::Dead;
                self.save(&entry);
            }
            if entry.lost && entry.detached {
                kept.insert(entry.job);
            }
            let unknown = || Failure::new(FailureKind::ActorDied, "it is dead".to_string());
            let former = Former {
                actor: entry.actor,
                class_name: entry.class_name,
                name: entry.name,
                namespace: entry.namespace,
                job: entry.job,
                detached: entry.detached,
                incarnation: entry.incarnation,
                handle: entry.handle,
                failure: entry.failure.unwrap_or_else(unknown),
                lost: entry.lost,
            };
            self.actors.recall(former, &mut effects);
        }
        effects.into_iter().for_each(|effect| self.on_actors(effect));
        (again, lost)
    }

    fn recall_tasks(
        &mut self,
        entries: impl Iterator<Item = TaskEntry>,
        kept: &mut BTreeSet<JobId>,
    ) -> u64 {
        let mut lost = 0;
        for mut entry in entries {
            match entry.state {
                TaskState::Pending => {
                    lost += 1;
                    let why = format!(
                        "{} owned it when the node's daemon ended without stopping it",
                        entry.owner
                    );
                    entry.state = TaskState::Lost;
                    entry.why = Some(why);
                    self.save_last(&entry);
                    kept.insert(entry.job);
                }
                TaskState::Lost => {
                    kept.insert(entry.job);
                }
                TaskState::Finished | TaskState::Failed => {}
            }
        }
        lost
    }
}

pub(super) fn actor_entry(row: ActorRow, will: Option<KnownActor>) -> ActorEntry {
    let state = ActorPhase::of(&row.state);
    let failure = match row.state {
        ActorState::Dead { failure } => Some(failure),
        ActorState::Pending { .. } | ActorState::Alive { .. } | ActorState::Restarting { .. } => {
            None
        }
    };
    ActorEntry {
        actor: row.actor,
        class_name: row.class_name,
        name: row.name,
        namespace: row.namespace,
        job: row.job,
        state,
        incarnation: row.incarnation,
        detached: row.detached,
        handle: row.handle,
        failure,
        lost: row.lost,
        will: will.map(Box::new),
    }
}

#[cfg(test)]
mod tests {
    use hoplo_base::{ActorId, GroupId, Instant, ProcessId, ResourceSet, TaskId};
    use hoplo_wire::node::{ActorSpec, BundleSpec, GroupSpec, GroupStrategy, Shape};

    use super::*;
    use crate::control::Row;
    use crate::node::Config;
    use crate::objects;

    const HEAD: fn() -> NodeNumber = || NodeNumber::first_given(0);

    fn node_row(node: NodeNumber, head: bool) -> NodeEntry {
        NodeEntry {
            node,
            head,
            hostname: "h".to_string(),
            resources: ResourceSet::new(),
            labels: BTreeMap::new(),
            store_bytes: 0,
            session_dir: "/s".to_string(),
            pid: 0,
            address: String::new(),
            state: NodeState::Alive,
        }
    }

    fn job_row(job: u64, node: NodeNumber) -> JobEntry {
        let (job, config) = (JobId(job), Default::default());
        let driver = ProcessId::new(node, 1, 1);
        JobEntry { job, driver, driver_pid: 1, config, started_us: 1, ended_us: None }
    }

    fn actor_row(home: NodeNumber) -> ActorEntry {
        ActorEntry {
            actor: ActorId(TaskId { owner: ProcessId::new(home, 1, 1), seq: 1 }),
            class_name: "A".to_string(),
            name: String::new(),
            namespace: String::new(),
            job: JobId(1),
            state: ActorPhase::Alive,
            incarnation: 0,
            detached: false,
            handle: vec![],
            failure: None,
            lost: false,
            will: None,
        }
    }

    fn task_row(home: NodeNumber) -> TaskEntry {
        let owner = ProcessId::new(home, 1, 1);
        TaskEntry {
            task: TaskId { owner, seq: 2 },
            job: JobId(1),
            owner,
            attempt: 0,
            state: TaskState::Pending,
            lineage: None,
            why: None,
        }
    }

    /// The rows that a head writes and deletes when it finds these.
    fn recalled(rows: Rows) -> (Vec<(Key, Vec<u8>)>, Vec<Key>) {
        recalled_in(rows, false)
    }

    fn recalled_in(rows: Rows, clustered: bool) -> (Vec<(Key, Vec<u8>)>, Vec<Key>) {
        let config = Config {
            node: rows.next_number(0),
            resources: ResourceSet::new(),
            objects: objects::Config::new(64 << 20),
            session_dir: "/s".to_string(),
            keeps_rows: true,
            clustered,
            slots_resting: 0,
            processes_max: 8,
        };
        let (mut written, mut deleted, mut effects) = (vec![], vec![], vec![]);
        Node::new(config, Instant::ZERO).recall(rows, &mut effects);
        for effect in effects {
            match effect {
                Effect::Save { key, value, .. } => written.push((key, value)),
                Effect::Forget { key } => deleted.push(key),
                _ => {}
            }
        }
        (written, deleted)
    }

    #[test]
    fn a_starting_head_declared_dead_what_lives_on_other_nodes() {
        let there = HEAD().next_given();
        let function = |job: u64| (JobId(job), Key { table: Table::Function, bytes: vec![1] });
        let rows = Rows {
            nodes: vec![node_row(HEAD(), true), node_row(there, false)],
            jobs: vec![job_row(1, HEAD()), job_row(2, there)],
            actors: vec![actor_row(HEAD()), actor_row(there)],
            tasks: vec![task_row(HEAD()), task_row(there)],
            functions: vec![function(2)],
            groups: vec![],
        };
        let ours = [
            node_row(HEAD(), true).key(),
            job_row(1, HEAD()).key(),
            actor_row(HEAD()).key(),
            task_row(HEAD()).key(),
        ];
        let (written, deleted) = recalled(rows);
        let written: Vec<_> = written.into_iter().map(|(key, _)| key).collect();
        assert_eq!(written[..4], ours);
        assert!(written[4..].iter().all(|key| key.table == Table::Event), "{written:?}");
        assert_eq!(deleted, []);
    }

    fn group_row(home: NodeNumber, detached: bool) -> GroupEntry {
        let bundle = BundleSpec {
            resources: ResourceSet::from_units([("CPU", 1.0)]).unwrap(),
            ..BundleSpec::default()
        };
        let spec = GroupSpec {
            name: "kept".to_string(),
            namespace: String::new(),
            detached,
            strategy: GroupStrategy::Pack,
            bundles: vec![bundle],
        };
        let group = GroupId::new(home, 1);
        GroupEntry {
            group,
            job: JobId(1),
            asked: (ProcessId(0), 0),
            spec,
            created: true,
            placed: [(0, home)].into(),
        }
    }

    #[test]
    fn a_detached_group_of_an_earlier_head_waits_for_its_bundles_again_and_others_are_gone() {
        let other = HEAD().next_given();
        let groups = vec![group_row(HEAD(), true), group_row(other, false)];
        let rows = Rows { nodes: vec![node_row(HEAD(), true)], groups, ..Rows::default() };
        let (written, deleted) = recalled(rows);
        assert_eq!(deleted, [group_row(other, false).key()]);
        let key = group_row(HEAD(), true).key();
        let value = written.into_iter().find(|(other, _)| *other == key).unwrap().1;
        let row = Row { value, version: 1, index: 1, finished: false };
        let now = GroupEntry { created: false, placed: BTreeMap::new(), ..group_row(HEAD(), true) };
        assert_eq!(GroupEntry::from_row(&row), Ok(now));
    }

    /// FAR-9
    #[test]
    fn a_detached_actor_that_left_a_will_is_not_lost_with_a_head_that_was_alone() {
        let spec = ActorSpec {
            actor: actor_row(HEAD()).actor,
            class_name: "A".to_string(),
            name: "kept".to_string(),
            namespace: String::new(),
            detached: true,
            shape: Shape::of(ResourceSet::new()),
            held: ResourceSet::new(),
            max_restarts: -1,
            checkpoints: None,
            frame: vec![],
            contains: vec![],
            handle: vec![],
        };
        let will = KnownActor {
            spec,
            job: JobId(1),
            incarnation: 0,
            moved: 0,
            begun: true,
            worker: None,
            holds_arguments: false,
            replay: None,
        };
        let will = Some(Box::new(will));
        let actor = ActorEntry { detached: true, will, ..actor_row(HEAD()) };
        let function = (JobId(1), Key { table: Table::Function, bytes: vec![1] });
        for clustered in [true, false] {
            let rows = Rows {
                nodes: vec![node_row(HEAD(), true)],
                jobs: vec![job_row(1, HEAD())],
                actors: vec![actor.clone()],
                functions: vec![function.clone()],
                ..Rows::default()
            };
            let (written, deleted) = recalled_in(rows, clustered);
            let is_lost = written.iter().any(|(key, _)| *key == actor.key());
            // Who is no member of a cluster hears of no death.
            assert_eq!((is_lost, deleted), (!clustered, vec![]));
            let value = written.into_iter().find(|(key, _)| key.table == Table::Node).unwrap().1;
            let row = Row { value, version: 1, index: 1, finished: false };
            let NodeState::Dead { heir, .. } = NodeEntry::from_row(&row).unwrap().state else {
                panic!("it is dead");
            };
            assert_eq!(heir, Some(HEAD().next_given()), "the new head");
        }
    }

    #[test]
    fn what_nobody_is_home_to_is_lost_with_the_head() {
        let gone = NodeEntry {
            state: NodeState::Settled { why: String::new(), heir: None, died: 1 },
            ..node_row(HEAD().next_given(), false)
        };
        let actor = actor_row(gone.node);
        let rows = Rows { nodes: vec![gone], actors: vec![actor.clone()], ..Rows::default() };
        let (written, _) = recalled(rows);
        let value = written.into_iter().find(|(key, _)| *key == actor.key()).unwrap().1;
        let row = Row { value, version: 1, index: 1, finished: false };
        assert_eq!(ActorEntry::from_row(&row).unwrap().state, ActorPhase::Dead);
    }

    #[test]
    fn a_store_gives_no_number_twice() {
        let mut rows = Rows::default();
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let number = rows.next_number(5);
            assert!(seen.insert(number) && number.is_given());
            rows.nodes.push(NodeEntry {
                state: NodeState::Settled { why: String::new(), heir: None, died: 1 },
                ..node_row(number, true)
            });
        }
    }
}
