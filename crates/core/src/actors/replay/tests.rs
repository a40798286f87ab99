//! Conversations with the logs of actors with checkpoints.

use std::collections::VecDeque;

use hoplo_base::{FunctionId, JobId, NodeNumber, TaskId};
use hoplo_wire::call::{CallHeader, CallKind};
use proptest::prelude::*;

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
    /// Of an actor that ends with it.
    fn new() -> Self {
        let mut home = Home(ReplayLogs::new());
        home.begins(0, process(1, 9), false);
        home
    }

    /// Of one that may outlive it, and its worker.
    fn with_worker_that_waits() -> (Self, ProcessId) {
        let (mut home, worker) = (Home(ReplayLogs::new()), process(1, 9));
        home.begins(0, worker, true);
        (home, worker)
    }

    fn begins(&mut self, incarnation: u32, worker: ProcessId, waits: bool) {
        let begun = Event::Begun { actor: ACTOR(), incarnation, worker, waits };
        assert_eq!(self.passes(begun), []);
    }

    fn is_kept(&mut self, node: NodeNumber, word: u64) -> Vec<Effect> {
        self.passes(Event::Kept { actor: ACTOR(), node, word })
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
fn a_worker_that_waits_hears_that_its_call_is_logged() {
    let (mut home, worker) = Home::with_worker_that_waits();
    assert_eq!(home.logs(worker, 0, call(1, 10, &[])), [acknowledged(1)]);
}

fn acknowledged(upto: u64) -> Effect {
    Effect::Acknowledge { to: process(1, 9), upto }
}

fn told(to: NodeNumber, call: Box<LoggedCall>, word: u64) -> Effect {
    let (actor, gained) = (ACTOR(), Gained::Call(call));
    Effect::Keep { to, actor, incarnation: 0, gained, word }
}

#[test]
fn a_call_waits_until_the_keeper_has_it() {
    let ((mut home, worker), keeper) = (Home::with_worker_that_waits(), NodeNumber::alone(3));
    assert_eq!(home.0.tells(ACTOR(), keeper, Some(0)), 1);
    let effects = home.logs(worker, 0, call(1, 10, &[]));
    assert_eq!(effects, [told(keeper, call(1, 10, &[]), 2)], "REPLAY-5");
    assert_eq!(home.is_kept(keeper, 1), []);
    assert_eq!(home.is_kept(NodeNumber::alone(4), 2), [], "another node");
    assert_eq!(home.is_kept(keeper, 2), [acknowledged(1)]);
    let point = checkpoint(1, &[]);
    let gained = Gained::Checkpoint(point.clone());
    let (actor, incarnation) = (ACTOR(), 0);
    let tells = Effect::Keep { to: keeper, actor, incarnation, gained, word: 0 };
    assert_eq!(home.checkpoints(0, point), [tells]);
}

#[test]
fn a_call_waits_until_a_node_has_let_an_older_log_go() {
    let ((mut home, worker), before) = (Home::with_worker_that_waits(), NodeNumber::alone(3));
    assert_eq!(home.0.tells(ACTOR(), before, Some(0)), 1);
    assert_eq!(home.0.tells(ACTOR(), before, None), 2);
    assert_eq!(home.logs(worker, 0, call(1, 10, &[])), [], "it would tell an old state");
    assert_eq!(home.is_kept(before, 1), []);
    assert_eq!(home.is_kept(before, 2), [acknowledged(1)]);
    assert_eq!(home.0.tells(ActorId(TaskId { seq: 9, ..ACTOR().0 }), before, None), 0);
}

#[test]
fn what_a_dead_keeper_did_not_confirm_waits_for_the_next_one() {
    let ((mut home, worker), first) = (Home::with_worker_that_waits(), NodeNumber::alone(3));
    home.0.tells(ACTOR(), first, Some(0));
    home.logs(worker, 0, call(1, 10, &[]));
    let next = NodeNumber::alone(4);
    let word = home.0.tells(ACTOR(), next, Some(0));
    assert_eq!(home.passes(Event::NodeGone { node: first }), []);
    assert_eq!(home.is_kept(next, word), [acknowledged(1)]);
    home.logs(worker, 0, call(2, 10, &[]));
    assert_eq!(home.passes(Event::NodeGone { node: next }), [acknowledged(2)], "nobody is left");
    assert_eq!(home.logs(worker, 0, call(3, 10, &[])), [acknowledged(3)]);
}

#[derive(Clone, Debug)]
enum Step {
    Logs,
    Keeps(usize),
    LetsGo(usize),
    Delivers(usize),
    Dies(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Logs),
        2 => (0..3usize).prop_map(Step::Keeps),
        1 => (0..3usize).prop_map(Step::LetsGo),
        6 => (0..3usize).prop_map(Step::Delivers),
        1 => (0..3usize).prop_map(Step::Dies),
    ]
}

/// Another node: what is on its way to it, and the last call of the log that it has.
#[derive(Default)]
struct Other {
    inbox: VecDeque<(u64, Option<u64>)>,
    has: Option<u64>,
    dead: bool,
}

proptest! {
    #[test]
    fn no_node_that_lives_has_a_log_that_is_older_than_a_reply(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let (mut home, worker) = Home::with_worker_that_waits();
        let mut others: [Other; 3] = Default::default();
        let (mut last, mut replied, mut keeper) = (0, 0, None);
        let node = |at: usize| NodeNumber::alone(at as u32 + 3);
        for step in steps {
            let effects = match step {
                Step::Logs => {
                    last += 1;
                    home.logs(worker, 0, call(last, 10, &[]))
                }
                Step::Keeps(at) | Step::LetsGo(at) if others[at].dead => continue,
                // Whoever kept it before lets it go first.
                Step::Keeps(at) if keeper.is_some_and(|keeper| keeper != at) => {
                    let before = keeper.take().unwrap();
                    let word = home.0.tells(ACTOR(), node(before), None);
                    others[before].inbox.push_back((word, None));
                    vec![]
                }
                Step::Keeps(at) => {
                    keeper = Some(at);
                    let word = home.0.tells(ACTOR(), node(at), Some(0));
                    others[at].inbox.push_back((word, Some(last)));
                    vec![]
                }
                Step::LetsGo(at) => {
                    keeper = keeper.filter(|keeper| *keeper != at);
                    let word = home.0.tells(ACTOR(), node(at), None);
                    others[at].inbox.push_back((word, None));
                    vec![]
                }
                Step::Delivers(at) => {
                    let Some((word, has)) = others[at].inbox.pop_front() else { continue };
                    others[at].has = has;
                    home.is_kept(node(at), word)
                }
                Step::Dies(at) => {
                    keeper = keeper.filter(|keeper| *keeper != at);
                    others[at] = Other { dead: true, ..Other::default() };
                    home.passes(Event::NodeGone { node: node(at) })
                }
            };
            for effect in effects {
                match effect {
                    Effect::Keep { to, word, .. } => {
                        let at = (0..3).find(|at| node(*at) == to).unwrap();
                        others[at].inbox.push_back((word, Some(last)));
                    }
                    Effect::Acknowledge { upto, .. } => replied = upto,
                    other => panic!("{other:?}"),
                }
            }
            for other in &others {
                prop_assert!(other.has.is_none_or(|has| has >= replied), "REPLAY-5");
            }
        }
        for (at, other) in others.iter_mut().enumerate() {
            while let Some((word, _)) = other.inbox.pop_front() {
                for effect in home.is_kept(node(at), word) {
                    let Effect::Acknowledge { upto, .. } = effect else { panic!("{effect:?}") };
                    replied = upto;
                }
            }
        }
        prop_assert_eq!(replied, last, "when all have answered nothing waits");
    }
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
    home.begins(1, process(3, 9), false);
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
