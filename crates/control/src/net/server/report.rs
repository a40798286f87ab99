//! What a process says about itself: `hoplo control status`, `members`, `metrics`, and `compact`.

use std::time::{Instant, SystemTime};

use hoplo_base::limits::{CERTIFICATE_WARNED, CERTIFICATE_WARNING};
use hoplo_core::control::coordinator::Loss;
use hoplo_core::control::replica::Event;
use hoplo_net::name::Name;
use serde_json::{Value, json};

use super::{Question, Server, note};
use crate::report::{ShardReport, metric, metrics, resident_bytes};

impl Server {
    pub(super) fn answer(&mut self, question: &Question) -> Result<String, String> {
        match question {
            Question::Status => Ok(self.status().to_string()),
            Question::Metrics => Ok(self.metrics()),
            Question::Compact => {
                self.every_shard(&Event::SnapshotWanted);
                Ok(self.hosted.len().to_string())
            }
            Question::Wish { wish, wished } => self.on_wish(wish.clone(), *wished),
        }
    }

    fn status(&self) -> Value {
        let shards: Vec<Value> = self.shard_reports().iter().map(ShardReport::json).collect();
        let counters = self.hub.counters();
        let coordinator = self.coordinating.as_ref().map(|coordinating| {
            let machine = &coordinating.machine;
            let chains = machine.explain(self.now());
            let chains = chains.iter().map(|chain| {
                json!({ "shard": chain.shard.0, "members": chain.members,
                        "wished": chain.wished, "why": chain.why })
            });
            json!({ "acts": machine.acts(), "trouble": machine.trouble(), "chains": chains.collect::<Vec<_>>(),
                    "losses": machine.losses(self.now()).iter().map(loss).collect::<Vec<_>>(),
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
            "certificate": self.certificate().map(|(name, seconds)| json!({
                "name": name.to_string(), "seconds": seconds,
            })),
            "connections": { "clients": self.clients.len(), "replicas": self.senders.len(),
                             "clients_max": self.hub.clients().1,
                             "strangers": self.hub.strangers(),
                             "turned_away": counters.turned_away,
                             "refused_claims": counters.refused_claims,
                             "accepted": counters.accepted,
                             "refused_hellos": counters.refused_hellos,
                             "bad_frames": counters.bad_frames,
                             "slow_readers": counters.slow_readers,
                             "broken": counters.broken },
        })
    }

    /// Prometheus' text form of the same.
    fn metrics(&self) -> String {
        let mut out = metrics(&self.shard_reports());
        let counters = self.hub.counters();
        let acts = self.coordinating.as_ref().is_some_and(|it| it.machine.acts());
        let process: [(&str, &str, &str, u64); 11] = [
            ("resident_bytes", "gauge", "Memory of the process", resident_bytes()),
            ("coordinator_acts", "gauge", "1 if this process coordinates the cluster", acts.into()),
            ("clients", "gauge", "Clients that are connected", self.clients.len() as u64),
            (
                "strangers",
                "gauge",
                "Connections whose peers did not say yet who they are",
                self.hub.strangers() as u64,
            ),
            (
                "turned_away_total",
                "counter",
                "Connections for which there was no room",
                counters.turned_away,
            ),
            (
                "refused_claims_total",
                "counter",
                "Peers that spoke for somebody else",
                counters.refused_claims,
            ),
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
            metric(&mut out, name, kind, what, value);
        }
        if let Some((_, seconds)) = self.certificate() {
            let what = "Until this node's certificate expires";
            metric(&mut out, "certificate_seconds", "gauge", what, seconds);
        }
        out
    }

    /// Whose certificate this process shows, and for how long it may.
    fn certificate(&self) -> Option<(Name, u64)> {
        let shown = self.cluster.identity.as_ref()?.certificate();
        let left = shown.until.duration_since(SystemTime::now()).unwrap_or_default();
        Some((shown.name, left.as_secs()))
    }

    /// Whoever runs this process hears in time that it will not be let in any more.
    pub(super) fn look_at_certificate(&mut self) {
        let Some(identity) = &self.cluster.identity else { return };
        let left = identity.certificate().until.duration_since(SystemTime::now());
        let path = identity.path();
        let path = path.display();
        let warning = match (identity.trouble(), left.unwrap_or_default()) {
            (Some(why), _) => format!("the certificate on disk is not used: {why}"),
            (None, left) if left.is_zero() => {
                format!("{path} has expired: renew it with `hoplo control certificate`")
            }
            (None, left) if left < CERTIFICATE_WARNING => {
                let hours = left.as_secs() / 3600;
                format!(
                    "{path} expires in {hours} hours: renew it with `hoplo control certificate`"
                )
            }
            (None, _) => return,
        };
        let now = Instant::now();
        let is_said = |(at, said): &(Instant, String)| {
            *said == warning && now.saturating_duration_since(*at) < CERTIFICATE_WARNED
        };
        if !self.warned.as_ref().is_some_and(is_said) {
            note(&warning);
            self.warned = Some((now, warning));
        }
    }

    fn shard_reports(&self) -> Vec<ShardReport> {
        self.hosted.values().map(super::Hosted::report).collect()
    }
}

/// A shard that waits for disks that may be gone.
fn loss(loss: &Loss) -> Value {
    let left = loss.left.as_ref().map(|left| {
        let last = left.last.map(|(epoch, index)| json!({ "epoch": epoch.0, "index": index }));
        json!({ "node": format!("{:016x}", left.member.replica.node.0),
                "address": left.member.address, "last": last })
    });
    let silent = loss.silent.iter().map(|it| format!("{:016x}", it.node.0));
    json!({ "shard": loss.shard.0, "epoch": loss.epoch.0, "left": left,
            "silent": silent.collect::<Vec<_>>() })
}
