//! Credentials: the name and the password with which a connection logs in.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use wire::binary::{Function, NOT_LOGGED, Request, StringsBuffer, encode};

use crate::{Error, Result};

/// Longest name and longest password, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 255;

/// Longest file: both, a colon and the end of the line.
const FILE_BYTES_MAX: u64 = 2 * CREDENTIAL_BYTES_MAX as u64 + 3;

/// Permission bits that a file must not have: writing for the group, everything for others.
const FORBIDDEN_MODE: u32 = 0o027;

/// Name and password of a user. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    name: String,
    password: String,
}

/// Error in a file of credentials. No message shows the password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("cannot read the credentials in {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Other users of the system may read or change the file.
    #[error("{}: others may read or change it; chmod 600 it", .0.display())]
    Permissions(PathBuf),
    /// The file has another form.
    #[error("{}: it must have one line, name:password, of at most 255 bytes each", .0.display())]
    Form(PathBuf),
}

impl Credentials {
    /// Returns the credentials of a user.
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self { name: name.into(), password: password.into() }
    }

    /// Reads a file with one line `name:password`, which only its owner and its group may read.
    pub fn read(path: &Path) -> std::result::Result<Self, CredentialsError> {
        let io = |source| CredentialsError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(io::ErrorKind::IsADirectory.into()));
        }
        if metadata.mode() & FORBIDDEN_MODE != 0 {
            return Err(CredentialsError::Permissions(path.to_owned()));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(io)?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let parts = line.split_once(':').filter(|(name, password)| {
            let is_valid = |text: &str| (1..=CREDENTIAL_BYTES_MAX).contains(&text.len());
            is_valid(name) && is_valid(password) && !line.contains('\n')
        });
        let (name, password) = parts.ok_or_else(|| CredentialsError::Form(path.to_owned()))?;
        Ok(Self::new(name, password))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the password.
    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// Returns the request to log in.
    pub(crate) fn request(&self) -> Result<Vec<u8>> {
        login_request(&[&self.name, &self.password])
    }

    /// Returns a request to log in without a name and a password. A server that takes logins on
    /// this connection refuses it, and one that does not reveals that.
    pub(crate) fn probe() -> Result<Vec<u8>> {
        login_request(&[])
    }
}

fn login_request(words: &[&str]) -> Result<Vec<u8>> {
    let mut arguments = StringsBuffer::default();
    for word in words {
        arguments.push(word.as_bytes()).map_err(|_| Error::InvalidOperation)?;
    }
    let request = Request::Misc {
        function: Function::Login,
        options: NOT_LOGGED,
        arguments: arguments.strings(),
    };
    let mut bytes = Vec::new();
    encode(&request, &mut bytes).map_err(|_| Error::InvalidOperation)?;
    Ok(bytes)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({:?})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, mode: u32) -> std::result::Result<Credentials, CredentialsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        write(&path, text).unwrap();
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Credentials::read(&path)
    }

    #[test]
    fn a_file_has_one_line_and_its_errors_do_not_show_it() {
        let longest = "p".repeat(CREDENTIAL_BYTES_MAX);
        for (text, name, password) in [
            ("ann:secret\n", "ann", "secret"),
            ("ann:a:b\r\n", "ann", "a:b"),
            ("ann:secret", "ann", "secret"),
            (&format!("{longest}:{longest}\r\n"), &longest, &longest),
        ] {
            assert_eq!(read(text, 0o600).unwrap(), Credentials::new(name, password));
        }
        for text in ["", "secret\n", ":secret", "ann:", "ann:secret\nx", &format!("ann:{longest}p")]
        {
            let error = read(text, 0o640).unwrap_err().to_string();
            assert!(error.contains("name:password") && !error.contains("secret"), "{error}");
        }
        for mode in [0o604, 0o620] {
            let error = read("ann:secret\n", mode).unwrap_err();
            assert!(matches!(error, CredentialsError::Permissions(_)), "{mode:o}");
        }
        assert_eq!(format!("{:?}", Credentials::new("ann", "secret")), "Credentials(\"ann\")");
    }
}
