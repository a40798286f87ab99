//! Costs that are measured by doing it: what the decider's log takes, a frame, a word from one thread to another one.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::os::fd::OwnedFd;

use hoplo_base::{NodeNumber, ResourceSet};
use hoplo_control::embedded::{Embedded, EmbeddedOptions};
use hoplo_core::control::{ControlStore, Entry, NodeEntry, NodeState, Row};
use hoplo_wire::control::{Change, Response, ShardId};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};

type Clock = fn() -> u64;

const TURNS: u64 = 5_000;
/// Updates in a turn that has more of them.
const MANY: u64 = 11;

/// Nanoseconds of the threads that do it.
pub fn costs(clock: Clock) -> Value {
    json!({ "frame": frame(clock), "hand_over": hand_over(clock), "log": log(clock) })
}

fn entry(at: u32) -> NodeEntry {
    let resources = ResourceSet::from_units([("CPU", 16.0), ("memory", 64e9)]);
    let label = ("hoplo.io/python".to_string(), "cpython-3.11.7".to_string());
    NodeEntry {
        node: NodeNumber::first_given(at),
        head: false,
        hostname: format!("host-{at}"),
        resources: resources.expect("finite amounts"),
        labels: BTreeMap::from([label]),
        store_bytes: 8 << 30,
        session_dir: format!("/tmp/hoplo/session-2026-01-01-{at:06}"),
        pid: 1000,
        address: "10.0.0.1:6379".to_string(),
        state: NodeState::Alive,
    }
}

/// A changed row as a subscriber is told of it.
fn frame(clock: Clock) -> u64 {
    let row = Row { value: entry(1).to_value(), version: 2, index: 7, finished: false };
    let change = Change { index: 7, key: entry(1).key(), row: Some(row) };
    let (shard, changes) = (ShardId(0), vec![change].into());
    let frame = Response::Changes { shard, subscription: 1, after: 6, changes, upto: 7 };
    let mut out = Vec::new();
    let began = clock();
    for _ in 0..TURNS {
        out.clear();
        hoplo_wire::node::encode(black_box(&frame), &mut out);
    }
    (clock() - began) / TURNS
}

/// Two threads wake each other in turn. What each takes for one word: it rings, sleeps, and is woken.
fn hand_over(clock: Clock) -> u64 {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let (here, there) = (bell(), bell());
    let ring = |bell: &OwnedFd| {
        rustix::io::write(bell, &1_u64.to_ne_bytes()).expect("it takes a word");
    };
    let hears = |bell: &OwnedFd| {
        rustix::io::read(bell, &mut [0; 8]).expect("it gives a word");
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let began = clock();
            for _ in 0..TURNS {
                hears(&there);
                ring(&here);
            }
            clock() - began
        });
        let began = clock();
        for _ in 0..TURNS {
            ring(&there);
            hears(&here);
        }
        let both = clock() - began + other.join().expect("it does not panic");
        both / (2 * TURNS)
    })
}

/// What a turn that changed something takes more than its updates.
fn log(clock: Clock) -> u64 {
    let folder = std::env::temp_dir().join(format!("hoplo-scale-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder for a log");
    let mut store = Embedded::open(EmbeddedOptions::new(folder.clone())).expect("a new store");
    let mut turns = |updates: u64| {
        let began = clock();
        for turn in 0..TURNS {
            for at in 0..updates {
                let entry = entry(((turn * updates + at) % 1_000) as u32);
                store.put(entry.key(), entry.to_value()).expect("it takes rows");
            }
            store.flush().expect("there is room on the disk");
        }
        (clock() - began) / TURNS
    };
    let (one, many) = (turns(1), turns(MANY));
    store.close().expect("it was written");
    fs::remove_dir_all(&folder).expect("it is ours");
    one.saturating_sub((many - one) / (MANY - 1))
}
