//! What a shard's history is, learnt from the first replica that applied each entry: one order of entries, and a naive
//! table beside it.
//!
//! Every replica has to agree with it for ever, so this is where a lost, changed or doubled entry shows: an acknowledged
//! update was applied by the tail that acknowledged it, and is part of the truth from then on. (Chain replication's *Update
//! Propagation Invariant*, van Renesse and Schneider 2004, section 3.1: the history of a replica is a prefix of
//! its predecessor's.)

use std::collections::BTreeMap;

use hoplo_wire::control::{
    Answer, Change, ClientId, Entry, Key, Op, Outcome, Query, Response, Row, ShardId, Table,
};

use super::once::Once;

#[derive(Default)]
pub struct Truth {
    shard: Option<ShardId>,
    pub entries: Vec<Entry>,
    pub rows: BTreeMap<Key, Row>,
    pub archived: BTreeMap<Key, Row>,
    /// What a read of the key gives from that entry on, and whether it comes from memory.
    seen: BTreeMap<Key, Vec<(u64, Option<Row>, bool)>>,
    changes: Vec<Change>,
    outcomes: BTreeMap<(ClientId, u64), (u64, Vec<Outcome>)>,
    once: Once,
    /// The highest index of an answer that reached a client: nobody may answer from before it to who asks
    /// from now on.
    pub reached: u64,
}

impl Truth {
    pub fn new(shard: ShardId) -> Self {
        Self { shard: Some(shard), ..Self::default() }
    }

    /// Sessions that ended.
    pub fn sessions_over(&self) -> u64 {
        self.once.over
    }

    pub fn is_there(&self, value: &[u8]) -> bool {
        self.once.is_there(value)
    }

    pub fn last(&self) -> u64 {
        self.entries.len() as u64
    }

    /// A replica applied this.
    pub fn learn(&mut self, entry: &Entry) {
        let known = self.last();
        if entry.index <= known {
            let at = entry.index as usize - 1;
            let truth = &self.entries[at];
            // `committed` is what its writer knew.
            let same =
                truth == entry || *truth == Entry { committed: truth.committed, ..entry.clone() };
            assert!(same, "CHAIN-1: applied {entry:?}, but the history has {truth:?}");
            return;
        }
        assert_eq!(entry.index, known + 1, "CHAIN-2: applied {entry:?} after {known}");
        self.once.applied(entry);
        let outcomes: Vec<Outcome> =
            entry.ops.iter().map(|op| self.apply(entry.index, op)).collect();
        if let Some(client) = entry.client {
            self.outcomes.insert((client, entry.seq), (entry.index, outcomes));
        }
        self.entries.push(entry.clone());
    }

    fn apply(&mut self, index: u64, op: &Op) -> Outcome {
        let key = match op {
            Op::Put { key, .. } | Op::Delete { key, .. } | Op::Archive { key, .. } => key.clone(),
        };
        let version = self.rows.get(&key).map_or(0, |row| row.version);
        let expected = match op {
            Op::Put { expected, .. } | Op::Delete { expected, .. } => *expected,
            Op::Archive { version, .. } => Some(*version).filter(|version| *version > 0),
        };
        let archive = matches!(op, Op::Archive { .. });
        if expected.is_some_and(|expected| expected != version) || (archive && version == 0) {
            return Outcome::Conflict { found: version };
        }
        let outcome = match op {
            Op::Put { value, finished, .. } => {
                let row =
                    Row { value: value.clone(), version: version + 1, index, finished: *finished };
                self.changes.push(Change { index, key: key.clone(), row: Some(row.clone()) });
                self.rows.insert(key.clone(), row);
                version + 1
            }
            Op::Delete { .. } => {
                if self.rows.remove(&key).is_some() {
                    self.changes.push(Change { index, key: key.clone(), row: None });
                }
                self.archived.remove(&key);
                0
            }
            Op::Archive { .. } => {
                let row = self.rows.remove(&key).expect("it has a version");
                self.archived.insert(key.clone(), row);
                0
            }
        };
        let hot = self.rows.contains_key(&key);
        let seen = self.rows.get(&key).or_else(|| self.archived.get(&key)).cloned();
        self.seen.entry(key).or_default().push((index, seen, hot));
        Outcome::Done { version: outcome }
    }

    /// What a read of the key gives right after that entry, and whether it comes from memory.
    fn read(&self, key: &Key, index: u64) -> Option<(&Row, bool)> {
        let seen = self.seen.get(key)?;
        let after = seen.partition_point(|(at, ..)| *at <= index);
        let (_, row, hot) = seen[..after].last()?;
        row.as_ref().map(|row| (row, *hot))
    }

    /// A replica says this to a client, having applied up to `applied`.
    pub fn check_response(&self, to: ClientId, response: &Response, query: Option<&Query>) {
        match response {
            Response::Updated { seq, index, outcomes, .. } => {
                let truth = self.outcomes.get(&(to, *seq));
                let truth = truth.unwrap_or_else(|| {
                    panic!("CHAIN-4: batch {seq} of {to:?} is acknowledged and not in the history")
                });
                assert_eq!(
                    (*index, outcomes),
                    (truth.0, &truth.1),
                    "CHAIN-4: batch {seq} of {to:?}"
                );
            }
            Response::Answered { index, answer, .. } => {
                let query = query.expect("a client asked");
                assert!(
                    *index <= self.last(),
                    "CHAIN-2: an answer as of {index}, which is not applied"
                );
                self.check_answer(*index, query, answer);
            }
            Response::UpdateRefused { .. }
            | Response::QueryRefused { .. }
            | Response::Changes { .. }
            | Response::Missed { .. }
            | Response::SubscriptionEnded { .. } => {}
        }
    }

    fn check_answer(&self, index: u64, query: &Query, answer: &Answer) {
        match (query, answer) {
            (Query::Get { key }, Answer::Row(row)) => {
                let truth = self.read(key, index).map(|(row, _)| row);
                assert_eq!(
                    row.as_ref(),
                    truth,
                    "CHAIN-5: {key:?} as of {index} in {:?}",
                    self.shard
                );
            }
            (Query::Scan { table, prefix, from, limit, archived }, Answer::Page { rows, next }) => {
                if *archived {
                    return self.check_archived_page(index, *table, rows);
                }
                let start = from.as_ref().filter(|from| *from > prefix).unwrap_or(prefix);
                let mut truth = Vec::new();
                for key in self.seen.keys() {
                    let hot = self.read(key, index).filter(|(_, hot)| *hot);
                    let inside = key.table == *table
                        && key.bytes.starts_with(prefix)
                        && key.bytes >= *start
                        && next.as_ref().is_none_or(|next| key.bytes < *next);
                    if let Some((row, _)) = hot.filter(|_| inside) {
                        truth.push((key.bytes.clone(), row.clone()));
                    }
                }
                assert_eq!(**rows, truth, "CTL-2: a page as of {index} of {query:?}");
                assert!(rows.len() <= *limit as usize, "a page has at most {limit} rows");
            }
            (Query::Get { .. }, Answer::Page { .. }) | (Query::Scan { .. }, Answer::Row(_)) => {
                panic!("{query:?} was answered by {answer:?}")
            }
        }
    }

    fn check_archived_page(&self, index: u64, table: Table, rows: &[(Vec<u8>, Row)]) {
        for (bytes, row) in rows {
            let key = Key { table, bytes: bytes.clone() };
            let truth = self.read(&key, index).map(|(row, _)| row);
            assert_eq!(Some(row), truth, "CHAIN-5: {key:?} as of {index}");
        }
    }

    /// What a subscriber of this prefix has to be told between two entries.
    pub fn changes_between(
        &self,
        table: Table,
        prefix: &[u8],
        after: u64,
        upto: u64,
    ) -> Vec<&Change> {
        let first = self.changes.partition_point(|change| change.index <= after);
        self.changes[first..]
            .iter()
            .take_while(|change| change.index <= upto)
            .filter(|change| change.key.table == table && change.key.bytes.starts_with(prefix))
            .collect()
    }
}
