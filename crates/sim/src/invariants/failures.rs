//! A failure is one that something in this run accounts for.

use hoplo_base::{AnyId, ObjectId};
use hoplo_wire::{Failure, FailureKind};

use crate::cluster::Cluster;

impl Cluster {
    pub fn failure_is_legitimate(&self, object: ObjectId, failure: &Failure) {
        let killed = self.plan.has_kills();
        let cancelled = self.books.cancelled;
        let text = failure.text();
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
            FailureKind::OwnerDied => self.owner_is_dead(&text),
            FailureKind::OutOfDisk => self.plan.disk_failures,
            FailureKind::StoreFull => !self.plan.spill,
            // A start is tried three times.
            FailureKind::RuntimeEnv => self.books.failed_starts >= 3,
            FailureKind::OutOfMemory => self.plan.memory_faults,
            FailureKind::PendingCallsLimit | FailureKind::NodeDied | FailureKind::NotSent => false,
        };
        assert!(
            legitimate,
            "{object} failed for no reason: {:?} {text}\n{}",
            failure.kind,
            self.story.about(&[object.to_string(), object.task.to_string()])
        );
    }

    /// An object is lost with its owner, or with a process that had it when it died: as an argument of a call
    /// that goes on without its caller, in a value, for a task that another one adopts.
    fn loss_is_explained(&self, text: &str) -> bool {
        let object = text.split_whitespace().next().unwrap_or_default();
        self.owner_is_dead(text) || self.books.lost_with.contains_key(object)
    }

    fn owner_is_dead(&self, text: &str) -> bool {
        let id = text.split_whitespace().next().and_then(|word| word.parse::<AnyId>().ok());
        match id {
            Some(AnyId::ShortObject { task, .. }) => self.books.dead.contains(&task.owner_count),
            _ => false,
        }
    }
}
