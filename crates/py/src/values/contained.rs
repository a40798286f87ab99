//! Which refs were pickled inside a value: each one's `__reduce__` notes itself here.

use std::cell::RefCell;

use hoplo_base::ObjectId;

thread_local! {
    /// The value that this thread encodes now; `None` when nobody collects.
    static COLLECTED: RefCell<Option<Vec<ObjectId>>> = const { RefCell::new(None) };
}

/// Runs `encode` and appends the refs that it pickled to `contains`, each once. May be nested: a
/// `__reduce__` of the user's may call `put`.
pub(crate) fn collect_contained<R>(contains: &mut Vec<ObjectId>, encode: impl FnOnce() -> R) -> R {
    struct Restore(Option<Vec<ObjectId>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            COLLECTED.set(self.0.take());
        }
    }
    let outer = Restore(COLLECTED.replace(Some(Vec::new())));
    let result = encode();
    let mut found = COLLECTED.take().unwrap_or_default();
    drop(outer);
    // A second route of pickling notes everything again.
    found.sort_unstable();
    found.dedup();
    contains.append(&mut found);
    result
}

/// False when no value is being encoded in this thread: the ref is pickled by foreign code.
pub(crate) fn note_contained(object: ObjectId) -> bool {
    COLLECTED.with_borrow_mut(|collected| match collected {
        Some(collected) => {
            collected.push(object);
            true
        }
        None => false,
    })
}
