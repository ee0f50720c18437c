//! Promises of the codec of memcached's binary protocol.

#[path = "common/bytes.rs"]
mod bytes;

use bytes::{assert_is_one_request, unhex};
use wire::limits::MEMCACHED_KEY_BYTES_MAX;
use wire::memcached_binary::reply::{self, Status};
use wire::memcached_binary::{
    Arithmetic, Command, Echo, HEADER_BYTES, MAGIC, Mode, Request, parse, plain_credentials,
};
use wire::{Invalid, Parse};

/// A request whose lengths are what they are.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = extras.len() + key.len() + value.len();
    let mut packet = header(opcode, extras.len() as u8, key.len() as u16, body as u32);
    for part in [extras, key, value] {
        packet.extend_from_slice(part);
    }
    packet
}

fn header(opcode: u8, extras: u8, key: u16, body: u32) -> Vec<u8> {
    let mut header = vec![MAGIC, opcode];
    header.extend_from_slice(&key.to_be_bytes());
    header.extend_from_slice(&[extras, 0, 0, 0]);
    header.extend_from_slice(&body.to_be_bytes());
    header.extend_from_slice(b"opaq");
    header.extend_from_slice(&[0; 8]);
    header
}

fn whole(bytes: &[u8]) -> Request<'_> {
    match parse(bytes) {
        Parse::Complete(request, length) => {
            assert_eq!(length, bytes.len(), "{}", bytes.escape_ascii());
            request
        }
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

#[test]
fn every_opcode_is_its_command() {
    let expiry = &7u32.to_be_bytes()[..];
    let stored = &[0, 0, 0, 5, 0, 0, 0, 9][..];
    let sum = unhex("0000000000000001 0000000000000002 00000003");
    let (key, value) = (&b"key"[..], &b"value"[..]);
    let store = |mode| Command::Store { mode, key, flags: 5, expiry: 9, value };
    let arithmetic = Arithmetic { key, amount: 1, create: Some((2, 3)) };
    let get = |wants_key| Command::Get { key, wants_key };
    let touch = |wants_key| Command::GetAndTouch { key, expiry: 7, wants_key };
    let (none, nothing) = (&b""[..], &b""[..]);
    for (opcode, extras, key, value, command) in [
        (0x00, none, key, nothing, get(false)),
        (0x01, stored, key, value, store(Mode::Set)),
        (0x02, stored, key, value, store(Mode::Add)),
        (0x03, stored, key, value, store(Mode::Replace)),
        (0x04, none, key, nothing, Command::Delete { key }),
        (0x05, &sum, key, nothing, Command::Increment(arithmetic)),
        (0x06, &sum, key, nothing, Command::Decrement(arithmetic)),
        (0x07, none, nothing, nothing, Command::Quit),
        (0x08, none, nothing, nothing, Command::Flush { delay: 0 }),
        (0x08, expiry, nothing, nothing, Command::Flush { delay: 7 }),
        (0x0a, none, nothing, nothing, Command::NoOp),
        (0x0b, none, nothing, nothing, Command::Version),
        (0x0c, none, key, nothing, get(true)),
        (0x0e, none, key, value, Command::Append { key, value }),
        (0x0f, none, key, value, Command::Prepend { key, value }),
        (0x10, none, nothing, nothing, Command::Stat { argument: b"" }),
        (0x10, none, key, nothing, Command::Stat { argument: key }),
        (0x1b, expiry, nothing, nothing, Command::Verbosity),
        (0x1c, expiry, key, nothing, Command::Touch { key, expiry: 7 }),
        (0x1d, expiry, key, nothing, touch(false)),
        (0x20, none, nothing, nothing, Command::SaslMechanisms),
        (0x21, none, key, value, Command::SaslAuthenticate { mechanism: key, data: value }),
        (0x22, none, key, value, Command::SaslStep { mechanism: key, data: value }),
        (0x23, expiry, key, nothing, touch(true)),
        (0x1f, none, nothing, value, Command::Unknown),
        (0xff, expiry, key, value, Command::Unknown),
    ] {
        let packet = packet(opcode, extras, key, value);
        let expected = Request {
            echo: Echo { opcode, opaque: *b"opaq" },
            is_quiet: false,
            compare: None,
            command,
        };
        assert_eq!(whole(&packet), expected, "{opcode:x}");
        assert_is_one_request(&packet, |bytes| parse(bytes).map(|_| ()));
        assert_eq!(Echo::of(&packet), Some(expected.echo));
    }
}

#[test]
fn every_quiet_opcode_is_the_loud_one_and_keeps_its_name() {
    for (quiet, loud) in [
        (0x09, 0x00),
        (0x0d, 0x0c),
        (0x11, 0x01),
        (0x12, 0x02),
        (0x13, 0x03),
        (0x14, 0x04),
        (0x15, 0x05),
        (0x16, 0x06),
        (0x17, 0x07),
        (0x18, 0x08),
        (0x19, 0x0e),
        (0x1a, 0x0f),
        (0x1e, 0x1d),
        (0x24, 0x23),
    ] {
        let extras = match loud {
            0x01..=0x03 => 8,
            0x05 | 0x06 => 20,
            0x1d | 0x23 => 4,
            _ => 0,
        };
        let key: &[u8] = if matches!(loud, 0x07 | 0x08) { b"" } else { b"key" };
        let packets = [quiet, loud].map(|opcode| packet(opcode, &[1; 20][..extras], key, b""));
        let [one, other] = [whole(&packets[0]), whole(&packets[1])];
        assert_eq!((one.command, one.is_quiet, one.echo.opcode), (other.command, true, quiet));
        assert!(!other.is_quiet && one.command != Command::Malformed, "{quiet:x}");
    }
}

#[test]
fn a_number_of_zero_compares_with_nothing() {
    let mut packet = packet(0x04, b"", b"k", b"");
    assert_eq!(whole(&packet).compare, None);
    packet[16..24].copy_from_slice(&u64::MAX.to_be_bytes());
    assert_eq!(whole(&packet).compare, Some(u64::MAX));
}

#[test]
fn an_expiry_of_all_ones_makes_no_number() {
    let of = |expiry: u32| {
        let extras = [&[0; 16][..], &expiry.to_be_bytes()].concat();
        match whole(&packet(0x05, &extras, b"k", b"")).command {
            Command::Increment(sum) => sum.create,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(u32::MAX), None);
    assert_eq!(of(u32::MAX - 1), Some((0, u32::MAX - 1)));
}

#[test]
fn parts_that_a_command_does_not_have_are_told_by_the_header_alone() {
    for (opcode, extras, key, body) in [
        (0x00, 0, 0, 0),
        (0x00, 4, 1, 5),
        (0x00, 0, 1, 2),
        (0x01, 8, 0, 8),
        (0x01, 4, 1, 9),
        (0x01, 0, 1, 1),
        (0x04, 0, 1, 2),
        (0x05, 16, 1, 17),
        (0x05, 20, 1, 22),
        (0x07, 0, 0, 1),
        (0x08, 8, 0, 8),
        (0x08, 0, 1, 1),
        (0x0a, 0, 1, 1),
        (0x0b, 4, 0, 4),
        (0x0e, 8, 1, 9),
        (0x10, 4, 0, 4),
        (0x1b, 0, 0, 0),
        (0x1c, 0, 1, 1),
        (0x1c, 4, 1, 6),
        (0x1d, 4, 0, 4),
        (0x20, 0, 1, 1),
        (0x21, 0, 0, 5),
    ] {
        let header = header(opcode, extras, key, body);
        assert_eq!(whole(&header).command, Command::Malformed, "{opcode:x}");
    }
}

#[test]
fn parts_longer_than_the_body_are_told_by_the_header_alone() {
    for (extras, key, body) in [(0, 1, 0), (8, 1, 8), (255, u16::MAX, 65_789), (1, 0, 0)] {
        assert_eq!(whole(&header(0x01, extras, key, body)).command, Command::BadLengths);
    }
    let longest = header(0xff, 255, 250, 505);
    assert_eq!(parse(&longest), Parse::Incomplete(HEADER_BYTES + 505));
}

#[test]
fn keys_end_at_their_limit() {
    for length in [MEMCACHED_KEY_BYTES_MAX - 1, MEMCACHED_KEY_BYTES_MAX] {
        let key = vec![b'k'; length];
        let packet = packet(0x00, b"", &key, b"");
        assert_eq!(whole(&packet).command, Command::Get { key: &key, wants_key: false });
    }
    let over = MEMCACHED_KEY_BYTES_MAX as u16 + 1;
    for key in [over, u16::MAX] {
        let header = header(0x00, 0, key, key.into());
        assert_eq!(whole(&header).command, Command::Malformed);
    }
}

#[test]
fn a_body_is_waited_for_as_announced() {
    let header = header(0x01, 8, 1, u32::MAX);
    assert_eq!(parse(&header), Parse::Incomplete(HEADER_BYTES + u32::MAX as usize));
    assert_eq!(parse(b""), Parse::Incomplete(HEADER_BYTES));
    assert_eq!(parse(b"\x80"), Parse::Incomplete(HEADER_BYTES));
}

#[test]
fn other_first_bytes_are_no_requests() {
    for first in [0x00, 0x7f, 0x81, 0xc8] {
        assert_eq!(parse(&[first]), Parse::Invalid(Invalid::UnknownCommand));
        assert_eq!(parse(&[first; HEADER_BYTES]), Parse::Invalid(Invalid::UnknownCommand));
    }
}

#[test]
fn responses_are_drawn_as_the_protocol_draws_them() {
    let to = Echo { opcode: 0x0c, opaque: *b"opaq" };
    let mut out = Vec::new();
    reply::record(&mut out, to, 0x0102, 5, b"key", b"value");
    let expected = "81 0c 0003 04 00 0000 0000000c 6f706171 0000000000000102
                    00000005 6b6579 76616c7565";
    assert_eq!(out, unhex(expected));
    out.clear();
    reply::failure(&mut out, to, Status::NotFound);
    assert_eq!(
        out,
        [unhex("81 0c 0000 00 00 0001 00000009 6f706171 0000000000000000"), b"Not found".to_vec()]
            .concat()
    );
    out.clear();
    reply::counter(&mut out, to, 1, 2);
    let expected = "81 0c 0000 00 00 0000 00000008 6f706171 0000000000000001 0000000000000002";
    assert_eq!(out, unhex(expected));
    out.clear();
    reply::stat(&mut out, to, "n", "v");
    reply::done(&mut out, to, 0);
    let expected = "81 0c 0001 00 00 0000 00000002 6f706171 0000000000000000 6e76
                    81 0c 0000 00 00 0000 00000000 6f706171 0000000000000000";
    assert_eq!(out, unhex(expected));
}

#[test]
fn plain_names_a_user_and_a_password() {
    let user = Some((&b"ann"[..], &b"secret"[..]));
    assert_eq!(plain_credentials(b"\0ann\0secret"), user);
    assert_eq!(plain_credentials(b"ann\0ann\0secret"), user);
    for message in [&b""[..], b"ann", b"\0ann", b"bob\0ann\0secret", b"\0ann\0secret\0"] {
        assert_eq!(plain_credentials(message), None, "{}", message.escape_ascii());
    }
}
