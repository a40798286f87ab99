//! Broker: at the daemon of who wants something, says how much of it each node is asked for.
//!
//! It stands between the demands of this node's processes (and the placements of actors that are at home here) and the local
//! schedulers: ours and those of other nodes. As long as there is no other node it has no state and hands everything on.
//!
//! ```text
//!                  /-- home: all of it is asked here --patience over--\
//!  Demanded ------+--- spread, or not for this node ------------------+--> Look --> Seek --> Found --> parts move
//!                  \-- a node by name: all of it is asked there                        ^---- pause -------/
//! ```
//! A claim has **parts**: so many leases asked for at a node. What is asked for nowhere is its **rest**. By default the rest is
//! here, in the queue of the local scheduler, so that turns, elders and recalls work as on one node; of a shape that this
//! node must not or cannot run the rest waits in the broker.
//!
//! **Seeking.** After `BROKER_PATIENCE` the local scheduler is looked at (`Look`): what it has a starting worker for stays. For
//! what could move the global scheduler is asked, one question of a claim at a time, always under the same number. It
//! answers more than once, whenever there is room. We ask anew at once when a node joined or died, else after pauses
//! that double up to `SEEK_PAUSE_MAX`: a want that stays unmet does not spin, and a lost head is found again.
//!
//! **Moving.** Into room go first the rest, then what waits here without a worker, then what other nodes have not
//! granted for `PART_PATIENCE`, or `STARTING_PATIENCE` where a worker starts for it. To wait elsewhere (`Queue`) goes only what is
//! beyond one round here, and one round a node.
//!
//! **Spreading.** Of a shape that spreads the process is told for how many leases room was found (`Coming`), so that it keeps
//! work for those that are still to come.
//!
//! **By name.** What must run on one node waits for it as long as it lives or drains. When it is dead, or was not heard of for
//! `NODE_UNKNOWN_AFTER`, the claim fails: no number is given twice, so it would wait for ever.
//!
//! **Groups.** What is asked for in a placement group fails when the group ends, also while it waits nowhere but here. Other nodes withdraw
//! it from who was asked, and a node that is asked for it later says itself that the group is no more.
//!
//! **Withdrawing.** When a demand falls, what is beyond one round here goes first, then what was asked for longest ago
//! elsewhere. An absolute number that crossed a grant may be too high at that node; so who was asked twice is told 0 at the end.
//!
//! **A silent head.** While it answers nothing, what spreads is wanted here like everything else, if this node could run it: to spread is a
//! wish. What has to wait for the head is told so (`words`). Nothing is sought before it speaks again; then all claims are looked at anew.
//!
//! **Full.** While the store and the disk of this node have no room, what another node could run is asked for here only if the head says so,
//! which it does if the others are full as well. What waits here then moves.
//!
//! # Invariants
//! - BRK-1: the parts of a claim sum to at most what is wanted.
//! - BRK-2: who is asked grants, queues or refuses; nobody forwards. Nothing that a peer asks comes by here.
//! - BRK-3: a node that is not live, or that could never run it, has no part; but a node that was asked for by name may lack
//!   what it needs, and says so.
//! - BRK-4: a claim that is unmet and not for a node by name asks again some time: it is due, or an answer is under way.

mod claim;
mod event;
mod moving;
mod seeking;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::bundles::group_of;
use hoplo_base::limits::{LEASES_FREE_MAX, NODE_UNKNOWN_AFTER};
use hoplo_base::{ActorId, Instant, JobId, NodeNumber, ResourceSet};
use hoplo_wire::node::{LabelSelector, Shape, Strategy};

use super::claim::{Claimant, Stuck, silence_of_head};
use super::place::{Place, selectors};

use claim::{Claim, Mode, Seeking};
pub use event::{Effect, Event};

#[derive(Debug)]
pub struct Broker {
    here: NodeNumber,
    /// Live ones, this one among them.
    places: BTreeMap<NodeNumber, Place>,
    /// This node gives nothing any more; what its processes want is asked for elsewhere.
    drains: bool,
    /// It has no room for objects.
    full: bool,
    /// Nodes that were known and take nothing any more: whether dead.
    closed: BTreeMap<NodeNumber, bool>,
    claims: BTreeMap<Claimant, Claim>,
    by_seek: BTreeMap<u64, Claimant>,
    last_seek: u64,
    due: BTreeSet<(Instant, Claimant)>,
    silent: Option<SilentHead>,
}

/// It answers nothing.
#[derive(Debug)]
struct SilentHead {
    address: String,
    since: Instant,
}

impl Broker {
    /// `place`: of this node.
    pub fn new(place: Place) -> Self {
        let here = place.node;
        Self {
            here,
            places: BTreeMap::from([(here, place)]),
            drains: false,
            full: false,
            closed: BTreeMap::new(),
            claims: BTreeMap::new(),
            by_seek: BTreeMap::new(),
            last_seek: 0,
            due: BTreeSet::new(),
            silent: None,
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Joined { place } => self.on_joined(now, place, effects),
            Event::Drains { node } => self.on_closed(now, node, false, effects),
            Event::Gone { node } => self.on_closed(now, node, true, effects),
            Event::Demanded { claimant, job, shape, held, wanted } => {
                self.on_demanded(now, claimant, job, shape, held, wanted, effects);
            }
            Event::WaitsHere { claimant, job, shape, held, wanted } => {
                self.on_waits_here(now, claimant, job, shape, held, wanted, effects);
            }
            Event::GaveUp { actor } => match self.claim_of(actor) {
                Some(claimant) => self.end(claimant, None, effects),
                None => effects.push(Effect::GiveUp { node: self.here, actor }),
            },
            Event::Looked { claimant, reserved } => {
                self.on_looked(now, claimant, reserved, effects);
            }
            Event::Found { seek, found } => self.on_found(now, seek, found, effects),
            Event::Granted { claimant, node } => self.on_granted(now, claimant, node, effects),
            Event::Stuck { claimant, node, stuck } => {
                self.on_stuck(now, claimant, node, stuck, effects);
            }
            Event::HeadSilent { address, since } => {
                self.on_head_silent(now, SilentHead { address, since }, effects);
            }
            Event::HeadHeard => self.on_head_heard(now, effects),
            Event::Full { full } => self.on_full(now, full, effects),
            Event::Failed { claimant, node } => self.end(claimant, Some(node), effects),
            Event::GroupEnded { group } => {
                let in_it = |claim: &Claim| group_of(&claim.shape.resources) == Some(group);
                let of_it = self.claims.iter().filter(|(_, claim)| in_it(claim));
                for claimant in of_it.map(|(id, _)| *id).collect::<Vec<_>>() {
                    self.end(claimant, None, effects);
                    effects.push(Effect::FailOfGroup { claimant, group });
                }
            }
            Event::ProcessGone { process } => {
                let first = Claimant::Demand { process, key: 0 };
                let last = Claimant::Demand { process, key: u32::MAX };
                let theirs: Vec<_> = self.claims.range(first..=last).map(|(id, _)| *id).collect();
                for claimant in theirs {
                    self.end(claimant, None, effects);
                }
            }
            Event::Tick => {}
        }
        while let Some((_, claimant)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.wake(now, claimant, effects);
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// There is nobody else, and nothing is left from when there was: what is demanded goes straight to the local scheduler.
    pub fn is_alone(&self) -> bool {
        self.places.len() <= 1 && self.claims.is_empty()
    }

    /// This node, as it joined.
    pub fn here(&self) -> &Place {
        &self.places[&self.here]
    }

    /// What waits that no local scheduler knows of: who, how many, of which shape.
    pub fn waiting(&self) -> impl Iterator<Item = (Claimant, u32, &Shape)> {
        let unasked = self.claims.iter().filter(|(_, claim)| claim.rest() > 0);
        unasked.map(|(claimant, claim)| (*claimant, claim.rest(), &claim.shape))
    }

    /// The claim of this actor, if it is asked for at any node by us.
    pub fn claim_of(&self, actor: ActorId) -> Option<Claimant> {
        let first = Claimant::Actor { actor, incarnation: 0 };
        let last = Claimant::Actor { actor, incarnation: u32::MAX };
        self.claims.range(first..=last).next().map(|(claimant, _)| *claimant)
    }

    /// Where it is asked for, here included.
    pub fn parts(&self, claimant: Claimant) -> impl Iterator<Item = (NodeNumber, u32)> {
        let parts = self.claims.get(&claimant).into_iter().flat_map(|claim| &claim.parts);
        parts.filter(|(_, part)| part.wanted > 0).map(|(node, part)| (*node, part.wanted))
    }

    /// What this node's local scheduler was asked for: who, how many.
    pub fn asked_here(&self) -> impl Iterator<Item = (Claimant, u32)> {
        let parts = self.claims.iter().map(|(id, claim)| (*id, claim.parts.get(&self.here)));
        parts.filter_map(|(id, part)| part.map(|part| (id, part.sent)))
    }

    /// Why it waits, as far as other nodes have to do with it. `None`: the local scheduler knows.
    pub fn explain(&self, claimant: Claimant) -> Option<Stuck> {
        let claim = self.claims.get(&claimant)?;
        if let Some(told) = &claim.told {
            return Some(told.clone());
        }
        let far: Vec<String> = claim
            .parts
            .iter()
            .filter(|(node, part)| **node != self.here && part.wanted > 0)
            .map(|(node, part)| format!("{} at node {}", part.wanted, node.hex()))
            .collect();
        if !far.is_empty() {
            let reason = format!("it waits for {}", far.join(", ")).into();
            return Some(Stuck { reason, infeasible: false });
        }
        let unasked = claim.rest() > 0;
        let reason = "it looks for a node that has room".into();
        unasked.then_some(Stuck { reason, infeasible: false })
    }

    /// Asserts the invariants of the module's doc.
    pub fn check(&self, now: Instant) {
        for (claimant, claim) in &self.claims {
            assert!(claim.wanted > 0, "{claimant:?} wants nothing");
            assert!(claim.asked() <= claim.wanted, "BRK-1: {claimant:?}: {claim:?}");
            let by_name = matches!(self.mode(&claim.shape), Mode::At(_) | Mode::Nowhere(_));
            for (node, part) in claim.parts.iter().filter(|(_, part)| part.wanted > 0) {
                let place = self.places.get(node);
                assert!(part.sent == part.wanted, "{claimant:?}: {node} was not told");
                assert!(place.is_some(), "BRK-3: {claimant:?} asks {node}");
                let could = |place: &Place| {
                    selectors(&claim.shape).iter().any(|it| place.could(&claim.shape, it))
                };
                assert!(by_name || place.is_some_and(could), "BRK-3: {claimant:?} asks {node}");
            }
            assert!(claim.due.is_none_or(|at| at > now), "{claimant:?} is overdue");
            assert!(by_name || claim.due.is_some(), "BRK-4: {claimant:?}");
            assert_eq!(self.by_seek.get(&claim.seek), Some(claimant), "{claimant:?}");
        }
        let due = self.claims.iter().filter_map(|(id, claim)| Some((claim.due?, *id)));
        assert_eq!(self.due, due.collect::<BTreeSet<_>>());
        assert_eq!(self.by_seek.len(), self.claims.len());
    }

    // -------------------------------------------------------------------------------- demands

    #[expect(clippy::too_many_arguments, reason = "a demand has so many parts")]
    fn on_demanded(
        &mut self,
        now: Instant,
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
        wanted: u32,
        effects: &mut Vec<Effect>,
    ) {
        let known = self.claims.get(&claimant);
        let alone = self.places.len() <= 1 && !self.names_another(&shape);
        if known.is_none() && (alone || wanted == 0) {
            let node = self.here;
            let spreads = shape.strategy == Strategy::Spread;
            effects.push(Effect::Ask { node, claimant, job, shape, held, wanted });
            if spreads && wanted > 0 {
                effects.push(Effect::Coming { claimant, wanted, count: 0 });
            }
            return;
        }
        if wanted == 0 {
            return self.end(claimant, None, effects);
        }
        if known.is_some_and(|claim| claim.shape != shape) {
            self.end(claimant, None, effects);
        }
        if !self.claims.contains_key(&claimant) {
            self.begin(now, claimant, job, shape, held);
        }
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        let more = wanted > claim.wanted;
        claim.counted &= !more;
        claim.wanted = wanted;
        let refused = claim.refused || self.silent.is_some();
        if refused {
            self.tell_coming(claimant, effects); // a moment ago
        }
        self.fit(now, claimant, effects);
        let claim = &self.claims[&claimant];
        let spreads = self.mode(&claim.shape) == Mode::Spread;
        if spreads && more && !refused && claim.seeking == Seeking::Rests {
            self.arm(claimant, now);
        }
    }

    /// Of the time when there was nobody else.
    #[expect(clippy::too_many_arguments, reason = "a demand has so many parts")]
    fn on_waits_here(
        &mut self,
        now: Instant,
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
        wanted: u32,
        effects: &mut Vec<Effect>,
    ) {
        if wanted == 0 || self.claims.contains_key(&claimant) {
            return;
        }
        self.begin(now, claimant, job, shape, held);
        let here = self.here;
        let claim = self.claims.get_mut(&claimant).expect("it has just begun");
        claim.wanted = wanted;
        claim.set(now, here, wanted);
        claim.parts.get_mut(&here).expect("it was just set").sent = wanted;
        self.fit(now, claimant, effects);
    }

    fn begin(
        &mut self,
        now: Instant,
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
    ) {
        self.last_seek += 1;
        self.by_seek.insert(self.last_seek, claimant);
        let claim = Claim::new(now, job, shape, held, self.last_seek);
        self.claims.insert(claimant, claim);
    }

    fn on_granted(
        &mut self,
        now: Instant,
        claimant: Claimant,
        node: NodeNumber,
        effects: &mut Vec<Effect>,
    ) {
        let Some(claim) = self.claims.get_mut(&claimant) else { return };
        claim.wanted -= 1;
        claim.coming = claim.coming.saturating_sub(1);
        if let Some(part) = claim.parts.get_mut(&node) {
            // That node counts it as well.
            part.sent = part.sent.saturating_sub(1);
            part.wanted = part.wanted.saturating_sub(1);
        }
        if claim.wanted == 0 {
            self.tell(now, claimant, None, effects);
            return self.end(claimant, None, effects);
        }
        self.tell(now, claimant, None, effects);
        self.fit(now, claimant, effects);
    }

    /// Nothing is wanted any more. `except` knows it.
    fn end(&mut self, claimant: Claimant, except: Option<NodeNumber>, effects: &mut Vec<Effect>) {
        let Some(claim) = self.claims.remove(&claimant) else { return };
        if let Some(at) = claim.due {
            self.due.remove(&(at, claimant));
        }
        self.by_seek.remove(&claim.seek);
        for (node, part) in &claim.parts {
            if Some(*node) != except && self.places.contains_key(node) && part.is_open() {
                effects.push(ask(*node, claimant, &claim, 0));
            }
        }
        if claim.stands > 0 {
            let (seek, shape) = (claim.seek, claim.shape);
            effects.push(Effect::Seek { seek, shape, wanted: 0 });
        }
    }

    // -------------------------------------------------------------------------------- nodes

    fn on_joined(&mut self, now: Instant, place: Place, effects: &mut Vec<Effect>) {
        let was_alone = self.places.len() <= 1;
        self.closed.remove(&place.node);
        self.places.insert(place.node, place);
        if was_alone && self.places.len() > 1 {
            effects.push(Effect::Recite);
        }
        self.look_again(now, effects);
    }

    fn on_closed(&mut self, now: Instant, node: NodeNumber, dead: bool, effects: &mut Vec<Effect>) {
        if node == self.here {
            // Of its death a node does not live to hear.
            self.drains = true;
            self.closed.insert(node, dead);
            return self.look_again(now, effects);
        }
        let place = self.places.remove(&node);
        let draining = place.is_some() && !dead;
        if self.closed.len() >= CLOSED_MAX {
            self.closed.pop_first();
        }
        self.closed.insert(node, dead);
        for (claimant, claim) in &mut self.claims {
            if let Some(part) = claim.parts.remove(&node)
                && draining
                && part.is_open()
            {
                effects.push(ask(node, *claimant, claim, 0));
            }
        }
        self.look_again(now, effects);
    }

    fn on_full(&mut self, now: Instant, full: bool, effects: &mut Vec<Effect>) {
        self.full = full;
        for claimant in self.claims.keys().copied().collect::<Vec<_>>() {
            let shape = &self.claims[&claimant].shape;
            let moves = matches!(self.mode(shape), Mode::Home | Mode::Spread);
            if moves && self.is_avoided(shape) {
                let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
                claim.set(now, self.here, 0);
            }
        }
        self.look_again(now, effects);
    }

    /// The nodes are others than before: each claim may be for others.
    fn look_again(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let claimants: Vec<_> = self.claims.keys().copied().collect();
        for claimant in claimants {
            let claim = self.claims.get_mut(&claimant).expect("it was just listed");
            (claim.refused, claim.pause) = (false, None);
            self.fit(now, claimant, effects);
            let claim = &self.claims[&claimant];
            let seeks = matches!(self.mode(&claim.shape), Mode::Home | Mode::Spread);
            if seeks && let Seeking::Rests = claim.seeking {
                let patience = claim.patience_over();
                self.arm(claimant, now.max(patience));
            }
        }
    }

    fn mode(&self, shape: &Shape) -> Mode {
        match shape.strategy {
            Strategy::Spread if self.silent.is_none() => Mode::Spread,
            Strategy::Spread | Strategy::Default => Mode::Home,
            Strategy::Node { node, soft } => match self.places.get(&node) {
                Some(place) if !soft && self.takes(place) => Mode::At(node),
                Some(place) if soft && self.could(place, shape) => Mode::At(node),
                Some(_) if soft => Mode::Home,
                Some(_) => Mode::Nowhere(node),
                None if soft => Mode::Home,
                None => Mode::Nowhere(node),
            },
        }
    }

    /// It must run on a node that is not this one. What does so comes by here, also where there is no other node.
    pub fn names_another(&self, shape: &Shape) -> bool {
        matches!(shape.strategy, Strategy::Node { node, soft: false } if node != self.here)
    }

    fn could(&self, place: &Place, shape: &Shape) -> bool {
        self.takes(place) && self.selector(shape).is_some_and(|it| place.could(shape, it))
    }

    /// This node has no room for objects, and another one could run it. Which one has a bundle, the head knows.
    fn is_avoided(&self, shape: &Shape) -> bool {
        let others = || self.places.values().filter(|place| place.node != self.here);
        self.full
            && self.silent.is_none()
            && group_of(&shape.resources).is_none()
            && others().any(|place| self.could(place, shape))
    }

    fn takes(&self, place: &Place) -> bool {
        !self.drains || place.node != self.here
    }

    /// The first one that anyone meets.
    fn selector<'a>(&self, shape: &'a Shape) -> Option<&'a LabelSelector> {
        let live = self.places.values().filter(|place| self.takes(place));
        let met = |it: &&LabelSelector| live.clone().any(|place| place.could(shape, it));
        selectors(shape).iter().find(met)
    }

    /// Leases of this shape that one round at that node is.
    fn round(&self, node: NodeNumber, shape: &Shape) -> u32 {
        let slots = |place: &Place| place.slots(&shape.resources, LEASES_FREE_MAX as u32);
        self.places.get(&node).map_or(0, slots)
    }

    fn arm(&mut self, claimant: Claimant, at: Instant) {
        let claim = self.claims.get_mut(&claimant).expect("it is armed");
        if let Some(before) = claim.due.replace(at) {
            self.due.remove(&(before, claimant));
        }
        self.due.insert((at, claimant));
    }

    // -------------------------------------------------------------------------------- words

    fn on_stuck(
        &mut self,
        now: Instant,
        claimant: Claimant,
        node: NodeNumber,
        stuck: Option<Stuck>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(claim) = self.claims.get(&claimant) else {
            if node == self.here {
                effects.push(Effect::Tell { claimant, stuck });
            }
            return;
        };
        let by_name = matches!(self.mode(&claim.shape), Mode::At(only) if only == node);
        if !by_name {
            let waits_here = claim.parts.get(&self.here).is_some_and(|part| part.wanted > 0);
            // Of those that it waits at the nearest one speaks. What none could run only the head knows.
            let infeasible = stuck.as_ref().is_some_and(|stuck| stuck.infeasible);
            if infeasible || (node != self.here && waits_here) {
                return;
            }
        }
        let reason = |stuck: Stuck| {
            let far = hoplo_wire::Reason::from(format!("node {}: ", node.hex()));
            Stuck { reason: far.and(stuck.reason), ..stuck }
        };
        let stuck = if node == self.here { stuck } else { stuck.map(reason) };
        self.tell(now, claimant, stuck, effects);
    }

    fn tell(
        &mut self,
        now: Instant,
        claimant: Claimant,
        stuck: Option<Stuck>,
        effects: &mut Vec<Effect>,
    ) {
        self.claims.get_mut(&claimant).expect("the caller looked it up").said = stuck;
        self.tell_words(now, claimant, effects);
    }

    fn tell_words(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        let stuck = self.words(now, &self.claims[&claimant]);
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        if claim.told != stuck {
            claim.told = stuck.clone();
            effects.push(Effect::Tell { claimant, stuck });
        }
    }

    /// Why it waits, for who waits.
    fn words(&self, now: Instant, claim: &Claim) -> Option<Stuck> {
        let seeks = matches!(self.mode(&claim.shape), Mode::Home | Mode::Spread);
        let Some(head) = self.silent.as_ref().filter(|_| seeks) else {
            return claim.said.clone();
        };
        let silence = silence_of_head(&head.address, head.since, now);
        match &claim.said {
            Some(stuck) if stuck.infeasible => Some(stuck.clone()),
            Some(stuck) => {
                let nowhere_else = format!("; no other node is looked for: {silence}");
                Some(Stuck { reason: stuck.reason.clone().and(nowhere_else), ..stuck.clone() })
            }
            None if claim.rest() > 0 => {
                let reason = format!("{silence}; it waits for it").into();
                Some(Stuck { reason, infeasible: false })
            }
            None => None,
        }
    }

    fn on_head_silent(&mut self, now: Instant, head: SilentHead, effects: &mut Vec<Effect>) {
        self.silent = Some(head);
        for claimant in self.claims.keys().copied().collect::<Vec<_>>() {
            self.refuse(claimant, effects);
            self.fit(now, claimant, effects);
            self.tell_words(now, claimant, effects);
        }
    }

    fn on_head_heard(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.silent.take().is_none() {
            return;
        }
        self.look_again(now, effects);
        for claimant in self.claims.keys().copied().collect::<Vec<_>>() {
            self.tell_words(now, claimant, effects);
        }
    }

    fn why_nowhere(&self, node: NodeNumber) -> String {
        let what = match self.closed.get(&node) {
            Some(true) => "is dead",
            Some(false) => "takes no more",
            None => "is not in this cluster",
        };
        format!("needs node {}, which {what}", node.hex())
    }

    /// When it is told of a node that is not there: at once of one that was, else after a while, since we may not have
    /// heard of it yet.
    fn nowhere_at(&self, claim: &Claim, node: NodeNumber) -> Instant {
        let known = self.closed.contains_key(&node);
        if known { claim.since } else { claim.since + NODE_UNKNOWN_AFTER }
    }
}

/// Nodes that are remembered for what became of them.
const CLOSED_MAX: usize = 1024;

fn ask(node: NodeNumber, claimant: Claimant, claim: &Claim, wanted: u32) -> Effect {
    match claimant {
        Claimant::Actor { actor, .. } if wanted == 0 => Effect::GiveUp { node, actor },
        Claimant::Actor { .. } | Claimant::Demand { .. } => Effect::Ask {
            node,
            claimant,
            job: claim.job,
            shape: claim.shape.clone(),
            held: claim.held.clone(),
            wanted,
        },
    }
}

#[cfg(test)]
mod tests;
