//! Connections between carriers: each carries messages in order, late, until one side closes it or it breaks and loses its tail.
//!
//! Between two nodes nothing arrives while they are cut off from each other, or in one direction only; connections last. Dialling takes
//! both directions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{Instant, NodeNumber};
use hoplo_core::link::{Connection, End, Event, Message, Socket};

use crate::cluster::{Cluster, Step};
use crate::sabotage::Sabotage;

pub type Words = Message<Arc<Vec<u8>>>;

/// All connections that there were, by number.
#[derive(Debug, Default)]
pub struct Wires {
    wires: BTreeMap<u64, Wire>,
    last: u64,
    /// From the first to the second nothing arrives until then.
    cuts: BTreeMap<(NodeNumber, NodeNumber), Instant>,
    /// The last frame of each that was written to any connection, by writer, reader and socket.
    written: BTreeMap<(NodeNumber, NodeNumber, Socket), u64>,
}

#[derive(Debug)]
struct Wire {
    /// Who dialled, and whom.
    nodes: [NodeNumber; 2],
    names: [Option<Connection>; 2],
    /// To the second, and to the first.
    lanes: [Lane; 2],
    socket: Socket,
    broken: bool,
}

#[derive(Debug, Default)]
struct Lane {
    packets: VecDeque<Packet>,
    /// Its first packet is on its way.
    moves: bool,
    /// Its reader closed it.
    unread: bool,
}

#[derive(Debug)]
enum Packet {
    Words(Words),
    End,
}

const DIAL: Duration = Duration::from_millis(1);

fn pair(one: NodeNumber, two: NodeNumber) -> (NodeNumber, NodeNumber) {
    (one.min(two), one.max(two))
}

impl Cluster {
    /// The carrier here wants a connection.
    pub fn dials(&mut self, connection: Connection, peer: NodeNumber, socket: Socket) {
        if !self.here.carrier.known.contains(&peer) {
            self.count("nodes that were dialled before their row came");
            return self.closed_at_once(connection);
        }
        let wires = &mut self.wires;
        wires.last += 1;
        let wire = Wire {
            nodes: [self.here.number, peer],
            names: [Some(connection), None],
            lanes: Default::default(),
            socket,
            broken: false,
        };
        wires.wires.insert(wires.last, wire);
        self.here.carrier.connections.insert(connection, wires.last);
        let (number, delay) = (wires.last, self.rng.delay(DIAL));
        self.after(delay, Step::Dialled(number));
    }

    pub fn dialled(&mut self, number: u64) {
        let Wire { nodes: [me, peer], names: [name, _], .. } = self.wires.wires[&number];
        if let Some(until) = self.cut_until(me, peer).max(self.cut_until(peer, me)) {
            return self.at(until, Step::Dialled(number));
        }
        let connection = name.expect("who dialled named it");
        if !self.here.carrier.connections.contains_key(&connection) {
            return;
        }
        if self.host(peer).dead {
            self.here.carrier.connections.remove(&connection);
            return self.hears_link(Event::Closed { connection, how: End::Refused });
        }
        self.hears_link(Event::Dialed { connection });
    }

    /// The carrier here writes.
    pub fn writes(&mut self, connection: Connection, words: Words) {
        let Some(number) = self.here.carrier.connections.get(&connection).copied() else { return };
        if let Message::Frame { count, .. } = &words {
            let Wire { nodes: [first, second], socket, .. } = self.wires.wires[&number];
            let me = self.here.number;
            let peer = if me == first { second } else { first };
            let last = self.wires.written.entry((me, peer, socket)).or_default();
            let again = *count <= *last;
            *last = (*last).max(*count);
            if again {
                self.count("frames that were sent again");
            }
            if again && self.sabotage == Some(Sabotage::ResendsAreLost) {
                return;
            }
        }
        self.send_packet(number, Packet::Words(words));
    }

    /// The carrier here closes it, once what it wrote is on its way.
    pub fn hangs_up(&mut self, connection: Connection) {
        let Some(number) = self.here.carrier.connections.remove(&connection) else { return };
        let me = self.here.number;
        let wire = self.wires.wires.get_mut(&number).expect("it was made");
        let mine = usize::from(wire.nodes[0] == me);
        wire.lanes[mine].unread = true;
        wire.lanes[mine].packets.clear();
        self.send_packet(number, Packet::End);
    }

    fn send_packet(&mut self, number: u64, packet: Packet) {
        let me = self.here.number;
        let wire = self.wires.wires.get_mut(&number).expect("it was made");
        if wire.broken {
            return;
        }
        let at = usize::from(wire.nodes[1] == me);
        wire.lanes[at].packets.push_back(packet);
        self.moves(number, at);
    }

    /// What the carrier here wrote to a connection, and its socket did not take.
    pub fn unsent_bytes(&self, connection: Connection) -> usize {
        let number = self.here.carrier.connections.get(&connection);
        let Some(wire) = number.and_then(|number| self.wires.wires.get(number)) else { return 0 };
        let lane = &wire.lanes[usize::from(wire.nodes[1] == self.here.number)];
        let unsent = lane.packets.iter().skip(self.plan.socket_packets);
        unsent
            .map(|packet| match packet {
                Packet::Words(Message::Frame { frame, .. }) => frame.len(),
                Packet::Words(_) | Packet::End => 1,
            })
            .sum()
    }

    /// The next packet of a lane is on its way.
    fn moves(&mut self, number: u64, at: usize) {
        let wire = self.wires.wires.get_mut(&number).expect("it was made");
        let [first, second] = wire.nodes;
        let lane = &mut wire.lanes[at];
        if lane.moves || lane.packets.is_empty() {
            return;
        }
        lane.moves = true;
        let (to, latency) = (if at == 0 { second } else { first }, self.latency(first, second));
        let delay = self.rng.delay(latency);
        self.at_node(to, self.now + delay, Step::Arrives(number, at as u8));
    }

    fn latency(&self, one: NodeNumber, two: NodeNumber) -> Duration {
        let slow = self.plan.slow_link == Some(pair(one, two));
        if slow { self.plan.latency * 50 } else { self.plan.latency }
    }

    /// What comes out of a connection here.
    pub fn arrives(&mut self, number: u64, at: u8) {
        let at = usize::from(at);
        let nodes = self.wires.wires[&number].nodes;
        if let Some(until) = self.cut_until(nodes[at], nodes[1 - at]) {
            self.count("messages that waited for a cut link");
            return self.at(until, Step::Arrives(number, at as u8));
        }
        let wire = self.wires.wires.get_mut(&number).expect("it was made");
        wire.lanes[at].moves = false;
        let many = 1 + self.rng.below(4);
        for _ in 0..many {
            let wire = self.wires.wires.get_mut(&number).expect("it was made");
            let lane = &mut wire.lanes[at];
            let Some(packet) = lane.packets.pop_front() else { break };
            if !lane.unread {
                self.hears_packet(number, at, packet);
            }
        }
        self.moves(number, at);
        let Wire { nodes, socket, .. } = &self.wires.wires[&number];
        let (writer, bulk) = (nodes[at], *socket == Socket::Bulk);
        if bulk && !self.host(writer).dead {
            self.socket_has_room(writer);
        }
    }

    fn hears_packet(&mut self, number: u64, at: usize, packet: Packet) {
        let reader = 1 - at;
        let wire = self.wires.wires.get_mut(&number).expect("it was made");
        match (packet, wire.names[reader]) {
            (Packet::Words(Message::Hello(hello)), None) => {
                if !self.here.carrier.known.contains(&hello.from) {
                    wire.lanes[at].unread = true;
                    self.count("connections of nodes whose row had not come");
                    return self.send_packet(number, Packet::End);
                }
                let carrier = &mut self.here.carrier;
                carrier.accepted += 1;
                let connection = Connection::Accepted(carrier.accepted);
                wire.names[reader] = Some(connection);
                carrier.connections.insert(connection, number);
                self.hears_link(Event::Accepted { connection, hello });
            }
            (Packet::Words(message), Some(connection)) => {
                self.hears_link(Event::Received { connection, message });
            }
            (Packet::Words(words), None) => panic!("{words:?} comes before a hello"),
            (Packet::End, name) => {
                wire.lanes[at].unread = true;
                if let Some(connection) = name {
                    self.here.carrier.connections.remove(&connection);
                    self.hears_link(Event::Closed { connection, how: End::Broken });
                }
            }
        }
    }

    // ---- faults ----

    fn cut_until(&self, from: NodeNumber, to: NodeNumber) -> Option<Instant> {
        self.wires.cuts.get(&(from, to)).copied().filter(|until| *until > self.now)
    }

    /// For a while nothing arrives.
    pub fn cuts(&mut self, one: NodeNumber, two: NodeNumber, time: Duration) {
        self.count("links that were cut");
        self.note(|| format!("FAULT: {one} and {two} are cut off from each other for {time:?}"));
        self.wires.cuts.insert((one, two), self.now + time);
        self.wires.cuts.insert((two, one), self.now + time);
    }

    /// For a while nothing arrives in this direction.
    pub fn cuts_one_way(&mut self, from: NodeNumber, to: NodeNumber, time: Duration) {
        self.count("links that were cut one way");
        self.note(|| format!("FAULT: nothing of {from} arrives at {to} for {time:?}"));
        self.wires.cuts.insert((from, to), self.now + time);
    }

    /// Each connection between the two ends, and what was last under way is lost.
    pub fn breaks(&mut self, one: NodeNumber, two: NodeNumber) {
        self.note(|| format!("FAULT: all that connects {one} and {two} breaks"));
        self.break_wires(|nodes| pair(nodes[0], nodes[1]) == pair(one, two));
    }

    /// That node runs no more.
    pub fn break_all_of(&mut self, node: NodeNumber) {
        self.break_wires(|nodes| nodes.contains(&node));
    }

    fn break_wires(&mut self, which: impl Fn([NodeNumber; 2]) -> bool) {
        let wires = self.wires.wires.iter().filter(|(_, wire)| !wire.broken && which(wire.nodes));
        for number in wires.map(|(number, _)| *number).collect::<Vec<_>>() {
            for at in [0, 1] {
                let wire = self.wires.wires.get_mut(&number).expect("it was listed");
                wire.broken = true;
                let lane = &mut wire.lanes[at];
                let kept = self.rng.below(lane.packets.len() as u64 + 1) as usize;
                let lost = lane.packets.drain(kept..).filter(|it| matches!(it, Packet::Words(_)));
                let lost = lost.count();
                lane.packets.push_back(Packet::End);
                if lost > 0 {
                    self.count("connections that lost their tail");
                }
                self.moves(number, at);
            }
        }
    }
}
