//! Pythons of runtime environments, wired to the scheduler, the pool and the shell.

use std::collections::BTreeSet;

use hoplo_wire::node::PythonEnv;
use hoplo_wire::{Failure, FailureKind};

use super::{Effect, Node};
use crate::sched::{environments, local};

impl Node {
    pub(super) fn pass_to_environments(&mut self, event: environments::Event) {
        self.note(&event);
        let mut effects = Vec::new();
        self.environments.handle(self.now, event, &mut effects);
        for effect in effects {
            self.on_environments(effect);
        }
    }

    fn on_environments(&mut self, effect: environments::Effect) {
        use environments::Effect as From;
        match effect {
            From::Make { ticket, python } => {
                self.out.push(Effect::MakeEnvironment { ticket, python });
            }
            From::Stop { ticket } => self.out.push(Effect::StopMaking { ticket }),
            From::Made { python } => {
                self.pass_to_scheduler(local::Event::EnvironmentMade { python });
            }
            From::Gone { python } => {
                self.pass_to_scheduler(local::Event::EnvironmentGone { python });
            }
            From::Fail { python, why } => {
                let node = self.me();
                let host = self.host_of(node).map_or(String::new(), |host| format!(" ({host})"));
                let why = why.trim_end().replace('\n', "\n  ");
                let pause = if why.contains('\n') { "\n  " } else { " " };
                let text = format!(
                    "runtime_env: {} failed at node {}{host}:{pause}{why}",
                    python.what,
                    node.hex()
                );
                let failure = Failure::new(FailureKind::RuntimeEnv, text);
                self.pass_to_scheduler(local::Event::EnvironmentFailed { python, failure });
            }
            From::Look => {
                // What is on its way to somebody who waits for it is used.
                self.work_off_queue();
                let pythons = self.pythons_in_use();
                self.pass_to_environments(environments::Event::InUse { pythons });
            }
            From::LetGo { python } => self.out.push(Effect::LetGoEnvironment { python }),
        }
    }

    /// A worker for which this start was did not come up.
    pub(super) fn doubt_environment(&mut self, ticket: u64) {
        let python = self.pool.env_of_start(ticket).and_then(|env| env.python.as_deref()).cloned();
        if let Some(python) = python {
            self.pass_to_environments(environments::Event::Doubted { python });
        }
    }

    fn pythons_in_use(&self) -> BTreeSet<PythonEnv> {
        let waiting = self.scheduler.claims().map(|(_, _, shape, _, _)| &shape.env);
        let of_jobs = self.jobs.values().filter(|job| job.ended_us.is_none());
        let of_jobs = of_jobs.map(|job| &job.config.env);
        let envs = waiting.chain(self.pool.envs()).chain(of_jobs);
        envs.filter_map(|env| env.python.as_deref().cloned()).collect()
    }
}
