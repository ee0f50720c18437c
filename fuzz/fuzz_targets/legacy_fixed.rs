//! Reader of Tokyo Cabinet's fixed-length files, given corrupted files.
#![no_main]

mod edited;

use edited::{Bases, Input};
use libfuzzer_sys::fuzz_target;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../crates/cabinet/tests/fixtures/tokyocabinet/", $name))
    };
}

const BASES: &Bases = &[
    (fixture!("le/fixed-w8.tcf"), None),
    (fixture!("be/fixed-w300.tcf"), None),
    (fixture!("be/fixed-empty-values.tcf"), None),
    (fixture!("le/fixed-w66000.tcf"), None),
];

fuzz_target!(|input: Input| edited::read(BASES, &input));
