//! One connection that came, as far as a message of it: bytes in, what they were out.
//!
//! ```text
//!   Hello --wants neither--> a peer: handed on as it is
//!     \--wants to join, or to renew--> Speaking --its message is whole--> Asked --answered--> Over
//!                                         \--no such message: refused-------------------------/
//! ```

use std::io::{self, Read, Write};

use hoplo_base::limits::{JOIN_ASK_BYTES_MAX, JOIN_STRANGER_BYTES_MAX};
use hoplo_wire::frames::Incoming;
use hoplo_wire::join::{
    Answer, Ask, Opening, PROTOCOL, Refused, decode, decode_opening, encode_answer,
};
use rustls::ServerConnection;
use rustls::server::{Accepted, AcceptedAlert, Acceptor};

use super::judge::Asked;
use super::opening;
use super::proof::Channel;
use crate::protocol::Purpose;
use crate::records::Records;
use crate::tls::{Identity, holder_of};

pub(super) struct Stranger {
    stage: Stage,
    /// Of all that it may send.
    received_bytes: usize,
    /// What TLS says to it where there is no connection yet.
    alert: Vec<u8>,
}

enum Stage {
    /// Its first message, as far as it came: as rustls reads it, and as it is.
    Hello(Box<Acceptor>, Vec<u8>),
    Speaking(Box<ServerConnection>, Purpose, Incoming),
    Over(Option<Box<ServerConnection>>),
}

/// What the bytes were.
pub(super) enum Heard {
    Nothing,
    /// It does not want to join: somebody else's business.
    Peer(Purpose, Box<Records>),
    Asked(Box<Asked>),
    /// It is to be told so, and the connection ends.
    Refused(Refused),
}

/// It does not speak TLS as it has to: what TLS has to say about that is to be sent, and the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl Stranger {
    pub(super) fn new() -> Self {
        let stage = Stage::Hello(Box::default(), Vec::new());
        Self { stage, received_bytes: 0, alert: Vec::new() }
    }

    pub(super) fn receive(
        &mut self,
        identity: &Identity,
        mut wire: &[u8],
    ) -> Result<Heard, Broken> {
        self.received_bytes += wire.len();
        if self.received_bytes > JOIN_STRANGER_BYTES_MAX {
            return Err(Broken);
        }
        if let Stage::Hello(acceptor, said) = &mut self.stage {
            said.extend_from_slice(wire);
            match hello(acceptor, &mut wire) {
                Ok(None) => return Ok(Heard::Nothing),
                Ok(Some(accepted)) => {
                    let said = std::mem::take(said);
                    return self.accepted(identity, accepted, said, wire);
                }
                Err(alert) => return Err(self.ends_with(alert)),
            }
        }
        self.listen(wire)
    }

    /// The last that it hears.
    pub(super) fn answer(&mut self, answer: &Answer) {
        let Stage::Over(Some(tls)) = &mut self.stage else { return };
        let mut frame = Vec::new();
        encode_answer(answer, &mut frame);
        tls.writer().write_all(&frame).expect("TLS has room for one answer");
        tls.send_close_notify();
    }

    /// Sends what the socket takes; whether everything is out.
    pub(super) fn send(&mut self, socket: &mut dyn Write) -> io::Result<bool> {
        while !self.alert.is_empty() {
            match socket.write(&self.alert) {
                Ok(bytes) => drop(self.alert.drain(..bytes)),
                Err(error) => return is_full(error),
            }
        }
        let (Stage::Speaking(tls, _, _) | Stage::Over(Some(tls))) = &mut self.stage else {
            return Ok(true);
        };
        while tls.wants_write() {
            if let Err(error) = tls.write_tls(socket) {
                return is_full(error);
            }
        }
        Ok(true)
    }

    fn accepted(
        &mut self,
        identity: &Identity,
        accepted: Accepted,
        mut said: Vec<u8>,
        wire: &[u8],
    ) -> Result<Heard, Broken> {
        let purpose = purpose(&accepted);
        if matches!(purpose, Purpose::Store | Purpose::Link) {
            // From its first byte on: whoever it is handed to has another use of TLS than a join.
            self.stage = Stage::Over(None);
            let mut tls = identity.accepted(purpose).map_err(|_| Broken)?;
            if tls.open(&mut said, &mut |_| {}).is_err() {
                self.alert.extend_from_slice(tls.unsent());
                return Err(Broken);
            }
            return Ok(Heard::Peer(purpose, Box::new(tls)));
        }
        let tls = match accepted.into_connection(identity.serving(purpose)) {
            Ok(tls) => Box::new(tls),
            Err((_, alert)) => return Err(self.ends_with(alert)),
        };
        self.stage = Stage::Speaking(tls, purpose, Incoming::new(JOIN_ASK_BYTES_MAX));
        self.listen(wire)
    }

    fn listen(&mut self, wire: &[u8]) -> Result<Heard, Broken> {
        // JOIN-1: after its message there is nothing more to be said.
        let stage = std::mem::replace(&mut self.stage, Stage::Over(None));
        let Stage::Speaking(mut tls, purpose, mut inbox) = stage else { return Err(Broken) };
        let heard = match read(&mut tls, &mut inbox, wire) {
            Ok(Some(body)) => match understand(&tls, purpose, &body) {
                Ok(asked) => Ok(Heard::Asked(Box::new(asked))),
                Err(refused) => Ok(Heard::Refused(refused)),
            },
            Ok(None) => {
                self.stage = Stage::Speaking(tls, purpose, inbox);
                return Ok(Heard::Nothing);
            }
            Err(Unread::TooLong) => Ok(Heard::Refused(Refused::Malformed)),
            Err(Unread::Tls) => Err(Broken),
        };
        self.stage = Stage::Over(Some(tls));
        heard
    }

    fn ends_with(&mut self, mut alert: AcceptedAlert) -> Broken {
        alert.write_all(&mut self.alert).expect("a vector takes all");
        self.stage = Stage::Over(None);
        Broken
    }
}

enum Unread {
    TooLong,
    Tls,
}

/// Its first message, once it is whole.
fn hello(acceptor: &mut Acceptor, wire: &mut &[u8]) -> Result<Option<Accepted>, AcceptedAlert> {
    while !wire.is_empty() {
        // What does not fit is no first message: `accept` says so.
        let read = acceptor.read_tls(wire);
        match acceptor.accept() {
            Ok(None) if read.is_ok() => {}
            Ok(Some(accepted)) => return Ok(Some(accepted)),
            Ok(None) => return Ok(None),
            Err((_, alert)) => return Err(alert),
        }
    }
    Ok(None)
}

/// Who names none that we know hears from TLS that there is no such.
fn purpose(accepted: &Accepted) -> Purpose {
    let hello = accepted.client_hello();
    let mut named = hello.alpn().into_iter().flatten();
    let known = |name: &[u8]| Purpose::ALL.into_iter().find(|it| it.alpn() == name);
    named.find_map(known).unwrap_or(Purpose::Store)
}

/// The message, once it is whole.
fn read(
    tls: &mut ServerConnection,
    inbox: &mut Incoming,
    mut wire: &[u8],
) -> Result<Option<Vec<u8>>, Unread> {
    while !wire.is_empty() {
        tls.read_tls(&mut wire).map_err(|_| Unread::Tls)?;
        let state = tls.process_new_packets().map_err(|_| Unread::Tls)?;
        let plain = inbox.grow(state.plaintext_bytes_to_read());
        tls.reader().read_exact(plain).map_err(|_| Unread::Tls)?;
    }
    let body = inbox.take().map_err(|_| Unread::TooLong)?;
    Ok(body.map(<[u8]>::to_vec))
}

fn understand(tls: &ServerConnection, purpose: Purpose, body: &[u8]) -> Result<Asked, Refused> {
    let (theirs, rest) = decode_opening(body).map_err(|_| Refused::Malformed)?;
    if theirs.protocol != PROTOCOL {
        let Opening { protocol, program } = opening();
        return Err(Refused::Version { protocol, program });
    }
    let ask = decode(rest).map_err(|_| Refused::Malformed)?;
    let channel = Channel::of(tls).map_err(|_| Refused::Malformed)?;
    match (purpose, ask) {
        (Purpose::Join, Ask::Join(join)) => Ok(Asked::Join { channel, join }),
        (Purpose::Renew, Ask::Renew(renew)) => {
            let shown = tls.peer_certificates().and_then(|chain| chain.first());
            let shown = shown.ok_or(Refused::Malformed)?;
            let shown = holder_of(shown).map_err(|_| Refused::Malformed)?;
            Ok(Asked::Renew { channel, renew, shown })
        }
        // JOIN-1: without a certificate nothing is renewed, whatever is said.
        (
            Purpose::Join | Purpose::Renew | Purpose::Store | Purpose::Link,
            Ask::Join(_) | Ask::Renew(_),
        ) => Err(Refused::Malformed),
    }
}

fn is_full(error: io::Error) -> io::Result<bool> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) }
}
