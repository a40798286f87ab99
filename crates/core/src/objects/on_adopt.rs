//! Adoptions: results whose owner is dead, and that a living process is to make.
//!
//! ```text
//!   Orphaned --a process of this node waits for it--> Pending (`adopt`)
//!      |  ^                                            |
//!      |  +----- its run is over, and it is lost ------+
//!      |
//!      +--a node waits for it: `AdoptAt`--> adopted there --it tells the value--> Inline | Failed | Elsewhere
//!         ^                                     |
//!         +-- `NotAdopted`, or who was to tell -+
//!             the value is dead
//! ```
//! Who is in charge of a result, its home or the heir of that, has its task run again by a process that waits for it: of its own node, or of another one, whose node
//! then tells the value to who is in charge.
//!
//! # Invariants
//! - EST-3: a task is adopted by one process at a time, as far as who is in charge knows: nobody else is asked while that node has it.
//!
//! # Stories
//! 1. *Made, and lost with its home.* A process here ran it for the home (`AdoptAt`), which dies with the only copy. The process says that its run is
//!    over (`AdoptionOver`), so this directory, in charge now, does not wait for it.
//! 2. *Made at a third node, and lost with that.* The home lives, and had a task run by a process of node A, which sent it to a worker of node B. B dies
//!    after its reply reached A, and before its word of the result reached the home. A says where it was made (`MadeAt`): the home waits for B
//!    from then on, and has it made again when B is dead.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_wire::Value;
use hoplo_wire::node::{Lineage, ToClient};
use hoplo_wire::peer::Known;

use super::ObjectDirectory;
use super::event::Effect;
use super::record::{Record, State};

/// What others are to make, or made, in the place of dead owners.
#[derive(Debug, Default)]
pub(super) struct Adoptions {
    /// Of other homes, and being run by processes here.
    here: BTreeMap<TaskId, Adopted>,
    /// In our charge, and adopted by a process of another node.
    elsewhere: BTreeMap<ObjectId, Adopter>,
}

#[derive(Debug, Default)]
struct Adopted {
    /// Who was asked to, and how often it has still to say that it has.
    by: BTreeMap<ProcessId, u32>,
    /// That were asked for.
    objects: BTreeSet<ObjectId>,
}

/// A node that was asked to have an object made.
#[derive(Clone, Copy, Debug)]
struct Adopter {
    node: NodeNumber,
    /// Where a worker has made it, as the adopter says.
    maker: Option<NodeNumber>,
}

impl Adopter {
    /// Whose word of it is to come.
    fn awaited(&self) -> NodeNumber {
        self.maker.unwrap_or(self.node)
    }
}

impl Adoptions {
    /// A process here that runs it for another home.
    pub(super) fn adopter_here(&self, task: TaskId) -> Option<ProcessId> {
        self.here.get(&task).and_then(|adopted| adopted.by.keys().next().copied())
    }
}

impl ObjectDirectory {
    /// A pending object whose owner is dead goes to a process that holds it or waits for it, with
    /// everything that the same task makes. Not before it is decided that nobody made it.
    pub(super) fn adopt(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get(&object) else { return };
        let State::Orphaned { lineage: Ok(lineage), .. } = &record.state else { return };
        if self.undecided.contains(&object) || record.unannounced || self.has_adopter(object) {
            return;
        }
        // The one that joined first: where it is the driver, it is there as long as the job.
        let lives = |process: &ProcessId| !self.dying.contains(process);
        let mut waiting = record.waiting.keys().copied().filter(lives);
        let waiting = waiting.find(|process| *process != self.haul);
        let Some(heir) = record.holders().filter(lives).min().or(waiting) else {
            return self.adopt_far(object, effects);
        };
        let lineage = lineage.clone();
        let task = object.task.object(0)..=object.task.object(u32::MAX);
        let mut objects = Vec::new();
        for (object, record) in self.records.range_mut(task) {
            if let State::Orphaned { lineage: Ok(lineage), .. } = &record.state
                && !record.unannounced
            {
                let lineage = Some(lineage.clone());
                record.state = State::Pending { owner: heir, lineage };
                objects.push(*object);
            }
        }
        for object in &objects {
            self.undecided.remove(object);
            self.index(*object, heir);
            self.note(*object, "adopted", Some(heir));
        }
        let message = ToClient::Adopt { lineage, objects };
        effects.push(Effect::Send { to: heir, message });
    }

    /// Nobody here holds an orphan, or waits for it: a node that waits for it is to run its task.
    pub(super) fn adopt_far(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let record = &self.records[&object];
        let State::Orphaned { lineage: Ok(lineage), .. } = &record.state else { return };
        let Some(node) = record.far_waiting().next() else { return };
        let lineage = lineage.clone();
        let task = object.task.object(0)..=object.task.object(u32::MAX);
        let orphan =
            |record: &Record| matches!(record.state, State::Orphaned { lineage: Ok(_), .. });
        let of_task = self.records.range(task).filter(|(_, record)| orphan(record));
        let objects: Vec<ObjectId> = of_task.map(|(object, _)| *object).collect();
        for object in &objects {
            self.undecided.remove(object);
            self.adoptions.elsewhere.insert(*object, Adopter { node, maker: None });
            self.note(*object, "adopted at another node", None);
        }
        effects.push(Effect::AdoptAt { node, lineage, objects });
    }

    /// Who is in charge asks this node, which waits for one of these, to have the task run. What has its value here by
    /// now is not made again: who is in charge has heard of it, or will, since that word is on its way.
    pub(super) fn on_adopt_asked(
        &mut self,
        lineage: Lineage,
        mut objects: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let is_known = |object: &ObjectId| {
            let state = self.records.get(object).map(|record| &record.state);
            state.is_some_and(|state| !state.is_open() && (state.is_here() || !state.is_stored()))
        };
        objects.retain(|object| !is_known(object));
        if objects.is_empty() {
            return;
        }
        let haul = self.haul;
        let wants = |object: &ObjectId| {
            let record = self.records.get(object)?;
            let waiting = record.waiting.keys().copied().find(|process| *process != haul);
            record.holders().min().or(waiting)
        };
        let Some(heir) = objects.iter().find_map(wants) else {
            return self.not_adopted(objects, effects);
        };
        for object in &objects {
            self.note(*object, "adopted for its home", Some(heir));
        }
        let adopted = self.adoptions.here.entry(lineage.task).or_default();
        *adopted.by.entry(heir).or_default() += 1;
        adopted.objects.extend(&objects);
        effects.push(Effect::Send { to: heir, message: ToClient::Adopt { lineage, objects } });
    }

    /// Nobody here runs the task of these (any more). Who waits for one asks anew.
    fn not_adopted(&mut self, objects: Vec<ObjectId>, effects: &mut Vec<Effect>) {
        effects.push(Effect::TellNotAdopted { objects: objects.clone() });
        for object in objects {
            let Some(record) = self.records.get_mut(&object) else { continue };
            if let State::Foreign { asked, .. } = &mut record.state {
                *asked = false;
                self.fetch_if_wanted(object, effects);
            }
        }
    }

    /// Somebody else is to run its task: that node waits no more, unless it asks again.
    pub(super) fn on_far_not_adopted(
        &mut self,
        node: NodeNumber,
        objects: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        for object in objects {
            if let Some(record) = self.records.get_mut(&object) {
                record.abroad().waiting.remove(&node);
                record.tidy();
            }
            if self.adoptions.elsewhere.get(&object).is_some_and(|adopter| adopter.node == node) {
                self.adoptions.elsewhere.remove(&object);
                self.adopt(object, effects);
            }
            self.touch(object);
        }
    }

    /// A process here is gone that had adopted some for others.
    pub(super) fn adopter_gone(&mut self, process: ProcessId, effects: &mut Vec<Effect>) {
        let mut without = Vec::new();
        self.adoptions.here.retain(|_, adopted| {
            let was_its = adopted.by.remove(&process).is_some();
            let ends = was_its && adopted.by.is_empty();
            if ends {
                without.push(Vec::from_iter(std::mem::take(&mut adopted.objects)));
            }
            !ends
        });
        for objects in without {
            // What is in our charge by now lost its owner as others do.
            if objects.first().is_some_and(|object| !self.is_at_home(*object)) {
                self.not_adopted(objects, effects);
            }
        }
    }

    /// A node had them made by a worker of node `maker`. What has no value here is to come from there: that word took another way.
    pub(super) fn on_far_made_at(
        &mut self,
        adopter: NodeNumber,
        maker: NodeNumber,
        objects: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        // The word of a worker here, or there, came before this one: the object has its value, or lost it and is made anew.
        if maker == self.node || maker == adopter {
            return;
        }
        for object in objects {
            if let Some(it) = self.adoptions.elsewhere.get_mut(object)
                && it.node == adopter
            {
                it.maker = Some(maker);
            }
        }
        if self.estates.has(maker) {
            self.adopters_gone(maker, effects);
        }
    }

    /// A process here has run it, by a worker (`maker`) if one replied, and what it could tell of the results is told. What is in our charge
    /// and has no value all the same lost it: somebody is to run it again, once it is decided that nobody has it.
    pub(super) fn adoption_over(
        &mut self,
        task: TaskId,
        (by, maker): (ProcessId, Option<ProcessId>),
        effects: &mut Vec<Effect>,
    ) {
        let adopted = self.adoptions.here.get(&task).filter(|it| it.by.contains_key(&by));
        if let (Some(adopted), Some(maker)) = (adopted, maker)
            && !self.is_at_home(task.object(0))
        {
            let (maker, objects) = (maker.node(), adopted.objects.iter().copied().collect());
            effects.push(Effect::TellMadeAt { maker, objects });
        }
        if let Some(adopted) = self.adoptions.here.get_mut(&task) {
            if let Some(asked) = adopted.by.get_mut(&by).filter(|asked| **asked > 1) {
                *asked -= 1;
                return;
            }
            adopted.by.remove(&by);
            if adopted.by.is_empty() {
                self.adoptions.here.remove(&task);
            }
        }
        let results = self.records.range(task.object(0)..=task.object(u32::MAX));
        let awaits = |record: &Record| record.state.owner() == Some(by);
        let lost = results.filter(|(_, record)| awaits(record)).map(|(object, _)| *object);
        for object in lost.collect::<Vec<_>>() {
            let since = self.sweeps.asked;
            let record = self.records.get_mut(&object).expect("it was just there");
            let State::Pending { lineage, .. } = &mut record.state else { continue };
            record.state = State::made_by_nobody(lineage.take(), since);
            if !record.unannounced {
                self.undecided.insert(object);
            }
            self.index(object, by);
            self.note(object, "was made, and is lost", Some(by));
            self.touch(object);
        }
    }

    /// A node is gone that had adopted some of ours, or had made some.
    pub(super) fn adopters_gone(&mut self, node: NodeNumber, effects: &mut Vec<Effect>) {
        let its = self.adoptions.elsewhere.iter().filter(|(_, adopter)| adopter.awaited() == node);
        let its = its.map(|(object, _)| *object).collect::<Vec<_>>();
        self.adoptions.elsewhere.retain(|_, adopter| adopter.awaited() != node);
        for object in its {
            self.adopt(object, effects);
        }
    }

    /// It has a value, or its record ends.
    pub(super) fn adoption_ends(&mut self, object: ObjectId) {
        self.adoptions.elsewhere.remove(&object);
    }

    /// A process here made it in the place of a dead owner: who is in charge hears the value. Whether it was so.
    pub(super) fn tell_adopted(
        &mut self,
        object: ObjectId,
        (value, contains): (&Value, &[ObjectId]),
        effects: &mut Vec<Effect>,
    ) -> bool {
        if !self.adoptions.here.contains_key(&object.task) {
            return false;
        }
        let known = match value {
            Value::Inline(bytes) => {
                Known::Inline { bytes: bytes.clone(), contains: contains.to_vec() }
            }
            Value::Failed(failure) => Known::Failed(failure.clone()),
            // Who wrote it told of it.
            Value::Stored(_) => return true,
        };
        effects.push(Effect::TellKnown { object, known });
        true
    }

    /// EST-3: somebody has it already.
    pub(super) fn has_adopter(&self, object: ObjectId) -> bool {
        self.adoptions.elsewhere.contains_key(&object)
    }
}
