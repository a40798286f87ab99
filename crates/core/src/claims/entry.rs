//! What a node knows about one object that more than one node may reach.

use hoplo_base::{NodeNumber, ObjectId};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// Uses by parties of this node.
    pub(super) local: u32,
    /// How often it occurs in the contents that this node holds (`holds_contents`).
    pub(super) containers: u32,
    /// How often it occurs in what we sent and nobody settled yet.
    pub(super) covers: u32,
    pub(super) claim: Claim,
    /// Its contents are supported by it here, because it is, or will be, in our charge.
    pub(super) holds_contents: bool,
    /// Nothing while nobody told.
    pub(super) contents: Option<Box<[ObjectId]>>,
    /// Nodes that claimed it here, in order.
    pub(super) registered: Vec<NodeNumber>,
}

/// How we stand with who is in charge of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    /// We are in charge, or nothing here supports it but nodes that know before us that we shall be.
    #[default]
    None,
    Open,
    Confirmed,
    /// It is lost.
    Unknown,
}

/// What may support an object from inside this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Local,
    Container,
    Cover,
}

impl Entry {
    pub(super) fn is_supported(&self) -> bool {
        self.is_supported_here() || !self.registered.is_empty()
    }

    /// By this node itself.
    pub(super) fn is_supported_here(&self) -> bool {
        self.local > 0 || self.containers > 0 || self.covers > 0
    }

    pub(super) fn count(&mut self, part: Part) -> &mut u32 {
        match part {
            Part::Local => &mut self.local,
            Part::Container => &mut self.containers,
            Part::Cover => &mut self.covers,
        }
    }

    pub(super) fn register(&mut self, node: NodeNumber) {
        if let Err(place) = self.registered.binary_search(&node) {
            self.registered.insert(place, node);
        }
    }

    /// Whether it was there.
    pub(super) fn strike(&mut self, node: NodeNumber) -> bool {
        let place = self.registered.binary_search(&node);
        if let Ok(place) = place {
            self.registered.remove(place);
        }
        place.is_ok()
    }
}
