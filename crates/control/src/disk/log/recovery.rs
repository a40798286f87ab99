//! Reading a log again: which of it is good, and its records.
//!
//! # Where it ends
//! Reading stops at the first place that is no frame, where a file is shorter than it was made or than the next one says, and
//! where a file is missing: one between others, or the newest, of which a file beside them speaks (`newest`).
//! What that means, the good frames behind it tell:
//!
//! | behind the bad place | the machine ran on | it was started since |
//! |---|---|---|
//! | a frame that says it was synced | damage | damage |
//! | other frames, or a file that was cut | damage | lost with the machine: cut off |
//! | nothing | a flush that was not finished: cut off | the same |
//!
//! Damage is refused, unless the caller takes the loss ([`Recovery::open_with_loss`]). What is cut off lies in a folder
//! beside the log afterwards, is counted and told, and the log goes on from there without a gap in the numbers of its segments.
//!
//! # What is read
//! The last snapshot that was complete is where a log begins: with its first chunk, the base. Before it may lie
//! older entries, of which those count that it does not cover (they were pending when it was made), and
//! remains of older snapshots, which do not count. The older entries are given out right after the base, where a
//! log without remains would have them. What is given out has no gaps: a file that was taken away is
//! found.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hoplo_wire::control::{Chunk, Record};

use super::files::{Files, LogFile, OsFiles};
use super::frame::{BadHeader, FORMAT, FRAME_BYTES, Frame, Header, Kind, Position, put_flushed};
use super::newest::Newest;
use super::segment::{Behind, FrameReader, Segment, Step, list, name_of, path_of};
use super::writer::Writer;
use super::{Fsync, LogError, LogOptions, Lost};

/// A log that was found to be in order.
#[derive(Debug)]
pub struct Recovery {
    pub(super) options: LogOptions,
    pub(super) files: Arc<dyn Files>,
    pub(super) segments: BTreeMap<u64, Segment>,
    /// What does not count before a position: entries after this index.
    truncations: Vec<(Position, u64)>,
    /// First chunks: where, of which snapshot, and what it is as of.
    bases: Vec<(Position, u64, u64)>,
    /// The last snapshot that was complete; absent: the first one is the base.
    done: Option<u64>,
    pub cut: Option<Cut>,
    /// Nothing before this counts.
    begin: Position,
    /// The last record took back all entries, there. If a base comes next, it is in place of the one before as well.
    all_truncated: Option<Position>,
    /// The last good segment is of this start of the machine.
    ran_on: bool,
    /// Segments of which a dying machine did not keep the room that was reserved.
    shortened: Vec<u64>,
    /// What is known to be on disk.
    pub(super) synced: Position,
    newest: Option<Newest>,
    pub(super) next_number: u64,
}

/// What the last process began to write and did not finish, or what a failing machine or disk did not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub path: PathBuf,
    pub offset: u64,
    pub lost: Lost,
    pub why: String,
    /// Where it lies now.
    pub aside: PathBuf,
}

/// What becomes of a log that lost what it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Refused,
    SetAside,
}

/// A place in the log that is no frame.
struct Bad {
    at: Position,
    path: PathBuf,
    why: String,
    behind: Behind,
    /// Files that are known to have been written since the machine was started.
    this_boot: bool,
    /// A file, or a part of one, is gone.
    short: bool,
}

impl Bad {
    fn new(at: Position, path: &Path, why: impl Into<String>) -> Self {
        let (path, why, behind) = (path.to_path_buf(), why.into(), Behind::default());
        Self { at, path, why, behind, this_boot: false, short: false }
    }

    /// It was acknowledged, and is not there any more.
    fn is_damage(&self) -> bool {
        let synced = self.behind.claim.is_some_and(|claim| claim > self.at);
        synced || (self.this_boot && (self.behind.frames > 0 || self.short))
    }
}

impl Recovery {
    /// The folder is made if it is not there.
    pub fn open(options: LogOptions) -> Result<Self, LogError> {
        let files = Arc::new(OsFiles::open(&options.folder)?);
        Self::open_as(options, files, Damage::Refused)
    }

    /// With other files than the system's.
    pub fn open_in(files: Arc<dyn Files>, options: LogOptions) -> Result<Self, LogError> {
        Self::open_as(options, files, Damage::Refused)
    }

    /// Whatever lies behind a damaged place is set aside: `cut` says what that was.
    pub fn open_with_loss(options: LogOptions) -> Result<Self, LogError> {
        let files = Arc::new(OsFiles::open(&options.folder)?);
        Self::open_as(options, files, Damage::SetAside)
    }

    fn open_as(
        options: LogOptions,
        files: Arc<dyn Files>,
        damage: Damage,
    ) -> Result<Self, LogError> {
        let folder = options.folder.clone();
        let named = |error| LogError::Io { path: folder.clone(), error };
        let mut numbers = list(&*files).map_err(named)?;
        let there = numbers.last().copied();
        let unused = unused(&*files, &numbers).map_err(named)?;
        if unused.is_some() {
            // Its name and number are used again.
            numbers.pop();
        }
        let next_number = numbers.last().map_or(1, |number| number + 1);
        let mut recovery = Self {
            options,
            files,
            segments: BTreeMap::new(),
            truncations: Vec::new(),
            bases: Vec::new(),
            done: None,
            cut: None,
            begin: Position::default(),
            all_truncated: None,
            ran_on: false,
            shortened: Vec::new(),
            synced: unused.unwrap_or_default(),
            newest: None,
            next_number,
        };
        recovery.newest = Newest::read(&*recovery.files).map_err(named)?;
        let bad = recovery.verify(&numbers)?;
        if let Some(bad) = recovery.miss(bad, there).map_err(named)? {
            let lost = recovery.lost(&bad, &numbers).map_err(named)?;
            if bad.is_damage() && damage == Damage::Refused {
                let Bad { at, path, why, .. } = bad;
                return Err(LogError::Corrupt { path, offset: at.offset(), why, lost });
            }
            // The numbers that become free are used again: a gap would look like a segment that was taken away.
            let kept = u64::from(bad.at.offset() > 0);
            recovery.next_number = (bad.at.segment() + kept).max(1);
            recovery.cut_off(bad, lost, &numbers)?;
        }
        recovery.end_shortened()?;
        recovery.sync()?;
        recovery.note_newest(there).map_err(named)?;
        Ok(recovery)
    }

    /// In the order of the history (LOG-2).
    pub fn records(&self) -> Records<'_> {
        Records {
            recovery: self,
            base: self.base(),
            next: 1,
            segments: self.segments.keys().copied().collect::<Vec<_>>().into_iter(),
            reader: None,
            older: Vec::new(),
            ready: Vec::new(),
            snapshots: Vec::new(),
            truncations: 0,
            failed: false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.end).sum()
    }

    /// New records go into a new segment.
    pub fn into_writer(self) -> Writer {
        Writer::new(self)
    }

    /// Reads everything once; `Some`: up to where it is good.
    fn verify(&mut self, numbers: &[u64]) -> Result<Option<Bad>, LogError> {
        let mut bad: Option<Bad> = None;
        let mut last: Option<u64> = None;
        for number in numbers {
            let path = &path_of(&self.options.folder, *number);
            let named = |error| LogError::Io { path: path.clone(), error };
            let file = self.files.open(&name_of(*number)).map_err(named)?;
            let mut reader = match FrameReader::open(Arc::clone(&file)).map_err(named)? {
                Ok(reader) => reader,
                Err(BadHeader::Format(found)) => {
                    return Err(LogError::Newer { path: path.clone(), found, ours: FORMAT });
                }
                Err(BadHeader::Damaged) => {
                    let at = Position::new(*number, 0);
                    let bad = bad.get_or_insert(Bad::new(at, path, "it does not begin like a log"));
                    let reader = FrameReader::open_damaged(file, *number).map_err(named)?;
                    // A file gets its name when it has a header; only a machine that dies can lose that.
                    let unsynced = self.options.fsync == Fsync::Never && !self.ran_on;
                    bad.short |= !unsynced || !reader.has_blank_header().map_err(named)?;
                    bad.this_boot |= bad.short;
                    bad.behind.add(reader.behind().map_err(named)?);
                    last = Some(*number);
                    continue;
                }
            };
            self.check_identity(&reader, path)?;
            if reader.header.number != *number {
                let why = format!("its header says segment {}", reader.header.number);
                let it = Bad::new(Position::new(*number, 0), path, why);
                bad.get_or_insert(Bad { short: true, ..it });
            } else if let Some(missing) = last.map(|last| last + 1).filter(|next| next != number) {
                let why = format!("segment {missing} is missing before it");
                let it = Bad::new(Position::new(missing, 0), path, why);
                bad.get_or_insert(Bad { short: true, ..it });
            }
            if bad.is_none() {
                bad = self.ends_early(reader.before().map_err(named)?);
            }
            last = Some(*number);
            if let Some(bad) = &mut bad {
                // Nothing is used any more; what do those behind it say?
                bad.this_boot |= self.is_this_boot(&reader);
                bad.behind.claim = bad.behind.claim.max(Some(reader.header.synced));
                while let Step::Frame(frame) = reader.step().map_err(named)? {
                    bad.behind.note(&frame);
                }
                bad.behind.add(reader.behind().map_err(named)?);
                continue;
            }
            bad = self.verify_segment(*number, path, &mut reader)?;
        }
        Ok(bad)
    }

    /// What there was and is not there any more: the newest segment, which no other one speaks of. `there` is the last one
    /// that is.
    fn miss(&self, bad: Option<Bad>, there: Option<u64>) -> io::Result<Option<Bad>> {
        let Some(newest) = self.newest.filter(|newest| newest.number > there.unwrap_or(0)) else {
            return Ok(bad);
        };
        let first = self.segments.keys().next_back().or(there.as_ref());
        let at = Position::new(first.map_or(newest.number, |last| last + 1), 0);
        let path = path_of(&self.options.folder, newest.number);
        let why = "this file was begun, and is not there any more";
        let mut bad = bad.unwrap_or_else(|| Bad::new(at, &path, why));
        bad.short = true;
        bad.this_boot |= newest.boot != 0 && newest.boot == self.options.boot;
        let claim = newest.synced.then(|| newest.header());
        bad.behind.claim = bad.behind.claim.max(claim);
        Ok(Some(bad))
    }

    /// From now on it would be missed, though it was not yet when it was made.
    fn note_newest(&mut self, there: Option<u64>) -> io::Result<()> {
        let last = self.segments.keys().next_back().copied();
        let number = if self.cut.is_some() { last } else { there }.unwrap_or(0);
        let noted = self.newest.map_or(0, |newest| newest.number);
        if noted < number { self.says_newest(number) } else { Ok(()) }
    }

    fn says_newest(&mut self, number: u64) -> io::Result<()> {
        let newest = Newest { number, boot: self.options.boot, synced: true, mark: 0 };
        newest.write(&*self.files)?;
        self.newest = Some(newest);
        Ok(())
    }

    fn is_this_boot(&self, reader: &FrameReader) -> bool {
        reader.header.boot != 0 && reader.header.boot == self.options.boot
    }

    /// `before`: where the last segment ended, according to the next one.
    fn ends_early(&self, before: u64) -> Option<Bad> {
        let (number, last) = self.segments.last_key_value()?;
        (last.end < before).then(|| {
            let why = format!("it ends here, and ended at {before} when the next segment began");
            let bad = Bad::new(Position::new(*number, last.end), &last.path, why);
            Bad { short: true, ..bad }
        })
    }

    fn verify_segment(
        &mut self,
        number: u64,
        path: &Path,
        reader: &mut FrameReader,
    ) -> Result<Option<Bad>, LogError> {
        let named = |error| LogError::Io { path: path.to_path_buf(), error };
        let mut segment = Segment { path: path.to_path_buf(), ..Segment::default() };
        self.synced = self.synced.max(reader.header.synced);
        if let Some(newest) = self.newest.filter(|newest| newest.knows(&reader.header)) {
            self.synced = self.synced.max(newest.header());
        }
        let this_boot = self.is_this_boot(reader);
        self.ran_on = this_boot;
        // Nothing before it counts, if a base comes next.
        let mut all_truncated = self.all_truncated.take();
        // How long the file was made, and where that was said first.
        let mut promised = (made_bytes(&reader.header), Position::new(number, 0));
        let bad = loop {
            let at = Position::new(number, reader.offset);
            match reader.step().map_err(named)? {
                Step::Frame(frame) => {
                    self.synced = self.synced.max(frame.synced);
                    let mut snapshot = None;
                    match frame.kind {
                        Kind::Follows => {}
                        Kind::Entry | Kind::Chunk => all_truncated = None,
                        Kind::Base => {
                            if let Some(at) = all_truncated.take() {
                                self.begins(at);
                            }
                            let number = chunk(reader.record(), path, at)?.snapshot;
                            self.bases.push((at, number, frame.index));
                            snapshot = Some(number);
                        }
                        Kind::Truncated => {
                            segment.truncate(frame.index);
                            self.truncate(at, frame.index);
                            all_truncated = (frame.index == 0).then_some(at);
                        }
                        Kind::Done => {
                            let number = reader.record().first_chunk();
                            let number = number.map(|number| u64::from_le_bytes(*number));
                            // Without its base it says nothing.
                            if self.bases.iter().any(|(_, begun, _)| Some(*begun) == number) {
                                self.done = number;
                            }
                        }
                        Kind::Flushed if frame.index == promised.0 => {}
                        Kind::Flushed => promised = (frame.index, at),
                    }
                    segment.note(frame.kind, frame.index, snapshot);
                }
                Step::End => break None,
                Step::Bad(why) => {
                    let behind = reader.behind().map_err(named)?;
                    break Some(Bad { behind, this_boot, ..Bad::new(at, path, why) });
                }
            }
        };
        self.all_truncated = all_truncated;
        let at = Position::new(number, reader.offset);
        let (bytes, said) = promised;
        let bad = if reader.len < bytes && (this_boot || said < self.synced) {
            let why = format!("the file is {} bytes long, and was {bytes}", reader.len);
            let behind = bad.map(|bad| bad.behind).unwrap_or_default();
            // Which was on disk, if it was not this boot.
            Some(Bad { behind, this_boot: true, short: true, ..Bad::new(at, path, why) })
        } else {
            self.shortened.extend((reader.len < bytes && bad.is_none()).then_some(number));
            bad
        };
        segment.end = reader.offset;
        self.segments.insert(number, segment);
        Ok(bad)
    }

    fn truncate(&mut self, at: Position, after: u64) {
        self.segments.values_mut().for_each(|segment| segment.truncate(after));
        self.truncations.push((at, after));
    }

    /// Another base comes in place of all that was before.
    fn begins(&mut self, at: Position) {
        self.begin = at;
        self.bases.clear();
        self.done = None;
    }

    /// Where the snapshot begins that everything is based on, and what it is as of.
    fn base(&self) -> Option<(Position, u64)> {
        let done = self.bases.iter().rfind(|(_, number, _)| Some(*number) == self.done);
        done.or(self.bases.first()).map(|(at, _, as_of)| (*at, *as_of))
    }

    fn check_identity(&self, reader: &FrameReader, path: &Path) -> Result<(), LogError> {
        let (header, options) = (&reader.header, &self.options);
        if (header.cluster, header.shard) == (options.cluster, options.shard) {
            return Ok(());
        }
        Err(LogError::Foreign {
            path: path.to_path_buf(),
            found: header.cluster.0,
            found_shard: header.shard.0,
            ours: options.cluster.0,
            our_shard: options.shard.0,
        })
    }

    /// The last ones first: whatever happens meanwhile, a beginning of the log is left.
    fn cut_off(&mut self, bad: Bad, lost: Lost, numbers: &[u64]) -> Result<(), LogError> {
        let aside = new_aside(&*self.files).map_err(|error| self.named(error))?;
        for number in numbers.iter().rev() {
            let path = path_of(&self.options.folder, *number);
            let named = |error| LogError::Io { path: path.clone(), error };
            let name = name_of(*number);
            let to = format!("{aside}/{name}");
            if is_behind(&bad, *number) {
                self.files.rename(&name, &to).map_err(named)?;
            } else if *number == bad.at.segment() {
                let offset = bad.at.offset();
                let file = self.files.open(&name).map_err(named)?;
                let to = self.files.create(&format!("{to}.{offset}")).map_err(named)?;
                to.write_at(&used_from(&*file, offset).map_err(named)?, 0).map_err(named)?;
                to.sync().map_err(named)?;
                let end = end_at(file, offset).map_err(named)?;
                self.segments.entry(*number).and_modify(|segment| segment.end = end);
            }
        }
        let number = self.segments.keys().next_back().copied().unwrap_or(0);
        self.says_newest(number).map_err(|error| self.named(error))?;
        let (path, offset, why) = (bad.path, bad.at.offset(), bad.why);
        let aside = self.options.folder.join(aside);
        self.cut = Some(Cut { path, offset, lost, why, aside });
        Ok(())
    }

    /// They say how long they are: whatever is missing of them later is damage.
    fn end_shortened(&mut self) -> Result<(), LogError> {
        for number in std::mem::take(&mut self.shortened) {
            let Some(segment) = self.segments.get_mut(&number) else { continue };
            let named = |error| LogError::Io { path: segment.path.clone(), error };
            let file = self.files.open(&name_of(number)).map_err(named)?;
            segment.end = end_at(file, segment.end).map_err(named)?;
        }
        Ok(())
    }

    fn lost(&self, bad: &Bad, numbers: &[u64]) -> io::Result<Lost> {
        let mut bytes = 0;
        for number in numbers {
            let from = match *number {
                number if is_behind(bad, number) => 0,
                number if number == bad.at.segment() => bad.at.offset(),
                _ => continue,
            };
            bytes += used_from(&*self.files.open(&name_of(*number))?, from)?.len() as u64;
        }
        Ok(Lost { bytes, records: bad.behind.records })
    }

    /// What comes after may say that all of this is on disk.
    fn sync(&mut self) -> Result<(), LogError> {
        for (number, segment) in &self.segments {
            let end = Position::new(*number, segment.end);
            if end > self.synced {
                let named = |error| LogError::Io { path: segment.path.clone(), error };
                self.files.open(&name_of(*number)).and_then(|file| file.sync()).map_err(named)?;
                self.synced = end;
            }
        }
        self.files.sync().map_err(|error| self.named(error))
    }

    fn named(&self, error: io::Error) -> LogError {
        LogError::Io { path: self.options.folder.clone(), error }
    }
}

/// The records of a log, one by one; after an error nothing more comes.
pub struct Records<'a> {
    recovery: &'a Recovery,
    base: Option<(Position, u64)>,
    /// The entry that must come next.
    next: u64,
    segments: std::vec::IntoIter<u64>,
    reader: Option<(u64, FrameReader)>,
    /// Entries before the base that come after what it is as of, and where they lie.
    older: Vec<(Position, Record)>,
    /// Next to be given out, last first.
    ready: Vec<(Position, Record)>,
    /// Whose bases were read: chunks of others are remains.
    snapshots: Vec<u64>,
    /// So many truncations lie behind us.
    truncations: usize,
    failed: bool,
}

impl Iterator for Records<'_> {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_record().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl Records<'_> {
    fn next_record(&mut self) -> Result<Option<Record>, LogError> {
        loop {
            if let Some((at, record)) = self.ready.pop() {
                return self.in_order(at, record).map(Some);
            }
            let Some((number, mut reader)) = self.reader.take() else {
                let Some(number) = self.segments.next() else { return Ok(None) };
                let path = &self.recovery.segments[&number].path;
                let named = |error| LogError::Io { path: path.clone(), error };
                let file = self.recovery.files.open(&name_of(number)).map_err(named)?;
                let reader = FrameReader::open(file).map_err(named)?;
                let reader = reader.map_err(|_| changed(path, 0))?;
                self.reader = Some((number, reader));
                continue;
            };
            let segment = &self.recovery.segments[&number];
            let at = Position::new(number, reader.offset);
            if at.offset() == segment.end {
                continue;
            }
            let named = |error| LogError::Io { path: segment.path.clone(), error };
            let Step::Frame(frame) = reader.step().map_err(named)? else {
                return Err(changed(&segment.path, at.offset()));
            };
            let taken = self.take(at, frame, reader.record(), &segment.path)?;
            self.reader = Some((number, reader));
            if let Some(record) = taken {
                return self.in_order(at, record).map(Some);
            }
        }
    }

    fn in_order(&mut self, at: Position, record: Record) -> Result<Record, LogError> {
        match &record {
            Record::Entry(entry) if entry.index != self.next => {
                let path = self.recovery.segments[&at.segment()].path.clone();
                let why = format!("entry {} is here where {} should be", entry.index, self.next);
                return Err(damaged(&path, at.offset(), why));
            }
            Record::Entry(_) => self.next = self.next.saturating_add(1),
            Record::Chunk(chunk) => self.next = self.next.max(chunk.as_of.saturating_add(1)),
        }
        Ok(record)
    }

    /// `None`: it is not given out, or not yet.
    fn take(
        &mut self,
        at: Position,
        frame: Frame,
        bytes: &[u8],
        path: &Path,
    ) -> Result<Option<Record>, LogError> {
        let remains = at < self.recovery.begin || self.base.is_some_and(|(base, _)| at < base);
        match frame.kind {
            Kind::Truncated | Kind::Done | Kind::Flushed | Kind::Follows => Ok(None),
            Kind::Entry if at < self.recovery.begin || frame.index > self.truncated_after(at) => {
                Ok(None)
            }
            Kind::Entry if remains => {
                if self.base.is_some_and(|(_, as_of)| frame.index > as_of) {
                    self.older.push((at, decode(bytes, path, at)?));
                }
                Ok(None)
            }
            Kind::Base | Kind::Chunk if remains => Ok(None),
            Kind::Entry => decode(bytes, path, at).map(Some),
            Kind::Base => {
                let chunk = chunk(bytes, path, at)?;
                self.snapshots.push(chunk.snapshot);
                self.ready = std::mem::take(&mut self.older);
                self.ready.reverse();
                Ok(Some(Record::Chunk(chunk)))
            }
            Kind::Chunk => {
                let chunk = chunk(bytes, path, at)?;
                let begun = self.snapshots.contains(&chunk.snapshot);
                Ok(begun.then_some(Record::Chunk(chunk)))
            }
        }
    }

    /// The last index that counts, of the entries before here.
    fn truncated_after(&mut self, at: Position) -> u64 {
        let truncations = &self.recovery.truncations;
        while truncations.get(self.truncations).is_some_and(|(passed, _)| *passed < at) {
            self.truncations += 1;
        }
        let ahead = truncations[self.truncations..].iter().map(|(_, after)| *after);
        ahead.min().unwrap_or(u64::MAX)
    }
}

/// Moves all segments into a new folder beside them: a replica that re-syncs begins a new log, and
/// somebody may want to look at the old one.
pub fn set_aside(folder: &Path) -> Result<PathBuf, LogError> {
    let named = |error| LogError::Io { path: folder.to_path_buf(), error };
    let aside = set_aside_in(&OsFiles::open(folder)?).map_err(named)?;
    Ok(folder.join(aside))
}

/// The name of the new folder.
pub fn set_aside_in(files: &dyn Files) -> io::Result<String> {
    let aside = new_aside(files)?;
    // The newest first: as long as any is left, what `newest` speaks of is missed.
    for number in list(files)?.into_iter().rev() {
        let name = name_of(number);
        files.rename(&name, &format!("{aside}/{name}"))?;
    }
    Newest::forget(files)?;
    files.sync()?;
    Ok(aside)
}

/// A folder for what is not used any more.
fn new_aside(files: &dyn Files) -> io::Result<String> {
    let mut number = 1;
    loop {
        let aside = format!("aside-{number}");
        match files.make_folder(&aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
            Ok(()) => return Ok(aside),
        }
    }
}

/// The last one was made ahead of its use, and never was: what was synced when it was made.
fn unused(files: &dyn Files, numbers: &[u64]) -> io::Result<Option<Position>> {
    let [.., before, last] = *numbers else { return Ok(None) };
    let Ok(reader) = FrameReader::open(files.open(&name_of(last))?)? else { return Ok(None) };
    let follows = before + 1 == last && reader.header.before == 0;
    // One that was used and is cut to its header is shorter than it was made.
    let whole = reader.len >= made_bytes(&reader.header);
    let unused = follows && whole && reader.header.number == last && reader.is_blank()?;
    Ok(unused.then_some(reader.header.synced))
}

/// So long the file was made; 0: no room was reserved.
fn made_bytes(header: &Header) -> u64 {
    u64::from(header.made) << 20
}

/// All of this file is cut off.
fn is_behind(bad: &Bad, number: u64) -> bool {
    number > bad.at.segment() || bad.at.offset() == 0 && number == bad.at.segment()
}

/// Cuts a segment, and says in it that it ends there; first that: a file that is shorter than it says has lost something.
fn end_at(file: Arc<dyn LogFile>, offset: u64) -> io::Result<u64> {
    let mark = match FrameReader::open(Arc::clone(&file))? {
        Ok(reader) => reader.header.mark,
        Err(_) => return Err(io::Error::other("its header changed while it was read")),
    };
    let mut word = Vec::new();
    let end = offset + FRAME_BYTES as u64;
    put_flushed(&mut word, end, mark, Position::default());
    file.write_at(&word, offset)?;
    file.sync()?;
    file.set_len(end)?;
    file.sync()?;
    Ok(end)
}

/// All of it, but for the zeros at the end.
fn used_from(file: &dyn LogFile, offset: u64) -> io::Result<Vec<u8>> {
    let left = file.len()?.saturating_sub(offset);
    let mut bytes = vec![0; usize::try_from(left).map_err(io::Error::other)?];
    let got = file.read_at(&mut bytes, offset)?;
    bytes.truncate(got);
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    Ok(bytes)
}

fn decode(bytes: &[u8], path: &Path, at: Position) -> Result<Record, LogError> {
    postcard::from_bytes(bytes).map_err(|error| {
        let why = format!("its checksum is right, but it is no record ({error})");
        damaged(path, at.offset(), why)
    })
}

fn chunk(bytes: &[u8], path: &Path, at: Position) -> Result<Chunk, LogError> {
    match decode(bytes, path, at)? {
        Record::Chunk(chunk) => Ok(chunk),
        Record::Entry(_) => Err(damaged(path, at.offset(), "it is no chunk".to_string())),
    }
}

fn changed(path: &Path, offset: u64) -> LogError {
    damaged(path, offset, "it changed while it was read".to_string())
}

/// Found at a record whose checksum is right: nothing behind it was counted.
fn damaged(path: &Path, offset: u64, why: String) -> LogError {
    LogError::Corrupt { path: path.to_path_buf(), offset, why, lost: Lost::default() }
}
