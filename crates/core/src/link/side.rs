//! One socket of a pair: its stream, and the connection that carries it.

use std::time::Duration;

use hoplo_base::Instant;

use super::Turn;
use super::message::{Connection, Hello, Load, Refusal};
use super::stream::Stream;

/// One socket.
pub(super) struct Side<F> {
    pub(super) stream: Stream<F>,
    pub(super) line: Line,
    /// The peer's dial that waits for the fate of ours.
    pub(super) spare: Option<Spare>,
    /// The newest dial of the peer of which there was a hello.
    pub(super) heard: u64,
    /// Dials since anything came over a connection.
    pub(super) failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// There is nothing to say.
    Closed,
    /// It could not be had; `at`: the next try.
    Waiting { at: Instant },
    /// `until`: then it is given up.
    Dialing { connection: Connection, dial: u64, until: Instant },
    /// `dialed`: by this side, as which of its dials. It closes when it was not used for `idle`.
    Up { connection: Connection, dialed: Option<u64>, used_at: Instant, idle: Duration },
}

pub(super) struct Spare {
    pub(super) connection: Connection,
    pub(super) hello: Hello,
}

impl<F: Load> Side<F> {
    pub(super) fn new() -> Self {
        Self { stream: Stream::new(), line: Line::Closed, spare: None, heard: 0, failures: 0 }
    }

    pub(super) fn used(&mut self, now: Instant) {
        self.failures = 0;
        if let Line::Up { used_at, .. } = &mut self.line {
            *used_at = now;
        }
    }

    pub(super) fn acknowledge(&mut self, turn: &mut Turn<'_, F>, window: usize) {
        if let Line::Up { connection, .. } = self.line
            && let Some(ack) = self.stream.ack(turn.now, window)
        {
            turn.write(connection, ack);
        }
    }

    /// Closes its connection, if it has one.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_, F>) {
        if let Some(connection) = self.line.connection() {
            turn.close(connection);
        }
        self.forget_line();
    }

    pub(super) fn forget_line(&mut self) {
        self.line = Line::Closed;
        self.stream.no_debt();
    }

    pub(super) fn drop_spare(&mut self, turn: &mut Turn<'_, F>, why: Option<Refusal>) {
        if let Some(spare) = self.spare.take() {
            match why {
                Some(why) => turn.refuse(spare.connection, why),
                None => turn.close(spare.connection),
            }
        }
    }

    pub(super) fn closes_at(&self) -> Option<Instant> {
        match self.line {
            Line::Up { used_at, idle, .. } if self.stream.is_empty() => Some(used_at + idle),
            Line::Up { .. } | Line::Closed | Line::Waiting { .. } | Line::Dialing { .. } => None,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let line = match self.line {
            Line::Closed => None,
            Line::Waiting { at } => Some(at),
            Line::Dialing { until, .. } => Some(until),
            Line::Up { .. } => self.closes_at(),
        };
        line.into_iter().chain(self.stream.ack_at()).min()
    }
}

impl Line {
    pub(super) fn up<F>(turn: &Turn<'_, F>, connection: Connection, dialed: Option<u64>) -> Self {
        Line::Up { connection, dialed, used_at: turn.now, idle: turn.desk.options.idle }
    }

    pub(super) fn connection(&self) -> Option<Connection> {
        match self {
            Line::Closed | Line::Waiting { .. } => None,
            Line::Dialing { connection, .. } | Line::Up { connection, .. } => Some(*connection),
        }
    }

    pub(super) fn in_words(&self) -> &'static str {
        match self {
            Line::Closed => "not connected, nothing to say",
            Line::Waiting { .. } => "dials again after a moment",
            Line::Dialing { .. } => "dials",
            Line::Up { .. } => "connected",
        }
    }
}
