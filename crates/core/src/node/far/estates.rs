//! Estates of dead nodes: who is in charge of them, what is told to heirs, and when a death is passed.
//!
//! The directories know what objects are (`core/objects/on_estate`), the claims who uses them (`core/claims`, NREF-5). Here both hear who is
//! the heir, the directory before the claims: what it tells goes over the link before the claims that announce it, and
//! is covered.
//!
//! # Invariants
//! - FAR-5: this node says that it passed a death when its claims did, when it has read once what lay in its sockets at the death, and when each
//!   heir has heard what the directory knew until then. So when all have passed, heirs know all that anybody knew.
//! - FAR-6: what another node says to this one as to an heir, before this one has heard of the death that makes it the heir, waits until
//!   then. What it names is held meanwhile.

use std::collections::BTreeSet;

use hoplo_base::limits::{EARLY_MESSAGES_MAX, LINEAGE_TOLD_BYTES_MAX};
use hoplo_base::{ActorId, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::{Obituary, ToNode};
use hoplo_wire::peer::{Known, Peer};

use super::Node;
use super::routing::named;
use crate::claims::Epoch;
use crate::node::sweeps::Deferred;
use crate::objects::{self, Heir};

#[derive(Debug, Default)]
pub(super) struct Estates {
    /// FAR-6: who said what.
    early: Vec<(NodeNumber, Peer)>,
    /// FAR-5: of the last death.
    passing: Option<Passing>,
    /// Heirs that were told something, and were not asked since whether they heard it.
    told: BTreeSet<NodeNumber>,
}

#[derive(Debug)]
struct Passing {
    epoch: Epoch,
    /// The claims have passed.
    confirmed: bool,
    swept: bool,
    /// Heirs that did not say yet that they heard.
    unheard: BTreeSet<NodeNumber>,
}

impl Estates {
    pub(super) fn is_empty(&self) -> bool {
        self.early.is_empty() && self.passing.is_none()
    }
}

impl Node {
    /// Who has the last word on it: its home, or that one's heir.
    pub(in crate::node) fn in_charge(&self, object: ObjectId) -> NodeNumber {
        self.objects.in_charge(object.task.owner.node())
    }

    pub(super) fn heirs_after(&self, node: NodeNumber, heir: Option<NodeNumber>) -> Vec<Heir> {
        let heirs = self.far.claims.heirs_after(node, heir).into_iter();
        heirs.map(|(home, heir)| Heir { home, heir }).collect()
    }

    /// The directory knows something of what is in the charge of another node.
    pub(in crate::node) fn tell_known(&mut self, object: ObjectId, known: Known) {
        if let Known::Copy { word, .. } = known {
            return self.tell_home(object, word, Peer::Known { object, known });
        }
        self.send_peer(self.in_charge(object), Peer::Known { object, known });
        self.told_heir(object);
    }

    /// FAR-5
    pub(super) fn told_heir(&mut self, object: ObjectId) {
        let heir = self.in_charge(object);
        if heir != object.task.owner.node() {
            self.far.estates.told.insert(heir);
        }
    }

    /// A node claims what is pending here: it hears how it is made, in case that this one dies.
    pub(super) fn tell_lineage(&mut self, to: NodeNumber, object: ObjectId) {
        let Some((_, lineage)) = self.objects.pending(object) else { return };
        if lineage.frame.len() <= LINEAGE_TOLD_BYTES_MAX {
            let lineage = lineage.clone();
            self.send_peer(to, Peer::Lineage { object, lineage });
            self.pass_to_objects(objects::Event::LineageGiven { node: to, object });
        }
    }

    // ---- a death ----

    pub(super) fn begin_passing(&mut self, dead: NodeNumber, epoch: Epoch) {
        let estates = &mut self.far.estates;
        // Who did not say yet that it heard of an earlier death, did not hear what was told then: it is asked again.
        estates.told.extend(estates.passing.take().into_iter().flat_map(|it| it.unheard));
        estates.told.remove(&dead);
        let (confirmed, swept, unheard) = (false, false, BTreeSet::new());
        estates.passing = Some(Passing { epoch, confirmed, swept, unheard });
        self.sweeps.defer(Deferred::Estates(epoch));
    }

    /// The claims know as well that these estates have new heirs. What is known of ours is held from now on, until the claims free it.
    pub(super) fn inherits(&mut self, dead: NodeNumber, homes: &BTreeSet<NodeNumber>) {
        let known = self.far.claims.known_of(homes);
        self.cross(&known);
        self.work_off_queue();
        self.pass_last_words(dead);
        self.hear_early();
    }

    /// What came early and is in our charge by now.
    pub(super) fn hear_early(&mut self) {
        for (from, message) in std::mem::take(&mut self.far.estates.early) {
            let held = named(&message);
            if self.far.dead.contains_key(&from) {
                self.pass_to_objects(objects::Event::NodeReleased { objects: held });
            } else if self.not_in_charge(&message).is_some() {
                self.far.estates.early.push((from, message));
            } else {
                self.on_message(from, message);
                self.pass_to_objects(objects::Event::NodeReleased { objects: held });
            }
            self.work_off_queue();
        }
    }

    pub(in crate::node) fn estates_swept(&mut self, epoch: Epoch) {
        let estates = &mut self.far.estates;
        let Some(passing) = estates.passing.as_mut().filter(|it| it.epoch == epoch) else { return };
        passing.swept = true;
        passing.unheard = std::mem::take(&mut estates.told);
        for heir in passing.unheard.clone() {
            self.send_peer(heir, Peer::Announced { epoch: epoch.0 });
        }
        self.look_at_passing();
    }

    pub(super) fn heir_heard(&mut self, heir: NodeNumber, epoch: u64) {
        if let Some(passing) = &mut self.far.estates.passing
            && passing.epoch == Epoch(epoch)
        {
            passing.unheard.remove(&heir);
            self.look_at_passing();
        }
    }

    pub(super) fn claims_passed(&mut self, epoch: Epoch) {
        if let Some(passing) = &mut self.far.estates.passing
            && passing.epoch == epoch
        {
            passing.confirmed = true;
            self.look_at_passing();
        }
    }

    fn look_at_passing(&mut self) {
        let done = |it: &mut Passing| it.confirmed && it.swept && it.unheard.is_empty();
        if let Some(passing) = self.far.estates.passing.take_if(done) {
            self.has_passed(passing.epoch);
        }
    }

    /// All have passed some death.
    pub(super) fn estates_announced(&mut self) {
        // An actor is in its table before nobody holds its handle for that.
        self.legacies_settled();
        let homes = self.objects.unannounced();
        let homes: Vec<NodeNumber> =
            homes.into_iter().filter(|home| self.far.claims.is_announced(*home)).collect();
        if !homes.is_empty() {
            self.pass_to_objects(objects::Event::Announced { homes });
        }
    }

    // ---- what comes early ----

    /// What the message says is for who is in charge of this, which this node is not, as far as it has heard.
    pub(super) fn not_in_charge(&self, message: &Peer) -> Option<ObjectId> {
        let object = match message {
            Peer::Want { objects, .. }
            | Peer::NotAdopted { objects }
            | Peer::MadeAt { objects, .. } => objects.first().copied(),
            Peer::Sealed { object, .. }
            | Peer::Copied { object, .. }
            | Peer::NotCopied { object }
            | Peer::Known { object, .. } => Some(*object),
            Peer::ActorKnown(known) => Some(known.spec.actor.handle()),
            Peer::ActorEnded { actor } => Some(actor.handle()),
            Peer::From { message, .. } => match &**message {
                ToNode::ActorLookup { namespace, name, .. } => {
                    return self.lookup_waits(&(namespace.clone(), name.clone()));
                }
                about => return self.waits_for_heir(about).map(ActorId::handle),
            },
            _ => None,
        };
        object.filter(|object| self.in_charge(*object) != self.me())
    }

    /// Its worker, of which the same node told before, is gone.
    pub(super) fn known_worker_gone_early(
        &mut self,
        from: NodeNumber,
        process: ProcessId,
        obituary: &Obituary,
    ) {
        let its = |message: &Peer| matches!(message, Peer::ActorKnown(known) if known.worker == Some(process));
        if self.far.estates.early.iter().any(|(_, message)| its(message)) {
            let obituary = obituary.clone();
            self.far.estates.early.push((from, Peer::Gone { process, obituary }));
        }
    }

    pub(super) fn keep_early(
        &mut self,
        from: NodeNumber,
        object: ObjectId,
        message: Peer,
        named: &[ObjectId],
    ) {
        if self.far.estates.early.len() >= EARLY_MESSAGES_MAX {
            self.violations += 1;
            return self.log(format!("{from} takes this node for the home of {object}"));
        }
        self.pass_to_objects(objects::Event::NodeHeld { objects: named.to_vec() });
        self.far.estates.early.push((from, message));
    }
}
