//! Standing: on a node, decides what becomes of its workers while no control node speaks to it.
//!
//! ```text
//!            a control node speaks                  nothing, and not all refuse, for 30 s
//!   Going <------------------------- Ended <--------------------------------------------- Going
//!     \------ it was declared dead (a link, a control node or its row says so) ---> Fenced
//! ```
//!
//! *All control nodes refuse*: their daemons are gone, their machines answer. Nobody is there who could declare this node dead, so it
//! goes on with what it has, for ever unless it is told otherwise: the head restarts. *Silence* of one of them may be a cut, and
//! behind it this node may be declared dead already, and its actors begun elsewhere: after 30 s it ends its workers, so that what it
//! does outside does not go on twice for long. When a control node speaks to it again, and it was not declared dead, it takes work again
//! under its number. Who was declared dead ends its workers at once, and joins again under a new number.
//!
//! Its daemon is told as soon as the head is silent (all refuse, or `HEAD_SILENT` without a word), and when it speaks again: what waits for
//! it is to know.
//!
//! A node that was stopped itself counts that time for nothing: its workers may have been stopped with it, and whoever declared it dead
//! tells it as soon as it speaks.
//!
//! # Invariants
//! - STAND-1: workers are ended once a time, and begin again only after a control node spoke.
//! - STAND-2: fenced is final.

use std::collections::BTreeSet;
use std::time::Duration;

use hoplo_base::{Instant, limits};

#[derive(Clone, Debug)]
pub struct Options {
    /// By number of the control node, as the shell counts them: at least one.
    pub control_nodes: usize,
    /// Absent: for ever.
    pub patience_refused: Option<Duration>,
    pub patience_silent: Option<Duration>,
}

impl Options {
    pub fn new(control_nodes: usize) -> Self {
        Self { control_nodes, patience_refused: None, patience_silent: Some(limits::NODE_ALONE) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A control node said something to this node, as the one that it is.
    Heard,
    /// Nobody listens at the address of this control node.
    Refused {
        control_node: usize,
    },
    /// It did not answer, or a connection to it ended.
    Silent {
        control_node: usize,
    },
    /// Another node is head: what was found of the one before says nothing of it.
    HeadChanged,
    /// This number was declared dead.
    Fenced {
        why: String,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End all workers, and start none.
    EndWorkers { why: Why },
    /// Start workers again when they are needed.
    TakeWork,
    /// Give up this number, and ask for another one.
    JoinAgain,
    /// No control node answers, since then.
    HeadSilent { since: Instant },
    /// One does again.
    HeadHeard,
}

/// Why workers end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// This number was declared dead.
    Declared { why: String },
    /// No control node spoke for so long, and not all refuse: behind that, this number may be declared dead.
    Silent { time: Duration },
    /// None spoke for so long, and all refuse.
    Refused { time: Duration },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Going,
    Ended,
    Fenced,
}

pub struct Standing {
    options: Options,
    state: State,
    /// When a control node last spoke.
    heard_at: Instant,
    /// When one last spoke, or the last of them was found refusing.
    reached_at: Instant,
    /// Those that were found refusing since one last spoke, and not silent after that.
    refusing: BTreeSet<usize>,
    /// It was told that no control node answers.
    silent: bool,
    /// When the last event came.
    turned_at: Instant,
}

impl Standing {
    /// A control node has just given this node its number.
    pub fn new(options: Options, now: Instant) -> Self {
        assert!(options.control_nodes > 0, "somebody gave this node its number");
        Self {
            options,
            state: State::Going,
            heard_at: now,
            reached_at: now,
            refusing: BTreeSet::new(),
            silent: false,
            turned_at: now,
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        self.notice_absence(now);
        match event {
            Event::Heard => {
                (self.heard_at, self.reached_at) = (now, now);
                self.refusing.clear();
                if std::mem::take(&mut self.silent) {
                    effects.push(Effect::HeadHeard);
                }
                if self.state == State::Ended {
                    self.state = State::Going;
                    effects.push(Effect::TakeWork);
                }
            }
            Event::Refused { control_node } => {
                assert!(control_node < self.options.control_nodes, "they are counted from 0");
                self.refusing.insert(control_node);
                if self.all_refuse() {
                    self.reached_at = now;
                }
            }
            Event::Silent { control_node } => {
                self.refusing.remove(&control_node);
            }
            Event::HeadChanged => {
                self.refusing.clear();
                self.silent = false;
            }
            Event::Fenced { why } => {
                if self.state == State::Going {
                    effects.push(Effect::EndWorkers { why: Why::Declared { why } });
                }
                if self.state != State::Fenced {
                    self.state = State::Fenced;
                    effects.push(Effect::JoinAgain);
                }
            }
            Event::Tick => {}
        }
        if let Some(since) = self.silent_since(now).filter(|_| !self.silent) {
            self.silent = true;
            effects.push(Effect::HeadSilent { since });
        }
        if let Some(at) = self.end().filter(|at| *at <= now) {
            assert!(self.state == State::Going, "STAND-1");
            self.state = State::Ended;
            let time = at.since(self.heard_at);
            let why = if self.all_refuse() { Why::Refused { time } } else { Why::Silent { time } };
            effects.push(Effect::EndWorkers { why });
        }
        self.turned_at = now;
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        // Its own absence is seen by turns that come late: so there have to be some.
        self.end().map(|at| at.min(self.turned_at + limits::NODE_LATE))
    }

    pub fn check(&self) {
        assert!(self.heard_at <= self.reached_at && self.reached_at <= self.turned_at);
        let ended = self.state != State::Going;
        assert!(!ended || self.end().is_none(), "STAND-1: workers are ended once");
    }

    /// When it ends its workers, if it hears nothing more.
    fn end(&self) -> Option<Instant> {
        match self.state {
            State::Ended | State::Fenced => None,
            State::Going => {
                let silent = self.options.patience_silent.map(|it| self.reached_at + it);
                let refused = self.options.patience_refused.map(|it| self.heard_at + it);
                silent.into_iter().chain(refused).min()
            }
        }
    }

    fn silent_since(&self, now: Instant) -> Option<Instant> {
        let refused = self.all_refuse().then_some(now);
        refused
            .or_else(|| (now.since(self.heard_at) >= limits::HEAD_SILENT).then_some(self.heard_at))
    }

    fn all_refuse(&self) -> bool {
        self.refusing.len() == self.options.control_nodes
    }

    fn notice_absence(&mut self, now: Instant) {
        let away = now.since(self.turned_at);
        if away >= limits::NODE_LATE * 2 {
            self.heard_at = self.heard_at + away;
            self.reached_at = self.reached_at + away;
        }
    }
}
