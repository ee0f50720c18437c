//! Servers on loopback, each in a folder of its own. Dropping one stops it and removes its folder.

use super::protocol::{Protocol, mariadb};
use crate::cgroup::MemoryCgroup;
use crate::process;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START_PATIENCE: Duration = Duration::from_secs(15);
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// How to start a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Name in the tables.
    pub name: String,
    /// Protocol of the connections.
    pub protocol: Protocol,
    /// Whether connections use TLS. The folder of the server then has the files `server.pem` and
    /// `server.key`.
    pub tls: bool,
    /// Program and arguments, separated by spaces. `{port}` and `{dir}` are replaced; `""` is an
    /// empty argument.
    pub command: String,
}

impl Recipe {
    /// Returns memcached with two threads.
    #[must_use]
    pub fn memcached(name: &str, protocol: Protocol) -> Self {
        Self {
            name: name.into(),
            protocol,
            tls: false,
            command: "memcached -t 2 -m 4096 -c 4096 -l 127.0.0.1 -p {port} -u root".into(),
        }
    }

    /// Returns Redis without persistence.
    #[must_use]
    pub fn redis() -> Self {
        Self {
            name: "redis".into(),
            protocol: Protocol::Redis,
            tls: false,
            command: "redis-server --save \"\" --appendonly no --bind 127.0.0.1 --port {port} \
                      --dir {dir}"
                .into(),
        }
    }

    /// Returns memcached with TLS.
    #[must_use]
    pub fn memcached_tls() -> Self {
        let mut recipe = Self::memcached("memcached-tls", Protocol::Memcached);
        recipe.tls = true;
        recipe.command += " -Z -o ssl_chain_cert={dir}/server.pem,ssl_key={dir}/server.key";
        recipe
    }

    /// Returns Redis with TLS.
    #[must_use]
    pub fn redis_tls() -> Self {
        let mut recipe = Self { name: "redis-tls".into(), tls: true, ..Self::redis() };
        recipe.command = recipe.command.replace("--port", "--port 0 --tls-port");
        recipe.command += " --tls-cert-file {dir}/server.pem --tls-key-file {dir}/server.key \
                           --tls-ca-cert-file {dir}/server.pem --tls-auth-clients no";
        recipe
    }

    /// Returns a Redis that acknowledges a write when it is on the disk.
    #[must_use]
    pub fn redis_durable() -> Self {
        Self {
            name: "redis-durable".into(),
            protocol: Protocol::Redis,
            tls: false,
            command: "redis-server --save \"\" --appendonly yes --appendfsync always \
                      --bind 127.0.0.1 --port {port} --dir {dir}"
                .into(),
        }
    }

    /// Returns MariaDB with this much memory for its pages. Each commit is written to the log, and
    /// if it is durable, waits for the disk.
    #[must_use]
    pub fn mariadb(name: &str, is_durable: bool, buffer_pool_mib: u64) -> Self {
        let flush = if is_durable { 1 } else { 2 };
        Self {
            name: name.into(),
            protocol: Protocol::MARIADB,
            tls: false,
            command: format!(
                "mariadbd --no-defaults --user=root --datadir={{dir}}/data \
                 --socket={{dir}}/socket --pid-file={{dir}}/pid --bind-address=127.0.0.1 \
                 --port={{port}} --skip-name-resolve --skip-log-bin --max-connections=500 \
                 --innodb-buffer-pool-size={buffer_pool_mib}M --key-buffer-size=8M \
                 --aria-pagecache-buffer-size=8M --performance-schema=OFF \
                 --innodb-flush-log-at-trx-commit={flush}"
            ),
        }
    }

    /// Returns a memcached with keys in memory, and values beyond this much memory in a file.
    #[must_use]
    pub fn memcached_extstore(memory_mib: u64, file_mib: u64) -> Self {
        let mut recipe = Self::memcached("memcached-extstore", Protocol::Memcached);
        recipe.command = recipe.command.replace("-m 4096", &format!("-m {memory_mib}"));
        recipe.command += &format!(" -o ext_path={{dir}}/values:{file_mib}m");
        recipe
    }

    /// Parses a recipe `NAME:PROTOCOL=COMMAND`, with `+tls` after the protocol for TLS.
    pub fn parse(text: &str) -> Result<Self> {
        let (head, command) = text.split_once('=').context("a server is NAME:PROTOCOL=COMMAND")?;
        let (name, protocol) = head.split_once(':').context("a server is NAME:PROTOCOL=COMMAND")?;
        let (protocol, tls) = match protocol.strip_suffix("+tls") {
            Some(protocol) => (protocol, true),
            None => (protocol, false),
        };
        let Some(protocol) = Protocol::named(protocol) else {
            bail!(
                "unknown protocol {protocol}: memcached, memcached-meta, memcached-binary, binary, \
                 redis or mariadb"
            );
        };
        Ok(Self { name: name.into(), protocol, tls, command: command.into() })
    }

    fn words(&self, port: u16, folder: &Path) -> Vec<String> {
        let fill = |word: &str| match word {
            "\"\"" => String::new(),
            word => word
                .replace("{port}", &port.to_string())
                .replace("{dir}", &folder.display().to_string()),
        };
        self.command.split_whitespace().map(fill).collect()
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Recipe from which it was started.
    pub recipe: Recipe,
    /// Address on which it listens.
    pub address: SocketAddr,
    /// Number of new records that it was given so far.
    pub created: AtomicU64,
    child: Child,
    folder: TempDir,
}

impl Server {
    /// Starts a server in a new folder under `parent` and waits until it accepts connections.
    pub fn start(recipe: &Recipe, parent: &Path) -> Result<Self> {
        Self::start_within(None, recipe, parent)
    }

    /// Starts a server like [`Server::start`], within the memory of a cgroup.
    pub fn start_within(
        cgroup: Option<&MemoryCgroup>,
        recipe: &Recipe,
        parent: &Path,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("load-{}-", recipe.name))
            .tempdir_in(parent)
            .with_context(|| format!("a folder for {}", recipe.name))?;
        if recipe.tls {
            certify(folder.path())?;
        }
        if recipe.protocol.is_mariadb() {
            create_data_folder(folder.path())?;
        }
        let port = free_port()?;
        let words = recipe.words(port, folder.path());
        let (program, arguments) = words.split_first().context("an empty command")?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(cgroup) = cgroup {
            command = cgroup.enclose(&command);
        }
        let child = command
            .current_dir(std::env::current_dir()?)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {program} for {}", recipe.name))?;
        let mut server = Self {
            recipe: recipe.clone(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            created: AtomicU64::new(0),
            child,
            folder,
        };
        server.await_listening()?;
        if recipe.protocol.is_mariadb() {
            let mut stream = TcpStream::connect(server.address)?;
            mariadb::execute(&mut stream, mariadb::SET_UP)
                .with_context(|| format!("cannot create the table in {}", recipe.name))?;
        }
        Ok(server)
    }

    fn await_listening(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.recipe.name, self.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "{} does not listen after {START_PATIENCE:?}: {}",
                self.recipe.name,
                self.log_tail()
            );
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Returns the end of the server's output.
    #[must_use]
    pub fn log_tail(&self) -> String {
        const TAIL_BYTES: usize = 2000;
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL_BYTES)..]).into_owned()
    }

    /// Returns the CPU time of the server so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::process_cpu_time(self.child.id())
            .with_context(|| format!("{} is gone: {}", self.recipe.name, self.log_tail()))
    }

    /// Returns the current and the peak memory of the server.
    pub fn memory(&self) -> Result<process::Memory> {
        Ok(process::memory(self.child.id())?)
    }

    /// Returns the folder of the server's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the server's process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Asks the server to end and waits for it; kills it if it does not end.
    pub fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            let process_id = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(process_id, rustix::process::Signal::TERM)?;
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                bail!("{} did not end on SIGTERM within {STOP_PATIENCE:?}", self.recipe.name);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{error}");
        }
    }
}

/// Creates a self-signed certificate and its key in a folder.
fn certify(folder: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-days", "30", "-subj", "/CN=load"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", "server.key"]);
    command.args(["-out", "server.pem"]).current_dir(folder).stderr(Stdio::null());
    let status = command.status().context("cannot run openssl")?;
    ensure!(status.success(), "openssl ended with {status}");
    Ok(())
}

/// Creates MariaDB's folder `data` in a folder, with a root user without password.
fn create_data_folder(folder: &Path) -> Result<()> {
    let mut command = Command::new("mariadb-install-db");
    command.args(["--no-defaults", "--user=root", "--skip-test-db"]);
    command.arg("--auth-root-authentication-method=normal");
    command.arg(format!("--datadir={}", folder.join("data").display()));
    let output = command.output().context("cannot run mariadb-install-db")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mariadb-install-db ended with {}: {words}", output.status);
    Ok(())
}

/// Returns a port that is free now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_name_protocol_and_command() {
        let recipe = Recipe::parse("new:binary=./tyrant serve --port {port} {dir}/a \"\"").unwrap();
        assert_eq!((recipe.name.as_str(), recipe.protocol), ("new", Protocol::Binary));
        let words = recipe.words(7, Path::new("/d"));
        assert_eq!(words, ["./tyrant", "serve", "--port", "7", "/d/a", ""]);
        assert!(Recipe::parse("new:smtp=x").is_err());
        assert!(Recipe::parse("new").is_err());
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_output() {
        let recipe = Recipe::parse("broken:redis=ls /nowhere/{port}").unwrap();
        let error = Server::start(&recipe, &std::env::temp_dir()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/"), "{error}");
    }
}
