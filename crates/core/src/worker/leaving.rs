//! How a worker goes: it retires, or is told to leave.

use super::Worker;

pub(super) struct Leaving {
    reason: String,
    /// It takes no more calls.
    pub(super) retired: bool,
    /// It was told to go.
    gone: bool,
}

/// What a worker without work does that is to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Nothing: it stays, or something runs, or it said all already.
    Wait,
    /// It waits for what it submitted; that may need the CPU that it still has: the daemon is told `Blocked`.
    Lend,
    /// Give the leases back, and end the process.
    Go { reason: String },
}

impl<P> Worker<P> {
    /// It takes no more calls; it goes once all that it began or submitted is done.
    pub fn retire(&mut self, reason: &str) {
        self.leaving = Some(Leaving { reason: reason.to_string(), retired: true, gone: false });
    }

    /// It goes once its rings are empty, and all that it began or submitted is done.
    pub fn leave(&mut self, reason: String) {
        let retired = self.leaving.as_ref().is_some_and(|leaving| leaving.retired);
        self.leaving = Some(Leaving { reason, retired, gone: false });
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whether `may_go` is worth asking: there is no work, and it is to leave.
    pub fn wants_to_go(&self) -> bool {
        self.busy == 0 && self.leaving.as_ref().is_some_and(|leaving| !leaving.gone)
    }

    /// There is no work. `unfinished`: what this process submitted and waits for (WORK-5).
    pub fn may_go(&mut self, unfinished: usize) -> Leave {
        if !self.wants_to_go() {
            return Leave::Wait;
        }
        if unfinished > 0 {
            return if self.lend_to_leave() { Leave::Lend } else { Leave::Wait };
        }
        let Some(leaving) = &mut self.leaving else { return Leave::Wait };
        leaving.gone = true;
        leaving.retired = true;
        Leave::Go { reason: leaving.reason.clone() }
    }
}
