//! The meta commands.

mod arithmetic;
mod get;
mod store;

use super::expiry;
use super::{Context, Halt, failure};
use crate::ops::execute::{Outcome, Reply};
use crate::ops::hits::Hit;
use crate::ops::operation::Operation;
use crate::ops::touch::Touch;
use crate::protocol::or_absent;
use crate::shared::Shared;
use cabinet::RecordRef;
use wire::limits::MEMCACHED_KEY_BYTES_MAX;
use wire::memcached::reply;
use wire::memcached::{Meta, MetaKey, MetaVerb};

/// Executes `mg`, `ms`, `md` or `ma`.
pub(super) fn execute(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    context.shared.hits.activate();
    if context.shared.config.ignores_expiry {
        let never = |time: Option<i64>| time.map(|_| 0);
        let (exptime, vivify) = (never(meta.exptime), never(meta.vivify));
        let meta = Meta { client_flags: 0, exptime, vivify, ..*meta };
        return execute_as_said(context, &meta, output);
    }
    execute_as_said(context, meta, output)
}

fn execute_as_said(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let mut buffer = [0; MEMCACHED_KEY_BYTES_MAX];
    let key = meta.key.bytes(&mut buffer);
    match meta.verb {
        MetaVerb::Get => get::get(context, meta, key, output),
        MetaVerb::Set => store::set(context, meta, key, output),
        MetaVerb::Delete => store::delete(context, meta, key, output),
        MetaVerb::Arithmetic => arithmetic::arithmetic(context, meta, key, output),
    }
}

/// Returns the expiry of a record after a flag. Flags take effect in their order.
fn expiry_after(flag: u8, meta: &Meta<'_>, is_new: bool, expires_at_ms: u64) -> u64 {
    match (flag, meta.exptime, meta.vivify) {
        (b'T', Some(exptime), _) => expiry::expires_at_ms(exptime),
        (b'N', _, Some(exptime)) if is_new => expiry::expires_at_ms(exptime),
        _ => expires_at_ms,
    }
}

fn write_time(output: &mut Vec<u8>, flag: u8, expires_at_ms: u64) {
    match expiry::seconds_left(expires_at_ms) {
        Some(seconds) => reply::meta_number(output, flag, seconds),
        None => reply::meta_flag(output, flag, b"-1"),
    }
}

/// Appends the key of a record: in base64 if it was sent so, or cannot be shown otherwise.
fn write_key(output: &mut Vec<u8>, key: &[u8], is_base64: bool) {
    if is_base64 || !super::is_plain(key) {
        reply::meta_base64_key(output, key);
    } else {
        reply::meta_flag(output, b'k', key);
    }
}

/// Returns the seconds since the last access to a record. Without an access in the statistics, that
/// is the time since the start of the server.
pub(super) fn seconds_since(shared: &Shared, hit: Option<Hit>) -> u64 {
    let now_s = super::now_s(shared);
    now_s - hit.map_or(0, |hit| hit.second.min(now_s))
}

/// Appends the beginning of the first line of a reply, without its flags.
fn begin(output: &mut Vec<u8>, code: &[u8], value_bytes: Option<usize>) {
    match value_bytes {
        Some(bytes) => reply::meta_value(output, bytes as u64),
        None => output.extend_from_slice(code),
    }
}

/// Record fields that a reply to `ms` contains on request.
#[derive(Clone, Copy)]
struct Figures {
    /// CAS number.
    number: u64,
    value_bytes: usize,
}

/// Appends a reply that contains the key of the record, the opaque token, and `figures` on request.
fn answer(output: &mut Vec<u8>, code: &[u8], meta: &Meta<'_>, figures: Option<Figures>) {
    output.extend_from_slice(code);
    for (flag, token) in meta.flags {
        match (flag, figures) {
            (b'O', _) => reply::meta_flag(output, flag, token),
            (b'k', _) => write_token(output, meta.key),
            (b'c', Some(figures)) => reply::meta_number(output, flag, figures.number),
            (b's', Some(figures)) => reply::meta_number(output, flag, figures.value_bytes as u64),
            _ => {}
        }
    }
    output.extend_from_slice(b"\r\n");
}

/// Appends the key as it was sent, in canonical base64 without leftover bits.
fn write_token(output: &mut Vec<u8>, key: MetaKey<'_>) {
    if key.is_base64 {
        reply::meta_base64_key(output, key.bytes(&mut [0; MEMCACHED_KEY_BYTES_MAX]));
    } else {
        reply::meta_flag(output, b'k', key.token);
    }
}

/// Executes `me`: returns all metadata of a record.
pub(super) fn debug(
    context: &mut Context<'_>,
    key: MetaKey<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    context.shared.hits.activate();
    let mut buffer = [0; MEMCACHED_KEY_BYTES_MAX];
    let key = key.bytes(&mut buffer);
    let start = output.len();
    let hit = context.shared.hits.find(key);
    let mut described = Described { shared: context.shared, key, hit, output: &mut *output };
    // A touch that changes nothing: the value is no part of the reply, and its length no limit.
    let operation = Operation::Touch { key, touch: Touch::default() };
    let found = context.execute(&operation, &mut described)?;
    match or_absent(found, Outcome::NoRecord) {
        Ok(Outcome::Done) => {}
        Ok(_) => output.extend_from_slice(b"EN\r\n"),
        Err(error) => {
            output.truncate(start);
            failure(output, &error);
        }
    }
    Ok(())
}

/// Encoder of all metadata of a record.
struct Described<'r> {
    shared: &'r Shared,
    key: &'r [u8],
    hit: Option<Hit>,
    output: &'r mut Vec<u8>,
}

impl Reply for Described<'_> {
    fn value(&mut self, record: &RecordRef<'_>) {
        let Self { shared, key, hit, output } = self;
        output.extend_from_slice(b"ME ");
        let marks = expiry::marks(record.meta.expires_at_ms);
        if marks.is_base64 || !super::is_plain(key) {
            reply::base64(output, key);
        } else {
            output.extend_from_slice(key);
        }
        let left = expiry::seconds_left(record.meta.expires_at_ms);
        // memcached shows the seconds left as a negative number.
        let exp = left.map_or("-1".to_owned(), |left| format!("-{left}"));
        let idle_s = seconds_since(shared, *hit);
        let number = shared.cas_numbers.number(record.version);
        let fetch = if hit.is_some_and(|hit| hit.is_read) { "yes" } else { "no" };
        let size = super::item_bytes(record);
        let text =
            format!(" exp={exp} la={idle_s} cas={number} fetch={fetch} cls=1 size={size}\r\n");
        output.extend_from_slice(text.as_bytes());
    }
}
