//! Environments: which Pythons of runtime environments this node has, makes, or has given up.
//!
//! ```text
//!             Wanted              a place is free            Made
//!  (nothing) -------> queued ------------------> making -------------> made --unused for long--> (nothing)
//!                                                  |  time is over       |  a worker did not start in it
//!                                                  v                     v
//!                        (nothing) <-- Failed -- stopping             doubted --Wanted--> queued
//! ```
//! A program of ours, the *builder*, makes a Python (a virtual environment and `pip install`), or looks whether one
//! that the user names will do. It runs beside the daemon, which hears how it ends. What it makes lies in a cache
//! that other daemons of the user share, and which the builder locks and cleans (`python/hoplo/_build_environment.py`).
//!
//! **Who decides what.** The scheduler says that somebody has room for a worker in it (`Wanted`), and is told when the
//! worker can start (`Made`) or never will (`Fail`). How long the builder may take is the user's word (`patience_s`).
//! What failed is forgotten: the next one who wants it has it tried again, and nobody else has.
//!
//! **In use.** As long as an environment is `made` or `doubted` here, the shell keeps it from being removed by others who
//! need the disk. It is let go when nobody waits for it and no worker runs in it for `ENVIRONMENT_IDLE`. A worker that does not
//! start may mean that somebody removed files of it: then the builder looks again, at the next want.
//!
//! # Invariants
//! - ENV-1: at most `ENVIRONMENTS_MAKING_MAX` builders run, and none waits for a place while one is free.
//! - ENV-2: a ticket is of one builder; what an earlier one says is heard by nobody.
//! - ENV-3: a builder whose time is over is stopped once, and ends as one that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::Instant;
use hoplo_base::limits::{ENVIRONMENT_IDLE, ENVIRONMENT_LOOK, ENVIRONMENTS_MAKING_MAX};
use hoplo_wire::node::PythonEnv;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Wanted {
        python: PythonEnv,
    },
    Made {
        ticket: u64,
    },
    /// `why`: what the builder said last.
    Failed {
        ticket: u64,
        why: String,
    },
    /// A worker did not start in it.
    Doubted {
        python: PythonEnv,
    },
    /// The answer to `Look`.
    InUse {
        pythons: BTreeSet<PythonEnv>,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a builder: answered by `Made` or `Failed`.
    Make { ticket: u64, python: PythonEnv },
    /// End the builder, with what it started: it answers `Failed`.
    Stop { ticket: u64 },
    /// Workers can start in it.
    Made { python: PythonEnv },
    /// No worker starts in it before somebody wants it again.
    Gone { python: PythonEnv },
    /// Who waits for it is to hear why there is none.
    Fail { python: PythonEnv, why: String },
    /// Say which are used: `InUse`.
    Look,
    /// Others may remove it.
    LetGo { python: PythonEnv },
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// By the order in which they came.
    Queued {
        turn: u64,
    },
    /// `until`: absent, as long as it takes, or it was stopped already.
    Making {
        ticket: u64,
        until: Option<Instant>,
        stopped: bool,
    },
    /// `used`: when it last was, as far as we looked.
    Made {
        used: Instant,
    },
    Doubted {
        used: Instant,
    },
}

/// The machine.
#[derive(Debug, Default)]
pub struct Environments {
    states: BTreeMap<PythonEnv, State>,
    last_ticket: u64,
    last_turn: u64,
    /// When it is looked at which are used.
    look_at: Option<Instant>,
}

impl Environments {
    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Wanted { python } => self.on_wanted(now, python, effects),
            Event::Made { ticket } => {
                let Some(python) = self.of_ticket(ticket) else { return };
                self.states.insert(python.clone(), State::Made { used: now });
                self.look_at.get_or_insert(now + ENVIRONMENT_LOOK);
                effects.push(Effect::Made { python });
            }
            Event::Failed { ticket, why } => {
                let Some(python) = self.of_ticket(ticket) else { return };
                let Some(State::Making { stopped, .. }) = self.states.remove(&python) else {
                    unreachable!("ENV-2: it was looked up by its ticket");
                };
                let why = if stopped { too_long(&python, &why) } else { why };
                effects.push(Effect::LetGo { python: python.clone() });
                effects.push(Effect::Fail { python, why });
            }
            Event::Doubted { python } => {
                if let Some(State::Made { used }) = self.states.get(&python) {
                    let used = *used;
                    self.states.insert(python.clone(), State::Doubted { used });
                    effects.push(Effect::Gone { python });
                }
            }
            Event::InUse { pythons } => self.on_in_use(now, &pythons, effects),
            Event::Tick => {}
        }
        self.stop_late(now, effects);
        self.begin(now, effects);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = Some(now + ENVIRONMENT_LOOK);
            effects.push(Effect::Look);
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let until = self.states.values().filter_map(|state| match state {
            State::Making { until, .. } => *until,
            State::Queued { .. } | State::Made { .. } | State::Doubted { .. } => None,
        });
        until.chain(self.look_at).min()
    }

    /// Asserts the invariants of the module's doc.
    pub fn check(&self) {
        let queued = self.states.values().any(|state| matches!(state, State::Queued { .. }));
        let making = self.making();
        assert!(making <= ENVIRONMENTS_MAKING_MAX, "ENV-1");
        assert!(!queued || making == ENVIRONMENTS_MAKING_MAX, "ENV-1");
        let mut tickets = BTreeSet::new();
        for (python, state) in &self.states {
            match state {
                State::Making { ticket, until, stopped } => {
                    assert!(tickets.insert(*ticket), "ENV-2: {}", python.what);
                    assert!(!stopped || until.is_none(), "ENV-3: {}", python.what);
                }
                State::Made { .. } | State::Doubted { .. } => {
                    assert!(self.look_at.is_some(), "nobody will look at {}", python.what);
                }
                State::Queued { .. } => {}
            }
        }
    }

    fn on_wanted(&mut self, now: Instant, python: PythonEnv, effects: &mut Vec<Effect>) {
        match self.states.get_mut(&python) {
            Some(State::Queued { .. } | State::Making { .. }) => {}
            Some(State::Made { used }) => {
                // It was made while the word that it is wanted was on its way.
                *used = now;
                effects.push(Effect::Made { python });
            }
            Some(State::Doubted { .. }) | None => {
                self.last_turn += 1;
                self.states.insert(python, State::Queued { turn: self.last_turn });
            }
        }
    }

    fn on_in_use(
        &mut self,
        now: Instant,
        pythons: &BTreeSet<PythonEnv>,
        effects: &mut Vec<Effect>,
    ) {
        let mut unused = Vec::new();
        let mut kept = false;
        for (python, state) in &mut self.states {
            let used = match state {
                State::Made { used } | State::Doubted { used } => used,
                State::Queued { .. } | State::Making { .. } => continue,
            };
            if pythons.contains(python) {
                *used = now;
            }
            match now.since(*used) >= ENVIRONMENT_IDLE {
                true => unused.push(python.clone()),
                false => kept = true,
            }
        }
        for python in unused {
            self.states.remove(&python);
            effects.push(Effect::Gone { python: python.clone() });
            effects.push(Effect::LetGo { python });
        }
        self.look_at = kept.then(|| now + ENVIRONMENT_LOOK);
    }

    /// Builders whose time is over.
    fn stop_late(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for state in self.states.values_mut() {
            if let State::Making { ticket, until, stopped } = state
                && until.is_some_and(|until| until <= now)
            {
                (*until, *stopped) = (None, true);
                effects.push(Effect::Stop { ticket: *ticket });
            }
        }
    }

    /// As many as there are places for, in the order in which they came.
    fn begin(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while self.making() < ENVIRONMENTS_MAKING_MAX {
            let queued = self.states.iter().filter_map(|(python, state)| match state {
                State::Queued { turn } => Some((*turn, python.clone())),
                State::Making { .. } | State::Made { .. } | State::Doubted { .. } => None,
            });
            let Some((_, python)) = queued.min() else { return };
            self.last_ticket += 1;
            let ticket = self.last_ticket;
            let patience = Duration::from_secs(u64::from(python.patience_s));
            let until = (!patience.is_zero()).then(|| now + patience);
            self.states.insert(python.clone(), State::Making { ticket, until, stopped: false });
            effects.push(Effect::Make { ticket, python });
        }
    }

    fn making(&self) -> usize {
        self.states.values().filter(|state| matches!(state, State::Making { .. })).count()
    }

    fn of_ticket(&self, wanted: u64) -> Option<PythonEnv> {
        let mut making = self.states.iter();
        let is_it =
            |state: &State| matches!(state, State::Making { ticket, .. } if *ticket == wanted);
        making.find(|(_, state)| is_it(state)).map(|(python, _)| python.clone())
    }
}

fn too_long(python: &PythonEnv, why: &str) -> String {
    let seconds = python.patience_s;
    let more = if why.is_empty() { String::new() } else { format!("; it said last:\n{why}") };
    format!(
        "it took longer than {seconds} s and was stopped: give it more time with \
         runtime_env={{'config': {{'setup_timeout_seconds': {}}}}}{more}",
        2 * u64::from(seconds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(what: &str) -> PythonEnv {
        PythonEnv {
            spec: format!("{{\"pip\":\"{what}\"}}"),
            what: what.to_string(),
            patience_s: 10,
        }
    }

    #[derive(Default)]
    struct World(Environments, Instant);

    impl World {
        fn handle(&mut self, event: Event) -> Vec<Effect> {
            let mut effects = Vec::new();
            self.0.handle(self.1, event, &mut effects);
            self.0.check();
            effects
        }

        fn wanted(&mut self, what: &str) -> Vec<Effect> {
            self.handle(Event::Wanted { python: python(what) })
        }

        fn after(&mut self, delay: Duration) -> Vec<Effect> {
            self.1 = self.1 + delay;
            self.handle(Event::Tick)
        }
    }

    fn make(ticket: u64, what: &str) -> Effect {
        Effect::Make { ticket, python: python(what) }
    }

    #[test]
    fn what_failed_is_tried_again_for_the_next_one_only() {
        let mut world = World::default();
        assert_eq!(world.wanted("a"), [make(1, "a")]);
        assert_eq!(world.wanted("a"), []);
        let why = "no such package".to_string();
        let (let_go, fail) = (
            Effect::LetGo { python: python("a") },
            Effect::Fail { python: python("a"), why: why.clone() },
        );
        assert_eq!(world.handle(Event::Failed { ticket: 1, why: why.clone() }), [let_go, fail]);
        assert_eq!(world.0.next_deadline(), None);
        assert_eq!(world.wanted("a"), [make(2, "a")]);
        // ENV-2: the first one is heard no more.
        assert_eq!(world.handle(Event::Failed { ticket: 1, why }), []);
        assert_eq!(world.handle(Event::Made { ticket: 1 }), []);
        assert_eq!(world.handle(Event::Made { ticket: 2 }), [Effect::Made { python: python("a") }]);
        assert_eq!(world.wanted("a"), [Effect::Made { python: python("a") }]);
    }

    #[test]
    fn a_builder_whose_time_is_over_is_stopped_once_and_says_so() {
        let mut world = World::default();
        world.wanted("a");
        assert_eq!(world.after(Duration::from_secs(9)), []);
        assert_eq!(world.after(Duration::from_secs(1)), [Effect::Stop { ticket: 1 }]);
        assert_eq!(world.after(Duration::from_secs(60)), []);
        let failed = world.handle(Event::Failed { ticket: 1, why: "Collecting a".to_string() });
        let Effect::Fail { why, .. } = &failed[1] else { panic!("{failed:?}") };
        assert!(why.starts_with("it took longer than 10 s"), "{why}");
        assert!(why.contains("'setup_timeout_seconds': 20") && why.ends_with("Collecting a"));
    }

    #[test]
    fn one_without_a_limit_is_never_stopped() {
        let mut world = World::default();
        world.handle(Event::Wanted { python: PythonEnv { patience_s: 0, ..python("a") } });
        assert_eq!(world.0.next_deadline(), None);
    }

    #[test]
    fn more_than_may_be_made_at_a_time_take_turns() {
        let mut world = World::default();
        let names: Vec<String> =
            (0..=ENVIRONMENTS_MAKING_MAX).map(|n| format!("z{}", 9 - n)).collect();
        for (nth, name) in names.iter().enumerate() {
            let made = world.wanted(name);
            assert_eq!(made.len(), usize::from(nth < ENVIRONMENTS_MAKING_MAX), "{name}");
        }
        let last = names.last().unwrap();
        let next = ENVIRONMENTS_MAKING_MAX as u64 + 1;
        let failed = world.handle(Event::Failed { ticket: 1, why: String::new() });
        assert_eq!(failed.last(), Some(&make(next, last)));
    }

    #[test]
    fn what_nobody_used_for_long_is_let_go_and_what_is_used_stays() {
        let mut world = World::default();
        for (ticket, name) in [(1, "a"), (2, "b")] {
            world.wanted(name);
            world.handle(Event::Made { ticket });
        }
        let used = BTreeSet::from([python("b")]);
        let mut gone = Vec::new();
        while gone.is_empty() {
            let at = world.0.next_deadline().expect("something is made");
            assert_eq!(world.after(at.since(world.1)), [Effect::Look]);
            gone = world.handle(Event::InUse { pythons: used.clone() });
        }
        let a = python("a");
        assert_eq!(gone, [Effect::Gone { python: a.clone() }, Effect::LetGo { python: a }]);
        assert!(world.1.since(Instant::ZERO) >= ENVIRONMENT_IDLE);
        assert_eq!(world.wanted("a"), [make(3, "a")]);
    }

    #[test]
    fn one_in_which_a_worker_did_not_start_is_looked_at_again() {
        let mut world = World::default();
        world.wanted("a");
        world.handle(Event::Made { ticket: 1 });
        let gone = [Effect::Gone { python: python("a") }];
        assert_eq!(world.handle(Event::Doubted { python: python("a") }), gone);
        assert_eq!(world.handle(Event::Doubted { python: python("a") }), []);
        assert_eq!(world.wanted("a"), [make(2, "a")]);
    }
}
