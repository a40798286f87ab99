//! Damage of every kind, against what the log promised.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hoplo_wire::control::Record;
use proptest::prelude::*;

use super::super::frame::HEADER_BYTES;
use super::super::*;
use super::{
    Folder, after_a_crash, append_until, await_segments, chunk, entry, options, read, segments,
    writer,
};

/// What a life of a log consists of.
#[derive(Clone, Copy, Debug)]
enum Step {
    Append,
    Flush,
    Truncate(u64),
    Snapshot,
    NewLife,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => Just(Step::Append),
        6 => Just(Step::Flush),
        1 => (0u64..4).prop_map(Step::Truncate),
        1 => Just(Step::Snapshot),
        1 => Just(Step::NewLife),
    ];
    proptest::collection::vec(step, 1..120)
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// The last file ends here.
    Cut(f64),
    Flip {
        file: f64,
        at: f64,
        bit: u8,
    },
    Zero {
        file: f64,
        at: f64,
        bytes: usize,
    },
    Rubbish {
        file: f64,
        at: f64,
        bytes: usize,
    },
    Remove(f64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let share = 0.0..1.0f64;
    prop_oneof![
        share.clone().prop_map(Damage::Cut),
        (share.clone(), share.clone(), 0u8..8).prop_map(|(file, at, bit)| Damage::Flip {
            file,
            at,
            bit
        }),
        (share.clone(), share.clone(), 1usize..300).prop_map(|(file, at, bytes)| Damage::Zero {
            file,
            at,
            bytes
        }),
        (share.clone(), share.clone(), 1usize..300).prop_map(|(file, at, bytes)| Damage::Rubbish {
            file,
            at,
            bytes
        }),
        share.prop_map(Damage::Remove),
    ]
}

fn inflict(folder: &Path, damage: Damage) {
    let files = segments(folder);
    let pick = |share: f64| files[(share * files.len() as f64) as usize].clone();
    let change = |path: PathBuf, act: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(&path).unwrap();
        act(&mut bytes);
        fs::write(&path, bytes).unwrap();
    };
    let place = |bytes: &[u8], at: f64| (at * bytes.len() as f64) as usize;
    match damage {
        Damage::Cut(at) => change(files.last().unwrap().clone(), &|bytes| {
            bytes.truncate(place(bytes, at));
        }),
        Damage::Flip { file, at, bit } => change(pick(file), &|bytes| {
            let at = place(bytes, at);
            bytes[at] ^= 1 << bit;
        }),
        Damage::Zero { file, at, bytes: len } => change(pick(file), &|bytes| {
            let at = place(bytes, at);
            let end = (at + len).min(bytes.len());
            bytes[at..end].fill(0);
        }),
        Damage::Rubbish { file, at, bytes: len } => change(pick(file), &|bytes| {
            let at = place(bytes, at);
            let end = (at + len).min(bytes.len());
            bytes[at..end].iter_mut().enumerate().for_each(|(n, byte)| *byte = (n * 37 + 11) as u8);
        }),
        Damage::Remove(file) => fs::remove_file(pick(file)).unwrap(),
    }
}

/// Writes a random history and ends in order; the entries that counted after each step.
fn live(folder: &Path, steps: &[Step], fsync: Fsync) -> Vec<Vec<Record>> {
    let (log, states) = lives(folder, steps, fsync);
    log.close().unwrap();
    states
}

fn lives(folder: &Path, steps: &[Step], fsync: Fsync) -> (Writer, Vec<Vec<Record>>) {
    let mut log = writer(folder, fsync);
    log.append(&chunk(1, 0, None, true));
    log.flush().unwrap();
    let (mut entries, mut snapshot, mut epoch) = (Vec::new(), 1, 1);
    let mut states = vec![entries.clone()];
    for step in steps {
        match step {
            Step::Append => {
                let record = entry(entries.len() as u64 + 1, epoch);
                log.append(&record);
                entries.push(record);
            }
            Step::Flush => log.flush().unwrap(),
            Step::Truncate(back) => {
                entries.truncate(entries.len().saturating_sub(*back as usize));
                log.truncate(entries.len() as u64);
                epoch += 1;
            }
            Step::Snapshot => {
                snapshot += 1;
                log.append(&chunk(snapshot, 0, None, true));
                log.flush().unwrap();
            }
            Step::NewLife => {
                log.close().unwrap();
                log = writer(folder, fsync);
            }
        }
        states.push(entries.clone());
    }
    log.flush().unwrap();
    states.push(entries);
    (log, states)
}

fn entries_of(records: Vec<Record>) -> Vec<Record> {
    records.into_iter().filter(|record| matches!(record, Record::Entry(_))).collect()
}

/// Found by `damage_is_an_error_or_leaves_an_earlier_state`: zeros up to the end of a segment were taken
/// for reserved room, although the next one began behind what had been there.
#[test]
fn zeros_at_the_end_of_a_segment_that_was_closed_are_damage() {
    use Step::{Append, NewLife, Truncate};
    let steps = [Append, Append, Truncate(0), Truncate(1), Append, NewLife, Append];
    let folder = Folder::new();
    live(&folder.0, &steps, Fsync::Always);
    inflict(&folder.0, Damage::Zero { file: 0.0, at: 0.727_663_182_652_568_2, bytes: 108 });
    let error = read(options(&folder.0, Fsync::Always)).unwrap_err();
    let LogError::Corrupt { path, offset, .. } = error else { panic!("{error}") };
    assert_eq!(path, segments(&folder.0)[0]);
    assert!(offset > 0 && offset < fs::metadata(path).unwrap().len());
}

/// The newest file ended right behind its header, where no frame said how long it had been: it was taken for one that a dying
/// machine had not kept, and all records were gone without a word.
#[test]
fn a_file_cut_to_its_header_was_taken_for_one_that_never_held_anything() {
    for ahead in [false, true] {
        let folder = Folder::new();
        let options = LogOptions { ahead, ..options(&folder.0, Fsync::Always) };
        let mut log = Recovery::open(options.clone()).unwrap().into_writer();
        append_until(&mut log, 0, |log| log.bytes() >= options.segment_bytes / 2);
        await_segments(&folder.0, 1 + usize::from(ahead));
        drop(log);
        let cuts = |segment: usize| {
            let path = &segments(&folder.0)[segment];
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            let whole = file.metadata().unwrap().len();
            file.set_len(HEADER_BYTES as u64).unwrap();
            let error = Recovery::open(after_a_crash(&folder.0, Fsync::Always)).unwrap_err();
            let LogError::Corrupt { path: found, offset, .. } = error else { panic!("{error}") };
            assert_eq!((&found, offset), (path, HEADER_BYTES as u64));
            file.set_len(whole).unwrap();
        };
        if ahead {
            // One that was made ahead, and looks as if it still were.
            cuts(1);
        }
        cuts(0);
    }
}

/// A record lay behind the last word that something was synced, and the file was cut right before it: each flush said again how long
/// the file was, so that only its last word counted, and that one might have been of a dying machine.
#[test]
fn a_file_cut_after_a_flush_was_taken_for_one_that_a_dying_machine_had_not_kept() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    let mut ends = Vec::new();
    for index in 1..=3 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
        ends.push(log.bytes());
    }
    drop(log);
    let file = fs::OpenOptions::new().write(true).open(&segments(&folder.0)[0]).unwrap();
    // The machine dies while another record is written, and what it did not finish is cut off.
    file.write_at(&[7; 100], ends[2]).unwrap();
    let (records, cut) = read(after_a_crash(&folder.0, Fsync::Always)).unwrap();
    assert!(records.len() == 3 && cut.is_some());
    file.set_len(ends[1]).unwrap();
    let again = LogOptions { boot: 3, ..options(&folder.0, Fsync::Always) };
    let error = Recovery::open(again).unwrap_err();
    assert!(matches!(error, LogError::Corrupt { offset, .. } if offset == ends[1]), "{error}");
}

/// A log of two segments, nothing of it synced, whose machine dies and keeps of the first what `lose` makes of
/// it, which is also told where a frame in its middle begins: what is written after that is there at the next start.
fn check_it_goes_on_after(lose: impl Fn(&mut Vec<u8>, usize)) {
    let folder = Folder::new();
    let fsync = Fsync::Background(Duration::from_secs(3600));
    let mut log = writer(&folder.0, fsync);
    let (mut index, mut ends) = (0, Vec::new());
    while segments(&folder.0).len() < 2 {
        index += 1;
        log.append(&entry(index, 1));
        log.flush().unwrap();
        ends.push(log.bytes() as usize);
    }
    std::mem::forget(log); // It dies before its first sync.
    let copy = Folder::new();
    for path in segments(&folder.0) {
        fs::copy(&path, copy.0.join(path.file_name().unwrap())).unwrap();
    }
    let first = segments(&copy.0).remove(0);
    let mut bytes = fs::read(&first).unwrap();
    lose(&mut bytes, ends[ends.len() / 2]);
    fs::write(&first, bytes).unwrap();
    // Had the machine not died, it would be damage.
    let error = Recovery::open(options(&copy.0, Fsync::Always)).unwrap_err();
    assert!(matches!(error, LogError::Corrupt { lost, .. } if lost.records > 0), "{error}");
    let recovery = Recovery::open(after_a_crash(&copy.0, Fsync::Always)).unwrap();
    let cut = recovery.cut.clone().unwrap();
    assert!(cut.lost.records > 0 && fs::read_dir(&cut.aside).unwrap().count() == 2, "{cut:?}");
    let kept = recovery.records().map(Result::unwrap).count() as u64;
    assert!(kept > 0 && kept < index, "{kept} of {index}");
    // The same process goes on, and is started again.
    let mut log = recovery.into_writer();
    (kept + 1..=kept + 5).for_each(|index| {
        log.append(&entry(index, 1));
        log.flush().unwrap();
    });
    log.close().unwrap();
    let (records, cut) = read(options(&copy.0, Fsync::Always)).unwrap();
    let expected: Vec<Record> = (1..=kept + 5).map(|index| entry(index, 1)).collect();
    assert_eq!((records, cut), (expected, None));
}

/// The end of a segment that was not synced is gone, the next segment is there: it was damage.
#[test]
fn a_lost_end_that_was_never_synced_is_cut_off_with_the_segment_behind_it() {
    check_it_goes_on_after(|bytes, at| bytes[at..].fill(0));
    check_it_goes_on_after(|bytes, at| bytes.truncate(at));
}

/// The new segment's number left a gap where those that were cut off had been: it was taken for a
/// missing segment at the next start, and what was synced in it was refused or cut off, too.
#[test]
fn what_is_written_after_segments_were_cut_off_is_read_again() {
    check_it_goes_on_after(|bytes, at| bytes[at] ^= 1);
}

/// How a log ended before something happened to its files.
#[derive(Clone, Copy, Debug)]
enum End {
    InOrder,
    Killed,
}

/// A log of a few segments, and all that was acknowledged of it.
fn small_log(folder: &Path, fsync: Fsync, end: End) -> Vec<Record> {
    let options = LogOptions { segment_bytes: 900, ..options(folder, fsync) };
    let mut log = Recovery::open(options).unwrap().into_writer();
    let mut records = vec![chunk(1, 0, None, true)];
    records.extend((1..=12).map(|index| entry(index, 1)));
    for some in records.chunks(2) {
        some.iter().for_each(|record| log.append(record));
        log.flush().unwrap();
    }
    match end {
        End::InOrder => log.close().unwrap(),
        End::Killed => std::mem::forget(log),
    }
    assert!(segments(folder).len() > 1);
    records
}

/// The files of a log, each as far as it is used, and its whole length.
fn used(folder: &Path) -> Vec<(PathBuf, Vec<u8>, u64)> {
    let used = |path: PathBuf| {
        let mut bytes = fs::read(&path).unwrap();
        let len = bytes.len() as u64;
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        (path, bytes, len)
    };
    segments(folder).into_iter().map(used).collect()
}

/// With `change` done to one of the files, the log is refused or nothing of it is lost. Then it goes on all the same
/// with an earlier state, and says what is not in it.
fn is_never_lost_silently(
    files: &[(PathBuf, Vec<u8>, u64)],
    all: &[Record],
    options: impl Fn(&Path) -> LogOptions,
    changed: usize,
    change: impl Fn(&std::fs::File),
    what: &str,
) {
    let folder = Folder::new();
    for (number, (path, bytes, len)) in files.iter().enumerate() {
        let path = folder.0.join(path.file_name().unwrap());
        fs::write(&path, bytes).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(*len).unwrap();
        if number == changed {
            change(&file);
        }
    }
    match read(options(&folder.0)) {
        Ok((records, _)) => assert!(records == all, "{what}: {} of {}", records.len(), all.len()),
        Err(LogError::Corrupt { .. }) => {
            let recovery = Recovery::open_with_loss(options(&folder.0)).unwrap();
            let records: Vec<Record> = recovery.records().map(Result::unwrap).collect();
            assert!(all.starts_with(&records), "{what}");
            let cut = recovery.cut.clone().expect("what it lacks is told");
            let lies_aside = fs::read_dir(&cut.aside).unwrap().count() > 0;
            assert!(lies_aside || cut.lost.bytes == 0, "{what}: {cut:?}");
            drop(recovery);
            let (again, cut) = read(options(&folder.0)).unwrap();
            assert_eq!((again, cut), (records, None), "{what}");
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

const LIVES: [(Fsync, End); 3] = [
    (Fsync::Always, End::Killed),
    (Fsync::Background(Duration::from_secs(3600)), End::Killed),
    (Fsync::Never, End::InOrder),
];

/// Every byte, where that is quick.
const STEP: usize = if cfg!(debug_assertions) { 7 } else { 1 };

/// A bit in the newest segment's header deleted that file, one in a row half of the rows.
#[test]
fn a_flipped_byte_anywhere_in_a_log_never_loses_what_was_acknowledged_in_silence() {
    for (fsync, end) in LIVES {
        let folder = Folder::new();
        let all = small_log(&folder.0, fsync, end);
        let files = used(&folder.0);
        for (number, (_, bytes, _)) in files.iter().enumerate() {
            for at in (0..bytes.len()).step_by(STEP) {
                let flip = |file: &std::fs::File| {
                    file.write_all_at(&[bytes[at] ^ 1 << (at % 8)], at as u64).unwrap();
                };
                let what = format!("{fsync:?}, {end:?}: file {number}, byte {at}");
                // What ended in order survives the machine, too.
                let options = |folder: &Path| match end {
                    End::InOrder if at % 2 == 0 => after_a_crash(folder, fsync),
                    End::InOrder | End::Killed => options(folder, fsync),
                };
                is_never_lost_silently(&files, &all, options, number, flip, &what);
            }
        }
    }
}

/// A file that was cut to half was taken for the end of the log.
#[test]
fn a_file_that_was_cut_anywhere_never_loses_what_was_acknowledged_in_silence() {
    for (fsync, end) in LIVES {
        let folder = Folder::new();
        let all = small_log(&folder.0, fsync, end);
        let files = used(&folder.0);
        for (number, (_, bytes, _)) in files.iter().enumerate() {
            for len in (0..bytes.len()).step_by(STEP) {
                let cut = |file: &std::fs::File| file.set_len(len as u64).unwrap();
                let what = format!("{fsync:?}, {end:?}: file {number} cut to {len}");
                let options = |folder: &Path| options(folder, fsync);
                is_never_lost_silently(&files, &all, options, number, cut, &what);
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::disk::cases(128))]

    /// LOG-2.
    #[test]
    fn any_history_is_read_again(steps in steps(), always in any::<bool>()) {
        let folder = Folder::new();
        let fsync = if always { Fsync::Always } else { Fsync::Never };
        let states = live(&folder.0, &steps, fsync);
        let (records, cut) = read(options(&folder.0, fsync)).unwrap();
        prop_assert_eq!(cut, None);
        prop_assert_eq!(&entries_of(records), states.last().unwrap());
    }

    /// LOG-3: an error, or what the history was at some earlier time; and then it goes on.
    #[test]
    fn damage_is_an_error_or_leaves_an_earlier_state(steps in steps(), damage in damage()) {
        let folder = Folder::new();
        let states = live(&folder.0, &steps, Fsync::Always);
        inflict(&folder.0, damage);
        let opened = Recovery::open(options(&folder.0, Fsync::Always)).and_then(|recovery| {
            let records = recovery.records().collect::<Result<_, _>>()?;
            Ok((recovery, records))
        });
        if let Ok((recovery, records)) = opened {
            let found = entries_of(records);
            prop_assert!(states.contains(&found), "{found:?}");
            let mut log = recovery.into_writer();
            let next = entry(found.len() as u64 + 1, 99);
            log.append(&next);
            log.close().unwrap();
            let (records, cut) = read(options(&folder.0, Fsync::Always)).unwrap();
            prop_assert_eq!(cut, None);
            let records = entries_of(records);
            prop_assert_eq!(records.last(), Some(&next));
        }
    }

    /// What no sync was reported of may be lost anywhere: that is no damage, and the log goes on from there.
    #[test]
    fn what_was_never_synced_may_be_lost_anywhere(
        mut steps in steps(), file in 0.0..1.0f64, at in 0.0..1.0f64, len in 1usize..300,
    ) {
        steps.retain(|step| !matches!(step, Step::NewLife));
        let folder = Folder::new();
        let fsync = Fsync::Background(Duration::from_secs(3600));
        let (log, states) = lives(&folder.0, &steps, fsync);
        std::mem::forget(log); // The machine dies before its first sync.
        let copy = Folder::new();
        for path in segments(&folder.0) {
            fs::copy(&path, copy.0.join(path.file_name().unwrap())).unwrap();
        }
        let folder = copy;
        let files = segments(&folder.0);
        let path = &files[(file * files.len() as f64) as usize];
        let mut bytes = fs::read(path).unwrap();
        // A header is synced before its file gets its name.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let records = &mut bytes[frame::HEADER_BYTES..used];
        let at = (at * records.len() as f64) as usize;
        let end = (at + len).min(records.len());
        records[at..end].fill(0);
        fs::write(path, bytes).unwrap();
        let recovery = Recovery::open(after_a_crash(&folder.0, Fsync::Always)).unwrap();
        let records = recovery.records().collect::<Result<_, _>>().unwrap();
        let mut found = entries_of(records);
        prop_assert!(states.contains(&found), "{found:?}");
        let mut log = recovery.into_writer();
        found.push(entry(found.len() as u64 + 1, 99));
        log.append(found.last().unwrap());
        log.close().unwrap();
        let (records, cut) = read(options(&folder.0, Fsync::Always)).unwrap();
        prop_assert_eq!((entries_of(records), cut), (found, None));
    }

    /// LOG-1: whatever happens to what was written after the last acknowledged flush.
    #[test]
    fn nothing_synced_is_lost_by_damage_behind_it(
        before in 1u64..60, after in 1u64..60, at in 0.0..1.0f64, fill in any::<u8>(),
    ) {
        let folder = Folder::new();
        let mut log = writer(&folder.0, Fsync::Always);
        for index in 1..=before {
            log.append(&entry(index, 1));
            log.flush().unwrap();
        }
        let end = log.bytes();
        let count = segments(&folder.0).len();
        (1..=after).for_each(|index| log.append(&entry(before + index, 1)));
        log.flush().unwrap();
        std::mem::forget(log); // It dies; the last flush was never reported.
        let copy = Folder::new();
        let mut rest = end;
        for (number, path) in segments(&folder.0).iter().enumerate() {
            let mut bytes = fs::read(path).unwrap();
            if number + 1 >= count {
                // It is cut to its end only after that is on disk.
                bytes.resize(bytes.len().next_multiple_of(1 << 20), 0);
            }
            let keep = (rest as usize).min(bytes.len());
            rest -= (keep as u64).min(rest);
            if number + 1 >= count && keep < bytes.len() {
                let at = keep + ((bytes.len() - keep) as f64 * at) as usize;
                // No machine forgets how long a file was when it was synced.
                bytes[at..].fill(fill);
            }
            fs::write(copy.0.join(path.file_name().unwrap()), bytes).unwrap();
        }
        let (records, _) = read(after_a_crash(&copy.0, Fsync::Always)).unwrap();
        prop_assert!(records.len() as u64 >= before, "{} of {before}", records.len());
        let prefix: Vec<Record> =
            (1..=records.len() as u64).map(|index| entry(index, 1)).collect();
        prop_assert_eq!(records, prefix);
    }

    #[test]
    fn a_folder_of_rubbish_is_an_error_or_empty(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000), number in 0u64..5,
    ) {
        let folder = Folder::new();
        fs::write(folder.0.join(format!("log-{number:016}")), bytes).unwrap();
        if let Ok((records, _)) = read(options(&folder.0, Fsync::Always)) {
            prop_assert_eq!(records, []);
        }
    }
}
