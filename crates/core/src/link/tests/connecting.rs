//! Which connection is the link's, and when there is one.

use hoplo_base::limits;

use super::super::{
    Connection, Effect, End, Event, Hello, Links, Message, Refusal, Socket, Token, Trouble, VERSION,
};
use super::alone::{at, hello_of, links, open};
use super::{Frame, World, after_a_talk, ms, number};

const TALK: Socket = Socket::Talk;

#[test]
fn of_two_that_dial_at_once_one_connection_a_socket_survives() {
    for delay in [0, 1, 7] {
        let mut world = World::new();
        world.delay = ms(delay);
        for socket in Socket::ALL {
            (0..2).for_each(|from| world.send(from, socket, 10));
        }
        world.pass(ms(200));
        let open = world.open();
        let dialers: Vec<usize> = open.iter().map(|wire| world.wires[wire].dialer).collect();
        assert_eq!(dialers, [0, 0], "the lower number's dials stay");
        assert_eq!((world.wires.len(), world.delivered_count()), (2, 4));
        world.settle();
    }
}

#[test]
fn a_connection_that_was_opened_before_there_is_a_frame_carries_it_at_once() {
    let mut world = World::new();
    world.open_for(0, Socket::Bulk);
    world.pass(ms(10));
    assert_eq!(world.open().len(), 1);
    world.open_for(0, Socket::Bulk);
    world.send(0, Socket::Bulk, 10);
    world.pass(world.delay);
    assert_eq!((world.delivered_count(), world.wires.len()), (1, 1));
    world.pass(limits::LINK_IDLE * 2);
    assert_eq!(world.wires.len(), 0, "it is closed when it was not used for long");
    // Nobody is there: it is not dialled again, since there is nothing to say.
    world.reach = [false; 2];
    world.open_for(0, Socket::Bulk);
    world.pass(ms(3_000));
    assert_eq!((world.wires.len(), world.sides[0].troubles.len()), (0, 1));
}

#[test]
fn where_only_the_higher_number_gets_through_its_dial_is_the_one() {
    let mut world = World::new();
    world.reach[0] = false;
    (0..2).for_each(|from| world.send(from, TALK, 10));
    world.pass(ms(100));
    assert_eq!(world.delivered_count(), 2);
    assert_eq!(world.wires[&world.open()[0]].dialer, 1);
}

/// Nothing was wrong with its sender, and people were told so.
#[test]
fn a_hello_that_a_later_connection_overtook_was_taken_for_nonsense() {
    let (mut links, mut effects) = (links(), Vec::new());
    let connection = open(&mut links, &mut effects);
    let message = Message::Ack { upto: 1 };
    links.handle(at(2), Event::Received { connection, message }, &mut effects);
    links.handle(at(3), Event::Closed { connection, how: End::Broken }, &mut effects);
    effects.clear();
    let late = Connection::Accepted(1);
    let hello = hello_of(number(2), Token(9), None);
    links.handle(at(4), Event::Accepted { connection: late, hello }, &mut effects);
    let refused = Message::Refused(Refusal::Crossed);
    assert!(effects.contains(&Effect::Write { connection: late, message: refused }));
    let told = effects.iter().any(|effect| matches!(effect, Effect::Trouble { .. }));
    assert!(!told, "{effects:?}");
    links.check();
}

#[test]
fn a_dial_that_is_never_answered_does_not_keep_the_spare_for_ever() {
    let mut links = links();
    let mut effects = Vec::new();
    links.send(at(0), number(2), TALK, vec![1], &mut effects).unwrap();
    let (dialed, spare) = (Connection::Dialed(1), Connection::Accepted(1));
    links.handle(at(1), Event::Dialed { connection: dialed }, &mut effects);
    effects.clear();
    let hello = hello_of(number(2), Token(9), None);
    links.handle(at(2), Event::Accepted { connection: spare, hello }, &mut effects);
    assert_eq!(effects, [], "its own dial may still be answered");
    links.check();
    let late = at(0) + limits::NET_OPENS_WITHIN;
    links.handle(late, Event::Tick, &mut effects);
    links.check();
    let of_spare = |effect: &&Effect<Frame>| matches!(effect, Effect::Write { connection, message: Message::Welcome(_) } if *connection == spare);
    assert!(effects.iter().any(|effect| of_spare(&effect)), "{effects:?}");
    assert!(effects.contains(&Effect::Close { connection: dialed }));
}

#[test]
fn a_hello_that_was_overtaken_does_not_replace_the_connection_in_use() {
    let mut links = links();
    let mut effects = Vec::new();
    let accept = |links: &mut Links<Frame>, count: u64, dial: u64, effects: &mut Vec<_>| {
        let hello = Hello { dial, ..hello_of(number(2), Token(9), None) };
        let connection = Connection::Accepted(count);
        links.handle(at(0), Event::Accepted { connection, hello }, effects);
        links.check();
        connection
    };
    let first = accept(&mut links, 1, 5, &mut effects);
    effects.clear();
    let stale = accept(&mut links, 2, 4, &mut effects);
    let message = Message::Refused(Refusal::Crossed);
    let refused =
        [Effect::Write { connection: stale, message }, Effect::Close { connection: stale }];
    assert_eq!(effects, refused);
    effects.clear();
    accept(&mut links, 3, 6, &mut effects);
    assert_eq!(effects[0], Effect::Close { connection: first }, "the peer gave that one up");
}

#[test]
fn a_hello_from_before_the_peer_took_my_connection_does_not_replace_it() {
    for (seen, replaces) in [(0, false), (1, true)] {
        let (mut links, mut effects) = (links(), Vec::new());
        let mine = open(&mut links, &mut effects);
        let hello = Hello { seen, ..hello_of(number(2), Token(9), None) };
        let theirs = Connection::Accepted(1);
        links.handle(at(2), Event::Accepted { connection: theirs, hello }, &mut effects);
        links.check();
        let closed = if replaces { mine } else { theirs };
        assert!(effects.contains(&Effect::Close { connection: closed }), "{seen}: {effects:?}");
        let closes = effects.iter().filter(|it| matches!(it, Effect::Close { .. })).count();
        assert_eq!(closes, 1);
    }
}

#[test]
fn another_version_is_refused_and_told() {
    let mut links = links();
    let (connection, mut effects) = (Connection::Accepted(1), Vec::new());
    let hello = Hello { version: VERSION + 1, ..hello_of(number(2), Token(9), None) };
    links.handle(at(0), Event::Accepted { connection, hello }, &mut effects);
    let message = Message::Refused(Refusal::Version { version: VERSION });
    assert_eq!(effects[0], Effect::Write { connection, message });
}

#[test]
fn connections_that_open_and_break_at_once_are_not_dialled_in_a_circle() {
    let mut links = links();
    let mut effects = Vec::new();
    let mut now = at(0);
    links.send(now, number(2), TALK, vec![1], &mut effects).unwrap();
    let mut dials = 0;
    while now < at(5000) {
        let dialed: Vec<_> = effects
            .drain(..)
            .filter_map(|effect| match effect {
                Effect::Dial { connection, .. } => Some(connection),
                _ => None,
            })
            .collect();
        for connection in dialed {
            dials += 1;
            links.handle(now, Event::Dialed { connection }, &mut effects);
            let yours = effects.iter().find_map(|effect| match effect {
                Effect::Write { message: Message::Hello(hello), .. } => Some(hello.mine),
                _ => None,
            });
            let welcome = Message::Welcome(hello_of(number(2), Token(9), yours));
            links.handle(now, Event::Received { connection, message: welcome }, &mut effects);
            links.handle(now, Event::Closed { connection, how: End::Broken }, &mut effects);
        }
        now = links.next_deadline().unwrap();
        links.handle(now, Event::Tick, &mut effects);
        links.check();
    }
    assert!((4..20).contains(&dials), "{dials} dials in five seconds");
}

#[test]
fn a_connection_that_was_of_use_is_dialled_again_at_once() {
    let (mut links, mut effects) = (links(), Vec::new());
    let connection = open(&mut links, &mut effects);
    let message = Message::Ack { upto: 1 };
    links.handle(at(3), Event::Received { connection, message }, &mut effects);
    links.send(at(4), number(2), TALK, vec![2], &mut effects).unwrap();
    effects.clear();
    links.handle(at(5), Event::Closed { connection, how: End::Broken }, &mut effects);
    let connection = Connection::Dialed(2);
    let again = Effect::Dial { connection, peer: number(2), socket: TALK };
    assert_eq!(effects, [Effect::Trouble { peer: number(2), what: Trouble::Broken }, again]);
}

#[test]
fn an_idle_connection_closes_and_opens_again_on_demand() {
    let mut world = after_a_talk();
    world.pass(limits::LINK_IDLE - ms(1000));
    assert_eq!(world.open().len(), 1);
    world.pass(ms(2000));
    assert_eq!((world.open().len(), world.air.len()), (0, 0));
    assert!(world.sides.iter().all(|side| side.troubles.is_empty()), "that is no trouble");
    assert!(world.sides.iter().all(|side| side.links.next_deadline().is_none()));
    world.send(1, TALK, 10);
    world.pass(ms(10));
    assert_eq!(world.delivered_count(), 3);
    assert_eq!((world.sides[0].lost, world.sides[1].lost), (0, 0), "the link itself stayed");
}

#[test]
fn a_frame_that_crosses_the_goodbye_is_sent_again() {
    let mut world = after_a_talk();
    let wait = world.sides.iter().filter_map(|side| side.links.next_deadline()).min().unwrap();
    world.pass(wait - world.now);
    world.send(1, TALK, 10);
    world.send(0, TALK, 10);
    world.settle();
    assert_eq!(world.delivered_count(), 4);
}

#[test]
fn a_peer_that_acknowledges_nothing_for_long_keeps_its_connection() {
    let (mut links, mut effects) = (links(), Vec::new());
    open(&mut links, &mut effects);
    links.handle(at(0) + limits::LINK_IDLE * 2, Event::Tick, &mut effects);
    assert_eq!(effects, [], "it may be stopped: the members decide");
}

#[test]
fn a_peer_that_knows_a_later_membership_is_worth_a_look_at_the_store() {
    let (mut links, mut effects) = (links(), Vec::new());
    let hello = Hello { epoch: 4, ..hello_of(number(2), Token(9), None) };
    let connection = Connection::Accepted(1);
    links.handle(at(0), Event::Accepted { connection, hello }, &mut effects);
    assert_eq!(effects[0], Effect::Behind { epoch: 4 });
}
