//! A cache of counters that expire, in memory or on disk: `counter_cache [NAME]`.
//!
//! The name `*#capsiz=64m` is a cache in memory whose oldest records are evicted above 64 MiB;
//! `counters.tch#capsiz=64m` is the same cache on disk, which survives a restart.

use cabinet::{Change, Database, Meta};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time after which a counter is gone unless it is counted again.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Adds 1 to a counter, and lets it expire `LIFETIME` from now.
fn count(cache: &Database, key: &[u8]) -> cabinet::Result<u64> {
    let expires_at = SystemTime::now() + LIFETIME;
    let expires_at_ms = expires_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let meta = Meta { expires_at_ms: expires_at_ms as u64, ..Meta::NONE };
    cache.modify(key, |record| {
        let count = record.and_then(|record| record.value.try_into().ok());
        let count = count.map_or(0, u64::from_le_bytes) + 1;
        (Change::Put(count.to_le_bytes().to_vec(), meta), count)
    })
}

/// Counts visits from several threads, and returns their number.
fn count_visits(cache: &Database) -> cabinet::Result<u64> {
    // Handles are cheap to clone, and all threads write at once.
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..1000).try_for_each(|_| count(cache, b"/home").map(drop))))
            .collect();
        visitors.into_iter().try_for_each(|visitor| visitor.join().expect("a visitor"))
    })?;
    Ok(count(cache, b"/home")? - 1)
}

fn main() -> cabinet::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "*#capsiz=64m".into());
    println!("/home was visited {} times", count_visits(&Database::open(&name)?)?);
    Ok(())
}

#[test]
fn counts_of_all_threads_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let on_disk = folder.path().join("counters.tch#capsiz=64m").display().to_string();
    for name in ["*#capsiz=64m", &on_disk] {
        assert_eq!(count_visits(&Database::open(name).unwrap()).unwrap(), 4000, "{name}");
    }
}
