//! One replica of a shard: a member of its chain, or one that joins it.

mod event;

pub use event::{Effect, Event};
