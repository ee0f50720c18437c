//! Resolution of pending changes: logs the records that were being changed when the process was
//! killed.
//!
//! The changes may have been made or not. The operations that restore the records are right in
//! either case, and have no effect when they are repeated. All records are logged together, because
//! any of them may have been changed by one transaction.

use crate::store::Store;
use crate::update_log::{Source, Subject, Unfinished, UpdateLog};
use cabinet::Result;
use std::borrow::Cow;

/// Logs the records of the pending changes.
pub(crate) fn resolve(store: &Store, log: &UpdateLog, unfinished: &[Unfinished]) -> Result<()> {
    let mut store = store.clone();
    let mut by_source: Vec<(Source, Vec<Cow<'_, [u8]>>)> = Vec::new();
    for Unfinished { source, subject, .. } in unfinished {
        store.set_source(*source);
        match subject {
            Subject::Key(key) => {
                let key = logged_key(&store, key);
                match by_source.iter_mut().find(|(known, _)| known == source) {
                    Some((_, keys)) => keys.extend(key),
                    None => by_source.push((*source, key.into_iter().collect())),
                }
            }
            Subject::All if store.is_empty() => store.clear()?,
            Subject::All => tracing::error!(
                "update log: the process was killed while it changed many records; replicas may \
                 differ, copy the database to them again"
            ),
        }
    }
    for (source, keys) in &by_source {
        store.set_source(*source);
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        store.log_records(&keys)?;
    }
    unfinished.iter().for_each(|unfinished| log.resolved(unfinished.id));
    if !unfinished.is_empty() {
        tracing::info!("update log: logged {} pending changes", unfinished.len());
    }
    Ok(())
}

/// Returns the key of the record that was changed under a key, if there is one.
fn logged_key<'k>(store: &Store, key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
    match store.as_numbered() {
        Some(numbered) if !key.iter().any(u8::is_ascii_digit) => {
            // The record that got the next id has the last id now.
            let id = if key == b"prev" || key == b"min" { numbered.min() } else { numbered.max() };
            id.map(|id| id.to_string().into_bytes().into())
        }
        _ => Some(key.into()),
    }
}
