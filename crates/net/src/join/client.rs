//! Who joins, and who renews: one connection, one message each way, by a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hoplo_base::NodeNumber;
use hoplo_base::limits::{JOIN_ANSWER_BYTES_MAX, JOIN_TRIES, JOIN_TRIES_AGAIN};
use hoplo_wire::frames::Incoming;
use hoplo_wire::join::{
    Answer, Ask, Blob, Join, Joined, Renew, Renewal, Request, Text, decode, encode_ask, to_bytes,
};
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::error::{About, JoinError, Who};
use super::judge::{called, millis};
use super::opening;
use super::proof::Channel;
use super::verifier::{ByFingerprint, Found};
use crate::authority::{Lasts, make_folder, replace};
use crate::name::{Name, Role};
use crate::protocol::Purpose;
use crate::tls::{CA, IDENTITY, Identity, IdentityError, SERVED, holder_of, verify};
use crate::token::{Fingerprint, Token};

/// What somebody wants who has a token.
#[derive(Clone, Debug)]
pub struct Joining<'a> {
    /// Of a control node: `host:port`.
    pub address: &'a str,
    pub token: &'a Token,
    pub role: Role,
    /// Of this machine: what a client or operator is called begins with it.
    pub host: &'a str,
    /// For all of it, but for how long the system takes to find the address of a name.
    pub within: Duration,
}

/// Somebody who is of the cluster now: whom it trusts, what it shows, and the key to that.
pub struct Admission {
    pub name: Name,
    /// Of a control node or node that joined; absent after a renewal, which changes none.
    pub number: Option<NodeNumber>,
    pub until: SystemTime,
    /// Where control nodes listen.
    pub members: Vec<String>,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
    key: KeyPair,
}

/// Gets a number and a certificate, for a key that is made here.
pub fn join(joining: &Joining<'_>) -> Result<Admission, JoinError> {
    let Joining { address, token, role, host, within } = *joining;
    let who = Who::Joins { token: token.from().clone(), role, host: host.to_string() };
    let about = About { address: address.to_string(), within, who };
    let host = Text::new(host).map_err(|_| JoinError::Host { host: host.to_string() })?;
    let key = make_key()?;
    let verifier = ByFingerprint::new(token.authority());
    let config = verifier.config().map_err(|error| about.tls(&error, None))?;
    let found = || verifier.found();
    let (mut wire, mut tls) = open(&Arc::new(config), Purpose::Join, &about, found)?;
    let clock_ms = millis(SystemTime::now());
    let request = Request { clock_ms, role: role.into(), host, key: blob(key.public_key_raw()) };
    let request = to_bytes(&request);
    let channel = Channel::of(&tls).map_err(|error| about.tls(&error, None))?;
    let possession = channel.to_join(&key, &request).map_err(unmade)?;
    let proof = channel.by_token(token, &request);
    let ask = Ask::Join(Join {
        token: token.id(),
        request: blob(&request),
        possession: blob(&possession),
        proof: blob(&proof),
    });
    let joined = converse(&mut wire, &mut tls, &ask, clock_ms, &about)?;
    let admission = admit(&joined, key, token.authority(), &about)?;
    let expected = match joined.number {
        Some(number) if number.is_given() => format!("{:x}", number.number()),
        Some(_) => return Err(about.protocol("it gave a number that nobody gives")),
        None => called(joining.host, admission.key.public_key_raw()),
    };
    let numbered = matches!(role, Role::Control | Role::Node);
    let name = &admission.name;
    if name.role != role || name.name() != expected || numbered != joined.number.is_some() {
        return Err(about.protocol(format!("it gave the certificate of {name}")));
    }
    Ok(admission)
}

/// Gets a new certificate with the same name, for a new key.
pub fn renew(address: &str, identity: &Identity, within: Duration) -> Result<Admission, JoinError> {
    let held = identity.certificate().name;
    let who = Who::Renews { name: held.clone(), path: identity.path() };
    let about = About { address: address.to_string(), within, who };
    let key = make_key()?;
    let (mut wire, mut tls) =
        open(&identity.dialling(Purpose::Renew), Purpose::Renew, &about, || None)?;
    let shown = tls.peer_certificates().and_then(|chain| chain.first());
    let theirs = shown.and_then(|it| holder_of(it).ok());
    let theirs = theirs.ok_or_else(|| about.protocol("it shows no name"))?;
    if theirs.role != Role::Control {
        return Err(JoinError::NotControl { address: about.address, name: theirs });
    }
    let clock_ms = millis(SystemTime::now());
    let renewal = to_bytes(&Renewal { clock_ms, key: blob(key.public_key_raw()) });
    let channel = Channel::of(&tls).map_err(|error| about.tls(&error, None))?;
    let possession = channel.to_renew(&key, &renewal).map_err(unmade)?;
    let ask = Ask::Renew(Renew { renewal: blob(&renewal), possession: blob(&possession) });
    let joined = converse(&mut wire, &mut tls, &ask, clock_ms, &about)?;
    let admission = admit(&joined, key, identity.authority(), &about)?;
    if admission.name != held {
        return Err(about.protocol(format!("it gave the certificate of {}", admission.name)));
    }
    Ok(admission)
}

impl Admission {
    /// So that [`Identity::load`] finds it there. What lies there is replaced.
    pub fn write(&self, dir: &Path) -> Result<(), IdentityError> {
        make_folder(dir)?;
        replace(&dir.join(CA), &pem(&self.authority), Lasts::OnDisk)?;
        let identity = format!("{}{}", pem(&self.certificate), self.key.serialize_pem());
        replace(&dir.join(IDENTITY), &identity, Lasts::OnDisk)
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("name", &self.name)
            .field("number", &self.number)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

/// A connection where both ends know each other. At a port that has no room for more strangers one may be turned away: it is tried a few
/// times.
fn open(
    config: &Arc<ClientConfig>,
    purpose: Purpose,
    about: &About,
    found: impl Fn() -> Option<Found>,
) -> Result<(Wire, ClientConnection), JoinError> {
    let by = Instant::now() + about.within;
    let (mut pause, mut closed) = (JOIN_TRIES_AGAIN, None);
    for _ in 0..JOIN_TRIES {
        let mut wire = match Wire::dial(about, by) {
            Ok(wire) => wire,
            Err(error) => return Err(closed.unwrap_or(error)),
        };
        match handshake(&mut wire, Arc::clone(config), purpose, about, &found) {
            Err(error @ JoinError::Closed { .. }) => closed = Some(error),
            other => return other.map(|tls| (wire, tls)),
        }
        std::thread::sleep(pause.min(by.saturating_duration_since(Instant::now())));
        pause *= 2;
    }
    Err(closed.expect("it was tried"))
}

/// Until both ends know each other.
fn handshake(
    wire: &mut Wire,
    config: Arc<ClientConfig>,
    purpose: Purpose,
    about: &About,
    found: &impl Fn() -> Option<Found>,
) -> Result<ClientConnection, JoinError> {
    let name = ServerName::try_from(SERVED).expect("a valid name");
    let mut tls = ClientConnection::new(config, name).map_err(|error| about.tls(&error, None))?;
    while tls.is_handshaking() {
        tls.complete_io(wire).map_err(|error| about.io(&error, found()))?;
    }
    if tls.alpn_protocol() == Some(purpose.alpn()) {
        return Ok(tls);
    }
    // JOIN-2: whatever it is, nothing is said to it.
    Err(JoinError::NoJoins { address: about.address.clone() })
}

fn converse(
    wire: &mut Wire,
    tls: &mut ClientConnection,
    ask: &Ask,
    clock_ms: u64,
    about: &About,
) -> Result<Joined, JoinError> {
    let mut frame = Vec::new();
    encode_ask(&opening(), ask, &mut frame);
    tls.writer().write_all(&frame).map_err(|error| about.io(&error, None))?;
    let answer = hear(wire, tls).map_err(|error| about.io(&error, None))?;
    let answer = answer.map_err(|why| about.protocol(why))?;
    tls.send_close_notify();
    // Nothing hangs on its going out.
    let _ = tls.write_tls(wire);
    match answer {
        Answer::Joined(joined) => Ok(joined),
        Answer::Refused(refused) => Err(about.refused(refused, clock_ms)),
    }
}

/// The one answer; or why what came is none.
fn hear(wire: &mut Wire, tls: &mut ClientConnection) -> io::Result<Result<Answer, String>> {
    let mut inbox = Incoming::new(JOIN_ANSWER_BYTES_MAX);
    loop {
        while tls.wants_write() {
            tls.write_tls(wire)?;
        }
        let read = tls.read_tls(wire)?;
        let invalid = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let state = tls.process_new_packets().map_err(invalid)?;
        tls.reader().read_exact(inbox.grow(state.plaintext_bytes_to_read()))?;
        match inbox.take() {
            Ok(Some(body)) => return Ok(decode(body).map_err(|error| error.to_string())),
            Ok(None) if read == 0 || state.peer_has_closed() => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(None) => {}
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
}

/// JOIN-2: what was given is for this key, by this authority, and valid now.
fn admit(
    joined: &Joined,
    key: KeyPair,
    authority: Fingerprint,
    about: &About,
) -> Result<Admission, JoinError> {
    let wrong = |why: String| about.protocol(format!("the certificate that it gave: {why}"));
    let ca = CertificateDer::from(joined.authority.as_slice().to_vec());
    if Fingerprint::of(&ca) != authority {
        return Err(wrong("it is by another authority".to_string()));
    }
    let certificate = CertificateDer::from(joined.certificate.as_slice().to_vec());
    let parsed = webpki::EndEntityCert::try_from(&certificate);
    let parsed = parsed.map_err(|error| wrong(error.to_string()))?;
    if *parsed.subject_public_key_info() != key.subject_public_key_info()[..] {
        return Err(wrong("it is for another key".to_string()));
    }
    let name = holder_of(&certificate).map_err(wrong)?;
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).map_err(|error| wrong(error.to_string()))?;
    let until = verify(&certificate, &roots, SystemTime::now());
    let until = until.map_err(|error| wrong(error.to_string()))?;
    let members = joined.members.iter().map(str::to_string).collect();
    let number = joined.number;
    Ok(Admission { name, number, until, members, certificate, authority: ca, key })
}

fn make_key() -> Result<KeyPair, JoinError> {
    KeyPair::generate().map_err(unmade)
}

fn unmade(error: rcgen::Error) -> JoinError {
    JoinError::Key { why: error.to_string() }
}

fn blob<const MAX: usize>(bytes: &[u8]) -> Blob<MAX> {
    Blob::new(bytes).expect("our own are as long as the type says")
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let lines = text.as_bytes().chunks(64).map(|line| line.iter().map(|it| char::from(*it)));
    let body: String = lines.flat_map(|line| line.chain(['\n'])).collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}

/// A socket that waits until a deadline, however slowly the other end goes on.
struct Wire {
    stream: TcpStream,
    by: Instant,
}

impl Wire {
    fn dial(about: &About, by: Instant) -> Result<Self, JoinError> {
        let address = about.address.clone();
        let unfound = |why: String| JoinError::Address { address: address.clone(), why };
        let found = about.address.to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(|error| unfound(error.to_string()))?.collect();
        // A name may have several addresses, and nobody listens at some of them.
        let mut why = unfound("the name has no address".to_string());
        for at in found {
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(JoinError::Late { address: address.clone(), within: about.within });
            }
            match TcpStream::connect_timeout(&at, left) {
                Ok(stream) => {
                    // Without it the handshake takes longer, and no more.
                    let _ = stream.set_nodelay(true);
                    return Ok(Self { stream, by });
                }
                Err(error) => {
                    let address = address.clone();
                    why = JoinError::Unreachable { address, why: error.to_string() };
                }
            }
        }
        Err(why)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.by.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| {
            self.stream.set_read_timeout(self.left()?)?;
            self.stream.read(bytes)
        })
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| {
            self.stream.set_write_timeout(self.left()?)?;
            self.stream.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A process that was stopped and goes on (Ctrl-Z and `fg`) finds its calls with timeouts interrupted (signal(7)).
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that was stopped for a moment while it waited for the head's answer took that for the end of the connection.
    #[test]
    fn who_is_interrupted_goes_on_waiting() {
        let mut results = [
            Err(io::ErrorKind::Interrupted.into()),
            Err(io::ErrorKind::Interrupted.into()),
            Ok(3),
            Err(io::ErrorKind::TimedOut.into()),
        ]
        .into_iter();
        let mut call = || results.next().expect("it is not called again");
        assert_eq!(uninterrupted(&mut call).unwrap(), 3);
        assert_eq!(uninterrupted(&mut call).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
