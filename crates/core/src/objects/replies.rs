//! Tokens that travel with replies, until their reply is known to be written.
//!
//! A worker gives its caller tokens before it writes the reply that brings them (REF-4). If it dies
//! between the two, the caller never learns of them:
//! 1. The worker says `Replying`, and gives the caller the tokens of this reply. What it gave before
//!    is written: it writes its replies to one caller in the order in which it tells of them.
//! 2. It is killed. The daemon has read all that it wrote, and tells the caller.
//! 3. The caller has read all replies that there are, and says how many tokens came with them, ever.
//! 4. Those of the last reply that are beyond this number are struck.
//!
//! That another attempt of the same task gives tokens of the same objects changes nothing: it comes
//! from another worker, and each is counted. Until it is struck, the lost token supports its object, so that
//! nothing goes that the caller might have been told of.

use hoplo_base::{ObjectId, ProcessId};

use super::ObjectDirectory;

/// What one process gave another with replies.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Tokens that went with replies that are written.
    written: u64,
    /// Those of the reply that may not be written, in order.
    latest: Vec<ObjectId>,
}

/// Room for so many tokens is kept for the next reply.
const LATEST_KEPT: usize = 64;

impl ObjectDirectory {
    pub(super) fn on_replying(&mut self, worker: ProcessId, caller: ProcessId) {
        // To a dead caller nothing is given. A process that calls itself dies with its caller.
        if caller == worker || !self.processes.contains_key(&caller) {
            return;
        }
        let given = self.replies.entry((worker, caller)).or_default();
        given.written += given.latest.len() as u64;
        given.latest.clear();
        given.latest.shrink_to(LATEST_KEPT);
    }

    /// `worker` has given a token to `caller`.
    pub(super) fn goes_with_reply(
        &mut self,
        worker: ProcessId,
        caller: ProcessId,
        object: ObjectId,
    ) {
        if let Some(given) = self.replies.get_mut(&(worker, caller)) {
            given.latest.push(object);
        }
    }

    pub(super) fn on_replies_ended(
        &mut self,
        worker: ProcessId,
        caller: ProcessId,
        tokens: u64,
    ) -> Result<(), String> {
        // Who never gave anything may be told of as dead when only its socket is closed.
        let Some(Given { written, latest }) = self.replies.remove(&(worker, caller)) else {
            return Ok(());
        };
        if self.processes.contains_key(&worker) {
            return Err(format!("says that {worker} replies no more, which lives"));
        }
        let came = usize::try_from(tokens.saturating_sub(written)).unwrap_or(usize::MAX);
        let Some(lost) = latest.get(came..) else {
            let given = written + latest.len() as u64;
            return Err(format!("has got {tokens} tokens of {worker}, which gave {given}"));
        };
        for object in lost {
            self.note(*object, "not replied", Some(worker));
            self.add_tokens(*object, caller, -1);
        }
        Ok(())
    }
}
