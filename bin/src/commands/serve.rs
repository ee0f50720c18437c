//! `tyrant serve`: runs the server.

use crate::serving::Process;
use crate::settings::{Launch, Settings};
use anyhow::Result;
use clap::Parser;
use std::path::PathBuf;

/// The end of the help.
const AFTER_HELP: &str = "\
Each option can also come from the environment, as TYRANT_ and its name (TYRANT_LOG_LEVEL=debug), \
or from the file of --config, under its name (log-level = \"debug\"). The first of command line, \
environment, file and default counts. `tyrant config --defaults` prints a file with everything.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Read settings from this file, and again on SIGHUP
    #[arg(long, value_name = "FILE", env = "TYRANT_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl Default for Arguments {
    /// Returns the arguments of an empty command line.
    fn default() -> Self {
        #[derive(Parser)]
        struct DefaultArguments {
            #[command(flatten)]
            arguments: Arguments,
        }
        DefaultArguments::parse_from(["serve"]).arguments
    }
}

impl Arguments {
    pub(super) fn run(self) -> Result<()> {
        Process::of_launch(Launch { given: self.settings, file: self.config })?.run()
    }
}
