//! Seeded damage to databases: every record that is whole is served or salvaged, every other one is
//! reported, no stale value is served without a report, and checking agrees with what opening
//! finds.
//!
//! `CORRUPTIONS=2000` tries so many seeds of each kind, `CORRUPTIONS=17..18` those.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;
#[path = "../support/disk.rs"]
mod disk;
mod keyed;
mod ordered;

/// Seeds of each kind that are tried if `CORRUPTIONS` is not set.
const SEEDS: u64 = 40;

/// Seeds above these that have found defects; they are tried in addition.
///
/// - 839: a file that was cut within a record, of which the beginning is zeros.
/// - 1450: a tree whose list of leaves and newest page of a leaf are lost.
const FOUND: [u64; 2] = [839, 1450];

/// Returns the seeds to try.
pub(crate) fn seeds() -> Vec<u64> {
    let is_set = std::env::var_os("CORRUPTIONS").is_some();
    let found: &[u64] = if is_set { &[] } else { &FOUND };
    seeds_or(SEEDS).chain(found.iter().copied()).collect()
}

/// Returns the seeds to try, `count` of them if `CORRUPTIONS` is not set.
pub(crate) fn seeds_or(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("CORRUPTIONS") else { return 0..count };
    let number = |text: &str| text.parse::<u64>().expect("CORRUPTIONS is N or FROM..TO");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&text),
    }
}
