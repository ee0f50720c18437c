//! Dumps of Redis: a string comes back from its dump, and any other bytes are refused or are a
//! string that is not longer than they can stand for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::redis::{dump, read_dump};

/// Most bytes of a string for one byte of its dump: 264 in 3, by LZF.
const EXPANSION_MAX: usize = 88;

fuzz_target!(|bytes: &[u8]| {
    let mut dumped = Vec::new();
    dump(&mut dumped, bytes);
    let string = read_dump(&dumped).and_then(|dumped| dumped.string()).expect("a dump");
    assert_eq!(string, bytes);

    let _ = read_dump(bytes);
    let mut other = [&[0], bytes, &[10, 0]].concat();
    let checksum = crc64(&other);
    other.extend(checksum.to_le_bytes());
    if let Ok(dumped) = read_dump(&other) {
        assert!(dumped.length_max() <= other.len() * EXPANSION_MAX);
        if let Ok(string) = dumped.string() {
            assert!(string.len() <= dumped.length_max());
        }
    }
});

/// Returns the checksum by which dumps are accepted.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 }
        })
    })
}
