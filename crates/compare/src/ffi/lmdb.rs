//! Opening of LMDB, whose crate requires promises of the caller.

use heed::{Env, EnvFlags, EnvOpenOptions, Result};
use std::path::Path;

/// Opens an environment in a folder that no other process uses. Unless `synced`, commits are not
/// synced, so they survive only a crash of the process.
pub fn open(folder: &Path, map_bytes: usize, synced: bool) -> Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(map_bytes).max_readers(256);
    if !synced {
        // SAFETY: without syncs the file may be damaged by a power loss; these are throw-away
        // files that are not used after one.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: the mapped file is in a new folder of this run; nothing else changes it.
    unsafe { options.open(folder) }
}
