//! Reading and writing little-endian fields without trust.

use hoplo_base::{ObjectId, TaskId};

/// A peer's bytes do not parse; the connection that brought them is to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {what}")]
pub struct Malformed {
    pub what: &'static str,
}

/// Takes fields off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(self.malformed())?;
        self.rest = rest;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(*self.array_ref::<N>()?)
    }

    pub fn array_ref<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(self.malformed())?;
        self.rest = rest;
        Ok(head)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn task(&mut self) -> Result<TaskId, Malformed> {
        Ok(TaskId::from_bytes(self.array()?))
    }

    pub fn object(&mut self) -> Result<ObjectId, Malformed> {
        Ok(ObjectId::from_bytes(self.array()?))
    }

    /// A slice behind its `u32` length.
    pub fn sized(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// A count of things of at least `bytes_each`, so that a lie cannot reserve memory.
    pub fn count(&mut self, bytes_each: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count.saturating_mul(bytes_each) > self.rest.len() {
            return Err(self.malformed());
        }
        Ok(count)
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn malformed(&self) -> Malformed {
        Malformed { what: self.what }
    }
}

/// A field of a header, at a place that is known when this is compiled.
#[inline(always)]
pub(crate) fn part<const N: usize, const ALL: usize>(header: &[u8; ALL], at: usize) -> [u8; N] {
    header[at..at + N].try_into().expect("as long as it was cut")
}

pub(crate) fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("frames are far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}
