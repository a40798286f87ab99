//! Connections: ordered, late, broken with the loss of their tail, cut in one direction.
//!
//! Between two ends there is one connection of a kind at a time. Who wants to send and has none dials; a newer one ends
//! the older one, and who is at its end hears of that before anything of the newer one arrives. While a direction
//! is cut, what is sent lies there; it arrives when the cut is mended, or the connection breaks. Who has heard that a
//! connection broke hears nothing more of it, and dials anew when it wants to send.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hoplo_base::Instant;
use hoplo_wire::control::{
    FromCoordinator, PeerMessage, ReplicaId, Request, Response, ToCoordinator,
};

use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Process(ReplicaId),
    Client(u64),
}

impl End {
    /// The host: what a cut parts.
    pub fn host(self) -> u64 {
        match self {
            End::Process(id) => id.node.0,
            End::Client(number) => 1_000_000 + number,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Peer,
    Client,
    Coordinator,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// First on a client's connection, and the answer.
    Hello,
    Welcome,
    Peer(PeerMessage),
    Request(Request),
    Response(Response),
    Report(ToCoordinator),
    Told(FromCoordinator),
}

impl Message {
    pub fn may_double(&self) -> bool {
        !matches!(self, Self::Hello | Self::Welcome)
    }
}

struct Connection {
    ends: [End; 2],
    kind: Kind,
    /// By direction: to `ends[0]`, to `ends[1]`.
    underway: [VecDeque<(Instant, Message)>; 2],
    last_at: [Instant; 2],
    /// It broke: what arrives later than this is lost.
    broken_at: Option<[Instant; 2]>,
    /// By end: it knows that the connection broke.
    heard_end: [bool; 2],
}

#[derive(Default)]
pub struct Network {
    connections: BTreeMap<u64, Connection>,
    /// Which connection an end uses towards another one.
    uses: BTreeMap<(End, End, Kind), u64>,
    /// Directions between hosts that let nothing through.
    cuts: BTreeSet<(u64, u64)>,
    /// When the latest message between two hosts arrives.
    latest: BTreeMap<(u64, u64), Instant>,
    next: u64,
}

/// What the world has to arrange after a call.
#[derive(Debug)]
pub enum Arrange {
    /// Look at what has arrived there.
    Deliver { connection: u64, to: usize, at: Instant },
    /// The end hears that it broke.
    Gone { connection: u64, to: usize, at: Instant },
}

/// What came out of a connection.
pub enum Arrived {
    Message(Message),
    /// An older connection between the two ends with this, then comes the message.
    Replaces(Message),
    Nothing,
}

impl Network {
    pub fn cut(&mut self, from: u64, to: u64) {
        self.cuts.insert((from, to));
    }

    pub fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cuts.contains(&(from, to))
    }

    pub fn cuts(&self) -> usize {
        self.cuts.len()
    }

    pub fn send(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        delay_max: Duration,
        (from, to, kind): (End, End, Kind),
        message: Message,
    ) -> Option<Arrange> {
        let id = match self.uses.get(&(from, to, kind)) {
            Some(id) => *id,
            None => {
                self.next += 1;
                let connection = Connection {
                    ends: [from, to],
                    kind,
                    underway: [VecDeque::new(), VecDeque::new()],
                    last_at: [now, now],
                    broken_at: None,
                    heard_end: [false, false],
                };
                self.connections.insert(self.next, connection);
                self.uses.insert((from, to, kind), self.next);
                self.next
            }
        };
        let connection =
            self.connections.get_mut(&id).expect("it goes when both have heard its end");
        let direction = usize::from(connection.ends[1] == to);
        assert!(!connection.heard_end[1 - direction], "{from:?} uses what it knows to be broken");
        if connection.broken_at.is_some() {
            return None;
        }
        let at = (now + rng.delay(delay_max)).max(connection.last_at[direction]);
        connection.last_at[direction] = at;
        connection.underway[direction].push_back((at, message));
        Some(Arrange::Deliver { connection: id, to: direction, at })
    }

    /// One between these hosts that was sent before arrives later.
    pub fn overtakes(&mut self, from: End, to: End, at: Instant) -> bool {
        let latest = self.latest.entry((from.host(), to.host())).or_insert(at);
        let overtakes = at < *latest;
        *latest = at.max(*latest);
        overtakes
    }

    /// The connection that this end uses towards the other one.
    pub fn used(&self, from: End, to: End, kind: Kind) -> Option<u64> {
        self.uses.get(&(from, to, kind)).copied()
    }

    /// Whom this end is connected with.
    pub fn used_by(&self, from: End, kind: Kind) -> Vec<End> {
        let mine = self.uses.keys().filter(|(end, _, it)| *end == from && *it == kind);
        mine.map(|(_, to, _)| *to).collect()
    }

    /// The end to which that direction leads, and the other one.
    pub fn ends(&self, connection: u64, to: usize) -> Option<(End, End, Kind)> {
        let it = self.connections.get(&connection)?;
        Some((it.ends[to], it.ends[1 - to], it.kind))
    }

    /// Takes out what arrived, unless the way is cut.
    pub fn arrived(&mut self, now: Instant, id: u64, to: usize) -> Arrived {
        let Some(connection) = self.connections.get_mut(&id) else { return Arrived::Nothing };
        let (here, there, kind) = (connection.ends[to], connection.ends[1 - to], connection.kind);
        if self.cuts.contains(&(there.host(), here.host())) || connection.heard_end[to] {
            return Arrived::Nothing;
        }
        let queue = &mut connection.underway[to];
        match queue.front() {
            Some((at, _)) if *at <= now => {}
            Some(_) | None => return Arrived::Nothing,
        }
        let (at, message) = queue.pop_front().expect("it is there");
        if connection.broken_at.is_some_and(|broken| at > broken[to]) {
            queue.clear();
            return Arrived::Nothing;
        }
        match self.uses.get(&(here, there, kind)).copied() {
            Some(used) if used == id => Arrived::Message(message),
            Some(used) if used > id => Arrived::Nothing,
            Some(_) => {
                self.uses.insert((here, there, kind), id);
                Arrived::Replaces(message)
            }
            None => {
                self.uses.insert((here, there, kind), id);
                Arrived::Message(message)
            }
        }
    }

    /// It breaks: in each direction what is late is lost, and both ends hear of it in the end.
    pub fn breaks(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        id: u64,
        heard: Duration,
    ) -> Vec<Arrange> {
        let Some(connection) = self.connections.get_mut(&id) else { return Vec::new() };
        if connection.broken_at.is_some() {
            return Vec::new();
        }
        let until = |rng: &mut Rng| now + rng.delay(Duration::from_millis(2));
        let broken = [until(rng), until(rng)];
        connection.broken_at = Some(broken);
        (0..2)
            .map(|to| {
                let at = broken[to] + heard + rng.delay(Duration::from_millis(1));
                Arrange::Gone { connection: id, to, at }
            })
            .collect()
    }

    /// The end knows now that it broke: true if it used that connection.
    pub fn hears_end(&mut self, id: u64, to: usize) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let (here, there, kind) = (connection.ends[to], connection.ends[1 - to], connection.kind);
        connection.heard_end[to] = true;
        if connection.heard_end == [true, true] {
            self.connections.remove(&id);
        }
        let used = self.uses.get(&(here, there, kind)) == Some(&id);
        if used {
            self.uses.remove(&(here, there, kind));
        }
        used
    }

    /// This end exists no more: nothing is delivered to it.
    pub fn forget_end(&mut self, end: End) -> Vec<u64> {
        self.uses.retain(|(here, _, _), _| *here != end);
        let all = self.connections.iter();
        all.filter(|(_, it)| it.ends.contains(&end)).map(|(id, _)| *id).collect()
    }

    pub fn all(&self) -> Vec<u64> {
        let whole = self.connections.iter().filter(|(_, it)| it.broken_at.is_none());
        whole.map(|(id, _)| *id).collect()
    }

    /// Everything that waits in front of this host, or of all: after a cut was mended or a pause is over.
    pub fn waiting(&self, now: Instant, host: Option<u64>) -> Vec<Arrange> {
        let mut arrange = Vec::new();
        for (id, connection) in &self.connections {
            for to in 0..2 {
                if host.is_some_and(|host| connection.ends[to].host() != host) {
                    continue;
                }
                for (at, _) in &connection.underway[to] {
                    arrange.push(Arrange::Deliver { connection: *id, to, at: (*at).max(now) });
                }
            }
        }
        arrange
    }

    pub fn mend(&mut self) {
        self.cuts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: End = End::Client(1);
    const THERE: End = End::Client(2);
    const LATER: Instant = Instant(1_000_000_000);

    fn says(
        network: &mut Network,
        rng: &mut Rng,
        now: Instant,
        (from, to): (End, End),
        message: Message,
    ) -> Option<Arrange> {
        network.send(now, rng, Duration::from_millis(1), (from, to, Kind::Client), message)
    }

    /// A connection that `HERE` dialled and both used. It broke while a message to `HERE` lay in front of a cut.
    fn broken(rng: &mut Rng) -> (Network, u64) {
        let mut network = Network::default();
        let sent = says(&mut network, rng, Instant(1), (HERE, THERE), Message::Hello);
        let Some(Arrange::Deliver { connection, to, .. }) = sent else { panic!("{sent:?}") };
        assert!(matches!(network.arrived(LATER, connection, to), Arrived::Message(_)));
        network.cut(THERE.host(), HERE.host());
        says(&mut network, rng, Instant(1), (THERE, HERE), Message::Welcome);
        assert_eq!(network.breaks(LATER, rng, connection, Duration::ZERO).len(), 2);
        (network, connection)
    }

    #[test]
    fn what_lay_in_front_of_a_cut_revived_a_connection_whose_end_was_heard() {
        let mut rng = Rng::new(1);
        let (mut network, id) = broken(&mut rng);
        assert!(network.hears_end(id, 0), "it used it");
        network.mend();
        assert!(matches!(network.arrived(LATER, id, 0), Arrived::Nothing));
        assert_eq!(network.used(HERE, THERE, Kind::Client), None);
        assert!(network.hears_end(id, 1), "so did the other one");
        // It dials anew, and is not left with one that carries nothing.
        let again = says(&mut network, &mut rng, LATER, (HERE, THERE), Message::Hello);
        assert!(matches!(again, Some(Arrange::Deliver { connection, .. }) if connection > id));
    }

    #[test]
    fn what_lay_in_front_of_a_cut_is_not_lost_before_the_end_was_heard() {
        let (mut network, id) = broken(&mut Rng::new(1));
        assert!(network.hears_end(id, 1), "the other one");
        network.mend();
        assert!(matches!(network.arrived(LATER, id, 0), Arrived::Message(Message::Welcome)));
        assert!(network.hears_end(id, 0));
        assert_eq!(network.ends(id, 0), None, "both know");
    }
}
