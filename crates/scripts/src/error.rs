//! Errors of scripts: a short message for the caller, and a traceback for the log.

use crate::memory::StateMemory;
use mlua::Error;

/// Line with which Lua begins a traceback.
const TRACEBACK: &str = "\nstack traceback:\n";

/// Message of Lua's allocator.
pub(crate) const NO_MEMORY: &str = "not enough memory";

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;

/// A script, or one of its functions, has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The reason, with file and line.
    pub message: String,
    /// The message, and the functions that were being called.
    pub traceback: String,
}

impl Failure {
    /// Returns the failure of a call in a state with this memory.
    pub(crate) fn of_call(error: &Error, memory: &StateMemory) -> Self {
        let failure = Self::new(error);
        match memory.missing() {
            Some(exhausted) if failure.message == NO_MEMORY => {
                Self::of_message(exhausted.to_string())
            }
            _ => failure,
        }
    }

    pub(crate) fn new(error: &Error) -> Self {
        let message = message(error);
        let traceback = match traceback(error) {
            Some(traceback) => format!("{message}{TRACEBACK}{traceback}"),
            None => message.clone(),
        };
        Self { message, traceback }
    }

    pub(crate) fn of_message(message: String) -> Self {
        Self { traceback: message.clone(), message }
    }

    /// Adds to the message, as to that before the traceback.
    pub(crate) fn with(self, begin: &str, end: &str) -> Self {
        let Self { message, traceback } = self;
        let functions = traceback.strip_prefix(&*message).unwrap_or_default();
        let message = format!("{begin}{message}{end}");
        Self { traceback: format!("{message}{functions}"), message }
    }
}

/// Returns what failed, without a traceback.
pub(crate) fn message(error: &Error) -> String {
    let mut message = match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => message(cause),
        Error::BadArgument { pos, cause, .. } => {
            format!("bad argument #{pos} ({})", message_of_conversion(cause))
        }
        Error::RuntimeError(message) | Error::SyntaxError { message, .. } => {
            message.split(TRACEBACK).next().unwrap_or_default().to_string()
        }
        Error::MemoryError(message) if message.starts_with(NO_MEMORY) => message.clone(),
        Error::MemoryError(_) => NO_MEMORY.to_string(),
        error => message_of_conversion(error),
    };
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
    }
    message
}

/// Returns whether memory was missing.
pub(crate) fn is_of_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => {
            is_of_memory(cause)
        }
        _ => false,
    }
}

fn message_of_conversion(error: &Error) -> String {
    match error {
        Error::FromLuaConversionError { from, to, .. } => format!("{to} expected, got {from}"),
        error => error.to_string(),
    }
}

fn traceback(error: &Error) -> Option<String> {
    let of = |text: &str| Some(text.split_once("stack traceback:\n")?.1.to_string());
    match error {
        Error::CallbackError { traceback: text, cause } => of(text).or_else(|| traceback(cause)),
        Error::WithContext { cause, .. } => traceback(cause),
        Error::RuntimeError(message) => of(message),
        _ => None,
    }
}
