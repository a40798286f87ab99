//! Connections of links: which of the hub's they are, and what `hoplo_core::link` wants of them.

use hoplo_base::NodeNumber;
use hoplo_core::link::{self, Connection, Effect, Event, Trouble};
use hoplo_net::hub::{Gone, LinkId};

use super::Word;
use super::bulk::Parcel;
use super::calls::LinkEffect;
use super::ground::End;
use super::protocol::Said;
use super::turn::Turn;
use crate::journal;

impl Turn {
    /// The first message of a connection that somebody else dialled says that it is a link's.
    pub(super) fn link_comes(&mut self, id: LinkId, node: NodeNumber, hello: link::Hello) {
        if hello.from != node {
            // CARRY-1
            let why = format!("{node} speaks as {}", hello.from);
            self.links.remove(&id);
            return self.hub.refuse(id, &why);
        }
        if !self.lives(node) {
            // CARRY-8. It dials again.
            self.links.remove(&id);
            return self.hub.close(id);
        }
        self.accepted += 1;
        let connection = Connection::Accepted(self.accepted);
        self.links.insert(id, End::Link(connection, node));
        self.connections.insert(connection, id);
        self.calls.link(Event::Accepted { connection, hello });
    }

    /// As the decider was told.
    fn lives(&self, node: NodeNumber) -> bool {
        self.nodes.get(&node).is_some_and(|entry| !entry.address.is_empty())
    }

    pub(super) fn link_dialled(&mut self, id: LinkId, connection: Connection, node: NodeNumber) {
        if self.dialled.get(&connection) == Some(&node) {
            self.calls.link(Event::Dialed { connection });
        } else {
            // Another life listens at its address.
            self.hub.close(id);
            self.link_closed(id, connection, &Gone::Refused { address: node.to_string() });
        }
    }

    pub(super) fn link_says(&mut self, connection: Connection, message: link::Message<Parcel>) {
        self.reached(connection);
        self.calls.link(Event::Received { connection, message });
        self.links_act();
    }

    fn reached(&mut self, connection: Connection) {
        if self.unreached.is_empty() {
            return;
        }
        let end = self.connections.get(&connection).and_then(|id| self.links.get(id));
        let Some(&End::Link(_, peer)) = end else { return };
        if self.unreached.reached(peer) {
            self.shared.say(Word::Reached { node: peer });
        }
    }

    pub(super) fn link_closed(&mut self, id: LinkId, connection: Connection, why: &Gone) {
        self.forget_connection(connection);
        self.links.remove(&id);
        let how = match why {
            Gone::Refused { .. } => link::End::Refused,
            Gone::Unfit { .. } | Gone::Broken { .. } => link::End::Broken,
        };
        self.calls.link(Event::Closed { connection, how });
    }

    fn forget_connection(&mut self, connection: Connection) -> Option<LinkId> {
        self.dialled.remove(&connection);
        self.connections.remove(&connection)
    }

    /// Carries out what the links want, until they want no more.
    pub(super) fn links_act(&mut self) {
        while !self.calls.link_effects.is_empty() {
            for effect in std::mem::take(&mut self.calls.link_effects) {
                self.link_acts(effect);
            }
        }
    }

    fn link_acts(&mut self, effect: LinkEffect) {
        match effect {
            Effect::Dial { connection, peer, socket: _ } => self.dial_link(connection, peer),
            Effect::Write { connection, message } => {
                if let Some(&id) = self.connections.get(&connection) {
                    self.hub.send(id, &Said::Link(message));
                }
            }
            Effect::Close { connection } => {
                if let Some(id) = self.forget_connection(connection) {
                    self.links.remove(&id);
                    self.hub.close(id);
                }
            }
            Effect::Deliver { peer, socket, frame } => self.calls.on_deliver(peer, socket, frame),
            Effect::Room { peer, socket } => self.calls.on_room(peer, socket),
            Effect::Lost { peer, why, talk, bulk: _ } => self.calls.on_lost(peer, why, &talk),
            Effect::Trouble { peer, what } => match what {
                // It is dialled again; the members find out whether it lives.
                Trouble::Broken | Trouble::Refused | Trouble::Silent => {
                    let entry = self.nodes.get(&peer);
                    if let Some(since) = entry.and_then(|it| self.unreached.failed(it, &what)) {
                        self.shared.say(Word::Unreached { node: peer, since });
                    }
                }
                Trouble::AnotherLife { .. } | Trouble::Version { .. } | Trouble::Nonsense(_) => {
                    journal::log(format_args!("the link with {peer}: {what:?}"));
                }
            },
            // The members' verdict comes over the control store.
            Effect::Fenced { .. } | Effect::Behind { .. } => {}
        }
    }

    fn dial_link(&mut self, connection: Connection, peer: NodeNumber) {
        let address = self.nodes.get(&peer).map(|entry| entry.address.as_str()).unwrap_or_default();
        if address.is_empty() {
            // It has a number, and did not say yet where it is: it is dialled again.
            return self.calls.link(Event::Closed { connection, how: link::End::Broken });
        }
        let id = self.hub.dial(address);
        self.links.insert(id, End::Link(connection, peer));
        self.connections.insert(connection, id);
        self.dialled.insert(connection, peer);
    }
}
