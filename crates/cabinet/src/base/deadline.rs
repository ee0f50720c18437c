//! Deadline of a thread, after which its scans and queries fail.
//!
//! A scan may read every record of a database before it returns. A caller with a deadline sets it
//! once for its thread, around all operations.

use crate::{Error, Result};
use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Calls `run`, in which scans and queries of this thread fail with [`Error::Late`] from `deadline`
/// on. They check the clock every few hundred records. An earlier deadline that is already set
/// stays. Other operations have no deadline.
pub fn with_deadline<T>(deadline: Option<Instant>, run: impl FnOnce() -> T) -> T {
    /// Restores the deadline, even after a panic.
    struct Restore(Option<Instant>);
    impl Drop for Restore {
        fn drop(&mut self) {
            DEADLINE.set(self.0);
        }
    }
    let before = DEADLINE.get();
    let _restore = Restore(before);
    DEADLINE.set(deadline.into_iter().chain(before).min());
    run()
}

/// Fails if the deadline of this thread has passed.
#[inline]
pub(crate) fn check() -> Result<()> {
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
