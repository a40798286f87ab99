//! Named quantities (CPU, GPU, memory, custom) in fixed point, so that sums never drift.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Size, shown};

/// One unit of a resource is this many parts; the smallest fraction is 1/10,000.
pub const PARTS: u64 = 10_000;

pub const CPU: &str = "CPU";
pub const GPU: &str = "GPU";
/// Bytes.
pub const MEMORY: &str = "memory";

/// Amounts by name, in parts; a name that is absent has amount 0 and no zero is ever stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResourceSet(BTreeMap<String, u64>);

/// Units, of memory bytes. So much is exact in parts, and several such amounts can be added.
pub const AMOUNT_MAX: f64 = 1e14;

/// An amount that cannot be a resource.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResourceError {
    /// Negative, too large or not a number; give an amount from 0 to [`AMOUNT_MAX`].
    #[error("resource {name} is {amount}: give an amount from 0 to {AMOUNT_MAX:e}")]
    BadAmount { name: String, amount: f64 },
}

impl ResourceSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Amounts in units (1.0 CPU, bytes of memory); rounded to the nearest part.
    pub fn from_units<'a>(
        units: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Result<Self, ResourceError> {
        let mut set = Self::default();
        for (name, amount) in units {
            if !(0.0..=AMOUNT_MAX).contains(&amount) {
                return Err(ResourceError::BadAmount { name: name.to_string(), amount });
            }
            set.set_parts(name, (amount * PARTS as f64).round() as u64);
        }
        Ok(set)
    }

    pub fn set_parts(&mut self, name: &str, parts: u64) {
        if parts == 0 {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_string(), parts);
        }
    }

    pub fn parts(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn units(&self, name: &str) -> f64 {
        self.parts(name) as f64 / PARTS as f64
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, parts)| (name.as_str(), *parts))
    }

    /// Whether every amount of `wanted` is here.
    pub fn covers(&self, wanted: &ResourceSet) -> bool {
        wanted.0.iter().all(|(name, parts)| self.parts(name) >= *parts)
    }

    /// The first resource of `wanted` that is short here: name, amount wanted, amount here.
    pub fn lacks<'a>(&self, wanted: &'a ResourceSet) -> Option<(&'a str, Amount, Amount)> {
        let (name, _) = wanted.0.iter().find(|(name, parts)| self.parts(name) < **parts)?;
        Some((name, wanted.amount(name), self.amount(name)))
    }

    /// For people.
    pub fn amount(&self, name: &str) -> Amount {
        Amount::new(name, self.parts(name))
    }

    pub fn add(&mut self, other: &ResourceSet) {
        for (name, parts) in &other.0 {
            self.set_parts(name, self.parts(name) + parts);
        }
    }

    /// Takes `other` away; the caller has checked `covers`.
    pub fn subtract(&mut self, other: &ResourceSet) {
        for (name, parts) in &other.0 {
            let rest = self.parts(name).checked_sub(*parts);
            self.set_parts(name, rest.expect("the caller checked that the amount is here"));
        }
    }
}

impl fmt::Display for ResourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (at, (name, _)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", shown(name), self.amount(name))?;
        }
        Ok(())
    }
}

/// So much of one resource, as people read it: `2`, `0.5`, of memory `1.5 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Parts(u64),
    Bytes(Size),
}

impl Amount {
    pub fn new(name: &str, parts: u64) -> Self {
        if name == MEMORY { Self::Bytes(Size(parts / PARTS)) } else { Self::Parts(parts) }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts(parts) => write!(f, "{}", *parts as f64 / PARTS as f64),
            Self::Bytes(size) => size.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_add_up_exactly() {
        let tenth = ResourceSet::from_units([("CPU", 0.1)]).unwrap();
        let mut sum = ResourceSet::new();
        for _ in 0..10 {
            sum.add(&tenth);
        }
        assert_eq!(sum, ResourceSet::from_units([("CPU", 1.0)]).unwrap());
        sum.subtract(&sum.clone());
        assert!(sum.is_empty());
    }

    #[test]
    fn an_amount_of_memory_was_told_as_a_long_number() {
        let some = ResourceSet::from_units([("CPU", 0.5), ("memory", 3e9)]).unwrap();
        assert_eq!(some.to_string(), "CPU 0.5, memory 2.8 GiB");
        assert_eq!(some.amount("GPU").to_string(), "0");
    }

    #[test]
    fn a_bad_amount_is_named() {
        for amount in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            let error = ResourceSet::from_units([("GPU", amount)]).unwrap_err();
            assert!(error.to_string().starts_with("resource GPU is"), "{error}");
        }
    }

    #[test]
    fn what_is_short_is_told() {
        let node = ResourceSet::from_units([("CPU", 2.0)]).unwrap();
        let shape = ResourceSet::from_units([("CPU", 1.0), ("GPU", 1.0)]).unwrap();
        assert!(!node.covers(&shape));
        assert_eq!(node.lacks(&shape), Some(("GPU", Amount::Parts(PARTS), Amount::Parts(0))));
        assert_eq!(shape.to_string(), "CPU 1, GPU 1");
    }
}
