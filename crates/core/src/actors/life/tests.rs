use super::*;
use hoplo_base::{NodeNumber, TaskId};
use hoplo_wire::node::{ActorCreated, ActorState, DeathCause, Obituary};

const JOB: JobId = JobId(1);

fn process(count: u32) -> ProcessId {
    ProcessId::new(NodeNumber::alone(1), count, count as u16)
}

fn actor(seq: u64) -> ActorId {
    ActorId(TaskId { owner: process(1), seq })
}

fn spec(seq: u64, name: &str, max_restarts: i32) -> Box<ActorSpec> {
    Box::new(ActorSpec {
        actor: actor(seq),
        class_name: "Counter".to_string(),
        name: name.to_string(),
        namespace: "n".to_string(),
        detached: false,
        shape: Shape::default(),
        held: ResourceSet::new(),
        max_restarts,
        checkpoints: None,
        frame: vec![1],
        contains: vec![actor(99).handle()],
        handle: vec![7],
    })
}

fn obituary() -> Obituary {
    let last_lines = vec!["bye".to_string()];
    Obituary { pid: 12, cause: DeathCause::Signaled { signal: 9 }, last_lines }
}

struct Table(ActorTable);

impl Table {
    fn new() -> Self {
        Self(ActorTable::new())
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.handle(Instant::ZERO, event, &mut effects);
        self.0.check();
        effects.retain(|effect| !matches!(effect, Effect::Save { .. }));
        effects
    }

    fn create(&mut self, spec: Box<ActorSpec>) -> Vec<Effect> {
        let (creator, job, request) = (process(1), JOB, 5);
        self.handle(Event::Created { creator, job, request, spec, get_if_exists: false })
    }

    fn place(&mut self, seq: u64, incarnation: u32, worker: u32) -> Vec<Effect> {
        let (actor, worker) = (actor(seq), process(worker));
        self.handle(Event::Placed { actor, incarnation, worker, gpus: vec![] })
    }

    fn start(&mut self, seq: u64, incarnation: u32, worker: u32) -> Vec<Effect> {
        let (actor, worker, result) = (actor(seq), process(worker), Ok(()));
        self.handle(Event::Started { worker, actor, incarnation, result })
    }

    fn gone(&mut self, count: u32) -> Vec<Effect> {
        self.handle(Event::ProcessGone { process: process(count), obituary: obituary() })
    }

    fn alive(max_restarts: i32) -> Self {
        let mut table = Self::new();
        table.create(spec(1, "", max_restarts));
        table.place(1, 0, 10);
        table.start(1, 0, 10);
        table.handle(Event::Watched { from: process(2), actor: actor(1), swept: false });
        table
    }
}

fn told(effects: &[Effect]) -> Vec<ActorState> {
    let state = |effect: &Effect| match effect {
        Effect::Tell { state, .. } => Some(state.clone()),
        _ => None,
    };
    effects.iter().filter_map(state).collect()
}

fn dead_text(effects: &[Effect]) -> String {
    match &told(effects)[..] {
        [ActorState::Dead { failure }] => failure.text(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_taken_name_is_refused_with_the_remedy_or_found() {
    let mut table = Table::new();
    table.create(spec(1, "eve", 0));
    let effects = table.create(spec(2, "eve", 0));
    let [Effect::AnswerCreate { result: Err(text), .. }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert!(text.contains("get_if_exists=True"), "{text}");
    let (creator, job, request) = (process(3), JOB, 6);
    let found = ActorFound { actor: actor(1), handle: vec![7], dead: None };
    assert_eq!(
        table.handle(Event::Created {
            creator,
            job,
            request,
            spec: spec(3, "eve", 0),
            get_if_exists: true
        }),
        [
            Effect::Hold { object: actor(1).handle(), process: creator },
            Effect::AnswerCreate {
                to: creator,
                request,
                result: Ok(ActorCreated::Existing(found.clone()))
            }
        ]
    );
    // The name is free once its actor is dead.
    table.handle(killed(true));
    assert!(matches!(table.create(spec(4, "eve", 0))[..], [.., Effect::AnswerCreate { .. }]));
}

#[test]
fn a_name_led_to_an_actor_that_was_on_its_way_out() {
    let mut table = Table::new();
    table.create(spec(1, "eve", 0));
    table.place(1, 0, 10);
    table.start(1, 0, 10);
    table.handle(Event::Unreachable { actor: actor(1) });
    let new = |effects: Vec<Effect>| {
        let answered = |effect: &Effect| match effect {
            Effect::AnswerCreate { result, .. } => Some(result.clone()),
            _ => None,
        };
        effects.iter().find_map(answered)
    };
    assert_eq!(new(table.create(spec(2, "eve", 0))), Some(Ok(ActorCreated::New)));
    // Its end does not take the name from the one that has it now.
    table.gone(10);
    assert!(matches!(new(table.create(spec(3, "eve", 0))), Some(Err(_))));
}

#[test]
fn what_is_unknown_is_looked_up_again_after_a_sweep() {
    let mut table = Table::new();
    let look = |swept| Event::LookedUp {
        from: process(2),
        request: 1,
        namespace: "n".to_string(),
        name: "eve".to_string(),
        swept,
    };
    assert_eq!(table.handle(look(false)), [Effect::AfterSweep(Box::new(look(true)))]);
    let none = Effect::AnswerLookup { to: process(2), request: 1, found: None };
    assert_eq!(table.handle(look(true)), [none]);
    let watch = |swept| Event::Watched { from: process(2), actor: actor(1), swept };
    assert_eq!(table.handle(watch(false)), [Effect::AfterSweep(Box::new(watch(true)))]);
    assert!(dead_text(&table.handle(watch(true))).contains("not known"));
    table.create(spec(1, "eve", 0));
    let effects = table.handle(look(false));
    let found = Some(ActorFound { actor: actor(1), handle: vec![7], dead: None });
    assert_eq!(
        effects,
        [
            Effect::Hold { object: actor(1).handle(), process: process(2) },
            Effect::AnswerLookup { to: process(2), request: 1, found }
        ]
    );
}

#[test]
fn a_constructor_that_raises_is_the_end() {
    let mut table = Table::new();
    table.create(spec(1, "", 3));
    table.place(1, 0, 10);
    table.handle(Event::Watched { from: process(2), actor: actor(1), swept: false });
    let failure = Failure::user((*b"boom").into());
    let result = Err(failure.clone());
    let (worker, actor) = (process(10), actor(1));
    let effects = table.handle(Event::Started { worker, actor, incarnation: 0, result });
    assert_eq!(told(&effects), [ActorState::Dead { failure }]);
    assert!(effects.contains(&Effect::NodeRelease { objects: spec(1, "", 3).contains }));
    assert_eq!(table.gone(10), []);
}

/// Its log is full: no other process could be it either.
#[test]
fn an_actor_whose_worker_gives_up_is_not_started_again() {
    let mut table = Table::alive(1);
    let failure = Failure::new(FailureKind::ActorDied, "no checkpoint");
    let (worker, actor) = (process(11), actor(1));
    assert_eq!(table.handle(Event::Failed { worker, actor, failure: failure.clone() }), []);
    table.handle(Event::Failed { worker: process(10), actor, failure });
    assert!(dead_text(&table.gone(10)).contains("no checkpoint"));
}

#[test]
fn a_dead_worker_restarts_its_actor_as_often_as_allowed() {
    let mut table = Table::alive(1);
    let effects = table.gone(10);
    let cause = "pid 12 was killed by SIGKILL (9)".to_string();
    assert_eq!(told(&effects), [ActorState::Restarting { incarnation: 1, cause }]);
    assert!(matches!(effects[0], Effect::Place { incarnation: 1, .. }));
    // What the first incarnation's worker still says is too late.
    assert_eq!(table.start(1, 0, 10), []);
    table.place(1, 1, 11);
    let effects = table.start(1, 1, 11);
    assert_eq!(
        told(&effects),
        [ActorState::Alive { incarnation: 1, worker: process(11), logs: false }]
    );
    assert!(effects.contains(&Effect::NodeRelease { objects: spec(1, "", 1).contains }));
    let text = dead_text(&table.gone(11));
    assert!(text.contains("SIGKILL") && text.contains("bye"), "{text}");
}

/// Of actor 1.
fn killed(no_restart: bool) -> Event {
    Event::Killed { actor: actor(1), no_restart, of: None, swept: false }
}

/// Its creator gave the handle away: who has it may be heard before the creator is.
#[test]
fn a_kill_that_came_before_its_actor_was_known_is_done_after_a_sweep() {
    let mut table = Table::new();
    let effects = table.handle(killed(true));
    let [Effect::AfterSweep(again)] = &effects[..] else { panic!("{effects:?}") };
    let again = (**again).clone();
    table.create(spec(1, "", -1));
    assert!(table.handle(again.clone()).contains(&Effect::Unplace { actor: actor(1) }));
    assert_eq!(Table::new().handle(again), [], "it is known to nobody");
}

#[test]
fn a_killed_actor_is_dead_at_once_and_one_that_may_restart_does() {
    let mut table = Table::alive(1);
    let effects = table.handle(killed(false));
    assert!(matches!(effects[..], [Effect::Stop { manner: Manner::Kill, .. }]));
    assert!(matches!(told(&table.gone(10))[..], [ActorState::Restarting { .. }]));
    let effects = table.handle(killed(true));
    assert!(effects.contains(&Effect::Unplace { actor: actor(1) }));
    assert!(dead_text(&effects).contains("hoplo.kill()"));
    // Its worker was on the way.
    assert!(matches!(table.place(1, 1, 11)[..], [Effect::Stop { .. }]));
    assert_eq!(table.handle(killed(true)), []);
}

/// Two may want that of a worker that hangs, or one may say it again to who has taken its home's place.
#[test]
fn a_kill_that_names_a_worker_ends_no_later_one() {
    let mut table = Table::alive(-1);
    let of_first =
        Event::Killed { actor: actor(1), no_restart: false, of: Some(process(10)), swept: false };
    assert!(matches!(table.handle(of_first.clone())[..], [Effect::Stop { .. }]));
    table.gone(10);
    table.place(1, 1, 11);
    assert_eq!(table.handle(of_first), []);
}

#[test]
fn one_that_leaves_or_that_nobody_reaches_is_dead_when_its_worker_is_gone() {
    let mut table = Table::alive(-1);
    assert_eq!(table.handle(Event::Left { worker: process(10), actor: actor(1) }), []);
    assert!(dead_text(&table.gone(10)).contains("exit_actor"));

    let mut table = Table::alive(-1);
    let effects = table.handle(Event::Unreachable { actor: actor(1) });
    assert!(matches!(effects[..], [Effect::Stop { manner: Manner::Finish, .. }]));
    assert!(dead_text(&table.gone(10)).contains("out of scope"));
}

#[test]
fn a_job_ends_without_its_detached_actors_and_what_they_made() {
    let mut table = Table::new();
    let mut detached = spec(1, "eve", 0);
    detached.detached = true;
    let handle = actor(1).handle();
    let mut held = detached.contains.clone();
    held.push(handle);
    assert!(table.create(detached).contains(&Effect::NodeHold { objects: held }));
    table.place(1, 0, 10);
    table.create(spec(2, "", 0));
    let creator = process(10); // The detached actor's worker.
    let child = spec(3, "", 0);
    let get_if_exists = false;
    table.handle(Event::Created { creator, job: JOB, request: 0, spec: child, get_if_exists });
    let effects = table.handle(Event::JobEnded { job: JOB });
    assert!(effects.contains(&Effect::Unplace { actor: actor(2) }));
    let state = |table: &Table, seq| table.0.row(actor(seq)).unwrap().state;
    assert!(matches!(state(&table, 1), ActorState::Pending { .. }));
    assert!(matches!(state(&table, 3), ActorState::Pending { .. }));
    let effects = table.handle(killed(true));
    assert!(effects.contains(&Effect::NodeRelease { objects: vec![handle] }));
}

#[test]
fn the_reason_of_a_stuck_placement_reaches_watchers_and_why() {
    let mut table = Table::new();
    table.create(spec(1, "", 0));
    table.handle(Event::Watched { from: process(2), actor: actor(1), swept: false });
    let reason = "needs GPU 1, node has 0".to_string();
    let stuck = Some(reason.clone());
    let effects =
        table.handle(Event::PlacementStuck { actor: actor(1), reason: stuck, infeasible: true });
    assert_eq!(told(&effects), [ActorState::Pending { reason, infeasible: true }]);
    assert!(table.0.explain(actor(1)).unwrap().to_string().contains("needs GPU 1"));
}

#[test]
fn an_actor_that_is_to_move_while_it_starts_for_the_last_time_keeps_its_arguments() {
    let mut table = Table::alive(1);
    table.gone(10);
    table.place(1, 1, 11);
    let node = process(11).node();
    let [Effect::Stop { worker, .. }] = table.handle(Event::NodeDrains { node })[..] else {
        panic!("it moves");
    };
    assert_eq!(worker, process(11));
    let released = Effect::NodeRelease { objects: spec(1, "", 1).contains };
    assert!(!table.start(1, 1, 11).contains(&released), "it starts again, with them");
    assert!(matches!(table.gone(11)[0], Effect::Place { incarnation: 2, .. }));
    table.place(1, 2, 12);
    assert!(table.start(1, 2, 12).contains(&released));
}

/// Its heir counted the moves as restarts (ACT-4). Its node had told of it, which does not count them; and nobody else, since it could not start again.
#[test]
fn an_actor_that_was_moved_and_used_its_restart_up_is_inherited_as_one_that_may_not_restart() {
    let mut table = Table::new();
    let known = hoplo_wire::peer::KnownActor {
        spec: *spec(1, "", 1),
        job: JOB,
        incarnation: 2,
        moved: 0,
        begun: true,
        worker: Some(process(10)),
        holds_arguments: false,
        replay: None,
    };
    let home_died = "its home died".to_string();
    table.handle(Event::Inherited { known: Box::new(known), home_died });
    table.start(1, 2, 10);
    table.handle(Event::Watched { from: process(2), actor: actor(1), swept: false });
    let states = told(&table.gone(10));
    assert!(matches!(&states[..], [ActorState::Dead { .. }]), "{states:?}");
}
