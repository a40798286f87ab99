//! What a dead caller held for calls that go on passes to who serves them (REF-2).
//!
//! A caller holds what its calls name until their replies, and what lies in those values. It dies, and an actor, or a worker of another node, goes on
//! with a call, and may keep a ref that it found there. So who served it says `TookOver` when it has told the daemon what it uses of that:
//! 1. The caller is buried. All that had a channel with it hear so.
//! 2. Until each worker among them has said `TookOver`, or is dead, the directory does not hear of the death: what the dead one held stays.
//! 3. Then it does, and decides as ever: it reads all sockets before it frees something (REF-5).
//!
//! A worker that is stopped for longer than `TAKEOVER_PATIENCE` says nothing; what needs the dead one's end waits no longer than that.
//! Of a caller of another node, this one holds what each call names (FAR-3) until `TookOver`.

use std::collections::BTreeSet;

use hoplo_base::ProcessId;
use hoplo_base::limits::TAKEOVER_PATIENCE;

use super::process::Kind;
use super::sweeps::Deferred;
use super::{Node, Timer};
use crate::objects;

/// Of a process that is buried, and of which the directory has not heard that.
#[derive(Debug)]
pub(super) struct Unheard {
    /// These may still use what it held.
    serving: BTreeSet<ProcessId>,
    kind: Kind,
    obituary: String,
    /// It has nothing of the store mapped any more.
    unmapped: bool,
    /// What it was told of its tasks: who adopts them hears it.
    pub(super) told: Vec<Deferred>,
}

impl Node {
    /// Living workers of this node that may serve a call of a process that dies.
    pub(super) fn serving(&self, peers: &BTreeSet<ProcessId>) -> BTreeSet<ProcessId> {
        let serves = |id: &ProcessId| {
            let peer = self.processes.get(id);
            peer.is_some_and(|peer| peer.is_worker() && peer.stage.has_connection())
        };
        peers.iter().copied().filter(serves).collect()
    }

    /// The directory hears of this death when all of `serving` have what they need.
    pub(super) fn buried(
        &mut self,
        id: ProcessId,
        kind: Kind,
        obituary: String,
        serving: BTreeSet<ProcessId>,
    ) {
        let waits = !serving.is_empty();
        let unheard = Unheard { serving, kind, obituary, unmapped: false, told: Vec::new() };
        if waits {
            self.unheard.insert(id, unheard);
            self.pass_to_objects(objects::Event::ProcessDies { process: id });
            self.after(TAKEOVER_PATIENCE, Timer::Takeover(id));
        } else {
            self.directory_hears(id, unheard);
        }
    }

    /// A worker has told what it uses of what this dead caller held.
    pub(super) fn on_took_over(&mut self, worker: ProcessId, caller: ProcessId) {
        if self.is_far(caller.node()) {
            return self.calls_taken_over(caller, worker);
        }
        if let Some(unheard) = self.unheard.get_mut(&caller) {
            unheard.serving.remove(&worker);
            if unheard.serving.is_empty() {
                self.takeover_ends(caller);
            }
        }
    }

    /// Who is dead serves nothing.
    pub(super) fn serves_no_more(&mut self, worker: ProcessId) {
        let served = self.unheard.iter().filter(|(_, it)| it.serving.contains(&worker));
        for caller in served.map(|(caller, _)| *caller).collect::<Vec<_>>() {
            self.on_took_over(worker, caller);
        }
        self.dead_ends_calls(worker);
    }

    /// Whoever has not said anything by now.
    pub(super) fn takeover_ends(&mut self, caller: ProcessId) {
        if let Some(unheard) = self.unheard.remove(&caller) {
            self.directory_hears(caller, unheard);
        }
    }

    fn directory_hears(&mut self, process: ProcessId, unheard: Unheard) {
        let Unheard { kind, obituary, unmapped, told, .. } = unheard;
        self.pass_to_objects(match kind {
            Kind::Driver => objects::Event::ProcessLeft { process, obituary },
            Kind::Worker | Kind::Tool => objects::Event::ProcessGone { process, obituary },
        });
        if unmapped {
            self.pass_to_objects(objects::Event::Unmapped { process });
        }
        for deferred in told {
            self.sweeps.defer(deferred);
        }
    }

    /// True: the directory hears it when it hears of the death.
    pub(super) fn is_unmapped_before(&mut self, process: ProcessId) -> bool {
        let unheard = self.unheard.get_mut(&process);
        unheard.map(|unheard| unheard.unmapped = true).is_some()
    }
}
