//! Fixed-length database with corrupted files.
#![no_main]

mod corruptor;

use cabinet::testing::Storage;
use cabinet::{Engine, FixedDatabase, Options, Result};
use corruptor::{Bases, Input, Kind};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;

struct Fixed(Arc<FixedDatabase>);

impl Kind for Fixed {
    const PATH: &str = "casket.tcf";
    const NUMBER: u8 = 3;
    /// Width and bytes of Tokyo Cabinet's file.
    const PARAMETERS: [u64; 3] = [255, 256 << 20, 0];
    const CUTS_VALUES: bool = true;

    crate::cover!(FixedDatabase);
}

static BASES: Bases = Bases::new();

fuzz_target!(|input: Input| corruptor::run::<Fixed>(&BASES, &input));
