//! Who comes, and how it is welcomed.

use std::sync::Arc;

use hoplo_base::ProcessId;
use hoplo_base::limits::SLOTS_GRANT;
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::node::{JobConfig, Role, ToClient, ToNode, Welcome};

use super::process::{Birth, Kind, Process, Stage};
use super::{Effect, Node};
use crate::objects;
use crate::sched::workers;

/// The program's; all processes of a node are of one.
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Node {
    pub(super) fn on_knock(&mut self, stranger: u64, pid: u32, message: ToNode) {
        let ToNode::Hello { protocol, version, pid: own_word, role } = message else {
            return self.turn_away(stranger, "you spoke before you said hello".to_string());
        };
        if let Some(reason) = other_version(protocol, &version) {
            return self.turn_away(stranger, reason);
        }
        // 0 is a process of another pid namespace.
        let pid = if pid == 0 { own_word } else { pid };
        match role {
            Role::Driver if self.stopping => {
                self.turn_away(stranger, "the node stops".to_string());
            }
            Role::Driver if self.drains() => {
                let reason = "this node is being drained: use another one";
                self.turn_away(stranger, reason.to_string());
            }
            Role::Driver => self.out.push(Effect::Introduce { stranger, pid }),
            // Who answers is taken for a node that runs. Its connection closes when the node has ended.
            Role::Tool if self.stopping => {}
            Role::Tool => self.greet_tool(stranger, pid),
            Role::Worker => {
                let reason = "workers say hello on the socket that they were forked with";
                self.turn_away(stranger, reason.to_string());
            }
        }
    }

    /// A driver's second message.
    pub(super) fn on_job(&mut self, stranger: u64, pid: u32, message: ToNode) {
        match message {
            ToNode::Job(_) if self.stopping => {
                self.turn_away(stranger, "the node stops".to_string());
            }
            ToNode::Job(config) => self.greet_driver(stranger, pid, *config),
            _ => self.turn_away(stranger, "you spoke before you told your job".to_string()),
        }
    }

    /// A worker's first message.
    pub(super) fn on_worker_hello(&mut self, from: ProcessId, ticket: u64, message: ToNode) {
        let ToNode::Hello { protocol, version, pid, role } = message else {
            return self.violation(from, "spoke before it said hello");
        };
        if let Some(reason) = other_version(protocol, &version) {
            self.send(from, ToClient::Refused { reason: reason.clone() });
            return self.violation(from, &reason);
        }
        match role {
            Role::Worker => {}
            Role::Driver | Role::Tool => {
                return self.violation(from, "says on a worker's socket that it is none");
            }
        }
        // Its zygote tells it as well, unless it died before it could. 0 is no pid.
        if pid > 0 {
            self.on_forked(from, pid);
        }
        self.process_mut(from).stage = Stage::Greeted;
        self.join(from);
        self.pass_to_pool(workers::Event::Started { ticket, worker: from });
    }

    fn greet_driver(&mut self, stranger: u64, pid: u32, config: JobConfig) {
        let Some(id) = self.new_process(Kind::Driver, Birth::Known { pid }, Stage::Greeted) else {
            return self.turn_away(stranger, self.no_room());
        };
        self.out.push(Effect::Accept { stranger, process: id, kind: Kind::Driver });
        let job = self.begin_job(id, pid, config);
        self.process_mut(id).job = job;
        self.out.push(Effect::Watch { process: id, pid });
        self.join(id);
    }

    fn greet_tool(&mut self, stranger: u64, pid: u32) {
        let Some(count) = self.next_count() else {
            return self.turn_away(stranger, self.no_room());
        };
        let id = ProcessId::new(self.config.node, count, 0);
        let birth = Birth::Known { pid };
        let process = Process::new(id, Kind::Tool, birth, Stage::Greeted, self.now);
        self.processes.insert(id, process);
        self.out.push(Effect::Accept { stranger, process: id, kind: Kind::Tool });
        self.welcome(id, Vec::new());
    }

    fn turn_away(&mut self, stranger: u64, reason: String) {
        self.log(format!("refused: {reason}"));
        self.out.push(Effect::Refuse { stranger, reason });
    }

    fn join(&mut self, process: ProcessId) {
        self.pass_to_objects(objects::Event::ProcessJoined { process, slots: SLOTS_GRANT });
    }

    /// The first message that a process gets.
    pub(super) fn welcome(&mut self, id: ProcessId, slots: Vec<u32>) {
        let Some(process) = self.processes.get(&id) else { return };
        let config = self.jobs.get(&process.job).map(|job| Arc::clone(&job.config));
        let config = config.filter(|_| process.is_worker());
        let welcome = Welcome {
            process: id,
            node: self.config.node,
            job: process.job,
            arena_bytes: self.config.objects.arena_bytes,
            session_dir: self.config.session_dir.clone(),
            config: config.map(|config| (*config).clone()).unwrap_or_default(),
            slots,
            resources: self.scheduler.total().clone(),
            clustered: self.config.clustered,
        };
        self.send(id, ToClient::Welcome(Box::new(welcome)));
    }

    /// Why there can be no more processes here.
    pub(super) fn no_room(&self) -> String {
        if self.next_process > ProcessId::COUNT_MAX {
            return format!(
                "the node has named {} processes, and has no names left: start it again",
                ProcessId::COUNT_MAX
            );
        }
        format!(
            "the node has {} processes already, as many as its open files allow: end some, or start the \
             node with a higher limit (ulimit -n)",
            self.processes.len()
        )
    }

    /// A process in the next free slot; `None` if there is no room for one more.
    pub(super) fn new_process(
        &mut self,
        kind: Kind,
        birth: Birth,
        stage: Stage,
    ) -> Option<ProcessId> {
        if self.processes.len() >= self.config.processes_max || !self.slots.has_room() {
            return None;
        }
        let (node, count) = (self.config.node, self.next_count()?);
        let id = self.slots.take(|slot| ProcessId::new(node, count, slot))?;
        self.processes.insert(id, Process::new(id, kind, birth, stage, self.now));
        Some(id)
    }

    /// Counts do not begin again: an id that was somebody's names nobody else.
    fn next_count(&mut self) -> Option<u32> {
        let count = self.next_process;
        (count <= ProcessId::COUNT_MAX).then(|| {
            self.next_process += 1;
            count
        })
    }

    pub(super) fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        self.processes.get_mut(&id).expect("who speaks or was just found is not buried")
    }
}

fn other_version(protocol: u32, version: &str) -> Option<String> {
    (protocol != PROTOCOL_VERSION || version != VERSION).then(|| {
        format!(
            "this program is hoplo {version} (protocol {protocol}), the node daemon is hoplo \
             {VERSION} (protocol {PROTOCOL_VERSION}): use the same version for both"
        )
    })
}
