//! Who runs where on one node: resources (`local`), and the processes that do the work (`workers`).

pub mod claim;
mod drain;
mod gpus;
mod grant;
mod lines;
pub mod local;
mod recall;
mod stuck;
pub mod workers;

pub use local::LocalScheduler;
pub use workers::WorkerPool;
