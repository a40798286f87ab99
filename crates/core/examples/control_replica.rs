//! What the replica machine itself costs: updates of a chain of one and of two in one thread, no disk, no network.
//!
//! `cargo run --release -p hoplo-core --example control_replica [updates]`

use std::time::Instant as Clock;

use hoplo_base::{Instant, NodeId};
use hoplo_core::control::replica::{Effect, Event, Replica, ReplicaOptions};
use hoplo_wire::control::{
    ChainConfig, ClientId, Epoch, Key, Member, Op, ReplicaId, Request, Response, ShardId, Table,
};

const BATCH: u64 = 100;
const SHARD: ShardId = ShardId(0);

fn id(number: u64) -> ReplicaId {
    ReplicaId { node: NodeId(number), incarnation: 1 }
}

fn chain(count: u64) -> Vec<Replica> {
    let member = |number| Member { replica: id(number), address: String::new() };
    let config = ChainConfig {
        shard: SHARD,
        epoch: Epoch(1),
        members: (0..count).map(member).collect(),
        joining: None,
        added: None,
        old_tail_gone: true,
        history: Epoch::first(),
        unbegun: true,
    };
    let mut replicas = Vec::new();
    for number in 0..count {
        let mut options = ReplicaOptions::new(id(number), SHARD);
        options.memory_bytes = 8 << 30;
        options.snapshot_bytes = 1 << 60;
        let mut replica = Replica::new(options, Instant::ZERO);
        replica.handle(Instant::ZERO, Event::ReplayDone, &mut Vec::new());
        replicas.push(replica);
    }
    for number in 0..count {
        run(&mut replicas, number, Event::Configured(config.clone()));
    }
    let begun = ChainConfig { epoch: Epoch(2), unbegun: false, ..config };
    for number in 0..count {
        run(&mut replicas, number, Event::Configured(begun.clone()));
    }
    replicas
}

/// Carries out effects until there are none; returns how many updates were answered.
fn run(replicas: &mut [Replica], number: u64, event: Event) -> u64 {
    let mut todo = std::collections::VecDeque::from([(number, event)]);
    let mut effects = Vec::new();
    let mut answered = 0;
    while let Some((number, event)) = todo.pop_front() {
        replicas[number as usize].handle(Instant(1), event, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Append { upto, .. } => todo.push_back((number, Event::Logged { upto })),
                Effect::Send { to, message } => {
                    todo.push_back((to.node.0, Event::Peer { from: id(number), message }));
                }
                Effect::Respond { response: Response::Updated { outcomes, .. }, .. } => {
                    answered += outcomes.len() as u64;
                }
                // The second member hears of the chain a moment after the first.
                Effect::WantConfig { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    answered
}

fn main() {
    let updates: u64 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number"));
    for (count, spread, what) in [
        (1, 0, "new keys in order"),
        (1, 0x9e37_79b9_7f4a_7c15, "new keys at random"),
        (1, 1, "10000 keys again and again"),
        (2, 0, "new keys in order"),
    ] {
        let mut replicas = chain(count);
        let mut answered = 0;
        let began = Clock::now();
        for seq in 1..=updates / BATCH {
            let ops = (0..BATCH).map(|n| {
                let number = seq * BATCH + n;
                let number = match spread {
                    0 => number,
                    1 => number % 10_000,
                    spread => number.wrapping_mul(spread),
                };
                let mut bytes = number.to_be_bytes().to_vec();
                bytes.resize(25, 0);
                let key = Key { table: Table::Kv, bytes };
                Op::Put { key, value: vec![7; 512], expected: None, finished: false }
            });
            let (shard, epoch, ops) = (SHARD, Epoch(2), ops.collect());
            let request = Request::Update { shard, epoch, born: 0, seq, answered: seq - 1, ops };
            answered += run(&mut replicas, 0, Event::Request { from: ClientId(1), request });
        }
        let took = began.elapsed();
        assert_eq!(answered, updates);
        let each = took.as_nanos() as f64 / updates as f64;
        println!("chain of {count}, {what}: {each:.0} ns an update, {:.0} k/s", 1e6 / each);
    }
}
