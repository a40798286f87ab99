//! Answers to people and programs, as JSON; kinds are listed in ARCHITECTURE.md. Who is asked for them, and when they
//! go, is decided in `hoplo_core::node`.

use std::collections::BTreeMap;

use hoplo_base::{ProcessId, ResourceSet};
use hoplo_core::actors::life::ActorRow;
use hoplo_core::control::{ActorPhase, NodeEntry, NodeState};
use hoplo_core::node::{Everywhere, Here, Kind, Process, Report};
use hoplo_core::sched::claim::Claimant;
use hoplo_wire::node::{ActorState, ToClient};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::{machine, python};

impl Daemon {
    pub(crate) fn answer_query(&mut self, to: ProcessId, request: u64, report: Report) {
        let result = match report {
            Report::Here(here) => self.here(here),
            Report::Everywhere { subject, told } => Ok(self.everywhere(subject, told)),
            Report::Drain { node } => self.control.drain(node).map(|()| Value::Null),
            Report::Why { lines, remembered } => Ok(json!(self.remembered(lines, remembered))),
        };
        let result = result.map(|value| value.to_string());
        self.send_with(to, &ToClient::Answer { request, result }, None);
    }

    fn here(&mut self, here: Here) -> Result<Value, String> {
        Ok(match here {
            Here::Nodes => self.nodes(),
            Here::ClusterResources => {
                self.with_store(self.node.scheduler.total(), |totals| totals.capacity_bytes)
            }
            Here::AvailableResources => self
                .with_store(&self.node.scheduler.available(), |totals| {
                    totals.capacity_bytes.saturating_sub(totals.stored_bytes)
                }),
            Here::Actors => self.node.actors.rows().map(|row| self.actor_json(&row)).collect(),
            Here::Objects => self.objects_json(),
            Here::Control(question) => self.ask_control(&question)?,
            Here::Workers => self
                .node
                .processes()
                .filter(|p| p.kind != Kind::Tool)
                .map(|p| self.process_json(p))
                .collect(),
        })
    }

    /// Every process first said what it counted, so that the sums are of this moment.
    fn everywhere(&self, subject: Everywhere, told: Vec<(ProcessId, String)>) -> Value {
        // What does not parse is as good as no answer.
        let told = told.iter().map(|(_, json)| serde_json::from_str(json).unwrap_or(Value::Null));
        match subject {
            Everywhere::Status => self.status(&told.collect::<Vec<_>>()),
            Everywhere::Summary => self.summary(),
            Everywhere::Tasks => tasks_of_all(self.lost_tasks_json(), told),
            Everywhere::Timeline => {
                let mut rows = Vec::new();
                for value in told {
                    match value {
                        Value::Array(more) => rows.extend(more),
                        Value::Null => {}
                        one => rows.push(one),
                    }
                }
                Value::Array(rows)
            }
        }
    }

    /// Those that are there, and those that are not any more; of this head only its present life.
    fn nodes(&self) -> Value {
        let nodes = self.control.nodes().into_iter();
        nodes
            .filter(|node| !node.head || !node.state.is_dead())
            .map(|node| node_json(&node))
            .collect()
    }

    fn with_store(
        &self,
        resources: &ResourceSet,
        store: impl Fn(&hoplo_core::objects::Totals) -> u64,
    ) -> Value {
        let mut value = resources_json(resources);
        value["object_store_memory"] = json!(store(&self.node.objects.totals()) as f64);
        value
    }

    fn actor_json(&self, row: &ActorRow) -> Value {
        let process = row.worker.and_then(|worker| self.node.process(worker));
        let reason = match &row.state {
            ActorState::Pending { reason, .. } => Some(reason.clone()),
            ActorState::Restarting { cause, .. } => Some(cause.clone()),
            ActorState::Dead { failure } if failure.kind == hoplo_wire::FailureKind::User => {
                Some("its constructor raised".to_string())
            }
            ActorState::Dead { failure } => Some(failure.text()),
            ActorState::Alive { .. } => None,
        };
        json!({
            "actor_id": row.actor.hex(),
            "id": row.actor.to_string(),
            "class_name": row.class_name,
            "name": row.name,
            "namespace": row.namespace,
            "job": row.job.to_string(),
            "detached": row.detached,
            "restarts": row.incarnation,
            "state": ActorPhase::of(&row.state).to_string(),
            "pid": process.and_then(Process::known_pid),
            "reason": reason,
        })
    }

    fn objects_json(&self) -> Value {
        let rows = self.node.objects.listing().map(|row| {
            let holders = row.holders.iter().map(
                |(process, tokens)| json!({ "process": process.to_string(), "tokens": tokens }),
            );
            json!({
                "object_id": row.object.hex(),
                "id": row.object.to_string(),
                "state": row.state,
                "size": row.len,
                "owner": row.owner.map(|owner| owner.to_string()),
                "holders": holders.collect::<Vec<_>>(),
                "containers": row.containers,
                "waiting": row.waiting.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "copies": row.copies.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "kept": row.kept,
            })
        });
        rows.collect()
    }

    fn process_json(&self, process: &Process) -> Value {
        let lease = self.node.scheduler.lease_on(process.id);
        let works_for = lease.map(|lease| match lease.claimant {
            Claimant::Actor { actor, .. } => actor.to_string(),
            Claimant::Demand { process, .. } => process.to_string(),
        });
        let state = match (process.kind, lease) {
            (Kind::Driver, _) => "driver",
            (_, _) if process.stage.ticket().is_some() => "starting",
            (_, Some(lease)) if lease.blocked => "blocked",
            (_, Some(_)) => "leased",
            (_, None) => "idle",
        };
        json!({
            "id": process.id.to_string(),
            "pid": process.known_pid(),
            "kind": if process.kind == Kind::Driver { "driver" } else { "worker" },
            "state": state,
            "job": process.job.to_string(),
            "title": process.title,
            "works_for": works_for,
            "resources": lease.map(|lease| resources_json(&lease.resources)),
            "memory": process.known_pid().and_then(machine::own_bytes),
            "age_s": self.now.since(process.since).as_secs_f64(),
        })
    }

    fn status(&self, told: &[Value]) -> Value {
        let totals = self.node.objects.totals();
        let waiting = self.node.scheduler.waiting().map(|(claimant, count, shape)| {
            let stuck = self.node.scheduler.explain(claimant);
            let who = match claimant {
                Claimant::Actor { actor, .. } => actor.to_string(),
                Claimant::Demand { process, .. } => format!("tasks of {process}"),
            };
            json!({
                "who": who,
                "count": count,
                "needs": shape.resources.to_string(),
                "reason": stuck.as_ref().map(|stuck| stuck.reason.to_string()),
                "infeasible": stuck.is_some_and(|stuck| stuck.infeasible),
            })
        });
        let jobs = self.node.jobs().filter(|job| job.ended_us.is_none()).map(|job| {
            json!({
                "job": job.id.to_string(),
                "pid": Some(job.driver_pid).filter(|pid| *pid > 0),
                "entrypoint": job.config.entrypoint,
                "namespace": job.config.namespace,
                "started_us": job.started_us,
            })
        });
        let workers = self.node.processes().filter(|process| process.is_worker());
        let measured = self.node.processes().filter(|process| process.kind != Kind::Tool);
        let in_use = measured.filter_map(Process::known_pid).filter_map(machine::own_bytes);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "session_dir": self.session.path(),
            "node": format!("{:06x}", self.node.config().node.number()),
            "nodes": self.nodes(),
            "resources": resources_json(self.node.scheduler.total()),
            "available": resources_json(&self.node.scheduler.available()),
            "workers": workers.count(),
            "zygote_pid": self.zygote.pid(),
            "actors": self.node.actors.rows().filter(|row| !matches!(row.state, ActorState::Dead { .. })).count(),
            "jobs": jobs.collect::<Vec<_>>(),
            "memory_in_use": in_use.sum::<u64>(),
            "tasks": task_counts(told),
            "waiting": waiting.collect::<Vec<_>>(),
            "store": {
                "capacity": totals.capacity_bytes,
                "stored": totals.stored_bytes,
                "objects": totals.stored_objects,
                "spilled": totals.spilled_bytes,
                "spilled_objects": totals.spilled_objects,
                "read_on_disk": totals.mapped_bytes,
                "disk": totals.disk_bytes,
                "in_memory": self.store.touched_bytes(),
            },
            "counters": self.summary(),
            "violations": self.violations + self.node.violations(),
        })
    }

    fn summary(&self) -> Value {
        let counters = self.node.counters();
        let totals = self.node.objects.totals();
        json!({
            "tasks_finished": counters.tasks_finished,
            "method_calls_finished": counters.method_calls_finished,
            "objects_stored": counters.objects_stored,
            "bytes_stored": counters.bytes_stored,
            "spills": totals.spills,
            "restores": totals.restores,
        })
    }
}

/// Rows of the tasks that were lost and of those of all processes, and how many more there are.
fn node_json(node: &NodeEntry) -> Value {
    let mut resources = resources_json(&node.resources);
    resources["object_store_memory"] = json!(node.store_bytes as f64);
    let (host, port) = node.address.rsplit_once(':').unwrap_or(("127.0.0.1", ""));
    let labels = node.labels.iter().filter(|(name, _)| *name != python::LABEL);
    let labels: BTreeMap<_, _> = labels.collect();
    let why = match &node.state {
        NodeState::Dead { why } | NodeState::Settled { why, .. } => Some(why),
        NodeState::Alive | NodeState::Draining => None,
    };
    json!({
        "NodeID": format!("{:06x}", node.node.number()),
        "Alive": !node.state.is_dead(),
        "State": node.state.to_string(),
        "Reason": why,
        "Head": node.head,
        "NodeManagerAddress": host,
        "NodeManagerPort": port.parse::<u16>().ok(),
        "NodeManagerHostname": node.hostname,
        "Resources": resources,
        "Labels": labels,
        "session_dir": node.session_dir,
        "pid": node.pid,
    })
}

fn tasks_of_all(lost: Value, told: impl Iterator<Item = Value>) -> Value {
    let (mut rows, mut more) = (Vec::new(), 0u64);
    for mut part in std::iter::once(lost).chain(told) {
        more = more.saturating_add(part.get("more").and_then(Value::as_u64).unwrap_or_default());
        if let Some(Value::Array(tasks)) = part.get_mut("tasks").map(Value::take) {
            rows.extend(tasks);
        }
    }
    json!({ "tasks": rows, "more": more })
}

/// Unfinished tasks of all processes by stage: those that `tasks` lists.
fn task_counts(told: &[Value]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (stage, count) in told.iter().filter_map(Value::as_object).flatten() {
        *counts.entry(stage.clone()).or_default() += count.as_u64().unwrap_or_default();
    }
    counts
}

fn resources_json(resources: &ResourceSet) -> Value {
    let units = resources.iter().map(|(name, _)| (name.to_string(), resources.units(name)));
    units.map(|(name, amount)| (name, json!(amount))).collect()
}
