//! Actors that outlive their home: what others are told of them, and how they come into the table of an heir.

use std::collections::BTreeSet;

use hoplo_base::{ActorId, NodeNumber, ProcessId};
use hoplo_wire::peer::KnownActor;

use super::{Actor, ActorTable, Effect, Stage};

/// How far an actor has come, as its keeper knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    incarnation: u32,
    /// This incarnation was given a worker.
    begun: bool,
    holds_arguments: bool,
}

impl ActorTable {
    /// It runs at another node, and does not need `me`, which is in charge of it.
    pub fn goes_on_without(&self, id: ActorId, me: NodeNumber) -> bool {
        self.actors.get(&id).is_some_and(|actor| {
            let is_elsewhere = |worker: ProcessId| worker.node() != me;
            matches!(actor.stage, Stage::Alive { worker } if is_elsewhere(worker))
                && actor.outlives(me)
                && actor.cause.is_none()
                && !actor.moving
        })
    }

    /// What another node is to keep of it, in case that `me`, which is in charge of it, dies: absent if it would end with `me`,
    /// or if only the node where it lives could go on with it.
    pub fn stands_at(&self, id: ActorId, me: NodeNumber) -> Option<Standing> {
        let actor = self.actors.get(&id)?;
        let begun = !matches!(actor.stage, Stage::Placing { .. });
        let starts_again = !begun || actor.restarts_left() > 0;
        let ends = actor.is_dead() || actor.cause.is_some();
        // Of one with checkpoints that has started elsewhere, its node has the log. Before it has, the order to that node may be lost with `me`.
        let is_elsewhere = |worker: ProcessId| worker.node() != me;
        let started_there = matches!(actor.stage, Stage::Alive { worker } if is_elsewhere(worker));
        let log_is_there = actor.spec.checkpoints.is_some() && started_there;
        (actor.outlives(me) && starts_again && !ends && !log_is_there).then_some(Standing {
            incarnation: actor.incarnation,
            begun,
            holds_arguments: actor.holds_arguments,
        })
    }

    /// All of it, for who is to keep it.
    pub fn known(&self, id: ActorId, standing: Standing) -> Option<KnownActor> {
        let actor = self.actors.get(&id)?;
        let Standing { incarnation, begun, holds_arguments } = standing;
        let mut spec = (*actor.spec).clone();
        if !holds_arguments {
            spec.contains = Vec::new();
        }
        let (job, moved, worker, replay) = (actor.job, actor.moved, None, None);
        Some(KnownActor { spec, job, incarnation, moved, begun, worker, holds_arguments, replay })
    }

    /// For its row: what the heir of its home needs to start it again, if nobody who lives knows of it.
    pub fn will(&self, id: ActorId) -> Option<KnownActor> {
        let actor = self.actors.get(&id)?;
        // A row may be old: one that begins once only could begin again.
        // A row has no log.
        let logs = actor.spec.checkpoints.is_some();
        let may = actor.spec.detached && actor.restarts_left() > 0 && !logs;
        // What is detached outlives any node.
        let standing = self.stands_at(id, actor.job.node()).filter(|_| may)?;
        self.known(id, Standing { holds_arguments: false, ..standing })
    }

    pub(super) fn on_inherited(
        &mut self,
        known: KnownActor,
        home_died: &str,
        effects: &mut Vec<Effect>,
    ) {
        let KnownActor { spec, job, incarnation, moved, begun, worker, holds_arguments, replay: _ } =
            known;
        let id = spec.actor;
        if self.actors.get(&id).is_some_and(|actor| !actor.lost) {
            return;
        }
        let mut held = if holds_arguments { spec.contains.clone() } else { Vec::new() };
        if spec.detached {
            held.push(id.handle());
        }
        if !held.is_empty() {
            effects.push(Effect::NodeHold { objects: held });
        }
        // Its node does not know how often it was moved, and of an actor that may not restart any more nobody else was told.
        let restarts_max = u32::try_from(spec.max_restarts).unwrap_or(u32::MAX);
        let moved = moved.max(incarnation.saturating_sub(restarts_max));
        let name = (spec.namespace.clone(), spec.name.clone());
        self.lost_names.retain(|_, of| *of != id);
        if spec.name().is_some() && !self.names.contains_key(&name) {
            self.names.insert(name, id);
        }
        let actor = Actor {
            creator: None,
            job,
            incarnation,
            moved,
            moving: false,
            stage: worker.map_or_else(Stage::placing, |worker| Stage::Starting { worker }),
            cause: None,
            restarts_because: (incarnation > 0).then(|| home_died.to_string()),
            watchers: BTreeSet::new(),
            holds_arguments,
            unreachable: false,
            lost: false,
            spec: Box::new(spec),
        };
        self.past.retain(|of| *of != id);
        self.actors.insert(id, actor);
        if let Some(worker) = worker {
            self.by_worker.insert(worker, id);
            return self.changed(id, effects);
        }
        if begun {
            return self.lost_worker(id, home_died.to_string(), home_died, effects);
        }
        effects.push(self.actors[&id].place());
        self.changed(id, effects);
    }
}

impl Actor {
    /// It does not end with the drivers of this node, which is in charge of it.
    fn outlives(&self, me: NodeNumber) -> bool {
        self.spec.detached || self.job.node() != me
    }
}
