//! The model of large clusters runs, and what its real machines do for each node does not grow with the number of nodes.
//!
//! Counted are events that machines took and what they said; how long they take, the example `scale` measures.

use std::collections::BTreeMap;

use hoplo_sim::cost::{Costs, Ends, Meter, Plane, Tally, head_of_a_shard_dies};

fn joined(nodes: u32) -> Plane {
    Plane::joined(nodes, 2, Costs::OF_TWO_CORES, Meter::fixed())
}

#[test]
fn ten_nodes_join_and_each_knows_all() {
    let (joins, mut plane) = Plane::all_join(10, 2, Costs::OF_TWO_CORES, Meter::fixed());
    assert_eq!((joins.joined, joins.declared_dead), (9, 0), "{joins:?}");
    assert!(joins.refusals.is_empty(), "{joins:?}");
    assert!(joins.known_s < 1.0, "{joins:?}");
    let idle = plane.idles(3.0);
    assert_eq!((idle.probes, idle.declared_dead), (0, 0), "{idle:?}");
}

#[test]
fn two_more_join_and_all_hear_of_them() {
    let joins = joined(10).more_join(2);
    assert_eq!((joins.joined, joins.declared_dead), (2, 0), "{joins:?}");
    assert!(joins.refusals.is_empty() && joins.known_s < 1.0, "{joins:?}");
    // Two rows of each to nine others, and to each other; the table to both.
    assert!(joins.rows_told >= 2 * 2 * 9 + 2 * 10, "{joins:?}");
}

#[test]
fn what_vanishes_is_found_in_time() {
    let deaths = joined(10).die(1, Ends::Vanish, 0);
    assert_eq!((deaths.declared_dead, deaths.declared_wrongly), (1, 0), "{deaths:?}");
    assert!(deaths.verdicts_s > 0.5 && deaths.verdicts_s < 0.8, "{deaths:?}");
}

/// Who holds something of the dead tells their heirs: stand-ins as real nodes do.
#[test]
fn deaths_end_when_heirs_have_heard_what_all_know() {
    let deaths = joined(30).die(3, Ends::Crash, 20);
    assert_eq!((deaths.declared_dead, deaths.declared_wrongly), (3, 0), "{deaths:?}");
    assert!(deaths.settled_s > deaths.heard_s && deaths.settled_s < 1.0, "{deaths:?}");
    let [known, announce, announced] =
        ["known", "announce", "announced"].map(|kind| deaths.to_heirs[kind]);
    assert!(known.into_iter().all(|words| words > 0) && known == announce, "{deaths:?}");
    // Heirs that have not heard of one death when a node hears of the next are asked again with that one.
    for (known, announced) in known.into_iter().zip(announced) {
        assert!((known..=3 * known).contains(&announced), "{deaths:?}");
    }
}

/// All know of all deaths, so the head hears more the more nodes there are, and the more die: no faster than that.
#[test]
fn ten_times_as_many_nodes_say_ten_times_as_much_of_a_death() {
    let of = |nodes, died| {
        let mut plane = joined(nodes);
        let deaths = plane.die(died, Ends::Crash, 5);
        assert_eq!(deaths.declared_dead, u64::from(died), "{deaths:?}");
        let events = |(what, tally): (&&'static str, &Tally)| (*what, tally.events);
        plane.meter.tallies().iter().map(events).collect::<BTreeMap<_, _>>()
    };
    let (few, many, more_die) = (of(100, 5), of(1000, 5), of(1000, 50));
    for (what, events) in &many {
        let before = few.get(what).copied().unwrap_or(0);
        assert!(*events <= before * 11 + 500, "{what}: {before} events, then {events}");
        let then = more_die.get(what).copied().unwrap_or(0);
        assert!(then <= events * 11 + 500, "{what}: {events} events, then {then}");
    }
}

#[test]
fn a_join_takes_ten_times_as_many_messages_with_ten_times_the_nodes() {
    let [few, many] = [100, 1000].map(|nodes| {
        let (joins, _) = Plane::all_join(nodes, 2, Costs::OF_TWO_CORES, Meter::fixed());
        assert_eq!(joins.joined, nodes - 1);
        joins
    });
    // All rows to all nodes: that is linear for each join, and quadratic for all of them.
    let of_each = |rows: u64, nodes: u32| rows as f64 / f64::from(nodes - 1);
    let (few_each, many_each) = (of_each(few.rows_told, 100), of_each(many.rows_told, 1000));
    assert!(many_each <= 10.5 * few_each, "{few_each} and {many_each}");
}

/// Each word that a node has read on is a message to the head, and all of them hear of all rows.
#[test]
fn while_a_thousand_nodes_join_few_say_that_they_have_read_on() {
    let (joins, plane) = Plane::all_join(1000, 2, Costs::OF_TWO_CORES, Meter::fixed());
    assert!(joins.rows_told > 1_000_000, "{joins:?}");
    let credit = plane.meter.tallies().get("store: credit").map_or(0, |tally| tally.events);
    assert!(credit < 500, "{credit} words");
}

#[test]
fn all_actors_live_and_have_their_rows() {
    let actors = joined(10).make_actors(900);
    assert_eq!((actors.made, actors.rows_of_each), (900, 3), "{actors:?}");
    assert!(actors.refusals.is_empty(), "{actors:?}");
    assert!(actors.saved_s < 1.0, "{actors:?}");
}

/// They told it every 2 ms, however many they were: 400 busy nodes took all that the head had.
#[test]
fn loads_of_all_nodes_are_no_more_than_the_head_can_hear() {
    use hoplo_base::limits::{LOAD_GATHERED, LOAD_TOLD_OF_EACH};
    for nodes in [100, 1000, 10_000] {
        let every = LOAD_GATHERED.max(LOAD_TOLD_OF_EACH * nodes);
        let told = f64::from(nodes) / every.as_secs_f64();
        assert!(told <= 20_000.0, "{nodes} nodes tell {told} loads a second");
    }
    let busy = joined(1000).busy(50_000_000, 0.5);
    assert_eq!((busy.probes, busy.declared_dead), (0, 0), "{busy:?}");
    assert!(busy.carrier < 0.6 && busy.decider < 0.6, "{busy:?}");
}

#[test]
fn clients_of_a_shard_whose_head_died_get_all_answers() {
    let [few, many] = [100, 1000].map(|clients| {
        let (found, meter) = head_of_a_shard_dies(clients, Costs::OF_TWO_CORES, Meter::fixed());
        assert!(found.updates >= u64::from(clients) * 3, "{found:?}");
        (found, meter.tallies().clone())
    });
    // Clients and the coordinator do more for each client, the more there are.
    for (what, tally) in many.1.iter().filter(|(what, _)| what.starts_with("replica")) {
        let before = few.1.get(what).map_or(0, |tally| tally.events);
        assert!(
            tally.events <= before * 11 + 500,
            "{what}: {before} events, then {}",
            tally.events
        );
    }
}
