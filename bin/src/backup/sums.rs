//! Sums over a file: detect changes and locate damage.

use crate::plural::counted;
use anyhow::{Context, Result};
use cabinet::files::open_file;
use std::io::Read;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Bytes covered by one checksum.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// Sums over a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Length of the file.
    pub(crate) bytes: u64,
    /// XXH3 with 128 bits, seeded by the repository.
    pub(super) digest: u128,
    /// CRC-32C of each [`BLOCK_BYTES`], the last of which may be shorter.
    pub(super) blocks: Vec<u32>,
}

/// Sums of the blocks added so far.
pub(super) struct SumsBuilder {
    hasher: Box<Xxh3>,
    bytes: u64,
    blocks: Vec<u32>,
}

impl SumsBuilder {
    pub(super) fn new(seed: u64) -> Self {
        Self { hasher: Box::new(Xxh3::with_seed(seed)), bytes: 0, blocks: Vec::new() }
    }

    /// Adds a block. Returns its index and its checksum.
    pub(super) fn add(&mut self, block: &[u8]) -> (usize, u32) {
        let checksum = crc32c::crc32c(block);
        self.hasher.update(block);
        self.bytes += block.len() as u64;
        self.blocks.push(checksum);
        (self.blocks.len() - 1, checksum)
    }

    pub(super) fn finish(self) -> Sums {
        Sums { bytes: self.bytes, digest: self.hasher.digest128(), blocks: self.blocks }
    }
}

/// Calls `visit` with the blocks of a file.
pub(super) fn read_blocks(path: &Path, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let mut file = open_file(path).with_context(failed)?;
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    loop {
        block.clear();
        file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block).with_context(failed)?;
        if block.is_empty() {
            return Ok(());
        }
        visit(&block)?;
    }
}

/// Returns the sums of a file.
pub(super) fn sums_of(path: &Path, seed: u64) -> Result<Sums> {
    let mut summing = SumsBuilder::new(seed);
    read_blocks(path, &mut |block| {
        summing.add(block);
        Ok(())
    })?;
    Ok(summing.finish())
}

/// Calls `visit` with the blocks of a file while they match these sums. Returns the offset of the
/// first mismatch and its description, if there is one.
pub(super) fn read_expected(
    path: &Path,
    seed: u64,
    expected: &Sums,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Option<(u64, String)>> {
    if !path.exists() {
        return Ok(Some((0, "the file is missing".into())));
    }
    let mut summing = SumsBuilder::new(seed);
    let mut wrong = None;
    read_blocks(path, &mut |block| {
        let offset = summing.bytes;
        let (index, checksum) = summing.add(block);
        if wrong.is_some() {
            return Ok(());
        }
        if offset + block.len() as u64 > expected.bytes {
            let what =
                format!("it is longer than its {}", counted(expected.bytes, "byte", "bytes"));
            wrong = Some((expected.bytes, what));
        } else if expected.blocks.get(index) != Some(&checksum) {
            let bytes = counted(block.len(), "byte", "bytes");
            let what = format!("the checksum of {bytes} does not match");
            wrong = Some((offset, what));
        } else {
            visit(block)?;
        }
        Ok(())
    })?;
    let found = summing.finish();
    if found.bytes < expected.bytes {
        let written = counted(expected.bytes, "byte was written", "bytes were written");
        let what = format!("{written}, and {} found", found.bytes);
        return Ok(Some((found.bytes, what)));
    }
    if wrong.is_none() && found != *expected {
        wrong = Some((0, "the digest does not match".into()));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_reported_at_its_offset() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let whole: Vec<u8> = (0..2 * BLOCK_BYTES + 5).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &whole).unwrap();
        let sums = sums_of(&path, 7).unwrap();
        assert_eq!(sums.blocks.len(), 3);
        let look = || {
            let mut seen = Vec::new();
            let wrong = read_expected(&path, 7, &sums, &mut |block| {
                seen.extend_from_slice(block);
                Ok(())
            });
            (wrong.unwrap().map(|(offset, _)| offset), seen)
        };
        assert_eq!(look(), (None, whole.clone()));
        assert_ne!(sums_of(&path, 8).unwrap().digest, sums.digest);
        let mut damaged = whole.clone();
        damaged[BLOCK_BYTES + 9] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(look(), (Some(BLOCK_BYTES as u64), whole[..BLOCK_BYTES].to_vec()));
        std::fs::write(&path, &whole[..BLOCK_BYTES]).unwrap();
        assert_eq!(look().0, Some(BLOCK_BYTES as u64));
        std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert_eq!(look().0, Some(whole.len() as u64));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(look().0, Some(0));
    }
}
