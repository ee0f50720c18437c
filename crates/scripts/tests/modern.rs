//! `tyrant.*`: functions beyond those of Tokyo Tyrant.

mod support;

use scripts::{Allowed, Limits};
use support::{EVALUATE, LATE, Script, check, memory, memory_tree};

fn ordered() -> Script {
    Script::with(EVALUATE, Limits::default(), Allowed::default(), memory_tree())
}

#[test]
fn the_names_of_mappers_are_looked_up_without_further_mappers() {
    let script = Script::limited(
        "setmetatable(_G, {__index = function() return tyrant.map_reduce{map = 'none'} end})
         function run() _put('k', 'v') return select(2, pcall(tyrant.map_reduce, {map = 'none'})) end",
    );
    let result = script.text("run", "");
    assert!(result.contains("map_reduce cannot be called while"), "{result}");
}

#[test]
fn records_have_expiry_and_versions() {
    check(
        &Script::new(EVALUATE),
        &[
            ("tyrant.put('a', '1')", ""),
            ("(tyrant.get('a'))", "\"1\""),
            ("tyrant.get('none')", "nil"),
            ("tyrant.put_new('a', '2')", "false nil"),
            ("(tyrant.put_new('b', '2'))", "true"),
            (
                "local _, version = tyrant.get('a')
                 local ok, new = tyrant.compare_and_swap('a', '3', version)
                 return ok, new ~= version, (tyrant.compare_and_swap('a', '4', version)), (tyrant.get('a'))",
                "true true false \"3\"",
            ),
            ("pcall(tyrant.compare_and_swap, 'a', '4', 'x')", "false \"a version is a text that tyrant.get returned\""),
            ("tyrant.put('e', '1', {expires_in = 100})", ""),
            ("math.abs(select(3, tyrant.get('e')) - tyrant.time() - 100) < 50", "true"),
            ("tyrant.put('e', '1', {expires_in = 0.001}) _sleep(0.01) return tyrant.get('e')", "nil"),
            ("(pcall(tyrant.put, 'e', '1', {expires_in = -1}))", "false"),
            ("tyrant.append('a', '4') return (tyrant.get('a'))", "\"34\""),
            ("tyrant.remove('a'), tyrant.remove('a')", "true false"),
            ("tyrant.count() >= 1, tyrant.keys('b'), tyrant.size() >= 0", "true {\"b\"} true"),
        ],
    );
}

#[test]
fn ranges_are_in_the_order_of_keys() {
    check(
        &ordered(),
        &[
            ("for _, k in ipairs{'c', 'a', 'b'} do tyrant.put(k, k .. k) end", ""),
            (
                "tyrant.range{}",
                "{{key=\"a\",value=\"aa\"},{key=\"b\",value=\"bb\"},{key=\"c\",value=\"cc\"}}",
            ),
            ("tyrant.range{begin = 'b', stop = 'c'}", "{{key=\"b\",value=\"bb\"}}"),
            ("#tyrant.range{max = 2}, tyrant.range{max = 0}", "2 {}"),
        ],
    );
    check(&Script::new(EVALUATE), &[("(pcall(tyrant.range, {}))", "false")]);
}

#[test]
fn a_transaction_is_made_whole_or_not_at_all() {
    check(
        &Script::new(EVALUATE),
        &[
            ("tyrant.put('a', '1')", ""),
            (
                "tyrant.transaction(function() tyrant.put('a', '2') tyrant.remove('b') tyrant.put('b', '2') return 7, 8 end)",
                "7 8",
            ),
            ("(tyrant.get('a')), (tyrant.get('b'))", "\"2\" \"2\""),
            (
                "pcall(tyrant.transaction, function() _put('a', '3') _out('b') error('no', 0) end)",
                "false \"no\"",
            ),
            ("(tyrant.get('a')), (tyrant.get('b'))", "\"2\" \"2\""),
            ("(pcall(tyrant.transaction, function() tyrant.transaction(print) end))", "false"),
            ("tyrant.put('a', '4') return (tyrant.get('a'))", "\"4\""),
        ],
    );
}

#[test]
fn a_transaction_is_undone_if_the_time_of_the_call_ends_in_it() {
    let script = Script::short(&format!(
        "{EVALUATE} function run() tyrant.transaction(function() _put('a', '1') while true do end end) end"
    ));
    script.call("run", b"").unwrap_err();
    check(&script, &[("_get('a')", "nil"), ("_put('a', '2')", "true")]);
}

#[test]
fn json_comes_back() {
    check(
        &Script::new(EVALUATE),
        &[
            ("tyrant.json_encode{1, 'a', true, tyrant.null, {}}", "\"[1,\"a\",true,null,{}]\""),
            ("tyrant.json_encode{a = 1.5}", "\"{\"a\":1.5}\""),
            ("tyrant.json_encode(tyrant.array())", "\"[]\""),
            ("tyrant.json_encode(2^53), tyrant.json_encode(-0.5)", "\"9007199254740992\" \"-0.5\""),
            (
                "tyrant.json_decode('{\"a\":[1,{\"b\":null}],\"c\":\"\\\\u00e4\"}')",
                "{a={1,{b=userdata}},c=\"\\195\\164\"}",
            ),
            (
                "tyrant.json_encode(tyrant.json_decode('{\"a\":[[],{},null]}')):gsub('\"', '')",
                "\"{a:[[],{},null]}\" 2",
            ),
            ("(pcall(tyrant.json_decode, '[1'))", "false"),
            ("(pcall(tyrant.json_encode, print))", "false"),
            ("(pcall(tyrant.json_encode, '\\255'))", "false"),
            ("(pcall(tyrant.json_encode, 0/0))", "false"),
            (
                "local t = {} t.t = t return pcall(tyrant.json_encode, t)",
                "false \"tables have more than 100 levels\"",
            ),
            ("(pcall(tyrant.json_decode, ('['):rep(100) .. (']'):rep(100)))", "true"),
            ("(pcall(tyrant.json_decode, ('['):rep(102) .. (']'):rep(102)))", "false"),
            ("(pcall(tyrant.json_decode, ('['):rep(1e6)))", "false"),
        ],
    );
}

#[test]
fn time_random_log_and_version() {
    check(
        &Script::new(EVALUATE),
        &[
            ("tyrant.time() > 1.7e9, type(tyrant.version)", "true \"string\""),
            ("local r = tyrant.random() return r >= 0 and r < 1 and r ~= tyrant.random()", "true"),
            ("tyrant.log('info', 'a')", ""),
            ("(pcall(tyrant.log, 'none', 'a'))", "false"),
        ],
    );
}

const WORDS: &str = "
function words(key, value, emit) for word in value:gmatch('%a+') do emit(word, key) end end
local own = 0
function count(key, value) own = own + 1 end
function counted(emit) emit('all', own) end
function sum(key, counts) local sum = 0 for _, n in ipairs(counts) do sum = sum + n end return sum end
function number(word, keys) return #keys end
function fails(key, value) if key == '500' then error('no') end end
function fails_in_the_end(emit) error('no') end
function endless(key, value) while true do end end
function writes(key, value) _put('w' .. key, value) end
";

#[test]
fn map_reduce_runs_functions_by_their_names_on_several_threads() {
    for sort_bytes in [1000, 1 << 20] {
        let limits = Limits { sort_bytes, map_threads: 4, ..Limits::default() };
        let script =
            Script::with(&format!("{EVALUATE}{WORDS}"), limits, Allowed::default(), memory());
        check(
            &script,
            &[
                ("for i = 1, 1000 do _put(i, i % 3 == 0 and 'fizz buzz' or 'buzz') end", ""),
                ("tyrant.map_reduce{map = 'words', reduce = 'number'}", "{buzz=1000,fizz=333}"),
                ("#tyrant.map_reduce{map = 'words', threads = 1}.fizz", "333"),
                (
                    "tyrant.map_reduce{map = 'count', finish = 'counted', reduce = 'sum'}",
                    "{all=1000}",
                ),
                ("(pcall(tyrant.map_reduce, {map = 'count', finish = 'none'}))", "false"),
                (
                    "(pcall(tyrant.map_reduce, {map = 'count', finish = 'fails_in_the_end'}))",
                    "false",
                ),
                ("(pcall(tyrant.map_reduce, {map = 'fails'}))", "false"),
                ("(pcall(tyrant.map_reduce, {map = 'none'}))", "false"),
                ("(pcall(tyrant.map_reduce, {map = 'words', reduce = 'none'}))", "false"),
                ("tyrant.map_reduce{map = 'writes'}", "{}"),
                ("_get('w1'), _get('w1000')", "\"buzz\" \"buzz\""),
            ],
        );
    }
}

#[test]
fn map_reduce_ends_at_the_deadline() {
    let code = format!(
        "{EVALUATE}{WORDS} function run() while true do pcall(tyrant.map_reduce, {{map = 'endless'}}) end end"
    );
    let script = Script::short(&code);
    check(&script, &[("_put('a', 'b')", "true")]);
    assert!(script.call("run", b"").unwrap_err().contains(LATE));
}
