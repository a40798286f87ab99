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
//!
//! A **far** caller gets its tokens at its own node, when the reply arrives there. Until then nothing but the worker would hold what it
//! returns, and the worker may drop it before it writes the reply. So the node holds it meanwhile:
//! 1. There is a channel of that caller to that worker (`ServesFar`).
//! 2. The worker says `Hold` for the caller: the node holds the object. Of what it sealed, and what stays as a copy until its home says
//!    that it may go (`kept`), there is no hold: its home awaits the reply.
//! 3. The reply leaves the node, under a cover for what it names (`FarReplyLeft`). It brings tokens in the order in which they were
//!    told, so the holds of these tokens end.
//! 4. The worker is dead and all that it wrote has left, or nobody is there to read it (`FarRepliesEnded`): the others end.

use std::collections::VecDeque;

use hoplo_base::{ObjectId, ProcessId};

use super::ObjectDirectory;

/// What one process gave another with replies.
#[derive(Debug)]
pub(super) enum Given {
    /// `written`: tokens that went with replies that are written. `latest`: those of the reply that may not be written, in order.
    Near { written: u64, latest: Vec<ObjectId> },
    /// Tokens of replies that have not left this node, in order.
    Far(VecDeque<FarToken>),
}

#[derive(Debug)]
pub(super) struct FarToken {
    object: ObjectId,
    /// The node holds it until then.
    held: bool,
}

/// Room for so many tokens is kept for the next reply.
const LATEST_KEPT: usize = 64;

impl ObjectDirectory {
    pub(super) fn on_replying(&mut self, worker: ProcessId, caller: ProcessId) {
        // To a dead caller nothing is given. A process that calls itself dies with its caller.
        if caller == worker || !self.processes.contains_key(&caller) {
            return;
        }
        let none = Given::Near { written: 0, latest: Vec::new() };
        let Given::Near { written, latest } = self.replies.entry((worker, caller)).or_insert(none)
        else {
            unreachable!("a far process has not joined")
        };
        *written += latest.len() as u64;
        latest.clear();
        latest.shrink_to(LATEST_KEPT);
    }

    /// `worker` has given a token to `caller`.
    pub(super) fn goes_with_reply(
        &mut self,
        worker: ProcessId,
        caller: ProcessId,
        object: ObjectId,
        is_sealed: bool,
    ) {
        match self.replies.get_mut(&(worker, caller)) {
            None => {}
            Some(Given::Near { latest, .. }) => latest.push(object),
            Some(Given::Far(tokens)) => {
                let is_kept = self.records.get(&object).is_some_and(|record| record.kept.is_some());
                let held = !(is_sealed && is_kept);
                tokens.push_back(FarToken { object, held });
                if held {
                    self.node_hold(&[object]);
                }
            }
        }
    }

    pub(super) fn on_replies_ended(
        &mut self,
        worker: ProcessId,
        caller: ProcessId,
        tokens: u64,
    ) -> Result<(), String> {
        // Who never gave anything may be told of as dead when only its socket is closed.
        let Some(given) = self.replies.remove(&(worker, caller)) else { return Ok(()) };
        let Given::Near { written, latest } = given else {
            unreachable!("a far process has not joined")
        };
        if self.processes.contains_key(&worker) && !self.dying.contains(&worker) {
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

    // ---- far callers ----

    pub(super) fn on_serves_far(&mut self, worker: ProcessId, caller: ProcessId) {
        assert!(caller.node() != self.node, "{caller} is of this node");
        self.replies.entry((worker, caller)).or_insert_with(|| Given::Far(VecDeque::new()));
    }

    /// What a reply names has left with it, and is covered.
    pub(super) fn on_far_reply_left(
        &mut self,
        worker: ProcessId,
        caller: ProcessId,
        named: &[ObjectId],
    ) {
        let Some(Given::Far(tokens)) = self.replies.get_mut(&(worker, caller)) else { return };
        let mut held = Vec::new();
        for object in named {
            // The first one, unless the worker does not keep to the order of what it told.
            let Some(at) = tokens.iter().position(|token| token.object == *object) else {
                continue;
            };
            let token = tokens.remove(at).expect("it was just found");
            held.extend(token.held.then_some(token.object));
        }
        self.node_release(&held);
    }

    /// No reply leaves any more.
    pub(super) fn on_far_replies_ended(&mut self, worker: ProcessId, caller: ProcessId) {
        let Some(Given::Far(tokens)) = self.replies.remove(&(worker, caller)) else { return };
        for token in tokens.into_iter().filter(|token| token.held) {
            self.note(token.object, "not replied", Some(worker));
            self.node_release(&[token.object]);
        }
    }

    /// Pairs of a worker here and a far caller that it may reply to.
    pub fn far_replies(&self) -> impl Iterator<Item = (ProcessId, ProcessId)> {
        let far = self.replies.iter().filter(|(_, given)| matches!(given, Given::Far(_)));
        far.map(|(pair, _)| *pair)
    }
}
