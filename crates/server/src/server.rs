//! Server: starts, runs and stops the threads.

use crate::net::event_loop::EventLoop;
use crate::net::hub::Hub;
use crate::net::listener::{Beginning, Listener};
use crate::net::login_pool::LOGIN_THREADS;
use crate::net::mailbox::Mailbox;
use crate::net::script_pool::Live;
use crate::net::{acceptor, login_pool, script_pool, worker_pool};
use crate::ops::stop_signal::StopSignal;
use crate::shared::{Shared, warnings};
use crate::{
    Config, ConnectionUpgrade, Endpoint, Error, Evaluator, Extension, ExtensionSettings, Records,
    Reload, Result, ScriptRecords,
};
use cabinet::Database;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Interval between two looks at the event loops while [`Handle::responds_within`] waits.
const RESPONSE_POLL: Duration = Duration::from_millis(5);

/// A server that is bound to its endpoints. [`Server::run`] serves them.
pub struct Server {
    hub: Arc<Hub>,
    listeners: Vec<Listener>,
    handle: Handle,
}

/// Controls a server from another thread; a signal handler may stop it.
#[derive(Clone)]
pub struct Handle {
    stop: Arc<StopSignal>,
    /// Not an owner: a handle may outlive the server, and must not keep the database open.
    hub: Weak<Hub>,
}

impl Handle {
    /// Stops the server: it accepts no further connection, finishes the requests that have begun to
    /// arrive and sends their replies within [`Config::stop_wait`], and returns from
    /// [`Server::run`]. Takes no lock and allocates nothing, so a signal handler may call it.
    pub fn stop(&self) {
        self.stop.set();
    }

    /// Blocks until every event loop has gone round, at most for `limit`. Returns whether all have,
    /// or the server has ended.
    pub fn responds_within(&self, limit: Duration) -> bool {
        let Some(hub) = self.hub.upgrade() else { return true };
        let beats = |mailbox: &Mailbox| mailbox.load.beats.load(Ordering::Relaxed);
        let before: Vec<u64> = hub.mailboxes.iter().map(beats).collect();
        for mailbox in hub.mailboxes.iter() {
            mailbox.wake();
        }
        let deadline = Instant::now() + limit;
        loop {
            let is_ending = hub.shared.served.is_stopping();
            let mut pairs = hub.mailboxes.iter().map(beats).zip(&before);
            if is_ending || pairs.all(|(now, before)| now != *before) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(RESPONSE_POLL);
        }
    }

    /// Calls `visit` with the state of the server, if it has not ended.
    pub(crate) fn with_shared<T>(&self, visit: impl FnOnce(&Shared) -> T) -> Option<T> {
        self.hub.upgrade().map(|hub| visit(&hub.shared))
    }

    /// Connects to the server as a client at `address`. Returns `None` if the server has ended, or
    /// has as many connections as it may have.
    pub(crate) fn connect(&self, address: Option<SocketAddr>) -> io::Result<Option<UnixStream>> {
        self.hub.upgrade().map_or(Ok(None), |hub| acceptor::connect(&hub, address))
    }

    /// Loads the functions of the extension again, in the background. If that fails, the present
    /// ones stay. Returns whether there is an extension.
    pub fn reload_extension(&self) -> bool {
        let hub = self.hub.upgrade().filter(|hub| hub.shared.has_extension());
        hub.iter().for_each(|hub| hub.scripts.reload());
        hub.is_some()
    }

    /// Calls `reload` from now on when a client asks for a reload of this server, which is server
    /// `number` of the process. A second call has no effect.
    pub fn set_reload(&self, reload: Weak<dyn Reload>, number: usize) {
        if let Some(hub) = self.hub.upgrade() {
            let _ = hub.shared.reload.set((reload, number));
        }
    }

    /// Takes those settings from `config` that change while the server runs: `connections_max`,
    /// `timeout`, `idle_timeout`, `stop_wait`, `slow_log_threshold`, `mask`, `scrub_interval`,
    /// `scrub_bytes_per_second` and `disk_free_warning_percent`, and the users, if there are users
    /// before and after. All others stay as they are. Clients whose user is removed, or has another
    /// password or token, have to log in again.
    pub fn reload(&self, config: &Config) {
        if let Some(hub) = self.hub.upgrade() {
            hub.shared.live.set(config);
            hub.shared.slow_log.set_threshold(config.slow_log_threshold);
            hub.shared.warnings.wake();
            if let (Some(present), Some(users)) = (&hub.shared.users, &config.users) {
                present.replace(Arc::clone(users));
            }
            // A loop that waits without a limit may have a time to watch now.
            for mailbox in hub.mailboxes.iter() {
                mailbox.wake();
            }
        }
    }

    /// Reads the certificates again, for the connections that follow. Those that are open keep
    /// theirs. If it fails, the certificates remain as they were. Returns what is wrong with them,
    /// a text each, or `None` if there are none.
    pub fn reload_certificates(&self) -> Result<Option<Vec<String>>> {
        let hub = self.hub.upgrade();
        match hub.as_ref().and_then(|hub| hub.shared.certificates.as_ref()) {
            Some(certificates) => {
                certificates.reload().map_err(Error::Tls)?;
                hub.iter().for_each(|hub| hub.shared.warnings.wake());
                Ok(hub.as_ref().map(|hub| warnings::texts_of_certificates(&hub.shared)))
            }
            None => Ok(None),
        }
    }
}

impl Server {
    /// Binds to all endpoints of `config`. Clients that connect before [`Server::run`] wait for it.
    pub fn bind(config: Config, database: Database) -> Result<Self> {
        if let Some(master) = config.own_master() {
            return Err(Error::OwnMaster(master.clone()));
        }
        let is_optional = config.tls.as_ref().is_some_and(|tls| tls.is_optional);
        let beginning = if is_optional { Beginning::Either } else { Beginning::Plain };
        let open = config.listen.iter().map(|endpoint| (endpoint, beginning));
        let tls = config.tls.iter().flat_map(|tls| &tls.listen);
        let mut listeners = Vec::new();
        for (endpoint, beginning) in open.chain(tls.map(|endpoint| (endpoint, Beginning::Tls))) {
            listeners.extend(Listener::bind(endpoint, beginning, config.socket_mode)?);
        }
        Self::with_listeners(config, database, listeners)
    }

    /// Fails with the error of [`Server::bind`] if the ports of `config` cannot be listened on at
    /// present: a start that would fail makes no database.
    pub fn check_ports(config: &Config) -> Result<()> {
        let tls = config.tls.iter().flat_map(|tls| &tls.listen);
        config.listen.iter().chain(tls).try_for_each(Listener::check)
    }

    /// Accepts connections from these listening sockets, which another process has bound, instead
    /// of binding to the endpoints of `config`. If there are endpoints for TLS, a socket is plain
    /// only if it has the port of a plain one, or is a Unix socket.
    pub fn inherit(config: Config, database: Database, sockets: Vec<OwnedFd>) -> Result<Self> {
        let is_port_of = |endpoints: &[Endpoint], port: u16| {
            endpoints.iter().any(|endpoint| match endpoint {
                Endpoint::Loopback { port: one } | Endpoint::Tcp { port: one, .. } => *one == port,
                Endpoint::Unix(_) => false,
            })
        };
        let beginning = |port: Option<u16>| match (&config.tls, port) {
            (None, _) => Beginning::Plain,
            // A Unix socket, of which other machines see nothing.
            (Some(_), None) => Beginning::Plain,
            (Some(tls), Some(port)) if is_port_of(&tls.listen, port) => Beginning::Tls,
            (Some(tls), Some(_)) if tls.is_optional => Beginning::Either,
            (Some(_), Some(port)) if is_port_of(&config.listen, port) => Beginning::Plain,
            (Some(_), Some(_)) => Beginning::Tls,
        };
        let mut listeners = Vec::new();
        for socket in sockets {
            let mut listener = Listener::inherit(socket)?;
            let port = listener.local_address().map(|address| address.port());
            listener.beginning = beginning(port);
            listeners.push(listener);
        }
        Self::with_listeners(config, database, listeners)
    }

    fn with_listeners(
        config: Config,
        database: Database,
        listeners: Vec<Listener>,
    ) -> Result<Self> {
        if listeners.is_empty() {
            return Err(Error::NoEndpoint);
        }
        let hub = Hub::new(config, database)?;
        let has_port = listeners.iter().any(|listener| listener.local_address().is_some());
        hub.shared.has_port.store(has_port, Ordering::Relaxed);
        let stop = Arc::clone(&hub.shared.served.stop);
        let handle = Handle { stop, hub: Arc::downgrade(&hub) };
        Ok(Self { hub, listeners, handle })
    }

    /// Returns the addresses that the server is bound to, without Unix sockets.
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(Listener::local_address).collect()
    }

    /// Returns those of [`Server::local_addresses`] that require TLS.
    pub fn tls_addresses(&self) -> Vec<SocketAddr> {
        let tls = self.listeners.iter().filter(|listener| listener.beginning == Beginning::Tls);
        tls.filter_map(Listener::local_address).collect()
    }

    /// Returns a handle that stops the server.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns access to the records, for a front end outside of this crate.
    pub fn records(&self) -> Records {
        Records::new(Arc::clone(&self.hub.shared))
    }

    /// Lets clients call the functions of `extension` from now on. A server has one at most:
    /// returns whether there was none. Called before [`Server::run`], which starts the threads.
    pub fn set_extension(
        &self,
        extension: Arc<dyn Extension>,
        settings: ExtensionSettings,
    ) -> bool {
        let is_new = self.hub.scripts.install(extension, settings);
        if is_new {
            let scripts = Arc::downgrade(&self.hub.scripts);
            let _ = self.hub.shared.scripts.set(scripts);
        }
        is_new
    }

    /// Lets clients of Redis's protocol send scripts from now on. A server has one interpreter at
    /// most: returns whether there was none.
    pub fn set_evaluator(&self, evaluator: Arc<dyn Evaluator>) -> bool {
        let weak = Arc::downgrade(&evaluator);
        let is_new = self.hub.evaluator.set(evaluator).is_ok();
        if is_new {
            let _ = self.hub.shared.evaluator.set(weak);
        }
        is_new
    }

    /// Returns the records for the functions of an [`crate::Extension`] that the caller runs
    /// itself, as script thread `thread` of `threads`.
    pub fn script_records(&self, thread: usize, threads: usize) -> Arc<ScriptRecords> {
        let shared = &self.hub.shared;
        let counters = shared.counters.add_thread();
        Arc::new(ScriptRecords::new(Arc::clone(shared), counters, thread, threads))
    }

    /// Hands the connections of WebDAV clients to `upgrade` from now on, until the server stops.
    pub fn set_upgrade(&self, upgrade: Arc<dyn ConnectionUpgrade>) {
        *self.hub.shared.upgrade.write() = Some(upgrade);
        self.hub.shared.upgrades.store(true, Ordering::Relaxed);
    }

    /// Serves until the server is stopped.
    pub fn run(self) -> Result<()> {
        let Self { hub, listeners, handle } = self;
        let shared = &hub.shared;
        let mut loops = Vec::new();
        let mut pool = Vec::new();
        let started = start(&hub, &handle, &mut loops, &mut pool);
        let accepted = started.and_then(|()| acceptor::accept(&hub, &listeners));
        drop(listeners);

        shared.served.stop.set();
        for mailbox in hub.mailboxes.iter() {
            mailbox.wake();
        }
        let mut served = loops.into_iter().map(join).fold(accepted, Result::and);
        // A thread that has taken over a loop was added before the one ended that had it.
        while let Some(successor) = hub.join_successor() {
            served = served.and(result_of(successor));
        }
        if let Some(upgrade) = shared.upgrade.write().take() {
            upgrade.stop();
        }
        if let Some(remote) = &shared.remote {
            remote.close();
        }
        hub.pool.stop();
        hub.evaluator.get().map(|evaluator| evaluator.kill());
        hub.logins.stop();
        hub.scripts.stop();
        shared.slow_log.stop();
        shared.warnings.stop();
        shared.replication.stop_following();
        let result = pool.into_iter().map(join).fold(served, Result::and);
        if let Some(log) = &shared.served.update_log {
            // Records may have changed after the thread of the log ended.
            log.close();
            log.wake();
        }
        shared.replication.stop_serving();
        for mailbox in hub.mailboxes.iter() {
            // Drop the messages that came after the loop ended.
            drop(mailbox.take());
        }
        result
    }
}

/// Guard of a thread: stops the server when the thread ends, even by a panic.
struct StopOnDrop(Handle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn start(
    hub: &Arc<Hub>,
    handle: &Handle,
    loops: &mut Vec<JoinHandle<Result<()>>>,
    pool: &mut Vec<JoinHandle<Result<()>>>,
) -> Result<()> {
    let shared = &hub.shared;
    for number in 0..hub.mailboxes.len() {
        let event_loop = Box::new(EventLoop::new(number, Arc::clone(hub))?);
        let handle = handle.clone();
        let stop = Arc::new(move || handle.stop());
        loops.push(spawn(format!("loop-{number}"), move || event_loop.run(stop))?);
    }
    for number in 0..shared.config.pool_threads.max(1) {
        let hub = Arc::clone(hub);
        let guard = StopOnDrop(handle.clone());
        pool.push(spawn(format!("pool-{number}"), move || {
            let _guard = guard;
            worker_pool::work(&hub);
            Ok(())
        })?);
    }
    let logins = if shared.users.is_some() { LOGIN_THREADS } else { 0 };
    for number in 0..logins {
        let hub = Arc::clone(hub);
        let guard = StopOnDrop(handle.clone());
        pool.push(spawn(format!("login-{number}"), move || {
            let _guard = guard;
            login_pool::work(&hub);
            Ok(())
        })?);
    }
    for number in 0..hub.scripts.threads() {
        let hub = Arc::clone(hub);
        let guard = StopOnDrop(handle.clone());
        let live = Live::new(&hub.scripts);
        pool.push(spawn(format!("script-{number}"), move || {
            let _guard = guard;
            script_pool::work(&hub, number, live);
            Ok(())
        })?);
    }
    if hub.scripts.loops_that_call() > 0 {
        let scripts = Arc::clone(&hub.scripts);
        let guard = StopOnDrop(handle.clone());
        pool.push(spawn("script-watch".into(), move || {
            let _guard = guard;
            scripts.watch.run();
            Ok(())
        })?);
    }
    if hub.scripts.has_timer() {
        let scripts = Arc::clone(&hub.scripts);
        let guard = StopOnDrop(handle.clone());
        pool.push(spawn("script-timer".into(), move || {
            let _guard = guard;
            script_pool::run_timer(&scripts);
            Ok(())
        })?);
    }
    let mut begin = |name: &str, life: fn(&Shared)| -> Result<()> {
        let shared = Arc::clone(shared);
        let guard = StopOnDrop(handle.clone());
        pool.push(spawn(name.into(), move || {
            let _guard = guard;
            life(&shared);
            Ok(())
        })?);
        Ok(())
    };
    begin("slow-log", |shared| shared.slow_log.write())?;
    begin("warnings", |shared| shared.warnings.run(|| warnings::look(shared)))?;
    begin("scrub", |shared| {
        let live = &shared.live;
        let schedule = || (live.scrub_interval(), live.scrub_bytes_per_second());
        shared.scrub.run_thread(&shared.served.database, schedule, || shared.served.is_stopping());
    })?;
    if shared.served.update_log.is_some() {
        begin("update-log", |shared| {
            if let Some(log) = &shared.served.update_log {
                log.maintain(
                    || shared.served.is_stopping(),
                    |unfinished| shared.served.resolve(unfinished),
                    |tick| shared.served.remove_expired(tick),
                );
            }
        })?;
    } else {
        begin("expiry", |shared| shared.served.expire())?;
    }
    if shared.replication.semi_sync().is_some() {
        begin("semi-sync", |shared| {
            shared.replication.await_replicas(|| shared.served.is_stopping())
        })?;
    }
    if shared.replication.can_follow() {
        begin("follower", |shared| shared.replication.run())?;
    }
    Ok(())
}

fn spawn(
    name: String,
    life: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<JoinHandle<Result<()>>> {
    Builder::new()
        .name(name)
        .stack_size(crate::net::THREAD_STACK_BYTES)
        .spawn(life)
        .map_err(Error::system("start a thread"))
}

fn join(thread: JoinHandle<Result<()>>) -> Result<()> {
    result_of(thread.join())
}

fn result_of(joined: std::thread::Result<Result<()>>) -> Result<()> {
    // The panic has been printed already. Pass it on to the caller.
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
