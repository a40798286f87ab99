//! Connections between processes: what waits for sockets, TLS, frames, and who may talk to whom.
//!
//! ```text
//!   poll       epoll, and a bell that other threads ring
//!   address    host:port, or the path of a unix socket
//!   link       one connection: a non-blocking socket, TLS if it is TCP, frames both ways
//!   inbox      frames that come; the bytes of long ones go on as they come
//!   outbox     what is to be sent, some of it from where it lies
//!   records    TLS of one connection
//!   door       who may wait there: connections whose peers did not say yet who they are
//!   hub        all connections of one purpose: listens, or takes what a desk hands on; dials, shakes hands
//!   name       what a certificate says of its holder: cluster, role, name
//!   authority  makes certificates
//!   tls        what a process shows, and what it accepts
//!   token      what somebody needs to join a cluster, and what the cluster keeps of it
//!   join       how somebody with a token gets a certificate, and renews it
//! ```
//! Frames are of whoever uses the hub (the control store's, those between nodes): a [`Protocol`] says how they become bytes,
//! which of them the hub itself has to understand (the greeting, and the refusal), and whether who says hello is
//! who its certificate says it is.
//!
//! A peer is a *stranger* until its hello was checked; then it is a *member* of the cluster or a *client*. What each may
//! cost is bounded (`base::limits`): strangers in number, time and bytes; clients in number and bytes; members in bytes.

pub mod address;
pub mod authority;
mod dates;
pub mod descriptors;
mod door;
pub mod hub;
mod inbox;
pub mod join;
mod link;
mod link_id;
pub mod name;
mod outbox;
mod peer;
pub mod poll;
mod protocol;
mod records;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod token;

pub use inbox::Landing;
pub use peer::Peer;
pub use protocol::{Admitted, Lent, Malformed, Meaning, NotAdmitted, Protocol, Purpose, Standing};
