//! `cargo xtask capi`: the library for C (`crates/capi`), built and tested as its users see it.
//!
//! Its header is that of the source, and its binary interface the stored one. Test programs of C11
//! and C++17 call every function: plainly, under valgrind, under AddressSanitizer, and with threads
//! under ThreadSanitizer. The examples and the program of docs/c.md are compiled and run.

mod interface;
mod package;

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

/// Database of the programs of the page.
const PAGE_DATABASE: &str = "prices.tcb";

/// Name by which programs find the shared library.
const SHARED: &str = "libcabinet.so.1";

/// Libraries of the system that programs with the static library need.
const SYSTEM_LIBRARIES: [&str; 5] = ["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"];

/// The command line of the page.
const PKG_CONFIG: &str = "cc \"$2\" $(pkg-config --cflags $1 cabinet)";

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Exit code of valgrind for an error or a leak.
const VALGRIND_FOUND: &str = "--error-exitcode=9";

/// Actions beside the tests.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the header and the dump of the binary interface, after a change of the functions.
    #[arg(long)]
    write: bool,
    /// Install the library, its header and cabinet.pc below this folder; test nothing.
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["write", "packages"])]
    install: Option<PathBuf>,
    /// Build the Debian packages libcabinet1 and libcabinet-dev, and use what they contain.
    #[arg(long, conflicts_with = "write")]
    packages: bool,
    /// Install or package the unoptimized build. The tests always have it.
    #[arg(long)]
    debug: bool,
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
    install_if_missing(&["pkg-config", "--version"], "pkg-config")?;
    requirements::go().map(drop)
}

/// Builds the library and runs its tests.
pub(crate) fn run_all(options: &Options) -> Result<()> {
    if options.packages || options.install.is_some() {
        let (profile, folder) =
            if options.debug { ("dev", "debug") } else { ("release", "release") };
        run(&mut cargo(&["build", "--locked", "--profile", profile])?)?;
        let built = target()?.join(folder);
        return match &options.install {
            Some(prefix) => put(&built, &std::path::absolute(prefix)?).map(drop),
            None => package::build_and_try(&built),
        };
    }
    install()?;
    let face = build(options.write)?;
    fs::create_dir_all(&face.programs).context("cannot write to the target folder")?;
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
    page(&face, Path::new("/"))?;
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

/// Puts what was built below a prefix.
fn put(built: &Path, prefix: &Path) -> Result<Face> {
    let prefix = prefix.to_str().context("the prefix is not UTF-8")?;
    Face::put(built, Path::new("/"), prefix, "lib")
}

/// Returns the folder in which the library is built.
fn target() -> Result<PathBuf> {
    std::path::absolute(target_folder().join("capi")).context("no target folder")
}

/// Returns cargo in the folder of the crate, whose settings name the linker.
fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).env("CARGO_TARGET_DIR", target()?);
    command.current_dir(workspace().join(FOLDER));
    Ok(command)
}

/// Builds the library, checks its format, lints and header, and puts it where programs find it.
fn build(is_written: bool) -> Result<Face> {
    run(&mut cargo(&["fmt", "--check"])?)?;
    let deny = ["--", "--deny", "warnings"];
    run(cargo(&["clippy", "--quiet", "--locked", "--all-targets"])?.args(deny))?;
    run(&mut cargo(&["build", "--quiet", "--locked"])?)?;
    let mut tests = cargo(&["test", "--quiet", "--locked"])?;
    if is_written {
        tests.env("CABINET_WRITE_HEADER", "1");
    }
    run(&mut tests)?;
    put(&target()?.join("debug"), &target()?.join("face"))
}

impl Face {
    /// Copies what was built, the header and cabinet.pc below a root, in which they are installed
    /// with a prefix and a folder of libraries below that.
    fn put(built: &Path, root: &Path, prefix: &str, libraries: &str) -> Result<Self> {
        let installed = root.join(prefix.trim_start_matches('/'));
        let face = Self {
            include: installed.join("include"),
            library: installed.join(libraries),
            programs: installed.join("programs"),
        };
        let packages = face.library.join("pkgconfig");
        for folder in [&face.include, &packages] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let source = workspace().join(FOLDER);
        let copy = |from: PathBuf, to: PathBuf| {
            // A program may have the old one mapped.
            let _ = fs::remove_file(&to);
            fs::copy(from, &to).with_context(|| format!("cannot write {}", to.display())).map(drop)
        };
        copy(source.join("include/cabinet.h"), face.include.join("cabinet.h"))?;
        copy(built.join("libcabinet.so"), face.library.join(SHARED))?;
        copy(built.join("libcabinet.a"), face.library.join("libcabinet.a"))?;
        let link = face.library.join("libcabinet.so");
        let _ = fs::remove_file(&link);
        symlink(SHARED, link).context("cannot link the library")?;
        let package = fs::read_to_string(source.join("cabinet.pc.in")).context("cabinet.pc.in")?;
        let package = package.replace("@prefix@", prefix).replace("@libraries@", libraries);
        fs::write(packages.join("cabinet.pc"), package).context("cannot write cabinet.pc")?;
        Ok(face)
    }

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

/// Runs a program whose first call fails. It must say why, and what to do.
fn must_explain(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot run an example")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let is_explained = text
        .split_once("; ")
        .is_some_and(|(what, advice)| !what.trim().is_empty() && !advice.trim().is_empty());
    ensure!(
        output.status.code() == Some(1) && is_explained,
        "{command:?} is to fail with a reason, and ended with {}: {text}",
        output.status
    );
    Ok(())
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
        let program = face.compile(source, Flavour::C)?;
        run(&mut with_folder(&program, &[])?.0)?;
        must_explain(Command::new(&program).arg("/dev/null"))?;
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

/// Runs the programs of the page, in the order in which it has them, with a library that is
/// installed below a root.
fn page(face: &Face, root: &Path) -> Result<()> {
    let text = fs::read_to_string(workspace().join(PAGE)).context("the page")?;
    let programs = blocks(&text, "c");
    ensure!(!programs.is_empty(), "{PAGE} has no program");
    let folder = tempfile::tempdir().context("no temporary folder")?;
    for (number, program) in (1..).zip(programs) {
        let source = folder.path().join(format!("page{number}.c"));
        fs::write(&source, program)?;
        for linking in ["--libs", "--libs --static"] {
            run(Command::new("sh")
                .args(["-euc", PKG_CONFIG, "sh", linking])
                .arg(&source)
                .env("PKG_CONFIG_PATH", face.library.join("pkgconfig"))
                .env("PKG_CONFIG_SYSROOT_DIR", root)
                .current_dir(folder.path()))?;
            let program = || {
                let mut program = Command::new("./a.out");
                program.env("LD_LIBRARY_PATH", &face.library).current_dir(folder.path());
                program
            };
            run(&mut program())?;
            // No database is where the program has put its own.
            let database = folder.path().join(PAGE_DATABASE);
            fs::remove_dir_all(&database).context("the database of the page")?;
            fs::write(&database, "a file")?;
            must_explain(&mut program())?;
            fs::remove_file(&database)?;
        }
    }
    Ok(())
}
