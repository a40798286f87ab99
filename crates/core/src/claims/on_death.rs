//! Deaths: who is in charge next (NREF-5), and when a dead node is struck (NREF-4).

use std::collections::BTreeSet;

use hoplo_base::{NodeNumber, ObjectId};

use super::Claims;
use super::entry::Claim;
use super::event::{Cover, Effect, Epoch, Message};
use super::support::home;

impl Claims {
    pub(super) fn on_died(
        &mut self,
        node: NodeNumber,
        heir: Option<NodeNumber>,
        epoch: Epoch,
        effects: &mut Vec<Effect>,
    ) {
        let moved = self.members.died(node, heir, epoch);
        self.peers.remove(&node);
        self.owe_nothing_to(node);
        // Who is claimed from now on, for what it is contained in, is claimed from the heir.
        let moved = self.entries.iter().filter(|(object, _)| moved.contains(&home(**object)));
        let moved: Vec<(ObjectId, Claim)> = moved.map(|(it, entry)| (*it, entry.claim)).collect();
        for (object, claim) in moved {
            if self.is_in_charge(object) {
                self.take_over(object, effects);
                continue;
            }
            match claim {
                Claim::Open | Claim::Confirmed => self.announce(object, effects),
                Claim::None | Claim::Unknown => {}
            }
        }
        let open = self.entries.iter().filter(|(_, entry)| entry.claim == Claim::Open);
        self.passing = Some((epoch, open.map(|(object, _)| *object).collect()));
    }

    fn take_over(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let entry = self.entries.get_mut(&object).expect("it is here");
        entry.claim = Claim::None;
        self.hold_contents(object, effects);
        self.claim_closed(object, effects);
    }

    /// To the heir, with a hold on what it contains: the dead home's place in the sets of those is given up when all
    /// have passed, and then the heir's claims, or ours, are there.
    fn announce(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let entry = self.entries.get_mut(&object).expect("it is here");
        entry.claim = Claim::Open;
        let contents = entry.contents.clone();
        let heir = self.members.in_charge(home(object));
        let names = contents.clone().unwrap_or_default();
        let seq = self.send(heir, Message::Announce { object, contents }, effects);
        self.cover(heir, Cover::Announce(seq), names, effects);
        self.touch(object);
    }

    pub(super) fn say_what_is_passed(&mut self, effects: &mut Vec<Effect>) {
        if let Some((epoch, _)) = self.passing.take_if(|(_, open)| open.is_empty()) {
            effects.push(Effect::Passed { epoch });
        }
    }

    /// What the dead sent has been claimed or refused by all, and all have announced what they hold of their estates.
    pub(super) fn on_all_passed(&mut self, epoch: Epoch, effects: &mut Vec<Effect>) {
        self.members.passed_by_all(epoch);
        let covers = self.unsettled.keys().filter(|(to, _)| self.members.is_struck(*to));
        let covers: Vec<(NodeNumber, Cover)> = covers.copied().collect();
        for (to, cover) in covers {
            self.on_settled(to, cover, effects);
        }
        let members = &self.members;
        for entry in self.entries.values_mut() {
            entry.registered.retain(|node| !members.is_struck(*node));
        }
        let unsupported: BTreeSet<ObjectId> =
            self.entries.keys().copied().filter(|object| self.may_go(*object)).collect();
        let known =
            |object: &ObjectId| self.sweeping.contains(object) || self.deferred.contains(object);
        let new = unsupported.into_iter().filter(|object| !known(object));
        self.candidates.extend(new.collect::<Vec<_>>());
    }
}
