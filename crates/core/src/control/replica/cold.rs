//! What is on its way to the cold tier, and what is read from there.
//!
//! ```text
//!  archived --> next --flush--> writing --ColdWritten--> (only in the cold tier)
//!                                  \-----ColdFailed----> the same flush again, a little later
//! ```
//! The cold tier works in order, and so do its answers: what was not reported as written when an answer comes
//! lies over it. So the two together are the archive as of now, however old the read is.
//!
//! # Invariants
//! - COLD-1: at most one flush is under way.
//! - COLD-2: `bytes` counts what waits and what is being written.

use std::collections::BTreeMap;

use hoplo_base::Instant;
use hoplo_base::limits::{CONTROL_COLD_FLUSH_AFTER, CONTROL_COLD_FLUSH_BYTES, CONTROL_COLD_RETRY};
use hoplo_wire::control::{Key, Row};

use super::Effect;
use crate::control::tables::row_bytes;

type Range = (Option<Key>, Option<Key>);

#[derive(Clone, Debug, Default)]
struct Batch {
    clear: Vec<Range>,
    /// Absent: it goes.
    changes: BTreeMap<Key, Option<Row>>,
    bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Cold {
    /// Something may be in it; until then nobody has to look.
    pub used: bool,
    next: Batch,
    /// When the oldest of `next` came.
    since: Option<Instant>,
    writing: Option<(u64, Batch)>,
    flushes: u64,
    written: u64,
    pub failed: Option<String>,
    retry_at: Option<Instant>,
}

/// What lies over the cold tier for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above<'a> {
    Row(&'a Row),
    Gone,
    /// Ask the cold tier.
    Nothing,
}

fn within(range: &Range, key: &Key) -> bool {
    range.0.as_ref().is_none_or(|from| from <= key)
        && range.1.as_ref().is_none_or(|until| key < until)
}

fn change_bytes(key: &Key, row: Option<&Row>) -> u64 {
    row_bytes(key, row.map_or(0, |row| row.value.len()), false)
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.clear.is_empty() && self.changes.is_empty()
    }

    fn set(&mut self, key: Key, row: Option<Row>) {
        self.bytes += change_bytes(&key, row.as_ref());
        if let Some(before) = self.changes.get(&key) {
            self.bytes -= change_bytes(&key, before.as_ref());
        }
        self.changes.insert(key, row);
    }

    fn above(&self, key: &Key) -> Above<'_> {
        match self.changes.get(key) {
            Some(Some(row)) => Above::Row(row),
            Some(None) => Above::Gone,
            None if self.clear.iter().any(|range| within(range, key)) => Above::Gone,
            None => Above::Nothing,
        }
    }
}

impl Cold {
    pub fn put(&mut self, now: Instant, key: Key, row: Row) {
        self.used = true;
        self.since.get_or_insert(now);
        self.next.set(key, Some(row));
    }

    pub fn delete(&mut self, now: Instant, key: &Key) {
        if self.used {
            self.since.get_or_insert(now);
            self.next.set(key.clone(), None);
        }
    }

    /// Everything between the keys goes.
    pub fn clear(&mut self, now: Instant, from: Option<&Key>, until: Option<&Key>) {
        if !self.used {
            return;
        }
        self.since.get_or_insert(now);
        let range = (from.cloned(), until.cloned());
        self.next.changes.retain(|key, _| !within(&range, key));
        let bytes = |(key, row): (&Key, &Option<Row>)| change_bytes(key, row.as_ref());
        self.next.bytes = self.next.changes.iter().map(bytes).sum();
        self.next.clear.push(range);
    }

    pub fn above(&self, key: &Key) -> Above<'_> {
        match (self.next.above(key), &self.writing) {
            (Above::Nothing, Some((_, batch))) => batch.above(key),
            (above, _) => above,
        }
    }

    /// A page of the archive: the cold tier's rows of `from..until`, and what lies over them.
    pub fn overlaid(
        &self,
        from: Option<&Key>,
        until: Option<&Key>,
        rows: Vec<(Key, Row)>,
    ) -> BTreeMap<Key, Row> {
        let range = (from.cloned(), until.cloned());
        let mut page: BTreeMap<Key, Row> = rows
            .into_iter()
            .filter(|(key, _)| within(&range, key) && self.above(key) == Above::Nothing)
            .collect();
        let batches = self.writing.iter().map(|(_, batch)| batch).chain([&self.next]);
        for key in batches.flat_map(|batch| batch.changes.keys()) {
            if within(&range, key)
                && let Above::Row(row) = self.above(key)
            {
                page.insert(key.clone(), row.clone());
            }
        }
        page
    }

    /// Asks for a flush if one is due; `hurry`: somebody waits for it.
    pub fn flush(&mut self, now: Instant, hurry: bool, effects: &mut Vec<Effect>) {
        if let Some((flush, batch)) = &self.writing {
            if self.retry_at.is_some_and(|at| at <= now) {
                self.retry_at = None;
                effects.push(write(*flush, batch));
            }
            return;
        }
        let old = self.since.is_some_and(|since| since + CONTROL_COLD_FLUSH_AFTER <= now);
        let due = hurry || old || self.next.bytes >= CONTROL_COLD_FLUSH_BYTES;
        if due && !self.next.is_empty() {
            let batch = std::mem::take(&mut self.next);
            self.since = None;
            self.flushes += 1;
            effects.push(write(self.flushes, &batch));
            self.writing = Some((self.flushes, batch));
        }
    }

    pub fn on_written(&mut self, flush: u64) {
        if self.writing.as_ref().is_some_and(|(writing, _)| *writing == flush) {
            self.writing = None;
            self.written = flush;
            self.failed = None;
            self.retry_at = None;
        }
    }

    /// Whether it was the flush that failed.
    pub fn on_failed(&mut self, now: Instant, flush: u64, why: &str) -> bool {
        let ours = self.writing.as_ref().is_some_and(|(writing, _)| *writing == flush);
        if ours {
            self.failed = Some(why.to_string());
            self.retry_at = Some(now + CONTROL_COLD_RETRY);
        }
        ours
    }

    /// All that was to be written until now is in flushes up to this one.
    pub fn mark(&self) -> u64 {
        self.flushes + u64::from(!self.next.is_empty())
    }

    pub fn is_written(&self, mark: u64) -> bool {
        self.written >= mark
    }

    pub fn bytes(&self) -> u64 {
        self.next.bytes + self.writing.as_ref().map_or(0, |(_, batch)| batch.bytes)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        match self.writing {
            Some(_) => self.retry_at,
            None => self.since.map(|since| since + CONTROL_COLD_FLUSH_AFTER),
        }
    }

    pub fn check(&self) {
        for batch in self.writing.iter().map(|(_, batch)| batch).chain([&self.next]) {
            let bytes = |(key, row): (&Key, &Option<Row>)| change_bytes(key, row.as_ref());
            assert_eq!(batch.bytes, batch.changes.iter().map(bytes).sum::<u64>(), "COLD-2");
        }
        assert!(self.writing.is_some() || self.written == self.flushes, "COLD-1");
    }
}

fn write(flush: u64, batch: &Batch) -> Effect {
    let put = |(key, row): (&Key, &Option<Row>)| Some((key.clone(), row.clone()?));
    let deleted = |(key, row): (&Key, &Option<Row>)| row.is_none().then(|| key.clone());
    Effect::ColdWrite {
        flush,
        clear: batch.clear.clone(),
        puts: batch.changes.iter().filter_map(put).collect(),
        deletes: batch.changes.iter().filter_map(deleted).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoplo_wire::control::Table;

    fn key(name: &str) -> Key {
        Key { table: Table::Task, bytes: name.as_bytes().to_vec() }
    }

    fn row(value: u8) -> Row {
        Row { value: vec![value], version: 1, index: 1, finished: true }
    }

    fn now() -> Instant {
        Instant(1_000_000_000)
    }

    #[test]
    fn a_flush_that_fails_is_asked_for_again_and_its_rows_stay_readable() {
        let mut cold = Cold::default();
        let mut effects = Vec::new();
        cold.put(now(), key("a"), row(1));
        cold.flush(now(), true, &mut effects);
        assert!(cold.on_failed(now(), 1, "full"));
        assert_eq!(cold.above(&key("a")), Above::Row(&row(1)));
        effects.clear();
        cold.flush(now(), true, &mut effects);
        assert_eq!(effects, [], "not at once");
        cold.flush(now() + CONTROL_COLD_RETRY, false, &mut effects);
        assert_eq!(effects.len(), 1);
        cold.on_written(1);
        assert_eq!((cold.above(&key("a")), cold.bytes(), &cold.failed), (Above::Nothing, 0, &None));
        cold.check();
    }

    #[test]
    fn what_is_not_written_yet_lies_over_what_was_read() {
        let mut cold = Cold::default();
        let mut effects = Vec::new();
        for name in ["a", "b"] {
            cold.put(now(), key(name), row(1));
        }
        cold.flush(now(), true, &mut effects);
        cold.delete(now(), &key("a"));
        cold.put(now(), key("c"), row(3));
        let read = vec![(key("a"), row(9)), (key("aa"), row(8))];
        let page = cold.overlaid(None, Some(&key("c")), read);
        let found: Vec<(Key, u8)> = page.into_iter().map(|(k, row)| (k, row.value[0])).collect();
        assert_eq!(found, [(key("aa"), 8), (key("b"), 1)]);
        cold.check();
    }

    #[test]
    fn a_range_that_is_emptied_hides_what_was_there_and_not_what_comes() {
        let mut cold = Cold::default();
        cold.put(now(), key("a"), row(1));
        cold.clear(now(), None, Some(&key("m")));
        cold.put(now(), key("b"), row(2));
        assert_eq!(cold.above(&key("a")), Above::Gone);
        assert_eq!(cold.above(&key("b")), Above::Row(&row(2)));
        assert_eq!(cold.above(&key("x")), Above::Nothing);
        cold.check();
    }
}
