//! The bytes of a log: a header for each segment file, a frame for each record.
//!
//! ```text
//! segment: magic 8 | format u32 | sum u32 | cluster u128 | number u32 | boot u32 | synced u64 | mark u32 | shard u16 | made u16 | before u64
//! frame:   mark u32 | sum u32 | bytes u32 | kind u32 | index u64 | synced u64 | record in postcard
//! ```
//! All numbers are little-endian; `sum` is the lower half of xxh3 over what follows it, seeded with the mark.
//! The **mark** is random for each segment, so that no bytes of a user's value, nor the remains of another
//! segment, look like a frame: after damage the next good frame is found by it.
//! **synced** says up to which [`Position`] the log was known to be on disk when this was written. So damage
//! before that position is damage, and damage after it may be the end of an orderly life (see `recovery`).
//! The first frame of a segment (`Follows`) says where the segment before this one ended. Zeros there may be room that was reserved
//! or records that were lost, and only this tells them apart. (It is no part of the header, since a segment is made
//! while the one before it is still written; **before** is what older formats had there.)
//! **boot** is the machine's start in which the segment was made: while that lasts, the kernel keeps what it was given,
//! synced or not. Each flush ends with a frame of its own (`Flushed`), so that a record which was damaged later is told
//! from a flush that was never finished: behind the one there is a good frame.

use std::fmt;

use hoplo_base::limits::CONTROL_RECORD_BYTES_MAX;
use hoplo_wire::control::{ClusterId, Record, ShardId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Format 1 had no `Flushed`, and 0 as its boot; format 2 had no `Follows`, and said it in its header. No flipped bit makes one
/// of another: the next one is 8. From that one on `sum` is seeded with the format, so that a newer header is told from one of ours
/// in which these bytes are damaged.
pub const FORMAT: u32 = 4;
pub const HEADER_BYTES: usize = 64;
pub const FRAME_BYTES: usize = 32;

const MAGIC: &[u8; 8] = b"hoplolog";

/// A place in a log: segment and offset in it, in one ordered number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

const OFFSET_BITS: u32 = 40;

pub const SEGMENT_MAX: u64 = (1 << (64 - OFFSET_BITS)) - 1;

impl Position {
    pub fn new(segment: u64, offset: u64) -> Self {
        assert!(segment <= SEGMENT_MAX && offset < 1 << OFFSET_BITS);
        Self(segment << OFFSET_BITS | offset)
    }

    pub fn segment(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    pub fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, offset {}", self.segment(), self.offset())
    }
}

/// What the first bytes of a segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub cluster: ClusterId,
    pub shard: ShardId,
    pub number: u64,
    pub synced: Position,
    pub mark: u32,
    /// Where the segment before it ended, of older formats; 0: nothing was there, or the first frame says it.
    pub before: u64,
    /// 0: not known.
    pub boot: u32,
    /// So many MiB long the file was made.
    pub made: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Of a later program.
    Format(u32),
    Damaged,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        let number = u32::try_from(self.number).expect("segments are at most SEGMENT_MAX");
        bytes[32..36].copy_from_slice(&number.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.boot.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.synced.0.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.mark.to_le_bytes());
        bytes[52..54].copy_from_slice(&self.shard.0.to_le_bytes());
        bytes[54..56].copy_from_slice(&self.made.to_le_bytes());
        bytes[56..].copy_from_slice(&self.before.to_le_bytes());
        let sum = sum(&bytes[16..], 0);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, BadHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .filter(|bytes| bytes.starts_with(MAGIC))
            .ok_or(BadHeader::Damaged)?;
        let is_sealed_by_us = read_u32(bytes, 12) == sum(&bytes[16..], 0);
        match read_u32(bytes, 8) {
            1 | 2 | FORMAT if is_sealed_by_us => {}
            newer if newer > FORMAT && !is_sealed_by_us => return Err(BadHeader::Format(newer)),
            _ => return Err(BadHeader::Damaged),
        }
        let cluster = bytes[16..].first_chunk().expect("the header is longer");
        Ok(Self {
            cluster: ClusterId(u128::from_le_bytes(*cluster)),
            number: read_u32(bytes, 32).into(),
            boot: read_u32(bytes, 36),
            synced: Position(read_u64(bytes, 40)),
            mark: read_u32(bytes, 48),
            shard: ShardId(u16::from_le_bytes([bytes[52], bytes[53]])),
            made: u16::from_le_bytes([bytes[54], bytes[55]]),
            before: read_u64(bytes, 56),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `index` is the entry's.
    Entry,
    /// The first chunk of a snapshot; `index` is what it is as of.
    Base,
    /// One of the other chunks; `index` as there.
    Chunk,
    /// Entries before this frame that come after `index` are void; if it is 0 and a `Base` comes next, the chunks are, too. No
    /// bytes.
    Truncated,
    /// The snapshot with this number (8 bytes) is complete: all of it lies before this frame. `index` is what it
    /// is as of.
    Done,
    /// The end of a flush: all before it was written, and the file is at least `index` bytes long. No bytes.
    Flushed,
    /// The first in its segment: the one before it ended at `index`. No bytes.
    Follows,
}

impl Kind {
    pub fn of(record: &Record) -> (Self, u64) {
        match record {
            Record::Entry(entry) => (Self::Entry, entry.index),
            Record::Chunk(chunk) if chunk.from.is_none() => (Self::Base, chunk.as_of),
            Record::Chunk(chunk) => (Self::Chunk, chunk.as_of),
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Entry),
            2 => Some(Self::Base),
            3 => Some(Self::Chunk),
            4 => Some(Self::Truncated),
            5 => Some(Self::Done),
            6 => Some(Self::Flushed),
            7 => Some(Self::Follows),
            _ => None,
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Entry => 1,
            Self::Base => 2,
            Self::Chunk => 3,
            Self::Truncated => 4,
            Self::Done => 5,
            Self::Flushed => 6,
            Self::Follows => 7,
        }
    }
}

/// The fixed part of a frame, not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub index: u64,
    pub synced: Position,
    /// Of the record behind the fixed part.
    pub bytes: usize,
}

impl Frame {
    /// `None`: no frame of this segment begins here.
    pub fn parse(fixed: &[u8; FRAME_BYTES], mark: u32) -> Option<Self> {
        let bytes = read_u32(fixed, 8) as usize;
        let kind = Kind::from_number(read_u32(fixed, 12))?;
        let found =
            Self { kind, index: read_u64(fixed, 16), synced: Position(read_u64(fixed, 24)), bytes };
        (read_u32(fixed, 0) == mark && bytes <= CONTROL_RECORD_BYTES_MAX).then_some(found)
    }

    /// `frame`: the fixed part and the record.
    pub fn is_whole(frame: &[u8], mark: u32) -> bool {
        read_u32(frame, 4) == sum(&frame[8..], mark)
    }
}

/// Appends a frame with this record to `out`.
pub fn put_record(out: &mut Vec<u8>, record: &Record, mark: u32, synced: Position) {
    let (kind, index) = Kind::of(record);
    let start = begin(out);
    *out = postcard::to_extend(record, std::mem::take(out)).expect("a vector takes everything");
    finish(&mut out[start..], kind, index, mark, synced);
}

pub fn put_truncated(out: &mut Vec<u8>, after: u64, mark: u32, synced: Position) {
    let start = begin(out);
    finish(&mut out[start..], Kind::Truncated, after, mark, synced);
}

pub fn put_done(out: &mut Vec<u8>, snapshot: u64, as_of: u64, mark: u32, synced: Position) {
    let start = begin(out);
    out.extend_from_slice(&snapshot.to_le_bytes());
    finish(&mut out[start..], Kind::Done, as_of, mark, synced);
}

pub fn put_flushed(out: &mut Vec<u8>, file_bytes: u64, mark: u32, synced: Position) {
    let start = begin(out);
    finish(&mut out[start..], Kind::Flushed, file_bytes, mark, synced);
}

pub fn put_follows(out: &mut Vec<u8>, before: u64, mark: u32, synced: Position) {
    let start = begin(out);
    finish(&mut out[start..], Kind::Follows, before, mark, synced);
}

fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    start
}

fn finish(frame: &mut [u8], kind: Kind, index: u64, mark: u32, synced: Position) {
    let bytes = frame.len() - FRAME_BYTES;
    assert!(bytes <= CONTROL_RECORD_BYTES_MAX, "the machine keeps records small");
    frame[..4].copy_from_slice(&mark.to_le_bytes());
    frame[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
    frame[12..16].copy_from_slice(&kind.number().to_le_bytes());
    frame[16..24].copy_from_slice(&index.to_le_bytes());
    frame[24..32].copy_from_slice(&synced.0.to_le_bytes());
    let sum = sum(&frame[8..], mark);
    frame[4..8].copy_from_slice(&sum.to_le_bytes());
}

fn sum(bytes: &[u8], seed: u32) -> u32 {
    xxh3_64_with_seed(bytes, u64::from(seed)) as u32
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed part is longer"))
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed part is longer"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hoplo_wire::control::{Chunk, Epoch};
    use proptest::prelude::*;

    fn header() -> Header {
        let (cluster, shard) = (ClusterId(7 << 100), ShardId(3));
        let synced = Position::new(8, 77);
        Header {
            cluster,
            shard,
            number: 9,
            synced,
            mark: 0xabcd_ef01,
            before: 99,
            boot: 5,
            made: 1,
        }
    }

    /// As a later program would write it.
    pub(crate) fn of_format(mut bytes: [u8; HEADER_BYTES], format: u32) -> [u8; HEADER_BYTES] {
        let sum = sum(&bytes[16..], format);
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_header_with_a_flipped_bit_was_taken_for_one_of_a_newer_program() {
        for bit in 0..8 * HEADER_BYTES {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&bytes), Err(BadHeader::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn a_header_survives_and_what_it_should_not_be_is_named() {
        let bytes = header().encode();
        assert_eq!(Header::parse(&bytes), Ok(header()));
        let newer = of_format(bytes, 8);
        assert_eq!(Header::parse(&newer), Err(BadHeader::Format(8)));
        assert_eq!(Header::parse(&bytes[..63]), Err(BadHeader::Damaged));
    }

    #[test]
    fn a_frame_of_another_segment_is_none() {
        let chunk = Chunk {
            snapshot: 1,
            as_of: 5,
            epoch: Epoch(1),
            from: None,
            until: None,
            rows: vec![],
            archived: vec![],
            sessions: vec![],
            sessions_over: 0,
        };
        let mut out = vec![1, 2, 3];
        put_record(&mut out, &Record::Chunk(chunk.clone()), 77, Position::new(1, 2));
        let frame = &out[3..];
        let fixed = frame.first_chunk().unwrap();
        let parsed = Frame::parse(fixed, 77).unwrap();
        assert_eq!(
            (parsed.kind, parsed.index, parsed.synced),
            (Kind::Base, 5, Position::new(1, 2))
        );
        assert!(Frame::is_whole(frame, 77));
        assert_eq!(postcard::from_bytes(&frame[FRAME_BYTES..]), Ok(Record::Chunk(chunk)));
        assert_eq!(Frame::parse(fixed, 78), None);
    }

    proptest! {
        #[test]
        fn a_flipped_bit_of_a_header_is_seen(bit in 0..HEADER_BYTES * 8) {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::parse(&bytes).is_err());
        }

        #[test]
        fn a_flipped_bit_of_a_frame_is_seen(bit in 0..FRAME_BYTES * 8) {
            let mut out = Vec::new();
            put_truncated(&mut out, 12, 5, Position::new(1, 64));
            out[bit / 8] ^= 1 << (bit % 8);
            let parsed = Frame::parse(out.first_chunk().unwrap(), 5);
            prop_assert!(parsed.is_none() || !Frame::is_whole(&out, 5));
        }

        #[test]
        fn rubbish_is_no_frame_and_no_record(bytes in proptest::collection::vec(any::<u8>(), 32..200)) {
            let _ = Header::parse(&bytes);
            let _ = postcard::from_bytes::<Record>(&bytes);
            if Frame::parse(bytes.first_chunk().unwrap(), 1).is_some() {
                Frame::is_whole(&bytes, 1);
            }
        }
    }
}
