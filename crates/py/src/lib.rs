//! `hoplo._core`: conversion between Python and the client, and nothing else.
//!
//! ```text
//! values, args     Python values <-> the bytes of frames and objects
//! refs, fetch, get, awaiting, stream      ObjectRef and every way to wait for one
//! exported, remote, options         functions and their `.remote()`
//! actor, interface                 classes, handles, methods
//! worker, calls, leaving, gpus, lines     running calls in a worker
//! current, context what runs now; what the code that runs is told of it
//! running          what they wait for, told to `hoplo why`
//! actor_call, event_loop, coroutines       those of threaded and async actors
//! session, start, fork, hooks, ask       init, shutdown, and the rest of a process's session
//! placement        placement groups, and where a task or actor asks to be
//! orphans          whose children those are whose parent is gone
//! errors, python                   exceptions and imports
//! ```
//!
//! **Invariant:** no Python code runs while a lock of this crate or of the client is held. A lock of this
//! crate is taken attached to the interpreter only, and never across a detach, or by threads that
//! never wait for the interpreter while they hold it. And modules form no circle: `session` and `current` know none of
//! those that use them.

mod actor;
mod actor_call;
mod args;
mod ask;
mod assembled;
mod awaiting;
mod calls;
mod context;
mod coroutines;
mod current;
mod errors;
mod event_loop;
mod exits;
mod exported;
mod fetch;
mod fork;
mod get;
mod gpus;
mod hooks;
mod instance;
mod interface;
mod leaving;
mod lines;
mod logged;
mod missing;
mod options;
mod orphans;
mod packages;
mod placement;
mod python;
mod reduces;
mod refs;
mod remote;
mod running;
mod session;
mod shape;
mod start;
mod stream;
mod values;
mod worker;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::actor::{
        _restore_actor, ActorHandle, ActorMethod, ActorTemplate, current_actor, get_actor, kill,
    };
    #[pymodule_export]
    use super::actor_call::ActorCall;
    #[pymodule_export]
    use super::ask::{kv_delete, kv_get, kv_keys, kv_put, query};
    #[pymodule_export]
    use super::assembled::{assemble, places_of, this_node};
    #[pymodule_export]
    use super::awaiting::Awaiter;
    #[pymodule_export]
    use super::context::{gpu_ids, is_cancelled, runtime_context};
    #[pymodule_export]
    use super::coroutines::CallRun;
    #[pymodule_export]
    use super::current::interrupted;
    #[pymodule_export]
    use super::event_loop::Turn;
    #[pymodule_export]
    use super::fork::_after_fork_in_child;
    #[pymodule_export]
    use super::get::{cancel, get, put, wait};
    #[pymodule_export]
    use super::leaving::{leave_actor, retire, wake_main_thread_by};
    #[pymodule_export]
    use super::lines::note_print;
    #[pymodule_export]
    use super::logged::ask_for_checkpoint;
    #[pymodule_export]
    use super::orphans::adopt_orphans;
    #[pymodule_export]
    use super::packages::{_export_package, _fetch_package, _packs, _session_number};
    #[pymodule_export]
    use super::placement::{create_group, group_ready, remove_group, wait_group};
    #[pymodule_export]
    use super::reduces::{Folded, fold_as_they_come, fold_members, is_elsewhere, is_stored};
    #[pymodule_export]
    use super::refs::{_holds_ref, _restore_ref, ObjectRef};
    #[pymodule_export]
    use super::remote::{_restore_function, RemoteFunction};
    #[pymodule_export]
    use super::start::{init, is_initialized, shutdown};
    #[pymodule_export]
    use super::stream::ObjectRefGenerator;
    #[pymodule_export]
    use super::values::scratch::{_after_fork_in_parent, _before_fork};
    #[pymodule_export]
    use super::values::{_decode, _encode, _try_pickling, StoreBuffer, allocate};
    #[pymodule_export]
    use super::worker::worker_main;

    #[pymodule_init]
    fn set_up(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("RUNTIME_ENV_BYTES_MAX", hoplo_base::limits::RUNTIME_ENV_BYTES_MAX)?;
        module.add("PACKAGE_BYTES_MAX", hoplo_base::limits::PACKAGE_BYTES_MAX)?;
        module.add("PACKAGE_BYTES_WARNED", hoplo_base::limits::PACKAGE_BYTES_WARNED)?;
        module.add("PACKAGE_FILES_MAX", hoplo_base::limits::PACKAGE_FILES_MAX)?;
        module.add("PACKAGES_BYTES_MAX", hoplo_base::limits::PACKAGES_BYTES_MAX)?;
        module.add("NAME_PATIENCE", hoplo_base::limits::NAME_PATIENCE.as_secs_f64())?;
        module.add("INLINE_BYTES_MAX", hoplo_base::limits::INLINE_BYTES_MAX)?;
        module.add("FAILURE_PAYLOAD_BYTES_MAX", hoplo_base::limits::FAILURE_PAYLOAD_BYTES_MAX)?;
        module.delattr("__all__")?; // says no more than the stub
        awaiting::register();
        refs::refuse_values_work(module.py())?;
        fork::register(module)
    }
}
