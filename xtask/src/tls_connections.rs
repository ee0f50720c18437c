//! TLS connections: many of them, which stay open while the server gets new certificates.

use crate::certificates::{Authority, Files};
use crate::programs::{Profile, Server, build};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tls::{ClientConfig, ClientSettings, Stream};

/// Default number of connections.
pub(crate) const CONNECTIONS: usize = 10_000;

/// Threads that open connections and send requests.
const THREADS: usize = 4;

/// Longest wait for the server: for a reply, and until it has the new certificates.
const PATIENCE: Duration = Duration::from_secs(120);

/// Beginning of a request, sent before the certificates are replaced, and the rest of it.
const BEGUN: &str = "set begun 0 0 5\r\nva";
const REST: &str = "lue\r\n";

/// Open files of a process beside its connections.
const FURTHER_FILES: u64 = 256;

/// Opens `connections`, sends a request on each and half a request on every second one, replaces
/// the certificates, and sends the rest and another request. A thread connects throughout the
/// reload: it must see the old certificate or the new one. Then a tenth as many new connections
/// must see the new certificate.
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

    in_threads(connections, |number| match number % 2 {
        0 => Ok(()),
        _ => (&before[number]).write_all(BEGUN.as_bytes()).context("cannot send"),
    })?;
    let replacement = new.server(&["127.0.0.1"]);
    let is_replaced = AtomicBool::new(false);
    let connected = std::thread::scope(|scope| {
        let connecting =
            scope.spawn(|| connect_until(&is_replaced, &server, [&old_client, &new_client]));
        let replaced = replace(&server, &files, &replacement, [&old_client, &new_client]);
        is_replaced.store(true, Ordering::Relaxed);
        match connecting.join() {
            Ok(connected) => replaced.and(connected),
            Err(_) => bail!("a client panicked"),
        }
    })?;

    let answered = in_threads(connections, |number| {
        let key = format!("key-{number}");
        let mut request = format!("get {key}\r\n");
        let mut reply = format!("VALUE {key} 0 {}\r\n{key}\r\nEND\r\n", key.len());
        if number % 2 == 1 {
            request.insert_str(0, REST);
            reply.insert_str(0, "STORED\r\n");
        }
        Ok(exchange(&before[number], &request, &reply))
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
        "tls-connections: {connections} opened in {opened:.1?}, 0 lost by the reload; {connected} \
         meanwhile, and {new_connections} more with the new certificate"
    );
    Ok(())
}

/// Replaces the files of a server, and waits until it shows the new certificate only. `clients`
/// trust the old certificate and the new one.
fn replace(
    server: &Server,
    files: &Files,
    replacement: &Files,
    [old_client, new_client]: [&ClientConfig; 2],
) -> Result<()> {
    std::fs::copy(&replacement.certificate, &files.certificate)?;
    std::fs::copy(&replacement.key, &files.key)?;
    server.reload()?;
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = connect(server, new_client) {
        if Instant::now() > deadline {
            return Err(error.context("the server does not show the new certificate"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(connect(server, old_client).is_err(), "the server still shows the old certificate");
    Ok(())
}

/// Connects again and again, at least once before and after `is_replaced` is set. Each connection
/// must see the old certificate, or the new one from then on. Returns their number.
fn connect_until(
    is_replaced: &AtomicBool,
    server: &Server,
    [old_client, new_client]: [&ClientConfig; 2],
) -> Result<usize> {
    let mut connected = 0;
    let mut client = old_client;
    loop {
        let is_last = is_replaced.load(Ordering::Relaxed);
        let stream = match connect(server, client) {
            Err(_) if std::ptr::eq(client, old_client) => {
                client = new_client;
                connect(server, client)
            }
            stream => stream,
        };
        let stream = stream.context("while the certificates are replaced")?;
        exchange(&stream, "get none\r\n", "END\r\n")?;
        connected += 1;
        if is_last {
            return Ok(connected);
        }
    }
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
