//! Linearizability of each key by itself: an order of the operations exists in which each takes effect at one moment
//! between its call and its end, and every outcome is right.
//!
//! The search is that of Wing and Gong (*Testing and Verifying Concurrent Objects*, 1993), which remembers where it was
//! (Lowe, *Testing for linearizability*, 2017). Linearizability is what chain replication promises (van Renesse
//! and Schneider 2004, section 2: "strong consistency"); as all operations are on single keys, a history is linearizable
//! if that of each key is. It sees only what clients see: real processes are judged by it as well.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_wire::control::{Key, Outcome};

/// One operation on one key, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Any clock that all clients share.
    pub called: u64,
    /// Absent: it is not known whether it had an effect, it may still have one.
    pub ended: Option<u64>,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// `outcome`: absent if the operation has no end.
    Put {
        value: Vec<u8>,
        expected: Option<u64>,
        outcome: Option<Outcome>,
    },
    Delete {
        expected: Option<u64>,
        outcome: Option<Outcome>,
    },
    /// Value and version that were found. A query that got no answer is left out.
    Get {
        found: Option<(Vec<u8>, u64)>,
    },
}

impl Operation {
    fn expected(&self) -> Option<u64> {
        match self.what {
            What::Put { expected, .. } | What::Delete { expected, .. } => expected,
            What::Get { .. } => None,
        }
    }

    /// Wherever it stands, it changes nothing. (A delete that finds no row here may have deleted one.)
    fn only_looks(&self) -> bool {
        match &self.what {
            What::Put { outcome, .. } | What::Delete { outcome, .. } => {
                matches!(outcome, Some(Outcome::Conflict { .. }))
            }
            What::Get { .. } => true,
        }
    }
}

/// Operations by key.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub keys: BTreeMap<Key, Vec<Operation>>,
}

impl History {
    pub fn add(&mut self, key: Key, operation: Operation) {
        self.keys.entry(key).or_default().push(operation);
    }

    /// How many keys have more orders than could be tried; or the first key without one, and what was done to it.
    pub fn check(&self) -> Result<usize, String> {
        let mut undecided = 0;
        for (key, operations) in &self.keys {
            let decided = check_key(operations).map_err(|story| {
                let name = String::from_utf8_lossy(&key.bytes).into_owned();
                format!("{:?}/{name} is not linearizable:\n{story}", key.table)
            })?;
            undecided += usize::from(!decided);
        }
        Ok(undecided)
    }
}

/// What a key holds: a value and its version.
type State = Option<(usize, u64)>;

struct Search<'a> {
    operations: &'a [Operation],
    /// Positions in the order of `called`.
    order: Vec<usize>,
    /// Values that were read by number, so that a state is small; the others are `UNREAD`.
    values: BTreeMap<&'a [u8], usize>,
    seen: BTreeSet<(Vec<u64>, State)>,
    deepest: usize,
}

const UNREAD: usize = 0;

/// Dozens of writes of one key that were open at once may have more orders than memory holds. (In simulation, what
/// clients were told is compared with the history that happened as well.)
const SEEN_MAX: usize = 200_000;

/// False: it is not decided.
fn check_key(operations: &[Operation]) -> Result<bool, String> {
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|&at| operations[at].called);
    // What nobody read is one value: so writes of it can stand for each other.
    let mut values = BTreeMap::new();
    for operation in operations {
        if let What::Get { found: Some((value, _)) } = &operation.what {
            let number = values.len() + 1;
            values.entry(value.as_slice()).or_insert(number);
        }
    }
    let mut search = Search { operations, order, values, seen: BTreeSet::new(), deepest: 0 };
    let words = operations.len().div_ceil(64);
    let found = search.goes_on(&mut vec![0; words], None, 0);
    let over = search.seen.len() > SEEN_MAX;
    if found || over { Ok(found) } else { Err(search.story()) }
}

impl Search<'_> {
    /// From this state the rest can be put in order.
    fn goes_on(&mut self, done: &mut Vec<u64>, state: State, count: usize) -> bool {
        let is_done = |done: &[u64], at: usize| done[at / 64] >> (at % 64) & 1 == 1;
        let open = self.order.iter().copied().filter(|&at| !is_done(done, at));
        let first_end = open.clone().filter_map(|at| self.operations[at].ended).min();
        let Some(first_end) = first_end else { return true };
        self.deepest = self.deepest.max(count);
        if !self.seen.insert((done.clone(), state)) {
            return false;
        }
        if self.seen.len() > SEEN_MAX {
            return false;
        }
        let mut next: Vec<usize> =
            open.take_while(|&at| self.operations[at].called <= first_end).collect();
        // What may have had no effect comes last, only if it changes something, and one of several alike.
        next.sort_by_key(|&at| self.operations[at].ended.unwrap_or(u64::MAX));
        let mut tried: Vec<(State, Option<u64>)> = Vec::new();
        for at in next {
            let operation = &self.operations[at];
            let Some(after) = self.applied(state, operation) else { continue };
            if operation.ended.is_none() {
                let same = (after, operation.expected());
                if after == state || tried.contains(&same) {
                    continue;
                }
                tried.push(same);
            }
            done[at / 64] |= 1 << (at % 64);
            if self.goes_on(done, after, count + 1) {
                return true;
            }
            done[at / 64] &= !(1 << (at % 64));
            if operation.only_looks() {
                // It fits here: an order in which it comes later would be one as well if it came now.
                return false;
            }
        }
        false
    }

    /// The state after the operation; absent if its outcome would be another one.
    fn applied(&self, state: State, operation: &Operation) -> Option<State> {
        let version = state.map_or(0, |(_, version)| version);
        let (expected, outcome, after) = match &operation.what {
            What::Get { found } => {
                let found = found
                    .as_ref()
                    .map(|(value, version)| (self.values[value.as_slice()], *version));
                return (found == state).then_some(state);
            }
            What::Put { value, expected, outcome } => (
                expected,
                outcome,
                Some((self.values.get(value.as_slice()).copied().unwrap_or(UNREAD), version + 1)),
            ),
            What::Delete { expected, outcome } => (expected, outcome, None),
        };
        let conflict = expected.is_some_and(|expected| expected != version);
        let (right, after) = if conflict {
            (Outcome::Conflict { found: version }, state)
        } else {
            (Outcome::Done { version: after.map_or(0, |(_, version)| version) }, after)
        };
        outcome.is_none_or(|outcome| outcome == right).then_some(after)
    }

    fn story(&self) -> String {
        let lines = self.order.iter().map(|&at| {
            let Operation { called, ended, what } = &self.operations[at];
            let ended = ended.map_or("?".to_string(), |ended| format!("{:.3}", ended as f64 / 1e6));
            let what = match what {
                What::Put { value, expected, outcome } => format!(
                    "put {:?} expecting {expected:?}: {outcome:?}",
                    String::from_utf8_lossy(value)
                ),
                What::Delete { expected, outcome } => {
                    format!("delete expecting {expected:?}: {outcome:?}")
                }
                What::Get { found } => format!(
                    "get: {:?}",
                    found.as_ref().map(|(value, version)| {
                        (String::from_utf8_lossy(value).into_owned(), *version)
                    })
                ),
            };
            format!("  {:>12.3} to {ended:>12} ms  {what}\n", *called as f64 / 1e6)
        });
        let all: String = lines.collect();
        format!("{all}  (at most {} of {} could be put in order)", self.deepest, self.order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(called: u64, ended: Option<u64>, value: &str, version: u64) -> Operation {
        let outcome = ended.map(|_| Outcome::Done { version });
        let what = What::Put { value: value.into(), expected: None, outcome };
        Operation { called, ended, what }
    }

    fn get(called: u64, ended: u64, found: Option<(&str, u64)>) -> Operation {
        let found = found.map(|(value, version)| (value.as_bytes().to_vec(), version));
        Operation { called, ended: Some(ended), what: What::Get { found } }
    }

    #[test]
    fn a_read_of_a_concurrent_or_unknown_write_is_fine() {
        assert_eq!(check_key(&[put(0, Some(10), "a", 1), get(5, 6, Some(("a", 1)))]), Ok(true));
        assert_eq!(check_key(&[put(0, Some(10), "a", 1), get(5, 6, None)]), Ok(true));
        assert_eq!(check_key(&[put(0, None, "a", 1), get(50, 60, Some(("a", 1)))]), Ok(true));
        assert_eq!(check_key(&[put(0, None, "a", 1), get(50, 60, None)]), Ok(true));
    }

    /// Seed 22: the delete fits at once, and has to wait for the put.
    #[test]
    fn a_delete_that_finds_nothing_may_come_later_and_delete_something() {
        let outcome = Some(Outcome::Done { version: 0 });
        let what = What::Delete { expected: None, outcome };
        let delete = Operation { called: 0, ended: Some(10), what };
        let history = [delete, put(1, Some(9), "a", 1), get(11, 12, None)];
        assert_eq!(check_key(&history), Ok(true));
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = [put(0, Some(1), "a", 1), put(2, Some(3), "b", 2), get(4, 5, Some(("a", 1)))];
        assert!(check_key(&history).is_err());
        let twice = [put(0, None, "a", 1), get(2, 3, Some(("a", 1))), get(4, 5, None)];
        assert!(check_key(&twice).is_err());
    }

    #[test]
    fn a_lost_and_a_doubled_write_are_found() {
        let lost = [put(0, Some(1), "a", 1), put(2, Some(3), "b", 1)];
        assert!(check_key(&lost).is_err());
        let doubled = [put(0, Some(1), "a", 1), get(2, 3, Some(("a", 2)))];
        assert!(check_key(&doubled).is_err());
    }

    #[test]
    fn compare_and_swap_and_delete_count_versions() {
        let cas = |called, expected, outcome| Operation {
            called,
            ended: Some(called + 1),
            what: What::Put {
                value: b"c".to_vec(),
                expected: Some(expected),
                outcome: Some(outcome),
            },
        };
        let delete = Operation {
            called: 4,
            ended: Some(5),
            what: What::Delete { expected: None, outcome: Some(Outcome::Done { version: 0 }) },
        };
        let history = [
            put(0, Some(1), "a", 1),
            cas(2, 0, Outcome::Conflict { found: 1 }),
            delete,
            cas(6, 0, Outcome::Done { version: 1 }),
        ];
        assert_eq!(check_key(&history), Ok(true));
        let mut wrong = history.clone();
        wrong[1].what = cas(2, 0, Outcome::Done { version: 1 }).what;
        assert!(check_key(&wrong).is_err());
    }
}
