//! The tags of plain values (see `plain`), counts, and a place in bytes that goes on as they are read.

use std::sync::Arc;

use hoplo_client::Pinned;
use pyo3::prelude::*;

use crate::errors::malformed;

pub(super) use hoplo_wire::plain::{
    ARRAY, BYTES, DICT, FALSE, FLOAT, INT, LIST, NONE, PACKED, REF, STR, TRUE, TUPLE,
};

/// A count or a length: one byte below 255, else 255 and eight more.
pub(crate) fn put_count(count: usize, out: &mut Vec<u8>) {
    match u8::try_from(count) {
        Ok(count) if count < u8::MAX => out.push(count),
        _ => {
            out.push(u8::MAX);
            out.extend_from_slice(&(count as u64).to_le_bytes());
        }
    }
}

/// Reads values, one after the other.
pub(crate) struct PlainReader<'a, 'py> {
    py: Python<'py>,
    bytes: &'a [u8],
    /// What the bytes lie in, if that is the store.
    stored: Option<&'a Arc<Pinned>>,
}

impl<'a, 'py> PlainReader<'a, 'py> {
    pub(crate) fn new(py: Python<'py>, bytes: &'a [u8]) -> Self {
        Self { py, bytes, stored: None }
    }

    /// What is large goes on reading `bytes`, which lie in `stored`.
    pub(super) fn keeping(mut self, stored: Option<&'a Arc<Pinned>>) -> Self {
        self.stored = stored;
        self
    }

    pub(super) fn py(&self) -> Python<'py> {
        self.py
    }

    pub(super) fn stored(&self) -> Option<&'a Arc<Pinned>> {
        self.stored
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    pub(crate) fn take(&mut self, count: usize) -> PyResult<&'a [u8]> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or_else(|| malformed("a value is cut off"))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> PyResult<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> PyResult<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("N bytes were taken"))
    }

    pub(crate) fn count(&mut self) -> PyResult<usize> {
        match self.byte()? {
            u8::MAX => Ok(u64::from_le_bytes(self.array()?) as usize),
            count => Ok(usize::from(count)),
        }
    }
}
