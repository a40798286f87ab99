//! Why something waits: first everybody says what the id names, then the chain is followed round by round.
//!
//! ```text
//!   Naming --a thing--> Following --nothing more to ask--> answered
//!      \--nobody knows it--> answered with what the daemon remembers
//! ```
//! Who is late in one round is not asked in the next: a stuck process costs the answer one wait. Processes that are slow, but
//! not late, cost it as much in every round: so a round begins only while it can end within `WHY_PATIENCE` of the question,
//! and what is known by then is the answer.
//!
//! Other nodes are asked the same in the same rounds, and tell what their processes and tables know. They also tell what their processes
//! are called: a pid means something at its node only. Whom the last round named, and nobody knows yet, is asked for in a round
//! of its own, of its node only.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{INSPECT_PATIENCE, WHY_PATIENCE};
use hoplo_base::{AnyId, Instant, NodeNumber, ProcessId};
use hoplo_wire::Reason;
use hoplo_wire::node::ActorState;
use hoplo_wire::peer::Peer;

use super::subject::{Report, Wanted};
use crate::node::Node;
use crate::why::{Chain, Link, Question, Thing, Told};

/// One question, while its rounds go on.
#[derive(Debug)]
pub(super) struct Inquiry {
    wanted: Wanted,
    /// `None`: it is being asked what the id names.
    chain: Option<Chain>,
    /// Who did not answer in time, at whatever node.
    late: BTreeSet<ProcessId>,
    /// Nodes that did not, or cannot.
    late_nodes: BTreeSet<NodeNumber>,
    /// What processes of other nodes are called there, and those of which that is not known yet.
    names: BTreeMap<ProcessId, String>,
    unnamed: BTreeSet<ProcessId>,
    /// The chain is followed: this round asks for names, and is the last one.
    naming: bool,
    /// No round lasts longer.
    until: Instant,
}

impl Inquiry {
    pub(super) fn new(wanted: Wanted, now: Instant) -> Self {
        Self {
            wanted,
            chain: None,
            late: BTreeSet::new(),
            late_nodes: BTreeSet::new(),
            names: BTreeMap::new(),
            unnamed: BTreeSet::new(),
            naming: false,
            until: now + WHY_PATIENCE,
        }
    }

    pub(super) fn has_time(&self, now: Instant) -> bool {
        now + INSPECT_PATIENCE <= self.until
    }

    /// What this round asks every process but the late ones.
    pub(super) fn question(&self) -> Question {
        match &self.chain {
            None => Question::Named(self.wanted.text.clone()),
            Some(_) if self.naming => Question::Links(Vec::new()),
            Some(chain) => Question::Links(chain.to_ask().to_vec()),
        }
    }

    /// The same, for another node.
    pub(super) fn for_node(&self, request: u64, node: NodeNumber) -> Option<Peer> {
        if self.late_nodes.contains(&node) {
            return None;
        }
        let of_node = |processes: &BTreeSet<ProcessId>| {
            processes.iter().copied().filter(|process| process.node() == node).collect()
        };
        let (late, named): (Vec<_>, Vec<_>) = (of_node(&self.late), of_node(&self.unnamed));
        if self.naming && named.is_empty() {
            return None;
        }
        Some(Peer::Explain { request, question: self.question(), late, named })
    }

    /// The answer has the thing's history, too.
    pub(super) fn remembers(&self) -> bool {
        self.wanted.remembers
    }

    /// What other nodes are asked in the end, but for those that are late.
    pub(super) fn memory_of_node(&self, request: u64, node: NodeNumber) -> Option<Peer> {
        let (kind, argument) = ("memory".to_string(), self.wanted.text.clone());
        (!self.late_nodes.contains(&node)).then_some(Peer::Query { request, kind, argument })
    }

    pub(super) fn late(&self) -> &BTreeSet<ProcessId> {
        &self.late
    }

    /// A round ended without these.
    pub(super) fn is_late(&mut self, waiting: BTreeSet<ProcessId>, nodes: BTreeSet<NodeNumber>) {
        self.late.extend(waiting);
        self.late_nodes.extend(nodes);
    }

    pub(super) fn cannot(&mut self, node: NodeNumber) {
        self.late_nodes.insert(node);
    }

    pub(super) fn hears_names(&mut self, names: Vec<(ProcessId, String)>) {
        for (process, name) in names {
            self.unnamed.remove(&process);
            self.names.insert(process, name);
        }
    }
}

impl Node {
    /// A round is over: true if there is another one. Who told something else than it was asked told nothing.
    pub(super) fn inquire(&self, inquiry: &mut Inquiry, told: Vec<Told>) -> bool {
        if inquiry.naming {
            return false;
        }
        match &mut inquiry.chain {
            None => {
                let theirs = told.into_iter().filter_map(|told| match told {
                    Told::Things(things) => Some(things),
                    Told::Links(_) => None,
                });
                let ours = self.named(inquiry.wanted.id).into_iter();
                let named = ours.chain(theirs.flatten()).min_by_key(rank);
                inquiry.chain = named.map(Chain::new);
                inquiry.chain.is_some()
            }
            Some(chain) => {
                let ours = chain.to_ask().iter().flat_map(|thing| self.links(*thing));
                let theirs = told.into_iter().filter_map(|told| match told {
                    Told::Links(links) => Some(links),
                    Told::Things(_) => None,
                });
                let links: Vec<Link> = theirs.flatten().chain(ours).collect();
                let named = links.iter().flat_map(|link| link.says.processes());
                let far = named.filter(|process| self.is_far(process.node()));
                let unnamed = far.filter(|process| !inquiry.names.contains_key(process));
                inquiry.unnamed.extend(unnamed);
                chain.hear(links);
                let follows = !chain.to_ask().is_empty();
                let ask = |node| self.is_other_node(node) && !inquiry.late_nodes.contains(&node);
                let asks = inquiry.unnamed.iter().any(|process| ask(process.node()));
                inquiry.naming = !follows && asks;
                follows || inquiry.naming
            }
        }
    }

    /// The answer: the chain as lines, then what the node remembers of the thing itself.
    pub(super) fn explained(&self, inquiry: &Inquiry, missing: Vec<String>) -> Report {
        let names = &inquiry.names;
        let in_words = |reason: &Reason| {
            reason.in_words(|id| self.name_of(id, names.get(&id).map(String::as_str)))
        };
        let chain = inquiry.chain.as_ref();
        let mut lines = chain.map(|chain| chain.lines(&in_words)).unwrap_or_default();
        let silence = format!(" did not answer within {} s", INSPECT_PATIENCE.as_secs());
        let late = |process: &ProcessId| Reason::from(*process).and(silence.as_str());
        lines.extend(inquiry.late.iter().map(late).map(|late| in_words(&late)));
        lines.extend(missing);
        let Wanted { id, remembers, .. } = inquiry.wanted;
        if remembers {
            lines.extend(self.memories(id));
        }
        Report::Why { lines, remembered: remembers.then_some(id) }
    }

    /// What the directory knows of an object: for who asks about it, and not about what it waits for.
    pub(in crate::node) fn memories(&self, id: AnyId) -> Vec<String> {
        let mut lines = Vec::new();
        for row in self.objects.listing().filter(|row| id.names_object(row.object)) {
            lines.push(self.in_words(&self.objects.explain(row.object)));
            let story = self.objects.story(row.object).into_iter();
            lines.extend(story.map(|line| format!("  {line}")));
        }
        lines
    }

    /// What the tables here have of that name.
    pub(super) fn named(&self, id: AnyId) -> Option<Thing> {
        let actor = self.actors.rows().map(|row| row.actor).find(|actor| id.names_task(actor.0));
        let object =
            || self.objects.listing().map(|row| row.object).find(|it| id.names_object(*it));
        actor.map(Thing::Actor).or_else(|| object().map(Thing::Object))
    }

    pub(super) fn links(&self, of: Thing) -> Vec<Link> {
        match of {
            Thing::Actor(actor) => {
                let worker = self.actors.rows().find(|row| row.actor == actor);
                // While it is made, its constructor is what runs there.
                let made = worker.filter(|row| matches!(row.state, ActorState::Pending { .. }));
                let placed = made.and_then(|row| row.worker);
                let waits_for: Vec<_> =
                    placed.map(|worker| Thing::Placed(worker, actor.0)).into_iter().collect();
                let known = self.actors.explain(actor).map(|says| Link::end(of, says));
                let stuck = self.scheduler.explain_actor(actor);
                let stuck = stuck.map(|stuck| {
                    Link::end(of, Reason::from(format!("{actor} waits: ")).and(stuck.reason))
                });
                let known = known.map(|link| Link { waits_for, only: true, ..link });
                known.into_iter().chain(stuck).collect()
            }
            // Its owner knows where it is.
            Thing::Object(_) | Thing::Task(_) => Vec::new(),
            // Where its node lives, that says what there is to say.
            Thing::Placed(worker, _) if self.is_other_node(worker.node()) => Vec::new(),
            Thing::Placed(worker, task) if !self.speaks(worker) => {
                let placed = Reason::from(format!("{task} was placed in ")).and(worker);
                vec![Link::end(of, placed.and(", which is gone"))]
            }
            Thing::Placed(..) => Vec::new(),
        }
    }
}

/// An id may name several things: an actor rather than the call that makes it.
fn rank(thing: &Thing) -> (u8, Thing) {
    let rank = match thing {
        Thing::Actor(_) => 0,
        Thing::Object(_) => 1,
        Thing::Task(_) => 2,
        Thing::Placed(..) => 3,
    };
    (rank, *thing)
}
