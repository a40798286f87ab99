//! Questions over several nodes: a stuck one, or a stuck process of one, delays nobody for long and hides nothing.

use std::time::Duration;

use hoplo_base::limits::{
    FAR_ANSWER_BYTES_MAX, FAR_ANSWER_PART_BYTES, INSPECT_PATIENCE, INSPECT_PATIENCE_FAR,
    QUERIES_OF_NODE_MAX,
};
use hoplo_wire::Reason;
use hoplo_wire::peer::Peer;
use hoplo_wire::why::{Link, Question as WhyQuestion, Thing, Told};

use super::*;
use crate::node::{Asker, Here, Logs, OfDead, Others, Report};

impl Nodes {
    fn asks(&mut self, at: usize, from: ProcessId, request: u64, kind: &str, argument: &str) {
        self.shells[at].asks(from, request, kind, argument);
        self.settle();
    }

    /// Shells write what they are to write for other nodes, too: who they are.
    fn settle(&mut self) {
        self.write(&|at| format!("\"part {at}\""));
    }

    fn write(&mut self, text: &dyn Fn(usize) -> String) {
        loop {
            self.pump();
            let mut wrote = false;
            for at in 0..self.shells.len() {
                let part = self.shells[at].take(|effect| match effect {
                    Effect::ReportPart { node, request, .. } => Some((*node, *request)),
                    _ => None,
                });
                if let Some((node, request)) = part {
                    wrote = true;
                    let result = Ok(text(at));
                    self.shells[at].hears(Event::Written { node, request, result });
                }
            }
            if !wrote {
                return;
            }
        }
    }

    fn waits(&mut self, time: Duration) {
        for shell in &mut self.shells {
            shell.waits(time);
        }
        self.settle();
    }

    fn others(&mut self, at: usize, asker: ProcessId, request: u64) -> Option<Others> {
        self.shells[at].whole_report(asker, request).map(|(_, others)| others)
    }

    fn lines(&mut self, at: usize, asker: ProcessId, request: u64) -> Option<Vec<String>> {
        let (report, others) = self.shells[at].whole_report(asker, request)?;
        assert!(others.missing.is_empty(), "who is missing in a chain is in its lines");
        match report {
            Report::Why { lines, .. } => Some(lines),
            other => panic!("no chain: {other:?}"),
        }
    }

    /// Each process answers each round of a chain with what it knows, until nobody is asked any more.
    fn explain(&mut self, knows: &[(usize, ProcessId, Vec<Link>)]) {
        loop {
            let mut asked = false;
            for (at, process, links) in knows {
                while let Some((round, question)) = self.shells[*at].question(*process) {
                    asked = true;
                    let told = match question {
                        WhyQuestion::Named(text) => {
                            let named = |link: &&Link| link.of.to_string() == text;
                            let of = links.iter().find(named).map(|link| link.of);
                            Told::Things(of.into_iter().collect())
                        }
                        WhyQuestion::Links(things) => {
                            let known = |link: &&Link| things.contains(&link.of);
                            Told::Links(links.iter().filter(known).cloned().collect())
                        }
                    };
                    self.shells[*at].says(*process, ToNode::Explained { request: round, told });
                    self.settle();
                }
            }
            if !asked {
                return;
            }
        }
    }
}

fn told(others: &Others) -> Vec<(NodeNumber, &str)> {
    others.told.iter().map(|(node, json)| (*node, json.as_str())).collect()
}

fn waits(of: Thing, says: impl Into<Reason>, waits_for: &[Thing]) -> Link {
    Link { of, says: says.into(), waits_for: waits_for.to_vec(), only: true }
}

#[test]
fn a_head_that_is_known_to_be_silent_delays_no_answer() {
    let mut nodes = Nodes::new(3);
    let tool = nodes.shells[1].tool();
    let since = nodes.shells[1].now;
    nodes.shells[1].hears(Event::HeadSilent { since });
    nodes.waits(Duration::from_secs(8));
    nodes.asks(1, tool, 1, "tasks", "");
    let others = nodes.others(1, tool, 1).expect("nobody else is awaited");
    assert_eq!(told(&others), [(number(2), "\"part 2\"")]);
    assert!(
        others.missing[0].contains("has not answered for 8 s: what only it knows"),
        "{:?}",
        others.missing
    );
    nodes.shells[1].hears(Event::HeadHeard);
    nodes.asks(1, tool, 2, "tasks", "");
    assert_eq!(told(&nodes.others(1, tool, 2).unwrap()).len(), 2);
}

/// What waited for it said that it was running, or next in line: only the log named the node.
#[test]
fn a_node_that_is_not_reached_is_named_and_delays_no_answer() {
    let mut nodes = Nodes::new(3);
    let tool = nodes.shells[1].tool();
    let (node, since) = (number(2), nodes.shells[1].now);
    nodes.shells[1].hears(Event::NodeUnreached { node, since });
    nodes.waits(Duration::from_secs(8));
    nodes.stuck = Some(2);
    nodes.asks(1, tool, 1, "tasks", "");
    let others = nodes.others(1, tool, 1).expect("that one is not awaited");
    assert_eq!(told(&others), [(number(0), "\"part 0\"")]);
    let why = format!("{node} (host2, somewhere) has not been reached from {} for 8 s", number(1));
    assert!(others.missing[0].starts_with(&why), "{:?}", others.missing);
    nodes.shells[1].hears(Event::NodeReached { node });
    nodes.stuck = None;
    nodes.asks(1, tool, 2, "tasks", "");
    assert_eq!(told(&nodes.others(1, tool, 2).unwrap()).len(), 2);
}

/// While the head was away, and until a node had heard of the next one, there were no placement groups.
#[test]
fn without_a_head_nobody_says_that_there_are_no_placement_groups() {
    for count in [2, 3] {
        let mut nodes = Nodes::new(count);
        let tool = nodes.shells[1].tool();
        let mut request = 0;
        let mut asks = |nodes: &mut Nodes| {
            request += 1;
            nodes.asks(1, tool, request, "placement_groups", "");
            nodes.others(1, tool, request).expect("nobody is awaited any more")
        };
        assert_eq!(told(&asks(&mut nodes)), [(number(0), "\"part 0\"")], "who else would know?");
        let since = nodes.shells[1].now;
        nodes.shells[1].hears(Event::HeadSilent { since });
        nodes.waits(Duration::from_secs(8));
        let silent = asks(&mut nodes).missing;
        nodes.dies(0);
        let dead = asks(&mut nodes).missing;
        for missing in [silent, dead] {
            let says = "the head (somewhere) has not answered for 8 s: what only it knows";
            assert!(missing.len() == 1 && missing[0].starts_with(says), "{missing:?}");
        }
        nodes.joins_as_head();
        let others = asks(&mut nodes);
        assert!(others.missing.is_empty() && others.told.len() == 1, "{others:?}");
    }
}

#[test]
fn all_nodes_are_asked_at_once_and_each_answers_for_itself() {
    let mut nodes = Nodes::new(3);
    let tool = nodes.shells[0].tool();
    let far = nodes.shells[1].driver();
    nodes.asks(0, tool, 1, "tasks", "");
    assert_eq!(nodes.others(0, tool, 1), None, "a driver of the second node is awaited");
    let round = nodes.shells[1].inspected(far).unwrap();
    nodes.shells[1].is_told(far, round);
    nodes.settle();
    let others = nodes.others(0, tool, 1).unwrap();
    let mut parts = told(&others);
    parts.sort_unstable();
    assert_eq!(parts, [(number(1), "\"part 1\""), (number(2), "\"part 2\"")]);
    assert!(others.missing.is_empty());
    assert!(nodes.shells.iter().all(|shell| shell.node.rounds().count() == 0));
}

#[test]
fn what_daemons_know_alone_is_asked_of_all_of_them_and_the_node_table_of_nobody() {
    let mut nodes = Nodes::new(2);
    let tool = nodes.shells[0].tool();
    for (request, kind) in
        ["actors", "objects", "workers", "available_resources"].iter().enumerate()
    {
        nodes.asks(0, tool, request as u64, kind, "");
        let others = nodes.others(0, tool, request as u64).unwrap();
        assert_eq!(told(&others), [(number(1), "\"part 1\"")], "{kind}");
    }
    nodes.stuck = Some(1);
    nodes.asks(0, tool, 9, "workers", "here");
    assert_eq!(nodes.others(0, tool, 9), Some(Others::default()));
    for (request, kind) in ["nodes", "cluster_resources"].iter().enumerate() {
        nodes.asks(0, tool, request as u64, kind, "");
        assert_eq!(nodes.others(0, tool, request as u64), Some(Others::default()), "{kind}");
    }
}

#[test]
fn logs_are_asked_of_all_nodes_or_of_those_that_are_named() {
    let mut nodes = Nodes::new(3);
    let tool = nodes.shells[0].tool();
    nodes.asks(0, tool, 1, "logs", "all which");
    assert_eq!(told(&nodes.others(0, tool, 1).unwrap()).len(), 2);
    // Who is not asked holds up nobody.
    nodes.stuck = Some(1);
    let named = format!("{:06x} which", number(2).number());
    nodes.asks(0, tool, 2, "logs", &named);
    let (report, others) = nodes.shells[0].whole_report(tool, 2).unwrap();
    let logs = Logs { nodes: Some([number(2).number()].into()), wanted: "which".to_string() };
    assert_eq!(report, Report::Here(Here::Logs(logs)));
    assert_eq!((told(&others), others.missing.len()), (vec![(number(2), "\"part 2\"")], 0));
    nodes.asks(0, tool, 3, "logs", "all which");
    assert_eq!(nodes.others(0, tool, 3), None);
    nodes.waits(INSPECT_PATIENCE);
    let others = nodes.others(0, tool, 3).unwrap();
    assert_eq!((told(&others).len(), others.missing.len()), (1, 1));
}

#[test]
fn a_stuck_node_is_named_after_a_second_and_everything_else_is_shown() {
    let mut nodes = Nodes::new(3);
    let tool = nodes.shells[0].tool();
    nodes.stuck = Some(1);
    nodes.asks(0, tool, 1, "actors", "");
    assert_eq!(nodes.others(0, tool, 1), None);
    nodes.waits(INSPECT_PATIENCE);
    let (report, others) = nodes.shells[0].whole_report(tool, 1).unwrap();
    assert_eq!(report, Report::Here(Here::Actors(OfDead::Most(usize::MAX))));
    assert_eq!(told(&others), [(number(2), "\"part 2\"")]);
    assert_eq!(others.missing, [format!("{} (host1) did not answer within 1 s", number(1))]);
    // What it says later is nothing.
    let late = Peer::Answer { request: 1, result: Ok("late".to_string()), more: false };
    let (from, message) = (number(1), Box::new(late));
    nodes.shells[0].hears(Event::Peer { from, cover: 0, message });
    assert!(nodes.shells[0].is_silent());
}

#[test]
fn a_stuck_process_of_another_node_costs_the_answer_itself_and_not_its_node() {
    let mut nodes = Nodes::new(2);
    let tool = nodes.shells[0].tool();
    nodes.shells[1].driver();
    nodes.asks(0, tool, 1, "tasks", "");
    nodes.waits(INSPECT_PATIENCE_FAR);
    let others = nodes.others(0, tool, 1).unwrap();
    assert_eq!(told(&others), [(number(1), "\"part 1\"")]);
    assert!(others.missing.is_empty());
}

#[test]
fn a_node_that_dies_while_it_is_asked_is_awaited_no_longer_and_asks_no_longer() {
    let mut nodes = Nodes::new(3);
    let (tool, far_tool) = (nodes.shells[0].tool(), nodes.shells[1].tool());
    let driver = nodes.shells[0].driver();
    nodes.asks(1, far_tool, 7, "tasks", "");
    let asks_here =
        |nodes: &Nodes| nodes.shells[0].node.rounds().any(|it| it.asker == Asker::Node(number(1)));
    assert!(asks_here(&nodes));
    nodes.stuck = Some(1);
    nodes.asks(0, tool, 1, "objects", "");
    nodes.dies(1);
    nodes.settle();
    let others = nodes.others(0, tool, 1).unwrap();
    assert_eq!(told(&others), [(number(2), "\"part 2\"")]);
    assert!(others.missing[0].contains("(host1) died while it was asked: it fell"), "{others:?}");
    assert!(!asks_here(&nodes));
    assert!(nodes.shells[0].inspected(driver).is_some(), "it was asked before");
}

#[test]
fn a_question_that_is_no_question_to_a_node_is_refused_there() {
    let mut nodes = Nodes::new(2);
    for kind in ["why", "chain", "control", "rubbish"] {
        let query =
            Peer::Query { request: 5, kind: kind.to_string(), argument: "task:1-1".to_string() };
        let (from, message) = (number(1), Box::new(query));
        nodes.shells[0].hears(Event::Peer { from, cover: 0, message });
        let refusal = nodes.shells[0].take(|effect| match effect {
            Effect::SendPeer { message, .. } => match &**message {
                Peer::Answer { request: 5, result: Err(why), more: false } => Some(why.clone()),
                _ => None,
            },
            _ => None,
        });
        assert!(refusal.unwrap().contains(kind));
    }
}

#[test]
fn one_node_with_many_questions_had_those_of_this_node_refused() {
    let mut nodes = Nodes::new(2);
    nodes.shells[0].driver();
    let tool = nodes.shells[0].tool();
    for request in 0..=QUERIES_OF_NODE_MAX as u64 {
        let query = Peer::Query { request, kind: "tasks".to_string(), argument: String::new() };
        let (from, message) = (number(1), Box::new(query));
        nodes.shells[0].hears(Event::Peer { from, cover: 0, message });
    }
    let of_node = |shell: &Shell| shell.node.rounds().count();
    assert_eq!(of_node(&nodes.shells[0]), QUERIES_OF_NODE_MAX);
    nodes.shells[0].asks(tool, 1, "tasks", "");
    assert_eq!(of_node(&nodes.shells[0]), QUERIES_OF_NODE_MAX + 1);
}

#[test]
fn a_long_answer_comes_in_parts_and_one_that_is_too_long_is_named_as_such() {
    let mut nodes = Nodes::new(2);
    let tool = nodes.shells[0].tool();
    let long = "é".repeat(FAR_ANSWER_PART_BYTES + 1);
    nodes.shells[0].asks(tool, 1, "objects", "");
    nodes.write(&|_| long.clone());
    let others = nodes.others(0, tool, 1).unwrap();
    assert_eq!(told(&others), [(number(1), long.as_str())]);
    nodes.shells[0].asks(tool, 2, "objects", "");
    nodes.write(&|_| "x".repeat(FAR_ANSWER_BYTES_MAX + 1));
    let others = nodes.others(0, tool, 2).unwrap();
    assert!(others.told.is_empty());
    assert!(others.missing[0].contains("(host1): what it has to tell is 16.0 MiB"), "{others:?}");
}

#[test]
fn an_answer_that_was_cut_off_by_its_nodes_death_is_no_answer() {
    let mut nodes = Nodes::new(2);
    let tool = nodes.shells[0].tool();
    nodes.stuck = Some(1);
    nodes.asks(0, tool, 1, "objects", "");
    let begun = Peer::Answer { request: 1, result: Ok("[1,".to_string()), more: true };
    let (from, message) = (number(1), Box::new(begun));
    nodes.shells[0].hears(Event::Peer { from, cover: 0, message });
    nodes.dies(1);
    let others = nodes.others(0, tool, 1).unwrap();
    assert!(others.told.is_empty());
    assert_eq!(others.missing.len(), 1);
}

/// A task of a driver of the first node runs in a worker of the second one.
fn placed_far(nodes: &mut Nodes) -> (ProcessId, ProcessId, TaskId) {
    let driver = nodes.shells[0].driver();
    nodes.demand(driver, 2.0);
    let worker = nodes.forks(1);
    nodes.granted(driver);
    (driver, worker, TaskId { owner: driver, seq: 3 })
}

#[test]
fn a_chain_is_followed_over_two_nodes_whichever_is_asked_and_processes_are_told_with_their_host() {
    for at in 0..2 {
        let mut nodes = Nodes::new(2);
        let (driver, worker, task) = placed_far(&mut nodes);
        let tool = nodes.shells[at].tool();
        let object = Thing::Object(task.object(0));
        let placed = Thing::Placed(worker, task);
        let in_worker = Reason::from(format!("{task} was placed in ")).and(worker);
        let of_driver = vec![
            waits(object, format!("{object} is made by {task}"), &[Thing::Task(task)]),
            waits(Thing::Task(task), in_worker, &[placed]),
        ];
        let runs = Reason::from(format!("{task} has run for 1.0 s in ")).and(worker);
        let called = Reason::from(", in f at p.py:3, for ").and(driver);
        let of_worker = vec![Link::end(placed, runs.and(called))];
        nodes.asks(at, tool, 1, "why", &object.to_string());
        nodes.explain(&[(0, driver, of_driver), (1, worker, of_worker)]);
        let lines = nodes.lines(at, tool, 1).unwrap();
        let (near, far) = if at == 0 { ("", ", host1") } else { (", host0", "") };
        assert_eq!(lines[0], format!("{object} is made by {task}"));
        let of_worker = format!("{worker} (worker, pid 42{far})");
        assert_eq!(lines[1], format!("  {task} was placed in {of_worker}"));
        let of_driver = format!("{driver} (driver, pid 7{near})");
        assert_eq!(
            lines[2],
            format!("    {task} has run for 1.0 s in {of_worker}, in f at p.py:3, for {of_driver}")
        );
        assert!(nodes.shells.iter().all(|shell| shell.node.rounds().count() == 0));
    }
}

#[test]
fn an_object_that_waits_for_nothing_was_known_to_nobody_but_its_home() {
    let mut nodes = Nodes::new(3);
    let driver = nodes.shells[1].driver();
    let object = ObjectId { task: TaskId { owner: driver, seq: 3 }, index: 0 };
    let value = hoplo_wire::Value::Inline((*b"x").into());
    let state = SharedState::Value { value, contains: vec![] };
    nodes.says(1, driver, ToNode::Notices(vec![Notice::Shared { object, state }]));
    let tool = nodes.shells[0].tool();
    nodes.stuck = Some(2);
    nodes.asks(0, tool, 1, "why", &object.to_string());
    nodes.explain(&[(1, driver, vec![])]);
    nodes.waits(INSPECT_PATIENCE);
    nodes.explain(&[(1, driver, vec![])]);
    let (report, others) = nodes.shells[0].whole_report(tool, 1).unwrap();
    let late = format!("{} (host2) did not answer within 1 s", number(2));
    let Report::Why { lines, .. } = report else { panic!("no chain: {report:?}") };
    assert_eq!(lines, [late]);
    assert_eq!(told(&others), [(number(1), "\"part 1\"")]);
    assert!(!nodes.shells[1].node.memories(object.to_string().parse().unwrap()).is_empty());
}

#[test]
fn a_deadlock_over_two_nodes_is_found() {
    let mut nodes = Nodes::new(2);
    let (driver, worker, task) = placed_far(&mut nodes);
    let tool = nodes.shells[0].tool();
    let other = TaskId { owner: worker, seq: 1 };
    let of_driver = vec![
        waits(Thing::Task(task), "one", &[Thing::Placed(worker, task)]),
        waits(Thing::Placed(driver, other), "four", &[Thing::Task(task)]),
    ];
    let of_worker = vec![
        waits(Thing::Placed(worker, task), "two", &[Thing::Task(other)]),
        waits(Thing::Task(other), "three", &[Thing::Placed(driver, other)]),
    ];
    nodes.asks(0, tool, 1, "chain", &task.to_string());
    nodes.explain(&[(0, driver, of_driver), (1, worker, of_worker)]);
    let lines = nodes.lines(0, tool, 1).unwrap();
    let circle = format!("deadlock: {task} waits for {other} waits for {task}");
    assert!(lines.last().unwrap().starts_with(&circle), "{lines:?}");
}

#[test]
fn a_node_that_is_stuck_delays_a_chain_once_and_what_is_known_elsewhere_is_told() {
    let mut nodes = Nodes::new(2);
    let (driver, worker, task) = placed_far(&mut nodes);
    nodes.joins();
    let tool = nodes.shells[0].tool();
    let placed = Thing::Placed(worker, task);
    let of_driver = vec![waits(Thing::Task(task), "it was placed", &[placed])];
    let of_worker = vec![Link::end(placed, "it runs")];
    nodes.stuck = Some(2);
    nodes.asks(0, tool, 1, "chain", &task.to_string());
    let knows = [(0, driver, of_driver), (1, worker, of_worker)];
    nodes.explain(&knows);
    assert_eq!(nodes.lines(0, tool, 1), None);
    nodes.waits(INSPECT_PATIENCE);
    nodes.explain(&knows);
    let lines = nodes.lines(0, tool, 1).expect("no round waits for it again");
    let late = format!("{} (host2) did not answer within 1 s", number(2));
    assert_eq!(lines, ["it was placed".to_string(), "  it runs".to_string(), late]);
}

#[test]
fn a_stuck_process_of_another_node_is_named_with_its_host_and_asked_once() {
    let mut nodes = Nodes::new(2);
    let (driver, worker, task) = placed_far(&mut nodes);
    let tool = nodes.shells[0].tool();
    let placed = Thing::Placed(worker, task);
    let of_driver = vec![waits(Thing::Task(task), "it was placed", &[placed])];
    nodes.asks(0, tool, 1, "chain", &task.to_string());
    let knows = [(0, driver, of_driver)];
    nodes.explain(&knows);
    nodes.waits(INSPECT_PATIENCE_FAR);
    nodes.explain(&knows);
    let lines = nodes.lines(0, tool, 1).expect("it is not asked again");
    assert_eq!(lines[..1], ["it was placed"]);
    let late = format!("{worker} (worker, pid 42, host1) did not answer within 1 s");
    assert_eq!(lines.last(), Some(&late));
    assert!(nodes.shells[1].question(worker).is_some());
    assert!(nodes.shells[1].question(worker).is_none(), "once");
}

#[test]
fn a_task_in_a_worker_of_a_node_that_lives_was_told_as_gone() {
    let mut nodes = Nodes::new(2);
    let (driver, worker, task) = placed_far(&mut nodes);
    let tool = nodes.shells[0].tool();
    let of_driver = vec![waits(Thing::Task(task), "it was placed", &[Thing::Placed(worker, task)])];
    let knows = [(0, driver, of_driver), (1, worker, vec![])];
    nodes.asks(0, tool, 1, "chain", &task.to_string());
    nodes.explain(&knows);
    assert_eq!(nodes.lines(0, tool, 1).unwrap(), ["it was placed"]);
    nodes.dies(1);
    nodes.asks(0, tool, 2, "chain", &task.to_string());
    nodes.explain(&knows[..1]);
    let lines = nodes.lines(0, tool, 2).unwrap();
    assert!(lines[1].contains("which is gone"), "{lines:?}");
}
