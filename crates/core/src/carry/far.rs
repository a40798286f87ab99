//! The half of a pair at the worker's node.

use hoplo_base::{Map, TaskId};
use hoplo_wire::Malformed;
use hoplo_wire::call::task_of;
use hoplo_wire::node::Obituary;
use hoplo_wire::reply::{ReplyKind, leave_node};

use super::queue::{Arrival, Parcel};
use super::{Bytes, Carry, Effect, Frame, Item, Pair, Side};

#[derive(Debug, Default)]
pub(super) struct Far {
    /// Calls that arrived while the worker lived.
    pub(super) received: u64,
    /// Those that are under way.
    calls: Map<u64, Call>,
    /// The worker is gone: it is a tombstone until `Closed`.
    pub(super) is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    task: TaskId,
    named_refs: bool,
}

impl Carry {
    pub(super) fn on_call(&mut self, frame: Frame, effects: &mut Vec<Effect>) {
        let pair = frame.pair;
        let Side::Far(far) = &mut self.half(pair).side else { unreachable!("the worker is here") };
        if far.is_over {
            return self.stray(false, &frame, effects);
        }
        let Ok(task) = task_of(&frame.bytes) else {
            let (from, what) = (pair.caller.node(), "a call has no header");
            effects.push(Effect::Nonsense { from, what });
            return;
        };
        far.received += 1;
        far.calls.insert(frame.tag, Call { task, named_refs: frame.names() });
        let waits = frame.names().then(|| self.ask(false, true, &frame, effects));
        let arrival = Arrival::Frame { waits, frame, dropped: false };
        self.half(pair).incoming.queue.push_back(arrival);
        self.settle(pair, effects);
    }

    /// A frame out of the ring of a worker of this node.
    pub fn took_reply(
        &mut self,
        pair: Pair,
        tag: u64,
        mut bytes: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Malformed> {
        let unknown = Malformed { what: "reply to a call that nobody made" };
        let half = self.halves.get_mut(&pair).ok_or(unknown)?;
        let Side::Far(far) = &mut half.side else { unreachable!("the worker is here") };
        let call = far.calls.get(&tag).copied().ok_or(unknown)?;
        let mut named = Vec::new();
        let header = leave_node(&mut bytes, pair.worker.node(), call.task, &mut named)?;
        let is_last = match header.kind {
            ReplyKind::Finished | ReplyKind::StreamEnd => true,
            ReplyKind::Item | ReplyKind::Part => false,
        };
        if is_last {
            far.calls.remove(&tag);
        }
        let ends = is_last && call.named_refs;
        let frame = Frame { pair, tag, is_last, cover: 0, named, bytes: Bytes::Own(bytes) };
        self.reply(frame, ends, effects);
        Ok(())
    }

    /// `ends`: the call, which had named refs. The decider is told of that, and nobody waits for it.
    fn reply(&mut self, frame: Frame, ends: bool, effects: &mut Vec<Effect>) {
        let pair = frame.pair;
        let told = (ends || frame.names()).then(|| self.ask(true, false, &frame, effects));
        let waits = told.filter(|_| frame.names());
        self.push(pair, Parcel::Frame { waits, frame }, effects);
    }

    /// The caller wants calls back. It overtakes what waits for room in the ring: else a worker that waits for what it blocks
    /// would wait for ever.
    pub(super) fn on_revocation(&mut self, pair: Pair, seqs: Vec<u64>, effects: &mut Vec<Effect>) {
        let Some(half) = self.halves.get_mut(&pair) else { return };
        if let Side::Far(Far { is_over: true, .. }) = half.side {
            return; // `Gone` is on its way, and answers
        }
        let (mut revoked, mut rest) = (Vec::new(), Vec::new());
        for seq in seqs {
            if half.incoming.revoke(seq) { revoked.push(seq) } else { rest.push(seq) }
        }
        if half.is_open {
            effects.push(Effect::TakeBack { pair, seqs: rest, revoked });
        } else {
            self.on_taken_back(pair, revoked, rest, effects);
        }
        self.settle(pair, effects);
    }

    pub(super) fn on_taken_back(
        &mut self,
        pair: Pair,
        seqs: Vec<u64>,
        kept: Vec<u64>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(half) = self.halves.get_mut(&pair) else { return };
        let Side::Far(far) = &mut half.side else { unreachable!("the worker is here") };
        let ended = seqs.iter().filter(|seq| {
            let call = far.calls.remove(*seq);
            call.is_some_and(|call| call.named_refs)
        });
        for seq in ended.copied().collect::<Vec<u64>>() {
            let (named, bytes) = (Vec::new(), Bytes::Own(Vec::new()));
            let frame = Frame { pair, tag: seq, is_last: true, cover: 0, named, bytes };
            self.reply(frame, true, effects);
        }
        self.push(pair, Parcel::Word(Item::Revoked { pair, seqs, kept }), effects);
    }

    pub(super) fn on_worker_gone(
        &mut self,
        pair: Pair,
        mut unread: Vec<u64>,
        obituary: Obituary,
        effects: &mut Vec<Effect>,
    ) {
        if self.dead.contains_key(&pair.caller.node()) {
            return;
        }
        let half = self.half(pair);
        let Side::Far(far) = &mut half.side else { unreachable!("the worker is here") };
        if far.is_over {
            return;
        }
        let received = far.received;
        (far.is_over, far.calls) = (true, Default::default());
        unread.extend(half.incoming.tags());
        half.incoming.queue.clear();
        half.is_open = false;
        let gone = Item::Gone { pair, received, unstarted: unread, obituary };
        self.push(pair, Parcel::Word(gone), effects);
        effects.push(Effect::Drop { pair });
    }

    pub(super) fn on_closed(&mut self, pair: Pair, effects: &mut Vec<Effect>) {
        if self.halves.remove(&pair).is_some() {
            effects.push(Effect::Drop { pair });
        }
    }
}
