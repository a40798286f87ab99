//! Conversations with the client machine.

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

    fn reports(&mut self) -> Vec<u64> {
        let told = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Tell { message: ToCoordinator::Report { silent, .. }, .. } => {
                Some(silent.node.0)
            }
            _ => None,
        });
        told.collect()
    }
}

fn ok(versions: &[u64]) -> Result<Done, CallError> {
    Ok(Done::Updated(done(versions)))
}

#[test]
fn a_call_waits_for_the_configuration_and_both_ends_of_the_chain() {
    let mut world = World::new();
    world.call(1, Call::Update(vec![put("a")]));
    let asked = world.take();
    assert!(asked.iter().all(|effect| matches!(effect, Effect::Tell { .. })), "{asked:?}");
    world.told(config(vec![chain(0, 1, &[1, 2])]));
    world.event(Event::Connected { replica: replica(1) });
    assert_eq!(world.updates(), [], "nobody could answer");
    world.event(Event::Connected { replica: replica(2) });
    assert_eq!(world.updates(), [(1, 1, 0, 1)]);
    world.updated(1, &[1]);
    assert_eq!(world.finished(), [(1, ok(&[1]))]);
    assert_eq!(world.client.calls_open(), 0);
}

#[test]
fn a_batch_is_split_by_shard_and_its_outcomes_come_in_its_order() {
    let mut world = World::with(vec![chain(0, 1, &[1]), chain(1, 1, &[2])]);
    let [zero, one, again] = [name_in(0, 0), name_in(1, 0), name_in(0, 1)];
    world.call(1, Call::Update(vec![put(&zero), put(&one), put(&again)]));
    assert_eq!(world.updates(), [(1, 1, 0, 2), (2, 1, 0, 1)]);
    let updated = |shard, versions: &[u64]| Response::Updated {
        shard: ShardId(shard),
        seq: OPENING + 1,
        index: 1,
        outcomes: done(versions),
    };
    world.response(2, updated(1, &[7]));
    assert_eq!(world.finished(), []);
    world.response(1, updated(0, &[5, 6]));
    assert_eq!(world.finished(), [(1, ok(&[5, 7, 6]))]);
}

#[test]
fn what_is_not_answered_is_sent_again_as_it_was_after_each_change() {
    let mut world = World::ready();
    for call in 1..=3 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    assert_eq!(world.updates(), [(1, 1, 0, 1), (1, 2, 0, 1), (1, 3, 0, 1)]);
    world.updated(2, &[2]);
    world.event(Event::Lost { replica: replica(1) });
    assert_eq!(world.updates(), [], "the head is gone");
    // The tail is head now, too.
    world.told(config(vec![chain(0, 2, &[2])]));
    assert_eq!(world.updates(), [(2, 1, 0, 1), (2, 3, 0, 1)]);
    world.updated(1, &[1]);
    world.updated(1, &[1]);
    world.call(4, Call::Update(vec![put("a")]));
    assert_eq!(world.updates(), [(2, 4, 2, 1)], "1 and 2 were answered");
    world.updated(3, &[3]);
    world.updated(4, &[4]);
    assert_eq!(world.finished(), [(3, ok(&[3])), (4, ok(&[4]))]);
}

#[test]
fn calls_that_find_the_window_full_travel_together() {
    let mut world = World::ready();
    let window = CONTROL_CLIENT_WINDOW as u64;
    for call in 1..=window + 5 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    assert_eq!(world.updates().len(), CONTROL_CLIENT_WINDOW);
    world.updated(1, &[1]);
    assert_eq!(world.updates(), [(1, window + 1, 1, 5)]);
    for seq in 2..=window {
        world.updated(seq, &[seq]);
    }
    world.take();
    world.updated(window + 1, &[1, 2, 3, 4, 5]);
    let finished = world.finished();
    assert_eq!(finished[4], (window + 5, ok(&[5])));
    assert_eq!(world.client.calls_open(), 0);
}

#[test]
fn one_bad_row_is_not_the_fault_of_those_that_travel_with_it() {
    let mut world = World::ready();
    for call in 1..=CONTROL_CLIENT_WINDOW as u64 + 2 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    world.updated(1, &[1]);
    world.take();
    let both = CONTROL_CLIENT_WINDOW as u64 + 1;
    let why = Refusal::KeyTooLong { bytes: 2000, max: 1024 };
    world.refused(both, why.clone());
    let sent = world.updates();
    assert_eq!(sent.last(), Some(&(1, both, 1, 0)), "an empty batch takes the seq: {sent:?}");
    for seq in 2..=both {
        world.updated(seq, if seq == both { &[] } else { &[1] });
    }
    let sent: Vec<_> = world.updates().into_iter().filter(|sent| sent.1 > both).collect();
    assert_eq!(
        sent.iter().map(|sent| (sent.1, sent.3)).collect::<Vec<_>>(),
        [(both + 1, 1), (both + 2, 1)]
    );
    world.refused(both + 1, why.clone());
    let refused = Err(CallError::Refused { why, elsewhere: false });
    assert_eq!(world.finished().last(), Some(&(both, refused)));
    world.updated(both + 1, &[]);
    world.updated(both + 2, &[9]);
    assert_eq!(world.finished(), [(both + 1, ok(&[9]))]);
}

#[test]
fn a_full_disk_is_said_to_all_who_wait_behind_it() {
    let mut world = World::ready();
    for call in 1..=3 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    world.updated(1, &[1]);
    world.take();
    let why = Refusal::Disk("no space left".to_string());
    world.refused(2, why.clone());
    let refused = Err(CallError::Refused { why: why.clone(), elsewhere: false });
    // The third is on its way: the head may find room before it comes.
    let unsure = Err(CallError::Late { may_apply: true, waiting: why.to_string() });
    assert_eq!(world.finished(), [(3, unsure), (2, refused)]);
    // Their seqs are used up all the same, once there is room.
    world.after(Duration::from_millis(1));
    assert_eq!(world.updates(), [(1, 2, 1, 0), (1, 3, 1, 0)]);
    world.updated(2, &[]);
    world.updated(3, &[]);
    world.call(4, Call::Update(vec![put("a")]));
    assert_eq!(world.updates(), [(1, 4, 3, 1)]);
}

#[test]
fn a_refusal_of_one_of_two_copies_is_no_proof_that_nothing_was_applied() {
    let full = Refusal::Full { used: 2, cap: 1 };
    for why in [Refusal::Disk("no space left".to_string()), full] {
        let mut world = World::ready();
        world.call(1, Call::Update(vec![put("a")]));
        let mut copies = world.updates().len();
        for _ in 0..20 {
            let due = world.client.next_deadline().unwrap();
            world.after(due.since(world.now));
            copies += world.updates().len();
            if copies == 2 {
                break;
            }
        }
        assert_eq!(copies, 2, "it is sent again after a silence");
        world.refused(1, why.clone());
        let unsure = Err(CallError::Late { may_apply: true, waiting: why.to_string() });
        assert_eq!(world.finished(), [(1, unsure)]);
    }
}

#[test]
fn a_gap_is_filled_once_in_order() {
    let mut world = World::ready();
    for call in 1..=3 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    world.take();
    world.refused(2, Refusal::Gap { expected: OPENING + 1 });
    assert_eq!(world.updates(), [(1, 1, 0, 1), (1, 2, 0, 1), (1, 3, 0, 1)]);
    world.refused(3, Refusal::Gap { expected: OPENING + 1 });
    assert_eq!(world.updates(), [], "it is underway");
}

#[test]
fn a_refusal_for_now_is_tried_again_until_the_deadline() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.take();
    for _ in 0..5 {
        world.refused(1, Refusal::Busy("it syncs".to_string()));
        assert_eq!(world.updates(), []);
        let due = world.client.next_deadline().unwrap();
        world.after(due.since(world.now));
        assert_eq!(world.updates(), [(1, 1, 0, 1)]);
    }
    world.after(Duration::from_secs(11));
    let finished = world.finished();
    let [(1, Err(CallError::Late { may_apply: true, waiting }))] = &finished[..] else {
        panic!("{finished:?}")
    };
    assert!(waiting.contains("it syncs"), "{waiting}");
    // Its seq is not free, so it is still sent.
    world.updated(1, &[1]);
    assert_eq!(world.finished(), []);
}

#[test]
fn an_update_that_never_left_will_never_be_applied() {
    let mut world = World::ready();
    world.event(Event::Lost { replica: replica(1) });
    world.call(1, Call::Update(vec![put("a")]));
    world.after(Duration::from_secs(11));
    let finished = world.finished();
    assert!(
        matches!(&finished[..], [(1, Err(CallError::Late { may_apply: false, .. }))]),
        "{finished:?}"
    );
    world.event(Event::Connected { replica: replica(1) });
    assert_eq!(world.updates(), []);
}

#[test]
fn a_session_that_is_over_ends_what_is_underway_and_begins_anew() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.updated(1, &[1]);
    world.call(2, Call::Update(vec![put("a")]));
    world.take();
    world.refused(2, Refusal::SessionOver { upto: 9 });
    let finished = world.finished();
    assert!(matches!(&finished[..], [(2, Err(CallError::Late { may_apply: true, .. }))]));
    world.call(3, Call::Update(vec![put("a")]));
    assert_eq!(world.born(), [(9, 3, 0)], "an empty batch under a seq that was never used");
    world.updated(3, &[]);
    assert_eq!(world.born(), [(9, 4, 1)]);
}

#[test]
fn a_client_that_the_shard_does_not_know_yet_loses_nothing_by_asking() {
    let mut world = World::ready();
    world.opens = false;
    world.call(1, Call::Update(vec![put("a")]));
    assert_eq!(world.born(), [(0, 0, 0)], "it goes alone");
    world.call(2, Call::Update(vec![put("b")]));
    // Sent again, so one copy may have been taken: no matter.
    world.event(Event::Connected { replica: replica(1) });
    assert_eq!(world.born(), [(0, 0, 0)]);
    world.refused(0, Refusal::SessionOver { upto: 7 });
    assert_eq!(world.born(), [(7, 1, 0)]);
    world.refused(0, Refusal::SessionOver { upto: 7 });
    world.updated(0, &[]);
    assert_eq!(world.born(), [], "what is said of the session before is nothing new");
    world.updated(1, &[]);
    assert_eq!(world.born(), [(7, 2, 2)]);
    world.updated(2, &[1, 1]);
    assert_eq!(world.finished().len(), 2);
}

#[test]
fn too_much_at_once_is_refused_here() {
    let mut world = World::ready();
    world.event(Event::Lost { replica: replica(1) });
    let large = || {
        let value = vec![0; 9 << 20];
        Call::Update(vec![Op::Put { key: key("a"), value, expected: None, finished: false }])
    };
    world.call(1, large());
    world.call(2, large());
    let finished = world.finished();
    assert!(matches!(&finished[..], [(2, Err(CallError::Overloaded { .. }))]), "{finished:?}");
}

#[test]
fn queries_go_to_the_tail_and_stale_ones_to_anybody() {
    let mut world = World::ready();
    let get = |stale| Call::Query { query: Query::Get { key: key("a") }, stale };
    world.call(1, get(false));
    assert_eq!(world.queries(), [(1, 0, 2)]);
    world.event(Event::Lost { replica: replica(2) });
    world.take();
    world.call(2, get(true));
    assert_eq!(world.queries(), [(2, 0, 1)], "the tail is gone, the head will do");
    world.told(config(vec![chain(0, 2, &[1])]));
    let sent = world.queries();
    assert!(sent.contains(&(1, 0, 1)), "{sent:?}");
    let answer = Answer::Row(Some(row("x", 3)));
    world.response(1, Response::Answered { request: 1, index: 9, answer: answer.clone() });
    world.response(1, Response::Answered { request: 1, index: 9, answer });
    assert_eq!(world.finished(), [(1, Ok(Done::Row(Some(row("x", 3)))))]);
}

#[test]
fn a_scan_over_shards_ends_where_the_shortest_page_does() {
    let mut world = World::with(vec![chain(0, 1, &[1]), chain(1, 1, &[2])]);
    let (table, prefix) = (Table::Kv, Vec::new());
    let query = Query::Scan { table, prefix, from: None, limit: 3, archived: false };
    world.call(1, Call::Query { query, stale: false });
    assert_eq!(world.queries(), [(1, 0, 1), (2, 1, 2)]);
    let page = |keys: &[&str], next: Option<&str>| Answer::Page {
        rows: keys.iter().map(|key| (key.as_bytes().to_vec(), row(key, 1))).collect(),
        next: next.map(|next| next.as_bytes().to_vec()),
    };
    let answer = page(&["a", "c", "e"], Some("f"));
    world.response(1, Response::Answered { request: 1, index: 10, answer });
    let answer = page(&["b", "g"], None);
    world.response(2, Response::Answered { request: 2, index: 20, answer });
    let finished = world.finished();
    let [(1, Ok(Done::Page { rows, next, indexes }))] = &finished[..] else {
        panic!("{finished:?}")
    };
    let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| key.as_slice()).collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert_eq!(next.as_deref(), Some(b"e".as_slice()), "the first that did not fit");
    assert_eq!(indexes, &[10, 20]);
}

#[test]
fn a_silent_chain_is_reported_and_asked_again() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.take();
    world.after(limits::CONTROL_CLIENT_SILENCE);
    assert_eq!(world.reports(), [1, 1, 2, 2], "each member to each coordinator");
    world.after(Duration::from_millis(250));
    assert_eq!(world.updates(), [(1, 1, 0, 1)]);
    world.updated(1, &[1]);
    world.take();
    world.after(Duration::from_millis(900));
    assert_eq!(world.reports(), [], "nobody waits any more");
}

#[test]
fn a_head_that_stops_is_noticed_though_the_tail_answers() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    for call in 2..=5 {
        let query = Query::Get { key: key("a") };
        world.call(call, Call::Query { query, stale: false });
        let request = call - 1;
        world.response(2, Response::Answered { request, index: 1, answer: Answer::Row(None) });
        world.after(limits::CONTROL_CLIENT_SILENCE / 4);
    }
    assert!(world.reports().contains(&1));
}

#[test]
fn another_clusters_configuration_is_not_taken() {
    let mut world = World::ready();
    let mut other = config(vec![chain(0, 9, &[7])]);
    other.cluster = ClusterId(2);
    world.told(other);
    world.told(config(vec![chain(0, 9, &[7]), chain(1, 9, &[7])]));
    assert_eq!(world.client.config().unwrap().shards[0].epoch, Epoch(1));
    assert_eq!(world.take(), []);
}

fn change(index: u64) -> Change {
    Change { index, key: key("a"), row: Some(row("x", index)) }
}

fn changes(after: u64, indexes: &[u64], upto: u64) -> Response {
    let changes = indexes.iter().copied().map(change).collect();
    Response::Changes { shard: ShardId(0), subscription: 7, after, changes, upto }
}

fn subscribe(world: &mut World, credit: u32) {
    let (table, prefix, after) = (Table::Kv, Vec::new(), vec![3]);
    world.event(Event::Subscribe { subscription: 7, table, prefix, after, credit });
}

#[test]
fn a_subscription_goes_on_at_the_new_tail_without_gap_or_duplicate() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
    world.response(2, changes(3, &[4, 6], 6));
    let told = |indexes: &[u64], upto| Effect::Changes {
        subscription: 7,
        shard: ShardId(0),
        changes: indexes.iter().copied().map(change).collect(),
        upto,
    };
    assert_eq!(world.take(), [told(&[4, 6], 6)]);
    world.event(Event::Lost { replica: replica(2) });
    world.response(2, changes(6, &[7], 7));
    world.told(config(vec![chain(0, 2, &[1])]));
    assert_eq!(world.subscribed(), [(1, 6, 2)], "two are in the caller's hands");
    world.response(1, changes(5, &[6, 7], 7));
    assert_eq!(world.take(), [told(&[7], 7)]);
    let credit = |more: u32| {
        let request = Request::Credit { shard: ShardId(0), subscription: 7, more };
        Effect::Send { to: replica(1), request }
    };
    world.response(1, changes(6, &[7], 7));
    assert_eq!(world.take(), [credit(2)], "nobody consumes duplicates");
    world.event(Event::Consumed { subscription: 7, shard: ShardId(0), changes: 3 });
    assert_eq!(world.take(), [credit(3)]);
}

#[test]
fn an_older_subscription_at_the_same_tail_leaves_no_gap() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    let why = Refusal::Stale(Epoch(1));
    world.response(2, Response::SubscriptionEnded { shard: ShardId(0), subscription: 7, why });
    // Nobody is listened to while nothing is subscribed; then an older word comes first.
    world.response(2, changes(3, &[4], 4));
    world.after(Duration::from_millis(1));
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
    world.response(2, changes(4, &[5], 5));
    assert_eq!(world.take(), [], "4 was never told");
    world.after(Duration::from_millis(2));
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
    world.response(2, changes(3, &[4, 5], 5));
    assert_eq!(world.take().len(), 1);
}

#[test]
fn who_missed_something_reads_again_and_goes_on_from_there() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    let missed = Response::Missed { shard: ShardId(0), subscription: 7, oldest: 90 };
    world.response(2, missed);
    let told = Effect::Missed { subscription: 7, shard: ShardId(0), oldest: 90 };
    assert_eq!(world.take(), [told]);
    world.told(config(vec![chain(0, 2, &[1])]));
    assert_eq!(world.subscribed(), [], "it waits for the caller");
    world.event(Event::Resume { subscription: 7, shard: ShardId(0), after: 100 });
    assert_eq!(world.subscribed(), [(1, 100, 4)]);
    world.event(Event::Unsubscribe { subscription: 7 });
    assert_eq!(world.take().len(), 1);
}

/// The tail stops when it says `Missed`, and the client let that pass: it was told nothing any more.
#[test]
fn a_subscription_that_had_passed_what_the_tail_forgot_is_given_credit_again() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    world.response(2, changes(3, &[8], 8));
    world.take();
    world.response(2, Response::Missed { shard: ShardId(0), subscription: 7, oldest: 9 });
    assert_eq!(world.subscribed(), [(2, 8, 3)], "nothing was missed");
    world.response(2, changes(8, &[9], 9));
    assert_eq!(world.take().len(), 1, "its word counts");
}

/// The same index may be given to another entry, and the same seq to a batch that the head remembers otherwise.
#[test]
fn a_history_that_lost_its_end_voids_cursors_and_sessions() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.call(1, Call::Update(vec![put("a")]));
    world.take();
    let mut lossy = chain(0, 5, &[1]);
    lossy.history = Epoch(5);
    world.told(config(vec![lossy]));
    let effects = world.take();
    let missed = Effect::Missed { subscription: 7, shard: ShardId(0), oldest: 1 };
    assert!(effects.contains(&missed), "{effects:?}");
    let late = |effect: &Effect| {
        matches!(
            effect,
            Effect::Finish { call: 1, result: Err(CallError::Late { may_apply: true, .. }) }
        )
    };
    assert!(effects.iter().any(late), "{effects:?}");
    world.event(Event::Resume { subscription: 7, shard: ShardId(0), after: 2 });
    assert_eq!(world.subscribed(), [(1, 2, 4)], "from before where it had been");
    // It lived through a configuration that it was not told of.
    let mut later = chain(0, 9, &[1]);
    later.history = Epoch(5);
    world.told(config(vec![later]));
    assert_eq!(world.subscribed(), [(1, 2, 4)], "nothing was lost since");
}

#[test]
fn a_subscription_that_ended_is_taken_up_again() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    let why = Refusal::NotMine("tail".to_string());
    world.response(2, Response::SubscriptionEnded { shard: ShardId(0), subscription: 7, why });
    assert_eq!(world.subscribed(), []);
    world.after(Duration::from_millis(1));
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
}
