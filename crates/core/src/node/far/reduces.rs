//! Reduces (`crates/core/src/collective`), wired to the directory, to the transfers of this node and to those of others.

use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::{Notice, ToClient};
use hoplo_wire::peer::Peer;
use hoplo_wire::{Fold, Location, NoReduce, Rest, Wish};

use super::Node;
use crate::collective::{self, Member};
use crate::{objects, transfer};

impl Node {
    /// A process of this node wants these folded.
    pub(in crate::node) fn reduce(
        &mut self,
        asker: ProcessId,
        request: u64,
        wish: Wish,
        members: &[ObjectId],
        more: bool,
    ) {
        match self.where_members_lie(members) {
            Ok(members) => {
                let slow = self.objects.slow_nodes();
                let asked = collective::Event::Asked { asker, request, wish, members, more, slow };
                self.pass_to_collective(asked);
            }
            Err(lost) => {
                let no = NoReduce { lost, ..NoReduce::new("a member is in no store", true) };
                self.send(asker, ToClient::Reduced { request, result: Err(no) });
            }
        }
    }

    pub(in crate::node) fn reduce_more(
        &mut self,
        asker: ProcessId,
        request: u64,
        members: &[ObjectId],
        more: bool,
    ) {
        self.pass_to_collective(match self.where_members_lie(members) {
            Ok(members) => collective::Event::More { asker, request, members, more },
            // It may ask for all of them again, and hears then which one is lost.
            Err(_) => collective::Event::GivenUp { asker, request },
        });
    }

    pub(in crate::node) fn reduce_mended(&mut self, asker: ProcessId, request: u64, was: u64) {
        let lost = self.far.collective.lost(asker, was);
        let found = lost.iter().filter_map(|it| self.where_members_lie(&[*it]).ok());
        let members = found.flatten().collect();
        self.pass_to_collective(collective::Event::Mended { asker, request, was, members });
    }

    pub(in crate::node) fn reduce_over(&mut self, asker: ProcessId, request: u64) {
        self.pass_to_collective(collective::Event::GivenUp { asker, request });
    }

    /// What is sealed may be what came of a ring. The other nodes hear so before anybody hears that it is sealed.
    pub(in crate::node) fn note_result(&mut self, process: ProcessId, notice: &Notice) {
        if let Notice::Sealed { object, location, .. } = *notice {
            self.pass_to_collective(collective::Event::Sealed { process, object, location });
        }
    }

    pub(in crate::node) fn process_gone_in_reduces(&mut self, process: ProcessId) {
        self.pass_to_collective(collective::Event::ProcessGone { process });
    }

    pub(super) fn node_gone_in_reduces(&mut self, node: NodeNumber) {
        self.pass_to_collective(collective::Event::NodeGone { node });
    }

    /// Or those that no node has.
    fn where_members_lie(&self, members: &[ObjectId]) -> Result<Vec<Member>, Vec<ObjectId>> {
        let (mut found, mut lost) = (Vec::with_capacity(members.len()), Vec::new());
        for object in members {
            let (bytes, mut nodes) = self.objects.whereabouts(*object).unwrap_or_default();
            nodes.retain(|node| *node == self.me() || self.is_other_node(*node));
            match nodes.is_empty() {
                true => lost.push(*object),
                false => found.push(Member { object: *object, bytes, nodes }),
            }
        }
        if lost.is_empty() { Ok(found) } else { Err(lost) }
    }

    fn pass_to_collective(&mut self, event: collective::Event) {
        let mut effects = Vec::new();
        self.far.collective.handle(self.now, event, &mut effects);
        effects.into_iter().for_each(|effect| self.on_collective(effect));
    }

    fn on_collective(&mut self, effect: collective::Effect) {
        use collective::Effect as From;
        let me = self.me();
        match effect {
            From::Fold { at, fold } if at == me => self.on_fold_asked(me, fold),
            From::Fold { at, fold } => self.send_peer(at, Peer::Fold(fold)),
            From::FoldFrom { at, made, from, upstream, operands } if at == me => {
                self.on_fold_from(me, made, (from, upstream), operands);
            }
            From::FoldFrom { at, made, from, upstream, operands } => {
                self.send_peer(at, Peer::FoldFrom { made, from, upstream, operands });
            }
            From::End { at, made, sealed } if at == me => self.on_fold_over(me, made, sealed),
            From::End { at, made, sealed } => self.send_peer(at, Peer::FoldOver { made, sealed }),
            From::Answer { asker, request, location } => {
                self.send(asker, ToClient::Reduced { request, result: Ok(location) });
            }
            From::PassedSlow { node, bytes, since } => {
                self.pass_to_objects(objects::Event::PassedSlow { node, bytes, since });
            }
            From::Refuse { asker, request, no } => {
                // It may be gone.
                if self.processes.get(&asker).is_some_and(|it| it.stage.has_connection()) {
                    self.send(asker, ToClient::Reduced { request, result: Err(no) });
                }
            }
        }
    }

    pub(super) fn on_fold_asked(&mut self, asker: NodeNumber, fold: Box<Fold>) {
        if self.comes_of_dead(asker, fold.made, fold.from) {
            return;
        }
        self.join_haul();
        self.pass_to_transfer(transfer::Event::FoldAsked { asker, fold });
    }

    /// Of the death of this source the transfers have heard before. Who asked for the fold is told.
    fn comes_of_dead(&mut self, asker: NodeNumber, made: ObjectId, source: NodeNumber) -> bool {
        let is_dead = self.far.dead.contains_key(&source);
        if is_dead {
            self.no_fold(asker, made, format!("node {} is dead", source.hex()), true);
        }
        is_dead
    }

    pub(super) fn on_fold_from(
        &mut self,
        asker: NodeNumber,
        made: ObjectId,
        (from, upstream): (NodeNumber, ObjectId),
        operands: Vec<ObjectId>,
    ) {
        if self.comes_of_dead(asker, made, from) {
            return;
        }
        self.pass_to_transfer(transfer::Event::FoldFrom { asker, made, from, upstream, operands });
    }

    pub(super) fn on_fold_broke(&mut self, from: NodeNumber, made: ObjectId, rest: Rest) {
        self.pass_to_collective(collective::Event::Broke { from, made, rest });
    }

    /// Of the transfers: what it comes from is lost.
    pub(super) fn fold_broke(&mut self, to: NodeNumber, made: ObjectId, rest: Rest) {
        match to == self.me() {
            true => self.on_fold_broke(to, made, rest),
            false => self.send_peer(to, Peer::FoldBroke { made, rest }),
        }
    }

    pub(super) fn on_fold_over(&mut self, asker: NodeNumber, made: ObjectId, sealed: bool) {
        self.pass_to_transfer(transfer::Event::FoldOver { asker, made, sealed });
    }

    pub(super) fn on_no_fold(
        &mut self,
        from: NodeNumber,
        made: ObjectId,
        (why, again): (String, bool),
    ) {
        self.pass_to_collective(collective::Event::Failed { from, made, why, again });
    }

    /// Of the transfers: it cannot be made here.
    pub(super) fn no_fold(&mut self, to: NodeNumber, made: ObjectId, why: String, again: bool) {
        match to == self.me() {
            true => self.on_no_fold(to, made, (why, again)),
            false => self.send_peer(to, Peer::NoFold { made, why, again }),
        }
    }

    /// What a process of this node waits for lies in the store, and is its own.
    pub(super) fn fold_is_whole(&mut self, made: ObjectId, location: Location) {
        let to = self.far.collective.asker(made).expect("what nobody asked for is over");
        self.pass_to_objects(objects::Event::HandedOver { location, to });
        self.pass_to_collective(collective::Event::Made { made, location });
    }
}
