//! A backup: all rows of all tables as they were after one entry of each shard, read page by page while rows change.
//!
//! ```text
//!   begin --> Scan --first page: the changes after it are Watched--> Scan --> ... --last page--> changes up to the cut --> Done
//!     ^                                                                                               |
//!     +------------------------------- Missed: Again, from the beginning -----------------------------+
//! ```
//! Pages are of different moments. What makes them one moment is that every change since the first page is told as well: the **cut** of a
//! shard is the newest entry that any page, or any change that came before the last page, is of. When all changes up to the cut are
//! there, a row is what its last change made of it, or, if nothing changed it, what its page said. So nobody is stopped, and the store
//! keeps nothing for it but its latest entries, which it keeps anyway. If it does not keep them for long enough, all begins again.
//!
//! Archived rows are history: they are read like others, but one that goes meanwhile (by retention, or deleted) is told to nobody, and may still
//! be in the backup.
//!
//! # Invariants
//! - BACKUP-1: pages with the changes in place of what they change are the rows of each shard right after its cut.
//! - BACKUP-2: the changes in memory are bounded.

use std::collections::BTreeMap;

use hoplo_wire::control::{Change, Key, Row, Table};

/// What its shell reads and hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Answers `Scan`; `indexes`: by shard, the entry that it is of.
    Page { rows: Vec<(Vec<u8>, Row)>, next: Option<Vec<u8>>, indexes: Vec<u64> },
    /// All changes of this table in this shard, up to entry `upto`, were told.
    Changes { table: Table, shard: usize, changes: Vec<Change>, upto: u64 },
    /// The store does not remember all changes any more.
    Missed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The next page, with archived rows.
    Scan { table: Table, from: Option<Vec<u8>> },
    /// The changes of every table from here on, by shard.
    Watch { after: Vec<u64> },
    /// To be kept; all of them come in order of their keys.
    Keep { rows: Vec<(Key, Row)> },
    /// What was kept is void: it begins again, with another `Backup`.
    Again,
    /// Everything is there.
    Done(Overlay),
}

/// What is to be put in place of what was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// By key; absent: there is no such row.
    pub changes: BTreeMap<Key, Option<Row>>,
    /// By shard: the entry that the rows are of.
    pub cut: Vec<u64>,
}

/// More rows change meanwhile than can be kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFast;

#[derive(Debug)]
pub struct Backup {
    /// What is scanned now; absent once all are.
    table: Option<Table>,
    /// What the subscriptions were told, by table and shard; empty before the first page.
    told: BTreeMap<(Table, usize), u64>,
    overlay: Overlay,
    bytes: usize,
    bytes_max: usize,
    /// It has said `Done` or `Again`: what comes later is of no use to it.
    is_done: bool,
}

impl Backup {
    pub fn begin(bytes_max: usize, effects: &mut Vec<Effect>) -> Self {
        let table = Table::ALL[0];
        effects.push(Effect::Scan { table, from: None });
        let (told, overlay) = (BTreeMap::new(), Overlay::default());
        Self { table: Some(table), told, overlay, bytes: 0, bytes_max, is_done: false }
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) -> Result<(), TooFast> {
        if self.is_done {
            return Ok(());
        }
        match event {
            Event::Page { rows, next, indexes } => self.on_page(rows, next, indexes, effects),
            Event::Changes { table, shard, changes, upto } => {
                changes.into_iter().try_for_each(|change| self.on_change(shard, change))?;
                let told = self.told.entry((table, shard)).or_default();
                *told = upto.max(*told);
            }
            Event::Missed => {
                self.is_done = true;
                effects.push(Effect::Again);
                return Ok(());
            }
        }
        let reached =
            |(&(_, shard), told): (&(Table, usize), &u64)| *told >= self.overlay.cut[shard];
        if self.table.is_none() && self.told.iter().all(reached) {
            self.is_done = true;
            effects.push(Effect::Done(std::mem::take(&mut self.overlay)));
        }
        Ok(())
    }

    fn on_page(
        &mut self,
        rows: Vec<(Vec<u8>, Row)>,
        next: Option<Vec<u8>>,
        indexes: Vec<u64>,
        effects: &mut Vec<Effect>,
    ) {
        let table = self.table.expect("a page was asked for");
        if self.told.is_empty() {
            let shards = || indexes.iter().copied().enumerate();
            let told = |table| shards().map(move |(shard, index)| ((table, shard), index));
            self.told = Table::ALL.into_iter().flat_map(told).collect();
            self.overlay.cut.clone_from(&indexes);
            effects.push(Effect::Watch { after: indexes.clone() });
        }
        for (cut, index) in self.overlay.cut.iter_mut().zip(indexes) {
            *cut = index.max(*cut);
        }
        let rows = rows.into_iter().map(|(bytes, row)| (Key { table, bytes }, row)).collect();
        effects.push(Effect::Keep { rows });
        let later = Table::ALL.into_iter().find(|later| *later > table);
        self.table = if next.is_some() { Some(table) } else { later };
        effects.extend(self.table.map(|table| Effect::Scan { table, from: next }));
    }

    fn on_change(&mut self, shard: usize, change: Change) -> Result<(), TooFast> {
        let Change { index, key, row } = change;
        if self.table.is_some() {
            let cut = &mut self.overlay.cut[shard];
            *cut = index.max(*cut);
        } else if index > self.overlay.cut[shard] {
            return Ok(());
        }
        let len = key.bytes.len();
        let bytes_of = |row: &Option<Row>| {
            len + row.as_ref().map_or(0, |row| row.value.len()) + size_of::<(Key, Row)>()
        };
        self.bytes += bytes_of(&row);
        self.bytes -= self.overlay.changes.insert(key, row).as_ref().map_or(0, bytes_of);
        if self.bytes > self.bytes_max { Err(TooFast) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHARDS: usize = 2;
    type Rows = BTreeMap<Key, Row>;

    /// A store that is as simple as can be, and remembers everything.
    #[derive(Default)]
    struct Store {
        rows: [Rows; SHARDS],
        /// By shard; the entry's index is its place and 1.
        entries: [Vec<Change>; SHARDS],
    }

    impl Store {
        fn index(&self, shard: usize) -> u64 {
            self.entries[shard].len() as u64
        }

        fn write(&mut self, key: Key, value: Option<u8>) {
            let shard = usize::from(key.bytes[0]) % SHARDS;
            let index = self.index(shard) + 1;
            let row = value.map(|value| {
                let version = self.rows[shard].get(&key).map_or(0, |row| row.version) + 1;
                Row { value: vec![value], version, index, finished: false }
            });
            match &row {
                Some(row) => self.rows[shard].insert(key.clone(), row.clone()),
                None => self.rows[shard].remove(&key),
            };
            self.entries[shard].push(Change { index, key, row });
        }

        fn page(&self, table: Table, from: Option<&[u8]>, limit: usize) -> Event {
            let all: Rows =
                self.rows.iter().flatten().map(|(k, r)| (k.clone(), r.clone())).collect();
            let mut rows: Vec<_> = all
                .into_iter()
                .filter(|(key, _)| {
                    key.table == table && from.is_none_or(|from| &key.bytes[..] >= from)
                })
                .map(|(key, row)| (key.bytes, row))
                .collect();
            let next = rows.get(limit).map(|(key, _)| key.clone());
            rows.truncate(limit);
            Event::Page {
                rows,
                next,
                indexes: (0..SHARDS).map(|shard| self.index(shard)).collect(),
            }
        }

        /// As it was after these entries.
        fn at(&self, cut: &[u64]) -> Rows {
            let mut rows = Rows::new();
            for (entries, cut) in self.entries.iter().zip(cut) {
                for change in &entries[..*cut as usize] {
                    match &change.row {
                        Some(row) => rows.insert(change.key.clone(), row.clone()),
                        None => rows.remove(&change.key),
                    };
                }
            }
            rows
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(Key, Option<u8>),
        Page,
        /// Changes of one table in one shard, a few of them.
        Tell(Table, usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let table = prop::sample::select(vec![Table::Node, Table::Kv, Table::Token]);
        let key = (table.clone(), 0..6u8).prop_map(|(table, n)| Key { table, bytes: vec![n] });
        prop_oneof![
            4 => (key, any::<Option<u8>>()).prop_map(|(key, value)| Step::Write(key, value)),
            2 => Just(Step::Page),
            3 => (table, 0..SHARDS, 1..4usize).prop_map(|(t, s, n)| Step::Tell(t, s, n)),
        ]
    }

    /// Takes a backup of the store while those steps happen; what it has in the end.
    struct Shell {
        store: Store,
        backup: Backup,
        effects: Vec<Effect>,
        scan: Option<(Table, Option<Vec<u8>>)>,
        cursors: BTreeMap<(Table, usize), u64>,
        kept: Rows,
        done: Option<Overlay>,
    }

    impl Shell {
        fn begin(store: Store) -> Self {
            let mut effects = Vec::new();
            let backup = Backup::begin(usize::MAX, &mut effects);
            let (scan, cursors, kept, done) = (None, BTreeMap::new(), Rows::new(), None);
            let mut shell = Self { store, backup, effects, scan, cursors, kept, done };
            shell.carry_out();
            shell
        }

        fn hears(&mut self, event: Event) {
            // After it is done as well: what was on its way comes.
            self.backup.handle(event, &mut self.effects).unwrap();
            self.carry_out();
        }

        fn carry_out(&mut self) {
            for effect in std::mem::take(&mut self.effects) {
                match effect {
                    Effect::Scan { table, from } => self.scan = Some((table, from)),
                    Effect::Watch { after } => {
                        for (shard, after) in after.into_iter().enumerate() {
                            self.cursors.extend(Table::ALL.map(|table| ((table, shard), after)));
                        }
                    }
                    Effect::Keep { rows } => {
                        let last = self.kept.keys().last().cloned();
                        assert!(rows.iter().all(|(key, _)| Some(key) > last.as_ref()), "in order");
                        self.kept.extend(rows);
                    }
                    Effect::Done(overlay) => assert_eq!(self.done.replace(overlay), None),
                    Effect::Again => panic!("nothing is missed"),
                }
            }
        }

        fn page(&mut self) {
            if let Some((table, from)) = self.scan.take() {
                let page = self.store.page(table, from.as_deref(), 2);
                self.hears(page);
            }
        }

        fn tell(&mut self, table: Table, shard: usize, many: usize) {
            let Some(&after) = self.cursors.get(&(table, shard)) else { return };
            let entries = &self.store.entries[shard];
            let upto = entries.len().min(after as usize + many);
            let changes = entries[after as usize..upto].iter();
            let changes = changes.filter(|change| change.key.table == table).cloned().collect();
            let upto = upto as u64;
            self.cursors.insert((table, shard), upto);
            self.hears(Event::Changes { table, shard, changes, upto });
        }

        fn does(&mut self, step: Step) {
            match step {
                Step::Write(key, value) => self.store.write(key, value),
                Step::Page => self.page(),
                Step::Tell(table, shard, many) => self.tell(table, shard, many),
            }
        }

        /// Everything comes in the end.
        fn end(mut self) -> (Store, Rows, Overlay) {
            while self.scan.is_some() {
                self.page();
            }
            for (table, shard) in self.cursors.keys().copied().collect::<Vec<_>>() {
                self.tell(table, shard, usize::MAX >> 1);
            }
            let overlay = self.done.expect("all changes were told");
            for (key, row) in &overlay.changes {
                match row {
                    Some(row) => self.kept.insert(key.clone(), row.clone()),
                    None => self.kept.remove(key),
                };
            }
            (self.store, self.kept, overlay)
        }
    }

    proptest! {
        #[test]
        fn a_backup_is_the_rows_of_one_moment_whatever_is_written_meanwhile(
            before in prop::collection::vec(step(), 0..20),
            during in prop::collection::vec(step(), 0..200),
        ) {
            let mut store = Store::default();
            for step in before {
                if let Step::Write(key, value) = step {
                    store.write(key, value);
                }
            }
            let mut shell = Shell::begin(store);
            during.into_iter().for_each(|step| shell.does(step));
            let (store, rows, overlay) = shell.end();
            prop_assert_eq!(rows, store.at(&overlay.cut), "BACKUP-1");
        }
    }

    /// A, which is written first, was read before it was; B, which is written after it, was read after that.
    #[test]
    fn a_backup_had_the_later_one_of_two_rows_without_the_earlier_one() {
        let key = |n: u8| Key { table: Table::Kv, bytes: vec![n] };
        let mut store = Store::default();
        (0..5).for_each(|n| store.write(key(n), Some(0)));
        let mut shell = Shell::begin(store);
        while shell.scan != Some((Table::Kv, Some(vec![2]))) {
            shell.page();
        }
        for n in [0, 4] {
            shell.does(Step::Write(key(n), Some(1)));
        }
        let (_, rows, _) = shell.end();
        assert_eq!((&rows[&key(0)].value[..], &rows[&key(4)].value[..]), (&[1][..], &[1][..]));
    }

    #[test]
    fn a_store_that_forgot_changes_is_read_again_and_one_that_changes_too_fast_is_given_up() {
        let mut effects = Vec::new();
        let mut backup = Backup::begin(1000, &mut effects);
        let page = Event::Page { rows: vec![], next: None, indexes: vec![7] };
        backup.handle(page, &mut effects).unwrap();
        effects.clear();
        backup.handle(Event::Missed, &mut effects).unwrap();
        assert_eq!(effects, [Effect::Again]);
        let mut backup = Backup::begin(1000, &mut effects);
        let page = Event::Page { rows: vec![], next: None, indexes: vec![7] };
        backup.handle(page, &mut effects).unwrap();
        let change = |index: u64, n: u8| {
            let row = Row { value: vec![n; 600], version: 1, index, finished: false };
            let key = Key { table: Table::Kv, bytes: vec![n] };
            let changes = vec![Change { index, key, row: Some(row) }];
            Event::Changes { table: Table::Kv, shard: 0, changes, upto: index }
        };
        // What is replaced takes no memory any more.
        (8..20).for_each(|index| backup.handle(change(index, 1), &mut effects).unwrap());
        assert_eq!(backup.handle(change(20, 2), &mut effects), Err(TooFast), "BACKUP-2");
    }
}
