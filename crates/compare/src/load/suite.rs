//! Suites: the cases of a run, and the tables of their results.

use super::cold::sync_files;
use super::protocol::{Protocol, Script};
use super::server::{Recipe, Server};
use super::slice::{self, Case, Effort, Measured};
use super::workload::{Choice, Space, Workload};
use crate::cgroup::MemoryCgroup;
use crate::measurement::{self, Measurement};
use crate::records::Records;
use crate::report::{Table, figure, median};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// First number of the records with large values.
const FIRST_LARGE: u64 = 1 << 40;

/// Sizes of the suites' records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Records with small values.
    pub keys: u64,
    /// Bytes of a small value.
    pub value_bytes: usize,
    /// Records with large values.
    pub large_keys: u64,
    /// Bytes of a large value.
    pub large_value_bytes: usize,
}

impl Sizes {
    fn small(&self) -> Space {
        Space { first: 0, count: self.keys, value_bytes: self.value_bytes }
    }

    fn large(&self) -> Space {
        Space { first: FIRST_LARGE, count: self.large_keys, value_bytes: self.large_value_bytes }
    }

    fn inserts(&self) -> Workload {
        let choice = Choice::New;
        Workload {
            space: self.small(),
            choice,
            read_share: 0.0,
            keys_per_get: 1,
            script: None,
            pipeline: 1,
        }
    }

    fn mixed(&self) -> Workload {
        Workload { choice: Choice::Uniform, read_share: 0.9, ..self.inserts() }
    }

    fn large_mixed(&self) -> Workload {
        Workload { space: self.large(), read_share: 0.98, ..self.mixed() }
    }

    fn multi_get(&self) -> Workload {
        Workload { read_share: 1.0, keys_per_get: 16, ..self.mixed() }
    }
}

/// Numbers of connections from 1 to 128.
const CONNECTIONS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

fn case(name: &str, workload: Workload, connections: usize) -> Case {
    Case { name: format!("{name}, {connections} conn"), workload, connections }
}

/// Returns the cases of the issue: single requests, pipelines, multi-gets, and a sweep of
/// connections.
#[must_use]
pub fn issue_cases(sizes: &Sizes) -> Vec<Case> {
    let mut cases = Vec::new();
    for connections in [8, 32] {
        cases.push(case("insert 100 B", sizes.inserts(), connections));
        cases.push(case("2 KB, 1 set in 50", sizes.large_mixed(), connections));
    }
    // These include the 10:90 mix over 8 and over 32 connections.
    for connections in CONNECTIONS {
        cases.push(case("10:90 mix", sizes.mixed(), connections));
    }
    for connections in [8, 32] {
        let pipelined = |workload| Workload { pipeline: 16, ..workload };
        cases.push(case("insert, pipeline 16", pipelined(sizes.inserts()), connections));
        cases.push(case("10:90 mix, pipeline 16", pipelined(sizes.mixed()), connections));
        cases.push(case("16-key get", sizes.multi_get(), connections));
    }
    cases
}

/// Returns the cases of inserts: single requests from 1 to 128 connections.
#[must_use]
pub fn insert_cases(sizes: &Sizes) -> Vec<Case> {
    CONNECTIONS.map(|connections| case("insert", sizes.inserts(), connections)).into()
}

/// Returns the cases with fifty reads of a record per write.
#[must_use]
pub fn read_cases(sizes: &Sizes) -> Vec<Case> {
    let workload = Workload { read_share: 50.0 / 51.0, ..sizes.large_mixed() };
    [1, 8, 32, 128]
        .map(|connections| case("50 gets to 1 set", workload.clone(), connections))
        .into()
}

/// Returns the cases of data beyond memory: gets, overwrites and a mix over all records at random,
/// and inserts. The inserts are last, so that the others always have the same number of records.
#[must_use]
pub fn beyond_cases(sizes: &Sizes) -> Vec<Case> {
    let get = Workload { read_share: 1.0, ..sizes.mixed() };
    let overwrite = Workload { read_share: 0.0, ..sizes.mixed() };
    vec![
        case("get", get, 32),
        case("9 gets to 1 overwrite", sizes.mixed(), 32),
        case("overwrite", overwrite, 32),
        case("insert", sizes.inserts(), 32),
    ]
}

/// Returns the cases of scripts: calls of an empty one and of a counting one, and gets to compare.
#[must_use]
pub fn script_cases(sizes: &Sizes) -> Vec<Case> {
    let get = Workload { read_share: 1.0, ..sizes.mixed() };
    let call = |script| Workload { script: Some(script), ..sizes.mixed() };
    let mut cases = Vec::new();
    for connections in [1, 8, 32] {
        cases.push(case("get 100 B", get.clone(), connections));
        cases.push(case("empty script", call(Script::Empty), connections));
        cases.push(case("script that counts", call(Script::Increment), connections));
    }
    cases
}

/// Returns the cases of TLS: single requests, pipelines, multi-gets and large values.
#[must_use]
pub fn tls_cases(sizes: &Sizes) -> Vec<Case> {
    let set = Workload { read_share: 0.0, ..sizes.mixed() };
    let get = Workload { read_share: 1.0, ..sizes.mixed() };
    let large = |workload: &Workload| Workload { space: sizes.large(), ..workload.clone() };
    let pipelined = |workload: &Workload| Workload { pipeline: 16, ..workload.clone() };
    let mut cases = Vec::new();
    for connections in [1, 8, 32] {
        cases.push(case("get", get.clone(), connections));
        cases.push(case("set", set.clone(), connections));
        cases.push(case("get, pipeline 16", pipelined(&get), connections));
        cases.push(case("set, pipeline 16", pipelined(&set), connections));
        cases.push(case("16-key get", sizes.multi_get(), connections));
        cases.push(case("large get", large(&get), connections));
        cases.push(case("large set", large(&set), connections));
    }
    cases
}

/// Loads the scripts of the cases into a server.
fn load_scripts(server: &Server, cases: &[Case]) -> Result<()> {
    let scripts: Vec<Script> = cases.iter().filter_map(|case| case.workload.script).collect();
    let Recipe { name, protocol, .. } = &server.recipe;
    ensure!(scripts.is_empty() || protocol.has_scripts(), "{name} has no requests for scripts");
    if *protocol != Protocol::Redis {
        return Ok(());
    }
    for script in scripts {
        let mut request = Vec::new();
        Protocol::encode_load(script, &mut request);
        let mut stream = TcpStream::connect(server.address)?;
        stream.write_all(&request)?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        ensure!(kind == *b"$", "{name} does not load a script");
    }
    Ok(())
}

/// Returns the cases of durable writing: puts from 1 and from 64 clients.
#[must_use]
pub fn durable_cases(sizes: &Sizes) -> Vec<Case> {
    [1, 64].map(|connections| case("put 100 B", sizes.inserts(), connections)).into()
}

/// All measurements of a run, by case and server in the given order.
#[derive(Debug)]
pub struct Results {
    cases: Vec<Case>,
    servers: Vec<String>,
    measured: BTreeMap<(usize, usize), Vec<Measured>>,
    after: Table,
}

/// Starts all servers, stores the records that the cases read, and runs the cases, server by server
/// in every round. With a limit, each server has that many bytes of memory, including the pages of
/// its files, and begins with none of these pages.
pub fn run(
    recipes: &[Recipe],
    cases: &[Case],
    rounds: usize,
    effort: &Effort,
    parent: &Path,
    limit_bytes: Option<u64>,
) -> Result<Results> {
    ensure!(rounds > 0 && !cases.is_empty() && !recipes.is_empty(), "nothing to do");
    for recipe in recipes {
        let is_known = recipe.protocol.has_multi_get()
            || cases.iter().all(|case| case.workload.keys_per_get == 1);
        ensure!(is_known, "{} has no requests for several records", recipe.name);
    }
    let records = Records::new();
    // Groups must outlive their servers.
    let groups = recipes
        .iter()
        .map(|Recipe { name, .. }| {
            let name = format!("load-{}-{name}", std::process::id());
            limit_bytes.map(|limit| MemoryCgroup::new(&name, limit)).transpose()
        })
        .collect::<Result<Vec<_>>>()?;
    let servers = recipes
        .iter()
        .zip(&groups)
        .map(|(recipe, group)| Server::start_within(group.as_ref(), recipe, parent))
        .collect::<Result<Vec<_>>>()?;
    let steps = servers.len() * (1 + rounds * cases.len());
    for (place, server) in servers.iter().enumerate() {
        measurement::print_progress(place, steps, &format!("filling {}", server.recipe.name));
        eprintln!(
            "{} is process {} on {}",
            server.recipe.name,
            server.process_id(),
            server.address
        );
        load_scripts(server, cases)?;
        fill(server, cases, &records)?;
        if let Some(group) = &groups[place] {
            sync_files(server.folder())?;
            group.reclaim()?;
        }
    }
    let mut done = servers.len();
    let mut measured: BTreeMap<_, Vec<Measured>> = BTreeMap::new();
    let mut in_slices = vec![Duration::ZERO; servers.len()];
    let before: Vec<Duration> = servers.iter().map(Server::cpu_time).collect::<Result<_>>()?;
    for round in 0..rounds {
        for (case_place, case) in cases.iter().enumerate() {
            for (server_place, server) in servers.iter().enumerate() {
                let what = format!("{} on {}", case.name, server.recipe.name);
                measurement::print_progress(done, steps, &what);
                done += 1;
                let slice_before = server.cpu_time()?;
                let result = slice::run(server, case, effort, &records)
                    .with_context(|| format!("{what}: {}", server.log_tail()))?;
                in_slices[server_place] += server.cpu_time()?.saturating_sub(slice_before);
                eprintln!(
                    "round {}/{rounds} {:<28} {:<14} {:>8} op/s {:>6} us CPU/op p99 {:>6} us{}",
                    round + 1,
                    case.name,
                    server.recipe.name,
                    figure(result.throughput()),
                    figure(result.server_us()),
                    figure(result.latency_us(0.99)),
                    errors_in_words(&result),
                );
                measured.entry((case_place, server_place)).or_default().push(result);
            }
        }
    }
    let mut after =
        Table::new(["server", "RssAnon MB", "peak RSS MB", "CPU s", "of it between slices"]);
    for (place, server) in servers.iter().enumerate() {
        let memory = server.memory()?;
        let total = server.cpu_time()?.saturating_sub(before[place]);
        after.row([
            server.recipe.name.clone(),
            figure(memory.anonymous as f64 / 1e6),
            figure(memory.peak_resident as f64 / 1e6),
            figure(total.as_secs_f64()),
            figure(total.saturating_sub(in_slices[place]).as_secs_f64()),
        ]);
    }
    Ok(Results {
        cases: cases.to_vec(),
        servers: recipes.iter().map(|recipe| recipe.name.clone()).collect(),
        measured,
        after,
    })
}

fn errors_in_words(result: &Measured) -> String {
    let tally = &result.tally;
    let mut words = String::new();
    if tally.missing > 0 {
        words += &format!(" MISSING {}", tally.missing);
    }
    if tally.errors > 0 {
        words += &format!(" ERRORS {}: {}", tally.errors, tally.error_texts.join("; "));
    }
    words
}

/// Stores the records that the cases read.
fn fill(server: &Server, cases: &[Case], records: &Records) -> Result<()> {
    let mut filled: Vec<Space> = Vec::new();
    for Workload { space, choice, .. } in cases.iter().map(|case| &case.workload) {
        if matches!(choice, Choice::New) || filled.contains(space) {
            continue;
        }
        let tally = slice::fill(server, *space, records)?;
        ensure!(
            tally.errors == 0 && tally.operations == space.count,
            "filling {}: {} of {} stored, {} errors: {:?}",
            server.recipe.name,
            tally.operations,
            space.count,
            tally.errors,
            tally.error_texts
        );
        filled.push(*space);
    }
    Ok(())
}

impl Results {
    fn median_of(&self, case: usize, server: usize, of: impl Fn(&Measured) -> f64) -> f64 {
        let rounds = self.measured.get(&(case, server));
        median(&rounds.into_iter().flatten().map(of).collect::<Vec<_>>())
    }

    /// Returns the median over the rounds of the ratio within a round.
    fn ratio(&self, case: usize, one: usize, other: usize, of: impl Fn(&Measured) -> f64) -> f64 {
        let rounds = |server| self.measured.get(&(case, server)).into_iter().flatten();
        let ratios = rounds(one).zip(rounds(other)).map(|(one, other)| of(one) / of(other));
        median(&ratios.collect::<Vec<_>>())
    }

    /// Returns the number of errors of all slices.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.measured.values().flatten().map(|measured| measured.tally.errors).sum()
    }

    /// Returns a table with one row per case and server: medians over the rounds.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "case",
            "server",
            "op/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "server CPU us/op",
            "client CPU us/op",
            "missing",
            "errors",
        ]);
        for (case, Case { name: case_name, .. }) in self.cases.iter().enumerate() {
            for (server, server_name) in self.servers.iter().enumerate() {
                let median =
                    |of: &dyn Fn(&Measured) -> f64| figure(self.median_of(case, server, of));
                let sum = |of: &dyn Fn(&Measured) -> u64| {
                    let rounds = self.measured.get(&(case, server)).into_iter().flatten();
                    rounds.map(of).sum::<u64>().to_string()
                };
                table.row([
                    case_name.clone(),
                    server_name.clone(),
                    median(&Measured::throughput),
                    median(&|measured| measured.latency_us(0.5)),
                    median(&|measured| measured.latency_us(0.99)),
                    median(&|measured| measured.latency_us(0.999)),
                    median(&Measured::server_us),
                    median(&Measured::client_us),
                    sum(&|measured| measured.tally.missing),
                    sum(&|measured| measured.tally.errors),
                ]);
            }
        }
        table
    }

    /// Returns a table with one row per case: ratios of the first server to the others.
    #[must_use]
    pub fn ratios(&self) -> Table {
        let mut heads = vec!["case".to_owned()];
        for other in self.servers.iter().skip(1) {
            for what in ["CPU/op", "op/s", "p99"] {
                heads.push(format!("{what} / {other}"));
            }
        }
        let mut table = Table::new(heads);
        for (case, Case { name, .. }) in self.cases.iter().enumerate() {
            let mut cells = vec![name.clone()];
            for other in 1..self.servers.len() {
                cells.push(figure(self.ratio(case, 0, other, Measured::server_us)));
                cells.push(figure(self.ratio(case, 0, other, Measured::throughput)));
                cells
                    .push(figure(self.ratio(case, 0, other, |measured| measured.latency_us(0.99))));
            }
            table.row(cells);
        }
        table
    }

    /// Returns the records for `--json`, one per case and server.
    #[must_use]
    pub fn measurements(&self) -> Vec<Measurement> {
        let one = |((case, server), rounds): (&(usize, usize), &Vec<Measured>)| {
            let Case { name, workload, connections } = &self.cases[*case];
            let parameters = [
                ("connections", *connections as f64),
                ("pipeline", workload.pipeline as f64),
                ("records", workload.space.count as f64),
                ("value_bytes", workload.space.value_bytes as f64),
                ("read_share", workload.read_share),
                ("keys_per_get", workload.keys_per_get as f64),
            ];
            Measurement {
                experiment: String::new(),
                case: name.clone(),
                server: self.servers[*server].clone(),
                parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
                rounds: rounds.iter().map(Measured::round).collect(),
                errors: rounds.iter().map(|round| round.tally.errors).sum(),
                missing: rounds.iter().map(|round| round.tally.missing).sum(),
            }
        };
        self.measured.iter().map(one).collect()
    }

    /// Returns a table with one row per server: its use of resources in the whole run.
    #[must_use]
    pub fn after(&self) -> &Table {
        &self.after
    }

    /// Returns the texts of the errors, with case and server.
    #[must_use]
    pub fn error_texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for ((case, server), rounds) in &self.measured {
            for text in rounds.iter().flat_map(|measured| &measured.tally.error_texts) {
                let text =
                    format!("{} on {}: {text}", self.cases[*case].name, self.servers[*server]);
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
        texts
    }
}
