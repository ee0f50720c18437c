//! Loads the same rows into the tables of cabinet and Tokyo Cabinet, with the same four indices,
//! and runs the same queries on both in turn. Prints times, ratios, rows found, and bytes read.

use anyhow::{Context as _, Result, ensure};
use cabinet::Options;
use cabinet::table::{IndexChange, Query, Report, Row, Table};
use clap::Parser;
use compare::ffi::tokyo_cabinet_table::{self as original, TableDatabase};
use compare::measurement::{self, Measurement, Round, finite};
use compare::process::own_cpu_time;
use compare::queries::{Arrival, INDICES, Question, Rows, questions};
use compare::report;
use hdrhistogram::Histogram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// Rows
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    rows: u64,
    /// Order in which they are stored
    #[arg(long, default_value = "random")]
    arrival: Arrival,
    /// Runs of each query, each with another operand
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    times: u64,
    /// Rounds of queries
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Load into cabinet only, and run no queries
    #[arg(long)]
    only_load: bool,
    /// Query before cabinet has merged all entries into blocks, that is, without reopening it
    #[arg(long)]
    fresh: bool,
    /// Folder for the databases; a folder of its own is made in it and removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File for one JSON record per question and table
    #[arg(long, value_name = "FILE", conflicts_with = "only_load")]
    json: Option<PathBuf>,
}

/// Names of the two stores in the JSON records.
const STORES: [&str; 2] = ["cabinet", "tc"];

impl Arguments {
    /// Returns the records of a case for both tables, with the time and the CPU time per operation
    /// in each round.
    fn measurements(&self, case: &str, times: [Vec<Time>; 2]) -> Vec<Measurement> {
        let one = |(store, times): (&str, Vec<Time>)| {
            let round = |time: &Time| Round {
                operations_per_second: finite(1e6 / time.us),
                cpu_us_per_operation: finite(time.cpu_us),
                ..Round::default()
            };
            Measurement {
                case: case.to_owned(),
                server: store.to_owned(),
                parameters: [("rows".to_owned(), self.rows as f64)].into(),
                rounds: times.iter().map(round).collect(),
                ..Measurement::default()
            }
        };
        STORES.into_iter().zip(times).map(one).collect()
    }
}

/// Time per operation, in microseconds.
struct Time {
    us: f64,
    cpu_us: f64,
}

/// Time, total results, and a sum over their primary keys.
#[derive(Default)]
struct Answer {
    time: Duration,
    cpu_time: Duration,
    found: u64,
    sum: u64,
    hint: String,
    rows_read: u64,
    postings_read: u64,
}

impl Answer {
    fn add(&mut self, primary: &[u8]) {
        self.found += 1;
        let digits = primary.iter().filter(|byte| byte.is_ascii_digit());
        let number = digits.fold(0u64, |sum, byte| sum * 10 + u64::from(byte - b'0'));
        self.sum = self.sum.wrapping_add(compare::random::mix(number));
    }
}

fn ask_cabinet(table: &Table, question: &Question) -> Result<Answer> {
    let mut answer = Answer::default();
    for operand in &question.operands {
        let mut query = Query::new();
        if let Some((column, operator)) = question.condition {
            query = query.with(column.as_bytes(), operator, operand.as_bytes());
        }
        if let Some((column, kind)) = question.order {
            query = query.order_by(column.as_bytes(), kind);
        }
        query.max = question.max;
        let (start, cpu_before) = (Instant::now(), own_cpu_time());
        let (found, report) = table.search(&query)?;
        answer.time += start.elapsed();
        answer.cpu_time += own_cpu_time().saturating_sub(cpu_before);
        found.iter().for_each(|primary| answer.add(primary));
        let Report { hint, rows_read, postings_read, .. } = report;
        answer.hint = hint;
        answer.rows_read += rows_read;
        answer.postings_read += postings_read;
    }
    Ok(answer)
}

fn ask_original(table: &TableDatabase, question: &Question) -> Result<Answer> {
    let mut answer = Answer::default();
    for operand in &question.operands {
        let mut query = original::Query::default();
        if let Some((column, operator)) = question.condition {
            query.conditions.push((column.into(), operator as i32, operand.clone()));
        }
        query.order = question.order.map(|(column, kind)| (column.into(), kind as i32));
        query.max = question.max.map(|max| i32::try_from(max).unwrap_or(i32::MAX));
        let mut found = Vec::new();
        let (start, cpu_before) = (Instant::now(), own_cpu_time());
        answer.hint = table.search(&query, &mut |primary| found.push(primary.to_vec()))?;
        answer.time += start.elapsed();
        answer.cpu_time += own_cpu_time().saturating_sub(cpu_before);
        found.iter().for_each(|primary| answer.add(primary));
    }
    Ok(answer)
}

fn first_line(hint: &str) -> &str {
    hint.lines().find(|line| !line.is_empty()).unwrap_or_default()
}

fn bytes_on_disk(folder: &std::path::Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let data = entry?.metadata()?;
        bytes += std::os::unix::fs::MetadataExt::blocks(&data) * 512;
    }
    Ok(bytes)
}

/// Adds the time since `start` in nanoseconds. Returns it.
fn note(waits: &mut Histogram<u64>, start: Instant) -> Result<Duration> {
    let time = start.elapsed();
    waits.record(u64::try_from(time.as_nanos())?)?;
    Ok(time)
}

fn print_waits(waits: &Histogram<u64>) {
    let ms = |share| report::figure(waits.value_at_quantile(share) as f64 / 1e6);
    println!(
        "  a row took {} ms at the 99th percentile, {} at the 99.9th, {} at most",
        ms(0.99),
        ms(0.999),
        ms(1.0)
    );
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("queries-").tempdir_in(parent)?;
    let rows = Rows::new(arguments.rows, arguments.arrival);
    let options = Options::default();

    let questions = questions(arguments.rows, arguments.times);
    let steps = questions.len() + 2;
    measurement::print_progress(0, steps, "loading into cabinet");
    let path = folder.path().join("ours.tct");
    let table = Table::open(&path, &options).context("opening cabinet's table")?;
    for (column, kind) in INDICES {
        table.set_index(column.as_bytes(), IndexChange::Set(kind))?;
    }
    let mut time = Duration::ZERO;
    let mut waits = Histogram::new(3)?;
    for made in rows.all() {
        let start = Instant::now();
        let parts =
            made.columns.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        table.put(made.primary.as_bytes(), &Row::from_parts(parts)?)?;
        time += note(&mut waits, start)?;
    }
    let loaded = time;
    let start = Instant::now();
    let table = if arguments.fresh {
        table
    } else {
        drop(table);
        time += start.elapsed();
        Table::open(&path, &options)?
    };
    let per_second = |time: Duration| arguments.rows as f64 / time.as_secs_f64();
    println!(
        "cabinet: {:.0} rows/s loaded, {:.0} rows/s with the close, {} MB on disk",
        per_second(loaded),
        per_second(time),
        bytes_on_disk(&path)? / 1_000_000
    );
    print_waits(&waits);
    if arguments.only_load {
        return Ok(());
    }

    measurement::print_progress(1, steps, "loading into Tokyo Cabinet");
    let path = folder.path().join("theirs");
    std::fs::create_dir(&path)?;
    let theirs = TableDatabase::create(&path.join("casket.tct"), arguments.rows)?;
    for (column, kind) in INDICES {
        theirs.set_index(column, kind as i32)?;
    }
    let mut their_time = Duration::ZERO;
    let mut waits = Histogram::new(3)?;
    for made in rows.all() {
        let joined = made.joined();
        let start = Instant::now();
        theirs.put(made.primary.as_bytes(), &joined)?;
        their_time += note(&mut waits, start)?;
    }
    let their_load = their_time;
    let start = Instant::now();
    theirs.sync()?;
    their_time += start.elapsed();
    println!(
        "Tokyo Cabinet: {:.0} rows/s loaded, {:.0} rows/s with a sync, {} MB on disk",
        per_second(their_load),
        per_second(their_time),
        bytes_on_disk(&path)? / 1_000_000
    );
    print_waits(&waits);
    println!(
        "ratio: {:.2} loaded, {:.2} with close and sync\n",
        their_load.as_secs_f64() / loaded.as_secs_f64(),
        their_time.as_secs_f64() / time.as_secs_f64()
    );

    let heads = [
        "question",
        "results",
        "us",
        "Tokyo Cabinet us",
        "times as fast",
        "entries read",
        "rows read",
        "hint",
    ];
    let mut lines = report::Table::new(heads);
    // The CPU time of loading includes making the rows, so it is not recorded.
    let load = [loaded, their_load]
        .map(|time| vec![Time { us: 1e6 / per_second(time), cpu_us: f64::NAN }]);
    let mut measurements = arguments.measurements("load rows", load);
    for (place, question) in questions.iter().enumerate() {
        measurement::print_progress(place + 2, steps, question.name);
        let mut times = [Vec::new(), Vec::new()];
        let (mut our_times, mut their_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut ours = Answer::default();
        let asked = question.operands.len() as f64;
        for _ in 0..arguments.rounds {
            ours = ask_cabinet(&table, question)?;
            let theirs = ask_original(&theirs, question)?;
            ensure!(
                ours.found == theirs.found && (question.max.is_some() || ours.sum == theirs.sum),
                "{}: {} rows found, and {} by Tokyo Cabinet ({:?}, {:?})",
                question.name,
                ours.found,
                theirs.found,
                ours.hint,
                theirs.hint
            );
            let us = |answer: &Answer| answer.time.as_secs_f64() * 1e6 / asked;
            our_times.push(us(&ours));
            their_times.push(us(&theirs));
            ratios.push(us(&theirs) / us(&ours));
            for (times, answer) in times.iter_mut().zip([&ours, &theirs]) {
                let cpu_us = answer.cpu_time.as_secs_f64() * 1e6 / asked;
                times.push(Time { us: us(answer), cpu_us });
            }
        }
        measurements.extend(arguments.measurements(question.name, times));
        let each = |number: u64| format!("{:.1}", number as f64 / asked);
        lines.row([
            question.name.to_owned(),
            each(ours.found),
            report::figure(report::median(&our_times)),
            report::figure(report::median(&their_times)),
            report::figure(report::median(&ratios)),
            each(ours.postings_read),
            each(ours.rows_read),
            first_line(&ours.hint).to_owned(),
        ]);
    }
    println!("{lines}");
    if let Some(file) = &arguments.json {
        measurement::write(file, &measurements)?;
    }
    theirs.close()?;
    Ok(())
}
