//! References between nodes: for one node, decides what it claims elsewhere, who has claimed what is in its charge, and
//! when that may go. After Birrell, Evers, Nelson, Owicki and Wobber, *Distributed Garbage Collection for Network Objects*
//! (1993): each object has a set of nodes, one entry per node, whatever happens inside these nodes (REF-1 to REF-5 there).
//!
//! ```text
//!  a node that uses a foreign object           the node in charge: its home, or the home's heir
//!
//!      (nothing) --first use--> Open ---- Claim / Announce ---->  [set of nodes] with the claimer
//!                                |  <---------- Claimed ---------  (Unknown: there is no such object)
//!                                v
//!                            Confirmed --no support, swept------ Release ---->  [set] without it
//!                                                                        no support, swept --> Free
//!
//!  a sender: hold on what a frame names (cover)  <---- Settled ----  its receiver: all its claims for them are confirmed
//! ```
//!
//! **Support** of an object at a node: uses by parties there (`Held`, `Dropped`), containers in the node's charge, frames
//! that the node sent and nobody settled, and, for who is in charge, the nodes in the set. Who uses a foreign container
//! does not claim what is inside: the container's home does.
//!
//! **Who calls.** The node's composite (`core/node`): it knows the parties, sweeps, hears the node table, and says `Lost`
//! to who waits. The carrier tells of each frame that names refs, when it is sent and when it arrives. A ref whose node the
//! table never had is refused by the composite. Who collects what nodes passed uses [`Passing`]. Nothing here waits for a
//! time, so there is neither `now` nor a deadline.
//!
//! **What is relied on.**
//! - The link gives what one life of a node says to another one in order, each at least once, until one of them is
//!   declared dead; a new connection changes nothing. `Parcel::seq` drops repetitions, and a gap is a `Violation`. Claims and
//!   frames of one pair go over the same link.
//! - `Held` is said before `Arrived` for what a frame gave to a party. So the receiver's claims ride before `Settled`.
//! - `Covered` is said before the frame leaves, and a sweep includes the carrier's queues: a process may drop what lies there
//!   in a frame.
//! - `Contains` is said, or came with `Claimed`, before anybody here reads the value.
//! - `Died` follows all that the carrier took from that node. Nodes hear the table's epochs in order.
//! - Who takes frames from processes bounds how many are unsettled, and how much one names: nothing is refused here.
//!
//! # Invariants
//! - NREF-1: A node that supports an object that is not in its charge has claimed it, and releases it only after the claim
//!   was answered. So a claim and a release of one node never overtake each other, and a set without counts is enough.
//! - NREF-2: Whatever crosses a link and names refs keeps a hold on each at its sender until the receiver says `Settled`, and
//!   that says it when none of its claims for them is open. No reply waits for it.
//! - NREF-3: What has no support goes after a sweep that was asked for since it lost it, and that nothing touched it in.
//! - NREF-4: A dead node stays in the sets, and what was sent to it stays covered, until all nodes that live in one epoch
//!   have passed it, with every death until then. To pass an epoch is to refuse its dead, and then to see all claims
//!   confirmed that were open at that moment. Whatever the dead sent on is then claimed or refused.
//! - NREF-5: A dead home has one heir. At a death every node announces to the heir what it has claimed
//!   of the estate, with the contents that it knows, as a cover, and passes only when the heir has answered. The heir frees
//!   nothing of it, and calls nothing of it unknown, before all have passed the epoch in which it became the heir.
//! - NREF-6: A foreign container is not released while a claim for something that it contains is open here: whoever read
//!   that out of it may be in no set yet.
//!
//! # Stories
//! 1. *Covers to the dead* (NREF-4). B sends x to D, and D sends it on to E. D dies, B hears of it. If B dropped its cover
//!    now, x would be free while E's claim is on its way: D's claim need not have arrived. When all have passed, E's is confirmed.
//! 2. *Two deaths* (NREF-4). A sends x to D and dies; E passes that; D sends x to E and dies. If A were struck when all
//!    who are left have passed A, E's claim might come too late. D did not pass A, so nobody strikes A before all have
//!    passed D as well (`passing.rs`).
//! 3. *An heir that does not know* (NREF-5). D hears of A's death and announces to S, which has not heard of it. S registers D
//!    and holds what it is told of the contents. It frees nothing: it is not in charge yet.
//! 4. *Objects in each other* (NREF-5). The heir confirms an announced container at once, and settles what it contains
//!    later. If the first waited for the second, two containers of each other would wait for ever.
//!
//! # Departures from the plan of the cluster
//! - The row of a dead node names its heir, which gets what it was home of and what it had inherited: so who is in charge follows from the
//!   node table alone, also for nodes that join later and did not see who lived when. Without such a word each finds it by rendezvous.
//! - `Claimed` with contents needs no cover. While the claim stands, the container's home holds them, and NREF-6 keeps it
//!   standing. After the home's death they are held by who announces them.
//! - Acknowledging an epoch and announcing an estate are one thing (`Passed`), as both wait for the same claims.
//! - A container goes a sweep before what only it contained: long lists across nodes go slowly, one link a sweep.

mod check;
mod entry;
mod event;
mod members;
mod on_cover;
mod on_death;
mod on_message;
mod passing;
mod support;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{NodeNumber, ObjectId};

pub use event::{Cover, Effect, Epoch, Event, Message, Parcel};
pub use members::{by_preference, heir};
pub use passing::Passing;

use entry::{Entry, Part};
use members::Members;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claims {
    members: Members,
    entries: BTreeMap<ObjectId, Entry>,
    /// The living that we have spoken with.
    peers: BTreeMap<NodeNumber, Peer>,
    /// What we sent, and what it names.
    unsettled: BTreeMap<(NodeNumber, Cover), Box<[ObjectId]>>,
    /// What arrived, and the claims for it that are open.
    owed: BTreeMap<(NodeNumber, Cover), BTreeSet<ObjectId>>,
    /// The same by object.
    waiting: BTreeMap<ObjectId, BTreeSet<(NodeNumber, Cover)>>,
    /// The last death that we did not say we passed, and the claims that were open when we heard of it.
    passing: Option<(Epoch, BTreeSet<ObjectId>)>,
    /// Without support, and touched since the last sweep was asked for.
    candidates: BTreeSet<ObjectId>,
    /// Without support, and untouched since then.
    sweeping: BTreeSet<ObjectId>,
    sweep_under_way: bool,
    /// Swept containers that NREF-6 keeps.
    deferred: BTreeSet<ObjectId>,
}

/// Between one life of a node and ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Peer {
    sent: u64,
    seen: u64,
    /// The last frame that arrived.
    frame: u64,
}

/// What a node knows about an object, for who has to find out why it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub in_charge: NodeNumber,
    /// Uses by parties of this node.
    pub parties: u32,
    /// Containers that this node holds it for.
    pub containers: u32,
    /// Frames that name it and are not settled.
    pub covers: u32,
    pub registered: Vec<NodeNumber>,
    pub is_claimed: bool,
    pub is_lost: bool,
    pub contents: Option<Box<[ObjectId]>>,
}

impl Claims {
    /// Hears first who joined and who died before, in the order of their epochs, and what all have passed. Then it hears
    /// that it joined itself.
    pub fn new(me: NodeNumber) -> Self {
        Self {
            members: Members::new(me),
            entries: BTreeMap::new(),
            peers: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            owed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            passing: None,
            candidates: BTreeSet::new(),
            sweeping: BTreeSet::new(),
            sweep_under_way: false,
            deferred: BTreeSet::new(),
        }
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Held { object } => self.gain(object, Part::Local, effects),
            Event::Dropped { object } => self.lose(object, Part::Local),
            Event::Contains { container, contents } => {
                self.on_contains(container, contents, effects);
            }
            Event::Covered { to, frame, objects } => {
                self.cover(to, Cover::Frame(frame), objects, effects);
            }
            Event::Arrived { from, frame, objects } => {
                self.on_arrived(from, frame, &objects, effects);
            }
            Event::Received { from, parcel } => self.on_received(from, parcel, effects),
            Event::Swept => self.on_swept(effects),
            Event::Joined { node, epoch } => self.members.joined(node, epoch),
            Event::Died { node, heir, epoch } => self.on_died(node, heir, epoch, effects),
            Event::AllPassed { epoch } => self.on_all_passed(epoch, effects),
        }
        self.say_what_is_passed(effects);
        self.ask_for_sweep(effects);
    }

    /// Homes that have a new heir once that node is dead, and who it is. It is asked before the death is told.
    pub fn heirs_after(
        &self,
        node: NodeNumber,
        heir: Option<NodeNumber>,
    ) -> Vec<(NodeNumber, NodeNumber)> {
        self.members.heirs_after(node, heir)
    }

    /// Whether all nodes have announced what they claim of what that one is, or was, home of (NREF-5).
    pub fn is_announced(&self, home: NodeNumber) -> bool {
        self.members.is_announced(home)
    }

    pub fn knows(&self, object: ObjectId) -> bool {
        self.entries.contains_key(&object)
    }

    /// What is known here of the estates of these nodes.
    pub fn known_of(&self, homes: &BTreeSet<NodeNumber>) -> Vec<ObjectId> {
        let objects = self.entries.keys().copied();
        objects.filter(|object| homes.contains(&object.task.owner.node())).collect()
    }

    /// What was sent from here is claimed by who got it.
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Nothing is left of any object, and nobody waits for us.
    pub fn is_empty(&self) -> bool {
        let nothing_passes = self.passing.is_none() && !self.sweep_under_way;
        self.entries.is_empty()
            && self.unsettled.is_empty()
            && self.owed.is_empty()
            && nothing_passes
    }

    /// Returns the number of the message.
    fn send(&mut self, to: NodeNumber, message: Message, effects: &mut Vec<Effect>) -> u64 {
        assert!(!self.members.is_dead(to), "NREF-4: {to} is dead and is told {message:?}");
        let peer = self.peers.entry(to).or_default();
        peer.sent += 1;
        effects.push(Effect::Send { to, parcel: Parcel { seq: peer.sent, message } });
        peer.sent
    }

    fn violation(&mut self, node: NodeNumber, what: String, effects: &mut Vec<Effect>) {
        effects.push(Effect::Violation { node, what });
    }
}
