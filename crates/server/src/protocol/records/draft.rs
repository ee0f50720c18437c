//! Value writer: a value that is being received, before it is stored in a record.

use crate::ops::budget::Charge;
use crate::ops::long::LONG_BYTES_MIN;
use crate::ops::media_types::UNKNOWN;
use crate::ops::served::Served;
use crate::ops::spool::{Spool, Spooled};
use crate::protocol::records::{RecordsError, Result};
use cabinet::{Meta, Version};
use std::sync::Arc;

/// A value that is being received. It is in memory while it is short, then in a file.
pub struct Draft {
    served: Arc<Served>,
    kept: Vec<u8>,
    spool: Option<Spool>,
    charge: Charge,
    /// Record that the draft began with.
    pub(crate) base: Option<Base>,
}

/// A record without its value, as it was when a draft began with it.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// Length of the value, in bytes.
    pub(crate) bytes: u64,
    pub(crate) version: Version,
    pub(crate) meta: Meta,
    pub(crate) media_type: Option<String>,
}

impl Base {
    pub(crate) fn new(bytes: u64, version: Version, meta: Meta, media_type: &str) -> Self {
        let media_type = (media_type != UNKNOWN).then(|| media_type.to_owned());
        Self { bytes, version, meta, media_type }
    }
}

/// A complete value.
pub(crate) struct Fair {
    kept: Vec<u8>,
    spooled: Option<Spooled>,
    /// Charge for the bytes in memory.
    _charge: Charge,
}

impl Draft {
    pub(crate) fn new(served: &Arc<Served>) -> Self {
        Self {
            served: Arc::clone(served),
            kept: Vec::new(),
            spool: None,
            charge: Charge::none(&served.budget),
            base: None,
        }
    }

    /// Returns the length so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.spool.as_ref().map_or(self.kept.len() as u64, Spool::bytes)
    }

    /// Writes bytes at `offset`, after zeros if the value was shorter.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(RecordsError::TooLong)?;
        let config = &self.served.settings;
        if self.spool.is_none() && end >= LONG_BYTES_MIN as u64 {
            let spool = Spool::new(&self.served.database, &self.served.spool_budget).transpose()?;
            if let Some(mut spool) = spool {
                spool.write_at(&self.kept, 0)?;
                self.kept = Vec::new();
                self.charge.set(0);
                self.spool = Some(spool);
            }
        }
        let Some(spool) = &mut self.spool else {
            if end > config.request_bytes_max as u64 {
                return Err(RecordsError::TooLong);
            }
            let (start, end) = (offset as usize, end as usize);
            if self.kept.len() < end {
                if !self.charge.set(end) {
                    return Err(RecordsError::NoRoom);
                }
                self.kept.resize(end, 0);
            }
            self.kept[start..end].copy_from_slice(bytes);
            return Ok(());
        };
        if end > self.served.upload_bytes_max() as u64 {
            return Err(RecordsError::TooLong);
        }
        Ok(spool.write_at(bytes, offset)?)
    }

    /// Completes the value.
    pub(crate) fn finish(self) -> Result<Fair> {
        let Self { kept, spool, charge, .. } = self;
        Ok(Fair { kept, spooled: spool.map(Spool::finish).transpose()?, _charge: charge })
    }
}

impl Fair {
    pub(crate) fn value(&self) -> &[u8] {
        self.spooled.as_ref().map_or(&self.kept[..], Spooled::value)
    }
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Draft").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
