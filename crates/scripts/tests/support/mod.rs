//! Support for the tests of scripts: a script with one thread, over the records of a server.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]
#![allow(dead_code, reason = "every test file uses another part")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail where all is used")]

use cabinet::{Database, Options};
use scripts::{Allowed, Limits, Scripts, Source};
use server::{Config, Endpoint, Extension, ScriptRecords, Server};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A script with one thread.
pub(crate) struct Script {
    pub(crate) scripts: Scripts,
    pub(crate) records: Arc<ScriptRecords>,
    _server: Server,
}

/// Time of a call that a test waits for the end of.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// Longest time of other calls. Only a failing test takes that long.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(600);

/// Why a call failed that took longer than allowed.
pub(crate) const LATE: &str = "longer than its limit";

/// Returns limits of memory and of patterns that a test meets soon, on a slow machine too.
pub(crate) fn limits() -> Limits {
    Limits {
        call_time: WAIT_MAX,
        state_bytes: 8 << 20,
        pattern_steps: 100_000_000,
        ..Limits::default()
    }
}

/// Opens an on-memory hash database.
pub(crate) fn memory() -> Database {
    Options::new().open("*").unwrap()
}

/// Opens an on-memory tree database.
pub(crate) fn memory_tree() -> Database {
    Options::new().open("+").unwrap()
}

/// Opens a database in a folder.
pub(crate) fn named(folder: &Path, name: &str) -> Database {
    Options::new().open(folder.join(name)).unwrap()
}

impl Script {
    /// Loads a script over an empty database.
    pub(crate) fn new(code: &str) -> Self {
        Self::with(code, Limits::default(), Allowed::default(), memory())
    }

    /// Loads a script whose calls may take a short time.
    pub(crate) fn short(code: &str) -> Self {
        let limits = Limits { call_time: SHORT, ..limits() };
        Self::with(code, limits, Allowed::default(), memory())
    }

    /// Loads a script with limits of memory that a test meets soon.
    pub(crate) fn limited(code: &str) -> Self {
        Self::with(code, limits(), Allowed::default(), memory())
    }

    pub(crate) fn with(code: &str, limits: Limits, allowed: Allowed, database: Database) -> Self {
        let scripts = Scripts::open(Source::Inline(code.into()), limits, allowed).unwrap();
        let listen = vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }];
        let server = Server::bind(Config { listen, ..Config::default() }, database).unwrap();
        let records = server.script_records(0, 1);
        scripts.begin(&records);
        Self { scripts, records, _server: server }
    }

    /// Calls a function. Returns its result, or why it failed.
    pub(crate) fn call(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let result = self.scripts.call(&self.records, name.as_bytes(), key, b"");
        self.records.end_call();
        result.map_err(|error| error.0)
    }

    /// Calls a function that returns text. If calls may take a short time only, even a short one is
    /// late now and then on a loaded machine, and is repeated.
    pub(crate) fn text(&self, name: &str, key: &str) -> String {
        let deadline = Instant::now() + WAIT_MAX / 2;
        let result = loop {
            match self.call(name, key.as_bytes()) {
                Err(error) if error.contains(LATE) && Instant::now() < deadline => {}
                result => break result,
            }
        };
        String::from_utf8(result.unwrap().unwrap_or_default()).unwrap()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.scripts.end(&self.records);
    }
}

/// A script that evaluates expressions, and shows their results as text.
pub(crate) const EVALUATE: &str = include_str!("evaluate.lua");

/// Evaluates an expression, and checks what it results in.
#[track_caller]
pub(crate) fn check(script: &Script, cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        assert_eq!(script.text("evaluate", expression), *expected, "{expression}");
    }
}
