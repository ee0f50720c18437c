//! State: one Lua interpreter with the script loaded, which one thread at a time runs.

use crate::context::Context;
use crate::error::{self, Failure};
use crate::functions;
use crate::limits::{FUNCTIONS_MAX, LOOP_STATE_BYTES_MAX, LOOP_TEXT_BYTES_MAX};
use crate::sandbox::new_state;
use crate::shared::{MapFunctions, Mapper, Shared};
use crate::sorter::Sorter;
use crate::source::Code;
use crate::statistics::{CallStatistics, Statistics};
use mlua::{Error, Function, Lua, LuaString, Table, Value};
use parking_lot::Mutex;
use server::ScriptRecords;
use std::collections::{HashMap, HashSet};
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
    /// Addresses of the functions that were global before the script was executed.
    own_functions: HashSet<usize>,
    statistics: Arc<Statistics>,
    generation: u64,
}

impl State {
    /// Makes a state, and executes the script in it.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        records: &Arc<ScriptRecords>,
        statistics: &Arc<Statistics>,
        code: &Code,
    ) -> Result<Self> {
        let context = Arc::new(Context::new(Arc::clone(shared), Arc::clone(records)));
        let lua = new_state(&context).map_err(|error| Failure::new(&error))?;
        let globals = lua.globals();
        let own_functions = own_functions(&globals).map_err(|error| Failure::new(&error))?;
        let state = Self {
            own_functions,
            globals,
            lua,
            context,
            known: HashMap::new(),
            statistics: Arc::clone(statistics),
            generation: code.generation,
        };
        state.run(|| functions::compile(&state.lua, code.text(), &code.name)?.call::<()>(()))?;
        state.context.may_map_reduce.store(true, Ordering::Relaxed);
        Ok(state)
    }

    /// Returns the generation of the script that is loaded.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes the state count as one with a newer generation of the script, which has failed here.
    pub(crate) fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
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
        let result = self.run_from(start, || {
            let function = function(&self.globals, &known.name)?;
            text(&self.lua, function.call::<Value>(self.arguments(key, value)?)?)
        });
        known.statistics.add(start.elapsed(), result.is_err());
        result
    }

    /// Returns a key and a value as texts of Lua.
    fn arguments(&self, key: &[u8], value: &[u8]) -> mlua::Result<(LuaString, LuaString)> {
        let create = || Ok((self.lua.create_string(key)?, self.lua.create_string(value)?));
        if key.len().saturating_add(value.len()) > LOOP_TEXT_BYTES_MAX {
            return create();
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
        let context = &self.context;
        let next = || context.shared.evaluations.next(context.records.thread());
        let result = self.run(|| {
            while let Some(code) = next() {
                functions::evaluate(&self.lua, context, &code)?;
            }
            Ok(())
        });
        if let Err(failure) = result {
            tracing::error!("_eval: {}", failure.traceback);
            while next().is_some() {}
        }
    }

    /// Does the same in the name of a call of another state.
    pub(crate) fn evaluate_lent(&self) {
        self.context.is_lent.store(true, Ordering::Relaxed);
        self.evaluate_waiting();
        self.context.is_lent.store(false, Ordering::Relaxed);
    }

    /// Returns the records of the state.
    pub(crate) fn records(&self) -> &ScriptRecords {
        &self.context.records
    }

    /// Returns whether the state is too large for an event loop.
    pub(crate) fn is_large(&self) -> bool {
        self.lua.used_memory() > LOOP_STATE_BYTES_MAX
    }

    /// Returns whether the state has so little memory left that a call would fail.
    pub(crate) fn is_full(&self) -> bool {
        let is_over = || self.lua.used_memory() > self.context.limits().state_bytes / 2;
        if !is_over() {
            return false;
        }
        self.context.records.leave_loop();
        self.lua.gc_collect().is_err() || is_over()
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
        let (map, finish, emit) = self.run(|| {
            let finish = functions.finish.as_deref().map(named).transpose()?;
            Ok((named(&functions.map)?, finish, functions::emit_into(&self.lua, &sorter)?))
        })?;
        self.context.clock.start(Instant::now(), time, u64::MAX);
        self.context.may_map_reduce.store(false, Ordering::Relaxed);
        Ok(StateMapper { map, finish, emit, sorter, state: self })
    }

    /// Prepares a function to be called.
    fn know(&mut self, name: &[u8]) -> Result<Arc<Known>> {
        let lua_name = self.run(|| {
            let lua_name = self.lua.create_string(name)?;
            let known = function(&self.globals, &lua_name)?;
            if self.own_functions.contains(&(known.to_pointer() as usize)) {
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
        self.run_from(Instant::now(), part)
    }

    /// Runs a part of the script that begins now.
    fn run_from<T>(&self, now: Instant, part: impl FnOnce() -> mlua::Result<T>) -> Result<T> {
        self.context.start(now);
        let _end = EndCall(&self.context);
        let result = cabinet::with_deadline(self.context.clock.deadline(), part);
        result.map_err(|error| Failure::new(&error))
    }
}

/// Guard of a call: releases its locks, even after a panic.
struct EndCall<'c>(&'c Context);

impl Drop for EndCall<'_> {
    fn drop(&mut self) {
        self.0.end();
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
        let result = cabinet::with_deadline(context.clock.deadline(), || call(lua));
        result.map_err(|error| error::message(&error))
    }
}

impl Mapper for StateMapper {
    fn map(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), String> {
        self.call(|lua| {
            let arguments = (lua.create_string(key)?, lua.create_string(value)?, &self.emit);
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

/// Returns the addresses of all functions that are global now.
fn own_functions(globals: &Table) -> mlua::Result<HashSet<usize>> {
    let mut own = HashSet::new();
    for pair in globals.pairs::<Value, Value>() {
        if let (_, Value::Function(function)) = pair? {
            own.insert(function.to_pointer() as usize);
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
