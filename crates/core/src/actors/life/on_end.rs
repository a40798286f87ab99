//! How actors end: killed, out of reach, with their worker or their job; and what is kept of the dead.

use hoplo_base::limits::ACTORS_REMEMBERED_MAX;
use hoplo_base::{ActorId, JobId, NodeNumber, ProcessId};
use hoplo_wire::Failure;
use hoplo_wire::node::{ACTOR_MOVES, Obituary};

use super::{Actor, ActorTable, Effect, Event, Manner, Stage, died};

impl ActorTable {
    pub(super) fn on_killed(
        &mut self,
        id: ActorId,
        no_restart: bool,
        of: Option<ProcessId>,
        swept: bool,
        effects: &mut Vec<Effect>,
    ) {
        let text = format!("{} was killed by hoplo.kill()", self.title(id));
        let Some(actor) = self.actors.get(&id) else {
            if !swept {
                let again = Event::Killed { actor: id, no_restart, of, swept: true };
                effects.push(Effect::AfterSweep(Box::new(again)));
            }
            return;
        };
        if of.is_some_and(|of| actor.worker() != Some(of)) {
            return; // that one is gone
        }
        if let Some(worker) = actor.worker() {
            let reason = "killed by hoplo.kill()".to_string();
            effects.push(Effect::Stop { worker, manner: Manner::Kill, reason });
        }
        if no_restart && !actor.is_dead() {
            self.bury(id, died(text), effects);
        }
    }

    pub(super) fn on_unreachable(&mut self, id: ActorId, effects: &mut Vec<Effect>) {
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
            self.set_cause(id, died(text), effects);
        } else {
            self.bury(id, died(text), effects);
        }
    }

    pub(super) fn on_process_gone(
        &mut self,
        process: ProcessId,
        obituary: &Obituary,
        effects: &mut Vec<Effect>,
    ) {
        for actor in self.actors.values_mut() {
            actor.watchers.remove(&process);
        }
        let Some(id) = self.by_worker.remove(&process) else { return };
        let actor = self.actors.get_mut(&id).expect("ACT-1");
        actor.stage = Stage::placing();
        if let Some(failure) = actor.cause.take() {
            self.bury(id, failure, effects);
        } else if std::mem::take(&mut actor.moving) {
            actor.incarnation += 1;
            actor.moved += 1;
            actor.restarts_because = Some("its node was being drained".to_string());
            effects.push(actor.place());
            self.changed(id, effects);
        } else {
            self.lost_worker(id, obituary.headline(), &last_words(obituary), effects);
        }
    }

    /// It has no worker any more, and nothing else is to become of it: it starts again, if it may. `in_full`: for who hears that it is dead.
    pub(super) fn lost_worker(
        &mut self,
        id: ActorId,
        because: String,
        in_full: &str,
        effects: &mut Vec<Effect>,
    ) {
        let title = self.title(id);
        let actor = self.actors.get_mut(&id).expect("the caller looked it up");
        if actor.restarts_left() == 0 {
            return self.bury(id, died(format!("{title} died: {in_full}")), effects);
        }
        actor.incarnation += 1;
        actor.restarts_because = Some(because);
        effects.push(actor.place());
        self.changed(id, effects);
    }

    /// Those that run there and may start again do that elsewhere, once their workers have finished what they have.
    pub(super) fn on_node_drains(&mut self, node: NodeNumber, effects: &mut Vec<Effect>) {
        for actor in self.actors.values_mut() {
            if let Some(worker) = actor.worker()
                && worker.node() == node
                && actor.can_move()
            {
                actor.moving = true;
                let reason = ACTOR_MOVES.to_string();
                effects.push(Effect::Stop { worker, manner: Manner::Finish, reason });
            }
        }
    }

    /// Detached actors stay, and what their processes created.
    pub(super) fn on_job_ended(&mut self, job: JobId, effects: &mut Vec<Effect>) {
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
    pub(super) fn set_cause(&mut self, id: ActorId, failure: Failure, effects: &mut Vec<Effect>) {
        let actor = self.actors.get_mut(&id).expect("the caller looked it up");
        actor.cause.get_or_insert(failure);
        self.free_name(id, effects);
    }

    /// Whoever asks for the name from now on does not find this actor, and may take the name.
    fn free_name(&mut self, id: ActorId, effects: &mut Vec<Effect>) {
        let spec = &self.actors[&id].spec;
        let key = (spec.namespace.clone(), spec.name.clone());
        if self.names.get(&key) == Some(&id) {
            self.names.remove(&key);
            effects.push(Effect::NameFreed { name: key, actor: id });
        }
    }

    /// To `Dead`, whatever it was.
    pub(super) fn bury(&mut self, id: ActorId, failure: Failure, effects: &mut Vec<Effect>) {
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
        self.free_name(id, effects);
        if detached {
            effects.push(Effect::NodeRelease { objects: vec![id.handle()] });
        }
        if unreachable {
            self.remember(id, effects);
        }
        self.changed(id, effects);
    }

    pub(super) fn release_arguments(&mut self, id: ActorId, effects: &mut Vec<Effect>) {
        let actor = self.actors.get_mut(&id).expect("the caller looked it up");
        let held = std::mem::take(&mut actor.holds_arguments);
        if held && !actor.spec.contains.is_empty() {
            effects.push(Effect::NodeRelease { objects: actor.spec.contains.clone() });
        }
    }

    /// Dead and unreachable: kept for listings, for a while.
    pub(super) fn remember(&mut self, id: ActorId, effects: &mut Vec<Effect>) {
        self.past.push_back(id);
        if self.past.len() > ACTORS_REMEMBERED_MAX
            && let Some(oldest) = self.past.pop_front()
        {
            self.actors.remove(&oldest);
            self.lost_names.retain(|_, id| *id != oldest);
            effects.push(Effect::Forget { actor: oldest });
        }
    }
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
