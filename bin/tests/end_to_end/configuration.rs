//! Configuration: files, the environment, several databases, reload, and the pages about it.

use crate::process::{Server, exchange, fail, path, run, succeed, wait_for};
use rustix::process::Signal;
use std::net::TcpStream;
use std::path::Path;

const TWO: &str = "\
connections-max = 100

[[database]]
name = \"a.tch\"
port = PORT

[[database]]
name = \"b.tcb\"
port = OTHER
webdav = true
";

/// Returns the port that the log gives for a database.
fn port_of(server: &Server, database: &str) -> u16 {
    let log = server.log();
    let line = log.lines().find(|line| line.contains(&format!("serving {database} ")));
    let port = line.and_then(|line| line.split("127.0.0.1:").nth(1)).expect("its address");
    let digits = port.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).expect("its port")
}

#[test]
fn several_databases_have_their_own_ports_and_one_signal_ends_them() {
    let mut server = Server::configured(TWO, &[]);
    let other = wait_for("both databases", || {
        server.log().contains("serving b.tcb").then(|| port_of(&server, "b.tcb"))
    });
    let mut second = TcpStream::connect(("127.0.0.1", other)).unwrap();
    server.exchange("set k 0 0 1\r\na\r\n", "STORED\r\n");
    exchange(&mut second, "set k 0 0 1\r\nb\r\n", "STORED\r\n");
    server.exchange("get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n");
    exchange(&mut second, "get k\r\n", "VALUE k 0 1\r\nb\r\nEND\r\n");
    assert_eq!(server.end(Signal::TERM).code(), Some(0), "{}", server.log());
    for (database, value) in [("a.tch", "a"), ("b.tcb", "b")] {
        let database = server.folder.path().join(database);
        let exported = succeed("tyrant", &["export", database.to_str().unwrap()]);
        assert_eq!(exported, format!("k\t{value}\n"));
    }
}

#[test]
fn one_server_that_stops_ends_the_others() {
    let text = format!("shutdown-command = true\n{TWO}");
    let mut server = Server::configured(&text, &[]);
    server.exchange("shutdown\r\n", "");
    let status = wait_for("the end", || server.ended());
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(server.log().contains("service finished"), "{}", server.log());
}

#[test]
fn an_option_overrides_the_environment_and_that_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file.toml");
    std::fs::write(&file, "database = '*'\nport = 70\nmask = 'put'\nlog = 'log'\nthreads = 1\n")
        .unwrap();
    let (from_environment, from_option) =
        (crate::process::free_port(), crate::process::free_port());
    let serve = |arguments: &[&str], port: u16| {
        let mut child = std::process::Command::new(path("tyrant"))
            .arg("serve")
            .args(arguments)
            .env("TYRANT_CONFIG", &file)
            .env("TYRANT_PORT", from_environment.to_string())
            .env("TYRANT_MASK", "out")
            .env("TYRANT_WEBDAV", "no")
            .current_dir(&folder)
            .spawn()
            .unwrap();
        let mut stream = wait_for("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
        exchange(&mut stream, "set k 0 0 1\r\na\r\n", "STORED\r\n");
        exchange(&mut stream, "delete k\r\n", "CLIENT_ERROR forbidden\r\n");
        child.kill().unwrap();
        child.wait().unwrap();
    };
    serve(&[], from_environment);
    serve(&["--port", &from_option.to_string()], from_option);
    assert!(folder.path().join("log").exists(), "the file has a log");
}

#[test]
fn a_reload_changes_what_can_change_and_names_what_takes_a_restart() {
    let server = Server::configured("database = '*'\nport = PORT\n", &[]);
    let file = server.folder.path().join("tyrant.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut connection = server.connect();
    let reload = |text: &str, logged: &str| {
        std::fs::write(&file, text).unwrap();
        server.signal(Signal::HUP);
        wait_for(logged, || server.log().contains(logged).then_some(()));
    };

    reload(&text, "reload: no setting has changed");
    exchange(&mut connection, "set k 0 0 1\r\na\r\n", "STORED\r\n");
    reload(
        &format!("{text}mask = 'put'\nwebdav = true\nlog-level = 'debug'\n"),
        "reload: mask is [\"put\"], was unset",
    );
    exchange(&mut connection, "set k 0 0 1\r\na\r\n", "CLIENT_ERROR forbidden\r\n");
    let restart = "reload: webdav stays false until a restart, then true";
    wait_for(restart, || server.log().contains(restart).then_some(()));
    // The verbosity changes last.
    wait_for("debug", || {
        drop(server.connect());
        server.log().contains("\tDEBUG\tconnected: ").then_some(())
    });

    // An invalid file changes nothing, not even what would have been valid in it.
    let invalid = format!("{text}connections-max = 1\nexpiry = 'kept'\n");
    reload(&invalid, "all settings stay as they were: tyrant.toml:4: expiry: \"kept\" is not");
    exchange(&mut connection, "set k 0 0 1\r\na\r\n", "CLIENT_ERROR forbidden\r\n");
    server.exchange("get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n");

    // The settings that a reload took are those that the next one compares.
    reload(&text, "reload: mask is unset, was [\"put\"]");
    exchange(&mut connection, "set k 0 0 1\r\nb\r\n", "STORED\r\n");

    // A client's reload does the same.
    let address = server.address();
    std::fs::write(&file, format!("{text}connections-max = 99\nwebdav = true\n")).unwrap();
    let read = succeed("tyrant", &["reload", "--server", &address]);
    assert_eq!(
        read,
        "changed now: connections-max; changed after a restart: webdav; log reopened\n"
    );
    let logged = server.log();
    assert!(logged.contains("reload: connections-max is 99, was 65536"), "{logged}");
    std::fs::write(&file, &invalid).unwrap();
    let error = fail("tyrant", &["reload", "--server", &address]);
    assert!(error.contains("all settings stay as they were: tyrant.toml:4: "), "{error}");
}

#[test]
fn a_reload_finds_databases_by_name_and_says_which_require_a_restart() {
    let server = Server::configured(TWO, &[]);
    let other = wait_for("both databases", || {
        server.log().contains("serving b.tcb").then(|| port_of(&server, "b.tcb"))
    });
    let file = server.folder.path().join("tyrant.toml");
    let changed = format!(
        "[[database]]\nname = 'c.tch'\nport = 1\n[[database]]\nname = 'b.tcb'\nport = {other}\n\
         webdav = true\nmask = 'put'\n"
    );
    std::fs::write(&file, changed).unwrap();
    server.signal(Signal::HUP);
    wait_for("the reload", || {
        let log = server.log();
        let lines = [
            "reload: c.tch is new, and served after a restart",
            "reload: a.tch is not in the settings, but served until a restart",
            "reload of b.tcb: mask is [\"put\"], was unset",
        ];
        lines.iter().all(|line| log.contains(line)).then_some(())
    });
    server.exchange("set k 0 0 1\r\na\r\n", "STORED\r\n");
    let mut second = TcpStream::connect(("127.0.0.1", other)).unwrap();
    exchange(&mut second, "set k 0 0 1\r\nb\r\n", "CLIENT_ERROR forbidden\r\n");
}

#[test]
fn a_time_limit_that_a_reload_sets_ends_idle_connections() {
    let server = Server::configured("database = '*'\nport = PORT\n", &[]);
    let mut connection = server.connect();
    exchange(&mut connection, "get k\r\n", "END\r\n");
    let file = server.folder.path().join("tyrant.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "idle-timeout = 0.001\n").unwrap();
    server.signal(Signal::HUP);
    assert_eq!(std::io::Read::read(&mut connection, &mut [0]).unwrap(), 0, "the end of the stream");
}

#[test]
fn the_file_of_defaults_is_correct_and_an_incorrect_file_is_an_error_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tyrant.toml");
    let shown = file.to_str().unwrap();
    let check = ["config", "--check", shown];
    std::fs::write(&file, succeed("tyrant", &["config", "--defaults"])).unwrap();
    assert_eq!(succeed("tyrant", &check), {
        format!("{shown}: correct, serves {}/casket.tch\n", folder.path().display())
    });
    std::fs::write(&file, "port = 1978\n\nprot = 1979\n").unwrap();
    assert!(fail("tyrant", &check).starts_with(&format!("tyrant: {shown}:3: prot is not")));
    let serve = ["serve", "--config", shown];
    assert!(fail("tyrant", &serve).starts_with(&format!("tyrant: {shown}:3: prot is not")));
    std::fs::remove_file(&file).unwrap();
    assert!(fail("tyrant", &check).contains("cannot read the configuration"));
    assert_eq!(run::<&str>("tyrant", &["config"]).status.code(), Some(2));
}

#[test]
fn a_start_that_is_refused_has_its_reason_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tyrant.toml");
    let log = folder.path().join("log");
    std::fs::write(folder.path().join("file"), "mine").unwrap();
    for setting in [
        // The check before a start finds these.
        "database = 'none/casket.tch'",
        "database = 'file/casket.tch'",
        "database = 'a.tch#mode=w'",
        "script = 'none.lua'",
        "pid = 'none/pid'",
        "update-log = 'file'\nserver-id = 1",
        // Reading the settings finds these.
        "tls-cert = 'none.pem'\ntls-key = 'none.pem'",
        "users = 'none'",
    ] {
        let _ = std::fs::remove_file(&log);
        std::fs::write(&file, format!("log = 'log'\nport = 0\n{setting}\n")).unwrap();
        let error = fail("tyrant", &["serve", "--config", file.to_str().unwrap()]);
        let reason = error.strip_prefix("tyrant: ").unwrap();
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        assert_eq!(text.matches(&format!("\tERROR\t{reason}")).count(), 1, "{setting}: {text}");
        assert_eq!(text.lines().count(), 3, "{setting}: {text}");
    }
    // Not into a file that has another use.
    std::fs::write(&file, "log = 'users'\nusers = 'users'\nport = 0\n").unwrap();
    std::fs::write(folder.path().join("users"), "").unwrap();
    fail("tyrant", &["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(std::fs::read(folder.path().join("users")).unwrap(), b"");
}

#[test]
fn the_paths_of_a_file_do_not_depend_on_the_current_folder() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("below");
    for path in ["etc", "data/copies", "below"] {
        std::fs::create_dir_all(folder.path().join(path)).unwrap();
    }
    let file = folder.path().join("etc/tyrant.toml");
    let data = folder.path().join("data");
    let text = |port: u16, copies: &str| {
        format!(
            "folder = '../data'\nport = {port}\nlog = 'log'\nserver-id = 1\nupdate-log = 'ulog'\n\
             copy-dir = '{copies}'\ndatabase = 'a.tch#bnum=10'\n"
        )
    };
    let port = crate::process::free_port();
    std::fs::write(&file, text(port, "copies")).unwrap();
    let tyrant = || {
        let mut command = std::process::Command::new(path("tyrant"));
        command.current_dir(&below);
        command
    };
    let check = tyrant().args(["config", "--check", "../etc/tyrant.toml"]).output().unwrap();
    let shown = String::from_utf8(check.stdout).unwrap();
    assert_eq!(shown, "../etc/tyrant.toml: correct, serves ../etc/../data/a.tch#bnum=10\n");
    let mut child = tyrant().args(["serve", "--config", "../etc/tyrant.toml"]).spawn().unwrap();
    let mut stream = wait_for("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
    exchange(&mut stream, "set k 0 0 1\r\na\r\n", "STORED\r\n");
    child.kill().unwrap();
    child.wait().unwrap();
    for path in ["a.tch/manifest", "log", "ulog"] {
        assert!(data.join(path).exists(), "{path}");
    }
    assert_eq!(std::fs::read_dir(&below).unwrap().count(), 0);
    // Without the setting they are in the folder of the file, where this one is not.
    std::fs::write(&file, text(port, "copies").replace("folder = '../data'\n", "")).unwrap();
    let check = ["config", "--check", file.to_str().unwrap()];
    let error = fail("tyrant", &check);
    assert!(error.contains("tyrant.toml:5: copy-dir: ") && error.contains("etc/copies"), "{error}");
}

#[test]
fn a_variable_that_is_no_setting_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(path("tyrant"))
        .args(["serve", "*", "--port", "0", "--log", "log"])
        .env("TYRANT_CONNECTION_MAX", "9")
        .env("TYRANT_SERVER", "127.0.0.1:1")
        .current_dir(&folder)
        .spawn()
        .unwrap();
    let warning = "\tWARN\tthe variable TYRANT_CONNECTION_MAX is not of a setting, and has no \
                   effect: did you mean TYRANT_CONNECTIONS_MAX?";
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    wait_for(warning, || log().contains(warning).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!log().contains("TYRANT_SERVER"), "{}", log());
}

#[test]
fn a_login_at_a_master_takes_tls_or_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tyrant.toml");
    let login = folder.path().join("login");
    std::fs::write(&login, "ann:secret\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&login, mode).unwrap();
    let check = ["config", "--check", file.to_str().unwrap()];
    let common = "server-id = 1\nmaster-credentials = 'login'\n";
    std::fs::write(&file, format!("{common}master = '192.0.2.1:1978'\n")).unwrap();
    let error = fail("tyrant", &check);
    assert!(error.contains("tyrant.toml:2: master-credentials: requires master-tls"), "{error}");
    for further in [
        "master = '127.0.0.1:1979'",
        "master = '192.0.2.1:1978'\nmaster-plain-login = true",
        "master = '192.0.2.1:1978'\nmaster-tls = true\nmaster-tls-insecure = true",
    ] {
        std::fs::write(&file, format!("{common}{further}\n")).unwrap();
        succeed("tyrant", &check);
    }
}

#[test]
fn the_page_about_the_configuration_has_the_settings_as_they_are() {
    let page = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md"));
    let page = std::fs::read_to_string(page).unwrap();
    let tables = succeed("tyrant", &["config", "--markdown"]);
    assert!(page.contains(&tables), "docs/configuration.md is out of date: cargo xtask docs");
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_an_error_and_is_not_waited_for() {
    let authority = crate::tls::certificates::Authority::new();
    let files = authority.server(&["127.0.0.1"]);
    let text = format!(
        "database = '+'\nport = PORT\nscript = 'functions.lua'\ntls-optional = true\n\
         tls-cert = {:?}\ntls-key = {:?}\n",
        files.certificate, files.key
    );
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("functions.lua");
    std::fs::write(&script, "function f() end").expect("a script");
    let text = text.replace("functions.lua", script.to_str().expect("UTF-8"));
    let mut server = Server::configured(&text, &[]);
    let settings = server.folder.path().join("tyrant.toml");
    let log = server.folder.path().join("log");
    for path in [&settings, &script, &files.certificate, &files.key, &log] {
        let aside = path.with_extension("aside");
        std::fs::rename(path, &aside).expect("to move it");
        let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo");
        assert!(made.success());
        let error = fail("tyrant", &["reload", "--server", &server.address()]);
        let reason = if *path == log { "No such device" } else { "it is a pipe" };
        assert!(error.contains(reason), "{}: {error}", path.display());
        std::fs::rename(&aside, path).expect("to move it back");
    }
    assert!(server.end(Signal::TERM).success());
    let repository = folder.path().join("repository");
    let database = folder.path().join("casket.tch");
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    drop(cabinet::Database::open(&path(&database)).expect("a database"));
    let create = ["backup", "create", &path(&repository), "--database", &path(&database)];
    succeed("tyrant", &create);
    let objects = std::fs::read_dir(repository.join("files")).expect("its files");
    for object in objects.map(|object| object.expect("a file").path()) {
        std::fs::remove_file(&object).expect("to remove it");
        std::process::Command::new("mkfifo").arg(&object).status().expect("mkfifo");
    }
    let error = fail("tyrant", &["backup", "verify", &path(&repository)]);
    assert!(error.contains("it is a pipe"), "{error}");
}
