//! Kept-aside files: hold bytes that an opening could not use, for later inspection.

use super::Recovery;
use super::holes::Hole;
use crate::io::{Open, read_around};
use crate::log::error_at;
use crate::log::record::BLOCK_BYTES_MAX;
use crate::log::segments::{Segment, segment_path};
use crate::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};

/// Part of the names of files that hold bytes that an opening could not read.
pub(in crate::log) const DAMAGED_INFIX: &str = ".log.damaged";

/// Number of files with bytes lost with the power that are kept, the newest ones.
const LOST_FILES_MAX: usize = 8;

impl Recovery {
    /// Renames a file so that it is not in the way of later ones.
    pub(super) fn set_aside(&self, path: &Path, extension: &str) -> Result<()> {
        let failed = |error| error_at("rename", path, error);
        let aside = path.with_extension("").with_extension(extension);
        let aside = self.free_name(&aside).map_err(failed)?;
        self.storage.rename(path, &aside).map_err(failed)
    }

    /// Returns a free file name: `path`, or one that begins with it.
    fn free_name(&self, path: &Path) -> io::Result<PathBuf> {
        let names = self.storage.list(&self.directory)?;
        let is_free = |path: &Path| {
            !names.iter().any(|name| path.file_name().is_some_and(|own| own == name.as_str()))
        };
        let mut free = path.to_owned();
        let mut count = 1;
        while !is_free(&free) {
            count += 1;
            let mut name = path.as_os_str().to_owned();
            name.push(format!("-{count}"));
            free = name.into();
        }
        Ok(free)
    }

    /// Keeps aside bytes that were lost with the power, if there is space. They were never
    /// promised. So they must not use the space of a capped log, nor prevent the opening on a full
    /// disk.
    pub(super) fn keep_lost(&self, segment: &Segment, hole: &Hole, is_last: bool) -> Result<()> {
        if self.settings.capacity_bytes != 0 {
            return Ok(());
        }
        match self.keep_aside(segment, hole, "lost") {
            // In an earlier segment, records in later ones could depend on the lost ones.
            Err(Error::NoSpace { path }) if is_last => {
                tracing::warn!("there is no space to keep {} aside", path.display());
            }
            result => result?,
        }
        self.remove_old_losses()
    }

    /// Removes files with bytes lost with the power, except for the newest [`LOST_FILES_MAX`].
    pub(super) fn remove_old_losses(&self) -> Result<()> {
        let failed = |error| error_at("list", &self.directory, error);
        let mut lost = self.storage.list(&self.directory).map_err(failed)?;
        lost.retain(|name| name.contains(".log.lost"));
        lost.sort_unstable();
        let surplus = lost.len().saturating_sub(LOST_FILES_MAX);
        for name in &lost[..surplus] {
            let path = self.directory.join(name);
            self.storage.remove(&path).map_err(|error| error_at("remove", &path, error))?;
        }
        Ok(())
    }

    /// Copies the bytes of a hole, as far as they exist, into a file of their own.
    pub(super) fn keep_aside(&self, segment: &Segment, hole: &Hole, infix: &str) -> Result<()> {
        let failed = |error| error_at("keep a part aside of", &segment.path, error);
        let name = format!("log.{infix}-{}", hole.offset);
        let aside = segment_path(&self.directory, segment.number).with_extension("");
        let aside = self.free_name(&aside.with_extension(name)).map_err(failed)?;
        let copy = self.storage.open(&aside, Open::New).map_err(failed)?;
        let mut buffer = vec![0; BLOCK_BYTES_MAX];
        let mut at = 0;
        while at < hole.bytes {
            let want = usize::try_from(hole.bytes - at).unwrap_or(usize::MAX).min(buffer.len());
            let (piece, offset) = (&mut buffer[..want], hole.offset + at);
            match read_around(&*segment.file, piece, offset, &mut Vec::new()).map_err(failed)? {
                0 => break,
                count => {
                    copy.write_at(&buffer[..count], at).map_err(failed)?;
                    at += count as u64;
                }
            }
        }
        copy.sync().map_err(failed)?;
        self.storage.sync_dir(&self.directory).map_err(failed)
    }
}
