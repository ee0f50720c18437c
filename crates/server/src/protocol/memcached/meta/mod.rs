//! The meta commands.

mod arithmetic;
mod get;
mod store;

use super::expiry;
use super::{Context, Halt, failure};
use crate::ops::hits::Hit;
use crate::protocol::or_absent;
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
pub(super) fn seconds_since(context: &Context<'_>, hit: Option<Hit>) -> u64 {
    super::now_s(context) - hit.map_or(0, |hit| hit.second.min(super::now_s(context)))
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
    let shared = context.shared;
    let hit = shared.hits.find(key);
    let idle_s = seconds_since(context, hit);
    let found = context.database.read(key, |entry| {
        output.extend_from_slice(b"ME ");
        let marks = expiry::marks(entry.meta.expires_at_ms);
        if marks.is_base64 || !super::is_plain(key) {
            reply::base64(output, key);
        } else {
            output.extend_from_slice(key);
        }
        let left = expiry::seconds_left(entry.meta.expires_at_ms);
        // memcached shows the seconds left as a negative number.
        let exp = left.map_or("-1".to_owned(), |left| format!("-{left}"));
        let number = shared.cas_numbers.number(entry.version);
        let fetch = if hit.is_some_and(|hit| hit.is_read) { "yes" } else { "no" };
        let size = super::item_bytes(&entry);
        let text =
            format!(" exp={exp} la={idle_s} cas={number} fetch={fetch} cls=1 size={size}\r\n");
        output.extend_from_slice(text.as_bytes());
    });
    match or_absent(context.attempt("do_mc_get", found)?, None) {
        Ok(Some(())) => {}
        Ok(None) => output.extend_from_slice(b"EN\r\n"),
        Err(error) => {
            output.truncate(start);
            failure(output, &error);
        }
    }
    Ok(())
}
