//! Servers of other projects, with which the server is compared.

use crate::programs::free_port;
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until a peer accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Running server of another project, which is killed on drop.
pub(crate) struct Peer {
    child: Child,
    pub(crate) port: u16,
}

impl Peer {
    pub(crate) fn redis(folder: &Path) -> Result<Self> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        Self::start(command, port, folder)
    }

    pub(crate) fn memcached(folder: &Path) -> Result<Self> {
        let port = free_port();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-t", "1"]);
        // Background threads could decide whether a number keeps its length.
        command.args(["-o", "no_lru_maintainer,no_lru_crawler"]);
        if requirements::is_root() {
            command.args(["-u", "nobody"]);
        }
        Self::start(command, port, folder)
    }

    /// Starts a program in a folder, and waits until it accepts connections on the port.
    pub(crate) fn start(mut command: Command, port: u16, folder: &Path) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let mut peer = Self { child, port };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(peer.child.try_wait()?.is_none(), "{program} has ended");
            ensure!(Instant::now() < deadline, "{program} does not accept connections");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(peer)
    }

    /// Returns the processor time of all of its threads that still run.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let threads = format!("/proc/{}/task", self.child.id());
        let mut total_ns = 0;
        for thread in std::fs::read_dir(&threads).with_context(|| threads.clone())? {
            // A thread may have ended since.
            let text = std::fs::read_to_string(thread?.path().join("schedstat"));
            let first = text.ok().and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
            total_ns += first.unwrap_or(0);
        }
        Ok(Duration::from_nanos(total_ns))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
