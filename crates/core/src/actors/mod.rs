//! Actors: where each one is in its life, who may find it by name, who is told, and from what it starts again.

pub mod life;
pub mod replay;

pub use life::ActorTable;
pub use replay::ReplayLogs;
