//! Release of the library: the oldest compiler, the package, and changes that break users.

use super::{FOLDER, PACKAGE};
use crate::programs::{cargo, run, succeeds, target_folder, workspace};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Checks the library, with all features, with the compiler of its `rust-version` if rustup has
/// it. No package registry has old compilers, so on other machines the lint `incompatible_msrv` of
/// `cargo clippy` is the only check: it knows since when each item of the standard library exists.
pub(super) fn check_msrv() -> Result<()> {
    let path = workspace().join(FOLDER).join("Cargo.toml");
    let manifest = std::fs::read_to_string(path).context("the manifest of the library")?;
    let version = rust_version(&manifest).context("the manifest states no rust-version")?;
    if !succeeds(&["rustup", "run", version, "rustc", "--version"]) {
        println!("Rust {version} is not installed: only clippy checks the oldest compiler");
        return Ok(());
    }
    // Another compiler needs a folder of its own, or each would build all that the other has.
    let target = target_folder().join("msrv");
    let check = ["check", "--quiet", "--package", PACKAGE, "--lib", "--all-features"];
    let mut command = Command::new("rustup");
    command.args(["run", version, "cargo"]).args(check).current_dir(workspace());
    // These are of the toolchain that has built this program.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    run(command.env("CARGO_TARGET_DIR", target))
}

/// Returns the `rust-version` of a manifest, if it states one of its own.
fn rust_version(manifest: &str) -> Option<&str> {
    let value = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    Some(value.trim_matches('"'))
}

/// Lists the files of the package, and builds the library from them as a registry would get it.
pub(super) fn package() -> Result<()> {
    let list = ["package", "--package", PACKAGE, "--allow-dirty", "--list"];
    let output = Command::new(env!("CARGO")).args(list).current_dir(workspace()).output();
    let output = output.context("cargo package --list")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = String::from_utf8(output.stdout).context("names of files")?;
    for needed in ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"] {
        ensure!(files.lines().any(|file| file == needed), "the package lacks {needed}");
    }
    println!("{} files in the package", files.lines().count());
    // `publish = false` refuses `cargo publish`, also as a rehearsal; this is the same without it.
    cargo(&["package", "--quiet", "--package", PACKAGE, "--allow-dirty"])
}

/// Compares the public surface with that of another commit.
pub(super) fn semver(baseline: &str) -> Result<()> {
    if !succeeds(&["cargo", "semver-checks", "--version"]) {
        cargo(&["install", "--locked", "cargo-semver-checks"])?;
    }
    let has_package = || {
        let manifest = Path::new(FOLDER).join("Cargo.toml");
        let object = format!("{baseline}:{}", manifest.display());
        succeeds(&["git", "-C", &workspace().display().to_string(), "cat-file", "-e", &object])
    };
    ensure!(has_package(), "commit {baseline} has no {FOLDER}, name another one with --baseline");
    // The other features are not covered by the version.
    let features = ["--default-features"];
    let check = ["semver-checks", "--package", PACKAGE, "--baseline-rev", baseline];
    cargo(&[&check[..], &features].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_the_manifest_states_itself() {
        assert_eq!(rust_version("[package]\nrust-version = \"1.88\"\n"), Some("1.88"));
        assert_eq!(rust_version("[package]\nrust-version.workspace = true\n"), None);
    }
}
