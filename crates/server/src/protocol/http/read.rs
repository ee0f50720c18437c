//! GET and HEAD: a value, a part of it, or the status that it is unchanged.

use super::{FLAGS, Halt, Transfer, explained, freshness, status_of};
use crate::counters::Count;
use crate::ops::entity_tag::EntityTags;
use crate::ops::execute::{Outcome, Reply};
use crate::ops::long::PIECE_BYTES;
use crate::ops::media_types;
use crate::ops::operation::Operation;
use crate::protocol::{Context, Next, or_absent};
use cabinet::{LargeValue, Meta, RecordRef, Version};
use std::borrow::Cow;
use wire::http::range::{ByteRange, select_range};
use wire::http::{Conditions, FailedCondition, Head, Method, Status, reply};
use wire::memcached::Dialect;

/// Body of the response to `GET /` if no record has the empty key.
const WELCOME: &str = "\
This is Tyrant, a key-value server. This path is that of the empty key, which has no record.
PUT /KEY stores a record, GET /KEY reads it, DELETE /KEY removes it.";

/// A value that is being sent.
pub(super) struct Download {
    value: LargeValue,
    position: u64,
    end: u64,
    keep_alive: bool,
}

/// Headers of a response that describe the record.
struct Found {
    bytes: u64,
    meta: Meta,
    version: Version,
}

/// Head of a response, and the part of the value that follows.
struct Answer<'a> {
    /// Whether the response may have headers that Tokyo Tyrant does not send.
    tells: bool,
    /// Whether it tells all flags, those of media types and 0 too.
    tells_flags: bool,
    conditions: Conditions<'a>,
    range: Option<&'a [u8]>,
    if_range: Option<&'a [u8]>,
    is_head: bool,
    /// Media type of a value that was stored without one.
    usual_type: &'static str,
}

impl<'a> Answer<'a> {
    fn new(context: &Context<'_>, head: &Head<'a>) -> Self {
        let conditions = Conditions::of(head);
        let is_head = head.method == Method::Head;
        // A range applies only to a body that is sent.
        let range = head.header("Range").filter(|_| !is_head);
        let asked = !conditions.is_empty() || range.is_some();
        Self {
            tells_flags: context.session.names_keys,
            tells: asked || context.shared.config.dialect != Dialect::TokyoTyrant,
            conditions,
            range,
            if_range: head.header("If-Range"),
            is_head,
            usual_type: reply::OCTET_STREAM,
        }
    }

    /// Appends the head. Returns which part of the value follows.
    fn begin(
        &self,
        output: &mut Vec<u8>,
        found: &Found,
        media_type: &str,
        tag: &str,
    ) -> (u64, u64) {
        let nothing = (0, 0);
        match self.conditions.check(Some(tag)) {
            Err(FailedCondition::NoneMatch) => {
                reply::status_line(output, Status::NotModified);
                self.describe(output, found, tag);
                reply::end_of_headers(output);
                return nothing;
            }
            Err(FailedCondition::Match) => {
                self.fail(output, Status::PreconditionFailed);
                return nothing;
            }
            Ok(()) => {}
        }
        // A list of one value.
        let same = |header| {
            Conditions { matching: Some(Cow::Borrowed(header)), none_matching: None }
                .check(Some(tag))
                .is_ok()
        };
        let range = self.range.filter(|_| self.if_range.is_none_or(same));
        let (status, start, end) =
            match range.map_or(ByteRange::Whole, |range| select_range(range, found.bytes)) {
                ByteRange::Whole => (Status::Ok, 0, found.bytes),
                ByteRange::Bytes(start, end) => (Status::PartialContent, start, end),
                ByteRange::Beyond => {
                    let status = Status::RangeNotSatisfiable;
                    reply::open_headers(output, status, reply::TEXT, 0);
                    reply::header(output, "Content-Range", &format!("bytes */{}", found.bytes));
                    reply::end_of_headers(output);
                    return nothing;
                }
            };
        let is_guessed = self.usual_type != reply::OCTET_STREAM;
        let is_kept = (self.tells || is_guessed) && media_type != reply::OCTET_STREAM;
        let media_type = if is_kept { media_type } else { self.usual_type };
        reply::open_headers(output, status, media_type, end - start);
        if status == Status::PartialContent {
            let range = format!("bytes {start}-{}/{}", end - 1, found.bytes);
            reply::header(output, "Content-Range", &range);
        }
        if self.tells && reply::is_page(media_type) {
            reply::header(output, "X-Frame-Options", reply::OWN_FRAMES);
        }
        self.describe(output, found, tag);
        reply::end_of_headers(output);
        if self.is_head { nothing } else { (start, end) }
    }

    fn describe(&self, output: &mut Vec<u8>, found: &Found, tag: &str) {
        if self.tells {
            reply::no_sniffing(output);
            reply::header(output, "ETag", tag);
            reply::header(output, "Accept-Ranges", "bytes");
            freshness::write(output, found.meta.expires_at_ms);
            let flags = found.meta.flags;
            if self.tells_flags || flags != 0 && !media_types::is_type(flags) {
                reply::header(output, FLAGS, &flags.to_string());
            }
        }
    }

    fn fail(&self, output: &mut Vec<u8>, status: Status) {
        if self.is_head {
            reply::bare(output, status);
        } else {
            reply::message(output, status);
        }
    }
}

/// Replies with the record of a request.
pub(super) fn read(
    context: &mut Context<'_>,
    head: &Head<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let mut answer = Answer::new(context, head);
    let key = match super::key(context, head) {
        Ok(key) => key,
        Err(status) => {
            answer.fail(output, status);
            return Ok(Next::GoOn);
        }
    };
    if let Some(front_end) = context.shared.upgrade()
        && let Some(media_type) = front_end.media_type(&key)
    {
        answer.usual_type = media_type;
    }
    let tags = context.shared.entity_tags;
    let start = output.len();
    let mut document = Document { answer: &answer, tags, start, output: &mut *output, long: None };
    let read = context.execute(&Operation::Open { key: &key, in_pieces: true }, &mut document);
    let read = read.inspect_err(|halt| halt.count(context.counters, Count::Get))?;
    let long = document.long;
    context.counters.count(if answer.is_head { Count::ValueSize } else { Count::Get });
    if let Some((value, media_type)) = long {
        return read_long(context, &answer, value, &media_type, head.keep_alive, output);
    }
    match or_absent(read, Outcome::NoRecord) {
        Ok(Outcome::Done) => {}
        Ok(_) => {
            if !answer.is_head {
                context.counters.count(Count::GetMiss);
            }
            let met = answer.conditions.check(None).is_ok();
            if met && key.is_empty() && answer.tells && !answer.is_head {
                reply::plain_text(output, Status::NotFound, WELCOME);
            } else {
                answer
                    .fail(output, if met { Status::NotFound } else { Status::PreconditionFailed });
            }
        }
        Err(error) if answer.is_head => answer.fail(output, status_of(&error)),
        Err(error) => explained(output, &error),
    }
    Ok(Next::GoOn)
}

/// Encoder of a response with a record.
struct Document<'r> {
    answer: &'r Answer<'r>,
    tags: EntityTags,
    output: &'r mut Vec<u8>,
    start: usize,
    long: Option<(LargeValue, String)>,
}

impl Reply for Document<'_> {
    fn len(&self) -> usize {
        self.output.len() - self.start
    }

    fn shows_values(&self) -> bool {
        !self.answer.is_head
    }

    fn typed(&mut self, record: &RecordRef<'_>, media_type: &str) {
        let bytes = record.value.len() as u64;
        let found = Found { bytes, meta: record.meta, version: record.version };
        let tag = self.tags.of(record.version);
        let (from, to) = self.answer.begin(self.output, &found, media_type, &tag);
        // A part of a slice has the same length.
        self.output.extend_from_slice(&record.value[from as usize..to as usize]);
    }

    fn large_value(&mut self, value: LargeValue, media_type: &str) {
        self.long = Some((value, media_type.to_owned()));
    }
}

/// Begins a reply whose value is read while it is sent.
fn read_long(
    context: &mut Context<'_>,
    answer: &Answer<'_>,
    value: LargeValue,
    media_type: &str,
    keep_alive: bool,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let meta = value.meta();
    let found = Found { bytes: value.bytes(), meta, version: value.version() };
    let start = output.len();
    let tag = context.shared.entity_tags.of(found.version);
    let (position, end) = answer.begin(output, &found, media_type, &tag);
    if position == end {
        return Ok(Next::GoOn);
    }
    // Pieces are read by threads that may wait.
    context.wait()?;
    // A part does not justify reading the whole value, unless damage is suspected.
    if ((position, end) == (0, found.bytes) || value.is_doubtful())
        && let Err(error) = context.attempt("do_http_get", value.verify())?
    {
        output.truncate(start);
        explained(output, &error);
        return Ok(Next::GoOn);
    }
    let download = Download { value, position, end, keep_alive };
    Ok(send_piece(context, download, output))
}

/// Appends the next piece of the value that is being sent.
pub(super) fn send_piece(
    context: &mut Context<'_>,
    mut download: Download,
    output: &mut Vec<u8>,
) -> Next {
    let bytes = (PIECE_BYTES as u64).min(download.end - download.position);
    let start = output.len();
    output.resize(start + bytes as usize, 0);
    if let Err(error) = download.value.read(download.position, &mut output[start..]) {
        // The reply can only show that it is incomplete, by closing the connection.
        tracing::error!("do_http_get: {error}");
        output.truncate(start);
        // So the end of the stream is not announced as that of the reply.
        context.session.http.transfer = Some(Box::new(Transfer::Download(download)));
        return Next::Close;
    }
    download.position += bytes;
    if download.position < download.end {
        context.session.http.transfer = Some(Box::new(Transfer::Download(download)));
        return Next::GoOn;
    }
    if download.keep_alive { Next::GoOn } else { Next::Close }
}

impl std::fmt::Debug for Download {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { position, end, .. } = self;
        write!(formatter, "Download {{ {position}..{end} }}")
    }
}
