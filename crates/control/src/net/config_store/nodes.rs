//! The document with the control nodes themselves: a proposer of their register (`core::control::register`), and the
//! connections that it asks over.
//!
//! As a coordinator it dials each acceptor at its address in the cluster file, this process's own among them. Connections stay open
//! between one change and the next. The owner waits in [`ConfigStore::load`] and [`ConfigStore::swap`], for
//! `CONFIG_STORE_ANSWERS` at most.

use std::io;
use std::time::{Duration, Instant};

use hoplo_base::limits::CONFIG_STORE_ANSWERS;
use hoplo_core::control::coordinator::Revision;
use hoplo_core::control::register::{
    Effect, Event, Failure, Outcome, Proposer, ProposerOptions, Wanted,
};
use hoplo_net::hub::{HubOptions, LinkId};
use hoplo_wire::control::{ClusterConfig, ReplicaId, Speaker};
use hoplo_wire::register::Ask;

use super::super::cluster::Cluster;
use super::super::frame::Frame;
use super::super::{Happening, Hub};
use super::{ConfigStore, Document, StoreError, Swapped};

pub struct NodesStore {
    hub: Hub,
    machine: Proposer,
    origin: Instant,
    /// By place.
    acceptors: Vec<Acceptor>,
    effects: Vec<Effect>,
}

struct Acceptor {
    address: String,
    line: Line,
    /// Why it did not answer last.
    trouble: Option<String>,
}

enum Line {
    Closed,
    /// What is asked when it is open.
    Dialled(LinkId, Ask),
    Open(LinkId),
}

impl NodesStore {
    /// `rank`: where the cluster file names this node.
    pub fn new(cluster: &Cluster, me: ReplicaId, rank: usize) -> io::Result<Self> {
        let hello = cluster.hello(Speaker::Coordinator(me));
        let hub = Hub::new(HubOptions { hello, identity: cluster.identity.clone() })?;
        let acceptors = cluster.acceptors().iter().map(|address| Acceptor {
            address: address.clone(),
            line: Line::Closed,
            trouble: None,
        });
        let acceptors: Vec<Acceptor> = acceptors.collect();
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let machine = Proposer::new(ProposerOptions { me, places: acceptors.len(), rank });
        Ok(Self { hub, machine, origin: Instant::now(), acceptors, effects: Vec::new() })
    }

    fn carry_out(&mut self, what: Wanted) -> Result<Outcome, StoreError> {
        // What became of connections since they were used last.
        let mut ended = self.turn(Instant::now())?;
        assert!(ended.is_none(), "nothing was wanted");
        let until = self.now() + CONFIG_STORE_ANSWERS;
        ended = self.handle(Event::Wanted { what, until });
        loop {
            match ended {
                Some(Outcome::Failed(failure)) => return Err(self.failed(&failure)),
                Some(outcome) => return Ok(outcome),
                None => {}
            }
            let due = self.machine.next_deadline().expect("who works has a deadline");
            ended = self.turn(self.origin + Duration::from_nanos(due.0))?;
        }
    }

    /// Waits for something to happen, but not beyond `until`.
    fn turn(&mut self, until: Instant) -> Result<Option<Outcome>, StoreError> {
        let mut happenings = Vec::new();
        let turned = self.hub.turn(Some(until), &mut happenings);
        turned.map_err(|error| unreachable(error.to_string()))?;
        let mut ended = None;
        for happening in happenings {
            ended = ended.or(self.on_happening(happening));
        }
        Ok(ended.or_else(|| self.handle(Event::Tick)))
    }

    fn on_happening(&mut self, happening: Happening) -> Option<Outcome> {
        match happening {
            Happening::Opened { link, .. } => {
                let place = self.place_of(link)?;
                let opened = std::mem::replace(&mut self.acceptors[place].line, Line::Open(link));
                if let Line::Dialled(_, ask) = opened {
                    self.hub.send(link, &Frame::ToRegister(ask));
                }
                None
            }
            Happening::Frame { link, frame: Frame::FromRegister(answer) } => {
                let place = self.place_of(link)?;
                let places = self.acceptors.len();
                if answer.seats.len() != places {
                    let theirs = answer.seats.len();
                    let why = format!(
                        "{}: its cluster file gives the configuration to {theirs} nodes, and this node's to {places}",
                        self.acceptors[place].address
                    );
                    self.hub.close(link);
                    return self.lost(place, why);
                }
                self.acceptors[place].trouble = None;
                self.handle(Event::Answered { place, answer })
            }
            Happening::Frame { link, frame } => {
                let place = self.place_of(link)?;
                self.hub.close(link);
                let address = &self.acceptors[place].address;
                let why = format!("{address}: {} came instead of an answer", frame.name());
                self.lost(place, why)
            }
            Happening::Closed { link, why } => {
                let place = self.place_of(link)?;
                self.lost(place, why.to_string())
            }
        }
    }

    fn lost(&mut self, place: usize, why: String) -> Option<Outcome> {
        let acceptor = &mut self.acceptors[place];
        (acceptor.line, acceptor.trouble) = (Line::Closed, Some(why));
        self.handle(Event::Gone { place })
    }

    fn handle(&mut self, event: Event) -> Option<Outcome> {
        let now = self.now();
        self.machine.handle(now, event, &mut self.effects);
        let mut ended = None;
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Ask { place, ask } => self.ask(place, ask),
                Effect::End(outcome) => ended = Some(outcome),
            }
        }
        ended
    }

    fn ask(&mut self, place: usize, ask: Ask) {
        let acceptor = &mut self.acceptors[place];
        match &mut acceptor.line {
            Line::Open(link) => self.hub.send(*link, &Frame::ToRegister(ask)),
            // Of an older round nobody wants to hear any more.
            Line::Dialled(_, older) => *older = ask,
            Line::Closed => {
                acceptor.line = Line::Dialled(self.hub.dial(&acceptor.address), ask);
            }
        }
    }

    fn place_of(&self, link: LinkId) -> Option<usize> {
        self.acceptors.iter().position(|acceptor| match acceptor.line {
            Line::Closed => false,
            Line::Dialled(its, _) | Line::Open(its) => its == link,
        })
    }

    fn failed(&self, failure: &Failure) -> StoreError {
        let (all, majority) = (self.acceptors.len(), self.machine.majority());
        let troubles = |places: &[usize]| {
            let trouble = |place: &usize| {
                let Acceptor { address, trouble, .. } = &self.acceptors[*place];
                trouble.clone().unwrap_or_else(|| format!("{address}: no answer in time"))
            };
            places.iter().map(trouble).collect::<Vec<_>>().join("; ")
        };
        unreachable(match failure {
            Failure::Silent { places, beginning: true } => format!(
                "when a cluster begins, all {all} must answer that hold its configuration, and these do not: {}",
                troubles(places)
            ),
            Failure::Silent { places, beginning: false } => {
                format!("{majority} of {all} must answer, and these do not: {}", troubles(places))
            }
            Failure::Lost { places } => {
                let lost = places.iter().map(|place| self.acceptors[*place].address.as_str());
                format!(
                    "too many lost what they held: the folders are new at {}. Start these nodes with the old ones",
                    lost.collect::<Vec<_>>().join(", ")
                )
            }
            Failure::Overtaken => "others have changed the configuration since".to_string(),
            Failure::Contended => "others went on changing the configuration".to_string(),
        })
    }

    fn now(&self) -> hoplo_base::Instant {
        hoplo_base::Instant(self.origin.elapsed().as_nanos() as u64)
    }
}

fn unreachable(why: String) -> StoreError {
    StoreError::Unreachable { place: "the control nodes".to_string(), why }
}

impl ConfigStore for NodesStore {
    fn load(&mut self) -> Result<Option<(Revision, ClusterConfig)>, StoreError> {
        match self.carry_out(Wanted::Load)? {
            Outcome::Loaded(None) => Ok(None),
            Outcome::Loaded(Some((version, document))) => {
                let found = Document::decode("what the control nodes hold", document.as_bytes())?;
                Ok(Some((version, found.config)))
            }
            other => panic!("a load ends with {other:?}"),
        }
    }

    fn swap(
        &mut self,
        expected: Option<Revision>,
        config: &ClusterConfig,
    ) -> Result<Swapped, StoreError> {
        let document = String::from_utf8(Document::encode(0, config)).expect("JSON is text");
        match self.carry_out(Wanted::Swap { expected, document })? {
            Outcome::Stored(version) => Ok(Swapped::Stored(version)),
            Outcome::Conflict => Ok(Swapped::Conflict),
            other => panic!("a swap ends with {other:?}"),
        }
    }
}
