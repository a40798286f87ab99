//! What is due later.

use std::time::Duration;

use hoplo_base::{Instant, ProcessId};

use super::Node;
use crate::objects;
use crate::sched::{environments, local, workers};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Its time to exit by itself is over.
    Kill(ProcessId),
    /// Its exit status did not come.
    Examine(ProcessId),
    /// Who served this dead caller has not said that it took over what it uses.
    Takeover(ProcessId),
    Memory,
    /// Results that were shared before they were there.
    Escaped,
    /// Of jobs that are over, which pending tasks need.
    Functions,
    /// Whether what keeps this node, which drains, is gone.
    Drain,
    /// Nobody said who has the name that was asked for.
    Name(u64),
    /// This node's load has changed.
    Load,
    /// The head may hear again which deaths this node has passed.
    Passed,
    /// What has run is to be written.
    Past,
    /// Who did not answer by then is late.
    Query(u64),
    /// Those that are left are killed, and the node ends.
    Stop,
}

impl Node {
    /// `Event::Tick` is due then.
    pub fn next_deadline(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let deadlines = [
            timer,
            self.scheduler.next_deadline(),
            self.pool.next_deadline(),
            self.environments.next_deadline(),
            self.objects.next_deadline(),
            self.transfer_deadline(),
            self.sched_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(super) fn on_tick(&mut self) {
        while let Some((at, timer)) = self.timers.first().copied() {
            if at > self.now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Kill(process) => self.kill_late(process),
                Timer::Examine(process) => self.examine(process),
                Timer::Takeover(caller) => self.takeover_ends(caller),
                Timer::Memory => self.measure_limited(),
                Timer::Escaped => self.look_at_escaped(),
                Timer::Functions => self.look_at_functions(),
                Timer::Drain => self.look_whether_drained(),
                Timer::Name(ask) => self.give_name_up(ask),
                Timer::Load => self.tell_load(),
                Timer::Passed => self.may_tell_passed(),
                Timer::Past => self.write_past(),
                Timer::Query(round) => self.end_round(round),
                Timer::Stop => self.stopped(),
            }
            self.work_off_queue();
        }
        self.sched_tick();
        let now = self.now;
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if due(self.scheduler.next_deadline()) {
            self.pass_to_scheduler(local::Event::Tick);
        }
        if due(self.pool.next_deadline()) {
            self.pass_to_pool(workers::Event::Tick);
        }
        if due(self.environments.next_deadline()) {
            self.pass_to_environments(environments::Event::Tick);
        }
        if due(self.objects.next_deadline()) {
            self.pass_to_objects(objects::Event::Tick);
        }
        if due(self.transfer_deadline()) {
            self.transfer_tick();
        }
    }

    pub(super) fn after(&mut self, delay: Duration, timer: Timer) {
        self.timers.insert((self.now + delay, timer));
    }
}
