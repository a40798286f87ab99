//! What other nodes say: claims and releases at who is in charge, answers at who asked.

use hoplo_base::{NodeNumber, ObjectId};

use super::Claims;
use super::entry::Claim;
use super::event::{Cover, Effect, Message, Parcel};
use super::support::home;

impl Claims {
    pub(super) fn on_received(
        &mut self,
        from: NodeNumber,
        parcel: Parcel,
        effects: &mut Vec<Effect>,
    ) {
        if self.members.is_dead(from) {
            return;
        }
        let Parcel { seq, message } = parcel;
        let peer = self.peers.entry(from).or_default();
        if seq <= peer.seen {
            return; // its acknowledgement was lost
        }
        if seq > peer.seen + 1 {
            let what = format!("said {seq} after {}", peer.seen);
            return self.violation(from, what, effects);
        }
        peer.seen = seq;
        match message {
            Message::Claim { object } => {
                if self.register(from, object, effects) {
                    let contents = self.entries[&object].contents.clone();
                    self.send(from, Message::Claimed { object, contents }, effects);
                }
            }
            Message::Announce { object, contents } => {
                self.on_announced(from, seq, object, contents, effects);
            }
            Message::Claimed { object, contents } => {
                if self.on_answer(from, object, Claim::Confirmed, effects) {
                    self.learn(object, contents);
                }
            }
            Message::Unknown { object } => {
                if self.on_answer(from, object, Claim::Unknown, effects) {
                    effects.push(Effect::Lost { object });
                }
            }
            Message::Release { object } => self.on_release(from, object, effects),
            Message::Settled { cover } => self.on_settled(from, cover, effects),
        }
    }

    /// Who claims is in the set, unless we know that there is no such object. A node that heard of a death before us
    /// may take us for the heir already, and is right.
    fn register(&mut self, from: NodeNumber, object: ObjectId, effects: &mut Vec<Effect>) -> bool {
        let decided = self.is_in_charge(object) && self.members.is_announced(home(object));
        if decided && !self.entries.contains_key(&object) {
            self.send(from, Message::Unknown { object }, effects);
            return false;
        }
        self.entries.entry(object).or_default().register(from);
        self.touch(object);
        true
    }

    /// Its sender holds the contents until we have claimed them; the claim itself is confirmed at once. If it waited for
    /// the contents, objects that contain each other would never be passed.
    fn on_announced(
        &mut self,
        from: NodeNumber,
        seq: u64,
        object: ObjectId,
        contents: Option<Box<[ObjectId]>>,
        effects: &mut Vec<Effect>,
    ) {
        let names = contents.clone().unwrap_or_default();
        if self.register(from, object, effects) {
            self.learn(object, contents.clone());
            self.hold_contents(object, effects);
            let known = self.entries[&object].contents.clone();
            let contents = known.filter(|_| contents.is_none());
            self.send(from, Message::Claimed { object, contents }, effects);
        }
        self.owe(from, Cover::Announce(seq), &names, effects);
    }

    /// Whether it was asked.
    fn on_answer(
        &mut self,
        from: NodeNumber,
        object: ObjectId,
        answer: Claim,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let asked = self.members.in_charge(home(object)) == from;
        if !asked || !self.is_open(object) {
            let what = format!("answered about {object}, which we did not ask it for");
            self.violation(from, what, effects);
            return false;
        }
        self.entries.get_mut(&object).expect("it is open").claim = answer;
        self.claim_closed(object, effects);
        true
    }

    fn on_release(&mut self, from: NodeNumber, object: ObjectId, effects: &mut Vec<Effect>) {
        let entry = self.entries.get_mut(&object);
        if entry.is_some_and(|entry| entry.strike(from)) {
            self.touch(object);
        } else {
            self.violation(from, format!("released {object}, which it had not claimed"), effects);
        }
    }

    fn learn(&mut self, object: ObjectId, contents: Option<Box<[ObjectId]>>) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        if entry.contents.is_none() {
            entry.contents = contents;
        }
    }
}
