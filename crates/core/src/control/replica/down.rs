//! The link to the successor, or from the tail to the replica that joins.
//!
//! ```text
//!   Asked --Have: it goes on from there--> Streaming
//!     \-----Have: too old, or another history--> Transfer --last chunk is sent--> Streaming
//!   any --the connection broke--> Asked
//! ```
//! In a transfer the entries that follow go before the chunk that includes them, so that the other side has
//! all up to its `as_of`. So it is in order in its log, too, and needs no second rule to be read again.

use std::sync::Arc;

use hoplo_base::Instant;
use hoplo_base::limits::{
    CONTROL_CHUNK_BYTES, CONTROL_CHUNK_ROWS, CONTROL_CHUNKS_UNDER_WAY, CONTROL_FORWARD_BYTES,
    CONTROL_JOIN_WINDOW_BYTES, CONTROL_KEY_BYTES_MAX, CONTROL_PEER_QUIET, CONTROL_PEER_RETRY,
};
use hoplo_wire::control::{Chunk, Epoch, Key, PeerBody, Record, ReplicaId, Row, Table};

use super::history::{entry, entry_bytes};
use super::{Effect, Replica, Watch};

#[derive(Clone, Debug)]
pub struct Down {
    pub replica: ReplicaId,
    joining: bool,
    phase: Phase,
    /// The first entry that was not sent.
    next: u64,
    /// It has the entries up to here.
    acked: u64,
    told_stable: u64,
    told_committed: u64,
    pub watch: Watch,
}

#[derive(Clone, Debug)]
enum Phase {
    /// `Sync` is said (again) then.
    Asked {
        at: Instant,
    },
    Streaming,
    Transfer(Transfer),
}

#[derive(Clone, Debug)]
struct Transfer {
    snapshot: u64,
    /// Where the next chunk begins; absent: at the first key.
    from: Option<Key>,
    sent: u64,
    stable: u64,
    /// The cold tier reads what is archived in the next chunk, which ends before this key.
    reading: Option<(u64, Option<Key>)>,
    /// A read failed: not before then.
    not_before: Instant,
}

impl Down {
    pub fn new(now: Instant, replica: ReplicaId, joining: bool, acked: u64) -> Self {
        Self {
            replica,
            joining,
            phase: Phase::Asked { at: now },
            next: acked + 1,
            acked,
            told_stable: 0,
            told_committed: 0,
            watch: Watch::new(now),
        }
    }

    pub fn is_joining(&self) -> bool {
        self.joining
    }

    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Entries from this one on must stay in memory for it.
    pub fn needs_from(&self) -> u64 {
        match self.phase {
            Phase::Asked { .. } => self.acked + 1,
            Phase::Streaming if !self.joining => self.next,
            Phase::Streaming => self.acked + 1,
            Phase::Transfer(_) => self.next,
        }
    }

    pub fn in_transfer(&self) -> bool {
        matches!(self.phase, Phase::Transfer(_))
    }

    /// It goes its own way again from the handshake.
    pub fn lost(&mut self, now: Instant) {
        self.phase = Phase::Asked { at: now + CONTROL_PEER_RETRY };
    }

    pub fn is_streaming(&self) -> bool {
        matches!(self.phase, Phase::Streaming)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Asked { at } => Some(*at),
            Phase::Streaming => None,
            Phase::Transfer(transfer) => {
                (transfer.not_before > Instant::ZERO).then_some(transfer.not_before)
            }
        }
    }
}

/// No key is as long.
fn behind_all_keys() -> Key {
    Key { table: Table::Event, bytes: vec![u8::MAX; CONTROL_KEY_BYTES_MAX + 1] }
}

impl Replica {
    pub(super) fn on_have(&mut self, now: Instant, last: Option<(u64, Epoch)>) {
        let goes_on = last.filter(|(index, epoch)| self.history.epoch_at(*index) == Some(*epoch));
        let Some(down) = &mut self.down else { return };
        down.told_stable = 0;
        down.told_committed = 0;
        match goes_on {
            Some((index, _)) => {
                down.phase = Phase::Streaming;
                down.next = index + 1;
                down.acked = index;
            }
            None => self.begin_transfer(now, last),
        }
    }

    fn begin_transfer(&mut self, now: Instant, last: Option<(u64, Epoch)>) {
        let snapshot = self.snapshots.number(self.options.me);
        let applied = self.applied;
        let Some(down) = &mut self.down else { return };
        down.phase = Phase::Transfer(Transfer {
            snapshot,
            from: None,
            sent: 0,
            stable: 0,
            reading: None,
            not_before: Instant::ZERO,
        });
        // The first chunk may be made later: until then nothing is kept for it.
        down.next = applied + 1;
        down.acked = applied;
        let replica = down.replica;
        self.note(now, format!("gives {replica:?} everything, because it has {last:?}"));
    }

    pub(super) fn on_progress(&mut self, logged: u64, chunks: u64) {
        if let Some(down) = &mut self.down {
            if let Phase::Transfer(transfer) = &mut down.phase {
                transfer.stable = transfer.stable.max(chunks.min(transfer.sent));
            }
            down.acked = down.acked.max(logged.min(down.next - 1));
        }
    }

    /// Sends what the successor has room for.
    pub(super) fn feed(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if !self.acting() || !self.has_base() {
            return;
        }
        let (logged, committed) = (self.last(), self.committed());
        let Some(down) = &mut self.down else { return };
        if let Phase::Asked { at } = &mut down.phase {
            if *at <= now {
                *at = now + CONTROL_PEER_QUIET;
                let to = down.replica;
                self.send(to, PeerBody::Sync { logged, committed }, effects);
            }
            return;
        }
        if self.history.base() >= down.next
            && !matches!(&down.phase, Phase::Transfer(it) if it.sent == 0)
        {
            // It was slower than what is kept for it, or this one was given another base itself.
            self.begin_transfer(now, None);
        }
        if let Some(Down { phase: Phase::Transfer(transfer), .. }) = &mut self.down
            && transfer.not_before <= now
        {
            transfer.not_before = Instant::ZERO;
        }
        self.send_chunks(now, effects);
        if self.down.as_ref().is_some_and(|down| matches!(down.phase, Phase::Streaming)) {
            self.send_entries(now, self.last(), effects);
        }
    }

    /// What is stable here and before, as the successor may know it.
    fn stable_for_all_after(&self, now: Instant) -> u64 {
        if now < self.quiet_until || self.cold_is_full() {
            return 0;
        }
        self.up.as_ref().map_or(u64::MAX, |up| up.stable).min(self.stable)
    }

    /// Entries up to `upto`, as far as there is room, and how far things are.
    fn send_entries(&mut self, now: Instant, upto: u64, effects: &mut Vec<Effect>) {
        let stable = self.stable_for_all_after(now);
        let committed = self.committed();
        let Some(mut down) = self.down.take() else { return };
        loop {
            let mut records = Vec::new();
            let mut bytes = 0;
            let room = if !down.joining || down.in_transfer() {
                u64::MAX
            } else {
                let under_way = self.history.bytes_between(down.acked, down.next - 1);
                CONTROL_JOIN_WINDOW_BYTES.saturating_sub(under_way)
            };
            while down.next <= upto && bytes < CONTROL_FORWARD_BYTES.min(room) {
                let kept = self.history.get(down.next).expect("what it may need is kept");
                bytes += entry_bytes(entry(&kept.record));
                records.push(Arc::clone(&kept.record));
                down.next += 1;
            }
            let news =
                stable > down.told_stable || (down.joining && committed > down.told_committed);
            if records.is_empty() && !news {
                break;
            }
            down.told_stable = down.told_stable.max(stable);
            down.told_committed = down.told_committed.max(committed);
            self.send(down.replica, PeerBody::Forward { records, stable, committed }, effects);
        }
        self.down = Some(down);
    }

    /// As many chunks as may be under way; where rows are archived, the cold tier is read first.
    fn send_chunks(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        loop {
            let reads_cold = self.cold.used;
            let Some(Down { phase: Phase::Transfer(transfer), .. }) = &self.down else { return };
            let full = transfer.sent - transfer.stable >= CONTROL_CHUNKS_UNDER_WAY;
            if full || transfer.reading.is_some() || now < transfer.not_before {
                return;
            }
            let until = self.chunk_end(transfer.from.as_ref());
            // There are always two: who joins logs the last one when it has the archive of all.
            let until = until.or_else(|| transfer.from.is_none().then(behind_all_keys));
            if !reads_cold {
                self.send_chunk(now, until, vec![], effects);
                continue;
            }
            let ticket = self.queries.ticket();
            let Some(Down { phase: Phase::Transfer(transfer), .. }) = &mut self.down else {
                return;
            };
            transfer.reading = Some((ticket, until.clone()));
            let (limit, bytes) = (CONTROL_CHUNK_ROWS, CONTROL_CHUNK_BYTES);
            let from = transfer.from.clone();
            effects.push(Effect::ColdScan { ticket, from, until, limit, bytes });
        }
    }

    /// Where a chunk that begins at `from` has enough rows; absent: it is the last one.
    pub(super) fn chunk_end(&self, from: Option<&Key>) -> Option<Key> {
        let mut bytes = 0;
        for (key, row) in self.tables.range(from) {
            if bytes >= CONTROL_CHUNK_BYTES {
                return Some(key.clone());
            }
            bytes += (key.bytes.len() + row.value.len() + size_of::<(Key, Row)>()) as u64;
        }
        None
    }

    /// The cold tier's part of the next chunk. `false`: nobody asked for it.
    pub(super) fn on_chunk_read(
        &mut self,
        now: Instant,
        ticket: u64,
        rows: &mut Vec<(Key, Row)>,
        page_until: Option<&Key>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(Down { phase: Phase::Transfer(transfer), .. }) = &mut self.down else {
            return false;
        };
        let Some((_, until)) = transfer.reading.take_if(|(reading, _)| *reading == ticket) else {
            return false;
        };
        let until = page_until.cloned().or(until);
        let rows = self.cold.overlaid(transfer.from.as_ref(), until.as_ref(), std::mem::take(rows));
        self.send_chunk(now, until, rows.into_iter().collect(), effects);
        true
    }

    /// `false`: nobody asked for it.
    pub(super) fn on_chunk_unread(&mut self, now: Instant, ticket: u64) -> bool {
        let Some(Down { phase: Phase::Transfer(transfer), .. }) = &mut self.down else {
            return false;
        };
        let ours = transfer.reading.take_if(|(reading, _)| *reading == ticket).is_some();
        if ours {
            transfer.not_before = now + hoplo_base::limits::CONTROL_COLD_RETRY;
        }
        ours
    }

    fn send_chunk(
        &mut self,
        now: Instant,
        until: Option<Key>,
        archived: Vec<(Key, Row)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Down { phase: Phase::Transfer(transfer), .. }) = &self.down else { return };
        let (snapshot, from, first) =
            (transfer.snapshot, transfer.from.clone(), transfer.sent == 0);
        if !first && self.down.as_ref().is_some_and(|down| self.history.base() >= down.next) {
            // The cold tier was slower than what is kept.
            return self.begin_transfer(now, None);
        }
        if !first {
            self.send_entries(now, self.last(), effects);
        }
        let chunk = self.chunk(snapshot, from, until.clone(), archived);
        let (stable, committed) = (self.stable_for_all_after(now), self.committed());
        let as_of = chunk.as_of;
        let records = vec![Arc::new(Record::Chunk(chunk))];
        let Some(down) = &mut self.down else { return };
        let Phase::Transfer(transfer) = &mut down.phase else { return };
        if first {
            down.next = as_of + 1;
            down.acked = as_of;
        }
        transfer.sent += 1;
        transfer.from.clone_from(&until);
        if until.is_none() {
            down.phase = Phase::Streaming;
        }
        let to = down.replica;
        self.send(to, PeerBody::Forward { records, stable, committed }, effects);
    }

    /// Everything in `from..until`, as it is now.
    pub(super) fn chunk(
        &self,
        snapshot: u64,
        from: Option<Key>,
        until: Option<Key>,
        archived: Vec<(Key, Row)>,
    ) -> Chunk {
        let rows = self.tables.range(from.as_ref());
        let rows = rows.take_while(|(key, _)| until.as_ref().is_none_or(|until| *key < until));
        let rows = rows.map(|(key, row)| (key.clone(), row.clone())).collect();
        let (sessions, sessions_over) = match until {
            None => (self.sessions.to_wire(), self.sessions.over()),
            Some(_) => (vec![], 0),
        };
        let (as_of, archived) = (self.applied, archived);
        let epoch =
            self.history.epoch_at(as_of).expect("the last applied entry is here, or the base");
        Chunk { snapshot, as_of, epoch, from, until, rows, archived, sessions, sessions_over }
    }
}
