//! Group commit: a thread that writes what has gathered while it wrote, syncs once, and reports.

use std::borrow::Borrow;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use hoplo_base::limits::CONTROL_DISK_RETRY;
use hoplo_wire::control::Record;

use super::{LogError, Writer};

/// So much goes into one write at most.
const GROUP_RECORDS_MAX: usize = 16 * 1024;

/// What became of the log, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The first so many records that were handed in are as durable as the policy says.
    Logged { upto: u64 },
    /// Nothing more is logged for now; everything is kept and tried again.
    Failed { why: String },
    /// It works again; a `Logged` follows.
    Back,
}

#[derive(Debug)]
enum Command<R> {
    Append(Vec<R>),
    Truncate { after: u64 },
    SnapshotDone { snapshot: u64 },
}

/// The log of one replica, in its own thread.
#[derive(Debug)]
pub struct LogThread<R = Record> {
    sender: Option<Sender<Command<R>>>,
    thread: Option<JoinHandle<Result<(), LogError>>>,
}

impl<R: Borrow<Record> + Send + 'static> LogThread<R> {
    /// `report` is called in the log's thread.
    pub fn start(writer: Writer, report: impl FnMut(Report) + Send + 'static) -> io::Result<Self> {
        let (sender, inbox) = channel();
        let builder = std::thread::Builder::new().name("hoplo:log".to_string());
        let thread = builder.spawn(move || Worker { writer, inbox, report, records: 0 }.run())?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    pub fn append(&self, records: Vec<R>) {
        self.send(Command::Append(records));
    }

    pub fn truncate(&self, after: u64) {
        self.send(Command::Truncate { after });
    }

    pub fn snapshot_done(&self, snapshot: u64) {
        self.send(Command::SnapshotDone { snapshot });
    }

    /// Everything that was handed in is on disk; an error if it could not be.
    pub fn close(mut self) -> Result<(), LogError> {
        self.sender = None;
        let thread = self.thread.take().expect("only this takes it");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn send(&self, command: Command<R>) {
        let sender = self.sender.as_ref().expect("it is there until the end");
        sender.send(command).expect("the log's thread ends after us");
    }
}

struct Worker<R, F> {
    writer: Writer,
    inbox: Receiver<Command<R>>,
    report: F,
    records: u64,
}

impl<R: Borrow<Record>, F: FnMut(Report)> Worker<R, F> {
    fn run(mut self) -> Result<(), LogError> {
        while let Ok(first) = self.inbox.recv() {
            self.gather(first);
            self.flush_until_done();
        }
        self.writer.close()
    }

    /// Buffers what is there already.
    fn gather(&mut self, first: Command<R>) {
        let mut next = Ok(first);
        let before = self.records;
        loop {
            match next {
                Ok(Command::Append(records)) => {
                    records.iter().for_each(|record| self.writer.append(record.borrow()));
                    self.records += records.len() as u64;
                }
                Ok(Command::Truncate { after }) => self.writer.truncate(after),
                Ok(Command::SnapshotDone { snapshot }) => self.writer.snapshot_done(snapshot),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
            if (self.records - before) as usize >= GROUP_RECORDS_MAX {
                return;
            }
            next = self.inbox.try_recv();
        }
    }

    /// Flushes, again and again while the disk does not take it.
    fn flush_until_done(&mut self) {
        let mut failed = false;
        while let Err(error) = self.writer.flush() {
            if !std::mem::replace(&mut failed, true) {
                (self.report)(Report::Failed { why: error.to_string() });
            }
            let due = Instant::now() + CONTROL_DISK_RETRY;
            loop {
                match self.inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(more) => self.gather(more),
                    Err(RecvTimeoutError::Timeout) => break,
                    // The caller gave up: closing tries once more.
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
        if failed {
            (self.report)(Report::Back);
        }
        (self.report)(Report::Logged { upto: self.records });
    }
}
