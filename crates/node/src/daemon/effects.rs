//! Carrying out what the node decides: one arm an effect.

use hoplo_base::limits::{DRIVER_UNREAD_BYTES_MAX, RETURN_MEMORY_AFTER};
use hoplo_core::node::{Effect, Event, Kind};
use hoplo_wire::node::ToClient;
use rustix::process::Pid;

use crate::daemon::{Daemon, Timer};
use crate::{journal, machine};

impl Daemon {
    pub(crate) fn carry_out(&mut self, effect: Effect) {
        match effect {
            // Of another node's workers: their daemon cannot see whether the driver reads.
            Effect::Send { to, message: ToClient::Output { .. } }
                if self.unsent_bytes(to) > DRIVER_UNREAD_BYTES_MAX => {}
            Effect::Send { to, message } => self.send(to, &message),
            Effect::Introduce { stranger, pid } => self.introduced(stranger, pid),
            Effect::Accept { stranger, process, kind } => {
                self.connection_is_of(stranger, process, kind);
            }
            Effect::Refuse { stranger, reason } => {
                self.violations += 1;
                self.refuse(stranger, reason);
            }
            Effect::HangUp { process } => self.part_with(process),
            Effect::Fork { process, config, env } => self.fork(process, &config, &env),
            Effect::MakeEnvironment { ticket, python } => self.make_environment(ticket, python),
            Effect::StopMaking { ticket } => self.environments.stop(ticket),
            Effect::LetGoEnvironment { python } => self.environments.let_go(&python),
            Effect::Preload { modules } => self.zygote.preload(modules),
            Effect::Watch { process, pid } => self.watch(process, pid),
            Effect::Kill { process, pid } => self.kill(process, pid),
            Effect::Examine { process } => self.examine(process),
            Effect::Bury { process, kind: Kind::Driver, pid: _ } => {
                let node = &self.node;
                let runs = |job| node.job(job).is_some_and(|job| job.ended_us.is_none());
                self.outputs.retain(|job, _| runs(*job));
                if !self.lives.contains_key(&process) {
                    self.answer(Event::Unmapped { process });
                }
            }
            Effect::Bury { process, kind: Kind::Worker | Kind::Tool, pid: _ } => {
                self.workers.remove(&process);
                self.lives.remove(&process);
            }
            Effect::Wipe { process } => self.store.wipe(process.slot() as u16),
            Effect::Sweep => self.sweep_wanted = true,
            Effect::Free { ticket, object: _, location } => {
                let result = self.store.free(location, self.node.live_slots());
                self.answer(Event::Freed { ticket, result });
            }
            Effect::Spill { ticket, object: _, location, place } => {
                let live = self.node.live_slots();
                if let Some(result) = self.store.spill(ticket, location, place, live) {
                    self.answer(Event::Spilled { ticket, result });
                }
            }
            Effect::Restore { ticket, object: _, place, slot } => {
                self.store.restore(ticket, place, slot);
            }
            Effect::Reserve { ticket, place } => self.store.reserve(ticket, place),
            Effect::ForgetSpilled { range, end } => self.store.forget(range, end),
            Effect::ResetSlots { slots } => self.store.reset_slots(&slots),
            Effect::Punch { offset, len } => {
                if let Err(error) = self.store.punch(offset, len) {
                    journal::log(format_args!("memory was not given back: {error}"));
                }
            }
            Effect::ReturnMemory => self.after(RETURN_MEMORY_AFTER, Timer::ReturnMemory),
            Effect::Save { key, value, last } => self.control.save(key, value, last),
            Effect::Forget { key } => self.control.forget(key),
            Effect::Ask { ask, question } => {
                if let Some(answer) = self.control.answer(ask, question) {
                    self.answer(Event::Answered { ask, answer });
                }
            }
            Effect::Measure { processes } => {
                let memory = machine::memory();
                let used = processes.into_iter().map(|(id, pid)| (id, self.family_bytes(pid)));
                let used = used.collect();
                let (total, available) = (memory.total, memory.available);
                self.answer(Event::Measured { total, available, used });
            }
            Effect::Confine { process, pid, limit_bytes } => {
                self.cages.confine(process, pid, limit_bytes);
            }
            Effect::Unconfine { process } => self.cages.release(process),
            Effect::Settle { epoch } => self.control.settle(epoch),
            Effect::SendPeer { to, cover, message } => self.send_peer(to, cover, message),
            Effect::Go { ticket, cover } => self.let_go(ticket, cover),
            Effect::OpenFar { caller, worker } => self.open_far(caller, worker),
            Effect::ServeFar { caller, worker } => self.serve_far(caller, worker),
            Effect::CloseFar { caller, worker } => self.close_far(caller, worker),
            Effect::WorkerGone { caller, worker, obituary } => {
                self.far_worker_gone(caller, worker, obituary);
            }
            Effect::Haul { order } => match &self.haul {
                Some(haul) => haul.order(order),
                None => journal::log(format_args!("there are no other nodes for {order:?}")),
            },
            Effect::RevokeFar { caller, worker, seqs } => self.revoke_far(caller, worker, seqs),
            Effect::Report { to, request, report, others } => {
                self.answer_query(to, request, report, others);
            }
            Effect::ReportPart { node, request, report } => {
                self.write_part(node, request, report);
            }
            Effect::Log { text } => journal::log(text),
            Effect::Note { line } => journal::note(self.now, line),
            Effect::Stopping { why } => {
                // Of a node that goes with its driver nothing is to stay, no log either.
                if self.connections.master.is_none() {
                    journal::log(format_args!("stops: {why}"));
                }
                self.ends_because = why;
            }
            Effect::Stopped => self.stopped = true,
        }
    }

    fn send(&mut self, to: hoplo_base::ProcessId, message: &ToClient) {
        let fds = match message {
            ToClient::Welcome(_) => match self.node.process(to).map(|process| process.kind) {
                Some(Kind::Tool) => None,
                Some(Kind::Driver) => Some(self.descriptors_of_driver(to)),
                Some(Kind::Worker) | None => Some(self.store.descriptors()),
            },
            ToClient::Connected { .. } => {
                let fd = self.connections.hand.take();
                Some(vec![fd.expect("it came with the message that is being handled")].into())
            }
            _ => None,
        };
        self.send_with(to, message, fds);
    }
}

/// A pid that the kernel knows here.
pub(crate) fn known(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
