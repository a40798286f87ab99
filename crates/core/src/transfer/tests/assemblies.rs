//! Parts of objects of other nodes, for a process of this one.

use hoplo_base::limits::{ASSEMBLIES_AT_ONCE, ASSEMBLY_AHEAD_BYTES};
use hoplo_wire::Part;

use super::*;

const ASKER: ProcessId = ProcessId::new(ME, 4, 4);
const THIRD: NodeNumber = NodeNumber::alone(4);
/// Of a room of 100 bytes.
const ROOM: Place = Place { slot: 7, offset: 0, len: 100 };

fn part(seq: u64, node: NodeNumber, from: u64, len: u64, at: u64) -> Part {
    Part { object: object(seq), node, from, len, at }
}

/// 20 bytes of an object of each of three nodes.
fn three() -> Vec<Part> {
    vec![part(1, THIRD, 5, 20, 0), part(2, HOME, 6, 20, 30), part(3, OTHER, 7, 20, 60)]
}

fn comes(ticket: u64, part: Part) -> [Effect; 2] {
    let Part { object, node: from, from: offset, len, at } = part;
    let until = offset + len;
    let order = Order::ReceivePart { ticket, from, place: ROOM, at, offset, until };
    [Effect::Order(order), Effect::Fetch { to: from, ticket, object, offset, until, turn: 0 }]
}

fn came(ticket: u64) -> Event {
    Event::Done(Done::PartCame { ticket })
}

fn not_assembled(effects: &[Effect]) -> &str {
    let [.., Effect::NotAssembled { asker: ASKER, request: 9, why }] = effects else {
        panic!("{effects:?}")
    };
    why
}

impl Bench {
    fn assembles(&mut self, request: u64, parts: Vec<Part>) -> Vec<Effect> {
        self.feed(Event::AssembleAsked { asker: ASKER, request, bytes: 100, parts })
    }

    /// It has room, and so all is fetched, for it is little. The tickets are 2, 3, 4, and the nodes those that come after this one.
    fn assembling() -> Self {
        let mut bench = Self::new();
        let wants = Effect::WantRoom { request: 1, bytes: 100, slots: 1 };
        assert_eq!(bench.assembles(9, three()), [wants]);
        let [of_third, of_home, of_other] = three().try_into().unwrap();
        let effects = bench.feed(granted(1, 0, 4096, &[7]));
        let all = [comes(2, of_home), comes(3, of_other), comes(4, of_third)].concat();
        assert_eq!(effects, all);
        bench
    }
}

#[test]
fn all_parts_come_and_the_room_is_the_askers() {
    let mut bench = Bench::assembling();
    assert_eq!(bench.feed(came(4)), []);
    assert_eq!(bench.feed(came(2)), []);
    let location = Location { slot: 7, generation: 0, offset: 0, len: 100 };
    let done = Effect::Assembled { asker: ASKER, request: 9, location };
    assert_eq!(bench.feed(came(3)), [done]);
    assert_eq!(bench.feed(Event::AssembleOver { asker: ASKER, request: 9 }), [], "it has it");
}

#[test]
fn a_part_that_cannot_be_had_ends_it_when_nothing_is_written_there_any_more() {
    let mut bench = Bench::assembling();
    let stop = |ticket| Effect::Order(Order::StopReceive { ticket });
    let enough = |to, ticket| Effect::Enough { to, ticket };
    let effects = bench.feed(no_bytes(OTHER, 3));
    let all =
        [[enough(HOME, 2), stop(2)], [enough(OTHER, 3), stop(3)], [enough(THIRD, 4), stop(4)]];
    assert_eq!(effects, all.concat());
    assert_eq!(bench.feed(no_bytes(HOME, 2)), []);
    assert_eq!(bench.feed(stopped(3, 7)), []);
    assert_eq!(bench.feed(came(2)), [], "it was faster");
    let effects = bench.feed(stopped(4, 5));
    assert_eq!(effects[0], Effect::ReturnRoom { offset: 0, len: 4096 });
    assert!(not_assembled(&effects).contains("it is not here"), "{effects:?}");
}

#[test]
fn what_stops_by_itself_ends_it_and_its_source_hears_so() {
    let mut bench = Bench::assembling();
    let effects = bench.feed(stopped(4, 9));
    assert_eq!(effects[0], Effect::Enough { to: THIRD, ticket: 4 });
    assert_eq!(effects.len(), 5, "the two others are stopped: {effects:?}");
}

#[test]
fn nobody_else_is_believed_to_have_no_bytes() {
    let mut bench = Bench::assembling();
    assert_eq!(bench.feed(no_bytes(HOME, 3)), []);
}

#[test]
fn the_death_of_a_source_ends_it_and_of_another_node_does_not() {
    let mut bench = Bench::assembling();
    assert_eq!(bench.feed(Event::NodeGone { node: NodeNumber::alone(9) }), []);
    assert_eq!(bench.feed(came(4)), []);
    assert_eq!(bench.feed(Event::NodeGone { node: THIRD }), [], "its part is here");
    assert!(!bench.feed(Event::NodeGone { node: HOME }).is_empty());
    bench.feed(stopped(2, 6));
    assert!(not_assembled(&bench.feed(stopped(3, 7))).contains("died"));
}

#[test]
fn who_gives_up_or_is_gone_gets_nothing() {
    let gone = Event::ProcessGone { process: ASKER };
    for end in [Event::AssembleOver { asker: ASKER, request: 9 }, gone] {
        let mut bench = Bench::assembling();
        bench.feed(end.clone());
        for ticket in [2, 3] {
            assert_eq!(bench.feed(came(ticket)), []);
        }
        not_assembled(&bench.feed(came(4)));
        // While it waits for room.
        let mut bench = Bench::new();
        bench.assembles(9, three());
        assert_eq!(bench.feed(end.clone()), []);
        let effects = bench.feed(granted(1, 0, 4096, &[7]));
        assert_eq!(effects[0], Effect::ReturnRoom { offset: 0, len: 4096 });
        not_assembled(&effects);
    }
}

#[test]
fn without_room_in_memory_it_is_not_made() {
    let mut bench = Bench::new();
    bench.assembles(9, three());
    let failure = Failure::new(FailureKind::OutOfDisk, "full");
    assert_eq!(not_assembled(&bench.feed(Event::Denied { request: 1, failure })), "full");
    bench.assembles(9, three());
    let effects = bench.feed(Event::FileGranted { request: 2, offset: 1 << 20, len: 100, slot: 7 });
    assert!(not_assembled(&effects).contains("in memory"), "{effects:?}");
}

#[test]
fn large_parts_come_two_at_a_time() {
    let mut bench = Bench::new();
    let len = ASSEMBLY_AHEAD_BYTES;
    let parts = [HOME, OTHER, THIRD, THIRD];
    let parts = parts.iter().zip(0..).map(|(node, at)| part(at, *node, 0, len, at * len));
    let bytes = 4 * len;
    bench.feed(Event::AssembleAsked { asker: ASKER, request: 9, bytes, parts: parts.collect() });
    let fetched = |effects: &[Effect]| {
        let to = |effect: &Effect| match effect {
            Effect::Fetch { to, .. } => Some(*to),
            _ => None,
        };
        effects.iter().filter_map(to).collect::<Vec<_>>()
    };
    assert_eq!(fetched(&bench.feed(granted(1, 0, bytes, &[7]))), [HOME, OTHER]);
    assert_eq!(fetched(&bench.feed(came(3))), [THIRD]);
    assert_eq!(fetched(&bench.feed(came(2))), [THIRD]);
    assert_eq!(fetched(&bench.feed(came(4))), []);
    assert!(matches!(bench.feed(came(5))[..], [Effect::Assembled { .. }]));
}

#[test]
fn others_wait_for_their_turn() {
    let mut bench = Bench::new();
    let many = ASSEMBLIES_AT_ONCE as u64;
    for request in 0..=many {
        let asks = usize::from(request < many);
        assert_eq!(bench.assembles(request, three()).len(), asks);
    }
    // One that waits is given up, and another one comes.
    let effects = bench.feed(Event::AssembleOver { asker: ASKER, request: many });
    assert!(matches!(effects[..], [Effect::NotAssembled { .. }]));
    assert_eq!(bench.assembles(many + 1, three()), []);
    let again = bench.assembles(many + 1, three());
    assert!(matches!(again[..], [Effect::NotAssembled { .. }]), "{again:?}");
    let failure = Failure::new(FailureKind::OutOfDisk, "full");
    let effects = bench.feed(Event::Denied { request: 1, failure });
    assert!(matches!(effects[1], Effect::WantRoom { .. }), "{effects:?}");
}

/// A part of an object is sent to its end, and not further.
#[test]
fn a_part_is_sent_as_it_was_asked_for() {
    let mut bench = Bench::new();
    let (from, object, is_here) = (OTHER, object(1), false);
    let asked = Event::Asked { from, ticket: 1, object, offset: 5, until: 25, turn: 0, is_here };
    bench.feed(asked);
    let effects = bench.feed(Event::Ready { object, location: LOCATION });
    let (to, location) = (OTHER, LOCATION);
    let send = Order::Send { to, ticket: 1, location, offset: 5, until: 25, made: false };
    assert_eq!(effects, [Effect::Order(send)]);
    // What is not all here is not waited for.
    let mut bench = Bench::receiving(&[HOME]);
    let asked = Event::Asked { from, ticket: 1, object, offset: 5, until: 25, turn: 0, is_here };
    assert!(matches!(bench.feed(asked)[..], [Effect::NoBytes { .. }]));
}
