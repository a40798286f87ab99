//! Connections between processes: what waits for sockets, TLS, frames, and who may talk to whom.
//!
//! ```text
//!   poll      epoll, and a bell that other threads ring
//!   address   host:port, or the path of a unix socket
//!   link      one connection: a non-blocking socket, TLS if it is TCP, frames both ways
//!   hub       all connections of one process: listens, dials, shakes hands
//!   tls       what a process shows, and what it accepts
//! ```
//! Frames are of whoever uses the hub (the control store's, those between nodes): a [`Protocol`] says how they become bytes,
//! and which of them the hub itself has to understand: the greeting, and the refusal.

pub mod address;
pub mod hub;
mod link;
pub mod poll;
mod protocol;
pub mod tls;

pub use protocol::{Malformed, Meaning, Protocol};
