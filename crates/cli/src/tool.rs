//! A connection to a node daemon that only asks.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hoplo_base::limits::NODE_MESSAGE_BYTES_MAX;
use hoplo_node::session;
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::frames::Incoming;
use hoplo_wire::node::{Role, ToClient, ToNode, decode, encode};
use serde_json::Value;

/// A daemon that does not answer within this time hangs.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Tool {
    stream: UnixStream,
    incoming: Incoming,
}

impl Tool {
    pub(crate) fn connect(session: &Path) -> Result<Self> {
        let socket = session::connect(session)
            .with_context(|| format!("cannot reach the node daemon of {}", session.display()))?;
        let stream = UnixStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut tool = Self { stream, incoming: Incoming::new(NODE_MESSAGE_BYTES_MAX) };
        tool.send(&ToNode::Hello {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            role: Role::Tool,
        })?;
        match tool.receive()? {
            ToClient::Welcome(_) => Ok(tool),
            ToClient::Refused { reason } => bail!("{reason}"),
            other => bail!("the node daemon greeted with {other:?}"),
        }
    }

    pub(crate) fn query(&mut self, kind: &str, argument: &str) -> Result<Value> {
        let (kind, argument) = (kind.to_string(), argument.to_string());
        self.send(&ToNode::Query { request: 1, kind, argument })?;
        loop {
            if let ToClient::Answer { result, .. } = self.receive()? {
                let json = result.map_err(anyhow::Error::msg)?;
                return Ok(serde_json::from_str(&json)?);
            }
        }
    }

    /// Asks the node to stop, and waits until its daemon has closed the connection.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.send(&ToNode::Stop)?;
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(error).context("the node daemon did not stop"),
        }
    }

    fn send(&mut self, message: &ToNode) -> Result<()> {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        Ok(self.stream.write_all(&bytes)?)
    }

    fn receive(&mut self) -> Result<ToClient> {
        let mut scratch = [0; 16 * 1024];
        loop {
            if let Some(body) = self.incoming.take()? {
                return Ok(decode(body)?);
            }
            let bytes =
                self.stream.read(&mut scratch).context("the node daemon does not answer")?;
            if bytes == 0 {
                bail!("the node daemon closed the connection");
            }
            self.incoming.add(&scratch[..bytes]);
        }
    }
}

/// The session that was asked for; else the head; else the newest one that lives.
pub(crate) fn find_session(asked: Option<&Path>) -> Result<PathBuf> {
    if let Some(session) = asked {
        return Ok(session.to_path_buf());
    }
    let base = session::base_dir();
    let found = session::current(&base).or_else(|| session::live(&base).into_iter().next());
    found.context(
        "nothing runs here: start a node with `hoplo start --head`, or a program that uses hoplo",
    )
}
