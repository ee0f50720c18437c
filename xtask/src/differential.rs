//! Differential tests: random conversations with memcached or Redis, and with the server, compared
//! byte for byte.
//!
//! A conversation is one connection. It is made from a seed, which a failure reports; `cargo xtask
//! memcached --seed N` and `cargo xtask redis --seed N` repeat it.

mod binary;
mod random;
mod redis;
mod redis_scripts;
mod text;

pub(crate) use redis::encoded as redis_request;

use crate::programs::{Profile, Server, build, free_port};
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Seed of the first conversation of `cargo xtask test`: a failure of the tests is one that the
/// change under test made. `cargo xtask memcached --seed N` holds other conversations.
pub(crate) const SEED: u64 = 0;

/// Number of conversations of `cargo xtask test` with each database.
pub(crate) const CONVERSATIONS: u64 = 300;

/// The same with Redis.
pub(crate) const REDIS_CONVERSATIONS: u64 = 500;

/// Stores before the first conversation: the cas numbers that conversations name without having
/// seen them are those of no record afterwards.
const FIRST_STORES: usize = 100;

/// Longest time until a peer accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs `conversations` conversations with memcached and the server over each kind of database,
/// from `seed` on.
pub(crate) fn run(profile: Profile, seed: u64, conversations: u64) -> Result<()> {
    compare(profile, Peer::memcached, |name, memcached, server| {
        println!("{conversations} conversations from seed {seed} with {name}");
        // From the first meta command on, the server records which keys were read.
        text::ask(server, b"mg k h\r\n")?;
        for port in [memcached, server] {
            text::ask(port, &b"set k 0 0 1\r\nv\r\n".repeat(FIRST_STORES))?;
        }
        for seed in seed..seed + conversations {
            text::compare_answers(seed, memcached, server)
                .with_context(|| format!("seed {seed} with {name}, text"))?;
            binary::compare_answers(seed, memcached, server)
                .with_context(|| format!("seed {seed} with {name}, binary"))?;
        }
        Ok(())
    })
}

/// Does the same with Redis.
pub(crate) fn run_redis(profile: Profile, seed: u64, conversations: u64) -> Result<()> {
    compare(profile, Peer::redis, |name, peer, server| {
        println!("{conversations} conversations from seed {seed} with {name}");
        for seed in seed..seed + conversations {
            redis::compare_answers(seed, peer, server)
                .with_context(|| format!("seed {seed} with {name}"))?;
        }
        Ok(())
    })
}

/// Starts a peer, and the server over each kind of database that stores the same values. Calls
/// `converse` with the name of the database, and the ports of both.
fn compare(
    profile: Profile,
    start: impl FnOnce(&Path) -> Result<Peer>,
    converse: impl Fn(&str, u16, u16) -> Result<()>,
) -> Result<()> {
    requirements::install_programs()?;
    let programs = build(profile)?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let peer = start(folder.path())?;
    for name in ["*", "+", "casket.tch", "casket.tcb"] {
        let database = match name {
            "*" | "+" => name.into(),
            name => folder.path().join(name),
        };
        let log = folder.path().join(format!("{}.log", name.replace('*', "hash")));
        let server = Server::start_logging(&programs, &database, &log)?;
        converse(name, peer.port, server.port)?;
    }
    Ok(())
}

/// Running memcached or Redis, which is killed on drop.
struct Peer {
    child: Child,
    port: u16,
}

impl Peer {
    fn redis(folder: &Path) -> Result<Self> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        Self::start(command, port, folder)
    }

    fn memcached(folder: &Path) -> Result<Self> {
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

    fn start(mut command: Command, port: u16, folder: &Path) -> Result<Self> {
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
}

impl Drop for Peer {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
