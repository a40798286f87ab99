//! Subscriptions: told without gap or duplicate, over changes of the tail and losses.

use super::*;

fn change(index: u64) -> Change {
    Change { index, key: key("a"), row: Some(row("x", index)) }
}

fn changes(after: u64, indexes: &[u64], upto: u64) -> Response {
    let changes = indexes.iter().copied().map(change).collect::<Vec<_>>().into();
    Response::Changes { shard: ShardId(0), subscription: 7, after, changes, upto }
}

fn subscribe(world: &mut World, credit: u32) {
    let (table, prefix, after) = (Table::Kv, Vec::new(), vec![3]);
    world.event(Event::Subscribe { subscription: 7, table, prefix, after, credit });
}

#[test]
fn a_subscription_goes_on_at_the_new_tail_without_gap_or_duplicate() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
    world.response(2, changes(3, &[4, 6], 6));
    let told = |indexes: &[u64], upto| Effect::Changes {
        subscription: 7,
        shard: ShardId(0),
        changes: indexes.iter().copied().map(change).collect(),
        upto,
    };
    assert_eq!(world.take(), [told(&[4, 6], 6)]);
    world.event(Event::Lost { replica: replica(2) });
    world.response(2, changes(6, &[7], 7));
    world.told(config(vec![chain(0, 2, &[1])]));
    assert_eq!(world.subscribed(), [(1, 6, 2)], "two are in the caller's hands");
    world.response(1, changes(5, &[6, 7], 7));
    assert_eq!(world.take(), [told(&[7], 7)]);
    let credit = |more: u32| {
        let request = Request::Credit { shard: ShardId(0), subscription: 7, more };
        Effect::Send { to: replica(1), request }
    };
    world.response(1, changes(6, &[7], 7));
    assert_eq!(world.take(), [credit(2)], "nobody consumes duplicates");
    world.event(Event::Consumed { subscription: 7, shard: ShardId(0), changes: 3 });
    assert_eq!(world.take(), [credit(3)]);
}

#[test]
fn an_older_subscription_at_the_same_tail_leaves_no_gap() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    let why = Refusal::Stale(Epoch(1));
    world.response(2, Response::SubscriptionEnded { shard: ShardId(0), subscription: 7, why });
    // Nobody is listened to while nothing is subscribed; then an older word comes first.
    world.response(2, changes(3, &[4], 4));
    world.after(Duration::from_millis(1));
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
    world.response(2, changes(4, &[5], 5));
    assert_eq!(world.take(), [], "4 was never told");
    world.after(Duration::from_millis(2));
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
    world.response(2, changes(3, &[4, 5], 5));
    assert_eq!(world.take().len(), 1);
}

#[test]
fn who_missed_something_reads_again_and_goes_on_from_there() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    let missed = Response::Missed { shard: ShardId(0), subscription: 7, oldest: 90 };
    world.response(2, missed);
    let told = Effect::Missed { subscription: 7, shard: ShardId(0), oldest: 90 };
    assert_eq!(world.take(), [told]);
    world.told(config(vec![chain(0, 2, &[1])]));
    assert_eq!(world.subscribed(), [], "it waits for the caller");
    world.event(Event::Resume { subscription: 7, shard: ShardId(0), after: 100 });
    assert_eq!(world.subscribed(), [(1, 100, 4)]);
    world.event(Event::Unsubscribe { subscription: 7 });
    assert_eq!(world.take().len(), 1);
}

/// The tail stops when it says `Missed`, and the client let that pass: it was told nothing any more.
#[test]
fn a_subscription_that_had_passed_what_the_tail_forgot_is_given_credit_again() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    world.response(2, changes(3, &[8], 8));
    world.take();
    world.response(2, Response::Missed { shard: ShardId(0), subscription: 7, oldest: 9 });
    assert_eq!(world.subscribed(), [(2, 8, 3)], "nothing was missed");
    world.response(2, changes(8, &[9], 9));
    assert_eq!(world.take().len(), 1, "its word counts");
}

/// The same index may be given to another entry, and the same seq to a batch that the head remembers otherwise.
#[test]
fn a_history_that_lost_its_end_voids_cursors_and_sessions() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.call(1, Call::Update(vec![put("a")]));
    world.take();
    let mut lossy = chain(0, 5, &[1]);
    lossy.history = Epoch(5);
    world.told(config(vec![lossy]));
    let effects = world.take();
    let missed = Effect::Missed { subscription: 7, shard: ShardId(0), oldest: 1 };
    assert!(effects.contains(&missed), "{effects:?}");
    let late = |effect: &Effect| {
        matches!(
            effect,
            Effect::Finish { call: 1, result: Err(CallError::Late { may_apply: true, .. }) }
        )
    };
    assert!(effects.iter().any(late), "{effects:?}");
    world.event(Event::Resume { subscription: 7, shard: ShardId(0), after: 2 });
    assert_eq!(world.subscribed(), [(1, 2, 4)], "from before where it had been");
    // It lived through a configuration that it was not told of.
    let mut later = chain(0, 9, &[1]);
    later.history = Epoch(5);
    world.told(config(vec![later]));
    assert_eq!(world.subscribed(), [(1, 2, 4)], "nothing was lost since");
}

#[test]
fn a_subscription_that_ended_is_taken_up_again() {
    let mut world = World::ready();
    subscribe(&mut world, 4);
    world.take();
    let why = Refusal::NotMine("tail".to_string());
    world.response(2, Response::SubscriptionEnded { shard: ShardId(0), subscription: 7, why });
    assert_eq!(world.subscribed(), []);
    world.after(Duration::from_millis(1));
    assert_eq!(world.subscribed(), [(2, 3, 4)]);
}
