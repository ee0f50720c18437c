//! `tyrant export`: writes the records of a database or file as lines, or to a Redis server.

use crate::cluster;
use crate::errors::{require, require_database, wrong_command_line};
use crate::output::Quiet;
use crate::plural::counted;
use crate::remote::{RedisUrl, SecurityArgument};
use crate::transfer::legacy::{DAMAGES_SHOWN_MAX, damaged_places};
use crate::transfer::progress::Progress;
use crate::transfer::redis;
use crate::transfer::text::{self, Format};
use crate::transfer::to_read;
use crate::transfer::whole_file::Output;
use anyhow::{Context, Result, anyhow, bail, ensure};
use cabinet::legacy::{File, Item, Shape, Visit, is_legacy};
use cabinet::table::RowView;
use cabinet::{Damage, Database, Meta, RecordRef};
use server::{OwnMediaTypes, count_records, front_end_name, hidden_in};
use std::cell::RefCell;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Bytes of lines that are written at once.
const OUTPUT_BYTES: usize = 256 << 10;

/// Records after which the progress is told of them.
const ADVANCED_AT_ONCE: u64 = 64;

/// The way to the records of a running server.
pub(super) const OF_SERVER: &str = "the records of a running server are exported from a copy, which \
    \"tyrant copy PATH\" makes on its machine, or \"tyrant import redis://HOST:PORT --into NAME\" here";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Write all records to a file of JSON lines
  tyrant export casket.tch casket.jsonl
  # Count the records of a Tokyo Cabinet file
  tyrant export old.tch | wc -l
  # Store all records in a Redis server, with their expiries
  tyrant export casket.tch --to redis://127.0.0.1:6379")]
pub(super) struct Export {
    /// Name of the database, which must not be open, or a Tokyo Cabinet file
    #[arg(value_name = "NAME")]
    database: String,
    /// Write the lines to this file, which appears once complete [default: standard output]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Store the records in this server of Redis's protocol in place of a file:
    /// redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], with TLS rediss://
    #[arg(long, value_name = "URL", conflicts_with_all = ["file", "replace", "format"])]
    to: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    replace: bool,
    /// Write the records of a tree as they lie on the disk, not in the order of keys: faster if
    /// the database is larger than memory
    #[arg(long)]
    any_order: bool,
    /// Write lines in this format [default: by the suffix of FILE, else tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    security: SecurityArgument,
    #[command(flatten)]
    quiet: Quiet,
}

impl Export {
    pub(super) fn run(&self) -> Result<()> {
        let is_server = RedisUrl::is_url(&self.database)
            || RedisUrl::meant_by(&self.database).is_some()
                && !cluster::is_cluster_name(&self.database);
        if is_server && !Path::new(&self.database).exists() {
            return Err(wrong_command_line(format_args!(
                "{} is a server, and export reads a database: {OF_SERVER}",
                RedisUrl::without_login(&self.database)
            )));
        }
        if let Some(url) = &self.to {
            return self.store_in(&RedisUrl::parse(url)?);
        }
        require(
            !self.security.is_given(),
            "the options of connections belong to --to, which is not given",
        )?;
        require(
            self.file.is_some() || !self.quiet.is_set(),
            "--quiet would discard the records: name a file for them",
        )?;
        self.quiet.apply()?;
        let format = self.format()?;
        let interrupted = match &self.file {
            None => "the same command writes all of them again".to_owned(),
            Some(path) => format!(
                "{} is as it was before; the same command exports all of them again",
                path.display()
            ),
        };
        let opening = Progress::of_time("opening").explain(&interrupted[..]);
        let source = Source::open(&self.database)?;
        drop(opening);
        let output = match &self.file {
            None => Output::standard(),
            Some(path) => Output::to(path, self.replace)?,
        };
        let mut lines = Lines {
            format,
            output: BufWriter::with_capacity(OUTPUT_BYTES, output),
            media_types: source.media_types()?,
            progress: Progress::of_records("exporting", source.records()).explain(interrupted),
            counter: Counter::default(),
            damages: 0,
            failed: None,
        };
        source.write(self.any_order, &mut lines).map_err(|error| self.with_advice(error))?;
        if let Some(error) = lines.failed {
            return Err(error);
        }
        lines.output.flush()?;
        let (output, _) = lines.output.into_parts();
        output.finish()?;
        self.check_damage(&source, lines.damages)
    }

    /// Returns the format of the lines: that of the option, or that of the file's suffix.
    fn format(&self) -> Result<Format> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let suffixed = self.file.as_deref().and_then(|path| Some((path, path.extension()?)));
        let Some((path, suffix)) = suffixed else { return Ok(Format::Tsv) };
        if let Some(format) = Format::of_path(path) {
            return Ok(format);
        }
        let suffix = suffix.to_string_lossy();
        let of_rows = match suffix.eq_ignore_ascii_case("csv") {
            true => "; \"tyrant search --csv\" prints the rows of a table as CSV",
            false => "",
        };
        Err(wrong_command_line(format_args!(
            "the suffix .{suffix} is that of no format of export: name a file with the suffix .tsv or \
             .jsonl, or give --format{of_rows}"
        )))
    }

    /// Stores the records in a server of Redis's protocol.
    fn store_in(&self, url: &RedisUrl) -> Result<()> {
        self.quiet.apply()?;
        let opening = Progress::of_time("opening").explain("nothing was exported");
        let source = Source::open(&self.database)?;
        drop(opening);
        ensure!(
            !source.is_table(),
            "{} is a table, and Redis's protocol has no rows: export it to a file",
            self.database
        );
        let export = redis::export::Export::begin(url, &self.security, source.records())?;
        let mut strings = Strings { export, counter: Counter::default(), damages: 0, failed: None };
        source.write(self.any_order, &mut strings).map_err(|error| self.with_advice(error))?;
        if let Some(error) = strings.failed {
            return Err(error);
        }
        let finished = strings.export.finish(url);
        finished.and(self.check_damage(&source, strings.damages))
    }

    /// Fails if damage was found in the source.
    fn check_damage(&self, source: &Source, damages: u64) -> Result<()> {
        if damages > 0 {
            bail!("{}; everything else was exported", damaged_places(damages));
        }
        let damaged = source.damaged_segments();
        if damaged > 0 {
            bail!(
                "{} has {}, whose records are not exported: tyrant check shows where",
                self.database,
                counted(damaged, "damaged place", "damaged places")
            );
        }
        Ok(())
    }

    /// Adds advice to an error of the database.
    fn with_advice(&self, error: cabinet::Error) -> anyhow::Error {
        let is_damage = matches!(error, cabinet::Error::Corrupted { .. });
        let error = anyhow::Error::from(error);
        if is_damage {
            return error.context(format!(
                "cannot export all of {}: tyrant salvage copies the intact records into a new database",
                self.database
            ));
        }
        error
    }
}

/// Source of the records.
enum Source {
    Legacy(File),
    Database(Database),
}

impl Source {
    fn open(name: &str) -> Result<Self> {
        let path = name.split('#').next().unwrap_or_default().as_ref();
        if is_legacy(path) {
            return Ok(Self::Legacy(File::open(path)?));
        }
        let specification = to_read(name)?;
        require_database(&specification.path)?;
        let database = Database::open_specification(&specification)
            .with_context(|| format!("cannot open the database {name}"))?;
        Ok(Self::Database(database))
    }

    fn records(&self) -> u64 {
        match self {
            Self::Legacy(file) => file.header().records,
            Self::Database(database) => count_records(database).unwrap_or_else(|_| database.len()),
        }
    }

    /// Returns the media types of the records, if the source can have some of its own.
    fn media_types(&self) -> cabinet::Result<Option<OwnMediaTypes>> {
        match self {
            Self::Database(database) => OwnMediaTypes::of(database).map(Some),
            Self::Legacy(_) => Ok(None),
        }
    }

    fn is_table(&self) -> bool {
        match self {
            Self::Legacy(file) => matches!(file.header().shape, Shape::Table { .. }),
            Self::Database(database) => database.table().is_some(),
        }
    }

    /// Returns the number of damaged files found so far, or of damaged ranges found at opening.
    fn damaged_segments(&self) -> u64 {
        let Self::Database(database) = self else { return 0 };
        let stats = database.stats();
        let stat = stats.iter().find(|(name, _)| *name == "damaged_segments");
        let at_runtime = stat.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
        // Damage set aside by an earlier opening is still missing.
        (database.damages().len() as u64).max(at_runtime)
    }

    /// Writes the records: those of a tree in the order of keys unless `in_any_order`, those of
    /// others in whatever order is fastest.
    fn write(&self, in_any_order: bool, lines: &mut dyn Sink) -> cabinet::Result<()> {
        let database = match self {
            Self::Legacy(file) => return file.read(lines),
            Self::Database(database) => database,
        };
        let lines = RefCell::new(lines);
        let report = &mut |error| lines.borrow_mut().unreadable(&error);
        if let Some(table) = database.table() {
            let write = |key: &[u8], row: RowView<'_>| {
                let columns: Vec<_> = row.columns().collect();
                lines.borrow_mut().item(&Item::Row { key, columns: &columns })
            };
            return table.for_each_readable_row(write, report);
        }
        let is_hidden = hidden_in(database);
        let write = |entry: RecordRef<'_>| match is_hidden(entry.key) {
            true => lines.borrow_mut().reserved(&entry),
            false => lines.borrow_mut().entry(&entry),
        };
        database.for_each_readable(in_any_order, write, report)
    }
}

/// Destination of the records.
trait Sink: Visit {
    /// Takes a record of a database.
    fn entry(&mut self, entry: &RecordRef<'_>) -> ControlFlow<()>;

    /// Takes a reserved record of a database.
    fn reserved(&mut self, entry: &RecordRef<'_>) -> ControlFlow<()>;

    /// Takes the error of a part of a database that cannot be read.
    fn unreadable(&mut self, error: &cabinet::Error);
}

/// Counter of records. The progress is told now and then, because it asks for the time.
#[derive(Default)]
struct Counter {
    /// Records that the progress was not told of yet.
    advanced: u64,
}

impl Counter {
    fn advance(&mut self, records: u64, progress: &Progress) {
        self.advanced += records;
        if self.advanced >= ADVANCED_AT_ONCE {
            progress.advance(std::mem::take(&mut self.advanced));
        }
    }
}

/// Ends the export at an error, which is kept.
fn continue_if(written: Result<()>, failed: &mut Option<anyhow::Error>) -> ControlFlow<()> {
    match written {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failed = Some(error);
            ControlFlow::Break(())
        }
    }
}

/// Prints a damaged place, of which the number is the last; later ones are only counted.
fn print_some(number: u64, damage: &str, progress: &Progress) {
    if number <= DAMAGES_SHOWN_MAX {
        progress.print(damage);
    }
}

/// Writer of the output lines.
struct Lines {
    format: Format,
    output: BufWriter<Output>,
    media_types: Option<OwnMediaTypes>,
    progress: Progress,
    counter: Counter,
    damages: u64,
    failed: Option<anyhow::Error>,
}

impl Lines {
    fn record(&mut self, key: &[u8], value: &[u8], meta: Meta) -> ControlFlow<()> {
        let written = text::write_record(self.format, key, value, meta, &mut self.output);
        continue_if(written, &mut self.failed)
    }
}

impl Sink for Lines {
    /// Writes a reserved record, if it is one of a front end. TSV has no lines of these.
    fn reserved(&mut self, entry: &RecordRef<'_>) -> ControlFlow<()> {
        self.counter.advance(1, &self.progress);
        let is_json = self.format == Format::Jsonl;
        let written = match front_end_name(entry.key).filter(|_| is_json) {
            Some(name) => text::write_reserved(name, entry.value, &mut self.output),
            None => Ok(()),
        };
        continue_if(written, &mut self.failed)
    }

    fn unreadable(&mut self, error: &cabinet::Error) {
        self.damages += 1;
        print_some(self.damages, &error.to_string(), &self.progress);
    }

    fn entry(&mut self, entry: &RecordRef<'_>) -> ControlFlow<()> {
        self.counter.advance(1, &self.progress);
        let RecordRef { key, value, meta, .. } = *entry;
        let is_json = self.format == Format::Jsonl;
        let media_types = self.media_types.as_ref().filter(|_| is_json && meta.flags != 0);
        let Some(name) = media_types.and_then(|types| types.name(meta.flags)) else {
            return self.record(key, value, meta);
        };
        let written = text::write_typed(key, value, name, meta.expires_at_ms, &mut self.output);
        continue_if(written, &mut self.failed)
    }
}

impl Visit for Lines {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        self.counter.advance(item.records(), &self.progress);
        match item {
            Item::Record { key, value } => self.record(key, value, Meta::NONE),
            Item::Duplicates { key, values } => {
                values.iter().try_for_each(|value| self.record(key, value, Meta::NONE))
            }
            Item::Row { key, columns } => {
                let written = text::write_row(self.format, key, columns, &mut self.output);
                continue_if(written, &mut self.failed)
            }
            _ => continue_if(Err(anyhow!("unknown kind of item")), &mut self.failed),
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.damages += 1;
        print_some(self.damages, &damage.to_string(), &self.progress);
    }
}

/// Writer of strings to a server.
struct Strings {
    export: redis::export::Export,
    counter: Counter,
    damages: u64,
    failed: Option<anyhow::Error>,
}

impl Strings {
    fn record(&mut self, key: &[u8], value: &[u8], meta: Meta) -> ControlFlow<()> {
        self.counter.advance(1, self.export.progress());
        continue_if(self.export.put(key, value, meta), &mut self.failed)
    }
}

impl Sink for Strings {
    /// Passes over a reserved record, which has no meaning in another server.
    fn reserved(&mut self, _entry: &RecordRef<'_>) -> ControlFlow<()> {
        self.counter.advance(1, self.export.progress());
        ControlFlow::Continue(())
    }

    fn unreadable(&mut self, error: &cabinet::Error) {
        self.damages += 1;
        print_some(self.damages, &error.to_string(), self.export.progress());
    }

    fn entry(&mut self, entry: &RecordRef<'_>) -> ControlFlow<()> {
        self.record(entry.key, entry.value, entry.meta)
    }
}

impl Visit for Strings {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        match item {
            Item::Record { key, value } => self.record(key, value, Meta::NONE),
            Item::Duplicates { key, values } => {
                values.iter().try_for_each(|value| self.record(key, value, Meta::NONE))
            }
            _ => continue_if(Err(anyhow!("a row is no string")), &mut self.failed),
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.damages += 1;
        print_some(self.damages, &damage.to_string(), self.export.progress());
    }
}
