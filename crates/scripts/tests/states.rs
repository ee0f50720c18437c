//! States: one for each thread, with reload, `_eval`, statistics and errors.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use proptest::prelude::*;
use scripts::{Allowed, Limits, Scripts, Source};
use server::{Config, Endpoint, Extension, Rights, ScriptRecords, Server};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{EVALUATE, Script, check, memory};

fn text(scripts: &Scripts, records: &Arc<ScriptRecords>, name: &str) -> String {
    let result = scripts.call(records, name.as_bytes(), b"k", b"v").unwrap().unwrap();
    records.end_call();
    String::from_utf8(result).unwrap()
}

/// Does the same within a call that has rights of its own.
fn text_within(scripts: &Scripts, records: &Arc<ScriptRecords>, name: &str) -> String {
    let result = scripts.call(records, name.as_bytes(), b"k", b"v").unwrap();
    result.map_or_else(|| "false".into(), |text| String::from_utf8(text).unwrap())
}

fn server() -> Server {
    let listen = vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }];
    Server::bind(Config { listen, ..Config::default() }, memory()).unwrap()
}

#[test]
fn each_thread_has_globals_of_its_own_and_all_share_the_stash_and_eval() {
    let code = "
        n = 0
        function count() n = n + 1 return n end
        function id() return _thid .. '/' .. _thnum end
        function set() return _eval('n = 100') end
        function stash() _stashputcat('s', 'x') return _stashget('s') end";
    let source = Source::Inline(code.into());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 3);
    assert_eq!(text(&scripts, &records[0], "count"), "1");
    assert_eq!(text(&scripts, &records[0], "count"), "2");
    assert_eq!(text(&scripts, &records[1], "count"), "1");
    assert_eq!(text(&scripts, &records[2], "id"), "3/3");
    text(&scripts, &records[1], "set");
    for records in &records {
        assert_eq!(text(&scripts, records, "count"), "101");
    }
    assert_eq!(text(&scripts, &records[0], "stash"), "x");
    assert_eq!(text(&scripts, &records[1], "stash"), "xx");
    for records in records.iter().rev() {
        scripts.end(records);
    }
    assert!(scripts.call(&records[0], b"count", b"", b"").is_err());
}

#[test]
fn code_that_is_executed_in_an_idle_state_executes_none_in_further_ones() {
    let code = "
        padding = '--' .. ('x'):rep(60000)
        probe = \"if _thid == 2 then local ok, why = pcall(_eval, padding) _stashput('why', why) end\"
        function fill() _eval(probe) for i = 1, 18 do _eval(padding) end return 'filled' end
        function why() return _stashget('why') end";
    let source = Source::Inline(code.into());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 3);
    // The last call finds the queues full, and executes the code in the second state.
    assert_eq!(text(&scripts, &records[0], "fill"), "filled");
    assert!(text(&scripts, &records[0], "why").contains("another state has much code left"));
}

/// Opens a script with this many threads.
fn with_threads(
    source: Source,
    limits: Limits,
    threads: usize,
) -> (Scripts, Server, Vec<Arc<ScriptRecords>>) {
    let scripts = Scripts::open(source, limits, Allowed::default()).unwrap();
    let server = server();
    let records: Vec<_> =
        (0..threads).map(|thread| server.script_records(thread, threads)).collect();
    for records in &records {
        scripts.begin(records);
    }
    (scripts, server, records)
}

fn only_a() -> Option<Arc<Rights>> {
    Some(Arc::new(Rights::parse(&["read:a:", "write:a:"]).unwrap()))
}

#[test]
fn code_has_the_rights_of_the_call_that_has_left_it() {
    let code = "
        function all() _eval(\"_put('b:' .. _thid, 'x')\") return 'done' end
        function put() return _put('b:called', 'x') end
        function fill() for i = 1, 20 do _eval('--' .. ('x'):rep(60000)) end return 'filled' end";
    let limits = Limits::default();
    let (scripts, _server, records) = with_threads(Source::Inline(code.into()), limits, 3);
    let has = |key: &str| records[0].get(key.as_bytes(), |_| ()).unwrap().is_some();
    {
        let _rights = records[0].with_rights(only_a());
        assert_eq!(text_within(&scripts, &records[0], "all"), "done");
    }
    // One state executes it in a call of its own, the other one in that of the filler.
    assert_eq!(text(&scripts, &records[1], "put"), "true");
    assert_eq!(text(&scripts, &records[0], "fill"), "filled");
    assert!(has("b:called") && !has("b:1") && !has("b:2") && !has("b:3"));
    assert_eq!(text(&scripts, &records[0], "all"), "done");
    {
        let _rights = records[1].with_rights(only_a());
        assert_eq!(text_within(&scripts, &records[1], "fill"), "filled");
        assert_eq!(text_within(&scripts, &records[1], "put"), "false");
    }
    assert!(has("b:1") && has("b:2") && has("b:3"));
}

#[test]
fn a_script_is_loaded_with_all_rights_whoever_calls() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let code = "config = _get('b:config')
        function get() return config or 'none' end
        function _begin() _put('b:begun', config) end";
    std::fs::write(file.path(), code).unwrap();
    let source = Source::File(file.path().to_path_buf());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 2);
    records[0].put(b"b:config", b"1", None).unwrap();
    scripts.reload(&records[1]).unwrap();
    let _rights = records[0].with_rights(only_a());
    assert_eq!(text_within(&scripts, &records[0], "get"), "1");
    assert_eq!(records[1].get(b"b:begun", <[u8]>::to_vec).unwrap().unwrap(), b"1");
    assert!(records[0].get(b"b:config", <[u8]>::to_vec).is_err(), "the rights are those of before");
}

#[test]
fn the_first_state_follows_a_reload_without_a_call() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |name: &str| {
        let code = format!("function _begin() _put('begun', '{name}') end");
        std::fs::write(file.path(), code).unwrap();
    };
    write("old");
    let source = Source::File(file.path().to_path_buf());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 2);
    write("new");
    scripts.reload(&records[1]).unwrap();
    let begun = || records[1].get(b"begun", <[u8]>::to_vec).unwrap().unwrap();
    assert_eq!(begun(), b"old");
    scripts.follow_reload(&records[0]);
    assert_eq!(begun(), b"new");
}

#[test]
fn a_script_that_could_not_be_loaded_in_a_state_is_loaded_later() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |version: u32| {
        let code = format!(
            "if _thid == 2 and _stashget('refuse') then error('refused') end
             function version() return {version} end
             function refuse() return _stashput('refuse', 'x') end
             function accept() return _stashout('refuse') end"
        );
        std::fs::write(file.path(), code).unwrap();
    };
    write(1);
    let source = Source::File(file.path().to_path_buf());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 2);
    text(&scripts, &records[0], "refuse");
    write(2);
    scripts.reload(&records[0]).unwrap();
    assert_eq!(text(&scripts, &records[1], "version"), "1");
    text(&scripts, &records[0], "accept");
    let deadline = Instant::now() + Duration::from_secs(120);
    while text(&scripts, &records[1], "version") != "2" {
        assert!(Instant::now() < deadline, "the old script stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn code_in_idle_states_has_what_is_left_of_the_limits_of_a_call() {
    let code = "
        busy = \"if _thid > 1 then for i = 1, 6e5 do end end\"
        function fill()
            _eval(busy)
            for i = 1, 18 do _eval('--' .. ('x'):rep(60000)) end
            for i = 1, 1e5 do end
            return 'filled'
        end";
    let limits = Limits { call_instructions: 1_000_000, ..Limits::default() };
    let source = Source::Inline(code.into());
    let (scripts, _server, records) = with_threads(source, limits, 3);
    let error = scripts.call(&records[0], b"fill", b"", b"").unwrap_err();
    assert!(error.0.contains("more instructions than its limit"), "{error}");
}

/// Panics at each event.
struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("an event");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_panic_in_an_idle_state_leaves_it_as_it_was() {
    let code = "
        bad = \"if _thid == 2 then _put('changed', 'x') tyrant.begin() error('no') end\"
        function fill() _eval(bad) for i = 1, 18 do _eval('--' .. ('x'):rep(60000)) end return 'filled' end
        function pad() for i = 1, 20 do _eval('--' .. ('x'):rep(60000)) end return 'filled' end";
    let source = Source::Inline(code.into());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 2);
    let call = || scripts.call(&records[0], b"fill", b"", b"");
    let caught = tracing::subscriber::with_default(Panics, || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(call))
    });
    assert!(caught.is_err());
    assert!(records[0].end_call(), "the change is one of the caller");
    assert!(!records[1].end_call());
    // Its own code is executed in idle states again.
    assert_eq!(text(&scripts, &records[1], "pad"), "filled");
}

#[test]
fn begin_and_end_are_called_in_the_first_state_only() {
    let code = "
        function _begin() _stashputcat('s', 'b' .. _thid) end
        function _end() _put('ended', _thid) end
        function stash() return _stashget('s') end";
    let source = Source::Inline(code.into());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 2);
    assert_eq!(text(&scripts, &records[1], "stash"), "b1");
    assert!(scripts.call(&records[0], b"_begin", b"", b"").is_err());
    scripts.end(&records[1]);
    assert_eq!(records[0].get(b"ended", <[u8]>::to_vec).unwrap(), None);
    scripts.end(&records[0]);
    assert_eq!(records[0].get(b"ended", <[u8]>::to_vec).unwrap().unwrap(), b"1");
}

#[test]
fn a_reload_changes_all_states_and_keeps_the_old_script_if_the_new_one_fails() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |code: &str| std::fs::write(file.path(), code).unwrap();
    write("#!/usr/bin/lua\nfunction version() return 1 end");
    let source = Source::File(file.path().to_path_buf());
    let (scripts, _server, records) = with_threads(source.clone(), Limits::default(), 2);
    for bad in ["function version(", "error('no')", "while true do local x = ('x'):rep(1e9) end"] {
        write(bad);
        scripts.reload(&records[0]).unwrap_err();
        for records in &records {
            assert_eq!(text(&scripts, records, "version"), "1");
        }
    }
    write("function version() return 2 end");
    scripts.reload(&records[1]).unwrap();
    for records in &records {
        assert_eq!(text(&scripts, records, "version"), "2");
    }
    std::fs::remove_file(file.path()).unwrap();
    assert!(scripts.reload(&records[0]).unwrap_err().0.contains("cannot read the script"));
    assert_eq!(text(&scripts, &records[0], "version"), "2");
}

#[test]
fn of_two_reloads_at_once_all_states_have_the_script_of_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.lua");
    let write = |version: usize| {
        let new = folder.path().join("new.lua");
        std::fs::write(&new, format!("function version() return {version} end")).unwrap();
        std::fs::rename(new, &path).unwrap();
    };
    write(0);
    let source = Source::File(path.clone());
    let (scripts, _server, records) = with_threads(source, Limits::default(), 2);
    for version in 1..50 {
        std::thread::scope(|scope| {
            scope.spawn(|| scripts.reload(&records[0]).unwrap());
            write(version);
            scripts.reload(&records[1]).unwrap();
        });
        for records in &records {
            assert_eq!(text(&scripts, records, "version"), version.to_string());
        }
    }
}

#[test]
fn calls_failures_and_times_are_counted_by_function() {
    let script = Script::new("function good() return 1 end function bad() error('no') end");
    for _ in 0..3 {
        script.call("good", b"").unwrap();
        script.call("bad", b"").unwrap_err();
        script.call("none", b"").unwrap_err();
    }
    let statistics = script.scripts.statistics();
    let counts: Vec<_> = statistics
        .iter()
        .map(|function| (&function.name[..], function.calls, function.failures))
        .collect();
    assert_eq!(counts, [("bad", 3, 3), ("good", 3, 0)]);
    assert!(statistics.iter().all(|function| !function.time.is_zero()));
}

#[test]
fn an_error_has_its_line_for_the_caller_and_its_functions_for_the_log() {
    let file = tempfile::NamedTempFile::with_suffix(".lua").unwrap();
    std::fs::write(file.path(), "function run()\n  local x = nil + 1\nend").unwrap();
    let script =
        Script::new(&format!("run = loadstring(\"local x = nil\\n return x.y\", '@{}')", "f.lua"));
    let error = script.call("run", b"").unwrap_err();
    assert_eq!(error, "f.lua:2: attempt to index local 'x' (a nil value)");
    let failure = Source::Inline("function f() return 1 end }".into()).check().unwrap_err();
    assert_eq!(failure.message, "command line:1: unexpected symbol near '}'");
    let missing = Source::File("/none/script.lua".into()).check().unwrap_err();
    assert!(missing.message.contains("/none/script.lua"));
    Source::File(file.path().to_path_buf()).check().unwrap();
}

#[test]
fn a_check_executes_nothing() {
    Source::from_argument("@while true do end").check().unwrap();
    Source::from_argument("@error('no')").check().unwrap();
    assert_eq!(Source::from_argument("a.lua"), Source::File("a.lua".into()));
}

#[test]
fn results_become_text() {
    let script = Script::new(
        "function nothing() end function no() return false end function yes() return true end
         function int() return 42 end function float() return 1.5 end function list() return {7, 8} end
         function large() return 99999999999999 end function larger() return 1e14 end
         function least() return -99999999999999 end function negative() return -1.5 end
         function lists() return {{}} end function empty() return '' end function f() return print end",
    );
    for (name, expected) in [
        ("nothing", None),
        ("no", None),
        ("yes", Some("true")),
        ("int", Some("42")),
        ("float", Some("1.5")),
        ("large", Some("99999999999999")),
        ("larger", Some("1e+14")),
        ("least", Some("-99999999999999")),
        ("negative", Some("-1.5")),
        ("list", Some("7")),
        ("lists", None),
        ("empty", Some("")),
        ("f", None),
    ] {
        let result = script.call(name, b"").unwrap();
        assert_eq!(result.as_deref(), expected.map(str::as_bytes), "{name}");
    }
}

/// Pieces of scripts, of which some are no code at all.
fn pieces() -> impl Strategy<Value = String> {
    let names = [
        "string.find",
        "string.gsub",
        "string.gmatch",
        "string.rep",
        "string.format",
        "table.sort",
        "table.concat",
        "table.insert",
        "coroutine.wrap",
        "coroutine.resume",
        "coroutine.create",
        "coroutine.yield",
        "pcall",
        "xpcall",
        "error",
        "setmetatable",
        "getmetatable",
        "setfenv",
        "getfenv",
        "load",
        "loadstring",
        "collectgarbage",
        "unpack",
        "select",
        "rawset",
        "next",
        "tostring",
        "tonumber",
        "_put",
        "_get",
        "_misc",
        "_foreach",
        "_mapreduce",
        "_stashput",
        "_stashforeach",
        "_lock",
        "_unlock",
        "_eval",
        "_pack",
        "_unpack",
        "_split",
        "_codec",
        "_hash",
        "_bit",
        "_strstr",
        "_regex",
        "_ucs",
        "_dist",
        "_isect",
        "_union",
        "_iterinit",
        "_iternext",
        "_fwmkeys",
        "_addint",
        "tyrant.transaction",
        "tyrant.json_encode",
        "tyrant.json_decode",
        "tyrant.range",
        "tyrant.put",
        "os.date",
        "os.time",
        "debug.traceback",
    ];
    let values = [
        "nil",
        "true",
        "1",
        "-1",
        "2^53",
        "1e300",
        "0/0",
        "''",
        "'a'",
        "'%b()(.-)'",
        "'\\0\\255'",
        "{}",
        "{1, 2}",
        "{{}}",
        "print",
        "f",
        "function(...) return ... end",
        "function() error({}) end",
        "function() return true end",
        "('x'):rep(1e4)",
        "_G",
        "getmetatable('')",
        "coroutine.create(print)",
        "'deflate'",
        "'~gzip'",
        "'$putlist'",
        "'*t'",
        "'%Q%1'",
        "tyrant.null",
        "setmetatable({}, {__index = f, __call = f, __tostring = f, __gc = f, __lt = f})",
    ];
    let value = prop::sample::select(values.to_vec());
    let call = (prop::sample::select(names.to_vec()), prop::collection::vec(value, 0..4))
        .prop_map(|(name, values)| format!("{name}({})", values.join(", ")));
    let call = call.boxed();
    prop_oneof![
        6 => call.clone().prop_map(|call| format!("pcall(function() x = {call} end)\n")),
        2 => call.clone().prop_map(|call| format!("local ok, r = pcall(function() return {call} end) y = r\n")),
        2 => call.clone().prop_map(|call| format!("pcall(function() for a in {call} do b = a end end)\n")),
        2 => call.clone().prop_map(|call| format!("coroutine.wrap(function() pcall(function() {call} end) end)()\n")),
        1 => call.clone().prop_map(|call| format!("function f(...) {call} end\n")),
        1 => call.prop_map(|call| format!("z = {call}\n")),
        1 => Just("while true do pcall(f) end\n".to_string()),
        1 => "[a-z =(){}.,'0-9]{0,20}\n",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn odd_scripts_harm_nothing(scripts in prop::collection::vec(prop::collection::vec(pieces(), 1..12), 10)) {
        let limits = Limits {
            call_time: std::time::Duration::from_millis(50),
            state_bytes: 4 << 20,
            ..Limits::default()
        };
        let script = Script::with(
            "function run(key) f = f or print local code = loadstring(key) if code then code() end end",
            limits,
            Allowed::default(),
            memory(),
        );
        for code in scripts {
            let _ = script.call("run", code.concat().as_bytes());
        }
        let other = Script::new(EVALUATE);
        check(&other, &[("_put('a', 'b')", "true"), ("_get('a')", "\"b\"")]);
    }
}
