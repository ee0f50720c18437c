//! Client libraries of other languages: installs them below `target` and runs their tests.

use crate::programs::{target_folder, workspace};
use crate::requirements::{self, prepared};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A test of client libraries, run with the port of a server as its last argument, or its URL.
pub(crate) struct Test {
    program: PathBuf,
    arguments: Vec<PathBuf>,
    takes_url: bool,
}

impl Test {
    /// Returns the command that tests a server.
    pub(crate) fn command(&self, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        let server = match self.takes_url {
            true => format!("redis://127.0.0.1:{port}"),
            false => port.to_string(),
        };
        command.args(&self.arguments).arg(server);
        command
    }
}

/// Returns the tests of every language, ready to run, the longest first.
pub(crate) fn tests() -> Result<Vec<Test>> {
    let mut tests = redis_py()?;
    tests.extend(django()?);
    tests.extend(java()?);
    tests.extend(go()?);
    tests.extend(node()?);
    for script in ["redis_test.php", "sessions_test.php"] {
        let arguments = vec![sources("php").join(script)];
        tests.push(Test { program: "php".into(), arguments, takes_url: false });
    }
    Ok(tests)
}

/// Returns redis-py's own tests, in each version of the protocol.
fn redis_py() -> Result<Vec<Test>> {
    own_tests("redis_py", requirements::REDIS_PY, &["2", "3"])
}

/// Returns Django's own tests with two backends, and the tests of one of these with some settings.
fn django() -> Result<Vec<Test>> {
    let mut tests = own_tests("django", requirements::DJANGO, &["django"])?;
    let settings = ["sqlite", "sqlite_herd", "sqlite_sharding"];
    tests.extend(own_tests("django", requirements::DJANGO_REDIS, &settings)?);
    Ok(tests)
}

/// Returns the own tests of a package, which `suite.py` in a folder runs once for each variant.
fn own_tests(suite: &str, package: &str, variants: &[&str]) -> Result<Vec<Test>> {
    let (python, folder) = (requirements::python()?, requirements::source_distribution(package)?);
    let suite = sources(suite).join("suite.py");
    let test = |variant: &&str| {
        let arguments = vec!["-B".into(), suite.clone(), folder.clone(), variant.into()];
        Test { program: python.clone(), arguments, takes_url: false }
    };
    Ok(variants.iter().map(test).collect())
}

fn go() -> Result<Vec<Test>> {
    let sources = sources("go");
    let example = "../../../examples/redis/counters.go";
    let files = ["go.mod", "go.sum", "main.go", "redis/main.go", "frameworks/main.go", example];
    let go = requirements::go()?;
    let folder = installed("go", &files, |folder| {
        let build = |program: &str, package: &str| {
            let mut build = Command::new(&go);
            build.args(["build", "-o"]).arg(folder.join(program)).arg(package);
            build.current_dir(&sources);
            build
        };
        vec![
            build("memcached", "."),
            build("redis", "./redis"),
            build("frameworks", "./frameworks"),
            build("example", example),
        ]
    })?;
    let test =
        |program| Test { program: folder.join(program), arguments: Vec::new(), takes_url: false };
    let example = Test { takes_url: true, ..test("example") };
    Ok(vec![test("memcached"), test("redis"), test("frameworks"), example])
}

fn java() -> Result<Vec<Test>> {
    let sources = sources("java");
    let tests = ["ClientTest", "RedisTest", "LettuceTest"];
    let files = tests.map(|test| format!("{test}.java"));
    let folder = installed("java", &["pom.xml", &files[0], &files[1], &files[2]], |folder| {
        let mut jars = Command::new("mvn");
        jars.args(["--batch-mode", "--quiet", "--file"])
            .arg(sources.join("pom.xml"))
            .arg("dependency:copy-dependencies")
            .arg(format!("-DoutputDirectory={}", folder.display()));
        let mut classes = Command::new("javac");
        classes.arg("-cp").arg(folder.join("*")).arg("-d").arg(folder);
        classes.args(files.iter().map(|file| sources.join(file)));
        vec![jars, classes]
    })?;
    let class_path = format!("{0}:{0}/*", folder.display());
    let test = |class: &str| {
        let arguments = vec!["-cp".into(), class_path.clone().into(), class.into()];
        Test { program: "java".into(), arguments, takes_url: false }
    };
    Ok(tests.map(test).into())
}

fn node() -> Result<Vec<Test>> {
    let tests = [
        "memcached_test.js",
        "memjs_test.js",
        "redis_test.js",
        "ioredis_test.js",
        "frameworks_test.js",
        "socket_io_test.js",
    ];
    let example = "../../../examples/redis/sessions.mjs";
    let files = [&["package.json", "package-lock.json", "check.js", example], &tests[..]].concat();
    let sources = sources("node");
    let folder = installed("node", &files, |folder| {
        let mut copy = Command::new("cp");
        copy.args(files.iter().map(|file| sources.join(file))).arg(folder);
        let mut install = Command::new("npm");
        install.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(folder);
        vec![copy, install]
    })?;
    let test = |name| {
        let arguments = vec![folder.join(name)];
        Test { program: "node".into(), arguments, takes_url: false }
    };
    let mut all: Vec<Test> = tests.map(test).into();
    all.push(Test { takes_url: true, ..test("sessions.mjs") });
    Ok(all)
}

fn sources(language: &str) -> PathBuf {
    workspace().join("tests/clients").join(language)
}

/// Returns a folder below `target` that commands have filled from these files of a language.
fn installed(
    language: &str,
    files: &[&str],
    commands: impl FnOnce(&Path) -> Vec<Command>,
) -> Result<PathBuf> {
    let mut wanted = String::new();
    for file in files {
        let path = sources(language).join(file);
        let text = std::fs::read_to_string(&path);
        wanted.push_str(&text.with_context(|| format!("cannot read {}", path.display()))?);
    }
    let folder = target_folder().join("clients").join(language);
    let folder = std::path::absolute(folder).context("no target folder")?;
    prepared(&folder, &wanted, || {
        // Files of an older version must not be tested.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).context("cannot write to the target folder")?;
        Ok(commands(&folder))
    })?;
    Ok(folder)
}
