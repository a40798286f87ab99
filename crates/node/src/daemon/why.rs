//! `hoplo why`: first everybody says what the id names, then the chain is followed round by round.
//!
//! ```text
//!   Naming --a thing--> Following --nothing more to ask--> answered
//!      \--nobody knows it--> answered with what the daemon remembers
//! ```
//! Who is late in one round is not asked in the next: a stuck process costs the answer one wait.

use std::collections::BTreeSet;

use hoplo_base::limits::INSPECT_PATIENCE;
use hoplo_base::{AnyId, ProcessId};
use hoplo_core::why::{Chain, Link, Question, Thing};
use hoplo_wire::node::ActorState;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::journal;

/// One question, while its rounds go on.
#[derive(Debug)]
pub(crate) struct Inquiry {
    id: AnyId,
    /// As the person wrote it.
    text: String,
    /// The answer has the thing's history, too.
    remembers: bool,
    /// `None`: it is being asked what the id names.
    chain: Option<Chain>,
    /// Who did not answer in time.
    late: BTreeSet<ProcessId>,
}

impl Inquiry {
    pub(crate) fn new(id: AnyId, text: String, remembers: bool) -> Self {
        Self { id, text, remembers, chain: None, late: BTreeSet::new() }
    }

    /// What this round asks every process but the late ones.
    pub(crate) fn argument(&self) -> String {
        let question = match &self.chain {
            None => Question::Named(self.text.clone()),
            Some(chain) => Question::Links(chain.to_ask().to_vec()),
        };
        serde_json::to_string(&question).expect("ids are plain values")
    }

    pub(crate) fn is_late(&self, process: ProcessId) -> bool {
        self.late.contains(&process)
    }
}

impl Daemon {
    /// A round is over: true if there is another one.
    pub(crate) fn inquire(
        &self,
        inquiry: &mut Inquiry,
        came: Vec<(ProcessId, Value)>,
        late: BTreeSet<ProcessId>,
    ) -> bool {
        inquiry.late.extend(late);
        let answers = came.into_iter().map(|(_, value)| value);
        match &mut inquiry.chain {
            None => {
                let theirs =
                    answers.filter_map(|value| serde_json::from_value::<Vec<Thing>>(value).ok());
                let named =
                    self.named(inquiry.id).into_iter().chain(theirs.flatten()).min_by_key(rank);
                inquiry.chain = named.map(Chain::new);
                inquiry.chain.is_some()
            }
            Some(chain) => {
                let ours = chain.to_ask().iter().flat_map(|thing| self.links(*thing));
                // What does not parse is as good as no answer.
                let theirs = answers
                    .filter_map(|value| serde_json::from_value::<Vec<Link>>(value).ok())
                    .flatten()
                    .map(|link| Link { says: self.node.with_names(&link.says), ..link });
                let links: Vec<Link> = theirs.chain(ours).collect();
                chain.hear(links);
                !chain.to_ask().is_empty()
            }
        }
    }

    /// The answer: the chain as lines, then what the daemon remembers of the thing itself.
    pub(crate) fn told(&self, inquiry: &Inquiry) -> Value {
        let mut lines = inquiry.chain.as_ref().map(Chain::lines).unwrap_or_default();
        let late =
            |process| format!("{process} did not answer within {} s", INSPECT_PATIENCE.as_secs());
        lines.extend(inquiry.late.iter().map(late).map(|line| self.node.with_names(&line)));
        if !inquiry.remembers {
            return json!(lines);
        }
        for row in self.node.objects.listing().filter(|row| inquiry.id.names_object(row.object)) {
            lines.push(self.node.with_names(&self.node.objects.explain(row.object)));
            let story = self.node.objects.story(row.object).into_iter();
            lines.extend(story.map(|line| format!("  {line}")));
        }
        lines.extend(self.why_lost(inquiry.id));
        let task = match inquiry.id {
            AnyId::ShortTask(task) => Some((task.owner_count, task.seq)),
            AnyId::Task(task) => Some((task.owner.count(), task.seq)),
            AnyId::Object(_) | AnyId::ShortObject { .. } => None,
        };
        if let Some((owner, seq)) = task {
            lines.extend(journal::story(self.now, &format!("{owner:x}-{seq:x}")));
        }
        json!(lines)
    }

    /// What the tables here have of that name.
    fn named(&self, id: AnyId) -> Option<Thing> {
        let actor =
            self.node.actors.rows().map(|row| row.actor).find(|actor| id.names_task(actor.0));
        let object =
            || self.node.objects.listing().map(|row| row.object).find(|it| id.names_object(*it));
        actor.map(Thing::Actor).or_else(|| object().map(Thing::Object))
    }

    fn links(&self, of: Thing) -> Vec<Link> {
        let end = |says: String| Link::end(of, self.node.with_names(&says));
        match of {
            Thing::Actor(actor) => {
                let worker = self.node.actors.rows().find(|row| row.actor == actor);
                // While it is made, its constructor is what runs there.
                let made = worker.filter(|row| matches!(row.state, ActorState::Pending { .. }));
                let placed = made.and_then(|row| row.worker);
                let waits_for: Vec<_> =
                    placed.map(|worker| Thing::Placed(worker, actor.0)).into_iter().collect();
                let known = self.node.actors.explain(actor).map(end);
                let stuck = self.node.scheduler.explain_actor(actor);
                let stuck = stuck.map(|stuck| end(format!("{actor} waits: {}", stuck.reason)));
                let known = known.map(|link| Link { waits_for, only: true, ..link });
                known.into_iter().chain(stuck).collect()
            }
            // Its owner knows where it is.
            Thing::Object(_) | Thing::Task(_) => Vec::new(),
            Thing::Placed(worker, task) if self.node.process(worker).is_none() => {
                vec![end(format!("{task} was placed in {worker}, which is gone"))]
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
