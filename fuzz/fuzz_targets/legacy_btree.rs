//! Reader of Tokyo Cabinet's B+ tree files, given corrupted files.
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
    (fixture!("be/btree-dups.tcb"), None),
    (fixture!("le/btree-multilevel.tcb"), None),
    (fixture!("be/btree-decimal.tcb"), None),
    (fixture!("le/btree-bzip.tcb"), None),
    (fixture!("le/btree-deflate.tcb"), None),
    (fixture!("be/btree-tcbs.tcb"), None),
    (fixture!("le/btree-wal.tcb"), Some(fixture!("le/btree-wal.tcb.wal"))),
];

fuzz_target!(|input: Input| edited::read(BASES, &input));
