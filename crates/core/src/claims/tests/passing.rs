//! Story 2: the moment at which all have passed every death.

use super::*;
use crate::claims::Passing;

fn three_alive() -> Passing {
    let mut passing = Passing::default();
    (0..4).for_each(|at| passing.joined(number(at)));
    passing.died(number(0), Epoch(5));
    passing
}

#[test]
fn a_death_is_passed_by_all_when_the_last_one_says_so() {
    let mut passing = three_alive();
    assert_eq!(passing.passed(number(1), Epoch(5)), None);
    assert_eq!(passing.passed(number(2), Epoch(5)), None);
    assert_eq!(passing.passed(number(2), Epoch(5)), None);
    assert_eq!(passing.passed(number(3), Epoch(5)), Some(Epoch(5)));
    assert_eq!(passing.passed(number(3), Epoch(5)), None);
}

#[test]
fn one_that_dies_before_it_passed_is_waited_for_until_all_have_passed_it_too() {
    let mut passing = three_alive();
    passing.passed(number(1), Epoch(5));
    passing.passed(number(3), Epoch(5));
    passing.died(number(2), Epoch(6));
    assert_eq!(passing.passed(number(2), Epoch(5)), None, "it is dead");
    assert_eq!(passing.passed(number(1), Epoch(6)), None);
    assert_eq!(passing.passed(number(3), Epoch(6)), Some(Epoch(6)));
}

#[test]
fn one_that_dies_after_it_passed_holds_nobody_up() {
    let mut passing = three_alive();
    passing.passed(number(2), Epoch(5));
    passing.died(number(2), Epoch(6));
    passing.passed(number(1), Epoch(5));
    assert_eq!(passing.passed(number(3), Epoch(5)), Some(Epoch(5)));
    assert_eq!(passing.passed(number(1), Epoch(6)), None);
    assert_eq!(passing.passed(number(3), Epoch(6)), Some(Epoch(6)));
}

#[test]
fn who_joined_after_a_death_is_not_waited_for() {
    let mut passing = three_alive();
    passing.joined(number(7));
    passing.passed(number(1), Epoch(5));
    passing.passed(number(2), Epoch(5));
    assert_eq!(passing.passed(number(3), Epoch(5)), Some(Epoch(5)));
}

/// It was waited for it for ever, and what the dead had claimed stayed.
#[test]
fn who_passed_a_death_before_it_was_heard_of_here_is_not_waited_for() {
    let mut passing = three_alive();
    assert_eq!(passing.passed(number(1), Epoch(6)), None);
    assert_eq!(passing.passed(number(2), Epoch(6)), None);
    passing.died(number(3), Epoch(6));
    passing.joined(number(4));
    assert_eq!(passing.passed(number(2), Epoch(6)), Some(Epoch(6)));
}
