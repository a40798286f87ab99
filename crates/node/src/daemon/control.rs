//! The node's control store: asked by the node (`Question`), and by people.
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
//! somebody did, and else to `daemon.log`. What a new daemon makes of an old one's rows: `hoplo_core::node`.

use hoplo_base::limits::LOST_TASKS_MAX;
use hoplo_base::{AnyId, Instant, NodeNumber, Size};
use hoplo_control::embedded::{Embedded, EmbeddedOptions};
use hoplo_control::report;
use hoplo_core::control::{
    CasError, ControlStore, Entry, Key, MemoryStore, NodeEntry, Row, TaskEntry, TaskState, store,
};
use hoplo_core::node::{Answer, KEYS_MAX, Question, Rows};
use hoplo_wire::control::Refusal;
use serde_json::{Value, json};
use std::path::Path;

use crate::daemon::{Daemon, StartError};
use crate::journal;
use crate::machine::{self, FullDisk};
use hoplo_folders::OwnSessionFolder;

#[derive(Debug)]
pub(crate) struct Control {
    store: Store,
    /// What it refused last, which is in the log.
    refused: Option<String>,
}

#[derive(Debug)]
enum Store {
    Memory(MemoryStore),
    Kept(Box<Embedded>),
}

impl Control {
    pub(crate) fn open(
        session: &OwnSessionFolder,
        kept: bool,
        accept_loss: bool,
    ) -> Result<Self, StartError> {
        if !kept {
            return Ok(Self { store: Store::Memory(MemoryStore::new()), refused: None });
        }
        let folder = session.control();
        let options = EmbeddedOptions { accept_loss, ..EmbeddedOptions::new(folder.clone()) };
        let store = Embedded::open(options).map_err(|error| {
            let begin = format!("start in another folder (--session-dir) or move {} away", folder.display());
            let remedy = match (error.is_damage(), machine::full_disk(&folder)) {
                (true, _) => format!(
                    "`hoplo start --head --accept-loss` goes on with what is left and keeps the rest beside \
                     it; to begin with nothing, {begin}"
                ),
                (false, Some(full)) => {
                    format!("{} cannot be written: {}", folder.display(), free_disk(&full))
                }
                (false, None) => begin,
            };
            StartError::Control(format!("{error}; {remedy}"))
        })?;
        Ok(Self { store: Store::Kept(Box::new(store)), refused: None })
    }

    /// What an earlier daemon left, and the number that this life of the node has from here on: its row is the
    /// proof, which only one daemon can make.
    pub(crate) fn begin(
        &mut self,
        folder: &Path,
        random: u32,
        row: impl Fn(NodeNumber) -> NodeEntry,
    ) -> Result<(Rows, NodeNumber), StartError> {
        let remedy = || match machine::full_disk(folder) {
            Some(full) => format!("; {}", free_disk(&full)),
            None => String::new(),
        };
        let rows = Rows::read(self.store());
        let kept = matches!(self.store, Store::Kept(_));
        let mut node = if kept { rows.next_number(random) } else { NodeNumber::alone(random) };
        loop {
            let entry = row(node);
            match self.store_mut().cas(entry.key(), 0, entry.to_value()) {
                Ok(_) => break,
                Err(CasError::Conflict { .. }) => node = node.next_given(),
                Err(CasError::Refused(refusal)) => {
                    return Err(StartError::Control(format!(
                        "the control store does not take the node's row: {refusal}{}",
                        remedy()
                    )));
                }
            }
        }
        let written = self.try_flush();
        let refused = |refusal| {
            let (path, remedy) = (folder.display(), remedy());
            StartError::Control(format!(
                "the node's row was not written into {path}: {refusal}{remedy}"
            ))
        };
        written.map_err(refused)?;
        Ok((rows, node))
    }

    pub(crate) fn kept(&self) -> Option<&Embedded> {
        match &self.store {
            Store::Memory(_) => None,
            Store::Kept(store) => Some(store),
        }
    }

    /// At the end of a turn: before anybody hears of it.
    pub(crate) fn flush(&mut self) {
        let flushed = self.try_flush();
        if flushed.is_ok() && self.refused.is_some() {
            let works = self.kept().is_none_or(|store| store.status().disk.is_none());
            self.refused = self.refused.take().filter(|_| !works);
        }
        self.note_refusal(flushed.err());
    }

    fn try_flush(&mut self) -> Result<(), Refusal> {
        match &mut self.store {
            Store::Memory(_) => Ok(()),
            Store::Kept(store) => store.flush(),
        }
    }

    /// Nobody waits for this row: if it cannot be written, the log says so.
    pub(crate) fn save(&mut self, key: Key, value: Vec<u8>, last: bool) {
        let store = self.store_mut();
        let put = if last { store.finish(key, value) } else { store.put(key, value) };
        self.note_refusal(put.err());
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        let gone = self.store_mut().delete(key);
        self.note_refusal(gone.err());
    }

    fn note_refusal(&mut self, refusal: Option<Refusal>) {
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

    /// What it says to have written is in the log's file.
    pub(crate) fn answer(&mut self, question: Question) -> Answer {
        let value = |row: Option<Row>| row.map(|row| row.value);
        match question {
            Question::Get { keys } => {
                Answer::Rows(keys.iter().map(|key| value(self.store().get(key))).collect())
            }
            Question::Put { key, value } => {
                let put = self.store_mut().put(key, value);
                Answer::Written(put.and_then(|_| self.try_flush()))
            }
            Question::Create { key, value: new } => {
                Answer::Found(match self.store_mut().cas(key.clone(), 0, new) {
                    Ok(_) => self.try_flush().map(|()| None),
                    Err(CasError::Conflict { .. }) => Ok(value(self.store().get(&key))),
                    Err(CasError::Refused(refusal)) => Err(refusal),
                })
            }
            Question::Delete { key } => {
                let gone = self.store_mut().delete(&key);
                Answer::Found(gone.and_then(|row| self.try_flush().map(|()| value(row))))
            }
            Question::List { table, prefix } => {
                let page = self.store().scan(table, &prefix, None, KEYS_MAX);
                Answer::Keys(page.rows.into_iter().map(|(key, _)| key).collect())
            }
        }
    }

    /// Nothing is written after this.
    pub(crate) fn close(&mut self) -> Result<(), Refusal> {
        match std::mem::replace(&mut self.store, Store::Memory(MemoryStore::new())) {
            Store::Memory(_) => Ok(()),
            Store::Kept(store) => store.close(),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.kept().and_then(Embedded::next_deadline)
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.next_deadline().is_some_and(|at| at <= now)
            && let Store::Kept(store) = &mut self.store
        {
            store.tick();
        }
    }

    fn store(&self) -> &dyn ControlStore {
        match &self.store {
            Store::Memory(store) => store,
            Store::Kept(store) => &**store,
        }
    }

    fn store_mut(&mut self) -> &mut dyn ControlStore {
        match &mut self.store {
            Store::Memory(store) => store,
            Store::Kept(store) => &mut **store,
        }
    }
}

impl Daemon {
    /// Makes of the rows of an earlier daemon what is true now.
    pub(crate) fn recall(&mut self, rows: Rows) {
        let Some(store) = self.control.kept() else { return };
        let start = store.start.clone();
        if let Some(cut) = &start.cut {
            journal::log(format_args!(
                "the control store goes on without the end of its log ({} at {}: {}); {}; it lies in {}",
                cut.path.display(),
                cut.offset,
                cut.why,
                cut.lost,
                cut.aside.display()
            ));
        }
        if let Some((aside, why)) = &start.unreadable {
            journal::log(format_args!(
                "the control store begins with nothing: {why}; what was there lies in {}",
                aside.display()
            ));
        }
        if let Some((why, aside)) = &start.lost_archive {
            let lies = aside.as_ref().map(|path| format!("; it lies in {}", path.display()));
            journal::log(format_args!(
                "the control store goes on without its archive of finished rows: {why}{}",
                lies.unwrap_or_default()
            ));
        }
        let mut effects = Vec::new();
        self.node.recall(rows, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    // ---- questions ----

    /// For `hoplo control`: as a control node of a cluster answers, with one shard that nobody else holds.
    pub(crate) fn ask_control(&mut self, question: &str) -> Result<Value, String> {
        match (question, &mut self.control.store) {
            ("status", _) => Ok(self.control_status()),
            ("metrics", Store::Kept(store)) => {
                let mut out = report::metrics(&[store.report()]);
                resident_metric(&mut out);
                Ok(Value::String(out))
            }
            ("metrics", Store::Memory(store)) => {
                let (mut out, tables) = (String::new(), store.tables());
                let (rows, bytes) = (tables.len() as u64, tables.bytes());
                report::metric(&mut out, "rows", "gauge", "Rows in memory", rows);
                report::metric(&mut out, "memory_bytes", "gauge", "What they count for", bytes);
                resident_metric(&mut out);
                Ok(Value::String(out))
            }
            ("compact", Store::Kept(store)) => {
                store.compact();
                Ok(json!(1))
            }
            ("compact", Store::Memory(_)) => {
                Err("this node keeps its tables in memory: there is no log".to_string())
            }
            _ => Err(format!("the control store knows no question {question:?}")),
        }
    }

    fn control_status(&self) -> Value {
        let shard = match &self.control.store {
            Store::Kept(store) => store.report().json(),
            Store::Memory(store) => json!({
                "shard": 0, "epoch": 1, "role": "in memory", "acts": true,
                "rows": store.tables().len(), "memory_bytes": store.tables().bytes(),
            }),
        };
        let node = u64::from(self.node.config().node.number());
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
        let kept = self.control.kept();
        let entries = kept.map_or_else(Vec::new, |store| store::entries(store));
        entries.into_iter().filter(|entry: &TaskEntry| entry.state == TaskState::Lost)
    }

    pub(crate) fn lost_tasks_json(&self) -> Value {
        let mut lost = self.lost_tasks();
        let rows = lost.by_ref().take(LOST_TASKS_MAX).map(|entry| {
            json!({
                "task": entry.task.to_string(),
                "state": "lost",
                "attempt": entry.attempt,
                "reason": entry.why,
            })
        });
        let rows: Vec<Value> = rows.collect();
        json!({ "tasks": rows, "more": lost.count() })
    }

    pub(crate) fn why_lost(&self, id: AnyId) -> Vec<String> {
        let named = self.lost_tasks().filter(|entry| id.names_task(entry.task));
        named
            .map(|entry| format!("{} was lost: {}", entry.task, entry.why.unwrap_or_default()))
            .collect()
    }
}

/// What to do where a head cannot begin, since its number must be on disk before anybody sees it.
fn free_disk(full: &FullDisk) -> String {
    let FullDisk { mount, free } = full;
    let mount = mount.display();
    format!(
        "{} are free on the filesystem of {mount}: delete something there, or start in a folder on another one \
         (--session-dir)",
        Size(*free)
    )
}

fn resident_metric(out: &mut String) {
    let bytes = report::resident_bytes();
    report::metric(out, "resident_bytes", "gauge", "Memory of the process", bytes);
}
