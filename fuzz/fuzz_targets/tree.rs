//! Tree with corrupted files.
#![no_main]

mod corruptor;

use cabinet::testing::Storage;
use cabinet::{Cursor, Engine, Options, Result, Side, TreeDatabase};
use corruptor::{Bases, Input, Kind};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;

struct Tree(Arc<TreeDatabase>);

impl Kind for Tree {
    const PATH: &str = "casket.tcb";
    const NUMBER: u8 = 2;

    crate::cover!(TreeDatabase);

    fn serve(&self) {
        let database = self.database();
        let _ = database.put_duplicate(b"1", b"second", Side::After);
        let _ = database.get_all(b"1");
        let Ok(mut cursor) = database.cursor() else { return };
        for begin in [Cursor::first, Cursor::last] {
            let mut stands = begin(&mut cursor);
            let mut steps = 0;
            while matches!(stands, Ok(true)) && steps < 100 {
                steps += 1;
                stands = if steps % 3 == 0 { cursor.prev() } else { cursor.next() };
            }
        }
    }
}

static BASES: Bases = Bases::new();

fuzz_target!(|input: Input| corruptor::run::<Tree>(&BASES, &input));
