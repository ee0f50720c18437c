//! Checkpoint writer: saves the index while other threads write to the log.

use crate::io::Open;
use crate::log::checkpoint::{
    BLOCK_HEADER_BYTES, Block, HEADER_BYTES, LINE_BYTES, MAGIC, NAME, VERSION, encode_block,
};
use crate::log::manifest::replace_with;
use crate::log::space::Unsealed;
use crate::log::stats::Timed;
use crate::log::writer::End;
use crate::log::{Log, error_at};
use crate::{LogPosition, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The last checkpoint that was begun.
#[derive(Default)]
pub(super) struct LastCheckpoint {
    /// Log position at which it was begun.
    position: AtomicU64,
    /// Number of the segment that was active then.
    number: AtomicU64,
    /// Whether a verification has found the checkpoint to be damaged.
    pub(super) is_suspected: AtomicBool,
    /// Checkpoints that were written since the log was opened.
    pub(super) written: Timed,
}

impl LastCheckpoint {
    /// Creates the record of a checkpoint that was begun at `position`, while segment `number` was
    /// active.
    pub(super) fn new(position: LogPosition, number: u64) -> Self {
        let (position, number) = (AtomicU64::new(position), AtomicU64::new(number));
        Self { position, number, ..Self::default() }
    }

    fn note_begun(&self, end: End) {
        self.position.store(end.position, Ordering::Relaxed);
        self.number.store(end.place.0, Ordering::Relaxed);
    }
}

impl Log {
    /// Writes a checkpoint. `blocks` passes the index's entries to its argument, block by block.
    pub(crate) fn write_checkpoint(
        &self,
        blocks: impl FnOnce(&mut dyn FnMut(&[u64]) -> Result<Block>) -> Result<()>,
    ) -> Result<()> {
        // Until the checkpoint is written, no segment is removed, so no slot changes its meaning.
        let _maintenance = self.maintenance.pause();
        self.write_checkpoint_held(blocks)
    }

    /// Like [`Log::write_checkpoint`]. The caller holds `maintenance`.
    pub(crate) fn write_checkpoint_held(
        &self,
        blocks: impl FnOnce(&mut dyn FnMut(&[u64]) -> Result<Block>) -> Result<()>,
    ) -> Result<()> {
        let mut blocks = Some(blocks);
        let began = Instant::now();
        self.commit.check()?;
        // The checkpoint lists the segments. An opening that misses one writes it again.
        self.try_to_remove_emptied_held(Unsealed::Sync);
        // The sync at the end does not disturb writers for the pages of a frozen segment.
        self.seal_if_worth_it()?;
        self.cut_sealed()?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.database_id.id.to_le_bytes());
        let started = self.writer.closed_end();
        header[24..32].copy_from_slice(&started.next_sequence.to_le_bytes());
        header[32..40].copy_from_slice(&started.place.0.to_le_bytes());
        header[40..48].copy_from_slice(&started.place.1.to_le_bytes());
        let directory = self.segments.directory();
        let path = directory.path().join(NAME);
        replace_with(directory.storage(), directory.path(), NAME, &mut |file| {
            let failed = |error| error_at("write", &path, error);
            file.write_at(&header, 0).map_err(failed)?;
            let mut end = HEADER_BYTES as u64;
            let mut bytes = Vec::new();
            // `replace_with` calls this once.
            if let Some(blocks) = blocks.take() {
                blocks(&mut |entries| {
                    encode_block(&mut bytes, entries, self.database_id.salt);
                    file.write_at(&bytes, end).map_err(failed)?;
                    let offset = end + BLOCK_HEADER_BYTES as u64;
                    end += bytes.len() as u64;
                    Ok(Block { file: Arc::clone(file), offset })
                })?;
            }
            let lines = self.segment_lines();
            let mut tail = lines.clone();
            tail.extend_from_slice(&end.to_le_bytes());
            tail.extend_from_slice(&((lines.len() / LINE_BYTES) as u32).to_le_bytes());
            let sum = crc32c::crc32c_append(crc32c::crc32c(&header), &tail);
            tail.extend_from_slice(&sum.to_le_bytes());
            file.write_at(&tail, end).map_err(failed)?;
            // A mark would itself be an append since the checkpoint was begun.
            self.sync_with(false).map(|_| ())
        })?;
        self.maintenance.checkpoints.note_begun(started);
        self.maintenance.checkpoints.written.count_since(began);
        Ok(())
    }

    /// Returns the size of the last checkpoint, in bytes; 0 if there is none.
    pub(super) fn checkpoint_file_bytes(&self) -> u64 {
        let directory = self.segments.directory();
        let file = directory.storage().open(&directory.path().join(NAME), Open::Existing);
        file.and_then(|file| file.length()).unwrap_or(0)
    }

    fn segment_lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for segment in self.segments().iter() {
            for number in [
                segment.slot as u64,
                segment.number,
                segment.live_bytes.get(),
                segment.tombstone_bytes.load(Ordering::Relaxed),
                segment.next_expiry_ms.load(Ordering::Relaxed),
            ] {
                lines.extend_from_slice(&number.to_le_bytes());
            }
        }
        lines
    }

    /// Returns whether nothing was appended since the last checkpoint was begun.
    pub(crate) fn is_checkpointed(&self) -> bool {
        self.maintenance.checkpoints.position.load(Ordering::Relaxed) == self.appended()
    }

    /// Returns the number of bytes appended since the last checkpoint was begun.
    pub(crate) fn since_checkpoint(&self) -> u64 {
        let begun = self.maintenance.checkpoints.position.load(Ordering::Relaxed);
        self.appended().saturating_sub(begun)
    }

    /// Returns the number of segments begun since the last checkpoint was.
    pub(crate) fn segments_since_checkpoint(&self) -> u64 {
        let begun = self.maintenance.checkpoints.number.load(Ordering::Relaxed);
        self.active_number().saturating_sub(begun)
    }
}
