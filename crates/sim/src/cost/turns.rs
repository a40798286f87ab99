//! The turns of the head's two threads: what came is handled, then what is to be said is written.

use std::collections::BTreeMap;

use hoplo_base::limits::{MEMBER_PROBE_WITHIN, MEMBER_WITNESS_WITHIN, NODES_SETTLED_KEPT};
use hoplo_base::{Instant, NodeNumber};
use hoplo_core::control::replica::{Effect as Told, Event as Asked};
use hoplo_core::control::rows::node_key;
use hoplo_core::control::{Entry, NodeEntry, NodeState};
use hoplo_core::members::{Effect as Judgement, Event as Judged, Found, Why};
use hoplo_core::node::{Effect, Event, outlived, settled};
use hoplo_wire::control::{Change, ClientId, Op, Outcome, Request, Response};
use hoplo_wire::peer::Peer;

use super::plane::{DESK, EPOCH, OWN, Plane, SHARD, number, place, put};
use super::words::{Heard, Said, What, logged};

/// What a turn takes at most.
const TURN_MAX: usize = 4096;

/// What a turn of the decider is to say.
#[derive(Default)]
pub(super) struct Out {
    answers: BTreeMap<ClientId, Vec<Response>>,
    carrier: Vec<Heard>,
    appended: bool,
}

impl Plane {
    // ---- the decider ----

    pub(super) fn decides(&mut self, said: Said) {
        self.to_decider.push_back(said);
        self.decider_goes();
    }

    fn decider_goes(&mut self) {
        if self.decider_turns_at.is_none() && !self.to_decider.is_empty() {
            let at = self.decider.free_at().max(self.now);
            self.decider_turns_at = Some(at);
            self.at(at, What::Decider);
        }
    }

    pub(super) fn decider_turns(&mut self) {
        self.decider_turns_at = None;
        let mut out = Out::default();
        let mut ns = 0;
        let some = self.to_decider.len().min(TURN_MAX);
        for said in self.to_decider.drain(..some).collect::<Vec<_>>() {
            ns += self.decide(said, &mut out);
        }
        ns += self.arms();
        if out.appended {
            ns += self.costs.log;
        }
        let mut to_members = Vec::new();
        for (client, responses) in out.answers {
            let bytes: usize = responses.iter().map(bytes).sum();
            self.frames += responses.len() as u64;
            self.flushes += 1;
            ns += self.costs.flush + self.costs.frame * responses.len() as u64;
            ns += self.costs.kilobyte * bytes as u64 / 1000;
            to_members.push((client, responses));
        }
        let done = self.decider.takes(self.now, ns);
        for (client, responses) in to_members {
            if client == DESK {
                self.at(done + self.costs.hand_over, What::Answers(0, responses));
            } else {
                let way = self.costs.way;
                self.at(done + way, What::Answers((client.0 - 100) as u32, responses));
            }
        }
        for heard in out.carrier {
            self.at(done + self.costs.hand_over, What::ToCarrier(heard));
        }
        self.decider_goes();
    }

    fn decide(&mut self, said: Said, out: &mut Out) -> u64 {
        match said {
            Said::Request { from, request } => {
                let what = match &request {
                    Request::Update { ops, .. } if ops.is_empty() => "store: a session begins",
                    Request::Update { .. } => "store: an update",
                    Request::Query { .. } => "store: a page of the node table",
                    Request::Subscribe { .. } => "store: a subscription begins",
                    Request::Credit { .. } => "store: credit",
                    Request::Unsubscribe { .. } => "store: a subscription ends",
                };
                self.costs.receive + self.ask(what, Asked::Request { from, request }, out)
            }
            Said::StoreTicks => {
                self.store_tick_at = None;
                self.ask("store: a tick", Asked::Tick, out)
            }
            Said::NodeTicks => {
                self.node_tick_at = None;
                self.tell("head: a tick", Event::Tick, out)
            }
            Said::Member { entry, index } => {
                let what = match entry.state {
                    NodeState::Alive | NodeState::Draining => "head: a node's row",
                    NodeState::Dead { .. } => "head: a death",
                    NodeState::Settled { .. } => "head: a death is settled",
                };
                self.costs.hand_over + self.tell(what, Event::Member { entry, index }, out)
            }
            Said::Peer { from, message } => {
                let what = match &*message {
                    Peer::Load(_) => "head: a node's load",
                    Peer::Passed { .. } => "head: a node passed a death",
                    Peer::Seek { .. } => "head: a node seeks room",
                    _ => "head: another word of a node",
                };
                let event = Event::Peer { from, cover: 0, message };
                self.costs.hand_over + self.tell(what, event, out)
            }
            Said::Verdict { ticket, node, expected, why } => {
                self.costs.hand_over + self.buries(ticket, node, expected, why, out)
            }
        }
    }

    /// Of the store; what it appends is in the log at once (EMB-3).
    fn ask(&mut self, what: &'static str, event: Asked, out: &mut Out) -> u64 {
        let (now, store) = (Instant(self.now), &mut self.store);
        let mut effects = Vec::new();
        let ns = self.meter.run(what, || {
            store.handle(now, event, &mut effects);
            while let Some(upto) = logged(&effects) {
                out.appended = true;
                effects.retain(|effect| !matches!(effect, Told::Append { .. }));
                store.handle(now, Asked::Logged { upto }, &mut effects);
            }
            effects.len()
        });
        for effect in effects {
            match effect {
                Told::Respond { to: OWN, response } => self.own(response, out),
                Told::Respond { to, response } => out.answers.entry(to).or_default().push(response),
                _ => {}
            }
        }
        ns
    }

    /// The head's node.
    fn tell(&mut self, what: &'static str, event: Event, out: &mut Out) -> u64 {
        let (now, node) = (Instant(self.now), &mut self.node);
        let mut effects = Vec::new();
        let mut ns = self.meter.run(what, || {
            node.handle(now, event, &mut effects);
            effects.len()
        });
        for effect in effects {
            match effect {
                Effect::SendPeer { .. } => out.carrier.push(Heard::Send),
                Effect::Settle { epoch } => ns += self.settles(epoch, out),
                _ => {}
            }
        }
        ns
    }

    /// As the head's own client.
    fn update(&mut self, what: &'static str, ops: Vec<Op>, out: &mut Out) -> u64 {
        self.seq += 1;
        let (seq, answered) = (self.seq, self.seq - 1);
        let request = Request::Update { shard: SHARD, epoch: EPOCH, born: 0, seq, answered, ops };
        self.ask(what, Asked::Request { from: OWN, request }, out)
    }

    pub(super) fn writes(&mut self, ops: Vec<Op>) {
        self.seq += 1;
        let (seq, answered) = (self.seq, self.seq - 1);
        let request = Request::Update { shard: SHARD, epoch: EPOCH, born: 0, seq, answered, ops };
        self.decides(Said::Request { from: OWN, request });
    }

    fn own(&mut self, response: Response, out: &mut Out) {
        match response {
            Response::Changes { changes, .. } => {
                changes.into_iter().for_each(|change| self.row_changed(change, out));
            }
            Response::Updated { seq, outcomes, .. } => {
                let Some(ticket) = self.verdicts.remove(&seq) else { return };
                out.carrier.push(match outcomes[..] {
                    [Outcome::Done { version }] => {
                        self.verdicts_stored += 1;
                        self.last_verdict_at = self.now;
                        Heard::Stored { ticket, version }
                    }
                    _ => Heard::Conflict { ticket },
                });
            }
            other => panic!("the head's own client hears {other:?}"),
        }
    }

    fn row_changed(&mut self, change: Change, out: &mut Out) {
        let Change { index, row: Some(row), .. } = change else { return };
        let entry = NodeEntry::from_row(&row).expect("it is a node's");
        let version = row.version;
        if matches!(entry.state, NodeState::Settled { .. }) {
            self.last_settled_at = self.now;
        }
        self.rows.insert(entry.node, (entry.clone(), version, index));
        self.placed += usize::from(version == 2 && !entry.address.is_empty());
        if self.placed + 1 == self.all_nodes && self.last_place.is_none() {
            self.last_place = Some(index);
        }
        out.carrier.push(Heard::Row { entry: Box::new(entry), version, index });
    }

    /// As `bury` in `crates/node/src/daemon/control.rs`.
    fn buries(
        &mut self,
        ticket: u64,
        node: NodeNumber,
        expected: u64,
        why: Why,
        out: &mut Out,
    ) -> u64 {
        let lives = self.members.get(&place(node)).is_some_and(|member| member.lives);
        self.false_verdicts += u64::from(lives);
        let (entry, ..) = &self.rows[&node];
        let entry = NodeEntry { state: NodeState::dead(why.to_string()), ..entry.clone() };
        self.verdicts.insert(self.seq + 1, ticket);
        self.update("store: a verdict", vec![put(&entry, Some(expected))], out)
    }

    /// As `settle` there: it looks at all rows, twice.
    fn settles(&mut self, epoch: u64, out: &mut Out) -> u64 {
        let values: Vec<_> =
            self.rows.values().map(|(entry, ..)| (entry.to_value(), entry)).collect();
        let mut gone = Vec::new();
        let mut ns = self.meter.run("head: all rows are read, when deaths are settled", || {
            let read = |value: &[u8]| {
                hoplo_wire::node::decode::<NodeEntry>(&value[1..]).expect("it is a node's")
            };
            let nodes: Vec<NodeEntry> = values.iter().map(|(value, _)| read(value)).collect();
            gone = outlived(&nodes, NODES_SETTLED_KEPT);
            values.iter().for_each(|(value, _)| drop(std::hint::black_box(read(value))));
            0
        });
        let died: Vec<_> =
            self.rows.values().filter(|(_, _, index)| *index <= epoch).cloned().collect();
        for (entry, version, index) in died {
            if let Some(entry) = settled(entry, index) {
                ns +=
                    self.update("store: a death is settled", vec![put(&entry, Some(version))], out);
            }
        }
        for node in gone {
            self.rows.remove(&node);
            let delete = Op::Delete { key: node_key(node), expected: None };
            ns += self.update("store: a row goes", vec![delete], out);
        }
        ns
    }

    /// When the store and the node want a turn; asked at the end of each.
    fn arms(&mut self) -> u64 {
        let (store, node) = (&self.store, &self.node);
        let (mut store_at, mut node_at) = (None, None);
        let ns = self.meter.run("head: when is it due?", || {
            (store_at, node_at) = (store.next_deadline(), node.next_deadline());
            0
        });
        if let Some(at) = store_at.filter(|at| self.store_tick_at.is_none_or(|set| at.0 < set)) {
            self.store_tick_at = Some(at.0);
            self.at(at.0, What::ToDecider(Said::StoreTicks));
        }
        if let Some(at) = node_at.filter(|at| self.node_tick_at.is_none_or(|set| at.0 < set)) {
            self.node_tick_at = Some(at.0);
            self.at(at.0, What::ToDecider(Said::NodeTicks));
        }
        ns
    }

    // ---- the carrier ----

    pub(super) fn carries(&mut self, heard: Heard) {
        self.to_carrier.push_back(heard);
        self.carrier_goes();
    }

    fn carrier_goes(&mut self) {
        if self.carrier_turns_at.is_none() && !self.to_carrier.is_empty() {
            let at = self.carrier.free_at().max(self.now);
            self.carrier_turns_at = Some(at);
            self.at(at, What::Carrier);
        }
    }

    pub(super) fn carrier_turns(&mut self) {
        self.carrier_turns_at = None;
        let mut ns = 0;
        let mut said = Vec::new();
        let mut later = Vec::new();
        let some = self.to_carrier.len().min(TURN_MAX);
        for heard in self.to_carrier.drain(..some).collect::<Vec<_>>() {
            ns += self.carry(heard, &mut said, &mut later);
        }
        // Time passes when all that came was told.
        if self.to_carrier.is_empty()
            && self.judge.next_deadline().is_some_and(|at| at.0 <= self.now)
        {
            ns += self.judges("judge: a tick", Judged::Tick, &mut said, &mut later);
        }
        let done = self.carrier.takes(self.now, ns);
        for said in said {
            self.at(done + self.costs.hand_over, What::ToDecider(said));
        }
        for (after, what) in later {
            self.at(done + after, what);
        }
        if let Some(at) = self.judge.next_deadline()
            && self.judge_tick_at.is_none_or(|set| at.0 < set)
        {
            self.judge_tick_at = Some(at.0);
            self.at(at.0, What::ToCarrier(Heard::Ticks));
        }
        self.carrier_goes();
    }

    fn carry(&mut self, heard: Heard, said: &mut Vec<Said>, later: &mut Vec<(u64, What)>) -> u64 {
        let Costs3 { receive, send, hand_over } = self.costs3();
        match heard {
            Heard::Row { entry, version, index } => {
                let mut ns = hand_over;
                if entry.node != number(0) {
                    let (number, state) = (entry.node, entry.state.clone());
                    let row = Judged::Row { number, version, state, near: false };
                    ns += self.judges("judge: a row", row, said, later);
                }
                said.push(Said::Member { entry, index });
                ns
            }
            Heard::Stored { ticket, version } => {
                let stored = Judged::Stored { ticket, version };
                hand_over + self.judges("judge: a verdict is stored", stored, said, later)
            }
            Heard::Conflict { ticket } => {
                let conflict = Judged::Conflict { ticket };
                hand_over + self.judges("judge: a verdict is not stored", conflict, said, later)
            }
            Heard::Beat { from } => {
                let beat = Judged::Heartbeat { from, epoch: 1 };
                receive
                    + self.is_told_that_it_is_heard(from, send)
                    + self.judges("judge: a heartbeat", beat, said, later)
            }
            Heard::Closed { node } => {
                let closed = Judged::Closed { number: node };
                receive + self.judges("judge: a connection closed", closed, said, later)
            }
            Heard::Probed { ticket, found } => {
                let probed = Judged::Probed { ticket, found };
                receive + self.judges("judge: a probe is answered", probed, said, later)
            }
            Heard::Peer { from, message } => {
                said.push(Said::Peer { from, message });
                receive
            }
            Heard::Send => hand_over + send,
            Heard::Ticks => {
                self.judge_tick_at = None;
                0
            }
        }
    }

    fn costs3(&self) -> Costs3 {
        let send = self.costs.flush + self.costs.frame;
        Costs3 { receive: self.costs.receive, send, hand_over: self.costs.hand_over }
    }

    fn is_told_that_it_is_heard(&mut self, from: NodeNumber, send: u64) -> u64 {
        let now = self.now;
        let Some(member) = self.members.get_mut(&place(from)) else { return 0 };
        let every = hoplo_base::limits::MEMBER_HEARD.as_nanos() as u64;
        if member.heard_at.is_some_and(|at| now < at + every) {
            return 0;
        }
        member.heard_at = Some(now);
        send
    }

    fn judges(
        &mut self,
        what: &'static str,
        event: Judged,
        said: &mut Vec<Said>,
        later: &mut Vec<(u64, What)>,
    ) -> u64 {
        let (now, judge) = (Instant(self.now), &mut self.judge);
        let mut effects = Vec::new();
        let mut ns = self.meter.run(what, || {
            judge.handle(now, event, &mut effects);
            effects.len()
        });
        for effect in effects {
            match effect {
                Judgement::Probe { ticket, target, via } => {
                    self.probes += 1;
                    ns += match via {
                        // Its connection is made for this probe.
                        None => self.costs.handshake,
                        Some(_) => self.costs.flush + self.costs.frame,
                    };
                    let (found, after) = self.probe(target, via);
                    later
                        .extend(found.map(|found| {
                            (after, What::ToCarrier(Heard::Probed { ticket, found }))
                        }));
                }
                Judgement::Verdict { ticket, number, expected, why } => {
                    said.push(Said::Verdict { ticket, node: number, expected, why });
                }
                Judgement::Tell { .. } => ns += self.costs.flush + self.costs.frame,
            }
        }
        ns
    }

    /// What a probe finds, and after how long.
    fn probe(&self, target: NodeNumber, via: Option<NodeNumber>) -> (Option<Found>, u64) {
        let (way, shake) = (self.costs.way, self.costs.handshake);
        let is_placed = self.rows.get(&target).is_some_and(|(entry, ..)| !entry.address.is_empty());
        let member = self.members.get(&place(target));
        if !is_placed {
            return (Some(Found::Silent), 0);
        }
        let prober_lives = |via: NodeNumber| self.members[&place(via)].lives;
        if via.is_some_and(|via| !prober_lives(via)) {
            return (None, 0);
        }
        let ways = if via.is_some() { 5 } else { 3 };
        match (member.map(|member| (member.lives, member.refuses)), via) {
            (Some((true, _)), _) => (Some(Found::Alive), way * ways + shake),
            (Some((false, true)) | None, _) => (Some(Found::Refused), way * (ways - 1)),
            (Some((false, false)), Some(_)) => {
                (Some(Found::Silent), way * 2 + MEMBER_WITNESS_WITHIN.as_nanos() as u64)
            }
            (Some((false, false)), None) => {
                (Some(Found::Silent), MEMBER_PROBE_WITHIN.as_nanos() as u64 + way)
            }
        }
    }
}

struct Costs3 {
    receive: u64,
    send: u64,
    hand_over: u64,
}

/// About so many.
fn bytes(response: &Response) -> usize {
    match response {
        Response::Changes { changes, .. } => {
            let of_row = |change: &Change| change.row.as_ref().map_or(0, |row| row.value.len());
            changes.iter().map(|change| 40 + of_row(change)).sum()
        }
        Response::Answered { answer: hoplo_wire::control::Answer::Page { rows, .. }, .. } => {
            rows.iter().map(|(_, row)| 40 + row.value.len()).sum()
        }
        _ => 40,
    }
}
