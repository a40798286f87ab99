//! A head over control nodes: of rows it knows what it has read (`hoplo_core::node::copies`), a while after they were written, and what it writes
//! takes its time (the shell of that is `crates/node/src/daemon/lead.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::NodeNumber;
use hoplo_core::control::rows::{actor_key, home_of_actor_key};
use hoplo_core::control::{
    ActorEntry, ActorPhase, ControlStore, Entry, MemoryStore, NodeEntry, NodeState, Row, Table,
    store,
};
use hoplo_core::node::copies::{Copies, Passed, READ_AT_A_DEATH, RECALLED, is_left_by_the_dead};
use hoplo_core::node::heir_of;
use hoplo_wire::control::{Change, Key};

use crate::cluster::{Cluster, Step};
use crate::host::Host;
use crate::sabotage::Sabotage;
use crate::table::Rowset;

/// What one has besides its daemon.
pub struct Lead {
    pub copies: Copies,
    /// The node table as it has read it.
    nodes: BTreeMap<NodeNumber, NodeEntry>,
    /// What the dead left, if it was read at the beginning of the time that this takes.
    early: Option<MemoryStore>,
}

impl Lead {
    pub fn new(control: &MemoryStore) -> Self {
        let copies = Copies::new(copy_of(control, &RECALLED, |_, _| true));
        Self { copies, nodes: BTreeMap::new(), early: None }
    }
}

/// How long it takes to read what the dead left.
const READS_WITHIN: Duration = Duration::from_millis(40);

impl Cluster {
    /// The head, the node here, has read these rows: those that go on to its carrier.
    pub fn lead_reads(&mut self, rows: Rowset) -> Rowset {
        let lead = self.here.daemon.lead.as_mut().expect("it is over control nodes");
        for (entry, _) in &rows {
            lead.nodes.insert(entry.node, entry.clone());
        }
        let changes = rows.into_iter().map(|(entry, index)| {
            let row = Row { value: entry.to_value(), version: 0, index, finished: false };
            Change { index, key: entry.key(), row: Some(row) }
        });
        let passed = lead.copies.pass(changes.collect());
        self.lead_passes(passed)
    }

    fn lead_passes(&mut self, Passed { changes, reads }: Passed) -> Rowset {
        if reads {
            let early = self.rng.one_in(2).then(|| self.left_by_the_dead());
            self.here.daemon.lead.as_mut().expect("it reads").early = early;
            let delay = self.rng.delay(READS_WITHIN);
            self.after(delay, Step::HeadReads);
        }
        let rows = changes.into_iter().map(|change| {
            let row = change.row.expect("no row goes");
            (NodeEntry::from_row(&row).expect("it is a node's"), change.index)
        });
        rows.collect()
    }

    pub fn head_reads(&mut self) {
        let fails = self.now < self.plan.faults_until && self.rng.one_in(4);
        let lead = self.here.daemon.lead.as_mut().expect("it reads");
        let early = lead.early.take();
        let read = match fails {
            true => {
                self.count("reads that failed of what the dead left");
                None
            }
            false => {
                self.count("reads of what the dead left");
                Some(early.unwrap_or_else(|| self.left_by_the_dead()))
            }
        };
        let lead = self.here.daemon.lead.as_mut().expect("it reads");
        let passed = lead.copies.has_read(read);
        let rows = self.lead_passes(passed);
        self.carrier_is_told(rows);
    }

    fn left_by_the_dead(&self) -> MemoryStore {
        match self.sabotage {
            Some(Sabotage::NothingIsLeft) => MemoryStore::new(),
            _ => copy_of(&self.control, &READ_AT_A_DEATH, is_left_by_the_dead),
        }
    }

    /// As the head knows the nodes, which declares that one dead.
    pub fn heir_by_verdict(&mut self, node: NodeNumber) -> Option<NodeNumber> {
        let buried_inherit = self.sabotage == Some(Sabotage::BuriedInherit);
        let head = self.head();
        match &mut self.host_mut(head).daemon.lead {
            Some(Lead { nodes, .. }) if buried_inherit => heir_of(node, nodes.values()),
            Some(Lead { copies, nodes, .. }) => copies.buries(node, nodes.values()),
            None => self.heir_by_table(node),
        }
    }

    /// That of a node that is dead to it, under the version that it knows.
    pub fn head_writes_row(&mut self, entry: NodeEntry) {
        let (node, now) = (entry.node, self.entry_of(entry.node));
        if now.state.is_dead()
            && let Some(lead) = &mut self.here.daemon.lead
        {
            self.counts.add("verdicts on nodes that were dead already");
            return lead.copies.spares(node);
        }
        if let NodeState::Dead { heir: Some(heir), .. } = &entry.state {
            let is_dead = self.entry_of(*heir).state.is_dead();
            assert!(!is_dead, "LEAD-1: the heir of {node} is {heir}, which is dead");
        }
        self.row_changes(entry);
    }

    /// The wills of that node, which is declared dead.
    pub fn notes_wills(&mut self, node: NodeNumber) {
        let mut willed = Vec::new();
        store::rows(&self.control, Table::Actor, |key, row| {
            if home_of_actor_key(key) == Some(node)
                && let Ok(entry) = ActorEntry::from_row(row)
                && entry.will.is_some()
                && entry.state != ActorPhase::Dead
            {
                willed.push(entry.actor);
            }
        });
        for actor in willed {
            self.count("wills of dead homes");
            self.books.willed.insert(actor);
        }
    }

    /// FAR-9: who is in charge of them now knows them, and has begun them again; or they ended since, as their rows say: one whose arguments are
    /// lost ends when it begins (seed 6205093).
    pub fn check_wills(&self) {
        for &actor in &self.books.willed {
            let rows = |host: &Host| host.daemon.node.actors.row(actor);
            let mut known = self.hosts().filter(|host| !host.dead).filter_map(rows);
            let row = self.control.get(&actor_key(actor));
            let row = row.and_then(|row| ActorEntry::from_row(&row).ok());
            let has_ended = row.is_none_or(|it| it.state == ActorPhase::Dead && !it.lost);
            let goes_on = self.books.facts.is_dead(actor) || known.any(|row| !row.lost);
            let goes_on = goes_on || has_ended;
            assert!(
                goes_on,
                "FAR-9: {actor} left a will, and nobody goes on with it\n{}",
                self.story.about(&[actor.to_string()])
            );
        }
    }

    /// As the table says now.
    pub fn heir_by_table(&self, node: NodeNumber) -> Option<NodeNumber> {
        let mut nodes = Vec::new();
        store::rows(&self.control, Table::Node, |_, row| {
            nodes.push(NodeEntry::from_row(row).expect("it is a node's"));
        });
        heir_of(node, nodes.iter())
    }
}

fn copy_of(
    control: &MemoryStore,
    tables: &[Table],
    wanted: impl Fn(Table, &Row) -> bool,
) -> MemoryStore {
    let mut copy = MemoryStore::new();
    for &table in tables {
        store::rows(control, table, |key, row| {
            if wanted(table, row) {
                let key = Key { table, bytes: key.to_vec() };
                copy.put(key, row.value.clone()).expect("a store in memory takes all");
            }
        });
    }
    copy
}
