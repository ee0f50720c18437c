//! Third-party clients, driven by the scripts and programs in `tests/clients`.

use crate::programs::{Profile, Server, build, run_in_whole, workspace};
use crate::{languages, requirements};
use anyhow::{Context, Result, ensure};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// A test, which makes its command from the port of a server.
type Test = Box<dyn FnOnce(u16) -> Command + Send>;

/// Tests that run at once beside one for each processor: most of them mostly wait.
const WAITING: usize = 2;

/// Runs every script and program against a new server on a persistent database, some at once. After
/// a failure no further one is begun.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    requirements::install_programs()?;
    let python = requirements::python()?;
    let programs = build(profile)?;
    let mut tests: VecDeque<Test> = VecDeque::new();
    for test in languages::tests()? {
        tests.push_back(Box::new(move |port| test.command(port)));
    }
    for script in scripts()? {
        let (python, programs) = (python.clone(), programs.clone());
        tests.push_back(Box::new(move |port| {
            let mut command = Command::new(python);
            command.arg("-B").arg(script).arg(port.to_string()).arg(programs);
            command
        }));
    }
    let tests = Mutex::new(tests);
    let next = || tests.lock().expect("no thread panics with it").pop_front();
    let stop = || tests.lock().expect("no thread panics with it").clear();
    thread::scope(|scope| {
        let work = || {
            while let Some(test) = next() {
                with_server(&programs, test).inspect_err(|_| stop())?;
            }
            Ok(())
        };
        let workers = thread::available_parallelism().map_or(1, usize::from) + WAITING;
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })
}

fn with_server(programs: &Path, test: Test) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let server = Server::start(programs, &folder.path().join("casket.tch"))?;
    run_in_whole(&mut test(server.port))
}

fn scripts() -> Result<Vec<PathBuf>> {
    let folder = workspace().join("tests/clients");
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with("_test.py") {
            scripts.push(path);
        }
    }
    ensure!(!scripts.is_empty(), "no scripts in {}", folder.display());
    scripts.sort();
    Ok(scripts)
}
