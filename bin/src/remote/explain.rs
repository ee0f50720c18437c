//! Errors of a command on a server, as a person reads them: which server, what failed, what to do.

use super::Server;
use crate::bytes;
use client::{Client, Error};
use std::io::ErrorKind;
use wire::binary::{Function, NOT_LOGGED};
use wire::replication::ADMISSION;

/// Codes of Tokyo Tyrant that `misc error` begins with.
const SUCCESS: &str = "0";
const INVALID: &str = "2";
/// Beginnings of the texts of codes, before a reason.
const FAILURE_NAMES: [&str; 3] = ["invalid operation: ", "write error: ", "miscellaneous error: "];
pub(crate) const NO_PERMISSION: &str = "4";
/// Codes of commands that the server refuses, of which some have the reply for a missing record.
const REFUSALS: [&str; 3] = [NO_PERMISSION, "14", "9999"];
/// Part of the reason of a refusal while too few replicas acknowledge changes.
const LACKS_REPLICAS: &str = " changes: retry once ";
/// The beginning of the text of that code, before a reason.
const PERMISSION_NAME: &str = "no permission: ";
/// The beginning of the reason of a refusal for lack of a right.
const LACKS_RIGHT: &str = "the user lacks the right ";
/// The beginning of the reason of a refusal by the mask.
const MASKS: &str = "the server masks ";
/// State of a change that the server has made without its replicas, and what to do.
const UNCONFIRMED: &str = "not confirmed by replicas in time: \"tyrant replicas\" lists them, and the \
    server refuses further changes until they have caught up";
/// The beginning of the matter of a server that refuses changes, in its `attention`.
const REFUSES_CHANGES: &str = "! changes are refused: ";
const DAMAGED: [&str; 2] = ["6", "13"];
/// Commands that change nothing, so that no replica has to confirm them.
const READS: [&str; 14] = [
    "check", "count", "exists", "find", "get", "get-row", "list", "ping", "range", "size", "slow",
    "stat", "tail", "ttl",
];

impl Server {
    /// Adds to an error of `command` what the protocol cannot express: the server, the kind of its
    /// database, its own reason, and what to do.
    pub(crate) fn explain(&self, command: &str, error: anyhow::Error) -> anyhow::Error {
        let Some(cause) = error.downcast_ref::<Error>() else { return error };
        match cause {
            Error::Miscellaneous => self.failure(self.refusal(command)),
            Error::Send(cause) | Error::Receive(cause) => match cause.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    self.failure(self.disconnection(command))
                }
                _ => self.failure(format_args!("{command} failed: {cause}")),
            },
            Error::InvalidOperation => self.failure(format_args!(
                "{command} was not sent: a key, a value or another argument is over 256 MiB"
            )),
            cause => self.failure(format_args!("{command} failed: {cause}")),
        }
    }

    /// Returns why the server has ended the stream of its updates from a time stamp on before the
    /// first message: replication has no reply for the reason.
    pub(crate) fn without_updates(&self, command: &str, from_us: u64) -> anyhow::Error {
        let from = from_us.to_string();
        let arguments = [ADMISSION, from.as_bytes()];
        let admitted = self.misc(Function::Replication.name(), NOT_LOGGED, &arguments);
        match admitted.map_err(anyhow::Error::from).and_then(|_| self.confirm(command)) {
            Ok(()) => {
                self.failure("the server has ended the stream of updates; its log may tell why")
            }
            Err(error) => self.explain(command, error),
        }
    }

    /// Returns why the server refused a command.
    pub(crate) fn refusal(&self, command: &str) -> String {
        match self.last_failure() {
            Some((code, reason)) if code == NO_PERMISSION => {
                let advice = match reason.starts_with(LACKS_RIGHT) {
                    true => {
                        ": log in as a user who has it, or give it with \"tyrant user rights\" where \
                         the server runs"
                    }
                    false => "",
                };
                format!("the server refuses {command}: {reason}{advice}")
            }
            Some((code, reason)) if code == INVALID && !reason.contains(": ") => format!(
                "{command} failed: {reason}; this kind of database may not have it, or an argument \
                 is missing or invalid"
            ),
            Some((code, reason)) if code != SUCCESS => {
                // Tokyo Tyrant's name of the failure says less than the reason after it.
                let name = FAILURE_NAMES.into_iter().find(|name| reason.starts_with(name));
                let reason = &reason[name.map_or(0, str::len)..];
                if reason.contains(LACKS_REPLICAS) {
                    return format!(
                        "the server refuses {command}, and has changed nothing: {reason}; \"tyrant \
                         replicas\" lists them"
                    );
                }
                format!("{command} failed: {reason}")
            }
            // The server may call it, and the function fail.
            _ if self.masks_misc() && command == "ext" => {
                "ext failed, or the server refuses it: as it masks misc, it tells no reason; its log \
                 has that of a function that failed"
                    .to_owned()
            }
            _ if self.masks_misc() => {
                format!("the server refuses {command}: it masks misc, so it tells no reason")
            }
            _ if let Some(text) = self.unacknowledged(command) => text,
            _ => format!(
                "the server refuses {command} without a reason, though it may be done: look at the \
                 record, and at the server's log"
            ),
        }
    }

    /// Returns whether the server has waited in vain for replicas after a command that changes
    /// something, and refuses changes since then.
    fn awaits_replicas_after(&self, command: &str) -> bool {
        if READS.contains(&command) {
            return false;
        }
        // It closes the connection of the change that it has waited for.
        let state = self.reconnect().map(|()| self.stat_value("semi_sync_state"));
        matches!(state, Ok(Ok(Some(state))) if state == "refusing")
    }

    /// Returns the error of a change that the server has made, or may have made, and has not
    /// acknowledged, if its state tells why.
    fn unacknowledged(&self, command: &str) -> Option<String> {
        if self.awaits_replicas_after(command) {
            return Some(format!("{command} is done on this server, but {UNCONFIRMED}"));
        }
        let reason = self.refuses_changes_after(command)?;
        Some(format!(
            "{command} is not acknowledged, though it may be done: the server refuses changes: \
             {reason}; then look at the record"
        ))
    }

    /// Returns why the server refuses changes since a command that changes something, if it does.
    fn refuses_changes_after(&self, command: &str) -> Option<String> {
        if READS.contains(&command) {
            return None;
        }
        // It closes the connection of a change that it could not log.
        self.reconnect().ok()?;
        let attention = self.stat_value("attention").ok()??;
        let (_, reason) = attention.split_once(REFUSES_CHANGES)?;
        // Further matters come after it.
        Some(reason.split("; ").next().unwrap_or(reason).to_owned())
    }

    /// Returns the error of a key without a record. For a client of the protocol a refused command
    /// looks like a missing record.
    pub(crate) fn missing(&self, command: &str, key: &[u8]) -> anyhow::Error {
        let missing = format_args!("no record has the key {}", bytes::quoted(key));
        self.refused(command).unwrap_or_else(|| self.failure(missing))
    }

    /// Fails if some of the keys of a command have no record.
    pub(crate) fn expect_all<K: AsRef<[u8]>>(
        &self,
        command: &str,
        keys: usize,
        absent: &[K],
    ) -> anyhow::Result<()> {
        let missing = match absent {
            [] => return Ok(()),
            [key] => return Err(self.missing(command, key.as_ref())),
            [first, ..] => format!(
                "{} of {keys} keys have no record, the first is {}",
                absent.len(),
                bytes::quoted(first.as_ref())
            ),
        };
        let refused = match READS.contains(&command) {
            // A reply without some records is not one of a failure, whatever has failed before.
            true => self.confirm_none(command).err(),
            false => self.refused(command),
        };
        Err(refused.unwrap_or_else(|| self.failure(missing)))
    }

    /// Returns the error of a command that found no record because the server refused it.
    pub(crate) fn refused(&self, command: &str) -> Option<anyhow::Error> {
        let Some(elements) = error_elements(self) else {
            // It has closed the connection of a change that no replica has confirmed.
            return self.awaits_replicas_after(command).then(|| {
                self.failure(format_args!(
                    "{command} may be done on this server, but is {UNCONFIRMED}"
                ))
            });
        };
        let (code, _) = failure_of(&elements)?;
        REFUSALS.contains(&&*code).then(|| self.failure(self.refusal(command)))
    }

    /// Returns why the server closed the connection. It does so for a record that it cannot read,
    /// because the protocol would report the record as missing.
    fn disconnection(&self, command: &str) -> String {
        if self.reconnect().is_err() {
            return format!("the server stopped during {command}");
        }
        match self.last_failure() {
            Some((code, reason)) if DAMAGED.contains(&code.as_str()) => format!(
                "{command} failed: a record cannot be read ({reason}); \"tyrant check --server {}\" \
                 finds the damage",
                self.address()
            ),
            _ if let Some(text) = self.unacknowledged(command) => text,
            _ => format!(
                "the server closed the connection during {command}: it was stopped and runs again, \
                 or its limits (--timeout, --reply-bytes-max, ...) forbid that; its log may tell"
            ),
        }
    }

    /// Fails if the server has refused a function of `misc`. To a masked one it replies as to one
    /// that has succeeded without results.
    pub(crate) fn confirm(&self, command: &str) -> anyhow::Result<()> {
        if self.masks_misc() {
            return Err(self.failure(format_args!("the server refuses {command}: it masks misc")));
        }
        self.confirm_none(command)
    }

    /// Fails if the server has refused a command without a result: to a list or a count that a user
    /// lacks the right for, or that it masks, it replies as if there were none. Only the connection
    /// of the refusal is told the reason, so that of another client is none of this one's.
    pub(crate) fn confirm_none(&self, command: &str) -> anyhow::Result<()> {
        let is_refusal =
            |reason: &str| reason.starts_with(LACKS_RIGHT) || reason.starts_with(MASKS);
        match self.last_failure() {
            Some((code, reason)) if code == NO_PERMISSION && is_refusal(&reason) => {
                Err(self.failure(self.refusal(command)))
            }
            _ => Ok(()),
        }
    }

    fn masks_misc(&self) -> bool {
        error_elements(self).is_some_and(|elements| elements.is_empty())
    }

    /// Returns whether the last command on the connection failed at a damaged record.
    pub(crate) fn has_met_damage(&self) -> bool {
        self.last_failure().is_some_and(|(code, _)| DAMAGED.contains(&code.as_str()))
    }

    fn last_failure(&self) -> Option<(String, String)> {
        last_failure(self)
    }
}

/// Returns Tokyo Tyrant's code of the last failure on a connection, and its text.
pub(crate) fn last_failure(client: &Client) -> Option<(String, String)> {
    failure_of(&error_elements(client)?)
}

fn failure_of(elements: &[Vec<u8>]) -> Option<(String, String)> {
    let text = bytes::one_line(elements.first()?);
    let (code, reason) = text.split_once(": ")?;
    // A mask or the state of a replica refuses as well, which is no matter of permission.
    let reason = reason.strip_prefix(PERMISSION_NAME).unwrap_or(reason);
    Some((code.to_owned(), reason.to_owned()))
}

fn error_elements(client: &Client) -> Option<Vec<Vec<u8>>> {
    let nothing: [&[u8]; 0] = [];
    client.misc(b"error", NOT_LOGGED, &nothing).ok()
}
