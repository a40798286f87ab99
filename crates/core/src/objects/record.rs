//! What the directory knows about one shared object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hoplo_base::{Instant, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::Lineage;
use hoplo_wire::{Failure, FailureKind, Location, Value};

use super::event::{CopyAt, Need, SpillPlace};

#[derive(Debug)]
pub(super) struct Record {
    pub(super) state: State,
    /// Tokens by process, never zero. Below zero: what it gave back was told before what gave it
    /// (they come through different sockets).
    pub(super) tokens: BTreeMap<ProcessId, i64>,
    pub(super) node_holds: u64,
    /// How often it occurs in `contains` of records.
    pub(super) containers: u64,
    /// The refs in its value; while it is pending, those in its lineage, or in the value that was lost.
    pub(super) contains: Vec<ObjectId>,
    /// Processes to tell when there is a value, and what they need of it.
    pub(super) waiting: BTreeMap<ProcessId, Need>,
    /// Sweeps that were asked for when a message about it was last handled.
    pub(super) touched: u64,
    /// At home elsewhere: `Foreign` was said of it, and no `Unforeign` since.
    pub(super) claimed: bool,
    /// At home elsewhere: the home was told with this number that its bytes are here, and has not answered `Forgotten`.
    pub(super) kept: Option<u64>,
    /// Its bytes were fetched from another node, and no node died since: they can be fetched again.
    pub(super) secondary: bool,
    /// At home elsewhere: its home has said where its bytes are, now or before.
    pub(super) located: bool,
    /// At home here: it was made at another node, and its owner keeps its lineage until it hears that this is over.
    pub(super) has_lineage: bool,
    /// It was lost, and is made again: at its home, until it has a value; elsewhere, as its home said.
    pub(super) remade: bool,
    /// Inherited, and not all nodes have announced what they know of it: it stays until then (EST-1).
    pub(super) unannounced: bool,
    /// Bytes that it had when its last copy was lost, while it is made again; else 0.
    pub(super) lost_bytes: u64,
    pub(super) abroad: Option<Box<Abroad>>,
    /// In our charge, and to be on several nodes.
    pub(super) copies: Option<Box<Copies>>,
    /// In the charge of another node, which asked for one of so many copies here; else 0.
    pub(super) to_keep: u8,
}

/// What other nodes have to do with an object; most have nothing.
#[derive(Debug, Default)]
pub(super) struct Abroad {
    /// At its home: those that have all its bytes. Elsewhere: from where its home said that it can be fetched, the best one first.
    pub(super) copies: Vec<CopyAt>,
    /// Elsewhere: the turn in which its home said so; 0 if it is not fetched from there.
    pub(super) turn: u64,
    /// At its home: those to tell when there is a value.
    pub(super) waiting: BTreeSet<NodeNumber>,
    /// At its home, while it is pending: those that were told how it is made, and that hold what its task is given.
    pub(super) lineage_at: BTreeSet<NodeNumber>,
    /// At its home: those that were told from where to fetch its bytes, and do not have all of them yet.
    pub(super) fetching: BTreeMap<NodeNumber, Fetching>,
}

/// Of an object that is to be on several nodes, in our charge.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// On how many.
    pub(super) wanted: u8,
    /// Other nodes that have it, or were asked to and did not refuse.
    pub(super) asked: BTreeSet<NodeNumber>,
}

/// On how many nodes an object is to be that was put with copies, and how many have it and keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several {
    pub wanted: u8,
    pub had: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetching {
    /// When it was told: it counts up.
    pub(super) turn: u64,
    /// The first one that it was told.
    pub(super) from: NodeNumber,
    /// When that was, if it was told once, and that one lives.
    pub(super) since: Option<Instant>,
    /// Since when that one has all bytes.
    pub(super) source_has_all: Option<Instant>,
    /// It takes it less than half as fast as its first source did: nobody fetches from it.
    pub(super) lags: bool,
}

#[derive(Debug)]
pub(super) enum State {
    /// Heard of before it was told. `since`: sweeps asked for until then.
    Unknown {
        since: u64,
    },
    /// The pseudo-object of an actor's handles.
    Handle,
    /// At home elsewhere, and its value is not known here. `asked`: the home is to tell it. `again`: what it told before
    /// could not be fetched.
    Foreign {
        asked: bool,
        again: bool,
    },
    /// Stored, and its bytes are at the nodes of `Abroad::copies` and not here. `pulling`: they are on their way, or wait for
    /// room. `again`: it was tried before, in vain.
    Elsewhere {
        bytes: u64,
        pulling: bool,
        again: bool,
    },
    Pending {
        owner: ProcessId,
        lineage: Option<Lineage>,
    },
    /// Pending, and its owner is dead. `since`: sweeps asked for until then. Once a later one has passed, whoever
    /// holds it or waits for it adopts it; without lineage it is this failure.
    Orphaned {
        lineage: Result<Lineage, Failure>,
        since: u64,
    },
    Inline(Arc<[u8]>),
    Failed(Failure),
    /// `used`: its place in the order of use. Not spilled before `rests_until`.
    Stored {
        location: Location,
        used: u64,
        rests_until: Instant,
    },
    /// On its way out of the arena: to the spill file, or, if it is secondary, away.
    Spilling {
        location: Location,
        ticket: u64,
    },
    /// In the spill file. `queued`: a request for a slot to restore it is waiting.
    Spilled {
        place: SpillPlace,
        queued: bool,
    },
    Restoring {
        place: SpillPlace,
        ticket: u64,
    },
    /// Readable in the spill file: `location` says where `place` is. `used`: its place in the order of use.
    /// Not closed before `rests_until`.
    Mapped {
        place: SpillPlace,
        location: Location,
        used: u64,
        rests_until: Instant,
    },
    /// Its slot is taken away, so that it can be read again only when it is restored.
    Closing {
        place: SpillPlace,
        ticket: u64,
    },
}

impl Record {
    pub(super) fn new(state: State, touched: u64) -> Self {
        Self {
            state,
            tokens: BTreeMap::new(),
            node_holds: 0,
            containers: 0,
            contains: Vec::new(),
            waiting: BTreeMap::new(),
            touched,
            claimed: false,
            kept: None,
            secondary: false,
            located: false,
            has_lineage: false,
            remade: false,
            unannounced: false,
            lost_bytes: 0,
            abroad: None,
            copies: None,
            to_keep: 0,
        }
    }

    /// Whether something that lives may reach it, as far as has been told.
    pub(super) fn is_supported(&self) -> bool {
        self.tokens.values().any(|count| *count > 0)
            || self.node_holds > 0
            || self.containers > 0
            || self.unannounced
            || !self.waiting.is_empty()
            || self.is_to_come()
            || self.abroad.as_ref().is_some_and(|abroad| !abroad.waiting.is_empty())
    }

    /// Without support, and something follows from it: it goes; or, where its home knows of the copy, it stays and is claimed
    /// no more.
    pub(super) fn is_candidate(&self) -> bool {
        !self.is_supported() && (self.claimed || self.kept.is_none())
    }

    /// Somebody waits for its bytes.
    pub(super) fn is_to_read(&self) -> bool {
        self.waiting.values().any(|need| *need == Need::Bytes)
    }

    pub(super) fn waits_for(&mut self, process: ProcessId, need: Need) {
        let entry = self.waiting.entry(process).or_insert(need);
        *entry = need.max(*entry);
    }

    /// Other nodes that have all its bytes.
    pub(super) fn copies(&self) -> impl Iterator<Item = NodeNumber> {
        self.told_copies().map(|copy| copy.node)
    }

    /// Its value was at nodes that died. What was being fetched from there may still come.
    pub(super) fn has_lost_all(&self) -> bool {
        matches!(self.state, State::Elsewhere { .. }) && self.copies().next().is_none()
    }

    /// With the words by which they said so.
    pub(super) fn told_copies(&self) -> impl Iterator<Item = CopyAt> {
        self.abroad.iter().flat_map(|abroad| abroad.copies.iter().copied())
    }

    /// Nodes that wait for its value.
    pub(super) fn far_waiting(&self) -> impl Iterator<Item = NodeNumber> {
        self.abroad.iter().flat_map(|abroad| abroad.waiting.iter().copied())
    }

    pub(super) fn abroad(&mut self) -> &mut Abroad {
        self.abroad.get_or_insert_default()
    }

    /// Nodes that it names no more take no memory.
    pub(super) fn tidy(&mut self) {
        self.abroad.take_if(|abroad| abroad.is_empty());
    }

    /// That node has all its bytes, whatever it asked before.
    pub(super) fn add_copy(&mut self, copy: CopyAt) {
        let abroad = self.abroad();
        abroad.waiting.remove(&copy.node);
        abroad.fetching.remove(&copy.node);
        match abroad.copies.iter_mut().find(|it| it.node == copy.node) {
            Some(known) => known.word = copy.word,
            None => abroad.copies.push(copy),
        }
    }

    /// That node does not have it, and does not fetch it.
    pub(super) fn end_copy(&mut self, node: NodeNumber) {
        if let Some(abroad) = &mut self.abroad {
            abroad.copies.retain(|copy| copy.node != node);
        }
        self.end_fetching(node);
    }

    /// That node fetches it no more.
    pub(super) fn end_fetching(&mut self, node: NodeNumber) {
        if let Some(abroad) = &mut self.abroad {
            abroad.fetching.remove(&node);
        }
        self.tidy();
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = ProcessId> {
        self.tokens.iter().filter(|(_, count)| **count > 0).map(|(process, _)| *process)
    }

    pub(super) fn concerns(&self, process: ProcessId) -> bool {
        self.tokens.contains_key(&process)
            || self.waiting.contains_key(&process)
            || self.state.owner() == Some(process)
    }
}

impl Abroad {
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty()
            && self.waiting.is_empty()
            && self.lineage_at.is_empty()
            && self.fetching.is_empty()
    }

    /// That node was told just now to fetch it from another one.
    pub(super) fn begin_fetching(
        &mut self,
        node: NodeNumber,
        turn: u64,
        from: NodeNumber,
        now: Instant,
    ) {
        let source_has_all = (!self.fetching.contains_key(&from)).then_some(now);
        let since = (!self.fetching.contains_key(&node)).then_some(now);
        self.fetching.insert(node, Fetching { turn, from, since, source_has_all, lags: false });
    }

    /// That node has all bytes now.
    pub(super) fn has_all(&mut self, node: NodeNumber, now: Instant) {
        for fetching in self.fetching.values_mut().filter(|it| it.from == node) {
            fetching.source_has_all.get_or_insert(now);
        }
    }

    /// It lags: those who were told to fetch from it fetch from its source, and it fetches from the end of that chain. Nobody, if nobody is behind it.
    pub(super) fn step_aside(&mut self, node: NodeNumber) -> Vec<NodeNumber> {
        let Some(lagging) = self.fetching.get_mut(&node) else { return Vec::new() };
        lagging.lags = true;
        let by = lagging.from;
        let mut moved = Vec::new();
        let behind = self.fetching.iter_mut().filter(|(_, it)| it.from == node);
        // Who relays it to the lagging one fetches elsewhere: what it was told at first is old (seed 4350209).
        for (behind, fetching) in behind.filter(|(behind, _)| **behind != by) {
            fetching.from = by;
            // What it waited for so far is not its own fault.
            fetching.since = None;
            moved.push(*behind);
        }
        let end = self.end_of_chain(by);
        if !moved.is_empty() && end != by {
            let has_all = !self.fetching.contains_key(&end);
            let lagging = self.fetching.get_mut(&node).expect("it was just there");
            lagging.from = end;
            lagging.source_has_all = lagging.source_has_all.filter(|_| has_all);
            moved.push(node);
        }
        moved
    }

    /// The last one of those who fetch from that node, or from one who does, and do not lag.
    fn end_of_chain(&self, first: NodeNumber) -> NodeNumber {
        let mut end = first;
        // No chain is longer.
        for _ in 0..self.fetching.len() {
            let next = self.fetching.iter().filter(|(_, it)| it.from == end && !it.lags);
            let Some((next, _)) = next.min_by_key(|(_, it)| it.turn) else { break };
            end = *next;
        }
        end
    }

    /// How many fetch from each node, as far as its home told them to: those that are not slow, and those that are.
    pub(super) fn loads(
        &self,
        is_slow: impl Fn(NodeNumber) -> bool,
    ) -> BTreeMap<NodeNumber, (u32, u32)> {
        let mut loads: BTreeMap<_, (u32, u32)> = BTreeMap::new();
        for (node, fetching) in &self.fetching {
            let (others, slow) = loads.entry(fetching.from).or_default();
            if is_slow(*node) { *slow += 1 } else { *others += 1 }
        }
        loads
    }

    /// Those that fetched from that node go on at the one before it, if they keep to what they were told.
    pub(super) fn fetcher_died(&mut self, dead: NodeNumber) {
        let Some(Fetching { from: before, .. }) = self.fetching.remove(&dead) else { return };
        for (node, fetching) in &mut self.fetching {
            if fetching.from == dead && *node != before {
                fetching.from = before;
                // What it waited for meanwhile is not its own fault.
                fetching.since = None;
            }
        }
    }
}

impl State {
    pub(super) fn owner(&self) -> Option<ProcessId> {
        match self {
            State::Pending { owner, .. } => Some(*owner),
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => None,
        }
    }

    /// What a reader gets now; nothing while it has to wait.
    pub(super) fn value(&self) -> Option<Value> {
        match self {
            State::Inline(bytes) => Some(Value::Inline(bytes.clone())),
            State::Failed(failure) => Some(Value::Failed(failure.clone())),
            State::Stored { location, .. } | State::Mapped { location, .. } => {
                Some(Value::Stored(*location))
            }
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Closing { .. } => None,
        }
    }

    /// Whether a first value may still be told. Of what was lost with a node too: its task may run again.
    pub(super) fn is_open(&self) -> bool {
        match self {
            State::Unknown { .. }
            | State::Foreign { .. }
            | State::Pending { .. }
            | State::Orphaned { .. } => true,
            State::Failed(failure) => failure.kind == FailureKind::ObjectLost,
            State::Handle
            | State::Elsewhere { .. }
            | State::Inline(_)
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => false,
        }
    }

    /// Its bytes are in the arena or in the spill file.
    pub(super) fn is_here(&self) -> bool {
        match self {
            State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => true,
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_) => false,
        }
    }

    /// Its bytes are on their way, or wait for room.
    pub(super) fn is_pulling(&self) -> bool {
        matches!(self, State::Elsewhere { pulling: true, .. })
    }

    /// Somebody may make it, if it is known how. `since`: the sweep that was asked for last.
    pub(super) fn made_by_nobody(lineage: Option<Lineage>, since: u64) -> Self {
        match lineage {
            Some(lineage) => State::Orphaned { lineage: Ok(lineage), since },
            None => State::Unknown { since },
        }
    }

    /// No value of it is here, and none is on its way: what there is, others know or have.
    pub(super) fn depends_on_others(&self) -> bool {
        match self {
            State::Foreign { .. } | State::Elsewhere { pulling: false, .. } => true,
            State::Elsewhere { pulling: true, .. }
            | State::Unknown { .. }
            | State::Handle
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => false,
        }
    }

    /// Its bytes are in the store of this node, or of others.
    pub(super) fn is_stored(&self) -> bool {
        self.is_here() || matches!(self, State::Elsewhere { .. })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            State::Unknown { .. } => "unknown",
            State::Handle => "handle",
            State::Foreign { .. } => "foreign",
            State::Elsewhere { .. } => "elsewhere",
            State::Pending { .. } => "pending",
            State::Orphaned { .. } => "orphaned",
            State::Inline(_) => "inline",
            State::Failed(_) => "failed",
            State::Stored { .. } => "stored",
            State::Spilling { .. } => "spilling",
            State::Spilled { .. } => "spilled",
            State::Restoring { .. } => "restoring",
            State::Mapped { .. } => "mapped",
            State::Closing { .. } => "closing",
        }
    }

    /// Bytes of the value; 0 while there is none.
    pub(super) fn len(&self) -> u64 {
        match self {
            State::Inline(bytes) => bytes.len() as u64,
            State::Failed(failure) => failure.payload.len() as u64,
            State::Stored { location, .. } | State::Spilling { location, .. } => location.len,
            State::Spilled { place, .. }
            | State::Restoring { place, .. }
            | State::Mapped { place, .. }
            | State::Closing { place, .. } => place.len,
            State::Elsewhere { bytes, .. } => *bytes,
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Pending { .. }
            | State::Orphaned { .. } => 0,
        }
    }
}

/// A stored value whose bytes are at other nodes. Where there are none of them, that is all of it.
pub(super) fn elsewhere(bytes: u64) -> State {
    match bytes {
        0 => State::Inline(Arc::default()),
        bytes => State::Elsewhere { bytes, pulling: false, again: false },
    }
}
