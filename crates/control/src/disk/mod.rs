//! What a replica keeps on its disk: the log of its history, and rows that left memory.

pub mod cold;
pub mod log;
