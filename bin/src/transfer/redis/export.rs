//! Export of records to a server of Redis's protocol.

use super::writer::Writer;
use super::{VALUE_BYTES_MAX, refusing};
use crate::plural::counted;
use crate::remote::{RedisUrl, SecurityArgument};
use crate::transfer::ids::Refused;
use crate::transfer::progress::Progress;
use anyhow::{Result, bail};
use cabinet::Meta;
use server::unmarked_expiry;

/// An export to a server.
pub(crate) struct Export {
    writer: Writer,
    progress: Progress,
    refused: Refused,
    /// Key of the last record: a key of a tree may have several values, one after the other.
    last_key: Option<Vec<u8>>,
}

impl Export {
    /// Connects to the server. `records` is the number of records to come.
    pub(crate) fn begin(url: &RedisUrl, security: &SecurityArgument, records: u64) -> Result<Self> {
        let writer = Writer::new(url.connect(security, VALUE_BYTES_MAX)?);
        let advice = "the records before are stored there; the same command stores all of them";
        let progress = Progress::of_records("exporting", records).explain(advice);
        Ok(Self { writer, progress, refused: Refused::default(), last_key: None })
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        let Self { writer, progress, refused, last_key } = self;
        let mut refuse = refusing(refused, progress);
        if last_key.as_deref() == Some(key) {
            refuse(key, "it has several values, and the first one is stored");
            return Ok(());
        }
        *last_key = Some(key.to_vec());
        if value.len() > VALUE_BYTES_MAX {
            let length = value.len();
            refuse(key, &format!("its value has {length} bytes, over {VALUE_BYTES_MAX}"));
            return Ok(());
        }
        writer.put(key, value, unmarked_expiry(meta.expires_at_ms), &mut refuse)
    }

    /// Stores the last records. Fails if the server has refused some.
    pub(crate) fn finish(&mut self, url: &RedisUrl) -> Result<()> {
        let Self { writer, progress, refused, .. } = self;
        writer.flush(&mut refusing(refused, progress))?;
        let stored = counted(writer.stored(), "record", "records");
        progress.print_result(&format!("{stored} stored in {url}"));
        match refused.count {
            0 => Ok(()),
            count => bail!(
                "{} not stored in {url}; everything else was",
                counted(count, "record was", "records were")
            ),
        }
    }
}
