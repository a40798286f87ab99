use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{Receiver, channel};

use hoplo_wire::control::Table;
use proptest::prelude::*;

use super::*;
use crate::disk::log::tests::Folder;

const PATIENCE: Duration = Duration::from_secs(20);

struct Tier {
    thread: ColdThread,
    reports: Receiver<ColdReport>,
}

fn options(folder: &Folder) -> ColdOptions {
    ColdOptions {
        path: folder.0.join("cold.redb"),
        cluster: ClusterId(7),
        shard: ShardId(1),
        retention: Retention { age: None, bytes: None },
        cache_bytes: 1 << 20,
    }
}

impl Tier {
    fn start(options: ColdOptions) -> Result<Self, ColdError> {
        let (sender, reports) = channel();
        let thread = ColdThread::start(options, move |report| {
            let _ = sender.send(report);
        })?;
        Ok(Self { thread, reports })
    }

    fn next(&self) -> ColdReport {
        self.reports.recv_timeout(PATIENCE).unwrap()
    }

    fn write(&self, flush: Flush) {
        self.thread.write(1, flush);
        let report = self.next();
        assert!(matches!(report, ColdReport::Written { flush: 1 }), "{report:?}");
    }

    fn get(&self, key: Key) -> Option<Row> {
        self.thread.get(2, key);
        match self.next() {
            ColdReport::Row { ticket: 2, row } => row,
            report => panic!("{report:?}"),
        }
    }

    fn page(&self, range: Range) -> Page {
        self.thread.scan(3, range);
        match self.next() {
            ColdReport::Page { ticket: 3, page } => page,
            report => panic!("{report:?}"),
        }
    }
}

fn key(number: u8) -> Key {
    Key { table: Table::Task, bytes: vec![number] }
}

fn row(index: u64) -> Row {
    Row { value: vec![index as u8; 100], version: 3, index, finished: true }
}

fn puts(numbers: impl IntoIterator<Item = u8>, index: u64) -> Flush {
    let puts = numbers.into_iter().map(|number| (key(number), row(index))).collect();
    Flush { puts, ..Flush::default() }
}

fn everything() -> Range {
    Range { from: None, until: None, limit: 1000, bytes: 1 << 30 }
}

#[test]
fn a_file_is_made_by_the_first_flush_and_has_it_after_a_restart() {
    let folder = Folder::new();
    let tier = Tier::start(options(&folder)).unwrap();
    assert_eq!(tier.get(key(1)), None);
    assert_eq!(tier.page(everything()), (vec![], None));
    assert!(!options(&folder).path.exists());
    tier.write(puts(0..10, 5));
    drop(tier);
    let tier = Tier::start(options(&folder)).unwrap();
    assert_eq!(tier.get(key(3)), Some(row(5)));
    assert_eq!(tier.get(key(10)), None);
    assert_eq!(tier.thread.usage().rows, 10);
}

#[test]
fn pages_end_where_they_should_and_say_where_the_next_begins() {
    let folder = Folder::new();
    let tier = Tier::start(options(&folder)).unwrap();
    tier.write(puts(0..10, 5));
    let (rows, next) = tier.page(Range { limit: 4, ..everything() });
    assert_eq!((rows.len(), next.clone()), (4, Some(key(4))));
    let (rows, next) = tier.page(Range { from: next, bytes: 200, ..everything() });
    assert_eq!((rows[0].0.clone(), rows.len(), next), (key(4), 2, Some(key(6))));
    let (rows, next) = tier.page(Range { from: Some(key(8)), until: Some(key(9)), ..everything() });
    assert_eq!((rows, next), (vec![(key(8), row(5))], None));
}

#[test]
fn what_is_too_much_goes_oldest_first_and_a_row_that_was_written_again_stays() {
    let folder = Folder::new();
    let mut few = options(&folder);
    few.retention.bytes = Some(1000);
    let tier = Tier::start(few).unwrap();
    tier.write(puts(0..3, 1));
    tier.write(puts(3..6, 2));
    tier.write(puts([0], 3));
    tier.write(puts(6..9, 4));
    let (rows, _) = tier.page(everything());
    let kept: Vec<u8> = rows.iter().map(|(key, _)| key.bytes[0]).collect();
    assert_eq!(kept, [0, 3, 4, 5, 6, 7, 8]);
    assert!(tier.thread.usage().bytes <= 1000);
}

#[test]
fn what_is_too_old_goes_with_the_next_flush() {
    let folder = Folder::new();
    let mut young = options(&folder);
    young.retention.age = Some(Duration::ZERO);
    let tier = Tier::start(young).unwrap();
    tier.write(puts(0..3, 1));
    tier.write(puts(3..6, 2));
    let (rows, _) = tier.page(everything());
    assert!(rows.iter().all(|(_, row)| row.index == 2), "{rows:?}");
}

#[test]
fn a_file_of_another_cluster_is_refused_by_name() {
    let folder = Folder::new();
    Tier::start(options(&folder)).unwrap().write(puts([1], 1));
    let mut other = options(&folder);
    other.cluster = ClusterId(8);
    let error = Tier::start(other).err().unwrap();
    assert!(matches!(error, ColdError::Foreign { found: 7, ours: 8, .. }), "{error}");
}

#[test]
fn a_file_that_is_none_is_refused_and_named() {
    let folder = Folder::new();
    fs::write(options(&folder).path, vec![7; 10_000]).unwrap();
    let error = Tier::start(options(&folder)).err().unwrap();
    assert!(error.is_damage() && error.to_string().contains("cold.redb"), "{error}");
}

#[test]
fn a_tier_whose_folder_is_gone_fails_and_works_again_when_it_is_back() {
    let folder = Folder::new();
    let mut away = options(&folder);
    away.path = folder.0.join("away").join("cold.redb");
    let tier = Tier::start(away).unwrap();
    tier.thread.write(1, puts([1], 1));
    assert!(matches!(
        tier.next(),
        ColdReport::NotWritten { flush: 1, error: ColdError::Io { .. } }
    ));
    fs::create_dir(folder.0.join("away")).unwrap();
    tier.write(puts([1], 1));
    assert_eq!(tier.get(key(1)), Some(row(1)));
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(u8, u64)>, Vec<u8>, Vec<(Option<u8>, Option<u8>)>),
    Get(u8),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (
        proptest::collection::vec((0u8..20, 0u64..9), 0..8),
        proptest::collection::vec(0u8..20, 0..3),
        proptest::collection::vec((any::<Option<u8>>(), any::<Option<u8>>()), 0..2),
    );
    let step = prop_oneof![
        5 => write.prop_map(|(puts, deletes, clear)| Step::Write(puts, deletes, clear)),
        5 => (0u8..20).prop_map(Step::Get),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(crate::disk::cases(32))]

    /// COLD-1, against a map.
    #[test]
    fn it_is_a_map(steps in steps()) {
        let folder = Folder::new();
        let mut tier = Tier::start(options(&folder)).unwrap();
        let mut model: BTreeMap<Key, Row> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Write(puts, deletes, clear) => {
                    let clear: Vec<_> = clear
                        .into_iter()
                        .map(|(from, until)| (from.map(|n| key(n % 20)), until.map(|n| key(n % 20))))
                        .filter(|(from, until)| from <= until || until.is_none())
                        .collect();
                    for (from, until) in &clear {
                        model.retain(|key, _| {
                            from.as_ref().is_some_and(|from| key < from)
                                || until.as_ref().is_some_and(|until| key >= until)
                        });
                    }
                    let puts: Vec<_> = puts.into_iter().map(|(n, i)| (key(n), row(i))).collect();
                    model.extend(puts.iter().cloned());
                    let deletes: Vec<_> = deletes.into_iter().map(key).collect();
                    deletes.iter().for_each(|key| drop(model.remove(key)));
                    tier.write(Flush { clear, puts, deletes });
                }
                Step::Get(number) => {
                    prop_assert_eq!(tier.get(key(number)), model.get(&key(number)).cloned());
                }
                Step::Restart => {
                    drop(tier);
                    tier = Tier::start(options(&folder)).unwrap();
                }
            }
            prop_assert_eq!(tier.thread.usage().rows, model.len() as u64);
        }
        let (rows, next) = tier.page(everything());
        prop_assert_eq!((rows, next), (model.into_iter().collect(), None));
    }

    /// COLD-2: an error, or the rows that were written.
    #[test]
    fn a_damaged_file_gives_an_error_or_what_was_written(at in 0.0..1.0f64, bit in 0u8..8) {
        let folder = Folder::new();
        let tier = Tier::start(options(&folder)).unwrap();
        tier.write(puts(0..20, 1));
        tier.write(puts(20..40, 2));
        drop(tier);
        let path = options(&folder).path;
        let mut bytes = fs::read(&path).unwrap();
        let at = (at * bytes.len() as f64) as usize;
        bytes[at] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        let Ok(tier) = Tier::start(options(&folder)) else { return Ok(()) };
        for number in 0..40 {
            tier.thread.get(2, key(number));
            match tier.next() {
                ColdReport::Row { row: Some(found), .. } => {
                    prop_assert_eq!(found, row(if number < 20 { 1 } else { 2 }));
                }
                ColdReport::Row { row: None, .. } | ColdReport::Unread { .. } => {}
                report => panic!("{report:?}"),
            }
        }
    }
}
