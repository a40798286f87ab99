//! What a hub has to know of the frames that it carries.

use std::fmt::Debug;

/// The frames of one kind of connection.
pub trait Protocol {
    type Frame: Debug;
    /// Who speaks, and what it understands.
    type Hello: Clone + Debug;

    /// Appends length and body.
    fn encode(frame: &Self::Frame, out: &mut Vec<u8>);

    /// A body, without its length.
    fn decode(body: &[u8]) -> Result<Self::Frame, Malformed>;

    /// First, both ways.
    fn hello(hello: Self::Hello) -> Self::Frame;

    /// Instead of anything else: the connection ends here.
    fn refusal(why: String) -> Self::Frame;

    fn meaning(frame: Self::Frame) -> Meaning<Self>;

    /// For messages: "a request".
    fn name(frame: &Self::Frame) -> &'static str;

    /// Why the two may not talk.
    fn mismatch(ours: &Self::Hello, theirs: &Self::Hello) -> Option<String>;

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

/// The peer's bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes could not be read: {why}")]
pub struct Malformed {
    pub bytes: usize,
    pub why: String,
}
