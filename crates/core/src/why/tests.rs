use super::*;
use hoplo_base::limits::{WHY_ROUNDS_MAX, WHY_THINGS_MAX};
use hoplo_base::{NodeNumber, ProcessId, TaskId};

fn task(seq: u64) -> TaskId {
    TaskId { owner: ProcessId::new(NodeNumber::alone(1), 1, 1), seq }
}

fn waits(of: Thing, says: &str, waits_for: &[Thing]) -> Link {
    Link { of, says: says.into(), waits_for: waits_for.to_vec(), only: true }
}

#[test]
fn a_chain_is_followed_to_its_end_and_each_thing_is_asked_about_once() {
    let (object, made, placed) = (
        Thing::Object(task(1).object(0)),
        Thing::Task(task(1)),
        Thing::Placed(ProcessId::new(NodeNumber::alone(1), 2, 2), task(1)),
    );
    let mut chain = Chain::new(object);
    assert_eq!(chain.to_ask(), [object]);
    chain.hear(vec![waits(object, "obj is made by task", &[made])]);
    assert_eq!(chain.to_ask(), [made]);
    // Two processes say the same, one something that nobody asked about.
    let said = waits(made, "task is in process:2", &[placed]);
    chain.hear(vec![said.clone(), said, waits(placed, "early", &[])]);
    assert_eq!(chain.to_ask(), [placed]);
    chain.hear(vec![Link::end(placed, "task runs".to_string())]);
    assert!(chain.to_ask().is_empty());
    let lines = chain.lines(&Reason::to_string);
    assert_eq!(lines, ["obj is made by task", "  task is in process:2", "    task runs"]);
}

#[test]
fn a_circle_is_a_deadlock_only_when_none_of_it_can_go_on() {
    let (one, two) = (Thing::Task(task(1)), Thing::Task(task(2)));
    for (only, word) in [(true, "deadlock"), (false, "may still end")] {
        let mut chain = Chain::new(one);
        chain.hear(vec![waits(one, "one", &[two])]);
        chain.hear(vec![Link { only, ..waits(two, "two", &[one]) }]);
        let lines = chain.lines(&Reason::to_string);
        let last = lines.last().unwrap();
        assert!(last.contains(word), "{last}");
        assert!(last.contains("task:1-1 waits for task:1-2 waits for task:1-1"), "{last}");
        assert_eq!(lines.len(), 3, "{lines:?}");
    }
}

#[test]
fn what_waits_for_thousands_of_things_is_followed_a_little() {
    let root = Thing::Task(task(0));
    let many: Vec<Thing> = (1..5000).map(|seq| Thing::Task(task(seq))).collect();
    let mut chain = Chain::new(root);
    chain.hear(vec![waits(root, "root", &many)]);
    assert_eq!(chain.to_ask().len(), WHY_THINGS_MAX);
    for _ in 0..2 * WHY_ROUNDS_MAX {
        let asked = chain.to_ask().to_vec();
        let next = |thing: &Thing| match thing {
            Thing::Task(at) => waits(*thing, "one", &[Thing::Task(task(at.seq + 10_000))]),
            other => panic!("{other}"),
        };
        chain.hear(asked.iter().map(next).collect());
        if chain.to_ask().is_empty() {
            break;
        }
    }
    assert!(chain.to_ask().is_empty(), "WHY-2");
}
