//! A failure is one that something in this run accounts for.

use hoplo_base::{AnyId, ObjectId, ProcessId};
use hoplo_wire::{Failure, FailureKind};

use crate::cluster::Cluster;

impl Cluster {
    pub fn failure_is_legitimate(&self, reader: ProcessId, object: ObjectId, failure: &Failure) {
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
            // Whoever adopts a task may find that nobody wants its results any more, and that its
            // arguments went with them.
            // A call whose caller is dead runs to its end for nobody; its arguments went with the caller.
            FailureKind::ObjectLost => {
                let caller = self.clients[&reader].serves;
                let orphan = caller.is_some_and(|it| self.books.dead.contains(&it.count()));
                orphan || self.owner_is_dead(&text) || self.books.adoptions > 0
            }
            FailureKind::OwnerDied => self.owner_is_dead(&text),
            FailureKind::OutOfDisk => self.plan.disk_failures,
            FailureKind::StoreFull => !self.plan.spill,
            FailureKind::RuntimeEnv => self.plan.fork_failures,
            FailureKind::OutOfMemory
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

    /// An object may be lost only with its owner.
    fn owner_is_dead(&self, text: &str) -> bool {
        let id = text.split_whitespace().next().and_then(|word| word.parse::<AnyId>().ok());
        match id {
            Some(AnyId::ShortObject { owner_count, .. }) => self.books.dead.contains(&owner_count),
            _ => false,
        }
    }
}
