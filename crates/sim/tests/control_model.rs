//! Reconfiguration of a chain, model-checked: every order of what may happen, within a stated bound, over the real
//! replica machine.
//!
//! Three replicas, two clients with an update each that may be sent again, and a query. What may happen at any moment: a
//! message arrives (connections are ordered, and what a dead one sent arrives late or never), a
//! replica hears of the next configuration, a replica dies, the coordinator removes a dead or a silent member, lets a
//! replica join, promotes who has caught up, a client asks, 150 ms pass. The coordinator follows the rules of
//! `core::control::coordinator`: a chain is never left without a living whole member.
//!
//! In each state: what was applied is one history (CHAIN-1), each batch once (CHAIN-4); what was acknowledged is in the log
//! of every replica that acts in the newest epoch (CHAIN-3, CONF-2); nobody would answer a query from before what was acknowledged
//! (CHAIN-6).
//!
//! ```text
//! HOPLO_MODEL_DEPTH=40 HOPLO_MODEL_CRASHES=2 cargo test --profile sim -p hoplo-sim --test control_model -- --nocapture
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use hoplo_base::{Instant, NodeId};
use hoplo_core::control::replica::{Effect, Event, Replica, ReplicaOptions, Role};
use hoplo_wire::control::{
    ChainConfig, ClientId, Entry, Epoch, Key, Member, Op, PeerMessage, Query, ReplicaId, Request,
    Response, ShardId, Table,
};
use stateright::{Checker, Model, Property};

const REPLICAS: usize = 3;
const SHARD: ShardId = ShardId(0);
const PASSES: Duration = Duration::from_millis(150);

/// How far the search goes.
#[derive(Clone, Debug)]
struct Bound {
    /// Members of the first chain; the others are outside.
    members: usize,
    crashes: u32,
    /// Members that are removed although they live.
    suspicions: u32,
    joins: u32,
    asks: u32,
    queries: u32,
    passes: u32,
    /// Messages on one connection.
    underway: usize,
}

#[derive(Clone, Debug)]
struct State {
    now: Instant,
    replicas: Vec<Option<Replica>>,
    /// Configurations in order, and how many of them each replica has heard of.
    configs: Vec<ChainConfig>,
    heard: Vec<usize>,
    wires: BTreeMap<(usize, usize), VecDeque<PeerMessage>>,
    done: [bool; 2],
    history: Vec<Entry>,
    acknowledged: u64,
    used: Used,
    wrong: Option<String>,
    /// Stands for all of the above.
    key: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Used {
    crashes: u32,
    suspicions: u32,
    joins: u32,
    asks: [u32; 2],
    queries: u32,
    passes: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Arrives {
        from: usize,
        to: usize,
    },
    Hears(usize),
    Dies(usize),
    /// The coordinator takes it out; it may live.
    Removes(usize),
    Joins(usize),
    Promotes,
    Asks {
        client: usize,
        at: usize,
    },
    Queries(usize),
    TimePasses,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

fn id(number: usize) -> ReplicaId {
    ReplicaId { node: NodeId(number as u64), incarnation: 1 }
}

fn member(number: usize) -> Member {
    Member { replica: id(number), address: String::new() }
}

fn number(id: ReplicaId) -> usize {
    id.node.0 as usize
}

impl State {
    fn newest(&self) -> &ChainConfig {
        self.configs.last().expect("there is a first one")
    }

    /// As the coordinator knows it by heartbeats.
    fn acts(&self, at: usize) -> Option<Epoch> {
        self.replicas[at].as_ref().and_then(|replica| replica.status().acts)
    }

    fn is_whole(&self, at: usize) -> bool {
        let chain = self.newest();
        chain.members.contains(&member(at))
            && self.replicas[at].is_some()
            && chain.added.is_none_or(|(who, since)| who != id(at) || self.acts(at) >= Some(since))
    }

    fn configure(&mut self, members: Vec<Member>, joining: Option<Member>, gone: bool) {
        let last = self.newest().clone();
        let promoted = last.joining.filter(|it| members.contains(it)).map(|it| it.replica);
        let epoch = Epoch(last.epoch.0 + 1);
        let kept = last.added.filter(|(who, _)| {
            members.contains(&member(number(*who))) && !self.is_whole(number(*who))
        });
        let tail = last.members.last().expect("never empty");
        let old_tail_gone = members.contains(tail) || gone;
        let added = promoted.map(|who| (who, epoch)).or(kept);
        self.configs.push(ChainConfig {
            shard: SHARD,
            epoch,
            members,
            joining,
            added,
            old_tail_gone,
            history: Epoch::first(),
            unbegun: false,
        });
    }

    fn delivers_all(&mut self) {
        while let Some((&(from, to), _)) = self.wires.iter().find(|(_, wire)| !wire.is_empty()) {
            let message = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front);
            let message = message.expect("it is not empty");
            self.handle(to, Event::Peer { from: id(from), message });
        }
    }

    /// Hands an event to a replica, and carries out what it asks for; disks are fast here.
    fn handle(&mut self, at: usize, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(replica) = &mut self.replicas[at] else { return };
            let mut effects = Vec::new();
            replica.handle(self.now, event, &mut effects);
            replica.check();
            self.observe(at);
            for effect in effects {
                match effect {
                    Effect::Append { upto, .. } => events.push_back(Event::Logged { upto }),
                    Effect::Send { to, message } => {
                        let to = number(to);
                        if self.replicas[to].is_some() {
                            self.wires.entry((at, to)).or_default().push_back(message);
                        } else {
                            events.push_back(Event::PeerGone { replica: id(to) });
                        }
                    }
                    Effect::Respond { to, response } => self.responds(to, response),
                    Effect::ColdWrite { flush, .. } => {
                        events.push_back(Event::ColdWritten { flush });
                    }
                    Effect::ColdGet { ticket, .. } => {
                        events.push_back(Event::ColdRow { ticket, row: None });
                    }
                    Effect::ColdScan { ticket, .. } => {
                        let rows = Vec::new();
                        events.push_back(Event::ColdPage { ticket, rows, until: None });
                    }
                    Effect::Truncate { .. }
                    | Effect::SnapshotDone { .. }
                    | Effect::CaughtUp { .. }
                    | Effect::Suspect { .. }
                    | Effect::WantConfig { .. } => {}
                }
            }
        }
    }

    fn observe(&mut self, at: usize) {
        let replica = self.replicas[at].as_ref().expect("it acted");
        let status = replica.status();
        for index in 1..=status.applied {
            let Some(entry) = replica.entry(index) else { continue };
            match self.history.get(index as usize - 1) {
                Some(known) if known.seq == entry.seq && known.client == entry.client => {}
                Some(known) => {
                    self.wrong = Some(format!("CHAIN-1: {at} applied {entry:?}, not {known:?}"));
                }
                None => {
                    let twice = self
                        .history
                        .iter()
                        .any(|it| it.client == entry.client && it.seq == entry.seq);
                    if twice && entry.client.is_some() {
                        self.wrong = Some(format!("CHAIN-4: {entry:?} is there already"));
                    }
                    self.history.push(entry.clone());
                }
            }
        }
        if status.applied > self.history.len() as u64 {
            self.wrong = Some(format!("CHAIN-2: {at} applied {}", status.applied));
        }
    }

    fn responds(&mut self, to: ClientId, response: Response) {
        match response {
            Response::Updated { seq, index, .. } => {
                let entry = self.history.get(index as usize - 1);
                if entry.is_none_or(|it| it.client != Some(to) || it.seq != seq) {
                    self.wrong =
                        Some(format!("{seq} of {to:?} is acknowledged as {index}: {entry:?}"));
                }
                self.done[to.0 as usize] = true;
                self.acknowledged = self.acknowledged.max(index);
            }
            Response::Answered { index, .. } => {
                // Asked after everything that was acknowledged when it was asked; the state says more.
                self.acknowledged = self.acknowledged.max(index);
            }
            Response::UpdateRefused { .. }
            | Response::QueryRefused { .. }
            | Response::Changes { .. }
            | Response::Missed { .. }
            | Response::SubscriptionEnded { .. } => {}
        }
    }

    /// What must hold between any two events.
    fn judge(&mut self) {
        let newest = self.newest().epoch;
        for (at, replica) in self.replicas.iter().enumerate() {
            let Some(replica) = replica else { continue };
            let status = replica.status();
            if status.acts == Some(newest) && status.logged < self.acknowledged {
                self.wrong = Some(format!(
                    "CHAIN-3: {at} acts in {newest:?} and has {}, acknowledged is {}",
                    status.logged, self.acknowledged
                ));
            }
            if replica.answers(self.now) && status.applied < self.acknowledged {
                self.wrong = Some(format!(
                    "CHAIN-6: {at} would answer as of {}, acknowledged is {}: {:?}",
                    status.applied, self.acknowledged, status.role
                ));
            }
        }
        self.stamp();
    }

    fn stamp(&mut self) {
        let mut hasher = DefaultHasher::new();
        self.now.hash(&mut hasher);
        for replica in &self.replicas {
            let text = format!("{replica:?}");
            // How it came to be so does not matter.
            let end = text.rfind(", story: ").unwrap_or(text.len());
            text[..end].hash(&mut hasher);
        }
        self.heard.hash(&mut hasher);
        let rest = (&self.configs, &self.wires, self.done, &self.history, &self.wrong);
        format!("{rest:?}").hash(&mut hasher);
        (self.acknowledged, self.used).hash(&mut hasher);
        self.key = hasher.finish();
    }
}

impl Model for Bound {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let now = Instant(1_000_000_000);
        let replica = |at| {
            let mut options = ReplicaOptions::new(id(at), SHARD);
            options.cold_is_empty = true;
            Some(Replica::new(options, now))
        };
        let first = ChainConfig {
            shard: SHARD,
            epoch: Epoch(1),
            members: (0..self.members).map(member).collect(),
            joining: None,
            added: None,
            old_tail_gone: true,
            history: Epoch::first(),
            unbegun: true,
        };
        let mut state = State {
            now,
            replicas: (0..REPLICAS).map(replica).collect(),
            configs: vec![first.clone()],
            heard: vec![1; REPLICAS],
            wires: BTreeMap::new(),
            done: [false; 2],
            history: Vec::new(),
            acknowledged: 0,
            used: Used::default(),
            wrong: None,
            key: 0,
        };
        for at in 0..REPLICAS {
            state.handle(at, Event::ReplayDone);
            state.handle(at, Event::Configured(first.clone()));
        }
        state.delivers_all();
        // All have the beginning on disk: updates may come.
        let begun = ChainConfig { epoch: Epoch(2), unbegun: false, ..first };
        state.configs.push(begun.clone());
        state.heard = vec![2; REPLICAS];
        for at in 0..REPLICAS {
            state.handle(at, Event::Configured(begun.clone()));
        }
        state.delivers_all();
        state.wires.clear();
        state.judge();
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        let chain = state.newest();
        for (&(from, to), wire) in &state.wires {
            if !wire.is_empty() && state.replicas[to].is_some() {
                actions.push(Action::Arrives { from, to });
            }
        }
        for at in 0..REPLICAS {
            if state.replicas[at].is_none() {
                if chain.members.contains(&member(at)) || chain.joining == Some(member(at)) {
                    actions.push(Action::Removes(at));
                }
                continue;
            }
            if state.heard[at] < state.configs.len() {
                actions.push(Action::Hears(at));
            }
            if state.used.crashes < self.crashes {
                actions.push(Action::Dies(at));
            }
            if chain.members.contains(&member(at)) && state.used.suspicions < self.suspicions {
                actions.push(Action::Removes(at));
            }
            let outside = !chain.members.contains(&member(at)) && chain.joining.is_none();
            if outside && state.used.joins < self.joins {
                actions.push(Action::Joins(at));
            }
        }
        let promoted =
            chain.joining.as_ref().and_then(|it| state.replicas[number(it.replica)].as_ref());
        let settled = chain.added.is_none_or(|(who, _)| state.is_whole(number(who)));
        let ready = promoted.map(Replica::status);
        if settled && ready.is_some_and(|it| it.caught_up && it.epoch == chain.epoch) {
            actions.push(Action::Promotes);
        }
        for client in 0..2 {
            if !state.done[client] && state.used.asks[client] < self.asks {
                for at in 0..REPLICAS {
                    let role = state.replicas[at].as_ref().map(|it| it.status().role);
                    if matches!(role, Some(Role::Member { place: 0, .. })) {
                        actions.push(Action::Asks { client, at });
                    }
                }
            }
        }
        if state.used.queries < self.queries {
            for at in 0..REPLICAS {
                let role = state.replicas[at].as_ref().map(|it| it.status().role);
                if matches!(role, Some(Role::Member { place, of }) if place + 1 == of && of > 1) {
                    actions.push(Action::Queries(at));
                }
            }
        }
        if state.used.passes < self.passes {
            actions.push(Action::TimePasses);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Arrives { from, to } => {
                let message = state.wires.get_mut(&(from, to))?.pop_front()?;
                state.handle(to, Event::Peer { from: id(from), message });
            }
            Action::Hears(at) => {
                // Only the newest: what is older says nothing more.
                state.heard[at] += 1;
                let config = state.configs[state.heard[at] - 1].clone();
                state.handle(at, Event::Configured(config));
            }
            Action::Dies(at) => {
                state.used.crashes += 1;
                state.replicas[at] = None;
                state.wires.retain(|(_, to), _| *to != at);
                for other in 0..REPLICAS {
                    state.handle(other, Event::PeerGone { replica: id(at) });
                }
            }
            Action::Removes(at) => {
                let chain = state.newest().clone();
                let gone = state.replicas[at].is_none();
                let keeps = |it: &&Member| **it != member(at);
                let members: Vec<Member> = chain.members.iter().filter(keeps).cloned().collect();
                let joining = chain.joining.clone().filter(|it| *it != member(at));
                // CONF-2.
                let whole = members.iter().any(|it| state.is_whole(number(it.replica)));
                if members.is_empty() || (members.len() < chain.members.len() && !whole) {
                    return None;
                }
                state.used.suspicions += u32::from(!gone);
                state.configure(members, joining, gone);
            }
            Action::Joins(at) => {
                state.used.joins += 1;
                let members = state.newest().members.clone();
                state.configure(members, Some(member(at)), false);
            }
            Action::Promotes => {
                let mut members = state.newest().members.clone();
                members.extend(state.newest().joining.clone());
                state.configure(members, None, false);
            }
            Action::Asks { client, at } => {
                state.used.asks[client] += 1;
                let epoch = state.replicas[at].as_ref()?.status().epoch;
                let key = Key { table: Table::Kv, bytes: b"k".to_vec() };
                let value = vec![client as u8];
                let ops = vec![Op::Put { key, value, expected: None, finished: false }];
                let request =
                    Request::Update { shard: SHARD, epoch, born: 0, seq: 1, answered: 0, ops };
                state.handle(at, Event::Request { from: ClientId(client as u64), request });
            }
            Action::Queries(at) => {
                state.used.queries += 1;
                let epoch = state.replicas[at].as_ref()?.status().epoch;
                let query = Query::Get { key: Key { table: Table::Kv, bytes: b"k".to_vec() } };
                let request =
                    Request::Query { shard: SHARD, epoch, request: 1, query, stale: false };
                state.handle(at, Event::Request { from: ClientId(0), request });
            }
            Action::TimePasses => {
                state.used.passes += 1;
                state.now = state.now + PASSES;
                for at in 0..REPLICAS {
                    state.handle(at, Event::Tick);
                }
            }
        }
        state.judge();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            Property::sometimes("both updates are acknowledged", |_, state: &State| {
                state.done == [true, true]
            }),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.wires.values().all(|wire| wire.len() <= self.underway)
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn search(what: &str, mut bound: Bound, depth: u64) {
    bound.crashes = variable("HOPLO_MODEL_CRASHES", u64::from(bound.crashes)) as u32;
    let depth = variable("HOPLO_MODEL_DEPTH", depth) as usize;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = bound.clone().checker().threads(threads).target_max_depth(depth);
    let checker = checker.spawn_bfs().join();
    let (states, unique) = (checker.state_count(), checker.unique_state_count());
    println!(
        "{what}: {states} states, {unique} of them different, to depth {}",
        checker.max_depth()
    );
    if let Some(path) = checker.discovery("nothing is wrong") {
        let wrong = path.last_state().wrong.clone();
        let actions: Vec<String> =
            path.into_actions().into_iter().map(|it| format!("{it:?}")).collect();
        panic!("{}\nafter {bound:?}\n{}", wrong.expect("it is"), actions.join("\n"));
    }
    let done = checker.discovery("both updates are acknowledged");
    assert!(done.is_some() || bound.asks == 0, "the search is too narrow to see anything");
}

#[test]
fn a_chain_of_three_loses_members_in_any_order() {
    let bound = Bound {
        members: 3,
        crashes: 1,
        suspicions: 0,
        joins: 0,
        asks: 2,
        queries: 0,
        passes: 0,
        underway: 4,
    };
    search("chain of 3, a crash", bound, 16);
}

#[test]
fn a_tail_that_is_cut_off_never_answers_from_the_past() {
    let bound = Bound {
        members: 2,
        crashes: 0,
        suspicions: 1,
        joins: 0,
        asks: 1,
        queries: 1,
        passes: 2,
        underway: 3,
    };
    search("chain of 2, a suspicion, leases", bound, 11);
}

#[test]
fn a_replica_joins_while_others_die() {
    let bound = Bound {
        members: 2,
        crashes: 1,
        suspicions: 0,
        joins: 1,
        asks: 1,
        queries: 0,
        passes: 0,
        underway: 4,
    };
    search("chain of 2, one joins, a crash", bound, 15);
}
