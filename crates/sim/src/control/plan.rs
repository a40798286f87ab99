//! What one seed gives: the cluster, its clocks and disks, how it is used and what goes wrong.

use std::time::Duration;

use hoplo_base::Instant;
use hoplo_base::limits::CONTROL_SESSION_IDLE;

use super::disk::LogKind;
use crate::rng::Rng;

#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: u64,
    pub replication: u8,
    pub shards: u16,
    /// The first nodes have a coordinator each.
    pub coordinators: u64,
    pub clients: u64,
    /// Calls of each client, and how many of them at a time.
    pub calls: u64,
    pub calls_at_once: u64,
    pub keys: u64,
    /// Longest think time between calls.
    pub thinks: Duration,
    pub log: LogKind,
    /// Longest delay of most messages.
    pub delay_max: Duration,
    /// Longest write or sync.
    pub disk_max: Duration,
    pub memory_bytes: u64,
    pub recent_bytes: u64,
    pub snapshot_bytes: u64,
    /// So long without a word, and a client's session ends.
    pub session_idle: Duration,
    /// Clocks run up to so many millionths too fast or too slow.
    pub drift_ppm: i64,
    /// Absent: nothing goes wrong.
    pub faults: Option<Faults>,
    /// When all is well, every disk is lost: that is told, and an operator puts up with it.
    pub ends_in_loss: bool,
    pub prints: bool,
}

#[derive(Clone, Debug)]
pub struct Faults {
    pub until: Instant,
    /// Mean time between two.
    pub every: Duration,
    pub kills: bool,
    pub power: bool,
    pub pauses: bool,
    pub cuts: bool,
    pub breaks: bool,
    pub store: bool,
    pub disks: bool,
    pub wishes: bool,
    pub doubles: bool,
    /// Disks are replaced, while another member has all.
    pub wipes: bool,
    /// Logs are damaged, while another member has all.
    pub rots: bool,
    /// Hosts never come back, while enough others are left.
    pub burials: bool,
    /// All processes die at once.
    pub collapses: bool,
}

/// A clock may be so wrong; CONTROL_LEASE_WAIT allows for much more.
pub const DRIFT_PPM_MAX: i64 = 10_000;

impl Plan {
    pub fn new(rng: &mut Rng) -> Self {
        let replication = [1, 2, 2, 3, 3, 3, 4, 5][rng.below(8) as usize];
        let nodes = u64::from(replication) + rng.below(3);
        let fsync = rng.one_in(2);
        let micros = Duration::from_micros;
        let faults = (!rng.one_in(10)).then(|| Faults {
            until: Instant(1_000_000_000 * (3 + rng.below(6))),
            every: micros([20_000, 100_000, 300_000, 800_000][rng.below(4) as usize]),
            kills: !rng.one_in(4),
            power: !rng.one_in(3),
            pauses: rng.one_in(2),
            cuts: rng.one_in(2),
            breaks: rng.one_in(2),
            store: rng.one_in(3),
            disks: rng.one_in(3),
            wishes: rng.one_in(4),
            doubles: rng.one_in(4),
            wipes: rng.one_in(3),
            rots: rng.one_in(3),
            burials: rng.one_in(3),
            collapses: rng.one_in(3),
        });

        Self {
            nodes,
            replication,
            shards: if rng.one_in(4) { 2 } else { 1 },
            coordinators: 1 + rng.below(nodes.min(3)),
            clients: 1 + rng.below(4),
            calls: 10 + rng.below(50),
            calls_at_once: 1 + rng.below(4),
            keys: 1 + rng.below(6),
            thinks: micros([200, 5_000, 100_000, 400_000][rng.below(4) as usize]),
            log: LogKind {
                fsync,
                segment_bytes: [2 << 10, 8 << 10, 64 << 10][rng.below(3) as usize],
                ahead: rng.one_in(2),
                reserves: rng.one_in(4),
            },
            delay_max: micros([100, 500, 2_000, 20_000][rng.below(4) as usize]),
            disk_max: micros([50, 1_000, 30_000][rng.below(3) as usize]),
            memory_bytes: [1 << 14, 1 << 16, 1 << 22][rng.below(3) as usize],
            recent_bytes: [1 << 10, 1 << 13, 1 << 20][rng.below(3) as usize],
            snapshot_bytes: [1 << 12, 1 << 14, 1 << 24][rng.below(3) as usize],
            session_idle: [
                CONTROL_SESSION_IDLE,
                CONTROL_SESSION_IDLE,
                Duration::from_millis(2_000),
                Duration::from_millis(300),
            ][rng.below(4) as usize],
            drift_ppm: if rng.one_in(2) { DRIFT_PPM_MAX } else { 100 },
            faults,
            ends_in_loss: rng.one_in(20),
            prints: std::env::var_os("HOPLO_SIM_PRINT").is_some(),
        }
    }
}

/// A process's own idea of the time: it begins with the process, at 0.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    drift_ppm: i64,
}

impl Clock {
    pub fn new(rng: &mut Rng, drift_ppm: i64) -> Self {
        let drift = rng.below(2 * drift_ppm as u64 + 1) as i64 - drift_ppm;
        Self { began: Instant::ZERO, drift_ppm: drift }
    }

    /// Of a process that starts now on the same host.
    pub fn restarted(self, now: Instant) -> Self {
        Self { began: now, ..self }
    }

    /// By more than a thousandth.
    pub fn drifts(self) -> bool {
        self.drift_ppm.abs() > 1000
    }

    pub fn reads(self, now: Instant) -> Instant {
        let passed = i128::from(now.0) - i128::from(self.began.0);
        let drift = passed * i128::from(self.drift_ppm) / 1_000_000;
        Instant(u64::try_from(passed + drift).expect("nobody asks before it began"))
    }

    /// When it will read that.
    pub fn when(self, reads: Instant) -> Instant {
        let passed = i128::from(reads.0) * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm));
        let mut now = Instant(self.began.0 + passed as u64);
        while self.reads(now) < reads {
            now = Instant(now.0 + 1);
        }
        now
    }
}
