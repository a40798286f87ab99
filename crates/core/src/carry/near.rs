//! The half of a pair at the caller's node.

use std::collections::VecDeque;

use hoplo_wire::Malformed;
use hoplo_wire::call::named_in;

use super::queue::{Arrival, Parcel};
use super::{Bytes, Carry, Effect, Frame, Item, Pair};

#[derive(Debug, Default)]
pub(super) struct Near {
    /// Calls that left.
    sent: u64,
    /// The latest of them: those of which there is no credit yet.
    on_way: VecDeque<u64>,
}

impl Near {
    pub(super) fn sent(&mut self, tag: u64) {
        self.sent += 1;
        self.on_way.push_back(tag);
    }

    /// So many more are known to have arrived.
    pub(super) fn arrived(&mut self, frames: u64) {
        let frames = usize::try_from(frames).unwrap_or(usize::MAX).min(self.on_way.len());
        self.on_way.drain(..frames);
    }

    /// Calls that left after this one, counted from 1.
    fn after(&self, received: u64) -> impl Iterator<Item = u64> {
        let first = self.sent - self.on_way.len() as u64;
        let skipped = usize::try_from(received.saturating_sub(first)).unwrap_or(usize::MAX);
        self.on_way.iter().skip(skipped).copied()
    }
}

impl Carry {
    /// A frame out of the ring of a caller of this node.
    pub fn took_call(
        &mut self,
        pair: Pair,
        tag: u64,
        frame: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Malformed> {
        let named = named_in(frame)?;
        let (is_last, cover) = (false, 0);
        let bytes = Bytes::Own(frame.to_vec());
        let frame = Frame { pair, tag, is_last, cover, named, bytes };
        let waits = frame.names().then(|| self.ask(false, false, &frame, effects));
        self.push(pair, Parcel::Frame { waits, frame }, effects);
        Ok(())
    }

    pub(super) fn on_revoke(&mut self, pair: Pair, seqs: Vec<u64>, effects: &mut Vec<Effect>) {
        if self.halves.contains_key(&pair) {
            self.push(pair, Parcel::Word(Item::Revoke { pair, seqs }), effects);
        }
    }

    pub(super) fn on_reply(&mut self, frame: Frame, effects: &mut Vec<Effect>) {
        let pair = frame.pair;
        if !self.halves.contains_key(&pair) {
            return self.stray(true, &frame, effects);
        }
        let waits = frame.names().then(|| self.ask(true, true, &frame, effects));
        let arrival = Arrival::Frame { waits, frame, dropped: false };
        self.half(pair).incoming.queue.push_back(arrival);
        self.settle(pair, effects);
    }

    pub(super) fn on_word(&mut self, pair: Pair, word: Item, effects: &mut Vec<Effect>) {
        if let Some(half) = self.halves.get_mut(&pair) {
            half.incoming.queue.push_back(Arrival::Word(word));
            self.settle(pair, effects);
        } else if let Item::Gone { .. } = word {
            // The tombstone may go.
            let to = self.other_node(pair);
            effects.push(Effect::Send { to, item: Item::Closed { pair } });
        }
    }

    /// All replies before it are in their ring.
    pub(super) fn hear(&mut self, word: Item, effects: &mut Vec<Effect>) {
        match word {
            Item::Revoked { pair, seqs, kept } => {
                effects.push(Effect::Revoked { pair, seqs, kept });
            }
            Item::Gone { pair, received, mut unstarted, obituary } => {
                let Some(half) = self.halves.remove(&pair) else { return };
                if let super::Side::Near(near) = &half.side {
                    unstarted.extend(near.after(received));
                }
                unstarted.extend(half.outgoing.tags());
                let to = self.other_node(pair);
                effects.push(Effect::Drop { pair });
                effects.push(Effect::Ended { pair, unstarted, obituary });
                if !self.dead.contains_key(&to) {
                    effects.push(Effect::Send { to, item: Item::Closed { pair } });
                }
            }
            Item::Call(_)
            | Item::Reply(_)
            | Item::Stray { .. }
            | Item::Credit { .. }
            | Item::Revoke { .. }
            | Item::Closed { .. }
            | Item::Peer { .. } => unreachable!("no word that waits behind replies"),
        }
    }

    pub(super) fn on_caller_gone(&mut self, pair: Pair, effects: &mut Vec<Effect>) {
        let Some(half) = self.halves.remove(&pair) else { return };
        effects.push(Effect::Drop { pair });
        match half.side {
            super::Side::Near(_) if self.dead.contains_key(&self.other_node(pair)) => {}
            super::Side::Near(_) => {
                let to = self.other_node(pair);
                effects.push(Effect::Send { to, item: Item::Closed { pair } });
            }
            // That came here before the decider heard of the caller's end: no call comes any more.
            super::Side::Far(_) => {}
        }
    }
}
