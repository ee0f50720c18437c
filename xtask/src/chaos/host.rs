//! Hosts: each with a server, which can be killed and restarted with another clock.

use super::network::{Network, address};
use super::security::Security;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until a server serves, including its recovery.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest silence of a server before it counts as hung.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The port of all servers.
pub(super) const PORT: u16 = 1978;

/// Debian's path of the library that skews clocks.
const FAKE_TIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// A server on a host of its own.
pub(super) struct Host {
    pub(super) number: u8,
    folder: PathBuf,
    program: PathBuf,
    options: Vec<String>,
    security: Option<Security>,
    child: Option<Child>,
}

/// Unix socket of a server, with the login that it requires.
pub(super) struct Socket {
    path: PathBuf,
    login: Option<String>,
}

impl Socket {
    /// Connects, and logs in if the server has users. Returns nothing if there is no server, or if
    /// it ends meanwhile. A server that does not respond is an error.
    pub(super) fn connect(&self) -> Result<Option<BufReader<UnixStream>>> {
        let Ok(stream) = UnixStream::connect(&self.path) else { return Ok(None) };
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        log_in(BufReader::new(stream), self.login.as_deref())
    }
}

/// Logs in, if the server requires it. Returns nothing if the server ends meanwhile.
fn log_in(
    mut stream: BufReader<UnixStream>,
    login: Option<&str>,
) -> Result<Option<BufReader<UnixStream>>> {
    let Some(login) = login else { return Ok(Some(stream)) };
    let mut line = String::new();
    let sent = stream.get_mut().write_all(login.as_bytes());
    if let Err(error) = sent.and_then(|()| stream.read_line(&mut line)) {
        return expect_end(error).map(|()| None);
    }
    if !line.ends_with('\n') {
        return Ok(None);
    }
    ensure!(line == "STORED\r\n", "a server responded {line:?} to a login");
    Ok(Some(stream))
}

/// Returns an error unless `error` shows that the server has ended: it does not respond.
pub(super) fn expect_end(error: std::io::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Err(error).context("a server does not respond")
        }
        _ => Ok(()),
    }
}

/// Returns whether clocks can be skewed.
pub(super) fn can_skew() -> bool {
    Path::new(FAKE_TIME).exists()
}

impl Host {
    /// Creates a host whose server keeps its files in `folder` and follows `master`, if given.
    pub(super) fn new(
        number: u8,
        folder: PathBuf,
        programs: &Path,
        database: &str,
        master: Option<&str>,
        further: &[&str],
        security: Option<&Security>,
    ) -> Result<Self> {
        std::fs::create_dir(&folder)?;
        let id = number.to_string();
        let (here, port) = (address(number), PORT.to_string());
        let mut options: Vec<String> = [
            &["serve", database, "--unix", "socket", "--host", &here, "--port", &port][..],
            &["--server-id", &id, "--update-log", "ulog", "--log", "log"],
            further,
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
        options.extend(security.into_iter().flat_map(Security::options));
        if let Some(master) = master {
            options.extend(["--master".to_owned(), master.to_owned()]);
            options.extend(security.into_iter().flat_map(Security::options_of_replica));
        }
        let (program, security) = (programs.join("tyrant"), security.cloned());
        Ok(Self { number, folder, program, options, security, child: None })
    }

    /// Sets the master to follow from the next start on.
    pub(super) fn set_master(&mut self, master: &str) {
        if let Some(at) = self.options.iter().position(|option| option == "--master") {
            self.options[at + 1] = master.to_owned();
        }
    }

    /// Returns the socket, for clients that continue while the server is killed and restarted.
    pub(super) fn socket(&self) -> Socket {
        let login = self.security.as_ref().map(|_| Security::login());
        Socket { path: self.folder.join("socket"), login }
    }

    /// Starts the server with its clock skewed by `skew_s` seconds, and waits until it serves.
    pub(super) fn start(&mut self, network: &Network, skew_s: i64) -> Result<()> {
        let errors = File::options().create(true).append(true).open(self.folder.join("errors"))?;
        let mut command = network.command(self.number);
        command.arg(&self.program).args(&self.options).current_dir(&self.folder);
        if skew_s != 0 {
            command.env("LD_PRELOAD", FAKE_TIME).env("FAKETIME", format!("{skew_s:+}"));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let child = command.stdin(Stdio::null()).stderr(errors).spawn();
        self.child = Some(child.context("cannot start a server")?);
        let deadline = Instant::now() + START_TIMEOUT;
        while UnixStream::connect(self.folder.join("socket")).is_err() {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().transpose())
            {
                bail!("the server of host {} ended with {}", self.number, status?);
            }
            ensure!(
                Instant::now() < deadline,
                "the server of host {} did not start in time",
                self.number
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(super) fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// Sends SIGKILL and waits for the process to end.
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().context("cannot kill a server")?;
            child.wait().context("cannot wait for a server")?;
        }
        Ok(())
    }

    /// Runs a command of `tyrant` that connects to the server. Returns its output.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--server").arg(self.folder.join("socket"));
        if self.security.is_some() {
            command.envs(Security::environment());
        }
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "host {}: {arguments:?}: {}",
            self.number,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns all records, one per line, in the order of their keys.
    pub(super) fn records(&self) -> Result<Vec<String>> {
        let listed = self.run(&["list", "--hex", "--values"])?;
        let mut records: Vec<String> = listed.lines().map(str::to_owned).collect();
        records.sort_unstable();
        Ok(records)
    }

    /// Returns whether the server has logged `text`.
    pub(super) fn has_logged(&self, text: &str) -> Result<bool> {
        Ok(std::fs::read_to_string(self.folder.join("log"))?.contains(text))
    }

    /// Returns the unexpected lines of the server's log.
    pub(super) fn complaints(&self) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(self.folder.join("log"))?;
        let errors = std::fs::read_to_string(self.folder.join("errors"))?;
        let bad = log.lines().filter(|line| line.contains("\tERROR\t")).chain(errors.lines());
        Ok(bad.map(|line| format!("host {}: {line}", self.number)).collect())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_in_at(reply: Option<&[u8]>) -> Result<Option<BufReader<UnixStream>>> {
        let (client, mut server) = UnixStream::pair().expect("a pair of sockets");
        client.set_read_timeout(Some(Duration::from_millis(10))).expect("a timeout");
        if let Some(reply) = reply {
            server.write_all(reply).expect("a reader");
            server.shutdown(std::net::Shutdown::Write).expect("a connection");
        }
        log_in(BufReader::new(client), Some("set name 0 0 0\r\n\r\n"))
    }

    #[test]
    fn a_server_that_does_not_respond_to_a_login_is_no_server_that_has_ended() {
        assert!(log_in_at(Some(b"STORED\r\n")).is_ok_and(|stream| stream.is_some()));
        assert!(log_in_at(Some(b"STO")).is_ok_and(|stream| stream.is_none()));
        assert!(log_in_at(Some(b"")).is_ok_and(|stream| stream.is_none()));
        log_in_at(Some(b"ERROR\r\n")).expect_err("a refusal");
        log_in_at(None).expect_err("a server that hangs");
    }
}
