//! Hash database, and thereby the log, with corrupted files.
#![no_main]

mod corruptor;

use cabinet::testing::Storage;
use cabinet::{Engine, HashDatabase, Options, Result};
use corruptor::{Bases, Input, Kind};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;

struct Hash(Arc<HashDatabase>);

impl Kind for Hash {
    const PATH: &str = "casket.tch";
    const NUMBER: u8 = 1;

    crate::cover!(HashDatabase);
}

static BASES: Bases = Bases::new();

fuzz_target!(|input: Input| corruptor::run::<Hash>(&BASES, &input));
