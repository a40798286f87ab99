use rustix::fs::OFlags;
use std::io;

use super::*;
use crate::lock::Lock;
use crate::names::{MARK, SPILL};

#[test]
fn a_sweep_removed_a_session_that_was_being_made() {
    let room = Room::new("being-made");
    let (path, base) = (room.0.join("session-10000-77"), room.base());
    // At each step of another daemon that makes it, the sweep of a third one.
    base.folder().make_child("session-10000-77").unwrap();
    base.sweep();
    let made = std::cell::Cell::new(0);
    let make = || {
        made.set(made.get() + 1);
        let folder = base.folder().make_child("session-10000-77")?;
        match made.get() {
            1 => base.sweep(),                             // before the lock file is there
            2 => drop(folder.file(LOCK, OFlags::CREATE)?), // as it is there and not locked
            _ => {}
        }
        if made.get() == 2 {
            base.sweep();
        }
        io::Result::Ok(folder)
    };
    let (folder, _lock) = Lock::of_made(Duration::ZERO, make).unwrap();
    assert_eq!(made.get(), 3, "it begins again, until nobody has removed what it made");
    folder.make_child(LOGS).unwrap();
    base.sweep();
    assert_eq!(names(&path), [LOCK, LOGS]);
}

#[test]
fn a_lock_file_that_was_removed_before_it_was_locked_let_two_daemons_have_one_session() {
    let room = Room::new("unlinked");
    let session = room.base().folder().make_child("session-10000-77").unwrap();
    // One that ends holds the lock; another one has opened the file, and waits for it.
    let first = Lock::of(&session, Duration::ZERO).unwrap();
    let path = session.path().join(LOCK);
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| Lock::of(&session, Duration::from_secs(60)).unwrap());
        while descriptors_of(&path) < 2 {
            std::thread::yield_now();
        }
        fs::remove_file(&path).unwrap();
        drop(first);
        second.join().unwrap()
    });
    assert!(Lock::of(&session, Duration::ZERO).is_err(), "a third one has it as well");
    drop(second);
    Lock::of(&session, Duration::ZERO).unwrap();
}

/// Descriptors of this process that are that file.
fn descriptors_of(file: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == file)).count()
}

#[test]
fn many_daemons_at_once_lost_their_sessions_to_each_others_sweeps() {
    let room = Room::new("crowd");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..100 {
                    room.base().sweep();
                    let session = OwnSessionFolder::create(room.base()).unwrap();
                    let path = session.path().to_path_buf();
                    assert_eq!(names(&path), [LOCK, LOGS, SPILL]);
                    session.close(false);
                }
            });
        }
    });
    assert_eq!(names(&room.0), [""; 0]);
}

#[test]
fn a_named_folder_that_went_as_another_daemon_took_it_was_an_error() {
    let room = Room::new("named-crowd");
    let path = room.0.join("named");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let session = loop {
                        match OwnSessionFolder::at(&path, None) {
                            Ok(session) => break session,
                            Err(error) => {
                                let text = error.to_string();
                                assert!(text.contains("belongs to another daemon"), "{text}");
                            }
                        }
                    };
                    let there = names(&path);
                    session.close(false);
                    assert_eq!(there, [MARK, LOCK, LOGS, SPILL]);
                }
            });
        }
    });
    let left = if path.exists() { names(&path) } else { Vec::new() };
    assert_eq!(left, [""; 0], "a folder that was there for one of them may stay");
}

#[test]
fn two_daemons_cannot_have_one_folder() {
    let room = Room::new("two");
    let first = OwnSessionFolder::create(room.base()).unwrap();
    let error = OwnSessionFolder::at(first.path(), None).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}
