//! Whether a neighbour is silent though something is expected of it.

use hoplo_base::Instant;
use hoplo_base::limits::{CONTROL_PEER_QUIET, CONTROL_PEER_SILENT};

#[derive(Clone, Debug)]
pub struct Watch {
    /// Something is expected since then.
    since: Option<Instant>,
    heard: Instant,
    ping_at: Instant,
    report_at: Instant,
    /// When it was last reported because there was no connection.
    gone_at: Option<Instant>,
}

/// What is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    pub ping: bool,
    pub report: bool,
}

impl Watch {
    pub fn new(now: Instant) -> Self {
        Self { since: None, heard: now, ping_at: now, report_at: now, gone_at: None }
    }

    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    pub fn look(&mut self, now: Instant, expected: bool) -> Due {
        if !expected {
            self.since = None;
            return Due::default();
        }
        let quiet_since = self.heard.max(*self.since.get_or_insert(now));
        self.ping_at = self.ping_at.max(quiet_since + CONTROL_PEER_QUIET);
        self.report_at = self.report_at.max(quiet_since + CONTROL_PEER_SILENT);
        let due = Due { ping: self.ping_at <= now, report: self.report_at <= now };
        if due.ping {
            self.ping_at = now + CONTROL_PEER_QUIET;
        }
        if due.report {
            self.report_at = now + CONTROL_PEER_SILENT;
        }
        due
    }

    /// There is no connection to it: reported at once, but not with each try.
    pub fn gone(&mut self, now: Instant) -> bool {
        let report = self.gone_at.is_none_or(|at| at + CONTROL_PEER_QUIET <= now);
        if report {
            self.gone_at = Some(now);
        }
        report
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.since.map(|_| self.ping_at.min(self.report_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_that_is_silent_is_pinged_then_reported_again_and_again() {
        let mut watch = Watch::new(Instant::ZERO);
        assert_eq!(watch.look(Instant(1), false), Due::default());
        assert_eq!(watch.next_deadline(), None, "nothing is expected");
        let mut reports = 0;
        let mut pings = 0;
        for ms in 0..1000 {
            let due = watch.look(Instant::ZERO + MS * ms, true);
            pings += usize::from(due.ping);
            reports += usize::from(due.report);
        }
        assert_eq!((pings, reports), (9, 3));
        watch.heard(Instant::ZERO + MS * 1000);
        assert_eq!(watch.look(Instant::ZERO + MS * 1090, true), Due::default());
    }
}
