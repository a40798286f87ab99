//! Actors and questions to the daemon.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use hoplo_base::ActorId;
use hoplo_base::limits::{ASK_PATIENCE, SIGNALS_PERIOD};
use hoplo_base::limits::{CONTROL_KEY_BYTES_MAX, CONTROL_VALUE_BYTES_MAX};
use hoplo_core::session::CreateActor;
use hoplo_wire::control::Refusal;
use hoplo_wire::node::{ActorCreated, KvOperation, ToClient, ToNode};
use hoplo_wire::{Failure, FailureKind};

use crate::client::Client;
use crate::{ActorCreate, FoundActor};

/// The old value (of a get, or of a put that did not overwrite), and the keys (of a listing).
pub type KvAnswer = (Option<Vec<u8>>, Vec<Vec<u8>>);

/// Asked from time to time by who waits for the daemon, at which signals come: whether it gives up.
pub type GivesUp<'a> = &'a mut dyn FnMut() -> bool;

/// Why a named actor was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoActor {
    /// Its name is taken.
    Refused(String),
    /// Whether it is was not said in time.
    Unsaid(Failure),
    NodeDied(Failure),
    /// By who asked.
    GivenUp,
}

impl Client {
    // ---- actors ----

    /// The caller owns one reference to the handle (`actor.handle()`), which `add_ref`/`drop_ref` count.
    /// Waits for the daemon only for named actors (no GIL).
    pub fn create_actor(
        &self,
        create: ActorCreate,
        gives_up: GivesUp<'_>,
    ) -> Result<FoundActor, NoActor> {
        let asks = !create.name.is_empty();
        let mut answer = None;
        let mut request = 0;
        if asks {
            let (number, receiver) = self.requests.lock().open();
            request = number;
            answer = Some(receiver);
        }
        let handle = create.handle.clone();
        let record = CreateActor {
            class_name: create.class_name,
            name: create.name,
            namespace: create.namespace,
            detached: create.detached,
            get_if_exists: create.get_if_exists,
            shape: create.shape,
            held: create.held,
            max_restarts: create.max_restarts,
            checkpoints: create.checkpoints,
            handle: create.handle,
            request,
        };
        let actor = self
            .with(|session, now, effects| session.create_actor(now, create.call, record, effects));
        let Some(answer) = answer else { return Ok(FoundActor { actor, handle, dead: None }) };
        let result = match answer_of(&answer, None, gives_up) {
            Some(ToClient::ActorCreated { result, .. }) => result,
            _ if self.gone.get().is_none() => {
                self.requests.lock().forget(request);
                self.drop_ref(actor.handle());
                return Err(NoActor::GivenUp);
            }
            _ => {
                self.refused(actor);
                return Err(NoActor::NodeDied(self.died()));
            }
        };
        match result {
            Ok(ActorCreated::New) => Ok(FoundActor { actor, handle, dead: None }),
            Ok(ActorCreated::Existing(found)) => {
                self.with(|session, now, effects| {
                    session.creation_refused(now, actor, effects);
                    session.actor_found(found.actor);
                });
                Ok(FoundActor { actor: found.actor, handle: found.handle, dead: None })
            }
            Ok(ActorCreated::Unsaid { why }) => {
                self.refused(actor);
                Err(NoActor::Unsaid(Failure::new(FailureKind::ActorUnavailable, why)))
            }
            Err(reason) => {
                self.refused(actor);
                Err(NoActor::Refused(reason))
            }
        }
    }

    fn refused(&self, actor: ActorId) {
        self.with(|session, now, effects| session.creation_refused(now, actor, effects));
    }

    /// Waits for the daemon (no GIL).
    pub fn lookup_actor(
        &self,
        namespace: &str,
        name: &str,
        gives_up: GivesUp<'_>,
    ) -> Option<FoundActor> {
        let (namespace, name) = (namespace.to_string(), name.to_string());
        let answer = self.ask(Some(ASK_PATIENCE), gives_up, |request| ToNode::ActorLookup {
            request,
            namespace,
            name,
        });
        let Some(ToClient::ActorFound { found: Some(found), .. }) = answer else { return None };
        if found.dead.is_none() {
            self.core.lock().session.actor_found(found.actor);
        }
        Some(FoundActor { actor: found.actor, handle: found.handle, dead: found.dead })
    }

    pub fn kill_actor(&self, actor: ActorId, no_restart: bool) {
        self.with(|session, now, effects| match no_restart {
            true => session.kill_actor(now, actor, effects),
            false => session.end_worker_of(actor, effects),
        });
    }

    // ---- asking the daemon (all wait: no GIL) ----

    pub fn query(
        &self,
        kind: &str,
        argument: &str,
        timeout: Duration,
        gives_up: GivesUp<'_>,
    ) -> Result<String, String> {
        let (json, missing) = self.query_parts(kind, argument, timeout, gives_up)?;
        missing.iter().for_each(|line| self.hooks.warn(line));
        Ok(json)
    }

    /// The answer, and what is missing in it: a sentence for each node that did not answer.
    pub fn query_parts(
        &self,
        kind: &str,
        argument: &str,
        timeout: Duration,
        gives_up: GivesUp<'_>,
    ) -> Result<(String, Vec<String>), String> {
        let question = ToNode::question(kind, argument)?;
        let answer = self.ask(Some(timeout), gives_up, question);
        match answer {
            Some(ToClient::Answer { result, missing, .. }) => Ok((result?, missing)),
            _ if self.gone.get().is_some() => Err(self.died().text()),
            _ => Err(format!("the node daemon did not answer within {timeout:?}")),
        }
    }

    /// The old value (Get, Put without overwrite), or the keys.
    pub fn kv(
        &self,
        namespace: &str,
        operation: KvOperation,
        gives_up: GivesUp<'_>,
    ) -> Result<KvAnswer, Failure> {
        if let Some(refusal) = too_long(&operation) {
            return Err(Failure::new(FailureKind::StoreFull, refusal.to_string()));
        }
        let namespace = namespace.to_string();
        let message = |request| ToNode::Kv { request, namespace, operation };
        let answer = self.ask(Some(ASK_PATIENCE), gives_up, message);
        match answer {
            Some(ToClient::KvAnswer { refused: Some(why), .. }) => {
                Err(Failure::new(FailureKind::StoreFull, why))
            }
            Some(ToClient::KvAnswer { value, keys, .. }) => Ok((value, keys)),
            _ => Err(self.died()),
        }
    }

    /// `None`: the daemon is gone, the time is up, or the asker gave up.
    pub(crate) fn ask(
        &self,
        timeout: Option<Duration>,
        gives_up: GivesUp<'_>,
        message: impl FnOnce(u64) -> ToNode,
    ) -> Option<ToClient> {
        self.ask_until(timeout, gives_up, message, |_| None)
    }

    /// The same; without an answer the daemon is told `given_up`.
    pub(crate) fn ask_until(
        &self,
        timeout: Option<Duration>,
        gives_up: GivesUp<'_>,
        message: impl FnOnce(u64) -> ToNode,
        given_up: impl FnOnce(u64) -> Option<ToNode>,
    ) -> Option<ToClient> {
        let (request, receiver): (u64, Receiver<ToClient>) = self.requests.lock().open();
        self.say(&message(request));
        let answer = answer_of(&receiver, timeout, gives_up);
        if answer.is_none() {
            self.requests.lock().forget(request);
            if let Some(message) = given_up(request) {
                self.say(&message);
            }
        }
        answer
    }

    /// Behind all that was decided before.
    pub(crate) fn say(&self, message: &ToNode) {
        let mut core = self.core.lock();
        let core = &mut *core;
        core.session.flush(&mut core.effects);
        self.carry_out(core);
        core.writer.send(message);
    }

    pub(crate) fn died(&self) -> Failure {
        self.gone.get().cloned().unwrap_or_else(|| {
            Failure::new(FailureKind::NodeDied, "the connection to the node daemon is closed")
        })
    }
}

/// What the store would refuse is not sent: it might be larger than a message may be.
fn too_long(operation: &KvOperation) -> Option<Refusal> {
    let (key, value) = match operation {
        KvOperation::Get { key } | KvOperation::Delete { key } => (key, None),
        KvOperation::Keys { prefix } => (prefix, None),
        KvOperation::Put { key, value, overwrite: _ } => (key, Some(value)),
    };
    let value = value.map_or(0, |value| value.len());
    if key.len() > CONTROL_KEY_BYTES_MAX {
        let (bytes, max) = (key.len() as u64, CONTROL_KEY_BYTES_MAX as u64);
        return Some(Refusal::KeyTooLong { bytes, max });
    }
    let (bytes, max) = (value as u64, CONTROL_VALUE_BYTES_MAX as u64);
    (bytes > max).then_some(Refusal::ValueTooLong { bytes, max })
}

/// `None`: nobody will answer, the time is up, or the asker gave up.
pub(crate) fn answer_of<T>(
    receiver: &Receiver<T>,
    timeout: Option<Duration>,
    gives_up: GivesUp<'_>,
) -> Option<T> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match receiver.recv_timeout(left.map_or(SIGNALS_PERIOD, |left| left.min(SIGNALS_PERIOD))) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                if gives_up() || left.is_some_and(|left| left.is_zero()) {
                    return None;
                }
            }
        }
    }
}
