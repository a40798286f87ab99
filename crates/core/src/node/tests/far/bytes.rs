//! Stored objects of two nodes: who is told where they are, and which bytes move.

use hoplo_base::limits::SLOTS_GRANT;
use hoplo_wire::layout::Front;
use hoplo_wire::peer::Peer;
use hoplo_wire::{FoldOp, Location, NoReduce, Value, Wish};

use super::*;
use crate::transfer::{Done, Order};

const OBJECT_BYTES: u64 = 200_000;

impl Nodes {
    /// A process of node `at` has written an object of its own, or for `holder`.
    pub(super) fn seals(
        &mut self,
        at: usize,
        from: ProcessId,
        object: ObjectId,
        holder: ProcessId,
    ) -> Location {
        let slots = SLOTS_GRANT;
        self.says(at, from, ToNode::ExtentWant { request: 1, bytes: OBJECT_BYTES, slots });
        let granted = self.shells[at].told(from, |message| match message {
            ToClient::ExtentGranted { offset, slots, .. } => Some((*offset, slots[0])),
            _ => None,
        });
        let (offset, slot) = granted.expect("there is room");
        let location = Location { slot, generation: 1, offset, len: OBJECT_BYTES };
        let contains = vec![];
        let sealed = Notice::Sealed { object, location, contains, holder };
        self.says(at, from, ToNode::Notices(vec![sealed]));
        location
    }

    pub(super) fn notices(&mut self, at: usize, from: ProcessId, notice: Notice) {
        self.says(at, from, ToNode::Notices(vec![notice]));
    }

    pub(super) fn wants(&mut self, at: usize, from: ProcessId, object: ObjectId) {
        self.says(at, from, ToNode::Want { objects: vec![object] });
    }

    fn order(&mut self, at: usize) -> Option<Order> {
        self.shells[at].take(|effect| match effect {
            Effect::Haul { order } => Some(order.clone()),
            _ => None,
        })
    }

    fn hauled(&mut self, at: usize, done: Done) {
        self.shells[at].hears(Event::Hauled { done });
        self.pump();
    }

    /// Node `to` is receiving from node `from`: all of it arrives. Where it was read.
    pub(super) fn moves(&mut self, from: usize, to: usize) -> Location {
        let receive = self.order(to);
        let Some(Order::Receive { ticket, from: source, place, written: 0 }) = receive else {
            panic!("{receive:?}")
        };
        assert_eq!((source, place.len), (number(from), OBJECT_BYTES));
        let send = self.order(from);
        let Some(Order::Send { to: whom, ticket: asked, location, offset: 0, .. }) = send else {
            panic!("{send:?}")
        };
        assert_eq!((whom, asked), (number(to), ticket));
        self.hauled(from, Done::Sent { to: whom, ticket });
        self.hauled(to, Done::Received { ticket, generation: 1 });
        location
    }

    pub(super) fn ready(&mut self, at: usize, whom: ProcessId) -> Option<Value> {
        self.shells[at].told(whom, |message| match message {
            ToClient::Ready { value, .. } => Some(value.clone()),
            _ => None,
        })
    }

    fn knows(&self, at: usize, object: ObjectId) -> bool {
        self.shells[at].node.objects.knows(object)
    }

    /// What lies in the arena and nobody needs is given back.
    fn frees(&mut self, at: usize) {
        let free = |effect: &Effect| match effect {
            Effect::Free { ticket, .. } => Some(*ticket),
            _ => None,
        };
        while let Some(ticket) = self.shells[at].take(free) {
            let result = objects::FreeOutcome::Done;
            self.shells[at].hears(Event::Freed { ticket, result });
            self.pump();
        }
    }
}

fn hold(object: ObjectId, process: ProcessId) -> Notice {
    Notice::Hold { object, process }
}

fn released(object: ObjectId) -> Notice {
    Notice::Released { object, tokens: 1 }
}

#[test]
fn what_one_node_has_another_reads_and_forgets_with_its_home() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let object = TaskId { owner: driver, seq: 3 }.object(0);
    let there = nodes.seals(0, driver, object, driver);
    nodes.notices(1, worker, hold(object, worker));
    nodes.wants(1, worker, object);
    assert_eq!(nodes.moves(0, 1), there);
    let value = nodes.ready(1, worker);
    assert!(matches!(value, Some(Value::Stored(it)) if it.len == OBJECT_BYTES), "{value:?}");
    // The copy stays for others as long as the object lives.
    nodes.notices(1, worker, released(object));
    assert!(nodes.knows(1, object) && nodes.knows(0, object));
    nodes.notices(0, driver, released(object));
    assert!(!nodes.knows(0, object) && !nodes.knows(1, object));
    nodes.frees(0);
    nodes.frees(1);
    let totals = nodes.shells[1].node.objects.totals();
    assert_eq!(totals.granted_bytes, 0, "all room of the haul came back");
    assert!(nodes.shells.iter().all(|shell| shell.node.is_quiet()));
}

#[test]
fn a_result_that_was_made_elsewhere_is_read_at_home() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let object = TaskId { owner: driver, seq: 3 }.object(0);
    nodes.notices(0, driver, hold(object, driver));
    let there = nodes.seals(1, worker, object, driver);
    nodes.wants(0, driver, object);
    assert_eq!(nodes.moves(1, 0), there);
    let value = nodes.ready(0, driver);
    assert!(matches!(value, Some(Value::Stored(it)) if it.len == OBJECT_BYTES), "{value:?}");
    nodes.notices(0, driver, released(object));
    nodes.pump();
    assert!(!nodes.knows(0, object) && !nodes.knows(1, object));
}

#[test]
fn when_the_node_with_the_only_copy_dies_its_owner_is_to_make_it_again() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let object = TaskId { owner: driver, seq: 3 }.object(0);
    nodes.notices(0, driver, hold(object, driver));
    nodes.seals(1, worker, object, driver);
    nodes.wants(0, driver, object);
    let Some(Order::Receive { ticket, .. }) = nodes.order(0) else { panic!("it is being fetched") };
    nodes.dies(1);
    assert_eq!(nodes.order(0), Some(Order::StopReceive { ticket }));
    nodes.hauled(
        0,
        Done::Stopped { ticket, written: 64, why: "stopped".to_string(), lost: false, front: None },
    );
    assert_eq!(nodes.ready(0, driver), None, "it waits");
    let remade = nodes.shells[0].told(driver, |message| match message {
        ToClient::Remake { objects, why, .. } => Some((objects.clone(), why.clone())),
        _ => None,
    });
    let (objects, why) = remade.expect("its owner hears of it");
    assert!(objects == [object] && why.contains("died"), "{why}");
}

#[test]
fn a_third_node_reads_from_whom_has_it() {
    let mut nodes = Nodes::new(3);
    let owner = nodes.shells[0].driver();
    let [middle, reader] = [1, 2].map(|at| nodes.shells[at].driver());
    let object = TaskId { owner, seq: 3 }.object(0);
    nodes.seals(0, owner, object, owner);
    nodes.notices(1, middle, hold(object, middle));
    nodes.wants(1, middle, object);
    nodes.moves(0, 1);
    nodes.notices(2, reader, hold(object, reader));
    nodes.wants(2, reader, object);
    let receive = nodes.order(2);
    let Some(Order::Receive { ticket, from, .. }) = receive else { panic!("{receive:?}") };
    let first = (0..2).find(|at| number(*at) == from).expect("one that has it");
    // That copy cannot be sent: the other one is.
    let Some(Order::Send { to, .. }) = nodes.order(first) else { panic!("it is asked") };
    let why = "it cannot be read".to_string();
    nodes.hauled(first, Done::SendFailed { to, ticket, moved: false, why });
    assert_eq!(nodes.order(2), Some(Order::StopReceive { ticket }));
    nodes.hauled(
        2,
        Done::Stopped { ticket, written: 0, why: String::new(), lost: false, front: None },
    );
    nodes.moves(1 - first, 2);
    assert!(matches!(nodes.ready(2, reader), Some(Value::Stored(_))));
    // All let go: nobody keeps a copy.
    for (at, process) in [(2, reader), (1, middle), (0, owner)] {
        nodes.notices(at, process, released(object));
    }
    assert!((0..3).all(|at| !nodes.knows(at, object)));
}

#[test]
fn a_copy_of_a_dead_home_goes_when_nobody_uses_it() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let object = TaskId { owner: driver, seq: 3 }.object(0);
    nodes.seals(0, driver, object, driver);
    nodes.notices(1, worker, hold(object, worker));
    nodes.wants(1, worker, object);
    let Some(Order::Receive { ticket, .. }) = nodes.order(1) else { panic!("it is being fetched") };
    nodes.dies(0);
    // Its last bytes had arrived.
    assert_eq!(nodes.order(1), Some(Order::StopReceive { ticket }));
    nodes.hauled(1, Done::Received { ticket, generation: 1 });
    assert!(matches!(nodes.ready(1, worker), Some(Value::Stored(_))));
    nodes.notices(1, worker, released(object));
    assert!(nodes.knows(1, object), "others may have used it, and were not heard yet");
    let (why, died) = ("it fell".to_string(), nodes.index);
    nodes.tells_row(&[1], 0, NodeState::Settled { why, heir: None, died });
    assert!(!nodes.knows(1, object));
}

#[test]
fn who_asks_for_bytes_that_are_not_here_is_told_so() {
    let (mut nodes, driver, ..) = Nodes::leased();
    let object = TaskId { owner: driver, seq: 3 }.object(0);
    let message =
        Box::new(Peer::FetchBytes { ticket: 9, object, offset: 0, until: u64::MAX, turn: 1 });
    nodes.shells[0].hears(Event::Peer { from: number(1), cover: 0, message });
    let told = nodes.shells[0].take(|effect| match effect {
        Effect::SendPeer { message, .. } => match &**message {
            Peer::NoBytes { ticket: 9, why } => Some(why.clone()),
            _ => None,
        },
        _ => None,
    });
    assert!(told.is_some_and(|why| why.contains("is not at node")));
}

#[test]
fn what_a_worker_made_while_it_was_fetched_is_sent_from_where_it_was_made() {
    let mut nodes = Nodes::new(3);
    let [owner, maker] = [0, 1].map(|at| nodes.shells[at].driver());
    let object = TaskId { owner, seq: 3 }.object(0);
    nodes.seals(0, owner, object, owner);
    nodes.notices(1, maker, hold(object, maker));
    nodes.wants(1, maker, object);
    let receive = nodes.order(1);
    assert!(matches!(receive, Some(Order::Receive { .. })), "{receive:?}");
    let there = nodes.seals(1, maker, object, owner);
    let message =
        Box::new(Peer::FetchBytes { ticket: 9, object, offset: 0, until: u64::MAX, turn: 9 });
    nodes.shells[1].hears(Event::Peer { from: number(2), cover: 0, message });
    let send = nodes.order(1);
    assert!(matches!(send, Some(Order::Send { location, .. }) if location == there), "{send:?}");
}

// ---- reduces ----

impl Nodes {
    /// Of a reduce that a process of node 0 asked for.
    fn reduced(&mut self, whom: ProcessId) -> Option<Result<Location, NoReduce>> {
        self.answered(whom, 5)
    }

    fn answered(&mut self, whom: ProcessId, asked: u64) -> Option<Result<Location, NoReduce>> {
        self.shells[0].told(whom, |message| match message {
            ToClient::Reduced { request, result } if *request == asked => Some(result.clone()),
            _ => None,
        })
    }
}

/// The driver, its object at node 0, and one of the other node.
fn reducing() -> (Nodes, ProcessId, [ObjectId; 2], Location) {
    let (nodes, driver, _, members, own) = asking(None);
    (nodes, driver, members, own)
}

/// And a process of the other node. `for_all`: what is to come of it.
fn asking(for_all: Option<u64>) -> (Nodes, ProcessId, ProcessId, [ObjectId; 2], Location) {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let members = [3, 4].map(|seq| TaskId { owner: driver, seq }.object(0));
    let own = nodes.seals(0, driver, members[0], driver);
    nodes.notices(0, driver, hold(members[1], driver));
    nodes.seals(1, worker, members[1], driver);
    let for_all = for_all.map(|seq| TaskId { owner: driver, seq }.object(0));
    let wish = Wish { op: FoldOp::Sum, divide_by: None, for_all };
    let reduce = ToNode::Reduce { request: 5, wish, members: members.to_vec(), more: false };
    nodes.says(0, driver, reduce);
    (nodes, driver, worker, members, own)
}

#[test]
fn a_reduce_is_folded_on_its_way_and_its_room_is_the_askers() {
    let (mut nodes, driver, members, own) = reducing();
    let fold = nodes.order(0);
    let Some(Order::Fold {
        ticket,
        from,
        place,
        written: 0,
        op: FoldOp::Sum,
        operands,
        divide_by: None,
        ring: None,
        rest: None,
    }) = fold
    else {
        panic!("{fold:?}")
    };
    assert_eq!((from, &operands[..], place.len), (number(1), &[own][..], OBJECT_BYTES));
    let send = nodes.order(1);
    assert!(matches!(send, Some(Order::Send { offset: 0, .. })), "{send:?}");
    nodes.hauled(1, Done::Sent { to: number(0), ticket });
    assert_eq!(nodes.reduced(driver), None);
    nodes.hauled(0, Done::Received { ticket, generation: 1 });
    let location = nodes.reduced(driver).expect("it is whole").expect("nothing went wrong");
    assert_eq!(location.len, OBJECT_BYTES);
    // It seals there as in any room of its own, and what it does not need it returns.
    let made = TaskId { owner: driver, seq: 9 }.object(0);
    let contains = Vec::new();
    nodes.notices(0, driver, Notice::Sealed { object: made, location, contains, holder: driver });
    for object in [made, members[0], members[1]] {
        nodes.notices(0, driver, released(object));
    }
    nodes.pump();
    nodes.frees(0);
    assert!(!nodes.knows(0, made));
    let (offset, len) = (location.offset, OBJECT_BYTES.next_multiple_of(4096));
    let granted = nodes.shells[0].node.objects.totals().granted_bytes;
    nodes.says(0, driver, ToNode::ExtentReturn { offset, len });
    assert_eq!(nodes.shells[0].node.objects.totals().granted_bytes, granted - len);
    let totals = nodes.shells[0].node.objects.totals();
    assert_eq!((totals.stored_objects, totals.violations), (0, 0));
    assert!(nodes.shells.iter().all(|shell| shell.node.is_quiet()));
}

/// Both nodes have folded all.
fn gone_round(nodes: &mut Nodes, driver: ProcessId) -> Location {
    for at in [0, 1] {
        let fold = nodes.order(at);
        let Some(Order::Fold { ticket, from, ring: Some(_), .. }) = fold else {
            panic!("{fold:?}")
        };
        assert_eq!(from, number(1 - at));
        let relay = nodes.order(at);
        let Some(Order::Relay { to, ticket: asked, .. }) = relay else { panic!("{relay:?}") };
        nodes.hauled(at, Done::Received { ticket, generation: 1 });
        nodes.hauled(at, Done::Sent { to, ticket: asked });
    }
    nodes.reduced(driver).expect("it is whole").expect("nothing went wrong")
}

#[test]
fn what_went_round_is_the_result_at_each_node() {
    let (mut nodes, driver, worker, members, _) = asking(Some(9));
    let location = gone_round(&mut nodes, driver);
    let result = TaskId { owner: driver, seq: 9 }.object(0);
    nodes.notices(0, driver, hold(result, driver));
    nodes.notices(1, worker, hold(result, worker));
    nodes.wants(1, worker, result);
    let (contains, holder) = (Vec::new(), driver);
    nodes.notices(0, driver, Notice::Sealed { object: result, location, contains, holder });
    assert_eq!(nodes.order(1), None, "nothing is fetched");
    let there = nodes.ready(1, worker);
    assert!(matches!(there, Some(Value::Stored(it)) if it.len == OBJECT_BYTES), "{there:?}");
    // It is a copy like any other.
    nodes.notices(1, worker, released(result));
    assert!(nodes.knows(1, result));
    for object in [result, result, members[0], members[1]] {
        nodes.notices(0, driver, released(object));
    }
    nodes.pump();
    assert!(!nodes.knows(0, result) && !nodes.knows(1, result));
    nodes.frees(1);
    let totals = nodes.shells[1].node.objects.totals();
    assert_eq!((totals.stored_objects, totals.violations), (0, 0));
    assert!(nodes.shells.iter().all(|shell| shell.node.is_quiet()));
}

#[test]
fn what_went_round_in_vain_is_fetched() {
    let (mut nodes, driver, worker, ..) = asking(Some(9));
    gone_round(&mut nodes, driver);
    let result = TaskId { owner: driver, seq: 9 }.object(0);
    nodes.notices(0, driver, hold(result, driver));
    nodes.notices(1, worker, hold(result, worker));
    nodes.wants(1, worker, result);
    // The result is something else.
    nodes.seals(0, driver, result, driver);
    nodes.moves(0, 1);
    assert!(matches!(nodes.ready(1, worker), Some(Value::Stored(_))));
}

/// It heard of the death of what it came from, and has so much.
fn lost(ticket: u64) -> Done {
    let why = "the link was lost".to_string();
    Done::Stopped { ticket, written: 16, why, lost: true, front: Some(Front::default()) }
}

#[test]
fn a_reduce_whose_node_dies_keeps_what_it_has_until_it_is_mended_or_given_up() {
    for asks in [
        ToNode::ReduceOver { request: 5 },
        ToNode::ReduceMended { request: 6, was: 5 }, // its member is nowhere
    ] {
        let (mut nodes, driver, members, _) = reducing();
        let Some(Order::Fold { ticket, .. }) = nodes.order(0) else { panic!("it is folded") };
        nodes.dies(1);
        assert_eq!(nodes.reduced(driver), None, "its hauler may still write");
        let granted = nodes.shells[0].node.objects.totals().granted_bytes;
        nodes.hauled(0, lost(ticket));
        let no = nodes.reduced(driver).expect("it was told").expect_err("its node is dead");
        assert!(no.goes_on && no.lost == members[1..], "{no:?}");
        assert_eq!(nodes.shells[0].node.objects.totals().granted_bytes, granted);
        let is_answered = matches!(asks, ToNode::ReduceMended { .. });
        nodes.says(0, driver, asks);
        assert!(nodes.shells[0].node.objects.totals().granted_bytes < granted);
        assert_eq!(nodes.reduced(driver), None, "COLL-4");
        let answer = nodes.answered(driver, 6);
        let again = answer.map(|it| it.expect_err("it cannot go on").again);
        assert_eq!(again, is_answered.then_some(true));
    }
}

#[test]
fn a_member_made_again_at_another_node_is_folded_into_the_rest() {
    let mut nodes = Nodes::new(4);
    let drivers = [0, 1, 2, 3].map(|at| nodes.shells[at].driver());
    let driver = drivers[0];
    let members = [1, 2, 3].map(|at| {
        let object = TaskId { owner: driver, seq: at as u64 }.object(0);
        nodes.notices(0, driver, hold(object, driver));
        nodes.seals(at, drivers[at], object, driver);
        object
    });
    let wish = Wish { op: FoldOp::Sum, divide_by: None, for_all: None };
    let reduce = ToNode::Reduce { request: 5, wish, members: members.to_vec(), more: false };
    nodes.says(0, driver, reduce);
    let Some(Order::Fold { ticket, from, .. }) = nodes.order(3) else { panic!("it folds") };
    assert_eq!(from, number(2));
    nodes.dies(2);
    nodes.hauled(3, lost(ticket));
    let no = nodes.reduced(driver).expect("it was told").expect_err("its node is dead");
    assert!(no.goes_on && no.lost == members[1..2], "{no:?}");
    nodes.seals(0, driver, members[1], driver);
    let orders = |nodes: &mut Nodes, at: usize| {
        std::iter::from_fn(|| nodes.order(at))
            .filter(|it| matches!(it, Order::Fold { .. }))
            .collect::<Vec<_>>()
    };
    orders(&mut nodes, 0);
    nodes.says(0, driver, ToNode::ReduceMended { request: 6, was: 5 });
    let [Order::Fold { from, written: 16, rest: Some(_), .. }] = orders(&mut nodes, 0)[..] else {
        panic!("the rest is folded where the member is")
    };
    assert_eq!(from, number(1), "which has what it folded, or its own member");
    let [Order::Fold { from, written: 16, rest: None, .. }] = orders(&mut nodes, 3)[..] else {
        panic!("it goes on")
    };
    assert_eq!(from, number(0));
}

#[test]
fn a_reduce_that_is_given_up_is_answered_once() {
    let (mut nodes, driver, _, _) = reducing();
    nodes.says(0, driver, ToNode::ReduceOver { request: 5 });
    assert!(nodes.reduced(driver).expect("it is answered").is_err());
    nodes.says(0, driver, ToNode::ReduceOver { request: 5 });
    assert_eq!(nodes.reduced(driver), None, "COLL-4");
}

#[test]
fn what_is_in_no_store_is_not_folded_on_its_way() {
    let (mut nodes, driver, _, _) = Nodes::leased();
    let members = vec![TaskId { owner: driver, seq: 9 }.object(0)];
    let lost = members.clone();
    let wish = Wish { op: FoldOp::Max, divide_by: None, for_all: None };
    nodes.says(0, driver, ToNode::Reduce { request: 5, wish, members, more: false });
    let no = nodes.reduced(driver).expect("it is answered").expect_err("it is nowhere");
    assert_eq!(no, NoReduce { lost, ..NoReduce::new("a member is in no store", true) });
}
