//! Tokens that are lost with a reply. B calls A, which is killed.

use super::*;

impl Bench {
    fn killed(&mut self, process: ProcessId) {
        self.feed(Event::ProcessGone { process, obituary: "killed".to_string() });
    }
}

const TO_B: Notice = Notice::Replying { to: B };

fn ended(tokens: u64) -> Notice {
    Notice::RepliesEnded { from: A, tokens }
}

#[test]
fn a_worker_killed_between_its_seal_and_its_reply_leaves_no_token() {
    let mut bench = Bench::new();
    let [first, second] = [1, 2].map(|seq| object(B, seq));
    for object in [first, second] {
        bench.notice(A, TO_B);
        bench.seal_for(B, object, 100);
    }
    bench.killed(A);
    assert!(!bench.sweep_is_under_way(), "B may have got both");
    bench.notice(B, ended(1));
    bench.sweep();
    assert_eq!([first, second].map(|object| bench.state(object)), [Some("stored"), None]);
}

#[test]
fn tokens_of_refs_that_were_not_returned_are_struck_one_by_one() {
    let mut bench = Bench::new();
    let [x, y] = [1, 2].map(|seq| object(C, seq));
    for object in [x, y] {
        bench.notice(C, shared(object, &[]));
    }
    // A stream: two items with refs; the second never came. Of x B had a token before.
    for items in [[x, y], [y, x]] {
        bench.notice(A, TO_B);
        for object in items {
            bench.notice(A, hold(object, B));
        }
    }
    bench.killed(A);
    bench.notice(B, ended(2));
    for object in [x, y] {
        bench.notice(C, released(object));
        assert!(!bench.sweep_is_under_way(), "B holds {object}");
        bench.notice(B, released(object));
        bench.sweep();
        assert_eq!(bench.state(object), None);
    }
}

#[test]
fn a_part_of_a_reply_keeps_its_tokens() {
    let mut bench = Bench::new();
    let objects = [1, 2, 3].map(|seq| object(B, seq));
    bench.notice(A, TO_B);
    for object in objects {
        bench.seal_for(B, object, 100);
    }
    bench.killed(A);
    bench.notice(B, ended(1));
    bench.sweep();
    assert_eq!(objects.map(|object| bench.state(object)), [Some("stored"), None, None]);
}

#[test]
fn the_next_attempt_may_be_told_before_the_lost_token_is_struck_or_after() {
    for before in [true, false] {
        let mut bench = Bench::new();
        let object = object(B, 1);
        bench.notice(A, TO_B);
        bench.seal_for(B, object, 100);
        bench.killed(A);
        let again = |bench: &mut Bench| {
            let ToClient::ExtentGranted { offset, .. } = bench.extent(C, 1, 4096) else {
                panic!("there is room");
            };
            bench.notice(C, TO_B);
            let location = Location { slot: 9, generation: 1, offset, len: 100 };
            bench.notice(C, sealed(object, location, &[], B));
        };
        if before {
            again(&mut bench);
            bench.notice(B, ended(0));
        } else {
            bench.notice(B, ended(0));
            again(&mut bench);
        }
        assert!(bench.state(object) == Some("stored"));
        bench.notice(B, released(object));
        while bench.sweep_is_under_way() {
            bench.sweep();
        }
        assert_eq!(bench.state(object), None);
    }
}

#[test]
fn what_was_given_to_a_caller_that_died_too_is_forgotten() {
    let mut bench = Bench::new();
    bench.notice(A, TO_B);
    bench.seal_for(B, object(B, 1), 100);
    bench.killed(B);
    bench.notice(A, TO_B); // it cannot know yet
    bench.killed(A);
    bench.sweep();
    assert_eq!(bench.directory.listing().count(), 0);
    assert!(bench.directory.replies.is_empty());
}

#[test]
fn one_who_counts_more_tokens_than_there_were_breaks_the_protocol() {
    let mut bench = Bench::new();
    bench.notice(A, TO_B);
    bench.seal_for(B, object(B, 1), 100);
    // C wanted to connect with A, and heard that its socket is closed.
    assert_eq!(bench.notice(C, ended(0)), []);
    let effects = bench.notice(B, ended(1));
    assert!(Bench::violation(&effects).1.contains("which lives"));
    bench.notice(A, TO_B);
    bench.seal_for(B, object(B, 2), 100);
    bench.killed(A);
    let effects = bench.notice(B, ended(2));
    assert_eq!(Bench::violation(&effects), (B, "has got 2 tokens of process:1, which gave 1"));
}

#[test]
fn refs_in_the_value_of_a_second_run_are_held_where_it_may_be_read() {
    let mut bench = Bench::new();
    let [object, inner] = [B, C].map(|owner| super::object(owner, 1));
    bench.notice(B, pending(object, None));
    bench.notice(A, TO_B);
    bench.seal_for(B, object, 100);
    bench.killed(A);
    bench.notice(B, ended(0));
    // C runs it again, seals it with a ref inside, and tells B where it lies.
    let ToClient::ExtentGranted { offset, .. } = bench.extent(C, 1, 4096) else {
        panic!("there is room");
    };
    bench.notice(C, TO_B);
    bench.notice(C, shared(inner, &[]));
    let location = Location { slot: 9, generation: 1, offset, len: 100 };
    let second = bench.notice(C, sealed(object, location, &[inner], B));
    assert!(matches!(second[..], [Effect::Free { .. }]), "the first value stays: {second:?}");
    bench.notice(C, released(inner));
    assert!(!bench.sweep_is_under_way(), "B may have read the second one, and got the ref");
    bench.notice(B, Notice::Released { object, tokens: 2 });
    bench.sweep();
    assert_eq!(bench.directory.listing().count(), 0);
}
