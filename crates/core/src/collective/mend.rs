//! A chain of which nodes die (COLL-3): what was folded stays, and members that were lost are folded only into the rest.
//!
//! ```text
//!   before:   head ---> U ---> X ---> D ---> ... ---> this node          X dies, when D has m bytes of what it makes
//!   then:     head ---> U ---> Y ------> D ---> ...                      Y has X's members, made again, and folds from byte m on
//! ```
//! - D keeps what it has (`Peer::FoldBroke`), and all behind it wait for it. U and those before it keep what they made until the reduce is over.
//! - The asker hears what is lost (`NoReduce::goes_on`), gets it made again, and says so (`ToNode::ReduceMended`).
//! - Y begins at byte m. What is in front of that never comes to it, so it is told what lies in it beside numbers (`Rest::front`), and puts that in its place.
//! - Y may be U's node. Then U's members are folded into the rest once more, together with those of X: nobody fetches from itself.
//! - Y may be D's node. Then D folds X's members into the rest as well, which it gets from U.
//!
//! What is made again may differ from what was lost, if its task does not always return the same. Then a result has numbers of the first one in front of m, and of
//! the second one behind it; in each number every member is once.
//!
//! # What is begun anew
//! The whole chain, if D or another node says that it cannot go on, if what was lost has another structure when it is made again, if nothing is left in front of D that is at another node, or if what is left there took the place of a dead node and begins behind D's mark. Rings and
//! trains are always begun anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_wire::{Fold, NoReduce, Rest};

use super::event::{Effect, Member};
use super::{Collective, Folds, Reduce, Shape, Step, plan};

/// Between two folds of a chain there is room for so many others, less one.
pub(super) const TURNS_APART: u64 = 1 << 16;

/// What is known of the deaths of a chain's nodes.
#[derive(Debug, Default)]
pub(super) struct Broken {
    dead: BTreeSet<NodeNumber>,
    /// By what they make: what folds that lost their source need.
    rests: BTreeMap<ObjectId, Rest>,
    /// The asker was told what is lost, instead of an answer. It says when that is there again.
    pub(super) told: bool,
}

/// Steps that are lost, in front of one that lives and waits.
struct Gap {
    steps: Range<usize>,
    /// And what the chain begins with.
    head: bool,
}

impl Collective {
    /// A node of a chain died. False: it cannot go on.
    pub(super) fn breaks(&mut self, seq: u64, dead: NodeNumber, effects: &mut Vec<Effect>) -> bool {
        let reduce = self.reduces.get_mut(&seq).expect("the caller has seen it");
        if !matches!(reduce.shape, Shape::Chain { .. }) || !reduce.waiting.is_empty() {
            return false;
        }
        reduce.broken.dead.insert(dead);
        let steps = reduce.steps.iter();
        let gone: Vec<ObjectId> = steps.filter(|it| it.node == dead).map(|it| it.made).collect();
        reduce.broken.rests.retain(|made, _| !gone.contains(made));
        self.look_for_lost(seq, effects);
        true
    }

    /// A node keeps what it has of a fold. Which node died is known here as well, or will be.
    pub(super) fn on_broke(
        &mut self,
        (from, made): (NodeNumber, ObjectId),
        rest: Rest,
        effects: &mut Vec<Effect>,
    ) {
        let seq = made.task.seq;
        let reduce = self.reduces.get_mut(&seq).filter(|_| made.task.owner == self.haul);
        let is_one = |step: &Step| step.node == from && step.made == made;
        let Some(reduce) = reduce.filter(|it| it.steps.iter().any(is_one)) else { return };
        reduce.broken.rests.insert(made, rest);
        self.look_for_lost(seq, effects);
    }

    /// Tells the asker what is lost, unless it was told of something.
    fn look_for_lost(&mut self, seq: u64, effects: &mut Vec<Effect>) {
        let reduce = self.reduces.get_mut(&seq).expect("the caller has seen it");
        let lost = reduce.lost();
        if reduce.broken.told || lost.is_empty() {
            return;
        }
        reduce.broken.told = true;
        let why = "nodes of it died, and it goes on when their members are there again";
        let no = NoReduce { lost, goes_on: true, ..NoReduce::new(why, true) };
        effects.push(Effect::Refuse { asker: reduce.asker, request: reduce.request, no });
    }

    /// What the asker was told to be lost, and what is by now.
    pub fn lost(&self, asker: ProcessId, request: u64) -> Vec<ObjectId> {
        let reduce = self.reduce_of(asker, request).map(|seq| &self.reduces[&seq]);
        reduce.filter(|reduce| reduce.broken.told).map(Reduce::lost).unwrap_or_default()
    }

    /// Of what is lost these are there again.
    pub(super) fn on_mended(
        &mut self,
        asker: ProcessId,
        (request, was): (u64, u64),
        members: &[Member],
        effects: &mut Vec<Effect>,
    ) {
        let told = |seq: &u64| self.reduces[seq].broken.told;
        let Some(seq) = self.reduce_of(asker, was).filter(told) else {
            let no = NoReduce::new("it was given up meanwhile", true);
            return effects.push(Effect::Refuse { asker, request, no });
        };
        let task = self.task(seq);
        let reduce = self.reduces.get_mut(&seq).expect("it was just there");
        (reduce.request, reduce.broken.told) = (request, false);
        let (mut ended, mut folds, mut goes_on) = (Vec::new(), Folds::new(), Vec::new());
        for made in reduce.broken.rests.keys().copied().collect::<Vec<_>>() {
            let mended = reduce.mend(self.me, made, members, |index| task.object(index));
            let Some(mended) = mended else { continue };
            ended.extend(mended.ended);
            folds.extend(mended.folds);
            goes_on.push(mended.goes_on);
        }
        if goes_on.is_empty() {
            let why = "what was lost is not there again, or where it cannot be folded in";
            return self.give_up(seq, NoReduce::new(why, true), effects);
        }
        effects.extend(ended.into_iter().map(|(at, made)| Effect::End { at, made, sealed: false }));
        effects
            .extend(folds.into_iter().map(|(at, fold)| Effect::Fold { at, fold: Box::new(fold) }));
        effects.extend(goes_on);
        self.look_for_lost(seq, effects);
    }
}

/// What takes the place of a gap.
struct Mended {
    folds: Folds,
    /// The one that waited.
    goes_on: Effect,
    /// A fold that lives and is begun anew with more members.
    ended: Option<(NodeNumber, ObjectId)>,
}

impl Reduce {
    /// Every member that only dead nodes folded, for those that wait.
    fn lost(&self) -> Vec<ObjectId> {
        let gaps = (0..self.steps.len()).filter_map(|at| self.gap(at));
        gaps.flat_map(|gap| self.members_of(&gap)).collect()
    }

    fn members_of(&self, gap: &Gap) -> Vec<ObjectId> {
        let operands = self.steps[gap.steps.clone()].iter().flat_map(|step| &step.operands);
        let head = self.shape.head().filter(|_| gap.head).map(|(_, member)| member);
        operands.copied().chain(head).collect()
    }

    /// In front of this step, if it waits and the node before it is dead.
    fn gap(&self, at: usize) -> Option<Gap> {
        let waits = self.broken.rests.contains_key(&self.steps[at].made);
        let lives = |step: &Step| !self.broken.dead.contains(&step.node);
        let first = self.steps[..at].iter().rposition(lives).map_or(0, |living| living + 1);
        let (head, _) = self.shape.head()?;
        let head = first == 0 && self.broken.dead.contains(&head);
        (waits && (head || first < at)).then_some(Gap { steps: first..at, head })
    }

    /// Fills the gap in front of the step that makes this and waits. None: not all of its members are there again, or only where they cannot be folded in.
    fn mend(
        &mut self,
        me: NodeNumber,
        made: ObjectId,
        found: &[Member],
        named: impl Fn(u32) -> ObjectId,
    ) -> Option<Mended> {
        let at = self.steps.iter().position(|step| step.made == made)?;
        let gap = self.gap(at)?;
        let Shape::Chain { head, bytes, op, names } = self.shape else { return None };
        let Step { node: waits, turn: until, .. } = self.steps[at];
        let member = |object: ObjectId| found.iter().find(|it| it.object == object).cloned();
        let members: Option<Vec<Member>> = self.members_of(&gap).into_iter().map(member).collect();
        let mut by_node = plan::by_node(me, &members?)?;
        let operands = by_node.remove(&waits).unwrap_or_default();
        let rest = self.broken.rests[&made].clone();
        let mut steps = gap.steps.clone();
        let mut ended = None;
        // What the first new fold begins with, and who folds what.
        let mut new_head = head;
        let mut order: Vec<(NodeNumber, Vec<ObjectId>)> = Vec::new();
        if gap.head {
            let (node, mut own) = by_node.pop_first()?;
            new_head = (node, own.pop()?);
            order.push((node, own));
        } else if let Some(before) = steps.start.checked_sub(1) {
            let before = &self.steps[before];
            if let Some(mut own) = by_node.remove(&before.node) {
                if self.broken.rests.contains_key(&before.made) {
                    return None;
                }
                own.extend(&before.operands);
                order.push((before.node, own));
                ended = Some((before.node, before.made));
                steps.start -= 1;
            }
        } else if let Some(own) = by_node.remove(&head.0) {
            order.push((head.0, own));
        }
        order.extend(by_node);
        let before = steps.start.checked_sub(1).map(|it| &self.steps[it]);
        if before.is_some_and(|it| it.begin > rest.from) {
            return None; // it took the place of another one, when that had more than this one has
        }
        let after = before.map_or(0, |it| it.turn);
        let mut upstream = before.map_or(new_head, |it| (it.node, it.made));
        let mut name = names;
        let (count, room) = (order.len() as u64, until - after);
        if count >= room {
            return None;
        }
        let fold = |(nth, (node, operands)): (u64, (NodeNumber, Vec<ObjectId>))| {
            let made = named(name);
            name += 1;
            let (from, source) = std::mem::replace(&mut upstream, (node, made));
            let turn = after + room * (nth + 1) / (count + 1);
            let fold = Fold {
                made,
                op,
                bytes,
                from,
                upstream: source,
                operands,
                turn,
                divide_by: None,
                ring: None,
                result: None,
                rest: Some(rest.clone()),
            };
            (node, fold)
        };
        let folds: Folds = (0..).zip(order).map(fold).collect();
        let (from, upstream) = upstream;
        if from == waits {
            return None; // nobody fetches from itself
        }
        self.steps[at].operands.extend(&operands);
        let goes_on = Effect::FoldFrom { at: waits, made, from, upstream, operands };
        self.shape = Shape::Chain { head: new_head, bytes, op, names: name };
        self.broken.rests.remove(&made);
        self.steps.splice(steps, folds.iter().map(Step::of));
        Some(Mended { folds, goes_on, ended })
    }
}
