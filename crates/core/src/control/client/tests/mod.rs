//! Conversations with the client machine.

mod chains;
mod queries;
mod subscriptions;
mod updates;

use std::time::Duration;

use hoplo_base::limits::CONTROL_CLIENT_WINDOW;
use hoplo_base::{Instant, NodeId, limits};
use hoplo_wire::control::{
    Answer, ChainConfig, Change, ClientId, ClusterConfig, ClusterId, Epoch, FromCoordinator, Key,
    Member, Op, Outcome, Query, Refusal, ReplicaId, Request, Response, Row, ShardId, Table,
    ToCoordinator,
};

use super::{Call, CallError, Client, ClientOptions, Done, Effect, Event, shard_of};

struct World {
    client: Client,
    now: Instant,
    effects: Vec<Effect>,
    /// The shard knows new sessions at once.
    opens: bool,
}

/// The seq of a client's first batch.
const OPENING: u64 = 1;

fn replica(number: u64) -> ReplicaId {
    ReplicaId { node: NodeId(number), incarnation: 1 }
}

fn chain(shard: u16, epoch: u64, members: &[u64]) -> ChainConfig {
    let member = |&n: &u64| Member { replica: replica(n), address: format!("host:{n}") };
    ChainConfig {
        shard: ShardId(shard),
        epoch: Epoch(epoch),
        members: members.iter().map(member).collect(),
        joining: None,
        added: None,
        old_tail_gone: false,
        history: Epoch::first(),
        unbegun: false,
    }
}

fn config(shards: Vec<ChainConfig>) -> ClusterConfig {
    let cluster = ClusterId(1);
    ClusterConfig { cluster, replication: 2, shards, acting: None, wishes: Vec::new() }
}

fn key(name: &str) -> Key {
    Key { table: Table::Kv, bytes: name.as_bytes().to_vec() }
}

fn put(name: &str) -> Op {
    Op::Put { key: key(name), value: b"v".to_vec(), expected: None, finished: false }
}

fn row(value: &str, version: u64) -> Row {
    Row { value: value.as_bytes().to_vec(), version, index: version, finished: false }
}

fn done(versions: &[u64]) -> Vec<Outcome> {
    versions.iter().map(|&version| Outcome::Done { version }).collect()
}

/// A name whose key lies in this shard of two.
fn name_in(shard: u16, nth: usize) -> String {
    let names = (0..).map(|n| format!("k{n}"));
    let mut mine = names.filter(|name| shard_of(&key(name), 2) == ShardId(shard));
    mine.nth(nth).unwrap()
}

impl World {
    fn new() -> Self {
        let options =
            ClientOptions { me: ClientId(5), coordinators: vec!["host:1".into(), "host:2".into()] };
        let client = Client::new(options, Instant::ZERO);
        Self { client, now: Instant::ZERO, effects: Vec::new(), opens: true }
    }

    /// Head 1, tail 2, both connected.
    fn ready() -> Self {
        Self::with(vec![chain(0, 1, &[1, 2])])
    }

    fn with(chains: Vec<ChainConfig>) -> Self {
        let mut world = Self::new();
        let mut members: Vec<ReplicaId> =
            chains.iter().flat_map(|chain| &chain.members).map(|member| member.replica).collect();
        members.dedup();
        world.told(config(chains));
        for replica in members {
            world.event(Event::Connected { replica });
        }
        world.take();
        world
    }

    fn event(&mut self, event: Event) {
        self.client.handle(self.now, event, &mut self.effects);
        self.client.check();
        if self.opens {
            self.open();
        }
    }

    /// Answers the empty batch that begins a session. Tests count seqs from there.
    fn open(&mut self) {
        let opening = |effect: &Effect| match effect {
            Effect::Send { request: Request::Update { shard, seq: OPENING, .. }, .. } => {
                Some(*shard)
            }
            _ => None,
        };
        let shards: Vec<ShardId> = self.effects.iter().filter_map(opening).collect();
        self.effects.retain(|effect| opening(effect).is_none());
        for shard in shards {
            let outcomes = vec![];
            self.response(2, Response::Updated { shard, seq: OPENING, index: 1, outcomes });
        }
    }

    fn told(&mut self, config: ClusterConfig) {
        self.event(Event::Told { message: FromCoordinator::Config(config) });
    }

    fn after(&mut self, time: Duration) {
        self.now = self.now + time;
        self.event(Event::Tick);
    }

    /// How many updates leave before so much time is over.
    fn sent_within(&mut self, time: Duration) -> usize {
        let end = self.now + time;
        let mut sent = self.updates().len();
        while let Some(at) = self.client.next_deadline().filter(|at| *at < end) {
            self.after(at.since(self.now));
            sent += self.updates().len();
        }
        self.now = end;
        sent
    }

    /// How long it takes until an update leaves.
    fn waits_for_update(&mut self) -> Duration {
        let began = self.now;
        while self.updates().is_empty() {
            let due = self.client.next_deadline().unwrap();
            self.after(due.since(self.now));
        }
        self.now.since(began)
    }

    fn call(&mut self, call: u64, what: Call) {
        self.event(Event::Call { call, what, deadline: self.now + Duration::from_secs(10) });
    }

    fn response(&mut self, from: u64, response: Response) {
        self.event(Event::Response { from: replica(from), response });
    }

    fn updated(&mut self, seq: u64, versions: &[u64]) {
        let (outcomes, seq) = (done(versions), OPENING + seq);
        self.response(2, Response::Updated { shard: ShardId(0), seq, index: seq, outcomes });
    }

    fn refused(&mut self, seq: u64, why: Refusal) {
        let seq = OPENING + seq;
        self.response(1, Response::UpdateRefused { shard: ShardId(0), seq, why });
    }

    fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Seq, `answered` and number of operations of each update sent, and to whom.
    fn updates(&mut self) -> Vec<(u64, u64, u64, usize)> {
        let sent = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Send { to, request: Request::Update { seq, answered, ops, .. } } => {
                Some((to.node.0, seq - OPENING, answered - OPENING, ops.len()))
            }
            _ => None,
        });
        sent.collect()
    }

    /// `born`, seq and number of operations of each update sent.
    fn born(&mut self) -> Vec<(u64, u64, usize)> {
        let sent = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Send { request: Request::Update { born, seq, ops, .. }, .. } => {
                Some((born, seq - OPENING, ops.len()))
            }
            _ => None,
        });
        sent.collect()
    }

    fn finished(&mut self) -> Vec<(u64, Result<Done, CallError>)> {
        let ended = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Finish { call, result } => Some((call, result)),
            _ => None,
        });
        ended.collect()
    }

    /// Number, shard and receiver of each query sent.
    fn queries(&mut self) -> Vec<(u64, u16, u64)> {
        let sent = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Send { to, request: Request::Query { shard, request, .. } } => {
                Some((request, shard.0, to.node.0))
            }
            _ => None,
        });
        sent.collect()
    }

    /// Receiver, cursor and credit of each subscription sent.
    fn subscribed(&mut self) -> Vec<(u64, u64, u32)> {
        let sent = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Send { to, request: Request::Subscribe { after, credit, .. } } => {
                Some((to.node.0, after, credit))
            }
            _ => None,
        });
        sent.collect()
    }

    /// How often coordinators were asked for a configuration.
    fn asks(&mut self) -> usize {
        let is_ask = |effect: &Effect| {
            matches!(effect, Effect::Tell { message: ToCoordinator::WantConfig { .. }, .. })
        };
        self.take().iter().filter(|effect| is_ask(effect)).count()
    }
}

fn ok(versions: &[u64]) -> Result<Done, CallError> {
    Ok(Done::Updated(done(versions)))
}
