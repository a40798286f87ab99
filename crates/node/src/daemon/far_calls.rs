//! Calls to and from other nodes, as the decider and the carrier speak of them. Here is only what needs a descriptor or a socket.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hoplo_base::{NodeNumber, ProcessId, limits};
use hoplo_core::node::Event;
use hoplo_shm::{Channel, ChannelError};
use hoplo_wire::node::{DeathCause, Obituary, ToClient};
use hoplo_wire::peer::Peer;

use crate::carrier::{Told, Word};
use crate::clock::clock;
use crate::daemon::Daemon;
use crate::journal;
use crate::stream::Amount;

/// Channels with processes of other nodes, and a sweep that waits for what lies in them.
#[derive(Debug, Default)]
pub(crate) struct FarCalls {
    channels: BTreeSet<(ProcessId, ProcessId)>,
    /// A worker of one has died since the last drain: what it wrote may lie there.
    left: bool,
    drains: u64,
    /// The drain that the sweep under way waits for.
    pub(crate) drains_for: Option<u64>,
}

impl Daemon {
    fn tell(&self, told: Told) {
        match &self.carrier {
            Some(carrier) => carrier.tell(told),
            None => journal::log(format_args!("there are no other nodes for {told:.80?}")),
        }
    }

    pub(crate) fn send_peer(&self, to: NodeNumber, cover: u64, message: Box<Peer>) {
        self.tell(Told::SendPeer { to, cover, message });
    }

    pub(crate) fn let_go(&self, ticket: u64, cover: u64) {
        self.tell(Told::Go { ticket, cover });
    }

    pub(crate) fn revoke_far(&self, caller: ProcessId, worker: ProcessId, seqs: Vec<u64>) {
        self.tell(Told::RevokeFar { caller, worker, seqs });
    }

    /// The descriptor came with the message that is being handled.
    pub(crate) fn open_far(&mut self, caller: ProcessId, worker: ProcessId) {
        let fd = self.connections.hand.take();
        match fd.map(Channel::open_worker) {
            Some(Ok(end)) => {
                self.far_calls.channels.insert((caller, worker));
                self.tell(Told::Caller { caller, worker, end });
            }
            Some(Err(error)) => {
                let what = format!("has sent a channel to {worker} that cannot be opened: {error}");
                self.answer(Event::Broke { process: caller, what });
            }
            None => {
                let what = format!("has sent no channel to {worker}");
                self.answer(Event::Broke { process: caller, what });
            }
        }
    }

    pub(crate) fn serve_far(&mut self, caller: ProcessId, worker: ProcessId) {
        match self.connect_far(caller, worker) {
            Ok(()) => {
                self.far_calls.channels.insert((caller, worker));
            }
            Err(error) => {
                let reason = format!("no channel to it can be made: {error}");
                let cause = DeathCause::Lost { reason };
                let obituary = Obituary { pid: 0, cause, last_lines: Vec::new() };
                self.tell(Told::WorkerGone { caller, worker, obituary });
            }
        }
    }

    fn connect_far(&mut self, caller: ProcessId, worker: ProcessId) -> Result<(), ChannelError> {
        let (end, fd) = Channel::create(limits::RING_BYTES, limits::RING_BYTES)?;
        let fds: Vec<OwnedFd> = vec![fd];
        self.send_with(worker, &ToClient::Connected { from: caller }, Some(fds.into()));
        self.tell(Told::Worker { caller, worker, end });
        Ok(())
    }

    pub(crate) fn close_far(&mut self, caller: ProcessId, worker: ProcessId) {
        self.far_calls.channels.remove(&(caller, worker));
        self.tell(Told::CloseFar { caller, worker });
    }

    pub(crate) fn far_worker_gone(
        &mut self,
        caller: ProcessId,
        worker: ProcessId,
        obituary: Obituary,
    ) {
        self.far_calls.left |= self.far_calls.channels.remove(&(caller, worker));
        self.tell(Told::WorkerGone { caller, worker, obituary });
    }

    /// What the carrier says of calls, and for other deciders.
    pub(crate) fn hear_of_calls(&mut self, word: Word) {
        match word {
            Word::Peer { from, cover, message } => {
                self.handle(Event::Peer { from, cover, message });
            }
            Word::Member { entry, index } => {
                if let Some(store) = self.control.table() {
                    self.node.read_wills(&entry, store);
                }
                self.handle(Event::Member { entry, index });
            }
            Word::Passing { ticket, frame } => {
                if frame.arrived.is_none() {
                    // REF-1, REF-3: what it said before it wrote the frame.
                    self.read_from(if frame.is_reply { frame.worker } else { frame.caller });
                }
                self.handle(Event::Passing { ticket, frame });
            }
            Word::Ended { caller, worker, unstarted, obituary } => {
                self.far_calls.channels.remove(&(caller, worker));
                self.handle(Event::ChannelEnded { caller, worker, unstarted, obituary });
            }
            Word::Revoked { caller, worker, seqs, kept } => {
                self.handle(Event::CallsRevoked { caller, worker, seqs, kept });
            }
            Word::Broke { process, what } => self.handle(Event::Broke { process, what }),
            Word::Drained { n } => {
                if self.far_calls.drains_for == Some(n) {
                    self.far_calls.drains_for = None;
                    self.finish_sweep();
                }
            }
            Word::Verdict { .. }
            | Word::Fenced { .. }
            | Word::HeadSilent { .. }
            | Word::Head { .. }
            | Word::HeadHeard
            | Word::Behind { .. }
            | Word::Unreached { .. }
            | Word::Reached { .. }
            | Word::Over => {
                unreachable!("that is about members")
            }
        }
    }

    /// REF-5: what lies in the rings of far channels is part of it. It goes on when the carrier has said what that names.
    pub(crate) fn sweep(&mut self) {
        self.handle(Event::SweepBegins);
        let nothing = self.far_calls.channels.is_empty() && !self.far_calls.left;
        if nothing || self.carrier.is_none() {
            return self.finish_sweep();
        }
        self.far_calls.left = false;
        self.far_calls.drains += 1;
        let n = self.far_calls.drains;
        self.far_calls.drains_for = Some(n);
        self.tell(Told::Drain { n });
    }

    fn finish_sweep(&mut self) {
        let ready = self.poller.wait(Some(Duration::ZERO)).expect("epoll waits");
        self.now = clock();
        self.handle_ready(ready, Amount::WhatLies);
        self.handle(Event::Swept);
    }
}
