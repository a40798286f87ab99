//! Programs: what drivers, tasks and methods do, from a seed.
//!
//! Methods never wait, and what an actor keeps is never passed on: else programs could wait for
//! themselves, which is no fault of ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{FunctionId, ObjectId, ResourceSet};
use hoplo_core::session::CallOptions;
use hoplo_wire::call::{CALL_RETRY_ANY, CALL_STREAMING};
use hoplo_wire::node::{
    BundleSpec, Condition, GroupSpec, GroupStrategy, LabelSelector, Shape, Strategy,
};

use crate::faults::Plan;
use crate::rng::Rng;
use crate::table::number;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    Driver,
    Task,
    Stream,
    Method,
    Constructor,
    /// A task with GPUs, which never waits: they are not lent, so that what it waits for might wait for them.
    Holder,
}

/// Numbers pick among what is at hand.
#[derive(Clone, Debug)]
pub enum Op {
    Work(Duration),
    Submit(Box<Submission>),
    /// A value with so many refs inside; stored with so many bytes, or inline. What is stored is to be on so many nodes.
    Put {
        stored: Option<u64>,
        contains: usize,
        copies: u8,
    },
    Get(u64),
    /// Until one of all is ready, or the time is up.
    WaitAny(Duration),
    Watch(u64),
    Drop(u64),
    /// Of up to so many of its refs what they give together, folded on its way here.
    Reduce(u64),
    /// Of what so many tasks return, at nodes all over the cluster.
    ReduceMany(Submission, u64),
    Cancel {
        pick: u64,
        force: bool,
        recursive: bool,
    },
    /// With so many restarts.
    Create(Box<Submission>, i32, Option<Name>),
    /// Makes a placement group, and waits until it is created.
    Group(Box<GroupSpec>),
    RemoveGroup(u64),
    /// Looks for an actor by its name.
    Find(String),
    Kv(KvStep),
    Call(Box<Submission>, u64),
    DropHandle(u64),
    Kill {
        pick: u64,
        no_restart: bool,
    },
    /// Takes an item of a stream.
    Take(u64),
    DropStream(u64),
    /// An actor keeps one of its refs.
    Keep(u64),
    /// An actor reads, in the background, what it kept.
    Recall(u64),
    Yield {
        stored: Option<u64>,
        contains: usize,
    },
}

#[derive(Clone, Debug)]
pub struct Name {
    pub name: String,
    pub detached: bool,
    pub get_if_exists: bool,
}

/// On a process's own keys.
#[derive(Clone, Debug)]
pub enum KvStep {
    Get(Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    /// Only if there is none.
    Create(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    List,
}

#[derive(Clone, Debug)]
pub struct Submission {
    pub program: u64,
    pub role: Role,
    pub refs: usize,
    pub nested: usize,
    pub handles: usize,
    pub options: Arc<CallOptions>,
    /// In a placement group, if there is one.
    pub bundle: Option<Bundle>,
}

#[derive(Clone, Copy, Debug)]
pub struct Bundle {
    /// Which of the groups at hand.
    pub group: u64,
    /// Absent: any bundle will do.
    pub index: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub ops: Vec<Op>,
    /// Attempts that raise.
    pub raises: u32,
    /// For each value returned: stored size, refs inside.
    pub returns: Vec<(Option<u64>, usize)>,
    /// Bytes of each value that is not stored: some are more than one reply takes.
    pub inline_bytes: usize,
}

pub const DEPTH_MAX: u8 = 3;

pub fn program(seed: u64, role: Role, depth: u8, plan: &Plan) -> Program {
    let mut rng = Rng::new(seed);
    let many = match role {
        Role::Driver if rng.one_in(4) => 10 + rng.below(120),
        Role::Driver => 10 + rng.below(30),
        Role::Task | Role::Holder => rng.below(if depth < DEPTH_MAX { 7 } else { 3 }),
        Role::Stream => 1 + rng.below(8),
        Role::Method => rng.below(4),
        Role::Constructor => rng.below(3),
    };
    let ops = (0..many).map(|_| op(&mut rng, role, depth, plan)).collect();
    let raises = if rng.one_in(12) { 1 + rng.below(2) as u32 } else { 0 };
    let returns = (0..4).map(|_| (size(&mut rng, plan), rng.below(3) as usize)).collect();
    let inline_bytes = if rng.one_in(6) { 60_000 } else { 0 };
    Program { ops, raises, returns, inline_bytes }
}

fn op(rng: &mut Rng, role: Role, depth: u8, plan: &Plan) -> Op {
    let pick = rng.next();
    let waits = matches!(role, Role::Driver | Role::Task | Role::Stream);
    let submits = depth < DEPTH_MAX;
    if plan.reduces_much && waits && rng.one_in(8) {
        return Op::Reduce(pick);
    }
    if plan.dies_when_folded && role == Role::Driver && rng.one_in(3) {
        return Op::ReduceMany(spread(rng, plan), pick);
    }
    loop {
        return match rng.below(35) {
            0..=2 => {
                let most = if rng.one_in(8) { 60 } else { 4 };
                Op::Work(rng.delay(Duration::from_millis(most)))
            }
            3..=8 if submits => Op::Submit(Box::new(submission(rng, depth, plan))),
            9..=10 => Op::Put {
                stored: size(rng, plan),
                contains: rng.below(3) as usize,
                copies: [1, 1, 2, 3][pick as usize % 4],
            },
            11..=14 if waits => Op::Get(pick),
            15 if waits => Op::WaitAny(rng.delay(Duration::from_millis(20))),
            16 => Op::Watch(pick),
            17..=18 => Op::Drop(pick),
            19 if plan.cancels => {
                Op::Cancel { pick, force: rng.one_in(3), recursive: rng.one_in(2) }
            }
            20 if submits && role != Role::Constructor => {
                let restarts = [0, 1, 3, -1][rng.below(4) as usize];
                let name = (waits && rng.one_in(3)).then(|| name(rng));
                Op::Create(Box::new(method(rng, Role::Constructor, plan)), restarts, name)
            }
            21..=23 if submits => Op::Call(Box::new(method(rng, Role::Method, plan)), pick),
            24 => Op::DropHandle(pick),
            25 if rng.one_in(3) => Op::Kill { pick, no_restart: rng.one_in(2) },
            26..=27 if waits => Op::Take(pick),
            28 if rng.one_in(4) => Op::DropStream(pick),
            28 | 29 if role == Role::Method || role == Role::Constructor => {
                if rng.one_in(2) {
                    Op::Keep(pick)
                } else {
                    Op::Recall(pick)
                }
            }
            26..=29 if matches!(role, Role::Stream | Role::Method | Role::Holder) => {
                Op::Yield { stored: size(rng, plan), contains: rng.below(2) as usize }
            }
            30 if waits => Op::Kv(kv_step(rng)),
            31 if waits => Op::Find(name(rng).name),
            32 if waits => Op::Group(Box::new(group(rng, plan))),
            33 if rng.one_in(4) => Op::RemoveGroup(pick),
            34 if waits => Op::Reduce(pick),
            _ => continue,
        };
    }
}

fn name(rng: &mut Rng) -> Name {
    let name = ["first", "second"][rng.below(2) as usize].to_string();
    Name { name, detached: !rng.one_in(3), get_if_exists: rng.one_in(2) }
}

fn group(rng: &mut Rng, plan: &Plan) -> GroupSpec {
    let bundle = |rng: &mut Rng| BundleSpec {
        resources: shape([0.5, 1.0, 1.0, 2.0][rng.below(4) as usize]).resources,
        labels: match plan.nodes > 1 && rng.one_in(4) {
            true => [(ZONE.to_string(), ZONES[rng.below(2) as usize].to_string())].into(),
            false => BTreeMap::new(),
        },
    };
    GroupSpec {
        name: String::new(),
        namespace: String::new(),
        detached: rng.one_in(6),
        strategy: GroupStrategy::ALL[rng.below(4) as usize],
        bundles: (0..1 + rng.below(3)).map(|_| bundle(rng)).collect(),
    }
}

fn bundle(rng: &mut Rng) -> Option<Bundle> {
    let index = rng.one_in(2).then(|| rng.below(2) as u32);
    rng.one_in(2).then(|| Bundle { group: rng.next(), index })
}

/// What each node is labelled with. The head is in the first zone, so what must be there can be.
pub const ZONE: &str = "zone";
pub const ZONES: [&str; 2] = ["first", "second"];

/// In the first zone; or in the second one if that can be, and else in the first.
fn labels(rng: &mut Rng) -> Vec<LabelSelector> {
    let selector =
        |zone: &str| LabelSelector(vec![(ZONE.to_string(), Condition::In(vec![zone.to_string()]))]);
    match rng.below(8) {
        0 => vec![selector(ZONES[0])],
        1 => vec![selector(ZONES[1]), selector(ZONES[0])],
        _ => vec![],
    }
}

fn kv_step(rng: &mut Rng) -> KvStep {
    let (key, value) = (vec![rng.below(3) as u8], vec![rng.below(256) as u8]);
    match rng.below(6) {
        0 => KvStep::Get(key),
        1 | 2 => KvStep::Put(key, value),
        3 => KvStep::Create(key, value),
        4 => KvStep::Delete(key),
        _ => KvStep::List,
    }
}

fn size(rng: &mut Rng, plan: &Plan) -> Option<u64> {
    match rng.below(10) {
        2..=7 if plan.stores_much => Some(large(rng.below(1 << 20), plan)),
        0..=1 => Some(large(rng.below(2 << 20), plan)),
        2 => Some(1 + rng.below(5000)),
        _ => None,
    }
}

/// Of several nodes, half of them are as long as each other, as what is folded has to be.
fn large(more: u64, plan: &Plan) -> u64 {
    let alike = plan.nodes > 1 && more.is_multiple_of(2);
    200_000
        + match plan.dies_when_folded {
            true => 1 << 20, // so it comes in several pieces
            false if alike => 1 << 18,
            false => more,
        }
}

fn submission(rng: &mut Rng, depth: u8, plan: &Plan) -> Submission {
    let stream = rng.one_in(8);
    let cpus = match rng.below(8) {
        0 => 0.5,
        1 => 0.0,
        2 if plan.cpus >= 2 => 2.0,
        _ => 1.0,
    };
    let mut flags = 0;
    if rng.one_in(2) {
        flags |= CALL_RETRY_ANY;
    }
    if stream {
        flags |= CALL_STREAMING;
    }
    let class = rng.below(3) as u8;
    let mut shape = larger_shape(rng, cpus, depth, plan);
    let holds = shape.resources.units("GPU") > 0.0;
    if plan.nodes > 1 {
        shape.strategy = strategy(rng, plan);
        shape.labels = labels(rng);
    }
    let options = CallOptions {
        function: FunctionId([class; 16]),
        name: Arc::from(format!("f{class}")),
        shape: Arc::new(shape),
        returns: if stream { 0 } else { [1, 1, 1, 0, 2, 3][rng.below(6) as usize] },
        flags,
        max_retries: match [0, 1, 3, -1][rng.below(4) as usize] {
            // What was lost with a node stays lost: who reads it and tries again for ever never ends.
            -1 if plan.nodes > 1 && flags & CALL_RETRY_ANY != 0 => 3,
            retries => retries,
        },
        max_calls: if rng.one_in(12) { 1 } else { 0 },
        job: None,
        stream_ahead: if stream && !holds && rng.one_in(2) { 1 + rng.below(3) as u32 } else { 0 },
        max_pending_calls: 0,
        remembered: true,
        near_first: false,
        may_be_overtaken: false,
    };
    Submission {
        program: rng.next(),
        role: match (holds, stream) {
            (true, _) => Role::Holder,
            (false, true) => Role::Stream,
            (false, false) => Role::Task,
        },
        refs: [0, 0, 1, 1, 2][rng.below(5) as usize],
        nested: [0, 0, 1, 2][rng.below(4) as usize],
        handles: rng.below(2) as usize,
        options: Arc::new(options),
        bundle: bundle(rng).filter(|_| !holds),
    }
}

/// It can be made again, wherever there is room.
fn spread(rng: &mut Rng, plan: &Plan) -> Submission {
    let any = submission(rng, 0, plan);
    let shape = Shape { strategy: Strategy::Spread, ..shape(0.5) };
    let options = CallOptions {
        shape: Arc::new(shape),
        returns: 1,
        flags: CALL_RETRY_ANY,
        max_retries: 3,
        stream_ahead: 0,
        ..(*any.options).clone()
    };
    let (refs, nested, handles, bundle) = (0, 0, 0, None);
    let (role, options) = (Role::Task, Arc::new(options));
    Submission { role, refs, nested, handles, options, bundle, ..any }
}

fn method(rng: &mut Rng, role: Role, plan: &Plan) -> Submission {
    let constructor = role == Role::Constructor;
    let stream = !constructor && rng.one_in(8);
    let mut where_it_lives = shape(0.0);
    if constructor && plan.nodes > 1 {
        where_it_lives.strategy = strategy(rng, plan);
        where_it_lives.labels = labels(rng);
    }
    let mut options = CallOptions {
        function: FunctionId([99; 16]),
        name: Arc::from(if constructor { "A" } else { "A.m" }),
        shape: Arc::new(where_it_lives),
        returns: if constructor || stream { 0 } else { [1, 1, 0, 2][rng.below(4) as usize] },
        flags: if stream { CALL_STREAMING } else { 0 },
        max_retries: [0, 0, 1, -1][rng.below(4) as usize],
        max_calls: 0,
        job: None,
        stream_ahead: 0,
        max_pending_calls: if rng.one_in(6) { 2 } else { 0 },
        remembered: true,
        near_first: false,
        may_be_overtaken: false,
    };
    let program = rng.next();
    options.may_be_overtaken = !constructor && program.is_multiple_of(4);
    Submission {
        program,
        role,
        refs: [0, 0, 1, 2][rng.below(4) as usize],
        nested: [0, 1, 2][rng.below(3) as usize],
        handles: usize::from(!constructor && rng.one_in(6)),
        options: Arc::new(options),
        bundle: bundle(rng).filter(|_| constructor),
    }
}

/// Only what may run elsewhere, too: nodes die.
fn strategy(rng: &mut Rng, plan: &Plan) -> Strategy {
    match rng.below(4) {
        0 | 1 => Strategy::Spread,
        2 => Strategy::Node { node: number(rng.below(plan.nodes.into()) as u32), soft: true },
        _ => Strategy::Default,
    }
}

pub fn shape(cpus: f64) -> Shape {
    shape_of(&[("CPU", cpus)])
}

/// At times with GPUs, or with a limit on memory.
fn larger_shape(rng: &mut Rng, cpus: f64, depth: u8, plan: &Plan) -> Shape {
    let gpus = plan.gpus > 0 && depth == 0;
    match rng.below(16) {
        0 if gpus => shape_of(&[("CPU", cpus), ("GPU", 1.0)]),
        1 if gpus => shape_of(&[("GPU", 0.5)]),
        2 => shape_of(&[("CPU", cpus), ("memory", 1e6)]),
        _ => shape(cpus),
    }
}

fn shape_of(units: &[(&str, f64)]) -> Shape {
    let resources = ResourceSet::from_units(units.iter().copied()).expect("finite amounts");
    Shape::of(resources)
}

/// Arguments as they travel: the program, and refs inside.
pub fn encode_args(submission: &Submission, depth: u8, nested: &[ObjectId]) -> Vec<u8> {
    let mut args = submission.program.to_le_bytes().to_vec();
    args.extend([submission.role as u8, depth]);
    for object in nested {
        args.extend(object.to_bytes());
    }
    args
}

pub fn decode_args(args: &[u8]) -> (u64, Role, u8, Vec<ObjectId>) {
    let seed = u64::from_le_bytes(args[..8].try_into().expect("eight bytes"));
    let role = match args[8] {
        1 => Role::Task,
        2 => Role::Stream,
        3 => Role::Method,
        4 => Role::Constructor,
        5 => Role::Holder,
        other => panic!("{other} is no role of a call"),
    };
    let nested = args[10..]
        .chunks_exact(20)
        .map(|id| ObjectId::from_bytes(id.try_into().expect("chunks are of twenty")))
        .collect();
    (seed, role, args[9], nested)
}
