//! What travels on a connection: a `u32` length, then one of these in postcard.

use hoplo_wire::control::{
    FromCoordinator, Hello, PeerMessage, Request, Response, ToCoordinator, Wish,
};
use serde::{Deserialize, Serialize};

/// `Hello` and `Refused` keep their places and layouts for ever: they are how versions find out about each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Frame {
    /// First, both ways.
    Hello(Hello),
    /// Instead of anything else: the connection ends here.
    Refused {
        why: String,
    },
    Request(Request),
    Response(Response),
    Peer(PeerMessage),
    ToCoordinator(ToCoordinator),
    FromCoordinator(FromCoordinator),
    /// Answered by `Alive` with the same number, by the process itself.
    Probe {
        attempt: u64,
    },
    Alive {
        attempt: u64,
    },
    Ask {
        number: u64,
        question: Question,
    },
    /// JSON, or text, or why not.
    Told {
        number: u64,
        answer: Result<String, String>,
    },
}

/// What `hoplo control` asks a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    Status,
    Metrics,
    /// A snapshot of every shard now, so that the logs become short.
    Compact,
    /// Of an operator, to the coordinator that acts: it shall be so, or not any more.
    Wish {
        wish: Wish,
        wished: bool,
    },
}

/// The peer does not keep to the framing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a message of {bytes} bytes is above the limit of {max}")]
    TooLong { bytes: usize, max: usize },
    #[error("a message of {bytes} bytes could not be read: {why}")]
    Malformed { bytes: usize, why: String },
}

impl Frame {
    /// Appends length and body.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        hoplo_wire::node::encode(self, out);
    }

    /// The body, without its length.
    pub(super) fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let malformed = |why: String| FrameError::Malformed { bytes: body.len(), why };
        let (frame, rest) =
            postcard::take_from_bytes(body).map_err(|error| malformed(error.to_string()))?;
        if rest.is_empty() { Ok(frame) } else { Err(malformed("bytes are left over".to_string())) }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Frame::Hello(_) => "a second hello",
            Frame::Refused { .. } => "a refusal",
            Frame::Request(_) => "a request",
            Frame::Response(_) => "a response",
            Frame::Peer(_) => "a message between replicas",
            Frame::ToCoordinator(_) => "a message to the coordinator",
            Frame::FromCoordinator(_) => "a message from the coordinator",
            Frame::Probe { .. } => "a probe",
            Frame::Alive { .. } => "an answer to a probe",
            Frame::Ask { .. } => "a question",
            Frame::Told { .. } => "an answer",
        }
    }
}
