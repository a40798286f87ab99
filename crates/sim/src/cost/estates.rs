//! Who holds something of a node that dies tells the heir what it knows of it, and has passed the death when the heir has heard.
//!
//! ```text
//!   holder --Known, Announce; a sweep; Announced--> heir        (`node/far/estates`, `claims/on_death`)
//!          <----------- Claimed, Heard ------------
//!          --Passed--> head
//! ```
//! Nodes that deal with each other for the first time connect before. A node is one server here: what its carrier does counts as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use hoplo_base::{NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_core::claims::heir;
use hoplo_core::node::Event;
use hoplo_wire::node::{Notice, Role, ToNode};
use hoplo_wire::peer::{Claims, FarValue, Known, Peer};

use super::home::hello;
use super::plane::{Plane, number, place};
use super::words::{Heard, Held, Member, What};

const BYTES: usize = 100;
/// To look at all would take long.
const LOOKED_AT: usize = 2_000;
pub(super) const WORD: &str = "node: a word on an estate";

fn value() -> Arc<[u8]> {
    vec![7; BYTES].into()
}

impl Plane {
    /// Each of these nodes is home of an object that so many stand-ins use, and all real nodes.
    pub(super) fn hold(&mut self, homes: &[u32], holders: u32) {
        let living = |member: &&Member| member.sample.is_none() && !homes.contains(&member.at);
        let others: Vec<u32> = self.members.values().filter(living).map(|it| it.at).collect();
        let samples: Vec<u32> =
            self.members.values().filter(|it| it.sample.is_some()).map(|it| it.at).collect();
        let objects: Vec<ObjectId> = homes.iter().map(|home| object_of(number(*home))).collect();
        for (nth, object) in objects.iter().enumerate() {
            // Others for each home.
            let step = (others.len() / (holders as usize).max(1)).max(1);
            let some = others.iter().cycle().skip(nth * 7).step_by(step);
            for at in some.take((holders as usize).min(others.len())) {
                let in_charge = object.task.owner.node();
                let held = Held { object: *object, in_charge, claimed: true, heard: true };
                self.members.get_mut(at).expect("it lives").held.push(held);
            }
        }
        for at in samples {
            self.sample_wants(at, &objects);
        }
        self.run_for(200_000_000);
    }

    /// So many that live, all over the table. If real nodes can be heirs, one of them is.
    pub(super) fn those_who_die(&self, count: u32) -> Vec<u32> {
        let is_real = |at: u32| self.members.get(&at).is_some_and(|it| it.sample.is_some());
        let all: Vec<u32> = (1..=self.members.len() as u32).filter(|at| !is_real(*at)).collect();
        let step = (all.len() / (count as usize).max(1)).max(1);
        let mut dying: Vec<u32> = all.iter().copied().step_by(step).take(count as usize).collect();
        let heir = |at: u32| heir(number(at), self.rows.keys().copied()).map(place);
        let to_real = |at: &&u32| heir(**at).is_some_and(is_real);
        if let Some(other) = all.iter().take(LOOKED_AT).find(to_real)
            && !dying.contains(other)
            && let Some(first) = dying.first_mut()
        {
            *first = *other;
        }
        dying
    }

    /// A driver of a real node uses these.
    fn sample_wants(&mut self, at: u32, objects: &[ObjectId]) {
        let message = hello(Role::Driver);
        self.sample_hears(at, WORD, Event::Knocked { stranger: 1, pid: 7, message });
        let message = ToNode::Job(Box::default());
        self.sample_hears(at, WORD, Event::Told { stranger: 1, pid: 7, message });
        let from = self.members[&at].driver.expect("a driver is welcome");
        for object in objects.iter().copied() {
            let hold = Notice::Hold { object, process: from };
            let message = ToNode::Notices(vec![hold]);
            self.sample_hears(at, WORD, Event::Heard { from, message });
            let message = ToNode::Want { objects: vec![object] };
            self.sample_hears(at, WORD, Event::Heard { from, message });
        }
        self.sample_sweeps(at);
    }

    /// A stand-in hears of a death: what was in the charge of that node is in the charge of this one.
    pub(super) fn inherits(&mut self, at: u32, node: NodeNumber, heir: Option<NodeNumber>) {
        let me = number(at);
        let member = self.members.get_mut(&at).expect("it lives");
        let mut told = Vec::new();
        for held in member.held.iter_mut().filter(|held| held.in_charge == node) {
            let asked = heir.filter(|heir| *heir != me);
            (held.claimed, held.heard) = (asked.is_none(), asked.is_none());
            held.in_charge = heir.unwrap_or(node);
            told.extend(asked.map(|heir| (heir, held.object)));
        }
        for (heir, object) in told {
            let known = Known::Inline { bytes: value(), contains: Vec::new() };
            self.tells(at, heir, Peer::Known { object, known });
            self.tells_claim(at, heir, Claims::Announce { object, contents: None });
        }
    }

    /// Who did not say of an earlier death that it heard is asked again with the last one, as real nodes do.
    pub(super) fn asks_heirs(&mut self, at: u32) {
        let member = &self.members[&at];
        let Some(epoch) = member.passing else { return };
        let unheard = member.held.iter().filter(|held| !held.heard);
        let heirs: BTreeSet<NodeNumber> = unheard.map(|held| held.in_charge).collect();
        heirs.into_iter().for_each(|heir| self.tells(at, heir, Peer::Announced { epoch }));
    }

    /// A stand-in says that it passed the last death of which it has heard, if heirs have heard all that it knows.
    pub(super) fn looks_at_passing(&mut self, at: u32) {
        let member = self.members.get_mut(&at).expect("it lives");
        if member.held.iter().all(|held| held.claimed && held.heard)
            && let Some(epoch) = member.passing.take()
        {
            let (from, done) = (member.number(), member.decider.free_at());
            let message = Box::new(Peer::Passed { epoch });
            let at = done.max(self.now) + self.costs.hand_over * 2 + self.costs.way;
            self.at(at, What::ToCarrier(Heard::Peer { from, message }));
        }
    }

    fn tells_claim(&mut self, at: u32, to: NodeNumber, message: Claims) {
        let seq = self.claims_said.entry((at, to)).or_insert(0);
        *seq += 1;
        let seq = *seq;
        self.tells(at, to, Peer::Claims { seq, message });
    }

    fn tells(&mut self, at: u32, to: NodeNumber, message: Peer) {
        let ns = self.costs.flush + self.costs.frame;
        let now = self.now;
        let member = self.members.get_mut(&at).expect("it lives");
        let done = member.decider.takes(now, ns);
        self.says(done, number(at), to, Box::new(message));
    }

    /// It leaves that node then.
    pub(super) fn says(
        &mut self,
        leaves: u64,
        from: NodeNumber,
        to: NodeNumber,
        message: Box<Peer>,
    ) {
        let is_real = from == number(0) || self.members[&place(from)].sample.is_some();
        if let Some(kind) = kind(&message) {
            self.to_heirs.entry(kind).or_default()[usize::from(is_real)] += 1;
        }
        if to == number(0) {
            let at = leaves + self.costs.hand_over + self.costs.way;
            return self.at(at, What::ToCarrier(Heard::Peer { from, message }));
        }
        let mut at = leaves + self.costs.way;
        let pair = if from < to { (from, to) } else { (to, from) };
        // All are connected with the head.
        if from != number(0) && self.linked.insert(pair) {
            for end in [from, to] {
                let shake = self.costs.handshake;
                if let Some(member) = self.members.get_mut(&place(end)) {
                    at = at.max(member.decider.takes(leaves, shake) + self.costs.way * 3);
                }
            }
        }
        self.at(at, What::Word(place(to), from, message));
    }

    pub(super) fn hears_word(&mut self, at: u32, from: NodeNumber, message: Box<Peer>) {
        self.words += 1;
        let Some(member) = self.members.get_mut(&at).filter(|member| member.lives) else { return };
        if member.sample.is_some() {
            member.decider.takes(self.now, self.costs.receive);
            self.sample_hears(at, WORD, Event::Peer { from, cover: 0, message });
            return self.sample_sweeps(at);
        }
        let ns = self.costs.receive + self.meter.mean(WORD).unwrap_or(self.costs.frame);
        member.decider.takes(self.now, ns);
        let in_charge = |held: &&mut Held| held.in_charge == from;
        match *message {
            Peer::Claims { message: Claims::Claim { object }, .. }
            | Peer::Claims { message: Claims::Announce { object, .. }, .. } => {
                self.tells_claim(at, from, Claims::Claimed { object, contents: None });
            }
            Peer::Want { objects, .. } => {
                for object in objects {
                    let value = FarValue::Inline(value());
                    let contains = Vec::new();
                    self.tells(at, from, Peer::Value { object, value, contains });
                }
            }
            Peer::Announced { epoch } => self.tells(at, from, Peer::Heard { epoch }),
            Peer::Claims { message: Claims::Claimed { object, .. }, .. } => {
                let of_it = |held: &&mut Held| held.object == object;
                let held = member.held.iter_mut().filter(in_charge).find(of_it);
                held.into_iter().for_each(|held| held.claimed = true);
                self.looks_at_passing(at);
            }
            Peer::Heard { epoch } if member.passing == Some(epoch) => {
                let held = member.held.iter_mut().filter(in_charge);
                held.for_each(|held| held.heard = true);
                self.looks_at_passing(at);
            }
            // What a real node says beside that is answered by nobody.
            _ => {}
        }
    }
}

/// Of what is told to heirs.
fn kind(message: &Peer) -> Option<&'static str> {
    match message {
        Peer::Known { .. } => Some("known"),
        Peer::Claims { message: Claims::Announce { .. }, .. } => Some("announce"),
        Peer::Announced { .. } => Some("announced"),
        _ => None,
    }
}

/// What a node is home of.
fn object_of(home: NodeNumber) -> ObjectId {
    TaskId { owner: ProcessId::new(home, 1, 1), seq: 1 }.object(0)
}
