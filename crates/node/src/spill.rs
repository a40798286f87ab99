//! Spill files: objects that did not fit into memory, fused into segment files by a helper thread.
//!
//! A segment is appended to until it is [`SEGMENT_BYTES`] long, and removed when nothing in it is
//! needed any more. Only reading and writing happen in the thread; it starts with the first spill.
//!
//! # Invariants
//! - SPILL-1: a segment's live bytes are those of its objects that were written and not forgotten.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use hoplo_core::objects::SpillPlace;
use hoplo_shm::Arena;
use rustix::event::{EventfdFlags, eventfd};

/// A segment that is this long gets no more objects.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// What the thread is asked; at most as many at a time as the directory allows.
#[derive(Debug)]
struct Job {
    attempt: u64,
    file: Arc<File>,
    place: SpillPlace,
    /// Where in the arena the bytes are, or go to.
    arena_offset: u64,
    direction: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Into a segment.
    Out,
    /// Back into the arena.
    Back,
}

/// What the thread did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) attempt: u64,
    pub(crate) place: SpillPlace,
    pub(crate) direction: Direction,
    pub(crate) result: Result<(), String>,
}

#[derive(Debug)]
pub(crate) struct Spill {
    folder: PathBuf,
    arena: Arc<Arena>,
    wake: Arc<OwnedFd>,
    thread: Option<Sender<Job>>,
    done: (Sender<Done>, Receiver<Done>),
    segments: BTreeMap<u64, Segment>,
    next_segment: u64,
}

#[derive(Debug)]
struct Segment {
    file: Arc<File>,
    /// Where the next object goes.
    end: u64,
    live_bytes: u64,
    /// Objects that are being written.
    writing: u32,
}

impl Spill {
    pub(crate) fn new(folder: PathBuf, arena: Arc<Arena>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            folder,
            arena,
            wake: Arc::new(wake),
            thread: None,
            done: channel(),
            segments: BTreeMap::new(),
            next_segment: 0,
        })
    }

    /// Readable when `take_done` has something.
    pub(crate) fn wake(&self) -> impl AsFd {
        &*self.wake
    }

    pub(crate) fn write(
        &mut self,
        attempt: u64,
        arena_offset: u64,
        len: u64,
    ) -> Result<(), String> {
        let number = self.segment_for_writing()?;
        let segment = self.segments.get_mut(&number).expect("it was just found");
        let place = SpillPlace { file: number, offset: segment.end, len };
        segment.end += len;
        segment.live_bytes += len;
        segment.writing += 1;
        let file = Arc::clone(&segment.file);
        self.send(Job { attempt, file, place, arena_offset, direction: Direction::Out });
        Ok(())
    }

    pub(crate) fn read(&mut self, attempt: u64, place: SpillPlace, arena_offset: u64) {
        let segment = self.segments.get(&place.file).expect("SPILL-1: its segment lives");
        let file = Arc::clone(&segment.file);
        self.send(Job { attempt, file, place, arena_offset, direction: Direction::Back });
    }

    pub(crate) fn forget(&mut self, place: SpillPlace) {
        let segment = self.segments.get_mut(&place.file).expect("SPILL-1: its segment lives");
        segment.live_bytes -= place.len;
        if segment.live_bytes == 0 && segment.writing == 0 {
            self.segments.remove(&place.file);
            let _ = std::fs::remove_file(segment_path(&self.folder, place.file));
        }
    }

    /// What is done; a place whose writing failed is forgotten.
    pub(crate) fn take_done(&mut self) -> Vec<Done> {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        let done: Vec<Done> = self.done.1.try_iter().collect();
        for one in done.iter().filter(|one| one.direction == Direction::Out) {
            let segment = self.segments.get_mut(&one.place.file).expect("it is being written");
            segment.writing -= 1;
            if one.result.is_err() {
                self.forget(one.place);
            }
        }
        done
    }

    fn segment_for_writing(&mut self) -> Result<u64, String> {
        if let Some((number, segment)) = self.segments.last_key_value()
            && segment.end < SEGMENT_BYTES
        {
            return Ok(*number);
        }
        let number = self.next_segment;
        self.next_segment += 1;
        let path = segment_path(&self.folder, number);
        let options =
            OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).clone();
        let file = options.open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let segment = Segment { file: Arc::new(file), end: 0, live_bytes: 0, writing: 0 };
        self.segments.insert(number, segment);
        Ok(number)
    }

    fn send(&mut self, job: Job) {
        let thread = self.thread.get_or_insert_with(|| {
            let (jobs, inbox) = channel::<Job>();
            let (arena, wake) = (Arc::clone(&self.arena), Arc::clone(&self.wake));
            let (outbox, folder) = (self.done.0.clone(), self.folder.clone());
            let work = move || {
                for job in inbox {
                    if outbox.send(carry_out(&job, &arena, &folder)).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
                }
            };
            let builder = std::thread::Builder::new().name("hoplo:disk".to_string());
            builder.spawn(work).expect("a node that cannot make one thread cannot go on");
            jobs
        });
        thread.send(job).expect("the disk thread lives as long as we do");
    }
}

fn carry_out(job: &Job, arena: &Arc<Arena>, folder: &Path) -> Done {
    let Job { attempt, place, direction, .. } = *job;
    let result = match direction {
        Direction::Out => {
            let bytes = arena.read(job.arena_offset, place.len);
            let bytes = bytes.expect("the directory keeps places inside of the arena");
            job.file.write_all_at(bytes, place.offset)
        }
        Direction::Back => {
            let claim = arena.claim(job.arena_offset, place.len);
            let mut claim = claim.expect("the directory gave this range to nobody else");
            job.file.read_exact_at(&mut claim, place.offset)
        }
    };
    let path = || segment_path(folder, place.file);
    let result = result.map_err(|error| format!("{}: {error}", path().display()));
    Done { attempt, place, direction, result }
}

fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn wait(spill: &mut Spill) -> Done {
        let wake = Arc::clone(&spill.wake);
        let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&*wake, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "the disk thread answers");
        spill.take_done().pop().unwrap()
    }

    #[test]
    fn objects_go_out_and_come_back_and_their_segment_goes_with_the_last() {
        let folder = std::env::temp_dir().join(format!("hoplo-test-spill-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let arena = Arena::create(1 << 20).unwrap();
        arena.claim(64, 5).unwrap().copy_from_slice(b"hello");
        arena.claim(128, 5).unwrap().copy_from_slice(b"world");
        let mut spill = Spill::new(folder.clone(), Arc::clone(&arena)).unwrap();
        let mut places = Vec::new();
        for (attempt, offset) in [(1, 64), (2, 128)] {
            spill.write(attempt, offset, 5).unwrap();
            let done = wait(&mut spill);
            assert_eq!((done.attempt, done.result), (attempt, Ok(())));
            places.push(done.place);
        }
        spill.read(3, places[1], 4096);
        assert_eq!(wait(&mut spill).result, Ok(()));
        assert_eq!(arena.read(4096, 5).unwrap(), b"world");
        spill.forget(places[0]);
        assert!(segment_path(&folder, 0).exists());
        spill.forget(places[1]);
        assert!(!segment_path(&folder, 0).exists());
        std::fs::remove_dir_all(&folder).unwrap();
        let error = spill.write(4, 64, 5).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }
}
