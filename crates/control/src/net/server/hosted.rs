//! One replica with its disk: the machine, its log, its cold tier.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hoplo_base::limits::{CONTROL_COLD_CACHE_BYTES, CONTROL_DISK_RETRY, CONTROL_SEGMENT_BYTES};
use hoplo_core::control::replica::{Effect, Event, Replica, ReplicaOptions};
use hoplo_wire::control::{ClusterId, Epoch, Holding, Record, ReplicaId, ShardId};

use super::{Inbox, Report, ServeError, note};
use crate::disk::cold::{self, ColdOptions, ColdReport, ColdThread, Flush, Range, Retention};
use crate::disk::log::{self, Fsync, LogError, LogOptions, LogThread, Recovery, Writer};
use crate::report::ShardReport;

pub(super) struct Hosted {
    pub(super) machine: Replica,
    pub(super) options: HostOptions,
    log: Log,
    cold: ColdThread,
    /// A log that was damaged and set aside, for `status`.
    set_aside: Option<String>,
}

#[derive(Clone)]
pub(super) struct HostOptions {
    pub(super) me: ReplicaId,
    pub(super) shard: ShardId,
    pub(super) cluster: ClusterId,
    pub(super) folder: PathBuf,
    pub(super) fsync: Fsync,
    pub(super) memory_bytes: Option<u64>,
    /// Of the cold tier.
    pub(super) retention: Retention,
}

enum Log {
    /// Written at the end of each turn: nothing waits for the disk.
    Inline(Box<Inline>),
    Threaded(LogThread<Arc<Record>>),
}

struct Inline {
    writer: Writer,
    /// The number of the last record that was appended.
    upto: u64,
    logged: u64,
    failed: bool,
    again_at: Option<Instant>,
}

impl Hosted {
    /// Reads its log. One that is damaged is set aside, whenever that is found: the chain has everything.
    pub(super) fn open(
        options: HostOptions,
        now: hoplo_base::Instant,
        inbox: &Inbox,
    ) -> Result<Self, ServeError> {
        let error = |source: io::Error| ServeError::Folder { path: options.folder.clone(), source };
        let log = options.folder.join("log");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&log).map_err(error)?;
        let log_options = LogOptions {
            folder: log.clone(),
            cluster: options.cluster,
            shard: options.shard,
            fsync: options.fsync,
            segment_bytes: CONTROL_SEGMENT_BYTES,
            ahead: true,
            boot: log::this_boot(),
        };
        let mut set_aside = None;
        let cold = Self::cold(&options, inbox, &mut set_aside)?;
        let (machine, effects, writer) = match Self::replay(&options, &log_options, &cold, now) {
            Err(damage) if damage.is_damage() => {
                let aside = log::set_aside(&log)?;
                let why = format!("{damage}; the log was set aside as {}", aside.display());
                note(&why);
                set_aside = Some(why);
                Self::replay(&options, &log_options, &cold, now)?
            }
            other => other?,
        };
        let log = match options.fsync {
            Fsync::Never | Fsync::Background(_) => Log::Inline(Box::new(Inline::new(writer))),
            Fsync::Always => {
                let (shard, inbox) = (options.shard, inbox.clone());
                let tell = move |report| {
                    let event = match report {
                        log::Report::Logged { upto } => Event::Logged { upto },
                        log::Report::Failed { why } => Event::LogFailed { why },
                        log::Report::Back => Event::LogBack,
                    };
                    inbox.post(Report::Shard(shard, event));
                };
                Log::Threaded(LogThread::start(writer, tell).map_err(error)?)
            }
        };
        let mut hosted = Self { machine, options, log, cold, set_aside };
        for effect in effects {
            hosted.act(effect);
        }
        Ok(hosted)
    }

    /// Damage may be found when the log is opened, or at any record: nothing has come of it until the end.
    fn replay(
        options: &HostOptions,
        log_options: &LogOptions,
        cold: &ColdThread,
        now: hoplo_base::Instant,
    ) -> Result<(Replica, Vec<Effect>, Writer), LogError> {
        let recovery = Recovery::open(log_options.clone())?;
        let mut machine = Self::machine(options, cold.usage().rows == 0, now);
        let mut effects = Vec::new();
        for record in recovery.records() {
            machine.handle(now, Event::Replayed { record: record? }, &mut effects);
        }
        machine.handle(now, Event::ReplayDone, &mut effects);
        Ok((machine, effects, recovery.into_writer()))
    }

    /// Of a file that cannot be trusted nothing is kept, neither of the log that relies on it.
    fn cold(
        options: &HostOptions,
        inbox: &Inbox,
        set_aside: &mut Option<String>,
    ) -> Result<ColdThread, ServeError> {
        let cold_options = ColdOptions {
            path: options.folder.join("cold.redb"),
            cluster: options.cluster,
            shard: options.shard,
            retention: options.retention,
            cache_bytes: CONTROL_COLD_CACHE_BYTES,
        };
        let (shard, inbox) = (options.shard, inbox.clone());
        let tell = move |report| {
            let event = match report {
                ColdReport::Written { flush } => Event::ColdWritten { flush },
                ColdReport::Row { ticket, row } => Event::ColdRow { ticket, row },
                ColdReport::Page { ticket, page: (rows, until) } => {
                    Event::ColdPage { ticket, rows, until }
                }
                ColdReport::NotWritten { flush, error } => {
                    Event::ColdFailed { flush, why: error.to_string() }
                }
                ColdReport::Unread { ticket, error } => {
                    Event::ColdUnread { ticket, why: error.to_string() }
                }
            };
            inbox.post(Report::Shard(shard, event));
        };
        match ColdThread::start(cold_options.clone(), tell.clone()) {
            Err(damage) if damage.is_damage() => {
                let error =
                    |source: io::Error| ServeError::Folder { path: options.folder.clone(), source };
                let aside = cold::set_aside(&cold_options.path).map_err(error)?;
                let aside = aside.map_or("nowhere".to_string(), |path| path.display().to_string());
                let log = options.folder.join("log");
                let log_aside = log::set_aside(&log)?;
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&log).map_err(error)?;
                let why =
                    format!("{damage}; it lies {aside}, with the log: {}", log_aside.display());
                note(&why);
                *set_aside = Some(why);
                Ok(ColdThread::start(cold_options, tell)?)
            }
            other => Ok(other?),
        }
    }

    fn machine(options: &HostOptions, cold_is_empty: bool, now: hoplo_base::Instant) -> Replica {
        let mut replica = ReplicaOptions::new(options.me, options.shard);
        replica.memory_bytes = options.memory_bytes.unwrap_or(replica.memory_bytes);
        replica.cold_is_empty = cold_is_empty;
        Replica::new(replica, now)
    }

    /// What concerns the disk.
    pub(super) fn act(&mut self, effect: Effect) {
        match (effect, &mut self.log) {
            (Effect::Append { records, upto }, Log::Inline(log)) => {
                records.iter().for_each(|record| log.writer.append(record));
                log.upto = upto;
            }
            (Effect::Append { records, upto: _ }, Log::Threaded(log)) => log.append(records),
            (Effect::Truncate { after }, Log::Inline(log)) => log.writer.truncate(after),
            (Effect::Truncate { after }, Log::Threaded(log)) => log.truncate(after),
            (Effect::SnapshotDone { snapshot }, Log::Inline(log)) => {
                log.writer.snapshot_done(snapshot);
            }
            (Effect::SnapshotDone { snapshot }, Log::Threaded(log)) => log.snapshot_done(snapshot),
            (Effect::ColdWrite { flush, clear, puts, deletes }, _) => {
                self.cold.write(flush, Flush { clear, puts, deletes });
            }
            (Effect::ColdGet { ticket, key }, _) => self.cold.get(ticket, key),
            (Effect::ColdScan { ticket, from, until, limit, bytes }, _) => {
                self.cold.scan(ticket, Range { from, until, limit, bytes });
            }
            (
                Effect::Send { .. }
                | Effect::Respond { .. }
                | Effect::CaughtUp { .. }
                | Effect::Suspect { .. }
                | Effect::WantConfig { .. },
                _,
            ) => unreachable!("the server carries these out"),
        }
    }

    /// Writes what was appended, if that is done in line; what the machine hears of it.
    pub(super) fn write(&mut self) -> Vec<Event> {
        match &mut self.log {
            Log::Inline(log) => log.write(),
            Log::Threaded(_) => Vec::new(),
        }
    }

    /// When `write` has to be tried again.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.log {
            Log::Inline(log) => log.again_at,
            Log::Threaded(_) => None,
        }
    }

    /// What it registers with; absent if its disk has nothing that the chain could use.
    pub(super) fn holding(&self) -> Option<Holding> {
        let holding = self.machine.holding();
        (holding.logged > 0 || holding.epoch > Epoch(0)).then_some(holding)
    }

    pub(super) fn log_fails(&self) -> bool {
        self.machine.log_fails()
    }

    pub(super) fn acts_in(&self) -> Option<Epoch> {
        self.machine.status().acts
    }

    pub(super) fn report(&self) -> ShardReport {
        let (usage, folder) = (self.cold.usage(), &self.options.folder);
        ShardReport::new(&self.machine, usage, folder, self.set_aside.clone())
    }

    pub(super) fn close(self) -> Result<(), LogError> {
        match self.log {
            Log::Inline(mut log) => {
                log.write();
                log.writer.close()
            }
            Log::Threaded(log) => log.close(),
        }
    }
}

impl Inline {
    fn new(writer: Writer) -> Self {
        Self { writer, upto: 0, logged: 0, failed: false, again_at: None }
    }

    fn write(&mut self) -> Vec<Event> {
        let idle = !self.writer.has_unflushed();
        let resting = self.again_at.is_some_and(|at| Instant::now() < at);
        if resting || (idle && self.upto == self.logged) {
            return Vec::new();
        }
        let mut events = Vec::new();
        match self.writer.flush() {
            Ok(()) => {
                self.again_at = None;
                if std::mem::take(&mut self.failed) {
                    events.push(Event::LogBack);
                }
                if self.upto > self.logged {
                    self.logged = self.upto;
                    events.push(Event::Logged { upto: self.upto });
                }
            }
            Err(error) => {
                self.again_at = Some(Instant::now() + CONTROL_DISK_RETRY);
                if !std::mem::replace(&mut self.failed, true) {
                    events.push(Event::LogFailed { why: error.to_string() });
                }
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hoplo_base::NodeId;
    use hoplo_net::hub::HubOptions;
    use hoplo_wire::control::{ClientId, Entry, Key, Op, Row, Table};

    use super::super::super::Hub;
    use super::*;
    use crate::disk::log::tests::Folder;
    use hoplo_wire::control::{Hello, Speaker};

    fn inbox() -> Inbox {
        let me = Speaker::Client(ClientId(1));
        let (program, cluster) = (String::new(), ClusterId(7));
        let hello = Hello { protocol: 1, program, cluster, who: me };
        let hub = Hub::new(HubOptions { hello, identity: None }).unwrap();
        Inbox { reports: Arc::default(), bell: hub.bell() }
    }

    fn options(folder: &Folder) -> HostOptions {
        HostOptions {
            me: ReplicaId { node: NodeId(1), incarnation: 2 },
            shard: ShardId(0),
            cluster: ClusterId(7),
            folder: folder.0.clone(),
            fsync: Fsync::Never,
            memory_bytes: None,
            retention: Retention { age: None, bytes: Some(1000) },
        }
    }

    fn log_options(folder: &Folder) -> LogOptions {
        LogOptions {
            folder: folder.0.join("log"),
            cluster: ClusterId(7),
            shard: ShardId(0),
            fsync: Fsync::Never,
            segment_bytes: 200,
            ahead: false,
            boot: log::this_boot(),
        }
    }

    fn key(number: u8) -> Key {
        Key { table: Table::Task, bytes: vec![number; 20] }
    }

    fn entry(index: u64) -> Record {
        let ops = vec![Op::Delete { key: key(index as u8), expected: None }];
        let (client, seq, answered, born) = (None, 0, 0, 0);
        let (epoch, committed, ended) = (Epoch(1), index - 1, vec![]);
        Record::Entry(Entry { index, epoch, committed, client, seq, answered, born, ops, ended })
    }

    /// Each file is in order: only its records say that some are not there.
    #[test]
    fn a_log_whose_beginning_was_taken_away_is_set_aside_though_it_opens() {
        let folder = Folder::new();
        let mut writer = Recovery::open(log_options(&folder)).unwrap().into_writer();
        for index in 1..20 {
            writer.append(&entry(index));
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder.0.join("log")).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        assert!(files.len() > 2, "several segments: {files:?}");
        fs::remove_file(&files[0]).unwrap();
        Recovery::open(log_options(&folder)).expect("what is there is whole");

        let hosted = Hosted::open(options(&folder), hoplo_base::Instant::ZERO, &inbox()).unwrap();
        let why = hosted.set_aside.clone().unwrap();
        assert!(why.contains("should be") && why.contains("aside-1"), "{why}");
        assert_eq!(hosted.holding(), None, "it begins anew");
        hosted.close().unwrap();
        assert!(folder.0.join("log").join("aside-1").join(files[1].file_name().unwrap()).exists());
    }

    #[test]
    fn history_of_a_control_node_stays_below_its_bound() {
        let folder = Folder::new();
        let inbox = inbox();
        let mut hosted = Hosted::open(options(&folder), hoplo_base::Instant::ZERO, &inbox).unwrap();
        let row = |index| Row { value: vec![1; 100], version: 1, index, finished: true };
        for flush in 1..=20 {
            let puts = vec![(key(flush as u8), row(flush))];
            hosted.act(Effect::ColdWrite { flush, clear: vec![], puts, deletes: vec![] });
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut written = 0;
        while written < 20 {
            assert!(Instant::now() < deadline, "{written} of 20 are written");
            let is_written =
                |report: &Report| matches!(report, Report::Shard(_, Event::ColdWritten { .. }));
            written += inbox.take().iter().filter(|report| is_written(report)).count();
            std::thread::yield_now();
        }
        let archive = hosted.cold.usage();
        assert!((1..=1000).contains(&archive.bytes), "{archive:?}");
        hosted.close().unwrap();
    }
}
