//! PUT and DELETE, with or without a condition on the version of a record.

use super::{FLAGS, Halt, answer, explained, freshness};
use crate::counters::Count;
use crate::ops::command_mask::Command;
use crate::ops::conditional::{Action, Presence, Write, Written};
use crate::ops::execute::{NoReply, Outcome};
use crate::ops::operation::Operation;
use crate::protocol::{Context, or_absent};
use cabinet::{Error, Meta};
use std::borrow::Cow;
use wire::http::{Conditions, Head, Status, is_identity, reply};
use wire::memcached::Dialect;

/// Returns the command of a PUT.
pub(super) fn put_command(head: &Head<'_>) -> Command {
    match head.header_number("X-TT-PDMODE") {
        Some(1) => Command::PutKeep,
        Some(2) => Command::PutCat,
        _ => Command::Put,
    }
}

/// Returns the key of a PUT, or the status that refuses it for any value and record.
pub(super) fn put_key<'a>(context: &Context<'_>, head: &Head<'a>) -> Result<Cow<'a, [u8]>, Status> {
    let key = super::key(context, head)?;
    // A part must not replace the whole value. Tokyo Tyrant ignores `Content-Range`.
    let is_part = head.header("Content-Range").is_some();
    if context.shared.config.dialect == Dialect::TokyoTyrant {
        return Ok(key);
    }
    // The coding would be lost, and the value come back as another one.
    let is_coded = head.list("Content-Encoding").is_some_and(|coding| !is_identity(&coding));
    match (is_part, is_coded) {
        (true, _) => Err(Status::BadRequest),
        (false, true) => Err(Status::UnsupportedMediaType),
        (false, false) => Ok(key),
    }
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
        Err(Refusal::Header(what)) => {
            reply::plain_text(output, Status::BadRequest, what);
            return Ok(());
        }
        Err(Refusal::Database(error)) => {
            explained(output, &error);
            return Ok(());
        }
    };
    let (count, action) = match command {
        Command::PutKeep => (Count::PutKeep, Action::put(Presence::Absent, value, meta)),
        Command::PutCat => {
            let create = Some(meta);
            let part = value;
            (Count::PutCat, Action::Extend { part, is_front: false, create, unmarks: false })
        }
        _ => (Count::Put, Action::put(Presence::Any, value, meta)),
    };
    let write = Write { precondition: (&conditions).into(), ..Write::new(&key, action) };
    let Some(_charge) = write.charge(&context.shared.served.budget) else {
        reply::message(output, Status::ServiceUnavailable);
        return Ok(());
    };
    let mut record = Written::default();
    let operation = Operation::Write(write);
    let written = match conditions.is_empty() {
        true => context.execute(&operation, &mut NoReply)?,
        false => context.execute(&operation, &mut record)?,
    };
    context.counters.count(count);
    if !matches!(written, Ok(Outcome::Done)) {
        context.counters.count(Count::PutMiss);
    }
    if conditions.matching.as_deref().is_some_and(|list| list != b"*") {
        match written {
            Ok(Outcome::Done) => context.counters.count(Count::CasHit),
            Ok(Outcome::Unmet) => context.counters.count(Count::CasBadValue),
            Ok(Outcome::UnmetByAbsence) => context.counters.count(Count::CasMiss),
            _ => {}
        }
    }
    if let Ok(Outcome::Done) = written
        && !conditions.is_empty()
    {
        let (_, reason) = Status::Created.code_and_reason();
        reply::open_headers(output, Status::Created, reply::TEXT, reason.len() as u64 + 1);
        reply::header(output, "ETag", &context.shared.entity_tags.of(record.version));
        reply::end_of_headers(output);
        output.extend_from_slice(reason.as_bytes());
        output.push(b'\n');
        return Ok(());
    }
    if let Err(Error::BadColumn(what)) = &written {
        reply::plain_text(output, Status::BadRequest, what);
        return Ok(());
    }
    answer_to(context, Status::Created, written, output);
    Ok(())
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
    let write = Write { precondition: (&conditions).into(), ..Write::new(&key, Action::Remove) };
    let removed = context.execute(&Operation::Write(write), &mut NoReply)?;
    let removed = or_absent(removed, Outcome::NoRecord);
    context.counters.count(Count::Out);
    if matches!(removed, Ok(Outcome::NoRecord)) {
        context.counters.count(Count::OutMiss);
    }
    answer_to(context, Status::Ok, removed, output);
    Ok(())
}

/// Appends the reply to a write: `done`, or why it was not done.
fn answer_to(
    context: &Context<'_>,
    done: Status,
    written: Result<Outcome, Error>,
    output: &mut Vec<u8>,
) {
    let status = match written {
        Ok(Outcome::Done | Outcome::NoPart) => done,
        Ok(Outcome::Unmet | Outcome::UnmetByAbsence) => Status::PreconditionFailed,
        Ok(Outcome::RecordExists | Outcome::NotNumeric) => Status::Conflict,
        Ok(Outcome::NoRecord) => Status::NotFound,
        Err(error) => return explained(output, &error),
    };
    answer(context, status, output);
}

/// Reason why a value is not stored, found before the lookup of the record.
enum Refusal {
    Header(&'static str),
    Database(Error),
}

/// Returns the headers of a request that describe its value.
fn meta(context: &mut Context<'_>, head: &Head<'_>) -> Result<Result<Meta, Refusal>, Halt> {
    let expires_at_ms = match freshness::asked_for(head) {
        Ok(expires_at_ms) => expires_at_ms,
        Err(what) => return Ok(Err(Refusal::Header(what))),
    };
    if let Some(flags) = head.header(FLAGS) {
        let flags = std::str::from_utf8(flags).ok().and_then(|text| text.parse().ok());
        let meta = flags.map(|flags| Meta { flags, expires_at_ms });
        return Ok(meta.ok_or(Refusal::Header("X-TT-FLAGS is not a number of 32 bits")));
    }
    let media_type = head.header("Content-Type").unwrap_or_default();
    let flags = super::flags(context, media_type)?;
    Ok(flags.map(|flags| Meta { flags, expires_at_ms }).map_err(Refusal::Database))
}
