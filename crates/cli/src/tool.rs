//! A connection to a node daemon that only asks.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hoplo_base::{NodeNumber, limits, shown};
use hoplo_folders::join::Silent;
use hoplo_folders::{Places, SessionFolder, Wait};
use hoplo_node::hello_of_tool;
use hoplo_wire::frames::Incoming;
use hoplo_wire::node::{ToClient, ToNode, decode, encode};
use serde_json::Value;

pub(crate) struct Tool {
    stream: UnixStream,
    incoming: Incoming,
    silent: Silent,
}

/// Whoever listened there does not any more.
#[derive(Debug, thiserror::Error)]
#[error("the node daemon has closed the connection: it ended, or it ends")]
pub(crate) struct Closed;

impl Tool {
    pub(crate) fn connect(session: &SessionFolder) -> Result<Self> {
        let joined =
            session.connect(&mut Wait::at_most(limits::NODE_ANSWERS)).with_context(|| {
                format!("cannot reach the node daemon of {}", session.path().display())
            })?;
        let stream = UnixStream::from(joined.socket);
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(limits::NODE_ANSWERS))?;
        let silent = Silent { pid: joined.pid, waited: limits::NODE_ANSWERS };
        let incoming = Incoming::new(limits::NODE_MESSAGE_BYTES_MAX);
        let mut tool = Self { stream, incoming, silent };
        tool.greet()?;
        Ok(tool)
    }

    fn greet(&mut self) -> Result<()> {
        match self.write(&hello_of_tool()) {
            Err(error) if !error.is::<Closed>() => return Err(error),
            // It may have said why before it closed.
            Ok(()) | Err(_) => {}
        }
        match self.receive()? {
            ToClient::Welcome(_) => Ok(()),
            ToClient::Refused { reason } => bail!("{reason}"),
            other => bail!("the node daemon greeted with {other:?}"),
        }
    }

    /// The node that was asked for, else the one that `find_session` finds; one that ends at this moment is
    /// waited for and passed over.
    pub(crate) fn find(asked: Option<&Path>) -> Result<Self> {
        loop {
            let session = find_session(asked)?;
            match Self::connect(&session) {
                Err(error) if asked.is_none() && error.is::<Closed>() && session.has_ended() => {}
                other => return other,
            }
        }
    }

    /// Says on stderr what is missing in the answer.
    pub(crate) fn query(&mut self, kind: &str, argument: &str) -> Result<Value> {
        let (answer, missing) = self.ask(kind, argument)?;
        warn(&missing);
        Ok(answer)
    }

    /// The answer, and what is missing in it: nodes that did not answer, a sentence each.
    pub(crate) fn ask(&mut self, kind: &str, argument: &str) -> Result<(Value, Vec<String>)> {
        let question = ToNode::question(kind, argument).map_err(anyhow::Error::msg)?;
        self.send(&question(1))?;
        loop {
            if let ToClient::Answer { result, missing, .. } = self.receive()? {
                let json = result.map_err(anyhow::Error::msg)?;
                return Ok((serde_json::from_str(&json)?, missing));
            }
        }
    }

    /// Asks the node to stop, and waits until its daemon has closed the connection.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.send(&ToNode::Stop)?;
        self.stream.set_read_timeout(Some(limits::NODE_ANSWERS))?;
        match std::io::copy(&mut self.stream, &mut std::io::sink()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(self.explained(error)).context("the node did not stop"),
        }
    }

    fn send(&mut self, message: &ToNode) -> Result<()> {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(|error| self.explained(error))
    }

    fn receive(&mut self) -> Result<ToClient> {
        let mut scratch = [0; 16 * 1024];
        let mut by = Instant::now() + limits::NODE_ANSWERS;
        loop {
            if let Some(body) = self.incoming.take()? {
                return Ok(decode(body)?);
            }
            // Who is stopped and goes on, again and again, waits no longer for that.
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.silent.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut scratch) {
                Ok(0) => return Err(self.explained(ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    self.incoming.add(&scratch[..bytes]);
                    by = Instant::now() + limits::NODE_ANSWERS;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.explained(error)),
            }
        }
    }

    fn explained(&self, error: io::Error) -> anyhow::Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.silent.into(),
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                Closed.into()
            }
            _ => anyhow::Error::from(error).context("the node daemon cannot be asked"),
        }
    }
}

/// Says on stderr what is missing in an answer.
pub(crate) fn warn(missing: &[String]) {
    for line in missing {
        eprintln!("hoplo: {}", shown(line));
    }
}

/// A node as rows name it, if `named` is what an error or a story calls it (`node:1f`); else as it is: an id, or the name of a host.
pub(crate) fn node_as_listed(named: &str) -> String {
    NodeNumber::of_shown(named).map_or_else(|| named.to_string(), NodeNumber::hex)
}

/// The session that was asked for; else the head; else the newest one that lives.
pub(crate) fn find_session(asked: Option<&Path>) -> Result<SessionFolder> {
    if let Some(session) = asked {
        let instead =
            ": give --session the folder of a session of yours, as `hoplo status` shows it";
        return Ok(SessionFolder::open(session).map_err(|error| error.instead(instead))?);
    }
    let base = Places::of_environment().find()?;
    let waits = base.as_ref().and_then(|base| base.joining_again().into_iter().next());
    let found = base.and_then(|base| {
        let head = base.current().filter(SessionFolder::listens);
        head.or_else(|| base.live().into_iter().find(SessionFolder::listens))
    });
    if let (None, Some(pid)) = (&found, waits) {
        bail!(
            "no node of yours runs here yet: process {pid} waits to be of its cluster, or to be its head"
        );
    }
    found.context(
        "no node of yours runs here: start one with `hoplo start --head`, or start a program that uses hoplo",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_be_named_as_errors_name_it() {
        for (named, listed) in [
            ("node:ae368", "0ae368"),
            ("0ae368", "0ae368"),
            ("ae368", "ae368"),
            ("node:x", "node:x"),
        ] {
            assert_eq!(node_as_listed(named), listed);
        }
        for odd in ["node:", "node:1234567", "node:+1", "node:0"] {
            assert_eq!(node_as_listed(odd), odd);
        }
    }

    #[test]
    fn why_a_daemon_closed_before_the_hello_is_told() {
        let (stream, daemon) = UnixStream::pair().unwrap();
        let mut said = Vec::new();
        encode(&ToClient::Refused { reason: "no room".to_string() }, &mut said);
        (&daemon).write_all(&said).unwrap();
        drop(daemon);
        let silent = Silent { pid: 1, waited: limits::NODE_ANSWERS };
        let incoming = Incoming::new(limits::NODE_MESSAGE_BYTES_MAX);
        let mut tool = Tool { stream, incoming, silent };
        assert_eq!(tool.greet().unwrap_err().to_string(), "no room");
        assert!(tool.greet().unwrap_err().is::<Closed>(), "and nothing more is there");
    }
}
