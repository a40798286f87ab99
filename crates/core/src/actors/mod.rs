//! Actors: where each one is in its life, who may find it by name, who is told.

pub mod life;

pub use life::ActorTable;
