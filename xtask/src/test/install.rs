//! Requirements of the suites, installed in one step before any of them begins.

use super::suites::{Need, Suite};
use crate::{capi, cassandra, languages, library, python, requirements};
use anyhow::{Context, Result};
use std::collections::BTreeSet;

/// Installs what these suites need.
pub(super) fn all(suites: &[Suite]) -> Result<()> {
    let needs: BTreeSet<Need> = suites.iter().flat_map(|suite| suite.needs).copied().collect();
    for need in needs {
        println!("needed: {}", need.name());
        need.install().with_context(|| format!("cannot install {}", need.name()))?;
    }
    Ok(())
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Self::Programs => "programs from Debian's packages",
            Self::Python => "packages of Python",
            Self::Browser => "a driver of browsers",
            Self::Languages => "client libraries of Python, Go, Java, Node.js and PHP",
            Self::Cassandra => "Apache Cassandra",
            Self::SemverChecks => "cargo-semver-checks",
            Self::Capi => "valgrind, and compilers of C++ and Go",
            Self::PythonPackage => "tools of the Python package",
            Self::Mdbook => "mdBook",
        }
    }

    fn install(self) -> Result<()> {
        match self {
            Self::Programs => requirements::install_programs(),
            Self::Python => requirements::python().map(drop),
            Self::Browser => requirements::browser().map(drop),
            Self::Languages => languages::tests().map(drop),
            Self::Cassandra => cassandra::install(),
            Self::SemverChecks => library::install_semver_checks(),
            Self::Capi => capi::install(),
            Self::PythonPackage => python::install(),
            Self::Mdbook => requirements::mdbook().map(drop),
        }
    }
}
