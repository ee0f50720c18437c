//! Commands on damage: `check` and `salvage`, for the files of a database that is not open, or for
//! a served one.

use crate::errors::{name_on_disk, require_database};
use crate::output::Quiet;
use crate::plural::counted;
use crate::remote::{Server, ServerArgument};
use crate::say::say;
use crate::sizes;
use crate::transfer::legacy::damaged_places;
use crate::transfer::progress::Progress;
use crate::transfer::target::MadeDatabase;
use anyhow::{Context, Result, bail};
use cabinet::Database;
use cabinet::name::Specification;
use clap::builder::NonEmptyStringValueParser;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Label of the progress of a verification.
const CHECKING: &str = "checking";

/// Interval of the requests for a server's progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Verify a database that is not served
  tyrant check casket.tch
  # Make a server verify its own, reading 16 MiB per second
  tyrant check --server 127.0.0.1:1978 --rate 16m")]
pub(super) struct Check {
    /// Folder of the database; without one a running server verifies its own
    #[arg(conflicts_with = "server")]
    path: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgument,
    /// Limit the server's reads to this many bytes per second [default: 64m]
    #[arg(long, value_name = "BYTES", conflicts_with = "path", value_parser = sizes::rate)]
    rate: Option<u64>,
    #[command(flatten)]
    quiet: Quiet,
}

impl Check {
    pub(super) fn run(&self) -> Result<()> {
        self.quiet.apply()?;
        match &self.path {
            Some(path) => check_files(path),
            None => check_server(&self.server.connect()?, self.rate),
        }
    }
}

fn check_files(path: &Path) -> Result<()> {
    require_database(path)?;
    let progress = Progress::of_time(CHECKING)
        .explain("no damage was found but what is printed above; the same command begins again");
    let checked = cabinet::check(path, &mut |damage| progress.print_result(&damage))
        .with_context(|| format!("cannot check {}", path.display()))?;
    drop(progress);
    print_checked(checked.records, checked.bytes, checked.segments);
    if checked.torn_bytes > 0 {
        let torn = counted(checked.torn_bytes, "unfinished byte", "unfinished bytes");
        say!("{torn} at the end will be removed at opening");
    }
    conclude(checked.damages)
}

/// Prints what was verified. The log has an entry for each change, so their number is not that of
/// the records of the database.
fn print_checked(records: u64, bytes: u64, segments: u64) {
    say!(
        "{} of the log, {} in {}",
        counted(records, "entry", "entries"),
        counted(bytes, "byte", "bytes"),
        counted(segments, "segment", "segments")
    );
}

fn conclude(damages: u64) -> Result<()> {
    if damages > 0 {
        let damages = counted(damages, "damaged place", "damaged places");
        bail!("{damages}; tyrant salvage saves the rest");
    }
    say!("no damage was found");
    Ok(())
}

/// Makes a server verify its database, and waits for the end.
fn check_server(client: &Server, rate: Option<u64>) -> Result<()> {
    let check = || -> Result<()> {
        let run = client.check(rate)?;
        let progress = Progress::of_bytes(CHECKING, client.size().ok()).explain(
            "the server goes on: tyrant check shows the result, tyrant misc check stop ends it",
        );
        let mut printed = 0;
        loop {
            let state = client.check_state(printed)?;
            if state.run != run {
                bail!("another check has started before the end of this one was seen");
            }
            progress.reach(state.bytes);
            for damage in &state.damage {
                progress.print_result(&String::from_utf8_lossy(damage));
            }
            printed += state.damage.len();
            match &state.state[..] {
                b"running" => std::thread::sleep(POLL_INTERVAL),
                b"finished" => {
                    let client::CheckState { segments, records, bytes, .. } = state;
                    drop(progress);
                    print_checked(records, bytes, segments);
                    let more = state.damages.saturating_sub(printed as u64);
                    if more > 0 {
                        say!("{}", counted(more, "more damaged place", "more damaged places"));
                    }
                    return conclude(state.damages);
                }
                _ if !state.error.is_empty() => bail!("{}", String::from_utf8_lossy(&state.error)),
                _ => bail!("the check was stopped"),
            }
        }
    };
    check().map_err(|error| client.explain("check", error))
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Copy what is readable into a new database
  tyrant salvage casket.tch --into saved.tch")]
pub(super) struct Salvage {
    /// Folder of the damaged database, which remains unchanged
    path: PathBuf,
    /// Copy everything readable into the database with this name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    into: String,
    /// Set the kind of the damaged database, if neither a manifest nor its records show it
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    #[command(flatten)]
    quiet: Quiet,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Hash,
    Tree,
    Fixed,
    Table,
}

impl From<Kind> for cabinet::name::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Hash => Self::Hash,
            Kind::Tree => Self::Tree,
            Kind::Fixed => Self::Fixed,
            Kind::Table => Self::Table,
        }
    }
}

impl Salvage {
    pub(super) fn run(&self) -> Result<()> {
        self.quiet.apply()?;
        // A wrong path must leave no empty database.
        require_database(&self.path)?;
        let specification =
            Specification::parse(&self.into).map_err(|error| name_on_disk(error.into()))?;
        let made = MadeDatabase::before(&specification);
        let into = Database::open_specification(&specification)
            .with_context(|| format!("cannot open {}", self.into))?;
        if !into.is_empty() {
            bail!("{} has records: salvage into a new database", self.into);
        }
        let kind = self.kind.map(Into::into);
        let progress = Progress::of_time("salvaging").explain(format!(
            "{} has a part of the records: remove it, and run the same command again",
            self.into
        ));
        let report = &mut |damage| progress.print_result(&damage);
        let salvaged = cabinet::salvage_as(&self.path, kind, &into, report)
            .with_context(|| format!("cannot salvage {}", self.path.display()));
        if salvaged.is_err() && into.is_empty() {
            drop(into);
            made.remove();
            return salvaged.map(drop);
        }
        let salvaged = salvaged?;
        drop(progress);
        let records = counted(server::count_records(&into)?, "record", "records");
        say!("{records} in {}", self.into);
        if salvaged.unreadable > 0 {
            let unreadable = counted(salvaged.unreadable, "value or page", "values or pages");
            say!("{unreadable} could not be read");
        }
        if salvaged.is_rebuilt {
            say!(
                "the list of the tree's leaves could not be used: records that were removed may have \
                 come back"
            );
        } else if salvaged.may_be_stale {
            say!(
                "changes may be missing: records may have older values than they had, or have come back"
            );
        }
        if salvaged.doubtful > 0 {
            say!("{} in doubt", counted(salvaged.doubtful, "record is", "records are"));
        }
        if salvaged.may_be_stale || salvaged.is_rebuilt {
            let found = match salvaged.damages {
                0 => "not everything could be read".to_owned(),
                damages => damaged_places(damages),
            };
            bail!("{found}; everything that could be read is in {}", self.into);
        }
        say!("no damage was found");
        Ok(())
    }
}
