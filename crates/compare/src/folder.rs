//! Disk use of a folder.

use std::io;
use std::path::Path;

/// Sizes of all files below a folder, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Blocks allocated, as `du` counts them.
    pub allocated: u64,
    /// Lengths of the files, as `ls` shows them.
    pub apparent: u64,
}

/// Returns the space that the files below `folder` use. A file that is removed meanwhile counts as
/// 0.
pub fn usage(folder: &Path) -> io::Result<DiskUse> {
    use std::os::unix::fs::MetadataExt as _;
    let mut total = DiskUse::default();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let below = usage(&entry.path())?;
                total.allocated += below.allocated;
                total.apparent += below.apparent;
            }
            Ok(metadata) => {
                total.allocated += metadata.blocks() * 512;
                total.apparent += metadata.len();
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_folders_below_count_and_holes_are_not_allocated() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let file = std::fs::File::create(folder.path().join("below/holes")).unwrap();
        file.set_len(1 << 20).unwrap();
        std::fs::write(folder.path().join("full"), vec![1; 8192]).unwrap();
        let usage = usage(folder.path()).unwrap();
        assert_eq!(usage.apparent, (1 << 20) + 8192);
        assert!(usage.allocated < 1 << 20, "{}", usage.allocated);
    }
}
