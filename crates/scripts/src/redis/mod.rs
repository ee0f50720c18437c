//! Scripts that clients of Redis's protocol send, with Redis's functions, libraries and errors.
//!
//! Each execution has a Lua state, which is one of a pool. Scripts cannot change what a state
//! shares: see `redis.lua`. So an execution leaves nothing for the next one.

mod api;
mod bits;
mod cache;
mod cjson;
mod cmsgpack;
mod errors;
mod number;
mod random;
mod reply;
mod shebang;
mod state;
mod structs;

use crate::context::Context;
use crate::limits::{Limits, REDIS_SCRIPT_BYTES_MAX, REDIS_SCRIPTS_BYTES_MAX, REDIS_SCRIPTS_MAX};
use crate::scripts::Scripts;
use crate::shared::{Allowed, Shared};
use cache::Cache;
use mlua::{Lua, Result};
use parking_lot::Mutex;
use server::{Evaluator, ScriptHost, ScriptRecords, ScriptRun, SentScript};
use sha1::{Digest, Sha1};
use state::State;
use std::sync::Arc;

/// States without an execution that are kept, at most.
const IDLE_STATES_MAX: usize = 16;

/// Values that a function returns, at most. More would not fit on the stack of Lua.
const RESULTS_MAX: usize = 4000;

/// Scripts that clients send.
pub struct RedisScripts {
    shared: Arc<Shared>,
    records: Arc<ScriptRecords>,
    cache: Mutex<Cache>,
    idle: Mutex<Vec<State>>,
    /// Contexts of the executions.
    running: Mutex<Vec<Arc<Context>>>,
}

impl RedisScripts {
    /// Makes the interpreter of a server without a script of its own.
    pub fn new(limits: Limits, records: Arc<ScriptRecords>) -> Self {
        Self::sharing(Arc::new(Shared::new(limits, Allowed::default())), records)
    }

    /// Makes the interpreter of a server with a script, whose memory and limits are for both.
    pub fn beside(scripts: &Scripts, records: Arc<ScriptRecords>) -> Self {
        Self::sharing(Arc::clone(scripts.shared()), records)
    }

    fn sharing(shared: Arc<Shared>, records: Arc<ScriptRecords>) -> Self {
        let cache = Cache::new(REDIS_SCRIPTS_MAX, REDIS_SCRIPTS_BYTES_MAX, &shared.memory);
        let (idle, running) = (Mutex::default(), Mutex::default());
        Self { shared, records, cache: Mutex::new(cache), idle, running }
    }

    fn take_state(&self) -> std::result::Result<State, String> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(
            || {
                State::new(&self.shared, &self.records)
                    .map_err(|error| format!("ERR cannot make a state: {error}"))
            },
            Ok,
        )
    }

    fn give_back(&self, mut state: State) {
        state.clear();
        if state.is_full() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_STATES_MAX {
            idle.push(state);
        }
    }
}

/// Registration of an execution, which can be ended from outside.
struct Running<'r> {
    scripts: &'r RedisScripts,
    context: Arc<Context>,
}

impl<'r> Running<'r> {
    fn new(scripts: &'r RedisScripts, context: &Arc<Context>) -> Self {
        let context = Arc::clone(context);
        scripts.running.lock().push(Arc::clone(&context));
        Self { scripts, context }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.scripts.running.lock().retain(|other| !Arc::ptr_eq(other, &self.context));
    }
}

impl Evaluator for RedisScripts {
    fn add(&self, source: &[u8]) -> std::result::Result<Arc<SentScript>, String> {
        if source.len() > REDIS_SCRIPT_BYTES_MAX {
            return Err(format!("ERR a script has at most {REDIS_SCRIPT_BYTES_MAX} bytes"));
        }
        let digest = api::hex(&Sha1::digest(source).into());
        if let Some(known) = self.cache.lock().find(&digest) {
            return Ok(known);
        }
        let (flags, code_from) = shebang::read(source)?;
        let script = Arc::new(SentScript { digest, source: source.into(), flags, code_from });
        let mut state = self.take_state()?;
        let compiled = state.compile(&script);
        self.give_back(state);
        compiled?;
        self.cache.lock().add(&script)?;
        Ok(script)
    }

    fn find(&self, digest: &[u8]) -> Option<Arc<SentScript>> {
        self.cache.lock().find(&lower_case(digest)?)
    }

    fn has(&self, digest: &[u8]) -> bool {
        lower_case(digest).is_some_and(|digest| self.cache.lock().has(&digest))
    }

    fn clear(&self) {
        self.cache.lock().clear();
        self.idle.lock().clear();
    }

    fn kill(&self) -> bool {
        let running = self.running.lock();
        running.iter().for_each(|context| context.clock.end());
        !running.is_empty()
    }

    fn run(
        &self,
        run: &ScriptRun<'_>,
        host: &mut dyn ScriptHost,
        output: &mut Vec<u8>,
    ) -> std::result::Result<(), String> {
        let mut state = self.take_state()?;
        state.start(run.began);
        let running = Running::new(self, &state.context);
        let result = state.run(run, host, output);
        drop(running);
        for (level, line) in state.take_log() {
            host.log(level, line);
        }
        self.give_back(state);
        result
    }
}

/// Returns a digest in small letters; `None` for another length.
fn lower_case(digest: &[u8]) -> Option<[u8; 40]> {
    let mut digest: [u8; 40] = digest.try_into().ok()?;
    digest.make_ascii_lowercase();
    Some(digest)
}

/// Fails for more values than a function can return.
fn check_results(lua: &Lua, count: usize) -> Result<()> {
    match count <= RESULTS_MAX {
        true => Ok(()),
        false => Err(errors::library_error(lua, "too many results to unpack")),
    }
}
