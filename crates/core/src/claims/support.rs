//! What supports an object here, what is without support, and the end of an entry.

use hoplo_base::{NodeNumber, ObjectId};

use super::entry::{Claim, Part};
use super::event::{Effect, Message};
use super::{Claims, View};

impl Claims {
    /// One use more: the entry is made and claimed if need be.
    pub(super) fn gain(&mut self, object: ObjectId, part: Part, effects: &mut Vec<Effect>) {
        *self.entries.entry(object).or_default().count(part) += 1;
        self.claim(object, effects);
        self.touch(object);
    }

    pub(super) fn lose(&mut self, object: ObjectId, part: Part) {
        let entry = self.entries.get_mut(&object).expect("what is used has an entry");
        let count = entry.count(part);
        *count = count.checked_sub(1).expect("no use is given back twice");
        self.touch(object);
    }

    /// Whatever happened to it: it goes only after a sweep that is asked for from now on.
    pub(super) fn touch(&mut self, object: ObjectId) {
        self.sweeping.remove(&object);
        self.deferred.remove(&object);
        if self.may_go(object) {
            self.candidates.insert(object);
        } else {
            self.candidates.remove(&object);
        }
    }

    /// Whether nothing is known to support it, and its end waits for nobody else.
    pub(super) fn may_go(&self, object: ObjectId) -> bool {
        let Some(entry) = self.entries.get(&object) else { return false };
        let asks_nobody = if self.is_in_charge(object) {
            self.members.is_announced(home(object))
        } else {
            match entry.claim {
                Claim::None | Claim::Open => false,
                Claim::Confirmed | Claim::Unknown => true,
            }
        };
        asks_nobody && !entry.is_supported()
    }

    pub(super) fn is_in_charge(&self, object: ObjectId) -> bool {
        self.members.in_charge(home(object)) == self.members.me()
    }

    pub(super) fn is_open(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.claim == Claim::Open)
    }

    fn claim(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.is_in_charge(object) {
            return;
        }
        let entry = self.entries.get_mut(&object).expect("it is used");
        if entry.claim == Claim::None {
            entry.claim = Claim::Open;
            let to = self.members.in_charge(home(object));
            self.send(to, Message::Claim { object }, effects);
        }
    }

    /// What it contains is supported by it from now on.
    pub(super) fn hold_contents(&mut self, container: ObjectId, effects: &mut Vec<Effect>) {
        let entry = self.entries.get_mut(&container).expect("it is here");
        let Some(contents) = entry.contents.clone() else { return };
        if std::mem::replace(&mut entry.holds_contents, true) {
            return;
        }
        for inner in contents {
            self.gain(inner, Part::Container, effects);
        }
    }

    pub(super) fn on_contains(
        &mut self,
        container: ObjectId,
        contents: Box<[ObjectId]>,
        effects: &mut Vec<Effect>,
    ) {
        let in_charge = self.is_in_charge(container);
        let Some(entry) = self.entries.get_mut(&container) else {
            return; // it went in the meantime
        };
        let before = entry.contents.replace(contents);
        let held = std::mem::take(&mut entry.holds_contents);
        if held || in_charge {
            self.hold_contents(container, effects);
        }
        for inner in before.filter(|_| held).unwrap_or_default() {
            self.lose(inner, Part::Container);
        }
        self.touch(container);
    }

    /// Whatever was on its way inside this node when the sweep was asked for has been handed in, and nothing of it
    /// touched these objects: nobody here reaches them, and nobody here will.
    pub(super) fn on_swept(&mut self, effects: &mut Vec<Effect>) {
        assert!(self.sweep_under_way, "no sweep was asked for");
        self.sweep_under_way = false;
        for object in std::mem::take(&mut self.sweeping) {
            assert!(self.may_go(object), "NREF-3: {object} goes while something supports it");
            if self.has_open_contents(object) {
                self.deferred.insert(object);
            } else {
                self.end(object, effects);
            }
        }
    }

    pub(super) fn ask_for_sweep(&mut self, effects: &mut Vec<Effect>) {
        if !self.sweep_under_way && !self.candidates.is_empty() {
            self.sweep_under_way = true;
            self.sweeping = std::mem::take(&mut self.candidates);
            effects.push(Effect::Sweep);
        }
    }

    /// Something was read out of it, and only it supports that at the home of what was read (NREF-6).
    pub(super) fn has_open_contents(&self, object: ObjectId) -> bool {
        let contents = self.entries[&object].contents.as_deref().unwrap_or_default();
        !self.is_in_charge(object) && contents.iter().any(|inner| self.is_open(*inner))
    }

    fn end(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let entry = self.entries.remove(&object).expect("it goes once");
        if self.is_in_charge(object) {
            effects.push(Effect::Free { object });
        } else {
            if entry.claim == Claim::Confirmed {
                let to = self.members.in_charge(home(object));
                self.send(to, Message::Release { object }, effects);
            }
            effects.push(Effect::Forget { object });
        }
        for inner in entry.contents.filter(|_| entry.holds_contents).unwrap_or_default() {
            self.lose(inner, Part::Container);
        }
    }

    /// What is known about an object.
    pub fn view(&self, object: ObjectId) -> Option<View> {
        let entry = self.entries.get(&object)?;
        Some(View {
            in_charge: self.members.in_charge(home(object)),
            parties: entry.local,
            containers: entry.containers,
            covers: entry.covers,
            registered: entry.registered.clone(),
            is_claimed: entry.claim == Claim::Confirmed,
            is_lost: entry.claim == Claim::Unknown,
            contents: entry.contents.clone(),
        })
    }
}

pub(super) fn home(object: ObjectId) -> NodeNumber {
    object.task.owner.node()
}
