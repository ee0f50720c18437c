//! Parts for tests: storages that fail on purpose, clocks set by hand, openings on such storages.
//!
//! The feature `testing` exports them. They are not covered by the version of the crate, and a
//! program that is not a test has no use for them: a file that is written through a [`Storage`]
//! while a database has it open may change under its readers.

pub use crate::check::check_on;
pub use crate::clock::ManualClock;
pub use crate::io::{Faults, FaultyStorage, File, Map, Open, OverlayStorage, RealStorage, Storage};
pub use crate::salvage::salvage_on;

use crate::Options;

impl Options {
    /// Spreads writes over many append blocks from the first write on, as the writes of many
    /// threads are. For hash and fixed-length kinds without durability. Its only use is to make
    /// tests with one thread meaningful.
    pub fn set_eager_append_blocks(&mut self, is_eager: bool) {
        self.eager_append_blocks = is_eager;
    }
}
