//! Readers that are slow, and where they come in a chain.

use hoplo_wire::peer::FarValue;

use super::far::{R1, R2, R3, R4, copied, gone, home};
use super::*;

const BYTES: u64 = 1_000_000;

/// What R1 takes for an object.
const FAST: Duration = Duration::from_millis(10);

/// A sixteenth of what R2 takes.
const LATER: Duration = Duration::from_micros(2_500);

const R5: NodeNumber = NodeNumber::alone(15);

impl Bench {
    /// Sealed here.
    fn sent(&mut self, seq: u64) -> ObjectId {
        let object = home(seq);
        self.seal(object, BYTES, &[]);
        object
    }

    /// The node asks: from where it is to fetch, or nothing if it is not told yet.
    fn asks(&mut self, node: NodeNumber, object: ObjectId) -> Vec<NodeNumber> {
        let effects = self.feed(Event::FarWanted { node, object });
        told(node, &effects)
    }

    /// It has fetched it, as it was told.
    fn has(&mut self, node: NodeNumber, object: ObjectId) {
        let abroad = self.directory.records[&object].abroad.as_ref();
        let turn = abroad.map_or(0, |abroad| abroad.fetching[&node].turn);
        let copy = CopyAt { node, word: 1 };
        assert_eq!(self.feed(Event::FarCopied { copy, object, turn }), []);
    }

    /// R2 took four times as long as R1 before it; R3, behind R2, could not be faster.
    fn learn(&mut self) {
        let object = self.sent(1);
        assert_eq!(self.asks(R1, object), [HERE]);
        assert_eq!(self.asks(R2, object), [R1, HERE]);
        assert_eq!(self.asks(R3, object), [R2, R1, HERE]);
        self.pass(FAST);
        self.has(R1, object);
        self.pass(FAST * 3);
        self.has(R2, object);
        self.has(R3, object);
    }
}

fn told(node: NodeNumber, effects: &[Effect]) -> Vec<NodeNumber> {
    match effects {
        [] => vec![],
        [Effect::TellNode { node: to, value: FarValue::Stored { sources, .. }, .. }] => {
            assert_eq!(*to, node);
            sources.clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slow_reader_that_asks_first_is_the_last_of_the_chain() {
    let mut bench = Bench::new();
    bench.learn();
    let object = bench.sent(2);
    assert_eq!(bench.asks(R2, object), [], "others may come");
    assert_eq!(bench.asks(R3, object), [HERE]);
    assert_eq!(bench.asks(R1, object), [R3, HERE]);
    assert_eq!(bench.directory.next_deadline(), Some(bench.now + LATER));
    assert_eq!(told(R2, &bench.pass(LATER)), [R1, R3, HERE]);
    assert_eq!(bench.directory.next_deadline(), None);
}

#[test]
fn who_asks_later_is_sent_to_no_slow_reader_but_one_as_slow_is() {
    let mut bench = Bench::new();
    bench.learn();
    let object = bench.sent(2);
    bench.asks(R1, object);
    bench.asks(R2, object);
    assert_eq!(told(R2, &bench.pass(LATER)), [R1, HERE]);
    assert_eq!(bench.asks(R3, object), [R1, HERE], "though R2 sends to nobody");
    assert_eq!(bench.asks(R4, object), [R3, R1, HERE], "R1 sends to R3 now");
    bench.pass(FAST * 4);
    // R2 has all bytes, and yet the others are better.
    bench.has(R2, object);
    assert_eq!(bench.asks(R5, object), [R4, R3, HERE]);
}

#[test]
fn slow_readers_are_a_chain_behind_the_others() {
    let mut bench = Bench::new();
    bench.learn();
    // R3 is as slow as R2.
    bench.pass(FAST);
    let object = bench.sent(2);
    bench.asks(R3, object);
    bench.pass(FAST * 4);
    bench.has(R3, object);
    let object = bench.sent(3);
    assert_eq!((bench.asks(R2, object), bench.asks(R3, object)), (vec![], vec![]));
    assert_eq!(bench.asks(R1, object), [HERE]);
    let effects = bench.pass(LATER);
    assert_eq!(told(R2, &effects[..1]), [R1, HERE]);
    assert_eq!(told(R3, &effects[1..]), [R2, R1, HERE]);
}

#[test]
fn who_keeps_up_with_the_others_is_slow_no_more() {
    let mut bench = Bench::new();
    bench.learn();
    let object = bench.sent(2);
    bench.asks(R1, object);
    bench.asks(R2, object);
    bench.pass(LATER);
    bench.pass(FAST);
    bench.has(R1, object);
    bench.has(R2, object);
    let object = bench.sent(3);
    assert_eq!(bench.asks(R2, object), [HERE]);
}

#[test]
fn what_is_fetched_beside_other_objects_does_not_make_a_reader_slow() {
    let mut bench = Bench::new();
    bench.learn();
    let objects = [2, 3].map(|seq| bench.sent(seq));
    for object in objects {
        bench.asks(R1, object);
    }
    for object in objects {
        bench.pass(FAST * 3);
        bench.has(R1, object);
    }
    let object = bench.sent(4);
    assert_eq!(bench.asks(R1, object), [HERE]);
}

#[test]
fn a_reader_that_waits_for_its_source_to_be_replaced_is_not_slow() {
    let mut bench = Bench::new();
    bench.learn();
    let object = bench.sent(2);
    bench.asks(R1, object);
    bench.asks(R3, object);
    bench.asks(R4, object);
    bench.pass(FAST);
    bench.has(R1, object);
    bench.pass(FAST * 3);
    bench.feed(gone(R3));
    bench.has(R4, object);
    let object = bench.sent(3);
    assert_eq!(bench.asks(R4, object), [HERE]);
}

#[test]
fn small_objects_are_told_of_at_once() {
    let mut bench = Bench::new();
    bench.learn();
    let object = home(2);
    bench.seal(object, BYTES - 1, &[]);
    assert_eq!(bench.asks(R2, object), [HERE]);
    assert_eq!(bench.asks(R1, object), [R2, HERE]);
}

#[test]
fn a_slow_reader_that_dies_while_it_waits_is_forgotten() {
    let mut bench = Bench::new();
    bench.learn();
    let object = bench.sent(2);
    bench.asks(R2, object);
    bench.feed(gone(R2));
    assert_eq!(bench.directory.next_deadline(), None);
    assert_eq!(bench.pass(LATER), []);
}

/// It has what it made itself in a ring.
#[test]
fn who_need_not_fetch_it_seems_as_fast_as_before() {
    let mut bench = Bench::new();
    bench.learn();
    bench.pass(FAST);
    let object = bench.sent(2);
    bench.asks(R2, object);
    bench.pass(LATER);
    bench.feed(copied(R2, object));
    let object = bench.sent(3);
    assert_eq!(bench.asks(R2, object), []);
}

#[test]
fn a_node_is_slow_until_what_many_make_together_is_fast_past_it() {
    let mut bench = Bench::new();
    bench.learn();
    let passes = |bench: &mut Bench, took| {
        let since = bench.now;
        bench.pass(took);
        bench.feed(Event::PassedSlow { node: R2, bytes: BYTES, since });
        bench.directory.slow_nodes()
    };
    assert_eq!(bench.directory.slow_nodes(), BTreeSet::from([R2]));
    assert_eq!(passes(&mut bench, FAST * 4), BTreeSet::from([R2]));
    assert_eq!(passes(&mut bench, FAST * 2), BTreeSet::new());
}

// ---- who lags in a chain ----

impl Bench {
    /// R1 to R4 fetch it, one from the other; `by` says that the node lags.
    fn chain(&mut self, seq: u64) -> ObjectId {
        let object = self.sent(seq);
        for node in [R1, R2, R3, R4] {
            self.asks(node, object);
        }
        object
    }

    fn turn(&self, object: ObjectId, node: NodeNumber) -> u64 {
        self.directory.records[&object].abroad.as_ref().unwrap().fetching[&node].turn
    }

    /// Who is told other sources: in turn `now`, if that is another one.
    fn lags(
        &mut self,
        by: NodeNumber,
        node: NodeNumber,
        object: ObjectId,
    ) -> Vec<(NodeNumber, Option<u64>, Vec<NodeNumber>)> {
        let turn = self.turn(object, node);
        let effects = self.feed(Event::FarLags { by, node, object, turn });
        let one = |effect| match effect {
            Effect::TellSources { node, turn, now, sources, .. } => {
                (node, Some(now).filter(|now| *now != turn), sources)
            }
            other => panic!("{other:?}"),
        };
        effects.into_iter().map(one).collect()
    }
}

#[test]
fn who_is_said_to_lag_and_does_not_fetch_there_is_where_it_was() {
    let mut bench = Bench::new();
    let object = bench.chain(1);
    assert_eq!(bench.lags(R3, R2, object), [], "it fetches from R1");
    let turn = bench.turn(object, R2);
    for (object, turn) in [(object, turn + 7), (home(9), turn)] {
        assert_eq!(bench.feed(Event::FarLags { by: R1, node: R2, object, turn }), []);
    }
    let word = Event::FarLags { by: R1, node: R2, object, turn };
    bench.has(R2, object);
    assert_eq!(bench.feed(word), [], "it has all of it");
}

#[test]
fn who_lags_goes_to_the_end_of_the_chain_and_the_others_close_up() {
    let mut bench = Bench::new();
    let object = bench.chain(1);
    let last = Some(bench.turn(object, R4) + 1);
    let told = [(R3, None, vec![R1, HERE]), (R2, last, vec![R4, R3, HERE])];
    assert_eq!(bench.lags(R1, R2, object), told);
    assert_eq!(bench.lags(R4, R2, object), [], "nobody is behind it");
    assert_eq!(bench.asks(R5, object), [R4, R3, HERE], "R2 does not count");
}

/// Seed 4350209: that node's copy had gone, so who was told to fetch there went on elsewhere, and was asked by that node then. It was told to fetch from itself.
#[test]
fn who_relays_it_to_the_node_that_it_was_told_to_fetch_from_stays_where_it_is() {
    let mut bench = Bench::new();
    let object = bench.chain(1);
    bench.feed(Event::FarNotCopied { node: R1, object });
    let turn = bench.turn(object, R4);
    let record = bench.directory.records.get_mut(&object).unwrap();
    record.abroad().begin_fetching(R1, turn, R2, bench.now);
    let told = bench.lags(R2, R1, object);
    assert!(told.iter().all(|(node, _, sources)| !sources.contains(node)), "{told:?}");
}

#[test]
fn who_is_the_last_one_and_lags_is_sent_on_to_nobody() {
    let mut bench = Bench::new();
    let object = bench.chain(1);
    assert_eq!(bench.lags(R3, R4, object), []);
    assert_eq!(bench.asks(R5, object), [R3, R2, HERE]);
}

#[test]
fn two_that_lag_are_both_behind_the_others() {
    let mut bench = Bench::new();
    let object = bench.chain(1);
    bench.lags(R1, R2, object);
    let told = bench.lags(R1, R3, object);
    let last = Some(bench.turn(object, R4) + 2);
    assert_eq!(told, [(R4, None, vec![R1, HERE]), (R3, last, vec![R4, R1, HERE])]);
}

#[test]
fn who_lagged_is_slow_the_next_time_and_those_behind_it_are_not() {
    let mut bench = Bench::new();
    let object = bench.chain(1);
    bench.lags(R1, R2, object);
    bench.pass(FAST);
    for node in [R1, R3, R4] {
        bench.has(node, object);
    }
    bench.pass(FAST * 3);
    bench.has(R2, object);
    let object = bench.sent(2);
    assert_eq!(bench.asks(R2, object), []);
    assert_eq!(bench.asks(R3, object), [HERE]);
}

/// It was taken for slow, and stayed behind the slow one from then on, where it could be no faster.
#[test]
fn who_ends_long_after_a_slow_source_is_not_slow_by_that() {
    let mut bench = Bench::new();
    let object = bench.chain(1);
    bench.pass(FAST);
    bench.has(R1, object);
    bench.pass(FAST * 3);
    bench.has(R2, object);
    bench.pass(FAST * 2);
    bench.has(R3, object);
    bench.has(R4, object);
    let object = bench.sent(2);
    assert_eq!(bench.asks(R3, object), [HERE]);
}
