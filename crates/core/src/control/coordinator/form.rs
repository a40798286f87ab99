//! The first configuration of a cluster.

use hoplo_base::{Instant, limits};
use hoplo_wire::control::{ChainConfig, ClusterConfig, Member, ShardId};

use super::{Coordinator, Standing};

impl Coordinator {
    /// There is no document: makes one when enough replicas have registered, or some and time has passed.
    /// Where more could share the shards, it waits until no more come: no shard moves by itself later.
    ///
    /// A replica that holds something belongs to a cluster that had a document: its loss is not answered
    /// by a new, empty cluster.
    pub(super) fn form(&self, now: Instant) -> Option<ClusterConfig> {
        if self.who_holds_something().is_some() {
            return None;
        }
        let mut nodes: Vec<&Member> = self
            .replicas
            .values()
            .filter(|known| known.registered && known.standing(now) == Standing::Alive)
            .map(|known| &known.member)
            .collect();
        // Of two processes of one node the newer one.
        nodes.reverse();
        nodes.dedup_by_key(|member| member.replica.node);
        nodes.reverse();
        let wished = usize::from(self.options.replication);
        let waited = now.since(self.started_at) >= limits::FORM_GRACE;
        let each_has_one = wished * usize::from(self.options.shards);
        let settled =
            nodes.len() >= each_has_one || now.since(self.newest_at) >= limits::FORM_SETTLE;
        if nodes.is_empty() || ((nodes.len() < wished || !settled) && !waited) {
            return None;
        }
        let length = wished.min(nodes.len());
        let chain = |shard: u16| {
            let members =
                (0..length).map(|at| nodes[(usize::from(shard) + at) % nodes.len()].clone());
            ChainConfig {
                shard: ShardId(shard),
                epoch: self.options.founded,
                members: members.collect(),
                joining: None,
                added: None,
                old_tail_gone: true,
                history: self.options.founded,
                unbegun: true,
            }
        };
        Some(ClusterConfig {
            cluster: self.options.cluster,
            replication: self.options.replication,
            shards: (0..self.options.shards).map(chain).collect(),
            acting: Some(self.acting_next(None)),
            wishes: Vec::new(),
        })
    }

    pub(super) fn who_holds_something(&self) -> Option<&Member> {
        let mut all = self.replicas.values();
        let holding = all.find(|known| known.holds.values().any(|it| it.logged > 0));
        holding.map(|known| &known.member)
    }
}
