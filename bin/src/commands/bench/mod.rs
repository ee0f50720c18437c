//! `tyrant bench`: gets and sets against a running server, with a table like that of memtier.

mod latencies;

use crate::errors::require;
use crate::output::{AsJson, object, write_json};
use crate::remote::{Server, ServerArgument};
use crate::signals::Cleanup;
use crate::transfer::progress::Progress;
use anyhow::{Result, bail};
use client::Reply;
use latencies::Latencies;
use parking_lot::Mutex;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most simultaneous clients.
const CLIENTS_MAX: usize = 1024;

/// Greatest number of requests in flight for each client.
const PIPELINE_MAX: usize = 10_000;

/// Greatest length of a value, in bytes.
const VALUE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Measure the server on this machine for ten seconds
  tyrant bench --seconds 10
  # Ten gets for each set of 32 bytes, in pipelines of 16
  tyrant bench --pipeline 16 --sets 1 --gets 10 --value-bytes 32
  # Store 100,000 records on another server, and print JSON
  tyrant bench --server db1:1978 --gets 0 --requests 100000 --json")]
pub(super) struct Bench {
    #[command(flatten)]
    server: ServerArgument,
    /// Send requests for this many seconds
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "requests")]
    seconds: u64,
    /// Send this many requests in all
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Run N simultaneous clients, each with a connection
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Send N requests at once on each connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: usize,
    /// Let N requests of each cycle be sets
    #[arg(long, value_name = "N", default_value_t = 1)]
    sets: u64,
    /// Let N requests of each cycle be gets
    #[arg(long, value_name = "N", default_value_t = 10)]
    gets: u64,
    /// Choose among N keys
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Let all keys begin with this; records with these keys are replaced, and stay
    #[arg(long, value_name = "TEXT", default_value = "bench:")]
    prefix: String,
    /// Set values of N bytes
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    #[command(flatten)]
    form: AsJson,
}

/// Requests of one kind.
#[derive(Clone, Default)]
struct Kind {
    latencies: Latencies,
    hits: u64,
    misses: u64,
    /// Bytes of keys and values, in both directions.
    bytes: u64,
}

/// Requests that were answered.
#[derive(Clone, Default)]
struct Tally {
    sets: Kind,
    gets: Kind,
}

impl Kind {
    fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.hits += other.hits;
        self.misses += other.misses;
        self.bytes += other.bytes;
    }
}

impl Tally {
    fn merge(&mut self, other: &Self) {
        self.sets.merge(&other.sets);
        self.gets.merge(&other.gets);
    }
}

impl Bench {
    pub(super) fn run(&self) -> Result<()> {
        require(
            (1..=CLIENTS_MAX).contains(&self.clients),
            format_args!("the number of clients must be from 1 to {CLIENTS_MAX}"),
        )?;
        require(
            (1..=PIPELINE_MAX).contains(&self.pipeline),
            format_args!("--pipeline must be from 1 to {PIPELINE_MAX}"),
        )?;
        require(self.sets + self.gets > 0, "one of --sets and --gets must be at least 1")?;
        require(self.keys > 0, "--keys must be at least 1")?;
        require(
            self.value_bytes <= VALUE_BYTES_MAX,
            format_args!("--value-bytes must be at most {VALUE_BYTES_MAX}"),
        )?;
        let (address, settings) = (self.server.address(), self.server.settings()?);
        // All are connected before the first request.
        let servers: Vec<Server> = (0..self.clients)
            .map(|_| Server::connect(&address, &settings))
            .collect::<Result<_>>()?;
        let tallies: Vec<_> =
            servers.iter().map(|_| Arc::new(Mutex::new(Tally::default()))).collect();
        let progress = match self.requests {
            Some(requests) => Progress::of_share("sending requests", requests),
            None => Progress::of_time("sending requests"),
        };
        let started = Instant::now();
        let interrupted = {
            let (bar, tallies, form) = (progress.bar(), tallies.clone(), self.form);
            move || {
                bar.finish_and_clear();
                eprintln!("tyrant: interrupted; these are the requests until now");
                let all = merged(&tallies);
                let _ = print(&all, started.elapsed(), form);
            }
        };
        let interruption = Cleanup::on_signals(interrupted)?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = servers
                .iter()
                .zip(&tallies)
                .enumerate()
                .map(|(number, (server, tally))| {
                    let progress = &progress;
                    scope.spawn(move || self.client(number as u64, server, tally, progress))
                })
                .collect();
            for client in threads {
                match client.join() {
                    Ok(result) => result?,
                    Err(_) => bail!("a client panicked"),
                }
            }
            Ok(())
        })?;
        let took = started.elapsed();
        drop((interruption, progress));
        print(&merged(&tallies), took, self.form)
    }

    /// Sends the requests of one client.
    fn client(
        &self,
        number: u64,
        server: &Server,
        tally: &Mutex<Tally>,
        progress: &Progress,
    ) -> Result<()> {
        let value = vec![b'x'; self.value_bytes];
        let clients = self.clients as u64;
        let share = self.requests.map(|all| all / clients + u64::from(number < all % clients));
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let mut sent = 0u64;
        loop {
            let left = match share {
                Some(share) => share - sent,
                None if Instant::now() < until => u64::MAX,
                None => 0,
            };
            let batch = left.min(self.pipeline as u64);
            if batch == 0 {
                return Ok(());
            }
            let done = self.batch(server, tally, &value, (number, sent), batch);
            done.map_err(|error| server.explain("bench", error))?;
            sent += batch;
            progress.advance(batch);
        }
    }

    /// Sends some requests at once, after `sent` others of this client.
    fn batch(
        &self,
        server: &Server,
        tally: &Mutex<Tally>,
        value: &[u8],
        (number, sent): (u64, u64),
        count: u64,
    ) -> Result<()> {
        let mut pipeline = server.pipeline();
        let mut kinds = Vec::with_capacity(count as usize);
        for request in sent..sent + count {
            let random = scatter(scatter(number) ^ request);
            let key = format!("{}{}", self.prefix, random % self.keys);
            let is_set = request % (self.sets + self.gets) < self.sets;
            if is_set {
                pipeline.put(key.as_bytes(), value)?;
            } else {
                pipeline.get(key.as_bytes())?;
            }
            kinds.push((is_set, key.len() as u64));
        }
        let started = Instant::now();
        let mut kinds = kinds.into_iter();
        let mut refused = false;
        let mut answered = Vec::with_capacity(count as usize);
        pipeline.run_each(|reply| {
            let took = started.elapsed();
            let value_bytes = match reply {
                Reply::Value(found) => found.map(|value| value.len() as u64),
                Reply::Done(true) => Some(value.len() as u64),
                Reply::Done(false) | Reply::Sum(_) => {
                    refused = true;
                    None
                }
            };
            answered.extend(kinds.next().map(|kind| (kind, took, value_bytes)));
            anyhow::Ok(())
        })?;
        // It is not locked while the server is slow, so that a signal can print the results.
        let mut tally = tally.lock();
        for ((is_set, key_bytes), took, value_bytes) in answered {
            let kind = if is_set { &mut tally.sets } else { &mut tally.gets };
            kind.latencies.add(took);
            kind.bytes += key_bytes + value_bytes.unwrap_or(0);
            match value_bytes {
                _ if is_set => {}
                Some(_) => kind.hits += 1,
                None => kind.misses += 1,
            }
        }
        drop(tally);
        if refused {
            return Err(client::Error::Miscellaneous.into());
        }
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): a bijection that scatters its argument.
fn scatter(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

fn merged(tallies: &[Arc<Mutex<Tally>>]) -> Tally {
    let mut all = Tally::default();
    tallies.iter().for_each(|tally| all.merge(&tally.lock()));
    all
}

/// Prints a line for each kind of request, and for all.
fn print(all: &Tally, took: Duration, form: AsJson) -> Result<()> {
    let mut totals = all.sets.clone();
    totals.merge(&all.gets);
    let mut output = std::io::stdout().lock();
    if !form.json {
        writeln!(
            output,
            "{:8}{:>12}{:>12}{:>12}{:>10}{:>10}{:>10}{:>10}{:>12}",
            "Type", "Ops/s", "Hits/s", "Misses/s", "Avg ms", "p50 ms", "p99 ms", "p99.9 ms", "KB/s"
        )?;
    }
    for (name, kind) in [("Sets", &all.sets), ("Gets", &all.gets), ("Totals", &totals)] {
        line(name, kind, took, form, &mut output)?;
    }
    Ok(output.flush()?)
}

fn line(
    name: &str,
    kind: &Kind,
    took: Duration,
    form: AsJson,
    output: &mut impl Write,
) -> Result<()> {
    let per_second = |count: f64| count / took.as_secs_f64().max(1e-9);
    let ops = per_second(kind.latencies.count() as f64);
    let [hits, misses] = [kind.hits, kind.misses].map(|count| per_second(count as f64));
    let kilobytes = per_second(kind.bytes as f64 / 1024.0);
    let mean = kind.latencies.mean_ms();
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| kind.latencies.percentile_ms(share));
    if form.json {
        let rounded = |number: f64| ((number * 1000.0).round() / 1000.0).into();
        let members = [
            ("type", name.to_lowercase().into()),
            ("requests", kind.latencies.count().into()),
            ("ops_per_second", rounded(ops)),
            ("hits_per_second", rounded(hits)),
            ("misses_per_second", rounded(misses)),
            ("mean_ms", rounded(mean)),
            ("p50_ms", rounded(p50)),
            ("p99_ms", rounded(p99)),
            ("p99_9_ms", rounded(p999)),
            ("kilobytes_per_second", rounded(kilobytes)),
        ];
        return write_json(&object(members), output);
    }
    let found = |count: f64| match name {
        "Sets" => "---".to_owned(),
        _ => format!("{count:.0}"),
    };
    writeln!(
        output,
        "{name:8}{ops:>12.0}{:>12}{:>12}{mean:>10.3}{p50:>10.3}{p99:>10.3}{p999:>10.3}\
         {kilobytes:>12.1}",
        found(hits),
        found(misses)
    )?;
    Ok(())
}
