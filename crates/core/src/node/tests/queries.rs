//! Questions of people and programs, while those who are asked are slow, stuck or dying.

use hoplo_base::limits::{
    INSPECT_PATIENCE, QUERIES_BYTES_MAX, QUERIES_OF_ONE_MAX, QUERIES_OPEN_MAX, WHY_PATIENCE,
    WHY_ROUNDS_MAX,
};
use hoplo_wire::Reason;
use hoplo_wire::why::{Link, Question, Thing, Told};

use super::super::{Everywhere, Here, OfDead, Others, Report};
use super::*;

impl Shell {
    pub(super) fn tool(&mut self) -> ProcessId {
        self.strangers += 1;
        let stranger = self.strangers;
        self.hears(Event::Knocked { stranger, pid: 9, message: hello(Role::Tool) });
        let accepted = self.take(|effect| match effect {
            Effect::Accept { process, .. } => Some(*process),
            _ => None,
        });
        accepted.expect("a tool is welcome")
    }

    pub(super) fn asks(&mut self, from: ProcessId, request: u64, kind: &str, argument: &str) {
        let (kind, argument) = (kind.to_string(), argument.to_string());
        self.says(from, ToNode::Query { request, kind, argument });
    }

    /// The round in which a process is asked, by `Inspect` or `Explain`.
    pub(super) fn inspected(&mut self, process: ProcessId) -> Option<u64> {
        self.told(process, |message| match message {
            ToClient::Inspect { request, .. } | ToClient::Explain { request, .. } => Some(*request),
            _ => None,
        })
    }

    pub(super) fn question(&mut self, process: ProcessId) -> Option<(u64, Question)> {
        self.told(process, |message| match message {
            ToClient::Explain { request, question } => Some((*request, question.clone())),
            _ => None,
        })
    }

    fn report(&mut self, asker: ProcessId, request: u64) -> Option<Report> {
        self.whole_report(asker, request).map(|(report, _)| report)
    }

    pub(super) fn whole_report(
        &mut self,
        asker: ProcessId,
        request: u64,
    ) -> Option<(Report, Others)> {
        self.take(|effect| match effect {
            Effect::Report { to, request: number, report, others }
                if (*to, *number) == (asker, request) =>
            {
                Some((report.clone(), others.clone()))
            }
            _ => None,
        })
    }

    pub(super) fn refusal(&mut self, asker: ProcessId) -> Option<String> {
        self.told(asker, |message| match message {
            ToClient::Answer { result: Err(why), .. } => Some(why.clone()),
            _ => None,
        })
    }

    fn asks_all_it_may(&mut self, asker: ProcessId) {
        for request in 0..QUERIES_OF_ONE_MAX as u64 {
            self.asks(asker, request, "why", "task:1-1");
        }
    }

    pub(super) fn is_told(&mut self, from: ProcessId, request: u64) {
        self.says(from, ToNode::Inspected { request, json: format!("\"{from}\"") });
    }

    /// No `Report` and no refusal goes to anybody.
    pub(super) fn is_silent(&self) -> bool {
        let answers = |effect: &Effect| {
            let refusal = matches!(effect, Effect::Send { message: ToClient::Answer { .. }, .. });
            refusal || matches!(effect, Effect::Report { .. })
        };
        !self.effects.iter().any(answers)
    }
}

fn told(report: Option<Report>) -> Vec<ProcessId> {
    match report {
        Some(Report::Everywhere { told, .. }) => told.into_iter().map(|(from, _)| from).collect(),
        other => panic!("no answer of processes: {other:?}"),
    }
}

fn lines(report: Option<Report>) -> Vec<String> {
    match report {
        Some(Report::Why { lines, .. }) => lines,
        other => panic!("no chain: {other:?}"),
    }
}

#[test]
fn what_the_daemon_knows_alone_is_answered_when_it_has_read_what_was_said_before_and_nobody_is_asked()
 {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.asks(driver, 1, "actors", "");
    assert_eq!(shell.report(driver, 1), None, "a worker's words may lie unread");
    assert!(shell.sweeps());
    assert_eq!(shell.report(driver, 1), Some(Report::Here(Here::Actors(OfDead::Most(usize::MAX)))));
    assert_eq!(shell.inspected(driver), None);
    // What its processes do not change.
    shell.asks(driver, 5, "nodes", "");
    assert_eq!(shell.report(driver, 5), Some(Report::Here(Here::Nodes)));
    shell.asks(driver, 2, "rubbish", "");
    assert!(shell.refusal(driver).unwrap().contains("no query \"rubbish\""));
    shell.asks(driver, 3, "why", "no id");
    assert!(shell.refusal(driver).is_some());
}

#[test]
fn a_question_is_passed_on_to_everybody_but_tools_and_answered_once_with_what_they_told() {
    let mut shell = Shell::new();
    let (driver, tool) = (shell.driver(), shell.tool());
    let worker = shell.worker(driver);
    let starting = shell.driver();
    shell.asks(tool, 1, "tasks", "");
    assert_eq!(shell.inspected(tool), None);
    let round = shell.inspected(driver).unwrap();
    for process in [worker, starting] {
        assert_eq!(shell.inspected(process), Some(round));
    }
    shell.is_told(driver, round);
    shell.is_told(starting, round);
    shell.is_told(starting, round);
    assert!(shell.is_silent());
    shell.is_told(worker, round);
    let report = shell.report(tool, 1);
    assert!(matches!(report, Some(Report::Everywhere { subject: Everywhere::Tasks, .. })));
    assert_eq!(told(report), [driver, starting, worker]);
    shell.waits(2 * INSPECT_PATIENCE);
    assert!(shell.is_silent());
}

#[test]
fn who_is_stuck_is_left_out_when_its_time_is_over_and_what_it_says_later_is_nothing() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.asks(driver, 1, "status", "");
    let round = shell.inspected(driver).unwrap();
    shell.is_told(driver, round);
    shell.waits(INSPECT_PATIENCE);
    assert_eq!(told(shell.report(driver, 1)), [driver]);
    shell.is_told(worker, round);
    assert!(shell.is_silent());
    assert_eq!(shell.node.rounds().count(), 0);
}

#[test]
fn a_worker_that_closed_its_connection_and_hung_kept_the_asker_waiting() {
    let mut shell = Shell::new();
    let (driver, tool) = (shell.driver(), shell.tool());
    let worker = shell.worker(driver);
    shell.asks(tool, 1, "tasks", "");
    let round = shell.inspected(driver).unwrap();
    shell.is_told(driver, round);
    // It is neither dead nor buried.
    shell.hears(Event::Closed { process: worker });
    assert!(shell.node.process(worker).is_some());
    assert_eq!(told(shell.report(tool, 1)), [driver]);
    shell.asks(tool, 2, "tasks", "");
    let round = shell.inspected(driver).unwrap();
    shell.is_told(driver, round);
    assert_eq!(told(shell.report(tool, 2)), [driver]);
}

#[test]
fn what_a_worker_that_hangs_was_given_is_told_as_gone() {
    let mut shell = Shell::new();
    let (driver, tool) = (shell.driver(), shell.tool());
    let worker = shell.worker(driver);
    let task = TaskId { owner: driver, seq: 1 };
    shell.hears(Event::Closed { process: worker });
    shell.asks(tool, 1, "chain", &task.to_string());
    let (round, _) = shell.question(driver).unwrap();
    let things = Told::Things(vec![Thing::Task(task)]);
    shell.says(driver, ToNode::Explained { request: round, told: things });
    let (round, _) = shell.question(driver).unwrap();
    let placed = Thing::Placed(worker, task);
    let says = format!("{task} was placed").into();
    let link = Link { of: Thing::Task(task), says, waits_for: vec![placed], only: true };
    shell.says(driver, ToNode::Explained { request: round, told: Told::Links(vec![link]) });
    let (round, _) = shell.question(driver).unwrap();
    shell.says(driver, ToNode::Explained { request: round, told: Told::Links(vec![]) });
    let lines = lines(shell.report(tool, 1));
    assert!(lines[1].contains("which is gone"), "{lines:?}");
}

#[test]
fn what_users_named_like_a_process_was_told_with_the_kind_and_pid_of_that_process() {
    let mut shell = Shell::new();
    let (driver, tool) = (shell.driver(), shell.tool());
    // An actor's name, and a line of the program where a call of it stands.
    let actor = shell.actor(driver, &driver.to_string());
    shell.asks(tool, 1, "chain", &actor.to_string());
    let (round, _) = shell.question(driver).unwrap();
    shell.says(driver, ToNode::Explained { request: round, told: Told::Things(vec![]) });
    let (round, _) = shell.question(driver).unwrap();
    let line = format!("in new at program.py:12: connect(\"{driver}\")");
    let says = Reason::from("its constructor runs in ").and(driver).and(format!(", {line}"));
    let told = Told::Links(vec![Link::end(Thing::Actor(actor), says)]);
    shell.says(driver, ToNode::Explained { request: round, told });
    let lines = lines(shell.report(tool, 1));
    assert_eq!(lines[0], format!("its constructor runs in {driver} (driver, pid 7), {line}"));
    assert!(lines[1].contains(&format!("Echo \"{driver}\" ({actor}) is pending")), "{lines:?}");
}

#[test]
fn a_process_slow_in_every_round_kept_the_asker_of_a_chain_waiting_longer_than_it_waits() {
    let mut shell = Shell::new();
    let (driver, tool) = (shell.driver(), shell.tool());
    let began = shell.now;
    let slow = INSPECT_PATIENCE * 9 / 10;
    shell.asks(tool, 1, "chain", "task:1-1");
    let task = |seq| Thing::Task(TaskId { owner: driver, seq });
    let mut rounds = 0;
    while let Some((round, question)) = shell.question(driver) {
        rounds += 1;
        shell.waits(slow);
        let told = match question {
            Question::Named(_) => Told::Things(vec![task(1)]),
            Question::Links(things) => {
                let next = task(rounds);
                let says = format!("it waits for {next}").into();
                Told::Links(vec![Link { of: things[0], says, waits_for: vec![next], only: true }])
            }
        };
        shell.says(driver, ToNode::Explained { request: round, told });
    }
    let lines = lines(shell.report(tool, 1));
    assert!(shell.now.since(began) <= WHY_PATIENCE, "{:?}", shell.now.since(began));
    assert!(rounds > 3 && rounds < WHY_ROUNDS_MAX as u64, "{rounds}");
    // What was heard is told, and where it stopped.
    assert_eq!(lines[0], format!("it waits for {}", task(2)));
    assert!(lines.last().unwrap().contains("and so on, from"), "{lines:?}");
}

#[test]
fn an_asker_that_leaves_is_answered_nothing_and_leaves_nothing() {
    let mut shell = Shell::new();
    let (driver, tool) = (shell.driver(), shell.tool());
    for request in 0..10 {
        shell.asks(tool, request, "why", "task:1-1");
    }
    let rounds: Vec<u64> = std::iter::from_fn(|| shell.inspected(driver)).collect();
    assert_eq!(rounds.len(), 10);
    shell.hears(Event::Closed { process: tool });
    assert_eq!(shell.node.rounds().count(), 0);
    assert_eq!(shell.node.next_deadline(), None, "NODE-2");
    for round in rounds {
        let told = Told::Things(vec![]);
        shell.says(driver, ToNode::Explained { request: round, told });
    }
    assert!(shell.is_silent());
}

#[test]
fn one_question_too_many_was_answered_as_if_no_process_ran() {
    let mut shell = Shell::new();
    let (driver, tool) = (shell.driver(), shell.tool());
    for _ in 0..QUERIES_OPEN_MAX / QUERIES_OF_ONE_MAX {
        let asker = shell.tool();
        shell.asks_all_it_may(asker);
    }
    shell.asks(tool, 1, "tasks", "");
    assert!(shell.refusal(tool).unwrap().contains("ask again"));
    // What nobody else is asked for is answered all the same.
    shell.asks(tool, 2, "actors", "");
    assert!(shell.sweeps());
    assert!(shell.report(tool, 2).is_some());
    shell.waits(INSPECT_PATIENCE);
    shell.asks(tool, 3, "tasks", "");
    let mut round = None;
    while let Some(next) = shell.inspected(driver) {
        round = Some(next);
    }
    shell.is_told(driver, round.unwrap());
    assert_eq!(told(shell.report(tool, 3)), [driver]);
}

#[test]
fn who_asked_and_left_before_all_was_read_is_answered_nothing() {
    let mut shell = Shell::new();
    let tool = shell.tool();
    shell.asks(tool, 1, "objects", "");
    shell.hears(Event::Closed { process: tool });
    assert!(shell.sweeps());
    assert!(shell.is_silent());
}

#[test]
fn one_asker_with_many_questions_had_all_others_refused() {
    let mut shell = Shell::new();
    let (driver, many, other) = (shell.driver(), shell.tool(), shell.tool());
    shell.asks_all_it_may(many);
    assert!(shell.is_silent());
    shell.asks(many, 99, "tasks", "");
    assert!(shell.refusal(many).unwrap().contains("wait for one of the answers"));
    while shell.inspected(driver).is_some() {}
    shell.asks(other, 1, "tasks", "");
    let round = shell.inspected(driver).unwrap();
    shell.is_told(driver, round);
    assert_eq!(told(shell.report(other, 1)), [driver]);
    // Once it is answered it may ask again.
    shell.waits(WHY_PATIENCE);
    assert!(shell.report(many, 0).is_some());
    shell.asks(many, 100, "tasks", "");
    assert!(shell.inspected(driver).is_some());
}

#[test]
fn much_that_was_told_to_one_asker_had_the_small_question_of_another_refused() {
    let mut shell = Shell::new();
    let (driver, other) = (shell.driver(), shell.driver());
    let (many, few) = (shell.tool(), shell.tool());
    let parts = 4;
    let json = "x".repeat(QUERIES_BYTES_MAX / parts);
    for request in 0..parts as u64 {
        shell.asks(many, request, "tasks", "");
        let round = shell.inspected(driver).unwrap();
        shell.says(driver, ToNode::Inspected { request: round, json: json.clone() });
    }
    shell.asks(few, 1, "tasks", "");
    let round = shell.inspected(driver).unwrap();
    for process in [driver, other] {
        shell.is_told(process, round);
    }
    assert_eq!(told(shell.report(few, 1)), [driver, other]);
    assert!(shell.refusal(many).unwrap().contains("more than 256.0 MiB"));
    assert_eq!(shell.refusal(many), None, "there is room for its other questions");
}

#[test]
fn what_processes_told_of_many_questions_filled_the_memory() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let other = shell.driver();
    let parts = 5;
    let json = "x".repeat(QUERIES_BYTES_MAX / (parts - 1));
    for request in 0..parts as u64 {
        shell.asks(driver, request, "tasks", "");
        let round = shell.inspected(driver).unwrap();
        shell.says(driver, ToNode::Inspected { request: round, json: json.clone() });
    }
    assert!(shell.refusal(driver).unwrap().contains("more than 256.0 MiB"));
    assert_eq!(shell.refusal(driver), None);
    // The others are answered, and then there is room again.
    shell.hears(Event::Closed { process: other });
    for request in 0..parts as u64 - 1 {
        assert_eq!(told(shell.report(driver, request)), [driver]);
    }
    shell.asks(driver, 9, "tasks", "");
    let round = shell.inspected(driver).unwrap();
    shell.says(driver, ToNode::Inspected { request: round, json });
    assert_eq!(told(shell.report(driver, 9)), [driver]);
}

#[test]
fn who_tells_something_else_than_it_was_asked_tells_nothing() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.asks(driver, 1, "tasks", "");
    let round = shell.inspected(driver).unwrap();
    let told_links = Told::Links(vec![]);
    shell.says(driver, ToNode::Explained { request: round, told: told_links });
    assert_eq!(told(shell.report(driver, 1)), []);
    shell.asks(driver, 2, "why", "task:1-1");
    let round = shell.inspected(driver).unwrap();
    shell.is_told(driver, round);
    assert!(lines(shell.report(driver, 2)).is_empty());
}
