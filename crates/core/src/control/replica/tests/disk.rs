//! Logs: what a restart gives back, snapshots, disks that fail.

use super::*;
use crate::control::tables::Covered;

/// A new shard of this one alone.
fn begins_alone(cluster: &mut Cluster, number: u64) {
    cluster.epoch += 1;
    let config = ChainConfig { unbegun: true, ..cluster.config(&[number], None, true) };
    cluster.handle(number, Event::Configured(config));
}

/// Found by the simulation (seed 19102): the document said that the shard had begun, its disk lost the beginning, and the shard
/// stayed down.
#[test]
fn a_beginning_that_was_not_on_disk_yet_counted_as_one() {
    let mut cluster = Cluster::new(1);
    cluster.start(2);
    cluster.disk_waits(2, true);
    begins_alone(&mut cluster, 2);
    assert_eq!(cluster.replica(2).status().acts, None);
    cluster.disk_waits(2, false);
    assert_eq!(cluster.replica(2).status().acts, Some(Epoch(cluster.epoch)));
    // It may begin elsewhere, while this one lives.
    assert!(!cluster.replica(2).answers(cluster.now));
    cluster.configure(&[2], None, true);
    assert!(cluster.replica(2).answers(cluster.now));
}

/// Found by the simulation (seed 22551): it panicked.
#[test]
fn who_had_a_part_of_a_base_could_not_begin_a_shard() {
    let mut cluster = Cluster::new(1);
    cluster.start(2);
    cluster.configure(&[1], Some(2), true);
    while cluster.replica(2).tables.covered() == &Covered::Nothing {
        assert!(cluster.step(), "a base is sent");
    }
    assert!(!cluster.replica(2).has_base(), "it comes in more than one part");
    cluster.kill(1);
    begins_alone(&mut cluster, 2);
    assert_eq!(cluster.replica(2).status().acts, Some(Epoch(cluster.epoch)));
    cluster.configure(&[2], None, true);
    assert!(cluster.update(2, vec![put("a", "1")]).is_ok());
    restart_alone(&mut cluster, 2, 3);
    assert_eq!(cluster.get(3, key("a")), Ok(Some(b"1".to_vec())));
}

fn restart_alone(cluster: &mut Cluster, old: u64, new: u64) {
    cluster.kill(old);
    cluster.restart_as(old, new);
    cluster.configure(&[new], None, true);
    cluster.run();
}

#[test]
fn a_replica_that_restarts_alone_has_everything_that_was_answered() {
    let mut cluster = Cluster::new(1);
    for n in 0..20 {
        cluster.update(1, vec![put(&format!("k{n}"), "1"), put("same", &n.to_string())]).unwrap();
    }
    restart_alone(&mut cluster, 1, 2);
    assert_eq!(cluster.get(2, key("same")), Ok(Some(b"19".to_vec())));
    cluster.resend(CLIENT, 2, 20, vec![put("same", "twice")]);
    let versions = vec![Outcome::Done { version: 1 }, Outcome::Done { version: 20 }];
    assert_eq!(cluster.outcome(CLIENT, 20), Some(Ok(versions)), "answered from its session");
    assert_eq!(cluster.replica(2).status().applied, 20);
}

#[test]
fn what_is_not_stable_is_not_answered() {
    let mut cluster = Cluster::new(2);
    cluster.disk_waits(1, true);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.run();
    assert_eq!(cluster.replica(2).status().stable, 1, "the tail has it");
    assert_eq!(cluster.outcome(CLIENT, seq), None);
    cluster.disk_waits(1, false);
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
}

#[test]
fn a_head_whose_disk_fails_takes_nothing_and_asks_to_be_left_out() {
    let mut cluster = Cluster::new(2);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.disk_waits(1, true);
    cluster.handle(1, Event::LogFailed { why: "no space left".to_string() });
    assert!(cluster.suspects(1).contains(&id(1)));
    let refused = cluster.update(1, vec![put("a", "2")]);
    assert_eq!(refused, Err(Refusal::Disk("no space left".to_string())));
    assert_eq!(cluster.get(2, key("a")), Ok(Some(b"1".to_vec())), "queries go on");
    cluster.handle(1, Event::LogBack);
    cluster.disk_waits(1, false);
    assert!(cluster.update(1, vec![put("a", "2")]).is_ok());
}

#[test]
fn a_tail_whose_disk_fails_acknowledges_nothing_and_asks_to_be_left_out() {
    let mut cluster = Cluster::new(2);
    cluster.disk_waits(2, true);
    cluster.handle(2, Event::LogFailed { why: "no space left".to_string() });
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.wait(MS * 500);
    assert_eq!(cluster.outcome(CLIENT, seq), None);
    assert!(cluster.suspects(2).contains(&id(2)));
    cluster.configure(&[1], None, true);
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
}

#[test]
fn a_snapshot_keeps_the_log_short_and_stops_nobody() {
    let mut cluster = Cluster::with(2, |options| options.snapshot_bytes = 256 * 1024);
    for n in 0..3000 {
        cluster.send_as(CLIENT, 1, vec![put(&format!("k{:03}", n % 500), &"v".repeat(1000))]);
        if n % 7 == 0 {
            cluster.step();
        }
        if n % 100 == 0 {
            cluster.run();
        }
    }
    cluster.run();
    for number in 1..=2 {
        assert!(cluster.log_len(number) < 1500, "replica {number}: {}", cluster.log_len(number));
    }
    let rows = cluster.replica(1).tables().len();
    cluster.kill(2);
    restart_alone(&mut cluster, 1, 3);
    assert_eq!(cluster.replica(3).tables().len(), rows);
    assert_eq!(cluster.replica(3).status().applied, 3000);
    cluster.restart_as(2, 4);
    cluster.configure(&[3], Some(4), true);
    cluster.run();
    cluster.configure(&[3, 4], None, true);
    cluster.update(3, vec![put("z", "1")]).unwrap();
    cluster.assert_equal();
}

#[test]
fn a_snapshot_among_pending_entries_loses_none_of_them() {
    for steps in 0..80 {
        let mut cluster = Cluster::new(2);
        cluster.sorted_logs = steps % 2 == 0;
        for n in 0..5 {
            cluster.send_as(CLIENT, 1, vec![put("a", &n.to_string())]);
        }
        for _ in 0..steps / 2 {
            cluster.step();
        }
        for number in 1..=2 {
            cluster.handle(number, Event::SnapshotWanted);
        }
        cluster.send_as(CLIENT, 1, vec![put("a", "last")]);
        let logged = cluster.replica(1).status().logged;
        cluster.kill(1);
        cluster.kill(2);
        cluster.restart_as(1, 3);
        assert_eq!(cluster.replica(3).status().logged, logged, "after {steps} messages");
        cluster.configure(&[3], None, true);
        cluster.run();
        assert_eq!(cluster.get(3, key("a")), Ok(Some(b"last".to_vec())));
    }
}
