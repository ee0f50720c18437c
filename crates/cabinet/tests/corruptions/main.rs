//! Seeded damage to databases: every record that is whole is served or salvaged, every other one is
//! reported, no stale value is served without a report, and checking agrees with what opening
//! finds.
//!
//! `CORRUPTIONS=2000` tries so many seeds of each kind, `CORRUPTIONS=17..18` those.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;
mod keyed;
#[path = "../on_disk/mod.rs"]
mod on_disk;
mod ordered;

/// Seeds of each kind that are tried if nothing else is said.
const SEEDS: u64 = 40;

/// The seeds to try.
pub(crate) fn seeds() -> std::ops::Range<u64> {
    seeds_or(SEEDS)
}

/// The seeds to try, so many if nothing else is said.
pub(crate) fn seeds_or(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("CORRUPTIONS") else { return 0..count };
    let number = |text: &str| text.parse::<u64>().expect("CORRUPTIONS is N or FROM..TO");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&text),
    }
}
