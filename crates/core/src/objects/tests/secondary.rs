//! Secondary copies, and no room for more.

use super::far::*;
use super::*;

/// A full store: A's own object, which nobody used for longest, and one that was fetched and is held by B.
pub(super) struct Full {
    pub(super) bench: Bench,
    haul: ProcessId,
    pub(super) own: ObjectId,
    pub(super) fetched: ObjectId,
    location: Location,
}

const FETCHED_BYTES: u64 = 4 << 20;

impl Full {
    pub(super) fn new(fetched: ObjectId) -> Self {
        Self::after(fetched, None)
    }

    /// This happens before it is fetched.
    pub(super) fn after(fetched: ObjectId, before: Option<Event>) -> Self {
        let mut bench = Bench::with(Config::new(12 << 20));
        let (haul, own) = (haul(HERE), home(7));
        bench.seal(own, 8 << 20, &[]);
        bench.feed(Event::ProcessJoined { process: haul, slots: 0 });
        let wants = Event::ExtentWanted { from: haul, request: 1, bytes: FETCHED_BYTES, slots: 1 };
        let granted = bench.feed(wants);
        let [Effect::Send { message: ToClient::ExtentGranted { offset, slots, .. }, .. }] =
            &granted[..]
        else {
            panic!("{granted:?}")
        };
        let (slot, offset) = (slots[0], *offset);
        let location = Location { slot, generation: 1, offset, len: FETCHED_BYTES };
        before.into_iter().for_each(|event| drop(bench.feed(event)));
        bench.notice(B, hold(fetched, B));
        bench.want(B, fetched);
        if fetched.task.owner.node() == HERE {
            let bytes = FETCHED_BYTES;
            bench.feed(Event::FarSealed {
                copy: copy(THERE),
                object: fetched,
                bytes,
                contains: vec![],
            });
        } else {
            bench.feed(told(fetched, stored(FETCHED_BYTES, &[THERE]), &[]));
        }
        bench.notice(haul, sealed(fetched, location, &[], haul));
        assert_eq!(bench.state(fetched), Some("stored"));
        Self { bench, haul, own, fetched, location }
    }

    pub(super) fn press(&mut self) -> Vec<Effect> {
        self.bench.feed(Event::ExtentWanted { from: C, request: 2, bytes: 1 << 20, slots: 0 })
    }

    pub(super) fn free(&self) -> Effect {
        Effect::Free { ticket: 1, object: self.fetched, location: self.location }
    }

    pub(super) fn freed(&mut self, result: FreeOutcome) -> Vec<Effect> {
        self.bench.feed(Event::Freed { ticket: 1, result })
    }
}

#[test]
fn what_was_fetched_goes_first_and_is_not_written_and_its_home_is_told() {
    let mut full = Full::new(foreign(1));
    assert_eq!(full.press(), [full.free()]);
    let effects = full.freed(FreeOutcome::Done);
    let (object, haul) = (full.fetched, full.haul);
    assert_eq!(effects[0], reclaimed(haul, object, full.location));
    assert_eq!(effects.last(), Some(&Effect::TellNotCopied { object }));
    assert_eq!(full.bench.state(full.own), Some("stored"));
    // Who wants it again has it fetched again.
    assert_eq!(full.bench.want(B, object), [Effect::AskHome { object }]);
}

#[test]
fn what_is_read_stays_though_it_was_fetched() {
    let mut full = Full::new(foreign(1));
    full.press();
    assert_eq!(full.bench.want(B, full.fetched), [], "it is decided soon");
    let effects = full.freed(FreeOutcome::Pinned);
    let value = Value::Stored(full.location);
    assert_eq!(effects[0], ready(B, full.fetched, value, &[]));
    assert!(matches!(effects[1], Effect::Spill { object, .. } if object == full.own));
}

#[test]
fn at_home_what_was_fetched_can_be_fetched_again() {
    let mut full = Full::new(home(1));
    assert_eq!(full.press(), [full.free()]);
    full.freed(FreeOutcome::Done);
    assert_eq!(full.bench.state(full.fetched), Some("elsewhere"));
    let effects = full.bench.want(B, full.fetched);
    assert!(
        matches!(&effects[..], [Effect::Pull { sources, .. }] if *sources == [THERE]),
        "{effects:?}"
    );
}

#[test]
fn when_a_node_died_what_was_fetched_may_be_the_only_copy() {
    let mut full = Full::new(foreign(1));
    full.bench.feed(gone(YONDER));
    let effects = full.press();
    let [Effect::Spill { .. }] = &effects[..] else { panic!("OBJ-15: {effects:?}") };
}

#[test]
fn a_copy_that_goes_is_named_no_more_and_with_the_last_one_the_object_is_lost() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(B, hold(object, B));
    bench.feed(far_sealed(THERE, object, &[]));
    bench.feed(copied(YONDER, object));
    bench.feed(Event::FarNotCopied { node: THERE, object });
    assert_eq!(sources(&mut bench, R1, object), [YONDER]);
    bench.feed(Event::FarNotCopied { node: R1, object });
    let effects = bench.feed(Event::FarNotCopied { node: YONDER, object });
    assert_remade(&effects, &[object], "no copy of it is left");
    assert_eq!(bench.want(B, object), [delayed(B, object)]);
}

#[test]
fn what_came_from_a_node_that_drains_is_not_given_away_when_memory_is_short() {
    let mut full = Full::new(home(1));
    let object = full.fetched;
    let effects = full.bench.feed(Event::NodeDrains { node: THERE });
    assert_eq!(effects, [forget(THERE, object)]);
    let effects = full.press();
    assert!(!effects.contains(&full.free()), "OBJ-15: {effects:?}");
}

#[test]
fn a_copy_that_just_goes_when_its_maker_drains_is_fetched_again() {
    let mut full = Full::new(home(1));
    assert_eq!(full.press(), [full.free()]);
    assert_eq!(full.bench.feed(Event::NodeDrains { node: THERE }), []);
    let effects = full.freed(FreeOutcome::Done);
    let fetched = |effect: &Effect| matches!(effect, Effect::Pull { object, sources, .. } if *object == full.fetched && *sources == [THERE]);
    assert!(effects.iter().any(fetched), "{effects:?}");
}
