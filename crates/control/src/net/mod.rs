//! The control store between processes: connections, the server that hosts replicas, the client.
//!
//! ```text
//!   alone:  hub + the one replica of a head, in its daemon's loop
//!   server: hub + Replica machines + their disks + Coordinator machine (+ ConfigStore)
//!   client: hub + Client machine, behind a blocking handle
//!   hub:    one epoll, many links (crates/net)
//! ```
//! Between two processes there may be two connections, one dialled by each: what one sends to another goes
//! over the connection that it dialled; answers go back where the question came from. So there is
//! nothing to agree on, and order is kept in each direction.
//!
//! # Invariants
//! - NET-1: nothing of a connection reaches a machine before both ends have checked the other's `Hello`.
//! - NET-2: a frame that cannot be read, is above its limit, or has no business there ends its connection, is
//!   counted, and touches nothing else.
//!   So does what somebody says in the name of another: who a peer is its certificate says (`who.rs`).
//! - NET-3: bytes that wait for a peer to read are bounded; who does not read is disconnected.
//! - NET-4: a client has one connection to a process, and a replica one for its messages; a newer one replaces
//!   the older, whose unread messages are dropped: nothing old overtakes.

pub mod alone;
pub mod client;
pub mod cluster;
pub mod config_store;
pub mod driver;
mod frame;
pub mod head;
mod question;
pub mod registry;
pub mod seat;
pub mod server;
#[cfg(test)]
mod tests;
mod who;

pub use frame::Frame;
pub use question::Question;

/// All connections of a process of the store.
type Hub = hoplo_net::hub::Hub<frame::Store>;
type Happening = hoplo_net::hub::Happening<frame::Store>;
