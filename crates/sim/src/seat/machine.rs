//! One machine: it stands by, takes the seat, and is head, over the real machines.

use std::time::Duration;

use hoplo_base::Instant;
use hoplo_base::limits::{SEAT_BEAT, SEAT_LOOK};
use hoplo_core::control::SeatEntry;
use hoplo_core::control::seat::{Beat, Candidate, Hold, Seat, Step};
use hoplo_wire::control::Outcome;

use super::{Ask, Event, Happened, Role, Sabotage, Said, WITHIN, World, holder, machine_of};

impl World {
    fn sleeps(&mut self, at: usize, for_: Duration) {
        let life = self.machines[at].life;
        self.after(for_, Event::Wakes { at, life });
    }

    pub(super) fn wakes(&mut self, at: usize) {
        let ends = std::mem::take(&mut self.machines[at].ends);
        match std::mem::replace(&mut self.machines[at].role, Role::Down) {
            Role::Head(hold) if ends => self.beats(at, hold, true),
            Role::Ends(hold) => self.beats(at, hold, true),
            _ if ends => self.down(at),
            Role::Head(hold) => self.beats(at, hold, false),
            waits @ (Role::StandsBy(_) | Role::Takes(..)) => {
                self.machines[at].role = waits;
                self.ask(at, Ask::Read, WITHIN[0]);
            }
            Role::Down | Role::Puts { .. } => unreachable!("it does not sleep"),
        }
    }

    /// The call that it waited for has an answer, or none in time.
    pub(super) fn answered(&mut self, at: usize, said: Option<Said>) {
        match std::mem::replace(&mut self.machines[at].role, Role::Down) {
            Role::StandsBy(mut candidate) => match self.looked(at, &mut candidate, said, false) {
                Some(true) => self.takes(at, candidate),
                Some(false) | None => {
                    self.machines[at].role = Role::StandsBy(candidate);
                    self.sleeps(at, SEAT_LOOK);
                }
            },
            Role::Takes(mut candidate) => match self.looked(at, &mut candidate, said, true) {
                Some(_) => self.takes(at, candidate),
                None => self.stands_by(at),
            },
            Role::Puts { sent } => match said {
                Some(Said::Outcome(Outcome::Done { version })) => {
                    let (entry, _) = self.machines[at].wrote.take().expect("it was sent");
                    let hold = Hold::new(Seat { entry, version }, self.counts_from(sent));
                    self.machines[at].role = Role::Head(hold);
                    self.sleeps(at, SEAT_BEAT);
                }
                _ => self.stands_by(at),
            },
            Role::Head(hold) => self.heard(at, hold, said, false),
            Role::Ends(hold) => self.heard(at, hold, said, true),
            Role::Down => unreachable!("it waits for nothing"),
        }
    }

    fn stands_by(&mut self, at: usize) {
        self.machines[at].life += 1;
        self.machines[at].role = Role::StandsBy(Candidate::default());
        self.sleeps(at, SEAT_LOOK);
    }

    /// It has looked, and listens from now on.
    fn takes(&mut self, at: usize, mut candidate: Candidate) {
        match candidate.take(self.now) {
            Step::Look => {
                self.machines[at].role = Role::Takes(candidate);
                self.sleeps(at, SEAT_LOOK);
            }
            Step::Taken => self.stands_by(at),
            Step::Put { expected } => {
                let holder = Some(holder(at, self.machines[at].life));
                let entry = SeatEntry { holder, address: format!("{at}"), beats: 0 };
                self.machines[at].wrote = Some((entry.clone(), self.now));
                self.machines[at].role = Role::Puts { sent: self.now };
                self.ask(at, Ask::Put { entry, expected, sent: self.now }, WITHIN[0]);
            }
        }
    }

    /// Its role is taken out meanwhile: who takes the seat listens already, who stands by does not.
    fn looked(
        &mut self,
        at: usize,
        candidate: &mut Candidate,
        said: Option<Said>,
        listens: bool,
    ) -> Option<bool> {
        let Some(Said::Row(row)) = said else { return None };
        let seat = row.as_ref().and_then(Seat::of);
        let refused = seat.as_ref().is_some_and(|seat| {
            let there = machine_of(&seat.entry.address);
            let machine = &self.machines[there];
            let listens = if there == at { listens } else { machine.role.listens() };
            !listens && machine.cut_until <= self.now
        });
        if self.sabotage == Some(Sabotage::LateLooks)
            && candidate.version() == seat.as_ref().map_or(0, |it| it.version)
        {
            // It takes no notice of the time between.
            let between = (1..100)
                .rev()
                .map(|n| Instant(self.now.0.saturating_sub(SEAT_LOOK.as_nanos() as u64 * n)));
            for now in between {
                candidate.looked(now, seat.clone(), false);
            }
        }
        Some(candidate.looked(self.now, seat, refused))
    }

    fn counts_from(&self, sent: Instant) -> Instant {
        if self.sabotage == Some(Sabotage::FromItsAnswer) { self.now } else { sent }
    }

    fn beats(&mut self, at: usize, hold: Hold, ends: bool) {
        let ask = match hold.next(ends) {
            Beat::Read => Ask::Read,
            Beat::Write { entry, expected } => {
                self.machines[at].wrote = Some((entry.clone(), self.now));
                Ask::Put { entry, expected, sent: self.now }
            }
        };
        self.machines[at].role = if ends { Role::Ends(hold) } else { Role::Head(hold) };
        self.ask(at, ask, WITHIN[1]);
    }

    fn heard(&mut self, at: usize, mut hold: Hold, said: Option<Said>, ends: bool) {
        if let Some(Said::Row(row)) = &said {
            return match hold.has_read(row.as_ref()) {
                Ok(()) => self.beats(at, hold, ends),
                Err(_) => self.loses(at),
            };
        }
        let wrote = self.machines[at].wrote.take();
        let outcome = match &said {
            Some(Said::Outcome(outcome)) => Some(outcome),
            _ => None,
        };
        if let Some((entry, sent)) = wrote {
            let sent = self.counts_from(sent);
            hold.has_written(entry, sent, outcome);
            if ends {
                return self.down(at);
            }
            let done = matches!(outcome, Some(Outcome::Done { .. }));
            if !done && self.sabotage == Some(Sabotage::NoAnswerIsLoss) {
                return self.loses(at);
            }
        } else if ends {
            return self.down(at);
        }
        self.machines[at].role = Role::Head(hold);
        self.sleeps(at, SEAT_BEAT);
    }

    /// It is head no more.
    fn loses(&mut self, at: usize) {
        // SEAT-3
        let own = holder(at, self.machines[at].life);
        let is_own = self.row.as_ref().is_some_and(|(entry, _)| entry.holder == Some(own));
        assert!(!is_own, "machine {at} gave up a seat that is its own, at {:?}", self.now);
        self.counted(Happened::Lost);
        self.stands_by(at);
    }
}
