//! `tyrant backup`: creates, lists, verifies and prunes backups.

use crate::backup::{Catalog, CreateOptions, REMOVE_CATALOG, Repository, Source, Verified, create};
use crate::output::{AsJson, Quiet, object, write_json};
use crate::plural::counted;
use crate::remote::ServerArgument;
use crate::say::say;
use crate::time::format_time;
use crate::transfer::progress::Progress;
use crate::transfer::whole_file::Output;
use anyhow::{Result, ensure};
use cabinet::Damage;
use clap::Subcommand;
use std::io::Write;
use std::path::PathBuf;

/// Keep backups of a database in a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Back up the database of the server on this machine
  tyrant backup create /backups/casket
  # Keep the newest seven backups
  tyrant backup prune /backups/casket --keep 7")]
pub(super) struct Backup {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Back up the database of a server, or one that is not served; only new files are copied
    Create(Box<Create>),
    /// Print the backups, one per line
    List(List),
    /// Verify every checksum of backups
    Verify(Verify),
    /// Remove old backups, and the files that no other backup needs
    Prune(Prune),
}

impl Backup {
    pub(super) fn run(&self) -> Result<()> {
        match &self.command {
            Command::Create(create) => create.run(),
            Command::List(list) => list.run(),
            Command::Verify(verify) => verify.run(),
            Command::Prune(prune) => prune.run(),
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Back up the database of the server on this machine
  tyrant backup create /backups/casket
  # The same from cron
  tyrant backup create /backups/casket --quiet
  # Back up a database that is not served
  tyrant backup create /backups/old --database old.tch")]
struct Create {
    /// Folder of the backups; created if it does not exist
    #[arg(value_name = "REPOSITORY")]
    repository: PathBuf,
    #[command(flatten)]
    server: ServerArgument,
    /// Back up this database, which must not be open, instead of a server's
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    database: Option<String>,
    /// Have the server make its copy in this folder, on the file system of the database [default:
    /// beside it]
    #[arg(long, value_name = "DIR", conflicts_with = "database")]
    by_way_of: Option<PathBuf>,
    /// Copy everything, including the files that are already in the repository
    #[arg(long)]
    full: bool,
    /// Back up a damaged database as it is
    #[arg(long)]
    accept_damage: bool,
    /// Add the backup to a repository whose newest one is of another database, which this one
    /// replaces
    #[arg(long)]
    accept_other_database: bool,
    #[command(flatten)]
    quiet: Quiet,
}

impl Create {
    fn run(&self) -> Result<()> {
        self.quiet.apply()?;
        let source = match &self.database {
            Some(name) => Source::Database(name.clone()),
            None => Source::Server {
                server: self.server.address(),
                settings: Box::new(self.server.settings()?),
                by_way_of: self.by_way_of.clone(),
            },
        };
        let repository = Repository::open_to_change(&self.repository, true)?;
        let making = CreateOptions {
            full: self.full,
            accept_damage: self.accept_damage,
            accept_other_database: self.accept_other_database,
        };
        let made = create(&repository, &source, making, &mut print);
        let made = made.map_err(|error| match error.downcast_ref() {
            Some(cabinet::Error::InUse { .. }) => error
                .context("a database that is served is backed up with --server, not --database"),
            _ => error,
        })?;
        say!(
            "{}: {} of {}, {} of them new",
            made.name,
            counted(made.catalog.file_count(), "file", "files"),
            counted(made.catalog.bytes(), "byte", "bytes"),
            made.catalog.copied_bytes
        );
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the backups
  tyrant backup list /backups/casket
  # The same as JSON lines
  tyrant backup list /backups/casket --json")]
struct List {
    /// Folder of the backups
    #[arg(value_name = "REPOSITORY")]
    repository: PathBuf,
    #[command(flatten)]
    form: AsJson,
}

impl List {
    fn run(&self) -> Result<()> {
        let repository = Repository::open_to_read(&self.repository)?;
        let mut output = Output::standard();
        let mut damaged_catalogs = Vec::new();
        let names = repository.names()?;
        if !self.form.json && !names.is_empty() {
            let titles = ["BACKUP", "KIND", "FILES", "BYTES", "NEW BYTES", "UPDATE LOG UP TO"];
            writeln!(output, "{}", line(titles.map(str::to_owned)))?;
        }
        for name in names {
            match repository.catalog(&name)? {
                Ok(catalog) => self.write(name, &catalog, &mut output)?,
                Err(damage) => {
                    damaged_catalogs.push(damage.file.clone());
                    print(damage);
                }
            }
        }
        conclude(&Verified { damaged_catalogs, ..Verified::default() })
    }

    fn write(&self, name: String, catalog: &Catalog, output: &mut dyn Write) -> Result<()> {
        let position = catalog.position_us.map(format_time);
        if self.form.json {
            let members = [
                ("name", name.into()),
                ("kind", catalog.kind.title().into()),
                ("files", catalog.file_count().into()),
                ("bytes", catalog.bytes().into()),
                ("copied_bytes", catalog.copied_bytes.into()),
                ("position", position.into()),
            ];
            return write_json(&object(members), output);
        }
        let fields = [
            name,
            catalog.kind.title().to_owned(),
            catalog.file_count().to_string(),
            catalog.bytes().to_string(),
            catalog.copied_bytes.to_string(),
            position.unwrap_or_else(|| "-".to_owned()),
        ];
        Ok(writeln!(output, "{}", line(fields))?)
    }
}

/// Returns a line of the list for people.
fn line([name, kind, files, bytes, new_bytes, position]: [String; 6]) -> String {
    format!("{name:<21} {kind:<13}{files:>6} {bytes:>15} {new_bytes:>15}  {position}")
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Verify all backups
  tyrant backup verify /backups/casket
  # Verify one of them
  tyrant backup verify /backups/casket 20261121T123008.000Z")]
struct Verify {
    /// Folder of the backups
    #[arg(value_name = "REPOSITORY")]
    repository: PathBuf,
    /// Names of backups [default: all]
    #[arg(value_name = "BACKUP")]
    backups: Vec<String>,
    #[command(flatten)]
    quiet: Quiet,
}

impl Verify {
    fn run(&self) -> Result<()> {
        self.quiet.apply()?;
        let repository = Repository::open_to_read(&self.repository)?;
        let names =
            if self.backups.is_empty() { repository.names()? } else { self.backups.clone() };
        if names.is_empty() {
            return Err(repository.without_backup());
        }
        let progress = Progress::of_bytes("verifying", None)
            .explain("nothing was changed; the same command begins again");
        let mut report = |damage: Damage| progress.print_result(&damage);
        let verified = repository.verify(&names, &mut report, &|bytes| progress.advance(bytes))?;
        drop(progress);
        let bytes = counted(verified.bytes, "byte", "bytes");
        say!("{}, {bytes} are intact", counted(verified.intact, "backup", "backups"));
        conclude(&verified)
    }
}

/// Fails with what to do if something is damaged.
fn conclude(verified: &Verified) -> Result<()> {
    let Verified { damaged_files, incomplete, damaged_catalogs, .. } = verified;
    let mut advice = Vec::new();
    if *damaged_files > 0 {
        let backups: Vec<String> =
            incomplete.iter().map(|path| path.display().to_string()).collect();
        advice.push(format!(
            "{}: `tyrant backup create --full` copies again what the database still has of them; a \
             backup that stays damaged after that is of no use, and is removed with its file, here {}",
            counted(*damaged_files, "file is damaged", "files are damaged"),
            backups.join(", ")
        ));
    }
    for catalog in damaged_catalogs {
        advice.push(format!("{} is damaged; {REMOVE_CATALOG}", catalog.display()));
    }
    ensure!(advice.is_empty(), "{}", advice.join("; "));
    Ok(())
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Keep the newest seven backups
  tyrant backup prune /backups/casket --keep 7")]
struct Prune {
    /// Folder of the backups
    #[arg(value_name = "REPOSITORY")]
    repository: PathBuf,
    /// Keep this many of the newest backups, at least one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep: u64,
    #[command(flatten)]
    quiet: Quiet,
}

impl Prune {
    fn run(&self) -> Result<()> {
        self.quiet.apply()?;
        let repository = Repository::open_to_change(&self.repository, false)?;
        // A backup that cannot be used is not kept in the place of one that can.
        repository.check_catalogs()?;
        let mut names = repository.names()?;
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        names.truncate(names.len().saturating_sub(keep));
        for name in &names {
            repository.remove(name)?;
            say!("removed {name}");
        }
        let bytes = repository.sweep()?;
        let bytes = counted(bytes, "byte", "bytes");
        say!("removed {}, freed {bytes}", counted(names.len(), "backup", "backups"));
        Ok(())
    }
}

fn print(damage: Damage) {
    say!("{damage}");
}
