//! How often each thing happened: a fault that never comes, or a rare path that is never taken, tests nothing.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// What every run over many seeds of one node must have seen.
    pub const OF_ONE_NODE: &[&'static str] = &[
        // Faults.
        "kills of workers",
        "kills of drivers",
        "failed forks",
        "full disks",
        "deaths before hello",
        "deaths before a reply",
        "workers that hang",
        "exit statuses that came too late",
        "memory kills",
        "daemons that died",
        "numbers that another node had",
        // Paths.
        "spills",
        "restores",
        "room in the spill file",
        "failed reads",
        "failed reads that were told",
        "adoptions",
        "retries",
        "restarts of actors",
        "actors with checkpoints",
        "checkpoints",
        "checkpoints of idle actors",
        "states that were restored",
        "calls that were replayed",
        "calls that were answered again",
        "revocations",
        "lent CPUs",
        "CPUs lent at once",
        "CPUs lent by callbacks",
        "CPUs lent to leave",
        "calls beside others",
        "calls that may be overtaken",
        "replies that waited for their turn",
        "parts of replies",
        "workers that left",
        "workers that retired",
        "leases recalled",
        "sweeps",
        "slots used again",
        "kills by the daemon",
        "workers that do not read",
        "orderly stops",
        "rows written",
        "numbers given by the store",
        "steals",
        "refused rows",
        "functions fetched",
        "keys asked for",
        "actors found by name",
        "names that were taken",
        "detached actors",
        "GPUs granted",
        "stores that were full",
        "placement groups created",
        "placement groups removed",
        "placement groups removed before they were created",
        "calls in placement groups",
        "TaskPlacementGroupRemoved",
        "ActorPlacementGroupRemoved",
        // Failures that were read, by what Python raises.
        "TaskError",
        "TaskCancelledError",
        "WorkerCrashedError",
        "WorkerStartError",
        "ActorDiedError",
        "ActorUnavailableError",
        "OwnerDiedError",
        // Questions.
        "questions asked",
        "questions passed on",
        "questions answered",
        "questions answered with a dead process among them",
        "questions answered without who was late",
        "questions of one who asks too many",
        "answers that came too late",
        "processes that never answer",
        "askers that left",
    ];

    /// The same of several nodes.
    pub const OF_NODES: &[&'static str] = &[
        // Faults.
        "kills of workers",
        "kills of drivers",
        "drivers that left and went on",
        "arrays that were read after their driver had left",
        "refused rows",
        "kills of nodes",
        "nodes that were fenced",
        "fenced nodes that ended in order",
        "nodes that froze",
        "nodes that heard of their death after others",
        "kills of nodes that somebody is about to fetch from",
        "kills of nodes after others",
        "kills of heads",
        "nodes that died with their heirs",
        "reads that failed of what the dead left",
        "nodes that were drained",
        "drained nodes that left",
        "workers that hang",
        "deaths before a reply",
        "links that were cut",
        "links that were cut one way",
        "messages that waited for a cut link",
        "connections that lost their tail",
        "troubles with links",
        "connections of nodes whose row had not come",
        "rows that were told twice",
        "nodes that joined while programs ran",
        "nodes that joined after a head's death",
        "words on references that came twice",
        // Paths.
        "frames that were sent again",
        "far calls",
        "far replies through the decider",
        "sweeps of far rings",
        "frames that went astray",
        "ends of far workers",
        "rings of far callers that were full",
        "revocations from far workers",
        "calls that came back from far workers",
        "vain revocations from far workers",
        "actors that live elsewhere",
        "replies that waited for the log",
        "objects that were pulled",
        "pieces of objects that waited for room",
        "nodes whose sockets took no piece",
        "objects that moved before they were sent",
        "pulls that stopped",
        "objects that were relayed",
        "relays that lagged",
        "nodes that were told better sources",
        "nodes that went to the end of a chain",
        "objects that were folded",
        "objects that were folded in rings",
        "kills of nodes that others fold into",
        "reduces that lost members",
        "folds of the rest",
        "folds that went on from elsewhere",
        "members made again that differed",
        "members that came later",
        "reduces whose members came later",
        "reduces",
        "reduces that nobody needed",
        "reduces that were in vain",
        "assemblies",
        "assemblies that nobody needed",
        "assemblies that were in vain",
        "nodes that were declared dead",
        "heads that went on where one died",
        "heads that went on where a second one died",
        "heads that went on where a third one died",
        "nodes that noticed that there is no head",
        "reads of what the dead left",
        "wills of dead homes",
        "wills that a head read",
        "ended actors of which a head read",
        "deaths that all had passed",
        "objects that another node had when their home died",
        "copies that nodes were asked for",
        "copies that heirs were told of",
        "questions of nodes that heard of a death before the home",
        "values that heirs were told",
        "lineages that heirs were told",
        "actors that keepers were told of",
        "logs that keepers were told",
        "words on logs to keepers",
        "actors that start from their logs without their home",
        "rows that heirs wrote of actors",
        "words for heirs that came before the death",
        "lineages that claimers were told",
        "adoptions for other nodes",
        "results made again",
        "streams run again for lost items",
        "calls that were given back",
        "adoptions",
        "retries",
        "restarts of actors",
        "actors with checkpoints",
        "checkpoints",
        "checkpoints of idle actors",
        "states that were restored",
        "calls that were replayed",
        "calls that were answered again",
        "leases recalled",
        "steals",
        "functions fetched",
        "actors found by name",
        "names that were taken",
        "detached actors",
        "spills",
        "restores",
        "lent CPUs",
        "orderly stops",
        "placement groups created",
        "placement groups removed",
        "placement groups removed before they were created",
        "placement groups that lost bundles",
        "calls in placement groups",
        "TaskPlacementGroupRemoved",
        "ActorPlacementGroupRemoved",
        // Failures that were read, by what Python raises.
        "TaskError",
        "TaskCancelledError",
        "WorkerCrashedError",
        "ActorDiedError",
        "ActorUnavailableError",
        "OwnerDiedError",
        "ObjectLostError",
    ];

    pub fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add_many(&mut self, what: &'static str, many: usize) {
        if many > 0 {
            *self.0.entry(what).or_default() += many as u64;
        }
    }

    pub fn set(&mut self, what: &'static str, count: u64) {
        self.0.insert(what, count);
    }

    pub fn join(&mut self, other: &Counts) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    pub fn never_happened(&self, must: &[&'static str]) -> Vec<&'static str> {
        must.iter().copied().filter(|what| !self.0.contains_key(what)).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.0 {
            writeln!(f, "{count:>12} {what}")?;
        }
        Ok(())
    }
}
