//! Who waits for what was lost, and is made again, hears of it.
//!
//! ```text
//!   home: lost --Delayed--> each node that waits --Delayed--> each process there that waits for it
//!                                                                 |
//!          a task that waits for it as an argument, and has not begun: its call goes back to its caller,
//!          which waits for a word (`WantWord`) and holds nothing meanwhile
//! ```
//! Otherwise such a task would keep its worker, with the GPUs and custom resources that it was granted, which the task that makes the
//! argument again may need. Who begins to wait while it is made hears it at once. Who waits for a word only hears it, too: its process asks once, and a task there
//! may come to need the bytes later.
//!
//! What the caller's node knew of the object, if that is not its home, is as old as the loss: a word of that would send the task back at once.
//! So the caller says `Misplaced` first.

use hoplo_base::{ObjectId, ProcessId};
use hoplo_wire::node::ToClient;

use super::ObjectDirectory;
use super::event::Effect;
use super::record::{Record, State};

impl ObjectDirectory {
    /// It is made again: all who wait for it hear so.
    pub(super) fn tell_delayed(&self, object: ObjectId, effects: &mut Vec<Effect>) {
        let record = &self.records[&object];
        let waiting = record.waiting.keys().copied().filter(|process| *process != self.haul);
        effects.extend(waiting.map(|to| delayed(to, object)));
        effects.extend(record.far_waiting().map(|node| Effect::TellDelayed { node, object }));
    }

    /// The process begins to wait for it.
    pub(super) fn tell_if_delayed(
        &self,
        to: ProcessId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let waits = |record: &Record| record.remade && record.waiting.contains_key(&to);
        if self.records.get(&object).is_some_and(waits) {
            effects.push(delayed(to, object));
        }
    }

    /// Its home said so.
    pub(super) fn on_delayed(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get_mut(&object) else { return };
        if matches!(record.state, State::Foreign { asked: true, .. }) {
            record.remade = true;
            self.tell_delayed(object, effects);
        }
    }

    /// A worker did not find their bytes where a process of this node was told they are.
    pub(super) fn on_misplaced(&mut self, objects: &[ObjectId]) {
        for object in
            objects.iter().filter(|object| !self.is_at_home(**object)).copied().collect::<Vec<_>>()
        {
            let Some(record) = self.records.get_mut(&object) else { continue };
            if matches!(record.state, State::Elsewhere { pulling: false, .. }) {
                record.abroad = None;
                record.state = State::Foreign { asked: false, again: false };
                self.touch(object);
            }
        }
    }
}

fn delayed(to: ProcessId, object: ObjectId) -> Effect {
    Effect::Send { to, message: ToClient::Delayed { objects: vec![object] } }
}
