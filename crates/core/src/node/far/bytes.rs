//! Bytes of objects between nodes: the transfers, wired to the directory, to the shell, and to other nodes.

use hoplo_base::limits::ASSEMBLY_PARTS_MAX;
use hoplo_base::{Instant, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::{Notice, ToClient};
use hoplo_wire::peer::Peer;
use hoplo_wire::{Location, Part};

use super::Node;
use crate::node::Effect;
use crate::objects;
use crate::transfer::{self, Done};

impl Node {
    pub(super) fn pass_to_transfer(&mut self, event: transfer::Event) {
        let mut effects = Vec::new();
        self.far.transfer.handle(self.now, event, &mut effects);
        effects.into_iter().for_each(|effect| self.on_transfer(effect));
    }

    fn on_transfer(&mut self, effect: transfer::Effect) {
        use transfer::Effect as From;
        let from = self.haul();
        match effect {
            From::WantRoom { request, bytes, slots } => {
                self.pass_to_objects(objects::Event::ExtentWanted { from, request, bytes, slots });
            }
            From::ReturnRoom { offset, len } => {
                self.pass_to_objects(objects::Event::ExtentReturned { from, offset, len });
            }
            From::AnswerRecall => self.pass_to_objects(objects::Event::ExtentRecalled { from }),
            From::Seal { object, location } => self.seal_pulled(object, location),
            From::SealMade { object, location } => {
                self.pass_to_objects(objects::Event::MadeHere { object });
                self.seal_pulled(object, location);
            }
            From::HandOver { made, location } => self.fold_is_whole(made, location),
            From::FoldBroke { to, made, rest } => self.fold_broke(to, made, rest),
            From::NoFold { to, made, why, again } => self.no_fold(to, made, why, again),
            From::Want { object } => {
                let need = objects::Need::Bytes;
                let wanted = objects::Event::Wanted { from, objects: vec![object], need };
                self.pass_to_objects(wanted);
            }
            From::WantForHome { object } => {
                self.pass_to_objects(objects::Event::AskedByHome { object });
            }
            From::PullFailed { object, why, lost } => {
                self.pass_to_objects(objects::Event::PullFailed { object, why, lost });
            }
            From::PullDenied { object, failure } => {
                self.pass_to_objects(objects::Event::PullDenied { object, failure });
            }
            From::Order(order) => self.out.push(Effect::Haul { order }),
            From::Fetch { to, ticket, object, offset, until, turn } => {
                self.send_peer(to, Peer::FetchBytes { ticket, object, offset, until, turn });
            }
            From::Assembled { asker, request, location } => {
                self.pass_to_objects(objects::Event::HandedOver { location, to: asker });
                self.send(asker, ToClient::Assembled { request, result: Ok(location) });
            }
            From::NotAssembled { asker, request, why } => {
                self.not_assembled(asker, request, why);
            }
            From::NoBytes { to, ticket, why } => self.send_peer(to, Peer::NoBytes { ticket, why }),
            From::Enough { to, ticket } => self.send_peer(to, Peer::Enough { ticket }),
            From::Slow { to, ticket } => self.send_peer(to, Peer::Slow { ticket }),
            From::Waits { to, ticket } => self.send_peer(to, Peer::Waits { ticket }),
            From::Lags { object, node, turn } => {
                let charge = self.in_charge(object);
                if charge == self.me() {
                    self.lags(charge, object, node, turn);
                } else {
                    self.send_peer(charge, Peer::Lags { object, node, turn });
                }
            }
        }
    }

    fn seal_pulled(&mut self, object: ObjectId, location: Location) {
        let from = self.haul();
        let notice = Notice::Sealed { object, location, contains: Vec::new(), holder: from };
        self.pass_to_objects(objects::Event::Noticed { from, notice });
    }

    /// A node that never hauls has no party for it.
    pub(super) fn join_haul(&mut self) {
        if !std::mem::replace(&mut self.far.hauls, true) {
            let process = self.haul();
            self.pass_to_objects(objects::Event::ProcessJoined { process, slots: 0 });
        }
    }

    /// The directory has this for the haul.
    pub(in crate::node) fn far_haul_told(&mut self, message: ToClient) {
        self.pass_to_transfer(transfer::Event::told(message));
    }

    pub(in crate::node) fn far_pull(
        &mut self,
        object: ObjectId,
        bytes: u64,
        turn: u64,
        mut sources: Vec<NodeNumber>,
    ) {
        self.join_haul();
        // One whose row is on its way here can be reached when it has come.
        sources.retain(|node| self.is_sent_to(*node));
        sources.sort_by_key(|node| !self.is_other_node(*node));
        self.pass_to_transfer(transfer::Event::Begin { object, bytes, turn, sources });
    }

    pub(in crate::node) fn on_hauled(&mut self, done: Done) {
        self.pass_to_transfer(transfer::Event::Done(done));
    }

    pub(super) fn on_bytes_wanted(
        &mut self,
        from: NodeNumber,
        ticket: u64,
        object: ObjectId,
        (offset, until): (u64, u64),
        turn: u64,
    ) {
        self.join_haul();
        let is_here = self.objects.place_of(object).is_some_and(|place| place.is_here);
        self.pass_to_transfer(transfer::Event::Asked {
            from,
            ticket,
            object,
            offset,
            until,
            turn,
            is_here,
        });
    }

    /// A process of this node wants these parts in one room.
    pub(in crate::node) fn assemble(
        &mut self,
        asker: ProcessId,
        request: u64,
        bytes: u64,
        parts: Vec<Part>,
    ) {
        if !fits(bytes, &parts) {
            return self.violation(asker, "wants parts that do not fit together");
        }
        if let Some(part) = parts.iter().find(|part| !self.is_other_node(part.node)) {
            let why = format!("node {} is not there", part.node.hex());
            return self.not_assembled(asker, request, why);
        }
        self.join_haul();
        self.pass_to_transfer(transfer::Event::AssembleAsked { asker, request, bytes, parts });
    }

    pub(in crate::node) fn assemble_over(&mut self, asker: ProcessId, request: u64) {
        self.pass_to_transfer(transfer::Event::AssembleOver { asker, request });
    }

    pub(in crate::node) fn process_gone_in_transfers(&mut self, process: ProcessId) {
        self.pass_to_transfer(transfer::Event::ProcessGone { process });
    }

    fn not_assembled(&mut self, asker: ProcessId, request: u64, why: String) {
        // It may be gone.
        if self.processes.get(&asker).is_some_and(|it| it.stage.has_connection()) {
            self.send(asker, ToClient::Assembled { request, result: Err(why) });
        }
    }

    /// What is being written to the room with this slot.
    pub fn comes_to(&self, slot: u32) -> Option<ObjectId> {
        self.far.transfer.comes_to(slot)
    }

    pub(in crate::node) fn transfer_deadline(&self) -> Option<Instant> {
        self.far.transfer.next_deadline()
    }

    pub(in crate::node) fn transfer_tick(&mut self) {
        self.pass_to_transfer(transfer::Event::Tick);
    }

    pub(super) fn on_slow(&mut self, from: NodeNumber, ticket: u64) {
        self.pass_to_transfer(transfer::Event::Slow { from, ticket });
    }

    pub(super) fn on_waits(&mut self, from: NodeNumber, ticket: u64) {
        self.pass_to_transfer(transfer::Event::Waits { from, ticket });
    }

    /// The first one relays it to that node, which lags.
    pub(super) fn lags(&mut self, by: NodeNumber, object: ObjectId, node: NodeNumber, turn: u64) {
        self.pass_to_objects(objects::Event::FarLags { by, node, object, turn });
    }

    pub(in crate::node) fn now_from(
        &mut self,
        object: ObjectId,
        turn: u64,
        now: u64,
        mut sources: Vec<NodeNumber>,
    ) {
        sources.retain(|node| self.is_other_node(*node));
        self.pass_to_transfer(transfer::Event::NowFrom { object, turn, now, sources });
    }

    pub(super) fn on_no_bytes(&mut self, from: NodeNumber, ticket: u64, why: String) {
        self.pass_to_transfer(transfer::Event::NoBytes { from, ticket, why });
    }

    pub(super) fn on_enough(&mut self, from: NodeNumber, ticket: u64) {
        self.pass_to_transfer(transfer::Event::Enough { from, ticket });
    }
}

/// They have some bytes each, one behind the other, and no more than there are.
fn fits(bytes: u64, parts: &[Part]) -> bool {
    let mut end = 0;
    let all = parts.iter().all(|part| {
        let (begin, before) = (part.at, end);
        let (from, at) = (part.from.checked_add(part.len), part.at.checked_add(part.len));
        end = at.unwrap_or(u64::MAX);
        part.len > 0 && from.is_some() && begin >= before && end <= bytes
    });
    all && bytes > 0 && parts.len() <= ASSEMBLY_PARTS_MAX
}
