//! The identity of a log, which time stamps of its entries belong to.
//!
//! It is a random UUID in the file `identity` of the folder, made with the log. Time stamps rise
//! within one log, whatever the clock does, so log and time stamp name an entry.

use super::{Error, Result};
use cabinet::io::{RealStorage, Storage};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

const FILE: &str = "identity";

/// Returns the identity of the log in a folder, which is made if there is none.
pub(super) fn identity_of(folder: &Path) -> Result<String> {
    let path = folder.join(FILE);
    let failed = |operation, source| Error::Io { operation, path: path.clone(), source };
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(source) => return Err(failed("read", source)),
    }
    renew(folder)
}

/// Gives the log in a folder another identity, which is returned.
pub(super) fn renew(folder: &Path) -> Result<String> {
    let path = folder.join(FILE);
    let failed = |operation, source| Error::Io { operation, path: path.clone(), source };
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid");
    let identity = uuid.map_err(|source| failed("make", source))?.trim().to_owned();
    let beside = folder.join("identity.new");
    let write = || {
        let mut file = fs::File::create(&beside)?;
        file.write_all(format!("{identity}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        RealStorage.sync_dir(folder)
    };
    write().map_err(|source| failed("write", source))?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_its_identity_and_another_log_has_another() {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let identity = |at: usize| identity_of(folders[at].path()).expect("room");
        assert_eq!(identity(0), identity(0));
        assert_ne!(identity(0), identity(1));
        let before = identity(0);
        let renewed = renew(folders[0].path()).expect("room");
        assert!(renewed != before && renewed == identity(0));
    }
}
