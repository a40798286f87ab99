//! What the daemon says to a process.

use std::time::Duration;

use hoplo_base::{ObjectId, ProcessId};
use hoplo_core::session::Event;
use hoplo_core::worker::BecomeActor;
use hoplo_wire::node::{Notice, Tell, ToClient, ToNode};
use hoplo_wire::{Failure, FailureKind, Value};

use super::Answered;
use crate::cluster::{Cluster, Step};
use crate::sabotage::Sabotage;

impl Cluster {
    pub fn client_reads(&mut self, id: ProcessId) {
        let is_tool = self.questions.tools.contains_key(&id);
        if !is_tool && !self.clients.get(&id).is_some_and(|client| client.alive) {
            return;
        }
        let Some(message) = self.written_to(id).pop_front() else { return };
        self.note(|| format!("{id} hears {message:?}"));
        if is_tool {
            self.tool_hears(id, message);
        } else {
            self.node_says(id, message);
            self.wake(id);
        }
        if !self.written_to(id).is_empty() {
            let delay = self.rng.delay(self.plan.tardiness) / 4;
            self.after(delay, Step::ClientReads(id));
        }
    }

    fn node_says(&mut self, id: ProcessId, message: ToClient) {
        let message = self.sabotage_says(message);
        self.hears_of_ends(id, &message);
        let event = match message {
            ToClient::LeaseGranted { lease, key, worker, gpus } => {
                Event::LeaseGranted { lease, key, worker, gpus }
            }
            ToClient::LeaseRecall { lease } => Event::LeaseRecall { lease },
            ToClient::LeaseIdleWanted { key } => Event::LeaseIdleWanted { key },
            ToClient::LeaseStuck { key, reason, infeasible } => {
                Event::LeaseStuck { key, reason, infeasible }
            }
            ToClient::LeasesComing { key, wanted, count } => {
                Event::LeasesComing { key, wanted, count }
            }
            ToClient::LeaseFailed { key, failure } => Event::LeaseFailed { key, failure },
            ToClient::WorkerBlocked { worker } => Event::WorkerBlocked { worker },
            ToClient::ProcessGone { process, obituary, unstarted: far } => {
                let left = self.client(id).worker.disconnected(process);
                if !left.named.is_empty() {
                    self.count("callers that died in a call");
                }
                if self.sabotage_takes_nothing_over() {
                    self.say(id, ToNode::TookOver { caller: process });
                } else {
                    self.session(id, |session, now, effects| {
                        session.takes_over(now, process, &left.named, effects);
                    });
                }
                // A driver whose node stops has its ring until it notices.
                if self.clients.get(&process).is_none_or(|caller| !caller.alive) {
                    self.here.channels.remove(&(process, id));
                }
                self.drain(id);
                let outbound = self.client(id).outbound.remove(&process).unwrap_or_default();
                let channel = self.here.channels.remove(&(id, process)).unwrap_or_default();
                let unread = channel.calls.iter().map(|call| call.seq);
                let unstarted = unread.chain(outbound.overflow).chain(far).collect();
                Event::ProcessGone { process, obituary, unstarted }
            }
            ToClient::Revoked { worker, seqs, mut kept } => {
                self.drain(id);
                self.far_revoked(id, worker, &seqs, &mut kept);
                Event::Revoked { worker, seqs, kept }
            }
            ToClient::Ready { object, value, contains } => Event::Ready { object, value, contains },
            ToClient::Unreadable { object, failure } => Event::Unreadable { object, failure },
            ToClient::ActorState { actor, state } => Event::ActorState { actor, state },
            ToClient::Adopt { lineage, objects } => {
                self.count("adoptions");
                self.books.adoptions += 1;
                self.adoption_is_needed(id, &objects);
                self.books.adopts(id, &lineage, &objects);
                Event::Adopt { lineage: Box::new(lineage), objects }
            }
            ToClient::Remake { objects, node, why } => {
                self.losses_are_legitimate(&objects);
                if self.sabotage == Some(Sabotage::LossesAreFinal) {
                    return self.gives_all_up(id, objects);
                }
                Event::Remake { objects, node, why }
            }
            ToClient::Delayed { objects } => Event::Delayed { objects },
            ToClient::LineageOver { objects } => {
                self.books.losses.are_over(&objects);
                Event::LineageOver { objects }
            }
            ToClient::Told { message: Tell::Cancel { task, recursive }, .. }
                if self.clients[&id].session.task_here(task).is_some() =>
            {
                Event::Cancel { task, force: false, recursive }
            }
            other => return self.node_says_to_shell(id, other),
        };
        self.drain(id);
        let Some(event) = self.sabotage_hears(event) else { return };
        self.session(id, |session, now, effects| session.handle(now, event, effects));
    }

    /// Sabotage: an owner runs nothing again.
    fn gives_all_up(&mut self, id: ProcessId, objects: Vec<ObjectId>) {
        for object in objects {
            let value = Value::Failed(Failure::new(FailureKind::ObjectLost, "let it be"));
            let given_up = Notice::Fulfilled { object, value, contains: Vec::new() };
            self.say(id, ToNode::Notices(vec![given_up]));
        }
    }

    fn node_says_to_shell(&mut self, id: ProcessId, message: ToClient) {
        match message {
            ToClient::Welcome(welcome) => self.welcomed(id, *welcome),
            ToClient::Connected { from } => {
                if let Some(channel) = self.here.channels.get_mut(&(from, id)) {
                    channel.connected = true;
                    self.client(id).worker.connected(from, ());
                }
            }
            ToClient::ExtentGranted { request, offset, len, slots } => {
                if len > 0 {
                    self.room_is_free(offset..offset + len);
                    self.client(id).extents.insert(offset, len);
                }
                let client = self.client(id);
                client.extents.slots.extend(slots);
                client.rooms.insert(request, Answered::Extent);
            }
            ToClient::FileGranted { request, offset, slot, .. } => {
                self.client(id).rooms.insert(request, Answered::File { offset, slot });
            }
            ToClient::ExtentDenied { request, failure } => {
                self.client(id).rooms.insert(request, Answered::Denied(failure.kind));
            }
            ToClient::ExtentRecall { bytes } => {
                self.returns_room(id, bytes);
                self.say(id, ToNode::ExtentRecalled);
            }
            ToClient::Reclaimed { location, .. } => self.client(id).extents.reclaim(location),
            ToClient::RunActor { spec, incarnation, gpus, replay } => {
                let replay = self.sabotage_replay(replay);
                self.client(id).session.become_actor();
                self.client(id).worker.ordered(BecomeActor { spec, incarnation, gpus, replay });
            }
            ToClient::CallsLogged { upto } => {
                self.client(id).worker.logged(upto);
                self.wake(id);
            }
            ToClient::Told { message: Tell::Cancel { task, recursive }, .. } => {
                self.client(id).worker.cancelled(task);
                if recursive {
                    self.session(id, |session, now, effects| {
                        session.cancel_children(now, task, effects);
                    });
                }
            }
            ToClient::Told { message: Tell::Consumed { task, count }, .. } => {
                self.client(id).worker.consumed(task, count);
            }
            ToClient::Exit { graceful: true, reason } => {
                self.client(id).worker.leave(reason);
                self.arm(id);
            }
            ToClient::Exit { graceful: false, .. } => {
                self.books.facts.sends_away(id);
                let delay = self.rng.delay(Duration::from_micros(100));
                self.after(delay, Step::Dies(id));
            }
            ToClient::Inspect { request, .. } | ToClient::Explain { request, .. } => {
                self.inspected(id, request, message);
            }
            ToClient::Answer { request, .. } => self.hears_answer(id, request),
            other => self.answered(id, other),
        }
    }
}
