//! What the session lock guards.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hoplo_base::{Instant as Time, Map, ProcessId, TaskId, limits};
use hoplo_core::session::{Effect, SessionMachine};

use crate::Hooks;
use crate::peers::Outbound;
use crate::writer::Writer;

/// What the session lock guards.
pub(crate) struct Core {
    pub(crate) session: SessionMachine,
    pub(crate) effects: Vec<Effect>,
    /// Memory of `carry_out`, which would allocate it at every call.
    pub(crate) carrying: Carrying,
    pub(crate) peers: Map<ProcessId, Outbound>,
    /// Peers with calls that found their ring full.
    pub(crate) overflowing: usize,
    pub(crate) writer: Writer,
    pub(crate) watches: Map<u64, Callback>,
    /// When callbacks that wait lend the CPU: `lends_at` of the worker machine.
    pub(crate) lend_at: Option<Time>,
    /// Callbacks that are due, for the progress thread.
    pub(crate) due: Vec<Callback>,
    /// Lines for the user, for the progress thread.
    pub(crate) warnings: Warnings,
    /// Some thread panicked under the lock.
    pub(crate) panicked: bool,
    /// Threads that wait for objects here, and drain replies while they do.
    pub(crate) waiters: usize,
    /// What the progress thread is awake for.
    pub(crate) progress: Progress,
    /// An object of ours was freed: there may be room to give back.
    pub(crate) freed: bool,
    /// When it wakes by itself.
    pub(crate) timer: Option<Time>,
    /// When free room in the store is given back if none was used until then.
    pub(crate) cool_at: Option<Time>,
    /// Items that the readers of our streams have taken.
    pub(crate) streams: Map<TaskId, u32>,
    /// The task that runs here: parent of what is submitted meanwhile.
    pub(crate) running: Option<TaskId>,
}

#[derive(Default)]
pub(crate) struct Carrying {
    pub(crate) effects: Vec<Effect>,
    /// Workers to be rung when all effects are carried out.
    pub(crate) rung: Vec<ProcessId>,
}

pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// Calls all of them, also when one panics: somebody waits for each. It returns the first panic.
pub(crate) fn call_all(callbacks: Vec<Callback>) -> std::thread::Result<()> {
    let mut result = Ok(());
    for callback in callbacks {
        let called = catch_unwind(AssertUnwindSafe(callback));
        result = result.and(called);
    }
    result
}

#[derive(Default)]
pub(crate) struct Warnings {
    lines: Vec<String>,
    dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// Asleep until it is rung.
    Idle,
    /// Asleep until a deadline of the session.
    Timer,
    /// Drains replies.
    Drain,
}

impl Core {
    /// A thread panicked, perhaps in the middle of a change. The socket is closed, and with it everything ends.
    #[cold]
    pub(crate) fn panicked(&mut self) {
        self.panicked = true;
        self.writer.shutdown();
    }
}

impl Warnings {
    #[cold]
    pub(crate) fn add(&mut self, line: String) {
        if self.lines.len() < limits::WARNINGS_MAX {
            self.lines.push(line);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Not under the session lock: who reads it may be slow.
    pub(crate) fn print(self, hooks: &dyn Hooks) {
        for line in self.lines {
            hooks.warn(&line);
        }
        if self.dropped > 0 {
            hooks.warn(&format!("{} more lines like these were dropped", self.dropped));
        }
    }
}
