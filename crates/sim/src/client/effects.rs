//! What a session decides is carried out: messages, calls that go into rings and come back, replies that are taken.

use std::collections::VecDeque;

use hoplo_base::{Instant, ProcessId, TaskId};
use hoplo_core::session::{Effect, Event, SessionMachine};
use hoplo_wire::node::{ActorCreated, Tell, ToClient, ToNode};
use hoplo_wire::reply::{ReplyKind, ReplyView};

use crate::cluster::{Cluster, Step};
use crate::network::{Call, Outbound};

impl Cluster {
    /// Runs `change` on the session and carries out what it decides.
    pub fn session<R>(
        &mut self,
        id: ProcessId,
        change: impl FnOnce(&mut SessionMachine, Instant, &mut Vec<Effect>) -> R,
    ) -> R {
        let now = self.now;
        let mut effects = Vec::new();
        let result = change(&mut self.client(id).session, now, &mut effects);
        self.carry_out(id, effects);
        self.arm(id);
        result
    }

    fn carry_out(&mut self, id: ProcessId, mut effects: Vec<Effect>) {
        let mut rounds = 0;
        let mut fired = Vec::new();
        while !effects.is_empty() {
            rounds += 1;
            assert!(rounds < 1000, "{id} never stops: {effects:?}");
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Place { worker, seq } => self.place(id, worker, seq),
                    Effect::Revoke { worker, seqs } => {
                        let Some((seqs, kept)) = self.revoke(id, worker, &seqs) else { continue };
                        self.count(if seqs.is_empty() {
                            "vain revocations"
                        } else {
                            "revocations"
                        });
                        self.note(|| {
                            format!("{id} takes back {seqs:?} from {worker}, not {kept:?}")
                        });
                        self.notes_revoked(id, worker, &seqs);
                        let event = Event::Revoked { worker, seqs, kept };
                        let now = self.now;
                        self.client(id).session.handle(now, event, &mut effects);
                        if self.client(id).outbound.contains_key(&worker) {
                            self.refill(id, worker); // what waited for room has it now
                        }
                    }
                    Effect::Node(message) => self.say(id, message),
                    Effect::FreeStored { object, location } => {
                        let ours = location.offset < self.plan.capacity_bytes;
                        let live = self.here.daemon.node.live_slots();
                        let freed = ours && self.here.memory.free_private(location, live);
                        self.note(|| format!("{id} frees {object} itself: {freed}"));
                        let now = self.now;
                        let client = self.client(id);
                        if freed {
                            client.extents.reclaim(location);
                            client.session.freed(now, object, &mut effects);
                        } else {
                            client.session.free_refused(now, object, &mut effects);
                        }
                    }
                    // Callbacks run when all is said that was decided before.
                    Effect::Fire { watch } => fired.push(watch),
                    Effect::CreationFailed { request } => {
                        let result = Ok(ActorCreated::New);
                        self.answered(id, ToClient::ActorCreated { request, result });
                    }
                    Effect::Warn { line } => self.note(|| format!("{id} warns: {line}")),
                    Effect::ReturnMemory => {}
                }
            }
        }
        for watch in fired {
            self.fired(id, watch);
        }
    }

    /// What lies in its socket for the daemon.
    pub fn written_by(&mut self, id: ProcessId) -> &mut VecDeque<ToNode> {
        match self.questions.tools.get_mut(&id) {
            Some(tool) => &mut tool.up,
            None => &mut self.clients.get_mut(&id).expect("it is connected").up,
        }
    }

    /// And from the daemon.
    pub fn written_to(&mut self, id: ProcessId) -> &mut VecDeque<ToClient> {
        match self.questions.tools.get_mut(&id) {
            Some(tool) => &mut tool.down,
            None => &mut self.clients.get_mut(&id).expect("it is connected").down,
        }
    }

    pub fn say(&mut self, id: ProcessId, message: ToNode) {
        if self.sabotage_loses(&message) {
            return;
        }
        match &message {
            ToNode::ActorCreate { spec, .. } => self.books.facts.tells_of(spec.actor),
            ToNode::Tell { message: Tell::Cancel { task, .. }, .. } => {
                self.stop_is_legitimate(*task);
            }
            ToNode::Notices(notices) => self.says_what_is_lost(notices),
            _ => {}
        }
        let up = self.written_by(id);
        up.push_back(message);
        if up.len() == 1 {
            let delay = self.rng.delay(self.plan.tardiness);
            self.after(delay, Step::DaemonReads(id));
        }
    }

    fn place(&mut self, id: ProcessId, worker: ProcessId, seq: u64) {
        self.notes_place(id, worker, seq);
        if let Some(original) = self.clients[&id].session.stands_for(seq)
            && self.books.facts.stands_for(original, TaskId { owner: id, seq })
            && original.owner == id
        {
            self.count("results made again");
            if self.books.facts.streams(original) {
                self.count("streams run again for lost items");
            }
        }
        if !self.here.channels.contains_key(&(id, worker)) {
            self.here.channels.entry((id, worker)).or_default();
            self.client(id).outbound.insert(worker, Outbound::default());
            self.say(id, ToNode::Connect { to: worker });
        }
        self.client(id).outbound.get_mut(&worker).expect("it is there").overflow.push_back(seq);
        self.refill(id, worker);
    }

    fn refill(&mut self, id: ProcessId, worker: ProcessId) {
        let depth = self.plan.ring_depth;
        loop {
            let channel = self.here.channels.get_mut(&(id, worker)).expect("the caller has it");
            let client = self.clients.get_mut(&id).expect("it lives");
            let outbound = client.outbound.get_mut(&worker).expect("the caller has it");
            if channel.calls.len() >= depth {
                return;
            }
            let Some(seq) = outbound.overflow.pop_front() else { return };
            let Some(frame) = client.session.frame(seq) else { continue };
            let mut bytes = frame.header.to_vec();
            bytes.extend_from_slice(frame.args);
            bytes.extend_from_slice(&frame.extra);
            bytes.extend_from_slice(frame.refs);
            outbound.sent.push_back(seq);
            channel.calls.push_back(Call { seq, bytes });
            let connected = channel.connected;
            self.note(|| format!("{id} sends {} to {worker}", TaskId { owner: id, seq }));
            if worker.node() != id.node() {
                self.rings_carrier();
            } else if connected {
                self.wake(worker);
            }
        }
    }

    /// What was taken back, and what was begun. `None`: all that is left to say comes later, from another node.
    fn revoke(
        &mut self,
        id: ProcessId,
        worker: ProcessId,
        asked: &[u64],
    ) -> Option<(Vec<u64>, Vec<u64>)> {
        let (mut seqs, mut kept) = (Vec::new(), Vec::new());
        let client = self.clients.get_mut(&id).expect("it lives");
        let Some(outbound) = client.outbound.get_mut(&worker) else { return Some((seqs, kept)) };
        let channel = self.here.channels.get_mut(&(id, worker)).expect("both or none");
        for seq in asked.iter().rev() {
            if let Some(at) = outbound.overflow.iter().position(|waiting| waiting == seq) {
                outbound.overflow.remove(at);
                seqs.push(*seq);
            } else if channel.revoke(*seq) {
                outbound.sent.retain(|sent| sent != seq);
                seqs.push(*seq);
            } else {
                kept.push(*seq);
            }
        }
        seqs.reverse();
        if worker.node() != id.node() {
            // They have left the ring: whether the worker took them is answered later.
            kept.reverse();
            let mut far = std::mem::take(&mut kept);
            outbound.asked.ask(&mut far);
            if !far.is_empty() {
                self.say(id, ToNode::RevokeFar { worker, seqs: far });
            }
            if seqs.is_empty() {
                return None;
            }
        }
        Some((seqs, kept))
    }

    /// Another node answers.
    pub fn far_revoked(
        &mut self,
        id: ProcessId,
        worker: ProcessId,
        seqs: &[u64],
        kept: &mut Vec<u64>,
    ) {
        let said = kept.len();
        if let Some(outbound) = self.client(id).outbound.get_mut(&worker) {
            outbound.asked.answered(seqs, kept);
            outbound.sent.retain(|seq| !seqs.contains(seq));
        }
        if kept.len() < said {
            self.count("answers about calls that were replied to and came again");
        }
        self.count(if seqs.is_empty() {
            "vain revocations from far workers"
        } else {
            "calls that came back from far workers"
        });
        self.note(|| format!("{id} gets {seqs:?} back from {worker}, not {kept:?}"));
        self.notes_revoked(id, worker, seqs);
    }

    /// Takes every reply that is there.
    pub fn drain(&mut self, id: ProcessId) {
        let mut effects = Vec::new();
        let now = self.now;
        let workers: Vec<ProcessId> = self.client(id).outbound.keys().copied().collect();
        for worker in &workers {
            let channel = self.here.channels.get_mut(&(id, *worker)).expect("both or none");
            let client = self.clients.get_mut(&id).expect("it lives");
            while let Some(bytes) = channel.replies.pop_front() {
                let reply = ReplyView::parse(&bytes).expect("workers here write well");
                let seq = reply.header.seq;
                client
                    .session
                    .on_reply(now, *worker, &reply, &mut effects)
                    .expect("workers here write well");
                let outbound = client.outbound.get_mut(worker).expect("it is there");
                match reply.header.kind {
                    ReplyKind::Finished | ReplyKind::StreamEnd => {
                        outbound.asked.replied(seq);
                        outbound.sent.retain(|sent| *sent != seq);
                    }
                    ReplyKind::Item | ReplyKind::Part => {}
                }
            }
        }
        for worker in workers {
            self.refill(id, worker);
        }
        self.carry_out(id, effects);
        self.arm(id);
    }
}
