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
//! Names are unique per namespace among actors that are neither dead nor on their way out. What is not known is answered,
//! or killed, only after a sweep of all sockets (REF-5): its creation may lie unread in another one.
//!
//! An actor whose home died comes into the table of the heir as it was (`Inherited`): with its worker, if that runs elsewhere, or without one.
//!
//! # Invariants
//! - ACT-1: a worker runs at most one actor, and that actor says so.
//! - ACT-2: every name belongs to an actor that carries it, is not dead and does not leave.
//! - ACT-3: a dead actor has no worker, no claim for one, and holds no arguments.
//! - ACT-4: an actor restarts at most `max_restarts` times; its incarnation counts them, and its moves from nodes that were
//!   drained.

mod actor;
mod event;
mod inherited;
mod on_asked;
mod on_end;
mod on_placement;
mod row;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::{ActorId, Instant, JobId, ProcessId, ResourceSet};
use hoplo_wire::node::{ActorFound, ActorSpec, Shape};
use hoplo_wire::{Failure, FailureKind, Reason};

pub use event::{Effect, Event, Manner};
pub use inherited::Standing;
pub use on_asked::name_is_taken;
pub use row::{ActorRow, Former};

/// Namespace and name.
pub type Name = (String, String);

#[derive(Debug)]
struct Actor {
    spec: Box<ActorSpec>,
    /// `None`: it is of an earlier daemon.
    creator: Option<ProcessId>,
    job: JobId,
    incarnation: u32,
    /// Incarnations that cost no restart, since a node was drained.
    moved: u32,
    /// Its worker ends because its node is drained.
    moving: bool,
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
    names: BTreeMap<Name, ActorId>,
    /// Names of lost actors that nobody took since.
    lost_names: BTreeMap<Name, ActorId>,
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
                    self.set_cause(actor, died(text), effects);
                }
            }
            Event::Failed { worker, actor, failure } => {
                if self.by_worker.get(&worker) == Some(&actor) {
                    let text = format!("{} ended: {}", self.title(actor), failure.text());
                    self.set_cause(actor, Failure::new(failure.kind, text), effects);
                }
            }
            Event::Killed { actor, no_restart, of, swept } => {
                self.on_killed(actor, no_restart, of, swept, effects);
            }
            Event::Unreachable { actor } => self.on_unreachable(actor, effects),
            Event::ProcessGone { process, obituary } => {
                self.on_process_gone(process, &obituary, effects);
            }
            Event::JobEnded { job } => self.on_job_ended(job, effects),
            Event::Inherited { known, home_died } => {
                self.on_inherited(*known, &home_died, effects);
            }
            Event::NodeDrains { node } => self.on_node_drains(node, effects),
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
            shape: Shape::default(),
            held: ResourceSet::default(),
            max_restarts: -1,
            checkpoints: None,
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
            moved: 0,
            moving: false,
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

    /// Who has that name.
    pub fn named(&self, name: &Name) -> Option<ActorId> {
        self.names.get(name).copied()
    }

    /// Every name that an actor has.
    pub fn names(&self) -> impl Iterator<Item = (&Name, ActorId)> {
        self.names.iter().map(|(name, id)| (name, *id))
    }

    /// Somebody took it elsewhere: nobody asks any more who had it.
    pub fn forget_lost_name(&mut self, name: &Name) {
        self.lost_names.remove(name);
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

    pub fn ids(&self) -> impl Iterator<Item = ActorId> {
        self.actors.keys().copied()
    }

    pub fn rows(&self) -> impl Iterator<Item = ActorRow> {
        self.actors.keys().filter_map(|id| self.row(*id))
    }

    /// What it is, and what it waits for, for people.
    pub fn explain(&self, id: ActorId) -> Option<Reason> {
        let actor = self.actors.get(&id)?;
        let title = self.title(id);
        let again = match &actor.restarts_because {
            Some(cause) => format!(" (restart {}, because {cause})", actor.incarnation),
            None => String::new(),
        };
        Some(match &actor.stage {
            Stage::Placing { reason, .. } => format!("{title} is pending: {reason}{again}").into(),
            Stage::Starting { worker } => {
                Reason::from(format!("{title} is pending: its constructor runs in "))
                    .and(*worker)
                    .and(again)
            }
            Stage::Alive { worker } => {
                Reason::from(format!("{title} is alive in ")).and(*worker).and(again)
            }
            Stage::Dead { failure } if failure.kind == FailureKind::User => {
                format!("{title} is dead: its constructor raised").into()
            }
            Stage::Dead { failure } => format!("{title} is dead: {}", failure.text()).into(),
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
            let restarts = actor.incarnation - actor.moved;
            assert!(max < 0 || i64::from(restarts) <= i64::from(max), "ACT-4: {id}");
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

const WAITS_FOR_WORKER: &str = "waits for a worker";

fn died(text: String) -> Failure {
    Failure::new(FailureKind::ActorDied, text)
}
