//! Names of actors in a cluster of a head and two nodes.

use hoplo_base::limits::{LOAD_GATHERED, NAME_PATIENCE};
use hoplo_wire::node::{ActorCreated, ActorFound, Strategy};

use super::*;

const NAME: &str = "counter";

impl Nodes {
    fn named(&mut self, at: usize, creator: ProcessId, detached: bool, get_if_exists: bool) -> u64 {
        self.asks_for(at, creator, detached, get_if_exists);
        self.pump();
        REQUEST
    }

    /// Nobody hears it yet.
    pub(super) fn asks_for(
        &mut self,
        at: usize,
        creator: ProcessId,
        detached: bool,
        get_if_exists: bool,
    ) {
        self.asks_with_shape(at, creator, detached, get_if_exists, Shape::of(cpus(1.0)));
    }

    fn asks_with_shape(
        &mut self,
        at: usize,
        creator: ProcessId,
        detached: bool,
        get_if_exists: bool,
        shape: Shape,
    ) {
        let actor = actor_of(creator);
        let spec = Box::new(ActorSpec {
            actor,
            class_name: "Counter".to_string(),
            name: NAME.to_string(),
            namespace: String::new(),
            detached,
            shape,
            held: ResourceSet::new(),
            max_restarts: 0,
            checkpoints: None,
            frame: vec![],
            contains: vec![],
            handle: vec![7],
        });
        let create = ToNode::ActorCreate { request: REQUEST, spec, get_if_exists };
        self.shells[at].says(creator, create);
        self.shells[at].says(creator, ToNode::ActorWatch { actor });
    }

    fn created(&mut self, at: usize, creator: ProcessId) -> Option<Result<ActorCreated, String>> {
        self.shells[at].told(creator, |message| match message {
            ToClient::ActorCreated { request: REQUEST, result } => Some(result.clone()),
            _ => None,
        })
    }

    fn looked_up(&mut self, at: usize, from: ProcessId) -> Option<Option<ActorFound>> {
        let (namespace, name) = (String::new(), NAME.to_string());
        self.says(at, from, ToNode::ActorLookup { request: 5, namespace, name });
        self.found(at, from)
    }

    fn found(&mut self, at: usize, from: ProcessId) -> Option<Option<ActorFound>> {
        self.shells[at].told(from, |message| match message {
            ToClient::ActorFound { request: 5, found } => Some(found.clone()),
            _ => None,
        })
    }

    /// The head's daemon is started again on its store: it has another number.
    fn head_dies(&mut self) {
        self.dies(0);
    }

    fn asked_nothing_more(&self) -> bool {
        self.shells.iter().all(|shell| shell.node.waits_for_no_name())
    }
}

const REQUEST: u64 = 4;

pub(super) fn actor_of(creator: ProcessId) -> ActorId {
    ActorId(TaskId { owner: creator, seq: 9 })
}

/// A head, two nodes, and a driver at each of the two.
fn three() -> (Nodes, ProcessId, ProcessId) {
    let mut nodes = Nodes::new(3);
    let first = nodes.shells[1].driver();
    let second = nodes.shells[2].driver();
    (nodes, first, second)
}

#[test]
fn of_two_who_name_an_actor_at_once_on_two_nodes_one_wins_and_the_other_hears_who() {
    let (mut nodes, first, second) = three();
    nodes.asks_for(1, first, false, false);
    nodes.asks_for(2, second, false, true);
    assert_eq!((nodes.created(1, first), nodes.created(2, second)), (None, None), "they wait");
    nodes.pump();
    assert_eq!(nodes.created(1, first), Some(Ok(ActorCreated::New)));
    let Some(Ok(ActorCreated::Existing(found))) = nodes.created(2, second) else {
        panic!("it gets the one that exists");
    };
    assert_eq!((found.actor, &found.handle[..]), (actor_of(first), &[7][..]));
    assert!(nodes.shells[2].node.objects.knows(found.actor.handle()), "it holds it");
    // Who wants just its own is refused, at any node, also at the head.
    let third = nodes.shells[0].driver();
    for (at, creator) in [(2, second), (0, third), (1, first)] {
        nodes.named(at, creator, false, false);
        let refused = nodes.created(at, creator).expect("it is answered").unwrap_err();
        assert!(refused.contains("an actor named \"counter\" exists"), "{refused}");
    }
    assert!(nodes.asked_nothing_more());
}

#[test]
fn an_actor_is_found_by_its_name_from_every_node_and_nobody_finds_what_nobody_named() {
    let (mut nodes, first, second) = three();
    let third = nodes.shells[0].driver();
    for (at, from) in [(0, third), (1, first), (2, second)] {
        assert_eq!(nodes.looked_up(at, from), Some(None), "{at}");
    }
    nodes.named(0, third, false, false);
    assert_eq!(nodes.created(0, third), Some(Ok(ActorCreated::New)));
    for (at, from) in [(1, first), (2, second), (0, third)] {
        let found = nodes.looked_up(at, from).flatten().map(|found| found.actor);
        assert_eq!(found, Some(actor_of(third)), "{at}");
    }
    assert!(nodes.asked_nothing_more());
}

/// Its job was over, so nobody ended it.
#[test]
fn an_actor_was_made_for_a_driver_that_left_before_its_head_knew_itself() {
    for detached in [true, false] {
        let mut nodes = Nodes { shells: vec![shell(0)], index: 10, head: 0, stuck: None };
        let driver = nodes.shells[0].driver();
        nodes.named(0, driver, detached, false);
        nodes.shells[0].hears(Event::Closed { process: driver });
        nodes.pump();
        nodes.row(0, NodeState::Alive);
        assert_eq!(nodes.shells[0].node.actors.rows().count(), usize::from(detached));
        assert!(nodes.asked_nothing_more());
    }
}

/// A head that is started again hears of who lives, and then of itself. Until the others' rows changed it gave them nothing.
#[test]
fn a_head_that_was_started_again_gave_no_work_to_who_was_there_before() {
    let shells = vec![shell(0), shell(1)];
    let mut nodes = Nodes { shells, index: 10, head: 0, stuck: None };
    let driver = nodes.shells[0].driver();
    nodes.tells_row(&[0, 1], 1, NodeState::Alive);
    let shape = Shape { strategy: Strategy::Spread, ..Shape::of(cpus(2.0)) };
    nodes.asks_with_shape(0, driver, false, false, shape);
    nodes.row(0, NodeState::Alive);
    nodes.shells[1].waits(LOAD_GATHERED);
    nodes.pump();
    assert!(nodes.shells[1].forked().is_some(), "the other node makes a worker for its actor");
}

#[test]
fn a_detached_actor_keeps_its_name_when_its_driver_leaves_and_another_one_does_not() {
    for detached in [true, false] {
        let (mut nodes, first, second) = three();
        nodes.named(1, first, detached, false);
        nodes.shells[1].hears(Event::Closed { process: first });
        nodes.pump();
        assert_eq!(nodes.looked_up(2, second).flatten().is_some(), detached);
        nodes.named(2, second, false, false);
        assert_eq!(nodes.created(2, second).unwrap().is_err(), detached);
    }
}

#[test]
fn a_name_is_free_when_its_actor_was_killed_from_another_node() {
    let (mut nodes, first, second) = three();
    nodes.named(1, first, false, false);
    let actor = actor_of(first);
    nodes.says(2, second, ToNode::ActorKill { actor, no_restart: true, of: None });
    assert_eq!(nodes.looked_up(2, second), Some(None));
    nodes.named(2, second, false, false);
    assert_eq!(nodes.created(2, second), Some(Ok(ActorCreated::New)));
}

#[test]
fn a_name_is_free_when_its_home_is_dead_even_if_who_asks_heard_it_first() {
    let (mut nodes, first, second) = three();
    nodes.named(1, first, false, false);
    nodes.dies(1);
    assert_eq!(nodes.looked_up(2, second), None, "its heir may have the actor");
    nodes.settles(1);
    assert_eq!(nodes.found(2, second), Some(None));
    nodes.named(2, second, true, false);
    assert_eq!(nodes.created(2, second), Some(Ok(ActorCreated::New)));

    let (mut nodes, first, second) = three();
    nodes.named(1, first, false, false);
    nodes.death_is_heard(&[2], 1, 0, 90);
    assert_eq!(nodes.looked_up(2, second), None);
    nodes.death_is_heard(&[0], 1, 0, 90);
    nodes.is_settled(&[0, 2], 1, 0, 90);
    assert_eq!(nodes.found(2, second), Some(None));
    assert!(nodes.asked_nothing_more());
}

#[test]
fn who_leaves_while_the_head_decides_takes_no_name() {
    let (mut nodes, first, second) = three();
    nodes.asks_for(1, first, false, false);
    nodes.shells[1].hears(Event::Closed { process: first });
    nodes.pump();
    nodes.named(2, second, false, false);
    assert_eq!(nodes.created(2, second), Some(Ok(ActorCreated::New)));
    assert!(nodes.asked_nothing_more());
}

/// Nobody knew the actor while the head decided, and it lived after its killer had left.
#[test]
fn who_is_killed_while_the_head_decides_about_its_name_never_starts() {
    let (mut nodes, first, second) = three();
    let actor = actor_of(first);
    nodes.asks_for(1, first, false, false);
    nodes.shells[1].says(first, ToNode::ActorKill { actor, no_restart: true, of: None });
    // All sockets are read before the head has answered.
    nodes.sweeps(1);
    nodes.pump();
    assert_eq!(nodes.created(1, first), Some(Ok(ActorCreated::New)));
    nodes.named(2, second, false, false);
    assert_eq!(nodes.created(2, second), Some(Ok(ActorCreated::New)), "the name is free");
}

/// A lookup said that the actor was dead, and nobody had said so.
#[test]
fn without_a_head_who_asks_for_a_name_hears_so_after_a_while() {
    let (mut nodes, first, second) = three();
    let since = nodes.shells[1].now;
    nodes.shells[2].hears(Event::HeadSilent { since });
    nodes.head_dies();
    nodes.named(1, first, false, false);
    assert_eq!(nodes.created(1, first), None);
    assert_eq!(nodes.looked_up(2, second), None);
    nodes.shells[1].waits(NAME_PATIENCE);
    nodes.shells[2].waits(NAME_PATIENCE);
    let Some(Ok(ActorCreated::Unsaid { why })) = nodes.created(1, first) else {
        panic!("it hears");
    };
    assert!(why.contains("the head (somewhere) has not answered for 15 s"), "{why}");
    let failure = nodes.found(2, second).flatten().and_then(|found| found.dead).unwrap();
    assert_eq!(failure.kind, hoplo_wire::FailureKind::ActorUnavailable);
    assert!(failure.text().contains("the head (somewhere) has not answered for 15 s"));
    assert!(nodes.asked_nothing_more());
}

#[test]
fn a_new_head_is_told_the_names_there_are_and_what_waited_is_decided() {
    let (mut nodes, first, second) = three();
    nodes.named(1, first, true, false);
    assert_eq!(nodes.created(1, first), Some(Ok(ActorCreated::New)));
    nodes.head_dies();
    nodes.named(2, second, false, true);
    assert_eq!(nodes.created(2, second), None, "there is no head");
    nodes.joins_as_head();
    let Some(Ok(ActorCreated::Existing(found))) = nodes.created(2, second) else {
        panic!("it is answered by the new head");
    };
    assert_eq!(found.actor, actor_of(first));
}

#[test]
fn a_new_head_gives_no_name_before_all_have_told_theirs() {
    for first_dies in [false, true] {
        let (mut nodes, first, second) = three();
        nodes.named(1, first, true, false);
        nodes.head_dies();
        let head = nodes.begins_as_head();
        nodes.tells_row(&[head, 2], head, NodeState::Alive);
        nodes.named(2, second, false, true);
        let third = nodes.shells[head].driver();
        assert_eq!(nodes.looked_up(head, third), None, "its own ask, too");
        assert_eq!(nodes.created(2, second), None, "node 1 has not told its names");
        if first_dies {
            nodes.dies(1);
            assert_eq!(nodes.created(2, second), Some(Ok(ActorCreated::New)));
        } else {
            nodes.tells_row(&[1], head, NodeState::Alive);
            let Some(Ok(ActorCreated::Existing(found))) = nodes.created(2, second) else {
                panic!("it is the one of node 1");
            };
            assert_eq!(found.actor, actor_of(first));
            let found = nodes.found(head, third).flatten();
            assert_eq!(found.map(|found| found.actor), Some(actor_of(first)));
        }
        assert!(nodes.asked_nothing_more());
    }
}

#[test]
fn what_an_earlier_head_says_of_a_name_comes_too_late() {
    for new_head_is_known in [false, true] {
        let (mut nodes, first, _) = three();
        nodes.stuck = Some(0);
        nodes.named(1, first, false, false);
        if new_head_is_known {
            let head = nodes.begins_as_head();
            nodes.stuck = Some(head);
            nodes.tells_row(&[1], head, NodeState::Alive);
        }
        let message =
            Box::new(hoplo_wire::peer::Peer::Named { ask: 1, actor: Some(actor_of(first)) });
        nodes.shells[1].hears(Event::Peer { from: number(0), cover: 0, message });
        let given = nodes.created(1, first).is_some();
        assert_eq!(given, !new_head_is_known);
    }
}

#[test]
fn a_name_that_only_the_head_believes_in_is_found_out_by_who_wants_it() {
    for at in [1, 2] {
        let (mut nodes, first, second) = three();
        let owner = if at == 1 { first } else { second };
        // As a row says that was not changed before the head read it.
        let gone = ActorId(TaskId { owner, seq: 55 });
        nodes.shells[0].node.recall_name((String::new(), NAME.to_string()), gone);
        nodes.named(2, second, false, false);
        assert_eq!(nodes.created(2, second), Some(Ok(ActorCreated::New)), "of node {at}");
        assert!(nodes.asked_nothing_more());
    }
}

/// The row of the actor before it had not changed when the head read it. That was taken for two actors of one name.
#[test]
fn what_nodes_tell_of_a_name_counts_more_than_a_row() {
    let (mut nodes, first, second) = three();
    nodes.named(2, second, true, false);
    nodes.head_dies();
    let head = nodes.begins_as_head();
    let gone = ActorId(TaskId { owner: first, seq: 55 });
    nodes.shells[head].node.recall_name((String::new(), NAME.to_string()), gone);
    nodes.row(head, NodeState::Alive);
    assert_eq!(nodes.shells[head].node.violations(), 0);
    let found = nodes.looked_up(1, first).flatten().map(|found| found.actor);
    assert_eq!(found, Some(actor_of(second)));
}

#[test]
fn who_is_refused_a_name_kept_the_actor_of_another_node_alive() {
    let (mut nodes, first, second) = three();
    nodes.named(1, first, false, false);
    nodes.named(2, second, false, false);
    assert!(nodes.created(2, second).unwrap().is_err());
    let object = actor_of(first).handle();
    assert!(!nodes.shells[2].node.objects.knows(object), "it holds nothing");
    nodes.says(1, first, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
    assert_eq!(nodes.looked_up(2, second), Some(None), "nobody reached it");
}
