//! A fixed-length database whose files somebody has tampered with.
#![no_main]

mod tampered;

use cabinet::io::Storage;
use cabinet::{Engine, FixedDatabase, Options, Result};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use tampered::{Bases, Input, Kind};

struct Fixed(Arc<FixedDatabase>);

impl Kind for Fixed {
    const PATH: &str = "casket.tcf";
    const NUMBER: u8 = 3;
    /// Width and bytes of the original's file.
    const PARAMETERS: [u64; 3] = [255, 256 << 20, 0];
    const CUTS_VALUES: bool = true;

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let opened = FixedDatabase::open_on(storage, Path::new(Self::PATH), options, false)?;
        Ok(Self(Arc::new(opened)))
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.0) as _
    }

    fn tend(&self) -> Result<()> {
        self.0.tend()
    }

    fn checkpoint(&self) -> Result<()> {
        self.0.checkpoint()
    }
}

static BASES: Bases = Bases::new();

fuzz_target!(|input: Input| tampered::run::<Fixed>(&BASES, &input));
