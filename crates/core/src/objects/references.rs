//! Who may still reach an object: tokens, containment, sweeps, and the end of a record.

use std::collections::BTreeMap;

use hoplo_base::{ActorId, ObjectId, ProcessId};
use hoplo_wire::node::ToClient;
use hoplo_wire::{Failure, FailureKind, Location, Value};

use super::ObjectDirectory;
use super::event::Effect;
use super::event::Need;
use super::on_move::Fate;
use super::record::{Record, State};

impl ObjectDirectory {
    /// The record, made if nobody told about the object yet.
    pub(super) fn record(&mut self, object: ObjectId) -> &mut Record {
        let asked = self.sweeps.asked;
        let at_home = self.is_at_home(object);
        let unannounced = at_home && self.estates.is_unannounced(object.task.owner.node());
        self.records.entry(object).or_insert_with(|| {
            let state = match is_handle(object) {
                true => State::Handle,
                false if !at_home => State::Foreign { asked: false, again: false },
                false => State::Unknown { since: asked },
            };
            if matches!(state, State::Unknown { .. }) && !unannounced {
                self.undecided.insert(object);
            }
            Record { unannounced, ..Record::new(state, asked) }
        })
    }

    /// A message about the object was handled: without support it may go, though not before a
    /// sweep that is asked for from now on has passed over it in silence.
    pub(super) fn touch(&mut self, object: ObjectId) {
        let (asked, at_home) = (self.sweeps.asked, self.is_at_home(object));
        let Some(record) = self.records.get_mut(&object) else { return };
        record.touched = asked;
        if !at_home && !record.claimed && record.is_supported() {
            record.claimed = true;
            self.first_uses.push(object);
        }
        if record.is_candidate() {
            self.candidates.insert(object);
        } else {
            self.candidates.remove(&object);
        }
    }

    pub(super) fn add_tokens(&mut self, object: ObjectId, process: ProcessId, count: i64) {
        if !self.processes.contains_key(&process) {
            // It died: whoever gave the token could not know. Nothing to strike later.
            return self.touch(object);
        }
        let record = self.record(object);
        let tokens = record.tokens.entry(process).or_insert(0);
        *tokens = tokens.saturating_add(count);
        if *tokens == 0 {
            record.tokens.remove(&process);
        }
        self.index(object, process);
        self.touch(object);
    }

    pub(super) fn contain(&mut self, contains: &[ObjectId]) {
        for inner in contains {
            self.record(*inner).containers += 1;
            self.touch(*inner);
        }
    }

    /// One occurrence less for each, as told by a message.
    pub(super) fn release_contained(&mut self, contains: &[ObjectId]) {
        for inner in contains {
            self.uncontain(*inner);
            self.touch(*inner);
        }
    }

    pub(super) fn node_hold(&mut self, objects: &[ObjectId]) {
        for object in objects {
            self.record(*object).node_holds += 1;
            self.touch(*object);
        }
    }

    pub(super) fn node_release(&mut self, objects: &[ObjectId]) {
        for object in objects {
            let record = self.records.get_mut(object).expect("the node releases what it holds");
            record.node_holds = record.node_holds.checked_sub(1).expect("and as often as it holds");
            self.touch(*object);
        }
    }

    /// Keeps the index of what concerns a process exact.
    pub(super) fn index(&mut self, object: ObjectId, process: ProcessId) {
        let concerns = self.records.get(&object).is_some_and(|record| record.concerns(process));
        let Some(known) = self.processes.get_mut(&process) else {
            return assert!(!concerns, "OBJ-3: {process} is not joined and concerns {object}");
        };
        if concerns {
            known.insert(object);
        } else {
            known.remove(&object);
        }
    }

    /// Asks for a sweep if something waits for one and none is under way.
    pub(super) fn ask_for_sweep(&mut self, effects: &mut Vec<Effect>) {
        let needed = !self.candidates.is_empty() || !self.undecided.is_empty();
        if needed && self.sweeps.asked == self.sweeps.done {
            self.sweeps.asked += 1;
            effects.push(Effect::Sweep { sweep: self.sweeps.asked });
        }
    }

    /// Every message that was written before the sweep was asked for has been handled.
    ///
    /// Why an object without support that no message touched since then may go (REF-5):
    /// 1. Each reach of a process is backed by a token, a container or an argument held by a
    ///    caller's token, and what tells of it is written before the reach it replaces is given up.
    /// 2. So at the time of the asking, support was recorded here, or lay in a socket.
    /// 3. Nothing about the object lay in a socket: it would have touched the record.
    /// 4. Nothing was recorded either: so nobody reached it then, and nobody can since.
    ///
    /// What only such objects contained goes with them, if it was not touched either.
    pub(super) fn on_swept(&mut self, sweep: u64, effects: &mut Vec<Effect>) {
        assert!(sweep == self.sweeps.asked, "sweep {sweep} was not asked for");
        assert!(sweep > self.sweeps.done, "sweep {sweep} was reported twice");
        self.sweeps.done = sweep;
        for object in self.undecided.clone() {
            self.decide(object, sweep, effects);
        }
        let mut ready: Vec<ObjectId> = self.candidates.iter().copied().collect();
        while let Some(object) = ready.pop() {
            let Some(record) = self.records.get(&object) else { continue };
            if record.touched >= sweep || record.is_supported() {
                continue;
            }
            if record.kept.is_some() {
                self.unclaim(object, effects);
            } else {
                ready.extend(self.end(object, effects));
            }
        }
    }

    /// Whatever was written of it before the sweep was asked for is read, and its value was not there.
    fn decide(&mut self, object: ObjectId, sweep: u64, effects: &mut Vec<Effect>) {
        if !self.undecided.contains(&object) {
            return; // it went with another result of its task to the same heir
        }
        let failure = match &self.records[&object].state {
            State::Unknown { since } | State::Orphaned { since, .. } if *since >= sweep => return,
            State::Unknown { .. } => {
                if self.owner_may_remake(object) {
                    // Of what nobody uses no failure is left for who uses it next.
                    return self.remake_unknown(object, effects);
                }
                let text = self.why_not_inherited(object).unwrap_or_else(|| {
                    format!(
                        "{object} is lost: the process that made it is gone, or every reference \
                         to it was dropped, before this one was used"
                    )
                });
                Failure::new(FailureKind::ObjectLost, text)
            }
            State::Orphaned { lineage: Err(failure), .. } => failure.clone(),
            State::Orphaned { lineage: Ok(_), .. } => {
                self.undecided.remove(&object);
                return self.adopt(object, effects);
            }
            other => panic!("OBJ-10: {object} is {}, not undecided", other.name()),
        };
        self.fulfil(object, State::Failed(failure), Vec::new(), effects);
    }

    /// The record goes. Returns what lost its last support by that.
    fn end(&mut self, object: ObjectId, effects: &mut Vec<Effect>) -> Vec<ObjectId> {
        let record = self.strike(object);
        assert!(!record.is_supported(), "OBJ-2: {object} goes while something holds it");
        self.note(object, "freed", None);
        if record.claimed {
            effects.push(Effect::Unforeign { object });
        }
        if record.has_lineage {
            self.lineage_ends(object);
        }
        let at_home = self.is_at_home(object);
        if at_home {
            let forget = |copy| Effect::ForgetCopy { object, copy };
            effects.extend(record.told_copies().map(forget));
        }
        for process in record.tokens.keys() {
            let what = format!("gave back more tokens of {object} than it had");
            self.violation(*process, what, effects);
        }
        match record.state {
            State::Stored { location, used, .. } => {
                self.lru.remove(&used);
                self.free(object, location, None, effects);
            }
            State::Mapped { place, location, used, .. } => {
                self.mapped.remove(&used);
                self.free(object, location, Some(place), effects);
            }
            State::Spilling { ticket, .. }
            | State::Restoring { ticket, .. }
            | State::Closing { ticket, .. } => self.doom(ticket, Fate::Doomed),
            State::Spilled { place, .. } => self.forget(place, effects),
            State::Handle if at_home => {
                effects.push(Effect::ActorUnreachable { actor: ActorId(object.task) });
            }
            State::Handle
            | State::Unknown { .. }
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_) => {}
        }
        let mut alone = Vec::new();
        for inner in record.contains {
            self.uncontain(inner);
            if self.records.get(&inner).is_some_and(Record::is_candidate) {
                self.candidates.insert(inner);
                alone.push(inner);
            }
        }
        alone
    }

    /// Takes the record out of every index.
    pub(super) fn strike(&mut self, object: ObjectId) -> Record {
        let record = self.records.remove(&object).expect("a record ends once");
        self.candidates.remove(&object);
        self.undecided.remove(&object);
        self.keepers.short.remove(&object);
        self.estates.forget_lineage(object);
        self.adoption_ends(object);
        for process in
            record.tokens.keys().chain(record.waiting.keys()).copied().chain(record.state.owner())
        {
            if let Some(known) = self.processes.get_mut(&process) {
                known.remove(&object);
            }
        }
        record
    }

    fn uncontain(&mut self, inner: ObjectId) {
        let record = self.records.get_mut(&inner).expect("OBJ-4: what is contained has a record");
        record.containers =
            record.containers.checked_sub(1).expect("OBJ-4: counted when contained");
    }

    /// The pending object gets its first value: everyone who waits is told.
    pub(super) fn fulfil(
        &mut self,
        object: ObjectId,
        state: State,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let record = self.records.get(&object).expect("the caller has seen the record");
        assert!(record.state.is_open(), "{object} is {} already", record.state.name());
        self.settle(object, state, contains, effects);
    }

    /// Whatever was known of its value: this is it.
    pub(super) fn settle(
        &mut self,
        object: ObjectId,
        state: State,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        self.contain(&contains);
        self.undecided.remove(&object);
        self.estates.forget_lineage(object);
        self.adoption_ends(object);
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        let owner = record.state.owner();
        self.note(object, state.name(), owner);
        let record = self.records.get_mut(&object).expect("it was there");
        record.state = state;
        record.lost_bytes = 0;
        record.remade = false;
        let lineage_refs = std::mem::replace(&mut record.contains, contains);
        if let Some(owner) = owner {
            self.index(object, owner);
        }
        self.release_contained(&lineage_refs);
        self.end_lineages(object);
        self.answer(object, effects);
        self.answer_nodes(object, effects);
        self.fetch_if_wanted(object, effects);
        if self.records.get(&object).is_some_and(|record| record.copies.is_some()) {
            self.make_copies(object, effects);
        }
    }

    /// Tells everyone who waits, if there is a value.
    pub(super) fn answer(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get_mut(&object) else { return };
        let waiting: Vec<ProcessId> = match &record.state {
            state if state.value().is_some() => {
                std::mem::take(&mut record.waiting).into_keys().collect()
            }
            state if state.is_stored() && !record.waiting.is_empty() => {
                let all = std::mem::take(&mut record.waiting).into_iter();
                let (told, waiting) =
                    all.partition::<BTreeMap<_, _>, _>(|(_, it)| *it == Need::Word);
                record.waiting = waiting;
                told.into_keys().collect()
            }
            _not_yet => return,
        };
        let record = &self.records[&object];
        let value = record.state.value();
        let value = value.unwrap_or_else(|| Value::Stored(self.other_place(record)));
        let contains = record.contains.clone();
        for to in waiting {
            self.index(object, to);
            let (value, contains) = (value.clone(), contains.clone());
            let message = ToClient::Ready { object, value, contains };
            effects.push(Effect::Send { to, message });
        }
        self.touch(object);
    }

    /// Of a stored value that cannot be read here at once: the node that has its bytes.
    fn other_place(&self, record: &Record) -> Location {
        let node = match record.state.is_here() {
            true => Some(self.node),
            // The first ones may be fetching it themselves.
            false => record.copies().last(),
        };
        match node {
            Some(node) => Location::elsewhere(node, record.state.len()),
            None => Location::ASK,
        }
    }

    pub(super) fn violation(
        &mut self,
        process: ProcessId,
        what: String,
        effects: &mut Vec<Effect>,
    ) {
        self.violations += 1;
        effects.push(Effect::Violation { process, what });
    }
}

pub(crate) fn is_handle(object: ObjectId) -> bool {
    object == ActorId(object.task).handle()
}
