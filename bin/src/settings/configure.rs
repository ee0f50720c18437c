//! From settings to the configuration of a server.

use super::Settings;
use super::database_name::DatabaseName;
use super::value::{Bytes, Expiry, Host, Listen, Seconds, Seed, TimeoutAction};
use crate::cluster;
use crate::errors::is_wrong_command_line;
use crate::scripting::Script;
use anyhow::Context;
use cabinet::name::Specification;
use scripts::limits::{THREADS_MAX, total_bytes};
use scripts::{Allowed, Limits, Source};
use server::update_log::{Retention, Settings as UpdateLogSettings};
use server::{
    ClientPaths, ColdReads, CommandMask, Config, Dialect, Endpoint, Following, OnTimeout, Seeding,
};
use server::{
    ExtensionSettings, HostNames, ReadinessLimits, SCRIPT_PERIODIC_MAX, SemiSyncSettings,
    ServerFiles, TlsClientSettings, TlsSettings, Users,
};
use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Returns the hosts of the names in these settings, and of this machine.
pub(crate) fn host_names<'s>(settings: impl IntoIterator<Item = &'s Settings>) -> HostNames {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names = vec![machine.into_boxed_str()];
    for name in settings.into_iter().flat_map(|one| &one.http_hosts).flat_map(|many| &many.0) {
        if name.0 == "*" {
            return HostNames::any();
        }
        names.push(name.0.as_str().into());
    }
    HostNames::of(names)
}

/// Settings at whose paths the server makes something of its own.
const WRITTEN: [&str; 7] =
    ["admin", "database", "log", "pid", "position-file", "unix", "update-log"];

/// Those of them that are files which a start overwrites or appends to, whatever is in them.
const WRITTEN_FILES: [&str; 3] = ["log", "pid", "position-file"];

/// Advice for a file of settings of another program.
pub(super) const OTHER_SETTINGS: &str = "settings are in a file of TOML, which \"tyrant config \
    --defaults\" begins and --config FILE names; docs/coming-from.md has those that take the place of \
    memcached's and Redis's";

/// Returns whether the name of a file is one of settings, of this program or another.
pub(crate) fn is_file_of_settings(path: &Path) -> bool {
    let suffixes = ["cfg", "conf", "ini", "json", "toml", "yaml", "yml"];
    path.extension().is_some_and(|suffix| suffixes.iter().any(|one| suffix == *one))
}

/// A setting whose value cannot be in effect.
#[derive(Debug)]
pub(super) struct Invalid {
    /// Name of the setting.
    pub(super) setting: Cow<'static, str>,
    pub(super) what: String,
    /// Whether the settings are wrong by themselves, whatever files and addresses there are.
    pub(super) is_by_itself: bool,
}

/// Number of databases that share the memory of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares(pub(crate) u64);

impl Settings {
    /// Returns the configuration of a server.
    pub(super) fn configure(&self, shares: Shares) -> Result<Config, Invalid> {
        let mut config = Config { listen: self.endpoints(), ..Config::for_one_of(shares.0) };
        if let Some(name) = &self.database {
            match cluster::is_cluster_name(name) {
                true => self.check_cluster(name)?,
                false => drop(Specification::parse(name).map_err(|error| {
                    let mut invalid = invalid("database")(error);
                    if name.ends_with(".toml") {
                        invalid.what +=
                            &format!("; if it is a file of settings: --config {}", &**name);
                    } else if is_file_of_settings(Path::new(&**name)) {
                        invalid.what = format!("{} is not a database; {OTHER_SETTINGS}", &**name);
                    }
                    invalid
                })?),
            }
        }
        if self.into.is_some() && self.import != Some(true) {
            return Err(requires("into", "import"));
        }
        if let Some(name) = &self.into {
            Specification::parse(name).map_err(invalid("into"))?;
        }
        set(&mut config.threads, self.threads.map(|count| count.0));
        set(&mut config.cold_reads, self.cold_reads.map(ColdReads::from));
        set(&mut config.connections_max, self.connections_max.map(|count| count.0));
        config.timeout = self.timeout.and_then(Seconds::unless_zero);
        config.idle_timeout = self.idle_timeout.and_then(Seconds::unless_zero);
        config.slow_log_threshold = self.slow_log_threshold.and_then(Seconds::unless_zero);
        set(&mut config.stop_wait, self.stop_timeout.map(|time| time.0));
        if self.socket_mode.is_some() && self.unix.is_none() {
            return Err(requires("socket-mode", "unix"));
        }
        config.socket_mode = self.socket_mode.map(|mode| mode.0);
        self.configure_sizes(&mut config)?;
        self.configure_tls(&mut config)?;
        config.shutdown_command = self.shutdown_command.unwrap_or_default();
        config.copy_command = self.copy_command.unwrap_or_default();
        config.set_master_command = self.allow_setmst.unwrap_or_default();
        if let Some(folder) = &self.copy_dir {
            let folder = absolute_folder(folder).map_err(invalid("copy-dir"))?;
            config.client_paths = ClientPaths::Within(folder);
        }
        if let Some(path) = &self.users {
            config.users = Some(Arc::new(Users::read(path).map_err(invalid("users"))?));
        }
        config.opens_tokyo_tyrant = self.open_tokyo_tyrant.unwrap_or_default();
        if config.opens_tokyo_tyrant && config.users.is_none() {
            return Err(requires("open-tokyo-tyrant", "users"));
        }
        if self.tokyo_tyrant == Some(true) {
            config.dialect = Dialect::TokyoTyrant;
        }
        config.ignores_expiry = match self.expiry {
            Some(expiry) => expiry == Expiry::Ignore,
            None => config.dialect == Dialect::TokyoTyrant,
        };
        set(&mut config.disk_free_warning_percent, self.disk_free_warning.map(|one| one.0));
        config.mask = self.command_mask();
        set(&mut config.keyspace_events, self.keyspace_events);
        config.http_hosts = self.http_hosts();
        config.scrub_interval = self.scrub_interval.and_then(Seconds::unless_zero);
        set(&mut config.scrub_bytes_per_second, self.scrub_rate.map(|rate| rate.0));
        self.configure_replication(&mut config)?;
        self.check_script()?;
        Ok(config)
    }

    /// Returns the limits of scripts, whose server has such a share of the memory.
    pub(crate) fn script_limits(&self, shares: Shares) -> Limits {
        let mut limits = Limits { total_bytes: total_bytes(shares.0), ..Limits::default() };
        let seconds = self.script_time_max.map(|time| time.unless_zero().unwrap_or(Duration::MAX));
        set(&mut limits.call_time, seconds);
        let unlimited_at_zero = |max| if max == 0 { u64::MAX } else { max };
        set(&mut limits.call_instructions, self.script_instructions_max.map(unlimited_at_zero));
        set(&mut limits.sort_disk_bytes, self.script_sort_disk_max.map(|bytes| bytes.0));
        set(&mut limits.state_bytes, self.script_memory_max.map(Bytes::in_memory));
        set(&mut limits.total_bytes, self.script_memory_total.map(Bytes::in_memory));
        limits
    }

    /// Returns the script to serve, whose server has such a share of the memory.
    pub(crate) fn script(&self, shares: Shares) -> Option<Script> {
        let mut settings = ExtensionSettings::default();
        set(&mut settings.threads, self.script_threads.map(|count| count.0));
        let periodic = self.script_every.iter().flat_map(|every| &every.0);
        settings.periodic = periodic.map(|every| every.0.clone()).collect();
        Some(Script {
            source: Source::File(self.script.clone()?),
            limits: self.script_limits(shares),
            allowed: Allowed {
                files: self.script_files.unwrap_or_default(),
                programs: self.script_programs.unwrap_or_default(),
            },
            settings,
        })
    }

    /// Fails if a setting of scripts cannot be in effect.
    fn check_script(&self) -> Result<(), Invalid> {
        let threads = self.script_threads.map_or(1, |count| count.0);
        if threads > THREADS_MAX {
            let what = format!("{threads} is above {THREADS_MAX}");
            return Err(wrong("script-threads", what));
        }
        let functions = self.script_every.as_ref().map_or(0, |every| every.0.len());
        if functions > SCRIPT_PERIODIC_MAX {
            let what = format!("{functions} functions are more than {SCRIPT_PERIODIC_MAX}");
            return Err(wrong("script-every", what));
        }
        for (setting, bytes) in [
            ("script-memory-max", self.script_memory_max),
            ("script-memory-total", self.script_memory_total),
        ] {
            if bytes == Some(Bytes(0)) {
                return Err(wrong(setting, "must be at least 1 byte"));
            }
        }
        for (setting, is_set) in [
            ("script-every", self.script_every.is_some()),
            ("script-files", self.script_files == Some(true)),
            ("script-programs", self.script_programs == Some(true)),
        ] {
            if is_set && self.script.is_none() {
                return Err(requires(setting, "script"));
            }
        }
        Ok(())
    }

    /// Returns the endpoints of TCP at `port`, none without a host.
    fn tcp_endpoints(&self, port: u16) -> Vec<Endpoint> {
        match &self.host {
            Some(hosts) => {
                let endpoint = |host: &Host| Endpoint::Tcp { host: Some(host.0.clone()), port };
                hosts.0.iter().map(endpoint).collect()
            }
            None => vec![Endpoint::Loopback { port }],
        }
    }

    fn configure_tls(&self, config: &mut Config) -> Result<(), Invalid> {
        let (certificates, key) = match (&self.tls_cert, &self.tls_key) {
            (Some(certificates), Some(key)) => (certificates.clone(), key.clone()),
            (Some(_), None) => return Err(requires("tls-cert", "tls-key")),
            (None, Some(_)) => return Err(requires("tls-key", "tls-cert")),
            (None, None) => {
                for (setting, is_set) in [
                    ("tls-client-ca", self.tls_client_ca.is_some()),
                    ("tls-port", self.tls_port.is_some()),
                    ("tls-optional", self.tls_optional == Some(true)),
                ] {
                    if is_set {
                        return Err(requires(setting, "tls-cert"));
                    }
                }
                return Ok(());
            }
        };
        let files =
            ServerFiles { certificates, key, client_authorities: self.tls_client_ca.clone() };
        files.read().map_err(invalid("tls-cert"))?;
        if let Some(port) = self.tls_port.filter(|port| *port > 0 && self.port == Some(*port)) {
            let what = format!(
                "{port} is that of setting port too; choose another, or leave tls-port out, and port \
                 takes TLS alone"
            );
            return Err(wrong("tls-port", what));
        }
        let is_optional = self.tls_optional == Some(true);
        let listen = match self.tls_port {
            Some(port) => self.tcp_endpoints(port),
            None if is_optional => Vec::new(),
            None => {
                let is_unix = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Unix(_));
                let (unix, tcp) = config.listen.drain(..).partition(is_unix);
                config.listen = unix;
                tcp
            }
        };
        if listen.is_empty() && !is_optional {
            return Err(requires("tls-cert", "port, host or tls-port: a Unix socket has no TLS"));
        }
        let handshake_timeout = self.tls_handshake_timeout.and_then(Seconds::unless_zero);
        let Some(handshake_timeout) = handshake_timeout else {
            return Err(wrong("tls-handshake-timeout", "must be longer than 0 seconds"));
        };
        config.tls = Some(TlsSettings { files, listen, is_optional, handshake_timeout });
        Ok(())
    }

    fn master_tls(&self) -> Result<Option<TlsClientSettings>, Invalid> {
        let (certificate, key) = (self.master_tls_cert.clone(), self.master_tls_key.clone());
        let is_insecure = self.master_tls_insecure == Some(true);
        if self.master_tls != Some(true) {
            for (setting, is_set) in [
                ("master-tls-ca", self.master_tls_ca.is_some()),
                ("master-tls-insecure", is_insecure),
                ("master-tls-cert", certificate.is_some()),
                ("master-tls-key", key.is_some()),
            ] {
                if is_set {
                    return Err(requires(setting, "master-tls"));
                }
            }
            return Ok(None);
        }
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(requires("master-tls-cert", "master-tls-key")),
            (None, Some(_)) => return Err(requires("master-tls-key", "master-tls-cert")),
        };
        let settings = TlsClientSettings {
            authorities: self.master_tls_ca.clone(),
            server_name: None,
            accepts_any_server: is_insecure,
            identity,
        };
        settings.read().map_err(invalid("master-tls"))?;
        Ok(Some(settings))
    }

    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let mut endpoints = self.port.map_or(Vec::new(), |port| self.tcp_endpoints(port));
        endpoints.extend(self.unix.clone().map(Endpoint::Unix));
        endpoints
    }

    fn configure_sizes(&self, config: &mut Config) -> Result<(), Invalid> {
        for (setting, size, place) in [
            ("request-bytes-max", self.request_bytes_max, &mut config.request_bytes_max),
            ("reply-bytes-max", self.reply_bytes_max, &mut config.reply_bytes_max),
            ("buffer-bytes-max", self.buffer_bytes_max, &mut config.buffer_bytes_max),
            ("spool-bytes-max", self.spool_bytes_max, &mut config.spool_bytes_max),
            ("upload-bytes-max", self.upload_bytes_max, &mut config.upload_bytes_max),
        ] {
            if size == Some(Bytes(0)) {
                return Err(wrong(setting, "must be at least 1 byte"));
            }
            set(place, size.map(Bytes::in_memory));
        }
        // A limit of requests that is not the default is meant for all of them.
        if self.upload_bytes_max.is_none() && config.request_bytes_max != server::REQUEST_BYTES_MAX
        {
            config.upload_bytes_max = config.request_bytes_max;
        }
        Ok(())
    }

    /// Returns the names by which HTTP clients may address the server.
    fn http_hosts(&self) -> HostNames {
        // Tokyo Tyrant does not look at the name.
        let is_any = self.tokyo_tyrant == Some(true) && self.http_hosts.is_none();
        if is_any { HostNames::any() } else { host_names([self]) }
    }

    fn command_mask(&self) -> CommandMask {
        let mut mask = CommandMask::NONE;
        for commands in self.mask.iter().flat_map(|mask| &mask.0) {
            mask.mask(commands.mask());
        }
        for commands in self.unmask.iter().flat_map(|mask| &mask.0) {
            mask.unmask(commands.mask());
        }
        mask
    }

    fn configure_replication(&self, config: &mut Config) -> Result<(), Invalid> {
        config.server_id = self.server_id.unwrap_or_default().0.into();
        for (setting, is_set) in
            [("update-log", self.update_log.is_some()), ("master", self.master.is_some())]
        {
            if is_set && config.server_id == 0 {
                return Err(requires(setting, "server-id, an id from 1 to 65535"));
            }
        }
        config.update_log = self.update_log.clone().map(|folder| UpdateLogSettings {
            is_asynchronous: self.update_log_asynchronous.unwrap_or_default(),
            retention: Retention {
                bytes_max: self.update_log_keep_bytes.map(|bytes| bytes.0),
                age_max: self.update_log_keep_seconds.map(Duration::from_secs),
            },
            ..UpdateLogSettings::new(folder)
        });
        if let (Some(log), Some(bytes)) = (&mut config.update_log, self.update_log_file_bytes) {
            log.file_bytes_max = bytes.0;
        }
        config.following = Following {
            master: self.master.clone().map(|server| server.0),
            position: self.position_file.clone().unwrap_or_default(),
            check: self.check_consistency.unwrap_or_default(),
            is_writable: self.writable_replica.unwrap_or_default(),
            seeding: match self.seed {
                Some(Seed::Never) => Seeding::Never,
                Some(Seed::Empty) | None => Seeding::Empty,
                Some(Seed::Always) => Seeding::Always,
            },
            compresses: self.seed_compressed.unwrap_or_default(),
            tls: self.master_tls()?,
            credentials: self.master_credentials.clone(),
            allows_plain_login: self.master_plain_login.unwrap_or_default(),
        };
        if let Some(path) = &self.master_credentials {
            client::Credentials::read(path).map_err(invalid("master-credentials"))?;
            let following = &config.following;
            // A name is resolved, and checked, for each connection.
            let address = following.master.as_ref().and_then(|master| master.host.parse().ok());
            let is_far = address.is_some_and(|address| !client::is_this_machine(address));
            if is_far && following.tls.is_none() && !following.allows_plain_login {
                let other = "master-tls, so that the password is encrypted, or master-plain-login";
                return Err(requires("master-credentials", other));
            }
        }
        if self.semi_sync.is_some() && self.update_log.is_none() {
            return Err(requires("semi-sync", "update-log"));
        }
        config.semi_sync = self.semi_sync.map(|replicas| SemiSyncSettings {
            replicas: replicas.0,
            timeout: self.semi_sync_timeout.map_or(Duration::ZERO, |time| time.0),
            on_timeout: match self.semi_sync_on_timeout {
                Some(TimeoutAction::Fallback) => OnTimeout::Fallback,
                Some(TimeoutAction::Error) | None => OnTimeout::Error,
            },
        });
        Ok(())
    }

    /// Fails if the name of a database in a cluster is wrong, or a setting needs a database of this
    /// process.
    fn check_cluster(&self, name: &str) -> Result<(), Invalid> {
        cluster::check(name).map_err(invalid("database"))?;
        let refused = [
            ("import", self.import == Some(true)),
            ("webdav", self.webdav == Some(true)),
            ("update-log", self.update_log.is_some()),
            ("master", self.master.is_some()),
            ("script", self.script.is_some()),
        ];
        let refused = refused.into_iter().find(|(_, is_set)| *is_set);
        refused.map_or(Ok(()), |(setting, _)| {
            Err(wrong(setting, "needs a database of this process, not one in a cluster"))
        })
    }

    /// Fails if a path is empty, or two things would be written at one.
    pub(super) fn check_paths(&self) -> Result<(), Invalid> {
        let mut paths = Vec::new();
        self.clone().place_paths(&mut |field, path| {
            paths.push((field.replace('_', "-"), path.to_owned()));
            path.to_owned()
        });
        for (index, (setting, path)) in paths.iter().enumerate() {
            if path.as_os_str().is_empty() {
                let what = "the path is empty: leave it out, or name one";
                return Err(wrong(setting.clone(), what));
            }
            let excludes = |one: &str, other: &str| {
                WRITTEN_FILES.contains(&one) || (WRITTEN.contains(&one) && WRITTEN.contains(&other))
            };
            let mut others = paths[..index].iter().filter(|(other, _)| {
                excludes(setting.as_str(), other.as_str()) || excludes(other.as_str(), setting)
            });
            if let Some((other, _)) = others.find(|(_, other)| is_same(other, path)) {
                let what = format!("{path:?} is that of setting {other} too; choose another");
                return Err(wrong(setting.clone(), what));
            }
        }
        Ok(())
    }

    /// Returns the limits beyond which the process is not ready.
    pub(crate) fn readiness_limits(&self) -> ReadinessLimits {
        ReadinessLimits { lag_max: self.ready_lag_max.and_then(Seconds::unless_zero) }
    }

    /// Returns the ports to listen on, with the names of their settings.
    fn ports(&self) -> [(&'static str, Option<u16>); 2] {
        [("port", self.port), ("tls-port", self.tls_port)]
    }

    /// Fails if the listener for metrics would use a port of the database.
    pub(super) fn check_apart_from_admin(&self) -> Result<(), Invalid> {
        let Some(Listen(Endpoint::Tcp { host, port: admin })) = &self.admin else { return Ok(()) };
        let shares_host = match (&self.host, host) {
            (Some(hosts), Some(host)) => hosts.0.iter().any(|one| one.0 == *host),
            _ => true,
        };
        let taken = self.ports().into_iter().find(|(_, port)| *port == Some(*admin));
        match taken.filter(|_| shares_host && *admin > 0) {
            None => Ok(()),
            Some((setting, _)) => {
                let what = format!("{admin} is that of setting {setting} too; choose another");
                Err(wrong("admin", what))
            }
        }
    }

    /// Fails if two databases of one process would use the same port or file.
    pub(super) fn check_apart_from(&self, other: &Self) -> Result<(), Invalid> {
        let files = |settings: &Self| {
            let database = settings.database.as_ref().and_then(DatabaseName::path);
            let position = settings.position_file.clone().filter(|_| settings.master.is_some());
            [
                ("database", database.map(Path::to_owned)),
                ("unix", settings.unix.clone()),
                ("update-log", settings.update_log.clone()),
                ("position-file", position),
            ]
        };
        for ((setting, one), (_, another)) in files(self).into_iter().zip(files(other)) {
            if let (Some(one), Some(another)) = (one, another)
                && is_same(&one, &another)
            {
                let what = format!("{one:?} is that of another database too");
                return Err(wrong(setting, what));
            }
        }
        let shares_host = self.host.is_none() || other.host.is_none() || self.host == other.host;
        let others = other.ports();
        let is_taken = |port: u16| {
            port > 0 && shares_host && others.iter().any(|(_, other)| *other == Some(port))
        };
        for (setting, port) in self.ports() {
            if let Some(port) = port.filter(|port| is_taken(*port)) {
                let what = format!("{port} is that of another database too; choose another");
                return Err(wrong(setting, what));
            }
        }
        Ok(())
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// Returns the error of a setting by which something was not found, not read or not made, or that
/// has no valid name of a database.
pub(super) fn invalid<E: Into<anyhow::Error>>(setting: &'static str) -> impl FnOnce(E) -> Invalid {
    move |error| {
        let error = error.into();
        let is_by_itself = is_wrong_command_line(&error);
        Invalid { setting: setting.into(), what: crate::describe(&error), is_by_itself }
    }
}

/// Returns the error of a setting that is wrong by itself, or together with another one.
pub(super) fn wrong(setting: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Invalid {
    Invalid { setting: setting.into(), what: what.into(), is_by_itself: true }
}

fn requires(setting: &'static str, other: &str) -> Invalid {
    wrong(setting, format!("requires {other}"))
}

/// Returns an absolute path, which remains valid if the process changes its folder.
fn absolute_folder(path: &Path) -> anyhow::Result<PathBuf> {
    let absolute = std::fs::canonicalize(path).and_then(|absolute| match absolute.is_dir() {
        true => Ok(absolute),
        false => Err(ErrorKind::NotADirectory.into()),
    });
    absolute.with_context(|| path.display().to_string())
}

/// Returns whether two paths name one file, which need not exist.
fn is_same(one: &Path, another: &Path) -> bool {
    let absolute = |path: &Path| {
        let path = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
        path.map(|path| path.components().collect::<PathBuf>()).ok()
    };
    absolute(one) == absolute(another)
}

#[cfg(test)]
mod tests {
    use super::super::file::Launch;
    use super::super::value::{Every, Many};
    use super::*;

    fn config(settings: Settings) -> Config {
        Launch { given: settings, file: None }.load().expect("a configuration").configs.remove(0)
    }

    #[test]
    fn a_unix_socket_alone_disables_the_network() {
        let alone = Settings { unix: Some("/tmp/s".into()), ..Settings::default() };
        assert_eq!(config(alone.clone()).listen, [Endpoint::Unix("/tmp/s".into())]);
        let host = Some(super::super::Many(vec![Host("::1".to_owned())]));
        assert_eq!(config(Settings { host, ..alone.clone() }).listen.len(), 2);
        let listen = config(Settings { port: Some(7), ..alone }).listen;
        assert_eq!(listen, [Endpoint::Loopback { port: 7 }, Endpoint::Unix("/tmp/s".into())]);
    }

    #[test]
    fn expiry_defaults_to_keep_and_with_tokyo_tyrant_to_ignore() {
        for (tokyo_tyrant, expiry, ignores) in [
            (None, None, false),
            (Some(true), None, true),
            (None, Some(Expiry::Ignore), true),
            (Some(true), Some(Expiry::Keep), false),
        ] {
            let config = config(Settings { tokyo_tyrant, expiry, ..Settings::default() });
            assert_eq!(config.ignores_expiry, ignores);
            let is_tokyo_tyrant = config.dialect == Dialect::TokyoTyrant;
            assert_eq!(is_tokyo_tyrant, tokyo_tyrant == Some(true));
        }
    }

    #[test]
    fn a_limit_of_requests_also_limits_uploads_that_have_none() {
        let request_bytes_max = Some(Bytes(1 << 20));
        let alone = config(Settings { request_bytes_max, ..Settings::default() });
        assert_eq!(alone.upload_bytes_max, 1 << 20);
        let upload_bytes_max = Some(Bytes(2 << 20));
        let both = Settings { request_bytes_max, upload_bytes_max, ..Settings::default() };
        assert_eq!(config(both).upload_bytes_max, 2 << 20);
    }

    #[test]
    fn a_script_has_its_limits_and_its_threads() {
        let script = |settings: Settings| {
            let launch = Launch { given: settings, file: None };
            launch.load().map(|loaded| loaded.databases[0].script(Shares(1)))
        };
        assert!(script(Settings::default()).expect("settings").is_none());
        let settings = Settings { script: Some("s.lua".into()), ..Settings::default() };
        let found = script(settings.clone()).expect("settings").expect("a script");
        assert_eq!(found.settings.threads, server::SCRIPT_THREADS);
        assert_eq!(found.limits.call_time, Limits::default().call_time);
        assert_eq!(found.limits.state_bytes, Limits::default().state_bytes);
        assert_eq!(found.limits.total_bytes, Limits::default().total_bytes);
        assert_eq!(found.limits.call_instructions, Limits::default().call_instructions);
        assert_eq!(found.limits.sort_disk_bytes, Limits::default().sort_disk_bytes);
        assert_eq!(found.allowed, Allowed::default());
        for (max, limit) in [(0, u64::MAX), (5, 5)] {
            let script_instructions_max = Some(max);
            let given = Settings { script_instructions_max, ..settings.clone() };
            let found = script(given).expect("settings").expect("a script");
            assert_eq!(found.limits.call_instructions, limit);
        }
        let threads = |count| {
            let script_threads = Some(super::super::Count(count));
            script(Settings { script_threads, ..settings.clone() })
        };
        assert!(threads(THREADS_MAX).is_ok() && threads(THREADS_MAX + 1).is_err());
        let memory = |bytes| {
            let script_memory_max = Some(Bytes(bytes));
            script(Settings { script_memory_max, ..settings.clone() })
        };
        assert!(memory(1).is_ok() && memory(0).is_err());
        let total = |bytes| {
            let script_memory_total = Some(Bytes(bytes));
            script(Settings { script_memory_total, ..settings.clone() })
        };
        assert!(total(0).is_err());
        let found = total(5).expect("settings").expect("a script");
        assert_eq!(found.limits.total_bytes, 5);
        let shared = settings.script(Shares(u64::MAX)).expect("a script");
        assert_eq!(shared.limits.total_bytes, 8 << 20);
        let periodic = |count| {
            let every = "tick=1".parse::<Every>().expect("a periodic function");
            let script_every = Some(Many(vec![every; count]));
            script(Settings { script_every, ..settings.clone() })
        };
        assert!(
            periodic(SCRIPT_PERIODIC_MAX).is_ok() && periodic(SCRIPT_PERIODIC_MAX + 1).is_err()
        );
        let alone = Settings { script_programs: Some(true), ..Settings::default() };
        assert!(script(alone).is_err());
    }

    #[test]
    fn a_verification_of_0_seconds_is_never() {
        let interval = |text: &str| {
            let scrub_interval = Some(text.parse().expect("seconds"));
            config(Settings { scrub_interval, ..Settings::default() }).scrub_interval
        };
        assert_eq!(interval("60"), Some(Duration::from_secs(60)));
        assert_eq!(interval("0"), None);
    }
}
