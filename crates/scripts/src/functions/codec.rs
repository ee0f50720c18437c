//! `_codec`: encodings and compressions of texts, and their inverses.

use super::Installer;
use crate::context::Context;
use crate::output::{Input, Output};
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use bzip2::read::{BzDecoder, BzEncoder};
use cabinet::legacy::{ByteOrder, tcbs};
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
    let mut output = Output::new(context);
    let out = &mut output;
    let mut copy = |reader: &mut dyn Read| io::copy(reader, &mut *out).map(drop);
    let input = Input::new(context, &text);
    let fast = Compression::default();
    let written = match &*mode.as_bytes().to_ascii_lowercase() {
        b"url" => encode_url(&text, &mut *out),
        b"quote" => encode_quoted(&text, &mut *out),
        b"hex" => text.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        b"xml" => escape_xml(&text, &mut *out),
        b"deflate" => copy(&mut ZlibEncoder::new(input, fast)),
        b"~deflate" => copy(&mut ZlibDecoder::new(input)),
        // The header names the system as zlib does.
        b"gzip" => copy(&mut GzBuilder::new().operating_system(UNIX).read(input, fast)),
        b"~gzip" => copy(&mut GzDecoder::new(input)),
        b"bzip" => copy(&mut BzEncoder::new(input, bzip2::Compression::best())),
        b"~bzip" => copy(&mut BzDecoder::new(input)),
        mode => {
            let coded = code_quickly(mode, &text, max);
            context.check()?;
            return coded.map(|coded| limited(lua, context, &coded)).transpose();
        }
    };
    match written.map_err(io::Error::downcast::<mlua::Error>) {
        Ok(()) => output.create(lua).map(Some),
        Err(Ok(error)) => Err(error),
        Err(Err(_)) => Ok(None),
    }
}

fn limited(lua: &Lua, context: &Context, text: &[u8]) -> Result<LuaString> {
    context.check_bytes(text.len())?;
    lua.create_string(text)
}

/// Encodes or decodes a text that becomes not much longer, or not more than `max` bytes.
fn code_quickly(mode: &[u8], text: &[u8], max: usize) -> Option<Vec<u8>> {
    match mode {
        b"~url" => Some(decode_url(text)),
        b"base" => Some(STANDARD.encode(text).into_bytes()),
        b"~base" => Some(decode_base64(text)),
        b"~quote" => Some(decode_quoted(text)),
        b"~hex" => Some(decode_hex(text)),
        b"pack" => Some(encode_runs(text)),
        b"~pack" => decode_runs(text, max),
        b"tcbs" => Some(tcbs::encode(text, ORDER)),
        b"~tcbs" => tcbs::decode(text, ORDER, max).ok(),
        b"~xml" => Some(unescape_xml(text)),
        _ => None,
    }
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

fn decode_url(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, after @ ..])
                if let (Some(high), Some(low)) = (digit(*high), digit(*low)) =>
            {
                decoded.push(high << 4 | low);
                rest = after;
            }
            (b'+', _) => decoded.push(b' '),
            _ => decoded.push(byte),
        }
    }
    decoded
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Decodes Base64. Bytes outside the alphabet are left out.
fn decode_base64(text: &[u8]) -> Vec<u8> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    let in_alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let until_padding = text.iter().take_while(|byte| **byte != b'=');
    let mut digits: Vec<u8> = until_padding.copied().filter(in_alphabet).collect();
    if digits.len() % 4 == 1 {
        // Six bits are no byte.
        digits.pop();
    }
    LENIENT.decode(&digits).unwrap_or_default()
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

fn decode_quoted(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            // The end of a line that goes on.
            (b'=', [b'\r', b'\n', after @ ..] | [b'\n', after @ ..]) => after,
            (b'=', [high, low, after @ ..])
                if let (Some(high), Some(low)) = (digit(*high), digit(*low)) =>
            {
                decoded.push(high << 4 | low);
                after
            }
            _ => {
                decoded.push(byte);
                after
            }
        };
    }
    decoded
}

/// Decodes pairs of digits. Spaces and a last single digit are left out.
fn decode_hex(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len() / 2);
    let mut bytes = text.iter().filter(|byte| **byte > b' ');
    // A character that is not a digit adds nothing to the byte of its pair.
    while let (Some(high), Some(low)) = (bytes.next(), bytes.next()) {
        let digits = [*high, *low].into_iter().filter_map(digit);
        decoded.push(digits.fold(0, |byte, digit| byte << 4 | digit));
    }
    decoded
}

/// Encodes runs of equal bytes: a count and the byte, or a negative count and bytes that differ.
fn encode_runs(text: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take(RUN_MAX).take_while(|byte| **byte == first).count();
        if run > 1 || rest.len() == 1 {
            encoded.extend([run as u8, first]);
            rest = &rest[run..];
            continue;
        }
        let most = rest.len().min(RUN_MAX);
        // Bytes until two are equal.
        let different = (1..most).take_while(|at| rest[*at] != rest[at - 1]).count() + 1;
        let is_cut = different < most;
        let count = if is_cut { different - 1 } else { different };
        encoded.push(if count == 1 { 1 } else { (count as u8).wrapping_neg() });
        encoded.extend(&rest[..count]);
        rest = &rest[count..];
    }
    encoded
}

fn decode_runs(text: &[u8], max: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut rest = text;
    while let Some((&count, after)) = rest.split_first() {
        let count = count as i8;
        if count >= 0 {
            let (&byte, after) = after.split_first()?;
            decoded.extend(std::iter::repeat_n(byte, usize::from(count.unsigned_abs())));
            rest = after;
        } else {
            let (bytes, after) = after.split_at_checked(usize::from(count.unsigned_abs()))?;
            decoded.extend(bytes);
            rest = after;
        }
        if decoded.len() > max {
            return None;
        }
    }
    Some(decoded)
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

fn unescape_xml(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match ENTITIES.iter().find(|(_, entity)| rest.starts_with(entity)) {
            Some((character, entity)) => {
                decoded.push(*character);
                rest = &rest[entity.len()..];
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_come_back(bytes in proptest::collection::vec(0u8..3, 0..600)) {
            prop_assert_eq!(decode_runs(&encode_runs(&bytes), bytes.len()), Some(bytes));
        }

        #[test]
        fn texts_come_back(bytes: Vec<u8>) {
            let (mut url, mut quoted) = (Vec::new(), Vec::new());
            encode_url(&bytes, &mut url).unwrap();
            encode_quoted(&bytes, &mut quoted).unwrap();
            prop_assert_eq!(&decode_url(&url), &bytes);
            prop_assert_eq!(&decode_quoted(&quoted), &bytes);
            prop_assert_eq!(&decode_base64(STANDARD.encode(&bytes).as_bytes()), &bytes);
        }

        #[test]
        fn arbitrary_bytes_are_decoded_within_the_limit(bytes: Vec<u8>, max in 0usize..99) {
            decode_url(&bytes);
            decode_quoted(&bytes);
            decode_base64(&bytes);
            decode_hex(&bytes);
            unescape_xml(&bytes);
            if let Some(decoded) = decode_runs(&bytes, max) {
                prop_assert!(decoded.len() <= max);
            }
        }
    }

    #[test]
    fn a_last_run_is_one_with_a_count() {
        assert_eq!(encode_runs(b"aaab"), [3, b'a', 1, b'b']);
        assert_eq!(encode_runs(b"abb"), [1, b'a', 2, b'b']);
        assert_eq!(encode_runs(b"abcc"), [0xfe, b'a', b'b', 2, b'c']);
    }
}
