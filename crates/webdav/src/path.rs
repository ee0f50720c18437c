//! Paths: maps them to keys and back.

use dav_server::davpath::DavPath;
use dav_server::fs::{FsError, FsResult};

/// Most parts of a path. The library walks folders with one call per level, and clients of other
/// protocols may have stored keys with thousands of parts.
pub const DEPTH_MAX: usize = 100;

/// Returns an error if the key of a file or folder has more parts than [`DEPTH_MAX`].
pub(crate) fn check_depth(key: &[u8]) -> FsResult<()> {
    let slashes = trimmed(key).iter().filter(|byte| **byte == b'/').count();
    if slashes < DEPTH_MAX { Ok(()) } else { Err(FsError::PathTooLong) }
}

/// Returns the key of the file at a path; empty for the root.
pub(crate) fn file_key(path: &DavPath) -> &[u8] {
    trimmed(path.as_bytes())
}

/// Returns a key or a path without leading and trailing slashes.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Returns the key of the folder with the name of a file; empty for the root.
pub(crate) fn folder_key(file: &[u8]) -> Vec<u8> {
    if file.is_empty() { Vec::new() } else { [file, b"/"].concat() }
}

/// Returns the key of the parent folder of a file, or of a folder without its slash.
pub(crate) fn parent_key(file: &[u8]) -> &[u8] {
    let end = file.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    &file[..end]
}

/// Relation of a key to a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location<'k> {
    /// The folder itself, or a key to which no path leads.
    Nothing,
    /// A file with this name.
    File(&'k [u8]),
    /// A folder with this name, or something in it.
    Folder(&'k [u8]),
}

/// Returns the relation of a key to a folder whose key is its prefix.
pub(crate) fn location<'k>(folder: &[u8], key: &'k [u8]) -> Location<'k> {
    let rest = key.get(folder.len()..).unwrap_or_default();
    let slash = rest.iter().position(|byte| *byte == b'/');
    let name = &rest[..slash.unwrap_or(rest.len())];
    match (name, slash) {
        (b"" | b"." | b"..", _) => Location::Nothing,
        (name, _) if name.contains(&0) => Location::Nothing,
        (name, None) => Location::File(name),
        (name, Some(_)) => Location::Folder(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths_without_the_leading_slash() {
        let path = |text| DavPath::new(text).expect("a path");
        assert_eq!(file_key(&path("/a/b%20c.txt")), b"a/b c.txt");
        assert_eq!(file_key(&path("/a/b/")), b"a/b");
        assert_eq!(file_key(&path("/")), b"");
        assert_eq!(folder_key(b"a/b"), b"a/b/");
        assert_eq!(folder_key(b""), b"");
        assert_eq!(parent_key(b"a/b/c"), b"a/b/");
        assert_eq!(parent_key(b"a"), b"");
    }

    #[test]
    fn a_folder_lists_only_keys_that_paths_reach() {
        for (folder, key, expected) in [
            ("", "a", Location::File(b"a")),
            ("", "a/b/c", Location::Folder(b"a")),
            ("a/", "a/", Location::Nothing),
            ("a/", "a/b", Location::File(b"b")),
            ("a/", "a/b/", Location::Folder(b"b")),
            ("a/", "a//b", Location::Nothing),
            ("", "/a", Location::Nothing),
            ("", "../a", Location::Nothing),
            ("", ".", Location::Nothing),
            ("", "a\0b", Location::Nothing),
        ] {
            assert_eq!(location(folder.as_bytes(), key.as_bytes()), expected, "{folder} {key}");
        }
    }
}
