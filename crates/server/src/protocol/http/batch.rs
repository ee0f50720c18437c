//! Batch: many gets, puts and removals in one HTTP request. A line of JSON for each, and one for
//! its result.

use super::json::Bytes;
use super::{Halt, freshness, json, status_of};
use crate::counters::Count;
use crate::ops::budget::Charge;
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::conditional::{Action, Presence, Write, Written};
use crate::ops::entity_tag::EntityTags;
use crate::ops::execute::{Outcome, Reply};
use crate::ops::operation::Operation;
use crate::protocol::{Context, or_absent};
use crate::store::reserved::is_reserved;
use cabinet::{Meta, RecordRef};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wire::http::{Conditions, Head, Method, Request, Status, reply};

/// Most lines of a request.
const LINES_MAX: usize = 10_000;

/// Longest reply, in bytes. Values that would exceed it are not read.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Longest error text of a line, in characters.
const ERROR_CHARACTERS_MAX: usize = 200;

/// Returns whether a request is a batch.
pub(super) fn is_batch(head: &Head<'_>) -> bool {
    let is_json_lines = |media_type: &[u8]| {
        let base = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
        base.trim_ascii().eq_ignore_ascii_case(json::JSON_LINES.as_bytes())
    };
    head.method == Method::Post && head.header("Content-Type").is_some_and(is_json_lines)
}

/// Request of a line.
enum Wanted {
    Get,
    Put { value: Vec<u8>, media_type: Option<String>, expires: u64 },
    Remove,
}

struct Line {
    key: Vec<u8>,
    wanted: Wanted,
    /// The entity tag that the record must have, or `*`.
    matching: Option<String>,
    none_matching: Option<String>,
}

/// Executes each line by itself, in order.
pub(super) fn batch(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    // The pool must take over before the first change, as a batch cannot be begun twice.
    context.wait()?;
    let body = request.body();
    let lines = || body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    if lines().nth(LINES_MAX).is_some() {
        let what = format!("more than {LINES_MAX} lines");
        reply::plain_text(output, Status::PayloadTooLarge, &what);
        return Ok(());
    }
    let mut charge = Charge::none(&context.shared.served.budget);
    let mut answers = Vec::new();
    for line in lines() {
        let answer = match parse(line) {
            Ok(line) => {
                let mut answer = Map::new();
                answer.insert("key".into(), json::from_bytes(&line.key));
                let room = REPLY_BYTES_MAX.saturating_sub(answers.len());
                let done = match perform(context, &line, room) {
                    Err(Halt::Refused(reason)) => Err(reason.text()),
                    Err(Halt::Forbidden) => Err("forbidden"),
                    done => done?,
                };
                match done {
                    Ok(facts) => answer.extend(facts),
                    Err(what) => drop(answer.insert("error".into(), what.into())),
                }
                Value::Object(answer)
            }
            Err(what) => json!({ "error": what }),
        };
        answers.extend_from_slice(answer.to_string().as_bytes());
        answers.push(b'\n');
        if !charge.set(answers.capacity()) {
            // Executed lines stay executed, and the client sees how many there are.
            let error = json!({ "error": "out of memory; nothing further was done" });
            answers.extend_from_slice(error.to_string().as_bytes());
            answers.push(b'\n');
            break;
        }
    }
    reply::document(output, json::JSON_LINES, &answers);
    Ok(())
}

/// Fields of a line. Lines are parsed into nothing else, as a tree would take dozens of times their
/// length.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    get: Option<Bytes>,
    put: Option<Bytes>,
    remove: Option<Bytes>,
    value: Option<Bytes>,
    #[serde(rename = "type")]
    media_type: Option<String>,
    expires: Option<u64>,
    #[serde(rename = "if-match")]
    matching: Option<String>,
    #[serde(rename = "if-none-match")]
    none_matching: Option<String>,
}

fn parse(line: &[u8]) -> Result<Line, String> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("no object".into());
    }
    let fields: Fields = serde_json::from_slice(line).map_err(|error| {
        // The text may contain a name as long as the line.
        error.to_string().chars().take(ERROR_CHARACTERS_MAX).collect::<String>()
    })?;
    let Fields { get, put, remove, value, media_type, expires, matching, none_matching } = fields;
    let (key, wanted) = match (get, put, remove, value) {
        (Some(key), None, None, None) => (key, Wanted::Get),
        (None, Some(key), None, Some(Bytes(value))) => {
            (key, Wanted::Put { value, media_type, expires: expires.unwrap_or(0) })
        }
        (None, None, Some(key), None) => (key, Wanted::Remove),
        _ => return Err("expected exactly one of get, put with a value, and remove".into()),
    };
    Ok(Line { key: key.0, wanted, matching, none_matching })
}

type Facts = Vec<(String, Value)>;

fn perform(
    context: &mut Context<'_>,
    line: &Line,
    room: usize,
) -> Result<Result<Facts, &'static str>, Halt> {
    let command = match line.wanted {
        Wanted::Get => Command::Get,
        Wanted::Put { .. } => Command::Put,
        Wanted::Remove => Command::Out,
    };
    if context.masks(command, Protocol::Http) || is_reserved(&line.key) {
        return Ok(Err("forbidden"));
    }
    let changes = !matches!(line.wanted, Wanted::Get);
    if changes && context.shared.upgrade().is_some_and(|other| other.is_locked(&line.key)) {
        return Ok(Err("locked"));
    }
    let conditions = Conditions {
        matching: line.matching.as_ref().map(|list| list.as_bytes().into()),
        none_matching: line.none_matching.as_ref().map(|list| list.as_bytes().into()),
    };
    match &line.wanted {
        Wanted::Get => get(context, &line.key, conditions, room),
        Wanted::Put { value, media_type, expires } => {
            let media_type = media_type.as_deref().unwrap_or_default().as_bytes();
            match super::flags(context, media_type)? {
                Ok(flags) => {
                    let meta = Meta { flags, expires_at_ms: freshness::at_seconds(*expires) };
                    write(context, &line.key, conditions, Some((value, meta)))
                }
                Err(error) => Ok(Err(status_of(&error).code_and_reason().1)),
            }
        }
        Wanted::Remove => write(context, &line.key, conditions, None),
    }
}

fn get(
    context: &mut Context<'_>,
    key: &[u8],
    conditions: Conditions<'_>,
    room: usize,
) -> Result<Result<Facts, &'static str>, Halt> {
    context.counters.count(Count::Get);
    let tags = context.shared.entity_tags;
    let mut described = Described { tags, conditions, room, facts: Err("not found") };
    let read = context.execute(&Operation::Open { key, in_pieces: false }, &mut described)?;
    Ok(match or_absent(read, Outcome::NoRecord) {
        Ok(Outcome::Done) => described.facts,
        Ok(_) => {
            context.counters.count(Count::GetMiss);
            described.facts
        }
        Err(error) => Err(status_of(&error).code_and_reason().1),
    })
}

/// Encoder of a record as the result of a line.
struct Described<'c> {
    tags: EntityTags,
    conditions: Conditions<'c>,
    /// Longest result, in bytes.
    room: usize,
    facts: Result<Facts, &'static str>,
}

impl Reply for Described<'_> {
    fn typed(&mut self, record: &RecordRef<'_>, media_type: &str) {
        let tag = self.tags.of(record.version);
        if self.conditions.check(Some(&tag)).is_err() {
            self.facts = Err("precondition failed");
            return;
        }
        // One byte becomes at most six in JSON.
        if record.value.len().saturating_mul(6) > self.room {
            self.facts = Err("reply too long");
            return;
        }
        let mut facts = vec![
            ("value".to_owned(), json::from_bytes(record.value)),
            ("etag".to_owned(), tag.into()),
            ("type".to_owned(), media_type.into()),
        ];
        if let Some(seconds) = freshness::seconds(record.meta.expires_at_ms) {
            facts.push(("expires".to_owned(), seconds.into()));
        }
        self.facts = Ok(facts);
    }
}

/// Stores or removes the record.
fn write(
    context: &mut Context<'_>,
    key: &[u8],
    conditions: Conditions<'_>,
    value: Option<(&[u8], Meta)>,
) -> Result<Result<Facts, &'static str>, Halt> {
    let (count, miss, action) = match value {
        Some((value, meta)) => {
            (Count::Put, Count::PutMiss, Action::put(Presence::Any, value, meta))
        }
        None => (Count::Out, Count::OutMiss, Action::Remove),
    };
    context.counters.count(count);
    let write = Write { precondition: (&conditions).into(), ..Write::new(key, action) };
    let mut written = Written::default();
    let what = match context.execute(&Operation::Write(write), &mut written)? {
        Ok(Outcome::Done) if value.is_some() => {
            let tag = context.shared.entity_tags.of(written.version);
            return Ok(Ok(vec![("etag".to_owned(), tag.into())]));
        }
        Ok(Outcome::Done) => return Ok(Ok(vec![("removed".to_owned(), true.into())])),
        Ok(Outcome::NoRecord) => "not found",
        Ok(_) => "precondition failed",
        Err(error) => return Ok(Err(status_of(&error).code_and_reason().1)),
    };
    context.counters.count(miss);
    Ok(Err(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_operation() {
        for line in [
            r#"{"get":"a"}"#,
            r#"{"put":"a","value":"b","type":"text/plain","expires":5,"if-none-match":"*"}"#,
            r#"{"put":{"base64":"AA=="},"value":{"base64":""}}"#,
            r#"{"remove":"a","if-match":"\"1\""}"#,
        ] {
            assert!(parse(line.as_bytes()).is_ok(), "{line}");
        }
        for line in [
            "",
            "x",
            "[]",
            "{}",
            r#"{"get":"a","remove":"b"}"#,
            r#"{"get":1}"#,
            r#"{"put":"a"}"#,
            r#"{"get":"a","value":"b"}"#,
            r#"{"get":"a","other":1}"#,
            r#"{"get":"a","type":1}"#,
            r#"{"put":"a","value":"b","expires":-1}"#,
            r#"{"put":"a","value":1}"#,
            r#"["a",null,null,null,null,null,null,null]"#,
            r#"{"get":"a"}{"get":"a"}"#,
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn unknown_fields_are_not_read() {
        for line in [r#"{"other":[[["#, r#"{"put":{"other":[[["#, r#"{"put":[[["#] {
            let error = parse(line.as_bytes()).err().expect("an error");
            assert!(!error.contains("EOF"), "{error}");
        }
        let long = format!("{{\"{}\":1}}", "x".repeat(1000));
        let error = parse(long.as_bytes()).err().expect("an error");
        assert_eq!(error.chars().count(), ERROR_CHARACTERS_MAX);
    }
}
