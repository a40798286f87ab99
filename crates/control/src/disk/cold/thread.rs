//! The cold tier's thread: requests in order, each answered by a report.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hoplo_wire::control::{Key, Row};

use super::file::{ColdFile, Reader, was_made};
use super::{ColdError, ColdOptions, Flush, Page, Range, Usage};

/// When nothing is asked for, what is too old goes so often.
const RETAIN_EVERY: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub enum ColdReport {
    Written { flush: u64 },
    Row { ticket: u64, row: Option<Row> },
    Page { ticket: u64, page: Page },
    NotWritten { flush: u64, error: ColdError },
    Unread { ticket: u64, error: ColdError },
}

#[derive(Debug)]
enum Request {
    Write {
        flush: u64,
        what: Flush,
    },
    Get {
        ticket: u64,
        key: Key,
    },
    Scan {
        ticket: u64,
        range: Range,
    },
    /// Answered there instead of by a report.
    Ask {
        key: Key,
        answer: Sender<Result<Option<Row>, ColdError>>,
    },
}

/// The cold tier of one replica.
#[derive(Debug)]
pub struct ColdThread {
    options: ColdOptions,
    sender: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    open: Arc<Mutex<Open>>,
}

/// What others may know of the file.
#[derive(Default)]
struct Open {
    usage: Usage,
    /// Absent while it is not open.
    reader: Option<Reader>,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("usage", &self.usage).finish_non_exhaustive()
    }
}

impl ColdThread {
    /// A file that is there is opened now, so that a bad one is refused before anything is built on it.
    /// `report` is called in the tier's thread.
    pub fn start(
        options: ColdOptions,
        report: impl FnMut(ColdReport) + Send + 'static,
    ) -> Result<Self, ColdError> {
        let io =
            |error: io::Error| ColdError::Io { path: options.path.clone(), why: error.to_string() };
        let file = match was_made(&options.path).map_err(io)? {
            true => Some(guarded(&options, || ColdFile::open(options.clone()))?),
            false => None,
        };
        let open = Arc::new(Mutex::new(Open::of(file.as_ref())));
        let (sender, inbox) = channel();
        let worker = Worker { options: options.clone(), file, inbox, report, open: open.clone() };
        let builder = std::thread::Builder::new().name("hoplo:cold".to_string());
        let thread = builder.spawn(move || worker.run()).map_err(io)?;
        Ok(Self { options, sender: Some(sender), thread: Some(thread), open })
    }

    pub fn write(&self, flush: u64, what: Flush) {
        self.send(Request::Write { flush, what });
    }

    pub fn get(&self, ticket: u64, key: Key) {
        self.send(Request::Get { ticket, key });
    }

    pub fn scan(&self, ticket: u64, range: Range) {
        self.send(Request::Scan { ticket, range });
    }

    /// What is on disk now, whatever is being written: for who knows what was reported as written.
    pub fn ask(&self, key: Key) -> Result<Option<Row>, ColdError> {
        let reader = lock(&self.open).reader.clone();
        if let Some(reader) = reader {
            return guarded(&self.options, || reader.row(&key));
        }
        // It may open it.
        let (answer, answered) = channel();
        self.send(Request::Ask { key, answer });
        answered.recv().expect("the thread answers before it ends")
    }

    pub fn usage(&self) -> Usage {
        lock(&self.open).usage
    }

    fn send(&self, request: Request) {
        let sender = self.sender.as_ref().expect("it is there until the drop");
        sender.send(request).expect("the thread ends after us");
    }
}

impl Drop for ColdThread {
    /// What was asked for is done.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker<F> {
    options: ColdOptions,
    /// Absent before the first flush, and after a failure.
    file: Option<ColdFile>,
    inbox: Receiver<Request>,
    report: F,
    open: Arc<Mutex<Open>>,
}

impl<F: FnMut(ColdReport)> Worker<F> {
    fn run(mut self) {
        loop {
            let ages = self.options.retention.age.is_some() && self.file.is_some();
            let next = if ages {
                self.inbox.recv_timeout(RETAIN_EVERY)
            } else {
                self.inbox.recv().map_err(RecvTimeoutError::from)
            };
            match next {
                Ok(request) => {
                    if let Some(report) = self.carry_out(request) {
                        (self.report)(report);
                    }
                }
                // Nobody asked: an error is met again by the next who does.
                Err(RecvTimeoutError::Timeout) => {
                    while matches!(self.with_file(true, ColdFile::retain), Ok(Some(true))) {}
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn carry_out(&mut self, request: Request) -> Option<ColdReport> {
        let unread = |ticket| move |error| ColdReport::Unread { ticket, error };
        let report = match request {
            Request::Write { flush, what } => {
                let done = self.with_file(true, |file| file.write(what));
                done.map_or_else(
                    |error| ColdReport::NotWritten { flush, error },
                    |_| ColdReport::Written { flush },
                )
            }
            Request::Get { ticket, key } => {
                let done = self.with_file(false, |file| file.reader().row(&key));
                let row = |row: Option<_>| ColdReport::Row { ticket, row: row.flatten() };
                done.map_or_else(unread(ticket), row)
            }
            Request::Scan { ticket, range } => {
                let done = self.with_file(false, |file| file.reader().page(&range));
                let page =
                    |page: Option<_>| ColdReport::Page { ticket, page: page.unwrap_or_default() };
                done.map_or_else(unread(ticket), page)
            }
            Request::Ask { key, answer } => {
                let done = self.with_file(false, |file| file.reader().row(&key));
                // Who asked may have gone.
                let _ = answer.send(done.map(Option::flatten));
                return None;
            }
        };
        Some(report)
    }

    /// `None`: there is no file, and it is not to be made. After an error it is opened anew: redb does
    /// nothing more with a file that failed once.
    fn with_file<T>(
        &mut self,
        make: bool,
        act: impl FnOnce(&mut ColdFile) -> Result<T, ColdError>,
    ) -> Result<Option<T>, ColdError> {
        if self.file.is_none() {
            let options = &self.options;
            let io = |error: io::Error| ColdError::Io {
                path: options.path.clone(),
                why: error.to_string(),
            };
            if !make && !was_made(&options.path).map_err(io)? {
                return Ok(None);
            }
            self.file = Some(guarded(options, || ColdFile::open(options.clone()))?);
        }
        let file = self.file.as_mut().expect("it was just opened");
        let done = guarded(&self.options, || act(file));
        if done.is_err() {
            self.file = None;
        }
        *lock(&self.open) = Open::of(self.file.as_ref());
        done.map(Some)
    }
}

impl Open {
    fn of(file: Option<&ColdFile>) -> Self {
        let usage = file.map(ColdFile::usage).unwrap_or_default();
        Self { usage, reader: file.map(|file| file.reader().clone()) }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A damaged file may bring redb to a panic, which is its business and not the end of ours.
fn guarded<T>(
    options: &ColdOptions,
    act: impl FnOnce() -> Result<T, ColdError>,
) -> Result<T, ColdError> {
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "a panic".into(), |t| t.to_string()),
    };
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        Err(ColdError::Damaged { path: options.path.clone(), why: text(panic) })
    })
}
