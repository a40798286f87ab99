//! Messages between processes, and how they become bytes.
//!
//! Two paths, two codecs:
//! - **Calls and replies** travel through shared-memory rings millions of times a second. They have
//!   a fixed little-endian layout that is written and read in place (`call`, `reply`).
//! - **Notices to and from the node daemon** (`node`) travel over a unix socket, are rare and
//!   have many shapes: serde structs in postcard, each behind a `u32` length. Both ends are always of
//!   one version (checked by `Hello`), so the codec needs no evolution.
//!
//! Both of the latter, and the control store's messages, lie in a stream of bytes as `frames`.
//!
//! Bytes from a peer are never trusted: every parse returns `Malformed`, never panics.

mod arc_bytes;
pub mod assembly;
pub mod bytes;
pub mod call;
pub mod control;
pub mod fold;
pub mod frames;
pub mod join;
pub mod layout;
pub mod member;
pub mod node;
pub mod obituary;
pub mod object;
pub mod peer;
pub mod plain;
pub mod reason;
pub mod register;
pub mod reply;
pub mod shared;
pub mod why;

pub use assembly::Part;
pub use bytes::Malformed;
pub use fold::{Fold, FoldOp, NoReduce, Rest, Ring, Wish};
pub use object::{Failure, FailureKind, Location, Value};
pub use reason::Reason;
pub use shared::Shared;

/// Both ends of every connection must have the same; raised with every change of a layout.
pub const PROTOCOL_VERSION: u32 = 40;
