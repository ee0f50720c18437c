//! Service managers: states, watchdog and inherited sockets.

use crate::process::{exchange, path, succeed, wait_for};
use crate::tls::certificates::Authority;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::{Child, Command};
use std::time::Duration;

/// Returns the states that the server reports next, without those of the watchdog.
fn next_state(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    loop {
        let length = manager.recv(&mut bytes).expect("a state");
        let state = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if state != "WATCHDOG=1" {
            return state;
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("to signal the server");
}

#[test]
fn a_service_manager_learns_of_start_reload_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notify");
    // systemd has sockets with a path and abstract ones.
    let name = format!("tyrant-test-{}", std::process::id());
    let name_in_variable = format!("@{name}");
    let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let by_path = UnixDatagram::bind(&file).unwrap();
    for (manager, variable) in
        [(by_name, name_in_variable.as_str()), (by_path, file.to_str().unwrap())]
    {
        manager.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut child = Command::new(path("tyrant"))
            .args(["serve", "*", "--unix", "socket", "--log", "log"])
            .env("NOTIFY_SOCKET", variable)
            .env("WATCHDOG_USEC", "30000")
            .current_dir(&folder)
            .spawn()
            .unwrap();
        assert_eq!(next_state(&manager), "READY=1");
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"WATCHDOG=1");
        signal(&child, Signal::HUP);
        let reloading = next_state(&manager);
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert_eq!(next_state(&manager), "READY=1");
        signal(&child, Signal::TERM);
        assert_eq!(next_state(&manager), "STOPPING=1");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_socket_of_the_service_manager_replaces_the_endpoints_of_the_settings() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Connections wait in the socket before the server starts.
    let mut early = TcpStream::connect(address).unwrap();
    // The shell gives the socket the number 3 and the process its id, as a manager does.
    let script = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve '*' --port 1";
    let socket: std::os::fd::OwnedFd = listener.into();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec 3<&0 0</dev/null; {script}"), path("tyrant")]);
    let mut child = command.stdin(socket).spawn().unwrap();
    exchange(&mut early, "set k 0 0 1\r\na\r\n", "STORED\r\n");
    let mut late = wait_for("the server", || TcpStream::connect(address).ok());
    exchange(&mut late, "get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n");
    signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_unix_socket_of_the_service_manager_has_no_tls_beside_ports_that_require_it() {
    let authority = Authority::new();
    let files = authority.server(&["127.0.0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tyrant.sock");
    let listener: std::os::fd::OwnedFd = UnixListener::bind(&socket).unwrap().into();
    let script =
        "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve '*' --tls-cert \"$1\" --tls-key \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec 3<&0 0</dev/null; {script}"), path("tyrant")]);
    command.args([&files.certificate, &files.key]).stdin(listener);
    let mut child = command.spawn().unwrap();
    let address = socket.display().to_string();
    succeed("tyrant", &["put", "k", "value", "--server", &address]);
    assert_eq!(succeed("tyrant", &["get", "k", "--server", &address]), "value\n");
    signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn each_of_several_databases_gets_its_sockets_those_for_tls_alone_too() {
    let authority = Authority::new();
    let files = authority.server(&["127.0.0.1"]);
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = [0, 1, 2].map(|index: usize| listeners[index].local_addr().unwrap().port());
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "tls-cert = {:?}\ntls-key = {:?}\n
         [[database]]\nname = 'a.tch'\nport = {}\n
         [[database]]\nname = 'b.tch'\nport = {}\ntls-port = {}\n",
        files.certificate, files.key, ports[0], ports[1], ports[2]
    );
    let settings = folder.path().join("tyrant.toml");
    std::fs::write(&settings, text).unwrap();
    let script = "LISTEN_FDS=3 LISTEN_PID=$$ exec \"$0\" serve --config \"$1\"";
    // The last socket is first: the order is that of the manager.
    let [first, second, third] = listeners.map(std::os::fd::OwnedFd::from);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec 3<&0 4>&1 5>&2 0</dev/null 1>/dev/null 2>&1; {script}")]);
    command
        .arg(path("tyrant"))
        .arg(&settings)
        .current_dir(&folder)
        .stdin(third)
        .stdout(first)
        .stderr(second);
    let mut child = command.spawn().unwrap();
    let server = |port: u16| format!("127.0.0.1:{port}");
    let name = authority.file().display().to_string();
    let put = |port: u16, value: &str, options: &[&str]| {
        let address = server(port);
        succeed("tyrant", &[&["put", "k", value, "--server", &address], options].concat());
    };
    let get = |port: u16, options: &[&str]| {
        let address = server(port);
        succeed("tyrant", &[&["get", "k", "--server", &address], options].concat())
    };
    let secure = ["--tls-ca", &name];
    put(ports[0], "first", &secure);
    put(ports[1], "second", &[]);
    assert_eq!(get(ports[0], &secure).trim(), "first");
    assert_eq!(get(ports[2], &secure).trim(), "second");
    signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn completions_and_pages_exist_for_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed("tyrant", &["completions", shell]);
        assert!(script.contains("connections-max"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    succeed("tyrant", &["man", folder.path().to_str().unwrap()]);
    for page in ["tyrant.1", "tyrant-serve.1", "tyrant-config.1", "tyrant-get.1"] {
        let page = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let serve = std::fs::read_to_string(folder.path().join("tyrant-serve.1")).unwrap();
    assert!(serve.contains("connections\\-max"), "{serve}");
}
