//! Floods of requests that cost memory: wrong logins, scripts of Redis's clients, and WebDAV. Other
//! clients are served beside them.

use super::{Enclosed, TIMEOUT};
use crate::memcached::Connection;
use crate::misc;
use anyhow::{Context, Result, anyhow, ensure};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clients of a flood.
const CLIENTS: usize = 16;

/// Time between two ordinary requests. Each has a connection, and the port of one that has ended
/// stays taken for a minute.
const PAUSE: Duration = Duration::from_millis(5);

/// Wrong logins of all clients together.
const WRONG_LOGINS: usize = 10_000;

/// Addresses from which they come. Each may fail a few times before it has to wait, and each
/// failure until then takes a hash.
const ADDRESSES: usize = 8;

/// The user of the server, and his password.
const USER: &str = "ann";
const PASSWORD: &str = "secret";

/// A wrong password of the user, as HTTP sends it: `ann:wrong`.
const WRONG_BASIC: &str = "YW5uOndyb25n";

/// Scripts that fill memory, of each client, and those that are remembered, with their bytes.
const FILLS: usize = 1;
const REMEMBERED: usize = 2000;
const REMEMBERED_BYTES: usize = 8 << 10;

/// Requests of each client of WebDAV for each form, and bytes of a long one.
const WEBDAV_REQUESTS: usize = 60;
const LONG_BYTES: usize = 4 << 20;

/// Bytes of one that is refused.
const LONGEST_BYTES: usize = 16 << 20;

/// Place of the status in a reply, and those of a server that has too much to do.
const STATUS: std::ops::Range<usize> = 9..12;
const OVERLOADED: [&str; 3] = ["423", "503", "507"];

/// Place of the number of a request in its target.
const NUMBER: &str = "{}";

/// Files in the folder that is listed.
const FILES: usize = 2000;

/// Scripts that take as much memory as they get.
const FILLING: &[&str] = &[
    "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
    "local s = 'xxxxxxxx' while true do s = s .. s end",
    "local t = {} while true do t = {t, t} t[3] = cjson.encode({('x'):rep(100000)}) t[4] = t end",
    "local t = {} for i = 1, 1e9 do t[i] = redis.call('GET', 'k') .. i end",
    "return cmsgpack.pack(('x'):rep(1e9))",
];

/// Runs all floods.
pub(super) fn run_all(programs: &Path) -> Result<()> {
    wrong_logins(programs)?;
    redis_scripts(programs)?;
    webdav(programs)
}

/// Runs `flood` for each client, and `ordinary` beside it again and again until all have ended.
/// Prints the time, and fails unless the server lives and `ordinary` has succeeded.
pub(super) fn beside(
    server: &mut Enclosed,
    name: &str,
    clients: usize,
    flood: impl Fn(usize) -> Result<()> + Sync,
    ordinary: impl Fn() -> Result<()> + Sync,
) -> Result<()> {
    let (began, are_over) = (Instant::now(), AtomicBool::new(false));
    let served = thread::scope(|scope| {
        let serve = || {
            let mut served = 0_u64;
            while !are_over.load(Ordering::Relaxed) {
                ordinary()?;
                served += 1;
                thread::sleep(PAUSE);
            }
            Ok::<_, anyhow::Error>(served)
        };
        let flood = &flood;
        let flooding: Vec<_> =
            (0..clients).map(|client| scope.spawn(move || flood(client))).collect();
        let beside = scope.spawn(serve);
        let ended: Vec<_> = flooding.into_iter().map(|client| client.join()).collect();
        are_over.store(true, Ordering::Relaxed);
        let served = beside.join().map_err(|_| anyhow!("a panic"))?;
        for client in ended {
            client.map_err(|_| anyhow!("a panic"))??;
        }
        served
    });
    server.check_alive().with_context(|| format!("after {name}"))?;
    let served = served.with_context(|| format!("beside {name}"))?;
    ensure!(served > 0, "no other request was answered beside {name}");
    println!(
        "small memory: {name} by {clients} clients ended after {:.1?}, {served} other requests \
         beside it",
        began.elapsed()
    );
    Ok(())
}

/// Logs in wrongly, over every protocol and from many addresses.
fn wrong_logins(programs: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let users = folder.path().join("users");
    add_user(programs, &users)?;
    let users = users.display().to_string();
    let mut server = Enclosed::start_with_options(programs, &["--users", &users])?;
    let port = server.server.port;
    let flood = |client: usize| {
        for number in (client..WRONG_LOGINS).step_by(CLIENTS) {
            let address = Ipv4Addr::new(127, 0, 1, (1 + number / CLIENTS % ADDRESSES) as u8);
            let reply = ask(address, port, &wrong_login(number))?;
            let text = reply.escape_ascii().to_string();
            ensure!(!text.contains("STORED") && !text.contains("+OK"), "logged in: {text}");
        }
        Ok(())
    };
    // The right password, from another address.
    let ordinary = || {
        let login = format!("{USER} {PASSWORD}");
        let mut connection = Connection::open(port)?;
        let reply = connection.set("login", login.as_bytes())?;
        ensure!(reply == "STORED", "a right login was answered with {reply:?}");
        ensure!(connection.set("k", b"v")? == "STORED", "a write was refused");
        Ok(())
    };
    // A password that was right is known at once.
    ordinary()?;
    beside(&mut server, &format!("{WRONG_LOGINS} wrong logins"), CLIENTS, flood, ordinary)
}

/// Makes a file with a user.
fn add_user(programs: &Path, users: &Path) -> Result<()> {
    let mut command = Command::new(programs.join("tyrant"));
    command.args(["user", "add", USER, "--quiet", "--users"]).arg(users).stdin(Stdio::piped());
    let mut child = command.spawn().context("cannot add a user")?;
    let mut input = child.stdin.take().context("no standard input")?;
    writeln!(input, "{PASSWORD}")?;
    drop(input);
    let status = child.wait()?;
    ensure!(status.success(), "tyrant user add ended with {status}");
    Ok(())
}

/// Returns a login with a wrong password, in one of the protocols.
fn wrong_login(number: usize) -> Vec<u8> {
    let password = format!("wrong-{number}");
    match number % 6 {
        0 => {
            let login = format!("{USER} {password}");
            format!("set login 0 0 {}\r\n{login}\r\n", login.len()).into_bytes()
        }
        1 => {
            let (mechanism, login) = ("PLAIN", format!("\0{USER}\0{password}"));
            let mut bytes = vec![0x80, 0x21, 0, mechanism.len() as u8, 0, 0, 0, 0];
            bytes.extend(((mechanism.len() + login.len()) as u32).to_be_bytes());
            bytes.extend([0; 12]);
            bytes.extend(mechanism.bytes().chain(login.bytes()));
            bytes
        }
        2 => redis(&["AUTH", USER, &password]),
        3 => redis(&["HELLO", "3", "AUTH", USER, &password]),
        4 => misc::request("login", &[USER.as_bytes(), password.as_bytes()]),
        _ => format!(
            "GET /k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {WRONG_BASIC}\r\n\
             Connection: close\r\n\r\n"
        )
        .into_bytes(),
    }
}

/// Sends scripts of Redis that fill the memory, and many that are remembered.
fn redis_scripts(programs: &Path) -> Result<()> {
    let mut server = Enclosed::start_with_options(programs, &[])?;
    let port = server.server.port;
    let mut connection = Connection::open(port)?;
    ensure!(connection.set("k", &[b'v'; 1000])? == "STORED", "a write was refused");
    let fill = |_| {
        for script in FILLING.iter().cycle().take(FILLS * FILLING.len()) {
            let reply = ask(Ipv4Addr::LOCALHOST, port, &redis(&["EVAL", script, "0"]))?;
            ensure!(reply.starts_with(b"-"), "{script} was answered with {:?}", {
                reply[..reply.len().min(100)].escape_ascii().to_string()
            });
        }
        Ok(())
    };
    // Not a script: it may find no memory left in the total of all scripts.
    let ordinary = || {
        let reply = ask(Ipv4Addr::LOCALHOST, port, &redis(&["STRLEN", "k"]))?;
        ensure!(reply == b":1000\r\n", "STRLEN returned {:?}", reply.escape_ascii().to_string());
        Ok(())
    };
    beside(&mut server, "scripts of Redis that fill the memory", CLIENTS, fill, ordinary)?;
    let remember = |client: usize| {
        for number in (client..REMEMBERED).step_by(CLIENTS) {
            let script = format!("return {number} --{}", "x".repeat(REMEMBERED_BYTES));
            for words in [["EVAL", &script, "0"].as_slice(), &["SCRIPT", "LOAD", &script]] {
                let reply = ask(Ipv4Addr::LOCALHOST, port, &redis(words))?;
                ensure!(reply.starts_with(b":") || reply.starts_with(b"$40"), "{:?}", {
                    reply.escape_ascii().to_string()
                });
            }
        }
        Ok(())
    };
    beside(&mut server, &format!("{REMEMBERED} scripts of Redis"), CLIENTS, remember, ordinary)
}

/// Requests of WebDAV: the line without the version, headers, the body, how many each client sends,
/// and the statuses that they may get.
struct WebdavFlood<'a>(&'static str, &'static str, Vec<u8>, usize, &'a [&'static str]);

/// Lists, locks and stores files, and sends long bodies.
fn webdav(programs: &Path) -> Result<()> {
    let mut server = Enclosed::start_with_options(programs, &["--webdav"])?;
    let port = server.server.port;
    let send = |line: &str, headers: &str, body: &[u8]| -> Result<Vec<u8>> {
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        ask(Ipv4Addr::LOCALHOST, port, &[head.as_bytes(), body].concat())
    };
    ensure!(send("MKCOL /d", "", b"")?.starts_with(b"HTTP/1.1 201"), "no folder was made");
    let mut connection = Connection::open(port)?;
    for number in 0..FILES {
        let reply = connection.set(&format!("d/file-{number}"), &[b'v'; 100])?;
        ensure!(reply == "STORED", "a write was answered with {reply:?}");
    }
    let long = vec![b'x'; LONG_BYTES];
    let longest = vec![b'x'; LONGEST_BYTES];
    let nested = format!("<?xml version=\"1.0\"?>{}", "<a xmlns=\"x:\">".repeat(200_000));
    let property = format!(
        "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"x:\"><D:set><D:prop>\
         <x:p>{}</x:p></D:prop></D:set></D:propertyupdate>",
        "y".repeat(200 << 10)
    );
    let lock = "<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:shared/>\
                </D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>";
    let ordinary = || {
        let reply = send("GET /d/file-1", "", b"")?;
        ensure!(reply.starts_with(b"HTTP/1.1 200"), "a file was answered with {:?}", {
            reply.escape_ascii().to_string()
        });
        Ok(())
    };
    let mut flood = |WebdavFlood(line, headers, body, requests, statuses): &WebdavFlood<'_>| {
        let name = format!("WebDAV's {}", line.split(' ').next().unwrap_or(line));
        let flood = |client: usize| {
            for number in 0..*requests {
                let line = line.replace(NUMBER, &format!("{client}-{number}"));
                let reply = send(&line, headers, body)?;
                let status = reply.get(STATUS).unwrap_or_default().escape_ascii().to_string();
                let is_expected = statuses.contains(&&*status) || OVERLOADED.contains(&&*status);
                ensure!(is_expected, "{line} was answered with {:?}", {
                    reply[..reply.len().min(200)].escape_ascii().to_string()
                });
            }
            Ok(())
        };
        beside(&mut server, &name, CLIENTS, flood, ordinary)
    };
    let floods = [
        WebdavFlood("PROPFIND /d", "Depth: 1\r\n", Vec::new(), WEBDAV_REQUESTS / 20, &["207"]),
        WebdavFlood(
            "PROPFIND /",
            "Depth: infinity\r\n",
            Vec::new(),
            WEBDAV_REQUESTS / 20,
            &["207"],
        ),
        WebdavFlood(
            "LOCK /d/lock-{}",
            "Depth: 0\r\nTimeout: Infinite\r\n",
            lock.into(),
            WEBDAV_REQUESTS / 2,
            &["200", "201"],
        ),
        WebdavFlood("PROPPATCH /d/file-1", "", property.into(), WEBDAV_REQUESTS / 10, &["413"]),
        WebdavFlood(
            "PROPFIND /d/file-1",
            "Depth: 0\r\n",
            nested.into(),
            WEBDAV_REQUESTS / 20,
            &["413"],
        ),
        WebdavFlood("PROPFIND /d/file-2", "Depth: 0\r\n", longest.clone(), 2, &["413"]),
        WebdavFlood("UNKNOWN /d/file-2", "", longest.clone(), 2, &["405"]),
        WebdavFlood("PUT /d/put-{}", "", long, 1, &["201"]),
        WebdavFlood(
            "COPY /d",
            "Destination: /copy\r\nOverwrite: T\r\n",
            Vec::new(),
            1,
            &["201", "204", "207"],
        ),
        WebdavFlood("PUT /d/longest-{}", "", longest, 1, &["201"]),
    ];
    floods.iter().try_for_each(|one| flood(one).with_context(|| one.0.to_owned()))
}

/// Returns the bytes of a request of Redis's protocol.
fn redis(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Sends a request from an address of this machine, and returns all that is answered.
fn ask(address: Ipv4Addr, port: u16, request: &[u8]) -> Result<Vec<u8>> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    // A port by `bind` must be free for every peer.
    if address != Ipv4Addr::LOCALHOST {
        bind(&socket, &SocketAddr::from((address, 0)))?;
    }
    connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut reply = Vec::new();
    // A request that is too long is refused before it was sent.
    let sent = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
    match stream.read_to_end(&mut reply) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => return Err(error).context("no reply"),
    }
    if reply.is_empty() {
        sent.context("cannot send")?;
    }
    Ok(reply)
}
