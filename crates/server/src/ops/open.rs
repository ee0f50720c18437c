//! A record with its media type, and values that are too long to be read at once.

use super::execute::{Executor, Outcome, Reply, Stop, if_found};
use super::long::LONG_BYTES_MIN;
use super::media_types;
use std::borrow::Cow;

/// Appends a record with its media type. With `in_pieces`, a long value is opened instead.
pub(super) fn open(
    executor: &mut Executor<'_>,
    key: &[u8],
    in_pieces: bool,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let (store, limit) = (executor.store, &mut executor.limit);
    if in_pieces && let Some(value) = store.large_value(key, LONG_BYTES_MIN)? {
        let media_type = media_types::name(store, value.meta().flags)?;
        reply.large_value(value, &media_type);
        return Ok(Outcome::Done);
    }
    let mut known: Option<(u32, Cow<'static, str>)> = None;
    loop {
        let found = store.read(key, |entry| {
            let flags = entry.meta.flags;
            let name = media_types::known_name(flags)
                .or_else(|| known.take().filter(|known| known.0 == flags).map(|known| known.1));
            name.map_or(Err(flags), |name| {
                reply.typed(&entry, &name);
                Ok(limit.check(reply.len()))
            })
        })?;
        match found.transpose() {
            Ok(shown) => return if_found(shown),
            // The name of the type is in another record.
            Err(flags) => known = Some((flags, media_types::name(store, flags)?)),
        }
    }
}
