//! Writing the log: records gather in a buffer, and a flush brings them to disk, all or none.
//!
//! A segment is made complete under another name before it gets its own: a file that is called like a segment
//! has a whole header. Room is reserved ahead of the records, which makes a sync cheaper and meets a
//! full disk before anything is written. After a failed flush the same bytes go to the same place again, also
//! after a failed sync, since the kernel may have dropped them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::Duration;

use hoplo_wire::control::Record;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::frame::{self, HEADER_BYTES, Header, Kind, Position};
use super::segment::{Segment, path_of};
use super::sync::{Dirty, Synced, Syncer};
use super::{Fsync, LogError, LogOptions, Recovery};

/// Room is reserved in pieces of this size: as long a file is made, which its header says in MiB.
const RESERVE_BYTES: u64 = 1 << 20;

/// Of the frame that ends a flush.
const FLUSHED_BYTES: u64 = frame::FRAME_BYTES as u64;

/// A buffer that grew beyond this for one flush shrinks again.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

#[derive(Debug)]
pub struct Writer {
    options: LogOptions,
    lock: File,
    /// All that are there, the current one last.
    segments: BTreeMap<u64, Segment>,
    number: u64,
    mark: u32,
    /// Made by the first flush.
    file: Option<Arc<File>>,
    /// Of the current file.
    end: u64,
    reserved: u64,
    /// Whole frames, not yet written.
    buffer: Vec<u8>,
    synced: Arc<Synced>,
    syncer: Option<Syncer>,
}

impl Writer {
    pub(super) fn new(recovery: Recovery) -> Self {
        let Recovery { options, lock, segments, synced, .. } = recovery;
        let number = recovery.next_number;
        let mut writer = Self {
            options,
            lock,
            segments,
            number,
            mark: 0,
            file: None,
            end: 0,
            reserved: 0,
            buffer: Vec::new(),
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
        frame::put_record(&mut self.buffer, record, self.mark, self.synced.position());
        let snapshot = match record {
            Record::Chunk(chunk) if kind == Kind::Base => Some(chunk.snapshot),
            Record::Entry(_) | Record::Chunk(_) => None,
        };
        self.current().note(kind, index, snapshot);
    }

    /// Voids all entries after this one, flushed or not; after 0 the chunks as well.
    pub fn truncate(&mut self, after: u64) {
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
        self.reserve(&file, end)?;
        // A file that is full is cut to its end once that is on disk.
        let cut = full && self.options.fsync == Fsync::Always;
        let file_bytes = if cut { end } else { end.max(self.reserved) };
        frame::put_flushed(&mut self.buffer, file_bytes, self.mark, self.synced.position());
        file.write_all_at(&self.buffer, self.end).map_err(|error| self.named(error))?;
        if self.options.fsync == Fsync::Always {
            file.sync_data().map_err(|error| self.named(error))?;
        }
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        let upto = Position::new(self.number, self.end);
        match self.options.fsync {
            Fsync::Always => self.synced.advance(upto),
            Fsync::Background(_) => self.report(file, upto, Vec::new())?,
            Fsync::Never if full => self.report(file, upto, Vec::new())?,
            Fsync::Never => {}
        }
        if full {
            // Of no consequence if it fails: reserved room is read as such.
            let _ = self.file.as_ref().filter(|_| cut).map(|file| file.set_len(self.end));
            self.current().end = self.end;
            self.begin_segment(self.number + 1);
        }
        Ok(())
    }

    /// All chunks of this snapshot were appended: what it covers may go (LOG-4).
    pub fn snapshot_done(&mut self, snapshot: u64) -> Result<(), LogError> {
        let begins = self.segments.iter().find_map(|(number, segment)| {
            let found = segment.snapshots.iter().find(|(found, _)| *found == snapshot)?;
            Some((*number, found.1))
        });
        let Some((first, as_of)) = begins else { return Ok(()) };
        frame::put_done(&mut self.buffer, snapshot, as_of, self.mark, self.synced.position());
        self.flush()?;
        let older = self.segments.range(..first);
        let covered = older.take_while(|(_, segment)| segment.last_index <= as_of);
        let numbers: Vec<u64> = covered.map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let paths = numbers.iter().map(|number| path_of(&self.options.folder, *number)).collect();
        for number in numbers {
            self.segments.remove(&number);
        }
        let (file, upto) = match &self.file {
            Some(file) => (Arc::clone(file), Position::new(self.number, self.end)),
            // The last flush filled the segment before this one; that one is being synced.
            None => {
                let before = self.segments.range(..self.number).next_back();
                let (number, segment) = before.expect("it holds the snapshot");
                let file = File::open(&segment.path).map_err(|error| self.named(error))?;
                (Arc::new(file), Position::new(*number, segment.end))
            }
        };
        self.report(file, upto, paths)
    }

    /// For an orderly end: everything on disk, whatever the policy.
    pub fn close(mut self) -> Result<(), LogError> {
        self.flush()?;
        self.syncer = None;
        self.check_synced()?;
        if let Some(file) = self.file.clone() {
            self.end_file(&file).map_err(|error| self.named(error))?;
        }
        Ok(())
    }

    /// Its last word says that all before it is on disk: whatever is wrong there later is damage.
    fn end_file(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()?;
        let (mut word, synced) = (Vec::new(), Position::new(self.number, self.end));
        let end = self.end + FLUSHED_BYTES;
        frame::put_flushed(&mut word, end, self.mark, synced);
        file.write_all_at(&word, self.end)?;
        file.set_len(end)?;
        file.sync_all()?;
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
        self.mark = random_mark();
        self.file = None;
        self.end = HEADER_BYTES as u64;
        self.reserved = 0;
    }

    fn opened(&mut self) -> Result<Arc<File>, LogError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = self.make_file().map_err(|error| self.named(error))?;
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    fn make_file(&mut self) -> io::Result<Arc<File>> {
        let path = path_of(&self.options.folder, self.number);
        let fresh = self.options.folder.join("new-segment");
        let options =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).clone();
        let file = options.open(&fresh)?;
        let made = fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_ok();
        self.reserved = if made { RESERVE_BYTES } else { 0 };
        let before = self.segments.range(..self.number).next_back();
        let header = Header {
            cluster: self.options.cluster,
            shard: self.options.shard,
            number: self.number,
            synced: self.synced.position(),
            mark: self.mark,
            before: before.map_or(0, |(_, segment)| segment.end),
            boot: self.options.boot,
            made: u16::from(made),
        };
        file.write_all_at(&header.encode(), 0)?;
        if self.options.fsync != Fsync::Never {
            file.sync_data()?;
        }
        std::fs::rename(&fresh, &path)?;
        if self.options.fsync != Fsync::Never {
            self.lock.sync_all()?;
        }
        Ok(Arc::new(file))
    }

    fn reserve(&mut self, file: &File, end: u64) -> Result<(), LogError> {
        if end <= self.reserved {
            return Ok(());
        }
        let upto = end.next_multiple_of(RESERVE_BYTES);
        match fallocate(file, FallocateFlags::empty(), self.end, upto - self.end) {
            Ok(()) => self.reserved = upto,
            // What does not know how to reserve, or has not as much as that, may still take the records.
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => {}
            Err(error) => return Err(self.named(error.into())),
        }
        Ok(())
    }

    fn report(
        &mut self,
        file: Arc<File>,
        upto: Position,
        then_remove: Vec<std::path::PathBuf>,
    ) -> Result<(), LogError> {
        if self.syncer.is_none() {
            let every = match self.options.fsync {
                Fsync::Background(every) => every,
                Fsync::Always | Fsync::Never => Duration::ZERO,
            };
            let syncer = Syncer::start(every, Arc::clone(&self.synced));
            self.syncer = Some(syncer.map_err(|error| self.named(error))?);
        }
        let path = path_of(&self.options.folder, upto.segment());
        let syncer = self.syncer.as_ref().expect("it was just started");
        syncer.report(Dirty { file, path, upto, then_remove });
        Ok(())
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

/// Four bytes, none of them zero: room that was reserved is no frame.
fn random_mark() -> u32 {
    let mut bytes = [0; 4];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(got, Ok(bytes.len()), "the kernel gives four random bytes at once");
    u32::from_le_bytes(bytes.map(|byte| byte.max(1)))
}
