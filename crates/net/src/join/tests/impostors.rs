//! Those who stand between, pose as a head, or say again what another one said.

use hoplo_wire::join::{Joined, Members, Renew, Renewal};
use rcgen::PublicKeyData;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::*;

/// Shows a chain, with a key that need not be the one to it.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn head() -> Name {
    Name::new(CLUSTER, Role::Control, "head").unwrap()
}

/// Who joins there hears that, and the server hears nothing.
fn refuses(config: ServerConfig, token: &Token, words: &[&str]) -> JoinError {
    let (at, thread) = serve_one(|stream| hear_all(config, stream));
    let error = says(join_at(&at, token, Role::Node, SOON), words);
    assert_eq!(thread.join().unwrap(), b"", "JOIN-2: {error}");
    error
}

#[test]
fn one_in_the_middle_with_another_authority_heard_nothing() {
    let (folder, theirs) = (Folder::new("middle"), Folder::new("middle-theirs"));
    let token = Token::make(folder.authority("ca").fingerprint()).unwrap();
    // It says that it is of the same cluster.
    let authority = theirs.authority("ca");
    let config = server(&authority, &head(), Validity::days(1));
    let error = refuses(config, &token, &["--address", "this process"]);
    assert!(matches!(error, JoinError::WrongCluster { cluster: CLUSTER, .. }), "{error}");
    // It shows our authority's certificate besides its own.
    let key = key();
    let certificate = authority.certify(&key, &head(), Validity::days(1)).unwrap();
    let ours = folder.authority("ca").certificate();
    let chain = vec![certificate.der().clone(), ours, authority.certificate()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config =
        plain(ServerConfig::builder_with_provider).with_single_cert(chain, key.into()).unwrap();
    config.alpn_protocols = vec![Purpose::Join.alpn().to_vec()];
    let error = refuses(config, &token, &["does not prove"]);
    assert!(matches!(error, JoinError::Untrusted { .. }), "{error}");
}

#[test]
fn one_in_the_middle_who_shows_what_the_head_shows_lacks_its_key() {
    let folder = Folder::new("copied");
    let authority = folder.authority("ca");
    let token = Token::make(authority.fingerprint()).unwrap();
    let certificate = authority.certify(&key(), &head(), Validity::days(1)).unwrap();
    let chain = vec![certificate.der().clone(), authority.certificate()];
    let other = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key().serialize_der()));
    let other = rustls::crypto::ring::sign::any_supported_type(&other).unwrap();
    let shows = Shows(Arc::new(CertifiedKey::new(chain, other)));
    let mut config = plain(ServerConfig::builder_with_provider).with_cert_resolver(Arc::new(shows));
    config.alpn_protocols = vec![Purpose::Join.alpn().to_vec()];
    let error = refuses(config, &token, &["does not prove"]);
    assert!(matches!(error, JoinError::Untrusted { .. }), "{error}");
}

#[test]
fn a_node_that_poses_as_a_head_heard_nothing() {
    let folder = Folder::new("posing");
    let authority = folder.authority("ca");
    let token = Token::make(authority.fingerprint()).unwrap();
    let node = Name::new(CLUSTER, Role::Node, "5f").unwrap();
    let config = server(&authority, &node, Validity::days(1));
    refuses(config, &token, &["node \"5f\"", "--address"]);
    // Nor does it renew anything.
    let identity = folder.identity(Role::Node, "6a");
    let poses = folder.identity(Role::Node, "5f");
    let (at, thread) =
        serve_one(move |stream| hear_all((*poses.serving(Purpose::Renew)).clone(), stream));
    says(renew(&at, &identity, SOON), &["node \"5f\"", "--address"]);
    assert_eq!(thread.join().unwrap(), b"");
}

#[test]
fn a_head_whose_certificate_is_over_or_not_yet_tells_whose_clock_is_wrong() {
    let folder = Folder::new("dates");
    let authority = folder.authority("ca");
    let token = Token::make(authority.fingerprint()).unwrap();
    let now = SystemTime::now();
    let config = server(&authority, &head(), Validity { from: now + DAY, until: now + 2 * DAY });
    let error = refuses(config, &token, &["s behind", "clock"]);
    let JoinError::ClockBehind { seconds, .. } = error else { panic!("{error}") };
    assert!((86_300..=86_400).contains(&seconds), "{seconds}");
    let config = server(&authority, &head(), Validity { from: now - 2 * DAY, until: now - DAY });
    refuses(config, &token, &["expired at 20", "clock says 20"]);
}

#[test]
fn what_is_not_a_head_is_told_apart() {
    let folder = Folder::new("others");
    let authority = folder.authority("ca");
    let token = Token::make(authority.fingerprint()).unwrap();
    let (at, _) = serve_one(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n"));
    says(join_at(&at, &token, Role::Node, SOON), &["not hoplo", &at, "--address"]);
    let (at, _) = serve_one(|mut stream| {
        let mut heard = [0; 100];
        stream.read(&mut heard).and_then(|_| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    });
    says(join_at(&at, &token, Role::Node, SOON), &["not hoplo", &at]);
    // A web server.
    let key = rcgen::generate_simple_self_signed(["hoplo".to_string()]).unwrap();
    let chain = vec![key.cert.der().clone()];
    let der = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let config = plain(ServerConfig::builder_with_provider).with_single_cert(chain, der.into());
    refuses(config.unwrap(), &token, &["not hoplo"]);
    // A port of hoplo where nobody joins: a certificate is wanted there.
    let identity = folder.identity(Role::Control, "head");
    let config = (*identity.serving(Purpose::Store)).clone();
    refuses(config, &token, &["nobody joins", "--address"]);
    let mut config = server(&authority, &head(), Validity::days(1));
    config.alpn_protocols.clear();
    refuses(config, &token, &["nobody joins"]);
    let mut config = server(&authority, &head(), Validity::days(1));
    config.alpn_protocols = vec![b"h2".to_vec()];
    refuses(config, &token, &["nobody joins"]);
    // Nobody at all.
    let (listener, at) = listen(None, 0).unwrap();
    drop(listener);
    let at = at.to_string();
    let error =
        says(join_at(&at, &token, Role::Node, SOON), &[&at, "hoplo start --head", "--host"]);
    assert!(matches!(error, JoinError::Unreachable { .. }) && error.is_retryable());
    for wrong in ["", "no port", "127.0.0.1", "/a/path", "127.0.0.1:99999"] {
        says(join_at(wrong, &token, Role::Node, SOON), &["--address", "HOST:PORT"]);
    }
    let (at, _) = serve_one(drop);
    assert!(says(join_at(&at, &token, Role::Node, SOON), &["closed"]).is_retryable());
}

#[test]
fn a_head_that_says_nothing_is_waited_for_until_the_deadline() {
    let folder = Folder::new("mute");
    let token = Token::make(folder.authority("ca").fingerprint()).unwrap();
    let within = Duration::from_millis(200);
    let begin = Instant::now();
    let waits = |mut stream: TcpStream| stream.read_to_end(&mut Vec::new()).map(drop);
    let (at, thread) = serve_one(waits);
    let error = says(join_at(&at, &token, Role::Node, within), &["0.2 s", "--address"]);
    assert!(matches!(error, JoinError::Late { .. }) && error.is_retryable());
    assert!(begin.elapsed() >= within);
    thread.join().unwrap().unwrap();
    // It shows who it is, takes the message, and does not answer.
    let config = server(&folder.authority("ca"), &head(), Validity::days(1));
    let (at, thread) = serve_one(|stream| hear_all(config, stream));
    let error = says(join_at(&at, &token, Role::Node, Duration::from_secs(1)), &[]);
    assert!(matches!(error, JoinError::Late { .. }), "{error}");
    assert_ne!(thread.join().unwrap(), b"");
    // It begins a record that never ends: the deadline is for all of it, and not for each byte.
    let (at, thread) = serve_one(|mut stream| {
        stream.write_all(&[22, 3, 3, 0x3e, 0x80, 2]).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (begin, mut bytes) = (Instant::now(), [0; 1000]);
        while begin.elapsed() < SOON {
            // A byte more whenever nothing came for a while.
            match stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) if stream.write_all(&[0]).is_err() => return true,
                Err(_) => {}
            }
        }
        false
    });
    let error = says(join_at(&at, &token, Role::Node, within), &["0.2 s"]);
    assert!(matches!(error, JoinError::Late { .. }), "{error}");
    assert!(thread.join().unwrap(), "who joins was kept waiting");
}

/// A control node that gives what it should not.
fn gives(folder: &Folder, give: impl FnOnce(&Request) -> Joined + Send + 'static) -> JoinError {
    let authority = folder.authority("ca");
    let token = Token::make(authority.fingerprint()).unwrap();
    let config = server(&authority, &head(), Validity::days(1));
    let (at, thread) = serve_one(|mut stream| {
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        let mut inbox = Incoming::new(4096);
        let request: Request = loop {
            tls.complete_io(&mut stream).unwrap();
            let mut part = [0; 4096];
            while let Ok(bytes @ 1..) = tls.reader().read(&mut part) {
                inbox.add(&part[..bytes]);
            }
            let Some(body) = inbox.take().unwrap() else { continue };
            let (_, rest) = hoplo_wire::join::decode_opening(body).unwrap();
            let Ok(Ask::Join(join)) = decode(rest) else { panic!("it asks for something else") };
            break decode(join.request.as_slice()).unwrap();
        };
        let mut frame = Vec::new();
        hoplo_wire::join::encode_answer(&Answer::Joined(give(&request)), &mut frame);
        tls.writer().write_all(&frame).unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut stream).unwrap();
        }
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = says(join_at(&at, &token, Role::Node, SOON), &[]);
    thread.join().unwrap();
    error
}

#[test]
fn a_certificate_that_is_not_what_was_asked_for_is_not_used() {
    struct Asked(Vec<u8>);
    impl PublicKeyData for Asked {
        fn der_bytes(&self) -> &[u8] {
            &self.0
        }
        fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
            &rcgen::PKCS_ECDSA_P256_SHA256
        }
    }
    #[derive(Clone, Copy, Debug)]
    enum Wrong {
        Key,
        Authority,
        Shown,
        Role,
        Number,
        Numberless,
        NeverGiven,
        Dates,
    }
    let (folder, theirs) = (Folder::new("gives"), Folder::new("gives-theirs"));
    let number = NodeNumber::first_given(5);
    for (wrong, word) in [
        (Wrong::Key, "another key"),
        (Wrong::Authority, "InvalidSignature"),
        (Wrong::Shown, "another authority"),
        (Wrong::Role, "/operator/6"),
        (Wrong::Number, "/node/7"),
        (Wrong::Numberless, "/node/6"),
        (Wrong::NeverGiven, "nobody gives"),
        (Wrong::Dates, "CertExpired"),
    ] {
        let (ours, other) = (folder.authority("ca"), theirs.authority("ca"));
        let error = gives(&folder, move |request| {
            let asked = match wrong {
                Wrong::Key => Asked(key().public_key_raw().to_vec()),
                _ => Asked(request.key.as_slice().to_vec()),
            };
            let (role, name) = match wrong {
                Wrong::Role => (Role::Operator, "6"),
                Wrong::Number => (Role::Node, "7"),
                _ => (Role::Node, "6"),
            };
            let valid = match wrong {
                Wrong::Dates => Validity {
                    until: SystemTime::now() - Duration::from_secs(60),
                    ..Validity::days(1)
                },
                _ => Validity::days(1),
            };
            let by = if matches!(wrong, Wrong::Authority | Wrong::Shown) { &other } else { &ours };
            let shown = if matches!(wrong, Wrong::Shown) { &other } else { &ours };
            let name = Name::new(CLUSTER, role, name).unwrap();
            let number = match wrong {
                Wrong::Numberless => None,
                Wrong::NeverGiven => Some(NodeNumber::alone(6)),
                _ => Some(number),
            };
            Joined {
                number,
                certificate: blob(by.certify(&asked, &name, valid).unwrap().der()),
                authority: blob(&shown.certificate()),
                members: Members::default(),
            }
        });
        assert!(matches!(error, JoinError::Protocol { .. }), "{wrong:?}: {error}");
        assert!(error.to_string().contains(word), "{wrong:?}: {error}");
    }
}

#[test]
fn a_proof_was_said_again_on_another_connection() {
    let cluster = Cluster::new("replay");
    let token = cluster.token();
    let mut first = cluster.raw(&token);
    let join = first.join(&token, &key());
    let mut second = cluster.raw(&token);
    second.ask(&Ask::Join(join.clone()));
    assert_eq!(second.refused(), Refused::NotProven);
    assert_eq!((cluster.uses(&token), cluster.store.now().given), (0, 0), "JOIN-3");
    // On its own it is right; and only once.
    first.ask(&Ask::Join(join));
    assert!(matches!(first.hear(), Some(Answer::Joined(_))));
    assert_eq!(cluster.uses(&token), 1);
}

#[test]
fn another_key_was_put_into_a_request() {
    let cluster = Cluster::new("swapped");
    let token = cluster.token();
    let (mine, theirs) = (key(), key());
    let mut raw = cluster.raw(&token);
    let (mut join, swapped) = (raw.join(&token, &mine), raw.join(&token, &theirs));
    join.request = swapped.request.clone();
    raw.ask(&Ask::Join(join));
    assert_eq!(raw.refused(), Refused::NotProven);
    // Who has the token asks for a certificate for a key that it does not have.
    let mut raw = cluster.raw(&token);
    let mut join = raw.join(&token, &theirs);
    join.possession = blob(&raw.channel().to_join(&mine, join.request.as_slice()).unwrap());
    raw.ask(&Ask::Join(join));
    assert_eq!(raw.refused(), Refused::NotItsKey);
    // A signature for a renewal is none for a join.
    let mut raw = cluster.raw(&token);
    let mut join = raw.join(&token, &mine);
    join.possession = blob(&raw.channel().to_renew(&mine, join.request.as_slice()).unwrap());
    raw.ask(&Ask::Join(join));
    assert_eq!(raw.refused(), Refused::NotItsKey);
    // The signature of another token, under the id of a right one.
    let mut raw = cluster.raw(&token);
    let mut join = raw.join(&cluster.token(), &mine);
    join.token = token.id();
    raw.ask(&Ask::Join(join));
    assert_eq!(raw.refused(), Refused::NotProven);
    assert_eq!((cluster.uses(&token), cluster.store.now().given), (0, 0));
}

#[test]
fn who_has_no_proof_hears_nothing_about_a_token() {
    let cluster = Cluster::new("nothing");
    let expired = cluster.token_for(Role::Operator, SystemTime::UNIX_EPOCH, Some(0));
    let mut raw = cluster.raw(&expired);
    let mut join = raw.join_at(&cluster.token(), &key(), 0);
    join.token = expired.id();
    raw.ask(&Ask::Join(join));
    assert_eq!(raw.refused(), Refused::NotProven);
}

#[test]
fn a_renewal_was_asked_for_without_a_certificate() {
    let cluster = Cluster::new("unshown");
    let token = cluster.token();
    let key = key();
    let renewal = Renewal { clock_ms: millis(SystemTime::now()), key: blob(key.public_key_raw()) };
    let renewal = to_bytes(&renewal);
    let renew = |raw: &Raw, by: &KeyPair| {
        let possession = blob(&raw.channel().to_renew(by, &renewal).unwrap());
        Ask::Renew(Renew { renewal: blob(&renewal), possession })
    };
    // JOIN-1
    let mut raw = cluster.raw(&token);
    let ask = renew(&raw, &key);
    raw.ask(&ask);
    assert_eq!(raw.refused(), Refused::Malformed);
    let identity = cluster.folder.identity(Role::Node, "5f");
    let mut raw = cluster.raw_renewing(&identity);
    let ask = renew(&raw, &super::key());
    raw.ask(&ask);
    assert_eq!(raw.refused(), Refused::NotItsKey);
    let mut raw = cluster.raw_renewing(&identity);
    let ask = Ask::Join(raw.join(&token, &key));
    raw.ask(&ask);
    assert_eq!(raw.refused(), Refused::Malformed);
    let mut raw = cluster.raw_renewing(&identity);
    let ask = renew(&raw, &key);
    raw.ask(&ask);
    assert!(matches!(raw.hear(), Some(Answer::Joined(_))));
}
