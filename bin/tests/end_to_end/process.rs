//! Processes: starts programs and talks to them.

pub(crate) use crate::ports::free_port;

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait. Only a hanging program reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the path of a program.
pub(crate) fn path(program: &str) -> &'static str {
    match program {
        "tyrant" => env!("CARGO_BIN_EXE_tyrant"),
        "ttserver" => env!("CARGO_BIN_EXE_ttserver"),
        "tcrmgr" => env!("CARGO_BIN_EXE_tcrmgr"),
        "ttulmgr" => env!("CARGO_BIN_EXE_ttulmgr"),
        other => panic!("there is no program {other}"),
    }
}

/// Runs a program until it exits. One that continues, as a server does, is killed.
pub(crate) fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Output {
    feed(program, arguments, "")
}

/// Runs a program with this standard input, and waits for its end.
pub(crate) fn feed<A: AsRef<OsStr>>(program: &str, arguments: &[A], input: &str) -> Output {
    feed_in(Path::new("."), program, arguments, input)
}

/// Does the same in this folder.
pub(crate) fn feed_in<A: AsRef<OsStr>>(
    folder: &Path,
    program: &str,
    arguments: &[A],
    input: &str,
) -> Output {
    end_of(Command::new(path(program)).args(arguments).current_dir(folder), input)
}

/// Runs a program in this folder as a user whom the modes of files bind, as they do not bind root.
pub(crate) fn run_bound(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    // Further rights of root, which let it read and write any file.
    const RIGHTS: &str = "-dac_override,-dac_read_search,-fowner";
    let mut command = Command::new(path(program));
    if rustix::process::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--inh-caps", RIGHTS, "--bounding-set", RIGHTS, path(program)]);
    }
    end_of(command.args(arguments).current_dir(folder), "")
}

/// Starts a command with this standard input, and waits for its end.
fn end_of(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that does not read it may have ended; a pipe holds what tests give.
    let _ = child.stdin.take().expect("its input").write_all(input.as_bytes());
    // Read in parallel: a program blocks when it prints more than a pipe holds.
    let stdout = read_to_end(child.stdout.take().expect("its output"));
    let stderr = read_to_end(child.stderr.take().expect("its errors"));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("its state") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("to kill the program");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let text = |reading: JoinHandle<Vec<u8>>| reading.join().expect("what it printed");
    Output { status, stdout: text(stdout), stderr: text(stderr) }
}

fn read_to_end(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe");
        bytes
    })
}

/// Runs a program that must succeed. Returns its standard output.
pub(crate) fn succeed<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs a program that must fail with exit code 1. Returns its standard error.
pub(crate) fn fail<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> String {
    let output = run(program, arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// Runs `tyrant` with a command line that must be refused as wrong, with exit code 2. Returns its
/// standard error.
pub(crate) fn misuse<A: AsRef<OsStr>>(arguments: &[A]) -> String {
    let output = run("tyrant", arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// Waits until `condition` returns a value.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = condition() {
            return result;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running server in a folder of its own, with its log beside the database.
pub(crate) struct Server {
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
    program: &'static str,
    arguments: Vec<String>,
    child: Child,
}

impl Server {
    /// Starts `tyrant serve` on `database`, with further options, on the loopback interface.
    pub(crate) fn tyrant(database: &str, options: &[&str]) -> Self {
        Self::tyrant_in(tempfile::tempdir().expect("a folder"), database, options)
    }

    /// Does the same in this folder.
    pub(crate) fn tyrant_in(folder: TempDir, database: &str, options: &[&str]) -> Self {
        let port = free_port();
        let mut arguments = words(&["serve", database, "--port", &port.to_string()]);
        arguments.extend(words(&["--host", "127.0.0.1", "--log", "log"]));
        arguments.extend(words(options));
        Self::start_in(folder, "tyrant", arguments, port)
    }

    /// Starts `tyrant` with arguments that make it serve on this port, and log to the file `log`.
    pub(crate) fn with_arguments(arguments: &[&str], port: u16) -> Self {
        Self::start("tyrant", words(arguments), port)
    }

    /// Starts `ttserver` on `database`, with further options, on the loopback interface.
    pub(crate) fn ttserver(database: &str, options: &[&str]) -> Self {
        let port = free_port();
        let mut arguments = words(&["-port", &port.to_string(), "-host", "127.0.0.1"]);
        arguments.extend(words(&["-log", "log"]));
        arguments.extend(words(options));
        arguments.push(database.to_owned());
        Self::start("ttserver", arguments, port)
    }

    /// Starts `tyrant serve` with a configuration file, in which `PORT` is the port to wait for and
    /// `OTHER` another free one.
    pub(crate) fn configured(text: &str, options: &[&str]) -> Self {
        let (port, other) = (free_port(), free_port());
        let text = text.replace("PORT", &port.to_string()).replace("OTHER", &other.to_string());
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("tyrant.toml"), text).expect("a file");
        let mut arguments = words(&["serve", "--config", "tyrant.toml", "--log", "log"]);
        arguments.extend(words(options));
        Self::start_in(folder, "tyrant", arguments, port)
    }

    fn start(program: &'static str, arguments: Vec<String>, port: u16) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), program, arguments, port)
    }

    fn start_in(folder: TempDir, program: &'static str, arguments: Vec<String>, port: u16) -> Self {
        let child = spawn(program, &arguments, folder.path());
        let mut server = Self { folder, port, program, arguments, child };
        server.wait_until_it_serves();
        server
    }

    /// Restarts an ended server on the same files.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.program, &self.arguments, self.folder.path());
        self.wait_until_it_serves();
    }

    /// Restarts an ended server with further options.
    pub(crate) fn restart_with(&mut self, options: &[&str]) {
        self.arguments.extend(words(options));
        self.restart();
    }

    fn wait_until_it_serves(&mut self) {
        wait_for("the server", || {
            let ended = self.child.try_wait().expect("its state");
            assert!(ended.is_none(), "the server ended: {ended:?}\n{}", self.log());
            // It accepts connections before it handles signals.
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream.write_all(b"version\r\n").ok()?;
            stream.read_exact(&mut [0]).ok()
        });
    }

    /// Returns the current log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the command line, as other users of the machine see it.
    pub(crate) fn command_line(&self) -> String {
        let path = format!("/proc/{}/cmdline", self.child.id());
        String::from_utf8(std::fs::read(path).expect("a command line")).expect("UTF-8")
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a process id"));
        kill_process(pid.expect("a process id"), signal).expect("to signal the server");
    }

    /// Sends a signal and waits for the exit.
    pub(crate) fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        wait_for("the server's end", || self.child.try_wait().expect("its state"))
    }

    /// Returns the exit status, if the server has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("its state")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    /// Sends a request on a new connection. Checks that the response begins with `expected`.
    pub(crate) fn exchange(&self, request: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        exchange(&mut self.connect(), request, expected);
    }

    /// Returns the address of the server, for `tyrant --server`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request. Checks that the response begins with `expected`.
pub(crate) fn exchange(
    stream: &mut (impl Read + Write),
    request: impl AsRef<[u8]>,
    expected: impl AsRef<[u8]>,
) {
    let expected = expected.as_ref();
    stream.write_all(request.as_ref()).expect("to send");
    let mut answer = vec![0; expected.len()];
    let mut received = 0;
    // Another response may be shorter, and then no more comes.
    while received < answer.len() && expected.starts_with(&answer[..received]) {
        match stream.read(&mut answer[received..]).expect("an answer") {
            0 => break,
            bytes => received += bytes,
        }
    }
    let answer = String::from_utf8_lossy(&answer[..received]);
    assert_eq!(answer, String::from_utf8_lossy(expected));
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn spawn(program: &str, arguments: &[String], folder: &Path) -> Child {
    Command::new(path(program))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}
