//! The worker's side of an actor with checkpoints: each call takes effect once in its state.
//!
//! ```text
//!   a call is taken --known--> its answer is given once more           (it ran here before, or in an earlier process)
//!                   --new----> logged at the home --> runs --> answered --due--> checkpoint
//! ```
//! The log and the checkpoint lie at the actor's home (`core::actors::replay`). What a caller has at the actor and not back is the last
//! `ACTOR_DEPTH_LOGGED_MAX` of its calls at most: it sends no more before it has replies, rings keep their order, and the actor runs
//! one call at a time. So the answers of so many calls of each caller are all that can be asked for again. They are kept with the
//! checkpoint.
//! - Of a caller on the actor's own node none is kept while it runs: what lies in its ring comes to it, or it dies with the node.
//! - Values in the store, values with refs inside, and large ones are not kept while it runs (`Answer::Lost`): those of a call whose
//!   reply was on its way from a node that died are lost with it, as they are once it has arrived. Of a replayed call the shell puts
//!   them (`Answer::Kept`), and the checkpoints hold what was put.
//! - Of more than `ANSWERED_CALLERS_MAX` callers those are forgotten that called longest ago.
//!
//! # Invariants
//! - JOURNAL-1: the calls that run are numbered as they begin, without a gap, over all processes that were this actor.
//! - JOURNAL-2: no call runs that is among the known ones.
//! - JOURNAL-3: where the actor may outlive a node, the reply to a call waits until the home says that it is logged.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hoplo_base::limits::{
    ACTOR_DEPTH_LOGGED_MAX, ANSWERED_ALL_BYTES_MAX, ANSWERED_BYTES_MAX, ANSWERED_CALLERS_MAX,
    ANSWERS_KEPT_FOR, REPLAY_LOG_BYTES, REPLAY_LOG_BYTES_MAX, REPLAY_LOG_CALLS,
    REPLAY_LOG_CALLS_MAX,
};
use hoplo_base::{ActorId, Instant, ObjectId, ProcessId, TaskId};
use hoplo_wire::Value;
use hoplo_wire::node::{Answer, Answered, Checkpoint, Checkpoints, LoggedCall};
use hoplo_wire::reply::Returned;

pub struct Journal {
    pub actor: ActorId,
    pub incarnation: u32,
    me: ProcessId,
    every: Checkpoints,
    /// The index of the last call that began.
    last: u64,
    /// JOURNAL-3
    waits: bool,
    /// Of the last one of which the home says that it is logged.
    logged: u64,
    /// Of the last one in the checkpoint.
    upto: u64,
    /// Of the log behind the checkpoint.
    bytes: usize,
    checkpoint_at: Instant,
    began_at: Instant,
    /// The program asked for one.
    asked: bool,
    /// The last one could not be made: the next is tried behind this call.
    failed: u64,
    callers: BTreeMap<ProcessId, Known>,
    kept_bytes: usize,
    turns: u64,
}

/// What is known of one caller's calls.
#[derive(Default)]
struct Known {
    turn: u64,
    answers: VecDeque<(TaskId, Answer)>,
}

/// How a log stands behind its last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// A checkpoint is due.
    Due,
    /// No call can be logged any more.
    Full,
}

impl Journal {
    /// `checkpoint`: from which this process starts. `waits`: `ActorSpec::replies_wait`.
    pub fn new(
        actor: ActorId,
        incarnation: u32,
        me: ProcessId,
        every: Checkpoints,
        waits: bool,
        checkpoint: Option<&Checkpoint>,
        now: Instant,
    ) -> Self {
        let upto = checkpoint.map_or(0, |checkpoint| checkpoint.upto);
        let mut journal = Self {
            actor,
            incarnation,
            me,
            every,
            last: upto,
            waits,
            logged: 0,
            upto,
            bytes: 0,
            checkpoint_at: now,
            began_at: now,
            asked: false,
            failed: 0,
            callers: BTreeMap::new(),
            kept_bytes: 0,
            turns: 0,
        };
        for one in checkpoint.iter().flat_map(|checkpoint| &checkpoint.answers) {
            journal.know(one.task, one.answer.clone());
        }
        journal
    }

    /// Whether that call ran, and what it was answered.
    pub fn known(&self, task: TaskId) -> Option<&Answer> {
        let known = self.callers.get(&task.owner)?;
        known.answers.iter().rev().find(|(known, _)| *known == task).map(|(_, answer)| answer)
    }

    /// A call begins. Its home is to be told before its reply.
    /// Its own handle is not held for it: it would keep itself alive.
    pub fn begins(
        &mut self,
        task: TaskId,
        frame: &[u8],
        mut contains: Vec<ObjectId>,
    ) -> LoggedCall {
        let own = self.actor.handle();
        contains.retain(|object| *object != own);
        debug_assert!(self.known(task).is_none(), "JOURNAL-2: {task} ran before");
        // Its calls come in their order: what it did not get it has asked for again before this one.
        if let Some(known) = self.callers.get_mut(&task.owner) {
            known.lose();
        }
        self.last += 1;
        let call = LoggedCall { index: self.last, frame: frame.to_vec(), contains };
        self.bytes += call.bytes();
        call
    }

    /// A call of the log begins again.
    pub fn replays(&mut self, call: &LoggedCall) {
        assert_eq!(call.index, self.last + 1, "JOURNAL-1: of {}", self.actor);
        self.last = call.index;
        self.bytes += call.bytes();
    }

    /// JOURNAL-3: the reply to the last call that began may go, and to all before it.
    pub fn may_reply(&self) -> bool {
        !self.waits || self.logged >= self.last
    }

    /// The home says that calls up to this one are logged.
    pub fn logged(&mut self, upto: u64) {
        self.logged = self.logged.max(upto);
    }

    /// The last call that began is about to be answered with this.
    pub fn answers(&mut self, task: TaskId, returned: &[Returned]) {
        if task.owner.node() == self.me.node() {
            return; // what lies in its ring comes to it
        }
        let plain = returned
            .iter()
            .all(|one| one.contains.is_empty() && !matches!(one.value, Value::Stored(_)));
        let bytes: usize = returned.iter().map(|one| one.value.frame_bytes()).sum();
        let answer = match plain && bytes <= ANSWERED_BYTES_MAX {
            true => Answer::Values(returned.iter().map(|one| one.value.clone()).collect()),
            false => Answer::Lost,
        };
        self.know(task, answer);
    }

    /// The last call that began was replayed, with this answer.
    pub fn answers_again(&mut self, task: TaskId, answer: Answer) {
        self.know(task, answer);
    }

    /// What the shell has put for callers that may ask again.
    pub fn kept(&self) -> impl Iterator<Item = ObjectId> {
        let answers = self.callers.values().flat_map(|known| &known.answers);
        answers.filter_map(|(_, answer)| match answer {
            Answer::Kept(object) => Some(*object),
            Answer::Values(_) | Answer::Lost => None,
        })
    }

    /// The caller is gone: it asks for nothing again.
    pub fn caller_gone(&mut self, caller: ProcessId) {
        let known = self.callers.remove(&caller);
        let answers = known.into_iter().flat_map(|known| known.answers);
        self.kept_bytes -= answers.map(|(_, answer)| bytes_of(&answer)).sum::<usize>();
    }

    /// The program wants a checkpoint when the call that runs has ended.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// Between two calls.
    pub fn room(&self, now: Instant) -> Room {
        let calls = self.last - self.upto;
        if self.bytes + 2 * REPLAY_LOG_BYTES > REPLAY_LOG_BYTES_MAX
            || calls >= REPLAY_LOG_CALLS_MAX as u64
        {
            return Room::Full;
        }
        let full = self.bytes >= REPLAY_LOG_BYTES || calls >= REPLAY_LOG_CALLS as u64;
        let since = now.since(self.checkpoint_at);
        let interval = Duration::from_millis(self.every.interval_ms);
        let by_time = self.every.interval_ms > 0 && since >= interval;
        let by_calls = self.last - self.upto.max(self.failed) >= u64::from(self.every.calls);
        match calls > 0 && (self.asked || by_calls || by_time || full) {
            true => Room::Due,
            false => Room::Enough,
        }
    }

    /// When a checkpoint is due though no call comes: what the log holds goes then.
    pub fn due_at(&self) -> Option<Instant> {
        let interval = Duration::from_millis(self.every.interval_ms);
        (self.last > self.upto && !interval.is_zero()).then_some(self.checkpoint_at + interval)
    }

    /// The state behind the last call that ended. The home is to be told.
    pub fn checkpoint(
        &mut self,
        now: Instant,
        state: Vec<u8>,
        contains: Vec<ObjectId>,
    ) -> Checkpoint {
        (self.upto, self.bytes, self.checkpoint_at) = (self.last, 0, now);
        self.asked = false;
        if now.since(self.began_at) > ANSWERS_KEPT_FOR {
            self.callers.values_mut().for_each(Known::lose); // of callers that are dead
        }
        let answers = self.callers.values().flat_map(|known| &known.answers);
        let answers =
            answers.map(|(task, answer)| Answered { task: *task, answer: answer.clone() });
        Checkpoint { upto: self.upto, state, contains, answers: answers.collect() }
    }

    /// There is none: the next is tried later.
    pub fn no_checkpoint(&mut self, now: Instant) {
        (self.failed, self.checkpoint_at, self.asked) = (self.last, now, false);
    }

    /// The index of the last call that began.
    pub fn last(&self) -> u64 {
        self.last
    }

    fn know(&mut self, task: TaskId, answer: Answer) {
        self.turns += 1;
        let room = ANSWERED_ALL_BYTES_MAX.saturating_sub(self.kept_bytes);
        let answer = if bytes_of(&answer) <= room { answer } else { Answer::Lost };
        self.kept_bytes += bytes_of(&answer);
        let known = self.callers.entry(task.owner).or_default();
        known.turn = self.turns;
        known.answers.push_back((task, answer));
        if known.answers.len() > ACTOR_DEPTH_LOGGED_MAX
            && let Some((_, oldest)) = known.answers.pop_front()
        {
            self.kept_bytes -= bytes_of(&oldest);
        }
        if self.callers.len() > ANSWERED_CALLERS_MAX {
            let oldest = self.callers.iter().min_by_key(|(_, known)| known.turn);
            if let Some(oldest) = oldest.map(|(caller, _)| *caller) {
                self.caller_gone(oldest);
            }
        }
    }
}

impl Known {
    /// What was put for it is asked for by nobody any more.
    fn lose(&mut self) {
        for (_, answer) in &mut self.answers {
            if matches!(answer, Answer::Kept(_)) {
                *answer = Answer::Lost;
            }
        }
    }
}

fn bytes_of(answer: &Answer) -> usize {
    match answer {
        Answer::Values(values) => values.iter().map(Value::frame_bytes).sum(),
        Answer::Kept(_) | Answer::Lost => 0,
    }
}

#[cfg(test)]
mod tests {
    use hoplo_base::NodeNumber;
    use hoplo_wire::Failure;

    use super::*;

    const EVERY: Checkpoints = Checkpoints { calls: 3, interval_ms: 1000 };

    fn process(node: u32, count: u32) -> ProcessId {
        ProcessId::new(NodeNumber::alone(node), count, count as u16)
    }

    fn task(owner: ProcessId, seq: u64) -> TaskId {
        TaskId { owner, seq }
    }

    /// At home at node 1, in a process of node 2.
    fn journal(checkpoint: Option<&Checkpoint>) -> Journal {
        let actor = ActorId(task(process(1, 1), 7));
        Journal::new(actor, 0, process(2, 5), EVERY, true, checkpoint, Instant::ZERO)
    }

    fn inline(bytes: usize) -> Vec<Returned> {
        vec![Returned { value: Value::Inline(vec![1; bytes].into()), contains: vec![] }]
    }

    fn runs(journal: &mut Journal, task: TaskId, returned: &[Returned]) {
        let call = journal.begins(task, b"frame", vec![]);
        assert_eq!(call.index, journal.last());
        journal.answers(task, returned);
    }

    #[test]
    fn a_call_that_comes_again_from_a_node_has_its_answer() {
        let (mut journal, far) = (journal(None), process(3, 1));
        assert_eq!(journal.known(task(far, 1)), None);
        runs(&mut journal, task(far, 1), &inline(5));
        let values = inline(5).into_iter().map(|one| one.value).collect();
        assert_eq!(journal.known(task(far, 1)), Some(&Answer::Values(values)));
        let near = process(2, 1);
        runs(&mut journal, task(near, 1), &inline(5));
        assert_eq!(journal.known(task(near, 1)), None, "it is in its ring");
    }

    #[test]
    fn a_reply_waits_for_the_log_where_the_actor_may_outlive_a_node() {
        let mut journal = journal(None);
        runs(&mut journal, task(process(3, 1), 1), &inline(1));
        assert!(!journal.may_reply(), "JOURNAL-3");
        journal.logged(1);
        assert!(journal.may_reply());
        let actor = ActorId(task(process(2, 1), 7));
        let mut ends_with_its_home =
            Journal::new(actor, 0, process(2, 5), EVERY, false, None, Instant::ZERO);
        runs(&mut ends_with_its_home, task(process(3, 1), 1), &inline(1));
        assert!(ends_with_its_home.may_reply());
    }

    #[test]
    fn what_a_replayed_call_was_answered_waits_for_the_log_as_well() {
        let (mut first, far) = (journal(None), process(3, 1));
        let call = first.begins(task(far, 1), b"frame", vec![]);
        let mut next = journal(None);
        next.replays(&call);
        assert!(!next.may_reply(), "the keeper may not have it yet");
        next.logged(1);
        assert!(next.may_reply());
    }

    #[test]
    fn a_checkpoint_is_due_by_calls_by_time_by_bytes_and_when_asked_for() {
        let (mut journal, far) = (journal(None), process(3, 1));
        let at = |ms: u64| Instant(ms * 1_000_000);
        assert_eq!(journal.room(at(2000)), Room::Enough, "nothing is to be replayed");
        runs(&mut journal, task(far, 1), &inline(1));
        assert_eq!(journal.room(at(999)), Room::Enough);
        assert_eq!(journal.room(at(1000)), Room::Due);
        assert_eq!(journal.due_at(), Some(at(1000)));
        journal.ask();
        assert_eq!(journal.room(at(1)), Room::Due);
        assert_eq!(journal.checkpoint(at(1), vec![], vec![]).upto, 1);
        assert_eq!(journal.due_at(), None);
        for seq in 2..=4 {
            assert_eq!(journal.room(at(2)), Room::Enough);
            runs(&mut journal, task(far, seq), &inline(1));
        }
        assert_eq!(journal.room(at(2)), Room::Due);
        journal.no_checkpoint(at(2));
        assert_eq!(journal.room(at(2)), Room::Enough, "it is tried after as many calls again");
        for (seq, room) in [(5, Room::Due), (6, Room::Full)] {
            for part in 0..REPLAY_LOG_BYTES / 100_000 + 1 {
                let id = task(far, seq * 1000 + part as u64);
                journal.begins(id, &[0; 100_000], vec![]);
            }
            assert_eq!(journal.room(at(3)), room);
        }
    }

    #[test]
    fn what_is_kept_of_answers_is_bounded() {
        let (mut journal, far) = (journal(None), process(3, 1));
        let many = ACTOR_DEPTH_LOGGED_MAX as u64 + 3;
        for seq in 1..=many {
            runs(&mut journal, task(far, seq), &inline(1));
        }
        assert_eq!(journal.known(task(far, 3)), None);
        assert!(journal.known(task(far, 4)).is_some());
        runs(&mut journal, task(far, 999), &inline(ANSWERED_BYTES_MAX + 1));
        assert_eq!(journal.known(task(far, 999)), Some(&Answer::Lost));
        let failed = Value::Failed(Failure::user(b"no".as_slice().into()));
        let failed = Returned { value: failed, contains: vec![] };
        runs(&mut journal, task(far, 1000), std::slice::from_ref(&failed));
        let known = Answer::Values(vec![failed.value]);
        assert_eq!(journal.known(task(far, 1000)), Some(&known));
        for caller in 0..ANSWERED_CALLERS_MAX as u32 {
            runs(&mut journal, task(process(4, caller + 1), 1), &inline(100_000));
        }
        assert_eq!(journal.known(task(far, 1000)), None, "it called longest ago");
        assert!(journal.kept_bytes <= ANSWERED_ALL_BYTES_MAX);
        for caller in 0..ANSWERED_CALLERS_MAX as u32 {
            journal.caller_gone(process(4, caller + 1));
        }
        assert_eq!((journal.kept_bytes, journal.callers.len()), (0, 0));
    }

    #[test]
    fn the_next_process_knows_what_the_checkpoint_and_the_log_tell() {
        let (mut first, far) = (journal(None), process(3, 1));
        runs(&mut first, task(far, 1), &inline(5));
        let checkpoint = first.checkpoint(Instant::ZERO, vec![1], vec![]);
        let call = first.begins(task(far, 2), b"frame", vec![]);
        let mut next = journal(Some(&checkpoint));
        assert_eq!(next.known(task(far, 1)), first.known(task(far, 1)));
        next.replays(&call);
        let put = task(process(2, 5), 9).object(0);
        next.answers_again(task(far, 2), Answer::Kept(put));
        assert_eq!(next.known(task(far, 2)), Some(&Answer::Kept(put)));
        assert_eq!(next.kept().collect::<Vec<_>>(), [put]);
        assert_eq!(next.last(), 2, "JOURNAL-1");
        let later = next.checkpoint(Instant::ZERO, vec![], vec![]);
        let again = journal(Some(&later));
        assert_eq!(again.known(task(far, 2)), Some(&Answer::Kept(put)));
        next.begins(task(far, 3), b"frame", vec![]);
        assert_eq!(next.known(task(far, 2)), Some(&Answer::Lost), "it would have come before");
    }
}
