//! Paths and keys.

use dav_server::davpath::DavPath;
use dav_server::fs::{FsError, FsResult};

/// Most parts of a path. The library goes through folders by a call for each level, and others may
/// have made keys with thousands.
pub const DEPTH_MAX: usize = 100;

/// Fails if a key, of a file or a folder, is below too many folders.
pub(crate) fn check_depth(key: &[u8]) -> FsResult<()> {
    let slashes = trimmed(key).iter().filter(|byte| **byte == b'/').count();
    if slashes < DEPTH_MAX { Ok(()) } else { Err(FsError::PathTooLong) }
}

/// Key of the file at a path; empty at the top.
pub(crate) fn file_key(path: &DavPath) -> &[u8] {
    trimmed(path.as_bytes())
}

/// A key or a path without the slashes around it.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Key of the folder that would be at the key of a file; empty at the top.
pub(crate) fn folder_key(file: &[u8]) -> Vec<u8> {
    if file.is_empty() { Vec::new() } else { [file, b"/"].concat() }
}

/// Key of the folder that a file, or a folder without its slash, is in.
pub(crate) fn parent_key(file: &[u8]) -> &[u8] {
    let end = file.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    &file[..end]
}

/// What a key is in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within<'k> {
    /// The folder itself, or what no path leads to.
    Nothing,
    /// A file of this name.
    File(&'k [u8]),
    /// A folder of this name, or something in it.
    Folder(&'k [u8]),
}

/// What a key that begins with that of a folder is in it.
pub(crate) fn within<'k>(folder: &[u8], key: &'k [u8]) -> Within<'k> {
    let rest = key.get(folder.len()..).unwrap_or_default();
    let slash = rest.iter().position(|byte| *byte == b'/');
    let name = &rest[..slash.unwrap_or(rest.len())];
    match (name, slash) {
        (b"" | b"." | b"..", _) => Within::Nothing,
        (name, _) if name.contains(&0) => Within::Nothing,
        (name, None) => Within::File(name),
        (name, Some(_)) => Within::Folder(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths_without_the_first_slash() {
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
    fn a_folder_shows_what_a_path_leads_to() {
        for (folder, key, expected) in [
            ("", "a", Within::File(b"a")),
            ("", "a/b/c", Within::Folder(b"a")),
            ("a/", "a/", Within::Nothing),
            ("a/", "a/b", Within::File(b"b")),
            ("a/", "a/b/", Within::Folder(b"b")),
            ("a/", "a//b", Within::Nothing),
            ("", "/a", Within::Nothing),
            ("", "../a", Within::Nothing),
            ("", ".", Within::Nothing),
            ("", "a\0b", Within::Nothing),
        ] {
            assert_eq!(within(folder.as_bytes(), key.as_bytes()), expected, "{folder} {key}");
        }
    }
}
