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

use crate::peer::Peer;
use crate::programs::{Profile, Server, build};
use crate::requirements;
use anyhow::{Context, Result};
use std::path::Path;

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
