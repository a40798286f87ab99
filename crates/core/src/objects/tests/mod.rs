//! The directory event by event, and two models against it.

mod copies;
mod estates;
mod far;
mod foreign;
mod full;
mod losses;
mod model;
mod model_client;
mod notices;
mod pressure;
mod processes;
mod recalls;
mod references;
mod replies;
mod room;
mod secondary;
mod speeds;
mod wants;

use std::time::Duration;

use hoplo_base::{FunctionId, Instant, JobId, NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_wire::call::{CallHeader, CallKind, encode_refs};
use hoplo_wire::node::{Lineage, Notice, Shape, SharedState, ToClient};
use hoplo_wire::object::RefArgument;
use hoplo_wire::{Location, Value};

use super::*;

const MIB: u64 = 1 << 20;
const A: ProcessId = process(1);
const B: ProcessId = process(2);
const C: ProcessId = process(3);

const HERE: NodeNumber = NodeNumber::alone(1);

const fn process(count: u64) -> ProcessId {
    // Count 0 is the haul's.
    let number = if count == 0 { 1000 } else { count as u32 };
    ProcessId::new(HERE, number, count as u16)
}

fn object(owner: ProcessId, seq: u64) -> ObjectId {
    TaskId { owner, seq }.object(0)
}

fn inline() -> Value {
    Value::Inline((*b"value").into())
}

fn lineage(object: ObjectId, refs: &[ObjectId]) -> Lineage {
    let header = CallHeader {
        kind: CallKind::Task,
        flags: 0,
        returns: 1,
        task: object.task,
        attempt: 0,
        max_calls: 0,
        function: FunctionId([7; 16]),
        job: JobId(1),
    };
    let mut frame = header.encode(refs.len() as u32, 0, 0).to_vec();
    let refs: Vec<_> =
        refs.iter().map(|object| RefArgument { object: *object, value: inline() }).collect();
    encode_refs(&refs, &mut frame);
    let shape = Shape::default();
    let contains = refs.iter().map(|argument| argument.object).collect();
    Lineage { task: object.task, shape: shape.into(), frame, contains, retries: 3 }
}

/// A directory, checked after every event, with A, B and C joined.
struct Bench {
    directory: ObjectDirectory,
    now: Instant,
    sweep: u64,
    /// What `A` may write next, in the extent that it was granted.
    at: u64,
    slot: u32,
}

impl Bench {
    fn new() -> Self {
        Self::with(Config::new(64 * MIB))
    }

    /// A has an extent of 8 MiB (or what there is).
    fn with(config: Config) -> Self {
        let directory = ObjectDirectory::new(HERE, config, Instant::ZERO);
        let mut bench = Self { directory, now: Instant::ZERO, sweep: 0, at: 0, slot: 0 };
        for process in [A, B, C] {
            let welcome = bench.feed(Event::ProcessJoined { process, slots: 4 });
            assert!(matches!(&welcome[..], [Effect::Welcome { slots, .. }] if slots.len() == 4));
        }
        let bytes = bench.directory.totals().capacity_bytes.min(8 * MIB);
        let granted = bench.extent(A, 1, bytes);
        assert!(matches!(granted, ToClient::ExtentGranted { offset: 0, .. }), "{granted:?}");
        bench
    }

    fn feed(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.directory.handle(self.now, event, &mut effects);
        self.directory.check();
        for effect in &effects {
            if let Effect::Sweep { sweep } = effect {
                assert_eq!(*sweep, self.sweep + 1, "one at a time");
                self.sweep = *sweep;
            }
        }
        // Sweeps are carried out by `sweep()`.
        effects.retain(|effect| !matches!(effect, Effect::Sweep { .. }));
        effects
    }

    fn notice(&mut self, from: ProcessId, notice: Notice) -> Vec<Effect> {
        self.feed(Event::Noticed { from, notice })
    }

    fn want_word(&mut self, from: ProcessId, object: ObjectId) -> Vec<Effect> {
        self.feed(Event::Wanted { from, objects: vec![object], need: Need::Word })
    }

    fn want(&mut self, from: ProcessId, object: ObjectId) -> Vec<Effect> {
        self.feed(Event::Wanted { from, objects: vec![object], need: Need::Bytes })
    }

    fn extent(&mut self, from: ProcessId, request: u64, bytes: u64) -> ToClient {
        let event = Event::ExtentWanted { from, request, bytes, slots: 0 };
        match &self.feed(event)[..] {
            [Effect::Send { to, message }] if *to == from => message.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Reports the sweep that is under way.
    fn sweep(&mut self) -> Vec<Effect> {
        assert!(self.sweep_is_under_way(), "no sweep was asked for");
        self.feed(Event::Swept { sweep: self.sweep })
    }

    fn sweep_is_under_way(&self) -> bool {
        self.directory.sweeps.asked > self.directory.sweeps.done
    }

    fn pass(&mut self, time: Duration) -> Vec<Effect> {
        self.now = self.now + time;
        self.feed(Event::Tick)
    }

    /// The next place in A's extent.
    fn place(&mut self, len: u64) -> Location {
        let location = Location { slot: self.slot, generation: 1, offset: self.at, len };
        self.at += len.next_multiple_of(64);
        self.slot += 1;
        location
    }

    /// A seals an object that it holds itself.
    fn seal(&mut self, object: ObjectId, len: u64, contains: &[ObjectId]) -> Location {
        let location = self.place(len);
        assert_eq!(self.notice(A, sealed(object, location, contains, A)), []);
        location
    }

    /// A seals a result of a task of `owner`.
    fn seal_for(&mut self, owner: ProcessId, object: ObjectId, len: u64) -> Location {
        let location = self.place(len);
        assert_eq!(self.notice(A, sealed(object, location, &[], owner)), []);
        location
    }

    fn state(&self, object: ObjectId) -> Option<&'static str> {
        self.directory.listing().find(|row| row.object == object).map(|row| row.state)
    }

    /// The one violation among the effects.
    fn violation(effects: &[Effect]) -> (ProcessId, &str) {
        match effects {
            [Effect::Violation { process, what }] => (*process, what),
            other => panic!("expected a violation: {other:?}"),
        }
    }
}

fn sealed(
    object: ObjectId,
    location: Location,
    contains: &[ObjectId],
    holder: ProcessId,
) -> Notice {
    Notice::Sealed { object, location, contains: contains.to_vec(), holder }
}

fn shared(object: ObjectId, contains: &[ObjectId]) -> Notice {
    let state = SharedState::Value { value: inline(), contains: contains.to_vec() };
    Notice::Shared { object, state }
}

fn pending(object: ObjectId, lineage: Option<Lineage>) -> Notice {
    Notice::Shared { object, state: SharedState::Pending { lineage } }
}

fn fulfilled(object: ObjectId, contains: &[ObjectId]) -> Notice {
    Notice::Fulfilled { object, value: inline(), contains: contains.to_vec() }
}

fn hold(object: ObjectId, process: ProcessId) -> Notice {
    Notice::Hold { object, process }
}

fn released(object: ObjectId) -> Notice {
    Notice::Released { object, tokens: 1 }
}

fn ready(to: ProcessId, object: ObjectId, value: Value, contains: &[ObjectId]) -> Effect {
    let message = ToClient::Ready { object, value, contains: contains.to_vec() };
    Effect::Send { to, message }
}

fn reclaimed(to: ProcessId, object: ObjectId, location: Location) -> Effect {
    Effect::Send { to, message: ToClient::Reclaimed { object, location } }
}
