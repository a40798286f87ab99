//! Progress bars of workers of other nodes, in the terminals of drivers of this one. A node closes those of its workers that end. Those of
//! a node that died are closed from here.

use std::collections::BTreeSet;

use hoplo_base::{NodeNumber, ProcessId};
use hoplo_wire::node::{BAR_MARK, ToClient};

use crate::node::Node;

/// Nodes, and the drivers that each of them told of bars.
pub(super) type Bars = BTreeSet<(NodeNumber, ProcessId)>;

impl Node {
    pub(super) fn hears_of_bars(&mut self, from: NodeNumber, driver: ProcessId, lines: &[String]) {
        let known = self.processes.contains_key(&driver);
        if known && lines.iter().any(|line| line.contains(BAR_MARK)) {
            self.far.bars.insert((from, driver));
        }
    }

    pub(super) fn close_bars_of_dead(&mut self, node: NodeNumber) {
        let theirs = (node, ProcessId(0))..=(node, ProcessId(u64::MAX));
        let drivers: Vec<ProcessId> = self.far.bars.range(theirs).map(|it| it.1).collect();
        for driver in drivers {
            self.far.bars.remove(&(node, driver));
            // The ids of its processes begin with its own.
            let line = format!("{BAR_MARK}{{\"dead\": \"{:06x}\"}}", node.number());
            let (pid, title, stderr, lines) = (0, String::new(), true, vec![line]);
            self.send(driver, ToClient::Output { pid, title, address: None, stderr, lines });
        }
    }
}
