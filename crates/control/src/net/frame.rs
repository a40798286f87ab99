//! What travels on a connection: a `u32` length, then one of these in postcard.

use hoplo_base::limits::{CONTROL_CLIENT_FRAME_BYTES_MAX, CONTROL_FRAME_BYTES_MAX};
use hoplo_net::name::Name;
use hoplo_net::{Admitted, Malformed, Meaning, NotAdmitted, Protocol, Purpose, Standing};
use hoplo_wire::control::{
    FromCoordinator, Hello, PeerMessage, Request, Response, Speaker, ToCoordinator,
};
use hoplo_wire::register;
use serde::{Deserialize, Serialize};

use super::question::Question;
use super::who;

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
        ticket: u64,
    },
    Alive {
        ticket: u64,
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
    /// From a coordinator that keeps the configuration with the control nodes.
    ToRegister(register::Ask),
    FromRegister(register::Answer),
}

/// Of the layouts in `wire::control` and of `Frame`; raised with every change of one.
pub const PROTOCOL: u32 = 6;

/// What control nodes and their clients speak.
#[derive(Debug)]
pub enum Store {}

impl Protocol for Store {
    const PURPOSE: Purpose = Purpose::Store;

    type Frame = Frame;
    type Hello = Hello;

    fn encode(frame: &Frame, out: &mut Vec<u8>) {
        hoplo_wire::node::encode(frame, out);
    }

    fn decode(body: &[u8]) -> Result<Frame, Malformed> {
        let malformed = |why: String| Malformed { bytes: body.len(), why };
        let (frame, rest) =
            postcard::take_from_bytes(body).map_err(|error| malformed(error.to_string()))?;
        if rest.is_empty() { Ok(frame) } else { Err(malformed("bytes are left over".to_string())) }
    }

    fn hello(hello: Hello) -> Frame {
        Frame::Hello(hello)
    }

    fn refusal(why: String) -> Frame {
        Frame::Refused { why }
    }

    fn meaning(frame: Frame) -> Meaning<Self> {
        match frame {
            Frame::Hello(hello) => Meaning::Hello(hello),
            Frame::Refused { why } => Meaning::Refusal(why),
            other => Meaning::Other(other),
        }
    }

    fn name(frame: &Frame) -> &'static str {
        frame.name()
    }

    fn admit(ours: &Hello, theirs: &Hello, shown: Option<&Name>) -> Result<Admitted, NotAdmitted> {
        if ours.protocol != theirs.protocol {
            return Err(NotAdmitted::Mismatch(format!(
                "{} (protocol {}) and {} (protocol {}) do not understand each other: use one version",
                ours.program, ours.protocol, theirs.program, theirs.protocol
            )));
        }
        let other = [theirs.cluster.0, shown.map_or(ours.cluster.0, |name| name.cluster)];
        if let Some(other) = other.into_iter().find(|cluster| *cluster != ours.cluster.0) {
            return Err(NotAdmitted::Mismatch(format!(
                "cluster {:032x} and cluster {other:032x} are two",
                ours.cluster.0
            )));
        }
        if let Some(shown) = shown {
            who::may_be(theirs.who, shown).map_err(NotAdmitted::Claim)?;
        }
        let (standing, frame_bytes_max) = match theirs.who {
            Speaker::Client(_) => (Standing::Client, CONTROL_CLIENT_FRAME_BYTES_MAX),
            Speaker::Replica(_) | Speaker::Coordinator(_) => {
                (Standing::Member, CONTROL_FRAME_BYTES_MAX)
            }
        };
        Ok(Admitted { standing, frame_bytes_max })
    }

    fn describe(theirs: &Hello) -> String {
        match theirs.who {
            Speaker::Client(client) => format!("client {:x}", client.0),
            Speaker::Replica(id) => format!("replica {:x}.{}", id.node.0, id.incarnation),
            Speaker::Coordinator(id) => format!("coordinator {:x}.{}", id.node.0, id.incarnation),
        }
    }
}

impl Frame {
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
            Frame::ToRegister(_) => "a question to the register",
            Frame::FromRegister(_) => "an answer of the register",
        }
    }
}
