//! A hash database, and so any log, whose files somebody has tampered with.
#![no_main]

mod tampered;

use cabinet::testing::Storage;
use cabinet::{Engine, HashDatabase, Options, Result};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use tampered::{Bases, Input, Kind};

struct Hash(Arc<HashDatabase>);

impl Kind for Hash {
    const PATH: &str = "casket.tch";
    const NUMBER: u8 = 1;

    crate::cover!(HashDatabase);
}

static BASES: Bases = Bases::new();

fuzz_target!(|input: Input| tampered::run::<Hash>(&BASES, &input));
