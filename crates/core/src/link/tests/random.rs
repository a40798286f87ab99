//! Programs of sends, cuts, delays, refused dials, restarts and new lives, in any order.

use proptest::prelude::*;

use super::{Socket, World, ms, number};

#[derive(Clone, Debug)]
enum Step {
    Send {
        from: usize,
        socket: Socket,
        bytes: usize,
    },
    /// It will have something to say.
    Open {
        from: usize,
        socket: Socket,
    },
    /// Both have something to say at the same moment.
    Both {
        socket: Socket,
    },
    Cut {
        which: usize,
        keep: usize,
    },
    Pass {
        milliseconds: u64,
    },
    Delay {
        milliseconds: u64,
    },
    Reach {
        from: usize,
        reaches: bool,
    },
    Forget {
        at: usize,
    },
    NewLife {
        at: usize,
    },
    Told {
        at: usize,
    },
}

fn socket() -> impl Strategy<Value = Socket> {
    prop_oneof![Just(Socket::Talk), Just(Socket::Bulk)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..2usize, socket(), 0..250usize)
            .prop_map(|(from, socket, bytes)| Step::Send { from, socket, bytes }),
        3 => (0..2usize, socket()).prop_map(|(from, socket)| Step::Open { from, socket }),
        3 => socket().prop_map(|socket| Step::Both { socket }),
        4 => (0..4usize, 0..6usize).prop_map(|(which, keep)| Step::Cut { which, keep }),
        8 => (0..40u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
        1 => (500..3000u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
        2 => (0..30u64).prop_map(|milliseconds| Step::Delay { milliseconds }),
        2 => (0..2usize, any::<bool>()).prop_map(|(from, reaches)| Step::Reach { from, reaches }),
    ]
}

fn step_with_restarts() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => step(),
        2 => (0..2usize).prop_map(|at| Step::Forget { at }),
        1 => (0..2usize).prop_map(|at| Step::NewLife { at }),
        1 => (0..2usize).prop_map(|at| Step::Told { at }),
    ]
}

fn run(steps: Vec<Step>) {
    let mut world = World::new();
    let mut lives = 2;
    for step in steps {
        match step {
            Step::Send { from, socket, bytes } => world.send(from, socket, bytes),
            Step::Open { from, socket } => world.open_for(from, socket),
            Step::Both { socket } => (0..2).for_each(|from| world.send(from, socket, 0)),
            Step::Cut { which, keep } => {
                if let Some(wire) = world.wires.keys().nth(which).copied() {
                    world.cut(wire, keep);
                }
            }
            Step::Pass { milliseconds } => world.pass(ms(milliseconds)),
            Step::Delay { milliseconds } => world.delay = ms(milliseconds),
            Step::Reach { from, reaches } => world.reach[from] = reaches,
            Step::Forget { at } => {
                let me = world.sides[at].me;
                world.restart(at, me);
            }
            Step::NewLife { at } => {
                lives += 1;
                world.restart(at, number(lives));
            }
            Step::Told { at } => world.told_of_death(at),
        }
    }
    world.settle();
}

proptest! {
    #[test]
    fn a_link_whose_ends_live_loses_nothing_whatever_breaks(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        run(steps);
    }

    #[test]
    fn what_does_not_arrive_because_an_end_forgot_or_died_is_told(
        steps in prop::collection::vec(step_with_restarts(), 1..80),
    ) {
        run(steps);
    }
}
