//! What the bundles of placement groups are called among the resources of their node.
//!
//! A bundle of `CPU 1`, the second one of its group, takes 1 of the node's `CPU`, and while it is there the node has these:
//!
//! ```text
//!   CPU_group_1_<group>     1       what its tasks ask for that name the bundle
//!   CPU_group_<group>       1       what tasks ask for that any bundle of the group will do for
//!   bundle_group_1_<group>  1000    each task takes a little of it, so that one that needs nothing finds its bundle
//!   bundle_group_<group>    1000
//! ```
//! Who asks for a bundle asks for both forms of each name. Who asks for any bundle asks for the second form, and is given
//! both forms of one bundle: a task never lies in two.

use crate::resources::{CPU, GPU, PARTS};
use crate::{GroupId, ResourceSet};

/// In place of a resource's name.
pub const MARK: &str = "bundle";
const MARK_PARTS: u64 = 1000 * PARTS;
const MARK_PARTS_OF_TASK: u64 = PARTS / 1000;
const INFIX: &str = "_group_";

/// Resources that are asked for in a placement group, by their own names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InGroup {
    pub group: GroupId,
    /// Absent: any bundle will do.
    pub index: Option<u32>,
    /// With the mark.
    pub resources: ResourceSet,
}

/// What names of resources say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Resources of the node.
    Plain,
    InGroup(InGroup),
    /// Of several groups or bundles, or of a group and the node: nobody has that.
    Mixed,
}

/// A name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupName<'a> {
    pub base: &'a str,
    pub index: Option<u32>,
    pub group: GroupId,
}

impl<'a> GroupName<'a> {
    /// `None`: the node's own.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rest, group) = name.split_at_checked(name.len().checked_sub(GroupId::HEX_DIGITS)?)?;
        let group = GroupId::from_hex(group)?;
        if let Some(base) = rest.strip_suffix(INFIX) {
            return Some(Self { base, index: None, group }).filter(|name| !name.base.is_empty());
        }
        let (base, index) = rest.strip_suffix('_')?.rsplit_once(INFIX)?;
        let digits = index.bytes().all(|byte| byte.is_ascii_digit());
        let index = index.parse().ok().filter(|_| digits && !base.is_empty())?;
        Some(Self { base, index: Some(index), group })
    }
}

impl InGroup {
    /// What a task that needs `resources` asks for.
    pub fn of_task(group: GroupId, index: Option<u32>, mut resources: ResourceSet) -> Self {
        resources.set_parts(MARK, MARK_PARTS_OF_TASK);
        Self { group, index, resources }
    }

    /// What a bundle adds to its node.
    pub fn of_bundle(group: GroupId, index: u32, mut resources: ResourceSet) -> Self {
        resources.set_parts(MARK, MARK_PARTS);
        Self { group, index: Some(index), resources }
    }

    /// By the names that the node has for them.
    pub fn named(&self) -> ResourceSet {
        let Self { group, index, resources } = self;
        let mut named = ResourceSet::new();
        for (base, parts) in resources.iter() {
            named.set_parts(&any_name(base, *group), parts);
            if let Some(index) = index {
                named.set_parts(&one_name(base, *group, *index), parts);
            }
        }
        named
    }
}

impl Asked {
    pub fn of(wanted: &ResourceSet) -> Self {
        let mut found: Option<InGroup> = None;
        let mut plain = false;
        for (name, parts) in wanted.iter() {
            let Some(name) = GroupName::parse(name) else {
                plain = true;
                continue;
            };
            let found = found.get_or_insert_with(|| InGroup {
                group: name.group,
                index: None,
                resources: ResourceSet::new(),
            });
            if found.group != name.group {
                return Self::Mixed;
            }
            match (found.index, name.index) {
                (Some(one), Some(other)) if one != other => return Self::Mixed,
                (_, None) => {}
                (_, index) => found.index = index,
            }
            found.resources.set_parts(name.base, parts.max(found.resources.parts(name.base)));
        }
        match found {
            None => Self::Plain,
            Some(_) if plain => Self::Mixed,
            Some(found) => Self::InGroup(found),
        }
    }
}

/// Of which group something asks for resources.
pub fn group_of(wanted: &ResourceSet) -> Option<GroupId> {
    wanted.iter().find_map(|(name, _)| GroupName::parse(name)).map(|name| name.group)
}

/// What is the node's own, as people see it.
pub fn plain(resources: &ResourceSet) -> ResourceSet {
    let mut plain = ResourceSet::new();
    for (name, parts) in resources.iter().filter(|(name, _)| GroupName::parse(name).is_none()) {
        plain.set_parts(name, parts);
    }
    plain
}

/// CPUs, in a bundle or not: a task that waits lends them.
pub fn is_cpu(name: &str) -> bool {
    name == CPU || is_in_group(name, CPU)
}

/// How many whole CPUs those who have these resources may use, in a bundle or not. Who has none, or a part of one, uses one, too.
pub fn whole_cpus(resources: &ResourceSet) -> u32 {
    let parts = resources.iter().filter(|(name, _)| is_cpu(name)).map(|(_, parts)| parts);
    u32::try_from(parts.max().unwrap_or(0) / PARTS).unwrap_or(u32::MAX).max(1)
}

pub fn is_gpu(name: &str) -> bool {
    name == GPU || is_in_group(name, GPU)
}

fn is_in_group(name: &str, base: &str) -> bool {
    let begins = name.strip_prefix(base).is_some_and(|rest| rest.starts_with(INFIX));
    begins && GroupName::parse(name).is_some_and(|name| name.base == base)
}

pub fn any_name(base: &str, group: GroupId) -> String {
    format!("{base}{INFIX}{}", group.hex())
}

pub fn one_name(base: &str, group: GroupId, index: u32) -> String {
    format!("{base}{INFIX}{index}_{}", group.hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeNumber;

    fn group(count: u64) -> GroupId {
        GroupId::new(NodeNumber::alone(1), count)
    }

    fn cpus(amount: f64) -> ResourceSet {
        ResourceSet::from_units([("CPU", amount)]).unwrap()
    }

    #[test]
    fn whole_cpus_are_counted_once_and_are_one_at_least() {
        for (amount, whole) in [(0.0, 1), (0.5, 1), (1.0, 1), (2.5, 2), (8.0, 8)] {
            assert_eq!(whole_cpus(&cpus(amount)), whole);
            let named = InGroup::of_task(group(1), Some(0), cpus(amount)).named();
            assert_eq!(whole_cpus(&named), whole);
        }
    }

    #[test]
    fn what_is_named_is_read_again() {
        for index in [None, Some(0), Some(17)] {
            let asked = InGroup::of_task(group(1), index, cpus(1.0));
            assert_eq!(Asked::of(&asked.named()), Asked::InGroup(asked));
        }
        assert_eq!(Asked::of(&cpus(1.0)), Asked::Plain);
        assert_eq!(group_of(&InGroup::of_bundle(group(3), 1, cpus(1.0)).named()), Some(group(3)));
        assert_eq!(group_of(&cpus(1.0)), None);
    }

    #[test]
    fn a_resource_that_a_user_named_like_one_of_a_group_is_the_nodes() {
        let hex = group(1).hex();
        for name in ["CPU", "my_group_1", "_group_0123456789abcdef", "a_group_x_0123456789abcdef"] {
            assert_eq!(GroupName::parse(name), None, "{name}");
        }
        assert_eq!(GroupName::parse(&hex), None);
        assert_eq!(GroupName::parse(&format!("CPU_group_-1_{hex}")), None);
        assert_eq!(GroupName::parse(&format!("ä{}", &hex[1..])), None);
        let name = format!("a_group_b_group_2_{hex}");
        let parsed = GroupName { base: "a_group_b", index: Some(2), group: group(1) };
        assert_eq!(GroupName::parse(&name), Some(parsed));
        assert!(is_cpu(&any_name(CPU, group(1))) && is_cpu(CPU) && !is_cpu("CPU_group_1"));
        assert!(is_gpu(&one_name(GPU, group(1), 4)) && !is_gpu(&any_name("GPU_group_0", group(1))));
    }

    #[test]
    fn nobody_has_what_is_asked_of_two_bundles() {
        let named = |group, index| InGroup::of_task(group, index, cpus(1.0)).named();
        for other in [named(group(2), None), named(group(1), Some(1)), cpus(1.0)] {
            let mut both = named(group(1), Some(0));
            both.add(&other);
            assert_eq!(Asked::of(&both), Asked::Mixed);
        }
    }

    #[test]
    fn a_node_shows_what_is_its_own() {
        let mut all = cpus(2.0);
        all.add(&InGroup::of_bundle(group(1), 0, cpus(1.0)).named());
        assert_eq!(plain(&all), cpus(2.0));
    }
}
