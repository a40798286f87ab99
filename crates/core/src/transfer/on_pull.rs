//! Objects that come here.

use hoplo_base::limits::{PULLS_IN_VAIN_KEPT, PULLS_MAX};
use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::layout::Front;
use hoplo_wire::{Failure, Location, Rest};

use super::Transfer;
use super::event::{Effect, Order, Place};
use super::folding::{Fetch, Folding};
use super::pull::{Pull, Room, Stage};
use super::serve::Stage as Serving;
use super::watch::Watch;

/// Extents start and end at multiples of this.
const PAGE: u64 = 4096;

impl Transfer {
    pub(super) fn on_begin(&mut self, object: ObjectId, fetch: Fetch, effects: &mut Vec<Effect>) {
        if self.pulls.contains_key(&object) || self.comes_of_ring(object, &fetch, effects) {
            // If it is being pulled, who wanted it first let go of it (XFER-7).
            return;
        }
        let Fetch { bytes, turn, sources } = fetch;
        let sources = sources.into_iter().filter(|node| *node != self.me).collect();
        let why = "no node is known to have it".to_string();
        let (stage, watch) = (Stage::Queued, Watch::default());
        let (lost, fold) = (false, None);
        self.begin(object, Pull { bytes, turn, sources, stage, watch, why, lost, fold }, effects);
    }

    pub(super) fn begin(&mut self, object: ObjectId, pull: Pull, effects: &mut Vec<Effect>) {
        self.pulls.insert(object, pull);
        self.queue.push_back(object);
        self.begin_next(effects);
        // Those who asked before it was known here.
        for (to, ticket) in self.serves_in(object, &[Serving::Asking, Serving::Expecting]) {
            self.find(to, ticket, effects);
        }
    }

    /// As many as may be under way ask for room.
    fn begin_next(&mut self, effects: &mut Vec<Effect>) {
        while self.pulls.len() - self.queue.len() < PULLS_MAX {
            let Some(object) = self.queue.pop_front() else { return };
            let pull = &self.pulls[&object];
            let bytes = pull.bytes;
            if pull.sources.is_empty() || bytes == 0 {
                let pull = self.pulls.remove(&object).expect("it was just there");
                self.failed(object, pull, effects);
                continue;
            }
            let request = self.next_ticket(object);
            self.pull_mut(object).stage = Stage::AskingRoom { request };
            // One is kept for each that asks and brings none.
            let asking = |pull: &&Pull| matches!(pull.stage, Stage::AskingRoom { .. });
            let asking = self.pulls.values().filter(asking).count();
            let slots = u32::from(asking > self.slots.len());
            effects.push(Effect::WantRoom { request, bytes, slots });
        }
    }

    pub(super) fn on_granted(
        &mut self,
        request: u64,
        offset: u64,
        len: u64,
        slots: Vec<u32>,
        effects: &mut Vec<Effect>,
    ) {
        self.slots.extend(slots);
        let assembly = self.part_tickets.remove(&request);
        let bytes = match assembly {
            Some(key) => self.assemblies[&key].bytes(),
            None => self.pulls[&self.tickets[&request]].bytes,
        };
        let needed = bytes.next_multiple_of(PAGE);
        assert!(needed <= len, "{len} bytes were granted for {bytes}");
        if needed < len {
            effects.push(Effect::ReturnRoom { offset: offset + needed, len: len - needed });
        }
        let slot = self.slots.pop();
        let slot = slot.expect("XFER-6: room comes with a slot");
        let room = Room { place: Place { slot, offset, len: bytes }, in_file: false };
        if let Some(key) = assembly {
            return self.room_for_assembly(key, room, effects);
        }
        let object = self.tickets.remove(&request).expect("room is granted to who asked for it");
        let fold = self.pulls[&object].fold.as_ref();
        let written = fold.and_then(|fold| fold.rest.as_ref()).map_or(0, |rest| rest.from);
        self.try_next(object, room, written, effects);
    }

    pub(super) fn on_file_granted(
        &mut self,
        request: u64,
        offset: u64,
        len: u64,
        slot: u32,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(key) = self.part_tickets.remove(&request) {
            let room = Room { place: Place { slot, offset, len }, in_file: true };
            return self.room_for_assembly(key, room, effects);
        }
        let object = self.tickets.remove(&request).expect("room is granted to who asked for it");
        assert_eq!(len, self.pulls[&object].bytes, "room in the file is as long as was asked");
        let room = Room { place: Place { slot, offset, len }, in_file: true };
        if let Some(fold) = &mut self.pull_mut(object).fold {
            // Another try would find the store as full.
            fold.unfit = true;
            let why = "there is no room for it in memory";
            self.pull_mut(object).why = why.to_string();
            self.end_relays(object, why, effects);
            return self.fail(object, room, effects);
        }
        self.try_next(object, room, 0, effects);
    }

    pub(super) fn on_denied(&mut self, request: u64, failure: Failure, effects: &mut Vec<Effect>) {
        if let Some(key) = self.part_tickets.remove(&request) {
            return self.assembly_failed(key, failure.text(), effects);
        }
        let object = self.tickets.remove(&request).expect("who is denied room asked for it");
        self.end_relays(object, "it has no room for it", effects);
        let pull = self.pulls.remove(&object).expect("it asked");
        match pull.fold {
            Some(fold) => self.fold_failed(object, *fold, failure.text(), false, effects),
            None => {
                self.note_in_vain(object, pull.turn);
                effects.push(Effect::PullDenied { object, failure });
            }
        }
        self.begin_next(effects);
    }

    /// The next of its sources goes on behind what is written; without one the pull has failed.
    pub(super) fn try_next(
        &mut self,
        object: ObjectId,
        room: Room,
        written: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.pulls[&object].sources.is_empty() {
            let relays = !self.serves_in(object, &[Serving::Relaying]).is_empty();
            if relays {
                self.tell_of_fold(object, effects);
            }
            self.end_relays(object, "it could not be fetched there either", effects);
            if !relays {
                return self.fail(object, room, effects);
            }
            let ticket = self.next_ticket(object);
            self.pull_mut(object).stage = Stage::Clearing { room, ticket };
            let slot = room.place.slot;
            return effects.push(Effect::Order(Order::Clear { ticket, slot }));
        }
        let ticket = self.next_ticket(object);
        let pull = self.pull_mut(object);
        let (from, turn) = (pull.sources.remove(0), pull.turn);
        pull.sources.retain(|node| *node != from);
        pull.stage = Stage::Receiving { room, ticket, from, written };
        pull.watch.begin(written);
        let place = room.place;
        // The next attempt has what this one was given.
        let rest = pull.fold.as_mut().and_then(|fold| fold.rest.take());
        let fold = pull.fold.as_deref().cloned();
        match fold {
            None => {
                effects.push(Effect::Order(Order::Receive { ticket, from, place, written }));
                let (to, offset, until) = (from, written, u64::MAX);
                effects.push(Effect::Fetch { to, ticket, object, offset, until, turn });
            }
            Some(Folding { op, operands, source: Some(source), .. }) => {
                let order = Order::FoldHere { ticket, place, written, op, source, operands, rest };
                effects.push(Effect::Order(order));
            }
            Some(Folding { op, operands, upstream, source: None, divide_by, ring, .. }) => {
                let order = Order::Fold {
                    ticket,
                    from,
                    place,
                    written,
                    op,
                    operands,
                    divide_by,
                    ring,
                    rest,
                };
                // All of a ring fold in the same one.
                let turn = turn + u64::from(ring.is_some());
                effects.push(Effect::Order(order));
                let (to, offset, until) = (from, written, u64::MAX);
                effects.push(Effect::Fetch { to, ticket, object: upstream, offset, until, turn });
            }
        }
        for (to, ticket) in self.serves_in(object, &[Serving::Waiting]) {
            self.find(to, ticket, effects);
        }
    }

    /// Nobody writes or reads in its room.
    fn fail(&mut self, object: ObjectId, room: Room, effects: &mut Vec<Effect>) {
        let pull = self.pulls.remove(&object).expect("the caller has seen it");
        self.return_room(room, effects);
        self.failed(object, pull, effects);
        self.begin_next(effects);
    }

    fn failed(&mut self, object: ObjectId, pull: Pull, effects: &mut Vec<Effect>) {
        match pull.fold {
            Some(fold) => {
                let again = !fold.unfit;
                self.fold_failed(object, *fold, pull.why, again, effects);
            }
            None => {
                self.note_in_vain(object, pull.turn);
                effects.push(Effect::PullFailed { object, why: pull.why, lost: pull.lost });
            }
        }
    }

    fn note_in_vain(&mut self, object: ObjectId, turn: u64) {
        if self.in_vain.len() == PULLS_IN_VAIN_KEPT {
            self.in_vain.pop_front();
        }
        self.in_vain.push_back((object, turn));
    }

    /// Who was told to fetch it from that pull may have asked already.
    pub(super) fn on_not_begun(&mut self, object: ObjectId, turn: u64, effects: &mut Vec<Effect>) {
        self.note_in_vain(object, turn);
        for (to, ticket) in self.serves_in(object, &[Serving::Asking]) {
            self.find(to, ticket, effects);
        }
    }

    pub(super) fn on_cleared(&mut self, ticket: u64, effects: &mut Vec<Effect>) {
        let object = self.tickets.remove(&ticket).expect("only what was begun is cleared");
        let Stage::Clearing { room, .. } = self.pulls[&object].stage else {
            panic!("{object} is {:?}", self.pulls[&object].stage);
        };
        self.fail(object, room, effects);
    }

    pub(super) fn on_received(&mut self, ticket: u64, generation: u32, effects: &mut Vec<Effect>) {
        let object = self.tickets.remove(&ticket).expect("only what was begun is received");
        let pull = self.pulls.remove(&object).expect("it was being received");
        let (Stage::Receiving { room, .. } | Stage::Stopping { room, .. }) = pull.stage else {
            panic!("{object} was received, and is {:?}", pull.stage);
        };
        let Place { slot, offset, len } = room.place;
        let location = Location { slot, generation, offset, len };
        match pull.fold {
            Some(fold) => self.folded(object, *fold, location, effects),
            None => effects.push(Effect::Seal { object, location }),
        }
        for key in self.serves_in(object, &[Serving::Relaying]) {
            self.serves.get_mut(&key).expect("it was just there").stage = Serving::Sending;
        }
        for (to, ticket) in self.serves_in(object, &[Serving::Waiting]) {
            self.find(to, ticket, effects);
        }
        self.begin_next(effects);
    }

    pub(super) fn on_stopped(
        &mut self,
        ticket: u64,
        (written, front): (u64, Option<Front>),
        (why, lost): (String, bool),
        effects: &mut Vec<Effect>,
    ) {
        if let Some(key) = self.part_tickets.remove(&ticket) {
            return self.part_stopped(key, ticket, why, effects);
        }
        let object = self.tickets.remove(&ticket).expect("only what was begun is stopped");
        let pull = self.pull_mut(object);
        let room = match pull.stage {
            Stage::Receiving { room, from, .. } => {
                pull.why = why;
                pull.lost |= lost;
                effects.extend(self.enough(from, ticket));
                room
            }
            Stage::Stopping { room, .. } => room,
            Stage::Queued
            | Stage::AskingRoom { .. }
            | Stage::Broken { .. }
            | Stage::Clearing { .. } => {
                panic!("XFER-1: ticket {ticket}")
            }
        };
        let pull = self.pull_mut(object);
        let fold = pull.fold.as_deref().filter(|fold| fold.can_go_on() && pull.lost);
        if let Some((fold, front)) = fold.zip(front) {
            let (to, rest) = (fold.asker, Rest { from: written, front });
            pull.stage = Stage::Broken { room, rest: rest.clone() };
            return effects.push(Effect::FoldBroke { to, made: object, rest });
        }
        self.try_next(object, room, written, effects);
    }

    pub(super) fn on_no_bytes(
        &mut self,
        from: NodeNumber,
        ticket: u64,
        why: String,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(key) = self.part_tickets.get(&ticket) {
            return self.no_part(*key, (from, ticket), &why, effects);
        }
        // It may have come to its end, or be tried elsewhere by now.
        let Some(object) = self.tickets.get(&ticket).copied() else { return };
        if matches!(self.pulls[&object].stage, Stage::Receiving { from: source, .. } if source == from)
        {
            let why = format!("node {}: {why}", from.hex());
            self.stop(object, (why, false), effects);
        }
    }

    pub(super) fn lose_sources(&mut self, dead: NodeNumber, effects: &mut Vec<Effect>) {
        let mut stops = Vec::new();
        for (object, pull) in &mut self.pulls {
            pull.lost |= pull.sources.contains(&dead);
            pull.sources.retain(|node| *node != dead);
            if matches!(pull.stage, Stage::Receiving { from, .. } if from == dead) {
                stops.push(*object);
            }
        }
        for object in stops {
            self.stop(object, (format!("node {} died", dead.hex()), true), effects);
        }
    }

    /// A source that is told so sends no more. This node itself need not be told.
    pub(super) fn enough(&self, to: NodeNumber, ticket: u64) -> Option<Effect> {
        (to != self.me).then_some(Effect::Enough { to, ticket })
    }

    /// Its attempt is over as soon as the shell has stopped.
    pub(super) fn stop(
        &mut self,
        object: ObjectId,
        (why, lost): (String, bool),
        effects: &mut Vec<Effect>,
    ) {
        let pull = self.pull_mut(object);
        let Stage::Receiving { room, ticket, .. } = pull.stage else {
            panic!("{object} is {:?}", pull.stage);
        };
        pull.why = why;
        pull.lost |= lost;
        pull.stage = Stage::Stopping { room, ticket };
        effects.push(Effect::Order(Order::StopReceive { ticket }));
    }

    /// What was pulled is gone from the arena: it is nobody's until it is given back.
    pub(super) fn on_reclaimed(&mut self, location: Location, effects: &mut Vec<Effect>) {
        let Location { slot, offset, len, .. } = location;
        self.return_room(Room { place: Place { slot, offset, len }, in_file: false }, effects);
    }

    pub(super) fn return_room(&mut self, room: Room, effects: &mut Vec<Effect>) {
        let Room { place: Place { slot, offset, len }, in_file } = room;
        self.slots.push(slot);
        let len = if in_file { len } else { len.next_multiple_of(PAGE) };
        effects.push(Effect::ReturnRoom { offset, len });
    }

    fn pull_mut(&mut self, object: ObjectId) -> &mut Pull {
        self.pulls.get_mut(&object).expect("XFER-2: who has a ticket has a pull")
    }
}
