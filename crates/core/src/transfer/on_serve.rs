//! Objects that other nodes ask for.

use hoplo_base::limits::{SERVE_TRIES_MAX, SERVES_MAX};
use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::Location;

use super::Transfer;
use super::event::{Effect, Order};

#[derive(Debug)]
pub(super) struct Serve {
    pub(super) object: ObjectId,
    pub(super) offset: u64,
    pub(super) stage: Stage,
    /// How often the directory was asked where it lies.
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The directory says where it lies.
    Asking,
    /// The shell has it pinned, or is about to.
    Sending,
}

impl Transfer {
    pub(super) fn on_asked(
        &mut self,
        from: NodeNumber,
        ticket: u64,
        object: ObjectId,
        offset: u64,
        effects: &mut Vec<Effect>,
    ) {
        let refuse = |why: &str| Effect::NoBytes { to: from, ticket, why: why.to_string() };
        if self.serves.contains_key(&(from, ticket)) {
            return effects.push(refuse("that ticket was used before"));
        }
        if self.serves.range((from, 0)..=(from, u64::MAX)).count() >= SERVES_MAX {
            return effects.push(refuse("too much is asked for at once"));
        }
        let serve = Serve { object, offset, stage: Stage::Asking, tries: 0 };
        self.serves.insert((from, ticket), serve);
        self.ask(from, ticket, effects);
    }

    /// Asks the directory once for all who wait for its word on the object.
    fn ask(&mut self, to: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let object = self.serves[&(to, ticket)].object;
        let is_asked = |serve: &&Serve| serve.object == object && serve.stage == Stage::Asking;
        let others = self.serves.values().filter(is_asked).filter(|serve| serve.tries > 0).count();
        let serve = self.serves.get_mut(&(to, ticket)).expect("it was just there");
        serve.stage = Stage::Asking;
        serve.tries += 1;
        if others == 0 {
            effects.push(Effect::Want { object });
        }
    }

    fn asking(&self, object: ObjectId) -> Vec<(NodeNumber, u64)> {
        let is_asked = |serve: &Serve| serve.object == object && serve.stage == Stage::Asking;
        self.serves.iter().filter(|(_, serve)| is_asked(serve)).map(|(key, _)| *key).collect()
    }

    pub(super) fn on_ready(
        &mut self,
        object: ObjectId,
        location: Location,
        effects: &mut Vec<Effect>,
    ) {
        for (to, ticket) in self.asking(object) {
            let serve = self.serves.get_mut(&(to, ticket)).expect("it was just there");
            let offset = serve.offset;
            if offset >= location.len {
                let why = format!("it has {} bytes, and none from byte {offset} on", location.len);
                self.serves.remove(&(to, ticket));
                effects.push(Effect::NoBytes { to, ticket, why });
                continue;
            }
            serve.stage = Stage::Sending;
            effects.push(Effect::Order(Order::Send { to, ticket, location, offset }));
        }
    }

    pub(super) fn on_unreadable(&mut self, object: ObjectId, why: &str, effects: &mut Vec<Effect>) {
        for (to, ticket) in self.asking(object) {
            self.serves.remove(&(to, ticket));
            effects.push(Effect::NoBytes { to, ticket, why: why.to_string() });
        }
    }

    pub(super) fn on_sent(&mut self, to: NodeNumber, ticket: u64) {
        // Else it was taken back meanwhile.
        self.serves.remove(&(to, ticket));
    }

    pub(super) fn on_send_failed(
        &mut self,
        to: NodeNumber,
        ticket: u64,
        moved: bool,
        why: String,
        effects: &mut Vec<Effect>,
    ) {
        let Some(serve) = self.serves.get(&(to, ticket)) else { return };
        if moved && serve.tries < SERVE_TRIES_MAX {
            return self.ask(to, ticket, effects);
        }
        self.serves.remove(&(to, ticket));
        effects.push(Effect::NoBytes { to, ticket, why });
    }

    pub(super) fn on_enough(&mut self, from: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let Some(serve) = self.serves.remove(&(from, ticket)) else { return };
        if serve.stage == Stage::Sending {
            effects.push(Effect::Order(Order::StopSend { to: from, ticket }));
        }
    }

    pub(super) fn lose_askers(&mut self, dead: NodeNumber, effects: &mut Vec<Effect>) {
        let keys = self.serves.range((dead, 0)..=(dead, u64::MAX));
        let tickets: Vec<u64> = keys.map(|((_, ticket), _)| *ticket).collect();
        for ticket in tickets {
            self.on_enough(dead, ticket, effects);
        }
    }
}
