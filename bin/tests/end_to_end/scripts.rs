//! Scripts: functions in Lua that clients call.

use crate::process::{Server, fail, misuse, path, run, succeed, wait_for};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io::{Read, Write};
use std::path::PathBuf;
use tempfile::TempDir;

const SCRIPT: &str = r#"
function echo(key, value)
  return key .. "\t" .. value .. "\n"
end

function nothing()
  return nil
end

function count(key)
  local number = tonumber(_get(key) or "0") + 1
  _put(key, tostring(number))
  return number
end

function fails()
  error("no luck")
end

function tick()
  _putcat("ticks", "x")
end

function forever()
  while true do end
end

function forever_in_a_search()
  return string.find(string.rep("a", 10000), ".-.-.-.-.-b")
end

function too_much()
  local parts = {}
  while true do parts[#parts + 1] = string.rep("x", 100000) .. #parts end
end

function await(key)
  while not _get(key) do end
  return "it came"
end

function await_in_pcall(key)
  while not pcall(function() while true do assert(not _get(key)) end end) do
    if _get(key) then return "it came" end
  end
end

function await_asleep(key)
  while not _get(key) do _sleep(0.001) end
  return "it came"
end

function await_in_a_transaction(key)
  while not tyrant.transaction(function() return tyrant.get(key) end) do end
  return "it came"
end

function await_a_lock(key)
  _lock("awaited")
  while not _get(key) do end
  _unlock("awaited")
  return "it came"
end

function nest()
  string.gsub("x", "x", nest)
end

function nest_in_handlers()
  xpcall(error, nest_in_handlers)
  string.format()
end

function split(key)
  return #_split(key)
end

function unpack_bytes(key)
  return #_unpack("C*", key)
end

function pack(key)
  return #_pack(key, 1)
end

function call_itself(depth, server)
  _put("depth", depth)
  local command = "%s ext --server %s call_itself %d %s"
  return os.execute(command:format(_get("program"), server, depth + 1, server))
end

function execute(command)
  return os.execute(command)
end

function own_server(key)
  return os and os.execute and "has programs" or "has none"
end
"#;

/// Returns a folder with a script, and the path of the script.
fn script(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("script.lua");
    std::fs::write(&path, text).expect("the script");
    (folder, path)
}

/// Starts a server with the script, and further options.
fn start(options: &[&str]) -> (TempDir, PathBuf, Server) {
    let (folder, path) = script(SCRIPT);
    let shown = path.display().to_string();
    let server = Server::tyrant("casket.tch", &[&["--script", &shown], options].concat());
    (folder, path, server)
}

fn ext(server: &Server, arguments: &[&str]) -> String {
    let address = server.address();
    succeed("tyrant", &[&["ext", "--server", &address], arguments].concat())
}

fn ext_error(server: &Server, arguments: &[&str]) -> String {
    let address = server.address();
    fail("tyrant", &[&["ext", "--server", &address], arguments].concat())
}

#[test]
fn functions_are_called_with_every_client() {
    let (_folder, _, server) = start(&[]);
    assert_eq!(ext(&server, &["echo", "k", "v"]), "k\tv\n\n");
    assert_eq!(ext(&server, &["count", "n"]), "1\n");
    assert_eq!(ext(&server, &["--lock-record", "count", "n"]), "2\n");
    assert_eq!(ext(&server, &["--lock-all", "count", "n"]), "3\n");
    let port = server.port.to_string();
    for option in ["-xlr", "-xlg"] {
        let arguments = ["ext", "-port", &port, option, "127.0.0.1", "echo", "k", "v"];
        assert_eq!(succeed("tcrmgr", &arguments), "k\tv\n\n");
    }
    server.exchange(
        "POST /n HTTP/1.1\r\nHost: localhost\r\nX-TT-XNAME: count\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 1\r\n\r\n4",
    );
    assert!(ext_error(&server, &["nothing"]).contains("ext failed"));
    assert!(ext_error(&server, &["fails"]).contains("no luck"));
    assert!(ext_error(&server, &["missing"]).contains("missing"));
    assert!(server.log().contains("no luck"));
    assert_eq!(run("tyrant", &["ext", "--lock-record", "--lock-all", "f"]).status.code(), Some(2));
}

#[test]
fn a_runaway_function_ends_at_its_limit_and_no_other_request_waits_for_it() {
    let (_folder, _, server) =
        start(&["--script-time-max", "2", "--script-memory-max", "4m", "--script-threads", "1"]);
    let name = b"forever";
    let mut call = b"\xc8\x68\0\0\0\x07\0\0\0\x02\0\0\0\0\0\0\0\0".to_vec();
    call.extend_from_slice(name);
    let mut caller = server.connect();
    caller.write_all(&call).unwrap();
    server.exchange("set a 0 0 1\r\nb\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n");
    let mut reply = [0];
    caller.read_exact(&mut reply).unwrap();
    assert_eq!(reply, [1]);
    // Its lock is released.
    assert_eq!(ext(&server, &["--lock-all", "count", "n"]), "1\n");
    for function in ["forever_in_a_search", "too_much"] {
        ext_error(&server, &[function]);
        assert_eq!(ext(&server, &["echo", "k", "v"]), "k\tv\n\n");
    }
}

#[test]
fn functions_that_call_each_other_too_deeply_fail_on_event_loops_and_script_threads() {
    let (_folder, _, server) = start(&[]);
    for name in ["nest", "nest_in_handlers"] {
        for options in [&[][..], &["--lock-record"]] {
            ext_error(&server, &[options, &[name, "k"]].concat());
        }
    }
    assert!(server.log().contains("stack overflow"));
    assert_eq!(ext(&server, &["echo", "k", "v"]), "k\tv\n\n");
}

/// Returns the ids of the threads of a server that have an event loop, or had one.
fn loop_threads(server: &Server) -> BTreeSet<OsString> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("threads");
    let tasks = tasks.map(|task| task.expect("a thread"));
    let is_loop = |task: &DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("loop"))
    };
    tasks.filter(is_loop).map(|task| task.file_name()).collect()
}

#[test]
fn calls_that_fail_start_no_threads() {
    // On a busy machine a call may take so long that another thread takes the loop. So each attempt
    // has its own server, and a failure that starts threads starts them in each attempt.
    wait_for("calls that fail and start no threads", || {
        let (_folder, _, server) = start(&["--threads", "1"]);
        assert_eq!(ext(&server, &["echo", "k", "v"]), "k\tv\n\n");
        let threads = loop_threads(&server);
        for name in ["missing", "fails", "nothing"].into_iter().flat_map(|name| [name; 3]) {
            ext_error(&server, &[name, "k"]);
        }
        (loop_threads(&server) == threads).then_some(())
    });
}

#[test]
fn functions_that_make_many_values_of_a_long_text_leave_the_event_loop() {
    let text = "C".repeat(3000);
    for (name, expected) in [("split", "1\n"), ("unpack_bytes", "3000\n"), ("pack", "1\n")] {
        // On a busy machine a call ends before the other thread begins, and keeps the loop. The
        // next calls of the function are on script threads, so each attempt has its own server.
        wait_for("another thread with the loop", || {
            let (_folder, _, server) = start(&["--threads", "1"]);
            let threads = loop_threads(&server);
            assert_eq!(ext(&server, &[name, &text]), expected);
            (loop_threads(&server) != threads).then_some(())
        });
    }
}

#[test]
fn a_script_is_loaded_again_without_a_restart_and_stays_if_the_new_one_has_an_error() {
    let (_folder, path, mut server) = start(&[]);
    let address = server.address();
    std::fs::write(&path, "function echo() return 'new' end").unwrap();
    let read = succeed("tyrant", &["reload", "--server", &address]);
    assert!(read.starts_with("no setting has changed; ") && read.ends_with("; script loaded\n"));
    assert!(server.log().contains("reload: script loaded"), "{}", server.log());
    assert_eq!(ext(&server, &["echo"]), "new\n");
    ext_error(&server, &["count", "n"]);
    std::fs::write(&path, "function echo( return 'broken' end").unwrap();
    let error = fail("tyrant", &["reload", "--server", &address]);
    assert!(error.contains("script.lua:1:"), "{error}");
    assert_eq!(ext(&server, &["echo"]), "new\n");
    std::fs::write(&path, "function echo() return 'newer' end").unwrap();
    server.signal(Signal::HUP);
    wait_for("the new script", || (ext(&server, &["echo"]) == "newer\n").then_some(()));
    assert_eq!(server.end(Signal::TERM).code(), Some(0));
}

#[test]
fn a_function_is_called_periodically() {
    let (_folder, _, server) = start(&["--script-every", "tick=0.01"]);
    let address = server.address();
    wait_for("two ticks", || {
        let output = run("tyrant", &["get", "--server", &address, "ticks"]);
        String::from_utf8(output.stdout).unwrap().starts_with("xx").then_some(())
    });
    let stat = succeed("tyrant", &["stat", "--server", &address]);
    assert!(stat.contains("\nscript_tick_calls\t"), "{stat}");
    assert!(stat.contains("\nscript_threads\t8\n"), "{stat}");
}

const PERIODIC: &str = "
local own = 0

function count(key)
  n = (n or 0) + 1
  own = own + 1
  _putcat(key, n .. '=' .. own .. ' ')
  return n
end

function a() count('a') end

function b() count('b') end
";

/// Returns whether the record under a key has the numbers from 1 on in their order, at least four.
/// Fails if it has others.
fn has_counted(server: &Server, key: &str) -> bool {
    let output = run("tyrant", &["get", "--server", &server.address(), key]).stdout;
    let counted = String::from_utf8(output).expect("a text");
    for (number, found) in (1..).zip(counted.split_whitespace()) {
        assert_eq!(found, format!("{number}={number}"), "{key} has {counted}");
    }
    counted.split_whitespace().count() >= 4
}

#[test]
fn each_periodic_function_keeps_its_globals_from_call_to_call_until_a_reload() {
    let (_folder, path) = script(PERIODIC);
    let shown = path.display().to_string();
    let options = ["--script", &shown, "--script-every", "a=0.01", "--script-every", "b=0.015"];
    let mut server = Server::tyrant("casket.tch", &options);
    wait_for("counts of both functions, beside clients", || {
        ext(&server, &["--lock-record", "count", "of clients"]);
        (has_counted(&server, "a") && has_counted(&server, "b")).then_some(())
    });
    // Calls of the old script may end after the reload, so the keys of the new one are others.
    std::fs::write(&path, PERIODIC.replace("count('", "count('new ")).expect("a script");
    succeed("tyrant", &["reload", "--server", &server.address()]);
    wait_for("counts of the new script", || {
        (has_counted(&server, "new a") && has_counted(&server, "new b")).then_some(())
    });
    std::fs::write(&path, "function a()").expect("a script");
    server.signal(Signal::HUP);
    let failure = format!("reload failed, the script stays as it was: {shown}:1: ");
    wait_for("the failure in the log", || server.log().contains(&failure).then_some(()));
    assert_eq!(server.end(Signal::TERM).code(), Some(0));
}

#[test]
fn ttserver_runs_a_script_with_the_options_of_tokyo_tyrant() {
    let (_folder, path) = script(SCRIPT);
    let path = path.display().to_string();
    let server = Server::ttserver("*", &["-ext", &path, "-extpc", "tick", "0.01", "-thnum", "2"]);
    let port = server.port.to_string();
    let call = |function: &str| succeed("tcrmgr", &["ext", "-port", &port, "127.0.0.1", function]);
    assert_eq!(call("own_server"), "has programs\n");
    wait_for("a tick", || {
        let output = run("tcrmgr", &["get", "-port", &port, "127.0.0.1", "ticks"]);
        output.status.success().then_some(())
    });
    let inline = Server::ttserver("*", &["-ext", "@function f() return 'inline' end"]);
    let port = inline.port.to_string();
    assert_eq!(succeed("tcrmgr", &["ext", "-port", &port, "127.0.0.1", "f"]), "inline\n");
}

#[test]
fn a_script_reaches_programs_only_if_that_is_allowed() {
    let (_folder, _, server) = start(&[]);
    assert_eq!(ext(&server, &["own_server"]), "has none\n");
    let (_folder, _, server) = start(&["--script-programs"]);
    assert_eq!(ext(&server, &["own_server"]), "has programs\n");
}

#[test]
fn a_script_that_calls_itself_over_the_network_for_ever_fails_and_harms_no_other_request() {
    // Within this time programs start on a loaded machine, too.
    let options = ["--script-programs", "--script-threads", "2", "--script-time-max", "4"];
    let (_folder, _, server) = start(&options);
    let address = server.address();
    succeed("tyrant", &["put", "--server", &address, "program", path("tyrant")]);
    // The third call waits for a thread, and each thread for a further call.
    let caller = std::thread::spawn({
        let address = address.clone();
        move || fail("tyrant", &["ext", "--server", &address, "call_itself", "1", &address])
    });
    wait_for("the second call", || {
        let depth = run("tyrant", &["get", "--server", &address, "depth"]).stdout;
        let depth = String::from_utf8(depth).expect("UTF-8").trim().parse::<u32>();
        depth.is_ok_and(|depth| depth > 1).then_some(())
    });
    succeed("tyrant", &["put", "--server", &address, "k", "v"]);
    assert!(caller.join().expect("a caller").contains("takes longer than its limit"));
    // Without a program, the further calls fail.
    succeed("tyrant", &["put", "--server", &address, "program", "false"]);
    assert_eq!(ext(&server, &["echo", "k", "v"]), "k\tv\n\n");
}

#[test]
fn a_function_that_fails_where_misc_is_masked_is_not_called_refused() {
    let (_folder, _, server) = start(&["--mask", "allwrite"]);
    let error = ext_error(&server, &["execute", "exit 3"]);
    assert!(error.contains("ext failed, or the server refuses it: as it masks misc"), "{error}");
    let reason = "attempt to call field 'execute' (a nil value); only with script-programs";
    assert!(server.log().contains(reason), "{}", server.log());
}

#[test]
fn a_program_is_ended_with_its_call_and_has_the_status_that_lua_returns() {
    // Within this time programs start on a loaded machine, too.
    let options = ["--script-programs", "--script-time-max", "4"];
    let (folder, _, server) = start(&options);
    assert_eq!(ext(&server, &["execute", "exit 3"]), "768\n");
    assert_eq!(ext(&server, &["execute", "kill -9 $$"]), "9\n");
    let file = folder.path().join("id");
    let command = format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; sleep 600'", file.display());
    assert!(ext_error(&server, &["execute", &command]).contains("takes longer than its limit"));
    let id = std::fs::read_to_string(file).expect("the id of a program");
    wait_for("the end of the program", || {
        let path = format!("/proc/{}/status", id.trim());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        (!status.contains("State:") || status.contains("State:\tZ")).then_some(())
    });
}

#[test]
fn a_script_with_an_error_is_reported_before_the_server_serves() {
    let (_folder, path) = script("function f( end");
    let path = path.display().to_string();
    let error = fail("tyrant", &["ext", "--check", &path]);
    assert!(error.contains("script.lua:1:"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("casket.tch").display().to_string();
    let error = fail("tyrant", &["serve", &database, "--script", &path, "--port", "0"]);
    assert!(error.contains("cannot load the script") && error.contains("script.lua:1:"), "{error}");
    let (_folder, path) = script(SCRIPT);
    let path = path.display().to_string();
    assert_eq!(succeed("tyrant", &["ext", "--check", &path]), "");
    assert_eq!(run("tyrant", &["ext"]).status.code(), Some(2));
    let error = misuse(&["serve", &database, "--script-programs", "--port", "0"]);
    assert!(error.contains("script-programs") && error.contains("requires script"), "{error}");
}

#[test]
fn a_call_that_waits_holds_up_no_request_of_its_event_loop() {
    let options = ["--threads", "1", "--script-threads", "1", "--script-time-max", "600"];
    let options = [&options[..], &["--script-instructions-max", "0"]].concat();
    for database in ["*", "casket.tch"] {
        let (_folder, path) = script(SCRIPT);
        let given = [&["--script", path.to_str().expect("a path")][..], &options].concat();
        let server = Server::tyrant(database, &given);
        let functions =
            ["await", "await_in_pcall", "await_asleep", "await_in_a_transaction", "await_a_lock"];
        // Each round, a call of each function leaves the loop or is on a thread from the beginning.
        for round in 0..3 {
            for function in functions {
                let key = format!("{function}{round}");
                let mut caller = server.connect();
                let head = format!(
                    "POST /{key} HTTP/1.1\r\nHost: localhost\r\nX-TT-XNAME: {function}\r\n"
                );
                let request = format!("{head}Content-Length: 0\r\n\r\n");
                caller.write_all(request.as_bytes()).expect("a request");
                server.exchange("get k\r\n", "END\r\n");
                let stored = format!("set {key} 0 0 1\r\nv\r\n");
                server.exchange(&stored, "STORED\r\n");
                let mut reply = vec![0; 400];
                let mut length = 0;
                while !reply[..length].ends_with(b"it came") {
                    let received = caller.read(&mut reply[length..]).expect("a reply");
                    assert!(received > 0, "{function}: {}", reply[..length].escape_ascii());
                    length += received;
                }
            }
        }
    }
}
