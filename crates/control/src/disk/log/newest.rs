//! Which segment is the newest, in a file beside them: one that is taken away is missed.
//!
//! ```text
//! newest: magic 8 | sum u32 | boot u32 | number u64 | synced u32 | mark u32
//! ```
//! The mark is that of the file which was made then (0: not known): a later one may have the same number.
//! It is written when a segment has its name, and before anything in that one counts as logged. A file that is not as it
//! should be says nothing: nothing is lost with it.

use std::io;

use xxhash_rust::xxh3::xxh3_64;

use super::files::Files;
use super::frame::{Header, Position};

const NAME: &str = "newest";
const MAGIC: &[u8; 8] = b"hoplonew";
const BYTES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) number: u64,
    /// The machine's start in which this was written; 0: not known.
    pub(super) boot: u32,
    /// Header and name of the segment were on disk by then.
    pub(super) synced: bool,
    pub(super) mark: u32,
}

impl Newest {
    pub(super) fn read(files: &dyn Files) -> io::Result<Option<Self>> {
        let file = match files.open(NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = [0; BYTES];
        let got = file.read_at(&mut bytes, 0)?;
        Ok(Self::parse(&bytes).filter(|_| got == BYTES))
    }

    /// Behind the segment's header.
    pub(super) fn header(self) -> Position {
        Position::new(self.number, 1)
    }

    /// This very file was on disk, as long as it was made.
    pub(super) fn knows(self, header: &Header) -> bool {
        self.synced && self.mark != 0 && (self.number, self.mark) == (header.number, header.mark)
    }

    /// On disk afterwards, if what it speaks of is.
    pub(super) fn write(self, files: &dyn Files) -> io::Result<()> {
        let (file, made) = match files.open(NAME) {
            Ok(file) => (file, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (files.create(NAME)?, true),
            Err(error) => return Err(error),
        };
        file.write_at(&self.encode(), 0)?;
        if self.synced {
            file.sync()?;
            if made {
                files.sync()?;
            }
        }
        Ok(())
    }

    /// There is none any more.
    pub(super) fn forget(files: &dyn Files) -> io::Result<()> {
        match files.remove(NAME) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[12..16].copy_from_slice(&self.boot.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..28].copy_from_slice(&u32::from(self.synced).to_le_bytes());
        bytes[28..].copy_from_slice(&self.mark.to_le_bytes());
        let sum = xxh3_64(&bytes[12..]) as u32;
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; BYTES]) -> Option<Self> {
        let (number, synced) = (u64_at(bytes, 16), u64_at(bytes, 24));
        let boot = u64_at(bytes, 8) >> 32;
        let (synced, mark) = (synced as u32 == 1, (synced >> 32) as u32);
        let it = Self { number, boot: boot as u32, synced, mark };
        (it.encode() == *bytes).then_some(it)
    }
}

fn u64_at(bytes: &[u8; BYTES], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("it is as long as that"))
}
