//! Refs that say when a placement group is ready.

use hoplo_base::GroupId;
use hoplo_wire::node::{GroupState, SharedState};

use super::*;
use crate::session::PROMISED;

fn group(count: u64) -> GroupId {
    GroupId::new(NodeNumber::alone(1), count)
}

impl Owner {
    fn ready(&mut self, count: u64) -> (ObjectId, Vec<Effect>) {
        let value = b"group".to_vec();
        self.act(|session, now, effects| {
            session.group_ready(now, group(count), value, None, effects)
        })
    }

    fn is_told(&mut self, request: u64, state: GroupState) -> Vec<Effect> {
        self.handle(Event::GroupState { request, state })
    }
}

fn asked(effects: &[Effect]) -> u64 {
    match effects {
        [Effect::Node(ToNode::GroupWatch { request, .. })] => *request,
        other => panic!("{other:?}"),
    }
}

fn removed() -> GroupState {
    GroupState::Removed { why: "it was removed".to_string() }
}

#[test]
fn it_takes_no_worker_and_says_what_it_waits_for() {
    let mut owner = Owner::new();
    let (ready, effects) = owner.ready(1);
    let request = asked(&effects);
    assert!(request >= PROMISED, "numbers below are the shell's");
    assert!(owner.session.explain(ready).contains("waiting until placement group:1 is placed"));
    let why = "placement group:1 waits: bundle 0 needs CPU 9".to_string();
    owner.is_told(request, GroupState::Waits { why: why.clone() });
    assert!(owner.session.explain(ready).contains(&why), "{}", owner.session.explain(ready));
    assert!(!owner.session.is_ready(ready) && !owner.session.needs_progress());
    assert_eq!(owner.is_told(request, GroupState::Created), []);
    assert_eq!(owner.session.value(ready), Some(&inline(b"group")));
    assert_eq!(owner.session.unfinished(), 0);
    // A late word changes nothing.
    owner.is_told(request, removed());
    owner.drop_ref(ready);
    assert_eq!(owner.session.known_objects().count(), 0);
}

#[test]
fn it_fails_with_the_group_and_what_waits_for_it_fails_as_well() {
    let mut owner = Owner::new();
    let (ready, effects) = owner.ready(1);
    let task = owner.submit(with_refs(&[ready])).0;
    owner.is_told(asked(&effects), removed());
    for object in [ready, task.object(0)] {
        assert_eq!(owner.kind_of(object), FailureKind::TaskGroupRemoved);
    }
    assert_eq!(owner.text_of(ready), "placement group:1 is no more: it was removed");
}

#[test]
fn who_asks_again_and_again_gets_the_same_ref() {
    let mut owner = Owner::new();
    let (ready, effects) = owner.ready(1);
    let request = asked(&effects);
    for _ in 0..3 {
        owner.drop_ref(ready);
        assert_eq!(owner.ready(1), (ready, vec![]), "also after nobody had it");
    }
    assert_ne!(owner.ready(2).0, ready);
    assert_eq!(owner.session.unfinished(), 2);
    owner.is_told(request, GroupState::Created);
    // It may have lost bundles since.
    let (other, effects) = owner.ready(1);
    assert_ne!(other, ready);
    assert_ne!(asked(&effects), request);
}

#[test]
fn a_cancelled_one_is_asked_for_no_more() {
    let mut owner = Owner::new();
    let (ready, effects) = owner.ready(1);
    let request = asked(&effects);
    let task = ready.task;
    let effects = owner.handle(Event::Cancel { task, force: false, recursive: true });
    assert_eq!(effects, [Effect::Node(ToNode::GroupUnwatch { request, group: group(1) })]);
    assert_eq!(owner.kind_of(ready), FailureKind::Cancelled);
    owner.is_told(request, GroupState::Created);
    assert_eq!(owner.kind_of(ready), FailureKind::Cancelled);
    assert_ne!(owner.ready(1).0, ready);
    owner.handle(Event::NodeDied { failure: Failure::new(FailureKind::NodeDied, "gone") });
    let (after, effects) = owner.ready(1);
    assert_eq!((owner.kind_of(after), effects), (FailureKind::NodeDied, vec![]));
}

#[test]
fn others_that_hold_it_hear_of_it_and_when_its_owner_dies_one_of_them_asks() {
    let mut owner = Owner::new();
    let (ready, effects) = owner.ready(1);
    let request = asked(&effects);
    let escapes = owner.act(|session, now, effects| session.escape(now, ready, effects)).1;
    let shared = escapes.iter().find_map(|effect| match effect {
        Effect::Node(ToNode::Notices(notices)) => notices.iter().find_map(|notice| match notice {
            Notice::Shared { state: SharedState::Pending { lineage }, .. } => lineage.clone(),
            _ => None,
        }),
        _ => None,
    });
    owner.is_told(request, GroupState::Created);
    let value = inline(b"group");
    let told = Notice::Fulfilled { object: ready, value: value.clone(), contains: vec![] };
    assert_eq!(owner.flushed(), [told]);

    let mut heir = Owner { session: SessionMachine::new(process(2), JobId(1)), now: owner.now };
    heir.session.add_ref(ready);
    let lineage = Box::new(shared.expect("its lineage goes with it"));
    let effects = heir.handle(Event::Adopt { lineage, objects: vec![ready] });
    let request = effects.iter().find_map(|effect| match effect {
        Effect::Node(ToNode::GroupWatch { request, group: of }) if *of == group(1) => {
            Some(*request)
        }
        _ => None,
    });
    let request = request.expect("it asks how the group is");
    let demands = |effect: &Effect| matches!(effect, Effect::Node(ToNode::LeaseDemand { .. }));
    assert!(!effects.iter().any(demands), "no worker: {effects:?}");
    heir.is_told(request, GroupState::Created);
    assert_eq!(heir.session.value(ready), Some(&value));
    let told =
        |notice: &Notice| matches!(notice, Notice::Fulfilled { object, .. } if *object == ready);
    assert!(heir.flushed().iter().any(told));
}
