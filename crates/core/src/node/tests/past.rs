//! What has run, on its way into the control store and back.

use std::time::Duration;

use hoplo_base::limits::{
    HISTORY_AGAIN_AFTER, HISTORY_NODES_DEAD_MAX, HISTORY_WRITTEN_EVERY, INSPECT_PATIENCE,
};
use hoplo_wire::control::Refusal;
use hoplo_wire::node::{Run, RunCall, Runs};

use super::far::{node_entry, number};
use super::*;
use crate::control::{ActorEntry, ActorPhase, ControlStore, HistoryEntry, MemoryStore, NodeState};
use crate::node::{Others, RowsPage};

/// One node of a cluster, and the store of that.
struct Kept {
    shell: Shell,
    store: MemoryStore,
    /// It answers nothing.
    away: bool,
    refuses: bool,
    puts: usize,
    /// Rows that were read.
    read: usize,
    index: u64,
}

fn runs(seqs: std::ops::Range<u64>) -> Runs {
    let run = |seq| Run {
        task: TaskId { owner: ProcessId::new(NodeNumber::alone(1), 1, 1), seq },
        attempt: 0,
        call: 0,
        actor: None,
        parent: None,
        worker: None,
        started_ns: 5,
        ran_ns: 7,
        ago_us: 0,
        failure: None,
    };
    let call = RunCall { name: "f".to_string(), resources: Vec::new() };
    Runs { calls: vec![call], runs: seqs.map(run).collect(), untold: 0 }
}

impl Kept {
    /// The head is node 0.
    fn new(at: usize) -> Self {
        let mut shell = Shell::with(|config| {
            (config.node, config.keeps_rows, config.clustered) = (number(at), true, true);
        });
        shell.node.set_wall_clock(1_000_000_000);
        let (store, index) = (MemoryStore::new(), 0);
        let mut kept = Self { shell, store, away: false, refuses: false, puts: 0, read: 0, index };
        kept.hears_of(0, NodeState::Alive);
        kept.hears_of(at, NodeState::Alive);
        kept
    }

    fn hears_of(&mut self, at: usize, state: NodeState) {
        self.index += 1;
        let (entry, index) = (Box::new(node_entry(at, state)), self.index);
        self.shell.hears(Event::Member { entry, index });
        self.settle();
    }

    fn dies(&mut self, at: usize) {
        self.hears_of(at, NodeState::Alive);
        self.hears_of(at, NodeState::dead("it fell"));
    }

    fn waits(&mut self, time: Duration) {
        self.shell.waits(time);
        self.settle();
    }

    /// The store does what it is asked.
    fn settle(&mut self) {
        while !self.away
            && let Some((ask, question)) = self.shell.take(|effect| match effect {
                Effect::Ask { ask, question } => Some((*ask, question.clone())),
                _ => None,
            })
        {
            let refusal = || Refusal::Disk("no space left on device".to_string());
            let answer = match question {
                Question::Put { key, value } => {
                    self.puts += 1;
                    Answer::Written(match self.refuses {
                        true => Err(refusal()),
                        false => self.store.put(key, value).map(|_| ()),
                    })
                }
                Question::Scan { .. } if self.refuses => Answer::Page(Err(refusal())),
                Question::Scan { table, prefix, from } => {
                    let page = self.store.scan(table, &prefix, from.as_deref(), 2);
                    self.read += page.rows.len();
                    let rows = page.rows.into_iter().map(|(key, row)| (key, row.value)).collect();
                    Answer::Page(Ok(RowsPage { rows, next: page.next }))
                }
                other => panic!("{other:?} is not asked for history"),
            };
            self.shell.hears(Event::Answered { ask, answer });
        }
        while let Some(effect) = self.shell.take(|effect| match effect {
            Effect::Save { key, value, .. } if key.table == Table::History => {
                Some((key.clone(), Some(value.clone())))
            }
            Effect::Forget { key } if key.table == Table::History => Some((key.clone(), None)),
            _ => None,
        }) {
            match effect {
                (key, Some(value)) => drop(self.store.put(key, value)),
                (key, None) => drop(self.store.delete(&key)),
            }
        }
    }

    fn rows(&self) -> Vec<HistoryEntry> {
        crate::control::store::entries(&self.store)
    }

    /// What that node left, in so many rows.
    fn left_by(&mut self, at: usize, rows: u32) {
        for page in 0..rows {
            let (node, job) = (number(at), JobId::new(number(at), 1));
            let (calls, runs) = (Vec::new(), Vec::new());
            let entry = HistoryEntry { node, job, page, clock_us: 1, forgotten: 0, calls, runs };
            self.store.put(entry.key(), entry.to_value()).unwrap();
        }
    }

    fn asks_history(&mut self) -> Option<Others> {
        self.asks("history")
    }

    fn asks(&mut self, kind: &str) -> Option<Others> {
        self.asks_with(kind, if kind == "history" { "10" } else { "" })
    }

    fn asks_with(&mut self, kind: &str, argument: &str) -> Option<Others> {
        let tool = self.shell.tool();
        self.shell.asks(tool, 1, kind, argument);
        self.shell.sweeps();
        self.settle();
        let at_once = self.shell.whole_report(tool, 1);
        if at_once.is_none() {
            self.waits(INSPECT_PATIENCE);
        }
        at_once.or_else(|| self.shell.whole_report(tool, 1)).map(|(_, others)| others)
    }
}

fn seqs(rows: &[HistoryEntry]) -> Vec<u64> {
    rows.iter().flat_map(|row| &row.runs).map(|ended| ended.run.task.seq).collect()
}

#[test]
fn what_has_run_is_written_a_second_later_and_no_sooner_again_while_it_is_on_its_way() {
    let mut kept = Kept::new(0);
    let driver = kept.shell.driver();
    assert_eq!(kept.shell.node.past_is_written(), Some(true));
    kept.shell.says(driver, ToNode::Ran(runs(0..3)));
    kept.waits(HISTORY_WRITTEN_EVERY / 2);
    assert_eq!(kept.rows(), []);
    kept.away = true;
    kept.waits(HISTORY_WRITTEN_EVERY / 2);
    kept.shell.says(driver, ToNode::Ran(runs(3..5)));
    kept.waits(HISTORY_WRITTEN_EVERY * 5);
    assert_eq!((kept.puts, kept.shell.node.past_is_written()), (0, Some(false)), "PAST-2");
    kept.away = false;
    kept.settle();
    assert_eq!(seqs(&kept.rows()), [0, 1, 2]);
    kept.waits(HISTORY_WRITTEN_EVERY);
    assert_eq!((seqs(&kept.rows()), kept.rows().len()), (vec![0, 1, 2, 3, 4], 1));
    assert_eq!(kept.shell.node.past_is_written(), Some(true));
    assert_eq!(kept.rows()[0].runs[0].ended_us, 1_000_000_000);
}

#[test]
fn a_row_that_the_store_refused_is_put_again_later() {
    let mut kept = Kept::new(0);
    let driver = kept.shell.driver();
    kept.refuses = true;
    kept.shell.says(driver, ToNode::Ran(runs(0..3)));
    kept.waits(HISTORY_WRITTEN_EVERY);
    assert_eq!(kept.puts, 1);
    // What comes meanwhile is in the same row.
    kept.shell.says(driver, ToNode::Ran(runs(3..5)));
    kept.refuses = false;
    kept.waits(HISTORY_AGAIN_AFTER);
    kept.waits(HISTORY_WRITTEN_EVERY);
    assert_eq!(seqs(&kept.rows()), [0, 1, 2, 3, 4]);
    assert!(kept.puts <= 3, "{}", kept.puts);
    assert_eq!(kept.shell.node.past_is_written(), Some(true));
}

#[test]
fn a_node_that_stops_writes_the_rest_first_and_rows_that_are_on_their_way_once_more() {
    let mut kept = Kept::new(1);
    let driver = kept.shell.driver();
    kept.away = true;
    kept.shell.says(driver, ToNode::Ran(runs(0..3)));
    kept.waits(HISTORY_WRITTEN_EVERY);
    kept.shell.says(driver, ToNode::Ran(runs(3..5)));
    kept.shell.hears(Event::Stop { why: "asked for".to_string() });
    let stopped = |effect: &Effect| matches!(effect, Effect::Stopped);
    let saved =
        |effect: &Effect| matches!(effect, Effect::Save { key, .. } if key.table == Table::History);
    let place = |what: &dyn Fn(&Effect) -> bool| kept.shell.effects.iter().position(what);
    assert!(place(&saved).expect("it is written") < place(&stopped).expect("it stops"));
    kept.settle();
    assert_eq!(seqs(&kept.rows()), [0, 1, 2, 3, 4]);
}

#[test]
fn a_node_whose_rows_end_with_it_writes_and_reads_none() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.says(driver, ToNode::Ran(runs(0..3)));
    shell.waits(HISTORY_WRITTEN_EVERY * 2);
    let tool = shell.tool();
    shell.asks(tool, 1, "history", "10");
    let asks = |effect: &Effect| matches!(effect, Effect::Ask { .. }).then_some(());
    assert_eq!(shell.take(asks), None, "PAST-1");
    assert_eq!(shell.node.past_is_written(), None);
}

#[test]
fn a_question_reads_the_rows_of_dead_nodes_only_the_latest_death_first() {
    let mut kept = Kept::new(0);
    for at in 1..5 {
        kept.left_by(at, 5);
    }
    kept.hears_of(2, NodeState::Alive);
    kept.dies(1);
    kept.dies(4);
    let others = kept.asks_history().unwrap();
    assert_eq!(others.missing.len(), 1, "2 lives, and does not answer: {:?}", others.missing);
    let nodes: Vec<NodeNumber> = others.past.runs.iter().map(|row| row.node).collect();
    let expected = [[number(4); 5], [number(1); 5]].concat();
    assert_eq!(nodes, expected, "nothing of 2, which lives, and 3, which nobody knows");
}

impl Kept {
    /// So many actors are at home there.
    fn actors_of(&mut self, at: usize, count: u64) {
        for seq in 1..=count {
            let entry = ActorEntry {
                actor: ActorId(TaskId { owner: ProcessId::new(number(at), 1, 1), seq }),
                class_name: "A".to_string(),
                name: String::new(),
                namespace: String::new(),
                job: JobId(1),
                state: ActorPhase::Alive,
                incarnation: 0,
                detached: false,
                handle: vec![1],
                failure: None,
                lost: false,
                will: None,
            };
            self.store.put(entry.key(), entry.to_value()).unwrap();
        }
    }

    /// Homes of the actors of dead nodes that the answer has, and how many rows were read for it.
    fn dead_actors(&mut self, argument: &str) -> (Vec<NodeNumber>, usize) {
        let before = self.read;
        let past = self.asks_with("actors", argument).unwrap().past;
        assert!(past.actors.iter().all(|it| it.handle.is_empty()) && past.runs.is_empty());
        let homes = past.actors.iter().map(|it| it.actor.0.owner.node());
        (homes.collect(), self.read - before)
    }
}

#[test]
fn a_question_about_actors_reads_the_rows_of_those_that_were_at_home_at_dead_nodes() {
    let mut kept = Kept::new(0);
    for at in 0..3 {
        kept.actors_of(at, 1);
    }
    assert_eq!(kept.dead_actors(""), (vec![], 0), "nobody is dead");
    kept.dies(1);
    assert_eq!(kept.dead_actors("").0, [number(1)]);
}

#[test]
fn a_question_about_actors_read_the_rows_of_all_homes() {
    let mut kept = Kept::new(0);
    for (at, count) in [(0, 20), (1, 3), (2, 20), (3, 20), (4, 3), (5, 20)] {
        kept.actors_of(at, count);
    }
    for dead in [1, 4] {
        kept.dies(dead);
    }
    // Pages have two rows: of a home that lives at most one is read.
    let homes = [[number(1); 3], [number(4); 3]].concat();
    assert_eq!(kept.dead_actors(""), (homes.clone(), 8));
    assert_eq!(kept.dead_actors("3"), (homes[..3].to_vec(), 4));
    assert_eq!(kept.dead_actors("1"), (homes[..1].to_vec(), 2));
    assert_eq!(kept.dead_actors("0"), (vec![], 0));
    let (tool, count) = (kept.shell.tool(), "three");
    kept.shell.asks(tool, 1, "actors", count);
    assert!(kept.shell.refusal(tool).unwrap().contains("a number of rows or an id, not \"three\""));
}

#[test]
fn a_question_about_one_actor_read_the_rows_of_all_actors_of_dead_nodes() {
    let mut kept = Kept::new(0);
    for (at, count) in [(1, 20), (2, 20), (3, 20)] {
        kept.actors_of(at, count);
    }
    kept.dies(1);
    kept.dies(3);
    let id = |at, seq| ActorId(TaskId { owner: ProcessId::new(number(at), 1, 1), seq }).hex();
    assert_eq!(kept.dead_actors(&id(3, 7)), (vec![number(3)], 1));
    assert_eq!(kept.dead_actors(&id(1, 21)), (vec![], 0), "there is no such actor");
    assert_eq!(kept.dead_actors(&id(2, 7)), (vec![], 0), "its home lives, and tells of it");
}

#[test]
fn a_store_that_refuses_or_is_silent_is_named_in_the_answer() {
    let mut kept = Kept::new(0);
    kept.left_by(1, 1);
    kept.dies(1);
    kept.refuses = true;
    let others = kept.asks_history().unwrap();
    assert!(others.missing[0].contains("no space left on device"), "{:?}", others.missing);
    kept.away = true;
    let others = kept.asks_history().unwrap();
    assert!(others.missing[0].contains("did not answer"), "{:?}", others.missing);
    // What it says later is for nobody.
    (kept.away, kept.refuses) = (false, false);
    kept.settle();
}

#[test]
fn a_head_deletes_the_rows_of_nodes_that_died_long_before_and_others_do_not() {
    for (at, left) in [(0, HISTORY_NODES_DEAD_MAX), (1, HISTORY_NODES_DEAD_MAX + 3)] {
        let mut kept = Kept::new(at);
        for dead in 2..HISTORY_NODES_DEAD_MAX + 5 {
            kept.left_by(dead, 3);
            kept.dies(dead);
        }
        let rows = kept.rows();
        assert_eq!(rows.len(), 3 * left);
    }
}
