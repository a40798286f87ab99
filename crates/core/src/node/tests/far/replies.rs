//! What a worker returns to a far caller is held until its reply has left, and no longer.

use super::*;

/// A driver of node 0 that calls a worker of node 1, and what the worker owns.
struct Replying {
    nodes: Nodes,
    driver: ProcessId,
    worker: ProcessId,
}

impl Replying {
    fn new() -> Self {
        let (mut nodes, driver, _, worker) = Nodes::leased();
        nodes.says(0, driver, ToNode::Connect { to: worker });
        Self { nodes, driver, worker }
    }

    fn worker_says(&mut self, notices: Vec<Notice>) {
        let worker = self.worker;
        self.nodes.says(1, worker, ToNode::Notices(notices));
    }

    /// The worker shares a small value of its own, says that it returns it to the driver, and drops it.
    fn returns_and_drops(&mut self, seq: u64) -> ObjectId {
        let object = ObjectId { task: TaskId { owner: self.worker, seq }, index: 0 };
        let value = hoplo_wire::Value::Inline((*b"x").into());
        let state = SharedState::Value { value, contains: vec![] };
        let shared = Notice::Shared { object, state };
        let released = Notice::Released { object, tokens: 1 };
        let [replying, hold] = self.tells(object);
        self.worker_says(vec![shared, replying, hold, released]);
        object
    }

    fn tells(&self, object: ObjectId) -> [Notice; 2] {
        let process = self.driver;
        [Notice::Replying { to: process }, Notice::Hold { object, process }]
    }

    fn reply(&self, named: Vec<ObjectId>) -> Passing {
        let (caller, worker, tag) = (self.driver, self.worker, 1);
        Passing { caller, worker, tag, is_reply: true, arrived: None, named, is_last: true }
    }

    /// It leaves node 1 and arrives at node 0.
    fn reply_passes(&mut self, named: Vec<ObjectId>) {
        let reply = self.reply(named);
        let cover = self.nodes.passes(1, reply.clone());
        self.nodes.passes(0, Passing { arrived: Some(cover), ..reply });
    }

    fn is_held(&self, object: ObjectId) -> bool {
        self.nodes.shells[1].node.objects.knows(object)
    }

    fn driver_drops(&mut self, object: ObjectId, tokens: u32) {
        let driver = self.driver;
        self.nodes.says(0, driver, ToNode::Notices(vec![Notice::Released { object, tokens }]));
    }

    fn check_that_nothing_is_left(&self, object: ObjectId) {
        for shell in &self.nodes.shells {
            shell.node.check();
            assert!(!shell.node.objects.knows(object), "{object} is held for ever");
            assert!(shell.node.is_quiet());
        }
    }
}

/// The driver used it and heard that it was lost.
#[test]
fn what_a_worker_returned_to_a_far_caller_and_dropped_went_before_the_reply_was_written() {
    let mut it = Replying::new();
    let object = it.returns_and_drops(1);
    assert!(it.is_held(object), "the reply is not written");
    it.reply_passes(vec![object]);
    assert!(it.is_held(object), "the driver has it");
    it.driver_drops(object, 1);
    it.check_that_nothing_is_left(object);
}

#[test]
fn what_is_at_home_at_a_third_node_is_held_until_the_reply_left() {
    let mut it = Replying::new();
    it.nodes.joins();
    // A driver of node 2 gives the worker a value, as if in a call.
    let third = it.nodes.shells[2].driver();
    it.nodes.says(2, third, ToNode::Connect { to: it.worker });
    let object = ObjectId { task: TaskId { owner: third, seq: 3 }, index: 0 };
    let value = hoplo_wire::Value::Inline((*b"x").into());
    let state = SharedState::Value { value, contains: vec![] };
    it.nodes.says(2, third, ToNode::Notices(vec![Notice::Shared { object, state }]));
    let (caller, worker, tag, named) = (third, it.worker, 1, vec![object]);
    let is_last = false;
    let call = Passing { caller, worker, tag, is_reply: false, arrived: None, named, is_last };
    let cover = it.nodes.passes(2, call.clone());
    it.nodes.passes(1, Passing { arrived: Some(cover), ..call.clone() });
    // It keeps the value, and the call ends.
    it.worker_says(vec![Notice::Hold { object, process: worker }]);
    it.nodes.passes(1, Passing { is_reply: true, is_last: true, named: vec![], ..call });
    it.nodes.says(2, third, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
    // Then it returns it to the driver of node 0, and drops it before it writes.
    let [replying, hold] = it.tells(object);
    it.worker_says(vec![replying, hold, Notice::Released { object, tokens: 1 }]);
    let knows = |it: &Replying| it.nodes.shells[2].node.objects.knows(object);
    assert!(knows(&it), "its home frees what is being returned");
    it.reply_passes(vec![object]);
    assert!(knows(&it), "the driver has it");
    it.driver_drops(object, 1);
    it.check_that_nothing_is_left(object);
}

#[test]
fn a_worker_killed_between_what_it_told_and_its_reply_leaves_nothing_held() {
    let mut it = Replying::new();
    let object = it.returns_and_drops(1);
    let worker = it.worker;
    it.nodes.ends(1, worker);
    it.check_that_nothing_is_left(object);
}

/// The carrier finds it in the ring when it hears of the worker's end.
#[test]
fn the_last_reply_of_a_dead_worker_still_holds_what_it_names() {
    let mut it = Replying::new();
    let object = it.returns_and_drops(1);
    for event in [
        Event::Closed { process: it.worker },
        Event::Ended { process: it.worker, status_follows: true },
        Event::Exited { process: it.worker, status: -9 },
    ] {
        it.nodes.shells[1].hears(event);
    }
    let worker = it.worker;
    it.nodes.shells[1].examines(worker);
    // A sweep begins, and hands over what lies in the ring before it ends.
    let swept = |effect: &Effect| (*effect == Effect::Sweep).then_some(());
    assert!(it.nodes.shells[1].take(swept).is_some(), "it is asked for");
    it.nodes.shells[1].hears(Event::SweepBegins);
    assert!(it.is_held(object), "its worker's end alone tells nothing of its replies");
    let reply = it.reply(vec![object]);
    it.nodes.shells[1].hears(Event::Passing { ticket: 1, frame: reply.clone() });
    let cover = it.nodes.shells[1].take(|effect| match effect {
        Effect::Go { ticket: 1, cover } => Some(*cover),
        _ => None,
    });
    it.nodes.shells[1].hears(Event::Swept);
    it.nodes.pump();
    it.nodes.passes(0, Passing { arrived: cover, ..reply });
    assert!(it.is_held(object), "the driver has it");
    it.driver_drops(object, 1);
    it.check_that_nothing_is_left(object);
}

#[test]
fn a_caller_killed_or_lost_with_its_node_leaves_nothing_held() {
    for node_dies in [false, true] {
        let mut it = Replying::new();
        let object = it.returns_and_drops(1);
        if node_dies {
            it.nodes.dies(0);
        } else {
            it.nodes.shells[0].hears(Event::Closed { process: it.driver });
            it.nodes.pump();
        }
        it.nodes.shells[1].node.check();
        assert!(!it.is_held(object), "it is held for ever");
        // What it tells for the dead afterwards holds nothing.
        let object = it.returns_and_drops(2);
        it.nodes.shells[1].node.check();
        assert!(!it.is_held(object), "it is held for ever");
    }
}

/// Items of a stream, or parts of a reply: each brings some of what was told together.
#[test]
fn each_part_of_a_reply_ends_the_holds_of_what_it_brings() {
    let mut it = Replying::new();
    let [first, second] = [1, 2].map(|seq| it.returns_and_drops(seq));
    it.reply_passes(vec![first]);
    it.driver_drops(first, 1);
    assert!(!it.is_held(first), "nobody reaches it");
    assert!(it.is_held(second), "its part is not written");
    it.reply_passes(vec![second]);
    it.driver_drops(second, 1);
    it.check_that_nothing_is_left(second);
}

#[test]
fn what_is_returned_twice_is_held_for_the_reply_that_has_not_left() {
    let mut it = Replying::new();
    let object = it.returns_and_drops(1);
    let again = it.tells(object);
    it.worker_says(again.into());
    it.reply_passes(vec![object]);
    it.driver_drops(object, 1);
    assert!(it.is_held(object), "the second reply is not written");
    it.reply_passes(vec![object]);
    it.driver_drops(object, 1);
    it.check_that_nothing_is_left(object);
}

/// One of its callers has its reply, the other one not yet.
#[test]
fn what_is_returned_to_two_callers_is_held_for_each() {
    let mut it = Replying::new();
    let other = it.nodes.shells[0].driver();
    it.nodes.says(0, other, ToNode::Connect { to: it.worker });
    let object = it.returns_and_drops(1);
    let hold = Notice::Hold { object, process: other };
    it.worker_says(vec![Notice::Replying { to: other }, hold]);
    it.reply_passes(vec![object]);
    it.driver_drops(object, 1);
    assert!(it.is_held(object), "the reply to the other one is not written");
    it.nodes.shells[0].hears(Event::Closed { process: other });
    it.nodes.pump();
    it.check_that_nothing_is_left(object);
}

/// Found by a seed: a node that was dead to others told them no more what its workers made, and let the replies pass that said where it lay. Their
/// owner asked for it, its home knew of nothing, and said that every reference to it had been dropped.
#[test]
fn a_reply_does_not_leave_a_node_that_is_dead_to_others() {
    let mut it = Replying::new();
    let object = it.returns_and_drops(2);
    let frame = it.reply(vec![object]);
    let shell = &mut it.nodes.shells[1];
    shell.hears(Event::Fenced { why: "it was silent".to_string() });
    shell.hears(Event::Passing { ticket: 1, frame });
    let goes = |effect: &Effect| matches!(effect, Effect::Go { .. }).then_some(());
    assert_eq!(shell.take(goes), None);
}
