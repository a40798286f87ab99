//! Which connection is the link's: dials, hellos, ends.

use std::time::Duration;

use hoplo_base::limits;

use super::message::{Connection, End, Hello, Load, LostWhy, Message, Refusal, Socket, Trouble};
use super::pair::Pair;
use super::side::{Line, Spare};
use super::{Turn, VERSION};

impl<F: Load> Pair<F> {
    pub(super) fn dial(&mut self, turn: &mut Turn<'_, F>, socket: Socket) {
        turn.desk.dials += 1;
        let dial = turn.desk.dials;
        let connection = Connection::Dialed(dial);
        let peer = self.peer;
        let side = self.side(socket);
        assert!(side.line.connection().is_none(), "LINK-3: one connection at a time");
        side.failures = side.failures.saturating_add(1);
        let until = turn.now + limits::NET_OPENS_WITHIN;
        side.line = Line::Dialing { connection, dial, until };
        turn.desk.connections.insert(connection, (peer, socket));
        turn.effects.push(super::Effect::Dial { connection, peer, socket });
    }

    pub(super) fn on_dialed(
        &mut self,
        turn: &mut Turn<'_, F>,
        socket: Socket,
        connection: Connection,
    ) {
        if let Line::Dialing { connection: current, dial, .. } = self.side(socket).line
            && current == connection
        {
            let hello = self.hello(turn, socket, dial);
            turn.write(connection, Message::Hello(hello));
        }
    }

    fn hello(&mut self, turn: &Turn<'_, F>, socket: Socket, dial: u64) -> Hello {
        let (from, epoch) = (turn.desk.options.me, turn.desk.epoch);
        let (to, mine, yours) = (self.peer, self.mine, self.theirs);
        let side = self.side(socket);
        side.stream.no_debt();
        let (received, seen) = (side.stream.received(), side.heard);
        Hello { version: VERSION, from, to, socket, epoch, mine, yours, received, dial, seen }
    }

    /// Of a connection that the peer dialled; it is of this version, and meant for this node.
    pub(super) fn on_hello(
        &mut self,
        turn: &mut Turn<'_, F>,
        connection: Connection,
        hello: Hello,
    ) {
        let socket = hello.socket;
        self.compare_epochs(turn, &hello);
        turn.desk.connections.insert(connection, (self.peer, socket));
        if hello.yours.is_some_and(|yours| yours != self.mine) {
            return turn.refuse(connection, Refusal::Forgotten { mine: self.mine });
        }
        if self.theirs.is_some_and(|theirs| theirs != hello.mine) {
            self.begin_anew(turn, LostWhy::Forgotten);
            if hello.yours.is_some() {
                return turn.refuse(connection, Refusal::Forgotten { mine: self.mine });
            }
        }
        self.theirs = Some(hello.mine);
        let is_lower = turn.desk.options.me < self.peer;
        let side = self.side(socket);
        if hello.dial <= side.heard {
            return turn.refuse(connection, Refusal::Crossed);
        }
        side.heard = hello.dial;
        if side.stream.is_past(hello.received) {
            // It was overtaken: while it was under way another connection came and broke, over which more arrived.
            return turn.refuse(connection, Refusal::Crossed);
        }
        match side.line {
            Line::Up { dialed: Some(dial), .. } if hello.seen < dial => {
                turn.refuse(connection, Refusal::Crossed);
            }
            Line::Dialing { dial, .. } if hello.seen < dial && is_lower => {
                side.drop_spare(turn, Some(Refusal::Crossed));
                side.spare = Some(Spare { connection, hello });
            }
            Line::Closed | Line::Waiting { .. } | Line::Dialing { .. } | Line::Up { .. } => {
                self.accept(turn, socket, connection, &hello);
            }
        }
    }

    fn compare_epochs(&self, turn: &mut Turn<'_, F>, hello: &Hello) {
        if hello.epoch > turn.desk.epoch {
            turn.effects.push(super::Effect::Behind { epoch: hello.epoch });
        }
    }

    /// The connection that the peer dialled is the link's from now on.
    fn accept(
        &mut self,
        turn: &mut Turn<'_, F>,
        socket: Socket,
        connection: Connection,
        hello: &Hello,
    ) {
        let side = self.side(socket);
        side.leave(turn);
        side.drop_spare(turn, Some(Refusal::Crossed));
        let welcome = self.hello(turn, socket, hello.dial);
        match self.side(socket).stream.resume(hello.received) {
            Ok(frames) => {
                turn.write(connection, Message::Welcome(welcome));
                self.side(socket).line = Line::up(turn, connection, None);
                frames.into_iter().for_each(|frame| turn.write(connection, frame));
                self.tell_room(turn, socket);
            }
            Err(what) => {
                self.trouble(turn, Trouble::Nonsense(what));
                turn.refuse(connection, Refusal::Nonsense(what));
                self.lost_line(turn, socket);
            }
        }
    }

    pub(super) fn on_welcome(&mut self, turn: &mut Turn<'_, F>, socket: Socket, hello: Hello) {
        self.compare_epochs(turn, &hello);
        let Line::Dialing { connection, dial, .. } = self.side(socket).line else {
            unreachable!("a welcome is heard of what was dialled")
        };
        // What this side or the other knows may have changed since its hello, by the other socket.
        let same =
            hello.yours == Some(self.mine) && self.theirs.is_none_or(|theirs| theirs == hello.mine);
        let resumed = match same {
            true => self.side(socket).stream.resume(hello.received),
            false => Err("it welcomed another link"),
        };
        match resumed {
            Ok(frames) => {
                self.theirs = Some(hello.mine);
                let side = self.side(socket);
                side.drop_spare(turn, Some(Refusal::Crossed));
                side.line = Line::up(turn, connection, Some(dial));
                frames.into_iter().for_each(|frame| turn.write(connection, frame));
                self.tell_room(turn, socket);
            }
            Err(what) => {
                if same {
                    self.trouble(turn, Trouble::Nonsense(what));
                }
                self.side(socket).leave(turn);
                self.lost_line(turn, socket);
            }
        }
    }

    pub(super) fn on_refused(&mut self, turn: &mut Turn<'_, F>, socket: Socket, why: Refusal) {
        self.side(socket).leave(turn);
        match why {
            Refusal::Dead { number, epoch } => {
                if number == turn.desk.options.me {
                    turn.effects.push(super::Effect::Fenced { by: self.peer, epoch });
                }
            }
            Refusal::AnotherLife { number } => {
                self.trouble(turn, Trouble::AnotherLife { number });
            }
            Refusal::Version { version } => {
                self.trouble(turn, Trouble::Version { theirs: version });
            }
            Refusal::Forgotten { mine } => {
                // Or it was learnt by the other socket meanwhile, and the next hello will say so.
                if self.theirs.is_some_and(|theirs| theirs != mine) {
                    self.begin_anew(turn, LostWhy::Forgotten);
                }
            }
            Refusal::Crossed => {}
            Refusal::Nonsense(what) => self.trouble(turn, Trouble::Nonsense(what)),
        }
        self.lost_line(turn, socket);
    }

    pub(super) fn on_closed(
        &mut self,
        turn: &mut Turn<'_, F>,
        socket: Socket,
        connection: Connection,
        how: End,
    ) {
        turn.desk.connections.remove(&connection);
        let side = self.side(socket);
        if side.spare.take_if(|spare| spare.connection == connection).is_some() {
            return;
        }
        assert_eq!(side.line.connection(), Some(connection), "LINK-3");
        side.forget_line();
        self.trouble(
            turn,
            match how {
                End::Broken => Trouble::Broken,
                End::Refused => Trouble::Refused,
            },
        );
        self.lost_line(turn, socket);
    }

    /// The peer closes what carried nothing for long.
    pub(super) fn hang_up(&mut self, turn: &mut Turn<'_, F>, socket: Socket) {
        self.side(socket).leave(turn);
        self.lost_line(turn, socket);
    }

    /// A connection of this socket was left: the spare takes its place, or another one, if there is need of one.
    pub(super) fn lost_line(&mut self, turn: &mut Turn<'_, F>, socket: Socket) {
        let pair = u64::from(self.peer.number()) << 32 | u64::from(turn.desk.options.me.number());
        let side = self.side(socket);
        if side.line.connection().is_some() {
            return;
        }
        if let Some(spare) = side.spare.take() {
            return self.accept(turn, socket, spare.connection, &spare.hello);
        }
        if side.stream.is_empty() {
            side.line = Line::Closed;
        } else if side.failures == 0 {
            side.line = Line::Closed;
            self.dial(turn, socket);
        } else {
            let at = turn.now + redial_after(side.failures, pair);
            side.line = Line::Waiting { at };
        }
    }

    pub(super) fn line_on_time(&mut self, turn: &mut Turn<'_, F>, socket: Socket) {
        let side = self.side(socket);
        match side.line {
            Line::Waiting { at } if at <= turn.now => self.dial(turn, socket),
            Line::Dialing { until, .. } if until <= turn.now => {
                side.leave(turn);
                self.trouble(turn, Trouble::Silent);
                self.lost_line(turn, socket);
            }
            Line::Up { connection, .. } if side.closes_at().is_some_and(|at| at <= turn.now) => {
                turn.write(connection, Message::Bye);
                side.leave(turn);
                side.failures = 0;
            }
            Line::Closed | Line::Waiting { .. } | Line::Dialing { .. } | Line::Up { .. } => {}
        }
    }
}

/// Doubles up to the last, less up to a half, which differs by pair: links that broke together do not come back together.
fn redial_after(failures: u32, pair: u64) -> Duration {
    let doubled = limits::LINK_REDIAL_FIRST * (1 << (failures - 1).min(10));
    let longest = doubled.min(limits::LINK_REDIAL_LAST);
    let mixed = (pair ^ u64::from(failures)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    longest - longest * mixed as u32 / 512
}
