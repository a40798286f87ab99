//! Segment files: their names, and reading the frames of one.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hoplo_wire::control::{ClusterId, ShardId};

use super::files::{Files, LogFile};
use super::frame::{
    BadHeader, FRAME_BYTES, Frame, HEADER_BYTES, Header, Kind, Position, SEGMENT_MAX,
};

/// What is read at once: it stays in the processor's cache.
const BUFFER_BYTES: usize = 1 << 17;

/// What is known of one segment file without reading it again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// Where its last good frame ends.
    pub(crate) end: u64,
    /// The highest index of an entry in it.
    pub(crate) last_index: u64,
    /// Snapshots whose first chunk is in it, and what they are as of.
    pub(crate) snapshots: Vec<(u64, u64)>,
}

pub(crate) fn name_of(number: u64) -> String {
    format!("log-{number:016}")
}

pub(crate) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(name_of(number))
}

/// The segments in a folder by their numbers, in order.
pub(crate) fn list(files: &dyn Files) -> io::Result<Vec<u64>> {
    let number = |name: String| name.strip_prefix("log-").and_then(|number| number.parse().ok());
    let mut found: Vec<u64> = files.names()?.into_iter().filter_map(number).collect();
    found.retain(|number| *number <= SEGMENT_MAX);
    found.sort_unstable();
    Ok(found)
}

/// What comes next in a segment.
#[derive(Debug)]
pub(crate) enum Step {
    /// Its bytes are in [`FrameReader::record`].
    Frame(Frame),
    /// Nothing but room that was reserved.
    End,
    /// What is there is no frame.
    Bad(&'static str),
}

/// Good frames behind a place that is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The highest position that one of them claims to be synced.
    pub(crate) claim: Option<Position>,
    pub(crate) frames: u64,
    /// Those that hold something.
    pub(crate) records: u64,
}

impl Behind {
    pub(crate) fn note(&mut self, frame: &Frame) {
        self.claim = self.claim.max(Some(frame.synced));
        self.frames += 1;
        self.records += u64::from(match frame.kind {
            Kind::Entry | Kind::Base | Kind::Chunk => true,
            Kind::Truncated | Kind::Done | Kind::Flushed | Kind::Follows => false,
        });
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.claim = self.claim.max(more.claim);
        self.frames += more.frames;
        self.records += more.records;
    }
}

/// Reads one segment from its beginning, one frame at a time.
pub(crate) struct FrameReader {
    file: BufReader<At>,
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) header: Header,
    frame: Vec<u8>,
}

/// Reads on from a place.
struct At {
    file: Arc<dyn LogFile>,
    at: u64,
}

impl Read for At {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(into, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl FrameReader {
    pub(crate) fn open(file: Arc<dyn LogFile>) -> io::Result<Result<Self, BadHeader>> {
        let len = file.len()?;
        let mut bytes = [0; HEADER_BYTES];
        let got = file.read_at(&mut bytes, 0)?;
        let offset = HEADER_BYTES as u64;
        let new = |header| Self::new(file, len, offset, header);
        Ok(Header::parse(&bytes[..got]).map(new))
    }

    fn new(file: Arc<dyn LogFile>, len: u64, offset: u64, header: Header) -> Self {
        let capacity = BUFFER_BYTES.min(usize::try_from(len).unwrap_or(BUFFER_BYTES));
        let file = BufReader::with_capacity(capacity, At { file, at: offset });
        Self { file, len, offset, header, frame: vec![] }
    }

    /// Where the segment before this one ended, as this one says.
    pub(crate) fn before(&self) -> io::Result<u64> {
        let first = self.frame_at(HEADER_BYTES as u64)?;
        let follows = first.filter(|(frame, _)| frame.kind == Kind::Follows);
        Ok(follows.map_or(self.header.before, |(frame, _)| frame.index))
    }

    /// After anything but a frame this is not to be asked again.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        let left = self.len - self.offset;
        if left < FRAME_BYTES as u64 {
            return self.end_or("a frame is cut off");
        }
        self.frame.resize(FRAME_BYTES, 0);
        self.file.read_exact(&mut self.frame)?;
        let fixed = self.frame.first_chunk().expect("it was just read");
        let Some(frame) = Frame::parse(fixed, self.header.mark) else {
            return self.end_or("no frame begins here");
        };
        let whole = FRAME_BYTES + frame.bytes;
        if whole as u64 > left {
            return Ok(Step::Bad("a record is cut off"));
        }
        self.frame.resize(whole, 0);
        self.file.read_exact(&mut self.frame[FRAME_BYTES..])?;
        if !Frame::is_whole(&self.frame, self.header.mark) {
            return Ok(Step::Bad("a checksum is wrong"));
        }
        self.offset += whole as u64;
        Ok(Step::Frame(frame))
    }

    /// Of the last frame.
    pub(crate) fn record(&self) -> &[u8] {
        &self.frame[FRAME_BYTES..]
    }

    /// A file that does not begin as it should: its frames all begin with the same mark, if it has any.
    pub(crate) fn open_damaged(file: Arc<dyn LogFile>, number: u64) -> io::Result<Self> {
        let len = file.len()?;
        let mut first = [0; 4];
        file.read_at(&mut first, HEADER_BYTES as u64)?;
        let header = Header {
            cluster: ClusterId(0),
            shard: ShardId(0),
            number,
            synced: Position::default(),
            mark: u32::from_le_bytes(first),
            before: 0,
            boot: 0,
            made: 0,
        };
        Ok(Self::new(file, len, 0, header))
    }

    /// The good frames behind the current, bad place.
    pub(crate) fn behind(&self) -> io::Result<Behind> {
        let (file, mark) = (&self.file.get_ref().file, self.header.mark.to_le_bytes());
        let mut behind = Behind::default();
        if mark == [0; 4] {
            return Ok(behind);
        }
        let mut window = vec![0; self.window_bytes()];
        let mut start = self.offset + 1;
        while start < self.len {
            let got = file.read_at(&mut window, start)?;
            let found = window[..got].windows(mark.len()).position(|bytes| bytes == mark);
            start = match found {
                Some(at) => {
                    let at = start + at as u64;
                    match self.frame_at(at)? {
                        Some((frame, bytes)) => {
                            behind.note(&frame);
                            at + bytes
                        }
                        None => at + 1,
                    }
                }
                // A mark may begin at the end of this window.
                None => start + (got.saturating_sub(mark.len() - 1)).max(1) as u64,
            };
        }
        Ok(behind)
    }

    /// Nothing but zeros: it was never written, or no byte of it reached the disk.
    pub(crate) fn is_blank(&self) -> io::Result<bool> {
        Ok(matches!(self.end_or("")?, Step::End))
    }

    /// A disk keeps all of it or nothing, whatever it keeps of what follows.
    pub(crate) fn has_blank_header(&self) -> io::Result<bool> {
        let mut header = [0; HEADER_BYTES];
        self.file.get_ref().file.read_at(&mut header, 0)?;
        Ok(header == [0; HEADER_BYTES])
    }

    fn window_bytes(&self) -> usize {
        let least = 2 * FRAME_BYTES;
        usize::try_from(self.len).unwrap_or(BUFFER_BYTES).clamp(least, BUFFER_BYTES)
    }

    fn frame_at(&self, at: u64) -> io::Result<Option<(Frame, u64)>> {
        let file = &self.file.get_ref().file;
        let mut bytes = vec![0; FRAME_BYTES];
        if file.read_at(&mut bytes, at)? < FRAME_BYTES {
            return Ok(None);
        }
        let fixed = bytes.first_chunk().expect("it is as long as that");
        let Some(frame) = Frame::parse(fixed, self.header.mark) else { return Ok(None) };
        let whole = FRAME_BYTES + frame.bytes;
        if at + whole as u64 > self.len {
            return Ok(None);
        }
        bytes.resize(whole, 0);
        file.read_at(&mut bytes, at)?;
        Ok(Frame::is_whole(&bytes, self.header.mark).then_some((frame, whole as u64)))
    }

    fn end_or(&self, bad: &'static str) -> io::Result<Step> {
        let mut window = vec![0; self.window_bytes()];
        let mut at = self.offset;
        while at < self.len {
            let got = self.file.get_ref().file.read_at(&mut window, at)?;
            if got == 0 || !is_zero(&window[..got]) {
                return Ok(Step::Bad(bad));
            }
            at += got as u64;
        }
        Ok(Step::End)
    }
}

/// In pieces, since a loop that may end at every byte takes one byte at a time.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(256).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

impl Segment {
    /// Another record lies in it; `snapshot` is the one that begins with it.
    pub(crate) fn note(&mut self, kind: Kind, index: u64, snapshot: Option<u64>) {
        match kind {
            Kind::Entry => self.last_index = self.last_index.max(index),
            Kind::Base => self.snapshots.extend(snapshot.map(|snapshot| (snapshot, index))),
            Kind::Chunk | Kind::Truncated | Kind::Done | Kind::Flushed | Kind::Follows => {}
        }
    }

    /// A truncation lies behind it.
    pub(crate) fn truncate(&mut self, after: u64) {
        self.last_index = self.last_index.min(after);
    }
}
