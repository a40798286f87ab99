//! What a hub has to know of the frames that it carries.

use std::fmt::Debug;
use std::sync::Arc;

use crate::name::Name;

/// What a connection is for. Its first message says so (ALPN), since that decides what it is served with. The names stay for
/// ever; versions are told in what comes then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Of who has a token, and no certificate yet.
    Join,
    /// Of who has a certificate, and wants a new one.
    Renew,
    /// The control store's frames.
    Store,
    /// Frames between nodes.
    Link,
}

impl Purpose {
    pub(crate) const ALL: [Self; 4] = [Self::Join, Self::Renew, Self::Store, Self::Link];

    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Join => b"hoplo-join/1",
            Self::Renew => b"hoplo-renew/1",
            Self::Store => b"hoplo-store/1",
            Self::Link => b"hoplo-link/1",
        }
    }
}

/// Bytes that stay as they are while somebody holds this.
pub type Lent = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The frames of one kind of connection.
pub trait Protocol {
    const PURPOSE: Purpose;

    type Frame: Debug;
    /// Who speaks, and what it understands.
    type Hello: Clone + Debug;

    /// Whether some frames land: their bytes go on as they come ([`crate::Landing`]).
    const LANDS: bool = false;

    /// Appends length and body, but for what is lent: the length counts it.
    fn encode(frame: &Self::Frame, out: &mut Vec<u8>);

    /// Bytes that follow those of `encode`, sent from where they lie.
    fn lent(_frame: &Self::Frame) -> Option<Lent> {
        None
    }

    /// Of a body that lands, how long its head is, by its first two bytes; at most 44 bytes.
    fn head_bytes(_body: &[u8]) -> Option<usize> {
        None
    }

    /// A frame with this head landed, and had so many bytes behind it.
    fn landed(head: &[u8], _bytes: u64) -> Result<Self::Frame, Malformed> {
        Self::decode(head)
    }

    /// A body, without its length.
    fn decode(body: &[u8]) -> Result<Self::Frame, Malformed>;

    /// First, both ways.
    fn hello(hello: Self::Hello) -> Self::Frame;

    /// Instead of anything else: the connection ends here.
    fn refusal(why: String) -> Self::Frame;

    fn meaning(frame: Self::Frame) -> Meaning<Self>;

    /// For messages: "a request".
    fn name(frame: &Self::Frame) -> &'static str;

    /// Whether the two may talk, and as what. `shown`: the name in the peer's certificate; absent over a unix socket, whose
    /// file lets in its owner alone.
    fn admit(
        ours: &Self::Hello,
        theirs: &Self::Hello,
        shown: Option<&Name>,
    ) -> Result<Admitted, NotAdmitted>;

    /// For messages: who that is.
    fn describe(theirs: &Self::Hello) -> String;
}

/// What a frame is to the hub.
#[derive(Debug)]
pub enum Meaning<P: Protocol + ?Sized> {
    Hello(P::Hello),
    Refusal(String),
    /// Not its business.
    Other(P::Frame),
}

/// What the peer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub standing: Standing,
    /// Of each of its messages.
    pub frame_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is always room for it.
    Member,
    /// Bounded in number, and in what messages that are not finished may hold.
    Client,
}

/// Why the two may not talk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// They belong to different versions or clusters.
    #[error("{0}")]
    Mismatch(String),
    /// It says that it is who its certificate does not say it is.
    #[error("{0}")]
    Claim(String),
}

/// The peer's bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes could not be read: {why}")]
pub struct Malformed {
    pub bytes: usize,
    pub why: String,
}
