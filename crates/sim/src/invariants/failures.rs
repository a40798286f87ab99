//! A failure is one that something in this run accounts for.

use hoplo_base::{AnyId, ObjectId, ProcessId};
use hoplo_wire::{Failure, FailureKind};

use crate::cluster::Cluster;

impl Cluster {
    pub fn failure_is_legitimate(&mut self, id: ProcessId, object: ObjectId, failure: &Failure) {
        let killed = self.plan.has_kills();
        let cancelled = self.books.cancelled;
        let text = failure.text();
        if text.starts_with(&format!("{object} ")) && text.contains("cannot be read back") {
            let told = self.books.unreadable.remove(&(id, object));
            assert!(
                told,
                "{id} cannot read {object} though nobody said so now: {text}\n{}",
                self.story.about(&[object.to_string()])
            );
        }
        let legitimate = match failure.kind {
            FailureKind::User => true,
            FailureKind::Cancelled => cancelled || !self.books.streams_dropped.is_empty(),
            FailureKind::WorkerCrashed => killed || cancelled || self.books.actors_killed,
            FailureKind::ActorDied => {
                // One whose constructor's arguments failed was never told to the daemon.
                let told =
                    self.books.actors.iter().any(|actor| text.starts_with(&actor.to_string()));
                let unknown = text.contains("not known") && told;
                let lost = text.contains("out of scope") || unknown;
                !lost || killed || self.books.actors_killed || cancelled
            }
            FailureKind::ActorUnavailable => killed || self.books.actors_killed,
            FailureKind::ObjectLost => self.loss_is_explained(&text),
            FailureKind::OwnerDied => self.owner_is_dead(&text) && !self.is_stored(&text),
            FailureKind::OutOfDisk => self.plan.disk_failures,
            FailureKind::StoreFull => !self.plan.spill,
            // A start is tried three times.
            FailureKind::WorkerStart => self.books.failed_starts >= 3,
            FailureKind::OutOfMemory => self.plan.memory_faults,
            FailureKind::RuntimeEnv
            | FailureKind::PendingCallsLimit
            | FailureKind::NodeDied
            | FailureKind::NotSent => false,
        };
        assert!(
            legitimate,
            "{object} failed for no reason: {:?} {text}\n{}",
            failure.kind,
            self.story.about(&[object.to_string(), object.task.to_string()])
        );
    }

    /// What is to be made in the place of a dead owner is not there.
    pub fn adoption_is_needed(&self, id: ProcessId, objects: &[ObjectId]) {
        let stored = objects.iter().find(|object| self.is_stored(&object.to_string()));
        if let Some(object) = stored {
            let words = [object.to_string(), object.task.to_string()];
            let story = self.story.about(&words);
            panic!("{id} is to make {object}, though its maker stored it and replied\n{story}");
        }
    }

    /// By the text of a failure, which begins with its name.
    fn is_stored(&self, text: &str) -> bool {
        let object = text.split_whitespace().next().unwrap_or_default();
        self.books.stored.contains(object)
    }

    /// An object is lost with its owner, or with a process that had it when it was killed: as an argument of a call
    /// that goes on without its caller, in a value, for a task that another one adopts. Who leaves by itself
    /// loses nothing.
    fn loss_is_explained(&self, text: &str) -> bool {
        let object = text.split_whitespace().next().unwrap_or_default();
        let dropped = text.contains("every reference to it was dropped");
        let unreadable = text.contains("cannot be read back") && self.plan.disk_failures;
        let explained = self.owner_is_dead(text) || self.books.lost_with.contains_key(object);
        unreadable || (dropped && explained)
    }

    /// No room: only where nothing is spilled, or the disk is full.
    pub fn denial_is_legitimate(&self, id: ProcessId, kind: FailureKind) {
        let legitimate = match kind {
            FailureKind::StoreFull => !self.plan.spill,
            FailureKind::OutOfDisk => self.plan.spill && self.plan.disk_failures,
            _ => false,
        };
        assert!(
            legitimate,
            "{id} is denied room: {kind:?}\n{}",
            self.story.about(&[id.to_string()])
        );
    }

    fn owner_is_dead(&self, text: &str) -> bool {
        let id = text.split_whitespace().next().and_then(|word| word.parse::<AnyId>().ok());
        match id {
            Some(AnyId::ShortObject { task, .. }) => self.books.dead.contains(&task.owner_count),
            _ => false,
        }
    }
}
