//! Cold scans: exports databases that are larger than memory in a memory cgroup, and compares time
//! and bytes read with those of `cat` of the same files. Then measures clients of a server beside
//! scans.
//!
//! The databases are loaded in a memory cgroup as well, with keys in random order unless asked
//! otherwise, so that the pages of a tree are as scattered as they come to be on such a machine.

mod clients;
mod measured;

use crate::cgroup::MemoryCgroup;
use crate::programs::{Profile, build, target_folder};
use crate::random::Random;
use crate::requirements;
use anyhow::{Context, Result, bail, ensure};
use measured::{Run, forget, run};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Kinds of databases.
const KINDS: [&str; 4] = ["tch", "tcf", "tcb", "tct"];

/// Key length of a record, in bytes.
const KEY_BYTES: usize = 11;

/// Letters of values. There are 64, none of which is escaped in an export.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Set the number of records.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// Set the length of a value, in bytes; a key has 11.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    value_bytes: u32,
    /// Set the number of rounds for each kind and limit.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Set the limits of memory, in MiB.
    #[arg(long, value_delimiter = ',', default_values_t = [150, 64],
        value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    limit_mib: Vec<u64>,
    /// Set the limit of memory while the databases are loaded, in MiB.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    load_mib: u64,
    /// Load the records in the order of their keys.
    #[arg(long)]
    in_order: bool,
    /// Choose the kinds of databases.
    #[arg(long, value_delimiter = ',', default_values = KINDS, value_parser = KINDS)]
    kinds: Vec<String>,
    /// Take the programs from this folder, and do not build them.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// Load the databases into this folder, and keep them; those that are there are taken.
    #[arg(long, value_name = "FOLDER")]
    databases: Option<PathBuf>,
}

/// Runs the measurement, and prints a table for each limit.
pub(crate) fn run_all(profile: Profile, options: &Options) -> Result<()> {
    if !requirements::is_root() {
        bail!("a memory cgroup needs root");
    }
    let programs = match &options.programs {
        Some(folder) => folder.clone(),
        None => build(profile)?,
    };
    let temporary = tempfile::tempdir_in(target_folder())?;
    let folder = options.databases.as_deref().unwrap_or(temporary.path());
    let mut databases = Vec::new();
    for kind in &options.kinds {
        databases.push(Database::load(folder, kind, &programs, options)?);
    }
    for limit_mib in &options.limit_mib {
        let name = format!("tyrant-cold-scans-{}", std::process::id());
        let group = MemoryCgroup::new(&name, limit_mib << 20)?;
        println!("\n{limit_mib} MiB, {} rounds, median (least to most)\n", options.rounds);
        println!("| | | s | times `cat` | CPU s | MB read | times `cat` | anonymous MB |");
        println!("|---|---|---:|---:|---:|---:|---:|---:|");
        for database in &databases {
            for way in database.ways() {
                database.check(&group, &programs, way, options.records)?;
            }
            let mut cats = Vec::new();
            let mut exports = vec![Vec::new(); database.ways().len()];
            for _ in 0..options.rounds {
                cats.push(database.cat(&group)?);
                for (way, exports) in database.ways().iter().zip(&mut exports) {
                    exports.push(database.export(&group, &programs, way)?);
                }
            }
            print_row(&database.kind, "cat", &cats, &cats);
            for (way, exports) in database.ways().iter().zip(&exports) {
                print_row(&database.kind, ["export", *way].join(" ").trim(), exports, &cats);
            }
        }
        println!("\n{limit_mib} MiB, 1000 gets per second\n");
        println!("| | beside | s | gets | p50 us | p99 us | p99, times alone |");
        println!("|---|---|---:|---:|---:|---:|---:|");
        for database in &databases {
            clients::measure(database, &group, &programs, options)?;
        }
    }
    Ok(())
}

/// A database on the disk.
struct Database {
    kind: String,
    /// Its name for the programs, options included.
    name: String,
    folder: PathBuf,
}

impl Database {
    /// Loads a database, unless it is there.
    fn load(folder: &Path, kind: &str, programs: &Path, options: &Options) -> Result<Self> {
        let path = folder.join(format!("cold.{kind}"));
        let name = match kind {
            "tcf" => format!("{}#width={}#limsiz=64g", path.display(), options.value_bytes),
            _ => path.display().to_string(),
        };
        let database = Self { kind: kind.to_owned(), name, folder: path };
        if database.folder.exists() {
            return Ok(database);
        }
        let group_name = format!("tyrant-cold-load-{}", std::process::id());
        let group = MemoryCgroup::new(&group_name, options.load_mib << 20)?;
        let mut import = Command::new(programs.join("tyrant"));
        import.args(["import", "--format", "tsv", "--into", &database.name, "-"]);
        let mut import = group
            .enclose(&import)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the import")?;
        let input = import.stdin.take().context("no input")?;
        write_lines(kind, options, &mut BufWriter::with_capacity(1 << 20, input))?;
        let status = import.wait()?;
        ensure!(status.success(), "the import into .{kind} ended with {status}");
        Ok(database)
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.folder)?;
        let mut files = entries.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
        files.sort();
        Ok(files)
    }

    /// Options of the exports to measure. A tree is exported in the order of keys without any.
    fn ways(&self) -> &'static [&'static str] {
        if self.kind == "tcb" { &["", "--any-order"] } else { &[""] }
    }

    fn export_command(&self, programs: &Path, way: &str) -> Command {
        let mut export = Command::new(programs.join("tyrant"));
        export.args(["export", &self.name]).args(way.split_whitespace());
        export
    }

    /// Checks that an export has all records.
    fn check(&self, group: &MemoryCgroup, programs: &Path, way: &str, records: u32) -> Result<()> {
        forget(&self.files()?)?;
        let mut export = group
            .enclose(&self.export_command(programs, way))
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the export")?;
        let mut lines = BufReader::with_capacity(1 << 20, export.stdout.take().context("no pipe")?);
        let (mut count, mut line) = (0, Vec::new());
        while lines.read_until(b'\n', &mut line)? > 0 {
            count += 1;
            line.clear();
        }
        let status = export.wait()?;
        ensure!(status.success(), "the export of .{} ended with {status}", self.kind);
        ensure!(count == records, "the export of .{} has {count} of {records} records", self.kind);
        Ok(())
    }

    fn cat(&self, group: &MemoryCgroup) -> Result<Run> {
        let files = self.files()?;
        forget(&files)?;
        run(group.enclose(Command::new("cat").args(&files)))
    }

    fn export(&self, group: &MemoryCgroup, programs: &Path, way: &str) -> Result<Run> {
        forget(&self.files()?)?;
        run(group.enclose(&self.export_command(programs, way)))
    }
}

/// Writes the records as lines of TSV.
fn write_lines(kind: &str, options: &Options, output: &mut impl Write) -> Result<()> {
    let mut numbers: Vec<u32> = (1..=options.records).collect();
    if !options.in_order {
        let mut random = Random(1);
        for place in (1..numbers.len()).rev() {
            numbers.swap(place, random.below(place as u64 + 1) as usize);
        }
    }
    let mut value = vec![0; options.value_bytes as usize];
    for number in numbers {
        let mut random = Random(number.into());
        for letters in value.chunks_mut(8) {
            let mut bits = random.below(1 << 48);
            for letter in letters {
                *letter = LETTERS[(bits % 64) as usize];
                bits /= 64;
            }
        }
        match kind {
            "tcf" => write!(output, "{number}\t")?,
            "tct" => write!(output, "{number:0KEY_BYTES$}\tname\t")?,
            _ => write!(output, "{number:0KEY_BYTES$}\t")?,
        }
        output.write_all(&value)?;
        output.write_all(b"\n")?;
    }
    Ok(output.flush()?)
}

/// Prints the median of the runs and their spread. The ratios are those of the medians.
fn print_row(kind: &str, what: &str, runs: &[Run], cats: &[Run]) {
    let seconds = Spread::of(runs, |run| run.seconds);
    let cat = Spread::of(cats, |run| run.seconds);
    let read = Spread::of(runs, |run| run.read_bytes as f64 / 1e6);
    let cat_read = Spread::of(cats, |run| run.read_bytes as f64 / 1e6);
    println!(
        "| .{kind} | {what} | {:.2} ({:.2} to {:.2}) | {:.2} | {:.2} | {:.0} | {:.2} | {:.1} |",
        seconds.median,
        seconds.least,
        seconds.most,
        seconds.median / cat.median,
        Spread::of(runs, |run| run.cpu_seconds).median,
        read.median,
        read.median / cat_read.median,
        Spread::of(runs, |run| run.anonymous_bytes as f64 / 1e6).most,
    );
}

/// The median of some values and their range.
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn of(runs: &[Run], value: impl Fn(&Run) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { least: at(0), median: at(values.len() / 2), most: at(values.len().wrapping_sub(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasting(seconds: f64) -> Run {
        Run { seconds, cpu_seconds: 0.0, read_bytes: 0, anonymous_bytes: 0 }
    }

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        let spread = Spread::of(&[3.0, 1.0, 9.0].map(lasting), |run| run.seconds);
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 3.0, 9.0));
        assert!(Spread::of(&[], |run| run.seconds).median.is_nan());
    }
}
