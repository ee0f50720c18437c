//! Cost of calls: the time of one call of functions that do little, on one thread.
//!
//! `cargo bench -p tyrant-scripts`

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use cabinet::Options;
use scripts::{Allowed, Limits, Scripts, Source};
use server::{Config, Endpoint, Extension, Server};
use std::time::Instant;

const CODE: &str = "
function empty() end
function echo(key, value) return value end
function put(key, value) return _put(key, value) end
function get(key) return _get(key) end
function find(key, value) return value:find('l+') end
function pcalled(key) return pcall(type, key) end
function loop() for i = 1, 1000 do end return 1 end
function grow(key, value) kept = ('x'):rep(tonumber(value)) return 1 end
";

const CALLS: u32 = 200_000;

fn main() {
    let listen = vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }];
    let database = Options::new().open("*").unwrap();
    let server = Server::bind(Config { listen, ..Config::default() }, database).unwrap();
    let records = server.script_records(0, 1);
    let source = Source::Inline(CODE.into());
    let scripts = Scripts::open(source, Limits::default(), Allowed::default()).unwrap();
    scripts.begin(&records);
    let measure = |name: &str, calls: u32| {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            for _ in 0..calls {
                scripts.call(&records, name.as_bytes(), b"key", b"hello").unwrap();
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        best * 1e9 / f64::from(calls)
    };
    for name in ["empty", "echo", "put", "get", "find", "pcalled", "loop"] {
        println!("{name}: {:.0} ns per call", measure(name, CALLS));
    }
    // A larger state looks at the clock more often.
    for bytes in [1 << 20, 4 << 20, 16 << 20, 30 << 20] {
        scripts.call(&records, b"grow", b"", bytes.to_string().as_bytes()).unwrap();
        for name in ["empty", "loop"] {
            let time = measure(name, CALLS / 10);
            println!("{name} in a state of {} MiB: {time:.0} ns per call", bytes >> 20);
        }
    }
    scripts.end(&records);
}
