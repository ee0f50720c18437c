//! Extension: functions that clients and the server's clock call, with access to the records.
//!
//! The functions are in a crate of its own. The server calls them on threads of their own, or on
//! its event loops if they can leave those before they wait.

use crate::ScriptRecords;
use crate::shared::{FunctionStatistics, ScriptMemory};
use std::sync::Arc;
use std::time::Duration;

/// Functions that clients call by name.
///
/// Each script thread has its own [`ScriptRecords`], with the number of the thread. The server
/// calls all methods with records on that thread. Each periodic function has [`ScriptRecords`] too,
/// with a number after those of the threads and loops; any script thread calls the methods with
/// them, one at a time. An operation on the records takes no lock of the extension, so the
/// extension may hold one meanwhile.
pub trait Extension: Send + Sync {
    /// Prepares the calling thread, before any function is called on it. The first thread, number
    /// 0, returns before the others begin.
    fn begin(&self, records: &Arc<ScriptRecords>);

    /// Ends the work of the calling thread, when the server stops. Thread 0 is the last. The
    /// extension must drop the records of the thread.
    fn end(&self, records: &Arc<ScriptRecords>);

    /// Returns whether clients may call a function of this name.
    fn has(&self, name: &[u8]) -> bool;

    /// Returns whether a function of this name is defined, for the server's clock. An extension
    /// that cannot tell returns `true`.
    fn defines(&self, _records: &Arc<ScriptRecords>, _name: &[u8]) -> bool {
        true
    }

    /// Calls a function with a key and a value. Returns its result, or `None` if it has none, which
    /// is a failure for the client. A transaction that is open at the end is abandoned.
    fn call(
        &self,
        records: &Arc<ScriptRecords>,
        name: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, ExtensionError>;

    /// Loads the functions again. If that fails, the present ones stay. Other threads may be
    /// calling functions meanwhile: they change to the new ones with their next call.
    fn reload(&self, records: &Arc<ScriptRecords>) -> Result<(), ExtensionError>;

    /// Changes to the functions that another thread has loaded. It is called on thread 0 soon after
    /// each [`Self::reload`] on another one.
    fn follow_reload(&self, _records: &Arc<ScriptRecords>) {}

    /// Returns whether the event loops may call functions themselves, which takes less time than
    /// a script thread does. Such a call must not wait: see [`ScriptRecords::leave_loop`]. Each
    /// event loop then has [`ScriptRecords`] of its own, with a number after those of the threads.
    /// Script threads call [`Self::begin`], [`Self::end`] with them.
    fn runs_on_loops(&self) -> bool {
        false
    }

    /// Returns the statistics of the functions that were called.
    fn statistics(&self) -> Vec<FunctionStatistics>;

    /// Returns the memory that the states of the functions share.
    fn memory(&self) -> ScriptMemory {
        ScriptMemory::default()
    }
}

/// Event loops that call functions themselves, at most.
pub const SCRIPT_LOOPS_MAX: usize = 256;

/// Functions that are called periodically, at most. Further ones are not called.
pub const SCRIPT_PERIODIC_MAX: usize = 256;

/// Settings of the threads that call functions.
#[derive(Clone, Debug)]
pub struct ExtensionSettings {
    /// Number of threads; at least 1.
    pub threads: usize,
    /// Most calls that wait for one of the threads, or for a lock.
    pub queue_max: usize,
    /// Functions that are called periodically, with an empty key and value, each with
    /// [`ScriptRecords`] of its own; [`SCRIPT_PERIODIC_MAX`] at most.
    pub periodic: Vec<Periodic>,
}

impl Default for ExtensionSettings {
    fn default() -> Self {
        Self { threads: SCRIPT_THREADS, queue_max: SCRIPT_QUEUE_MAX, periodic: Vec::new() }
    }
}

/// Default of [`ExtensionSettings::threads`], as Tokyo Tyrant.
pub const SCRIPT_THREADS: usize = 8;

/// Default of [`ExtensionSettings::queue_max`].
pub const SCRIPT_QUEUE_MAX: usize = 1024;

/// A function that is called periodically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Periodic {
    /// Name of the function.
    pub function: String,
    /// Time from the beginning of a call to that of the next.
    pub every: Duration,
}

impl Periodic {
    /// Shortest interval. A shorter one counts as this.
    pub const EVERY_MIN: Duration = Duration::from_millis(1);
}

/// Reason why a function failed, in a short text for its caller. The extension has logged it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExtensionError(pub String);
