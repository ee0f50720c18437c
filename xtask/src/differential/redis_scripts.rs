//! Random scripts of Redis's protocol.
//!
//! Left out are: settings of `cjson`, which Redis keeps for later scripts; errors about arguments
//! of functions that the server has in place of Lua's, which name places of their own; messages.

use super::random::Random;

/// Statements, of which a script begins with some. `KEYS` are two keys, and `ARGV` two values, a
/// number, a text of JSON and a format of `struct`.
const STATEMENTS: &[&str] = &[
    "redis.call('set', KEYS[1], ARGV[1])",
    "redis.call('append', KEYS[1], ARGV[2])",
    "redis.call('incr', KEYS[2])",
    "redis.pcall('incr', KEYS[2])",
    "redis.call('set', KEYS[2], ARGV[3])",
    "redis.call('expire', KEYS[1], 1000)",
    "redis.call('del', KEYS[2])",
    "redis.call('mset', KEYS[1], ARGV[1], KEYS[2], ARGV[2])",
    "redis.call('setrange', KEYS[1], 2, ARGV[2])",
    "redis.call('rename', KEYS[1], KEYS[2])",
    "pcall(redis.call, 'set', KEYS[1])",
    "redis.setresp(3)",
    "redis.setresp(2)",
    "redis.call('set', KEYS[1], 0.1)",
    "redis.call('set', KEYS[1], 1e20)",
    "x = ARGV[1]",
    "redis.x = 1",
    "KEYS[3] = 'k5'",
    "error(ARGV[1])",
    "error(ARGV[1], 0)",
    "error({err = ARGV[1]})",
    "error({err = 'CODE ' .. ARGV[2]})",
    "assert(tonumber(ARGV[3]))",
    "assert(redis.call('get', KEYS[1]))",
    "local none; none.x = 1",
    "redis.call('nosuch')",
    "if redis.call('exists', KEYS[1]) == 1 then return 'it is there' end",
];

/// Results of scripts.
const RESULTS: &[&str] = &[
    "redis.call('get', KEYS[1])",
    "redis.call('mget', KEYS[1], KEYS[2], 'none')",
    "{redis.call('get', KEYS[1]), redis.pcall('incrby', KEYS[2], ARGV[3])}",
    "redis.pcall('getrange', KEYS[1], ARGV[3], 3)",
    "redis.call('incrbyfloat', KEYS[1], ARGV[3])",
    "redis.call('strlen', KEYS[1])",
    "redis.call('getset', KEYS[1], ARGV[2])",
    "redis.call('set', KEYS[1], ARGV[1], 'NX')",
    "redis.call('bitcount', KEYS[1])",
    "redis.call('lcs', KEYS[1], KEYS[2], 'IDX')",
    "redis.call('type', KEYS[1])",
    "redis.call('type', KEYS[1]).ok",
    "redis.call('nosuch', ARGV[1])",
    "redis.call('get')",
    "redis.call('config', 'foo')",
    "redis.call('multi')",
    "redis.call('eval', 'return 1', 0)",
    "redis.call()",
    "redis.call({})",
    "redis.call('get', true)",
    "redis.pcall('get', nil)",
    "tonumber(ARGV[3])",
    "tonumber(ARGV[1])",
    "tostring(tonumber(ARGV[3]))",
    "#ARGV[1]",
    "ARGV",
    "KEYS",
    "{1.5, -2.7, 'x', false, 3, nil, 4}",
    "{{}, {{1}}, {ok = 'x'}, {err = 'y'}}",
    "{ok = ARGV[1]}",
    "{err = ARGV[1]}",
    "redis.error_reply(ARGV[1])",
    "redis.status_reply(ARGV[1])",
    "redis.status_reply(1)",
    "redis.sha1hex(ARGV[1])",
    "redis.sha1hex()",
    "{double = tonumber(ARGV[3])}",
    "{map = {[KEYS[1]] = ARGV[1]}}",
    "{set = {[ARGV[1]] = true}}",
    "{big_number = ARGV[1]}",
    "{verbatim_string = {format = 'txt', string = ARGV[1]}}",
    "{verbatim_string = {format = 'x', string = ARGV[1]}}",
    "true",
    "false",
    "nil",
    "function() end",
    "undefined",
    "redis.setresp(ARGV[3])",
    "cjson.encode({ARGV[1], ARGV[3], tonumber(ARGV[3])})",
    "cjson.encode({a = ARGV[1]})",
    "cjson.encode({[1] = 1, [4] = ARGV[1]})",
    "cjson.encode({[1] = 1, [40] = ARGV[1]})",
    "cjson.encode({[tonumber(ARGV[3]) or 0.5] = 1})",
    "cjson.encode(redis.call)",
    "cjson.decode(ARGV[4])",
    "cjson.decode(ARGV[1])",
    "cjson.encode(cjson.decode(ARGV[4]))",
    "{pcall(cjson.decode, ARGV[4])}",
    "cmsgpack.pack(ARGV[1], tonumber(ARGV[3]), {1, 2, ARGV[1]}, {a = true})",
    "cmsgpack.pack(cjson.decode(ARGV[4]))",
    "{cmsgpack.unpack(cmsgpack.pack(ARGV))}",
    "cjson.encode({cmsgpack.unpack(cmsgpack.pack(ARGV[3], tonumber(ARGV[3])))})",
    "(cmsgpack.unpack(ARGV[1]))",
    "{cmsgpack.unpack(ARGV[1])}",
    "{pcall(cmsgpack.unpack_one, ARGV[1], 1)}",
    "{pcall(cmsgpack.unpack_limit, ARGV[1], 2, 0)}",
    "struct.pack(ARGV[5], tonumber(ARGV[3]) or 1, 2, 3, 4)",
    "{struct.unpack(ARGV[5], struct.pack(ARGV[5], 1, 2, 3, 4))}",
    "{struct.unpack(ARGV[5], ARGV[1])}",
    "{struct.unpack(ARGV[5], ARGV[2], 2)}",
    "struct.size(ARGV[5])",
    "bit.band(ARGV[3], 255)",
    "{bit.tohex(ARGV[3]), bit.bnot(ARGV[3]), bit.rol(ARGV[3], 5), bit.bswap(ARGV[3])}",
    "{bit.bxor(ARGV[3], 77, -1), bit.lshift(ARGV[3], 3), bit.arshift(ARGV[3], 2)}",
    "bit.bor(ARGV[1], 1)",
    "string.format('%s %5.1f %d %x', #ARGV[1], tonumber(ARGV[3]) or 0, 7, 255)",
    "{string.find(ARGV[1], 'a')}",
    "(string.gsub(ARGV[1], '%d', '<%0>'))",
    "table.concat(ARGV, ',')",
    "{unpack(ARGV)}",
    "select('#', unpack(ARGV))",
    "loadstring('return ' .. (tonumber(ARGV[3]) or 1))()",
    "ARGV[1] + 1",
    "ARGV[1] .. nil",
    "ARGV[1] < 1",
];

const JSON: &[&str] = &[
    "{\"a\":1}",
    "[1,2.5,-3e2,\"x\",true,false,null]",
    "{\"a\":{\"b\":[{},[]]}}",
    "\"\\u00e9\\n\\/\\ud83d\\ude00\"",
    " [ 1 , \"\\\"\" ] ",
    "[1,]",
    "{\"a\":}",
    "{a:1}",
    "[1 2]",
    "nul",
    "\"abc",
    "\"\\x\"",
    "\"\\ud800\"",
    "1 2",
    "01",
    "-",
    "0x1f",
    "1e5",
    "",
    "[[[",
];

const FORMATS: &[&str] = &[
    "b", "B", ">h", "<H", ">i4", "<I3", "l", ">L", "!4 b i", "bBx", "f", ">d", "i16", "c0", "Bc0",
    "s", "c2", "!3", "i33", "q", "", "T", ">bT", "!T t", "b?", "x b", "b4",
];

/// A script, and its digest.
const KNOWN: [&str; 2] =
    ["return redis.call('get', KEYS[1])", "4e6d8fc8bb01276962cce5371fa795a7763657ae"];

/// Returns the words of a command about a random script.
pub(super) fn command(
    random: &mut Random,
    keys: &[&str],
    values: &[&str],
    numbers: &[&str],
) -> Vec<String> {
    let key = random.pick(keys);
    let words: Vec<&str> = match random.below(30) {
        0 => vec!["SCRIPT", "LOAD", KNOWN[0]],
        1 => vec!["SCRIPT", "EXISTS", KNOWN[1], "abc"],
        2 => vec!["EVALSHA", KNOWN[1], "1", key],
        3 => vec!["EVALSHA_RO", KNOWN[1], random.pick(numbers), key],
        4 => vec!["EVAL", KNOWN[0], random.pick(numbers), key],
        5 => vec!["EVAL", random.pick(&["return", "for", "return 'x", "x = = 1"]), "0"],
        6 => vec![
            "COMMAND",
            "GETKEYS",
            "EVAL",
            "return 1",
            random.pick(&["0", "1", "2", "3"]),
            key,
            key,
        ],
        7 => vec!["SCRIPT", random.pick(&["FLUSH", "FOO", "EXISTS"])],
        _ => return execution(random, keys, values, numbers),
    };
    words.into_iter().map(str::to_owned).collect()
}

/// Returns the words of a command that executes a random script.
fn execution(random: &mut Random, keys: &[&str], values: &[&str], numbers: &[&str]) -> Vec<String> {
    let begin = match random.below(20) {
        0 => "#!lua flags=no-writes\n",
        1 => "#!lua flags=allow-oom,no-cluster\n",
        2 => random.pick(&["#!lua", "#!lua x\n", "#!python\n", "#!lua flags=x\n"]),
        _ => "",
    };
    let mut script = begin.to_owned();
    for _ in 0..random.below(3) {
        script.push_str(&format!("{}\n", random.pick(STATEMENTS)));
    }
    let result = random.pick(RESULTS);
    script.push_str(&match random.below(8) {
        0 => format!("return {{pcall(function() return {result} end)}}"),
        1 => format!("local function f()\n return {result} end\n local r = f() return r"),
        2 => format!("local ok, e = pcall(function() return {result} end) return {{e, ok}}"),
        _ => format!("return {result}"),
    });
    let command = if random.one_in(8) { "EVAL_RO" } else { "EVAL" };
    let mut words = vec![command, &script, "2"];
    words.extend([random.pick(keys), random.pick(keys)]);
    words.extend([random.pick(values), random.pick(values), random.pick(numbers)]);
    words.extend([random.pick(JSON), random.pick(FORMATS)]);
    words.into_iter().map(str::to_owned).collect()
}
