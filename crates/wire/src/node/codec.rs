//! How a message becomes bytes, and bytes a message.

use serde::{Deserialize, Serialize};

/// A message could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message of {len} bytes does not parse: {cause}")]
pub struct NodeCodecError {
    pub len: usize,
    pub cause: String,
}

/// Length prefix and body, appended to `out`.
pub fn encode<M: Serialize>(message: &M, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    encode_body(message, out);
    let len = u32::try_from(out.len() - start - 4).expect("messages are below 4 GiB");
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// The body alone, appended to `out`.
pub fn encode_body<M: Serialize>(message: &M, out: &mut Vec<u8>) {
    *out = postcard::to_extend(message, std::mem::take(out))
        .expect("our own messages always serialize into memory");
}

/// The body, without its length prefix.
pub fn decode<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<M, NodeCodecError> {
    let error = |cause: String| NodeCodecError { len: body.len(), cause };
    let (message, rest) =
        postcard::take_from_bytes(body).map_err(|cause| error(cause.to_string()))?;
    if rest.is_empty() { Ok(message) } else { Err(error("bytes left over".to_string())) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::{Condition, LabelSelector, Shape, Strategy, ToNode};
    use hoplo_base::{NodeNumber, ResourceSet};

    #[test]
    fn messages_survive_and_rubbish_is_an_error() {
        let message = ToNode::LeaseDemand {
            key: 3,
            shape: Arc::new(Shape {
                resources: ResourceSet::from_units([("CPU", 0.5)]).unwrap(),
                strategy: Strategy::Node { node: NodeNumber::alone(3), soft: true },
                labels: vec![LabelSelector(vec![("zone".into(), Condition::Exists)])],
                ..Shape::default()
            }),
            wanted: 7,
        };
        let mut out = vec![9];
        encode(&message, &mut out);
        assert_eq!(out[1..5], ((out.len() - 5) as u32).to_le_bytes());
        assert_eq!(decode::<ToNode>(&out[5..]), Ok(message));
        for len in 0..out.len() - 5 {
            assert!(decode::<ToNode>(&out[5..5 + len]).is_err());
        }
        assert!(decode::<ToNode>(&[0xff; 40]).is_err());
    }
}
