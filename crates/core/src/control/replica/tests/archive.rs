//! Constant memory: finished rows become history.

use super::*;
use crate::control::{Entry as _, TaskEntry, TaskState};
use hoplo_base::limits::CONTROL_COLD_RETRY;
use hoplo_base::{JobId, ProcessId, TaskId};

const CAP: u64 = 1 << 20;

fn small(count: u64) -> Cluster {
    Cluster::with(count, |options| {
        options.memory_bytes = CAP;
        options.snapshot_bytes = 1 << 20;
        options.recent_bytes = 1 << 18;
    })
}

fn value(number: u64, why: &str) -> Vec<u8> {
    let owner = ProcessId(number);
    let entry = TaskEntry {
        task: TaskId { owner, seq: number },
        job: JobId(1),
        owner,
        attempt: 0,
        state: TaskState::Finished,
        lineage: None,
        why: Some(why.to_string()),
    };
    entry.to_value()
}

fn finished(number: u64) -> Op {
    let (key, value) = (task_key(number), value(number, &format!("task {number}")));
    Op::Put { key, value, expected: None, finished: true }
}

/// A client that waits when it is told to.
fn finish(cluster: &mut Cluster, head: u64, numbers: std::ops::Range<u64>) {
    let numbers: Vec<u64> = numbers.collect();
    for some in numbers.chunks(50) {
        for tries in 0.. {
            match cluster.update(head, some.iter().map(|number| finished(*number)).collect()) {
                Ok(_) => break,
                Err(Refusal::Busy(_)) => cluster.wait(MS * 60),
                Err(other) => panic!("{other}"),
            }
            assert!(tries < 10, "it never gets room");
        }
    }
}

fn task(cluster: &mut Cluster, tail: u64, number: u64) -> Option<String> {
    let value = cluster.get(tail, task_key(number)).unwrap()?;
    let row = Row { value, version: 1, index: 1, finished: true };
    TaskEntry::from_row(&row).unwrap().why
}

fn all_tasks(cluster: &mut Cluster, tail: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut from = None;
    loop {
        let (table, prefix) = (Table::Task, vec![]);
        let scan = Query::Scan { table, prefix, from, limit: 64, archived: true };
        let request = cluster.ask(tail, scan, false);
        cluster.run();
        let Some(Ok(Answer::Page { rows, next })) = cluster.answer(request) else { panic!() };
        let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
        seen.extend(rows.iter().map(|(key, _)| number(key)));
        from = next;
        if from.is_none() {
            return seen;
        }
    }
}

#[test]
fn finished_rows_go_to_disk_and_are_read_back_at_every_replica() {
    let mut cluster = small(2);
    finish(&mut cluster, 1, 0..10_000);
    cluster.wait(MS * 200);
    for number in 1..=2 {
        let status = cluster.replica(number).status();
        assert!(status.memory_bytes <= CAP, "{status:?}");
        assert!(cluster.cold_len(number) > 5000, "replica {number}");
    }
    for number in [0, 77, 5000, 9999] {
        assert_eq!(task(&mut cluster, 2, number), Some(format!("task {number}")));
    }
    assert_eq!(task(&mut cluster, 2, 10_000), None);
    assert_eq!(all_tasks(&mut cluster, 2), (0..10_000).collect::<Vec<u64>>());
    cluster.assert_equal();
}

#[test]
fn for_updates_an_archived_row_is_not_there_and_a_delete_takes_it_too() {
    let mut cluster = small(2);
    finish(&mut cluster, 1, 0..10_000);
    let delete = |number| Op::Delete { key: task_key(number), expected: None };
    let exact = Op::Delete { key: task_key(1), expected: Some(1) };
    let outcomes = cluster.update(1, vec![exact, delete(2)]).unwrap();
    assert_eq!(outcomes, [Outcome::Conflict { found: 0 }, Outcome::Done { version: 0 }]);
    let mut again = finished(3);
    let Op::Put { expected, value: new, .. } = &mut again else { unreachable!() };
    *expected = Some(0);
    *new = value(3, "again");
    assert_eq!(cluster.update(1, vec![again]), Ok(vec![Outcome::Done { version: 1 }]));
    assert_eq!(task(&mut cluster, 2, 1), Some("task 1".to_string()));
    assert_eq!(task(&mut cluster, 2, 2), None);
    assert_eq!(task(&mut cluster, 2, 3), Some("again".to_string()));
    cluster.wait(MS * 200);
    assert_eq!(task(&mut cluster, 2, 2), None);
    cluster.assert_equal();
}

#[test]
fn when_nothing_can_be_archived_the_head_refuses_what_would_grow() {
    let mut cluster = small(1);
    let mut refused = None;
    for n in 0..100 {
        let update = cluster.update(1, vec![put(&format!("k{n}"), &"x".repeat(20_000))]);
        if let Err(why) = update {
            refused = Some(why);
            break;
        }
    }
    assert!(matches!(refused, Some(Refusal::Full { cap: CAP, .. })), "{refused:?}");
    let delete = Op::Delete { key: key("k0"), expected: None };
    assert!(cluster.update(1, vec![delete]).is_ok(), "what shrinks is always taken");
    assert!(cluster.update(1, vec![put("new", "1")]).is_ok());
}

#[test]
fn one_that_joins_is_given_the_archive_in_place_of_its_own() {
    let mut cluster = small(2);
    finish(&mut cluster, 1, 0..3000);
    cluster.kill(2);
    cluster.configure(&[1], None, true);
    // What it has in its own archive goes from the others'.
    let gone = (0..1000).map(|number| Op::Delete { key: task_key(number), expected: None });
    cluster.update(1, gone.collect()).unwrap();
    finish(&mut cluster, 1, 3000..9000);
    cluster.restart_as(2, 3);
    cluster.configure(&[1], Some(3), true);
    cluster.wait(MS * 500);
    assert_eq!(cluster.caught_up(3), [Epoch(cluster.epoch)]);
    cluster.configure(&[1, 3], None, true);
    cluster.run();
    assert_eq!(all_tasks(&mut cluster, 3), (1000..9000).collect::<Vec<u64>>());
    cluster.assert_equal();
}

#[test]
fn a_restart_finds_every_archived_row_in_the_log_or_in_the_cold_tier() {
    let mut cluster = small(1);
    let mut number = 1;
    for round in 0..6 {
        finish(&mut cluster, number, round * 1500..(round + 1) * 1500);
        cluster.kill(number);
        cluster.restart_as(number, number + 1);
        number += 1;
        cluster.configure(&[number], None, true);
        cluster.wait(MS * 100);
        assert_eq!(all_tasks(&mut cluster, number), (0..(round + 1) * 1500).collect::<Vec<u64>>());
    }
}

#[test]
fn a_cold_tier_that_fails_holds_updates_back_and_loses_nothing() {
    let mut cluster = small(1);
    finish(&mut cluster, 1, 0..2000);
    let mut effects = Vec::new();
    let node = cluster.nodes.get_mut(&1).unwrap();
    let now = cluster.now;
    // By hand, so that no flush is written.
    let mut seq = 1000;
    let mut refused = None;
    let applied = node.replica.sessions.last(CLIENT).unwrap().seq;
    for n in 0..5000 {
        let (shard, epoch) = (SHARD, Epoch(2));
        seq = applied + 1 + n;
        let ops = vec![finished(2000 + n)];
        let request = Request::Update { shard, epoch, born: 0, seq, answered: seq - 1, ops };
        node.replica.handle(now, Event::Request { from: CLIENT, request }, &mut effects);
        let upto = node.replica.numbered;
        node.replica.handle(now, Event::Logged { upto }, &mut effects);
        for effect in std::mem::take(&mut effects) {
            match effect {
                Effect::ColdWrite { flush, .. } => {
                    let failed = Event::ColdFailed { flush, why: "full".to_string() };
                    node.replica.handle(now, failed, &mut effects);
                }
                Effect::Respond { response: Response::UpdateRefused { why, .. }, .. } => {
                    refused = Some(why);
                }
                _ => {}
            }
        }
        if refused.is_some() {
            break;
        }
    }
    assert!(matches!(refused, Some(Refusal::Busy(_) | Refusal::Disk(_))), "{refused:?} at {seq}");
    assert!(node.replica.status().memory_bytes <= CAP);
    node.replica.check();
}

#[test]
fn a_flush_that_failed_was_taken_for_a_read_with_the_same_number_and_the_log_stood_still() {
    let mut cluster = small(1);
    finish(&mut cluster, 1, 0..10_000);
    cluster.wait(MS * 200);
    cluster.cold_waits(1);
    // Until some of it is to be archived.
    for first in (10_000..).step_by(50) {
        let cold = &cluster.replica(1).cold;
        if !cold.is_written(cold.mark()) {
            break;
        }
        finish(&mut cluster, 1, first..first + 50);
    }
    cluster.wait(MS * 200);
    let (node, now) = (cluster.nodes.get_mut(&1).unwrap(), cluster.now);
    let (shard, epoch, mut effects) = (SHARD, Epoch(2), Vec::new());
    let flush = (1..).find(|flush| !node.replica.cold.is_written(*flush)).unwrap();
    let why = "no space left".to_string();
    // Of rows that are only in the cold tier, or nowhere.
    for request in 0..flush {
        let query = Query::Get { key: task_key(1_000_000) };
        let request = Request::Query { shard, epoch, request, query, stale: false };
        node.replica.handle(now, Event::Request { from: CLIENT, request }, &mut effects);
    }
    let asked = |it: &Effect| matches!(it, Effect::ColdGet { ticket, .. } if *ticket == flush);
    assert!(effects.iter().any(asked), "{effects:?}");
    effects.clear();
    node.replica.handle(now, Event::ColdFailed { flush, why }, &mut effects);
    assert_eq!(effects, [], "no query was refused");
    node.replica.handle(now + CONTROL_COLD_RETRY, Event::Tick, &mut effects);
    let again = |it: &Effect| matches!(it, Effect::ColdWrite { flush: one, .. } if *one == flush);
    assert!(effects.iter().any(again), "{effects:?}");
}

#[test]
fn a_base_whose_archive_did_not_reach_the_cold_tier_is_not_complete_after_a_restart() {
    let mut cluster = small(1);
    finish(&mut cluster, 1, 0..9000);
    cluster.start(2);
    cluster.cold_waits(2);
    cluster.configure(&[1], Some(2), true);
    cluster.wait(MS * 500);
    assert_eq!(cluster.caught_up(2), []);
    assert!(cluster.replica(2).has_base(), "in memory it is there");
    cluster.kill(2);
    cluster.restart_as(2, 3);
    assert_eq!(cluster.replica(3).holding().epoch, Epoch(0));
    cluster.configure(&[1], Some(3), true);
    cluster.wait(MS * 500);
    cluster.configure(&[1, 3], None, true);
    cluster.run();
    assert_eq!(all_tasks(&mut cluster, 3), (0..9000).collect::<Vec<u64>>());
}

#[test]
fn an_archive_stays_until_the_base_that_replaces_it_is_in_the_log() {
    let mut cluster = small(2);
    finish(&mut cluster, 1, 0..5000);
    cluster.wait(MS * 200);
    cluster.kill(2);
    cluster.configure(&[1], None, true);
    finish(&mut cluster, 1, 5000..12_000);
    cluster.restart_as(2, 3);
    let (logged, archived) = (cluster.replica(3).holding().logged, cluster.cold_len(3));
    cluster.disk_waits(3, true);
    cluster.configure(&[1], Some(3), true);
    cluster.wait(MS * 500);
    assert_eq!(cluster.cold_len(3), archived);
    assert!(logged > 0 && archived > 0);
    cluster.disk_waits(3, false);
    cluster.wait(MS * 500);
    cluster.configure(&[1, 3], None, true);
    cluster.run();
    cluster.assert_equal();
}

/// A replica of which the cold tier writes nothing, and the log gets a snapshot only when one is wanted.
/// It has tasks down from 10 000, the lowest of which is given; the next ones make it archive.
fn nearly_full() -> (Cluster, u64) {
    let mut cluster = Cluster::with(1, |options| {
        options.memory_bytes = CAP;
        options.snapshot_bytes = 1 << 60;
    });
    cluster.cold_waits(1);
    let mut lowest = 10_000;
    while cluster.replica(1).used_bytes() < CAP - CAP / 16 - (1 << 14) {
        finish_ten_more(&mut cluster, &mut lowest);
    }
    assert_eq!(cluster.replica(1).cold.bytes(), 0, "nothing is archived");
    (cluster, lowest)
}

fn finish_ten_more(cluster: &mut Cluster, lowest: &mut u64) {
    *lowest -= 10;
    cluster.send_as(CLIENT, 1, (*lowest..*lowest + 10).rev().map(finished).collect());
}

/// What the process had in memory alone is gone: each task is in what the log kept.
fn assert_restart_finds(cluster: &mut Cluster, numbers: std::ops::Range<u64>) {
    cluster.kill(1);
    cluster.restart_as(1, 2);
    cluster.configure(&[2], None, true);
    cluster.wait(MS * 100);
    assert_eq!(all_tasks(cluster, 2), numbers.collect::<Vec<u64>>());
}

#[test]
fn a_snapshot_is_not_done_before_the_cold_tier_has_what_was_archived_before_it() {
    let (mut cluster, mut lowest) = nearly_full();
    while cluster.replica(1).cold.bytes() == 0 {
        finish_ten_more(&mut cluster, &mut lowest);
    }
    let before = cluster.log_len(1);
    cluster.handle(1, Event::SnapshotWanted);
    cluster.wait(MS * 500);
    assert!(cluster.log_len(1) > before + 1, "all its chunks are in the log");
    assert_eq!(cluster.snapshots_done(1), 0);
    assert_restart_finds(&mut cluster, lowest..10_000);
    // There the cold tier writes.
    cluster.handle(2, Event::SnapshotWanted);
    cluster.wait(MS * 500);
    assert_eq!(cluster.snapshots_done(2), 1);
    assert!(cluster.log_len(2) < before);
}

#[test]
fn a_snapshot_is_not_done_before_the_cold_tier_has_what_was_archived_between_its_chunks() {
    let (mut cluster, mut lowest) = nearly_full();
    cluster.disk_waits(1, true);
    cluster.handle(1, Event::SnapshotWanted);
    // Archived are the oldest, which have the highest keys: no chunk but a later one would have them.
    for _ in 0..20 {
        finish_ten_more(&mut cluster, &mut lowest);
    }
    assert_eq!(cluster.replica(1).cold.bytes(), 0, "nothing is archived at the first chunk");
    cluster.disk_waits(1, false);
    cluster.wait(MS * 500);
    assert!(cluster.replica(1).cold.bytes() > 0);
    assert_eq!(cluster.snapshots_done(1), 0);
    assert_restart_finds(&mut cluster, lowest..10_000);
}
