//! A worker process: its main thread takes calls from the rings, runs them, replies.
//!
//! ```text
//!   idle --call--> run --reply--> idle          tasks; methods of an actor with one call at a time
//!   idle --RunActor--> construct --> idle       from then on this process is that actor
//!   idle --call--> hand to `hoplo._worker.ActorRuntime` --> idle      threaded actors
//!   async actors: `serve_loop`, the event loop takes the calls (see `event_loop`)
//!   idle --Exit, retired, exit_actor, sys.exit--> gone
//! ```
//!
//! An actor that leaves (see `leaving`) goes on with its loop until the calls that run have replied.
//!
//! While calls are there nothing detaches from the interpreter but the user's own code.
//!
//! Budget of a task that returns its int argument, in instructions as callgrind counts them, all on
//! this thread: 290 take, 1,050 around it (what runs is noted for cancellation and lists, GPUs, clock),
//! 390 arguments, 550 call, 790 result, 820 reply: 3,900 in all.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_base::bundles::whole_cpus;
use hoplo_base::{FunctionId, Map, TaskId};
use hoplo_client::{
    Client, ConnectError, Hooks, IncomingCall, Nudge, Patience, Room, RunningCall, Work,
};
use hoplo_folders::Wait;
use hoplo_wire::call::{CallHeader, CallKind, CallView};
use hoplo_wire::node::{ACTOR_MOVES, ActorSpec, Replay, Role};
use hoplo_wire::{Failure, FailureKind};
use pyo3::exceptions::PySystemExit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::args::{self, ArgsError, WhenDelayed};
use crate::calls::{Fault, Invocation};
use crate::current::{self, ActorSelf};
use crate::errors;
use crate::event_loop::{End, Inlet, Turn};
use crate::exits::{actor_left, exit_status, is_actor_exit};
use crate::exported;
use crate::gpus::Gpus;
use crate::hooks;
use crate::instance::{Actor, Kept, Manner};
use crate::interface::{Interface, unnamed};
use crate::leaving::{self, After, Outlook};
use crate::lines;
use crate::logged;
use crate::options;
use crate::packages::Packages;
use crate::python::Import;
use crate::running;
use crate::session::{self, Session};
use crate::values::scratch;

/// Serves tasks from the daemon at the other end of `fd` until it closes; the exit status.
#[pyfunction]
#[pyo3(signature = (fd, runtime_env=None))]
pub(crate) fn worker_main(py: Python<'_>, fd: i32, runtime_env: Option<&str>) -> PyResult<i32> {
    static PREPARE: Import = Import::new("hoplo._worker", "prepare");
    static SET_UP: Import = Import::new("hoplo._worker", "set_up");
    // SAFETY: the zygote hands the socket over to this function alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    current::remember_main_thread();
    PREPARE.get(py)?.call0()?;
    let connected = py.detach(|| {
        let (hooks, mut wait) = (Box::new(WorkerHooks), Wait::for_ever());
        Client::connect(socket, Role::Worker, None, hooks, &mut wait)
    });
    let client = match connected {
        Ok(client) => client,
        // Nobody wants it any more, so nobody needs to hear of it.
        Err(ConnectError::ToldToEnd(_) | ConnectError::Closed) => return Ok(0),
        Err(error) => return Err(errors::connect_error(py, &error)),
    };
    let mut job = client.welcome().config.clone();
    // What this process was forked with is the job's and, over it, that of what it runs.
    job.env =
        runtime_env.map(|json| options::runtime_env(py, json)).transpose()?.unwrap_or_default();
    if std::env::var("HOPLO_TASK_EVENTS").is_ok_and(|value| value == "off") {
        client.tell_no_runs();
    }
    let session = Arc::new(Session::new(client, true, job));
    session::enter(Arc::clone(&session));
    SET_UP.get(py)?.call0()?;
    let gpus = Gpus::of_node(py, &session)?;
    let packages = Packages::of(runtime_env);
    let mut worker =
        Worker { session, functions: Map::default(), actor: None, gpus, cpus: 1, packages };
    let status = worker.serve(py)?;
    if !worker.session.is_ours() {
        return Ok(status); // a forked child of a task: the rest is its parent's
    }
    if let Some(actor) = &worker.actor {
        actor.runtime.bind(py).call_method0(intern!(py, "stop"))?;
    }
    scratch::make_private();
    session::leave();
    py.detach(|| worker.session.client.close());
    Ok(status)
}

struct Worker {
    session: Arc<Session>,
    functions: Map<FunctionId, Function>,
    actor: Option<Actor>,
    gpus: Gpus,
    /// Whole ones of what runs here, as libraries were told last (`hoplo._threads`).
    cpus: u32,
    /// Packages that the environment names, until they are unpacked.
    packages: Packages,
}

struct Function {
    target: Py<PyAny>,
    name: Arc<str>,
    calls: u32,
}

impl Worker {
    fn serve(&mut self, py: Python<'_>) -> PyResult<i32> {
        loop {
            let finishes = match leaving::outlook() {
                Outlook::Leaves(status) => return Ok(self.exit(status)),
                Outlook::Finishes { until } => Some(until),
                Outlook::Stays => None,
            };
            if let Some(Actor { turn: Some(turn), runtime, .. }) = &self.actor {
                let end = serve_loop(runtime.bind(py), turn.bind(py).get());
                return Ok(match end {
                    End::Left(status) => self.exit(status),
                    End::Ordered => 0,
                });
            }
            let client = &self.session.client;
            let work = match (client.next_work(), finishes) {
                (Some(work), _) => work,
                (None, None) => match self.checkpoint_due_at() {
                    None => py.detach(|| client.wait_work()),
                    due => {
                        let patience = Patience { takes: true, spins: true, deadline: due };
                        match py.detach(|| client.wait_turn(patience, &Nudge::default())) {
                            Some(work) => work,
                            None => {
                                self.checkpoint(py);
                                continue;
                            }
                        }
                    }
                },
                (None, Some(deadline)) => {
                    let patience = Patience { takes: true, spins: false, deadline };
                    match py.detach(|| client.wait_turn(patience, &Nudge::default())) {
                        Some(work) => work,
                        None => continue,
                    }
                }
            };
            let after = match work {
                Work::Call(call) => match &self.actor {
                    None => self.task(py, call),
                    Some(Actor { manner: Manner::Inline, .. }) => self.method(py, call),
                    Some(Actor { manner: Manner::Logged, .. }) => self.logged_method(py, call),
                    Some(Actor { manner: Manner::Threads, .. }) => self.submit(py, call),
                },
                Work::RunActor { spec, incarnation, gpus, replay } => {
                    self.become_actor(py, spec, incarnation, &gpus, replay)
                }
                Work::Interrupted => {
                    // Nothing runs here: a late interrupt is dropped by its handler.
                    if let Err(error) = py.check_signals() {
                        error.write_unraisable(py, None);
                    }
                    After::GoOn
                }
                Work::Exit { reason } => {
                    if reason == ACTOR_MOVES {
                        self.checkpoint_what_ran(py);
                    }
                    return Ok(0);
                }
            };
            match after {
                After::GoOn => {}
                After::Exit(status) => return Ok(status),
                After::ActorExit => return Ok(self.exit(0)),
            }
        }
    }

    /// The daemon hears first that an actor leaves on its own will: it is not started again.
    fn exit(&self, status: i32) -> i32 {
        if let Some(actor) = current::actor()
            && status == 0
            && self.session.is_ours()
        {
            self.session.client.actor_exit(actor.spec.actor);
        }
        status
    }

    fn task(&mut self, py: Python<'_>, call: IncomingCall) -> After {
        let session = Arc::clone(&self.session);
        let Some(mut call) = Invocation::of(session, call, |header| {
            self.functions.get(&header.function).map_or_else(unnamed, |one| Arc::clone(&one.name))
        }) else {
            return After::GoOn;
        };
        // Before the function is unpickled: what it imports may look for GPUs, and for how many threads to start.
        let (gpus, cpus) = call.view().granted();
        if let Err(error) = self.grant(py, gpus, cpus) {
            return call.fail(py, Fault::Raised(error));
        }
        let function = match self.function(py, &call.header) {
            Ok(function) => function,
            Err(fault) => return call.fail(py, fault),
        };
        let target = function.target.clone_ref(py);
        call.name = Arc::clone(&function.name);
        function.calls += 1;
        let retires = call.header.max_calls > 0 && function.calls >= call.header.max_calls;
        if retires {
            call.retire();
        }
        current::set_main(Some(call.running(py, true)));
        self.session.client.set_running(Some(call.task()));
        // A cancellation after this look finds the task in `MAIN`.
        let after = if is_cancelled(&call) {
            call.end_cancelled(py);
            After::GoOn
        } else {
            scratch::begin(py, &self.session);
            call.run(py, target.bind(py))
        };
        current::set_main(None);
        self.session.client.set_running(None);
        if retires {
            self.session.client.retire("max_calls");
        }
        after
    }

    fn grant(&mut self, py: Python<'_>, gpus: Vec<u32>, cpus: u32) -> PyResult<()> {
        static USE: Import = Import::new("hoplo._threads", "use");
        self.gpus.grant(py, gpus)?;
        if cpus != self.cpus {
            USE.get(py)?.call1((cpus,))?;
            self.cpus = cpus;
        }
        Ok(())
    }

    fn function(&mut self, py: Python<'_>, call: &CallHeader) -> Result<&mut Function, Fault> {
        let id = call.function;
        // Not an entry: the borrow would reach over the fetch.
        if !self.functions.contains_key(&id) {
            self.packages.unpack(py, &self.session).map_err(Fault::Argument)?;
            let target = exported::fetch(py, &self.session, id, Some((call.job, call.task.owner)))?;
            let name = target
                .getattr(intern!(py, "__qualname__"))
                .or_else(|_| target.getattr(intern!(py, "__name__")))
                .and_then(|name| name.extract::<String>())
                .unwrap_or_else(|_| "a function".to_string());
            let name: Arc<str> = exported::short_name(&name).as_ref().into();
            lines::entitle(&name);
            let function = Function { target: target.unbind(), name, calls: 0 };
            self.functions.insert(id, function);
        }
        Ok(self.functions.get_mut(&id).expect("it was inserted"))
    }

    fn method(&mut self, py: Python<'_>, call: IncomingCall) -> After {
        let actor = self.actor.as_mut().expect("only an actor gets method calls");
        let session = Arc::clone(&self.session);
        let Some(call) = Invocation::of(session, call, |header| actor.name_of(header.function))
        else {
            return After::GoOn;
        };
        if is_cancelled(&call) {
            call.end_cancelled(py);
            return After::GoOn;
        }
        let method = match actor.method(py, call.header.function) {
            Ok(method) => method,
            Err(error) => return call.fail(py, Fault::Raised(error)),
        };
        current::set_main(Some(call.running(py, true)));
        self.session.client.set_running(Some(call.task()));
        let after = call.run(py, &method);
        current::set_main(None);
        self.session.client.set_running(None);
        after
    }

    /// When an actor that has no work makes a checkpoint of what it did.
    fn checkpoint_due_at(&self) -> Option<Instant> {
        match &self.actor {
            Some(Actor { manner: Manner::Logged, .. }) => self.session.client.checkpoint_due_at(),
            _ => None,
        }
    }

    fn checkpoint(&mut self, py: Python<'_>) {
        if let Some(actor) = &mut self.actor {
            actor.try_checkpoint(py, &self.session);
        }
    }

    /// So that none of it runs again where the actor goes on.
    fn checkpoint_what_ran(&mut self, py: Python<'_>) {
        let client = &self.session.client;
        let is_logged = matches!(&self.actor, Some(Actor { manner: Manner::Logged, .. }));
        if is_logged && client.ask_for_checkpoint() && client.log_room() != Room::Enough {
            self.checkpoint(py);
        }
    }

    fn logged_method(&mut self, py: Python<'_>, call: IncomingCall) -> After {
        let actor = self.actor.as_mut().expect("only an actor gets method calls");
        let session = Arc::clone(&self.session);
        let Some(call) =
            Invocation::of(Arc::clone(&session), call, |header| actor.name_of(header.function))
        else {
            return After::GoOn;
        };
        if is_cancelled(&call) {
            call.end_cancelled(py);
            return After::GoOn;
        }
        let method = match actor.method(py, call.header.function) {
            Ok(method) => method,
            Err(error) => return call.fail(py, Fault::Raised(error)),
        };
        current::set_main(Some(call.running(py, true)));
        session.client.set_running(Some(call.task()));
        let after = actor.logged_call(py, &session, &call, &method);
        current::set_main(None);
        session.client.set_running(None);
        after
    }

    /// Hands this call, and those that came with it, to the actor's runtime.
    fn submit(&mut self, py: Python<'_>, first: IncomingCall) -> After {
        /// Enough that the hand-over costs little, and few enough that the first does not wait.
        const BATCH_MAX: usize = 64;
        let calls = PyList::empty(py);
        let mut next = Some(first);
        let mut after = After::GoOn;
        let actor = self.actor.as_ref().expect("only an actor gets method calls");
        while let Some(call) = next.take() {
            let enlisted = actor.inlet.call(py, call).and_then(|call| match call {
                Some(call) if leaving::outlook() != Outlook::Stays => {
                    call.refuse(py);
                    Ok(())
                }
                Some(call) => calls.append(call),
                None => Ok(()),
            });
            if let Err(error) = enlisted {
                error.write_unraisable(py, None);
            }
            if calls.len() >= BATCH_MAX {
                break;
            }
            match self.session.client.next_work() {
                Some(Work::Call(call)) => next = Some(call),
                Some(Work::Exit { .. }) => after = After::Exit(0),
                Some(Work::RunActor { .. } | Work::Interrupted) | None => {}
            }
        }
        let submitted = actor.runtime.bind(py).call_method1(intern!(py, "submit"), (calls,));
        if let Err(error) = submitted {
            error.write_unraisable(py, None);
        }
        after
    }

    fn become_actor(
        &mut self,
        py: Python<'_>,
        spec: Box<ActorSpec>,
        incarnation: u32,
        gpus: &[u32],
        replay: Option<Box<Replay>>,
    ) -> After {
        let actor = spec.actor;
        let (mut ends, mut what) = (None, "the constructor of");
        scratch::end();
        self.session.client.set_title(&spec.class_name);
        if let Err(failure) = self.packages.unpack(py, &self.session) {
            self.session.client.actor_started(actor, incarnation, Err(failure));
            return After::Exit(0);
        }
        let granted = self.grant(py, gpus.to_vec(), whole_cpus(&spec.held));
        let started = granted.map_err(ArgsError::from).and_then(|()| {
            let interface = Interface::read(&PyBytes::new(py, &spec.handle))?;
            let known = ActorSelf { spec, incarnation, is_async: interface.is_async };
            let known = current::become_actor(known);
            let mut made = self.construct(py, known, &interface)?;
            if let Some(replay) = &replay {
                let client = &self.session.client;
                client.begin_journal(&known.spec, incarnation, replay.checkpoint.as_ref());
                made.manner = Manner::Logged;
                what = "restore() of";
                logged::restore(py, &self.session, &mut made, replay)?;
                what = "the replay of calls of";
                ends = logged::replay(py, &self.session, &mut made, replay)?;
            }
            Ok(made)
        });
        if let Some(ends) = ends {
            return ends; // a call that ended it before has ended it again
        }
        let result = match started {
            Ok(actor) => {
                if let Some(title) = actor.title(py) {
                    self.session.client.set_title(&title);
                }
                self.actor = Some(actor);
                Ok(())
            }
            Err(error) => Err(construction_failure(py, what, error)),
        };
        let after = if result.is_ok() { After::GoOn } else { After::Exit(0) };
        self.session.client.actor_started(actor, incarnation, result);
        after
    }

    fn construct(
        &self,
        py: Python<'_>,
        actor: &'static ActorSelf,
        interface: &Arc<Interface>,
    ) -> Result<Actor, ArgsError> {
        static RUNTIME: Import = Import::new("hoplo._worker", "ActorRuntime");
        let call = CallView::parse(&actor.spec.frame).map_err(errors::malformed)?;
        if call.header.kind != CallKind::Create {
            return Err(errors::malformed("an actor's frame is no constructor call").into());
        }
        let CallHeader { function, job, task, .. } = call.header;
        let class = exported::fetch(py, &self.session, function, Some((job, task.owner)))?;
        let groups = PyDict::new(py);
        for (name, limit) in &interface.groups {
            groups.set_item(name, limit)?;
        }
        let concurrency = match interface.max_concurrency {
            0 if interface.is_async => 1000,
            0 => 1,
            limit => limit,
        };
        let inlet = Arc::new(Inlet {
            session: Arc::clone(&self.session),
            class_name: actor.spec.class_name.clone(),
            interface: Arc::clone(interface),
        });
        let turn = interface.is_async.then(|| Turn::new(Arc::clone(&inlet)));
        let turn = turn.map(|turn| Py::new(py, turn)).transpose()?;
        let parts = (class, concurrency, groups, turn.as_ref());
        let runtime = RUNTIME.get(py)?.call1(parts)?;
        hooks::remember_runtime(py, &runtime);
        let (args, kwargs) = args::decode_args(py, &self.session, &call, WhenDelayed::Wait)?;
        let kwargs = kwargs.unwrap_or_else(|| PyDict::new(py));
        current::set_main(Some(current::Running {
            task: call.header.task,
            name: format!("{}.__init__", actor.spec.class_name).into(),
            attempt: actor.incarnation,
            given_name: None,
            interruptible: false,
            since: current::coarse_now(),
        }));
        let constructed = runtime.call_method1(intern!(py, "construct"), (args, kwargs));
        current::set_main(None);
        constructed?;
        Ok(Actor {
            inlet,
            manner: match runtime.getattr(intern!(py, "inline"))?.extract()? {
                true => Manner::Inline,
                false => Manner::Threads,
            },
            kept: Kept::default(),
            runtime: runtime.unbind(),
            turn,
            methods: Map::default(),
        })
    }
}

impl Actor {
    /// What its instance calls itself, if its class says how.
    fn title(&self, py: Python<'_>) -> Option<String> {
        let title = self.runtime.bind(py).call_method0(intern!(py, "title"));
        title.and_then(|title| title.extract()).unwrap_or(None)
    }
}

/// Runs the event loop of an async actor until the actor ends.
fn serve_loop(runtime: &Bound<'_, PyAny>, turn: &Turn) -> End {
    let py = runtime.py();
    loop {
        let served = runtime.call_method0(intern!(py, "serve"));
        if let Some(end) = turn.end() {
            return end;
        }
        match served {
            Ok(_) => {} // the user's code stopped the loop: only the actor's end ends it
            Err(error) if error.is_instance_of::<PySystemExit>(py) => {
                return End::Left(exit_status(py, &error)); // by a task of the user's own
            }
            Err(error) => error.write_unraisable(py, Some(runtime)),
        }
    }
}

fn is_cancelled(call: &Invocation) -> bool {
    current::any_cancelled() && call.is_cancelled()
}

fn construction_failure(py: Python<'_>, what: &str, error: ArgsError) -> Failure {
    let name = current::actor().map_or("an actor", |actor| &actor.spec.class_name);
    let error = match error {
        ArgsError::Failed(failure) => errors::raised(py, &failure, None),
        ArgsError::Delayed => unreachable!("a constructor waits for its arguments"),
        ArgsError::Raised(error) => error,
    };
    if is_actor_exit(py, &error) {
        return actor_left("left by exit_actor() in its constructor");
    }
    let text = error
        .value(py)
        .getattr(intern!(py, "_text"))
        .and_then(|text| text.extract::<String>())
        .or_else(|_| traceback(py, &error))
        .unwrap_or_else(|_| error.to_string());
    let text = format!("{what} {name} raised an exception:\n\n{text}");
    // Nobody would hold refs in it once this worker has left.
    let (cause, _) = errors::encode_with_refs(&error, py, &format!("{name}.__init__"), 0);
    Failure::new(FailureKind::ActorDied, text).caused_by(cause.payload)
}

fn traceback(py: Python<'_>, error: &PyErr) -> PyResult<String> {
    static FORMAT: Import = Import::new("hoplo._errors", "_traceback_text");
    FORMAT.get(py)?.call1((errors::with_traceback(py, error),))?.extract()
}

struct WorkerHooks;

impl Hooks for WorkerHooks {
    fn output(
        &self,
        _pid: Option<u32>,
        _title: &str,
        _address: Option<&str>,
        _stderr: bool,
        _lines: &[String],
    ) {
    }

    fn cancel(&self, task: TaskId) {
        if current::interrupt(task) {
            return;
        }
        hooks::cancel_in_actor(task);
    }

    fn warn(&self, line: &str) {
        eprintln!("hoplo: {line}");
    }

    fn exit(&self, _reason: &str) {
        // SAFETY: no preconditions; the process ends here, whatever its other threads do.
        unsafe { libc::_exit(0) }
    }

    fn fail(&self, reason: &str) {
        self.warn(reason);
        // SAFETY: as above.
        unsafe { libc::_exit(1) }
    }

    fn running(&self) -> Vec<RunningCall> {
        running::calls()
    }

    fn begun(&self) -> Option<Vec<(TaskId, Duration)>> {
        running::begun()
    }
}
