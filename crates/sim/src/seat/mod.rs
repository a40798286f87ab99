//! The seat of the head in virtual time: the real machines of those that wait and of the head (`hoplo_core::control::seat`), a row
//! with versions, and messages that are late, held and applied after nobody waits for them.
//!
//! Machines are killed, stopped for a while, cut off, ended in order and begun again; the store is away for everybody. Then all of that ends.
//!
//! In each moment one head at most is certain (SEAT-6). Nobody takes the seat of a head whose beats came in time (SEAT-2), and no head gives
//! up while the seat is its own (SEAT-3). In the end there is one head, and it stays. Each rule is taken away once, from outside of the
//! machines, and some seed must find it.
//!
//! Not here: the store (one row that answers in order stands for it; `control_model` and `control` have the real one), clocks that differ in
//! speed, a process that stops between asking whether it is certain and what it then writes.
//!
//! `machine`: what one of them does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use hoplo_base::Instant;
use hoplo_base::limits::{SEAT_LATE, SEAT_SILENT};
use hoplo_core::control::seat::{Candidate, Hold};
use hoplo_core::control::{Entry, SeatEntry};
use hoplo_wire::control::{Outcome, Row};

use crate::rng::Rng;

mod machine;

const FAULTS: Duration = Duration::from_secs(30);
/// From the last fault until there is a head: a call that is late, a silence, and looks.
const HEALED: Duration = Duration::from_secs(9);
const WATCHED: Duration = Duration::from_secs(20);
/// A call of one that waits, and of a head.
const WITHIN: [Duration; 2] = [Duration::from_secs(5), SEAT_SILENT];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// SEAT-2: looks that were late count as if they had been in time.
    LateLooks,
    /// SEAT-3: a beat without an answer is a seat that is lost.
    NoAnswerIsLoss,
    /// SEAT-6: a beat counts from when its answer came.
    FromItsAnswer,
}

#[derive(Debug)]
enum Ask {
    Read,
    Put { entry: SeatEntry, expected: u64, sent: Instant },
}

#[derive(Debug)]
enum Said {
    Row(Option<Row>),
    Outcome(Outcome),
}

#[derive(Debug)]
enum Event {
    /// It has slept.
    Wakes {
        at: usize,
        life: u64,
    },
    Arrives {
        from: usize,
        life: u64,
        call: u64,
        ask: Ask,
    },
    Answered {
        at: usize,
        life: u64,
        call: u64,
        said: Said,
    },
    /// The call's time is over.
    Expires {
        at: usize,
        life: u64,
        call: u64,
    },
    Fault,
    Begins {
        at: usize,
    },
}

enum Role {
    Down,
    StandsBy(Candidate),
    Takes(Candidate),
    /// Its write of the seat is under way, sent then.
    Puts {
        sent: Instant,
    },
    Head(Hold),
    /// It gives the seat back, and acts no more.
    Ends(Hold),
}

struct Machine {
    role: Role,
    life: u64,
    /// The call that it waits for.
    call: Option<u64>,
    /// What it wrote last, and when.
    wrote: Option<(SeatEntry, Instant)>,
    stopped_until: Instant,
    cut_until: Instant,
    ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happened {
    TakenAfterSilence,
    TakenAfterRefusal,
    GivenBack,
    Lost,
    NoAnswer,
    AppliedLate,
    TwoWantedIt,
}

pub struct World {
    rng: Rng,
    now: Instant,
    seq: u64,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    what: BTreeMap<u64, Event>,
    row: Option<(SeatEntry, u64)>,
    /// When it was written.
    written: Instant,
    store_away_since: Instant,
    store_away_until: Instant,
    machines: Vec<Machine>,
    faults: bool,
    pub counts: BTreeMap<Happened, u64>,
    sabotage: Option<Sabotage>,
}

impl World {
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut rng = Rng::new(seed);
        let count = 2 + rng.below(3) as usize;
        let machine = || Machine {
            role: Role::Down,
            life: 0,
            call: None,
            wrote: None,
            stopped_until: Instant::ZERO,
            cut_until: Instant::ZERO,
            ends: false,
        };
        let mut world = Self {
            rng,
            now: Instant::ZERO,
            seq: 0,
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            row: None,
            written: Instant::ZERO,
            store_away_since: Instant::ZERO,
            store_away_until: Instant::ZERO,
            machines: (0..count).map(|_| machine()).collect(),
            faults: true,
            counts: BTreeMap::new(),
            sabotage,
        };
        for at in 0..count {
            let after = Duration::from_millis(world.rng.below(300));
            world.after(after, Event::Begins { at });
        }
        world.after(Duration::from_millis(500), Event::Fault);
        world
    }

    fn counted(&mut self, what: Happened) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.seq += 1;
        self.what.insert(self.seq, event);
        self.events.push(Reverse((at, self.seq)));
    }

    /// Mostly a millisecond; while there are faults now and then most of a second.
    fn way(&mut self) -> Duration {
        let slow = self.faults && self.rng.one_in(60);
        Duration::from_micros(100 + self.rng.below(if slow { 900_000 } else { 2_000 }))
    }

    /// Panics with what does not hold.
    pub fn run(&mut self) {
        while self.now < Instant::ZERO + FAULTS {
            self.step();
        }
        self.faults = false;
        for at in 0..self.machines.len() {
            let machine = &mut self.machines[at];
            machine.stopped_until = machine.stopped_until.min(self.now);
            machine.cut_until = machine.cut_until.min(self.now);
            if matches!(machine.role, Role::Down) {
                self.after(Duration::from_millis(1), Event::Begins { at });
            }
        }
        self.store_away_until = self.store_away_until.min(self.now);
        let healed = self.now + HEALED;
        while self.now < healed {
            self.step();
        }
        let head = self.head();
        let watched = self.now + WATCHED;
        while self.now < watched {
            self.step();
            assert_eq!(
                self.head(),
                head,
                "nothing went wrong, and the head changed at {:?}",
                self.now
            );
        }
    }

    /// The only one, with its life.
    fn head(&self) -> (usize, u64) {
        let heads = self.machines.iter().enumerate();
        let heads: Vec<_> = heads
            .filter(|(_, machine)| matches!(machine.role, Role::Head(_)))
            .map(|(at, machine)| (at, machine.life))
            .collect();
        assert_eq!(
            heads.len(),
            1,
            "there is one head, all being well: {heads:?} at {:?}",
            self.now
        );
        heads[0]
    }

    fn step(&mut self) {
        let Reverse((at, seq)) = self.events.pop().expect("somebody always waits for something");
        self.now = self.now.max(at);
        let event = self.what.remove(&seq).expect("pushed once");
        match event {
            Event::Fault => self.fault(),
            Event::Begins { at } => self.begins(at),
            Event::Arrives { from, life, call, ask } => self.arrives(from, life, call, ask),
            Event::Wakes { at, .. } | Event::Answered { at, .. } | Event::Expires { at, .. }
                if self.machines[at].stopped_until > self.now =>
            {
                // In any order: it finds all of it when it goes on.
                let until = self.machines[at].stopped_until;
                let jitter = Duration::from_nanos(self.rng.below(1_000));
                self.at(until + jitter, event);
            }
            Event::Wakes { at, life } if self.sleeps_still(at, life) => self.wakes(at),
            Event::Answered { at, life, call, said } if self.waits(at, life, call) => {
                self.machines[at].call = None;
                self.answered(at, Some(said));
            }
            Event::Expires { at, life, call } if self.waits(at, life, call) => {
                self.machines[at].call = None;
                self.counted(Happened::NoAnswer);
                self.answered(at, None);
            }
            Event::Wakes { .. } | Event::Answered { .. } | Event::Expires { .. } => {}
        }
        // SEAT-6
        let certain = self.machines.iter().filter(|machine| match &machine.role {
            Role::Head(hold) => hold.is_certain(self.now),
            _ => false,
        });
        assert!(certain.count() <= 1, "two heads are certain at {:?}", self.now);
    }

    /// It may have been woken since by the end of a connection, and ask the store.
    fn sleeps_still(&self, at: usize, life: u64) -> bool {
        self.machines[at].life == life && self.machines[at].call.is_none()
    }

    fn waits(&self, at: usize, life: u64, call: u64) -> bool {
        self.machines[at].life == life && self.machines[at].call == Some(call)
    }

    // --------------------------------------------------------------------------- what goes wrong

    fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let at = self.rng.below(self.machines.len() as u64) as usize;
        let long = self.now + Duration::from_millis(self.rng.below(4_000));
        match self.rng.below(5) {
            0 => self.down(at),
            1 => self.machines[at].ends = true,
            2 => self.machines[at].stopped_until = long,
            3 => self.machines[at].cut_until = long,
            _ => {
                if self.store_away_until <= self.now {
                    self.store_away_since = self.now;
                }
                self.store_away_until = self.store_away_until.max(long);
            }
        }
        let next = Duration::from_millis(200 + self.rng.below(4_000));
        self.after(next, Event::Fault);
    }

    fn down(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        (machine.role, machine.call, machine.ends) = (Role::Down, None, false);
        machine.life += 1;
        machine.stopped_until = self.now;
        self.connections_end();
        let back = Duration::from_millis(self.rng.below(3_000));
        self.after(back, Event::Begins { at });
    }

    /// Who waits for the seat has one to its holder, and looks when that ends.
    fn connections_end(&mut self) {
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            let waits = matches!(machine.role, Role::StandsBy(_) | Role::Takes(..));
            if waits && machine.cut_until <= self.now {
                let (life, way) = (machine.life, self.way());
                self.after(way, Event::Wakes { at, life });
            }
        }
    }

    fn begins(&mut self, at: usize) {
        if matches!(self.machines[at].role, Role::Down) {
            self.machines[at].life += 1;
            self.machines[at].role = Role::Takes(Candidate::default());
            self.ask(at, Ask::Read, WITHIN[0]);
        }
    }

    // --------------------------------------------------------------------------- the store

    fn ask(&mut self, at: usize, ask: Ask, within: Duration) {
        self.seq += 1;
        let (call, life) = (self.seq, self.machines[at].life);
        self.machines[at].call = Some(call);
        self.after(within, Event::Expires { at, life, call });
        let way = self.way();
        self.after(way, Event::Arrives { from: at, life, call, ask });
    }

    fn arrives(&mut self, from: usize, life: u64, call: u64, ask: Ask) {
        let held = self.machines[from].cut_until.max(self.store_away_until);
        if held > self.now {
            // A connection says it again when it can.
            let jitter = Duration::from_micros(self.rng.below(50_000));
            return self.at(held + jitter, Event::Arrives { from, life, call, ask });
        }
        let said = match ask {
            Ask::Read => Said::Row(self.row.as_ref().map(|(entry, version)| row(entry, *version))),
            Ask::Put { entry, expected, sent } => {
                let found = self.row.as_ref().map_or(0, |(_, version)| *version);
                Said::Outcome(match found == expected {
                    true => {
                        if !self.waits(from, life, call) {
                            self.counted(Happened::AppliedLate);
                        }
                        self.writes(entry, expected + 1, sent);
                        Outcome::Done { version: expected + 1 }
                    }
                    false => {
                        self.counted(Happened::TwoWantedIt);
                        Outcome::Conflict { found }
                    }
                })
            }
        };
        let back = self.machines[from].cut_until.max(self.now) + self.way();
        self.at(back, Event::Answered { at: from, life, call, said });
    }

    fn writes(&mut self, entry: SeatEntry, version: u64, sent: Instant) {
        let before = self.row.as_ref().and_then(|(before, _)| before.holder.map(|of| (of, before)));
        match (before, entry.holder) {
            (Some((before, row)), Some(now)) if before != now => {
                let at = machine_of(&row.address);
                let lives = before == holder(at, self.machines[at].life)
                    && !matches!(self.machines[at].role, Role::Down | Role::Ends(_));
                if lives {
                    // SEAT-2: while the store was away nobody could beat.
                    let away = self.store_away_since.max(self.written);
                    let away = self.store_away_until.min(sent).since(away);
                    let silent = sent.since(self.written).saturating_sub(away);
                    assert!(
                        silent >= SEAT_SILENT - SEAT_LATE,
                        "machine {at} lost its seat when it could have been silent for {silent:?} only, at {:?}",
                        self.now
                    );
                    self.counted(Happened::TakenAfterSilence);
                } else {
                    self.counted(Happened::TakenAfterRefusal);
                }
            }
            (Some(_), None) => self.counted(Happened::GivenBack),
            _ => {}
        }
        (self.row, self.written) = (Some((entry, version)), self.now);
    }
}

impl Role {
    fn listens(&self) -> bool {
        matches!(self, Role::Takes(..) | Role::Puts { .. } | Role::Head(_))
    }
}

fn row(entry: &SeatEntry, version: u64) -> Row {
    Row { value: entry.to_value(), version, index: version, finished: false }
}

fn holder(at: usize, life: u64) -> u64 {
    life * 100 + at as u64
}

fn machine_of(address: &str) -> usize {
    address.parse().expect("its number")
}
