//! A connection that was accepted for somebody else.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::protocol::Purpose;
use crate::records::Records;

/// Somebody who came and does not want to join: the handshake has begun, and requires a certificate.
#[derive(Debug)]
pub struct Peer {
    pub purpose: Purpose,
    pub socket: OwnedFd,
    pub(crate) tls: Records,
    pub from: SocketAddr,
}
