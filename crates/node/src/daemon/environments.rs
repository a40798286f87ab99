//! Pythons of runtime environments: what the node decides about their builders, and what becomes of them.

use hoplo_core::node::Event;
use hoplo_wire::node::PythonEnv;

use crate::daemon::Daemon;
use crate::journal;

impl Daemon {
    pub(crate) fn make_environment(&mut self, ticket: u64, python: PythonEnv) {
        let logs = self.session.path().join("logs");
        journal::log(format_args!("environment: {} begins", python.what));
        if let Err(why) = self.environments.build(&self.poller, ticket, python, &logs) {
            self.answer(Event::EnvironmentFailed { ticket, why });
        }
    }

    pub(crate) fn on_builder_output(&mut self, ticket: u64) {
        self.environments.read_output(&self.poller, ticket, &mut self.scratch);
    }

    /// The kernel says that it ended.
    pub(crate) fn on_builder_ended(&mut self, ticket: u64) {
        match self.environments.ended(ticket, &mut self.scratch) {
            None => {}
            Some(Ok(())) => self.handle(Event::EnvironmentMade { ticket }),
            Some(Err(why)) => {
                journal::log(format_args!("environment: {why}"));
                self.handle(Event::EnvironmentFailed { ticket, why });
            }
        }
        self.end_orphans();
    }
}
