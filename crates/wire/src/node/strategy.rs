//! Where something may run, beside what it needs: a strategy, and labels that its node must have.
//!
//! A node has the labels that it was started with, and one that is its id: [`NODE_ID_LABEL`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use hoplo_base::{NodeNumber, shown};
use serde::{Deserialize, Serialize};

/// Every node has this label: its id, as `nodes()` shows it.
pub const NODE_ID_LABEL: &str = "hoplo.io/node-id";

/// Another name of [`NODE_ID_LABEL`], for programs that were written for Ray.
pub const NODE_ID_LABEL_OF_RAY: &str = "ray.io/node-id";

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// Near its caller, elsewhere when there is no room.
    #[default]
    Default,
    /// Evenly over all nodes that can run it.
    Spread,
    /// There. `soft`: elsewhere if that node is gone, or could never run it.
    Node { node: NodeNumber, soft: bool },
}

/// Conditions on one node's labels, all of which must hold. Without any, every node will do.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelSelector(pub Vec<(String, Condition)>);

/// On the value of one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// One of these.
    In(Vec<String>),
    /// None of these; a node without the label will do.
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl LabelSelector {
    pub fn is_met(&self, node: NodeNumber, labels: &BTreeMap<String, String>) -> bool {
        self.unmet(node, labels).next().is_none()
    }

    /// The conditions that this node does not meet.
    pub fn unmet<'a>(
        &'a self,
        node: NodeNumber,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = Unmet<'a>> {
        self.0.iter().filter_map(move |(key, condition)| {
            let has = label_of(node, labels, key);
            let met = condition.is_met(has.as_deref());
            (!met).then(|| Unmet { key, condition, has: has.map(Cow::into_owned) })
        })
    }
}

impl Condition {
    pub fn is_met(&self, value: Option<&str>) -> bool {
        let among = |values: &[String]| {
            value.is_some_and(|value| values.iter().any(|other| other == value))
        };
        match self {
            Condition::In(values) => among(values),
            Condition::NotIn(values) => !among(values),
            Condition::Exists => value.is_some(),
            Condition::Absent => value.is_none(),
        }
    }
}

/// `label zone=a` of which a node has something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet<'a> {
    pub key: &'a str,
    pub condition: &'a Condition,
    pub has: Option<String>,
}

impl fmt::Display for Unmet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = shown(self.key);
        let listed = |values: &[String]| {
            let values: Vec<_> = values.iter().map(|value| shown(value).to_string()).collect();
            values.join(",")
        };
        match self.condition {
            Condition::In(values) if values.len() == 1 => write!(f, "{key}={}", listed(values))?,
            Condition::In(values) => write!(f, "{key} in ({})", listed(values))?,
            Condition::NotIn(values) if values.len() == 1 => {
                write!(f, "{key} other than {}", listed(values))?;
            }
            Condition::NotIn(values) => write!(f, "{key} not in ({})", listed(values))?,
            Condition::Exists => write!(f, "{key}")?,
            Condition::Absent => write!(f, "no {key}")?,
        }
        match &self.has {
            Some(value) => write!(f, ", node has {}", shown(value)),
            None => write!(f, ", node has none"),
        }
    }
}

/// What a node has there: of the labels that it was started with, or its id.
pub fn label_of<'a>(
    node: NodeNumber,
    labels: &'a BTreeMap<String, String>,
    key: &str,
) -> Option<Cow<'a, str>> {
    if key == NODE_ID_LABEL || key == NODE_ID_LABEL_OF_RAY {
        return Some(node.hex().into());
    }
    labels.get(key).map(|value| value.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, condition: Condition) -> LabelSelector {
        LabelSelector(vec![(key.to_string(), condition)])
    }

    fn words(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| value.to_string()).collect()
    }

    #[test]
    fn what_a_node_does_not_meet_is_named_with_what_it_has() {
        let node = NodeNumber::alone(0);
        let labels = BTreeMap::from([("zone".to_string(), "b".to_string())]);
        let cases = [
            ("zone", Condition::In(words(&["a"])), "zone=a, node has b"),
            ("zone", Condition::In(words(&["a", "c"])), "zone in (a,c), node has b"),
            ("zone", Condition::NotIn(words(&["b"])), "zone other than b, node has b"),
            ("disk", Condition::Exists, "disk, node has none"),
            ("zone", Condition::Absent, "no zone, node has b"),
            (NODE_ID_LABEL, Condition::In(words(&["1"])), "hoplo.io/node-id=1, node has 800000"),
        ];
        for (key, condition, said) in cases {
            let selector = one(key, condition);
            let unmet: Vec<_> = selector.unmet(node, &labels).map(|it| it.to_string()).collect();
            assert_eq!(unmet, [said]);
        }
    }

    #[test]
    fn a_node_without_the_label_is_none_of_those_that_are_excluded() {
        let (node, labels) = (NodeNumber::alone(5), BTreeMap::new());
        assert!(one("zone", Condition::NotIn(words(&["a"]))).is_met(node, &labels));
        assert!(one("zone", Condition::Absent).is_met(node, &labels));
        let id = Condition::In(vec![node.hex()]);
        assert!(one(NODE_ID_LABEL, id.clone()).is_met(node, &labels));
        assert!(one(NODE_ID_LABEL_OF_RAY, id).is_met(node, &labels));
        assert!(LabelSelector::default().is_met(node, &labels));
    }
}
