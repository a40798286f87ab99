//! What the session decides, carried out: frames into rings, notices to the daemon, room given back.

use hoplo_base::{ProcessId, limits};
use hoplo_core::session::{Effect, Event, SessionMachine};
use hoplo_shm::{Urgency, heap};
use hoplo_wire::node::{ActorCreated, ToClient, ToNode};
use hoplo_wire::{Failure, FailureKind};

use crate::client::Client;
use crate::guarded::{Carrying, Core, Warnings};
use crate::peers::{Outbound, Written};
use crate::writer::Writer;

impl Client {
    /// Effects in order, and those of the events that they lead to.
    #[inline]
    pub(crate) fn carry_out(&self, core: &mut Core) {
        if !core.effects.is_empty() {
            self.carry_out_all(core);
        }
    }

    fn carry_out_all(&self, core: &mut Core) {
        // Taken out, since what is carried out may call `carry_out` for more.
        let Carrying { mut effects, mut rung } = std::mem::take(&mut core.carrying);
        let mut fired = false;
        while !core.effects.is_empty() {
            std::mem::swap(&mut effects, &mut core.effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Place { worker, seq } => {
                        if self.place(core, worker, seq) && rung.last() != Some(&worker) {
                            rung.push(worker);
                        }
                    }
                    Effect::Revoke { worker, seqs } => self.revoke(core, worker, &seqs),
                    Effect::Node(message) => core.writer.send(&message),
                    Effect::FreeStored { object, location } => {
                        let freed = self.store.lock().free_private(location);
                        let now = self.now();
                        if freed {
                            core.session.freed(now, object, &mut core.effects);
                            core.freed = true;
                        } else {
                            core.session.free_refused(now, object, &mut core.effects);
                        }
                    }
                    Effect::Fire { watch } => {
                        let callback = core.watches.remove(&watch);
                        fired |= callback.is_some();
                        core.due.extend(callback);
                    }
                    Effect::CreationFailed { request } => {
                        let result = Ok(ActorCreated::New);
                        let answer = ToClient::ActorCreated { request, result };
                        // Who gave up waiting needs none.
                        let _ = self.requests.lock().answer(request, answer);
                    }
                    Effect::Warn { line } => {
                        core.warnings.add(line);
                        fired = true;
                    }
                    Effect::ReturnMemory => {
                        core.due.push(Box::new(heap::return_free));
                        fired = true;
                    }
                }
            }
        }
        if fired {
            self.goes_on(core);
            self.own_bell(Urgency::Must); // the progress thread may sleep until a reply comes
        }
        if std::mem::take(&mut core.freed) {
            self.trim(core); // only now: it flushes, and earlier notices of this batch go first
        }
        for worker in &rung {
            if let Some(peer) = core.peers.get(worker) {
                peer.wake(&self.ringer);
            }
        }
        rung.clear();
        core.carrying = Carrying { effects, rung };
    }

    /// Free room beyond what is worth keeping warm goes back to the node.
    pub(crate) fn trim(&self, core: &mut Core) {
        let pieces = self.store.lock().surplus();
        self.return_room(core, pieces);
        if core.cool_at.is_none() {
            core.cool_at = Some(self.now() + limits::WARM_TIME);
        }
    }

    /// The daemon hears first that what lay there is gone.
    pub(crate) fn return_room(&self, core: &mut Core, pieces: Vec<(u64, u64)>) {
        if pieces.is_empty() {
            return;
        }
        core.session.flush(&mut core.effects);
        self.carry_out(core);
        for (offset, len) in pieces {
            core.writer.send(&ToNode::ExtentReturn { offset, len });
        }
    }

    /// Writes a call into its ring; true if the worker is to be rung.
    fn place(&self, core: &mut Core, worker: ProcessId, seq: u64) -> bool {
        let peer = match core.peers.get_mut(&worker) {
            Some(known) => known,
            None => match Outbound::create(self.ringer.whom(worker)) {
                Ok((peer, fd)) => {
                    core.writer.send_with(&ToNode::Connect { to: worker }, Some(fd));
                    core.peers.entry(worker).or_insert(peer)
                }
                Err(error) => {
                    let why = format!(
                        "no channel to {worker} can be made ({error}): close files, or raise the limit \
                         (ulimit -n), and call again"
                    );
                    self.not_placed(&mut core.session, worker, seq, why, &mut core.effects);
                    return false;
                }
            },
        };
        if !peer.overflow.is_empty() || core.writer.is_behind() {
            core.overflowing += usize::from(peer.overflow.is_empty());
            peer.overflow.push_back(seq);
            return false;
        }
        match peer.write(&mut core.session, seq) {
            Written::Whole => true,
            Written::Gone => false,
            Written::Full => {
                peer.overflow.push_back(seq);
                core.overflowing += 1;
                true
            }
            Written::TooLarge(why) => {
                self.not_placed(&mut core.session, worker, seq, why, &mut core.effects);
                false
            }
            Written::Corrupt(why) => {
                peer.overflow.push_back(seq); // it never took this call: its end will tell
                core.overflowing += 1;
                channel_broken(&mut core.writer, &mut core.warnings, worker, why);
                false
            }
        }
    }

    /// Calls that found a ring full, or the daemon behind (WRITE-1), are tried again.
    pub(crate) fn refill(&self, core: &mut Core) {
        if core.overflowing == 0 || core.writer.is_behind() {
            return;
        }
        let Core { session, peers, effects, overflowing, writer, warnings, .. } = core;
        for (worker, peer) in peers.iter_mut().filter(|(_, peer)| !peer.overflow.is_empty()) {
            let mut wrote = false;
            while let Some(seq) = peer.overflow.front().copied() {
                match peer.write(session, seq) {
                    Written::Whole => wrote = true,
                    Written::Gone => {}
                    Written::Full => break,
                    Written::Corrupt(why) => {
                        channel_broken(writer, warnings, *worker, why);
                        break;
                    }
                    Written::TooLarge(why) => self.not_placed(session, *worker, seq, why, effects),
                }
                peer.overflow.pop_front();
            }
            if peer.overflow.is_empty() {
                *overflowing -= 1;
            }
            if wrote {
                peer.wake(&self.ringer);
            }
        }
    }

    #[cold]
    fn not_placed(
        &self,
        session: &mut SessionMachine,
        worker: ProcessId,
        seq: u64,
        why: String,
        effects: &mut Vec<Effect>,
    ) {
        let failure = Failure::new(FailureKind::NotSent, format!("the call was not sent: {why}"));
        session.handle(self.now(), Event::NotPlaced { worker, seq, failure }, effects);
    }

    fn revoke(&self, core: &mut Core, worker: ProcessId, asked: &[u64]) {
        let mut seqs = Vec::new();
        let mut kept = Vec::new();
        if let Some(peer) = core.peers.get_mut(&worker) {
            let overflowed = !peer.overflow.is_empty();
            // From the back, so that nothing is started out of order meanwhile.
            for seq in asked.iter().rev() {
                if peer.revoke(*seq) { seqs.push(*seq) } else { kept.push(*seq) }
            }
            if overflowed && peer.overflow.is_empty() {
                core.overflowing -= 1;
            }
        }
        seqs.reverse();
        if let Some(peer) = core.peers.get_mut(&worker).filter(|peer| peer.whom.is_far) {
            // They have left the ring: whether the worker took them is answered later.
            kept.reverse();
            let mut far = std::mem::take(&mut kept);
            peer.asked.ask(&mut far);
            if !far.is_empty() {
                core.writer.send(&ToNode::RevokeFar { worker, seqs: far });
            }
            if seqs.is_empty() {
                return;
            }
        }
        let event = Event::Revoked { worker, seqs, kept };
        core.session.handle(self.now(), event, &mut core.effects);
    }
}

/// A worker wrote nonsense. Its obituary will tell what becomes of the calls there.
#[cold]
pub(crate) fn channel_broken(
    writer: &mut Writer,
    warnings: &mut Warnings,
    worker: ProcessId,
    why: String,
) {
    warnings.add(format!("{worker} is killed: {why}"));
    writer.send(&ToNode::ChannelBroken { worker, why: why.into() });
}
