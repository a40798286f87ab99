//! Who is to blame if bytes come slowly, and what is done then.

use hoplo_base::NodeNumber;
use hoplo_base::limits::{BULK_CHUNK_BYTES, PULL_LOOK};

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

    /// It may find a faster one.
    fn dismiss(&mut self, to: NodeNumber, ticket: u64, effects: &mut Vec<Effect>) {
        self.on_enough(to, ticket, effects);
        let why = "it is sent too slowly".to_string();
        effects.push(Effect::NoBytes { to, ticket, why });
    }
}
