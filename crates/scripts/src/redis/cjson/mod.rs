//! `cjson`: JSON, with the format, the settings and the errors of lua-cjson 2.1.0.

mod decode;
mod encode;

use super::errors::{Arguments, argument_error};
use crate::context::Context;
use crate::functions::Installer;
use mlua::{LightUserData, Lua, MultiValue, Result, Table, Value};
use parking_lot::Mutex;
use std::sync::Arc;

/// The value of JSON's `null`.
const NULL: Value = Value::LightUserData(LightUserData(std::ptr::null_mut()));

/// Most levels of tables, and of arrays and objects, that a script may set, and their default.
const LEVELS_MAX: usize = 1000;

/// Most digits of a number, and their default.
const DIGITS_MAX: usize = 14;

/// Treatment of numbers that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNumbers {
    Refused,
    Accepted,
    /// They are written as `null`.
    Null,
}

/// Settings of a module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Whether arrays with too many gaps become objects. Otherwise they are an error.
    converts_sparse: bool,
    /// Gaps per element from which an array is sparse; 0 for never.
    sparse_ratio: usize,
    /// Largest index up to which an array is not sparse.
    sparse_safe: usize,
    encode_levels_max: usize,
    decode_levels_max: usize,
    encode_invalid: InvalidNumbers,
    decode_invalid: InvalidNumbers,
    digits: usize,
    keeps_buffer: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_levels_max: LEVELS_MAX,
            decode_levels_max: LEVELS_MAX,
            encode_invalid: InvalidNumbers::Refused,
            decode_invalid: InvalidNumbers::Accepted,
            digits: DIGITS_MAX,
            keeps_buffer: true,
        }
    }
}

pub(super) type SharedSettings = Arc<Mutex<Settings>>;

/// Adds the functions to a table. They have these settings.
pub(super) fn install(installer: &Installer<'_>, settings: &SharedSettings) -> Result<()> {
    add(installer, settings, "encode", encode::encode)?;
    add(installer, settings, "decode", decode::decode)?;
    add(installer, settings, "encode_sparse_array", |lua, _, settings, values| {
        let arguments = Arguments::new(lua, values);
        check_count(&arguments, lua, 3)?;
        let mut settings = settings.lock();
        let converts = boolean(lua, &arguments, settings.converts_sparse)?;
        let ratio = whole(lua, &arguments, 2, (0, usize::MAX), settings.sparse_ratio)?;
        let safe = whole(lua, &arguments, 3, (0, usize::MAX), settings.sparse_safe)?;
        (settings.converts_sparse, settings.sparse_ratio) = (converts, ratio);
        settings.sparse_safe = safe;
        Ok((converts, ratio as f64, safe as f64))
    })?;
    limit(installer, settings, "encode_max_depth", |settings| &mut settings.encode_levels_max)?;
    limit(installer, settings, "decode_max_depth", |settings| &mut settings.decode_levels_max)?;
    limit(installer, settings, "encode_number_precision", |settings| &mut settings.digits)?;
    add(installer, settings, "encode_keep_buffer", |lua, _, settings, values| {
        let arguments = Arguments::new(lua, values);
        check_count(&arguments, lua, 1)?;
        let mut settings = settings.lock();
        settings.keeps_buffer = boolean(lua, &arguments, settings.keeps_buffer)?;
        Ok(settings.keeps_buffer)
    })?;
    add(installer, settings, "encode_invalid_numbers", |lua, _, settings, values| {
        let mut settings = settings.lock();
        invalid_numbers(lua, values, &mut settings.encode_invalid, true)
    })?;
    add(installer, settings, "decode_invalid_numbers", |lua, _, settings, values| {
        let mut settings = settings.lock();
        invalid_numbers(lua, values, &mut settings.decode_invalid, false)
    })?;
    let context = Arc::clone(&installer.context);
    installer.add_short("new", move |lua, _, _: MultiValue| {
        let (table, context) = (lua.create_table()?, Arc::clone(&context));
        let module = Installer { lua, table, context };
        install(&module, &Arc::default())?;
        Ok(module.table)
    })?;
    installer.table.raw_set("null", NULL)?;
    installer.table.raw_set("_NAME", "cjson")?;
    installer.table.raw_set("_VERSION", "2.1.0")
}

/// Adds a function of the settings.
fn add<R: mlua::IntoLuaMulti + 'static>(
    installer: &Installer<'_>,
    settings: &SharedSettings,
    name: &str,
    function: fn(&Lua, &Context, &Mutex<Settings>, MultiValue) -> Result<R>,
) -> Result<()> {
    let settings = Arc::clone(settings);
    installer.add_short(name, move |lua, context, values: MultiValue| {
        function(lua, context, &settings, values)
    })
}

/// Adds a function that sets a limit and returns it.
fn limit(
    installer: &Installer<'_>,
    settings: &SharedSettings,
    name: &str,
    of: fn(&mut Settings) -> &mut usize,
) -> Result<()> {
    let settings = Arc::clone(settings);
    installer.add_short(name, move |lua, _, values: MultiValue| {
        let arguments = Arguments::new(lua, values);
        check_count(&arguments, lua, 1)?;
        let mut settings = settings.lock();
        let limit = of(&mut settings);
        let most = *of(&mut Settings::default());
        let most = if most == LEVELS_MAX { i32::MAX as usize } else { most };
        // More levels would take more of the stack than there is.
        *limit = whole(lua, &arguments, 1, (1, most), *limit)?.min(LEVELS_MAX);
        Ok(*limit as f64)
    })
}

fn check_count(arguments: &Arguments<'_>, lua: &Lua, max: usize) -> Result<()> {
    match arguments.len() <= max {
        true => Ok(()),
        false => Err(argument_error(lua, max + 1, "found too many arguments")),
    }
}

/// Returns the argument of a function that takes one value.
fn only<'a>(arguments: &'a Arguments<'_>, lua: &Lua) -> Result<&'a Value> {
    match arguments.get(1) {
        Some(value) if arguments.len() == 1 => Ok(value),
        _ => Err(argument_error(lua, 1, "expected 1 argument")),
    }
}

fn whole(
    lua: &Lua,
    arguments: &Arguments<'_>,
    place: usize,
    (least, most): (usize, usize),
    present: usize,
) -> Result<usize> {
    if matches!(arguments.get(place), None | Some(Value::Nil)) {
        return Ok(present);
    }
    let number = usize::try_from(arguments.integer_or(place, 0)?).ok();
    let most = most.min(i32::MAX as usize);
    number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        argument_error(lua, place, &format!("expected integer between {least} and {most}"))
    })
}

fn boolean(lua: &Lua, arguments: &Arguments<'_>, present: bool) -> Result<bool> {
    match arguments.get(1) {
        None | Some(Value::Nil) => Ok(present),
        Some(Value::Boolean(is_on)) => Ok(*is_on),
        Some(_) => match &*arguments.text(1)?.as_bytes() {
            b"on" => Ok(true),
            b"off" => Ok(false),
            other => Err(invalid_option(lua, other)),
        },
    }
}

fn invalid_option(lua: &Lua, option: &[u8]) -> mlua::Error {
    let option = String::from_utf8_lossy(option);
    argument_error(lua, 1, &format!("invalid option '{option}'"))
}

fn invalid_numbers(
    lua: &Lua,
    values: MultiValue,
    setting: &mut InvalidNumbers,
    may_be_null: bool,
) -> Result<Value> {
    let arguments = Arguments::new(lua, values);
    check_count(&arguments, lua, 1)?;
    let of = |is_on: bool| match is_on {
        true => InvalidNumbers::Accepted,
        false => InvalidNumbers::Refused,
    };
    *setting = match arguments.get(1) {
        Some(Value::String(text)) if may_be_null && *text.as_bytes() == *b"null" => {
            InvalidNumbers::Null
        }
        None | Some(Value::Nil) => *setting,
        Some(_) => of(boolean(lua, &arguments, false)?),
    };
    Ok(match setting {
        InvalidNumbers::Refused => Value::Boolean(false),
        InvalidNumbers::Accepted => Value::Boolean(true),
        InvalidNumbers::Null => Value::String(lua.create_string("null")?),
    })
}

/// Returns the length of a table as an array, as [`Settings`] have it; `None` for an object.
/// Fails for an array with too many gaps.
fn array_length(
    table: &Table,
    settings: &Settings,
    mut visit: impl FnMut() -> Result<()>,
) -> Result<std::result::Result<Option<usize>, ()>> {
    let (mut max, mut elements) = (0_i32, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        visit()?;
        let index = match pair?.0 {
            Value::Integer(index) => index as f64,
            Value::Number(index) => index,
            _ => return Ok(Ok(None)),
        };
        if index < 1.0 || index.fract() != 0.0 {
            return Ok(Ok(None));
        }
        if index > f64::from(max) {
            // As in lua-cjson, a larger one is none of an array.
            max = if index <= f64::from(i32::MAX) { index as i32 } else { i32::MIN };
        }
        elements += 1;
    }
    let is_sparse = settings.sparse_ratio > 0
        && f64::from(max) > elements as f64 * settings.sparse_ratio as f64
        && f64::from(max) > settings.sparse_safe as f64;
    Ok(match (is_sparse, settings.converts_sparse) {
        (true, true) => Ok(None),
        (true, false) => Err(()),
        (false, _) => Ok(usize::try_from(max).ok().filter(|length| *length > 0)),
    })
}
