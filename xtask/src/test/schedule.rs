//! Schedule of the suites: as many at once as there are processors, and beside them one that mostly
//! waits.

use super::durations::{self, Test};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of a suite, which is killed then.
const SUITE_TIMEOUT: Duration = Duration::from_secs(40 * 60);

/// Interval of looking whether a suite has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Use that a suite makes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// It keeps a processor busy.
    Busy,
    /// It mostly waits, for timers or for processes that do.
    Waiting,
}

/// A suite that is ready to run.
pub(super) struct Job {
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) load: Load,
}

/// Result of a suite.
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) log: PathBuf,
    pub(super) slow_tests: Vec<Test>,
    pub(super) closing_lines: Vec<String>,
    time: Duration,
    /// Why it failed.
    failure: Option<String>,
    /// A part of it did not run, as its output says.
    is_skipped: bool,
}

impl Ended {
    pub(super) fn is_passed(&self) -> bool {
        self.failure.is_none()
    }

    pub(super) fn seconds(&self) -> f64 {
        self.time.as_secs_f64()
    }

    /// Returns the result as a word or a sentence.
    pub(super) fn result(&self) -> &str {
        let passed = if self.is_skipped { "ok, a part was SKIPPED" } else { "ok" };
        self.failure.as_deref().unwrap_or(passed)
    }

    /// Returns how many tests the suite counted, or why it failed.
    pub(super) fn counted(&self) -> String {
        if let Some(failure) = &self.failure {
            return format!("  {failure}");
        }
        let passed = |line: &String| {
            let (before, _) = line.split_once(" passed")?;
            before.rsplit(' ').next()?.parse::<u64>().ok()
        };
        let passed: Option<u64> = self.closing_lines.iter().map(passed).sum();
        match passed {
            _ if self.is_skipped => "  a part was SKIPPED, see its output".to_owned(),
            None | Some(0) => String::new(),
            Some(passed) => format!("  {passed} tests"),
        }
    }
}

/// Runs the suites, with variables in the environment of each. Their output goes to files in the
/// folder `logs`. Calls `report` as each ends. Returns the results in that order.
pub(super) fn run(
    jobs: Vec<Job>,
    logs: &Path,
    variables: &[(&str, PathBuf)],
    report: fn(&Ended),
) -> Vec<Ended> {
    let (waiting, busy): (VecDeque<Job>, VecDeque<Job>) =
        jobs.into_iter().partition(|job| job.load == Load::Waiting);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (waiting, busy) = (Mutex::new(waiting), Mutex::new(busy));
    let ended = Mutex::new(Vec::new());
    let work = |queues: &[&Mutex<VecDeque<Job>>]| {
        while let Some(mut job) = queues.iter().find_map(|queue| take(queue)) {
            job.command.envs(variables.iter().map(|(name, value)| (name, value)));
            let result = run_one(job, logs);
            let mut ended = ended.lock().expect("no thread panics with it");
            report(&result);
            ended.push(result);
        }
    };
    thread::scope(|scope| {
        // This thread ends with the waiting suites: another busy suite would have no processor.
        scope.spawn(|| work(&[&waiting]));
        for _ in 0..processors {
            scope.spawn(|| work(&[&busy, &waiting]));
        }
    });
    ended.into_inner().expect("no thread panics with it")
}

fn take(queue: &Mutex<VecDeque<Job>>) -> Option<Job> {
    queue.lock().expect("no thread panics with it").pop_front()
}

fn run_one(job: Job, logs: &Path) -> Ended {
    let Job { name, command, .. } = job;
    let log = logs.join(format!("{}.log", name.replace("::", "-")));
    let begun = Instant::now();
    let failure = match execute(command, &log, SUITE_TIMEOUT) {
        Ok(Some(status)) if status.success() => None,
        Ok(Some(status)) => Some(format!("ended with {status}")),
        Ok(None) => Some(format!("did not end within {} s", SUITE_TIMEOUT.as_secs())),
        Err(error) => Some(format!("cannot run: {error}")),
    };
    let time = begun.elapsed();
    let output = std::fs::read(&log).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let slow_tests = durations::of(&name, &output);
    let closing_lines = durations::closing_lines(&output);
    let is_skipped = output.contains(": SKIPPED, ");
    Ended { name, log, slow_tests, closing_lines, time, failure, is_skipped }
}

/// Runs a command to its end, which it must reach in time. Returns `None` if it does not.
fn execute(
    mut command: Command,
    log: &Path,
    timeout: Duration,
) -> std::io::Result<Option<ExitStatus>> {
    let output = File::create(log)?;
    let mut child =
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            kill_with_descendants(child.id());
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Kills a process and those that it has started, as servers and nodes of a suite that hangs.
fn kill_with_descendants(process: u32) {
    // A stopped process starts no further ones meanwhile.
    signal(process, Signal::STOP);
    children(process).into_iter().for_each(kill_with_descendants);
    signal(process, Signal::KILL);
}

fn signal(process: u32, signal: Signal) {
    // It may have ended.
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let _ = process.map(|process| kill_process(process, signal));
}

/// Returns the processes that each thread of a process has started and that have not ended.
fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("children")).unwrap_or_default()
    };
    let lists: Vec<String> = threads.flatten().map(of_thread).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).flat_map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, script: &str, load: Load) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command, load }
    }

    #[test]
    fn all_suites_run_to_their_end_though_one_fails() {
        let folder = tempfile::tempdir().unwrap();
        let passing = "echo 'test a ... ok <0.250s>'; echo 'test result: ok. 1 passed; 0 failed'";
        let jobs = vec![
            job("a", "exit 3", Load::Busy),
            job("b::c", passing, Load::Busy),
            job("d", "test \"$V\" = w", Load::Waiting),
        ];
        let mut ended = run(jobs, folder.path(), &[("V", "w".into())], |_| {});
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        let results: Vec<_> = ended.iter().map(|ended| (&*ended.name, ended.is_passed())).collect();
        assert_eq!(results, [("a", false), ("b::c", true), ("d", true)]);
        assert!(ended[0].result().contains('3'), "{}", ended[0].result());
        assert_eq!(ended[1].counted(), "  1 tests");
        assert_eq!(ended[1].slow_tests, durations::of("b::c", "test a ... ok <0.250s>"));
        assert!(folder.path().join("b-c.log").exists());
    }

    #[test]
    fn a_suite_that_does_not_end_is_killed_with_the_processes_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'sleep 600 & echo $!; wait' & wait"]);
        assert!(execute(command, &log, Duration::from_secs(2)).unwrap().is_none());
        let sleeping = std::fs::read_to_string(log).unwrap();
        assert!(sleeping.trim().parse::<u32>().is_ok(), "{sleeping}");
        let state = Path::new("/proc").join(sleeping.trim()).join("stat");
        // The system ends them a little later.
        let has_ended =
            || std::fs::read_to_string(&state).map_or(true, |state| state.contains(") Z "));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_ended() {
            assert!(Instant::now() < deadline, "process {sleeping} goes on");
            thread::sleep(LOOK_INTERVAL);
        }
    }

    #[test]
    fn a_program_that_is_missing_fails_its_suite() {
        let folder = tempfile::tempdir().unwrap();
        let command = Command::new(folder.path().join("missing"));
        let job = Job { name: "a".to_owned(), command, load: Load::Busy };
        let ended = run(vec![job], folder.path(), &[], |_| {});
        assert!(!ended[0].is_passed());
    }
}
