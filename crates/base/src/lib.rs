//! What every room shares: identities, virtual time, resources, limits and deterministic maps.
//!
//! Nothing here does I/O, reads a clock or draws random numbers.

pub mod bundles;
pub mod id;
pub mod labels;
pub mod limits;
pub mod map;
pub mod resources;
pub mod shown;
pub mod size;
pub mod slack;
pub mod time;

pub use id::{
    ActorId, AnyId, FunctionId, GroupId, IdParseError, JobId, LeaseId, NodeId, NodeNumber,
    ObjectId, ProcessId, ShortTask, TaskId,
};
pub use map::{Map, Set};
pub use resources::{ResourceError, ResourceSet};
pub use shown::shown;
pub use size::Size;
pub use time::Instant;
