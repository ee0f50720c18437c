//! HTTP/1.x: the target is a key, the body a value. If WebDAV is served too, the target is a path.

mod batch;
mod freshness;
mod handover;
mod json;
mod list;
mod protocol;
mod read;
mod upload;
mod write;

pub use handover::belongs_to_webdav;

pub(super) use protocol::Http;

use super::protocols::Protocol as _;
use super::tokyo_tyrant::functions::Call;
use super::{Context, Halt, Next, Step, finish, incomplete, within_limit};
use crate::admin::server_stats;
use crate::counters::Count;
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::execute::{Collected, Number};
use crate::ops::failure::{Failure, client_reason};
use crate::ops::media_types;
use crate::ops::operation::Operation;
use crate::protocol::script_call::{Form, ScriptCall, ScriptLock};
use crate::store::reserved::is_reserved;
use crate::store::strings;
use cabinet::Error;
use read::Download;
use std::borrow::Cow;
use upload::Upload;
use wire::binary::Function;
use wire::http::path::path_key;
use wire::http::reply;
use wire::http::{Head, Method, Progress, Request, Status, form, head, parse_resuming};
use wire::limits::FUNCTION_NAME_BYTES_LIMIT;
use wire::{Invalid, Parse};

/// Supported methods, and the command by which a mask refuses them.
const METHODS: [(&str, Command); 6] = [
    ("OPTIONS", Command::Stat),
    ("GET", Command::Get),
    ("HEAD", Command::ValueSize),
    ("PUT", Command::Put),
    ("POST", Command::Ext),
    ("DELETE", Command::Out),
];

/// Header with the flags of a record, unless these name its media type.
const FLAGS: &str = "X-TT-FLAGS";

/// Executes the request at the beginning of `input`.
fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    if let Some(step) = handover::begin(context, input, output) {
        return step;
    }
    let parsed = parse_resuming(input, &mut context.session.http.progress);
    match within_limit(context, parsed) {
        Parse::Complete(request, bytes) => {
            context.session.http = Exchange::default();
            context.session.kind = request.method.kind();
            let start = output.len();
            if let Some(step) = refuse_foreign(context, &request, input, output) {
                return step;
            }
            let mut result = execute(context, &request, output);
            if result == Err(Halt::Forbidden) {
                output.truncate(start);
                forbid(&request, context.session.last_reason.take().as_deref(), output);
                result = Ok(Next::GoOn);
            }
            let result = result.map(|next| match next {
                Next::GoOn if !request.keep_alive && !context.session.http.is_sending() => {
                    Next::Close
                }
                next => next,
            });
            let refuse = |reason, output: &mut Vec<u8>| Http::refuse_or_close(b"", reason, output);
            let step = finish(output, start, bytes, result, refuse, |output| {
                reply::message(output, Status::InternalServerError);
            });
            if matches!(step, Step::Executed { next: Next::GoOn, .. }) {
                announce(&request, output, start);
            }
            step
        }
        Parse::Incomplete(needed) => {
            let head = match head(input) {
                Parse::Complete(head, length) => Some((head, length)),
                Parse::Incomplete(_) | Parse::Invalid(_) => None,
            };
            if let Some((head, length)) = &head {
                // The body of a refused request is not waited for.
                let refused = refuse_foreign(context, head, input, output)
                    .or_else(|| refuse_method(context, head, input, output));
                let begun = refused
                    .or_else(|| upload::begin(context, (head, *length), input, needed, output));
                if let Some(step) = begun {
                    return step;
                }
            }
            let refuse = || reply::message(output, Status::PayloadTooLarge);
            let step = incomplete(context, input, needed, refuse);
            if let (Step::Incomplete { .. }, Some((head, _))) = (&step, &head) {
                invite(context, head, output);
            }
            step
        }
        Parse::Invalid(invalid) => {
            context.counters.count(Count::Refused);
            let is_head = matches!(head(input), Parse::Invalid(_));
            let status = match invalid {
                Invalid::TooLarge if is_head => Status::RequestHeaderFieldsTooLarge,
                invalid => refusal(invalid),
            };
            reply::message(output, status);
            Step::Executed { bytes: input.len(), next: Next::Refuse }
        }
    }
}

/// Refuses a request that is not meant for this server, or not sent by its user. The rest of its
/// connection is ignored. Returns `None` for all others.
fn refuse_foreign(
    context: &Context<'_>,
    head: &Head<'_>,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Option<Step> {
    let foreign = context.shared.config.http_hosts.refusal(head.addressing())?;
    context.counters.count(Count::Refused);
    if head.method == Method::Head {
        reply::bare(output, foreign.status());
    } else {
        reply::last_text(output, foreign.status(), foreign.text());
    }
    Some(Step::Executed { bytes: input.len(), next: Next::Refuse })
}

/// Refuses a request with a method that the server does not have. The rest of its connection is
/// ignored. Returns `None` for all others.
fn refuse_method(
    context: &Context<'_>,
    head: &Head<'_>,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Option<Step> {
    if !matches!(head.method, Method::Dav | Method::Other) {
        return None;
    }
    method_not_allowed(context, true, output);
    Some(Step::Executed { bytes: input.len(), next: Next::Refuse })
}

/// Announces in the reply that begins at `start` that the connection stays open, if a client of
/// HTTP/1.0 has asked for it. Otherwise the client would wait for the end of the connection.
fn announce(head: &Head<'_>, output: &mut Vec<u8>, start: usize) {
    if head.minor_version == 0 && head.keep_alive {
        announce_open(output, start);
    }
}

/// Announces in the reply that begins at `start` that the connection stays open.
pub(super) fn announce_open(output: &mut Vec<u8>, start: usize) {
    if let Some(line_feed) = output[start..].iter().position(|byte| *byte == b'\n') {
        let at = start + line_feed + 1;
        output.splice(at..at, *b"Connection: keep-alive\r\n");
    }
}

/// Returns the key of a request, or the status that refuses it.
fn key<'a>(context: &Context<'_>, head: &Head<'a>) -> Result<Cow<'a, [u8]>, Status> {
    let key = if context.shared.serves_paths() && !context.session.names_keys {
        Cow::Owned(path_key(head.target).map_err(|_| Status::BadRequest)?)
    } else {
        head.key()
    };
    if is_reserved(&key) { Err(Status::Forbidden) } else { Ok(key) }
}

/// Returns the flags of a value of a media type. A store outside of this process adds none to the
/// fixed list.
fn flags(context: &mut Context<'_>, name: &[u8]) -> Result<Result<u32, Error>, Halt> {
    if context.shared.remote.is_some() {
        return Ok(Ok(media_types::listed_flags(name).unwrap_or(0)));
    }
    let mut flags = None;
    let named = context.execute(&Operation::NameMediaType { name }, &mut flags)?;
    Ok(named.map(|_| match flags {
        Some(Number::Flags(flags)) => flags,
        _ => 0,
    }))
}

/// Returns the status for bytes that are not a request.
fn refusal(invalid: Invalid) -> Status {
    match invalid {
        Invalid::UnknownCommand => Status::NotImplemented,
        Invalid::BadParameters => Status::BadRequest,
        Invalid::TooLarge => Status::PayloadTooLarge,
    }
}

/// State of a connection between calls: a request that is incomplete, or a reply that is partly
/// sent.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    progress: Progress,
    /// Whether the client was told to send the body.
    invited: bool,
    transfer: Option<Box<Transfer>>,
}

/// A long value.
#[derive(Debug)]
enum Transfer {
    Upload(Upload),
    Download(Download),
}

impl Exchange {
    /// Returns whether the next input continues a request, or the next output a reply.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.transfer.is_some()
    }

    /// Returns whether a value is being received.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.transfer.as_deref(), Some(Transfer::Upload(_)))
    }

    /// Returns whether a value is being sent. The next piece needs no input, and follows once the
    /// last one is sent.
    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.transfer.as_deref(), Some(Transfer::Download(_)))
    }
}

/// Continues the pending request or reply.
pub(super) fn go_on(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    if context.session.http.is_sending() && !context.may_block {
        return Step::Blocked { bytes: 0 };
    }
    match context.session.http.transfer.take().map(|transfer| *transfer) {
        Some(Transfer::Upload(upload)) => upload::receive(context, upload, input, output),
        Some(Transfer::Download(download)) => {
            Step::Executed { bytes: 0, next: read::send_piece(context, download, output) }
        }
        None => Step::Executed { bytes: 0, next: Next::GoOn },
    }
}

/// Tells a client to send its body, if it waits for that.
fn invite(context: &mut Context<'_>, head: &Head<'_>, output: &mut Vec<u8>) {
    if !context.session.http.invited && head.expects_continue {
        output.extend_from_slice(reply::CONTINUE);
        context.session.http.invited = true;
    }
}

fn execute(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    if batch::is_batch(request) && request.header("X-TT-XNAME").is_none() && !is_misc(request) {
        return batch::batch(context, request, output).map(|()| Next::GoOn);
    }
    let list = list::query(request);
    let command = match request.method {
        Method::Get if list.is_some() => Command::KeysWithPrefix,
        Method::Get => Command::Get,
        Method::Head => Command::ValueSize,
        Method::Put => write::put_command(request),
        Method::Delete => Command::Out,
        Method::Post if is_misc(request) => Command::Misc,
        Method::Post => Command::Ext,
        // The front end takes all whose target is a path.
        Method::Dav | Method::Options if context.shared.upgrade().is_some() => {
            reply::message(output, Status::BadRequest);
            return Ok(Next::GoOn);
        }
        Method::Options => Command::Stat,
        Method::Dav | Method::Other => {
            method_not_allowed(context, false, output);
            return Ok(Next::GoOn);
        }
    };
    if context.masks(command, Protocol::Http) {
        forbid(request, None, output);
        return Ok(Next::GoOn);
    }
    match (request.method, list) {
        (Method::Get, Some(query)) => list::list(context, query, output)?,
        (Method::Get | Method::Head, _) => {
            return read::read(context, request, output);
        }
        (Method::Put, _) => write::put(context, request, &request.body(), output)?,
        (Method::Delete, _) => write::remove(context, request, output)?,
        (Method::Post, _) => post(context, request, output)?,
        (Method::Options | Method::Dav | Method::Other, _) => options(context, output),
    }
    Ok(Next::GoOn)
}

/// Appends the reply to a forbidden request, with the reason if there is one.
fn forbid(head: &Head<'_>, reason: Option<&str>, output: &mut Vec<u8>) {
    match reason {
        _ if head.method == Method::Head => reply::bare(output, Status::Forbidden),
        Some(reason) => reply::plain_text(output, Status::Forbidden, reason),
        None => reply::message(output, Status::Forbidden),
    }
}

/// Appends the status of a write. If all writes are refused, the reason is its body.
fn answer(context: &Context<'_>, status: Status, output: &mut Vec<u8>) {
    let is_refused = matches!(status, Status::Forbidden | Status::ServiceUnavailable);
    match context.shared.served.gate.refusal().filter(|_| is_refused) {
        Some(reason) => reply::plain_text(output, status, &reason),
        None => reply::message(output, status),
    }
}

/// Returns whether a function of `misc` is called. The header with the name of a script's function
/// has precedence.
fn is_misc(request: &Request<'_>) -> bool {
    request.header("X-TT-XNAME").is_none() && request.header("X-TT-MNAME").is_some()
}

fn post(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    if let Some(name) = request.header("X-TT-XNAME") {
        return call_script(context, request, name, output);
    }
    let Some(name) = request.header("X-TT-MNAME") else {
        reply::message(output, Status::BadRequest);
        return Ok(());
    };
    let arguments = form::arguments(&request.body()).ok().and_then(|arguments| {
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        strings(&arguments).ok()
    });
    let Some(arguments) = arguments else {
        reply::message(output, Status::BadRequest);
        return Ok(());
    };
    let call = Call::new(context, Function::from_name(name), arguments.strings());
    if call.is_refused(context, Protocol::Http) {
        context.counters.count(Count::DeniedByMask);
        reply::message(output, Status::Forbidden);
        return Ok(());
    }
    let mut results = Collected::default();
    let done = call.run(context, &mut results).inspect_err(|_| {
        if let Some(call) = &mut context.session.call {
            call.set_form(Form::of_http(request, true));
        }
    })?;
    if done {
        let mut body = Vec::new();
        form::results(&mut body, results.elements.iter().map(Vec::as_slice));
        context.check_length(body.len())?;
        reply::response(output, Status::Ok, form::CONTENT_TYPE, &body);
    } else {
        let status = match context.session.last_failure {
            Some(Failure::NoPermission) => Status::Forbidden,
            Some(Failure::Miscellaneous) if context.shared.served.gate.refusal().is_some() => {
                Status::ServiceUnavailable
            }
            _ => Status::InternalServerError,
        };
        answer(context, status, output);
    }
    Ok(())
}

/// Calls a function of the extension, with the target as the key and the body as the value.
fn call_script(
    context: &mut Context<'_>,
    request: &Request<'_>,
    name: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    context.counters.count(Count::Ext);
    if !context.shared.has_extension() {
        context.fail("do_http_post", Failure::Invalid);
        reply::message(output, Status::InternalServerError);
        return Ok(());
    }
    if name.len() >= FUNCTION_NAME_BYTES_LIMIT {
        reply::message(output, Status::BadRequest);
        return Ok(());
    }
    let key = match key(context, request) {
        Ok(key) => key,
        Err(status) => {
            reply::message(output, status);
            return Ok(());
        }
    };
    let options = request.header_number("X-TT-XOPTS").unwrap_or(0);
    let lock = ScriptLock::of_options(u32::try_from(options).unwrap_or(0));
    let form = Form::of_http(request, false);
    let call = ScriptCall::new((name, &key, &request.body()), lock, form);
    context.call(call)
}

fn options(context: &Context<'_>, output: &mut Vec<u8>) {
    context.counters.count(Count::Stat);
    reply::status_line(output, Status::Ok);
    reply::header(output, "Content-Length", "0");
    reply::header(output, "Allow", &allowed(context));
    for (name, value) in server_stats::tokyo_tyrant_stats(context.shared, context.descriptor) {
        reply::header(output, &server_stats::header_name(name), &value);
    }
    reply::end_of_headers(output);
}

/// Tokyo Tyrant closed the connection without a reply.
fn method_not_allowed(context: &Context<'_>, closes: bool, output: &mut Vec<u8>) {
    context.counters.count(Count::Refused);
    reply::status_line(output, Status::MethodNotAllowed);
    reply::header(output, "Allow", &allowed(context));
    reply::header(output, "Content-Length", "0");
    if closes {
        reply::header(output, "Connection", "close");
    }
    reply::end_of_headers(output);
}

/// Returns the methods that are not masked.
fn allowed(context: &Context<'_>) -> String {
    METHODS
        .into_iter()
        .filter(|(_, command)| !context.refuses(*command, Protocol::Http))
        .map(|(name, _)| name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Replies with the failure of the database.
fn explained(output: &mut Vec<u8>, error: &Error) {
    match client_reason(error) {
        Some(reason) => reply::plain_text(output, status_of(error), &reason),
        None => reply::message(output, status_of(error)),
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::NoSpace { .. } | Error::NoLogSpace { .. } | Error::NoMemory { .. } => {
            Status::InsufficientStorage
        }
        Error::ReadOnly(_) => Status::Forbidden,
        Error::Unavailable(_) => Status::ServiceUnavailable,
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => Status::PayloadTooLarge,
        Error::BadColumn(_) | Error::InvalidArgument(_) => Status::BadRequest,
        _ => Status::InternalServerError,
    }
}
