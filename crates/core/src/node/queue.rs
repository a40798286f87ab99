//! What the machines have for each other, in the order in which it was caused.

use std::fmt::{self, Write as _};

use hoplo_base::limits::STORY_LINE_BYTES_MAX;

use super::{Effect, Node};
use crate::actors::life as actor_life;
use crate::objects;
use crate::sched::claim::Claimant;
use crate::sched::{broker, groups, local, workers};

/// What one machine has for another, or for itself.
#[derive(Debug)]
pub(super) enum Work {
    Scheduler(local::Event),
    Pool(workers::Event),
    Actors(actor_life::Event),
    Objects(objects::Event),
    Groups(groups::Event),
    /// The broker looks at what the scheduler has of it, when that knows all it was told before.
    Look(Claimant),
    /// Nobody is awaited any more, or nobody asks.
    EndRound(u64),
}

impl Node {
    /// Until no machine has anything for another one.
    pub(super) fn work_off_queue(&mut self) {
        while let Some(work) = self.next_work() {
            match work {
                Work::Scheduler(event) => {
                    self.note(&event);
                    let mut effects = Vec::new();
                    self.scheduler.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_scheduler(effect));
                }
                Work::Pool(event) => {
                    self.note(&event);
                    let mut effects = Vec::new();
                    self.pool.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_pool(effect));
                }
                Work::Actors(event) => {
                    self.note(&event);
                    let mut effects = Vec::new();
                    self.actors.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_actors(effect));
                }
                Work::Objects(event) => {
                    let mut effects = Vec::new();
                    self.objects.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_objects(effect));
                    self.watch_room();
                }
                Work::Groups(event) => {
                    self.note(&event);
                    let mut effects = Vec::new();
                    self.groups.machine.handle(event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_groups(effect));
                }
                Work::Look(claimant) => {
                    let reserved = self.scheduler.reserved(claimant);
                    self.pass_to_broker(broker::Event::Looked { claimant, reserved });
                }
                Work::EndRound(round) => self.end_round(round),
            }
        }
    }

    fn next_work(&mut self) -> Option<Work> {
        if self.queue.is_empty() {
            self.tell_groups();
        }
        self.queue.pop_front()
    }

    pub(super) fn pass_to_scheduler(&mut self, event: local::Event) {
        self.queue.push_back(Work::Scheduler(event));
    }

    pub(super) fn look_for_broker(&mut self, claimant: Claimant) {
        self.queue.push_back(Work::Look(claimant));
    }

    pub(super) fn pass_to_pool(&mut self, event: workers::Event) {
        self.queue.push_back(Work::Pool(event));
    }

    pub(super) fn pass_to_actors(&mut self, event: actor_life::Event) {
        self.queue.push_back(Work::Actors(event));
    }

    pub(super) fn pass_to_objects(&mut self, event: objects::Event) {
        self.queue.push_back(Work::Objects(event));
    }

    /// One step, for the story.
    pub(super) fn note(&mut self, what: &impl fmt::Debug) {
        let mut line = Cut(String::new());
        // Ends early when the line is full.
        let _ = write!(line, "{what:?}");
        self.out.push(Effect::Note { line: line.0 });
    }
}

/// A line of bounded length: values and frames are long.
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = STORY_LINE_BYTES_MAX.saturating_sub(self.0.len());
        let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        self.0.push_str(&text[..end.unwrap_or(0)]);
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}
