//! One machine by hand: its peer is what a test says that it says.

use hoplo_base::{Instant, NodeNumber};

use super::super::{Connection, Effect, Event, Hello, Links, Message, Socket, Token, VERSION};
use super::{Frame, ms, number, options};

pub(super) fn at(milliseconds: u64) -> Instant {
    Instant::ZERO + ms(milliseconds)
}

pub(super) fn links() -> Links<Frame> {
    Links::new(options(number(1), 1))
}

pub(super) fn hello_of(from: NodeNumber, mine: Token, yours: Option<Token>) -> Hello {
    Hello {
        version: VERSION,
        from,
        to: number(1),
        socket: Socket::Talk,
        epoch: 0,
        mine,
        yours,
        received: 0,
        dial: 1,
        seen: 0,
    }
}

/// Its dial, welcomed by a peer that has received nothing; one frame is on the way.
pub(super) fn open(links: &mut Links<Frame>, effects: &mut Vec<Effect<Frame>>) -> Connection {
    links.send(at(0), number(2), Socket::Talk, vec![1], effects).unwrap();
    let connection = Connection::Dialed(1);
    links.handle(at(1), Event::Dialed { connection }, effects);
    let message = Message::Welcome(hello_of(number(2), Token(9), Some(said(effects))));
    links.handle(at(1), Event::Received { connection, message }, effects);
    links.check();
    effects.clear();
    connection
}

/// The half that its hello names.
pub(super) fn said(effects: &[Effect<Frame>]) -> Token {
    let of_hello = |effect: &Effect<Frame>| match effect {
        Effect::Write { message: Message::Hello(hello), .. } => Some(hello.mine),
        _ => None,
    };
    effects.iter().find_map(of_hello).unwrap()
}
