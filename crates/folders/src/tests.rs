//! What a stranger may have made is played by what we make ourselves, as far as one user can; with two users
//! see `python/tests/test_two_users.py`.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing fails")]

/// Sessions that are made while others sweep (FOLDER-7).
mod making;
/// Folders that a user names for a session (FOLDER-8).
mod naming;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::names::{CONTROL, LOCK, LOGS};
use crate::{
    Base, Folder, FolderError, HeadError, JoinsAgain, OwnSessionFolder, Places, SessionFolder, Wait,
};

/// A folder that goes with its test; its name is too long for a socket's address.
struct Room(PathBuf);

impl Room {
    fn new(test: &str) -> Self {
        let name = format!("hoplo-test-{test}-{}-{}", std::process::id(), "x".repeat(100));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    fn base(&self) -> Base {
        Places::only(self.0.clone()).make().unwrap()
    }

    /// A session as a daemon that was killed leaves it.
    fn dead_session(&self, number: u32) -> PathBuf {
        let path = self.0.join(format!("session-1000{number}-77"));
        for folder in ["logs", "spill"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        for file in ["sock", "lock", "spill/0", "logs/worker-1.out"] {
            fs::write(path.join(file), "x").unwrap();
        }
        path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn connects(session: &SessionFolder) -> bool {
    session.connect(&mut Wait::at_most(Duration::from_secs(5))).is_ok()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a tool says first.
const HELLO: &[u8] = b"hello";

/// As a daemon that runs does, whoever asks.
fn answers(listener: &OwnedFd) {
    let listener = takes_connections(listener.try_clone().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut asked, _)) = listener.accept() {
            let _ = asked.read_exact(&mut [0; HELLO.len()]);
            let _ = asked.write_all(b"welcome");
        }
    });
}

fn takes_connections(listener: OwnedFd) -> UnixListener {
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(false).unwrap();
    listener
}

/// What must not wait for anybody; on a thread, so that waiting fails the test and does not stop it.
fn at_once<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(act()));
    told.recv_timeout(Duration::from_secs(20)).expect("it does not wait")
}

// ------------------------------------------------------------------------------- whose folder

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let room = Room::new("shared");
    for bits in [0o777, 0o770, 0o702] {
        mode(&room.0, bits);
        let error = Places::only(room.0.clone()).make().unwrap_err();
        assert!(matches!(error, FolderError::NotOurs { .. }));
        assert!(error.to_string().contains("HOPLO_TMPDIR"), "{error}");
        assert!(Places::only(room.0.clone()).find().is_err());
    }
    assert_eq!(names(&room.0), [""; 0], "nothing was made there");
}

#[test]
fn in_a_folder_like_tmp_the_base_is_one_of_our_own() {
    let room = Room::new("like-tmp");
    mode(&room.0, 0o1777);
    let base = Places::only(room.0.clone()).make().unwrap();
    assert_eq!(base.path().parent(), Some(room.0.as_path()));
    assert_eq!(fs::metadata(base.path()).unwrap().permissions().mode() & 0o7777, 0o700);
    OwnSessionFolder::create(base).unwrap();
    assert_eq!(names(&room.0).len(), 1, "sessions lie in it, not beside it");
}

#[test]
fn a_folder_on_the_way_that_everybody_can_write_to_is_refused() {
    let room = Room::new("way");
    let way = room.0.join("way");
    fs::create_dir(&way).unwrap();
    fs::create_dir(way.join("base")).unwrap();
    mode(&way.join("base"), 0o700);
    mode(&way, 0o777);
    let error = Folder::open(&way.join("base")).unwrap_err().to_string();
    assert!(error.contains("everybody can write to") && error.contains("/way,"), "{error}");
    mode(&way, 0o1777);
    Folder::open(&way.join("base")).unwrap();
}

#[test]
fn links_of_our_own_are_followed_and_loops_end() {
    let room = Room::new("links");
    fs::create_dir_all(room.0.join("far/base")).unwrap();
    mode(&room.0.join("far/base"), 0o700);
    symlink("far", room.0.join("near")).unwrap();
    symlink(room.0.join("near/../far/base"), room.0.join("link")).unwrap();
    for way in ["near/base", "link", "far/../near/base/."] {
        Folder::open(&room.0.join(way)).unwrap();
    }
    symlink("loop", room.0.join("loop")).unwrap();
    assert!(matches!(Folder::open(&room.0.join("loop")), Err(FolderError::Io { .. })));
    fs::write(room.0.join("file"), "").unwrap();
    assert!(matches!(Folder::make(&room.0.join("file/base")), Err(FolderError::NotOurs { .. })));
    assert!(matches!(Folder::open(&room.0.join("none/base")), Err(FolderError::Missing(_))));
    assert_eq!(Folder::make(&room.0.join("a/b")).unwrap().path(), room.0.join("a/b"));
}

// ------------------------------------------------------------------------------- what is in it

#[test]
fn what_dead_daemons_left_is_swept_and_living_ones_are_found() {
    let room = Room::new("sweep");
    let base = room.base();
    let mut living = OwnSessionFolder::create(room.base()).unwrap();
    let listener = living.listen().unwrap();
    living.make_current(base.claim_head(HELLO).unwrap()).unwrap();
    for number in 0..8 {
        room.dead_session(number);
    }
    base.sweep();
    let live: Vec<PathBuf> = base.live().iter().map(|one| one.path().to_path_buf()).collect();
    assert_eq!(live, [living.path().to_path_buf()]);
    let current = base.current().unwrap();
    assert_eq!(current.path(), living.path());
    assert!(connects(&current));
    let mut left = names(&room.0);
    left.retain(|name| name.starts_with("session-1000"));
    assert_eq!(left.len(), 5, "the logs of the last few");
    for name in left {
        assert_eq!(names(&room.0.join(name)), [LOGS]);
    }
    drop(listener);
    let path = living.path().to_path_buf();
    living.close(false);
    assert!(!path.exists() && base.current().is_none());
    assert!(!names(&room.0).contains(&"head".to_string()));
}

#[test]
fn a_sweep_removed_files_behind_links() {
    let room = Room::new("behind");
    let mine = room.0.join("mine");
    fs::create_dir_all(mine.join("spill")).unwrap();
    for file in ["lock", "sock", "spill/thesis", "notes"] {
        fs::write(mine.join(file), "x").unwrap();
    }
    mode(&mine, 0o700);
    // A session that is a link, one whose parts are links, and folders that only look like sessions.
    symlink(&mine, room.0.join("session-10000-1")).unwrap();
    let session = room.dead_session(2);
    fs::remove_dir_all(session.join("spill")).unwrap();
    symlink(mine.join("spill"), session.join("spill")).unwrap();
    fs::remove_dir_all(session.join("logs")).unwrap();
    symlink(&mine, session.join("logs")).unwrap();
    for name in ["session-notes", "session-1-x", "session-3"] {
        fs::create_dir(room.0.join(name)).unwrap();
        fs::write(room.0.join(name).join("lock"), "x").unwrap();
    }
    for number in 3..12 {
        let dead = room.dead_session(number);
        symlink(&mine, dead.join("logs/mine")).unwrap();
    }
    room.base().sweep();
    assert_eq!(names(&mine), ["lock", "notes", "sock", "spill"]);
    assert_eq!(names(&mine.join("spill")), ["thesis"]);
    assert!(room.0.join("session-notes/lock").exists() && room.0.join("session-1-x/lock").exists());
    assert!(!session.join("spill").exists());
}

#[test]
fn who_joins_again_is_found_while_it_does_and_what_a_dead_one_left_is_removed() {
    let room = Room::new("again");
    fs::write(room.0.join("again-77"), "").unwrap();
    fs::write(room.0.join("again-x"), "").unwrap();
    let mine = JoinsAgain::begin(room.base()).unwrap();
    assert_eq!(room.base().joining_again(), [std::process::id()]);
    assert_eq!(names(&room.0), [format!("again-{}", std::process::id()), "again-x".into()]);
    drop(mine);
    assert_eq!(room.base().joining_again(), [0; 0]);
    assert_eq!(names(&room.0), ["again-x"]);
}

#[test]
fn a_fifo_in_the_place_of_a_file_stopped_everybody() {
    let room = Room::new("fifo");
    for (number, name) in [(1, "lock"), (2, "sock")] {
        let session = room.dead_session(number);
        fs::remove_file(session.join(name)).unwrap();
        fifo(&session.join(name));
    }
    fifo(&room.0.join("head"));
    symlink(room.0.join("session-10001-77"), room.0.join("current")).unwrap();
    let base = room.base();
    at_once(move || {
        assert!(base.current().is_none());
        assert!(base.left().is_none());
        assert!(base.live().is_empty());
        base.sweep();
        assert!(matches!(base.claim_head(HELLO), Err(HeadError::Io(_))));
    });
    assert!(!room.0.join("session-10001-77/lock").exists(), "it was swept");
    // And in a session that is to be made.
    let path = room.0.join("exactly");
    fs::create_dir(&path).unwrap();
    mode(&path, 0o700);
    fifo(&path.join("lock"));
    at_once(move || OwnSessionFolder::at(&path, None).unwrap_err());
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

// ------------------------------------------------------------------------------- heads

#[test]
fn the_store_of_a_dead_head_stays_until_it_is_ended() {
    let room = Room::new("left");
    let base = room.base();
    let mut head = OwnSessionFolder::create(room.base()).unwrap();
    head.make_current(base.claim_head(HELLO).unwrap()).unwrap();
    fs::create_dir(head.control()).unwrap();
    let path = head.path().to_path_buf();
    let left = || base.left().map(|session| session.path().to_path_buf());
    assert_eq!(left(), None, "it lives");
    drop(head); // Killed: its locks are gone, nothing else.
    base.sweep();
    assert_eq!(left(), Some(path.clone()));
    let mut again = OwnSessionFolder::at(&path, Some(room.base())).unwrap();
    again.make_current(base.claim_head(HELLO).unwrap()).unwrap();
    again.close(true);
    assert_eq!(left(), Some(path.clone()), "stopped by a signal");
    base.forget(&base.left().unwrap(), HELLO).unwrap();
    assert_eq!(left(), None);
    assert_eq!(names(&room.0), [""; 0]);
}

#[test]
fn a_head_that_died_between_two_looks_of_a_sweep_lost_its_store() {
    let room = Room::new("between");
    // Others that live: a sweep takes its time from its first look to the last.
    let others: Vec<fs::File> = (0..400)
        .map(|number| {
            let other = room.0.join(format!("session-1000-{number}"));
            fs::create_dir(&other).unwrap();
            let lock = fs::File::create(other.join(LOCK)).unwrap();
            lock.lock().unwrap();
            lock
        })
        .collect();
    // Newer ones, whose logs are kept instead of those of the head.
    for number in 0..6 {
        let logs = room.0.join(format!("session-9000000000000000-{number}")).join(LOGS);
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join("worker-1.out"), "x").unwrap();
    }
    let (over, sweeps) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let base = room.base();
            while !over.load(Ordering::Relaxed) {
                base.sweep();
                sweeps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let another_sweep = || {
            let seen = sweeps.load(Ordering::Relaxed);
            while sweeps.load(Ordering::Relaxed) == seen {
                std::hint::spin_loop();
            }
        };
        let base = room.base();
        let path = OwnSessionFolder::create(room.base()).unwrap().path().to_path_buf();
        let kept = (0..20).all(|_| {
            let mut head = OwnSessionFolder::at(&path, Some(room.base())).unwrap();
            head.make_current(base.claim_head(HELLO).unwrap()).unwrap();
            fs::create_dir_all(head.control()).unwrap();
            another_sweep();
            drop(head);
            another_sweep();
            path.join(CONTROL).exists()
        });
        over.store(true, Ordering::Relaxed);
        assert!(kept, "the tables of a dead head are swept away");
    });
    drop(others);
}

#[test]
fn two_heads_started_at_once_both_won() {
    let room = Room::new("heads");
    let base = room.base();
    let claims: Vec<_> = (0..8)
        .map(|_| {
            let base = room.base();
            std::thread::spawn(move || {
                let head = base.claim_head(HELLO)?;
                let mut session = OwnSessionFolder::create(base)?;
                let listener = session.listen()?;
                session.make_current(head)?;
                answers(&listener);
                Ok::<_, HeadError>((session, listener))
            })
        })
        .collect();
    let (won, lost): (Vec<_>, Vec<_>) =
        claims.into_iter().map(|claim| claim.join().unwrap()).partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    let (session, _listener) = won.into_iter().next().unwrap().unwrap();
    for error in lost {
        let text = error.unwrap_err().to_string();
        assert!(text.contains("a head runs already"), "{text}");
        assert!(text.contains(&session.path().display().to_string()), "{text}");
        assert!(text.contains(&std::process::id().to_string()), "{text}");
    }
    session.close(false);
    base.claim_head(HELLO).unwrap();
}

#[test]
fn a_head_that_was_killed_and_had_not_ended_was_said_to_run() {
    let room = Room::new("dying");
    let base = room.base();
    let mut dying = OwnSessionFolder::create(room.base()).unwrap();
    let listener = dying.listen().unwrap();
    dying.make_current(base.claim_head(HELLO).unwrap()).unwrap();
    let claim = std::thread::spawn(move || base.claim_head(HELLO).map(drop));
    // The kernel still takes connections for it, and nobody answers.
    let listener = takes_connections(listener);
    let (mut asked, _) = listener.accept().unwrap();
    asked.read_exact(&mut [0; HELLO.len()]).unwrap();
    drop((asked, listener, dying));
    claim.join().unwrap().unwrap();
}

#[test]
fn the_pid_of_a_dead_head_was_told_of_one_that_held_its_place_and_had_not_written_its_own() {
    let room = Room::new("leftover");
    fs::write(room.0.join("head"), "4242").unwrap();
    let begins = fs::File::open(room.0.join("head")).unwrap();
    begins.lock().unwrap();
    let error = room.base().claim_head(HELLO).unwrap_err();
    assert!(matches!(error, HeadError::Stuck { pid: None, .. }), "{error}");
    assert!(!error.to_string().contains("4242"), "{error}");
    drop(begins);
    room.base().claim_head(HELLO).unwrap();
}

// ------------------------------------------------------------------------------- joining

#[test]
fn a_socket_that_takes_no_connections_was_waited_for_for_ever() {
    let room = Room::new("full");
    let session = OwnSessionFolder::create(room.base()).unwrap();
    let _listener = session.listen().unwrap();
    let target = SessionFolder::open(session.path()).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match target.connect(&mut Wait::at_most(Duration::from_millis(50))) {
            Ok(joined) => waiting.push(joined),
            Err(error) => break error,
        }
        assert!(waiting.len() < 10_000, "nobody takes them");
    };
    assert!(matches!(error, crate::JoinError::Silent(_)), "{error}");
    let mut looks = 0;
    let mut wanted = || {
        looks += 1;
        looks < 3
    };
    let error = target.connect(&mut Wait::for_answer(&mut wanted)).unwrap_err();
    assert!(matches!(error, crate::JoinError::Interrupted), "{error}");
}
