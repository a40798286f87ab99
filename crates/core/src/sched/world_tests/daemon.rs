//! What a daemon does with its local scheduler and its broker: the wiring, and nothing else of a node.

use std::collections::BTreeMap;

use hoplo_base::{ActorId, Instant, JobId, LeaseId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{PythonEnv, Shape};
use hoplo_wire::peer::Found;

use crate::sched::claim::{Claimant, Stuck};
use crate::sched::place::Place;
use crate::sched::{Broker, LocalScheduler, broker, local};

/// To another daemon.
#[derive(Clone, Debug)]
pub enum Message {
    Ask { claimant: Claimant, job: JobId, shape: Shape, held: ResourceSet, wanted: u32 },
    GiveUp { actor: ActorId },
    Granted { claimant: Claimant, lease: LeaseId },
    Recall { process: ProcessId, lease: LeaseId },
    Stuck { claimant: Claimant, stuck: Option<Stuck> },
    Returned { process: ProcessId, lease: LeaseId },
    Found { seek: u64, found: Found },
}

#[derive(Clone, Debug)]
pub enum Out {
    Send {
        to: NodeNumber,
        message: Message,
    },
    Seek {
        seek: u64,
        shape: Shape,
        wanted: u32,
    },
    /// A worker is to be forked for it.
    Fork {
        lease: LeaseId,
    },
    /// A Python is to be made for it.
    Make {
        python: PythonEnv,
    },
    /// To a process or an actor's table of this node.
    Granted {
        claimant: Claimant,
        lease: LeaseId,
        node: NodeNumber,
    },
    Recall {
        process: ProcessId,
        lease: LeaseId,
    },
    Tell {
        claimant: Claimant,
        stuck: Option<Stuck>,
    },
}

pub struct Daemon {
    pub node: NodeNumber,
    pub scheduler: LocalScheduler,
    pub broker: Broker,
    workers: u32,
    /// Asked by others: where they are.
    pub actors: BTreeMap<ActorId, NodeNumber>,
}

impl Daemon {
    pub fn new(place: Place) -> Self {
        let mut scheduler = LocalScheduler::new(place.node, place.total.clone());
        scheduler.set_labels(place.labels.clone());
        let node = place.node;
        let actors = BTreeMap::new();
        Self { node, scheduler, broker: Broker::new(place), workers: 0, actors }
    }

    pub fn ask_broker(&mut self, now: Instant, event: broker::Event, out: &mut Vec<Out>) {
        let mut effects = Vec::new();
        self.broker.handle(now, event, &mut effects);
        for effect in effects {
            self.on_broker(now, effect, out);
        }
        self.broker.check(now);
    }

    pub fn ask_scheduler(&mut self, now: Instant, event: local::Event, out: &mut Vec<Out>) {
        let mut effects = Vec::new();
        self.scheduler.handle(now, event, &mut effects);
        for effect in effects {
            self.on_scheduler(now, effect, out);
        }
        self.scheduler.check();
    }

    pub fn on_message(
        &mut self,
        now: Instant,
        from: NodeNumber,
        message: Message,
        out: &mut Vec<Out>,
    ) {
        match message {
            Message::Ask { claimant, job, shape, held, wanted } => {
                if let Claimant::Actor { actor, .. } = claimant {
                    self.actors.insert(actor, from);
                }
                self.ask_here(now, claimant, job, shape, held, wanted, out);
            }
            Message::GiveUp { actor } => {
                self.ask_scheduler(now, local::Event::ActorGaveUp { actor }, out);
            }
            Message::Granted { claimant, lease } => {
                self.ask_broker(now, broker::Event::Granted { claimant, node: from }, out);
                out.push(Out::Granted { claimant, lease, node: from });
            }
            Message::Recall { process, lease } => out.push(Out::Recall { process, lease }),
            Message::Stuck { claimant, stuck } => {
                self.ask_broker(now, broker::Event::Stuck { claimant, node: from, stuck }, out);
            }
            Message::Returned { process, lease } => {
                self.ask_scheduler(now, local::Event::Returned { process, lease }, out);
            }
            Message::Found { seek, found } => {
                self.ask_broker(now, broker::Event::Found { seek, found }, out);
            }
        }
    }

    pub fn forked(&mut self, now: Instant, lease: LeaseId, out: &mut Vec<Out>) {
        self.workers += 1;
        let worker = ProcessId::new(self.node, 1000 + self.workers, 1);
        self.ask_scheduler(now, local::Event::WorkerAssigned { lease, worker }, out);
    }

    pub fn tick(&mut self, now: Instant, out: &mut Vec<Out>) {
        if self.broker.next_deadline().is_some_and(|at| at <= now) {
            self.ask_broker(now, broker::Event::Tick, out);
        }
        if self.scheduler.next_deadline().is_some_and(|at| at <= now) {
            self.ask_scheduler(now, local::Event::Tick, out);
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.broker.next_deadline().into_iter().chain(self.scheduler.next_deadline()).min()
    }

    fn home(&self, claimant: Claimant) -> NodeNumber {
        match claimant {
            Claimant::Demand { process, .. } => process.node(),
            Claimant::Actor { actor, .. } => self.actors.get(&actor).copied().unwrap_or(self.node),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a demand has so many parts")]
    fn ask_here(
        &mut self,
        now: Instant,
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
        wanted: u32,
        out: &mut Vec<Out>,
    ) {
        let event = match claimant {
            Claimant::Demand { process, key } => {
                local::Event::Demanded { process, job, key, shape, wanted }
            }
            Claimant::Actor { actor, incarnation } => {
                local::Event::ActorWaits { actor, incarnation, job, shape, held }
            }
        };
        self.ask_scheduler(now, event, out);
    }

    fn on_broker(&mut self, now: Instant, effect: broker::Effect, out: &mut Vec<Out>) {
        use broker::Effect as From;
        match effect {
            From::Ask { node, claimant, job, shape, held, wanted } if node == self.node => {
                self.ask_here(now, claimant, job, shape, held, wanted, out);
            }
            From::Ask { node: to, claimant, job, shape, held, wanted } => {
                let message = Message::Ask { claimant, job, shape, held, wanted };
                out.push(Out::Send { to, message });
            }
            From::GiveUp { node, actor } if node == self.node => {
                self.ask_scheduler(now, local::Event::ActorGaveUp { actor }, out);
            }
            From::GiveUp { node: to, actor } => {
                out.push(Out::Send { to, message: Message::GiveUp { actor } });
            }
            From::Seek { seek, shape, wanted } => out.push(Out::Seek { seek, shape, wanted }),
            From::Look { claimant } => {
                let reserved = self.scheduler.reserved(claimant);
                self.ask_broker(now, broker::Event::Looked { claimant, reserved }, out);
            }
            From::Tell { claimant, stuck } => out.push(Out::Tell { claimant, stuck }),
            // The owner of this world hears of both alike.
            From::FailOfGroup { group, .. } => panic!("nothing here is in {group}"),
            From::Fail { claimant, why } => {
                let stuck = Some(Stuck { reason: why.into(), infeasible: true });
                out.push(Out::Tell { claimant, stuck });
            }
            From::Coming { .. } => {} // changes which task a process places, and no lease
            From::Recite => {
                let claims: Vec<_> = self.scheduler.claims().collect();
                let events = claims.into_iter().filter(|it| self.home(it.0) == self.node);
                let events: Vec<_> = events
                    .map(|(claimant, job, shape, held, wanted)| {
                        let (shape, held) = (shape.clone(), held.clone());
                        broker::Event::WaitsHere { claimant, job, shape, held, wanted }
                    })
                    .collect();
                for event in events {
                    self.ask_broker(now, event, out);
                }
            }
        }
    }

    fn on_scheduler(&mut self, now: Instant, effect: local::Effect, out: &mut Vec<Out>) {
        use local::Effect as From;
        match effect {
            From::AcquireWorker { lease, .. } => out.push(Out::Fork { lease }),
            From::MakeEnvironment { python } => out.push(Out::Make { python }),
            From::Grant { process, key, lease, .. } => {
                self.granted(now, Claimant::Demand { process, key }, lease, out);
            }
            From::PlaceActor { actor, incarnation, .. } => {
                let lease = LeaseId::new(self.node, 0);
                self.granted(now, Claimant::Actor { actor, incarnation }, lease, out);
            }
            From::Recall { process, lease } if process.node() == self.node => {
                out.push(Out::Recall { process, lease });
            }
            From::Recall { process, lease } => {
                let message = Message::Recall { process, lease };
                out.push(Out::Send { to: process.node(), message });
            }
            From::TellStuck { process, key, stuck } => {
                self.stuck(now, Claimant::Demand { process, key }, stuck, out);
            }
            From::TellActorStuck { actor, stuck } => {
                self.stuck(now, Claimant::Actor { actor, incarnation: 0 }, stuck, out);
            }
            From::KillWorker { worker, .. } => {
                self.ask_scheduler(now, local::Event::ProcessGone { process: worker }, out);
            }
            From::CancelWorker { .. }
            | From::ReleaseWorker { .. }
            | From::WantIdle { .. }
            | From::FailDemand { .. }
            | From::FailActor { .. }
            | From::TellBlocked { .. }
            | From::AnswerBundles { .. }
            | From::EndWorker { .. } => {}
        }
    }

    fn granted(&mut self, now: Instant, claimant: Claimant, lease: LeaseId, out: &mut Vec<Out>) {
        let (home, node) = (self.home(claimant), self.node);
        if home == node {
            self.ask_broker(now, broker::Event::Granted { claimant, node }, out);
            out.push(Out::Granted { claimant, lease, node });
        } else {
            let message = Message::Granted { claimant, lease };
            out.push(Out::Send { to: home, message });
        }
    }

    fn stuck(
        &mut self,
        now: Instant,
        claimant: Claimant,
        stuck: Option<Stuck>,
        out: &mut Vec<Out>,
    ) {
        let (home, node) = (self.home(claimant), self.node);
        if home == node {
            self.ask_broker(now, broker::Event::Stuck { claimant, node, stuck }, out);
        } else {
            out.push(Out::Send { to: home, message: Message::Stuck { claimant, stuck } });
        }
    }
}
