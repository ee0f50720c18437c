//! `cargo xtask capi`: the library for C (`crates/capi`), built and tested as its users see it.
//!
//! Its header is that of the source, and its binary interface the stored one. Test programs of C11
//! and C++17 call every function: plainly, under valgrind, under AddressSanitizer, and with threads
//! under ThreadSanitizer. The examples and the program of docs/c.md are compiled and run.

mod interface;

use crate::library::blocks;
use crate::programs::{run, target_folder, workspace};
use crate::requirements::{self, install_if_missing};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the crate, from the workspace's.
const FOLDER: &str = "crates/capi";

/// Page with the first program.
const PAGE: &str = "docs/c.md";

/// Name by which programs find the shared library.
const SHARED: &str = "libcabinet.so.1";

/// Libraries of the system that programs with the static library need.
const SYSTEM_LIBRARIES: [&str; 5] = ["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"];

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Exit code of valgrind for an error or a leak.
const VALGRIND_FOUND: &str = "--error-exitcode=9";

/// Actions beside the tests.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the header and the dump of the binary interface, after a change of the functions.
    #[arg(long)]
    write: bool,
}

/// The library as it is installed, and a folder for programs.
struct Face {
    include: PathBuf,
    library: PathBuf,
    programs: PathBuf,
}

/// How a test program is compiled.
#[derive(Clone, Copy)]
enum Flavour {
    C,
    /// The same source as C++.
    Cpp,
    /// With AddressSanitizer and the static library, whose allocations it sees.
    Address,
    /// With ThreadSanitizer, which sees the C part only.
    Thread,
}

/// Installs what the tests need beside a compiler of C.
pub(crate) fn install() -> Result<()> {
    install_if_missing(&["valgrind", "--version"], "valgrind")?;
    install_if_missing(&["c++", "--version"], "g++")?;
    requirements::go().map(drop)
}

/// Builds the library and runs its tests.
pub(crate) fn run_all(options: &Options) -> Result<()> {
    install()?;
    let face = build(options.write)?;
    interface::check(&face, options.write)?;
    for test in ["functions", "threads"] {
        for flavour in [Flavour::C, Flavour::Cpp, Flavour::Address] {
            run(&mut with_folder(&face.compile(&source(test), flavour)?, &[])?.0)?;
        }
        let program = face.compile(&source(test), Flavour::C)?;
        let leaks = "definite,indirect";
        let valgrind = [
            "valgrind".to_owned(),
            "--quiet".to_owned(),
            VALGRIND_FOUND.to_owned(),
            "--leak-check=full".to_owned(),
            format!("--show-leak-kinds={leaks}"),
            format!("--errors-for-leak-kinds={leaks}"),
        ];
        run(&mut with_folder(&program, &valgrind)?.0)?;
    }
    let program = face.compile(&source("threads"), Flavour::Thread)?;
    let (mut command, _folder) = with_folder(&program, &[])?;
    run(command.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"))?;
    examples(&face)?;
    page(&face)?;
    println!("the library for C passed its tests");
    Ok(())
}

/// Returns a test program's source.
fn source(test: &str) -> PathBuf {
    workspace().join(FOLDER).join("tests").join(format!("{test}.c"))
}

/// Returns a command with a new folder as its argument, which lasts as long as the second part.
fn with_folder(program: &Path, by: &[String]) -> Result<(Command, tempfile::TempDir)> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let mut command = match by {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command.arg(folder.path());
    Ok((command, folder))
}

/// Builds the library, checks its format and its header, and puts both where programs find them.
fn build(is_written: bool) -> Result<Face> {
    let target = std::path::absolute(target_folder().join("capi"))?;
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).env("CARGO_TARGET_DIR", &target);
        if is_written {
            command.env("CABINET_WRITE_HEADER", "1");
        }
        // Its own settings name the linker, which the folder below says.
        command.current_dir(workspace().join(FOLDER));
        command
    };
    run(&mut cargo(&["fmt", "--check"]))?;
    run(&mut cargo(&["build", "--quiet", "--locked"]))?;
    run(&mut cargo(&["test", "--quiet", "--locked"]))?;
    let face = Face {
        include: target.join("face/include"),
        library: target.join("face/lib"),
        programs: target.join("face/programs"),
    };
    for folder in [&face.include, &face.library, &face.programs] {
        fs::create_dir_all(folder).context("cannot write to the target folder")?;
    }
    let header = workspace().join(FOLDER).join("include/cabinet.h");
    fs::copy(header, face.include.join("cabinet.h")).context("the header")?;
    let built = target.join("debug");
    fs::copy(built.join("libcabinet.so"), face.library.join(SHARED)).context("the library")?;
    fs::copy(built.join("libcabinet.a"), face.library.join("libcabinet.a"))?;
    let link = face.library.join("libcabinet.so");
    if !link.is_symlink() {
        symlink(SHARED, link)?;
    }
    Ok(face)
}

impl Face {
    /// Compiles a program. Returns its path.
    fn compile(&self, source: &Path, flavour: Flavour) -> Result<PathBuf> {
        let name = source.file_stem().context("a source with a name")?.to_string_lossy();
        let (compiler, language, suffix) = match flavour {
            Flavour::C => ("cc", &["-std=c11"][..], ""),
            Flavour::Cpp => ("c++", &["-x", "c++", "-std=c++17"][..], "-cpp"),
            Flavour::Address => ("cc", &["-std=c11", "-fsanitize=address"][..], "-address"),
            Flavour::Thread => ("cc", &["-std=c11", "-fsanitize=thread"][..], "-thread"),
        };
        let program = self.programs.join(format!("{name}{suffix}"));
        let mut command = Command::new(compiler);
        command.args(language).args(WARNINGS).args(["-g", "-D_GNU_SOURCE"]);
        command.arg("-I").arg(&self.include).arg(source);
        // The libraries are no sources.
        command.args(["-x", "none", "-pthread", "-o"]).arg(&program);
        match flavour {
            Flavour::Address => {
                command.arg(self.library.join("libcabinet.a")).args(SYSTEM_LIBRARIES);
            }
            _ => {
                command.arg("-L").arg(&self.library).arg("-lcabinet");
                command.arg(format!("-Wl,-rpath,{}", self.library.display()));
            }
        }
        run(&mut command)?;
        Ok(program)
    }
}

/// Runs the examples in C, in Go, and in Python.
fn examples(face: &Face) -> Result<()> {
    let folder = std::path::absolute(workspace().join(FOLDER).join("examples"))?;
    let mut sources: Vec<PathBuf> = fs::read_dir(&folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    sources.retain(|path| path.extension().is_some_and(|suffix| suffix == "c"));
    sources.sort();
    ensure!(!sources.is_empty(), "no examples in {}", folder.display());
    for source in &sources {
        run(&mut with_folder(&face.compile(source, Flavour::C)?, &[])?.0)?;
    }
    let go = face.programs.join("go-example");
    run(Command::new(requirements::go()?)
        .args(["build", "-o"])
        .arg(&go)
        .arg(".")
        .env("CGO_ENABLED", "1")
        .env("CGO_CFLAGS", format!("-I{}", face.include.display()))
        .env("CGO_LDFLAGS", format!("-L{0} -Wl,-rpath,{0}", face.library.display()))
        .current_dir(folder.join("go")))?;
    run(&mut with_folder(&go, &[])?.0)?;
    let python = ["python3".to_owned(), "-B".to_owned()];
    let (mut command, _folder) = with_folder(&folder.join("python/cabinet_example.py"), &python)?;
    run(command.env("LD_LIBRARY_PATH", &face.library))
}

/// Runs the programs of the page, in the order in which it has them.
fn page(face: &Face) -> Result<()> {
    let text = fs::read_to_string(workspace().join(PAGE)).context("the page")?;
    let programs = blocks(&text, "c");
    ensure!(!programs.is_empty(), "{PAGE} has no program");
    let folder = tempfile::tempdir().context("no temporary folder")?;
    for (number, program) in (1..).zip(programs) {
        let source = folder.path().join(format!("page{number}.c"));
        fs::write(&source, program)?;
        let program = face.compile(&source, Flavour::C)?;
        run(Command::new(program).current_dir(folder.path()))?;
    }
    Ok(())
}
