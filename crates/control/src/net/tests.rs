//! Two hubs in one thread: who may talk to whom, and what a peer's bytes can do.

mod alone;
mod backup;
mod certificates;
mod seat;
mod strangers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hoplo_base::limits::CONTROL_UNSENT_BYTES_MAX;
use hoplo_net::Protocol;
use hoplo_net::address::Address;
use hoplo_net::authority::{Authority, Validity};
use hoplo_net::hub::{Gone, HubOptions, LinkId};
use hoplo_net::name::{Name, Role};
use hoplo_net::tls::Identity;
use hoplo_wire::control::{ClientId, ClusterId, Hello, ReplicaId, Speaker};
use proptest::prelude::*;
use rustix::process::{Resource, Rlimit};

use super::frame::{Frame, PROTOCOL, Store};
use super::who::node_of;
use super::{Happening, Hub};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hoplo-net-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn authority(&self, name: &str) -> Authority {
        let dir = self.0.join(name);
        if dir.exists() {
            return Authority::load(&dir, CLUSTER).unwrap();
        }
        Authority::make(&dir, CLUSTER).unwrap()
    }

    /// Where the certificate lies that this authority gave to this holder.
    fn given(&self, authority: &str, role: Role, name: &str, valid: Validity) -> PathBuf {
        let dir = self.0.join(format!("{authority}-{role}-{name}"));
        let name = Name::new(CLUSTER, role, name).unwrap();
        self.authority(authority).issue(&name, valid, &dir).unwrap();
        dir
    }

    fn identity(&self, role: Role, name: &str) -> Identity {
        let dir = self.given("ca", role, name, Validity::days(1));
        Identity::load(&dir, CLUSTER).unwrap()
    }

    /// For [`server_hello`].
    fn server(&self) -> Option<Identity> {
        Some(self.identity(Role::Control, "a"))
    }

    /// For [`client_hello`].
    fn client(&self) -> Option<Identity> {
        Some(self.identity(Role::Client, "c"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CLUSTER: u128 = 7;

fn hello(who: Speaker) -> Hello {
    let cluster = ClusterId(CLUSTER);
    Hello { protocol: PROTOCOL, program: "hoplo 1".to_string(), cluster, who }
}

fn replica(name: &str) -> ReplicaId {
    let name = Name::new(CLUSTER, Role::Control, name).unwrap();
    ReplicaId { node: node_of(&name, 1), incarnation: 3 }
}

fn server_hello() -> Hello {
    hello(Speaker::Replica(replica("a")))
}

fn client_hello() -> Hello {
    hello(Speaker::Client(ClientId(9)))
}

fn hub(hello: Hello, identity: Option<Identity>) -> Hub {
    Hub::new(HubOptions { hello, identity }).unwrap()
}

/// Turns both until one of them has something that `found` wants.
fn until<T>(hubs: &mut [&mut Hub], mut found: impl FnMut(usize, &Happening) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "nothing of that kind happened");
        for (place, hub) in hubs.iter_mut().enumerate() {
            let mut happenings = Vec::new();
            hub.turn(Some(Instant::now() + Duration::from_millis(1)), &mut happenings).unwrap();
            if let Some(what) = happenings.iter().find_map(|happening| found(place, happening)) {
                return what;
            }
        }
    }
}

fn tcp() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

/// Why the dialling side's connection ended.
fn refusal(server: Hub, client: Hub) -> Gone {
    let (mut server, mut client) = (server, client);
    let at = server.listen(&tcp()).unwrap();
    client.dial(&at.to_string());
    until(&mut [&mut server, &mut client], |place, happening| match happening {
        Happening::Opened { dialled, .. } => panic!("opened, dialled: {dialled}"),
        Happening::Closed { why, .. } if place == 1 => Some(why.clone()),
        Happening::Closed { .. } | Happening::Frame { .. } => None,
    })
}

fn talk(at: &Address, here: Option<Identity>, there: Option<Identity>) {
    let mut server = hub(server_hello(), here);
    let mut client = hub(client_hello(), there);
    let at = server.listen(at).unwrap();
    let dialled = client.dial(&at.to_string());
    let who = until(&mut [&mut server, &mut client], |place, happening| match happening {
        Happening::Opened { theirs, link, .. } if place == 1 => {
            assert_eq!(*link, dialled);
            Some(theirs.who)
        }
        _ => None,
    });
    assert_eq!(who, server_hello().who);
    // Larger than any buffer on the way.
    let why = "x".repeat(5 << 20);
    client.send(dialled, &Frame::Told { number: 1, answer: Err(why.clone()) });
    client.send(dialled, &Frame::Probe { ticket: 2 });
    let mut got = Vec::new();
    let back: LinkId = until(&mut [&mut server, &mut client], |_, happening| match happening {
        Happening::Frame { link, frame } => {
            got.push(frame.clone());
            (got.len() == 2).then_some(*link)
        }
        Happening::Opened { .. } => None,
        Happening::Closed { why, .. } => panic!("{why}"),
    });
    let told = Frame::Told { number: 1, answer: Err(why) };
    assert_eq!(got, [told, Frame::Probe { ticket: 2 }]);
    server.close(back);
    let why = until(&mut [&mut server, &mut client], |_, happening| match happening {
        Happening::Closed { why, .. } => Some(why.clone()),
        _ => None,
    });
    assert!(matches!(why, Gone::Broken { .. }), "{why}");
}

#[test]
fn frames_go_both_ways_over_tls_and_over_a_unix_socket() {
    let folder = Folder::new("both-ways");
    talk(&tcp(), folder.server(), folder.client());
    talk(&Address::Unix(folder.0.join("socket")), None, None);
}

#[test]
fn nobody_there_is_not_the_same_as_no_answer() {
    let folder = Folder::new("nobody");
    let mut client = hub(client_hello(), folder.client());
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [closed.to_string(), folder.0.join("socket").display().to_string()] {
        client.dial(&address);
        let why = until(&mut [&mut client], |_, happening| match happening {
            Happening::Closed { why, .. } => Some(why.clone()),
            _ => None,
        });
        assert_eq!(why, Gone::Refused { address });
    }
    client.dial("no such place");
    let why = until(&mut [&mut client], |_, happening| match happening {
        Happening::Closed { why, .. } => Some(why.clone()),
        _ => None,
    });
    assert!(matches!(why, Gone::Unfit { .. }), "{why}");
}

#[test]
fn other_versions_and_clusters_are_refused_with_both_named() {
    let folder = Folder::new("versions");
    let newer = Hello { protocol: 99, program: "hoplo 2".to_string(), ..client_hello() };
    let why =
        refusal(hub(server_hello(), folder.server()), hub(newer, folder.client())).to_string();
    let ours = format!("hoplo 1 (protocol {PROTOCOL})");
    assert!(why.contains(&ours) && why.contains("hoplo 2 (protocol 99)"), "{why}");
    let other = Hello { cluster: ClusterId(8), ..client_hello() };
    let why =
        refusal(hub(server_hello(), folder.server()), hub(other, folder.client())).to_string();
    assert!(why.contains("0007") && why.contains("0008"), "{why}");
}

#[test]
fn another_authority_is_one_clear_line() {
    let folder = Folder::new("authority");
    let theirs = folder.given("theirs", Role::Client, "c", Validity::days(1));
    let theirs = Identity::load(&theirs, CLUSTER).unwrap();
    let client = hub(client_hello(), Some(theirs));
    let why = refusal(hub(server_hello(), folder.server()), client).to_string();
    assert!(why.contains("certificate") && why.lines().count() == 1, "{why}");
}

#[test]
fn tcp_without_certificates_is_refused_here() {
    let mut hub = hub(client_hello(), None);
    assert!(hub.listen(&tcp()).is_err());
    hub.dial("127.0.0.1:1");
    let why = until(&mut [&mut hub], |_, happening| match happening {
        Happening::Closed { why, .. } => Some(why.to_string()),
        _ => None,
    });
    assert!(why.contains("certificates"), "{why}");
}

/// What the server does with these bytes, as the first thing it hears on a unix socket.
fn rubbish(at: &Path, server: &mut Hub, bytes: &[u8]) {
    let mut peer = std::os::unix::net::UnixStream::connect(at).unwrap();
    peer.write_all(bytes).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let ended = until(&mut [server], |_, happening| match happening {
        Happening::Closed { .. } => Some(true),
        Happening::Opened { .. } => Some(false),
        Happening::Frame { .. } => None,
    });
    assert!(ended, "{bytes:?} was taken for a hello");
}

#[test]
fn whatever_a_stranger_says_only_its_connection_ends() {
    let folder = Folder::new("rubbish");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    rubbish(&at, &mut server, &u32::MAX.to_le_bytes());
    rubbish(&at, &mut server, &[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let mut early = Vec::new();
    Store::encode(&Frame::Probe { ticket: 1 }, &mut early);
    rubbish(&at, &mut server, &early);
    assert_eq!(server.counters().bad_frames, 3);
    rubbish(&at, &mut server, b"");
    rubbish(&at, &mut server, &[9, 0, 0, 0, 1]);
    assert_eq!(server.counters().broken, 5);
}

/// A client that is open at the server; the link there, and here.
fn opened(server: &mut Hub, client: &mut Hub, at: &str) -> (LinkId, LinkId) {
    let here = client.dial(at);
    let (mut there, mut open) = (None, false);
    until(&mut [server, client], |place, happening| {
        match happening {
            Happening::Opened { link, .. } if place == 0 => there = Some(*link),
            Happening::Opened { .. } => open = true,
            Happening::Closed { link, why } if place == 1 => panic!("{link:?}: {why}"),
            Happening::Closed { .. } | Happening::Frame { .. } => {}
        }
        there.filter(|_| open).map(|there| (there, here))
    })
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_thousand_connections_later_no_descriptor_is_left_behind() {
    let folder = Folder::new("descriptors");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let mut client = hub(client_hello(), None);
    let before = descriptors();
    for round in 0..1000 {
        let (there, here) = opened(&mut server, &mut client, &at.display().to_string());
        // Each side ends every second one.
        let (closer, other) = match round % 2 {
            0 => (&mut server, &mut client),
            _ => (&mut client, &mut server),
        };
        closer.close(if round % 2 == 0 { there } else { here });
        until(&mut [other], |_, happening| {
            matches!(happening, Happening::Closed { .. }).then_some(())
        });
    }
    // Other tests of this process have some, too, but not a thousand.
    assert!(descriptors() < before + 500, "{before} before, {} now", descriptors());
    assert_eq!(server.counters().accepted, 1000);
}

#[test]
fn out_of_descriptors_who_comes_is_turned_away_and_the_loop_goes_on() {
    const ALONE: &str = "HOPLO_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(ALONE).is_none() {
        // In a process of its own: the limit is for all of its threads.
        let name = "net::tests::out_of_descriptors_who_comes_is_turned_away_and_the_loop_goes_on";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(alone.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let folder = Folder::new("few-descriptors");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let mut client = hub(client_hello(), None);
    let connect = || std::os::unix::net::UnixStream::connect(&at).unwrap();
    let peers: Vec<_> = (0..20).map(|_| connect()).collect();
    let limit = peers.iter().map(|peer| peer.as_raw_fd()).max().unwrap() as u64 + 4;
    let few = Rlimit { current: Some(limit), maximum: Some(limit) };
    rustix::process::setrlimit(Resource::Nofile, few).unwrap();

    let mut happenings = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.counters().accepted + server.counters().turned_away < 20 {
        assert!(Instant::now() < deadline, "{:?}", server.counters());
        server.turn(Some(Instant::now()), &mut happenings).unwrap();
    }
    assert!((1..=3).contains(&server.counters().accepted), "{:?}", server.counters());
    drop(peers);
    opened(&mut server, &mut client, &at.display().to_string());
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_message_leaves_nothing_of_it() {
    let folder = Folder::new("vanishes");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let mut peer = std::os::unix::net::UnixStream::connect(&at).unwrap();
    let mut bytes = Vec::new();
    Store::encode(&Frame::Hello(client_hello()), &mut bytes);
    Store::encode(&Frame::Probe { ticket: 1 }, &mut bytes);
    let whole = bytes.len();
    Store::encode(&Frame::Told { number: 2, answer: Ok("x".repeat(100_000)) }, &mut bytes);
    peer.write_all(&bytes[..whole + 50_000]).unwrap();
    drop(peer);
    let mut frames = Vec::new();
    until(&mut [&mut server], |_, happening| match happening {
        Happening::Frame { frame, .. } => {
            frames.push(frame.clone());
            None
        }
        Happening::Closed { .. } => Some(()),
        Happening::Opened { .. } => None,
    });
    assert_eq!(frames, [Frame::Probe { ticket: 1 }], "what was whole, and no more");
    let mut client = hub(client_hello(), None);
    opened(&mut server, &mut client, &at.display().to_string());
}

#[test]
fn who_does_not_read_is_disconnected_before_it_costs_more_than_the_limit() {
    let folder = Folder::new("slow-reader");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let mut client = hub(client_hello(), None);
    let (there, _) = opened(&mut server, &mut client, &at.display().to_string());
    let large = Frame::Told { number: 1, answer: Ok("x".repeat(16 << 20)) };
    let mut sent = 0;
    let mut happenings = Vec::new();
    while !happenings.iter().any(|it| matches!(it, Happening::Closed { .. })) {
        assert!(sent <= CONTROL_UNSENT_BYTES_MAX + (32 << 20), "it is still connected");
        server.send(there, &large);
        sent += 16 << 20;
        server.turn(Some(Instant::now()), &mut happenings).unwrap();
    }
    assert_eq!(server.counters().slow_readers, 1);
}

#[test]
fn plain_text_on_a_tls_port_ends_that_connection() {
    let folder = Folder::new("plain");
    let mut server = hub(server_hello(), folder.server());
    let at = server.listen(&tcp()).unwrap();
    let mut peer = TcpStream::connect(at.to_string()).unwrap();
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let why = until(&mut [&mut server], |_, happening| match happening {
        Happening::Closed { why, .. } => Some(why.to_string()),
        _ => None,
    });
    assert!(why.contains("does not speak TLS"), "{why}");
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // An alert, then the end.
    let mut rest = Vec::new();
    let _ = peer.read_to_end(&mut rest);
}

#[test]
fn who_does_not_shake_hands_is_dropped_in_time() {
    let folder = Folder::new("mute");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let _mute = std::os::unix::net::UnixStream::connect(&at).unwrap();
    let why = until(&mut [&mut server], |_, happening| match happening {
        Happening::Closed { why, .. } => Some(why.to_string()),
        _ => None,
    });
    assert!(why.contains("no answer in time"), "{why}");
}

proptest! {
    #[test]
    fn no_bytes_make_a_frame_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Store::decode(&bytes);
    }

    /// A real frame with bits flipped is read, or refused.
    #[test]
    fn a_damaged_frame_is_an_error_or_another_frame(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..6),
    ) {
        let mut bytes = Vec::new();
        Store::encode(&Frame::Hello(server_hello()), &mut bytes);
        let mut body = bytes.split_off(4);
        for (at, bit) in flips {
            let at = at.index(body.len());
            body[at] ^= 1 << bit;
        }
        let _ = Store::decode(&body);
    }
}
