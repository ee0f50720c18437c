//! Memory: all states, the stash and what functions build stay within one total.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use scripts::{Allowed, Limits, Scripts, Source};
use server::{Config, Endpoint, Extension, ScriptRecords, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::{WAIT_MAX, memory, memory_tree};

/// Why a call failed for which the total had no memory left.
const EXHAUSTED: &str = "script-memory-total";

const CODE: &str = "
    function echo(key, value) return value end
    function fill()
      local t = {}
      while true do t[#t + 1] = ('x'):rep(1000) .. #t end
    end
    function fill_tables()
      local t = {}
      while true do t[#t + 1] = {} end
    end
    function double()
      local s = 'x'
      while true do s = s .. s end
    end
    function caught()
      local ok, why = pcall(fill)
      local again, because = pcall(('x').rep, 'x', 1e7)
      return tostring(ok) .. ' ' .. why .. '|' .. tostring(again) .. ' ' .. because
    end
    function keep()
      kept = kept or {}
      while true do kept[#kept + 1] = ('x'):rep(1000) .. #kept end
    end
    function flood(key, value)
      local i = 0
      while true do
        i = i + 1
        _stashput(_thid .. '/' .. i, ('x'):rep(1000))
      end
    end
    function flood_one()
      while true do _stashputcat('one', ('x'):rep(1000)) end
    end
    function tidy() for i = 1, 20 do collectgarbage() end return 'done' end
    function stashed() return _stashget('1/1') and 'yes' or 'no' end
    function vanish() _stashvanish() return 'done' end
";

/// A script with several threads, and a total of memory.
struct Many {
    scripts: Scripts,
    records: Vec<Arc<ScriptRecords>>,
    _server: Server,
}

fn limits(total_bytes: usize) -> Limits {
    Limits { total_bytes, call_time: WAIT_MAX, ..Limits::default() }
}

impl Many {
    fn new(code: &str, threads: usize, limits: Limits, database: Database) -> Self {
        let source = Source::Inline(code.into());
        let scripts = Scripts::open(source, limits, Allowed::default()).unwrap();
        let listen = vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }];
        let server = Server::bind(Config { listen, ..Config::default() }, database).unwrap();
        let records: Vec<_> =
            (0..threads).map(|thread| server.script_records(thread, threads)).collect();
        records.iter().for_each(|records| scripts.begin(records));
        Self { scripts, records, _server: server }
    }

    fn call(&self, thread: usize, name: &str, value: &[u8]) -> Result<String, String> {
        let records = &self.records[thread];
        let result = self.scripts.call(records, name.as_bytes(), b"", value);
        records.end_call();
        match result {
            Ok(text) => Ok(String::from_utf8(text.unwrap_or_default()).unwrap()),
            Err(error) => Err(error.0),
        }
    }

    fn used(&self) -> usize {
        self.scripts.memory().used_bytes
    }

    /// Calls a function in eight states at once until each has failed, and an ordinary one beside
    /// them. Returns the errors.
    fn fail_in_eight(&self, name: &str) -> Vec<String> {
        let are_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|number| scope.spawn(move || self.call(number, name, b"").unwrap_err()))
                .collect();
            let ordinary = scope.spawn(|| {
                let mut calls = 0;
                while calls < 100 || !are_over.load(Ordering::Relaxed) {
                    let value = "v".repeat(10_000);
                    assert_eq!(self.call(8, "echo", value.as_bytes()), Ok(value));
                    calls += 1;
                }
            });
            let watch = scope.spawn(|| {
                while !are_over.load(Ordering::Relaxed) {
                    let memory = self.scripts.memory();
                    assert!(memory.used_bytes <= memory.max_bytes, "{memory:?}");
                    thread::yield_now();
                }
            });
            let errors = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
            are_over.store(true, Ordering::Relaxed);
            ordinary.join().unwrap();
            watch.join().unwrap();
            errors
        })
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        self.records.iter().rev().for_each(|records| self.scripts.end(records));
    }
}

#[test]
fn eight_states_that_fill_memory_at_once_stay_within_the_total_and_give_it_back() {
    let many = Many::new(CODE, 9, limits(8 << 20), memory());
    for name in ["fill", "fill_tables", "double"] {
        for error in many.fail_in_eight(name) {
            assert!(error.contains(EXHAUSTED) && error.contains("8388608 bytes"), "{error}");
        }
        // Lua keeps its table of texts a while.
        assert!(many.used() < 2 << 20, "{} bytes after {name}", many.used());
        (0..8).for_each(|thread| assert_eq!(many.call(thread, "tidy", b""), Ok("done".into())));
        assert_eq!(many.used(), 0, "after {name}");
    }
}

#[test]
fn globals_that_fill_the_total_are_given_up_so_that_others_can_go_on() {
    let many = Many::new(CODE, 9, limits(8 << 20), memory());
    for error in many.fail_in_eight("keep") {
        assert!(error.contains(EXHAUSTED), "{error}");
    }
    // Each state that has failed with more than its part is made again.
    for thread in 0..8 {
        many.call(thread, "keep", b"").unwrap_err();
    }
    let value = vec![b'v'; 1 << 20];
    assert_eq!(many.call(8, "echo", &value).unwrap().len(), value.len());
}

#[test]
fn an_error_for_want_of_memory_can_be_caught_and_the_state_goes_on() {
    let many = Many::new(CODE, 1, limits(4 << 20), memory());
    for _ in 0..3 {
        let caught = many.call(0, "caught", b"").unwrap();
        let (first, second) = caught.split_once("|").unwrap();
        assert!(first.starts_with("false not enough memory"), "{first}");
        assert!(first.contains(EXHAUSTED), "{first}");
        assert!(second.starts_with("false not enough memory"), "{second}");
        assert!(second.contains(EXHAUSTED), "{second}");
        assert!(many.used() < 1 << 20);
    }
}

#[test]
fn a_state_has_the_memory_of_the_total_and_no_more() {
    let make = "function make(key, value) return #('x'):rep(tonumber(value)) end";
    let code = &format!("{CODE}{make}");
    let many = Many::new(code, 1, limits(4 << 20), memory());
    // The text is built beside the state, and then made in it.
    assert_eq!(many.call(0, "make", b"1900000"), Ok("1900000".into()));
    assert!(many.call(0, "make", b"4300000").unwrap_err().contains(EXHAUSTED));
    let many = Many::new(code, 1, limits(400 << 20), memory());
    assert_eq!(many.call(0, "make", b"43000000"), Ok("43000000".into()));
    // The limit of the state itself.
    for (name, value) in [("make", "68000000"), ("double", ""), ("fill_tables", "")] {
        let error = many.call(0, name, value.as_bytes()).unwrap_err();
        assert!(error.contains("not enough memory") && !error.contains(EXHAUSTED), "{error}");
    }
}

#[test]
fn small_calls_reserve_nothing_and_large_ones_give_all_back() {
    let code = "
        function small() local t = {} for i = 1, 1000 do t[i] = i end return #t end
        function large() local t = {} for i = 1, 100000 do t[i] = i .. '' end return #t end
        function used() return collectgarbage('count') end
        function load() kept = ('x'):rep(3e6) return #kept end
        function unload() kept = nil collectgarbage() return 1 end
        function tidy() for i = 1, 20 do collectgarbage() end return 'done' end";
    let many = Many::new(code, 1, limits(64 << 20), memory());
    assert_eq!(many.call(0, "small", b""), Ok("1000".into()));
    assert_eq!(many.used(), 0);
    assert_eq!(many.call(0, "large", b""), Ok("100000".into()));
    assert_eq!(many.call(0, "tidy", b""), Ok("done".into()));
    assert_eq!(many.used(), 0);
    many.call(0, "load", b"").unwrap();
    let used = many.used();
    assert!((2 << 20..4 << 20).contains(&used), "{used}");
    many.call(0, "unload", b"").unwrap();
    assert_eq!(many.used(), 0);
    many.call(0, "load", b"").unwrap();
    many.scripts.end(&many.records[0]);
    assert_eq!(many.used(), 0);
    many.scripts.begin(&many.records[0]);
}

#[test]
fn garbage_of_calls_is_collected_before_one_fails() {
    let code = "
        function run() local s for i = 1, 300 do s = ('x'):rep(5e5) .. i end return #s end
        function concat(key, value)
          local n = 0
          for i = 1, 3000 do local s = value .. i n = n + #s end
          return n
        end";
    let many = Many::new(code, 1, limits(4 << 20), memory());
    for _ in 0..3 {
        assert_eq!(many.call(0, "run", b""), Ok("500003".into()));
        let concat = many.call(0, "concat", &[b'v'; 50_000]).unwrap();
        assert_eq!(concat, (3000 * 50_000 + 10_893).to_string());
    }
}

#[test]
fn what_functions_build_is_within_the_total_too() {
    let code = "
        function puts() for i = 1, 20000 do _put(('k'):rep(400) .. i, ('v'):rep(100)) end end
        function _keys() return _fwmkeys('k') end
        function _tyrant_keys() return tyrant.keys('k') end
        function _range() return tyrant.range{max = 1e9} end
        function _misc_keys() return _misc('regex', '.') end
        function _json_encode()
          local t, s = {}, ('x'):rep(1000)
          for i = 1, 20000 do t[i] = s end
          return tyrant.json_encode(t)
        end
        function _json_decode() return tyrant.json_decode('[' .. ('1,'):rep(300000) .. '1]') end
        function _split_long() return _split(('x,'):rep(500000), ',') end
        function _ucs_long() return _ucs(('x'):rep(1000000)) end
        function _unpack_long() return _unpack('C*', ('x'):rep(1000000)) end
        function _gsub() return (('x'):rep(10000)):gsub('x', ('y'):rep(2000)) end
        function _hex() return _codec('hex', ('x'):rep(3000000)) end
        function _tcbs() return _codec('tcbs', ('x'):rep(2000000)) end
        function _join()
          local t, s = {}, ('x'):rep(1000)
          for i = 1, 20000 do t[i] = s end
          return table.concat(t)
        end
        function _isect_long()
          local t = {}
          for i = 1, 60000 do t[i] = i end
          return _isect(t, t, t)
        end
        function map(key, value, emit) emit(key, value) end
        function _reduce() return tyrant.map_reduce{map = 'map', threads = 1} end
        names = {}
        for name, f in pairs(_G) do
          if type(f) == 'function' and name:match('^_[a-z]+_?[a-z]*$') then names[name] = f end
        end
        function run(key, value)
          local ok, why = pcall(names[value])
          return ok and 'made' or tostring(why)
        end";
    let names = [
        "_keys",
        "_tyrant_keys",
        "_range",
        "_misc_keys",
        "_json_encode",
        "_json_decode",
        "_split_long",
        "_ucs_long",
        "_unpack_long",
        "_gsub",
        "_hex",
        "_tcbs",
        "_join",
        "_isect_long",
        "_reduce",
    ];
    for (total, is_enough) in [(4 << 20, false), (200 << 20, true)] {
        let many = Many::new(code, 1, limits(total), memory_tree());
        many.call(0, "puts", b"").unwrap();
        // The slowest one is tested for the failure alone.
        for name in names.iter().filter(|name| !is_enough || **name != "_tcbs") {
            let result = many.call(0, "run", name.as_bytes()).expect(name);
            match is_enough {
                true => assert_eq!(result, "made", "{name}"),
                false => assert!(result.contains(EXHAUSTED), "{name}: {result}"),
            }
            assert!(many.used() < 1 << 20, "{} bytes after {name}", many.used());
        }
    }
}

#[test]
fn a_flood_of_the_stash_by_eight_states_stays_within_the_total() {
    let many = Many::new(CODE, 9, limits(8 << 20), memory());
    for error in many.fail_in_eight("flood") {
        assert!(error.contains("the stash") && error.contains(EXHAUSTED), "{error}");
    }
    let used = many.used();
    assert!((8 << 20) - 100_000 < used, "{used}");
    // Records in it stay, and their memory is given back when they are removed.
    assert_eq!(many.call(8, "stashed", b""), Ok("yes".into()));
    assert_eq!(many.call(8, "vanish", b""), Ok("done".into()));
    assert_eq!(many.used(), 0);
    for error in many.fail_in_eight("flood_one") {
        assert!(error.contains(EXHAUSTED), "{error}");
    }
    assert_eq!(many.call(8, "vanish", b""), Ok("done".into()));
    assert_eq!(many.used(), 0);
}
