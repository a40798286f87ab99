//! What many are told: it is encoded once, when the first of them is told, and its bytes are copied for each.
//!
//! On the way it is a run of bytes with their number in front: what the value takes, or 0, and then the value as it would lie alone; in the first
//! case as a block of LZ4. Rows of nodes resemble each other, so ten thousand of them take a fifth of their bytes, and each node that joins reads
//! them all. What is short, or does not become shorter, is not compressed.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use hoplo_base::limits::CONTROL_FRAME_BYTES_MAX;
use serde::de::{self, DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::node::{decode, encode_body};

pub struct Shared<T>(Arc<Told<T>>);

struct Told<T> {
    value: T,
    encoded: OnceLock<Vec<u8>>,
}

impl<T> Shared<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(Told { value, encoded: OnceLock::new() }))
    }

    /// Whether both are one, not only equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// Cloned only if others have it.
    pub fn into_value(self) -> T {
        match Arc::try_unwrap(self.0) {
            Ok(told) => told.value,
            Err(shared) => shared.value.clone(),
        }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: std::fmt::Debug> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded = self.0.encoded.get_or_init(|| {
            let mut plain = Vec::new();
            encode_body(&self.0.value, &mut plain);
            pack(&plain)
        });
        serializer.serialize_bytes(encoded)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes<T>(std::marker::PhantomData<T>);

        impl<T: DeserializeOwned> Visitor<'_> for Bytes<T> {
            type Value = Shared<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes of a value")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Shared<T>, E> {
                let plain = unpack(bytes).map_err(E::custom)?;
                decode(&plain).map(Shared::new).map_err(E::custom)
            }
        }

        deserializer.deserialize_bytes(Bytes(std::marker::PhantomData))
    }
}

/// Shorter than this, nothing is compressed.
const WORTH_BYTES: usize = 512;
/// Of the number in front.
const SIZE_BYTES: usize = size_of::<u32>();

fn pack(plain: &[u8]) -> Vec<u8> {
    let size = u32::try_from(plain.len()).ok().filter(|_| plain.len() >= WORTH_BYTES);
    if let Some(size) = size {
        let block = lz4_flex::block::compress(plain);
        if block.len() < plain.len() - plain.len() / 8 {
            return [&size.to_le_bytes()[..], &block].concat();
        }
    }
    [&0_u32.to_le_bytes()[..], plain].concat()
}

fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let Some((size, rest)) = bytes.split_first_chunk::<SIZE_BYTES>() else {
        return Err("it ends within the number of its bytes".to_string());
    };
    match u32::from_le_bytes(*size) as usize {
        0 => Ok(Cow::Borrowed(rest)),
        // The block is not asked whether it becomes larger than any message may be.
        size if size > CONTROL_FRAME_BYTES_MAX => {
            Err(format!("{size} bytes are more than a message may have"))
        }
        size => {
            let plain = lz4_flex::block::decompress(rest, size).map_err(|it| it.to_string())?;
            match plain.len() {
                len if len == size => Ok(Cow::Owned(plain)),
                len => Err(format!("{len} bytes, and not the {size} that were told")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::node::encode;

    static ENCODED: AtomicUsize = AtomicUsize::new(0);

    #[derive(Debug, Clone, PartialEq, Deserialize)]
    struct Counted(u32);

    impl Serialize for Counted {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            ENCODED.fetch_add(1, Ordering::Relaxed);
            serializer.serialize_newtype_struct("Counted", &self.0)
        }
    }

    #[test]
    fn what_many_are_told_is_encoded_once() {
        let news = Shared::new(vec![Counted(1), Counted(300)]);
        for who in 0..5_u64 {
            let mut out = Vec::new();
            encode(&(who, news.clone()), &mut out);
            let heard: (u64, Shared<Vec<Counted>>) = decode(&out[4..]).unwrap();
            assert_eq!(heard, (who, news.clone()));
            assert_eq!(heard.1.into_value(), [Counted(1), Counted(300)]);
        }
        assert_eq!(ENCODED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn bytes_that_are_no_value_are_an_error() {
        let mut out = Vec::new();
        encode_body(&Shared::new((7_u8, 300_u32)), &mut out);
        assert_eq!(decode::<Shared<(u8, u32)>>(&out), Ok(Shared::new((7, 300))));
        for len in 0..out.len() {
            assert!(decode::<Shared<(u8, u32)>>(&out[..len]).is_err(), "{len} bytes");
        }
        // It says that six bytes follow; of these the value takes one.
        assert!(decode::<Shared<u8>>(&[6, 0, 0, 0, 0, 7, 7]).is_err());
        assert_eq!(decode::<Shared<u8>>(&[5, 0, 0, 0, 0, 7]), Ok(Shared::new(7)));
    }

    #[test]
    fn what_repeats_itself_is_short_on_the_way() {
        let rows: Vec<String> = (0..1000).map(|n| format!("a node at 10.0.0.{n}:7979")).collect();
        let (mut shared, mut plain) = (Vec::new(), Vec::new());
        encode_body(&Shared::new(rows.clone()), &mut shared);
        encode_body(&rows, &mut plain);
        assert!(shared.len() * 3 < plain.len(), "{} of {} bytes", shared.len(), plain.len());
        assert_eq!(decode::<Shared<Vec<String>>>(&shared), Ok(Shared::new(rows)));
        for len in 0..shared.len() {
            assert!(decode::<Shared<Vec<String>>>(&shared[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn what_does_not_become_shorter_lies_as_it_is() {
        let mut noise = 1_u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        })
        .take(5000)
        .collect();
        let packed = pack(&bytes);
        assert_eq!(packed.len(), SIZE_BYTES + bytes.len());
        assert_eq!(unpack(&packed), Ok(Cow::Borrowed(&bytes[..])));
    }

    #[test]
    fn a_block_that_is_not_what_it_says_is_an_error() {
        let packed = pack(&[7; 4096]);
        let told = |size: u32| [&size.to_le_bytes()[..], &packed[SIZE_BYTES..]].concat();
        assert_eq!(unpack(&packed), Ok(Cow::Borrowed(&[7; 4096][..])));
        for size in [1, 4095, 4097, u32::MAX] {
            assert!(unpack(&told(size)).is_err(), "{size} bytes");
        }
        let huge = unpack(&told(u32::MAX)).unwrap_err();
        assert!(huge.contains("more than a message may have"), "{huge}");
    }
}
