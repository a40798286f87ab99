//! A node, as a stand-in or a real one: it reads the node table, hears of its changes, beats, and says that it passed deaths.

use hoplo_base::limits::NODE_ROWS_ON_THE_WAY;
use hoplo_base::{Instant, NodeNumber};
use hoplo_core::control::{Entry, NodeEntry, NodeState};
use hoplo_core::members::beat;
use hoplo_core::node::{Effect, Event, Node};
use hoplo_wire::control::{Answer, Change, ClientId, Op, Query, Request, Response, Row, Table};

use super::Server;
use super::plane::{EPOCH, Plane, SHARD, number, put};
use super::words::{Heard, Kind, Member, Said, What};

/// As in `crates/node/src/daemon/far.rs`.
const PAGE_ROWS: u32 = 1000;
const NODES: u64 = 1;

impl Member {
    pub(super) fn new(at: u32, sample: Option<Box<Node>>) -> Self {
        Self {
            at,
            lives: true,
            refuses: false,
            joined_at: None,
            decider: Server::default(),
            sample,
            driver: None,
            wants_sweep: false,
            held: Vec::new(),
            passing: None,
            ticks_at: None,
            heard_at: None,
            seq: 0,
            owed: 0,
            after: None,
            rows_heard: 0,
            knows_to: 0,
            deaths_heard: 0,
            settled_heard: 0,
            unsaved: Vec::new(),
            saving: 0,
        }
    }

    pub(super) fn joined(at: u32) -> Self {
        Self { joined_at: Some(0), ..Self::new(at, None) }
    }

    pub(super) fn client(&self) -> ClientId {
        ClientId(100 + u64::from(self.at))
    }

    pub(super) fn number(&self) -> NodeNumber {
        number(self.at)
    }
}

impl Plane {
    /// From a node to the store.
    pub(super) fn asks(&mut self, at: u64, member: ClientId, request: Request) {
        let said = Said::Request { from: member, request };
        self.at(at + self.costs.way, What::ToDecider(said));
    }

    pub(super) fn update_of(&mut self, at: u64, node: u32, ops: Vec<Op>) {
        let member = self.members.get_mut(&node).expect("it lives");
        member.seq += 1;
        let (seq, client) = (member.seq, member.client());
        let request =
            Request::Update { shard: SHARD, epoch: EPOCH, born: 0, seq, answered: seq - 1, ops };
        self.asks(at, client, request);
    }

    /// As one that has read the table just now.
    pub(super) fn subscribes(&mut self, member: &mut Member) {
        let request = Request::Subscribe {
            shard: SHARD,
            epoch: EPOCH,
            subscription: NODES,
            table: Table::Node,
            prefix: Vec::new(),
            after: member.after.unwrap_or_else(|| self.store.status().applied),
            credit: NODE_ROWS_ON_THE_WAY,
        };
        self.asks(self.now, member.client(), request);
    }

    /// The store says this to it.
    pub(super) fn answered(&mut self, at: u32, responses: Vec<Response>) {
        for response in responses {
            if at == 0 {
                self.clerk_hears(&response);
                continue;
            }
            if !self.members.get(&at).is_some_and(|member| member.lives) {
                return;
            }
            match response {
                Response::Updated { seq, .. } => self.is_updated(at, seq),
                Response::UpdateRefused { why, .. } => {
                    *self.refusals.entry(why.to_string()).or_default() += 1;
                    self.is_refused(at);
                }
                Response::Answered { answer: Answer::Page { rows, next }, index, .. } => {
                    self.reads(at, &rows, next, index);
                }
                Response::Changes { changes, .. } => self.hears(at, &changes),
                Response::SubscriptionEnded { why, .. } => {
                    *self.refusals.entry(why.to_string()).or_default() += 1;
                }
                Response::Missed { .. } => {
                    *self.refusals.entry("it missed changes".to_string()).or_default() += 1;
                }
                other @ (Response::Answered { .. } | Response::QueryRefused { .. }) => {
                    panic!("node {at} hears {other:?}")
                }
            }
        }
    }

    fn is_updated(&mut self, at: u32, seq: u64) {
        let member = &self.members[&at];
        match (member.joined_at, seq) {
            // Its session has begun: now it says where it is.
            (None, 1) => {
                let row = self.row(at, NodeState::Alive);
                self.update_of(self.now, at, vec![put(&row, Some(1))]);
            }
            (None, _) => self.asks_page(at, None),
            (Some(_), _) => self.is_saved(at),
        }
    }

    fn asks_page(&mut self, at: u32, from: Option<Vec<u8>>) {
        let (table, prefix, limit, archived) = (Table::Node, Vec::new(), PAGE_ROWS, false);
        let query = Query::Scan { table, prefix, from, limit, archived };
        let request =
            Request::Query { shard: SHARD, epoch: EPOCH, request: 1, query, stale: false };
        self.asks(self.now, self.members[&at].client(), request);
    }

    fn reads(&mut self, at: u32, rows: &[(Vec<u8>, Row)], next: Option<Vec<u8>>, index: u64) {
        let member = self.members.get_mut(&at).expect("it lives");
        member.after.get_or_insert(index);
        let done = self.takes_rows(at, rows.iter().map(|(_, row)| (row, row.index)));
        self.knows_up_to(at, index);
        if next.is_some() {
            return self.asks_page(at, next);
        }
        let mut member = self.members.remove(&at).expect("it lives");
        self.subscribes(&mut member);
        self.members.insert(at, member);
        // Its carrier dials the head's, and says for the first time that it lives.
        let shaken = self.desk.takes(self.now, self.costs.handshake);
        self.at(done.max(shaken) + self.costs.way, What::Ready(at));
    }

    fn hears(&mut self, at: u32, changes: &[Change]) {
        let count = changes.len() as u32;
        let last = changes.last().map_or(0, |change| change.index);
        let changed = changes.iter().filter_map(|it| Some((it.row.as_ref()?, it.index)));
        self.takes_rows(at, changed);
        self.knows_up_to(at, last);
        let member = self.members.get_mut(&at).expect("it lives");
        member.owed += count;
        if member.owed * 2 >= NODE_ROWS_ON_THE_WAY {
            let more = std::mem::take(&mut member.owed);
            let request = Request::Credit { shard: SHARD, subscription: NODES, more };
            self.asks(self.now, self.members[&at].client(), request);
        }
    }

    /// Its decider hears of these rows; returns when it has.
    fn takes_rows<'a>(&mut self, at: u32, rows: impl Iterator<Item = (&'a Row, u64)>) -> u64 {
        let mut member = self.members.remove(&at).expect("it lives");
        const LIVES: &str = "node: another node's row";
        let mut deaths = Vec::new();
        let mut ns = self.costs.receive;
        let of_living = self.meter.mean(LIVES).unwrap_or(self.costs.frame);
        for (row, index) in rows {
            let kind = self.kind_of(row, index);
            let what = match kind {
                Kind::Lives => LIVES,
                Kind::Dead { .. } => "node: a death",
                Kind::Settled => "node: a death is settled",
            };
            member.rows_heard += 1;
            match kind {
                Kind::Lives => {}
                Kind::Dead { node, heir } => {
                    member.deaths_heard += 1;
                    deaths.push((node, heir, index));
                }
                Kind::Settled => member.settled_heard += 1,
            }
            // From the thread that reads the store to the carrier and back.
            ns += 2 * self.costs.frame;
            ns += match &mut member.sample {
                None if matches!(kind, Kind::Lives) => of_living,
                None => self.meter.mean(what).unwrap_or(self.costs.frame),
                Some(_) => {
                    let entry = Box::new(NodeEntry::from_row(row).expect("it is a node's"));
                    let event = Event::Member { entry, index };
                    self.real_hears(what, &mut member, event)
                }
            };
        }
        let done = member.decider.takes(self.now, ns);
        self.last_heard_at = self.last_heard_at.max(done);
        if !deaths.is_empty() {
            self.heard_deaths_at = self.heard_deaths_at.max(done);
        }
        let is_real = member.sample.is_some();
        self.members.insert(at, member);
        if is_real {
            self.sample_sweeps(at);
        } else if let Some((.., last)) = deaths.last() {
            // One that it did not pass yet is passed with this one.
            self.members.get_mut(&at).expect("it lives").passing = Some(*last);
            deaths.iter().for_each(|(node, heir, _)| self.inherits(at, *node, *heir));
            self.asks_heirs(at);
            self.looks_at_passing(at);
        }
        done
    }

    /// Each entry is decoded once: all nodes hear of the same ones.
    fn kind_of(&mut self, row: &Row, index: u64) -> Kind {
        *self.kinds.entry(index).or_insert_with(|| {
            let entry = NodeEntry::from_row(row).expect("it is a node's");
            match entry.state {
                NodeState::Alive | NodeState::Draining => Kind::Lives,
                NodeState::Dead { heir, .. } => Kind::Dead { node: entry.node, heir },
                NodeState::Settled { .. } => Kind::Settled,
            }
        })
    }

    fn knows_up_to(&mut self, at: u32, index: u64) {
        let member = self.members.get_mut(&at).expect("it lives");
        let before = member.knows_to;
        member.knows_to = before.max(index);
        if self.last_place.is_some_and(|last| before < last && index >= last) {
            self.unknown -= 1;
        }
    }

    /// What a real node says to others goes there.
    fn real_hears(&mut self, what: &'static str, member: &mut Member, event: Event) -> u64 {
        let now = Instant(self.now);
        let node = member.sample.as_mut().expect("it is a real one");
        let mut effects = Vec::new();
        let ns = self.meter.run(what, || {
            node.handle(now, event, &mut effects);
            effects.len()
        });
        let from = node.config().node;
        for effect in effects {
            match effect {
                Effect::SendPeer { to, message, .. } => {
                    self.said.push((from, to, message));
                }
                Effect::Sweep => member.wants_sweep = true,
                Effect::Accept { process, .. } => member.driver = Some(process),
                _ => {}
            }
        }
        ns
    }

    /// And does.
    pub(super) fn sample_hears(&mut self, at: u32, what: &'static str, event: Event) {
        let mut member = self.members.remove(&at).expect("it lives");
        let ns = self.real_hears(what, &mut member, event);
        member.decider.takes(self.now, ns);
        self.members.insert(at, member);
    }

    /// At the end of a turn: what it said leaves.
    pub(super) fn sample_sweeps(&mut self, at: u32) {
        while std::mem::take(&mut self.members.get_mut(&at).expect("it lives").wants_sweep) {
            for event in [Event::SweepBegins, Event::Swept] {
                self.sample_hears(at, "node: a sweep", event);
            }
        }
        let leaves = self.now + self.costs.hand_over;
        for (from, to, message) in std::mem::take(&mut self.said) {
            self.says(leaves, from, to, message);
        }
        self.arms_sample(at);
    }

    pub(super) fn sample_ticks(&mut self, at: u32) {
        let Some(member) = self.members.get_mut(&at) else { return };
        member.ticks_at = None;
        let due = member.sample.as_ref().and_then(|node| node.next_deadline());
        if due.is_some_and(|at| at.0 <= self.now) {
            self.sample_hears(at, "node: a tick", Event::Tick);
        }
        self.sample_sweeps(at);
    }

    fn arms_sample(&mut self, at: u32) {
        let member = self.members.get_mut(&at).expect("it lives");
        let due = member.sample.as_ref().and_then(|node| node.next_deadline());
        if let Some(due) = due.filter(|due| member.ticks_at.is_none_or(|set| due.0 < set)) {
            member.ticks_at = Some(due.0);
            self.at(due.0, What::Ticks(at));
        }
    }

    pub(super) fn beats(&mut self, at: u32) {
        let Some(member) = self.members.get(&at).filter(|member| member.lives) else { return };
        let lives = Heard::Beat { from: member.number() };
        self.after(self.costs.way, What::ToCarrier(lives));
        self.after(beat(self.rows.len()).as_nanos() as u64, What::Beats(at));
    }
}
