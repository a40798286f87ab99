//! Who may answer queries, and for how long.

use super::*;
use hoplo_base::limits::{CONTROL_LEASE, CONTROL_LEASE_WAIT};

fn get(name: &str) -> Query {
    Query::Get { key: key(name) }
}

#[test]
fn a_tail_that_is_cut_off_answers_nothing_once_its_lease_is_over() {
    let mut cluster = Cluster::new(3);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    assert_eq!(cluster.get(3, key("a")), Ok(Some(b"1".to_vec())));
    for (one, other) in [(2, 3), (3, 2), (1, 3), (3, 1)] {
        cluster.cut(one, other);
    }
    let within = cluster.ask(3, get("a"), false);
    assert!(cluster.answer(within).is_some());
    cluster.now = cluster.now + CONTROL_LEASE;
    let after = cluster.ask(3, get("a"), false);
    cluster.wait(MS * 1000);
    assert_eq!(cluster.answer(after), None);
    let stale = cluster.ask(3, get("a"), true);
    assert!(matches!(cluster.answer(stale), Some(Ok(_))), "a prefix of history is there");
    cluster.wait(MS * 2000);
    assert!(matches!(cluster.answer(after), Some(Err(Refusal::Busy(_)))), "the caller is told");
}

#[test]
fn a_stopped_tail_that_wakes_up_finds_its_lease_over() {
    let mut cluster = Cluster::new(2);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.get(2, key("a")).unwrap();
    // SIGSTOP: no event for long. The first one after it is a query; others have moved on.
    cluster.epoch += 1;
    let config = cluster.config(&[1], None, false);
    cluster.handle(1, Event::Configured(config));
    cluster.now = cluster.now + CONTROL_LEASE_WAIT;
    cluster.handle(1, Event::Tick);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "2")]);
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
    cluster.epoch -= 1;
    let stopped = cluster.ask(2, get("a"), false);
    cluster.run();
    assert_eq!(cluster.answer(stopped), None);
}

#[test]
fn a_tail_in_place_of_one_that_may_live_waits_before_it_commits_and_answers() {
    let mut cluster = Cluster::new(2);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.get(2, key("a")).unwrap();
    let began = cluster.now;
    cluster.configure(&[1], None, false);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "2")]);
    let query = cluster.ask(1, get("a"), false);
    cluster.wait(CONTROL_LEASE);
    assert_eq!((cluster.outcome(CLIENT, seq), cluster.answer(query)), (None, None));
    cluster.wait(began + CONTROL_LEASE_WAIT - cluster.now);
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
    assert!(matches!(cluster.answer(query), Some(Ok(_))));
}

#[test]
fn a_tail_in_place_of_a_dead_one_does_not_wait() {
    let mut cluster = Cluster::new(2);
    cluster.kill(2);
    cluster.configure(&[1], None, true);
    assert!(cluster.update(1, vec![put("a", "1")]).is_ok());
    assert_eq!(cluster.get(1, key("a")), Ok(Some(b"1".to_vec())));
}

#[test]
fn two_that_are_cut_off_together_cannot_lend_each_other_a_lease() {
    let mut cluster = Cluster::new(3);
    cluster.get(3, key("a")).unwrap();
    for cut_off in [2, 3] {
        cluster.cut(1, cut_off);
        cluster.cut(cut_off, 1);
    }
    cluster.now = cluster.now + CONTROL_LEASE;
    let query = cluster.ask(3, get("a"), false);
    cluster.wait(MS * 500);
    assert_eq!(cluster.answer(query), None);
}

#[test]
fn one_promoted_right_after_an_unproven_removal_commits_nothing_early() {
    let mut cluster = Cluster::new(3);
    cluster.start(4);
    cluster.get(3, key("a")).unwrap();
    // 3 is silent, not proven dead: its lease goes on. 4 never hears of that.
    cluster.configure(&[1, 2], Some(4), false);
    cluster.run();
    cluster.configure(&[1, 2, 4], None, true);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.wait(CONTROL_LEASE);
    assert_eq!(cluster.outcome(CLIENT, seq), None);
    cluster.wait(CONTROL_LEASE_WAIT);
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
}

#[test]
fn a_new_tail_answers_only_with_all_that_the_old_one_may_have_answered() {
    let mut cluster = Cluster::new(3);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    // The tail commits and answers, but nobody before it hears so.
    cluster.cut(3, 2);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "2")]);
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
    cluster.kill(3);
    cluster.cut(1, 2);
    cluster.configure(&[1, 2], None, true);
    let query = cluster.ask(2, get("a"), false);
    cluster.wait(MS * 100);
    assert_eq!(cluster.answer(query), None, "it knows of the second value, and not that it counts");
    cluster.heal();
    cluster.wait(MS * 200);
    let Some(Ok(Answer::Row(Some(row)))) = cluster.answer(query) else { panic!("an answer") };
    assert_eq!(row.value, b"2");
}

#[test]
fn a_tail_that_was_one_before_goes_on_when_the_head_dies() {
    let mut cluster = Cluster::new(3);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.kill(1);
    cluster.configure(&[2, 3], None, true);
    assert_eq!(cluster.get(3, key("a")), Ok(Some(b"1".to_vec())));
}

#[test]
fn a_tail_that_never_acted_as_one_is_new_in_the_next_epoch_too() {
    let mut cluster = Cluster::new(2);
    cluster.start(3);
    cluster.configure(&[1, 2], Some(3), true);
    cluster.run();
    // 3 becomes tail, but hears nothing of its predecessor, which dies.
    cluster.cut(2, 3);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.run();
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
    cluster.configure(&[1, 2, 3], None, true);
    cluster.run();
    cluster.kill(2);
    cluster.cut(1, 3);
    cluster.configure(&[1, 3], None, true);
    let query = cluster.ask(3, get("a"), false);
    cluster.run();
    cluster.heal();
    // It hears the head's Sync, and has not got the entry yet.
    while cluster.replica(3).status().acts.is_none() {
        cluster.wait(MS);
        assert!(!matches!(cluster.answer(query), Some(Ok(Answer::Row(None)))), "it was answered");
    }
    cluster.wait(MS * 200);
    assert!(matches!(cluster.answer(query), Some(Ok(Answer::Row(Some(_))))));
}

#[test]
fn who_never_heard_of_an_unproven_removal_commits_nothing_early_either() {
    let mut cluster = Cluster::new(3);
    cluster.start(4);
    cluster.configure(&[1, 2, 3], Some(4), true);
    cluster.wait(MS * 100);
    cluster.get(3, key("a")).unwrap();
    // 3 is silent, not proven dead: its lease goes on. Only the others hear of that.
    cluster.epoch += 1;
    let config = cluster.config(&[1, 2], None, false);
    for number in [1, 2] {
        cluster.handle(number, Event::Configured(config.clone()));
    }
    cluster.run();
    cluster.configure(&[1, 2, 4], None, true);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "1")]);
    cluster.wait(CONTROL_LEASE);
    assert_eq!(cluster.outcome(CLIENT, seq), None, "1 and 2 do not say what is stable");
    cluster.wait(CONTROL_LEASE_WAIT);
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
}

/// It hears of a tail that is proven dead, not of the one before, whose lease goes on. Who does hear of that one lends nothing.
#[test]
fn who_never_heard_of_an_unproven_removal_is_lent_no_lease_beside_the_old_one() {
    let mut cluster = Cluster::new(2);
    cluster.start(3);
    cluster.configure(&[1, 2], Some(3), true);
    cluster.wait(MS * 100);
    cluster.get(2, key("a")).unwrap();
    let old_one_answers = |cluster: &Cluster| cluster.replica(2).answers(cluster.now);
    cluster.epoch += 1;
    let config = cluster.config(&[1], None, false);
    cluster.handle(1, Event::Configured(config));
    cluster.epoch += 1;
    let config = cluster.config(&[1, 3], None, true);
    for number in [1, 3] {
        cluster.handle(number, Event::Configured(config.clone()));
    }
    let query = cluster.ask(3, get("a"), false);
    cluster.wait(CONTROL_LEASE / 2);
    assert!(old_one_answers(&cluster));
    assert_eq!(cluster.answer(query), None, "2 answers, too");
    cluster.wait(CONTROL_LEASE_WAIT);
    assert!(!old_one_answers(&cluster));
    assert!(matches!(cluster.answer(query), Some(Ok(_))));
}

/// It hears of the newest configuration only: the tail in front of that one is proven dead, the one before that is not.
#[test]
fn a_member_that_missed_an_unproven_removal_commits_nothing_early() {
    let mut cluster = Cluster::new(3);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.get(3, key("a")).unwrap();
    // Epoch 2 leaves 3 out, which is silent, and never reaches 1. Then 2 dies.
    cluster.epoch += 1;
    cluster.kill(2);
    cluster.configure(&[1], None, true);
    let seq = cluster.send_as(CLIENT, 1, vec![put("a", "2")]);
    cluster.wait(CONTROL_LEASE);
    assert_eq!(cluster.outcome(CLIENT, seq), None, "3 may answer from the past");
    cluster.wait(CONTROL_LEASE_WAIT);
    assert!(matches!(cluster.outcome(CLIENT, seq), Some(Ok(_))));
}

/// It counts from the moment of the ask: whoever granted it may be long gone, and others wait no longer than that.
#[test]
fn a_lease_that_was_long_under_way_ends_no_later() {
    let mut cluster = Cluster::new(2);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    let asked = cluster.now + CONTROL_LEASE;
    cluster.now = asked;
    let first = cluster.ask(2, get("a"), false);
    assert!(cluster.step(), "it asks for a lease");
    cluster.cut(2, 1);
    cluster.now = asked + CONTROL_LEASE * 3 / 4;
    cluster.run();
    assert!(matches!(cluster.answer(first), Some(Ok(_))), "it was granted");
    cluster.cut(1, 2);
    cluster.now = asked + CONTROL_LEASE;
    let late = cluster.ask(2, get("a"), false);
    cluster.run();
    assert_eq!(cluster.answer(late), None);
}

#[test]
fn a_promoted_tail_answers_only_with_all_that_its_predecessor_answered_before() {
    let mut cluster = Cluster::new(1);
    cluster.start(2);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.configure(&[1], Some(2), true);
    cluster.wait(MS * 100);
    cluster.cut(1, 2);
    cluster.update(1, vec![put("a", "2")]).unwrap();
    cluster.heal();
    // It hears of the second value, and cannot commit it yet.
    cluster.disk_waits(2, true);
    cluster.configure(&[1, 2], None, true);
    let query = cluster.ask(2, get("a"), false);
    cluster.wait(MS * 100);
    assert_eq!(cluster.answer(query), None);
    cluster.disk_waits(2, false);
    cluster.wait(MS * 200);
    let Some(Ok(Answer::Row(Some(row)))) = cluster.answer(query) else { panic!("an answer") };
    assert_eq!(row.value, b"2");
}
