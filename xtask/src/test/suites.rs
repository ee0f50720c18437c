//! Suites: the test binaries of the workspace, and commands of this program.

use super::durations;
use super::schedule::{Job, Load};
use crate::programs::{WORKSPACE, workspace};
use crate::test_binaries::{self, Built, Target};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Something that a suite needs beside the toolchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Programs from Debian's packages.
    Programs,
    /// Python with client libraries.
    Python,
    /// Python that drives a browser.
    Browser,
    /// Client libraries, and their own tests.
    Languages,
    /// Apache Cassandra, and Java.
    Cassandra,
    /// cargo-semver-checks.
    SemverChecks,
    /// valgrind, and compilers of C++ and Go.
    Capi,
    /// Tools of the Python package.
    PythonPackage,
    /// mdBook.
    Mdbook,
}

/// A suite.
pub(super) struct Suite {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) needs: &'static [Need],
    load: Load,
    run: Run,
}

enum Run {
    /// A test binary.
    Binary(Target),
    /// The tests in the documentation.
    Documentation,
    /// A command of this program.
    Command(Vec<&'static str>),
}

/// A suite that is a command of this program.
struct Own {
    name: &'static str,
    about: &'static str,
    arguments: &'static [&'static str],
    needs: &'static [Need],
    load: Load,
}

impl Own {
    /// Returns the suite, over one or three nodes of Cassandra.
    fn suite(&self, has_three_nodes: bool) -> Suite {
        let (name, further) = OF_THREE_NODES;
        let further = if has_three_nodes && self.name == name { further } else { &[] };
        Suite {
            name: self.name.to_owned(),
            about: self.about.to_owned(),
            needs: self.needs,
            load: self.load,
            run: Run::Command([self.arguments, further].concat()),
        }
    }
}

/// Suites that are commands of this program, the longest first.
const OWN: &[Own] = &[
    Own {
        name: "cassandra",
        about: "databases in a cluster, over a node of Cassandra, or three with --cluster",
        arguments: &["cluster-test"],
        needs: &[Need::Cassandra],
        load: Load::Waiting,
    },
    Own {
        name: "sanitize",
        about: "the library under AddressSanitizer and ThreadSanitizer",
        arguments: &["library", "sanitize"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "small-memory",
        about: "the server in a memory cgroup of 64 MiB",
        arguments: &["small-memory", "--debug"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "python",
        about: "the Python package: its wheel with each Python of the machine, and its tests",
        arguments: &["python", "--debug"],
        needs: &[Need::PythonPackage],
        load: Load::Busy,
    },
    Own {
        name: "features",
        about: "the library with each set of features",
        arguments: &["library", "features"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "default-build",
        about: "the program without what a default build leaves out compiles",
        arguments: &["default-build"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "semver",
        about: "changes that break users of the library",
        arguments: &["library", "semver"],
        needs: &[Need::SemverChecks],
        load: Load::Busy,
    },
    Own {
        name: "package",
        about: "the library built from its package, and its publication rehearsed",
        arguments: &["library", "package"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "readme",
        about: "the programs of the library's README in a new project",
        arguments: &["library", "readme"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "public-api",
        about: "the page of the library's public items",
        arguments: &["library", "public-api", "--check"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "msrv",
        about: "the library with the oldest compiler, if it is installed",
        arguments: &["library", "msrv"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "memcached",
        about: "300 random conversations with memcached and the server, by seed 0",
        arguments: &["memcached", "--debug"],
        needs: &[Need::Programs],
        load: Load::Busy,
    },
    Own {
        name: "redis",
        about: "500 random conversations with Redis and the server, by seed 0",
        arguments: &["redis", "--debug"],
        needs: &[Need::Programs],
        load: Load::Busy,
    },
    Own {
        name: "chaos",
        about: "40 s of kills and lost links of servers that replicate each other",
        arguments: &["chaos", "--debug", "--seconds", "40"],
        needs: &[Need::Programs],
        load: Load::Waiting,
    },
    Own {
        name: "chaos-tls",
        about: "20 s of the same, encrypted and logged in",
        arguments: &["chaos", "--debug", "--seconds", "20", "--tls"],
        needs: &[Need::Programs],
        load: Load::Waiting,
    },
    Own {
        name: "damage",
        about: "12 damaged databases",
        arguments: &["damage", "--debug", "--rounds", "12"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "crash",
        about: "10 kills of the server under single writes, 16 under transactions, 8 rounds with a replica",
        arguments: &[
            "crash",
            "--debug",
            "--rounds",
            "10",
            "--transactions",
            "16",
            "--replicated",
            "8",
        ],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "clients",
        about: "third-party clients and frameworks in six languages, twemproxy, curl, nc",
        arguments: &["clients", "--debug"],
        needs: &[Need::Programs, Need::Python, Need::Languages],
        load: Load::Waiting,
    },
    Own {
        name: "capi",
        about: "the library for C: every function in C and C++, under valgrind and sanitizers",
        arguments: &["capi"],
        needs: &[Need::Capi],
        load: Load::Busy,
    },
    Own {
        name: "tls-scan",
        about: "sslyze and openssl look for weak protocols and vulnerabilities",
        arguments: &["tls-scan", "--debug"],
        needs: &[Need::Programs, Need::Python],
        load: Load::Waiting,
    },
    Own {
        name: "full-disk",
        about: "a full disk under every kind of database and the update log",
        arguments: &["full-disk", "--debug"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "backup",
        about: "a backup of 100,000 records under writes, and its restoration",
        arguments: &["backup", "--debug", "--records", "100000"],
        needs: &[],
        load: Load::Busy,
    },
    Own {
        name: "webdav-clients",
        about: "litmus, cadaver and curl",
        arguments: &["webdav", "--debug"],
        needs: &[Need::Programs],
        load: Load::Waiting,
    },
    Own {
        name: "tls-connections",
        about: "new certificates under 500 open connections",
        arguments: &["tls-connections", "--debug", "--connections", "500"],
        needs: &[],
        load: Load::Waiting,
    },
    Own {
        name: "metrics",
        about: "promtool and a strict parser read the metrics and the alert rules",
        arguments: &["metrics", "--debug"],
        needs: &[Need::Programs, Need::Python],
        load: Load::Waiting,
    },
    Own {
        name: "console",
        about: "the console in a browser, at two widths and in two colours",
        arguments: &["console", "--debug"],
        needs: &[Need::Programs, Need::Browser],
        load: Load::Waiting,
    },
    Own {
        name: "site",
        about: "the site of the pages, which lists all of them",
        arguments: &["site"],
        needs: &[Need::Mdbook],
        load: Load::Busy,
    },
];

/// Suite that three nodes of Cassandra change, and its further arguments then.
const OF_THREE_NODES: (&str, &[&str]) = ("cassandra", &["--nodes", "3", "--chaos"]);

/// Test binaries that take longest, which begin first.
const LONG_BINARIES: &[&str] = &["cabinet::model", "cabinet", "kv::end_to_end", "server"];

/// Returns all suites, in the order in which they begin.
pub(super) fn all(has_three_nodes: bool) -> Result<Vec<Suite>> {
    let mut binaries: Vec<Suite> =
        test_binaries::targets()?.into_iter().map(Suite::of_binary).collect();
    let position = |suite: &Suite| LONG_BINARIES.iter().position(|name| *name == suite.name);
    binaries.sort_by_key(|suite| position(suite).unwrap_or(LONG_BINARIES.len()));
    let others = binaries.split_off(LONG_BINARIES.len());
    let mut suites = binaries;
    suites.extend(OWN.iter().map(|own| own.suite(has_three_nodes)));
    suites.push(Suite::of_documentation());
    suites.extend(others);
    Ok(suites)
}

/// Returns the suites with these names, or whose names begin with one of these and `::`; all if no
/// name is given.
pub(super) fn chosen(all: Vec<Suite>, names: &[String]) -> Result<Vec<Suite>> {
    let is_named = |suite: &Suite, name: &str| {
        suite.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    for name in names {
        if !all.iter().any(|suite| is_named(suite, name)) {
            bail!("there is no suite {name}: `cargo xtask test --list` prints their names");
        }
    }
    let is_wanted =
        |suite: &Suite| names.is_empty() || names.iter().any(|name| is_named(suite, name));
    Ok(all.into_iter().filter(is_wanted).collect())
}

impl Suite {
    fn of_binary(target: Target) -> Self {
        Self {
            name: target.name.clone(),
            about: format!("a test binary of {}", target.package),
            needs: &[],
            load: Load::Busy,
            run: Run::Binary(target),
        }
    }

    fn of_documentation() -> Self {
        Self {
            name: "documentation".to_owned(),
            about: "the examples in the documentation".to_owned(),
            needs: &[],
            load: Load::Busy,
            run: Run::Documentation,
        }
    }

    /// Returns the suite ready to run.
    pub(super) fn command(self, built: &Built) -> Result<Job> {
        let command = match self.run {
            Run::Binary(target) => {
                let mut command = built.binary(&target)?.command();
                let (name, value) = durations::VARIABLE;
                command.args(durations::OPTIONS).env(name, value);
                command
            }
            Run::Documentation => {
                let mut command = Command::new(env!("CARGO"));
                command.arg("test").args(WORKSPACE).arg("--doc");
                command.current_dir(workspace());
                command
            }
            Run::Command(arguments) => {
                let program = std::env::current_exe().context("the path of this program")?;
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
        };
        Ok(Job { name: self.name, command, load: self.load })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_arguments_of_each_suite_are_a_command_of_this_program() {
        for suite in OWN.iter().flat_map(|own| [own.suite(false), own.suite(true)]) {
            let Run::Command(arguments) = &suite.run else {
                panic!("{} is not a command", suite.name)
            };
            let line = [&["xtask"], &arguments[..]].concat();
            let parsed = crate::Command::try_parse_from(line);
            assert!(parsed.is_ok(), "{}: {}", suite.name, parsed.err().unwrap());
        }
    }

    #[test]
    fn the_long_binaries_exist_and_each_name_is_there_once() {
        let suites = all(false).unwrap();
        for name in LONG_BINARIES {
            assert!(suites.iter().any(|suite| suite.name == *name), "no suite {name}");
        }
        let mut names: Vec<&str> = suites.iter().map(|suite| &*suite.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    #[test]
    fn a_name_chooses_its_suite_or_those_of_its_package() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let chosen = chosen(all(false).unwrap(), &wanted)?;
            Ok::<_, anyhow::Error>(chosen.into_iter().map(|suite| suite.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["crash"]).unwrap(), ["crash"]);
        let server = names(&["server"]).unwrap();
        assert!(server.contains(&"server".to_owned()), "{server:?}");
        assert!(server.contains(&"server::http".to_owned()), "{server:?}");
        assert!(!server.iter().any(|name| name == "cabinet"), "{server:?}");
        let error = names(&["serve"]).unwrap_err().to_string();
        assert!(error.contains("--list"), "{error}");
    }
}
