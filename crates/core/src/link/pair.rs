//! One peer: the two streams, what names their link, and what their connections say.

use hoplo_base::{Instant, NodeNumber};

use super::message::{
    Connection, Effect, Load, LostWhy, Message, Refusal, SendError, Socket, Token, Trouble,
};
use super::side::{Line, Side};
use super::stream::Nonsense;
use super::{Desk, Turn};

pub(super) struct Pair<F> {
    pub(super) peer: NodeNumber,
    pub(super) mine: Token,
    /// Absent until it has told; nothing is written to it before that.
    pub(super) theirs: Option<Token>,
    sides: [Side<F>; 2],
}

impl<F: Load> Pair<F> {
    pub(super) fn new(peer: NodeNumber, mine: Token) -> Self {
        Self { peer, mine, theirs: None, sides: [Side::new(), Side::new()] }
    }

    pub(super) fn side(&mut self, socket: Socket) -> &mut Side<F> {
        &mut self.sides[socket.index()]
    }

    pub(super) fn send(
        &mut self,
        turn: &mut Turn<'_, F>,
        socket: Socket,
        frame: F,
    ) -> Result<(), SendError<F>> {
        let window = turn.desk.options.window(socket);
        let side = self.side(socket);
        side.stream.push(frame, window)?;
        match &mut side.line {
            Line::Up { connection, used_at, .. } => {
                *used_at = turn.now;
                let connection = *connection;
                let message = side.stream.last();
                turn.write(connection, message);
            }
            Line::Closed => self.dial(turn, socket),
            Line::Waiting { .. } | Line::Dialing { .. } => {}
        }
        Ok(())
    }

    pub(super) fn open(&mut self, turn: &mut Turn<'_, F>, socket: Socket) {
        if self.side(socket).line == Line::Closed {
            self.dial(turn, socket);
        }
    }

    pub(super) fn on_message(
        &mut self,
        turn: &mut Turn<'_, F>,
        socket: Socket,
        connection: Connection,
        message: Message<F>,
    ) {
        let line = &self.side(socket).line;
        let is_up = matches!(line, Line::Up { connection: it, .. } if *it == connection);
        let is_dialled = matches!(line, Line::Dialing { connection: it, .. } if *it == connection);
        match message {
            Message::Welcome(hello) if is_dialled => self.on_welcome(turn, socket, hello),
            Message::Refused(why) if is_dialled || is_up => self.on_refused(turn, socket, why),
            Message::Frame { count, upto, frame } if is_up => {
                let result = self.on_frame(turn, socket, count, upto, frame);
                self.believe(turn, socket, result);
            }
            Message::Ack { upto } if is_up => {
                let result = self.on_ack(turn, socket, upto);
                self.believe(turn, socket, result);
            }
            Message::Bye if is_up => self.hang_up(turn, socket),
            Message::Hello(_)
            | Message::Welcome(_)
            | Message::Refused(_)
            | Message::Frame { .. }
            | Message::Ack { .. }
            | Message::Bye => {
                let spare = self.side(socket).spare.take_if(|it| it.connection == connection);
                match spare {
                    Some(_) => turn.close(connection),
                    None => self.believe(turn, socket, Err("a message out of place")),
                }
            }
        }
    }

    fn on_frame(
        &mut self,
        turn: &mut Turn<'_, F>,
        socket: Socket,
        count: u64,
        upto: u64,
        frame: F,
    ) -> Result<(), Nonsense> {
        self.on_ack(turn, socket, upto)?;
        let (peer, within) = (self.peer, turn.desk.options.acknowledged);
        let window = turn.desk.options.window(socket);
        let side = self.side(socket);
        side.stream.on_frame(turn.now, count, &frame, within)?;
        turn.effects.push(Effect::Deliver { peer, socket, frame });
        side.used(turn.now);
        side.acknowledge(turn, window);
        Ok(())
    }

    fn on_ack(
        &mut self,
        turn: &mut Turn<'_, F>,
        socket: Socket,
        upto: u64,
    ) -> Result<(), Nonsense> {
        let side = self.side(socket);
        side.stream.on_ack(upto)?;
        side.failures = 0;
        self.tell_room(turn, socket);
        Ok(())
    }

    pub(super) fn tell_room(&mut self, turn: &mut Turn<'_, F>, socket: Socket) {
        let (peer, window) = (self.peer, turn.desk.options.window(socket));
        if self.side(socket).stream.has_wanted_room(window) {
            turn.effects.push(Effect::Room { peer, socket });
        }
    }

    /// A peer that does not keep to the protocol loses the connection, and nothing else.
    fn believe(&mut self, turn: &mut Turn<'_, F>, socket: Socket, result: Result<(), Nonsense>) {
        if let Err(what) = result {
            self.trouble(turn, Trouble::Nonsense(what));
            self.side(socket).leave(turn);
            self.lost_line(turn, socket);
        }
    }

    pub(super) fn trouble(&self, turn: &mut Turn<'_, F>, what: Trouble) {
        turn.effects.push(Effect::Trouble { peer: self.peer, what });
    }

    /// The link is not what the other side knows: what it held is told, and another one begins at frame 1.
    pub(super) fn begin_anew(&mut self, turn: &mut Turn<'_, F>, why: LostWhy) {
        for socket in Socket::ALL {
            let side = self.side(socket);
            side.leave(turn);
            side.drop_spare(turn, None);
            (side.heard, side.failures) = (0, 0);
        }
        let talk = self.side(Socket::Talk).stream.give_up();
        let bulk = self.side(Socket::Bulk).stream.give_up();
        (self.mine, self.theirs) = (turn.desk.token(), None);
        turn.effects.push(Effect::Lost { peer: self.peer, why, talk, bulk });
        Socket::ALL.into_iter().for_each(|socket| self.tell_room(turn, socket));
    }

    /// It is dead; who listens there nevertheless is told.
    pub(super) fn bury(&mut self, turn: &mut Turn<'_, F>) {
        let why = Refusal::Dead { number: self.peer, epoch: turn.desk.epoch };
        for socket in Socket::ALL {
            let side = self.side(socket);
            if let Line::Up { connection, .. } = side.line {
                turn.write(connection, Message::Refused(why));
            }
            side.drop_spare(turn, Some(why));
        }
        self.begin_anew(turn, LostWhy::Dead);
    }

    /// When it has something to do by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        self.sides.iter().filter_map(Side::due).min()
    }

    pub(super) fn on_time(&mut self, turn: &mut Turn<'_, F>) {
        for socket in Socket::ALL {
            let window = turn.desk.options.window(socket);
            self.side(socket).acknowledge(turn, window);
            self.line_on_time(turn, socket);
        }
    }

    pub(super) fn connection(&self, socket: Socket) -> Option<Connection> {
        match self.sides[socket.index()].line {
            Line::Up { connection, .. } => Some(connection),
            Line::Closed | Line::Waiting { .. } | Line::Dialing { .. } => None,
        }
    }

    pub(super) fn held_bytes(&self, socket: Socket) -> usize {
        self.sides[socket.index()].stream.held_bytes()
    }

    pub(super) fn connections(&self) -> usize {
        let of = |side: &Side<F>| {
            usize::from(side.line.connection().is_some()) + usize::from(side.spare.is_some())
        };
        self.sides.iter().map(of).sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let tables: usize = self.sides.iter().map(|side| side.stream.table_bytes()).sum();
        size_of::<Self>() + tables
    }

    pub(super) fn explain(&self) -> String {
        let of = |socket: Socket| {
            let side = &self.sides[socket.index()];
            let (held, failures) = (side.stream.held_bytes(), side.failures);
            let state = side.line.in_words();
            format!("{socket:?}: {state}, {held} bytes not acknowledged, {failures} dials in vain")
        };
        format!("link with {}: {}; {}", self.peer, of(Socket::Talk), of(Socket::Bulk))
    }

    pub(super) fn check(&self, peer: NodeNumber, desk: &Desk) {
        assert_eq!(peer, self.peer);
        for socket in Socket::ALL {
            let side = &self.sides[socket.index()];
            let up = matches!(side.line, Line::Up { .. });
            side.stream.check(desk.options.window(socket), up);
            assert!(!up || self.theirs.is_some(), "LINK-3: an open connection knows its link");
            let nothing = side.line == Line::Closed && !side.stream.is_empty();
            assert!(!nothing, "LINK-5: {peer} has frames, and nobody dials");
            let dialing = matches!(side.line, Line::Dialing { .. });
            let may_spare = dialing && desk.options.me < peer;
            assert!(side.spare.is_none() || may_spare, "LINK-3: a spare for nothing");
            let spare = side.spare.as_ref().map(|spare| spare.connection);
            for connection in side.line.connection().into_iter().chain(spare) {
                assert_eq!(desk.connections.get(&connection), Some(&(peer, socket)), "LINK-3");
            }
        }
    }
}
