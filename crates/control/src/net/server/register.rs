//! The acceptor of this node, where the configuration lies with the control nodes: a thread of its own, which writes to disk what
//! it promises and accepts, and then answers. The loop hands it what proposers ask, and sends what it answers.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hoplo_base::NodeId;
use hoplo_base::limits::REGISTER_ASKS_WAITING_MAX;
use hoplo_core::control::register::{Acceptor, AcceptorEffect};
use hoplo_net::hub::LinkId;
use hoplo_wire::control::Speaker;
use hoplo_wire::register::{Answer, Ask, Held};
use serde::{Deserialize, Serialize};

use super::super::cluster::Cluster;
use super::super::config_store::StoreError;
use super::super::config_store::pair::Pair;
use super::super::who::may_propose;
use super::home::Home;
use super::{Inbox, Report, ServeError, Server, note};

pub(super) struct Register {
    asks: SyncSender<(LinkId, Ask)>,
}

impl Register {
    /// It ends with the last sender.
    pub(super) fn start(
        home: &Home,
        place: usize,
        cluster: &Cluster,
        inbox: Inbox,
    ) -> Result<Self, ServeError> {
        let (node, places) = (home.replica.node, cluster.acceptors().len());
        let mut disk = Disk::open(home.register(), node, place, places)?;
        let (asks, asked) = sync_channel(REGISTER_ASKS_WAITING_MAX);
        let thread = std::thread::Builder::new().name("hoplo:register".to_string());
        thread.spawn(move || serve(&mut disk, &asked, &inbox))?;
        Ok(Self { asks })
    }
}

fn serve(disk: &mut Disk, asked: &Receiver<(LinkId, Ask)>, inbox: &Inbox) {
    let mut is_well = true;
    for (link, ask) in asked {
        match disk.answers(ask) {
            Ok(answer) => {
                is_well = true;
                inbox.post(Report::Register(link, answer));
            }
            // Whoever asked asks again.
            Err(error) if std::mem::take(&mut is_well) => {
                note(&format!("this node takes no part in changes of the configuration: {error}"));
            }
            Err(_) => {}
        }
    }
}

/// The acceptor, and what it kept last.
#[derive(Debug)]
struct Disk {
    pair: Pair<Kept>,
    older: PathBuf,
    revision: u64,
    node: NodeId,
    place: usize,
    acceptor: Acceptor,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    node: NodeId,
    place: usize,
    held: Held,
}

impl Disk {
    fn open(path: PathBuf, node: NodeId, place: usize, places: usize) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let pair = Pair::<Kept>::new(path);
        let found = pair.read()?;
        let revision = found.newest.as_ref().map_or(0, |document| document.revision);
        let acceptor = match found.newest.map(|document| document.config) {
            None => Acceptor::new(node, place, places),
            Some(kept)
                if (kept.node, kept.place, kept.held.seats.len()) == (node, place, places) =>
            {
                Acceptor::recovered(node, place, kept.held)
            }
            Some(kept) => {
                let why = format!(
                    "it is that of node {:016x} at place {} of {}; this is node {:016x} at place {} of {}, as \
                     the cluster file names them",
                    kept.node.0,
                    kept.place + 1,
                    kept.held.seats.len(),
                    node.0,
                    place + 1,
                    places
                );
                return Err(StoreError::Unreadable { place: name, why });
            }
        };
        Ok(Self { pair, older: found.older, revision, node, place, acceptor })
    }

    /// REG-2
    fn answers(&mut self, ask: Ask) -> Result<Answer, StoreError> {
        let before = self.acceptor.held().clone();
        let mut effects = Vec::new();
        self.acceptor.handle(ask, &mut effects);
        for effect in effects {
            match effect {
                AcceptorEffect::Keep(held) => {
                    if let Err(error) = self.keep(held) {
                        self.acceptor = Acceptor::recovered(self.node, self.place, before);
                        return Err(error);
                    }
                }
                AcceptorEffect::Answer(answer) => return Ok(answer),
            }
        }
        unreachable!("an acceptor answers whatever it is asked")
    }

    fn keep(&mut self, held: Held) -> Result<(), StoreError> {
        let kept = Kept { node: self.node, place: self.place, held };
        self.older = self.pair.write(&self.older, self.revision + 1, &kept)?;
        self.revision += 1;
        Ok(())
    }
}

impl Server {
    pub(super) fn on_register_asked(&mut self, link: LinkId, who: Speaker, ask: Ask) {
        let refused = match (&self.register, may_propose(who, &ask)) {
            (Some(register), Ok(())) => {
                // One that finds no room is lost, as it may be on its way, and asked again.
                let _ = register.asks.try_send((link, ask));
                return;
            }
            (Some(_), Err(why)) => why,
            (None, _) => "this node does not hold the configuration: its cluster file names others first, or it \
                          was started with another --config"
                .to_string(),
        };
        // NET-2
        self.hub.refuse(link, &refused);
        self.inbound.remove(&link);
    }
}
