//! How a process with a token gets a certificate, and renews it.
//!
//! ```text
//!   who joins                                              control node (desk, its clerk, the store)
//!     --- TLS 1.3, protocol "hoplo-join/1" -------------->  shows its certificate and the authority's
//!     is the authority's fingerprint the token's?
//!     is the certificate a control node's? makes a key
//!     --- Join { token's id, request, two signatures } -->  finds the token; are both signatures right?
//!                                                           clock, dates, role; spends one use; a new number
//!     <-- Joined { number, certificate, members } --------  signs for 24 hours
//!     is the certificate for our key, by that authority?
//!
//!   who renews: the same with "hoplo-renew/1", where both ends show certificates, and Renew { request, one signature }
//! ```
//!
//! # What is proven, to whom, by what
//! - To who joins, that this is a control node of the cluster of its token: the handshake, by a certificate with the role
//!   `control` of an authority whose fingerprint stands in the token. Any node has a certificate by that authority that may serve;
//!   so it is the role that keeps a node from posing as a head.
//! - To the control node, that whoever is at the other end of *this* connection has the token and wants *this*: the token's key
//!   signs the request and a value that TLS exports, which is another one on each connection (RFC 8446, 7.5). The secret never
//!   travels. A signature, and no MAC: `crate::token` says why.
//! - To the control node, that who asks has the key it wants a certificate for: that key signs the same.
//! - To the control node, when it is asked for a renewal, who asks: by the certificate that it shows. The name is taken from
//!   there, so it cannot change.
//!
//! # What a stranger on the wire can do
//! It can read who talks to whom and how much. It can keep them apart, or keep one waiting: everything has a deadline. It
//! cannot do more. If it changes anything, the handshake or a record fails. A message that it records is signed for another
//! connection. If it stands between, it shows another authority, and who joins ends the connection before it has said anything;
//! or it relays the bytes unchanged. Whoever has the token can join as often as the token allows, in its role only.
//!
//! # Whom a port serves
//! What a connection is for stands in its first message (ALPN), and decides what it is served with. So the many connections of
//! those that have certificates go on to require one in the handshake. Had we made certificates optional instead, each
//! place that handles a connection would have to ask whether one was shown, and to forget it once would let in anybody.
//! [`Desk`] holds the port, and hands on whoever does not name one of the two protocols.
//!
//! # A request that is no PKCS#10
//! The request holds a public key, its host's name and a role, in our own codec. A certificate's name is decided here and not by who
//! asks, so nothing else of PKCS#10 would be used; and no reader of ASN.1 has to be trusted with the bytes of strangers.
//!
//! # Invariants
//! - JOIN-1: without a certificate a connection can say nothing but one `Join`, and hears one answer.
//! - JOIN-2: who joins sends nothing before it knows the cluster's authority; it uses no certificate but one for its own key,
//!   in its cluster and role, by that authority.
//! - JOIN-3: nobody gets a certificate without both signatures over this connection and this request; before that nothing is
//!   written for him in the control store, and he hears nothing about the token.
//! - JOIN-4: a use is spent before a number is given, and both before the answer: what goes wrong loses a use and a number, and
//!   gains none. Who asks again is another one.
//! - JOIN-5: what strangers cost is bounded: in number (`crate::door`), bytes and time; those who wait for the control store,
//!   too. None of them keeps the loop, or another one, waiting.
//! - JOIN-6: a renewal keeps the name, and no two have one; who was declared dead gets none.
//!
//! # Who calls it
//! The head opens a [`Desk`] with a [`Registry`] over its control store; the hubs of its daemon take the [`Peer`](crate::Peer)s. `hoplo start
//! --address` calls [`join`], and the daemon calls [`renew`] long before its certificate ends.

mod client;
mod desk;
mod error;
mod judge;
mod listen;
mod proof;
mod stranger;
#[cfg(test)]
mod tests;
mod verifier;

use hoplo_wire::join::{JoinRole, Opening, PROTOCOL, Text};

pub use client::{Admission, Joining, join, renew};
pub use desk::{Counters, Desk, DeskError, DeskOptions};
pub use error::JoinError;
pub use judge::{Registry, SpendError, Unavailable};
pub use listen::{ListenError, PORT, listen};

use crate::name::Role;

fn opening() -> Opening {
    let program = Text::cut(concat!("hoplo ", env!("CARGO_PKG_VERSION")));
    Opening { protocol: PROTOCOL, program }
}

impl From<JoinRole> for Role {
    fn from(role: JoinRole) -> Self {
        match role {
            JoinRole::Control => Role::Control,
            JoinRole::Node => Role::Node,
            JoinRole::Client => Role::Client,
            JoinRole::Operator => Role::Operator,
        }
    }
}

impl From<Role> for JoinRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Control => JoinRole::Control,
            Role::Node => JoinRole::Node,
            Role::Client => JoinRole::Client,
            Role::Operator => JoinRole::Operator,
        }
    }
}
