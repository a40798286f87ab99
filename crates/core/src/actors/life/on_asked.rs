//! What processes ask for: an actor is created, looked up by its name, or watched.

use std::collections::BTreeSet;

use hoplo_base::{ActorId, JobId, ProcessId};
use hoplo_wire::node::{ActorCreated, ActorSpec, ActorState};

use super::{Actor, ActorTable, Effect, Event, Name, Stage, died};

impl ActorTable {
    pub(super) fn on_created(
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
                answer(effects, Err(name_is_taken(&key)));
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
            moved: 0,
            moving: false,
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

    pub(super) fn on_looked_up(
        &mut self,
        from: ProcessId,
        request: u64,
        key: Name,
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

    pub(super) fn on_watched(
        &mut self,
        from: ProcessId,
        id: ActorId,
        swept: bool,
        effects: &mut Vec<Effect>,
    ) {
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
}

/// To who wanted it for a new actor.
pub fn name_is_taken((namespace, name): &Name) -> String {
    format!(
        "an actor named {name:?} exists in namespace {namespace:?}: take another name, \
         get_if_exists=True, or hoplo.get_actor({name:?})"
    )
}
