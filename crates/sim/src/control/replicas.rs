//! A replica's shell: what it asks for is done to its disk, its neighbours and its clients.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::Instant;
use hoplo_core::control::replica::{self, Replica, ReplicaOptions};
use hoplo_wire::control::{
    ClientId, Key, Record, Refusal, ReplicaId, Response, Row, ShardId, ToCoordinator,
};

use super::counts::What;
use super::disk::Disk;
use super::network::{End, Kind, Message};
use super::process::Input;
use super::world::{Step, World};

/// One replica, and its log in the shell's hands.
pub struct Held {
    pub replica: Replica,
    /// Position in the log, and the number of the record that ends there.
    marks: VecDeque<(u64, u64)>,
    flushing: bool,
    failed: bool,
    /// Entries that this run has seen, by index: what it says it applied must be one of them.
    pub log: BTreeMap<u64, Arc<Record>>,
    cold_at: Instant,
}

#[derive(Debug)]
pub enum ColdWork {
    Write {
        flush: u64,
        clear: Vec<(Option<Key>, Option<Key>)>,
        puts: Vec<(Key, Row)>,
        deletes: Vec<Key>,
    },
    Read {
        ticket: u64,
        key: Key,
    },
    Scan {
        ticket: u64,
        from: Option<Key>,
        until: Option<Key>,
        limit: u32,
    },
}

impl World {
    /// The process gets a replica of that shard, and its disk if it has one.
    pub fn hold(&mut self, id: ReplicaId, shard: ShardId) {
        let now = self.now;
        let mut options = ReplicaOptions::new(id, shard);
        options.memory_bytes = self.plan.memory_bytes;
        options.recent_bytes = self.plan.recent_bytes;
        options.snapshot_bytes = self.plan.snapshot_bytes;
        options.session_idle = self.plan.session_idle;
        let host = self.hosts.get_mut(&id.node.0).expect("a host");
        let process = host.process.as_mut().expect("it runs");
        let reads = process.clock.reads(now);
        let kind = self.plan.log;
        let disk = host.disks.entry(shard).or_insert_with(|| Disk::new(shard, kind));
        let (records, damage) = match disk.open(host.boot) {
            Ok(records) => (records, None),
            Err(damage) => {
                disk.sets_log_aside();
                (disk.open(host.boot).expect("an empty log is in order"), Some(damage))
            }
        };
        let log = records.iter().filter_map(|record| match record.as_ref() {
            Record::Entry(entry) => Some((entry.index, record.clone())),
            Record::Chunk(_) => None,
        });
        let held = Held {
            replica: Replica::new(options, reads),
            marks: VecDeque::new(),
            flushing: false,
            failed: false,
            log: log.collect(),
            cold_at: now,
        };
        process.held.insert(shard, held);
        if let Some(damage) = damage {
            self.counts.add(What::DamageRefused);
            self.note(|| format!("{id:?} sets its log aside: {damage}"));
        }
        for record in records {
            let record = record.as_ref().clone();
            self.replica(id, shard, replica::Event::Replayed { record });
        }
        self.replica(id, shard, replica::Event::ReplayDone);
    }

    pub fn replica(&mut self, id: ReplicaId, shard: ShardId, event: replica::Event) {
        let Some(reads) = self.reads(id) else { return };
        if self.plan.prints {
            let line = format!("{id:?} {shard:?} <- {event:?}");
            self.note(|| line);
        }
        let Some(process) = self.process_mut(id) else { return };
        let Some(held) = process.held.get_mut(&shard) else { return };
        let mut effects = Vec::new();
        held.replica.handle(reads, event, &mut effects);
        held.replica.check();
        for effect in &effects {
            match effect {
                replica::Effect::Append { records, .. } => {
                    for record in records {
                        if let Record::Entry(entry) = record.as_ref() {
                            held.log.insert(entry.index, record.clone());
                        }
                    }
                }
                replica::Effect::Truncate { after } => held.log.retain(|it, _| it <= after),
                _ => {}
            }
        }
        self.observe(id, shard);
        for effect in effects {
            self.replica_effect(id, shard, effect);
        }
    }

    fn replica_effect(&mut self, id: ReplicaId, shard: ShardId, effect: replica::Effect) {
        match effect {
            replica::Effect::Append { records, upto } => {
                let loses = self.sabotage_loses_records();
                let disk = self.disk(id, shard);
                disk.append(records, loses);
                let end = disk.end();
                self.held(id, shard).marks.push_back((end, upto));
                self.flush(id, shard);
            }
            replica::Effect::Truncate { after } => {
                self.disk(id, shard).truncate(after);
                self.flush(id, shard);
            }
            replica::Effect::SnapshotDone { snapshot } => {
                self.disk(id, shard).snapshot_done(snapshot);
                self.flush(id, shard);
            }
            replica::Effect::Send { to, message } => {
                let to = End::Process(to);
                self.send(End::Process(id), to, Kind::Peer, Message::Peer(message));
            }
            replica::Effect::Respond { to, response } => self.respond(id, shard, to, response),
            replica::Effect::ColdWrite { flush, clear, puts, deletes } => {
                self.cold(id, shard, ColdWork::Write { flush, clear, puts, deletes });
            }
            replica::Effect::ColdGet { ticket, key } => {
                self.cold(id, shard, ColdWork::Read { ticket, key });
            }
            replica::Effect::ColdScan { ticket, from, until, limit, bytes: _ } => {
                self.cold(id, shard, ColdWork::Scan { ticket, from, until, limit });
            }
            replica::Effect::CaughtUp { shard, epoch } => {
                self.reports(id, ToCoordinator::CaughtUp { replica: id, shard, epoch });
            }
            replica::Effect::Suspect { replica } => {
                let epoch = self.held(id, shard).replica.status().epoch;
                self.note(|| format!("{id:?} finds {replica:?} silent"));
                self.reports(id, ToCoordinator::Report { shard, epoch, silent: replica });
            }
            replica::Effect::WantConfig { epoch: _ } => {
                self.reports(id, ToCoordinator::WantConfig { known: 0 });
            }
        }
    }

    fn respond(&mut self, id: ReplicaId, shard: ShardId, to: ClientId, response: Response) {
        let query = match &response {
            Response::Answered { request, .. } => self.queries.get(&(to, *request)),
            _ => None,
        };
        self.truths[&shard].check_response(to, &response, query);
        if let Response::UpdateRefused { why: Refusal::SessionOver { .. }, .. } = &response {
            self.counts.add(What::SessionRefused);
        }
        if let Response::Updated { index, .. } = &response {
            self.check_stable_everywhere(id, shard, *index);
        }
        let client = End::Client(to.0 - 100);
        // Only over the connection over which it asked.
        if self.network.used(End::Process(id), client, Kind::Client).is_some() {
            self.send(End::Process(id), client, Kind::Client, Message::Response(response));
        }
    }

    fn disk(&mut self, id: ReplicaId, shard: ShardId) -> &mut Disk {
        let host = self.hosts.get_mut(&id.node.0).expect("a host");
        host.disks.get_mut(&shard).expect("who holds a replica has a disk for it")
    }

    fn held(&mut self, id: ReplicaId, shard: ShardId) -> &mut Held {
        let process = self.process_mut(id).expect("it acts");
        process.held.get_mut(&shard).expect("it holds that")
    }

    /// Starts to write what was appended, unless it does or cannot.
    fn flush(&mut self, id: ReplicaId, shard: ShardId) {
        let fsync = self.plan.log.fsync;
        let slow = self.hosts[&id.node.0].disk_slow;
        let full = self.hosts[&id.node.0].disk_full;
        let end = self.disk(id, shard).end();
        let unwritten = self.disk(id, shard).has_unwritten();
        let held = self.held(id, shard);
        if held.flushing || held.failed || !(unwritten || held.marks.front().is_some()) {
            return;
        }
        if full {
            held.failed = true;
            let why = "no space left on device".to_string();
            return self.later_replica(
                Duration::ZERO,
                id,
                shard,
                replica::Event::LogFailed { why },
            );
        }
        held.flushing = true;
        self.disk(id, shard).write();
        let max = self.plan.disk_max * if slow { 20 } else { 1 };
        let delay = if fsync { self.rng.delay(max) } else { Duration::from_nanos(1) };
        self.after(delay, Step::FlushDone { process: id, shard, upto: end });
    }

    pub fn flush_done(&mut self, id: ReplicaId, shard: ShardId, upto: u64) {
        if self.process(id).is_none() {
            return;
        }
        self.disk(id, shard).lands(upto);
        let held = self.held(id, shard);
        held.flushing = false;
        let mut logged = None;
        while held.marks.front().is_some_and(|(end, _)| *end <= upto) {
            logged = held.marks.pop_front().map(|(_, number)| number);
        }
        self.flush(id, shard);
        if let Some(upto) = logged {
            self.input(id, Input::Replica(shard, replica::Event::Logged { upto }));
        }
    }

    /// The disks of that host have room again, and are as fast as before.
    pub fn disks_work(&mut self, node: u64) {
        let host = self.hosts.get_mut(&node).expect("a host");
        (host.disk_full, host.disk_slow) = (false, false);
        let Some(process) = &mut host.process else { return };
        let id = process.id;
        let failed: Vec<ShardId> =
            process.held.iter().filter(|(_, it)| it.failed).map(|(shard, _)| *shard).collect();
        if !failed.is_empty() {
            // It may be used again.
            process.registered.clear();
        }
        for shard in failed {
            self.held(id, shard).failed = false;
            self.later_replica(Duration::ZERO, id, shard, replica::Event::LogBack);
            self.flush(id, shard);
        }
    }

    fn cold(&mut self, id: ReplicaId, shard: ShardId, work: ColdWork) {
        let delay = self.rng.delay(self.plan.disk_max * 2);
        let now = self.now;
        let held = self.held(id, shard);
        held.cold_at = held.cold_at.max(now + delay);
        let at = held.cold_at;
        self.at(at, Step::ColdDone { process: id, shard, work: Box::new(work) });
    }

    pub fn cold_done(&mut self, id: ReplicaId, shard: ShardId, work: ColdWork) {
        if self.process(id).is_none() {
            return;
        }
        let full = self.hosts[&id.node.0].disk_full;
        let disk = self.disk(id, shard);
        let event = match work {
            ColdWork::Write { flush, .. } if full => {
                replica::Event::ColdFailed { flush, why: "no space left".to_string() }
            }
            ColdWork::Write { flush, clear, puts, deletes } => {
                disk.cold_write(clear, puts, deletes);
                replica::Event::ColdWritten { flush }
            }
            ColdWork::Read { ticket, key } => {
                let row = disk.cold.get(&key).cloned();
                replica::Event::ColdRow { ticket, row }
            }
            ColdWork::Scan { ticket, from, until, limit } => {
                let (rows, until) = disk.cold_scan(from, until, limit);
                replica::Event::ColdPage { ticket, rows, until }
            }
        };
        self.input(id, Input::Replica(shard, event));
    }
}
