//! TLS connections: many of them, which stay open while the server gets new certificates.

use crate::certificates::Authority;
use crate::programs::{Profile, Server, build};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tls::{ClientConfig, ClientSettings, Stream};

/// Default number of connections.
pub(crate) const CONNECTIONS: usize = 10_000;

/// Threads that open connections and send requests.
const THREADS: usize = 4;

/// Longest wait for the server: for a reply, and until it has the new certificates.
const PATIENCE: Duration = Duration::from_secs(120);

/// Open files of a process beside its connections.
const FURTHER_FILES: u64 = 256;

/// Opens `connections`, sends a request on each, replaces the certificates, and sends again on each
/// of them. Then it opens a tenth as many new ones, which must see the new certificate.
pub(crate) fn run(profile: Profile, connections: usize) -> Result<()> {
    let programs = build(profile)?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let new_connections = connections.div_ceil(10);
    allow_files((connections + new_connections) as u64 + FURTHER_FILES)?;
    let (old, new) = (Authority::new(), Authority::new());
    let files = old.server(&["127.0.0.1"]);
    let paths = [&files.certificate, &files.key].map(|path| path.display().to_string());
    let options = ["--tls-cert", &paths[0], "--tls-key", &paths[1]];
    let (database, log) = (folder.path().join("casket.tch"), folder.path().join("log"));
    let server = Server::start_with(&programs, &database, &log, &options)?;
    let (old_client, new_client) = (trusting(&old)?, trusting(&new)?);

    let started = Instant::now();
    let before = in_threads(connections, |number| {
        let stream = connect(&server, &old_client)?;
        let key = format!("key-{number}");
        exchange(&stream, &format!("set {key} 0 0 {}\r\n{key}\r\n", key.len()), "STORED\r\n")?;
        Ok(stream)
    })?;
    let opened = started.elapsed();

    let replacement = new.server(&["127.0.0.1"]);
    std::fs::copy(&replacement.certificate, &files.certificate)?;
    std::fs::copy(&replacement.key, &files.key)?;
    server.reload()?;
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = connect(&server, &new_client) {
        if Instant::now() > deadline {
            return Err(error.context("the server does not show the new certificate"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if connect(&server, &old_client).is_ok() {
        bail!("the server still shows the old certificate");
    }

    let answered = in_threads(connections, |number| {
        let key = format!("key-{number}");
        let reply = format!("VALUE {key} 0 {}\r\n{key}\r\nEND\r\n", key.len());
        Ok(exchange(&before[number], &format!("get {key}\r\n"), &reply))
    })?;
    let lost: Vec<_> = answered.into_iter().filter_map(Result::err).collect();
    ensure!(
        lost.is_empty(),
        "{} of {connections} connections were lost by the reload; the first: {:#}",
        lost.len(),
        lost[0]
    );
    in_threads(new_connections, |number| {
        let stream = connect(&server, &new_client)?;
        let key = format!("key-{number}");
        let reply = format!("VALUE {key} 0 {}\r\n{key}\r\nEND\r\n", key.len());
        exchange(&stream, &format!("get {key}\r\n"), &reply)
    })?;
    println!(
        "tls-connections: {connections} opened in {opened:.1?}, 0 lost by the reload; \
         {new_connections} more with the new certificate"
    );
    Ok(())
}

/// Raises the limit of open files of this process, and of the server that it starts.
fn allow_files(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= files),
        "{files} open files are needed: raise the limit (ulimit -Hn {files}), or set --connections"
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..limit })
        .context("cannot raise the limit of open files")
}

fn trusting(authority: &Authority) -> Result<ClientConfig> {
    let authorities = Some(authority.file());
    Ok(ClientSettings { authorities, ..ClientSettings::default() }.read()?)
}

fn connect(server: &Server, config: &ClientConfig) -> Result<Stream> {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).context("cannot connect")?;
    socket.set_nodelay(true)?;
    let stream = Stream::connect(socket, config, "127.0.0.1", PATIENCE).context("handshake")?;
    stream.socket().set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn exchange(mut stream: &Stream, request: &str, expected: &str) -> Result<()> {
    stream.write_all(request.as_bytes()).context("cannot send")?;
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).context("no reply")?;
    ensure!(reply == expected.as_bytes(), "a reply is {:?}", reply.escape_ascii().to_string());
    Ok(())
}

/// Calls `act` with the numbers below `count`, in several threads. Returns the results in order.
fn in_threads<T: Send>(count: usize, act: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let act = &act;
    std::thread::scope(|scope| {
        let share = count.div_ceil(THREADS).max(1);
        let threads: Vec<_> = (0..count)
            .step_by(share)
            .map(|first| {
                let numbers = first..count.min(first + share);
                scope.spawn(move || numbers.map(act).collect::<Result<Vec<T>>>())
            })
            .collect();
        let mut results = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(part) => results.extend(part?),
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(results)
    })
}
