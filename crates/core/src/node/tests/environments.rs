//! Environments with a Python of their own, as processes and the shell meet them.

use hoplo_base::limits::{ENVIRONMENT_IDLE, STARTS_FAILED_MAX, WORKER_IDLE};
use hoplo_base::{ProcessId, ResourceSet};
use hoplo_wire::node::{JobConfig, PythonEnv, RuntimeEnv, Shape, ToClient, ToNode};
use hoplo_wire::{Failure, FailureKind};

use super::{Event, HELLO_PID, Role, Shell, hello};
use crate::node::Effect;

fn python() -> PythonEnv {
    PythonEnv { spec: "{}".to_string(), what: "pip install a".to_string(), patience_s: 30 }
}

impl Shell {
    fn demands(&mut self, driver: ProcessId, wanted: u32) {
        let env = RuntimeEnv { python: Some(Box::new(python())), ..RuntimeEnv::default() };
        let resources = ResourceSet::from_units([("CPU", 1.0)]).unwrap();
        let shape = std::sync::Arc::new(Shape { resources, env, ..Shape::default() });
        self.says(driver, ToNode::LeaseDemand { key: 1, shape, wanted });
    }

    fn makes(&mut self) -> Option<u64> {
        self.take(|effect| match effect {
            Effect::MakeEnvironment { ticket, python: it } => (*it == python()).then_some(*ticket),
            _ => None,
        })
    }

    fn fails(&mut self, driver: ProcessId) -> Option<Failure> {
        self.told(driver, |message| match message {
            ToClient::LeaseFailed { key: 1, failure } => Some(failure.clone()),
            _ => None,
        })
    }

    fn lets_go(&mut self) -> Option<()> {
        let let_go = Effect::LetGoEnvironment { python: python() };
        self.take(|effect| (*effect == let_go).then_some(()))
    }
}

#[test]
fn a_worker_is_forked_when_its_environment_is_made() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.demands(driver, 1);
    let ticket = shell.makes().expect("nobody has made it");
    assert_eq!(shell.forked(), None);
    shell.hears(Event::EnvironmentMade { ticket });
    assert!(shell.forked().is_some());
    // The next one finds it.
    shell.demands(driver, 2);
    assert_eq!(shell.makes(), None);
    assert!(shell.forked().is_some());
}

#[test]
fn what_a_job_asks_for_is_made_at_once_and_kept_as_long_as_the_job() {
    let mut shell = Shell::new();
    let env = RuntimeEnv { python: Some(Box::new(python())), ..RuntimeEnv::default() };
    let driver = shell.driver_of(JobConfig { env, ..JobConfig::default() });
    let ticket = shell.makes().expect("nobody waits for a task");
    shell.hears(Event::EnvironmentMade { ticket });
    for _ in 0..5 {
        shell.waits(ENVIRONMENT_IDLE);
        assert_eq!(shell.lets_go(), None);
    }
    shell.hears(Event::Closed { process: driver });
    for _ in 0..5 {
        shell.waits(ENVIRONMENT_IDLE);
    }
    assert_eq!(shell.lets_go(), Some(()));
}

#[test]
fn who_waits_hears_what_the_builder_said_last_and_at_which_node() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.demands(driver, 1);
    let ticket = shell.makes().unwrap();
    shell.hears(Event::EnvironmentFailed { ticket, why: "no such\npackage\n".to_string() });
    let failure = shell.fails(driver).expect("it hears why");
    assert_eq!(failure.kind, FailureKind::RuntimeEnv);
    let text = "runtime_env: pip install a failed at node 800001:\n  no such\n  package";
    assert_eq!(failure.text(), text);
    assert_eq!(shell.lets_go(), Some(()));
    shell.demands(driver, 1);
    assert!(shell.makes().is_some(), "the next one has it tried again");
}

#[test]
fn a_builder_is_stopped_when_its_time_is_over() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.demands(driver, 1);
    let ticket = shell.makes().unwrap();
    shell.waits(std::time::Duration::from_secs(30));
    let stops = Effect::StopMaking { ticket };
    assert!(shell.take(|effect| (*effect == stops).then_some(())).is_some());
    assert_eq!(shell.fails(driver), None);
    shell.hears(Event::EnvironmentFailed { ticket, why: String::new() });
    let text = shell.fails(driver).expect("it hears why").text().to_string();
    assert!(text.contains("it took longer than 30 s and was stopped"), "{text}");
}

#[test]
fn an_environment_in_which_no_worker_starts_is_looked_at_again_for_the_next_one() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.demands(driver, 1);
    let ticket = shell.makes().unwrap();
    shell.hears(Event::EnvironmentMade { ticket });
    for _ in 0..STARTS_FAILED_MAX {
        let process = shell.forked().expect("it is tried");
        shell.hears(Event::ForkFailed { process, reason: "no such file".to_string() });
        shell.examines(process);
    }
    assert!(shell.fails(driver).is_some());
    assert_eq!(shell.makes(), None);
    shell.demands(driver, 1);
    assert!(shell.makes().is_some());
}

#[test]
fn an_environment_is_let_go_when_its_last_worker_is_gone_for_long() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.demands(driver, 1);
    let ticket = shell.makes().unwrap();
    shell.hears(Event::EnvironmentMade { ticket });
    let process = shell.forked().unwrap();
    shell.hears(Event::Forked { process, pid: HELLO_PID });
    shell.says(process, hello(Role::Worker));
    shell.waits(2 * ENVIRONMENT_IDLE);
    assert_eq!(shell.lets_go(), None, "a worker runs in it");
    shell.hears(Event::Closed { process });
    shell.hears(Event::Exited { process, status: 0 });
    shell.examines(process);
    let mut waited = WORKER_IDLE;
    while shell.lets_go().is_none() {
        assert!(waited < 3 * ENVIRONMENT_IDLE);
        let pause = std::time::Duration::from_secs(30);
        shell.waits(pause);
        waited += pause;
    }
    assert!(waited >= ENVIRONMENT_IDLE);
    shell.demands(driver, 1);
    assert!(shell.makes().is_some());
}
