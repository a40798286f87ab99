//! Members: on a control node, judges which nodes live.
//!
//! ```text
//!            heartbeat, answer                     nothing for 400 ms; its connection closed; somebody complains
//!          +------------------+                   +----------------------------------------------------+
//!          v                  |                   |                                                    v
//!        Heard ---------------+-------------------+                                              Probed (a round)
//!          ^                                                                                           |
//!          +--- answered, directly or through another; or a heartbeat came after all ------------------+
//!                                                                                                      |
//!   Dead <--stored-- Verdict (compare-and-swap of the node's row) <--- refused; silent for 700 ms -----+
//!                                                                 <--- it says that it leaves
//! ```
//!
//! **Trouble is told, then probed.** A closed connection or a complaint (a link's `Trouble`) proves nothing: the node is probed at once.
//! *Refused* (nobody listens there, or another life does) proves its death, unless something of it came after
//! the probe began. Silence proves nothing by itself: after 400 ms the node is probed directly and through two others, and it is
//! declared dead 300 ms later if nothing came of it by any way. One answer is enough to live, so a cut
//! in one direction, or between two machines, kills nobody.
//!
//! **Who answers and does not come.** A node that answers probes and sends no heartbeat for 35 s looks for its head elsewhere, or cannot reach
//! it. It is declared dead, and told so, though it answers: it does nothing for the cluster any more, and it would be listed as alive for
//! ever.
//!
//! **The judge doubts itself first.**
//! - Its turn came late (it was stopped, or its machine was): the time of its absence is added to everybody's last sign. After a long one,
//!   a silence that was probed before is probed again. Silence is looked at in [`Event::Tick`] alone, which the shell says after all that
//!   has arrived: heartbeats that waited in a socket count.
//! - It comes to nobody for a second, since it was stopped, or hears more than it can: it says so ([`Effect::Behind`]), for the dead are found so much later.
//! - Everybody is silent, nobody is there who could probe for it, and there is more than one of them: it is probably cut off itself, and
//!   waits for 5 s. (With one node there is nobody to ask, and it is judged as usual.) After that the control store has the last word: a
//!   control node that is cut off from the other members of a chain cannot write. Where there is one control node, it is right by
//!   definition, and whoever it could not reach joins again.
//! - It has just begun to act, or has just learnt of a node: *never heard* is no point in time. Such a node is probed at once and may be refused, but its
//!   silence counts from that moment, and for 3 s, for nodes dial a new control node with back-off.
//!
//! **Who judges.** The head. Where several machines may be head, the one that has the seat; nodes speak to that one. Two may believe for a
//! moment that they act: each verdict names the version of the row that it judges, so one is stored. A verdict that meets another version
//! (the node drains now, or is dead already) is judged again on the row that is there.
//!
//! **Fence.** A dead number stays dead. Whatever comes from it is answered with [`Effect::Tell`], at every control node, whether it
//! acts or not; links refuse it by number (`core/link`). What the node does then is in [`standing`].
//!
//! **Who leaves** says so, with the reason, as often as it beats, and waits until its row says that it is dead. It does not write that itself: a death
//! names an heir, and a node that leaves does not know who died or left just before. So whoever judges writes all deaths, and knows of each.
//!
//! **How often.** A node beats every 180 ms, and where there are more than 6,000 of them every 30 us times their number ([`beat`]): else heartbeats alone would take
//! most of the carrier's time, and a judge that hears late finds nobody dead. The 400 ms and the 700 ms above grow by as much. Node and judge each go by
//! the rows that they know; a beat may be 220 ms late (with 30 us each, 7,000 rows), so they need not agree.
//!
//! **Bounds.** At most 256 nodes are probed at the same time, by three probes each; when more fall silent at once, the others wait for their
//! turn. Each node is probed by one round at a time.
//!
//! A heartbeat carries the node's load, too: that goes past this machine, to the global scheduler. The daemon's carrier runs both: the head's
//! this machine, every other node's `standing`.
//!
//! # Invariants
//! - MEMB-1: who gave a sign of life by any way in the last 700 ms (more in a cluster of more than 6,000) is not declared dead, unless its address refuses, it sent no heartbeat
//!   for 35 s, or it said that it leaves.
//! - MEMB-2: only who acts probes and declares.
//! - MEMB-3: a node has at most one round and one verdict under way; at most `MEMBER_ROUNDS_MAX` rounds are open.
//! - MEMB-4: dead is final: no event makes such a number live.
//! - MEMB-5: who acts looks at every living node again at some time.

mod event;
mod record;
mod round;
pub mod standing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, NodeNumber, limits};

use crate::control::NodeState;
pub use event::{Effect, Event, Found, Why};
use record::{Heard, Record};
use round::Round;

/// In a cluster with so many living nodes each of them says so often that it lives.
pub fn beat(nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    limits::MEMBER_BEAT.max(limits::MEMBER_BEAT_OF_EACH.saturating_mul(nodes))
}

pub struct Judge {
    acts: bool,
    records: BTreeMap<NodeNumber, Record>,
    /// Why, for who speaks nevertheless. A node's number is never used again.
    dead: BTreeMap<NodeNumber, String>,
    rounds: BTreeMap<NodeNumber, Round>,
    /// Probes and verdicts under way, and about whom.
    tickets: BTreeMap<u64, NodeNumber>,
    ticket: u64,
    /// When to look at whom; while this one acts, all that live.
    due: BTreeSet<(Instant, NodeNumber)>,
    /// When the last event came.
    turned_at: Instant,
    /// When it noticed last that it had been absent for longer than a probe takes.
    back_since: Instant,
    /// When it told last that it was behind.
    behind_told_at: Option<Instant>,
    /// Who was asked last to probe for it: the next one takes its turn.
    asked: NodeNumber,
}

impl Judge {
    pub fn new(now: Instant) -> Self {
        Self {
            acts: false,
            records: BTreeMap::new(),
            dead: BTreeMap::new(),
            rounds: BTreeMap::new(),
            tickets: BTreeMap::new(),
            ticket: 0,
            due: BTreeSet::new(),
            turned_at: now,
            back_since: now,
            behind_told_at: None,
            asked: NodeNumber::first_given(0),
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        self.notice_absence(now);
        self.tell_if_behind(now, effects);
        match event {
            Event::Acts(acts) => self.on_acts(now, acts),
            Event::Row { number, version, state, near } => {
                self.on_row(now, number, version, state, near);
            }
            Event::Heartbeat { from, epoch } => self.on_heartbeat(now, from, epoch, effects),
            Event::Leaves { from, why } => self.on_leaves(now, from, why, effects),
            Event::Closed { number } | Event::Complaint { number } => {
                self.on_trouble(now, number, effects);
            }
            Event::Probed { ticket, found } => self.on_probed(now, ticket, found, effects),
            Event::Stored { ticket, version } => self.on_stored(ticket, version, effects),
            Event::Conflict { ticket } | Event::Unreachable { ticket } => {
                self.on_not_stored(now, ticket);
            }
            Event::Tick => self.on_tick(now, effects),
        }
        self.turned_at = now;
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Every living node has said that it knows the membership of this epoch, or a later one.
    pub fn known_to_all(&self, epoch: u64) -> bool {
        self.records.values().all(|record| record.epoch.is_some_and(|known| known >= epoch))
    }

    /// A node of which nothing was heard for so long is silent. It may know of somewhat more or fewer nodes than this judge, and beat so often.
    fn patience(&self) -> Duration {
        beat(self.records.len()) + (limits::MEMBER_SILENT - limits::MEMBER_BEAT)
    }

    /// How it stands with a node, for people.
    pub fn explain(&self, now: Instant, number: NodeNumber) -> String {
        if let Some(why) = self.dead.get(&number) {
            return format!("{number} is dead: {why}");
        }
        let Some(record) = self.records.get(&number) else {
            return format!("{number} is not known here");
        };
        let probed = if self.rounds.contains_key(&number) { ", and is being probed" } else { "" };
        let state = if record.draining { "drains" } else { "lives" };
        match record.heard {
            Heard::Never { .. } => format!("{number} {state}; it was never heard of here{probed}"),
            Heard::At(at) => {
                let ago = now.since(at).as_millis();
                format!("{number} {state}; it was heard of {ago} ms ago{probed}")
            }
        }
    }

    pub fn check(&self) {
        assert!(self.acts || self.rounds.is_empty(), "MEMB-2");
        assert!(self.rounds.len() <= limits::MEMBER_ROUNDS_MAX, "MEMB-3");
        let dead = self.dead.keys().find(|number| self.records.contains_key(number));
        assert!(dead.is_none(), "MEMB-4: {dead:?}");
        for (number, record) in &self.records {
            let listed = record.due.is_some_and(|at| self.due.contains(&(at, *number)));
            let judged = record.verdict.is_some();
            assert!(listed || judged || !self.acts, "MEMB-5: nobody looks at {number}");
        }
        let due = self.records.values().filter(|record| record.due.is_some()).count();
        assert_eq!(due, self.due.len(), "MEMB-5");
        for (number, round) in &self.rounds {
            assert!(self.records[number].verdict.is_none(), "MEMB-3: {number} is judged already");
            let open = round.tickets().all(|it| self.tickets.get(&it) == Some(number));
            assert!(open, "MEMB-3: a probe without ticket");
        }
        let verdicts = self.records.values().filter(|record| record.verdict.is_some()).count();
        let probes: usize = self.rounds.values().map(|round| round.tickets().count()).sum();
        assert_eq!(verdicts + probes, self.tickets.len(), "MEMB-3");
    }

    /// Time passes here alone: what arrived meanwhile has been told.
    fn on_tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while let Some((at, number)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, number));
            self.records.get_mut(&number).expect("who is due is known").due = None;
            self.look(now, number, effects);
            let next = self.records.get(&number).and_then(|record| record.due);
            assert!(next.is_none_or(|at| at > now), "MEMB-5: {number} stays due");
        }
    }

    /// What it did not hear while it was away, nobody failed to say.
    fn notice_absence(&mut self, now: Instant) {
        let Some(due) = self.next_deadline() else { return };
        let late = now.since(due.max(self.turned_at));
        if late >= limits::MEMBER_PROBE_WITHIN {
            self.back_since = now;
        }
        if late >= limits::MEMBER_JUDGE_LATE {
            self.records.values_mut().for_each(|record| record.was_away(now, late));
        }
    }

    /// It was stopped; or so much comes that it is never told all, so no silence is looked at.
    fn tell_if_behind(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let Some(due) = self.next_deadline().filter(|_| self.acts) else { return };
        let by = now.since(due);
        let again_at = self.behind_told_at.map(|at| at + limits::MEMBER_JUDGE_BEHIND_TOLD);
        if by >= limits::MEMBER_JUDGE_BEHIND && again_at.is_none_or(|at| at <= now) {
            self.behind_told_at = Some(now);
            effects.push(Effect::Behind { by });
        }
    }

    fn on_acts(&mut self, now: Instant, acts: bool) {
        if acts == self.acts {
            return;
        }
        self.acts = acts;
        let patience = self.patience();
        let numbers: Vec<NodeNumber> = self.records.keys().copied().collect();
        for number in numbers {
            self.end_round(number);
            self.look_at(number, acts.then_some(now));
            if acts && let Some(record) = self.records.get_mut(&number) {
                record.begin(now, patience);
            }
        }
    }

    fn on_row(
        &mut self,
        now: Instant,
        number: NodeNumber,
        version: u64,
        state: NodeState,
        near: bool,
    ) {
        if state.is_dead() {
            let why = match state {
                NodeState::Dead { why, .. } | NodeState::Settled { why, .. } => why,
                NodeState::Alive | NodeState::Draining => unreachable!("they are not dead"),
            };
            return self.bury(number, why);
        }
        if self.dead.contains_key(&number) {
            return;
        }
        let is_new = !self.records.contains_key(&number);
        let record = self.records.entry(number).or_insert_with(|| Record::new(now));
        if version >= record.version {
            (record.version, record.near) = (version, near);
            record.draining = state == NodeState::Draining;
        }
        if is_new && self.acts {
            self.look_at(number, Some(now));
        }
    }

    fn on_heartbeat(
        &mut self,
        now: Instant,
        from: NodeNumber,
        epoch: u64,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(why) = self.dead.get(&from) {
            effects.push(Effect::Tell { number: from, why: why.clone() });
        } else if let Some(record) = self.records.get_mut(&from) {
            record.came(now);
            record.epoch = record.epoch.max(Some(epoch));
        }
    }

    /// A verdict that was not stored is given again when it says so again.
    fn on_leaves(
        &mut self,
        now: Instant,
        from: NodeNumber,
        why: String,
        effects: &mut Vec<Effect>,
    ) {
        let Some(record) = self.records.get_mut(&from) else { return };
        record.came(now);
        if self.acts && record.verdict.is_none() {
            self.declare(from, Why::Left { why }, effects);
        }
    }

    fn on_stored(&mut self, ticket: u64, version: u64, effects: &mut Vec<Effect>) {
        if let Some(number) = self.tickets.remove(&ticket)
            && let Some(record) = self.records.get_mut(&number)
            && let Some(verdict) = record.verdict.take_if(|verdict| verdict.ticket == ticket)
        {
            record.version = version;
            let why = verdict.why.to_string();
            if matches!(verdict.why, Why::Astray { .. }) {
                // It runs, and asks nobody who could tell it.
                effects.push(Effect::Tell { number, why: why.clone() });
            }
            self.bury(number, why);
        }
    }

    /// Whatever came of it meanwhile counts: it is judged again.
    fn on_not_stored(&mut self, now: Instant, ticket: u64) {
        if let Some(number) = self.tickets.remove(&ticket)
            && let Some(record) = self.records.get_mut(&number)
        {
            (record.verdict, record.troubled) = (None, true);
            self.look_at(number, self.acts.then_some(now + limits::MEMBER_VERDICT_RETRY));
        }
    }

    fn bury(&mut self, number: NodeNumber, why: String) {
        self.end_round(number);
        self.look_at(number, None);
        if let Some(verdict) = self.records.remove(&number).and_then(|record| record.verdict) {
            self.tickets.remove(&verdict.ticket);
        }
        self.dead.entry(number).or_insert(why);
    }

    /// From now on it is looked at then, or not at all.
    fn look_at(&mut self, number: NodeNumber, at: Option<Instant>) {
        let Some(record) = self.records.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut record.due, at) {
            self.due.remove(&(before, number));
        }
        self.due.extend(at.map(|at| (at, number)));
    }

    fn new_ticket(&mut self, number: NodeNumber) -> u64 {
        self.ticket += 1;
        self.tickets.insert(self.ticket, number);
        self.ticket
    }
}
