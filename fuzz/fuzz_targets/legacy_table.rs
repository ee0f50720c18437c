//! Reader of Tokyo Cabinet's table files, given corrupted files.
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
    (fixture!("be/table-plain.tct"), None),
    (fixture!("le/table-numbers.tct"), None),
    (fixture!("le/table-large.tct"), None),
    (fixture!("be/table-deflate.tct"), None),
    (fixture!("le/table-tcbs.tct"), None),
];

fuzz_target!(|input: Input| edited::read(BASES, &input));
