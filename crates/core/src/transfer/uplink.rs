//! In which order this node gives pieces of objects to its connections.
//!
//! A connection that is given all there is has megabytes in front of whatever comes next, and that is not only the next object: what
//! acknowledges the other direction rides on the same connection. Two nodes that sent to each other waited for that word with nothing
//! to send, as soon as a window was used up.
//!
//! So a connection has one piece that its socket did not take, and gets the next one when the socket took it. The kernel's own buffer
//! is full at that moment, for it is what had no room: the wire has something to do meanwhile.
//!
//! # Invariants
//! - XFER-9: a piece goes to a connection that has nothing unsent: one piece for each receiver is in front of the kernel.
//! - XFER-10: while somebody is to be sent something and has nothing unsent, somebody gets a piece: the uplink is idle only if no socket takes
//!   any.
//! - XFER-11: the receivers take turns, each node beginning with the one behind itself. So nodes that begin at the same time begin with
//!   different ones, and of two pieces for one receiver there is one for each other that could be sent any.

use hoplo_base::NodeNumber;

#[derive(Debug)]
pub struct Uplink {
    /// Who was given a piece last; at first this node.
    last: NodeNumber,
}

impl Uplink {
    pub fn new(me: NodeNumber) -> Self {
        Self { last: me }
    }

    /// Who gets the next piece, of those for whom there are some and whose connections have so many bytes unsent.
    pub fn next(
        &mut self,
        wanting: impl IntoIterator<Item = (NodeNumber, usize)>,
    ) -> Option<NodeNumber> {
        let free = wanting.into_iter().filter(|(_, unsent)| *unsent == 0).map(|(node, _)| node);
        // Those behind the last one come before the others.
        let next = free.min_by_key(|node| (*node <= self.last, *node))?;
        self.last = next;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn node(number: u32) -> NodeNumber {
        NodeNumber::alone(number)
    }

    #[test]
    fn each_node_begins_with_the_one_behind_itself() {
        for me in 1..=4 {
            let others = || (1..=4).filter(|it| *it != me).map(|it| (node(it), 0));
            let mut uplink = Uplink::new(node(me));
            let order: Vec<NodeNumber> = (0..6).filter_map(|_| uplink.next(others())).collect();
            let wanted = |step: u32| node((me - 1 + 1 + step % 3) % 4 + 1);
            assert_eq!(order, (0..6).map(wanted).collect::<Vec<_>>(), "XFER-11");
        }
    }

    #[test]
    fn who_has_something_unsent_is_passed_over_and_comes_when_it_was_sent() {
        let mut uplink = Uplink::new(node(1));
        assert_eq!(uplink.next([(node(2), 1), (node(3), 0)]), Some(node(3)));
        assert_eq!(uplink.next([(node(2), 1), (node(3), 9)]), None);
        assert_eq!(uplink.next([(node(2), 0), (node(3), 9)]), Some(node(2)));
    }

    /// A connection of the model: what lies in front of its socket, and what the socket still takes.
    #[derive(Debug, Default)]
    struct Line {
        wanted: u32,
        unsent: usize,
        room: usize,
        /// Pieces that others got since it could have had one.
        passed: BTreeMap<NodeNumber, u32>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wants(u32, u32),
        /// The peer took some of it.
        Drains(u32, usize),
        Turn,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = prop_oneof![
            (1..6u32, 1..9u32).prop_map(|(line, pieces)| Step::Wants(line, pieces)),
            (1..6u32, 1..700usize).prop_map(|(line, bytes)| Step::Drains(line, bytes)),
            Just(Step::Turn),
        ];
        prop::collection::vec(one, 1..200)
    }

    const PIECE: usize = 256;

    proptest! {
        /// As the carrier does it: a piece, what the socket takes of it, the next piece.
        #[test]
        fn an_uplink_never_idles_while_something_may_be_sent(me in 1..6u32, steps in steps()) {
            let mut uplink = Uplink::new(node(me));
            let mut lines: BTreeMap<NodeNumber, Line> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Wants(line, pieces) => {
                        lines.entry(node(line)).or_default().wanted += pieces;
                    }
                    Step::Drains(line, bytes) => {
                        lines.entry(node(line)).or_default().room += bytes;
                    }
                    Step::Turn => {}
                }
                loop {
                    for line in lines.values_mut() {
                        let taken = line.unsent.min(line.room);
                        line.unsent -= taken;
                        line.room -= taken;
                    }
                    let wanting = lines.iter().filter(|(_, line)| line.wanted > 0);
                    let wanting: Vec<_> = wanting.map(|(it, line)| (*it, line.unsent)).collect();
                    let Some(next) = uplink.next(wanting.iter().copied()) else { break };
                    for (other, _) in wanting.iter().filter(|(it, unsent)| *unsent == 0 && *it != next) {
                        let passed = &mut lines.get_mut(other).unwrap().passed;
                        let count = passed.entry(next).or_default();
                        *count += 1;
                        prop_assert!(*count <= 1, "XFER-11: {next} twice before {other}");
                    }
                    let line = lines.get_mut(&next).unwrap();
                    prop_assert!(line.wanted > 0 && line.unsent == 0, "XFER-9");
                    line.passed.clear();
                    line.wanted -= 1;
                    line.unsent += PIECE;
                }
                let idles = lines.values().any(|line| line.wanted > 0 && line.unsent == 0);
                prop_assert!(!idles, "XFER-10");
                prop_assert!(lines.values().all(|line| line.unsent <= PIECE), "XFER-9");
                // Who has nothing to be sent, or cannot be sent any, has no turn to wait for.
                for line in lines.values_mut() {
                    line.passed.clear();
                }
            }
        }
    }
}
