//! How an actor leaves: told by any code in its process, done by the main thread between two calls.
//!
//! ```text
//!   staying --sys.exit(n)-----------> now
//!           --exit_actor, sys.exit(0)--> when the calls that run have replied, or after `ACTOR_EXIT_GRACE`
//!           --__hoplo_terminate__--> when they have replied, however long they take
//! ```
//!
//! From then on no call begins: what is there and what comes is refused, with the word that the actor has
//! left. Whether the exception that `exit_actor` raises comes through to a call does not matter: it may end a
//! thread or an asyncio task that nobody waits for.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hoplo_base::limits::{ACTOR_EXIT_GRACE, ACTOR_EXIT_ORDERLY};
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::{current, session};

/// What the process does after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    /// The actor left by `exit_actor`, or by `sys.exit(0)`.
    ActorExit,
    /// `sys.exit`: the process ends. A task has replied; calls of an actor get no reply, as if it had crashed.
    Exit(i32),
}

/// Why the process ends, told by whichever thread a call made it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// At once.
    Now(i32),
    /// When the calls that run have replied, at the latest then.
    WhenDone {
        until: Option<Instant>,
    },
}

struct Leave {
    leaving: Leaving,
    /// Calls that threads or coroutines run.
    running: usize,
    /// The main thread is on its way out.
    left: bool,
}

static LEAVE: Mutex<Leave> = Mutex::new(Leave { leaving: Leaving::No, running: 0, left: false });

/// Rung when the main thread is on its way out.
static LEFT: Condvar = Condvar::new();

/// The process takes no more calls, and ends when those that run have replied (SIGTERM).
static RETIRES: AtomicBool = AtomicBool::new(false);

/// This worker takes no more calls, and ends when those that it has begun have.
#[pyfunction]
pub(crate) fn retire() {
    RETIRES.store(true, Ordering::Relaxed);
    if let Some(session) = session::live() {
        session.client.retire("SIGTERM");
    }
    main_thread_looks_up();
}

/// Python runs handlers of signals in the main thread, which sleeps for work: one that comes in the moment before
/// it sleeps does not wake it. Python writes a byte into the pipe that `reader` is the end of
/// (`signal.set_wakeup_fd`), and a thread of ours wakes the main thread.
#[pyfunction]
pub(crate) fn wake_main_thread_by(reader: i32) -> PyResult<()> {
    // SAFETY: the caller has just made this descriptor, and leaves it to us.
    let reader = unsafe { OwnedFd::from_raw_fd(reader) };
    let look = move || {
        let mut bytes = [0; 64];
        loop {
            match rustix::io::read(&reader, &mut bytes) {
                Ok(0) => return,
                Ok(_) => main_thread_looks_up(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    };
    let thread = std::thread::Builder::new().name("hoplo-signals".to_string());
    thread.stack_size(64 * 1024).spawn(look)?;
    Ok(())
}

/// Before a call in a thread or coroutine; false: the actor is leaving, and the call is to be refused.
pub(crate) fn may_begin() -> bool {
    let mut leave = LEAVE.lock();
    let may = leave.leaving == Leaving::No;
    leave.running += usize::from(may);
    may
}

/// After a call that `may_begin` let begin: what its end means for the process.
pub(crate) fn ended(after: After) {
    if RETIRES.load(Ordering::Relaxed) {
        main_thread_looks_up(); // this may have been the last one
    }
    let mut leave = LEAVE.lock();
    leave.running -= 1;
    match (after, leave.leaving) {
        (After::GoOn, Leaving::No) => return,
        (After::GoOn, Leaving::Now(_) | Leaving::WhenDone { .. }) => {}
        (After::ActorExit, Leaving::No) => leave.leaving = Leaving::WhenDone { until: None },
        (After::ActorExit, Leaving::Now(_) | Leaving::WhenDone { .. }) => {}
        (After::Exit(status), _) => leave.leaving = Leaving::Now(status),
    }
    drop(leave);
    main_thread_looks_up();
}

/// The code that runs here wants this actor to end, whatever becomes of the exception that follows.
pub(crate) fn leave_soon() {
    {
        let mut leave = LEAVE.lock();
        match leave.leaving {
            Leaving::No | Leaving::WhenDone { until: None } => {
                leave.leaving =
                    Leaving::WhenDone { until: Some(Instant::now() + ACTOR_EXIT_GRACE) };
            }
            Leaving::Now(_) | Leaving::WhenDone { until: Some(_) } => return,
        }
    }
    main_thread_looks_up();
    ends_in_time();
}

/// The main thread itself may run a call that does not end. It is given more time than the calls that it waits for:
/// this thread once won the race, and the exit handlers did not run.
fn ends_in_time() {
    let spawned = std::thread::Builder::new().name("hoplo-leaving".to_string()).spawn(|| {
        let patience = ACTOR_EXIT_GRACE + ACTOR_EXIT_ORDERLY;
        let stays = LEFT.wait_while_for(&mut LEAVE.lock(), |leave| !leave.left, patience);
        let Some(session) = session::live().filter(|session| session.is_ours()) else { return };
        if !stays.timed_out() {
            return;
        }
        if let Some(actor) = current::actor() {
            session.client.actor_exit(actor.spec.actor);
        }
        session.client.close();
        // SAFETY: no preconditions; the process ends here, whatever its other threads do.
        unsafe { libc::_exit(0) }
    });
    if let Err(error) = spawned {
        eprintln!("hoplo: this actor leaves when its call ends, whenever that is: {error}");
    }
}

/// `exit_actor()`, before it raises.
#[pyfunction]
pub(crate) fn leave_actor() {
    leave_soon();
}

fn main_thread_looks_up() {
    if let Some(session) = session::live() {
        session.client.wake_work();
    }
}

/// What the main thread does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    Stays,
    /// It refuses calls; those that run go on, at most until then.
    Finishes {
        until: Option<Instant>,
    },
    Leaves(i32),
}

pub(crate) fn outlook() -> Outlook {
    let mut leave = LEAVE.lock();
    let outlook = match leave.leaving {
        Leaving::No => Outlook::Stays,
        Leaving::Now(status) => Outlook::Leaves(status),
        Leaving::WhenDone { until } => {
            let over = until.is_some_and(|until| until <= Instant::now());
            if leave.running == 0 || over {
                Outlook::Leaves(0)
            } else {
                Outlook::Finishes { until }
            }
        }
    };
    if matches!(outlook, Outlook::Leaves(_)) {
        leave.left = true;
        LEFT.notify_all();
    }
    outlook
}
