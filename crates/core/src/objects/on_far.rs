//! What other nodes have to do with objects that are at home here: they wait for them, make them, have copies, die.
//!
//! ```text
//!   Unknown, Pending, Orphaned --FarSealed--> Elsewhere --pulled--> Stored, Mapped ... (the copies stay)
//!                                                 |
//!                                                 +--no copy is left--> Pending | Failed (`on_loss`)
//! ```
//! Each copy that another node said it has is told to be forgotten: when the record ends, or at once where it is not needed.
//! A node that drains keeps no copy: the last one is pulled here first.
//! A node that waits for a value supports it as a process does; what it gets then is covered by the message that tells it.
//!
//! # From where bytes are fetched
//! Who asks for a stored value is told nodes to fetch it from, and is **fetching** from then on, until it says that it has a copy
//! (`FarCopied`) or will have none (`FarNotCopied`). A node that is fetching can be named to the next one, which gets what has come so
//! far and then what comes (`crates/core/src/transfer`). So those who ask at the same time form a chain, and each link carries the
//! object once. The first source is
//! 1. of the nodes that have all bytes, one that was not named to anybody who is still fetching; else
//! 2. of those that are fetching, the one that was told first of those that were not named to anybody; else
//! 3. of the nodes that have all bytes, the one that was named least often.
//!
//! If many read a large object, the slow ones come last ([`super::speeds`]): who is slow is named to those only that are as slow, and does not
//! count as one to whom is sent. It is told a moment later than the others, so that those who ask at the same time come before it. So nobody
//! waits for a slow link but those behind it, and two of those in one chain wait for the slower one only.
//!
//! Who relays it may say that the one behind it **lags** (`FarLags`): it takes less than half as fast as it comes. Those behind that one then go on at its source,
//! and it goes to the end of that chain (`TellSources`), as if it had been known to be slow.
//!
//! The others are for when that one fails. Behind one that is fetching comes the one that it was told first: if it dies, that one sends to
//! nobody any more, and the chain is whole again without it. The rest have all bytes. Who asks again is told only nodes that have all bytes. Each answer has a **turn**, which counts
//! up: what is fetched in one turn is sent on in later turns only (XFER-8), so nobody waits for itself, whatever is said late or twice.

use std::collections::BTreeSet;
use std::iter;

use hoplo_base::limits::SOURCES_MAX;
use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::peer::FarValue;
use hoplo_wire::{Failure, FailureKind};

use super::ObjectDirectory;
use super::event::{CopyAt, Effect, Heir};
use super::on_loss::Loss;
use super::on_move::MoveKind;
use super::record::{Fetching, Record, State, elsewhere};
use super::references::is_handle;

impl ObjectDirectory {
    pub(super) fn on_far_wanted(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        assert!(self.is_at_home(object), "{node:?} wants {object}, which is not at home here");
        if is_handle(object) {
            let what = format!("{object} stands for an actor and has no value");
            let value = FarValue::Failed(Failure::new(FailureKind::ObjectLost, what));
            let contains = Vec::new();
            return effects.push(Effect::TellNode { node, object, value, contains });
        }
        self.record(object).abroad().waiting.insert(node);
        self.touch(object);
        self.adopt(object, effects);
        self.answer_nodes(object, effects);
        if self.records.get(&object).is_some_and(|record| record.remade) {
            effects.push(Effect::TellDelayed { node, object });
        }
    }

    pub(super) fn on_far_sealed(
        &mut self,
        copy: CopyAt,
        object: ObjectId,
        bytes: u64,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let node = copy.node;
        assert!(self.is_at_home(object), "{node:?} made {object}, which is not at home here");
        self.note(object, "sealed at another node", None);
        if !is_handle(object) {
            self.lineage_begins(object);
        }
        if self.record(object).has_lost_all() {
            // Bytes of the first one may still arrive: what lies in either is held.
            self.contain(&contains);
            let record = self.records.get_mut(&object).expect("it was just there");
            record.contains.extend(contains);
            record.add_copy(copy);
            self.touch(object);
            return self.answer_nodes(object, effects);
        }
        if is_handle(object) || !self.record(object).state.is_open() {
            // Its task ran twice: the first value stays. Whoever hears of this one asks here.
            match self.records.get_mut(&object) {
                // What it has there is the first value.
                Some(record) if record.copies().any(|it| it == node) => record.add_copy(copy),
                Some(record) => {
                    record.end_fetching(node);
                    effects.push(Effect::ForgetCopy { object, copy });
                }
                None => effects.push(Effect::ForgetCopy { object, copy }),
            }
            return self.touch(object);
        }
        let state = elsewhere(bytes);
        match &state {
            State::Elsewhere { .. } => {
                let record = self.records.get_mut(&object).expect("it was just there");
                record.add_copy(copy);
            }
            _nothing => effects.push(Effect::ForgetCopy { object, copy }),
        }
        self.fulfil(object, state, contains, effects);
        self.touch(object);
        self.leave_draining(object, effects);
    }

    pub(super) fn on_far_copied(
        &mut self,
        copy: CopyAt,
        object: ObjectId,
        turn: u64,
        effects: &mut Vec<Effect>,
    ) {
        self.note_speed(copy.node, object, turn);
        match self.records.get_mut(&object) {
            Some(record) if record.state.is_stored() => {
                record.add_copy(copy);
                self.answer_nodes(object, effects);
            }
            Some(record) if record.lost_bytes > 0 => self.copy_turns_up(copy, object, effects),
            // It ended while the copy was made.
            Some(_) | None => effects.push(Effect::ForgetCopy { object, copy }),
        }
        self.leave_draining(object, effects);
    }

    /// It says now that it has all bytes.
    fn note_speed(&mut self, node: NodeNumber, object: ObjectId, turn: u64) {
        let Some(record) = self.records.get_mut(&object) else { return };
        let bytes = record.state.len();
        let Some(abroad) = &mut record.abroad else { return };
        abroad.has_all(node, self.now);
        if let Some(fetching) = abroad.fetching.get(&node).filter(|it| it.turn == turn) {
            self.speeds.took(self.now, node, bytes, fetching);
        }
    }

    pub(super) fn on_far_not_copied(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(record) = self.records.get_mut(&object) else { return };
        record.end_copy(node);
        let is_lost = matches!(record.state, State::Elsewhere { pulling: false, .. });
        if is_lost && record.copies().next().is_none() {
            // Its copy went, and the one that it was made from died before it knew.
            self.lose(object, Loss::no_copy(), effects);
        }
        self.copy_refused(node, object, effects);
        self.leave_draining(object, effects);
    }

    /// Tells the nodes that wait, if there is something to tell.
    /// That node is told how it is made.
    pub(super) fn on_lineage_given(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(record) = self.records.get_mut(&object) else { return };
        record.abroad().lineage_at.insert(node);
        if !record.state.is_open() {
            // Its value came just now.
            self.end_lineages(object);
            self.answer_nodes(object, effects);
        }
    }

    /// It has a value: those that hold what its task is given are told that, though they did not ask (OBJ-19).
    pub(super) fn end_lineages(&mut self, object: ObjectId) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        let Some(abroad) = &mut record.abroad else { return };
        for node in std::mem::take(&mut abroad.lineage_at) {
            if !abroad.copies.iter().any(|copy| copy.node == node) {
                abroad.waiting.insert(node);
            }
        }
        record.tidy();
    }

    pub(super) fn answer_nodes(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get(&object) else { return };
        if record.far_waiting().next().is_none() {
            return;
        }
        let now = self.now;
        for node in record.far_waiting().collect::<Vec<_>>() {
            if self.comes_later(object, node) {
                continue;
            }
            // Of what one node alone has, there is something to tell to the others.
            let Some(value) = self.far_value(object, node) else { continue };
            let record = self.records.get_mut(&object).expect("it was just there");
            let abroad = record.abroad();
            abroad.waiting.remove(&node);
            if let FarValue::Stored { bytes: 1.., turn, sources } = &value {
                self.turns = *turn;
                // Who made it, or fetched it, since it asked does not fetch it.
                if !abroad.copies.iter().any(|copy| copy.node == node) {
                    abroad.begin_fetching(node, *turn, sources[0], now);
                    self.speeds.told(node, *turn);
                }
            }
            record.tidy();
            let contains = record.contains.clone();
            effects.push(Effect::TellNode { node, object, value, contains });
        }
        self.touch(object);
    }

    /// It is slow, and those who ask at the same time come before it.
    fn comes_later(&mut self, object: ObjectId, node: NodeNumber) -> bool {
        let record = &self.records[&object];
        let fetches = record.abroad.as_ref().is_some_and(|it| it.fetching.contains_key(&node));
        let is_new = !fetches && record.copies().all(|copy| copy != node);
        let bytes = if record.state.is_stored() { record.state.len() } else { 0 };
        is_new && self.speeds.comes_later(self.now, object, node, bytes)
    }

    pub(super) fn answer_slow_ones(&mut self, effects: &mut Vec<Effect>) {
        for object in self.speeds.due(self.now) {
            self.answer_nodes(object, effects);
        }
        self.speeds.end_due(self.now);
    }

    /// From where a node may fetch what is at home here, the best one first; none if no node has all bytes.
    fn sources(&self, object: ObjectId, record: &Record, node: NodeNumber) -> Vec<NodeNumber> {
        let here = record.state.is_here().then_some(self.node);
        let mut sources: Vec<NodeNumber> =
            here.into_iter().chain(record.copies()).filter(|copy| *copy != node).collect();
        let Some(abroad) = record.abroad.as_ref().filter(|_| !sources.is_empty()) else {
            return sources;
        };
        // Those who ask for other objects begin with other nodes.
        let spread = object.task.seq.wrapping_add(u64::from(object.index));
        let spread = spread.wrapping_add(u64::from(node.number())) % sources.len() as u64;
        sources.rotate_left(spread as usize);
        let below = self.speeds.slow_below(node, record.state.len());
        let lags = |node| abroad.fetching.get(&node).is_some_and(|it| it.lags);
        let is_slow = |node: NodeNumber| self.speeds.is_slow(node, below) || lags(node);
        let loads = abroad.loads(is_slow);
        let load = |node: NodeNumber| loads.get(&node).copied().unwrap_or_default();
        // It is slow, or sends to one that is not.
        let is_busy = |node: NodeNumber| is_slow(node) || load(node).0 > 0;
        sources.sort_by_key(|source| (is_slow(*source), load(*source)));
        let asks_again = abroad.fetching.contains_key(&node);
        if !asks_again && is_busy(sources[0]) {
            let idle = abroad.fetching.iter().filter(|(fetching, _)| !is_busy(**fetching));
            let first = idle.min_by_key(|(idle, fetching)| (load(**idle), fetching.turn));
            if let Some((last, fetching)) = first {
                // If that one dies, the one before it sends to nobody any more.
                let before = fetching.from;
                let has_some = sources.contains(&before) || abroad.fetching.contains_key(&before);
                sources.retain(|source| *source != before);
                sources.splice(0..0, iter::once(*last).chain(has_some.then_some(before)));
            }
        }
        sources.truncate(SOURCES_MAX);
        sources
    }

    /// A node that relays it says who lags.
    pub(super) fn on_far_lags(
        &mut self,
        by: NodeNumber,
        node: NodeNumber,
        (object, turn): (ObjectId, u64),
        effects: &mut Vec<Effect>,
    ) {
        let Some(record) = self.records.get_mut(&object) else { return };
        let Some(abroad) = &mut record.abroad else { return };
        let is_known = |it: &Fetching| it.from == by && it.turn == turn && !it.lags;
        if !abroad.fetching.get(&node).is_some_and(is_known) {
            return;
        }
        let moved = abroad.step_aside(node);
        self.note(object, "a node that relays it lags", None);
        for moved in moved {
            let record = &self.records[&object];
            let fetching = record.abroad.as_ref().expect("it fetches").fetching[&moved];
            let sources = self.sources_from(fetching.from, record, moved);
            let turn = fetching.turn;
            // XFER-8: who was before it before is behind it now.
            let is_last = moved == node;
            self.turns += u64::from(is_last);
            let now = if is_last { self.turns } else { turn };
            effects.push(Effect::TellSources { node: moved, object, turn, now, sources });
        }
    }

    /// It is to fetch from the first one, or else from that one's source, or from who has all bytes.
    fn sources_from(
        &self,
        first: NodeNumber,
        record: &Record,
        node: NodeNumber,
    ) -> Vec<NodeNumber> {
        let before = record.abroad.iter().find_map(|it| Some(it.fetching.get(&first)?.from));
        let here = record.state.is_here().then_some(self.node);
        let mut sources = vec![first];
        for other in before.into_iter().chain(here).chain(record.copies()) {
            if other != node && !sources.contains(&other) {
                sources.push(other);
            }
        }
        sources.truncate(SOURCES_MAX);
        sources
    }

    /// From where this node fetches what is at home here and lies elsewhere, and its turn.
    pub(super) fn fetch_home(&mut self, object: ObjectId) -> (u64, Vec<NodeNumber>) {
        let record = &self.records[&object];
        let sources = self.sources(object, record, self.node);
        self.turns += 1;
        let (turn, node) = (self.turns, self.node);
        let record = self.records.get_mut(&object).expect("it was just there");
        if let Some(from) = sources.first().copied() {
            record.abroad().begin_fetching(node, turn, from, self.now);
        }
        (turn, sources)
    }

    /// What another node is told of the value, once there is one.
    pub(super) fn far_value(&self, object: ObjectId, node: NodeNumber) -> Option<FarValue> {
        let record = self.records.get(&object)?;
        match &record.state {
            State::Inline(bytes) => Some(FarValue::Inline(bytes.clone())),
            State::Failed(failure) => Some(FarValue::Failed(failure.clone())),
            State::Elsewhere { .. }
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => {
                let sources = self.sources(object, record, node);
                let (bytes, turn) = (record.state.len(), self.turns + 1);
                // Without any it is decided when the pull that is under way has ended.
                (!sources.is_empty()).then_some(FarValue::Stored { bytes, turn, sources })
            }
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Pending { .. }
            | State::Orphaned { .. } => None,
        }
    }

    pub(super) fn on_node_drains(&mut self, node: NodeNumber, effects: &mut Vec<Effect>) {
        self.draining.insert(node);
        let is_there = |it: &Record| it.is_asked(node) || it.copies().any(|copy| copy == node);
        let there = self.records.iter().filter(|(_, it)| is_there(it));
        for object in there.map(|(object, _)| *object).collect::<Vec<_>>() {
            self.keeps_no_more(node, object);
            self.make_copies(object, effects);
            self.leave_draining(object, effects);
        }
        if node == self.node {
            self.begin_to_leave(effects);
        }
    }

    /// Of what is at home here: nodes that drain may forget their copies, once it stays without them. If it would not, it is fetched.
    pub(super) fn leave_draining(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.draining.is_empty() || !self.is_at_home(object) {
            return;
        }
        let Some(record) = self.records.get(&object) else { return };
        let (leaving, staying): (Vec<CopyAt>, Vec<CopyAt>) =
            record.told_copies().partition(|copy| self.draining.contains(&copy.node));
        if leaving.is_empty() {
            return;
        }
        if !self.outlives_drains(record) {
            return self.pull(object, effects);
        }
        if record.awaits_copies() {
            return;
        }
        let maker_stays = self.maker_stays(record);
        let record = self.records.get_mut(&object).expect("it was just there");
        record.abroad().copies = staying;
        // Nobody else keeps it when memory is short.
        record.secondary &= maker_stays;
        record.tidy();
        let forget = leaving.into_iter().map(|copy| Effect::ForgetCopy { object, copy });
        effects.extend(forget);
    }

    /// It does not need the copies at nodes that drain.
    pub(super) fn outlives_drains(&self, record: &Record) -> bool {
        let is_evicted = match record.state {
            State::Spilling { ticket, .. } => {
                self.moves.get(&ticket).is_some_and(|it| matches!(it.kind, MoveKind::Evict { .. }))
            }
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Stored { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => false,
        };
        (record.state.is_here() && !is_evicted) || self.maker_stays(record)
    }

    /// The first copy was made where it is. The others are secondary, and may go (OBJ-15).
    fn maker_stays(&self, record: &Record) -> bool {
        record.copies().next().is_some_and(|maker| !self.draining.contains(&maker))
    }

    pub(super) fn on_node_gone(
        &mut self,
        dead: NodeNumber,
        why: &str,
        heirs: &[Heir],
        effects: &mut Vec<Effect>,
    ) {
        self.draining.remove(&dead);
        self.speeds.forget(dead);
        self.on_heirs(dead, why, heirs);
        let homes: BTreeSet<NodeNumber> = heirs.iter().map(|it| it.home).collect();
        let mut concerned = Vec::new();
        for (object, record) in &mut self.records {
            let home = object.task.owner.node();
            let mut named = home == dead || homes.contains(&home);
            // The one that it was fetched from may have been there.
            record.secondary = false;
            // What could not be fetched was perhaps there, and may be made again.
            if let State::Foreign { again, .. } | State::Elsewhere { again, .. } = &mut record.state
            {
                *again = false;
            }
            if let Some(abroad) = &mut record.abroad {
                let copies = abroad.copies.len();
                abroad.copies.retain(|copy| copy.node != dead);
                abroad.fetcher_died(dead);
                abroad.lineage_at.remove(&dead);
                named |= abroad.waiting.remove(&dead) || abroad.copies.len() < copies;
            }
            if let Some(copies) = &mut record.copies {
                named |= copies.asked.remove(&dead);
            }
            record.tidy();
            if named {
                concerned.push(*object);
            }
        }
        for object in concerned {
            if homes.contains(&object.task.owner.node()) {
                self.pass_on(object, effects);
            } else {
                self.misses(object, (dead, why), effects);
            }
            self.make_copies(object, effects);
            self.touch(object);
            self.leave_draining(object, effects);
        }
        self.adopters_gone(dead, effects);
    }

    /// A node is gone that had a copy of it, waited for it, or was its home and has no heir.
    fn misses(
        &mut self,
        object: ObjectId,
        (dead, why): (NodeNumber, &str),
        effects: &mut Vec<Effect>,
    ) {
        let was_home = object.task.owner.node() == dead;
        let at_home = self.is_at_home(object);
        let record = self.records.get_mut(&object).expect("nothing ended meanwhile");
        if was_home {
            // Nobody will say that its copy may go: it goes when it is not used here.
            record.kept = None;
        }
        let has_copies = record.copies().next().is_some();
        match &mut record.state {
            State::Foreign { .. } | State::Elsewhere { pulling: false, .. } if was_home => {
                let why = format!("its home node {} died: {why}", dead.hex());
                self.lose(object, Loss { node: Some(dead), why }, effects);
            }
            // What is under way may come to its end; else it is decided then.
            State::Elsewhere { pulling: false, .. } if !has_copies && at_home => {
                let node = dead.hex();
                let why = format!("the only copy of it was on node {node}, which died: {why}");
                self.lose(object, Loss { node: Some(dead), why }, effects);
            }
            State::Elsewhere { pulling: false, .. } if !has_copies => {
                record.state = State::Foreign { asked: false, again: false };
            }
            State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Unknown { .. }
            | State::Handle
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => {}
        }
    }
}
