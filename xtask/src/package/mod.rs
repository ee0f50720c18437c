//! Packages. The Debian one is built from `packaging/` and tried in a clean root: installation, a
//! server with records, an upgrade, the removal.

mod clean_root;
mod static_programs;

pub(crate) use clean_root::archive as archive_of_root;

use crate::programs::{Profile, build, link_programs, run, run_quietly, target_folder, workspace};
use crate::requirements::is_root;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Program in the package. Links to it have the names of Tokyo Tyrant's programs.
const PROGRAM: &str = "tyrant";

/// Files of `packaging/` and their places.
const FILES: [(&str, &str); 6] = [
    ("tyrant.service", "lib/systemd/system/tyrant.service"),
    ("tyrant.socket", "lib/systemd/system/tyrant.socket"),
    ("tyrant-backup.service", "lib/systemd/system/tyrant-backup.service"),
    ("tyrant-backup.timer", "lib/systemd/system/tyrant-backup.timer"),
    ("tyrant.toml", "etc/tyrant/tyrant.toml"),
    ("tyrant.logrotate", "etc/logrotate.d/tyrant"),
];

/// Files that an administrator may change; an upgrade keeps the changes.
const CONFIGURATION: &str = "/etc/tyrant/tyrant.toml\n/etc/logrotate.d/tyrant\n";

/// Shells, and the places of their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/tyrant"),
    ("zsh", "usr/share/zsh/vendor-completions/_tyrant"),
    ("fish", "usr/share/fish/vendor_completions.d/tyrant.fish"),
];

/// Builds and tries the programs without libraries, for each architecture.
pub(crate) fn build_and_try_static() -> Result<()> {
    static_programs::build_and_try()
}

/// Builds the package, and tries it in a clean root unless this process may not.
pub(crate) fn build_and_try(profile: Profile) -> Result<()> {
    let programs = build(profile)?;
    let version = env!("CARGO_PKG_VERSION");
    let package = package(&programs, version)?;
    println!("built {}", package.display());
    if !is_root() {
        println!("package: NOT TRIED, a clean root needs root");
        return Ok(());
    }
    let next = self::package(&programs, &format!("{version}+upgrade"))?;
    clean_root::try_packages(&package, &next)?;
    fs::remove_file(next).context("cannot remove the package of the upgrade")
}

/// Builds a package with this version. Returns its path.
fn package(programs: &Path, version: &str) -> Result<PathBuf> {
    let target = target_folder();
    let staging = tempfile::tempdir_in(&target).context("no temporary folder")?;
    let root = staging.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).context("the staging folder")?;
    let folder = root.join("usr/bin");
    copy_programs(programs, &folder)?;
    run_quietly(&["strip", "--strip-unneeded", text(&folder.join(PROGRAM))?])?;
    for (file, path) in FILES {
        let from = workspace().join("packaging").join(file);
        fs::copy(&from, place(root, path)?).with_context(|| format!("cannot copy {file}"))?;
    }
    let tyrant = programs.join("tyrant");
    let tyrant = text(&tyrant)?;
    for (shell, path) in COMPLETIONS {
        let output = Command::new(tyrant).args(["completions", shell]).output();
        let output = output.context("cannot run tyrant completions")?;
        ensure!(output.status.success(), "tyrant completions {shell} failed");
        fs::write(place(root, path)?, output.stdout).context("cannot write completions")?;
    }
    let pages = tempfile::tempdir_in(&target).context("no temporary folder")?;
    run_quietly(&[tyrant, "man", text(pages.path())?])?;
    for page in fs::read_dir(pages.path()).context("the pages")? {
        let page = page.context("a page")?.path();
        let (name, section) = (page.file_name(), page.extension());
        let (name, section) = name.zip(section).context("a page has no section")?;
        let path = format!("usr/share/man/man{}/{}", section.display(), name.display());
        let place = place(root, &path)?;
        fs::copy(&page, &place).with_context(|| format!("cannot copy {path}"))?;
        run_quietly(&["gzip", "-9n", text(&place)?])?;
    }
    let licence = place(root, "usr/share/doc/tyrant/copyright")?;
    fs::copy(workspace().join("LICENSE-MIT"), licence).context("cannot copy the licence")?;

    for script in ["postinst", "prerm", "postrm"] {
        let from = workspace().join("packaging/debian").join(script);
        let place = place(root, &format!("DEBIAN/{script}"))?;
        fs::copy(from, &place).with_context(|| format!("cannot copy {script}"))?;
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).context("a script")?;
    }
    fs::write(place(root, "DEBIAN/conffiles")?, CONFIGURATION).context("the conffiles")?;
    let architecture = Command::new("dpkg").arg("--print-architecture").output();
    let architecture = architecture.context("cannot run dpkg, install it")?.stdout;
    let architecture = String::from_utf8_lossy(&architecture).trim().to_owned();
    let control = format!(
        "Package: tyrant\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The Tyrant authors <tyrant@localhost>\n\
         Section: database\n\
         Priority: optional\n\
         Installed-Size: {}\n\
         Depends: {}, passwd, procps\n\
         Suggests: logrotate\n\
         Description: persistent key-value server\n \
         A server that speaks memcached's protocols, Redis's, HTTP and Tokyo Tyrant's\n \
         protocol over one port, with replication and backups.\n",
        installed_kib(root)?,
        libraries(programs)?
    );
    fs::write(place(root, "DEBIAN/control")?, control).context("the control file")?;
    let package = target.join(format!("tyrant_{version}_{architecture}.deb"));
    let mut command = Command::new("dpkg-deb");
    run(command.args(["--root-owner-group", "-Zxz", "-z1", "--build"]).arg(root).arg(&package))?;
    Ok(package)
}

/// Copies the program to a folder, with the links to it.
fn copy_programs(programs: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).context("the folder of the programs")?;
    fs::copy(programs.join(PROGRAM), folder.join(PROGRAM)).context("cannot copy the program")?;
    link_programs(folder)
}

/// Returns the path of a file in a root, whose folder it creates.
fn place(root: &Path, path: &str) -> Result<PathBuf> {
    let place = root.join(path);
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    Ok(place)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Returns the space that the files of a package take, in KiB.
fn installed_kib(root: &Path) -> Result<u64> {
    let output = Command::new("du").arg("-sk").arg(root).output().context("cannot run du")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().next().and_then(|kib| kib.parse().ok()).context("the output of du")
}

/// Returns the libraries on which the program depends, as Debian packages.
fn libraries(programs: &Path) -> Result<String> {
    let bytes = fs::read(programs.join(PROGRAM)).context("cannot read the program")?;
    Ok(match newest_glibc(&bytes) {
        0 => "base-files".to_owned(),
        minor => format!("libc6 (>= 2.{minor}), libgcc-s1"),
    })
}

/// Returns the minor version of the newest symbols of glibc that a program names; 0 if none.
fn newest_glibc(program: &[u8]) -> u32 {
    let mark = b"GLIBC_2.";
    let versions = program.windows(mark.len() + 2).filter_map(|window| {
        let digits = window.strip_prefix(mark)?;
        let digits: Vec<u8> = digits.iter().copied().take_while(u8::is_ascii_digit).collect();
        std::str::from_utf8(&digits).ok()?.parse().ok()
    });
    versions.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::newest_glibc;

    #[test]
    fn the_newest_symbol_decides_about_the_library() {
        assert_eq!(newest_glibc(b"..GLIBC_2.17\0GLIBC_2.34\0GLIBC_2.2.5\0.."), 34);
        assert_eq!(newest_glibc(b"static"), 0);
    }
}
