//! Why is a chain not as it should be?

use hoplo_base::Instant;
use hoplo_wire::control::{ChainConfig, Member, ReplicaId, ShardId};

use super::{Coordinator, Standing};

/// One chain: what it has, what it should have, and why it has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub shard: ShardId,
    pub members: usize,
    pub wished: usize,
    /// Empty if all is well.
    pub why: Vec<String>,
}

impl Coordinator {
    /// For every shard; a single line of shard 0 if there is no configuration.
    pub fn explain(&self, now: Instant) -> Vec<Explanation> {
        let Some(config) = self.config() else {
            let wished = usize::from(self.options.replication);
            let why = vec![self.why_no_config(now)];
            return vec![Explanation { shard: ShardId(0), members: 0, wished, why }];
        };
        let wished = usize::from(config.replication);
        let explain = |chain: &ChainConfig| {
            let members = chain.members.len();
            Explanation { shard: chain.shard, members, wished, why: self.why(now, chain, wished) }
        };
        config.shards.iter().map(explain).collect()
    }

    fn why_no_config(&self, now: Instant) -> String {
        if let Some(trouble) = &self.store_trouble {
            return format!("the config store is of no use: {trouble}");
        }
        if let Some(member) = self.who_holds_something() {
            return format!(
                "the config store has no configuration, but {} holds data: restore the store, or \
                 start with empty directories",
                name(member.replica)
            );
        }
        let alive = self.replicas.values();
        let alive = alive.filter(|known| known.standing(now) == Standing::Alive).count();
        format!("{alive} of {} replica processes have registered", self.options.replication)
    }

    fn why(&self, now: Instant, chain: &ChainConfig, wished: usize) -> Vec<String> {
        let mut why = Vec::new();
        if let Some(trouble) = &self.store_trouble {
            why.push(format!("nothing can be changed, the config store is of no use: {trouble}"));
        }
        let sure = chain.members.iter().any(|it| self.is_sound(now, chain, it.replica));
        for member in &chain.members {
            let id = member.replica;
            let state = match self.standing(now, id) {
                Standing::Alive if self.is_whole(chain, id) => continue,
                Standing::Alive => "is new and does not act yet",
                Standing::Unsure => "is not heard of, and being probed",
                Standing::Unfit if sure => "is silent or broken, and about to be removed",
                Standing::Gone if sure => "is dead, and about to be removed",
                Standing::Unfit => "is silent or broken; nobody else has all data: bring it back",
                Standing::Gone => "is dead, and nobody else has all data: start it again",
            };
            why.push(format!("{} {state}", name(id)));
        }
        if self.loss(now, chain).is_some() {
            why.push("if their disks are gone: hoplo control restore".to_string());
        }
        if chain.unbegun && sure {
            why.push("takes no updates before all its members act".to_string());
        }
        match &chain.joining {
            Some(member) => why.push(format!("{} joins and is catching up", name(member.replica))),
            None if chain.members.len() < wished => why.push(self.why_nobody_joins(now, chain)),
            None => {}
        }
        why
    }

    fn why_nobody_joins(&self, now: Instant, chain: &ChainConfig) -> String {
        let others = self.replicas.values().filter(|known| {
            let node = known.member.replica.node;
            !chain.members.iter().any(|member| member.replica.node == node)
        });
        let others: Vec<_> = others.collect();
        let alive = others.iter().filter(|known| known.standing(now) == Standing::Alive);
        let shunned = alive
            .clone()
            .filter(|it| self.accusations.shuns(now, chain.shard, it.member.replica))
            .count();
        let leave = self.config().map_or(0, |config| config.wishes.len());
        format!(
            "nobody joins: of {} other replica processes {} live, {shunned} of these left this chain \
             just now; operators have {leave} wishes",
            others.len(),
            alive.count()
        )
    }
}

/// `epoch 3: node:1.0 > node:2.4, node:5.1 joins`.
pub fn line(chain: &ChainConfig) -> String {
    let members: Vec<String> =
        chain.members.iter().map(|member: &Member| name(member.replica)).collect();
    let joins = chain.joining.as_ref().map(|it| format!(", {} joins", name(it.replica)));
    let waits = if chain.old_tail_gone { "" } else { ", the old tail may live" };
    let (shard, epoch) = (chain.shard.0, chain.epoch.0);
    let joins = joins.unwrap_or_default();
    format!("shard {shard} epoch {epoch}: {}{joins}{waits}", members.join(" > "))
}

fn name(replica: ReplicaId) -> String {
    format!("{}.{:x}", replica.node, replica.incarnation)
}
