//! Covers: what we sent keeps a hold on what it names, until its receiver has claimed that (NREF-2).

use std::collections::BTreeSet;

use hoplo_base::{NodeNumber, ObjectId};

use super::Claims;
use super::entry::Part;
use super::event::{Cover, Effect, Message};

impl Claims {
    pub(super) fn cover(
        &mut self,
        to: NodeNumber,
        cover: Cover,
        objects: Box<[ObjectId]>,
        effects: &mut Vec<Effect>,
    ) {
        if objects.is_empty() || self.members.is_struck(to) {
            return; // whoever got it from there has claimed it
        }
        for object in &objects {
            self.gain(*object, Part::Cover, effects);
        }
        let other = self.unsettled.insert((to, cover), objects);
        assert!(other.is_none(), "{cover:?} to {to} is a name that was used");
    }

    /// Something arrived that names these. Our claims for them went out before; when all are confirmed its sender may
    /// let go. What nobody here holds needs no claim.
    pub(super) fn owe(
        &mut self,
        from: NodeNumber,
        cover: Cover,
        objects: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        let named = objects.iter().copied();
        let open: BTreeSet<ObjectId> = named.filter(|object| self.is_open(*object)).collect();
        if open.is_empty() {
            if !objects.is_empty() {
                self.send(from, Message::Settled { cover }, effects);
            }
            return;
        }
        for object in &open {
            self.waiting.entry(*object).or_default().insert((from, cover));
        }
        self.owed.insert((from, cover), open);
    }

    pub(super) fn on_arrived(
        &mut self,
        from: NodeNumber,
        frame: u64,
        objects: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        if self.members.is_dead(from) {
            return;
        }
        let peer = self.peers.entry(from).or_default();
        if frame > peer.frame {
            peer.frame = frame;
            self.owe(from, Cover::Frame(frame), objects, effects);
        }
    }

    pub(super) fn on_settled(&mut self, from: NodeNumber, cover: Cover, effects: &mut Vec<Effect>) {
        let Some(objects) = self.unsettled.remove(&(from, cover)) else {
            return self.violation(from, format!("settled {cover:?}, which is not open"), effects);
        };
        for object in objects {
            self.lose(object, Part::Cover);
        }
    }

    /// The claim for it is open no more: it is confirmed, or lost, or we are in charge.
    pub(super) fn claim_closed(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        assert!(!self.is_open(object), "NREF-2: the claim for {object} is open");
        for (from, cover) in self.waiting.remove(&object).unwrap_or_default() {
            let open = self.owed.get_mut(&(from, cover)).expect("who waits is owed");
            open.remove(&object);
            if open.is_empty() {
                self.owed.remove(&(from, cover));
                self.send(from, Message::Settled { cover }, effects);
            }
        }
        for container in std::mem::take(&mut self.deferred) {
            self.touch(container);
        }
        if let Some((_, open)) = &mut self.passing {
            open.remove(&object);
        }
        self.touch(object);
    }

    /// A dead node waits for nothing.
    pub(super) fn owe_nothing_to(&mut self, node: NodeNumber) {
        self.owed.retain(|(from, _), _| *from != node);
        self.waiting.retain(|_, covers| {
            covers.retain(|(from, _)| *from != node);
            !covers.is_empty()
        });
    }
}
