//! Service managers: states, watchdog and inherited sockets.

use crate::process::{exchange, path, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
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
fn completions_and_pages_exist_for_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = crate::process::succeed("tyrant", &["completions", shell]);
        assert!(script.contains("connections-max"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    crate::process::succeed("tyrant", &["man", folder.path().to_str().unwrap()]);
    for page in ["tyrant.1", "tyrant-serve.1", "tyrant-config.1", "tyrant-get.1"] {
        let page = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let serve = std::fs::read_to_string(folder.path().join("tyrant-serve.1")).unwrap();
    assert!(serve.contains("connections\\-max"), "{serve}");
}
