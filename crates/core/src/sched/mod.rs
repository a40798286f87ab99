//! Who runs where on one node: resources (`local`), and the processes that do the work (`workers`).

pub mod broker;
pub mod bundle;
mod bundles;
pub mod claim;
mod drain;
pub mod environments;
pub mod global;
mod gpus;
mod grant;
pub mod groups;
mod lines;
pub mod local;
mod parked;
pub mod place;
mod recall;
mod stuck;
pub mod workers;

pub use broker::Broker;
pub use environments::Environments;
pub use global::GlobalScheduler;
pub use local::LocalScheduler;
pub use workers::WorkerPool;

#[cfg(test)]
mod world_tests;
