//! What the head writes of deaths: verdicts, each with an heir, and that all have passed them (`crates/node/src/daemon/control.rs`).

use hoplo_base::NodeNumber;
use hoplo_base::limits::NODES_SETTLED_KEPT;
use hoplo_core::control::rows::{node_key, node_of_key};
use hoplo_core::control::{Entry, NodeEntry, NodeState, Row, Tables};
use hoplo_core::members::Why;
use hoplo_core::node::{heir_among, outlived, settled};
use hoplo_wire::control::{Op, Table};

use super::plane::{Plane, place, put};
use super::turns::Out;

impl Plane {
    /// As `bury_here`.
    pub(super) fn buries(
        &mut self,
        ticket: u64,
        node: NodeNumber,
        expected: u64,
        why: Why,
        out: &mut Out,
    ) -> u64 {
        let lives = self.members.get(&place(node)).is_some_and(|member| member.lives);
        self.false_verdicts += u64::from(lives);
        let tables = self.store.tables();
        let mut buried = None;
        let ns = self.meter.run("head: who is the heir?", || {
            let entry_of = |node| NodeEntry::from_row(tables.get(&node_key(node))?).ok();
            let mut nodes = Vec::new();
            each_row(tables, |key, _| nodes.extend(node_of_key(key)));
            let heir = heir_among(node, nodes.into_iter(), entry_of);
            let state = NodeState::Dead { why: why.to_string(), heir };
            buried = entry_of(node).map(|entry| NodeEntry { state, ..entry });
            1
        });
        let entry = buried.expect("who is judged has a row");
        self.verdicts.insert(self.seq + 1, ticket);
        ns + self.update("store: a verdict", vec![put(&entry, Some(expected))], out)
    }

    /// As `settle`.
    pub(super) fn settles(&mut self, epoch: u64, out: &mut Out) -> u64 {
        let tables = self.store.tables();
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        let mut ns = self.meter.run("head: all rows are read, when deaths are settled", || {
            let mut nodes = Vec::new();
            each_row(tables, |_, row| {
                let entry = NodeEntry::from_row(row).expect("it is a node's");
                let now = Some(row.index).filter(|died| *died <= epoch);
                let now = now.and_then(|died| settled(&entry, died));
                rows.extend(now.clone().map(|entry| (entry, row.version)));
                nodes.push(now.unwrap_or(entry));
            });
            gone = outlived(nodes.iter(), NODES_SETTLED_KEPT);
            rows.len()
        });
        self.settlings += 1;
        for (entry, version) in rows {
            ns += self.update("store: a death is settled", vec![put(&entry, Some(version))], out);
        }
        for node in gone {
            self.rows.remove(&node);
            let delete = Op::Delete { key: node_key(node), expected: None };
            ns += self.update("store: a row goes", vec![delete], out);
        }
        ns
    }
}

/// Page by page, as `control::store::rows` does.
fn each_row(tables: &Tables, mut take: impl FnMut(&[u8], &Row)) {
    let mut from: Option<Vec<u8>> = None;
    loop {
        let page = tables.scan(Table::Node, b"", from.as_deref(), 256, usize::MAX);
        page.rows.iter().for_each(|(key, row)| take(key, row));
        from = page.next;
        if from.is_none() {
            return;
        }
    }
}
