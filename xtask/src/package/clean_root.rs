//! Clean root: a minimal Debian in a folder, in which packages are tried with `chroot`.

use crate::programs::{free_port, run, run_quietly, succeeds, target_folder, workspace};
use crate::requirements::install_if_missing;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest wait for a message of the server.
const PATIENCE: Duration = Duration::from_secs(120);

/// Packages of the clean root beside those of every Debian.
const PACKAGES: &str = "openssl,procps";

/// Heading of the README's commands that set up a server.
const SET_UP: &str = "## From a package to an encrypted server with users and metrics";

const PASSWORD: &str = "of the package's test";

/// Source of the packages.
const MIRROR: &str = "http://deb.debian.org/debian";

const CONFIGURATION: &str = "etc/tyrant/tyrant.toml";

/// Tries a package and one that upgrades it.
pub(super) fn try_packages(package: &Path, upgrade: &Path) -> Result<()> {
    let archive = archive("clean-root", PACKAGES)?;
    let folder = tempfile::tempdir_in(target_folder()).context("no temporary folder")?;
    let root = Root { path: folder.path().join("root") };
    fs::create_dir(&root.path).context("the root")?;
    run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&root.path))?;

    root.install(package)?;
    root.check_files()?;
    let port = free_port();
    root.set_port(port)?;
    let server = root.start()?;
    root.succeed(&["tyrant", "put", "--server", &address(port), "key", "of the first version"])?;
    root.back_up(port)?;
    server.stop()?;

    root.install(upgrade)?;
    let configuration = fs::read_to_string(root.path.join(CONFIGURATION));
    let configuration = configuration.context("the configuration")?;
    ensure!(configuration.contains(&port.to_string()), "the upgrade replaced the configuration");
    let server = root.start()?;
    let value = root.succeed(&["tyrant", "get", "--server", &address(port), "key"])?;
    ensure!(value == "of the first version\n", "after the upgrade the record is {value:?}");
    server.stop()?;

    root.succeed(&["dpkg", "--remove", "tyrant"])?;
    ensure!(!root.path.join("usr/bin/tyrant").exists(), "the removal left the program");
    ensure!(root.path.join(CONFIGURATION).exists(), "the removal took the configuration");
    root.succeed(&["dpkg", "--purge", "tyrant"])?;
    ensure!(!root.path.join(CONFIGURATION).exists(), "the purge left the configuration");
    let database = root.path.join("var/lib/tyrant/casket.tch/manifest");
    ensure!(database.exists(), "the purge removed the database");
    println!("package: installed, served, upgraded with its records, removed, purged");
    root.check_enabled_units(package, upgrade)?;

    root.set_up_by_readme(package)?;
    let (port, admin) = (free_port(), free_port());
    root.set_port(port)?;
    root.configure("127.0.0.1:9178", &format!("127.0.0.1:{admin}"))?;
    let server = root.start()?;
    let record = format!("https://localhost:{port}/key");
    let certificate = root.path.join("var/lib/tyrant/server.pem");
    let curl = |arguments: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--max-time", "60", "--write-out", "%{http_code}"]);
        let output = command.arg("--cacert").arg(&certificate).args(arguments).output();
        let output = output.context("cannot run curl, install it")?;
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let user = format!("ann:{PASSWORD}");
    for (arguments, expected) in [
        (&["-u", &user, "-X", "PUT", "--data", "value", &record][..], "Created\n201"),
        (&["-u", &user, &record], "value200"),
        (&["-u", "ann:wrong", "--output", "/dev/null", &record], "401"),
        (&["--output", "/dev/null", &record], "401"),
        (&["--output", "/dev/null", &record.replace("https:", "http:")], "400"),
    ] {
        let answer = curl(arguments)?;
        ensure!(answer == expected, "curl {arguments:?} printed {answer}, not {expected}");
    }
    let metrics = curl(&[&format!("http://127.0.0.1:{admin}/metrics")])?;
    ensure!(metrics.contains("\ntyrant_") && metrics.ends_with("200"), "metrics: {metrics}");
    server.stop()?;
    println!("package: set up by the commands of the README: encryption, a user, metrics");
    Ok(())
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Returns an archive of a minimal Debian of this machine's release with these packages, which is
/// made once.
pub(crate) fn archive(name: &str, packages: &str) -> Result<PathBuf> {
    let archive = target_folder().join(format!("{name}-{packages}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    install_if_missing(&["sh", "-c", "command -v debootstrap"], "debootstrap")?;
    let release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let release = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let release = release.context("the release of this Debian has no name")?;
    // The archive is made under another name, so that an interrupted run leaves none.
    let unfinished = archive.with_extension("unfinished");
    let folder = tempfile::tempdir_in(target_folder()).context("no temporary folder")?;
    let root = folder.path().join("root");
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", "--include", packages, release]).arg(&root).arg(MIRROR);
    run(&mut command)?;
    run(Command::new("tar").arg("-cf").arg(&unfinished).arg("-C").arg(&root).arg("."))?;
    fs::rename(unfinished, &archive).context("the archive of the clean root")?;
    Ok(archive)
}

/// The program in the place of systemctl: a file for each unit that is enabled.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >>/run/calls
[ "$1" = --quiet ] && shift
action=$1
shift
[ "$1" = --now ] && shift
case $action in
enable) cd /run/enabled && touch "$@" ;;
disable) cd /run/enabled && rm -f "$@" ;;
is-enabled) test -f "/run/enabled/$1" ;;
esac
"#;

/// A root directory.
struct Root {
    path: PathBuf,
}

impl Root {
    /// Runs a program in the root, which must succeed. Returns its output.
    fn succeed(&self, command: &[&str]) -> Result<String> {
        let output = Command::new("chroot").arg(&self.path).args(command).output();
        let output = output.context("cannot run chroot")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} in the clean root: {error}", command.join(" "));
        String::from_utf8(output.stdout).context("the output is not UTF-8")
    }

    fn install(&self, package: &Path) -> Result<()> {
        let inside = self.path.join("package.deb");
        fs::copy(package, inside).context("cannot copy the package")?;
        self.succeed(&["dpkg", "--install", "/package.deb"])?;
        Ok(())
    }

    /// Checks that the units are enabled and started as they should be: by a program that notes how
    /// it is called, in the place of systemctl.
    fn check_enabled_units(&self, package: &Path, upgrade: &Path) -> Result<()> {
        let program = self.path.join("usr/bin/systemctl");
        let [managed, enabled] =
            ["run/systemd/system", "run/enabled"].map(|folder| self.path.join(folder));
        for folder in [&managed, &enabled] {
            fs::create_dir_all(folder).context("a folder")?;
        }
        fs::write(&program, SYSTEMCTL).context("the program")?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).context("its mode")?;
        let calls = self.path.join("run/calls");
        let expect = |after: &str, expected: &[&str], units: &[&str]| {
            let text = fs::read_to_string(&calls).context("the calls")?;
            fs::write(&calls, "").context("the calls")?;
            let found: Vec<_> = text.lines().filter(|call| call.contains("start ")).collect();
            ensure!(found == expected, "{after}: {found:?} and not {expected:?}");
            let present = fs::read_dir(&enabled).context("the units")?.count();
            let are =
                present == units.len() && units.iter().all(|unit| enabled.join(unit).exists());
            ensure!(are, "{after}: other units are enabled than {units:?}");
            Ok(())
        };
        let [server, timer] = ["tyrant.service", "tyrant-backup.timer"];
        self.install(package)?;
        expect("installed", &["restart tyrant.service"], &[server])?;
        self.install(upgrade)?;
        expect("upgraded", &["try-restart tyrant.service"], &[server])?;
        self.succeed(&["systemctl", "enable", timer])?;
        self.succeed(&["dpkg", "--remove", "tyrant"])?;
        expect("removed", &[], &[])?;
        self.install(upgrade)?;
        let started = ["restart tyrant.service", "restart tyrant-backup.timer"];
        expect("installed again", &started, &[server, timer])?;
        self.succeed(&["systemctl", "disable", server, timer])?;
        self.install(upgrade)?;
        expect("upgraded while disabled", &["try-restart tyrant.service"], &[])?;
        self.succeed(&["dpkg", "--remove", "tyrant"])?;
        self.install(upgrade)?;
        expect("installed again while disabled", &["try-restart tyrant.service"], &[])?;
        self.succeed(&["dpkg", "--purge", "tyrant"])?;
        self.install(upgrade)?;
        expect("installed after a purge", &["restart tyrant.service"], &[server])?;
        self.succeed(&["dpkg", "--purge", "tyrant"])?;
        fs::remove_dir_all(&managed).context("the folder")?;
        fs::remove_file(program).context("the program")?;
        println!("package: its units are enabled and started as an administrator left them");
        Ok(())
    }

    /// Checks the user, the folders, the unit, the pages and the completions.
    fn check_files(&self) -> Result<()> {
        let user = self.succeed(&["id", "--user", "tyrant"])?;
        let user: u32 = user.trim().parse().context("the user's number")?;
        ensure!(user != 0, "the server's user is root");
        for folder in ["var/lib/tyrant", "var/log/tyrant", "var/backups/tyrant"] {
            let folder = fs::metadata(self.path.join(folder)).context(folder)?;
            ensure!(folder.uid() == user && folder.mode() & 0o007 == 0, "a folder is open");
        }
        self.succeed(&["tyrant", "config", "--check", "/etc/tyrant/tyrant.toml"])?;
        for link in [["ttserver", "--version"], ["tcrmgr", "version"], ["ttulmgr", "version"]] {
            self.succeed(&link)?;
        }
        self.succeed(&["bash", "-n", "/usr/share/bash-completion/completions/tyrant"])?;
        for page in ["man1/tyrant-serve.1.gz", "man1/ttserver.1.gz", "man5/tyrant.toml.5.gz"] {
            self.succeed(&["gzip", "--test", &format!("/usr/share/man/{page}")])?;
        }
        self.check_units()
    }

    /// Checks that systemd knows every line of the units, if it is on this machine.
    fn check_units(&self) -> Result<()> {
        if !succeeds(&["systemd-analyze", "--version"]) {
            return Ok(());
        }
        let root = format!("--root={}", self.path.display());
        let units = ["tyrant.service", "tyrant.socket", "tyrant-backup.timer"];
        let mut command = Command::new("systemd-analyze");
        let output = command.arg(root).args(["verify", "--man=no"]).args(units).output();
        let output = output.context("cannot run systemd-analyze")?;
        // The units of systemd itself are not in the root, which is reported too.
        let messages = String::from_utf8_lossy(&output.stderr);
        let defect = ["Unknown", "Failed to parse", "nvalid", "gnoring"];
        let found = messages.lines().find(|line| defect.iter().any(|word| line.contains(word)));
        ensure!(found.is_none(), "systemd-analyze: {}", found.unwrap_or_default());
        Ok(())
    }

    /// Backs up the served database by the first command of the page about backups, and as the unit
    /// does, as the server's user.
    fn back_up(&self, port: u16) -> Result<()> {
        let address = address(port);
        let create = ["tyrant", "backup", "create", "--server", &address];
        self.succeed(&[&create[..], &["/backups/casket"]].concat())?;
        let as_server = ["runuser", "-u", "tyrant", "--"];
        self.succeed(&[&as_server[..], &create, &["/var/backups/tyrant/casket"]].concat())?;
        for repository in ["/backups/casket", "/var/backups/tyrant/casket"] {
            let verified = self.succeed(&["tyrant", "backup", "verify", repository])?;
            ensure!(verified.starts_with("1 backup,"), "the backup: {verified}");
        }
        Ok(())
    }

    /// Runs the commands of the README that install a package and set up its server, but the one
    /// that restarts it.
    fn set_up_by_readme(&self, package: &Path) -> Result<()> {
        let readme = fs::read_to_string(workspace().join("README.md")).context("the README")?;
        let section = readme.split_once(SET_UP).context("the README has no set-up")?.1;
        let block = section.split_once("```sh\n").and_then(|(_, rest)| rest.split_once("\n```"));
        let commands: Vec<_> = block.context("the set-up has no commands")?.0.lines().collect();
        let [install, commands @ .., restart] = &commands[..] else { bail!("no commands") };
        ensure!(commands.len() == 3, "the set-up does not have five commands");
        ensure!(*restart == "systemctl restart tyrant", "the set-up does not restart the server");
        let name = install.rsplit_once("./").context("the set-up installs no file")?.1;
        let place = self.path.join("root").join(name);
        fs::create_dir_all(place.parent().context("a folder")?).context("a folder")?;
        fs::copy(package, place).context("cannot copy the package")?;
        for command in std::iter::once(install).chain(commands) {
            println!("# {command}");
            let mut child = Command::new("chroot")
                .arg(&self.path)
                .args(["sh", "-c", &format!("cd /root && {command}")])
                .stdin(Stdio::piped())
                .spawn()
                .context("cannot run chroot")?;
            // A command that asks for nothing may have ended already.
            let asked = child.stdin.take().map(|mut input| writeln!(input, "{PASSWORD}"));
            let status = child.wait().context("cannot wait for a command")?;
            ensure!(status.success(), "{command} ended with {status}, its input with {asked:?}");
        }
        Ok(())
    }

    fn set_port(&self, port: u16) -> Result<()> {
        self.configure("port = 1978", &format!("port = {port}"))
    }

    /// Replaces a part of the configuration.
    fn configure(&self, old: &str, new: &str) -> Result<()> {
        let path = self.path.join(CONFIGURATION);
        let text = fs::read_to_string(&path).context("the configuration")?;
        ensure!(text.contains(old), "the configuration lacks {old}");
        fs::write(&path, text.replace(old, new)).context("the configuration")
    }

    /// Starts the server as the unit does, and waits until it is ready.
    fn start(&self) -> Result<Service> {
        let socket = self.path.join("run/notify");
        let messages = UnixDatagram::bind(&socket).context("the socket of messages")?;
        messages.set_read_timeout(Some(PATIENCE)).context("a time limit")?;
        // The server's user must be able to send to it.
        run_quietly(&["chmod", "666", &socket.display().to_string()])?;
        let script = "cd /var/lib/tyrant && \
            exec /usr/bin/tyrant serve --config /etc/tyrant/tyrant.toml";
        let child = Command::new("chroot")
            .arg("--userspec=tyrant:tyrant")
            .arg(&self.path)
            .args(["sh", "-c", script])
            .env("NOTIFY_SOCKET", "/run/notify")
            .env("WATCHDOG_USEC", "600000")
            .spawn()
            .context("cannot start the server")?;
        let service = Service { child, messages, socket };
        service.wait_for("READY=1")?;
        service.wait_for("WATCHDOG=1")?;
        Ok(service)
    }
}

/// A server that reports its state as to systemd, killed when dropped.
struct Service {
    child: Child,
    messages: UnixDatagram,
    socket: PathBuf,
}

impl Service {
    fn wait_for(&self, expected: &str) -> Result<()> {
        let mut bytes = [0; 256];
        loop {
            let length = self.messages.recv(&mut bytes);
            let length = length.with_context(|| format!("waited in vain for {expected}"))?;
            let message = String::from_utf8_lossy(&bytes[..length]);
            match message.lines().any(|line| line == expected) {
                true => return Ok(()),
                false if message.starts_with("WATCHDOG") => {}
                false => bail!("expected {expected} of the server, not {message}"),
            }
        }
    }

    /// Reloads and stops the server, which must report both.
    fn stop(mut self) -> Result<()> {
        let process = Pid::from_child(&self.child);
        kill_process(process, Signal::HUP).context("cannot signal the server")?;
        self.wait_for("RELOADING=1")?;
        self.wait_for("READY=1")?;
        kill_process(process, Signal::TERM).context("cannot stop the server")?;
        self.wait_for("STOPPING=1")?;
        let status = self.child.wait().context("cannot wait for the server")?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}
