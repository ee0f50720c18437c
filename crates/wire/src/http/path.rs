//! Paths: targets and keys of records that are files in folders.
//!
//! A path is the target without scheme, host and query. Its parts are percent-decoded; a `+` is a
//! plus sign. Empty parts and `.` are removed, and `..` removes the part before it.

use super::url::{encode, unescape};

/// Error of a target that is not a path: it has a slash or a zero byte within a part, leads above
/// the top, does not begin with a slash, or has a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPath;

/// Returns the key of the file or of the folder at a target. The key of a folder ends in a slash,
/// that of the top is empty.
///
/// # Errors
///
/// If the target is not a path.
pub fn path_key(target: &[u8]) -> Result<Vec<u8>, NotAPath> {
    let authority = authority(target);
    let path =
        authority.map_or(target, |authority| &target[end_of_scheme(target) + authority.len()..]);
    if path.contains(&b'#') {
        return Err(NotAPath);
    }
    let end = path.iter().position(|byte| *byte == b'?').unwrap_or(path.len());
    let path = match &path[..end] {
        b"" if authority.is_some() => b"/",
        path => path,
    };
    let mut parts = Vec::new();
    for part in path.strip_prefix(b"/").ok_or(NotAPath)?.split(|byte| *byte == b'/') {
        let part = unescape(part);
        match &*part {
            b"" | b"." => {}
            b".." => drop(parts.pop().ok_or(NotAPath)?),
            part if part.contains(&b'/') || part.contains(&0) => return Err(NotAPath),
            _ => parts.push(part),
        }
    }
    let mut key = parts.join(&b'/');
    if path.ends_with(b"/") && !key.is_empty() {
        key.push(b'/');
    }
    Ok(key)
}

/// Returns the target of a key in a form that every parser of targets reads alike.
pub fn path_target(key: &[u8]) -> String {
    let mut target = Vec::with_capacity(key.len() + 1);
    for part in key.split(|byte| *byte == b'/') {
        target.push(b'/');
        encode(&mut target, part);
    }
    // Encoded bytes are ASCII.
    String::from_utf8_lossy(&target).into_owned()
}

/// Returns the authority (host and port) of a target or of a reference in a header, if it has one.
pub fn authority(target: &[u8]) -> Option<&[u8]> {
    let start = end_of_scheme(target);
    let rest = target.get(start..).filter(|_| start > 0)?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// Returns the end of the scheme, 0 if there is none.
fn end_of_scheme(target: &[u8]) -> usize {
    let is = |scheme: &&str| {
        let begin = target.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme.as_bytes()))
    };
    ["http://", "https://"].into_iter().find(is).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_key_of_a_file_or_of_a_folder() {
        for (target, key) in [
            ("/", &b""[..]),
            ("/a", b"a"),
            ("/a/", b"a/"),
            ("/a/b c", b"a/b c"),
            ("/a+b%20c%2B", b"a+b c+"),
            ("/a?x=1/2", b"a"),
            ("/a/?x=1", b"a/"),
            ("/a%3Fx", b"a?x"),
            ("//a//b//", b"a/b/"),
            ("/./a/./b", b"a/b"),
            ("/a/../b", b"b"),
            ("/a/%2e%2E/b", b"b"),
            ("/a/..", b""),
            ("/%", b"%"),
            ("/%4g%41", b"%4gA"),
            ("/%c3%a4\u{e4}", "\u{e4}\u{e4}".as_bytes()),
            ("http://host:1/a", b"a"),
            ("HTTPS://host/a/", b"a/"),
            ("http://host", b""),
            ("http://host?x", b""),
        ] {
            assert_eq!(path_key(target.as_bytes()).as_deref(), Ok(key), "{target}");
        }
    }

    #[test]
    fn other_targets_are_not_paths() {
        for target in ["", "*", "a", "/..", "/a/../..", "/a%2Fb", "/%00", "/a#b", "ftp://host/a"] {
            assert_eq!(path_key(target.as_bytes()), Err(NotAPath), "{target}");
        }
    }

    #[test]
    fn the_target_of_a_key_has_that_key() {
        for key in [&b""[..], b"a", b"a/b/", b"a+b c?#%2F", "\u{e4}".as_bytes(), b"\xff"] {
            assert_eq!(path_key(path_target(key).as_bytes()).as_deref(), Ok(key));
        }
        assert_eq!(path_target(b"a+b/c d/"), "/a%2Bb/c%20d/");
    }

    #[test]
    fn the_authority_precedes_the_path() {
        for (target, found) in [
            ("http://a:1/b", Some("a:1")),
            ("https://a", Some("a")),
            ("http://a?b", Some("a")),
            ("/b", None),
            ("//b", None),
        ] {
            assert_eq!(authority(target.as_bytes()), found.map(str::as_bytes), "{target}");
        }
    }
}
