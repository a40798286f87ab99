//! Why something is not ready: a chain of links, followed over all processes.
//!
//! Every process, and the daemon, knows a part: the owner of a task where it placed it, a worker what it runs
//! and what that waits for. Whoever is asked about a [`Thing`] answers with [`Link`]s: a sentence, and the things
//! that this one waits for. A [`Chain`] asks round by round, and puts what it heard into lines for people:
//!
//! ```text
//!   to_ask --> everybody says links --> hear --> to_ask ... (nothing new, or deep enough) --> lines
//! ```
//!
//! A chain that comes back to a thing on its own path is a circle. It is a deadlock if each thing of it can
//! only go on when what it names has ended ([`Link::only`]); a wait with a timeout, or for any of several
//! things, can end otherwise.
//!
//! # Invariants
//! - WHY-1: nothing is asked about twice.
//! - WHY-2: at most [`WHY_ROUNDS_MAX`] rounds, of at most [`WHY_THINGS_MAX`] things each.

use std::collections::BTreeMap;

use hoplo_base::limits::{WHY_ROUNDS_MAX, WHY_THINGS_MAX};

use hoplo_wire::Reason;
pub use hoplo_wire::why::{Link, Question, Thing, Told};

/// One question, and what was heard up to now.
#[derive(Debug)]
pub struct Chain {
    root: Thing,
    heard: BTreeMap<Thing, Vec<Link>>,
    to_ask: Vec<Thing>,
    rounds: usize,
}

impl Chain {
    pub fn new(root: Thing) -> Self {
        Self { root, heard: BTreeMap::new(), to_ask: vec![root], rounds: 0 }
    }

    /// What this round asks everybody about; empty: there is nothing more to ask.
    pub fn to_ask(&self) -> &[Thing] {
        &self.to_ask
    }

    /// All answers of this round: the next one begins.
    pub fn hear(&mut self, links: Vec<Link>) {
        self.rounds += 1;
        for thing in self.to_ask.drain(..) {
            let before = self.heard.insert(thing, Vec::new());
            assert!(before.is_none(), "WHY-1: {thing} was asked about twice");
        }
        for link in links {
            // What was not asked is not believed.
            let Some(known) = self.heard.get_mut(&link.of) else { continue };
            if !known.iter().any(|other| other.says == link.says) {
                known.push(link);
            }
        }
        if self.rounds == WHY_ROUNDS_MAX {
            return;
        }
        let named = self.heard.values().flatten().flat_map(|link| link.waits_for.iter().copied());
        let mut fresh: Vec<Thing> = named.filter(|thing| !self.heard.contains_key(thing)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        fresh.truncate(WHY_THINGS_MAX);
        self.to_ask = fresh;
    }

    /// The lines without their indentation: for one line of text, where nobody knows more of the processes in it.
    pub fn sentences(&self) -> Vec<String> {
        self.lines(&Reason::to_string).iter().map(|line| line.trim_start().to_string()).collect()
    }

    /// For people: a link a line, `in_words`, indented below what waits for it; then the circles.
    pub fn lines(&self, in_words: &dyn Fn(&Reason) -> String) -> Vec<String> {
        let (path, described, circles) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Walk { chain: self, in_words, path, described, circles };
        let mut lines = Vec::new();
        walk.describe(self.root, &mut lines);
        lines.extend(walk.circles);
        lines
    }
}

/// A walk through what was heard, in depth.
struct Walk<'a> {
    chain: &'a Chain,
    in_words: &'a dyn Fn(&Reason) -> String,
    /// From the root to where the walk is; whether each waits only for what follows.
    path: Vec<(Thing, bool)>,
    described: Vec<Thing>,
    circles: Vec<String>,
}

impl Walk<'_> {
    fn describe(&mut self, thing: Thing, lines: &mut Vec<String>) {
        if let Some(at) = self.path.iter().position(|(other, _)| *other == thing) {
            return self.circle(at);
        }
        if self.described.contains(&thing) {
            return;
        }
        self.described.push(thing);
        let indent = "  ".repeat(self.path.len());
        let Some(links) = self.chain.heard.get(&thing) else {
            lines.push(format!("{indent}and so on, from {thing}"));
            return;
        };
        for link in links {
            lines.push(format!("{indent}{}", (self.in_words)(&link.says)));
            self.path.push((thing, link.only));
            for next in &link.waits_for {
                self.describe(*next, lines);
            }
            self.path.pop();
        }
    }

    fn circle(&mut self, at: usize) {
        let members = &self.path[at..];
        let mut names: Vec<String> = Vec::new();
        for (thing, _) in members {
            let name = thing.to_string();
            // A task and its place in a worker are one for people.
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        names.push(members[0].0.to_string());
        names.dedup();
        let round = names.join(" waits for ");
        let line = if members.iter().all(|(_, only)| *only) {
            format!("deadlock: {round}. None of them can go on: cancel or kill one")
        } else {
            format!("a circle, which may still end: {round}")
        };
        if !self.circles.contains(&line) {
            self.circles.push(line);
        }
    }
}

#[cfg(test)]
mod tests;
