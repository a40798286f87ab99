//! The decider's side of what is between nodes: its effects for the carrier, and the carrier's words to it (`crates/node/src/daemon/far_calls.rs`).

use hoplo_base::ProcessId;
use hoplo_core::carry::Pair;
use hoplo_core::node::{Effect, Event};
use hoplo_wire::node::ToClient;
use hoplo_wire::peer::{FarValue, Known, Peer};

use crate::carrier::{Told, Word};
use crate::cluster::Cluster;
use crate::daemon::Daemon;

impl Cluster {
    /// What the node wants of its carrier.
    pub fn carry_out_far(&mut self, effect: Effect) {
        match effect {
            Effect::SendPeer { to, cover, message } => {
                self.note(|| format!("  to {to} ({cover}): {message:?}"));
                self.tells_carrier(Told::SendPeer { to, cover, message });
            }
            Effect::Go { ticket, cover } => self.tells_carrier(Told::Go { ticket, cover }),
            Effect::OpenFar { caller, worker } => {
                self.here.daemon.far_channels.insert((caller, worker));
                self.tells_carrier(Told::Opened { pair: Pair { caller, worker } });
            }
            Effect::ServeFar { caller, worker } => {
                self.here.daemon.far_channels.insert((caller, worker));
                self.here.channels.entry((caller, worker)).or_default();
                self.send_to(worker, ToClient::Connected { from: caller });
                self.tells_carrier(Told::Opened { pair: Pair { caller, worker } });
            }
            Effect::CloseFar { caller, worker } => {
                self.here.daemon.far_channels.remove(&(caller, worker));
                self.tells_carrier(Told::Close { pair: Pair { caller, worker } });
            }
            Effect::WorkerGone { caller, worker, obituary } => {
                let daemon = &mut self.here.daemon;
                daemon.far_left |= daemon.far_channels.remove(&(caller, worker));
                let pair = Pair { caller, worker };
                self.tells_carrier(Told::WorkerGone { pair, obituary });
            }
            Effect::RevokeFar { caller, worker, seqs } => {
                self.count("revocations from far workers");
                self.tells_carrier(Told::Revoke { pair: Pair { caller, worker }, seqs });
            }
            Effect::Haul { order } => self.orders(order),
            other => panic!("that is nothing for a carrier: {other:?}"),
        }
    }

    /// Some of what the carrier said, or all.
    pub fn daemon_hears(&mut self) {
        self.here.carrier.hears = false;
        let some = if self.rng.one_in(4) { 1 } else { usize::MAX };
        for _ in 0..some {
            let Some(word) = self.here.carrier.words.pop_front() else { return };
            self.hears_word(word);
        }
        self.hears_again();
    }

    fn hears_word(&mut self, word: Word) {
        let Some(word) = self.sabotage_word(word) else { return };
        match word {
            Word::Peer { from, cover, message } => {
                self.note(|| format!("daemon hears node {from} ({cover}): {message:?}"));
                if let Peer::Sealed { object, holder, .. } = &*message {
                    self.books.losses.made_at(*object, from);
                    let lives = self.clients.get(holder).is_some_and(|holder| holder.alive);
                    // Its maker may have been killed in between: then another attempt makes it.
                    if lives && self.books.replied.contains(&object.task) {
                        self.books.stored(*object, from);
                    }
                }
                self.counts_estates(&message);
                if let Peer::Value { value: FarValue::Stored { sources, .. }, .. } = &*message
                    && let [only] = sources[..]
                {
                    self.is_named_alone(only, from);
                }
                if matches!(*message, Peer::Claims { .. }) && self.rng.one_in(16) {
                    self.count("words on references that came twice");
                    let message = message.clone();
                    self.happens(Event::Peer { from, cover, message });
                }
                self.happens(Event::Peer { from, cover, message });
            }
            Word::Member { entry, index } => {
                self.note(|| format!("daemon hears that {} is {:?}", entry.node, entry.state));
                if self.here.number == self.head() {
                    let Daemon { node, lead, .. } = &mut self.here.daemon;
                    let rows = lead.as_ref().map_or(&self.control, |lead| lead.copies.rows());
                    node.read_wills(&entry, rows);
                    let (wills, ended) = node.wills_read();
                    self.counts.add_many("wills that a head read", wills);
                    self.counts.add_many("ended actors of which a head read", ended);
                }
                self.happens(Event::Member { entry, index });
            }
            Word::Passing { ticket, frame } => {
                if frame.arrived.is_none() {
                    // REF-1, REF-3: what it said before it wrote the frame.
                    self.reads_what_lies(if frame.is_reply { frame.worker } else { frame.caller });
                }
                self.note(|| format!("daemon lets pass: {frame:?}"));
                self.happens(Event::Passing { ticket, frame });
            }
            Word::Ended { pair: Pair { caller, worker }, unstarted, obituary } => {
                self.here.daemon.far_channels.remove(&(caller, worker));
                self.happens(Event::ChannelEnded { caller, worker, unstarted, obituary });
            }
            Word::Revoked { pair: Pair { caller, worker }, seqs, kept } => {
                self.happens(Event::CallsRevoked { caller, worker, seqs, kept });
            }
            Word::Drained { n } => {
                if self.here.daemon.drains_for == Some(n) {
                    self.here.daemon.drains_for = None;
                    self.finishes_sweep();
                }
            }
            Word::Hauled(done) => {
                self.note(|| format!("daemon hears of the haul: {done:?}"));
                self.happens(Event::Hauled { done });
            }
        }
    }

    /// What becomes of the objects of dead homes, and of dead owners.
    fn counts_estates(&mut self, message: &Peer) {
        match message {
            Peer::Known { object, known } => {
                let home = object.task.owner.node();
                if self.here.daemon.node.objects.in_charge(home) != self.here.number {
                    self.count("words for heirs that came before the death");
                }
                self.count(match known {
                    Known::Copy { .. } => "copies that heirs were told of",
                    Known::Inline { .. } | Known::Failed(_) => "values that heirs were told",
                    Known::Lineage(_) => "lineages that heirs were told",
                });
            }
            Peer::NowFrom { turn, now, .. } => self.count(if now == turn {
                "nodes that were told better sources"
            } else {
                "nodes that went to the end of a chain"
            }),
            Peer::KeepCopy { .. } => self.count("copies that nodes were asked for"),
            Peer::KeepActor { known, .. } => {
                self.count("actors that keepers were told of");
                if known.replay.is_some() {
                    self.count("logs that keepers were told");
                }
            }
            Peer::KeepLog { .. } => self.count("words on logs to keepers"),
            Peer::ActorKnown(_) => self.count("actors that heirs were told of"),
            Peer::Lineage { .. } => self.count("lineages that claimers were told"),
            Peer::Adopt { .. } => self.count("adoptions for other nodes"),
            // Where it was to begin is dead, of which its home has not heard: that costs a restart, for it may have begun there (seed 1426991).
            Peer::ActorPlaced { actor, worker, .. } => {
                self.books.facts.lived_in(*actor, *worker);
            }
            Peer::Want { gone, .. } if !gone.is_empty() => {
                self.count("questions of nodes that heard of a death before the home");
            }
            _ => {}
        }
    }

    fn reads_what_lies(&mut self, process: ProcessId) {
        if self.here.daemon.open.contains(&process) {
            self.read_socket(process, usize::MAX);
        }
    }

    /// REF-5: what lies in the rings of far channels is part of a sweep. False: there are none.
    pub fn drains_far(&mut self) -> bool {
        let daemon = &mut self.here.daemon;
        if daemon.far_channels.is_empty() && !std::mem::take(&mut daemon.far_left) {
            return false;
        }
        daemon.far_left = false;
        daemon.drains += 1;
        let n = daemon.drains;
        daemon.drains_for = Some(n);
        self.count("sweeps of far rings");
        self.tells_carrier(Told::Drain { n });
        true
    }
}
