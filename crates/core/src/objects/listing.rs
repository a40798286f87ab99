//! What people may ask about the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use hoplo_base::{NodeNumber, ObjectId, ProcessId, Size, TaskId};
use hoplo_wire::node::Lineage;
use hoplo_wire::{FailureKind, Reason};

use super::ObjectDirectory;
use super::on_move::MoveKind;
use super::record::{Record, Several, State};

/// One shared object, for `hoplo list objects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    pub object: ObjectId,
    /// `pending`, `orphaned`, `inline`, `stored`, `spilling`, `spilled`, `restoring`, `mapped` (on disk, and
    /// readable there), `closing`, `failed`, `handle` (of an actor), `unknown` (heard of, not told yet), `foreign` (at home at
    /// another node, which did not tell its value yet) or `elsewhere` (its bytes are at other nodes).
    pub state: &'static str,
    /// Bytes of the value; 0 while there is none.
    pub len: u64,
    /// Who makes it, while it is pending.
    pub owner: Option<ProcessId>,
    /// Processes and their tokens; a negative count is on its way to zero or more.
    pub holders: Vec<(ProcessId, i64)>,
    /// Records that contain it, counted with repetition.
    pub containers: u64,
    pub node_holds: u64,
    /// What its value contains.
    pub contains: Vec<ObjectId>,
    /// Processes that wait for it.
    pub waiting: Vec<ProcessId>,
    /// Other nodes that have its bytes, as far as is known here.
    pub copies: Vec<NodeNumber>,
    /// In our charge, and to be on several nodes.
    pub several: Option<Several>,
    /// Other nodes that wait for it.
    pub waiting_nodes: Vec<NodeNumber>,
    /// Its home knows that its bytes are here, and they stay until it needs them no more.
    pub kept: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub capacity_bytes: u64,
    /// In extents of processes, and under objects of dead ones.
    pub granted_bytes: u64,
    pub free_bytes: u64,
    /// Of sealed objects in the arena.
    pub stored_bytes: u64,
    pub stored_objects: u64,
    /// Of objects in the spill file, whether they are readable there or not.
    pub spilled_bytes: u64,
    pub spilled_objects: u64,
    /// Of those of them that are readable there.
    pub mapped_bytes: u64,
    pub mapped_objects: u64,
    /// Disk space that the spill file takes.
    pub disk_bytes: u64,
    /// Records.
    pub objects: u64,
    pub requests_waiting: u64,
    /// Since the start.
    pub spills: u64,
    /// Secondary copies that went.
    pub evictions: u64,
    pub restores: u64,
    pub violations: u64,
}

/// Where the bytes of a stored object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPlace {
    pub bytes: u64,
    /// In this node's store.
    pub is_here: bool,
    /// There, in the spill file.
    pub is_spilled: bool,
    /// In our charge, and to be on several nodes.
    pub several: Option<Several>,
}

impl ObjectDirectory {
    /// Of an object that is stored, as far as is known here.
    pub fn place_of(&self, object: ObjectId) -> Option<ObjectPlace> {
        let record = self.records.get(&object)?;
        let state = &record.state;
        let is_spilled = match state {
            State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => true,
            State::Elsewhere { .. } | State::Stored { .. } | State::Spilling { .. } => false,
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_) => return None,
        };
        let (bytes, is_here) = (state.len(), state.is_here());
        Some(ObjectPlace { bytes, is_here, is_spilled, several: record.several() })
    }

    /// How many bytes a stored object has, and which nodes have all of them, as far as is known here. The first two may be fetching them.
    pub fn whereabouts(&self, object: ObjectId) -> Option<(u64, Vec<NodeNumber>)> {
        let place = self.place_of(object)?;
        let here = place.is_here.then_some(self.node);
        Some((place.bytes, here.into_iter().chain(self.records[&object].copies()).collect()))
    }

    /// Nodes that took slowly what they fetched as this node told them to.
    pub fn slow_nodes(&self) -> BTreeSet<NodeNumber> {
        self.speeds.slow_nodes()
    }

    /// Every shared object, in order of its id.
    pub fn listing(&self) -> impl Iterator<Item = ObjectRow> {
        self.records.iter().map(|(object, record)| ObjectRow {
            object: *object,
            state: record.state.name(),
            len: record.state.len(),
            owner: record.state.owner(),
            holders: record.tokens.iter().map(|(process, count)| (*process, *count)).collect(),
            containers: record.containers,
            node_holds: record.node_holds,
            contains: record.contains.clone(),
            waiting: record.waiting.keys().copied().collect(),
            copies: record.copies().collect(),
            several: record.several(),
            waiting_nodes: record.far_waiting().collect(),
            kept: record.kept.is_some(),
        })
    }

    /// Copies that are here for homes elsewhere. O(records).
    pub fn kept_for_homes(&self) -> usize {
        self.records.values().filter(|record| record.kept.is_some()).count()
    }

    /// Who joined and is not gone, in order.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.processes.keys().copied()
    }

    /// O(records).
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            capacity_bytes: self.config.capacity_bytes,
            granted_bytes: self.memory.granted_bytes(),
            free_bytes: self.memory.free_bytes(),
            objects: self.records.len() as u64,
            disk_bytes: self.disk.taken_bytes(),
            requests_waiting: self.requests.len() as u64,
            spills: self.spills,
            evictions: self.evictions,
            restores: self.restores,
            violations: self.violations,
            ..Totals::default()
        };
        for record in self.records.values() {
            match &record.state {
                State::Stored { location, .. } | State::Spilling { location, .. } => {
                    totals.stored_objects += 1;
                    totals.stored_bytes += location.len;
                }
                State::Mapped { place, .. } => {
                    totals.spilled_objects += 1;
                    totals.spilled_bytes += place.len;
                    totals.mapped_objects += 1;
                    totals.mapped_bytes += place.len;
                }
                State::Spilled { place, .. }
                | State::Restoring { place, .. }
                | State::Closing { place, .. } => {
                    totals.spilled_objects += 1;
                    totals.spilled_bytes += place.len;
                }
                State::Unknown { .. }
                | State::Handle
                | State::Foreign { .. }
                | State::Elsewhere { .. }
                | State::Pending { .. }
                | State::Orphaned { .. }
                | State::Inline(_)
                | State::Failed(_) => {}
            }
        }
        totals
    }

    /// What the object is, what it waits for and who keeps it, for people.
    pub fn explain(&self, object: ObjectId) -> Reason {
        let Some(record) = self.records.get(&object) else {
            let freeing = self.moves.values().any(|moving| {
                moving.object == object && matches!(moving.kind, MoveKind::Free { .. })
            });
            let text = if freeing {
                "was freed; its memory comes back when nobody reads it any more"
            } else {
                "has no record on this node: no ref of it ever left its owner, or all refs are gone"
            };
            return format!("{object} {text}").into();
        };
        let state = self.explain_state(object, record);
        Reason::from(format!("{object} ")).and(state).and("; ").and(explain_support(record))
    }

    /// Who makes it, and how somebody else could, while it is pending.
    pub fn pending(&self, object: ObjectId) -> Option<(Option<ProcessId>, &Lineage)> {
        match &self.records.get(&object)?.state {
            State::Pending { owner, lineage: Some(lineage) } => Some((Some(*owner), lineage)),
            State::Orphaned { lineage: Ok(lineage), .. } => Some((None, lineage)),
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Orphaned { lineage: Err(_), .. }
            | State::Pending { lineage: None, .. }
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

    /// Pending objects that another process than their owner could make, or makes.
    pub fn lineages(&self) -> impl Iterator<Item = (ObjectId, &Lineage)> {
        let lineage = |object: ObjectId| self.pending(object).map(|(_, lineage)| (object, lineage));
        self.records.keys().copied().filter_map(lineage)
    }

    /// Who makes the results of a task, as far as one of them is known and pending.
    pub fn maker(&self, task: TaskId) -> Option<ProcessId> {
        let results = task.object(0)..=task.object(u32::MAX);
        self.records.range(results).find_map(|(_, record)| record.state.owner())
    }

    /// Its value, if that is here, not longer than that, and contains nothing.
    pub fn plain_value(&self, object: ObjectId, bytes_max: usize) -> Option<Arc<[u8]>> {
        let record = self.records.get(&object)?;
        match &record.state {
            State::Inline(value) if value.len() <= bytes_max && record.contains.is_empty() => {
                Some(Arc::clone(value))
            }
            _ => None,
        }
    }

    /// Whether its value, or all its bytes, are here and stay as long as anybody uses it.
    pub fn keeps_value(&self, object: ObjectId) -> bool {
        let Some(record) = self.records.get(&object) else { return false };
        let is_used = record.is_supported() || record.kept.is_some();
        let has_value = match &record.state {
            State::Inline(_)
            | State::Stored { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => true,
            // It may be a secondary copy on its way out.
            State::Spilling { .. } => false,
            // What failed for another reason has that for a value.
            State::Failed(failure) => {
                !matches!(failure.kind, FailureKind::ObjectLost | FailureKind::OwnerDied)
            }
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. } => false,
        };
        is_used && has_value
    }

    /// Whether the last word on a result of a task may lie in a socket.
    pub fn knows(&self, object: ObjectId) -> bool {
        self.records.contains_key(&object)
    }

    pub fn is_undecided(&self, task: TaskId) -> bool {
        self.undecided.range(task.object(0)..=task.object(u32::MAX)).next().is_some()
    }

    /// Its owner is dead, and it has no value here.
    pub fn is_orphaned(&self, object: ObjectId) -> bool {
        let record = self.records.get(&object);
        record.is_some_and(|record| matches!(record.state, State::Orphaned { .. }))
    }

    /// What happened to the object lately, one line each, oldest first.
    pub fn story(&self, object: ObjectId) -> Vec<String> {
        let lines = self.story.iter().filter(|line| line.object == object);
        let text = |line: &super::StoryLine| {
            let who = line.who.map_or(String::new(), |who| format!(" ({who})"));
            format!("{:.6}s {object} {}{who}", line.at.0 as f64 / 1e9, line.what)
        };
        lines.map(text).collect()
    }

    fn explain_state(&self, object: ObjectId, record: &Record) -> Reason {
        let len = Size(record.state.len());
        let text = match &record.state {
            State::Pending { owner, lineage: None } if record.has_lineage => {
                let was = if record.lost_bytes > 0 { " was lost, and" } else { "" };
                let owns = format!(" owns {}, which runs again", object.task);
                return Reason::from(format!("{was} is pending: ").trim_start()).and(*owner).and(owns);
            }
            State::Pending { owner, lineage } => {
                let again = if lineage.is_some() { "" } else { ", and could not be run again" };
                let owns = format!(" owns {} that makes it{again}", object.task);
                return Reason::from("is pending: ").and(*owner).and(owns);
            }
            State::Unknown { .. } => {
                "was mentioned, and its owner's word on it has not been read yet".to_string()
            }
            State::Handle => "stands for the handles of an actor".to_string(),
            State::Foreign { asked, .. } => {
                let home = object.task.owner.node().hex();
                let asked = if *asked { ", and its home is asked for it" } else { "" };
                format!("is at home at node {home}, which has not told its value{asked}")
            }
            State::Elsewhere { pulling, .. } => {
                let pulling = if *pulling { ", and is being fetched" } else { "" };
                let nodes = listed(record.copies());
                format!("is ready ({len} in the store of {nodes}){pulling}")
            }
            State::Orphaned { .. } if self.undecided.contains(&object) => {
                "has no value here and its owner is dead: what its maker wrote last is being read"
                    .to_string()
            }
            State::Orphaned { .. } => {
                "is pending and its owner is dead: the next process that uses it runs its task again"
                    .to_string()
            }
            State::Inline(_) => format!("is ready ({len}, kept by the daemon)"),
            State::Failed(failure) => format!("failed ({})", failure.kind.exception()),
            State::Stored { .. } => format!("is ready ({len} in the store)"),
            State::Spilling { .. } => format!("is being written to disk ({len})"),
            State::Spilled { queued: false, .. } => format!("is on disk ({len})"),
            State::Spilled { queued: true, .. } => {
                format!("is on disk ({len}) and waits for an object slot, to be read there")
            }
            State::Restoring { .. } => format!("is being read from disk ({len})"),
            State::Mapped { .. } => format!("is ready ({len}, read where it is on disk)"),
            State::Closing { .. } => format!("is on disk ({len}) and gives its object slot back"),
        };
        text.into()
    }
}

fn listed(nodes: impl Iterator<Item = NodeNumber>) -> String {
    let nodes: Vec<String> = nodes.map(NodeNumber::hex).collect();
    match &nodes[..] {
        [] => "no node".to_string(),
        [one] => format!("node {one}"),
        several => format!("nodes {}", several.join(", ")),
    }
}

fn explain_support(record: &Record) -> Reason {
    let mut told: Vec<Reason> = Vec::new();
    if record.holders().next().is_some() {
        let holders = record.holders().map(Reason::from);
        told.push(Reason::from("held by ").and(Reason::joined(holders, ", ")));
    }
    if record.containers > 0 {
        told.push(format!("contained in {} other values", record.containers).into());
    }
    if record.node_holds > 0 {
        told.push("held by the node (a function, an actor's arguments)".into());
    }
    if !record.waiting.is_empty() {
        let waiting = record.waiting.keys().copied().map(Reason::from);
        told.push(Reason::from("waited for by ").and(Reason::joined(waiting, ", ")));
    }
    if record.far_waiting().next().is_some() {
        told.push(format!("waited for by {}", listed(record.far_waiting())).into());
    }
    if record.kept.is_some() {
        told.push("kept for its home, which knows of this copy".into());
    }
    if let Some(Several { wanted, had }) = record.several() {
        told.push(format!("put with {wanted} copies, of which {had} nodes have one").into());
    }
    if record.to_keep > 0 {
        told.push(format!("put with {} copies, of which one is to be here", record.to_keep).into());
    }
    if !matches!(record.state, State::Elsewhere { .. }) && record.copies().next().is_some() {
        told.push(format!("also at {}", listed(record.copies())).into());
    }
    if told.is_empty() { "nobody holds it, it goes now".into() } else { Reason::joined(told, "; ") }
}
