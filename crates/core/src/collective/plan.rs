//! The chain, or the ring, of one reduce.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::STRIPE_BYTES_MIN;
use hoplo_base::{NodeNumber, ObjectId};

use super::event::Member;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// What it begins with.
    pub(super) head: (NodeNumber, ObjectId),
    /// Of that, and of all that is made of it.
    pub(super) bytes: u64,
    /// Who folds which members of its own in, in this order. The first one may be the head's node, the last one is the node that asks.
    pub(super) steps: Vec<(NodeNumber, Vec<ObjectId>)>,
}

/// Who folds which members of its own, in the order of the ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// Of each member, and of what is made.
    pub(super) bytes: u64,
    pub(super) nodes: Vec<(NodeNumber, Vec<ObjectId>)>,
}

/// `None`: all members are at this node, or one is at none.
pub(super) fn chain(me: NodeNumber, members: &[Member]) -> Option<Chain> {
    let mut at = by_node(me, members)?;
    let mine = at.remove(&me).unwrap_or_default();
    // One with a single member has nothing to fold: it sends that.
    let single = at.iter().find(|(_, members)| members.len() == 1).map(|(node, _)| *node);
    let first = single.or(at.keys().next().copied())?;
    let mut rest = at.remove(&first).expect("it was just there");
    let member = rest.pop().expect("a node is there for its members");
    let folds = (!rest.is_empty()).then_some((first, rest));
    let bytes = members.iter().find(|it| it.object == member)?.bytes;
    let steps = folds.into_iter().chain(at).chain([(me, mine)]).collect();
    Some(Chain { head: (first, member), bytes, steps })
}

/// `None`: this node has no member, or no other node has one, or the members are short or differ in length.
pub(super) fn ring(me: NodeNumber, members: &[Member]) -> Option<Circle> {
    let bytes = members.first()?.bytes;
    let at = by_node(me, members)?;
    let is_one = at.len() >= 2
        && at.contains_key(&me)
        && members.iter().all(|member| member.bytes == bytes)
        && bytes / at.len() as u64 >= STRIPE_BYTES_MIN;
    is_one.then(|| Circle { bytes, nodes: at.into_iter().collect() })
}

/// The members in the order of a train that begins at the slow node. `None`: none is slow or several are, a node has several members, or two nodes
/// have them all; a ring does as well.
pub(super) fn past_slow(
    me: NodeNumber,
    members: &[Member],
    slow: &BTreeSet<NodeNumber>,
) -> Option<Vec<Member>> {
    let Circle { bytes, mut nodes } = ring(me, members)?;
    let at = nodes.iter().position(|(node, _)| slow.contains(node))?;
    let first = nodes.remove(at);
    let is_alone = !nodes.iter().any(|(node, _)| slow.contains(node));
    nodes.insert(0, first);
    let is_train = nodes.len() > 2 && nodes.iter().all(|(_, own)| own.len() == 1);
    let member = |(node, own): (NodeNumber, Vec<ObjectId>)| {
        own.into_iter().map(move |object| Member { object, bytes, nodes: vec![node] })
    };
    (is_alone && is_train).then(|| nodes.into_iter().flat_map(member).collect())
}

/// At which node each member is folded. `None`: one is at none.
pub(super) fn by_node(
    me: NodeNumber,
    members: &[Member],
) -> Option<BTreeMap<NodeNumber, Vec<ObjectId>>> {
    let mut at: BTreeMap<NodeNumber, Vec<ObjectId>> = BTreeMap::new();
    for member in members {
        let here = member.nodes.iter().find(|node| **node == me);
        // One that is in the chain already sends nothing more for it. Else the last one: the first may be fetching it itself.
        let known = member.nodes.iter().find(|node| at.contains_key(node));
        let node = here.or(known).or(member.nodes.last())?;
        at.entry(*node).or_default().push(member.object);
    }
    Some(at)
}
