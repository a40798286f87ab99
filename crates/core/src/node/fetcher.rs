//! Who asks for a function.

use hoplo_base::{JobId, NodeNumber, ProcessId};

/// A process that needs a function, and for which call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetcher {
    pub process: ProcessId,
    pub job: JobId,
    /// The node of the process that submitted the call first: the function was exported there, whoever adopted the call since.
    pub submitter: NodeNumber,
}
