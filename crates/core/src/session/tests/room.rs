//! Tasks that found no room at a node for what they read or make.

use hoplo_base::GroupId;
use hoplo_base::bundles::InGroup;
use hoplo_base::limits::TURNED_AWAY_MAX;
use hoplo_wire::node::Strategy;
use hoplo_wire::reply::REPLY_NO_ROOM;

use super::*;

const FULL: NodeNumber = NodeNumber::alone(2);
const OTHER: NodeNumber = NodeNumber::alone(3);

fn worker(node: NodeNumber, count: u32) -> ProcessId {
    ProcessId::new(node, count, count as u16)
}

impl Owner {
    fn finds_no_room(&mut self, worker: ProcessId, task: TaskId, attempt: u32) -> Vec<Effect> {
        let header =
            ReplyHeader { flags: REPLY_NO_ROOM, ..header(task.seq, ReplyKind::Finished, attempt) };
        let mut bytes = header.encode(1).to_vec();
        encode_returned(&[returned(failed(FailureKind::OutOfDiskHere))], &mut bytes);
        let reply = ReplyView::parse(&bytes).unwrap();
        let (result, effects) =
            self.act(|session, now, effects| session.on_reply(now, worker, &reply, effects));
        result.unwrap();
        effects
    }

    fn lease_at(&mut self, key: u32, lease: u64, worker: ProcessId) -> Vec<Effect> {
        let lease = LeaseId(lease);
        self.handle(Event::LeaseGranted { lease, key, worker, gpus: vec![] })
    }
}

fn gives_back(effects: &[Effect]) -> Vec<u64> {
    let back = |effect: &Effect| match effect {
        Effect::Node(ToNode::LeaseReturn { lease }) => Some(lease.0),
        _other => None,
    };
    effects.iter().filter_map(back).collect()
}

#[test]
fn a_task_that_found_no_room_failed_though_other_nodes_had_some() {
    let mut owner = Owner::new();
    let retried = CallOptions { max_retries: 1, ..options() };
    let task = owner.submit(call(retried)).0;
    let other = owner.task();
    let (first, second) = (worker(FULL, 5), worker(FULL, 6));
    owner.lease_at(0, 1, first);
    owner.lease_at(0, 2, second);
    assert!(owner.runs_at(task, first) && owner.runs_at(other, second));
    // It is not tried in the other worker there, which takes no more either.
    let effects = owner.finds_no_room(first, task, 0);
    assert_eq!(gives_back(&effects), [1]);
    assert!(
        effects.iter().any(|it| matches!(it, Effect::Warn { line } if line.contains(&FULL.hex())))
    );
    assert!(effects.contains(&demand(1)), "{effects:?}");
    assert_eq!(owner.session.tasks[&task.seq].stage, Stage::Queued);
    assert_eq!(gives_back(&owner.finds_no_room(second, other, 0)), [2]);
    assert_eq!(owner.kind_of(other.object(0)), FailureKind::OutOfDiskHere, "it has no retries");
    owner.lease_at(0, 3, worker(OTHER, 7));
    assert!(owner.runs_at(task, worker(OTHER, 7)));
    assert_eq!(owner.session.tasks[&task.seq].retries_left, 0);
}

/// Its argument lies there, and drew it back to where it has no room.
#[test]
fn a_task_that_found_no_room_was_drawn_to_the_full_node_again() {
    let mut owner = Owner::new();
    let there = Value::Stored(Location::elsewhere(FULL, 32 << 20));
    let object = TaskId { owner: process(9), seq: 1 }.object(0);
    owner.session.add_ref(object);
    owner.act(|session, _, effects| session.want_word(&[object], effects));
    owner.handle(Event::Ready { object, value: there, contains: vec![] });
    let options = CallOptions { max_retries: 1, ..options() };
    let (task, effects) = owner.submit(Call { refs: vec![object], ..call(options) });
    let shape_of = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Node(ToNode::LeaseDemand { key, shape, wanted: 1 }) => {
                Some((*key, shape.strategy.clone()))
            }
            _other => None,
        })
    };
    let (key, strategy) = shape_of(&effects).unwrap();
    assert_eq!(strategy, Strategy::Node { node: FULL, soft: true });
    owner.lease_at(key, 1, worker(FULL, 5));
    let effects = owner.finds_no_room(worker(FULL, 5), task, 0);
    assert_eq!(shape_of(&effects), Some((0, Strategy::Default)));
}

#[test]
fn a_task_that_finds_room_nowhere_fails_also_if_it_may_run_for_ever() {
    let mut owner = Owner::new();
    let task = owner.submit(call(CallOptions { max_retries: -1, ..options() })).0;
    for attempt in 0..=u32::from(TURNED_AWAY_MAX) {
        let worker = worker(FULL, 5 + attempt);
        owner.lease_at(0, u64::from(attempt), worker);
        owner.finds_no_room(worker, task, attempt);
    }
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::OutOfDiskHere);
}

#[test]
fn what_is_bound_to_its_node_is_not_tried_elsewhere() {
    let bundle = InGroup::of_task(GroupId::new(OTHER, 1), None, shape().resources);
    let bound = [
        Shape { strategy: Strategy::Node { node: FULL, soft: false }, ..shape() },
        Shape { strategy: Strategy::Node { node: FULL, soft: true }, ..shape() },
        Shape::of(bundle.named()),
    ];
    for shape in bound {
        let mut owner = Owner::new();
        let options = CallOptions { max_retries: 3, shape: Arc::new(shape), ..options() };
        let task = owner.submit(call(options)).0;
        owner.lease_at(0, 1, worker(FULL, 5));
        owner.finds_no_room(worker(FULL, 5), task, 0);
        assert_eq!(owner.kind_of(task.object(0)), FailureKind::OutOfDiskHere);
    }
}
