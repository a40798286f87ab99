//! Every bound of the system in one place, with the relations between them checked at compile time.

use std::time::Duration;

/// A value up to this size travels inside messages and lives in its owner's memory; a larger one
/// goes into the node's object store.
pub const INLINE_BYTES_MAX: usize = 100 * 1024;

/// A value with more refs inside goes into the store however small it is: a reply lists the refs.
pub const INLINE_REFS_MAX: usize = 1000;

/// All arguments of one call that travel inside its frame; what is over goes into the store.
pub const CALL_INLINE_BYTES_MAX: usize = 112 * 1024;

/// Arguments up to this size that exceed the above make the call *packed*: all of them go into the store as one
/// object. Larger ones become objects of their own.
pub const PACKED_ARGUMENT_BYTES_MAX: usize = 4 * 1024;

/// Capacity of a call ring and of a reply ring, bytes. A frame takes at most half of it.
pub const RING_BYTES: usize = 256 * 1024;

/// One message of the node daemon to a process.
pub const NODE_MESSAGE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// One message of a driver or worker to its node daemon. The largest list refs, by ten million.
pub const PROCESS_MESSAGE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Messages of all processes to their node daemon that did not come whole yet. Above it the process that has most of
/// them loses its connection.
pub const NODE_UNFINISHED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Connections to a node daemon that did not say yet who they are. One more, and the oldest is closed,
pub const NODE_STRANGERS_MAX: usize = 256;

/// as is who does not say it within this time.
pub const NODE_HELLO_WITHIN: Duration = Duration::from_secs(10);

/// The first message of a process to it: until it came, nobody knows who is at the other end.
pub const HELLO_BYTES_MAX: usize = 4 * 1024;

/// What a driver tells about its program: paths to import from and its runtime environment. They go into one message to
/// the zygote.
pub const JOB_BYTES_MAX: usize = 768 * 1024;

/// The daemon's answer to the greeting. A worker's has its job inside.
pub const WELCOME_BYTES_MAX: usize = 1024 * 1024;

/// One message of the `hoplo` command to the daemon.
pub const TOOL_MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A node daemon that takes no connection, or does not answer to Hello, within this time is stopped or hangs.
pub const NODE_ANSWERS: Duration = Duration::from_secs(10);

/// The same for one that is to start.
pub const NODE_STARTS: Duration = Duration::from_secs(60);

/// What a process has to say to a daemon that does not read: who would add more waits.
pub const UNSENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A table that once had room for more entries than this gives room back when few are left.
pub const TABLE_ROOM_KEPT: usize = 16 * 1024;

/// Few: this part of the room, or less.
pub const TABLE_ROOM_SHARE: usize = 8;

/// A daemon gives free memory back to the system so long after its tables got small: by then most of it is free.
pub const RETURN_MEMORY_AFTER: Duration = Duration::from_secs(1);

/// Lines for the user that wait to be printed; more are counted.
pub const WARNINGS_MAX: usize = 1000;

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

/// The calls that run in an actor beside the one that ends it have so long to reply.
pub const ACTOR_EXIT_GRACE: Duration = Duration::from_secs(5);

/// The main thread of an actor's process has so much longer to end the process in order, as it does unless it runs
/// a call itself. Then the process ends without its exit handlers.
pub const ACTOR_EXIT_ORDERLY: Duration = Duration::from_secs(1);

/// An idle worker beyond the pool's floor exits after this time.
pub const WORKER_IDLE: Duration = Duration::from_secs(60);

/// Processes (driver, workers, tools) on one node at a time.
pub const PROCESSES_MAX: usize = 4096;

/// A `runtime_env` as canonical JSON, merged with those of the job and of the caller.
pub const RUNTIME_ENV_BYTES_MAX: usize = 256 * 1024;

/// What the zygote is told of one worker: its runtime environment, `sys.path`, folder.
pub const ZYGOTE_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Of the timeout of a `get` that was not in time, at most: how long other processes are asked what it waits for.
pub const WHY_LATE_SHARE: f64 = 0.1;

/// The same in seconds, least and most: a program that polls is told what its own process knows.
pub const WHY_LATE_SECONDS: [f64; 2] = [0.02, 1.0];

/// Object-state slots handed to a process at once.
pub const SLOTS_GRANT: u32 = 256;

/// An extent is at least this large; larger objects get an extent of their own.
pub const EXTENT_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Addresses of the arena for each byte that the store may use at a time: room to place things.
pub const ARENA_PER_STORE: u64 = 4;

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

/// A process that was asked to exit has so long before it is killed.
pub const EXIT_GRACE: Duration = Duration::from_millis(200);

/// An idle worker that was asked to exit runs its exit handlers meanwhile.
pub const RETIRE_GRACE: Duration = Duration::from_secs(5);

/// How long processes have to tell what they know: one that is stuck is left out of the answer.
pub const INSPECT_PATIENCE: Duration = Duration::from_secs(1);

/// A head that was killed holds its locks until the kernel is done with it, and one that starts does not listen yet: how
/// long others wait for either.
pub const HEAD_ENDS: Duration = Duration::from_secs(5);

/// A log's folder is locked at the most so long by a process that is gone.
pub const LOG_LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// The zygote tells a worker's exit status within this time after its end was seen.
pub const STATUS_PATIENCE: Duration = Duration::from_millis(100);

/// A worker that closed its connection and does not end is killed after this time.
pub const HANGUP_GRACE: Duration = Duration::from_secs(1);

/// Obituaries that are kept for those who ask too late.
pub const GRAVES_MAX: usize = 1024;

/// So many slots rest before one is taken again: who still rings a dead process's bell wakes nobody new.
/// A slot that was never taken costs a page of the segment, so no more rest than that.
pub const SLOTS_RESTING: usize = 64;

/// Ended jobs that are kept with all they were told.
pub const JOBS_PAST_MAX: usize = 256;

/// Keys of users that one answer holds.
pub const KV_KEYS_MAX: usize = 1 << 20;

/// A task whose result is there within this time after it was shared leaves no row.
pub const LINEAGE_DELAY: Duration = Duration::from_secs(1);

/// What runs with a memory limit is measured so often.
pub const MEMORY_LIMIT_PERIOD: Duration = Duration::from_millis(100);

/// With less than this share of the memory available somebody has to go.
pub const MEMORY_AVAILABLE_MIN_PERCENT: u64 = 5;

/// After a kill the kernel needs time to collect the memory.
pub const MEMORY_KILL_PAUSE: Duration = Duration::from_secs(1);

/// A step in the story of a node: values and frames are long.
pub const STORY_LINE_BYTES_MAX: usize = 240;

const _: () = assert!(INLINE_BYTES_MAX + 20 * INLINE_REFS_MAX + 4096 <= RING_BYTES / 2);
const _: () = assert!(CALL_INLINE_BYTES_MAX + 4096 <= RING_BYTES / 2);
const _: () = assert!(PROCESSES_MAX <= 1 << 16);
const _: () = assert!(JOB_BYTES_MAX + 16 * SLOTS_GRANT as usize + 64 * 1024 <= WELCOME_BYTES_MAX);
const _: () = assert!(2 * RUNTIME_ENV_BYTES_MAX <= ZYGOTE_MESSAGE_BYTES_MAX);
const _: () = assert!(EXTENT_BYTES_MIN.is_multiple_of(4096) && OBJECT_ALIGN == 64);

/// Replica processes tell coordinators so often that they live.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// A process of which nothing was heard for so long is probed; until then it counts as alive.
pub const HEARTBEAT_MISSED: Duration = Duration::from_millis(400);

/// A coordinator looks so often at what is due; what is urgent comes as an event.
pub const COORDINATOR_LOOKS: Duration = Duration::from_millis(50);

/// A process that was silent for so long leaves its chains without proof of its death. With what its neighbours wait
/// before they say so, and what the others wait for its lease, a stopped member holds its chain up for less than a second.
pub const SUSPECT: Duration = Duration::from_millis(350);

/// Who does not answer a probe in this time is silent.
pub const PROBE_WITHIN: Duration = Duration::from_millis(300);

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

/// One message of a peer that did not say yet who it is.
pub const NET_GREETING_BYTES_MAX: usize = 4096;

/// To connect and to say who one is.
pub const NET_OPENS_WITHIN: Duration = Duration::from_secs(2);

/// Connections that were accepted and whose peers did not say yet who they are,
pub const NET_STRANGERS_MAX: usize = 256;

/// of them from one address of which no member of the cluster is known,
pub const NET_STRANGERS_OF_ADDRESS_MAX: usize = 64;

/// and beyond those so many from addresses of members.
pub const NET_STRANGERS_KNOWN_MAX: usize = 64;

/// Who did not say in this time who it is may have to make room for another.
pub const NET_STRANGER_GRACE: Duration = Duration::from_millis(250);

/// Connections accepted in one turn of a loop: who is there is served in between.
pub const NET_ACCEPTS_A_TURN: usize = 32;

/// Messages of all clients of a process that did not come whole yet.
pub const NET_UNFINISHED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Descriptors that connections of others do not get: for logs, for what is dialled, for members.
pub const NET_DESCRIPTORS_KEPT: u64 = 256;

/// One message between members of the control store.
pub const CONTROL_FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One message of a client of the control store: a batch, and what it takes to say it.
pub const CONTROL_CLIENT_FRAME_BYTES_MAX: usize = 17 * 1024 * 1024;

/// A certificate of the cluster's authority, unless it is set otherwise, and the authority itself.
pub const CERTIFICATE_DAYS: u32 = 30;
pub const AUTHORITY_DAYS: u32 = 3650;

/// Clocks of two machines may differ by so much: certificates are valid from that long ago.
pub const CERTIFICATE_CLOCKS: Duration = Duration::from_secs(300);

/// Who runs a process is told that its certificate expires in less than that,
pub const CERTIFICATE_WARNING: Duration = Duration::from_secs(7 * 24 * 3600);

/// so often.
pub const CERTIFICATE_WARNED: Duration = Duration::from_secs(3600);

/// Who leaves so many bytes unread is disconnected.
pub const CONTROL_UNSENT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The acting coordinator renews itself so often.
pub const ACTING_RENEW: Duration = Duration::from_millis(250);

/// Who has seen the acting coordinator not renew for so long acts instead.
pub const ACTING_LEASE: Duration = Duration::from_millis(4000);

/// The same for one that is silent besides, to probes.
pub const ACTING_SILENT: Duration = Duration::from_millis(500);

/// A coordinator that does not act reads the configuration so often.
pub const CONFIG_WATCH: Duration = Duration::from_millis(100);

/// After the config store could not be reached.
pub const CONFIG_RETRY: Duration = Duration::from_millis(100);

/// All members of a chain are gone and one has returned: so long the coordinator waits for the others.
pub const RESTORE_GRACE: Duration = Duration::from_millis(1000);

/// A new cluster waits so long for as many nodes as a chain should have replicas.
pub const FORM_GRACE: Duration = Duration::from_millis(2000);

/// A new cluster gives its shards to the nodes that are there when none has come for so long.
pub const FORM_SETTLE: Duration = Duration::from_millis(400);

/// Replica processes that a coordinator knows.
pub const REPLICAS_MAX: usize = 4096;

/// Wishes of operators that are not done yet.
pub const WISHES_MAX: usize = 1024;

const _: () = assert!(HEARTBEAT.as_millis() * 3 < HEARTBEAT_MISSED.as_millis());
const _: () = assert!(ACTING_RENEW.as_millis() * 3 < ACTING_LEASE.as_millis());
const _: () = assert!(ACTING_RENEW.as_millis() * 2 <= ACTING_SILENT.as_millis());
const _: () = assert!(CONFIG_WATCH.as_millis() < ACTING_RENEW.as_millis());
const _: () = assert!(PROBE_WITHIN.as_millis() < SUSPECT.as_millis());
// What a stopped member costs at most, but for the way of the words.
const _: () = assert!(
    CONTROL_PEER_SILENT.as_millis()
        + SUSPECT.as_millis()
        + COORDINATOR_LOOKS.as_millis()
        + CONTROL_LEASE_WAIT.as_millis()
        < 1000
);
const _: () = assert!(HEARTBEAT.as_millis() * 4 <= ACCUSED.as_millis());
// Who finds no coordinator dials again with its next heartbeat.
const _: () = assert!(HEARTBEAT.as_millis() * 3 / 2 <= FORM_SETTLE.as_millis());

/// A key of the control store.
pub const CONTROL_KEY_BYTES_MAX: usize = 1024;

/// A value of the control store. What may be larger (a pickled function) is put in parts: see
/// `crates/core/src/control/rows.rs`.
pub const CONTROL_VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Operations of one batch.
pub const CONTROL_BATCH_OPS_MAX: usize = 4096;

/// Pickled functions and classes that one job has in the control store. (A large one goes into the object
/// store, and counts with the few bytes that say where.)
pub const JOB_FUNCTION_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Keys and values of one batch together.
pub const CONTROL_BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Batches of one client whose outcomes it did not say it knows.
pub const CONTROL_WINDOW_MAX: u64 = 256;

/// Clients that a shard remembers.
pub const CONTROL_SESSIONS_MAX: usize = 65_536;

/// A session ends when nothing was heard of its client for so long. No client sends a batch again after
/// such a time.
pub const CONTROL_SESSION_IDLE: Duration = Duration::from_secs(3600);

/// Sessions that end with one entry.
pub const CONTROL_SESSIONS_ENDED_AT_ONCE: usize = 1024;

/// What rows, sessions and the way to the cold tier may take, unless it is set otherwise.
pub const CONTROL_MEMORY_BYTES: u64 = 256 * 1024 * 1024;

/// Entries that are not committed yet: the head takes no more.
pub const CONTROL_PENDING_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Applied entries that are kept for subscribers and for a successor that was away for a moment.
pub const CONTROL_RECENT_BYTES: u64 = 16 * 1024 * 1024;

/// Applied entries that are kept for a joining replica; where it is slower than that, its transfer
/// begins again.
pub const CONTROL_JOIN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Entries that are sent to a joining replica before it says that it has them.
pub const CONTROL_JOIN_WINDOW_BYTES: u64 = 8 * 1024 * 1024;

/// A joining replica that lacks no more than this has caught up.
pub const CONTROL_CAUGHT_UP_ENTRIES: u64 = 256;

/// Records in one message to a neighbour: about so many bytes, or one record.
pub const CONTROL_FORWARD_BYTES: u64 = 1024 * 1024;

/// Rows of one chunk: about so many bytes, or one row. Requests wait while a chunk is made, or put in its place.
pub const CONTROL_CHUNK_BYTES: u64 = 256 * 1024;

/// Archived rows of one chunk.
pub const CONTROL_CHUNK_ROWS: u32 = 16_384;

/// Chunks on the way to a joining replica.
pub const CONTROL_CHUNKS_UNDER_WAY: u64 = 2;

/// A page of a scan, and a message with changes: about so many bytes.
pub const CONTROL_PAGE_BYTES: usize = 1024 * 1024;

/// Rows of one page.
pub const CONTROL_PAGE_ROWS_MAX: u32 = 10_000;

/// Queries that wait for a lease or for the cold tier.
pub const CONTROL_QUERIES_MAX: usize = 4096;

/// A query that could not be answered for so long is refused.
pub const CONTROL_QUERY_WAIT: Duration = Duration::from_secs(2);

/// Subscriptions at one replica.
pub const CONTROL_SUBSCRIPTIONS_MAX: usize = 8192;

/// A subscriber hears at least so often how far its cursor moved, if it did.
pub const CONTROL_SUBSCRIPTION_NEWS: Duration = Duration::from_secs(1);

/// So long a tail may answer queries after it asked for leave.
pub const CONTROL_LEASE: Duration = Duration::from_millis(200);

/// So long others wait before they act against a lease: clocks may run apart by a quarter.
pub const CONTROL_LEASE_WAIT: Duration = Duration::from_millis(250);

/// A neighbour that could not be reached, or did not answer, is tried again.
pub const CONTROL_PEER_RETRY: Duration = Duration::from_millis(5);

/// A neighbour that something is expected of and that said nothing for so long is asked whether it is there.
pub const CONTROL_PEER_QUIET: Duration = Duration::from_millis(100);

/// One that then says nothing, either, is reported, and again after each such time.
pub const CONTROL_PEER_SILENT: Duration = Duration::from_millis(250);

/// The log gets a snapshot after so many bytes, or as many as the rows have.
pub const CONTROL_SNAPSHOT_BYTES: u64 = 64 * 1024 * 1024;

/// Archived rows go to the cold tier in flushes of about this size,
pub const CONTROL_COLD_FLUSH_BYTES: u64 = 4 * 1024 * 1024;

/// or after this time.
pub const CONTROL_COLD_FLUSH_AFTER: Duration = Duration::from_millis(50);

/// After a flush that did not work.
pub const CONTROL_COLD_RETRY: Duration = Duration::from_millis(500);

/// Archived rows that did not reach the cold tier yet: a replica acknowledges nothing more.
pub const CONTROL_COLD_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Rows that the head archives with one entry.
pub const CONTROL_ARCHIVE_OPS: usize = 1024;

/// What a row takes besides its key and value: places in the map, counts of the allocator.
pub const CONTROL_ROW_OVERHEAD: usize = 208;

/// What a finished row takes more, besides its key once again.
pub const CONTROL_FINISHED_OVERHEAD: usize = 72;

/// What an entry in memory takes besides its operations.
pub const CONTROL_ENTRY_OVERHEAD: usize = 192;

/// What a session takes besides its outcomes.
pub const CONTROL_SESSION_OVERHEAD: usize = 192;

const _: () = assert!(CONTROL_KEY_BYTES_MAX + CONTROL_VALUE_BYTES_MAX <= CONTROL_BATCH_BYTES_MAX);
const _: () = assert!(JOB_FUNCTION_BYTES_MAX as u64 * 3 <= CONTROL_MEMORY_BYTES);
const _: () = assert!(CONTROL_BATCH_BYTES_MAX as u64 * 2 <= CONTROL_PENDING_BYTES_MAX);
// An operation takes less than 64 bytes besides its key and its value.
const _: () = assert!(
    CONTROL_BATCH_BYTES_MAX + CONTROL_BATCH_OPS_MAX * 64 + 4096 <= CONTROL_CLIENT_FRAME_BYTES_MAX
);
const _: () = assert!(PROCESS_MESSAGE_BYTES_MAX < NODE_UNFINISHED_BYTES_MAX);
const _: () = assert!(CONTROL_CLIENT_FRAME_BYTES_MAX <= CONTROL_FRAME_BYTES_MAX);
const _: () = assert!(CONTROL_CLIENT_FRAME_BYTES_MAX * 4 <= NET_UNFINISHED_BYTES_MAX);
const _: () = assert!(NET_STRANGERS_OF_ADDRESS_MAX < NET_STRANGERS_MAX);
const _: () = assert!(NET_STRANGER_GRACE.as_millis() < NET_OPENS_WITHIN.as_millis());
const _: () = assert!(CONTROL_PENDING_BYTES_MAX <= CONTROL_JOIN_BYTES_MAX);
const _: () =
    assert!(CONTROL_JOIN_WINDOW_BYTES + CONTROL_BATCH_BYTES_MAX as u64 <= CONTROL_JOIN_BYTES_MAX);
const _: () = assert!(CONTROL_LEASE.as_millis() * 5 / 4 <= CONTROL_LEASE_WAIT.as_millis());
const _: () = assert!(CONTROL_LEASE_WAIT.as_millis() < SUSPECT.as_millis());
const _: () = assert!(CONTROL_PEER_QUIET.as_millis() < CONTROL_PEER_SILENT.as_millis());
const _: () = assert!(CONTROL_COLD_FLUSH_BYTES * 4 <= CONTROL_COLD_BYTES_MAX);
const _: () = assert!(CONTROL_ARCHIVE_OPS <= CONTROL_BATCH_OPS_MAX);
const _: () = assert!((CONTROL_PAGE_ROWS_MAX as usize) < u32::MAX as usize);
