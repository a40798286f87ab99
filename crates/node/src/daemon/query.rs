//! Questions from people and programs, answered in JSON; kinds are listed in ARCHITECTURE.md.
//!
//! What only processes know is gathered with `Inspect`, and answered with what came within
//! `INSPECT_PATIENCE`: a stuck process cannot hang the answer.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{INSPECT_PATIENCE, QUERIES_OPEN_MAX};
use hoplo_base::{AnyId, ProcessId, ResourceSet};
use hoplo_core::actors::life::ActorRow;
use hoplo_core::control::ActorPhase;
use hoplo_core::node::{Kind, Process};
use hoplo_core::sched::local::Claimant;
use hoplo_wire::node::{ActorState, ToClient};
use serde_json::{Value, json};

use crate::daemon::why::Inquiry;
use crate::daemon::{Daemon, Timer};
use crate::machine;

#[derive(Debug, Default)]
pub(crate) struct Queries {
    last: u64,
    open: BTreeMap<u64, Gathering>,
}

#[derive(Debug)]
struct Gathering {
    asker: ProcessId,
    request: u64,
    kind: String,
    /// What the daemon itself knows.
    own: Value,
    waiting: BTreeSet<ProcessId>,
    came: Vec<(ProcessId, Value)>,
    /// Of a question that has several rounds.
    inquiry: Option<Inquiry>,
}

impl Daemon {
    pub(crate) fn on_query(
        &mut self,
        asker: ProcessId,
        request: u64,
        kind: String,
        argument: String,
    ) {
        let result = match kind.as_str() {
            "nodes" => Ok(self.nodes()),
            "cluster_resources" => {
                Ok(self.with_store(self.node.scheduler.total(), |totals| totals.capacity_bytes))
            }
            "available_resources" => Ok(self
                .with_store(&self.node.scheduler.available(), |totals| {
                    totals.capacity_bytes.saturating_sub(totals.stored_bytes)
                })),
            "actors" => Ok(self.node.actors.rows().map(|row| self.actor_json(&row)).collect()),
            "objects" => Ok(self.objects_json()),
            "control" => self.ask_control(&argument),
            "workers" => Ok(self
                .node
                .processes()
                .filter(|p| p.kind != Kind::Tool)
                .map(|p| self.process_json(p))
                .collect()),
            // Every process first says what it counted, so that the sums are of this moment.
            "status" | "summary" => {
                return self.gather(Gathering::new(asker, request, kind, Value::Null), &argument);
            }
            "tasks" => {
                let lost = self.lost_tasks_json();
                return self.gather(Gathering::new(asker, request, kind, lost), &argument);
            }
            "timeline" => {
                return self.gather(Gathering::new(asker, request, kind, json!([])), &argument);
            }
            // `chain`: what it waits for; `why`: and what the daemon remembers of it.
            "why" | "chain" => match argument.parse::<AnyId>() {
                Ok(id) => {
                    let inquiry = Inquiry::new(id, argument, kind == "why");
                    let argument = inquiry.argument();
                    let kind = "why".to_string();
                    let mut gathering = Gathering::new(asker, request, kind, json!([]));
                    gathering.inquiry = Some(inquiry);
                    return self.gather(gathering, &argument);
                }
                Err(error) => Err(error.to_string()),
            },
            _ => Err(format!("there is no query {kind:?}")),
        };
        let result = result.map(|value| value.to_string());
        self.send_with(asker, &ToClient::Answer { request, result }, None);
    }

    pub(crate) fn on_inspected(&mut self, from: ProcessId, request: u64, json: &str) {
        let Some(gathering) = self.queries.open.get_mut(&request) else { return };
        if gathering.waiting.remove(&from) {
            // What does not parse is as good as no answer.
            gathering.came.push((from, serde_json::from_str(json).unwrap_or(Value::Null)));
        }
        if gathering.waiting.is_empty() {
            self.finish_query(request);
        }
    }

    /// A process is gone: nobody waits for its answers, and its questions need none.
    pub(crate) fn forget_asker(&mut self, gone: ProcessId) {
        self.queries.open.retain(|_, gathering| gathering.asker != gone);
        let mut complete = Vec::new();
        for (number, gathering) in &mut self.queries.open {
            if gathering.waiting.remove(&gone) && gathering.waiting.is_empty() {
                complete.push(*number);
            }
        }
        for number in complete {
            self.finish_query(number);
        }
    }

    /// With what has come.
    pub(crate) fn finish_query(&mut self, number: u64) {
        let Some(mut gathering) = self.queries.open.remove(&number) else { return };
        if let Some(mut inquiry) = gathering.inquiry.take() {
            let came = std::mem::take(&mut gathering.came);
            let late = std::mem::take(&mut gathering.waiting);
            if self.inquire(&mut inquiry, came, late) {
                let argument = inquiry.argument();
                gathering.inquiry = Some(inquiry);
                return self.gather(gathering, &argument);
            }
            gathering.own = self.told(&inquiry);
        }
        let Gathering { asker, request, kind, own, came, .. } = gathering;
        let result = match own {
            Value::Null if kind == "status" => self.status(&came),
            Value::Null => self.summary(),
            lost if kind == "tasks" => tasks_of_all(lost, came),
            Value::Array(mut rows) => {
                for (_, value) in came {
                    match value {
                        Value::Array(more) => rows.extend(more),
                        Value::Null => {}
                        one => rows.push(one),
                    }
                }
                Value::Array(rows)
            }
            other => other,
        };
        self.send_with(asker, &ToClient::Answer { request, result: Ok(result.to_string()) }, None);
    }

    /// Asks every process that is not known to be late.
    fn gather(&mut self, mut gathering: Gathering, argument: &str) {
        let inquiry = gathering.inquiry.as_ref();
        let known = |p: &&Process| {
            p.kind != Kind::Tool
                && p.is_greeted()
                && !inquiry.is_some_and(|inquiry| inquiry.is_late(p.id))
        };
        let waiting: BTreeSet<_> = self.node.processes().filter(known).map(|p| p.id).collect();
        let full = self.queries.open.len() >= QUERIES_OPEN_MAX;
        self.queries.last += 1;
        let number = self.queries.last;
        gathering.waiting = if full { BTreeSet::new() } else { waiting };
        for process in &gathering.waiting {
            let (kind, argument) = (gathering.kind.clone(), argument.to_string());
            self.send_with(*process, &ToClient::Inspect { request: number, kind, argument }, None);
        }
        let nobody = gathering.waiting.is_empty();
        self.queries.open.insert(number, gathering);
        if nobody {
            self.finish_query(number);
        } else {
            self.after(INSPECT_PATIENCE, Timer::Query(number));
        }
    }

    fn nodes(&self) -> Value {
        json!([{
            "NodeID": format!("{:06x}", self.node.config().node.number()),
            "Alive": true,
            "NodeManagerAddress": "127.0.0.1",
            "NodeManagerHostname": machine::hostname(),
            "Resources": self.with_store(self.node.scheduler.total(), |totals| totals.capacity_bytes),
            "Labels": self.labels,
            "session_dir": self.session.path(),
            "pid": std::process::id(),
        }])
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
        let pid = row.worker.and_then(|worker| self.node.process(worker)).map(|p| p.pid());
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
            "pid": pid,
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
            "pid": process.pid(),
            "kind": if process.kind == Kind::Driver { "driver" } else { "worker" },
            "state": state,
            "job": process.job.to_string(),
            "title": process.title,
            "works_for": works_for,
            "resources": lease.map(|lease| resources_json(&lease.resources)),
            "memory": machine::own_bytes(process.pid()),
            "age_s": self.now.since(process.since).as_secs_f64(),
        })
    }

    fn status(&self, came: &[(ProcessId, Value)]) -> Value {
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
                "reason": stuck.as_ref().map(|stuck| stuck.reason.clone()),
                "infeasible": stuck.is_some_and(|stuck| stuck.infeasible),
            })
        });
        let jobs = self.node.jobs().filter(|job| job.ended_us.is_none()).map(|job| {
            json!({
                "job": job.id.to_string(),
                "pid": job.driver_pid,
                "entrypoint": job.config.entrypoint,
                "namespace": job.config.namespace,
                "started_us": job.started_us,
            })
        });
        let workers = self.node.processes().filter(|process| process.is_worker());
        let measured = self.node.processes().filter(|process| process.kind != Kind::Tool);
        let in_use = measured.filter_map(|process| machine::own_bytes(process.pid()));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "session_dir": self.session.path(),
            "node": format!("{:06x}", self.node.config().node.number()),
            "resources": resources_json(self.node.scheduler.total()),
            "available": resources_json(&self.node.scheduler.available()),
            "workers": workers.count(),
            "zygote_pid": self.zygote.pid(),
            "actors": self.node.actors.rows().filter(|row| !matches!(row.state, ActorState::Dead { .. })).count(),
            "jobs": jobs.collect::<Vec<_>>(),
            "memory_in_use": in_use.sum::<u64>(),
            "tasks": task_counts(came),
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

impl Gathering {
    fn new(asker: ProcessId, request: u64, kind: String, own: Value) -> Self {
        let (waiting, came) = (BTreeSet::new(), Vec::new());
        Self { asker, request, kind, own, waiting, came, inquiry: None }
    }
}

/// Rows of the tasks that were lost and of those of all processes, and how many more there are.
fn tasks_of_all(lost: Value, came: Vec<(ProcessId, Value)>) -> Value {
    let (mut rows, mut more) = (Vec::new(), 0u64);
    for mut told in std::iter::once(lost).chain(came.into_iter().map(|(_, told)| told)) {
        more = more.saturating_add(told.get("more").and_then(Value::as_u64).unwrap_or_default());
        if let Some(Value::Array(tasks)) = told.get_mut("tasks").map(Value::take) {
            rows.extend(tasks);
        }
    }
    json!({ "tasks": rows, "more": more })
}

/// Unfinished tasks of all processes by stage: those that `tasks` lists.
fn task_counts(came: &[(ProcessId, Value)]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (stage, count) in came.iter().filter_map(|(_, counted)| counted.as_object()).flatten() {
        *counts.entry(stage.clone()).or_default() += count.as_u64().unwrap_or_default();
    }
    counts
}

fn resources_json(resources: &ResourceSet) -> Value {
    let units = resources.iter().map(|(name, _)| (name.to_string(), resources.units(name)));
    units.map(|(name, amount)| (name, json!(amount))).collect()
}
