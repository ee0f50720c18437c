//! `cargo xtask library`: checks of cabinet as a product of its own: its features, its public
//! surface, the oldest compiler, what is published, the programs of its README, changes that break
//! its users, and accesses to memory under sanitizers.

mod features;
mod public_api;
mod readme;
mod release;
mod sanitize;

pub(crate) use readme::blocks;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Name of the package.
pub(crate) const PACKAGE: &str = "tyrant-cabinet";

/// Folder of the package, from the workspace.
pub(crate) const FOLDER: &str = "crates/cabinet";

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Check the library without features, with each feature alone, and with all.
    Features,
    /// Compare the page of public items with the source, and rewrite it.
    PublicApi {
        /// Fail if the page is out of date, and do not write it.
        #[arg(long)]
        check: bool,
    },
    /// Check the library with the oldest compiler that it states.
    Msrv,
    /// List what would be published, build it from the package, and rehearse its publication.
    Package,
    /// Build and run each program of the README in a new project, as a reader would.
    Readme,
    /// Run tests of the unsafe code, and of what threads share, under sanitizers.
    Sanitize,
    /// Look for changes that break users of the library (installs the tool).
    Semver {
        /// Compare with this commit, not with the baseline in the manifest.
        #[arg(long)]
        baseline: Option<String>,
    },
}

/// Runs one part, or all.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.part {
        None => run_all(),
        Some(Part::Features) => features::run(),
        Some(Part::PublicApi { check }) => public_api::run(*check),
        Some(Part::Msrv) => release::check_msrv(),
        Some(Part::Package) => release::package(),
        Some(Part::Readme) => readme::run_all(),
        Some(Part::Sanitize) => sanitize::run_all(),
        Some(Part::Semver { baseline }) => release::semver(baseline.as_deref()),
    }
}

/// Installs the tool that looks for changes that break users.
pub(crate) fn install_semver_checks() -> Result<()> {
    release::install_semver_checks()
}

/// Runs all parts.
fn run_all() -> Result<()> {
    features::run()?;
    public_api::run(true)?;
    release::semver(None)?;
    release::check_msrv()?;
    release::package()?;
    readme::run_all()?;
    sanitize::run_all()
}
