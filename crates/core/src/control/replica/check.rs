//! The invariants of one replica.

use hoplo_base::limits::CONTROL_PAGE_BYTES;
use hoplo_wire::control::Table;

use super::{Replica, Role};

impl Replica {
    /// Asserts what must hold between any two events.
    pub fn check(&self) {
        self.tables.check();
        self.sessions.check();
        self.history.check();
        self.cold.check();
        self.pages.check(|prefix, from, limit| {
            let limit = limit as usize;
            self.tables.scan(Table::Node, prefix, from, limit, CONTROL_PAGE_BYTES).rows
        });
        if self.replaying {
            return;
        }
        let story = || self.story();
        let (applied, committed, stable, last) =
            (self.applied, self.committed(), self.stable, self.last());
        if self.has_base() && self.base_unstable.is_none() {
            assert!(applied <= committed, "CHAIN-2: applied {applied} > {committed}\n{}", story());
            assert!(stable <= last, "CHAIN-2: stable {stable} > {last}\n{}", story());
        }
        assert!(self.history.base() <= applied || !self.has_base(), "CHAIN-9\n{}", story());
        assert!(applied <= last, "CHAIN-9: applied {applied} > {last}\n{}", story());
        for (client, entered) in &self.entered {
            let follows = self
                .sessions
                .last(*client)
                .is_none_or(|done| done.born == entered.born && done.seq < entered.seq);
            assert!(follows, "CHAIN-4: {client:?} has nothing pending\n{}", story());
        }
        assert!(self.entered.is_empty() || self.is_head(), "only the head enters\n{}", story());
        let linked = (self.up.is_some(), self.down.is_some());
        match self.role {
            Role::Outside => assert_eq!(linked, (false, false), "{}", story()),
            Role::Joining => assert_eq!(linked, (true, false), "{}", story()),
            Role::Member { place, of } => {
                assert_eq!(linked.0, place > 0, "{}", story());
                assert!(linked.1 || place + 1 == of, "{}", story());
            }
        }
        assert!(self.stable_number <= self.numbered, "{}", story());
        assert!(
            self.to_log.is_empty() || self.log_waits.is_some(),
            "appended and not handed over\n{}",
            story()
        );
    }
}
