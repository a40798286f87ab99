//! What is not run here, and what it costs: nanoseconds of one core, or of time.

/// `bench/scale.py` measures all of them but `way`, which is an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A message that comes over a connection: the system call, TLS, its frame.
    pub receive: u64,
    /// What a turn wrote for one connection: TLS and the system call.
    pub flush: u64,
    /// One more frame in it.
    pub frame: u64,
    /// And each 1,000 bytes.
    pub kilobyte: u64,
    /// A word from one thread of a daemon to another one that may sleep.
    pub hand_over: u64,
    /// A connection, at each end: TLS 1.3 with certificates of both.
    pub handshake: u64,
    /// At the head: proof, number, certificate of a node that joins, with the connection for that.
    pub join: u64,
    /// The log, once in a turn that changed something.
    pub log: u64,
    /// One way between two machines. That is time, and nobody's work.
    pub way: u64,
    /// A worker is forked, begins and runs its first constructor: at its node.
    pub fork: u64,
}

impl Costs {
    /// About those of a quiet machine with two cores, for tests.
    pub const OF_TWO_CORES: Self = Self {
        receive: 4_000,
        flush: 4_000,
        frame: 300,
        kilobyte: 300,
        hand_over: 1_500,
        handshake: 400_000,
        join: 1_500_000,
        log: 5_000,
        way: 50_000,
        fork: 5_000_000,
    };
}
