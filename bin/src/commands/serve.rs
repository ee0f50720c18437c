//! `tyrant serve`: runs the server.

use crate::serving::Process;
use crate::settings::{Launch, Settings};
use anyhow::Result;
use std::path::PathBuf;

/// The end of the help.
const AFTER_HELP: &str = "\
Each option can also come from the environment, as TYRANT_ and its name
(TYRANT_LOG_LEVEL=debug), or from the file of --config, under its name
(log-level = \"debug\"). The first of command line, environment, file and
default counts. `tyrant config --defaults` prints a file with everything.

Examples:
  # Serve a tree of the current folder, to every machine that reaches port 2000
  tyrant serve casket.tcb --host 0.0.0.0 --port 2000
  # The same without the word serve
  tyrant --host 0.0.0.0 --port 2000 casket.tcb
  # Serve records in memory alone
  tyrant serve '*'
  # Serve what a configuration file says
  tyrant serve --config tyrant.toml";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Read settings from this file, and again at a reload
    #[arg(long, value_name = "FILE", env = "TYRANT_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl Arguments {
    pub(super) fn run(self) -> Result<()> {
        Process::serve(Launch { given: self.settings, file: self.config })
    }
}
