//! A Lua state within limits: its libraries, without what could harm the process.
//!
//! Absent are: bytecode (Lua 5.1 trusts it), `newproxy` (finalizers run without hooks), the debug
//! library but for `traceback`, `os.exit` and `os.setlocale`, and, unless they are allowed, files
//! and other programs. Functions of C that can run long without a hook are replaced.

use crate::context::Context;
use crate::functions::{self, Installer};
use crate::limits::INSTRUCTIONS_PER_CHECK;
use crate::modern;
use crate::shared::Allowed;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Lua, LuaOptions, Result, StdLib, Table, Value};
use std::sync::Arc;

/// Version of Tokyo Tyrant with whose functions scripts are compatible.
const VERSION: &str = "1.1.41";

/// Code in Lua that makes functions safe.
const BOOTSTRAP: &str = include_str!("bootstrap.lua");

/// Memory at which garbage is collected, in percent of what the last collection left.
const COLLECT_AT_PERCENT: i32 = 150;

/// Globals that no script has.
const ABSENT: &[&str] = &["newproxy", "dofile", "loadfile"];

/// Makes a state without a script.
pub(crate) fn new_state(context: &Arc<Context>) -> Result<Lua> {
    let allowed = context.shared.allowed;
    let mut libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
    if allowed.files {
        libraries = libraries | StdLib::IO | StdLib::PACKAGE;
    }
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    fill(&lua, context, ErrorHelpers::plain(), |installer| {
        if allowed.files {
            protect_files(&installer.table, allowed)?;
        }
        functions::install(installer)?;
        modern::install(installer)?;
        set_globals(&installer.table, context)
    })?;
    Ok(lua)
}

/// Functions that turn errors into what scripts see of them.
pub(crate) struct ErrorHelpers {
    /// Turns an error that `pcall` and the like have caught.
    pub(crate) settle: fn(&Lua, &Context, Value) -> Result<Value>,
    /// Turns an error for the handler of `xpcall`. Returns whether a limit was exceeded, too.
    pub(crate) inspect: fn(&Lua, &Context, Value) -> Result<(bool, Value)>,
}

impl ErrorHelpers {
    fn plain() -> Self {
        Self { settle: functions::settle, inspect: functions::inspect }
    }
}

/// Makes a new state safe: takes from it what could harm the process, adds functions by `install`,
/// and sets its limits.
pub(crate) fn fill(
    lua: &Lua,
    context: &Arc<Context>,
    helpers: ErrorHelpers,
    install: impl FnOnce(&Installer<'_>) -> Result<()>,
) -> Result<()> {
    let globals = lua.globals();
    for name in ABSENT {
        globals.raw_set(*name, Value::Nil)?;
    }
    let string: Table = globals.raw_get("string")?;
    string.raw_set("dump", Value::Nil)?;
    let (gmatch, find): (Value, Value) = (string.raw_get("gmatch")?, string.raw_get("find")?);
    let installer = Installer { lua, table: globals, context: Arc::clone(context) };
    install(&installer)?;
    bootstrap(lua, &installer, helpers, (gmatch, find))?;
    // A whole collection each time, so that garbage never exceeds the share above. The
    // incremental collector lags behind when strings are long.
    let parameters = GcIncParams::default().pause(COLLECT_AT_PERCENT).step_multiplier(0);
    lua.gc_set_mode(GcMode::Incremental(parameters));
    lua.set_memory_limit(context.memory.limit())?;
    // The state has the context, which has the hook.
    let hooked = Arc::downgrade(context);
    context.hook.install(lua, move |lua, instructions| {
        let Some(context) = hooked.upgrade() else { return Ok(()) };
        context.count_instructions(instructions)?;
        context.look_at_memory(lua)
    })
}

/// Executes the code in Lua, with Lua's own functions `gmatch` and `find`.
fn bootstrap(
    lua: &Lua,
    installer: &Installer<'_>,
    ErrorHelpers { settle, inspect }: ErrorHelpers,
    (gmatch, find): (Value, Value),
) -> Result<()> {
    let helpers = installer.into(lua.create_table()?);
    helpers.add_unchecked("settle", settle)?;
    helpers.add_unchecked("inspect", inspect)?;
    // Each function of ours looks at the clock; this one does nothing else.
    helpers.add_short("check", |_, _, ()| Ok(()))?;
    helpers.add_short("search", functions::gmatch_step)?;
    helpers.add("join", functions::join)?;
    // As many instructions as a coroutine can take before its first hook.
    helpers.add_short("count_coroutine", |_, context, ()| {
        context.count_instructions(INSTRUCTIONS_PER_CHECK)
    })?;
    let helper = |name: &str| helpers.table.raw_get::<Value>(name);
    let arguments = (
        helper("settle")?,
        helper("inspect")?,
        helper("check")?,
        helper("search")?,
        helper("count_coroutine")?,
        helper("join")?,
        gmatch,
        find,
    );
    lua.load(BOOTSTRAP).set_name("=bootstrap").call::<()>(arguments)
}

/// Takes from `io` and `package` what goes beyond files.
fn protect_files(globals: &Table, allowed: Allowed) -> Result<()> {
    let io: Table = globals.raw_get("io")?;
    if !allowed.programs {
        io.raw_set("popen", Value::Nil)?;
    }
    globals.raw_get::<Table>("package")?.raw_set("loadlib", Value::Nil)
}

fn set_globals(globals: &Table, context: &Context) -> Result<()> {
    globals.raw_set("_version", VERSION)?;
    globals.raw_set("_pid", std::process::id())?;
    globals.raw_set("_sid", context.records.server_id())?;
    globals.raw_set("_thnum", context.records.threads())?;
    globals.raw_set("_thid", context.records.thread() + 1)
}
