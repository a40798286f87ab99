//! How an actor whose calls run in threads or coroutines leaves: told by any of them, done by the
//! main thread. (It waits for threads; coroutines it runs itself, so there it only looks.)
//!
//! ```text
//!   staying --sys.exit(n)--> now
//!           --exit_actor---> when done: no call begins any more; those that run reply first
//! ```

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::calls::After;
use crate::session;

/// Why the process ends, told by whichever thread a call made it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// `sys.exit`: at once.
    Now(i32),
    /// `exit_actor`: once the calls that run have replied. No other is begun.
    WhenDone,
}

struct Leave {
    leaving: Leaving,
    /// Calls that threads or coroutines run.
    running: usize,
}

static LEAVE: Mutex<Leave> = Mutex::new(Leave { leaving: Leaving::No, running: 0 });
static CALL_ENDED: Condvar = Condvar::new();

/// Before a call in a thread or coroutine; false: the actor is leaving, and the call gets no reply.
pub(crate) fn may_begin() -> bool {
    let mut leave = LEAVE.lock();
    let may = leave.leaving == Leaving::No;
    leave.running += usize::from(may);
    may
}

/// After a call that `may_begin` let begin: what its end means for the process.
pub(crate) fn ended(after: After) {
    let mut leave = LEAVE.lock();
    leave.running -= 1;
    match after {
        After::GoOn => {}
        After::ActorExit => leave.leaving = Leaving::WhenDone,
        After::Exit(status) => leave.leaving = Leaving::Now(status),
    }
    let told = leave.leaving != Leaving::No;
    drop(leave);
    if told {
        CALL_ENDED.notify_all();
    }
    if after != After::GoOn
        && let Some(session) = session::live()
    {
        session.client.wake_work(); // the main thread looks up
    }
}

/// What a main thread that runs the calls itself does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    Stays,
    /// It takes no more calls; those that run go on.
    Finishes,
    Leaves(i32),
}

pub(crate) fn outlook() -> Outlook {
    let leave = LEAVE.lock();
    match leave.leaving {
        Leaving::No => Outlook::Stays,
        Leaving::Now(status) => Outlook::Leaves(status),
        Leaving::WhenDone if leave.running == 0 => Outlook::Leaves(0),
        Leaving::WhenDone => Outlook::Finishes,
    }
}

/// In the main thread: the exit status, once the process is to end; waits for calls that run.
pub(crate) fn status(py: Python<'_>) -> Option<i32> {
    if LEAVE.lock().leaving == Leaving::No {
        return None;
    }
    py.detach(|| {
        let mut leave = LEAVE.lock();
        loop {
            match leave.leaving {
                Leaving::No => return None,
                Leaving::Now(status) => return Some(status),
                Leaving::WhenDone if leave.running == 0 => return Some(0),
                Leaving::WhenDone => CALL_ENDED.wait(&mut leave),
            }
        }
    })
}
