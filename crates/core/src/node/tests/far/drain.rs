//! A node is drained: what goes on elsewhere, and what keeps it.

use std::time::Duration;

use hoplo_base::limits::DRAIN_LOOK;
use hoplo_wire::Value;
use hoplo_wire::node::{BundleSpec, GroupSpec, GroupStrategy};
use hoplo_wire::peer::{Known, Peer};

use super::*;
use crate::node::{Report, heir_among, heir_of};
use crate::sched::groups::Phase;

const WITHIN: Duration = Duration::from_secs(60);

impl Nodes {
    /// Asked at node `at`: the answer of a refusal, or the head writes the row.
    pub(super) fn drain(&mut self, at: usize, whom: &str) -> Result<(), String> {
        let asker = self.shells[at].operator();
        let (kind, argument) = ("drain".to_string(), format!("{whom} {}", WITHIN.as_millis()));
        self.says(at, asker, ToNode::Query { request: 3, kind, argument });
        let refused = self.shells[at].told(asker, |message| match message {
            ToClient::Answer { request: 3, result, .. } => Some(result.clone()),
            _ => None,
        });
        if let Some(result) = refused {
            return result.map(|_| ());
        }
        let node = self.shells[at].take(|effect| match effect {
            Effect::Report { report: Report::Drain { node }, .. } => Some(*node),
            _ => None,
        });
        let node = node.expect("it is refused or done");
        let at = (0..).find(|at| number(*at) == node).unwrap();
        self.row(at, NodeState::Draining);
        Ok(())
    }

    pub(super) fn stops(&mut self, at: usize) -> Option<String> {
        self.shells[at].waits(DRAIN_LOOK);
        self.pump();
        self.shells[at].take(|effect| match effect {
            Effect::Stopping { why } => Some(why.clone()),
            _ => None,
        })
    }

    /// Brokers look again.
    fn time_passes(&mut self) {
        for _ in 0..20 {
            for at in 0..self.shells.len() {
                self.shells[at].waits(Duration::from_millis(100));
            }
            self.pump();
        }
    }

    pub(super) fn hex(at: usize) -> String {
        format!("{:06x}", number(at).number())
    }

    /// Where the first bundle of the first group is, if that is created.
    fn bundle_at(&self) -> Option<usize> {
        let row = self.shells[0].node.groups().rows().next()?;
        let at = row.placed.get(&0).filter(|_| *row.phase == Phase::Created)?;
        (0..self.shells.len()).find(|it| number(*it) == *at)
    }

    fn exit(&mut self, at: usize, worker: ProcessId) -> Option<bool> {
        self.shells[at].told(worker, |message| match message {
            ToClient::Exit { graceful, .. } => Some(*graceful),
            _ => None,
        })
    }

    /// An actor of a driver of the head that lives on the second node.
    fn alive_on_second(&mut self, driver: ProcessId, max_restarts: i32) -> (ActorId, ProcessId) {
        let actor = ActorId(TaskId { owner: driver, seq: 9 });
        let spec = ActorSpec {
            actor,
            class_name: "Echo".to_string(),
            name: String::new(),
            namespace: String::new(),
            detached: false,
            shape: Shape::of(cpus(2.0)),
            held: cpus(2.0),
            max_restarts,
            checkpoints: None,
            frame: vec![],
            contains: vec![],
            handle: vec![],
        };
        let spec = Box::new(spec);
        self.says(0, driver, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
        self.says(0, driver, ToNode::ActorWatch { actor });
        let worker = self.forks(1);
        let (incarnation, result) = (0, Ok(()));
        self.says(1, worker, ToNode::ActorStarted { actor, incarnation, result });
        while self.state_told(driver).is_some() {}
        (actor, worker)
    }
}

impl Shell {
    fn operator(&mut self) -> ProcessId {
        self.strangers += 1;
        let stranger = self.strangers;
        self.hears(Event::Knocked { stranger, pid: 8, message: hello(Role::Tool) });
        let accepted = self.take(|effect| match effect {
            Effect::Accept { process, .. } => Some(*process),
            _ => None,
        });
        accepted.expect("a tool is welcome")
    }
}

#[test]
fn what_cannot_be_drained_is_refused_with_the_reason() {
    let mut nodes = Nodes::new(3);
    nodes.dies(2);
    let cases = [
        (0, "nowhere".to_string(), "no node that lives is \"nowhere\": give one of 000002 (host1)"),
        (0, "host2".to_string(), "no node that lives is \"host2\""),
        (0, Nodes::hex(0), "it is the head, which cannot be drained"),
        (0, "host0".to_string(), "it is the head, which cannot be drained"),
        (0, Nodes::hex(2), "is dead already: it fell"),
        (1, Nodes::hex(1), "on its machine"),
    ];
    for (at, whom, says) in cases {
        let refused = nodes.drain(at, &whom).unwrap_err();
        assert!(refused.contains(says), "{whom}: {refused}");
    }
    let entry = NodeEntry { hostname: "host1".to_string(), ..node_entry(3, NodeState::Alive) };
    nodes.shells[0].hears(Event::Member { entry: Box::new(entry), index: 90 });
    let refused = nodes.drain(0, "host1").unwrap_err();
    let says = format!("2 nodes that live are on \"host1\": give the id of one: {}", Nodes::hex(1));
    assert!(refused.starts_with(&says) && refused.contains(&Nodes::hex(3)), "{refused}");
    let state = NodeState::Dead { why: "it fell".to_string(), heir: None };
    let entry = NodeEntry { hostname: "host1".to_string(), ..node_entry(3, state) };
    nodes.shells[0].hears(Event::Member { entry: Box::new(entry), index: 91 });
    let driver = nodes.shells[1].driver();
    nodes.drain(0, "host1").expect("by its host, of which one node lives");
    let refused = nodes.drain(0, &Nodes::hex(1)).unwrap_err();
    assert!(refused.contains("already"), "{refused}");
    assert_eq!(nodes.stops(1), None, "{driver} is there");

    let alone = Shell::new().tool_drains();
    assert!(alone.contains("alone"), "{alone}");
}

impl Shell {
    fn tool_drains(&mut self) -> String {
        let asker = self.operator();
        let (kind, argument) = ("drain".to_string(), "x 1".to_string());
        self.says(asker, ToNode::Query { request: 3, kind, argument });
        let told = self.told(asker, |message| match message {
            ToClient::Answer { result, .. } => Some(result.clone()),
            _ => None,
        });
        told.expect("it is answered").unwrap_err()
    }
}

#[test]
fn a_node_with_nothing_on_it_leaves_at_once_and_takes_no_driver_meanwhile() {
    let mut nodes = Nodes::new(2);
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    let shell = &mut nodes.shells[1];
    shell.hears(Event::Knocked { stranger: 99, pid: 7, message: hello(Role::Driver) });
    let refused = |effect: &Effect| matches!(effect, Effect::Refuse { stranger: 99, .. });
    assert!(shell.effects.iter().any(refused));
    assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"));
}

/// A call that its worker never took counted as begun: the word of it lay in a slow link when the node left (seed 45219).
#[test]
fn a_node_leaves_when_all_others_have_heard_what_it_said() {
    let mut nodes = Nodes::new(4);
    nodes.stuck = Some(2);
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    assert_eq!(nodes.stops(1), None, "its link to node 2 is cut");
    assert_eq!(nodes.stops(1), None, "still");
    nodes.dies(2);
    assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"));
}

/// The connection for them was slow, and their worker was dead. The node said to nobody that they never began, and left (seed 320881).
#[test]
fn a_node_that_calls_arrive_at_says_what_became_of_them_before_it_leaves() {
    let mut nodes = Nodes::new(3);
    nodes.stuck = Some(2);
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    assert_eq!(nodes.stops(1), None, "its link to node 2 is cut");
    let caller = nodes.shells[0].driver();
    let worker = ProcessId::new(number(1), 77, 0);
    let message = Box::new(Peer::Connect { caller, worker });
    nodes.shells[1].hears(Event::Peer { from: number(0), cover: 0, message });
    nodes.stuck = None;
    assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"), "it asks both again");
}

#[test]
fn a_lease_there_is_called_back_and_the_node_leaves_when_it_is_returned() {
    let (mut nodes, driver, lease, _) = Nodes::leased();
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    let recalled = nodes.shells[0].told(driver, |message| match message {
        ToClient::LeaseRecall { lease } => Some(*lease),
        _ => None,
    });
    assert_eq!(recalled, Some(lease));
    assert_eq!(nodes.stops(1), None, "its tasks run");
    nodes.says(0, driver, ToNode::LeaseReturn { lease });
    assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"));
}

#[test]
fn what_is_wanted_while_a_node_drains_goes_to_another_one() {
    let mut nodes = Nodes::new(3);
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    let driver = nodes.shells[0].driver();
    nodes.demand(driver, 2.0);
    nodes.forks(2);
    assert_eq!(nodes.granted(driver).0.node(), number(2));
}

#[test]
fn a_driver_of_the_node_gets_what_it_wants_elsewhere_and_what_waited_there_moves() {
    let mut nodes = Nodes::new(3);
    let driver = nodes.shells[1].driver();
    let shape = Shape::of(cpus(2.0));
    nodes.says(1, driver, ToNode::LeaseDemand { key: 1, shape: shape.into(), wanted: 1 });
    // Its worker is being made there.
    assert!(nodes.shells[1].forked().is_some());
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    nodes.time_passes();
    nodes.forks(2);
    let granted = nodes.shells[1].told(driver, |message| match message {
        ToClient::LeaseGranted { lease, .. } => Some(lease.node()),
        _ => None,
    });
    assert_eq!(granted, Some(number(2)));
    assert_eq!(nodes.stops(1), None, "its driver keeps it");
    nodes.shells[1].hears(Event::Closed { process: driver });
    nodes.pump();
    assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"));
}

#[test]
fn an_actor_that_may_restart_moves_without_a_restart_and_one_that_may_not_keeps_the_node() {
    for max_restarts in [1, 0] {
        let mut nodes = Nodes::new(2);
        let driver = nodes.shells[0].driver();
        let (actor, worker) = nodes.alive_on_second(driver, max_restarts);
        nodes.joins();
        nodes.drain(0, &Nodes::hex(1)).unwrap();
        if max_restarts == 0 {
            assert_eq!(nodes.exit(1, worker), None);
            assert_eq!(nodes.stops(1), None, "it keeps the node");
            nodes.ends(1, worker);
            assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"));
            continue;
        }
        assert_eq!(nodes.exit(1, worker), Some(true), "it finishes what it has");
        nodes.ends(1, worker);
        assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"));
        nodes.dies(1);
        nodes.time_passes();
        let again = nodes.forks(2);
        let (incarnation, result) = (1, Ok(()));
        nodes.says(2, again, ToNode::ActorStarted { actor, incarnation, result });
        // The restart that it has is left: it dies once more and comes back.
        nodes.ends(2, again);
        nodes.time_passes();
        let third = nodes.forks(2);
        let (incarnation, result) = (2, Ok(()));
        nodes.says(2, third, ToNode::ActorStarted { actor, incarnation, result });
        while nodes.state_told(driver).is_some_and(|state| {
            assert!(!matches!(state, ActorState::Dead { .. }), "{state:?}");
            true
        }) {}
        nodes.ends(2, third);
        let mut last = None;
        while let Some(state) = nodes.state_told(driver) {
            last = Some(state);
        }
        assert!(matches!(last, Some(ActorState::Dead { .. })), "{last:?}");
    }
}

#[test]
fn when_its_time_is_over_a_node_leaves_and_says_what_it_did_not_wait_for() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[0].driver();
    let (actor, _) = nodes.alive_on_second(driver, 0);
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    assert_eq!(nodes.stops(1), None);
    nodes.shells[1].now = nodes.shells[1].now + WITHIN;
    let why = nodes.stops(1).expect("its time is over");
    assert!(why.contains("its time was over") && why.contains(&actor.to_string()), "{why}");
    // What the shell writes then, and the others hear.
    nodes.row(1, NodeState::dead(why));
    let mut last = None;
    while let Some(state) = nodes.state_told(driver) {
        last = Some(state);
    }
    let Some(ActorState::Dead { failure }) = last else { panic!("{last:?}") };
    assert!(failure.text().contains("it was drained"), "{}", failure.text());
}

#[test]
fn rows_of_nodes_that_died_long_ago_went_but_for_the_number_that_the_next_one_follows() {
    let settled = |died| NodeState::Settled { why: String::new(), heir: None, died };
    let states = [NodeState::Alive, settled(9), settled(3), settled(5), settled(4)];
    let nodes: Vec<NodeEntry> =
        states.into_iter().enumerate().map(|(at, state)| node_entry(at, state)).collect();
    assert_eq!(crate::node::outlived(nodes.iter(), 1), [number(2), number(3)]);
    assert_eq!(crate::node::outlived(nodes.iter(), 2), [number(2)]);
    assert_eq!(crate::node::outlived(nodes.iter(), 4), []);
}

#[test]
fn the_heir_is_the_same_whether_all_rows_are_read_or_only_the_few_that_come_into_question() {
    let dead = || NodeState::dead("it fell");
    let states = |at: usize| match at % 3 {
        0 => NodeState::Alive,
        1 => NodeState::Draining,
        _ => dead(),
    };
    let leaving = |at: usize| if at % 3 == 1 { NodeState::Draining } else { dead() };
    for many in 0..30 {
        for of_state in [&states as &dyn Fn(usize) -> NodeState, &leaving, &|_| dead()] {
            let entry = |at: usize| {
                let address = if at % 5 == 4 { String::new() } else { "there".to_string() };
                NodeEntry { address, ..node_entry(at, of_state(at)) }
            };
            let nodes: Vec<NodeEntry> = (0..many).map(entry).collect();
            let row = |node| nodes.iter().find(|entry| entry.node == node).cloned();
            for dead in (0..many).map(number) {
                let few = heir_among(dead, nodes.iter().map(|entry| entry.node), row);
                assert_eq!(few, heir_of(dead, nodes.iter()), "{dead} of {many}");
            }
        }
    }
}

#[test]
fn a_node_with_the_last_copy_of_a_result_stays_until_its_home_has_one() {
    let (mut nodes, driver, lease, worker) = Nodes::leased();
    let object = TaskId { owner: driver, seq: 3 }.object(0);
    nodes.notices(0, driver, Notice::Hold { object, process: driver });
    nodes.seals(1, worker, object, driver);
    nodes.drain(0, &Nodes::hex(1)).unwrap();
    nodes.says(0, driver, ToNode::LeaseReturn { lease });
    assert_eq!(nodes.stops(1), None, "its bytes are on their way");
    nodes.moves(1, 0);
    assert_eq!(nodes.stops(1).as_deref(), Some("it was drained"));
    nodes.dies(1);
    nodes.wants(0, driver, object);
    let value = nodes.ready(0, driver);
    assert!(matches!(value, Some(Value::Stored(_))), "{value:?}");
}

#[test]
fn bundles_of_a_node_that_drains_are_reserved_on_another_one_before_it_leaves() {
    let mut nodes = Nodes::new(3);
    let driver = nodes.shells[0].driver();
    let bundle = BundleSpec { resources: cpus(2.0), ..BundleSpec::default() };
    let spec = GroupSpec {
        name: String::new(),
        namespace: String::new(),
        detached: false,
        strategy: GroupStrategy::Pack,
        bundles: vec![bundle],
    };
    nodes.says(0, driver, ToNode::GroupCreate { request: 5, spec: Box::new(spec) });
    nodes.time_passes();
    let was = nodes.bundle_at().expect("there is room");
    nodes.drain(0, &Nodes::hex(was)).unwrap();
    nodes.pump();
    let then = nodes.bundle_at().expect("another node has room");
    assert_ne!(then, was);
    assert_eq!(nodes.stops(was).as_deref(), Some("it was drained"));
}

/// The heir held what lay in it, which had no value and was nobody's but the heir's: so the node that drains waited for it, and for ever.
#[test]
fn last_words_are_taken_back_when_nobody_else_uses_the_object_any_more() {
    let mut nodes = Nodes::new(3);
    let driver = nodes.shells[2].driver();
    let [outer, inner] =
        [1, 2].map(|seq| ObjectId { task: TaskId { owner: driver, seq }, index: 0 });
    let shares = |object, contains| {
        let state = SharedState::Value { value: Value::Inline((*b"x").into()), contains };
        Notice::Shared { object, state }
    };
    let notices = vec![shares(inner, vec![]), shares(outer, vec![inner])];
    nodes.says(2, driver, ToNode::Notices(notices));
    let known = Known::Inline { bytes: (*b"x").into(), contains: vec![inner] };
    let says = |nodes: &mut Nodes, message| {
        let message = Box::new(message);
        nodes.shells[1].hears(Event::Peer { from: number(2), cover: 0, message });
        nodes.pump();
    };
    says(&mut nodes, Peer::HandOver { object: outer, known, word: 1 });
    assert!(nodes.shells[1].node.objects.knows(inner), "it is held for the time after");
    says(&mut nodes, Peer::TakeBack { object: outer });
    assert!(!nodes.shells[1].node.objects.knows(inner));
    assert!(nodes.shells[1].node.is_quiet());
}
