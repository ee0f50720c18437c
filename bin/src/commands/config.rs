//! `tyrant config`: the settings of a server, their defaults, and the check of a file.

use crate::errors::require;
use crate::say::say;
use crate::settings::{Launch, Settings, defaults_file, markdown};
use crate::transfer::whole_file::Output;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
#[command(
    override_usage = "tyrant config <--defaults|--check <FILE>>",
    after_help = "\
Examples:
  # Begin a configuration file
  tyrant config --defaults > tyrant.toml
  # Check a changed file
  tyrant config --check tyrant.toml"
)]
pub(super) struct Config {
    /// Print a configuration file in which every setting is a comment, with its default
    #[arg(long)]
    defaults: bool,
    /// Check a configuration file, and that this user could serve it, without opening its databases
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Print the tables of docs/configuration.md
    #[arg(long, hide = true)]
    markdown: bool,
}

impl Config {
    pub(super) fn run(self) -> Result<()> {
        if let Some(file) = self.check {
            let shown = file.display().to_string();
            let loaded = Launch { given: Settings::default(), file: Some(file) }.load()?;
            loaded.check_start()?;
            for warning in loaded.warnings() {
                eprintln!("{shown}: warning: {warning}");
            }
            say!("{shown}: correct, serves {}", names(&loaded.databases));
        } else if self.markdown {
            Output::standard().write_all(markdown().as_bytes())?;
        } else {
            require(self.defaults, "tyrant config needs --defaults, or --check FILE")?;
            Output::standard().write_all(defaults_file().as_bytes())?;
        }
        Ok(())
    }
}

fn names(databases: &[Settings]) -> String {
    let names: Vec<&str> =
        databases.iter().filter_map(|settings| settings.database.as_deref()).collect();
    names.join(", ")
}
