//! What nodes say to each other as a hub carries it, and who may say hello as which node.
//!
//! Members' messages and those of links (`hoplo_core::link`) go over connections of one kind. A connection is a link's when the
//! first message after its hello is. Those begin with a byte with which no member's message does:
//!
//! ```text
//!   255 | kind u8 | count u64, upto u64, the frame     a link's frame
//!                 | count u64, upto u64, ticket u64, offset u64 | bytes    the same, a piece of an object: its bytes land
//!                 | upto u64                           an acknowledgement
//!                 | what `postcard` makes of it        hello, welcome, refusal, bye
//! ```

use std::sync::Arc;

use hoplo_base::NodeNumber;
use hoplo_base::limits::{LINK_BULK_WINDOW_BYTES, LINK_FRAME_OVERHEAD};
use hoplo_core::link;
use hoplo_net::name::{Name, Role};
use hoplo_net::{Admitted, Lent, Malformed, Meaning, NotAdmitted, Protocol, Purpose, Standing};
use hoplo_wire::member::{Hello, Message, PROTOCOL};
use hoplo_wire::node::{decode, encode, encode_body};

use super::bulk::{Landed, PIECE_HEAD_BYTES, Parcel};

#[derive(Debug)]
pub(super) struct Between;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Member(Message),
    Link(link::Message<Parcel>),
}

/// The longest message of a node that was let in: a frame of the bulk socket.
const FRAME_BYTES_MAX: usize = LINK_BULK_WINDOW_BYTES / 4 + LINK_FRAME_OVERHEAD;

impl Protocol for Between {
    const PURPOSE: Purpose = Purpose::Link;
    const LANDS: bool = true;

    type Frame = Said;
    type Hello = Hello;

    fn encode(said: &Said, out: &mut Vec<u8>) {
        match said {
            Said::Member(message) => encode(message, out),
            Said::Link(message) => encode_link(message, out),
        }
    }

    fn decode(body: &[u8]) -> Result<Said, Malformed> {
        let said = match body.split_first() {
            Some((&LINK, body)) => decode_link(body).map(Said::Link),
            Some(_) | None => decode(body).map(Said::Member).map_err(|error| error.to_string()),
        };
        said.map_err(|why| Malformed { bytes: body.len(), why })
    }

    fn lent(said: &Said) -> Option<Lent> {
        match said {
            Said::Link(link::Message::Frame { frame: Parcel::Piece(piece), .. }) => {
                Some(Arc::clone(&piece.bytes))
            }
            Said::Link(_) | Said::Member(_) => None,
        }
    }

    fn head_bytes(body: &[u8]) -> Option<usize> {
        body.starts_with(&[LINK, PIECE]).then_some(LANDING_HEAD_BYTES)
    }

    fn landed(head: &[u8], bytes: u64) -> Result<Said, Malformed> {
        let why = || "the head of a piece is cut".to_string();
        let head =
            LandingHead::parse(head).ok_or_else(|| Malformed { bytes: head.len(), why: why() })?;
        let LandingHead { count, upto, ticket, offset } = head;
        let frame = Parcel::Landed(Landed { ticket, offset, len: bytes });
        Ok(Said::Link(link::Message::Frame { count, upto, frame }))
    }

    fn hello(hello: Hello) -> Said {
        Said::Member(Message::Hello(hello))
    }

    fn refusal(why: String) -> Said {
        Said::Member(Message::Refused { why })
    }

    fn meaning(said: Said) -> Meaning<Self> {
        match said {
            Said::Member(Message::Hello(hello)) => Meaning::Hello(hello),
            Said::Member(Message::Refused { why }) => Meaning::Refusal(why),
            other => Meaning::Other(other),
        }
    }

    fn name(said: &Said) -> &'static str {
        match said {
            Said::Member(message) => message.name(),
            Said::Link(_) => "a message of a link",
        }
    }

    fn admit(ours: &Hello, theirs: &Hello, shown: Option<&Name>) -> Result<Admitted, NotAdmitted> {
        if ours.protocol != theirs.protocol {
            return Err(NotAdmitted::Mismatch(format!(
                "{} and {} do not understand each other (protocols {} and {}): use one version on all nodes",
                ours.program, theirs.program, ours.protocol, theirs.protocol
            )));
        }
        let shown =
            shown.ok_or_else(|| NotAdmitted::Claim("it shows no certificate".to_string()))?;
        if theirs.cluster != ours.cluster || shown.cluster != ours.cluster.0 {
            let theirs = theirs.cluster.0;
            let why = format!("cluster {:032x} and cluster {theirs:032x} are two", ours.cluster.0);
            return Err(NotAdmitted::Mismatch(why));
        }
        may_be(theirs, shown).map_err(NotAdmitted::Claim)?;
        // There is always room for nodes: their number is that of their certificates.
        Ok(Admitted { standing: Standing::Member, frame_bytes_max: FRAME_BYTES_MAX })
    }

    fn describe(theirs: &Hello) -> String {
        theirs.node.to_string()
    }
}

/// The first byte of a link's message; a member's begins with the number of its kind.
const LINK: u8 = u8::MAX;

const FRAME: u8 = 0;
const ACK: u8 = 1;
const HELLO: u8 = 2;
const WELCOME: u8 = 3;
const REFUSED: u8 = 4;
const BYE: u8 = 5;
const PIECE: u8 = 6;

/// What comes before the bytes of a piece.
const LANDING_HEAD_BYTES: usize = 2 + 16 + PIECE_HEAD_BYTES;

pub(super) struct LandingHead {
    count: u64,
    upto: u64,
    pub(super) ticket: u64,
    pub(super) offset: u64,
}

impl LandingHead {
    pub(super) fn parse(head: &[u8]) -> Option<Self> {
        let mut numbers = head.strip_prefix(&[LINK, PIECE])?.chunks_exact(8);
        let mut next = || numbers.next()?.try_into().ok().map(u64::from_le_bytes);
        Some(Self { count: next()?, upto: next()?, ticket: next()?, offset: next()? })
    }
}

/// `link::Hello`, field by field.
type Greeting = (u32, NodeNumber, NodeNumber, bool, u64, u64, Option<u64>, u64, u64, u64);
/// `link::Refusal`: its kind, and what some have.
type Refused = (u8, Option<NodeNumber>, u64);

fn encode_link(message: &link::Message<Parcel>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, LINK]);
    let mut lent = 0;
    match message {
        link::Message::Frame { count, upto, frame } => {
            out.push(if matches!(frame, Parcel::Talk(_)) { FRAME } else { PIECE });
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&upto.to_le_bytes());
            match frame {
                Parcel::Talk(frame) => out.extend_from_slice(frame),
                Parcel::Piece(piece) => {
                    out.extend_from_slice(&piece.ticket.to_le_bytes());
                    out.extend_from_slice(&piece.offset.to_le_bytes());
                    lent = piece.len();
                }
                Parcel::Landed(_) => unreachable!("it came, and goes nowhere"),
            }
        }
        link::Message::Ack { upto } => {
            out.push(ACK);
            out.extend_from_slice(&upto.to_le_bytes());
        }
        link::Message::Hello(hello) => {
            out.push(HELLO);
            encode_body(&greeting(hello), out);
        }
        link::Message::Welcome(hello) => {
            out.push(WELCOME);
            encode_body(&greeting(hello), out);
        }
        link::Message::Refused(why) => {
            out.push(REFUSED);
            encode_body(&refused(*why), out);
        }
        link::Message::Bye => out.push(BYE),
    }
    let len =
        u32::try_from(out.len() - start - 4 + lent).expect("a frame is bounded by its window");
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

fn decode_link(body: &[u8]) -> Result<link::Message<Parcel>, String> {
    let cut = || "a message of a link is cut".to_string();
    let (kind, body) = body.split_first().ok_or_else(cut)?;
    let number = |bytes: &[u8]| bytes.first_chunk().map(|it| u64::from_le_bytes(*it));
    match *kind {
        FRAME => {
            let (count, rest) = (number(body).ok_or_else(cut)?, &body[8..]);
            let upto = number(rest).ok_or_else(cut)?;
            let frame = Parcel::Talk(Arc::new(rest[8..].to_vec()));
            Ok(link::Message::Frame { count, upto, frame })
        }
        ACK => Ok(link::Message::Ack { upto: number(body).ok_or_else(cut)? }),
        HELLO => Ok(link::Message::Hello(of_greeting(body)?)),
        WELCOME => Ok(link::Message::Welcome(of_greeting(body)?)),
        REFUSED => {
            let (kind, number, value): Refused = decode(body).map_err(|it| it.to_string())?;
            let short = u32::try_from(value).unwrap_or(u32::MAX);
            Ok(link::Message::Refused(match (kind, number) {
                (0, Some(number)) => link::Refusal::Dead { number, epoch: value },
                (1, Some(number)) => link::Refusal::AnotherLife { number },
                (2, _) => link::Refusal::Version { version: short },
                (3, _) => link::Refusal::Forgotten { mine: link::Token(value) },
                (4, _) => link::Refusal::Crossed,
                (5, _) => link::Refusal::Nonsense("the other node says so"),
                (kind, _) => return Err(format!("no refusal is of kind {kind}")),
            }))
        }
        BYE => Ok(link::Message::Bye),
        kind => Err(format!("no message of a link is of kind {kind}")),
    }
}

fn greeting(hello: &link::Hello) -> Greeting {
    let link::Hello { version, from, to, socket, epoch, mine, yours, received, dial, seen } =
        *hello;
    let bulk = socket == link::Socket::Bulk;
    (version, from, to, bulk, epoch, mine.0, yours.map(|it| it.0), received, dial, seen)
}

fn of_greeting(body: &[u8]) -> Result<link::Hello, String> {
    let (version, from, to, bulk, epoch, mine, yours, received, dial, seen): Greeting =
        decode(body).map_err(|error| error.to_string())?;
    let socket = if bulk { link::Socket::Bulk } else { link::Socket::Talk };
    let (mine, yours) = (link::Token(mine), yours.map(link::Token));
    Ok(link::Hello { version, from, to, socket, epoch, mine, yours, received, dial, seen })
}

fn refused(why: link::Refusal) -> Refused {
    match why {
        link::Refusal::Dead { number, epoch } => (0, Some(number), epoch),
        link::Refusal::AnotherLife { number } => (1, Some(number), 0),
        link::Refusal::Version { version } => (2, None, u64::from(version)),
        link::Refusal::Forgotten { mine } => (3, None, mine.0),
        link::Refusal::Crossed => (4, None, 0),
        link::Refusal::Nonsense(_) => (5, None, 0),
    }
}

/// A node's certificate names its number; a head's says only that it is the head.
fn may_be(theirs: &Hello, shown: &Name) -> Result<(), String> {
    let numbered = format!("{:x}", theirs.node.number());
    match shown.role {
        Role::Control => Ok(()),
        Role::Node if shown.name() == numbered => Ok(()),
        Role::Node | Role::Client | Role::Operator => {
            Err(format!("the certificate of {shown} is not that of {}", theirs.node))
        }
    }
}

pub(super) fn hello(
    cluster: hoplo_wire::control::ClusterId,
    node: hoplo_base::NodeNumber,
) -> Hello {
    let program = concat!("hoplo ", env!("CARGO_PKG_VERSION")).to_string();
    Hello { protocol: PROTOCOL, program, cluster, node }
}

#[cfg(test)]
mod tests {
    use hoplo_base::NodeNumber;
    use hoplo_wire::control::ClusterId;

    use super::super::bulk::Piece;
    use super::*;

    #[test]
    fn what_a_link_says_survives_and_no_cut_of_it_panics() {
        let (one, two) = (NodeNumber::first_given(0), NodeNumber::first_given(0).next_given());
        let hello = link::Hello {
            version: 1,
            from: one,
            to: two,
            socket: link::Socket::Bulk,
            epoch: 3,
            mine: link::Token(4),
            yours: Some(link::Token(5)),
            received: 6,
            dial: 7,
            seen: 8,
        };
        let refusals = [
            link::Refusal::Dead { number: two, epoch: 9 },
            link::Refusal::AnotherLife { number: one },
            link::Refusal::Version { version: 2 },
            link::Refusal::Forgotten { mine: link::Token(3) },
            link::Refusal::Crossed,
            link::Refusal::Nonsense("the other node says so"),
        ];
        let frame = Parcel::Talk(Arc::new(b"frame".to_vec()));
        let mut messages = vec![
            link::Message::Hello(hello.clone()),
            link::Message::Welcome(hello),
            link::Message::Frame { count: 1, upto: 2, frame },
            link::Message::Ack { upto: 3 },
            link::Message::Bye,
        ];
        messages.extend(refusals.map(link::Message::Refused));
        for message in messages {
            let (said, mut bytes) = (Said::Link(message), Vec::new());
            Between::encode(&said, &mut bytes);
            let body = &bytes[4..];
            assert_eq!(u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize, body.len());
            assert_eq!(Between::decode(body).unwrap(), said);
            for len in 0..body.len() {
                let _ = Between::decode(&body[..len]);
            }
        }
        // A piece: its head, and its bytes from where they lie.
        let piece = Piece { ticket: 9, offset: 10, bytes: Arc::new(b"of an object".to_vec()) };
        let frame = link::Message::Frame { count: 1, upto: 2, frame: Parcel::Piece(piece) };
        let (said, mut bytes) = (Said::Link(frame), Vec::new());
        Between::encode(&said, &mut bytes);
        assert_eq!((*Between::lent(&said).unwrap()).as_ref(), b"of an object");
        let head = &bytes[4..];
        assert_eq!(u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize, head.len() + 12);
        assert_eq!(Between::head_bytes(&head[..2]), Some(head.len()));
        let frame = Parcel::Landed(Landed { ticket: 9, offset: 10, len: 12 });
        let landed = Said::Link(link::Message::Frame { count: 1, upto: 2, frame });
        assert_eq!(Between::landed(head, 12).unwrap(), landed);
        for len in 0..head.len() {
            assert!(Between::landed(&head[..len], 12).is_err());
        }
        let (probe, mut bytes) = (Said::Member(Message::Probe { ticket: 255 }), Vec::new());
        Between::encode(&probe, &mut bytes);
        assert_eq!(Between::decode(&bytes[4..]).unwrap(), probe);
    }

    #[test]
    fn a_node_is_who_its_certificate_says() {
        let (one, two) = (NodeNumber::first_given(0), NodeNumber::first_given(0).next_given());
        let ours = hello(ClusterId(7), one);
        let theirs = hello(ClusterId(7), two);
        let name = |role, name: &str| Name::new(7, role, name).unwrap();
        let mine = name(Role::Node, &format!("{:x}", two.number()));
        assert!(Between::admit(&ours, &theirs, Some(&mine)).is_ok());
        assert!(Between::admit(&ours, &theirs, Some(&name(Role::Control, "head"))).is_ok());
        let others = name(Role::Node, &format!("{:x}", one.number()));
        for wrong in [others, name(Role::Client, "x"), name(Role::Operator, "x")] {
            let refused = Between::admit(&ours, &theirs, Some(&wrong)).unwrap_err();
            assert!(matches!(refused, NotAdmitted::Claim(_)), "{refused:?}");
        }
        assert!(matches!(Between::admit(&ours, &theirs, None), Err(NotAdmitted::Claim(_))));
        let elsewhere = hello(ClusterId(8), two);
        let refused = Between::admit(&ours, &elsewhere, Some(&mine)).unwrap_err();
        assert!(matches!(refused, NotAdmitted::Mismatch(_)));
        let older = Hello { protocol: 0, ..theirs };
        let refused = Between::admit(&ours, &older, Some(&mine)).unwrap_err().to_string();
        assert!(refused.contains("one version"), "{refused}");
    }
}
