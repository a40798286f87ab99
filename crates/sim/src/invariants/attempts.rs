//! No attempt of a task starts twice, no actor pays more than one restart for one death, none at an actor that its caller had killed before, and no attempt is used up by a worker that never started it.

use hoplo_base::{ActorId, ProcessId, TaskId};

use crate::cluster::Cluster;

impl Cluster {
    pub fn starts_once(
        &mut self,
        task: TaskId,
        attempt: u32,
        caller: ProcessId,
        worker: ProcessId,
    ) {
        assert!(
            !self.books.facts.after_kill.contains(&task),
            "{task} begins in {worker}, but its caller had killed that actor before (SES-8)\n{}",
            self.story.about(&[task.to_string()])
        );
        assert!(
            self.books.facts.not_at.get(&task) != Some(&worker),
            "{task} begins in {worker}, but its caller had ended that worker before (SES-8)\n{}",
            self.story.about(&[task.to_string()])
        );
        let adopted = caller != task.owner;
        let owner_dead = self.books.facts.died.contains(&task.owner);
        let starts = self.books.facts.starts.get(&task).cloned().unwrap_or_default();
        if !adopted && !owner_dead {
            assert!(
                !starts.contains(&attempt),
                "attempt {attempt} of {task} starts again, in {worker}\n{}",
                self.story.about(&[task.to_string()])
            );
            // What was on its way to a node that died may have begun there: it costs a retry. One that stood still, and is dead to others, may
            // begin it when they have begun it again: what it did meanwhile has happened.
            let fits = match self.books.facts.some_node_died() {
                true => starts.len() <= attempt as usize || !self.host(worker.node()).goes_on(),
                false => starts.len() == attempt as usize,
            };
            assert!(
                fits,
                "attempt {attempt} of {task} starts in {worker}, after {starts:?}\n{}",
                self.story.about(&[task.to_string()])
            );
        }
        self.books.facts.starts.entry(task).or_default().push(attempt);
    }

    pub fn restarts_once(&mut self, actor: ActorId, incarnation: u32) {
        let due = self.books.facts.restarts_due(actor);
        assert!(
            incarnation as usize <= due,
            "{actor} starts for the {incarnation}th time again, but was to start again {due} times\n{}",
            self.story.about(&[actor.to_string()])
        );
    }

    /// Its worker gave it back, before anything of it ran.
    pub fn begins_not(&mut self, task: TaskId, attempt: u32) {
        let starts = self.books.facts.starts.get_mut(&task).expect("it was taken");
        let at = starts.iter().rposition(|start| *start == attempt).expect("it was taken");
        starts.remove(at);
    }
}
