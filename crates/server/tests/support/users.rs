//! Users for tests.

use server::{PasswordCost, UserEntry, UserFile, Users};
use std::sync::Arc;

/// Returns users with these names and passwords, whose hashes cost little.
pub(crate) fn users(users: &[(&str, &str)]) -> Arc<Users> {
    let entry = |(name, password): &(&str, &str)| {
        UserEntry::with_password(name, password.as_bytes(), PasswordCost::MIN).unwrap()
    };
    Arc::new(Users::of(UserFile { users: users.iter().map(entry).collect() }))
}
