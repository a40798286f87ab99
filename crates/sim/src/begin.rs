//! How a daemon begins: it reads what an earlier one left, takes a number, and makes its row under it, as the real
//! daemon does (`begin` in `crates/node/src/daemon/control.rs`).
//!
//! In some seeds another node takes the same number between the two: it lives elsewhere, and whatever is at home
//! there stays as it is in all later lives of this one.

use std::collections::BTreeMap;

use hoplo_base::{NodeNumber, ResourceSet};
use hoplo_core::control::{CasError, ControlStore, Entry, MemoryStore, NodeEntry, NodeState};
use hoplo_core::node::Rows;

use crate::counts::Counts;

/// What a daemon knows when it begins.
pub struct Beginning {
    pub node: NodeNumber,
    /// Read before its own row was made.
    pub rows: Rows,
}

/// `random`: of the seed and the life, so that it moves nothing else in a seed.
pub fn begin(
    store: &mut MemoryStore,
    keeps_rows: bool,
    random: u32,
    counts: &mut Counts,
) -> Beginning {
    let rows = Rows::read(store);
    let mut node = if keeps_rows { rows.next_number(random) } else { NodeNumber::alone(random) };
    if keeps_rows && random.is_multiple_of(3) {
        put_row(store, node, false).expect("nobody has the next number");
    }
    while let Err(error) = put_row(store, node, true) {
        assert!(
            matches!(error, CasError::Conflict { .. }),
            "a store in memory takes all: {error:?}"
        );
        counts.add("numbers that another node had");
        node = node.next_given();
    }
    if keeps_rows {
        assert!(node.is_given(), "{node} is no number of a store");
        let before = rows.nodes.iter().find(|row| row.node == node);
        assert!(before.is_none(), "{node} is given twice: {before:?}");
        counts.add("numbers given by the store");
    }
    Beginning { node, rows }
}

fn put_row(store: &mut MemoryStore, node: NodeNumber, head: bool) -> Result<(), CasError> {
    let entry = NodeEntry {
        node,
        head,
        hostname: if head { "here" } else { "elsewhere" }.to_string(),
        resources: ResourceSet::new(),
        labels: BTreeMap::new(),
        store_bytes: 0,
        session_dir: "/session".to_string(),
        pid: 0,
        address: String::new(),
        state: NodeState::Alive,
    };
    store.cas(entry.key(), 0, entry.to_value()).map(|_| ())
}
