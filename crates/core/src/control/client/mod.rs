//! The client's side of the control store, in whatever program asks it: today the `hoplo control` command.
//!
//! ```text
//!  Call --split by shard--> queue --room in the window--> in flight --answer--> Finish
//!                             \------------ deadline -------/------------------> Finish(Late)
//! ```
//!
//! A shard's batches carry seq 1, 2, 3, ... and stay in its window, in order, until they are answered: after a new
//! configuration, a lost connection, a gap or a silence they are sent again as they were, and the chain
//! drops what it has already. Calls that find the window full wait in the queue and travel in one batch
//! when there is room. The first batch of a session is empty and goes alone: when the shard does not know
//! the session (nothing was heard of this client for an hour, or it is new), nothing is in doubt. A batch that ran out of its caller's time is sent on until it is answered, because the next
//! ones count on its seq. One that is refused for good gives its seq to an empty batch.
//!
//! The client connects to all members of a chain beforehand, so that none has to be dialled when the chain
//! changes, and asks every coordinator that it knows for the next configuration: whoever acts answers. It accuses nobody: control nodes
//! watch each other, and of one that dies thousands of clients would speak at the same time.
//!
//! # Invariants
//! - CLIENT-1: a (shard, seq) never carries two different non-empty batches.
//! - CLIENT-2: each call finishes exactly once, at its deadline at the latest.
//! - CLIENT-3: `answered` never passes a batch whose outcome was not seen.
//! - CLIENT-4: bytes that wait are bounded: window and queue of each shard, credit of each subscription.
//! - CLIENT-5: a subscriber gets each change of a shard after its cursor once, in order, or `Missed`.
//! - CLIENT-6: an update that has no answer yet is sent again only after several times what answers take of late, and one that a shard had
//!   no time for after about that long: clients whose updates wait in line do not fill the line.
//! - CLIENT-7: calls about nodes share an entry with no other call: by the entries in which nodes died all tell which of them was first
//!   (`claims`, NREF-4).

mod calls;
mod config;
mod queries;
mod route;
mod state;
mod subscriptions;
mod updates;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, limits};
use hoplo_wire::control::{
    ChainConfig, Change, ClientId, ClusterConfig, FromCoordinator, Member, Op, Outcome, Query,
    Refusal, ReplicaId, Request, Response, Row, ShardId, Table, ToCoordinator,
};

pub use route::shard_of;

#[derive(Clone, Debug)]
pub struct ClientOptions {
    pub me: ClientId,
    /// Where coordinators listen: every control node.
    pub coordinators: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Changes of single keys; those of one shard are applied together, in order.
    Update(Vec<Op>),
    /// `stale`: any replica may answer, from its prefix of history. A scan covers all shards.
    Query { query: Query, stale: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// In the order of the operations.
    Updated(Vec<Outcome>),
    Row(Option<Row>),
    Page {
        /// In order of their keys.
        rows: Vec<(Vec<u8>, Row)>,
        next: Option<Vec<u8>>,
        /// By shard: the entry that the page reflects; a subscription may begin there.
        indexes: Vec<u64>,
    },
}

/// Why a call did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// `elsewhere`: other operations of the call, in other shards, were applied or may still be.
    #[error("the control store refused: {why}{}", if *.elsewhere { " (operations on other shards of the same call may have been applied)" } else { "" })]
    Refused { why: Refusal, elsewhere: bool },
    #[error("no answer in time: {waiting}{}", if *.may_apply { "; the update may still be applied" } else { "" })]
    Late { may_apply: bool, waiting: String },
    #[error("{bytes} bytes of updates wait already, at most {max} may: wait for some to finish")]
    Overloaded { bytes: usize, max: usize },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Ends with one `Finish` of this number, which the shell chose.
    Call {
        call: u64,
        what: Call,
        deadline: Instant,
    },
    /// Changes of keys with this prefix; `after` by shard (missing: 0). At most `credit` changes of a
    /// shard are on their way or not yet `Consumed`.
    Subscribe {
        subscription: u64,
        table: Table,
        prefix: Vec<u8>,
        after: Vec<u64>,
        credit: u32,
    },
    Consumed {
        subscription: u64,
        shard: ShardId,
        changes: u32,
    },
    /// After `Missed`: the table was read again, as of this entry.
    Resume {
        subscription: u64,
        shard: ShardId,
        after: u64,
    },
    Unsubscribe {
        subscription: u64,
    },
    /// This connection is open, and the one at its other end is this replica.
    Connected {
        replica: ReplicaId,
    },
    /// A connection broke, or could not be made. Nothing comes from it any more.
    Lost {
        replica: ReplicaId,
    },
    Response {
        from: ReplicaId,
        response: Response,
    },
    /// A coordinator said.
    Told {
        message: FromCoordinator,
    },
    /// Coordinators listen at these addresses now, and not where they did.
    Moved {
        coordinators: Vec<String>,
    },
    /// The connection to a coordinator broke: what was asked there is asked again after a moment.
    CoordinatorLost {
        address: String,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answered by `Connected` or `Lost`.
    Connect(Member),
    /// This replica is no member any more.
    Disconnect(ReplicaId),
    Send {
        to: ReplicaId,
        request: Request,
    },
    /// Connects first if need be; `CoordinatorLost` if that fails.
    Tell {
        address: String,
        message: ToCoordinator,
    },
    Finish {
        call: u64,
        result: Result<Done, CallError>,
    },
    Changes {
        subscription: u64,
        shard: ShardId,
        changes: Vec<Change>,
        upto: u64,
    },
    /// The subscription pauses in this shard until `Resume`: read the table again.
    Missed {
        subscription: u64,
        shard: ShardId,
        oldest: u64,
    },
}

pub struct Client {
    me: ClientId,
    coordinators: Vec<String>,
    /// Absent before the first answer.
    config: Option<ClusterConfig>,
    /// By shard number.
    shards: Vec<Shard>,
    links: BTreeMap<ReplicaId, Link>,
    calls: BTreeMap<u64, state::CallState>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Calls that came before the configuration.
    early: Vec<(u64, Call)>,
    early_bytes: usize,
    queries: BTreeMap<u64, queries::Waiting>,
    next_request: u64,
    subscriptions: BTreeMap<u64, subscriptions::Subscription>,
    /// When coordinators are asked again, by themselves.
    ask_at: Instant,
    /// The last refusals and losses, for errors and `explain`.
    trouble: Option<String>,
}

struct Shard {
    chain: ChainConfig,
    updates: updates::Window,
    queries: BTreeSet<u64>,
    queries_waiting: Silence,
    /// When refused queries and subscriptions are tried again.
    retry_at: Option<Instant>,
    retry_after: Duration,
}

/// A connection to a replica of the configuration.
struct Link {
    address: String,
    state: LinkState,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Connecting,
    Up,
    Down { retry_at: Instant },
}

/// Since when nothing was heard although something is awaited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Silence {
    since: Option<Instant>,
    /// When the coordinators are asked whether the chain is another one by now, and after how long the next time.
    ask_at: Instant,
    ask_after: Duration,
    /// When it is sent again, and after how long the next time.
    resend_at: Instant,
    resend_after: Duration,
}

impl Client {
    pub fn new(options: ClientOptions, now: Instant) -> Self {
        Self {
            me: options.me,
            coordinators: options.coordinators,
            config: None,
            shards: Vec::new(),
            links: BTreeMap::new(),
            calls: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            early: Vec::new(),
            early_bytes: 0,
            queries: BTreeMap::new(),
            next_request: 1,
            subscriptions: BTreeMap::new(),
            ask_at: now,
            trouble: None,
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Call { call, what, deadline } => {
                self.on_call(now, call, what, deadline, effects);
            }
            Event::Subscribe { subscription, table, prefix, after, credit } => {
                self.on_subscribe(subscription, table, prefix, after, credit, effects);
            }
            Event::Consumed { subscription, shard, changes } => {
                self.on_consumed(subscription, shard, changes, effects);
            }
            Event::Resume { subscription, shard, after } => {
                self.on_resume(subscription, shard, after, effects);
            }
            Event::Unsubscribe { subscription } => self.on_unsubscribe(subscription, effects),
            Event::Connected { replica } => self.on_connected(now, replica, effects),
            Event::Lost { replica } => self.on_lost(now, replica, effects),
            Event::Response { from, response } => self.on_response(now, from, response, effects),
            Event::Told { message } => self.on_told(now, message, effects),
            Event::Moved { coordinators } => {
                self.coordinators = coordinators;
                self.ask_at = now;
            }
            Event::CoordinatorLost { address } => self.on_coordinator_lost(now, &address),
            Event::Tick => {}
        }
        self.on_time(now, effects);
    }

    /// When `Tick` is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let calls = self.deadlines.first().map(|(at, _)| *at);
        let shards = self.shards.iter().flat_map(|shard| {
            let silences = [&shard.updates.waiting, &shard.queries_waiting];
            let silences = silences.into_iter().filter(|silence| silence.since.is_some());
            silences
                .map(|silence| silence.ask_at.min(silence.resend_at))
                .chain(shard.updates.again_at)
                .chain(shard.retry_at)
        });
        let links = self.links.values().filter_map(|link| match link.state {
            LinkState::Down { retry_at } => Some(retry_at),
            LinkState::Connecting | LinkState::Up => None,
        });
        calls.into_iter().chain(shards).chain(links).chain([self.ask_at]).min()
    }

    /// The configuration that calls go by; absent before the first answer of a coordinator.
    pub fn config(&self) -> Option<&ClusterConfig> {
        self.config.as_ref()
    }

    /// Calls that have not finished.
    pub fn calls_open(&self) -> usize {
        self.calls.len()
    }

    /// Why a call has not finished.
    pub fn explain(&self, call: u64) -> String {
        let Some(state) = self.calls.get(&call) else { return format!("call {call} is finished") };
        self.waiting_for(call, state)
    }

    /// Asserts CLIENT-1 to CLIENT-5 as far as one state shows them.
    pub fn check(&self) {
        assert_eq!(self.calls.len(), self.deadlines.len(), "CLIENT-2: each call has a deadline");
        for shard in &self.shards {
            shard.updates.check();
            for request in &shard.queries {
                let waiting = self.queries.get(request).expect("CLIENT-2: a query that waits");
                assert!(self.calls.contains_key(&waiting.call), "CLIENT-2: a query without call");
            }
        }
        for subscription in self.subscriptions.values() {
            subscription.check();
        }
    }

    fn on_response(
        &mut self,
        now: Instant,
        from: ReplicaId,
        response: Response,
        effects: &mut Vec<Effect>,
    ) {
        match response {
            Response::Updated { shard, seq, index: _, outcomes } => {
                self.on_updated(now, shard, seq, outcomes, effects);
            }
            Response::UpdateRefused { shard, seq, why } => {
                self.on_update_refused(now, shard, seq, why, effects);
            }
            Response::Answered { request, index, answer } => {
                self.on_answered(now, request, index, answer, effects);
            }
            Response::QueryRefused { request, why } => {
                self.on_query_refused(now, request, why, effects);
            }
            Response::Changes { shard, subscription, after, changes, upto } => {
                let changes = changes.into_value();
                let told = subscriptions::Told { from, shard, after, changes, upto };
                self.on_changes(now, subscription, told, effects);
            }
            Response::Missed { shard, subscription, oldest } => {
                self.on_missed(from, shard, subscription, oldest, effects);
            }
            Response::SubscriptionEnded { shard, subscription, why } => {
                self.on_subscription_ended(now, shard, subscription, &why);
            }
        }
    }

    fn on_time(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.expire(now, effects);
        self.reconnect(now, effects);
        for number in 0..self.shards.len() {
            self.updates_on_time(now, number, effects);
            self.queries_on_time(now, number, effects);
        }
        if self.ask_at <= now {
            self.ask(now, effects);
        }
    }
}

impl Silence {
    /// Something was sent. An answer takes so long as a rule.
    fn sent(&mut self, now: Instant, usual: Duration) {
        if self.since.is_none() {
            *self = Self::begin(now, usual);
        }
    }

    /// An answer came; `more` are awaited.
    fn heard(&mut self, now: Instant, usual: Duration, more: bool) {
        *self = if more { Self::begin(now, usual) } else { Self::default() };
    }

    fn begin(now: Instant, usual: Duration) -> Self {
        let resend_after = (usual * limits::CONTROL_CLIENT_RESEND_USUAL)
            .clamp(limits::CONTROL_CLIENT_RESEND_FIRST, limits::CONTROL_CLIENT_RESEND_LAST);
        Self {
            since: Some(now),
            ask_at: now + limits::CONTROL_CLIENT_SILENCE,
            ask_after: limits::CONTROL_CLIENT_SILENCE,
            resend_at: now + resend_after,
            resend_after,
        }
    }

    fn ask_due(&mut self, now: Instant) -> bool {
        let due = self.since.is_some() && self.ask_at <= now;
        if due {
            self.ask_after = (self.ask_after * 2).min(limits::CONTROL_CLIENT_ASKS_LAST);
            self.ask_at = now + self.ask_after;
        }
        due
    }

    fn resend_due(&mut self, now: Instant) -> bool {
        let due = self.since.is_some() && self.resend_at <= now;
        if due {
            self.resend_after = (self.resend_after * 2).min(limits::CONTROL_CLIENT_RESEND_LAST);
            self.resend_at = now + self.resend_after;
        }
        due
    }
}
