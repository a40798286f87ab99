//! What operators want, judged before the coordinator hears of it: a wish that nobody could fulfil would stay in the
//! configuration for ever, and who asked would not know why nothing happens.

use std::collections::BTreeSet;

use hoplo_base::NodeId;
use hoplo_core::control::coordinator::{Event, Loss};
use hoplo_wire::control::{ChainConfig, ClusterConfig, ShardId, Speaker, ToCoordinator, Wish};

use super::Server;

/// A wish that is not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Unwise {
    #[error("this node's coordinator does not act: ask the one that does")]
    NotActing,
    #[error("the cluster has no configuration yet")]
    NoConfig,
    #[error("node {0:016x} is not known here")]
    UnknownNode(u64),
    #[error("there is no shard {shard}: the cluster has {shards}, from 0 on")]
    UnknownShard { shard: u16, shards: usize },
    #[error("node {node:016x} holds no replica of shard {shard}")]
    NotThere { node: u64, shard: u16 },
    #[error("node {node:016x} holds a replica of shard {shard} already")]
    ThereAlready { node: u64, shard: u16 },
    #[error("node {0:016x} does not run")]
    NotRunning(u64),
    #[error("node {0:016x} shall be empty: `hoplo control drain --undo` first")]
    Leaves(u64),
    #[error(
        "no node is free: {stay} would stay, and each shard has {replication} replicas; start another node first"
    )]
    NoneFree { stay: usize, replication: u8 },
    #[error("there is nothing to take back: nobody asked for that")]
    NotWished,
    #[error(
        "shard {0} need not be restored: a member that has everything runs, may still run, or is back"
    )]
    NothingLost(u16),
    #[error("shard {shard} has gone on meanwhile, and is in epoch {epoch} now: look at it again")]
    WentOn { shard: u16, epoch: u64 },
    #[error("no process that could hold shard {0} is connected: start one first")]
    NobodyLeft(u16),
}

impl Server {
    pub(super) fn on_wish(&mut self, wish: Wish, wished: bool) -> Result<String, String> {
        self.judge_wish(&wish, wished).map_err(|why| why.to_string())?;
        let message =
            if wished { ToCoordinator::Wished(wish) } else { ToCoordinator::Unwished(wish) };
        let from = Speaker::Replica(self.me.replica);
        self.coordinate(Event::Heard { from, message });
        Ok("taken".to_string())
    }

    fn judge_wish(&self, wish: &Wish, wished: bool) -> Result<(), Unwise> {
        let machine = self.coordinating.as_ref().map(|it| &it.machine).filter(|it| it.acts());
        let machine = machine.ok_or(Unwise::NotActing)?;
        let config = machine.config().ok_or(Unwise::NoConfig)?;
        if !wished {
            return if config.wishes.contains(wish) { Ok(()) } else { Err(Unwise::NotWished) };
        }
        let mut running: BTreeSet<NodeId> = self.reporters.keys().map(|it| it.node).collect();
        if self.holds_replicas {
            running.insert(self.me.replica.node);
        }
        judge(config, &running, &machine.losses(self.now()), wish)
    }
}

/// `running`: the nodes that may hold replicas and are connected; `losses`: the shards that cannot go on by themselves.
fn judge(
    config: &ClusterConfig,
    running: &BTreeSet<NodeId>,
    losses: &[Loss],
    wish: &Wish,
) -> Result<(), Unwise> {
    let leaves = |node: NodeId| config.wishes.contains(&Wish::Leave { node });
    match *wish {
        Wish::Leave { node } => {
            let mut chains = config.shards.iter();
            let holds = chains.any(|it| it.members.iter().any(|it| it.replica.node == node));
            if !holds && !running.contains(&node) {
                return Err(Unwise::UnknownNode(node.0));
            }
            let stay = running.iter().filter(|it| **it != node && !leaves(**it)).count();
            let replication = config.replication;
            if holds && stay < usize::from(replication) {
                return Err(Unwise::NoneFree { stay, replication });
            }
            Ok(())
        }
        Wish::Move { shard, from, to } => {
            let chain = chain_of(config, shard)?;
            let holds = |node: NodeId| chain.members.iter().any(|it| it.replica.node == node);
            if !holds(from) {
                return Err(Unwise::NotThere { node: from.0, shard: shard.0 });
            }
            if holds(to) {
                return Err(Unwise::ThereAlready { node: to.0, shard: shard.0 });
            }
            if !running.contains(&to) {
                return Err(Unwise::NotRunning(to.0));
            }
            if leaves(to) {
                return Err(Unwise::Leaves(to.0));
            }
            Ok(())
        }
        Wish::AcceptLoss { shard, epoch } => {
            let chain = chain_of(config, shard)?;
            if chain.epoch != epoch {
                return Err(Unwise::WentOn { shard: shard.0, epoch: chain.epoch.0 });
            }
            let loss = losses.iter().find(|loss| loss.shard == shard);
            let loss = loss.ok_or(Unwise::NothingLost(shard.0))?;
            loss.left.as_ref().map(|_| ()).ok_or(Unwise::NobodyLeft(shard.0))
        }
    }
}

fn chain_of(config: &ClusterConfig, shard: ShardId) -> Result<&ChainConfig, Unwise> {
    let shards = config.shards.len();
    let chain = config.shards.get(usize::from(shard.0));
    chain.ok_or(Unwise::UnknownShard { shard: shard.0, shards })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoplo_core::control::coordinator::Left;
    use hoplo_wire::control::{ClusterId, Epoch, Member, ReplicaId};

    /// One shard on the nodes 1 and 2.
    fn config(wishes: Vec<Wish>) -> ClusterConfig {
        let member = |node| Member {
            replica: ReplicaId { node: NodeId(node), incarnation: 1 },
            address: String::new(),
        };
        let chain = ChainConfig {
            shard: ShardId(0),
            epoch: Epoch(1),
            members: vec![member(1), member(2)],
            joining: None,
            added: None,
            old_tail_gone: true,
            history: Epoch::first(),
            unbegun: false,
        };
        let (cluster, acting) = (ClusterId(1), None);
        ClusterConfig { cluster, replication: 2, shards: vec![chain], acting, wishes }
    }

    fn judged(running: &[u64], wishes: Vec<Wish>, wish: Wish) -> Result<(), Unwise> {
        let running = running.iter().copied().map(NodeId).collect();
        judge(&config(wishes), &running, &[], &wish)
    }

    fn drain(node: u64) -> Wish {
        Wish::Leave { node: NodeId(node) }
    }

    fn moved(shard: u16, from: u64, to: u64) -> Wish {
        Wish::Move { shard: ShardId(shard), from: NodeId(from), to: NodeId(to) }
    }

    #[test]
    fn a_node_leaves_only_where_enough_stay() {
        assert_eq!(judged(&[1, 2, 3], vec![], drain(1)), Ok(()));
        let none_free = Err(Unwise::NoneFree { stay: 1, replication: 2 });
        assert_eq!(judged(&[1, 2], vec![], drain(1)), none_free);
        assert_eq!(judged(&[1, 2, 3], vec![drain(3)], drain(1)), none_free);
        // It holds nothing: nobody has to take its place.
        assert_eq!(judged(&[1, 2, 3], vec![], drain(3)), Ok(()));
        // It does not run any more, and another one takes its place.
        assert_eq!(judged(&[2, 3], vec![], drain(1)), Ok(()));
        assert_eq!(judged(&[1, 2], vec![], drain(9)), Err(Unwise::UnknownNode(9)));
    }

    #[test]
    fn a_loss_is_accepted_only_where_there_is_one() {
        let judged = |epoch: u64, losses: &[Loss]| {
            let wish = Wish::AcceptLoss { shard: ShardId(0), epoch: Epoch(epoch) };
            judge(&config(vec![]), &BTreeSet::new(), losses, &wish)
        };
        let loss = |left| Loss { shard: ShardId(0), epoch: Epoch(1), left, silent: vec![] };
        let member = config(vec![]).shards[0].members[0].clone();
        assert_eq!(judged(1, &[loss(Some(Left { member, last: None }))]), Ok(()));
        assert_eq!(judged(1, &[loss(None)]), Err(Unwise::NobodyLeft(0)));
        assert_eq!(judged(1, &[]), Err(Unwise::NothingLost(0)));
        assert_eq!(judged(2, &[]), Err(Unwise::WentOn { shard: 0, epoch: 1 }));
    }

    #[test]
    fn a_replica_moves_from_where_it_is_to_where_it_can_be() {
        let judged = |wish| judged(&[1, 2, 3, 4], vec![drain(4)], wish);
        assert_eq!(judged(moved(0, 1, 3)), Ok(()));
        assert_eq!(judged(moved(7, 1, 3)), Err(Unwise::UnknownShard { shard: 7, shards: 1 }));
        assert_eq!(judged(moved(0, 3, 4)), Err(Unwise::NotThere { node: 3, shard: 0 }));
        assert_eq!(judged(moved(0, 1, 2)), Err(Unwise::ThereAlready { node: 2, shard: 0 }));
        assert_eq!(judged(moved(0, 1, 5)), Err(Unwise::NotRunning(5)));
        assert_eq!(judged(moved(0, 1, 4)), Err(Unwise::Leaves(4)));
    }
}
