//! TLS of one connection: records are opened where they lie, and what is to be sent becomes records.
//!
//! ```text
//!   socket --> [ a record's beginning, kept | what came ] --opened in place--> frames
//!   frames, and bytes where they lie --> records, until they are a piece --> socket
//! ```
//! rustls keeps no bytes that came: its connections with buffers of their own take them in pieces of 4 KiB and move what is left
//! each time, which takes 0.9 s of a core for a GiB instead of 0.4.
//!
//! # Invariants
//! - TLS-1: what is kept of a record, or of a message of the handshake, that is not whole is bounded.
//! - TLS-2: at most one piece is sealed and not sent.
//! - TLS-3: after an error nothing is opened and nothing sealed any more; what TLS says about it (an alert) is still sent.

use std::fmt;
use std::sync::Arc;

use hoplo_base::limits::BULK_CHUNK_BYTES;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{ClientConfig, Error, ServerConfig};

/// One connection's.
pub struct Records {
    side: Side,
    /// Records that are not whole yet.
    kept: Vec<u8>,
    /// Records for the socket, and how much of them it has.
    sealed: Sealed,
    sent: usize,
    /// The peer says nothing any more: it has said so, or something is wrong.
    over: Option<Over>,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// A buffer whose end stays: to make it longer clears what is new, which costs as much as to copy it.
#[derive(Default)]
struct Sealed {
    bytes: Vec<u8>,
    filled: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    PeerClosed,
    Failed,
}

/// What is sealed and sent at a time: a piece of an object, and what is around it. Each call of the kernel ends with a packet that is
/// not full, and each packet costs as much as sealing a record does.
const PIECE_BYTES: usize = BULK_CHUNK_BYTES + 4096;
/// Above the longest record (16 KiB and a bit), and any message of a handshake between members of a cluster.
const KEPT_BYTES_MAX: usize = 32 * 1024;

impl Records {
    pub(crate) fn dialled(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, Error> {
        let tls = UnbufferedClientConnection::new(config, name)?;
        Ok(Self::new(Side::Client(tls)))
    }

    pub(crate) fn accepted(config: Arc<ServerConfig>) -> Result<Self, Error> {
        let tls = UnbufferedServerConnection::new(config)?;
        Ok(Self::new(Side::Server(tls)))
    }

    fn new(side: Side) -> Self {
        Self { side, kept: Vec::new(), sealed: Sealed::default(), sent: 0, over: None }
    }

    /// Bytes in front of those that come next: see `open`.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Takes what was kept and what came behind it, and gives what was inside. An error ends the connection.
    pub(crate) fn open(
        &mut self,
        wire: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Error> {
        if self.over.is_some() {
            return Ok(());
        }
        let (used, driven) = self.drive(wire, &[], take);
        driven?;
        self.kept.clear();
        if self.over.is_none() {
            self.kept.extend_from_slice(&wire[used..]);
        }
        if self.kept.len() > KEPT_BYTES_MAX {
            self.over = Some(Over::Failed);
            return Err(Error::General(format!("{} bytes came that are no record", wire.len())));
        }
        Ok(())
    }

    /// Seals a beginning of these bytes. How much it took: nothing before the end of the handshake, and when a piece is sealed that
    /// is to be sent first.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<usize, Error> {
        debug_assert_eq!(self.sent, 0, "what is sealed is sent before more is");
        let room = PIECE_BYTES.saturating_sub(self.unsent().len());
        if self.over == Some(Over::Failed) || room == 0 {
            return Ok(0);
        }
        let piece = &plain[..plain.len().min(room)];
        let mut kept = std::mem::take(&mut self.kept);
        let mut came = false;
        let (used, driven) = self.drive(&mut kept, piece, &mut |_| came = true);
        kept.drain(..used);
        self.kept = kept;
        if came {
            self.over = Some(Over::Failed);
            return Err(Error::General("a record was not opened when it came".to_string()));
        }
        Ok(if driven? { piece.len() } else { 0 })
    }

    /// For the socket.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.sealed.get()[self.sent..]
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.unsent().is_empty() {
            (self.sealed.filled, self.sent) = (0, 0);
        }
    }

    /// That the peer showed, its own first. Known once anything has come from it.
    pub(crate) fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match &self.side {
            Side::Client(tls) => tls.peer_certificates(),
            Side::Server(tls) => tls.peer_certificates(),
        }
    }

    /// Until rustls wants more from the peer: how much was used, and whether `piece` was sealed.
    fn drive(
        &mut self,
        wire: &mut [u8],
        piece: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> (usize, Result<bool, Error>) {
        let mut used = 0;
        loop {
            let step = self.step(&mut wire[used..], piece, take);
            used += step.used;
            match step.came {
                Ok(Came::Records | Came::Data) => {}
                Ok(Came::Closed) => self.over = Some(Over::PeerClosed),
                Ok(Came::Nothing { sealed }) => return (used, Ok(sealed)),
                Err(error) => {
                    self.over = Some(Over::Failed);
                    // No step more than that: it would read on.
                    while self.has_words() {
                        self.step(&mut wire[used..], &[], &mut |_| {});
                    }
                    return (used, Err(error));
                }
            }
        }
    }

    /// Of the handshake, or an alert.
    fn has_words(&self) -> bool {
        match &self.side {
            Side::Client(tls) => tls.wants_write(),
            Side::Server(tls) => tls.wants_write(),
        }
    }

    fn step(&mut self, wire: &mut [u8], piece: &[u8], take: &mut dyn FnMut(&[u8])) -> Step {
        let sealed = &mut self.sealed;
        match &mut self.side {
            Side::Client(tls) => act(tls.process_tls_records(wire), piece, sealed, take),
            Side::Server(tls) => act(tls.process_tls_records(wire), piece, sealed, take),
        }
    }
}

struct Step {
    /// Of what came.
    used: usize,
    came: Result<Came, Error>,
}

enum Came {
    /// For the socket; there may be more to do.
    Records,
    /// For the frames; there may be more to do.
    Data,
    /// The peer says nothing any more.
    Closed,
    /// More has to come from the peer. Whether the piece was sealed.
    Nothing { sealed: bool },
}

fn act<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    piece: &[u8],
    sealed: &mut Sealed,
    take: &mut dyn FnMut(&[u8]),
) -> Step {
    let mut used = status.discard;
    let came = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut read) => {
            while let Some(record) = read.next_record() {
                let record = record?;
                used += record.discard;
                take(record.payload);
            }
            Ok(Came::Data)
        }
        ConnectionState::EncodeTlsData(mut message) => {
            sealed.append(|room| {
                message.encode(room).map_err(|error| match error {
                    EncodeError::InsufficientSize(more) => Short::Room(more),
                    other => Short::Wrong(Error::General(other.to_string())),
                })
            })?;
            Ok(Came::Records)
        }
        ConnectionState::TransmitTlsData(message) => {
            // It is with those that go to the socket in their order.
            message.done();
            Ok(Came::Records)
        }
        ConnectionState::WriteTraffic(mut traffic) if !piece.is_empty() => {
            sealed.append(|room| {
                traffic.encrypt(piece, room).map_err(|error| match error {
                    EncryptError::InsufficientSize(more) => Short::Room(more),
                    EncryptError::EncryptExhausted => Short::Wrong(Error::EncryptError),
                })
            })?;
            Ok(Came::Nothing { sealed: true })
        }
        ConnectionState::PeerClosed => Ok(Came::Closed),
        ConnectionState::WriteTraffic(_)
        | ConnectionState::BlockedHandshake
        | ConnectionState::Closed => Ok(Came::Nothing { sealed: false }),
        other => Err(Error::General(format!("a state of TLS that is not used here: {other:?}"))),
    });
    Step { used, came }
}

enum Short {
    Room(InsufficientSizeError),
    Wrong(Error),
}

impl Sealed {
    fn get(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Lets `write` say how much room it needs, and gives it that behind what is there.
    fn append(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, Short>,
    ) -> Result<(), Error> {
        let written = match write(&mut self.bytes[self.filled..]) {
            Err(Short::Room(more)) => {
                self.bytes.resize(self.filled + more.required_size, 0);
                write(&mut self.bytes[self.filled..])
            }
            other => other,
        };
        match written {
            Ok(bytes) => {
                self.filled += bytes;
                Ok(())
            }
            Err(Short::Room(more)) => {
                Err(Error::General(format!("{} bytes more", more.required_size)))
            }
            Err(Short::Wrong(error)) => Err(error),
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match &self.side {
            Side::Client(_) => "client",
            Side::Server(_) => "server",
        };
        let (kept, unsent) = (self.kept.len(), self.unsent().len());
        f.debug_struct("Records")
            .field("side", &side)
            .field("kept", &kept)
            .field("unsent", &unsent)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
