//! Members go and come.

use super::*;

fn fill(cluster: &mut Cluster, head: u64, rows: u64) {
    for number in 0..rows {
        cluster.update(head, vec![put(&format!("k{number:05}"), &"v".repeat(4000))]).unwrap();
    }
}

#[test]
fn a_new_tail_commits_what_the_old_one_could_not_answer() {
    let mut cluster = Cluster::new(3);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.cut(2, 3);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "2")]);
    cluster.run();
    assert_eq!(cluster.outcome(CLIENT, seq), None);
    cluster.kill(3);
    assert!(cluster.suspects(2).contains(&id(3)));
    cluster.configure(&[1, 2], None, true);
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
    assert_eq!(cluster.get(2, key("a")), Ok(Some(b"2".to_vec())));
    cluster.assert_equal();
}

#[test]
fn a_new_head_keeps_what_is_pending_and_does_not_take_it_twice() {
    let mut cluster = Cluster::new(3);
    cluster.cut(2, 3);
    let seqs: Vec<u64> =
        (0..3).map(|n| cluster.send_as(CLIENT, 1, vec![put("a", &n.to_string())])).collect();
    cluster.run();
    cluster.kill(1);
    cluster.heal();
    cluster.configure(&[2, 3], None, true);
    for seq in &seqs {
        cluster.resend(CLIENT, 2, *seq, vec![put("a", "again")]);
    }
    assert_eq!(cluster.send_as(CLIENT, 2, vec![put("b", "4")]), 4);
    cluster.run();
    for (seq, version) in [(1, 1), (2, 2), (3, 3), (4, 1)] {
        assert_eq!(cluster.outcome(CLIENT, seq), Some(Ok(vec![Outcome::Done { version }])));
    }
    assert_eq!(cluster.get(3, key("a")), Ok(Some(b"2".to_vec())));
    cluster.assert_equal();
}

#[test]
fn when_the_middle_dies_the_tail_gets_what_it_missed_from_its_new_predecessor() {
    let mut cluster = Cluster::new(3);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.cut(2, 3);
    for n in 0..5 {
        cluster.send_as(CLIENT, 1, vec![put("a", &n.to_string())]);
    }
    cluster.run();
    cluster.kill(2);
    cluster.configure(&[1, 3], None, true);
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, 6), Some(Ok(_))));
    assert_eq!(cluster.get(3, key("a")), Ok(Some(b"4".to_vec())));
    cluster.assert_equal();
}

#[test]
fn a_connection_that_breaks_loses_nothing() {
    let mut cluster = Cluster::new(3);
    for (one, other) in [(1, 2), (2, 3), (2, 1), (3, 2)] {
        let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
        for _ in 0..seq {
            cluster.step();
        }
        cluster.disconnect(one, other);
        cluster.wait(MS * 20);
        assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))), "batch {seq}");
    }
    cluster.assert_equal();
}

#[test]
fn a_neighbour_whose_words_are_lost_in_silence_is_reported_and_the_link_heals() {
    let mut cluster = Cluster::new(2);
    cluster.cut(1, 2);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.wait(MS * 600);
    assert!(cluster.suspects(1).contains(&id(2)));
    // The connection is known to be broken in the end.
    cluster.heal();
    cluster.disconnect(1, 2);
    cluster.wait(MS * 20);
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
}

#[test]
fn a_sync_that_comes_before_the_configuration_is_kept() {
    let mut cluster = Cluster::new(3);
    cluster.kill(1);
    cluster.epoch += 1;
    let config = cluster.config(&[2, 3], None, true);
    cluster.handle(2, Event::Configured(config.clone()));
    cluster.run();
    cluster.send_as(CLIENT, 2, vec![put("a", "1")]);
    cluster.run();
    assert_eq!(cluster.replica(3).status().acts, Some(Epoch(2)), "it knows nothing yet");
    cluster.handle(3, Event::Configured(config));
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, 1), Some(Ok(_))));
    cluster.assert_equal();
}

#[test]
fn what_is_said_in_an_older_epoch_is_void_and_its_sender_is_told() {
    let mut cluster = Cluster::new(3);
    cluster.epoch += 1;
    let config = cluster.config(&[2, 3], None, false);
    for number in [2, 3] {
        cluster.handle(number, Event::Configured(config.clone()));
    }
    cluster.run();
    cluster.epoch -= 1;
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "lost")]);
    cluster.wait(MS * 400);
    assert_eq!(cluster.outcome(CLIENT, seq), None, "the old head cannot have it committed");
    cluster.epoch += 1;
    cluster.resend(CLIENT, 2, seq, vec![put("a", "kept")]);
    cluster.run();
    assert_eq!(cluster.get(3, key("a")), Ok(Some(b"kept".to_vec())));
}

#[test]
fn one_that_joins_empty_is_given_everything_while_updates_go_on() {
    let mut cluster = Cluster::new(2);
    fill(&mut cluster, 1, 2000);
    cluster.start(3);
    cluster.configure(&[1, 2], Some(3), true);
    for n in 0..400 {
        cluster.send_as(CLIENT, 1, vec![put(&format!("k{:05}", n * 5), "new")]);
        for _ in 0..3 {
            cluster.step();
        }
    }
    cluster.run();
    assert_eq!(cluster.caught_up(3), [Epoch(cluster.epoch)]);
    cluster.configure(&[1, 2, 3], None, true);
    assert_eq!(cluster.get(3, key("k00005")), Ok(Some(b"new".to_vec())));
    cluster.update(1, vec![put("z", "1")]).unwrap();
    cluster.assert_equal();
    cluster.kill(1);
    cluster.kill(2);
    cluster.configure(&[3], None, true);
    assert_eq!(cluster.get(3, key("z")), Ok(Some(b"1".to_vec())));
}

#[test]
fn one_that_returns_with_its_disk_is_given_only_what_it_missed() {
    let mut cluster = Cluster::new(3);
    fill(&mut cluster, 1, 50);
    cluster.kill(3);
    cluster.configure(&[1, 2], None, true);
    fill(&mut cluster, 1, 50);
    cluster.restart_as(3, 4);
    let before = cluster.log_len(4);
    cluster.configure(&[1, 2], Some(4), true);
    cluster.run();
    assert!(cluster.log_len(4) - before < 60, "entries, no chunks");
    assert_eq!(cluster.caught_up(4), [Epoch(cluster.epoch)]);
    cluster.configure(&[1, 2, 4], None, true);
    cluster.update(1, vec![put("z", "1")]).unwrap();
    cluster.assert_equal();
}

#[test]
fn one_that_returns_drops_what_was_never_committed() {
    let mut cluster = Cluster::new(2);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.update(1, vec![put("a", "2")]).unwrap();
    cluster.cut(1, 2);
    // The head alone has it, and dies.
    let lost = cluster.send_as(CLIENT, 1, vec![put("a", "lost")]);
    cluster.run();
    cluster.kill(1);
    cluster.heal();
    cluster.configure(&[2], None, true);
    cluster.resend(CLIENT, 2, lost, vec![put("a", "kept")]);
    cluster.run();
    cluster.restart_as(1, 3);
    assert_eq!(cluster.replica(3).status().logged, 3, "it does not know that it was lost");
    cluster.configure(&[2], Some(3), true);
    cluster.run();
    cluster.configure(&[2, 3], None, true);
    assert_eq!(cluster.get(3, key("a")), Ok(Some(b"kept".to_vec())));
    cluster.assert_equal();
    // And its log says the same once more.
    cluster.kill(3);
    cluster.restart_as(3, 4);
    cluster.configure(&[2], Some(4), true);
    cluster.run();
    cluster.configure(&[2, 4], None, true);
    cluster.update(2, vec![put("b", "1")]).unwrap();
    cluster.assert_equal();
}

#[test]
fn a_transfer_that_is_cut_short_by_a_restart_begins_again() {
    let mut cluster = Cluster::new(1);
    fill(&mut cluster, 1, 2000);
    let mut number = 2;
    cluster.start(number);
    for steps in [3, 5, 8, 9, 11] {
        cluster.configure(&[1], Some(number), true);
        for _ in 0..steps {
            cluster.step();
        }
        cluster.kill(number);
        cluster.restart_as(number, number + 1);
        number += 1;
        let holding = cluster.replica(number).holding();
        assert!(holding.logged == 0 || cluster.replica(number).has_base(), "{holding:?}");
    }
    cluster.configure(&[1], Some(number), true);
    cluster.run();
    cluster.configure(&[1, number], None, true);
    cluster.update(1, vec![put("z", "1")]).unwrap();
    cluster.assert_equal();
}

#[test]
fn two_reconfigurations_in_a_row_and_one_that_is_never_seen() {
    let mut cluster = Cluster::new(3);
    cluster.start(4);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.configure(&[1, 2, 3], Some(4), true);
    cluster.run();
    cluster.kill(1);
    // Nobody hears of epoch 3.
    cluster.epoch += 1;
    cluster.configure(&[2, 3, 4], None, true);
    cluster.resend(CLIENT, 2, seq, vec![put("a", "1")]);
    cluster.run();
    cluster.configure(&[2, 4], None, false);
    cluster.configure(&[4], None, true);
    cluster.wait(MS * 600);
    assert_eq!(cluster.get(4, key("a")), Ok(Some(b"1".to_vec())));
    cluster.resend(CLIENT, 4, seq, vec![put("a", "1")]);
    assert_eq!(cluster.outcome(CLIENT, seq), Some(Ok(vec![Outcome::Done { version: 1 }])));
}

#[test]
fn one_whose_history_is_another_is_given_everything_anew() {
    let mut cluster = Cluster::new(2);
    fill(&mut cluster, 1, 20);
    cluster.kill(2);
    cluster.kill(1);
    // A power failure ate the first one's last entries; it was restored alone.
    cluster.disks.get_mut(&1).unwrap().lines.truncate(10);
    cluster.restart_as(1, 3);
    cluster.configure(&[3], None, false);
    cluster.wait(MS * 300);
    for n in 0..20 {
        cluster.send_as(ClientId(2), 3, vec![put(&format!("new{n}"), "1")]);
    }
    cluster.run();
    cluster.restart_as(2, 4);
    cluster.configure(&[3], Some(4), true);
    cluster.run();
    cluster.configure(&[3, 4], None, true);
    cluster.send_as(ClientId(2), 3, vec![put("z", "1")]);
    cluster.assert_equal();
    assert_eq!(cluster.get(4, key("new19")), Ok(Some(b"1".to_vec())));
}

#[test]
fn one_that_has_nothing_does_not_begin_the_shard_anew() {
    let mut cluster = Cluster::new(1);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.kill(1);
    cluster.start(2);
    cluster.configure(&[2], None, true);
    let refused = cluster.update(2, vec![put("a", "1")]);
    assert!(matches!(refused, Err(Refusal::Busy(_))), "{refused:?}");
}

/// Found by the simulation (seed 52): both members of the first epoch that had heard of it were removed before they acted,
/// and the shard stayed down for ever, although nothing had ever been in it.
#[test]
fn a_head_that_never_heard_of_the_first_epoch_begins_the_shard_if_nobody_acted() {
    let mut cluster = Cluster::new(1);
    cluster.kill(1);
    cluster.start(2);
    cluster.epoch += 1;
    let config = ChainConfig { unbegun: true, ..cluster.config(&[2], None, true) };
    cluster.handle(2, Event::Configured(config));
    // Until the document says that it has begun, all of it may be lost again without a word.
    let early = cluster.update(2, vec![put("a", "1")]);
    assert!(matches!(early, Err(Refusal::Busy(_))), "{early:?}");
    cluster.configure(&[2], None, true);
    assert!(cluster.update(2, vec![put("a", "1")]).is_ok());
}

#[test]
fn a_member_that_had_to_be_given_everything_says_what_it_commits() {
    let mut cluster = Cluster::new(1);
    fill(&mut cluster, 1, 10);
    cluster.start(2);
    cluster.configure(&[1, 2], None, true);
    cluster.run();
    cluster.update(1, vec![put("a", "1")]).unwrap();
    assert_eq!(cluster.replica(1).status().applied, 11);
    cluster.assert_equal();
}

#[test]
fn a_new_member_does_not_act_before_its_disk_has_what_was_acknowledged() {
    for before in [0, 10] {
        let mut cluster = Cluster::new(1);
        fill(&mut cluster, 1, before);
        cluster.start(2);
        if before == 0 {
            // It lacks entries; otherwise, everything.
            cluster.configure(&[1], Some(2), true);
            cluster.run();
        }
        cluster.disk_waits(2, true);
        fill(&mut cluster, 1, 10 - before);
        cluster.configure(&[1, 2], None, true);
        cluster.run();
        assert_eq!(cluster.replica(2).status().logged, 10, "{before} rows before");
        assert_eq!(cluster.replica(2).status().acts, None, "{before} rows before");
        cluster.disk_waits(2, false);
        cluster.run();
        let acts = cluster.replica(2).status().acts;
        assert_eq!(acts, Some(Epoch(cluster.epoch)), "{before} rows before");
    }
}

#[test]
fn dropping_what_was_pending_leaves_the_base_in_the_log() {
    let mut cluster = Cluster::new(2);
    cluster.cut(1, 2);
    cluster.send_as(CLIENT, 1, vec![put("a", "lost")]);
    cluster.run();
    cluster.kill(1);
    cluster.heal();
    cluster.configure(&[2], None, true);
    cluster.resend(CLIENT, 2, 1, vec![put("a", "kept")]);
    cluster.run();
    cluster.restart_as(1, 3);
    cluster.configure(&[2], Some(3), true);
    cluster.run();
    cluster.configure(&[2, 3], None, true);
    cluster.run();
    cluster.kill(3);
    cluster.restart_as(3, 4);
    assert_eq!(cluster.replica(4).holding().logged, 1);
}
