//! What is read is the value of the object that was asked for, as long as it is read.

use hoplo_base::{ObjectId, ProcessId, TaskId};
use hoplo_wire::call::CallView;
use hoplo_wire::node::Lineage;
use hoplo_wire::object::ValueView;

use super::Books;
use crate::memory::decode_content;

impl Books {
    /// A name for what lies in an inline put, whose id is not known yet.
    pub fn token(&mut self, process: ProcessId) -> ObjectId {
        self.tokens += 1;
        TaskId { owner: process, seq: u64::MAX - self.tokens }.object(0)
    }

    pub fn put(&mut self, object: ObjectId, token: ObjectId) {
        self.puts.insert(object, token);
    }

    /// What lies in it.
    pub fn value_of(&self, object: ObjectId) -> ObjectId {
        self.puts.get(&object).copied().unwrap_or(object)
    }

    pub fn is_value_of(&self, object: ObjectId, token: ObjectId) {
        let expected = self.value_of(object);
        let adopted = self.adopted_values.contains(&(object.task.owner, token));
        assert!(token == expected || adopted, "{object} was read and {token} lies there");
    }

    pub fn adopts(&mut self, heir: ProcessId, lineage: &Lineage, objects: &[ObjectId]) {
        let refs = objects.iter().chain(&lineage.contains);
        self.adopted_refs.extend(refs.map(|object| (heir, *object)));
        let call = CallView::parse(&lineage.frame).expect("callers here write well");
        for (_, value) in call.refs().expect("callers here write well") {
            if let ValueView::Inline(bytes) = value {
                self.adopted_values.insert((heir, decode_content(bytes).0));
            }
        }
    }
}
