//! `host:port`, or the path of a unix socket: to listen on and to connect to, without blocking.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hoplo_base::limits::NET_UNACKNOWLEDGED;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The text names no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address ({why}): expected host:port, or the path of a unix socket")]
pub struct AddressError {
    pub text: String,
    pub why: String,
}

const BACKLOG: i32 = 1024;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let error = |why: String| AddressError { text: text.to_string(), why };
        let mut found = text.to_socket_addrs().map_err(|cause| error(cause.to_string()))?;
        found.next().map(Self::Tcp).ok_or_else(|| error("the name has no address".to_string()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// A listening socket, and where it listens (port 0 becomes a real one). A unix socket that nobody
    /// answers on any more is replaced; only its owner may connect.
    pub(crate) fn listen(&self) -> io::Result<(OwnedFd, Address)> {
        let socket = self.socket()?;
        let at = match self {
            Self::Tcp(address) => {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                net::bind(&socket, address)?;
                let bound = net::getsockname(&socket)?;
                Self::Tcp(SocketAddr::try_from(bound).map_err(io::Error::from)?)
            }
            Self::Unix(path) => {
                if path.exists() && std::os::unix::net::UnixStream::connect(path).is_err() {
                    std::fs::remove_file(path)?;
                }
                net::bind(&socket, &SocketAddrUnix::new(path)?)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                self.clone()
            }
        };
        net::listen(&socket, BACKLOG)?;
        Ok((socket, at))
    }

    /// A socket that is connected, or will be when it is writable.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let socket = self.socket()?;
        let connected = match self {
            Self::Tcp(address) => {
                tune(&socket)?;
                net::connect(&socket, address)
            }
            Self::Unix(path) => net::connect(&socket, &SocketAddrUnix::new(path)?),
        };
        match connected {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    }

    pub fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        let family = match self {
            Self::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Self::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Self::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
    }
}

/// For every TCP connection, dialled or accepted.
pub(crate) fn tune(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, NET_UNACKNOWLEDGED.as_millis() as u32)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(())
}
