//! Resolution of pending changes: logs the records that were being changed when the process was
//! killed.
//!
//! The changes may have been made or not. The operations that restore the records are right in
//! either case, and have no effect when they are repeated.

use crate::store::Store;
use crate::update_log::{Subject, Unfinished, UpdateLog};
use cabinet::Result;

/// Logs the records of the pending changes.
pub(crate) fn resolve(store: &Store, log: &UpdateLog, unfinished: &[Unfinished]) -> Result<()> {
    let mut store = store.clone();
    for Unfinished { id, source, subject } in unfinished {
        store.set_source(*source);
        match subject {
            Subject::Key(key) => log_record(&store, key)?,
            Subject::All if store.is_empty() => store.clear()?,
            Subject::All => tracing::error!(
                "update log: the process was killed while it changed many records; replicas may \
                 differ, copy the database to them again"
            ),
        }
        log.resolved(*id);
    }
    if !unfinished.is_empty() {
        tracing::info!("update log: logged {} pending changes", unfinished.len());
    }
    Ok(())
}

fn log_record(store: &Store, key: &[u8]) -> Result<()> {
    if let Some(numbered) = store.as_numbered()
        && !key.iter().any(u8::is_ascii_digit)
    {
        // The record that got the next id has the last id now.
        let id = if key == b"prev" || key == b"min" { numbered.min() } else { numbered.max() };
        return id.map_or(Ok(()), |id| log_record(store, id.to_string().as_bytes()));
    }
    store.log_record(key)
}
