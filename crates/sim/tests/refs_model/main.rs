//! References between nodes, model-checked: every order of what may happen, within a stated bound, over the real machine
//! (`core::claims`), one instance per node.
//!
//! Two objects: x, at home on node 1, and c, at home on node 0, which contains x. One process per node. What may happen at
//! any moment: a process drops a ref, sends one to another node, reads x out of c; the carrier takes a frame from its queue;
//! a message arrives; a link breaks, and the last two messages come again because their acknowledgements were lost; a sweep ends; a node is
//! declared dead; it stops (until then it goes on, and may speak with who has not heard); a node hears of a death, or that all
//! passed one. What a dead node sent arrives late or never.
//!
//! In each state, *reach*: what a living process reaches is not freed, and is called unknown to nobody. In each state in
//! which nothing is under way, *leak*: no node has an entry of what no process reaches.
//!
//! Each rule is taken away once (`Sabotage`), from outside of the machine, and the search must find what goes wrong.

mod model;
mod state;

use stateright::{Checker, Model};

use model::Bound;
use model::Sabotage;
use state::Object::{self, C, X};

impl Bound {
    /// Searches everything within the bound. Returns the way to what is wrong.
    fn search(&self) -> Option<String> {
        let checker = self.clone().checker().spawn_bfs().join();
        let (states, unique) = (checker.state_count(), checker.unique_state_count());
        println!("{states} states, {unique} of them different");
        if let Some(path) = checker.discovery("nothing is wrong") {
            let wrong = path.last_state().wrong.clone().expect("it is");
            let actions: Vec<String> =
                path.into_actions().into_iter().map(|it| format!("{it:?}")).collect();
            return Some(format!("{wrong}\n{}", actions.join("\n")));
        }
        assert!(checker.discovery("both objects go").is_some(), "{self:?} sees too little");
        None
    }
}

fn bound(holders: &[(usize, Object)]) -> Bound {
    Bound {
        nodes: 3,
        holders: holders.to_vec(),
        sends: 0,
        routes: Vec::new(),
        reads: 0,
        repeats: 0,
        deaths: 0,
        mortal: Vec::new(),
        sabotage: None,
    }
}

#[track_caller]
fn holds(bound: Bound) {
    if let Some(wrong) = bound.search() {
        panic!("{wrong}\nin {bound:?}");
    }
}

#[track_caller]
fn is_found(sabotage: Sabotage, bound: Bound, expected: &str) {
    let bound = Bound { sabotage: Some(sabotage), ..bound };
    let wrong = bound.search().unwrap_or_else(|| panic!("nothing is wrong in {bound:?}"));
    assert!(wrong.starts_with(expected), "{wrong}");
}

fn x_travels() -> Bound {
    Bound { sends: 3, ..bound(&[(1, X)]) }
}

fn x_is_sent_on_and_somebody_dies() -> Bound {
    Bound { sends: 2, deaths: 1, mortal: vec![0, 2], ..bound(&[(1, X)]) }
}

fn c_travels() -> Bound {
    Bound { sends: 1, reads: 2, ..bound(&[(0, C), (2, C)]) }
}

/// The heir is 2, and after it 3: they learn of c by announcements only.
fn home_of_c_dies() -> Bound {
    Bound { nodes: 4, reads: 1, deaths: 1, mortal: vec![0], ..bound(&[(3, C)]) }
}

#[test]
fn refs_travel_and_messages_come_twice() {
    holds(x_travels());
    holds(Bound { sends: 2, repeats: 1, ..x_travels() });
}

#[test]
fn x_is_read_out_of_c_while_c_travels() {
    holds(Bound { repeats: 1, ..c_travels() });
}

#[test]
fn who_passed_x_on_dies() {
    holds(x_is_sent_on_and_somebody_dies());
}

#[test]
fn the_home_of_the_container_dies() {
    holds(Bound { sends: 1, routes: vec![(3, 1)], reads: 0, ..home_of_c_dies() });
}

#[test]
fn the_home_of_what_is_contained_dies() {
    holds(Bound { sends: 1, reads: 1, deaths: 1, mortal: vec![1], ..bound(&[(2, C)]) });
}

#[test]
fn both_homes_die() {
    holds(Bound { reads: 1, deaths: 2, mortal: vec![0, 1], ..bound(&[(2, C)]) });
}

#[test]
fn a_home_and_its_heir_die() {
    holds(Bound { deaths: 2, mortal: vec![0, 2], ..home_of_c_dies() });
}

#[test]
fn two_that_passed_x_on_die() {
    let routes = vec![(0, 2), (2, 3)];
    let four = Bound { nodes: 4, sends: 2, routes, ..bound(&[(0, X)]) };
    holds(Bound { deaths: 2, mortal: vec![0, 2], ..four });
}

#[test]
fn a_cover_that_is_skipped_is_found() {
    is_found(Sabotage::SkipsCover, x_travels(), "reach");
}

#[test]
fn a_cover_that_is_settled_before_the_claim_is_found() {
    is_found(Sabotage::SettlesEarly, x_travels(), "reach");
}

#[test]
fn a_dead_node_that_is_struck_too_early_is_found() {
    is_found(Sabotage::StrikesEarly, x_is_sent_on_and_somebody_dies(), "reach");
}

#[test]
fn an_estate_that_is_freed_before_all_have_announced_is_found() {
    is_found(Sabotage::StrikesEarly, home_of_c_dies(), "reach");
}

#[test]
fn an_epoch_that_is_passed_with_open_claims_is_found() {
    is_found(Sabotage::PassesEarly, x_is_sent_on_and_somebody_dies(), "reach");
}

#[test]
fn a_sweep_that_leaves_out_the_queue_of_the_carrier_is_found() {
    is_found(Sabotage::SweepsWithoutQueue, x_travels(), "reach");
}

#[test]
fn a_container_that_is_released_under_its_reader_is_found() {
    is_found(Sabotage::HidesContents, c_travels(), "reach");
}

#[test]
fn messages_that_count_again_when_they_come_again_are_found() {
    is_found(Sabotage::CountsTwice, Bound { sends: 2, repeats: 1, ..x_travels() }, "reach");
}

#[test]
fn a_claim_that_overtakes_a_release_is_found() {
    is_found(Sabotage::LosesOrder, x_travels(), "reach");
}
