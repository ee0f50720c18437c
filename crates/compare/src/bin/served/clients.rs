//! Clients of an experiment: run requests on a server in parallel.

use crate::connect;
use anyhow::{Result, bail, ensure};
use client::Client;
use compare::load::server::Server;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Most simultaneous clients.
const CLIENTS_MAX: usize = 1024;

/// Checks that these numbers of clients are possible.
pub(super) fn check_clients(clients: &[usize]) -> Result<()> {
    ensure!(
        clients.iter().all(|clients| (1..=CLIENTS_MAX).contains(clients)),
        "the number of clients must be from 1 to {CLIENTS_MAX}"
    );
    Ok(())
}

/// Waits for the end of all clients. Returns their results, or the first error.
pub(super) fn join<T>(clients: Vec<ScopedJoinHandle<'_, Result<T>>>) -> Result<Vec<T>> {
    let joined = clients.into_iter().map(|client| match client.join() {
        Ok(result) => result,
        Err(_) => bail!("a client panicked"),
    });
    joined.collect()
}

/// Runs `work` on `clients` connections in parallel: its arguments are a connection, and a test for
/// the numbers that belong to the client. Returns the duration.
pub(super) fn in_parallel(
    server: &Server,
    clients: usize,
    work: impl Fn(&Client, &dyn Fn(u64) -> bool) -> Result<()> + Sync,
) -> Result<Duration> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads = (0..clients).map(|index| {
            let work = &work;
            scope.spawn(move || {
                let own = |number: u64| number % clients as u64 == index as u64;
                work(&connect(server)?, &own)
            })
        });
        join(threads.collect())
    })?;
    Ok(started.elapsed())
}
