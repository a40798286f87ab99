//! Shapes that spread: shares, holds, and their ends.

use hoplo_base::limits::{LEASE_IDLE, LEASE_STALL, SPREAD_PATIENCE};
use hoplo_wire::node::Strategy;

use super::*;

const Y: u32 = 7;

struct Spreading {
    owner: Owner,
    /// By worker, in the order of their calls.
    placed: Vec<(u32, u64)>,
}

impl Spreading {
    /// One lease on W, whose function is known to take a microsecond.
    fn new() -> Self {
        let mut spreading = Self { owner: Owner::new(), placed: vec![] };
        spreading.submit(1);
        spreading.granted(1, W);
        spreading.reply_all(W);
        spreading.placed.clear();
        spreading
    }

    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Place { worker, seq } = effect {
                self.placed.push((worker.count(), *seq));
            }
        }
    }

    fn submit(&mut self, tasks: usize) {
        let shape = Arc::new(Shape { strategy: Strategy::Spread, ..shape() });
        for _ in 0..tasks {
            let options = CallOptions { shape: shape.clone(), ..options() };
            let (_, effects) = self.owner.submit(call(options));
            self.note(&effects);
        }
    }

    fn granted(&mut self, lease: u64, worker: u32) {
        let effects = self.owner.granted(lease, worker);
        self.note(&effects);
    }

    fn coming(&mut self, count: u32) {
        let wanted = self.owner.session.shapes[0].asked;
        let effects = self.owner.handle(Event::LeasesComing { key: 0, wanted, count });
        self.note(&effects);
    }

    fn later(&mut self, time: Duration) {
        let effects = self.owner.later(time);
        self.note(&effects);
    }

    fn count(&self, worker: u32) -> usize {
        self.placed.iter().filter(|(at, _)| *at == worker).count()
    }

    fn counts(&self) -> [usize; 3] {
        [W, X, Y].map(|worker| self.count(worker))
    }

    fn lease(&self, worker: u32) -> Option<Vec<u64>> {
        let lease = self.owner.session.lease_of(process(worker));
        lease.map(|lease| lease.in_flight.iter().copied().collect())
    }

    /// What lies behind the call that this worker runs is taken back.
    fn stalls(&mut self, worker: u32) {
        self.later(LEASE_STALL);
        let calls = self.lease(worker).expect("it is leased");
        let (worker, seqs, kept) = (process(worker), calls[1..].to_vec(), calls[..1].to_vec());
        let effects = self.owner.handle(Event::Revoked { worker, seqs, kept });
        self.note(&effects);
    }

    /// This worker replies to what it has, until it has nothing more.
    fn reply_all(&mut self, worker: u32) {
        while let Some(seq) = self.lease(worker).and_then(|calls| calls.first().copied()) {
            let task = TaskId { owner: self.owner.session.me, seq };
            let effects = self.owner.reply(worker, task, &[returned(inline(b""))]);
            self.note(&effects);
        }
    }
}

#[test]
fn the_first_worker_that_came_took_all_small_tasks_before_the_others_came() {
    let mut all = Spreading::new();
    all.submit(30);
    all.reply_all(W);
    assert_eq!(
        all.counts(),
        [2, 0, 0],
        "one was placed before there was a second to spread, then one"
    );
    all.coming(2);
    all.reply_all(W);
    assert_eq!(all.counts(), [10, 0, 0], "its share");
    all.granted(2, X);
    all.granted(3, Y);
    for worker in [X, Y, W] {
        all.reply_all(worker);
    }
    assert_eq!(all.counts(), [10, 10, 10]);
}

#[test]
fn who_does_not_come_in_time_is_not_waited_for() {
    for told in [false, true] {
        let mut all = Spreading::new();
        all.submit(30);
        if told {
            all.coming(2);
        }
        all.reply_all(W);
        assert!(all.count(W) < 30);
        let due = all.owner.session.next_deadline().unwrap();
        assert!(due <= all.owner.now + SPREAD_PATIENCE);
        all.later(SPREAD_PATIENCE);
        all.reply_all(W);
        assert_eq!(all.count(W), 30, "told: {told}");
    }
}

#[test]
fn what_was_found_for_fewer_was_taken_for_all_there_is() {
    let mut all = Spreading::new();
    all.submit(2);
    let wanted = all.owner.session.shapes[0].asked;
    all.submit(28);
    all.owner.handle(Event::LeasesComing { key: 0, wanted, count: 0 });
    all.reply_all(W);
    assert!(all.count(W) < 5, "{:?}", all.counts());
    // The other way round: more was asked for after the answer.
    let mut all = Spreading::new();
    all.submit(2);
    all.coming(1);
    all.submit(28);
    all.granted(2, X);
    all.reply_all(W);
    all.reply_all(X);
    assert!(all.count(W) + all.count(X) < 10, "{:?}", all.counts());
}

#[test]
fn nobody_is_waited_for_where_everybody_is_there() {
    let mut all = Spreading::new();
    all.submit(30);
    all.coming(1);
    all.granted(2, X);
    for _ in 0..3 {
        all.reply_all(W);
        all.reply_all(X);
    }
    assert_eq!(all.counts(), [15, 15, 0]);
    // More was wanted than these two: so the next ones start at once, one here, one there.
    all.placed.clear();
    all.submit(8);
    assert_eq!(all.counts(), [4, 4, 0]);
    // Leases that went back are not everybody.
    all.reply_all(W);
    all.reply_all(X);
    all.later(LEASE_IDLE);
    all.placed.clear();
    all.submit(8);
    all.granted(3, Y);
    assert_eq!(all.counts(), [0, 0, 1]);
}

#[test]
fn who_got_few_got_all_of_the_next_round() {
    let mut all = Spreading::new();
    all.submit(30);
    all.coming(1);
    all.granted(2, X);
    all.reply_all(X);
    all.reply_all(W);
    // From now on W replies at once, X does not.
    all.submit(900);
    all.reply_all(W);
    all.reply_all(X);
    let [here, there, _] = all.counts();
    assert!(here >= there + 20, "{:?}", all.counts());
    all.placed.clear();
    for _ in 0..6 {
        all.submit(1);
        all.reply_all(W);
        all.reply_all(X);
    }
    assert_eq!(all.counts(), [3, 3, 0], "single calls go round");
}

#[test]
fn a_worker_that_loaded_its_function_got_a_task_while_others_did_all_the_rest() {
    let mut all = Spreading::new();
    all.submit(400);
    all.coming(2);
    all.granted(2, X);
    all.granted(3, Y);
    all.reply_all(W);
    all.reply_all(X);
    let [here, there, cold] = all.counts();
    assert_eq!((here, there, cold), (134, 134, 132));
    // It stands still: what lies there is taken back, and stays its share.
    all.stalls(Y);
    all.reply_all(W);
    all.reply_all(X);
    assert_eq!([all.count(W), all.count(X)], [134, 134]);
    all.placed.clear();
    all.reply_all(Y);
    assert_eq!(all.counts(), [0, 0, 131]);
}

#[test]
fn what_was_taken_back_for_an_idle_worker_went_to_the_slow_one_again_and_so_on_for_ever() {
    let mut all = Spreading::new();
    all.submit(400);
    all.coming(1);
    all.granted(2, X);
    all.reply_all(W);
    // X begins: each has its share, and W is idle.
    let behind = all.lease(X).expect("it is leased")[1..].to_vec();
    assert_eq!((behind.len(), all.count(W)), (199, 200));
    let first = TaskId { owner: all.owner.session.me, seq: all.lease(X).expect("as before")[0] };
    let effects = all.owner.reply(X, first, &[returned(inline(b""))]);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Revoke { .. })), "{effects:?}");
    all.placed.clear();
    let half = behind[behind.len() / 2..].to_vec();
    let revoked = Event::Revoked { worker: process(X), seqs: half.clone(), kept: vec![] };
    let effects = all.owner.handle(revoked);
    all.note(&effects);
    let again = effects.iter().any(|effect| matches!(effect, Effect::Revoke { .. }));
    assert!(!again, "nothing is taken back at once: {:?}", all.counts());
    assert!(all.count(W) > 0, "{:?}", all.counts());
}

#[test]
fn a_first_task_that_takes_long_holds_the_others_up_for_a_moment_only() {
    let mut all = Spreading::new();
    all.submit(30);
    all.coming(1);
    all.granted(2, X);
    all.reply_all(W);
    assert_eq!(all.counts(), [15, 15, 0]);
    all.stalls(X);
    assert_eq!(all.counts(), [15, 15, 0]);
    all.later(SPREAD_PATIENCE);
    all.reply_all(W);
    assert_eq!(all.count(W), 29);
}

#[test]
fn a_worker_that_comes_late_is_not_given_all_that_follows() {
    let mut all = Spreading::new();
    all.submit(60);
    all.coming(0);
    all.reply_all(W);
    assert_eq!(all.count(W), 60);
    all.submit(2);
    all.granted(2, X);
    all.placed.clear();
    all.submit(10);
    let [here, there, _] = all.counts();
    assert!(here >= 4 && there >= 4, "{:?}", all.counts());
}
