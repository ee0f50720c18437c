//! HyperLogLogs of Redis: any bytes are refused, or are a value to which elements can be added and
//! which can be merged with another.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::redis::hyperloglog::{Sketch, Union, estimate};

/// Most bytes of a value: a dense one, or a sparse one of the longest runs.
const VALUE_BYTES_MAX: usize = 16 + 2 * 16_384;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&[b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80", bytes].concat());
    // Whole registers of any runs: what is left over is one run without elements.
    let mut value = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    let mut left = 16_384_usize;
    for byte in bytes.iter().map(|byte| byte | 0x80) {
        let registers = usize::from(byte & 3) + 1;
        if registers >= left {
            break;
        }
        value.push(byte);
        left -= registers;
    }
    value.extend([0x40 | ((left - 1) >> 8) as u8, (left - 1) as u8]);
    assert!(check(&value));
});

/// Returns whether the bytes are such a value.
fn check(bytes: &[u8]) -> bool {
    let estimated = estimate(bytes);
    let mut union = Union::default();
    let added = union.add(bytes);
    // An estimate that the value contains is not compared with the registers.
    assert!(estimated.is_ok() || added == estimated.map(drop));
    let Ok(mut sketch) = Sketch::try_from(bytes.to_vec()) else {
        assert_ne!(added, Ok(()));
        return false;
    };
    for element in 0..20_u8 {
        sketch.add(&[element]);
        assert!(!sketch.add(&[element]));
    }
    sketch.merge(&union);
    let value = Vec::from(sketch);
    assert!(value.len() <= VALUE_BYTES_MAX);
    assert!(union.add(&value).is_ok() && estimate(&value).is_ok());
    true
}
