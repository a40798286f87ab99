//! What is said between a process that joins a cluster, or renews its certificate, and a control node.
//!
//! One message each way: `Opening` and [`Ask`] in one frame, then an [`Answer`]. What they prove, and to whom, is in
//! `hoplo_net::join`.
//!
//! Whoever joins may be of another version. So that the two can tell each other, [`Opening`] and the way to
//! [`Refused::Version`] (the first variant of the first variant) keep their places and layouts for ever; all else may
//! change with [`PROTOCOL`].
//!
//! # Invariants
//! - JOIN-W1: each part is bounded by its type, in what is read as in what is written.
//! - JOIN-W2: a text has no control character, so that an error with it stays one line.

use hoplo_base::NodeNumber;
use hoplo_base::limits::{JOIN_ADDRESS_BYTES_MAX, JOIN_MEMBERS_MAX};
use serde::{Deserialize, Serialize};

use crate::bytes::Malformed;

/// Of the layouts here; raised with every change of one.
pub const PROTOCOL: u32 = 1;

/// First in the first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    pub protocol: u32,
    /// For messages: `hoplo 0.1.0`.
    pub program: Text<64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    Join(Join),
    /// Over a connection on which a certificate was shown: the same holder wants a new one.
    Renew(Renew),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    pub token: TokenId,
    /// A [`Request`], as the bytes that are signed.
    pub request: Blob<512>,
    /// By the key that the certificate is wanted for.
    pub possession: Blob<80>,
    /// By the token's key.
    pub proof: Blob<80>,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Since 1970, by the clock of who asks.
    pub clock_ms: u64,
    pub role: JoinRole,
    /// Of the machine: what a client or operator is called begins with it.
    pub host: Text<64>,
    /// The public key: a point of P-256, not compressed.
    pub key: Blob<65>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// A [`Renewal`], as the bytes that are signed.
    pub renewal: Blob<512>,
    pub possession: Blob<80>,
}

/// What is wanted: a certificate for this key, with the name of the one that was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    pub clock_ms: u64,
    pub key: Blob<65>,
}

/// As what one may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinRole {
    Control,
    Node,
    Client,
    Operator,
}

/// Follows from a token's secret, which does not follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Refused(Refused),
    Joined(Joined),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    Version {
        protocol: u32,
        program: Text<64>,
    },
    /// No message of those above, or one that has no business on this connection.
    Malformed,
    /// There never was such a token, or it was revoked.
    NoSuchToken,
    /// This connection and this request are not proven by the token.
    NotProven,
    /// Who asks does not have the key that it wants a certificate for.
    NotItsKey,
    Expired {
        at_ms: u64,
    },
    UsedUp,
    /// The token is for another role.
    OtherRole {
        token: JoinRole,
    },
    /// The clocks differ too much.
    Clock {
        ours_ms: u64,
    },
    /// The host's name cannot stand in a certificate.
    Host,
    /// It was declared dead: its number is never used again.
    Fenced,
    /// Others wait; to be tried again.
    Busy,
    /// The control store does not answer; to be tried again.
    Unavailable {
        why: Text<200>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Of control nodes and nodes: given once, never again.
    pub number: Option<NodeNumber>,
    /// The certificate that was wanted, and that of who signed it: DER.
    pub certificate: Blob<2048>,
    pub authority: Blob<2048>,
    /// Where control nodes listen.
    pub members: Members,
}

/// A text of no more than `MAX` bytes, in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text<const MAX: usize>(String);

/// No more than `MAX` bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde_bytes::ByteBuf", into = "serde_bytes::ByteBuf")]
pub struct Blob<const MAX: usize>(Vec<u8>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Address>", into = "Vec<Address>")]
pub struct Members(Vec<Address>);

pub type Address = Text<JOIN_ADDRESS_BYTES_MAX>;

/// It is longer than it may be, or not in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("of {len} where {max} are allowed, or not in one line")]
pub struct OutOfBounds {
    pub len: usize,
    pub max: usize,
}

impl<const MAX: usize> Text<MAX> {
    pub fn new(text: impl Into<String>) -> Result<Self, OutOfBounds> {
        Self::try_from(text.into())
    }

    /// As much of it as there is room for.
    pub fn cut(text: &str) -> Self {
        let mut kept = String::new();
        for it in text.chars().map(|it| if it.is_control() { ' ' } else { it }) {
            if kept.len() + it.len_utf8() > MAX {
                break;
            }
            kept.push(it);
        }
        Self(kept)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> TryFrom<String> for Text<MAX> {
    type Error = OutOfBounds;

    fn try_from(text: String) -> Result<Self, OutOfBounds> {
        if text.len() > MAX || text.chars().any(char::is_control) {
            return Err(OutOfBounds { len: text.len(), max: MAX });
        }
        Ok(Self(text))
    }
}

impl<const MAX: usize> From<Text<MAX>> for String {
    fn from(text: Text<MAX>) -> Self {
        text.0
    }
}

impl<const MAX: usize> Blob<MAX> {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, OutOfBounds> {
        let bytes = bytes.into();
        if bytes.len() > MAX {
            return Err(OutOfBounds { len: bytes.len(), max: MAX });
        }
        Ok(Self(bytes))
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> TryFrom<serde_bytes::ByteBuf> for Blob<MAX> {
    type Error = OutOfBounds;

    fn try_from(bytes: serde_bytes::ByteBuf) -> Result<Self, OutOfBounds> {
        Self::new(bytes.into_vec())
    }
}

impl<const MAX: usize> From<Blob<MAX>> for serde_bytes::ByteBuf {
    fn from(blob: Blob<MAX>) -> Self {
        Self::from(blob.0)
    }
}

impl Members {
    /// As many of them as there is room for.
    pub fn of(addresses: impl IntoIterator<Item = String>) -> Self {
        let fit = addresses.into_iter().filter_map(|it| Address::new(it).ok());
        Self(fit.take(JOIN_MEMBERS_MAX).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Text::as_str)
    }
}

impl TryFrom<Vec<Address>> for Members {
    type Error = OutOfBounds;

    fn try_from(all: Vec<Address>) -> Result<Self, OutOfBounds> {
        if all.len() > JOIN_MEMBERS_MAX {
            return Err(OutOfBounds { len: all.len(), max: JOIN_MEMBERS_MAX });
        }
        Ok(Self(all))
    }
}

impl From<Members> for Vec<Address> {
    fn from(members: Members) -> Self {
        members.0
    }
}

/// Appends length and body.
pub fn encode_ask(opening: &Opening, ask: &Ask, out: &mut Vec<u8>) {
    crate::node::encode(&(opening, ask), out);
}

/// Who speaks, and what follows: to be read with [`decode`] if both are of one version.
pub fn decode_opening(body: &[u8]) -> Result<(Opening, &[u8]), Malformed> {
    postcard::take_from_bytes(body).map_err(|_| MALFORMED)
}

pub fn encode_answer(answer: &Answer, out: &mut Vec<u8>) {
    crate::node::encode(answer, out);
}

/// The bytes that are signed.
pub fn to_bytes(part: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(part).expect("plain data in memory")
}

/// All of the bytes are one of those messages.
pub fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Malformed> {
    let (read, rest) = postcard::take_from_bytes(body).map_err(|_| MALFORMED)?;
    if rest.is_empty() { Ok(read) } else { Err(MALFORMED) }
}

const MALFORMED: Malformed = Malformed { what: "message of who joins" };

#[cfg(test)]
mod tests {
    use hoplo_base::limits::{JOIN_ANSWER_BYTES_MAX, JOIN_ASK_BYTES_MAX};

    use super::*;

    fn blob<const MAX: usize>() -> Blob<MAX> {
        Blob::new(vec![7; MAX]).unwrap()
    }

    fn largest_ask() -> Vec<u8> {
        let opening = Opening { protocol: u32::MAX, program: Text::cut(&"p".repeat(99)) };
        let (request, possession, proof) = (blob(), blob(), blob());
        let join = Join { token: TokenId(u64::MAX), request, possession, proof };
        let mut out = Vec::new();
        encode_ask(&opening, &Ask::Join(join), &mut out);
        out
    }

    #[test]
    fn the_largest_messages_fit_into_their_frames() {
        assert!(largest_ask().len() <= 4 + JOIN_ASK_BYTES_MAX);
        let members = Members::of((0..999).map(|_| "a".repeat(JOIN_ADDRESS_BYTES_MAX)));
        assert_eq!(members.iter().count(), JOIN_MEMBERS_MAX);
        let number = Some(NodeNumber::first_given(u32::MAX));
        let joined = Joined { number, certificate: blob(), authority: blob(), members };
        let mut out = Vec::new();
        encode_answer(&Answer::Joined(joined.clone()), &mut out);
        assert!(out.len() <= 4 + JOIN_ANSWER_BYTES_MAX, "{}", out.len());
        assert_eq!(decode(&out[4..]), Ok(Answer::Joined(joined)));
        let request = Request {
            clock_ms: u64::MAX,
            role: JoinRole::Operator,
            host: Text::cut(&"h".repeat(99)),
            key: blob(),
        };
        assert!(Blob::<512>::new(to_bytes(&request)).is_ok());
    }

    #[test]
    fn what_is_longer_than_it_may_be_is_refused_when_it_is_read() {
        let long = to_bytes(&"x".repeat(65));
        assert_eq!(decode::<Text<64>>(&long), Err(MALFORMED));
        assert!(decode::<Text<65>>(&long).is_ok());
        let long = to_bytes(&serde_bytes::ByteBuf::from(vec![1; 66]));
        assert_eq!(decode::<Blob<65>>(&long), Err(MALFORMED));
        assert!(decode::<Blob<66>>(&long).is_ok());
        let many = to_bytes(&vec!["a"; JOIN_MEMBERS_MAX + 1]);
        assert_eq!(decode::<Members>(&many), Err(MALFORMED));
        for text in ["two\nlines", "\u{1b}[31m", "\0"] {
            assert_eq!(decode::<Text<64>>(&to_bytes(&text)), Err(MALFORMED), "{text:?}");
            assert!(Text::<64>::new(text).is_err());
        }
        assert_eq!(Text::<5>::cut("a\nbäö").as_str(), "a bä");
    }

    #[test]
    fn cut_changed_and_longer_messages_are_errors_and_no_panics() {
        let whole = largest_ask();
        let (_, ask) = decode_opening(&whole[4..]).unwrap();
        assert!(decode::<Ask>(ask).is_ok());
        for len in 0..ask.len() {
            assert_eq!(decode::<Ask>(&ask[..len]), Err(MALFORMED), "{len}");
        }
        assert_eq!(decode::<Ask>(&[ask, b"x"].concat()), Err(MALFORMED));
        for place in 0..ask.len() {
            let mut changed = ask.to_vec();
            changed[place] ^= 0xff;
            // Whatever it is then: not what it was, and no panic.
            assert_ne!(decode::<Ask>(&changed).ok(), decode::<Ask>(ask).ok(), "{place}");
        }
    }

    #[test]
    fn another_version_is_understood_as_far_as_it_says_which() {
        // As they lie on the wire, for ever.
        let opening = [9, 7, b'h', b'o', b'p', b'l', b'o', b' ', b'9', 0xff, 0xff];
        let (theirs, rest) = decode_opening(&opening).unwrap();
        assert_eq!((theirs.protocol, theirs.program.as_str(), rest.len()), (9, "hoplo 9", 2));
        let refused = Refused::Version { protocol: 9, program: theirs.program };
        assert_eq!(to_bytes(&Answer::Refused(refused))[..4], [0, 0, 9, 7]);
    }
}
