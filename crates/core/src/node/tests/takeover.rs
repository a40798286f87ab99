//! A caller dies while another process serves its call.

use hoplo_base::limits::TAKEOVER_PATIENCE;
use hoplo_wire::Value;
use hoplo_wire::node::{Notice, SharedState};

use super::*;

/// A caller holds an object, and has called an actor, which it does not know.
struct Served {
    shell: Shell,
    driver: ProcessId,
    caller: ProcessId,
    actor: ProcessId,
    object: ObjectId,
}

impl Served {
    fn new() -> Self {
        let mut shell = Shell::new();
        let driver = shell.driver();
        let (caller, actor) = (shell.worker(driver), shell.worker(driver));
        let object = TaskId { owner: caller, seq: 3 }.object(0);
        let value = Value::Inline([1].as_slice().into());
        let state = SharedState::Value { value, contains: vec![] };
        shell.says(caller, ToNode::Notices(vec![Notice::Shared { object, state }]));
        shell.says(caller, ToNode::Connect { to: actor });
        Self { shell, driver, caller, actor, object }
    }

    /// `Served` whose caller is buried.
    fn bereaved() -> Self {
        let mut it = Self::new();
        it.dies(it.caller);
        let caller = it.caller;
        let gone = it.shell.told(it.actor, |heard| match heard {
            ToClient::ProcessGone { process, .. } => Some(*process),
            _ => None,
        });
        assert_eq!(gone, Some(caller));
        assert!(it.knows(), "the actor has not said what it uses");
        it
    }

    fn dies(&mut self, process: ProcessId) {
        self.shell.hears(Event::Closed { process });
        self.shell.hears(Event::Exited { process, status: -9 });
        self.shell.examines(process);
    }

    fn takes_over(&mut self) {
        self.shell.says(self.actor, ToNode::TookOver { caller: self.caller });
    }

    fn says(&mut self, notice: Notice) {
        self.shell.says(self.actor, ToNode::Notices(vec![notice]));
    }

    fn knows(&mut self) -> bool {
        while self.shell.sweeps() {}
        self.shell.node.objects.knows(self.object)
    }
}

/// It was freed while the call went on, and what the actor had kept of its arguments was lost.
#[test]
fn what_an_actor_keeps_of_a_call_outlives_a_caller_that_dies_meanwhile() {
    let mut it = Served::bereaved();
    it.says(Notice::Hold { object: it.object, process: it.actor });
    it.takes_over();
    assert!(it.knows());
    it.says(Notice::Released { object: it.object, tokens: 1 });
    assert!(!it.knows());
}

#[test]
fn what_nobody_uses_of_a_dead_caller_goes() {
    let mut it = Served::bereaved();
    it.takes_over();
    assert!(!it.knows(), "the actor uses nothing");

    let mut it = Served::bereaved();
    it.dies(it.actor);
    assert!(!it.knows(), "the actor is dead");

    let mut it = Served::bereaved();
    it.shell.waits(TAKEOVER_PATIENCE);
    assert!(!it.knows(), "the actor says nothing");
    it.takes_over();

    let mut it = Served::new();
    it.dies(it.actor);
    it.dies(it.caller);
    assert!(!it.knows(), "the actor died before");
}

#[test]
fn a_driver_that_leaves_is_served_too_and_its_memory_comes_back() {
    let mut it = Served::new();
    let (driver, actor) = (it.driver, it.actor);
    it.shell.says(driver, ToNode::Connect { to: actor });
    it.shell.hears(Event::Closed { process: driver });
    it.shell.hears(Event::Unmapped { process: driver });
    assert!(it.shell.node.objects.processes().any(|process| process == driver));
    it.shell.says(actor, ToNode::TookOver { caller: driver });
    assert!(it.shell.node.objects.processes().all(|process| process != driver));
    assert_eq!(it.shell.node.objects.totals().granted_bytes, 0);
}

#[test]
fn to_cancel_a_task_whose_dead_owner_is_still_served_reaches_who_adopts_it() {
    let mut it = Served::new();
    let heir = it.shell.driver();
    let pending = shares_a_pending_task(&mut it.shell, it.caller, FunctionId([5; 16]));
    it.shell.says(heir, ToNode::Want { objects: vec![pending] });
    it.dies(it.caller);
    let message = Tell::Cancel { task: pending.task, recursive: false };
    it.shell.says(it.driver, ToNode::Tell { to: it.caller, message: message.clone() });
    while it.shell.sweeps() {}
    it.takes_over();
    while it.shell.sweeps() {}
    let told = it.shell.told(heir, |heard| match heard {
        ToClient::Adopt { .. } => Some(None),
        ToClient::Told { message, .. } => Some(Some(message.clone())),
        _ => None,
    });
    assert_eq!(told, Some(None), "it adopts the task first");
    let told = it.shell.told(heir, |heard| match heard {
        ToClient::Told { message, .. } => Some(message.clone()),
        _ => None,
    });
    assert_eq!(told, Some(message));
}
