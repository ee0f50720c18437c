//! The Python package: builds its wheel, installs it for each Python of the machine, runs the first
//! program of its page with each, and its tests with the system's one.

use crate::library::blocks;
use crate::programs::{Profile, SANITIZED_TARGET, run, run_in_whole, target_folder, workspace};
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Folder of the package.
const FOLDER: &str = "crates/python";

/// Page whose first program is run.
const PAGE: &str = "docs/python.md";

/// Longest wheel of the optimized build, in bytes.
const WHEEL_BYTES_MAX: u64 = 12 << 20;

/// Oldest Python that the package supports.
const OLDEST: (u32, u32) = (3, 9);

/// Newest Python that is looked for by its name.
const NEWEST_MINOR: u32 = 15;

/// Interleavings that a night tries.
pub(crate) const INTERLEAVINGS_OF_A_NIGHT: u64 = 10_000;

/// Packages that build and check.
const TOOLS: &[&str] = &["maturin==1.16.0", "mypy==2.4.1"];

/// Packages that the tests need.
const TEST_PACKAGES: &[&str] = &[
    requirements::DJANGO,
    requirements::MSGPACK,
    "pandas==3.1.1",
    "pyarrow==26.0.1",
    requirements::PYTEST,
    requirements::PYTEST_XDIST,
];

/// Name of the environment in which the tests run.
const TESTS: &str = "tests";

/// Processes that run tests beside one for each processor: many wait for a server or the disk.
const WAITING: usize = 1;

/// Packages whose own tests are run over the package, from their source distributions.
const FOREIGN_PACKAGES: &[&str] = &["diskcache==5.6.3", requirements::DJANGO];

/// Programs that run them.
const FOREIGN_TESTS: &[&str] = &["run.py", "run_django.py"];

/// Installs what the tests need, but for the interpreters.
pub(crate) fn install() -> Result<()> {
    requirements::install_python_tests()?;
    tests_packages(TESTS)?;
    let tools = tools()?;
    let sources = sources()?;
    requirements::prepared(&sources, &FOREIGN_PACKAGES.join("\n"), || {
        let mut download = Command::new(tools.join("python"));
        download.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        download.args(["--no-deps", "--no-binary", ":all:", "--dest"]).arg(&sources);
        download.args(FOREIGN_PACKAGES);
        Ok(vec![download])
    })
}

/// Returns the folder of the source distributions whose tests are run.
fn sources() -> Result<PathBuf> {
    std::path::absolute(target_folder().join("python/sources")).context("no target folder")
}

fn tools() -> Result<PathBuf> {
    let programs = requirements::python_programs("python/tools", TOOLS)?;
    std::path::absolute(programs).context("no target folder")
}

/// Builds the package and tests it.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    install()?;
    let tools = tools()?;
    let wheel = build(&tools, "", |command| {
        if !matches!(profile, Profile::Debug) {
            command.arg("--release");
        }
    })?;
    let bytes = fs::metadata(&wheel).context("the wheel")?.len();
    println!("{}: {:.1} MiB", wheel.display(), bytes as f64 / f64::from(1 << 20));
    if !matches!(profile, Profile::Debug) {
        ensure!(bytes <= WHEEL_BYTES_MAX, "the wheel has more than {WHEEL_BYTES_MAX} bytes");
    }
    let page = fs::read_to_string(workspace().join(PAGE)).context(PAGE)?;
    let programs = blocks(&page, "python");
    let first = programs.first().with_context(|| format!("{PAGE} has no program"))?;
    let interpreters = interpreters();
    ensure!(!interpreters.is_empty(), "there is no Python of 3.9 or later: install python3");
    for (version, interpreter) in &interpreters {
        println!("Python {version}: {}", interpreter.display());
        let python = environment(&tools, version, interpreter, &wheel)?;
        let folder = tempfile::tempdir().context("no temporary folder")?;
        run(Command::new(&python).args(["-I", "-c", first]).current_dir(&folder))?;
    }
    println!("the first program of {PAGE} ran with {} versions of Python", interpreters.len());
    test(&tools, &wheel)
}

/// Runs `count` random interleavings, from `seed` on, under AddressSanitizer.
pub(crate) fn interleave(seed: u64, count: u64) -> Result<()> {
    install()?;
    let tools = tools()?;
    let wheel = build(&tools, "address", |command| {
        command.args(["--target", SANITIZED_TARGET]);
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
        // Without it, an interleaving takes several times as long.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    })?;
    let python = tests_environment("address", &wheel)?;
    // Rust links its own runtime into programs alone, and this one is Python.
    let output = Command::new("cc").arg("-print-file-name=libasan.so").output();
    let runtime = String::from_utf8(output.context("cannot run cc")?.stdout)?;
    let mut tests = pytest(&python);
    tests.arg("tests/test_interleavings.py");
    tests.env("LD_PRELOAD", runtime.trim()).env("PYTHONMALLOC", "malloc");
    // Python itself frees little at its end.
    tests.env("ASAN_OPTIONS", "detect_leaks=0");
    run(tests.env("INTERLEAVINGS", format!("{seed}..{}", seed + count)))
}

/// Builds the wheel in a folder of its own, and returns its path.
fn build(tools: &Path, name: &str, adapt: impl FnOnce(&mut Command)) -> Result<PathBuf> {
    let folder = std::path::absolute(target_folder().join("python").join(name))?;
    let wheels = folder.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).context("the wheels of an earlier run")?;
    }
    let mut command = Command::new(tools.join("maturin"));
    command.args(["build", "--locked", "--strip", "--compatibility", "linux", "--out"]);
    command.arg(&wheels).current_dir(workspace().join(FOLDER));
    command.env("CARGO_TARGET_DIR", folder.join("build"));
    adapt(&mut command);
    run(&mut command)?;
    let wheel = fs::read_dir(&wheels).context("the wheels")?.next();
    Ok(wheel.context("maturin has built no wheel")??.path())
}

/// Returns the interpreters of this machine that the package supports, by their version.
fn interpreters() -> BTreeMap<String, PathBuf> {
    let mut candidates: Vec<PathBuf> = vec!["python3".into(), "/usr/bin/python3".into()];
    candidates.extend((OLDEST.1..=NEWEST_MINOR).map(|minor| format!("python3.{minor}").into()));
    if let Some(home) = std::env::var_os("HOME") {
        let versions = fs::read_dir(Path::new(&home).join(".pyenv/versions"));
        for version in versions.into_iter().flatten().flatten() {
            candidates.push(version.path().join("bin/python3"));
        }
    }
    let mut found = BTreeMap::new();
    for candidate in candidates {
        if let Some((version, path)) = version_of(&candidate) {
            found.entry(version).or_insert(path);
        }
    }
    found
}

/// Returns the version of an interpreter and its own path; `None` if it is too old or not there.
fn version_of(interpreter: &Path) -> Option<(String, PathBuf)> {
    let program = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable); \
        print('%d.%d.%d' % sys.version_info[:3])";
    let output = Command::new(interpreter).args(["-c", program]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut lines = text.lines();
    let (major, minor) = lines.next()?.split_once('.')?;
    let path = PathBuf::from(lines.next()?);
    let version = lines.next()?;
    let is_supported = (major.parse().ok()?, minor.parse().ok()?) >= OLDEST;
    is_supported.then(|| (version.to_owned(), path))
}

/// Makes a virtual environment with the wheel alone, and returns its interpreter.
fn environment(tools: &Path, name: &str, interpreter: &Path, wheel: &Path) -> Result<PathBuf> {
    let folder = std::path::absolute(target_folder().join("python/environments").join(name))?;
    // Its own pip would take most of the time.
    run(Command::new(interpreter).args(["-m", "venv", "--clear", "--without-pip"]).arg(&folder))?;
    let python = folder.join("bin/python");
    install_wheel(
        Command::new(tools.join("python")).args(["-m", "pip", "--python"]).arg(&python),
        wheel,
    )?;
    Ok(python)
}

/// Installs the wheel by pip, in place of an earlier one.
fn install_wheel(pip: &mut Command, wheel: &Path) -> Result<()> {
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]);
    run(pip.arg("--force-reinstall").arg(wheel))
}

/// Makes a virtual environment of the system's Python with what the tests need, unless it is there.
/// Returns its interpreter.
fn tests_packages(name: &str) -> Result<PathBuf> {
    let folder = format!("python/environments/{name}");
    let programs = requirements::python_programs(&folder, TEST_PACKAGES)?;
    std::path::absolute(programs.join("python")).context("no target folder")
}

/// Returns the interpreter of such an environment, which has the wheel.
fn tests_environment(name: &str, wheel: &Path) -> Result<PathBuf> {
    let python = tests_packages(name)?;
    install_wheel(Command::new(&python).args(["-m", "pip"]), wheel)?;
    Ok(python)
}

/// Returns pytest in the folder of the package, where it leaves no files.
fn pytest(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    // Its workers get no options of Python.
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(workspace().join(FOLDER));
    command
}

/// Runs the tests with the system's Python, and checks the types.
fn test(tools: &Path, wheel: &Path) -> Result<()> {
    let python = tests_environment(TESTS, wheel)?;
    let folder = workspace().join(FOLDER);
    let mut types = Command::new(tools.join("mypy"));
    types.args(["--strict", "--no-error-summary", "python/cabinet"]).current_dir(&folder);
    run(&mut types)?;
    let workers = thread::available_parallelism().map_or(1, usize::from) + WAITING;
    let mut tests = pytest(&python);
    tests.args(["--durations=10", "--dist=worksteal", "--numprocesses", &workers.to_string()]);
    thread::scope(|scope| {
        let foreign = scope.spawn(|| run_foreign(&python));
        let own = run(&mut tests);
        foreign.join().expect("no panic").and(own)
    })
}

/// Runs the tests of other packages, one after the other.
fn run_foreign(python: &Path) -> Result<()> {
    let sources = sources()?;
    for program in FOREIGN_TESTS {
        let mut command = Command::new(python);
        command.arg("-B").arg(Path::new("tests/diskcache").join(program)).arg(&sources);
        run_in_whole(command.current_dir(workspace().join(FOLDER)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_begins_with_a_program() {
        let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
        let programs = blocks(&page, "python");
        assert!(programs[0].contains("import cabinet"), "{programs:?}");
    }

    #[test]
    fn no_interpreter_is_one_that_is_not_there() {
        assert_eq!(version_of(Path::new("/nowhere/python3")), None);
    }
}
