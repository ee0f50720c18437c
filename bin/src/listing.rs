//! Listing: iterates over the records of a server.

use anyhow::Result;
use client::{Client, Reply};

/// Most keys per request, because a round trip per key would dominate the time.
const KEYS_AT_ONCE: usize = 256;

/// Calls `visit` with at most `max` keys, in groups: all keys, or those with a prefix.
pub(crate) fn list(
    client: &Client,
    prefix: Option<&[u8]>,
    max: Option<usize>,
    mut visit: impl FnMut(&[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    if let Some(prefix) = prefix {
        return client.keys_with_prefix(prefix, max)?.chunks(KEYS_AT_ONCE).try_for_each(visit);
    }
    // A request more than there are records finds the end. The number may change meanwhile, and
    // some servers do not know it.
    let records = client.count().ok().and_then(|records| usize::try_from(records).ok());
    client.iter_init()?;
    let mut left = max.unwrap_or(usize::MAX);
    let mut listed = 0;
    while left > 0 {
        let remaining = records.and_then(|records| records.checked_sub(listed));
        let expected = remaining.map_or(KEYS_AT_ONCE, |remaining| remaining.saturating_add(1));
        let asked = left.min(expected).min(KEYS_AT_ONCE);
        let mut pipeline = client.pipeline();
        for _ in 0..asked {
            pipeline.iter_next()?;
        }
        let mut keys = Vec::with_capacity(asked);
        pipeline.run_each(|reply| {
            keys.extend(value_of(reply));
            anyhow::Ok(())
        })?;
        visit(&keys)?;
        if keys.len() < asked {
            break;
        }
        listed += asked;
        left -= asked;
    }
    Ok(())
}

/// Calls `visit` with keys and their values; without a value if the record has been removed since
/// it was listed.
pub(crate) fn with_values(
    client: &Client,
    keys: &[Vec<u8>],
    mut visit: impl FnMut(&[u8], Option<Vec<u8>>) -> Result<()>,
) -> Result<()> {
    let mut pipeline = client.pipeline();
    for key in keys {
        pipeline.get(key)?;
    }
    let mut keys = keys.iter();
    pipeline.run_each(|reply| keys.next().map_or(Ok(()), |key| visit(key, value_of(reply))))
}

fn value_of(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Value(value) => value,
        Reply::Done(_) | Reply::Sum(_) => None,
    }
}
