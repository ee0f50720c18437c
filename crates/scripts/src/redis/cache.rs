//! Cache: the scripts that clients have sent, by the SHA-1 of their text.

use crate::memory::TotalMemory;
use server::SentScript;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Memory of a script beside its text, in bytes.
const SCRIPT_BYTES: usize = 256;

/// Scripts within limits of their number and bytes. The least recently used one is removed first.
pub(super) struct Cache {
    count_max: usize,
    bytes_max: usize,
    scripts: HashMap<[u8; 40], Cached>,
    /// Digests by the time of the last use.
    uses: BTreeMap<u64, [u8; 40]>,
    now: u64,
    bytes: usize,
    total: Arc<TotalMemory>,
}

struct Cached {
    script: Arc<SentScript>,
    used: u64,
    bytes: usize,
    _reserved: Reserved,
}

/// Memory of a script, which is given back in the end.
struct Reserved {
    total: Arc<TotalMemory>,
    bytes: usize,
}

impl Reserved {
    fn new(total: &Arc<TotalMemory>, bytes: usize) -> Option<Self> {
        total.take(bytes).ok()?;
        Some(Self { total: Arc::clone(total), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.total.give_back(self.bytes);
    }
}

impl Cache {
    pub(super) fn new(count_max: usize, bytes_max: usize, total: &Arc<TotalMemory>) -> Self {
        let (scripts, uses) = (HashMap::new(), BTreeMap::new());
        let total = Arc::clone(total);
        Self { count_max, bytes_max, scripts, uses, now: 0, bytes: 0, total }
    }

    /// Returns the script of a digest, which counts as used now.
    pub(super) fn find(&mut self, digest: &[u8; 40]) -> Option<Arc<SentScript>> {
        let cached = self.scripts.get_mut(digest)?;
        self.now += 1;
        self.uses.remove(&cached.used);
        cached.used = self.now;
        self.uses.insert(self.now, *digest);
        Some(Arc::clone(&cached.script))
    }

    pub(super) fn has(&self, digest: &[u8; 40]) -> bool {
        self.scripts.contains_key(digest)
    }

    /// Adds a script. Fails if it exceeds the limit of the cache, or if there is no memory for it.
    pub(super) fn add(&mut self, script: &Arc<SentScript>) -> Result<(), String> {
        let bytes = script.source.len() + SCRIPT_BYTES;
        if bytes > self.bytes_max {
            return Err(format!("ERR all scripts together have at most {} bytes", self.bytes_max));
        }
        while self.scripts.len() >= self.count_max || self.bytes + bytes > self.bytes_max {
            self.remove_oldest();
        }
        let mut reserved = Reserved::new(&self.total, bytes);
        while reserved.is_none() && self.remove_oldest() {
            reserved = Reserved::new(&self.total, bytes);
        }
        let reserved = reserved.ok_or_else(|| format!("OOM {}", self.total.exhausted()))?;
        self.now += 1;
        let cached =
            Cached { script: Arc::clone(script), used: self.now, bytes, _reserved: reserved };
        self.uses.insert(self.now, script.digest);
        self.bytes += bytes;
        if let Some(before) = self.scripts.insert(script.digest, cached) {
            self.uses.remove(&before.used);
            self.bytes -= before.bytes;
        }
        Ok(())
    }

    /// Removes the least recently used script. Returns whether there was one.
    fn remove_oldest(&mut self) -> bool {
        let Some((_, digest)) = self.uses.pop_first() else { return false };
        if let Some(removed) = self.scripts.remove(&digest) {
            self.bytes -= removed.bytes;
        }
        true
    }

    pub(super) fn clear(&mut self) {
        (self.scripts, self.uses, self.bytes) = (HashMap::new(), BTreeMap::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::ScriptFlags;

    fn script(number: u8, bytes: usize) -> Arc<SentScript> {
        let flags = ScriptFlags::default();
        let source = vec![b' '; bytes].into();
        Arc::new(SentScript { digest: [number; 40], source, flags, code_from: 0 })
    }

    #[test]
    fn the_least_recently_used_script_is_removed_first() {
        let total = Arc::new(TotalMemory::new(1 << 20));
        let mut cache = Cache::new(3, 1 << 20, &total);
        (0..3).for_each(|number| cache.add(&script(number, 10)).unwrap());
        assert!(cache.find(&[0; 40]).is_some());
        cache.add(&script(3, 10)).unwrap();
        let present = |cache: &Cache| (0..5).map(|number| cache.has(&[number; 40])).collect();
        let known: Vec<bool> = present(&cache);
        assert_eq!(known, [true, false, true, true, false]);
        cache.clear();
        assert_eq!((cache.bytes, total.used()), (0, 0));
    }

    #[test]
    fn scripts_have_as_many_bytes_as_allowed_and_no_more() {
        let total = Arc::new(TotalMemory::new(1 << 20));
        let most = 1000 + 2 * SCRIPT_BYTES;
        let mut cache = Cache::new(10, most, &total);
        cache.add(&script(0, 500)).unwrap();
        cache.add(&script(1, 500)).unwrap();
        assert!(cache.has(&[0; 40]) && cache.has(&[1; 40]));
        assert_eq!(total.used(), most);
        cache.add(&script(2, 501)).unwrap();
        assert!(!cache.has(&[0; 40]) && !cache.has(&[1; 40]) && cache.has(&[2; 40]));
        cache.add(&script(3, most - SCRIPT_BYTES)).unwrap();
        cache.add(&script(4, most - SCRIPT_BYTES + 1)).unwrap_err();
        assert!(cache.has(&[3; 40]));
        cache.add(&script(3, 1)).unwrap();
        assert_eq!(total.used(), SCRIPT_BYTES + 1);
    }

    #[test]
    fn a_script_for_which_there_is_no_memory_is_refused() {
        let total = Arc::new(TotalMemory::new(2000));
        let mut cache = Cache::new(10, 1 << 20, &total);
        cache.add(&script(0, 1000)).unwrap();
        cache.add(&script(1, 1000)).unwrap();
        assert!(!cache.has(&[0; 40]) && cache.has(&[1; 40]));
        assert!(cache.add(&script(2, 2000)).unwrap_err().starts_with("OOM "));
    }
}
