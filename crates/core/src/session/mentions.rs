//! What the daemon hears of refs: before another process can see them, and of those that are borrowed.

use hoplo_base::{Instant, ObjectId, ProcessId};
use hoplo_wire::node::{Notice, SharedState, ToNode};

use super::refs::{Knowledge, State};
use super::{Effect, SessionMachine};

impl SessionMachine {
    /// Before refs go where another process can see them: the daemon hears of each (REF-1).
    pub(super) fn mention_all(
        &mut self,
        now: Instant,
        objects: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        for object in objects {
            self.mention(now, *object, effects);
        }
    }

    pub(super) fn mention(&mut self, now: Instant, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        match entry.knowledge {
            Knowledge::Shared | Knowledge::Unreported => return,
            Knowledge::Sealed => {
                entry.knowledge = Knowledge::Shared;
                return;
            }
            Knowledge::Private => {}
        }
        if let Some(actor) = self.actor_of_handle(object) {
            return self.create_now(now, actor, effects);
        }
        let entry = self.objects.get_mut(&object).expect("it was just there");
        entry.knowledge = Knowledge::Shared;
        entry.tokens += 1;
        let state = match &entry.state {
            State::Pending { .. } => {
                self.shared_pending(object.task.seq);
                SharedState::Pending { lineage: self.lineage(now, object, effects) }
            }
            State::Ready(value) => {
                let (value, contains) = (value.clone(), entry.contains.to_vec());
                self.mention_all(now, &contains, effects);
                SharedState::Value { value, contains }
            }
        };
        self.notice(now, Notice::Shared { object, state }, effects);
    }

    /// What is borrowed and still referenced is told to the daemon.
    pub(super) fn report_borrowed(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for object in std::mem::take(&mut self.unreported) {
            self.report(now, object, effects);
        }
    }

    pub(super) fn report(&mut self, now: Instant, object: ObjectId, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.objects.get_mut(&object)
            && entry.knowledge == Knowledge::Unreported
        {
            entry.knowledge = Knowledge::Shared;
            entry.tokens += 1;
            self.notice(now, Notice::Hold { object, process: self.me }, effects);
        }
    }

    /// A caller of this worker is dead. What its calls name that go on here is held from now on, and so is what was found in that: the daemon
    /// keeps what the dead one held until it hears so (REF-2).
    pub fn takes_over(
        &mut self,
        now: Instant,
        caller: ProcessId,
        named: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        self.count_all(named);
        self.report_borrowed(now, effects);
        self.flush(effects);
        effects.push(Effect::Node(ToNode::TookOver { caller }));
    }

    /// A ref leaves in bytes whose readers nobody can count: the daemon knows the object, and that it is held
    /// here, for as long as that is so.
    pub fn escape(&mut self, now: Instant, object: ObjectId, effects: &mut Vec<Effect>) {
        self.mention(now, object, effects);
        self.report(now, object, effects);
        self.flush(effects);
    }
}
