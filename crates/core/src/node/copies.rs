//! What a head over control nodes knows of the store's rows. A head with a store of its own reads them whenever it wants; this one waits for no
//! control node, so it has *copies*: of all of which a new head makes something ([`RECALLED`]), as they were when it began; and of what the dead
//! leave (`far/wills`), as it was after each death ([`READ_AT_A_DEATH`]).
//!
//! ```text
//!   a row says that a node died --> held, and what follows it --> what the dead leave is read --> passed on, in order
//! ```
//!
//! # Invariants
//! - LEAD-1: who is named as a dead node's heir is not dead by an earlier entry of the store: what this head wrote is counted before it
//!   comes back to it.
//! - LEAD-2: a death is passed on when everything has been read that the store had of the dead node's after it, and in its order. What was not
//!   read is read again, for as long as that takes: without it detached actors would be lost.

use std::collections::BTreeSet;

use hoplo_base::NodeNumber;
use hoplo_wire::control::{Change, Key, Row};

use super::far::{has_ended, will_of};
use super::heir_of;
use crate::control::rows::node_key;
use crate::control::{
    ActorEntry, ControlStore, Entry, MemoryStore, NodeEntry, NodeState, Table, store,
};

/// What a new head makes something of.
pub const RECALLED: [Table; 6] =
    [Table::Node, Table::Job, Table::Function, Table::Task, Table::Actor, Table::PlacementGroup];

pub const READ_AT_A_DEATH: [Table; 2] = [Table::Actor, Table::Job];

/// Of what is read at a death: whether something is made of it.
pub fn is_left_by_the_dead(table: Table, row: &Row) -> bool {
    table != Table::Actor
        || ActorEntry::from_row(row)
            .is_ok_and(|entry| will_of(&entry).is_some() || has_ended(&entry))
}

#[derive(Debug)]
pub struct Copies {
    rows: MemoryStore,
    /// Of which it wrote that they are dead, and has not read it yet.
    buried: BTreeSet<NodeNumber>,
    /// Changes of the node table that are not passed on yet.
    held: Vec<Change>,
    /// What the dead leave is being read, for so many of those that are held.
    reads_for: Option<usize>,
}

/// What follows of what a head has read.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// Of the node table, to be passed on in this order.
    pub changes: Vec<Change>,
    /// What the dead leave is to be read from now on: [`Copies::has_read`] hears what came of it.
    pub reads: bool,
}

impl Copies {
    /// `rows`: of the tables that are recalled.
    pub fn new(rows: MemoryStore) -> Self {
        Self { rows, buried: BTreeSet::new(), held: Vec::new(), reads_for: None }
    }

    pub fn rows(&self) -> &MemoryStore {
        &self.rows
    }

    /// This head writes a row.
    pub fn writes(&mut self, key: &Key, value: &[u8]) {
        match key.table {
            Table::Job => self.copy(key.clone(), value.to_vec()),
            // A head before this one, which is dead by its row.
            Table::Node
                if let Ok(entry) = NodeEntry::of_value(value)
                    && entry.state.is_dead() =>
            {
                self.buried.insert(entry.node);
            }
            _ => {}
        }
    }

    /// It writes that this node is dead. `nodes`: as it has read them. The heir.
    pub fn buries<'a>(
        &mut self,
        node: NodeNumber,
        nodes: impl Iterator<Item = &'a NodeEntry> + Clone,
    ) -> Option<NodeNumber> {
        self.buried.insert(node);
        heir_of(node, nodes.filter(|entry| !self.is_dead(entry.node)))
    }

    /// That was not written.
    pub fn spares(&mut self, node: NodeNumber) {
        self.buried.remove(&node);
    }

    fn is_dead(&self, node: NodeNumber) -> bool {
        self.buried.contains(&node) || self.state_of(&node_key(node)).is_some_and(|it| it.is_dead())
    }

    fn state_of(&self, key: &Key) -> Option<NodeState> {
        Some(NodeEntry::from_row(&self.rows.get(key)?).ok()?.state)
    }

    pub fn copy(&mut self, key: Key, value: Vec<u8>) {
        let put = self.rows.put(key, value);
        put.expect("a store in memory takes everything");
    }

    /// Changes of the node table, in order.
    pub fn pass(&mut self, changes: Vec<Change>) -> Passed {
        self.held.extend(changes);
        match self.reads_for {
            Some(_) => Passed { changes: Vec::new(), reads: false },
            None => self.release(0),
        }
    }

    /// What the dead leave, read since that was asked for; absent: it could not be read.
    pub fn has_read(&mut self, read: Option<MemoryStore>) -> Passed {
        let Some(covers) = self.reads_for else { return self.release(0) };
        let Some(read) = read else { return Passed { changes: Vec::new(), reads: true } };
        self.reads_for = None;
        for table in READ_AT_A_DEATH {
            // Actors that ended since then have no will.
            for (key, _) in rows_of(&self.rows, table) {
                self.rows.delete(&key).expect("a store in memory takes everything");
            }
            rows_of(&read, table).into_iter().for_each(|(key, value)| self.copy(key, value));
        }
        self.release(covers)
    }

    /// The first `covered`, and what follows up to the next death.
    fn release(&mut self, covered: usize) -> Passed {
        let dies = |change: &Change| self.is_new_death(change);
        let next = self.held[covered..].iter().position(dies).map(|at| covered + at);
        let changes: Vec<Change> = self.held.drain(..next.unwrap_or(self.held.len())).collect();
        for Change { key, row, .. } in &changes {
            let Some(row) = row else { continue };
            if let Ok(entry) = NodeEntry::from_row(row)
                && entry.state.is_dead()
            {
                self.buried.remove(&entry.node);
            }
            self.copy(key.clone(), row.value.clone());
        }
        let reads = next.is_some();
        // For all deaths that are held now.
        self.reads_for = reads.then_some(self.held.len());
        Passed { changes, reads }
    }

    fn is_new_death(&self, change: &Change) -> bool {
        let now = change.row.as_ref().and_then(|row| NodeEntry::from_row(row).ok());
        let dies = now.is_some_and(|entry| matches!(entry.state, NodeState::Dead { .. }));
        dies && !self.state_of(&change.key).is_some_and(|before| before.is_dead())
    }
}

fn rows_of(store: &MemoryStore, table: Table) -> Vec<(Key, Vec<u8>)> {
    let mut rows = Vec::new();
    store::rows(store, table, |key, row| {
        rows.push((Key { table, bytes: key.to_vec() }, row.value.clone()));
    });
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hoplo_base::ResourceSet;

    use super::*;

    fn number(at: u32) -> NodeNumber {
        (0..at).fold(NodeNumber::first_given(0), |number, _| number.next_given())
    }

    fn entry(at: u32, state: NodeState) -> NodeEntry {
        NodeEntry {
            node: number(at),
            head: at == 0,
            hostname: format!("host{at}"),
            resources: ResourceSet::new(),
            labels: BTreeMap::new(),
            store_bytes: 0,
            session_dir: String::new(),
            pid: 1,
            address: format!("{at}"),
            state,
        }
    }

    fn change(index: u64, entry: &NodeEntry) -> Change {
        let row = Row { value: entry.to_value(), version: 1, index, finished: false };
        Change { index, key: entry.key(), row: Some(row) }
    }

    fn lives(index: u64, at: u32) -> Change {
        change(index, &entry(at, NodeState::Alive))
    }

    fn dies(index: u64, at: u32) -> Change {
        change(index, &entry(at, NodeState::dead("it fell")))
    }

    fn passed(changes: &[Change], reads: bool) -> Passed {
        Passed { changes: changes.to_vec(), reads }
    }

    fn copies() -> Copies {
        let mut copies = Copies::new(MemoryStore::new());
        let all: Vec<Change> = (0..4).map(|at| lives(u64::from(at), at)).collect();
        assert_eq!(copies.pass(all.clone()), passed(&all, false));
        copies
    }

    #[test]
    fn a_death_and_what_follows_it_wait_until_what_the_dead_left_is_read() {
        let mut copies = copies();
        let (before, death, after) = (lives(10, 1), dies(11, 2), lives(12, 3));
        let told = vec![before.clone(), death.clone(), after.clone()];
        assert_eq!(copies.pass(told), passed(&[before], true));
        assert_eq!(copies.pass(vec![lives(13, 1)]), passed(&[], false));
        // It could not be read: it is tried again, and nobody hears of anything meanwhile.
        assert_eq!(copies.has_read(None), passed(&[], true));
        let rows = passed(&[death, after, lives(13, 1)], false);
        assert_eq!(copies.has_read(Some(MemoryStore::new())), rows);
        assert_eq!(copies.pass(vec![lives(14, 1)]), passed(&[lives(14, 1)], false));
        // The same death, told again, is none.
        assert_eq!(copies.pass(vec![dies(11, 2)]), passed(&[dies(11, 2)], false));
    }

    #[test]
    fn what_is_read_covers_the_deaths_that_were_told_before_it_was_asked_for() {
        let mut copies = copies();
        assert_eq!(copies.pass(vec![dies(10, 1), dies(11, 2)]), passed(&[], true));
        assert_eq!(copies.pass(vec![dies(12, 3)]), passed(&[], false));
        let rows = copies.has_read(Some(MemoryStore::new()));
        assert_eq!(rows, passed(&[dies(10, 1), dies(11, 2)], true), "not the third one");
        let rows = copies.has_read(Some(MemoryStore::new()));
        assert_eq!(rows, passed(&[dies(12, 3)], false));
    }

    #[test]
    fn who_was_buried_is_nobodys_heir_unless_that_was_not_written() {
        let mut copies = copies();
        let nodes: Vec<NodeEntry> = (0..4).map(|at| entry(at, NodeState::Alive)).collect();
        let first = copies.buries(number(1), nodes.iter()).unwrap();
        let next = copies.buries(first, nodes.iter()).unwrap();
        assert!(next != first && next != number(1));
        copies.spares(first);
        assert_eq!(copies.buries(number(1), nodes.iter()), Some(first));
    }

    #[test]
    fn a_head_that_this_one_says_is_dead_is_nobodys_heir() {
        let nodes: Vec<NodeEntry> = (0..4).map(|at| entry(at, NodeState::Alive)).collect();
        let before = entry(0, NodeState::dead("another one is head"));
        let heirs = |says: bool| {
            let heir = |at| {
                let mut copies = copies();
                if says {
                    copies.writes(&before.key(), &before.to_value());
                }
                copies.buries(number(at), nodes.iter())
            };
            (1..4).map(heir).collect::<Vec<_>>()
        };
        assert!(heirs(false).contains(&Some(number(0))));
        assert!(!heirs(true).contains(&Some(number(0))));
    }
}
