//! What neighbours say.
//!
//! Trusted to be of this program, not to be right: what does not fit is answered with what this one has.

use std::sync::Arc;

use hoplo_base::Instant;
use hoplo_base::limits::{CONTROL_CAUGHT_UP_ENTRIES, CONTROL_PEER_RETRY};
use hoplo_wire::control::{Chunk, Epoch, PeerBody, PeerMessage, Record, ReplicaId};

use super::{Effect, Replica, Role};
use crate::control::tables::Covered;

/// Something is missing between what is here and what came.
struct Gap;

impl Replica {
    pub(super) fn on_peer(
        &mut self,
        now: Instant,
        from: ReplicaId,
        message: PeerMessage,
        effects: &mut Vec<Effect>,
    ) {
        if message.shard != self.options.shard {
            return;
        }
        let from_up = self.up.as_ref().is_some_and(|up| up.replica == from);
        let from_down = self.down.as_ref().is_some_and(|down| down.replica == from);
        self.heard(now, from);
        let ours = self.epoch();
        match message.body {
            PeerBody::Ping => self.send(from, PeerBody::Pong, effects),
            PeerBody::Pong => {}
            PeerBody::Stale { newest } => {
                if newest > ours {
                    effects.push(Effect::WantConfig { epoch: newest });
                }
            }
            _ if message.epoch < ours => {
                self.send(from, PeerBody::Stale { newest: ours }, effects);
            }
            _ if message.epoch > ours => {
                effects.push(Effect::WantConfig { epoch: message.epoch });
                if matches!(message.body, PeerBody::Sync { .. }) {
                    self.early = Some((from, message));
                }
            }
            PeerBody::Sync { logged, committed } if from_up => {
                self.on_sync(logged, committed, effects);
            }
            PeerBody::Forward { records, stable, committed } if from_up => {
                self.on_forward(now, records, stable, committed, effects);
            }
            PeerBody::LeaseGranted { asked, for_us } if from_up => {
                self.on_lease_granted(now, asked, for_us, effects);
            }
            PeerBody::Have { last } if from_down => self.on_have(now, last),
            PeerBody::Committed { index } if from_down => {
                self.known = self.known.max(index.min(self.last()));
            }
            PeerBody::Progress { logged, chunks } if from_down => self.on_progress(logged, chunks),
            PeerBody::LeaseWanted { asked } if from_down => {
                self.on_lease_wanted(now, asked, effects);
            }
            // Of this epoch, but not from a neighbour in it.
            PeerBody::Sync { .. }
            | PeerBody::Forward { .. }
            | PeerBody::LeaseGranted { .. }
            | PeerBody::Have { .. }
            | PeerBody::Committed { .. }
            | PeerBody::Progress { .. }
            | PeerBody::LeaseWanted { .. } => {
                self.note(now, format!("{from:?} is no neighbour, but speaks like one"));
            }
        }
    }

    pub(super) fn on_peer_gone(
        &mut self,
        now: Instant,
        replica: ReplicaId,
        effects: &mut Vec<Effect>,
    ) {
        let mut report = false;
        if let Some(up) = self.up.as_mut().filter(|up| up.replica == replica) {
            report |= up.watch.gone(now);
            // What was on its way is lost, and is said again.
            up.told = (0, (0, 0));
            up.again_at = up.synced.then_some(now + CONTROL_PEER_RETRY);
            self.lease_asked = None;
        }
        if let Some(down) = self.down.as_mut().filter(|down| down.replica == replica) {
            report |= down.watch.gone(now);
            down.lost(now);
        }
        if report {
            self.note(now, format!("no connection to {replica:?}"));
            effects.push(Effect::Suspect { replica });
        }
    }

    fn on_sync(&mut self, logged: u64, committed: u64, effects: &mut Vec<Effect>) {
        let new_tail = self.new_tail && self.is_tail();
        let Some(up) = &mut self.up else { return };
        if !up.synced {
            up.synced = true;
            up.whole_from = logged;
            if new_tail {
                self.answers_from = self.answers_from.max(logged);
            }
        }
        if self.has_base() {
            self.known = self.known.max(committed);
        }
        self.say_have(effects);
    }

    /// What follows is sent from there on.
    fn say_have(&mut self, effects: &mut Vec<Effect>) {
        let last = self.has_base().then(|| (self.last(), self.history.last_epoch()));
        let Some(up) = &mut self.up else { return };
        up.again_at = None;
        up.told = (0, (0, 0));
        up.receiving = up.receiving.filter(|_| last.is_some());
        let to = up.replica;
        self.send(to, PeerBody::Have { last }, effects);
    }

    fn on_forward(
        &mut self,
        now: Instant,
        records: Vec<Arc<Record>>,
        stable: u64,
        committed: u64,
        effects: &mut Vec<Effect>,
    ) {
        if !self.up.as_ref().is_some_and(|up| up.synced) {
            return;
        }
        for record in records {
            let taken = match &*record {
                Record::Entry(_) => self.take_entry(record),
                Record::Chunk(_) => self.take_given_chunk(now, record, effects),
            };
            if let Err(Gap) = taken {
                self.note(now, format!("misses something after entry {}", self.last()));
                if let Some(up) = &mut self.up {
                    up.again_at.get_or_insert(now + CONTROL_PEER_RETRY);
                }
                return;
            }
        }
        if *self.tables.covered() == Covered::Nothing {
            return;
        }
        self.known = self.known.max(committed);
        if let Some(up) = &mut self.up {
            up.stable = up.stable.max(stable);
        }
    }

    fn take_entry(&mut self, record: Arc<Record>) -> Result<(), Gap> {
        let entry = super::history::entry(&record);
        let (index, epoch, committed) = (entry.index, entry.epoch, entry.committed);
        if *self.tables.covered() == Covered::Nothing || index > self.last() + 1 {
            return Err(Gap);
        }
        if index <= self.last() {
            // Sent twice. Of another epoch it would be another history: the answer to `Have` settles it.
            let same = self.history.epoch_at(index).is_none_or(|known| known == epoch);
            return if same { Ok(()) } else { Err(Gap) };
        }
        if epoch < self.history.last_epoch() {
            return Err(Gap);
        }
        self.known = self.known.max(committed);
        self.push_entry(record);
        Ok(())
    }

    fn take_given_chunk(
        &mut self,
        now: Instant,
        record: Arc<Record>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Gap> {
        let record = Arc::try_unwrap(record).unwrap_or_else(|shared| (*shared).clone());
        let Record::Chunk(mut chunk) = record else { return Err(Gap) };
        let Some(up) = &mut self.up else { return Err(Gap) };
        if chunk.from.is_none() && chunk.until.is_none() {
            // The last chunk waits for the cold tier, which waits for the first one.
            return Err(Gap);
        }
        if chunk.from.is_none() {
            (up.receiving, up.chunks) = (Some(chunk.snapshot), 0);
            up.chunks_unstable.clear();
            self.note(now, format!("is given everything, as of {} on", chunk.as_of));
            // A last chunk that still waits for the cold tier goes: this base comes in place of that one.
            if self.log_waits.take().is_some() {
                self.numbered -= self.to_log.len() as u64;
                self.to_log.clear();
            }
            self.truncate(0, effects);
        } else if up.receiving != Some(chunk.snapshot) {
            return Err(Gap);
        }
        self.take_chunk(now, &chunk, effects).map_err(|()| Gap)?;
        self.cold.clear(now, chunk.from.as_ref(), chunk.until.as_ref());
        for (key, row) in std::mem::take(&mut chunk.archived) {
            self.cold.put(now, key, row);
        }
        let (first, last) = (chunk.from.is_none(), chunk.until.is_none());
        self.log_given_chunk(chunk, last);
        if first {
            self.cold_waits = Some(self.numbered);
        }
        Ok(())
    }

    fn log_given_chunk(&mut self, chunk: Chunk, last: bool) {
        let number = self.append(Arc::new(Record::Chunk(chunk)));
        if let Some(up) = &mut self.up {
            up.chunks += 1;
            up.chunks_unstable.push_back(number);
        }
        if last {
            self.base_unstable = Some((number, self.cold.mark()));
            self.log_waits = Some(self.cold.mark());
        }
    }

    /// Tells the predecessor how far this one is, and the coordinator when it has caught up.
    pub(super) fn report_up(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let (last, committed, joining) =
            (self.last(), self.committed(), self.role == Role::Joining);
        let stable_number = self.stable_number;
        if self.up.as_ref().is_some_and(|up| up.again_at.is_some_and(|at| at <= now)) {
            // And with it, below, all that it was told before.
            self.say_have(effects);
        }
        let Some(up) = &mut self.up else { return };
        if !up.synced || up.again_at.is_some() {
            return;
        }
        while up.chunks_unstable.front().is_some_and(|number| *number <= stable_number) {
            up.chunks_unstable.pop_front();
        }
        let to = up.replica;
        let chunks = up.chunks - up.chunks_unstable.len() as u64;
        let told = up.told;
        let progress = joining || chunks > 0;
        // While the log waits, no more is asked for.
        if progress && told.1 != (last, chunks) && self.log_waits.is_none() {
            up.told.1 = (last, chunks);
            self.send(to, PeerBody::Progress { logged: last, chunks }, effects);
        }
        if !joining && committed > told.0 {
            self.up.iter_mut().for_each(|up| up.told.0 = committed);
            self.send(to, PeerBody::Committed { index: committed }, effects);
        }
        if joining && self.caught_up() {
            let (shard, epoch) = (self.options.shard, self.epoch());
            let up = self.up.as_mut().expect("it joins behind somebody");
            if !std::mem::replace(&mut up.caught_up, true) {
                effects.push(Effect::CaughtUp { shard, epoch });
            }
        }
    }

    /// It joins and has all but the last few entries, safely.
    pub(super) fn caught_up(&self) -> bool {
        let Some(up) = self.up.as_ref().filter(|up| up.synced) else { return false };
        self.role == Role::Joining
            && self.has_base()
            && self.base_unstable.is_none()
            && self.disk_failed.is_none()
            && self.stable + CONTROL_CAUGHT_UP_ENTRIES >= self.known.max(up.whole_from)
    }

    /// It acts, and has all that was ever acknowledged, safely: from then on it may be left alone with it.
    pub(super) fn acts(&self) -> Option<Epoch> {
        let whole = self.up.as_ref().is_none_or(|up| self.stable >= up.whole_from);
        let safe = self.has_base() && self.base_unstable.is_none();
        (self.acting() && whole && safe).then(|| self.epoch())
    }

    fn heard(&mut self, now: Instant, from: ReplicaId) {
        if let Some(up) = self.up.as_mut().filter(|up| up.replica == from) {
            up.watch.heard(now);
        }
        if let Some(down) = self.down.as_mut().filter(|down| down.replica == from) {
            down.watch.heard(now);
        }
    }

    /// Pings who is silent though something is expected of it, and reports who stays so.
    pub(super) fn look_after_neighbours(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.report_disk(now, effects);
        let last = self.last();
        let waits_up = self.lease_asked.is_some() || !self.has_base();
        let committed = self.known;
        if let Some(up) = &mut self.up {
            let expected = !up.synced || waits_up || last > committed;
            let (due, replica) = (up.watch.look(now, expected), up.replica);
            self.chase(replica, due, effects);
        }
        let acting = self.acting() && self.has_base();
        if let Some(down) = &mut self.down {
            let behind = if down.is_joining() { down.acked() < last } else { last > committed };
            let expected = acting && (!down.is_streaming() || behind);
            let (due, replica) = (down.watch.look(now, expected), down.replica);
            self.chase(replica, due, effects);
        }
    }

    fn chase(&self, replica: ReplicaId, due: super::watch::Due, effects: &mut Vec<Effect>) {
        if due.ping {
            self.send(replica, PeerBody::Ping, effects);
        }
        if due.report {
            effects.push(Effect::Suspect { replica });
        }
    }
}
