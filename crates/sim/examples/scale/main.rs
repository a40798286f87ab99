//! Clusters of up to ten thousand nodes in virtual time (`hoplo_sim::cost`): one experiment, one line of JSON.
//!
//! ```text
//! scale joins|join|idle|busy|deaths|vanish|actors|stored|chain|tasks NODES [NAME=VALUE ...]
//! scale small 1
//! ```
//! A name is one of the costs (`receive=4000`, in nanoseconds), or of what the experiment asks for: `seconds`, `joining`, `died`, `holders`,
//! `actors`, `shards`, `every_us`; of `tasks`: `programs`, `workers`, `cores`, `share`, `batch`, `submit`, `get`, `run`, `daemon`. `deaths` with `actors`: so
//! many lie in the head's store. `small` measures the costs that take a program of a few lines (module `small`). `bench/scale.py` asks for all.

mod small;

use std::collections::BTreeMap;

use hoplo_sim::cost::{
    Actors, Busy, Costs, Deaths, Ends, Failover, Idle, Joins, Meter, Plane, Stored, TaskCosts,
    Tasks, head_of_a_shard_dies, tasks,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// What this thread has run: others on the machine do not count.
fn clock() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Real nodes among the stand-ins.
const SAMPLES: u32 = 4;
/// Of each node that dies: so many others use an object of it.
const HOLDERS: f64 = 10.0;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "scale EXPERIMENT NODES [NAME=VALUE ...]";
    let what = arguments.next().expect(usage);
    let nodes: u32 = arguments.next().and_then(|it| it.parse().ok()).expect(usage);
    let told: BTreeMap<String, f64> = arguments
        .map(|it| {
            let (name, value) = it.split_once('=').expect(usage);
            (name.to_string(), value.parse().expect("a number"))
        })
        .collect();
    let number = |name: &str, else_: f64| told.get(name).copied().unwrap_or(else_);
    let costs = costs(&number);
    let meter = Meter::measuring(clock);
    let joined = |meter| Plane::joined(nodes, SAMPLES, costs, meter);
    let mut meter_alone = None;
    let (found, plane) = match what.as_str() {
        "joins" => {
            let (joins, plane) = Plane::all_join(nodes, SAMPLES, costs, meter);
            (of_joins(&joins), Some(plane))
        }
        "join" => {
            let mut plane = joined(meter);
            (of_joins(&plane.more_join(number("joining", 100.0) as u32)), Some(plane))
        }
        "idle" => {
            let mut plane = joined(meter);
            (of_idle(&plane.idles(number("seconds", 3.0))), Some(plane))
        }
        "busy" => {
            let mut plane = joined(meter);
            let every = (number("every_us", 2000.0) * 1e3) as u64;
            (of_busy(&plane.busy(every, number("seconds", 1.0))), Some(plane))
        }
        "deaths" | "vanish" => {
            let mut plane = joined(meter);
            let how = if what == "deaths" { Ends::Crash } else { Ends::Vanish };
            let (died, holders) = (number("died", 100.0), number("holders", HOLDERS));
            let actors = number("actors", 0.0) as u64;
            if actors > 0 {
                plane.stores_actors(actors);
            }
            (of_deaths(&plane.die(died as u32, how, holders as u32)), Some(plane))
        }
        "actors" => {
            let mut plane = joined(meter);
            (of_actors(&plane.make_actors(number("actors", 1e6) as u64)), Some(plane))
        }
        "stored" => {
            let (actors, shards) = (number("actors", 1e6) as u64, number("shards", 8.0) as u16);
            let (found, measured) = joined(meter).make_actors_stored(actors, shards);
            meter_alone = Some(measured);
            (of_stored(&found), None)
        }
        "chain" => {
            let (found, measured) = head_of_a_shard_dies(nodes, costs, meter);
            meter_alone = Some(measured);
            (of_failover(&found), None)
        }
        "tasks" => {
            let count = |name: &str, else_: f64| number(name, else_) as usize;
            let asked = Tasks {
                nodes: nodes as usize,
                programs: count("programs", 1.0),
                workers: count("workers", 1.0),
                cores: count("cores", 1.0),
                share: number("share", 1.0),
                batch: number("batch", 1000.0) as u64,
            };
            let ns = |name: &str| number(name, 1000.0) as u64;
            let of_each = TaskCosts {
                submit: ns("submit"),
                get: ns("get"),
                run: ns("run"),
                daemon: ns("daemon"),
            };
            (json!({ "tasks_per_s": tasks(asked, of_each) }), None)
        }
        "small" => (small::costs(clock), None),
        _ => panic!("{usage}"),
    };
    let meter = plane.as_ref().map(|plane| &plane.meter).or(meter_alone.as_ref());
    let tallies = meter.into_iter().flat_map(Meter::tallies);
    let tallies: serde_json::Map<String, Value> = tallies
        .map(|(what, it)| {
            let us = it.ns as f64 / 1e3 / it.events.max(1) as f64;
            let row = json!({ "events": it.events, "effects": it.effects, "mean_us": us,
                              "longest_us": it.longest_ns as f64 / 1e3 });
            ((*what).to_string(), row)
        })
        .collect();
    println!("{}", json!({ "what": what, "nodes": nodes, "found": found, "machines": tallies }));
}

fn costs(number: &impl Fn(&str, f64) -> f64) -> Costs {
    let known = Costs::OF_TWO_CORES;
    let ns = |name: &str, known: u64| number(name, known as f64) as u64;
    Costs {
        receive: ns("receive", known.receive),
        flush: ns("flush", known.flush),
        frame: ns("frame", known.frame),
        kilobyte: ns("kilobyte", known.kilobyte),
        hand_over: ns("hand_over", known.hand_over),
        handshake: ns("handshake", known.handshake),
        join: ns("join", known.join),
        log: ns("log", known.log),
        way: ns("way", known.way),
        fork: ns("fork", known.fork),
    }
}

fn of_joins(it: &Joins) -> Value {
    json!({ "joined": it.joined, "joined_s": it.joined_s, "known_s": it.known_s, "desk_s": it.desk_s,
            "clerk_s": it.clerk_s, "decider_s": it.decider_s, "carrier_s": it.carrier_s, "member_s": it.member_s,
            "rows_told": it.rows_told, "frames": it.frames, "flushes": it.flushes,
            "probes": it.probes, "declared_dead": it.declared_dead, "refusals": it.refusals })
}

fn of_idle(it: &Idle) -> Value {
    json!({ "seconds": it.seconds, "decider": it.decider, "carrier": it.carrier,
            "carrier_waited_ms": it.carrier_waited_ms, "probes": it.probes,
            "declared_dead": it.declared_dead })
}

fn of_busy(it: &Busy) -> Value {
    json!({ "told": it.told, "heard": it.heard, "decider": it.decider, "carrier": it.carrier,
            "carrier_waited_ms": it.carrier_waited_ms, "probes": it.probes,
            "declared_dead": it.declared_dead })
}

fn of_deaths(it: &Deaths) -> Value {
    json!({ "died": it.died, "declared_dead": it.declared_dead, "declared_wrongly": it.declared_wrongly,
            "verdicts_s": it.verdicts_s, "heard_s": it.heard_s, "settled_s": it.settled_s,
            "decider_s": it.decider_s, "carrier_s": it.carrier_s, "member_s": it.member_s,
            "probes": it.probes, "frames": it.frames, "flushes": it.flushes, "passed": it.passed,
            "words": it.words, "settlings": it.settlings })
}

fn of_actors(it: &Actors) -> Value {
    json!({ "made": it.made, "alive_s": it.alive_s, "saved_s": it.saved_s, "per_second": it.per_second,
            "decider_s": it.decider_s, "home_us": it.home_us, "rows_of_each": it.rows_of_each,
            "row_bytes": it.row_bytes, "updates": it.updates, "refusals": it.refusals })
}

fn of_stored(it: &Stored) -> Value {
    json!({ "made": it.made, "alive_s": it.alive_s, "saved_s": it.saved_s, "per_second": it.per_second,
            "busiest_s": it.busiest_s, "shards": it.shards, "rows": it.rows,
            "fullest_bytes": it.fullest_bytes, "memory_bytes": it.memory_bytes, "refusals": it.refusals })
}

fn of_failover(it: &Failover) -> Value {
    json!({ "clients": it.clients, "updates": it.updates, "usual_ms": it.usual_ms,
            "worst_ms": it.worst_ms, "told_ms": it.told_ms, "resent": it.resent,
            "busiest_s": it.busiest_s })
}
