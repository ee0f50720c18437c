//! Update logs and replication between programs: killed, restarted, tailed and disconnected.

use crate::process::{Server, exchange, fail, free_port, misuse, path, run, succeed, wait_for};
use crate::tls::certificates::Authority;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use wire::Parse;
use wire::update_log::Message;

const STORED: &str = "STORED\r\n";

fn master() -> Server {
    Server::ttserver("casket.tch", &["-ulog", "ulog", "-sid", "1"])
}

fn replica(of: &Server) -> Server {
    let port = of.port.to_string();
    let options = ["-ulog", "ulog", "-sid", "2", "-mhost", "127.0.0.1", "-mport", &port];
    Server::ttserver("casket.tch", &options)
}

fn list(server: &Server) -> Vec<String> {
    let listed = succeed("tyrant", &["list", "--hex", "--server", &server.address(), "--values"]);
    let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn wait_until_equal(one: &Server, other: &Server) {
    wait_for("equal databases", || (list(one) == list(other)).then_some(()));
}

fn export(folder: &Path, options: &[&str]) -> String {
    let arguments = [&["export"], options, &[folder.to_str().expect("UTF-8")]].concat();
    succeed("ttulmgr", &arguments)
}

#[test]
fn a_replica_and_its_master_resume_after_kills() {
    let mut master = master();
    let mut replica = replica(&master);
    let append = |server: &Server, round: u32| {
        // A change executed twice would show.
        let address = server.address();
        let put = ["put", "--server", &address, "--append", "list", &format!("{round} ")];
        succeed("tyrant", &put);
    };
    for round in 0..4 {
        append(&master, round);
        if round % 2 == 0 {
            replica.end(Signal::KILL);
            append(&master, round + 10);
            replica.restart();
        } else {
            master.end(Signal::KILL);
            master.restart();
            append(&master, round + 10);
        }
        wait_until_equal(&master, &replica);
    }
    let list = succeed("tyrant", &["get", "--server", &replica.address(), "list"]);
    assert_eq!(list, "0 10 1 11 2 12 3 13 \n");
}

#[test]
fn a_replica_killed_while_it_follows_executes_nothing_twice() {
    let mut master = master();
    let mut replica = replica(&master);
    // Each pipeline increments 16 sums and appends a letter to 16 lists.
    let send = |master: &Server| {
        let mut stream = master.connect();
        let mut requests = Vec::new();
        for number in 0..30_000_u32 {
            let key = b'a' + (number % 16) as u8;
            requests.extend_from_slice(b"\xc8\x60\0\0\0\x01\0\0\0\x01");
            requests.push(key);
            if number % 10 < 2 {
                requests.extend_from_slice(b"\xc8\x12\0\0\0\x01\0\0\0\x01");
                requests.extend_from_slice(&[key.to_ascii_uppercase(), b'a' + (number % 23) as u8]);
            }
        }
        let mut reader = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut replies = vec![0; 30_000 * 5 + 6_000];
            let reading =
                std::thread::spawn(move || std::io::Read::read_exact(&mut reader, &mut replies));
            // The kill of a master ends the connection.
            let _ = stream.write_all(&requests);
            let _ = reading.join().unwrap();
        })
    };
    let mut kill_replica = |after_ms: u64| {
        std::thread::sleep(std::time::Duration::from_millis(after_ms));
        replica.end(Signal::KILL);
        replica.restart();
    };
    let sending = send(&master);
    for after_ms in [3, 20, 1, 40, 7, 13] {
        kill_replica(after_ms);
    }
    sending.join().unwrap();
    let sending = send(&master);
    kill_replica(15);
    master.end(Signal::KILL);
    kill_replica(0);
    master.restart();
    kill_replica(2);
    sending.join().unwrap();
    wait_until_equal(&master, &replica);
    assert_eq!(list(&replica).len(), 32);
}

#[test]
fn a_server_follows_a_master_and_stops_following_it() {
    let serve = |id: &str, more: &[&str]| {
        let options = [&["--update-log", "ulog", "--server-id", id][..], more].concat();
        Server::tyrant("casket.tch", &options)
    };
    let master = serve("1", &[]);
    let replica = serve("2", &["--allow-setmst"]);
    let on_replica = |words: &[&str]| {
        let address = replica.address();
        [words, &["--server", &address]]
            .concat()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let (one, two) = (master.address(), replica.address());
    let follow = succeed("tyrant", &on_replica(&["follow", &one]));
    assert_eq!(follow, format!("{two} follows {one}\n"));
    master.exchange("set k 0 0 1\r\nv\r\n", STORED);
    wait_until_equal(&master, &replica);
    let unfollow = succeed("tyrant", &on_replica(&["unfollow"]));
    assert_eq!(unfollow, format!("{two} no longer follows {one}\n"));
    let fail = |arguments: &[String]| crate::process::fail("tyrant", arguments);
    assert!(fail(&on_replica(&["unfollow"])).contains("it follows no master"));
    assert!(misuse(&on_replica(&["follow", "/a/path"])).contains("HOST:PORT"));
    let server = ["--server".to_owned(), one];
    let error = fail(&[&["follow".to_owned(), two][..], &server].concat());
    assert!(error.contains("was started without --allow-setmst"), "{error}");
    let server = Server::tyrant("*", &["--allow-setmst"]);
    let error = fail(&["follow", "h:1", "--server", &server.address()].map(String::from));
    assert!(error.contains("start the server with --server-id N"), "{error}");
}

#[test]
fn follow_says_why_the_replica_is_not_connected() {
    let authority = Authority::new();
    let certificates = authority.server(&["127.0.0.1"]);
    let options = ["--update-log", "ulog", "--server-id", "1"];
    let master = crate::tls::serve("+", &certificates, &options);
    let replica = Server::tyrant("+", &["--server-id", "2", "--allow-setmst"]);
    let (one, two) = (master.address(), replica.address());
    let error = fail("tyrant", &["follow", &one, "--server", &two]);
    let expected = format!("it follows {one} from now on, but is not connected to it: the master");
    assert!(error.contains(&expected), "{error}");
    assert!(error.contains("requires TLS: master-tls"), "{error}");
    let output = run("tyrant", &["replicas", "--server", &two]);
    let lines = String::from_utf8_lossy(&output.stdout);
    assert!(lines.contains("connecting, nothing received yet: the master"), "{lines}");
    // Without the options of TLS the command cannot ask the master.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn follow_warns_of_what_only_the_replica_has() {
    let master = Server::tyrant("+", &["--update-log", "ulog", "--server-id", "1"]);
    let replica = Server::tyrant("+", &["--server-id", "2", "--allow-setmst"]);
    let (one, two) = (master.address(), replica.address());
    let follow = || {
        let output = run("tyrant", &["follow", &one, "--server", &two]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    master.exchange("set a 0 0 1\r\n1\r\n", STORED);
    assert_eq!(follow(), "");
    wait_until_equal(&master, &replica);
    succeed("tyrant", &["unfollow", "--server", &two]);
    replica.exchange("set only 0 0 4\r\nhere\r\n", STORED);
    let warning = follow();
    let expected = "warning: its records may differ from the master's: changes were made here";
    assert!(warning.contains(expected), "{warning}");
    let lines = succeed("tyrant", &["replicas", "--server", &two]);
    assert!(lines.contains("may differ from its master: changes were made here"), "{lines}");
    assert!(replica.log().contains("may differ from those of"), "{}", replica.log());
}

/// Each of them would be taken for the sender of the other's changes.
#[test]
fn a_second_replica_with_the_id_of_another_is_refused_until_that_is_gone() {
    let master = Server::tyrant("+", &["--update-log", "ulog", "--server-id", "1"]);
    let options = ["--server-id", "2", "--master", &master.address()];
    let mut first = Server::tyrant("+", &options);
    wait_for_stat(&first, "replication_state\tfollowing");
    let second = Server::tyrant("+", &options);
    let reason = format!(
        "replication_error\tthe master refuses this replica: the replica at {} has its server id, 2: \
         give each its own --server-id",
        first.address()
    );
    wait_for_stat(&second, &reason);
    let lines = succeed("tyrant", &["replicas", "--server", &second.address()]);
    assert!(lines.contains(&first.address()) && lines.contains(&second.address()), "{lines}");
    assert!(lines.contains("refuses this replica"), "{lines}");
    first.end(Signal::KILL);
    wait_for_stat(&second, "replication_state\tfollowing");
    master.exchange("set k 0 0 1\r\nv\r\n", STORED);
    wait_until_equal(&master, &second);
}

#[test]
fn follow_warns_of_a_ring_in_which_nobody_writes() {
    let options = |id| ["--update-log", "ulog", "--allow-setmst", "--server-id", id];
    let one = Server::tyrant("+", &options("1"));
    let two = Server::tyrant("+", &options("2"));
    let follow = |master: &Server, replica: &Server| {
        let arguments = ["follow", &master.address(), "--server", &replica.address()];
        let output = run("tyrant", &arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(follow(&one, &two), "");
    let warning = follow(&two, &one);
    let expected =
        format!("{} follows this server too, so that neither takes changes", two.address());
    assert!(warning.contains(&expected), "{warning}");
}

#[test]
fn a_server_that_is_told_to_follow_itself_logs_the_reason() {
    for (options, reason) in [
        (
            &["--update-log", "ulog"][..],
            "it is this server itself, by the identity of its update log",
        ),
        (&[], "the master has the id of this server, 1: give one of them another --server-id"),
    ] {
        let options = [&["--server-id", "1", "--allow-setmst"], options].concat();
        let server = Server::tyrant("*", &options);
        let port = server.port.to_string();
        succeed("tcrmgr", &["setmst", "-port", &port, "-mport", &port, "127.0.0.1", "127.0.0.1"]);
        wait_for(reason, || server.log().contains(reason).then_some(()));
    }
}

#[test]
fn a_replica_that_its_master_refuses_is_told_the_remedy_and_shown() {
    let serve = |id: &str, seed: &str| {
        let options = ["--update-log", "ulog", "--allow-setmst", "--server-id", id, "--seed", seed];
        Server::tyrant("+", &options)
    };
    let (one, two) = (serve("1", "always"), serve("2", "empty"));
    let take_over = |next: &Server, last: &Server| {
        let promoted = run("tyrant", &["promote", "--server", &next.address()]);
        let warning = format!("the old master {} still answers, and takes", last.address());
        assert!(String::from_utf8_lossy(&promoted.stderr).contains(&warning), "{promoted:?}");
        succeed("tyrant", &["follow", &next.address(), "--server", &last.address()]);
        next.exchange("append k 0 0 1\r\nv\r\n", STORED);
        wait_until_equal(&one, &two);
        wait_for("its knowledge of the logs", || knows(last).then_some(()));
    };
    succeed("tyrant", &["follow", &one.address(), "--server", &two.address()]);
    one.exchange("set k 0 0 1\r\nv\r\n", STORED);
    wait_until_equal(&one, &two);
    take_over(&two, &one);
    take_over(&one, &two);
    succeed("tyrant", &["unfollow", "--server", &two.address()]);
    two.exchange("set own 0 0 1\r\nv\r\n", STORED);
    let error = fail("tyrant", &["follow", &one.address(), "--server", &two.address()]);
    assert!(error.contains("that the master lacks; started again with --seed always"), "{error}");
    assert!(error.contains("promote it, and let the master follow it"), "{error}");
    let lines = succeed("tyrant", &["replicas", "--server", &two.address()]);
    // Its master has served it before. As it answers, its state is shown, and the exit code is 0.
    let line = lines.lines().nth(1).unwrap_or_default();
    let begin = format!("  {}\tsid 2\tnot connected since ", two.address());
    let state = format!(" behind, replica of {}, stopped", one.address());
    assert!(line.starts_with(&begin) && line.contains(&state), "{lines}");
}

#[test]
fn a_master_logs_that_a_replica_has_not_logged_in_or_may_not_replicate() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    crate::users::add(&users, "ann", "secret");
    crate::users::add(&users, "bob", "secret");
    let file = users.to_str().expect("a name");
    succeed("tyrant", &["user", "rights", "bob", "--rights", "read", "--quiet", "--users", file]);
    let login = folder.path().join("login");
    fs::write(&login, "bob:secret\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&login, mode).expect("a mode");
    let options = ["--update-log", "ulog", "--server-id", "1", "--users"];
    let users = users.to_str().expect("a name");
    let master = Server::tyrant("+", &[&options[..], &[users]].concat());
    let _replica = Server::tyrant("+", &["--server-id", "2", "--master", &master.address()]);
    let line = "is refused: it has not logged in, set its master-credentials";
    wait_for("the line", || master.log().contains(line).then_some(()));
    let login = login.to_str().expect("a name");
    let options = ["--server-id", "3", "--master", &master.address(), "--master-credentials"];
    let _other = Server::tyrant("+", &[&options[..], &[login]].concat());
    let line = "is refused: the user lacks the right admin";
    wait_for("the other line", || master.log().contains(line).then_some(()));
}

/// Returns whether a replica knows its progress in every log.
fn knows(replica: &Server) -> bool {
    let mut files = fs::read_dir(replica.folder.path()).expect("a folder");
    let notes = files.find_map(|file| {
        let path = file.expect("a file").path();
        path.extension().is_some_and(|extension| extension == "lanes").then_some(path)
    });
    notes.is_some_and(|notes| fs::read(notes).expect("notes").get(16) == Some(&1))
}

/// The replica learns its progress every second, so most connections last longer than the last.
#[test]
fn a_replica_killed_while_it_goes_from_server_to_server_executes_nothing_twice() {
    let serve = |id: &str, more: &[&str]| {
        let options = [&["--update-log", "ulog", "--server-id", id][..], more].concat();
        Server::tyrant("casket.tch", &options)
    };
    let master = serve("1", &[]);
    let middle = serve("2", &["--master", &master.address()]);
    let mut replica = serve("3", &["--seed", "never", "--allow-setmst"]);
    let follow = |replica: &Server, master: &Server| {
        let ports = [replica, master].map(|server| server.port.to_string());
        succeed(
            "tcrmgr",
            &["setmst", "-port", &ports[0], "-mport", &ports[1], "127.0.0.1", "127.0.0.1"],
        );
    };
    follow(&replica, &middle);
    for key in 0..16 {
        master.exchange(
            format!("set n{key} 0 0 1\r\n0\r\nset t{key} 0 0 1\r\n0\r\n"),
            [STORED; 2].concat(),
        );
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = std::time::Instant::now();
            // Also if something else fails.
            while !is_over.load(std::sync::atomic::Ordering::Relaxed)
                && started.elapsed().as_secs() < 60
            {
                for key in 0..16 {
                    let request = format!("append t{key} 0 0 1\r\n+\r\nincr n{key} 1 noreply\r\n");
                    master.exchange(request, STORED);
                }
            }
        });
        for to in [&master, &middle, &master] {
            std::thread::sleep(std::time::Duration::from_millis(1200));
            wait_for("the replica's progress", || knows(&replica).then_some(()));
            replica.end(Signal::KILL);
            replica.restart();
            follow(&replica, to);
            std::thread::sleep(std::time::Duration::from_millis(20));
            replica.end(Signal::KILL);
            replica.restart();
            follow(&replica, to);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    wait_until_equal(&master, &replica);
    assert!(replica.log().contains("continuing in another log"), "{}", replica.log());
    assert!(!replica.log().contains("by time stamps"), "{}", replica.log());
}

#[test]
fn tyrant_serve_replicates_too() {
    let master = Server::tyrant("casket.tch", &["--update-log", "ulog", "--server-id", "1"]);
    let options = ["--sid", "2", "--master", &master.address(), "--allow-setmst"];
    let replica = Server::tyrant("casket.tch", &options);
    master.exchange("set a 5 0 1\r\nb\r\n", STORED);
    wait_until_equal(&master, &replica);
    replica.exchange("get a\r\n", "VALUE a 5 1\r\nb\r\nEND\r\n");
    // Tokyo Tyrant's tool changes the master at run time.
    let port = replica.port.to_string();
    succeed("tcrmgr", &["setmst", "-port", &port, "127.0.0.1", ""]);
    // Clients may not, unless an option allows it.
    let port = master.port.to_string();
    fail("tcrmgr", &["setmst", "-port", &port, "127.0.0.1", ""]);
}

#[test]
fn any_server_shows_the_whole_replication_tree() {
    let serve = |id: &str, master: Option<&Server>| {
        let address = master.map(Server::address);
        let mut options = vec!["--update-log", "ulog", "--server-id", id];
        options.extend(address.iter().flat_map(|address| ["--master", address]));
        Server::tyrant("casket.tch", &options)
    };
    let first = serve("1", None);
    let second = serve("2", Some(&first));
    let third = serve("3", Some(&second));
    first.exchange("set a 5 0 1\r\nb\r\n", STORED);
    wait_until_equal(&first, &third);
    let [one, two, three] = [&first, &second, &third].map(Server::address);
    let expected = [
        format!("{one}\tsid 1\tmaster"),
        format!("  {two}\tsid 2\tstreaming, 0 operations, 0.000 s behind"),
        format!("    {three}\tsid 3\tstreaming, 0 operations, 0.000 s behind"),
    ];
    for asked in [&one, &two, &three] {
        // Their progress is reported periodically.
        wait_for("no lag", || {
            let lines = succeed("tyrant", &["replicas", "--server", asked]);
            (lines.lines().collect::<Vec<_>>() == expected).then_some(())
        });
    }
    drop(third);
    wait_for("the replica's end", || {
        let output = run("tyrant", &["replicas", "--server", &one]);
        let lines = String::from_utf8(output.stdout).expect("UTF-8");
        let last = format!("    {three}\tsid 3\tnot connected since ");
        let is_lost = lines.lines().nth(2).is_some_and(|line| line.starts_with(&last));
        (is_lost && output.status.code() == Some(1)).then_some(())
    });
}

#[test]
fn a_replica_that_hangs_or_was_killed_stays_known_until_it_is_back_or_forgotten() {
    let master = Server::tyrant("casket.tch", &["--update-log", "ulog", "--server-id", "1"]);
    let one = master.address();
    let mut replica = Server::tyrant("casket.tch", &["--server-id", "2", "--master", &one]);
    let two = replica.address();
    let ask = || {
        let output = run("tyrant", &["replicas", "--server", &one]);
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let attention = || {
        let line = succeed("tyrant", &["stat", "attention", "--server", &one]);
        line.trim_end().split_once('\t').expect("a name and a value").1.to_owned()
    };
    let is_connected = || {
        let (code, tree) = ask();
        let line = format!("  {two}\tsid 2\tstreaming");
        (code == Some(0) && tree.contains(&line) && attention() == "none").then_some(())
    };
    wait_for("the replica", is_connected);
    let lost = format!("replica 2 at {two} is not connected for ");
    let line = format!("  {two}\tsid 2\tnot connected since ");
    let is_lost = || {
        let (code, tree) = ask();
        let is_shown = tree.contains(&line) && tree.contains("does not answer: ");
        (code == Some(1) && is_shown && attention().starts_with(&lost)).then_some(())
    };
    let forget = ["replicas", "--server", &one, "--forget", "2"];
    let error = fail("tyrant", &forget);
    assert!(error.contains("no replica that is not connected has the server id 2"), "{error}");
    replica.signal(Signal::STOP);
    wait_for("a replica that hangs", is_lost);
    assert!(master.log().contains("replica 2: disconnected: it has sent nothing for 4 s"));
    let metrics =
        succeed("tcrmgr", &["misc", "-port", &master.port.to_string(), "127.0.0.1", "metrics"]);
    let mut metrics = metrics.lines();
    let line = metrics.find(|line| line.starts_with("tyrant_replicas_disconnected{"));
    assert!(line.is_some_and(|line| line.ends_with("} 1")), "{line:?}");
    replica.signal(Signal::CONT);
    wait_for("a replica that goes on", is_connected);
    replica.end(Signal::KILL);
    wait_for("a replica that was killed", is_lost);
    replica.restart();
    wait_for("a replica that is back", is_connected);
    replica.end(Signal::KILL);
    wait_for("a replica that was killed again", is_lost);
    assert_eq!(succeed("tyrant", &forget), format!("{one} forgets replica 2 at {two}\n"));
    assert_eq!(attention(), "none");
    assert_eq!(ask(), (Some(0), format!("{one}\tsid 1\tmaster\n")));
}

#[test]
fn a_replica_whose_master_is_away_is_shown_as_such() {
    let master = format!("127.0.0.1:{}", free_port());
    let replica = Server::tyrant("casket.tch", &["--server-id", "2", "--master", &master]);
    let address = replica.address();
    let ask = |options: &[&str]| {
        let output = run("tyrant", &[&["replicas", "--server", &address], options].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1), "{output:?}");
        assert!(error.contains("1 server does not answer, as the output has it"), "{error}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let shown = wait_for("the first attempt", || {
        Some(ask(&[])).filter(|shown| shown.contains("nothing received yet: "))
    });
    let [above, line] = shown.lines().collect::<Vec<_>>()[..] else { panic!("{shown}") };
    let away = format!("{master}\tdoes not answer: cannot connect to {master}: ");
    // Advice about the server of the command would not fit the master.
    let advice = format!(
        "; check that it runs, and that this machine reaches it there, or give its address: \
         --for {master},at=HOST:PORT"
    );
    assert!(above.starts_with(&away) && above.ends_with(&advice), "{above}");
    assert!(!above.contains("tyrant serve"), "{above}");
    let state =
        "connecting, nothing received yet: cannot connect: Connection refused (os error 111)";
    assert_eq!(line, format!("{address}\tsid 2\treplica of {master}, {state}"));
    let shown = ask(&["--json"]);
    assert!(!shown.contains("lag_seconds"), "{shown}");
}

#[test]
fn a_replica_that_listens_at_another_address_is_asked_there() {
    let master = Server::tyrant("casket.tch", &["--update-log", "ulog", "--server-id", "1"]);
    let options = ["--server-id", "2", "--master", &master.address()];
    let replica = Server::tyrant("casket.tch", &options);
    let ask = |at: &str| {
        let own = format!("{},at={at}", replica.address());
        let output = run("tyrant", &["replicas", "--server", &master.address(), "--for", &own]);
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let there = format!("localhost:{}", replica.port);
    let line = format!("  {}\tsid 2\tstreaming", replica.address());
    let tree = wait_for("the replica", || Some(ask(&there)).filter(|tree| tree.contains(&line)));
    assert!(!tree.contains("does not answer"), "{tree}");
    let elsewhere = format!("127.0.0.1:{}", free_port());
    let tree = ask(&elsewhere);
    assert!(tree.contains(&format!("does not answer: cannot connect to {elsewhere}")), "{tree}");
    let advice = format!(": --for {},at=HOST:PORT", replica.address());
    assert!(tree.contains(&advice), "{tree}");
}

#[test]
fn conflicting_masters_are_detected_by_check_consistency() {
    let options = |id| ["-ulog", "ulog", "-sid", id, "-rcc"];
    let servers = ["1", "2"].map(|id| Server::ttserver("casket.tch", &options(id)));
    let [one, other] = &servers;
    let put = |server: &Server, key: &str| {
        succeed("tyrant", &["put", "--server", &server.address(), key, &server.port.to_string()]);
    };
    put(one, "of one");
    put(other, "of the other");
    put(one, "of both");
    put(other, "of both");
    for (server, master) in [(one, other), (other, one)] {
        let (port, master) = (server.port.to_string(), master.port.to_string());
        succeed(
            "tcrmgr",
            &["setmst", "-port", &port, "-mport", &master, "-rcc", "127.0.0.1", "127.0.0.1"],
        );
    }
    for server in &servers {
        wait_for("all records", || (list(server).len() == 3).then_some(()));
    }
    wait_for("a line in a log", || {
        let logs =
            servers.each_ref().map(|server| fs::read_to_string(server.folder.path().join("log")));
        let logs = logs.map(Result::unwrap).concat();
        let reports: Vec<&str> =
            logs.lines().filter(|line| line.contains("at the same time")).collect();
        assert!(
            reports.iter().all(|line| line.contains("\"of both\" was changed here and on server"))
        );
        (!reports.is_empty()).then_some(())
    });
}

#[test]
fn a_promoted_replica_takes_the_place_of_its_master() {
    let mut master = Server::tyrant("casket.tch", &["--update-log", "ulog", "--server-id", "1"]);
    let error = fail("tyrant", &["promote", "--server", &master.address()]);
    assert!(error.contains("follows no master"), "{error}");
    let options = ["--sid", "2", "--master", &master.address()];
    let mut replica = Server::tyrant("casket.tch", &options);
    master.exchange("set a 5 0 1\r\nb\r\n", STORED);
    wait_until_equal(&master, &replica);
    // A partial copy could not be promoted.
    wait_for("the end of the copy", || {
        let stat = succeed("tyrant", &["stat", "--server", &replica.address()]);
        stat.contains("replication_state\tfollowing").then_some(())
    });
    let error = fail("tyrant", &["put", "--server", &replica.address(), "a", "c"]);
    let reason = format!("this is a read-only replica of {}", master.address());
    assert!(error.contains(&reason), "{error}");
    // One failure has one cause.
    let error = fail("tyrant", &["unfollow", "--server", &replica.address()]);
    let cause = "refuses unfollow: the server was started without --allow-setmst";
    assert!(error.contains(cause) && !error.contains("read-only"), "{error}");
    master.end(Signal::KILL);
    let rts = succeed("tyrant", &["stat", "rts", "--server", &replica.address()]);
    let rts = format!("(rts {})", rts.trim_ascii().rsplit('\t').next().unwrap_or_default());
    wait_for_stat(&replica, "replication_state\tconnecting");
    let tree = run("tyrant", &["replicas", "--server", &replica.address()]).stdout;
    let tree = String::from_utf8_lossy(&tree).into_owned();
    let unknown = "connecting, lag unknown without its master, executed up to ";
    assert!(tree.contains(unknown) && tree.contains(&rts), "{tree}");
    let json = run("tyrant", &["replicas", "--json", "--server", &replica.address()]).stdout;
    let json = String::from_utf8_lossy(&json).into_owned();
    assert!(json.contains("executed_us") && !json.contains("lag_operations"), "{json}");
    let output = run("tyrant", &["promote", "--server", &replica.address()]);
    let promoted = String::from_utf8_lossy(&output.stdout).into_owned();
    let beginning = format!("promoted: it followed {} up to ", master.address());
    assert!(promoted.starts_with(&beginning) && promoted.contains(&rts), "{promoted}");
    assert!(promoted.contains("compare: a replica with a greater rts"), "{promoted}");
    assert!(output.stderr.is_empty(), "{output:?}");
    replica.end(Signal::KILL);
    replica.restart();
    succeed("tyrant", &["put", "--server", &replica.address(), "a", "c"]);
}

#[test]
fn an_update_log_without_a_server_id_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let ulog = folder.path().join("ulog");
    let error = fail(
        "ttserver",
        &["-port", "0", "-host", "/nowhere/s", "-ulog", ulog.to_str().unwrap(), "*"],
    );
    assert!(!error.is_empty());
    let error = misuse(&[
        "serve",
        "*",
        "--port",
        "0",
        "--host",
        "127.0.0.1",
        "--ulog",
        ulog.to_str().unwrap(),
    ]);
    assert!(error.contains("update-log: requires server-id, an id from 1 to 65535"), "{error}");
}

#[test]
fn a_tokyo_tyrant_log_is_exported_identically_and_imported_again() {
    let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/captured");
    let text = fs::read_to_string(captured.join("update-log.tsv")).unwrap();
    let log = captured.join("update-log");
    assert_eq!(export(&log, &[]), text);
    assert_eq!(export(&log, &["-sid", "3"]), "");
    let last: Vec<&str> = text.lines().rev().take(2).collect();
    assert_eq!(export(&log, &["-ts", "1795226398388952"]), format!("{}\n{}\n", last[1], last[0]));
    let folder = tempfile::tempdir().unwrap();
    let imported = folder.path().join("imported");
    let mut import = Command::new(path("ttulmgr"))
        .args(["import", imported.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = import.stdin.take().unwrap();
    input.write_all(b"no entry\nno\xfftext\n").unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    assert!(import.wait().unwrap().success());
    let bytes = |folder: &Path, number: u32| {
        fs::read(folder.join(format!("{number:08}.ulog"))).unwrap_or_default()
    };
    assert_eq!(bytes(&imported, 1), [bytes(&log, 1), bytes(&log, 2)].concat());
    let output = run("ttulmgr", &["export"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.starts_with("usage: ")
            && error.ends_with("ttulmgr export [-ts num] [-sid num] upath\n"),
        "{error}"
    );
}

#[test]
fn tail_prints_past_and_new_changes() {
    let master = master();
    master.exchange("set a 0 0 1\r\nb\r\n", STORED);
    let address = master.address();
    let tail = |arguments: &[&str]| {
        let mut child = Command::new(path("tyrant"))
            .args(["tail", "--server", &address, "--from", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    };
    let (mut child, mut lines) = tail(&["--max", "2"]);
    assert!(lines.next().unwrap().unwrap().ends_with("\t1\tput\tok\ta\tb"));
    master.exchange("delete a\r\n", "DELETED\r\n");
    assert!(lines.next().unwrap().unwrap().ends_with("\t1\tout\tok\ta"));
    assert!(child.wait().unwrap().success());
    let (mut child, mut lines) = tail(&["--format", "jsonl", "--max", "1"]);
    let line = lines.next().unwrap().unwrap();
    let put = r#""server_id":1,"command":"put","succeeded":true,"key":"a","value":"b"}"#;
    assert!(line.starts_with(r#"{"timestamp_us":1"#) && line.ends_with(put), "{line}");
    child.wait().unwrap();
    // It would wait for ever.
    let lines = succeed("tyrant", &["tail", "--server", &address, "--from", "0", "--to-end"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert_eq!(succeed("tyrant", &["tail", "--server", &address, "--to-end"]), "");
}

#[test]
fn the_first_copy_of_a_replica_and_the_end_of_a_reader_of_the_log_are_no_warnings() {
    let master = Server::tyrant("casket.tch", &["--update-log", "ulog", "--server-id", "1"]);
    master.exchange("set a 0 0 1\r\nb\r\n", STORED);
    let options = ["--sid", "2", "--update-log", "ulog", "--master", &master.address()];
    let replica = Server::tyrant("casket.tch", &options);
    wait_until_equal(&master, &replica);
    let begins = "\tINFO\tinitial sync from server 1 begins: 1 records";
    assert!(replica.log().contains(begins), "{}", replica.log());
    succeed("tyrant", &["tail", "--server", &master.address(), "--from", "0", "--max", "1"]);
    let begins = "\tINFO\treader at 127.0.0.1:";
    let ends = |line: &str| line.contains(begins) && line.ends_with(": disconnected");
    wait_for("its end", || master.log().lines().any(ends).then_some(()));
    for log in [master.log(), replica.log()] {
        let is_of_replication = |line: &&str| line.contains("replica") || line.contains("sync");
        let mut lines = log.lines().filter(|line| line.contains("\tWARN\t"));
        assert_eq!(lines.find(is_of_replication), None, "{log}");
    }
}

#[test]
fn tcrmgr_repl_prints_what_a_master_sends() {
    let master = master();
    master.exchange("set a 0 0 1\r\nb\r\n", STORED);
    let port = master.port.to_string();
    let mut child = Command::new(path("tcrmgr"))
        .args(["repl", "-port", &port, "-ph", "127.0.0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(line.ends_with("\t1:1\tput\tC8 10 00 00 00 01 00 00 00 01 61 62 00"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Returns requests of all kinds on few records: the thousand numbered `round`.
fn requests(client: u32, round: u32) -> Vec<u8> {
    let mut requests = Vec::new();
    for number in 0..1000 {
        let key = format!("{}", (number * 7 + round) % 50);
        let bytes = key.len() as u8;
        match number % 5 {
            0 => requests.extend(format!("set {key} {client} 0 3\r\n{number:03}\r\n").bytes()),
            1 => requests.extend(format!("delete {key}\r\n").bytes()),
            2 => requests.extend(format!("append list{client} 0 0 2\r\n,{client}\r\n").bytes()),
            3 => requests.extend(format!("set list{client} 0 0 1\r\n{client}\r\n").bytes()),
            _ => {
                requests.extend_from_slice(b"\xc8\x60\0\0\0");
                requests.extend_from_slice(&[bytes + 1, 0, 0, 0, 1, b'n']);
                requests.extend(key.bytes());
            }
        }
    }
    requests
}

/// Sends requests until the server is gone. Signals `warmed` after a number of responses.
fn load(server: &Server, client: u32, warmed: &std::sync::mpsc::Sender<()>) {
    let stream = server.connect();
    let mut reader = stream.try_clone().expect("another handle");
    let mut writer = stream;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Writing fails once the server is gone.
            (0..).take_while(|round| writer.write_all(&requests(client, *round)).is_ok()).count()
        });
        let mut read = 0;
        let mut buffer = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = std::io::Read::read(&mut reader, &mut buffer) {
            read += bytes;
            if read > 30_000 {
                // The receiver may be gone.
                let _ = warmed.send(());
            }
        }
    });
}

#[test]
fn a_master_that_is_killed_under_load_and_its_replica_end_equal() {
    let mut master = master();
    let replica = replica(&master);
    for _ in 0..4 {
        let (warmed, is_warm) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for client in 1..4 {
                let (master, warmed) = (&master, warmed.clone());
                scope.spawn(move || load(master, client, &warmed));
            }
            is_warm.recv().unwrap();
            master.signal(Signal::KILL);
        });
        master.end(Signal::KILL);
        master.restart();
        wait_until_equal(&master, &replica);
    }
}

/// Reads what a master sends to a slow Tokyo Tyrant replica, and kills the master after `reads`
/// reads. Returns all bytes received.
fn stream_of_a_killed_master(master: &mut Server, reads: usize) -> Vec<u8> {
    let mut stream = master.connect();
    let mut ask = b"\xc8\xa0".to_vec();
    ask.extend_from_slice(&1_u64.to_be_bytes());
    ask.extend_from_slice(&99_u32.to_be_bytes());
    stream.write_all(&ask).expect("a master");
    let mut received = Vec::new();
    let mut piece = vec![0; 100_000];
    let mut read = 0;
    // Until after the first message, which is a short one.
    while read < reads || received.len() < 1000 {
        let count = stream.read(&mut piece).expect("a master");
        assert!(count > 0, "the master has ended the stream");
        received.extend_from_slice(&piece[..count]);
        read += 1;
        std::thread::sleep(Duration::from_millis(3));
    }
    // Meanwhile the buffers between the two fill up, unless the master is slow.
    std::thread::sleep(Duration::from_millis(50));
    master.end(Signal::KILL);
    stream.read_to_end(&mut received).expect("the rest");
    received
}

/// A Tokyo Tyrant replica would abort on a partial message.
#[test]
fn the_stream_of_a_master_that_is_killed_ends_with_a_whole_message() {
    let mut master = master();
    let batch: Vec<String> = (0..8_000_usize)
        .map(|number| {
            let value = "v".repeat(number * 131 % 6_000);
            format!("set key{number} 0 0 {} noreply\r\n{value}\r\n", value.len())
        })
        .collect();
    let mut client = master.connect();
    client.write_all(batch.concat().as_bytes()).expect("a master");
    exchange(&mut client, "version\r\n", "VERSION");
    for round in 0..12 {
        let stream = stream_of_a_killed_master(&mut master, 1 + round * 3);
        assert_eq!(stream[..4], 1_u32.to_be_bytes());
        let mut rest = &stream[4..];
        let mut updates = 0;
        while let Parse::Complete(message, length) = Message::parse(rest) {
            updates += usize::from(matches!(message, Message::Update { .. }));
            rest = &rest[length..];
        }
        assert!((1..8_000).contains(&updates), "round {round}: {updates} updates were sent");
        assert!(rest.is_empty(), "round {round}: {} bytes of a message", rest.len());
        master.restart();
    }
}

#[test]
fn the_change_that_meets_an_update_log_that_cannot_be_written_has_the_reason() {
    let options = ["--update-log", "ulog", "--server-id", "1", "--update-log-file-bytes", "50"];
    let server = Server::tyrant("casket.tch", &options);
    let address = server.address();
    let put = |key: &str| run("tyrant", &["put", key, "a value", "--server", &address]);
    // The next file of the log cannot be made.
    fs::create_dir(server.folder.path().join("ulog/00000002.ulog")).expect("a folder");
    let error = wait_for("a refusal", || {
        let output = put("k");
        (!output.status.success()).then(|| String::from_utf8(output.stderr).expect("UTF-8"))
    });
    let begin = "put is not acknowledged, though it may be done: the server refuses changes: ";
    assert!(error.contains(begin) && error.contains("00000002.ulog"), "{error}");
}

/// Waits until a server's `stat` has this line.
fn wait_for_stat(server: &Server, line: &str) {
    wait_for(line, || {
        let stat = succeed("tyrant", &["stat", "--server", &server.address()]);
        stat.lines().any(|found| found == line).then_some(())
    });
}

#[test]
fn a_replica_killed_during_its_initial_sync_still_becomes_a_copy() {
    let mut master = Server::tyrant("casket.tch", &[]);
    let mut stream = master.connect();
    let mut requests = Vec::new();
    for number in 0..100_000_u32 {
        requests.extend_from_slice(b"\xc8\x18\0\0\0\x04\0\0\0\x04");
        requests.extend_from_slice(&number.to_be_bytes());
        requests.extend_from_slice(&number.to_be_bytes());
    }
    stream.write_all(&requests).unwrap();
    master.exchange("set last 0 0 1\r\nv\r\n", STORED);
    wait_for_stat(&master, "rnum\t100001");
    drop(stream);
    // No log has any of these.
    master.end(Signal::TERM);
    master.restart_with(&["--update-log", "ulog", "--server-id", "1"]);
    let of = master.address();
    let mut replica = Server::tyrant("casket.tch", &["--server-id", "2", "--master", &of]);
    for _ in 0..3 {
        wait_for("records of the copy", || {
            let stat = succeed("tyrant", &["stat", "--server", &replica.address()]);
            let records = stat.lines().find_map(|line| line.strip_prefix("rnum\t"));
            (records.and_then(|records| records.parse().ok()) > Some(0_u64)).then_some(())
        });
        replica.end(Signal::KILL);
        replica.restart();
    }
    wait_for_stat(&replica, "replication_state\tfollowing");
    wait_until_equal(&master, &replica);
    // From now on, changes are acknowledged when the replica has them.
    master.end(Signal::KILL);
    master.restart_with(&["--semi-sync", "1", "--semi-sync-timeout", "120"]);
    master.exchange("set after 0 0 1\r\nv\r\n", STORED);
    let value = succeed("tyrant", &["get", "--server", &replica.address(), "after"]);
    assert_eq!(value, "v\n");
}

#[test]
fn a_change_that_no_replica_confirms_is_told_from_one_that_is_refused() {
    let options = ["--update-log", "ulog", "--server-id", "1", "--semi-sync", "1"];
    let server =
        Server::tyrant("casket.tch", &[&options[..], &["--semi-sync-timeout", "0.5"]].concat());
    let put = |value: &str| {
        crate::process::fail("tyrant", &["put", "k", value, "--server", &server.address()])
    };
    let first = put("1");
    assert!(first.contains("put is done on this server, but not confirmed by replicas"), "{first}");
    let second = put("2");
    let refused =
        "the server refuses put, and has changed nothing: no replica acknowledges changes";
    assert!(second.contains(refused), "{second}");
    // These have the reply for a record that is missing, or exists.
    let address = server.address();
    for line in ["out k", "incr k", "touch k 9", "put --keep other 1", "out k other"] {
        let words: Vec<&str> = line.split(' ').chain(["--server", &address]).collect();
        let error = fail("tyrant", &words);
        assert!(error.contains("and has changed nothing: no replica"), "{line}: {error}");
    }
    assert_eq!(succeed("tyrant", &["get", "k", "--server", &server.address()]), "1\n");
    wait_for("the warning", || server.log().contains("changes are refused: no").then_some(()));
    // So has a change that was made.
    let server = Server::tyrant("+", &[&options[..], &["--semi-sync-timeout", "0.5"]].concat());
    let error = fail("tyrant", &["put", "--keep", "k", "1", "--server", &server.address()]);
    assert!(error.contains("put may be done on this server, but is not confirmed by"), "{error}");
}

/// Starts a server that lacks replicas, and closes the connection of each request for a record.
/// Returns its address.
fn closing_server() -> String {
    const STATUS: &[u8] = b"type\thash\nsemi_sync_state\trefusing\n";
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            let mut stream = stream.expect("a client");
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                    let size = u32::try_from(STATUS.len()).expect("few").to_be_bytes();
                    let reply = match request[1] {
                        0x88 => [&[0][..], &size, STATUS].concat(),
                        // A function of `misc`, which returns nothing.
                        0x90 => vec![1, 0, 0, 0, 0],
                        _ => break,
                    };
                    stream.write_all(&reply).expect("to reply");
                }
            });
        }
    });
    address
}

#[test]
fn a_read_that_is_cut_off_is_not_taken_for_a_change_that_no_replica_confirms() {
    let address = closing_server();
    let error = fail("tyrant", &["put", "k", "v", "--server", &address]);
    assert!(error.contains("put is done on this server, but not confirmed by"), "{error}");
    for line in ["get k", "get k l", "exists k", "count"] {
        let words: Vec<&str> = line.split(' ').chain(["--server", &address]).collect();
        let error = fail("tyrant", &words);
        let closed = "the server closed the connection during ";
        assert!(error.contains(closed) && !error.contains("confirmed"), "{line}: {error}");
    }
    // A function of `misc` has a reply for a failure.
    let error = fail("tyrant", &["get", "--all", "k", "--server", &address]);
    assert!(!error.contains("confirmed"), "{error}");
}
