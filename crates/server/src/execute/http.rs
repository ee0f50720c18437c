//! HTTP/1.x: the target is a key, the body a value.

use super::{Context, Halt, Next, Step, finish, incomplete, misc, or_absent, within_limit};
use crate::counters::Count;
use crate::failure::Failure;
use crate::mask::{Command, Protocol};
use crate::status;
use cabinet::{Error, Meta};
use wire::http::reply::{self, OCTET_STREAM};
use wire::http::{Method, Progress, Request, Status, form, head, parse_resuming};
use wire::{Invalid, Parse};

/// Methods that are answered, and the command that a mask has to name to refuse them.
const METHODS: [(&str, Command); 6] = [
    ("OPTIONS", Command::Stat),
    ("GET", Command::Get),
    ("HEAD", Command::ValueSize),
    ("PUT", Command::Put),
    ("POST", Command::Ext),
    ("DELETE", Command::Out),
];

/// Executes the request at the beginning of `input`.
pub(super) fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    let parsed = parse_resuming(input, &mut context.session.http.progress);
    match within_limit(context, parsed) {
        Parse::Complete(request, bytes) => {
            context.session.http = Reading::default();
            let start = output.len();
            let next = if request.keep_alive { Next::GoOn } else { Next::Close };
            let result = execute(context, &request, output).map(|()| next);
            finish(output, start, bytes, result, |output| {
                reply::message(output, Status::InternalServerError);
            })
        }
        Parse::Incomplete(needed) => {
            let refuse = || reply::message(output, Status::PayloadTooLarge);
            let step = incomplete(context, input, needed, refuse);
            if matches!(step, Step::Incomplete { .. }) {
                invite(context, input, output);
            }
            step
        }
        Parse::Invalid(invalid) => {
            context.counters.count(Count::Refused);
            let is_head = matches!(head(input), Parse::Invalid(_));
            let status = match invalid {
                Invalid::UnknownCommand => Status::NotImplemented,
                Invalid::BadParameters => Status::BadRequest,
                Invalid::TooLarge if is_head => Status::RequestHeaderFieldsTooLarge,
                Invalid::TooLarge => Status::PayloadTooLarge,
            };
            reply::message(output, status);
            Step::Executed { bytes: input.len(), next: Next::Refuse }
        }
    }
}

/// How far a request has been read that is not all there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    progress: Progress,
    /// Its client has been told to send the body.
    invited: bool,
}

/// Tells a client to send its body, if it waits for that.
fn invite(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) {
    if !context.session.http.invited
        && let Parse::Complete(head, _) = head(input)
        && head.expects_continue
    {
        output.extend_from_slice(reply::CONTINUE);
        context.session.http.invited = true;
    }
}

fn execute(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let command = match request.method {
        Method::Get => Command::Get,
        Method::Head => Command::ValueSize,
        Method::Put => match request.header_number("X-TT-PDMODE") {
            Some(1) => Command::PutKeep,
            Some(2) => Command::PutCat,
            _ => Command::Put,
        },
        Method::Delete => Command::Out,
        Method::Options => Command::Stat,
        Method::Post if is_misc(request) => Command::Misc,
        Method::Post => Command::Ext,
        Method::Other => {
            method_not_allowed(context, output);
            return Ok(());
        }
    };
    if context.refuses(command, Protocol::Http) {
        if request.method == Method::Head {
            reply::bare(output, Status::Forbidden);
        } else {
            reply::message(output, Status::Forbidden);
        }
        return Ok(());
    }
    match request.method {
        Method::Get => get(context, &request.key(), output),
        Method::Head => size(context, &request.key(), output),
        Method::Put => put(context, command, &request.key(), &request.body(), output),
        Method::Delete => remove(context, &request.key(), output),
        Method::Post => post(context, request, output),
        Method::Options | Method::Other => {
            options(context, output);
            Ok(())
        }
    }
}

fn get(context: &mut Context<'_>, key: &[u8], output: &mut Vec<u8>) -> Result<(), Halt> {
    let start = output.len();
    let found = context.database.read(key, |entry| {
        reply::response(output, Status::Ok, OCTET_STREAM, entry.value);
    });
    let found = or_absent(context.attempt("do_http_get", found)?, None);
    context.counters.count(Count::Get);
    context.check_length(output.len() - start)?;
    match found {
        Ok(Some(())) => {}
        Ok(None) => {
            context.miss("do_http_get", Count::GetMiss);
            reply::message(output, Status::NotFound);
        }
        Err(error) => reply::message(output, status_of(&error)),
    }
    Ok(())
}

fn size(context: &mut Context<'_>, key: &[u8], output: &mut Vec<u8>) -> Result<(), Halt> {
    let size = context.attempt("do_http_head", context.database.value_size(key))?;
    let size = or_absent(size, None);
    context.counters.count(Count::ValueSize);
    match size {
        Ok(Some(bytes)) => reply::headers(output, Status::Ok, OCTET_STREAM, bytes as u64),
        Ok(None) => {
            context.fail("do_http_head", Failure::NoRecord);
            reply::bare(output, Status::NotFound);
        }
        Err(error) => reply::bare(output, status_of(&error)),
    }
    Ok(())
}

fn put(
    context: &mut Context<'_>,
    command: Command,
    key: &[u8],
    value: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let database = context.database;
    let (count, stored) = match command {
        Command::PutKeep => (Count::PutKeep, database.put_keep(key, value, Meta::NONE)),
        Command::PutCat => (Count::PutCat, database.put_cat(key, value).map(|()| true)),
        _ => (Count::Put, database.put(key, value).map(|_| true)),
    };
    let stored = context.attempt_write("do_http_put", stored)?;
    context.counters.count(count);
    let status = match stored {
        Ok(true) => Status::Created,
        Ok(false) => {
            context.fail("do_http_put", Failure::ExistingRecord);
            Status::Conflict
        }
        Err(error) => status_of(&error),
    };
    if status != Status::Created {
        context.counters.count(Count::PutMiss);
    }
    answer(context, status, output);
    Ok(())
}

fn remove(context: &mut Context<'_>, key: &[u8], output: &mut Vec<u8>) -> Result<(), Halt> {
    let removed = context.attempt_write("do_http_delete", context.database.remove(key))?;
    let removed = or_absent(removed, false);
    context.counters.count(Count::Out);
    let status = match removed {
        Ok(true) => Status::Ok,
        Ok(false) => {
            context.miss("do_http_delete", Count::OutMiss);
            Status::NotFound
        }
        Err(error) => status_of(&error),
    };
    answer(context, status, output);
    Ok(())
}

/// What became of a write; where only reading is allowed, with the reason.
fn answer(context: &Context<'_>, status: Status, output: &mut Vec<u8>) {
    match context.shared.gate.reason().filter(|_| status == Status::Forbidden) {
        Some(reason) => reply::explained(output, status, &reason),
        None => reply::message(output, status),
    }
}

/// Whether a function of `misc` is called. The name of a script's function goes first.
fn is_misc(request: &Request<'_>) -> bool {
    request.header("X-TT-XNAME").is_none() && request.header("X-TT-MNAME").is_some()
}

fn post(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    if request.header("X-TT-XNAME").is_some() {
        context.counters.count(Count::Ext);
        context.fail("do_http_post", Failure::Invalid);
        reply::message(output, Status::InternalServerError);
        return Ok(());
    }
    let Some(name) = request.header("X-TT-MNAME") else {
        reply::message(output, Status::BadRequest);
        return Ok(());
    };
    let Ok(arguments) = form::arguments(&request.body()) else {
        reply::message(output, Status::BadRequest);
        return Ok(());
    };
    let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    let mut results: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    let mut take = |element: &[u8]| {
        results.push(element.to_vec());
        bytes += element.len();
        bytes
    };
    if misc::call(context, name, &arguments, &mut take)? {
        let mut body = Vec::new();
        form::results(&mut body, results.iter().map(Vec::as_slice));
        context.check_length(body.len())?;
        reply::response(output, Status::Ok, form::CONTENT_TYPE, &body);
    } else {
        let status = match context.session.last_failure {
            Some(Failure::NoPermission) => Status::Forbidden,
            _ => Status::InternalServerError,
        };
        answer(context, status, output);
    }
    Ok(())
}

fn options(context: &Context<'_>, output: &mut Vec<u8>) {
    context.counters.count(Count::Stat);
    reply::status_line(output, Status::Ok);
    reply::header(output, "Content-Length", "0");
    reply::header(output, "Allow", &allowed(context));
    for (name, value) in status::facts(context.shared, context.descriptor) {
        reply::header(output, &status::header_name(name), &value);
    }
    reply::end_of_headers(output);
}

/// The original closed without a word.
fn method_not_allowed(context: &Context<'_>, output: &mut Vec<u8>) {
    context.counters.count(Count::Refused);
    reply::status_line(output, Status::MethodNotAllowed);
    reply::header(output, "Allow", &allowed(context));
    reply::header(output, "Content-Length", "0");
    reply::end_of_headers(output);
}

/// The methods that are not masked.
fn allowed(context: &Context<'_>) -> String {
    METHODS
        .into_iter()
        .filter(|(_, command)| !context.refuses(*command, Protocol::Http))
        .map(|(name, _)| name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::NoSpace { .. } => Status::InsufficientStorage,
        Error::ReadOnly(_) => Status::Forbidden,
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => Status::PayloadTooLarge,
        _ => Status::InternalServerError,
    }
}
