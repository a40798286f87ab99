//! Empty tasks on one machine: its programs, workers and daemons as threads that share its cores, each with a cost alone.
//!
//! ```text
//!   program: submits a batch --calls, so many as take 1 ms in a ring--> worker
//!            takes the results until all are there <------replies------/
//!   daemon:  works a little for each batch
//! ```
//! A thread runs until it waits or its slice is over, then the next one in line does. Nothing goes from one node to another on the way of a
//! task, so what a cluster does is the sum of its machines, while its head keeps up with what they tell it (`Plane::busy`).

use std::collections::{BTreeMap, VecDeque};

/// Nanoseconds for each task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskCosts {
    /// The program: until it is submitted, and until its result is taken.
    pub submit: u64,
    pub get: u64,
    /// The worker: taken, run, replied.
    pub run: u64,
    /// All other threads of the node.
    pub daemon: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tasks {
    /// On this machine, each with programs and workers of its own.
    pub nodes: usize,
    pub programs: usize,
    /// Of each program.
    pub workers: usize,
    pub cores: usize,
    /// Of a core, how much there is for us.
    pub share: f64,
    /// Tasks that a program submits before it takes results.
    pub batch: u64,
}

/// As many calls in a ring as take about this long.
const RING_NS: u64 = 1_000_000;
const RING_MAX: u64 = 512;
/// What the kernel lets a thread run while others wait, and what a switch takes.
const SLICE_NS: u64 = 3_000_000;
const SWITCH_NS: u64 = 2_000;
/// Tasks that a thread does before it looks who waits.
const STEP: u64 = 16;

struct Machine {
    asked: Tasks,
    costs: TaskCosts,
    now: u64,
    next: u64,
    /// When a thread's step is done.
    steps: BTreeMap<(u64, u64), usize>,
    threads: Vec<Thread>,
    line: VecDeque<usize>,
    cores_free: usize,
    finished: u64,
}

struct Thread {
    does: Does,
    /// It is in line, or at a core.
    goes: bool,
    slice_left: u64,
    /// What the step that it is at will have done.
    step: u64,
}

enum Does {
    Program {
        submits: bool,
        left: u64,
        open: u64,
        kept: u64,
        replies: u64,
        workers: Vec<usize>,
        daemon: usize,
    },
    Worker {
        calls: u64,
        program: usize,
    },
    /// Nanoseconds of work.
    Daemon {
        ns: u64,
    },
}

/// Tasks a second, of all nodes of the machine together.
pub fn tasks(asked: Tasks, costs: TaskCosts) -> f64 {
    let mut machine = Machine::new(asked, costs);
    let (warm, end) = (200_000_000, 1_200_000_000);
    machine.run_until(warm);
    let before = machine.finished;
    machine.run_until(end);
    (machine.finished - before) as f64 / ((end - warm) as f64 / 1e9)
}

impl Machine {
    fn new(asked: Tasks, costs: TaskCosts) -> Self {
        let mut threads = Vec::new();
        let thread = |does| Thread { does, goes: false, slice_left: SLICE_NS, step: 0 };
        for _ in 0..asked.nodes {
            let daemon = threads.len();
            threads.push(thread(Does::Daemon { ns: 0 }));
            for _ in 0..asked.programs {
                let program = threads.len();
                let workers: Vec<usize> = (program + 1..=program + asked.workers).collect();
                let (submits, left) = (true, asked.batch);
                let (open, kept, replies) = (0, 0, 0);
                threads.push(thread(Does::Program {
                    submits,
                    left,
                    open,
                    kept,
                    replies,
                    workers,
                    daemon,
                }));
                for _ in 0..asked.workers {
                    threads.push(thread(Does::Worker { calls: 0, program }));
                }
            }
        }
        let (line, steps) = (VecDeque::new(), BTreeMap::new());
        let mut machine = Self {
            asked,
            costs,
            now: 0,
            next: 0,
            steps,
            threads,
            line,
            cores_free: asked.cores,
            finished: 0,
        };
        for at in 0..machine.threads.len() {
            machine.wake(at);
        }
        machine
    }

    fn run_until(&mut self, end: u64) {
        while let Some(((at, _), thread)) = self.steps.pop_first() {
            self.now = at;
            self.done(thread);
            if self.now >= end {
                break;
            }
        }
    }

    /// It has something to do.
    fn wake(&mut self, at: usize) {
        if !self.threads[at].goes && self.step_of(at) > 0 {
            self.threads[at].goes = true;
            self.line.push_back(at);
            self.fill_cores();
        }
    }

    fn fill_cores(&mut self) {
        while self.cores_free > 0
            && let Some(at) = self.line.pop_front()
        {
            self.cores_free -= 1;
            self.threads[at].slice_left = SLICE_NS;
            self.begins(at, SWITCH_NS);
        }
    }

    /// How much it can do now.
    fn step_of(&self, at: usize) -> u64 {
        match &self.threads[at].does {
            Does::Program { submits: true, left, .. } => (*left).min(STEP),
            Does::Program { submits: false, replies, .. } => (*replies).min(STEP),
            Does::Worker { calls, .. } => (*calls).min(STEP),
            Does::Daemon { ns } => *ns,
        }
    }

    fn begins(&mut self, at: usize, more: u64) {
        let step = self.step_of(at);
        let ns = more
            + match &self.threads[at].does {
                Does::Program { submits: true, .. } => step * self.costs.submit,
                Does::Program { submits: false, .. } => step * self.costs.get,
                Does::Worker { .. } => step * self.costs.run,
                Does::Daemon { .. } => step,
            };
        let thread = &mut self.threads[at];
        thread.step = step;
        thread.slice_left = thread.slice_left.saturating_sub(ns);
        self.next += 1;
        let takes = (ns as f64 / self.asked.share) as u64;
        self.steps.insert((self.now + takes, self.next), at);
    }

    fn done(&mut self, at: usize) {
        let step = self.threads[at].step;
        let ring = (RING_NS / self.costs.run.max(1)).clamp(1, RING_MAX);
        let mut put = 0;
        let mut woken = Vec::new();
        match &mut self.threads[at].does {
            Does::Program { submits, left, open, kept, replies, workers, daemon } => {
                if *submits {
                    (*left, *open, *kept) = (*left - step, *open + step, *kept + step);
                    *submits = *left > 0;
                } else {
                    (*replies, *open) = (*replies - step, *open - step);
                    self.finished += step;
                    if *open == 0 {
                        (*submits, *left) = (true, self.asked.batch);
                        woken.push(*daemon);
                    }
                }
                let workers = workers.clone();
                put = std::mem::take(kept);
                put = self.calls(&workers, put, ring);
                woken.extend(workers);
            }
            Does::Worker { calls, program } => {
                *calls -= step;
                woken.push(*program);
            }
            Does::Daemon { ns } => *ns -= step,
        }
        match &mut self.threads[at].does {
            Does::Program { kept, .. } => *kept = put,
            Does::Worker { program, .. } => {
                let program = *program;
                if let Does::Program { replies, .. } = &mut self.threads[program].does {
                    *replies += step;
                }
            }
            Does::Daemon { .. } => {}
        }
        for other in woken {
            if let Does::Daemon { ns } = &mut self.threads[other].does {
                *ns += self.costs.daemon * self.asked.batch;
            }
            self.wake(other);
        }
        self.goes_on(at);
    }

    /// Puts calls into rings, the emptiest first; returns how many found no room.
    fn calls(&mut self, workers: &[usize], mut left: u64, ring: u64) -> u64 {
        let each = left.div_ceil(workers.len() as u64).max(1);
        for &worker in workers {
            if let Does::Worker { calls, .. } = &mut self.threads[worker].does {
                let some = each.min(left).min(ring.saturating_sub(*calls));
                (*calls, left) = (*calls + some, left - some);
            }
        }
        left
    }

    fn goes_on(&mut self, at: usize) {
        let waits = self.step_of(at) == 0;
        let over = self.threads[at].slice_left == 0 && !self.line.is_empty();
        if !waits && !over {
            return self.begins(at, 0);
        }
        self.cores_free += 1;
        self.threads[at].goes = false;
        if !waits {
            self.threads[at].goes = true;
            self.line.push_back(at);
        }
        self.fill_cores();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: TaskCosts = TaskCosts { submit: 1300, get: 600, run: 1200, daemon: 300 };

    fn asked(nodes: usize, cores: usize, workers: usize) -> Tasks {
        Tasks { nodes, programs: 1, workers, cores, share: 1.0, batch: 1000 }
    }

    fn is_near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.05
    }

    #[test]
    fn one_core_does_the_sum_of_all_that_a_task_takes() {
        let found = tasks(asked(1, 1, 1), COSTS);
        assert!(is_near(found, 1e9 / 3400.0), "{found}");
        let shared = tasks(asked(4, 1, 1), COSTS);
        assert!(is_near(shared, 1e9 / 3400.0), "{shared}");
        let half = tasks(Tasks { share: 0.5, ..asked(1, 1, 1) }, COSTS);
        assert!(is_near(half, 0.5e9 / 3400.0), "{half}");
    }

    #[test]
    fn with_cores_enough_the_program_is_what_all_wait_for() {
        let found = tasks(asked(1, 16, 4), COSTS);
        assert!(is_near(found, 1e9 / 1900.0), "{found}");
    }

    #[test]
    fn a_worker_that_is_slower_than_its_program_is_waited_for() {
        let costs = TaskCosts { run: 10_000, ..COSTS };
        let found = tasks(asked(1, 16, 1), costs);
        assert!(found < 1e5 && found > 0.8e5, "{found}");
    }
}
