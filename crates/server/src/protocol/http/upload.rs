//! Upload: a long body of a PUT, which is written to a file as it arrives.
//!
//! A thread that may wait writes each part into a [`Spool`]. Once the body is complete, that thread
//! stores the value from the file. The body is never in memory.

use super::{Exchange, Http, Transfer, announce, forbid, refusal, write};
use crate::counters::Count;
use crate::ops::command_mask::Protocol;
use crate::ops::conditional::Presence;
use crate::ops::long::LONG_BYTES_MIN;
use crate::ops::operation::Operation;
use crate::ops::spool::Spool;
use crate::protocol::protocols::Protocol as _;
use crate::protocol::{Context, Halt, Next, Step};
use std::borrow::Cow;
use std::io::ErrorKind;
use wire::Parse;
use wire::http::{BodyLength, Head, Method, RestOfBody, Status, head, reply};

/// Reply to an upload for which the disk has no space.
const NO_SPACE: &str = "no space left for the upload: free space on the file system of the server";

/// Reply to an upload beyond the limit of all uploads together.
const TOO_MANY: &str = "too many uploads at the same time: try again later";

/// A request whose body is being received.
#[derive(Debug)]
pub(super) struct Upload {
    /// The bytes of its head.
    head: Vec<u8>,
    spool: Spool,
    rest: RestOfBody,
}

/// Begins to receive a body, if `needed` bytes with its head, of this length, are missing for the
/// request. Returns `None` if the body is to be held in memory.
pub(super) fn begin(
    context: &mut Context<'_>,
    (head, length): (&Head<'_>, usize),
    input: &[u8],
    needed: usize,
    output: &mut Vec<u8>,
) -> Option<Step> {
    if head.method != Method::Put || needed - length < LONG_BYTES_MIN {
        return None;
    }
    let shared = context.shared;
    let max = shared.served.upload_bytes_max();
    let spool = Spool::new(context.database, &shared.served.spool_budget)?;
    let begun = match spool {
        _ if context.masks(write::put_command(head), Protocol::Http) => Err(Status::Forbidden),
        _ if let Err(status) = permitted_key(context, head) => Err(status),
        _ if matches!(head.body, BodyLength::Bytes(bytes) if bytes > max) => {
            Err(Status::PayloadTooLarge)
        }
        Ok(spool) => Ok(spool),
        Err(error) => Err(status_of(&error)),
    };
    let spool = match begun {
        Ok(spool) => spool,
        Err(status) => {
            context.counters.count(Count::Refused);
            refuse(output, status);
            return Some(Step::Executed { bytes: input.len(), next: Next::Refuse });
        }
    };
    if head.expects_continue && !context.session.http.invited {
        output.extend_from_slice(reply::CONTINUE);
    }
    let upload = Upload { head: input[..length].to_vec(), spool, rest: RestOfBody::of(head.body) };
    // The parse state of this request does not apply to the next one.
    let transfer = Some(Box::new(Transfer::Upload(upload)));
    context.session.http = Exchange { transfer, ..Exchange::default() };
    context.session.kind = head.method.kind();
    Some(Step::Executed { bytes: length, next: Next::GoOn })
}

/// Returns the key of a PUT whose user may store it, or the status that refuses it.
fn permitted_key<'a>(context: &mut Context<'_>, head: &Head<'a>) -> Result<Cow<'a, [u8]>, Status> {
    let key = write::put_key(context, head)?;
    let permitted = context.permit(&Operation::put(&key, b"", Presence::Any));
    permitted.map_err(|_| Status::Forbidden)?;
    Ok(key)
}

/// Writes the received part of the body, and stores the value once the body is complete.
pub(super) fn receive(
    context: &mut Context<'_>,
    mut upload: Upload,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    if !context.may_block {
        // A thread that may wait takes all of its input.
        let bytes = upload.rest.bytes_in(input);
        if bytes > 0 {
            context.session.http.transfer = Some(Box::new(Transfer::Upload(upload)));
            return Step::Blocked { bytes };
        }
    }
    let mut taken = 0;
    let status = loop {
        let mut rest = upload.rest;
        let (data, bytes) = match rest.take(&input[taken..]) {
            Parse::Complete(data, bytes) => (data, bytes),
            Parse::Incomplete(needed) => {
                context.session.http.transfer = Some(Box::new(Transfer::Upload(upload)));
                return if taken == 0 {
                    Step::Incomplete { needed }
                } else {
                    Step::Executed { bytes: taken, next: Next::GoOn }
                };
            }
            Parse::Invalid(invalid) => break refusal(invalid),
        };
        let total = upload.spool.bytes() + data.len() as u64;
        if total > context.shared.served.upload_bytes_max() as u64 {
            break Status::PayloadTooLarge;
        }
        if let Err(error) = upload.spool.write(data) {
            tracing::warn!("do_http_put: {error}");
            break status_of(&error);
        }
        upload.rest = rest;
        taken += bytes;
        if rest.is_empty() {
            return store(context, upload, taken, output);
        }
    };
    context.counters.count(Count::Refused);
    refuse(output, status);
    Step::Executed { bytes: input.len(), next: Next::Refuse }
}

fn store(context: &mut Context<'_>, upload: Upload, bytes: usize, output: &mut Vec<u8>) -> Step {
    let Upload { head: head_bytes, spool, .. } = upload;
    let next = |head: &Head<'_>| if head.keep_alive { Next::GoOn } else { Next::Close };
    let start = output.len();
    match (head(&head_bytes), spool.finish()) {
        (Parse::Complete(head, _), Ok(spooled)) => {
            match write::put(context, &head, spooled.value(), output) {
                Ok(()) => {
                    announce(&head, output, start);
                    Step::Executed { bytes, next: next(&head) }
                }
                Err(Halt::Refused(reason)) => {
                    output.truncate(start);
                    Step::Executed { bytes, next: Http::refuse_or_close(b"", reason, output) }
                }
                Err(Halt::Forbidden) => {
                    output.truncate(start);
                    forbid(&head, context.session.last_reason.take().as_deref(), output);
                    announce(&head, output, start);
                    Step::Executed { bytes, next: next(&head) }
                }
                // A thread that may wait is never blocked, and a message is never too long.
                Err(_) => Step::Executed { bytes, next: Next::Close },
            }
        }
        (Parse::Complete(head, _), Err(error)) => {
            refuse(output, status_of(&error));
            announce(&head, output, start);
            Step::Executed { bytes, next: next(&head) }
        }
        // The head was valid when it arrived.
        _ => Step::Executed { bytes, next: Next::Close },
    }
}

/// Replies to an upload that is not taken. The causes of an error of the system need a reason.
fn refuse(output: &mut Vec<u8>, status: Status) {
    match status {
        Status::InsufficientStorage => reply::plain_text(output, status, NO_SPACE),
        Status::ServiceUnavailable => reply::plain_text(output, status, TOO_MANY),
        status => reply::message(output, status),
    }
}

fn status_of(error: &std::io::Error) -> Status {
    match error.kind() {
        ErrorKind::StorageFull => Status::InsufficientStorage,
        ErrorKind::QuotaExceeded => Status::ServiceUnavailable,
        _ => Status::InternalServerError,
    }
}
