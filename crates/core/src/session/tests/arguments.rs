//! What fits a frame, what is packed, what cannot be written.

use hoplo_base::limits;
use hoplo_wire::call::{CALL_CPUS, CALL_FLAGS_AT, CALL_NAMES, CallView, named_in};

use super::*;

fn frame_of(owner: &mut Owner, task: TaskId) -> Vec<u8> {
    let frame = owner.session.frame(task.seq).expect("it is placed");
    [&frame.header, frame.args, &frame.extra, frame.refs].concat()
}

#[test]
fn a_frame_of_very_many_refs_fits_wherever_their_values_lie() {
    let most = limits::CALL_INLINE_BYTES_MAX / Location::ARGUMENT_BYTES;
    assert!(Call::fits_frame(0, most) && !Call::fits_frame(0, most + 1));
    let mut owner = Owner::new();
    let large = inline(&vec![7; limits::INLINE_BYTES_MAX]);
    let mut refs = vec![owner.session.put_inline(large, &[])];
    refs.extend((1..most).map(|_| owner.put(&[])));
    let (task, _) = owner.submit(with_refs(&refs));
    owner.granted(1, W);
    let bytes = frame_of(&mut owner, task).len();
    assert!(bytes <= limits::CALL_INLINE_BYTES_MAX + 4096, "{bytes} bytes");
}

#[test]
fn a_frame_says_how_many_cpus_the_task_has_if_they_are_several() {
    for (cpus, flag) in [(0.5, 0), (1.0, 0), (3.0, CALL_CPUS)] {
        let mut owner = Owner::new();
        let resources = ResourceSet::from_units([("CPU", cpus)]).unwrap();
        let shape = Arc::new(Shape::of(resources));
        let (task, _) = owner.submit(call(CallOptions { shape, ..options() }));
        owner.granted(1, W);
        let frame = frame_of(&mut owner, task);
        let view = CallView::parse(&frame).unwrap();
        assert_eq!(view.header.flags & CALL_CPUS, flag);
        assert_eq!(view.granted(), (vec![], cpus.max(1.0) as u32));
    }
}

#[test]
fn a_frame_names_what_may_be_reached_and_for_another_node_no_place() {
    let mut owner = Owner::new();
    let (small, nested) = (owner.put(&[]), owner.put(&[]));
    let holder = owner.put(&[small]);
    let large = owner.put_stored(3, &[]);
    let refs = vec![large, holder];
    let call = Call { refs: refs.clone(), nested: vec![nested], ..call(options()) };
    let (task, _) = owner.submit(call.clone());
    let (plain, _) = owner.submit(Call { refs: vec![], nested: vec![], ..call });
    let worker = ProcessId::new(NodeNumber::alone(2), W, W as u16);
    owner.handle(Event::LeaseGranted { lease: LeaseId(1), key: 0, worker, gpus: vec![] });
    let frame = frame_of(&mut owner, task);
    assert_eq!(named_in(&frame), Ok(sorted(&[large, small, nested])));
    let values = CallView::parse(&frame).unwrap().refs().unwrap();
    assert_eq!(values[0].1.to_value(), Value::Stored(Location::ASK));
    assert_eq!(values[1].1.to_value(), inline(b"put"));
    reply_of(&mut owner, worker, task);
    let plain = frame_of(&mut owner, plain);
    assert_eq!(plain[CALL_FLAGS_AT] & CALL_NAMES, 0, "it names nothing");
    // A near worker reads it where it lies.
    let mut owner = Owner::new();
    let large = owner.put_stored(3, &[]);
    let (near, _) = owner.submit(with_refs(&[large]));
    owner.granted(1, X);
    let frame = frame_of(&mut owner, near);
    assert_eq!(CallView::parse(&frame).unwrap().refs().unwrap()[0].1.to_value(), stored(3));
    assert_eq!(named_in(&frame), Ok(vec![large]));
}

fn sorted(objects: &[ObjectId]) -> Vec<ObjectId> {
    let mut objects = objects.to_vec();
    objects.sort_unstable();
    objects
}

fn reply_of(owner: &mut Owner, worker: ProcessId, task: TaskId) {
    let mut bytes = header(task.seq, ReplyKind::Finished, 0).encode(1).to_vec();
    encode_returned(&[returned(inline(b""))], &mut bytes);
    owner.act(|session, now, effects| {
        session.on_reply(now, worker, &ReplyView::parse(&bytes).unwrap(), effects).unwrap();
    });
}

#[test]
fn packed_arguments_are_named_alone_in_the_frame_and_wait_for_all_they_hold() {
    let mut owner = Owner::new();
    let first = owner.task();
    let packed = owner.put_stored(3, &[first.object(0)]);
    let (task, _) = owner.submit(Call { packed: true, ..with_refs(&[packed, first.object(0)]) });
    let effects = owner.granted(1, W);
    assert!(!effects.contains(&placed(W, task.seq)), "what the arguments hold is not there");
    let effects = owner.reply(W, first, &[returned(inline(b"v"))]);
    assert!(effects.contains(&placed(W, task.seq)));
    let frame = frame_of(&mut owner, task);
    let refs = CallView::parse(&frame).unwrap().refs().unwrap();
    assert_eq!(refs.iter().map(|(object, _)| *object).collect::<Vec<_>>(), [packed]);
}

#[test]
fn a_call_that_cannot_be_written_fails_alone() {
    let mut owner = Owner::new();
    let (task, next) = (owner.task(), owner.task());
    owner.granted(1, W);
    let failure = Failure::new(FailureKind::NotSent, "no descriptors are left");
    let effects = owner.handle(Event::NotPlaced { worker: process(W), seq: task.seq, failure });
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::NotSent);
    assert!(effects.contains(&placed(W, next.seq)), "{effects:?}");
    owner.reply(W, next, &[returned(inline(b"v"))]);
    assert!(owner.session.is_ready(next.object(0)));
}
