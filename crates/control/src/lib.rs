//! The shell around the control store's machines (docs/internals/control.md): disks below, the network above.

pub mod backup;
mod clock;
pub mod disk;
pub mod embedded;
pub mod net;
pub mod report;
