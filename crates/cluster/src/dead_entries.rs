//! Removal of entries without records from the order of the keys.
//!
//! An entry lives longer than its record, and one of a change that was not made may stay for ever.
//! Requests that meet such an entry read its record in vain, as each search for the first id. They
//! hand the key on to a task, which removes the entry.
//!
//! An entry may be there before its record. So the task has changes under way refused before it
//! removes an entry, see [`Records::forestall`]; they are decided again, and add another entry. It
//! leaves entries alone that were made lately, so that this is seldom, but does not depend on
//! clocks. A record that is there keeps all entries.

use crate::entry_name;
use crate::keys::prefixed;
use crate::records::{ENTRY_LEAD, Records, now_ms};
use crate::session::{Cluster, Failure};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Age from which on an entry has no change under way, unless clocks are wrong or a server was
/// paused. Above the time between an entry and its record ([`ENTRY_LEAD`]), the time of a
/// statement, the error of the time in the name of an entry, and five minutes by which clocks may
/// differ.
const AGE_MIN: Duration = Duration::from_secs(15 * 60);

const _: () = assert!(AGE_MIN.as_secs() >= ENTRY_LEAD.as_secs() + 60 + 132 + 300);

/// Keys that wait, and bytes of them, at most. Further ones are met again.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Keys whose entries are removed at the same time.
const KEYS_AT_ONCE: usize = 16;

/// Keys whose entries are to be removed, and the task that does it.
#[derive(Debug, Default)]
pub(crate) struct DeadEntries {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    keys: Vec<Vec<u8>>,
    bytes: usize,
    /// Whether a task takes them.
    has_task: bool,
}

impl Waiting {
    /// Adds keys, as far as there is place. Returns whether a task is to be started.
    fn add(&mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> bool {
        for key in keys {
            if self.keys.len() >= WAITING_MAX || self.bytes + key.len() > WAITING_BYTES_MAX {
                break;
            }
            self.bytes += key.len();
            self.keys.push(key);
        }
        let starts = !self.has_task && !self.keys.is_empty();
        self.has_task |= starts;
        starts
    }

    /// Returns all keys, each once, or none if the task is to end.
    fn take(&mut self) -> Vec<Vec<u8>> {
        self.bytes = 0;
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_unstable();
        keys.dedup();
        self.has_task = !keys.is_empty();
        keys
    }
}

impl DeadEntries {
    /// Takes note of keys that have an entry and no record. A task removes their entries.
    pub(crate) fn note(
        &self,
        records: &Arc<Records>,
        cluster: &Arc<Cluster>,
        keys: impl IntoIterator<Item = Vec<u8>>,
    ) {
        if !self.waiting.lock().add(keys) {
            return;
        }
        let waiting = Arc::clone(&self.waiting);
        let (records, cluster) = (Arc::clone(records), Arc::clone(cluster));
        tokio::spawn(async move {
            loop {
                let keys = waiting.lock().take();
                if keys.is_empty() {
                    return;
                }
                for keys in keys.chunks(KEYS_AT_ONCE) {
                    if !remove_all(&records, &cluster, keys).await {
                        break;
                    }
                }
            }
        });
    }
}

/// Removes the entries of keys. One that stays is met again. Returns whether the cluster has
/// executed all statements.
async fn remove_all(records: &Arc<Records>, cluster: &Arc<Cluster>, keys: &[Vec<u8>]) -> bool {
    let mut is_done = true;
    let mut tasks = JoinSet::new();
    for key in keys {
        let (records, cluster, key) = (Arc::clone(records), Arc::clone(cluster), key.clone());
        tasks.spawn(async move { remove(&records, &cluster, &key).await });
    }
    while let Some(removed) = tasks.join_next().await {
        is_done &= matches!(removed, Ok(Ok(())));
    }
    is_done
}

/// Removes the entries of a key without a record.
async fn remove(records: &Records, cluster: &Cluster, key: &[u8]) -> Result<(), Failure> {
    let Some(order) = records.order() else { return Ok(()) };
    let own = prefixed(key);
    let mut names = order.names(cluster, &own).await?;
    let now_ms = now_ms();
    names.retain(|name| is_old(*name, now_ms));
    if names.is_empty() || !records.forestall(cluster, key).await? {
        return Ok(());
    }
    for name in names {
        order.remove(cluster, &own, name).await;
    }
    Ok(())
}

/// Returns whether hardly any change can be under way that has added an entry of this name.
fn is_old(name: i64, now_ms: u64) -> bool {
    let age_min_ms = AGE_MIN.as_secs() * 1000;
    entry_name::made_at_ms(name).saturating_add(age_min_ms) <= now_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time of the year 2026.
    const NOW_MS: u64 = 1_790_000_000_000;

    #[test]
    fn entries_of_changes_that_may_be_under_way_stay() {
        let age_min_ms = AGE_MIN.as_secs() * 1000;
        for expires_at_ms in [0, NOW_MS + 1] {
            let name = entry_name::new(NOW_MS, expires_at_ms);
            // The time in a name has an error of 131 seconds.
            assert!(!is_old(name, NOW_MS));
            assert!(!is_old(name, NOW_MS + age_min_ms - 131_072));
            assert!(is_old(name, NOW_MS + age_min_ms + 131_072));
        }
    }

    #[test]
    fn the_keys_that_wait_are_limited_and_one_task_takes_them() {
        let key = |number: usize| number.to_be_bytes().to_vec();
        let mut waiting = Waiting::default();
        assert!(!waiting.add([]));
        assert!(waiting.add([key(1), key(2), key(1)]));
        assert!(!waiting.add([key(3)]));
        assert_eq!(waiting.take(), [key(1), key(2), key(3)]);
        assert!(!waiting.add((0..2 * WAITING_MAX).map(key)));
        assert_eq!(waiting.take().len(), WAITING_MAX);
        assert!(waiting.take().is_empty());
        // The task has ended.
        let long = vec![b'k'; WAITING_BYTES_MAX / 2];
        assert!(waiting.add(std::iter::repeat_n(long, 3)));
        assert_eq!((waiting.keys.len(), waiting.bytes), (2, WAITING_BYTES_MAX));
    }
}
