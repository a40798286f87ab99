//! What a node that leaves hands over of the objects that it is in charge of: they outlive it, as if it had nothing that others need.
//!
//! ```text
//!   this node drains; others use an object of its:
//!     its bytes are stored --AskCopy--> another node, the heir if it may --Copied--> it may leave
//!     a small value, or an error ----- last words, for the heir (`node/far/drain`) -> it may leave
//!     none yet ------------------------------------------------------------------- it stays until there is one
//!   it has left: its row is that of a dead node, and the heir goes on (`on_estate`)
//! ```
//! A copy that is asked for is primary (`on_copies`): one is wanted, and the one that is here does not count.

use std::collections::BTreeSet;

use hoplo_base::ObjectId;
use hoplo_wire::peer::Known;

use super::ObjectDirectory;
use super::event::Effect;
use super::record::{Copies, State};

impl ObjectDirectory {
    pub(super) fn leaves(&self) -> bool {
        self.draining.contains(&self.node)
    }

    /// What was to be on several nodes is to be on so many others.
    pub(super) fn begin_to_leave(&mut self, effects: &mut Vec<Effect>) {
        let several = self.records.iter().filter(|(_, record)| record.copies.is_some());
        for object in several.map(|(object, _)| *object).collect::<Vec<_>>() {
            self.make_copies(object, effects);
        }
    }

    pub(super) fn on_hands_over(&mut self, objects: Vec<ObjectId>, effects: &mut Vec<Effect>) {
        for object in objects {
            let at_home = self.is_at_home(object);
            let record = self.records.get_mut(&object).filter(|it| at_home && it.state.is_stored());
            let Some(record) = record else { continue };
            let one = || Box::new(Copies { wanted: 1, asked: BTreeSet::new() });
            record.copies.get_or_insert_with(one);
            record.secondary = false;
            self.make_copies(object, effects);
            self.touch(object);
        }
    }

    /// Of what is in its charge: a node that was asked for a copy has it.
    pub fn is_elsewhere(&self, object: ObjectId) -> bool {
        let record = self.records.get(&object).filter(|_| self.is_at_home(object));
        record.is_some_and(|record| record.copies().any(|node| record.is_asked(node)))
    }

    /// Of what is in its charge: what it can say of it to the heir.
    pub fn last_words(&self, object: ObjectId) -> Option<Known> {
        let record = self.records.get(&object).filter(|_| self.is_at_home(object))?;
        match &record.state {
            State::Inline(bytes) => {
                let (bytes, contains) = (bytes.clone(), record.contains.clone());
                Some(Known::Inline { bytes, contains })
            }
            State::Failed(failure) => Some(Known::Failed(failure.clone())),
            _ => None,
        }
    }
}
