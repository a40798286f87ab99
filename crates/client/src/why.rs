//! What this process answers to `hoplo why`: what its session knows, and what its Python code does now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_base::{AnyId, ObjectId, TaskId, limits};
use hoplo_core::why::{Link, Question, Thing, Told};
use hoplo_wire::Reason;
use hoplo_wire::node::ToNode;

use crate::client::Client;

/// A call that runs in this process now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningCall {
    pub task: TaskId,
    pub name: String,
    pub ran: Duration,
    /// Where its code is: `f at program.py:12: return hoplo.get(ref)`.
    pub at: Option<String>,
    pub waits: Option<CallWaits>,
}

/// What a running call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallWaits {
    /// `get`, `wait` or `await`.
    pub operation: &'static str,
    pub objects: Vec<ObjectId>,
    /// It goes on when all of them are there, and not before.
    pub only: bool,
    pub waited: Duration,
}

impl Client {
    /// Answers a question of `hoplo why`, at once or from a thread of its own: what the Python code does
    /// can be told only when the interpreter has a moment.
    pub(crate) fn answer_why(self: &Arc<Self>, request: u64, question: Question) {
        let things = match question {
            Question::Named(text) => {
                let named = text.parse::<AnyId>().ok();
                let core = self.core.lock();
                let named = named.and_then(|id| core.session.named(id));
                drop(core);
                return self.explained(request, Told::Things(named.into_iter().collect()));
            }
            Question::Links(things) => things,
        };
        let me = self.welcome.process;
        let placed = |thing: &Thing| matches!(thing, Thing::Placed(worker, _) if *worker == me);
        if !things.iter().any(placed) {
            return self.explained(request, Told::Links(self.links(&things)));
        }
        let client = Arc::clone(self);
        let look = move || {
            let mut links = client.links(&things);
            let running = client.hooks.running();
            let asked = things.iter().filter_map(|thing| match thing {
                Thing::Placed(worker, task) if *worker == me => Some(*task),
                Thing::Placed(..) | Thing::Object(_) | Thing::Task(_) | Thing::Actor(_) => None,
            });
            links.extend(asked.map(|task| placed_here(Thing::Placed(me, task), task, &running)));
            client.explained(request, Told::Links(links));
        };
        // Without a thread there is no answer, and the daemon says so.
        if let Err(error) = std::thread::Builder::new().name("hoplo-why".to_string()).spawn(look) {
            self.hooks.warn(&format!("hoplo why cannot be answered: {error}"));
        }
    }

    /// The chain of what an object waits for, a link a line; `None`: nobody could tell in time. (No GIL.)
    fn why(&self, object: ObjectId, patience: Duration) -> Option<String> {
        let answer = self.query("chain", &object.hex(), patience, &mut || false).ok()?;
        let lines: Vec<String> = serde_json::from_str(&answer).ok()?;
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Says what each missing result waits for, after a wait of `timeout` seconds: over all processes, if the wait was
    /// long enough that asking them is no delay; a program that polls is told what is known here. (No GIL.)
    pub fn why_late(&self, ids: &[ObjectId], timeout: f64) -> String {
        let [least, most] = limits::WHY_LATE_SECONDS;
        let patience = (limits::WHY_LATE_SHARE * timeout).min(most);
        let until = (patience >= least).then(|| Instant::now() + Duration::from_secs_f64(patience));
        let ready = self.ready(ids);
        let missing: Vec<_> =
            ids.iter().zip(ready).filter(|(_, ready)| !ready).map(|(id, _)| *id).collect();
        let mut text = match missing.len() {
            0 | 1 => "the result was not there in time".to_string(),
            count => format!("{count} of {} results were not there in time", ids.len()),
        };
        for id in missing.iter().take(limits::WHY_LATE_EXPLAINED_MAX) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.filter(|left| !left.is_zero());
            let why = left.map(|left| self.why(*id, left));
            let why = match why {
                Some(Some(why)) => why,
                None => self.explain(*id),
                Some(None) => format!(
                    "{} (so much is known here: whoever may know more did not answer within {patience:.1} s)",
                    self.explain(*id)
                ),
            };
            text.push_str(if why.contains('\n') { ":\n" } else { "; " });
            text.push_str(&why);
        }
        if missing.len() > limits::WHY_LATE_EXPLAINED_MAX {
            text.push_str("; ...");
        }
        text
    }

    fn links(&self, things: &[Thing]) -> Vec<Link> {
        let session = &self.core.lock().session;
        things.iter().filter_map(|thing| session.link(*thing)).collect()
    }

    fn explained(&self, request: u64, told: Told) {
        self.core.lock().writer.send(&ToNode::Explained { request, told });
    }
}

/// What becomes of a call that was given to this worker.
fn placed_here(of: Thing, task: TaskId, running: &[RunningCall]) -> Link {
    let Thing::Placed(me, _) = of else { unreachable!("the caller asks about placed calls only") };
    let Some(call) = running.iter().find(|call| call.task == task) else {
        let Some(first) = running.first() else {
            let says = Reason::from(format!("{task} is not running yet in ")).and(me);
            return Link::end(of, says.and(", or has just ended"));
        };
        let more = match running.len() - 1 {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let behind = format!("{} of {}{more}", first.task, first.name);
        let says = Reason::from(format!("{task} is queued behind {behind}, which "));
        let says = says.and(me).and(" runs");
        let waits_for =
            running.iter().take(limits::WHY_THINGS_MAX).map(|call| Thing::Placed(me, call.task));
        return Link { of, says, waits_for: waits_for.collect(), only: running.len() == 1 };
    };
    let ran = seconds(call.ran);
    let mut says = Reason::from(format!("{task} of {} has run for {ran} in ", call.name)).and(me);
    if let Some(at) = &call.at {
        says = says.and(format!(", in {at}"));
    }
    let Some(waits) = &call.waits else { return Link::end(of, says) };
    let first = waits.objects.first().map_or_else(String::new, ToString::to_string);
    let more = match waits.objects.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let waited = seconds(waits.waited);
    let says =
        says.and(format!("; it waits for {first}{more} in {} for {waited}", waits.operation));
    let waits_for =
        waits.objects.iter().take(limits::WHY_THINGS_MAX).map(|object| Thing::Object(*object));
    Link { of, says, waits_for: waits_for.collect(), only: waits.only }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
