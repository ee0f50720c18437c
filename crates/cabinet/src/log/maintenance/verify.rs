//! Verification: checks every checksum of a log that is in use.
//!
//! Segments are read from one end to the other, at a bounded rate, without a lock. Sealed segments
//! do not change; of the active one, only the records that were complete at the beginning are read.
//! A segment that is compacted meanwhile stays readable, and damage in it no longer matters. Pages
//! that were not in the page cache before do not stay there, so that records in use stay cached.

use crate::log::checkpoint::{self, Checkpoint};
use crate::log::scan::{ScanError, UNWRITTEN};
use crate::log::segments::{Cold, Segment, read_header};
use crate::log::{Log, error_at, manifest};
use crate::{Damage, Error, GoOn, Result, Verified};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes between two checks of the clock, and between two calls of `go_on`.
const STEP_BYTES: u64 = 256 << 10;

/// Longest time without a call of `go_on`.
const NAP_MAX: Duration = Duration::from_millis(100);

/// Bytes that are announced to the operating system before they are read.
const AHEAD_BYTES: u64 = 2 << 20;

/// Progress of a verification.
struct Run<'r> {
    verified: Verified,
    /// Bytes since the last check of the clock.
    unpaced: u64,
    /// Time at which the bytes before those were due to be done.
    due: Instant,
    go_on: &'r mut GoOn<'r>,
    report: &'r mut dyn FnMut(Damage),
}

impl Run<'_> {
    /// Counts bytes, and waits if they came too soon. Returns whether to continue.
    fn spend(&mut self, bytes: u64) -> bool {
        self.unpaced += bytes;
        if self.unpaced < STEP_BYTES {
            return true;
        }
        let Some(rate) = (self.go_on)(&self.verified) else { return false };
        // Lost time beyond `NAP_MAX` is not made up for.
        let start = self.due.max(Instant::now().checked_sub(NAP_MAX).unwrap_or(self.due));
        self.due = start + Duration::from_secs_f64(self.unpaced as f64 / rate.max(1) as f64);
        self.unpaced = 0;
        loop {
            let early = self.due.saturating_duration_since(Instant::now());
            if early.is_zero() {
                return true;
            }
            std::thread::sleep(early.min(NAP_MAX));
            if (self.go_on)(&self.verified).is_none() {
                return false;
            }
        }
    }

    fn report(&mut self, damage: Damage) {
        self.verified.checked.damages += 1;
        (self.report)(damage);
    }
}

impl Log {
    /// Verifies the log, see [`crate::Database::verify`].
    pub(in crate::log) fn verify<'r>(
        &self,
        go_on: &'r mut GoOn<'r>,
        report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified> {
        let verified = Verified::default();
        let mut run = Run { verified, unpaced: 0, due: Instant::now(), go_on, report };
        self.verify_small_files(&mut run)?;
        let mut is_complete = true;
        for segment in self.segments().in_order() {
            is_complete = is_complete && self.verify_segment(&segment, &mut run)?;
        }
        run.verified.is_complete = is_complete;
        Ok(run.verified)
    }

    /// Verifies the manifest and the checkpoint.
    fn verify_small_files(&self, run: &mut Run<'_>) -> Result<()> {
        let storage = self.segments.directory().storage();
        let manifest = || manifest::read(storage, self.directory()).map(|_| ());
        let read_checkpoint = || {
            let checkpoint = Checkpoint::read(storage, self.directory(), &self.database_id)?;
            if let Some(mut checkpoint) = checkpoint {
                while checkpoint.next_block()?.is_some() {}
            }
            Ok(())
        };
        for verified in [manifest(), read_checkpoint()] {
            match verified {
                Err(Error::Corrupted { file, offset, what }) => {
                    tracing::error!("{} is damaged at byte {offset}: {what}", file.display());
                    if file.ends_with(checkpoint::NAME) {
                        self.maintenance.suspect_checkpoint(true);
                    }
                    run.report(Damage { file, offset, what });
                }
                verified => verified?,
            }
        }
        Ok(())
    }

    /// Returns the current end of the records of a segment, in bytes.
    fn end_of(&self, segment: &Arc<Segment>) -> u64 {
        if segment.is_sealed() {
            return segment.bytes();
        }
        // Closes the append blocks, because an open one would end the scan.
        match self.writer.closed_end().place {
            (number, offset) if number == segment.number => offset,
            _ => segment.bytes(),
        }
    }

    /// Verifies a segment. Returns whether to continue with the next.
    fn verify_segment(&self, segment: &Arc<Segment>, run: &mut Run<'_>) -> Result<bool> {
        let is_present = || self.segments().has(segment);
        if !is_present() {
            return Ok(true);
        }
        let found = |run: &mut Run<'_>, offset: u64, what: &str| {
            if is_present() {
                segment.note_fault(offset, what);
                run.report(Damage { file: segment.path.clone(), offset, what: what.into() });
            }
        };
        if segment.is_missing {
            found(run, 0, "the segment is missing");
            return Ok(true);
        }
        let end = self.end_of(segment);
        let mut cold = Cold::of(segment);
        match read_header(&*segment.file, &self.database_id).map(|found| found.header) {
            Ok(Ok(header)) if header.number == segment.number => {}
            Ok(Ok(_)) => found(run, 0, "it is another segment"),
            Ok(Err(what)) => found(run, 0, what),
            Err(error) => found(run, 0, &format!("it cannot be read: {error}")),
        }
        run.verified.checked.segments += 1;
        let mut scanner = segment.scanner(0, end);
        let mut announced = 0;
        loop {
            let before = scanner.offset();
            if announced < before + AHEAD_BYTES / 2 {
                announced = before + AHEAD_BYTES;
                segment.file.will_read(before, AHEAD_BYTES);
            }
            let next = scanner.next(&mut |_, _, bytes| {
                run.verified.checked.records += 1;
                run.verified.checked.bytes += bytes.len() as u64;
                Ok(())
            });
            let goes_on = match next {
                Ok(Ok(goes_on)) => goes_on,
                Ok(Err(stop)) => {
                    let goes_on = scanner.find_next();
                    // A killed process leaves zeros at the end.
                    let is_tail = stop.what.is_none() && matches!(goes_on, Ok(false));
                    if !is_tail {
                        found(run, stop.offset, stop.what.unwrap_or(UNWRITTEN));
                    }
                    goes_on.map_err(|error| error_at("read", &segment.path, error))?
                }
                // An unreadable disk block is damage, and the next segment may be whole.
                Err(ScanError::Read(error)) => {
                    found(run, before, &format!("it cannot be read: {error}"));
                    false
                }
                Err(ScanError::Visit(error)) => return Err(error),
            };
            cold.forget(scanner.offset());
            let is_wanted = run.spend(scanner.offset() - before);
            if !goes_on || !is_wanted {
                return Ok(is_wanted);
            }
        }
    }
}
