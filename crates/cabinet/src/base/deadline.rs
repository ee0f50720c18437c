//! Deadline of a thread, after which its scans and queries fail, and interruption of them.
//!
//! A scan may read every record of a database before it returns. A caller with a deadline sets it
//! once for its thread, around all operations. So does one that may have to end them early.

use crate::{Error, Result};
use std::cell::Cell;
use std::thread::LocalKey;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static IS_INTERRUPTED: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Restores the value of a cell of the thread, even after a panic.
struct Restore<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);

impl<T: Copy> Drop for Restore<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Calls `run`, in which scans and queries of this thread fail with [`Error::Late`] from `deadline`
/// on. They check the clock every few hundred records. An earlier deadline that is already set
/// stays. Other operations have no deadline.
pub fn with_deadline<T>(deadline: Option<Instant>, run: impl FnOnce() -> T) -> T {
    let before = DEADLINE.get();
    let _restore = Restore(&DEADLINE, before);
    DEADLINE.set(deadline.into_iter().chain(before).min());
    run()
}

/// Calls `run`, in which scans and queries of this thread fail with [`Error::Late`] once
/// `is_interrupted` returns true. They call it every few hundred records, also while other threads
/// wait for them, so it has to be fast. It must not call the database. Other operations are not
/// interrupted.
pub fn with_interruption<T>(is_interrupted: fn() -> bool, run: impl FnOnce() -> T) -> T {
    let _restore = Restore(&IS_INTERRUPTED, IS_INTERRUPTED.get());
    IS_INTERRUPTED.set(Some(is_interrupted));
    run()
}

/// Fails if the deadline of this thread has passed, or its scans and queries are interrupted.
#[inline]
pub(crate) fn check() -> Result<()> {
    if let Some(is_interrupted) = IS_INTERRUPTED.get()
        && is_interrupted()
    {
        return Err(Error::Late);
    }
    match DEADLINE.get() {
        Some(deadline) if Instant::now() >= deadline => Err(Error::Late),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use crate::table::Query;
    use std::ops::ControlFlow;
    use std::time::Duration;

    #[test]
    fn scans_and_queries_end_at_the_deadline_and_other_operations_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| match name {
            "*" | "+" => Database::open(name).unwrap(),
            name => Database::open(&folder.path().join(name).display().to_string()).unwrap(),
        };
        let is_late = |result: Result<()>| matches!(result, Err(Error::Late));
        for name in ["*", "+", "a.tch", "a.tcb", "a.tcf", "a.tct"] {
            let database = open(name);
            let value: &[u8] = if name == "a.tct" { b"column\0value" } else { b"value" };
            for key in 1..10 {
                database.put(key.to_string().as_bytes(), value).unwrap();
            }
            let go_on = |_: &[u8]| ControlFlow::Continue(());
            let scans = || {
                let mut late = vec![
                    is_late(database.for_each(|_| ControlFlow::Continue(()))),
                    is_late(database.for_each_match(b"7", |_| ControlFlow::Continue(()))),
                    is_late(database.for_each_key_with_prefix(b"7", go_on)),
                ];
                if let Some(numbered) = database.as_numbered() {
                    late.push(is_late(numbered.for_each_key_in(1..=9, &mut |_| go_on(b""))));
                }
                if let Some(table) = database.table() {
                    late.push(is_late(table.search(&Query::new()).map(drop)));
                    late.push(is_late(table.for_each_row(|_, _| ControlFlow::Continue(()))));
                }
                late
            };
            assert!(with_interruption(|| true, scans).iter().all(|late| *late), "{name}");
            assert!(with_interruption(|| false, scans).iter().all(|late| !late), "{name}");
            let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
            assert!(scans().iter().all(|late| !late), "{name}");
            assert!(with_deadline(Some(future), scans).iter().all(|late| !late), "{name}");
            assert!(with_deadline(Some(past), scans).iter().all(|late| *late), "{name}");
            with_deadline(Some(past), || {
                assert!(with_deadline(Some(future), scans).iter().all(|late| *late), "{name}");
                assert!(with_deadline(None, scans).iter().all(|late| *late), "{name}");
                database.put(b"1", value).unwrap();
                assert!(database.get(b"1").unwrap().is_some());
            });
            assert!(scans().iter().all(|late| !late), "{name}");
        }
    }
}
