//! Each call takes effect once in the state of an actor with checkpoints, and where its reply said that it stands.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, TaskId};

#[derive(Debug, Default)]
pub struct Ledgers {
    actors: BTreeSet<ActorId>,
    /// At which place it stood when its reply was written.
    replied: BTreeMap<(ActorId, TaskId), usize>,
}

impl Ledgers {
    pub fn logs(&mut self, actor: ActorId) {
        self.actors.insert(actor);
    }

    pub fn has(&self, actor: ActorId) -> bool {
        self.actors.contains(&actor)
    }

    /// From the first one on.
    pub fn takes_effect(&self, actor: ActorId, task: TaskId, place: usize) -> Result<(), String> {
        match self.replied.get(&(actor, task)) {
            Some(before) if *before != place => {
                Err(format!("{task} stood at {before} in {actor} and stands at {place}"))
            }
            _ => Ok(()),
        }
    }

    pub fn replied(&mut self, actor: ActorId, task: TaskId, place: usize) -> Result<(), String> {
        self.takes_effect(actor, task, place)?;
        self.replied.insert((actor, task), place);
        Ok(())
    }

    /// A new process is this actor.
    pub fn starts(&self, actor: ActorId, ledger: &[TaskId]) -> Result<(), String> {
        let of_it = (actor, TaskId::from_bytes([0; 16]))..=(actor, TaskId::from_bytes([255; 16]));
        for ((_, task), place) in self.replied.range(of_it) {
            if ledger.get(place - 1) != Some(task) {
                return Err(format!("{task} was replied at {place} and is not there in {actor}"));
            }
        }
        Ok(())
    }
}
