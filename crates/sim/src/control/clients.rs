//! Clients: the real client machine, a small program, and what it saw.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::Instant;
use hoplo_core::control::client::{Call, CallError, Client, ClientOptions, Done, Effect, Event};
use hoplo_core::control::{Entry, EventEntry};
use hoplo_wire::control::{ClientId, Key, Op, Query, Request, Response, ShardId, Table};

use super::counts::What as Seen;
use super::invariants::feed::Feed;
use super::invariants::linear::{Operation, What};
use super::network::{End, Kind, Message};
use super::plan::Clock;
use super::spins::Spins;
use super::world::{Step, World, host_address, node_of};

pub struct ClientProcess {
    pub number: u64,
    pub id: ClientId,
    pub machine: Client,
    clock: Clock,
    tick_at: Option<Instant>,
    spins: Spins,
    left: u64,
    next_call: u64,
    open: BTreeMap<u64, Open>,
    pub feed: Option<Feed>,
    /// Shards whose part of the feed waits for a table that is read again: by call.
    rereads: BTreeMap<u64, (ShardId, u64)>,
    pub paused_feeds: u64,
    /// What was sent first, and how much of the history had reached clients before.
    floors: BTreeMap<(ShardId, u64), u64>,
    asked: BTreeMap<u64, (ShardId, u64, bool)>,
    /// Values that will never be written, the client was told.
    pub never: Vec<Vec<u8>>,
    /// What some key had, for compare-and-swap.
    seen: BTreeMap<Key, u64>,
}

struct Open {
    called: Instant,
    what: Call,
}

const FEED: u64 = 1;

impl ClientProcess {
    pub fn new(number: u64, clock: Clock, coordinators: u64, left: u64, now: Instant) -> Self {
        let id = ClientId(100 + number);
        let coordinators = (0..coordinators).map(host_address).collect();
        let options = ClientOptions { me: id, coordinators };
        Self {
            number,
            id,
            machine: Client::new(options, clock.reads(now)),
            clock,
            tick_at: None,
            spins: Spins::default(),
            left,
            next_call: 1,
            open: BTreeMap::new(),
            feed: None,
            rereads: BTreeMap::new(),
            paused_feeds: 0,
            floors: BTreeMap::new(),
            asked: BTreeMap::new(),
            never: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.left == 0 && self.open.is_empty()
    }

    pub fn whats_up(&self) -> String {
        let calls = self.open.iter().map(|(call, open)| {
            format!("  call {call} {:?}: {}\n", open.what, self.machine.explain(*call))
        });
        let calls: String = calls.collect();
        let (feed, paused) = (&self.feed, self.paused_feeds);
        format!(
            "client {}: {} calls left, {paused} feeds paused, {feed:?}\n{calls}",
            self.number, self.left
        )
    }
}

impl World {
    fn client(&mut self, number: u64) -> &mut ClientProcess {
        self.clients.get_mut(&number).expect("clients live for ever")
    }

    /// The program goes on: a call, if one may be open and one is left.
    pub fn client_goes(&mut self, number: u64) {
        let at_once = self.plan.calls_at_once;
        let client = self.client(number);
        // When one ends it goes on.
        if client.left == 0 || client.open.len() as u64 >= at_once {
            return;
        }
        client.left -= 1;
        let call = client.next_call;
        client.next_call += 1;
        let what = self.some_call(number, call);
        let deadline = Duration::from_millis(200 + self.rng.below(8_000));
        let thinks = self.rng.delay(self.plan.thinks);
        self.after(thinks, Step::ClientGoes(number));
        self.client_calls(number, call, what, deadline);
    }

    pub fn client_subscribes(&mut self, number: u64) {
        let prefix = if self.rng.one_in(2) { b"k".to_vec() } else { b"k1".to_vec() };
        let table = Table::Kv;
        let credit = 1 + self.rng.below(20) as u32;
        self.client(number).feed = Some(Feed::new(table, prefix.clone()));
        let event = Event::Subscribe { subscription: FEED, table, prefix, after: vec![], credit };
        self.client_event(number, event);
    }

    fn client_calls(&mut self, number: u64, call: u64, what: Call, deadline: Duration) {
        let now = self.now;
        self.note(|| format!("client {number} calls {call}: {what:?}"));
        let client = self.client(number);
        client.open.insert(call, Open { called: now, what: what.clone() });
        let deadline = client.clock.reads(now) + deadline;
        self.client_event(number, Event::Call { call, what, deadline });
    }

    fn some_key(&mut self) -> Key {
        let number = self.rng.below(self.plan.keys);
        let table = match number % 2 {
            _ if self.rng.one_in(5) => Table::Event,
            // Full pages of this one are kept (PAGE-1).
            0 => Table::Node,
            _ => Table::Kv,
        };
        Key { table, bytes: format!("k{number}").into_bytes() }
    }

    fn some_call(&mut self, number: u64, call: u64) -> Call {
        if self.rng.one_in(3) {
            let stale = self.rng.one_in(4);
            let key = self.some_key();
            let query = if self.rng.one_in(6) {
                let limit = 1 + self.rng.below(3) as u32;
                let (table, prefix) = (key.table, b"k".to_vec());
                Query::Scan { table, prefix, from: None, limit, archived: self.rng.one_in(4) }
            } else {
                Query::Get { key }
            };
            return Call::Query { query, stale };
        }
        let count = if self.rng.one_in(5) { 1 + self.rng.below(4) } else { 1 };
        let ops = (0..count).map(|place| self.some_op(number, call, place)).collect();
        Call::Update(ops)
    }

    fn some_op(&mut self, number: u64, call: u64, place: u64) -> Op {
        let key = self.some_key();
        let seen = self.clients[&number].seen.get(&key).copied().unwrap_or(0);
        let expected = (self.rng.one_in(3)).then_some(seen);
        if self.rng.one_in(6) {
            return Op::Delete { key, expected };
        }
        let finished = key.table == Table::Event;
        let mut value = format!("{number}.{call}.{place}.").into_bytes();
        value.resize(value.len() + self.rng.below(200) as usize, b'x');
        if key.table == Table::Event {
            let text = String::from_utf8(value).expect("it was made of text");
            value = EventEntry { at_us: 0, seq: 0, text }.to_value();
        }
        Op::Put { key, value, expected, finished }
    }

    pub fn client_hears(&mut self, number: u64, from: End, kind: Kind, message: Message) {
        let event = match (message, from) {
            (Message::Welcome, End::Process(replica)) => Event::Connected { replica },
            (Message::Response(response), End::Process(from)) => {
                self.note_reached(number, &response);
                Event::Response { from, response }
            }
            (Message::Told(message), _) => Event::Told { message },
            (message, from) => panic!("{message:?} from {from:?} over {kind:?} at a client"),
        };
        self.client_event(number, event);
    }

    pub fn client_loses(&mut self, number: u64, from: End, kind: Kind) {
        let End::Process(replica) = from else { return };
        let event = match kind {
            Kind::Coordinator => Event::CoordinatorLost { address: host_address(replica.node.0) },
            Kind::Client => Event::Lost { replica },
            Kind::Peer => return,
        };
        self.client_event(number, event);
    }

    pub fn client_ticks(&mut self, number: u64, at: Instant) {
        if self.client(number).tick_at == Some(at) {
            self.client(number).tick_at = None;
            self.client_event(number, Event::Tick);
        }
    }

    pub fn client_event(&mut self, number: u64, event: Event) {
        let now = self.now;
        let client = self.client(number);
        if event == Event::Tick {
            client.spins.tick(now)
        } else {
            client.spins.ends()
        }
        assert!(!client.spins.is_too_many(), "it spins: {}", client.whats_up());
        let mut effects = Vec::new();
        client.machine.handle(client.clock.reads(now), event, &mut effects);
        client.machine.check();
        for effect in effects {
            self.client_effect(number, effect);
        }
        let client = self.client(number);
        let deadline = client.machine.next_deadline().map(|at| client.clock.when(at).max(now));
        // A deadline that is due already comes at once, but time goes on.
        let deadline = deadline.map(|at| at.max(Instant(now.0 + 1000)));
        if let Some(at) = deadline
            && client.tick_at.is_none_or(|armed| at < armed || armed < now)
        {
            client.tick_at = Some(at);
            self.at(at, Step::ClientTicks(number, at));
        }
    }

    fn client_effect(&mut self, number: u64, effect: Effect) {
        let me = End::Client(number);
        match effect {
            Effect::Connect(member) => {
                self.send(me, End::Process(member.replica), Kind::Client, Message::Hello);
            }
            Effect::Disconnect(replica) => self.hangs_up(me, End::Process(replica), Kind::Client),
            Effect::Send { to, request } => {
                self.note_sent(number, &request);
                self.send(me, End::Process(to), Kind::Client, Message::Request(request));
            }
            Effect::Tell { address, message } => match self.process_at(node_of(&address)) {
                Some(id) => {
                    let message = Message::Report(message);
                    self.send(me, End::Process(id), Kind::Coordinator, message);
                }
                None => {
                    let delay = self.rng.delay(Duration::from_millis(5));
                    self.after(delay, Step::CoordinatorAbsent(number, node_of(&address)));
                }
            },
            Effect::Finish { call, result } => self.client_finishes(number, call, result),
            Effect::Changes { subscription, shard, changes, upto } => {
                let mut feed = self.client(number).feed.take().expect("it subscribed");
                feed.hears(shard, &changes, upto, &self.truths[&shard]);
                self.client(number).feed = Some(feed);
                let changes = changes.len() as u32;
                if changes > 0 {
                    let delay = self.rng.delay(Duration::from_millis(20));
                    self.after(delay, Step::ClientConsumes(number, subscription, shard, changes));
                }
            }
            Effect::Missed { subscription: _, shard, oldest } => {
                self.note(|| {
                    format!("client {number} missed changes of {shard:?} before {oldest}")
                });
                self.counts.add(Seen::SubscriberMissed);
                self.client(number).paused_feeds += 1;
                self.reread(number, shard, oldest);
            }
        }
    }

    fn reread(&mut self, number: u64, shard: ShardId, oldest: u64) {
        let client = self.client(number);
        let call = client.next_call;
        client.next_call += 1;
        client.rereads.insert(call, (shard, oldest));
        let feed = client.feed.as_ref().expect("it subscribed");
        let (table, prefix) = (feed.table, feed.prefix.clone());
        let query = Query::Scan { table, prefix, from: None, limit: 1000, archived: false };
        self.client_calls(
            number,
            call,
            Call::Query { query, stale: false },
            Duration::from_secs(5),
        );
    }

    pub fn client_consumes(
        &mut self,
        number: u64,
        subscription: u64,
        shard: ShardId,
        changes: u32,
    ) {
        self.client_event(number, Event::Consumed { subscription, shard, changes });
    }

    fn client_finishes(&mut self, number: u64, call: u64, result: Result<Done, CallError>) {
        let now = self.now;
        self.note(|| format!("client {number}: call {call} ends with {result:?}"));
        self.calls += 1;
        let thinks = self.rng.delay(self.plan.thinks);
        self.after(thinks, Step::ClientGoes(number));
        let open = self.client(number).open.remove(&call).expect("CLIENT-2: it ends once");
        if let Some((shard, oldest)) = self.client(number).rereads.remove(&call) {
            let Ok(Done::Page { indexes, .. }) = &result else {
                return self.reread(number, shard, oldest);
            };
            let after = indexes[usize::from(shard.0)];
            let client = self.client(number);
            client.paused_feeds -= 1;
            client.feed.as_mut().expect("it subscribed").misses(shard, oldest, after);
            self.client_event(number, Event::Resume { subscription: FEED, shard, after });
            return;
        }
        if result.is_ok() {
            self.calls_done += 1;
        }
        let called = open.called.0;
        match (open.what, result) {
            (Call::Update(ops), Ok(Done::Updated(outcomes))) => {
                assert_eq!(ops.len(), outcomes.len(), "an outcome for each operation");
                for (op, outcome) in ops.into_iter().zip(outcomes) {
                    if let hoplo_wire::control::Outcome::Done { version } = outcome {
                        self.client(number).seen.insert(key_of(&op), version);
                    }
                    self.record(called, Some(now.0), op, Some(outcome));
                }
            }
            (Call::Update(ops), Err(error)) => {
                let may_apply = match error {
                    CallError::Refused { elsewhere, .. } => elsewhere,
                    CallError::Late { may_apply, .. } => may_apply,
                    CallError::Overloaded { .. } => false,
                };
                for op in ops {
                    if may_apply {
                        self.record(called, None, op, None);
                    } else if let Op::Put { value, .. } = op {
                        self.client(number).never.push(value);
                    }
                }
            }
            (Call::Query { query: Query::Get { key }, stale }, Ok(Done::Row(row))) => {
                let found = row.map(|row| (row.value, row.version));
                if let Some((_, version)) = &found {
                    self.client(number).seen.insert(key.clone(), *version);
                }
                if !stale {
                    let what = What::Get { found };
                    let operation = Operation { called, ended: Some(now.0), what };
                    // An archived row is found, but for updates it is not there: no register.
                    if key.table != Table::Event {
                        self.history.add(key, operation);
                    }
                }
            }
            (Call::Query { .. }, Ok(Done::Page { .. }) | Err(_)) => {}
            (what, Ok(done)) => panic!("{what:?} was answered by {done:?}"),
        }
    }

    fn record(
        &mut self,
        called: u64,
        ended: Option<u64>,
        op: Op,
        outcome: Option<hoplo_wire::control::Outcome>,
    ) {
        let (key, what) = match op {
            Op::Put { key, value, expected, .. } => (key, What::Put { value, expected, outcome }),
            Op::Delete { key, expected } => (key, What::Delete { expected, outcome }),
            Op::Archive { .. } => unreachable!("no client archives"),
        };
        if key.table != Table::Event {
            self.history.add(key, Operation { called, ended, what });
        }
    }

    /// A request leaves: what was answered to anybody before has to be in its answer.
    fn note_sent(&mut self, number: u64, request: &Request) {
        match request {
            Request::Update { shard, seq, .. } => {
                let reached = self.truths[shard].reached;
                self.client(number).floors.entry((*shard, *seq)).or_insert(reached);
            }
            Request::Query { shard, request, stale, query, .. } => {
                let reached = self.truths[shard].reached;
                let client = self.client(number);
                client.asked.entry(*request).or_insert((*shard, reached, *stale));
                let id = client.id;
                self.queries.insert((id, *request), query.clone());
            }
            Request::Subscribe { .. } | Request::Credit { .. } | Request::Unsubscribe { .. } => {}
        }
    }

    /// CHAIN-6 and linearizability of a whole shard: who asks after an answer reached somebody is not answered from
    /// before it.
    fn note_reached(&mut self, number: u64, response: &Response) {
        let (shard, index) = match response {
            Response::Updated { shard, seq, index, .. } => {
                let floor = self.client(number).floors.get(&(*shard, *seq)).copied();
                let floor = floor.expect("it was sent");
                assert!(
                    *index > floor,
                    "batch {seq} of client {number} is entry {index}, but {floor} was answered before it was sent"
                );
                (*shard, *index)
            }
            Response::Answered { request, index, .. } => {
                let (shard, floor, stale) =
                    *self.client(number).asked.get(request).expect("it was asked");
                if stale {
                    return;
                }
                assert!(
                    *index >= floor,
                    "CHAIN-6: query {request} of client {number} is answered as of {index}, but {floor} was \
                     answered before it was asked"
                );
                (shard, *index)
            }
            Response::UpdateRefused { .. }
            | Response::QueryRefused { .. }
            | Response::Changes { .. }
            | Response::Missed { .. }
            | Response::SubscriptionEnded { .. } => return,
        };
        let truth = self.truths.get_mut(&shard).expect("a shard");
        truth.reached = truth.reached.max(index);
    }

    pub fn coordinator_absent(&mut self, number: u64, node: u64) {
        self.client_event(number, Event::CoordinatorLost { address: host_address(node) });
    }
}

fn key_of(op: &Op) -> Key {
    match op {
        Op::Put { key, .. } | Op::Delete { key, .. } | Op::Archive { key, .. } => key.clone(),
    }
}
