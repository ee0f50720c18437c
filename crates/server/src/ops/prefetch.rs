//! Groups of keys that are looked up together, so that their cache misses overlap.

/// Most keys of a group.
pub(crate) const KEYS_AHEAD_MAX: usize = 16;
