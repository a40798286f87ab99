//! No attempt of a task starts twice, and no attempt is used up by a worker that never started it.

use hoplo_base::{ProcessId, TaskId};

use crate::cluster::Cluster;

impl Cluster {
    pub fn starts_once(
        &mut self,
        task: TaskId,
        attempt: u32,
        caller: ProcessId,
        worker: ProcessId,
    ) {
        let adopted = caller != task.owner;
        let owner_dead = self.books.facts.died.contains(&task.owner);
        let starts = self.books.facts.starts.entry(task).or_default();
        if !adopted && !owner_dead {
            assert!(
                !starts.contains(&attempt),
                "attempt {attempt} of {task} starts again, in {worker}\n{}",
                self.story.about(&[task.to_string()])
            );
            assert!(
                starts.len() == attempt as usize,
                "attempt {attempt} of {task} starts in {worker}, after {starts:?}\n{}",
                self.story.about(&[task.to_string()])
            );
        }
        starts.push(attempt);
    }
}
