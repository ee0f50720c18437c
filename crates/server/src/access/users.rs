//! Users: the names and passwords in the file of `--users`.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use subtle::{Choice, ConstantTimeEq};

/// Most users of a file.
pub const USERS_MAX: usize = 1024;

/// Longest name and longest password, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 255;

/// Longest file of [`USERS_MAX`] users, with their colons and line feeds, in bytes.
const FILE_BYTES_MAX: u64 = (USERS_MAX * 2 * (CREDENTIAL_BYTES_MAX + 1)) as u64;

/// Permission bits that a file must not have: writing for the group, everything for others.
const FORBIDDEN_MODE: u32 = 0o027;

/// Users of a server. `Debug` does not show their names and passwords.
#[derive(Default)]
pub struct Users(Vec<User>);

struct User {
    name: Vec<u8>,
    password: Vec<u8>,
}

/// Error in a file of users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// The file cannot be read.
    #[error("cannot read the users in {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Other users of the system may read or change the file.
    #[error("{}: others may read or change it; chmod 600 it", .0.display())]
    Permissions(PathBuf),
    /// A line is not a name, a colon and a password.
    #[error("{}: line {line} {what}; write name:password", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Defect of the line.
        what: &'static str,
    },
    /// The file has no users, or too many.
    #[error("{}: the file must have 1 to {USERS_MAX} users", .0.display())]
    Count(PathBuf),
}

impl Users {
    /// Reads a file with a line `name:password` per user. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, if others than its owner and its group may read it, if others
    /// than its owner may change it, or if a line has another form.
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        let io = |source| UsersError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.mode() & FORBIDDEN_MODE != 0 {
            return Err(UsersError::Permissions(path.to_owned()));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(io)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(UsersError::Count(path.to_owned()));
        }
        let mut users = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let user = User::parse(line);
            users.push(user.map_err(|what| UsersError::Line {
                path: path.to_owned(),
                line: index + 1,
                what,
            })?);
        }
        if !(1..=USERS_MAX).contains(&users.len()) {
            return Err(UsersError::Count(path.to_owned()));
        }
        Ok(Self(users))
    }

    /// Returns whether there is a user of this name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|user| user.name == name)
    }

    /// Returns whether a user has this name and password. The time taken does not depend on the
    /// result.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> bool {
        let is_any = self.0.iter().fold(Choice::from(0), |is_any, user| {
            is_any | user.name.ct_eq(name) & user.password.ct_eq(password)
        });
        is_any.into()
    }
}

impl User {
    fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let colon = line.iter().position(|byte| *byte == b':').ok_or("has no colon")?;
        let (name, password) = (&line[..colon], &line[colon + 1..]);
        if name.is_empty() || password.is_empty() {
            return Err("has no name or no password");
        }
        if name.len().max(password.len()) > CREDENTIAL_BYTES_MAX {
            return Err("has a name or a password of more than 255 bytes");
        }
        if line.contains(&0) {
            return Err("has a zero byte, which SASL cannot send");
        }
        Ok(Self { name: name.to_vec(), password: password.to_vec() })
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Users({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, mode: u32) -> Result<Users, UsersError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("users");
        write(&path, text).expect("a file of users");
        set_permissions(&path, Permissions::from_mode(mode)).expect("its permissions");
        Users::read(&path)
    }

    #[test]
    fn a_user_is_authenticated_with_his_own_password_only() {
        let users = read("ann:one:two\r\n\nbob:x\n", 0o600).expect("two users");
        assert!(users.authenticate(b"ann", b"one:two") && users.authenticate(b"bob", b"x"));
        for (name, password) in
            [("ann", "x"), ("bob", "one:two"), ("ann", "one:tw"), ("ann", "one:two "), ("", "")]
        {
            assert!(!users.authenticate(name.as_bytes(), password.as_bytes()), "{name} {password}");
        }
        assert_eq!(format!("{users:?}"), "Users(2)");
    }

    #[test]
    fn a_file_that_others_may_read_or_change_is_refused() {
        for mode in [0o600, 0o400, 0o640, 0o440] {
            assert!(read("ann:x", mode).is_ok(), "{mode:o}");
        }
        for mode in [0o604, 0o602, 0o620, 0o644, 0o660, 0o601] {
            assert!(matches!(read("ann:x", mode), Err(UsersError::Permissions(_))), "{mode:o}");
        }
    }

    #[test]
    fn the_error_for_a_malformed_line_gives_its_number_and_not_its_text() {
        let longest = "p".repeat(CREDENTIAL_BYTES_MAX);
        assert!(read(&format!("{longest}:{longest}"), 0o600).is_ok());
        for line in ["secret", ":secret", "secret:", &format!("a:{longest}p"), "a:secret\0"] {
            let error = read(&format!("ann:x\n{line}\n"), 0o600).expect_err("no user");
            let text = error.to_string();
            assert!(text.contains("line 2") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_file_has_a_limited_number_of_users() {
        assert!(matches!(read("\n", 0o600), Err(UsersError::Count(_))));
        assert!(read(&"a:b\n".repeat(USERS_MAX), 0o600).is_ok());
        assert!(matches!(read(&"a:b\n".repeat(USERS_MAX + 1), 0o600), Err(UsersError::Count(_))));
        let longest = format!("{0}:{0}\n", "p".repeat(CREDENTIAL_BYTES_MAX));
        assert!(read(&longest.repeat(USERS_MAX), 0o600).is_ok());
        assert!(matches!(read(&longest.repeat(USERS_MAX + 1), 0o600), Err(UsersError::Count(_))));
    }
}
