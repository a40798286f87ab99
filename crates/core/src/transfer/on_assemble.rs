//! Assemblies: parts of objects of other nodes, brought into one room for a process of this node.
//!
//! ```text
//!   Queued --a place is free--> AskingRoom --granted--> Coming --the last part is there--> (Assembled)
//!                                   |                     |
//!                                   | denied              | a part cannot be had, or nobody waits any more
//!                                   v                     v
//!                             (NotAssembled)       Coming, `over` --the last one under way has stopped--> (NotAssembled)
//! ```
//! Each part comes from one node, by a ticket of its own, to its own place in the room. A few are on their way at a time, and each node begins with the one behind itself. So of nodes that
//! all need something of each other, each sends to one or two, and gets from one or two: links are full in both directions, and nobody gets a little of everybody.
//!
//! A part has one source: who asks knows a node that has all of the object. If it has not (what is still coming there is not relayed for a part: turn 0), or dies, the
//! assembly has failed. Who asked has another way.
//!
//! The room is nobody's object. It is not sealed, and it is handed over as it is.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::limits::{ASSEMBLIES_AT_ONCE, ASSEMBLY_AHEAD_BYTES};
use hoplo_base::{NodeNumber, ProcessId};
use hoplo_wire::{Location, Part};

use super::Transfer;
use super::event::{Effect, Order, Place};
use super::pull::Room;

/// Who asked, and its request.
pub(super) type Key = (ProcessId, u64);

#[derive(Debug)]
pub(super) struct Assembly {
    bytes: u64,
    /// Not begun, the next one first.
    left: VecDeque<Part>,
    stage: Stage,
    /// Why it is not to be made any more.
    over: Option<String>,
}

#[derive(Debug)]
enum Stage {
    Queued,
    AskingRoom {
        request: u64,
    },
    /// With what is under way, by ticket.
    Coming {
        place: Place,
        coming: BTreeMap<u64, Part>,
    },
}

impl Assembly {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Transfer {
    pub(super) fn on_assemble(
        &mut self,
        key: Key,
        bytes: u64,
        mut parts: Vec<Part>,
        effects: &mut Vec<Effect>,
    ) {
        if self.assemblies.contains_key(&key) {
            let why = "that request was used before".to_string();
            return effects.push(Effect::NotAssembled { asker: key.0, request: key.1, why });
        }
        let me = self.me;
        parts.sort_by_key(|part| (part.node <= me, part.node, part.at));
        let (left, stage) = (parts.into(), Stage::Queued);
        self.assemblies.insert(key, Assembly { bytes, left, stage, over: None });
        self.begin_assemblies(effects);
    }

    /// As many as may be under way ask for room.
    fn begin_assemblies(&mut self, effects: &mut Vec<Effect>) {
        loop {
            let is_queued = |it: &Assembly| matches!(it.stage, Stage::Queued);
            let queued = self.assemblies.iter().find(|(_, it)| is_queued(it)).map(|(key, _)| *key);
            let begun = self.assemblies.values().filter(|it| !is_queued(it)).count();
            let Some(key) = queued.filter(|_| begun < ASSEMBLIES_AT_ONCE) else { return };
            let request = self.part_ticket(key);
            let assembly = self.assembly_mut(key);
            assembly.stage = Stage::AskingRoom { request };
            effects.push(Effect::WantRoom { request, bytes: assembly.bytes, slots: 1 });
        }
    }

    /// It is there.
    pub(super) fn room_for_assembly(&mut self, key: Key, room: Room, effects: &mut Vec<Effect>) {
        let assembly = self.assembly_mut(key);
        if room.in_file {
            assembly.over.get_or_insert_with(|| "there is no room for it in memory".to_string());
        }
        if let Some(why) = assembly.over.take() {
            self.return_room(room, effects);
            return self.assembly_failed(key, why, effects);
        }
        assembly.stage = Stage::Coming { place: room.place, coming: BTreeMap::new() };
        self.fetch_parts(key, effects);
    }

    pub(super) fn assembly_failed(&mut self, key: Key, why: String, effects: &mut Vec<Effect>) {
        self.assemblies.remove(&key);
        effects.push(Effect::NotAssembled { asker: key.0, request: key.1, why });
        self.begin_assemblies(effects);
    }

    /// The next ones; or the end.
    fn fetch_parts(&mut self, key: Key, effects: &mut Vec<Effect>) {
        loop {
            let assembly = &self.assemblies[&key];
            let Stage::Coming { place, coming } = &assembly.stage else { return };
            let place = *place;
            let ahead: u64 = coming.values().map(|part| part.len).sum();
            let is_enough = coming.len() >= 2 && ahead >= ASSEMBLY_AHEAD_BYTES;
            if assembly.over.is_some() || assembly.left.is_empty() {
                if coming.is_empty() {
                    self.assembly_ends(key, place, effects);
                }
                return;
            }
            if is_enough {
                return;
            }
            let ticket = self.part_ticket(key);
            let assembly = self.assembly_mut(key);
            let part = assembly.left.pop_front().expect("it is not empty");
            if let Stage::Coming { coming, .. } = &mut assembly.stage {
                coming.insert(ticket, part);
            }
            let Part { object, node: from, from: offset, len, at } = part;
            let until = offset + len;
            effects.push(Effect::Order(Order::ReceivePart {
                ticket,
                from,
                place,
                at,
                offset,
                until,
            }));
            effects.push(Effect::Fetch { to: from, ticket, object, offset, until, turn: 0 });
        }
    }

    /// Nothing of it is under way.
    fn assembly_ends(&mut self, key: Key, place: Place, effects: &mut Vec<Effect>) {
        let Place { slot, offset, len } = place;
        if let Some(why) = self.assembly_mut(key).over.take() {
            self.return_room(Room { place, in_file: false }, effects);
            return self.assembly_failed(key, why, effects);
        }
        self.assemblies.remove(&key);
        let location = Location { slot, generation: 0, offset, len };
        effects.push(Effect::Assembled { asker: key.0, request: key.1, location });
        self.begin_assemblies(effects);
    }

    pub(super) fn on_part_came(&mut self, ticket: u64, effects: &mut Vec<Effect>) {
        let key = self.part_tickets.remove(&ticket).expect("only what was begun comes");
        self.part_ended(key, ticket);
        self.fetch_parts(key, effects);
    }

    /// The shell writes no more of it.
    pub(super) fn part_stopped(
        &mut self,
        key: Key,
        ticket: u64,
        why: String,
        effects: &mut Vec<Effect>,
    ) {
        let part = self.part_ended(key, ticket);
        // It stopped by itself, and its source does not know.
        let is_news = self.assemblies[&key].over.is_none();
        if is_news {
            effects.extend(self.enough(part.node, ticket));
        }
        self.end_assembly(key, why, effects);
    }

    fn part_ended(&mut self, key: Key, ticket: u64) -> Part {
        let Stage::Coming { coming, .. } = &mut self.assembly_mut(key).stage else {
            panic!("XFER-14: ticket {ticket}")
        };
        coming.remove(&ticket).expect("XFER-14: it was under way")
    }

    /// It is not to be made: what is under way stops first.
    pub(super) fn end_assembly(&mut self, key: Key, why: String, effects: &mut Vec<Effect>) {
        let assembly = self.assembly_mut(key);
        if assembly.over.is_none() {
            assembly.over = Some(why.clone());
            assembly.left.clear();
            match &assembly.stage {
                Stage::Queued => return self.assembly_failed(key, why, effects),
                Stage::AskingRoom { .. } => {}
                Stage::Coming { coming, .. } => {
                    let coming = coming.iter().map(|(ticket, part)| (*ticket, part.node));
                    for (ticket, node) in coming.collect::<Vec<_>>() {
                        effects.extend(self.enough(node, ticket));
                        effects.push(Effect::Order(Order::StopReceive { ticket }));
                    }
                }
            }
        }
        self.fetch_parts(key, effects);
    }

    /// Its source has no bytes for it.
    pub(super) fn no_part(
        &mut self,
        key: Key,
        (from, ticket): (NodeNumber, u64),
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Stage::Coming { coming, .. } = &self.assemblies[&key].stage else { return };
        if coming.get(&ticket).is_some_and(|part| part.node == from) {
            self.end_assembly(key, format!("node {}: {why}", from.hex()), effects);
        }
    }

    /// The process does not wait for it any more.
    pub(super) fn on_assemble_over(&mut self, key: Key, effects: &mut Vec<Effect>) {
        if self.assemblies.contains_key(&key) {
            self.end_assembly(key, "it was given up".to_string(), effects);
        }
    }

    pub(super) fn lose_assembler(&mut self, process: ProcessId, effects: &mut Vec<Effect>) {
        let keys = self.assemblies.range((process, 0)..=(process, u64::MAX)).map(|(key, _)| *key);
        for key in keys.collect::<Vec<_>>() {
            self.end_assembly(key, "its process is gone".to_string(), effects);
        }
    }

    pub(super) fn lose_parts(&mut self, dead: NodeNumber, effects: &mut Vec<Effect>) {
        let needs = |assembly: &Assembly| {
            let coming = match &assembly.stage {
                Stage::Coming { coming, .. } => Some(coming.values()),
                Stage::Queued | Stage::AskingRoom { .. } => None,
            };
            let mut parts = assembly.left.iter().chain(coming.into_iter().flatten());
            parts.any(|part| part.node == dead)
        };
        let those = self.assemblies.iter().filter(|(_, it)| needs(it)).map(|(key, _)| *key);
        for key in those.collect::<Vec<_>>() {
            self.end_assembly(key, format!("node {} died", dead.hex()), effects);
        }
    }

    fn part_ticket(&mut self, key: Key) -> u64 {
        self.last_ticket += 1;
        self.part_tickets.insert(self.last_ticket, key);
        self.last_ticket
    }

    fn assembly_mut(&mut self, key: Key) -> &mut Assembly {
        self.assemblies.get_mut(&key).expect("XFER-14: who has a ticket has an assembly")
    }

    /// XFER-14, and the slots that assemblies have.
    pub(super) fn check_assemblies(&self) -> Vec<u32> {
        let (mut slots, mut tickets) = (Vec::new(), BTreeMap::new());
        for (key, assembly) in &self.assemblies {
            match &assembly.stage {
                Stage::Queued => assert!(assembly.over.is_none(), "XFER-14: {key:?}"),
                Stage::AskingRoom { request } => {
                    tickets.insert(*request, *key);
                }
                Stage::Coming { place, coming } => {
                    assert!(!coming.is_empty(), "XFER-14: {key:?} waits for nothing");
                    slots.push(place.slot);
                    tickets.extend(coming.keys().map(|ticket| (*ticket, *key)));
                }
            }
        }
        assert_eq!(tickets, self.part_tickets, "XFER-14");
        let begun = self.assemblies.values().filter(|it| !matches!(it.stage, Stage::Queued));
        assert!(begun.count() <= ASSEMBLIES_AT_ONCE, "XFER-5");
        slots
    }
}
