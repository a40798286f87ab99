//! What is said to other nodes, on its way into their links.
//!
//! A link takes so much, and what it does not take waits in the node's box. Lines of workers are the only thing that nobody waits for and that
//! comes without end: while a link is behind they wait apart (`hoplo_core::carry::Outbox`), so that no call waits for them.

use hoplo_base::NodeNumber;
use hoplo_base::limits::CARRY_LINES_HELD_BYTES;
use hoplo_core::carry::{Item, Outbox, is_lines};
use hoplo_core::link::{SendError, Socket};
use hoplo_wire::peer::Peer;

use super::Calls;
use crate::carrier::bulk::Parcel;
use crate::clock::clock;

impl Calls {
    pub(super) fn send_peer(&mut self, to: NodeNumber, cover: u64, message: &Peer) {
        let waits = is_lines(message) && (self.talkative.contains(&to) || self.is_behind(to));
        let outbox = self.boxes.entry(to).or_default();
        if waits {
            outbox.push_lines(message);
            self.talkative.insert(to);
        } else {
            outbox.push_peer(cover, message);
            self.dirty.insert(to);
        }
    }

    pub(super) fn send(&mut self, to: NodeNumber, item: &Item) {
        if !self.dead.contains(&to) {
            self.boxes.entry(to).or_default().push(item);
            self.dirty.insert(to);
        }
    }

    /// Gives the links what they take.
    pub(in crate::carrier) fn flush(&mut self) {
        for node in std::mem::take(&mut self.dirty) {
            self.flush_to(node);
        }
        // What the link holds became less by what arrived, and then there was a turn.
        for node in self.talkative.clone() {
            self.flush_lines(node);
        }
    }

    fn flush_lines(&mut self, node: NodeNumber) {
        while !self.is_behind(node) {
            match self.boxes.get_mut(&node).filter(|outbox| outbox.has_lines()) {
                Some(outbox) => outbox.take_lines(),
                None => {
                    self.talkative.remove(&node);
                    return;
                }
            }
            self.flush_to(node);
        }
    }

    /// Its link has so much to do that lines of workers wait.
    fn is_behind(&self, node: NodeNumber) -> bool {
        let held = self.links.held_bytes(node, Socket::Talk);
        held > CARRY_LINES_HELD_BYTES || self.boxes.get(&node).is_some_and(Outbox::is_full)
    }

    fn flush_to(&mut self, node: NodeNumber) {
        let Some(outbox) = self.boxes.get_mut(&node) else { return };
        outbox.close_pack();
        while let Some(frame) = outbox.pop() {
            let frame = Parcel::Talk(frame);
            match self.links.send(clock(), node, Socket::Talk, frame, &mut self.link_effects) {
                Err(SendError::Full(Parcel::Talk(frame))) => return outbox.put_back(frame),
                Ok(()) | Err(SendError::Dead(_)) => {}
                Err(SendError::Full(_) | SendError::TooLong(_)) => {
                    unreachable!("packs are bounded, and what was given comes back")
                }
            }
        }
    }
}
