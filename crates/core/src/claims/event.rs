//! What the machine hears, what it asks for, and what two nodes say to each other about references.

use hoplo_base::{NodeNumber, ObjectId};

/// Index of the node table: who is a member, and who is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Something that crosses a link and names refs, as its sender and its receiver call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cover {
    /// The link's number of a frame (a call, a reply, a location).
    Frame(u64),
    /// The `seq` of an `Announce`.
    Announce(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A party of this node (a process, a call at the carrier, a pending lineage) uses the object once more.
    Held {
        object: ObjectId,
    },
    /// It gave one use back.
    Dropped {
        object: ObjectId,
    },
    /// What the object's value names; while it is pending, what its lineage names. Told before anybody here reads it.
    Contains {
        container: ObjectId,
        contents: Box<[ObjectId]>,
    },
    /// The carrier sends a frame that names these. Told before the frame leaves, and in the order of frames.
    Covered {
        to: NodeNumber,
        frame: u64,
        objects: Box<[ObjectId]>,
    },
    /// A frame that names these arrived. `Held` was said before for whatever a party here got from it.
    Arrived {
        from: NodeNumber,
        frame: u64,
        objects: Box<[ObjectId]>,
    },
    Received {
        from: NodeNumber,
        parcel: Parcel,
    },
    /// Whatever was written to sockets and carrier queues before the sweep was asked for has been handed in.
    Swept,
    Joined {
        node: NodeNumber,
        epoch: Epoch,
    },
    /// All that the carrier took from the node was handed in, and it takes no more. `heir`: as its row says, so that who joins later knows
    /// the same. Without one the living find it by themselves.
    Died {
        node: NodeNumber,
        heir: Option<NodeNumber>,
        epoch: Epoch,
    },
    /// Every node that lives in this epoch has passed it (`Passing`).
    AllPassed {
        epoch: Epoch,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    Send {
        to: NodeNumber,
        parcel: Parcel,
    },
    /// Ends with one `Swept`.
    Sweep,
    /// It is in our charge, and nothing in the cluster reaches it.
    Free {
        object: ObjectId,
    },
    /// It is in the charge of another node, and nothing here reaches it any more.
    Forget {
        object: ObjectId,
    },
    /// Who is in charge does not know it: whoever uses it here hears that it is lost.
    Lost {
        object: ObjectId,
    },
    /// To the members: whatever the dead of this epoch sent to us is claimed or refused.
    Passed {
        epoch: Epoch,
    },
    /// The node, or the link to it, does not keep to the protocol: nothing from it can be believed.
    Violation {
        node: NodeNumber,
        what: String,
    },
}

/// A message with its number: 1, 2, 3, ... from one life of a node to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parcel {
    pub seq: u64,
    pub message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// The sender supports the object.
    Claim { object: ObjectId },
    /// The same, to the heir of a dead node, with what the sender knows that the object contains. This is a cover.
    Announce { object: ObjectId, contents: Option<Box<[ObjectId]>> },
    /// The sender of the claim is in the set.
    Claimed { object: ObjectId, contents: Option<Box<[ObjectId]>> },
    /// The object of the claim is unknown.
    Unknown { object: ObjectId },
    /// The sender supports it no more.
    Release { object: ObjectId },
    /// The sender's claims for all that this named are confirmed.
    Settled { cover: Cover },
}
