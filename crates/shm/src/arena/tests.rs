#![allow(clippy::unwrap_used)]

use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn what_one_mapping_writes_another_reads() {
    let daemon = Arena::create(64 * MIB).unwrap();
    let fd = Kept::new(daemon.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let client = Arena::open(fd, 64 * MIB).unwrap();
    client.claim(4096, 5).unwrap().copy_from_slice(b"hello");
    assert_eq!(daemon.read(4096, 5).unwrap(), b"hello");
    assert_eq!(daemon.read(64 * MIB, 0).unwrap(), b"");
}

#[test]
fn ranges_outside_are_refused() {
    let arena = Arena::create(MIB).unwrap();
    for (offset, len) in [(MIB, 1), (0, MIB + 1), (u64::MAX, 1), (1, u64::MAX)] {
        assert_eq!(arena.read(offset, len), Err(OutOfBounds { offset, len, capacity: MIB }));
        assert!(matches!(arena.claim(offset, len), Err(ClaimError::OutOfBounds(_))));
        assert!(arena.punch(offset, len).is_err());
    }
    assert!(matches!(Arena::create(0), Err(MapError::BadSize { .. })));
    assert!(matches!(Arena::create(100), Err(MapError::BadSize { .. })));
    let fd = Kept::new(arena.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert!(matches!(Arena::open(fd, 2 * MIB), Err(MapError::TooShort { .. })));
}

#[test]
fn claims_of_one_process_never_overlap() {
    let arena = Arena::create(MIB).unwrap();
    let first = arena.claim(128, 128).unwrap();
    for (offset, len) in [(128, 128), (0, 129), (255, 1), (100, 500), (130, 2)] {
        assert_eq!(arena.claim(offset, len).unwrap_err(), ClaimError::Overlap { offset, len });
    }
    let _below = arena.claim(0, 128).unwrap();
    let _above = arena.claim(256, 64).unwrap();
    let _nothing = arena.claim(128, 0).unwrap();
    drop(first);
    let _again = arena.claim(128, 128).unwrap();
}

#[test]
fn punched_memory_goes_back_and_reads_as_zeroes() {
    let arena = Arena::create(64 * MIB).unwrap();
    assert_eq!(arena.touched_bytes().unwrap(), 0);
    arena.claim(0, 4 * MIB).unwrap().fill(7);
    assert!(arena.touched_bytes().unwrap() >= 4 * MIB);
    arena.punch(0, 4 * MIB).unwrap();
    assert_eq!(arena.touched_bytes().unwrap(), 0);
    assert!(arena.read(0, 4 * MIB).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn asking_for_huge_pages_changes_no_bytes() {
    let arena = Arena::create(16 * MIB).unwrap();
    // Allowed or not, the bytes stay.
    let _ = arena.advise_huge(2 * MIB, 2 * MIB);
    assert_eq!(arena.read(2 * MIB, 1).unwrap(), [0]);
}
