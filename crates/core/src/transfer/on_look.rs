//! Who is to blame if bytes come slowly, and what is done then.

use hoplo_base::limits::{BULK_CHUNK_BYTES, PULL_LOOK};
use hoplo_base::{NodeNumber, ObjectId};

use super::Transfer;
use super::event::{Effect, Order};
use super::pull::{Pull, Stage};
use super::serve::Stage as Serving;

impl Transfer {
    pub(super) fn plan_look(&mut self) {
        if !self.pulls.values().any(Pull::is_watched) {
            self.look_at = None;
        } else if self.look_at.is_none() {
            self.look_at = Some(self.now + PULL_LOOK);
        }
    }

    pub(super) fn look(&mut self, effects: &mut Vec<Effect>) {
        if self.look_at.is_none_or(|at| self.now < at) {
            return;
        }
        self.look_at = None;
        for pull in self.pulls.values().filter(|pull| pull.is_watched()) {
            if let Stage::Receiving { ticket, .. } = pull.stage {
                effects.push(Effect::Order(Order::Look { ticket }));
            }
        }
    }

    pub(super) fn on_seen(&mut self, ticket: u64, written: u64, effects: &mut Vec<Effect>) {
        // It may have come to its end meanwhile.
        let Some(object) = self.tickets.get(&ticket).copied() else { return };
        let pull = self.pulls.get_mut(&object).expect("XFER-2: who has a ticket has a pull");
        let Stage::Receiving { from, .. } = pull.stage else { return };
        if !pull.watch.look(written) || pull.sources.is_empty() {
            return;
        }
        pull.watch.slow = 0;
        if std::mem::replace(&mut pull.watch.told, true) {
            let why = format!("node {} sends nothing, or too slowly", from.hex());
            effects.push(Effect::Enough { to: from, ticket });
            return self.stop(object, (why, false), effects);
        }
        effects.push(Effect::Slow { to: from, ticket });
    }

    pub(super) fn on_waits(&mut self, from: NodeNumber, ticket: u64) {
        let Some(object) = self.tickets.get(&ticket).copied() else { return };
        let pull = self.pulls.get_mut(&object).expect("XFER-2: who has a ticket has a pull");
        if matches!(pull.stage, Stage::Receiving { from: source, .. } if source == from) {
            pull.watch.told = false;
        }
    }

    /// Who asked here finds it slow.
    pub(super) fn on_slow(&mut self, from: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let Some(serve) = self.serves.get(&(from, ticket)) else { return };
        match serve.stage {
            Serving::Relaying => {
                effects.push(Effect::Order(Order::LookBehind { to: from, ticket }));
            }
            Serving::Sending => self.dismiss(from, ticket, effects),
            // Its word, or room, does not come.
            Serving::Asking | Serving::Expecting | Serving::Waiting => {
                self.dismiss(from, ticket, effects)
            }
        }
    }

    pub(super) fn on_behind(
        &mut self,
        to: NodeNumber,
        ticket: u64,
        bytes: u64,
        effects: &mut Vec<Effect>,
    ) {
        if !self.serves.contains_key(&(to, ticket)) {
            return;
        }
        if bytes > BULK_CHUNK_BYTES as u64 {
            return self.dismiss(to, ticket, effects);
        }
        effects.push(Effect::Waits { to, ticket });
    }

    /// It takes what is relayed to it far more slowly than that comes here.
    pub(super) fn on_lags(&mut self, to: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        let Some(serve) = self.serves.get(&(to, ticket)) else { return };
        let is_copied = self.pulls.get(&serve.object).is_some_and(|pull| pull.fold.is_none());
        if is_copied && serve.stage == Serving::Relaying {
            let (object, turn) = (serve.object, serve.turn);
            effects.push(Effect::Lags { object, node: to, turn });
        }
    }

    /// Who is in charge of what is fetched in that turn knows better sources.
    pub(super) fn on_now_from(
        &mut self,
        object: ObjectId,
        turn: u64,
        (now, mut sources): (u64, Vec<NodeNumber>),
        effects: &mut Vec<Effect>,
    ) {
        sources.retain(|node| *node != self.me);
        let is_it = |pull: &&Pull| {
            let ends = matches!(pull.stage, Stage::Clearing { .. });
            pull.turn == turn && pull.fold.is_none() && !ends
        };
        // Else it is whole, or was given up, and fetched anew.
        let Some(pull) = self.pulls.get(&object).filter(is_it).filter(|_| !sources.is_empty())
        else {
            return;
        };
        let under_way = match pull.stage {
            Stage::Receiving { from, ticket, .. } => Some((from, ticket)),
            Stage::Queued
            | Stage::AskingRoom { .. }
            | Stage::Stopping { .. }
            | Stage::Broken { .. }
            | Stage::Clearing { .. } => None,
        };
        if now != turn {
            // XFER-8: one of these may be what it is to fetch from.
            for (to, ticket) in self.serves_in(object, &[Serving::Waiting, Serving::Relaying]) {
                self.dismiss(to, ticket, effects);
            }
        }
        let goes_on = under_way.is_some_and(|(from, _)| from == sources[0]);
        if goes_on {
            sources.remove(0);
        }
        let pull = self.pulls.get_mut(&object).expect("it was just there");
        (pull.turn, pull.sources) = (now, sources);
        if let Some((from, ticket)) = under_way.filter(|_| !goes_on) {
            effects.push(Effect::Enough { to: from, ticket });
            let why = format!("node {} is not the best source any more", from.hex());
            self.stop(object, (why, false), effects);
        }
    }

    /// It may find a faster one.
    fn dismiss(&mut self, to: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        self.on_enough(to, ticket, effects);
        let why = "it is sent too slowly".to_string();
        effects.push(Effect::NoBytes { to, ticket, why });
    }
}
