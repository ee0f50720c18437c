//! `tyrant completions` and `tyrant man`: files for shells and `man`, from the definition of the
//! command line.

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self, mut command: Command) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "tyrant", &mut script);
        Ok(io::stdout().write_all(&script)?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Man {
    /// Folder for the pages, one per command
    folder: PathBuf,
}

impl Man {
    pub(super) fn run(&self, command: Command) -> Result<()> {
        let folder = self.folder.display();
        clap_mangen::generate_to(command.disable_help_subcommand(true), &self.folder)
            .with_context(|| format!("cannot write the pages into {folder}"))
    }
}
