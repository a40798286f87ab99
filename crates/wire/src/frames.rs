//! Frames in a stream of bytes: a `u32` length, then the body. Whoever reads from a socket puts the bytes in here
//! as they come, and takes whole bodies out.
//!
//! # Invariants
//! - FRAME-1: a length above the limit is an error before its body is waited for: what a peer can make us keep is the
//!   limit and one read.

use hoplo_base::limits::FRAMES_BYTES_KEPT;

/// What has come and was not taken yet.
#[derive(Debug)]
pub struct Incoming {
    frame_bytes_max: usize,
    bytes: Vec<u8>,
    /// Of them, those that were taken.
    taken: usize,
}

/// The peer announced more than it may send at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes is above the limit of {max}")]
pub struct TooLong {
    pub bytes: usize,
    pub max: usize,
}

impl Incoming {
    pub fn new(frame_bytes_max: usize) -> Self {
        Self { frame_bytes_max, bytes: Vec::new(), taken: 0 }
    }

    /// From now on frames may be so long.
    pub fn allow(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Room for so many bytes more, for the caller to fill.
    pub fn grow(&mut self, bytes: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + bytes, 0);
        &mut self.bytes[start..]
    }

    /// The next whole body.
    pub fn take(&mut self) -> Result<Option<&[u8]>, TooLong> {
        if let Some((head, rest)) = self.bytes[self.taken..].split_first_chunk::<4>() {
            let bytes = u32::from_le_bytes(*head) as usize;
            if bytes > self.frame_bytes_max {
                return Err(TooLong { bytes, max: self.frame_bytes_max });
            }
            if rest.len() >= bytes {
                let start = self.taken + 4;
                self.taken = start + bytes;
                return Ok(Some(&self.bytes[start..start + bytes]));
            }
        }
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(FRAMES_BYTES_KEPT);
        }
        Ok(None)
    }

    /// Nothing of an unfinished frame is here.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.taken
    }

    /// Bytes of frames that were not taken.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_le_bytes(), body].concat()
    }

    #[test]
    fn frames_come_whole_however_they_were_cut() {
        let mut incoming = Incoming::new(100);
        let mut got = Vec::new();
        for byte in [frame(b"one"), frame(b""), frame(b"three")].concat() {
            incoming.add(&[byte]);
            while let Some(body) = incoming.take().unwrap() {
                got.push(body.to_vec());
            }
        }
        assert_eq!(got, [b"one".to_vec(), b"".to_vec(), b"three".to_vec()]);
        assert!(incoming.is_empty());
    }

    #[test]
    fn a_length_that_lies_is_refused_before_its_body_is_kept() {
        let mut incoming = Incoming::new(100);
        incoming.add(&101_u32.to_le_bytes());
        assert_eq!(incoming.take(), Err(TooLong { bytes: 101, max: 100 }));
        incoming.allow(101);
        assert_eq!(incoming.take(), Ok(None));
        assert_eq!(incoming.len(), 4);
    }
}
