//! Writing the log: records gather in a buffer, and a flush brings them to disk, all or none.
//!
//! A segment is made complete under another name before it gets its own: a file that is called like a segment
//! has a whole header. Where records wait for syncs, it is made by a thread while the one before it is written, so
//! that nobody waits for it. Room is reserved ahead of the records, which makes a sync cheaper and meets a
//! full disk before anything is written. After a failed flush the same bytes go to the same place again, also
//! after a failed sync, since the kernel may have dropped them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hoplo_base::limits::CONTROL_LOG_BUFFER_BYTES_KEPT;
use hoplo_wire::control::Record;

use super::files::{Files, LogFile};
use super::frame::{self, HEADER_BYTES, Header, Kind, Position};
use super::newest::Newest;
use super::segment::{Segment, name_of, path_of};
use super::sync::{Dirty, Synced, Syncer};
use super::{Fsync, LogError, LogOptions, Recovery};

/// Room is reserved in pieces of this size: as long a file is made, which its header says in MiB.
const RESERVE_BYTES: u64 = 1 << 20;

/// A segment that has no header yet.
const FRESH: &str = "new-segment";

/// Of the frame that ends a flush.
const FLUSHED_BYTES: u64 = frame::FRAME_BYTES as u64;

#[derive(Debug)]
pub struct Writer {
    options: LogOptions,
    files: Arc<dyn Files>,
    /// All that are there, the current one last.
    segments: BTreeMap<u64, Segment>,
    number: u64,
    mark: u32,
    /// Made by the first flush.
    file: Option<Arc<dyn LogFile>>,
    /// The next one, which is made ahead, and its mark.
    ahead: Option<(Receiver<io::Result<Made>>, u32)>,
    /// Of the current file.
    end: u64,
    reserved: u64,
    /// Whole frames, not yet written.
    buffer: Vec<u8>,
    /// May go when the buffer is flushed: a finished snapshot in it, or before it, has what they have.
    covered: Vec<u64>,
    synced: Arc<Synced>,
    syncer: Option<Syncer>,
}

/// A segment's file, with its header and its name.
#[derive(Debug)]
struct Made {
    file: Arc<dyn LogFile>,
    reserved: u64,
}

/// What is to be made.
struct Making {
    files: Arc<dyn Files>,
    options: LogOptions,
    number: u64,
    mark: u32,
    synced: Position,
    /// It is on disk when it has its name.
    sync: bool,
}

impl Writer {
    pub(super) fn new(recovery: Recovery) -> Self {
        let Recovery { options, files, segments, synced, .. } = recovery;
        let number = recovery.next_number;
        let mut writer = Self {
            options,
            files,
            segments,
            number,
            mark: 0,
            file: None,
            ahead: None,
            end: 0,
            reserved: 0,
            buffer: Vec::new(),
            covered: Vec::new(),
            synced: Arc::default(),
            syncer: None,
        };
        writer.synced.advance(synced);
        writer.begin_segment(number);
        writer
    }

    /// Nothing is on disk before a flush.
    pub fn append(&mut self, record: &Record) {
        let (kind, index) = Kind::of(record);
        self.begin_buffer();
        frame::put_record(&mut self.buffer, record, self.mark, self.synced.position());
        let snapshot = match record {
            Record::Chunk(chunk) if kind == Kind::Base => Some(chunk.snapshot),
            Record::Entry(_) | Record::Chunk(_) => None,
        };
        self.current().note(kind, index, snapshot);
    }

    /// Voids all entries after this one, flushed or not; after 0 the chunks as well, if another base is appended next.
    pub fn truncate(&mut self, after: u64) {
        self.begin_buffer();
        frame::put_truncated(&mut self.buffer, after, self.mark, self.synced.position());
        self.segments.values_mut().for_each(|segment| segment.truncate(after));
    }

    pub fn has_unflushed(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Of all segments.
    pub fn bytes(&self) -> u64 {
        let closed = self.segments.range(..self.number).map(|(_, segment)| segment.end);
        closed.sum::<u64>() + self.end
    }

    /// Everything that was appended is as durable as the policy says. After an error all of it still
    /// waits, and the next flush tries again.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.check_synced()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = self.opened()?;
        let end = self.end + self.buffer.len() as u64 + FLUSHED_BYTES;
        let full = end >= self.options.segment_bytes;
        self.reserve(&*file, end)?;
        // A file that is full is cut to its end once that is on disk.
        let cut = full && self.options.fsync == Fsync::Always;
        let file_bytes = if cut { end } else { end.max(self.reserved) };
        frame::put_flushed(&mut self.buffer, file_bytes, self.mark, self.synced.position());
        file.write_at(&self.buffer, self.end).map_err(|error| self.named(error))?;
        if self.options.fsync == Fsync::Always {
            file.sync().map_err(|error| self.named(error))?;
        }
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(CONTROL_LOG_BUFFER_BYTES_KEPT);
        let upto = Position::new(self.number, self.end);
        let covered = std::mem::take(&mut self.covered);
        match self.options.fsync {
            Fsync::Always => self.synced.advance(upto),
            Fsync::Background(_) | Fsync::Never => {}
        }
        let reports = match self.options.fsync {
            Fsync::Always => false,
            Fsync::Background(_) => true,
            Fsync::Never => full,
        };
        if reports || !covered.is_empty() {
            self.report(Arc::clone(&file), upto, covered.into_iter().map(name_of).collect())?;
        }
        if full {
            // Of no consequence if it fails: reserved room is read as such.
            let _ = cut.then(|| file.set_len(self.end));
            self.current().end = self.end;
            self.begin_segment(self.number + 1);
        } else if self.ahead.is_none() && self.end >= self.options.segment_bytes / 2 {
            self.make_ahead();
        }
        Ok(())
    }

    /// All chunks of this snapshot were appended: what it covers may go (LOG-4), once the next flush is on disk. Records
    /// that are flushed with it wait for nothing more than without it.
    pub fn snapshot_done(&mut self, snapshot: u64) {
        let begins = self.segments.iter().find_map(|(number, segment)| {
            let found = segment.snapshots.iter().find(|(found, _)| *found == snapshot)?;
            Some((*number, found.1))
        });
        let Some((first, as_of)) = begins else { return };
        self.begin_buffer();
        frame::put_done(&mut self.buffer, snapshot, as_of, self.mark, self.synced.position());
        let older = self.segments.range(..first);
        let covered = older.take_while(|(_, segment)| segment.last_index <= as_of);
        let numbers: Vec<u64> = covered.map(|(number, _)| *number).collect();
        for number in &numbers {
            self.segments.remove(number);
        }
        self.covered.extend(numbers);
    }

    /// For an orderly end: everything on disk, whatever the policy.
    pub fn close(mut self) -> Result<(), LogError> {
        self.flush()?;
        self.syncer = None;
        self.check_synced()?;
        if let Some(file) = self.file.clone() {
            self.end_file(&*file).map_err(|error| self.named(error))?;
        }
        Ok(())
    }

    /// Its last word says that all before it is on disk: whatever is wrong there later is damage.
    fn end_file(&mut self, file: &dyn LogFile) -> io::Result<()> {
        file.sync()?;
        let (mut word, synced) = (Vec::new(), Position::new(self.number, self.end));
        let end = self.end + FLUSHED_BYTES;
        frame::put_flushed(&mut word, end, self.mark, synced);
        file.write_at(&word, self.end)?;
        file.sync()?;
        // A file that is shorter than it says has lost something: this comes last.
        file.set_len(end)?;
        self.end = end;
        Ok(())
    }

    fn current(&mut self) -> &mut Segment {
        self.segments.get_mut(&self.number).expect("the current segment is always there")
    }

    fn begin_segment(&mut self, number: u64) {
        let path = path_of(&self.options.folder, number);
        self.segments.insert(number, Segment { path, ..Segment::default() });
        self.number = number;
        self.mark = match &self.ahead {
            Some((_, mark)) => *mark,
            None => self.files.mark(),
        };
        self.file = None;
        self.end = HEADER_BYTES as u64;
        self.reserved = 0;
    }

    /// A segment begins by saying where the one before it ended.
    fn begin_buffer(&mut self) {
        let begins = self.buffer.is_empty() && self.end == HEADER_BYTES as u64;
        let before = self.segments.range(..self.number).next_back();
        if let Some((_, before)) = before.filter(|_| begins) {
            let (end, synced) = (before.end, self.synced.position());
            frame::put_follows(&mut self.buffer, end, self.mark, synced);
        }
    }

    fn opened(&mut self) -> Result<Arc<dyn LogFile>, LogError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let ahead = self.ahead.take().and_then(|(made, _)| made.recv().ok());
        let made = match ahead {
            Some(Ok(made)) => made,
            // It is tried once more, and says what is wrong if it still is.
            Some(Err(_)) | None => {
                let sync = self.options.fsync != Fsync::Never;
                self.making(self.number, self.mark, sync)
                    .make()
                    .map_err(|error| self.named(error))?
            }
        };
        self.reserved = made.reserved;
        self.file = Some(Arc::clone(&made.file));
        Ok(made.file)
    }

    /// Has the next segment made; until it is needed that is nobody's business.
    fn make_ahead(&mut self) {
        if !self.options.ahead {
            return;
        }
        let mark = self.files.mark();
        let making = self.making(self.number + 1, mark, true);
        let (sender, made) = channel();
        let make = move || {
            // Who asked may have ended.
            let _ = sender.send(making.make());
        };
        if !self.files.has_threads() {
            make();
        } else if let Ok(syncer) = self.syncer() {
            syncer.does(Box::new(make));
        } else {
            // It is made when it is needed.
            return;
        }
        self.ahead = Some((made, mark));
    }

    fn making(&self, number: u64, mark: u32, sync: bool) -> Making {
        let (files, options) = (Arc::clone(&self.files), self.options.clone());
        Making { files, options, number, mark, synced: self.synced.position(), sync }
    }

    fn reserve(&mut self, file: &dyn LogFile, end: u64) -> Result<(), LogError> {
        if end <= self.reserved {
            return Ok(());
        }
        let upto = end.next_multiple_of(RESERVE_BYTES);
        // What does not know how to reserve, or has not as much as that, may still take the records.
        if file.reserve(self.end, upto).map_err(|error| self.named(error))? {
            self.reserved = upto;
        }
        Ok(())
    }

    fn report(
        &mut self,
        file: Arc<dyn LogFile>,
        upto: Position,
        then_remove: Vec<String>,
    ) -> Result<(), LogError> {
        let name = name_of(upto.segment());
        let dirty = Dirty { file, name, upto, then_remove };
        if self.files.has_threads() {
            return match self.syncer() {
                Ok(syncer) => {
                    syncer.report(dirty);
                    Ok(())
                }
                Err(error) => Err(self.named(error)),
            };
        }
        dirty.file.sync().map_err(|error| self.named(error))?;
        self.synced.advance(upto);
        for name in dirty.then_remove {
            self.files.remove(&name).map_err(|error| self.named(error))?;
        }
        Ok(())
    }

    fn syncer(&mut self) -> io::Result<&Syncer> {
        let syncer = match self.syncer.take() {
            Some(syncer) => syncer,
            None => {
                let every = match self.options.fsync {
                    Fsync::Background(every) => every,
                    Fsync::Always | Fsync::Never => Duration::ZERO,
                };
                Syncer::start(every, Arc::clone(&self.files), Arc::clone(&self.synced))?
            }
        };
        Ok(self.syncer.insert(syncer))
    }

    fn check_synced(&self) -> Result<(), LogError> {
        match self.synced.failed() {
            None => Ok(()),
            Some(why) => Err(self.named(io::Error::other(why))),
        }
    }

    fn named(&self, error: io::Error) -> LogError {
        LogError::Io { path: path_of(&self.options.folder, self.number), error }
    }
}

impl Making {
    fn make(&self) -> io::Result<Made> {
        let files = &*self.files;
        let file = files.create(FRESH)?;
        let made = file.reserve(0, RESERVE_BYTES)?;
        let header = Header {
            cluster: self.options.cluster,
            shard: self.options.shard,
            number: self.number,
            synced: self.synced,
            mark: self.mark,
            before: 0,
            boot: self.options.boot,
            made: u16::from(made),
        };
        file.write_at(&header.encode(), 0)?;
        if self.sync {
            file.sync()?;
        }
        files.rename(FRESH, &name_of(self.number))?;
        if self.sync {
            files.sync()?;
        }
        let (number, boot) = (self.number, self.options.boot);
        let newest = Newest { number, boot, synced: self.sync, mark: self.mark };
        newest.write(files)?;
        Ok(Made { file, reserved: if made { RESERVE_BYTES } else { 0 } })
    }
}
