//! Ids as the JSON of answers has them.

use hoplo_base::{JobId, NodeNumber, ProcessId};

pub(super) fn job_id(job: JobId) -> String {
    format!("{:016x}", job.0)
}

pub(super) fn process_id(process: ProcessId) -> String {
    format!("{:016x}", process.0)
}

pub(super) fn node_id(node: NodeNumber) -> String {
    format!("{:06x}", node.number())
}
