//! The greeting: who we are, then the Welcome. Until that came nobody knows whether a daemon is at the other end at
//! all. So nothing here blocks, little is kept of what comes, and whoever waits may give up.

use std::io;
use std::os::fd::OwnedFd;

use hoplo_base::limits;
use hoplo_folders::{JoinError, Wait};
use hoplo_shm::fds;
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::frames::Incoming;
use hoplo_wire::node::{JobConfig, Role, ToClient, ToNode, Welcome, decode, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the node daemon refused: {0}")]
    Refused(String),
    /// A worker that is of no use any more: its job ended while it started, or its node is being drained.
    #[error("the node daemon told this process to end: {0}")]
    ToldToEnd(String),
    #[error(
        "the process at the other end has closed the connection: it is no node daemon, or ends"
    )]
    Closed,
    /// It does not answer, or nobody waits any more.
    #[error("{0}")]
    Join(#[from] JoinError),
    #[error(
        "the paths in sys.path and the runtime environment of this program take {bytes} bytes together, more than {}: \
         pass large values as arguments",
        limits::JOB_BYTES_MAX
    )]
    JobTooLarge { bytes: usize },
    #[error("the connection to the node daemon failed: {0}")]
    Io(#[from] std::io::Error),
}

/// A Welcome, and what came behind it.
pub(crate) struct Greeted {
    pub(crate) welcome: Welcome,
    pub(crate) incoming: Incoming,
    pub(crate) fds: Vec<OwnedFd>,
}

/// Leaves the socket as one that does not block. A driver tells its `job`.
pub(crate) fn greet(
    socket: &OwnedFd,
    role: Role,
    job: Option<JobConfig>,
    wait: &mut Wait<'_>,
) -> Result<Greeted, ConnectError> {
    rustix::io::ioctl_fionbio(socket, true).map_err(io::Error::from)?;
    let version = env!("CARGO_PKG_VERSION").to_string();
    let (protocol, pid) = (PROTOCOL_VERSION, std::process::id());
    let mut words = Vec::new();
    encode(&ToNode::Hello { protocol, version, pid, role }, &mut words);
    if let Some(job) = job {
        let hello = words.len();
        encode(&ToNode::Job(Box::new(job)), &mut words);
        let bytes = words.len() - hello;
        if bytes > limits::JOB_BYTES_MAX {
            return Err(ConnectError::JobTooLarge { bytes });
        }
    }
    say(socket, &words, wait)?;
    let (incoming, fds) = (Incoming::new(limits::WELCOME_BYTES_MAX), Vec::new());
    let mut heard = Heard { incoming, fds };
    match heard.first(socket, wait)? {
        ToClient::Welcome(welcome) => {
            heard.incoming.allow(limits::NODE_MESSAGE_BYTES_MAX);
            Ok(Greeted { welcome: *welcome, incoming: heard.incoming, fds: heard.fds })
        }
        ToClient::Refused { reason } => Err(ConnectError::Refused(reason)),
        ToClient::Exit { reason, .. } => Err(ConnectError::ToldToEnd(reason)),
        other => Err(ConnectError::Refused(format!("unexpected answer {other:?}"))),
    }
}

fn say(socket: &OwnedFd, words: &[u8], wait: &mut Wait<'_>) -> Result<(), ConnectError> {
    let mut sent = 0;
    while sent < words.len() {
        match fds::send(socket, &words[sent..], &[]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready(socket, PollFlags::OUT, wait)?;
            }
            // It may have said why before it closed.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

struct Heard {
    incoming: Incoming,
    fds: Vec<OwnedFd>,
}

impl Heard {
    fn first(&mut self, socket: &OwnedFd, wait: &mut Wait<'_>) -> Result<ToClient, ConnectError> {
        let mut scratch = [0; 16 * 1024];
        loop {
            if let Some(body) = self.incoming.take().map_err(io::Error::other)? {
                return Ok(decode(body).map_err(io::Error::other)?);
            }
            match fds::receive(socket, &mut scratch) {
                Ok(received) if received.bytes == 0 => return Err(ConnectError::Closed),
                Ok(received) => {
                    self.incoming.add(&scratch[..received.bytes]);
                    self.fds.extend(received.fds);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready(socket, PollFlags::IN, wait)?;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ConnectError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Until it is, or it is time to look again.
fn ready(socket: &OwnedFd, flags: PollFlags, wait: &mut Wait<'_>) -> Result<(), ConnectError> {
    let pause = wait.pause()?.map(|pause| Timespec {
        tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(pause.subsec_nanos()),
    });
    match poll(&mut [PollFd::new(socket, flags)], pause.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn greeted(said: &[u8], closes: bool, wait: &mut Wait<'_>) -> ConnectError {
        let (ours, theirs) = fds::socketpair().unwrap();
        if !said.is_empty() {
            fds::send(&theirs, said, &[]).unwrap();
        }
        let theirs = (!closes).then_some(theirs);
        let error = greet(&ours, Role::Tool, None, wait).err().expect("nobody welcomes us");
        drop(theirs);
        error
    }

    fn soon() -> Wait<'static> {
        Wait::at_most(Duration::from_millis(20))
    }

    #[test]
    fn a_peer_that_says_nothing_was_waited_for_for_ever() {
        let error = greeted(b"", false, &mut soon());
        assert!(matches!(error, ConnectError::Join(JoinError::Silent(_))), "{error}");
        let error = greeted(&[9, 0, 0, 0, 1], false, &mut soon());
        assert!(matches!(error, ConnectError::Join(JoinError::Silent(_))), "{error}");
        let mut wanted = || false;
        let error = greeted(b"", false, &mut Wait::for_answer(&mut wanted));
        assert!(matches!(error, ConnectError::Join(JoinError::Interrupted)), "{error}");
        assert!(matches!(greeted(b"", true, &mut soon()), ConnectError::Closed));
    }

    #[test]
    fn a_worker_that_was_told_to_end_while_it_started_called_that_an_unexpected_answer() {
        let mut said = Vec::new();
        encode(&ToClient::Exit { graceful: true, reason: "its job ended".to_string() }, &mut said);
        let error = greeted(&said, false, &mut soon());
        assert!(
            matches!(&error, ConnectError::ToldToEnd(why) if why == "its job ended"),
            "{error}"
        );
    }

    #[test]
    fn a_peer_that_does_not_read_was_waited_for_for_ever() {
        let (ours, _theirs) = fds::socketpair().unwrap();
        let job = JobConfig { cwd: "x".repeat(limits::JOB_BYTES_MAX - 64), ..JobConfig::default() };
        let error = greet(&ours, Role::Driver, Some(job), &mut soon()).err().unwrap();
        assert!(matches!(error, ConnectError::Join(JoinError::Silent(_))), "{error}");
    }

    #[test]
    fn before_the_welcome_a_peer_could_announce_half_a_gibibyte() {
        let bytes = u32::try_from(limits::WELCOME_BYTES_MAX + 1).unwrap();
        let error = greeted(&bytes.to_le_bytes(), false, &mut soon());
        assert!(matches!(error, ConnectError::Io(_)), "{error}");
    }

    #[test]
    fn a_job_that_is_too_large_is_told_before_anything_is_sent() {
        let (ours, theirs) = fds::socketpair().unwrap();
        let job = JobConfig { cwd: "x".repeat(limits::JOB_BYTES_MAX), ..JobConfig::default() };
        let error = greet(&ours, Role::Driver, Some(job), &mut soon()).err().unwrap();
        assert!(error.to_string().contains("sys.path"), "{error}");
        drop(ours);
        assert_eq!(fds::receive(&theirs, &mut [0; 8]).unwrap().bytes, 0);
    }
}
