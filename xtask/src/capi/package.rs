//! Debian packages of the library for C: libcabinet1 has the shared library, libcabinet-dev what is
//! needed to build programs.

use super::{Face, SHARED, page};
use crate::programs::{run, run_quietly, target_folder, workspace};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the packages: that of the binary interface.
const VERSION: &str = "1.0.0";

const SHARED_PACKAGE: &str = "libcabinet1";
const DEVELOPMENT_PACKAGE: &str = "libcabinet-dev";

/// A package before it is built.
struct Package {
    name: &'static str,
    section: &'static str,
    depends: String,
    description: &'static str,
}

/// Builds the packages, and builds and runs the program of the page with the files in them.
pub(super) fn build_and_try(built: &Path) -> Result<()> {
    let architecture = output(&["dpkg-architecture", "-qDEB_HOST_ARCH"])
        .or_else(|_| output(&["dpkg", "--print-architecture"]))?;
    let libraries = format!("lib/{}", output(&["cc", "-print-multiarch"])?);
    let staging = tempfile::tempdir_in(target_folder()).context("no temporary folder")?;
    let (shared, development) =
        (staging.path().join(SHARED_PACKAGE), staging.path().join(DEVELOPMENT_PACKAGE));
    let face = Face::put(built, &development, "/usr", &libraries)?;
    let place = shared.join("usr").join(&libraries);
    fs::create_dir_all(&place).context("the folder of the library")?;
    let library = place.join(SHARED);
    fs::rename(face.library.join(SHARED), &library).context("cannot move the library")?;
    run_quietly(&["strip", "--strip-unneeded", text(&library)?])?;
    run_quietly(&["strip", "--strip-debug", text(&face.library.join("libcabinet.a"))?])?;
    let pages = development.join("usr/share/man/man3");
    fs::create_dir_all(&pages).context("the folder of the page")?;
    let page_of_manual = pages.join("cabinet.3");
    fs::copy(workspace().join("packaging/cabinet.3"), &page_of_manual).context("the page")?;
    run_quietly(&["gzip", "-9n", text(&page_of_manual)?])?;

    // The loader finds the library after its cache is written again.
    write(&shared, "DEBIAN/triggers", "activate-noawait ldconfig\n")?;
    let shlibs = format!("libcabinet 1 {SHARED_PACKAGE} (>= {VERSION})\n");
    write(&shared, "DEBIAN/shlibs", &shlibs)?;
    let packages = [
        build(
            &shared,
            &architecture,
            &Package {
                name: SHARED_PACKAGE,
                section: "libs",
                depends: "libc6, libgcc-s1".into(),
                description: "embedded key-value databases\n \
                    Hash, B+ tree, fixed-length and table databases over one crash-safe log.\n",
            },
        )?,
        build(
            &development,
            &architecture,
            &Package {
                name: DEVELOPMENT_PACKAGE,
                section: "libdevel",
                depends: format!("{SHARED_PACKAGE} (= {VERSION})"),
                description: "embedded key-value databases, development files\n \
                    Header, static library and manual page of libcabinet.\n",
            },
        )?,
    ];

    let root = tempfile::tempdir().context("no temporary folder")?;
    for package in &packages {
        run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root.path()))?;
        println!("built {}", package.display());
    }
    let installed = root.path().join("usr");
    let face = Face {
        include: installed.join("include"),
        library: installed.join(&libraries),
        programs: installed.join("programs"),
    };
    page(&face, root.path())
}

/// Builds a package of a folder. Returns its path.
fn build(root: &Path, architecture: &str, package: &Package) -> Result<PathBuf> {
    let Package { name, section, depends, description } = package;
    let licence = fs::read_to_string(workspace().join("LICENSE-MIT")).context("the licence")?;
    write(root, &format!("usr/share/doc/{name}/copyright"), &licence)?;
    let control = format!(
        "Package: {name}\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: The Tyrant authors <tyrant@localhost>\n\
         Section: {section}\n\
         Priority: optional\n\
         Depends: {depends}\n\
         Description: {description}"
    );
    write(root, "DEBIAN/control", &control)?;
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).context("the staging folder")?;
    let package = target_folder().join(format!("{name}_{VERSION}_{architecture}.deb"));
    let mut command = Command::new("dpkg-deb");
    run(command.args(["--root-owner-group", "-Zxz", "-z1", "--build"]).arg(root).arg(&package))?;
    Ok(package)
}

fn write(root: &Path, path: &str, text: &str) -> Result<()> {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap_or(root)).context("a folder of a package")?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Returns the output of a program, without the end of the line.
fn output(command: &[&str]) -> Result<String> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.with_context(|| format!("cannot run {}", command[0]))?;
    ensure!(output.status.success(), "{} failed", command[0]);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
