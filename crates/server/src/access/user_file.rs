//! User file: the users in the file of `--users`, as TOML.
//!
//! ```toml
//! [[user]]
//! name = "ann"
//! password = "$argon2id$v=19$m=19456,t=2,p=1$..."
//! rights = ["read", "write:session:"]
//! ```
//!
//! A change writes a new file and renames it, so a reader sees the old users or the new ones. The
//! new file has one name and is locked (`flock`) from before the users are read, so that changes
//! take turns. One that a killed process has left is used again.

use super::password::{HashError, PasswordCost, flaw, hash_password, is_token_hash};
use crate::ops::rights::{Right, Rights};
use cabinet::files::open_file;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::{getegid, geteuid};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// Most users of a file.
pub const USERS_MAX: usize = 1024;

/// Longest name and longest password, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 255;

/// Longest file, in bytes.
pub const USER_FILE_BYTES_MAX: u64 = 4 << 20;

/// Permission bits that a file must not have: writing for the group, everything for others.
pub(crate) const FORBIDDEN_MODE: u32 = 0o027;

/// Permission bits of a new file.
const NEW_MODE: u32 = 0o600;

/// First lines of a file that is written.
const HEAD: &str = "# Users of a tyrant server. Change them with \"tyrant user\"; \
                    \"tyrant reload\" puts them into effect.\n\n";

/// End of the name of the new file, after that of the file which it replaces.
const NEW_SUFFIX: &str = ".tyrant-new";

/// Defect of a line that is not TOML, or has another key or type.
const INVALID_LINE: &str = "it must be TOML: [[user]] with the texts name, password and token, and \
                            the list rights; write it with tyrant user";

/// Users of a file, in its order.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UserFile {
    /// The users.
    #[serde(default, rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserEntry>,
}

/// A user of a file. `Debug` does not show the hashes.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// Name, without colons, spaces and control characters.
    pub name: String,
    /// Argon2id hash of the password, as [`super::password::hash_password`] makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Hash of the token, as [`super::password::hash_token`] makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Rights: `read`, `write`, `admin` and `scripts`, or `read:PREFIX`.
    pub rights: Vec<String>,
}

/// Error in a file of users. No message shows a password or a hash.
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
    /// The file cannot be written.
    #[error("cannot write the users to {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Other users of the system may read or change the file.
    #[error("{}: others may read or change it; chmod 600 it", .0.display())]
    Permissions(PathBuf),
    /// The file has lines `name:password`.
    #[error(
        "{file}: it has passwords in clear text, as earlier versions had them; convert it with \
         tyrant user convert --users {file}",
        file = .0.display()
    )]
    ClearText(PathBuf),
    /// The file is not TOML, or has other keys.
    #[error("line {line} of {}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Defect of the line.
        what: String,
    },
    /// A user is invalid.
    #[error("in {}, user {number} {what}", path.display())]
    User {
        /// The file.
        path: PathBuf,
        /// Number of the user in the file, from 1.
        number: usize,
        /// Defect of the user.
        what: String,
    },
    /// The file is too long, or has no users or too many.
    #[error(
        "{}: the file must have 1 to {USERS_MAX} users in at most 4 MiB; remove an empty one, and \
         tyrant user add makes it",
        .0.display()
    )]
    Count(PathBuf),
}

impl UserFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, if others than its owner and its group may read it, if others
    /// than its owner may change it, or if it has another form.
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        let text = read_text(path)?;
        let parsed: Self = toml::from_str(&text).map_err(|error| {
            if clear_text(&text).is_some() {
                return UsersError::ClearText(path.to_owned());
            }
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
            // The other messages may show values.
            let message = Some(error.message()).filter(|text| text.starts_with("missing field"));
            let what = message.unwrap_or(INVALID_LINE).to_owned();
            UsersError::Line { path: path.to_owned(), line, what }
        })?;
        parsed.check(path)?;
        Ok(parsed)
    }

    /// Reads the lines `name:password` of a file as earlier versions had it. Empty lines are
    /// skipped.
    pub fn read_clear_text(path: &Path) -> Result<Vec<(String, String)>, UsersError> {
        let text = read_text(path)?;
        clear_text(&text).ok_or_else(|| UsersError::Line {
            path: path.to_owned(),
            line: 1,
            what: "the file has no lines name:password".into(),
        })
    }

    /// Writes the file, see [`UserFileLock::replace`].
    pub fn write(&self, path: &Path) -> Result<(), UsersError> {
        UserFileLock::take(path)?.replace(self)
    }

    /// Returns the user of a name.
    pub fn find(&mut self, name: &str) -> Option<&mut UserEntry> {
        self.users.iter_mut().find(|user| user.name == name)
    }

    /// Checks the users as [`UserFile::read`] does. `path` is the file of the error.
    pub fn check(&self, path: &Path) -> Result<(), UsersError> {
        if !(1..=USERS_MAX).contains(&self.users.len()) {
            return Err(UsersError::Count(path.to_owned()));
        }
        let mut names = HashSet::new();
        let mut tokens = HashSet::new();
        for (index, user) in self.users.iter().enumerate() {
            let flaw = user.flaw().or_else(|| {
                let is_new = user.token.as_ref().is_none_or(|token| tokens.insert(token));
                let is_first = names.insert(&user.name);
                (!is_new || !is_first).then(|| "has the name or the token of another".to_owned())
            });
            if let Some(what) = flaw {
                let (path, number) = (path.to_owned(), index + 1);
                return Err(UsersError::User { path, number, what });
            }
        }
        Ok(())
    }
}

/// Turn to change a file of users. Others who change it wait until this is dropped.
#[derive(Debug)]
pub struct UserFileLock {
    path: PathBuf,
    /// The new file, which is locked, and its path. Removed when dropped, unless it was renamed.
    new: (File, PathBuf),
    folder: File,
    is_renamed: bool,
}

impl UserFileLock {
    /// Waits for the turn to change a file, which may not exist yet.
    ///
    /// # Errors
    ///
    /// If a file cannot be written beside it, or it is a link to no file.
    pub fn take(path: &Path) -> Result<Self, UsersError> {
        Self::open(path).map_err(|source| UsersError::Write { path: path.to_owned(), source })
    }

    fn open(path: &Path) -> std::io::Result<Self> {
        // A link stays one.
        let path = match std::fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Err(_) if std::fs::symlink_metadata(path).is_ok() => {
                let what = "it is a link to no file; remove it or make the file";
                return Err(std::io::Error::new(ErrorKind::NotFound, what));
            }
            Err(_) => path.to_owned(),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new(".")))?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(NEW_SUFFIX);
        let new = path.with_file_name(name);
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(NEW_MODE);
            let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&new)?;
            flock(&file, FlockOperation::LockExclusive)?;
            let identity = |file: Metadata| (file.dev(), file.ino());
            match std::fs::symlink_metadata(&new).map(identity) {
                Ok(found) if found == identity(file.metadata()?) => {
                    return Ok(Self { path, new: (file, new), folder, is_renamed: false });
                }
                // The lock's owner before has renamed or removed the file.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the file: a new one in its place, with its owner and permissions, or with those of
    /// the process and the mode 0600.
    pub fn replace(mut self, users: &UserFile) -> Result<(), UsersError> {
        users.check(&self.path)?;
        let written = self.write(users);
        written.map_err(|source| UsersError::Write { path: self.path.clone(), source })
    }

    fn write(&mut self, users: &UserFile) -> std::io::Result<()> {
        let (file, new) = &mut self.new;
        let (owner, mode) = match std::fs::metadata(&self.path) {
            Ok(present) => {
                ((present.uid(), present.gid()), present.mode() & 0o777 & !FORBIDDEN_MODE)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                ((geteuid().as_raw(), getegid().as_raw()), NEW_MODE)
            }
            Err(error) => return Err(error),
        };
        let own = file.metadata()?;
        if owner != (own.uid(), own.gid()) {
            fchown(&*file, Some(owner.0), Some(owner.1))?;
        }
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        file.set_len(0)?;
        let text = toml::to_string(users).map_err(std::io::Error::other)?;
        file.write_all(HEAD.as_bytes())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&*new, &self.path)?;
        self.is_renamed = true;
        self.folder.sync_all()
    }
}

impl Drop for UserFileLock {
    fn drop(&mut self) {
        if !self.is_renamed {
            // One that stays is used again.
            let _ = std::fs::remove_file(&self.new.1);
        }
    }
}

impl UserEntry {
    /// Returns a user with a password and all rights.
    pub fn with_password(
        name: &str,
        password: &[u8],
        cost: PasswordCost,
    ) -> Result<Self, HashError> {
        let password = Some(hash_password(password, cost)?);
        let rights = Right::ALL.map(|right| right.name().to_owned()).to_vec();
        Ok(Self { name: name.to_owned(), password, token: None, rights })
    }

    /// Returns why the user is invalid, if it is.
    pub fn flaw(&self) -> Option<String> {
        let has = |text: &str, is: fn(char) -> bool| text.chars().any(is);
        let is_barred = |byte: char| byte == ':' || byte.is_whitespace() || byte.is_control();
        if self.name.is_empty() || self.name.len() > CREDENTIAL_BYTES_MAX {
            return Some(format!("must have a name of 1 to {CREDENTIAL_BYTES_MAX} bytes"));
        }
        if has(&self.name, is_barred) {
            return Some("has a name with a colon, a space or a control character".into());
        }
        if let Some(what) = self.password.as_deref().and_then(flaw) {
            return Some(format!("{what}; set it with tyrant user passwd {}", self.name));
        }
        if self.token.as_ref().is_some_and(|token| !is_token_hash(token)) {
            let name = &self.name;
            return Some(format!(
                "has a token that is no hash; set it with tyrant user token {name}"
            ));
        }
        let rights = Rights::parse(&self.rights).err();
        rights.map(|(text, error)| format!("has a right {text:?} that {error}"))
    }
}

fn read_text(path: &Path) -> Result<String, UsersError> {
    let io = |source| UsersError::Io { path: path.to_owned(), source };
    let file = open_file(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(io(ErrorKind::IsADirectory.into()));
    }
    if metadata.mode() & FORBIDDEN_MODE != 0 {
        return Err(UsersError::Permissions(path.to_owned()));
    }
    let mut text = Vec::new();
    file.take(USER_FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(io)?;
    if text.len() as u64 > USER_FILE_BYTES_MAX {
        return Err(UsersError::Count(path.to_owned()));
    }
    String::from_utf8(text)
        .map_err(|error| io(std::io::Error::new(ErrorKind::InvalidData, error.utf8_error())))
}

/// Returns the names and passwords of a text whose lines are all `name:password` or empty.
fn clear_text(text: &str) -> Option<Vec<(String, String)>> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let users: Option<Vec<_>> = lines
        .map(|line| {
            let (name, password) = line.split_once(':')?;
            Some((name.to_owned(), password.to_owned()))
        })
        .collect();
    users.filter(|users| !users.is_empty())
}

impl std::fmt::Debug for UserFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "UserFile({})", self.users.len())
    }
}

impl std::fmt::Debug for UserEntry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "UserEntry({:?})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, metadata, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn entry(name: &str) -> UserEntry {
        UserEntry::with_password(name, b"secret", PasswordCost::MIN).expect("a user")
    }

    fn read(text: &str, mode: u32) -> Result<UserFile, UsersError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users");
        write(&path, text).expect("a file");
        set_permissions(&path, Permissions::from_mode(mode)).expect("its permissions");
        UserFile::read(&path)
    }

    #[test]
    fn a_file_is_written_as_a_whole_and_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users");
        let token = Some(super::super::password::hash_token(b"token"));
        let users = vec![entry("ann"), UserEntry { token, ..entry("bob") }];
        UserFile { users: users.clone() }.write(&path).expect("a new file");
        assert_eq!(metadata(&path).expect("the file").mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).expect("the file");
        assert!(text.starts_with("# Users of a tyrant server.") && !text.contains("secret"));
        let mut found = UserFile::read(&path).expect("the users");
        assert_eq!(found.users[0].password, users[0].password);
        assert_eq!(found.users[1].token, users[1].token);
        // The permissions remain, and a file that cannot be valid replaces nothing.
        set_permissions(&path, Permissions::from_mode(0o640)).expect("its permissions");
        found.users.remove(0);
        found.write(&path).expect("a file");
        assert_eq!(metadata(&path).expect("the file").mode() & 0o777, 0o640);
        found.users.clear();
        assert!(matches!(found.write(&path), Err(UsersError::Count(_))));
        assert_eq!(UserFile::read(&path).expect("the users").users.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }

    #[test]
    fn changes_take_turns_and_none_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = &folder.path().join("users");
        UserFile { users: vec![entry("ann")] }.write(path).expect("a file");
        // A process was killed: what it left is neither in the way nor in the file.
        let left = folder.path().join(format!("users{NEW_SUFFIX}"));
        write(&left, "left ".repeat(1 << 10)).expect("a file");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for number in 0..8 {
                        let lock = UserFileLock::take(path).expect("the lock");
                        let mut file = UserFile::read(path).expect("the users");
                        file.users.push(entry(&format!("u{thread}.{number}")));
                        if number % 2 == 0 {
                            lock.replace(&file).expect("a file");
                        }
                    }
                });
            }
        });
        assert_eq!(UserFile::read(path).expect("the users").users.len(), 1 + 8 * 4);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }

    #[test]
    fn a_link_stays_one_and_is_refused_if_it_leads_to_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("users"), folder.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let file = UserFile { users: vec![entry("ann")] };
        let error = file.write(&link).expect_err("a link to no file").to_string();
        assert!(error.contains("it is a link to no file"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
        file.write(&path).expect("a file");
        UserFile { users: vec![entry("ann"), entry("bob")] }.write(&link).expect("a file");
        assert!(std::fs::symlink_metadata(&link).expect("the link").is_symlink());
        assert_eq!(UserFile::read(&path).expect("the users").users.len(), 2);
    }

    #[test]
    fn a_file_that_others_may_read_or_change_is_refused() {
        let text = toml::to_string(&UserFile { users: vec![entry("ann")] }).expect("a text");
        for mode in [0o600, 0o400, 0o640, 0o440] {
            assert!(read(&text, mode).is_ok(), "{mode:o}");
        }
        for mode in [0o604, 0o602, 0o620, 0o644, 0o660, 0o601] {
            assert!(matches!(read(&text, mode), Err(UsersError::Permissions(_))), "{mode:o}");
        }
    }

    #[test]
    fn lines_of_earlier_versions_are_refused_with_the_command_that_converts_them() {
        let error = read("ann:secret\n\nbob:a:b\n", 0o600).expect_err("clear text").to_string();
        assert!(error.contains("tyrant user convert --users /"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn the_error_for_an_invalid_file_tells_its_place_and_no_secret() {
        let user = toml::to_string(&UserFile { users: vec![entry("ann")] }).expect("a text");
        let long = "n".repeat(CREDENTIAL_BYTES_MAX + 1);
        for (text, place) in [
            ("\n[[user]]\nname = \"ann\"\nsecret = \"secret\"\n".to_owned(), "line 4"),
            ("[[user]]\nname = \"secret\n".to_owned(), "line 2"),
            ("[[user]]\nname = \"ann\"\npassword = \"secret\"\nrights = []\n".to_owned(), "user 1"),
            (
                format!("{user}[[user]]\nname = \"bob\"\ntoken = \"secret\"\nrights = []\n"),
                "user 2",
            ),
            (format!("{user}{user}"), "user 2"),
            ("[[user]]\nname = \"\"\nrights = []\n".to_owned(), "user 1"),
            (format!("[[user]]\nname = \"{long}\"\nrights = []\n"), "user 1"),
            ("[[user]]\nname = \"a:b\"\nrights = []\n".to_owned(), "user 1"),
            ("[[user]]\nname = \"a b\"\nrights = []\n".to_owned(), "user 1"),
            (format!("{user}[[user]]\nname = \"bob\"\nrights = [\"reads\"]\n"), "user 2"),
            (format!("{user}[[user]]\nname = \"bob\"\n"), "missing field `rights`"),
            ("\n[[user]]\nname = \"ann\"\npassword = 12345678\n".to_owned(), "line 4"),
            ("[[user]]\nname = \"ann\"\nrights = \"12345678\"\n".to_owned(), "line 3"),
            ("[[user]]\ntoken = 12345678x\n".to_owned(), "line 2"),
            ("12345678 = 1\n".to_owned(), "line 1"),
        ] {
            let error = read(&text, 0o600).expect_err(&text).to_string();
            let is_secret = ["\"secret\"", "secret\n", "12345678"].map(|one| error.contains(one));
            let is_secret = is_secret.contains(&true);
            assert!(error.contains(place) && !is_secret, "{error}");
        }
    }

    #[test]
    fn a_file_has_a_limited_number_of_users_and_bytes() {
        let users = |count: usize| {
            let user = |number| UserEntry { name: format!("u{number}"), ..UserEntry::default() };
            toml::to_string(&UserFile { users: (0..count).map(user).collect() }).expect("a text")
        };
        assert!(matches!(read("", 0o600), Err(UsersError::Count(_))));
        assert!(read(&users(USERS_MAX), 0o600).is_ok());
        assert!(matches!(read(&users(USERS_MAX + 1), 0o600), Err(UsersError::Count(_))));
        let fill = |bytes: u64| {
            let text = users(1);
            format!("{text}#{}", "#".repeat(bytes as usize - text.len() - 1))
        };
        assert!(read(&fill(USER_FILE_BYTES_MAX), 0o600).is_ok());
        let long = read(&fill(USER_FILE_BYTES_MAX + 1), 0o600);
        assert!(matches!(long, Err(UsersError::Count(_))));
    }
}
