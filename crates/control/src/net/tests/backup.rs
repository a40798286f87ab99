//! A head's store becomes a file while it is written to, and the file another head of the same cluster.

use std::collections::BTreeMap;

use hoplo_base::NodeNumber;
use hoplo_core::control::EventEntry;

use super::alone::{Head, SOON, joined, kv};
use super::*;
use crate::backup::{BackupError, Header, Reader, Refilled, refill, restore, save};
use crate::net::client::{ControlClient, Told};
use crate::net::cluster::Cluster;
use crate::net::seat::{Candidate, SeatError};
use hoplo_core::control::rows::{node_key, seat_key};
use hoplo_core::control::{ControlStore, Entry, Key, NodeEntry, NodeState, Row, SeatEntry, Table};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

fn backup(home: &Path, path: &Path, force: bool) -> Result<Header, BackupError> {
    let cluster = Cluster::load(&home.join("cluster.json")).unwrap();
    save(&cluster, Some(Cluster::founding(home).unwrap()), path, force)
}

fn rows(path: &Path) -> BTreeMap<Key, Row> {
    let mut reader = Reader::open(path).unwrap();
    std::iter::from_fn(|| reader.next_row().unwrap()).collect()
}

/// Key `a` is always written before `z`, with the same value.
#[test]
fn a_backup_that_was_made_while_rows_change_is_of_one_moment() {
    let folder = Folder::new("backup-moment");
    let home = folder.0.join("head");
    let head = Head::start(&home, 0);
    // More than a page, so that `a` and `z` are read at different times.
    head.does(|store| {
        for number in 0..2_000 {
            store.put(kv(&format!("m{number:04}")), vec![7; 2_000]).unwrap();
        }
    });
    let cluster = joined(&head.joins().unwrap(), &folder.0.join("node"));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = ControlClient::connect(&cluster).unwrap();
            for number in 0_u64.. {
                for name in ["a", "z"] {
                    client.put(kv(name), number.to_be_bytes().to_vec(), None, SOON).unwrap();
                }
                if ends.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _ends = Ends(&ends);
        let path = folder.0.join("backup");
        let number = |row: &Row| u64::from_be_bytes(*row.value.first_chunk().unwrap());
        let mut last = 0;
        for _ in 0..5 {
            let header = backup(&home, &path, true).unwrap();
            let rows = rows(&path);
            assert_eq!(rows.len() as u64, header.rows);
            assert_eq!(rows.keys().filter(|key| key.bytes[0] == b'm').count(), 2_000);
            let found = ["a", "z"].map(|name| rows.get(&kv(name)).map_or(0, number));
            assert!(found[0] == found[1] || found[0] == found[1] + 1, "{found:?}");
            assert!(found[1] >= last, "it has what was acknowledged before");
            last = found[1];
        }
    });
}

/// Also when something is wrong: a thread that goes on would be waited for.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn another_head_goes_on_with_a_backup_and_its_nodes_hear_that_history_begins_anew() {
    let folder = Folder::new("backup-restore");
    let (home, path) = (folder.0.join("head"), folder.0.join("backup"));
    let head = Head::start(&home, 0);
    let (port, token) = (head.port(), head.token.clone());
    let cluster = joined(&head.joins().unwrap(), &folder.0.join("node"));
    let client = ControlClient::connect(&cluster).unwrap();
    client.put(kv("k"), b"old".to_vec(), None, SOON).unwrap();
    client.put(kv("k"), b"kept".to_vec(), Some(1), SOON).unwrap();
    let event = EventEntry { at_us: 5, seq: 1, text: "long ago".to_string() };
    let (key, value) = (event.key(), event.to_value());
    head.does(move |store| assert_eq!(store.finish(key, value), Ok(1)));
    let header = backup(&home, &path, false).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = backup(&home, &path, false).unwrap_err().to_string();
    assert!(again.contains("is there already") && again.contains("--force"), "{again}");
    // What only the old head has, and one who joined since.
    client.put(kv("k"), b"newer".to_vec(), Some(2), SOON).unwrap();
    client.put(kv("new"), vec![1], None, SOON).unwrap();
    let late = head.joins().unwrap().number.unwrap();
    let before = client.config().unwrap().shards[0].clone();
    let changes = client.subscribe(Table::Kv, vec![], vec![], 100);
    drop(head);
    let kept = rows(&path);

    let anew = folder.0.join("anew");
    assert_eq!(restore(&path, &anew).unwrap(), header);
    let head = Head::start(&anew, port);
    // The same client goes on: with the version of the backup, in a history that begins anew.
    let put = client.put(kv("k"), b"again".to_vec(), Some(2), SOON);
    assert_eq!(put, Ok(hoplo_wire::control::Outcome::Done { version: 3 }));
    let after = client.config().unwrap().shards[0].clone();
    // However often the old head began again since.
    assert!(after.epoch.0 > before.epoch.0 + 100, "RESTORE-2");
    assert_eq!(after.history, after.epoch);
    while !matches!(changes.next(SOON).expect("it is told"), Told::Missed { .. }) {}
    assert_eq!(client.get(kv("new"), SOON), Ok(None));
    let page = client.scan(Table::Event, vec![], None, 10, SOON).unwrap();
    assert_eq!(page.rows, [(event.key().bytes, kept[&event.key()].clone())]);
    // However much was written there since.
    assert!(page.indexes[0] > header.shards[0].index + 1_000, "RESTORE-2");
    // Its token opens the same cluster, and the number of who joined since is nobody's.
    let (address, role) = (head.address.as_str(), Role::Node);
    let joining =
        hoplo_net::join::Joining { address, token: &token, role, host: "box", within: SOON };
    let number = hoplo_net::join::join(&joining).unwrap().number.unwrap();
    assert!(number.is_later_than(late) && number.number() > late.number() + 100, "RESTORE-2");
}

/// Rows for which memory has no room come back as well.
#[test]
fn a_backup_has_what_is_archived() {
    use crate::embedded::{Embedded, EmbeddedOptions};
    let folder = Folder::new("backup-archive");
    let (home, path) = (folder.0.join("head"), folder.0.join("backup"));
    let head = Head::start_with(&home, 0, |options| options.memory_bytes = 1 << 20);
    let event = |n: u64| EventEntry { at_us: n, seq: n, text: "x".repeat(1_000) };
    head.does(move |store| {
        (0..4_000).for_each(|n| {
            store.finish(event(n).key(), event(n).to_value()).unwrap();
        });
        assert!(store.archive().rows > 0 || store.status().cold_bytes > 0);
    });
    let header = backup(&home, &path, false).unwrap();
    assert_eq!(header.tables["Event"], 4_000);
    drop(head);
    let anew = folder.0.join("anew");
    let mut options = EmbeddedOptions::new(anew.clone());
    options.memory_bytes = 1 << 20;
    crate::backup::restore_for(&path, &anew, options.clone()).unwrap();
    let store = Embedded::open(options).unwrap();
    assert!(store.archive().rows > 1_000, "{:?}", store.archive());
    for n in [0, 1_999, 3_999] {
        let row = store.find(&event(n).key()).unwrap().unwrap();
        assert_eq!(EventEntry::from_row(&row), Ok(event(n)));
    }
}

/// A client of a new store, and three backups of another one; the last of before it had a head.
struct Anew {
    _head: Head,
    cluster: Cluster,
    client: ControlClient,
    backups: [PathBuf; 3],
}

impl Anew {
    fn new(folder: &Folder) -> Self {
        let home = folder.0.join("before");
        let before = Head::start(&home, 0);
        before.does(|store| {
            for name in ["a", "b", "c"] {
                store.put(kv(name), b"old".to_vec()).unwrap();
            }
            let event = EventEntry { at_us: 5, seq: 1, text: "long ago".to_string() };
            store.finish(event.key(), event.to_value()).unwrap();
            // The one with the lower number died later.
            for (n, died) in [(700, 4000), (701, 3000)] {
                let node = NodeNumber::alone(n);
                let (why, heir) = ("it fell".to_string(), Some(NodeNumber::alone(n - 1)));
                let state = NodeState::Settled { why, heir, died };
                let entry = NodeEntry { state, ..NodeEntry::numbered(node, "there".to_string()) };
                store.put(entry.key(), entry.to_value()).unwrap();
            }
        });
        let [without_seat, one, two] = ["without", "one", "two"].map(|name| folder.0.join(name));
        backup(&home, &without_seat, false).unwrap();
        before.does(|store| {
            let seat = SeatEntry { holder: Some(3), address: "a:1".to_string(), beats: 9 };
            store.put(seat.key(), seat.to_value()).unwrap();
        });
        let backups = [one, two, without_seat];
        for path in &backups[..2] {
            backup(&home, path, false).unwrap();
        }
        drop(before);
        let home = folder.0.join("head");
        let head = Head::start(&home, 0);
        // An operator's.
        let cluster = Cluster::load(&home.join("cluster.json")).unwrap();
        let client = ControlClient::connect(&cluster).unwrap();
        Self { _head: head, cluster, client, backups }
    }

    fn refill(&self, backup: usize) -> Result<Refilled, String> {
        let refilled = refill(&self.backups[backup], &self.cluster);
        refilled.map(|(_, refilled)| refilled).map_err(|error| error.to_string())
    }

    fn value(&self, name: &str) -> Option<Vec<u8>> {
        self.client.get(kv(name), SOON).unwrap().map(|row| row.value)
    }

    fn seat(&self) -> Option<SeatEntry> {
        let row = self.client.get(seat_key(), SOON).unwrap();
        row.map(|row| SeatEntry::from_row(&row).unwrap())
    }

    /// What somebody who wants to be head hears.
    fn head_begins(&self) -> Result<(), SeatError> {
        Candidate::new(&self.cluster).unwrap().take(8, "b:1").map(|_| ())
    }
}

#[test]
fn a_backup_goes_into_a_store_that_no_head_had() {
    let folder = Folder::new("refill");
    let anew = Anew::new(&folder);
    // Somebody who lived on wrote it: it is newer.
    anew.client.put(kv("b"), b"new".to_vec(), None, SOON).unwrap();
    let refilled = anew.refill(0).unwrap();
    // Each once, and not the node that never was.
    let rows = Reader::open(&anew.backups[0]).unwrap().header.rows;
    assert_eq!(refilled.written + refilled.there, rows);
    // `b`, and the row of the node of either store.
    assert_eq!(refilled.there, 2);
    let values = ["a", "b", "c"].map(|name| anew.value(name).unwrap());
    assert_eq!(values, [&b"old"[..], b"new", b"old"]);
    let events = anew.client.scan(Table::Event, vec![], None, 10, SOON).unwrap().rows;
    assert!(events[0].1.finished);
    // REFILL-5
    let died = [701, 700].map(|n| {
        let row = anew.client.get(node_key(NodeNumber::alone(n)), SOON).unwrap().unwrap();
        let entry = NodeEntry::from_row(&row).unwrap();
        assert!(matches!(entry.state, NodeState::Dead { heir: Some(_), .. }), "{entry:?}");
        row.index
    });
    assert!(died[0] < died[1], "{died:?}");
    // The seat is nobody's: neither the one of before nor ours.
    assert_eq!(anew.seat().unwrap().holder, None);
    anew.head_begins().unwrap();
    // REFILL-2
    let again = anew.refill(0).unwrap_err();
    assert!(
        again.contains("there has been a head over these control nodes, or a backup"),
        "{again}"
    );
}

#[test]
fn a_backup_of_which_half_was_put_back_lets_no_head_begin() {
    let folder = Folder::new("refill-half");
    let anew = Anew::new(&folder);
    // As a restore leaves it that was killed.
    anew.refill(0).unwrap();
    let seat = SeatEntry { holder: Some(SeatEntry::RESTORE), ..anew.seat().unwrap() };
    anew.client.put(seat.key(), seat.to_value(), None, SOON).unwrap();
    anew.client.delete(kv("c"), None, SOON).unwrap();
    // REFILL-3
    let refused = anew.head_begins().unwrap_err();
    assert!(matches!(refused, SeatError::Restored), "{refused}");
    let other = anew.refill(1).unwrap_err();
    assert!(other.contains("another backup was begun"), "{other}");
    assert_eq!(anew.value("c"), None);
    let refilled = anew.refill(0).unwrap();
    assert_eq!(refilled.written, 2, "`c` and the seat; the others are there");
    assert_eq!(anew.value("c"), Some(b"old".to_vec()));
    anew.head_begins().unwrap();
}

/// The node that never was counted as one of its rows, and made up for the seat's where there was one.
#[test]
fn a_backup_without_a_seat_says_how_many_rows_it_has() {
    let folder = Folder::new("refill-no-seat");
    let anew = Anew::new(&folder);
    let Refilled { written, there } = anew.refill(2).unwrap();
    assert_eq!(written + there, Reader::open(&anew.backups[2]).unwrap().header.rows);
}

/// REFILL-1
#[test]
fn a_backup_that_is_cut_off_changes_nothing() {
    let folder = Folder::new("refill-cut");
    let anew = Anew::new(&folder);
    let bytes = std::fs::read(&anew.backups[0]).unwrap();
    std::fs::write(&anew.backups[0], &bytes[..bytes.len() - 1]).unwrap();
    let refused = anew.refill(0).unwrap_err();
    assert!(refused.contains("is cut off after"), "{refused}");
    assert_eq!((anew.seat(), anew.value("a")), (None, None));
}
