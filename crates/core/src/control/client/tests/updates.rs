//! Updates: sent, answered, refused and sent again, in sessions.

use super::*;

#[test]
fn a_call_waits_for_the_configuration_and_both_ends_of_the_chain() {
    let mut world = World::new();
    world.call(1, Call::Update(vec![put("a")]));
    let asked = world.take();
    assert!(asked.iter().all(|effect| matches!(effect, Effect::Tell { .. })), "{asked:?}");
    world.told(config(vec![chain(0, 1, &[1, 2])]));
    world.event(Event::Connected { replica: replica(1) });
    assert_eq!(world.updates(), [], "nobody could answer");
    world.event(Event::Connected { replica: replica(2) });
    assert_eq!(world.updates(), [(1, 1, 0, 1)]);
    world.updated(1, &[1]);
    assert_eq!(world.finished(), [(1, ok(&[1]))]);
    assert_eq!(world.client.calls_open(), 0);
}

#[test]
fn a_batch_is_split_by_shard_and_its_outcomes_come_in_its_order() {
    let mut world = World::with(vec![chain(0, 1, &[1]), chain(1, 1, &[2])]);
    let [zero, one, again] = [name_in(0, 0), name_in(1, 0), name_in(0, 1)];
    world.call(1, Call::Update(vec![put(&zero), put(&one), put(&again)]));
    assert_eq!(world.updates(), [(1, 1, 0, 2), (2, 1, 0, 1)]);
    let updated = |shard, versions: &[u64]| Response::Updated {
        shard: ShardId(shard),
        seq: OPENING + 1,
        index: 1,
        outcomes: done(versions),
    };
    world.response(2, updated(1, &[7]));
    assert_eq!(world.finished(), []);
    world.response(1, updated(0, &[5, 6]));
    assert_eq!(world.finished(), [(1, ok(&[5, 7, 6]))]);
}

#[test]
fn what_is_not_answered_is_sent_again_as_it_was_after_each_change() {
    let mut world = World::ready();
    for call in 1..=3 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    assert_eq!(world.updates(), [(1, 1, 0, 1), (1, 2, 0, 1), (1, 3, 0, 1)]);
    world.updated(2, &[2]);
    world.event(Event::Lost { replica: replica(1) });
    assert_eq!(world.updates(), [], "the head is gone");
    // The tail is head now, too.
    world.told(config(vec![chain(0, 2, &[2])]));
    assert_eq!(world.updates(), [(2, 1, 0, 1), (2, 3, 0, 1)]);
    world.updated(1, &[1]);
    world.updated(1, &[1]);
    world.call(4, Call::Update(vec![put("a")]));
    assert_eq!(world.updates(), [(2, 4, 2, 1)], "1 and 2 were answered");
    world.updated(3, &[3]);
    world.updated(4, &[4]);
    assert_eq!(world.finished(), [(3, ok(&[3])), (4, ok(&[4]))]);
}

/// Two nodes that died at once had one entry: nobody could say which was first, and when the second one was settled nobody took it for that.
#[test]
fn what_is_said_of_nodes_has_entries_of_its_own() {
    let mut world = World::ready();
    let window = CONTROL_CLIENT_WINDOW as u64;
    for call in 1..=window {
        world.call(call, Call::Update(vec![put("a")]));
    }
    for call in window + 1..=window + 4 {
        let mut op = put("b");
        if let (Op::Put { key, .. }, 2..) = (&mut op, call - window) {
            key.table = Table::Node;
        }
        world.call(call, Call::Update(vec![op]));
    }
    world.take();
    for seq in 1..=4 {
        world.updated(seq, &[seq]);
        assert_eq!(world.updates(), [(1, window + seq, seq, 1)]);
    }
}

#[test]
fn calls_that_find_the_window_full_travel_together() {
    let mut world = World::ready();
    let window = CONTROL_CLIENT_WINDOW as u64;
    for call in 1..=window + 5 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    assert_eq!(world.updates().len(), CONTROL_CLIENT_WINDOW);
    world.updated(1, &[1]);
    assert_eq!(world.updates(), [(1, window + 1, 1, 5)]);
    for seq in 2..=window {
        world.updated(seq, &[seq]);
    }
    world.take();
    world.updated(window + 1, &[1, 2, 3, 4, 5]);
    let finished = world.finished();
    assert_eq!(finished[4], (window + 5, ok(&[5])));
    assert_eq!(world.client.calls_open(), 0);
}

#[test]
fn one_bad_row_is_not_the_fault_of_those_that_travel_with_it() {
    let mut world = World::ready();
    for call in 1..=CONTROL_CLIENT_WINDOW as u64 + 2 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    world.updated(1, &[1]);
    world.take();
    let both = CONTROL_CLIENT_WINDOW as u64 + 1;
    let why = Refusal::KeyTooLong { bytes: 2000, max: 1024 };
    world.refused(both, why.clone());
    let sent = world.updates();
    assert_eq!(sent.last(), Some(&(1, both, 1, 0)), "an empty batch takes the seq: {sent:?}");
    for seq in 2..=both {
        world.updated(seq, if seq == both { &[] } else { &[1] });
    }
    let sent: Vec<_> = world.updates().into_iter().filter(|sent| sent.1 > both).collect();
    assert_eq!(
        sent.iter().map(|sent| (sent.1, sent.3)).collect::<Vec<_>>(),
        [(both + 1, 1), (both + 2, 1)]
    );
    world.refused(both + 1, why.clone());
    let refused = Err(CallError::Refused { why, elsewhere: false });
    assert_eq!(world.finished().last(), Some(&(both, refused)));
    world.updated(both + 1, &[]);
    world.updated(both + 2, &[9]);
    assert_eq!(world.finished(), [(both + 1, ok(&[9]))]);
}

#[test]
fn a_full_disk_is_said_to_all_who_wait_behind_it() {
    let mut world = World::ready();
    for call in 1..=3 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    world.updated(1, &[1]);
    world.take();
    let why = Refusal::Disk("no space left".to_string());
    world.refused(2, why.clone());
    let refused = Err(CallError::Refused { why: why.clone(), elsewhere: false });
    // The third is on its way: the head may find room before it comes.
    let unsure = Err(CallError::Late { may_apply: true, waiting: why.to_string() });
    assert_eq!(world.finished(), [(3, unsure), (2, refused)]);
    // Their seqs are used up all the same, once there is room.
    world.after(Duration::from_millis(1));
    assert_eq!(world.updates(), [(1, 2, 1, 0), (1, 3, 1, 0)]);
    world.updated(2, &[]);
    world.updated(3, &[]);
    world.call(4, Call::Update(vec![put("a")]));
    assert_eq!(world.updates(), [(1, 4, 3, 1)]);
}

#[test]
fn a_refusal_of_one_of_two_copies_is_no_proof_that_nothing_was_applied() {
    let full = Refusal::Full { used: 2, cap: 1 };
    for why in [Refusal::Disk("no space left".to_string()), full] {
        let mut world = World::ready();
        world.call(1, Call::Update(vec![put("a")]));
        let mut copies = world.updates().len();
        for _ in 0..20 {
            let due = world.client.next_deadline().unwrap();
            world.after(due.since(world.now));
            copies += world.updates().len();
            if copies == 2 {
                break;
            }
        }
        assert_eq!(copies, 2, "it is sent again after a silence");
        world.refused(1, why.clone());
        let unsure = Err(CallError::Late { may_apply: true, waiting: why.to_string() });
        assert_eq!(world.finished(), [(1, unsure)]);
    }
}

#[test]
fn a_gap_is_filled_once_in_order() {
    let mut world = World::ready();
    for call in 1..=3 {
        world.call(call, Call::Update(vec![put("a")]));
    }
    world.take();
    world.refused(2, Refusal::Gap { expected: OPENING + 1 });
    assert_eq!(world.updates(), [(1, 1, 0, 1), (1, 2, 0, 1), (1, 3, 0, 1)]);
    world.refused(3, Refusal::Gap { expected: OPENING + 1 });
    assert_eq!(world.updates(), [], "it is underway");
}

#[test]
fn a_refusal_for_now_is_tried_again_until_the_deadline() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.take();
    for _ in 0..5 {
        world.refused(1, Refusal::Busy("it syncs".to_string()));
        assert_eq!(world.updates(), []);
        let due = world.client.next_deadline().unwrap();
        world.after(due.since(world.now));
        assert_eq!(world.updates(), [(1, 1, 0, 1)]);
    }
    world.after(Duration::from_secs(11));
    let finished = world.finished();
    let [(1, Err(CallError::Late { may_apply: true, waiting }))] = &finished[..] else {
        panic!("{finished:?}")
    };
    assert!(waiting.contains("it syncs"), "{waiting}");
    // Its seq is not free, so it is still sent.
    world.updated(1, &[1]);
    assert_eq!(world.finished(), []);
}

#[test]
fn an_update_that_never_left_will_never_be_applied() {
    let mut world = World::ready();
    world.event(Event::Lost { replica: replica(1) });
    world.call(1, Call::Update(vec![put("a")]));
    world.after(Duration::from_secs(11));
    let finished = world.finished();
    assert!(
        matches!(&finished[..], [(1, Err(CallError::Late { may_apply: false, .. }))]),
        "{finished:?}"
    );
    world.event(Event::Connected { replica: replica(1) });
    assert_eq!(world.updates(), []);
}

#[test]
fn a_session_that_is_over_ends_what_is_underway_and_begins_anew() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.updated(1, &[1]);
    world.call(2, Call::Update(vec![put("a")]));
    world.take();
    world.refused(2, Refusal::SessionOver { upto: 9 });
    let finished = world.finished();
    assert!(matches!(&finished[..], [(2, Err(CallError::Late { may_apply: true, .. }))]));
    world.call(3, Call::Update(vec![put("a")]));
    assert_eq!(world.born(), [(9, 3, 0)], "an empty batch under a seq that was never used");
    world.updated(3, &[]);
    assert_eq!(world.born(), [(9, 4, 1)]);
}

#[test]
fn a_client_that_the_shard_does_not_know_yet_loses_nothing_by_asking() {
    let mut world = World::ready();
    world.opens = false;
    world.call(1, Call::Update(vec![put("a")]));
    assert_eq!(world.born(), [(0, 0, 0)], "it goes alone");
    world.call(2, Call::Update(vec![put("b")]));
    // Sent again, so one copy may have been taken: no matter.
    world.event(Event::Connected { replica: replica(1) });
    assert_eq!(world.born(), [(0, 0, 0)]);
    world.refused(0, Refusal::SessionOver { upto: 7 });
    assert_eq!(world.born(), [(7, 1, 0)]);
    world.refused(0, Refusal::SessionOver { upto: 7 });
    world.updated(0, &[]);
    assert_eq!(world.born(), [], "what is said of the session before is nothing new");
    world.updated(1, &[]);
    assert_eq!(world.born(), [(7, 2, 2)]);
    world.updated(2, &[1, 1]);
    assert_eq!(world.finished().len(), 2);
}

#[test]
fn too_much_at_once_is_refused_here() {
    let mut world = World::ready();
    world.event(Event::Lost { replica: replica(1) });
    let large = || {
        let value = vec![0; 9 << 20];
        Call::Update(vec![Op::Put { key: key("a"), value, expected: None, finished: false }])
    };
    world.call(1, large());
    world.call(2, large());
    let finished = world.finished();
    assert!(matches!(&finished[..], [(2, Err(CallError::Overloaded { .. }))]), "{finished:?}");
}

/// A million actors that were made at once were said again for longer than they were said: by clients whose updates waited in line.
#[test]
fn who_merely_waits_in_line_does_not_make_it_longer() {
    let mut world = World::ready();
    let slow = Duration::from_secs(1);
    world.call(1, Call::Update(vec![put("a")]));
    assert_eq!(world.sent_within(limits::CONTROL_CLIENT_RESEND_FIRST * 2), 2, "nothing is known");
    world.now = world.now + slow;
    world.updated(1, &[1]);
    world.take();
    // Answers take more than a second here.
    world.call(2, Call::Update(vec![put("a")]));
    assert_eq!(world.sent_within(slow * 8), 1);
    assert_eq!(world.sent_within(slow * 5), 1, "it may be lost all the same");
    world.take();
    // What takes no time any more is known to, after some answers.
    world.updated(2, &[1]);
    for call in 3..=60 {
        world.call(call, Call::Update(vec![put("a")]));
        world.updated(call, &[1]);
    }
    world.take();
    world.call(61, Call::Update(vec![put("a")]));
    assert_eq!(world.sent_within(limits::CONTROL_CLIENT_RESEND_FIRST * 2), 2);
}

#[test]
fn a_shard_that_has_no_time_is_asked_again_after_what_answers_take() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.now = world.now + Duration::from_millis(200);
    world.updated(1, &[1]);
    world.call(2, Call::Update(vec![put("a")]));
    world.take();
    let mut waits = Vec::new();
    for _ in 0..5 {
        world.refused(2, Refusal::Busy("the chain does not keep up".to_string()));
        waits.push(world.waits_for_update().as_millis());
    }
    assert_eq!(waits, [200, 400, 800, 1000, 1000]);
}

/// Each refusal made the next wait longer, since the waits counted as what answers take: a store that wrote rows to disk stood still.
#[test]
fn waits_after_refusals_are_not_what_answers_take() {
    let mut world = World::ready();
    for call in 1..=20 {
        world.call(call, Call::Update(vec![put("a")]));
        world.take();
        for _ in 0..3 {
            world.refused(call, Refusal::Busy("finished rows go to disk first".to_string()));
            assert!(world.waits_for_update() < Duration::from_millis(100), "call {call}");
        }
        world.now = world.now + Duration::from_millis(5);
        world.updated(call, &[1]);
    }
}
