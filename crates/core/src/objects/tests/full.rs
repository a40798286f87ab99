//! When a node says that it has no room, and when it has some again.

use hoplo_base::limits::FULL_FORGOTTEN;

use super::*;

/// A store of 8 MiB, full of one object.
fn bench() -> (Bench, ObjectId, Location) {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let kept = object(A, 1);
    let location = bench.seal(kept, 8 * MIB, &[]);
    (bench, kept, location)
}

/// B asks for room, and the disk takes no object; `takes`: whether it takes what B wants.
fn asks(bench: &mut Bench, bytes: u64, takes: bool) {
    let wanted = Event::ExtentWanted { from: B, request: 7, bytes, slots: 0 };
    let mut effects = bench.feed(wanted);
    if let [Effect::Spill { ticket, .. }] = effects[..] {
        let result = SpillOutcome::Failed("no space left".to_string());
        effects = bench.feed(Event::Spilled { ticket, result });
    }
    let reserve = |effect: &Effect| match effect {
        Effect::Reserve { ticket, .. } => Some(*ticket),
        _ => None,
    };
    let ticket = effects.iter().find_map(reserve).unwrap_or_else(|| panic!("{effects:?}"));
    let result = if takes { Ok(()) } else { Err("no space left".to_string()) };
    bench.feed(Event::Reserved { ticket, result });
}

#[test]
fn a_node_is_full_from_a_denial_until_as_much_is_granted() {
    let (mut bench, ..) = bench();
    asks(&mut bench, MIB, true);
    assert!(!bench.directory.is_full());
    asks(&mut bench, 2 * MIB, false);
    asks(&mut bench, MIB, false);
    asks(&mut bench, 4 * MIB, false);
    assert!(bench.directory.is_full());
    asks(&mut bench, MIB - PAGE, true);
    assert!(bench.directory.is_full(), "there was room for less than was denied");
    asks(&mut bench, MIB, true);
    assert!(!bench.directory.is_full());
}

#[test]
fn a_node_is_full_until_memory_or_disk_comes_free() {
    let (mut bench, kept, location) = bench();
    asks(&mut bench, MIB, false);
    assert!(bench.directory.is_full());
    bench.notice(A, Notice::Freed { object: kept });
    assert!(bench.directory.is_full(), "A keeps the memory");
    let Location { offset, len, .. } = location;
    bench.feed(Event::ExtentReturned { from: A, offset, len });
    assert!(!bench.directory.is_full());

    let (mut bench, ..) = self::bench();
    asks(&mut bench, 2 * MIB, true);
    asks(&mut bench, MIB, false);
    assert!(bench.directory.is_full());
    bench.feed(Event::ExtentReturned { from: B, offset: 8 * MIB, len: 2 * MIB });
    assert!(!bench.directory.is_full());
}

/// Others may have filled the disk, and free it.
#[test]
fn a_node_is_not_full_for_ever_though_nobody_asks() {
    let (mut bench, ..) = bench();
    asks(&mut bench, MIB, false);
    bench.pass(FULL_FORGOTTEN / 2);
    asks(&mut bench, MIB, false);
    bench.pass(FULL_FORGOTTEN / 2);
    assert!(bench.directory.is_full());
    let at = bench.directory.full_ends().expect("it ends");
    assert!(bench.directory.next_deadline().is_some_and(|next| next <= at));
    bench.pass(FULL_FORGOTTEN / 2);
    assert!(!bench.directory.is_full());
}

#[test]
fn who_wants_very_much_fills_no_node() {
    let (mut bench, ..) = bench();
    asks(&mut bench, 9 * MIB, false);
    assert!(!bench.directory.is_full(), "more than the store has");
    let mut bench = Bench::with(Config::new(10 * MIB));
    bench.seal(object(A, 1), 8 * MIB, &[]);
    asks(&mut bench, 10 * MIB, false);
    assert!(!bench.directory.is_full(), "2 of 10 MiB are free");
}

/// Some of the memory was free, and tasks whose results were just larger than that came and failed.
#[test]
fn what_is_free_is_too_little_if_what_is_denied_is_no_more_than_half_of_the_memory() {
    let mut bench = Bench::with(Config::new(10 * MIB));
    bench.seal(object(A, 1), 8 * MIB, &[]);
    asks(&mut bench, 5 * MIB, false);
    assert!(bench.directory.is_full(), "2 of 10 MiB are free");
    asks(&mut bench, 5 * MIB, true);
    assert!(!bench.directory.is_full());
}
