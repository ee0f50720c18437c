//! Tests of the unsafe code, and of what threads share, under tools that watch each access to
//! memory: AddressSanitizer and ThreadSanitizer.
//!
//! Each tool first gets a test with a defect on purpose, and has to find it. The sanitizers are
//! flags of the nightly compiler; `RUSTC_BOOTSTRAP` makes the stable one accept them.

use super::PACKAGE;
use crate::programs::{SANITIZED_TARGET, run, target_folder, workspace};
use crate::requirements::install_if_missing;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Features of the tests: those that are written in Rust. No tool watches the C code of zstd.
const FEATURES: [&str; 3] = ["--no-default-features", "--features", "lz4,table,testing"];

/// Modules with unsafe code, with data that threads share, and the log, whose files are mapped.
const MODULES: [&str; 6] =
    ["base::checksum::", "base::locks::", "hash::", "io::", "log::", "memory::"];

/// Tests of threads that share a database: in memory, and on a disk.
const SHARED: [&str; 4] = ["--test", "races", "--test", "concurrency"];

/// Reports of ThreadSanitizer that are not about this project.
const SUPPRESSIONS: &str = "xtask/src/library/thread_sanitizer.supp";

/// A defect on purpose: the name of its test, and what a tool prints of it.
struct Defect {
    test: &'static str,
    printed: &'static str,
}

/// Runs the tests under each tool.
pub(super) fn run_all() -> Result<()> {
    address()?;
    threads()?;
    println!("AddressSanitizer and ThreadSanitizer found nothing");
    Ok(())
}

/// Runs the tests under AddressSanitizer.
fn address() -> Result<()> {
    let test = |arguments: &[&str]| sanitized("address", "-Zsanitizer=address", arguments);
    let printed = "heap-buffer-overflow";
    find(test, &Defect { test: "a_read_beyond_the_end_of_a_block", printed })?;
    run(&mut test(&SHARED))?;
    run(test(&["--lib", "--"]).args(MODULES))
}

/// Runs the tests under ThreadSanitizer.
fn threads() -> Result<()> {
    // The suppressions name functions, so the reports have to.
    let symbolizer = "command -v llvm-symbolizer || command -v addr2line";
    install_if_missing(&["sh", "-c", symbolizer], "binutils")?;
    // The standard library is not built with it.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    let suppressions = workspace().join(SUPPRESSIONS);
    let options = format!("suppressions={}", suppressions.canonicalize()?.display());
    let test = |arguments: &[&str]| {
        let mut command = sanitized("thread", flags, arguments);
        // Each test has threads of its own. More would meet in the test harness alone.
        command.env("TSAN_OPTIONS", &options).env("RUST_TEST_THREADS", "1");
        command
    };
    find(test, &Defect { test: "a_race_of_two_threads", printed: "WARNING: ThreadSanitizer" })?;
    run(&mut test(&SHARED))?;
    // It does not know the stacks that shuttle switches between.
    run(test(&["--lib", "--"]).args(MODULES).args(["--skip", "interleavings"]))
}

/// Returns cargo, which tests with a sanitizer, in a folder of its own.
fn sanitized(name: &str, flags: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["test", "--quiet", "--target", SANITIZED_TARGET, "--package", PACKAGE])
        .args(FEATURES)
        .args(arguments)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", target_folder().join("sanitizers").join(name))
        .current_dir(workspace());
    command
}

/// Runs a test with a defect on purpose. Fails if the tool does not find it.
fn find(tool: impl Fn(&[&str]) -> Command, defect: &Defect) -> Result<()> {
    let Defect { test, printed } = defect;
    let mut command = tool(&["--test", "defects", "--", "--ignored", "--exact", test]);
    let output = command.output().context("cannot run cargo")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let is_found = !output.status.success() && text.contains(printed);
    ensure!(
        is_found,
        "no `{printed}` in {test}, a defect on purpose: the tool sees nothing\n{text}"
    );
    println!("found on purpose: {test}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::FOLDER;
    use super::*;
    use std::fs;

    /// A filter without a test would pass.
    #[test]
    fn the_modules_have_tests() {
        let source = workspace().join(FOLDER).join("src");
        for module in MODULES {
            let path = source.join(module.trim_end_matches("::").replace("::", "/"));
            let is_there = path.is_dir() || path.with_extension("rs").is_file();
            assert!(is_there, "{module} is no module of the library");
        }
        let defects = workspace().join(FOLDER).join("tests/defects.rs");
        let defects = fs::read_to_string(defects).expect("the defects");
        for test in ["a_read_beyond_the_end_of_a_block", "a_race_of_two_threads"] {
            assert!(defects.contains(test), "{test} is no defect");
        }
    }
}
