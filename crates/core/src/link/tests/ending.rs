//! Ends of a link: who forgot, who died, who is another life.

use hoplo_base::limits;

use super::super::{
    Connection, Effect, Event, Hello, Links, LostWhy, Message, Refusal, SendError, Socket, Token,
    Trouble, Unacknowledged,
};
use super::alone::{at, hello_of, links, said};
use super::{Frame, World, after_a_talk, ms, number};

const TALK: Socket = Socket::Talk;

#[test]
fn a_peer_that_forgot_makes_the_sender_hear_what_is_lost() {
    let mut world = after_a_talk();
    world.delay = ms(10);
    world.send(0, TALK, 20);
    world.restart(1, number(2));
    world.send(0, TALK, 21);
    world.settle();
    assert_eq!(world.sides[0].lost, 1);
    let told = world.fates.values().filter(|fate| fate.may_have_arrived).count();
    assert_eq!(told, 2);
    world.send(0, TALK, 20);
    let before = world.delivered_count();
    world.pass(ms(100));
    assert_eq!(world.delivered_count(), before + 1, "the new link works");
}

#[test]
fn who_forgot_and_speaks_first_makes_the_other_hear_it_as_well() {
    let mut world = after_a_talk();
    world.restart(1, number(2));
    world.send(1, TALK, 20);
    world.pass(ms(200));
    assert_eq!(world.sides[0].lost, 1, "frames of the old memory may be missing");
    assert_eq!(world.delivered_count(), 3);
}

#[test]
fn a_hello_that_names_an_older_half_moves_no_counter() {
    let mut links = links();
    let mut effects = Vec::new();
    let connection = Connection::Accepted(1);
    let hello = hello_of(number(2), Token(9), Some(Token(12345)));
    let hello = Hello { received: 7, ..hello };
    links.handle(at(0), Event::Accepted { connection, hello }, &mut effects);
    links.check();
    let [Effect::Write { message: Message::Refused(Refusal::Forgotten { mine }), .. }, close] =
        &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*close, Effect::Close { connection });
    assert_ne!(*mine, Token(12345));
}

#[test]
fn a_late_hello_of_an_older_memory_does_not_mix_two_links() {
    let (mut links, mut effects) = (links(), Vec::new());
    let accept = |links: &mut Links<Frame>, count: u64, hello: Hello, effects: &mut Vec<_>| {
        effects.clear();
        let connection = Connection::Accepted(count);
        links.handle(at(count), Event::Accepted { connection, hello }, effects);
        links.check();
        connection
    };
    let now = hello_of(number(2), Token(9), None);
    let connection = accept(&mut links, 1, now, &mut effects);
    let Effect::Write { message: Message::Welcome(welcome), .. } = &effects[0] else {
        panic!("{effects:?}");
    };
    let mine = welcome.mine;
    let message = Message::Frame { count: 1, upto: 0, frame: vec![1] };
    links.handle(at(1), Event::Received { connection, message }, &mut effects);
    accept(&mut links, 2, hello_of(number(2), Token(8), None), &mut effects);
    assert!(effects.iter().any(|it| matches!(it, Effect::Lost { .. })), "{effects:?}");
    // The peer that lives knows of no end, and goes on at frame 2 until it has heard of it.
    for dial in [2, 3] {
        let goes_on = Hello { dial, ..hello_of(number(2), Token(9), Some(mine)) };
        accept(&mut links, 1 + dial, goes_on, &mut effects);
        let forgotten = |it: &Effect<Frame>| {
            matches!(it, Effect::Write { message: Message::Refused(Refusal::Forgotten { .. }), .. })
        };
        assert!(effects.iter().any(forgotten), "{effects:?}");
    }
    let begins = Hello { dial: 4, ..hello_of(number(2), Token(11), None) };
    accept(&mut links, 5, begins, &mut effects);
    let welcome =
        |it: &Effect<Frame>| matches!(it, Effect::Write { message: Message::Welcome(_), .. });
    assert!(effects.iter().any(welcome), "{effects:?}");
}

#[test]
fn a_late_welcome_of_an_older_memory_opens_nothing() {
    let (mut links, mut effects) = (links(), Vec::new());
    links.send(at(0), number(2), TALK, vec![1], &mut effects).unwrap();
    let dialed = Connection::Dialed(1);
    links.handle(at(0), Event::Dialed { connection: dialed }, &mut effects);
    let mine = said(&effects);
    let newer = Hello { socket: Socket::Bulk, ..hello_of(number(2), Token(10), None) };
    let connection = Connection::Accepted(1);
    links.handle(at(1), Event::Accepted { connection, hello: newer }, &mut effects);
    effects.clear();
    let message = Message::Welcome(hello_of(number(2), Token(9), Some(mine)));
    links.handle(at(2), Event::Received { connection: dialed, message }, &mut effects);
    links.check();
    assert_eq!(effects, [Effect::Close { connection: dialed }], "and it is dialled again");
    assert!(links.next_deadline().unwrap() < at(2) + limits::LINK_REDIAL_LAST);
}

#[test]
fn a_dead_peer_takes_nothing_more_and_all_it_did_not_acknowledge_is_told() {
    let mut world = World::new();
    world.reach = [false; 2];
    (0..3).for_each(|_| world.send(0, TALK, 20));
    world.pass(ms(5000));
    let troubles = &world.sides[0].troubles;
    assert!(troubles.iter().all(|it| *it == Trouble::Refused), "{troubles:?}");
    assert!((4..20).contains(&troubles.len()), "it backs off: {} tries", troubles.len());
    world.handle(0, Event::Dead { number: number(2) });
    assert!(world.fates.values().all(|fate| fate.never_sent && !fate.may_have_arrived));
    let links = &mut world.sides[0].links;
    let again = links.send(world.now, number(2), TALK, vec![7], &mut Vec::new());
    assert_eq!(again, Err(SendError::Dead(vec![7])));
    assert_eq!(links.next_deadline(), None, "nobody dials the dead");
}

#[test]
fn who_was_declared_dead_is_refused_and_learns_so() {
    let mut world = after_a_talk();
    world.handle(0, Event::Epoch { epoch: 8 });
    world.handle(0, Event::Dead { number: number(2) });
    world.pass(ms(10));
    assert!(world.sides[1].fenced, "on the connection that it has");
    world.sides[1].fenced = false;
    world.send(1, TALK, 30);
    world.pass(ms(100));
    assert!(world.sides[1].fenced, "and by each hello");
    assert_eq!(world.delivered_count(), 2);
}

#[test]
fn a_dead_life_whose_connection_is_cut_has_its_hello_refused_with_the_reason() {
    let mut links = links();
    links.handle(at(0), Event::Dead { number: number(2) }, &mut Vec::new());
    links.handle(at(0), Event::Epoch { epoch: 8 }, &mut Vec::new());
    let (connection, mut effects) = (Connection::Accepted(1), Vec::new());
    let hello = hello_of(number(2), Token(9), None);
    links.handle(at(1), Event::Accepted { connection, hello }, &mut effects);
    let message = Message::Refused(Refusal::Dead { number: number(2), epoch: 8 });
    assert_eq!(effects, [Effect::Write { connection, message }, Effect::Close { connection }]);
}

#[test]
fn another_life_at_the_same_address_is_not_taken_for_the_peer() {
    let mut world = after_a_talk();
    world.restart(1, number(3));
    world.pass(ms(5));
    world.send(0, TALK, 20);
    world.pass(ms(100));
    let other = Trouble::AnotherLife { number: number(3) };
    assert!(world.sides[0].troubles.contains(&other), "{:?}", world.sides[0].troubles);
    assert_eq!((world.delivered_count(), world.sides[0].lost), (2, 0), "the verdict decides");
    world.told_of_death(0);
    let lost: Vec<_> = world.fates.values().filter(|it| !it.delivered).collect();
    assert!(lost.iter().all(|it| it.never_sent || it.may_have_arrived) && lost.len() == 1);
}

#[test]
fn the_end_of_a_link_says_what_was_never_sent() {
    let (mut links, mut effects) = (links(), Vec::new());
    links.send(at(0), number(2), TALK, vec![1], &mut effects).unwrap();
    links.send(at(0), number(2), Socket::Bulk, vec![2], &mut effects).unwrap();
    effects.clear();
    links.handle(at(1), Event::Dead { number: number(2) }, &mut effects);
    let never = |frame| Unacknowledged { may_have_arrived: vec![], never_sent: vec![frame] };
    let (talk, bulk) = (never(vec![1]), never(vec![2]));
    let lost = Effect::Lost { peer: number(2), why: LostWhy::Dead, talk, bulk };
    assert!(effects.contains(&lost), "{effects:?}");
}
