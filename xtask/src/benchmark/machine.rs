//! Machine and versions of the programs, as the system reports them.

use super::results::Machine;
use crate::programs::workspace;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Text for unknown values.
const UNKNOWN: &str = "unknown";

/// Servers, and the commands that print their versions.
const SERVERS: &[(&str, &[&str])] = &[
    ("memcached", &["memcached", "--version"]),
    ("redis", &["redis-server", "--version"]),
    ("mariadb", &["mariadbd", "--version"]),
    ("tc", &["dpkg-query", "--show", "libtokyocabinet-dev"]),
    ("rocksdb", &["dpkg-query", "--show", "librocksdb-dev"]),
];

/// Embedded stores, and their crates.
const CRATES: &[(&str, &str)] = &[("lmdb", "heed"), ("redb", "redb"), ("fjall", "fjall")];

/// Returns the machine, and the file system of a folder.
pub(super) fn machine(folder: &Path) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let kibibytes = |text: String| text.split_whitespace().next()?.parse::<u64>().ok();
    let file_system =
        output(&["stat", "--file-system", "--format=%T", &folder.display().to_string()]);
    Machine {
        processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or(UNKNOWN.into()),
        processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
        memory_bytes: field(&read("/proc/meminfo"), "MemTotal")
            .and_then(kibibytes)
            .map_or(0, |kibibytes| kibibytes * 1024),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        file_system: file_system.unwrap_or(UNKNOWN.into()),
        load_average: read("/proc/loadavg")
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok()),
    }
}

/// Returns the versions of tyrant and of all programs compared with it.
pub(super) fn versions() -> BTreeMap<String, String> {
    let unknown = |text: Option<String>| text.unwrap_or(UNKNOWN.into());
    let mut versions: BTreeMap<String, String> = SERVERS
        .iter()
        .map(|(name, command)| ((*name).to_owned(), unknown(output(command))))
        .collect();
    let lock = workspace().join("crates/compare/Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap_or_default();
    for (name, package) in CRATES {
        let version = version_in(&lock, package).map(|version| format!("{package} {version}"));
        versions.insert((*name).to_owned(), unknown(version));
    }
    let folder = workspace().display().to_string();
    let commit = output(&["git", "-C", &folder, "describe", "--always", "--dirty"]);
    versions.insert("tyrant".into(), format!("commit {}", unknown(commit)));
    versions
}

/// Returns the first line that a command prints, if it succeeds.
fn output(command: &[&str]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim().replace('\t', " ");
    (output.status.success() && !line.is_empty()).then_some(line)
}

/// Returns the version of a package in the text of a lock file.
fn version_in<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_package_alone() {
        let lock = "name = \"redb-x\"\nversion = \"1.0\"\n\nname = \"redb\"\nversion = \"4.4.0\"\n";
        assert_eq!(version_in(lock, "redb"), Some("4.4.0"));
        assert_eq!(version_in(lock, "heed"), None);
    }

    #[test]
    fn the_first_line_of_a_command_that_succeeds_is_its_output() {
        assert_eq!(output(&["printf", "a\\tb\\nc\\n"]).as_deref(), Some("a b"));
        assert_eq!(output(&["false"]), None);
        assert_eq!(output(&["/no/program"]), None);
    }
}
