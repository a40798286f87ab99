//! Leave to answer queries: a tail that is cut off or stopped must not answer from the past.
//!
//! It is asked for when a query needs it, and good for `CONTROL_LEASE` from the moment when the tail
//! sent the ask, by the tail's clock: whoever granted it did so later. No two clocks are compared.

use std::time::Duration;

use hoplo_base::Instant;
use hoplo_base::limits::{CONTROL_LEASE, CONTROL_PEER_QUIET};
use hoplo_wire::control::PeerBody;

use super::{Effect, Replica};

impl Replica {
    /// No other replica answers as the tail now.
    pub(super) fn has_lease(&self, now: Instant) -> bool {
        self.up.is_none() || now < self.lease_until
    }

    /// Asks for one, unless it did just now.
    pub(super) fn want_lease(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let asked = self.lease_asked.is_some_and(|asked| now < asked + CONTROL_PEER_QUIET);
        let Some(up) = self.up.as_ref().filter(|up| up.synced && !asked) else { return };
        let to = up.replica;
        self.lease_asked = Some(now);
        self.send(to, PeerBody::LeaseWanted { asked: now.0 }, effects);
    }

    /// When it asks again, if queries wait for one.
    pub(super) fn next_lease_ask(&self) -> Option<Instant> {
        self.lease_asked.filter(|_| self.queries.len() > 0).map(|asked| asked + CONTROL_PEER_QUIET)
    }

    /// Less than half of it is left.
    pub(super) fn lease_runs_out(&self, now: Instant) -> bool {
        self.up.is_some() && now + CONTROL_LEASE / 2 > self.lease_until
    }

    pub(super) fn on_lease_wanted(&mut self, now: Instant, asked: u64, effects: &mut Vec<Effect>) {
        let Some(down) = self.down.as_ref().filter(|down| !down.is_joining()) else { return };
        if !self.acting() || now < self.quiet_until {
            return;
        }
        match &self.up {
            Some(up) => self.send(up.replica, PeerBody::LeaseWanted { asked }, effects),
            None => {
                let for_us = CONTROL_LEASE.as_micros() as u64;
                self.send(down.replica, PeerBody::LeaseGranted { asked, for_us }, effects);
            }
        }
    }

    pub(super) fn on_lease_granted(
        &mut self,
        now: Instant,
        asked: u64,
        for_us: u64,
        effects: &mut Vec<Effect>,
    ) {
        if !self.acting() || now < self.quiet_until {
            return;
        }
        if self.is_tail() {
            let good_for = Duration::from_micros(for_us).min(CONTROL_LEASE);
            if asked <= now.0 {
                self.lease_until = self.lease_until.max(Instant(asked) + good_for);
                self.lease_asked = None;
            }
        } else if let Some(down) = self.down.as_ref().filter(|down| !down.is_joining()) {
            self.send(down.replica, PeerBody::LeaseGranted { asked, for_us }, effects);
        }
    }
}
