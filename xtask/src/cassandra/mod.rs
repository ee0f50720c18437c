//! Apache Cassandra for the tests: one or three real nodes on loopback addresses.
//!
//! The settings favour a quick start and little memory. A cluster of an operator needs others, see
//! `files.rs`.

pub(crate) mod chaos;
mod cql;
mod files;
mod migrate;
mod secure;

use crate::programs::{Profile, target_folder};
use anyhow::{Context, Result, bail, ensure};
use files::Layout;
use rustix::process::{Pid, Signal, kill_process};
use secure::Security;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until a node has started, and until the ring is settled.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Interval of looking whether a node has changed its state.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Port of the nodes for clients, on the address of each.
pub(crate) const CQL_PORT: u16 = 9042;

/// Release of Java that Cassandra 5.0 needs.
const JAVA_RELEASE: u32 = 17;

/// Advice if it is missing.
const INSTALL_JAVA: &str =
    "install it (Debian: apt-get install openjdk-17-jdk-headless), and put its `bin` first in PATH";

/// Most nodes of a cluster.
const MOST_NODES: u8 = 3;

/// Folder of certificates and a password beside the folders of the nodes.
const SECURITY: &str = "security";

/// Commands on the nodes below `target/cassandra`.
#[derive(clap::Subcommand)]
pub(crate) enum Action {
    /// Start new nodes without data, and wait until they serve.
    Up {
        /// Set the number of nodes.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_NODES)))]
        nodes: u8,
        /// Require TLS, a certificate of the client, and a password.
        #[arg(long)]
        secure: bool,
    },
    /// End all nodes.
    Down,
    /// End a node with SIGKILL.
    Kill {
        /// Number of the node, from 1 on.
        node: u8,
    },
    /// Start a node again, with its data, and wait until it serves.
    Start {
        /// Number of the node, from 1 on.
        node: u8,
    },
}

/// Executes a command on the nodes. They run on after it.
pub(crate) fn run(action: &Action) -> Result<()> {
    match *action {
        Action::Up { nodes, secure } => {
            let nodes = match secure {
                false => Nodes::start_new(nodes)?,
                true => Nodes::start_secure(nodes)?,
            };
            println!("CQL on {}", nodes.contact_points());
            if let Some(security) = nodes.security() {
                println!("options of names: {}", security.options());
            }
            nodes.leave();
        }
        Action::Down => Nodes::present()?.end()?,
        Action::Kill { node } => Nodes::present()?.kill(node)?,
        Action::Start { node } => {
            let nodes = Nodes::present()?;
            nodes.start(node)?;
            nodes.wait_until_settled()?;
        }
    }
    Ok(())
}

/// A part of the tests that need nodes.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// Operations of each protocol.
    Operations,
    /// Copies of databases into the cluster and back, which are killed.
    Migrate,
    /// Requests without a majority of the nodes.
    Refusals,
    /// TLS, passwords and rights, over a node of its own.
    Security,
}

/// Installs Cassandra and Java.
pub(crate) fn install() -> Result<()> {
    files::classpath()?;
    check_java()
}

/// Starts nodes, and runs the tests that need them, or one part of these. With `chaos` it kills
/// nodes under load too.
pub(crate) fn test(nodes: u8, only: Option<Suite>, chaos: bool) -> Result<()> {
    run_suites(nodes, only)?;
    if chaos {
        for kind in chaos::Kind::ALL {
            chaos::run_all(Profile::Debug, kind, chaos::WRITES)?;
        }
    }
    Ok(())
}

fn run_suites(nodes: u8, only: Option<Suite>) -> Result<()> {
    let is_wanted = |suite| only.is_none_or(|only| only == suite);
    if is_wanted(Suite::Security) {
        secure::run_all(Profile::Debug)?;
    }
    if only == Some(Suite::Security) {
        return Ok(());
    }
    let nodes = Nodes::start_new(nodes)?;
    if is_wanted(Suite::Operations) {
        test_operations(&nodes)?;
    }
    if is_wanted(Suite::Migrate) {
        migrate::run_all(Profile::Debug, &nodes)?;
    }
    if is_wanted(Suite::Refusals) {
        chaos::run_refusals(Profile::Debug, &nodes)?;
    }
    Ok(())
}

fn test_operations(nodes: &Nodes) -> Result<()> {
    let contact_points = nodes.contact_points();
    for mut command in crate::test_binaries::of_package("tyrant-cluster")? {
        crate::programs::run(
            command
                .arg("--ignored")
                .env("TYRANT_CASSANDRA", &contact_points)
                .env("TYRANT_CASSANDRA_REPLICATION", nodes.layout.count.to_string()),
        )?;
    }
    Ok(())
}

/// Nodes of a cluster. New ones are ended when dropped.
pub(crate) struct Nodes {
    layout: Layout,
    ends: bool,
}

impl Nodes {
    /// Starts nodes without data, and waits until each serves through all others.
    pub(crate) fn start_new(count: u8) -> Result<Self> {
        Self::start_all(count, false)
    }

    /// As [`Nodes::start_new`], with TLS and a password.
    pub(super) fn start_secure(count: u8) -> Result<Self> {
        Self::start_all(count, true)
    }

    fn start_all(count: u8, is_secure: bool) -> Result<Self> {
        check_java()?;
        let classpath = files::classpath()?;
        let layout = Layout::new(target_folder().join("cassandra/nodes"), count, classpath);
        let mut nodes = Self { layout, ends: true };
        for node in 1..=MOST_NODES {
            ensure!(nodes.process(node)?.is_none(), "node {node} runs: cargo xtask cassandra down");
        }
        if nodes.layout.folder.exists() {
            fs::remove_dir_all(&nodes.layout.folder).context("cannot remove the old nodes")?;
        }
        if is_secure {
            let addresses: Vec<Ipv4Addr> =
                nodes.numbers().map(|node| nodes.address(node)).collect();
            let folder = nodes.layout.folder.join(SECURITY);
            nodes.layout.security = Some(Security::make(&folder, &addresses)?);
        }
        for node in nodes.numbers() {
            nodes.layout.write(node)?;
        }
        for node in nodes.numbers() {
            nodes.spawn(node)?;
        }
        for node in nodes.numbers() {
            nodes.wait_until_serving(node)?;
        }
        nodes.wait_until_settled()?;
        Ok(nodes)
    }

    /// Returns the nodes that were made by an earlier process.
    fn present() -> Result<Self> {
        let folder = target_folder().join("cassandra/nodes");
        let mut count = 0;
        while folder.join((count + 1).to_string()).exists() {
            count += 1;
        }
        ensure!(count > 0, "there are no nodes: cargo xtask cassandra up");
        let security = Security::present(&folder.join(SECURITY));
        let mut layout = Layout::new(folder, count, files::classpath()?);
        layout.security = security;
        Ok(Self { layout, ends: false })
    }

    /// Returns the files of nodes that require TLS and a password.
    fn security(&self) -> Option<&Security> {
        self.layout.security.as_ref()
    }

    /// Executes a statement by a node.
    pub(super) fn execute(&self, node: u8, statement: &str, consistency: u16) -> Result<()> {
        cql::execute(self.address(node), self.security(), statement, consistency)
    }

    /// Lets the nodes run on.
    fn leave(mut self) {
        self.ends = false;
    }

    /// Returns the numbers of the nodes.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.layout.count
    }

    /// Returns the addresses for clients, separated by commas.
    pub(crate) fn contact_points(&self) -> String {
        let each = self.numbers().map(|node| format!("{}:{CQL_PORT}", self.address(node)));
        each.collect::<Vec<_>>().join(",")
    }

    fn address(&self, node: u8) -> Ipv4Addr {
        self.layout.address(node)
    }

    /// Starts a node, and waits until it serves. The others may not regard it as up yet.
    pub(crate) fn start(&self, node: u8) -> Result<()> {
        self.check(node)?;
        ensure!(self.process(node)?.is_none(), "node {node} runs already");
        self.spawn(node)?;
        self.wait_until_serving(node)
    }

    /// Starts the process of a node.
    pub(crate) fn spawn(&self, node: u8) -> Result<()> {
        use std::os::unix::process::CommandExt;
        let folder = self.layout.of(node);
        let output = File::options().create(true).append(true).open(folder.join("output"))?;
        let mut command = Command::new("java");
        command
            .args(self.layout.arguments(node))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Signals of the terminal are for this program alone.
            .process_group(0);
        let child = command.spawn();
        let mut child = child.context("cannot start java (Debian: openjdk-17-jdk-headless)")?;
        fs::write(self.pid_file(node), child.id().to_string())
            .context("cannot write a pid file")?;
        // The command line of a new process is empty for a moment.
        while self.process(node)?.is_none() {
            let ending = child.try_wait().context("cannot look after a node")?;
            ensure!(ending.is_none(), "node {node} has ended: {}", folder.join("output").display());
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Ends a node with SIGKILL, and waits for its end.
    pub(crate) fn kill(&self, node: u8) -> Result<()> {
        self.check(node)?;
        let Some(process) = self.process(node)? else { bail!("node {node} does not run") };
        self.signal(node, process, Signal::KILL)
    }

    /// Ends all nodes.
    fn end(&self) -> Result<()> {
        for node in self.numbers() {
            if let Some(process) = self.process(node)? {
                self.signal(node, process, Signal::KILL)?;
            }
        }
        Ok(())
    }

    fn signal(&self, node: u8, process: Pid, signal: Signal) -> Result<()> {
        kill_process(process, signal).with_context(|| format!("cannot end node {node}"))?;
        let deadline = Instant::now() + START_TIMEOUT;
        while self.process(node)?.is_some() {
            // A child of this process stays until it is waited for.
            let _ = rustix::process::waitpid(Some(process), rustix::process::WaitOptions::NOHANG);
            ensure!(Instant::now() < deadline, "node {node} does not end");
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Returns the process of a node, if it runs.
    fn process(&self, node: u8) -> Result<Option<Pid>> {
        let Ok(text) = fs::read_to_string(self.pid_file(node)) else { return Ok(None) };
        let pid: i32 = text.trim().parse().context("a pid file")?;
        // Another process may have the same number by now.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let folder = self.layout.of(node).into_os_string().into_encoded_bytes();
        let is_own = line.windows(folder.len().max(1)).any(|part| part == folder);
        Ok(Pid::from_raw(pid).filter(|_| is_own))
    }

    fn pid_file(&self, node: u8) -> PathBuf {
        self.layout.of(node).join("pid")
    }

    fn check(&self, node: u8) -> Result<()> {
        ensure!(self.numbers().any(|number| number == node), "there is no node {node}");
        Ok(())
    }

    /// Waits until a node answers a query.
    pub(crate) fn wait_until_serving(&self, node: u8) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let query = "SELECT release_version FROM system.local";
            match self.execute(node, query, cql::ONE) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context(format!("node {node} does not serve")));
                }
                Err(_) => {}
            }
            ensure!(
                self.process(node)?.is_some(),
                "node {node} has ended: see {}",
                self.layout.of(node).join("output").display()
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Waits until each node that runs executes a query that all of these have to answer.
    pub(crate) fn wait_until_settled(&self) -> Result<()> {
        let mut running = Vec::new();
        for node in self.numbers() {
            if self.process(node)?.is_some() {
                running.push(node);
            }
        }
        let consistency = match running.len() {
            1 => cql::ONE,
            2 => cql::TWO,
            _ => cql::THREE,
        };
        let create = format!(
            "CREATE KEYSPACE IF NOT EXISTS ready WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'dc1': {}}}",
            self.layout.count
        );
        let deadline = Instant::now() + START_TIMEOUT;
        let table = "CREATE TABLE IF NOT EXISTS ready.ready (k int PRIMARY KEY)";
        let read = "SELECT k FROM ready.ready WHERE k = 1";
        let Some(first) = running.first().copied() else { return Ok(()) };
        loop {
            let made = self
                .execute(first, &create, cql::ONE)
                .and_then(|()| self.execute(first, table, cql::ONE));
            let settled = running.iter().fold(made, |settled, node| {
                settled.and_then(|()| self.execute(*node, read, consistency))
            });
            match settled {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context("the ring is not settled"));
                }
                Err(_) => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }
}

/// Checks that `java` is of the release that the nodes need.
fn check_java() -> Result<()> {
    let output = Command::new("java").arg("-version").output();
    let output = output.with_context(|| format!("cannot start java: {INSTALL_JAVA}"))?;
    let shown = String::from_utf8_lossy(&output.stderr);
    ensure!(
        java_release(&shown) == Some(JAVA_RELEASE),
        "Cassandra needs JDK {JAVA_RELEASE}, and `java` is {:?}: {INSTALL_JAVA}",
        shown.lines().next().unwrap_or_default()
    );
    Ok(())
}

/// Returns the release that `java -version` shows, as 17 of `openjdk version "17.0.15"`.
fn java_release(shown: &str) -> Option<u32> {
    let version = shown.split('"').nth(1)?;
    version.split(|next: char| !next.is_ascii_digit()).next()?.parse().ok()
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if self.ends
            && let Err(error) = self.end()
        {
            eprintln!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_java_is_the_first_number_of_its_version() {
        for (shown, release) in [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK", Some(17)),
            ("openjdk version \"21\" 2023-09-19", Some(21)),
            ("openjdk version \"22-ea\" 2024-03-19", Some(22)),
            ("java version \"1.8.0_392\"", Some(1)),
            ("java: not found", None),
        ] {
            assert_eq!(java_release(shown), release, "{shown}");
        }
    }
}
