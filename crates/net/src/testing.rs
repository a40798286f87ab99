//! Protocols of tests: frames are bytes.

use crate::name::Name;
use crate::protocol::{Admitted, Lent, Malformed, Meaning, NotAdmitted, Protocol, Purpose};

/// Nothing lands.
pub(crate) struct Plain;

/// Frames whose body begins with `LANDS` have a head of `HEAD` bytes, are sent from where they lie, and land.
pub(crate) struct Landed;

pub(crate) const LANDS: [u8; 2] = [255, 6];
pub(crate) const HEAD: usize = 5;

impl Protocol for Plain {
    const PURPOSE: Purpose = Purpose::Link;

    type Frame = Vec<u8>;
    type Hello = ();

    fn encode(frame: &Vec<u8>, out: &mut Vec<u8>) {
        out.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        out.extend_from_slice(frame);
    }

    fn decode(body: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(body.to_vec())
    }

    fn hello((): ()) -> Vec<u8> {
        unreachable!("nobody says hello")
    }

    fn refusal(_: String) -> Vec<u8> {
        unreachable!("nobody is refused")
    }

    fn meaning(frame: Vec<u8>) -> Meaning<Self> {
        Meaning::Other(frame)
    }

    fn name(_: &Vec<u8>) -> &'static str {
        "bytes"
    }

    fn admit((): &(), (): &(), _: Option<&Name>) -> Result<Admitted, NotAdmitted> {
        unreachable!("nobody says hello")
    }

    fn describe((): &()) -> String {
        unreachable!("nobody says hello")
    }
}

impl Protocol for Landed {
    const PURPOSE: Purpose = Plain::PURPOSE;
    const LANDS: bool = true;

    type Frame = Vec<u8>;
    type Hello = ();

    fn encode(frame: &Vec<u8>, out: &mut Vec<u8>) {
        out.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        out.extend_from_slice(if frame.starts_with(&LANDS) { &frame[..HEAD] } else { frame });
    }

    fn lent(frame: &Vec<u8>) -> Option<Lent> {
        frame.starts_with(&LANDS).then(|| -> Lent { std::sync::Arc::new(frame[HEAD..].to_vec()) })
    }

    fn decode(body: &[u8]) -> Result<Vec<u8>, Malformed> {
        Plain::decode(body)
    }

    fn head_bytes(body: &[u8]) -> Option<usize> {
        body.starts_with(&LANDS).then_some(HEAD)
    }

    /// The head, and how many bytes it had behind it.
    fn landed(head: &[u8], bytes: u64) -> Result<Vec<u8>, Malformed> {
        Ok([head, &bytes.to_le_bytes()].concat())
    }

    fn hello(hello: ()) -> Vec<u8> {
        Plain::hello(hello)
    }

    fn refusal(why: String) -> Vec<u8> {
        Plain::refusal(why)
    }

    fn meaning(frame: Vec<u8>) -> Meaning<Self> {
        Meaning::Other(frame)
    }

    fn name(frame: &Vec<u8>) -> &'static str {
        Plain::name(frame)
    }

    fn admit(ours: &(), theirs: &(), shown: Option<&Name>) -> Result<Admitted, NotAdmitted> {
        Plain::admit(ours, theirs, shown)
    }

    fn describe(theirs: &()) -> String {
        Plain::describe(theirs)
    }
}
