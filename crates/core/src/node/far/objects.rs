//! Objects of two nodes: what the directory has for others, and what others have for it.

use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_wire::peer::{FarValue, Peer};

use super::Node;
use crate::control::NodeState;
use crate::{objects, transfer};

/// A question for objects that another node asked: `Peer::Want`.
#[derive(Debug)]
pub(super) struct WantAhead {
    from: NodeNumber,
    objects: Vec<ObjectId>,
    /// Nodes that it knows to be dead. Of one of them at least this node has still to hear.
    gone: Vec<NodeNumber>,
}

impl Node {
    /// The daemon's own party in the directory.
    pub(in crate::node) fn haul(&self) -> ProcessId {
        objects::haul(self.config.node)
    }

    /// Whether that node may have copies of what is in our charge, as the node table says now.
    pub(super) fn tell_of_other(&mut self, node: NodeNumber) {
        let entry = self.far.nodes.get(&node);
        let stays = entry.is_some_and(|it| it.state == NodeState::Alive && !it.address.is_empty());
        self.pass_to_objects(objects::Event::Other { node, stays, heir: self.far.heir });
    }

    /// Its home is to tell its value.
    pub(in crate::node) fn ask_home(&mut self, object: ObjectId) {
        let home = object.task.owner.node();
        let asked = self.in_charge(object);
        if self.is_sent_to(asked) {
            return self.send_peer(asked, Peer::Want { objects: vec![object], gone: Vec::new() });
        }
        let why = match self.far.dead.get(&home) {
            Some(why) => format!("{object} is lost: its home node {} died: {why}", home.hex()),
            None => format!(
                "{object} is lost: the process that made it is gone, or every reference to it was dropped, before \
                 this one was used"
            ),
        };
        self.pass_to_objects(objects::Event::Lost { object, why });
    }

    /// Its home told its value. A home that names dead nodes alone has not heard yet that they are: it answers again when it has. Who was told
    /// to fetch it from this node does not wait for that (seed 10007648), nor for what nobody wants here any more.
    pub(super) fn on_value(&mut self, object: ObjectId, value: FarValue, contains: Vec<ObjectId>) {
        if let FarValue::Stored { bytes: 1.., turn, sources: gone } = &value {
            let is_dead = |node| self.far.dead.contains_key(node);
            let names_dead_ones = !gone.is_empty() && gone.iter().all(is_dead);
            let is_here = self.objects.place_of(object).is_some_and(|place| place.is_here);
            if (names_dead_ones && !is_here) || !self.objects.knows(object) {
                self.pass_to_transfer(transfer::Event::NotBegun { object, turn: *turn });
            }
            if names_dead_ones {
                let (objects, gone) = (vec![object], gone.clone());
                return self.send_peer(self.in_charge(object), Peer::Want { objects, gone });
            }
        }
        let told = objects::Event::ValueTold { object, value, contains: contains.clone() };
        self.pass_to_objects(told);
        self.work_off_queue();
        self.on_contents(object, &contains);
    }

    pub(super) fn on_want(
        &mut self,
        from: NodeNumber,
        objects: Vec<ObjectId>,
        gone: Vec<NodeNumber>,
    ) {
        if gone.iter().any(|node| self.is_sent_to(*node)) {
            return self.far.ahead.push(WantAhead { from, objects, gone });
        }
        for object in objects {
            self.pass_to_objects(objects::Event::FarWanted { node: from, object });
        }
    }

    /// This node has heard of the death: it answers who was told of it before.
    pub(super) fn answer_ahead(&mut self, dead: NodeNumber) {
        for WantAhead { from, objects, gone } in std::mem::take(&mut self.far.ahead) {
            if from != dead {
                self.on_want(from, objects, gone);
            }
        }
    }

    /// A far worker made it for a process of ours, whose reply is on its way: it is held until that is here.
    pub(super) fn await_reply(&mut self, caller: ProcessId, worker: ProcessId, object: ObjectId) {
        if self.far.channels.contains(&(caller, worker)) {
            self.far.awaited.entry((caller, worker)).or_default().push(object);
            self.pass_to_objects(objects::Event::NodeHeld { objects: vec![object] });
        }
    }

    /// The caller has its token, or nothing more comes from that worker.
    pub(super) fn reply_came(&mut self, caller: ProcessId, worker: ProcessId, named: &[ObjectId]) {
        let Some(awaited) = self.far.awaited.get_mut(&(caller, worker)) else { return };
        let came: Vec<ObjectId> = awaited.extract_if(.., |object| named.contains(object)).collect();
        if awaited.is_empty() {
            self.far.awaited.remove(&(caller, worker));
        }
        if !came.is_empty() {
            self.pass_to_objects(objects::Event::NodeReleased { objects: came });
        }
    }

    pub(super) fn no_reply_comes(&mut self, caller: ProcessId, worker: ProcessId) {
        if let Some(objects) = self.far.awaited.remove(&(caller, worker)) {
            self.pass_to_objects(objects::Event::NodeReleased { objects });
        }
    }

    /// A word on a copy that is here, and its number. Where nobody will ever say that it may go, it may.
    pub(in crate::node) fn tell_home(&mut self, object: ObjectId, word: u64, message: Peer) {
        let home = self.in_charge(object);
        if self.is_sent_to(home) {
            self.send_peer(home, message);
            self.told_heir(object);
        } else {
            self.pass_to_objects(objects::Event::Forgotten { object, word });
        }
    }
}
