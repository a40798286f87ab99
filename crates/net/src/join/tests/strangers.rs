//! Those who come and do not say what they want, say something else, or are too many.

use hoplo_base::limits::{
    JOIN_ASK_BYTES_MAX, JOIN_ASKS_MAX, JOIN_STRANGER_BYTES_MAX, NET_OPENS_WITHIN,
    NET_STRANGERS_MAX, NET_STRANGERS_OF_ADDRESS_MAX,
};
use rustix::net::{AddressFamily, SocketAddrV4, SocketType};

use super::*;

/// From an address of this machine's own, one of 127.0.0.0/8.
fn come_from(last: u8, at: &str) -> Option<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let from = SocketAddrV4::new([127, 0, 0, last].into(), 0);
    rustix::net::bind(&socket, &from).unwrap();
    let at: std::net::SocketAddr = at.parse().unwrap();
    rustix::net::connect(&socket, &at).ok()?;
    Some(TcpStream::from(socket))
}

fn ends(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(SOON)).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it goes on: {error}"),
    }
}

#[test]
fn who_says_nothing_or_half_a_word_is_gone_in_time_and_keeps_nobody_waiting() {
    let cluster = Cluster::new("slow");
    let token = cluster.token();
    let begin = Instant::now();
    let mute = TcpStream::connect(&cluster.at).unwrap();
    let mut slow = TcpStream::connect(&cluster.at).unwrap();
    // The beginning of a first message of 512 bytes.
    slow.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).unwrap();
    let mut half = cluster.raw(&token);
    half.say(&200_u32.to_le_bytes());
    cluster.join(&token, Role::Node).unwrap();
    assert!(begin.elapsed() < NET_OPENS_WITHIN, "somebody kept another one waiting");
    for stream in [&mute, &slow, &half.stream] {
        ends(stream);
    }
    assert!(begin.elapsed() >= NET_OPENS_WITHIN, "they had their time");
    eventually("DESK-2", || cluster.desk.counters().late == 3);
}

#[test]
fn a_thousand_strangers_take_a_bounded_number_of_places() {
    // Each end of a connection is here.
    crate::descriptors::raise().unwrap();
    let cluster = Cluster::new("thousand");
    let token = cluster.token();
    let mut strangers = Vec::new();
    for number in 0..1000 {
        strangers.extend(come_from(2 + (number / 200) as u8, &cluster.at));
    }
    assert_eq!(strangers.len(), 1000);
    // They hold the places for moments only: who tries again comes in.
    eventually("nobody can join", || match cluster.join(&token, Role::Node) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    });
    let counters = cluster.desk.counters();
    assert!(counters.open_most <= NET_STRANGERS_MAX, "{counters:?}");
    assert!(counters.open_most >= 3 * NET_STRANGERS_OF_ADDRESS_MAX, "{counters:?}");
    assert!(counters.turned_away >= 700, "{counters:?}");
    for stranger in strangers {
        ends(&stranger);
    }
}

#[test]
fn silent_ones_of_the_same_address_kept_those_who_join_out_and_nobody_heard_of_it() {
    let cluster = Cluster::new("crowd");
    let token = cluster.token();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = std::collections::VecDeque::new();
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                held.extend(come_from(1, &cluster.at));
                if held.len() > 3 * NET_STRANGERS_OF_ADDRESS_MAX {
                    held.pop_front();
                }
            }
        });
        eventually("it is full", || cluster.desk.counters().turned_away > 1000);
        let joined: Vec<_> = (0..5).map(|_| cluster.join(&token, Role::Node)).collect();
        let told = cluster.told.recv_timeout(SOON);
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        joined.into_iter().for_each(|joined| drop(joined.unwrap()));
        let told = told.unwrap();
        assert!(told.contains("came from 127.0.0.1") && told.contains("no room"), "{told}");
    });
    assert!(cluster.desk.counters().open_most <= NET_STRANGERS_OF_ADDRESS_MAX + JOIN_ASKS_MAX);
}

#[test]
fn a_message_that_is_too_long_is_refused_before_it_came() {
    let cluster = Cluster::new("long");
    let token = cluster.token();
    let mut raw = cluster.raw(&token);
    raw.say(&(JOIN_ASK_BYTES_MAX as u32 + 1).to_le_bytes());
    assert_eq!(raw.refused(), Refused::Malformed);
    // A first message that TLS would take, of 65,000 bytes: no more of it is kept than anybody may send.
    let mut stream = TcpStream::connect(&cluster.at).unwrap();
    let (length, record) = (65_000_u16.to_be_bytes(), 16_000_u16.to_be_bytes());
    let begin = [22, 3, 1, record[0], record[1]];
    let first = [&begin[..], &[1, 0, length[0], length[1]], &[0; 15_996]].concat();
    let second = [&begin[..], &[0; 16_000]].concat();
    assert!(first.len() < JOIN_STRANGER_BYTES_MAX && first.len() * 2 > JOIN_STRANGER_BYTES_MAX);
    let _ = stream.write_all(&[first, second].concat());
    ends(&stream);
    assert_eq!((cluster.desk.counters().broken, cluster.desk.counters().late), (1, 0));
    for body in [&b""[..], b"x", &[0xff; 100]] {
        let mut raw = cluster.raw(&token);
        raw.say(&[&(body.len() as u32).to_le_bytes(), body].concat());
        assert_eq!(raw.refused(), Refused::Malformed, "{body:?}");
    }
    assert_eq!(cluster.store.now().given, 0);
    cluster.join(&token, Role::Node).unwrap();
}

#[test]
fn who_went_on_talking_after_his_message_got_no_second_answer() {
    let cluster = Cluster::new("twice");
    let token = cluster.token();
    let mut raw = cluster.raw(&token);
    let ask = Ask::Join(raw.join(&token, &key()));
    raw.ask(&ask);
    assert!(matches!(raw.hear(), Some(Answer::Joined(_))));
    raw.ask(&ask);
    assert_eq!(raw.hear(), None);
    assert_eq!(cluster.uses(&token), 1);
    // Two in one go.
    let mut raw = cluster.raw(&token);
    let ask = Ask::Join(raw.join(&token, &key()));
    let mut frame = Vec::new();
    encode_ask(&opening(), &ask, &mut frame);
    raw.say(&frame.repeat(2));
    let heard = [raw.hear(), raw.hear()];
    assert_eq!(heard.iter().flatten().count(), 1, "{heard:?}");
    assert_eq!(cluster.uses(&token), 2);
}

#[test]
fn another_version_is_told_which_one_this_is() {
    let cluster = Cluster::new("version");
    let token = cluster.token();
    let mut raw = cluster.raw(&token);
    let ask = Ask::Join(raw.join(&token, &key()));
    raw.ask_as(PROTOCOL + 1, &ask);
    let Refused::Version { protocol, program } = raw.refused() else { panic!("it was taken") };
    assert_eq!((protocol, program), (PROTOCOL, opening().program));
    // The same, heard by one of ours.
    let head = Name::new(CLUSTER, Role::Control, "head").unwrap();
    let config = server(&cluster.folder.authority("ca"), &head, Validity::days(1));
    let (at, thread) = serve_one(|mut stream| {
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).unwrap();
        }
        // Variant, variant, protocol 9, "hoplo 9", and what that version has more to say.
        let body = [0, 0, 9, 7, b'h', b'o', b'p', b'l', b'o', b' ', b'9'];
        tls.writer().write_all(&(body.len() as u32).to_le_bytes()).unwrap();
        tls.writer().write_all(&body).unwrap();
        tls.complete_io(&mut stream).unwrap();
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    says(join_at(&at, &token, Role::Node, SOON), &["hoplo 9", "hoplo 0.", "same version"]);
    thread.join().unwrap().unwrap();
}

#[test]
fn a_store_that_hangs_keeps_only_those_waiting_who_asked_it() {
    let cluster = Cluster::new("hangs");
    let uses_max = JOIN_ASKS_MAX as u32 / 2 - 1;
    let token = cluster.token_for(Role::Node, SystemTime::now() + DAY, Some(uses_max));
    let (arrived, arrivals) = channel();
    let (open, opened) = channel();
    cluster.store.now().gate = Some((arrived, opened));
    let mut first = cluster.raw(&token);
    let ask = Ask::Join(first.join(&token, &key()));
    first.ask(&ask);
    arrivals.recv_timeout(SOON).unwrap();
    // JOIN-5: others are heard, and peers handed on.
    let mut rubbish = cluster.raw(&token);
    rubbish.say(&[1, 0, 0, 0, 0]);
    assert_eq!(rubbish.refused(), Refused::Malformed);
    let at = cluster.at.clone();
    let identity = cluster.folder.identity(Role::Node, "5f");
    let thread =
        std::thread::spawn(move || Raw::dial(&at, identity.dialling(Purpose::Store)).is_ok());
    drop(cluster.peers.recv_timeout(SOON).unwrap());
    assert!(!thread.join().unwrap());
    // DESK-1: as many as half of those that may wait come from this address; whoever of them comes last is refused.
    let mut all = vec![first];
    for _ in 0..JOIN_ASKS_MAX / 2 {
        let mut raw = cluster.raw(&token);
        let ask = Ask::Join(raw.join(&token, &key()));
        raw.ask(&ask);
        all.push(raw);
    }
    eventually("one is refused", || cluster.desk.counters().refused == 2);
    let error = says(cluster.join(&token, Role::Node), &["too many", "try again"]);
    assert!(error.is_retryable());
    open.send(()).unwrap();
    let busy = all.iter_mut().filter_map(|raw| match raw.hear() {
        Some(Answer::Joined(_)) => None,
        other => Some(other),
    });
    // JOIN-4: of those who waited one more asked than may join.
    let refused = busy.collect::<Vec<_>>();
    assert_eq!(refused.len(), 2, "{refused:?}");
    for why in [Refused::UsedUp, Refused::Busy] {
        assert!(refused.contains(&Some(Answer::Refused(why))), "{refused:?}");
    }
    let store = cluster.store.now();
    assert_eq!((store.tokens[&token.id()].uses, store.given), (uses_max, uses_max));
    // It was asked once about the first one, and once about all who waited meanwhile.
    assert_eq!((store.spends, store.numberings), (2, 2));
}

/// Nobody of those who wait behind others would be answered in time.
#[test]
fn a_silent_store_is_waited_for_once_for_all_who_wait() {
    let cluster = Cluster::new("silent");
    let token = cluster.token();
    let (arrived, arrivals) = channel();
    let (open, opened) = channel();
    cluster.store.now().gate = Some((arrived, opened));
    let ask = || {
        let mut raw = cluster.raw(&token);
        let ask = Ask::Join(raw.join(&token, &key()));
        raw.ask(&ask);
        raw
    };
    let mut all = vec![ask()];
    arrivals.recv_timeout(SOON).unwrap();
    // One more than may wait: it is refused when all others do.
    all.extend((0..JOIN_ASKS_MAX / 2).map(|_| ask()));
    eventually("one is refused", || cluster.desk.counters().refused == 1);
    cluster.store.now().is_gone = true;
    open.send(()).unwrap();
    let heard: Vec<Refused> = all.iter_mut().map(Raw::refused).collect();
    let silent = heard.iter().filter(|why| matches!(why, Refused::Unavailable { .. }));
    assert_eq!(silent.count(), heard.len() - 1, "{heard:?}");
    assert_eq!(cluster.store.now().lookups, 2);
}

#[test]
fn who_is_gone_before_his_answer_breaks_nothing() {
    let cluster = Cluster::new("gone");
    let token = cluster.token();
    let (arrived, arrivals) = channel();
    let (open, opened) = channel();
    cluster.store.now().gate = Some((arrived, opened));
    let mut first = cluster.raw(&token);
    let ask = Ask::Join(first.join(&token, &key()));
    first.ask(&ask);
    arrivals.recv_timeout(SOON).unwrap();
    drop(first);
    eventually("it is gone", || cluster.desk.counters().open == 0);
    open.send(()).unwrap();
    cluster.join(&token, Role::Node).unwrap();
    // A desk that ends while somebody waits.
    let mut last = cluster.raw(&token);
    let (arrived, arrivals) = channel();
    let (open, opened) = channel();
    cluster.store.now().gate = Some((arrived, opened));
    let ask = Ask::Join(last.join(&token, &key()));
    last.ask(&ask);
    arrivals.recv_timeout(SOON).unwrap();
    let thread = std::thread::spawn(move || drop(cluster));
    assert_eq!(last.hear(), None);
    open.send(()).unwrap();
    thread.join().unwrap();
}
