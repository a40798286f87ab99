//! What a daemon left when it died is told as it is: nothing of it lives.

use hoplo_core::control::store::entries;
use hoplo_core::control::{ActorEntry, ActorPhase, JobEntry, NodeEntry, TaskEntry, TaskState};

use crate::cluster::Cluster;

impl Cluster {
    /// A new daemon has begun.
    pub fn check_the_past(&self) {
        let store = &self.control;
        for job in entries::<JobEntry>(store) {
            assert!(job.ended_us.is_some(), "{} runs without a driver", job.job);
        }
        let mine = self.here.daemon.node.config().node;
        for node in entries::<NodeEntry>(store) {
            let lives = !node.head || node.node == mine;
            assert_eq!(!node.state.is_dead(), lives, "{} ({})", node.node, node.hostname);
        }
        let other_lives =
            entries::<NodeEntry>(store).iter().any(|row| row.node != mine && !row.state.is_dead());
        for actor in entries::<ActorEntry>(store) {
            if other_lives && actor.detached && actor.state != ActorPhase::Dead {
                continue; // in the charge of its home's heir
            }
            assert_eq!(actor.state, ActorPhase::Dead, "{} has no process", actor.actor);
            assert!(actor.failure.is_some(), "nobody knows why {} is dead", actor.actor);
        }
        for task in entries::<TaskEntry>(store) {
            assert_ne!(task.state, TaskState::Pending, "{} is run by nobody", task.task);
        }
    }
}
