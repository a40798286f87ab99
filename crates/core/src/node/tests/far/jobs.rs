//! Jobs of drivers of other nodes.

use super::names::actor_of;
use super::*;

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
