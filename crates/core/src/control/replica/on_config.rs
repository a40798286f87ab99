//! The coordinator says how the chain is.

use hoplo_base::Instant;
use hoplo_base::limits::{CONTROL_LEASE_WAIT, CONTROL_SESSIONS_ENDED_AT_ONCE};
use hoplo_wire::control::{ChainConfig, Chunk, ClientId, Record, Refusal, ReplicaId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::down::Down;
use super::history::entry;
use super::{Effect, Replica, Role, Up, Watch};
use crate::control::sessions::BatchId;

impl Replica {
    pub(super) fn on_configured(
        &mut self,
        now: Instant,
        config: ChainConfig,
        effects: &mut Vec<Effect>,
    ) {
        assert!(!self.replaying, "the log is read before everything else");
        if config.shard != self.options.shard || config.epoch <= self.epoch() {
            return;
        }
        let before = self.role;
        let follows = self.epoch().0 + 1 == config.epoch.0;
        let role = Role::of(self.options.me, &config);
        self.note(now, format!("epoch {}: {role:?}", config.epoch.0));
        // What it did not see counts as the worst, unless it was not in the chain.
        let was_member = matches!(before, Role::Member { .. });
        if !config.old_tail_gone || (was_member && !follows) {
            self.quiet_until = self.quiet_until.max(now + CONTROL_LEASE_WAIT);
        }
        let was_tail = self.is_tail() && self.acting() && self.applied >= self.answers_from;
        self.role = role;
        self.config = Some(config);
        self.lease_until = Instant::ZERO;
        self.lease_asked = None;
        match role {
            Role::Outside => {}
            Role::Joining => self.drop_pending(now, effects),
            Role::Member { .. } => self.begin_shard(),
        }
        self.new_tail = !(was_tail && self.is_tail() && follows);
        if self.new_tail {
            self.answers_from = self.last();
        }
        self.link(now);
        self.lead(now, before);
        if !self.is_tail() {
            let why = Refusal::NotMine("tail".to_string());
            self.subscriptions.end_all(self.options.shard, &why, effects);
            self.refuse_queries(&Refusal::Stale(self.epoch()), effects);
        } else if !was_tail {
            self.subscriptions.news();
        }
        if let Some((from, message)) = self.early.take()
            && message.epoch >= self.epoch()
        {
            self.on_peer(now, from, message, effects);
        }
    }

    /// Only what is known to be committed is the chain's history for sure.
    fn drop_pending(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let keep = self.known.min(self.last());
        if keep < self.last() {
            self.note(now, format!("drops entries {}..={}", keep + 1, self.last()));
            self.truncate(keep, effects);
        }
    }

    /// The first members of a new shard agree that it is empty; so does the one that goes on where nothing is left, and
    /// a head that was never told of the first epoch, as long as nobody acted.
    fn begin_shard(&mut self) {
        let config = self.config.as_ref().expect("it was just configured");
        let begins = config.unbegun && (config.history == config.epoch || self.is_head());
        let has_begun = self.has_base() && self.history.last_epoch() >= config.history;
        if has_begun || !begins {
            return;
        }
        // Perhaps it joined, and has a part of what somebody gave it who is gone; or what an operator gave up.
        self.forget_all();
        let base = Chunk {
            snapshot: self.snapshots.number(self.options.me),
            as_of: 0,
            // So it can be told from having nothing.
            epoch: self.epoch(),
            from: None,
            until: None,
            rows: vec![],
            archived: vec![],
            sessions: vec![],
            sessions_over: 0,
        };
        self.history.reset(0, base.epoch);
        self.tables.install(&base);
        let number = self.append(Arc::new(Record::Chunk(base)));
        self.base_unstable = Some((number, self.cold.mark()));
    }

    /// The neighbours as they are now; whatever was said before is void.
    fn link(&mut self, now: Instant) {
        let config = self.config.as_ref().expect("it was just configured");
        let members: Vec<ReplicaId> = config.members.iter().map(|member| member.replica).collect();
        let joining = config.joining.as_ref().map(|member| member.replica);
        let (up, down) = match self.role {
            Role::Outside => (None, None),
            Role::Joining => (members.last().copied(), None),
            Role::Member { place, .. } => {
                let up = place.checked_sub(1).map(|place| members[place]);
                let next = members.get(place + 1).map(|next| (*next, false));
                (up, next.or(joining.map(|joining| (joining, true))))
            }
        };
        self.up = up.map(|replica| Up {
            replica,
            synced: false,
            whole_from: 0,
            stable: 0,
            told: (0, (0, 0)),
            chunks: 0,
            chunks_unstable: VecDeque::new(),
            receiving: None,
            again_at: None,
            caught_up: false,
            watch: Watch::new(now),
        });
        let kept = self.down.take();
        self.down = down.map(|(replica, joining)| {
            // What it may still need stays in memory until it says what it has.
            let acked = kept.filter(|kept| kept.replica == replica).map(|kept| kept.acked());
            Down::new(now, replica, joining, acked.unwrap_or(self.known.min(self.history.last())))
        });
    }

    /// Who is the head from now on knows what was entered and is not applied.
    fn lead(&mut self, now: Instant, before: Role) {
        self.archiving.forget();
        self.tables.look_again();
        self.entered.clear();
        self.asked_again.clear();
        self.ending.clear();
        if !self.is_head() {
            self.touched.clear();
            return;
        }
        for index in self.applied + 1..=self.last() {
            let kept = self.history.get(index).expect("CHAIN-9: what is not applied is here");
            let entry = entry(&kept.record);
            if let Some(client) = entry.client {
                self.entered.insert(client, BatchId { born: entry.born, seq: entry.seq });
            }
            self.ending.extend(&entry.ended);
            self.archiving.entered(entry);
        }
        self.end_lost_sessions();
        if !matches!(before, Role::Member { place: 0, .. }) {
            let clients = self.sessions.clients().chain(self.entered.keys().copied());
            self.touched = clients.map(|client| (client, now)).collect();
        }
    }

    /// The history went on with less than was acknowledged, and nothing was entered since: what clients know of their
    /// batches is void. Each is told so before it sends another one.
    fn end_lost_sessions(&mut self) {
        let config = self.config.as_ref().expect("it was just configured");
        if !self.has_base() || self.history.last_epoch() >= config.history {
            return;
        }
        let all: BTreeSet<ClientId> =
            self.sessions.clients().chain(self.entered.keys().copied()).collect();
        let all: Vec<ClientId> = all.into_iter().collect();
        for some in all.chunks(CONTROL_SESSIONS_ENDED_AT_ONCE) {
            self.ending.extend(some);
            self.enter(None, vec![], some.to_vec());
        }
    }
}
