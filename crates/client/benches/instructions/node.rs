//! As much of a node as a driver, a worker and an actor need to call each other: it grants the worker as the
//! one lease, says where the actor lives, joins who asks for it, grants room, and is deaf to the rest.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use hoplo_base::{LeaseId, ProcessId};
use hoplo_client::Client;
use hoplo_wire::node::{ActorState, ToClient, ToNode};

use crate::daemon::{self, Daemon, process};

pub const DRIVER: ProcessId = process(1);
pub const WORKER: ProcessId = process(2);
pub const ACTOR: ProcessId = process(3);

/// The driver, the worker and the actor, all in this process.
pub fn clients() -> [Arc<Client>; 3] {
    // What is granted of the arena, bytes.
    let room = Arc::new(Mutex::new(0));
    let served = daemon::clients(
        |told| panic!("{told}"),
        move |daemon, from, message, descriptors| answer(daemon, &room, from, message, descriptors),
    );
    served.map(|(client, _)| client)
}

fn answer(
    daemon: &Daemon,
    room: &Mutex<u64>,
    from: ProcessId,
    message: ToNode,
    descriptors: &mut Vec<OwnedFd>,
) {
    match message {
        ToNode::LeaseDemand { key, wanted, .. } if wanted > 0 => {
            let lease = LeaseId(u64::from(key));
            let granted = ToClient::LeaseGranted { lease, key, worker: WORKER, gpus: vec![] };
            daemon.say(from, &granted, &[]);
        }
        ToNode::ActorWatch { actor } => {
            let state = ActorState::Alive { incarnation: 0, worker: ACTOR, logs: false };
            daemon.say(from, &ToClient::ActorState { actor, state }, &[]);
        }
        ToNode::Connect { to } => {
            let channel = descriptors.remove(0);
            daemon.say(to, &ToClient::Connected { from }, &[channel.as_fd()]);
        }
        ToNode::ExtentWant { request, bytes, slots } => {
            let len = bytes.max(1 << 20);
            let mut room = room.lock().unwrap();
            let offset = *room;
            *room += len;
            let slots = (1..=slots).collect();
            daemon.say(from, &ToClient::ExtentGranted { request, offset, len, slots }, &[]);
        }
        _ => {}
    }
}
