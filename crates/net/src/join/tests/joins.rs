use hoplo_base::limits::{CERTIFICATE_CLOCKS, CERTIFICATE_JOINED};

use super::*;
use crate::inbox::Nowhere;
use crate::link::LinkId;
use crate::link::{Filled, Link};
use crate::testing::Plain;

/// What the other end of a connection that was handed on shows.
fn shown(peer: Peer) -> Result<Name, rustls::Error> {
    let Peer { socket, tls, .. } = peer;
    let stream = TcpStream::from(socket.try_clone().unwrap());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut link = Link::new(socket, Some(tls), 100);
    loop {
        assert!(link.flush().unwrap());
        match link.fill::<Plain>(LinkId(0), &mut [0; 64 * 1024], 1, &mut Nowhere) {
            Ok(filled) => assert_ne!(filled, Filled::Closed),
            Err(error) => {
                let error = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
                link.flush().unwrap();
                return Err(error.unwrap().clone());
            }
        }
        if let Ok(shown) = link.shown() {
            return Ok(shown.unwrap());
        }
    }
}

#[test]
fn who_joined_is_of_the_cluster_at_the_same_port() {
    let cluster = Cluster::new("joined");
    let token = cluster.token();
    let before = SystemTime::now();
    let first = cluster.join(&token, Role::Node).unwrap();
    let second = cluster.join(&token, Role::Node).unwrap();
    assert_eq!(cluster.uses(&token), 2);
    assert_ne!(first.number, second.number, "a number is given once");
    assert_eq!(first.members, ["10.0.0.1:6379"]);
    let number = first.number.unwrap().number();
    let expected = format!("hoplo://{CLUSTER:032x}/node/{number:x}");
    assert_eq!(first.name.to_string(), expected);
    let valid = first.until.duration_since(before).unwrap();
    assert!(valid + Duration::from_secs(1) >= CERTIFICATE_JOINED, "{valid:?}");
    assert!(valid <= CERTIFICATE_JOINED + SOON, "{valid:?}");
    let dir = cluster.folder.0.join("mine");
    first.write(&dir).unwrap();
    assert_eq!(mode_of(&dir.join("identity.pem")), 0o600);
    assert_eq!(mode_of(&dir), 0o700);
    assert!(!dir.join("ca.key").exists());
    let identity = Identity::load(&dir, CLUSTER).unwrap();
    assert_eq!(identity.certificate().name, first.name);
    // As a peer, at the port where it joined.
    let at = &cluster.at;
    let raw = std::thread::scope(|scope| {
        let raw = scope.spawn(|| Raw::dial(at, identity.dialling(Purpose::Link)).unwrap());
        let peer = cluster.peers.recv_timeout(SOON).unwrap();
        assert_eq!(peer.purpose, Purpose::Link);
        assert_eq!(shown(peer), Ok(first.name.clone()));
        raw.join().unwrap()
    });
    assert_eq!(raw.tls.alpn_protocol(), Some(Purpose::Link.alpn()));
    eventually("both have gone", || cluster.desk.counters().open == 0);
    let counters = cluster.desk.counters();
    assert_eq!((counters.joined, counters.handed_on, counters.refused), (2, 1, 0));
}

#[test]
fn who_has_no_certificate_is_no_peer() {
    let cluster = Cluster::new("nocert");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cluster.folder.authority("ca").certificate()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for alpn in [&[][..], &[Purpose::Store], &[Purpose::Link]] {
        let mut config = config.clone();
        config.alpn_protocols = alpn.iter().map(|it| it.alpn().to_vec()).collect();
        let at = cluster.at.clone();
        let thread = std::thread::spawn(move || {
            let mut raw = Raw::dial(&at, Arc::new(config)).unwrap();
            raw.say(b"as if it were a peer");
            raw.hear()
        });
        let peer = cluster.peers.recv_timeout(SOON).unwrap();
        assert_eq!(shown(peer), Err(rustls::Error::NoCertificatesPresented));
        assert_eq!(thread.join().unwrap(), None);
    }
    // What nobody serves here is told by TLS at once.
    for unknown in [&b"hoplo-join/2"[..], b"h2"] {
        let mut config = config.clone();
        config.alpn_protocols = vec![unknown.to_vec()];
        let error = Raw::dial(&cluster.at, Arc::new(config)).err().unwrap().to_string();
        assert!(error.contains("NoApplicationProtocol"), "{error}");
    }
    // To renew takes one, too.
    let mut renewing = config.clone();
    renewing.alpn_protocols = vec![Purpose::Renew.alpn().to_vec()];
    let mut raw = Raw::dial(&cluster.at, Arc::new(renewing)).unwrap();
    raw.say(b"anything");
    assert_eq!(raw.hear(), None);
}

#[test]
fn each_role_gets_its_own_kind_of_name() {
    let cluster = Cluster::new("roles");
    for role in [Role::Control, Role::Node, Role::Client, Role::Operator] {
        let token = cluster.token_for(role, SystemTime::now() + DAY, None);
        let admission = cluster.join(&token, role).unwrap();
        assert_eq!(admission.name.role, role);
        let is_numbered = matches!(role, Role::Control | Role::Node);
        assert_eq!(admission.number.is_some(), is_numbered);
        let (name, again) = (admission.name, cluster.join(&token, role).unwrap().name);
        assert_ne!(name, again, "two have one name");
        assert_eq!(name.name().starts_with("box:"), !is_numbered, "{name}");
    }
}

#[test]
fn a_token_that_does_not_admit_is_told_with_where_it_came_from() {
    let cluster = Cluster::new("tokens");
    let (now, second) = (SystemTime::now(), Duration::from_secs(1));
    let unknown = cluster.token_of_nobody();
    says(cluster.join(&unknown, Role::Node), &["HOPLO_TOKEN", "revoked", "hoplo token list"]);
    let expired = cluster.token_for(Role::Node, now - second, None);
    let words = ["HOPLO_TOKEN", "expired at 20", "hoplo token new"];
    says(cluster.join(&expired, Role::Node), &words);
    let used = cluster.token_for(Role::Node, now + DAY, Some(1));
    cluster.join(&used, Role::Node).unwrap();
    says(cluster.join(&used, Role::Node), &["HOPLO_TOKEN", "as often as", "hoplo token new"]);
    let revoked = cluster.token();
    cluster.join(&revoked, Role::Node).unwrap();
    cluster.store.now().tokens.remove(&revoked.id());
    says(cluster.join(&revoked, Role::Node), &["revoked"]);
    // Two were admitted. For the others nothing was written.
    let store = cluster.store.now();
    assert_eq!((store.spends, store.given), (2, 2));
}

#[test]
fn a_token_for_nodes_made_no_control_node() {
    let cluster = Cluster::new("control");
    let roles = [Role::Control, Role::Node, Role::Client, Role::Operator];
    for has in roles {
        let token = cluster.token_for(has, SystemTime::now() + DAY, None);
        for wanted in roles.into_iter().filter(|it| *it != has) {
            let (has, flag) = (has.to_string(), format!("--role {wanted}"));
            says(cluster.join(&token, wanted), &["HOPLO_TOKEN", &has, &flag]);
        }
        assert_eq!(cluster.uses(&token), 0);
    }
}

#[test]
fn two_wanted_the_last_use_of_a_token() {
    let cluster = Cluster::new("last");
    let token = cluster.token_for(Role::Node, SystemTime::now() + DAY, Some(1));
    let (at, held) = (&cluster.at, &token);
    let joined = std::thread::scope(|scope| {
        let join = || join_at(at, held, Role::Node, SOON);
        let all: Vec<_> = (0..6).map(|_| scope.spawn(join)).collect();
        let all = all.into_iter().map(|it| it.join().unwrap());
        all.filter(|it| match it {
            Ok(_) => true,
            Err(JoinError::UsedUp { .. }) => false,
            Err(other) => panic!("{other}"),
        })
        .count()
    });
    assert_eq!((joined, cluster.uses(&token)), (1, 1));
}

#[test]
fn a_use_that_was_taken_meanwhile_is_told_as_used_up() {
    struct Beaten(Stored);
    impl Registry for Beaten {
        fn token(&mut self, id: TokenId) -> Result<Option<TokenRecord>, Unavailable> {
            let found = self.0.token(id);
            // Another control node's clerk was quicker.
            self.0.now().tokens.get_mut(&id).unwrap().uses += 1;
            found
        }
        fn spend(&mut self, id: TokenId, uses: u32, at: SystemTime) -> Result<u32, SpendError> {
            self.0.spend(id, uses, at)
        }
        fn numbers(&mut self, hosts: &[&str]) -> Result<Vec<NodeNumber>, Unavailable> {
            self.0.numbers(hosts)
        }
        fn is_fenced(&mut self, name: &Name) -> Result<bool, Unavailable> {
            self.0.is_fenced(name)
        }
        fn members(&mut self) -> Result<Vec<String>, Unavailable> {
            self.0.members()
        }
    }
    let cluster = Cluster::new("beaten");
    let token = cluster.token_for(Role::Node, SystemTime::now() + DAY, Some(1));
    let options = DeskOptions {
        identity: cluster.folder.identity(Role::Control, "head"),
        authority: cluster.folder.authority("ca"),
        registry: Box::new(Beaten(cluster.store.clone())),
        is_known: Box::new(|_| false),
        tells: Box::new(|_| {}),
        peers: Box::new(drop),
    };
    let (listener, at) = listen(None, 0).unwrap();
    let _desk = Desk::open(listener, options).unwrap();
    says(join_at(&at.to_string(), &token, Role::Node, SOON), &["as often as"]);
    assert_eq!((cluster.uses(&token), cluster.store.now().given), (1, 0));
}

#[test]
fn a_renewal_keeps_the_name_and_changes_the_key() {
    let cluster = Cluster::new("renewal");
    let first = cluster.join(&cluster.token(), Role::Node).unwrap();
    let dir = cluster.folder.0.join("mine");
    first.write(&dir).unwrap();
    let identity = Identity::load(&dir, CLUSTER).unwrap();
    let again = renew(&cluster.at, &identity, SOON).unwrap();
    assert_eq!((&again.name, again.number), (&first.name, None));
    assert!(again.until >= first.until);
    let text = |dir: &Path| std::fs::read_to_string(dir.join("identity.pem")).unwrap();
    let before = text(&dir);
    again.write(&dir).unwrap();
    assert_ne!(text(&dir), before);
    assert_eq!(Identity::load(&dir, CLUSTER).unwrap().certificate().name, first.name);
    // JOIN-6
    cluster.store.now().fenced.insert(first.name.clone());
    let error = says(renew(&cluster.at, &identity, SOON), &["declared dead", "join again"]);
    assert!(!error.is_retryable());
}

#[test]
fn a_certificate_that_ran_out_is_not_renewed() {
    let cluster = Cluster::new("ranout");
    let valid = Validity {
        from: SystemTime::now() - DAY,
        until: SystemTime::now() + Duration::from_secs(2),
    };
    let dir = cluster.folder.issue(Role::Node, "short", valid);
    let identity = Identity::load(&dir, CLUSTER).unwrap();
    let mut last = None;
    eventually("it runs out", || {
        last = Some(renew(&cluster.at, &identity, SOON));
        last.as_ref().is_some_and(Result::is_err)
    });
    says(last.unwrap(), &["short/identity.pem", "dates are over", "join again"]);
}

#[test]
fn a_store_that_does_not_answer_is_told_in_one_line() {
    let cluster = Cluster::new("store");
    let token = cluster.token();
    cluster.store.now().is_gone = true;
    let error = says(cluster.join(&token, Role::Node), &["no chain lives", "try again"]);
    assert!(error.is_retryable());
}

#[test]
fn a_host_whose_name_cannot_stand_in_a_certificate_costs_no_use() {
    let cluster = Cluster::new("host");
    let token = cluster.token();
    for host in ["a b", "ä", &"x".repeat(48), &"x".repeat(65), "line\nline"] {
        let joining =
            Joining { address: &cluster.at, token: &token, role: Role::Node, host, within: SOON };
        assert!(matches!(join(&joining), Err(JoinError::Host { .. })), "{host:?}");
    }
    assert_eq!(cluster.uses(&token), 0);
}

#[test]
fn only_a_control_node_lets_others_join_and_only_with_its_own_authority() {
    let folder = Folder::new("desks");
    let open = |role, name, authority| {
        let options = DeskOptions {
            identity: folder.identity(role, name),
            authority: folder.authority(authority),
            registry: Box::new(Stored::default()),
            is_known: Box::new(|_| false),
            tells: Box::new(|_| {}),
            peers: Box::new(drop),
        };
        Desk::open(listen(None, 0).unwrap().0, options).map(drop)
    };
    open(Role::Control, "a", "ca").unwrap();
    for (role, name) in [(Role::Node, "b"), (Role::Client, "c"), (Role::Operator, "d")] {
        let error = open(role, name, "ca").unwrap_err().to_string();
        assert!(error.contains("identity.pem") && error.contains(&role.to_string()), "{error}");
    }
    let error = open(Role::Control, "a", "other").unwrap_err();
    assert!(matches!(error, DeskError::OtherAuthority { .. }), "{error}");
}

#[test]
fn a_port_that_is_taken_and_a_host_that_is_not_ours_are_named_with_their_flags() {
    let (_taken, at) = listen(None, 0).unwrap();
    let error = listen(None, at.port()).unwrap_err().to_string();
    assert!(error.contains(&at.port().to_string()) && error.contains("--port"), "{error}");
    // For documentation: no machine has it.
    let error = listen(Some("192.0.2.1"), 0).unwrap_err().to_string();
    assert!(error.contains("192.0.2.1") && error.contains("--host"), "{error}");
    let error = listen(Some("not a host"), 0).unwrap_err().to_string();
    assert!(error.contains("\"not a host\"") && error.contains("--host"), "{error}");
    assert!(listen(Some("::1"), 0).is_ok_and(|(_, at)| at.is_ipv6()));
}

#[test]
fn a_certificate_is_valid_for_clocks_that_may_join() {
    assert!(CERTIFICATE_CLOCKS > hoplo_base::limits::JOIN_CLOCKS);
    let cluster = Cluster::new("clocks");
    let token = cluster.token();
    let now = millis(SystemTime::now());
    for (clock_ms, is_joined) in [
        (now - 110_000, true),
        (now + 110_000, true),
        (now - 130_000, false),
        (now + 130_000, false),
    ] {
        let mut raw = cluster.raw(&token);
        raw.ask(&Ask::Join(raw.join_at(&token, &key(), clock_ms)));
        match raw.hear().unwrap() {
            Answer::Joined(_) => assert!(is_joined, "{clock_ms} at {now}"),
            Answer::Refused(Refused::Clock { ours_ms }) => {
                assert!(!is_joined, "{clock_ms} at {now}");
                assert!(ours_ms.abs_diff(now) < 60_000);
            }
            Answer::Refused(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(cluster.uses(&token), 2);
}
