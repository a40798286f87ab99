//! Proof that the checks can fail: the world breaks a promise on purpose, and some seed must show it.

use std::time::Duration;

use hoplo_core::control::coordinator::Probe;
use hoplo_wire::control::{PeerBody, Request, Response};

use super::network::{End, Message};
use super::plan::Plan;
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A process that does not answer is called dead: its lease is not waited for.
    SilenceIsDeath,
    /// The disk says that it has what it lost.
    LostRecord,
    /// The client asks again as if it were for the first time.
    ForgottenSeq,
    /// A subscriber does not get one of the changes.
    LostChange,
    /// A replica is told that more is stable before it than is.
    StableTooEarly,
    /// A replica is never told that what it waited for is due.
    ForgottenTick,
}

impl Sabotage {
    /// The seed gets the faults that it needs to show.
    pub fn suits(self, plan: &mut Plan) {
        let Some(faults) = &mut plan.faults else { return };
        match self {
            Self::SilenceIsDeath => {
                (faults.cuts, faults.pauses) = (true, true);
                faults.every = Duration::from_millis(300);
            }
            Self::LostRecord | Self::StableTooEarly => {
                faults.kills = true;
                faults.every = Duration::from_millis(100);
            }
            Self::ForgottenSeq | Self::LostChange | Self::ForgottenTick => {}
        }
    }
}

impl World {
    /// What becomes of a message, if anything does.
    pub fn sabotaged(&mut self, _from: End, to: End, mut message: Message) -> Option<Message> {
        let Some(sabotage) = self.sabotage else { return Some(message) };
        match (sabotage, &mut message) {
            (Sabotage::ForgottenSeq, Message::Request(Request::Update { seq, .. })) => {
                if let End::Process(_) = to
                    && *seq > 1
                    && self.rng.one_in(10)
                {
                    *seq -= 1;
                }
            }
            (Sabotage::LostChange, Message::Response(Response::Changes { changes, .. }))
                if self.rng.one_in(10) =>
            {
                let mut some = changes.clone().into_value();
                some.pop();
                *changes = some.into();
            }
            (Sabotage::StableTooEarly, Message::Peer(message)) => {
                if let PeerBody::Forward { stable, .. } = &mut message.body {
                    *stable += 2;
                }
            }
            _ => {}
        }
        Some(message)
    }

    pub fn sabotaged_probe(&mut self, found: Probe) -> Probe {
        match (self.sabotage, found) {
            (Some(Sabotage::SilenceIsDeath), Probe::Silent) => Probe::Refused,
            (_, found) => found,
        }
    }

    pub fn sabotage_forgets_ticks(&self) -> bool {
        self.sabotage == Some(Sabotage::ForgottenTick)
    }

    pub fn sabotage_loses_records(&mut self) -> bool {
        self.sabotage == Some(Sabotage::LostRecord) && self.rng.one_in(10)
    }
}
