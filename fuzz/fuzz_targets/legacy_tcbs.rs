//! Reader of Tokyo Cabinet's own compression, given any bytes.
#![no_main]

use cabinet::legacy::{ByteOrder, decode_tcbs};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u16, &[u8])| {
    let (is_big, max, stored) = input;
    let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
    if let Ok(value) = decode_tcbs(stored, order, max.into()) {
        assert!(value.len() <= max.into());
        // Each byte uses at least one bit.
        assert!(value.len() <= 8 * stored.len());
    }
});
