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
