//! Monitor: an HTTP listener of its own for metrics, health, readiness and the console.
//!
//! Thread model: one thread accepts, one takes the figures of the dashboard, and each connection
//! has a thread until its one response is sent, [`MONITOR_CONNECTIONS_MAX`] at most. None is an
//! event loop, so the monitor answers while all loops are busy, and also before the databases are
//! open.

mod console;
mod exchange;
mod figures;
mod live;
mod readiness;
mod relay;
mod turns;

use crate::admin::metrics::{Format, Metric, Samples, collect, collect_process, families};
use crate::admin::server_stats::seconds_since_1970;
use crate::net::listener::{Beginning, Listener};
use crate::ops::stop_signal::StopSignal;
use crate::server::Handle;
use crate::{Endpoint, Error, Result};
use exchange::{Incoming, Refusal, Response, respond};
use figures::Past;
use parking_lot::{Mutex, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ioctl_fionbio};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use turns::Turns;
use wire::http::{HostNames, Status};
use wire::limits::HTTP_HEAD_BYTES_MAX;

pub use readiness::ReadinessLimits;
pub use turns::MONITOR_RELAYS_MAX;

/// Most connections at the same time. A further one takes the place of the oldest whose request has
/// not arrived; if all have, it is closed with an error.
pub const MONITOR_CONNECTIONS_MAX: usize = 16;

/// Longest time from the beginning of a connection to the end of its response. A request about
/// records has this time for its head.
pub const MONITOR_EXCHANGE_MAX: Duration = Duration::from_secs(10);

/// Longest head of a request, in bytes: as long as for a database, so that each key has a place.
pub const MONITOR_HEAD_BYTES_MAX: usize = HTTP_HEAD_BYTES_MAX;

/// Permission bits of a Unix socket. Without users its clients have all rights, so they are for the
/// server's own user, whatever the umask is.
const SOCKET_MODE: u32 = 0o600;

/// Longest time in which an event loop goes round, if it is healthy.
const HEALTH_WAIT: Duration = Duration::from_secs(5);

/// Pause after `accept` has failed for lack of a resource such as descriptors.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Databases and limits that the responses are about.
struct State {
    stop: StopSignal,
    limits: Mutex<ReadinessLimits>,
    /// Names by which clients may address the monitor.
    hosts: HostNames,
    /// Handles of the servers, by the names of their databases.
    /// A response about the servers holds the lock: it may be the last owner of a database, which
    /// must be closed when the monitor ends.
    servers: RwLock<Vec<(String, Handle)>>,
    /// Time of the start, in seconds since 1970, by which a page knows this process.
    started_s: f64,
    /// Past figures of the databases, by their names.
    past: Mutex<BTreeMap<String, Past>>,
    /// Step of the start, until all servers are there.
    starting: Mutex<Option<String>>,
    connections: AtomicUsize,
    /// Requests about records under way.
    relays: Turns,
    /// Connections whose requests have not arrived, the oldest first.
    silent: Mutex<VecDeque<Arc<TcpStream>>>,
}

/// Listener for metrics, health and readiness, until it is dropped.
pub struct Monitor {
    state: Arc<State>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Monitor {
    /// Listens on `endpoint`, and answers from now on. The process counts as starting until
    /// [`Monitor::set_started`].
    pub fn start(endpoint: &Endpoint, limits: ReadinessLimits, hosts: HostNames) -> Result<Self> {
        let listeners = Listener::bind(endpoint, Beginning::Plain, Some(SOCKET_MODE))?;
        let addresses = listeners.iter().filter_map(Listener::local_address).collect();
        let state = Arc::new(State {
            stop: StopSignal::new().map_err(Error::system("make an eventfd"))?,
            limits: Mutex::new(limits),
            hosts,
            servers: RwLock::default(),
            started_s: seconds_since_1970(),
            past: Mutex::default(),
            starting: Mutex::new(Some("the process is starting".to_owned())),
            connections: AtomicUsize::new(0),
            relays: Turns::default(),
            silent: Mutex::default(),
        });
        // If a thread does not start, this ends the ones before.
        let mut monitor = Self { state, addresses, threads: Vec::new() };
        let state = Arc::clone(&monitor.state);
        monitor.begin("admin", move || accept(&state, &listeners))?;
        let state = Arc::clone(&monitor.state);
        monitor.begin("admin-figures", move || take_figures(&state))?;
        Ok(monitor)
    }

    /// Starts a thread, which ends with the monitor.
    fn begin(&mut self, name: &str, life: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = Builder::new().name(name.into()).spawn(life);
        self.threads.push(thread.map_err(Error::system("start a thread"))?);
        Ok(())
    }

    /// Returns the addresses that the monitor is bound to, without Unix sockets.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sets what `/ready` says until [`Monitor::set_started`].
    pub fn set_starting(&self, step: impl Into<String>) {
        *self.state.starting.lock() = Some(step.into());
    }

    /// Adds a server. `name` is that of its database in the labels of the metrics.
    pub fn add(&self, name: impl Into<String>, handle: Handle) {
        self.state.servers.write().push((name.into(), handle));
    }

    /// Ends the start of the process: all servers are added.
    pub fn set_started(&self) {
        *self.state.starting.lock() = None;
    }

    /// Changes the limits of readiness.
    pub fn set_limits(&self, limits: ReadinessLimits) {
        *self.state.limits.lock() = limits;
    }

    /// Returns names, types, labels and meanings of all metrics.
    pub fn metrics() -> Vec<[String; 4]> {
        families().collect()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.state.stop.set();
        for thread in self.threads.drain(..) {
            // The panic was already printed.
            let _ = thread.join();
        }
        self.state.servers.write().clear();
    }
}

/// Accepts connections until the monitor is dropped.
fn accept(state: &Arc<State>, listeners: &[Listener]) {
    let mut watched: Vec<PollFd<'_>> = listeners
        .iter()
        .map(|listener| PollFd::new(listener, PollFlags::IN))
        .chain([PollFd::new(&state.stop, PollFlags::IN)])
        .collect();
    while !state.stop.is_set() {
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!("the admin listener ends, it cannot wait for connections: {error}");
                return;
            }
        }
        for (listener, watched) in listeners.iter().zip(&watched) {
            if watched.revents().is_empty() {
                continue;
            }
            match listener.accept() {
                Ok(socket) => begin(state, socket),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    tracing::error!("cannot accept an admin connection: too many open files");
                    std::thread::sleep(SHORTAGE_PAUSE);
                }
                // The client is gone already.
                Err(_) => {}
            }
        }
    }
}

/// Takes the figures of the databases until the monitor is dropped.
fn take_figures(state: &State) {
    let mut next = Instant::now();
    while !state.stop.is_set() {
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            figures::tick(state);
            // A tick that was late moves all that follow.
            next = Instant::now() + figures::TICK;
            continue;
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&state.stop, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!("the history of the console ends: cannot wait: {error}");
                return;
            }
        }
    }
}

/// Serves a connection on a thread of its own, or refuses it.
fn begin(state: &Arc<State>, socket: OwnedFd) {
    let until = Instant::now() + MONITOR_EXCHANGE_MAX;
    if ioctl_fionbio(&socket, false).is_err() {
        return;
    }
    // The socket is only read and written, which works on any kind of it.
    let socket = Arc::new(TcpStream::from(socket));
    let place = Place::new(state, &socket);
    if place.number > MONITOR_CONNECTIONS_MAX && !state.end_silent() {
        exchange::refuse(&socket, Refusal::TooMany);
        return;
    }
    state.silent.lock().push_back(Arc::clone(&socket));
    let serve = move || {
        let _ended = respond(&socket, until, &place.state.hosts, |incoming| {
            place.end_silence();
            match relay::answer(&place.state, incoming)? {
                relay::Answered::Other => Ok(Some(place.state.answer(incoming))),
                relay::Answered::Response(response) => Ok(Some(response)),
                relay::Answered::Sent => Ok(None),
            }
        });
    };
    if let Err(error) = Builder::new().name("admin-connection".into()).spawn(serve) {
        tracing::error!("cannot serve an admin connection: {error}");
    }
}

/// Place of a connection among those at the same time.
struct Place {
    state: Arc<State>,
    socket: Arc<TcpStream>,
    number: usize,
}

impl Place {
    fn new(state: &Arc<State>, socket: &Arc<TcpStream>) -> Self {
        let number = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
        Self { state: Arc::clone(state), socket: Arc::clone(socket), number }
    }

    /// Notes that the request has arrived.
    fn end_silence(&self) {
        self.state.silent.lock().retain(|socket| !Arc::ptr_eq(socket, &self.socket));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end_silence();
        self.state.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    /// Ends the oldest connection whose request has not arrived, and so its thread. Returns whether
    /// there was one.
    fn end_silent(&self) -> bool {
        let Some(oldest) = self.silent.lock().pop_front() else { return false };
        // The client may be gone already.
        let _ = oldest.shutdown(Shutdown::Both);
        true
    }

    /// Returns the response to a request that is about no record.
    fn answer(&self, incoming: &Incoming<'_>) -> Response {
        let Incoming { path, head, .. } = incoming;
        if !incoming.reads() {
            return Response::text(Status::MethodNotAllowed, "only GET and HEAD");
        }
        if let Some(response) = console::response(path, head) {
            return response;
        }
        match *path {
            b"/" => Response::text(
                Status::Ok,
                "/ui/      console for a browser\n\
                 /metrics  Prometheus or OpenMetrics\n/health   whether the process makes progress\n\
                 /ready    whether clients should be sent here\n\
                 /slow     the last slow requests",
            ),
            b"/metrics" => {
                let format = Format::preferred(&head.list("Accept").unwrap_or_default());
                let body = self.samples().text(format).into_bytes();
                Response::new(Status::Ok, format.content_type(), body)
            }
            b"/health" => verdict("healthy", self.unhealthy(), &[]),
            b"/ready" => verdict("ready", self.unready(), &self.warnings()),
            b"/slow" => Response::new(Status::Ok, "application/x-ndjson", self.slow_requests()),
            _ => {
                let text = "this is the admin listener of a tyrant server: there are /ui/, /metrics, \
                            /health, /ready and /slow; records are at the port of their database";
                Response::text(Status::NotFound, text)
            }
        }
    }

    fn samples(&self) -> Samples {
        let mut samples = Samples::new();
        collect_process(&mut samples);
        let is_ready = u8::from(self.unready().is_empty());
        samples.add(Metric::Ready, &[], f64::from(is_ready));
        for (name, handle) in self.servers.read().iter() {
            handle.with_shared(|shared| collect(shared, name, &mut samples));
        }
        samples
    }

    /// Returns the last slow requests of each database, as lines of JSON.
    fn slow_requests(&self) -> Vec<u8> {
        let mut lines = String::new();
        for (name, handle) in self.servers.read().iter() {
            let last = handle.with_shared(|shared| shared.slow_log.last()).unwrap_or_default();
            for slow in last {
                lines.push_str(&slow.json(name));
                lines.push('\n');
            }
        }
        lines.into_bytes()
    }

    /// Returns the databases whose event loops do not go round.
    fn unhealthy(&self) -> Vec<String> {
        let servers = self.servers.read();
        // Each has the whole time, also beside one that does not move.
        std::thread::scope(|scope| {
            let begin = |(name, handle): &'_ (String, Handle)| {
                let handle = handle.clone();
                (name.clone(), scope.spawn(move || handle.responds_within(HEALTH_WAIT)))
            };
            let waiting: Vec<_> = servers.iter().map(begin).collect();
            let stuck = waiting.into_iter().filter_map(|(name, thread)| {
                let seconds = HEALTH_WAIT.as_secs();
                let is_stuck = !thread.join().unwrap_or(false);
                is_stuck.then(|| format!("{name}: an event loop has not moved for {seconds} s"))
            });
            stuck.collect()
        })
    }

    /// Returns what an operator should end, while clients may be sent here.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, handle) in self.servers.read().iter() {
            let found = handle.with_shared(|shared| shared.warnings.found());
            let found = found.iter().flat_map(|found| &found.warnings);
            warnings.extend(found.map(|warning| about(name, &warning.text)));
        }
        warnings
    }

    /// Returns why clients should not be sent here.
    fn unready(&self) -> Vec<String> {
        let mut reasons: Vec<String> = self.starting.lock().iter().cloned().collect();
        let limits = *self.limits.lock();
        for (name, handle) in self.servers.read().iter() {
            let found = handle.with_shared(|shared| readiness::reasons(shared, limits));
            let found = found.unwrap_or_else(|| vec!["the server has ended".to_owned()]);
            reasons.extend(found.into_iter().map(|reason| format!("{name}: {reason}")));
        }
        reasons
    }
}

/// Returns a text about a database, which may begin with its name already.
fn about(name: &str, text: &str) -> String {
    match text.starts_with(name) {
        true => text.to_owned(),
        false => format!("{name}: {text}"),
    }
}

/// Returns a response that names what is true, or why it is not, and warnings.
fn verdict(what: &str, reasons: Vec<String>, warnings: &[String]) -> Response {
    let (status, mut text) = match reasons.is_empty() {
        true => (Status::Ok, what.to_owned()),
        false => (Status::ServiceUnavailable, format!("not {what}:\n{}", reasons.join("\n"))),
    };
    for warning in warnings {
        text.push_str("\nwarning: ");
        text.push_str(warning);
    }
    Response::text(status, &text)
}

#[cfg(test)]
mod tests {
    use super::about;

    #[test]
    fn a_warning_names_its_database_once() {
        assert_eq!(about("/d/a.tch", "/d/a.tch is a copy"), "/d/a.tch is a copy");
        assert_eq!(about("/d/a.tch", "the disk is full"), "/d/a.tch: the disk is full");
    }
}
