use std::time::Duration;

use hoplo_base::limits::{
    BROKER_PATIENCE, NODE_UNKNOWN_AFTER, PART_PATIENCE, SEEK_LOST_AFTER, SEEK_PAUSE_MAX,
    SEEK_PAUSE_MIN, STARTING_PATIENCE,
};
use hoplo_base::{ActorId, ProcessId, TaskId};
use hoplo_wire::peer::Found;

use super::*;

const MS: fn(u64) -> Instant = |ms| Instant(ms * 1_000_000);

fn node(number: u32) -> NodeNumber {
    (0..number).fold(NodeNumber::first_given(0), |node, _| node.next_given())
}

fn place(number: u32, cpus: f64) -> Place {
    let total = ResourceSet::from_units([("CPU", cpus)]).unwrap();
    Place { node: node(number), labels: BTreeMap::new(), total }
}

fn cpu() -> Shape {
    Shape::of(ResourceSet::from_units([("CPU", 1.0)]).unwrap())
}

fn demand() -> Claimant {
    Claimant::Demand { process: ProcessId::new(node(0), 1, 1), key: 3 }
}

struct Daemon {
    broker: Broker,
    /// What the local scheduler has a starting worker for.
    reserved: u32,
}

impl Daemon {
    fn with(others: &[f64]) -> Self {
        let mut daemon = Self { broker: Broker::new(place(0, 1.0)), reserved: 0 };
        for (number, cpus) in others.iter().enumerate() {
            let place = place(number as u32 + 1, *cpus);
            daemon.tell(MS(0), Event::Joined { place });
        }
        daemon
    }

    /// Answers looks by itself, and names what else came.
    fn tell(&mut self, now: Instant, event: Event) -> Vec<String> {
        let mut said = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.broker.handle(now, event, &mut effects);
            self.broker.check(now);
            for effect in effects {
                if let Effect::Look { claimant } = effect {
                    events.push(Event::Looked { claimant, reserved: self.reserved });
                } else {
                    said.push(words(&effect));
                }
            }
        }
        said
    }

    fn want(&mut self, now: Instant, shape: Shape, wanted: u32) -> Vec<String> {
        let (job, held) = (JobId(1), ResourceSet::new());
        self.tell(now, Event::Demanded { claimant: demand(), job, shape, held, wanted })
    }

    fn found(&mut self, now: Instant, found: Found) -> Vec<String> {
        self.tell(now, Event::Found { seek: 1, found })
    }
}

fn number(of: NodeNumber) -> usize {
    (0..9).position(|number| node(number) == of).unwrap()
}

fn words(effect: &Effect) -> String {
    match effect {
        Effect::Ask { node, wanted, .. } => format!("ask {} for {wanted}", number(*node)),
        Effect::GiveUp { node, .. } => format!("give up at {}", number(*node)),
        Effect::Seek { wanted, .. } => format!("seek {wanted}"),
        Effect::Look { .. } => "look".to_string(),
        Effect::Coming { wanted, count, .. } => format!("{count} of {wanted} are coming"),
        Effect::Tell { stuck: None, .. } => "goes on".to_string(),
        Effect::Tell { stuck: Some(stuck), .. } => stuck.reason.in_words(|id| id.to_string()),
        Effect::Fail { why, .. } => format!("fails: {why}"),
        Effect::FailOfGroup { group, .. } => format!("fails with {group}"),
        Effect::Recite => "recite".to_string(),
    }
}

fn rooms(parts: &[(u32, u32)]) -> Found {
    Found::Nodes(parts.iter().map(|(number, count)| (node(*number), *count)).collect())
}

#[test]
fn alone_it_hands_everything_on_and_knows_nothing() {
    let mut daemon = Daemon::with(&[]);
    assert_eq!(daemon.want(MS(0), cpu(), 5), ["ask 0 for 5"]);
    assert!(daemon.broker.is_alone());
    assert_eq!(
        daemon.want(MS(9), Shape { strategy: Strategy::Spread, ..cpu() }, 2),
        ["ask 0 for 2", "0 of 2 are coming"]
    );
    let stuck = Some(Stuck { reason: "needs GPU 1".into(), infeasible: true });
    let told = Event::Stuck { claimant: demand(), node: node(0), stuck };
    assert_eq!(daemon.tell(MS(9), told), ["needs GPU 1"]);
    assert_eq!(daemon.broker.next_deadline(), None);
    assert_eq!(daemon.tell(MS(10), Event::Joined { place: place(1, 1.0) }), ["recite"]);
}

#[test]
fn what_this_node_serves_at_once_is_not_sought() {
    let mut daemon = Daemon::with(&[4.0]);
    assert_eq!(daemon.want(MS(0), cpu(), 1), ["ask 0 for 1"]);
    let granted = Event::Granted { claimant: demand(), node: node(0) };
    assert_eq!(daemon.tell(MS(2), granted), [""; 0]);
    assert!(daemon.broker.claims.is_empty());
    // One for which a worker starts is not, either.
    daemon.reserved = 1;
    assert_eq!(daemon.want(MS(10), cpu(), 1), ["ask 0 for 1"]);
    assert_eq!(daemon.tell(MS(10) + BROKER_PATIENCE, Event::Tick), [""; 0]);
}

#[test]
fn what_is_not_served_here_is_sought_and_moves_to_where_there_is_room() {
    let mut daemon = Daemon::with(&[2.0, 2.0]);
    daemon.reserved = 1;
    daemon.want(MS(0), cpu(), 10);
    assert_eq!(daemon.tell(MS(5), Event::Tick), ["seek 9"]);
    let asks = daemon.found(MS(7), rooms(&[(1, 2), (2, 2)]));
    assert_eq!(asks, ["ask 0 for 6", "ask 1 for 2", "ask 2 for 2", "seek 5"]);
    let queue = Found::Queue(vec![(node(1), 2), (node(2), 2)]);
    assert_eq!(daemon.found(MS(9), queue), [""; 0], "they have a round already");
    let granted = Event::Granted { claimant: demand(), node: node(2) };
    assert_eq!(daemon.tell(MS(20), granted), [""; 0]);
    // The demand falls: what waits here goes first, then what was asked for longest ago.
    assert_eq!(daemon.want(MS(30), cpu(), 3), ["ask 0 for 1", "ask 1 for 1"]);
    assert_eq!(
        daemon.want(MS(31), cpu(), 0),
        ["ask 0 for 0", "ask 1 for 0", "ask 2 for 0", "seek 0"]
    );
    assert!(daemon.broker.claims.is_empty());
}

#[test]
fn a_want_that_stays_unmet_is_sought_ever_more_rarely_and_at_once_when_a_node_joins() {
    let mut daemon = Daemon::with(&[1.0]);
    daemon.want(MS(0), cpu(), 2);
    let mut now = MS(0);
    let mut times = Vec::new();
    while now < MS(10_000) {
        now = daemon.broker.next_deadline().unwrap();
        if daemon.tell(now, Event::Tick) == ["seek 2"] {
            times.push(now);
            assert_eq!(daemon.found(now, Found::Later), [""; 0]);
        }
    }
    let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..3], [SEEK_PAUSE_MIN, SEEK_PAUSE_MIN * 2, SEEK_PAUSE_MIN * 4]);
    assert_eq!(*pauses.last().unwrap(), SEEK_PAUSE_MAX);
    assert!(times.len() < 18, "{}", times.len());
    let joined = Event::Joined { place: place(2, 1.0) };
    assert_eq!(daemon.tell(now + Duration::from_millis(1), joined), ["seek 2"]);
}

#[test]
fn a_question_that_got_lost_is_asked_again_and_only_one_is_under_way() {
    let mut daemon = Daemon::with(&[1.0]);
    daemon.want(MS(0), cpu(), 2);
    assert_eq!(daemon.tell(MS(5), Event::Tick), ["seek 2"]);
    daemon.want(MS(6), cpu(), 4);
    assert_eq!(daemon.tell(MS(900), Event::Tick), [""; 0]);
    assert_eq!(daemon.tell(MS(5) + SEEK_LOST_AFTER, Event::Tick), ["seek 4"]);
}

#[test]
fn what_a_node_does_not_grant_goes_to_one_that_has_room() {
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    daemon.want(MS(0), cpu(), 2);
    daemon.tell(MS(5), Event::Tick);
    let queue = Found::Queue(vec![(node(1), 1)]);
    assert_eq!(daemon.found(MS(6), queue), ["ask 0 for 1", "ask 1 for 1"]);
    // Too early to take it away: what waits here goes.
    assert_eq!(daemon.found(MS(50), rooms(&[(2, 1)])), ["ask 0 for 0", "ask 2 for 1"]);
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    daemon.want(MS(0), Shape { strategy: Strategy::Spread, ..cpu() }, 1);
    let queued = daemon.found(MS(6), Found::Queue(vec![(node(1), 1)]));
    assert_eq!(queued, ["0 of 1 are coming", "ask 1 for 1"]);
    assert_eq!(daemon.found(MS(100), rooms(&[(2, 1)])), [""; 0]);
    assert_eq!(daemon.found(MS(206), rooms(&[(2, 1)])), ["ask 1 for 0", "ask 2 for 1"]);
}

#[test]
fn a_node_that_is_full_asks_for_nothing_here_that_another_one_could_run() {
    let mut daemon = Daemon::with(&[1.0]);
    daemon.reserved = 1;
    assert_eq!(daemon.want(MS(0), cpu(), 3), ["ask 0 for 3"]);
    daemon.reserved = 0;
    let full = |full| Event::Full { full };
    // Also what a worker starts for here: it would find no room.
    assert_eq!(daemon.tell(MS(1), full(true)), ["ask 0 for 0"]);
    assert_eq!(daemon.tell(MS(0) + BROKER_PATIENCE, Event::Tick), ["seek 3"]);
    assert_eq!(daemon.found(MS(6), rooms(&[(1, 1)])), ["ask 1 for 1", "seek 2"]);
    // The others are as full.
    assert_eq!(daemon.found(MS(7), rooms(&[(0, 1)])), ["ask 0 for 1", "seek 2"]);
    assert_eq!(daemon.want(MS(8), cpu(), 4), [""; 0]);
    // What runs nowhere else, or names this node, waits here.
    let mut daemon = Daemon::with(&[1.0]);
    assert_eq!(daemon.tell(MS(1), full(true)), [""; 0]);
    let here = Shape { strategy: Strategy::Node { node: node(0), soft: true }, ..cpu() };
    assert_eq!(daemon.want(MS(2), here, 1), ["ask 0 for 1"]);
    daemon.tell(MS(3), Event::Gone { node: node(1) });
    assert_eq!(daemon.want(MS(4), cpu(), 0), ["ask 0 for 0"]);
    assert_eq!(daemon.want(MS(4), cpu(), 1), ["ask 0 for 1"]);
}

#[test]
fn a_node_that_is_full_serves_itself_while_the_head_is_silent_and_when_it_has_room_again() {
    let mut daemon = Daemon::with(&[1.0]);
    daemon.tell(MS(1), Event::Full { full: true });
    assert_eq!(daemon.want(MS(2), cpu(), 1), ["seek 1"]);
    let silent = Event::HeadSilent { address: "head".to_string(), since: MS(3) };
    assert!(daemon.tell(MS(3), silent).contains(&"ask 0 for 1".to_string()));
    let mut daemon = Daemon::with(&[1.0]);
    daemon.tell(MS(1), Event::Full { full: true });
    assert_eq!(daemon.want(MS(2), cpu(), 1), ["seek 1"]);
    assert_eq!(daemon.tell(MS(3), Event::Full { full: false }), ["ask 0 for 1"]);
}

#[test]
fn spread_asks_nobody_before_the_head_has_answered() {
    let mut daemon = Daemon::with(&[1.0]);
    let spread = Shape { strategy: Strategy::Spread, ..cpu() };
    assert_eq!(daemon.want(MS(0), spread, 4), ["seek 4"]);
    assert_eq!(daemon.broker.waiting().map(|it| it.1).sum::<u32>(), 4);
    let asks = daemon.found(MS(1), rooms(&[(0, 1), (1, 1)]));
    assert_eq!(asks, ["ask 0 for 1", "ask 1 for 1", "seek 3"]);
}

#[test]
fn who_spreads_hears_once_how_many_are_coming_when_all_room_is_found() {
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    let spread = Shape { strategy: Strategy::Spread, ..cpu() };
    daemon.want(MS(0), spread.clone(), 8);
    daemon.found(MS(1), rooms(&[(0, 1), (1, 1), (2, 1)]));
    daemon.tell(MS(2), Event::Granted { claimant: demand(), node: node(0) });
    assert_eq!(daemon.found(MS(3), Found::Later), ["2 of 7 are coming"]);
    assert_eq!(daemon.found(MS(50), Found::Later), [""; 0]);
    // More is wanted: there was no room a moment ago.
    assert_eq!(daemon.want(MS(51), spread.clone(), 20), ["2 of 20 are coming"]);
    assert_eq!(daemon.found(MS(52), Found::Later), [""; 0]);
    // All of it was met: so many, and nobody is asked again.
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    daemon.reserved = 1;
    daemon.want(MS(0), spread, 2);
    let asks = daemon.found(MS(1), rooms(&[(0, 1), (1, 1)]));
    assert_eq!(asks, ["2 of 2 are coming", "ask 0 for 1", "ask 1 for 1"]);
}

/// With the head killed, tasks that spread began nowhere, also where their own node was free, and nothing named the head.
#[test]
fn what_spreads_waited_for_a_silent_head_at_a_free_node() {
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    let spread = Shape { strategy: Strategy::Spread, ..cpu() };
    assert_eq!(daemon.want(MS(0), spread.clone(), 2), ["seek 2"]);
    let silent = Event::HeadSilent { address: "10.0.0.1:6379".to_string(), since: MS(10) };
    assert_eq!(daemon.tell(MS(10), silent.clone()), ["0 of 2 are coming", "ask 0 for 2"]);
    daemon.tell(MS(11), Event::Granted { claimant: demand(), node: node(0) });
    assert_eq!(daemon.want(MS(12), spread.clone(), 4), ["0 of 4 are coming", "ask 0 for 4"]);
    // What waits here hears that it is looked for nowhere else, and for how long by now.
    let stuck = Some(Stuck { reason: "CPU: 1 of 1 in use".into(), infeasible: false });
    daemon.tell(MS(200), Event::Stuck { claimant: demand(), node: node(0), stuck });
    let mut now = MS(200);
    let mut words = Vec::new();
    while now < MS(8_100) {
        now = daemon.broker.next_deadline().unwrap();
        words.extend(daemon.tell(now, Event::Tick));
    }
    let last = words.iter().rfind(|said| said.contains("head")).unwrap();
    let why = "CPU: 1 of 1 in use; no other node is looked for: the head (10.0.0.1:6379) has not answered for ";
    assert!(last.starts_with(why) && last.ends_with(" s"), "{last}");
    // It is sought again as soon as the head speaks.
    let heard = daemon.tell(now, Event::HeadHeard);
    assert_eq!(heard, ["CPU: 1 of 1 in use", "seek 4"]);
    let asks = daemon.found(now, rooms(&[(0, 1), (1, 1), (2, 1)]));
    assert_eq!(asks, ["ask 0 for 2", "ask 1 for 1", "ask 2 for 1", "seek 2"]);
}

#[test]
fn what_this_node_cannot_run_says_that_it_waits_for_a_silent_head() {
    let mut daemon = Daemon::with(&[8.0]);
    let silent = Event::HeadSilent { address: "10.0.0.1:6379".to_string(), since: MS(0) };
    assert_eq!(daemon.tell(MS(0), silent), [""; 0]);
    let wide = Shape::of(ResourceSet::from_units([("CPU", 8.0)]).unwrap());
    let waits = "the head (10.0.0.1:6379) has not answered for 8 s; it waits for it";
    assert_eq!(daemon.want(MS(8_000), wide, 1), [waits]);
    assert_eq!(daemon.broker.explain(demand()).unwrap().reason.to_string(), waits);
    assert_eq!(daemon.tell(MS(8_500), Event::HeadHeard), ["goes on", "seek 1"]);
    assert_eq!(daemon.found(MS(8_501), rooms(&[(1, 1)])), ["ask 1 for 1"]);
}

#[test]
fn what_was_wanted_after_all_was_found_was_sought_200_ms_later() {
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    let spread = Shape { strategy: Strategy::Spread, ..cpu() };
    assert_eq!(daemon.want(MS(0), spread.clone(), 1), ["seek 1"]);
    assert_eq!(daemon.found(MS(1), rooms(&[(1, 1)])), ["1 of 1 are coming", "ask 1 for 1"]);
    assert_eq!(daemon.want(MS(2), spread, 4), ["seek 3"]);
}

/// The first worker of a node takes longer than `PART_PATIENCE`. So all of a burst went to the one node that had started its workers.
#[test]
fn a_node_that_starts_a_worker_was_asked_no_more_after_200_ms() {
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    let spread = Shape { strategy: Strategy::Spread, ..cpu() };
    daemon.want(MS(0), spread, 2);
    daemon.found(MS(1), rooms(&[(1, 2)]));
    assert_eq!(daemon.found(MS(1) + PART_PATIENCE, rooms(&[(2, 1)])), [""; 0]);
    let moved = daemon.found(MS(1) + STARTING_PATIENCE, rooms(&[(2, 1)]));
    assert_eq!(moved, ["ask 1 for 1", "ask 2 for 1"]);
}

/// A burst grows as 1, 2, 4, ...; the program heard "2 are coming" of all of it, and gave nothing to the other two CPUs.
#[test]
fn nothing_to_seek_counted_as_no_room() {
    let mut daemon = Daemon::with(&[2.0]);
    let spread = Shape { strategy: Strategy::Spread, ..cpu() };
    assert_eq!(daemon.want(MS(0), spread.clone(), 1), ["seek 1"]);
    daemon.reserved = 1; // a worker starts for it
    assert_eq!(daemon.found(MS(1), rooms(&[(0, 1)])), ["1 of 1 are coming", "ask 0 for 1"]);
    assert_eq!(daemon.tell(MS(1), Event::Tick), [""; 0]);
    assert_eq!(daemon.want(MS(2), spread, 4), ["seek 3"]);
}

#[test]
fn what_this_node_cannot_run_is_sought_at_once_and_told_once_if_nobody_can() {
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    let wide = Shape::of(ResourceSet::from_units([("CPU", 8.0)]).unwrap());
    assert_eq!(daemon.want(MS(0), wide, 1), ["seek 1"]);
    let never = || Found::Never { why: "needs CPU 8, node has 1".to_string() };
    assert_eq!(daemon.found(MS(1), never()), ["needs CPU 8, node has 1"]);
    assert_eq!(daemon.found(MS(60), never()), [""; 0]);
    assert!(daemon.broker.explain(demand()).unwrap().infeasible);
    let asks = daemon.tell(MS(70), Event::Joined { place: place(3, 8.0) });
    assert_eq!(asks, ["seek 1"]);
    assert_eq!(daemon.found(MS(71), rooms(&[(3, 1)])), ["goes on", "ask 3 for 1"]);
}

#[test]
fn a_node_by_name_is_asked_without_the_head() {
    let mut daemon = Daemon::with(&[1.0, 1.0]);
    let at =
        |number, soft| Shape { strategy: Strategy::Node { node: node(number), soft }, ..cpu() };
    assert_eq!(daemon.want(MS(0), at(2, false), 50), ["ask 2 for 50"]);
    assert_eq!(daemon.broker.next_deadline(), None);
    let dead = Event::Gone { node: node(2) };
    let drains = Event::Drains { node: node(2) };
    let why = format!("needs node {}, which takes no more", node(2).hex());
    assert_eq!(daemon.tell(MS(5), drains), ["ask 2 for 0".to_string(), why]);
    // The head may have been wrong about that.
    let back = Event::Joined { place: place(2, 1.0) };
    assert_eq!(daemon.tell(MS(7), back), ["ask 2 for 50"]);
    let fails = format!("fails: needs node {}, which is dead", node(2).hex());
    assert_eq!(daemon.tell(MS(9), dead), [fails.as_str()]);
    assert_eq!(daemon.want(MS(12), at(2, false), 1), [fails.as_str()]);
    // A soft one goes on at home.
    assert_eq!(daemon.want(MS(13), at(2, true), 1), ["ask 0 for 1"]);
    assert_eq!(daemon.want(MS(14), cpu(), 0), ["ask 0 for 0"]);
    assert_eq!(daemon.broker.next_deadline(), None);
}

#[test]
fn a_claim_for_a_node_that_never_was_waited_for_it_for_ever() {
    let at = |soft| Shape { strategy: Strategy::Node { node: node(7), soft }, ..cpu() };
    for others in [&[1.0, 1.0][..], &[]] {
        let mut daemon = Daemon::with(others);
        // Its row may be on its way.
        assert_eq!(daemon.want(MS(40), at(false), 1), [""; 0]);
        assert_eq!(
            daemon.tell(MS(100), Event::Joined { place: place(7, 1.0) }).last().unwrap(),
            "ask 7 for 1"
        );
        daemon.tell(MS(101), Event::Granted { claimant: demand(), node: node(7) });
        let mut daemon = Daemon::with(others);
        daemon.want(MS(40), at(false), 1);
        let why = format!("fails: needs node {}, which is not in this cluster", node(7).hex());
        assert_eq!(daemon.tell(MS(40) + NODE_UNKNOWN_AFTER, Event::Tick), [why]);
        assert_eq!(daemon.broker.next_deadline(), None);
        assert_eq!(daemon.want(MS(9000), at(true), 1), ["ask 0 for 1"]);
    }
}

#[test]
fn parts_of_a_dead_node_are_sought_at_once_and_those_of_a_draining_one_taken_back() {
    let mut daemon = Daemon::with(&[2.0, 2.0]);
    daemon.want(MS(0), cpu(), 5);
    daemon.tell(MS(5), Event::Tick);
    daemon.found(MS(6), rooms(&[(1, 2), (2, 2)]));
    let dies = daemon.tell(MS(10), Event::Gone { node: node(1) });
    assert_eq!(dies, ["ask 0 for 3"]);
    daemon.found(MS(11), Found::Later);
    let drains = daemon.tell(MS(12), Event::Drains { node: node(2) });
    assert_eq!(drains, ["ask 2 for 0", "ask 0 for 5", "seek 5"]);
}

#[test]
fn an_absolute_number_that_crossed_a_grant_is_taken_back_at_the_end() {
    let mut daemon = Daemon::with(&[4.0]);
    daemon.want(
        MS(0),
        Shape { strategy: Strategy::Node { node: node(1), soft: false }, ..cpu() },
        1,
    );
    let shape = || Shape { strategy: Strategy::Node { node: node(1), soft: false }, ..cpu() };
    assert_eq!(daemon.want(MS(1), shape(), 2), ["ask 1 for 2"]);
    let granted = || Event::Granted { claimant: demand(), node: node(1) };
    assert_eq!(daemon.tell(MS(2), granted()), [""; 0]);
    // That node may have granted before it heard the second number.
    assert_eq!(daemon.tell(MS(3), granted()), ["ask 1 for 0"]);
}

#[test]
fn an_actor_that_gave_up_is_taken_back_wherever_it_was_asked_for() {
    let mut daemon = Daemon::with(&[1.0]);
    let process = ProcessId::new(node(0), 1, 1);
    let actor = ActorId(TaskId { owner: process, seq: 1 });
    let claimant = Claimant::Actor { actor, incarnation: 2 };
    let (job, held) = (JobId(1), ResourceSet::new());
    let wants = Event::Demanded { claimant, job, shape: cpu(), held, wanted: 1 };
    assert_eq!(daemon.tell(MS(0), wants), ["ask 0 for 1"]);
    assert_eq!(daemon.tell(MS(5), Event::Tick), ["seek 1"]);
    let moves = daemon.found(MS(6), rooms(&[(1, 1)]));
    assert_eq!(moves, ["give up at 0", "ask 1 for 1"]);
    assert_eq!(daemon.tell(MS(7), Event::GaveUp { actor }), ["give up at 1"]);
    assert!(daemon.broker.claims.is_empty());
}

#[test]
fn a_node_that_drains_asks_others_for_what_its_processes_want() {
    let mut daemon = Daemon::with(&[1.0]);
    assert_eq!(daemon.want(MS(0), cpu(), 3), ["ask 0 for 3"]);
    let drains = daemon.tell(MS(9), Event::Drains { node: node(0) });
    assert_eq!(drains, ["ask 0 for 0", "seek 3"]);
    assert_eq!(daemon.found(MS(10), rooms(&[(0, 1), (1, 1)])), ["ask 1 for 1", "seek 2"]);
}
