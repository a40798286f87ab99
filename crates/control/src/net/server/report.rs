//! What a process says about itself: `hoplo control status`, `members`, `metrics`, and `compact`.

use std::fmt::Write;

use hoplo_core::control::replica::{Event, Role, Status};
use serde_json::{Value, json};

use super::{Question, Server};

impl Server {
    pub(super) fn answer(&mut self, question: &Question) -> Result<String, String> {
        match question {
            Question::Status => Ok(self.status().to_string()),
            Question::Metrics => Ok(self.metrics()),
            Question::Compact => {
                self.every_shard(&Event::SnapshotWanted);
                Ok(self.hosted.len().to_string())
            }
        }
    }

    fn status(&self) -> Value {
        let shards: Vec<Value> =
            self.hosted.values().map(|hosted| shard(&hosted.machine.status(), hosted)).collect();
        let counters = self.hub.counters();
        let coordinator = self.coordinating.as_ref().map(|coordinating| {
            let machine = &coordinating.machine;
            let chains = machine.explain(self.now());
            let chains = chains.iter().map(|chain| {
                json!({ "shard": chain.shard.0, "members": chain.members,
                        "wished": chain.wished, "why": chain.why })
            });
            json!({ "acts": machine.acts(), "chains": chains.collect::<Vec<_>>(),
                    "story": machine.story() })
        });
        json!({
            "program": concat!("hoplo ", env!("CARGO_PKG_VERSION")),
            "replica": { "node": format!("{:016x}", self.me.replica.node.0),
                         "incarnation": self.me.replica.incarnation },
            "address": self.me.address,
            "up_s": self.started.elapsed().as_secs(),
            "resident_bytes": resident_bytes(),
            "shards": shards,
            "config": self.config.as_ref().map(|config| json!({
                "cluster": format!("{:032x}", config.cluster.0),
                "replication": config.replication, "shards": config.shards,
                "acting": config.acting, "wishes": config.wishes,
            })),
            "coordinator": coordinator,
            "connections": { "clients": self.clients.len(), "replicas": self.senders.len(),
                             "accepted": counters.accepted,
                             "refused_hellos": counters.refused_hellos,
                             "bad_frames": counters.bad_frames,
                             "slow_readers": counters.slow_readers,
                             "broken": counters.broken },
        })
    }

    /// Prometheus' text form of the same.
    fn metrics(&self) -> String {
        let statuses: Vec<(Status, u64)> = self
            .hosted
            .values()
            .map(|hosted| (hosted.machine.status(), hosted.disk_bytes()))
            .collect();
        let mut out = String::new();
        for (name, what, value) in SHARD_METRICS {
            let _ = writeln!(out, "# HELP hoplo_control_{name} {what}");
            let _ = writeln!(out, "# TYPE hoplo_control_{name} gauge");
            for (status, disk) in &statuses {
                let shard = status.shard.0;
                let value = value(status, *disk);
                let _ = writeln!(out, "hoplo_control_{name}{{shard=\"{shard}\"}} {value}");
            }
        }
        let counters = self.hub.counters();
        let acts = self.coordinating.as_ref().is_some_and(|it| it.machine.acts());
        let process: [(&str, &str, &str, u64); 8] = [
            ("resident_bytes", "gauge", "Memory of the process", resident_bytes()),
            ("coordinator_acts", "gauge", "1 if this process coordinates the cluster", acts.into()),
            ("clients", "gauge", "Clients that are connected", self.clients.len() as u64),
            ("accepted_total", "counter", "Connections accepted", counters.accepted),
            (
                "refused_hellos_total",
                "counter",
                "Peers of another version or cluster",
                counters.refused_hellos,
            ),
            ("bad_frames_total", "counter", "Messages that could not be read", counters.bad_frames),
            ("slow_readers_total", "counter", "Peers that did not read", counters.slow_readers),
            ("broken_total", "counter", "Connections that broke", counters.broken),
        ];
        for (name, kind, what, value) in process {
            let _ = writeln!(out, "# HELP hoplo_control_{name} {what}");
            let _ = writeln!(out, "# TYPE hoplo_control_{name} {kind}");
            let _ = writeln!(out, "hoplo_control_{name} {value}");
        }
        out
    }
}

type ShardMetric = (&'static str, &'static str, fn(&Status, u64) -> u64);

const SHARD_METRICS: [ShardMetric; 16] = [
    ("epoch", "Epoch of the chain's configuration", |it, _| it.epoch.0),
    ("acts", "1 if the replica acts in that epoch", |it, _| (it.acts == Some(it.epoch)).into()),
    ("logged_index", "Last entry in the log", |it, _| it.logged),
    ("stable_index", "Last entry that is stable", |it, _| it.stable),
    ("committed_index", "Last entry that is committed", |it, _| it.committed),
    ("applied_index", "Last entry that is applied", |it, _| it.applied),
    ("lag_entries", "Entries that the successor is not known to have", |it, _| it.lag),
    ("rows", "Rows in memory", |it, _| it.rows),
    ("memory_bytes", "What counts against the cap", |it, _| it.memory_bytes),
    ("memory_cap_bytes", "The cap", |it, _| it.memory_cap),
    ("history_bytes", "Entries kept in memory", |it, _| it.history_bytes),
    ("pending_bytes", "Entries that are not applied", |it, _| it.pending_bytes),
    ("sessions", "Clients that are remembered", |it, _| it.sessions),
    ("subscriptions", "Subscriptions that are served", |it, _| it.subscriptions),
    ("disk_failed", "1 if the disk is full or broken", |it, _| it.disk.is_some().into()),
    ("log_disk_bytes", "Size of the log on disk", |_, disk| disk),
];

fn shard(status: &Status, hosted: &super::Hosted) -> Value {
    let role = match status.role {
        Role::Outside => "outside".to_string(),
        Role::Joining => "joining".to_string(),
        Role::Member { place: 0, of: 1 } => "head and tail".to_string(),
        Role::Member { place: 0, .. } => "head".to_string(),
        Role::Member { place, of } if place + 1 == of => "tail".to_string(),
        Role::Member { .. } => "middle".to_string(),
    };
    json!({
        "shard": status.shard.0, "epoch": status.epoch.0, "role": role,
        "acts": status.acts == Some(status.epoch), "caught_up": status.caught_up,
        "logged": status.logged, "stable": status.stable, "committed": status.committed,
        "applied": status.applied, "lag": status.lag, "rows": status.rows,
        "memory_bytes": status.memory_bytes, "memory_cap": status.memory_cap,
        "history_bytes": status.history_bytes, "pending_bytes": status.pending_bytes,
        "sessions": status.sessions, "subscriptions": status.subscriptions,
        "log_disk_bytes": hosted.disk_bytes(), "disk": status.disk,
        "set_aside": hosted.set_aside, "story": hosted.machine.story(),
    })
}

/// As the kernel counts it.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
