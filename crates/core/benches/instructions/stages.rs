//! A batch of puts on its way through a chain, event by event.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use hoplo_base::{Instant, NodeId};
use hoplo_core::control::replica::{Effect, Event, Replica, ReplicaOptions};
use hoplo_wire::control::{
    ChainConfig, ClientId, Epoch, Key, Member, Op, PeerBody, ReplicaId, Request, Response, ShardId,
    Table,
};

/// Rounds that are counted, after as many that are not.
pub const ROUNDS: u64 = 100;
/// Puts of one batch.
const BATCH: u64 = 100;
const NOW: Instant = Instant(1);

type Stage = fn(&mut Replica, Event, &mut Vec<Effect>);

/// All do the same: the names tell them apart, and the black box keeps the compiler from making one of them.
macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[inline(never)]
        fn $name(replica: &mut Replica, event: Event, effects: &mut Vec<Effect>) {
            black_box(stringify!($name));
            replica.handle(NOW, event, effects);
        }
    )*};
}

stages! {
    /// A chain of one: checked, entered, given to the log.
    counted_alone_take
    /// In the log: committed, applied, answered.
    counted_alone_commit
    /// The head of two: checked, entered, given to the log and to the tail.
    counted_head_take
    /// In the head's log: the tail is told.
    counted_head_stable
    /// The tail was told that it is committed: applied.
    counted_head_committed
    /// Given to the log.
    counted_tail_take
    /// In the log of the head, too.
    counted_tail_stable
    /// In the log: committed, applied, answered, and the head is told.
    counted_tail_commit
}

pub fn run() {
    let mut chains = [Chain::new(1), Chain::new(2)];
    for _ in 0..ROUNDS {
        chains.iter_mut().for_each(Chain::round);
    }
    counted_rounds(&mut chains);
}

#[inline(never)]
fn counted_rounds(chains: &mut [Chain]) {
    for _ in 0..ROUNDS {
        black_box(&mut *chains).iter_mut().for_each(Chain::round);
    }
}

struct Chain {
    replicas: Vec<Replica>,
    batches: u64,
}

impl Chain {
    fn new(count: u64) -> Chain {
        let member = |number| Member { replica: id(number), address: String::new() };
        let config = ChainConfig {
            shard: ShardId(0),
            epoch: Epoch(1),
            members: (0..count).map(member).collect(),
            joining: None,
            added: None,
            old_tail_gone: true,
            history: Epoch::first(),
            unbegun: true,
        };
        let start = |number| {
            let mut options = ReplicaOptions::new(id(number), ShardId(0));
            // So little that each batch lets an older one go, as it is in the long run.
            options.recent_bytes = 1 << 20;
            options.cold_is_empty = true;
            let mut replica = Replica::new(options, NOW);
            replica.handle(NOW, Event::ReplayDone, &mut Vec::new());
            replica
        };
        let mut chain = Chain { replicas: (0..count).map(start).collect(), batches: 0 };
        for number in 0..count {
            chain.carry_out(number, Event::Configured(config.clone()));
        }
        let begun = ChainConfig { epoch: Epoch(2), unbegun: false, ..config };
        for number in 0..count {
            chain.carry_out(number, Event::Configured(begun.clone()));
        }
        chain
    }

    fn round(&mut self) {
        self.batches += 1;
        let seq = self.batches;
        let put = |n: u64| {
            let number = (seq * BATCH + n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut bytes = number.to_be_bytes().to_vec();
            bytes.resize(25, 0);
            let key = Key { table: Table::Kv, bytes };
            Op::Put { key, value: vec![7; 512], expected: None, finished: false }
        };
        let (shard, epoch, ops) = (ShardId(0), Epoch(2), (0..BATCH).map(put).collect());
        let request = Request::Update { shard, epoch, born: 0, seq, answered: seq - 1, ops };
        let answered = self.carry_out(0, Event::Request { from: ClientId(1), request });
        assert_eq!(answered, BATCH);
    }

    /// The event and all that comes of it; returns how many puts were answered.
    fn carry_out(&mut self, number: u64, event: Event) -> u64 {
        let mut todo = VecDeque::from([(number, event)]);
        let mut effects = Vec::new();
        let mut answered = 0;
        while let Some((number, event)) = todo.pop_front() {
            let stage = self.stage(number, &event);
            stage(&mut self.replicas[number as usize], event, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Append { upto, .. } => todo.push_back((number, Event::Logged { upto })),
                    Effect::Send { to, mut message } => {
                        if let PeerBody::Forward { records, .. } = &mut message.body {
                            // As it is when it came over a connection: each frees its own.
                            records.iter_mut().for_each(|it| *it = Arc::new((**it).clone()));
                        }
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

    fn stage(&self, number: u64, event: &Event) -> Stage {
        if self.batches == 0 {
            return |replica, event, effects| replica.handle(NOW, event, effects);
        }
        let body = if let Event::Peer { message, .. } = event { Some(&message.body) } else { None };
        match (self.replicas.len(), number, event, body) {
            (1, _, Event::Request { .. }, _) => counted_alone_take,
            (1, _, Event::Logged { .. }, _) => counted_alone_commit,
            (_, 0, Event::Request { .. }, _) => counted_head_take,
            (_, 0, Event::Logged { .. }, _) => counted_head_stable,
            (_, 0, _, Some(PeerBody::Committed { .. })) => counted_head_committed,
            (_, 1, Event::Logged { .. }, _) => counted_tail_commit,
            (_, 1, _, Some(PeerBody::Forward { records, .. })) if records.is_empty() => {
                counted_tail_stable
            }
            (_, 1, _, Some(PeerBody::Forward { .. })) => counted_tail_take,
            _ => panic!("no part of an update: {event:?}"),
        }
    }
}

fn id(number: u64) -> ReplicaId {
    ReplicaId { node: NodeId(number), incarnation: 1 }
}
