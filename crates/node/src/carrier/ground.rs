//! What each connection of the carrier is, and where the bytes go that one of a link brings.

use std::collections::BTreeMap;

use hoplo_base::NodeNumber;
use hoplo_core::link::Connection;
use hoplo_net::Landing;
use hoplo_net::hub::LinkId;

use super::bulk::Bulk;
use super::protocol::LandingHead;

/// What a connection is.
pub(super) enum End {
    /// That node dialled, and did not say that it is a link. `is_control`: its certificate is a control node's.
    Node {
        node: NodeNumber,
        is_control: bool,
    },
    Head,
    Probe,
    /// Who is to hear that it is dead, and why.
    Verdict(String),
    Link(Connection, NodeNumber),
}

/// Bytes of pieces go from the hub to their places.
pub(super) struct Ground<'a> {
    pub(super) links: &'a BTreeMap<LinkId, End>,
    pub(super) bulk: &'a mut dyn Bulk,
}

impl Landing for Ground<'_> {
    fn land(&mut self, link: LinkId, head: &[u8], at: usize, bytes: &[u8]) {
        // Elsewhere it has no business, and is told so when it is whole.
        let Some(End::Link(_, node)) = self.links.get(&link) else { return };
        if let Some(LandingHead { ticket, offset, .. }) = LandingHead::parse(head) {
            self.bulk.lands(*node, ticket, offset.saturating_add(at as u64), bytes);
        }
    }
}
