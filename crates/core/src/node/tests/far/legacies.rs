//! Actors whose home died are in the charge of its heir.

use super::names::actor_of;
use super::*;
use crate::control::{ActorPhase, ControlStore, Entry, MemoryStore};
use crate::node::recall::actor_entry;
use hoplo_wire::node::Replay;
use hoplo_wire::peer::{KnownActor, Peer};

const NAME: &str = "kept";

/// A detached actor. Node n has n + 1 CPUs: so many say where it can live.
fn spec(
    actor: ActorId,
    name: &str,
    cpu: f64,
    max_restarts: i32,
    checkpoints: Option<Checkpoints>,
) -> Box<ActorSpec> {
    Box::new(ActorSpec {
        actor,
        class_name: "Echo".to_string(),
        name: name.to_string(),
        namespace: String::new(),
        detached: true,
        shape: Shape::of(cpus(cpu)),
        held: ResourceSet::new(),
        max_restarts,
        checkpoints,
        frame: constructor(actor),
        contains: vec![],
        handle: vec![7],
    })
}

/// Nodes 0 to 2, a driver at node 0, and a detached actor of a driver at node 1.
struct Three {
    nodes: Nodes,
    watcher: ProcessId,
    actor: ActorId,
    worker: ProcessId,
    lives_at: usize,
}

impl Three {
    fn with(cpu: f64, max_restarts: i32) -> Self {
        let mut nodes = Nodes::new(3);
        let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
        let actor = actor_of(creator);
        let spec = spec(actor, NAME, cpu, max_restarts, None);
        nodes.says(1, creator, ToNode::ActorCreate { request: 4, spec, get_if_exists: false });
        let lives_at = cpu as usize - 1;
        let worker = nodes.forks(lives_at);
        let mut three = Self { nodes, watcher, actor, worker, lives_at };
        three.watches();
        three
    }

    fn watches(&mut self) {
        self.nodes.says(0, self.watcher, ToNode::ActorWatch { actor: self.actor });
    }

    fn started(&mut self) {
        let (actor, incarnation, result) = (self.actor, 0, Ok(()));
        let started = ToNode::ActorStarted { actor, incarnation, result };
        self.nodes.says(self.lives_at, self.worker, started);
    }

    /// What the watcher was told last.
    fn state(&mut self) -> Option<ActorState> {
        std::iter::from_fn(|| self.nodes.state_told(self.watcher)).last()
    }

    fn home_dies(&mut self) {
        self.nodes.death_is_heard(&[0, 2], 1, 0, 90);
        self.nodes.is_settled(&[0, 2], 1, 0, 90);
    }

    fn told_to_exit(&mut self) -> bool {
        let exit = self.nodes.shells[self.lives_at].told(self.worker, |message| match message {
            ToClient::Exit { .. } => Some(()),
            _ => None,
        });
        exit.is_some()
    }

    fn runs_again(&mut self, at: usize, worker: ProcessId) -> Option<u32> {
        self.nodes.shells[at].told(worker, |message| match message {
            ToClient::RunActor { incarnation, .. } => Some(*incarnation),
            _ => None,
        })
    }
}

#[test]
fn an_actor_goes_on_where_it_is_when_its_home_dies() {
    let mut three = Three::with(3.0, 0);
    three.started();
    let alive = Some(ActorState::Alive { incarnation: 0, worker: three.worker, logs: false });
    assert_eq!(three.state(), alive);
    three.home_dies();
    assert!(!three.told_to_exit());
    assert_eq!(three.state(), alive, "it asked the heir");
    let row = three.nodes.shells[0].node.actors.row(three.actor).unwrap();
    assert_eq!((row.worker, row.name.as_str()), (Some(three.worker), NAME));
    // The heir has the last word on it.
    let kill = ToNode::ActorKill { actor: three.actor, no_restart: true, of: None };
    three.nodes.says(0, three.watcher, kill);
    assert!(matches!(three.state(), Some(ActorState::Dead { .. })));
    let killed = three.nodes.shells[2].take(|effect| match effect {
        Effect::Kill { process, .. } => Some(*process),
        _ => None,
    });
    assert_eq!(killed, Some(three.worker));
}

#[test]
fn what_its_worker_told_the_dead_home_is_told_again() {
    let mut three = Three::with(3.0, 0);
    three.nodes.stuck = Some(1);
    three.started();
    assert!(matches!(three.state(), Some(ActorState::Pending { .. }) | None));
    three.home_dies();
    let alive = ActorState::Alive { incarnation: 0, worker: three.worker, logs: false };
    assert_eq!(three.state(), Some(alive));
}

#[test]
fn one_that_lived_at_its_home_starts_again_elsewhere_if_it_may() {
    let mut three = Three::with(2.0, 1);
    three.started();
    three.home_dies();
    let Some(ActorState::Restarting { incarnation: 1, cause }) = three.state() else {
        panic!("it restarts");
    };
    assert!(cause.contains("it fell"), "{cause}");
    let worker = three.nodes.forks(2);
    assert_eq!(three.runs_again(2, worker), Some(1));
    let started = ToNode::ActorStarted { actor: three.actor, incarnation: 1, result: Ok(()) };
    three.nodes.says(2, worker, started);
    assert_eq!(three.state(), Some(ActorState::Alive { incarnation: 1, worker, logs: false }));
    // Once: the restart is used up.
    three.nodes.ends(2, worker);
    assert!(matches!(three.state(), Some(ActorState::Dead { .. })));
}

/// A node that may have been declared dead ends its workers. It started their actors again, or told others that they had ended, and when it was
/// declared dead they started again once more.
#[test]
fn an_actor_of_a_node_that_leaves_because_it_is_dead_to_others_paid_two_restarts() {
    let mut three = Three::with(2.0, 1);
    three.started();
    let shell = &mut three.nodes.shells[1];
    shell.effects.clear();
    shell.hears(Event::Fenced { why: "it was cut off".to_string() });
    three.nodes.ends(1, three.worker);
    let again = three.nodes.shells[1].take(|effect| match effect {
        Effect::Fork { .. } => Some("it forks"),
        Effect::SendPeer { .. } => Some("it speaks"),
        Effect::Save { .. } => Some("it writes"),
        _ => None,
    });
    assert_eq!(again, None);
    three.home_dies();
    assert!(matches!(three.state(), Some(ActorState::Restarting { incarnation: 1, .. })));
    let worker = three.nodes.forks(2);
    assert_eq!(three.runs_again(2, worker), Some(1));
}

#[test]
fn without_a_restart_it_dies_with_its_home_and_its_name_is_free() {
    let mut three = Three::with(2.0, 0);
    three.started();
    three.home_dies();
    let Some(ActorState::Dead { failure }) = three.state() else { panic!("it is lost") };
    assert!(failure.text().contains("home node"), "{}", failure.text());
    let (namespace, name) = (String::new(), NAME.to_string());
    three.nodes.says(0, three.watcher, ToNode::ActorLookup { request: 5, namespace, name });
    let found = three.nodes.shells[0].told(three.watcher, |message| match message {
        ToClient::ActorFound { found, .. } => Some(found.clone()),
        _ => None,
    });
    assert!(found.unwrap().is_none_or(|found| found.dead.is_some()));
}

/// It did not begin, so nothing was lost, and no restart is used.
#[test]
fn one_that_waits_for_room_goes_on_waiting_at_the_heir() {
    let mut nodes = Nodes::new(3);
    let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
    let blocker = nodes.shells[2].driver();
    let shape = Shape::of(cpus(3.0));
    nodes.says(2, blocker, ToNode::LeaseDemand { key: 1, shape: shape.into(), wanted: 1 });
    nodes.forks(2);
    let actor = actor_of(creator);
    let spec = spec(actor, "", 3.0, 0, None);
    nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
    nodes.says(0, watcher, ToNode::ActorWatch { actor });
    nodes.death_is_heard(&[0, 2], 1, 0, 90);
    nodes.is_settled(&[0, 2], 1, 0, 90);
    let states: Vec<_> = std::iter::from_fn(|| nodes.state_told(watcher)).collect();
    assert!(matches!(states.last(), Some(ActorState::Pending { .. })), "{states:?}");
}

/// Its node told of it as of one that lives.
#[test]
fn a_worker_that_dies_before_the_heir_decides_is_known_to_be_dead() {
    for heard_first in [false, true] {
        let mut three = Three::with(3.0, 0);
        three.started();
        three.state();
        let whom: &[usize] = if heard_first { &[0, 2] } else { &[2] };
        three.nodes.death_is_heard(whom, 1, 0, 90);
        three.nodes.ends(2, three.worker);
        if !heard_first {
            three.nodes.death_is_heard(&[0], 1, 0, 90);
        }
        three.nodes.is_settled(&[0, 2], 1, 0, 90);
        assert!(matches!(three.state(), Some(ActorState::Dead { .. })), "{heard_first}");
    }
}

/// EST-2
#[test]
fn the_next_heir_takes_it_too() {
    let mut three = Three::with(3.0, 0);
    three.started();
    three.nodes.joins();
    three.nodes.death_is_heard(&[0, 2, 3], 1, 3, 90);
    three.nodes.death_is_heard(&[0, 2], 3, 0, 91);
    three.nodes.is_settled(&[0, 2], 1, 3, 90);
    three.nodes.is_settled(&[0, 2], 3, 0, 91);
    let alive = ActorState::Alive { incarnation: 0, worker: three.worker, logs: false };
    assert_eq!(three.state(), Some(alive));
    assert!(!three.told_to_exit());
}

/// FAR-8
#[test]
fn what_is_asked_of_the_heir_before_it_decides_waits() {
    let mut three = Three::with(3.0, 0);
    three.started();
    three.state();
    three.nodes.death_is_heard(&[0, 2], 1, 0, 90);
    let late = three.nodes.shells[2].driver();
    three.nodes.says(2, late, ToNode::ActorWatch { actor: three.actor });
    three.watches();
    let told = |nodes: &mut Nodes| {
        nodes.shells[2].told(late, |message| match message {
            ToClient::ActorState { state, .. } => Some(state.clone()),
            _ => None,
        })
    };
    assert_eq!((told(&mut three.nodes), three.state()), (None, None));
    three.nodes.is_settled(&[0, 2], 1, 0, 90);
    let alive = ActorState::Alive { incarnation: 0, worker: three.worker, logs: false };
    assert_eq!((told(&mut three.nodes), three.state()), (Some(alive.clone()), Some(alive)));
}

/// Of an actor that nobody can reach, and that is not detached, the heir lets go.
#[test]
fn keepers_keep_what_is_left_and_nothing_of_what_is_dead() {
    let mut three = Three::with(2.0, -1);
    three.started();
    assert!((0..3).any(|at| three.nodes.shells[at].node.keeps_actor(three.actor)));
    let kill = ToNode::ActorKill { actor: three.actor, no_restart: true, of: None };
    three.nodes.says(0, three.watcher, kill);
    assert!(!(0..3).any(|at| three.nodes.shells[at].node.keeps_actor(three.actor)));
}

/// FAR-9: who else knew it died with its home.
#[test]
fn an_actor_that_no_node_knows_starts_again_from_its_row() {
    for (heir, ends) in [(0, false), (2, false), (0, true)] {
        let mut three = Three::with(2.0, 1);
        three.started();
        let (home, actor) = (three.actor.0.owner.node(), three.actor);
        for at in [0, 2] {
            let message = Box::new(Peer::UnkeepActor { actor, word: 0 });
            three.nodes.shells[at].hears(Event::Peer { from: home, cover: 0, message });
        }
        let node = &three.nodes.shells[1].node;
        let mut store = MemoryStore::new();
        let job = node.jobs.values().find(|job| job.driver == actor.0.owner).unwrap().entry();
        store.put(job.key(), job.to_value()).unwrap();
        let mut row = actor_entry(node.actors.row(actor).unwrap(), node.actors.will(actor));
        if ends {
            row.state = ActorPhase::Dead;
        }
        store.put(row.key(), row.to_value()).unwrap();
        let state = NodeState::Dead { why: "it fell".to_string(), heir: Some(number(heir)) };
        three.nodes.shells[0].node.read_wills(&node_entry(1, state), &store);
        three.state();
        three.nodes.death_is_heard(&[0, 2], 1, heir, 90);
        three.nodes.is_settled(&[0, 2], 1, heir, 90);
        if ends {
            assert!(matches!(three.state(), Some(ActorState::Dead { .. })), "it was dead");
            continue;
        }
        assert!(matches!(three.state(), Some(ActorState::Restarting { incarnation: 1, .. })));
        let worker = three.nodes.forks(2);
        assert_eq!(three.runs_again(2, worker), Some(1));
        let started = ToNode::ActorStarted { actor, incarnation: 1, result: Ok(()) };
        three.nodes.says(2, worker, started);
        assert_eq!(three.state(), Some(ActorState::Alive { incarnation: 1, worker, logs: false }));
    }
}

/// Its node went on with it, or the heir started it again, and somebody else had its name (found by the simulator).
#[test]
fn one_that_was_killed_before_others_heard_so_stays_dead() {
    for (cpu, heir) in [(2.0, 0), (2.0, 2), (3.0, 0), (3.0, 2)] {
        let mut three = Three::with(cpu, 1);
        three.started();
        let node = &three.nodes.shells[1].node;
        let mut row = actor_entry(node.actors.row(three.actor).unwrap(), None);
        row.state = ActorPhase::Dead;
        let mut store = MemoryStore::new();
        store.put(row.key(), row.to_value()).unwrap();
        let state = NodeState::Dead { why: "it fell".to_string(), heir: Some(number(heir)) };
        three.nodes.shells[0].node.read_wills(&node_entry(1, state), &store);
        three.state();
        three.nodes.death_is_heard(&[0, 2], 1, heir, 90);
        three.nodes.is_settled(&[0, 2], 1, heir, 90);
        assert!(matches!(three.state(), Some(ActorState::Dead { .. })), "{cpu} {heir}");
        assert!(three.lives_at == 1 || three.told_to_exit(), "{cpu} {heir}");
    }
}

/// It would begin anew although calls took effect in it, or more often than it may.
#[test]
fn no_will_is_made_for_an_actor_that_may_not_start_again() {
    let will = |three: &Three| three.nodes.shells[1].node.actors.will(three.actor);
    let mut waits = Nodes::new(1);
    let creator = waits.shells[0].driver();
    let spec = spec(actor_of(creator), NAME, 9.0, 0, None);
    waits.says(0, creator, ToNode::ActorCreate { request: 4, spec, get_if_exists: false });
    let will_of_waiting = waits.shells[0].node.actors.will(actor_of(creator));
    assert!(will_of_waiting.is_none(), "its row may be older than its beginning");
    let mut once = Three::with(2.0, 0);
    assert!(will(&once).is_none(), "it was given a worker");
    once.started();
    assert!(will(&once).is_none());
    let mut again = Three::with(2.0, 1);
    again.started();
    assert_eq!(will(&again).unwrap().incarnation, 0);
    again.nodes.ends(1, again.worker);
    again.worker = again.nodes.forks(1);
    assert!(will(&again).is_none(), "its restart is used up");
}

/// It has an heir: an actor that lives elsewhere does not need it.
#[test]
fn a_node_that_is_drained_does_not_wait_for_its_actors_elsewhere() {
    let mut three = Three::with(3.0, 0);
    three.started();
    let creator = three.actor.0.owner;
    three.nodes.shells[1].hears(Event::Closed { process: creator });
    three.nodes.pump();
    three.nodes.drain(1, &Nodes::hex(1)).expect_err("only the head drains");
    three.nodes.drain(0, &Nodes::hex(1)).unwrap();
    assert_eq!(three.nodes.stops(1).as_deref(), Some("it was drained"));
    assert!(!three.told_to_exit());
    let alive = three.state();
    three.home_dies();
    assert_eq!(three.state(), alive);
}

/// Its node has a copy of the log, and its replies wait for a word of whoever is in charge.
#[test]
fn the_log_of_an_actor_with_checkpoints_goes_to_the_heir() {
    let mut nodes = Nodes::new(3);
    let (incarnation, creator) = (0, nodes.shells[1].driver());
    let actor = actor_of(creator);
    let spec = spec(actor, "", 3.0, -1, Some(Checkpoints { calls: 10, interval_ms: 0 }));
    nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
    let worker = nodes.forks(2);
    nodes.says(2, worker, ToNode::ActorStarted { actor, incarnation, result: Ok(()) });
    let logs = |nodes: &mut Nodes, index| {
        let call = Box::new(LoggedCall { index, frame: constructor(actor), contains: vec![] });
        nodes.says(2, worker, ToNode::CallLogged { actor, incarnation, call });
        nodes.shells[2].told(worker, |message| match message {
            ToClient::CallsLogged { upto } => Some(*upto),
            _ => None,
        })
    };
    assert_eq!(logs(&mut nodes, 1), Some(1));
    nodes.stuck = Some(1);
    assert_eq!(logs(&mut nodes, 2), None, "it waits");
    nodes.death_is_heard(&[0, 2], 1, 0, 90);
    assert_eq!(logs(&mut nodes, 3), None, "it waits for the heir");
    nodes.is_settled(&[0, 2], 1, 0, 90);
    let acknowledged = std::iter::from_fn(|| {
        nodes.shells[2].told(worker, |message| match message {
            ToClient::CallsLogged { upto } => Some(*upto),
            _ => None,
        })
    });
    assert_eq!(acknowledged.last(), Some(3));
    let calls = nodes.shells[0].node.replays.replay(actor).unwrap().calls;
    assert_eq!(calls.iter().map(|call| call.index).collect::<Vec<_>>(), [1, 2, 3]);
    // Its next process starts from it.
    nodes.ends(2, worker);
    let next = nodes.forks(2);
    let replayed = nodes.shells[2].told(next, |message| match message {
        ToClient::RunActor { incarnation: 1, replay: Some(replay), .. } => Some(replay.calls.len()),
        _ => None,
    });
    assert_eq!(replayed, Some(3));
}

/// Its worker had closed its connection and had not ended when it was to become the actor. The home let the keeper go, and died before it heard: the actor
/// was lost (seed 10023187).
#[test]
fn an_actor_whose_worker_hangs_before_it_begins_outlives_its_home() {
    let mut nodes = Nodes::new(3);
    let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
    let actor = actor_of(creator);
    let checkpoints = Some(Checkpoints { calls: 10, interval_ms: 0 });
    let spec = spec(actor, "", 3.0, 1, checkpoints);
    nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
    let worker = nodes.shells[2].forked().expect("it forks");
    nodes.shells[2].hears(Event::Forked { process: worker, pid: 42 });
    nodes.shells[2].says(worker, hello(Role::Worker));
    nodes.shells[2].hears(Event::Closed { process: worker });
    nodes.pump();
    nodes.death_is_heard(&[0, 2], 1, 0, 90);
    nodes.is_settled(&[0, 2], 1, 0, 90);
    nodes.ends(2, worker);
    let next = nodes.forks(2);
    let runs = nodes.shells[2].told(next, |message| match message {
        ToClient::RunActor { incarnation, .. } => Some(*incarnation),
        _ => None,
    });
    assert_eq!(runs, Some(1));
    nodes.says(0, watcher, ToNode::ActorWatch { actor });
    let state = nodes.state_told(watcher);
    assert!(matches!(state, Some(ActorState::Restarting { incarnation: 1, .. })), "{state:?}");
}

/// The home let the keeper go as soon as it had sent the order to the actor's node, and died. The order did not arrive, so nobody knew the actor.
#[test]
fn an_actor_with_checkpoints_whose_order_is_lost_with_its_home_starts_at_the_heir() {
    let mut nodes = Nodes::new(4);
    let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
    let actor = actor_of(creator);
    let spec = spec(actor, "", 4.0, 1, Some(Checkpoints { calls: 10, interval_ms: 0 }));
    nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
    let keepers: Vec<usize> =
        (0..4).filter(|at| nodes.shells[*at].node.keeps_actor(actor)).collect();
    assert!(matches!(keepers[..], [0 | 2]), "a third node keeps it: {keepers:?}");
    nodes.stuck = Some(3);
    let worker = nodes.forks(3);
    nodes.stuck = None;
    nodes.death_is_heard(&[0, 2, 3], 1, 0, 90);
    nodes.is_settled(&[0, 2, 3], 1, 0, 90);
    nodes.ends(3, worker);
    let next = nodes.forks(3);
    let runs = nodes.shells[3].told(next, |message| match message {
        ToClient::RunActor { incarnation, .. } => Some(*incarnation),
        _ => None,
    });
    assert_eq!(runs, Some(1));
    nodes.says(3, next, ToNode::ActorStarted { actor, incarnation: 1, result: Ok(()) });
    nodes.says(0, watcher, ToNode::ActorWatch { actor });
    let state = nodes.state_told(watcher);
    assert_eq!(state, Some(ActorState::Alive { incarnation: 1, worker: next, logs: true }));
}

/// Keeper and node both have it while it starts: the heir starts it no second time, and nobody keeps it once it has started.
#[test]
fn an_actor_with_checkpoints_whose_home_dies_while_it_starts_starts_once() {
    for home_dies in [true, false] {
        let mut nodes = Nodes::new(4);
        let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
        let actor = actor_of(creator);
        let spec = spec(actor, "", 4.0, 1, Some(Checkpoints { calls: 10, interval_ms: 0 }));
        nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
        let worker = nodes.forks(3);
        let keepers = |nodes: &Nodes, of: &[usize]| {
            of.iter().filter(|at| nodes.shells[**at].node.keeps_actor(actor)).count()
        };
        assert_eq!(keepers(&nodes, &[0, 2, 3]), 1);
        if home_dies {
            nodes.death_is_heard(&[0, 2, 3], 1, 0, 90);
            nodes.is_settled(&[0, 2, 3], 1, 0, 90);
            assert_eq!(keepers(&nodes, &[0, 2, 3]), 1, "the heir's keeper");
        }
        nodes.says(3, worker, ToNode::ActorStarted { actor, incarnation: 0, result: Ok(()) });
        assert_eq!(keepers(&nodes, &[0, 2, 3]), 0);
        nodes.says(0, watcher, ToNode::ActorWatch { actor });
        let state = nodes.state_told(watcher);
        assert_eq!(state, Some(ActorState::Alive { incarnation: 0, worker, logs: true }));
    }
}

/// No keeper has what its constructor needs: it was gone when the actor started again after its home's death (seed 2075205).
#[test]
fn the_arguments_of_an_actor_with_checkpoints_outlive_its_home() {
    for max_restarts in [-1, 0] {
        let mut nodes = Nodes::new(3);
        let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
        let actor = actor_of(creator);
        let object = nodes.calls_with_a_value(watcher, creator).0;
        let checkpoints = Some(Checkpoints { calls: 10, interval_ms: 0 });
        let mut spec = spec(actor, "", 3.0, max_restarts, checkpoints);
        spec.contains = vec![object];
        nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
        let worker = nodes.forks(2);
        nodes.says(2, worker, ToNode::ActorStarted { actor, incarnation: 0, result: Ok(()) });
        nodes.death_is_heard(&[0, 2], 1, 0, 90);
        nodes.is_settled(&[0, 2], 1, 0, 90);
        nodes.says(0, watcher, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
        nodes.pump();
        let knows = |nodes: &Nodes| nodes.shells[0].node.objects.knows(object);
        assert_eq!(knows(&nodes), max_restarts != 0, "it may start again, or not");
        nodes.says(0, watcher, ToNode::ActorKill { actor, no_restart: true, of: None });
        nodes.ends(2, worker);
        assert!(!knows(&nodes));
    }
}

/// The keeper has it as well, if the home died before it let the keeper go: what the calls name was held twice, and let go once (seed 2014591).
#[test]
fn what_a_log_names_that_two_nodes_have_goes_with_the_actor() {
    let mut nodes = Nodes::new(3);
    let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
    let actor = actor_of(creator);
    let checkpoints = Some(Checkpoints { calls: 10, interval_ms: 0 });
    let spec = spec(actor, "", 9.0, -1, checkpoints);
    let object = nodes.calls_with_a_value(watcher, creator).0;
    nodes.death_is_heard(&[0, 2], 1, 0, 90);
    for incarnation in [1, 0] {
        let call =
            LoggedCall { index: 1, frame: constructor(actor), contains: vec![object, object] };
        let known = KnownActor {
            spec: (*spec).clone(),
            job: JobId::new(number(1), 1),
            incarnation,
            moved: 0,
            begun: true,
            worker: None,
            holds_arguments: false,
            replay: Some(Box::new(Replay { checkpoint: None, calls: vec![call] })),
        };
        let message = Box::new(Peer::ActorKnown(Box::new(known)));
        nodes.shells[0].hears(Event::Peer { from: number(2), cover: 0, message });
    }
    nodes.is_settled(&[0, 2], 1, 0, 90);
    nodes.says(0, watcher, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
    nodes.pump();
    assert!(nodes.shells[0].node.objects.knows(object), "the log names it");
    nodes.says(0, watcher, ToNode::ActorKill { actor, no_restart: true, of: None });
    nodes.pump();
    assert!(!nodes.shells[0].node.objects.knows(object));
}

/// An actor with checkpoints that runs at its home, node 1. What it logs is at the keeper before its reply may go.
struct AtHome {
    nodes: Nodes,
    actor: ActorId,
    worker: ProcessId,
    keeper: usize,
}

impl AtHome {
    fn new() -> Self {
        let mut nodes = Nodes::new(3);
        let creator = nodes.shells[1].driver();
        let actor = actor_of(creator);
        let spec = spec(actor, "", 2.0, -1, Some(Checkpoints { calls: 10, interval_ms: 0 }));
        nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
        let worker = nodes.forks(1);
        nodes.says(1, worker, ToNode::ActorStarted { actor, incarnation: 0, result: Ok(()) });
        let keeps = |at: &usize| nodes.shells[*at].node.keeps_actor(actor);
        let keepers: Vec<usize> = [0, 2].into_iter().filter(keeps).collect();
        let [keeper] = keepers[..] else { panic!("{keepers:?} keep it") };
        Self { nodes, actor, worker, keeper }
    }

    /// Up to which call replies may go, as far as its worker was told anew.
    fn logs(&mut self, index: u64) -> Option<u64> {
        let call = Box::new(LoggedCall { index, frame: constructor(self.actor), contains: vec![] });
        let logged = ToNode::CallLogged { actor: self.actor, incarnation: 0, call };
        self.nodes.says(1, self.worker, logged);
        self.acknowledged()
    }

    fn acknowledged(&mut self) -> Option<u64> {
        let told = std::iter::from_fn(|| {
            self.nodes.shells[1].told(self.worker, |message| match message {
                ToClient::CallsLogged { upto } => Some(*upto),
                _ => None,
            })
        });
        told.last()
    }

    /// How many calls the next process at that node is to replay, of an actor that node 1 is in charge of no more.
    fn replayed(&mut self, at: usize) -> Option<usize> {
        let next = self.nodes.forks(at);
        self.nodes.shells[at].told(next, |message| match message {
            ToClient::RunActor { replay: Some(replay), .. } => Some(replay.calls.len()),
            _ => None,
        })
    }
}

#[test]
fn the_log_of_an_actor_that_runs_at_its_home_is_at_its_keeper() {
    let mut at_home = AtHome::new();
    assert_eq!(at_home.logs(1), Some(1));
    assert_eq!(at_home.logs(2), Some(2));
    at_home.nodes.stuck = Some(at_home.keeper);
    assert_eq!(at_home.logs(3), None, "the keeper did not get it");
    at_home.nodes.stuck = None;
    at_home.nodes.death_is_heard(&[0, 2], 1, 0, 90);
    at_home.nodes.is_settled(&[0, 2], 1, 0, 90);
    assert_eq!(at_home.replayed(2), Some(2));
}

#[test]
fn when_the_keeper_dies_the_next_one_has_the_log() {
    for hears in [true, false] {
        let mut at_home = AtHome::new();
        assert_eq!(at_home.logs(1), Some(1));
        let (keeper, next) = (at_home.keeper, 2 - at_home.keeper);
        at_home.nodes.stuck = Some(keeper);
        assert_eq!(at_home.logs(2), None);
        at_home.nodes.stuck = Some(next).filter(|_| !hears);
        at_home.nodes.death_is_heard(&[1, next], keeper, 1, 90);
        assert_eq!(at_home.acknowledged(), Some(2).filter(|_| hears));
        let log = at_home.nodes.shells[next].node.log_kept(at_home.actor);
        assert_eq!(log.map(|log| log.last()), Some(2).filter(|_| hears));
    }
}

/// The keeper was let go before the next one had the log: a home that died in between left the actor to nobody.
#[test]
fn who_kept_it_before_keeps_it_until_the_next_one_has_it() {
    for arrives in [true, false] {
        let mut at_home = AtHome::new();
        assert_eq!(at_home.logs(1), Some(1));
        let (keeper, next) = (at_home.keeper, 2 - at_home.keeper);
        at_home.nodes.stuck = Some(next).filter(|_| !arrives);
        at_home.nodes.tells_row(&[0, 1, 2], keeper, NodeState::Draining);
        let keeps = |it: &AtHome, at: usize| it.nodes.shells[at].node.keeps_actor(it.actor);
        assert_eq!(keeps(&at_home, keeper), !arrives);
        assert_eq!(keeps(&at_home, next), arrives);
        assert_eq!(at_home.logs(2), Some(2).filter(|_| arrives), "no log is older than a reply");
        at_home.nodes.stuck = None;
        at_home.nodes.death_is_heard(&[0, 2], 1, next, 90);
        at_home.nodes.is_settled(&[0, 2], 1, next, 90);
        assert_eq!(at_home.replayed(next), Some(if arrives { 2 } else { 1 }));
    }
}

/// The same of an actor without checkpoints, whose keeper confirms nothing else.
#[test]
fn an_actor_without_a_log_is_kept_until_the_next_keeper_has_it() {
    for arrives in [true, false] {
        let mut nodes = Nodes::new(3);
        let (watcher, creator) = (nodes.shells[0].driver(), nodes.shells[1].driver());
        let actor = actor_of(creator);
        let spec = spec(actor, "", 2.0, -1, None);
        nodes.says(1, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
        let worker = nodes.forks(1);
        nodes.says(1, worker, ToNode::ActorStarted { actor, incarnation: 0, result: Ok(()) });
        let keeps = |nodes: &Nodes, at: usize| nodes.shells[at].node.keeps_actor(actor);
        let keeper = if keeps(&nodes, 0) { 0 } else { 2 };
        let next = 2 - keeper;
        nodes.stuck = Some(next).filter(|_| !arrives);
        nodes.tells_row(&[0, 1, 2], keeper, NodeState::Draining);
        assert_eq!((keeps(&nodes, keeper), keeps(&nodes, next)), (!arrives, arrives));
        nodes.stuck = None;
        nodes.death_is_heard(&[0, 2], 1, next, 90);
        nodes.is_settled(&[0, 2], 1, next, 90);
        let again = nodes.forks(next);
        nodes.says(next, again, ToNode::ActorStarted { actor, incarnation: 1, result: Ok(()) });
        nodes.says(0, watcher, ToNode::ActorWatch { actor });
        let alive = ActorState::Alive { incarnation: 1, worker: again, logs: false };
        assert_eq!(nodes.state_told(watcher), Some(alive));
    }
}

#[test]
fn replies_wait_for_nobody_where_no_other_node_lives() {
    let mut at_home = AtHome::new();
    at_home.nodes.stuck = Some(at_home.keeper);
    assert_eq!(at_home.logs(1), None);
    let (keeper, next) = (at_home.keeper, 2 - at_home.keeper);
    at_home.nodes.death_is_heard(&[1, keeper], next, 1, 90);
    assert_eq!(at_home.acknowledged(), None);
    at_home.nodes.death_is_heard(&[1], keeper, 1, 91);
    assert_eq!(at_home.acknowledged(), Some(1));
    assert_eq!(at_home.logs(2), Some(2));
}

/// As after a time in which nothing ran there: others went on without it, and it has not heard so yet. What it logs is not in the actor that goes on.
#[test]
fn a_home_that_is_dead_to_others_acknowledges_no_more_calls() {
    let mut at_home = AtHome::new();
    assert_eq!(at_home.logs(1), Some(1));
    at_home.nodes.death_is_heard(&[0, 2], 1, 0, 90);
    assert_eq!(at_home.logs(2), None);
    at_home.nodes.is_settled(&[0, 2], 1, 0, 90);
    assert_eq!(at_home.logs(3), None);
    assert_eq!(at_home.replayed(2), Some(1));
}

/// Found by a seed. A node that has a number, and has not said yet where it is, cannot be told what the dead head knew.
#[test]
fn the_heir_of_a_dead_head_has_said_where_it_is() {
    for placed in [vec![2, 3], vec![3], vec![]] {
        let nodes = (0..4).map(|at| {
            let entry = node_entry(at, NodeState::Alive);
            let says = at == 0 || placed.contains(&at);
            NodeEntry { address: if says { entry.address } else { String::new() }, ..entry }
        });
        let rows = Rows { nodes: nodes.collect(), ..Rows::default() };
        let mut head = shell(4);
        head.node.recall(rows, &mut head.effects);
        let written = head.effects.iter().find_map(|effect| match effect {
            Effect::Save { value, .. } => NodeEntry::of_value(value).ok(),
            _ => None,
        });
        let Some(NodeEntry { node, state: NodeState::Dead { heir: Some(heir), .. }, .. }) = written
        else {
            panic!("the head before it is dead: {written:?}");
        };
        assert_eq!(node, number(0));
        let may = if placed.is_empty() { vec![4] } else { placed };
        assert!(may.iter().any(|at| number(*at) == heir), "{heir}, not one of {may:?}");
    }
}
