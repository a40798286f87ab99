//! Where sessions lie, whose they are, which of them live, how a daemon is reached, and how its end is waited for.
//!
//! ```text
//! base/                           0700, ours
//!   current -> session-...        the head that `hoplo start --head` left
//!   head                          flock'ed by the head's daemon as long as it lives; its pid
//!   again-<pid>                   flock'ed by a daemon that joins its cluster again, while it has no session
//!   environments/                 Pythons that were built for runtime environments; daemons share them, and nobody's end removes them
//!   session-<microseconds>-<pid>/
//!     lock          flock'ed by the daemon as long as it lives
//!     sock          its unix socket
//!     cluster       of a node of a cluster: where its head listens
//!     daemon.log    what it has to say
//!     logs/         worker-<pid>.out, worker-<pid>.err
//!     control/      of a head: the control store, which outlives it
//!     control.new/  the same while it is made of a backup
//!     head/         of a head over control nodes: the cluster's file, and its certificate
//!     spill/        the file with the objects that are not in memory
//!     packages/     what workers unpacked of their runtime environments; they make it, in a folder of ours
//!     environments/     of one without a base; else they are there
//!     hoplo-session     of one that the user named: that it is ours (`mark`)
//! ```
//! A directory whose lock nobody holds is of a dead daemon: whoever starts next removes what it left. But the
//! control store of the last head stays, for the head that starts next to go on with; only `hoplo stop` ends it.
//!
//! # Which base
//! `HOPLO_TMPDIR` if it is set, and no other. Else the first of `/tmp/hoplo-<uid>`, `/var/tmp/hoplo-<uid>` and
//! `$XDG_RUNTIME_DIR/hoplo` that is ours; if none is there, the first that can be made. The runtime directory comes
//! last: it lies in memory, where logs, spilled objects and the control store find little room, it goes when the
//! user logs out, and a program that `cron` starts does not have it. In a folder like `/tmp`, which everybody
//! may write to, the base is a folder of our own with our user id in its name.
//!
//! # Whom we trust
//! Other users of the machine may make what they like where they may write: in `/tmp`, say, a folder with the
//! name that ours would have. With it they could give us a daemon of theirs to talk to, which would send us
//! pickles; or links, through which our clean-up would remove our own files; or a FIFO whose opening never ends.
//!
//! - FOLDER-1: nothing is made, followed or removed in a folder before it is a [`Folder`]: opened step by step from
//!   `/`, without following a link that is neither ours nor root's, through folders in which only we and
//!   root can put another in its place (and a group that shares a folder, whose members trust each other); it
//!   is ours itself, and only we can write to it.
//! - FOLDER-2: what is in it is reached from its descriptor, so that the check holds for as long as it is open.
//! - FOLDER-3: removal goes by descriptors and never through a link.
//! - FOLDER-4: files are opened without waiting and only if they are plain files.
//! - FOLDER-5: a daemon's socket is used only if the process behind it has our user id ([`join`]).
//! - FOLDER-6: one daemon at a time is the head of a base.
//! - FOLDER-7: what is in a session's folder is made and removed by who has the session's lock, and the lock file is
//!   removed last. A session that is being made is no dead one (`lock`).
//! - FOLDER-8: a folder that a user names for a session is taken if it is new, empty, or of an earlier session; what we
//!   did not make stays (`taken`).

mod again;
mod base;
mod folder;
mod head;
pub mod join;
pub mod life;
mod lock;
mod look;
mod mark;
mod names;
mod own;
mod session;
mod taken;

pub use again::JoinsAgain;
pub use base::{Base, Places};
pub use folder::{Folder, FolderError};
pub use head::{Head, HeadError};
pub use join::{JoinError, Wait};
pub use own::OwnSessionFolder;
pub use session::SessionFolder;

#[cfg(test)]
mod tests;
