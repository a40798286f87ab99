//! Ten thousand nodes in virtual time, with measured costs: where a cluster of hoplo bends, and why.
//!
//! ```text
//!   node 2 ... N: stand-ins                  head
//!     joins, reads the node table, beats       desk      --number, certificate--
//!     says what a real node said      <====>   decider   real Node (with its global scheduler), real Replica
//!   a few of them: real Nodes                  carrier   real Judge
//! ```
//! Each thread is a *server* (`server`): what comes while it works waits. A machine that is run for real is charged what running it took
//! just now (`meter`); what is not run, sockets, TLS, forks, is charged what it costs by measurement (`costs`).
//! Ten thousand real nodes would hold ten thousand rows each, 100 GB, so all nodes but a few *samples* are stand-ins: they say what the
//! samples say, at the same moments, and are charged what those took. What is said to each of them is made by the real store of the head.
//!
//! - `plane`: the head and its nodes; `joins`, `busy`, `deaths`, `actors` are what happens to them. `turns` and `carrier` are the head's two
//!   threads, `verdicts` what it writes of deaths, `estates` what nodes tell the heirs of the dead.
//! - `chain`: control nodes: one that is the head of shards dies, or actors are made, and these have their rows. Real replicas, a real coordinator,
//!   real clients.
//! - `tasks`: empty tasks, where every thread is modelled by a cost alone.
//!
//! A daemon's turn takes all that came, and writes once for each connection; so under load messages share their system calls, as they do for real.
//!
//! # Not modelled
//! Memory and caches of other sizes than this machine's, bandwidth of networks, lost packets; that who finds the desk full dials again (here it
//! waits in line); calls and objects between nodes. A node other than the head is one server, for all of its threads. An
//! estate is one small object, that some nodes use, for each dead node: not actors, and not copies that must be made again.

mod actors;
mod busy;
mod carrier;
mod chain;
mod costs;
mod deaths;
mod estates;
mod home;
mod joins;
mod member;
mod meter;
mod plane;
mod server;
mod tasks;
mod turns;
mod verdicts;
mod words;

pub use actors::Actors;
pub use busy::Busy;
pub use chain::{Failover, Stored, head_of_a_shard_dies};
pub use costs::Costs;
pub use deaths::{Deaths, Ends};
pub use joins::Joins;
pub use meter::{Meter, Tally};
pub use plane::{Idle, Plane};
pub use server::Server;
pub use tasks::{TaskCosts, Tasks, tasks};
