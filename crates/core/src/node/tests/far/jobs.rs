//! Jobs of drivers of other nodes.

use super::names::actor_of;
use super::*;
use crate::control::{ControlStore, Entry, JobEntry, MemoryStore, Row};

/// A detached actor goes on when its driver has left, and works for the job that is over. Another node was told of the job by that, and
/// kept its workers for ever.
#[test]
fn a_node_that_was_told_of_a_job_after_its_end_did_not_hear_of_the_end() {
    let mut nodes = Nodes::new(1);
    let driver = nodes.shells[0].driver();
    let job = nodes.shells[0].node.process(driver).unwrap().job;
    nodes.asks_for(0, driver, true, false);
    nodes.pump();
    let actor = nodes.forks(0);
    let (incarnation, result) = (0, Ok(()));
    let started = ToNode::ActorStarted { actor: actor_of(driver), incarnation, result };
    nodes.says(0, actor, started);
    nodes.shells[0].hears(Event::Closed { process: driver });
    nodes.joins();
    assert!(nodes.shells[1].node.job(job).is_none(), "nobody told it");
    nodes.demand(actor, 2.0);
    let worker = nodes.forks(1);
    let (lease, granted) = nodes.granted(actor);
    assert_eq!(granted, worker);
    assert!(nodes.shells[1].node.job(job).unwrap().ended_us.is_some());
    nodes.says(0, actor, ToNode::LeaseReturn { lease });
    let exit = nodes.shells[1].told(worker, |message| match message {
        ToClient::Exit { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(exit.as_deref(), Some("its job ended"));
}

/// Who writes the rows of a job died with the driver: the job ran for ever. The head writes that it ended, and does so again at the next
/// death if its store did not have that yet.
#[test]
fn a_job_whose_drivers_node_died_ran_until_the_head_started_again() {
    let mut nodes = Nodes::new(4);
    let row = |nodes: &mut Nodes, at: usize| {
        let driver = nodes.shells[at].driver();
        let node = &nodes.shells[at].node;
        node.job(node.process(driver).unwrap().job).unwrap().entry()
    };
    let jobs: Vec<JobEntry> = (0..4).map(|at| row(&mut nodes, at)).collect();
    let ended = JobEntry { ended_us: Some(5), ..row(&mut nodes, 1) };
    let mut store = MemoryStore::new();
    for job in jobs.iter().chain([&ended]) {
        store.put(job.key(), job.to_value()).unwrap();
    }
    let written = |nodes: &mut Nodes, dead: usize| {
        let entry = node_entry(dead, NodeState::dead("it fell"));
        nodes.shells[0].node.read_wills(&entry, &store);
        nodes.dies(dead);
        let mut found = Vec::new();
        while let Some((key, value)) = nodes.shells[0].take(|effect| match effect {
            Effect::Save { key, value, .. } => Some((key.clone(), value.clone())),
            _ => None,
        }) {
            if key == jobs[0].key() || key.table != jobs[0].key().table {
                continue;
            }
            let row = Row { value, version: 1, index: 1, finished: false };
            let job = JobEntry::from_row(&row).unwrap();
            found.push((job.job, job.ended_us.is_some()));
        }
        found
    };
    assert_eq!(written(&mut nodes, 1), [(jobs[1].job, true)]);
    assert_eq!(written(&mut nodes, 2), [(jobs[1].job, true), (jobs[2].job, true)]);
}
