//! One chain, nothing goes wrong but what clients do.

use super::*;
use hoplo_base::limits::{
    CONTROL_BATCH_OPS_MAX, CONTROL_KEY_BYTES_MAX, CONTROL_SESSION_IDLE, CONTROL_VALUE_BYTES_MAX,
};

fn done(version: u64) -> Outcome {
    Outcome::Done { version }
}

#[test]
fn chains_of_one_to_five_take_updates_and_answer_them_equally() {
    for count in 1..=5 {
        let mut cluster = Cluster::new(count);
        assert_eq!(cluster.update(1, vec![put("a", "1"), put("b", "2")]), Ok(vec![done(1); 2]));
        assert_eq!(cluster.update(1, vec![put("a", "3")]), Ok(vec![done(2)]));
        assert_eq!(cluster.get(count, key("a")), Ok(Some(b"3".to_vec())));
        let delete = Op::Delete { key: key("b"), expected: Some(1) };
        assert_eq!(cluster.update(1, vec![delete]), Ok(vec![done(0)]));
        assert_eq!(cluster.get(count, key("b")), Ok(None));
        cluster.assert_equal();
    }
}

#[test]
fn compare_and_swap_is_decided_where_it_is_applied() {
    let mut cluster = Cluster::new(3);
    let cas = |expected, value: &str| Op::Put {
        key: key("a"),
        value: value.as_bytes().to_vec(),
        expected: Some(expected),
        finished: false,
    };
    let conflict = |found| Outcome::Conflict { found };
    let all = vec![cas(1, "x"), cas(0, "y"), cas(0, "z"), cas(1, "w")];
    assert_eq!(cluster.update(1, all), Ok(vec![conflict(0), done(1), conflict(1), done(2)]));
    let delete = |expected| Op::Delete { key: key("a"), expected };
    let all = vec![delete(Some(1)), delete(Some(2)), delete(Some(2)), delete(None)];
    assert_eq!(cluster.update(1, all), Ok(vec![conflict(2), done(0), conflict(0), done(0)]));
    cluster.assert_equal();
}

#[test]
fn what_is_not_allowed_is_refused_with_its_reason_and_uses_up_nothing() {
    let mut cluster = Cluster::new(2);
    let big = |key: usize, value: usize| Op::Put {
        key: Key { table: Table::Kv, bytes: vec![b'k'; key] },
        value: vec![0; value],
        expected: None,
        finished: false,
    };
    let refused = |refusal: Result<Vec<Outcome>, Refusal>| refusal.unwrap_err().to_string();
    let long = cluster.update(1, vec![big(CONTROL_KEY_BYTES_MAX + 1, 1)]);
    assert_eq!(refused(long), "the key has 1025 bytes, at most 1024 are allowed");
    let large = cluster.update(1, vec![big(1, CONTROL_VALUE_BYTES_MAX + 1)]);
    assert!(matches!(large, Err(Refusal::ValueTooLong { .. })));
    let three = cluster.update(1, vec![big(1, 6 << 20), big(2, 6 << 20), big(3, 6 << 20)]);
    assert!(matches!(three, Err(Refusal::BatchTooLarge(_))));
    let many = cluster.update(1, vec![big(1, 1); CONTROL_BATCH_OPS_MAX + 1]);
    assert!(matches!(many, Err(Refusal::BatchTooLarge(_))));
    let archive = cluster.update(1, vec![Op::Archive { key: task_key(1), version: 1 }]);
    assert!(matches!(archive, Err(Refusal::BadRow { table: Table::Task, .. })));
    let finished = Op::Put { key: key("a"), value: vec![], expected: None, finished: true };
    assert!(matches!(cluster.update(1, vec![finished]), Err(Refusal::BadRow { .. })));
    assert_eq!(cluster.update(2, vec![put("a", "1")]), Err(Refusal::NotMine("head".to_string())));
    assert_eq!(cluster.get(1, key("a")), Err(Refusal::NotMine("tail".to_string())));
    assert_eq!(cluster.update(1, vec![put("a", "1")]), Ok(vec![done(1)]), "seq 1, still");
}

#[test]
fn a_batch_that_is_sent_again_is_applied_once_and_answered_again() {
    let mut cluster = Cluster::new(3);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    for _ in 0..3 {
        cluster.resend(CLIENT, 1, 1, vec![put("a", "1")]);
        cluster.run();
    }
    assert_eq!(cluster.responses.len(), 4);
    assert!(cluster.responses.iter().all(|(_, _, response)| matches!(response,
        Response::Updated { seq: 1, index: 1, outcomes, .. } if *outcomes == [done(1)])));
}

#[test]
fn a_pending_batch_that_is_sent_again_is_answered_by_the_head_too() {
    let mut cluster = Cluster::new(2);
    cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.resend(CLIENT, 1, 1, vec![put("a", "1")]);
    cluster.run();
    let from: Vec<u64> = cluster.responses.iter().map(|(from, ..)| *from).collect();
    assert_eq!(from, [2, 1]);
    assert_eq!(cluster.replica(2).status().applied, 1);
}

#[test]
fn a_gap_in_a_clients_batches_is_refused_with_what_is_expected() {
    let mut cluster = Cluster::new(2);
    cluster.resend(CLIENT, 1, 2, vec![put("a", "1")]);
    assert_eq!(cluster.outcome(CLIENT, 2), Some(Err(Refusal::Gap { expected: 1 })));
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.resend(CLIENT, 1, 3, vec![put("a", "1")]);
    assert_eq!(cluster.outcome(CLIENT, 3), Some(Err(Refusal::Gap { expected: 2 })));
}

#[test]
fn a_window_that_is_never_acknowledged_is_bounded() {
    let mut cluster = Cluster::new(1);
    let (shard, epoch) = (SHARD, Epoch(2));
    for seq in 1..=300 {
        let request =
            Request::Update { shard, epoch, born: 0, seq, answered: 0, ops: vec![put("a", "1")] };
        cluster.handle(1, Event::Request { from: CLIENT, request });
    }
    assert!(matches!(cluster.outcome(CLIENT, 256), Some(Ok(_))));
    assert!(matches!(cluster.outcome(CLIENT, 257), Some(Err(Refusal::Busy(_)))));
}

#[test]
fn a_session_that_nobody_uses_ends_at_every_replica_and_its_client_is_told() {
    let mut cluster = Cluster::new(2);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.send_as(ClientId(2), 1, vec![put("b", "1")]);
    cluster.run();
    cluster.wait(CONTROL_SESSION_IDLE / 2);
    cluster.send_as(ClientId(2), 1, vec![put("b", "2")]);
    cluster.wait(CONTROL_SESSION_IDLE / 4 * 3);
    for number in 1..=2 {
        assert_eq!(cluster.replica(number).status().sessions, 1, "replica {number}");
    }
    let (shard, epoch) = (SHARD, Epoch(2));
    let over = cluster.replica(1).sessions.over();
    let again = |cluster: &mut Cluster, born, seq, answered| {
        let request = Request::Update { shard, epoch, born, seq, answered, ops: vec![] };
        cluster.handle(1, Event::Request { from: CLIENT, request });
        cluster.run();
        cluster.outcome(CLIENT, seq).unwrap()
    };
    // A copy of the first batch, which was applied.
    assert_eq!(again(&mut cluster, 0, 1, 0), Err(Refusal::SessionOver { upto: over }));
    assert_eq!(again(&mut cluster, 0, 2, 1), Err(Refusal::SessionOver { upto: over }));
    assert_eq!(again(&mut cluster, over, 3, 2), Ok(vec![]), "a new session");
    assert_eq!(again(&mut cluster, 0, 3, 2), Err(Refusal::SessionOver { upto: over }));
    assert_eq!(again(&mut cluster, over, 3, 2), Ok(vec![]), "once");
    let later = again(&mut cluster, over + 1, 4, 3);
    assert!(matches!(later, Err(Refusal::Busy(_))), "an end that it does not know: {later:?}");
    assert_eq!(cluster.send_as(ClientId(2), 1, vec![put("b", "3")]), 3);
    cluster.run();
    assert!(matches!(cluster.outcome(ClientId(2), 3), Some(Ok(_))));
}

/// The head that entered it may die with it, and whoever goes on has the session still.
#[test]
fn a_sessions_end_is_not_told_before_it_is_applied() {
    let mut cluster = Cluster::with(2, |options| options.session_idle = MS * 1000);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.disk_waits(2, true);
    let before = cluster.replica(1).status().logged;
    while cluster.replica(1).status().logged == before {
        assert!(cluster.now < Instant(10_000_000_000), "the session does not end");
        cluster.wait(MS * 50);
    }
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "2")]);
    cluster.run();
    let told = cluster.outcome(CLIENT, seq);
    assert!(matches!(told, Some(Err(Refusal::Busy(_)))), "{told:?}");
    assert_eq!(cluster.replica(1).status().sessions, 1);
    cluster.disk_waits(2, false);
    cluster.run();
    cluster.resend(CLIENT, 1, seq, vec![put("a", "2")]);
    cluster.run();
    let told = cluster.outcome(CLIENT, seq);
    assert!(matches!(told, Some(Err(Refusal::SessionOver { .. }))), "{told:?}");
}

#[test]
fn pages_of_a_scan_have_every_row_once() {
    let mut cluster = Cluster::new(2);
    let names: Vec<String> = (0..25).map(|number| format!("x/{number:02}")).collect();
    cluster.update(1, names.iter().map(|name| put(name, "1")).collect()).unwrap();
    cluster.update(1, vec![put("w", "1"), put("y", "1")]).unwrap();
    let mut seen = Vec::new();
    let mut from = None;
    loop {
        let (table, prefix) = (Table::Kv, b"x/".to_vec());
        let scan = Query::Scan { table, prefix, from, limit: 10, archived: true };
        let request = cluster.ask(2, scan, false);
        cluster.run();
        let Some(Ok(Answer::Page { rows, next })) = cluster.answer(request) else { panic!() };
        seen.extend(rows.iter().map(|(key, _)| String::from_utf8(key.clone()).unwrap()));
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(seen, names);
}

#[test]
fn a_head_whose_chain_does_not_keep_up_takes_no_more_than_a_bound() {
    let mut cluster = Cluster::new(2);
    cluster.disk_waits(2, true);
    let ops = || vec![put("a", &"x".repeat(7 << 20)), put("b", &"x".repeat(7 << 20))];
    let mut refused = None;
    for _ in 0..8 {
        let seq = cluster.send_as(CLIENT, 1, ops());
        cluster.run();
        refused = cluster.outcome(CLIENT, seq);
        if refused.is_some() {
            break;
        }
    }
    assert!(matches!(refused, Some(Err(Refusal::Busy(_)))), "{refused:?}");
    assert!(cluster.replica(2).status().pending_bytes < 90 << 20);
    cluster.disk_waits(2, false);
    cluster.run();
    assert_eq!(cluster.replica(1).status().pending_bytes, 0);
}
