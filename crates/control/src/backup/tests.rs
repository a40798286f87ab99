//! The file by itself. A store that is saved and restored: `crate::net::tests::backup`.

use hoplo_wire::control::{Key, Row, Table};
use proptest::prelude::*;

use super::file::{Writer, put};
use super::*;
use crate::disk::log::tests::Folder;

fn header(rows: u64) -> Header {
    Header {
        hoplo: "0.1.0".to_string(),
        made_us: 1,
        cluster: format!("{:032x}", 7),
        row_format: ROW_FORMAT,
        rows,
        tables: [("Kv".to_string(), rows)].into(),
        shards: vec![Shard { epoch: 2, index: 30 }],
        head: None,
    }
}

fn kv(bytes: Vec<u8>) -> Key {
    Key { table: Table::Kv, bytes }
}

fn written(header: &Header, rows: &[(Key, Row)]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), header).unwrap();
    rows.iter().for_each(|(key, row)| put(&mut writer, key, row).unwrap());
    writer.end().unwrap()
}

fn some_rows() -> Vec<(Key, Row)> {
    let row = |n: u8| Row { value: vec![n; 3], version: 1, index: u64::from(n), finished: false };
    (1..4).map(|n| (kv(vec![n]), row(n))).collect()
}

/// What a program says of a file with these bytes.
fn checked(folder: &Folder, bytes: &[u8]) -> Result<Header, BackupError> {
    let path = folder.0.join("backup");
    std::fs::write(&path, bytes).unwrap();
    Reader::open(&path)?.check()
}

fn said(folder: &Folder, bytes: &[u8]) -> String {
    checked(folder, bytes).unwrap_err().to_string()
}

fn row() -> impl Strategy<Value = Row> {
    let value = prop::collection::vec(any::<u8>(), 0..40);
    (value, any::<u64>(), any::<u64>(), any::<bool>())
        .prop_map(|(value, version, index, finished)| Row { value, version, index, finished })
}

fn rows() -> impl Strategy<Value = Vec<(Key, Row)>> {
    let key = (prop::sample::select(Table::ALL.to_vec()), prop::collection::vec(any::<u8>(), 0..9));
    let key = key.prop_map(|(table, bytes)| Key { table, bytes });
    prop::collection::btree_map(key, row(), 0..12).prop_map(|rows| rows.into_iter().collect())
}

proptest! {
    #[test]
    fn a_file_holds_what_was_put_in_and_says_so_of_no_other(
        rows in rows(),
        cut in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u8,
        more in prop::collection::vec(any::<u8>(), 1..5),
    ) {
        let folder = Folder::new();
        let header = header(rows.len() as u64);
        let bytes = written(&header, &rows);
        prop_assert_eq!(checked(&folder, &bytes).unwrap(), header);
        let mut reader = Reader::open(&folder.0.join("backup")).unwrap();
        let read: Vec<_> = std::iter::from_fn(|| reader.next_row().unwrap()).collect();
        prop_assert_eq!(&read, &rows);
        // FILE-1
        let cut = cut.index(bytes.len());
        let error = checked(&folder, &bytes[..cut]).unwrap_err();
        let says_so = matches!(error, BackupError::CutOff { bytes, .. } if bytes == cut as u64);
        prop_assert!(says_so, "{cut} of {} bytes: {error}", bytes.len());
        let mut flipped = bytes.clone();
        let place = place.index(bytes.len());
        flipped[place] ^= 1_u8 << bit;
        prop_assert!(checked(&folder, &flipped).is_err(), "byte {place}");
        let longer = [bytes, more].concat();
        prop_assert!(said(&folder, &longer).contains("something follows its end"));
    }
}

#[test]
fn each_file_that_is_of_no_use_says_what_to_do() {
    let folder = Folder::new();
    let good = written(&header(3), &some_rows());
    for no_backup in [&b"hoplo: a text"[..], b"PK\x03\x04", b"hoplo backup of mine\n"] {
        let said = said(&folder, no_backup);
        assert!(
            said.ends_with("is no backup: name a file that `hoplo control backup` wrote"),
            "{said}"
        );
    }
    assert!(
        said(&folder, &good[..40])
            .ends_with("cut off after 40 bytes: copy it again, or use another backup")
    );
    let newer = [b"hoplo backup 2\n", &good[15..]].concat();
    let told = said(&folder, &newer);
    assert!(
        told.contains("has format 2, and this hoplo reads format 1: use a newer hoplo"),
        "{told}"
    );
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let told = said(&folder, &flipped);
    assert!(told.contains("damaged (its checksum is wrong): copy it again, or"), "{told}");
    assert!(said(&folder, &written(&header(4), &some_rows())).contains("another number of rows"));
    let mut disorder = some_rows();
    disorder.swap(0, 1);
    assert!(said(&folder, &written(&header(3), &disorder)).contains("disorder"));
    // FILE-2: a length that would take all memory.
    let mut long = written(&header(0), &[]);
    let at = long.len() - 12;
    long[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(said(&folder, &long).contains("a row of 4294967295 bytes"));
    let missing = Reader::open(&folder.0.join("none")).err().unwrap().to_string();
    assert!(missing.ends_with(": name a file in a folder that is there"), "{missing}");
}

#[test]
fn rows_of_another_format_and_of_control_nodes_begin_no_head() {
    let folder = Folder::new();
    let (path, control) = (folder.0.join("backup"), folder.0.join("control"));
    let of = |header: Header| {
        std::fs::write(&path, written(&header, &some_rows())).unwrap();
        let said = restore(&path, &control).unwrap_err().to_string();
        // RESTORE-1
        let left: Vec<_> =
            std::fs::read_dir(&folder.0).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["backup"], "{said}");
        said
    };
    let old = Header { row_format: ROW_FORMAT - 1, hoplo: "0.0.9".to_string(), ..header(3) };
    let told = of(old);
    assert!(told.ends_with("restore it with hoplo 0.0.9, which wrote it"), "{told}");
    assert!(of(header(3)).contains("is a backup of control nodes"));
    std::fs::create_dir(&control).unwrap();
    let told = restore(&path, &control).unwrap_err().to_string();
    assert!(told.contains("has a store already"), "{told}");
}
