//! Folds: what comes from another node, with objects of this one folded into it (`crates/core/src/collective`).
//!
//! ```text
//!   Wanting --the directory says where the operands lie--> a pull (`pull`) --Received--> whole --Over--> (the directory frees it)
//!      |                                                     |
//!      +---------------- it cannot be made ------------------+--> (NoFold)
//! ```
//! A fold is a pull: it has room, a source, and relays. What comes of it is final below its mark as well, so it is sent on as it comes. It differs
//! in four things. Its source calls it by another name. The directory does not know it: it stays here until it is over. It has one source. If that
//! one's node dies, a fold of a chain keeps what is written, says so (`FoldBroke`), and goes on when who asked for it names another source (`FoldFrom`); any other
//! fold has failed without its source. And it is made in memory: where the store has no room but on disk, it fails.
//!
//! The last fold of a chain is made at the node that asked for it. Its room is handed over to the process that wants it (`HandOver`).

use std::collections::BTreeSet;

use hoplo_base::limits::FOLDS_MAX;
use hoplo_base::{Instant, NodeNumber, ObjectId};
use hoplo_wire::{Fold, Location, Rest};

use super::Transfer;
use super::event::Effect;
use super::folding::{Folding, Next, Outcome};
use super::pull::{Pull, Stage};
use super::watch::Watch;

/// Its operands are not all found yet.
#[derive(Debug)]
pub(super) struct Wanting {
    asker: NodeNumber,
    fold: Fold,
    /// The operands, and at the end, if it comes from this node, what they are folded into.
    found: Vec<Option<Location>>,
}

/// All of it is here.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) asker: NodeNumber,
    pub(super) location: Location,
    pub(super) in_ring: bool,
    pub(super) outcome: Option<Outcome>,
    /// If it has an outcome, it is kept so long at the most, whatever is said of it.
    pub(super) kept_until: Option<Instant>,
}

/// It was to be made here, and is not here any more. Who is to make the next one of it may ask a little late.
#[derive(Debug)]
pub(super) struct Past {
    made: ObjectId,
    /// What has its bytes now.
    result: Option<ObjectId>,
}

impl Transfer {
    pub(super) fn on_fold(&mut self, asker: NodeNumber, fold: Fold, effects: &mut Vec<Effect>) {
        let (made, owner) = (fold.made, fold.made.task.owner);
        if (owner.node(), owner.count(), owner.slot()) != (asker, 0, 0) || self.is_folded(made) {
            return; // it is no name that its asker gives, or was asked for before
        }
        if self.folds() >= FOLDS_MAX {
            self.let_kept_ones_go(effects);
        }
        if self.folds() >= FOLDS_MAX {
            let (why, again) = ("too much is folded there at once".to_string(), false);
            return effects.push(Effect::NoFold { to: asker, made, why, again });
        }
        let mut wanted = fold.operands.clone();
        if fold.from == self.me {
            wanted.push(fold.upstream);
        }
        let found = vec![None; wanted.len()];
        self.wanting.insert(made, Wanting { asker, fold, found });
        wanted.sort_unstable();
        wanted.dedup();
        effects.extend(wanted.into_iter().map(|object| Effect::Want { object }));
        self.look_for_operands(made, effects);
    }

    /// What is being folded, or was and is kept.
    pub(super) fn folds(&self) -> usize {
        let pulled = self.pulls.values().filter(|pull| pull.fold.is_some()).count();
        self.wanting.len() + self.wholes.len() + pulled
    }

    fn is_folded(&self, made: ObjectId) -> bool {
        let pulled = self.pulls.get(&made).is_some_and(|pull| pull.fold.is_some());
        pulled || self.wanting.contains_key(&made) || self.wholes.contains_key(&made)
    }

    /// The directory says where an object lies, which may be an operand.
    pub(super) fn found_operand(
        &mut self,
        object: ObjectId,
        location: Location,
        effects: &mut Vec<Effect>,
    ) {
        let mut concerned = Vec::new();
        for (made, wanting) in &mut self.wanting {
            let Wanting { fold, found, .. } = wanting;
            let names = fold.operands.iter().chain([&fold.upstream]);
            for (_, place) in names.zip(found).filter(|(name, _)| **name == object) {
                *place = Some(location);
                concerned.push(*made);
            }
        }
        concerned.dedup();
        concerned.into_iter().for_each(|made| self.look_for_operands(made, effects));
        for made in self.that_join(object) {
            let fold = self.pulls.get_mut(&made).and_then(|pull| pull.fold.as_mut());
            let next = fold.and_then(|fold| fold.next.as_mut()).expect("it joins");
            let those = next.operands.iter_mut().filter(|(it, _)| *it == object);
            those.for_each(|(_, place)| *place = Some(location));
            self.look_for_next(made, effects);
        }
    }

    /// Folds that go on when this is found, too.
    fn that_join(&self, object: ObjectId) -> Vec<ObjectId> {
        let joins = |pull: &Pull| {
            let next = pull.fold.as_ref().and_then(|fold| fold.next.as_ref());
            next.is_some_and(|next| next.operands.iter().any(|(it, _)| *it == object))
        };
        self.pulls.iter().filter(|(_, pull)| joins(pull)).map(|(made, _)| *made).collect()
    }

    pub(super) fn no_operand(&mut self, object: ObjectId, why: &str, effects: &mut Vec<Effect>) {
        let lacks = |wanting: &Wanting| {
            wanting.fold.operands.iter().chain([&wanting.fold.upstream]).any(|it| *it == object)
        };
        let those = self.wanting.iter().filter(|(_, wanting)| lacks(wanting));
        for made in those.map(|(made, _)| *made).collect::<Vec<_>>() {
            let wanting = self.wanting.remove(&made).expect("it was just there");
            let why = format!("{object} cannot be read there: {why}");
            self.no_fold(wanting.asker, made, (why, true), effects);
        }
        for made in self.that_join(object) {
            let pull = self.pulls.get_mut(&made).expect("it joins");
            pull.why = format!("{object} cannot be read there: {why}");
            if let Stage::Broken { room, rest: Rest { from, .. } } = pull.stage {
                // Without a source it ends.
                self.try_next(made, room, from, effects);
            }
        }
    }

    /// When all are there it is fetched.
    fn look_for_operands(&mut self, made: ObjectId, effects: &mut Vec<Effect>) {
        let wanting = &self.wanting[&made];
        if wanting.found.iter().any(Option::is_none) {
            return;
        }
        let Wanting { asker, fold, found } = self.wanting.remove(&made).expect("it was just there");
        let mut operands: Vec<Location> = found.into_iter().flatten().collect();
        let Fold { op, bytes, from, upstream, turn, divide_by, ring, result, rest, .. } = fold;
        let source = (from == self.me).then(|| operands.pop()).flatten();
        // In front of a rest gaps may have other lengths.
        if let Some(source) = source.filter(|source| source.len != bytes && rest.is_none()) {
            let why = format!("{upstream} has {} bytes, and not {bytes}", source.len);
            return self.no_fold(asker, made, (why, false), effects);
        }
        let folding = Folding {
            asker,
            op,
            upstream,
            rest,
            next: None,
            operands,
            source,
            divide_by,
            ring: ring.map(|ring| (ring.at, ring.of)),
            outcome: result.map(Outcome::of),
            unfit: false,
            over: false,
        };
        let pull = Pull {
            bytes,
            turn,
            sources: vec![from],
            stage: Stage::Queued,
            watch: Watch::default(),
            why: "its source is not there".to_string(),
            lost: false,
            fold: Some(Box::new(folding)),
        };
        self.begin(made, pull, effects);
    }

    /// Nothing of it is left.
    pub(super) fn fold_failed(
        &mut self,
        made: ObjectId,
        fold: Folding,
        why: String,
        again: bool,
        effects: &mut Vec<Effect>,
    ) {
        let is_known = fold.over || fold.outcome.as_ref().is_some_and(|it| it.sealed);
        if !is_known {
            // What does not go round may go along a chain.
            self.no_fold(fold.asker, made, (why, again || fold.ring.is_some()), effects);
        } else {
            self.is_past(made, None);
        }
        self.fetch_instead(fold.outcome, effects);
    }

    /// It has no source, and some of it may be being sent still. Who asked for it hears why from this node, before those to whom it is relayed can say that they
    /// lost their source.
    pub(super) fn tell_of_fold(&mut self, made: ObjectId, effects: &mut Vec<Effect>) {
        let Some(pull) = self.pulls.get_mut(&made) else { return };
        let Some(fold) = pull.fold.as_mut() else { return };
        if fold.ring.is_none() && fold.outcome.is_none() && !fold.over {
            fold.over = true;
            let (to, why, again) = (fold.asker, pull.why.clone(), !fold.unfit);
            effects.push(Effect::NoFold { to, made, why, again });
        }
    }

    /// It cannot be made, and nothing of it is left.
    pub(super) fn no_fold(
        &mut self,
        to: NodeNumber,
        made: ObjectId,
        (why, again): (String, bool),
        effects: &mut Vec<Effect>,
    ) {
        self.is_past(made, None);
        self.end_relays(made, "it could not be made there", effects);
        effects.push(Effect::NoFold { to, made, why, again });
    }

    /// The shell has stopped: another try would not be better.
    pub(super) fn on_unfit(&mut self, ticket: u64, why: String, effects: &mut Vec<Effect>) {
        let object = self.tickets[&ticket];
        let pull = self.pulls.get_mut(&object).expect("XFER-2: who has a ticket has a pull");
        pull.fold.as_mut().expect("only what is folded is unfit").unfit = true;
        // It may have been told to stop for another reason.
        pull.why.clone_from(&why);
        self.on_stopped(ticket, (0, None), (why, false), effects);
    }

    /// All of it is written and sealed.
    pub(super) fn folded(
        &mut self,
        made: ObjectId,
        folding: Folding,
        location: Location,
        effects: &mut Vec<Effect>,
    ) {
        let Folding { asker, over, outcome, ring, .. } = folding;
        if over {
            self.is_past(made, None);
            effects.push(Effect::Seal { object: made, location });
        } else {
            let is_kept = asker != self.me && outcome.is_some();
            let kept_until = is_kept.then(|| self.keep_until());
            let in_ring = ring.is_some();
            self.wholes.insert(made, Whole { asker, location, in_ring, outcome, kept_until });
            self.settle(made, effects);
        }
    }

    /// What comes of all that was asked for by this node (it is 0) is for a process, once it is sent to whom it is relayed.
    pub(super) fn hand_over(&mut self, effects: &mut Vec<Effect>) {
        let is_last = |made: &ObjectId, whole: &Whole| whole.asker == self.me && made.index == 0;
        let mine = self.wholes.iter().filter(|(made, whole)| is_last(made, whole));
        let mine: Vec<ObjectId> = mine.map(|(made, _)| *made).collect();
        for made in mine {
            if self.serves.values().any(|serve| serve.object == made) {
                continue;
            }
            let Whole { location, .. } = self.takes_whole(made, true);
            effects.push(Effect::HandOver { made, location });
        }
    }

    /// `becomes_result`: of its outcome, if it has one.
    pub(super) fn takes_whole(&mut self, made: ObjectId, becomes_result: bool) -> Whole {
        let whole = self.wholes.remove(&made).expect("it is whole");
        let result = whole.outcome.as_ref().filter(|_| becomes_result).map(|it| it.result);
        self.is_past(made, result);
        whole
    }

    fn is_past(&mut self, made: ObjectId, result: Option<ObjectId>) {
        if self.past.len() >= FOLDS_MAX {
            self.past.pop_front();
        }
        self.past.push_back(Past { made, result });
    }

    /// What has the bytes of what was made here; absent where nothing has. None: nothing is known of it.
    pub(super) fn became(&self, made: ObjectId) -> Option<Option<ObjectId>> {
        self.past.iter().rev().find(|past| past.made == made).map(|past| past.result)
    }

    /// Nobody needs it under that name any more. `sealed`: the result of its ring has the bytes that it has.
    pub(super) fn on_fold_over(
        &mut self,
        from: NodeNumber,
        made: ObjectId,
        sealed: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.wanting.get(&made).is_some_and(|it| it.asker == from) {
            self.wanting.remove(&made);
            self.is_past(made, None);
            return self.end_relays(made, "it is over", effects);
        }
        let kept_until = self.keep_until();
        if let Some(whole) = self.wholes.get_mut(&made).filter(|it| it.asker == from) {
            return match whole.outcome.as_mut().filter(|_| sealed) {
                Some(outcome) => {
                    outcome.sealed = true;
                    whole.kept_until = Some(kept_until);
                    self.settle(made, effects);
                }
                // Nobody holds it: the directory frees it when it is read no more.
                None => self.let_go(made, effects),
            };
        }
        let Some(pull) = self.pulls.get_mut(&made) else { return };
        let Some(fold) = pull.fold.as_mut().filter(|fold| fold.asker == from && !fold.over) else {
            return;
        };
        // If it has not asked for the bytes yet, it does not: they may be gone when it does.
        let asked = !matches!(pull.stage, Stage::Queued | Stage::AskingRoom { .. });
        if let Some(outcome) = fold.outcome.as_mut().filter(|_| sealed && asked) {
            // The last bytes are on their way.
            outcome.sealed = true;
            return;
        }
        fold.over = true;
        let outcome = fold.outcome.take();
        pull.sources.clear();
        pull.why = "it is over".to_string();
        match pull.stage {
            Stage::Queued => {
                self.queue.retain(|object| *object != made);
                self.pulls.remove(&made);
                self.is_past(made, None);
                self.end_relays(made, "it is over", effects);
            }
            Stage::Receiving { from: source, ticket, .. } => {
                effects.extend(self.enough(source, ticket));
                self.stop(made, ("it is over".to_string(), false), effects);
            }
            // Without a source it ends.
            Stage::Broken { room, rest: Rest { from, .. } } => {
                self.try_next(made, room, from, effects);
            }
            // They end by themselves, without a source.
            Stage::AskingRoom { .. } | Stage::Stopping { .. } | Stage::Clearing { .. } => {}
        }
        self.fetch_instead(outcome, effects);
    }

    /// What comes is this now: the node that it came from died.
    pub(super) fn on_fold_from(
        &mut self,
        asker: NodeNumber,
        made: ObjectId,
        (from, upstream): (NodeNumber, ObjectId),
        operands: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(pull) = self.pulls.get_mut(&made) else { return };
        let Some(fold) = pull.fold.as_mut().filter(|fold| fold.asker == asker) else { return };
        if !matches!(pull.stage, Stage::Broken { .. }) || fold.next.is_some() {
            return;
        }
        let wanted: BTreeSet<ObjectId> = operands.iter().copied().collect();
        let operands = operands.into_iter().map(|object| (object, None)).collect();
        fold.next = Some(Next { from, upstream, operands });
        effects.extend(wanted.into_iter().map(|object| Effect::Want { object }));
        self.look_for_next(made, effects);
    }

    /// It goes on when it has all that it folds into the rest.
    fn look_for_next(&mut self, made: ObjectId, effects: &mut Vec<Effect>) {
        let Some(pull) = self.pulls.get_mut(&made) else { return };
        let (Stage::Broken { room, rest }, Some(fold)) = (&pull.stage, &mut pull.fold) else {
            return;
        };
        let (room, rest) = (*room, rest.clone());
        let all = |next: &mut Next| next.operands.iter().all(|(_, location)| location.is_some());
        let Some(Next { from, upstream, operands }) = fold.next.take_if(all) else { return };
        let written = rest.from;
        fold.rest = (!operands.is_empty()).then_some(rest);
        fold.operands.extend(operands.into_iter().filter_map(|(_, location)| location));
        fold.upstream = upstream;
        // XFER-1: of the next source, which may die as well.
        pull.lost = false;
        pull.sources = vec![from];
        self.try_next(made, room, written, effects);
    }

    /// Folds that would come from there, and did not begin. Who asked for them asks anew.
    fn lose_fold_sources(&mut self, dead: NodeNumber, effects: &mut Vec<Effect>) {
        let wanting = self.wanting.iter().filter(|(_, it)| it.fold.from == dead);
        for made in wanting.map(|(made, _)| *made).collect::<Vec<_>>() {
            let wanting = self.wanting.remove(&made).expect("it was just there");
            let why = format!("node {} died", dead.hex());
            self.no_fold(wanting.asker, made, (why, true), effects);
        }
        for (made, pull) in &mut self.pulls {
            let Some(fold) = pull.fold.as_mut() else { continue };
            let (to, from_it) = (fold.asker, |next: &mut Next| next.from == dead);
            if let (Stage::Broken { rest, .. }, Some(_)) = (&pull.stage, fold.next.take_if(from_it))
            {
                effects.push(Effect::FoldBroke { to, made: *made, rest: rest.clone() });
            }
        }
    }

    /// Who asked for folds is dead, or the shell of this node lost its link.
    pub(super) fn lose_folds(&mut self, dead: NodeNumber, effects: &mut Vec<Effect>) {
        let wanting = self.wanting.iter().filter(|(_, it)| it.asker == dead).map(|(it, _)| *it);
        let wholes = self.wholes.iter().filter(|(_, it)| it.asker == dead).map(|(it, _)| *it);
        let is_one = |pull: &Pull| pull.fold.as_ref().is_some_and(|it| it.asker == dead);
        let pulls = self.pulls.iter().filter(|(_, pull)| is_one(pull)).map(|(it, _)| *it);
        for made in wanting.chain(wholes).chain(pulls).collect::<Vec<_>>() {
            self.on_fold_over(dead, made, false, effects);
        }
        self.lose_fold_sources(dead, effects);
    }
}
