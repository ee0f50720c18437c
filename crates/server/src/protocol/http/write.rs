//! PUT and DELETE, of any version of a record or of one.

use super::{Halt, answer, freshness, status_of};
use crate::budget::Charge;
use crate::counters::Count;
use crate::ops::command_mask::Command;
use crate::ops::failure::Failure;
use crate::ops::long::LONG_BYTES_MIN;
use crate::ops::media_types;
use crate::protocol::{Context, or_absent};
use cabinet::{Change, Entry, Error, Meta, Version};
use std::borrow::Cow;
use wire::http::{Conditions, Head, Status, reply};
use wire::memcached::Dialect;

/// How a write ended.
enum Written {
    /// Done. The record has this version, where that is known.
    Done(Option<Version>),
    /// The record is not as it was to be.
    Unmet,
    /// There is a record already.
    Exists,
    /// There is none.
    Missing,
}

/// The command of a PUT.
pub(super) fn put_command(head: &Head<'_>) -> Command {
    match head.header_number("X-TT-PDMODE") {
        Some(1) => Command::PutKeep,
        Some(2) => Command::PutCat,
        _ => Command::Put,
    }
}

/// Returns the key of a PUT, or the status that refuses it whatever the value and the record are.
pub(super) fn put_key<'a>(context: &Context<'_>, head: &Head<'a>) -> Result<Cow<'a, [u8]>, Status> {
    let key = super::key(context, head)?;
    // A part is not put in the place of the whole. Tokyo Tyrant does not know of parts.
    let is_part = head.header("Content-Range").is_some();
    let knows_parts = context.shared.config.dialect != Dialect::TokyoTyrant;
    if is_part && knows_parts { Err(Status::BadRequest) } else { Ok(key) }
}

/// Stores a value.
pub(super) fn put(
    context: &mut Context<'_>,
    head: &Head<'_>,
    value: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let key = match put_key(context, head) {
        Ok(key) => key,
        Err(status) => {
            reply::message(output, status);
            return Ok(());
        }
    };
    let command = put_command(head);
    let conditions = Conditions::of(head);
    let meta = match meta(context, head)? {
        Ok(meta) => meta,
        Err(Refusal::Time(what)) => {
            reply::plain_text(output, Status::BadRequest, what);
            return Ok(());
        }
        Err(Refusal::Database(error)) => {
            answer(context, status_of(&error), output);
            return Ok(());
        }
    };
    let is_plain = command == Command::Put && conditions.is_empty();
    // The database makes a copy for all but a plain put.
    let mut charge = Charge::none(&context.shared.served.budget);
    if !is_plain && value.len() >= LONG_BYTES_MIN && !charge.set(value.len()) {
        reply::message(output, Status::ServiceUnavailable);
        return Ok(());
    }
    let database = context.database;
    let tags = context.shared.entity_tags;
    let mut is_there = false;
    let (count, written) = match command {
        Command::PutKeep if conditions.is_empty() => (Count::PutKeep, {
            let kept = database.put_keep(&key, value, meta);
            kept.map(|stored| if stored { Written::Done(None) } else { Written::Exists })
        }),
        // If there is no record yet, it gets a type and a time.
        Command::PutCat if conditions.is_empty() && meta == Meta::NONE => {
            (Count::PutCat, database.put_cat(&key, value).map(|()| Written::Done(None)))
        }
        Command::Put if conditions.is_empty() => {
            let version = database.put_with(&key, value, meta);
            (Count::Put, version.map(|version| Written::Done(Some(version))))
        }
        _ => (count_of(command), {
            let changed = database.modify_versioned(&key, |entry| {
                is_there = entry.is_some();
                let tag = entry.map(|entry| tags.of(entry.version));
                if conditions.check(tag.as_deref()).is_err() {
                    return (Change::Keep, Written::Unmet);
                }
                if command == Command::PutKeep && entry.is_some() {
                    return (Change::Keep, Written::Exists);
                }
                (replacement(command, entry, value, meta), Written::Done(None))
            });
            changed.map(|(written, version)| match written {
                Written::Done(_) => Written::Done(Some(version)),
                written => written,
            })
        }),
    };
    let written = context.attempt_write("do_http_put", written)?;
    context.counters.count(count);
    if !matches!(written, Ok(Written::Done(_))) {
        context.counters.count(Count::PutMiss);
    }
    if conditions.matching.as_deref().is_some_and(|list| list != b"*") {
        match written {
            Ok(Written::Done(_)) => context.counters.count(Count::CasHit),
            Ok(Written::Unmet) if is_there => context.counters.count(Count::CasBadValue),
            Ok(Written::Unmet) => context.counters.count(Count::CasMiss),
            _ => {}
        }
    }
    if let Ok(Written::Done(Some(version))) = written
        && !conditions.is_empty()
    {
        let (_, reason) = Status::Created.code_and_reason();
        reply::open_headers(output, Status::Created, reply::TEXT, reason.len() as u64 + 1);
        reply::header(output, "ETag", &tags.of(version));
        reply::end_of_headers(output);
        output.extend_from_slice(reason.as_bytes());
        output.push(b'\n');
        return Ok(());
    }
    if let Err(Error::BadColumn(what)) = &written {
        reply::plain_text(output, Status::BadRequest, what);
        return Ok(());
    }
    let status = status(context, "do_http_put", Status::Created, written);
    answer(context, status, output);
    Ok(())
}

fn count_of(command: Command) -> Count {
    match command {
        Command::PutKeep => Count::PutKeep,
        Command::PutCat => Count::PutCat,
        _ => Count::Put,
    }
}

/// What becomes of a record that is as it was to be.
fn replacement(command: Command, entry: Option<Entry<'_>>, value: &[u8], meta: Meta) -> Change {
    match entry {
        Some(entry) if command == Command::PutCat => {
            Change::Put([entry.value, value].concat(), entry.meta)
        }
        _ => Change::Put(value.to_vec(), meta),
    }
}

/// Removes a record.
pub(super) fn remove(
    context: &mut Context<'_>,
    head: &Head<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let key = match super::key(context, head) {
        Ok(key) => key,
        Err(status) => {
            reply::message(output, status);
            return Ok(());
        }
    };
    let conditions = Conditions::of(head);
    let tags = context.shared.entity_tags;
    let done = |removed: bool| if removed { Written::Done(None) } else { Written::Missing };
    let removed = if conditions.is_empty() {
        context.database.remove(&key).map(done)
    } else {
        context.database.modify(&key, |entry| {
            let tag = entry.map(|entry| tags.of(entry.version));
            if conditions.check(tag.as_deref()).is_err() {
                return (Change::Keep, Written::Unmet);
            }
            (Change::Remove, done(entry.is_some()))
        })
    };
    let removed = context.attempt_write("do_http_delete", removed)?;
    let removed = or_absent(removed, Written::Missing);
    context.counters.count(Count::Out);
    if matches!(removed, Ok(Written::Missing)) {
        context.counters.count(Count::OutMiss);
    }
    let status = status(context, "do_http_delete", Status::Ok, removed);
    answer(context, status, output);
    Ok(())
}

fn status(
    context: &mut Context<'_>,
    operation: &'static str,
    done: Status,
    written: Result<Written, Error>,
) -> Status {
    match written {
        Ok(Written::Done(_)) => done,
        Ok(Written::Unmet) => Status::PreconditionFailed,
        Ok(Written::Exists) => {
            context.fail(operation, Failure::ExistingRecord);
            Status::Conflict
        }
        Ok(Written::Missing) => {
            context.fail(operation, Failure::NoRecord);
            Status::NotFound
        }
        Err(error) => status_of(&error),
    }
}

/// Why a value is not stored, before the record was looked at.
enum Refusal {
    Time(&'static str),
    Database(Error),
}

/// What a request says of its value.
fn meta(context: &mut Context<'_>, head: &Head<'_>) -> Result<Result<Meta, Refusal>, Halt> {
    let expires_at_ms = match freshness::asked_for(head) {
        Ok(expires_at_ms) => expires_at_ms,
        Err(what) => return Ok(Err(Refusal::Time(what))),
    };
    let media_type = head.header("Content-Type").unwrap_or_default();
    let flags = media_types::flags(context.database, media_type);
    let flags = context.attempt_write("do_http_put", flags)?;
    Ok(flags.map(|flags| Meta { flags, expires_at_ms }).map_err(Refusal::Database))
}
