//! Nodes join, all at once: a number, a certificate, the node table, a first sign of life.

use std::collections::BTreeMap;

use hoplo_base::Instant;
use hoplo_base::limits::JOIN_ASKS_MAX;
use hoplo_core::control::{Entry, NodeEntry, NodeState, TokenEntry};
use hoplo_core::node::Node;
use hoplo_wire::control::{Op, Query, Request, Response};
use hoplo_wire::join::{JoinRole, TokenId};
use hoplo_wire::peer::{Load, Peer};

use super::plane::{DESK, EPOCH, Plane, SHARD, config, number, put, row};
use super::words::{Heard, Member, Said, What};
use super::{Costs, Meter};

#[derive(Clone, Debug, PartialEq)]
pub struct Joins {
    pub nodes: u32,
    pub joined: u32,
    /// Until the last one may work, and until all know of all.
    pub joined_s: f64,
    pub known_s: f64,
    /// Of one core each.
    pub desk_s: f64,
    pub clerk_s: f64,
    pub decider_s: f64,
    pub carrier_s: f64,
    /// The busiest decider of another node.
    pub member_s: f64,
    /// Rows of the node table that were told to nodes, in how many messages, in how many system calls.
    pub rows_told: u64,
    pub frames: u64,
    pub flushes: u64,
    pub probes: u64,
    pub declared_dead: u64,
    pub refusals: BTreeMap<String, u64>,
}

const PATIENCE_NS: u64 = 3_600_000_000_000;
/// Of the clerk to the store, until it gives numbers.
const QUESTIONS: u32 = 4;

impl Plane {
    /// A head alone, and then so many nodes that all begin at once.
    pub fn all_join(nodes: u32, samples: u32, costs: Costs, meter: Meter) -> (Joins, Self) {
        let mut plane = Self::new(costs, meter);
        plane.samples = samples;
        (plane.more_join(nodes - 1), plane)
    }

    /// So many more, all at once.
    pub fn more_join(&mut self, count: u32) -> Joins {
        self.begin();
        let (began, before) = (self.now, self.members.len() as u32);
        let rows_told = |plane: &Self| plane.members.values().map(|it| it.rows_heard).sum::<u64>();
        let told_before = rows_told(self);
        for at in before + 1..=before + count {
            self.after(0, What::Knocks(at));
        }
        let others = (before + count) as usize;
        (self.all_nodes, self.placed, self.last_place) = (others + 1, before as usize, None);
        (self.ready, self.unknown) = (0, others);
        let knows_all = move |plane: &Self| {
            plane.last_place.is_some() && plane.unknown == 0 && plane.ready == count as usize
        };
        self.run_until(began + PATIENCE_NS, knows_all);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let new = || self.members.values().filter(|it| it.at > before);
        let last = new().filter_map(|it| it.joined_at).max().unwrap_or(0);
        Joins {
            nodes: before + count + 1,
            joined: new().filter(|it| it.joined_at.is_some()).count() as u32,
            joined_s: seconds(last.saturating_sub(began)),
            known_s: seconds(self.last_heard_at.saturating_sub(began)),
            desk_s: seconds(self.desk.busy),
            clerk_s: seconds(self.clerk.busy),
            decider_s: seconds(self.decider.busy),
            carrier_s: seconds(self.carrier.busy),
            member_s: seconds(self.busiest_member()),
            rows_told: rows_told(self) - told_before,
            frames: self.frames,
            flushes: self.flushes,
            probes: self.probes,
            declared_dead: self.false_verdicts,
            refusals: self.refusals.clone(),
        }
    }

    pub(super) fn busiest_member(&self) -> u64 {
        self.members.values().map(|member| member.decider.busy).max().unwrap_or(0)
    }

    pub(super) fn knocks(&mut self, at: u32) {
        self.joining.knocking.push_back(at);
        self.desk_goes();
    }

    /// No more are at the desk than may ask at a time. The others wait, as real ones that are told to come again.
    fn desk_goes(&mut self) {
        while self.joining.at_desk < JOIN_ASKS_MAX
            && let Some(at) = self.joining.knocking.pop_front()
        {
            self.joining.at_desk += 1;
            let shaken = self.desk.takes(self.now, self.costs.handshake);
            self.at(shaken, What::Asks(at));
        }
    }

    pub(super) fn asks_to_join(&mut self, at: u32) {
        self.joining.asking.push_back(at);
        self.clerk_goes();
    }

    fn clerk_goes(&mut self) {
        if self.joining.numbering.is_empty() && !self.joining.asking.is_empty() {
            self.joining.numbering = self.joining.asking.drain(..).collect();
            self.joining.heard = 0;
            self.clerk_asks();
        }
    }

    /// The store, by one question after the other, about all who have asked meanwhile (`hoplo_control::net::registry`): for the token, twice; that
    /// it is used; for numbers, which are rows that only one can make.
    fn clerk_asks(&mut self) {
        let token = TokenEntry {
            id: TokenId(1),
            public_key: [0; 32],
            role: JoinRole::Node,
            created_us: 0,
            expires_us: u64::MAX,
            uses: 1,
            uses_max: None,
        };
        let ops = match self.joining.heard {
            0 | 1 => None,
            2 => {
                let (key, value) = (token.key(), token.to_value());
                Some(vec![Op::Put { key, value, expected: None, finished: false }])
            }
            _ => {
                let numbered = |at: &u32| NodeEntry::numbered(number(*at), format!("host-{at}"));
                let rows = self.joining.numbering.iter().map(numbered);
                Some(rows.map(|row| put(&row, Some(0))).collect())
            }
        };
        let (shard, epoch) = (SHARD, EPOCH);
        let request = match ops {
            None => {
                let query = Query::Get { key: token.key() };
                Request::Query { shard, epoch, request: 1, query, stale: false }
            }
            Some(ops) => {
                self.joining.seq += 1;
                let (seq, answered) = (self.joining.seq, self.joining.seq - 1);
                Request::Update { shard, epoch, born: 0, seq, answered, ops }
            }
        };
        let said = Said::Request { from: DESK, request };
        self.after(self.costs.hand_over, What::ToDecider(said));
    }

    /// The clerk hears from the store.
    pub(super) fn clerk_hears(&mut self, response: &Response) {
        let is_right = matches!(response, Response::Updated { .. } | Response::Answered { .. });
        assert!(is_right, "the clerk hears {response:?}");
        self.joining.heard += 1;
        if self.joining.heard < QUESTIONS {
            return self.clerk_asks();
        }
        for at in self.joining.numbering.clone() {
            let of_clerk = self.costs.join.saturating_sub(self.costs.handshake);
            let made = self.clerk.takes(self.now, of_clerk);
            self.at(made, What::Certified(at));
        }
    }

    pub(super) fn certified(&mut self, at: u32) {
        let sample = (at <= self.samples)
            .then(|| Box::new(Node::new(config(number(at), self.cpus), Instant(self.now))));
        self.members.insert(at, Member::new(at, sample));
        // It is told, and dials the store.
        let dialled = self.desk.takes(self.now, self.costs.handshake);
        self.at(dialled + self.costs.way * 3, What::Admitted(at));
        self.joining.at_desk -= 1;
        self.desk_goes();
        self.joining.numbering.retain(|it| *it != at);
        self.clerk_goes();
    }

    pub(super) fn admitted(&mut self, at: u32) {
        // A session begins with an empty batch.
        self.update_of(self.now, at, Vec::new());
    }

    pub(super) fn is_ready(&mut self, at: u32) {
        let (now, cpus) = (self.now, self.cpus);
        let Some(member) = self.members.get_mut(&at) else { return };
        member.joined_at = Some(now);
        self.ready += 1;
        let (from, is_real) = (member.number(), member.sample.is_some());
        if !is_real {
            let total = row(at, "", NodeState::Alive, cpus).resources;
            let load = Load { available: total.clone(), total, ..Load::default() };
            let message = Box::new(Peer::Load(Box::new(load)));
            let after = self.costs.hand_over + self.costs.way;
            self.after(after, What::ToCarrier(Heard::Peer { from, message }));
        }
        self.beats(at);
    }
}
