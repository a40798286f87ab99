//! Every invariant of transfers, recomputed.

use std::collections::BTreeSet;

use hoplo_base::limits::{FOLDS_MAX, PULLS_MAX, SERVES_MAX};
use hoplo_base::{NodeNumber, ObjectId};

use super::Transfer;
use super::pull::Stage;
use super::serve::Stage as Serving;

impl Transfer {
    /// Panics with the invariant that does not hold.
    pub fn check(&self) {
        let queued: BTreeSet<ObjectId> = self.queue.iter().copied().collect();
        assert_eq!(queued.len(), self.queue.len(), "XFER-2");
        let mut tickets = BTreeSet::new();
        let mut slots: Vec<u32> = self.slots.clone();
        for (object, pull) in &self.pulls {
            slots.extend(pull.room().map(|room| room.place.slot));
            let is_queued = matches!(pull.stage, Stage::Queued);
            assert_eq!(is_queued, queued.contains(object), "XFER-2: {object} is {:?}", pull.stage);
            match &pull.stage {
                Stage::Queued => {}
                Stage::AskingRoom { request } => assert!(tickets.insert((*request, *object))),
                Stage::Receiving { room, ticket, from, written } => {
                    assert!(tickets.insert((*ticket, *object)), "XFER-1: {object}");
                    assert!(room.place.len == pull.bytes, "XFER-3: {object}");
                    assert!(*written < pull.bytes && !pull.sources.contains(from), "XFER-1");
                }
                Stage::Broken { rest, .. } => {
                    let fold = pull.fold.as_ref().expect("XFER-15: it is a fold");
                    let waits = rest.from < pull.bytes && pull.sources.is_empty();
                    assert!(fold.can_go_on() && waits, "XFER-15: {pull:?}");
                }
                Stage::Stopping { ticket, .. } | Stage::Clearing { ticket, .. } => {
                    assert!(tickets.insert((*ticket, *object)), "XFER-1: {object}");
                }
            }
        }
        assert!(queued.iter().all(|object| self.pulls.contains_key(object)), "XFER-2");
        let known: BTreeSet<(u64, ObjectId)> =
            self.tickets.iter().map(|(ticket, object)| (*ticket, *object)).collect();
        assert_eq!(known, tickets, "XFER-1");
        let under_way = self.pulls.len() - self.queue.len();
        assert!(under_way <= PULLS_MAX, "XFER-5: {under_way}");
        assert!(self.queue.is_empty() || under_way == PULLS_MAX, "XFER-5: {under_way}");
        slots.extend(self.check_assemblies());
        slots.extend(self.wholes.values().map(|whole| whole.location.slot));
        let twice =
            |made: &ObjectId| self.wholes.contains_key(made) || self.pulls.contains_key(made);
        assert!(!self.wanting.keys().any(twice), "XFER-12");
        assert!(!self.wholes.keys().any(|made| self.pulls.contains_key(made)), "XFER-12");
        assert!(self.folds() <= FOLDS_MAX, "XFER-12");
        let folding = self.pulls.values().filter_map(|pull| pull.fold.as_ref()?.outcome.as_ref());
        let whole = self.wholes.values().filter_map(|whole| whole.outcome.as_ref());
        for outcome in folding.chain(whole.clone()).filter(|it| it.wanted.is_some()) {
            assert!(!self.pulls.contains_key(&outcome.result), "XFER-7: {outcome:?}");
        }
        for outcome in whole {
            assert!(!(outcome.sealed && outcome.wanted.is_some()), "XFER-7: {outcome:?}");
        }
        let count = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), count, "XFER-6");
        for serve in self.serves.values() {
            match serve.stage {
                Serving::Asking | Serving::Sending => {}
                Serving::Expecting => {
                    let begun = self.pulls.contains_key(&serve.object);
                    assert!(
                        !begun && !self.wholes.contains_key(&serve.object),
                        "XFER-12: {serve:?}"
                    );
                }
                Serving::Waiting | Serving::Relaying => {
                    let pull = self.pulls.get(&serve.object).expect("XFER-8: it is being pulled");
                    assert!(pull.turn < serve.turn, "XFER-8: {} {}", pull.turn, serve.turn);
                    let relays = match &pull.stage {
                        Stage::AskingRoom { .. } => serve.stage == Serving::Waiting,
                        Stage::Receiving { room, .. } => {
                            !room.in_file && serve.stage == Serving::Relaying
                        }
                        Stage::Stopping { room, .. } | Stage::Broken { room, .. } => !room.in_file,
                        Stage::Queued | Stage::Clearing { .. } => false,
                    };
                    assert!(relays, "XFER-8: {serve:?} of {pull:?}");
                }
            }
        }
        let askers: BTreeSet<NodeNumber> = self.serves.keys().map(|(node, _)| *node).collect();
        for node in askers {
            let serves = self.serves.range((node, 0)..=(node, u64::MAX)).count();
            assert!(serves <= SERVES_MAX, "XFER-5: {serves} for {node:?}");
        }
    }
}
