//! Who hears what: messages of our processes about what is at home elsewhere go there, and are decided there.

use hoplo_base::{JobId, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::{ActorState, GroupState, Notice, ToClient, ToNode};
use hoplo_wire::peer::{Gained, Known, Peer};

use super::Node;
use super::references::each_once;
use crate::claims;
use crate::node::Effect;
use crate::objects;
use crate::sched::claim::Claimant;

impl Node {
    /// Of a process of ours: where this is decided, if not here.
    pub(in crate::node) fn decided_at(&self, message: &ToNode) -> Option<NodeNumber> {
        let node = match message {
            ToNode::LeaseReturn { lease } => lease.node(),
            ToNode::Retires { worker }
            | ToNode::KillWorker { worker }
            | ToNode::ChannelBroken { worker, .. } => worker.node(),
            ToNode::Tell { to, .. } => to.node(),
            ToNode::ActorWatch { actor }
            | ToNode::ActorKill { actor, .. }
            | ToNode::ActorStarted { actor, .. }
            | ToNode::ActorExit { actor }
            | ToNode::ActorFailed { actor, .. }
            | ToNode::CallLogged { actor, .. }
            | ToNode::Checkpointed { actor, .. } => self.charge_of(*actor),
            ToNode::GroupRemove { group }
            | ToNode::GroupWatch { group, .. }
            | ToNode::GroupUnwatch { group, .. } => self.planner_of(*group),
            // A head plans it, or a node that has none. Who joined a head asks it (`far/groups`).
            ToNode::GroupCreate { .. }
            | ToNode::Hello { .. }
            | ToNode::Job(_)
            | ToNode::LeaseDemand { .. }
            | ToNode::Blocked
            | ToNode::Unblocked
            | ToNode::Connect { .. }
            | ToNode::TookOver { .. }
            | ToNode::Title { .. }
            | ToNode::ExtentWant { .. }
            | ToNode::ExtentReturn { .. }
            | ToNode::ExtentRecalled
            | ToNode::Notices(_)
            | ToNode::Want { .. }
            | ToNode::WantWord { .. }
            | ToNode::Misplaced { .. }
            | ToNode::Reduce { .. }
            | ToNode::ReduceMore { .. }
            | ToNode::ReduceMended { .. }
            | ToNode::ReduceOver { .. }
            | ToNode::Assemble { .. }
            | ToNode::AssembleOver { .. }
            | ToNode::Export { .. }
            | ToNode::Fetch { .. }
            | ToNode::ActorCreate { .. }
            | ToNode::ActorLookup { .. }
            | ToNode::RevokeFar { .. }
            | ToNode::Kv { .. }
            | ToNode::Query { .. }
            | ToNode::Inspected { .. }
            | ToNode::Explained { .. }
            | ToNode::Counted(_)
            | ToNode::Ran(_)
            | ToNode::Stop => return None,
        };
        Some(node).filter(|node| self.is_far(*node))
    }

    /// A process of ours speaks of what is at home at `node`.
    pub(in crate::node) fn forward(&mut self, node: NodeNumber, from: ProcessId, message: ToNode) {
        if !self.is_sent_to(node) {
            return self.not_forwarded(node, from, &message);
        }
        if let ToNode::LeaseReturn { lease } = &message {
            self.far.leases.remove(lease);
        }
        let job = self.processes.get(&from).map_or(JobId(0), |process| process.job);
        self.deal(from, node);
        if let ToNode::GroupCreate { .. } = &message {
            self.tell_job(node, job); // a group ends with its job
        }
        if let ToNode::ActorWatch { actor } = &message {
            self.far.watched.entry(from).or_default().insert(*actor);
        }
        self.remember_said(from, &message);
        let started = matches!(message, ToNode::ActorStarted { .. });
        self.send_peer(node, Peer::From { process: from, job, message: Box::new(message) });
        if started {
            self.constructor_returned(from);
        }
    }

    /// Who asks about what was at home at a node that is not there hears so.
    fn not_forwarded(&mut self, node: NodeNumber, from: ProcessId, message: &ToNode) {
        match message {
            ToNode::ActorWatch { actor } => {
                let state = self.lost_actor(*actor, node);
                self.send(from, ToClient::ActorState { actor: *actor, state });
            }
            ToNode::GroupWatch { request, group } => {
                let why = format!("its node ({}) is not there", group.node());
                let state = GroupState::Removed { why };
                self.send(from, ToClient::GroupState { request: *request, state });
            }
            // Whoever it is about is gone, and that is told otherwise.
            _ => {}
        }
    }

    /// That node has to hear when this process of ours is gone.
    pub(super) fn deal(&mut self, process: ProcessId, node: NodeNumber) {
        self.far.dealt.entry(process).or_default().insert(node);
    }

    /// FAR-1, FAR-2.
    pub(in crate::node) fn send_peer(&mut self, to: NodeNumber, message: Peer) {
        if !self.is_sent_to(to) {
            return;
        }
        let named = named(&message);
        let cover = self.cover(to, named);
        self.out.push(Effect::SendPeer { to, cover, message: Box::new(message) });
    }

    /// 0: it names nothing.
    pub(super) fn cover(&mut self, to: NodeNumber, mut named: Vec<ObjectId>) -> u64 {
        named.retain(|object| self.may_be(*object));
        if named.is_empty() {
            return 0;
        }
        #[cfg(test)]
        if self.is_sabotaged(super::Sabotage::Cover) {
            return 0;
        }
        let last = self.far.covers.entry(to).or_insert(0);
        *last += 1;
        let frame = *last;
        self.cross(&named);
        let objects = named.into();
        self.pass_to_claims(claims::Event::Covered { to, frame, objects });
        frame
    }

    /// From a machine of ours, or a process, to a process of another node.
    pub(in crate::node) fn send_far(&mut self, to: ProcessId, message: ToClient) {
        self.send_peer(to.node(), Peer::To { process: to, message: Box::new(message) });
    }

    /// What a far node has for a process of ours. It brings the tokens that a daemon gives.
    pub(super) fn deliver(&mut self, from: NodeNumber, to: ProcessId, mut message: ToClient) {
        if let ToClient::Output { address, .. } = &mut message {
            *address = self.far.host_address(from);
        }
        match &message {
            ToClient::LeaseGranted { lease, worker, key, .. } => {
                if !self.processes.contains_key(&to) {
                    return; // its node hears, or heard, that it is gone
                }
                let leased = super::Leased { holder: to, worker: *worker };
                self.far.leases.insert(*lease, leased);
                self.deal(to, from);
                self.granted_at(Claimant::Demand { process: to, key: *key }, from);
            }
            ToClient::LeaseFailed { key, .. } => {
                self.failed_at(Claimant::Demand { process: to, key: *key }, from);
            }
            // One part of what it waits for does: the broker knows the others.
            ToClient::LeaseStuck { key, reason, infeasible } => {
                let claimant = Claimant::Demand { process: to, key: *key };
                return self.stuck_there(from, claimant, reason.clone(), *infeasible);
            }
            ToClient::GroupCreated { .. } | ToClient::GroupState { .. } => {
                self.planner_answered(to, &message);
            }
            ToClient::ActorState { actor, state: ActorState::Dead { .. } } => {
                self.watches_no_more(to, *actor);
            }
            ToClient::Output { lines, .. } => self.hears_of_bars(from, to, lines),
            ToClient::ActorFound { request, found } => {
                // Else it was given up, and whoever asked has heard so.
                if let Some(ask) = self.name_asked(to, *request) {
                    self.on_actor_found(ask, found.clone());
                }
                return;
            }
            _ => {}
        }
        self.send(to, message);
    }

    pub(super) fn give_token(&mut self, object: ObjectId, process: ProcessId) {
        // Only who has joined the directory holds.
        if self.processes.get(&process).is_some_and(|it| it.stage.ticket().is_none()) {
            let notice = Notice::Hold { object, process };
            self.pass_to_objects(objects::Event::Noticed { from: process, notice });
        }
    }
}

/// Refs that whoever gets it may use.
pub(super) fn named(message: &Peer) -> Vec<ObjectId> {
    match message {
        Peer::Value { contains, .. } | Peer::Sealed { contains, .. } => contains.clone(),
        Peer::From { message, .. } => match &**message {
            ToNode::CallLogged { call, .. } => each_once(&call.contains),
            ToNode::Checkpointed { checkpoint, .. } => each_once(&checkpoint.contains),
            _ => Vec::new(),
        },
        Peer::KeepCopy { object, .. } => vec![*object],
        Peer::Known { known, .. } | Peer::HandOver { known, .. } => named_by(known),
        Peer::KeepActor { known, .. } | Peer::ActorKnown(known) => {
            let mut named = known.spec.contains.clone();
            named.extend(known.replay.iter().flat_map(|replay| replay.contains()));
            each_once(&named)
        }
        Peer::KeepLog { gained, .. } => match gained {
            Gained::Call(call) => each_once(&call.contains),
            Gained::Checkpoint(checkpoint) => each_once(&checkpoint.contains),
        },
        Peer::Lineage { lineage, .. } | Peer::Adopt { lineage, .. } => lineage.contains.clone(),
        Peer::RunActor { spec, replay, .. } => {
            let mut named = spec.contains.clone();
            if let Some(replay) = replay {
                named.extend(replay.contains());
                named = each_once(&named);
            }
            named.push(spec.actor.handle());
            named
        }
        Peer::To { message, .. } => match &**message {
            ToClient::ActorFound { found: Some(found), .. } if found.dead.is_none() => {
                vec![found.actor.handle()]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

pub(super) fn named_by(known: &Known) -> Vec<ObjectId> {
    match known {
        Known::Copy { contains, .. } | Known::Inline { contains, .. } => contains.clone(),
        Known::Lineage(lineage) => lineage.contains.clone(),
        Known::Failed(_) => Vec::new(),
    }
}
