//! Random programs: whatever happens in whatever order, each call is in the worker's ring once, or was taken back, or never began.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Call {
        pair: u32,
        large: bool,
        names: bool,
    },
    Arrive(usize),
    Go(usize),
    Write(usize, u32),
    /// The worker takes the oldest call of its ring.
    Take(u32),
    /// And replies to the oldest that it took.
    Reply {
        pair: u32,
        names: bool,
    },
    Revoke(u32),
    Dies(u32),
    Leaves(u32),
}

const PAIRS: u32 = 2;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 1..=PAIRS;
    let step = prop_oneof![
        60 => (at.clone(), prop::bool::weighted(0.1), prop::bool::weighted(0.3))
            .prop_map(|(pair, large, names)| Step::Call { pair, large, names }),
        80 => (0..2_usize).prop_map(Step::Arrive),
        40 => (0..2_usize).prop_map(Step::Go),
        60 => (0..2_usize, at.clone()).prop_map(|(side, pair)| Step::Write(side, pair)),
        40 => at.clone().prop_map(Step::Take),
        40 => (at.clone(), prop::bool::weighted(0.3))
            .prop_map(|(pair, names)| Step::Reply { pair, names }),
        10 => at.clone().prop_map(Step::Revoke),
        1 => at.clone().prop_map(Step::Dies),
        1 => at.prop_map(Step::Leaves),
    ];
    prop::collection::vec(step, 1..200)
}

#[derive(Default)]
struct Model {
    next: u64,
    called: Vec<u64>,
    taken: Vec<u64>,
    open: Vec<u64>,
    replied: Vec<u64>,
    /// Asked back, and not answered.
    asked: u64,
    dead: bool,
    left: bool,
}

fn act(two: &mut Two, models: &mut BTreeMap<u32, Model>, step: Step) {
    match step {
        Step::Call { pair: at, large, names } => {
            let (pair, model) = (pair(at), models.get_mut(&at).unwrap());
            if !two.near().carry.takes(pair) {
                return;
            }
            model.next += 1;
            model.called.push(model.next);
            let named = [object(pair, model.next, 1)];
            let named = if names { &named[..] } else { &[] };
            two.near().calls(pair, model.next, if large { 120_000 } else { 10 }, named);
        }
        Step::Arrive(from) => {
            two.arrives(from);
        }
        Step::Go(side) => {
            two.sides[side].go();
        }
        Step::Write(side, at) => {
            two.sides[side].writes(pair(at));
        }
        Step::Take(at) => {
            let (pair, model) = (pair(at), models.get_mut(&at).unwrap());
            let far = two.far();
            let first = far.ring.iter().position(|(of, _)| *of == pair);
            if let Some(first) = first.filter(|_| !model.dead && !model.left) {
                let (_, tag) = far.ring.remove(first);
                model.taken.push(tag);
                model.open.push(tag);
            }
        }
        Step::Reply { pair: at, names } => {
            let (pair, model) = (pair(at), models.get_mut(&at).unwrap());
            if model.dead || model.left || model.open.is_empty() || !two.far().carry.takes(pair) {
                return;
            }
            let tag = model.open.remove(0);
            model.replied.push(tag);
            let named = [object(pair, tag, 2)];
            let named = if names { &named[..] } else { &[] };
            two.far().replies(pair, tag, reply(tag, ReplyKind::Finished, inline(), named));
        }
        Step::Revoke(at) => {
            let (pair, model) = (pair(at), models.get_mut(&at).unwrap());
            if two.near().carry.halves.contains_key(&pair) {
                model.asked += 1;
                let seqs = model.called.clone();
                two.near().handle(Event::Revoke { pair, seqs });
            }
        }
        Step::Dies(at) => {
            let (pair, model) = (pair(at), models.get_mut(&at).unwrap());
            if !std::mem::replace(&mut model.dead, true) && !model.left {
                let ring = two.far().ring.iter().filter(|(of, _)| *of == pair);
                let unread = ring.map(|(_, tag)| *tag).collect();
                let obituary = died("bang");
                two.far().handle(Event::WorkerGone { pair, unread, obituary });
            }
        }
        Step::Leaves(at) => {
            let (pair, model) = (pair(at), models.get_mut(&at).unwrap());
            if !std::mem::replace(&mut model.left, true) {
                two.near().handle(Event::Closed { pair });
                two.far().handle(Event::Closed { pair });
            }
        }
    }
}

fn judge(two: &mut Two, at: u32, model: &Model) {
    let pair = pair(at);
    let tags = |written: &[(Pair, u64)]| -> Vec<u64> {
        written.iter().filter(|(of, _)| *of == pair).map(|(_, tag)| *tag).collect()
    };
    let (calls, replies) = (tags(&two.far().written), tags(&two.near().written));
    assert!(calls.is_sorted_by(|one, next| one < next), "order, and each once: {calls:?}");
    let sent: Vec<u64> = model.replied.iter().copied().take(replies.len()).collect();
    assert_eq!(replies, sent, "replies in their order");
    let of = |effect: &Effect| match effect {
        Effect::Revoked { pair: it, seqs, .. } if *it == pair => Some(seqs.clone()),
        _ => None,
    };
    let answers: Vec<Vec<u64>> = two.near().told.iter().filter_map(of).collect();
    let revoked: BTreeSet<u64> = answers.iter().flatten().copied().collect();
    assert_eq!(revoked.len(), answers.iter().flatten().count(), "CARRY-7: taken back once");
    assert!(model.taken.iter().all(|tag| !revoked.contains(tag)), "CARRY-7: it never runs");
    let ended = two.near().told.iter().find_map(|effect| match effect {
        Effect::Ended { pair: it, unstarted, .. } if *it == pair => Some(unstarted.clone()),
        _ => None,
    });
    if model.left {
        return;
    }
    assert_eq!(ended.is_some(), model.dead);
    let Some(unstarted) = ended else {
        assert_eq!(replies, model.replied, "nothing is lost");
        assert_eq!(answers.len() as u64, model.asked, "CARRY-7: answered once");
        let arrived: BTreeSet<u64> = calls.iter().chain(&revoked).copied().collect();
        assert_eq!(arrived, model.called.iter().copied().collect(), "nothing is lost");
        return;
    };
    assert_eq!(replies, model.replied, "CARRY-6: the end comes behind the last reply");
    let started: BTreeSet<u64> = model.taken.iter().copied().collect();
    let never = model.called.iter().filter(|tag| !started.contains(*tag));
    let mut never: BTreeSet<u64> = never.copied().collect();
    // What was taken back is known to be: it is told in one of the two.
    never.retain(|tag| !revoked.contains(tag));
    let told: BTreeSet<u64> = unstarted.iter().copied().collect();
    assert_eq!(told.len(), unstarted.len(), "each once: {unstarted:?}");
    assert_eq!(told, never, "CARRY-6");
}

proptest! {
    #[test]
    fn every_call_arrives_once_or_is_known_not_to_have_begun(steps in steps()) {
        let mut two = Two::new(PAIRS);
        let mut models: BTreeMap<u32, Model> = (1..=PAIRS).map(|at| (at, Model::default())).collect();
        for step in steps {
            act(&mut two, &mut models, step);
        }
        two.settles();
        for (at, model) in &models {
            judge(&mut two, *at, model);
        }
        let open = models.values().filter(|model| !model.dead && !model.left).count();
        prop_assert_eq!(two.near().carry.len(), open);
        prop_assert_eq!(two.far().carry.len(), open, "no tombstone stays");
        prop_assert!(two.sides.iter().all(|side| side.carry.asked.is_empty()));
    }
}
