//! What is read is the value of the object that was asked for, as long as it is read.

use hoplo_base::{ObjectId, ProcessId, TaskId};

use super::Books;

impl Books {
    /// A name for what lies in an inline put, whose id is not known yet.
    pub fn token(&mut self, process: ProcessId) -> ObjectId {
        self.tokens += 1;
        TaskId { owner: process, seq: u64::MAX - self.tokens }.object(0)
    }

    pub fn put(&mut self, object: ObjectId, token: ObjectId) {
        self.puts.insert(object, token);
    }

    pub fn is_value_of(&self, object: ObjectId, token: ObjectId) {
        let expected = self.puts.get(&object).copied().unwrap_or(object);
        assert!(token == expected, "{object} was read and {token} lies there");
    }
}
