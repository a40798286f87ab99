//! What has run, in the control store: it is there when the daemon that remembered it is dead.
//!
//! ```text
//!   ToNode::Ran --`HISTORY_WRITTEN_EVERY` later--> a step: its rows are put --all written--> the next step, if there is more
//!                                                     ^                  \--refused: the same rows, `HISTORY_AGAIN_AFTER` later
//!   a question about history --the rows of each dead node, the latest death first--> part of the answer
//!   a question about actors --rows of actors whose home is dead, as many as are wanted--> the same
//!   a head hears of a death --> rows of nodes that died long before are deleted
//! ```
//! A living node answers for itself. Only the rows of dead ones are read, so nothing is told twice. What ended in the last two seconds of a
//! node that died may be in no row.
//!
//! # Invariants
//! - PAST-1: nothing is asked of the store unless rows outlive this daemon.
//! - PAST-2: no step begins while rows of the one before are on their way: a store that is slow, or away, gets no more than it takes.
//! - PAST-3: a row that was refused is put again, unless the same row was put with more in it, or was dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use hoplo_base::NodeNumber;
use hoplo_base::limits::{
    HISTORY_AGAIN_AFTER, HISTORY_LIVING_BYTES_MAX, HISTORY_NODES_DEAD_MAX,
    HISTORY_OF_NODE_BYTES_MAX, HISTORY_READ_BYTES_MAX, HISTORY_WRITERS_MAX,
    HISTORY_WRITTEN_BYTES_MAX, HISTORY_WRITTEN_EVERY,
};
use hoplo_wire::control::{Key, Table};

use super::queries::OfDead;
use super::{Answer, Asked, Effect, Node, Question, RowsPage, Timer};
use crate::control::rows::{actor_key, home_of_actor_key, node_key};
use crate::control::{ActorEntry, Entry, HistoryEntry};
use crate::history::{Step, Writer};

#[derive(Debug, Default)]
pub(super) struct Past {
    timer: bool,
    /// Rows on their way to the store.
    underway: BTreeSet<Key>,
    /// PAST-3: what each row is to be.
    again: BTreeMap<Key, Vec<u8>>,
    /// Dead nodes that have no rows any more.
    swept: BTreeSet<NodeNumber>,
    sweeping: Option<NodeNumber>,
    /// Rows that were on their way when this node stopped were written once more.
    ends: bool,
}

#[derive(Debug)]
pub(super) enum Asker {
    Written {
        key: Key,
        value: Vec<u8>,
    },
    /// For a round of questions.
    Read {
        round: u64,
    },
    Sweep {
        node: NodeNumber,
    },
}

/// How far the rows of dead nodes are read for a question.
#[derive(Debug)]
pub(super) struct Reading {
    whose: Whose,
    pub found: PastRows,
    bytes: usize,
    /// Why there is no more.
    pub refused: Option<String>,
}

#[derive(Debug)]
enum Whose {
    /// What the callers of these nodes ran. The next one is the last of them.
    Runs(Vec<NodeNumber>),
    /// Actors whose homes these are, and how many more are wanted. The rows of a home are a range: those of others are passed over.
    Actors { homes: BTreeSet<NodeNumber>, wanted: usize },
}

/// What dead nodes left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastRows {
    pub runs: Vec<HistoryEntry>,
    pub actors: Vec<ActorEntry>,
}

impl Reading {
    fn of(whose: Whose) -> Self {
        Self { whose, found: PastRows::default(), bytes: 0, refused: None }
    }
}

/// Where the next row of one of these homes may lie, from there on.
fn next_of(homes: &BTreeSet<NodeNumber>, from: Vec<u8>) -> Option<Vec<u8>> {
    match home_of_actor_key(&from) {
        Some(home) if !homes.contains(&home) => {
            let mut later = homes.range((Bound::Excluded(home), Bound::Unbounded));
            later.next().map(|home| node_key(*home).bytes)
        }
        Some(_) | None => Some(from),
    }
}

impl Node {
    // ---- writing ----

    /// Some process told what has run.
    pub(super) fn write_past_later(&mut self) {
        // PAST-1, PAST-2
        if self.config.keeps_rows && self.past.underway.is_empty() {
            self.write_past_after(HISTORY_WRITTEN_EVERY);
        }
    }

    fn write_past_after(&mut self, delay: Duration) {
        if !std::mem::replace(&mut self.past.timer, true) {
            let nodes = self.other_nodes().count() + 1;
            let share = nodes.div_ceil(HISTORY_WRITERS_MAX) as u32;
            self.after(delay * share, Timer::Past);
        }
    }

    pub(super) fn write_past(&mut self) {
        self.past.timer = false;
        let rows = self.past_rows(BTreeMap::new(), HISTORY_WRITTEN_BYTES_MAX);
        for (key, value) in rows {
            self.past.underway.insert(key.clone());
            let asker = Asker::Written { key: key.clone(), value: value.clone() };
            self.ask(Question::Put { key, value }, Asked::Past(asker));
        }
    }

    /// The last ones: nobody hears what becomes of them.
    pub(super) fn write_all_past(&mut self) {
        if !self.config.keeps_rows {
            return;
        }
        let underway = self.asked.values().filter_map(|asked| match asked {
            Asked::Past(Asker::Written { key, value }) => Some((key.clone(), value.clone())),
            Asked::Past(_) | Asked::Kv(_) | Asked::Function(_) | Asked::Group(_) => None,
        });
        // Once: what is written here is newer.
        let first = !std::mem::replace(&mut self.past.ends, true);
        let underway = underway.filter(|_| first).collect();
        for (key, value) in self.past_rows(underway, usize::MAX) {
            self.out.push(Effect::Save { key, value, last: false });
        }
    }

    /// What is to be put now, with these rows. Those that are dropped are deleted.
    fn past_rows(
        &mut self,
        mut rows: BTreeMap<Key, Vec<u8>>,
        step_bytes_max: usize,
    ) -> BTreeMap<Key, Vec<u8>> {
        let nodes = self.other_nodes().count() + 1;
        let writer = Writer {
            node: self.config.node,
            clock_us: self.wall_us.saturating_sub(self.now.0 / 1000),
            bytes_max: HISTORY_OF_NODE_BYTES_MAX.min(HISTORY_LIVING_BYTES_MAX / nodes),
            step_bytes_max,
        };
        rows.append(&mut self.past.again);
        for step in self.history.step(writer) {
            match step {
                Step::Write(entry) => {
                    rows.insert(entry.key(), entry.to_value());
                }
                Step::Drop(key) => {
                    rows.remove(&key);
                    self.out.push(Effect::Forget { key });
                }
            }
        }
        rows
    }

    pub(super) fn on_past_answer(&mut self, asker: Asker, answer: Answer) {
        match (asker, answer) {
            (Asker::Written { key, value }, Answer::Written(written)) => {
                self.past.underway.remove(&key);
                if written.is_err() {
                    self.past.again.insert(key, value);
                }
                if self.past.underway.is_empty() {
                    if !self.past.again.is_empty() {
                        self.write_past_after(HISTORY_AGAIN_AFTER);
                    } else if self.history.has_unwritten() {
                        self.write_past_after(HISTORY_WRITTEN_EVERY);
                    }
                }
            }
            (Asker::Read { round }, Answer::Page(Ok(page))) => self.on_past_page(round, page),
            (Asker::Read { round }, Answer::Page(Err(why))) => {
                if let Some(reading) = self.queries.reading(round) {
                    reading.refused = Some(why.to_string());
                }
                self.has_read_past(round, 0);
            }
            (Asker::Sweep { node }, Answer::Page(page)) => {
                self.past.sweeping = None;
                let Ok(RowsPage { rows, next }) = page else { return };
                for (bytes, _) in rows {
                    self.out.push(Effect::Forget { key: Key { table: Table::History, bytes } });
                }
                match next {
                    Some(from) => self.sweep_past_of(node, Some(from)),
                    None => {
                        self.past.swept.insert(node);
                        self.sweep_past();
                    }
                }
            }
            (
                Asker::Written { .. } | Asker::Read { .. } | Asker::Sweep { .. },
                Answer::Rows(_)
                | Answer::Written(_)
                | Answer::Found(_)
                | Answer::Keys(_)
                | Answer::Page(_),
            ) => unreachable!("a question is answered by what it asks for"),
        }
    }

    /// All that this node was told of what has run is in the control store; absent: its rows end with the daemon.
    pub fn past_is_written(&self) -> Option<bool> {
        let past = &self.past;
        let done = past.underway.is_empty() && past.again.is_empty();
        self.config.keeps_rows.then_some(done && !self.history.has_unwritten())
    }

    // ---- reading ----

    /// There are rows of dead nodes to be read.
    pub(super) fn has_past(&self) -> bool {
        self.config.keeps_rows && !self.dead_nodes().is_empty()
    }

    /// What dead nodes remembered, for that round: absent if there are none.
    pub(super) fn begin_reading_runs(&mut self, round: u64) -> Option<Reading> {
        let mut nodes = self.dead_nodes();
        nodes.truncate(HISTORY_NODES_DEAD_MAX);
        nodes.reverse();
        let node = *nodes.last().filter(|_| self.config.keeps_rows)?;
        self.ask_past_of(node, None, Asker::Read { round });
        Some(Reading::of(Whose::Runs(nodes)))
    }

    /// The same of actors that were at home at dead nodes.
    pub(super) fn begin_reading_actors(&mut self, round: u64, which: OfDead) -> Option<Reading> {
        if which == OfDead::Most(0) || !self.has_past() {
            return None;
        }
        let mut homes: BTreeSet<NodeNumber> = self.dead_nodes().into_iter().collect();
        let wanted = match which {
            OfDead::Most(number) => {
                self.ask_actors(Vec::new(), homes.first().map(|home| node_key(*home).bytes), round);
                number
            }
            OfDead::One(actor) => {
                homes.retain(|home| *home == actor.0.owner.node());
                if homes.is_empty() {
                    return None;
                }
                self.ask_actors(actor_key(actor).bytes, None, round);
                1
            }
        };
        Some(Reading::of(Whose::Actors { homes, wanted }))
    }

    fn ask_actors(&mut self, prefix: Vec<u8>, from: Option<Vec<u8>>, round: u64) {
        let question = Question::Scan { table: Table::Actor, prefix, from };
        self.ask(question, Asked::Past(Asker::Read { round }));
    }

    fn ask_past_of(&mut self, node: NodeNumber, from: Option<Vec<u8>>, asker: Asker) {
        let (table, prefix) = (Table::History, node_key(node).bytes);
        self.ask(Question::Scan { table, prefix, from }, Asked::Past(asker));
    }

    fn on_past_page(&mut self, round: u64, page: RowsPage) {
        let RowsPage { rows, next } = page;
        let Some(reading) = self.queries.reading(round) else { return };
        let bytes: usize = rows.iter().map(|(_, value)| value.len()).sum();
        reading.bytes += bytes;
        let full = reading.bytes >= HISTORY_READ_BYTES_MAX;
        let values = rows.iter().map(|(_, value)| value.as_slice());
        // What does not parse was written by another program.
        match &mut reading.whose {
            Whose::Runs(nodes) => {
                reading.found.runs.extend(values.flat_map(HistoryEntry::of_value));
                if next.is_none() {
                    nodes.pop();
                }
                if let Some(node) = nodes.last().copied().filter(|_| !full) {
                    self.ask_past_of(node, next, Asker::Read { round });
                    return self.queries.count(round, bytes);
                }
            }
            Whose::Actors { homes, wanted } => {
                let entries = values.flat_map(ActorEntry::of_value);
                let theirs = entries.filter(|entry| homes.contains(&entry.actor.0.owner.node()));
                // People do not read what a handle and a restart need.
                let bare = theirs.map(|it| ActorEntry { handle: Vec::new(), will: None, ..it });
                let before = reading.found.actors.len();
                reading.found.actors.extend(bare.take(*wanted));
                *wanted -= reading.found.actors.len() - before;
                let more = !full && *wanted > 0;
                let next = next.filter(|_| more).and_then(|next| next_of(homes, next));
                if next.is_some() {
                    self.ask_actors(Vec::new(), next, round);
                    return self.queries.count(round, bytes);
                }
            }
        }
        self.has_read_past(round, bytes);
    }

    // ---- forgetting ----

    /// Of a head: dead nodes whose rows nobody reads any more.
    pub(super) fn sweep_past(&mut self) {
        if !self.config.keeps_rows || self.is_joined() || self.past.sweeping.is_some() {
            return;
        }
        let dead = self.dead_nodes().into_iter().skip(HISTORY_NODES_DEAD_MAX);
        let mut dead = dead.filter(|node| !self.past.swept.contains(node));
        if let Some(node) = dead.next() {
            self.sweep_past_of(node, None);
        }
    }

    fn sweep_past_of(&mut self, node: NodeNumber, from: Option<Vec<u8>>) {
        self.past.sweeping = Some(node);
        self.ask_past_of(node, from, Asker::Sweep { node });
    }

    pub(super) fn check_past(&self) {
        let asks = |asked: &&Asked| matches!(asked, Asked::Past(Asker::Written { .. }));
        let written = self.asked.values().filter(asks).count();
        assert_eq!(written, self.past.underway.len(), "PAST-2");
        assert!(self.config.keeps_rows || self.past.underway.is_empty(), "PAST-1");
    }
}
