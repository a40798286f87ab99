//! Objects get their values, and what came with a reply is counted or given back.

use hoplo_base::{Instant, ObjectId, ProcessId};
use hoplo_wire::node::Notice;
use hoplo_wire::reply::ReplyView;
use hoplo_wire::{Failure, Malformed, Value};

use super::call::Values;
use super::refs::{Entry, Knowledge, State, Waiter};
use super::{Effect, SessionMachine};

impl SessionMachine {
    /// The daemon answered for an object that no task here makes.
    pub(super) fn object_ready(
        &mut self,
        now: Instant,
        object: ObjectId,
        value: Value,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        if matches!(entry.state, State::Ready(_)) {
            return;
        }
        if entry.contains.is_empty() {
            self.complete(now, object, value, contains, Origin::Node, effects);
        } else {
            // It was ready before and moved: what it contains is counted already.
            let contains = std::mem::take(&mut entry.contains);
            // A task that fails with it may be its last user.
            entry.count += 1;
            self.complete(now, object, value, vec![], Origin::Node, effects);
            self.objects.get_mut(&object).expect("it is counted").contains = contains;
            self.drop_ref(now, object, effects);
        }
    }

    /// The daemon cannot give us its value now: a failure of those who wait, and not what the object is.
    pub(super) fn object_unreadable(
        &mut self,
        now: Instant,
        object: ObjectId,
        failure: Failure,
        effects: &mut Vec<Effect>,
    ) {
        let waits = |entry: &Entry| matches!(entry.state, State::Pending { .. });
        if !self.objects.get(&object).is_some_and(waits) {
            return;
        }
        self.object_ready(now, object, Value::Failed(failure), vec![], effects);
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.passing = true;
        }
    }

    /// The object has its value. What comes with a reply brings tokens: one for a stored object, one for each
    /// ref inside an inline one (REF-4).
    pub(super) fn complete(
        &mut self,
        now: Instant,
        object: ObjectId,
        value: Value,
        contains: Vec<ObjectId>,
        origin: Origin,
        effects: &mut Vec<Effect>,
    ) {
        let stored = matches!(value, Value::Stored(_));
        self.failures += u64::from(matches!(value, Value::Failed(_)));
        let from_reply = origin.is_reply();
        match self.objects.get_mut(&object) {
            Some(entry) if entry.is_plain() && contains.is_empty() && !stored => {
                entry.state = State::Ready(value);
                return;
            }
            Some(entry) if entry.count > 0 && entry.contains.is_empty() => {}
            Some(entry) if entry.count > 0 => {
                // The daemon was faster than the reply, or it was made again: what it contained is counted already.
                let contained = std::mem::take(&mut entry.contains);
                self.complete(now, object, value, contains, origin, effects);
                self.drop_all(now, &contained, effects);
                return;
            }
            Some(entry) if entry.knowledge == Knowledge::Shared => {
                // Nobody here wants it any more, but others may: as if held until it is told.
                entry.count = 1;
                self.complete(now, object, value, contains, origin, effects);
                self.drop_ref(now, object, effects);
                return;
            }
            Some(_) | None => {
                self.objects.remove(&object);
                if from_reply {
                    self.give_back_value(now, object, &value, contains, effects);
                }
                return;
            }
        }
        self.count_all(&contains);
        if from_reply && !stored {
            for inner in &contains {
                let entry = self.objects.get_mut(inner).expect("it was just counted");
                entry.tokens += 1;
                if entry.knowledge == Knowledge::Unreported {
                    entry.knowledge = Knowledge::Shared;
                }
            }
        }
        let entry = self.objects.get_mut(&object).expect("it has a count");
        let pending = matches!(entry.state, State::Pending { .. });
        let shared = entry.knowledge == Knowledge::Shared;
        if from_reply && stored {
            entry.tokens += 1;
            entry.knowledge = Knowledge::Shared;
        }
        let own = object.task.owner == self.me;
        let fulfil = (own && origin != Origin::Node && shared && pending && !stored)
            .then(|| (value.clone(), contains.clone()));
        entry.contains = contains.into();
        let far = matches!(value, Value::Stored(location) if location.known().is_none());
        let before = std::mem::replace(&mut entry.state, State::Ready(value));
        let waiters = std::mem::take(&mut entry.waiters);
        if !stored && matches!(before, State::Ready(Value::Stored(_))) {
            self.place_changed();
        }
        if stored {
            self.saw_stored(object);
            if far {
                self.far_values += 1;
                if from_reply {
                    self.made_elsewhere(now, object, effects);
                }
            }
        }
        if let Some((value, contains)) = fulfil {
            self.mention_all(now, &contains, effects);
            self.notice(now, Notice::Fulfilled { object, value, contains }, effects);
        }
        for waiter in &waiters {
            if let Waiter::Watch(watch) = *waiter {
                self.reasons -= 1;
                effects.push(Effect::Fire { watch });
            }
        }
        for waiter in waiters {
            if let Waiter::Task(seq) = waiter {
                self.dependency_ready(now, seq, object, effects);
            }
        }
    }

    /// Everything that came with a reply of `worker`, whose tokens are counted (REF-4).
    pub(super) fn values_of(
        &mut self,
        worker: ProcessId,
        reply: &ReplyView<'_>,
        values: &mut Values,
    ) -> Result<(), Malformed> {
        values.reserve(reply.values_count());
        let mut tokens = 0;
        for value in reply.values() {
            let (value, contains) = value?;
            let value = value.to_value();
            tokens += match value {
                Value::Stored(_) => 1,
                Value::Inline(_) | Value::Failed(_) => contains.len() as u64,
            };
            values.push((value, contains));
        }
        if tokens > 0 {
            *self.tokens_of_replies.entry(worker).or_insert(0) += tokens;
        }
        Ok(())
    }

    /// All replies of `worker` are read, and it is dead: what it gave us with one that it did not write is
    /// struck by the daemon.
    pub(super) fn replies_ended(
        &mut self,
        now: Instant,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        let tokens = self.tokens_of_replies.remove(&worker).unwrap_or(0);
        self.notice(now, Notice::RepliesEnded { from: worker, tokens }, effects);
    }

    /// A value that came with a reply and that nobody wants: its tokens go back.
    pub(super) fn give_back_value(
        &mut self,
        now: Instant,
        object: ObjectId,
        value: &Value,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let brought = match value {
            Value::Stored(_) => vec![object],
            Value::Inline(_) | Value::Failed(_) => contains,
        };
        for object in brought {
            self.notice(now, Notice::Released { object, tokens: 1 }, effects);
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The reply of this worker.
    Reply(ProcessId),
    /// This session (a failure that it decided).
    Own,
    /// The daemon's answer.
    Node,
}

impl Origin {
    pub(super) fn is_reply(self) -> bool {
        matches!(self, Origin::Reply(_))
    }
}
