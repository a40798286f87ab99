//! The machine of one node: its daemon, its store, the rings there, and its carrier. A step happens at one of them.

use std::collections::BTreeSet;

use hoplo_base::{Instant, NodeNumber, ProcessId};
use hoplo_core::node::Event;

use crate::carrier::Carrier;
use crate::cluster::Cluster;
use crate::daemon::Daemon;
use crate::memory::Memory;
use crate::network::Channels;

pub struct Host {
    pub number: NodeNumber,
    pub daemon: Daemon,
    pub memory: Memory,
    /// Of a process here to a worker here, and the end that is here of those to and from other nodes.
    pub channels: Channels,
    pub carrier: Carrier,
    /// What the daemon will hear of memory.
    pub measured: Option<Event>,
    pub slots_used: BTreeSet<usize>,
    /// It was killed, with all that ran there, or has ended.
    pub dead: bool,
    /// To others it is dead, or will be: it ends in order.
    pub fenced: bool,
    /// Nothing runs here before.
    pub frozen_until: Instant,
}

impl Host {
    pub fn new(daemon: Daemon, memory: Memory, carrier: Carrier) -> Self {
        Self {
            number: daemon.node.config().node,
            daemon,
            memory,
            channels: Channels::new(),
            carrier,
            measured: None,
            slots_used: BTreeSet::new(),
            dead: false,
            fenced: false,
            frozen_until: Instant::ZERO,
        }
    }
}

impl Host {
    /// To others, too.
    pub fn goes_on(&self) -> bool {
        !self.dead && !self.fenced
    }
}

impl Cluster {
    /// What follows happens at that node.
    pub fn goes_to(&mut self, node: NodeNumber) {
        if self.here.number != node {
            let there = self.away.remove(&node).expect("a node that began");
            let left = std::mem::replace(&mut self.here, there);
            self.away.insert(left.number, left);
        }
    }

    pub fn host(&self, node: NodeNumber) -> &Host {
        if self.here.number == node { &self.here } else { &self.away[&node] }
    }

    pub fn host_mut(&mut self, node: NodeNumber) -> &mut Host {
        match self.here.number == node {
            true => &mut self.here,
            false => self.away.get_mut(&node).expect("a node that began"),
        }
    }

    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        std::iter::once(&*self.here).chain(self.away.values().map(|host| &**host))
    }

    /// Those that live, in order.
    pub fn living(&self) -> Vec<NodeNumber> {
        let living = self.hosts().filter(|host| !host.dead).map(|host| host.number);
        let mut living: Vec<NodeNumber> = living.collect();
        living.sort_unstable();
        living
    }

    /// With its daemon.
    pub fn is_open(&self, process: ProcessId) -> bool {
        let host = self.host(process.node());
        !host.dead && host.daemon.open.contains(&process)
    }
}
