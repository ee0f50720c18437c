//! `tyrant restore`.

use crate::backup::{Repository, Restore as Restoring, Until, moment, show};
use anyhow::Result;
use std::path::PathBuf;

/// Make a database of a backup, as it was then, or at a moment later.
#[derive(Debug, clap::Args)]
pub(super) struct Restore {
    /// Folder of the backups
    #[arg(value_name = "REPOSITORY")]
    repository: PathBuf,
    /// Path of the database, with the suffix of its kind
    #[arg(long, value_name = "PATH")]
    into: PathBuf,
    /// Name of the backup [default: the newest, or with --until the newest before that time]
    #[arg(long, value_name = "BACKUP")]
    backup: Option<String>,
    /// Bring it to this moment: RFC 3339, or seconds or microseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "update_log")]
    until: Option<u64>,
    /// Folder of the server's update log, of which everything since the backup is needed
    #[arg(long, value_name = "DIR", requires = "until")]
    update_log: Option<PathBuf>,
    /// Replace a database that is there already
    #[arg(long)]
    replace: bool,
}

impl Restore {
    pub(super) fn run(&self) -> Result<()> {
        let repository = Repository::open_to_read(&self.repository)?;
        let until = self.until.zip(self.update_log.clone());
        let restored = Restoring {
            backup: self.backup.clone(),
            into: self.into.clone(),
            replace: self.replace,
            until: until.map(|(time_us, update_log)| Until { time_us, update_log }),
        }
        .run(&repository)?;
        println!("{}: {} bytes restored", restored.backup, restored.bytes);
        if let Some(replayed) = restored.replayed {
            println!("{} operations of the update log executed", replayed.operations);
            if replayed.differing > 0 {
                println!("{} of them ended otherwise than at first", replayed.differing);
            }
            if let Some(last_us) = replayed.last_us {
                println!("the last one is of {}", show(last_us));
            }
        }
        println!("{} records in {}", restored.records, self.into.display());
        Ok(())
    }
}
