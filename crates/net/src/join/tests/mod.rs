//! A cluster of one control node with a store in memory, and those who come to its port.

mod impostors;
mod joins;
mod peers;
mod strangers;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use hoplo_base::NodeNumber;
use hoplo_base::limits::JOIN_ANSWER_BYTES_MAX;
use hoplo_wire::frames::Incoming;
use hoplo_wire::join::{
    Answer, Ask, Blob, Join, JoinRole, Opening, PROTOCOL, Refused, Request, Text, TokenId, decode,
    encode_ask, to_bytes,
};
use rcgen::KeyPair;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::judge::millis;
use super::proof::Channel;
use super::verifier::ByFingerprint;
use super::*;
use crate::authority::{Authority, Validity};
use crate::name::Name;
use crate::peer::Peer;
use crate::protocol::Purpose;
use crate::tls::Identity;
use crate::token::{Source, Token, TokenRecord};

const CLUSTER: u128 = 7;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// For what comes about at once on any machine.
const SOON: Duration = Duration::from_secs(30);

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("hoplo-join-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn authority(&self, name: &str) -> Authority {
        let dir = self.0.join(name);
        if dir.exists() { Authority::load(&dir, CLUSTER) } else { Authority::make(&dir, CLUSTER) }
            .unwrap()
    }

    fn issue(&self, role: Role, name: &str, valid: Validity) -> PathBuf {
        let dir = self.0.join(name);
        let name = Name::new(CLUSTER, role, name).unwrap();
        self.authority("ca").issue(&name, valid, &dir).unwrap();
        dir
    }

    fn identity(&self, role: Role, name: &str) -> Identity {
        Identity::load(&self.issue(role, name, Validity::days(1)), CLUSTER).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a control store would know.
#[derive(Default)]
struct Store {
    tokens: BTreeMap<TokenId, TokenRecord>,
    given: u32,
    /// How often somebody asked for a token.
    lookups: u32,
    /// How often somebody wanted numbers.
    numberings: u32,
    /// How often somebody wanted to spend a use.
    spends: u32,
    fenced: BTreeSet<Name>,
    is_gone: bool,
    /// Where the next one who asks for a token says so, and waits.
    gate: Option<(Sender<()>, Receiver<()>)>,
}

#[derive(Clone, Default)]
struct Stored(Arc<Mutex<Store>>);

impl Stored {
    fn now(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap()
    }
}

impl Registry for Stored {
    fn token(&mut self, id: TokenId) -> Result<Option<TokenRecord>, Unavailable> {
        let gate = self.now().gate.take();
        if let Some((arrived, open)) = gate {
            arrived.send(()).unwrap();
            let _ = open.recv();
        }
        let mut now = self.now();
        now.lookups += 1;
        if now.is_gone {
            return Err(Unavailable { why: "no chain\nlives".to_string() });
        }
        Ok(now.tokens.get(&id).cloned())
    }

    fn spend(&mut self, id: TokenId, uses: u32, at: SystemTime) -> Result<u32, SpendError> {
        let mut now = self.now();
        now.spends += 1;
        let record = now.tokens.get_mut(&id).ok_or(SpendError::Gone)?;
        let expires = record.expires;
        record.fit(at).map_err(|why| SpendError::Unfit { expires, why })?;
        let spent = record.uses_max.map_or(uses, |max| uses.min(max - record.uses));
        record.uses += spent;
        Ok(spent)
    }

    fn numbers(&mut self, hosts: &[&str]) -> Result<Vec<NodeNumber>, Unavailable> {
        let mut now = self.now();
        now.numberings += 1;
        let next = |_: &&str| {
            now.given += 1;
            NodeNumber::first_given(now.given)
        };
        Ok(hosts.iter().map(next).collect())
    }

    fn is_fenced(&mut self, name: &Name) -> Result<bool, Unavailable> {
        Ok(self.now().fenced.contains(name))
    }

    fn members(&mut self) -> Result<Vec<String>, Unavailable> {
        Ok(vec!["10.0.0.1:6379".to_string()])
    }
}

struct Cluster {
    // First: it ends before its folder does.
    desk: Desk,
    folder: Folder,
    store: Stored,
    at: String,
    peers: Receiver<Peer>,
    told: Receiver<String>,
}

impl Cluster {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let authority = folder.authority("ca");
        let identity = folder.identity(Role::Control, "head");
        let store = Stored::default();
        let (peer, peers) = channel();
        let (tells, told) = channel();
        let options = DeskOptions {
            identity,
            authority,
            registry: Box::new(store.clone()),
            is_known: Box::new(|_| false),
            tells: Box::new(move |text| tells.send(text).unwrap()),
            peers: Box::new(move |it| peer.send(it).unwrap()),
        };
        let (listener, at) = listen(None, 0).unwrap();
        assert!(at.ip().is_loopback(), "elsewhere takes --host");
        let desk = Desk::open(listener, options).unwrap();
        Self { desk, folder, store, at: at.to_string(), peers, told }
    }

    fn token_for(&self, role: Role, expires: SystemTime, uses_max: Option<u32>) -> Token {
        let token = self.token_of_nobody();
        let record = TokenRecord::of(&token, role, SystemTime::now(), expires, uses_max);
        self.store.now().tokens.insert(record.id, record);
        token
    }

    fn token(&self) -> Token {
        self.token_for(Role::Node, SystemTime::now() + DAY, None)
    }

    /// A right one, that the store does not know.
    fn token_of_nobody(&self) -> Token {
        let token = Token::make(self.folder.authority("ca").fingerprint()).unwrap();
        let from = Source::Variable(crate::token::VARIABLE.to_string());
        Token::parse(&token.reveal(), from).unwrap()
    }

    fn join(&self, token: &Token, role: Role) -> Result<Admission, JoinError> {
        join_at(&self.at, token, role, SOON)
    }

    fn uses(&self, token: &Token) -> u32 {
        self.store.now().tokens[&token.id()].uses
    }

    fn raw(&self, token: &Token) -> Raw {
        let config = ByFingerprint::new(token.authority()).config().unwrap();
        Raw::dial(&self.at, Arc::new(config)).unwrap()
    }

    fn raw_renewing(&self, identity: &Identity) -> Raw {
        Raw::dial(&self.at, identity.dialling(Purpose::Renew)).unwrap()
    }
}

fn join_at(at: &str, token: &Token, role: Role, within: Duration) -> Result<Admission, JoinError> {
    join(&Joining { address: at, token, role, host: "box", within })
}

/// One line for the one who has to set it right, with these words in it.
fn says(result: Result<Admission, JoinError>, words: &[&str]) -> JoinError {
    let error = result.expect_err("nobody may join");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    error
}

/// Somebody who says whatever he likes.
struct Raw {
    tls: ClientConnection,
    stream: TcpStream,
    inbox: Incoming,
}

impl Raw {
    fn dial(at: &str, config: Arc<ClientConfig>) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(SOON))?;
        let name = ServerName::try_from("hoplo").unwrap();
        let mut tls = ClientConnection::new(config, name).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(Self { tls, stream, inbox: Incoming::new(JOIN_ANSWER_BYTES_MAX) })
    }

    fn say(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        while self.tls.wants_write() {
            // It may be over already: what was said is told by what is heard.
            if self.tls.write_tls(&mut self.stream).is_err() {
                return;
            }
        }
    }

    fn ask(&mut self, ask: &Ask) {
        self.ask_as(PROTOCOL, ask);
    }

    fn ask_as(&mut self, protocol: u32, ask: &Ask) {
        let mut frame = Vec::new();
        encode_ask(&Opening { protocol, program: Text::cut("hoplo x") }, ask, &mut frame);
        self.say(&frame);
    }

    /// Nothing, if the connection ends.
    fn hear(&mut self) -> Option<Answer> {
        loop {
            if let Some(body) = self.inbox.take().unwrap() {
                return Some(decode(body).unwrap());
            }
            let read = self.tls.read_tls(&mut self.stream);
            match read {
                Ok(bytes) if bytes > 0 => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("it neither answers nor ends")
                }
                Ok(_) | Err(_) => return None,
            }
            let state = self.tls.process_new_packets().ok()?;
            let plain = self.inbox.grow(state.plaintext_bytes_to_read());
            self.tls.reader().read_exact(plain).unwrap();
        }
    }

    fn refused(&mut self) -> Refused {
        match self.hear().expect("an answer") {
            Answer::Refused(refused) => refused,
            Answer::Joined(joined) => panic!("{joined:?}"),
        }
    }

    fn channel(&self) -> Channel {
        Channel::of(&self.tls).unwrap()
    }

    /// A right one, for this connection.
    fn join(&self, token: &Token, key: &KeyPair) -> Join {
        self.join_at(token, key, millis(SystemTime::now()))
    }

    fn join_at(&self, token: &Token, key: &KeyPair, clock_ms: u64) -> Join {
        let host = Text::cut("box");
        let request =
            Request { clock_ms, role: JoinRole::Node, host, key: blob(key.public_key_raw()) };
        let request = to_bytes(&request);
        Join {
            token: token.id(),
            possession: blob(&self.channel().to_join(key, &request).unwrap()),
            proof: blob(&self.channel().by_token(token, &request)),
            request: blob(&request),
        }
    }
}

fn blob<const MAX: usize>(bytes: &[u8]) -> Blob<MAX> {
    Blob::new(bytes).unwrap()
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

/// The server's side of one connection, in a thread.
fn serve_one<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (String, std::thread::JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        serve(stream)
    });
    (at, thread)
}

/// What it hears from who comes, once TLS is open: nothing, if it never is.
fn hear_all(config: ServerConfig, mut stream: TcpStream) -> Vec<u8> {
    let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
    let mut heard = Vec::new();
    while tls.complete_io(&mut stream).is_ok_and(|(read, written)| read + written > 0) {
        let mut part = [0; 1000];
        while let Ok(bytes @ 1..) = tls.reader().read(&mut part) {
            heard.extend_from_slice(&part[..bytes]);
        }
    }
    heard
}

/// A server with a certificate by this authority, that shows the authority's, too, and takes those who join.
fn server(authority: &Authority, name: &Name, valid: Validity) -> ServerConfig {
    let key = key();
    let certificate = authority.certify(&key, name, valid).unwrap();
    let chain = vec![certificate.der().clone(), authority.certificate()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = plain(ServerConfig::builder_with_provider).with_single_cert(chain, key.into());
    let config = config.as_mut().unwrap();
    config.alpn_protocols = vec![Purpose::Join.alpn().to_vec()];
    config.clone()
}

type Provided = rustls::ConfigBuilder<ServerConfig, rustls::WantsVersions>;

fn plain(
    begin: fn(Arc<rustls::crypto::CryptoProvider>) -> Provided,
) -> rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert> {
    begin(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
}

/// Until it is so.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
