//! Where a head listens: on this machine only, unless a host is named.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use crate::address::Address;

/// Unless it is set otherwise.
pub const PORT: u16 = 6379;

const LOOPBACK: &str = "127.0.0.1";

/// Nobody can join there.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "port {} of {} is taken by another program: stop it, or name another port with --port", .at.port(), .at.ip()
    )]
    Taken { at: SocketAddr },
    #[error("this machine has no address {}: name one that it has with --host", .at.ip())]
    NotOurs { at: SocketAddr },
    #[error(
        "the head before this one listened at {at}, and this machine has no such address: name one that it has with --host"
    )]
    NotOursNow { at: SocketAddr },
    #[error("port {} is for the system's own programs: name one above 1023 with --port", .at.port())]
    Forbidden { at: SocketAddr },
    #[error("--host {host:?} is no name or address of a machine: {why}")]
    Host { host: String, why: String },
    /// It is told to all nodes.
    #[error(
        "--host {host} is no address that others could reach: name one of this machine, such as 10.0.0.1, or leave --host out to be \
         reached from this machine only"
    )]
    Anywhere { host: String },
    #[error("{at}: {source}")]
    Io { at: SocketAddr, source: io::Error },
}

/// A listening socket, and where it listens: a port of 0 becomes a real one. `host`: what `--host` says.
pub fn listen(host: Option<&str>, port: u16) -> Result<(OwnedFd, SocketAddr), ListenError> {
    let host = host.unwrap_or(LOOPBACK);
    let wrong = |why: String| ListenError::Host { host: host.to_string(), why };
    let mut found = (host, port).to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    let at = found.next().ok_or_else(|| wrong("it has no address".to_string()))?;
    if at.ip().is_unspecified() || at.ip().is_multicast() {
        return Err(ListenError::Anywhere { host: host.to_string() });
    }
    let (socket, bound) = Address::Tcp(at).listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken { at },
        io::ErrorKind::AddrNotAvailable => ListenError::NotOurs { at },
        io::ErrorKind::PermissionDenied => ListenError::Forbidden { at },
        _ => ListenError::Io { at, source },
    })?;
    let Address::Tcp(bound) = bound else { unreachable!("a port was asked for") };
    Ok((socket, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_stands_for_all_of_a_machine_is_refused_since_others_could_not_dial_it() {
        for host in ["0.0.0.0", "::", "224.0.0.1"] {
            let error = listen(Some(host), 0).unwrap_err().to_string();
            assert!(error.contains(host) && error.contains("10.0.0.1"), "{error}");
        }
        assert!(listen(Some("127.0.0.1"), 0).is_ok());
    }
}
