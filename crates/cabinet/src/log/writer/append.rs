//! Append path: adds records to the end of the log.

use super::Tail;
use crate::base::sync::MutexGuard;
use crate::limits::BATCH_LOG_BYTES_MAX;
use crate::log::Log;
use crate::log::record::{self, CHECKSUM_BYTES, Kind, Prepared, bind, bound_checksum};
use crate::log::segments::{Location, Lsn, SEGMENT_BYTES_MAX, Segment};
use crate::{Durability, Error, Result};

/// Reason for an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A writer that needs more space.
    Store,
    /// Compaction, which makes space. It may use half of the reserve.
    Move,
    /// A removal, which makes space. It may use all of the reserve.
    Remove,
}

/// Location and sequence number of an appended record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) location: Location,
    pub(crate) sequence: u64,
}

impl Log {
    /// Prepares a record of this log.
    #[inline]
    pub(crate) fn prepare<'a>(
        &self,
        kind: Kind,
        key: &'a [u8],
        value: &'a [u8],
        meta: crate::Meta,
        compression: crate::Compression,
    ) -> Prepared<'a> {
        Prepared::new(self.database_id.salt, kind, key, value, meta, compression)
    }

    /// Appends a record under the next sequence number.
    #[inline]
    pub(crate) fn append(&self, record: Prepared<'_>, purpose: Purpose) -> Result<Appended> {
        let total = record.total();
        let _change = self.space.begin_large_change(total);
        let mut tail = self.lock_tail_and_allocate(total, 0, purpose)?;
        let appended = self.writer.append_to(&mut tail, record, total)?;
        drop(tail);
        self.after_append();
        Ok(appended)
    }

    /// Appends a tombstone after the record that it removes. The tombstone holds the number of the
    /// segment in which it is born.
    pub(crate) fn append_tombstone(&self, key: &[u8], min_lsn: Lsn) -> Result<Appended> {
        // The active segment may change until the tail is locked, but only to a later one. The
        // removed record is in this one or before: the caller holds the key's lock.
        let birth = self.writer.active_number();
        self.append_tombstone_born_in(key, birth, min_lsn)
    }

    pub(crate) fn append_tombstone_born_in(
        &self,
        key: &[u8],
        birth: u64,
        min_lsn: Lsn,
    ) -> Result<Appended> {
        let birth = birth.to_le_bytes();
        let meta = crate::Meta::NONE;
        let none = crate::Compression::None;
        let record = self.prepare(Kind::Tombstone, key, &birth, meta, none);
        let total = record.total();
        let appended = self.append_after(record, Purpose::Remove, min_lsn)?;
        if let Some(segment) = self.segments().get(appended.location) {
            segment.add_tombstone(total);
        }
        Ok(appended)
    }

    /// Appends records as a batch: after a crash all of them are present, or none. Returns the place
    /// of each record, and its size in the log in bytes. The last record should be the longest,
    /// because all must begin within the reach of a [`Location`].
    pub(crate) fn append_batch<'r>(
        &self,
        records: &'r mut [Prepared<'_>],
        purpose: Purpose,
    ) -> Result<impl Iterator<Item = (Appended, usize)> + use<'r, '_>> {
        let inner: usize = records.iter().map(Prepared::total).sum();
        let last_at = inner - records.last().map_or(0, Prepared::total);
        if last_at > BATCH_LOG_BYTES_MAX || inner > record::RECORD_BYTES_MAX {
            return Err(Error::BatchTooLong { bytes: last_at, max: BATCH_LOG_BYTES_MAX });
        }
        let mut bytes = Vec::with_capacity(inner);
        let header_bytes_max = record::HEADER_BYTES_MAX.next_multiple_of(record::ALIGNMENT);
        let most = header_bytes_max + inner;
        let _change = self.space.begin_large_change(most);
        let mut tail = self.lock_tail_and_allocate(most, header_bytes_max + last_at, purpose)?;
        let first = tail.next_sequence;
        for (record, sequence) in records.iter_mut().zip(first + 1..) {
            record.write_to(sequence, &mut bytes);
        }
        // A key of zeros aligns the records after the header.
        let probe = self.prepare_batch(&[], &bytes);
        let padding = [0u8; record::ALIGNMENT];
        let padding = &padding[..probe.padding_to_align_value()];
        let total = self.prepare_batch(padding, &bytes).total();
        let start = tail.appender.end() + (total - inner);
        let mut offset = 0;
        for record in records.iter() {
            bind(&mut bytes[offset..], tail.segment.binding.mask(start + offset));
            offset += record.total();
        }
        let mut batch = self.prepare_batch(padding, &bytes);
        let mask = tail.mask();
        let location = self.writer.write_record(&mut tail, &batch.seal(first, mask), total)?;
        tail.next_sequence = first + 1 + records.len() as u64;
        tail.has_changes = true;
        drop(tail);
        self.after_append();
        let mut next = start;
        Ok(records.iter().zip(first + 1..).map(move |(record, sequence)| {
            let location = Location::new(location.slot(), next);
            next += record.total();
            (Appended { location, sequence }, record.total())
        }))
    }

    fn prepare_batch<'a>(&self, padding: &'a [u8], records: &'a [u8]) -> Prepared<'a> {
        self.prepare(Kind::Batch, padding, records, crate::Meta::NONE, crate::Compression::None)
    }

    /// Appends a copy of a whole record at this offset of another segment.
    pub(crate) fn append_copy(
        &self,
        segment: &Segment,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Location> {
        let _change = self.space.begin_large_change(bytes.len());
        let mut tail = self.lock_tail_and_allocate(bytes.len(), 0, Purpose::Move)?;
        let mask = segment.binding.mask(offset) ^ tail.mask();
        let parts = [&bound_checksum(bytes, mask)[..], &bytes[CHECKSUM_BYTES..]];
        let location = self.writer.write_record(&mut tail, &parts, bytes.len())?;
        tail.has_changes = true;
        drop(tail);
        self.after_append();
        Ok(location)
    }

    /// Calls `note` with the LSN at which the next record will be appended. Everything older has
    /// been appended, and nothing is appended while `note` runs.
    pub(crate) fn at_end(&self, note: impl FnOnce(Lsn)) {
        let _closed = self.writer.close_blocks();
        let tail = self.writer.lock();
        let (number, end) = (tail.segment.number, tail.appender.end());
        // After a large record, another record may be out of reach of a [`Location`].
        let is_in_reach = end < SEGMENT_BYTES_MAX;
        note(if is_in_reach { Lsn::new(number, end) } else { Lsn::new(number + 1, 0) });
    }

    /// Locks the tail and allocates `total` bytes, of which the last record begins at `last_at`.
    #[inline]
    fn lock_tail_and_allocate(
        &self,
        total: usize,
        last_at: usize,
        purpose: Purpose,
    ) -> Result<MutexGuard<'_, Tail>> {
        let mut tail = self.writer.lock();
        if self.allocate_for(&mut tail, total, last_at, purpose, None)? {
            return Ok(tail);
        }
        // Another segment is needed. It can be begun only when all append blocks are closed.
        drop(tail);
        let closed = self.writer.close_blocks();
        let mut tail = self.writer.lock();
        self.allocate_for(&mut tail, total, last_at, purpose, Some(&closed))?;
        Ok(tail)
    }

    #[inline]
    fn after_append(&self) {
        if self.settings.durability == Durability::Always {
            self.commit.nudge();
        }
    }
}
