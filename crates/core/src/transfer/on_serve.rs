//! Objects that other nodes ask for.

use hoplo_base::limits::{SERVE_TRIES_MAX, SERVES_MAX};
use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::Location;

use super::Transfer;
use super::event::{Effect, Order};
use super::pull::Stage as Pulling;
use super::serve::{Serve, Stage};

impl Transfer {
    pub(super) fn on_asked(
        &mut self,
        (from, ticket): (NodeNumber, u64),
        serve: Serve,
        is_here: bool,
        effects: &mut Vec<Effect>,
    ) {
        let refuse = |why: &str| Effect::NoBytes { to: from, ticket, why: why.to_string() };
        if self.serves.contains_key(&(from, ticket)) {
            return effects.push(refuse("that ticket was used before"));
        }
        if self.serves.range((from, 0)..=(from, u64::MAX)).count() >= SERVES_MAX {
            return effects.push(refuse("too much is asked for at once"));
        }
        self.serves.insert((from, ticket), serve);
        if is_here {
            return self.ask(from, ticket, effects);
        }
        self.find(from, ticket, effects);
    }

    /// It is sent as it comes, if it is being pulled; else the directory is asked where it lies.
    pub(super) fn find(&mut self, to: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let serve = &self.serves[&(to, ticket)];
        let (object, offset) = (serve.object, serve.offset);
        let Some(pull) = self.pulls.get(&object) else {
            return self.find_folded(to, ticket, effects);
        };
        let stage = match &pull.stage {
            _any if offset >= pull.bytes => Err("it has not so many bytes"),
            // XFER-8
            _any if serve.turn <= pull.turn => Err("it does not have all of it yet"),
            Pulling::Queued => Err("other objects are fetched there first"),
            Pulling::Receiving { room, .. } | Pulling::Stopping { room, .. } if room.in_file => {
                Err("it is being written to the disk there")
            }
            Pulling::AskingRoom { .. } | Pulling::Stopping { .. } | Pulling::Broken { .. } => {
                Ok(Stage::Waiting)
            }
            Pulling::Receiving { room, .. } => {
                let place = room.place;
                effects.push(Effect::Order(Order::Relay { to, ticket, place, offset }));
                Ok(Stage::Relaying)
            }
            Pulling::Clearing { .. } => Err("it could not be fetched there either"),
        };
        match stage {
            Ok(stage) => {
                let serve = self.serves.get_mut(&(to, ticket)).expect("it was just there");
                serve.stage = stage;
                serve.tries += 1;
            }
            Err(why) => self.refuse(to, ticket, why, effects),
        }
    }

    /// It is no pull. A fold that is whole is here; of one that is to begin it is known who names it so.
    fn find_folded(&mut self, to: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let object = self.serves[&(to, ticket)].object;
        let became = self.became(object);
        let serve = self.serves.get_mut(&(to, ticket)).expect("it was just there");
        let offset = serve.offset;
        if let Some(whole) = self.wholes.get(&object) {
            let location = whole.location;
            if whole.in_ring {
                // Who waits for a stripe of it asked for that before this was whole.
                return self.refuse(to, ticket, "it has been sent", effects);
            }
            if offset >= location.len {
                return self.refuse(to, ticket, "it has not so many bytes", effects);
            }
            serve.stage = Stage::Sending;
            serve.tries += 1;
            let until = u64::MAX;
            let send = Order::Send { to, ticket, location, offset, until, made: true };
            return effects.push(Effect::Order(send));
        }
        match became {
            Some(Some(result)) => {
                serve.object = result;
                return self.ask(to, ticket, effects);
            }
            Some(None) => return self.refuse(to, ticket, "it is over", effects),
            None => {}
        }
        let owner = object.task.owner;
        if (owner.count(), owner.slot()) == (0, 0) {
            // A haul's.
            serve.stage = Stage::Expecting;
            return;
        }
        // Who asks was told of a turn in which this node was to fetch it, and could not. It may wait for its home to be told again, but not
        // on behalf of others: the home may be waiting for one of them (seed 5056217).
        let turn = serve.turn;
        if self.in_vain.iter().any(|(it, tried)| *it == object && *tried < turn) {
            return self.refuse(to, ticket, "it could not be fetched there either", effects);
        }
        self.ask(to, ticket, effects);
    }

    /// Asks the directory once for all who wait for its word on the object.
    fn ask(&mut self, to: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let object = self.serves[&(to, ticket)].object;
        let asking = self.serves_in(object, &[Stage::Asking]);
        let others = asking.iter().filter(|key| self.serves[*key].tries > 0).count();
        let serve = self.serves.get_mut(&(to, ticket)).expect("it was just there");
        serve.stage = Stage::Asking;
        serve.tries += 1;
        if to == object.task.owner.node() {
            effects.push(Effect::WantForHome { object });
        } else if others == 0 {
            effects.push(Effect::Want { object });
        }
    }

    fn refuse(&mut self, to: NodeNumber, ticket: u64, why: &str, effects: &mut Vec<Effect>) {
        self.serves.remove(&(to, ticket));
        effects.push(Effect::NoBytes { to, ticket, why: why.to_string() });
    }

    /// The pull that they wait for has no source or no room. (The shell is told by `Clear`.)
    pub(super) fn end_relays(&mut self, object: ObjectId, why: &str, effects: &mut Vec<Effect>) {
        for (to, ticket) in
            self.serves_in(object, &[Stage::Waiting, Stage::Relaying, Stage::Expecting])
        {
            self.refuse(to, ticket, why, effects);
        }
    }

    pub(super) fn serves_in(&self, object: ObjectId, stages: &[Stage]) -> Vec<(NodeNumber, u64)> {
        let is_one = |serve: &Serve| serve.object == object && stages.contains(&serve.stage);
        self.serves.iter().filter(|(_, serve)| is_one(serve)).map(|(key, _)| *key).collect()
    }

    pub(super) fn on_ready(
        &mut self,
        object: ObjectId,
        location: Location,
        effects: &mut Vec<Effect>,
    ) {
        self.found_operand(object, location, effects);
        for (to, ticket) in self.serves_in(object, &[Stage::Asking]) {
            let serve = self.serves.get_mut(&(to, ticket)).expect("it was just there");
            let (offset, until) = (serve.offset, serve.until);
            if offset >= location.len.min(until) {
                let why = format!("it has {} bytes, and none from byte {offset} on", location.len);
                self.refuse(to, ticket, &why, effects);
                continue;
            }
            serve.stage = Stage::Sending;
            let send = Order::Send { to, ticket, location, offset, until, made: false };
            effects.push(Effect::Order(send));
        }
    }

    pub(super) fn on_unreadable(&mut self, object: ObjectId, why: &str, effects: &mut Vec<Effect>) {
        self.no_operand(object, why, effects);
        for (to, ticket) in self.serves_in(object, &[Stage::Asking]) {
            self.refuse(to, ticket, why, effects);
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
            return self.find(to, ticket, effects);
        }
        self.refuse(to, ticket, &why, effects);
    }

    pub(super) fn on_enough(&mut self, from: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let Some(serve) = self.serves.remove(&(from, ticket)) else { return };
        if matches!(serve.stage, Stage::Sending | Stage::Relaying) {
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
