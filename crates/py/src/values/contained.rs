//! Refs that lie inside a value on its way out of this process, and what keeps their objects meanwhile.
//!
//! ```text
//!   encoded --(ids, Kept)--> registered: put, submitted, replied or exported --> counted by whoever
//!                                                                                contains the value
//! ```
//!
//! In between, the program's own refs of these objects may go:
//! - A `__getstate__` or `__reduce__` of the user's makes a ref. The pickler drops it with the state.
//! - Another thread, or the pickling of the next argument, takes a ref out of a list that was
//!   encoded already.
//!
//! CON-1: So whoever notes a ref holds that ref, and drops it once the value is registered. It holds the
//! Python object, which the session has counted already: noting takes no lock. Handles of actors are
//! noted in the same way.
//!
//! A plain value's refs are noted by its writer. In a pickle each ref's `__reduce__` notes itself here.

use std::cell::RefCell;

use hoplo_base::ObjectId;
use pyo3::prelude::*;

thread_local! {
    /// The value that this thread pickles now; `None` when nobody collects.
    static COLLECTED: RefCell<Option<Vec<Noted>>> = const { RefCell::new(None) };
}

thread_local! {
    /// Refs that this thread reads out of values now; `None` when nobody collects.
    static READ: RefCell<Option<Vec<ObjectId>>> = const { RefCell::new(None) };
}

/// Runs `read`, and tells the refs and handles that came out of what it read.
pub(crate) fn collect_read<R>(read: impl FnOnce() -> R) -> (R, Vec<ObjectId>) {
    READ.set(Some(Vec::new()));
    let result = read();
    (result, READ.take().unwrap_or_default())
}

/// A ref or handle came out of a value.
pub(crate) fn note_read(object: ObjectId) {
    READ.with_borrow_mut(|read| {
        if let Some(read) = read {
            read.push(object);
        }
    });
}

/// A ref or handle, and what it stands for.
type Noted = (ObjectId, Py<PyAny>);

/// The refs inside one value, or inside all arguments of a call.
#[derive(Default)]
pub(crate) struct Contained {
    ids: Vec<ObjectId>,
    /// As many, in the same order.
    kept: Kept,
}

/// Keeps the objects of the refs that were noted; dropped once the value is registered (CON-1).
#[derive(Default)]
pub(crate) struct Kept(Vec<Py<PyAny>>);

impl Contained {
    pub(super) fn add(&mut self, object: ObjectId, reference: Py<PyAny>) {
        self.ids.push(object);
        self.kept.0.push(reference);
    }

    /// Runs `pickle` and adds the refs that it pickled, each once. May be nested: a `__reduce__` of the
    /// user's may call `put`.
    pub(crate) fn collect<R>(&mut self, pickle: impl FnOnce() -> R) -> R {
        struct Restore(Option<Vec<Noted>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                COLLECTED.set(self.0.take());
            }
        }
        let outer = Restore(COLLECTED.replace(Some(Vec::new())));
        let result = pickle();
        let mut found = COLLECTED.take().unwrap_or_default();
        drop(outer);
        found.sort_unstable_by_key(|(object, _)| *object);
        found.dedup_by_key(|(object, _)| *object);
        for (object, reference) in found {
            self.add(object, reference);
        }
        result
    }

    pub(crate) fn ids(&self) -> &[ObjectId] {
        &self.ids
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Those from `len` on lie in no value after all.
    pub(super) fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.kept.0.truncate(len);
    }

    /// Takes those from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Contained {
        Contained { ids: self.ids.split_off(at), kept: Kept(self.kept.0.split_off(at)) }
    }

    /// The second is to live until the first are counted by another.
    pub(crate) fn into_parts(self) -> (Vec<ObjectId>, Kept) {
        (self.ids, self.kept)
    }
}

impl Kept {
    pub(crate) fn append(&mut self, mut other: Kept) {
        self.0.append(&mut other.0);
    }
}

/// False when no value is being pickled in this thread: the ref is pickled by foreign code.
pub(crate) fn note_contained(object: ObjectId, reference: &Bound<'_, PyAny>) -> bool {
    COLLECTED.with_borrow_mut(|collected| match collected {
        Some(collected) => {
            collected.push((object, reference.clone().unbind()));
            true
        }
        None => false,
    })
}
