//! Carry: what becomes of the frames between a process and a worker of another node.
//!
//! ```text
//!   near node                                                      far node
//!   caller's ring --took_call--> Outgoing ===Item::Call===> Incoming --front, written--> worker's ring
//!   caller's ring <--written, front-- Incoming <===Item::Reply=== Outgoing <--took_reply-- worker's ring
//! ```
//! One machine a daemon, with one half of each pair: the *near* one at the caller's node, the *far* one at the worker's. Each half has a
//! queue of what leaves and one of what came. The shell owns the rings: it asks [`Carry::takes`] before it takes a frame out of one, and
//! writes what [`Carry::front`] gives into the other one. Items of two nodes travel in order (`core/link`), so everything of a pair is FIFO.
//!
//! **Passing.** A frame that names refs is told to the decider when it leaves the ring, or arrives; it goes on with the decider's `Go`, and what
//! follows it waits. Several of them may be with the decider, so that all that lay in a ring is told before a sweep goes on. The worker's
//! decider is also told of the last reply of a call that named some; if that names none itself, it leaves at once. If a frame has nowhere to go any more when its `Go` comes, the
//! other decider gets it as a *stray*: its cover must not stay for ever.
//!
//! **The end.** A worker's death comes as `Gone` behind its last reply, and says how many calls had arrived: what was sent after that
//! the worker never took, and so are those that its node counts. The near half answers `Closed`, the last that it says; until then
//! the far half stays as a tombstone, so that late calls are not taken for the first ones of a new pair. A call may arrive
//! before its channel is made; it waits. When a caller is gone, its node says `Closed` before its decider tells the other one, over
//! the same link: so the far half goes at the decider's word, and `Closed` may even have come before the channel was made.
//! When a node dies, the near half puts `Gone` behind what has come, and nothing leaves any more.
//!
//! # Invariants
//! - CARRY-4: a frame leaves its ring only while fewer than `CARRY_CREDIT_BYTES` of that pair and direction are on their way: one slow
//!   worker holds up no other. (A sweep takes everything all the same: at most a ring more.)
//! - CARRY-5: what names refs goes on only by the decider's word, and nothing overtakes it.
//! - CARRY-6: `Ended` comes after every reply that was written, with exactly the calls that the worker never took.
//! - CARRY-7: a revocation is answered once, or by the end; a call that was taken back is never given to the shell to write.

mod far;
mod item;
mod near;
mod outbox;
mod queue;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hoplo_base::{Map, NodeNumber, ObjectId};
use hoplo_wire::node::Obituary;

pub use item::{Bytes, Frame, Item, Pair};
pub use outbox::{Outbox, calls_in, is_lines};

use crate::node::Passing;
use far::Far;
use near::Near;
use queue::{Arrival, Incoming, Outgoing, Parcel};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The ring of this node's process is there.
    Opened {
        pair: Pair,
    },
    Arrived {
        from: NodeNumber,
        item: Item,
    },
    /// The answer to `Pass`.
    Go {
        ticket: u64,
        cover: u64,
    },
    /// A process of this node wants these calls back.
    Revoke {
        pair: Pair,
        seqs: Vec<u64>,
    },
    /// The answer to `TakeBack`: all that was asked for.
    TakenBack {
        pair: Pair,
        seqs: Vec<u64>,
        kept: Vec<u64>,
    },
    /// A worker of this node is dead. The shell has taken its replies; `unread`: calls in its ring that it never took.
    WorkerGone {
        pair: Pair,
        unread: Vec<u64>,
        obituary: Obituary,
    },
    /// The caller is gone.
    Closed {
        pair: Pair,
    },
    /// `unsent`: calls whose items were never given to a connection.
    NodeDead {
        node: NodeNumber,
        unsent: Vec<(Pair, u64)>,
        obituary: Obituary,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Send {
        to: NodeNumber,
        item: Item,
    },
    /// Ask the decider: answered by `Go`.
    Pass {
        ticket: u64,
        frame: Passing,
    },
    /// There may be something to write into this pair's ring, or more may be taken out of it.
    Look {
        pair: Pair,
    },
    /// Take these calls back from the worker's ring: answered at once by `TakenBack`, with `revoked` among its `seqs`.
    TakeBack {
        pair: Pair,
        seqs: Vec<u64>,
        revoked: Vec<u64>,
    },
    Revoked {
        pair: Pair,
        seqs: Vec<u64>,
        kept: Vec<u64>,
    },
    Ended {
        pair: Pair,
        unstarted: Vec<u64>,
        obituary: Obituary,
    },
    /// Its ring is of no use any more.
    Drop {
        pair: Pair,
    },
    /// That node says what cannot be.
    Nonsense {
        from: NodeNumber,
        what: &'static str,
    },
}

pub struct Carry {
    me: NodeNumber,
    halves: Map<Pair, Half>,
    asked: BTreeMap<u64, Asked>,
    tickets: u64,
    /// What is said of their processes.
    dead: BTreeMap<NodeNumber, Obituary>,
}

/// With the decider.
struct Asked {
    pair: Pair,
    /// Of what leaves: where to, and what the other decider is told if it has nowhere to go any more.
    leaving: Option<(NodeNumber, bool, u64, Vec<ObjectId>)>,
}

struct Half {
    is_open: bool,
    outgoing: Outgoing,
    incoming: Incoming,
    side: Side,
}

enum Side {
    Near(Near),
    Far(Far),
}

impl Carry {
    pub fn new(me: NodeNumber) -> Self {
        Self {
            me,
            halves: Map::default(),
            asked: BTreeMap::new(),
            tickets: 0,
            dead: BTreeMap::new(),
        }
    }

    /// Whether the next frame may be taken out of the ring of this node's process (CARRY-4).
    pub fn takes(&self, pair: Pair) -> bool {
        self.halves.get(&pair).is_some_and(|half| half.outgoing.takes())
    }

    /// The next frame for the ring of this node's process.
    pub fn front(&self, pair: Pair) -> Option<(u64, &[u8])> {
        let half = self.halves.get(&pair).filter(|half| half.is_open)?;
        match half.incoming.queue.front()? {
            Arrival::Frame { waits: None, frame, .. } => Some((frame.tag, &frame.bytes)),
            Arrival::Frame { waits: Some(_), .. } | Arrival::Word(_) => None,
        }
    }

    /// The front was written, or there is nobody who could read it.
    pub fn written(&mut self, pair: Pair, effects: &mut Vec<Effect>) {
        let half = self.halves.get_mut(&pair).expect("it had a front");
        let Some(Arrival::Frame { frame, .. }) = half.incoming.queue.pop_front() else {
            unreachable!("it had a front");
        };
        half.incoming.owe(&frame);
        self.settle(pair, effects);
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Opened { pair } => self.on_opened(pair, effects),
            Event::Arrived { from, item } => self.on_item(from, item, effects),
            Event::Go { ticket, cover } => self.on_go(ticket, cover, effects),
            Event::Revoke { pair, seqs } => self.on_revoke(pair, seqs, effects),
            Event::TakenBack { pair, seqs, kept } => self.on_taken_back(pair, seqs, kept, effects),
            Event::WorkerGone { pair, unread, obituary } => {
                self.on_worker_gone(pair, unread, obituary, effects);
            }
            Event::Closed { pair } => self.on_caller_gone(pair, effects),
            Event::NodeDead { node, unsent, obituary } => {
                self.on_node_dead(node, &unsent, &obituary, effects);
            }
        }
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.halves.len()
    }

    pub fn is_empty(&self) -> bool {
        self.halves.is_empty()
    }

    pub fn check(&self) {
        for (pair, half) in &self.halves {
            half.outgoing.check(self.dead.contains_key(&self.other_node(*pair)));
            let tickets = half.outgoing.tickets().chain(half.incoming.tickets());
            for ticket in tickets {
                let asked = self.asked.get(&ticket).map(|asked| asked.pair);
                assert_eq!(asked, Some(*pair), "CARRY-5: {pair:?} waits for nobody");
            }
            let near = matches!(half.side, Side::Near(_));
            assert_eq!(near, pair.caller.node() == self.me);
            assert!(near || pair.worker.node() == self.me);
        }
    }

    fn other_node(&self, pair: Pair) -> NodeNumber {
        if pair.caller.node() == self.me { pair.worker.node() } else { pair.caller.node() }
    }

    fn half(&mut self, pair: Pair) -> &mut Half {
        let near = pair.caller.node() == self.me;
        self.halves.entry(pair).or_insert_with(|| Half {
            is_open: false,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            side: if near { Side::Near(Near::default()) } else { Side::Far(Far::default()) },
        })
    }

    fn on_opened(&mut self, pair: Pair, effects: &mut Vec<Effect>) {
        if let Some(obituary) = self.dead.get(&self.other_node(pair)).cloned() {
            effects.push(Effect::Drop { pair });
            if pair.caller.node() == self.me {
                effects.push(Effect::Ended { pair, unstarted: Vec::new(), obituary });
            }
            return;
        }
        let half = self.half(pair);
        if let Side::Far(Far { is_over: true, .. }) = half.side {
            effects.push(Effect::Drop { pair });
            return;
        }
        half.is_open = true;
        effects.push(Effect::Look { pair });
    }

    fn on_item(&mut self, from: NodeNumber, item: Item, effects: &mut Vec<Effect>) {
        let (pair, to_far) = match &item {
            Item::Call(frame) | Item::Stray { is_reply: false, frame } => (frame.pair, true),
            Item::Reply(frame) | Item::Stray { is_reply: true, frame } => (frame.pair, false),
            Item::Credit { pair, of_calls, .. } => (*pair, !of_calls),
            Item::Revoke { pair, .. } | Item::Closed { pair } => (*pair, true),
            Item::Revoked { pair, .. } | Item::Gone { pair, .. } => (*pair, false),
            Item::Peer { .. } => {
                let what = "a message of a decider is none of a pair";
                effects.push(Effect::Nonsense { from, what });
                return;
            }
        };
        if self.dead.contains_key(&from) {
            return;
        }
        let (theirs, ours) =
            if to_far { (pair.caller, pair.worker) } else { (pair.worker, pair.caller) };
        if theirs.node() != from || ours.node() != self.me {
            let what = "it speaks of a pair that is not of both nodes";
            effects.push(Effect::Nonsense { from, what });
            return;
        }
        match item {
            Item::Call(frame) => self.on_call(frame, effects),
            Item::Reply(frame) => self.on_reply(frame, effects),
            Item::Stray { is_reply, frame } => self.stray(is_reply, &frame, effects),
            Item::Credit { pair, bytes, frames, .. } => {
                self.on_credit(from, pair, bytes, frames, effects);
            }
            Item::Revoke { pair, seqs } => self.on_revocation(pair, seqs, effects),
            Item::Closed { pair } => self.on_closed(pair, effects),
            Item::Revoked { .. } | Item::Gone { .. } => self.on_word(pair, item, effects),
            Item::Peer { .. } => unreachable!("it is of no pair"),
        }
    }

    fn on_credit(
        &mut self,
        from: NodeNumber,
        pair: Pair,
        bytes: u64,
        frames: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(half) = self.halves.get_mut(&pair) else { return };
        let took = half.outgoing.takes();
        if !half.outgoing.credit(bytes) {
            let what = "it gives back more credit than it was given";
            effects.push(Effect::Nonsense { from, what });
            return;
        }
        if let Side::Near(near) = &mut half.side {
            near.arrived(frames);
        }
        if !took {
            effects.push(Effect::Look { pair });
        }
    }

    // ---- the decider ----

    fn ask(
        &mut self,
        is_reply: bool,
        arrived: bool,
        frame: &Frame,
        effects: &mut Vec<Effect>,
    ) -> u64 {
        self.tickets += 1;
        let (pair, tag) = (frame.pair, frame.tag);
        let other = self.other_node(pair);
        let leaving = (!arrived).then(|| (other, is_reply, tag, frame.named.clone()));
        self.asked.insert(self.tickets, Asked { pair, leaving });
        let frame = passing(is_reply, arrived, frame, frame.is_last);
        effects.push(Effect::Pass { ticket: self.tickets, frame });
        self.tickets
    }

    /// The decider hears of a frame that arrived for nobody, and nothing more comes of its call.
    fn stray(&mut self, is_reply: bool, frame: &Frame, effects: &mut Vec<Effect>) {
        if frame.names() {
            self.tickets += 1;
            let frame = passing(is_reply, true, frame, true);
            effects.push(Effect::Pass { ticket: self.tickets, frame });
        }
    }

    fn on_go(&mut self, ticket: u64, cover: u64, effects: &mut Vec<Effect>) {
        let Some(Asked { pair, leaving }) = self.asked.remove(&ticket) else { return };
        let half = self.halves.get_mut(&pair);
        let Some((to, is_reply, tag, named)) = leaving else {
            if let Some(half) = half {
                half.incoming.go(ticket);
                self.settle(pair, effects);
            }
            return;
        };
        if half.is_some_and(|half| half.outgoing.go(ticket, cover)) {
            return self.send_on(pair, effects);
        }
        if cover > 0 {
            let (is_last, bytes) = (true, Bytes::Own(Vec::new()));
            let frame = Frame { pair, tag, is_last, cover, named, bytes };
            effects.push(Effect::Send { to, item: Item::Stray { is_reply, frame } });
        }
    }

    /// What waits for nobody leaves.
    fn send_on(&mut self, pair: Pair, effects: &mut Vec<Effect>) {
        let to = self.other_node(pair);
        if self.dead.contains_key(&to) {
            return; // `Ended` counts what is left
        }
        let Some(half) = self.halves.get_mut(&pair) else { return };
        while let Some(parcel) = half.outgoing.pop() {
            let item = match (parcel, &mut half.side) {
                (Parcel::Frame { frame, .. }, Side::Near(near)) => {
                    near.sent(frame.tag);
                    Item::Call(frame)
                }
                (Parcel::Frame { frame, .. }, Side::Far(_)) => Item::Reply(frame),
                (Parcel::Word(item), Side::Near(_) | Side::Far(_)) => item,
            };
            effects.push(Effect::Send { to, item });
        }
    }

    fn push(&mut self, pair: Pair, parcel: Parcel, effects: &mut Vec<Effect>) {
        self.half(pair).outgoing.push(parcel);
        self.send_on(pair, effects);
    }

    /// What came, as far as it is not for the ring, and credit.
    fn settle(&mut self, pair: Pair, effects: &mut Vec<Effect>) {
        let to = self.other_node(pair);
        let Some(half) = self.halves.get_mut(&pair) else { return };
        let mut words = Vec::new();
        while let Some(arrival) = half.incoming.queue.front() {
            match arrival {
                Arrival::Frame { waits: Some(_), .. } => break,
                // Taken back, or the end of a call that was.
                Arrival::Frame { waits: None, frame, dropped }
                    if *dropped || frame.bytes.is_empty() =>
                {
                    let Some(Arrival::Frame { frame, .. }) = half.incoming.queue.pop_front() else {
                        unreachable!("it is the front");
                    };
                    half.incoming.owe(&frame);
                }
                Arrival::Frame { waits: None, .. } => {
                    if half.is_open {
                        effects.push(Effect::Look { pair });
                    }
                    break;
                }
                Arrival::Word(_) => {
                    let Some(Arrival::Word(word)) = half.incoming.queue.pop_front() else {
                        unreachable!("it is the front");
                    };
                    words.push(word);
                }
            }
        }
        if let Some((bytes, frames)) = half.incoming.credit()
            && !self.dead.contains_key(&to)
        {
            let of_calls = matches!(half.side, Side::Far(_));
            let item = Item::Credit { pair, of_calls, bytes, frames };
            effects.push(Effect::Send { to, item });
        }
        words.into_iter().for_each(|word| self.hear(word, effects));
    }

    fn on_node_dead(
        &mut self,
        node: NodeNumber,
        unsent: &[(Pair, u64)],
        obituary: &Obituary,
        effects: &mut Vec<Effect>,
    ) {
        if self.dead.insert(node, obituary.clone()).is_some() {
            return;
        }
        let pairs = self.halves.keys().filter(|it| self.other_node(**it) == node);
        let mut pairs: Vec<Pair> = pairs.copied().collect();
        pairs.sort_unstable();
        for pair in pairs {
            let half = self.halves.get_mut(&pair).expect("it was listed");
            match half.side {
                Side::Near(_) => {
                    let mine = unsent.iter().filter(|(of, _)| *of == pair).map(|(_, tag)| *tag);
                    let (unstarted, received) = (mine.collect(), u64::MAX);
                    // Its replies that are here are written first: their tokens are given.
                    let gone = Item::Gone { pair, received, unstarted, obituary: obituary.clone() };
                    half.incoming.queue.push_back(Arrival::Word(gone));
                    self.settle(pair, effects);
                }
                Side::Far(_) => {
                    self.halves.remove(&pair);
                    effects.push(Effect::Drop { pair });
                }
            }
        }
    }
}

fn passing(is_reply: bool, arrived: bool, frame: &Frame, is_last: bool) -> Passing {
    Passing {
        caller: frame.pair.caller,
        worker: frame.pair.worker,
        tag: frame.tag,
        is_reply,
        arrived: arrived.then_some(frame.cover),
        named: frame.named.clone(),
        is_last,
    }
}
