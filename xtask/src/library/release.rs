//! Release of the library: the oldest compiler, the package, and changes that break users.

use super::{FOLDER, PACKAGE, public_api};
use crate::programs::{cargo, run, succeeds, target_folder, workspace};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// Tool that looks for changes that break users. Each version knows some versions of rustdoc.
const SEMVER_CHECKS: &str = "cargo-semver-checks@0.51.0";

/// Checks the library, with all features, with the compiler of its `rust-version` if rustup has
/// it. No package registry has old compilers, so on other machines the lint `incompatible_msrv` of
/// `cargo clippy` is the only check: it knows since when each item of the standard library exists.
pub(super) fn check_msrv() -> Result<()> {
    let path = workspace().join(FOLDER).join("Cargo.toml");
    let manifest = std::fs::read_to_string(path).context("the manifest of the library")?;
    let version =
        value(&manifest, "rust-version").context("the manifest states no rust-version")?;
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

/// Returns the text that a manifest states for a key, if it states one of its own.
fn value<'m>(manifest: &'m str, key: &str) -> Option<&'m str> {
    let mut lines = manifest.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
    Some(value.trim_matches('"'))
}

/// Lists the files of the package, builds the library from them as a registry would get it, and
/// rehearses its publication.
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
    cargo(&["package", "--quiet", "--package", PACKAGE, "--allow-dirty"])?;
    rehearse()
}

/// Rehearses the publication of the package that was built. The manifest states `publish = false`,
/// for which cargo refuses a rehearsal too, so it gets a copy that does not.
fn rehearse() -> Result<()> {
    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml"))?;
    let version = value(&manifest, "version").context("the workspace states no version")?;
    let name = format!("{PACKAGE}-{version}");
    let package = target_folder().join("package").join(format!("{name}.crate"));
    // Below the workspace it would count as a member.
    let folder = tempfile::tempdir().context("a folder for the package")?;
    run(Command::new("tar").arg("-xzf").arg(&package).arg("-C").arg(folder.path()))?;
    let folder = folder.path().join(name);
    let manifest = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).context("the manifest of the package")?;
    // The registry asks for these, the rehearsal does not.
    for field in ["description", "license", "readme"] {
        ensure!(value(&text, field).is_some(), "the manifest states no {field}");
    }
    let published = text.replacen("publish = false", "publish = true", 1);
    std::fs::write(&manifest, published).context("the manifest of the package")?;
    // cargo adds these to a package, and accepts none that has them already.
    for added in ["Cargo.toml.orig", ".cargo_vcs_info.json"] {
        if folder.join(added).exists() {
            std::fs::remove_file(folder.join(added)).context(added)?;
        }
    }
    // It was built above.
    let rehearsal = ["publish", "--dry-run", "--quiet", "--no-verify", "--allow-dirty"];
    let mut publish = Command::new(env!("CARGO"));
    publish.args(rehearsal).current_dir(&folder);
    run(publish.env("CARGO_TARGET_DIR", folder.join("target")))
}

/// Compares the public items with those of another commit, else of the baseline of the manifest.
pub(super) fn semver(baseline: Option<&str>) -> Result<()> {
    let manifest = Path::new(FOLDER).join("Cargo.toml");
    let text = std::fs::read_to_string(workspace().join(&manifest)).context("the manifest")?;
    let stated = value(&text, "baseline").context("the manifest states no baseline")?;
    let baseline = baseline.unwrap_or(stated);
    install_semver_checks()?;
    let object = format!("{baseline}:{}", manifest.display());
    ensure!(
        succeeds(&["git", "-C", &workspace().display().to_string(), "cat-file", "-e", &object]),
        "this clone has no commit {baseline} with {FOLDER}: fetch it, or name one by --baseline"
    );
    let folder = target_folder().join("xtask/baseline");
    let source = folder.join("source");
    if source.exists() {
        std::fs::remove_dir_all(&source).context("the source of the baseline")?;
    }
    std::fs::create_dir_all(&source).context("a folder for the baseline")?;
    unpack(baseline, &source)?;
    let old = public_api::rustdoc(&source, &folder)?;
    let new = public_api::rustdoc(workspace(), &target_folder())?;
    let mut check = Command::new(env!("CARGO"));
    check.args(["semver-checks", "--baseline-rustdoc"]).arg(old);
    check.arg("--current-rustdoc").arg(new).current_dir(workspace());
    run(&mut check).with_context(|| {
        format!(
            "users of {baseline} break: keep the old item beside the new one, raise the version in \
             Cargo.toml, or, before a release, set `baseline` in {} to the commit that breaks them",
            manifest.display()
        )
    })
}

/// Installs the tool, if it is missing. Its own speed hardly matters, and it sets its dependencies
/// to an optimized build, which takes several times as long.
pub(super) fn install_semver_checks() -> Result<()> {
    if succeeds(&["cargo", "semver-checks", "--version"]) {
        return Ok(());
    }
    let quick = ["opt-level=0", "debug=false"];
    let quick = quick.map(|setting| format!("profile.dev.package.\"*\".{setting}"));
    let [unoptimized, without_symbols] = &quick;
    let options = ["--config", unoptimized, "--config", without_symbols];
    let install = ["install", "--locked", "--debug", SEMVER_CHECKS];
    cargo(&[&install[..], &options].concat())
}

/// Unpacks the files of a commit into a folder.
fn unpack(commit: &str, folder: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", commit]).current_dir(workspace());
    let mut archive = git.stdout(Stdio::piped()).spawn().context("cannot run git")?;
    let output = archive.stdout.take().context("the output of git")?;
    let mut tar = Command::new("tar");
    run(tar.arg("--extract").arg("--directory").arg(folder).stdin(output))?;
    let is_whole = archive.wait().context("cannot wait for git")?.success();
    ensure!(is_whole, "git archive {commit} failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_the_manifest_states_itself() {
        let version = |manifest| value(manifest, "rust-version");
        assert_eq!(version("[package]\nrust-version = \"1.88\"\n"), Some("1.88"));
        assert_eq!(version("[package]\nrust-version.workspace = true\n"), None);
    }
}
