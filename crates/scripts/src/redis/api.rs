//! `redis`: the functions by which scripts reach the server.

use super::errors::{Arguments, table_error};
use super::number::append_general;
use super::reply;
use crate::context::Context;
use crate::functions::Installer;
use crate::pace::{Pace, UNITS_PER_CHECK};
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};
use parking_lot::Mutex;
use server::{ScriptHost, ScriptLogLevel};
use sha1::{Digest, Sha1};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::redis::reply::{self as wire_reply, Version};

/// Most lines that a script writes to the log, and most bytes of a line. Further ones are left out.
const LOG_LINES_MAX: usize = 100;
const LOG_LINE_BYTES_MAX: usize = 1024;

/// Digits with which a number becomes an argument of a command.
const DIGITS: usize = 17;

/// State of one execution of a script, which functions of it change.
#[derive(Default)]
pub(super) struct Execution {
    /// Whether replies of commands are those of version 3 of the protocol.
    pub(super) is_three: AtomicBool,
    /// Lines for the log.
    pub(super) log: Mutex<Vec<(ScriptLogLevel, String)>>,
}

impl Execution {
    pub(super) fn version(&self) -> Version {
        if self.is_three.load(Ordering::Relaxed) { Version::Three } else { Version::Two }
    }

    pub(super) fn begin(&self) {
        self.is_three.store(false, Ordering::Relaxed);
        self.log.lock().clear();
    }
}

/// Adds the functions that need no server to a table.
pub(super) fn install(installer: &Installer<'_>, execution: &Arc<Execution>) -> Result<()> {
    install_constants(&installer.table)?;
    installer.add_short("error_reply", |lua, _, values: MultiValue| {
        single(lua, values, |lua, text| error_table(lua, &text.as_bytes()))
    })?;
    installer.add_short("status_reply", |lua, _, values: MultiValue| {
        single(lua, values, |lua, text| {
            let table = lua.create_table()?;
            table.raw_set("ok", text)?;
            Ok(table)
        })
    })?;
    installer.add_short("sha1hex", |lua, context, values: MultiValue| {
        let [value] = <[Value; 1]>::try_from(values.into_vec())
            .map_err(|_| table_error("ERR wrong number of arguments"))?;
        let text = lua.coerce_string(value)?;
        let text = text.as_ref().map(LuaString::as_bytes);
        let mut pace = Pace::new(lua, context);
        let mut hasher = Sha1::new();
        for part in text.as_deref().unwrap_or_default().chunks(UNITS_PER_CHECK) {
            pace.work(part.len())?;
            hasher.update(part);
        }
        lua.create_string(hex(&hasher.finalize().into()))
    })?;
    let state = Arc::clone(execution);
    installer.add_short("log", move |lua, _, values: MultiValue| log(lua, &state, values))?;
    let state = Arc::clone(execution);
    installer.add_short("setresp", move |lua, _, values: MultiValue| {
        let arguments = Arguments::new(lua, values);
        if arguments.len() != 1 {
            return Err(table_error("ERR redis.setresp() requires one argument."));
        }
        let version = arguments.number(1).unwrap_or(0.0).trunc();
        if version != 2.0 && version != 3.0 {
            return Err(table_error("ERR RESP version must be 2 or 3."));
        }
        state.is_three.store(version == 3.0, Ordering::Relaxed);
        Ok(())
    })?;
    installer.add_short("set_repl", |lua, _, values: MultiValue| {
        let arguments = Arguments::new(lua, values);
        if arguments.len() != 1 {
            return Err(table_error("ERR redis.set_repl() requires two arguments."));
        }
        match arguments.number(1).unwrap_or(0.0) as i64 & !3 {
            0 => Ok(()),
            _ => Err(table_error(
                "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            )),
        }
    })?;
    installer.add_short("replicate_commands", |_, _, _: MultiValue| Ok(true))?;
    installer.add_short("breakpoint", |_, _, _: MultiValue| Ok(false))?;
    installer.add_short("debug", |_, _, _: MultiValue| Ok(()))
}

fn install_constants(table: &Table) -> Result<()> {
    let parts: Vec<i64> =
        server::REDIS_VERSION.split('.').map(|part| part.parse().unwrap_or_default()).collect();
    table.raw_set("REDIS_VERSION", server::REDIS_VERSION)?;
    table.raw_set("REDIS_VERSION_NUM", parts.iter().fold(0, |number, part| number << 8 | part))?;
    let constants = [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
    ];
    constants.iter().try_for_each(|(name, value)| table.raw_set(*name, *value))
}

/// Returns a table made of the only argument, which is a text.
fn single(
    lua: &Lua,
    values: MultiValue,
    make: impl FnOnce(&Lua, LuaString) -> Result<Table>,
) -> Result<Table> {
    match <[Value; 1]>::try_from(values.into_vec()) {
        Ok([Value::String(text)]) => make(lua, text),
        _ => error_table(lua, b"ERR wrong number or type of arguments"),
    }
}

/// Returns the table of an error, whose text has a code if it begins with one.
fn error_table(lua: &Lua, text: &[u8]) -> Result<Table> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let (code, message) = match text.iter().position(|byte| *byte == b' ') {
        Some(space) => (&text[..space], &text[space + 1..]),
        None => (&b"ERR"[..], text),
    };
    let table = lua.create_table()?;
    let text = [code, b" ", reply::trimmed(message)].concat();
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

fn log(lua: &Lua, execution: &Execution, values: MultiValue) -> Result<()> {
    let arguments = Arguments::new(lua, values);
    if arguments.len() < 2 {
        return Err(table_error("ERR redis.log() requires two arguments or more."));
    }
    let Ok(level) = arguments.number(1) else {
        return Err(table_error("ERR First argument must be a number (log level)."));
    };
    let level = match level as i64 {
        0 => ScriptLogLevel::Debug,
        1 => ScriptLogLevel::Verbose,
        2 => ScriptLogLevel::Notice,
        3 => ScriptLogLevel::Warning,
        _ => return Err(table_error("ERR Invalid debug level.")),
    };
    let mut lines = execution.log.lock();
    if lines.len() == LOG_LINES_MAX {
        return Ok(());
    }
    let mut line = Vec::new();
    for place in 2..=arguments.len() {
        let Ok(text) = arguments.text(place) else { continue };
        if place > 2 {
            line.push(b' ');
        }
        let left = LOG_LINE_BYTES_MAX.saturating_sub(line.len());
        let text = text.as_bytes();
        line.extend_from_slice(&text[..text.len().min(left)]);
    }
    lines.push((level, String::from_utf8_lossy(&line).into_owned()));
    Ok(())
}

/// Returns bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8; 20]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| {
        let byte = bytes[place / 2];
        DIGITS[usize::from(if place % 2 == 0 { byte >> 4 } else { byte & 15 })]
    })
}

/// The server as the present execution of a script reaches it, with buffers.
pub(super) struct Session<'h> {
    pub(super) host: &'h mut dyn ScriptHost,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl<'h> Session<'h> {
    pub(super) fn new(host: &'h mut dyn ScriptHost) -> Self {
        Self { host, request: Vec::new(), reply: Vec::new() }
    }

    /// Executes a command. Returns its reply; an error is raised if `raises`.
    pub(super) fn call(
        &mut self,
        lua: &Lua,
        context: &Context,
        version: Version,
        values: &MultiValue,
        raises: bool,
    ) -> Result<Value> {
        if let Err(text) = self.encode(lua, context, values)? {
            return match raises {
                true => Err(table_error(text)),
                false => error_table(lua, text.as_bytes()).map(Value::Table),
            };
        }
        self.reply.clear();
        if self.host.execute(&self.request, version, &mut self.reply).is_err() {
            context.clock.end();
            context.check()?;
        }
        if raises && let Some(error) = self.reply.strip_prefix(b"-") {
            return Err(table_error(String::from_utf8_lossy(error).trim_end()));
        }
        let value = reply::read(lua, context, &self.reply);
        if self.reply.capacity() > BUFFER_BYTES_MAX {
            self.reply = Vec::new();
        }
        value
    }

    /// Encodes a command as a request. Returns the error if it is none.
    fn encode(
        &mut self,
        lua: &Lua,
        context: &Context,
        values: &MultiValue,
    ) -> Result<std::result::Result<(), &'static str>> {
        self.request.clear();
        if self.request.capacity() > BUFFER_BYTES_MAX {
            self.request = Vec::new();
        }
        if values.is_empty() {
            let text = "ERR Please specify at least one argument for this redis lib call";
            return Ok(Err(text));
        }
        wire_reply::array(&mut self.request, values.len());
        for value in values {
            let mut digits = Vec::new();
            match value {
                Value::String(text) => {
                    let text = text.as_bytes();
                    context.charge_bytes(lua, text.len())?;
                    wire_reply::string(&mut self.request, &text);
                    continue;
                }
                Value::Integer(number) => append_general(&mut digits, *number as f64, DIGITS),
                Value::Number(number) => append_general(&mut digits, *number, DIGITS),
                _ => {
                    let text = "ERR Lua redis lib command arguments must be strings or integers";
                    return Ok(Err(text));
                }
            }
            wire_reply::string(&mut self.request, &digits);
        }
        Ok(Ok(()))
    }
}

/// Memory that a buffer keeps from one command to the next, in bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Begins and ends a function of ours that is made for one execution.
pub(super) fn within_function<R>(
    lua: &Lua,
    context: &Context,
    function: impl FnOnce() -> Result<R>,
) -> Result<R> {
    context.check_stack()?;
    context.begin_function(lua)?;
    let result = function();
    context.end_function();
    result.or_else(|error: Error| {
        if !matches!(error, Error::MemoryError(_)) {
            context.check()?;
        }
        Err(error)
    })
}
