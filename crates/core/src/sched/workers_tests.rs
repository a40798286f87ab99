use super::*;
use hoplo_base::NodeNumber;
use hoplo_wire::FailureKind;

const JOB: JobId = JobId(1);

fn failure(text: &str) -> Failure {
    Failure::new(FailureKind::WorkerStart, text)
}

fn process(count: u32) -> ProcessId {
    ProcessId::new(NodeNumber::alone(1), count, count as u16)
}

fn wanted(lease: u64, prefer: Option<ProcessId>) -> Event {
    wanted_with(lease, Vec::new(), prefer)
}

fn wanted_with(lease: u64, gpus: Vec<u32>, prefer: Option<ProcessId>) -> Event {
    Event::Wanted { lease: LeaseId(lease), job: JOB, env: RuntimeEnv::default(), gpus, prefer }
}

fn fork(ticket: u64) -> Effect {
    Effect::Fork { ticket, job: JOB, env: RuntimeEnv::default() }
}

fn assign(lease: u64, worker: ProcessId) -> Effect {
    Effect::Assign { lease: LeaseId(lease), worker }
}

struct Pool(WorkerPool, Instant);

impl Pool {
    fn new(floor: usize) -> Self {
        Self(WorkerPool::new(floor), Instant::ZERO)
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.handle(self.1, event, &mut effects);
        self.0.check();
        effects
    }

    fn started(&mut self, ticket: u64) -> Vec<Effect> {
        self.handle(Event::Started { ticket, worker: process(ticket as u32) })
    }
}

#[test]
fn three_failed_starts_in_a_row_fail_what_waits_with_the_reason() {
    let mut pool = Pool::new(1);
    assert_eq!(pool.handle(wanted(1, None)), [fork(1)]);
    let failed =
        |ticket| Event::StartFailed { ticket, failure: failure("no memory"), killed: false };
    assert_eq!(pool.handle(failed(1)), [fork(2)]);
    assert_eq!(pool.handle(failed(2)), [fork(3)]);
    assert_eq!(
        pool.handle(failed(3)),
        [Effect::Fail { lease: LeaseId(1), failure: failure("no memory") }]
    );
    // The next one that asks gets three tries again.
    assert_eq!(pool.handle(wanted(2, None)), [fork(4)]);
    assert_eq!(pool.handle(failed(4)), [fork(5)]);
}

#[test]
fn a_worker_that_takes_no_more_calls_was_granted_to_the_next_one() {
    let mut pool = Pool::new(1);
    assert_eq!(pool.handle(wanted(1, None)), [fork(1)]);
    assert_eq!(pool.started(1), [assign(1, process(1))]);
    assert_eq!(pool.handle(Event::Retires { worker: process(1) }), []);
    // Its lease comes back when its holder leaves.
    assert_eq!(pool.handle(Event::Released { worker: process(1) }), []);
    assert_eq!(pool.handle(wanted(2, None)), [fork(2)]);
}

#[test]
fn starts_that_failed_together_counted_as_failures_in_a_row() {
    let mut pool = Pool::new(2); // At most four at a time.
    for lease in 1..=4 {
        pool.handle(wanted(lease, None));
    }
    let failed =
        |ticket| Event::StartFailed { ticket, failure: failure("no memory"), killed: false };
    for ticket in 1..=4 {
        assert_eq!(pool.handle(failed(ticket)), [fork(ticket + 4)]);
    }
    for ticket in 5..=8 {
        assert_eq!(pool.handle(failed(ticket)), [fork(ticket + 4)]);
    }
    let fail = |lease| Effect::Fail { lease: LeaseId(lease), failure: failure("no memory") };
    assert_eq!(pool.handle(failed(9)), [fail(1), fail(2), fail(3), fail(4)]);
}

#[test]
fn three_workers_that_somebody_killed_while_they_started_failed_what_waited() {
    let mut pool = Pool::new(1);
    pool.handle(wanted(1, None));
    let killed =
        |ticket| Event::StartFailed { ticket, failure: failure("killed by SIGKILL"), killed: true };
    for ticket in 1..u64::from(STARTS_KILLED_MAX) {
        assert_eq!(pool.handle(killed(ticket)), [fork(ticket + 1)]);
    }
    // But not for ever: it may need more memory than there is.
    let fail = Effect::Fail { lease: LeaseId(1), failure: failure("killed by SIGKILL") };
    assert_eq!(pool.handle(killed(u64::from(STARTS_KILLED_MAX))), [fail]);
}

#[test]
fn a_start_that_nobody_began_is_no_failure() {
    let mut pool = Pool::new(1);
    pool.handle(wanted(1, None));
    for ticket in 1..=9 {
        assert_eq!(pool.handle(Event::StartUndone { ticket }), [fork(ticket + 1)]);
    }
    assert_eq!(pool.started(10), [assign(1, process(10))]);
}

#[test]
fn a_cancelled_start_is_not_wasted() {
    let mut pool = Pool::new(1);
    pool.handle(wanted(1, None));
    assert_eq!(pool.handle(Event::Cancelled { lease: LeaseId(1) }), []);
    assert_eq!(pool.handle(wanted(2, None)), []); // The start of lease 1 serves it.
    assert_eq!(pool.started(1), [assign(2, process(1))]);
}

#[test]
fn a_worker_that_dies_on_its_way_back_is_forgotten() {
    let mut pool = Pool::new(1);
    pool.handle(wanted(1, None));
    pool.started(1);
    assert_eq!(pool.handle(Event::Gone { process: process(1) }), []);
    assert_eq!(pool.handle(Event::Released { worker: process(1) }), []);
    assert_eq!(pool.handle(wanted(2, None)), [fork(2)]);
}

#[test]
fn a_worker_that_an_actor_keeps_is_replaced_by_one_spare() {
    let mut pool = Pool::new(1);
    let kept = |worker: u32| Event::Kept { worker: process(worker) };
    pool.handle(wanted(1, None));
    pool.handle(wanted(2, None));
    pool.started(1);
    assert_eq!(pool.handle(kept(1)), []); // What starts for lease 2 is no spare yet.
    pool.started(2);
    assert_eq!(pool.handle(kept(2)), [fork(3)]);
    pool.started(3);
    assert_eq!(pool.handle(wanted(3, None)), [assign(3, process(3))]);
    assert_eq!(pool.handle(kept(3)), [fork(4)]);
    // One that fails is not tried again: nobody waits for it.
    let failed = Event::StartFailed { ticket: 4, failure: failure("no memory"), killed: false };
    assert_eq!(pool.handle(failed), []);
    // Who has a GPU, or a group's room, gets no spare: it would hold memory that only few can use.
    pool.handle(wanted_with(4, vec![0], None));
    pool.started(5);
    assert_eq!(pool.handle(kept(5)), []);
    // It has just died, or its job has ended.
    assert_eq!(pool.handle(kept(9)), []);
    pool.handle(Event::JobEnded { job: JOB });
    assert_eq!(pool.handle(kept(3)), []);
}

#[test]
fn a_known_idle_worker_is_preferred_then_the_warmest() {
    let mut pool = Pool::new(3);
    for lease in 1..=3 {
        pool.handle(wanted(lease, None));
    }
    for ticket in 1..=3 {
        pool.started(ticket);
    }
    pool.handle(Event::Connected { worker: process(1), peer: process(9) });
    for worker in 1..=3 {
        pool.1 = pool.1 + std::time::Duration::from_secs(1);
        pool.handle(Event::Released { worker: process(worker) });
    }
    assert_eq!(pool.handle(wanted(4, Some(process(9)))), [assign(4, process(1))]);
    assert_eq!(pool.handle(wanted(5, Some(process(8)))), [assign(5, process(3))]);
}

#[test]
fn idle_workers_beyond_the_floor_are_retired_and_those_of_an_ended_job_at_once() {
    let mut pool = Pool::new(1);
    for lease in 1..=3 {
        pool.handle(wanted(lease, None));
    }
    for ticket in 1..=3 {
        pool.started(ticket);
    }
    for worker in 1..=3 {
        pool.handle(Event::Released { worker: process(worker) });
    }
    let deadline = pool.0.next_deadline().expect("two are beyond the floor");
    pool.1 = deadline;
    assert_eq!(
        pool.handle(Event::Tick),
        [1, 2].map(|count| Effect::Retire { worker: process(count), reason: "idle" })
    );
    assert_eq!(pool.0.next_deadline(), None);
    assert_eq!(
        pool.handle(Event::JobEnded { job: JOB }),
        [Effect::Retire { worker: process(3), reason: "its job ended" }]
    );
}

#[test]
fn a_process_that_ran_without_a_gpu_served_a_lease_with_one() {
    let mut pool = Pool::new(4);
    pool.handle(wanted(1, None));
    pool.started(1);
    pool.handle(Event::Released { worker: process(1) });
    // Process 1 has looked for devices and seen none.
    assert_eq!(pool.handle(wanted_with(2, vec![0], None)), [fork(2)]);
    assert_eq!(pool.started(2), [assign(2, process(2))]);
    pool.handle(Event::Released { worker: process(2) });
    assert_eq!(pool.handle(wanted_with(3, vec![0], None)), [assign(3, process(2))]);
    assert_eq!(pool.handle(wanted(4, None)), [assign(4, process(1))]);
    pool.handle(Event::Released { worker: process(2) });
    assert_eq!(pool.handle(wanted(5, None)), [fork(3)]);
}

#[test]
fn an_idle_process_goes_when_others_get_its_gpus_and_when_it_was_idle_for_long() {
    let mut pool = Pool::new(4);
    for (lease, gpus) in [(1, vec![0]), (2, vec![1])] {
        pool.handle(wanted_with(lease, gpus, None));
        pool.started(lease);
        pool.handle(Event::Released { worker: process(lease as u32) });
    }
    let retire = |count, reason| Effect::Retire { worker: process(count), reason };
    assert_eq!(pool.handle(wanted_with(3, vec![0, 2], None)), [retire(1, GPUS_GO), fork(3)]);
    pool.1 = pool.0.next_deadline().expect("its GPU's memory is wanted back");
    assert_eq!(pool.handle(Event::Tick), [retire(2, "idle")]);
}

#[test]
fn starts_are_bounded_and_go_on_as_they_finish() {
    let mut pool = Pool::new(1); // At most four at a time.
    for lease in 1..=6 {
        pool.handle(wanted(lease, None));
    }
    assert_eq!(pool.0.starting(), 4);
    assert_eq!(pool.started(1), [assign(1, process(1)), fork(5)]);
}
