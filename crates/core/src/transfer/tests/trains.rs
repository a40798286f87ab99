//! What is kept for a result that does not go round a ring, event by event.

use super::folds::{WHOLE, fold, made};
use super::*;

const RESULT: u64 = 50;

impl Bench {
    /// A copy of what another node made is under way, its ticket is 2.
    fn copying() -> Self {
        let mut bench = Bench::queued();
        bench.feed(granted(1, 0, 4096, &[7]));
        bench
    }

    /// It waits for room.
    fn queued() -> Self {
        let mut bench = Bench::new();
        let result = Some(object(RESULT));
        bench.feed(Event::FoldAsked { asker: HOME, fold: Box::new(Fold { result, ..fold(&[]) }) });
        bench
    }

    fn became(&mut self, sealed: bool) -> Vec<Effect> {
        self.feed(Event::FoldOver { asker: HOME, made: made(1), sealed })
    }
}

#[test]
fn who_is_to_copy_it_next_may_ask_when_it_is_received() {
    let mut bench = Bench::copying();
    bench.is_received();
    let send = Order::Send {
        to: OTHER,
        ticket: 5,
        location: WHOLE,
        offset: 0,
        until: u64::MAX,
        made: true,
    };
    assert_eq!(bench.next_node_asks(5, 2), [Effect::Order(send)]);
}

#[test]
fn who_is_to_copy_it_next_may_ask_when_it_is_the_result() {
    let mut bench = Bench::copying();
    bench.is_received();
    assert_eq!(bench.became(true), []);
    let seal = Effect::SealMade { object: object(RESULT), location: WHOLE };
    assert_eq!(bench.begin(RESULT, 100, &[HOME]), [seal], "somebody reads it here");
    assert_eq!(bench.next_node_asks(5, 2), [Effect::Want { object: object(RESULT) }]);
    let send = Order::Send {
        to: OTHER,
        ticket: 5,
        location: WHOLE,
        offset: 0,
        until: u64::MAX,
        made: false,
    };
    let ready = Event::Ready { object: object(RESULT), location: WHOLE };
    assert_eq!(bench.feed(ready), [Effect::Order(send)]);
}

/// It waited for ever.
#[test]
fn who_asks_for_what_is_over_hears_so() {
    let mut bench = Bench::copying();
    bench.is_received();
    bench.became(false);
    assert!(refused(&bench.next_node_asks(5, 2), 5));
    let mut bench = Bench::queued();
    bench.became(false);
    bench.feed(granted(1, 0, 4096, &[7]));
    assert!(refused(&bench.next_node_asks(5, 2), 5));
}

/// What it would ask for may be gone by then.
#[test]
fn who_has_not_asked_when_the_result_is_there_reads_that() {
    let mut bench = Bench::queued();
    assert_eq!(bench.begin(RESULT, 100, &[HOME]), [], "it is about to be made here");
    bench.became(true);
    let effects = bench.feed(granted(1, 0, 4096, &[7]));
    let asks =
        |effect: &Effect| matches!(effect, Effect::Fetch { object: it, .. } if *it == object(9));
    assert!(!effects.iter().any(asks), "{effects:?}");
    let why = bench.0.explain(object(RESULT)).expect("it is pulled as any object is");
    assert!(why.ends_with("waits for room in the object store"), "{why}");
}
