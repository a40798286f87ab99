//! Hash maps with a fixed hasher: the same inserts give the same order in every run.
//!
//! Machines look things up in these and iterate only ordered maps, or sort first.

use rustc_hash::FxBuildHasher;

pub type Map<K, V> = hashbrown::HashMap<K, V, FxBuildHasher>;
pub type Set<K> = hashbrown::HashSet<K, FxBuildHasher>;
