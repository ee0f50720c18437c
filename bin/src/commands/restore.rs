//! `tyrant restore`: restores a database from a backup.

use crate::backup::{Repository, Restore as Restoring, Until};
use crate::output::Quiet;
use crate::plural::counted;
use crate::say::say;
use crate::time::{format_time, now_us, parse_time};
use anyhow::Result;
use std::path::PathBuf;

/// Restore a database from a backup, as it was then or at a later time.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Restore the newest backup
  tyrant restore /backups/casket --into casket.tch
  # Restore the state of a moment, by the update log of the server
  tyrant restore /backups/casket --into casket.tch --update-log ulog \\
      --until 2026-11-21T12:30:08Z")]
pub(super) struct Restore {
    /// Folder of the backups
    #[arg(value_name = "REPOSITORY")]
    repository: PathBuf,
    /// Path of the database, with the suffix of its kind
    #[arg(long, value_name = "PATH")]
    into: PathBuf,
    /// Restore the backup with this name [default: the newest, or with --until the newest before
    /// that time]
    #[arg(long, value_name = "BACKUP")]
    backup: Option<String>,
    /// Apply the changes after the backup, those of this very time included: as
    /// 2026-11-21T12:30:08Z, with up to six decimals of the second; or since 1970, in seconds or,
    /// as tyrant tail prints times, in microseconds
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "update_log")]
    until: Option<u64>,
    /// Read changes from this folder of the server's update log, complete since the backup
    #[arg(long, value_name = "DIR", requires = "until")]
    update_log: Option<PathBuf>,
    /// Replace an existing database
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    quiet: Quiet,
}

impl Restore {
    pub(super) fn run(&self) -> Result<()> {
        self.quiet.apply()?;
        let repository = Repository::open_to_read(&self.repository)?;
        let until = self.until.zip(self.update_log.clone());
        let restored = Restoring {
            backup: self.backup.clone(),
            into: self.into.clone(),
            replace: self.replace,
            until: until.map(|(time_us, update_log)| Until { time_us, update_log }),
        }
        .run(&repository)?;
        say!("{}: restored {}", restored.backup, counted(restored.bytes, "byte", "bytes"));
        if let Some(replayed) = restored.replayed {
            let operations = counted(replayed.operations, "operation", "operations");
            say!("executed {operations} of the update log after the backup");
            if replayed.differing > 0 {
                say!("{} of them had a different outcome than originally", replayed.differing);
            }
            if let Some(last_us) = replayed.last_us.or(restored.position_us) {
                let time = format_time(last_us);
                say!("the last operation is of {time} ({last_us} in microseconds since 1970)");
            }
            if let Some(time_us) = self.until.filter(|time_us| *time_us > now_us()) {
                let time = format_time(time_us);
                say!("the requested time, {time}, is yet to come: check --until");
            }
        }
        let records = counted(restored.records, "record", "records");
        say!("{records} in {}", self.into.display());
        Ok(())
    }
}
