//! What a replica says about itself, the same on one node and in a cluster: JSON, and Prometheus' text form.

use std::fmt::Write;
use std::path::Path;

use hoplo_core::control::replica::{Replica, Role, Status};
use serde_json::{Value, json};

use crate::disk::cold::Usage;

/// One replica, with its disk.
pub struct ShardReport {
    status: Status,
    story: String,
    /// Rows on disk that are not in memory.
    archive: Usage,
    disk: DiskUse,
    /// A log or an archive that was damaged: where it lies now.
    set_aside: Option<String>,
}

/// Bytes of files.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskUse {
    pub log: u64,
    pub cold: u64,
}

impl DiskUse {
    /// Of all that lies below this folder.
    pub fn of(folder: &Path) -> Self {
        let mut found = Self::default();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(what) = entry.metadata() else { continue };
            if what.is_dir() {
                let below = Self::of(&entry.path());
                found.log += below.log;
                found.cold += below.cold;
            } else if entry.file_name().to_string_lossy().starts_with("cold.") {
                found.cold += what.len();
            } else {
                found.log += what.len();
            }
        }
        found
    }
}

impl ShardReport {
    pub fn new(
        replica: &Replica,
        archive: Usage,
        folder: &Path,
        set_aside: Option<String>,
    ) -> Self {
        let (status, story, disk) = (replica.status(), replica.story(), DiskUse::of(folder));
        Self { status, story, archive, disk, set_aside }
    }

    pub fn json(&self) -> Value {
        let status = &self.status;
        let role = match status.role {
            Role::Outside => "outside",
            Role::Joining => "joining",
            Role::Member { place: 0, of: 1 } => "head and tail",
            Role::Member { place: 0, .. } => "head",
            Role::Member { place, of } if place + 1 == of => "tail",
            Role::Member { .. } => "middle",
        };
        json!({
            "shard": status.shard.0, "epoch": status.epoch.0, "role": role,
            "acts": status.acts == Some(status.epoch), "caught_up": status.caught_up,
            "logged": status.logged, "stable": status.stable, "committed": status.committed,
            "applied": status.applied, "lag": status.lag, "rows": status.rows,
            "memory_bytes": status.memory_bytes, "memory_cap": status.memory_cap,
            "history_bytes": status.history_bytes, "pending_bytes": status.pending_bytes,
            "sessions": status.sessions, "subscriptions": status.subscriptions,
            "log_disk_bytes": self.disk.log, "cold_disk_bytes": self.disk.cold,
            "cold_rows": self.archive.rows, "cold_bytes": self.archive.bytes,
            "disk": status.disk, "set_aside": self.set_aside, "story": self.story,
        })
    }
}

type Metric = (&'static str, &'static str, fn(&ShardReport) -> u64);

const METRICS: [Metric; 19] = [
    ("epoch", "Epoch of the chain's configuration", |it| it.status.epoch.0),
    ("acts", "1 if the replica acts in that epoch", |it| {
        (it.status.acts == Some(it.status.epoch)).into()
    }),
    ("logged_index", "Last entry in the log", |it| it.status.logged),
    ("stable_index", "Last entry that is stable", |it| it.status.stable),
    ("committed_index", "Last entry that is committed", |it| it.status.committed),
    ("applied_index", "Last entry that is applied", |it| it.status.applied),
    ("lag_entries", "Entries that the successor is not known to have", |it| it.status.lag),
    ("rows", "Rows in memory", |it| it.status.rows),
    ("memory_bytes", "What counts against the cap", |it| it.status.memory_bytes),
    ("memory_cap_bytes", "The cap", |it| it.status.memory_cap),
    ("history_bytes", "Entries kept in memory", |it| it.status.history_bytes),
    ("pending_bytes", "Entries that are not applied", |it| it.status.pending_bytes),
    ("sessions", "Clients that are remembered", |it| it.status.sessions),
    ("subscriptions", "Subscriptions that are served", |it| it.status.subscriptions),
    ("disk_failed", "1 if the disk is full or broken", |it| it.status.disk.is_some().into()),
    ("log_disk_bytes", "Size of the log on disk", |it| it.disk.log),
    ("cold_disk_bytes", "Size of the cold tier's file", |it| it.disk.cold),
    ("cold_rows", "Rows in the cold tier", |it| it.archive.rows),
    ("cold_bytes", "Keys and values in the cold tier", |it| it.archive.bytes),
];

/// A value for each shard.
pub fn metrics(shards: &[ShardReport]) -> String {
    let mut out = String::new();
    for (name, what, value) in METRICS {
        head(&mut out, name, "gauge", what);
        for shard in shards {
            let number = shard.status.shard.0;
            let _ = writeln!(out, "hoplo_control_{name}{{shard=\"{number}\"}} {}", value(shard));
        }
    }
    out
}

/// A value of the process.
pub fn metric(out: &mut String, name: &str, kind: &str, what: &str, value: u64) {
    head(out, name, kind, what);
    let _ = writeln!(out, "hoplo_control_{name} {value}");
}

fn head(out: &mut String, name: &str, kind: &str, what: &str) {
    let _ = writeln!(out, "# HELP hoplo_control_{name} {what}");
    let _ = writeln!(out, "# TYPE hoplo_control_{name} {kind}");
}

/// Memory of the process, as the kernel counts it.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
