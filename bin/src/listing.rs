//! Going through the keys of a server.

use anyhow::Result;
use client::Client;

/// Shows keys, all of them or those with a prefix, at most `max`.
pub(crate) fn list(
    client: &Client,
    prefix: Option<&[u8]>,
    max: Option<usize>,
    mut show: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    if let Some(prefix) = prefix {
        for key in client.keys_with_prefix(prefix, max)? {
            show(&key)?;
        }
        return Ok(());
    }
    client.iter_init()?;
    for _ in 0..max.unwrap_or(usize::MAX) {
        let Some(key) = client.iter_next()? else { break };
        show(&key)?;
    }
    Ok(())
}
