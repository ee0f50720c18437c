//! Users: those whom a server admits, by password, token or client certificate.

use super::password::{Digested, digest, hash_token, verify};
use super::user_file::{UserEntry, UserFile, UsersError};
use crate::ops::rights::Rights;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use subtle::ConstantTimeEq;

/// Users of a server. `Debug` does not show their names and hashes.
#[derive(Default)]
pub struct Users {
    users: HashMap<Box<[u8]>, Arc<User>>,
    /// Names of the users by the hash of their token.
    tokens: HashMap<Box<str>, Arc<User>>,
    /// Hashes with which the passwords of unknown users are compared, so that they take as long.
    decoys: Vec<Box<str>>,
    /// Number of this reading of a file in this process, or 0 if they are not from a file.
    reading: u64,
}

/// A user of a server.
pub struct User {
    name: Box<str>,
    password: Option<Box<str>>,
    token: Option<Box<str>>,
    /// Rights, unless the user has all.
    rights: Option<Arc<Rights>>,
    /// Keyed hash of the password, once it has been verified.
    verified: OnceLock<Digested>,
}

impl User {
    fn of(entry: UserEntry) -> Self {
        Self {
            name: entry.name.into(),
            password: entry.password.map(Into::into),
            token: entry.token.map(Into::into),
            // The file was checked; an invalid right would be none.
            rights: Some(Rights::parse(&entry.rights).unwrap_or_default())
                .filter(|rights| !rights.are_all())
                .map(Arc::new),
            verified: OnceLock::new(),
        }
    }

    /// Returns the rights, unless the user has all.
    pub(crate) fn rights(&self) -> Option<&Arc<Rights>> {
        self.rights.as_ref()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn has_password(&self) -> bool {
        self.password.is_some()
    }
}

/// Users are equal if the logins of one are those of the other: no secret has changed.
impl PartialEq for User {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.password == other.password && self.token == other.token
    }
}

impl Users {
    /// Reads a file of users, see [`UserFile::read`].
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        // Readings take turns, so a higher number has a later state of the file.
        static READINGS: Mutex<u64> = Mutex::new(0);
        let mut readings = READINGS.lock();
        let file = UserFile::read(path)?;
        *readings += 1;
        Ok(Self { reading: *readings, ..Self::of(file) })
    }

    /// Returns the users of a file.
    pub fn of(file: UserFile) -> Self {
        let passwords = file.users.iter().filter_map(|user| user.password.clone());
        let decoys = passwords.map(Into::into).collect();
        let users: Vec<_> = file.users.into_iter().map(|entry| Arc::new(User::of(entry))).collect();
        let of_token = |user: &Arc<User>| user.token.clone().map(|token| (token, Arc::clone(user)));
        Self {
            decoys,
            reading: 0,
            tokens: users.iter().filter_map(of_token).collect(),
            users: users.into_iter().map(|user| (user.name.as_bytes().into(), user)).collect(),
        }
    }

    /// Returns the number of users.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns the user of a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// Returns the hash of this user's password.
    pub(super) fn password_hash(&self, name: &[u8]) -> Option<&str> {
        self.find(name)?.password.as_deref()
    }

    /// Returns the user of a token.
    pub(crate) fn of_token(&self, token: &[u8]) -> Option<&Arc<User>> {
        // The hash of a random token tells nothing about others.
        self.tokens.get(&*hash_token(token))
    }

    /// Returns the user of this name, if this password of his was verified before.
    pub(crate) fn recall(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        let user = self.find(name)?;
        let verified = user.verified.get()?;
        bool::from(digest(password)?.ct_eq(verified)).then_some(user)
    }

    /// Returns the user of this name and password. Unless the password was verified before, it
    /// takes as long as its hash costs, whether there is such a user or not.
    pub(crate) fn verify(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        if let Some(user) = self.recall(name, password) {
            return Some(user);
        }
        let hash = self.password_hash(name);
        let is_right = verify(hash.or_else(|| self.decoy(name))?, password);
        let user = self.find(name).filter(|_| is_right && hash.is_some())?;
        if let Some(verified) = digest(password) {
            // Another thread may have set the same.
            let _ = user.verified.set(verified);
        }
        Some(user)
    }

    /// Returns the hash that the password of a name without one is compared with. It is always the
    /// same for a name, so the costs of unknown names are those of users.
    fn decoy(&self, name: &[u8]) -> Option<&str> {
        let [first, second, ..] = digest(name)?;
        let chosen = usize::from(u16::from_le_bytes([first, second]));
        self.decoys.get(chosen.checked_rem(self.decoys.len())?).map(AsRef::as_ref)
    }

    /// Returns the present state of a user who has logged in, unless he is removed or has another
    /// password or token.
    pub(crate) fn renew(&self, user: &User) -> Option<&Arc<User>> {
        self.find(user.name.as_bytes()).filter(|found| ***found == *user)
    }

    /// Takes over the passwords that were verified, from users before a reload.
    fn remember(&self, before: &Self) {
        for (name, user) in &self.users {
            if let Some(before) = before.find(name)
                && before == user
                && let Some(verified) = before.verified.get()
            {
                let _ = user.verified.set(*verified);
            }
        }
    }
}

/// The present users of a server.
pub(crate) struct CurrentUsers {
    users: ArcSwap<Users>,
    /// Locked during a replacement.
    replacing: Mutex<()>,
    /// Number of replacements.
    generation: AtomicU64,
}

impl CurrentUsers {
    pub(crate) fn new(users: Arc<Users>) -> Self {
        Self {
            users: ArcSwap::new(users),
            replacing: Mutex::new(()),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns the users.
    pub(crate) fn load(&self) -> Arc<Users> {
        self.users.load_full()
    }

    /// Returns a number that changes whenever the users change.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Replaces the users. Nothing happens if the present ones are from a later reading of a file:
    /// two reloads may end in another order than they have read it.
    pub(crate) fn replace(&self, users: Arc<Users>) {
        let _replacing = self.replacing.lock();
        let present = self.users.load();
        if (1..present.reading).contains(&users.reading) {
            return;
        }
        users.remember(&present);
        self.users.store(users);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the present state of a user who has logged in, unless he is removed or has another
    /// password or token.
    pub(crate) fn renew(&self, user: &User) -> Option<Arc<User>> {
        self.users.load().renew(user).cloned()
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Users({})", self.users.len())
    }
}

impl fmt::Debug for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "User({:?})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::password::PasswordCost;

    fn entry(name: &str, password: &str) -> UserEntry {
        UserEntry::with_password(name, password.as_bytes(), PasswordCost::MIN).expect("a user")
    }

    fn users(entries: &[UserEntry]) -> Users {
        Users::of(UserFile { users: entries.to_vec() })
    }

    fn name(user: Option<&Arc<User>>) -> Option<&str> {
        user.map(|user| user.name())
    }

    #[test]
    fn a_user_is_verified_with_his_own_password_only_and_recalled_after_that() {
        let users = users(&[
            entry("ann", "one:two"),
            entry("bob", "x"),
            UserEntry { name: "eve".into(), ..UserEntry::default() },
        ]);
        assert!(users.recall(b"ann", b"one:two").is_none());
        assert_eq!(name(users.verify(b"ann", b"one:two")), Some("ann"));
        assert_eq!(name(users.verify(b"bob", b"x")), Some("bob"));
        for (user, password) in [
            ("ann", "x"),
            ("bob", "one:two"),
            ("ann", "one:tw"),
            ("ann", "one:two "),
            ("", ""),
            // A user without a password, and an unknown one, are compared with the decoy.
            ("eve", "one:two"),
            ("carl", "one:two"),
        ] {
            let (user, password) = (user.as_bytes(), password.as_bytes());
            assert!(users.verify(user, password).is_none());
            assert!(users.recall(user, password).is_none());
        }
        assert_eq!(name(users.recall(b"ann", b"one:two")), Some("ann"));
        assert_eq!(format!("{users:?}"), "Users(3)");
    }

    #[test]
    fn unknown_names_cost_as_much_as_users_and_each_always_the_same() {
        let users = users(&[entry("ann", "x"), entry("bob", "y")]);
        let decoy = |name: usize| users.decoy(name.to_string().as_bytes()).expect("a decoy");
        let chosen: Vec<_> = (0..100).map(decoy).collect();
        assert!((0..100).all(|name| decoy(name) == chosen[name]));
        assert!(users.decoys.iter().all(|hash| chosen.contains(&&**hash)));
        assert!(Users::default().decoy(b"carl").is_none());
    }

    #[test]
    fn a_token_is_that_of_its_user() {
        let token = Some(hash_token(b"token"));
        let users = users(&[entry("ann", "x"), UserEntry { token, ..entry("bob", "y") }]);
        assert_eq!(name(users.of_token(b"token")), Some("bob"));
        assert!(users.of_token(b"token ").is_none() && users.of_token(b"").is_none());
        assert!(users.of_token(hash_token(b"token").as_bytes()).is_none());
    }

    #[test]
    fn users_of_an_earlier_reading_do_not_replace_those_of_a_later_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users");
        let read = |entries: &[UserEntry]| {
            UserFile { users: entries.to_vec() }.write(&path).expect("a file");
            Arc::new(Users::read(&path).expect("the users"))
        };
        let (ann, eve) = (entry("ann", "x"), entry("eve", "y"));
        let current = CurrentUsers::new(read(&[ann.clone(), eve.clone()]));
        let (earlier, later) = (read(&[ann.clone(), eve.clone()]), read(&[ann]));
        current.replace(later);
        let generation = current.generation();
        current.replace(earlier);
        assert!(current.load().find(b"eve").is_none());
        assert_eq!(current.generation(), generation);
        // Users that are not from a file have no such order.
        current.replace(Arc::new(users(std::slice::from_ref(&eve))));
        assert!(current.load().find(b"eve").is_some());
        current.replace(read(&[entry("bob", "z")]));
        assert!(current.load().find(b"bob").is_some());
    }

    #[test]
    fn a_reload_keeps_verified_passwords_and_ends_logins_of_changed_users() {
        let (ann, bob) = (entry("ann", "x"), entry("bob", "y"));
        let current = CurrentUsers::new(Arc::new(users(&[ann.clone(), bob.clone()])));
        let before = current.load();
        for (user, password) in [(b"ann", b"x"), (b"bob", b"y")] {
            assert!(before.verify(user, password).is_some());
        }
        let generation = current.generation();
        current.replace(Arc::new(users(&[entry("ann", "z"), bob, entry("carl", "c")])));
        assert_ne!(current.generation(), generation);
        let after = current.load();
        assert!(after.recall(b"bob", b"y").is_some());
        assert!(after.recall(b"ann", b"x").is_none() && after.recall(b"ann", b"z").is_none());
        let renew = |user: &[u8]| current.renew(before.find(user).expect("a user"));
        assert!(renew(b"ann").is_none() && renew(b"bob").is_some());
        current.replace(Arc::new(users(&[ann])));
        assert!(renew(b"ann").is_some() && renew(b"bob").is_none());
    }
}
