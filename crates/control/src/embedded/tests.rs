//! The embedded store as a whole.

use std::collections::BTreeMap;

use super::*;
use crate::disk::log::tests::Folder;
use proptest::prelude::*;

fn options(folder: &Folder) -> EmbeddedOptions {
    let mut options = EmbeddedOptions::new(folder.0.clone());
    options.fsync = Fsync::Never;
    options
}

fn kv(name: &str) -> Key {
    Key { table: Table::Kv, bytes: name.as_bytes().to_vec() }
}

fn task(number: u64) -> Key {
    Key { table: Table::Task, bytes: number.to_be_bytes().to_vec() }
}

fn value(number: u64) -> Vec<u8> {
    use hoplo_base::{JobId, ProcessId, TaskId};
    use hoplo_core::control::{Entry, TaskEntry, TaskState};
    let owner = ProcessId(number);
    let (task, job, why) = (TaskId { owner, seq: number }, JobId(1), Some("x".repeat(200)));
    let (state, lineage) = (TaskState::Finished, None);
    TaskEntry { task, job, owner, attempt: 0, state, lineage, why }.to_value()
}

#[test]
fn it_conforms_and_remembers() {
    let folder = Folder::new();
    let mut store = Embedded::open(options(&folder)).unwrap();
    hoplo_core::control::store::conformance(&mut store);
    assert_eq!(store.put(kv("a"), b"kept".to_vec()), Ok(2));
    store.flush().unwrap();
    for _ in 0..3 {
        drop(store);
        store = Embedded::open(options(&folder)).unwrap();
        let row = store.get(&kv("a")).unwrap();
        assert_eq!((row.value, row.version), (b"kept".to_vec(), 2));
        assert_eq!(store.start.cut, None);
    }
    assert_eq!(store.cas(kv("a"), 2, vec![]), Ok(3));
    store.close().unwrap();
}

#[test]
fn a_row_larger_than_the_room_that_is_kept_free_was_refused_for_ever() {
    let folder = Folder::new();
    let mut few = options(&folder);
    few.memory_bytes = 1 << 20;
    let mut store = Embedded::open(few).unwrap();
    for number in 0..4_000 {
        store.finish(task(number), value(number)).unwrap();
    }
    let large = Key { table: Table::Kv, bytes: b"large".to_vec() };
    assert_eq!(store.put(large, vec![1; 400 << 10]), Ok(1));
}

#[test]
fn finished_rows_leave_memory_and_are_found_again() {
    let folder = Folder::new();
    let mut few = options(&folder);
    few.memory_bytes = 1 << 20;
    few.snapshot_bytes = 1 << 20;
    let mut store = Embedded::open(few.clone()).unwrap();
    let rows = 8_000;
    for number in 0..rows {
        store.finish(task(number), value(number)).unwrap();
        store.flush().unwrap();
    }
    let status = store.status();
    assert!(status.memory_bytes <= 1 << 20, "{status:?}");
    assert!(store.log_bytes() < 16 << 20, "the log is cut: {}", store.log_bytes());
    let check = |store: &Embedded| {
        for number in (0..rows).step_by(997) {
            let row = store.find(&task(number)).unwrap().unwrap();
            assert_eq!(row.value, value(number));
        }
        assert_eq!(store.find(&task(rows)), Ok(None));
    };
    check(&store);
    drop(store);
    let mut store = Embedded::open(few).unwrap();
    check(&store);
    assert_eq!(store.get(&task(0)), None, "it is history");
    store.delete(&task(0)).unwrap();
    assert_eq!(store.find(&task(0)), Ok(None));
}

#[test]
fn what_cannot_become_history_is_refused_when_memory_is_full() {
    let folder = Folder::new();
    let mut few = options(&folder);
    few.memory_bytes = 100_000;
    let mut store = Embedded::open(few).unwrap();
    let mut result = Ok(1);
    for number in 0..1000 {
        result = store.put(kv(&number.to_string()), vec![0; 1000]);
        if result.is_err() {
            break;
        }
    }
    assert!(matches!(result, Err(Refusal::Full { .. })), "{result:?}");
    assert!(store.get(&kv("0")).is_some());
    store.delete(&kv("0")).unwrap();
    assert_eq!(store.put(kv("again"), vec![0; 500]), Ok(1));
}

#[test]
fn a_damaged_archive_was_renamed_without_a_word() {
    let folder = Folder::new();
    let mut store = Embedded::open(options(&folder)).unwrap();
    store.put(kv("a"), vec![1]).unwrap();
    store.flush().unwrap();
    drop(store);
    let archive = folder.0.join("cold.redb");
    std::fs::write(&archive, vec![9; 20_000]).unwrap();
    let error = Embedded::open(options(&folder)).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("cold.redb"), "{error}");
    assert!(archive.exists(), "nothing was done to it");
    let store = Embedded::open(EmbeddedOptions { accept_loss: true, ..options(&folder) }).unwrap();
    let (why, aside) = store.start.lost_archive.clone().unwrap();
    assert!(why.contains("damaged") && aside.as_ref().unwrap().exists(), "{why}");
    assert!(store.report().json()["set_aside"].as_str().unwrap().contains("damaged-"));
    assert!(store.get(&kv("a")).is_some());
    drop(store);
    let store = Embedded::open(options(&folder)).unwrap();
    assert_eq!(store.start.lost_archive, None);
}

#[test]
fn an_archive_that_was_taken_away_went_unnoticed() {
    let folder = Folder::new();
    let few = EmbeddedOptions { memory_bytes: 1 << 20, ..options(&folder) };
    let mut store = Embedded::open(few.clone()).unwrap();
    let mut number = 0;
    while store.archive().rows == 0 {
        assert!(number < 100_000, "nothing is archived");
        store.finish(task(number), value(number)).unwrap();
        store.flush().unwrap();
        number += 1;
    }
    store.close().unwrap();
    std::fs::remove_file(folder.0.join("cold.redb")).unwrap();
    let error = Embedded::open(few.clone()).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("is not any more"), "{error}");
    let store = Embedded::open(EmbeddedOptions { accept_loss: true, ..few.clone() }).unwrap();
    assert!(matches!(&store.start.lost_archive, Some((why, None)) if why.contains("cold.redb")));
    drop(store);
    drop(Embedded::open(few).unwrap());
}

#[test]
fn a_newest_log_file_that_was_taken_away_went_unnoticed() {
    let folder = Folder::new();
    let mut store = Embedded::open(options(&folder)).unwrap();
    store.put(kv("a"), vec![1]).unwrap();
    store.close().unwrap();
    let mut store = Embedded::open(options(&folder)).unwrap();
    store.put(kv("b"), vec![1]).unwrap();
    store.close().unwrap();
    let newest = folder.0.join("log-0000000000000002");
    std::fs::remove_file(&newest).unwrap();
    let error = Embedded::open(options(&folder)).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("log-0000000000000002"), "{error}");
    let accepting = EmbeddedOptions { accept_loss: true, ..options(&folder) };
    let mut store = Embedded::open(accepting).unwrap();
    assert_eq!(store.start.cut.as_ref().map(|cut| cut.path.clone()), Some(newest));
    assert!(store.get(&kv("a")).is_some() && store.get(&kv("b")).is_none());
    store.put(kv("c"), vec![1]).unwrap();
    store.close().unwrap();
    let store = Embedded::open(options(&folder)).unwrap();
    assert!(store.start.cut.is_none() && store.get(&kv("c")).is_some());
}

#[test]
fn a_damaged_log_is_refused_with_its_file() {
    let folder = Folder::new();
    let mut always = options(&folder);
    always.fsync = Fsync::Always;
    let mut store = Embedded::open(always.clone()).unwrap();
    for number in 0..100 {
        store.put(kv(&number.to_string()), vec![7; 100]).unwrap();
        store.flush().unwrap();
    }
    store.close().unwrap();
    let path = folder.0.join("log-0000000000000001");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let error = Embedded::open(always).err().unwrap().to_string();
    assert!(error.contains("log-0000000000000001") && error.contains("offset"), "{error}");
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Delete(u8),
    Restart,
    /// Without a flush: as if killed.
    Lose,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0u8..30, 0u16..600).prop_map(|(key, len)| Step::Put(key, len)),
        5 => (0u8..30).prop_map(Step::Delete),
        2 => Just(Step::Restart),
        1 => Just(Step::Lose),
    ];
    proptest::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(crate::disk::cases(32))]

    /// EMB-1, with snapshots and several segments.
    #[test]
    fn it_is_a_map_that_survives(steps in steps()) {
        let folder = Folder::new();
        let mut small = options(&folder);
        small.snapshot_bytes = 4000;
        let mut store = Embedded::open(small.clone()).unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(number, len) => {
                    let (key, value) = (vec![number], vec![number; len.into()]);
                    store.put(Key { table: Table::Kv, bytes: key.clone() }, value.clone()).unwrap();
                    model.insert(key, value);
                    store.flush().unwrap();
                }
                Step::Delete(number) => {
                    store.delete(&Key { table: Table::Kv, bytes: vec![number] }).unwrap();
                    model.remove(&vec![number]);
                    store.flush().unwrap();
                }
                Step::Restart => {
                    store.close().unwrap();
                    store = Embedded::open(small.clone()).unwrap();
                }
                Step::Lose => {
                    store.put(kv("never told"), vec![1]).unwrap();
                    drop(store);
                    store = Embedded::open(small.clone()).unwrap();
                }
            }
            let page = store.scan(Table::Kv, b"", None, 1000);
            let rows = page.rows.into_iter().map(|(key, row)| (key, row.value));
            // What nobody was told of may be there or not.
            let rows: BTreeMap<_, _> = rows.filter(|(key, _)| key.len() == 1).collect();
            prop_assert!(rows == model, "{:?} {:?}", rows.keys(), model.keys());
        }
    }
}
