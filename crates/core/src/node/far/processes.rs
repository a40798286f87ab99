//! Channels between processes of two nodes, and the end of either.

use std::collections::BTreeSet;

use hoplo_base::{JobId, NodeNumber, ProcessId};
use hoplo_wire::node::{Obituary, ToClient};
use hoplo_wire::peer::Peer;

use super::members::of_dead_node;
use super::{Node, Stranger};
use crate::actors::life;
use crate::node::Effect;
use crate::node::sweeps::Deferred;
use crate::sched::{groups, local, workers};

impl Node {
    /// A process of ours made a channel for its calls to a far worker.
    pub(in crate::node) fn connect_far(&mut self, caller: ProcessId, worker: ProcessId) {
        let node = worker.node();
        let gone = match self.far.dead.get(&node) {
            // It heard that its worker was gone before it was known to call it: its calls stay in their ring, which tells
            // that none of them began.
            _ if self.is_sent_to(node) => self.grave_of(worker).cloned(),
            Some(why) => Some(of_dead_node(node, why)),
            None => Some(of_dead_node(node, "it is no node of this cluster")),
        };
        if let Some(obituary) = gone {
            let unstarted = Vec::new();
            let gone = ToClient::ProcessGone { process: worker, obituary, unstarted };
            return self.send(caller, gone);
        }
        self.far.channels.insert((caller, worker));
        self.deal(caller, node);
        let job = self.processes.get(&caller).map_or(JobId(0), |process| process.job);
        self.tell_job(node, job);
        self.out.push(Effect::OpenFar { caller, worker });
        self.send_peer(node, Peer::Connect { caller, worker });
    }

    /// `caller`, of another node, is about to call a worker of ours.
    pub(super) fn on_far_connect(&mut self, caller: ProcessId, worker: ProcessId) {
        self.says_on();
        let Some(target) = self.processes.get_mut(&worker) else {
            let obituary = self.obituary_of(worker);
            return self.out.push(Effect::WorkerGone { caller, worker, obituary });
        };
        target.peers.insert(caller);
        let speaks = target.stage.has_connection();
        self.stranger(caller).workers.insert(worker);
        self.replies_begin(caller, worker);
        if !speaks {
            return; // it is dying: the caller hears how it died once that is known
        }
        self.out.push(Effect::ServeFar { caller, worker });
        self.pass_to_pool(workers::Event::Connected { worker, peer: caller });
    }

    /// All replies are in the caller's ring.
    pub(in crate::node) fn on_channel_ended(
        &mut self,
        caller: ProcessId,
        worker: ProcessId,
        unstarted: Vec<u64>,
        obituary: Obituary,
    ) {
        self.far.channels.remove(&(caller, worker));
        self.no_reply_comes(caller, worker);
        self.far.leases.retain(|_, leased| leased.worker != worker);
        self.send(caller, ToClient::ProcessGone { process: worker, obituary, unstarted });
    }

    /// A process of ours is buried: nodes that it dealt with, and those that deal with it, hear so.
    pub(in crate::node) fn gone_to_others(&mut self, id: ProcessId, obituary: &Obituary) {
        let own = (id, ProcessId(0))..=(id, ProcessId(u64::MAX));
        let own: Vec<(ProcessId, ProcessId)> = self.far.channels.range(own).copied().collect();
        for (caller, worker) in own {
            self.far.channels.remove(&(caller, worker));
            self.no_reply_comes(caller, worker);
            self.out.push(Effect::CloseFar { caller, worker });
        }
        self.far.leases.retain(|_, leased| leased.holder != id);
        self.far.group_asks.forget(id);
        self.far.watched.remove(&id);
        self.far.bars.retain(|(_, driver)| *driver != id);
        let mut nodes: BTreeSet<NodeNumber> = self.far.dealt.remove(&id).unwrap_or_default();
        self.let_arguments_go(id);
        self.known_worker_gone(id);
        if let Some(hosted) = self.far.hosted.remove(&id) {
            nodes.insert(self.charge_of(hosted.actor));
            self.ends_mirror(hosted.actor);
        }
        let lease = self.scheduler.lease_on(id).map(|lease| lease.claimant);
        if let Some(crate::sched::claim::Claimant::Demand { process, .. }) = lease {
            nodes.insert(process.node());
        }
        nodes.remove(&self.me());
        for node in nodes {
            self.send_peer(node, Peer::Gone { process: id, obituary: obituary.clone() });
        }
    }

    /// The worker, ours, of a far caller is gone: that one hears it behind its last reply.
    pub(in crate::node) fn worker_gone_far(
        &mut self,
        caller: ProcessId,
        worker: ProcessId,
        obituary: &Obituary,
    ) {
        if let Some(stranger) = self.far.strangers.get_mut(&caller) {
            stranger.workers.remove(&worker);
        }
        self.calls_over(caller, worker);
        self.out.push(Effect::WorkerGone { caller, worker, obituary: obituary.clone() });
        // FAR-4: what it wrote lies in its ring, and passes before a sweep from now on ends.
        self.sweeps.defer(Deferred::Replies { worker, caller });
    }

    /// A process of another node is gone: a caller, a worker, or both.
    pub(super) fn on_gone(&mut self, process: ProcessId, obituary: &Obituary) {
        self.known_worker_gone(process);
        self.far_worker_gone(process, obituary);
        self.stranger_gone(process, obituary);
        let obituary = obituary.clone();
        self.pass_to_actors(life::Event::ProcessGone { process, obituary });
    }

    fn takes_over(&self, worker: ProcessId) -> bool {
        #[cfg(test)]
        if self.is_sabotaged(super::Sabotage::TakeOver) {
            return false;
        }
        self.speaks(worker)
    }

    pub(super) fn stranger_gone(&mut self, process: ProcessId, obituary: &Obituary) {
        let Some(Stranger { workers, .. }) = self.far.strangers.remove(&process) else { return };
        let mut told = false;
        for worker in workers {
            if let Some(worker) = self.processes.get_mut(&worker) {
                worker.peers.remove(&process);
            }
            if !self.takes_over(worker) {
                self.calls_over(process, worker);
            } // else they are over when it has told what it uses
            self.replies_ended(process, worker);
            self.out.push(Effect::CloseFar { caller: process, worker });
            if self.far.channels.contains(&(worker, process)) {
                continue; // it calls back: it hears this behind the last reply to it (CARRY-6)
            }
            let (obituary, unstarted) = (obituary.clone(), Vec::new());
            self.send(worker, ToClient::ProcessGone { process, obituary, unstarted });
            told = true;
        }
        if told {
            self.dig_grave(process, obituary.clone()); // one of them may be about to call it
        }
        self.pass_to_scheduler(local::Event::ProcessGone { process });
        self.pass_to_groups(groups::Event::ProcessGone { process });
        let obituary = obituary.clone();
        self.pass_to_actors(life::Event::ProcessGone { process, obituary });
    }
}
