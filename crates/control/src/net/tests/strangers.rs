//! What those cost who did not say who they are, and those who did.

use hoplo_base::limits::{
    CONTROL_CLIENT_FRAME_BYTES_MAX, CONTROL_FRAME_BYTES_MAX, NET_GREETING_BYTES_MAX,
    NET_STRANGERS_KNOWN_MAX, NET_STRANGERS_MAX, NET_UNFINISHED_BYTES_MAX,
};

use super::*;

/// The answer to a message of so many bytes, or nothing if it is waited for.
fn announces(server: &mut Hub, at: &Path, who: Option<Speaker>, bytes: usize) -> Option<String> {
    let mut peer = std::os::unix::net::UnixStream::connect(at).unwrap();
    let mut said = Vec::new();
    if let Some(who) = who {
        Store::encode(&Frame::Hello(hello(who)), &mut said);
    }
    said.extend((bytes as u32).to_le_bytes());
    peer.write_all(&said).unwrap();
    let before = server.counters().bad_frames;
    // Then the end: what was waited for is missing.
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let why = until(&mut [server], |_, happening| match happening {
        Happening::Closed { why, .. } => Some(why.to_string()),
        _ => None,
    });
    (server.counters().bad_frames > before).then_some(why)
}

#[test]
fn a_message_that_was_not_finished_held_what_its_sender_liked() {
    let folder = Folder::new("unfinished");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let client = Some(client_hello().who);
    let member = Some(Speaker::Replica(replica("b")));
    for (who, max) in [
        (None, NET_GREETING_BYTES_MAX),
        (client, CONTROL_CLIENT_FRAME_BYTES_MAX),
        (member, CONTROL_FRAME_BYTES_MAX),
    ] {
        assert_eq!(announces(&mut server, &at, who, max), None, "{who:?}");
        let why = announces(&mut server, &at, who, max + 1).unwrap();
        assert!(why.contains(&format!("above the limit of {max}")), "{why}");
    }
}

#[test]
fn silent_strangers_took_the_places_of_members() {
    const ALONE: &str = "HOPLO_TEST_STRANGERS";
    if std::env::var_os(ALONE).is_none() {
        // In a process of its own: descriptors are counted.
        let name = "net::tests::strangers::silent_strangers_took_the_places_of_members";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(alone.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    hoplo_net::descriptors::raise().unwrap();
    let folder = Folder::new("strangers");
    let mut server = hub(server_hello(), folder.server());
    let at = server.listen(&tcp()).unwrap();
    let mut client = hub(client_hello(), folder.client());
    let mut silent = Vec::new();
    for round in 0..3 {
        for _ in 0..NET_STRANGERS_MAX {
            // Not blocking: the queue of the port may be full.
            silent.push(at.connect().unwrap());
        }
        // Known from then on, because it dials.
        let known = server.dial(&at.to_string());
        server.close(known);
        opened(&mut server, &mut client, &at.to_string());
        assert!(server.strangers() <= NET_STRANGERS_MAX + NET_STRANGERS_KNOWN_MAX);
        assert_eq!(server.clients().0, round + 1);
    }
    assert!(server.counters().turned_away > 0, "somebody had to make room");
    // They are dropped in time, and nothing stays behind.
    drop(client);
    let mut happenings = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.strangers() + server.clients().0 > 0 {
        assert!(Instant::now() < deadline, "{} wait still", server.strangers());
        server.turn(Some(deadline), &mut happenings).unwrap();
    }
}

#[test]
fn messages_that_many_clients_did_not_finish_filled_the_memory() {
    let folder = Folder::new("many-unfinished");
    let at = folder.0.join("socket");
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let said = |client: u64| {
        let mut said = Vec::new();
        Store::encode(&Frame::Hello(hello(Speaker::Client(ClientId(client)))), &mut said);
        said.extend((CONTROL_CLIENT_FRAME_BYTES_MAX as u32).to_le_bytes());
        said.resize(said.len() + CONTROL_CLIENT_FRAME_BYTES_MAX - 1, 0);
        said
    };
    let mut happenings = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut peers = Vec::new();
    // Each is within its own limit; all together are not.
    for client in 0..=(NET_UNFINISHED_BYTES_MAX / CONTROL_CLIENT_FRAME_BYTES_MAX) as u64 {
        let mut peer = std::os::unix::net::UnixStream::connect(&at).unwrap();
        peer.set_nonblocking(true).unwrap();
        let (said, mut sent) = (said(client), 0);
        while sent < said.len() && server.counters().bad_frames == 0 {
            assert!(Instant::now() < deadline, "it does not read");
            sent += peer.write(&said[sent..]).unwrap_or(0);
            server.turn(Some(Instant::now()), &mut happenings).unwrap();
        }
        peers.push(peer);
    }
    let ended = happenings.iter().find_map(|it| match it {
        Happening::Closed { why, .. } => Some(why.to_string()),
        Happening::Opened { .. } | Happening::Frame { .. } => None,
    });
    assert!(ended.unwrap().contains("hold too much"));
    assert_eq!(server.counters().bad_frames, 1, "the others go on");
}

#[test]
fn clients_took_the_descriptors_of_logs_and_members() {
    const ALONE: &str = "HOPLO_TEST_MANY_CLIENTS";
    if std::env::var_os(ALONE).is_none() {
        // In a process of its own: the limit is for all of its threads.
        let name = "net::tests::strangers::clients_took_the_descriptors_of_logs_and_members";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(alone.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let folder = Folder::new("many-clients");
    let at = folder.0.join("socket");
    let limit = descriptors() as u64 + 60;
    let few = Rlimit { current: Some(limit), maximum: Some(limit) };
    rustix::process::setrlimit(Resource::Nofile, few).unwrap();
    let mut server = hub(server_hello(), None);
    server.listen(&Address::Unix(at.clone())).unwrap();
    let mut client = hub(client_hello(), None);
    let at = at.display().to_string();
    let (_, most) = server.clients();
    assert!((5..30).contains(&most), "{most}");
    for _ in 0..most {
        opened(&mut server, &mut client, &at);
    }
    client.dial(&at);
    let why = until(&mut [&mut server, &mut client], |place, happening| match happening {
        Happening::Closed { why, .. } if place == 1 => Some(why.to_string()),
        _ => None,
    });
    assert!(why.contains("raise the limit of open files"), "{why}");
    // A member finds room.
    let mut member = hub(hello(Speaker::Replica(replica("b"))), None);
    opened(&mut server, &mut member, &at);
}
