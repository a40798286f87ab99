//! The spill file: the bytes of objects that are not in the arena, mapped piece by piece.
//!
//! The daemon makes one file and sends its descriptor to everybody, who maps of it what is needed: a reader the
//! object that it has pinned, read-only; a writer the room that it was granted. Who may do that, and when, is
//! decided outside, by pins and grants, as for the [`Arena`](crate::Arena).
//!
//! # Invariants
//! - FILE-1: what is mapped lies within the file when it is mapped. The daemon cuts off the file's end, or
//!   punches holes, only where nobody has pinned an object and nobody was granted room. So an access inside a
//!   mapping faults only where the disk cannot read.
//! - FILE-2: room has disk space before it is granted: writing to it does not run out of it.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use crate::kept::Kept;
use crate::mapping::{Access, MapError, Mapping};

/// The spill file of a node, open.
#[derive(Debug)]
pub struct SpillFile {
    fd: Kept,
}

/// A pinned object in the file, readable as long as this lives.
#[derive(Debug)]
pub struct FileView(Piece);

/// Room in the file that this process alone writes to; mapped as long as this lives.
#[derive(Debug)]
pub struct FileRoom(Piece);

#[derive(Debug)]
struct Piece {
    mapping: Mapping,
    /// Where it starts in the mapping, which starts at a page of the system's.
    skip: usize,
    len: usize,
}

impl SpillFile {
    pub fn new(fd: Kept) -> Self {
        Self { fd }
    }

    /// An object that the caller has pinned.
    pub fn view(&self, offset: u64, len: u64) -> Result<FileView, MapError> {
        self.map(offset, len, Access::Read).map(FileView)
    }

    /// Room that was granted to this process.
    pub fn room(&self, offset: u64, len: u64) -> Result<FileRoom, MapError> {
        self.map(offset, len, Access::ReadWrite).map(FileRoom)
    }

    fn map(&self, offset: u64, len: u64, access: Access) -> Result<Piece, MapError> {
        let page = rustix::param::page_size() as u64;
        let start = offset / page * page;
        let skip = offset - start;
        let bytes = skip.checked_add(len).ok_or(MapError::BadSize { bytes: len })?;
        // The bytes of another file would be taken for the object.
        let file = self.fd.checked().map_err(|_| MapError::Lost)?;
        let mapping = Mapping::of_file(file, start, bytes, access)?;
        Ok(Piece { mapping, skip: skip as usize, len: len as usize })
    }
}

impl AsFd for SpillFile {
    /// The descriptor to send to those who will map it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for FileView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: inside the mapping; nobody writes it while it is pinned.
        unsafe { core::slice::from_raw_parts(self.0.start(), self.0.len) }
    }
}

impl FileRoom {
    /// Panics if they do not fit from `at` on.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: all of it is mapped, and nobody else writes it (FILE-1).
        let room = unsafe { core::slice::from_raw_parts_mut(self.0.start(), self.0.len) };
        room[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Where it lies in this process, for `len` bytes: nobody else writes there until it is sealed.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.0.start()
    }

    pub fn len(&self) -> usize {
        self.0.len
    }

    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }
}

impl Piece {
    fn start(&self) -> *mut u8 {
        // SAFETY: `skip + len` bytes are mapped.
        unsafe { self.mapping.base().as_ptr().add(self.skip) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_fills_a_reader_sees_and_nothing_outside_of_the_file_is_mapped() {
        let name = format!("hoplo-test-spill-file-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let opened =
            std::fs::File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        opened.set_len(12_288).unwrap();
        let file = SpillFile::new(Kept::new(opened.into()).unwrap());
        let room = file.room(4096, 6).unwrap();
        assert_eq!(room.len(), 6);
        // SAFETY: six bytes that are ours.
        unsafe { room.as_mut_ptr().copy_from(b"object".as_ptr(), 6) };
        let view = file.view(4096, 6).unwrap();
        let mut more = file.room(0, 3).unwrap();
        more.write(1, b"on");
        assert_eq!(&file.view(0, 3).unwrap()[..], b"\0on");
        drop((room, more, file.view(0, 12_288).unwrap()));
        assert_eq!(&*view, b"object");
        for (offset, len) in [(8192, 4097), (12_288, 1), (u64::MAX - 4095, 8192), (0, 0)] {
            assert!(file.view(offset, len).is_err(), "{offset} {len}");
        }
    }
}
