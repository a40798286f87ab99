//! The turns of the head's carrier: it reads what nodes say, runs the judge, and hands on what is for the decider.

use hoplo_base::limits::{MEMBER_PROBE_WITHIN, MEMBER_WITNESS_WITHIN};
use hoplo_base::{Instant, NodeNumber};
use hoplo_core::members::{Effect as Judgement, Event as Judged, Found};

use super::plane::{Plane, number, place};
use super::turns::TURN_MAX;
use super::words::{Heard, Said, What};

impl Plane {
    pub(super) fn carries(&mut self, heard: Heard) {
        self.to_carrier.push_back(heard);
        self.carrier_goes();
    }

    fn carrier_goes(&mut self) {
        if self.carrier_turns_at.is_none() && !self.to_carrier.is_empty() {
            let at = self.carrier.free_at().max(self.now);
            self.carrier_turns_at = Some(at);
            self.at(at, What::Carrier);
        }
    }

    pub(super) fn carrier_turns(&mut self) {
        self.carrier_turns_at = None;
        let mut ns = 0;
        let mut said = Vec::new();
        let mut later = Vec::new();
        let some = self.to_carrier.len().min(TURN_MAX);
        for heard in self.to_carrier.drain(..some).collect::<Vec<_>>() {
            ns += self.carry(heard, &mut said, &mut later);
        }
        // Time passes when all that came was told.
        if self.to_carrier.is_empty()
            && self.judge.next_deadline().is_some_and(|at| at.0 <= self.now)
        {
            ns += self.judges("judge: a tick", Judged::Tick, &mut said, &mut later);
        }
        let done = self.carrier.takes(self.now, ns);
        for said in said {
            self.at(done + self.costs.hand_over, What::ToDecider(said));
        }
        for (after, what) in later {
            self.at(done + after, what);
        }
        if let Some(at) = self.judge.next_deadline()
            && self.judge_tick_at.is_none_or(|set| at.0 < set)
        {
            self.judge_tick_at = Some(at.0);
            self.at(at.0, What::ToCarrier(Heard::Ticks));
        }
        self.carrier_goes();
    }

    fn carry(&mut self, heard: Heard, said: &mut Vec<Said>, later: &mut Vec<(u64, What)>) -> u64 {
        let Costs3 { receive, send, hand_over } = self.costs3();
        match heard {
            Heard::Row { entry, version, index } => {
                let mut ns = hand_over;
                if entry.node != number(0) {
                    let (number, state) = (entry.node, entry.state.clone());
                    let row = Judged::Row { number, version, state, near: false };
                    ns += self.judges("judge: a row", row, said, later);
                }
                said.push(Said::Member { entry, index });
                ns
            }
            Heard::Stored { ticket, version } => {
                let stored = Judged::Stored { ticket, version };
                hand_over + self.judges("judge: a verdict is stored", stored, said, later)
            }
            Heard::Conflict { ticket } => {
                let conflict = Judged::Conflict { ticket };
                hand_over + self.judges("judge: a verdict is not stored", conflict, said, later)
            }
            Heard::Beat { from } => {
                let beat = Judged::Heartbeat { from, epoch: 1 };
                receive
                    + self.is_told_that_it_is_heard(from, send)
                    + self.judges("judge: a heartbeat", beat, said, later)
            }
            Heard::Closed { node } => {
                let closed = Judged::Closed { number: node };
                receive + self.judges("judge: a connection closed", closed, said, later)
            }
            Heard::Probed { ticket, found } => {
                let probed = Judged::Probed { ticket, found };
                receive + self.judges("judge: a probe is answered", probed, said, later)
            }
            Heard::Peer { from, message } => {
                said.push(Said::Peer { from, message });
                receive
            }
            Heard::Send => hand_over + send,
            Heard::Ticks => {
                self.judge_tick_at = None;
                0
            }
        }
    }

    fn costs3(&self) -> Costs3 {
        let send = self.costs.flush + self.costs.frame;
        Costs3 { receive: self.costs.receive, send, hand_over: self.costs.hand_over }
    }

    fn is_told_that_it_is_heard(&mut self, from: NodeNumber, send: u64) -> u64 {
        let now = self.now;
        let Some(member) = self.members.get_mut(&place(from)) else { return 0 };
        let every = hoplo_base::limits::MEMBER_HEARD.as_nanos() as u64;
        if member.heard_at.is_some_and(|at| now < at + every) {
            return 0;
        }
        member.heard_at = Some(now);
        send
    }

    fn judges(
        &mut self,
        what: &'static str,
        event: Judged,
        said: &mut Vec<Said>,
        later: &mut Vec<(u64, What)>,
    ) -> u64 {
        let (now, judge) = (Instant(self.now), &mut self.judge);
        let mut effects = Vec::new();
        let mut ns = self.meter.run(what, || {
            judge.handle(now, event, &mut effects);
            effects.len()
        });
        for effect in effects {
            match effect {
                Judgement::Probe { ticket, target, via } => {
                    self.probes += 1;
                    ns += match via {
                        // Its connection is made for this probe.
                        None => self.costs.handshake,
                        Some(_) => self.costs.flush + self.costs.frame,
                    };
                    let (found, after) = self.probe(target, via);
                    later
                        .extend(found.map(|found| {
                            (after, What::ToCarrier(Heard::Probed { ticket, found }))
                        }));
                }
                Judgement::Verdict { ticket, number, expected, why } => {
                    said.push(Said::Verdict { ticket, node: number, expected, why });
                }
                Judgement::Behind { .. } => {}
                Judgement::Tell { .. } => ns += self.costs.flush + self.costs.frame,
            }
        }
        ns
    }

    /// What a probe finds, and after how long.
    fn probe(&self, target: NodeNumber, via: Option<NodeNumber>) -> (Option<Found>, u64) {
        let (way, shake) = (self.costs.way, self.costs.handshake);
        let is_placed = self.rows.get(&target).is_some_and(|(entry, ..)| !entry.address.is_empty());
        let member = self.members.get(&place(target));
        if !is_placed {
            return (Some(Found::Silent), 0);
        }
        let prober_lives = |via: NodeNumber| self.members[&place(via)].lives;
        if via.is_some_and(|via| !prober_lives(via)) {
            return (None, 0);
        }
        let ways = if via.is_some() { 5 } else { 3 };
        match (member.map(|member| (member.lives, member.refuses)), via) {
            (Some((true, _)), _) => (Some(Found::Alive), way * ways + shake),
            (Some((false, true)) | None, _) => (Some(Found::Refused), way * (ways - 1)),
            (Some((false, false)), Some(_)) => {
                (Some(Found::Silent), way * 2 + MEMBER_WITNESS_WITHIN.as_nanos() as u64)
            }
            (Some((false, false)), None) => {
                (Some(Found::Silent), MEMBER_PROBE_WITHIN.as_nanos() as u64 + way)
            }
        }
    }
}

struct Costs3 {
    receive: u64,
    send: u64,
    hand_over: u64,
}
