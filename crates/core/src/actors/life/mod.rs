//! Actor table: the life of every actor of the node, from its creation to its obituary.
//!
//! ```text
//!            created         resources, worker       constructor returned
//!  (nothing) ------> Placing ------------> Starting ---------------------> Alive
//!                      ^  |                   |  \ constructor raised         |
//!                      |  | killed            |   +------------------> Dead   |
//!                      |  +-----------------> Dead <--- killed, left, out of  |
//!                      |                       ^        scope, restarts used  |
//!                      +---- worker died, restarts left ----------------------+
//! ```
//!
//! Watchers see `Pending` (first start), `Alive`, `Restarting` (from the death of a worker until the next
//! one is alive) and `Dead`. An actor that leaves, or that nobody can reach, finishes what lies in
//! its rings first, so its death is told when its worker is gone; a killed one is dead at once.
//!
//! Actors that were lost with an earlier daemon of the same control store are dead from the start; their names
//! are remembered until somebody takes them, so that who asks for one hears why it is dead.
//!
//! Names are unique per namespace among actors that are neither dead nor on their way out. What is not known is answered
//! only after a sweep of all sockets (REF-5): its creation may lie unread in another one.
//!
//! # Invariants
//! - ACT-1: a worker runs at most one actor, and that actor says so.
//! - ACT-2: every name belongs to an actor that carries it, is not dead and does not leave.
//! - ACT-3: a dead actor has no worker, no claim for one, and holds no arguments.
//! - ACT-4: an actor restarts at most `max_restarts` times; its incarnation counts them.

mod event;
mod row;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::limits::ACTORS_REMEMBERED_MAX;
use hoplo_base::{ActorId, Instant, JobId, ProcessId, ResourceSet};
use hoplo_wire::node::{
    ActorCreated, ActorFound, ActorSpec, ActorState, Obituary, RuntimeEnv, Shape,
};
use hoplo_wire::{Failure, FailureKind};

pub use event::{Effect, Event, Manner};
pub use row::{ActorRow, Former};

#[derive(Debug)]
struct Actor {
    spec: Box<ActorSpec>,
    /// `None`: it is of an earlier daemon.
    creator: Option<ProcessId>,
    job: JobId,
    incarnation: u32,
    stage: Stage,
    /// Why it will be dead once its worker is gone.
    cause: Option<Failure>,
    /// Why its last worker ended; absent before the first restart.
    restarts_because: Option<String>,
    watchers: BTreeSet<ProcessId>,
    /// The node holds the constructor's arguments.
    holds_arguments: bool,
    /// The last handle is gone.
    unreachable: bool,
    /// It died with an earlier daemon.
    lost: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Placing { reason: String, infeasible: bool },
    Starting { worker: ProcessId },
    Alive { worker: ProcessId },
    Dead { failure: Failure },
}

#[derive(Debug, Default)]
pub struct ActorTable {
    actors: BTreeMap<ActorId, Actor>,
    by_worker: BTreeMap<ProcessId, ActorId>,
    names: BTreeMap<(String, String), ActorId>,
    /// Names of lost actors that nobody took since.
    lost_names: BTreeMap<(String, String), ActorId>,
    /// Dead and unreachable, oldest first.
    past: VecDeque<ActorId>,
}

impl ActorTable {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn handle(&mut self, _now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Created { creator, job, request, spec, get_if_exists } => {
                self.on_created(creator, job, request, spec, get_if_exists, effects);
            }
            Event::LookedUp { from, request, namespace, name, swept } => {
                self.on_looked_up(from, request, (namespace, name), swept, effects);
            }
            Event::Watched { from, actor, swept } => self.on_watched(from, actor, swept, effects),
            Event::PlacementStuck { actor, reason, infeasible } => {
                self.on_placement_stuck(actor, reason, infeasible, effects);
            }
            Event::PlacementFailed { actor, incarnation, failure } => {
                self.on_placement_failed(actor, incarnation, &failure, effects);
            }
            Event::Placed { actor, incarnation, worker, gpus } => {
                self.on_placed(actor, incarnation, worker, gpus, effects);
            }
            Event::Started { worker, actor, incarnation, result } => {
                self.on_started(worker, actor, incarnation, result, effects);
            }
            Event::Left { worker, actor } => {
                if self.by_worker.get(&worker) == Some(&actor) {
                    let text = format!("{} left by exit_actor()", self.title(actor));
                    self.set_cause(actor, died(text));
                }
            }
            Event::Killed { actor, no_restart } => self.on_killed(actor, no_restart, effects),
            Event::Unreachable { actor } => self.on_unreachable(actor, effects),
            Event::ProcessGone { process, obituary } => {
                self.on_process_gone(process, &obituary, effects);
            }
            Event::JobEnded { job } => self.on_job_ended(job, effects),
        }
    }

    /// At the start: what an earlier daemon left. Of many the last ones are kept.
    pub fn recall(&mut self, former: Former, effects: &mut Vec<Effect>) {
        let Former { actor: id, class_name, name, namespace, job, .. } = former;
        let spec = ActorSpec {
            actor: id,
            class_name,
            name,
            namespace,
            detached: former.detached,
            shape: Shape { resources: ResourceSet::default(), env: RuntimeEnv::default() },
            held: ResourceSet::default(),
            max_restarts: -1,
            frame: Vec::new(),
            contains: Vec::new(),
            handle: former.handle,
        };
        if former.lost
            && let Some(name) = spec.name()
        {
            self.lost_names.insert((spec.namespace.clone(), name.to_string()), id);
        }
        let actor = Actor {
            spec: Box::new(spec),
            creator: None,
            job,
            incarnation: former.incarnation,
            stage: Stage::Dead { failure: former.failure },
            cause: None,
            restarts_because: None,
            watchers: BTreeSet::new(),
            holds_arguments: false,
            unreachable: true,
            lost: former.lost,
        };
        self.actors.insert(id, actor);
        self.remember(id, effects);
    }

    pub fn actor_of(&self, worker: ProcessId) -> Option<ActorId> {
        self.by_worker.get(&worker).copied()
    }

    pub fn row(&self, id: ActorId) -> Option<ActorRow> {
        let actor = self.actors.get(&id)?;
        Some(ActorRow {
            actor: id,
            class_name: actor.spec.class_name.clone(),
            name: actor.spec.name.clone(),
            namespace: actor.spec.namespace.clone(),
            job: actor.job,
            detached: actor.spec.detached,
            incarnation: actor.incarnation,
            state: actor.state(),
            worker: actor.worker(),
            handle: actor.spec.handle.clone(),
            lost: actor.lost,
        })
    }

    pub fn rows(&self) -> impl Iterator<Item = ActorRow> {
        self.actors.keys().filter_map(|id| self.row(*id))
    }

    /// What it is, and what it waits for, for people.
    pub fn explain(&self, id: ActorId) -> Option<String> {
        let actor = self.actors.get(&id)?;
        let title = self.title(id);
        let again = match &actor.restarts_because {
            Some(cause) => format!(" (restart {}, because {cause})", actor.incarnation),
            None => String::new(),
        };
        Some(match &actor.stage {
            Stage::Placing { reason, .. } => format!("{title} is pending: {reason}{again}"),
            Stage::Starting { worker } => {
                format!("{title} is pending: its constructor runs in {worker}{again}")
            }
            Stage::Alive { worker } => format!("{title} is alive in {worker}{again}"),
            Stage::Dead { failure } if failure.kind == FailureKind::User => {
                format!("{title} is dead: its constructor raised")
            }
            Stage::Dead { failure } => format!("{title} is dead: {}", failure.text()),
        })
    }

    /// Asserts the invariants of the module's doc.
    pub fn check(&self) {
        for (worker, id) in &self.by_worker {
            assert_eq!(self.actors[id].worker(), Some(*worker), "ACT-1: {id}");
        }
        let running = self.actors.values().filter(|actor| actor.worker().is_some()).count();
        assert_eq!(running, self.by_worker.len(), "ACT-1");
        for ((namespace, name), id) in &self.names {
            let actor = &self.actors[id];
            assert!(!actor.is_dead() && actor.spec.name == *name, "ACT-2: {id}");
            assert!(actor.cause.is_none(), "ACT-2: {id}");
            assert_eq!(actor.spec.namespace, *namespace, "ACT-2: {id}");
        }
        for id in self.lost_names.values() {
            assert!(self.actors[id].is_dead() && self.actors[id].lost, "ACT-2: {id}");
        }
        for (id, actor) in &self.actors {
            assert!(!actor.is_dead() || !actor.holds_arguments, "ACT-3: {id}");
            let max = actor.spec.max_restarts;
            assert!(max < 0 || i64::from(actor.incarnation) <= i64::from(max), "ACT-4: {id}");
        }
    }

    fn on_created(
        &mut self,
        creator: ProcessId,
        job: JobId,
        request: u64,
        spec: Box<ActorSpec>,
        get_if_exists: bool,
        effects: &mut Vec<Effect>,
    ) {
        let id = spec.actor;
        let answer = |effects: &mut Vec<Effect>, result| {
            if request != 0 {
                effects.push(Effect::AnswerCreate { to: creator, request, result });
            }
        };
        let key = (spec.namespace.clone(), spec.name.clone());
        if let Some(existing) = self.names.get(&key) {
            let found = self.found(*existing);
            if get_if_exists {
                effects.push(Effect::Hold { object: existing.handle(), process: creator });
                answer(effects, Ok(ActorCreated::Existing(found)));
            } else {
                let text = format!(
                    "an actor named {:?} exists in namespace {:?}: take another name, \
                     get_if_exists=True, or hoplo.get_actor({:?})",
                    spec.name, spec.namespace, spec.name
                );
                answer(effects, Err(text));
            }
            return;
        }
        if self.actors.contains_key(&id) {
            answer(effects, Err(format!("{id} exists already")));
            return;
        }
        if spec.name().is_some() {
            self.lost_names.remove(&key);
            self.names.insert(key, id);
        }
        effects.push(Effect::Hold { object: id.handle(), process: creator });
        let mut held = spec.contains.clone();
        if spec.detached {
            held.push(id.handle());
        }
        if !held.is_empty() {
            effects.push(Effect::NodeHold { objects: held });
        }
        let actor = Actor {
            creator: Some(creator),
            job,
            incarnation: 0,
            stage: Stage::placing(),
            cause: None,
            restarts_because: None,
            watchers: BTreeSet::new(),
            holds_arguments: true,
            unreachable: false,
            lost: false,
            spec,
        };
        effects.push(actor.place());
        self.actors.insert(id, actor);
        effects.push(Effect::Save { actor: id });
        answer(effects, Ok(ActorCreated::New));
    }

    fn on_looked_up(
        &mut self,
        from: ProcessId,
        request: u64,
        key: (String, String),
        swept: bool,
        effects: &mut Vec<Effect>,
    ) {
        let named = self.names.get(&key).or_else(|| self.lost_names.get(&key).filter(|_| swept));
        let found = named.map(|id| self.found(*id));
        if found.is_none() && !swept {
            let (namespace, name) = key;
            let again = Event::LookedUp { from, request, namespace, name, swept: true };
            effects.push(Effect::AfterSweep(Box::new(again)));
            return;
        }
        if let Some(found) = found.as_ref().filter(|found| found.dead.is_none()) {
            effects.push(Effect::Hold { object: found.actor.handle(), process: from });
        }
        effects.push(Effect::AnswerLookup { to: from, request, found });
    }

    fn on_watched(&mut self, from: ProcessId, id: ActorId, swept: bool, effects: &mut Vec<Effect>) {
        let state = match self.actors.get_mut(&id) {
            Some(actor) => {
                actor.watchers.insert(from);
                actor.state()
            }
            None if !swept => {
                let again = Event::Watched { from, actor: id, swept: true };
                effects.push(Effect::AfterSweep(Box::new(again)));
                return;
            }
            None => ActorState::Dead { failure: died(format!("{id} is not known on this node")) },
        };
        effects.push(Effect::Tell { to: from, actor: id, state });
    }

    fn on_placement_stuck(
        &mut self,
        id: ActorId,
        stuck: Option<String>,
        now_infeasible: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if let Stage::Placing { reason, infeasible } = &mut actor.stage {
            *reason = stuck.unwrap_or_else(|| WAITS_FOR_WORKER.to_string());
            *infeasible = now_infeasible;
            self.changed(id, effects);
        }
    }

    fn on_placement_failed(
        &mut self,
        id: ActorId,
        incarnation: u32,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.get(&id) else { return };
        if actor.incarnation == incarnation && matches!(actor.stage, Stage::Placing { .. }) {
            let text = format!("{} could not start: {}", self.title(id), failure.text());
            self.bury(id, Failure::new(failure.kind, text), effects);
        }
    }

    fn on_placed(
        &mut self,
        id: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
        effects: &mut Vec<Effect>,
    ) {
        let actor = self.actors.get_mut(&id);
        let waits = actor.filter(|actor| {
            actor.incarnation == incarnation && matches!(actor.stage, Stage::Placing { .. })
        });
        // It was killed while its worker was on the way: the worker is of no use to anybody else.
        let Some(actor) = waits else {
            let reason = "its actor was killed before it started".to_string();
            effects.push(Effect::Stop { worker, manner: Manner::Finish, reason });
            return;
        };
        actor.stage = Stage::Starting { worker };
        let spec = actor.spec.clone();
        self.by_worker.insert(worker, id);
        effects.push(Effect::Run { actor: id, incarnation, worker, gpus, spec });
        self.changed(id, effects);
    }

    fn on_started(
        &mut self,
        worker: ProcessId,
        id: ActorId,
        incarnation: u32,
        result: Result<(), Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if actor.incarnation != incarnation || actor.stage != (Stage::Starting { worker }) {
            return;
        }
        match result {
            Ok(()) => {
                actor.stage = Stage::Alive { worker };
                effects.push(Effect::FinishStart { worker });
                if actor.restarts_left() == 0 {
                    self.release_arguments(id, effects);
                }
                self.changed(id, effects);
            }
            Err(failure) => {
                let reason = "its constructor raised".to_string();
                effects.push(Effect::Stop { worker, manner: Manner::Finish, reason });
                self.bury(id, failure, effects);
            }
        }
    }

    fn on_killed(&mut self, id: ActorId, no_restart: bool, effects: &mut Vec<Effect>) {
        let text = format!("{} was killed by hoplo.kill()", self.title(id));
        let Some(actor) = self.actors.get(&id) else { return };
        if let Some(worker) = actor.worker() {
            let reason = "killed by hoplo.kill()".to_string();
            effects.push(Effect::Stop { worker, manner: Manner::Kill, reason });
        }
        if no_restart && !actor.is_dead() {
            self.bury(id, died(text), effects);
        }
    }

    fn on_unreachable(&mut self, id: ActorId, effects: &mut Vec<Effect>) {
        let text = format!("{} went out of scope: no handle of it was left", self.title(id));
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let known = std::mem::replace(&mut actor.unreachable, true);
        if actor.is_dead() {
            if !known {
                self.remember(id, effects);
            }
        } else if let Some(worker) = actor.worker() {
            let reason = "no handle of it is left".to_string();
            effects.push(Effect::Stop { worker, manner: Manner::Finish, reason });
            self.set_cause(id, died(text));
        } else {
            self.bury(id, died(text), effects);
        }
    }

    fn on_process_gone(
        &mut self,
        process: ProcessId,
        obituary: &Obituary,
        effects: &mut Vec<Effect>,
    ) {
        for actor in self.actors.values_mut() {
            actor.watchers.remove(&process);
        }
        let Some(id) = self.by_worker.remove(&process) else { return };
        let title = self.title(id);
        let actor = self.actors.get_mut(&id).expect("ACT-1");
        actor.stage = Stage::placing();
        if let Some(failure) = actor.cause.take() {
            self.bury(id, failure, effects);
        } else if actor.restarts_left() == 0 {
            self.bury(id, died(format!("{title} died: {}", last_words(obituary))), effects);
        } else {
            actor.incarnation += 1;
            actor.restarts_because = Some(obituary.headline());
            effects.push(actor.place());
            self.changed(id, effects);
        }
    }

    /// Detached actors stay, and what their processes created.
    fn on_job_ended(&mut self, job: JobId, effects: &mut Vec<Effect>) {
        let stays = |actor: &Actor| {
            let created_by = actor.creator.and_then(|creator| self.by_worker.get(&creator));
            let created_by = created_by.map(|id| &self.actors[id]);
            actor.spec.detached || created_by.is_some_and(|creator| creator.spec.detached)
        };
        let ends = self.actors.iter().filter(|(_, a)| a.job == job && !a.is_dead() && !stays(a));
        let ends: Vec<ActorId> = ends.map(|(id, _)| *id).collect();
        for id in ends {
            if let Some(worker) = self.actors[&id].worker() {
                let reason = "its job ended".to_string();
                effects.push(Effect::Stop { worker, manner: Manner::Exit, reason });
            }
            let text = format!("{} ended with its job", self.title(id));
            self.bury(id, died(text), effects);
        }
    }

    /// It will be dead for this reason once its worker is gone; the first reason counts.
    fn set_cause(&mut self, id: ActorId, failure: Failure) {
        let actor = self.actors.get_mut(&id).expect("the caller looked it up");
        actor.cause.get_or_insert(failure);
        self.free_name(id);
    }

    /// Whoever asks for the name from now on does not find this actor, and may take the name.
    fn free_name(&mut self, id: ActorId) {
        let spec = &self.actors[&id].spec;
        let key = (spec.namespace.clone(), spec.name.clone());
        if self.names.get(&key) == Some(&id) {
            self.names.remove(&key);
        }
    }

    /// To `Dead`, whatever it was.
    fn bury(&mut self, id: ActorId, failure: Failure, effects: &mut Vec<Effect>) {
        self.release_arguments(id, effects);
        let actor = self.actors.get_mut(&id).expect("the caller looked it up");
        assert!(!actor.is_dead(), "{id} dies twice");
        match actor.worker() {
            Some(worker) => drop(self.by_worker.remove(&worker)),
            None => effects.push(Effect::Unplace { actor: id }),
        }
        actor.stage = Stage::Dead { failure };
        actor.spec.frame = Vec::new();
        let (detached, unreachable) = (actor.spec.detached, actor.unreachable);
        self.free_name(id);
        if detached {
            effects.push(Effect::NodeRelease { objects: vec![id.handle()] });
        }
        if unreachable {
            self.remember(id, effects);
        }
        self.changed(id, effects);
    }

    fn release_arguments(&mut self, id: ActorId, effects: &mut Vec<Effect>) {
        let actor = self.actors.get_mut(&id).expect("the caller looked it up");
        let held = std::mem::take(&mut actor.holds_arguments);
        if held && !actor.spec.contains.is_empty() {
            effects.push(Effect::NodeRelease { objects: actor.spec.contains.clone() });
        }
    }

    fn changed(&self, id: ActorId, effects: &mut Vec<Effect>) {
        let actor = &self.actors[&id];
        let state = actor.state();
        for watcher in &actor.watchers {
            effects.push(Effect::Tell { to: *watcher, actor: id, state: state.clone() });
        }
        effects.push(Effect::Save { actor: id });
    }

    /// Dead and unreachable: kept for listings, for a while.
    fn remember(&mut self, id: ActorId, effects: &mut Vec<Effect>) {
        self.past.push_back(id);
        if self.past.len() > ACTORS_REMEMBERED_MAX
            && let Some(oldest) = self.past.pop_front()
        {
            self.actors.remove(&oldest);
            self.lost_names.retain(|_, id| *id != oldest);
            effects.push(Effect::Forget { actor: oldest });
        }
    }

    fn found(&self, id: ActorId) -> ActorFound {
        let actor = &self.actors[&id];
        let dead = match &actor.stage {
            Stage::Dead { failure } => Some(failure.clone()),
            Stage::Placing { .. } | Stage::Starting { .. } | Stage::Alive { .. } => None,
        };
        ActorFound { actor: id, handle: actor.spec.handle.clone(), dead }
    }

    fn title(&self, id: ActorId) -> String {
        let Some(actor) = self.actors.get(&id) else { return id.to_string() };
        match actor.spec.name() {
            Some(name) => format!("{} {name:?} ({id})", actor.spec.class_name),
            None => format!("{} ({id})", actor.spec.class_name),
        }
    }
}

impl Actor {
    fn place(&self) -> Effect {
        Effect::Place {
            actor: self.spec.actor,
            incarnation: self.incarnation,
            job: self.job,
            shape: self.spec.shape.clone(),
            held: self.spec.held.clone(),
        }
    }

    fn restarts_left(&self) -> u32 {
        match u32::try_from(self.spec.max_restarts) {
            Ok(max) => max.saturating_sub(self.incarnation),
            Err(_) => u32::MAX,
        }
    }

    fn worker(&self) -> Option<ProcessId> {
        match self.stage {
            Stage::Starting { worker } | Stage::Alive { worker } => Some(worker),
            Stage::Placing { .. } | Stage::Dead { .. } => None,
        }
    }

    fn is_dead(&self) -> bool {
        matches!(self.stage, Stage::Dead { .. })
    }

    /// As its watchers see it.
    fn state(&self) -> ActorState {
        let incarnation = self.incarnation;
        match (&self.stage, &self.restarts_because) {
            (Stage::Alive { worker }, _) => ActorState::Alive { incarnation, worker: *worker },
            (Stage::Dead { failure }, _) => ActorState::Dead { failure: failure.clone() },
            (Stage::Placing { .. } | Stage::Starting { .. }, Some(cause)) => {
                ActorState::Restarting { incarnation, cause: cause.clone() }
            }
            (Stage::Placing { reason, infeasible }, None) => {
                ActorState::Pending { reason: reason.clone(), infeasible: *infeasible }
            }
            (Stage::Starting { .. }, None) => {
                let reason = "its constructor runs".to_string();
                ActorState::Pending { reason, infeasible: false }
            }
        }
    }
}

impl Stage {
    fn placing() -> Self {
        Stage::Placing { reason: WAITS_FOR_WORKER.to_string(), infeasible: false }
    }
}

const WAITS_FOR_WORKER: &str = "waits for a worker";

fn died(text: String) -> Failure {
    Failure::new(FailureKind::ActorDied, text)
}

/// The headline of an obituary and the last lines.
fn last_words(obituary: &Obituary) -> String {
    let mut text = obituary.headline();
    if !obituary.last_lines.is_empty() {
        text.push_str("\nthe last lines it printed:\n  ");
        text.push_str(&obituary.last_lines.join("\n  "));
    }
    text
}
