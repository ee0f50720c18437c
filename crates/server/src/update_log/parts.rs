//! Parts: files beside the log whose names are a prefix and a number.

use std::io;
use std::path::{Path, PathBuf};

/// Returns the files in a folder whose names begin with `prefix`, in ascending order of the numbers
/// that follow it.
pub(super) fn parts(folder: &Path, prefix: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut parts = Vec::new();
    for item in std::fs::read_dir(folder)? {
        let item = item?;
        let name = item.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            parts.push((number, item.path()));
        }
    }
    parts.sort_unstable();
    Ok(parts)
}
