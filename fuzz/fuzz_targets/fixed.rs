//! A fixed-length database whose files somebody has tampered with.
#![no_main]

mod tampered;

use cabinet::testing::Storage;
use cabinet::{Engine, FixedDatabase, Options, Result};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use tampered::{Bases, Input, Kind};

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

fuzz_target!(|input: Input| tampered::run::<Fixed>(&BASES, &input));
