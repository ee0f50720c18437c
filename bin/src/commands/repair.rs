//! Commands about the files of a database that nobody has open.

use anyhow::{Context, Result, bail};
use cabinet::{Damage, Database};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// Folder of the database
    path: PathBuf,
}

impl Check {
    pub(super) fn run(&self) -> Result<()> {
        let checked = cabinet::check(&self.path, &mut print)
            .with_context(|| format!("cannot check {}", self.path.display()))?;
        println!(
            "{} records, {} bytes in {} segments",
            checked.records, checked.bytes, checked.segments
        );
        if checked.torn_bytes > 0 {
            println!(
                "{} bytes at the end were not finished: they go at opening",
                checked.torn_bytes
            );
        }
        if checked.damages > 0 {
            bail!("{} damaged places; tyrant salvage saves the rest", checked.damages);
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Salvage {
    /// Folder of the damaged database, which stays as it is
    path: PathBuf,
    /// Name of the database to put everything readable into
    #[arg(long, value_name = "NAME")]
    into: String,
}

impl Salvage {
    pub(super) fn run(&self) -> Result<()> {
        let into =
            Database::open(&self.into).with_context(|| format!("cannot open {}", self.into))?;
        if !into.is_empty() {
            bail!("{} holds records: salvage into a new database", self.into);
        }
        let salvaged = cabinet::salvage(&self.path, &into, &mut print)
            .with_context(|| format!("cannot salvage {}", self.path.display()))?;
        println!("{} records in {}", into.len(), self.into);
        if salvaged.unreadable > 0 {
            println!("{} compressed values could not be read", salvaged.unreadable);
        }
        if salvaged.is_rebuilt {
            println!(
                "the list of the tree's leaves could not be used: records that were removed may have \
                 come back, among them {} that are in doubt",
                salvaged.doubtful
            );
        }
        Ok(())
    }
}

fn print(damage: Damage) {
    println!("{damage}");
}
