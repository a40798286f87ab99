//! Local schedulers, brokers and the global scheduler of several nodes, with messages between them, in virtual time.

mod daemon;
mod random;
mod stories;
mod world;
