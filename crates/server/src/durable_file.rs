//! Small files that are replaced as a whole.

use cabinet::files::{folder_of, sync_folder};
use std::fs::{File, rename};
use std::io::{Result, Write};
use std::path::Path;

/// Replaces a file, or makes it, durably. A kill or a power failure leaves the old content or the
/// new one. The new file is written under the same name with the extension `.new` added.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    rename(&new, path)?;
    sync_folder(folder_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_and_replaced_and_no_other_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        for content in [&b"long content"[..], b"", b"new"] {
            replace(&path, content).expect("room");
            assert_eq!(std::fs::read(&path).expect("a file"), content);
            assert_eq!(folder.path().read_dir().expect("a folder").count(), 1);
        }
        assert!(replace(&folder.path().join("none/file"), b"").is_err());
    }
}
