//! Links: the resumable connections of this daemon to others, over which everything between two nodes goes.
//!
//! Frames are counted and held until the peer acknowledges them. When a connection breaks, the next one goes on after
//! the last frame that arrived. Of each socket of a pair (talk, bulk) at most one connection is the link's:
//!
//! ```text
//!   Closed --frame to send--> Dialing --Welcome--> Up --broken, frames held--> Waiting --back-off--> Dialing
//!          (or one to come)
//!     ^                          |                 |                              |
//!     |                          +-- refused, silent, broken: back-off -----------+
//!     +--- idle 60 s, Bye, broken with nothing held <---+        a hello of the peer makes any of them Up
//! ```
//!
//! **Who a link is between.** Each side names its half by a [`Token`], made when it meets the peer, and a hello says both as
//! far as its sender knows them. Equal on both sides: the link goes on where it was. A side that finds that the
//! other does not know the link any more tells its user [`Effect::Lost`], takes the next token, and begins anew at frame 1. A peer
//! that names an older half of ours is told so (`Forgotten`) and does the same. A hello or welcome that does
//! not fit moves no counter. The tokens name what both *know*, not who both are: another life has another `NodeNumber`, so it is
//! another peer, and the frames of the old one wait for the verdict of the members.
//!
//! **A broken connection is no death.** It is dialled again, with back-off, for as long as something is held, until
//! [`Event::Dead`]. Then all that was not acknowledged is told, and a hello of that number is refused with the reason for ever: a
//! number has one life. Trouble with a peer is told for the members to probe.
//!
//! **When both dial at once** each hello says the number of its dial and the newest dial of the other that its sender saw, so nothing
//! depends on when it arrives:
//! 1. A hello that does not know of the connection that I dialled and that is up, was sent before it was accepted: refused.
//! 2. A hello that is newer than the connection that the peer dialled: the peer gave that one up. It is replaced.
//! 3. Both dials are in the air: the one of the lower number stays. The higher one takes it and drops its own. The
//!    lower one keeps the other's as a spare, and takes it if its own fails, for connections may be possible in one direction only.
//!
//! **Two sockets** are two counted streams, and nothing orders them: a frame of one may arrive long before an earlier one of the other.
//! Who sends a frame on one that means something only with a frame of the other has to wait for an answer, or name it and let
//! the receiver wait. Only the end of a link is common to both, and told in one effect.
//!
//! **How fast.** The window bounds what is held, a quarter of it a frame; who finds no room gets the frame back and hears `Room`.
//! All that is held is written at once, so the window bounds what a connection queues as well. A receiver that cannot
//! go on does not read its socket: delivered is acknowledged. Acknowledgements ride on frames, or go alone after
//! 20 ms or an eighth of the window.
//!
//! The daemon's carrier will be the shell: it dials, compares certificates, encodes messages, queues what the socket does not take, and
//! sees to it that a path that swallows everything breaks (`NET_UNACKNOWLEDGED`).
//!
//! # Invariants
//! - LINK-1: of each stream, acknowledged <= written <= held, and an open connection was given all that is held.
//! - LINK-2: what is held is at most the window.
//! - LINK-3: a socket has one connection, and a spare only while the lower of the two dials.
//! - LINK-4: of a dead number nothing is kept but that it is dead.
//! - LINK-5: what is held has a connection, a dial or a time for one; what was received and not acknowledged has a time for that,
//!   or a hello to come.
//! - LINK-6: each frame that was taken is delivered once, in order, or told in `Lost`; some are both, if they may have arrived.
//!   (Between two machines: the tests.)

mod connect;
mod message;
mod pair;
mod side;
mod stream;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, NodeNumber, limits};

pub use message::{
    Connection, Effect, End, Event, Hello, Load, LostWhy, Message, Refusal, SendError, Socket,
    Token, Trouble, Unacknowledged,
};
use pair::Pair;

/// Of the messages between two links.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug)]
pub struct Options {
    pub me: NodeNumber,
    /// Where this daemon's tokens begin: drawn at random, so that those of another memory of the same number are others.
    pub first_token: Token,
    pub talk_window_bytes: usize,
    pub bulk_window_bytes: usize,
    pub acknowledged: Duration,
    pub idle: Duration,
}

impl Options {
    pub fn new(me: NodeNumber, first_token: Token) -> Self {
        Self {
            me,
            first_token,
            talk_window_bytes: limits::LINK_TALK_WINDOW_BYTES,
            bulk_window_bytes: limits::LINK_BULK_WINDOW_BYTES,
            acknowledged: limits::LINK_ACKNOWLEDGED,
            idle: limits::LINK_IDLE,
        }
    }

    fn window(&self, socket: Socket) -> usize {
        match socket {
            Socket::Talk => self.talk_window_bytes,
            Socket::Bulk => self.bulk_window_bytes,
        }
    }
}

pub struct Links<F> {
    desk: Desk,
    pairs: BTreeMap<NodeNumber, Pair<F>>,
    dead: BTreeSet<NodeNumber>,
    /// When a pair has something to do by itself.
    due: BTreeSet<(Instant, NodeNumber)>,
}

/// What all pairs share.
struct Desk {
    options: Options,
    epoch: u64,
    /// Whose they are: what is not here is closed, and says nothing any more.
    connections: BTreeMap<Connection, (NodeNumber, Socket)>,
    dials: u64,
    tokens: u64,
}

/// One event's turn.
struct Turn<'a, F> {
    now: Instant,
    desk: &'a mut Desk,
    effects: &'a mut Vec<Effect<F>>,
}

impl<F: Load> Links<F> {
    pub fn new(options: Options) -> Self {
        for socket in Socket::ALL {
            let room = options.window(socket) / 2 >= limits::LINK_FRAME_OVERHEAD;
            assert!(room, "a window takes frames of its longest kind");
        }
        let tokens = options.first_token.0;
        let connections = BTreeMap::new();
        Self {
            desk: Desk { options, epoch: 0, connections, dials: 0, tokens },
            pairs: BTreeMap::new(),
            dead: BTreeSet::new(),
            due: BTreeSet::new(),
        }
    }

    /// Opens a connection if there is none. A frame that is not taken comes back.
    pub fn send(
        &mut self,
        now: Instant,
        to: NodeNumber,
        socket: Socket,
        frame: F,
        effects: &mut Vec<Effect<F>>,
    ) -> Result<(), SendError<F>> {
        assert!(to != self.desk.options.me, "a node has no link with itself");
        if self.dead.contains(&to) {
            return Err(SendError::Dead(frame));
        }
        self.with(now, to, effects, |pair, turn| pair.send(turn, socket, frame))
    }

    /// Opens a connection if there is none, for frames that are to come.
    pub fn open(
        &mut self,
        now: Instant,
        to: NodeNumber,
        socket: Socket,
        effects: &mut Vec<Effect<F>>,
    ) {
        assert!(to != self.desk.options.me, "a node has no link with itself");
        if !self.dead.contains(&to) {
            self.with(now, to, effects, |pair, turn| pair.open(turn, socket));
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event<F>, effects: &mut Vec<Effect<F>>) {
        match event {
            Event::Dialed { connection } => {
                self.of(now, connection, effects, |pair, turn, socket| {
                    pair.on_dialed(turn, socket, connection);
                });
            }
            Event::Accepted { connection, hello } => {
                self.on_accepted(now, connection, hello, effects);
            }
            Event::Received { connection, message } => {
                self.of(now, connection, effects, |pair, turn, socket| {
                    pair.on_message(turn, socket, connection, message);
                });
            }
            Event::Closed { connection, how } => {
                self.of(now, connection, effects, |pair, turn, socket| {
                    pair.on_closed(turn, socket, connection, how);
                });
            }
            Event::Dead { number } => self.on_dead(now, number, effects),
            Event::Epoch { epoch } => self.desk.epoch = self.desk.epoch.max(epoch),
            Event::Tick => {}
        }
        while let Some((_, peer)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            let next = self.with(now, peer, effects, |pair, turn| {
                pair.on_time(turn);
                pair.due()
            });
            assert!(next.is_none_or(|at| at > now), "LINK-5: {peer} stays due");
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The connection that carries a socket of that peer, once there is one.
    pub fn connection(&self, peer: NodeNumber, socket: Socket) -> Option<Connection> {
        self.pairs.get(&peer).and_then(|pair| pair.connection(socket))
    }

    /// What the peer did not acknowledge, with what each frame takes besides its bytes.
    pub fn held_bytes(&self, peer: NodeNumber, socket: Socket) -> usize {
        self.pairs.get(&peer).map_or(0, |pair| pair.held_bytes(socket))
    }

    /// How it stands with a peer, for people.
    pub fn explain(&self, peer: NodeNumber) -> String {
        match self.pairs.get(&peer) {
            Some(pair) => pair.explain(),
            None if self.dead.contains(&peer) => format!("{peer} was declared dead"),
            None => format!("there was nothing to say between this node and {peer}"),
        }
    }

    /// What a link takes in this machine, besides the bytes of the frames that it holds.
    pub fn memory_bytes(&self, peer: NodeNumber) -> usize {
        let index = size_of::<(Instant, NodeNumber)>()
            + 3 * size_of::<(Connection, (NodeNumber, Socket))>();
        self.pairs.get(&peer).map_or(0, |pair| pair.memory_bytes() + index)
    }

    pub fn check(&self) {
        for (peer, pair) in &self.pairs {
            assert!(!self.dead.contains(peer), "LINK-4: {peer} is dead");
            pair.check(*peer, &self.desk);
            let due = pair.due().map(|at| (at, *peer));
            assert!(due.is_none_or(|due| self.due.contains(&due)), "LINK-5: {peer} is not due");
        }
        let known: usize = self.pairs.values().map(Pair::connections).sum();
        assert_eq!(known, self.desk.connections.len(), "LINK-3");
        let due = self.pairs.values().filter(|pair| pair.due().is_some()).count();
        assert_eq!(due, self.due.len(), "LINK-5");
    }

    fn on_accepted(
        &mut self,
        now: Instant,
        connection: Connection,
        hello: Hello,
        effects: &mut Vec<Effect<F>>,
    ) {
        let me = self.desk.options.me;
        let refusal = if hello.version != VERSION {
            Some(Refusal::Version { version: VERSION })
        } else if hello.to != me || hello.from == me {
            Some(Refusal::AnotherLife { number: me })
        } else if self.dead.contains(&hello.from) {
            Some(Refusal::Dead { number: hello.from, epoch: self.desk.epoch })
        } else {
            None
        };
        if let Some(why) = refusal {
            effects.push(Effect::Write { connection, message: Message::Refused(why) });
            effects.push(Effect::Close { connection });
            return;
        }
        self.with(now, hello.from, effects, |pair, turn| pair.on_hello(turn, connection, hello));
    }

    fn on_dead(&mut self, now: Instant, number: NodeNumber, effects: &mut Vec<Effect<F>>) {
        assert!(number != self.desk.options.me, "a dead node runs no links");
        if self.dead.insert(number) && self.pairs.contains_key(&number) {
            self.with(now, number, effects, |pair, turn| pair.bury(turn));
            self.pairs.remove(&number);
        }
    }

    /// What comes from a connection that is closed here is not heard.
    fn of(
        &mut self,
        now: Instant,
        connection: Connection,
        effects: &mut Vec<Effect<F>>,
        act: impl FnOnce(&mut Pair<F>, &mut Turn<'_, F>, Socket),
    ) {
        if let Some((peer, socket)) = self.desk.connections.get(&connection).copied() {
            self.with(now, peer, effects, |pair, turn| act(pair, turn, socket));
        }
    }

    fn with<R>(
        &mut self,
        now: Instant,
        peer: NodeNumber,
        effects: &mut Vec<Effect<F>>,
        act: impl FnOnce(&mut Pair<F>, &mut Turn<'_, F>) -> R,
    ) -> R {
        let desk = &mut self.desk;
        let pair = self.pairs.entry(peer).or_insert_with(|| Pair::new(peer, desk.token()));
        let due = pair.due();
        let result = act(pair, &mut Turn { now, desk, effects });
        let next = pair.due();
        if due != next {
            due.into_iter().for_each(|at| assert!(self.due.remove(&(at, peer)), "LINK-5"));
            self.due.extend(next.map(|at| (at, peer)));
        }
        result
    }
}

impl Desk {
    /// One that was never given before.
    fn token(&mut self) -> Token {
        self.tokens = self.tokens.wrapping_add(1);
        Token(self.tokens)
    }
}

impl<F> Turn<'_, F> {
    fn write(&mut self, connection: Connection, message: Message<F>) {
        self.effects.push(Effect::Write { connection, message });
    }

    /// From now on nothing is heard of it.
    fn close(&mut self, connection: Connection) {
        let known = self.desk.connections.remove(&connection);
        assert!(known.is_some(), "LINK-3: {connection:?} is closed twice");
        self.effects.push(Effect::Close { connection });
    }

    fn refuse(&mut self, connection: Connection, why: Refusal) {
        self.write(connection, Message::Refused(why));
        self.close(connection);
    }
}
