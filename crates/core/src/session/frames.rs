//! What a call looks like in a ring, and what the daemon hears of its arguments before.

use hoplo_base::{Instant, ObjectId};
use hoplo_wire::call::{
    CALL_BACKPRESSURE, CALL_CPUS, CALL_HEADER_BYTES, CALL_NAMES, CallHeader, CallKind, encode_refs,
    encode_trailer,
};
use hoplo_wire::object::RefArgument;
use hoplo_wire::{Location, Value};

use super::call::Stage;
use super::{Effect, SessionMachine};

/// The parts of a call frame, in order.
pub struct Frame<'a> {
    pub header: [u8; CALL_HEADER_BYTES],
    pub args: &'a [u8],
    pub extra: Vec<u8>,
    /// With the trailer, if it names something.
    pub refs: &'a [u8],
}

impl SessionMachine {
    pub(super) fn mention_arguments(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let task = &self.tasks[&seq];
        if !task.call.refs.is_empty() || !task.call.nested.is_empty() {
            let named = self.named_in_frame(seq);
            self.mention_all(now, &named, effects);
            // What came with a call is held by its caller alone, which may die, and then this process (REF-2).
            for object in named {
                self.report(now, object, effects);
            }
            self.flush(effects);
        }
    }

    /// Every object that whoever reads the frame may reach.
    pub(super) fn named_in_frame(&self, seq: u64) -> Vec<ObjectId> {
        let call = &self.tasks[&seq].call;
        let (refs, mut budget) = (call.refs_in_frame(), call.inline_budget());
        let mut named = Vec::with_capacity(refs.len() + call.nested.len());
        for object in refs {
            match self.inline_argument(*object, &mut budget) {
                Some(_) => named.extend_from_slice(&self.objects[object].contains),
                None => named.push(*object),
            }
        }
        named.extend_from_slice(&call.nested);
        named
    }

    /// The value of a ref argument that fits the frame; the others are read from the store or asked for.
    fn inline_argument(&self, object: ObjectId, budget: &mut usize) -> Option<&Value> {
        let value = self.value(object)?;
        if matches!(value, Value::Stored(_)) {
            return None;
        }
        let bytes = value.frame_bytes() + ObjectId::BYTES;
        *budget = budget.checked_sub(bytes.saturating_sub(Location::ARGUMENT_BYTES))?;
        Some(value)
    }

    /// The call frame of a placed task; `None` if it failed meanwhile (its actor died).
    pub fn frame(&mut self, seq: u64) -> Option<Frame<'_>> {
        self.tasks.contains_key(&seq).then(|| self.frame_of_kind(seq, None))
    }

    pub(super) fn frame_of_kind(&mut self, seq: u64, kind: Option<CallKind>) -> Frame<'_> {
        self.scratch.clear();
        let call = &self.tasks[&seq].call;
        let has_refs = !(call.refs.is_empty() && call.nested.is_empty());
        let names = has_refs && self.encode_refs(seq);
        let task = &self.tasks[&seq];
        let options = &task.call.options;
        let (mut extra, mut flags) = (Vec::new(), options.flags);
        if names {
            flags |= CALL_NAMES;
        }
        if let Stage::Placed { worker } = task.stage
            && let Some(lease) = self.lease_of(worker)
        {
            extra.extend(lease.gpus.iter().flat_map(|gpu| gpu.to_le_bytes()));
            if lease.cpus > 1 {
                flags |= CALL_CPUS;
                extra.extend(lease.cpus.to_le_bytes());
            }
        }
        if options.stream_ahead > 0 {
            flags |= CALL_BACKPRESSURE;
            extra.extend(options.stream_ahead.to_le_bytes());
        }
        let header = CallHeader {
            kind: kind.unwrap_or(match task.actor {
                Some(_) => CallKind::Method,
                None => CallKind::Task,
            }),
            flags,
            returns: options.returns,
            task: self.as_called(seq),
            attempt: task.attempt,
            max_calls: options.max_calls,
            function: options.function,
            job: options.job.unwrap_or(self.job),
        };
        let refs = task.call.refs_in_frame().len() as u32;
        let header = header.encode(refs, task.call.args.len(), extra.len());
        Frame { header, args: &task.call.args, extra, refs: &self.scratch }
    }

    /// The refs part of a frame, and its trailer if it names something (true), in `scratch`.
    fn encode_refs(&mut self, seq: u64) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let task = &self.tasks[&seq];
        let me = self.me.node();
        // For another node: a place in this one's store says nothing there.
        let is_far = matches!(task.stage, Stage::Placed { worker } if worker.node() != me);
        let mut budget = task.call.inline_budget();
        for object in task.call.refs_in_frame() {
            let value = match self.inline_argument(*object, &mut budget) {
                Some(value) => value.clone(),
                None => match self.value(*object) {
                    Some(Value::Stored(location)) if !is_far => Value::Stored(*location),
                    _ => Value::Stored(Location::ASK),
                },
            };
            encode_refs(&[RefArgument { object: *object, value }], &mut scratch);
        }
        let named = self.named_in_frame(seq);
        if !named.is_empty() {
            encode_trailer(&named, &mut scratch);
        }
        self.scratch = scratch;
        !named.is_empty()
    }
}
