//! What a connection gives with nothing around it: TCP, and TLS 1.3 as our links use it (rustls, no buffers of its own,
//! records opened in place). The limits that `bench/cluster.py` compares with.
//!
//! ```text
//! bare serve   HOST PORT CERTIFICATE                          TCP at that port, TLS at the next one
//! bare measure HOST PORT CERTIFICATE tcp|tls echo BYTES COUNT      round trips, one at a time
//! bare measure HOST PORT CERTIFICATE tcp|tls stream BYTES 1        so many bytes one way, until the other end has them
//! bare measure HOST PORT CERTIFICATE tls connect 1 COUNT           connections, one at a time, each end with its certificate
//! ```
//! `serve` writes its certificate and key, which clients use as well, into that file and says `ready`. `measure` prints one line of JSON: the
//! seconds without those for the connection, and CPU time: of a stream that of the threads at both ends, else that of this end.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

const NAME: &str = "bare";
const USAGE: &str = "bare serve HOST PORT CERTIFICATE | bare measure HOST PORT CERTIFICATE tcp|tls echo|stream|connect BYTES COUNT";
/// What one call of `send` is given of a stream.
const PIECE_BYTES: usize = 64 << 10;
const CAME_BYTES: usize = 256 << 10;
/// Where a stream's bytes are put: larger than any cache, as a store is.
const ARENA_BYTES: usize = 64 << 20;
/// A request: what is to be done, and with how many bytes.
const HEAD_BYTES: usize = 9;
const ECHO: u8 = b'e';
const STREAM: u8 = b's';

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", host, port, file] => serve(host, number(port)? as u16, Path::new(file)),
        ["measure", host, port, file, over, what, bytes, count] => {
            let (bytes, count) = (number(bytes)?, number(count)?);
            let config = if over == "tls" { Some(client(Path::new(file))?) } else { None };
            let place = (host, number(port)? as u16 + u16::from(config.is_some()));
            match what {
                "connect" => connections(|| connect(place, config.clone()), count),
                "echo" => echo(&mut connect(place, config)?, bytes, count),
                _ => stream(&mut connect(place, config)?, bytes),
            }
        }
        _ => Err(Error::other(USAGE)),
    }
}

fn connect(place: (&str, u16), config: Option<Arc<ClientConfig>>) -> Result<Wire> {
    let socket = TcpStream::connect(place)?;
    socket.set_nodelay(true)?;
    let Some(config) = config else { return Ok(Wire::tcp(socket)) };
    let name = ServerName::try_from(NAME).expect("a valid name");
    let tls = UnbufferedClientConnection::new(config, name).map_err(Error::other)?;
    Wire::tls(socket, Side::Client(tls))
}

fn number(text: &str) -> Result<usize> {
    text.parse().map_err(|_| Error::other(format!("{text} is no number: {USAGE}")))
}

// ------------------------------------------------------------------------------- who measures

fn connections(connect: impl Fn() -> Result<Wire>, count: usize) -> Result<()> {
    let (began, cpu) = (Instant::now(), cpu_ns());
    for _ in 0..count {
        // Whoever refuses this end's certificate says so in place of an answer.
        let mut wire = connect()?;
        wire.send(&head(ECHO, 1))?;
        wire.send(&[7])?;
        wire.receive(&mut |_| {})?;
    }
    print(began, cpu_ns() - cpu);
    Ok(())
}

fn echo(wire: &mut Wire, bytes: usize, count: usize) -> Result<()> {
    let message = [head(ECHO, bytes), vec![7; bytes]].concat();
    let mut answer = Vec::with_capacity(bytes);
    let (began, cpu) = (Instant::now(), cpu_ns());
    for _ in 0..count {
        wire.send(&message)?;
        answer.clear();
        while answer.len() < bytes {
            wire.receive(&mut |came| answer.extend_from_slice(came))?;
        }
    }
    print(began, cpu_ns() - cpu);
    Ok(())
}

fn stream(wire: &mut Wire, bytes: usize) -> Result<()> {
    let source = vec![7; ARENA_BYTES];
    let (began, cpu) = (Instant::now(), cpu_ns());
    wire.send(&head(STREAM, bytes))?;
    let mut sent = 0;
    while sent < bytes {
        let piece = PIECE_BYTES.min(bytes - sent);
        let at = sent % (ARENA_BYTES - PIECE_BYTES);
        wire.send(&source[at..at + piece])?;
        sent += piece;
    }
    let mut answer = Vec::new();
    while answer.len() < 8 {
        wire.receive(&mut |came| answer.extend_from_slice(came))?;
    }
    let theirs = u64::from_le_bytes(answer[..8].try_into().expect("eight bytes"));
    print(began, cpu_ns() - cpu + theirs);
    Ok(())
}

fn print(began: Instant, cpu: u64) {
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu as f64 / 1e9);
    println!("{{\"seconds\": {seconds}, \"cpu_s\": {cpu}}}");
}

fn head(what: u8, bytes: usize) -> Vec<u8> {
    [&[what], &(bytes as u64).to_le_bytes()[..]].concat()
}

/// Of this thread.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

// ------------------------------------------------------------------------------- who answers

fn serve(host: &str, port: u16, file: &Path) -> Result<()> {
    let (tcp, tls) = (TcpListener::bind((host, port))?, TcpListener::bind((host, port + 1))?);
    let config = server(file)?;
    println!("ready");
    let plain = std::thread::spawn(move || accept(&tcp, |socket| Ok(Wire::tcp(socket))));
    accept(&tls, move |socket| {
        let tls = UnbufferedServerConnection::new(Arc::clone(&config)).map_err(Error::other)?;
        Wire::tls(socket, Side::Server(tls))
    })?;
    plain.join().expect("it does not panic")
}

fn accept(
    listener: &TcpListener,
    wrap: impl Fn(TcpStream) -> Result<Wire> + Clone + Send + 'static,
) -> Result<()> {
    loop {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let wrap = wrap.clone();
        std::thread::spawn(move || wrap(socket).and_then(|mut wire| answer(&mut wire)));
    }
}

/// Until the peer is gone.
fn answer(wire: &mut Wire) -> Result<()> {
    let (mut asked, mut arena) = (Vec::new(), vec![0; ARENA_BYTES]);
    loop {
        while asked.len() < HEAD_BYTES {
            wire.receive(&mut |came| asked.extend_from_slice(came))?;
        }
        let bytes = u64::from_le_bytes(asked[1..HEAD_BYTES].try_into().expect("eight bytes"));
        let (what, bytes) = (asked[0], bytes as usize);
        asked.drain(..HEAD_BYTES);
        if what == ECHO {
            while asked.len() < bytes {
                wire.receive(&mut |came| asked.extend_from_slice(came))?;
            }
            wire.send(&asked)?;
        } else {
            let (cpu, mut got) = (cpu_ns(), asked.len());
            while got < bytes {
                wire.receive(&mut |came| {
                    let at = got % (ARENA_BYTES - CAME_BYTES);
                    arena[at..at + came.len()].copy_from_slice(came);
                    got += came.len();
                })?;
            }
            wire.send(&(cpu_ns() - cpu).to_le_bytes())?;
        }
        asked.clear();
    }
}

// ------------------------------------------------------------------------------- certificates

fn server(file: &Path) -> Result<Arc<ServerConfig>> {
    let key = rcgen::KeyPair::generate().map_err(Error::other)?;
    let params = rcgen::CertificateParams::new(vec![NAME.to_string()]).map_err(Error::other)?;
    let certificate = params.self_signed(&key).map_err(Error::other)?;
    std::fs::write(file, certificate.pem() + &key.serialize_pem())?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let chain = vec![certificate.der().clone()];
    let clients = WebPkiClientVerifier::builder(roots(certificate.der().clone())?);
    let config = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_client_cert_verifier(clients.build().map_err(Error::other)?)
        .with_single_cert(chain, key);
    config.map(Arc::new).map_err(Error::other)
}

/// Each connection begins anew, as between nodes.
fn client(file: &Path) -> Result<Arc<ClientConfig>> {
    let pem = std::fs::read(file)?;
    let certificate = CertificateDer::from_pem_slice(&pem).map_err(Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(Error::other)?;
    let config = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_root_certificates(roots(certificate.clone())?)
        .with_client_auth_cert(vec![certificate], key);
    let mut config = config.map_err(Error::other)?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(certificate: CertificateDer<'static>) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(Error::other)?;
    Ok(Arc::new(roots))
}

// ------------------------------------------------------------------------------- a connection

#[allow(clippy::large_enum_variant, reason = "one a thread")]
enum Wire {
    Tcp { socket: TcpStream, came: Vec<u8> },
    Tls(Tls),
}

struct Tls {
    socket: TcpStream,
    side: Side,
    /// What came of records that are not whole, `filled` bytes of it.
    came: Vec<u8>,
    filled: usize,
    sealed: Vec<u8>,
    /// What came together with the end of the handshake.
    early: Vec<u8>,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl Wire {
    fn tcp(socket: TcpStream) -> Self {
        Self::Tcp { socket, came: vec![0; CAME_BYTES] }
    }

    /// After the handshake.
    fn tls(socket: TcpStream, side: Side) -> Result<Self> {
        let (came, sealed) = (vec![0; CAME_BYTES], vec![0; 2 * PIECE_BYTES]);
        let mut tls = Tls { socket, side, came, filled: 0, sealed, early: Vec::new() };
        let mut early = Vec::new();
        while !tls.turn(&[], &mut |came| early.extend_from_slice(came))?.sent {
            tls.read()?;
        }
        tls.early = early;
        Ok(Self::Tls(tls))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Tcp { socket, .. } => socket.write_all(bytes),
            Self::Tls(tls) => bytes.chunks(PIECE_BYTES).try_for_each(|piece| {
                assert!(tls.turn(piece, &mut |_| panic!("nothing comes unasked"))?.sent);
                Ok(())
            }),
        }
    }

    /// What comes next, one byte or more.
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        match self {
            Self::Tcp { socket, came } => match socket.read(came)? {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                bytes => {
                    take(&came[..bytes]);
                    Ok(())
                }
            },
            Self::Tls(tls) if !tls.early.is_empty() => {
                take(&std::mem::take(&mut tls.early));
                Ok(())
            }
            Self::Tls(tls) => loop {
                // What came with the last bytes of something else may be whole already.
                if tls.filled > 0 && tls.turn(&[], take)?.received {
                    return Ok(());
                }
                tls.read()?;
            },
        }
    }
}

/// What a turn did: whether the handshake is over and `piece` was sent, whether bytes were received.
#[derive(Default)]
struct Turn {
    sent: bool,
    received: bool,
}

impl Tls {
    fn read(&mut self) -> Result<()> {
        match self.socket.read(&mut self.came[self.filled..])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.filled += bytes;
                Ok(())
            }
        }
    }

    /// Everything that can be done with what came.
    fn turn(&mut self, piece: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<Turn> {
        let (mut turn, mut used) = (Turn::default(), 0);
        loop {
            let (wire, to) = (&mut self.came[used..self.filled], &mut self.sealed);
            let (more, again) = match &mut self.side {
                Side::Client(tls) => {
                    act(tls.process_tls_records(wire), &mut self.socket, piece, to, take, &mut turn)
                }
                Side::Server(tls) => {
                    act(tls.process_tls_records(wire), &mut self.socket, piece, to, take, &mut turn)
                }
            }?;
            used += more;
            if !again {
                break;
            }
        }
        self.came.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(turn)
    }
}

/// How much of what came was used, and whether there may be more to do.
fn act<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    socket: &mut TcpStream,
    piece: &[u8],
    sealed: &mut [u8],
    take: &mut dyn FnMut(&[u8]),
    turn: &mut Turn,
) -> Result<(usize, bool)> {
    let mut used = status.discard;
    let again = match status.state.map_err(Error::other)? {
        ConnectionState::ReadTraffic(mut read) => {
            while let Some(record) = read.next_record() {
                let record = record.map_err(Error::other)?;
                used += record.discard;
                turn.received = true;
                take(record.payload);
            }
            true
        }
        ConnectionState::EncodeTlsData(mut message) => {
            let bytes = message.encode(sealed).map_err(|error: EncodeError| Error::other(error))?;
            socket.write_all(&sealed[..bytes])?;
            true
        }
        ConnectionState::TransmitTlsData(message) => {
            message.done();
            true
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            if !piece.is_empty() {
                let bytes = traffic
                    .encrypt(piece, sealed)
                    .map_err(|error: EncryptError| Error::other(error))?;
                socket.write_all(&sealed[..bytes])?;
            }
            turn.sent = true;
            false
        }
        ConnectionState::PeerClosed | ConnectionState::Closed => {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        _ => false,
    };
    Ok((used, again))
}
