//! A hub takes those whom the desk hands on.

use super::*;
use crate::hub::{Gone, Happening, Hub, HubOptions, LinkId};
use crate::protocol::{Admitted, Malformed, Meaning, NotAdmitted, Protocol, Standing};

/// Whoever is of the cluster may talk, and says texts.
#[derive(Debug)]
struct Texts<const LINK: bool>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Hello,
    Refusal(String),
    Text(String),
}

impl<const LINK: bool> Protocol for Texts<LINK> {
    const PURPOSE: Purpose = if LINK { Purpose::Link } else { Purpose::Store };

    type Frame = Word;
    type Hello = ();

    fn encode(frame: &Word, out: &mut Vec<u8>) {
        let text = match frame {
            Word::Hello => "h".to_string(),
            Word::Refusal(why) => format!("r{why}"),
            Word::Text(text) => format!("t{text}"),
        };
        out.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }

    fn decode(body: &[u8]) -> Result<Word, Malformed> {
        let text = String::from_utf8(body.to_vec()).unwrap();
        Ok(match text.split_at(1) {
            ("h", _) => Word::Hello,
            ("r", why) => Word::Refusal(why.to_string()),
            (_, text) => Word::Text(text.to_string()),
        })
    }

    fn hello((): ()) -> Word {
        Word::Hello
    }

    fn refusal(why: String) -> Word {
        Word::Refusal(why)
    }

    fn meaning(frame: Word) -> Meaning<Self> {
        match frame {
            Word::Hello => Meaning::Hello(()),
            Word::Refusal(why) => Meaning::Refusal(why),
            Word::Text(_) => Meaning::Other(frame),
        }
    }

    fn name(_: &Word) -> &'static str {
        "a text"
    }

    fn admit((): &(), (): &(), _: Option<&Name>) -> Result<Admitted, NotAdmitted> {
        Ok(Admitted { standing: Standing::Member, frame_bytes_max: 100 })
    }

    fn describe((): &()) -> String {
        "somebody".to_string()
    }
}

fn hub<const LINK: bool>(identity: Identity) -> Hub<Texts<LINK>> {
    Hub::new(HubOptions { hello: (), identity: Some(identity) }).unwrap()
}

/// The next that happens, of one of the two.
fn next<const LINK: bool>(hub: &mut Hub<Texts<LINK>>) -> Option<Happening<Texts<LINK>>> {
    let mut happenings = Vec::new();
    let until = Instant::now() + Duration::from_millis(5);
    hub.turn(Some(until), &mut happenings).unwrap();
    assert!(happenings.len() <= 1, "{happenings:?}");
    happenings.pop()
}

/// What was dialled is open at both ends, with the names that were shown: (here, there).
fn open(here: &mut Hub<Texts<true>>, there: &mut Hub<Texts<true>>) -> [(LinkId, Name); 2] {
    let (mut ours, mut theirs) = (None, None);
    eventually("both are open", || {
        for (hub, found, dials) in
            [(&mut *here, &mut ours, true), (&mut *there, &mut theirs, false)]
        {
            match next(hub) {
                Some(Happening::Opened { link, shown, dialled, .. }) => {
                    assert_eq!(dialled, dials);
                    *found = Some((link, shown.unwrap()));
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        ours.is_some() && theirs.is_some()
    });
    [ours.unwrap(), theirs.unwrap()]
}

#[test]
fn a_hub_takes_whom_the_desk_hands_on_and_both_know_each_other() {
    let cluster = Cluster::new("handed");
    let mut head = hub::<true>(cluster.folder.identity(Role::Control, "head"));
    let intake = head.intake();
    let mut node = hub::<true>(cluster.folder.identity(Role::Node, "2"));
    node.dial(&cluster.at);
    // The node's first words are under way while nobody has taken it yet.
    let mut happened = None;
    let peer = std::iter::from_fn(|| {
        happened = next(&mut node);
        assert!(happened.is_none(), "{happened:?}");
        Some(cluster.peers.try_recv())
    });
    intake.give(peer.flatten().next().unwrap());
    let [(ours, shown_here), (theirs, shown_there)] = open(&mut node, &mut head);
    assert_eq!((shown_here.name(), shown_there.name()), ("head", "2"));
    node.send(ours, &Word::Text("there".to_string()));
    head.send(theirs, &Word::Text("and back".to_string()));
    let (mut heard, mut said) = (None, None);
    eventually("both heard", || {
        heard = heard.take().or_else(|| next(&mut node));
        said = said.take().or_else(|| next(&mut head));
        heard.is_some() && said.is_some()
    });
    let text = |happening: Option<Happening<Texts<true>>>| match happening {
        Some(Happening::Frame { frame: Word::Text(text), .. }) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!((text(heard), text(said)), ("and back".to_string(), "there".to_string()));
    assert_eq!(head.strangers(), 0);
}

#[test]
fn who_is_handed_on_and_shows_no_certificate_takes_a_place_at_the_door_until_it_is_told() {
    let cluster = Cluster::new("handed-stranger");
    let mut head = hub::<true>(cluster.folder.identity(Role::Control, "head"));
    let intake = head.intake();
    // It says its first word, and then nothing.
    let identity = cluster.folder.identity(Role::Node, "2");
    let name = ServerName::try_from("hoplo").unwrap();
    let mut tls = ClientConnection::new(identity.dialling(Purpose::Link), name).unwrap();
    let mut stream = TcpStream::connect(&cluster.at).unwrap();
    tls.write_tls(&mut stream).unwrap();
    intake.give(cluster.peers.recv_timeout(SOON).unwrap());
    eventually("it waits at the door", || next(&mut head).is_none() && head.strangers() == 1);
    drop(stream);
    let mut gone = None;
    eventually("it is gone", || {
        gone = gone.take().or_else(|| next(&mut head));
        gone.is_some()
    });
    assert!(matches!(gone, Some(Happening::Closed { why: Gone::Broken { .. }, .. })), "{gone:?}");
    assert_eq!(head.strangers(), 0);
}

#[test]
fn a_hub_says_that_its_peer_serves_no_connections_of_this_kind() {
    let cluster = Cluster::new("handed-kind");
    // A hub of its own, that serves the store and nothing else.
    let mut store = hub::<false>(cluster.folder.identity(Role::Control, "1"));
    let at = store.listen(&"127.0.0.1:0".parse().unwrap()).unwrap().to_string();
    let mut node = hub::<true>(cluster.folder.identity(Role::Node, "2"));
    node.dial(&at);
    let mut gone = None;
    eventually("it is told", || {
        next(&mut store);
        gone = gone.take().or_else(|| next(&mut node));
        gone.is_some()
    });
    let Some(Happening::Closed { why: Gone::Unfit { why, .. }, .. }) = gone else {
        panic!("{gone:?}")
    };
    assert!(why.contains("serves no connections of this kind"), "{why}");
}
