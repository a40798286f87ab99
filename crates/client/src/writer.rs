//! What goes to the node daemon: whole messages, in the order of the calls, and never a wait.
//!
//! ```text
//!   nothing behind --socket full--> behind --the daemon read all of it--> nothing behind
//!        \------------------------- finish, or the socket breaks ----------------> over
//! ```
//! A message goes to the kernel at once, if it takes it without waiting. What it does not take is *behind*: the
//! writer thread hands it over as the daemon reads, outside of the session lock. So a daemon that is slow, or
//! stopped, holds up nobody who holds that lock.
//!
//! # What waits while something is behind
//! - WRITE-1: no call is written into a ring, and no reply, since what they mention must have been told before
//!   (REF-1, REF-3, REF-4). Calls wait with those that found their ring full; who replies waits.
//! - WRITE-2: at `UNSENT_BYTES_MAX` who submits, puts or exports waits before it takes the lock (`wait_for_room`),
//!   and looks at its signals. What others say still joins: it is bounded by what there is to be said of objects
//!   and calls that exist.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hoplo_base::limits;
use hoplo_shm::{Kept, fds};
use hoplo_wire::node::{self, ToNode};
use rustix::net::{Shutdown, shutdown};

use crate::Hooks;
use crate::signal::Signal;
use crate::socket::{is_of_the_peer, once_more, socket_lost};

pub(crate) struct Writer {
    socket: Kept,
    /// Encoded messages; those before `sent` are the kernel's. Empty: nothing is behind.
    bytes: Vec<u8>,
    sent: usize,
    /// Descriptors, each with where in `bytes` its message begins.
    fds: VecDeque<(usize, OwnedFd)>,
    stage: Stage,
    news: Arc<News>,
    /// Of a worker, which dies when its own code closes the socket.
    dies: Option<Arc<dyn Hooks>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// What is behind is the last.
    Finishing,
    Over,
}

/// What others wait for.
#[derive(Default)]
pub(crate) struct News {
    /// For the writer thread: something is behind, or it is over.
    pub(crate) fell_behind: Signal,
    /// Nothing is behind any more, or less.
    pub(crate) caught_up: Signal,
    /// So much is behind that nobody is to add to it. Written under the session lock; a hint to others.
    pub(crate) full: AtomicBool,
}

impl Writer {
    pub(crate) fn new(socket: Kept) -> Self {
        let (bytes, fds) = (Vec::new(), VecDeque::new());
        let (stage, news) = (Stage::Open, Arc::default());
        Self { socket, bytes, sent: 0, fds, stage, news, dies: None }
    }

    /// The same socket once more, to wait for room in it.
    pub(crate) fn socket(&self) -> io::Result<Kept> {
        once_more(&self.socket)
    }

    /// A worker whose code closes the socket ends: what it would say next would never be heard.
    pub(crate) fn die_when_lost(&mut self, hooks: Arc<dyn Hooks>) {
        self.dies = Some(hooks);
    }

    pub(crate) fn news(&self) -> Arc<News> {
        self.news.clone()
    }

    /// A broken socket is noticed by the reader, too: nothing more is written.
    pub(crate) fn send(&mut self, message: &ToNode) {
        self.send_with(message, None);
    }

    pub(crate) fn send_with(&mut self, message: &ToNode, with: Option<OwnedFd>) {
        if self.stage != Stage::Open {
            return;
        }
        let behind = self.is_behind();
        let start = self.bytes.len();
        self.fds.extend(with.map(|fd| (start, fd)));
        node::encode(message, &mut self.bytes);
        debug_assert!(
            self.bytes.len() - start - 4 <= limits::PROCESS_MESSAGE_BYTES_MAX,
            "the daemon would drop the connection: who makes a message bounds it"
        );
        if !behind {
            self.flush();
            if self.is_behind() {
                self.news.fell_behind.tell();
            }
        }
        if self.is_behind() && self.bytes.len() - self.sent > limits::UNSENT_BYTES_MAX {
            self.news.full.store(true, Ordering::Relaxed);
        }
    }

    /// Something was not taken by the kernel yet.
    pub(crate) fn is_behind(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Nothing more will be written.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Gives the kernel what it takes now.
    pub(crate) fn flush(&mut self) {
        while self.sent < self.bytes.len() {
            let end = self.bytes.len();
            // A descriptor rides with the first byte of its message, and of no other.
            let (until, with) = match self.fds.front() {
                Some((at, fd)) if *at == self.sent => {
                    (self.fds.get(1).map_or(end, |(next, _)| *next), Some(fd.as_fd()))
                }
                Some((at, _)) => (*at, None),
                None => (end, None),
            };
            let bytes = &self.bytes[self.sent..until];
            match fds::send_now(&self.socket, bytes, with.as_slice()) {
                Ok(sent) => {
                    if with.is_some() {
                        self.fds.pop_front();
                    }
                    self.sent += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.compact(),
                Err(error) => {
                    if let Some(hooks) = self.dies.as_ref().filter(|_| !is_of_the_peer(&error)) {
                        hooks.fail(&socket_lost(&error));
                    }
                    return self.end();
                }
            }
        }
        self.sent = 0;
        self.bytes.clear();
        if self.bytes.capacity() > limits::WRITER_BYTES_KEPT {
            self.bytes = Vec::new();
        }
        if self.stage == Stage::Finishing {
            // It may be broken already: then nothing is left to be said.
            let _ = shutdown(&self.socket, Shutdown::Write);
            self.end();
        }
    }

    /// Forgets what the kernel has, when that is most of it.
    fn compact(&mut self) {
        if self.sent > limits::WRITER_BYTES_KEPT && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.fds.iter_mut().for_each(|(at, _)| *at -= self.sent);
            self.sent = 0;
        }
        if self.bytes.len() - self.sent <= limits::UNSENT_BYTES_MAX / 2 {
            self.news.full.store(false, Ordering::Relaxed);
        }
    }

    /// Nothing more will be said but what is behind; the daemon may still have something to say.
    pub(crate) fn finish(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Finishing;
            self.flush();
        }
    }

    pub(crate) fn shutdown(&mut self) {
        // It may be closed already: then there is nothing to shut down.
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.end();
    }

    fn end(&mut self) {
        self.stage = Stage::Over;
        self.bytes.clear();
        self.fds.clear();
        self.sent = 0;
        self.news.full.store(false, Ordering::Relaxed);
        self.news.fell_behind.tell();
        self.news.caught_up.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn kept(socket: UnixStream) -> Kept {
        Kept::new(socket.into()).expect("it is open")
    }

    fn title(text: &str) -> ToNode {
        ToNode::Title { title: text.to_string() }
    }

    #[test]
    fn a_daemon_that_does_not_read_stops_nobody_and_gets_all_in_order_afterwards() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut writer = Writer::new(kept(ours));
        let text = "t".repeat(10_000);
        let mut wanted = Vec::new();
        for _ in 0..200 {
            writer.send(&title(&text));
            node::encode(&title(&text), &mut wanted);
        }
        assert!(writer.is_behind(), "two megabytes are more than a socket takes");
        writer.finish();
        let mut read = Vec::new();
        let mut buffer = [0; 4096];
        while writer.is_behind() {
            let count = theirs.read(&mut buffer).expect("there is more");
            read.extend_from_slice(&buffer[..count]);
            writer.flush();
        }
        theirs.read_to_end(&mut read).expect("the end is told");
        assert_eq!(read, wanted);
    }

    #[test]
    fn a_descriptor_stays_with_its_message_when_it_waits() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut writer = Writer::new(kept(ours));
        let text = "t".repeat(10_000);
        for _ in 0..100 {
            writer.send(&title(&text));
        }
        let before = writer.bytes.len() - writer.sent;
        assert!(before > 0);
        for _ in 0..3 {
            let (one, _) = fds::socketpair().expect("a pair");
            writer.send_with(&title("with"), Some(one));
        }
        let mut buffer = vec![0; 4096];
        let mut messages = hoplo_wire::frames::Incoming::new(1 << 20);
        let (mut got, mut with, mut descriptors) = (0, 0, 0);
        while got < 103 {
            writer.flush();
            let received = fds::receive(&theirs, &mut buffer).expect("there is more");
            messages.add(&buffer[..received.bytes]);
            descriptors += received.fds.len();
            while let Some(body) = messages.take().expect("it parses") {
                let message: ToNode = node::decode(body).expect("it parses");
                got += 1;
                with += usize::from(message == title("with"));
            }
            assert!(with <= descriptors, "a descriptor comes no later than its message");
            assert!(descriptors == 0 || got >= 99, "and not before its turn");
        }
        assert_eq!((with, descriptors), (3, 3));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "who makes a message bounds it")]
    fn a_message_that_the_daemon_refuses_was_sent_in_silence() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        Writer::new(kept(ours)).send(&title(&"t".repeat(limits::PROCESS_MESSAGE_BYTES_MAX)));
    }

    #[test]
    fn who_adds_is_told_when_too_much_is_behind() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut writer = Writer::new(kept(ours));
        let text = "t".repeat(8 << 20);
        while !writer.news.full.load(Ordering::Relaxed) {
            writer.send(&title(&text));
        }
        assert!(writer.bytes.len() - writer.sent > limits::UNSENT_BYTES_MAX);
        drop(theirs);
        writer.flush();
        assert!(!writer.is_behind() && !writer.news.full.load(Ordering::Relaxed));
    }
}
