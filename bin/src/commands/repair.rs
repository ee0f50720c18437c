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
    /// Kind of the damaged database, for when no manifest can be read and its records do not tell
    #[arg(long, value_enum)]
    kind: Option<Kind>,
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
        let into =
            Database::open(&self.into).with_context(|| format!("cannot open {}", self.into))?;
        if !into.is_empty() {
            bail!("{} holds records: salvage into a new database", self.into);
        }
        let kind = self.kind.map(Into::into);
        let salvaged = cabinet::salvage_as(&self.path, kind, &into, &mut print)
            .with_context(|| format!("cannot salvage {}", self.path.display()))?;
        println!("{} records in {}", into.len(), self.into);
        if salvaged.unreadable > 0 {
            println!("{} values or pages could not be read", salvaged.unreadable);
        }
        if salvaged.is_rebuilt {
            println!(
                "the list of the tree's leaves could not be used: records that were removed may have \
                 come back"
            );
        } else if salvaged.may_be_stale {
            println!(
                "changes may be missing: records may have older values than they had, or have come back"
            );
        }
        if salvaged.doubtful > 0 {
            println!("{} records are in doubt", salvaged.doubtful);
        }
        Ok(())
    }
}

fn print(damage: Damage) {
    println!("{damage}");
}
