//! Dumps of strings, as `DUMP` and `RESTORE` of Redis 7.0 have them.
//!
//! ```text
//! type u8 = 0 | string | version u16 = 10 | CRC-64 u64 of all before it
//! ```
//!
//! The version and the checksum are little-endian. The string has one of these forms, of which the
//! lengths are big-endian:
//!
//! | first byte | then | string |
//! |---|---|---|
//! | `00LLLLLL` | L bytes | these bytes |
//! | `01LLLLLL` | a byte, which ends L; L bytes | these bytes |
//! | 0x80 | L as u32, L bytes | these bytes |
//! | 0x81 | L as u64, L bytes | these bytes |
//! | 0xc0, 0xc1, 0xc2 | an i8, i16 or i32, little-endian | the number in decimal |
//! | 0xc3 | lengths C and L, C bytes | L bytes, compressed by LZF |

mod crc64;
mod lzf;

use crate::decimal;
use crate::limits::REDIS_STRING_BYTES_MAX;
pub(super) use crc64::crc64;
use std::borrow::Cow;

/// The format's version that is written, and the newest that is read.
const VERSION: u16 = 10;

/// Length of the version and the checksum, in bytes.
const FOOTER_BYTES: usize = 10;

/// Type of strings.
const STRING: u8 = 0;

const INT8: u8 = 0xc0;
const INT16: u8 = 0xc1;
const INT32: u8 = 0xc2;
const LZF: u8 = 0xc3;
const LENGTH_U32: u8 = 0x80;
const LENGTH_U64: u8 = 0x81;

/// Longest string that may be a number of 32 bits, in bytes.
const NUMBER_BYTES_MAX: usize = 11;

/// Longest string that is not compressed, in bytes.
const PLAIN_BYTES_MAX: usize = 20;

/// Bytes by which a compressed string has to be shorter.
const SAVED_BYTES_MIN: usize = 4;

/// Reason why bytes are not the dump of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpError {
    /// The version is newer than that of Redis 7.0, or the checksum does not match.
    VersionOrChecksum,
    /// The dump is that of another type, which has this name.
    OtherType(&'static str),
    /// The string is malformed, or over
    /// [`REDIS_STRING_BYTES_MAX`](crate::limits::REDIS_STRING_BYTES_MAX).
    Format,
}

/// String of a dump, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dumped<'d> {
    /// These bytes.
    Plain(&'d [u8]),
    /// A number in decimal.
    Number(i32),
    /// Bytes that are compressed by LZF.
    Compressed {
        /// The compressed bytes.
        bytes: &'d [u8],
        /// Announced length of the string in bytes, at most 88 times that of `bytes`.
        length: usize,
    },
}

/// Appends the dump of a string.
pub fn dump(out: &mut Vec<u8>, string: &[u8]) {
    let start = out.len();
    out.push(STRING);
    append_string(out, string);
    out.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn append_string(out: &mut Vec<u8>, string: &[u8]) {
    if let Some(number) = number(string) {
        return append_number(out, number);
    }
    let compressed = match string.len() {
        ..=PLAIN_BYTES_MAX => None,
        length => lzf::compress(string, length - SAVED_BYTES_MIN),
    };
    if let Some(compressed) = &compressed {
        out.push(LZF);
        append_length(out, compressed.len());
    }
    append_length(out, string.len());
    out.extend_from_slice(compressed.as_deref().unwrap_or(string));
}

/// Returns the number of 32 bits that a string is exactly.
fn number(string: &[u8]) -> Option<i32> {
    if string.len() > NUMBER_BYTES_MAX {
        return None;
    }
    let number: i32 = std::str::from_utf8(string).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == string).then_some(number)
}

fn append_number(out: &mut Vec<u8>, number: i32) {
    if let Ok(number) = i8::try_from(number) {
        out.push(INT8);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(INT16);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        out.push(INT32);
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn append_length(out: &mut Vec<u8>, length: usize) {
    if length < 1 << 6 {
        out.push(length as u8);
    } else if length < 1 << 14 {
        out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        out.push(LENGTH_U32);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(LENGTH_U64);
        out.extend_from_slice(&(length as u64).to_be_bytes());
    }
}

/// Returns the string of a dump. As in Redis, bytes after the string are ignored.
///
/// # Errors
///
/// The bytes are not the dump of a string.
pub fn read_dump(dump: &[u8]) -> Result<Dumped<'_>, DumpError> {
    check(dump).ok_or(DumpError::VersionOrChecksum)?;
    match dump.split_first() {
        Some((&STRING, string)) => Reader(string).string().ok_or(DumpError::Format),
        Some((other, _)) => Err(type_name(*other).map_or(DumpError::Format, DumpError::OtherType)),
        None => Err(DumpError::Format),
    }
}

/// Checks version and checksum.
fn check(dump: &[u8]) -> Option<()> {
    let (body, footer) = dump.split_at_checked(dump.len().checked_sub(FOOTER_BYTES)?)?;
    let (version, checksum) = footer.split_first_chunk()?;
    let checked = &dump[..body.len() + version.len()];
    let is_right = u16::from_le_bytes(*version) <= VERSION
        && crc64(checked).to_le_bytes().as_slice() == checksum;
    is_right.then_some(())
}

/// Returns the name of a type that is not that of strings; `None` if Redis 7.0 has none.
fn type_name(number: u8) -> Option<&'static str> {
    match number {
        1 | 10 | 14 | 18 => Some("list"),
        2 | 11 => Some("set"),
        3 | 5 | 12 | 17 => Some("zset"),
        4 | 9 | 13 | 16 => Some("hash"),
        6 | 7 => Some("module"),
        15 | 19 => Some("stream"),
        _ => None,
    }
}

/// Bytes that are left of a dump, its version and checksum among them, as in Redis.
struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    fn take(&mut self, length: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn string(&mut self) -> Option<Dumped<'d>> {
        match *self.0.first()? {
            INT8 => self.skip_first().array().map(i8::from_le_bytes).map(i32::from),
            INT16 => self.skip_first().array().map(i16::from_le_bytes).map(i32::from),
            INT32 => self.skip_first().array().map(i32::from_le_bytes),
            LZF => return self.skip_first().compressed(),
            0xc4.. => None,
            _ => {
                let length = self.length()?;
                return self.take(length).map(Dumped::Plain);
            }
        }
        .map(Dumped::Number)
    }

    fn skip_first(&mut self) -> &mut Self {
        self.0 = self.0.split_first().map_or(self.0, |(_, rest)| rest);
        self
    }

    fn compressed(&mut self) -> Option<Dumped<'d>> {
        let (compressed, length) = (self.length()?, self.length()?);
        let bytes = self.take(compressed)?;
        let max = bytes.len().saturating_mul(lzf::EXPANSION_MAX).min(REDIS_STRING_BYTES_MAX);
        (length <= max).then_some(Dumped::Compressed { bytes, length })
    }

    /// Reads a length. As in Redis, bits that stand for no length are ignored here.
    fn length(&mut self) -> Option<usize> {
        let [first] = self.array()?;
        let length = match first {
            ..0x40 | 0xc0.. => u64::from(first & 0x3f),
            0x40..0x80 => {
                let [second] = self.array()?;
                u16::from_be_bytes([first & 0x3f, second]).into()
            }
            LENGTH_U32 => u32::from_be_bytes(self.array()?).into(),
            LENGTH_U64 => u64::from_be_bytes(self.array()?),
            _ => return None,
        };
        usize::try_from(length).ok()
    }
}

impl<'d> Dumped<'d> {
    /// Returns the length of a string in bytes, or more.
    pub fn length_max(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Number(_) => NUMBER_BYTES_MAX,
            Self::Compressed { length, .. } => *length,
        }
    }

    /// Returns the string.
    ///
    /// # Errors
    ///
    /// Compressed bytes are malformed.
    pub fn string(self) -> Result<Cow<'d, [u8]>, DumpError> {
        match self {
            Self::Plain(bytes) => Ok(bytes.into()),
            Self::Number(number) => {
                let mut text = if number < 0 { b"-".to_vec() } else { Vec::new() };
                decimal::write(&mut text, number.unsigned_abs().into());
                Ok(text.into())
            }
            // Redis does not look at the compressed bytes of no string.
            Self::Compressed { length: 0, .. } => Ok(Cow::default()),
            Self::Compressed { bytes, length } => {
                lzf::decompress(bytes, length).map(Cow::from).ok_or(DumpError::Format)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumped(string: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        dump(&mut out, string);
        out
    }

    fn restored(dump: &[u8]) -> Result<Vec<u8>, DumpError> {
        Ok(read_dump(dump)?.string()?.into_owned())
    }

    /// Returns a dump with these bytes before the version.
    fn with_footer(body: &[u8], version: u16) -> Vec<u8> {
        let mut dump = [body, &version.to_le_bytes()].concat();
        dump.extend(crc64(&dump).to_le_bytes());
        dump
    }

    /// The bytes on the right are from Redis 7.0.15.
    #[test]
    fn dumps_are_those_of_redis() {
        const SENTENCE: &[u8] = b"a value that is longer than most others, but without repetitions";
        for (string, expected) in [
            (&b""[..], &b"\x00\x00\n\x00]\x9b\x5c@\x0f\x7f\xa2\xda"[..]),
            (b"abc", b"\x00\x03abc\n\x00\xd9\xac0=Ar\xa2\xe2"),
            (b"0", b"\x00\xc0\x00\n\x00\x98@\xa7x\xf8P\x03\x08"),
            (b"-1", b"\x00\xc0\xff\n\x00\x0c\x93~$\x85\x08\x9d\xc5"),
            (b"128", b"\x00\xc1\x80\x00\n\x00\xebz\xb3\xb5\x10\xcfKe"),
            (b"-32768", b"\x00\xc1\x00\x80\n\x00\xb5@\x06GS\xbb\x1a\xce"),
            (b"32768", b"\x00\xc2\x00\x80\x00\x00\n\x00E\xd8.\xed\xd5\xbd\xa9\x10"),
            (b"2147483647", b"\x00\xc2\xff\xff\xff\x7f\n\x00,t\xe5\x9e\xe0.\xad\xa1"),
            (b"2147483648", b"\x00\n2147483648\n\x00\xe7\xb1)\xa3L\x1dv\xee"),
            (b"-0", b"\x00\x02-0\n\x00\xd5A\x1f\xd9\xd6\xd0P\xcc"),
            (b"01", b"\x00\x0201\n\x00l\xdd\xc4A\x14L}\xa4"),
            (&[b'a'; 21], b"\x00\xc3\x06\x15\x01aa\xe0\n\x00\n\x00\xfd\x0c\xb3h\x07A?h"),
            (
                &[b'x'; 300],
                b"\x00\xc3\x0cA,\x01xx\xe0\xff\x00\xe0\x17\x00\x01xx\n\x00\xf03\x19Z\x8bf\r\x84",
            ),
            (SENTENCE, &[b"\x00@@", SENTENCE, b"\n\x00\x95Q\x04\xacn\x0f\xc6~"].concat()),
        ] {
            assert_eq!(
                dumped(string).escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn strings_come_back_from_their_dumps() {
        for string in
            ["0", "-1", "127", "-128", "128", "32767", "-32769", "2147483647", "-2147483648"]
        {
            assert!(matches!(read_dump(&dumped(string.as_bytes())), Ok(Dumped::Number(_))));
            assert_eq!(restored(&dumped(string.as_bytes())).unwrap(), string.as_bytes());
        }
        for string in ["", "-0", "+1", "01", "-", "2147483648", "-2147483649", "99999999999", " 1"]
        {
            assert!(matches!(read_dump(&dumped(string.as_bytes())), Ok(Dumped::Plain(_))));
            assert_eq!(restored(&dumped(string.as_bytes())).unwrap(), string.as_bytes());
        }
        let random = |length: u32| (0..length).map(|at| (at.wrapping_mul(at) >> 5) as u8).collect();
        for length in [20, 21, 63, 64, 65, 16_383, 16_384, 70_000] {
            let strings: [Vec<u8>; 2] = [random(length), vec![b'a'; length as usize]];
            for string in strings {
                assert_eq!(restored(&dumped(&string)).unwrap(), string);
            }
        }
        assert!(dumped(&[b'a'; 1000]).len() < 40);
    }

    #[test]
    fn a_dump_of_another_version_or_with_a_changed_bit_is_refused() {
        let dump = dumped(b"a string");
        for bit in 0..8 * dump.len() {
            let mut changed = dump.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_dump(&changed), Err(DumpError::VersionOrChecksum));
        }
        for end in 0..dump.len() {
            assert_eq!(read_dump(&dump[..end]), Err(DumpError::VersionOrChecksum));
        }
        assert_eq!(restored(&with_footer(b"\x00\x01a", VERSION - 1)).unwrap(), b"a");
        let newer = with_footer(b"\x00\x01a", VERSION + 1);
        assert_eq!(read_dump(&newer), Err(DumpError::VersionOrChecksum));
    }

    #[test]
    fn malformed_strings_are_refused() {
        for body in [
            &b"\x00"[..],
            b"\x00\x0d",
            b"\x00\x40",
            b"\x00\x82\x00\x00\x00\x01",
            b"\x00\x80\xff\xff\xff\xff",
            b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x00\xc4\x00",
            b"\x00\xff",
            b"\x00\xc3",
            b"\x00\xc3\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x00\xc3\x02\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00a",
            b"\x00\xc3\x02\x40\xb1\x00a",
            b"\x00\xc3\x02\x02\x00a",
            b"\x00\xc3\x02\x01\x20\x00",
        ] {
            let dump = with_footer(body, VERSION);
            // The footer is read as a part of what is cut off.
            let restored = restored(&dump);
            assert!(
                matches!(restored, Err(DumpError::Format)),
                "{}: {restored:?}",
                body.escape_ascii()
            );
        }
        assert_eq!(
            read_dump(&with_footer(b"\x0f\x00", VERSION)),
            Err(DumpError::OtherType("stream"))
        );
        assert_eq!(read_dump(&with_footer(b"\x08\x00", VERSION)), Err(DumpError::Format));
        // As in Redis, further bytes are ignored.
        assert_eq!(restored(&with_footer(b"\x00\x01abc", VERSION)).unwrap(), b"a");
        assert_eq!(restored(&with_footer(b"\x00\x0b", VERSION)).unwrap_err(), DumpError::Format);
        assert_eq!(restored(&with_footer(b"\x00\x0a", VERSION)).unwrap().len(), FOOTER_BYTES);
    }

    /// No bytes cause a panic, or a string that is longer than they can stand for.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut state = 7_u64;
        let mut random = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % end
        };
        for _ in 0..30_000 {
            let mut body = vec![0, 0xc0 + random(5) as u8];
            for _ in 0..random(24) {
                let byte = random(256) as u8;
                body.push(if random(3) == 0 { byte } else { byte & 0x23 });
            }
            let dump = with_footer(&body, VERSION);
            if let Ok(dumped) = read_dump(&dump) {
                assert!(dumped.length_max() <= dump.len() * lzf::EXPANSION_MAX);
                let _ = dumped.string();
            }
        }
    }
}
