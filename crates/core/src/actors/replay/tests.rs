//! Conversations with the logs of actors with checkpoints.

use hoplo_base::{FunctionId, JobId, NodeNumber, TaskId};
use hoplo_wire::call::{CallHeader, CallKind};

use super::*;

fn process(node: u32, count: u32) -> ProcessId {
    ProcessId::new(NodeNumber::alone(node), count, count as u16)
}

/// At home at node 1.
const ACTOR: fn() -> ActorId = || ActorId(TaskId { owner: process(1, 1), seq: 7 });

fn object(seq: u64) -> ObjectId {
    TaskId { owner: process(1, 2), seq }.object(0)
}

fn call(index: u64, bytes: usize, contains: &[ObjectId]) -> Box<LoggedCall> {
    let header = CallHeader {
        kind: CallKind::Method,
        flags: 0,
        returns: 1,
        task: TaskId { owner: process(2, 1), seq: index },
        attempt: 0,
        max_calls: 0,
        function: FunctionId([1; 16]),
        job: JobId(1),
    };
    let mut frame = header.encode(0, bytes, 0).to_vec();
    frame.resize(frame.len() + bytes, 0);
    Box::new(LoggedCall { index, frame, contains: contains.to_vec() })
}

fn checkpoint(upto: u64, contains: &[ObjectId]) -> Box<Checkpoint> {
    let (state, contains) = (upto.to_le_bytes().to_vec(), contains.to_vec());
    Box::new(Checkpoint { upto, state, contains, answers: vec![] })
}

struct Home(ReplayLogs);

impl Home {
    fn new() -> Self {
        let mut home = Home(ReplayLogs::new());
        assert_eq!(home.passes(Event::Begun { actor: ACTOR(), incarnation: 0 }), []);
        home
    }

    fn passes(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.handle(event, &mut effects);
        self.0.check();
        effects
    }

    fn logs(&mut self, from: ProcessId, incarnation: u32, call: Box<LoggedCall>) -> Vec<Effect> {
        self.passes(Event::Logged { from, actor: ACTOR(), incarnation, call })
    }

    fn checkpoints(&mut self, incarnation: u32, checkpoint: Box<Checkpoint>) -> Vec<Effect> {
        self.passes(Event::Checkpointed { actor: ACTOR(), incarnation, checkpoint })
    }

    /// Index of the checkpoint, and of the calls behind it.
    fn replay(&self) -> (u64, Vec<u64>) {
        let replay = self.0.replay(ACTOR()).unwrap();
        let upto = replay.checkpoint.map_or(0, |checkpoint| checkpoint.upto);
        (upto, replay.calls.iter().map(|call| call.index).collect())
    }
}

#[test]
fn calls_are_kept_in_their_order_until_a_checkpoint() {
    let (mut home, here) = (Home::new(), process(1, 9));
    for index in 1..=5 {
        assert_eq!(home.logs(here, 0, call(index, 10, &[])), []);
    }
    assert_eq!(home.replay(), (0, vec![1, 2, 3, 4, 5]));
    assert_eq!(home.checkpoints(0, checkpoint(3, &[])), []);
    assert_eq!(home.replay(), (3, vec![4, 5]), "REPLAY-1");
}

#[test]
fn a_worker_of_another_node_hears_that_its_call_is_logged() {
    let (mut home, there) = (Home::new(), process(2, 9));
    let acknowledged = Effect::Acknowledge { to: there, upto: 1 };
    assert_eq!(home.logs(there, 0, call(1, 10, &[])), [acknowledged]);
}

#[test]
fn what_calls_and_states_name_is_held_until_it_is_not_needed() {
    let (mut home, here) = (Home::new(), process(1, 9));
    let (one, two, three) = (object(1), object(2), object(3));
    let hold = |objects: &[ObjectId]| Effect::NodeHold { objects: objects.to_vec() };
    let release = |objects: &[ObjectId]| Effect::NodeRelease { objects: objects.to_vec() };
    assert_eq!(home.logs(here, 0, call(1, 10, &[one])), [hold(&[one])]);
    assert_eq!(home.logs(here, 0, call(2, 10, &[one, two])), [hold(&[one, two])]);
    let effects = home.checkpoints(0, checkpoint(1, &[three]));
    assert_eq!(effects, [hold(&[three]), release(&[one])], "REPLAY-2");
    let effects = home.checkpoints(0, checkpoint(2, &[]));
    assert_eq!(effects, [release(&[three, one, two])]);
    assert_eq!(home.logs(here, 0, call(3, 10, &[two])), [hold(&[two])]);
    assert_eq!(home.passes(Event::Ended { actor: ACTOR() }), [release(&[two])]);
    assert!(home.0.is_empty());
}

#[test]
fn a_worker_that_was_replaced_adds_nothing() {
    let (mut home, first) = (Home::new(), process(2, 9));
    home.logs(first, 0, call(1, 10, &[]));
    assert_eq!(home.passes(Event::Begun { actor: ACTOR(), incarnation: 1 }), []);
    assert_eq!(home.logs(first, 0, call(2, 10, &[object(1)])), [], "REPLAY-3");
    assert_eq!(home.checkpoints(0, checkpoint(1, &[object(1)])), []);
    assert_eq!(home.replay(), (0, vec![1]));
}

#[test]
fn a_gap_and_a_log_that_is_too_long_are_refused() {
    let (mut home, here) = (Home::new(), process(1, 9));
    let refused = |effects: Vec<Effect>, with: &str| match &effects[..] {
        [Effect::Violation { process, what }] => *process == here && what.contains(with),
        _ => false,
    };
    assert!(refused(home.logs(here, 0, call(2, 10, &[])), "behind call 0"));
    let large = REPLAY_LOG_BYTES_MAX / 2;
    assert_eq!(home.logs(here, 0, call(1, large, &[])), []);
    assert!(refused(home.logs(here, 0, call(2, large, &[])), "more calls"), "REPLAY-4");
    let mut unreadable = call(2, 10, &[]);
    unreadable.frame.truncate(20);
    assert!(refused(home.logs(here, 0, unreadable), "cannot be read"));
    assert_eq!(home.replay(), (0, vec![1]));
}
