//! What is made in a ring, event by event.

use hoplo_base::limits::RING_KEPT;

use super::folds::{OP, OPERAND, WHOLE, fold, made};
use super::*;

const RESULT: u64 = 50;

impl Bench {
    /// A fold in a ring that is under way: its operand is object 1, its ticket 2.
    fn going_round() -> Self {
        let mut bench = Bench::new();
        let (ring, result) = (Some(Ring { at: 1, of: 3 }), Some(object(RESULT)));
        bench.folds(Fold { ring, result, divide_by: Some(4), ..fold(&[1]) });
        bench.feed(Event::Ready { object: object(1), location: OPERAND });
        let order = Order::Fold {
            ticket: 2,
            from: OTHER,
            place: PLACE,
            written: 0,
            op: OP,
            operands: vec![OPERAND],
            divide_by: Some(4),
            ring: Some((1, 3)),
            rest: None,
        };
        let fetch = Effect::Fetch {
            to: OTHER,
            ticket: 2,
            object: object(9),
            offset: 0,
            until: u64::MAX,
            turn: 2,
        };
        assert_eq!(bench.feed(granted(1, 0, 4096, &[7])), [Effect::Order(order), fetch]);
        bench
    }

    fn is_over(&mut self, sealed: bool) -> Vec<Effect> {
        self.feed(Event::FoldOver { asker: HOME, made: made(1), sealed })
    }

    /// Somebody reads the result here.
    fn reads(&mut self) -> Vec<Effect> {
        self.begin(RESULT, 100, &[HOME])
    }
}

fn sealed(object: ObjectId) -> Vec<Effect> {
    vec![Effect::Seal { object, location: WHOLE }]
}

/// The result is fetched as any object is.
fn is_fetched(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::WantRoom { bytes: 100, .. }))
}

#[test]
fn who_reads_the_result_has_it_whatever_comes_first() {
    let steps: [fn(&mut Bench) -> Vec<Effect>; 3] =
        [Bench::is_received, |bench| bench.is_over(true), Bench::reads];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut bench = Bench::going_round();
        assert_eq!(steps[order[0]](&mut bench), []);
        assert_eq!(steps[order[1]](&mut bench), []);
        let sealed = Effect::SealMade { object: object(RESULT), location: WHOLE };
        assert_eq!(steps[order[2]](&mut bench), [sealed], "{order:?}");
        assert_eq!(bench.0.folds(), 0);
    }
}

#[test]
fn what_did_not_become_the_result_is_fetched() {
    // It is over, whole or not.
    let mut bench = Bench::going_round();
    bench.is_received();
    bench.reads();
    let effects = bench.is_over(false);
    assert_eq!(effects[..1], sealed(made(1)), "XFER-13");
    assert!(is_fetched(&effects[1..]), "{effects:?}");
    let mut bench = Bench::going_round();
    bench.reads();
    assert!(is_fetched(&bench.is_over(false)));
    // Its bytes do not come, though it was sealed.
    for word in [true, false] {
        let mut bench = Bench::going_round();
        bench.reads();
        if word {
            bench.is_over(true);
        }
        let effects = bench.feed(stopped(2, 10));
        assert!(is_fetched(&effects), "{effects:?}");
        let told = effects.iter().any(|it| matches!(it, Effect::NoFold { again: true, .. }));
        assert_eq!(told, !word, "XFER-12");
    }
    // Who asked for it is dead.
    let mut bench = Bench::going_round();
    bench.is_received();
    bench.reads();
    assert!(is_fetched(&bench.feed(Event::NodeGone { node: HOME })));
}

#[test]
fn a_ring_that_does_not_fit_may_go_along_a_chain() {
    let mut bench = Bench::going_round();
    let why = "their gaps differ".to_string();
    let effects = bench.feed(Event::Done(Done::Unfit { ticket: 2, why }));
    assert!(matches!(&effects[..], [.., Effect::NoFold { again: true, .. }]), "{effects:?}");
}

#[test]
fn it_is_kept_for_readers_for_a_while_and_not_if_room_is_needed() {
    for word in [true, false] {
        let mut bench = Bench::going_round();
        bench.is_received();
        if word {
            bench.is_over(true);
        }
        assert_eq!(bench.0.next_deadline(), Some(bench.0.now + RING_KEPT));
        assert_eq!(bench.feed(Event::Tick), []);
        bench.0.now = bench.0.now + RING_KEPT;
        assert_eq!(bench.feed(Event::Tick), sealed(made(1)));
        assert_eq!(bench.0.next_deadline(), None);
        assert!(is_fetched(&bench.reads()));
        assert_eq!(bench.is_over(true), [], "it came too late");
    }
    let mut bench = Bench::going_round();
    bench.is_received();
    assert_eq!(bench.feed(Event::RoomAsked), [Effect::AnswerRecall], "its asker may need it");
    bench.is_over(true);
    let effects = bench.feed(Event::RoomAsked);
    assert_eq!(effects, [sealed(made(1)), vec![Effect::AnswerRecall]].concat());
}

#[test]
fn the_next_one_gets_it_as_it_comes_and_not_when_it_is_whole() {
    let mut bench = Bench::going_round();
    let relay = Order::Relay { to: OTHER, ticket: 1, place: PLACE, offset: 0 };
    assert_eq!(bench.next_node_asks(1, 2), [Effect::Order(relay)]);
    bench.is_received();
    assert!(refused(&bench.next_node_asks(2, 2), 2), "it lies there in another order");
}

#[test]
fn the_process_gets_it_when_the_next_node_has_all_of_it() {
    let mine = TaskId { owner: ProcessId::new(ME, 0, 0), seq: 4 }.object(0);
    let going = || {
        let mut bench = Bench::new();
        let (ring, result) = (Some(Ring { at: 1, of: 3 }), Some(object(RESULT)));
        let it = Fold { made: mine, ring, result, ..fold(&[1]) };
        bench.feed(Event::FoldAsked { asker: ME, fold: Box::new(it) });
        bench.feed(Event::Ready { object: object(1), location: OPERAND });
        bench.feed(granted(1, 0, 4096, &[7]));
        let asked = Event::Asked {
            from: OTHER,
            ticket: 1,
            object: mine,
            offset: 0,
            until: u64::MAX,
            turn: 2,
            is_here: false,
        };
        bench.feed(asked);
        bench
    };
    let handed = Effect::HandOver { made: mine, location: WHOLE };
    let mut bench = going();
    assert_eq!(bench.is_received(), []);
    let sent = Event::Done(Done::Sent { to: OTHER, ticket: 1 });
    assert_eq!(bench.feed(sent.clone()), std::slice::from_ref(&handed));
    let mut bench = going();
    assert_eq!(bench.feed(sent), []);
    assert_eq!(bench.is_received(), [handed]);
    // It is given up meanwhile.
    let mut bench = going();
    bench.is_received();
    let over = Event::FoldOver { asker: ME, made: mine, sealed: false };
    assert_eq!(bench.feed(over), sealed(mine));
}
