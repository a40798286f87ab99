//! The node's control store, and what a new daemon makes of what an earlier one left in it.
//!
//! ```text
//!   a driver's own node    tables in memory: they end with the driver
//!   a head                 session/control/: log and archive (see `hoplo_control::embedded`)
//!
//!   kill -9, reboot, SIGTERM --> hoplo start --head --> goes on with the same store
//!   hoplo stop               --> the store goes with the cluster
//! ```
//! Rows change during a turn of the loop and are in the log's file before the turn's messages are sent; a
//! thread syncs it behind. A write that the store refuses (its disk is full) is told to who asked, if
//! somebody did, and else to `daemon.log`.
//!
//! # Lineage
//! A task whose result was shared while it was pending, and still is after [`LINEAGE_DELAY`], gets a row: who
//! shares short tasks pays nothing. The row becomes history when the result is there.
//!
//! # What is lost
//! With a daemon go its workers and all objects. So a new one finds rows of what ran: actors become dead and
//! tasks lost, with the reason, and jobs ended. Kv rows stay as they are; functions stay that a
//! lost actor or task of their job might be looked at with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hoplo_base::{AnyId, Instant, JobId, ObjectId, TaskId};
use hoplo_control::embedded::{Embedded, EmbeddedOptions};
use hoplo_control::report;
use hoplo_core::actors::life::Former;
use hoplo_core::control::rows::{TaskEntry, TaskState};
use hoplo_core::control::{
    ActorEntry, CasError, ControlStore, Entry, EventEntry, FunctionEntry, JobEntry, Key,
    MemoryStore, NodeEntry, Page, Row, Table,
};
use hoplo_wire::control::Refusal;
use hoplo_wire::node::{Notice, SharedState};
use hoplo_wire::{Failure, FailureKind};
use serde_json::{Value, json};

use crate::daemon::{Daemon, StartError, Timer};
use crate::jobs::micros;
use crate::journal;
use hoplo_folders::SessionDir;

/// A task whose result is there within this time after it was shared leaves no row.
const LINEAGE_DELAY: Duration = Duration::from_secs(1);

/// Rows that are read at once.
const PAGE_ROWS: usize = 256;

/// Lost tasks that `hoplo list tasks` names.
const LOST_TASKS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) enum Control {
    Memory(MemoryStore),
    Kept(Box<Embedded>),
}

/// Pending results that were shared.
#[derive(Debug, Default)]
pub(crate) struct Escaped {
    /// Looked at when their time has come, in order.
    fresh: VecDeque<(Instant, ObjectId)>,
    /// With a row; and the results that were shared of each.
    written: BTreeMap<TaskId, BTreeSet<ObjectId>>,
    timer: bool,
}

impl Control {
    pub(crate) fn open(session: &SessionDir, kept: bool) -> Result<Self, StartError> {
        if !kept {
            return Ok(Self::Memory(MemoryStore::new()));
        }
        let folder = session.control();
        let store = Embedded::open(EmbeddedOptions::new(folder.clone())).map_err(|error| {
            let remedy = format!(
                "move {} away, or start in another folder (--session-dir)",
                folder.display()
            );
            StartError::Control(format!("{error}; {remedy}"))
        })?;
        Ok(Self::Kept(Box::new(store)))
    }

    pub(crate) fn kept(&self) -> Option<&Embedded> {
        match self {
            Self::Memory(_) => None,
            Self::Kept(store) => Some(store),
        }
    }

    /// Before anybody hears of this turn.
    pub(crate) fn flush(&mut self) -> Result<(), Refusal> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Kept(store) => store.flush(),
        }
    }

    /// Nothing is written after this.
    pub(crate) fn close(&mut self) -> Result<(), Refusal> {
        match std::mem::replace(self, Self::Memory(MemoryStore::new())) {
            Self::Memory(_) => Ok(()),
            Self::Kept(store) => store.close(),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.kept().and_then(Embedded::next_deadline)
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.next_deadline().is_some_and(|at| at <= now)
            && let Self::Kept(store) = self
        {
            store.tick();
        }
    }

    fn store(&self) -> &dyn ControlStore {
        match self {
            Self::Memory(store) => store,
            Self::Kept(store) => &**store,
        }
    }

    fn store_mut(&mut self) -> &mut dyn ControlStore {
        match self {
            Self::Memory(store) => store,
            Self::Kept(store) => &mut **store,
        }
    }

    /// All rows of a table in order.
    fn entries<E: Entry>(&self) -> Vec<E> {
        let mut entries = Vec::new();
        let mut from: Option<Vec<u8>> = None;
        loop {
            let page = self.scan(E::TABLE, b"", from.as_deref(), PAGE_ROWS);
            // What does not parse was written by another program; it stays as it is.
            entries.extend(page.rows.iter().filter_map(|(_, row)| E::from_row(row).ok()));
            from = page.next;
            if from.is_none() {
                return entries;
            }
        }
    }
}

impl ControlStore for Control {
    fn get(&self, key: &Key) -> Option<Row> {
        self.store().get(key)
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal> {
        self.store_mut().put(key, value)
    }

    fn finish(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal> {
        self.store_mut().finish(key, value)
    }

    fn cas(&mut self, key: Key, expected: u64, value: Vec<u8>) -> Result<u64, CasError> {
        self.store_mut().cas(key, expected, value)
    }

    fn delete(&mut self, key: &Key) -> Result<Option<Row>, Refusal> {
        self.store_mut().delete(key)
    }

    fn scan(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page {
        self.store().scan(table, prefix, from, limit)
    }
}

impl Daemon {
    /// Nobody waits for this row: if it cannot be written, the log says so.
    pub(crate) fn save(&mut self, entry: &impl Entry) {
        let put = self.control.put(entry.key(), entry.to_value());
        self.note_refusal(put.err());
    }

    /// The last version of something: history when memory is short.
    fn save_last(&mut self, entry: &impl Entry) {
        let put = self.control.finish(entry.key(), entry.to_value());
        self.note_refusal(put.err());
    }

    pub(crate) fn note_refusal(&mut self, refusal: Option<Refusal>) {
        let text = refusal.map(|refusal| refusal.to_string());
        if text.is_some() && text != self.refused {
            journal::log(format_args!(
                "the control store refuses: {}",
                text.as_deref().unwrap_or("")
            ));
        }
        if text.is_some() {
            self.refused = text;
        }
    }

    /// At the end of a turn.
    pub(crate) fn flush_control(&mut self) {
        let flushed = self.control.flush();
        if flushed.is_ok() && self.refused.is_some() {
            let works = self.control.kept().is_none_or(|store| store.status().disk.is_none());
            self.refused = self.refused.take().filter(|_| !works);
        }
        self.note_refusal(flushed.err());
    }

    pub(crate) fn event(&mut self, text: String) {
        self.events += 1;
        self.save_last(&EventEntry { at_us: micros(), seq: self.events, text });
    }

    // ---- lineage ----

    /// A result was shared before it was there.
    pub(crate) fn note_escape(&mut self, notice: &Notice) {
        let Notice::Shared { object, state: SharedState::Pending { lineage: Some(_) } } = notice
        else {
            return;
        };
        if self.control.kept().is_some() {
            self.escaped.fresh.push_back((self.now + LINEAGE_DELAY, *object));
            self.look_at_escaped_later();
        }
    }

    pub(crate) fn look_at_escaped(&mut self) {
        self.escaped.timer = false;
        while let Some((at, object)) = self.escaped.fresh.front().copied()
            && at <= self.now
        {
            self.escaped.fresh.pop_front();
            if let Some(entry) = self.task_entry(object) {
                let task = entry.task;
                if !self.escaped.written.contains_key(&task) {
                    self.save(&entry);
                }
                self.escaped.written.entry(task).or_default().insert(object);
            }
        }
        let mut done = Vec::new();
        for (task, objects) in &mut self.escaped.written {
            objects.retain(|object| self.objects.pending(*object).is_some());
            if objects.is_empty() {
                done.push(*task);
            }
        }
        for task in done {
            self.escaped.written.remove(&task);
            let row = self.control.get(&hoplo_core::control::rows::task_key(task));
            if let Some(Ok(mut entry)) = row.map(|row| TaskEntry::from_row(&row)) {
                entry.state = TaskState::Finished;
                entry.lineage = None;
                self.save_last(&entry);
            }
        }
        self.look_at_escaped_later();
    }

    fn look_at_escaped_later(&mut self) {
        let waits = !self.escaped.fresh.is_empty() || !self.escaped.written.is_empty();
        if waits && !std::mem::replace(&mut self.escaped.timer, true) {
            self.after(LINEAGE_DELAY, Timer::Escaped);
        }
    }

    fn task_entry(&self, object: ObjectId) -> Option<TaskEntry> {
        let (owner, lineage) = self.objects.pending(object)?;
        let owner = owner.unwrap_or(object.task.owner);
        let job = self.processes.get(&owner).map_or(JobId(0), |process| process.job);
        Some(TaskEntry {
            task: object.task,
            job,
            owner,
            attempt: 0,
            state: TaskState::Pending,
            lineage: Some(lineage.clone()),
            why: None,
        })
    }

    // ---- a new daemon ----

    /// Makes of the rows of an earlier daemon what is true now.
    pub(crate) fn recall(&mut self) {
        let Some(store) = self.control.kept() else { return };
        let start = store.start.clone();
        if let Some(cut) = &start.cut {
            journal::log(format_args!(
                "the control store's log ended within a record ({} at {}): {} bytes were cut off",
                cut.path.display(),
                cut.offset,
                cut.bytes
            ));
        }
        if let Some(path) = &start.damaged_archive {
            journal::log(format_args!("the archive was damaged; it lies in {}", path.display()));
        }
        for mut node in self.control.entries::<NodeEntry>() {
            if std::mem::replace(&mut node.alive, false) {
                self.save(&node);
            }
        }
        for mut job in self.control.entries::<JobEntry>() {
            self.jobs_before = self.jobs_before.max(job.job.0);
            if job.ended_us.is_none() {
                job.ended_us = Some(micros());
                self.save(&job);
            }
        }
        if self.jobs_before == 0 && start.rows == 0 {
            return;
        }
        let mut kept = BTreeSet::new();
        let actors = self.recall_actors(&mut kept);
        let tasks = self.recall_tasks(&mut kept);
        self.drop_old_functions(&kept);
        self.event(format!("the node was started again; lost: {actors} actors, {tasks} tasks"));
        journal::log(format_args!(
            "goes on with the store of an earlier daemon: {} rows, {actors} actors and {tasks} tasks were lost",
            start.rows
        ));
    }

    fn recall_actors(&mut self, kept: &mut BTreeSet<JobId>) -> u64 {
        let mut lost = 0;
        let mut effects = Vec::new();
        for mut entry in self.control.entries::<ActorEntry>() {
            if entry.state != "DEAD" {
                lost += 1;
                let text = format!(
                    "{} {:?} ({}) was {} when its node's daemon ended without stopping it; \
                     actors do not survive that",
                    entry.class_name, entry.name, entry.actor, entry.state
                );
                entry.failure = Some(Failure::new(FailureKind::ActorDied, text));
                entry.lost = true;
                entry.state = "DEAD".to_string();
                self.save(&entry);
            }
            if entry.lost && entry.detached {
                kept.insert(entry.job);
            }
            let unknown = || Failure::new(FailureKind::ActorDied, "it is dead".to_string());
            let former = Former {
                actor: entry.actor,
                class_name: entry.class_name,
                name: entry.name,
                namespace: entry.namespace,
                job: entry.job,
                detached: entry.detached,
                incarnation: entry.incarnation,
                handle: entry.handle,
                failure: entry.failure.unwrap_or_else(unknown),
                lost: entry.lost,
            };
            self.actors.recall(former, &mut effects);
        }
        effects.into_iter().for_each(|effect| self.on_actors(effect));
        lost
    }

    fn recall_tasks(&mut self, kept: &mut BTreeSet<JobId>) -> u64 {
        let mut lost = 0;
        for mut entry in self.control.entries::<TaskEntry>() {
            match entry.state {
                TaskState::Pending => {
                    lost += 1;
                    let why = format!(
                        "{} owned it when the node's daemon ended without stopping it",
                        entry.owner
                    );
                    entry.state = TaskState::Lost;
                    entry.why = Some(why);
                    self.save_last(&entry);
                    kept.insert(entry.job);
                }
                TaskState::Lost => {
                    kept.insert(entry.job);
                }
                TaskState::Finished | TaskState::Failed => {}
            }
        }
        lost
    }

    fn drop_old_functions(&mut self, kept: &BTreeSet<JobId>) {
        for entry in self.control.entries::<FunctionEntry>() {
            if !kept.contains(&entry.job) {
                let gone = self.control.delete(&entry.key());
                self.note_refusal(gone.err());
            }
        }
    }

    // ---- questions ----

    /// For `hoplo control`: as a control node of a cluster answers, with one shard that nobody else holds.
    pub(crate) fn ask_control(&mut self, question: &str) -> Result<Value, String> {
        match (question, &mut self.control) {
            ("status", _) => Ok(self.control_status()),
            ("metrics", Control::Kept(store)) => {
                let mut out = report::metrics(&[store.report()]);
                resident_metric(&mut out);
                Ok(Value::String(out))
            }
            ("metrics", Control::Memory(store)) => {
                let (mut out, tables) = (String::new(), store.tables());
                let (rows, bytes) = (tables.len() as u64, tables.bytes());
                report::metric(&mut out, "rows", "gauge", "Rows in memory", rows);
                report::metric(&mut out, "memory_bytes", "gauge", "What they count for", bytes);
                resident_metric(&mut out);
                Ok(Value::String(out))
            }
            ("compact", Control::Kept(store)) => {
                store.compact();
                Ok(json!(1))
            }
            ("compact", Control::Memory(_)) => {
                Err("this node keeps its tables in memory: there is no log".to_string())
            }
            _ => Err(format!("the control store knows no question {question:?}")),
        }
    }

    fn control_status(&self) -> Value {
        let shard = match &self.control {
            Control::Kept(store) => store.report().json(),
            Control::Memory(store) => json!({
                "shard": 0, "epoch": 1, "role": "in memory", "acts": true,
                "rows": store.tables().len(), "memory_bytes": store.tables().bytes(),
            }),
        };
        let node = self.node.0;
        let member = json!({ "address": self.session.path(),
                             "replica": { "node": node, "incarnation": self.incarnation() } });
        json!({
            "program": concat!("hoplo ", env!("CARGO_PKG_VERSION")),
            "replica": { "node": format!("{node:016x}"), "incarnation": self.incarnation() },
            "address": self.session.path(),
            "resident_bytes": report::resident_bytes(),
            "config": { "replication": 1, "shards": [
                { "shard": 0, "epoch": shard["epoch"], "members": [member], "joining": null }
            ] },
            "shards": [shard],
        })
    }

    /// Each life of a head's daemon is an epoch.
    fn incarnation(&self) -> u64 {
        self.control.kept().map_or(1, |store| store.status().epoch.0)
    }

    fn lost_tasks(&self) -> impl Iterator<Item = TaskEntry> {
        let entries = if self.control.kept().is_some() { self.control.entries() } else { vec![] };
        entries.into_iter().filter(|entry: &TaskEntry| entry.state == TaskState::Lost)
    }

    pub(crate) fn lost_tasks_json(&self) -> Value {
        let rows = self.lost_tasks().take(LOST_TASKS_MAX).map(|entry| {
            json!({
                "task": entry.task.to_string(),
                "state": "lost",
                "attempt": entry.attempt,
                "reason": entry.why,
            })
        });
        rows.collect()
    }

    pub(crate) fn why_lost(&self, id: AnyId) -> Vec<String> {
        let named = self.lost_tasks().filter(|entry| id.names_task(entry.task));
        named
            .map(|entry| format!("{} was lost: {}", entry.task, entry.why.unwrap_or_default()))
            .collect()
    }
}

fn resident_metric(out: &mut String) {
    let bytes = report::resident_bytes();
    report::metric(out, "resident_bytes", "gauge", "Memory of the process", bytes);
}
