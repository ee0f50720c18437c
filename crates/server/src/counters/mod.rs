//! Counters: counts of requests and events, cheap enough for every request.
//!
//! Thread model: each thread that executes requests has a set of its own and is the only one to
//! write it. So a count is a plain load and store. Readers add up the sets.

mod histogram;
mod requests;
mod tally;

pub(crate) use histogram::{Histogram, HistogramTotal};
pub(crate) use requests::{RequestBatch, SLOTS, labels_of, slot_of};
pub(crate) use tally::Tally;

use cabinet::Error;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::RequestKind;

/// Adds to a number that no other thread writes.
#[inline]
fn add_owned(cell: &AtomicU64, amount: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

macro_rules! counts {
    ($($name:ident $label:literal,)*) => {
        /// A counted event. The first ones are Tokyo Tyrant's, in its order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Count { $($name,)* }

        impl Count {
            /// All counts, in order.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name in `stat` and `stats`.
            pub(crate) fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

counts! {
    Put "cnt_put",
    PutKeep "cnt_putkeep",
    PutCat "cnt_putcat",
    PutShift "cnt_putshl",
    PutNoReply "cnt_putnr",
    Out "cnt_out",
    Get "cnt_get",
    GetMany "cnt_mget",
    ValueSize "cnt_vsiz",
    IterInit "cnt_iterinit",
    IterNext "cnt_iternext",
    KeysWithPrefix "cnt_fwmkeys",
    AddInt "cnt_addint",
    AddDouble "cnt_adddouble",
    Ext "cnt_ext",
    Sync "cnt_sync",
    Optimize "cnt_optimize",
    Vanish "cnt_vanish",
    Copy "cnt_copy",
    Restore "cnt_restore",
    SetMaster "cnt_setmst",
    Records "cnt_rnum",
    Size "cnt_size",
    Stat "cnt_stat",
    Misc "cnt_misc",
    Replicate "cnt_repl",
    PutMiss "cnt_put_miss",
    OutMiss "cnt_out_miss",
    GetMiss "cnt_get_miss",
    Touch "cnt_touch",
    CompareAndSwap "cnt_cas",
    Meta "cnt_meta",
    TouchMiss "touch_misses",
    CasHit "cas_hits",
    CasMiss "cas_misses",
    CasBadValue "cas_badval",
    IncrementHit "incr_hits",
    IncrementMiss "incr_misses",
    DecrementHit "decr_hits",
    DecrementMiss "decr_misses",
    Authentication "auth_cmds",
    AuthenticationError "auth_errors",
    LoginTooSoon "logins_refused",
    BytesRead "bytes_read",
    BytesWritten "bytes_written",
    Accepted "connections_accepted",
    Moved "connections_moved",
    Rejected "rejected_connections",
    TimedOut "connections_timed_out",
    IdleKick "idle_kicks",
    Refused "requests_refused",
    DeniedByMask "denied_mask",
    DeniedByRight "denied_right",
    DeniedReadOnly "denied_read_only",
    DeniedUnavailable "denied_unavailable",
    DeniedNoSpace "denied_no_space",
    SlowSubscriber "slow_subscribers",
    StoreTooLarge "store_too_large",
    StoreNoMemory "store_no_memory",
    Pooled "requests_pooled",
    AwaitedReads "requests_awaiting_reads",
    TlsHandshake "tls_handshakes",
    TlsFailure "tls_failures",
}

/// Counts of one thread, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counters {
    counts: [AtomicU64; Count::ALL.len()],
    /// Number of requests of each kind.
    requests: [AtomicU64; RequestKind::COUNT],
    /// Times of requests, by [`slot_of`].
    pub(crate) durations: [Histogram; SLOTS],
    /// Times for which replies waited until their changes were durable or replicated.
    pub(crate) acknowledgement: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            durations: std::array::from_fn(|_| Histogram::default()),
            acknowledgement: Histogram::default(),
        }
    }
}

impl Counters {
    /// Adds 1 to a count. Only the thread that owns the set may call this.
    #[inline]
    pub(crate) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Adds `amount` to a count. Only the thread that owns the set may call this.
    #[inline]
    pub(crate) fn add(&self, what: Count, amount: u64) {
        add_owned(&self.counts[what as usize], amount);
    }

    /// Counts a request that the state of the database denies, whoever sends it. Only the thread
    /// that owns the set may call this.
    pub(crate) fn count_denial(&self, error: &Error) {
        let reason = match error {
            Error::ReadOnly(_) => Count::DeniedReadOnly,
            Error::Unavailable(_) => Count::DeniedUnavailable,
            Error::NoSpace { .. } | Error::NoLogSpace { .. } | Error::NoMemory { .. } => {
                Count::DeniedNoSpace
            }
            _ => return,
        };
        self.count(reason);
    }

    /// Counts an executed request. Only the thread that owns the set may call this.
    #[inline]
    pub(crate) fn count_request(&self, kind: RequestKind) {
        add_owned(&self.requests[kind.number()], 1);
    }

    /// Counts the time of requests that were answered together. Only the thread that owns the set
    /// may call this.
    #[inline]
    pub(crate) fn time(&self, batch: &RequestBatch, time: Duration) {
        batch.for_each(|slot, count| self.durations[slot].add(time, count.into()));
    }

    /// Returns the value of a count.
    pub(crate) fn value(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }
}

/// The counters of all threads.
#[derive(Debug, Default)]
pub(crate) struct AllCounters {
    counters: Mutex<Vec<Arc<Counters>>>,
    /// All counts at the last reset.
    totals_at_reset: Mutex<Vec<u64>>,
    /// Requests of each kind at the last reset.
    requests_at_reset: Mutex<Vec<u64>>,
    pub(crate) shown: Shown,
}

/// Differences of counts as they were shown last. The counts of a difference are not read at the
/// same time, so without this it could fall.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) hits: AtomicU64,
    pub(crate) logins: AtomicU64,
}

impl Shown {
    /// Returns a difference, or the last one if that was greater.
    pub(crate) fn risen(last: &AtomicU64, difference: u64) -> u64 {
        last.fetch_max(difference, Ordering::Relaxed).max(difference)
    }
}

impl AllCounters {
    /// Returns a new set of counters for one thread.
    pub(crate) fn add_thread(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().push(Arc::clone(&counters));
        counters
    }

    /// Returns the sum of a count over all threads.
    pub(crate) fn total(&self, what: Count) -> u64 {
        self.counters.lock().iter().map(|counters| counters.value(what)).sum()
    }

    /// Returns the sum of a count over all threads since the last reset.
    pub(crate) fn total_since_reset(&self, what: Count) -> u64 {
        let before = self.totals_at_reset.lock().get(what as usize).copied().unwrap_or(0);
        self.total(what).saturating_sub(before)
    }

    /// Returns the number of requests of a kind over all threads.
    pub(crate) fn requests(&self, kind: RequestKind) -> u64 {
        let of =
            |counters: &Arc<Counters>| counters.requests[kind.number()].load(Ordering::Relaxed);
        self.counters.lock().iter().map(of).sum()
    }

    /// Returns the number of requests of a kind over all threads since the last reset.
    pub(crate) fn requests_since_reset(&self, kind: RequestKind) -> u64 {
        let before = self.requests_at_reset.lock().get(kind.number()).copied().unwrap_or(0);
        self.requests(kind).saturating_sub(before)
    }

    /// Returns the sum of a histogram over all threads. `of` returns that of a thread.
    pub(crate) fn histogram(&self, of: impl Fn(&Counters) -> &Histogram) -> HistogramTotal {
        let mut total = HistogramTotal::default();
        for counters in self.counters.lock().iter() {
            of(counters).add_to(&mut total);
        }
        total
    }

    /// Resets the counts of memcached's `stats` and of Redis's `INFO`.
    pub(crate) fn reset_totals(&self) {
        let totals = Count::ALL.iter().map(|what| self.total(*what)).collect();
        *self.totals_at_reset.lock() = totals;
        let requests = RequestKind::all().map(|kind| self.requests(kind));
        *self.requests_at_reset.lock() = [0].into_iter().chain(requests).collect();
    }
}
