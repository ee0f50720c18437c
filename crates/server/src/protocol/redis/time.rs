//! Times of commands: in seconds or milliseconds, from now on or since 1970.

use super::Failed;
use crate::ops::expiry::now_ms;
use crate::protocol::Context;
use wire::redis::Command;

/// Form of a time.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct TimeUnit {
    /// Its unit, in milliseconds.
    pub(super) ms: i64,
    /// Whether it counts from now, not from 1970.
    pub(super) is_relative: bool,
}

impl TimeUnit {
    /// Returns the form of the time after an option, which is in capitals.
    pub(super) fn of_option(option: &[u8]) -> Option<Self> {
        let (ms, is_relative) = match option {
            b"EX" => (1000, true),
            b"PX" => (1, true),
            b"EXAT" => (1000, false),
            b"PXAT" => (1, false),
            _ => return None,
        };
        Some(Self { ms, is_relative })
    }

    /// Returns the form of the time that a command takes or returns.
    pub(super) fn of_command(command: Command) -> Self {
        use Command as C;
        let is_in_ms =
            matches!(command, C::PSetEx | C::PExpire | C::PExpireAt | C::PTtl | C::PExpireTime);
        let is_absolute =
            matches!(command, C::ExpireAt | C::PExpireAt | C::ExpireTime | C::PExpireTime);
        Self { ms: if is_in_ms { 1 } else { 1000 }, is_relative: !is_absolute }
    }

    /// Returns the time that a number is in this form, in milliseconds since 1970.
    pub(super) fn time(self, number: i64, command: Command) -> Result<i64, Failed> {
        let begin_ms = if self.is_relative { now_ms() as i64 } else { 0 };
        let time = number.checked_mul(self.ms).and_then(|time| time.checked_add(begin_ms));
        time.ok_or_else(|| bad_time(command))
    }
}

/// Fails if the records of the database cannot expire.
pub(super) fn check_expiry(context: &Context<'_>) -> Result<(), Failed> {
    match context.shared.served.model.has_rows {
        true => Err("ERR the rows of a table do not expire: keep the time in a column".into()),
        false => Ok(()),
    }
}

/// Returns the error for a time that a command does not take.
pub(super) fn bad_time(command: Command) -> Failed {
    Failed::Text(format!("ERR invalid expire time in '{}' command", command.name()))
}
