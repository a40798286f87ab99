//! A connection that was accepted for somebody else.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustls::ServerConnection;

use crate::protocol::Purpose;

/// Somebody who came and does not want to join: the handshake has begun, and requires a certificate.
#[derive(Debug)]
pub struct Peer {
    pub purpose: Purpose,
    pub socket: OwnedFd,
    pub tls: Box<ServerConnection>,
    pub from: SocketAddr,
}
