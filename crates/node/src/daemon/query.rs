//! Answers to people and programs, as JSON; kinds are listed in ARCHITECTURE.md. Who is asked for them, and when they
//! go, is decided in `hoplo_core::node`.

use std::collections::BTreeMap;

use hoplo_base::bundles::{Asked, InGroup, MARK};
use hoplo_base::limits::NODES_DEAD_SHOWN;
use hoplo_base::{NodeNumber, ObjectId, ProcessId, ResourceSet};
use hoplo_core::actors::life::ActorRow;
use hoplo_core::control::{ActorPhase, NodeEntry, NodeState};
use hoplo_core::node::{Event, Everywhere, Here, Kind, Others, Process, Report};
use hoplo_core::sched::claim::Claimant;
use hoplo_core::sched::groups::{GroupRow, Phase};
use hoplo_wire::node::{ActorState, ToClient};
use serde_json::{Map, Value, json};

use crate::daemon::Daemon;
use crate::daemon::ids::{job_id, node_id, process_id};
use crate::daemon::parts::{self, Whole};
use crate::daemon::past::part_of_dead;
use crate::logs::Logs;
use crate::{machine, python};

impl Daemon {
    pub(crate) fn answer_query(
        &mut self,
        to: ProcessId,
        request: u64,
        report: Report,
        others: Others,
    ) {
        let whole = Whole::of(&report);
        let Others { told, mut missing, past } = others;
        let mut parts = Vec::new();
        let of_dead = part_of_dead(&report, past);
        for (node, json) in told {
            match serde_json::from_str(&json) {
                Ok(part) => parts.push((self.node.node_name(node), part)),
                Err(error) => missing.push(format!("{node} answered what is no JSON: {error}")),
            }
        }
        // Last: whoever lives knows better.
        parts.extend(of_dead.map(|part| (String::new(), part)));
        let result = self.part(report).map(|own| whole.made(own, parts).to_string());
        self.send_with(to, &ToClient::Answer { request, result, missing }, None);
    }

    /// For another node, which puts the parts together.
    pub(crate) fn write_part(&mut self, node: NodeNumber, request: u64, report: Report) {
        let result = self.part(report).map(|mut part| {
            // Everybody has the node table.
            if let Some(status) = part.as_object_mut() {
                status.remove("nodes");
            }
            part.to_string()
        });
        self.answer(Event::Written { node, request, result });
    }

    /// What this node has.
    fn part(&mut self, report: Report) -> Result<Value, String> {
        match report {
            Report::Here(here) => self.here(here),
            Report::Everywhere { subject, told } => Ok(self.everywhere(subject, told)),
            Report::Drain { node } => self.control.drain(node).map(|()| Value::Null),
            Report::Why { lines, remembered } => Ok(json!(self.remembered(lines, remembered))),
        }
    }

    fn here(&mut self, here: Here) -> Result<Value, String> {
        Ok(match here {
            Here::Nodes => self.nodes(),
            Here::ClusterResources => self.cluster_resources(),
            Here::AvailableResources => self
                .with_store(&self.node.scheduler.available_of_node(), |totals| {
                    totals.capacity_bytes.saturating_sub(totals.stored_bytes)
                }),
            Here::Actors(_) => {
                let rows: Vec<Value> =
                    self.node.actors.rows().map(|row| self.actor_json(&row)).collect();
                let hosted = self.node.hosted().filter_map(|(worker, actor)| {
                    let pid = self.node.process(worker)?.known_pid()?;
                    Some((actor.hex(), json!(pid)))
                });
                json!({ "rows": rows, "hosted": hosted.collect::<Map<_, _>>() })
            }
            Here::Jobs => self.jobs_json(),
            Here::PastProcesses => self.past_processes_json(),
            Here::Objects => self.objects_json(),
            Here::Locations(objects) => self.locations_json(&objects),
            Here::Logs(logs) => {
                let told = Logs::of(self.session.folder()).map_err(|error| error.to_string())?;
                json!(told.told(&self.node_id(), &logs.wanted)?)
            }
            Here::Control(question) => self.ask_control(&question)?,
            Here::PlacementGroups => {
                self.node.groups().rows().map(|row| group_json(&row)).collect()
            }
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
            Everywhere::Tasks => {
                let mut tasks = parts::tasks(std::iter::once(self.lost_tasks_json()).chain(told));
                self.name_node(&mut tasks["tasks"]);
                tasks
            }
            Everywhere::Timeline => self.timeline(),
            Everywhere::History { of_job_max } => self.history_json(of_job_max),
        }
    }

    /// Rows of processes say nothing of their node.
    fn name_node(&self, rows: &mut Value) {
        let node = Value::String(self.node_id());
        for row in rows.as_array_mut().into_iter().flatten() {
            if let Some(row) = row.as_object_mut() {
                row.insert("node".to_string(), node.clone());
            }
        }
    }

    pub(super) fn node_id(&self) -> String {
        node_id(self.node.config().node)
    }

    /// What the nodes that live have: their rows say it, so that nobody has to be asked.
    fn cluster_resources(&self) -> Value {
        let total = self.node.scheduler.total_of_node();
        let own = self.with_store(&total, |totals| totals.capacity_bytes);
        let others = self.node.other_nodes().map(node_resources);
        parts::sum(std::iter::once(own).chain(others))
    }

    /// Those that are there, then those that died last, the last one first; of this head only its present life.
    fn nodes(&self) -> Value {
        let nodes = self.control.nodes().into_iter();
        let nodes = nodes.filter(|node| !node.head || !node.state.is_dead());
        let (dead, living): (Vec<_>, Vec<_>) = nodes.partition(|node| node.state.is_dead());
        living
            .into_iter()
            .chain(last_to_die(dead))
            .map(|node| {
                let mut row = node_json(&node);
                if let Some((head, since)) = self.node.silent_head()
                    && head.node == node.node
                {
                    let seconds = self.now.since(since).as_secs();
                    row["Reason"] = json!(format!("it has not answered for {seconds} s"));
                }
                row
            })
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
        let node = row.worker.map_or(self.node.config().node, |worker| worker.node());
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
            "job_id": job_id(row.job),
            "detached": row.detached,
            "restarts": row.incarnation,
            "state": ActorPhase::of(&row.state).to_string(),
            "pid": process.and_then(Process::known_pid),
            "node": node_id(node),
            "worker_id": row.worker.map(process_id),
            "reason": reason,
        })
    }

    fn objects_json(&self) -> Value {
        let node = self.node_id();
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
                "copies_wanted": row.several.map(|it| it.wanted),
                "copies_had": row.several.map(|it| it.had),
                "kept": row.kept,
                "node": node,
            })
        });
        rows.collect()
    }

    /// A row for each that is known here.
    fn locations_json(&self, objects: &[ObjectId]) -> Value {
        let node = self.node_id();
        let places = objects.iter().filter_map(|object| {
            let place = self.node.objects.place_of(*object)?;
            Some(json!({
                "object_id": object.hex(),
                "size": place.bytes,
                "is_here": place.is_here,
                "is_spilled": place.is_spilled,
                "copies_wanted": place.several.map(|it| it.wanted),
                "copies_had": place.several.map(|it| it.had),
                "node": node,
            }))
        });
        places.collect()
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
            "worker_id": process_id(process.id),
            "pid": process.known_pid(),
            "node": self.node_id(),
            "kind": if process.kind == Kind::Driver { "driver" } else { "worker" },
            "state": state,
            "job": process.job.to_string(),
            "job_id": job_id(process.job),
            "title": process.title,
            "started_us": self.wall_us_of(process.since),
            "works_for": works_for,
            "resources": lease.map(|lease| resources_json(&own_names(&lease.resources))),
            "bundle": lease.and_then(|lease| lease.bundle).map(|(group, index)| format!("{index} of {group}")),
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
                "needs": needs(&shape.resources),
                "reason": stuck.as_ref().map(|stuck| stuck.reason.to_string()),
                "infeasible": stuck.is_some_and(|stuck| stuck.infeasible),
            })
        });
        // Each counts where it runs; one that waits for a place, at its home.
        let me = self.node.config().node;
        let living =
            self.node.actors.rows().filter(|row| !matches!(row.state, ActorState::Dead { .. }));
        let at: Vec<_> = living.map(|row| row.worker.map(|worker| worker.node())).collect();
        let at_home = at.iter().filter(|node| **node == Some(me)).count();
        let actors_waiting = at.iter().filter(|node| node.is_none()).count();
        let actors_here = at_home + self.node.hosted().count();
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
            "node": self.node_id(),
            "nodes": self.nodes(),
            "resources": resources_json(&self.node.scheduler.total_of_node()),
            "available": resources_json(&self.node.scheduler.available_of_node()),
            "placement_groups": self.groups_in_short(),
            "workers": workers.count(),
            "zygote_pid": self.zygote.pid(),
            "actors": actors_here,
            "actors_waiting": actors_waiting,
            "jobs": jobs.collect::<Vec<_>>(),
            "memory_in_use": in_use.sum::<u64>(),
            "tasks": task_counts(told),
            "waiting": waiting.collect::<Vec<_>>(),
            "history_written": self.node.past_is_written(),
            "control_trouble": self.control.trouble(),
            "members_trouble": self.members_trouble(),
            "store": {
                "capacity": totals.capacity_bytes,
                "stored": totals.stored_bytes,
                "objects": totals.stored_objects,
                "spilled": totals.spilled_bytes,
                "spilled_objects": totals.spilled_objects,
                "evictions": totals.evictions,
                "read_on_disk": totals.mapped_bytes,
                "disk": totals.disk_bytes,
                "full": self.node.objects.is_full(),
                "in_memory": self.store.touched_bytes(),
            },
            "counters": self.summary(),
            "violations": self.violations + self.node.violations(),
        })
    }

    /// How many there are that are not removed, and what those that are created have reserved.
    fn groups_in_short(&self) -> Value {
        let (mut created, mut waiting) = (0, 0);
        let mut reserved = ResourceSet::new();
        for row in self.node.groups().rows() {
            match row.phase {
                Phase::Created => {
                    created += 1;
                    row.spec.bundles.iter().for_each(|bundle| reserved.add(&bundle.resources));
                }
                Phase::Pending | Phase::Rescheduling => waiting += 1,
                Phase::Removed { .. } => {}
            }
        }
        json!({ "created": created, "waiting": waiting, "reserved": reserved.to_string() })
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

/// Those of which not all nodes have heard yet died last.
fn last_to_die(mut dead: Vec<NodeEntry>) -> Vec<NodeEntry> {
    let died = |node: &NodeEntry| match node.state {
        NodeState::Settled { died, .. } => died,
        NodeState::Dead { .. } | NodeState::Alive | NodeState::Draining => u64::MAX,
    };
    dead.sort_by_key(|node| std::cmp::Reverse((died(node), node.node)));
    dead.truncate(NODES_DEAD_SHOWN);
    dead
}

fn node_resources(node: &NodeEntry) -> Value {
    let mut resources = resources_json(&node.resources);
    resources["object_store_memory"] = json!(node.store_bytes as f64);
    resources
}

fn node_json(node: &NodeEntry) -> Value {
    let resources = node_resources(node);
    let (host, port) = node.address.rsplit_once(':').unwrap_or(("127.0.0.1", ""));
    let labels = node.labels.iter().filter(|(name, _)| *name != python::LABEL);
    let labels: BTreeMap<_, _> = labels.collect();
    let why = match &node.state {
        NodeState::Dead { why, .. } | NodeState::Settled { why, .. } => Some(why),
        NodeState::Alive | NodeState::Draining => None,
    };
    json!({
        "NodeID": node_id(node.node),
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

fn group_json(row: &GroupRow<'_>) -> Value {
    let bundles = row.spec.bundles.iter();
    let nodes: Vec<_> = (0..row.spec.bundles.len() as u32)
        .map(|index| row.placed.get(&index).map(|node| format!("{:06x}", node.number())))
        .collect();
    let why = match row.phase {
        Phase::Removed { why } => Some(why.as_str()),
        Phase::Pending | Phase::Created | Phase::Rescheduling => row.waits,
    };
    json!({
        "placement_group_id": row.group.hex(),
        "id": row.group.to_string(),
        "name": row.spec.name,
        "namespace": row.spec.namespace,
        "job": row.job.to_string(),
        "job_id": job_id(row.job),
        "detached": row.spec.detached,
        "strategy": row.spec.strategy.name(),
        "state": row.phase.name(),
        "bundles": bundles.clone().map(|bundle| resources_json(&bundle.resources)).collect::<Vec<_>>(),
        "labels": bundles.map(|bundle| json!(bundle.labels)).collect::<Vec<_>>(),
        "nodes": nodes,
        "needs": row.spec.bundles.iter().map(|bundle| format!("({})", bundle.resources)).collect::<Vec<_>>().join(", "),
        "reason": why,
        "infeasible": row.infeasible,
    })
}

/// What is asked for, by the names that people gave it.
fn needs(wanted: &ResourceSet) -> String {
    match Asked::of(wanted) {
        Asked::Plain | Asked::Mixed => wanted.to_string(),
        Asked::InGroup(InGroup { group, index, .. }) => {
            let which =
                index.map_or_else(|| "any bundle".to_string(), |index| format!("bundle {index}"));
            format!("{} in {which} of {group}", own_names(wanted))
        }
    }
}

/// Without the names and the mark of placement groups.
fn own_names(resources: &ResourceSet) -> ResourceSet {
    match Asked::of(resources) {
        Asked::Plain | Asked::Mixed => resources.clone(),
        Asked::InGroup(InGroup { mut resources, .. }) => {
            resources.set_parts(MARK, 0);
            resources
        }
    }
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
