//! Log identity: a random UUID that names the log.
//!
//! The UUID is in the file `identity` of the folder and is made with the log. Time stamps rise
//! within one log, whatever the clock does. So identity and time stamp name an entry.

use super::{Error, Result};
use cabinet::files::sync_folder;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

const FILE: &str = "identity";

/// Returns the identity of the log in a folder, and makes it if it is missing.
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

/// Gives the log in a folder a new identity and returns it.
pub(super) fn renew(folder: &Path) -> Result<String> {
    let path = folder.join(FILE);
    let failed = |operation, source| Error::Io { operation, path: path.clone(), source };
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid");
    let identity = uuid.map_err(|source| failed("create", source))?.trim().to_owned();
    let temporary = folder.join("identity.new");
    let write = || {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(format!("{identity}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        sync_folder(folder)
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
        let identity = |at: usize| identity_of(folders[at].path()).expect("no failure");
        assert_eq!(identity(0), identity(0));
        assert_ne!(identity(0), identity(1));
        let before = identity(0);
        let renewed = renew(folders[0].path()).expect("no failure");
        assert!(renewed != before && renewed == identity(0));
    }
}
