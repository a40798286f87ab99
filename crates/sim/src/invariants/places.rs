//! A task, or an actor, runs only where its labels allow.

use hoplo_base::TaskId;

use crate::cluster::Cluster;

impl Cluster {
    pub fn may_run_here(&self, task: TaskId) {
        let (selectors, here) = (self.books.facts.labels_of(task), self.here.number);
        let met =
            selectors.iter().any(|selector| selector.is_met(here, &self.entry_of(here).labels));
        assert!(
            met || selectors.is_empty(),
            "{task} runs at {here}, which has no label that it asks for\n{}",
            self.story.about(&[task.to_string()])
        );
    }
}
