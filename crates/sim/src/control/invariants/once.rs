//! CHAIN-4: each batch of a client is applied at most once, in the order of its session.
//!
//! Chain replication leaves a client that hears nothing with a doubt: was the update lost, or its answer (van Renesse
//! and Schneider 2004, section 2)? Sessions answer it.
//! Two checks that do not believe them: the seqs of each session, and the values, each of which a client puts in one
//! call only.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_wire::control::{ClientId, Entry, Op};

#[derive(Default)]
pub struct Once {
    /// `born` and seq of each client's last batch.
    last: BTreeMap<ClientId, (u64, u64)>,
    values: BTreeSet<Vec<u8>>,
    /// Sessions that ended.
    pub over: u64,
}

impl Once {
    /// The next entry of the history.
    pub fn applied(&mut self, entry: &Entry) {
        self.over += entry.ended.len() as u64;
        for op in &entry.ops {
            if let Op::Put { value, .. } = op {
                assert!(self.values.insert(value.clone()), "CHAIN-4: put twice: {entry:?}");
            }
        }
        let Some(client) = entry.client else { return };
        let (born, seq) = self.last.get(&client).copied().unwrap_or((0, 0));
        let follows = match entry.born == born && seq > 0 {
            true => entry.seq == seq + 1,
            false => entry.born >= born && entry.seq > seq,
        };
        assert!(follows, "CHAIN-4: {client:?} comes after ({born}, {seq}) with {entry:?}");
        self.last.insert(client, (entry.born, entry.seq));
    }

    /// A client was told that this will never be.
    pub fn is_there(&self, value: &[u8]) -> bool {
        self.values.contains(value)
    }
}
