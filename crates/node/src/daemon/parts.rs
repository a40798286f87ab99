//! Answers of all nodes, put together: what each daemon wrote of its own node becomes one answer, of the shape that a node by itself gives.
//!
//! | kind | all of them together |
//! |---|---|
//! | available_resources, summary | sums, by name |
//! | actors, jobs, objects, workers, past_processes, timeline | all rows; each says its node |
//! | logs | what each node told |
//! | tasks | all rows, how many more there are, and which have begun |
//! | history | all runs, and what the clock of each node says |
//! | why | this node's lines, then what others remember of the thing |
//! | status | this node's, with those of `others` |
//!
//! A home does not know the pid of an actor that lives elsewhere. So an answer about actors says as well which actors of other homes live
//! at its node (`hosted`), and the rows get their pids when all is together.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_core::node::{Everywhere, Here, Report};
use serde_json::{Map, Value, json};

/// How parts become one.
#[derive(Clone, Copy)]
pub(super) enum Whole {
    Sum,
    Rows,
    Actors,
    Tasks,
    History,
    Status,
    /// Each with its node.
    Lines,
    /// Nobody else is asked.
    Alone,
}

impl Whole {
    pub(super) fn of(report: &Report) -> Self {
        match report {
            Report::Here(Here::AvailableResources) => Self::Sum,
            Report::Here(Here::Actors(_)) => Self::Actors,
            Report::Here(
                Here::Objects
                | Here::Jobs
                | Here::Locations(_)
                | Here::Workers
                | Here::PastProcesses
                | Here::PlacementGroups
                | Here::Logs(_),
            ) => Self::Rows,
            Report::Here(Here::Nodes | Here::ClusterResources | Here::Control(_)) => Self::Alone,
            Report::Everywhere { subject, .. } => match subject {
                Everywhere::Status => Self::Status,
                Everywhere::Summary => Self::Sum,
                Everywhere::Tasks => Self::Tasks,
                Everywhere::Timeline => Self::Rows,
                Everywhere::History { .. } => Self::History,
            },
            Report::Drain { .. } => Self::Alone,
            Report::Why { .. } => Self::Lines,
        }
    }

    /// Of this node's part, and of those of others with their names.
    pub(super) fn made(self, mut own: Value, others: Vec<(String, Value)>) -> Value {
        match self {
            Self::Alone => own,
            Self::Lines => lines(own, others),
            Self::Sum => sum(all(own, others)),
            Self::Rows => rows(all(own, others)),
            Self::Actors => actors(all(own, others)),
            Self::Tasks => tasks(all(own, others)),
            Self::History => history(all(own, others)),
            Self::Status => {
                if !others.is_empty() {
                    own["others"] = others.into_iter().map(|(_, status)| status).collect();
                }
                own
            }
        }
    }
}

fn all(own: Value, others: Vec<(String, Value)>) -> impl Iterator<Item = Value> {
    std::iter::once(own).chain(others.into_iter().map(|(_, part)| part))
}

pub(super) fn sum(parts: impl Iterator<Item = Value>) -> Value {
    let mut sums: Map<String, Value> = Map::new();
    for part in parts {
        let Value::Object(part) = part else { continue };
        for (name, amount) in part {
            let before = sums.get(&name);
            let sum = match (before.and_then(Value::as_u64), amount.as_u64()) {
                (Some(before), Some(amount)) => json!(before.saturating_add(amount)),
                _ => match before.and_then(Value::as_f64) {
                    Some(before) => json!(before + amount.as_f64().unwrap_or_default()),
                    None => amount,
                },
            };
            sums.insert(name, sum);
        }
    }
    Value::Object(sums)
}

pub(super) fn rows(parts: impl Iterator<Item = Value>) -> Value {
    let mut rows = Vec::new();
    for part in parts {
        match part {
            Value::Array(more) => rows.extend(more),
            Value::Null => {}
            one => rows.push(one),
        }
    }
    Value::Array(rows)
}

pub(super) fn tasks(parts: impl Iterator<Item = Value>) -> Value {
    let (mut rows, mut more) = (Vec::new(), 0u64);
    let (mut begun, mut begins_all) = (Vec::new(), Vec::new());
    for mut part in parts {
        if let Some(Value::Array(calls)) = part.get_mut("begun").map(Value::take) {
            begun.extend(calls);
        }
        // Of a process, or of a node.
        match part.get_mut("begins_all").map(Value::take) {
            Some(Value::Array(processes)) => begins_all.extend(processes),
            Some(process @ Value::String(_)) => begins_all.push(process),
            Some(_) | None => {}
        }
        more = more.saturating_add(part.get("more").and_then(Value::as_u64).unwrap_or_default());
        if let Some(Value::Array(tasks)) = part.get_mut("tasks").map(Value::take) {
            rows.extend(tasks);
        }
    }
    json!({ "tasks": rows, "more": more, "begun": begun, "begins_all": begins_all })
}

fn history(parts: impl Iterator<Item = Value>) -> Value {
    let (mut rows, mut forgotten, mut clocks) = (Vec::new(), 0u64, Map::new());
    for mut part in parts {
        let theirs = part.get("forgotten").and_then(Value::as_u64).unwrap_or_default();
        forgotten = forgotten.saturating_add(theirs);
        if let Some(Value::Array(runs)) = part.get_mut("runs").map(Value::take) {
            rows.extend(runs);
        }
        if let Some(Value::Object(clock)) = part.get_mut("clocks").map(Value::take) {
            clocks.extend(clock);
        }
    }
    json!({ "runs": rows, "forgotten": forgotten, "clocks": clocks })
}

/// What others remember, below the name of each.
fn lines(own: Value, named: Vec<(String, Value)>) -> Value {
    let mut lines = match own {
        Value::Array(lines) => lines,
        one => vec![one],
    };
    for (node, part) in named {
        let Value::Array(part) = part else { continue };
        if !part.is_empty() {
            lines.push(Value::String(format!("{node} remembers:")));
        }
        let theirs = part.iter().filter_map(Value::as_str);
        lines.extend(theirs.map(|line| Value::String(format!("  {line}"))));
    }
    Value::Array(lines)
}

fn actors(parts: impl Iterator<Item = Value>) -> Value {
    let (mut rows, mut hosted) = (Vec::new(), BTreeMap::new());
    for mut part in parts {
        if let Some(Value::Object(more)) = part.get_mut("hosted").map(Value::take) {
            hosted.extend(more);
        }
        if let Some(Value::Array(more)) = part.get_mut("rows").map(Value::take) {
            rows.extend(more);
        }
    }
    // The store's row of one that a living node has taken over comes behind that node's.
    let mut known = BTreeSet::new();
    rows.retain(|row| known.insert(row["actor_id"].to_string()));
    for row in &mut rows {
        let pid = row["actor_id"].as_str().and_then(|id| hosted.get(id));
        if let Some(pid) = pid.filter(|_| row["pid"].is_null()) {
            row["pid"] = pid.clone();
        }
    }
    Value::Array(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_are_added_and_what_only_one_has_stays() {
        let parts = [json!({"CPU": 1.5, "tasks": 2}), json!({"CPU": 2.0, "GPU": 1.0, "tasks": 3})];
        assert_eq!(sum(parts.into_iter()), json!({"CPU": 3.5, "GPU": 1.0, "tasks": 5}));
    }

    #[test]
    fn an_actor_that_lives_elsewhere_has_the_pid_that_its_worker_has_there() {
        let home = json!({"rows": [{"actor_id": "a", "pid": null}, {"actor_id": "b", "pid": 7}],
                          "hosted": {}});
        let far = json!({"rows": [], "hosted": {"a": 42, "b": 9}});
        let rows = Whole::Actors.made(home, vec![("node:1".to_string(), far)]);
        let of = json!([{"actor_id": "a", "pid": 42}, {"actor_id": "b", "pid": 7}]);
        assert_eq!(rows, of);
    }

    #[test]
    fn an_actor_that_a_living_node_has_taken_over_is_told_once() {
        let heir = json!({"rows": [{"actor_id": "a", "pid": 7, "state": "ALIVE"}], "hosted": {}});
        let dead = json!({"rows": [{"actor_id": "a", "pid": null, "state": "DEAD"},
                                   {"actor_id": "b", "pid": null, "state": "DEAD"}], "hosted": {}});
        let rows = Whole::Actors.made(heir, vec![(String::new(), dead)]);
        let of = json!([{"actor_id": "a", "pid": 7, "state": "ALIVE"},
                        {"actor_id": "b", "pid": null, "state": "DEAD"}]);
        assert_eq!(rows, of);
    }

    #[test]
    fn tasks_of_all_are_counted_and_a_part_that_is_no_answer_adds_nothing() {
        let parts = [json!({"tasks": [1], "more": 2}), Value::Null, json!({"tasks": [2, 3]})];
        let all = tasks(parts.into_iter());
        let of_two = json!({"tasks": [1, 2, 3], "more": 2, "begun": [], "begins_all": []});
        assert_eq!(all, of_two);
        let with_calls = [
            json!({"tasks": [], "begun": [1], "begins_all": null}),
            json!({"tasks": [], "begun": null, "begins_all": "a"}),
            json!({"tasks": [], "begun": [2], "begins_all": ["b", "c"]}),
        ];
        let all = tasks(with_calls.into_iter());
        assert_eq!((&all["begun"], &all["begins_all"]), (&json!([1, 2]), &json!(["a", "b", "c"])));
    }

    #[test]
    fn what_nodes_remember_is_put_together_each_with_its_clock() {
        let one = json!({"runs": [1], "forgotten": 2, "clocks": {"00000a": 5}});
        let other = json!({"runs": [2], "forgotten": 1, "clocks": {"00000b": 6}});
        let of_two = json!({"runs": [1, 2], "forgotten": 3, "clocks": {"00000a": 5, "00000b": 6}});
        assert_eq!(history([one, Value::Null, other].into_iter()), of_two);
    }

    #[test]
    fn what_others_remember_is_told_below_their_names_and_who_remembers_nothing_is_not() {
        let named = |node: &str, part| (node.to_string(), part);
        let others = vec![named("node:1 (a)", json!([])), named("node:2 (b)", json!(["it ran"]))];
        let lines = Whole::Lines.made(json!(["it waits"]), others);
        assert_eq!(lines, json!(["it waits", "node:2 (b) remembers:", "  it ran"]));
    }

    #[test]
    fn a_node_by_itself_has_no_others_in_its_status() {
        assert_eq!(Whole::Status.made(json!({"pid": 1}), vec![]), json!({"pid": 1}));
        let of_two =
            Whole::Status.made(json!({"pid": 1}), vec![("node:1".to_string(), json!({"pid": 2}))]);
        assert_eq!(of_two, json!({"pid": 1, "others": [{"pid": 2}]}));
    }
}
