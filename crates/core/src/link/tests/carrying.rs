//! Frames: counted, held, acknowledged, bounded.

use hoplo_base::limits;

use super::super::{
    Connection, Effect, Event, Links, Message, Options, SendError, Socket, Token, Trouble,
};
use super::alone::{at, hello_of, links, open};
use super::{Frame, World, after_a_talk, ms, number};

const TALK: Socket = Socket::Talk;

#[test]
fn a_connection_that_loses_its_tail_is_taken_up_where_it_broke() {
    for keep in 0..6 {
        let mut world = after_a_talk();
        for _ in 0..5 {
            world.send(0, TALK, 100);
        }
        let wire = world.open()[0];
        world.cut(wire, keep);
        world.pass(ms(200));
        assert_eq!(world.delivered_count(), 7, "keep {keep}");
        assert_eq!((world.sides[0].lost, world.sides[1].lost), (0, 0));
    }
}

#[test]
fn a_full_window_gives_the_frame_back_and_tells_when_there_is_room() {
    let mut world = World::new();
    world.reach = [false; 2];
    (0..40).for_each(|_| world.send(0, TALK, 100));
    assert!(world.sides[0].waiting[0].len() > 30);
    world.settle();
    assert_eq!(world.delivered_count(), 40);
}

#[test]
fn a_frame_that_no_window_ever_takes_is_said_to_be_too_long() {
    let (mut links, mut effects) = (links(), Vec::new());
    let result = links.send(at(0), number(2), TALK, vec![0; 257], &mut effects);
    assert_eq!(result, Err(SendError::TooLong(vec![0; 257])));
    assert!(links.send(at(0), number(2), TALK, vec![0; 256], &mut effects).is_ok());
}

#[test]
fn a_window_counts_frames_without_bytes() {
    let (mut links, mut effects) = (links(), Vec::new());
    let mut send = |_| links.send(at(0), number(2), TALK, Vec::new(), &mut effects);
    assert_eq!((0..100).take_while(|it| send(*it).is_ok()).count(), 1024 / 64);
}

#[test]
fn bulk_that_does_not_move_delays_no_talk() {
    let mut world = World::new();
    (0..60).for_each(|_| world.send(0, Socket::Bulk, 250));
    world.pass(ms(3));
    let bulk = *world.wires.keys().next().unwrap();
    // What is on the way over that wire takes a second more.
    let late: Vec<_> = world.air.keys().copied().collect();
    for key in late {
        let (wire, end, what) = world.air.remove(&key).unwrap();
        let on_bulk = wire == bulk;
        let at = if on_bulk { key.0 + ms(1000) } else { key.0 };
        world.wires.get_mut(&wire).unwrap().last_at[end] = at;
        world.air.insert((at, key.1), (wire, end, what));
    }
    let before = world.delivered_count();
    world.send(0, TALK, 10);
    world.pass(ms(10));
    assert_eq!(world.delivered_count(), before + 1);
    world.settle();
    assert_eq!(world.delivered_count(), 61);
}

#[test]
fn what_is_received_is_acknowledged_alone_after_a_while_or_by_the_answer() {
    let mut world = World::new();
    world.send(0, TALK, 10);
    world.pass(ms(15));
    assert_eq!(world.acks_alone, 0, "an answer may still carry it");
    world.send(1, TALK, 10);
    world.pass(ms(50));
    assert_eq!(world.acks_alone, 1, "that of the answer");
    assert!(world.explain(0).contains("connected, 0 bytes not acknowledged"));
}

#[test]
fn an_idle_link_takes_little_memory_whatever_it_carried() {
    let mut world = World::new();
    for _ in 0..200 {
        world.send(0, Socket::Bulk, 0);
        world.send(1, Socket::Bulk, 0);
    }
    world.settle();
    for side in &world.sides {
        let bytes = side.links.memory_bytes(side.peer);
        assert!((1..limits::LINK_IDLE_BYTES_MAX).contains(&bytes), "{bytes}");
    }
}

#[test]
fn a_peer_that_talks_nonsense_loses_its_connection_and_nothing_is_delivered() {
    let frame = |count| Message::Frame { count, upto: 0, frame: vec![1] };
    let nonsense: [Message<Frame>; 5] = [
        frame(2),
        Message::Frame { count: 1, upto: 1, frame: vec![1] },
        Message::Ack { upto: 1 },
        Message::Welcome(hello_of(number(2), Token(9), None)),
        Message::Hello(hello_of(number(2), Token(9), None)),
    ];
    for message in nonsense {
        let (mut links, mut effects) = (links(), Vec::new());
        let connection = Connection::Accepted(1);
        let hello = hello_of(number(2), Token(9), None);
        links.handle(at(0), Event::Accepted { connection, hello }, &mut effects);
        effects.clear();
        links.handle(at(1), Event::Received { connection, message }, &mut effects);
        links.check();
        assert!(
            matches!(
                effects[..],
                [
                    Effect::Trouble { what: Trouble::Nonsense(_), .. },
                    Effect::Close { connection: Connection::Accepted(1) }
                ]
            ),
            "{effects:?}"
        );
    }
}

#[test]
fn a_table_that_was_long_gives_its_memory_back() {
    let mut links = Links::new(Options::new(number(1), Token(1)));
    let mut effects = Vec::new();
    let connection = open(&mut links, &mut effects);
    for _ in 1..20_000 {
        links.send(at(3), number(2), TALK, Vec::new(), &mut effects).unwrap();
    }
    assert!(links.memory_bytes(number(2)) > limits::LINK_IDLE_BYTES_MAX);
    let message = Message::Ack { upto: 20_000 };
    links.handle(at(4), Event::Received { connection, message }, &mut effects);
    assert!(links.memory_bytes(number(2)) < limits::LINK_IDLE_BYTES_MAX);
}
