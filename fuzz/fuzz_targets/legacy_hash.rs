//! Reader of Tokyo Cabinet's hash files, given corrupted files.
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
    (fixture!("le/hash-apow0.tch"), None),
    (fixture!("le/hash-chains.tch"), None),
    (fixture!("be/hash-large.tch"), None),
    (fixture!("be/hash-deflate.tch"), None),
    (fixture!("le/hash-bzip.tch"), None),
    (fixture!("le/hash-tcbs.tch"), None),
    (fixture!("be/hash-wal.tch"), Some(fixture!("be/hash-wal.tch.wal"))),
];

fuzz_target!(|input: Input| edited::read(BASES, &input));
