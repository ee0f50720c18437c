//! `tyrant import`: imports files, or the strings of a Redis server, into a database.

use crate::cluster;
use crate::errors::{name_on_disk, require, require_file, wrong_command_line};
use crate::output::Quiet;
use crate::plural::counted;
use crate::remote::{RedisUrl, SecurityArgument};
use crate::say::say;
use crate::transfer::ids::IdLimits;
use crate::transfer::import_text::Text;
use crate::transfer::legacy::{self, damaged_places};
use crate::transfer::progress::Progress;
use crate::transfer::redis;
use crate::transfer::target::{MadeDatabase, Target};
use crate::transfer::text::Format;
use anyhow::{Context, Result, bail};
use cabinet::legacy::{File, is_legacy};
use cabinet::name::Specification;
use clap::builder::NonEmptyStringValueParser;
use parking_lot::Mutex;
use server::count_records;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Advice after an import that was interrupted.
const AGAIN: &str = "the same command imports all of them again";

/// The way of files into a running server.
pub(super) const FILES_INTO_SERVER: &str = "files are imported into a database on disk, and \"tyrant \
    export NAME --to redis://HOST:PORT\" copies that into a running server";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Import a Tokyo Cabinet file into a database
  tyrant import old.tch --into casket.tch
  # Import lines of key, TAB, value
  tyrant import --format tsv --into casket.tcb - < records.txt
  # Import the strings of a Redis server, with their expiries
  tyrant import redis://127.0.0.1:6379 --into casket.tch
  # Copy them into a running server
  tyrant import rediss://ann@old.example.org --into redis://127.0.0.1:1978")]
pub(super) struct Import {
    /// Tokyo Cabinet files, folders of a partitioned database, TSV or JSON lines; - is the standard
    /// input; or the URL of a Redis server, redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], with
    /// TLS rediss://
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Import into the database with this name; it is created if it does not exist; from a Redis
    /// server also into a running server, by its redis:// URL
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    into: String,
    /// Go on from this cursor of an earlier import from the same Redis server
    #[arg(long, value_name = "CURSOR", default_value_t = 0, hide_default_value = true)]
    cursor: u64,
    /// Read the lines of text files in this format [default: by their suffixes]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Skip reading back the records imported from Tokyo Cabinet files
    #[arg(long)]
    no_check: bool,
    /// Import values unchanged that an application's own functions are said to have stored
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    security: SecurityArgument,
    #[command(flatten)]
    quiet: Quiet,
}

/// Kind of an input file.
enum Source {
    Legacy(Box<File>),
    Text(PathBuf, Format),
}

impl Source {
    fn path(&self) -> &Path {
        match self {
            Self::Legacy(file) => file.path(),
            Self::Text(path, _) => path,
        }
    }
}

impl Import {
    pub(super) fn run(&self) -> Result<()> {
        self.quiet.apply()?;
        if let Some(from) = self.redis_server()? {
            let (into, cursor, security) = (&self.into, self.cursor, &self.security);
            return redis::import::Import { from: &from, into, cursor, security }.run();
        }
        let sources: Vec<Source> = legacy::files(&self.files)?
            .iter()
            .map(|path| self.source(path))
            .collect::<Result<_>>()?;
        let first = sources.iter().find_map(|source| match source {
            Source::Legacy(file) => Some(&**file),
            Source::Text(..) => None,
        });
        let specification = match first {
            Some(file) => legacy::adopt(&self.into, file),
            None => Specification::parse(&self.into).map_err(Into::into),
        };
        let specification = specification.map_err(name_on_disk)?;
        let opening = Progress::of_time("opening").explain("nothing was imported");
        let made = MadeDatabase::before(&specification);
        let target = Arc::new(Mutex::new(Target::open(&specification)?));
        drop(opening);
        let (mut lacking, mut imported) = (Lacking::default(), 0);
        let before = count_records(target.lock().database())?;
        let paths: Vec<&Path> = sources.iter().map(Source::path).collect();
        for (index, source) in sources.iter().enumerate() {
            match self.import(source, &paths[index + 1..], &target, &mut lacking) {
                Ok(records) => imported += records,
                Err(error) => {
                    let is_empty = target.lock().database().is_empty();
                    drop(target);
                    if is_empty {
                        made.remove();
                    }
                    return Err(error);
                }
            }
        }
        let opened = target.lock();
        opened.database().sync()?;
        let records = count_records(opened.database())?;
        let conclusion = lacking.conclude(opened.id_limits());
        drop(opened);
        drop(target);
        // An empty file of Tokyo Cabinet is an empty database.
        let made = if first.is_none() { made } else { MadeDatabase::default() };
        let fewer = (before + imported).saturating_sub(records);
        if fewer > 0 {
            let shown = counted(fewer, "record has", "records have");
            say!("{shown} replaced an earlier one of its key, or expired");
        }
        made.conclude(&specification.path, records);
        conclusion
    }

    /// Returns the Redis server to import from, if the command names one.
    fn redis_server(&self) -> Result<Option<RedisUrl>> {
        let meant = |text: &str| {
            let is_absent = !Path::new(text).exists() && !cluster::is_cluster_name(text);
            RedisUrl::meant_by(text).filter(|_| is_absent)
        };
        for file in self.files.iter().filter_map(|file| file.to_str()) {
            if let Some(url) = meant(file) {
                return Err(wrong_command_line(format_args!(
                    "there is no file {}: a running server is named by its URL, {url}, with TLS \
                     rediss://",
                    RedisUrl::without_login(file)
                )));
            }
        }
        if let Some(url) = meant(&self.into) {
            return Err(wrong_command_line(format_args!(
                "{} is not the name of a database: a running server is named by its URL, {url}, into \
                 which the records of another server are imported; {FILES_INTO_SERVER}",
                RedisUrl::without_login(&self.into)
            )));
        }
        let mut urls = self.files.iter().filter_map(|file| file.to_str());
        let Some(url) = urls.find(|file| RedisUrl::is_url(file)) else {
            require(
                self.cursor == 0 && !self.security.is_given() && !RedisUrl::is_url(&self.into),
                format_args!(
                    "--cursor, the options of connections and a redis:// URL after --into belong to \
                     an import from a Redis server; {FILES_INTO_SERVER}"
                ),
            )?;
            return Ok(None);
        };
        require(
            self.files.len() == 1 && self.format.is_none() && !self.plain && !self.no_check,
            "a Redis server is imported alone, and without --format, --plain and --no-check",
        )?;
        RedisUrl::parse(url).map(Some)
    }

    fn source(&self, path: &Path) -> Result<Source> {
        if is_legacy(path) {
            if let Some(table) = table_of_index(path) {
                bail!(
                    "{} is an index of the table {table}.tct: import the table, and its indices are built again",
                    path.display()
                );
            }
            let mut file = File::open(path)?;
            if self.plain {
                file.assume_plain();
            }
            return Ok(Source::Legacy(Box::new(file)));
        }
        match path == Path::new("-") {
            true => require(
                self.format.is_some(),
                "the standard input has no suffix: --format says how to read it",
            )?,
            false => require_file(path)?,
        }
        let is_csv = path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("csv"));
        let format = self.format.or_else(|| Format::of_path(path)).with_context(|| match is_csv {
            true => format!(
                "{} is CSV, which import does not read: \"tyrant put-rows {0}\" stores its rows in \
                 the table of a running server",
                path.display()
            ),
            false => format!(
                "{} is not a Tokyo Cabinet file; for other files the suffix (.tsv, .jsonl) or \
                 --format says how to read them",
                path.display()
            ),
        })?;
        Ok(Source::Text(path.to_owned(), format))
    }

    /// Imports a file, and returns the number of its records. An interruption names the `later`
    /// ones.
    fn import(
        &self,
        source: &Source,
        later: &[&Path],
        target: &Arc<Mutex<Target>>,
        lacking: &mut Lacking,
    ) -> Result<u64> {
        let (path, records, described) = match source {
            Source::Legacy(file) => {
                let path = file.path();
                let check = !self.no_check;
                let target = &mut target.lock();
                let imported = legacy::import(file, target, check, Progress::print, AGAIN)
                    .with_context(|| format!("cannot import {}", path.display()))?;
                lacking.damages += imported.damages;
                lacking.refused += imported.refused;
                (path, imported.records, format!(", {}", legacy::describe(file)))
            }
            Source::Text(path, format) => {
                let text = Text { path, format: *format, into: &self.into, later };
                let imported = text
                    .import(target)
                    .with_context(|| format!("cannot import {}", path.display()))?;
                lacking.refused += imported.refused;
                (path.as_path(), imported.records, String::new())
            }
        };
        let shown = counted(records, "record", "records");
        say!("{shown} from {}{described}", path.display());
        Ok(records)
    }
}

/// Counts of records and ranges that an import could not bring into the database.
#[derive(Default)]
struct Lacking {
    /// Damaged ranges of files.
    damages: u64,
    /// Records that a fixed-length database cannot have.
    refused: u64,
}

impl Lacking {
    /// Fails if not everything was imported.
    fn conclude(&self, limits: Option<IdLimits>) -> Result<()> {
        if self.refused > 0 {
            let required = limits.map(|limits| limits.describe()).unwrap_or_default();
            let damages = match self.damages {
                0 => String::new(),
                damages => format!(", and {}", damaged_places(damages)),
            };
            let refused = counted(self.refused, "record was", "records were");
            bail!("{refused} not imported{damages}; everything else was: {required}");
        }
        if self.damages > 0 {
            bail!("{}; everything else was imported", damaged_places(self.damages));
        }
        Ok(())
    }
}

/// Returns the table that a file is an index of, by Tokyo Cabinet's naming: `X.tct.idx.COLUMN.lex`.
fn table_of_index(path: &Path) -> Option<&str> {
    let (table, rest) = path.to_str()?.split_once(".tct.idx.")?;
    let is_kind =
        ["lex", "dec", "tok", "qgr"].iter().any(|kind| rest.ends_with(&format!(".{kind}")));
    is_kind.then_some(table)
}
