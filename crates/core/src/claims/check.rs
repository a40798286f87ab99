//! Asserts what must hold between any two events.

use std::collections::BTreeMap;

use hoplo_base::ObjectId;

use super::Claims;
use super::entry::Claim;

impl Claims {
    pub fn check(&self) {
        self.check_counts();
        self.check_claims();
        self.check_ends();
    }

    /// NREF-2, and what containers hold.
    fn check_counts(&self) {
        let mut covers: BTreeMap<ObjectId, u32> = BTreeMap::new();
        for ((to, cover), objects) in &self.unsettled {
            assert!(!self.members.is_struck(*to), "NREF-4: {cover:?} waits for {to}, long dead");
            objects.iter().for_each(|object| *covers.entry(*object).or_default() += 1);
        }
        let mut containers: BTreeMap<ObjectId, u32> = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| entry.holds_contents) {
            let contents = entry.contents.iter().flatten();
            contents.for_each(|object| *containers.entry(*object).or_default() += 1);
        }
        for (object, entry) in &self.entries {
            let covered = covers.remove(object).unwrap_or_default();
            assert_eq!(entry.covers, covered, "NREF-2: covers of {object}");
            let contained = containers.remove(object).unwrap_or_default();
            assert_eq!(entry.containers, contained, "containers of {object}");
        }
        assert!(covers.is_empty(), "NREF-2: {covers:?} are covered and unknown");
        assert!(containers.is_empty(), "{containers:?} are contained and unknown");
    }

    /// NREF-1, NREF-4, and who waits for which claim.
    fn check_claims(&self) {
        for (object, entry) in &self.entries {
            let claimed = entry.claim != Claim::None;
            if self.is_in_charge(*object) {
                assert!(!claimed, "NREF-1: we are in charge of {object} and claim it");
                let holds = entry.holds_contents || entry.contents.is_none();
                assert!(holds, "NREF-5: nobody holds what {object} contains");
            } else {
                let needs = entry.is_supported_here();
                assert!(claimed || !needs, "NREF-1: {object} is used here and not claimed");
            }
            let struck = entry.registered.iter().find(|node| self.members.is_struck(**node));
            assert!(struck.is_none(), "NREF-4: {struck:?} is registered for {object}");
            assert!(entry.registered.is_sorted(), "{:?} are in order", entry.registered);
        }
        for (owed, open) in &self.owed {
            assert!(!open.is_empty(), "NREF-2: {owed:?} could be settled");
            assert!(!self.members.is_dead(owed.0), "{owed:?} is dead and waits for nothing");
            for object in open {
                assert!(self.is_open(*object), "NREF-2: {owed:?} waits for {object}");
                assert!(self.waiting[object].contains(owed), "nobody would tell {owed:?}");
            }
        }
        let waiting: usize = self.waiting.values().map(|covers| covers.len()).sum();
        let owed: usize = self.owed.values().map(|open| open.len()).sum();
        assert_eq!(waiting, owed, "who waits is owed, and the other way round");
        for object in self.passing.iter().flat_map(|(_, open)| open) {
            assert!(self.is_open(*object), "NREF-4: passing waits for {object}");
        }
    }

    /// NREF-3: what is without support is about to go, and nothing else is.
    fn check_ends(&self) {
        for object in self.entries.keys() {
            let sets = [&self.candidates, &self.sweeping, &self.deferred];
            let listed = sets.iter().filter(|set| set.contains(object)).count();
            let expected = usize::from(self.may_go(*object));
            assert_eq!(listed, expected, "NREF-3: {object} is in so many lists");
        }
        for object in &self.deferred {
            assert!(self.has_open_contents(*object), "NREF-6: {object} waits for nothing");
        }
        assert!(self.sweep_under_way || self.sweeping.is_empty(), "nobody sweeps");
        assert!(self.sweep_under_way || self.candidates.is_empty(), "nobody asked for a sweep");
    }
}
