//! `_codec`: encodings and compressions of texts, and their inverses.

use super::Installer;
use crate::context::Context;
use crate::output::{Input, Output};
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use bzip2::read::{BzDecoder, BzEncoder};
use cabinet::legacy::{ByteOrder, decode_tcbs_while, encode_tcbs_while};
use flate2::read::{GzDecoder, ZlibDecoder, ZlibEncoder};
use flate2::{Compression, GzBuilder};
use mlua::{Lua, LuaString, Result};
use std::io::{self, Read, Write};

/// Number of the system in the header of `gzip`.
const UNIX: u8 = 3;

/// Longest run in the encoding `pack`.
const RUN_MAX: usize = 127;

/// Byte order of the encoding `tcbs`, that of the machine in Tokyo Cabinet.
const ORDER: ByteOrder =
    if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_codec", codec)
}

/// Encodes or decodes a text. Returns `None` if there is no such mode, or the text is not valid.
fn codec(
    lua: &Lua,
    context: &Context,
    (mode, text): (LuaString, LuaString),
) -> Result<Option<LuaString>> {
    let text = text.as_bytes();
    let max = context.limits().state_bytes;
    let mode = mode.as_bytes().to_ascii_lowercase();
    let mut output = Output::new(lua, context);
    let out = &mut output;
    let mut copy = |reader: &mut dyn Read| io::copy(reader, &mut *out).map(drop);
    let input = Input::new(context, &text);
    let fast = Compression::default();
    let written = match &*mode {
        b"url" => encode_url(&text, &mut *out),
        b"~url" => decode_url(&text, &mut *out),
        b"base" => encode_base64(&text, &mut *out),
        b"~base" => decode_base64(&text, &mut *out),
        b"quote" => encode_quoted(&text, &mut *out),
        b"~quote" => decode_quoted(&text, &mut *out),
        b"hex" => text.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        b"~hex" => decode_hex(&text, &mut *out),
        b"pack" => encode_runs(&text, &mut *out),
        b"~pack" => decode_runs(&text, max, &mut *out),
        b"xml" => escape_xml(&text, &mut *out),
        b"~xml" => unescape_xml(&text, &mut *out),
        b"deflate" => copy(&mut ZlibEncoder::new(input, fast)),
        b"~deflate" => copy(&mut ZlibDecoder::new(input)),
        // The header names the system as zlib does.
        b"gzip" => copy(&mut GzBuilder::new().operating_system(UNIX).read(input, fast)),
        b"~gzip" => copy(&mut GzDecoder::new(input)),
        b"bzip" => copy(&mut BzEncoder::new(input, bzip2::Compression::best())),
        b"~bzip" => copy(&mut BzDecoder::new(input)),
        b"tcbs" | b"~tcbs" => return sort_blocks(lua, context, &text, mode[0] == b'~'),
        _ => return Ok(None),
    };
    match written.map_err(io::Error::downcast::<mlua::Error>) {
        Ok(()) => output.create().map(Some),
        Err(Ok(error)) => Err(error),
        Err(Err(_)) => Ok(None),
    }
}

/// Encodes a text as `tcbs`, or decodes it. Its blocks take long.
fn sort_blocks(
    lua: &Lua,
    context: &Context,
    text: &[u8],
    is_decoded: bool,
) -> Result<Option<LuaString>> {
    let max = context.limits().state_bytes;
    let mut checked = Ok(());
    let goes_on = |bytes: usize| {
        checked = context.check_progress().and_then(|()| context.charge_bytes(lua, bytes));
        checked.is_ok()
    };
    let coded = match is_decoded {
        false => encode_tcbs_while(text, ORDER, goes_on),
        // Twice what the text takes, in two stages.
        true => decode_tcbs_while(text, ORDER, max, goes_on).ok(),
    };
    checked?;
    coded.map(|coded| context.text(lua, &coded)).transpose()
}

fn encode_url(text: &[u8], mut encoded: impl Write) -> io::Result<()> {
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"_-.!~*'()".contains(&byte) {
            encoded.write_all(&[byte])?;
        } else {
            write!(encoded, "%{byte:02X}")?;
        }
    }
    Ok(())
}

fn decode_url(text: &[u8], mut decoded: impl Write) -> io::Result<()> {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, after @ ..])
                if let (Some(high), Some(low)) = (digit(*high), digit(*low)) =>
            {
                decoded.write_all(&[high << 4 | low])?;
                rest = after;
            }
            (b'+', _) => decoded.write_all(b" ")?,
            _ => decoded.write_all(&[byte])?,
        }
    }
    Ok(())
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Bytes that are coded at once: whole groups of Base64, 3 bytes or 4 digits.
const BASE64_PART_BYTES: usize = 12 << 10;

fn encode_base64(text: &[u8], mut encoded: impl Write) -> io::Result<()> {
    let mut parts = text.chunks(BASE64_PART_BYTES);
    parts.try_for_each(|part| encoded.write_all(STANDARD.encode(part).as_bytes()))
}

/// Decodes Base64. Bytes outside the alphabet are left out.
fn decode_base64(text: &[u8], mut decoded: impl Write) -> io::Result<()> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    let in_alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut digits = Vec::new();
    let until_padding = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    for part in until_padding.chunks(BASE64_PART_BYTES) {
        digits.extend(part.iter().copied().filter(in_alphabet));
        let whole = digits.len() - digits.len() % 4;
        decoded.write_all(&LENIENT.decode(&digits[..whole]).unwrap_or_default())?;
        digits.drain(..whole);
    }
    if digits.len() == 1 {
        // Six bits are no byte.
        digits.pop();
    }
    decoded.write_all(&LENIENT.decode(&digits).unwrap_or_default())
}

fn encode_quoted(text: &[u8], mut encoded: impl Write) -> io::Result<()> {
    for &byte in text {
        let is_control = byte < b' ' && !matches!(byte, b'\r' | b'\n' | b'\t');
        if byte == b'=' || byte > b'~' || is_control {
            write!(encoded, "={byte:02X}")?;
        } else {
            encoded.write_all(&[byte])?;
        }
    }
    Ok(())
}

fn decode_quoted(text: &[u8], mut decoded: impl Write) -> io::Result<()> {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            // The end of a line that goes on.
            (b'=', [b'\r', b'\n', after @ ..] | [b'\n', after @ ..]) => after,
            (b'=', [high, low, after @ ..])
                if let (Some(high), Some(low)) = (digit(*high), digit(*low)) =>
            {
                decoded.write_all(&[high << 4 | low])?;
                after
            }
            _ => {
                decoded.write_all(&[byte])?;
                after
            }
        };
    }
    Ok(())
}

/// Decodes pairs of digits. Spaces and a last single digit are left out.
fn decode_hex(text: &[u8], mut decoded: impl Write) -> io::Result<()> {
    let mut bytes = text.iter().filter(|byte| **byte > b' ');
    // A character that is not a digit adds nothing to the byte of its pair.
    while let (Some(high), Some(low)) = (bytes.next(), bytes.next()) {
        let digits = [*high, *low].into_iter().filter_map(digit);
        decoded.write_all(&[digits.fold(0, |byte, digit| byte << 4 | digit)])?;
    }
    Ok(())
}

/// Encodes runs of equal bytes: a count and the byte, or a negative count and bytes that differ.
fn encode_runs(text: &[u8], mut encoded: impl Write) -> io::Result<()> {
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take(RUN_MAX).take_while(|byte| **byte == first).count();
        if run > 1 || rest.len() == 1 {
            encoded.write_all(&[run as u8, first])?;
            rest = &rest[run..];
            continue;
        }
        let most = rest.len().min(RUN_MAX);
        // Bytes until two are equal.
        let different = (1..most).take_while(|at| rest[*at] != rest[at - 1]).count() + 1;
        let is_cut = different < most;
        let count = if is_cut { different - 1 } else { different };
        encoded.write_all(&[if count == 1 { 1 } else { (count as u8).wrapping_neg() }])?;
        encoded.write_all(&rest[..count])?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Decodes runs. Fails if they are cut, or more than `max` bytes.
fn decode_runs(text: &[u8], max: usize, mut decoded: impl Write) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut rest = text;
    let mut left = max;
    while let Some((&count, after)) = rest.split_first() {
        let count = count as i8;
        let length = usize::from(count.unsigned_abs());
        left = left.checked_sub(length).ok_or_else(invalid)?;
        if count >= 0 {
            let (&byte, after) = after.split_first().ok_or_else(invalid)?;
            decoded.write_all(&[byte; 128][..length])?;
            rest = after;
        } else {
            let (bytes, after) = after.split_at_checked(length).ok_or_else(invalid)?;
            decoded.write_all(bytes)?;
            rest = after;
        }
    }
    Ok(())
}

/// The characters that XML reserves, and their names.
const ENTITIES: &[(u8, &[u8])] =
    &[(b'&', b"&amp;"), (b'<', b"&lt;"), (b'>', b"&gt;"), (b'"', b"&quot;")];

/// Escapes a text for XML. Control characters that XML does not allow are left out.
fn escape_xml(text: &[u8], mut escaped: impl Write) -> io::Result<()> {
    for &byte in text {
        match ENTITIES.iter().find(|(character, _)| *character == byte) {
            Some((_, entity)) => escaped.write_all(entity)?,
            None if matches!(byte, 1..=8 | 0x0e..=0x1f) => {}
            None => escaped.write_all(&[byte])?,
        }
    }
    Ok(())
}

fn unescape_xml(text: &[u8], mut decoded: impl Write) -> io::Result<()> {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match ENTITIES.iter().find(|(_, entity)| rest.starts_with(entity)) {
            Some((character, entity)) => {
                decoded.write_all(&[*character])?;
                rest = &rest[entity.len()..];
            }
            None => {
                decoded.write_all(&[byte])?;
                rest = after;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns what a function writes.
    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        write(&mut bytes).map(|()| bytes)
    }

    fn runs(text: &[u8]) -> Vec<u8> {
        written(|out| encode_runs(text, out)).unwrap()
    }

    proptest! {
        #[test]
        fn runs_come_back(bytes in proptest::collection::vec(0u8..3, 0..600)) {
            let encoded = written(|out| encode_runs(&bytes, out)).unwrap();
            let decoded = written(|out| decode_runs(&encoded, bytes.len(), out));
            prop_assert_eq!(decoded.unwrap(), bytes);
        }

        #[test]
        fn texts_come_back(bytes: Vec<u8>) {
            let url = written(|out| encode_url(&bytes, out)).unwrap();
            let quoted = written(|out| encode_quoted(&bytes, out)).unwrap();
            let base = STANDARD.encode(&bytes).into_bytes();
            prop_assert_eq!(&written(|out| decode_url(&url, out)).unwrap(), &bytes);
            prop_assert_eq!(&written(|out| decode_quoted(&quoted, out)).unwrap(), &bytes);
            prop_assert_eq!(&written(|out| encode_base64(&bytes, out)).unwrap(), &base);
            prop_assert_eq!(&written(|out| decode_base64(&base, out)).unwrap(), &bytes);
        }

        #[test]
        fn arbitrary_bytes_are_decoded_within_the_limit(bytes: Vec<u8>, max in 0usize..99) {
            written(|out| decode_url(&bytes, out)).unwrap();
            written(|out| decode_quoted(&bytes, out)).unwrap();
            written(|out| decode_base64(&bytes, out)).unwrap();
            written(|out| decode_hex(&bytes, out)).unwrap();
            written(|out| unescape_xml(&bytes, out)).unwrap();
            if let Ok(decoded) = written(|out| decode_runs(&bytes, max, out)) {
                prop_assert!(decoded.len() <= max);
            }
        }
    }

    #[test]
    fn base64_of_several_parts_comes_back_with_other_bytes_in_it() {
        for length in (0..4).map(|more| 2 * BASE64_PART_BYTES + more) {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31) as u8).collect();
            let base = written(|out| encode_base64(&bytes, out)).unwrap();
            assert!(base == STANDARD.encode(&bytes).into_bytes());
            let lines: Vec<u8> = base.chunks(77).flat_map(|line| [line, b"\n"].concat()).collect();
            assert!(written(|out| decode_base64(&lines, out)).unwrap() == bytes);
        }
    }

    #[test]
    fn a_last_run_is_one_with_a_count() {
        assert_eq!(runs(b"aaab"), [3, b'a', 1, b'b']);
        assert_eq!(runs(b"abb"), [1, b'a', 2, b'b']);
        assert_eq!(runs(b"abcc"), [0xfe, b'a', b'b', 2, b'c']);
    }
}
