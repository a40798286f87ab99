//! What is to be sent over one connection: frames, as bytes of its own or as bytes that lie elsewhere.

use std::collections::VecDeque;
use std::fmt;

use hoplo_base::limits::FRAMES_BYTES_KEPT;

use crate::protocol::{Lent, Protocol};

#[derive(Default)]
pub(crate) struct Outbox {
    /// In front of `last`; none is empty.
    ahead: VecDeque<Part>,
    last: Vec<u8>,
    /// Bytes of the first part that went on.
    passed: usize,
    /// Of all parts, those that did not.
    left: usize,
}

enum Part {
    Own(Vec<u8>),
    Lent(Lent),
}

impl Outbox {
    pub(crate) fn push<P: Protocol>(&mut self, frame: &P::Frame) {
        let before = self.last.len();
        P::encode(frame, &mut self.last);
        self.left += self.last.len() - before;
        let Some(lent) = P::lent(frame) else { return };
        let bytes = (*lent).as_ref().len();
        if bytes == 0 {
            return;
        }
        if !self.last.is_empty() {
            self.ahead.push_back(Part::Own(std::mem::take(&mut self.last)));
        }
        self.ahead.push_back(Part::Lent(lent));
        self.left += bytes;
    }

    /// What comes next; empty only if nothing does.
    pub(crate) fn next(&self) -> &[u8] {
        let part = self.ahead.front().map_or(&self.last[..], Part::get);
        &part[self.passed..]
    }

    /// So much of that went on.
    pub(crate) fn passed(&mut self, bytes: usize) {
        self.passed += bytes;
        self.left -= bytes;
        while let Some(part) = self.ahead.front()
            && self.passed >= part.get().len()
        {
            self.passed -= part.get().len();
            self.ahead.pop_front();
        }
        if self.ahead.is_empty() && self.passed == self.last.len() {
            self.last.clear();
            self.last.shrink_to(FRAMES_BYTES_KEPT);
            self.passed = 0;
        }
    }

    /// Who always has more to say never has said all: what went on goes before that. Each byte is moved once at most, since as many went.
    pub(crate) fn forget_passed(&mut self) {
        let first = match self.ahead.front_mut() {
            None => &mut self.last,
            Some(Part::Own(bytes)) => bytes,
            Some(Part::Lent(_)) => return,
        };
        if self.passed > FRAMES_BYTES_KEPT && self.passed > first.len() / 2 {
            first.drain(..self.passed);
            self.passed = 0;
        }
    }

    /// Bytes that did not go on.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    #[cfg(test)]
    pub(crate) fn own_bytes(&self) -> usize {
        let own = |part: &Part| if let Part::Own(bytes) = part { bytes.len() } else { 0 };
        self.ahead.iter().map(own).sum::<usize>() + self.last.len()
    }
}

impl Part {
    fn get(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(lent) => (**lent).as_ref(),
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("left", &self.left).finish_non_exhaustive()
    }
}
