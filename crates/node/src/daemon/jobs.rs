//! What the workers of a job print, on its way to their driver.

use hoplo_base::limits::DRIVER_UNREAD_BYTES_MAX;
use hoplo_base::{Instant, JobId};
use hoplo_core::node::Event;
use hoplo_wire::node::ToClient;

use crate::daemon::{Daemon, Timer};
use crate::output::{Digest, Printer};

/// Of one job, while its driver is there.
#[derive(Debug, Default)]
pub(crate) struct Output {
    digest: Digest,
    /// When the timer for the digest is set.
    output_at: Option<Instant>,
}

impl Daemon {
    pub(crate) fn show(&mut self, id: JobId, printer: &Printer, lines: Vec<String>) {
        let Some(job) = self.node.job(id).filter(|job| job.ended_us.is_none()) else {
            self.outputs.remove(&id);
            return;
        };
        if lines.is_empty() || !job.config.log_to_driver {
            return;
        }
        if self.unsent_bytes(job.driver) > DRIVER_UNREAD_BYTES_MAX {
            return;
        }
        let folds = job.config.folds_output;
        self.outputs.entry(id).or_default().digest.add(self.now, printer, lines, folds);
        self.send_output(id);
    }

    /// What is due, and a timer for the rest.
    pub(crate) fn send_output(&mut self, id: JobId) {
        let Some(output) = self.outputs.get_mut(&id) else { return };
        let messages = output.digest.take_due(self.now);
        if output.output_at.is_some_and(|at| at <= self.now) {
            output.output_at = None;
        }
        if let Some(at) = output.digest.next_deadline()
            && output.output_at.is_none_or(|set| set > at)
        {
            output.output_at = Some(at);
            self.timers.insert((at, Timer::Output(id)));
        }
        self.send_lines(id, messages);
    }

    /// Before an obituary, what was printed.
    pub(crate) fn flush_output(&mut self, id: JobId) {
        let Some(output) = self.outputs.get_mut(&id) else { return };
        let messages = output.digest.take_waiting(self.now);
        self.send_lines(id, messages);
    }

    fn send_lines(&mut self, id: JobId, messages: Vec<ToClient>) {
        let Some(driver) = self.node.job(id).map(|job| job.driver) else { return };
        for message in messages {
            if driver.node() == self.node.config().node {
                self.send_with(driver, &message, None);
            } else {
                self.handle(Event::Printed { driver, message: Box::new(message) });
            }
        }
    }
}
