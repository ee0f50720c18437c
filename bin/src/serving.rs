//! Server process: log, pid file, signals, and the messages at start and stop.

use crate::bytes;
use crate::cluster::{self, Connected};
use crate::logging::{Log, LogFormat, Verbosity, system};
use crate::pid_file::PidFile;
use crate::plural::counted;
use crate::reload::Reloader;
use crate::scripting::{Script, accept_scripts};
use crate::settings::{Launch, Loaded, Origins, Settings, Shares};
use crate::settings::{admin_exposure, exposure, host_names, unknown_variables};
use crate::systemd::{self, Manager, Watchdog};
use crate::transfer::import_once::import_if_legacy;
use crate::{daemon, privileges, signals};
use anyhow::{Context, Result};
use cabinet::name::Specification;
use cabinet::{Clock, Database};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit, setrlimit};
use scripts::Limits;
use server::{Endpoint, Handle, HostNames, Monitor, ReadinessLimits, Server};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::{self, ScopedJoinHandle};

/// Logged at start if no listen address was given.
const ONLY_THIS_MACHINE: &str =
    "; only this machine can connect; --host 0.0.0.0 (host in a file) to change, :: with IPv6";

/// End of an address that requires TLS, in the list of the databases.
pub(crate) const TLS_ONLY: &str = "+tls";

/// A server process to run: its databases, its log and its pid file.
#[derive(Debug)]
pub(crate) struct Process {
    /// Databases to serve, at least one.
    pub databases: Vec<Service>,
    /// User of the system to become before anything else, if one is named.
    pub run_as: Option<String>,
    /// File for the log; without one, the standard output.
    pub log: Option<PathBuf>,
    /// Verbosity of the log.
    pub verbosity: Verbosity,
    /// Format of the lines of the log.
    pub log_format: LogFormat,
    /// File for the process id.
    pub pid: Option<PathBuf>,
    /// Listener for metrics, health and readiness, if there is one.
    pub admin: Option<Endpoint>,
    /// Limits of readiness.
    pub readiness: ReadinessLimits,
    /// Names by which clients may address that listener.
    pub hosts: HostNames,
    /// Messages logged at start.
    pub notices: Vec<String>,
    /// Origins of the settings; none if they are not those of `tyrant serve`.
    pub origins: Option<Origins>,
    /// Source of the settings, and their values at the start, if they can be read again.
    pub launch: Option<(Launch, Vec<Settings>)>,
}

/// A database to serve on its own listeners.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Name of the database, with its tuning.
    pub database: String,
    /// If the database is a Tokyo Cabinet file, it is imported first.
    pub import: Option<Import>,
    /// Settings of the server.
    pub config: server::Config,
    /// Serve WebDAV too.
    pub webdav: bool,
    /// Script whose functions clients call.
    pub script: Option<Script>,
    /// Limits of the scripts that clients send to a server without a script.
    pub script_limits: Limits,
}

/// How a Tokyo Cabinet file is imported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Import {
    /// Name of the target database; without one, a database beside the file.
    pub into: Option<String>,
}

/// A database whose endpoints are bound.
struct Bound {
    database: Database,
    server: Server,
    /// The service manager has bound the endpoints.
    is_inherited: bool,
}

impl Process {
    /// Serves as a command line, an environment and a configuration file say.
    pub(crate) fn serve(launch: Launch) -> Result<()> {
        match Self::of_launch(launch.clone()) {
            Ok(process) => process.run(),
            Err(error) => {
                log_refusal(&launch, &error);
                Err(error)
            }
        }
    }

    /// Returns the process of a command line, an environment and a configuration file.
    fn of_launch(launch: Launch) -> Result<Self> {
        let loaded = launch.load()?;
        loaded.check_start()?;
        let Loaded { databases, mut configs, origins } = loaded;
        if let Some(first) = configs.first_mut() {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            first.notices = unknown_variables(names);
        }
        let first = databases.first().cloned().unwrap_or_default();
        let shares = Shares(databases.len() as u64);
        let service = |(settings, config): (Settings, server::Config)| Service {
            script_limits: settings.script_limits(shares),
            script: settings.script(shares),
            database: settings.database.unwrap_or_default().0,
            import: settings
                .import
                .unwrap_or_default()
                .then_some(Import { into: settings.into.map(|name| name.0) }),
            config,
            webdav: settings.webdav.unwrap_or_default(),
        };
        Ok(Self {
            databases: databases.iter().cloned().zip(configs).map(service).collect(),
            readiness: first.readiness_limits(),
            hosts: host_names(&databases),
            run_as: first.run_as,
            log: first.log,
            verbosity: first.log_level.unwrap_or_default(),
            log_format: first.log_format.unwrap_or_default(),
            admin: first.admin.map(|listen| listen.0),
            pid: first.pid,
            notices: Vec::new(),
            origins: Some(origins),
            launch: Some((launch, databases)),
        })
    }

    /// Serves until SIGTERM or SIGINT. Fails if a database cannot be opened or an endpoint cannot
    /// be bound.
    pub(crate) fn run(&self) -> Result<()> {
        if let Some(user) = &self.run_as {
            // Files that are made from now on belong to that user.
            self.named("run-as", 0, privileges::drop_to(user))?;
        }
        let log = Log::open(self.log.as_deref()).with_context(|| {
            let path = self.log.as_deref().unwrap_or(Path::new("")).display();
            format!("cannot open the log {path}")
        });
        let log = self.named("log", 0, log)?;
        log.install(self.verbosity, self.log_format);
        between_marks(|| {
            let result = self.run_logged(&log);
            // The program ends with the error, so the standard output shows it anyway.
            if let (Err(error), Some(_)) = (&result, &self.log) {
                tracing::error!("{}", crate::describe(error));
            }
            result
        })
    }

    fn run_logged(&self, log: &Log) -> Result<()> {
        let pid_file = self.pid.as_deref().map(PidFile::create).transpose();
        let _pid_file = self.named("pid", 0, pid_file)?;
        if let Err(error) = raise_file_limit() {
            tracing::warn!("cannot raise the limit of open files: {error}");
        }
        for notice in &self.notices {
            tracing::info!("{notice}");
        }
        // It ends last: what it reports may be the last owner of a database.
        let monitor = self.start_monitor()?.map(Arc::new);
        let shares = self.databases.len() as u64;
        let endpoints: Vec<_> = self.databases.iter().map(Service::endpoints).collect();
        let sockets = systemd::inherited_sockets(&endpoints)?;
        // Before any database is made.
        for (index, (service, sockets)) in self.databases.iter().zip(&sockets).enumerate() {
            if sockets.is_empty() {
                self.listening(index, service, Server::check_ports(&service.config))?;
            }
        }
        let bind = |(index, (service, sockets)): (usize, (&Service, _))| {
            if let Some(monitor) = &monitor {
                monitor.set_starting(format!("the database {} is opening", service.database));
            }
            self.bind(index, service, shares, sockets)
        };
        let bound = self.databases.iter().zip(sockets).enumerate().map(bind);
        let bound: Vec<Bound> = bound.collect::<Result<_>>()?;
        let handles: Vec<Handle> = bound.iter().map(|bound| bound.server.handle()).collect();
        let manager = Manager::from_environment();
        let names = self.database_names(&bound);
        let listed = self.databases.iter().zip(&bound).zip(&names);
        let listed = listed.map(|((service, bound), name)| service.listed(name, bound));
        let reloader = Arc::new(Reloader {
            log: log.clone(),
            settings: Mutex::new(self.launch.clone()),
            handles: handles.clone(),
            databases: listed.collect(),
            monitor: monitor.clone(),
            manager: manager.clone(),
        });
        for (number, handle) in handles.iter().enumerate() {
            // Not an owner: a thread of the monitor, which ends with its owner, may own a server.
            let reload: Weak<Reloader> = Arc::downgrade(&reloader);
            handle.set_reload(reload, number);
        }
        let (stopping, of_stop) = (handles.clone(), manager.clone());
        let hang_up = move || {
            // The log has the result.
            let _ = reloader.reload_all(None);
        };
        let stop = move || {
            of_stop.stopping();
            stopping.iter().for_each(Handle::stop);
        };
        let _signals = signals::Listener::start(hang_up, stop)?;
        let process = std::process::id();
        system(format_args!("service started: {process}"));
        for (service, bound) in self.databases.iter().zip(&bound) {
            service.announce(bound);
            if self.origins.is_some() {
                service.warn_of_exposure(bound);
            }
        }
        if daemon::is_child() {
            daemon::ready()?;
        }
        if let Some(monitor) = &monitor {
            for (name, handle) in names.into_iter().zip(&handles) {
                monitor.add(name, handle.clone());
            }
            monitor.set_started();
        }
        let _watchdog = Watchdog::start(&manager, handles.clone())?;
        manager.ready();
        run_all(bound, &handles)?;
        system(format_args!("service finished: {process}"));
        Ok(())
    }

    /// Returns the names of the databases, each different.
    fn database_names(&self, bound: &[Bound]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (service, bound) in self.databases.iter().zip(bound) {
            let path = match cluster::is_cluster_name(&service.database) {
                true => service.database.clone(),
                false => bound.database.path().display().to_string(),
            };
            // Databases in memory may have the same name; their samples must not.
            let like = names.iter().filter(|name| name.split(" (").next() == Some(&path));
            names.push(match like.count() {
                0 => path,
                others => format!("{path} ({})", others + 1),
            });
        }
        names
    }

    /// Starts the listener for metrics, health and readiness, if there is to be one.
    fn start_monitor(&self) -> Result<Option<Monitor>> {
        let Some(endpoint) = &self.admin else { return Ok(None) };
        let monitor = Monitor::start(endpoint, self.readiness, self.hosts.clone());
        let monitor = self.named("admin", 0, monitor.map_err(anyhow::Error::from))?;
        let addresses: Vec<String> =
            monitor.local_addresses().iter().map(ToString::to_string).collect();
        let shown = if addresses.is_empty() { endpoint.to_string() } else { addresses.join(", ") };
        system(format_args!("serving metrics on {shown}"));
        if let Some(address) = monitor.local_addresses().first() {
            // A browser cannot open the address that stands for all.
            let address = match address.ip().is_unspecified() {
                true => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
                false => *address,
            };
            system(format_args!("the console is at http://{address}/ui/"));
        }
        let configs = self.databases.iter().map(|service| &service.config);
        if self.origins.is_some()
            && let Some(warning) = admin_exposure(configs, monitor.local_addresses())
        {
            tracing::warn!("{warning}");
        }
        Ok(Some(monitor))
    }

    /// Adds to an error about the value of a setting of a database where the setting is from.
    fn named<T>(&self, setting: &str, index: usize, result: Result<T>) -> Result<T> {
        match &self.origins {
            Some(origins) => result.with_context(|| origins.name(setting, index)),
            None => result,
        }
    }

    /// Opens a database and binds its endpoints, or takes over sockets that are bound. `shares`
    /// databases share the memory.
    fn bind(
        &self,
        index: usize,
        service: &Service,
        shares: u64,
        sockets: Vec<OwnedFd>,
    ) -> Result<Bound> {
        if cluster::is_cluster_name(&service.database) {
            return service.bind_cluster(sockets);
        }
        let is_inherited = !sockets.is_empty();
        let database = self.named("database", index, service.open(shares))?;
        let server = bind(service.config.clone(), &database, sockets);
        let server = self.listening(index, service, server)?;
        if service.webdav {
            webdav::serve(&server).context("cannot serve WebDAV")?;
        }
        match &service.script {
            Some(script) => self.named("script", index, script.install(&server))?,
            None => accept_scripts(&server, service.script_limits.clone()),
        }
        Ok(Bound { database, server, is_inherited })
    }

    /// Adds to an error about an endpoint where its setting is from.
    fn listening<T>(
        &self,
        index: usize,
        service: &Service,
        result: server::Result<T>,
    ) -> Result<T> {
        match result {
            Err(server::Error::Listen { endpoint, source }) => {
                let setting = service.setting_of(&endpoint, &source);
                let error = server::Error::Listen { endpoint, source };
                self.named(setting, index, Err(error.into()))
            }
            result => Ok(result?),
        }
    }
}

impl Service {
    /// Connects to the cluster that has the database. The database of the server itself is empty.
    fn bind_cluster(&self, sockets: Vec<OwnedFd>) -> Result<Bound> {
        let Connected { store, local, timeout, .. } = cluster::connect_at_start(&self.database)?;
        let database = Database::open_specification(&Specification::parse(local)?)?;
        let remote = Some(store);
        let config = server::Config { remote, remote_timeout: timeout, ..self.config.clone() };
        let is_inherited = !sockets.is_empty();
        let server = bind(config, &database, sockets)?;
        Ok(Bound { database, server, is_inherited })
    }

    /// Opens the database, after an import if there is to be one.
    fn open(&self, shares: u64) -> Result<Database> {
        let name = match &self.import {
            Some(import) => import_if_legacy(&self.database, import.into.as_deref())?,
            None => self.database.clone(),
        };
        self.open_named(&name, shares).with_context(|| format!("cannot open the database {name}"))
    }

    /// Opens a database. If there is an update log, the server removes expired records itself, so
    /// that the removals are logged too.
    fn open_named(&self, name: &str, shares: u64) -> cabinet::Result<Database> {
        let mut specification = Specification::parse(name)?;
        if shares > 1 {
            specification.options.share_memory(shares);
        }
        specification.options.clock = Clock::real().handing_over(self.config.update_log.is_some());
        Database::open_specification(&specification)
    }

    /// Returns the addresses to listen on, those for TLS alone included.
    fn endpoints(&self) -> Vec<&Endpoint> {
        let tls = self.config.tls.iter().flat_map(|tls| &tls.listen);
        self.config.listen.iter().chain(tls).collect()
    }

    /// Returns the line of the database among those of the process, see
    /// [`server::Reload::databases`].
    fn listed(&self, name: &str, bound: &Bound) -> String {
        let tls = bound.server.tls_addresses();
        let mut line = bytes::one_line(name.as_bytes());
        for address in bound.server.local_addresses() {
            let end = if tls.contains(&address) { TLS_ONLY } else { "" };
            line.push_str(&format!("\t{address}{end}"));
        }
        let with_tls = self.config.tls.iter().flat_map(|tls| &tls.listen);
        let plain = self.config.listen.iter().map(|endpoint| (endpoint, ""));
        for (endpoint, end) in plain.chain(with_tls.map(|endpoint| (endpoint, TLS_ONLY))) {
            if let Endpoint::Unix(path) = endpoint {
                line.push_str(&format!("\t{}{end}", bytes::one_line(path.as_os_str().as_bytes())));
            }
        }
        line
    }

    /// Returns the setting to change where an endpoint cannot be listened on.
    fn setting_of(&self, endpoint: &Endpoint, error: &io::Error) -> &'static str {
        let is_of_tls = self.config.tls.iter().any(|tls| tls.listen.contains(endpoint));
        let is_of_port = matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied);
        match endpoint {
            Endpoint::Unix(_) => "unix",
            _ if !is_of_port => "host",
            _ if is_of_tls && !self.config.listen.is_empty() => "tls-port",
            _ => "port",
        }
    }

    fn announce(&self, Bound { database, server, is_inherited }: &Bound) {
        let sockets = self.config.listen.iter().filter_map(|endpoint| match endpoint {
            Endpoint::Unix(path) if !is_inherited => Some(path.display().to_string()),
            _ => None,
        });
        let tls = server.tls_addresses();
        let addresses = server.local_addresses().into_iter().map(|address| {
            let with = if tls.contains(&address) { " with TLS" } else { "" };
            format!("{address}{with}")
        });
        let endpoints: Vec<String> = addresses.chain(sockets).collect();
        let with_tls = self.config.tls.iter().flat_map(|tls| &tls.listen);
        let mut endpoints_given = self.config.listen.iter().chain(with_tls);
        let is_default =
            endpoints_given.any(|endpoint| matches!(endpoint, Endpoint::Loopback { .. }));
        let reach = match is_inherited {
            true => "; sockets of the service manager",
            false if is_default => ONLY_THIS_MACHINE,
            false => "",
        };
        let what = match cluster::is_cluster_name(&self.database) {
            true => self.database.clone(),
            false => {
                let records = counted(database.len(), "record", "records");
                format!("{} ({records})", database.path().display())
            }
        };
        system(format_args!("serving {what} on {}{reach}", endpoints.join(", ")));
    }

    fn warn_of_exposure(&self, Bound { server, .. }: &Bound) {
        let tls = server.tls_addresses();
        let addresses = server.local_addresses().into_iter();
        let addresses = addresses.map(|address| (address, tls.contains(&address)));
        for warning in exposure(&self.config, addresses) {
            tracing::warn!("{warning}");
        }
    }
}

/// Logs why a server is not started, as a failure after its log was opened is. Needs settings that
/// name a file for the log.
fn log_refusal(launch: &Launch, error: &anyhow::Error) {
    let Some(settings) = launch.of_process() else { return };
    let Some(path) = &settings.log else { return };
    // A log that root makes could not be written by that user.
    if settings.run_as.as_deref().is_some_and(|user| privileges::drop_to(user).is_err()) {
        return;
    }
    // The standard error has the error, and that of the log is not worth more.
    let Ok(log) = Log::open(Some(path)) else { return };
    log.install(settings.log_level.unwrap_or_default(), settings.log_format.unwrap_or_default());
    between_marks(|| tracing::error!("{}", crate::describe(error)));
}

/// Calls `log` between the lines that begin and end a log.
fn between_marks<T>(log: impl FnOnce() -> T) -> T {
    let process = std::process::id();
    system(format_args!("--------- logging started [{process}] --------"));
    let result = log();
    system(format_args!("--------- logging finished [{process}] --------"));
    result
}

/// Binds a server to its endpoints, or to the sockets that it inherits.
fn bind(
    config: server::Config,
    database: &Database,
    sockets: Vec<OwnedFd>,
) -> server::Result<Server> {
    match sockets.is_empty() {
        false => Server::inherit(config, database.clone(), sockets),
        true => Server::bind(config, database.clone()),
    }
}

/// Serves all databases, each on a thread. If one server ends, all end.
fn run_all(bound: Vec<Bound>, handles: &[Handle]) -> Result<()> {
    let run = |Bound { database, server, .. }: Bound| {
        let _others = StopOnDrop(handles);
        let result = server.run().context("cannot serve");
        drop(database);
        result
    };
    thread::scope(|scope| {
        let _all = StopOnDrop(handles);
        let mut threads = Vec::new();
        for (number, bound) in bound.into_iter().enumerate() {
            let thread = thread::Builder::new().name(format!("server-{number}"));
            let run = || run(bound);
            threads.push(thread.spawn_scoped(scope, run).context("cannot start a thread")?);
        }
        let ended = threads.into_iter().map(ScopedJoinHandle::join);
        // A panic has been logged already. It continues here.
        let results = ended.map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic)));
        results.fold(Ok(()), Result::and)
    })
}

/// Guard of a thread: stops all servers when the thread ends, even by a panic.
struct StopOnDrop<'a>(&'a [Handle]);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Handle::stop);
    }
}

/// Raises the limit of open files to the system's maximum: every connection takes a file.
fn raise_file_limit() -> rustix::io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
}
