//! Files and folders that a server needs when it starts. They are checked before anything is made,
//! so that an error has the line of its setting.

use super::Settings;
use super::configure::{Invalid, Shares, invalid, wrong};
use super::database_name::DatabaseName;
use super::value;
use crate::errors::{
    is_no_socket, require_database, require_files_of, require_folder_of, require_writable,
};
use crate::pid_file::PidFile;
use crate::{privileges, systemd};
use anyhow::{Context, Result};
use cabinet::legacy::is_legacy;
use cabinet::name::Specification;
use rustix::io::Errno;
use server::{Endpoint, Error};
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// Check of a path.
type Require = fn(&Path) -> io::Result<()>;

impl Settings {
    /// Fails if this user could not start a server with these settings. Makes nothing.
    pub(super) fn check_start(&self) -> Result<(), Invalid> {
        if let Some(user) = &self.run_as {
            privileges::find(user).map_err(invalid("run-as"))?;
        }
        let position = self.position_file.as_ref().filter(|_| self.master.is_some());
        if let Some(path) = &self.pid {
            PidFile::check(path).map_err(invalid("pid"))?;
        }
        let paths: [(&str, Option<&_>, &str, Require); 3] = [
            ("log", self.log.as_ref(), "open the log", require_writable),
            ("update-log", self.update_log.as_ref(), "open the update log", require_update_log),
            ("position-file", position, "write the position file", require_writable),
        ];
        for (setting, path, what, require) in paths {
            let Some(path) = path else { continue };
            let cannot = || format!("cannot {what} {}", path.display());
            require(path).with_context(cannot).map_err(invalid(setting))?;
        }
        if !systemd::hands_sockets_over() {
            for endpoint in self.endpoints() {
                let setting = if endpoint.port().is_some() { "host" } else { "unix" };
                if let Some(value::Server(master)) = &self.master
                    && endpoint.is_reached_at(&master.host, master.port)
                {
                    return Err(wrong("master", Error::OwnMaster(master.clone()).to_string()));
                }
                check_endpoint(&endpoint).map_err(invalid(setting))?;
            }
        }
        if let Some(admin) = &self.admin {
            check_endpoint(&admin.0).map_err(invalid("admin"))?;
        }
        self.check_database().map_err(invalid("database"))?;
        match self.script(Shares(1)) {
            Some(script) => script.check().map_err(invalid("script")),
            None => Ok(()),
        }
    }

    /// Fails if the database could be neither opened nor made. Does not open it.
    fn check_database(&self) -> Result<()> {
        let Some((name, path)) = self.database.as_ref().and_then(|name| Some((name, name.path()?)))
        else {
            return Ok(());
        };
        let cannot = || format!("cannot open the database {}", name.0);
        let mut made = path;
        if self.import == Some(true) && is_legacy(path) {
            made = self.into.as_ref().and_then(DatabaseName::path).unwrap_or(path);
        } else if path.exists() || !Specification::parse(name)?.options.create {
            require_database(path).with_context(cannot)?;
            if Specification::parse(name)?.options.read_only {
                return Ok(());
            }
            return require_files_of(path, &["manifest", ".log"]).with_context(cannot);
        }
        require_folder_of(made)
            .map_err(|source| cabinet::Error::Io { operation: "create", path: made.into(), source })
            .with_context(cannot)
    }
}

/// Fails if this machine has no such address, or a socket no folder. Whether a port is free changes
/// with every start.
fn check_endpoint(endpoint: &Endpoint) -> Result<()> {
    let found = match endpoint {
        Endpoint::Unix(_) if is_no_socket(endpoint) => Err(Errno::ADDRINUSE.into()),
        Endpoint::Unix(path) => {
            let named = SocketAddr::from_pathname(path).map_err(|_| Errno::NAMETOOLONG.into());
            named.and_then(|_| require_folder_of(path))
        }
        Endpoint::Tcp { host: Some(host), .. } => {
            (host.as_str(), 0).to_socket_addrs().and_then(|mut addresses| {
                addresses.try_for_each(|one| TcpListener::bind(one).map(drop))
            })
        }
        _ => Ok(()),
    };
    found.map_err(|source| server::Error::Listen { endpoint: endpoint.clone(), source }.into())
}

/// Fails if a folder of an update log can be neither written nor made.
fn require_update_log(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(found) if found.is_dir() => require_files_of(path, &[".ulog"]),
        Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
        Err(_) => require_writable(path),
    }
}
