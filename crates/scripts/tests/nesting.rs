//! Nesting: functions that call each other through the server end with an error, not the process.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use scripts::limits::CALL_STACK_BYTES_MAX;
use scripts::{Allowed, Limits};
use std::thread::Builder;
use std::time::Duration;
use support::{EVALUATE, SHORT, Script, WAIT_MAX, check, memory_tree};

/// Stack on which calls have to end: what a call may take, and as much again. Those of the server's
/// threads are larger.
const STACK_BYTES: usize = 2 * CALL_STACK_BYTES_MAX;

/// Definitions of a function `nest` that calls itself in one way, over records and a stash that are
/// not empty.
const WAYS: &[&str] = &[
    "function nest() return 1 + nest() end",
    "function nest() pcall(nest) error('end') end",
    "function nest() local ok, e = pcall(nest) error(e, 0) end",
    "function nest() xpcall(nest, function(e) return e .. nest() end) nest() end",
    "function nest() xpcall(error, nest) end",
    "function nest() xpcall(nest, _foreach) end",
    // Frames of `string.format` and `table.concat` take 8 KiB.
    "function fail() string.format() end function nest() xpcall(error, fail) nest() end",
    "function nest() xpcall(string.format, nest) nest(nest()) end",
    "function nest() xpcall(string.format, function() xpcall(table.concat, nest) end) end",
    "function nest() coroutine.wrap(function() xpcall(string.format, nest) end)() end",
    "function handle(e) error(e) end function nest() xpcall(error, handle) nest(nest()) end",
    "function nest() _hash('md5') end xpcall(nest, nest)",
    "function nest() xpcall(nest, tyrant.range) tyrant.range(nil) end",
    "function nest() coroutine.wrap(nest)() end",
    "function nest() local ok, e = coroutine.resume(coroutine.create(nest)) error(e, 0) end",
    "function nest() coroutine.wrap(function() _foreach(nest) end)() end",
    "function nest() table.sort({1, 2, 3}, nest) end",
    "function nest() ('x'):gsub('x', nest) end",
    "function nest() ('x'):gsub('x', function() pcall(nest) error({}) end) end",
    "function nest() ('x'):gsub('x', setmetatable({}, {__index = nest})) end",
    "function nest() load(nest) end",
    "function nest() for a in nest do end end",
    "function nest() _foreach(nest) return true end",
    "function nest() _foreach(function() nest() return true end) error('end') end",
    "function nest() _stashforeach(nest) return true end",
    "function nest() _mapreduce(nest, print) return true end",
    "function nest() _mapreduce(function(k, v, emit) emit(k, v) end, nest) return true end",
    "function nest() _mapreduce(nest, nest, {'k'}) return true end",
    "function nest() tyrant.transaction(nest) end",
    "function nest() tyrant.transaction(function() _foreach(nest) end) end",
    "function nest() _eval('nest()') end",
    "function nest() loadstring('nest()')() end",
    "function nest() tyrant.put('k', 'v', setmetatable({}, {__index = nest})) end",
    "function nest() tyrant.put_new('n', 'v', setmetatable({}, {__index = nest})) end",
    "function nest() tyrant.range(setmetatable({}, {__index = nest})) end",
    "function nest() pcall(tyrant.range, setmetatable({}, {__index = nest})) error({}) end",
    "function nest() tyrant.map_reduce(setmetatable({}, {__index = nest})) end",
    "function nest() return setmetatable({}, {__index = nest}).x end",
    "function nest() setmetatable({}, {__newindex = nest}).x = 1 end",
    "function nest() return setmetatable({}, {__call = nest})() end",
    "m = {} function nest() return setmetatable({}, m) < setmetatable({}, m) end m.__lt = nest",
    "m = {} function nest() return setmetatable({}, m) == setmetatable({}, m) end m.__eq = nest",
    "function nest() return setmetatable({}, {__concat = nest}) .. '' end",
    "function nest() return -setmetatable({}, {__unm = nest}) end",
    "function nest() return tostring(setmetatable({}, {__tostring = nest})) end",
    "function nest() print(setmetatable({}, {__tostring = nest})) end",
    "setmetatable(_G, {__index = nest}) function nest() return none end",
    "function nest() tyrant.json_encode(setmetatable({1}, {__index = nest, __len = nest})) nest(nest()) end",
    "local t = {} for i = 1, 1e5 do t = {t} end function nest() tyrant.json_encode(t) end",
    "local t = {} for i = 1, 1e5 do t = {a = t} end function nest() tyrant.json_encode(t) end",
    "function nest() tyrant.json_decode(('['):rep(1e5)) end",
    "function nest() tyrant.json_decode(('{\"a\":'):rep(1e5)) end",
    "function nest() local t = {} t.t = t tyrant.json_encode(t) end",
    "function nest() assert(loadstring('return ' .. ('('):rep(3e4))) end",
    "function nest() assert(loadstring('return ' .. ('{'):rep(3e4))) end",
    "function nest() assert(loadstring('return ' .. ('-'):rep(3e4) .. '1')) end",
    "function nest() assert(loadstring(('a='):rep(3e4))) end",
    "function nest() assert(loadstring('return ' .. ('a..'):rep(2e4) .. 'a')) end",
    "function nest() assert(loadstring(('do '):rep(2e4))) end",
    "function nest() assert(loadstring(('return function() '):rep(3000))) end",
    "function nest() _foreach(function() assert(loadstring('return ' .. ('('):rep(3e4))) end) nest() end",
    "function nest() ('x'):rep(1e5):find(('x?'):rep(1e5)) end",
    "function nest() return ('a'):find(('('):rep(1e4)) end",
    "function nest() _regex('a', ('('):rep(1e4) .. (')'):rep(1e4)) end",
    "function nest() _regex(('a'):rep(1e4), ('(a|'):rep(200) .. (')'):rep(200)) nest(nest()) end",
    "function nest() _foreach(function() ('x'):gsub('x', function() pcall(tyrant.range, setmetatable({}, {__index = nest})) end) end) nest() end",
];

/// Runs a test on a thread with a small stack.
fn with_small_stack(test: impl FnOnce() + Send + 'static) {
    Builder::new().stack_size(STACK_BYTES).spawn(test).unwrap().join().unwrap();
}

fn script(code: &str, call_time: Duration) -> Script {
    let code = format!("_put('k', 'v') _put('l', 'v') _stashput('k', 'v') {code}");
    let limits = Limits { call_time, ..Limits::default() };
    Script::with(&code, limits, Allowed::default(), memory_tree())
}

#[test]
fn functions_that_call_each_other_in_any_way_end_with_an_error() {
    with_small_stack(|| {
        for way in WAYS {
            // Some call themselves in a loop as well.
            let script = script(&format!("{EVALUATE} {way}"), SHORT);
            // Some swallow the error, as Tokyo Tyrant's `_foreach` does.
            let _ = script.call("nest", b"");
            let _ = script.call("nest", b"k");
            check(&script, &[("_get('k')", "\"v\"")]);
        }
    });
}

#[test]
fn callbacks_within_each_other_end_with_an_error_that_names_the_reason() {
    with_small_stack(|| {
        for way in [
            "function nest() ('x'):gsub('x', nest) end",
            "function nest() tyrant.range(setmetatable({}, {__index = nest})) end",
            "function nest() table.sort({1, 2, 3}, nest) end",
            "function nest() coroutine.wrap(nest)() end",
        ] {
            let error = script(way, WAIT_MAX).call("nest", b"").unwrap_err();
            assert!(error.contains("stack overflow"), "{way}: {error}");
        }
    });
}

#[test]
fn mappers_have_the_same_limits() {
    for way in WAYS {
        let code = format!(
            "{EVALUATE} {way}
             function map(k, v, emit) pcall(nest) emit(k, v) end
             function run() local r = tyrant.map_reduce{{map = 'map'}} return r.k[1] .. r.l[1] end"
        );
        let script = script(&code, SHORT);
        // The script may put more records, and the metatable of its globals fail.
        if let Ok(result) = script.call("run", b"") {
            assert_eq!(result.unwrap(), b"vv", "{way}");
        }
    }
}
