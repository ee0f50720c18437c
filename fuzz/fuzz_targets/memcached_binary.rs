//! Parser of memcached's binary protocol: it consumes bytes of any input that begins with the
//! magic, or needs more. The bytes consumed do not depend on the bytes after them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::limits::MEMCACHED_KEY_BYTES_MAX;
use wire::memcached_binary::{Command, Echo, HEADER_BYTES, MAGIC, parse, plain_credentials};
use wire::{Invalid, Parse};

fuzz_target!(|bytes: &[u8]| {
    let _ = plain_credentials(bytes);
    let mut rest = bytes;
    loop {
        match parse(rest) {
            Parse::Complete(request, length) => {
                assert!(length >= HEADER_BYTES && Echo::of(rest) == Some(request.echo));
                let is_header = matches!(request.command, Command::Malformed | Command::BadLengths);
                assert!(!is_header || length == HEADER_BYTES);
                if let Command::Get { key, .. }
                | Command::Store { key, .. }
                | Command::Delete { key }
                | Command::Touch { key, .. } = request.command
                {
                    assert!((1..=MEMCACHED_KEY_BYTES_MAX).contains(&key.len()));
                }
                assert_eq!(parse(&rest[..length]), Parse::Complete(request, length));
                assert!(matches!(parse(&rest[..length - 1]), Parse::Incomplete(_)));
                rest = &rest[length..];
            }
            Parse::Incomplete(needed) => {
                assert!(needed > rest.len());
                return;
            }
            Parse::Invalid(invalid) => {
                assert_eq!(invalid, Invalid::UnknownCommand);
                assert_ne!(rest[0], MAGIC);
                return;
            }
        }
    }
});
