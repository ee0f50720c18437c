//! `Authorization` header of the scheme Basic.

use crate::base64;

/// Longest name and password together with the colon, in bytes.
const CREDENTIALS_BYTES_MAX: usize = 1024;

/// Name and password of the scheme Basic.
pub struct BasicCredentials {
    buffer: [u8; CREDENTIALS_BYTES_MAX],
    length: usize,
    colon: usize,
}

impl BasicCredentials {
    /// Decodes the value of a header. Returns `None` for another scheme, or if it is too long.
    pub fn decode(header: &[u8]) -> Option<Self> {
        let (scheme, text) = header.split_at_checked(b"Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let mut buffer = [0; CREDENTIALS_BYTES_MAX];
        let decoded = base64::decode(text.trim_ascii(), &mut buffer)?;
        let (length, colon) = (decoded.len(), memchr::memchr(b':', decoded)?);
        Some(Self { buffer, length, colon })
    }

    /// Returns name and password.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        (&self.buffer[..self.colon], &self.buffer[self.colon + 1..self.length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_separates_name_and_password() {
        for (header, name, password) in [
            (&b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="[..], "Aladdin", "open sesame"),
            (b"basic  YTpiOmM=", "a", "b:c"),
            (b"BASIC Og==", "", ""),
        ] {
            let credentials = BasicCredentials::decode(header).expect("credentials");
            assert_eq!(credentials.parts(), (name.as_bytes(), password.as_bytes()));
        }
    }

    #[test]
    fn anything_else_is_none() {
        for header in [&b""[..], b"Basic", b"Basic ", b"Basic YQ==", b"Basic !", b"Bearer YTpi"] {
            assert!(BasicCredentials::decode(header).is_none(), "{}", header.escape_ascii());
        }
        // Four characters encode three bytes.
        let of = |bytes: usize| [b"Basic ", "OjpA".repeat(bytes / 3).as_bytes()].concat();
        assert!(BasicCredentials::decode(&of(CREDENTIALS_BYTES_MAX)).is_some());
        assert!(BasicCredentials::decode(&of(CREDENTIALS_BYTES_MAX + 3)).is_none());
    }
}
