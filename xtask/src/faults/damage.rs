//! Damaged files: a database with a known history is stopped or killed, and one of its files is
//! damaged. Every reply of `tyrant check`, of a server and of a salvage is compared with the
//! history.
//!
//! No error may be silent: if a reply is not the last write, `check` must report damage, and if
//! `check` reports none, every reply must be right. There is one exception: after a kill, damage at
//! the very end of the log cannot be distinguished from the record that was being written. It is
//! removed without a report.

use super::history::{History, KEYS, Verdict};
use crate::programs::Server;
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the databases, with the tuning that their values need.
const DATABASES: &[&str] = &["casket.tch", "casket.tcb", "casket.tcf#width=1024", "casket.tct"];

/// Longest range that is overwritten with zeros, in bytes.
const ZEROS_MAX: u64 = 32 << 10;

/// Bytes that are written together.
const PAGE_BYTES: u64 = 4096;

/// Length of the end of a log that the last record and its append block may take, in bytes.
const LAST_RECORDS_BYTES: u64 = 68 << 10;

/// Most records lost by a damage apart from those it covers: the records of the two leaves of a
/// tree at its ends.
const NEIGHBOURS_MAX: usize = 64;

/// Runs `rounds` rounds, from `seed` on.
pub(super) fn run(programs: &Path, seed: u64, rounds: u64) -> Result<()> {
    let mut tally = Tally::default();
    for seed in seed..seed + rounds {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let round = Round::new(programs, folder.path(), seed);
        round.run(&mut tally).with_context(|| {
            format!("seed {seed}, {}: cargo xtask faults --seed {seed} --rounds 1", round.database)
        })?;
    }
    let Tally { right, errors, lost, refused } = tally;
    println!(
        "faults: {rounds} damaged databases from seed {seed}: {right} answers right, {errors} \
         errors, {lost} lost or older and reported, {refused} not opened; nothing silent"
    );
    Ok(())
}

#[derive(Default)]
struct Tally {
    right: usize,
    errors: usize,
    lost: usize,
    /// Number of databases that no server opened.
    refused: usize,
}

struct Round<'a> {
    programs: &'a Path,
    folder: &'a Path,
    database: &'static str,
    seed: u64,
}

/// Descriptions of the damage.
struct Damage {
    text: String,
    /// Most records that a salvage may miss.
    missed_max: usize,
    /// Whether the damage reaches the end of the log.
    is_at_end: bool,
}

impl<'a> Round<'a> {
    fn new(programs: &'a Path, folder: &'a Path, seed: u64) -> Self {
        let database = DATABASES[(seed % DATABASES.len() as u64) as usize];
        Self { programs, folder, database, seed }
    }

    fn path(&self) -> PathBuf {
        let name = self.database.split('#').next().unwrap_or(self.database);
        self.folder.join(name)
    }

    fn run(&self, tally: &mut Tally) -> Result<()> {
        let mut random = Random(self.seed);
        let (history, was_killed) = self.make(&mut random)?;
        let mut damage = damage(&self.path(), &mut random, history.value_bytes_min())?;
        damage.is_at_end &= was_killed;
        self.judge(&history, &damage, tally).with_context(|| damage.text.clone())
    }

    /// Makes the database. Returns its history and whether the server was killed.
    fn make(&self, random: &mut Random) -> Result<(History, bool)> {
        let log = self.folder.join("first.log");
        let name = self.folder.join(self.database);
        let mut server = Server::start_logging(self.programs, &name, &log)?;
        let history = History::make(server.port, random, self.database.ends_with(".tct"))?;
        let is_killed = random.below(2) == 0;
        if is_killed {
            server.kill()?
        } else {
            server.stop()?
        }
        Ok((history, is_killed))
    }

    fn judge(&self, history: &History, damage: &Damage, tally: &mut Tally) -> Result<()> {
        let is_damaged = !self.tyrant(&["check", &text(&self.path())])?.0;
        let salvaged = self.salvage(history)?;
        let missed = salvaged.iter().filter(|verdict| **verdict != Verdict::Right).count();
        ensure!(
            missed <= damage.missed_max,
            "the salvage lacks {missed} records, of which at most {} were damaged",
            damage.missed_max
        );
        let log = self.folder.join("second.log");
        let name = self.folder.join(self.database);
        let mut server = match Server::start_logging(self.programs, &name, &log) {
            Ok(server) => server,
            Err(error) => {
                let text = fs::read_to_string(&log).unwrap_or_default();
                ensure!(is_damaged, "it does not open although check finds no damage: {error:#}");
                ensure!(
                    text.contains("tyrant salvage"),
                    "the error does not name tyrant salvage: {text}"
                );
                tally.refused += 1;
                return Ok(());
            }
        };
        let verdicts = history.judge(server.port)?;
        server.stop()?;
        let count = |wanted: &[Verdict]| verdicts.iter().filter(|one| wanted.contains(one)).count();
        let (errors, lost) = (count(&[Verdict::Error]), count(&[Verdict::Absent, Verdict::Older]));
        ensure!(
            is_damaged || errors + lost == 0 || errors == 0 && damage.is_at_end,
            "check finds no damage, but {errors} keys have errors and {lost} are lost or older"
        );
        if lost > 0 {
            let text = fs::read_to_string(&log).context("no log")?;
            let said = if damage.is_at_end { "\tWARN\t" } else { "\tERROR\t" };
            ensure!(
                text.contains("\tERROR\t") || text.contains(said),
                "{lost} keys are lost and the server is silent"
            );
        }
        tally.right += count(&[Verdict::Right]);
        tally.errors += errors;
        tally.lost += lost;
        Ok(())
    }

    /// Salvages the database, and reads the result through a server.
    fn salvage(&self, history: &History) -> Result<Vec<Verdict>> {
        let into = self.folder.join("salvaged").join(self.database);
        fs::create_dir_all(self.folder.join("salvaged"))?;
        let (_, output) = self.tyrant(&["salvage", &text(&self.path()), "--into", &text(&into)])?;
        let log = self.folder.join("salvaged.log");
        let mut server = Server::start_logging(self.programs, &into, &log)
            .with_context(|| format!("the salvaged database does not open: {output}"))?;
        let verdicts = history.judge(server.port).context("salvaged")?;
        server.stop()?;
        Ok(verdicts)
    }

    /// Runs a command of the tool; returns whether it succeeded, and its output.
    fn tyrant(&self, arguments: &[&str]) -> Result<(bool, String)> {
        let output = Command::new(self.programs.join("tyrant")).args(arguments).output()?;
        ensure!(output.status.code().is_some_and(|code| code <= 1), {
            format!("tyrant {} ended with {}", arguments.join(" "), output.status)
        });
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Damages one file of the database, whose values have `value_bytes` bytes at least.
fn damage(path: &Path, random: &mut Random, value_bytes: u64) -> Result<Damage> {
    let covered = |bytes| covered(bytes, value_bytes);
    let mut segments = files(path, |name| name.ends_with(".log"))?;
    segments.sort();
    let mut others = files(path, |name| name.starts_with("manifest") || name == "checkpoint")?;
    others.sort();
    ensure!(!segments.is_empty(), "the database has no segments");
    let segment = pick(&segments, random);
    match random.below(11) {
        8..11 => {
            let places = [segment, pick(&segments, random)];
            let is_swapped = random.below(2) == 0;
            let (text, is_at_end) = misdirect(places, is_swapped, segments.last(), random)?;
            let pages = if is_swapped { 2 } else { 1 };
            Ok(Damage { text, missed_max: covered(pages * PAGE_BYTES), is_at_end })
        }
        0 => {
            let bytes = fs::metadata(segment)?.len();
            fs::remove_file(segment)?;
            let text = format!("{} removed", segment.display());
            Ok(Damage { text, missed_max: covered(bytes), is_at_end: false })
        }
        1 if segments.len() > 1 => {
            let other = segments.iter().find(|other| *other != segment).unwrap_or(segment);
            let aside = path.join("aside");
            fs::rename(segment, &aside)?;
            fs::rename(other, segment)?;
            fs::rename(&aside, other)?;
            let text = format!("{} and {} swapped", segment.display(), other.display());
            Ok(Damage { text, missed_max: 0, is_at_end: false })
        }
        2 => {
            let bytes = fs::metadata(segment)?.len();
            let kept = random.below(bytes);
            OpenOptions::new().write(true).open(segment)?.set_len(kept)?;
            let text = format!("{} cut at byte {kept} of {bytes}", segment.display());
            let is_at_end = Some(segment) == segments.last();
            Ok(Damage { text, missed_max: covered(bytes - kept), is_at_end })
        }
        3 => {
            let (text, bytes, is_at_end) = zero(segment, random)?;
            let is_at_end = is_at_end && Some(segment) == segments.last();
            Ok(Damage { text, missed_max: covered(bytes), is_at_end })
        }
        4 => {
            let other = pick(&others, random);
            fs::remove_file(other)?;
            let text = format!("{} removed", other.display());
            Ok(Damage { text, missed_max: 0, is_at_end: false })
        }
        5 => {
            let (text, _) = flip(pick(&others, random), random)?;
            Ok(Damage { text, missed_max: 0, is_at_end: false })
        }
        _ => {
            let (text, is_at_end) = flip(segment, random)?;
            let is_at_end = is_at_end && Some(segment) == segments.last();
            Ok(Damage { text, missed_max: covered(1), is_at_end })
        }
    }
}

/// Returns the most records that a damage of `bytes` bytes can lose. Records are longer than their
/// values.
fn covered(bytes: u64, value_bytes: u64) -> usize {
    usize::try_from(bytes / value_bytes).unwrap_or(KEYS).saturating_add(NEIGHBOURS_MAX).min(KEYS)
}

fn files(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in fs::read_dir(path)? {
        let file = file?;
        if wanted(&file.file_name().to_string_lossy()) {
            files.push(file.path());
        }
    }
    Ok(files)
}

fn pick<'f>(files: &'f [PathBuf], random: &mut Random) -> &'f PathBuf {
    &files[random.below(files.len() as u64) as usize]
}

/// Flips a bit. Returns the description, and whether the last record may contain it.
fn flip(path: &Path, random: &mut Random) -> Result<(String, bool)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = written(&file)?;
    let offset = random.below(length.max(1));
    let bit = random.below(8);
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    file.write_all_at(&[byte[0] ^ 1 << bit], offset)?;
    let text = format!("bit {bit} of byte {offset} of {} flipped", path.display());
    Ok((text, length - offset <= LAST_RECORDS_BYTES))
}

/// Writes a page of a segment over one of the other, which may be the same, or swaps the two pages,
/// as a disk does that confuses addresses. Returns the description, and whether the last record may
/// be on a page that has changed.
fn misdirect(
    segments: [&PathBuf; 2],
    is_swapped: bool,
    last: Option<&PathBuf>,
    random: &mut Random,
) -> Result<(String, bool)> {
    let mut places = Vec::new();
    for path in segments {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = written(&file)?;
        let start = random.below(length.div_ceil(PAGE_BYTES)) * PAGE_BYTES;
        let mut page = vec![0; PAGE_BYTES as usize];
        let count = file.read_at(&mut page, start)?;
        page.truncate(count);
        let is_at_end = Some(path) == last && length - start <= LAST_RECORDS_BYTES;
        places.push((file, start, page, is_at_end));
    }
    let [(from, source, moved, from_end), (to, target, replaced, to_end)] = &places[..] else {
        bail!("not two places");
    };
    to.write_all_at(moved, *target)?;
    if is_swapped {
        from.write_all_at(replaced, *source)?;
    }
    let how = if is_swapped { "swapped with" } else { "written to" };
    let [one, other] = segments.map(|path| path.display());
    let text = format!("the page at byte {source} of {one} {how} byte {target} of {other}");
    Ok((text, *to_end || is_swapped && *from_end))
}

/// Overwrites a range with zeros. Returns the description, the number of bytes, and whether the
/// last record may be there.
fn zero(path: &Path, random: &mut Random) -> Result<(String, u64, bool)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = written(&file)?;
    let start = random.below(length.max(1));
    let bytes = (1 + random.below(ZEROS_MAX)).min(length - start);
    file.write_all_at(&vec![0; bytes as usize], start)?;
    let text = format!("{bytes} bytes at byte {start} of {} zeroed", path.display());
    Ok((text, bytes, length - (start + bytes) <= LAST_RECORDS_BYTES))
}

/// Returns the length of a file without the preallocated zeros at its end, in bytes.
fn written(file: &File) -> Result<u64> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { bail!("a file of zeros") };
    Ok(last as u64 + 1)
}
