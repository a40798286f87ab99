//! Two machines over a network that cuts, delays, refuses and lets both dial; and what users of a link were promised.

mod alone;
mod carrying;
mod connecting;
mod ending;
mod random;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hoplo_base::{Instant, NodeNumber};

use super::{
    Connection, Effect, End, Event, Links, Message, Options, SendError, Socket, Token, Trouble,
};

type Frame = Vec<u8>;

fn number(count: u32) -> NodeNumber {
    NodeNumber::first_given(count)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Names a frame: who sent it, in which memory, over which socket, as which of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    from: usize,
    memory: u64,
    socket: Socket,
    count: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    delivered: bool,
    may_have_arrived: bool,
    never_sent: bool,
}

struct Side {
    links: Links<Frame>,
    me: NodeNumber,
    /// Whom it takes the other one for.
    peer: NodeNumber,
    memory: u64,
    next: [u64; 2],
    /// Frames that found no room.
    waiting: [VecDeque<Frame>; 2],
    lost: usize,
    troubles: Vec<Trouble>,
    fenced: bool,
}

struct Wire {
    dialer: usize,
    /// As the two ends call it; the acceptor's is absent before the hello came.
    ends: [Option<Connection>; 2],
    /// Nothing overtakes anything.
    last_at: [Instant; 2],
}

#[derive(Debug)]
enum Arrival {
    /// The dial, at the other side.
    Dial,
    Connected,
    Message(Message<Frame>),
    End(End),
}

struct World {
    now: Instant,
    sides: [Side; 2],
    wires: BTreeMap<u64, Wire>,
    /// By time: wire, the end where it arrives (0: the dialer's), what.
    air: BTreeMap<(Instant, u64), (u64, usize, Arrival)>,
    delay: Duration,
    /// Whether a dial of this side gets through.
    reach: [bool; 2],
    count: u64,
    fates: BTreeMap<Name, Fate>,
    last_delivered: BTreeMap<(usize, u64, Socket), u64>,
    /// Bytes of acknowledgements that went alone.
    acks_alone: usize,
    /// Sides that began with a new memory.
    restarts: usize,
}

fn options(me: NodeNumber, memory: u64) -> Options {
    let first_token = Token(u64::from(me.number()) << 48 | memory << 32);
    Options { talk_window_bytes: 1024, bulk_window_bytes: 4096, ..Options::new(me, first_token) }
}

impl Side {
    fn new(me: NodeNumber, peer: NodeNumber, memory: u64) -> Self {
        Self {
            links: Links::new(options(me, memory)),
            me,
            peer,
            memory,
            next: [0, 0],
            waiting: Default::default(),
            lost: 0,
            troubles: Vec::new(),
            fenced: false,
        }
    }
}

impl World {
    fn new() -> Self {
        Self {
            now: Instant::ZERO,
            sides: [Side::new(number(1), number(2), 1), Side::new(number(2), number(1), 1)],
            wires: BTreeMap::new(),
            air: BTreeMap::new(),
            delay: ms(1),
            reach: [true; 2],
            count: 0,
            fates: BTreeMap::new(),
            last_delivered: BTreeMap::new(),
            acks_alone: 0,
            restarts: 0,
        }
    }

    fn send(&mut self, from: usize, socket: Socket, bytes: usize) {
        let side = &mut self.sides[from];
        let count = &mut side.next[socket.index()];
        *count += 1;
        let mut frame = vec![from as u8, socket.index() as u8];
        frame.extend(side.memory.to_le_bytes());
        frame.extend(count.to_le_bytes());
        frame.resize(frame.len().max(bytes), 0);
        side.waiting[socket.index()].push_back(frame);
        let name = name_of(side.waiting[socket.index()].back().unwrap());
        self.fates.insert(name, Fate::default());
        self.send_waiting(from, socket);
    }

    fn send_waiting(&mut self, from: usize, socket: Socket) {
        while let Some(frame) = self.sides[from].waiting[socket.index()].pop_front() {
            let mut effects = Vec::new();
            let side = &mut self.sides[from];
            let result = side.links.send(self.now, side.peer, socket, frame, &mut effects);
            side.links.check();
            match result {
                Ok(()) => self.carry_out(from, effects),
                Err(SendError::Full(frame)) => {
                    assert!(effects.is_empty());
                    return self.sides[from].waiting[socket.index()].push_front(frame);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn open_for(&mut self, from: usize, socket: Socket) {
        let mut effects = Vec::new();
        let side = &mut self.sides[from];
        side.links.open(self.now, side.peer, socket, &mut effects);
        side.links.check();
        self.carry_out(from, effects);
    }

    fn handle(&mut self, at: usize, event: Event<Frame>) {
        let mut effects = Vec::new();
        self.sides[at].links.handle(self.now, event, &mut effects);
        self.sides[at].links.check();
        self.carry_out(at, effects);
    }

    fn carry_out(&mut self, at: usize, effects: Vec<Effect<Frame>>) {
        let mut room = Vec::new();
        for effect in effects {
            match effect {
                Effect::Dial { connection, peer, socket: _ } => {
                    assert_eq!(peer, self.sides[at].peer);
                    self.count += 1;
                    let last_at = [self.now; 2];
                    let ends = [Some(connection), None];
                    self.wires.insert(self.count, Wire { dialer: at, ends, last_at });
                    self.fly(self.count, 1, Arrival::Dial);
                }
                Effect::Write { connection, message } => {
                    if matches!(message, Message::Ack { .. }) {
                        self.acks_alone += 1;
                    }
                    if let Some((wire, end)) = self.find(at, connection) {
                        self.fly(wire, 1 - end, Arrival::Message(message));
                    }
                }
                Effect::Close { connection } => {
                    if let Some((wire, end)) = self.find(at, connection) {
                        self.wires.get_mut(&wire).unwrap().ends[end] = None;
                        self.fly(wire, 1 - end, Arrival::End(End::Broken));
                    }
                }
                Effect::Deliver { peer: _, socket, frame } => self.delivered(at, socket, &frame),
                Effect::Room { peer: _, socket } => room.push(socket),
                Effect::Lost { peer: _, why: _, talk, bulk } => {
                    self.sides[at].lost += 1;
                    for lost in [talk, bulk] {
                        for frame in lost.may_have_arrived {
                            self.fate(at, &frame).may_have_arrived = true;
                        }
                        for frame in lost.never_sent {
                            self.fate(at, &frame).never_sent = true;
                        }
                    }
                }
                Effect::Trouble { peer: _, what } => self.sides[at].troubles.push(what),
                Effect::Fenced { .. } => self.sides[at].fenced = true,
                Effect::Behind { epoch } => self.handle(at, Event::Epoch { epoch }),
            }
        }
        room.into_iter().for_each(|socket| self.send_waiting(at, socket));
    }

    fn find(&self, at: usize, connection: Connection) -> Option<(u64, usize)> {
        let is = |wire: &Wire, end: usize| {
            (wire.dialer + end) % 2 == at && wire.ends[end] == Some(connection)
        };
        self.wires
            .iter()
            .find_map(|(id, wire)| (0..2).find(|end| is(wire, *end)).map(|end| (*id, end)))
    }

    fn fly(&mut self, wire: u64, to_end: usize, what: Arrival) {
        let last_at = &mut self.wires.get_mut(&wire).unwrap().last_at[to_end];
        let at = (self.now + self.delay).max(*last_at);
        *last_at = at;
        self.count += 1;
        self.air.insert((at, self.count), (wire, to_end, what));
    }

    fn arrive(&mut self, wire: u64, end: usize, what: Arrival) {
        let Some(it) = self.wires.get_mut(&wire) else { return };
        let at = (it.dialer + end) % 2;
        match what {
            Arrival::Dial if self.reach[1 - at] => self.fly(wire, 0, Arrival::Connected),
            Arrival::Dial => self.fly(wire, 0, Arrival::End(End::Refused)),
            Arrival::Connected => {
                if let Some(connection) = it.ends[0] {
                    self.handle(at, Event::Dialed { connection });
                }
            }
            Arrival::Message(Message::Hello(hello)) if end == 1 => {
                let connection = Connection::Accepted(wire);
                it.ends[1] = Some(connection);
                self.handle(at, Event::Accepted { connection, hello });
            }
            Arrival::Message(message) => {
                if let Some(connection) = it.ends[end] {
                    self.handle(at, Event::Received { connection, message });
                }
            }
            Arrival::End(how) => {
                let connection = it.ends[end].take();
                if it.ends == [None, None] {
                    self.wires.remove(&wire);
                }
                if let Some(connection) = connection {
                    self.handle(at, Event::Closed { connection, how });
                }
            }
        }
    }

    fn delivered(&mut self, at: usize, socket: Socket, frame: &Frame) {
        let name = name_of(frame);
        assert_eq!((name.from, name.socket), (1 - at, socket), "it went astray");
        let last = self.last_delivered.entry((name.from, name.memory, socket)).or_default();
        assert!(*last < name.count, "{name:?} came after frame {last}");
        *last = name.count;
        let fate = self.fates.get_mut(&name).unwrap();
        assert!(!fate.delivered, "{name:?} came twice");
        fate.delivered = true;
    }

    fn fate(&mut self, at: usize, frame: &Frame) -> &mut Fate {
        let name = name_of(frame);
        assert_eq!((name.from, name.memory), (at, self.sides[at].memory));
        let fate = self.fates.get_mut(&name).unwrap();
        assert!(!fate.may_have_arrived && !fate.never_sent, "{name:?} is lost twice");
        fate
    }

    /// Everything that happens in this time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 200_000, "it goes round in circles");
            let air = self.air.first_key_value().map(|((at, _), _)| *at);
            let due = self.sides.iter().filter_map(|side| side.links.next_deadline()).min();
            let Some(next) = air.into_iter().chain(due).min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if air == Some(next) {
                let (_, (wire, to_end, what)) = self.air.pop_first().unwrap();
                self.arrive(wire, to_end, what);
            } else {
                (0..2).for_each(|at| self.handle(at, Event::Tick));
            }
        }
    }

    /// Breaks one connection: of what is in the air over it, `keep` still arrive each way.
    fn cut(&mut self, wire: u64, keep: usize) {
        for end in 0..2 {
            let on_it = self.air.iter().filter(|(_, (of, to, _))| *of == wire && *to == end);
            let tail: Vec<_> = on_it.map(|(key, _)| *key).skip(keep).collect();
            tail.iter().for_each(|key| drop(self.air.remove(key)));
            self.fly(wire, end, Arrival::End(End::Broken));
        }
    }

    /// This side forgets everything, and has this number from now on.
    fn restart(&mut self, at: usize, me: NodeNumber) {
        self.restarts += 1;
        let wires: Vec<(u64, usize)> =
            self.wires.iter().map(|(id, wire)| (*id, (wire.dialer + at) % 2)).collect();
        for (wire, end) in wires {
            self.wires.get_mut(&wire).unwrap().ends[end] = None;
            // What was on its way to the old one is for nobody.
            self.air.retain(|_, (of, to, _)| (*of, *to) != (wire, end));
            self.fly(wire, 1 - end, Arrival::End(End::Broken));
        }
        let (peer, memory) = (self.sides[at].peer, self.sides[at].memory + 1);
        self.sides[at] = Side::new(me, peer, memory);
    }

    /// The other life is known, and the verdict about the last one.
    fn told_of_death(&mut self, at: usize) {
        let (old, new) = (self.sides[at].peer, self.sides[1 - at].me);
        if old != new {
            self.sides[at].peer = new;
            self.handle(at, Event::Dead { number: old });
            Socket::ALL.into_iter().for_each(|socket| self.send_waiting(at, socket));
        }
    }

    /// The network works for a while, and verdicts arrive: what was promised has to be true then.
    fn settle(&mut self) {
        (self.delay, self.reach) = (ms(1), [true; 2]);
        (0..2).for_each(|at| self.told_of_death(at));
        self.pass(ms(30_000));
        for (name, fate) in &self.fates {
            let told = fate.may_have_arrived || fate.never_sent;
            assert!(!(fate.never_sent && fate.delivered), "{name:?} came, and was never sent");
            let lives = self.sides[name.from].memory == name.memory;
            let fate_known = fate.delivered || told || !lives;
            assert!(fate_known, "nobody knows of {name:?}: {}", self.explain(name.from));
        }
        let lost: usize = self.sides.iter().map(|side| side.lost).sum();
        assert!(self.restarts > 0 || lost == 0, "a link ended, and both knew it");
        assert!(self.open().len() <= 2, "one connection a socket: {:?}", self.open());
    }

    fn explain(&self, at: usize) -> String {
        self.sides[at].links.explain(self.sides[at].peer)
    }

    /// Connections that both ends have.
    fn open(&self) -> Vec<u64> {
        let open = self.wires.iter().filter(|(_, wire)| wire.ends.iter().all(Option::is_some));
        open.map(|(id, _)| *id).collect()
    }

    fn delivered_count(&self) -> usize {
        self.fates.values().filter(|fate| fate.delivered).count()
    }
}

fn name_of(frame: &Frame) -> Name {
    let socket = Socket::ALL[usize::from(frame[1])];
    let number = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().unwrap());
    Name { from: usize::from(frame[0]), memory: number(2), socket, count: number(10) }
}

fn after_a_talk() -> World {
    let mut world = World::new();
    world.send(0, Socket::Talk, 10);
    world.send(1, Socket::Talk, 10);
    world.pass(ms(100));
    assert_eq!((world.delivered_count(), world.open().len()), (2, 1));
    world
}
