//! Reading a log's files without opening it: every checksum, and everything that can be read.

use super::checkpoint::Checkpoint;
use super::manifest::{self, Nature};
use super::record::Record;
use super::scan::{ScanError, Scanner};
use super::segment::{
    SEGMENT_HEADER_BYTES, SegmentHeader, read_header, segment_number, segment_path,
};
use super::{Identity, error_at};
use crate::io::{File, Open, Storage};
use crate::{Damage, Error, Result};
use std::io;
use std::path::Path;
use std::sync::Arc;

const LOCK: &str = "lock";

/// What is done with each record that can be read, in the order of the log.
pub(crate) type VisitRecord<'v> = dyn FnMut(&Record<'_>) -> Result<()> + 'v;

/// What a walk through a log met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) segments: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Bytes of records that were being appended at the end: the next opening drops them.
    pub(crate) torn_bytes: u64,
}

/// A log that is only looked at. While it is, nobody can open it.
pub(crate) struct Files<'s> {
    storage: &'s dyn Storage,
    directory: &'s Path,
    identity: Identity,
    pub(crate) nature: Nature,
    numbers: Vec<u64>,
    _lock: Option<Lock>,
}

/// Keeps others from opening a database.
pub(super) type Lock = Box<dyn std::any::Any + Send + Sync>;

/// Locks a database with these files, to look at it only. No process has it open if there is nothing
/// to lock, and then nothing is made.
pub(super) fn lock_to_look(
    storage: &dyn Storage,
    directory: &Path,
    names: &[String],
) -> Result<Option<Lock>> {
    if !names.iter().any(|name| name == LOCK) {
        return Ok(None);
    }
    storage.lock(&directory.join(LOCK)).map(Some).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::InUse { path: directory.to_owned() },
        _ => error_at("lock", directory, error),
    })
}

impl<'s> Files<'s> {
    pub(crate) fn open(storage: &'s dyn Storage, directory: &'s Path) -> Result<Self> {
        let names = storage.list(directory).map_err(|error| error_at("list", directory, error))?;
        let lock = lock_to_look(storage, directory, &names)?;
        let Some((identity, nature)) = manifest::read(storage, directory)? else {
            return Err(error_at("open", directory, io::ErrorKind::NotFound.into()));
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        Ok(Self { storage, directory, identity, nature, numbers, _lock: lock })
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The numbers of its segments, in their order.
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Checks the checkpoint, if there is one.
    pub(crate) fn check_checkpoint(&self, report: &mut dyn FnMut(Damage)) -> Result<()> {
        let check = || {
            if let Some(mut checkpoint) =
                Checkpoint::read(self.storage, self.directory, &self.identity)?
            {
                while checkpoint.next_block()?.is_some() {}
            }
            Ok(())
        };
        match check() {
            Err(Error::Corrupted { file, offset, what }) => {
                report(Damage { file, offset, what });
                Ok(())
            }
            result => result,
        }
    }

    /// Shows every record that can be read of the segments whose numbers are `wanted` to `visit`, and
    /// what cannot to `report`; headers are looked at in all.
    pub(crate) fn walk_those(
        &self,
        wanted: &dyn Fn(u64) -> bool,
        visit: &mut VisitRecord<'_>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<Walked> {
        let mut walked = Walked::default();
        let mut opened = Vec::new();
        for &number in &self.numbers {
            let path = segment_path(self.directory, number);
            let failed = |error| error_at("read", &path, error);
            let file = self.storage.open(&path, Open::Existing).map_err(failed)?;
            let bytes = read_header(&*file).map_err(failed)?;
            let header = SegmentHeader::decode(&bytes, &self.identity).and_then(|header| {
                if header.number == number { Ok(header) } else { Err("it is another segment") }
            });
            match &header {
                Err(what) if number == *self.numbers.last().unwrap_or(&0) => {
                    tracing::info!("{}: {what}: it was being begun", path.display());
                }
                Err(what) => report(Damage { file: path, offset: 0, what: (*what).into() }),
                Ok(_) => {}
            }
            opened.push((number, file, header));
        }
        // What is before the last segment that clears is void.
        let first = opened
            .iter()
            .rposition(|(_, _, header)| header.is_ok_and(|header| header.clears))
            .unwrap_or(0);
        for index in first..opened.len() {
            let (number, file, _) = &opened[index];
            if !wanted(*number) {
                continue;
            }
            let path = segment_path(self.directory, *number);
            let length = file.length().map_err(|error| error_at("read", &path, error))?;
            let next = opened.get(index + 1).and_then(|(_, _, header)| header.ok());
            let told = next
                .filter(|next| next.number == number + 1 && next.previous_bytes != 0)
                .map(|next| next.previous_bytes);
            if let Some(told) = told
                && told > length
            {
                let what = format!("{told} bytes were written, {length} are there");
                report(Damage { file: path.clone(), offset: length, what });
            }
            walked.segments += 1;
            let segment = OneSegment {
                file: Arc::clone(file),
                path: &path,
                end: told.unwrap_or(length).min(length),
                is_last: index + 1 == opened.len(),
            };
            self.walk_segment(&segment, &mut walked, visit, report)?;
        }
        Ok(walked)
    }

    fn walk_segment(
        &self,
        segment: &OneSegment<'_>,
        walked: &mut Walked,
        visit: &mut VisitRecord<'_>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<()> {
        let start = SEGMENT_HEADER_BYTES as u64;
        let mut scanner =
            Scanner::new(Arc::clone(&segment.file), self.identity.salt, start, segment.end);
        let failed = |error| match error {
            ScanError::Read(error) => error_at("read", segment.path, error),
            ScanError::Visit(error) => error,
        };
        loop {
            let mut each = |_, record: &Record<'_>, bytes: &[u8]| {
                walked.records += 1;
                walked.bytes += bytes.len() as u64;
                visit(record)
            };
            let stop = match scanner.next(&mut each).map_err(failed)? {
                Ok(true) => continue,
                Ok(false) => return Ok(()),
                Err(stop) => stop,
            };
            // A process that was killed leaves blocks that it had not filled.
            if let (Some(block_end), true) = (stop.block_end, segment.is_last) {
                if stop.what.is_some() {
                    walked.torn_bytes += block_end - stop.offset;
                }
                scanner.leave_block();
                continue;
            }
            let goes_on = scanner.find_next().map_err(|error| failed(error.into()))?;
            match stop.what {
                // What was allocated and not used.
                None if segment.is_last && !goes_on => return Ok(()),
                Some(_) if segment.is_last && !goes_on => {
                    walked.torn_bytes += segment.end - stop.offset;
                    return Ok(());
                }
                what => report(Damage {
                    file: segment.path.to_owned(),
                    offset: stop.offset,
                    what: what.unwrap_or("nothing is written where a record should be").into(),
                }),
            }
            if !goes_on {
                return Ok(());
            }
        }
    }
}

struct OneSegment<'p> {
    file: Arc<dyn File>,
    path: &'p Path,
    /// Where its records end, as far as that is known.
    end: u64,
    is_last: bool,
}
