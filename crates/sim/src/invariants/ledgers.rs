//! Each call takes effect once in the state of an actor with checkpoints, and where its reply said that it stands.
//!
//! A node that others go on without runs on until it hears so. What it still has of an actor may be behind what the actor has become elsewhere, and a process
//! that begins there owes nothing of it (seed 80075661: nothing ran at the actor's home for a while; its heir had the actor started again, a call was
//! replied there, and then the first process of the actor returned from its constructor). All that was replied before that node was lost still binds it.
//! So does each reply that it writes itself: at no place of an actor are two calls replied.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, NodeNumber, TaskId};

#[derive(Debug, Default)]
pub struct Ledgers {
    actors: BTreeSet<ActorId>,
    replied: BTreeMap<(ActorId, TaskId), Replied>,
    /// How many calls had been replied when others were to go on without this node.
    lost: BTreeMap<NodeNumber, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Replied {
    /// Where it stood when its reply was written.
    place: usize,
    /// So many calls had been replied before.
    after: usize,
}

impl Ledgers {
    pub fn logs(&mut self, actor: ActorId) {
        self.actors.insert(actor);
    }

    pub fn has(&self, actor: ActorId) -> bool {
        self.actors.contains(&actor)
    }

    /// Others are to go on without it.
    pub fn node_is_lost(&mut self, node: NodeNumber) {
        self.lost.entry(node).or_insert(self.replied.len());
    }

    /// In a process at `node`, from the first one on.
    pub fn takes_effect(
        &self,
        actor: ActorId,
        task: TaskId,
        place: usize,
        node: NodeNumber,
    ) -> Result<(), String> {
        let before = self.replied.get(&(actor, task));
        stood_there(actor, task, place, before.filter(|it| self.binds(node, **it)))
    }

    pub fn replied(&mut self, actor: ActorId, task: TaskId, place: usize) -> Result<(), String> {
        stood_there(actor, task, place, self.replied.get(&(actor, task)))?;
        if let Some((other, _)) = self.of(actor).find(|(it, at)| *it != task && at.place == place) {
            return Err(format!("{task} is replied at {place} in {actor}, as {other} was"));
        }
        let after = self.replied.len();
        self.replied.entry((actor, task)).or_insert(Replied { place, after });
        Ok(())
    }

    /// A new process at `node` is this actor.
    pub fn starts(
        &self,
        actor: ActorId,
        ledger: &[TaskId],
        node: NodeNumber,
    ) -> Result<(), String> {
        for (task, replied) in self.of(actor).filter(|(_, it)| self.binds(node, *it)) {
            let place = replied.place;
            if ledger.get(place - 1) != Some(&task) {
                return Err(format!("{task} was replied at {place} and is not there in {actor}"));
            }
        }
        Ok(())
    }

    fn of(&self, actor: ActorId) -> impl Iterator<Item = (TaskId, Replied)> {
        let of_it = (actor, TaskId::from_bytes([0; 16]))..=(actor, TaskId::from_bytes([255; 16]));
        self.replied.range(of_it).map(|((_, task), replied)| (*task, *replied))
    }

    /// What runs there has to know of it.
    fn binds(&self, node: NodeNumber, replied: Replied) -> bool {
        self.lost.get(&node).is_none_or(|lost| replied.after < *lost)
    }
}

fn stood_there(
    actor: ActorId,
    task: TaskId,
    place: usize,
    before: Option<&Replied>,
) -> Result<(), String> {
    match before.map(|it| it.place) {
        Some(before) if before != place => {
            Err(format!("{task} stood at {before} in {actor} and stands at {place}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use hoplo_base::ProcessId;

    use super::*;

    const LOST: NodeNumber = NodeNumber::FIRST;

    fn other() -> NodeNumber {
        LOST.next_given()
    }

    fn task(seq: u64) -> TaskId {
        TaskId { owner: ProcessId::new(other(), 1, 0), seq }
    }

    /// One call was replied before the node was lost, and one after that, elsewhere.
    fn ledgers(actor: ActorId) -> Ledgers {
        let mut ledgers = Ledgers::default();
        ledgers.replied(actor, task(1), 1).unwrap();
        ledgers.node_is_lost(LOST);
        ledgers.replied(actor, task(2), 2).unwrap();
        ledgers
    }

    /// Seed 80075661.
    #[test]
    fn a_lost_node_that_runs_on_owes_what_was_replied_before_it_was_lost() {
        let actor = ActorId(task(9));
        let ledgers = ledgers(actor);
        ledgers.starts(actor, &[task(1)], LOST).unwrap();
        ledgers.takes_effect(actor, task(2), 3, LOST).unwrap();
        ledgers.starts(actor, &[], LOST).unwrap_err();
        ledgers.takes_effect(actor, task(1), 2, LOST).unwrap_err();
    }

    #[test]
    fn any_other_node_owes_all_that_was_replied() {
        let actor = ActorId(task(9));
        let ledgers = ledgers(actor);
        ledgers.starts(actor, &[task(1), task(2)], other()).unwrap();
        ledgers.starts(actor, &[task(1)], other()).unwrap_err();
        ledgers.takes_effect(actor, task(2), 3, other()).unwrap_err();
    }

    #[test]
    fn no_node_replies_where_another_call_was_replied() {
        let actor = ActorId(task(9));
        let mut ledgers = ledgers(actor);
        ledgers.replied(actor, task(2), 2).unwrap();
        ledgers.replied(actor, task(2), 3).unwrap_err();
        ledgers.replied(actor, task(3), 2).unwrap_err();
        ledgers.replied(ActorId(task(8)), task(3), 2).unwrap();
    }
}
