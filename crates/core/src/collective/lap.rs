//! How one node of a ring walks through the bytes that are folded.
//!
//! ```text
//!   node i sends to node i - 1:    own part of stripe i | stripe i + 1, folded | ... | stripe i - 1, folded: final | stripe i, final | ...
//!   node i gets from node i + 1:                          stripe i + 1         | ... | stripe i - 1              | stripe i, final | ...
//! ```
//! `n` nodes cut the bytes into `n` stripes, and each begins with another one. A node folds its own into the `n - 1` stripes that come first, and
//! keeps the `n - 1` that come then, which are final. What it sends is what came to it, one stripe later. So each link carries
//! `2 (n - 1) / n` of the bytes, all links at the same time, and in the end each node has all.
//!
//! Final bytes come to where their sum so far was. That was sent before: what is final has been at all nodes.

use std::ops::Range;

/// Places of one node. What comes and what goes are counted from its first byte on, and each byte has a place in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lap {
    /// Of the object.
    len: u64,
    /// Where what goes begins: with this node's stripe.
    start: u64,
    /// So long is that.
    own: u64,
    /// Of what comes: where the stripe begins in which this node's part is the last one, and where that ends.
    last: u64,
    folds: u64,
    comes: u64,
    goes: u64,
}

/// What is done with bytes that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Fold,
    /// After which they are final.
    FoldLast,
    Keep,
}

impl Lap {
    /// `cut`: up to where bytes may be cut, not far before that place. None: there is no such ring.
    pub fn new(at: u32, of: u32, len: u64, cut: impl Fn(u64) -> u64) -> Option<Lap> {
        if at >= of || of < 2 || len < u64::from(of) {
            return None;
        }
        let edge = |stripe: u32| match stripe {
            all if all == of => len,
            some => cut((u128::from(len) * u128::from(some) / u128::from(of)) as u64),
        };
        let bytes = |stripe: u32| edge(stripe % of + 1) - edge(stripe % of);
        let (own, before, second) = (bytes(at), bytes(at + of - 1), bytes(at + of - 2));
        let folds = len - own;
        let (comes, goes) = (2 * len - own - before, 2 * len - before - second);
        Some(Lap { len, start: edge(at), own, last: folds - before, folds, comes, goes })
    }

    /// Bytes that come.
    pub fn comes(&self) -> u64 {
        self.comes
    }

    /// Bytes that go.
    pub fn goes(&self) -> u64 {
        self.goes
    }

    /// How many bytes can go when so many came and were folded.
    pub fn reach(&self, came: u64) -> u64 {
        (self.own + came).min(self.goes)
    }

    /// Where these bytes that come belong, and what is done with them.
    pub fn coming(&self, mut from: u64, to: u64) -> impl Iterator<Item = (Turn, Range<u64>)> {
        std::iter::from_fn(move || {
            let (turn, end) = match from {
                early if early < self.last => (Turn::Fold, self.last),
                last if last < self.folds => (Turn::FoldLast, self.folds),
                _final => (Turn::Keep, self.comes),
            };
            let at = (self.start + self.own + from) % self.len;
            let bytes = to.min(end).saturating_sub(from).min(self.len - at);
            from += bytes;
            (bytes > 0).then_some((turn, at..at + bytes))
        })
    }

    /// Where the next bytes that go lie, no more than these, and whether they are this node's own, into which nothing was folded.
    pub fn going(&self, next: u64, bytes: u64) -> (Range<u64>, bool) {
        let (at, is_own) = ((self.start + next) % self.len, next < self.own);
        let left = if is_own { self.own - next } else { self.goes - next };
        (at..at + bytes.min(left).min(self.len - at), is_own)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes as (nodes whose part is in it, whether it is final).
    type Byte = (u64, bool);

    /// All nodes of a ring, each of which sends what it may, piece by piece, in any order.
    fn go_round(of: u32, len: u64, cut: impl Fn(u64) -> u64 + Copy, picks: &[(u32, u64)]) {
        let laps: Vec<Lap> = (0..of).map(|at| Lap::new(at, of, len, cut).unwrap()).collect();
        let mut rooms = vec![vec![(0, false); len as usize]; of as usize];
        let (mut came, mut went) = (vec![0; of as usize], vec![0; of as usize]);
        let mut picks = picks.iter().cycle();
        let mut idle = 0;
        while laps.iter().zip(&came).any(|(lap, came)| *came < lap.comes()) {
            let (pick, most) = picks.next().unwrap();
            let from = (pick % of) as usize;
            let to = (from + of as usize - 1) % of as usize;
            let sendable = laps[from].reach(came[from]) - went[from];
            if sendable == 0 {
                idle += 1;
                assert!(idle < 100_000, "the ring stands still");
                continue;
            }
            idle = 0;
            let (range, is_own) = laps[from].going(went[from], sendable.min(*most));
            let piece: Vec<Byte> = match is_own {
                true => vec![(1 << from, false); (range.end - range.start) as usize],
                false => rooms[from][range.start as usize..range.end as usize].to_vec(),
            };
            went[from] += piece.len() as u64;
            let begin = came[to];
            let mut rest = &piece[..];
            for (turn, range) in laps[to].coming(begin, begin + piece.len() as u64) {
                let (these, others) = rest.split_at((range.end - range.start) as usize);
                rest = others;
                for (at, (parts, is_final)) in range.zip(these) {
                    rooms[to][at as usize] = match turn {
                        Turn::Keep => {
                            assert!(is_final, "what is kept is final");
                            (*parts, true)
                        }
                        fold => {
                            assert!(!is_final && parts & (1 << to) == 0, "each part once");
                            (parts | (1 << to), fold == Turn::FoldLast)
                        }
                    };
                }
            }
            assert!(rest.is_empty(), "no more comes than is awaited");
            came[to] += piece.len() as u64;
        }
        assert_eq!(went, laps.iter().map(Lap::goes).collect::<Vec<_>>());
        let all: Byte = ((1 << of) - 1, true);
        assert!(rooms.iter().flatten().all(|byte| *byte == all), "all have all");
    }

    proptest! {
        #[test]
        fn each_node_ends_with_each_part_once(
            of in 2u32..9,
            more in 0u64..200,
            numbers in 1u64..9,
            picks in prop::collection::vec((0u32..64, 1u64..40), 20..60),
        ) {
            let picks: Vec<_> = picks.into_iter().chain((0..of).map(|at| (at, 7))).collect();
            let len = u64::from(of) * numbers + more;
            go_round(of, len, |at| at - at % numbers, &picks);
        }
    }

    #[test]
    fn a_ring_has_two_nodes_and_a_byte_for_each() {
        let ring = |at, of, len| Lap::new(at, of, len, |at| at);
        assert_eq!(ring(0, 1, 100), None);
        assert_eq!(ring(2, 2, 100), None);
        assert_eq!(ring(1, 3, 2), None);
        assert_eq!(ring(1, 2, 2).map(|lap| (lap.comes(), lap.goes())), Some((2, 2)));
    }
}
