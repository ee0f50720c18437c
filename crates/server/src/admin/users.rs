//! Names and passwords of those who may use the server.

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

/// Longest file that can have so many users, each with its colon and line end.
const FILE_BYTES_MAX: u64 = (USERS_MAX * 2 * (CREDENTIAL_BYTES_MAX + 1)) as u64;

/// Permissions that a file must not have: to write for the group, anything for others.
const FORBIDDEN_MODE: u32 = 0o027;

/// Names and passwords of those who may use the server. They are not shown by `Debug`.
#[derive(Default)]
pub struct Users(Vec<User>);

struct User {
    name: Vec<u8>,
    password: Vec<u8>,
}

/// Why a file of users is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others may read or write it.
    #[error("{}: others may read or change it; chmod 600 it", .0.display())]
    Permissions(PathBuf),
    /// A line is no name and password.
    #[error("{}: line {line} {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1 on.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It has no users, or too many.
    #[error("{}: a file has 1 to {USERS_MAX} users", .0.display())]
    Count(PathBuf),
}

impl Users {
    /// Reads a file that has a line for each user: name, colon, password. Empty lines do not count.
    ///
    /// # Errors
    ///
    /// If it cannot be read, if others than its owner and its group may read it, if others than its
    /// owner may change it, or if a line is something else.
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
        for (place, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let user = User::parse(line);
            users.push(user.map_err(|what| UsersError::Line {
                path: path.to_owned(),
                line: place + 1,
                what,
            })?);
        }
        if !(1..=USERS_MAX).contains(&users.len()) {
            return Err(UsersError::Count(path.to_owned()));
        }
        Ok(Self(users))
    }

    /// Whether there is a user of this name and password. Takes as long whoever it is.
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
    fn a_user_is_admitted_with_his_own_password_only() {
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
    fn a_line_that_is_no_user_is_named_and_not_shown() {
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
