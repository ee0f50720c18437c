//! Source of a script: a file, or code that is given on the command line.

use crate::error::Failure;
use crate::functions::{compile, without_first_line};
use crate::limits::CODE_BYTES_MAX;
use cabinet::files::open_file;
use mlua::{Lua, LuaOptions, StdLib};
use std::io::Read;
use std::path::PathBuf;

/// Source of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, which is read again at each reload.
    File(PathBuf),
    /// Code in Lua.
    Inline(String),
}

impl Source {
    /// Returns the source that an argument of the command line names: `@code`, or a path.
    pub fn from_argument(argument: &str) -> Self {
        match argument.strip_prefix('@') {
            Some(code) => Self::Inline(code.to_string()),
            None => Self::File(argument.into()),
        }
    }

    /// Checks the syntax of a script, without executing it.
    pub fn check(&self) -> Result<(), Failure> {
        self.read(0).map(drop)
    }

    /// Reads a script, and checks its syntax.
    pub(crate) fn read(&self, generation: u64) -> Result<Code, Failure> {
        let (name, code) = match self {
            Self::Inline(code) => ("=command line".to_string(), code.clone().into_bytes()),
            Self::File(path) => {
                let mut code = Vec::new();
                open_file(path)
                    .and_then(|file| file.take(CODE_BYTES_MAX as u64 + 1).read_to_end(&mut code))
                    .map_err(|error| {
                        let path = path.display();
                        Failure::of_message(format!("cannot read the script {path}: {error}"))
                    })?;
                (format!("@{}", path.display()), code)
            }
        };
        let code = Code { name, code, generation };
        let failed = |error| Failure::new(&error);
        let lua = Lua::new_with(StdLib::NONE, LuaOptions::new()).map_err(failed)?;
        compile(&lua, code.text(), &code.name).map_err(failed)?;
        Ok(code)
    }
}

/// A script that was read.
#[derive(Debug)]
pub(crate) struct Code {
    /// Name in messages, as Lua wants it: `@` and a path, or `=` and a text.
    pub(crate) name: String,
    code: Vec<u8>,
    /// Number of reloads before this one.
    pub(crate) generation: u64,
}

impl Code {
    /// Returns what Lua compiles.
    pub(crate) fn text(&self) -> &[u8] {
        without_first_line(&self.code)
    }
}
