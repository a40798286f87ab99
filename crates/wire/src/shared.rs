//! What many are told: it is encoded once, when the first of them is told, and its bytes are copied for each.
//!
//! On the way it is a run of bytes with their number in front, in which the value lies as it would alone.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

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
            let mut out = Vec::new();
            encode_body(&self.0.value, &mut out);
            out
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
                decode(bytes).map(Shared::new).map_err(E::custom)
            }
        }

        deserializer.deserialize_bytes(Bytes(std::marker::PhantomData))
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
        // It says that two bytes follow; the value takes one.
        assert!(decode::<Shared<u8>>(&[2, 7, 7]).is_err());
    }
}
