//! Subscriptions.

use super::*;
use hoplo_base::limits::{
    CONTROL_NEWS_AT_ONCE, CONTROL_NEWS_GATHERED_OF_EACH, CONTROL_NEWS_TOLD_AT_A_TIME,
};
use hoplo_wire::Shared;
use hoplo_wire::control::Change;

fn subscribe(cluster: &mut Cluster, tail: u64, after: u64, credit: u32) {
    let (shard, epoch, table) = (SHARD, Epoch(cluster.epoch), Table::Kv);
    let prefix = b"a".to_vec();
    let request =
        Request::Subscribe { shard, epoch, subscription: 9, table, prefix, after, credit };
    cluster.handle(tail, Event::Request { from: CLIENT, request });
}

/// Changes that were told, and how far.
fn told(cluster: &Cluster) -> (Vec<Change>, u64) {
    let mut all = Vec::new();
    let mut reached = 0;
    for (_, _, response) in &cluster.responses {
        if let Response::Changes { after, changes, upto, .. } = response {
            assert!(*after == reached && *upto >= reached, "in order, and nothing between");
            all.extend(changes.iter().cloned());
            reached = *upto;
        }
    }
    (all, reached)
}

fn indexes(changes: &[Change]) -> Vec<u64> {
    changes.iter().map(|change| change.index).collect()
}

#[test]
fn a_subscriber_sees_each_change_of_its_prefix_once() {
    let mut cluster = Cluster::new(2);
    cluster.update(1, vec![put("a1", "1")]).unwrap();
    subscribe(&mut cluster, 2, 0, 100);
    cluster.update(1, vec![put("b", "1"), put("a2", "1"), put("a2", "2")]).unwrap();
    let conflict = Op::Put { key: key("a1"), value: vec![], expected: Some(7), finished: false };
    let gone = |name: &str| Op::Delete { key: key(name), expected: None };
    cluster.update(1, vec![conflict, gone("a1"), gone("a1"), gone("a3")]).unwrap();
    let (changes, upto) = told(&cluster);
    let seen: Vec<(u64, &[u8], Option<u64>)> = changes
        .iter()
        .map(|change| {
            (change.index, &change.key.bytes[..], change.row.as_ref().map(|row| row.version))
        })
        .collect();
    let expected: [(u64, &[u8], Option<u64>); 4] =
        [(1, b"a1", Some(1)), (2, b"a2", Some(1)), (2, b"a2", Some(2)), (3, b"a1", None)];
    assert_eq!(seen, expected);
    assert_eq!(upto, 3);
}

#[test]
fn nothing_is_told_without_credit_and_nothing_is_forgotten() {
    let mut cluster = Cluster::new(1);
    subscribe(&mut cluster, 1, 0, 2);
    for _ in 0..5 {
        cluster.update(1, vec![put("a", "1")]).unwrap();
    }
    assert_eq!(indexes(&told(&cluster).0), [1, 2]);
    let credit = Request::Credit { shard: SHARD, subscription: 9, more: 10 };
    cluster.handle(1, Event::Request { from: CLIENT, request: credit });
    assert_eq!(indexes(&told(&cluster).0), [1, 2, 3, 4, 5]);
    let end = Request::Unsubscribe { shard: SHARD, subscription: 9 };
    cluster.handle(1, Event::Request { from: CLIENT, request: end });
    cluster.update(1, vec![put("a", "1")]).unwrap();
    assert_eq!(told(&cluster).0.len(), 5);
}

#[test]
fn at_a_new_tail_it_goes_on_from_the_same_cursor() {
    let mut cluster = Cluster::new(3);
    subscribe(&mut cluster, 3, 0, 100);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    cluster.update(1, vec![put("a", "2")]).unwrap();
    cluster.kill(3);
    cluster.configure(&[1, 2], None, true);
    let cursor = told(&cluster).1;
    subscribe(&mut cluster, 2, cursor, 100);
    cluster.update(1, vec![put("a", "3")]).unwrap();
    assert_eq!(indexes(&told(&cluster).0), [1, 2, 3]);
    cluster.start(4);
    cluster.configure(&[1, 2], Some(4), true);
    cluster.run();
    cluster.configure(&[1, 2, 4], None, true);
    cluster.run();
    let ended = |(_, _, response): &(u64, ClientId, Response)| {
        matches!(response, Response::SubscriptionEnded { subscription: 9, .. })
    };
    assert!(cluster.responses.iter().any(ended), "the old tail says so");
}

#[test]
fn who_is_too_slow_is_told_what_it_missed_and_costs_no_memory() {
    let mut cluster = Cluster::with(1, |options| options.recent_bytes = 64 * 1024);
    subscribe(&mut cluster, 1, 0, 0);
    for _ in 0..200 {
        cluster.update(1, vec![put("a", &"x".repeat(1000))]).unwrap();
    }
    assert!(cluster.replica(1).status().history_bytes <= 66 * 1024);
    let missed: Vec<u64> = cluster
        .responses
        .iter()
        .filter_map(|(_, _, response)| match response {
            Response::Missed { oldest, .. } => Some(*oldest),
            _ => None,
        })
        .collect();
    assert!(missed[0] > 1, "{missed:?}");
    // It reads the table again, which is as of 200, and goes on from there.
    subscribe(&mut cluster, 1, 200, 10);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    let last = cluster.responses.iter().rev().find_map(|(_, _, response)| match response {
        Response::Changes { after, changes, .. } => Some((*after, indexes(changes))),
        _ => None,
    });
    assert_eq!(last, Some((200, vec![201])));
}

#[test]
fn who_subscribed_before_a_new_tail_was_given_its_base_is_told_that_it_missed_something() {
    let mut cluster = Cluster::new(1);
    for _ in 0..10 {
        cluster.update(1, vec![put("a", "1")]).unwrap();
    }
    cluster.start(2);
    cluster.configure(&[1, 2], None, true);
    // A coordinator should not have made it a member so early, but it did.
    subscribe(&mut cluster, 2, 8, 10);
    cluster.run();
    let missed = |(_, _, response): &(u64, ClientId, Response)| {
        matches!(response, Response::Missed { oldest: 11, .. })
    };
    assert!(cluster.responses.iter().any(missed), "{:?}", cluster.responses);
}

#[test]
fn a_cursor_that_moves_in_silence_is_told_now_and_then() {
    let mut cluster = Cluster::new(1);
    subscribe(&mut cluster, 1, 0, 10);
    for _ in 0..10 {
        cluster.update(1, vec![put("b", "1")]).unwrap();
    }
    assert_eq!(told(&cluster).1, 0);
    cluster.wait(MS * 1100);
    assert_eq!(told(&cluster), (vec![], 10));
}

/// What each of very many changes was told to each of very many subscribers, by a message of its own.
#[test]
fn very_many_subscribers_hear_together_what_changes_within_a_moment() {
    let mut cluster = Cluster::new(1);
    subscribe_all(&mut cluster, VERY_MANY);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    assert_eq!(news(&cluster), vec![vec![1]; VERY_MANY], "the first change, at once");
    cluster.responses.clear();
    for _ in 0..5 {
        cluster.update(1, vec![put("a", "1")]).unwrap();
    }
    assert_eq!(news(&cluster), [[0; 0]; 0]);
    cluster.wait(CONTROL_NEWS_GATHERED_OF_EACH * VERY_MANY as u32);
    assert_eq!(news(&cluster), vec![vec![2, 3, 4, 5, 6]; VERY_MANY]);
}

/// Hundreds of thousands of actors began within that moment, and each node of the cluster read the table of nodes again.
#[test]
fn very_many_subscribers_miss_nothing_when_others_rows_come_in_floods() {
    let some = CONTROL_NEWS_TOLD_AT_A_TIME;
    for many in [VERY_MANY, 2 * some + 1] {
        let mut cluster = Cluster::with(1, |options| options.recent_bytes = 64 * 1024);
        subscribe_all(&mut cluster, many);
        cluster.update(1, vec![put("a", "1")]).unwrap();
        assert_eq!(news(&cluster), vec![vec![1]; many.min(some)]);
        for _ in 0..200 {
            cluster.update(1, vec![put("b", &"x".repeat(1000))]).unwrap();
        }
        assert_eq!(news(&cluster), vec![vec![1]; many]);
        cluster.responses.clear();
        cluster.update(1, vec![put("a", "1")]).unwrap();
        cluster.wait(CONTROL_NEWS_GATHERED_OF_EACH * 2 * many as u32);
        assert!(cluster.replica(1).status().history_bytes <= 66 * 1024);
        let missed = |(_, _, response): &_| matches!(response, Response::Missed { .. });
        assert!(!cluster.responses.iter().any(missed));
        assert_eq!(news(&cluster), vec![vec![202]; many]);
    }
}

/// Each of thousands of nodes had every row copied and encoded for itself.
#[test]
fn those_who_are_told_the_same_share_it_but_for_one_with_less_credit() {
    let mut cluster = Cluster::new(1);
    subscribe_all(&mut cluster, 5);
    subscribe(&mut cluster, 1, 0, 2);
    cluster.update(1, vec![put("a1", "1"), put("a2", "1")]).unwrap();
    cluster.update(1, vec![put("a3", "1"), put("a4", "1")]).unwrap();
    cluster.update(1, vec![put("a5", "1")]).unwrap();
    assert_eq!(told_to(&cluster, 9), [[1, 1]], "as far as its credit goes");
    let mut last = Vec::new();
    for subscription in 0..5 {
        assert_eq!(told_to(&cluster, subscription), [vec![1, 1], vec![2, 2], vec![3]]);
        last.extend(told_as(&cluster, subscription).pop());
    }
    assert!(last.iter().all(|changes| changes.is_same(&last[0])));
}

/// The head's thread was busy for tenths of a second when it told thousands of nodes at a time, and all else waited for that.
#[test]
fn no_more_than_some_hundreds_are_told_at_a_time() {
    let mut cluster = Cluster::new(1);
    let (some, each) = (CONTROL_NEWS_TOLD_AT_A_TIME, CONTROL_NEWS_GATHERED_OF_EACH);
    let many = 2 * some + 1;
    subscribe_all(&mut cluster, many);
    cluster.update(1, vec![put("a", "1")]).unwrap();
    assert_eq!(news(&cluster).len(), some);
    // What others ask for meanwhile has none of them told earlier.
    cluster.update(1, vec![put("a", "1")]).unwrap();
    assert_eq!(news(&cluster).len(), some);
    cluster.wait(each * some as u32);
    assert_eq!(news(&cluster).len(), 2 * some);
    cluster.wait(each * (3 * some) as u32);
    for subscription in 0..many as u64 {
        let told: Vec<u64> = told_to(&cluster, subscription).concat();
        assert_eq!(told, [1, 2], "subscription {subscription}");
    }
}

/// The replica was told to look after nobody, again and again, until something else changed.
#[test]
fn nobody_is_waited_for_who_is_gone_before_its_turn() {
    let ends: [fn(u64) -> Event; 2] = [
        |_| Event::ClientGone { client: CLIENT },
        |subscription| Event::Request {
            from: CLIENT,
            request: Request::Unsubscribe { shard: SHARD, subscription },
        },
    ];
    for end in ends {
        let mut cluster = Cluster::new(1);
        let many = CONTROL_NEWS_TOLD_AT_A_TIME + 1;
        subscribe_all(&mut cluster, many);
        cluster.update(1, vec![put("a", "1")]).unwrap();
        (0..many as u64).for_each(|subscription| cluster.handle(1, end(subscription)));
        cluster.wait(CONTROL_NEWS_GATHERED_OF_EACH * 2 * many as u32);
        let next = cluster.replica(1).next_deadline();
        assert!(next.is_none_or(|next| next > cluster.now), "{next:?}");
    }
}

/// More than hear of each change at once, and less than are told at a time.
const VERY_MANY: usize = 2 * CONTROL_NEWS_AT_ONCE;

fn subscribe_all(cluster: &mut Cluster, many: usize) {
    for subscription in 0..many as u64 {
        let (shard, epoch, table, prefix) = (SHARD, Epoch(cluster.epoch), Table::Kv, b"a".to_vec());
        let (after, credit) = (0, 100);
        let request =
            Request::Subscribe { shard, epoch, subscription, table, prefix, after, credit };
        cluster.handle(1, Event::Request { from: CLIENT, request });
    }
}

/// Each message that told this one changes.
fn told_as(cluster: &Cluster, subscription: u64) -> Vec<Shared<Vec<Change>>> {
    let told = cluster.responses.iter().filter_map(|(_, _, response)| match response {
        Response::Changes { subscription: to, changes, .. } if *to == subscription => {
            Some(changes.clone())
        }
        _ => None,
    });
    told.collect()
}

fn told_to(cluster: &Cluster, subscription: u64) -> Vec<Vec<u64>> {
    told_as(cluster, subscription).iter().map(|changes| indexes(changes)).collect()
}

/// What each message told that told a change.
fn news(cluster: &Cluster) -> Vec<Vec<u64>> {
    let news = cluster.responses.iter().filter_map(|(_, _, response)| match response {
        Response::Changes { changes, .. } if !changes.is_empty() => Some(indexes(changes)),
        _ => None,
    });
    news.collect()
}
