//! WebDAV locks, in memory: a restart releases them.
//!
//! They are few, so they are in a list. Each expires at most [`LOCK_TIME_MAX`] after it was taken
//! or refreshed, because a client that has disconnected must not lock a file for ever.

use crate::path::{file_key, trimmed};
use dav_server::davpath::DavPath;
use dav_server::ls::{DavLock, DavLockSystem, LsFuture};
use parking_lot::Mutex;
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use xmltree::Element;

/// Most locks at the same time.
pub const LOCKS_MAX: usize = 1000;

/// Longest time until a lock expires.
const LOCK_TIME_MAX: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Arc<Mutex<Vec<DavLock>>>);

impl Locks {
    /// Returns whether the file with this key is locked.
    pub(crate) fn is_locked(&self, key: &[u8]) -> bool {
        self.current(|locks| locks.iter().any(|lock| covers(lock, trimmed(key))))
    }

    /// Returns the locks of the file or folder with this key.
    pub(crate) fn at(&self, key: &[u8]) -> Vec<DavLock> {
        self.current(|locks| locks.iter().filter(|lock| covers(lock, key)).cloned().collect())
    }

    /// Calls `visit` with the locks that have not expired.
    fn current<T>(&self, visit: impl FnOnce(&mut Vec<DavLock>) -> T) -> T {
        let mut locks = self.0.lock();
        if !locks.is_empty() {
            let now = SystemTime::now();
            locks.retain(|lock| lock.timeout_at.is_none_or(|end| end > now));
        }
        visit(&mut locks)
    }
}

/// Returns whether a lock covers the file or folder with this key.
fn covers(lock: &DavLock, key: &[u8]) -> bool {
    let locked = file_key(&lock.path);
    locked == key || lock.deep && is_below(key, locked)
}

fn is_below(key: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || key.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}

fn limited(timeout: Option<Duration>) -> Duration {
    timeout.map_or(LOCK_TIME_MAX, |timeout| timeout.min(LOCK_TIME_MAX))
}

fn renew(lock: &mut DavLock, timeout: Option<Duration>) {
    let timeout = limited(timeout);
    lock.timeout = Some(timeout);
    lock.timeout_at = Some(SystemTime::now() + timeout);
}

impl DavLockSystem for Locks {
    fn lock(
        &self,
        path: &DavPath,
        principal: Option<&str>,
        owner: Option<&Element>,
        timeout: Option<Duration>,
        shared: bool,
        deep: bool,
    ) -> LsFuture<'_, Result<DavLock, DavLock>> {
        let mut lock = DavLock {
            token: uuid::Uuid::new_v4().urn().to_string(),
            path: Box::new(path.clone()),
            principal: principal.map(str::to_owned),
            owner: owner.cloned().map(Box::new),
            timeout_at: None,
            timeout: None,
            shared,
            deep,
        };
        renew(&mut lock, timeout);
        let key = file_key(path);
        let taken = self.current(|locks| {
            let stands_in_the_way = |other: &&DavLock| {
                let meets = covers(other, key) || deep && is_below(file_key(&other.path), key);
                meets && !(shared && other.shared)
            };
            if let Some(other) = locks.iter().find(stands_in_the_way) {
                return Err(other.clone());
            }
            if locks.len() >= LOCKS_MAX {
                return Err(lock.clone());
            }
            locks.push(lock.clone());
            Ok(lock)
        });
        Box::pin(ready(taken))
    }

    fn unlock(&self, path: &DavPath, token: &str) -> LsFuture<'_, Result<(), ()>> {
        let key = file_key(path);
        let unlocked = self.current(|locks| {
            let found = locks.iter().position(|lock| lock.token == token && covers(lock, key));
            found.map(|place| drop(locks.swap_remove(place))).ok_or(())
        });
        Box::pin(ready(unlocked))
    }

    fn refresh(
        &self,
        path: &DavPath,
        token: &str,
        timeout: Option<Duration>,
    ) -> LsFuture<'_, Result<DavLock, ()>> {
        let key = file_key(path);
        let renewed = self.current(|locks| {
            let lock = locks.iter_mut().find(|lock| lock.token == token && covers(lock, key));
            let lock = lock.ok_or(())?;
            renew(lock, timeout);
            Ok(lock.clone())
        });
        Box::pin(ready(renewed))
    }

    fn check(
        &self,
        path: &DavPath,
        principal: Option<&str>,
        ignore_principal: bool,
        deep: bool,
        submitted_tokens: &[String],
    ) -> LsFuture<'_, Result<(), DavLock>> {
        let key = file_key(path);
        let is_held = |lock: &DavLock| {
            let is_owner = ignore_principal || lock.principal.as_deref() == principal;
            is_owner && submitted_tokens.contains(&lock.token)
        };
        let checked = self.current(|locks| {
            let below = |lock: &&DavLock| deep && is_below(file_key(&lock.path), key);
            let here: Vec<&DavLock> = locks.iter().filter(|lock| covers(lock, key)).collect();
            // One of several shared locks is enough.
            let holds_one = here.iter().any(|lock| is_held(lock));
            let mut in_the_way = here.iter().filter(|lock| !is_held(lock));
            let here = in_the_way.find(|lock| !lock.shared || !holds_one).copied();
            let blocking = here.or_else(|| locks.iter().filter(below).find(|lock| !is_held(lock)));
            blocking.map_or(Ok(()), |lock| Err(lock.clone()))
        });
        Box::pin(ready(checked))
    }

    fn discover(&self, path: &DavPath) -> LsFuture<'_, Vec<DavLock>> {
        Box::pin(ready(self.at(file_key(path))))
    }

    fn delete(&self, path: &DavPath) -> LsFuture<'_, Result<(), ()>> {
        let key = file_key(path);
        self.current(|locks| {
            locks.retain(|lock| {
                let locked = file_key(&lock.path);
                locked != key && !is_below(locked, key)
            });
        });
        Box::pin(ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn path(text: &str) -> DavPath {
        DavPath::new(text).expect("a path")
    }

    fn take(locks: &Locks, at: &str, shared: bool, deep: bool) -> Result<String, ()> {
        let timeout = Some(Duration::from_secs(60));
        let taken = locks.lock(&path(at), None, None, timeout, shared, deep);
        taken.now_or_never().expect("at once").map(|lock| lock.token).map_err(drop)
    }

    fn check(locks: &Locks, at: &str, deep: bool, tokens: &[&str]) -> bool {
        let tokens: Vec<String> = tokens.iter().map(|token| (*token).to_owned()).collect();
        let checked = locks.check(&path(at), None, true, deep, &tokens);
        checked.now_or_never().expect("at once").is_ok()
    }

    #[test]
    fn a_lock_excludes_requests_without_its_token() {
        let locks = Locks::default();
        let token = take(&locks, "/a", false, false).expect("a lock");
        assert!(!check(&locks, "/a", false, &[]));
        assert!(!check(&locks, "/a", false, &["other"]));
        assert!(check(&locks, "/a", false, &[&token]));
        assert!(check(&locks, "/a/b", false, &[]) && check(&locks, "/ab", false, &[]));
        assert!(locks.is_locked(b"a") && locks.is_locked(b"a/") && !locks.is_locked(b"b"));
        take(&locks, "/a", true, false).expect_err("it is locked");
        locks.unlock(&path("/a"), &token).now_or_never().expect("at once").expect("unlocked");
        assert!(check(&locks, "/a", false, &[]));
    }

    #[test]
    fn a_deep_lock_covers_everything_below() {
        let locks = Locks::default();
        let token = take(&locks, "/a/", false, true).expect("a lock");
        assert!(!check(&locks, "/a/b/c", false, &[]));
        assert!(check(&locks, "/a/b/c", false, &[&token]));
        take(&locks, "/a/b", false, false).expect_err("it is locked");
        take(&locks, "/", false, true).expect_err("something below is locked");
        take(&locks, "/", false, false).expect("only itself");
        assert!(!check(&locks, "/x/..", true, &[]));
    }

    #[test]
    fn shared_locks_coexist() {
        let locks = Locks::default();
        let one = take(&locks, "/a", true, false).expect("a lock");
        take(&locks, "/a", true, false).expect("another");
        take(&locks, "/a", false, false).expect_err("it is locked");
        assert!(check(&locks, "/a", false, &[&one]));
        assert!(!check(&locks, "/a", false, &[]));
        locks.delete(&path("/")).now_or_never().expect("at once").expect("deleted");
        assert!(!locks.is_locked(b"a"));
    }

    #[test]
    fn a_lock_expires() {
        let locks = Locks::default();
        let at = path("/a");
        let taken = locks.lock(&at, None, None, Some(Duration::ZERO), false, false);
        taken.now_or_never().expect("at once").expect("a lock");
        assert!(!locks.is_locked(b"a"));
        let lock = locks.lock(&at, None, None, None, false, false).now_or_never().expect("at once");
        assert_eq!(lock.expect("a lock").timeout, Some(LOCK_TIME_MAX));
    }

    #[test]
    fn the_number_of_locks_is_limited() {
        let locks = Locks::default();
        for number in 0..LOCKS_MAX {
            take(&locks, &format!("/{number}"), false, false).expect("a lock");
        }
        take(&locks, "/more", false, false).expect_err("one too many");
    }
}
