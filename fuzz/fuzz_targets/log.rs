//! A hash database, and so any log, whose files somebody has tampered with.
#![no_main]

mod tampered;

use cabinet::io::Storage;
use cabinet::{Engine, HashDatabase, Options, Result};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use tampered::{Bases, Input, Kind};

struct Hash(Arc<HashDatabase>);

impl Kind for Hash {
    const PATH: &str = "casket.tch";
    const NUMBER: u8 = 1;

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let opened = HashDatabase::open_on(storage, Path::new(Self::PATH), options, false)?;
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

fuzz_target!(|input: Input| tampered::run::<Hash>(&BASES, &input));
