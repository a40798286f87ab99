//! The spill file: objects that are not in memory. What takes time in it is done by a thread, in the order in
//! which it is asked; the thread starts with the first wish. Who lies where is decided by the directory.
//!
//! # Invariants
//! - SPILL-1: where disk space is given back, nobody reads and nobody was granted room; what is written there
//!   later was asked for later.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use hoplo_core::objects::SpillPlace;
use hoplo_shm::Arena;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, fallocate};

/// What is read, or written as zeroes, at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What the thread is asked; at most as many at a time as the directory allows.
#[derive(Debug)]
enum Wish {
    /// From the arena into the file.
    Write { ticket: u64, place: SpillPlace, arena_offset: u64 },
    /// Read it once: the system has it at hand then, and what cannot be read is known before somebody maps it.
    Look { ticket: u64, place: SpillPlace },
    /// Take disk space.
    Reserve { ticket: u64, place: SpillPlace },
    /// Give disk space back; nothing lies from `end` on.
    Forget { range: Range<u64>, end: u64 },
}

/// What the thread did.
#[derive(Debug)]
pub(crate) enum Done {
    Wrote { ticket: u64, result: Result<(), String> },
    Looked { ticket: u64, result: Result<(), String> },
    Reserved { ticket: u64, result: Result<(), String> },
    NotForgotten { reason: String },
}

#[derive(Debug)]
pub(crate) struct Spill {
    disk: Disk,
    wake: Arc<OwnedFd>,
    thread: Option<Sender<Wish>>,
    done: (Sender<Done>, Receiver<Done>),
}

/// What the thread works with.
#[derive(Clone, Debug)]
struct Disk {
    file: Arc<File>,
    path: Arc<PathBuf>,
    arena: Arc<Arena>,
}

impl Spill {
    pub(crate) fn new(path: PathBuf, arena: Arc<Arena>) -> io::Result<Self> {
        let options =
            OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).clone();
        let file = options.open(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let disk = Disk { file: Arc::new(file), path: Arc::new(path), arena };
        Ok(Self { disk, wake: Arc::new(wake), thread: None, done: channel() })
    }

    /// For those who map it.
    pub(crate) fn file(&self) -> io::Result<OwnedFd> {
        self.disk.file.as_fd().try_clone_to_owned()
    }

    /// Readable when `take_done` has something.
    pub(crate) fn wake(&self) -> impl AsFd {
        &*self.wake
    }

    pub(crate) fn write(&mut self, ticket: u64, place: SpillPlace, arena_offset: u64) {
        self.ask(Wish::Write { ticket, place, arena_offset });
    }

    pub(crate) fn look(&mut self, ticket: u64, place: SpillPlace) {
        self.ask(Wish::Look { ticket, place });
    }

    pub(crate) fn reserve(&mut self, ticket: u64, place: SpillPlace) {
        self.ask(Wish::Reserve { ticket, place });
    }

    pub(crate) fn forget(&mut self, range: Range<u64>, end: u64) {
        self.ask(Wish::Forget { range, end });
    }

    pub(crate) fn take_done(&mut self) -> Vec<Done> {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        self.done.1.try_iter().collect()
    }

    fn ask(&mut self, wish: Wish) {
        let thread = self.thread.get_or_insert_with(|| {
            let (wishes, inbox) = channel::<Wish>();
            let (disk, wake, outbox) =
                (self.disk.clone(), Arc::clone(&self.wake), self.done.0.clone());
            let work = move || {
                for wish in inbox {
                    let Some(done) = disk.carry_out(wish) else { continue };
                    if outbox.send(done).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
                }
            };
            let builder = std::thread::Builder::new().name("hoplo:disk".to_string());
            builder.spawn(work).expect("a node that cannot make one thread cannot go on");
            wishes
        });
        thread.send(wish).expect("the disk thread lives as long as we do");
    }
}

impl Disk {
    fn carry_out(&self, wish: Wish) -> Option<Done> {
        let named = |result: io::Result<()>| {
            result.map_err(|error| format!("{}: {error}", self.path.display()))
        };
        Some(match wish {
            Wish::Write { ticket, place, arena_offset } => {
                let bytes = self.arena.read(arena_offset, place.len);
                let bytes = bytes.expect("the directory keeps places inside of the arena");
                let result = named(self.file.write_all_at(bytes, place.offset));
                Done::Wrote { ticket, result }
            }
            Wish::Look { ticket, place } => {
                Done::Looked { ticket, result: named(self.look(place)) }
            }
            Wish::Reserve { ticket, place } => {
                Done::Reserved { ticket, result: named(self.reserve(place)) }
            }
            Wish::Forget { range, end } => {
                let reason = named(self.forget(range, end)).err()?;
                Done::NotForgotten { reason }
            }
        })
    }

    fn look(&self, place: SpillPlace) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES.min(place.len as usize)];
        let (mut at, end) = (place.offset, place.offset + place.len);
        while at < end {
            let piece = &mut chunk[..CHUNK_BYTES.min((end - at) as usize)];
            self.file.read_exact_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn reserve(&self, place: SpillPlace) -> io::Result<()> {
        // Asked for more than there is, some file systems first take all that is left.
        let left = rustix::fs::fstatvfs(&self.file)?;
        if left.f_bavail.saturating_mul(left.f_frsize) < place.len {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        match fallocate(&self.file, FallocateFlags::empty(), place.offset, place.len) {
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            other => return Ok(other?),
        }
        // The file system takes space only for what is written.
        let zeroes = vec![0; CHUNK_BYTES.min(place.len as usize)];
        let (mut at, end) = (place.offset, place.offset + place.len);
        while at < end {
            let piece = &zeroes[..CHUNK_BYTES.min((end - at) as usize)];
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn forget(&self, range: Range<u64>, end: u64) -> io::Result<()> {
        if end <= range.start {
            return self.file.set_len(end);
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, mode, range.start, range.end - range.start) {
            // The range is used again; that is all there is.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::os::unix::fs::MetadataExt;

    fn wait(spill: &mut Spill) -> Done {
        let wake = Arc::clone(&spill.wake);
        let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&*wake, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "the disk thread answers");
        spill.take_done().pop().unwrap()
    }

    /// Everything that was asked before is done.
    fn wait_for_all(spill: &mut Spill, end: u64) {
        spill.look(99, SpillPlace { offset: end - 1, len: 1 });
        assert!(matches!(wait(spill), Done::Looked { ticket: 99, result: Ok(()) }));
    }

    #[test]
    fn what_is_not_needed_any_more_takes_no_disk_space() {
        let folder = std::env::temp_dir().join(format!("hoplo-test-spill-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("objects");
        let arena = Arena::create(1 << 20).unwrap();
        arena.claim(64, 5).unwrap().copy_from_slice(b"hello");
        let mut spill = Spill::new(path.clone(), Arc::clone(&arena)).unwrap();
        const LEN: u64 = 1 << 16;
        let places = [0, LEN, 2 * LEN].map(|offset| SpillPlace { offset, len: LEN });
        for place in places {
            spill.write(place.offset, place, 64);
            assert!(matches!(wait(&mut spill), Done::Wrote { result: Ok(()), .. }));
        }
        let disk = || std::fs::metadata(&path).unwrap().blocks() * 512;
        assert_eq!(disk(), 3 * LEN);
        spill.forget(LEN..2 * LEN, 3 * LEN);
        wait_for_all(&mut spill, 3 * LEN);
        assert_eq!(disk(), 2 * LEN);
        spill.forget(2 * LEN..3 * LEN, LEN);
        wait_for_all(&mut spill, LEN);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), LEN);
        let mut bytes = [0; 5];
        spill.disk.file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"hello");
        // What is not there cannot be read, and the answer says where.
        spill.look(1, SpillPlace { offset: LEN, len: 1 });
        let Done::Looked { result: Err(reason), .. } = wait(&mut spill) else { panic!() };
        assert!(reason.starts_with(&*path.display().to_string()), "{reason}");
        spill.reserve(2, SpillPlace { offset: LEN, len: LEN });
        assert!(matches!(wait(&mut spill), Done::Reserved { ticket: 2, result: Ok(()) }));
        assert_eq!(disk(), 2 * LEN);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
