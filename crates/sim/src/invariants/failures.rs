//! A failure is one that something in this run accounts for: something that befell the very task whose result it is, or
//! one that this task needs, directly or not.
//!
//! | kind | what accounts for it |
//! |---|---|
//! | `User` | the program raised |
//! | `StoreFull`, `OutOfDisk`, `OutOfDiskHere` | it was denied room so, or a copy of what it needs was |
//! | `Cancelled` | it was cancelled, or its stream dropped, or one it descends from with all that this submitted |
//! | `WorkerCrashed` | its worker died in the midst of it, or many before they took it; no retry is left |
//! | `OutOfMemory` | the same, and a worker of these used too much memory |
//! | `ActorUnavailable` | the actor's worker died in the midst of it, or the actor went down often |
//! | `ActorDied` | the actor was killed for good, used up its restarts, ended with its job, its handle is lost, or was an argument of a task that runs again |
//! | `TaskGroupRemoved`, `ActorGroupRemoved` | the placement group in which it was to run was removed, or its job ended |
//! | `WorkerStart` | starts for its job failed, as often as they are tried |
//! | `ObjectLost`, `OwnerDied` | the daemon or its owner said so of this object, and its owner, a holder, its home or a node with it had died; or the disk failed. Its task |
//! | | does not run again, or its owner is dead. Or a task of another process needed it that runs again for a lost result: that one held it no more |
//!
//! Nothing is read out of a failure's text. A failure that was passed on equals the one that it came from.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, JobId, ObjectId, ProcessId, TaskId};
use hoplo_wire::node::{ActorState, ToClient};
use hoplo_wire::{Failure, FailureKind, Value};

use crate::client::Client;
use crate::cluster::Cluster;
use crate::host::Host;

/// What the daemon said of objects that have no value.
#[derive(Debug, Default)]
pub struct Told {
    /// What it decided is lost.
    lost: BTreeMap<ObjectId, Vec<Failure>>,
    /// What it could not read.
    unread: BTreeMap<ObjectId, Vec<Failure>>,
    /// Who was told that it cannot read what, and has not failed by that yet.
    unreadable: BTreeSet<(ProcessId, ObjectId)>,
}

impl Told {
    pub(super) fn is_lost(&mut self, object: ObjectId, failure: &Failure) {
        self.lost.entry(object).or_default().push(failure.clone());
    }
}

impl Cluster {
    /// A process reads that there is no value.
    pub fn failure_is_legitimate(&mut self, id: ProcessId, object: ObjectId, failure: &Failure) {
        self.count(failure.kind.exception());
        if said(&self.books.told.unread, object, failure) {
            // One read may fail by it for each time that it was told.
            let told = self.books.told.unreadable.remove(&(id, object));
            assert!(
                told,
                "{id} cannot read {object} though nobody said so now: {}\n{}",
                failure.text(),
                self.story.about(&[object.to_string()])
            );
            return;
        }
        self.is_accounted_for(object, failure);
    }

    /// The object has this failure, wherever that is seen.
    pub fn is_accounted_for(&self, object: ObjectId, failure: &Failure) {
        let (tasks, mut objects) = self.books.facts.sources(object.task);
        objects.insert(object);
        let told = |of: &BTreeMap<ObjectId, Vec<Failure>>| {
            objects.iter().any(|object| said(of, *object, failure))
        };
        let legitimate = match failure.kind {
            FailureKind::ObjectLost => told(&self.books.told.lost) || told(&self.books.told.unread),
            FailureKind::OwnerDied => told(&self.books.told.lost),
            FailureKind::StoreFull | FailureKind::OutOfDisk | FailureKind::OutOfDiskHere
                if told(&self.books.told.unread) =>
            {
                true
            }
            _ => tasks.iter().any(|task| self.befell(*task, failure.kind)),
        };
        assert!(
            legitimate,
            "{object} failed for no reason: {:?} {}\n{}",
            failure.kind,
            failure.text(),
            self.story.about(&[object.to_string(), object.task.to_string()])
        );
    }

    /// Whether such a thing happened to this task, and not only to one that it needs.
    fn befell(&self, task: TaskId, kind: FailureKind) -> bool {
        let facts = &self.books.facts;
        match kind {
            FailureKind::User
            | FailureKind::StoreFull
            | FailureKind::OutOfDisk
            | FailureKind::OutOfDiskHere => facts.failed_itself(task, kind),
            FailureKind::Cancelled => facts.is_cancelled(task),
            FailureKind::WorkerCrashed => facts.crashed(task),
            FailureKind::OutOfMemory => facts.ran_out_of_memory(task),
            FailureKind::ActorUnavailable => facts.is_unavailable(task),
            FailureKind::ActorDied => {
                facts.actor_of(task).is_some_and(|actor| self.actor_is_gone(actor))
                    || self.was_in_group_that_is_gone(task)
            }
            FailureKind::TaskGroupRemoved | FailureKind::ActorGroupRemoved => {
                self.was_in_group_that_is_gone(task)
            }
            FailureKind::WorkerStart => {
                let owner = self.clients.get(&task.owner);
                owner.is_some_and(|owner| facts.starts_fail(owner.job))
            }
            FailureKind::ObjectLost
            | FailureKind::OwnerDied
            | FailureKind::RuntimeEnv
            | FailureKind::PendingCallsLimit
            | FailureKind::NodeDied
            | FailureKind::NotSent
            | FailureKind::TaskUnschedulable
            | FailureKind::ActorUnschedulable => false,
        }
    }

    /// For good. One that goes out of scope while somebody calls it had its handle lost on the way.
    fn actor_is_gone(&self, actor: ActorId) -> bool {
        let creator = self.clients.get(&actor.0.owner);
        let unknown = !self.books.facts.is_told(actor); // its constructor's arguments failed before
        self.books.facts.is_dead(actor)
            || unknown
            || (self.was_lost_with_somebody(actor.handle())
                && !self.goes_on_elsewhere(actor)
                && !self.books.willed.contains(&actor))
            || self.is_argument_of_lineage(actor.handle()) // which holds no handles (seed 2212261)
            || creator.is_some_and(|creator| self.job_has_ended(creator.job))
    }

    /// A node that lives has its worker, and who is in charge of it goes on with that.
    fn goes_on_elsewhere(&self, actor: ActorId) -> bool {
        let home = actor.0.owner.node();
        let has = |host: &Host| host.daemon.node.hosted().any(|(_, of)| of == actor);
        let others = self.hosts().filter(|host| !host.dead && host.number != home);
        others.into_iter().any(has)
    }

    pub fn job_has_ended(&self, job: JobId) -> bool {
        let drivers = self.clients.values().filter(|it| it.is_driver && it.job == job);
        // To others it ends with its node, also with one that stands still.
        let mut drivers = drivers.filter(|driver| self.host(driver.id.node()).goes_on());
        !drivers.any(|driver| driver.alive && self.is_open(driver.id))
    }

    // ---- what the daemon says ----

    /// Before a process acts on it.
    pub fn hears_of_ends(&mut self, id: ProcessId, message: &ToClient) {
        match message {
            ToClient::Ready { object, value: Value::Failed(failure), .. } => {
                self.hears_of_failure(id, *object, failure);
            }
            ToClient::Unreadable { object, failure } => {
                self.count("failed reads that were told");
                let disk = self.books.facts.not_read.contains(object);
                let no_room = self.has_no_room_for_a_copy(failure.kind);
                assert!(disk || no_room, "{object} is unreadable for {id}, and no disk failed");
                self.books.told.unreadable.insert((id, *object));
                self.books.told.unread.entry(*object).or_default().push(failure.clone());
            }
            ToClient::ExtentDenied { failure, .. } => self.denial_is_legitimate(id, failure.kind),
            ToClient::ProcessGone { process, .. } => {
                let lives = |it: &Client| it.alive && !it.is_driver;
                let lives = self.clients.get(process).is_some_and(lives);
                // To others it died with its node.
                let lives = lives && !self.host(process.node()).fenced;
                assert!(!lives, "{id} hears that {process} is gone, which lives");
            }
            ToClient::ActorState { actor, state: ActorState::Restarting { .. } } => {
                // With a node goes what had not begun there, too.
                let facts = &self.books.facts;
                let moves = facts.some_node_died() || facts.some_node_drains();
                let down = facts.went_down(*actor) || moves;
                assert!(down, "{id} hears that {actor} starts again, which never went down");
            }
            _ => {}
        }
    }

    fn hears_of_failure(&mut self, id: ProcessId, object: ObjectId, failure: &Failure) {
        // Who is being killed is held for nobody's sake any more: a killed actor's arguments go at once. So is who lives at a node that is dead to others, and ends.
        let doomed = self.is_being_killed(id) || self.host(id.node()).fenced;
        let owner_died = self.books.facts.died.contains(&object.task.owner);
        let lost = match failure.kind {
            FailureKind::ObjectLost | FailureKind::OwnerDied if self.outlives_its_home(object) => {
                doomed
            }
            FailureKind::ObjectLost => {
                let was_let_go = self.is_borrowed_by_lineage(object);
                let lost_with_somebody = self.was_lost_with_somebody(object);
                doomed || was_let_go || (lost_with_somebody && !self.is_made_again(object))
            }
            FailureKind::OwnerDied => {
                let kept = self.books.is_stored(object);
                doomed || (owner_died && (!kept || self.lost_a_node(object)))
            }
            _ => false,
        };
        if lost {
            self.books.told.is_lost(object, failure);
        }
        self.is_accounted_for(object, failure);
    }

    /// An object is lost with its owner, or with a process that had it when it was killed: as an argument of a call
    /// that goes on without its caller, in a value, for a task that another one adopts. Who leaves by itself
    /// loses nothing.
    fn was_lost_with_somebody(&self, object: ObjectId) -> bool {
        let owner_died = self.books.facts.died.contains(&object.task.owner);
        owner_died || self.books.lost_with.contains(&object) || self.lost_a_node(object)
    }

    /// What is to be made in the place of a dead owner is not there.
    pub fn adoption_is_needed(&self, id: ProcessId, objects: &[ObjectId]) {
        let is_there = |object: &&ObjectId| {
            let home_died = self.books.facts.is_dead_node(object.task.owner.node());
            match home_died {
                true => self.outlives_its_home(**object),
                false => self.books.is_stored(**object),
            }
        };
        if let Some(object) = objects.iter().find(is_there) {
            let words = [object.to_string(), object.task.to_string()];
            let story = self.story.about(&words);
            panic!("{id} is to make {object}, though its maker stored it and replied\n{story}");
        }
    }

    /// Of what is at another node there is no copy here without room.
    fn has_no_room_for_a_copy(&self, kind: FailureKind) -> bool {
        let refused = self.books.facts.refused_reserves > 0;
        let full = match kind {
            FailureKind::OutOfDisk | FailureKind::OutOfDiskHere => refused,
            // What the nodes that have it cannot send is made again: it is no failure of who reads it.
            _ => false,
        };
        self.plan.nodes > 1 && full
    }

    /// No room: only where the disk refused this much.
    fn denial_is_legitimate(&mut self, id: ProcessId, kind: FailureKind) {
        let refused = &mut self.books.facts.refused_reserves;
        let legitimate = match kind {
            FailureKind::OutOfDisk | FailureKind::OutOfDiskHere if *refused > 0 => {
                *refused -= 1;
                true
            }
            _ => false,
        };
        assert!(
            legitimate,
            "{id} is denied room: {kind:?}\n{}",
            self.story.about(&[id.to_string()])
        );
    }

    /// A call is told to stop, or stops.
    pub fn stop_is_legitimate(&self, task: TaskId) {
        assert!(
            self.books.facts.is_cancelled(task) || self.is_stream_made_again(task),
            "{task} is told to stop, and nobody cancelled it\n{}",
            self.story.about(&[task.to_string()])
        );
    }
}

fn said(of: &BTreeMap<ObjectId, Vec<Failure>>, object: ObjectId, failure: &Failure) -> bool {
    of.get(&object).is_some_and(|said| said.contains(failure))
}
