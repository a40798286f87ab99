//! Proof that the checks can fail: the world breaks a promise on purpose, and some seed must show it.
//!
//! Each stands for a rule of the machines that would be missing: what they decide is undone where it is carried out.

use std::time::Duration;

use hoplo_base::{Instant, TaskId};
use hoplo_core::node::Event as NodeEvent;
use hoplo_core::session::Event;
use hoplo_wire::node::{ActorState, DeathCause, Notice, Obituary, Replay, ToClient, ToNode};
use hoplo_wire::peer::{Claims, Gained, Peer};
use hoplo_wire::{Failure, FailureKind, Value};

use crate::carrier::Word;
use crate::cluster::{Cluster, Step};
use crate::faults::Plan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// What was spilled is read in the store again, and waits for room there: for that which others hold who
    /// wait for the same.
    ArgumentsWaitForRoom,
    /// That an object cannot be read now becomes its value.
    PassingFailureStays,
    /// A worker that waits keeps its CPU.
    NothingIsLent,
    /// Nobody hears that he is to run the tasks of the dead.
    NobodyAdopts,
    /// What lies in the sockets is not read before it is decided what is lost.
    SweepsReadNothing,
    /// A process's end is not told to the questions that wait for it.
    DeadAreAwaited,
    /// Who hears that a worker of his waits takes it for dead.
    WaitIsTakenForDeath,
    /// Of the calls that lay in a dead worker's ring all count as begun.
    QueuedCountAsBegun,
    /// Whoever dies is said to have used too much memory.
    DeathsBlameMemory,
    /// A cancellation hits what was submitted after the task that it means.
    CancelHitsTheNext,
    /// Each cancellation reaches all that the task submitted.
    CancelSpreads,
    /// Of an actor that starts again it is said that it is dead.
    RestartIsTakenForDeath,
    /// Room that was granted is said to be denied, since the disk is full.
    GrantIsTakenForDenial,
    /// A call that comes again runs again.
    DuplicatesRun,
    /// Calls are replayed in another order.
    ReplayIsReversed,
    /// What a worker said that does not read is not heard.
    DeafAreUnheard,

    // ---- of several nodes ----
    /// What leaves a node and names refs has no cover (NREF-2).
    CoversAreSkipped,
    /// What came in a far call is not held for it (FAR-3).
    CallsHoldNothing,
    /// Who served a dead caller holds nothing of what its calls name (REF-2).
    CallersTakeAllAlong,
    /// What a worker returns to a far caller is not held until its reply has left (FAR-4).
    RepliesHoldNothing,
    /// Who claims something is taken for one that releases it (NREF-1).
    ClaimsAreForgotten,
    /// What a link sends again does not arrive.
    ResendsAreLost,
    /// Nobody hears of the end of a far worker.
    GoneIsSkipped,
    /// Which calls a far worker never took is not told.
    UnstartedAreForgotten,
    /// A piece of an object is lost at times.
    PiecesAreLost,
    /// A member of a reduce is folded in twice.
    MembersAreFoldedTwice,
    /// What was lost with a node is not folded into the rest (COLL-3).
    LostMembersAreSkipped,
    /// What was made in a ring is taken for the result, whatever became of it.
    RingsAreTrusted,
    /// An owner runs no task again whose result was lost.
    LossesAreFinal,
    /// A reply of an actor with checkpoints leaves before its home has logged the call.
    RepliesDoNotWait,
    /// A home takes a call for kept that its keeper did not hear.
    KeepersAreNotAwaited,
    /// What nodes know of the objects of a dead home is not told to the heir.
    EstatesAreUntold,
    /// A new head does not hear what nodes hold of placement groups, and that they have told it all their names.
    HeldIsUnheard,
    /// A driver that left is taken for one that has unmapped the store (NODE-1).
    LeavingUnmaps,
    /// A node that is dead to others goes on telling them how its processes end.
    FencedSpeak,
    /// A new head gives names before nodes have told it theirs (NAME-1).
    NamesAreNotAwaited,
    /// A head over control nodes names heirs of which it has just written that they are dead (LEAD-1).
    BuriedInherit,
    /// It reads nothing of what the dead left (LEAD-2).
    NothingIsLeft,
}

impl Sabotage {
    /// The seed gets what it needs to show.
    pub fn suits(self, plan: &mut Plan) {
        // It would mostly die late, or not at all.
        plan.dies_when_named = false;
        plan.node_is_fenced = self == Self::FencedSpeak;
        plan.node_freezes = false;
        let at = plan.head_falls_at.take();
        match self {
            Self::ArgumentsWaitForRoom => {
                plan.capacity_bytes = 3 << 20;
                plan.head_dies_at = None;
            }
            Self::PassingFailureStays => {
                plan.capacity_bytes = 3 << 20;
                (plan.disk_failures, plan.kills) = (true, 1000);
                plan.head_dies_at = None;
            }
            Self::NobodyAdopts
            | Self::SweepsReadNothing
            | Self::DeadAreAwaited
            | Self::DeathsBlameMemory
            | Self::RestartIsTakenForDeath => {
                plan.kills = plan.kills.clamp(2, 4);
                plan.head_dies_at = None;
            }
            Self::QueuedCountAsBegun => {
                (plan.kills, plan.ring_depth) = (4, 64);
                plan.head_dies_at = None;
            }
            Self::CancelHitsTheNext | Self::CancelSpreads => {
                (plan.cancels, plan.cpus) = (true, 4);
                plan.tardiness = Duration::from_micros(20);
                plan.head_dies_at = None;
                if self == Self::CancelSpreads {
                    plan.kills = 0; // they are reasons of their own
                }
            }
            Self::DuplicatesRun | Self::ReplayIsReversed | Self::DeafAreUnheard => {
                plan.kills = plan.kills.clamp(3, 6);
                plan.head_dies_at = None;
            }
            Self::RepliesDoNotWait | Self::KeepersAreNotAwaited => {
                plan.nodes = plan.nodes.max(3);
                plan.logs_all = true;
                plan.node_dies_at = plan.node_dies_at.or(Some(Instant(100_000_000)));
                // So long a word is under way to the log, or from there to its keeper.
                let to_log = self == Self::RepliesDoNotWait;
                plan.latency = Duration::from_millis(if to_log { 40 } else { 10 });
            }
            Self::GrantIsTakenForDenial => {
                plan.capacity_bytes = 3 << 20;
                plan.head_dies_at = None;
            }
            Self::NothingIsLent | Self::WaitIsTakenForDeath => plan.head_dies_at = None,
            Self::LeavingUnmaps => {
                (plan.kills, plan.driver_kills) = (2, true);
                (plan.head_dies_at, plan.node_dies_at) = (None, None);
            }
            Self::CoversAreSkipped
            | Self::CallsHoldNothing
            | Self::RepliesHoldNothing
            | Self::ClaimsAreForgotten => {
                // Words by way of a third node are faster, and nobody is killed, who might have what is missed.
                (plan.kills, plan.node_dies_at) = (0, None);
                (plan.joins_within, plan.stores_much) = (Duration::ZERO, false);
                plan.news_within = Duration::from_millis(1);
                plan.nodes = plan.nodes.max(3);
                plan.breaks = plan.breaks.clamp(2, 4);
            }
            Self::ResendsAreLost => {
                plan.breaks = plan.breaks.clamp(2, 3);
                plan.node_dies_at = None;
            }
            Self::CallersTakeAllAlong => {
                plan.nodes = plan.nodes.max(3);
                (plan.kills, plan.node_dies_at, plan.head_dies_at) = (12, None, None);
            }
            Self::GoneIsSkipped | Self::UnstartedAreForgotten => {
                plan.kills = plan.kills.clamp(2, 4);
                plan.node_dies_at = None;
            }
            Self::PiecesAreLost | Self::MembersAreFoldedTwice => plan.node_dies_at = None,
            Self::LostMembersAreSkipped => {
                plan.nodes = plan.nodes.max(6);
                plan.dies_when_folded(Instant(20_000_000));
            }
            Self::RingsAreTrusted => {
                (plan.kills, plan.node_dies_at, plan.stores_much) = (0, None, true);
                plan.capacity_bytes = plan.capacity_bytes.max(1 << 28);
                (plan.nodes, plan.reduces_much) = (plan.nodes.clamp(2, 3), true);
            }
            Self::LossesAreFinal | Self::EstatesAreUntold => {
                plan.nodes = plan.nodes.max(3);
                plan.node_dies_at = plan.node_dies_at.or(Some(Instant(20_000_000)));
                plan.dies_with_copies = self == Self::LossesAreFinal;
            }
            Self::FencedSpeak => {
                plan.nodes = plan.nodes.max(3);
                plan.node_dies_at = plan.node_dies_at.or(Some(Instant(60_000_000)));
            }
            Self::BuriedInherit | Self::NothingIsLeft => {
                (plan.nodes, plan.control_apart) = (plan.nodes.max(3), true);
                plan.node_dies_at = plan.node_dies_at.or(Some(Instant(60_000_000)));
                plan.node_dies_again = true;
                if self == Self::BuriedInherit {
                    plan.news_within = Duration::from_millis(200);
                } else {
                    (plan.nodes, plan.dies_with_heir) = (plan.nodes.max(4), true);
                }
            }
            Self::HeldIsUnheard | Self::NamesAreNotAwaited => {
                plan.node_dies_at = None;
                plan.head_falls_at = at.or(Some(Instant(20_000_000)));
                if self == Self::NamesAreNotAwaited {
                    // So late a row comes to the store.
                    (plan.nodes, plan.control_apart) = (plan.nodes.max(3), false);
                    plan.latency = Duration::from_millis(10);
                    plan.headless_for = Duration::from_millis(1);
                }
            }
        }
    }
}

impl Cluster {
    /// What a decider hears of its carrier instead; `None`: nothing.
    pub fn sabotage_word(&mut self, word: Word) -> Option<Word> {
        match (self.sabotage, word) {
            (Some(Sabotage::CoversAreSkipped), Word::Passing { ticket, mut frame }) => {
                if frame.arrived.is_none() {
                    frame.named.clear();
                }
                Some(Word::Passing { ticket, frame })
            }
            (Some(Sabotage::EstatesAreUntold), Word::Peer { message, .. })
                if matches!(*message, Peer::Known { .. } | Peer::ActorKnown(_)) =>
            {
                None
            }
            (Some(Sabotage::KeepersAreNotAwaited), Word::Peer { from, cover, mut message }) => {
                if let Peer::KeepLog { incarnation, gained: Gained::Call(_), .. } = &mut *message {
                    *incarnation = u32::MAX; // of a worker that is none
                }
                Some(Word::Peer { from, cover, message })
            }
            (Some(Sabotage::CallsHoldNothing), Word::Passing { ticket, mut frame }) => {
                // As if nothing more came of the call.
                frame.is_last |= frame.arrived.is_some() && !frame.is_reply;
                Some(Word::Passing { ticket, frame })
            }
            (Some(Sabotage::ClaimsAreForgotten), Word::Peer { from, cover, mut message }) => {
                if let Peer::Claims { message: claims, .. } = &mut *message
                    && let Claims::Claim { object } = *claims
                {
                    *claims = Claims::Release { object };
                }
                Some(Word::Peer { from, cover, message })
            }
            (Some(Sabotage::LostMembersAreSkipped), Word::Peer { from, cover, mut message }) => {
                if let Peer::Fold(fold) = &mut *message
                    && fold.rest.is_some()
                {
                    fold.operands.clear();
                }
                Some(Word::Peer { from, cover, message })
            }
            (Some(Sabotage::RingsAreTrusted), Word::Peer { from, cover, mut message }) => {
                if let Peer::FoldOver { sealed, .. } = &mut *message {
                    *sealed = true;
                }
                Some(Word::Peer { from, cover, message })
            }
            (Some(Sabotage::HeldIsUnheard), Word::Peer { message, .. })
                if matches!(*message, Peer::Held { .. }) =>
            {
                None
            }
            (Some(Sabotage::GoneIsSkipped), Word::Ended { .. }) => None,
            (Some(Sabotage::UnstartedAreForgotten), Word::Ended { pair, obituary, .. }) => {
                Some(Word::Ended { pair, unstarted: Vec::new(), obituary })
            }
            (_, word) => Some(word),
        }
    }

    /// At a new head, before it hears anything.
    pub fn sabotage_new_head(&mut self) {
        if self.sabotage == Some(Sabotage::NamesAreNotAwaited) {
            for from in self.living() {
                let held = Peer::Held { bundles: vec![], jobs: vec![], removed: vec![] };
                self.happens(NodeEvent::Peer { from, cover: 0, message: Box::new(held) });
            }
        }
    }

    /// What a node hears that is dead to others.
    pub fn sabotage_fences(&self, why: String) -> NodeEvent {
        match self.sabotage {
            Some(Sabotage::FencedSpeak) => NodeEvent::Stop { why },
            _ => NodeEvent::Fenced { why },
        }
    }

    /// True: what a node folds in counts twice.
    pub fn sabotage_folds_twice(&self) -> bool {
        self.sabotage == Some(Sabotage::MembersAreFoldedTwice)
    }

    /// True: a piece of an object does not arrive.
    pub fn sabotage_loses_piece(&mut self) -> bool {
        self.sabotage == Some(Sabotage::PiecesAreLost) && self.rng.one_in(4)
    }

    /// True: a worker says that it took over what a dead caller held, and did not.
    pub fn sabotage_takes_nothing_over(&self) -> bool {
        self.sabotage == Some(Sabotage::CallersTakeAllAlong)
    }

    /// What the daemon reads of it.
    pub fn sabotage_reads(&self, message: &mut ToNode) {
        if self.sabotage == Some(Sabotage::RepliesHoldNothing)
            && let ToNode::Notices(notices) = message
        {
            let for_far =
                |it: &Notice| matches!(it, Notice::Hold { process, .. } if self.is_far(*process));
            notices.retain(|notice| !for_far(notice));
        }
    }

    /// From what an actor with checkpoints starts again.
    pub fn sabotage_replay(&self, replay: Option<Box<Replay>>) -> Option<Box<Replay>> {
        let mut replay = replay?;
        if self.sabotage == Some(Sabotage::ReplayIsReversed) {
            let places: Vec<u64> = replay.calls.iter().map(|call| call.index).collect();
            replay.calls.reverse();
            replay.calls.iter_mut().zip(places).for_each(|(call, index)| call.index = index);
        }
        Some(replay)
    }

    /// Whether a message to the daemon gets lost.
    pub fn sabotage_loses(&self, message: &ToNode) -> bool {
        let lends = matches!(message, ToNode::Blocked | ToNode::Unblocked);
        self.sabotage == Some(Sabotage::NothingIsLent) && lends
    }

    /// What a process hears instead; `None`: nothing.
    pub fn sabotage_hears(&self, event: Event) -> Option<Event> {
        match (self.sabotage, event) {
            (Some(Sabotage::PassingFailureStays), Event::Unreadable { object, failure }) => {
                Some(Event::Ready { object, value: Value::Failed(failure), contains: vec![] })
            }
            (Some(Sabotage::NobodyAdopts), Event::Adopt { .. }) => None,
            (Some(Sabotage::WaitIsTakenForDeath), Event::WorkerBlocked { worker: process }) => {
                let cause = DeathCause::Signaled { signal: 9 };
                let obituary = Obituary { pid: 0, cause, last_lines: vec![] };
                Some(Event::ProcessGone { process, obituary, unstarted: vec![] })
            }
            (Some(Sabotage::QueuedCountAsBegun), Event::ProcessGone { process, obituary, .. }) => {
                Some(Event::ProcessGone { process, obituary, unstarted: vec![] })
            }
            (
                Some(Sabotage::DeathsBlameMemory),
                Event::ProcessGone { process, obituary, unstarted },
            ) => {
                let cause = DeathCause::OutOfMemory { detail: "it was hungry".to_string() };
                let obituary = Obituary { cause, ..obituary };
                Some(Event::ProcessGone { process, obituary, unstarted })
            }
            (
                Some(Sabotage::RestartIsTakenForDeath),
                Event::ActorState { actor, state: ActorState::Restarting { cause, .. } },
            ) => {
                let failure = Failure::new(FailureKind::ActorDied, cause);
                Some(Event::ActorState { actor, state: ActorState::Dead { failure } })
            }
            (_, event) => Some(event),
        }
    }

    /// True: a question that waited for the dead alone goes on waiting.
    pub fn sabotage_keeps_answer(&self) -> bool {
        self.sabotage == Some(Sabotage::DeadAreAwaited) && self.here.daemon.reads_an_end
    }

    /// True: what is read would need room that others hold, and waits.
    pub fn sabotage_waits_for_room(&mut self, ticket: u64) -> bool {
        let waits = self.sabotage == Some(Sabotage::ArgumentsWaitForRoom)
            && self.here.memory.pinned_bytes() + self.here.memory.filling_bytes(ticket)
                > self.plan.capacity_bytes;
        if waits {
            self.after(Duration::from_millis(1), Step::DiskRead(ticket));
        }
        waits
    }

    /// What is cancelled, and whether with all that it submitted.
    pub fn sabotage_cancels(&self, task: TaskId, recursive: bool) -> (TaskId, bool) {
        match self.sabotage {
            Some(Sabotage::CancelHitsTheNext) => (TaskId { seq: task.seq + 1, ..task }, recursive),
            Some(Sabotage::CancelSpreads) => (task, true),
            _ => (task, recursive),
        }
    }

    /// What the daemon is taken to have said.
    pub fn sabotage_says(&self, message: ToClient) -> ToClient {
        match (self.sabotage, message) {
            (Some(Sabotage::GrantIsTakenForDenial), ToClient::ExtentGranted { request, .. }) => {
                let failure = Failure::new(FailureKind::OutOfDisk, "the disk takes nothing more");
                ToClient::ExtentDenied { request, failure }
            }
            (_, message) => message,
        }
    }
}
