//! Programs without any library beside them, for each architecture, and a trial of them in an empty
//! root.
//!
//! The libraries in C are compiled and everything is linked with Zig's compiler, which has musl for
//! all architectures.

use super::{copy_programs, text};
use crate::programs::{free_port, run, target_folder, workspace};
use crate::requirements::{install_if_missing, is_root, python_programs};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Architectures by their names in targets, and in images of containers.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "amd64"), ("aarch64", "arm64")];

/// User of the server in a container.
const USER: u32 = 65532;

/// Python packages with the compiler, and with a cargo command that uses it.
const COMPILER: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.0"];

/// Longest wait until a server accepts connections, and for each of its replies.
const PATIENCE: Duration = Duration::from_secs(120);

/// Builds an archive for each architecture, and tries its server unless this process may not.
pub(super) fn build_and_try() -> Result<()> {
    let compiler = python_programs("zig", &COMPILER)?;
    let image = target_folder().join("image");
    for (architecture, name) in ARCHITECTURES {
        let programs = build(&compiler, architecture)?;
        copy_programs(&programs, &image.join(name))?;
        let archive = archive(&programs, architecture)?;
        println!("built {}", archive.display());
        if is_root() {
            try_server(&archive, architecture)?;
        } else {
            println!("package: {architecture} NOT TRIED, an empty root needs root");
        }
    }
    fs::create_dir_all(image.join("state")).context("the folder of the database")?;
    if is_root() {
        try_image(&image)?;
    }
    Ok(())
}

/// Builds the image of this architecture, and serves a record with it, without root.
fn try_image(image: &Path) -> Result<()> {
    install_if_missing(&["buildah", "--version"], "buildah")?;
    let storage = tempfile::tempdir_in(target_folder()).context("no temporary folder")?;
    let buildah = |arguments: &[&str]| {
        let mut command = Command::new("buildah");
        command.args(["--storage-driver", "vfs"]);
        command.arg("--root").arg(storage.path().join("root"));
        command.arg("--runroot").arg(storage.path().join("run")).args(arguments);
        command
    };
    let file = workspace().join("packaging/Containerfile");
    let build = ["bud", "--isolation", "chroot", "-t", "tyrant", "-f", text(&file)?];
    run(buildah(&build).arg(image))?;
    let container = line(buildah(&["from", "localhost/tyrant"]))?;
    let folder = storage.path().join("state");
    fs::create_dir(&folder).context("the folder of the database")?;
    chown(&folder, Some(USER), Some(USER)).context("the folder of the database")?;
    let port = free_port();
    let volume = format!("{}:/var/lib/tyrant", text(&folder)?);
    let mut command = buildah(&["run", "--isolation", "chroot", "--volume", &volume, &container]);
    command.args([
        "--",
        "/usr/bin/tyrant",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "/var/lib/tyrant/casket.tch",
    ]);
    let mut server = Server::start(&mut command)?;
    let mut client = server.connect(port)?;
    ask(&mut client, "set key 0 0 5\r\nvalue\r\n", &["STORED"])?;
    ask(&mut client, "get key\r\n", &["VALUE key 0 5", "value", "END"])?;
    let database = fs::metadata(folder.join("casket.tch"));
    let owner = database.context("no database in the container")?.uid();
    ensure!(owner == USER, "the server of the container runs as the user {owner}");
    // The program that runs the container reports the signal, not how the server has ended.
    server.end(Signal::TERM)?;
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        ensure!(Instant::now() < deadline, "the server of the container does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("package: image built, served as the user {USER}");
    Ok(())
}

/// Returns the line that a command prints.
fn line(mut command: Command) -> Result<String> {
    let output = command.output().context("cannot run buildah")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "buildah: {error}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn target(architecture: &str) -> String {
    format!("{architecture}-unknown-linux-musl")
}

/// Builds the programs for an architecture. Returns their folder.
fn build(compiler: &Path, architecture: &str) -> Result<PathBuf> {
    let target = target(architecture);
    let mut library = Command::new("rustc");
    library.args(["--print", "target-libdir", "--target", &target]).current_dir(workspace());
    let library = library.output().context("cannot run rustc")?.stdout;
    let library = PathBuf::from(String::from_utf8_lossy(&library).trim());
    if !library.exists() {
        run(Command::new("rustup").args(["target", "add", &target]).current_dir(workspace()))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(compiler.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).context("the path of the compiler")?;
    run(Command::new(env!("CARGO"))
        .args(["zigbuild", "--profile", "dist", "--locked", "--package", "tyrant-kv"])
        .args(["--bin", "tyrant", "--features", "cluster", "--target", &target])
        .env("PATH", path)
        .envs([("CARGO_PROFILE_DIST_DEBUG", "none"), ("CARGO_PROFILE_DIST_STRIP", "symbols")])
        .current_dir(workspace()))?;
    Ok(target_folder().join(target).join("dist"))
}

/// Packs the programs. Returns the path of the archive.
fn archive(programs: &Path, architecture: &str) -> Result<PathBuf> {
    let name = format!("tyrant-{}-{architecture}-linux", env!("CARGO_PKG_VERSION"));
    let staging = tempfile::tempdir_in(target_folder()).context("no temporary folder")?;
    let folder = staging.path().join(&name);
    copy_programs(programs, &folder)?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md", "packaging/tyrant.toml"] {
        let place = folder.join(Path::new(file).file_name().context("no name")?);
        fs::copy(workspace().join(file), place).with_context(|| format!("cannot copy {file}"))?;
    }
    let archive = target_folder().join(format!("{name}.tar.xz"));
    let owner = ["--owner=0", "--group=0", "--numeric-owner"];
    let mut command = Command::new("tar");
    command.arg("-C").arg(staging.path()).args(owner).args(["-cJf", text(&archive)?, &name]);
    run(&mut command)?;
    Ok(archive)
}

/// Serves records with the server of an archive in a root that has nothing else, kills it, and
/// expects them after it was started again.
fn try_server(archive: &Path, architecture: &str) -> Result<()> {
    let folder = tempfile::tempdir_in(target_folder()).context("no temporary folder")?;
    let root = folder.path();
    let mut unpack = Command::new("tar");
    run(unpack.arg("-xf").arg(archive).args(["--strip-components=1", "-C"]).arg(root))?;
    let emulator = (architecture != std::env::consts::ARCH)
        .then(|| emulator(root, architecture))
        .transpose()?;

    let mut command = Command::new("chroot");
    command.arg(root).args(&emulator).args(["/tyrant", "version"]);
    run(&mut command)?;

    let port = free_port();
    let start = || -> Result<Server> {
        let mut command = Command::new("chroot");
        command.arg(root).args(&emulator).args(["/tyrant", "serve", "/casket.tch"]);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--log", "/log"]);
        Server::start(&mut command)
    };
    let mut server = start()?;
    let mut client = server.connect(port)?;
    ask(&mut client, "set key 0 0 5\r\nvalue\r\n", &["STORED"])?;
    server.end(Signal::KILL)?;
    let mut server = start()?;
    let mut client = server.connect(port)?;
    ask(&mut client, "get key\r\n", &["VALUE key 0 5", "value", "END"])?;
    ensure!(server.end(Signal::TERM)?, "{architecture}: the server did not end well");
    println!("package: {architecture}: served, killed and served again in an empty root");
    Ok(())
}

/// Copies an emulator of the architecture into the root. Returns its path there.
fn emulator(root: &Path, architecture: &str) -> Result<String> {
    let name = format!("qemu-{architecture}-static");
    let path = Path::new("/usr/bin").join(&name);
    install_if_missing(&[text(&path)?, "-version"], "qemu-user-static")?;
    fs::copy(&path, root.join(&name)).with_context(|| format!("cannot copy {name}"))?;
    Ok(format!("/{name}"))
}

/// Sends a request, and expects these lines.
fn ask(client: &mut TcpStream, request: &str, expected: &[&str]) -> Result<()> {
    client.set_read_timeout(Some(PATIENCE)).context("no time limit")?;
    client.write_all(request.as_bytes()).context("cannot send a request")?;
    let mut lines = BufReader::new(client).lines();
    for expected in expected {
        let line = lines.next().context("the server closed the connection")?;
        let line = line.context("cannot read a reply")?;
        ensure!(line == *expected, "{request:?} was answered {line:?}, not {expected:?}");
    }
    Ok(())
}

/// A running server, killed when dropped. It has a process group, with the programs that run it.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.process_group(0).spawn().context("cannot start the server")?))
    }

    /// Connects once the server accepts connections.
    fn connect(&mut self, port: u16) -> Result<TcpStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(client) = TcpStream::connect(("127.0.0.1", port)) {
                return Ok(client);
            }
            if let Some(status) = self.0.try_wait()? {
                bail!("the server ended with {status}");
            }
            ensure!(Instant::now() < deadline, "the server does not accept connections");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the server with a signal. Returns whether it reported success.
    fn end(&mut self, signal: Signal) -> Result<bool> {
        kill_process_group(Pid::from_child(&self.0), signal).context("cannot signal the server")?;
        Ok(self.0.wait().context("cannot wait for the server")?.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        if let Ok(None) = self.0.try_wait() {
            let _ = self.end(Signal::KILL);
        }
    }
}
