//! Logging what became of changes that were under way when the process was killed.
//!
//! It is not known whether they were made, so the records are logged as they are: that is right in
//! either case, and nothing that is repeated adds up.

use crate::store::Store;
use crate::update_log::{Subject, Unfinished, UpdateLog};
use cabinet::Result;

/// Logs the records of these changes as they are.
pub(crate) fn settle(store: &Store, log: &UpdateLog, unfinished: &[Unfinished]) -> Result<()> {
    let mut store = store.clone();
    for Unfinished { id, source, subject } in unfinished {
        store.set_source(*source);
        match subject {
            Subject::Key(key) => log_record(&store, key)?,
            Subject::All if store.is_empty() => store.clear()?,
            Subject::All => tracing::error!(
                "update log: the process was killed while it changed many records: replicas may \
                 have others, and need a new copy"
            ),
        }
        log.resolved(*id);
    }
    if !unfinished.is_empty() {
        tracing::info!("update log: {} changes that were under way are logged", unfinished.len());
    }
    Ok(())
}

fn log_record(store: &Store, key: &[u8]) -> Result<()> {
    if let Some(numbered) = store.as_numbered()
        && !key.iter().any(u8::is_ascii_digit)
    {
        // What was given the next id is the last one now.
        let id = if key == b"prev" || key == b"min" { numbered.min() } else { numbered.max() };
        return id.map_or(Ok(()), |id| log_record(store, id.to_string().as_bytes()));
    }
    store.log_as_is(key)
}
