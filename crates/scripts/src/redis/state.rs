//! State: a Lua interpreter for scripts of Redis.

use super::api::{self, Execution, Session, within_function};
use super::cjson::{self, SharedSettings};
use super::errors::{self, SCRIPT_NAME};
use super::reply::{self, Versions};
use super::{bits, cmsgpack, random, structs};
use crate::clock::Exceeded;
use crate::context::{Context, EndCall};
use crate::error::{self, Failure, NO_MEMORY};
use crate::functions::{self, Installer};
use crate::sandbox::{ErrorHelpers, fill};
use crate::shared::Shared;
use mlua::{Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value};
use server::{ScriptHost, ScriptRecords, ScriptRun, SentScript};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Code in Lua that protects what scripts share.
const PROTECTION: &str = include_str!("redis.lua");

/// Scripts that a state has compiled, at most. One more removes all.
const COMPILED_MAX: usize = 500;

/// One Lua interpreter.
pub(super) struct State {
    lua: Lua,
    pub(super) context: Arc<Context>,
    /// The real globals, and what scripts have in place of them.
    globals: Table,
    environment: Table,
    redis: Table,
    /// Calls a function. Returns its result, or the table of its error.
    call: Function,
    compiled: HashMap<[u8; 40], Function>,
    execution: Arc<Execution>,
    json: SharedSettings,
    /// Whether the present script has failed for want of memory.
    lacks_memory: Arc<AtomicBool>,
}

impl State {
    pub(super) fn new(shared: &Arc<Shared>, records: &Arc<ScriptRecords>) -> Result<Self> {
        let context = Arc::new(Context::new(Arc::clone(shared), Arc::clone(records)));
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let globals = lua.globals();
        let raw_xpcall: Function = globals.raw_get("xpcall")?;
        let (execution, json) = (Arc::<Execution>::default(), SharedSettings::default());
        let helpers = ErrorHelpers { settle: errors::settle, inspect: errors::inspect };
        fill(&lua, &context, helpers, |installer| install(installer, &execution, &json))?;
        let lacks_memory = Arc::new(AtomicBool::new(false));
        let handle = handler(&lua, &lacks_memory)?;
        let protection = lua.load(PROTECTION).set_name("=redis");
        let (environment, redis, call) = protection.call((&globals, raw_xpcall, handle))?;
        Ok(Self {
            context,
            globals,
            environment,
            redis,
            call,
            compiled: HashMap::new(),
            execution,
            json,
            lacks_memory,
            lua,
        })
    }

    /// Compiles a script, unless it is compiled.
    pub(super) fn compile(&mut self, script: &SentScript) -> std::result::Result<(), String> {
        self.begin(Instant::now());
        let (context, lua) = (Arc::clone(&self.context), self.lua.clone());
        let _end = EndCall::new(&context);
        let compiled = context.run_within_memory(&lua, || self.function(script).map(drop));
        compiled.map_err(|failure| compile_error(&failure.message))
    }

    fn function(&mut self, script: &SentScript) -> Result<Function> {
        if let Some(function) = self.compiled.get(&script.digest) {
            return Ok(function.clone());
        }
        let code = &script.source[script.code_from..];
        let function = functions::compile(&self.lua, code, SCRIPT_NAME)?;
        if self.compiled.len() == COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(script.digest, function.clone());
        Ok(function)
    }

    fn begin(&self, now: Instant) {
        self.context.start(now);
        self.execution.begin();
        *self.json.lock() = cjson::Settings::default();
        self.lacks_memory.store(false, Ordering::Relaxed);
    }

    /// Executes a script, and appends its reply. Fails if a limit has ended it. Its text is for the
    /// client.
    pub(super) fn run(
        &mut self,
        run: &ScriptRun<'_>,
        host: &mut dyn ScriptHost,
        output: &mut Vec<u8>,
    ) -> std::result::Result<(), String> {
        let (context, lua) = (Arc::clone(&self.context), self.lua.clone());
        let _end = EndCall::new(&context);
        let result = context.run_within_memory(&lua, || {
            let function = self.function(run.script)?;
            function.set_environment(self.environment.clone())?;
            self.execute(&function, run, host)
        });
        let version = Versions { client: run.version, script: self.execution.version() };
        let result = result.map_err(|failure| self.stopped(&failure.message))?;
        let written = match &result {
            Ok(value) => context
                .run_within_memory(&lua, || reply::write(&lua, &context, version, value, output)),
            Err(error) => self.write_error(run.script, error, output),
        };
        context.end_function();
        written.map_err(|failure| self.stopped(&failure.message))
    }

    /// Begins an execution, which ends with what is left of the time of a call.
    pub(super) fn start(&self, began: Instant) {
        let now = Instant::now();
        self.begin(now);
        let left = self.context.limits().call_time.saturating_sub(now.duration_since(began));
        self.context.clock.limit_time(now, left);
    }

    /// Returns the lines that the last execution has written to the log.
    pub(super) fn take_log(&self) -> Vec<(server::ScriptLogLevel, String)> {
        std::mem::take(&mut self.execution.log.lock())
    }

    /// Calls a function. Returns its result, or its error.
    fn execute(
        &self,
        function: &Function,
        run: &ScriptRun<'_>,
        host: &mut dyn ScriptHost,
    ) -> Result<std::result::Result<Value, Value>> {
        let Self { lua, context, execution, .. } = self;
        self.globals.raw_set("KEYS", self.array(run.keys)?)?;
        self.globals.raw_set("ARGV", self.array(run.arguments)?)?;
        let session = RefCell::new(Session::new(host));
        let (ok, value): (bool, Value) = lua.scope(|scope| {
            let command = |raises: bool| {
                let session = &session;
                scope.create_function(move |lua, values: MultiValue| {
                    within_function(lua, context, || {
                        let version = execution.version();
                        session.borrow_mut().call(lua, context, version, &values, raises)
                    })
                })
            };
            self.redis.raw_set("call", command(true)?)?;
            self.redis.raw_set("pcall", command(false)?)?;
            self.call.call(function)
        })?;
        context.check()?;
        if !ok && (self.lacks_memory.load(Ordering::Relaxed) || is_of_memory(&value)) {
            return Err(mlua::Error::MemoryError(NO_MEMORY.into()));
        }
        Ok(if ok { Ok(value) } else { Err(value) })
    }

    fn array(&self, texts: &[&[u8]]) -> Result<Table> {
        let table = functions::table(&self.lua, &self.context, texts.len(), 0)?;
        for text in texts {
            table.raw_push(self.context.text(&self.lua, text)?)?;
        }
        Ok(table)
    }

    /// Appends the error of a script, with its place.
    fn write_error(
        &self,
        script: &SentScript,
        error: &Value,
        output: &mut Vec<u8>,
    ) -> std::result::Result<(), Failure> {
        let digest = String::from_utf8_lossy(&script.digest);
        let text = match error {
            Value::Table(table) => {
                let field = |name: &str| {
                    let value = table.raw_get::<Value>(name).ok()?;
                    let text = self.lua.coerce_string(value).ok()??;
                    Some(until_zero(&text.to_string_lossy()).to_owned())
                };
                let text = field("err").unwrap_or_else(|| "ERR unknown error".into());
                match field("source").zip(field("line")) {
                    Some((source, line)) => {
                        format!("{text} script: {digest}, on {source}:{line}.")
                    }
                    None => text,
                }
            }
            error => {
                let text = error.to_string().unwrap_or_default();
                format!("ERR Error running script {digest}, {text}")
            }
        };
        wire::redis::reply::error(output, until_zero(&text));
        Ok(())
    }

    /// Returns the text of an execution that a limit has ended.
    fn stopped(&self, message: &str) -> String {
        match self.context.clock.check(Instant::now()) {
            Err(Exceeded::Ended) => {
                "ERR Script killed by user with SCRIPT KILL... Nothing was changed.".into()
            }
            Err(limit) => {
                let setting = limit.setting().unwrap_or_default();
                format!("ERR {limit}, {setting}: nothing was changed")
            }
            Ok(()) if message == NO_MEMORY => {
                let max = self.context.limits().state_bytes;
                format!(
                    "OOM {message}: the script has {max} bytes, script-memory-max; nothing was \
                     changed"
                )
            }
            Ok(()) if message.starts_with(NO_MEMORY) => {
                format!("OOM {message}; nothing was changed")
            }
            Ok(()) => format!("ERR {message}"),
        }
    }

    /// Returns whether the state has too little memory left to be used again.
    pub(super) fn is_full(&mut self) -> bool {
        if self.lua.used_memory() > self.context.limits().state_bytes / 4 {
            self.compiled.clear();
        }
        self.context.is_full(&self.lua)
    }

    /// Drops the values of the last execution.
    pub(super) fn clear(&self) {
        let _ = self.globals.raw_set("KEYS", Value::Nil);
        let _ = self.globals.raw_set("ARGV", Value::Nil);
    }
}

fn install(
    installer: &Installer<'_>,
    execution: &Arc<Execution>,
    json: &SharedSettings,
) -> Result<()> {
    functions::install_base(installer)?;
    random::install(&installer.into(installer.table.raw_get("math")?))?;
    let library = |name: &str| {
        let library = installer.into(installer.lua.create_table()?);
        installer.table.raw_set(name, &library.table)?;
        Ok::<_, mlua::Error>(library)
    };
    api::install(&library("redis")?, execution)?;
    bits::install(&library("bit")?)?;
    cjson::install(&library("cjson")?, json)?;
    cmsgpack::install(&library("cmsgpack")?)?;
    structs::install(&library("struct")?)
}

/// Returns the handler of errors that a script does not catch.
fn handler(lua: &Lua, lacks_memory: &Arc<AtomicBool>) -> Result<Function> {
    let lacks_memory = Arc::clone(lacks_memory);
    lua.create_function(move |lua, error: Value| {
        if is_of_memory(&error) {
            lacks_memory.store(true, Ordering::Relaxed);
            return Ok(error);
        }
        errors::handle(lua, error).map(Value::Table)
    })
}

fn is_of_memory(error: &Value) -> bool {
    match error {
        Value::Error(error) => error::is_of_memory(error),
        Value::String(text) => *text.as_bytes() == *NO_MEMORY.as_bytes(),
        _ => false,
    }
}

/// Returns a text up to a zero byte, which ends texts of C.
fn until_zero(text: &str) -> &str {
    text.split('\0').next().unwrap_or_default()
}

fn compile_error(message: &str) -> String {
    match message.starts_with(NO_MEMORY) {
        true => format!("OOM {message}"),
        false => format!("ERR Error compiling script (new function): {message}"),
    }
}
