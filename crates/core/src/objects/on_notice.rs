//! What processes tell about objects.

use hoplo_base::{ObjectId, ProcessId};
use hoplo_wire::call::CallView;
use hoplo_wire::node::{Lineage, Notice, SharedState};
use hoplo_wire::{Location, Value};

use super::ObjectDirectory;
use super::event::Effect;
use super::on_move::Fate;
use super::record::State;
use super::references::is_handle;

impl ObjectDirectory {
    pub(super) fn on_notice(&mut self, from: ProcessId, notice: Notice, effects: &mut Vec<Effect>) {
        let result = match notice {
            Notice::Sealed { object, location, contains, holder } => {
                let sealed = self.on_sealed((from, holder), object, location, contains, effects);
                // What the haul brought is supported by who wants it.
                if sealed.is_ok() && from != self.haul {
                    self.add_tokens(object, holder, 1);
                    self.goes_with_reply(from, holder, object, true);
                }
                sealed
            }
            Notice::Copies { object, copies } => self.on_copies(from, object, copies, effects),
            Notice::Freed { object } => self.on_freed_by_writer(from, object, effects),
            Notice::Shared { object, state } => self.on_shared(from, object, state, effects),
            Notice::Fulfilled { object, value, contains } => {
                self.on_fulfilled(object, value, contains, effects)
            }
            Notice::Hold { object, process } => {
                self.add_tokens(object, process, 1);
                self.goes_with_reply(from, process, object, false);
                self.adopt(object, effects);
                Ok(())
            }
            Notice::Released { object, tokens } => {
                self.add_tokens(object, from, -i64::from(tokens));
                Ok(())
            }
            Notice::Replying { to } => {
                self.on_replying(from, to);
                Ok(())
            }
            Notice::RepliesEnded { from: worker, tokens } => {
                self.on_replies_ended(worker, from, tokens)
            }
            Notice::AdoptionOver { task, maker } => {
                self.adoption_over(task, (from, maker), effects);
                Ok(())
            }
        };
        if let Err(what) = result {
            self.violation(from, what, effects);
        }
    }

    fn on_sealed(
        &mut self,
        (from, holder): (ProcessId, ProcessId),
        object: ObjectId,
        location: Location,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        if is_handle(object) {
            return Err(format!("sealed {object}, which stands for an actor"));
        }
        let place = if location.offset >= self.memory.file_starts() {
            Some(self.memory.sealed_in_file(from, object, location)?)
        } else {
            self.memory.sealed_in_extent(from, object, location)?;
            None
        };
        self.note(object, "sealed", Some(from));
        if from == self.haul {
            self.on_pulled(object, location, place, effects);
            return Ok(());
        }
        let at_home = self.is_at_home(object);
        let record = self.record(object);
        let is_elsewhere = matches!(record.state, State::Elsewhere { .. });
        if !record.state.is_open() && !is_elsewhere {
            // Its task ran twice (a retry, an adoption): the first value stays. Until its bytes are free, whoever
            // was told of this one may read it, and gets the refs that lie in it.
            self.contain(&contains);
            let record = self.records.get_mut(&object).expect("it is not open: it is there");
            record.contains.extend(contains);
            if record.state.is_here() && !at_home {
                // Its home may count on no copy here (it lost all others, or has had enough of this one), and shall await the reply that
                // tells of it.
                let told = (record.state.len(), record.contains.clone());
                self.tell_home((from, holder), object, told, effects);
            }
            self.free(object, location, place, effects);
            self.touch(object);
            return Ok(());
        }
        let state = match place {
            Some(place) => self.map(object, place, location),
            None => self.stored(object, location),
        };
        if at_home && is_elsewhere {
            // Its task ran twice, and the nodes that have the first value may die, or are dead. Its owner may have accepted this one: then it
            // does not know any more how it was made. So this one stays. What lies in either is held, since the first may be read still.
            let record = self.records.get_mut(&object).expect("it was just there");
            record.end_fetching(self.node);
            let all = record.contains.iter().copied().chain(contains).collect();
            self.settle(object, state, all, effects);
            self.leave_draining(object, effects);
        } else if at_home {
            self.fulfil(object, state, contains, effects);
        } else {
            self.tell_home((from, holder), object, (state.len(), contains.clone()), effects);
            // The copies that its home knew of may be lost, and this one is what is waited for.
            self.records.get_mut(&object).expect("it is open: it is there").abroad = None;
            self.settle(object, state, contains, effects);
        }
        Ok(())
    }

    /// Readable in the arena, and the last one used.
    pub(super) fn stored(&mut self, object: ObjectId, location: Location) -> State {
        self.uses += 1;
        self.lru.insert(self.uses, object);
        State::Stored { location, used: self.uses, rests_until: self.now }
    }

    /// The writer uses the range again already: the record must be its alone.
    fn on_freed_by_writer(
        &mut self,
        from: ProcessId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let Some(record) = self.records.get(&object) else {
            return Err(format!("freed {object}, which has no record"));
        };
        let mut processes = record.tokens.keys().chain(record.waiting.keys());
        let others = processes.any(|process| *process != from);
        let abroad = record.kept.is_some() || record.abroad.is_some();
        if others || abroad || record.containers + record.node_holds > 0 {
            return Err(format!("freed {object}, which others may reach"));
        }
        let offset = match &record.state {
            State::Stored { location, .. } | State::Spilling { location, .. } => {
                Some(location.offset)
            }
            State::Spilled { .. } | State::Restoring { .. } => None,
            State::Mapped { .. } | State::Closing { .. } => {
                return Err(format!("freed {object}, whose place is the node's"));
            }
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_) => return Err(format!("freed {object}, which is not stored")),
        };
        if offset.is_some_and(|at| self.memory.tenant(at).is_none_or(|it| it.writer != Some(from)))
        {
            return Err(format!("freed {object}, which somebody else wrote"));
        }
        let record = self.strike(object);
        match record.state {
            State::Stored { used, .. } => {
                self.lru.remove(&used);
            }
            State::Spilling { ticket, .. } => self.doom(ticket, Fate::Vanished),
            State::Spilled { place, .. } => self.forget(place, effects),
            State::Restoring { ticket, .. } => self.doom(ticket, Fate::Doomed),
            State::Mapped { .. }
            | State::Closing { .. }
            | State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_) => unreachable!("looked at above"),
        }
        if let Some(offset) = offset {
            let (_, bytes) = self.memory.vacate(self.now, offset);
            self.recall_what_came_free(from, bytes, effects);
        }
        self.note(object, "freed by its writer", Some(from));
        self.release_contained(&record.contains);
        Ok(())
    }

    fn on_shared(
        &mut self,
        from: ProcessId,
        object: ObjectId,
        state: SharedState,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        if is_handle(object) {
            return Err(format!("shared {object}, which stands for an actor"));
        }
        if !self.is_at_home(object) {
            return Err(format!("shared {object}, which is at home at another node"));
        }
        match state {
            SharedState::Value { value, contains } => {
                let state = plain(object, value)?;
                self.record(object);
                self.take_plain(object, state, contains, effects);
            }
            SharedState::Pending { lineage } => {
                let refs = lineage.as_ref().map_or(Ok(Vec::new()), |it| refs_of(object, it))?;
                let record = self.record(object);
                if let State::Unknown { .. } = record.state {
                    record.state = State::Pending { owner: from, lineage };
                    record.contains = refs.clone();
                    self.undecided.remove(&object);
                    self.contain(&refs);
                    self.index(object, from);
                    self.note(object, "shared while pending", Some(from));
                }
            }
        }
        self.add_tokens(object, from, 1);
        Ok(())
    }

    fn on_fulfilled(
        &mut self,
        object: ObjectId,
        value: Value,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let told = (&value, contains.as_slice());
        if !self.is_at_home(object) && !self.tell_adopted(object, told, effects) {
            return Err(format!("told the value of {object}, which is at home at another node"));
        }
        let state = plain(object, value)?;
        // No record: everyone who could reach it let go while it was pending.
        if self.records.contains_key(&object) {
            self.take_plain(object, state, contains, effects);
        }
        Ok(())
    }

    /// Its owner, or who adopted it, has a value for it.
    fn take_plain(
        &mut self,
        object: ObjectId,
        state: State,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let record = &self.records[&object];
        if record.state.is_open() {
            return self.fulfil(object, state, contains, effects);
        }
        let is_elsewhere = matches!(record.state, State::Elsewhere { .. });
        let is_value = matches!(state, State::Inline(_));
        if is_elsewhere && is_value && self.processes.contains_key(&object.task.owner) {
            // As in `on_sealed`: its owner has accepted this one, and does not know how the first was made.
            let forget = |copy| Effect::ForgetCopy { object, copy };
            effects.extend(record.told_copies().map(forget));
            self.has_no_copy(object);
            self.settle(object, state, contains, effects);
            self.touch(object);
        }
    }
}

/// A value that is not in the store.
fn plain(object: ObjectId, value: Value) -> Result<State, String> {
    match value {
        Value::Inline(bytes) => Ok(State::Inline(bytes)),
        Value::Failed(failure) => Ok(State::Failed(failure)),
        Value::Stored(_) => {
            Err(format!("told that {object} is stored, which is its writer's word"))
        }
    }
}

/// The refs that whoever adopts the task will need.
pub(super) fn refs_of(object: ObjectId, lineage: &Lineage) -> Result<Vec<ObjectId>, String> {
    if lineage.task != object.task {
        return Err(format!("shared {object} with the lineage of {}", lineage.task));
    }
    let refs = CallView::parse(&lineage.frame).and_then(|call| call.refs());
    match refs {
        Ok(_) => Ok(lineage.contains.clone()),
        Err(malformed) => Err(format!("shared {object} with a lineage that is {malformed}")),
    }
}
