//! The *seat*: one row of the store that says who is the head, where several machines may be.
//!
//! ```text
//!   head      writes the row every SEAT_BEAT, each time under the version that it has           Hold
//!   stand-by  looks every SEAT_LOOK, and at once when its connection to the head ends; it        Candidate
//!             takes the seat under the version that it saw, when
//!                 nobody has it: its holder ended, and gave it back
//!                 or its holder's port refuses: that process is gone, since it listened before it took the seat
//!                 or it did not change for SEAT_SILENT
//! ```
//! The store alone decides: who writes the row under its version has the seat. A head that finds somebody else in it is head no more, and
//! ends. While too few control nodes answer, nobody can write: then nobody becomes head, and the head goes on.
//!
//! # Invariants
//! - SEAT-1: of those that want the seat at a time, one gets it; its holder finds out with its next beat that it lost it.
//! - SEAT-2: silence counts only between looks that the store answered, none of them late: else it may be we that were not there.
//! - SEAT-3: a beat that got no answer may have been written: what is there is read before the next one.
//! - SEAT-4: beats come from a thread of their own: a busy head is not a dead head. (The shell's, `hoplo_control::net::seat`.)
//! - SEAT-5: a head that is cut off from the store and from nodes at a time declares none of them dead: it is not [certain](Hold::is_certain) any
//!   more when it finds them silent. What it wrote then would come to the store when the cut is healed, before it hears that it is head no more.
//! - SEAT-6: of all heads one is certain at a time. So what counts is when a beat was sent, not when its answer came, also of the first one.
//! - SEAT-7: while a backup is put back nobody has the seat, and nobody takes it, however long that stands still: a head would begin with half of the rows.
//!
//! `crates/sim/src/seat` tries all of this with candidates that are cut off, stopped and killed.

use hoplo_base::Instant;
use hoplo_base::limits::{SEAT_CERTAIN, SEAT_LATE, SEAT_SILENT};
use hoplo_wire::control::{Outcome, Row};

use super::rows::{Entry, SeatEntry};

/// What it is now, under which version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub entry: SeatEntry,
    pub version: u64,
}

impl Seat {
    pub fn of(row: &Row) -> Option<Self> {
        Some(Self { entry: SeatEntry::from_row(row).ok()?, version: row.version })
    }
}

/// Decides whether a seat may be taken, by one look after the other.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// Which version it has had, and since when, as far as we looked.
    seen: Option<(u64, Instant)>,
    looked: Option<Instant>,
}

impl Watch {
    fn is_free(&mut self, now: Instant, seat: Option<&Seat>, refused: bool) -> bool {
        let late = self.looked.is_none_or(|at| now.since(at) > SEAT_LATE);
        self.looked = Some(now);
        let Some(seat) = seat.filter(|seat| seat.entry.holder.is_some()) else { return true };
        if seat.entry.is_restored() {
            // SEAT-7
            return false;
        }
        let silent = match self.seen {
            Some((version, since)) if version == seat.version && !late => {
                now.since(since) >= SEAT_SILENT
            }
            Some(_) | None => {
                self.seen = Some((seat.version, now));
                false
            }
        };
        silent || refused
    }
}

/// A program that wants the seat.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    watch: Watch,
    seat: Option<Seat>,
    free: bool,
    /// It takes the seat as soon as it is free, and gives up at that time.
    taking: Option<Taking>,
}

#[derive(Clone, Copy, Debug)]
struct Taking {
    known: u64,
    until: Instant,
}

/// What a candidate that wants the seat now does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Looks again, `SEAT_LOOK` later or when the head's connection ends.
    Look,
    /// Writes the row under this version.
    Put { expected: u64 },
    /// Somebody else has it.
    Taken,
}

impl Candidate {
    /// What a look found, begun at that time: whether it may be taken. `refused`: nobody listens where its holder did.
    pub fn looked(&mut self, now: Instant, seat: Option<Seat>, refused: bool) -> bool {
        self.free = self.watch.is_free(now, seat.as_ref(), refused);
        self.seat = seat;
        self.free
    }

    /// After a look. Clear after a while: its holder's next beat tells.
    pub fn take(&mut self, now: Instant) -> Step {
        let version = self.version();
        let begin = || Taking { known: version, until: now + SEAT_SILENT + SEAT_LATE };
        let taking = self.taking.take().unwrap_or_else(begin);
        if self.free {
            return Step::Put { expected: version };
        }
        match version != taking.known || now > taking.until {
            true => Step::Taken,
            false => {
                self.taking = Some(taking);
                Step::Look
            }
        }
    }

    /// Whether it may be taken, as of the last look.
    pub fn is_free(&self) -> bool {
        self.free
    }

    /// Where the head is, as of the last look.
    pub fn held_at(&self) -> Option<&str> {
        let held = self.seat.as_ref().filter(|seat| seat.entry.holder.is_some());
        held.map(|seat| seat.entry.address.as_str())
    }

    /// SEAT-7, as of the last look.
    pub fn is_restored(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.entry.is_restored())
    }

    /// The version of the seat, as of the last look.
    pub fn version(&self) -> u64 {
        self.seat.as_ref().map_or(0, |seat| seat.version)
    }
}

/// A head's hold of its seat.
#[derive(Clone, Debug)]
pub struct Hold {
    seat: Seat,
    /// The store has answered what was said last.
    answered: bool,
    /// When the last beat was sent that was written.
    beaten: Instant,
}

/// What a head says next to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    Read,
    Write { entry: SeatEntry, expected: u64 },
}

/// Why a head is none any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the head is at {address} now: this one wrote nothing for too long")]
    Taken { address: String },
    #[error("the control nodes know nothing of this head any more")]
    Unknown,
}

impl Hold {
    /// `seat` was taken by a write that was sent then.
    pub fn new(seat: Seat, sent: Instant) -> Self {
        Self { seat, answered: true, beaten: sent }
    }

    /// The next beat; with `ends` the last one, by which the seat is given back.
    pub fn next(&self, ends: bool) -> Beat {
        // SEAT-3
        if !self.answered {
            return Beat::Read;
        }
        let Seat { entry, version } = &self.seat;
        let holder = entry.holder.filter(|_| !ends);
        let entry = SeatEntry { holder, beats: entry.beats + 1, ..entry.clone() };
        Beat::Write { entry, expected: *version }
    }

    /// What a read found.
    pub fn has_read(&mut self, row: Option<&Row>) -> Result<(), Lost> {
        match row.and_then(Seat::of) {
            Some(found) if found.entry.holder == self.seat.entry.holder => {
                (self.seat, self.answered) = (found, true);
                Ok(())
            }
            Some(Seat { entry, .. }) if entry.holder.is_some() && !entry.is_restored() => {
                Err(Lost::Taken { address: entry.address })
            }
            Some(_) | None => Err(Lost::Unknown),
        }
    }

    /// What became of a write that was sent then; `None`: no answer came in time.
    pub fn has_written(&mut self, entry: SeatEntry, sent: Instant, outcome: Option<&Outcome>) {
        self.answered = match outcome {
            Some(Outcome::Done { version }) => {
                (self.seat, self.beaten) = (Seat { entry, version: *version }, sent);
                true
            }
            Some(Outcome::Conflict { .. }) | None => false,
        };
    }

    /// SEAT-5, SEAT-6
    pub fn is_certain(&self, now: Instant) -> bool {
        now.since(self.beaten) < SEAT_CERTAIN
    }
}

#[cfg(test)]
mod tests {
    use hoplo_base::limits::SEAT_LOOK;

    use super::*;

    fn seat(version: u64) -> Seat {
        let entry = SeatEntry { holder: Some(7), address: "a:1".to_string(), beats: version };
        Seat { entry, version }
    }

    /// Whether it is free at each look, `SEAT_LOOK` after the one before.
    fn looks(seats: impl IntoIterator<Item = (Option<Seat>, bool)>) -> Vec<bool> {
        let (mut candidate, mut now) = (Candidate::default(), Instant::ZERO);
        let mut look = |(seat, refused): (Option<Seat>, bool)| {
            now = now + SEAT_LOOK;
            candidate.looked(now, seat, refused)
        };
        seats.into_iter().map(&mut look).collect()
    }

    #[test]
    fn a_seat_that_nobody_has_is_free() {
        let given_back = Seat { entry: SeatEntry { holder: None, ..seat(3).entry }, version: 3 };
        assert_eq!(looks([(None, false), (Some(given_back), false)]), [true, true]);
    }

    #[test]
    fn a_head_that_beats_keeps_it_and_one_that_does_not_loses_it() {
        let beats = (0..40).map(|n| (Some(seat(n / 3)), false));
        assert!(looks(beats).into_iter().all(|free| !free));
        let silent = looks((0..14).map(|_| (Some(seat(1)), false)));
        assert_eq!(silent.iter().position(|free| *free), Some(10), "after a second");
    }

    #[test]
    fn a_head_whose_port_refuses_is_gone_also_if_it_beat_since_the_look_before() {
        assert_eq!(looks([(Some(seat(1)), true)]), [true]);
        assert_eq!(looks([(Some(seat(1)), false), (Some(seat(2)), true)]), [false, true]);
    }

    /// SEAT-2
    #[test]
    fn who_did_not_look_for_long_takes_no_silence_for_a_death() {
        let (mut candidate, start) = (Candidate::default(), Instant::ZERO);
        assert!(!candidate.looked(start, Some(seat(1)), false));
        let late = start + SEAT_SILENT * 3;
        assert!(!candidate.looked(late, Some(seat(1)), false));
        let mut now = late;
        while now.since(late) < SEAT_SILENT {
            assert!(!candidate.looked(now, Some(seat(1)), false));
            now = now + SEAT_LOOK;
        }
        assert!(candidate.looked(now, Some(seat(1)), false));
    }

    /// SEAT-7
    #[test]
    fn a_backup_that_is_put_back_lets_nobody_take_it() {
        let entry = SeatEntry { holder: Some(SeatEntry::RESTORE), ..seat(1).entry };
        let looked =
            looks((0..100).map(|_| (Some(Seat { entry: entry.clone(), version: 1 }), true)));
        assert!(looked.into_iter().all(|free| !free));
    }

    #[test]
    fn a_beat_without_an_answer_is_looked_up_and_one_that_was_written_is_no_loss() {
        let mut hold = Hold::new(seat(1), Instant::ZERO);
        let Beat::Write { entry, expected: 1 } = hold.next(false) else { panic!("it writes") };
        hold.has_written(entry.clone(), Instant::ZERO, None);
        assert_eq!(hold.next(false), Beat::Read);
        let row = Row { value: entry.to_value(), version: 2, index: 9, finished: false };
        assert_eq!(hold.has_read(Some(&row)), Ok(()));
        assert!(matches!(hold.next(false), Beat::Write { expected: 2, .. }));
    }
}
