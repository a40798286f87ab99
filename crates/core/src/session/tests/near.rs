//! Tasks go where the bytes of their arguments lie, and not for ever.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::GroupId;
use hoplo_base::bundles::InGroup;
use hoplo_base::limits::{NEAR_BYTES_MIN, NEAR_BYTES_MOVED, NEAR_WORKER_STARTS};
use hoplo_wire::node::{LabelSelector, Strategy};

use super::*;

const B: NodeNumber = NodeNumber::alone(2);
const C: NodeNumber = NodeNumber::alone(3);
const MIB: u64 = 1 << 20;

fn there(node: NodeNumber, bytes: u64) -> Value {
    Value::Stored(Location::elsewhere(node, bytes))
}

fn worker(node: NodeNumber, count: u32) -> ProcessId {
    ProcessId::new(node, count, count as u16)
}

fn moving_takes(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / NEAR_BYTES_MOVED as f64)
}

/// What the daemon is asked for: how many leases, and how.
fn demands(effects: &[Effect]) -> Vec<(Strategy, u32)> {
    let demand = |effect: &Effect| match effect {
        Effect::Node(ToNode::LeaseDemand { shape, wanted, .. }) => {
            Some((shape.strategy.clone(), *wanted))
        }
        _other => None,
    };
    effects.iter().filter_map(demand).collect()
}

fn placed_at(effects: &[Effect]) -> Vec<(ProcessId, u64)> {
    let place = |effect: &Effect| match effect {
        Effect::Place { worker, seq } => Some((*worker, *seq)),
        _other => None,
    };
    effects.iter().filter_map(place).collect()
}

fn near(node: NodeNumber, wanted: u32) -> (Strategy, u32) {
    (Strategy::Node { node, soft: true }, wanted)
}

fn anywhere(wanted: u32) -> (Strategy, u32) {
    (Strategy::Default, wanted)
}

impl Owner {
    /// Borrowed, and known to the daemon.
    fn lies(&mut self, seq: u64, value: Value) -> ObjectId {
        let object = TaskId { owner: process(9), seq }.object(0);
        self.session.add_ref(object);
        self.act(|session, _, effects| session.want_word(&[object], effects));
        self.handle(Event::Ready { object, value, contains: vec![] });
        object
    }

    fn granted_by(&mut self, key: u32, lease: u64, worker: ProcessId) -> Vec<Effect> {
        let lease = LeaseId(lease);
        self.handle(Event::LeaseGranted { lease, key, worker, gpus: vec![] })
    }

    fn asks(&mut self, call: Call) -> (TaskId, Vec<(Strategy, u32)>) {
        let (task, effects) = self.submit(call);
        (task, demands(&effects))
    }

    /// After a run so long that no other call lies behind it in its ring.
    fn answers(&mut self, worker: ProcessId, task: TaskId, value: Value) -> Vec<Effect> {
        let header = ReplyHeader { ran_ns: 10_000_000, ..header(task.seq, ReplyKind::Finished, 0) };
        let mut bytes = header.encode(1).to_vec();
        encode_returned(&[returned(value)], &mut bytes);
        let reply = ReplyView::parse(&bytes).unwrap();
        let answer = |session: &mut SessionMachine, now, effects: &mut Vec<Effect>| {
            session.on_reply(now, worker, &reply, effects).unwrap();
        };
        self.act(answer).1
    }
}

#[test]
fn a_task_asks_for_the_node_where_its_large_argument_lies() {
    let mut owner = Owner::new();
    let argument = owner.lies(1, there(B, 16 * MIB));
    let (task, asked) = owner.asks(with_refs(&[argument]));
    assert_eq!(asked, [near(B, 1)]);
    let told = owner.session.explain(task.object(0));
    assert!(told.contains(&format!("for node {}, where its arguments lie", B.hex())), "{told}");
    let effects = owner.granted_by(1, 7, worker(B, 1));
    assert_eq!(placed_at(&effects), [(worker(B, 1), task.seq)]);
    assert_eq!(owner.asks(call(options())).1, [anywhere(1)], "others begin at home");
}

#[test]
fn a_task_that_belongs_near_its_first_ref_is_drawn_by_it_alone_however_small() {
    let mut owner = Owner::new();
    let (member, part) = (owner.lies(1, there(B, 200_000)), owner.lies(2, there(C, 16 * MIB)));
    let near_first = CallOptions { near_first: true, ..options() };
    let collect = Call { nested: vec![member], ..with_refs(&[part]) };
    assert_eq!(owner.asks(collect.clone()).1, [near(C, 1)], "others are drawn by what they read");
    let options = Arc::new(near_first);
    assert_eq!(owner.asks(Call { options: options.clone(), ..collect }).1, [near(B, 1)]);
    let (_, asked) = owner.asks(Call { options, ..with_refs(&[member]) });
    assert_eq!(asked, [near(B, 2)], "a first argument does, too");
}

#[test]
fn an_argument_that_no_task_here_made_is_asked_for_and_not_fetched() {
    let mut owner = Owner::new();
    let object = TaskId { owner: process(9), seq: 1 }.object(0);
    owner.session.add_ref(object);
    let (task, effects) = owner.submit(with_refs(&[object]));
    let asks = ToNode::WantWord { objects: vec![object] };
    assert!(effects.contains(&Effect::Node(asks)), "{effects:?}");
    let wants = |effect: &Effect| matches!(effect, Effect::Node(ToNode::Want { .. }));
    assert!(!effects.iter().any(wants), "{effects:?}");
    let value = there(B, MIB);
    let effects = owner.handle(Event::Ready { object, value, contains: vec![] });
    assert_eq!(demands(&effects), [near(B, 1)]);
    // Who reads it here has it fetched.
    let seen = Location::elsewhere(B, MIB);
    let effects = owner.act(|session, _, effects| session.location_stale(object, seen, effects)).1;
    assert!(effects.iter().any(wants), "{effects:?}");
    assert!(owner.session.tasks.contains_key(&task.seq));
}

#[test]
fn the_result_of_a_far_worker_lies_where_it_was_made() {
    let mut owner = Owner::new();
    let made = owner.task();
    owner.granted_by(0, 7, worker(B, 1));
    owner.answers(worker(B, 1), made, there(B, 2 * MIB));
    assert_eq!(owner.asks(with_refs(&[made.object(0)])).1, [near(B, 1)]);
}

#[test]
fn most_bytes_decide_and_small_arguments_do_not_count() {
    let mut owner = Owner::new();
    let at_b = owner.lies(1, there(B, 3 * MIB));
    let at_c = owner.lies(2, there(C, 5 * MIB));
    let small: Vec<_> = (3..9).map(|seq| owner.lies(seq, there(B, NEAR_BYTES_MIN - 1))).collect();
    let more_at_b = owner.lies(9, there(B, 4 * MIB));
    let here = Location { len: 9 * MIB, ..place(3) };
    let here = owner.lies(10, Value::Stored(here));
    assert_eq!(owner.asks(with_refs(&small)).1, [anywhere(1)]);
    assert_eq!(owner.asks(with_refs(&[&[at_b, at_c], &small[..]].concat())).1, [near(C, 1)]);
    assert_eq!(owner.asks(with_refs(&[at_b, at_c, more_at_b])).1, [near(B, 1)]);
    assert_eq!(owner.asks(with_refs(&[at_b, at_c, more_at_b, here])).1, [anywhere(2)]);
}

#[test]
fn a_shape_with_a_wish_of_its_own_is_not_drawn() {
    let mut owner = Owner::new();
    let argument = owner.lies(1, there(B, 16 * MIB));
    let wishes = [
        Strategy::Spread,
        Strategy::Node { node: C, soft: true },
        Strategy::Node { node: C, soft: false },
        // Of the same words as a near shape; its patience has no end.
        Strategy::Node { node: B, soft: true },
    ];
    for strategy in wishes {
        let shape = Arc::new(Shape { strategy: strategy.clone(), ..shape() });
        let call = call(CallOptions { shape, ..options() });
        let asked = owner.asks(Call { refs: vec![argument], ..call }).1;
        assert_eq!(asked, [(strategy, 1)]);
    }
    let group = InGroup::of_task(GroupId::new(B, 1), None, shape().resources);
    let in_group = Arc::new(Shape::of(group.named()));
    let in_group = call(CallOptions { shape: in_group, ..options() });
    assert_eq!(owner.asks(Call { refs: vec![argument], ..in_group }).1, [anywhere(1)]);
    let labels = vec![LabelSelector::default()];
    let shape = Arc::new(Shape { labels: labels.clone(), ..shape() });
    let call = call(CallOptions { shape, ..options() });
    let effects = owner.submit(Call { refs: vec![argument], ..call }).1;
    let kept = |effect: &Effect| matches!(effect, Effect::Node(ToNode::LeaseDemand { shape, .. }) if shape.labels == labels);
    assert!(effects.iter().any(kept), "labels go along: {effects:?}");
    owner.later(Duration::from_secs(100));
}

#[test]
fn where_nothing_moves_the_first_leaves_after_the_time_of_moving_it() {
    let mut owner = Owner::new();
    let large = owner.lies(1, there(B, 16 * MIB));
    let other = owner.lies(2, there(B, 2 * MIB));
    let first = owner.submit(with_refs(&[large])).0;
    owner.submit(with_refs(&[other]));
    let patience = NEAR_WORKER_STARTS + moving_takes(16 * MIB);
    assert_eq!(owner.session.next_deadline(), Some(owner.now + patience));
    assert_eq!(demands(&owner.later(patience - Duration::from_nanos(1))), []);
    let effects = owner.later(Duration::from_nanos(1));
    assert_eq!(demands(&effects), [anywhere(1)]);
    assert_eq!(placed_at(&owner.granted_by(0, 7, process(W))), [(process(W), first.seq)]);
    // The next one is carried after it.
    assert_eq!(owner.session.next_deadline(), Some(owner.now + moving_takes(2 * MIB)));
    let effects = owner.later(moving_takes(2 * MIB));
    assert!(demands(&effects).contains(&near(B, 0)), "{effects:?}");
}

#[test]
fn a_node_that_makes_progress_keeps_its_queue() {
    let mut owner = Owner::new();
    let refs: Vec<_> = (1..5).map(|seq| owner.lies(seq, there(B, 2 * MIB))).collect();
    let tasks: Vec<_> = refs.iter().map(|it| owner.submit(with_refs(&[*it])).0).collect();
    owner.granted_by(1, 7, worker(B, 1));
    owner.now = owner.now + NEAR_WORKER_STARTS;
    for task in &tasks[..3] {
        let effects = owner.later(moving_takes(2 * MIB) - Duration::from_nanos(1));
        assert_eq!(demands(&effects), []);
        let effects = owner.answers(worker(B, 1), *task, inline(b""));
        assert_eq!(placed_at(&effects).len(), 1);
    }
}

#[test]
fn what_was_given_away_draws_nobody_any_more() {
    let mut owner = Owner::new();
    let weights = owner.lies(1, there(B, 16 * MIB));
    let tasks: Vec<_> = (0..4).map(|_| owner.submit(with_refs(&[weights])).0).collect();
    let effects = owner.later(NEAR_WORKER_STARTS + moving_takes(16 * MIB));
    assert_eq!(demands(&effects), [anywhere(4), near(B, 0)], "all of them follow the first");
    assert_eq!(owner.asks(with_refs(&[weights])).1, []);
    let effects = owner.granted_by(0, 7, process(W));
    assert_eq!(placed_at(&effects), [(process(W), tasks[0].seq)]);
    let died = owner.gone(W, &[tasks[0].seq]);
    assert!(!demands(&died).iter().any(|it| *it == near(B, 1)), "it does not go back: {died:?}");
}

#[test]
fn a_task_that_is_cancelled_takes_its_demand_back_from_the_other_node() {
    let mut owner = Owner::new();
    let argument = owner.lies(1, there(B, 16 * MIB));
    let task = owner.submit(with_refs(&[argument])).0;
    let effects = owner.handle(Event::Cancel { task, force: false, recursive: false });
    assert_eq!(demands(&effects), [near(B, 0)]);
    owner.later(Duration::from_secs(100));
}

#[test]
fn a_call_that_comes_back_from_a_dead_node_asks_there_no_longer_than_its_patience() {
    let mut owner = Owner::new();
    let argument = owner.lies(1, there(B, 2 * MIB));
    let task = owner.submit(with_refs(&[argument])).0;
    owner.granted_by(1, 7, worker(B, 1));
    let (process, obituary) = (worker(B, 1), died(1));
    let unstarted = vec![task.seq];
    let effects = owner.handle(Event::ProcessGone { process, obituary, unstarted });
    assert_eq!(demands(&effects), [near(B, 1)], "the broker knows that the node is gone");
    let effects = owner.later(NEAR_WORKER_STARTS + moving_takes(2 * MIB));
    assert_eq!(demands(&effects), [anywhere(1), near(B, 0)]);
}

#[test]
fn who_switched_it_off_asks_for_no_node() {
    let mut owner = Owner::new();
    owner.session.ignore_where_arguments_lie();
    let argument = owner.lies(1, there(B, 16 * MIB));
    assert_eq!(owner.asks(with_refs(&[argument])).1, [anywhere(1)]);
}

/// Two other nodes that may give workers or not, arguments that lie anywhere and move, workers that die.
struct Chance {
    owner: Owner,
    rng: u64,
    /// Leases wanted, by key, and how.
    wanted: BTreeMap<u32, (Strategy, u32)>,
    /// Calls in the ring of each worker.
    rings: BTreeMap<ProcessId, VecDeque<u64>>,
    arguments: Vec<(ObjectId, Location)>,
    counted: u32,
}

impl Chance {
    fn new(seed: u64) -> Self {
        Self {
            owner: Owner::new(),
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            wanted: BTreeMap::new(),
            rings: BTreeMap::new(),
            arguments: Vec::new(),
            counted: 0,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 33) as usize % below
    }

    fn follow(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Node(ToNode::LeaseDemand { key, shape, wanted }) => {
                    self.wanted.insert(key, (shape.strategy.clone(), wanted));
                }
                Effect::Node(ToNode::LeaseReturn { .. }) => {
                    self.rings.retain(|worker, _| self.owner.session.lease_of(*worker).is_some());
                }
                Effect::Place { worker, seq } => {
                    self.rings.entry(worker).or_default().push_back(seq);
                }
                Effect::Revoke { worker, seqs } => {
                    let ring = self.rings.entry(worker).or_default();
                    let first = ring.front().copied();
                    let (kept, back) = seqs.into_iter().partition(|seq| Some(*seq) == first);
                    ring.truncate(1);
                    let revoked = Event::Revoked { worker, seqs: back, kept };
                    let effects = self.owner.handle(revoked);
                    self.follow(effects);
                }
                _other => {}
            }
        }
    }

    fn grant(&mut self, key: u32, node: NodeNumber) {
        self.wanted.get_mut(&key).expect("it is wanted").1 -= 1;
        self.counted += 1;
        let worker = worker(node, 100 + self.counted);
        self.rings.insert(worker, VecDeque::new());
        let effects = self.owner.granted_by(key, u64::from(self.counted), worker);
        self.follow(effects);
    }

    fn some_worker(&mut self) -> Option<ProcessId> {
        let busy = self.rings.iter().filter(|(_, ring)| !ring.is_empty());
        let busy: Vec<ProcessId> = busy.map(|(worker, _)| *worker).collect();
        if busy.is_empty() { None } else { Some(busy[self.random(busy.len())]) }
    }

    fn reply(&mut self, worker: ProcessId) {
        let seq = self.rings.get_mut(&worker).and_then(VecDeque::pop_front).expect("it is busy");
        let task = TaskId { owner: self.owner.session.me(), seq };
        let effects = self.owner.answers(worker, task, inline(b""));
        self.follow(effects);
    }

    fn wait(&mut self, time: Duration) {
        let effects = self.owner.later(time);
        self.follow(effects);
    }

    fn step(&mut self) {
        const HERE: NodeNumber = NodeNumber::alone(1);
        let node = [HERE, B, C][self.random(3)];
        match self.random(10) {
            0 => {
                self.counted += 1;
                let bytes = self.random(20 << 20) as u64;
                let location = match node {
                    HERE => Location { len: bytes, ..place(self.counted) },
                    other => Location::elsewhere(other, bytes),
                };
                let seq = u64::from(self.counted);
                let object = self.owner.lies(seq, Value::Stored(location));
                self.arguments.push((object, location));
            }
            1..=3 if !self.arguments.is_empty() => {
                let refs = (0..1 + self.random(3)).map(|_| {
                    let nth = self.random(self.arguments.len());
                    self.arguments[nth].0
                });
                let refs: Vec<ObjectId> = refs.collect();
                let effects = self.owner.submit(with_refs(&refs)).1;
                self.follow(effects);
            }
            4 => {
                let wanted: Vec<_> = self.wanted.iter().filter(|(_, it)| it.1 > 0).collect();
                if let Some((key, (strategy, _))) = wanted.first().copied() {
                    let node = match strategy {
                        Strategy::Node { node, .. } => *node,
                        Strategy::Default | Strategy::Spread => node,
                    };
                    self.grant(*key, node);
                }
            }
            5 | 6 => {
                if let Some(worker) = self.some_worker() {
                    self.reply(worker);
                }
            }
            7 if !self.arguments.is_empty() => {
                // It is read here, and so comes here.
                let nth = self.random(self.arguments.len());
                let (object, _) = self.arguments[nth];
                let Some(Value::Stored(seen)) = self.owner.session.value(object).cloned() else {
                    return;
                };
                let stale = |session: &mut SessionMachine, _, effects: &mut Vec<Effect>| {
                    session.location_stale(object, seen, effects);
                };
                let effects = self.owner.act(stale).1;
                self.follow(effects);
                self.counted += 1;
                let value = Value::Stored(Location { len: seen.len, ..place(self.counted) });
                let effects = self.owner.handle(Event::Ready { object, value, contains: vec![] });
                self.follow(effects);
            }
            8 => {
                let Some(process) = self.some_worker().filter(|_| node == B) else { return };
                let unstarted = self.rings.remove(&process).expect("it is one").into();
                let gone = Event::ProcessGone { process, obituary: died(1), unstarted };
                let effects = self.owner.handle(gone);
                self.follow(effects);
            }
            _ => {
                let milliseconds = self.random(100) as u64;
                self.wait(Duration::from_millis(milliseconds));
            }
        }
    }

    /// This node gives all that is asked of it, and the others nothing any more.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            while let Some(worker) = self.some_worker() {
                self.reply(worker);
            }
            let home = self.wanted.iter().find(|(_, it)| it.0 == Strategy::Default && it.1 > 0);
            if let Some((key, _)) = home.map(|(key, it)| (*key, it.1)) {
                self.grant(key, NodeNumber::alone(1));
                continue;
            }
            if self.owner.session.unfinished() == 0 {
                return;
            }
            let due = self.owner.session.next_deadline().expect("NEAR-3: nothing is due");
            self.wait(due.since(self.owner.now));
        }
        panic!("NEAR-3: {:?} wait for ever", self.owner.session.task_lines(3));
    }
}

#[test]
fn whatever_other_nodes_give_every_task_ends() {
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        (0..200).for_each(|_| chance.step());
        chance.finish();
    }
}
