//! Importing lines of text.

use super::ids::{IdLimits, Refused};
use super::progress::Progress;
use super::target::Target;
use super::text::{self, Form, Format, Line, Shape};
use crate::plural::counted;
use crate::signals::Cleanup;
use anyhow::{Result, bail};
use cabinet::name::Kind;
use parking_lot::Mutex;
use std::fs::File;
use std::io::BufReader;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// A file of lines, and the name of the database that they are imported into.
pub(crate) struct Text<'a> {
    pub(crate) path: &'a Path,
    pub(crate) format: Format,
    pub(crate) into: &'a str,
    /// Files that the same command imports next.
    pub(crate) later: &'a [&'a Path],
}

/// Outcome of importing a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    /// Stored records.
    pub(crate) records: u64,
    /// Records that a fixed-length database cannot have.
    pub(crate) refused: u64,
}

impl Text<'_> {
    /// Imports the lines. The target is locked for each of them, so that a signal can write what
    /// was read before.
    pub(crate) fn import(&self, target: &Arc<Mutex<Target>>) -> Result<Imported> {
        let file = if self.is_standard_input() {
            File::from(std::io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(self.path)?
        };
        let metadata = file.metadata()?;
        let is_stream = !metadata.is_file();
        let progress = Progress::of_bytes("importing", (!is_stream).then_some(metadata.len()));
        let _interruption = self.explain_interruption(&progress, target)?;
        let input = BufReader::new(progress.watch(file));
        let (kind, start, limits) = {
            let target = target.lock();
            (target.kind(), target.stored(), target.id_limits())
        };
        let shape = if kind == Kind::Table { Shape::Rows } else { Shape::Records };
        let form = Form { format: self.format, shape, is_stream };
        let mut refused = Refused::default();
        let mut line = 0;
        let read = text::read_lines(form, input, &mut |record| {
            line += 1;
            // A signal finds either the lines before this one stored, or this one too.
            let mut target = target.lock();
            target.begin_line(line);
            if let Some(reason) = refusal(limits, &record) {
                let place = format!("{}, line {line}", self.path.display());
                refused.note(&place, &reason, |line| progress.print(line));
                return Ok(());
            }
            store(record, &mut target).inspect_err(|_| target.note_failure())
        });
        let mut target = target.lock();
        // Valid records before a bad line are kept.
        let flushed = target.flush();
        let records = target.stored() - start;
        let (line, error) = match (read, flushed) {
            (Ok(()), Ok(())) => return Ok(Imported { records, refused: refused.count }),
            (Err(text::Failure::Reading(line, error)), Ok(())) => (line, error),
            (Err(text::Failure::Taking(error)), _) | (_, Err(error)) => (target.line(), error),
        };
        bail!(
            "line {line}: {}; the {} imported",
            crate::describe(&error),
            counted(records, "record before it was", "records before it were")
        )
    }

    fn is_standard_input(&self) -> bool {
        self.path == Path::new("-")
    }

    /// Makes a signal that ends the program store the lines that were read, and print how to import
    /// the others.
    fn explain_interruption(
        &self,
        progress: &Progress,
        target: &Arc<Mutex<Target>>,
    ) -> Result<Cleanup> {
        let (bar, target) = (progress.bar(), Arc::clone(target));
        let later = self.later.first().map(|path| quoted(&path.display().to_string()));
        let command = (!self.is_standard_input()).then(|| {
            let format = match self.format {
                Format::Tsv => "tsv",
                Format::Jsonl => "jsonl",
            };
            (quoted(&self.path.display().to_string()), format, quoted(self.into))
        });
        Cleanup::on_signals(move || {
            let share = bar.length().map(|length| 100 * bar.position() / length.max(1));
            bar.finish_and_clear();
            let mut target = target.lock();
            let stored = target.flush().and_then(|()| Ok(target.database().sync()?));
            let line = target.line();
            let share = share.map_or(String::new(), |share| format!(" ({share} % of the file)"));
            let lines = counted(line, "line", "lines");
            eprint!("tyrant: interrupted after {lines}{share}; ");
            match (stored, &command) {
                (Err(error), _) => {
                    eprint!("not all of them are stored: {}", crate::describe(&error));
                }
                (Ok(()), None) => eprint!("they are stored; import the lines after them"),
                (Ok(()), Some((path, format, into))) => eprint!(
                    "they are stored; the rest: tail -n +{} {path} | tyrant import - \
                     --format {format} --into {into}",
                    line + 1
                ),
            }
            let later = later.as_ref().map_or(String::new(), |later| {
                format!("; then the same command from the file {later} on")
            });
            eprintln!("{later}");
        })
    }
}

/// Returns a word of a shell's command line.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), Into::into)
}

/// Returns why a fixed-length database with these limits cannot have a record.
fn refusal(limits: Option<IdLimits>, line: &Line) -> Option<String> {
    match line {
        Line::Record { key, value, .. } | Line::Typed { key, value, .. } => {
            limits?.refusal(key, value)
        }
        Line::Reserved { .. } | Line::Row { .. } => None,
    }
}

fn store(line: Line, target: &mut Target) -> Result<()> {
    match line {
        Line::Record { key, value, meta } => target.add(&key, &value, meta),
        Line::Typed { key, value, media_type, expires_at_ms } => {
            target.add_typed(&key, &value, &media_type, expires_at_ms)
        }
        Line::Reserved { name, value } => target.put_reserved(&name, &value),
        Line::Row { key, columns } => {
            let columns: Vec<(&[u8], &[u8])> =
                columns.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            target.put_row(&key, &columns)
        }
    }
}
