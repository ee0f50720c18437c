//! Limits: scripts that take too long or too much fail, and their states stay usable.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use scripts::{Allowed, Limits};
use std::time::{Duration, Instant};
use support::{EVALUATE, LATE, Script, WAIT_MAX, check, limits, memory};

/// Runs code that must fail with a message that contains `expected`, and checks that the state
/// still works.
#[track_caller]
fn fails(code: &str, expected: &str) {
    let code = format!("{EVALUATE}\nfunction run() {code}\nend");
    let script =
        if expected.contains(LATE) { Script::short(&code) } else { Script::limited(&code) };
    for _ in 0..2 {
        let error = script.call("run", b"").unwrap_err();
        assert!(error.contains(expected), "{error}");
        check(&script, &[("1 + 1", "2"), ("('abc'):find('b')", "2 2")]);
    }
}

const MEMORY: &str = "not enough memory";

#[test]
fn a_call_that_meets_a_limit_names_the_function_and_the_setting() {
    fails("while true do end", "run: the call takes longer than its limit, script-time-max: raise");
    fails("local t = {} while true do t[#t + 1] = {} end", "run: not enough memory: a script has ");
    fails("local t = {} while true do t[#t + 1] = {} end", " bytes, script-memory-max: raise");
    for (code, setting) in [
        ("_stat('x')", "script-files"),
        ("os.getenv('x')", "script-programs"),
        ("io.open('x')", "script-files"),
        ("os.execute('x')", "script-programs"),
    ] {
        fails(code, &format!(" (a nil value); only with {setting} scripts have it"));
    }
}

#[test]
fn an_endless_loop_ends_at_the_deadline() {
    fails("while true do end", LATE);
}

#[test]
fn pcall_in_an_endless_loop_does_not_catch_the_deadline() {
    fails("while true do pcall(function() while true do end end) end", LATE);
    fails("local function f() while true do pcall(f) end end f()", LATE);
}

#[test]
fn xpcall_does_not_catch_the_deadline() {
    fails("while true do xpcall(function() while true do end end, function() end) end", LATE);
    fails(
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        LATE,
    );
    fails("xpcall(error, function() while true do end end)", LATE);
}

const INSTRUCTIONS: &str = "more instructions than its limit";

/// Returns a script that may take this many instructions per call, and has time enough.
fn with_instructions(code: &str, call_instructions: u64) -> Script {
    let limits = Limits { call_instructions, call_time: WAIT_MAX, ..Limits::default() };
    Script::with(code, limits, Allowed::default(), memory())
}

#[test]
fn a_call_takes_as_many_instructions_as_allowed_and_no_more() {
    // A loop takes an instruction each time.
    let code = "function run(n) for _ = 1, tonumber(n) do end return 'done' end";
    let script = with_instructions(code, 1_000_000);
    for _ in 0..3 {
        assert_eq!(script.text("run", "990000"), "done");
        let error = script.call("run", b"1010000").unwrap_err();
        assert!(error.contains(INSTRUCTIONS), "{error}");
    }
}

#[test]
fn nothing_evades_the_limit_of_instructions() {
    for body in [
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() end) end",
        "while true do coroutine.wrap(function() end)() end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "local c = coroutine.wrap(function() while true do coroutine.yield() end end)
         while true do c() end",
        "local t = {} for i = 1, 1000 do t[i] = i % 7 end while true do table.sort(t) end",
        "_put('k', 'v') while true do _foreach(function() while true do end end) end",
    ] {
        let script = with_instructions(&format!("function run() {body} end"), 1_000_000);
        let error = script.call("run", b"").unwrap_err();
        assert!(error.contains(INSTRUCTIONS), "{body}: {error}");
    }
}

#[test]
fn each_call_of_a_mapper_has_the_instructions_of_a_call() {
    let script = with_instructions(
        "function map(key, value, emit) for _ = 1, tonumber(value) do end emit(key, '') end
         function fill(n) for i = 1, 20 do _put('k' .. i, n) end return 'done' end
         function run() return #tyrant.map_reduce{map = 'map', threads = 1} .. '' end",
        200_000,
    );
    script.text("fill", "100000");
    assert_eq!(script.text("run", ""), "0");
    script.text("fill", "300000");
    let error = script.call("run", b"").unwrap_err();
    assert!(error.contains(INSTRUCTIONS), "{error}");
}

#[test]
fn a_search_for_keys_ends_at_the_deadline() {
    for function in ["_fwmkeys('x')", "tyrant.keys('x')", "pcall(tyrant.keys, 'x')"] {
        let limits = Limits { call_time: Duration::from_millis(1), ..Limits::default() };
        let code = format!("function run() for _ = 1, 100 do {function} end end");
        let database = memory();
        for key in 0..20_000 {
            database.put(format!("key {key}").as_bytes(), b"").unwrap();
        }
        let script = Script::with(&code, limits, Allowed::default(), database);
        let error = script.call("run", b"").unwrap_err();
        assert!(error.contains(LATE), "{function}: {error}");
    }
}

#[test]
fn map_reduce_is_refused_where_each_mapper_would_begin_another() {
    let script = Script::limited(
        "ok, message = pcall(tyrant.map_reduce, {map = 'map'})
         function map(key, value, emit) emit(pcall(tyrant.map_reduce, {map = 'map'}) and 'y' or 'n', '') end
         function loaded() return message end
         function run() return next(tyrant.map_reduce{map = 'map'}) end",
    );
    script.records.put(b"k", b"v", None).unwrap();
    assert!(script.text("loaded", "").contains("while the script is loaded"));
    assert_eq!(script.text("run", ""), "n");
}

#[test]
fn sorting_takes_as_much_disk_as_allowed_and_no_more() {
    let code = "function map(k, v, emit) for i = 1, 200 do emit(('k'):rep(100) .. i, 'v') end return true end
         function old() return _mapreduce(map, function() return true end) and 'done' or 'failed' end
         function new() return pcall(tyrant.map_reduce, {map = 'map'}) and 'done' or 'failed' end
         function why() return select(2, pcall(tyrant.map_reduce, {map = 'map'})) end";
    for (sort_disk_bytes, is_enough) in [(1 << 20, true), (1000, false)] {
        let limits = Limits { sort_bytes: 1000, sort_disk_bytes, ..Limits::default() };
        let script = Script::with(code, limits, Allowed::default(), memory());
        script.records.put(b"k", b"v", None).unwrap();
        for name in ["new", "old", "new", "old"] {
            assert_eq!(script.text(name, "") == "done", is_enough, "{name}");
        }
        assert_eq!(script.text("why", "").contains("script-sort-disk-max"), !is_enough);
    }
}

#[test]
fn a_pattern_that_is_complex_for_a_long_text_is_refused() {
    let limits = Limits { call_time: WAIT_MAX, ..Limits::default() };
    let script = Script::with(EVALUATE, limits, Allowed::default(), memory());
    check(
        &script,
        &[
            ("_regex(('a'):rep(1e4), '[ab]*a[ab]{300}$')", "true"),
            (
                "_regex(('a'):rep(1e6), '[ab]*a[ab]{300}$')",
                "error: _regex: the pattern is too complex for a text of 1000000 bytes, split the text",
            ),
            (
                "_regex(('a'):rep(1e6), '[ab]*a[ab]{300}$', '')",
                "error: _regex: the pattern is too complex for a text of 1000000 bytes, split the text",
            ),
            ("#_regex(('ab'):rep(5e5), 'a(b)', '\\\\1')", "500000"),
            ("_regex(('a'):rep(1e6), '(')", "false"),
        ],
    );
}

#[test]
fn coroutines_do_not_evade_the_deadline() {
    fails("coroutine.wrap(function() while true do end end)()", LATE);
    fails(
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        LATE,
    );
    fails(
        "local function f() while true do coroutine.resume(coroutine.create(f)) end end f()",
        LATE,
    );
    fails("local function f() while true do pcall(coroutine.wrap(f)) pcall(f) end end f()", LATE);
}

#[test]
fn a_coroutine_of_an_earlier_call_has_the_deadline_of_the_present_one() {
    let script = Script::short(
        "local c = coroutine.create(function() coroutine.yield() while true do end end)
         coroutine.resume(c)
         function run() coroutine.resume(c) return coroutine.status(c) end",
    );
    assert!(script.call("run", b"").unwrap_err().contains(LATE));
    assert_eq!(script.text("run", ""), "dead");
}

#[test]
fn many_short_coroutines_end_at_the_deadline() {
    for make in ["coroutine.wrap(f)(depth - 1)", "coroutine.resume(coroutine.create(f), depth - 1)"]
    {
        let code = format!(
            "local function f(depth) if depth > 0 then for _ = 1, 100 do {make} end end end f(20)"
        );
        fails(&code, LATE);
    }
}

#[test]
fn code_that_takes_long_to_compile_is_refused() {
    let code = "local a return ' .. ('a or '):rep(500000) .. 'a";
    let script = Script::limited(&format!(
        "function run() local f, message = loadstring('{code}') return message end"
    ));
    assert!(script.text("run", "").contains("the code is longer than"));
}

#[test]
fn a_text_that_is_in_a_table_many_times_is_not_copied_each_time() {
    let table = "local s, t = ('x'):rep(1e6), {} for i = 1, 1e5 do t[i] = s end";
    fails(&format!("{table} _union(t)"), MEMORY);
    fails(&format!("{table} tyrant.json_encode(t)"), MEMORY);
    fails(&format!("{table} _misc('putlist', {{unpack(t, 1, 1000)}})"), MEMORY);
    fails(&format!("{table} print(unpack(t, 1, 1000))"), MEMORY);
    fails(
        "local t, all = {[('k'):rep(1e6)] = 1}, {} for i = 1, 1e5 do all[i] = t end
         tyrant.json_encode(all)",
        MEMORY,
    );
    fails("local t = {1} for _ = 1, 60 do t = {t, t} end tyrant.json_encode(t)", MEMORY);
    fails(
        "local t, all = {}, {} for i = 1, 1e5 do t[i] = 1 end for i = 1, 20 do all[i] = t end
         _pack('c*', unpack(all))",
        MEMORY,
    );
}

#[test]
fn functions_of_lua_are_none_of_the_script() {
    let script = Script::limited("own = print function sort() return 'mine' end");
    for name in ["print", "loadstring", "collectgarbage", "own"] {
        let error = script.call(name, b"").unwrap_err();
        assert!(error.contains("there is no function"), "{error}");
    }
    assert_eq!(script.text("sort", ""), "mine");
}

#[test]
fn no_function_of_a_script_has_the_address_of_one_of_lua() {
    // The functions have up to 9 upvalues, so that they are of all sizes.
    let script = Script::with(
        "local next, tostring, type, collectgarbage, rawset = next, tostring, type, collectgarbage, rawset
         local a, b, c, d, e, f, g, h, i
         local old, names = {}, {}
         for name, value in next, _G do
           if type(value) == 'function' then old[tostring(value)] = name names[name] = true end
         end
         for name in next, names do rawset(_G, name, nil) end
         collectgarbage() collectgarbage()
         local again, kept = 'none', {}
         local function keep(made)
           kept[#kept + 1] = made
           if old[tostring(made)] then again = old[tostring(made)] end
         end
         for n = 1, 20000 do
           keep(function() end)
           keep(function() return a end)
           keep(function() return a, b end)
           keep(function() return a, b, c, d end)
           keep(function() return a, b, c, d, e, f, g, h, i end)
         end
         function result() return again end",
        Limits::default(),
        Allowed::default(),
        memory(),
    );
    assert_eq!(script.text("result", ""), "none");
}

#[test]
fn the_format_of_a_date_is_limited() {
    let script = Script::new(EVALUATE);
    check(
        &script,
        &[
            ("#os.date(('x'):rep(4096))", "4096"),
            ("os.date(('x'):rep(4097))", "error: the format is longer than 4096 bytes"),
        ],
    );
}

#[test]
fn a_place_before_the_first_one_is_refused_by_insert() {
    fails("table.insert({}, -2 ^ 31, 1)", "position out of bounds");
}

#[test]
fn names_of_locks_and_their_number_are_limited() {
    fails("_lock(('x'):rep(2000))", "the name is longer");
    fails("for i = 1, 2000 do _lock(i) end", "names already");
}

#[test]
fn a_mapper_that_fails_releases_its_locks() {
    let script = Script::limited(
        "function map() _lock('x') error('no') end
         function run() _put('k', 'v') return pcall(tyrant.map_reduce, {map = 'map'}) and 1 or 0 end
         function lock() return _lock('x') end",
    );
    assert_eq!(script.text("run", ""), "0");
    assert_eq!(script.text("lock", ""), "true");
}

#[test]
fn an_error_with_an_endless_metamethod_ends_at_the_deadline() {
    fails("error(setmetatable({}, {__tostring = function() while true do end end}))", LATE);
}

#[test]
fn a_pattern_that_backtracks_for_ever_ends_at_the_deadline() {
    let pattern = "('a?'):rep(28) .. ('a'):rep(28)";
    for function in ["find", "match"] {
        fails(&format!("(('a'):rep(28)):{function}({pattern})"), LATE);
    }
    fails(&format!("(('a'):rep(28)):gsub({pattern}, '')"), LATE);
    fails("for _ in (('a'):rep(28)):gmatch(('a?'):rep(28) .. ('a'):rep(28)) do end", LATE);
    fails("while true do pcall(string.find, ('a'):rep(3000), ('.-'):rep(50) .. 'b') end", LATE);
}

#[test]
fn a_template_of_many_empty_captures_ends_at_the_deadline() {
    fails("(('x'):rep(1e5)):gsub('', ('%0'):rep(1e6))", LATE);
    fails("_regex(('x'):rep(1e5), 'x()', ('\\\\1'):rep(1e6))", LATE);
}

#[test]
fn a_search_has_a_limit_of_steps() {
    let limits = Limits { pattern_steps: 1000, ..Limits::default() };
    let script = Script::with(EVALUATE, limits, Allowed::default(), memory());
    check(
        &script,
        &[
            (
                "(('a'):rep(28)):find(('a?'):rep(28) .. ('a'):rep(28))",
                "error: the search for a pattern takes more steps than its limit",
            ),
            (
                "(('a'):rep(900)):find('a*b')",
                "error: the search for a pattern takes more steps than its limit",
            ),
            ("(('a'):rep(900)):find('^a*$')", "1 900"),
            (
                "(('a'):rep(900)):find('^[abcdefgh]*$')",
                "error: the search for a pattern takes more steps than its limit",
            ),
            (
                "(('a'):rep(90)):find('[' .. ('b'):rep(100) .. ']')",
                "error: the search for a pattern takes more steps than its limit",
            ),
            (
                "(('a'):rep(90)):find('%f[' .. ('b'):rep(100) .. ']')",
                "error: the search for a pattern takes more steps than its limit",
            ),
            ("(('a'):rep(90)):find('^[abcdefgh]*$')", "1 90"),
        ],
    );
}

#[test]
fn a_search_with_many_levels_is_refused() {
    let script = Script::new(EVALUATE);
    check(
        &script,
        &[
            ("(('a'):rep(200)):find(('a?'):rep(200))", "1 200"),
            ("(('a'):rep(201)):find(('a?'):rep(201))", "error: pattern too complex"),
            ("(('a'):rep(1e5)):find(('a?'):rep(1e5))", "error: pattern too complex"),
        ],
    );
}

#[test]
fn tables_strings_and_recursion_do_not_exceed_the_memory() {
    fails("local t = {} while true do t[#t + 1] = {} end", MEMORY);
    fails("local s = 'x' while true do s = s .. s end", MEMORY);
    fails("return ('x'):rep(1e9)", MEMORY);
    fails("local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e5) .. i end", MEMORY);
    fails("return (('x'):rep(4000)):gsub('x', ('y'):rep(4000))", MEMORY);
    fails("return _strstr(('x'):rep(4000), 'x', ('y'):rep(4000))", MEMORY);
    fails("return _regex(('x'):rep(4000), 'x', ('y'):rep(4000))", MEMORY);
    for whole in ["('%0'):rep(1e6))", "('%1'):rep(1e6))"] {
        fails(&format!("return (('x'):rep(1e6)):gsub('.*', {whole}"), MEMORY);
    }
    fails("return _regex(('x'):rep(1e6), '.*', ('&'):rep(1e6))", MEMORY);
    fails("return _dist('a', ('x'):rep(2e6))", MEMORY);
    let fill = "local s = 'x' while true do s = s .. s end";
    fails(&format!("_put('k', 'v') return _foreach(function() {fill} end)"), MEMORY);
    fails(&format!("_put('k', 'v') return _mapreduce(function() {fill} end, print)"), MEMORY);
    fails("_put('k', 'v') return _foreach(function() return ('x'):rep(1e9) end)", MEMORY);
    fails("local function f() return 1 + f() end return f()", "stack overflow");
    fails("local t = {} local function f(...) t[#t + 1] = {...} return f(1, ...) end f()", "");
    fails("return ('').rep('', 1e9) .. ('x'):rep(1e10)", MEMORY);
}

#[test]
fn memory_in_globals_is_freed_with_the_state() {
    let script = Script::limited(
        "function fill() t = {} while true do t[#t + 1] = {} end end function count() return t and #t or 0 end",
    );
    assert!(script.call("fill", b"").unwrap_err().contains(MEMORY));
    assert_eq!(script.text("count", ""), "0");
}

#[test]
fn garbage_does_not_exceed_the_memory() {
    let script = Script::with(
        "function run() local s for i = 1, 300 do s = ('x'):rep(1e6) .. i end return #s end",
        limits(),
        Allowed::default(),
        memory(),
    );
    assert_eq!(script.text("run", ""), "1000003");
}

#[test]
fn nested_callbacks_do_not_overflow_the_stack() {
    fails("local function f() return ('x'):gsub('x', f) end return f()", "stack overflow");
    fails(
        "local function f() local c = coroutine.create(f) local ok, e = coroutine.resume(c) if not ok then error(e, 0) end end f()",
        "stack overflow",
    );
    fails(
        "_put('a', 'b') local function f() _foreach(function() f() return true end) error('deep') end f()",
        "",
    );
}

#[test]
fn sleeping_ends_at_the_deadline() {
    fails("_sleep(100)", LATE);
    fails("while true do pcall(_sleep, 1e300) end", LATE);
}

#[test]
fn a_lock_stays_after_its_call_until_it_is_unlocked_or_its_time_is_over() {
    let code = "function take(k) return _lock(k) end
         function twice(k) return _lock(k) and _lock(k) end
         function free(k) return tostring(_unlock(k)) end
         function fail(k) _lock(k) error('no') end";
    let script = Script::limited(code);
    for _ in 0..2 {
        assert_eq!(script.text("take", "a"), "true");
        assert_eq!(script.text("free", "a"), "true");
        assert_eq!(script.text("free", "a"), "false");
        script.call("fail", b"a").unwrap_err();
    }
    assert!(script.call("twice", b"a").unwrap_err().contains("already"));
    assert_eq!(script.text("take", "a"), "true");
    // The call waits for a lock until its own time is over.
    let script = Script::short(code);
    assert_eq!(script.text("take", "a"), "true");
    assert!(script.call("take", b"a").unwrap_err().contains(LATE));
    let limits = Limits { lock_time: Duration::from_millis(10), ..limits() };
    let script = Script::with(code, limits, Allowed::default(), memory());
    for _ in 0..3 {
        assert_eq!(script.text("take", "a"), "true");
    }
}

#[test]
fn sorting_and_joining_long_tables_end_at_the_deadline() {
    fails(
        "local t = {} for i = 1, 20000 do t[i] = i % 7 end while true do table.sort(t) end",
        LATE,
    );
    fails("local t = {} for i = 1, 20000 do t[i] = '' end while true do table.concat(t) end", LATE);
    fails("while true do collectgarbage() end", LATE);
    fails("while true do loadstring('return 1') end", LATE);
}

#[test]
fn decompressed_texts_do_not_exceed_the_memory() {
    for mode in ["deflate", "gzip", "bzip", "pack", "tcbs"] {
        let code = format!(
            "function run()
               local c = _codec('{mode}', ('x'):rep(5e5))
               local t = {{}}
               for i = 1, 10 do t[i] = _codec('~{mode}', c) .. i end
             end"
        );
        let limits = Limits { state_bytes: 2 << 20, ..Limits::default() };
        let script = Script::with(&code, limits, Allowed::default(), memory());
        assert!(script.call("run", b"").unwrap_err().contains(MEMORY), "{mode}");
    }
}

#[test]
fn what_could_harm_the_process_is_absent() {
    let script = Script::new(&format!("{EVALUATE} code = '\\27Lua'"));
    for name in [
        "newproxy",
        "dofile",
        "loadfile",
        "require",
        "module",
        "package",
        "io",
        "string.dump",
        "os.execute",
        "os.exit",
        "os.remove",
        "os.rename",
        "os.tmpname",
        "os.getenv",
        "os.setlocale",
        "debug.getregistry",
        "debug.sethook",
        "debug.getupvalue",
        "debug.setmetatable",
        "_stat",
        "_glob",
        "_remove",
        "_mkdir",
    ] {
        check(&script, &[(name, "nil")]);
    }
    check(
        &script,
        &[
            ("loadstring('\\27Lua')", "nil \"compiled code is not allowed, load its source\""),
            ("(load(function() local c = code code = nil return c end))", "nil"),
            ("load(function() return {} end)", "error: reader function must return a string"),
            ("collectgarbage('stop')", "0"),
            ("getmetatable('').__index == string", "true"),
            ("type(os.time())", "\"number\""),
        ],
    );
}

#[test]
fn files_have_no_finalizer_of_the_script() {
    let allowed = Allowed { files: true, ..Allowed::default() };
    let script = Script::with(EVALUATE, Limits::default(), allowed, memory());
    check(
        &script,
        &[
            ("getmetatable(io.stdout)", "false"),
            ("io.stdout.__gc", "nil"),
            ("io.stdout.__index", "nil"),
            ("type(io.stdout.write)", "\"function\""),
        ],
    );
}

/// Tries of [`ends_early`].
const TRIES_MAX: usize = 10;

/// Calls `run` with a key without a limit of time, and with one of a third of the time that it
/// took. Checks that the second call fails, and ends in less than two thirds of that time. A busy
/// machine slows either down, so some tries may fail.
#[track_caller]
fn ends_early(code: &str, key: &[u8]) {
    let code = format!("function run(s) {code} end");
    let script = |call_time| {
        let limits = Limits { call_time, ..Limits::default() };
        Script::with(&code, limits, Allowed::default(), memory())
    };
    let call = |script: &Script| {
        let began = Instant::now();
        (script.call("run", key), began.elapsed())
    };
    let mut tries = Vec::new();
    for _ in 0..TRIES_MAX {
        let (result, whole) = call(&script(WAIT_MAX));
        result.unwrap();
        let (result, limited) = call(&script(whole / 3));
        let is_late = result.as_ref().is_err_and(|error| error.contains(LATE));
        if is_late && limited < whole * 2 / 3 {
            return;
        }
        tries.push((whole, limited, result));
    }
    panic!("{tries:?} of {code}");
}

#[test]
fn long_functions_end_at_the_deadline() {
    let text = |part: &str, times: usize| part.repeat(times).into_bytes();
    let numbers = text("1,2,3,", 100_000);
    for (code, key) in [
        ("_codec('tcbs', s)", text("abcdefgh", 30_000)),
        ("_codec('hex', s)", text("a", 4_000_000)),
        ("_codec('~hex', s)", text("a", 4_000_000)),
        ("_codec('~base', s)", text("a", 8_000_000)),
        ("_codec('~xml', s)", text("a", 4_000_000)),
        ("_codec('pack', s)", text("ab", 4_000_000)),
        ("_codec('~tcbs', _codec('tcbs', s))", text("a", 300_000)),
        ("_split(s, ',')", numbers.clone()),
        ("local t = _split(s, ',') _isect(t, t)", numbers.clone()),
        ("local t = _split(s, ',') _union(t, t)", numbers.clone()),
        ("_pack('I*', _split(s, ','))", numbers.clone()),
        ("_misc('none', _split(s, ','))", numbers.clone()),
        ("_ucs(_unpack('C*', s))", text("x", 200_000)),
        ("tyrant.json_encode(_split(s, ','))", numbers.clone()),
        ("table.concat(_split(s, ','))", numbers.clone()),
        ("tyrant.json_decode('[' .. s .. '1]')", text("[[[[1,2]]]],", 30_000)),
        ("_unpack('C*', s)", text("x", 400_000)),
        ("_ucs(s)", text("x", 400_000)),
        ("_hash('md5', s)", text("x", 30_000_000)),
        ("_dist(s, s)", text("x", 3_000)),
        ("for x in s:gmatch('%d') do end", text("x", 8_000_000)),
        // Lua's own comparison, whose time per instruction grows with the texts.
        (
            "local a, b = s .. 'a', s .. 'b' for i = 1, 50 do local x = a < b end",
            vec![0; 2_000_000],
        ),
    ] {
        ends_early(code, &key);
    }
}

#[test]
fn a_large_state_takes_as_many_instructions_as_a_small_one() {
    let code = "
        function grow() kept = ('x'):rep(8e6) return 1 end
        function shrink() kept = nil collectgarbage() return 1 end
        function loop(count) for i = 1, tonumber(count) do end return 'done' end
        co = coroutine.wrap(function() while true do loop(1e5) coroutine.yield('done') end end)
        function within() return co() end
        function inside(count)
          local made = coroutine.wrap(function() return loop(count) end)
          return made()
        end";
    let limits =
        Limits { call_time: Duration::from_secs(2), call_instructions: 1_000_000, ..limits() };
    let limits = Limits { state_bytes: 64 << 20, ..limits };
    let script = Script::with(code, limits, Allowed::default(), memory());
    for change in ["grow", "shrink", "grow"] {
        script.text(change, "");
        for name in ["loop", "inside", "loop", "inside"] {
            assert_eq!(script.text(name, "900000"), "done");
            let error = loop {
                let error = script.call(name, b"1100000").unwrap_err();
                if !error.contains(LATE) {
                    break error;
                }
            };
            assert!(error.contains("more instructions"), "{error}");
        }
        assert_eq!(script.text("within", ""), "done");
    }
}
