//! Slow log: requests that took longer than a threshold.
//!
//! Thread model: event loops and pools put requests into a ring of a fixed size, and never wait for
//! the log, which may be on a slow disk. A thread of its own writes the lines. If it falls behind
//! by more than the ring, the oldest lines are lost and counted.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::RequestKind;

/// Requests that the ring keeps.
pub(crate) const SLOW_REQUESTS_MAX: usize = 128;

/// Longest part of a key that is kept, in bytes.
pub(crate) const SLOW_KEY_BYTES_MAX: usize = 64;

/// Threshold if no request is slow.
const NEVER: u64 = u64::MAX;

/// Time that the server has taken for a request before the last part of its execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Time for a place in the queue of a pool.
    pub(crate) queue: Duration,
    /// Time until a password was verified: for a thread, and for its hash.
    pub(crate) login: Duration,
    /// Time until a store outside of this process answered.
    pub(crate) store: Duration,
    /// Time for reads of the disk that the event loop had under way.
    pub(crate) disk: Duration,
    /// Time for the earlier pieces of an upload or a large reply.
    pub(crate) pieces: Duration,
}

impl Taken {
    /// Returns all of it.
    #[inline]
    pub(crate) fn total(&self) -> Duration {
        self.queue + self.login + self.store + self.disk + self.pieces
    }
}

/// A slow request, and where its time went.
#[derive(Clone, Debug)]
pub(crate) struct SlowRequest {
    pub(crate) ended: SystemTime,
    pub(crate) kind: RequestKind,
    /// Beginning of the key, at most [`SLOW_KEY_BYTES_MAX`] bytes.
    pub(crate) key: Box<[u8]>,
    /// Length of the whole key, in bytes.
    pub(crate) key_bytes: usize,
    pub(crate) client: Option<SocketAddr>,
    /// Number of requests that arrived and were answered together; the first is described.
    pub(crate) requests: u32,
    pub(crate) request_bytes: usize,
    pub(crate) reply_bytes: usize,
    /// Time for which it was not executed: for other requests of its event loop, or for a place in
    /// the queue of a pool.
    pub(crate) queue: Duration,
    /// Parts before the last part of its execution, as in [`Taken`].
    pub(crate) login: Duration,
    pub(crate) store: Duration,
    pub(crate) pieces: Duration,
    /// CPU time of its execution.
    pub(crate) cpu: Duration,
    /// Time for which its execution waited: for the disk, for locks, or for the CPU.
    pub(crate) wait: Duration,
    /// Time for which its reply waited until the change was durable or replicated.
    pub(crate) acknowledgement: Duration,
}

impl SlowRequest {
    /// Returns a request that has just ended, without times.
    pub(crate) fn new(kind: RequestKind, key: &[u8]) -> Self {
        Self {
            ended: SystemTime::now(),
            kind,
            key: key[..key.len().min(SLOW_KEY_BYTES_MAX)].into(),
            key_bytes: key.len(),
            client: None,
            requests: 1,
            request_bytes: 0,
            reply_bytes: 0,
            queue: Duration::ZERO,
            login: Duration::ZERO,
            store: Duration::ZERO,
            pieces: Duration::ZERO,
            cpu: Duration::ZERO,
            wait: Duration::ZERO,
            acknowledgement: Duration::ZERO,
        }
    }

    /// Returns the request with the parts of the time that was taken before, which its queue has
    /// as a whole.
    pub(crate) fn with_parts_of(self, taken: &Taken) -> Self {
        let Taken { login, store, disk, pieces, .. } = *taken;
        let queue = self.queue.saturating_sub(login + store + disk + pieces);
        Self { queue, login, store, pieces, wait: self.wait + disk, ..self }
    }

    /// Returns all of its time.
    pub(crate) fn total(&self) -> Duration {
        let before = self.queue + self.login + self.store + self.pieces;
        before + self.cpu + self.wait + self.acknowledgement
    }

    /// Returns the beginning of the key as text, with `...` if it is longer.
    fn shown_key(&self) -> String {
        let dots = if self.key_bytes > self.key.len() { "..." } else { "" };
        format!("{}{dots}", self.key.escape_ascii())
    }

    /// Returns the name of the part that took most of its time, and that time.
    fn longest_part(&self) -> (&'static str, Duration) {
        let parts = [
            ("execution", self.cpu),
            ("queue", self.queue),
            ("login", self.login),
            ("cluster", self.store),
            ("earlier pieces", self.pieces),
            ("waiting", self.wait),
            ("acknowledgement", self.acknowledgement),
        ];
        parts.into_iter().max_by_key(|(_, time)| *time).unwrap_or_default()
    }

    /// Returns what the console shows of it: time of its end, command, key, seconds, longest part
    /// and its seconds, client.
    pub(crate) fn row(&self) -> serde_json::Value {
        let at = self.ended.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (part, part_time) = self.longest_part();
        serde_json::json!([
            at.as_secs_f64(),
            self.kind.command(),
            self.shown_key(),
            self.total().as_secs_f64(),
            part,
            part_time.as_secs_f64(),
            self.shown_client(),
        ])
    }

    fn shown_client(&self) -> String {
        self.client.map_or_else(|| "unix".to_owned(), |client| client.to_string())
    }

    /// Returns the request to a database as a line of JSON.
    pub(crate) fn json(&self, database: &str) -> String {
        let at = self.ended.duration_since(UNIX_EPOCH).unwrap_or_default();
        serde_json::json!({
            "database": database,
            "time": at.as_secs_f64(),
            "protocol": self.kind.protocol(),
            "command": self.kind.command(),
            "key": self.shown_key(),
            "key_bytes": self.key_bytes,
            "client": self.shown_client(),
            "requests": self.requests,
            "request_bytes": self.request_bytes,
            "reply_bytes": self.reply_bytes,
            "seconds": self.total().as_secs_f64(),
            "queue_seconds": self.queue.as_secs_f64(),
            "login_seconds": self.login.as_secs_f64(),
            "store_seconds": self.store.as_secs_f64(),
            "pieces_seconds": self.pieces.as_secs_f64(),
            "cpu_seconds": self.cpu.as_secs_f64(),
            "wait_seconds": self.wait.as_secs_f64(),
            "acknowledgement_seconds": self.acknowledgement.as_secs_f64(),
        })
        .to_string()
    }

    fn log(&self) {
        tracing::warn!(
            target: "slow",
            protocol = self.kind.protocol(),
            command = self.kind.command(),
            key = self.shown_key(),
            key_bytes = self.key_bytes,
            client = self.shown_client(),
            requests = self.requests,
            request_bytes = self.request_bytes,
            reply_bytes = self.reply_bytes,
            seconds = self.total().as_secs_f64(),
            queue_seconds = self.queue.as_secs_f64(),
            login_seconds = self.login.as_secs_f64(),
            store_seconds = self.store.as_secs_f64(),
            pieces_seconds = self.pieces.as_secs_f64(),
            cpu_seconds = self.cpu.as_secs_f64(),
            wait_seconds = self.wait.as_secs_f64(),
            acknowledgement_seconds = self.acknowledgement.as_secs_f64(),
            "slow request"
        );
    }
}

/// The slow requests of a server.
#[derive(Debug)]
pub(crate) struct SlowLog {
    threshold_ns: AtomicU64,
    state: Mutex<State>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ring: VecDeque<SlowRequest>,
    /// Number of requests at the end of the ring that are not written.
    unwritten: usize,
    total: u64,
    /// Number of requests at the last reset.
    reset_at: u64,
    lost: u64,
    stopping: bool,
}

impl SlowLog {
    pub(crate) fn new(threshold: Option<Duration>) -> Self {
        let log = Self {
            threshold_ns: AtomicU64::new(NEVER),
            state: Mutex::default(),
            added: Condvar::new(),
        };
        log.set_threshold(threshold);
        log
    }

    /// Sets the time from which requests are slow, if any are.
    pub(crate) fn set_threshold(&self, threshold: Option<Duration>) {
        let ns = threshold.map(|time| u64::try_from(time.as_nanos()).unwrap_or(NEVER));
        self.threshold_ns.store(ns.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Returns whether any request can be slow.
    pub(crate) fn is_on(&self) -> bool {
        self.threshold_ns.load(Ordering::Relaxed) != NEVER
    }

    /// Returns whether a request of this time is slow.
    #[inline]
    pub(crate) fn is_slow(&self, time: Duration) -> bool {
        let ns = self.threshold_ns.load(Ordering::Relaxed);
        ns != NEVER && time.as_nanos() >= u128::from(ns)
    }

    /// Adds a request. The thread that writes it does not hold the lock meanwhile.
    #[cold]
    pub(crate) fn add(&self, request: SlowRequest) {
        let mut state = self.state.lock();
        if state.ring.len() >= SLOW_REQUESTS_MAX {
            state.ring.pop_front();
            if state.unwritten >= SLOW_REQUESTS_MAX {
                state.unwritten -= 1;
                state.lost += 1;
            }
        }
        state.ring.push_back(request);
        state.unwritten += 1;
        state.total += 1;
        drop(state);
        self.added.notify_one();
    }

    /// Returns the requests in the ring, the last one first.
    pub(crate) fn last(&self) -> Vec<SlowRequest> {
        self.state.lock().ring.iter().rev().cloned().collect()
    }

    /// Returns the requests in the ring since the last reset, the last one first, with their
    /// numbers from 0 on.
    pub(crate) fn since_reset(&self) -> Vec<(u64, SlowRequest)> {
        let state = self.state.lock();
        let numbers = (state.reset_at..state.total).rev();
        numbers.zip(state.ring.iter().rev().cloned()).collect()
    }

    /// Leaves the requests until now out of [`Self::since_reset`].
    pub(crate) fn reset(&self) {
        let mut state = self.state.lock();
        state.reset_at = state.total;
    }

    /// Returns the number of slow requests, and of those that were not written.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.total, state.lost)
    }

    /// Writes requests to the log until [`SlowLog::stop`], and what is left then.
    pub(crate) fn write(&self) {
        loop {
            let mut state = self.state.lock();
            while state.unwritten == 0 {
                if state.stopping {
                    return;
                }
                self.added.wait(&mut state);
            }
            let first = state.ring.len() - state.unwritten;
            let requests: Vec<SlowRequest> = state.ring.iter().skip(first).cloned().collect();
            state.unwritten = 0;
            drop(state);
            requests.iter().for_each(SlowRequest::log);
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.added.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &[u8]) -> SlowRequest {
        SlowRequest::new(wire::memcached::Kind::Get.into(), key)
    }

    #[test]
    fn a_ring_keeps_the_last_requests_and_counts_those_that_were_not_written() {
        for requests in [SLOW_REQUESTS_MAX - 1, SLOW_REQUESTS_MAX, SLOW_REQUESTS_MAX + 1] {
            let log = SlowLog::new(None);
            (0..requests).for_each(|number| log.add(request(number.to_string().as_bytes())));
            let last = log.last();
            assert_eq!(last.len(), requests.min(SLOW_REQUESTS_MAX));
            assert_eq!(&*last[0].key, (requests - 1).to_string().as_bytes());
            let lost = requests.saturating_sub(SLOW_REQUESTS_MAX);
            assert_eq!(log.totals(), (requests as u64, lost as u64));
            log.stop();
            log.write();
            (0..SLOW_REQUESTS_MAX).for_each(|_| log.add(request(b"")));
            assert_eq!(log.totals().1, lost as u64);
        }
    }

    #[test]
    fn the_time_taken_before_is_divided_into_its_parts() {
        let ms = Duration::from_millis;
        let (store, pieces) = (ms(300), ms(4000));
        let taken = Taken { queue: ms(1), login: ms(20), store, disk: ms(50_000), pieces };
        assert_eq!(taken.total(), ms(54_321));
        let whole = SlowRequest { queue: ms(54_326), cpu: ms(7), wait: ms(1), ..request(b"k") };
        let divided = whole.clone().with_parts_of(&taken);
        assert_eq!(divided.queue, ms(6));
        assert_eq!((divided.login, divided.store, divided.pieces), (ms(20), store, pieces));
        assert_eq!(divided.wait, ms(50_001));
        assert_eq!(divided.total(), whole.total());
    }

    #[test]
    fn a_request_is_slow_from_the_threshold_on() {
        let log = SlowLog::new(None);
        assert!(!log.is_on() && !log.is_slow(Duration::MAX));
        log.set_threshold(Some(Duration::from_nanos(2)));
        assert!(log.is_on() && !log.is_slow(Duration::from_nanos(1)));
        assert!(log.is_slow(Duration::from_nanos(2)));
    }

    #[test]
    fn a_line_has_the_beginning_of_the_key_as_text() {
        for bytes in [SLOW_KEY_BYTES_MAX - 1, SLOW_KEY_BYTES_MAX, SLOW_KEY_BYTES_MAX + 1] {
            let shown = request(&vec![b'k'; bytes]).shown_key();
            let kept = "k".repeat(bytes.min(SLOW_KEY_BYTES_MAX));
            let dots = if bytes > SLOW_KEY_BYTES_MAX { "..." } else { "" };
            assert_eq!(shown, kept + dots);
        }
        let line = request(b"a\"\n\xff").json("d");
        assert!(line.contains(r#""key":"a\\\"\\n\\xff","key_bytes":4"#), "{line}");
    }
}
