//! Benchmark clients: run requests on a server in parallel.

use super::own_server::OwnServer;
use crate::errors::require;
use anyhow::{Context, Result, bail};
use client::Client;
use indicatif::{ProgressBar, ProgressStyle};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Most simultaneous clients.
const CLIENTS_MAX: usize = 1024;

/// Requests between two updates of the progress bar.
const STRIDE: u64 = 1000;

/// Checks that these numbers of clients are possible.
pub(super) fn check_clients(clients: &[usize]) -> Result<()> {
    require(
        clients.iter().all(|clients| (1..=CLIENTS_MAX).contains(clients)),
        format_args!("the number of clients must be from 1 to {CLIENTS_MAX}"),
    )?;
    Ok(())
}

/// Work of a client. Its arguments are a connection, a test for the numbers that belong to the
/// client, and a function to call after each request.
pub(super) type Work<'w> =
    dyn Fn(&Client, &dyn Fn(u64) -> bool, &mut dyn FnMut()) -> Result<()> + Sync + 'w;

/// Waits for the end of all clients. Returns the first error.
pub(super) fn join(clients: Vec<ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    for client in clients {
        match client.join() {
            Ok(result) => result?,
            Err(_) => bail!("a client panicked"),
        }
    }
    Ok(())
}

/// Runs `work` on `clients` connections in parallel. Returns the duration.
pub(super) fn in_parallel(
    server: &OwnServer,
    clients: usize,
    name: &'static str,
    total: u64,
    work: &Work<'_>,
) -> Result<Duration> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {per_sec} {eta}")
        .context("cannot create the progress bar")?;
    let bar = ProgressBar::new(total).with_style(style).with_message(name);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|index| {
                let bar = &bar;
                scope.spawn(move || {
                    let client = server.connect()?;
                    let mut done = 0;
                    let own = |number: u64| number % clients as u64 == index as u64;
                    work(&client, &own, &mut || {
                        done += 1;
                        if done % STRIDE == 0 {
                            bar.inc(STRIDE);
                        }
                    })
                })
            })
            .collect();
        join(threads)
    })?;
    bar.finish_and_clear();
    Ok(started.elapsed())
}
