//! References between nodes: the claims, what crosses, and what frames name.

use hoplo_base::limits::VALUES_SENT_AHEAD_BYTES;
use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_wire::peer::{self, FarValue, Peer};

use super::Node;
use crate::claims::{self, Cover, Message, Parcel};
use crate::node::sweeps::Deferred;
use crate::node::{Effect, Passing};
use crate::objects;

impl Node {
    pub(super) fn pass_to_claims(&mut self, event: claims::Event) {
        let mut effects = Vec::new();
        self.far.claims.handle(event, &mut effects);
        for effect in effects {
            self.on_claims(effect);
        }
    }

    fn on_claims(&mut self, effect: claims::Effect) {
        use claims::Effect as From;
        match effect {
            // What was asked of a home that is dead by now is announced to its heir.
            From::Send { to, .. } if self.far.dead.contains_key(&to) => {}
            From::Send { to, parcel } => {
                let Parcel { seq, message } = parcel;
                let message = Box::new(Peer::Claims { seq, message: to_wire(message) });
                self.out.push(Effect::SendPeer { to, cover: 0, message });
            }
            From::Sweep => self.sweeps.defer(Deferred::Claims),
            From::Free { object } => {
                self.take_last_words_back(object);
                self.far.values_sent.remove(&object);
                if self.far.crossed.remove(&object) {
                    let objects = vec![object];
                    self.pass_to_objects(objects::Event::NodeReleased { objects });
                }
            }
            From::Forget { .. } => {}
            From::Lost { object } => {
                let why = "its node does not know it: every reference to it was dropped before this one was used";
                self.pass_to_objects(objects::Event::Lost { object, why: why.to_string() });
            }
            From::Passed { epoch } => self.claims_passed(epoch),
            From::Violation { node, what } => {
                self.violations += 1;
                self.log(format!("{node} broke the protocol of references: it {what}"));
            }
        }
    }

    pub(in crate::node) fn claims_swept(&mut self) {
        self.pass_to_claims(claims::Event::Swept);
    }

    /// FAR-2: what is in our charge is held from its first crossing on.
    pub(super) fn cross(&mut self, objects: &[ObjectId]) {
        #[cfg(test)]
        if self.is_sabotaged(super::Sabotage::Crossing) {
            return;
        }
        for object in objects {
            if self.in_charge(*object) == self.me() && self.far.crossed.insert(*object) {
                self.pass_to_objects(objects::Event::NodeHeld { objects: vec![*object] });
            }
        }
    }

    pub(super) fn on_claims_message(&mut self, from: NodeNumber, seq: u64, message: peer::Claims) {
        let message = of_wire(message);
        // Whoever asks for what is here and never crossed got it by a way that nobody saw (an actor its own handle).
        let claimed = match &message {
            Message::Claim { object } | Message::Announce { object, .. } => Some(*object),
            _ => None,
        };
        let ours = claimed.filter(|object| self.in_charge(*object) == self.me());
        let here =
            ours.filter(|object| !self.far.crossed.contains(object) && self.objects.knows(*object));
        if let Some(object) = here {
            self.cross(&[object]);
            self.pass_to_claims(claims::Event::Held { object });
        }
        if let Message::Release { object } = &message
            && let Some(nodes) = self.far.values_sent.get_mut(object)
        {
            nodes.remove(&from); // empty ones go with the object
        }
        let parcel = Parcel { seq, message };
        self.pass_to_claims(claims::Event::Received { from, parcel });
        if let Some(object) = here {
            self.pass_to_claims(claims::Event::Dropped { object });
        }
        if let Some(object) = ours.filter(|object| self.far.claims.knows(*object)) {
            // Of an estate, a claim may be the first word on it.
            self.cross(&[object]);
            self.tell_lineage(from, object);
        }
    }

    /// The directory uses an object of another home, or does not any more.
    pub(in crate::node) fn on_foreign(&mut self, object: ObjectId, used: bool) {
        if used && !self.may_be(object) {
            self.far.homeless.insert(object);
            return;
        }
        if !used && self.far.homeless.remove(&object) {
            return;
        }
        self.pass_to_claims(match used {
            true => claims::Event::Held { object },
            false => claims::Event::Dropped { object },
        });
    }

    /// What was told of a foreign object contains these: told before anybody here reads it.
    pub(super) fn on_contents(&mut self, container: ObjectId, contents: &[ObjectId]) {
        let contents = contents.iter().copied().filter(|inner| self.may_be(*inner));
        let contents: Box<[ObjectId]> = contents.collect();
        if !contents.is_empty() {
            self.pass_to_claims(claims::Event::Contains { container, contents });
        }
    }

    /// Something that names these is here, and what our processes got from it is held.
    pub(super) fn arrived(&mut self, from: NodeNumber, cover: u64, named: Vec<ObjectId>) {
        if cover > 0 {
            self.work_off_queue();
            let objects = named.into();
            self.pass_to_claims(claims::Event::Arrived { from, frame: cover, objects });
        }
    }

    /// Its home was, is or will be a node of this cluster. What is not has nobody who could answer a claim: an open one would
    /// keep its covers, and every later death from being passed, for ever.
    pub(super) fn may_be(&self, object: ObjectId) -> bool {
        let home = object.task.owner.node();
        home == self.me() || self.far.dead.contains_key(&home) || self.is_sent_to(home)
    }

    // ---- frames ----

    pub(in crate::node) fn on_passing(&mut self, ticket: u64, frame: Passing) {
        let cover = match frame.arrived {
            None => self.on_leaving(&frame),
            Some(cover) => {
                self.on_arriving(&frame, cover);
                0
            }
        };
        self.work_off_queue();
        self.out.push(Effect::Go { ticket, cover });
        if frame.arrived.is_none() && !frame.is_reply {
            self.send_values(frame.worker.node(), &frame.named);
        }
    }

    /// Small values go right behind the call that names them: who reads one there asks nobody for it. Which of them are read nobody knows
    /// here, so they are no more together than what a question and its answer cost.
    fn send_values(&mut self, to: NodeNumber, named: &[ObjectId]) {
        if !self.is_sent_to(to) {
            return;
        }
        let mut left = VALUES_SENT_AHEAD_BYTES;
        for object in named.iter().copied() {
            if self.in_charge(object) != self.me() {
                continue;
            }
            let Some(value) = self.objects.plain_value(object, left) else { continue };
            if self.far.values_sent.entry(object).or_default().insert(to) {
                left -= value.len();
                let (value, contains) = (FarValue::Inline(value), Vec::new());
                self.send_peer(to, Peer::Value { object, value, contains });
            }
        }
    }

    fn on_leaving(&mut self, frame: &Passing) -> u64 {
        let to = if frame.is_reply { frame.caller.node() } else { frame.worker.node() };
        // What its sender told before is known now, and what it told of results is on its way.
        self.work_off_queue();
        if !self.is_sent_to(to) {
            return 0;
        }
        let cover = self.cover(to, each_once(&frame.named));
        if frame.is_reply && !frame.named.is_empty() {
            let Passing { caller, worker, named, .. } = frame.clone();
            self.pass_to_objects(objects::Event::FarReplyLeft { worker, caller, named });
        }
        if frame.is_reply && frame.is_last {
            self.call_over(frame.caller, frame.worker, frame.tag);
        }
        cover
    }

    fn on_arriving(&mut self, frame: &Passing, cover: u64) {
        let Passing { caller, worker, tag, is_reply, named, .. } = frame;
        let from = if *is_reply { worker.node() } else { caller.node() };
        if *is_reply {
            for object in named {
                self.give_token(*object, *caller);
            }
            self.reply_came(*caller, *worker, named);
        // One that is the last of its call has nowhere to go any more: only its cover counts.
        // Neither has one to a worker that was gone when its channel was asked for, even if it is not buried.
        } else if self.serves(*caller, *worker) && !named.is_empty() && !frame.is_last {
            let objects = named.clone();
            self.far.calls.insert((*caller, *worker, *tag), objects.clone());
            self.pass_to_objects(objects::Event::NodeHeld { objects });
        }
        self.arrived(from, cover, each_once(named));
    }

    /// There is a channel of that far caller to that worker of ours.
    fn serves(&self, caller: ProcessId, worker: ProcessId) -> bool {
        let stranger = self.far.strangers.get(&caller);
        stranger.is_some_and(|stranger| stranger.workers.contains(&worker))
    }

    /// FAR-4: from now on what the worker tells for that caller is held.
    pub(super) fn replies_begin(&mut self, caller: ProcessId, worker: ProcessId) {
        self.pass_to_objects(objects::Event::ServesFar { worker, caller });
    }

    pub(in crate::node) fn replies_ended(&mut self, caller: ProcessId, worker: ProcessId) {
        self.pass_to_objects(objects::Event::FarRepliesEnded { worker, caller });
    }

    /// FAR-3
    fn call_over(&mut self, caller: ProcessId, worker: ProcessId, tag: u64) {
        #[cfg(test)]
        if self.is_sabotaged(super::Sabotage::End) {
            return;
        }
        if let Some(objects) = self.far.calls.remove(&(caller, worker, tag)) {
            self.pass_to_objects(objects::Event::NodeReleased { objects });
        }
    }

    /// A worker of ours has told what it uses of what calls of a dead caller name.
    pub(in crate::node) fn calls_taken_over(&mut self, caller: ProcessId, worker: ProcessId) {
        if !self.serves(caller, worker) {
            self.calls_over(caller, worker);
        }
    }

    /// A worker of ours is dead: of calls of those that died before it nothing is in use.
    pub(in crate::node) fn dead_ends_calls(&mut self, worker: ProcessId) {
        let its = self.far.calls.keys().filter(|(_, of, _)| *of == worker);
        for (caller, worker, tag) in its.copied().collect::<Vec<_>>() {
            self.call_over(caller, worker, tag);
        }
    }

    pub(super) fn calls_over(&mut self, caller: ProcessId, worker: ProcessId) {
        let all = (caller, worker, 0)..=(caller, worker, u64::MAX);
        let ended: Vec<_> = self.far.calls.range(all).map(|(call, _)| *call).collect();
        for (caller, worker, tag) in ended {
            self.call_over(caller, worker, tag);
        }
    }
}

pub(super) fn each_once(named: &[ObjectId]) -> Vec<ObjectId> {
    let mut objects = named.to_vec();
    objects.sort_unstable();
    objects.dedup();
    objects
}

fn to_wire(message: Message) -> peer::Claims {
    match message {
        Message::Claim { object } => peer::Claims::Claim { object },
        Message::Announce { object, contents } => peer::Claims::Announce { object, contents },
        Message::Claimed { object, contents } => peer::Claims::Claimed { object, contents },
        Message::Unknown { object } => peer::Claims::Unknown { object },
        Message::Release { object } => peer::Claims::Release { object },
        Message::Settled { cover: Cover::Frame(cover) } => {
            peer::Claims::Settled { cover, announce: false }
        }
        Message::Settled { cover: Cover::Announce(cover) } => {
            peer::Claims::Settled { cover, announce: true }
        }
    }
}

fn of_wire(message: peer::Claims) -> Message {
    match message {
        peer::Claims::Claim { object } => Message::Claim { object },
        peer::Claims::Announce { object, contents } => Message::Announce { object, contents },
        peer::Claims::Claimed { object, contents } => Message::Claimed { object, contents },
        peer::Claims::Unknown { object } => Message::Unknown { object },
        peer::Claims::Release { object } => Message::Release { object },
        peer::Claims::Settled { cover, announce: false } => {
            Message::Settled { cover: Cover::Frame(cover) }
        }
        peer::Claims::Settled { cover, announce: true } => {
            Message::Settled { cover: Cover::Announce(cover) }
        }
    }
}
