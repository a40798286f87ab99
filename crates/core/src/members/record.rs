//! What a judge knows of one living node.

use std::time::Duration;

use hoplo_base::{Instant, limits};

use super::Why;

#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Of its row.
    pub(super) version: u64,
    pub(super) draining: bool,
    /// On this judge's machine.
    pub(super) near: bool,
    /// The membership that it said it knows.
    pub(super) epoch: Option<u64>,
    pub(super) heard: Heard,
    /// When its last sign of life came: unlike `heard`, whatever time the judge was away.
    sign_at: Option<Instant>,
    /// When it spoke last by itself, or since when it could.
    pub(super) came_at: Instant,
    /// When to look at it again.
    pub(super) due: Option<Instant>,
    /// When it was last probed because of trouble,
    pub(super) troubled_at: Option<Instant>,
    /// and whether there was more since.
    pub(super) troubled: bool,
    /// On its way to the store.
    pub(super) verdict: Option<Verdict>,
}

/// When it last gave a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Not since this judge began to listen for it.
    Never {
        since: Instant,
    },
    At(Instant),
}

#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) ticket: u64,
    pub(super) why: Why,
}

impl Record {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            version: 0,
            draining: false,
            near: false,
            epoch: None,
            heard: Heard::Never { since: now },
            sign_at: None,
            came_at: now,
            due: None,
            troubled_at: None,
            troubled: false,
            verdict: None,
        }
    }

    /// This judge acts from now on: what it did not hear before was perhaps said to another one.
    pub(super) fn begin(&mut self, now: Instant, patience: Duration) {
        if self.is_silent(now, patience) {
            self.heard = Heard::Never { since: now };
        }
        self.came_at = now;
    }

    /// It spoke by itself.
    pub(super) fn came(&mut self, now: Instant) {
        self.heard(now);
        self.came_at = now;
    }

    pub(super) fn heard(&mut self, at: Instant) {
        self.sign_at = self.sign_at.max(Some(at));
        self.heard = match self.heard {
            Heard::At(before) => Heard::At(before.max(at)),
            Heard::Never { .. } => Heard::At(at),
        };
    }

    /// Something of it came later.
    pub(super) fn heard_since(&self, since: Instant) -> bool {
        self.sign_at.is_some_and(|at| at > since)
    }

    pub(super) fn was_away(&mut self, now: Instant, time: Duration) {
        self.heard = match self.heard {
            Heard::Never { since } => Heard::Never { since: (since + time).min(now) },
            Heard::At(at) => Heard::At((at + time).min(now)),
        };
        self.came_at = (self.came_at + time).min(now);
    }

    /// It said something so lately that it can be asked for something: one that vanished together with a node that is silent now did not.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        match self.heard {
            Heard::Never { .. } => false,
            Heard::At(at) => now.since(at) < limits::MEMBER_SILENT - limits::MEMBER_BEAT,
        }
    }

    /// It should have been heard of by now.
    pub(super) fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        self.silent_at(patience) <= now
    }

    /// From when on it is silent, if it says nothing more.
    pub(super) fn silent_at(&self, patience: Duration) -> Instant {
        match self.heard {
            Heard::Never { since } => since,
            Heard::At(at) => at + patience,
        }
    }

    /// Why it is dead, if its silence is enough for that.
    pub(super) fn silence(
        &self,
        now: Instant,
        patience: Duration,
        witnesses: usize,
    ) -> Option<Why> {
        let judged = patience + limits::MEMBER_PROBE_WITHIN;
        match self.heard {
            Heard::Never { since } => {
                let milliseconds = now.since(since).as_millis() as u64;
                let enough = now.since(since) >= limits::MEMBER_UNHEARD;
                enough.then_some(Why::Unheard { milliseconds, witnesses })
            }
            Heard::At(at) => {
                let milliseconds = now.since(at).as_millis() as u64;
                (now.since(at) >= judged).then_some(Why::Silent { milliseconds, witnesses })
            }
        }
    }

    /// Why it is dead though it answers, if it is.
    pub(super) fn astray(&self, now: Instant) -> Option<Why> {
        let away = now.since(self.came_at);
        let enough = away >= limits::MEMBER_ASTRAY;
        enough.then_some(Why::Astray { seconds: away.as_secs() })
    }

    /// So long nothing was heard of it.
    pub(super) fn silent_for(&self, now: Instant) -> Duration {
        match self.heard {
            Heard::Never { since } | Heard::At(since) => now.since(since),
        }
    }
}
