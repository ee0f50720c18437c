//! `tyrant import`: imports files into a database.

use crate::errors::require_file;
use crate::transfer::legacy;
use crate::transfer::progress::Progress;
use crate::transfer::target::Target;
use crate::transfer::text::{self, Format, Line, Shape};
use anyhow::{Context, Result, bail};
use cabinet::legacy::{File, is_legacy};
use cabinet::name::{Kind, Specification};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// Tokyo Cabinet files, folders of a partitioned database, TSV or JSON lines; - is the standard
    /// input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Import into the database with this name; it is created if it does not exist
    #[arg(long, value_name = "NAME")]
    into: String,
    /// Read the lines of text files in this format [default: by their suffixes]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Skip reading back the records imported from Tokyo Cabinet files
    #[arg(long)]
    no_check: bool,
    /// Import values unchanged that an application's own functions are said to have stored
    #[arg(long)]
    plain: bool,
}

/// Kind of an input file.
enum Source {
    Legacy(Box<File>),
    Text(PathBuf, Format),
}

impl Import {
    pub(super) fn run(&self) -> Result<()> {
        let sources: Vec<Source> = legacy::files(&self.files)?
            .iter()
            .map(|path| self.source(path))
            .collect::<Result<_>>()?;
        let first = sources.iter().find_map(|source| match source {
            Source::Legacy(file) => Some(&**file),
            Source::Text(..) => None,
        });
        let specification = match first {
            Some(file) => legacy::adopt(&self.into, file)?,
            None => Specification::parse(&self.into)?,
        };
        let mut target = Target::open(&specification)?;
        let mut damages = 0;
        for source in &sources {
            damages += self.import(source, &mut target)?;
        }
        target.database().sync()?;
        println!("{} records in {}", target.database().len(), specification.path.display());
        if damages > 0 {
            bail!("{damages} damaged places were found; everything else was imported");
        }
        Ok(())
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
        if path != Path::new("-") {
            require_file(path)?;
        }
        let format = self.format.or_else(|| Format::of_path(path)).with_context(|| {
            format!(
                "{} is not a Tokyo Cabinet file; for other files the suffix (.tsv, .jsonl) or \
                 --format says how to read them",
                path.display()
            )
        })?;
        Ok(Source::Text(path.to_owned(), format))
    }

    /// Imports a file. Returns the number of its damaged ranges.
    fn import(&self, source: &Source, target: &mut Target) -> Result<u64> {
        match source {
            Source::Legacy(file) => {
                let path = file.path().display();
                let imported = legacy::import(file, target, !self.no_check, Progress::print)
                    .with_context(|| format!("cannot import {path}"))?;
                println!("{} records from {path}, {}", imported.records, legacy::describe(file));
                Ok(imported.damages)
            }
            Source::Text(path, format) => {
                let records = import_text(path, *format, target)
                    .with_context(|| format!("cannot import {}", path.display()))?;
                println!("{records} records from {}", path.display());
                Ok(0)
            }
        }
    }
}

/// Imports lines of text. Returns their number.
fn import_text(path: &Path, format: Format, target: &mut Target) -> Result<u64> {
    let (input, bytes): (Box<dyn Read>, _) = if path == Path::new("-") {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let file = std::fs::File::open(path)?;
        let bytes = file.metadata()?.len();
        (Box::new(file), Some(bytes))
    };
    let progress = Progress::of_bytes("importing", bytes);
    let input = BufReader::new(progress.watch(input));
    let shape = if target.kind() == Kind::Table { Shape::Rows } else { Shape::Records };
    let start = target.stored();
    let read = text::read_lines(format, shape, input, &mut |line| match line {
        Line::Record { key, value, meta } => target.add(&key, &value, meta),
        Line::Row { key, columns } => {
            let columns: Vec<(&[u8], &[u8])> =
                columns.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            target.put_row(&key, &columns)
        }
    });
    // Valid records before a bad line are kept.
    let flushed = target.flush();
    let records = target.stored() - start;
    // Records are written in batches, so the count tells which record failed.
    let (line, error) = match (read, flushed) {
        (Ok(()), Ok(())) => return Ok(records),
        (Err(text::Failure::Reading(line, error)), Ok(())) => (line, error),
        (Err(text::Failure::Taking(error)), _) | (_, Err(error)) => (records + 1, error),
    };
    bail!("line {line}: {}; the {records} records before it were imported", crate::describe(&error))
}

/// Returns the table that a file is an index of, by Tokyo Cabinet's naming: `X.tct.idx.COLUMN.lex`.
fn table_of_index(path: &Path) -> Option<&str> {
    let (table, rest) = path.to_str()?.split_once(".tct.idx.")?;
    let is_kind =
        ["lex", "dec", "tok", "qgr"].iter().any(|kind| rest.ends_with(&format!(".{kind}")));
    is_kind.then_some(table)
}
