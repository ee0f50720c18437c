//! Security: TLS between the servers, and a user that replicas and clients log in as.

use super::network::{HUB, address};
use crate::certificates::{Authority, Files};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The one user.
const USER: &str = "chaos";
const PASSWORD: &str = "a-long-secret";

/// Certificates and users of all hosts.
#[derive(Clone)]
pub(super) struct Security {
    /// Its folder has the files until it is dropped.
    authority: Arc<Authority>,
    certificate: Files,
    users: PathBuf,
    credentials: PathBuf,
}

impl Security {
    /// Creates the files in `folder`, for hosts numbered from 1 on.
    pub(super) fn create(programs: &Path, folder: &Path, hosts: u8) -> Result<Self> {
        let authority = Authority::new();
        let addresses: Vec<String> = (1..=hosts).chain([HUB]).map(address).collect();
        let names: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let certificate = authority.server(&names);
        let (users, credentials) = (folder.join("users"), folder.join("credentials"));
        let mut command = Command::new(programs.join("tyrant"));
        command.args(["user", "add", USER, "--rights", "read,write,admin", "--users"]).arg(&users);
        let mut adding = command.stdin(Stdio::piped()).spawn().context("cannot add a user")?;
        let input = adding.stdin.take().context("no standard input")?;
        writeln!(&input, "{PASSWORD}")?;
        drop(input);
        ensure!(adding.wait()?.success(), "cannot add a user");
        let mut file = std::fs::File::options();
        let file = file.write(true).create_new(true).mode(0o600).open(&credentials)?;
        writeln!(&file, "{USER}:{PASSWORD}")?;
        Ok(Self { authority: Arc::new(authority), certificate, users, credentials })
    }

    /// Returns the options of every server.
    pub(super) fn options(&self) -> Vec<String> {
        let Files { certificate, key } = &self.certificate;
        options(&[("--tls-cert", certificate), ("--tls-key", key), ("--users", &self.users)])
    }

    /// Returns the further options of a server with a master.
    pub(super) fn options_of_replica(&self) -> Vec<String> {
        let authority = self.authority.file();
        let files = [("--master-tls-ca", &authority), ("--master-credentials", &self.credentials)];
        [vec!["--master-tls".to_owned()], options(&files)].concat()
    }

    /// Returns the first request of a client of memcached's text protocol.
    pub(super) fn login() -> String {
        let value = format!("{USER} {PASSWORD}");
        format!("set login 0 0 {}\r\n{value}\r\n", value.len())
    }

    /// Returns the environment of a tool that logs in.
    pub(super) fn environment() -> [(&'static str, &'static str); 2] {
        [("TYRANT_USER", USER), ("TYRANT_PASSWORD", PASSWORD)]
    }
}

fn options(files: &[(&str, &PathBuf)]) -> Vec<String> {
    let pairs = files.iter().map(|(name, path)| [(*name).to_owned(), path.display().to_string()]);
    pairs.flatten().collect()
}
