//! Files, if they are allowed: `_stat`, `_glob`, `_remove`, `_mkdir`, and Lua's `dofile`,
//! `loadfile` and the search of `require`.

use super::base::compile;
use super::{End, Installer, failed};
use crate::context::Context;
use crate::error;
use crate::limits::{CODE_BYTES_MAX, GLOB_PATHS_MAX};
use mlua::{Function, Lua, LuaString, MultiValue, Result, Table};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_stat", stat)?;
    installer.add("_glob", glob_paths)?;
    installer.add("_remove", |_, _, (path, _): (LuaString, End)| {
        let path = path.as_bytes();
        let path = path_of(&path);
        let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        Ok(removed.is_ok())
    })?;
    installer.add("_mkdir", |_, _, (path, _): (LuaString, End)| {
        Ok(fs::create_dir(path_of(&path.as_bytes())).is_ok())
    })?;
    installer.add("loadfile", |lua, _, path: LuaString| match load(lua, &path.as_bytes()) {
        Ok(function) => Ok((Some(function), None)),
        Err(error) => Ok((None, Some(error::message(&error)))),
    })?;
    installer.add("dofile", |lua, context, path: LuaString| {
        context.call_back::<MultiValue>(&load(lua, &path.as_bytes())?, ())
    })?;
    let package: Table = installer.table.raw_get("package")?;
    let loaders: Table = package.raw_get("loaders")?;
    let search = installer.lua.create_function(find_module)?;
    loaders.raw_set(2, search)
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Compiles a file.
fn load(lua: &Lua, path: &[u8]) -> Result<Function> {
    let shown = String::from_utf8_lossy(path).into_owned();
    let mut code = Vec::new();
    File::open(path_of(path))
        .and_then(|file| file.take(CODE_BYTES_MAX as u64 + 1).read_to_end(&mut code))
        .map_err(|error| failed(format!("cannot open {shown}: {error}")))?;
    compile(lua, without_first_line(&code), &format!("@{shown}"))
}

/// Returns code without the text of a first line that begins with `#`, which a shell reads.
pub(crate) fn without_first_line(code: &[u8]) -> &[u8] {
    match code {
        [b'#', ..] => &code[code.iter().position(|byte| *byte == b'\n').unwrap_or(code.len())..],
        code => code,
    }
}

/// Finds a module in the paths of `package.path`. Lua's own search would load compiled code.
fn find_module(lua: &Lua, name: LuaString) -> Result<mlua::Either<Function, String>> {
    let package: Table = lua.globals().get("package")?;
    let templates: String = package.get("path")?;
    let name = name.to_string_lossy().replace('.', "/");
    let mut tried = String::new();
    for template in templates.split(';').filter(|template| !template.is_empty()) {
        let path = template.replace('?', &name);
        if Path::new(&path).is_file() {
            return load(lua, path.as_bytes()).map(mlua::Either::Left);
        }
        tried.push_str(&format!("\n\tno file '{path}'"));
    }
    Ok(mlua::Either::Right(tried))
}

fn stat(lua: &Lua, _: &Context, (path, _): (LuaString, End)) -> Result<Option<Table>> {
    let path = path.as_bytes();
    let path = path_of(&path);
    let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
    let table = lua.create_table()?;
    let numbers = [
        ("dev", metadata.dev() as f64),
        ("ino", metadata.ino() as f64),
        ("mode", f64::from(metadata.mode())),
        ("nlink", metadata.nlink() as f64),
        ("uid", f64::from(metadata.uid())),
        ("gid", f64::from(metadata.gid())),
        ("rdev", metadata.rdev() as f64),
        ("size", metadata.size() as f64),
        ("blksize", metadata.blksize() as f64),
        ("blocks", metadata.blocks() as f64),
        ("atime", metadata.atime() as f64),
        ("mtime", metadata.mtime() as f64),
        ("ctime", metadata.ctime() as f64),
    ];
    for (name, number) in numbers {
        table.raw_set(name, number)?;
    }
    table.raw_set("_regular", metadata.is_file())?;
    table.raw_set("_directory", metadata.is_dir())?;
    let may = |access| rustix::fs::access(path, access).is_ok();
    table.raw_set("_readable", may(rustix::fs::Access::READ_OK))?;
    table.raw_set("_writable", may(rustix::fs::Access::WRITE_OK))?;
    table.raw_set("_executable", may(rustix::fs::Access::EXEC_OK))?;
    if let Ok(whole) = fs::canonicalize(path) {
        table.raw_set("_realpath", lua.create_string(whole.into_os_string().into_vec())?)?;
    }
    Ok(Some(table))
}

fn glob_paths(lua: &Lua, context: &Context, pattern: LuaString) -> Result<Table> {
    let table = lua.create_table()?;
    let pattern = pattern.to_string_lossy();
    if let Ok(paths) = glob::glob(&pattern) {
        for path in paths.flatten().take(GLOB_PATHS_MAX) {
            context.check()?;
            table.raw_push(lua.create_string(path.into_os_string().into_vec())?)?;
        }
    }
    Ok(table)
}
