//! `restore`: executing the update log in a folder again.

use crate::execute::Repeater;
use crate::shared::Shared;
use crate::update_log::{Reader, Source};
use std::path::Path;
use wire::update_log::Operation;

/// Executes the entries from `from_us` on, in microseconds since 1970, that are in the folder when
/// it begins; says whether it came to their end. They are logged here with the servers they came
/// from. With `check`, it ends where one does not do what it did when it was logged.
pub(crate) fn restore(shared: &Shared, folder: &Path, from_us: u64, check: bool) -> bool {
    match execute(shared, folder, from_us, check) {
        Ok(count) => {
            tracing::info!("{count} operations of {} restored", folder.display());
            true
        }
        Err(error) => {
            tracing::error!("restoring {}: {error}", folder.display());
            false
        }
    }
}

fn execute(shared: &Shared, folder: &Path, from_us: u64, check: bool) -> Result<u64, String> {
    let words = |error: crate::update_log::Error| error.to_string();
    // Where the folder is the one that is written to, what is added meanwhile is left out.
    let end = crate::update_log::end_of(folder).map_err(words)?;
    let Some(mut reader) = Reader::open(folder, from_us).map_err(words)? else { return Ok(0) };
    let mut repeater = Repeater::new(shared);
    let mut count = 0;
    while let Some(entry) = reader.next(Some(end)).map_err(words)? {
        if shared.is_stopping() {
            return Err("the server stops".into());
        }
        let timestamp_us = entry.timestamp_us;
        let operation = Operation::parse(entry.body)
            .map_err(|_| format!("the entry of {timestamp_us} is no operation"))?;
        let source = Source { origin: entry.origin, master: entry.master };
        let done = repeater.repeat(source, &operation);
        let succeeded = done.map_err(|error| format!("the entry of {timestamp_us}: {error}"))?;
        if succeeded != operation.succeeded {
            let what =
                format!("the entry of {timestamp_us} ended otherwise than when it was logged");
            if check {
                return Err(what);
            }
            tracing::warn!("restoring {}: {what}", folder.display());
        }
        count += 1;
    }
    Ok(count)
}
