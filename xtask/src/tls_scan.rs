//! TLS scan: sslyze and `openssl s_client` look for weak protocols, suites, curves and known
//! vulnerabilities of a server.

use crate::programs::{Profile, Server, build, free_port, run_quietly};
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Configuration of Mozilla that sslyze compares a server with.
const REQUIRED: &str = "--mozilla_config=intermediate";

/// Keys of the certificates, in the words of `openssl`.
const KEYS: [&[&str]; 2] = [&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], &["rsa:2048"]];

/// Options of `openssl s_client`, and lines that it must print.
const SESSIONS: [(&str, &[&str]); 2] = [
    ("-tls1_2", &["Verification: OK", "Protocol  : TLSv1.2", "Secure Renegotiation IS supported"]),
    ("-tls1_3", &["Verification: OK", "New, TLSv1.3, Cipher is TLS_"]),
];

/// Longest wait until `openssl s_server` listens.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Scans servers with each kind of key, on ports that require TLS and on one that takes both.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    requirements::install_programs()?;
    let python = requirements::python()?;
    let programs = build(profile)?;
    for (key, further) in [(KEYS[0], None), (KEYS[1], None), (KEYS[0], Some("--tls-optional"))] {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        certify(folder.path(), key)?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (certificate, private) = (path("server.pem"), path("server.key"));
        let mut options = vec!["--tls-cert", &certificate, "--tls-key", &private];
        options.extend(further);
        let (database, log) = (folder.path().join("casket.tch"), folder.path().join("log"));
        let server = Server::start_with(&programs, &database, &log, &options)?;
        let shown = scan(&python, folder.path(), server.port, true)?;
        ensure!(shown.contains("OK - Compliant."), "sslyze has not compared: {shown}");
        for (version, expected) in SESSIONS {
            let shown = session(folder.path(), server.port, version)?;
            for line in expected {
                ensure!(shown.contains(line), "openssl s_client {version} lacks {line:?}: {shown}");
            }
        }
    }
    find_weak_suites(&python)
}

/// Checks that the scan finds weak suites, those of `openssl s_server`.
fn find_weak_suites(python: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    certify(folder.path(), KEYS[1])?;
    let weak = Weak::start(folder.path())?;
    let shown = scan(python, folder.path(), weak.port, false)?;
    ensure!(
        shown.contains("* ciphers: "),
        "sslyze does not find the weak suites of openssl s_server: {shown}"
    );
    println!("tls-scan: nothing weak, and weak suites of another server are found");
    Ok(())
}

/// Scans a port, and returns what sslyze prints. Fails unless sslyze finds nothing weak, or
/// something weak if `is_strong` is not set.
fn scan(python: &Path, folder: &Path, port: u16, is_strong: bool) -> Result<String> {
    let authority = folder.join("authority.pem");
    let mut command = Command::new(python);
    command.args(["-m", "sslyze", REQUIRED, "--certinfo_ca_file"]).arg(authority);
    command.arg(format!("127.0.0.1:{port}")).stdin(Stdio::null());
    let output = command.output().context("cannot run sslyze")?;
    let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success() == is_strong, "sslyze ended with {}: {shown}", output.status);
    Ok(shown)
}

/// Returns what `openssl s_client` prints about a session.
fn session(folder: &Path, port: u16, version: &str) -> Result<String> {
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address, version, "-verify_ip", "127.0.0.1", "-CAfile"]);
    command.arg(folder.join("authority.pem")).stdin(Stdio::null());
    let output = command.output().context("cannot run openssl")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Creates an authority in a folder, and a certificate of it for the loopback address.
fn certify(folder: &Path, key: &[&str]) -> Result<()> {
    let path = |name: &str| folder.join(name).display().to_string();
    let (authority, authority_key) = (path("authority.pem"), path("authority.key"));
    let begin = [&["openssl", "req", "-x509", "-nodes", "-days", "30", "-newkey"], key].concat();
    let extended = |extensions: &[&'static str]| -> Vec<&str> {
        extensions.iter().flat_map(|extension| ["-addext", extension]).collect()
    };
    let subject = ["-subj", "/CN=authority", "-keyout", &authority_key, "-out", &authority];
    let rights = extended(&["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"]);
    run_quietly(&[&begin[..], &subject, &rights].concat())?;
    let (certificate, private) = (path("server.pem"), path("server.key"));
    let subject = ["-subj", "/CN=server", "-keyout", &private, "-out", &certificate];
    let issuer = ["-CA", &authority, "-CAkey", &authority_key];
    let rights = extended(&[
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth",
        "subjectAltName=IP:127.0.0.1",
    ]);
    run_quietly(&[&begin[..], &subject, &issuer, &rights].concat())
}

/// A server of `openssl` with suites that are weak, killed when dropped.
struct Weak {
    child: Child,
    port: u16,
}

impl Weak {
    fn start(folder: &Path) -> Result<Self> {
        let port = free_port();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-quiet", "-tls1_2"]);
        command.args(["-cipher", "ALL:@SECLEVEL=0", "-cert"]).arg(folder.join("server.pem"));
        command.arg("-key").arg(folder.join("server.key"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut weak = Self { child: child.spawn().context("cannot run openssl")?, port };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(weak.child.try_wait()?.is_none(), "openssl s_server has ended");
            ensure!(Instant::now() < deadline, "openssl s_server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(weak)
    }
}

impl Drop for Weak {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
