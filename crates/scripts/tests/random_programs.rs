//! Random programs: functions of Lua and of the server, with arguments at the limits of their
//! types, neither end the process nor take longer than a call may.
//!
//! `LUA_PROGRAMS=200000` tries so many programs, `LUA_PROGRAMS=17..18` those of these seeds.
//! `cargo xtask lua-programs` runs them under AddressSanitizer.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use rustix::time::{ClockId, clock_gettime};
use scripts::{Allowed, Limits};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Script, memory, memory_tree};

/// Programs that are tried if `LUA_PROGRAMS` is not set.
const PROGRAMS: u64 = 600;

/// Limit of the time of a call.
const CALL_TIME: Duration = Duration::from_millis(250);

/// Longest time without the end of a program. The process ends then.
const HANG: Duration = Duration::from_secs(300);

/// Programs after which there is a new state: programs replace functions of theirs.
const PROGRAMS_PER_STATE: u64 = 200;

/// Functions that programs reach: those of tables and of strings, too. `run` executes a program
/// and, unless it was lost to one before, gives the time back that the program took.
const SCRIPT: &str = r#"
local load, try, all, kind, text, join = loadstring, pcall, pairs, type, tostring, table.concat
function functions()
  local names, seen = {}, {}
  local function walk(t, prefix, depth)
    if seen[t] or depth > 3 then return end
    seen[t] = true
    for k, v in all(t) do
      if kind(k) == "string" and k:find("^[%a_][%w_]*$") then
        if kind(v) == "function" then names[#names + 1] = prefix .. k end
        if kind(v) == "table" then walk(v, prefix .. k .. ".", depth + 1) end
      end
    end
  end
  walk(_G, "", 0)
  table.sort(names)
  return join(names, " ")
end

function run(code)
  local f, why = load(code)
  if not f then error("syntax: " .. why, 0) end
  local ok, message = try(f)
  return ok and "ok" or "failed: " .. text(message)
end
"#;

/// Functions that programs do not call: those of this test, and one that only waits.
const LEFT_OUT: &[&str] = &["functions", "run", "_sleep"];

/// Numbers at the limits of what C functions take.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "255",
    "256",
    "1000",
    "65536",
    "-0.5",
    "0.1",
    "1e15",
    "-1e15",
    "2147483647",
    "-2147483648",
    "2147483648",
    "-2147483649",
    "2147483646",
    "-2147483647",
    "4294967295",
    "4294967296",
    "-4294967296",
    "9007199254740992",
    "-9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e19",
    "1e100",
    "1e308",
    "-1e308",
    "5e-324",
    "1/0",
    "-1/0",
    "0/0",
    "1073741824",
    "536870912",
    "268435456",
    "16777216",
    "1e6",
    "-1e6",
    "8192",
    "200",
    "199",
    "201",
];

/// Texts: patterns, formats, modes, numbers, and names of functions of `misc`.
const TEXTS: &[&str] = &[
    "''",
    "'k'",
    "'abc'",
    "'0'",
    "'-1'",
    "'1e308'",
    "'0x7fffffff'",
    "'%'",
    "'%b'",
    "'%b()'",
    "'%f'",
    "'%f[%w]'",
    "'[%z-\\255]'",
    "'[a'",
    "'(()'",
    "'()'",
    "'%1'",
    "'.-(a*)%1'",
    "'^(.-)%s*$'",
    "'(a*(.)%w(%s*))'",
    "'[^]'",
    "'%99'",
    "'%d%s%q'",
    "'%99.99f'",
    "'%s'",
    "'%.99s'",
    "'%c'",
    "'%5c'",
    "'%i'",
    "'%x'",
    "'%-+ #0d'",
    "'%100d'",
    "'%.100f'",
    "'%g'",
    "'%'",
    "'%a'",
    "'%p'",
    "'*a'",
    "'*n'",
    "'*t'",
    "'!%c'",
    "'%Y-%m-%d %H:%M:%S'",
    "'%E'",
    "'%Oy'",
    "'c*C*s*S*i*I*l*L*'",
    "'f*d*n*N*M*w*'",
    "'i99999999999'",
    "'w'",
    "'M-1'",
    "'url'",
    "'~url'",
    "'base'",
    "'~base'",
    "'quote'",
    "'~quote'",
    "'hex'",
    "'~hex'",
    "'pack'",
    "'~pack'",
    "'tcbs'",
    "'~tcbs'",
    "'deflate'",
    "'~deflate'",
    "'gzip'",
    "'~gzip'",
    "'bzip'",
    "'~bzip'",
    "'xml'",
    "'~xml'",
    "'md5'",
    "'md5raw'",
    "'crc32'",
    "'and'",
    "'left'",
    "'right'",
    "'not'",
    "'xor'",
    "'(a|b)*c'",
    "'((a*)*)*'",
    "'*A{1,1000}'",
    "'\\\\1&'",
    "'a{255}'",
    "'[[:alpha:]]+'",
    "'\\0'",
    "'a\\0b\\0c'",
    "'\\255\\254\\253'",
    "'\\240\\159\\146\\150'",
    "'\\27Lua'",
    "'return 1'",
    "'return function() end'",
    "'x = x'",
    "'local a <'",
    "'[1,2,{\"a\":null}]'",
    "'{\"a\":1e999}'",
    "'\"\\\\ud800\"'",
    "'collect'",
    "'count'",
    "'step'",
    "'setpause'",
    "'setstepmul'",
    "'stop'",
    "'k'",
    "'v'",
    "'__index'",
    "'__gc'",
    "'__mode'",
    "'get'",
    "'put'",
    "'putlist'",
    "'getlist'",
    "'outlist'",
    "'getpart'",
    "'regex'",
    "'range'",
    "'iterinit'",
    "'iternext'",
    "'search'",
    "'metasearch'",
    "'genuid'",
    "'putdup'",
    "'expiry'",
    "'touch'",
    "'#'",
    "('x'):rep(1000)",
    "('x'):rep(1000000)",
    "('ab\\0'):rep(300000)",
    "('a'):rep(100000)",
    "('\\0'):rep(4096)",
    "('('):rep(300)",
    "('[a'):rep(40)",
    "('%w*'):rep(100)",
    "('{'):rep(5000)",
    "('(a'):rep(33)",
    "('a?'):rep(30)",
    "('9'):rep(400)",
    "('\\200'):rep(9)",
    "('do '):rep(250)",
];

/// Other values.
const OTHERS: &[&str] = &[
    "nil",
    "true",
    "false",
    "{}",
    "{1,2,3}",
    "{'b','a','c'}",
    "{n=2147483647}",
    "{[2147483647]=1}",
    "{[-2147483648]=1}",
    "{[1/0]=1}",
    "{{1},{2}}",
    "{'k','v'}",
    "{1,nil,3}",
    "{1,'a',true,{}}",
    "print",
    "function() end",
    "function(...) return ... end",
    "function(a, b) return true end",
    "function(a, b) return a end",
    "function() error({}) end",
    "function() error('e') end",
    "function() return nil, 1/0 end",
    "coroutine.create(function(...) coroutine.yield(...) end)",
    "coroutine.wrap(function(...) while true do coroutine.yield(...) end end)",
    "string",
    "_G",
    "setmetatable({}, {__index = function(t, k) return k end, __call = function() return 1 end})",
    "setmetatable({1,2}, {__newindex = rawset, __lt = function() return true end, \
     __eq = function() return true end, __concat = function() return 'c' end, \
     __unm = function() return 1/0 end, __len = function() return 5 end})",
    "setmetatable({}, {__tostring = function() return nil end, __mode = 'kv'})",
    "setmetatable({}, {__index = table, __metatable = false})",
    "unpack({1,2,3})",
    "('abc'):byte(1, -1)",
    "string.gmatch('abc', '.')",
    "(function(...) return select('#', ...) end)()",
];

struct Chance(u64);

impl Chance {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as usize % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Returns a program of a few statements.
fn program(seed: u64, functions: &[&str]) -> String {
    let mut chance = Chance::of(seed);
    let mut code = "local a, b, c, d = 'seed', 2147483647, {}\n".to_owned();
    for _ in 0..1 + chance.below(6) {
        statement(&mut code, &mut chance, functions);
    }
    code
}

fn statement(code: &mut String, chance: &mut Chance, functions: &[&str]) {
    let name = chance.pick(&["a", "b", "c", "d"]);
    match chance.below(16) {
        0 => {
            let [first, last, step] = [(); 3].map(|()| chance.pick(NUMBERS));
            let value = value(chance);
            writeln!(
                code,
                "do local n = 0 for i = {first}, {last}, {step} do {name} = i n = n + 1 \
                            if n > 100 then {name} = {value} break end end end"
            )
        }
        1 => {
            let operator = chance
                .pick(&["..", "+", "-", "*", "/", "%", "^", "<", "<=", "==", "~=", "and", "or"]);
            let (left, right) = (value(chance), value(chance));
            writeln!(code, "pcall(function() {name} = ({left}) {operator} ({right}) end)")
        }
        2 => {
            let (operator, value) = (chance.pick(&["-", "#", "not "]), value(chance));
            writeln!(code, "pcall(function() {name} = {operator}({value}) end)")
        }
        3 => {
            let (key, value) = (value(chance), value(chance));
            writeln!(code, "pcall(function() ({name})[{key}] = {value} {name} = {name}[{key}] end)")
        }
        4 => {
            let method = chance.pick(functions);
            let method = method.strip_prefix("string.").unwrap_or("rep");
            let arguments = arguments(chance);
            writeln!(code, "pcall(function() {name} = ({name}):{method}({arguments}) end)")
        }
        5 => {
            let (function, arguments) = (chance.pick(functions), arguments(chance));
            writeln!(code, "pcall(coroutine.wrap(function() {name} = {function}({arguments}) end))")
        }
        6 => {
            let (function, arguments) = (chance.pick(functions), arguments(chance));
            writeln!(code, "xpcall(function() return {function}({arguments}) end, {function})")
        }
        7 => {
            // Results of one function are the arguments of another.
            let [outer, inner] = [(); 2].map(|()| chance.pick(functions));
            let arguments = arguments(chance);
            writeln!(code, "pcall(function() {name} = {outer}({inner}({arguments})) end)")
        }
        8 => {
            let function = chance.pick(functions);
            let [first, last] = [(); 2].map(|()| chance.pick(NUMBERS));
            writeln!(
                code,
                "pcall(function() {name} = {function}(unpack({{1, 'a'}}, {first}, {last})) end)"
            )
        }
        9 => {
            let (function, count, arguments) = (
                chance.pick(functions),
                [3, 40, 1000, 1_000_000][chance.below(4)],
                arguments(chance),
            );
            writeln!(
                code,
                "for _ = 1, {count} do pcall(function() {name} = {function}({arguments}) end) end"
            )
        }
        _ => {
            let (function, arguments) = (chance.pick(functions), arguments(chance));
            writeln!(code, "pcall(function() {name} = {function}({arguments}) end)")
        }
    }
    .unwrap();
}

fn arguments(chance: &mut Chance) -> String {
    let count = chance.below(6);
    let arguments: Vec<_> = (0..count).map(|_| value(chance)).collect();
    arguments.join(", ")
}

fn value(chance: &mut Chance) -> &'static str {
    match chance.below(8) {
        0..3 => chance.pick(NUMBERS),
        3..5 => chance.pick(TEXTS),
        5 => chance.pick(OTHERS),
        _ => chance.pick(&["a", "b", "c", "d"]),
    }
}

/// Returns the seeds to try.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("LUA_PROGRAMS") else { return 0..PROGRAMS };
    let number = |text: &str| text.parse::<u64>().expect("LUA_PROGRAMS is N or FROM..TO");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&text),
    }
}

fn state(seed: u64) -> Script {
    let limits = Limits {
        call_time: CALL_TIME,
        call_instructions: 20_000_000,
        state_bytes: 8 << 20,
        total_bytes: 64 << 20,
        pattern_steps: 10_000_000,
        stash_bytes: 4 << 20,
        sort_bytes: 1 << 20,
        sort_disk_bytes: 16 << 20,
        lock_time: Duration::from_millis(10),
        map_threads: 2,
    };
    let database = if seed.is_multiple_of(2) { memory() } else { memory_tree() };
    for key in 0..20 {
        database.put(format!("k{key}").as_bytes(), format!("{key}").as_bytes()).unwrap();
    }
    Script::with(SCRIPT, limits, Allowed::default(), database)
}

/// Returns the time that this thread has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Ends the process if no program ends for too long.
fn watch(ended: Arc<AtomicU64>, present: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        loop {
            let before = ended.load(Ordering::Relaxed);
            std::thread::sleep(HANG);
            if ended.load(Ordering::Relaxed) == before {
                eprintln!("a program has not ended: {}", present.lock().unwrap());
                std::process::abort();
            }
        }
    });
}

#[test]
fn random_programs_with_extreme_arguments_end_within_their_limits() {
    // Functions of `misc` take names of files.
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    let (ended, present) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(String::new())));
    watch(Arc::clone(&ended), Arc::clone(&present));
    let names = state(0).call("functions", b"").unwrap().unwrap();
    let names = String::from_utf8(names).unwrap();
    let functions: Vec<&str> = names.split(' ').filter(|name| !LEFT_OUT.contains(name)).collect();
    for needed in ["unpack", "string.format", "table.concat", "_pack", "tyrant.json_decode"] {
        assert!(functions.contains(&needed), "no {needed} in {functions:?}");
    }
    let seeds = seeds();
    let (count, mut longest, mut late) = (seeds.end - seeds.start, (Duration::ZERO, 0), 0);
    let (mut succeeded, mut failed) = (0_u64, 0_u64);
    let mut script = state(seeds.start);
    for seed in seeds {
        if seed.is_multiple_of(PROGRAMS_PER_STATE) {
            script = state(seed / PROGRAMS_PER_STATE);
        }
        let code = program(seed, &functions);
        *present.lock().unwrap() = format!("seed {seed}:\n{code}");
        if std::env::var_os("LUA_PROGRAMS_SHOWN").is_some() {
            eprintln!("seed {seed}:\n{code}");
        }
        let before = processor_time();
        let result = script.call("run", code.as_bytes());
        let took = processor_time() - before;
        assert!(took <= 2 * CALL_TIME, "seed {seed} took {took:?}:\n{code}");
        longest = longest.max((took, seed));
        match result {
            Ok(Some(text)) if text == b"ok" => succeeded += 1,
            Ok(_) => failed += 1,
            Err(why) => {
                assert!(!why.starts_with("syntax"), "seed {seed}: {why}\n{code}");
                late += 1;
            }
        }
        // The state of a program that has met a limit, or has broken `run`, may be of no use.
        if script.call("run", b"return 1").is_err() {
            script = state(seed);
        }
        ended.fetch_add(1, Ordering::Relaxed);
    }
    eprintln!(
        "{count} programs of {} functions: {succeeded} ended, {failed} failed, {late} met a limit; \
         the longest, of seed {}, took {:?} of {CALL_TIME:?}",
        functions.len(),
        longest.1,
        longest.0
    );
    assert!(count < 100 || succeeded > count / 2, "only {succeeded} of {count} ended");
}
