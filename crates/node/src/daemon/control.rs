//! The node's control store: asked by the node (`Question`), and by people.
//!
//! ```text
//!   a driver's own node    tables in memory: they end with the driver
//!   a head                 session/control/: log and archive (see `hoplo_control::embedded`), served to who joins
//!   a node that joined     with the head, or on control nodes (see `far`)
//!   a head over control nodes   there, as one that joined; and it is head as long as it has the seat (`hoplo_core::control::seat`)
//!
//!   kill -9, reboot, SIGTERM --> hoplo start --head --> goes on with the same store
//!   hoplo stop               --> the store goes with the cluster
//! ```
//! Rows change during a turn of the loop and are in the log's file before the turn's messages are sent; a
//! thread syncs it behind. A write that the store refuses (its disk is full) is told to who asked, if
//! somebody did, and else to `daemon.log`; and `hoplo status` says it. What a new daemon makes of an old one's rows: `hoplo_core::node`.

use hoplo_base::limits::{LOST_TASKS_MAX, NODES_SETTLED_KEPT};
use hoplo_base::{AnyId, Instant, NodeNumber, Size};
use hoplo_control::embedded::{self, Embedded, EmbeddedOptions};
use hoplo_control::net::head::{Founded, Head, Tells, Tokens};
use hoplo_control::report;
use hoplo_core::control::rows::{node_key, node_of_key};
use hoplo_core::control::{
    CasError, ControlStore, Entry, JobEntry, Key, MemoryStore, NodeEntry, NodeState, Row, Table,
    TaskEntry, TaskState, store,
};
use hoplo_core::node::{Answer, Effect, KEYS_MAX, Question, Rows, heir_among, outlived, settled};
use hoplo_net::hub::Intake;
use hoplo_net::poll::Bell;
use hoplo_wire::control::{Change, Refusal};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use super::far::{Far, Happened};
use super::lead::{Lead, Seated};
use super::scanned::{SCANNED_ROWS, rows_page};
use crate::clock::clock;
use crate::daemon::Daemon;
use crate::error::StartError;
use crate::journal;
use crate::machine::{self, FullDisk};
use crate::python;
use hoplo_folders::OwnSessionFolder;

#[derive(Debug)]
pub(crate) struct Control {
    store: Store,
    /// Of a head over control nodes.
    lead: Option<Box<Lead>>,
    /// What it refused last, which is in the log.
    refused: Option<String>,
    /// Rows that it did not take away when it was told to: it is told again when it takes rows.
    to_forget: BTreeSet<Key>,
    /// The head was stopped, and its cluster with it: no row is taken any more.
    cluster_ended: bool,
}

#[derive(Debug)]
enum Store {
    Memory(MemoryStore),
    Kept(Box<Kept>),
    Far(Box<Far>),
}

/// On this node's disk.
#[derive(Debug)]
struct Kept {
    store: Embedded,
    /// Others may join, and ask it.
    head: Option<Head>,
}

/// For rows that are on their way at an orderly end.
const CLOSES_WITHIN: Duration = Duration::from_secs(2);

impl Control {
    fn new(store: Store, lead: Option<Box<Lead>>) -> Self {
        Self { store, lead, refused: None, to_forget: BTreeSet::new(), cluster_ended: false }
    }

    pub(crate) fn open(
        session: &OwnSessionFolder,
        kept: bool,
        accept_loss: bool,
        founded: Option<&Founded>,
    ) -> Result<Self, StartError> {
        if !kept {
            let store = Store::Memory(MemoryStore::new());
            return Ok(Self::new(store, None));
        }
        let folder = session.control();
        let mut options = EmbeddedOptions { accept_loss, ..EmbeddedOptions::new(folder.clone()) };
        options.node = founded.map_or(options.node, Founded::node);
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
        let store = Store::Kept(Box::new(Kept { store, head: None }));
        Ok(Self::new(store, None))
    }

    pub(crate) fn of_joined(far: Far) -> Self {
        Self::new(Store::Far(Box::new(far)), None)
    }

    /// Of a head over control nodes, with the rows that were there before it and its number. It takes the seat, or is no head.
    pub(crate) fn over(
        founded: &Founded,
        seated: Option<Seated>,
        wake: Bell,
        row: impl Fn(NodeNumber) -> NodeEntry,
    ) -> Result<(Self, Rows, NodeNumber), StartError> {
        let (lead, far, rows, node) = Lead::begin(founded, seated, wake, row)?;
        let (store, lead) = (Store::Far(Box::new(far)), Some(Box::new(lead)));
        Ok((Self::new(store, lead), rows, node))
    }

    /// Of a head over control nodes.
    pub(crate) fn asks_by_its_own(&mut self) -> io::Result<()> {
        self.lead.as_mut().map_or(Ok(()), |lead| lead.asks_by_its_own())
    }

    /// Where a head keeps tokens.
    pub(crate) fn tokens(&mut self) -> &mut dyn Tokens {
        match (&mut self.store, &mut self.lead) {
            (_, Some(lead)) => &mut lead.registry,
            (Store::Kept(kept), None) => &mut kept.store,
            (Store::Memory(_) | Store::Far(_), None) => unreachable!("a head has a store"),
        }
    }

    /// Others may join, and ask it, from now on. `links` takes their connections that are not for the store.
    pub(crate) fn serve(&mut self, founded: Founded, links: Intake) -> Result<(), StartError> {
        let tells: Tells = Box::new(journal::log);
        match (&mut self.store, &mut self.lead) {
            (_, Some(lead)) => {
                lead.desk = Some(founded.open_over(links, tells).map_err(StartError::Founding)?);
            }
            (Store::Kept(kept), None) => {
                kept.store.watch(Table::Node);
                let head = founded.open(&kept.store, Some(links), tells);
                kept.head = Some(head.map_err(StartError::Founding)?);
            }
            (Store::Memory(_) | Store::Far(_), None) => unreachable!("a head has a store"),
        }
        Ok(())
    }

    /// Of a node that joined: the head's store is there now.
    pub(crate) fn moves_to(&mut self, head: &str) {
        if let Store::Far(far) = &mut self.store {
            far.moves_to(head);
        }
    }

    /// Of a head over control nodes: another machine may be head after it.
    pub(crate) fn is_over(&self) -> bool {
        self.lead.is_some()
    }

    /// Why it is head no more, if it was.
    pub(crate) fn lost_seat(&self) -> Option<String> {
        self.lead.as_ref().and_then(|lead| lead.lost_seat())
    }

    /// Of the node table, since they were taken last.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        match &mut self.store {
            Store::Memory(_) => Vec::new(),
            Store::Kept(kept) => kept.store.take_changes(),
            Store::Far(far) => match &mut self.lead {
                Some(lead) => lead.pass(far.take_changes()),
                None => far.take_changes(),
            },
        }
    }

    /// Every row of the node table as it is, as if it had just changed.
    pub(crate) fn node_rows(&self) -> Vec<Change> {
        let mut found = Vec::new();
        if let Some(store) = self.kept() {
            store::rows(store, Table::Node, |key, row| {
                let key = Key { table: Table::Node, bytes: key.to_vec() };
                found.push(Change { index: row.index, key, row: Some(row.clone()) });
            });
        }
        found
    }

    /// Writes that it is dead, if its row has this version: the version it has then, or absent if it has another one. Absent: a later
    /// turn tells it.
    pub(crate) fn bury(
        &mut self,
        ticket: u64,
        node: NodeNumber,
        expected: u64,
        why: String,
    ) -> Option<Result<Option<u64>, Refusal>> {
        if let (Store::Far(far), Some(lead)) = (&mut self.store, &mut self.lead) {
            let Some(mut entry) = far.nodes().find(|entry| entry.node == node).cloned() else {
                return Some(Ok(None));
            };
            if !lead.is_certain() {
                return Some(Err(Refusal::Busy("this head may be none any more".to_string())));
            }
            entry.state = NodeState::Dead { why, heir: lead.copies.buries(node, far.nodes()) };
            far.bury(ticket, expected, &entry);
            return None;
        }
        Some(self.bury_here(node, expected, why))
    }

    /// A verdict about it was not written.
    pub(crate) fn spares(&mut self, node: NodeNumber) {
        if let Some(lead) = &mut self.lead {
            lead.copies.spares(node);
        }
    }

    fn bury_here(
        &mut self,
        node: NodeNumber,
        expected: u64,
        why: String,
    ) -> Result<Option<u64>, Refusal> {
        let store = self.kept_mut().ok_or_else(|| Refusal::NotMine("head".to_string()))?;
        let entry_of = |node| NodeEntry::from_row(&store.get(&node_key(node))?).ok();
        let Some(mut entry) = entry_of(node) else { return Ok(None) };
        // Of many that die at once each is asked about.
        let mut nodes = Vec::new();
        store::rows(store, Table::Node, |key, _| nodes.extend(node_of_key(key)));
        let heir = heir_among(node, nodes.into_iter(), entry_of);
        entry.state = NodeState::Dead { why, heir };
        match store.cas(entry.key(), expected, entry.to_value()) {
            // A verdict is true when the store has it.
            Ok(version) => self.try_flush().map(|()| Some(version)),
            Err(CasError::Conflict { .. }) => Ok(None),
            Err(CasError::Refused(refusal)) => Err(refusal),
        }
    }

    /// Of a head: that node's row says from now on that it drains.
    pub(crate) fn drain(&mut self, node: NodeNumber) -> Result<(), String> {
        let Some(mut entry) = self.nodes().into_iter().find(|entry| entry.node == node) else {
            return Err(format!("{node} has no row any more"));
        };
        match &entry.state {
            NodeState::Alive => {}
            NodeState::Draining => return Err(format!("{node} is being drained already")),
            NodeState::Dead { why, .. } | NodeState::Settled { why, .. } => {
                return Err(format!("{node} is dead already: {why}"));
            }
        }
        entry.state = NodeState::Draining;
        if let (Store::Far(far), Some(_)) = (&mut self.store, &self.lead) {
            far.change(&entry);
            return Ok(());
        }
        let store = self.kept_mut().ok_or("the head drains nodes, and this is none")?;
        let version = store.get(&node_key(node)).map_or(0, |row| row.version);
        match store.cas(entry.key(), version, entry.to_value()) {
            Ok(_) => self.try_flush().map_err(|refusal| refusal.to_string()),
            Err(CasError::Conflict { .. }) => Err(format!("{node} changed just now: try again")),
            Err(CasError::Refused(refusal)) => Err(refusal.to_string()),
        }
    }

    /// All nodes that live have passed every death up to this entry: the rows of those dead say so.
    pub(crate) fn settle(&mut self, epoch: u64) {
        if let (Store::Far(far), Some(_)) = (&mut self.store, &self.lead) {
            let dead = far.indexed().filter(|(_, index)| *index <= epoch);
            let rows = dead.filter_map(|(entry, index)| settled(entry, index));
            for entry in rows.collect::<Vec<_>>() {
                far.change(&entry);
            }
            for node in outlived(far.nodes(), NODES_SETTLED_KEPT) {
                far.forget(node_key(node));
            }
            return;
        }
        let Some(store) = self.kept_mut() else { return };
        let (mut nodes, mut rows) = (Vec::new(), Vec::new());
        store::rows(store, Table::Node, |_, row| {
            let Ok(entry) = NodeEntry::from_row(row) else { return };
            let now = Some(row.index).filter(|died| *died <= epoch);
            let now = now.and_then(|died| settled(&entry, died));
            rows.extend(now.clone().map(|entry| (entry, row.version)));
            nodes.push(now.unwrap_or(entry));
        });
        for (entry, version) in rows {
            // Nobody else changes the row of a dead node.
            let changed = store.cas(entry.key(), version, entry.to_value());
            if let Err(CasError::Refused(refusal)) = changed {
                self.note_refusal(Some(refusal));
                return;
            }
        }
        for node in outlived(nodes.iter(), NODES_SETTLED_KEPT) {
            self.forget(node_key(node));
        }
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
        let rows = Rows::read(self.local().expect("who joined has its number"));
        let kept = matches!(self.store, Store::Kept(_));
        let mut node = if kept { rows.next_number(random) } else { NodeNumber::alone(random) };
        loop {
            let entry = row(node);
            let store = self.local_mut().expect("it was read just now");
            match store.cas(entry.key(), 0, entry.to_value()) {
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
            Store::Memory(_) | Store::Far(_) => None,
            Store::Kept(kept) => Some(&kept.store),
        }
    }

    pub(crate) fn kept_mut(&mut self) -> Option<&mut Embedded> {
        match &mut self.store {
            Store::Memory(_) | Store::Far(_) => None,
            Store::Kept(kept) => Some(&mut kept.store),
        }
    }

    /// Rows stay when this daemon ends.
    pub(crate) fn keeps_rows(&self) -> bool {
        !matches!(self.store, Store::Memory(_))
    }

    /// Readable when it wants a turn.
    pub(crate) fn network(&self) -> Option<BorrowedFd<'_>> {
        match &self.store {
            Store::Memory(_) => None,
            Store::Kept(kept) => kept.head.as_ref().map(|head| head.alone.as_fd()),
            Store::Far(far) => Some(far.as_fd()),
        }
    }

    /// What came over its connections; `me`: this node.
    pub(crate) fn turn(&mut self, me: NodeNumber) -> Vec<Happened> {
        let turned = match &mut self.store {
            Store::Memory(_) => Ok(Vec::new()),
            Store::Kept(kept) => match &mut kept.head {
                Some(head) => head.alone.turn(&mut kept.store).map(|()| Vec::new()),
                None => Ok(Vec::new()),
            },
            Store::Far(far) => far.turn(me),
        };
        turned.expect("epoll waits")
    }

    /// The nodes of the cluster, as far as this one knows, by number.
    pub(crate) fn nodes(&self) -> Vec<NodeEntry> {
        match &self.store {
            Store::Memory(store) => store::entries(store),
            Store::Kept(kept) => store::entries(&kept.store),
            Store::Far(far) => far.nodes().cloned().collect(),
        }
    }

    /// Those that this node's own store has: of a head all jobs of the cluster.
    pub(crate) fn jobs(&self) -> Vec<JobEntry> {
        match &self.store {
            Store::Memory(store) => store::entries(store),
            Store::Kept(kept) => store::entries(&kept.store),
            Store::Far(_) => self.copies().map_or_else(Vec::new, |copies| store::entries(copies)),
        }
    }

    /// Of a head over control nodes.
    fn copies(&self) -> Option<&MemoryStore> {
        self.lead.as_ref().map(|lead| lead.copies.rows())
    }

    /// Of a head: its rows, or those of which it has copies.
    pub(crate) fn table(&self) -> Option<&dyn ControlStore> {
        match (self.kept(), self.copies()) {
            (Some(kept), _) => Some(kept),
            (None, Some(copies)) => Some(copies),
            (None, None) => None,
        }
    }

    /// At the end of a turn: before anybody hears of it.
    pub(crate) fn flush(&mut self) {
        let flushed = self.try_flush();
        match &mut self.store {
            Store::Memory(_) => {}
            Store::Kept(kept) => {
                if let Some(head) = &mut kept.head {
                    head.alone.answer(&mut kept.store);
                }
            }
            Store::Far(far) => far.flush(),
        }
        if flushed.is_ok() && self.refused.is_some() {
            let works = self.kept().is_none_or(|store| store.status().disk.is_none());
            self.refused = self.refused.take().filter(|_| !works);
            if works {
                std::mem::take(&mut self.to_forget).into_iter().for_each(|key| self.forget(key));
            }
        }
        self.note_refusal(flushed.err());
    }

    /// Why rows are not written at present, if they are not.
    pub(crate) fn trouble(&self) -> Option<String> {
        let late = match &self.store {
            Store::Far(far) => far.silent_for(),
            Store::Memory(_) | Store::Kept(_) => None,
        };
        let late = late.map(|time| format!("it has not answered for {} s", time.as_secs()));
        late.or_else(|| self.refused.clone())
    }

    fn try_flush(&mut self) -> Result<(), Refusal> {
        match &mut self.store {
            Store::Memory(_) | Store::Far(_) => Ok(()),
            Store::Kept(kept) => kept.store.flush(),
        }
    }

    /// Nobody waits for this row: if it cannot be written, the log says so.
    pub(crate) fn save(&mut self, key: Key, value: Vec<u8>, last: bool) {
        let store: &mut dyn ControlStore = match &mut self.store {
            Store::Memory(store) => store,
            Store::Kept(kept) => &mut kept.store,
            Store::Far(far) => {
                if let Some(lead) = &mut self.lead {
                    lead.copies.writes(&key, &value);
                    if key.table == Table::Node {
                        let entry = NodeEntry::of_value(&value).expect("this program made it");
                        return far.change(&entry);
                    }
                }
                return far.save(key, value, last);
            }
        };
        self.to_forget.remove(&key);
        let put = if last { store.finish(key, value) } else { store.put(key, value) };
        self.note_refusal(put.err());
    }

    pub(crate) fn forget(&mut self, key: Key) {
        let store: &mut dyn ControlStore = match &mut self.store {
            Store::Memory(store) => store,
            Store::Kept(kept) => &mut kept.store,
            Store::Far(far) => return far.forget(key),
        };
        let gone = store.delete(&key);
        if gone.is_err() {
            self.to_forget.insert(key);
        }
        self.note_refusal(gone.err());
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

    /// What it says to have written is in the log's file. Absent: a later turn brings it.
    pub(crate) fn answer(&mut self, ask: u64, question: Question) -> Option<Answer> {
        let store: &mut dyn ControlStore = match &mut self.store {
            Store::Memory(store) => store,
            Store::Kept(kept) => &mut kept.store,
            Store::Far(far) => {
                far.ask(ask, question);
                return None;
            }
        };
        if let Question::Put { key, .. } | Question::Create { key, .. } = &question {
            self.to_forget.remove(key);
        }
        let value = |row: Option<Row>| row.map(|row| row.value);
        let answer = match question {
            Question::Get { keys } => {
                Answer::Rows(Ok(keys.iter().map(|key| value(store.get(key))).collect()))
            }
            Question::Put { key, value } => Answer::Written(store.put(key, value).map(|_| ())),
            Question::Create { key, value: new } => {
                Answer::Found(match store.cas(key.clone(), 0, new) {
                    Ok(_) => Ok(None),
                    Err(CasError::Conflict { .. }) => Ok(value(store.get(&key))),
                    Err(CasError::Refused(refusal)) => Err(refusal),
                })
            }
            Question::Delete { key } => Answer::Found(store.delete(&key).map(value)),
            Question::List { table, prefix } => {
                let page = store.scan(table, &prefix, None, KEYS_MAX);
                Answer::Keys(Ok(page.rows.into_iter().map(|(key, _)| key).collect()))
            }
            Question::Scan { table, prefix, from } => {
                let page = store.scan(table, &prefix, from.as_deref(), SCANNED_ROWS as usize);
                Answer::Page(Ok(rows_page(page.rows, page.next)))
            }
        };
        // What was there already may not be written yet, either.
        Some(match (answer, self.try_flush()) {
            (Answer::Written(Ok(())), Err(refusal)) => Answer::Written(Err(refusal)),
            (Answer::Found(Ok(_)), Err(refusal)) => Answer::Found(Err(refusal)),
            (answer, Ok(()) | Err(_)) => answer,
        })
    }

    /// Why a node whose workers run that Python cannot be one of this cluster.
    pub(crate) fn other_python(&self, ours: &str) -> Option<String> {
        let nodes = self.nodes();
        let head = nodes.iter().find(|entry| entry.head && !entry.state.is_dead())?;
        head.labels.get(python::LABEL).and_then(|heads| python::refusal(ours, heads))
    }

    /// Its cluster ends with its head. Who ends then waits for no row.
    pub(crate) fn cluster_ends(&mut self) {
        self.cluster_ended = true;
    }

    /// This node ends in order: its row says so before its connections end. Who sees those end first takes it for a death, and gives it a
    /// reason of its own. A head writes that itself; `asks_head` has another node's head write it, for who is dead already is known there alone
    /// (LEAD-1). Without a head nobody waits for long: the next one finds out.
    pub(crate) fn leave(&mut self, me: NodeNumber, why: &str, asks_head: impl FnOnce()) {
        let Store::Far(far) = &mut self.store else { return };
        let Some(mut entry) = far.nodes().find(|entry| entry.node == me).cloned() else { return };
        if entry.state.is_dead() || self.cluster_ended {
            return;
        }
        if let Some(lead) = &mut self.lead {
            let heir = lead.copies.buries(me, far.nodes());
            entry.state = NodeState::Dead { why: why.to_string(), heir };
            far.change(&entry);
            return far.wait_for_saves(CLOSES_WITHIN);
        }
        far.wait_for_saves(CLOSES_WITHIN);
        asks_head();
        far.wait_for_death(me, CLOSES_WITHIN);
    }

    /// Nothing is written after this.
    pub(crate) fn close(&mut self) -> Result<(), Refusal> {
        match std::mem::replace(&mut self.store, Store::Memory(MemoryStore::new())) {
            Store::Memory(_) => Ok(()),
            Store::Kept(kept) => {
                let Kept { store, head } = *kept;
                drop(head);
                store.close()
            }
            Store::Far(mut far) => {
                if !self.cluster_ended {
                    far.wait_for_saves(CLOSES_WITHIN);
                }
                // Whoever waits to be head finds what this one wrote.
                self.lead = None;
                Ok(())
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let network = self.network_due();
        let network =
            network.map(|due| clock() + due.saturating_duration_since(std::time::Instant::now()));
        self.kept().and_then(Embedded::next_deadline).into_iter().chain(network).min()
    }

    /// Its connections want a turn though nothing came.
    pub(crate) fn network_is_due(&self) -> bool {
        self.network_due().is_some_and(|due| due <= std::time::Instant::now())
    }

    fn network_due(&self) -> Option<std::time::Instant> {
        match &self.store {
            Store::Memory(_) => None,
            Store::Kept(kept) => kept.head.as_ref().and_then(|head| head.alone.due()),
            Store::Far(far) => far.due(),
        }
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        if let Some(store) = self.kept_mut()
            && store.next_deadline().is_some_and(|at| at <= now)
        {
            store.tick();
        }
    }

    fn local(&self) -> Option<&dyn ControlStore> {
        match &self.store {
            Store::Memory(store) => Some(store),
            Store::Kept(kept) => Some(&kept.store),
            Store::Far(_) => None,
        }
    }

    fn local_mut(&mut self) -> Option<&mut dyn ControlStore> {
        match &mut self.store {
            Store::Memory(store) => Some(store),
            Store::Kept(kept) => Some(&mut kept.store),
            Store::Far(_) => None,
        }
    }
}

impl Daemon {
    /// Makes of the rows of an earlier daemon what is true now.
    pub(crate) fn recall(&mut self, rows: Rows) {
        if let Some(store) = self.control.kept() {
            log_start(&store.start.clone());
        } else if !self.control.is_over() {
            return;
        }
        let mut effects = Vec::new();
        self.node.recall(rows, &mut effects);
        for effect in effects {
            if let (Effect::Save { key, value, .. }, Some(lead)) = (&effect, &mut self.control.lead)
            {
                lead.copies.copy(key.clone(), value.clone());
            }
            self.carry_out(effect);
        }
    }

    // ---- questions ----

    /// For `hoplo control`: as a control node of a cluster answers, with one shard that nobody else holds.
    pub(crate) fn ask_control(&mut self, question: &str) -> Result<Value, String> {
        match (question, &mut self.control.store) {
            ("status", _) => Ok(self.control_status()),
            (_, Store::Far(_)) => {
                let place = if self.control.is_over() { "control nodes" } else { "head" };
                Err(format!("the control store is on the cluster's {place}: ask there"))
            }
            ("metrics", Store::Kept(kept)) => {
                let mut out = report::metrics(&[kept.store.report()]);
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
            ("compact", Store::Kept(kept)) => {
                kept.store.compact();
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
            Store::Kept(kept) => match &kept.head {
                Some(head) => return head.alone.status(&kept.store),
                None => kept.store.report().json(),
            },
            Store::Memory(store) => json!({
                "shard": 0, "epoch": 1, "role": "in memory", "acts": true,
                "rows": store.tables().len(), "memory_bytes": store.tables().bytes(),
            }),
            Store::Far(_) => json!({ "shard": 0, "epoch": 1, "role": "elsewhere", "acts": false }),
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
        let entries = self.control.table().map_or_else(Vec::new, store::entries);
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

/// What was wrong with what the daemon before left.
fn log_start(start: &embedded::Start) {
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
}

/// What to do where a head cannot begin, since its number must be on disk before anybody sees it.
pub(super) fn free_disk(full: &FullDisk) -> String {
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
