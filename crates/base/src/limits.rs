//! Every bound of the system in one place, with the relations between them checked at compile time.
//!
//! A number belongs here if it bounds what others can make large, or make wait: memory that is taken or kept, the bytes
//! of a message, the entries of a queue or a table, tries, and how long somebody waits for somebody else. It stays beside
//! its code if it is part of a format (the size of a header, an offset), follows from another bound, or only tunes one
//! piece of code (how many a loop takes at once, how often it looks, from which size another way is quicker), so that a
//! reader of nothing else could want it.
//!
//! The order: first one node, from what travels (values, messages, connections) and how long somebody waits for a daemon over
//! calls, leases, actors and processes to the object store, folders, what is remembered, and memory. Then control nodes
//! among each other: who lives, clients, connections, certificates, who acts. Last a replica: its rows, its chain and its
//! disk. Each part ends with its relations; those between parts stand in the last one.

use std::time::Duration;

/// A value up to this size travels inside messages and lives in its owner's memory; a larger one
/// goes into the node's object store.
pub const INLINE_BYTES_MAX: usize = 100 * 1024;

/// A value with more refs inside goes into the store however small it is: a reply lists the refs.
pub const INLINE_REFS_MAX: usize = 1000;

/// A user's exception, as it travels: its text, its traceback, and its pickle if there is room. Larger ones are cut.
pub const FAILURE_PAYLOAD_BYTES_MAX: usize = 80 * 1024;

/// The text of any other failure, which may have the user's text or a process's last lines inside. Longer ones are cut.
pub const FAILURE_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Refs inside a value, wherever it lies: the daemon is told of all of them in one message.
pub const VALUE_REFS_MAX: usize = 4_000_000;

/// Refs in the messages that list many: such a message may have those of one value more.
pub const MESSAGE_REFS_MAX: usize = 100_000;

/// What the program shows as the name of a function or class. A longer one is cut.
pub const SHOWN_NAME_BYTES_MAX: usize = 512;

/// What each handle of an actor carries: names and options of its methods, concurrency groups.
pub const ACTOR_INTERFACE_BYTES_MAX: usize = 1024 * 1024;

/// All arguments of one call that travel inside its frame; what is over goes into the store.
pub const CALL_INLINE_BYTES_MAX: usize = 112 * 1024;

/// Arguments up to this size that exceed the above make the call *packed*: all of them go into the store as one
/// object. Larger ones become objects of their own.
pub const PACKED_ARGUMENT_BYTES_MAX: usize = 4 * 1024;

/// Capacity of a call ring and of a reply ring, bytes. A frame takes at most half of it.
pub const RING_BYTES: usize = 256 * 1024;

/// Values of one reply frame; one alone always fits.
pub const REPLY_BYTES_MAX: usize = RING_BYTES / 2 - 1024;

/// Room that a worker keeps for its next reply.
pub const REPLY_BODY_BYTES_KEPT: usize = 16 * 1024;

/// One message of the node daemon to a process.
pub const NODE_MESSAGE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A process that leaves more than this unread does not read: a worker is killed, others lose their connection.
pub const NODE_UNSENT_BYTES_MAX: usize = 2 * NODE_MESSAGE_BYTES_MAX;

/// A driver that leaves so many bytes unread misses lines of its workers; they are in the log files. So does one at another node, if the
/// link to that is so far behind.
pub const DRIVER_UNREAD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One message of a driver or worker to its node daemon. The largest list refs, by ten million.
pub const PROCESS_MESSAGE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Messages of all processes to their node daemon that did not come whole yet. Above it the process that has most of
/// them loses its connection.
pub const NODE_UNFINISHED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes that one connection may bring in one turn of a loop, before others get theirs.
pub const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Room that a buffer of a connection keeps once it is empty,
pub const FRAMES_BYTES_KEPT: usize = 256 * 1024;

/// and that of what a driver or worker has to say to its node daemon.
pub const WRITER_BYTES_KEPT: usize = 1024 * 1024;

/// Descriptors that came to a node daemon before the message that speaks of them.
pub const DESCRIPTORS_WAITING_MAX: usize = 64;

/// Changes of the node table that may be on their way to a node. It gives credit back for half of them at a time. Each of these words costs the
/// head a system call and TLS, and while thousands join every node says them.
pub const NODE_ROWS_ON_THE_WAY: u32 = 3000;

/// A node of which this one did not hear yet is taken for one that joins if it has one of the next so many numbers: more rows are
/// never on their way at once.
pub const NODES_AHEAD_MAX: u32 = 3072;

/// Connections to a node daemon that did not say yet who they are. One more, and the oldest is closed,
pub const NODE_STRANGERS_MAX: usize = 256;

/// as is who does not say it within this time.
pub const NODE_HELLO_WITHIN: Duration = Duration::from_secs(10);

/// While there are neither descriptors nor memory for one more connection, the daemon accepts none for so long.
pub const NODE_ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

/// An answer of the daemon that it gives within its own deadlines: who waits longer asks one that is stopped or stuck.
pub const ASK_PATIENCE: Duration = Duration::from_secs(60);

/// The same for what people ask: the daemon answers after `INSPECT_PATIENCE`, even if some process does not.
pub const QUERY_PATIENCE: Duration = Duration::from_secs(10);

/// Who closes its connection listens so long to the daemon's last words.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// A daemon of a program's own has so long to end once the program has left it; then it is killed.
pub const DAEMON_END_PATIENCE: Duration = Duration::from_secs(5);

/// A thread that waits for hoplo lets Python look at its signals so often: one that arrives right before the thread
/// sleeps does not wake it. A wait that has lasted so long is noted for `hoplo why`.
pub const SIGNALS_PERIOD: Duration = Duration::from_millis(100);

/// What a process has to say to a daemon that does not read: who would add more waits.
pub const UNSENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A table that once had room for more entries than this gives room back when few are left.
pub const TABLE_ROOM_KEPT: usize = 16 * 1024;

/// Few: this part of the room, or less.
pub const TABLE_ROOM_SHARE: usize = 8;

/// Where entries go one by one in a hot path, it is looked for that at every so many-th.
pub const TABLE_LOOKED_AT_EVERY: usize = 256;

/// A daemon gives free memory back to the system so long after its tables got small: by then most of it is free.
pub const RETURN_MEMORY_AFTER: Duration = Duration::from_secs(1);

/// Lines for the user that wait to be printed; more are counted.
pub const WARNINGS_MAX: usize = 1000;

/// Batches of workers' lines that wait for a busy interpreter; more are counted and dropped.
pub const OUTPUT_BATCHES_MAX: usize = 1024;

/// A driver gets lines at most this often.
pub const OUTPUT_PERIOD: Duration = Duration::from_millis(20);

/// Lines that are equal within this time are folded.
pub const OUTPUT_FOLDED_WITHIN: Duration = Duration::from_secs(1);

/// Different lines that are remembered for folding.
pub const OUTPUT_FOLDED_MAX: usize = 256;

/// A line longer than this is cut in pieces.
pub const OUTPUT_LINE_BYTES_MAX: usize = 64 * 1024;

/// Work that an owner keeps queued in one leased worker's ring.
pub const PIPELINE_WORK: Duration = Duration::from_millis(1);

/// Calls in one ring, whatever they cost.
pub const PIPELINE_DEPTH_MAX: usize = 512;

/// Frames of one caller that an actor may have before it; async actors run many at once.
pub const ACTOR_DEPTH_MAX: usize = 4096;

/// The same of an actor that restarts from checkpoints: it keeps the replies of so many calls of each caller.
pub const ACTOR_DEPTH_LOGGED_MAX: usize = 64;

/// Callers whose last replies such an actor keeps.
pub const ANSWERED_CALLERS_MAX: usize = 1024;

/// Bytes of values that are kept of one reply; larger ones are given once.
pub const ANSWERED_BYTES_MAX: usize = 128 * 1024;

/// Bytes of all such values of one actor.
pub const ANSWERED_ALL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long an actor keeps large results of calls that it replayed for callers that did not get them.
pub const ANSWERS_KEPT_FOR: Duration = Duration::from_secs(60);

/// Bytes of logged calls behind the last checkpoint from which on an actor makes one, whatever its options say.
pub const REPLAY_LOG_BYTES: usize = 4 * 1024 * 1024;

/// Logged calls behind the last checkpoint from which on it does.
pub const REPLAY_LOG_CALLS: usize = 10_000;

/// A log takes no more: the actor whose `checkpoint()` raises until then ends.
pub const REPLAY_LOG_BYTES_MAX: usize = 4 * REPLAY_LOG_BYTES;
pub const REPLAY_LOG_CALLS_MAX: usize = 4 * REPLAY_LOG_CALLS;

/// Bytes of a checkpoint's state.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Leases of one shape that a process asks for at once.
pub const LEASE_DEMAND_MAX: u32 = 1024;

/// Leases of tasks whose shape needs nothing at all, and that do not wait for others: no resource bounds them.
pub const LEASES_FREE_MAX: usize = 64;

/// A lease whose worker has not replied for so long is asked for what it has not started.
pub const LEASE_STALL: Duration = Duration::from_millis(5);

/// An idle lease goes back after this time even when nobody else asks.
pub const LEASE_IDLE: Duration = Duration::from_millis(500);

/// A lease of another node that is this old goes back when it falls idle. A loop of single calls that went elsewhere because its own
/// node was full is at home again after that time; one whose node stays full pays `BROKER_PATIENCE` for asking.
pub const FAR_LEASE_TERM: Duration = Duration::from_secs(1);

/// A lease that others wait for is given back after this time of use: processes do not take turns at each call. One that
/// is idle goes at once when its own holder waits for another shape that it could serve.
pub const LEASE_QUANTUM: Duration = Duration::from_millis(50);

/// What an elder claim lacks is kept for it during every other period of this length.
pub const LEASE_KEEP_PERIOD: Duration = Duration::from_secs(1);

/// A claim that got nothing for so long is told why, and then of changes. To look what has changed takes a
/// look at all leases, so each claim looks at most this often: hundreds may wait for one another.
pub const CLAIM_STUCK_AFTER: Duration = Duration::from_millis(500);

/// A claim for a node that nobody here has heard of fails after so long: by then the row of a node that has just joined is here.
pub const NODE_UNKNOWN_AFTER: Duration = Duration::from_secs(2);

/// Of actors that wait for the same so many are told at once why they wait, and so many hear when that changes.
pub const LINE_TOLD_MAX: usize = 256;

/// Work of a shape that spreads is held back for workers that are still to come, but no longer than that. The first worker of a
/// node takes 100 to 400 ms, on a machine with much else to do up to a second.
pub const SPREAD_PATIENCE: Duration = Duration::from_secs(2);

/// A demand that its own node has not met after so long is looked at for other nodes, too.
pub const BROKER_PATIENCE: Duration = Duration::from_millis(5);

/// An argument of so many bytes draws its task to the node where they lie.
pub const NEAR_BYTES_MIN: u64 = 1_000_000;

/// A task waits for room at that node as long as its arguments would take to another one at this rate, a second (1 Gbit/s),
pub const NEAR_BYTES_MOVED: u64 = 125_000_000;

/// and the first of several also for as long as a worker may take to start there.
pub const NEAR_WORKER_STARTS: Duration = Duration::from_millis(50);

/// A node that denied somebody room for an object, in memory and on disk, is taken for one that has room again after so long.
pub const FULL_FORGOTTEN: Duration = Duration::from_secs(30);

/// A task that found no room for its result or its arguments is tried at another node so often, if it has so many retries left.
pub const TURNED_AWAY_MAX: u8 = 3;

/// Who was told that no node has room asks again after so long at first, and then after twice as long each time.
pub const SEEK_PAUSE_MIN: Duration = Duration::from_millis(50);
pub const SEEK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A question to the global scheduler that was not answered for so long is asked again: its head may be another one.
pub const SEEK_LOST_AFTER: Duration = Duration::from_secs(2);

/// What a node was asked for and has not granted for so long may be asked of another one that has room.
pub const PART_PATIENCE: Duration = Duration::from_millis(200);

/// The same of a node that had room: a worker starts there.
pub const STARTING_PATIENCE: Duration = Duration::from_secs(1);

/// The same if its environment has a Python of its own, which may have to be made there first.
pub const MAKING_PATIENCE: Duration = Duration::from_secs(60);

/// What the global scheduler gave away of a node counts until a report of that node that is so much younger ...
pub const PLEDGE_SETTLES: Duration = Duration::from_millis(10);
/// ... and at most so long.
pub const PLEDGE_MAX: Duration = Duration::from_millis(200);

/// Unmet wants of one node that the global scheduler remembers.
pub const WANTS_STANDING_MAX: usize = 1024;

/// A worker that waits in `get` for longer than this lends its CPU to the scheduler.
pub const BLOCKED_AFTER: Duration = Duration::from_millis(1);

/// One whose call waits for its arguments lends it after this time: they mostly come soon, and when they are there, two tasks have one CPU.
pub const BLOCKED_AFTER_FOR_ARGUMENTS: Duration = Duration::from_millis(50);

/// The calls that run in an actor beside the one that ends it have so long to reply.
pub const ACTOR_EXIT_GRACE: Duration = Duration::from_secs(5);

/// The main thread of an actor's process has so much longer to end the process in order, as it does unless it runs
/// a call itself. Then the process ends without its exit handlers.
pub const ACTOR_EXIT_ORDERLY: Duration = Duration::from_secs(1);

/// An idle worker beyond the pool's floor exits after this time.
pub const WORKER_IDLE: Duration = Duration::from_secs(60);

/// Idle workers of one kind that those of another kind's use cannot profit from are not piled up beyond this many times
/// the floor.
pub const WORKERS_IDLE_FLOORS_MAX: usize = 4;

/// Starts of workers that may fail in a row before those that wait are told.
pub const STARTS_FAILED_MAX: u32 = 3;

/// The same for starts that were killed: the kernel kills what takes more memory than there is, again and again.
pub const STARTS_KILLED_MAX: u32 = 20;

/// Workers in a row that may die before they take a call that lies in their ring, and no other of its caller. Each more
/// costs the call a retry.
pub const WORKERS_UNTAKEN_MAX: u8 = 8;

/// Restarts of an actor in a row that may fail before it costs the calls that wait for them.
pub const RESTARTS_FAILED_MAX: u32 = 3;

/// Deaths of the zygote in a row, without a fork between them, after which it is not started by itself.
pub const ZYGOTE_DEATHS_MAX: u32 = 3;

/// Processes (driver, workers, tools) on one node at a time.
pub const PROCESSES_MAX: usize = 4096;

/// Objects in the store of one node at a time. Each has a slot of a few bytes for its state.
pub const OBJECTS_STORED_MAX: usize = 1 << 20;

/// Objects of the store that one process can have pinned at once.
pub const PINS_PER_PROCESS_MAX: usize = 8192;

/// A `runtime_env` as canonical JSON, merged with those of the job and of the caller.
pub const RUNTIME_ENV_BYTES_MAX: usize = 256 * 1024;

/// What a folder or module of a `runtime_env` may take, packed for other nodes.
pub const PACKAGE_BYTES_MAX: u64 = 500_000_000;

/// A larger package is sent, and the program is warned.
pub const PACKAGE_BYTES_WARNED: u64 = 100_000_000;

/// Files and folders in one package.
pub const PACKAGE_FILES_MAX: usize = 250_000;

/// What unpacked packages take on one node. Above that those go that no worker uses.
pub const PACKAGES_BYTES_MAX: u64 = 10_000_000_000;

/// Builders of environments (`pip install`, `uv pip install`) that run at the same time on one node.
pub const ENVIRONMENTS_MAKING_MAX: usize = 4;

/// An environment that was made, and in which no worker runs, is kept from being removed for so long.
pub const ENVIRONMENT_IDLE: Duration = Duration::from_secs(600);

/// So often it is looked at which environments are used.
pub const ENVIRONMENT_LOOK: Duration = Duration::from_secs(60);

/// Last lines of an installer's output that come with the error.
pub const ENVIRONMENT_LAST_LINES: usize = 20;

/// What a builder of an environment says of it: how a worker is started in it.
pub const ENVIRONMENT_PROGRAM_BYTES_MAX: usize = 64 * 1024;

/// What the zygote is told of one worker: its runtime environment, `sys.path`, folder.
pub const ZYGOTE_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Of the timeout of a `get` that was not in time, at most: how long other processes are asked what it waits for.
pub const WHY_LATE_SHARE: f64 = 0.1;

/// The same in seconds, least and most: a program that polls is told what its own process knows.
pub const WHY_LATE_SECONDS: [f64; 2] = [0.02, 1.0];

/// Missing results for each of which a late `get` says what it waits for; of the others it tells the count.
pub const WHY_LATE_EXPLAINED_MAX: usize = 3;

/// Links from the question of `hoplo why` to the end of its chain.
pub const WHY_ROUNDS_MAX: usize = 24;

/// Things that one round asks about; of what else is waited for the line tells only the count.
pub const WHY_THINGS_MAX: usize = 16;

/// A process that is asked waits so long for its interpreter, to say where its calls stand. A round lasts longer.
pub const WHY_RUNNING_PATIENCE: Duration = Duration::from_millis(300);

/// Objects that are told of a thread that waits for more.
pub const WAIT_OBJECTS_TOLD_MAX: usize = 64;

/// A thread that goes to wait does so unnoted when the list of waits is held for so long.
pub const WAITS_LOCK_PATIENCE: Duration = Duration::from_millis(10);

/// Object-state slots handed to a process at once.
pub const SLOTS_GRANT: u32 = 256;

/// An extent is at least this large; larger objects get an extent of their own.
pub const EXTENT_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Addresses of the arena for each byte that the store may use at a time: room to place things.
pub const ARENA_PER_STORE: u64 = 4;

/// Of the machine's memory, for the store, unless it is set otherwise.
pub const OBJECT_STORE_SHARE: f64 = 0.3;

/// The smallest one that a node has which is told nothing,
pub const OBJECT_STORE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// and that somebody may ask for.
pub const OBJECT_STORE_BYTES_LEAST: u64 = 1024 * 1024;

/// Requests for room that one process may have waiting.
pub const ROOM_REQUESTS_MAX: usize = 64;

/// More room cannot be asked for at once: no file may be so large.
pub const ROOM_REQUEST_BYTES_MAX: u64 = 1 << 50;

/// Without a disk, or where all slots are in use, a request is denied when nothing was freed for so long.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(2);

/// Processes have so long to answer a recall of room before others' objects are spilled.
pub const RECALL_GRACE: Duration = Duration::from_millis(20);

/// A process that gave less room than it was asked for is not asked for the rest again for so long.
pub const RECALL_AGAIN: Duration = Duration::from_millis(20);

/// Objects that are being written to disk at once.
pub const SPILLS_MAX: usize = 16;

/// Objects that are being fetched from other nodes at once; each has room.
pub const PULLS_MAX: usize = 16;

/// Members of a reduce that nodes fold on their way; of more a task gets each and folds it.
pub const REDUCE_MEMBERS_MAX: usize = 1024;

/// Reduces that processes of one node wait for; others are refused, and tasks do them.
pub const REDUCES_MAX: usize = 64;

/// So many of them are under way at once. Each takes a place for pulls at its nodes (`PULLS_MAX`), and one alone keeps links busy.
pub const REDUCES_AT_ONCE: usize = 8;

/// Stripes of a ring are at least so long: each costs two frames, and the way round.
pub const STRIPE_BYTES_MIN: u64 = 64 * 1024;

/// What a node made in a ring waits so long for who reads the result there.
pub const RING_KEPT: Duration = Duration::from_secs(1);

/// What one node makes for reduces of all nodes at once, what is made and still kept included.
pub const FOLDS_MAX: usize = 256;

/// Arrays in an object that is folded on its way, and items of one container.
pub const FOLD_ARRAYS_MAX: usize = 16_384;

/// What such an object has beside its arrays: names, dtypes, shapes.
pub const FOLD_SKELETON_BYTES_MAX: usize = 1 << 20;

/// Nodes that one is told to fetch an object from.
pub const SOURCES_MAX: usize = 3;

/// Readers of an object that is smaller are in a chain as they ask. Of a larger one slow readers come last.
pub const CHAIN_BYTES_MIN: u64 = 1_000_000;

/// Less than that says nothing of how fast a node takes what is relayed to it.
pub const LAG_BYTES_MIN: u64 = 1_000_000;

/// Nor does less than this part of an object: a node that stood still for a moment is not slow.
pub const LAG_PART: u64 = 16;

/// So long at most a slow one waits for others that ask at the same time.
pub const SLOW_WAITS_MAX: Duration = Duration::from_millis(20);

/// Nodes that an object may be put on.
pub const COPIES_MAX: u8 = 8;

/// A node that did not take a copy is asked for none for so long.
pub const COPY_RETRY: Duration = Duration::from_secs(5);

/// How often it is looked how fast bytes come, if they could come from another node as well.
pub const PULL_LOOK: Duration = Duration::from_millis(100);

/// Looks in a row that find less than half of the best one before another node is taken.
pub const PULL_SLOW_LOOKS: u32 = 2;

/// Assemblies under way at once at one node; each has room. Others wait.
pub const ASSEMBLIES_AT_ONCE: usize = 4;

/// Parts of one assembly.
pub const ASSEMBLY_PARTS_MAX: usize = 4096;

/// At least two parts of an assembly are on their way, and as many as have so many bytes together. With more each source would send a little to everybody.
pub const ASSEMBLY_AHEAD_BYTES: u64 = 1 << 20;

/// Objects that one other node may be fetching from here at once.
pub const SERVES_MAX: usize = 2 * PULLS_MAX;

/// Of pulls that failed, or that were not begun, so many are remembered, the last ones: who was told to fetch from this node meanwhile hears so.
pub const PULLS_IN_VAIN_KEPT: usize = 256;

/// An object that moves whenever it is about to be sent is given up after so many times.
pub const SERVE_TRIES_MAX: u32 = 16;

/// What was pinned is tried again after this time, then after twice the time, and so on up to `PINNED_RETRY_MAX`.
pub const PINNED_RETRY: Duration = Duration::from_millis(10);

/// A program that left may keep what it has pinned for long.
pub const PINNED_RETRY_MAX: Duration = Duration::from_secs(1);

/// One part in so many of the store, for the arrays that all processes together build in it.
pub const SCRATCH_SHARE: f64 = 4.0;

/// A parent that forks waits so long until its child has arrays of its own: the child may be stopped.
pub const SCRATCH_MOVE_PATIENCE: Duration = Duration::from_secs(10);

/// Objects start at multiples of this (a cache line; Arrow and SIMD code rely on it).
pub const OBJECT_ALIGN: u64 = 64;

/// Warm, free bytes that a process keeps for its next objects before it gives extents back.
pub const WARM_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Warm room that was not used for so long goes back: from a process to the daemon, and from there to the system.
pub const WARM_TIME: Duration = Duration::from_secs(10);

/// Notices to the daemon that may wait for company.
pub const NOTICES_BATCH: usize = 64;

/// Last lines of a worker's output that are kept for its obituary.
pub const OBITUARY_LINES: usize = 20;

/// Last lines of the zygote's output for the reason of a failure.
pub const ZYGOTE_LAST_LINES: usize = 12;

/// A process that was asked to exit has so long before it is killed.
pub const EXIT_GRACE: Duration = Duration::from_millis(200);

/// An idle worker that was asked to exit runs its exit handlers meanwhile.
pub const RETIRE_GRACE: Duration = Duration::from_secs(5);

/// How long processes have to tell what they know: one that is stuck is left out of the answer.
pub const INSPECT_PATIENCE: Duration = Duration::from_secs(1);

/// How long they have where another node asks: what the others of that node told is there before that one stops to wait.
pub const INSPECT_PATIENCE_FAR: Duration = Duration::from_millis(700);

/// The same over all rounds of one `hoplo why`: who is slow in every round is not waited for in each.
pub const WHY_PATIENCE: Duration = Duration::from_secs(5);

/// A head that was killed holds its locks until the kernel is done with it, and one that starts does not listen yet: how
/// long others wait for either.
pub const HEAD_ENDS: Duration = Duration::from_secs(5);

/// A log's folder is locked at the most so long by a process that is gone.
pub const LOG_LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Who looks whether a daemon lives holds its lock for a moment.
pub const SESSION_LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Dead sessions whose logs are kept.
pub const SESSION_LOGS_KEPT: usize = 5;

/// As many links on one way as the kernel follows.
pub const PATH_LINKS_MAX: usize = 40;

/// The zygote tells a worker's exit status within this time after its end was seen.
pub const STATUS_PATIENCE: Duration = Duration::from_millis(100);

/// What a dead process held stays so long for those that still serve its calls and do not say what they use of it.
pub const TAKEOVER_PATIENCE: Duration = Duration::from_secs(1);

/// A worker that closed its connection and does not end is killed after this time.
pub const HANGUP_GRACE: Duration = Duration::from_secs(1);

/// Killed processes need a moment to be gone. What runs as another user does not go at all.
pub const CHILDREN_END_PATIENCE: Duration = Duration::from_secs(1);

/// The daemon looks so often for what its workers left behind: to look at every process of the machine takes
/// milliseconds.
pub const FAMILY_PERIOD: Duration = Duration::from_secs(1);

/// Obituaries that are kept for those who ask too late.
pub const GRAVES_MAX: usize = 1024;

/// Placement groups that a head has at a time,
pub const GROUPS_MAX: usize = 10_000;
/// the bundles that one of them may have,
pub const GROUP_BUNDLES_MAX: usize = 1024;
/// and groups that are no more, kept for listings and for who asks late.
pub const GROUPS_REMEMBERED_MAX: usize = 1000;

/// Those who wait for one group at a time: threads of all processes.
pub const GROUP_WATCHERS_MAX: usize = 10_000;

/// Groups for which room is looked for whenever a node has something else than it had: those that wait longest.
pub const GROUPS_TRIED_MAX: usize = 100;

/// Dead actors that nobody can reach, kept for listings,
pub const ACTORS_REMEMBERED_MAX: usize = 1000;

/// workers and drivers that are not there any more, the same,
pub const PROCESSES_REMEMBERED_MAX: usize = 1000;

/// the calls by which a process could make results again that were lost with other nodes, bytes,
pub const LINEAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// with arguments up to this size that nobody could make again, bytes,
pub const LINEAGE_VALUE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// and tasks that were lost.
pub const LOST_TASKS_MAX: usize = 1000;

/// When a node dies, its heir hears of so many of its actors that they had ended, of those made last.
pub const ENDED_ACTORS_TOLD_MAX: usize = 1000;

/// A process tells its daemon at most so often what has run,
pub const RUNS_TOLD_EVERY: Duration = Duration::from_secs(1);

/// and at most so many runs each time: the latest ones.
pub const RUNS_UNTOLD_MAX: usize = 10_000;

/// Of a failed run so much of the text is remembered,
pub const RUN_FAILURE_BYTES_MAX: usize = 1000;

/// and so much of a name.
pub const RUN_NAME_BYTES_MAX: usize = 200;

/// What a daemon remembers of the runs of one job: about 30,000,
pub const HISTORY_OF_JOB_BYTES_MAX: usize = 4 * 1024 * 1024;

/// and of all jobs together.
pub const HISTORY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A daemon writes to the control store what has run, for the time when it is dead: at most so often. With many nodes, less often,
pub const HISTORY_WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// so that all nodes together do not write more than so many of them do in that time,
pub const HISTORY_WRITERS_MAX: usize = 32;

/// and later if the store refused it.
pub const HISTORY_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// So much at a time: about 4,000 runs,
pub const HISTORY_WRITTEN_BYTES_MAX: usize = 256 * 1024;

/// in rows of about this size. The last one of a job is written again until it is full.
pub const HISTORY_ROW_BYTES: usize = 16 * 1024;

/// What a node has in the store: about 15,000 runs,
pub const HISTORY_OF_NODE_BYTES_MAX: usize = 1024 * 1024;

/// in so many rows,
pub const HISTORY_OF_NODE_ROWS_MAX: usize = 1024;

/// and less where there are many nodes: those that live have so much together, but each has a row.
pub const HISTORY_LIVING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Dead nodes whose rows are kept: those that died last.
pub const HISTORY_NODES_DEAD_MAX: usize = 64;

/// What one answer has of dead nodes.
pub const HISTORY_READ_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Unfinished tasks of each process that a listing has. It says how many more there are.
pub const TASKS_LISTED_MAX: usize = 10_000;

/// Questions of people that are being gathered at once,
pub const QUERIES_OPEN_MAX: usize = 256;

/// and those among them of one asker, so that there is room for others.
pub const QUERIES_OF_ONE_MAX: usize = 16;

/// The same for another node, whose tools and programs are many.
pub const QUERIES_OF_NODE_MAX: usize = 64;

/// What a node tells another one in answer to one of them, and how much of that goes into one message: others have something
/// to say meanwhile.
pub const FAR_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
pub const FAR_ANSWER_PART_BYTES: usize = 256 * 1024;

/// What a node tells of its logs in one answer: its daemon reads no more at once, and no more of it travels at once. As JSON a byte may
/// take six.
pub const LOGS_ANSWER_BYTES: u64 = 256 * 1024;

/// `hoplo logs --tail` looks for the last lines in so much of a file's end.
pub const LOGS_TAIL_BYTES: u64 = 256 * 1024;

/// How often `hoplo logs --follow` asks other nodes.
pub const LOGS_ASKED_EVERY: Duration = Duration::from_millis(250);

/// What processes and other nodes told in answer to all of them.
pub const QUERIES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Interfaces of actors that a process keeps: handles come in numbers, and each has its actor's inside.
pub const INTERFACES_KNOWN_MAX: usize = 1024;

/// So many slots rest before one is taken again: who still rings a dead process's bell wakes nobody new.
/// A slot that was never taken costs a page of the segment, so no more rest than that.
pub const SLOTS_RESTING: usize = 64;

/// Ended jobs that are kept with all they were told.
pub const JOBS_PAST_MAX: usize = 256;

/// Keys of users that one answer holds.
pub const KV_KEYS_MAX: usize = 1 << 20;

/// How pending results of other homes are made, as a node is told in case that the home dies: call frames up to this size, bytes,
pub const LINEAGE_TOLD_BYTES_MAX: usize = 1024 * 1024;

/// and of all of them together.
pub const LINEAGES_TOLD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What other nodes say of estates before this node has heard of the death, messages.
pub const EARLY_MESSAGES_MAX: usize = 1_000_000;

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

/// Steps in a story.
pub const STORY_LINES_MAX: usize = 4096;

const _: () = assert!(INLINE_BYTES_MAX + 20 * INLINE_REFS_MAX + 4096 <= RING_BYTES / 2);
const _: () = assert!(SEEK_PAUSE_MAX.as_millis() < SEEK_LOST_AFTER.as_millis());
const _: () = assert!(INLINE_BYTES_MAX + 20 * INLINE_REFS_MAX < REPLY_BYTES_MAX);
const _: () = assert!(
    CHECKPOINT_BYTES_MAX + REPLAY_LOG_BYTES_MAX + 2 * ANSWERED_ALL_BYTES_MAX
        <= PROCESS_MESSAGE_BYTES_MAX
);
const _: () = assert!(ANSWERED_BYTES_MAX <= ANSWERED_ALL_BYTES_MAX);
const _: () = assert!(ACTOR_DEPTH_LOGGED_MAX <= ACTOR_DEPTH_MAX);
const _: () = assert!(CALL_INLINE_BYTES_MAX + 4096 <= RING_BYTES / 2);
const _: () = assert!(WHY_RUNNING_PATIENCE.as_millis() < INSPECT_PATIENCE_FAR.as_millis());
const _: () = assert!(INSPECT_PATIENCE_FAR.as_millis() < INSPECT_PATIENCE.as_millis());
// What the id names, and what that waits for, is always asked.
const _: () = assert!(2 * INSPECT_PATIENCE.as_millis() <= WHY_PATIENCE.as_millis());
const _: () = assert!(WHY_PATIENCE.as_millis() < QUERY_PATIENCE.as_millis());
const _: () = assert!(CONFIG_STORE_CONNECTS.as_millis() < CONFIG_STORE_ANSWERS.as_millis());
// A ref takes 25 bytes at most, and what else notices have inside is small.
const _: () =
    assert!(25 * (VALUE_REFS_MAX + MESSAGE_REFS_MAX) + (24 << 20) <= PROCESS_MESSAGE_BYTES_MAX);
// Whatever failed, a reply can say so.
const _: () = assert!(
    FAILURE_PAYLOAD_BYTES_MAX + FAILURE_TEXT_BYTES_MAX + 20 * INLINE_REFS_MAX + 1024
        <= REPLY_BYTES_MAX
);
const _: () = assert!(PROCESSES_MAX <= 1 << 16);
const _: () = assert!(TABLE_LOOKED_AT_EVERY * 4 <= TABLE_ROOM_KEPT / TABLE_ROOM_SHARE);
const _: () = assert!(JOB_BYTES_MAX + 16 * SLOTS_GRANT as usize + 64 * 1024 <= WELCOME_BYTES_MAX);
const _: () = assert!(PACKAGE_BYTES_WARNED < PACKAGE_BYTES_MAX);
const _: () = assert!(PACKAGE_BYTES_MAX < PACKAGES_BYTES_MAX);
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

/// A node that joined waits so long for its cluster's control nodes when somebody waits for the answer.
pub const FAR_STORE_WITHIN: Duration = Duration::from_secs(30);

/// If control nodes have answered nothing for so long that a node asked of them, its status says so.
pub const FAR_STORE_QUIET: Duration = Duration::from_secs(5);

/// A row that nobody waits for is written as soon as a control node is there again, if that is within this time. Until then it counts
/// towards `CONTROL_CLIENT_QUEUE_BYTES_MAX`.
pub const FAR_SAVE_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// A verdict of a head over control nodes that these do not take in this time is given again.
pub const FAR_VERDICT_WITHIN: Duration = Duration::from_secs(1);

/// A head that waited for its place does so much later what has time: it starts Python, writes the token to join by, and asks the control
/// nodes by a client of its own. At first nodes wait for it.
pub const HEAD_SETTLED_AFTER: Duration = Duration::from_secs(1);

/// A head over control nodes that could not read what dead nodes left tries again so much later.
pub const LEAD_READS_AGAIN: Duration = Duration::from_millis(100);

/// A node renews its certificate so often: another try or two are left if one fails.
pub const CERTIFICATE_RENEWED: Duration = Duration::from_secs(8 * 3600);

const _: () = assert!(CERTIFICATE_RENEWED.as_secs() * 3 <= CERTIFICATE_JOINED.as_secs());

/// A head over control nodes writes so often that it is the head,
pub const SEAT_BEAT: Duration = Duration::from_millis(200);
/// and who waits to be in its place looks so often, besides when its connection to the head ends.
pub const SEAT_LOOK: Duration = Duration::from_millis(100);
/// If that connection ends, and the head's port still takes the next one, it looks so much later, and then twice as much, up to `SEAT_LOOK`.
pub const SEAT_AGAIN: Duration = Duration::from_millis(1);
/// It takes the place of a head that wrote nothing for so long, while the store answered.
pub const SEAT_SILENT: Duration = Duration::from_secs(1);
/// What a head over control nodes decides about who lives counts only if it wrote that it is the head so short a time ago.
pub const SEAT_CERTAIN: Duration = Duration::from_millis(450);
/// A look that comes so much later than the one before says nothing of what was between them.
pub const SEAT_LATE: Duration = Duration::from_millis(400);
const _: () = assert!(SEAT_BEAT.as_millis() * 4 <= SEAT_SILENT.as_millis());
const _: () = assert!(SEAT_LOOK.as_millis() * 3 < SEAT_LATE.as_millis());
const _: () = assert!(SEAT_BEAT.as_millis() * 2 < SEAT_CERTAIN.as_millis());
// Who is cut off from everybody finds nodes silent later than that.
const _: () = assert!(
    SEAT_CERTAIN.as_millis() + MEMBER_BEAT.as_millis()
        < MEMBER_SILENT.as_millis() + MEMBER_PROBE_WITHIN.as_millis()
);

/// A node that was declared dead tries so often, and for so long, to join again.
pub const JOINS_AGAIN: Duration = Duration::from_millis(500);
pub const JOINS_AGAIN_WITHIN: Duration = Duration::from_secs(120);

/// All of joining a cluster.
pub const JOIN_WITHIN: Duration = Duration::from_secs(15);

/// Beyond the deadline of a call, the loop of a client always answers within this.
pub const CONTROL_CLIENT_GRACE: Duration = Duration::from_secs(5);

/// So long without an answer, and a client asks the coordinators for a newer configuration.
pub const CONTROL_CLIENT_SILENCE: Duration = Duration::from_millis(50);

/// It asks again after twice as long each time, up to this.
pub const CONTROL_CLIENT_ASKS_LAST: Duration = Duration::from_secs(2);

/// What was not answered is sent again after so long, or after so many times what answers take of late if that is longer, and then after
/// twice as long each time, up to the last. While connections hold and the chain is the same nothing is lost, so this is for the unforeseen only:
/// who says again what merely waits in line makes the line longer.
pub const CONTROL_CLIENT_RESEND_FIRST: Duration = Duration::from_millis(250);
pub const CONTROL_CLIENT_RESEND_USUAL: u32 = 8;
pub const CONTROL_CLIENT_RESEND_LAST: Duration = Duration::from_secs(30);

/// A connection that could not be made, or a query that was refused for a time: tried again after so long, and after twice as long each time, up to the last.
pub const CONTROL_CLIENT_RETRY_FIRST: Duration = Duration::from_millis(1);
pub const CONTROL_CLIENT_RETRY_LAST: Duration = Duration::from_millis(100);

/// An update that was refused for a time is sent again after what answers take of late, and after twice as long each time, up to this.
pub const CONTROL_CLIENT_BUSY_LAST: Duration = Duration::from_secs(1);

/// A client asks the coordinators without cause so often; of chains of one replica each more rarely; and with cause no more often than
/// the last of these.
pub const CONTROL_CLIENT_ASKS: Duration = Duration::from_secs(1);
pub const CONTROL_CLIENT_ASKS_ALONE: Duration = Duration::from_secs(5);
pub const CONTROL_CLIENT_ASKS_SOON: Duration = Duration::from_millis(10);

/// What a client has to say to a coordinator that it cannot reach yet; more is dropped, and said again later.
pub const COORDINATOR_FRAMES_WAITING_MAX: usize = 16;

/// `hoplo control` waits so long for the answer of a node,
pub const CONTROL_TOOL_ANSWERS: Duration = Duration::from_secs(5);

/// for a coordinator to write a wish down,
pub const CONTROL_WISH_WRITTEN: Duration = Duration::from_secs(10);

/// and, when it measures, for a call.
pub const CONTROL_BENCH_ANSWERS: Duration = Duration::from_secs(20);

/// Changes that are on their way to `hoplo control watch` and that it has not written down.
pub const CONTROL_WATCH_CREDIT: u32 = 1000;

/// `hoplo control backup` waits so long for a page, or for the changes since,
pub const CONTROL_BACKUP_ANSWERS: Duration = Duration::from_secs(20);

/// keeps so much of what changes meanwhile,
pub const CONTROL_BACKUP_CHANGES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// and begins so often where the store does not remember all of it.
pub const CONTROL_BACKUP_TRIES: u32 = 5;

/// The first lines of a backup's file, at most.
pub const CONTROL_BACKUP_HEADER_BYTES_MAX: u64 = 1024 * 1024;

/// One message of a peer that did not say yet who it is.
pub const NET_GREETING_BYTES_MAX: usize = 4096;

/// To connect and to say who one is.
pub const NET_OPENS_WITHIN: Duration = Duration::from_secs(2);

/// Unacknowledged bytes on a dead path break a connection after this time, so that it is made anew when the path
/// is back, instead of waiting for a retransmission that was put off again and again.
pub const NET_UNACKNOWLEDGED: Duration = Duration::from_millis(1500);

/// Connections that were accepted and whose peers did not say yet who they are,
pub const NET_STRANGERS_MAX: usize = 256;

/// of them from one address of which no member of the cluster is known,
pub const NET_STRANGERS_OF_ADDRESS_MAX: usize = 64;

/// and beyond those so many from addresses of members.
pub const NET_STRANGERS_KNOWN_MAX: usize = 64;

/// Who did not say in this time who it is may have to make room for another.
pub const NET_STRANGER_GRACE: Duration = Duration::from_millis(250);

/// Of strangers that were closed unheard the log says so often how many they were,
pub const NET_UNHEARD_TOLD: Duration = Duration::from_secs(60);

/// for the first time this long after the first one, so that there is something to count,
pub const NET_UNHEARD_GATHERED: Duration = Duration::from_secs(1);

/// and from which of so many addresses most came.
pub const NET_UNHEARD_ADDRESSES_MAX: usize = 1024;

/// A node that may join at several places asks all of them again for so long, and waits in between for so long: of machines of which one
/// is to be head, none may be yet.
pub const JOIN_SEVERAL: Duration = Duration::from_secs(5);
pub const JOIN_SEVERAL_AGAIN: Duration = Duration::from_millis(200);

/// Who joins, and is turned away before it could say anything, tries so often, and waits before the second time for so long, then for twice
/// as long, and so on.
pub const JOIN_TRIES: u32 = 6;
pub const JOIN_TRIES_AGAIN: Duration = Duration::from_millis(50);

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

/// Of who joined with a token: it is renewed long before.
pub const CERTIFICATE_JOINED: Duration = Duration::from_secs(24 * 3600);

/// Who joins with a clock that differs by more than that is refused.
pub const JOIN_CLOCKS: Duration = Duration::from_secs(120);

/// One message of who joins, and the answer to it.
pub const JOIN_ASK_BYTES_MAX: usize = 2048;
pub const JOIN_ANSWER_BYTES_MAX: usize = 32 * 1024;

/// All that one who joins may send: TLS, certificates, its message.
pub const JOIN_STRANGER_BYTES_MAX: usize = 16 * 1024;

/// Addresses of control nodes that who joined is told, and the longest of them.
pub const JOIN_MEMBERS_MAX: usize = 64;
pub const JOIN_ADDRESS_BYTES_MAX: usize = 255;

/// Those who asked to join and wait for the control store's answer; who comes then is told to come again,
pub const JOIN_ASKS_MAX: usize = 64;

/// and who was not answered in this time is let go.
pub const JOIN_ANSWERS: Duration = Duration::from_secs(10);

/// The file or variable with a token has no more than that.
pub const TOKEN_BYTES_MAX: usize = 1024;

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

/// A config store that does not answer is given up on after this time, and asked again later.
pub const CONFIG_STORE_ANSWERS: Duration = Duration::from_secs(2);

/// The same for one of several that takes no connection: the next one is asked.
pub const CONFIG_STORE_CONNECTS: Duration = Duration::from_millis(500);

/// Control nodes that hold the configuration themselves: the first so many that the cluster file names.
pub const REGISTER_PLACES_MAX: usize = 5;

/// Who did not answer a round of the register is asked again after this time.
pub const REGISTER_ASKS_AGAIN: Duration = Duration::from_millis(100);

/// Whose round of the register another one overtook waits for so long before the next: times its place, so that two do not go on
/// overtaking each other, and twice as long after each one.
pub const REGISTER_YIELDS: Duration = Duration::from_millis(2);

/// It is not doubled more often.
pub const REGISTER_YIELDS_DOUBLED_MAX: u32 = 6;

/// Acceptors that do not hold the same while a swap is under way are read again, so often and after this time, before a round settles it.
pub const REGISTER_READS: u32 = 3;
pub const REGISTER_READS_AGAIN: Duration = Duration::from_millis(4);

/// Questions to an acceptor that wait for its disk; what is above that is dropped, and asked again.
pub const REGISTER_ASKS_WAITING_MAX: usize = 64;

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

/// Bytes on the way to another daemon that it did not acknowledge, by socket: who has more to say waits. A frame counts with
/// `LINK_FRAME_OVERHEAD`, and no frame is longer than a quarter of the window.
pub const LINK_TALK_WINDOW_BYTES: usize = 4 * 1024 * 1024;
pub const LINK_BULK_WINDOW_BYTES: usize = 4 * 1024 * 1024;

/// What a frame takes besides its bytes while it is held.
pub const LINK_FRAME_OVERHEAD: usize = 64;

/// What arrived over a link is acknowledged by itself after this time, or after an eighth of the window.
pub const LINK_ACKNOWLEDGED: Duration = Duration::from_millis(20);

/// Frames of one caller and worker of another node, each way, that have left the ring of who wrote them and are not in the ring of
/// who reads them. A frame counts with `CARRY_FRAME_OVERHEAD`; the last one may go beyond.
pub const CARRY_CREDIT_BYTES: usize = 512 * 1024;
pub const CARRY_FRAME_OVERHEAD: usize = 64;

/// What goes to another daemon together is sent when it is so long, or when there is no more at that moment.
pub const CARRY_PACK_BYTES: usize = 16 * 1024;

/// Lines of workers are given to a link while it holds no more than this: what is said after them waits for so much.
pub const CARRY_LINES_HELD_BYTES: usize = 256 * 1024;

/// A message between deciding threads goes in pieces of so many bytes.
pub const CARRY_PIECE_BYTES: usize = 256 * 1024;

/// Bytes of an object that go over the bulk socket together.
pub const BULK_CHUNK_BYTES: usize = 256 * 1024;

/// A connection to another daemon that broke, or could not be made, is dialled again after so long, and so on up to the last.
pub const LINK_REDIAL_FIRST: Duration = Duration::from_millis(10);
pub const LINK_REDIAL_LAST: Duration = Duration::from_secs(1);

/// A daemon to which no connection comes about for so long, and that nobody has declared dead, is named in the log.
pub const LINK_TROUBLE_SAID_AFTER: Duration = Duration::from_secs(3);

/// A connection between daemons that carried nothing for so long is closed; it is made again when there is something to say.
pub const LINK_IDLE: Duration = Duration::from_secs(60);

/// What an open link without anything under way may take in the machine that holds it.
pub const LINK_IDLE_BYTES_MAX: usize = 4 * 1024;

/// A node tells control nodes so often that it lives. Each time takes an idle node about 0.1 ms of CPU, since nothing of it is in a cache.
/// A beat that comes late costs a probe, and a dead node is found no later with fewer beats.
pub const MEMBER_BEAT: Duration = Duration::from_millis(180);

/// It waits at least so long for each node of its cluster: all nodes together send 33,000 heartbeats a second at most, with which the head's carrier is busy for
/// half of its time where a message takes 14 us. It begins to count with 6,000 nodes, and silence is found so much later.
pub const MEMBER_BEAT_OF_EACH: Duration = Duration::from_micros(30);

/// It hears so often that it is heard.
pub const MEMBER_HEARD: Duration = Duration::from_secs(3);

/// A node that hears nothing of the head for so long takes it for silent.
pub const HEAD_SILENT: Duration = Duration::from_secs(5);

/// A node of which a judge heard nothing for so long is probed, directly and through two others. Where heartbeats are rarer (`MEMBER_BEAT_OF_EACH`), it is so much longer.
pub const MEMBER_SILENT: Duration = Duration::from_millis(400);

/// Who does not answer such a probe in this time was not found: a node that is silent is dead after both times.
pub const MEMBER_PROBE_WITHIN: Duration = Duration::from_millis(300);

/// A probe dials again so often: the kernel repeats what it dialled with after a second, and that may have been lost on a link that
/// works again.
pub const MEMBER_PROBE_DIALS: Duration = Duration::from_millis(80);

/// It dials again sooner if the connection ends: after so long, and then after twice as long.
pub const MEMBER_PROBE_RESTS: Duration = Duration::from_millis(2);

/// Who probes a node for a judge says after this time that it found nothing.
pub const MEMBER_WITNESS_WITHIN: Duration = Duration::from_millis(200);

/// A judge whose turn comes so much later than it asked for was absent, and blames nobody for that time.
pub const MEMBER_JUDGE_LATE: Duration = Duration::from_millis(30);

/// A judge that was to look at some node for so long, and did not come to it, tells people: it finds the dead so much later.
pub const MEMBER_JUDGE_BEHIND: Duration = Duration::from_secs(1);

/// It tells so no more often than that, and people see it for twice as long.
pub const MEMBER_JUDGE_BEHIND_TOLD: Duration = Duration::from_secs(10);

/// A judge that has just begun gives nodes of which it never heard so long to come to it.
pub const MEMBER_UNHEARD: Duration = Duration::from_secs(3);

/// A judge that finds everybody silent is probably cut off itself. It declares nobody dead for so long.
pub const MEMBER_LONE_JUDGE: Duration = Duration::from_secs(5);

/// Nodes that a judge probes at the same time,
pub const MEMBER_ROUNDS_MAX: usize = 256;

/// and how long the next ones wait at least. A node that is complained about is probed no more often than that.
pub const MEMBER_PROBES_AGAIN: Duration = Duration::from_millis(50);

/// A verdict that the store did not take is tried again.
pub const MEMBER_VERDICT_RETRY: Duration = Duration::from_millis(50);

/// A node that hears no control node, and does not find them all refusing, ends its workers after this time.
pub const NODE_ALONE: Duration = Duration::from_secs(30);

/// A node that answers its head's probes and does not speak to it is dead after this time: it has ended its workers by then, if it
/// looks for a head that is silent.
pub const MEMBER_ASTRAY: Duration = Duration::from_secs(35);

/// A node whose turn comes so late was stopped; that time counts for nothing.
pub const NODE_LATE: Duration = Duration::from_secs(1);

const _: () = assert!(HEARTBEAT.as_millis() * 3 < HEARTBEAT_MISSED.as_millis());
const _: () = assert!(MEMBER_BEAT.as_millis() < NODE_LATE.as_millis());
const _: () = assert!(MEMBER_HEARD.as_millis() * 5 < NODE_ALONE.as_millis());
const _: () = assert!(NODE_ALONE.as_millis() < MEMBER_ASTRAY.as_millis());
const _: () = assert!(MEMBER_HEARD.as_millis() + MEMBER_BEAT.as_millis() < HEAD_SILENT.as_millis());
const _: () = assert!(ACTING_RENEW.as_millis() * 3 < ACTING_LEASE.as_millis());
const _: () = assert!(ACTING_RENEW.as_millis() * 2 <= ACTING_SILENT.as_millis());
const _: () = assert!(CONFIG_WATCH.as_millis() < ACTING_RENEW.as_millis());
const _: () = assert!(REGISTER_ASKS_AGAIN.as_millis() * 5 < CONFIG_STORE_ANSWERS.as_millis());
const _: () = assert!(REGISTER_READS as u128 * REGISTER_READS_AGAIN.as_millis() * 2 < 50);
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
// A frame of the talk socket takes what travels in one message between processes.
const _: () = assert!(INLINE_BYTES_MAX * 8 <= LINK_TALK_WINDOW_BYTES / 4);
// One piece, or one frame of a ring with the names in it, on top of a pack that is nearly full.
const _: () = assert!(CARRY_PIECE_BYTES + CARRY_PACK_BYTES + 4096 <= LINK_TALK_WINDOW_BYTES / 4);
const _: () = assert!(RING_BYTES <= CARRY_PIECE_BYTES && RING_BYTES / 2 < CARRY_CREDIT_BYTES);
const _: () = assert!(BULK_CHUNK_BYTES + 4096 <= LINK_BULK_WINDOW_BYTES / 4);
// A silent node is told dead within 0.75 s; what is left is for the turn of the judge and the store.
const _: () = assert!(MEMBER_SILENT.as_millis() + MEMBER_PROBE_WITHIN.as_millis() <= 700);
const _: () = assert!(MEMBER_PROBE_DIALS.as_millis() * 2 < MEMBER_WITNESS_WITHIN.as_millis());
// To ask a witness, and to hear it, takes time as well.
const _: () = assert!(MEMBER_WITNESS_WITHIN.as_millis() + 100 <= MEMBER_PROBE_WITHIN.as_millis());
const _: () = assert!(MEMBER_BEAT.as_millis() * 2 < MEMBER_SILENT.as_millis());
const _: () = assert!(LINK_REDIAL_LAST.as_millis() * 2 < MEMBER_UNHEARD.as_millis());
const _: () = assert!(LINK_REDIAL_LAST.as_millis() < NET_OPENS_WITHIN.as_millis());
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

/// Pages of the table of nodes that are kept for others who read it.
pub const CONTROL_PAGES_KEPT: usize = 16;

/// Queries that wait for a lease or for the cold tier.
pub const CONTROL_QUERIES_MAX: usize = 4096;

/// A query that could not be answered for so long is refused.
pub const CONTROL_QUERY_WAIT: Duration = Duration::from_secs(2);

/// Subscriptions at one replica.
pub const CONTROL_SUBSCRIPTIONS_MAX: usize = 32 * 1024;

/// So many subscribers hear each change at once.
pub const CONTROL_NEWS_AT_ONCE: usize = 32;

/// Of more of them a replica tells so many at a time, which takes it some milliseconds. Then it waits so long for each that it told: of very
/// many changes at a time they hear together, and telling takes a part of its time only: 15 us each where a message takes 11. With 25 us here a head
/// whom 10,000 nodes joined at once told for longer than its desk worked.
pub const CONTROL_NEWS_TOLD_AT_A_TIME: usize = 500;
pub const CONTROL_NEWS_GATHERED_OF_EACH: Duration = Duration::from_micros(40);

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

/// A row that finds no room waits so long for the cold tier, then it is refused.
pub const CONTROL_COLD_PATIENCE: Duration = Duration::from_secs(5);

/// A log whose disk was full is tried again so often.
pub const CONTROL_DISK_RETRY: Duration = Duration::from_millis(100);

/// One record of a log, as it lies on disk.
pub const CONTROL_RECORD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A file of a log: when it is full another one begins.
pub const CONTROL_SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// What a log's buffer keeps of its memory when it was written.
pub const CONTROL_LOG_BUFFER_BYTES_KEPT: usize = 4 * 1024 * 1024;

/// What a cold tier keeps in memory of its file.
pub const CONTROL_COLD_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Lines of what a replica or a coordinator did last, for who has to find out.
pub const CONTROL_STORY_LINES: usize = 512;

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
const _: () = assert!(LOGS_ANSWER_BYTES as usize * 6 < FAR_ANSWER_BYTES_MAX);
const _: () = assert!(QUERIES_BYTES_MAX <= NODE_MESSAGE_BYTES_MAX / 2);
const _: () = assert!(QUERIES_OF_ONE_MAX * 8 <= QUERIES_OPEN_MAX);
const _: () = assert!(QUERIES_OF_NODE_MAX * 2 <= QUERIES_OPEN_MAX);
// The numbers that the desk gives together are one entry of the store, which is told as a whole.
const _: () = assert!(NODE_ROWS_ON_THE_WAY as usize + JOIN_ASKS_MAX <= NODES_AHEAD_MAX as usize);
const _: () = assert!(HISTORY_ROW_BYTES * 2 <= CONTROL_PAGE_BYTES);
const _: () = assert!(HISTORY_ROW_BYTES <= HISTORY_WRITTEN_BYTES_MAX);
const _: () = assert!(HISTORY_READ_BYTES_MAX <= QUERIES_BYTES_MAX / 4);
const _: () = assert!(FAR_ANSWER_PART_BYTES * 2 <= LINK_TALK_WINDOW_BYTES / 4);
const _: () = assert!(CONTROL_CLIENT_FRAME_BYTES_MAX <= CONTROL_FRAME_BYTES_MAX);
const _: () = assert!(CONTROL_CLIENT_FRAME_BYTES_MAX * 4 <= NET_UNFINISHED_BYTES_MAX);
const _: () = assert!(NET_STRANGERS_OF_ADDRESS_MAX < NET_STRANGERS_MAX);
const _: () = assert!(NET_STRANGER_GRACE.as_millis() < NET_OPENS_WITHIN.as_millis());
const _: () = assert!(JOIN_CLOCKS.as_secs() * 2 <= CERTIFICATE_CLOCKS.as_secs());
const _: () = assert!(JOIN_ASK_BYTES_MAX * 4 <= JOIN_STRANGER_BYTES_MAX);
const _: () =
    assert!(JOIN_MEMBERS_MAX * (JOIN_ADDRESS_BYTES_MAX + 2) < JOIN_ANSWER_BYTES_MAX / 2 + 1024);
const _: () = assert!(CONTROL_PENDING_BYTES_MAX <= CONTROL_JOIN_BYTES_MAX);
const _: () =
    assert!(CONTROL_JOIN_WINDOW_BYTES + CONTROL_BATCH_BYTES_MAX as u64 <= CONTROL_JOIN_BYTES_MAX);
const _: () = assert!(CONTROL_LEASE.as_millis() * 5 / 4 <= CONTROL_LEASE_WAIT.as_millis());
const _: () = assert!(CONTROL_LEASE_WAIT.as_millis() < SUSPECT.as_millis());
const _: () = assert!(CONTROL_PEER_QUIET.as_millis() < CONTROL_PEER_SILENT.as_millis());
const _: () = assert!(CONTROL_FRAME_BYTES_MAX <= CONTROL_RECORD_BYTES_MAX);
const _: () = assert!(CONTROL_COLD_FLUSH_BYTES * 4 <= CONTROL_COLD_BYTES_MAX);
const _: () = assert!(CONTROL_ARCHIVE_OPS <= CONTROL_BATCH_OPS_MAX);
const _: () = assert!((CONTROL_PAGE_ROWS_MAX as usize) < u32::MAX as usize);

/// Functions that a daemon of a cluster keeps, bytes: those of other nodes' jobs are asked for once, while there is room, and its own
/// are there while no control node is.
pub const FAR_FUNCTION_BYTES_KEPT: usize = 256 * 1024 * 1024;

/// Who names an actor, or asks for one by its name, hears after so long that the cluster's head did not say who has the
/// name. It is more than a head takes that is started again, and less than the program waits for its daemon.
pub const NAME_PATIENCE: Duration = Duration::from_secs(15);

const _: () = assert!(NAME_PATIENCE.as_millis() < ASK_PATIENCE.as_millis());

/// A node that is drained has so long to leave, unless who asked for it said otherwise.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(600);

/// It looks so often whether anything keeps it.
pub const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// `hoplo drain` waits so long after the node's time is over: for its workers to end, or for the verdict that it is dead.
pub const DRAIN_SHOWN: Duration = Duration::from_secs(30);

/// Rows of nodes that are dead for long and of no use to anybody, but to people who ask why they died.
pub const NODES_SETTLED_KEPT: usize = 1000;

/// Of them, and of those that died just now, so many are shown. More are kept: their rows say who has what was at home there.
pub const NODES_DEAD_SHOWN: usize = 100;

/// A change of a node's load is told so much later, with what came meanwhile.
pub const LOAD_GATHERED: Duration = Duration::from_millis(2);

/// Values of refs that go with the call to another node that names them, together. A link of 1 Gbit/s carries them in 0.5 ms, which is what a question and
/// its answer take where nodes are busy: 32 KB that 8 nodes on 2 cores read came in 5.2 ms instead of 7.0 (2026-11-30, medians of three runs each).
pub const VALUES_SENT_AHEAD_BYTES: usize = 64 * 1024;

/// For each other node of its cluster a node waits so long until it tells the head its load again: all nodes together tell 20,000 loads a second at most,
/// with which the head's deciding thread is busy for a fifth of its time, and its carrier for a fourth (`hoplo_sim::cost`, `scale busy`). It begins to
/// count with 40 nodes.
pub const LOAD_TOLD_OF_EACH: Duration = Duration::from_micros(50);

/// The same of the deaths that it has passed.
pub const PASSED_TOLD_OF_EACH: Duration = Duration::from_micros(15);
