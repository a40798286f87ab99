//! Every bound of the system in one place, with the relations between them checked at compile time.

use std::time::Duration;

/// A value up to this size travels inside messages and lives in its owner's memory; a larger one
/// goes into the node's object store.
pub const INLINE_BYTES_MAX: usize = 100 * 1024;

/// A value with more refs inside goes into the store however small it is: a reply lists the refs.
pub const INLINE_REFS_MAX: usize = 1000;

/// All arguments of one call that travel inside its frame; what is over goes into the store.
pub const CALL_INLINE_BYTES_MAX: usize = 112 * 1024;

/// Capacity of a call ring and of a reply ring, bytes. A frame takes at most half of it.
pub const RING_BYTES: usize = 256 * 1024;

/// One message on the unix socket to the node daemon (function exports are the largest).
pub const NODE_MESSAGE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Work that an owner keeps queued in one leased worker's ring.
pub const PIPELINE_WORK: Duration = Duration::from_millis(1);

/// Calls in one ring, whatever they cost.
pub const PIPELINE_DEPTH_MAX: usize = 512;

/// Leases of one shape that a process asks for at once.
pub const LEASE_DEMAND_MAX: u32 = 1024;

/// An idle lease goes back after this time even when nobody else asks.
pub const LEASE_IDLE: Duration = Duration::from_millis(500);

/// A lease that others wait for is given back after this time of use.
pub const LEASE_QUANTUM: Duration = Duration::from_millis(50);

/// A worker that waits in `get` for longer than this lends its CPU to the scheduler.
pub const BLOCKED_AFTER: Duration = Duration::from_millis(1);

/// An idle worker beyond the pool's floor exits after this time.
pub const WORKER_IDLE: Duration = Duration::from_secs(60);

/// Processes (driver, workers, tools) on one node at a time.
pub const PROCESSES_MAX: usize = 4096;

/// Values that one task may return.
pub const RETURNS_MAX: u32 = 1 << 20;

/// Object-state slots handed to a process at once.
pub const SLOTS_GRANT: u32 = 256;

/// An extent is at least this large; larger objects get an extent of their own.
pub const EXTENT_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Objects start at multiples of this (a cache line; Arrow and SIMD code rely on it).
pub const OBJECT_ALIGN: u64 = 64;

/// Warm, free bytes that a process keeps for its next objects before it gives extents back.
pub const WARM_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Warm room that was not used for so long goes back.
pub const WARM_TIME: Duration = Duration::from_secs(10);

/// Notices to the daemon that may wait for company.
pub const NOTICES_BATCH: usize = 64;

/// Last lines of a worker's output that are kept for its obituary.
pub const OBITUARY_LINES: usize = 20;

const _: () = assert!(INLINE_BYTES_MAX + 20 * INLINE_REFS_MAX + 4096 <= RING_BYTES / 2);
const _: () = assert!(CALL_INLINE_BYTES_MAX + 4096 <= RING_BYTES / 2);
const _: () = assert!(PROCESSES_MAX <= 1 << 16);
const _: () = assert!(EXTENT_BYTES_MIN.is_multiple_of(4096) && OBJECT_ALIGN == 64);

/// Replica processes tell coordinators so often that they live.
pub const HEARTBEAT: Duration = Duration::from_millis(250);

/// A process of which nothing was heard for so long is probed; until then it counts as alive.
pub const HEARTBEAT_MISSED: Duration = Duration::from_millis(1000);

/// A coordinator looks so often at what is due; what is urgent comes as an event.
pub const COORDINATOR_LOOKS: Duration = Duration::from_millis(50);

/// A process that was silent for so long leaves its chains without proof of its death.
pub const SUSPECT: Duration = Duration::from_millis(2000);

/// A member whose neighbour finds it silent for so long leaves, though a coordinator can reach it.
pub const ACCUSED: Duration = Duration::from_millis(1500);

/// Who left a chain because a neighbour found it silent does not come back before this time.
pub const SHUNNED: Duration = Duration::from_secs(5);

/// Batches of one client that a shard has not answered.
pub const CONTROL_CLIENT_WINDOW: usize = 64;

/// Updates of several callers travel in one batch up to this many bytes and operations.
pub const CONTROL_CLIENT_BATCH_BYTES: usize = 256 * 1024;
pub const CONTROL_CLIENT_BATCH_OPS: usize = 1000;

/// Bytes of updates to one shard that wait for room in the window.
pub const CONTROL_CLIENT_QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The acting coordinator renews itself so often.
pub const ACTING_RENEW: Duration = Duration::from_millis(1000);

/// Who has seen the acting coordinator not renew for so long acts instead.
pub const ACTING_LEASE: Duration = Duration::from_millis(4000);

/// A coordinator that does not act reads the configuration so often.
pub const CONFIG_WATCH: Duration = Duration::from_millis(500);

/// After the config store could not be reached.
pub const CONFIG_RETRY: Duration = Duration::from_millis(100);

/// All members of a chain are gone: so long the coordinator waits for all to return.
pub const RESTORE_GRACE: Duration = Duration::from_millis(1000);

/// A new cluster waits so long for as many nodes as a chain should have replicas.
pub const FORM_GRACE: Duration = Duration::from_millis(2000);

/// Replica processes that a coordinator knows.
pub const REPLICAS_MAX: usize = 4096;

/// Wishes of operators that are not done yet.
pub const WISHES_MAX: usize = 1024;

const _: () = assert!(HEARTBEAT.as_millis() * 3 < HEARTBEAT_MISSED.as_millis());
const _: () = assert!(ACTING_RENEW.as_millis() * 3 < ACTING_LEASE.as_millis());
const _: () = assert!(HEARTBEAT.as_millis() * 4 <= ACCUSED.as_millis());
