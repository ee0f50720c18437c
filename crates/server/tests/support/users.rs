//! Users for tests.

use server::{PasswordCost, UserEntry, UserFile, Users};
use std::sync::Arc;

/// Returns users with these names and passwords, whose hashes cost little, and all rights.
pub(crate) fn users(users: &[(&str, &str)]) -> Arc<Users> {
    let entry = |(name, password): &(&str, &str)| entry(name, password);
    Arc::new(Users::of(UserFile { users: users.iter().map(entry).collect() }))
}

/// Returns users with these names and rights, whose password is `secret`.
pub(crate) fn users_with(users: &[(&str, &[&str])]) -> Arc<Users> {
    let entry = |(name, rights): &(&str, &[&str])| {
        let rights = rights.iter().map(ToString::to_string).collect();
        UserEntry { rights, ..entry(name, "secret") }
    };
    Arc::new(Users::of(UserFile { users: users.iter().map(entry).collect() }))
}

fn entry(name: &str, password: &str) -> UserEntry {
    UserEntry::with_password(name, password.as_bytes(), PasswordCost::MIN).unwrap()
}
