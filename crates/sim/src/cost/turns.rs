//! The turns of the head's decider: what came is handled, then what is to be said is written.

use std::collections::BTreeMap;

use hoplo_base::{Instant, NodeNumber};
use hoplo_core::control::replica::{Effect as Told, Event as Asked};
use hoplo_core::control::{Entry, NodeEntry, NodeState};
use hoplo_core::node::{Effect, Event};
use hoplo_wire::control::{Change, ClientId, Op, Outcome, Request, Response};
use hoplo_wire::peer::Peer;

use super::plane::{DESK, EPOCH, OWN, Plane, SHARD, number};
use super::words::{Heard, Said, What, encoded_bytes, logged};

/// What a turn takes at most.
pub(super) const TURN_MAX: usize = 4096;

/// What a turn of the decider is to say.
#[derive(Default)]
pub(super) struct Out {
    answers: BTreeMap<ClientId, Vec<Response>>,
    carrier: Vec<Heard>,
    /// For deciders of other nodes.
    words: Vec<(NodeNumber, Box<Peer>)>,
    appended: bool,
    sweeps: bool,
}

impl Plane {
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
        while std::mem::take(&mut out.sweeps) {
            for event in [Event::SweepBegins, Event::Swept] {
                ns += self.tell("head: a sweep", event, &mut out);
            }
        }
        ns += self.arms();
        if out.appended {
            ns += self.costs.log;
        }
        let mut to_members = Vec::new();
        for (client, responses) in out.answers {
            let mut bytes = Vec::new();
            ns += self.meter.run("store: what a client hears is encoded", || {
                responses.iter().for_each(|it| hoplo_wire::node::encode(it, &mut bytes));
                bytes.len()
            });
            self.frames += responses.len() as u64;
            self.flushes += 1;
            ns += self.costs.flush + self.costs.kilobyte * bytes.len() as u64 / 1000;
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
        for (to, message) in out.words {
            self.says(done + self.costs.hand_over, number(0), to, message);
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
                let bytes = encoded_bytes(&request);
                let heard = self.costs.receive + self.costs.kilobyte * bytes / 1000;
                heard + self.ask(what, Asked::Request { from, request }, out)
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
                let ns = self.costs.hand_over + self.reads_wills(&entry);
                ns + self.tell(what, Event::Member { entry, index }, out)
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
                Effect::SendPeer { to, message, .. } => {
                    out.carrier.push(Heard::Send);
                    out.words.push((to, message));
                }
                Effect::Sweep => out.sweeps = true,
                Effect::Settle { epoch } => ns += self.settles(epoch, out),
                _ => {}
            }
        }
        ns
    }

    /// Of a dead node's detached actors, of which there may be many others in the store.
    fn reads_wills(&mut self, entry: &NodeEntry) -> u64 {
        let Some(actors) = self.actors.as_ref().filter(|_| entry.state.is_dead()) else { return 0 };
        let node = &mut self.node;
        self.meter.run("head: wills of a dead node are looked for", || {
            node.read_wills(entry, actors);
            0
        })
    }

    /// As the head's own client.
    pub(super) fn update(&mut self, what: &'static str, ops: Vec<Op>, out: &mut Out) -> u64 {
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
                changes.into_value().into_iter().for_each(|change| self.row_changed(change, out));
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
        self.rows.insert(entry.node, (entry.clone(), version, index));
        self.placed += usize::from(version == 2 && !entry.address.is_empty());
        if self.placed + 1 == self.all_nodes && self.last_place.is_none() {
            self.last_place = Some(index);
            // Others may hear of a row before this thread turns to it.
            self.unknown = self.members.values().filter(|it| it.knows_to < index).count();
        }
        out.carrier.push(Heard::Row { entry: Box::new(entry), version, index });
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
}
