//! Functions of Tokyo Tyrant's scripts, each by its name.

mod support;

use scripts::{Allowed, Limits};
use std::collections::BTreeSet;
use support::{EVALUATE, Script, check, memory, memory_tree};

fn script() -> Script {
    Script::new(EVALUATE)
}

fn ordered() -> Script {
    Script::with(EVALUATE, Limits::default(), Allowed::default(), memory_tree())
}

fn with_files() -> Script {
    let allowed = Allowed { files: true, programs: false };
    Script::with(EVALUATE, Limits::default(), allowed, memory())
}

/// Returns the names of functions and constants in the tables of `docs/lua.md`.
fn documented() -> BTreeSet<&'static str> {
    let page = include_str!("../../../docs/lua.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let words = cells.flat_map(|cell| cell.split(['`', ' ', ',']));
    let names = words.filter_map(|word| word.split(['(', '{']).next());
    names.filter(|name| name.starts_with('_') || name.starts_with("tyrant.")).collect()
}

#[test]
fn each_function_that_is_documented_is_present_and_each_that_is_present_is_documented() {
    let script = with_files();
    let documented = documented();
    assert!(documented.len() > 60, "{documented:?}");
    for name in &documented {
        check(&script, &[(&format!("{name} ~= nil"), "true")]);
    }
    let listed = "(function() local names = {} for name in pairs(_G) do
        if name:find('^_%l') then names[#names + 1] = name end end
        for name in pairs(tyrant) do names[#names + 1] = 'tyrant.' .. name end
        return table.concat(names, ' ') end)()";
    let present = script.text("evaluate", listed);
    for name in present.trim_matches('"').split(' ') {
        let is_in_text = ["tyrant.null", "tyrant.array"].contains(&name);
        assert!(documented.contains(name) || is_in_text, "{name}");
    }
}

#[test]
fn put_get_out_and_vsiz() {
    check(
        &script(),
        &[
            ("_put('a', '1')", "true"),
            ("_put('a', 1.5)", "true"),
            ("_get('a')", "\"1.5\""),
            ("_putkeep('a', 'x')", "false"),
            ("_putcat('a', '0')", "true"),
            ("_vsiz('a')", "4"),
            ("_out('a')", "true"),
            ("_out('a')", "false"),
            ("_get('a')", "nil"),
            ("_vsiz('a')", "-1"),
            ("pcall(_put, 'a')", "false \"bad argument #2 (string expected, got nil)\""),
            ("pcall(_put, 'a', 'b', 'c')", "false \"too many arguments\""),
        ],
    );
}

#[test]
fn addint_and_adddouble() {
    check(
        &script(),
        &[
            ("_addint('n', 5)", "5"),
            ("_addint('n', '-7')", "-2"),
            ("_adddouble('d', 1.5)", "1.5"),
            ("_adddouble('d', 1.5)", "3"),
            ("_put('long', 'no number')", "true"),
            ("_addint('long', 1)", "nil"),
        ],
    );
}

#[test]
fn iterinit_and_iternext() {
    check(
        &ordered(),
        &[
            ("_put('b', '') _put('a', '')", ""),
            ("_iterinit()", "true"),
            ("_iternext()", "\"a\""),
            ("_iternext()", "\"b\""),
            ("_iternext()", "nil"),
        ],
    );
}

#[test]
fn fwmkeys_rnum_size_and_vanish() {
    check(
        &ordered(),
        &[
            ("_put('ab', '') _put('aa', '') _put('b', '')", ""),
            ("_fwmkeys('a')", "{\"aa\",\"ab\"}"),
            ("_fwmkeys('a', 1)", "{\"aa\"}"),
            ("_fwmkeys('', -1)", "{\"aa\",\"ab\",\"b\"}"),
            ("_rnum()", "3"),
            ("_size() >= 0", "true"),
            ("_vanish()", "true"),
            ("_rnum()", "0"),
        ],
    );
}

#[test]
fn misc() {
    check(
        &ordered(),
        &[
            ("_misc('putlist', 'a', '1', {'b', '2'})", "{}"),
            ("_misc('getlist', {'a', 'b'})", "{\"a\",\"1\",\"b\",\"2\"}"),
            ("_misc('$put', 'c', '3')", "{}"),
            ("_misc('get', 'none')", "nil"),
            (
                "local t = {} for i = 1, 20000 do t[i] = 'a' end return #_misc('getlist', t)",
                "40000",
            ),
            ("_misc('none')", "nil"),
        ],
    );
}

#[test]
fn foreach() {
    check(
        &ordered(),
        &[
            ("_put('a', '1') _put('b', '2') _put('c', '3')", ""),
            (
                "local t = {} local r = _foreach(function(k, v) t[#t + 1] = k .. v return k < 'b' end) return r, t",
                "true {\"a1\",\"b2\"}",
            ),
            ("_foreach(function(k, v) error('no') end)", "true"),
            ("_foreach(function(k, v) _put(k, v .. v) return true end)", "true"),
            ("_get('b')", "\"22\""),
        ],
    );
}

#[test]
fn mapreduce() {
    let script = ordered();
    check(
        &script,
        &[
            ("_put('a', 'x y') _put('b', 'y z') _put('c', 'z z')", ""),
            (
                "local t = {} local r = _mapreduce(
                   function(k, v, emit) for w in v:gmatch('%a') do emit(w, k) end return true end,
                   function(w, ks) t[#t + 1] = w .. table.concat(ks) return true end)
                 return r, t",
                "true {\"xa\",\"yab\",\"zbcc\"}",
            ),
            (
                "local t = {} local r = _mapreduce(
                   function(k, v, emit) emit(k, v) return true end,
                   function(k, vs) t[#t + 1] = k return true end, {'c', 'none', 'a'})
                 return r, t",
                "true {\"a\",\"c\"}",
            ),
            (
                "local e _mapreduce(function(k, v, emit) e = emit return true end, function() end)
                 return pcall(e, 'k', 'v')",
                "false \"the mapping has ended\"",
            ),
        ],
    );
}

#[test]
fn mapreduce_sorts_more_than_its_memory_through_files() {
    let limits = Limits { sort_bytes: 10_000, ..Limits::default() };
    let script = Script::with(EVALUATE, limits, Allowed::default(), memory());
    check(
        &script,
        &[
            ("for i = 1, 1000 do _put(i, i % 10) end", ""),
            (
                "local n, last = 0 local r = _mapreduce(
                   function(k, v, emit) return emit(v, k) end,
                   function(v, ks) n = n + #ks if last and last >= v then error() end last = v return true end)
                 return r, n, last",
                "true 1000 \"9\"",
            ),
            ("_tmpdir_ = '/none'", ""),
            (
                "(_mapreduce(function(k, v, emit) for i = 1, 100 do emit(v, k) end return true end, function() end))",
                "false",
            ),
        ],
    );
}

#[test]
fn stash() {
    check(
        &script(),
        &[
            ("_stashput('a', 1)", "true"),
            ("_stashputkeep('a', 2)", "true"),
            ("_stashputcat('a', 3)", "true"),
            ("_stashget('a')", "\"13\""),
            (
                "_stashput('b', 4) local t = {} _stashforeach(function(k, v) t[#t + 1] = k .. v return true end) return t",
                "{\"a13\",\"b4\"}",
            ),
            ("_stashout('a')", "true"),
            ("_stashout('a')", "false"),
            ("_stashvanish()", ""),
            ("_stashget('b')", "nil"),
        ],
    );
}

#[test]
fn lock_and_unlock() {
    check(&script(), &[("_lock('a'), _unlock('a'), _unlock('a')", "true true false")]);
}

#[test]
fn eval() {
    check(
        &script(),
        &[
            ("_eval('x = 7')", "true"),
            ("x", "7"),
            ("_eval('no code')", "true"),
            ("_eval('error(1)')", "true"),
        ],
    );
}

#[test]
fn log_time_and_sleep() {
    check(
        &script(),
        &[
            ("_log('a') _log('a', 0) _log('a', 2)", ""),
            ("_time() > 1.7e9", "true"),
            ("local t = _time() return _sleep(0.01), _time() - t >= 0.01", "true true"),
            ("_sleep(-1)", "true"),
        ],
    );
}

#[test]
fn pack_and_unpack() {
    check(
        &script(),
        &[
            ("_pack('c3', 65, 66, 67)", "\"ABC\""),
            ("_pack('nN', 258, {16909060})", "\"\\1\\2\\1\\2\\3\\4\""),
            ("_pack('w*', 1, 127, 128, 16384)", "\"\\1\\127\\129\\0\\129\\128\\0\""),
            ("_pack('C', -1), _pack('S', 65537)", "\"\\255\" \"\\1\\0\""),
            ("_pack('z')", "\"\""),
            ("_unpack('n*', '\\1\\2\\3\\4')", "{258,772}"),
            ("_unpack('c2 C', '\\255\\1\\255')", "{-1,1,255}"),
            ("_unpack('M', _pack('M', 2^53))", "{9.007199254741e+15}"),
            ("_unpack('N', '\\1')", "{}"),
            ("_unpack('w', ('\\255'):rep(100))[1] > 0", "true"),
        ],
    );
}

#[test]
fn protected_calls_and_coroutines_return_many_values() {
    // Around the 20 values for which a function of C has room without asking.
    for count in (15..25).chain([255, 5000]) {
        let many = format!("function() return unpack({{}}, 1, {count}) end");
        let expected = (count + 1).to_string();
        let calls = [
            format!("pcall(unpack, {{}}, 1, {count})"),
            format!("pcall({many})"),
            format!("pcall(string.byte, ('x'):rep({count}), 1, -1)"),
            format!("xpcall({many}, error)"),
            format!("coroutine.resume(coroutine.create({many}))"),
            format!("1, coroutine.wrap({many})()"),
        ];
        for call in calls {
            check(&script(), &[(&format!("select('#', {call})"), &expected)]);
        }
    }
}

#[test]
fn split() {
    check(
        &script(),
        &[
            ("_split('a\\0b')", "{\"a\",\"b\"}"),
            ("_split('a,b;;c', ',;')", "{\"a\",\"b\",\"\",\"c\"}"),
            ("_split('')", "{\"\"}"),
        ],
    );
}

#[test]
fn codec() {
    let script = script();
    for mode in ["url", "base", "quote", "hex", "pack", "tcbs", "deflate", "gzip", "bzip", "xml"] {
        let text = "'a<b>&\"c\" = +%\\200\\n' .. ('x'):rep(300)";
        let back = format!("_codec('~{mode}', _codec('{mode}', {text})) == {text}");
        check(&script, &[(&back, "true")]);
    }
    check(
        &script,
        &[
            ("_codec('url', 'a b/')", "\"a%20b%2F\""),
            ("_codec('~url', 'a+b%2f%zz')", "\"a b/%zz\""),
            ("_codec('base', 'hello')", "\"aGVsbG8=\""),
            ("_codec('~base', 'aG Vs\\nbG8')", "\"hello\""),
            ("_codec('quote', 'a=\\200')", "\"a=3D=C8\""),
            ("_codec('~quote', 'a=\\nb=3D')", "\"ab=\""),
            ("_codec('hex', 'AZ')", "\"415a\""),
            ("_codec('~hex', '41 5A')", "\"AZ\""),
            ("_codec('xml', '<&>')", "\"&lt;&amp;&gt;\""),
            ("_codec('~xml', '&lt;&none;')", "\"<&none;\""),
            ("_codec('~gzip', 'garbage')", "nil"),
            ("_codec('none', '')", "nil"),
        ],
    );
}

#[test]
fn hash() {
    check(
        &script(),
        &[
            ("_hash('md5', 'hello')", "\"5d41402abc4b2a76b9719d911017c592\""),
            ("#_hash('md5raw', 'hello')", "16"),
            ("_hash('crc32', 'hello')", "907060870"),
            ("_hash('none', 'hello')", "nil"),
        ],
    );
}

#[test]
fn bit() {
    check(
        &script(),
        &[
            ("_bit('and', 12, 10), _bit('or', 12, 10), _bit('xor', 12, 10)", "8 14 6"),
            ("_bit('not', 0), _bit('left', 1, 31), _bit('left', 1, 32)", "4294967295 2147483648 1"),
            ("_bit('right', -1, 28), _bit('and', 2^40 + 5, 7)", "15 5"),
            ("(pcall(_bit, 'none', 1))", "false"),
        ],
    );
}

#[test]
fn strstr() {
    check(
        &script(),
        &[
            ("_strstr('hello', 'l'), _strstr('hello', 'x'), _strstr('hello', '')", "3 0 1"),
            ("_strstr('hello', 'l', 'LL'), _strstr('hello', '', 'x')", "\"heLLLLo\" \"hello\""),
        ],
    );
}

#[test]
fn regex() {
    check(
        &script(),
        &[
            ("_regex('Hello', '^h'), _regex('Hello', '*^h'), _regex('a', '[')", "false true false"),
            ("_regex('hello', '(l+)(o)', '<&|\\\\2\\\\1\\\\x>')", "\"he<llo|ollx>\""),
            ("_regex('aaa', '^a', 'b'), _regex('abc', 'x*', '-')", "\"baa\" \"-abc\""),
            ("_regex('a', '[', 'b')", "\"a\""),
        ],
    );
}

#[test]
fn ucs() {
    check(
        &script(),
        &[
            ("_ucs('a\\195\\164\\226\\130\\172')", "{97,228,8364}"),
            ("_ucs({97, 228, 8364})", "\"a\\195\\164\\226\\130\\172\""),
            ("_ucs(_ucs('\\240\\159\\152\\128')) == '\\240\\159\\152\\128'", "true"),
        ],
    );
}

#[test]
fn dist() {
    check(
        &script(),
        &[
            ("_dist('kitten', 'sitting'), _dist('', 'abc'), _dist('a', 'a')", "3 3 0"),
            ("_dist('a\\195\\164', 'ab'), _dist('a\\195\\164', 'ab', true)", "2 1"),
        ],
    );
}

#[test]
fn isect_and_union() {
    check(
        &script(),
        &[
            (
                "_isect({1, 2, 3}, {3, 2}), _isect({1, 1}, {1}), _isect()",
                "{\"2\",\"3\"} {\"1\"} {}",
            ),
            ("_union({'b', 'a'}, {'a', 'c'}), _union({})", "{\"b\",\"a\",\"c\"} {}"),
        ],
    );
}

#[test]
fn stat_glob_remove_and_mkdir() {
    let script = with_files();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").to_str().unwrap().to_string();
    std::fs::write(folder.path().join("file.lua"), "return {loaded = 7}").unwrap();
    let file = folder.path().join("file").to_str().unwrap().to_string();
    let all = folder.path().join("*.lua").to_str().unwrap().to_string();
    check(
        &script,
        &[
            (&format!("_mkdir('{path}'), _mkdir('{path}')"), "true false"),
            (&format!("_stat('{path}')._directory, _stat('{path}')._regular"), "true false"),
            (&format!("_stat('{file}.lua').size, _stat('none')"), "19 nil"),
            (&format!("_glob('{all}')[1] == '{file}.lua', _glob('none*')"), "true {}"),
            (&format!("dofile('{file}.lua')"), "{loaded=7}"),
            (&format!("(loadfile('{path}'))"), "nil"),
            (&format!("package.path = '{}/?.lua'", folder.path().display()), ""),
            ("require('file').loaded", "7"),
            (
                &format!("_remove('{path}'), _remove('{path}'), _remove('{file}.lua')"),
                "true false true",
            ),
            ("io.popen, os.execute, package.loadlib", "nil nil nil"),
            ("getmetatable(io.stdout)", "false"),
        ],
    );
}

#[test]
fn globals() {
    check(&script(), &[("_version, _thid, _thnum, _sid, _pid > 0", "\"1.1.41\" 1 1 0 true")]);
}

#[test]
fn os_date_has_the_formats_of_the_c_library() {
    check(
        &script(),
        &[
            ("os.date('!%Y-%m-%d %H:%M:%S', 86400)", "\"1970-01-02 00:00:00\""),
            ("os.date('!%c|%x|%X|%%', 0)", "\"Thu Jan  1 00:00:00 1970|01/01/70|00:00:00|%\""),
            (
                "os.date('!*t', 0)",
                "{day=1,hour=0,isdst=false,min=0,month=1,sec=0,wday=5,yday=1,year=1970}",
            ),
            ("#os.date() > 10, os.time() > 1e9", "true true"),
        ],
    );
}
