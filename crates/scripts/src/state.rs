//! State: one Lua interpreter with the script loaded, which one thread at a time runs.

use crate::clock::{CallClock, Exceeded};
use crate::context::{Context, EndCall};
use crate::error::{Failure, NO_MEMORY};
use crate::functions;
use crate::limits::{FUNCTIONS_MAX, LOOP_STATE_BYTES_MAX, LOOP_TEXT_BYTES_MAX};
use crate::sandbox::new_state;
use crate::shared::{Allowed, Evaluation, MapFunctions, Mapper, Shared};
use crate::sorter::Sorter;
use crate::source::Code;
use crate::statistics::{CallStatistics, Statistics};
use mlua::{Error, Function, Lua, LuaString, Table, Value};
use parking_lot::Mutex;
use server::ScriptRecords;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Failure>;

/// Whole numbers below this have all of their digits as text of Lua, `%.14g`.
const WHOLE_DIGITS_MAX: u64 = 100_000_000_000_000;

/// A function that has been called in this state.
struct Known {
    name: LuaString,
    statistics: Arc<CallStatistics>,
}

/// One Lua interpreter.
pub(crate) struct State {
    lua: Lua,
    context: Arc<Context>,
    globals: Table,
    known: HashMap<Vec<u8>, Arc<Known>>,
    /// Has the functions that were global before the script was executed as keys, so that no other
    /// function gets the address of one.
    own_functions: Table,
    statistics: Arc<Statistics>,
    generation: u64,
    /// Time from which on the state may be replaced by one of the same generation, since that has
    /// failed to load.
    kept_until: Option<Instant>,
}

impl State {
    /// Makes a state, and executes the script in it with all rights, which may take so long.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        records: &Arc<ScriptRecords>,
        statistics: &Arc<Statistics>,
        code: &Code,
        time: Duration,
    ) -> Result<Self> {
        let context = Arc::new(Context::new(Arc::clone(shared), Arc::clone(records)));
        let lua = new_state(&context).map_err(|error| Failure::new(&error))?;
        let globals = lua.globals();
        let own_functions = own_functions(&lua).map_err(|error| Failure::new(&error))?;
        let state = Self {
            own_functions,
            globals,
            lua,
            context,
            known: HashMap::new(),
            statistics: Arc::clone(statistics),
            generation: code.generation,
            kept_until: None,
        };
        // Its caller may be any user, or a mapper of one.
        let _rights = records.with_rights(None);
        state.start_within(time);
        state.run_started(|| {
            functions::compile(&state.lua, code.text(), &code.name)?.call::<()>(())
        })?;
        Ok(state)
    }

    /// Lets the script begin `tyrant.map_reduce`.
    pub(crate) fn allow_map_reduce(&self) {
        self.context.may_map_reduce.store(true, Ordering::Relaxed);
    }

    /// Returns the generation of the script that is loaded.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether the state counts as one with this generation of the script.
    pub(crate) fn is_of(&self, generation: u64) -> bool {
        self.generation == generation && self.kept_until.is_none_or(|until| Instant::now() < until)
    }

    /// Makes the state count as one with a newer generation of the script, which has failed here,
    /// until it is time to load that again.
    pub(crate) fn keep_until(&mut self, generation: u64, until: Instant) {
        self.generation = generation;
        self.kept_until = Some(until);
    }

    /// Calls a global function with a key and a value. Returns its result as text.
    pub(crate) fn call(
        &mut self,
        name: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let known = match self.known.get(name) {
            Some(known) => Arc::clone(known),
            None => self.know(name)?,
        };
        let start = self.context.records.call_began();
        self.context.start(start);
        let result = self.run_to_end(true, || {
            let function = function(&self.globals, &known.name)?;
            text(&self.lua, function.call::<Value>(self.arguments(key, value)?)?)
        });
        known.statistics.add(start.elapsed(), result.is_err());
        result.map_err(|failure| match self.has_met_limit(&failure) {
            // Other messages have the file and the line.
            true => failure.with(&format!("{}: ", String::from_utf8_lossy(name)), ""),
            false => failure,
        })
    }

    /// Returns whether a call has failed at a limit, of which Lua's message tells no place.
    fn has_met_limit(&self, failure: &Failure) -> bool {
        self.context.clock.is_over() || failure.message.starts_with(NO_MEMORY)
    }

    /// Adds the setting that a call has failed for to the message, if it has none.
    fn explain(&self, failure: Failure) -> Failure {
        let clock = &self.context.clock;
        let exceeded = clock.is_over().then(|| clock.check(Instant::now()).err()).flatten();
        if let Some(setting) = exceeded.and_then(Exceeded::setting) {
            return failure.with("", &format!(", {setting}: raise it, or do less in a call"));
        }
        if failure.message == NO_MEMORY {
            let max = self.context.limits().state_bytes;
            let end =
                format!(": a script has {max} bytes, script-memory-max: raise it, or use less");
            return failure.with("", &end);
        }
        match setting_of_absent(&failure.message, self.context.shared.allowed) {
            Some(setting) => failure.with("", &format!("; only with {setting} scripts have it")),
            None => failure,
        }
    }

    /// Returns whether a global function has this name.
    pub(crate) fn defines(&self, name: &[u8]) -> bool {
        self.run(|| {
            let name = self.lua.create_string(name)?;
            Ok(function(&self.globals, &name).is_ok())
        })
        .unwrap_or(true)
    }

    /// Returns a key and a value as texts of Lua.
    fn arguments(&self, key: &[u8], value: &[u8]) -> mlua::Result<(LuaString, LuaString)> {
        let create = || Ok((self.lua.create_string(key)?, self.lua.create_string(value)?));
        let bytes = key.len().saturating_add(value.len());
        if bytes > LOOP_TEXT_BYTES_MAX {
            self.context.memory.provide(&self.lua, bytes)?;
            let arguments = create();
            self.context.hook.adapt_to_text(&self.lua)?;
            return arguments;
        }
        // With a limit of memory, each text would be made in a protected call of Lua.
        let limit = self.lua.set_memory_limit(0)?;
        let arguments = create();
        self.lua.set_memory_limit(limit)?;
        arguments
    }

    /// Calls a global function without arguments, if there is one.
    pub(crate) fn call_if_present(&self, name: &str) -> Result<()> {
        self.run(|| match self.globals.get::<Value>(name)? {
            Value::Function(function) => function.call::<()>(()),
            _ => Ok(()),
        })
    }

    /// Executes code that `_eval` has left for this state. All of it has the time of one call, and
    /// the rest is dropped.
    pub(crate) fn evaluate_waiting(&self) {
        self.context.start(Instant::now());
        if self.evaluate_started().is_err() {
            while self.next_evaluation().is_some() {}
        }
    }

    /// Does the same in the name of a call of another state, within what it has left of its limits.
    /// If that is not enough, the rest waits for a call of this state.
    pub(crate) fn evaluate_lent(&self, caller: &ScriptRecords, left: &CallClock) {
        let clock = &self.context.clock;
        let _lent = Lent::new(caller, &self.context);
        let now = Instant::now();
        self.context.start(now);
        clock.limit_to_rest_of(now, left);
        let _ = self.evaluate_started();
        left.take_rest_of(clock);
    }

    fn next_evaluation(&self) -> Option<Evaluation> {
        self.context.shared.evaluations.next(self.context.records.thread())
    }

    /// Executes all code that `_eval` has left, each with the rights of the call that has left it.
    fn evaluate_started(&self) -> Result<()> {
        let context = &self.context;
        let result = self.run_started(|| {
            while let Some(Evaluation { code, rights }) = self.next_evaluation() {
                let _rights = context.records.with_rights(rights);
                functions::evaluate(&self.lua, context, &code)?;
            }
            Ok(())
        });
        result.inspect_err(|failure| tracing::error!("_eval: {}", failure.traceback))
    }

    /// Returns the records of the state.
    pub(crate) fn records(&self) -> &ScriptRecords {
        &self.context.records
    }

    /// Returns whether the state is too large for an event loop.
    pub(crate) fn is_large(&self) -> bool {
        self.lua.used_memory() > LOOP_STATE_BYTES_MAX
    }

    /// Returns whether the state has so little memory left that a call would fail, or so much that
    /// other states would lack it for ever.
    pub(crate) fn is_full(&self) -> bool {
        self.context.is_full(&self.lua)
    }

    /// Makes a mapper that calls global functions, and ends after a time.
    pub(crate) fn into_mapper(
        self,
        functions: &MapFunctions,
        sorter: Sorter,
        time: Duration,
    ) -> Result<StateMapper> {
        let sorter = Arc::new(Mutex::new(Some(sorter)));
        let named = |name: &str| function(&self.globals, &self.lua.create_string(name)?);
        self.start_within(time);
        let (map, finish, emit) = self.run_started(|| {
            let finish = functions.finish.as_deref().map(named).transpose()?;
            Ok((named(&functions.map)?, finish, functions::emit_into(&self.lua, &sorter)?))
        })?;
        Ok(StateMapper { map, finish, emit, sorter, state: self })
    }

    /// Prepares a function to be called.
    fn know(&mut self, name: &[u8]) -> Result<Arc<Known>> {
        let lua_name = self.run(|| {
            let lua_name = self.lua.create_string(name)?;
            let known = function(&self.globals, &lua_name)?;
            if self.own_functions.raw_get(known)? {
                return Err(missing(&lua_name));
            }
            Ok(lua_name)
        })?;
        if self.known.len() == FUNCTIONS_MAX {
            self.known.clear();
        }
        let statistics = self.statistics.of(&String::from_utf8_lossy(name));
        let known = Arc::new(Known { name: lua_name, statistics });
        self.known.insert(name.to_vec(), Arc::clone(&known));
        Ok(known)
    }

    /// Runs a part of the script within the limits of a call.
    fn run<T>(&self, part: impl FnOnce() -> mlua::Result<T>) -> Result<T> {
        self.context.start(Instant::now());
        self.run_started(part)
    }

    /// Begins a call that may take so long.
    fn start_within(&self, time: Duration) {
        let now = Instant::now();
        self.context.start(now);
        self.context.clock.limit_time(now, time);
    }

    /// Runs a part of the script within the limits of the call that has begun.
    fn run_started<T>(&self, part: impl FnOnce() -> mlua::Result<T>) -> Result<T> {
        self.run_to_end(false, part)
    }

    /// Does the same. If it succeeds, names that it has locked stay so if `keeps` says that, as for
    /// a client's call. Each state loads the script, and would wait for the one before.
    fn run_to_end<T>(&self, keeps: bool, part: impl FnOnce() -> mlua::Result<T>) -> Result<T> {
        let mut end = EndCall::new(&self.context);
        let result = self.run_within_memory(part).map_err(|failure| self.explain(failure));
        end.keeps_locks = keeps && result.is_ok();
        result
    }

    /// Runs a part of the script with memory for it, and gives back what is not used afterwards.
    fn run_within_memory<T>(&self, part: impl FnOnce() -> mlua::Result<T>) -> Result<T> {
        self.context.run_within_memory(&self.lua, part)
    }
}

/// Functions and libraries that scripts have with `script-files` only, as Lua names them.
const OF_FILES: [&str; 11] = [
    "global '_stat'",
    "global '_glob'",
    "global '_remove'",
    "global '_mkdir'",
    "global 'dofile'",
    "global 'loadfile'",
    "global 'require'",
    "global 'io'",
    "field 'remove'",
    "field 'rename'",
    "field 'tmpname'",
];

/// Those that scripts have with `script-programs` only.
const OF_PROGRAMS: [&str; 3] = ["field 'getenv'", "field 'execute'", "field 'popen'"];

/// Returns the setting with which scripts have what a message of Lua calls nil.
fn setting_of_absent(message: &str, allowed: Allowed) -> Option<&'static str> {
    let rest = message.strip_suffix(" (a nil value)")?;
    let is_one_of = |names: &[&str]| names.iter().any(|name| rest.ends_with(name));
    if !allowed.files && is_one_of(&OF_FILES) {
        return Some("script-files");
    }
    (!allowed.programs && is_one_of(&OF_PROGRAMS)).then_some("script-programs")
}

/// Guard of a state that executes code in the name of a call of another one, which takes over its
/// changes.
struct Lent<'c> {
    caller: &'c ScriptRecords,
    context: &'c Context,
}

impl<'c> Lent<'c> {
    fn new(caller: &'c ScriptRecords, context: &'c Context) -> Self {
        context.is_lent.store(true, Ordering::Relaxed);
        Self { caller, context }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.context.is_lent.store(false, Ordering::Relaxed);
        self.caller.absorb(&self.context.records);
    }
}

/// A state that maps records.
pub(crate) struct StateMapper {
    map: Function,
    finish: Option<Function>,
    emit: Function,
    sorter: Arc<Mutex<Option<Sorter>>>,
    state: State,
}

impl StateMapper {
    /// Calls a function of the script within the limits of a call.
    fn call(&self, call: impl FnOnce(&Lua) -> mlua::Result<()>) -> std::result::Result<(), String> {
        let State { lua, context, .. } = &self.state;
        context.clock.allow_instructions(context.limits().call_instructions);
        let result = self.state.run_within_memory(|| call(lua));
        result.map_err(|failure| failure.message)
    }
}

impl Mapper for StateMapper {
    fn map(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), String> {
        self.call(|lua| {
            let context = &self.state.context;
            let arguments = (context.text(lua, key)?, context.text(lua, value)?, &self.emit);
            self.map.call(arguments)
        })
    }

    fn finish(self: Box<Self>) -> std::result::Result<Sorter, String> {
        if let Some(finish) = &self.finish {
            self.call(|_| finish.call(&self.emit))?;
        }
        let sorter = self.sorter.lock().take();
        sorter.ok_or_else(|| "cannot sort through temporary files".to_string())
    }
}

fn function(globals: &Table, name: &LuaString) -> mlua::Result<Function> {
    if let Value::Function(function) = globals.raw_get(name)? {
        return Ok(function);
    }
    // A metatable may have it.
    match globals.get::<Value>(name)? {
        Value::Function(function) => Ok(function),
        _ => Err(missing(name)),
    }
}

fn missing(name: &LuaString) -> Error {
    Error::RuntimeError(format!("there is no function {}", name.display()))
}

/// Returns a table whose keys are all functions that are global now.
fn own_functions(lua: &Lua) -> mlua::Result<Table> {
    let own = lua.create_table()?;
    for pair in lua.globals().pairs::<Value, Value>() {
        if let (_, Value::Function(function)) = pair? {
            own.raw_set(function, true)?;
        }
    }
    Ok(own)
}

/// Returns the result of a function as text; that of a table is its first element.
fn text(lua: &Lua, value: Value) -> mlua::Result<Option<Vec<u8>>> {
    let value = match value {
        Value::Table(table) => table.raw_get::<Value>(1)?,
        value => value,
    };
    Ok(match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Boolean(true) => Some(b"true".to_vec()),
        Value::Integer(number) if number.unsigned_abs() < WHOLE_DIGITS_MAX => {
            Some(number.to_string().into_bytes())
        }
        value @ (Value::Integer(_) | Value::Number(_)) => {
            lua.coerce_string(value)?.map(|text| text.as_bytes().to_vec())
        }
        _ => None,
    })
}
