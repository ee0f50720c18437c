//! Identity: a random UUID in the file `identity` of a folder. It names an update log, or the
//! database of a replica.
//!
//! That of a log is made with the log. Time stamps rise within one log, whatever the clock does. So
//! identity and time stamp name an entry.

use super::{Error, Result};
use crate::durable_file;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "identity";

/// Returns the identity in a folder, if there is one.
pub(crate) fn present_identity(folder: &Path) -> Result<Option<String>> {
    let path = folder.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|identity| !identity.is_empty())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { operation: "read", path, source }),
    }
}

/// Returns the identity in a folder, and makes it if it is missing.
pub(crate) fn identity_of(folder: &Path) -> Result<String> {
    match present_identity(folder)? {
        Some(identity) => Ok(identity),
        None => renew(folder),
    }
}

/// Gives a folder a new identity and returns it.
pub(super) fn renew(folder: &Path) -> Result<String> {
    let path = folder.join(FILE);
    let failed = |operation, source| Error::Io { operation, path: path.clone(), source };
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid");
    let identity = uuid.map_err(|source| failed("create", source))?.trim().to_owned();
    let written = durable_file::replace(&path, format!("{identity}\n").as_bytes());
    written.map_err(|source| failed("write", source))?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_its_identity_and_another_log_has_another() {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let identity = |at: usize| identity_of(folders[at].path()).expect("no failure");
        assert_eq!(identity(0), identity(0));
        assert_ne!(identity(0), identity(1));
        let before = identity(0);
        let renewed = renew(folders[0].path()).expect("no failure");
        assert!(renewed != before && renewed == identity(0));
    }
}
