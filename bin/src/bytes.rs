//! Keys and values on the command line: as given, or in hexadecimal.

use anyhow::{Context, Result, bail};

/// Parses pairs of hexadecimal digits, with or without spaces between them.
pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()
        .with_context(|| format!("{text:?} is not hexadecimal"))?;
    let (pairs, []) = digits.as_chunks::<2>() else {
        bail!("{text:?} has an odd number of hexadecimal digits");
    };
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Formats bytes as upper-case pairs separated by spaces: `66 69 72`.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{from_hex, to_hex};

    #[test]
    fn hexadecimal_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)).unwrap(), all);
        assert_eq!(to_hex(b"\x0afi"), "0A 66 69");
        assert_eq!(from_hex("0a66 69").unwrap(), b"\x0afi");
        assert_eq!(from_hex("").unwrap(), b"");
    }

    #[test]
    fn invalid_hexadecimal_is_refused() {
        for text in ["0", "0g", "0x10", "1 2 3", "é0"] {
            from_hex(text).unwrap_err();
        }
    }
}
