//! Limits of scripts, and their defaults.

use cabinet::UsableMemory;
use std::time::Duration;

/// Longest script, and longest text that `loadstring` compiles, in bytes.
pub const CODE_BYTES_MAX: usize = 16 << 20;

/// Longest code that a script compiles while it runs, in bytes. The time of compiling can grow with
/// the square of the length.
pub const RUN_TIME_CODE_BYTES_MAX: usize = 64 << 10;

/// Longest script that a client of Redis's protocol sends, in bytes.
pub const REDIS_SCRIPT_BYTES_MAX: usize = 256 << 10;

/// Scripts that are known by their SHA-1, at most. One more removes the least recently used one.
pub const REDIS_SCRIPTS_MAX: usize = 10_000;

/// Memory of these scripts together, in bytes, at most.
pub const REDIS_SCRIPTS_BYTES_MAX: usize = 16 << 20;

/// Longest format of `os.date`, in bytes.
pub const DATE_FORMAT_BYTES_MAX: usize = 4 << 10;

/// Longest name for `_lock`, in bytes.
pub const LOCK_NAME_BYTES_MAX: usize = 1 << 10;

/// Most names that one call locks at a time.
pub const LOCKS_MAX: usize = 1000;

/// Most names that are locked at a time, by calls that run and by calls that have ended.
pub const LOCKED_NAMES_MAX: usize = 4000;

/// Share of a state's memory that a JSON text may have: what it is decoded into takes more.
pub const JSON_SHARE: usize = 16;

/// Levels of captures and repeated characters in a pattern of `string.find` and the like.
pub const PATTERN_LEVELS_MAX: usize = 200;

/// Levels of tables within tables that become JSON, and of arrays and objects in JSON.
pub const JSON_LEVELS_MAX: usize = 100;

/// Code that `_eval` has accepted and another state has not yet executed, in bytes per state.
pub const EVAL_BYTES_MAX: usize = 1 << 20;

/// Paths that `_glob` returns at most.
pub const GLOB_PATHS_MAX: usize = 100_000;

/// Longest key that a mapper emits, in bytes. The merge of sorted files holds one for each file.
pub const EMITTED_KEY_BYTES_MAX: usize = 64 << 10;

/// Functions of which statistics are kept; all others count as one.
pub const FUNCTIONS_MAX: usize = 1000;

/// Functions of ours that call functions of the script, within each other.
pub const CALLBACK_LEVELS_MAX: usize = 50;

/// Stack that the functions of a call take until one of them calls a function of ours, in bytes. A
/// deeper call of ours fails. The thread has several times as much: from there on, Lua's own limit
/// of 200 calls in C holds, and functions of ours that do not call back.
pub const CALL_STACK_BYTES_MAX: usize = 1 << 20;

/// Script threads.
pub const THREADS_MAX: usize = 1024;

/// Longest text that is made on an event loop, in bytes.
pub(crate) const LOOP_TEXT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a text of which a function makes many values on an event loop: one for each byte takes
/// less than a millisecond.
pub(crate) const LOOP_VALUES_MAX: usize = 2 << 10;

/// Memory of a state up to which it runs on an event loop, in bytes: to collect its garbage takes
/// less than a millisecond.
pub(crate) const LOOP_STATE_BYTES_MAX: usize = 1 << 20;

/// Default share of the [usable memory](UsableMemory) for all scripts together, as a divisor, and
/// its least, in bytes.
const TOTAL_SHARE: u64 = 8;
const TOTAL_BYTES_LEAST: u64 = 8 << 20;

/// Instructions between two looks at the clock and at the memory of a small state.
pub(crate) const INSTRUCTIONS_PER_CHECK: u32 = 1000;

/// Memory that each state has beside [`Limits::total_bytes`], in bytes.
pub const STATE_BASE_BYTES: usize = 512 << 10;

/// Returns the default of [`Limits::total_bytes`] for each of `servers` servers in one process.
pub fn total_bytes(servers: u64) -> usize {
    let memory = UsableMemory::of_process();
    let memory = UsableMemory { bytes: memory.bytes / servers.max(1), ..memory };
    usize::try_from(memory.share(TOTAL_SHARE, TOTAL_BYTES_LEAST, u64::MAX)).unwrap_or(usize::MAX)
}

/// Limits of a script, which its operator sets.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest time of a call. A call that takes longer fails.
    pub call_time: Duration,
    /// Instructions of the interpreter that a call may take, counted by the thousand. A call that
    /// takes more fails, on a fast machine as on a slow one.
    pub call_instructions: u64,
    /// Memory of a state, in bytes. A call that needs more fails.
    pub state_bytes: usize,
    /// Memory that all states, the stash and what functions build take together, in bytes, beside
    /// [`STATE_BASE_BYTES`] of each state. A call that needs more fails.
    pub total_bytes: usize,
    /// Steps of one search for a pattern. A search that takes more fails.
    pub pattern_steps: u64,
    /// Keys and values that the `_stash` functions store, in bytes.
    pub stash_bytes: usize,
    /// Memory in which `_mapreduce` and `tyrant.map_reduce` sort, in bytes per thread. More is
    /// sorted through files.
    pub sort_bytes: usize,
    /// Bytes of all temporary files together through which `_mapreduce` and `tyrant.map_reduce`
    /// sort. A call that needs more fails.
    pub sort_disk_bytes: u64,
    /// Time for which the names that a call has locked stay so after it, without `_unlock`.
    pub lock_time: Duration,
    /// Threads of `tyrant.map_reduce`.
    pub map_threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call_time: Duration::from_secs(10),
            call_instructions: 1_000_000_000,
            state_bytes: 64 << 20,
            total_bytes: total_bytes(1),
            pattern_steps: 100_000_000,
            stash_bytes: 256 << 20,
            sort_bytes: 16 << 20,
            sort_disk_bytes: 4 << 30,
            lock_time: Duration::from_secs(30),
            map_threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
