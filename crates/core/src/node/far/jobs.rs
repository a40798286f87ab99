//! Jobs of drivers of other nodes: their processes run here as those of ours do.

use std::sync::Arc;

use hoplo_base::{JobId, NodeNumber, ProcessId};
use hoplo_wire::node::JobConfig;
use hoplo_wire::peer::Peer;

use super::Node;
use crate::actors::life;
use crate::control::{ControlStore, JobEntry, store};
use crate::node::{Effect, Job};
use crate::sched::{groups, workers};

impl Node {
    /// Before anything of the job goes there. Of one that is over, since a detached actor of it goes on, it is told at once that it
    /// is: nobody would tell that later.
    pub(in crate::node) fn tell_job(&mut self, node: NodeNumber, job: JobId) {
        let Some(known) = self.jobs.get(&job).filter(|_| job.node() != node) else { return };
        let (driver, config) = (known.driver, Box::new((*known.config).clone()));
        let ended = known.ended_us.is_some();
        if self.is_sent_to(node) && self.far.told.entry(job).or_default().insert(node) {
            self.send_peer(node, Peer::Job { job, driver, config });
            if ended {
                self.send_peer(node, Peer::JobEnded { job });
            }
        }
    }

    pub(super) fn on_job_told(
        &mut self,
        from: NodeNumber,
        id: JobId,
        driver: ProcessId,
        config: JobConfig,
    ) {
        if self.jobs.contains_key(&id) {
            return;
        }
        let is_over = self.far.dead.contains_key(&driver.node());
        // Who told it is told of its end by its home, which must know that it is known here.
        if from != id.node() && !is_over {
            self.send_peer(id.node(), Peer::JobKnown { job: id });
        }
        self.out.push(Effect::Preload { modules: config.preload.clone() });
        let job = Job {
            id,
            driver,
            driver_pid: 0,
            config: Arc::new(config),
            started_us: self.wall_us,
            ended_us: None,
        };
        self.jobs.insert(id, job);
        // A detached actor of it goes on.
        if is_over {
            self.end_foreign_job(id);
        }
    }

    /// A node has processes of a job of ours that another one told it of.
    pub(super) fn on_job_known(&mut self, from: NodeNumber, job: JobId) {
        match self.jobs.get(&job) {
            Some(known) if known.ended_us.is_none() => {
                self.far.told.entry(job).or_default().insert(from);
            }
            _ => self.send_peer(from, Peer::JobEnded { job }),
        }
    }

    /// A job of ours ended.
    pub(in crate::node) fn tell_job_ended(&mut self, job: JobId) {
        for node in self.far.told.remove(&job).unwrap_or_default() {
            self.send_peer(node, Peer::JobEnded { job });
        }
    }

    pub(super) fn end_foreign_job(&mut self, id: JobId) {
        let wall_us = self.wall_us;
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.ended_us.is_none()) else {
            return;
        };
        job.ended_us = Some(wall_us);
        self.far.told.remove(&id);
        self.pass_to_actors(life::Event::JobEnded { job: id });
        self.pass_to_pool(workers::Event::JobEnded { job: id });
        self.pass_to_groups(groups::Event::JobEnded { job: id });
        self.drop_functions_of_ended(id);
        self.fetches_of_ended(id);
    }

    /// Of a head, which hears next that this node died: its jobs that did not end, and those of earlier dead whose rows still say that they
    /// run, since the head read them again before it was written that they ended.
    pub(super) fn read_jobs_of_dead(&mut self, node: NodeNumber, store: &dyn ControlStore) {
        let mut unended: Vec<JobEntry> = store::entries(store);
        unended.retain(|job| {
            let home = job.job.node();
            job.ended_us.is_none() && (home == node || self.far.dead.contains_key(&home))
        });
        self.far.unended = unended;
    }

    /// Their drivers died with their node. Who writes the row of a job died, too: of a head, it does.
    pub(super) fn end_jobs_of(&mut self, node: NodeNumber) {
        for mut job in std::mem::take(&mut self.far.unended) {
            job.ended_us = Some(self.wall_us);
            self.save(&job);
        }
        let jobs = self.jobs.keys().filter(|job| job.node() == node);
        for job in jobs.copied().collect::<Vec<_>>() {
            self.end_foreign_job(job);
        }
    }
}
