//! Numbers of bytes on the command line.

/// Parses a number with an optional suffix of Tokyo Tyrant's: k, m, g, t, p, e are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let suffixes = ["k", "m", "g", "t", "p", "e"];
    let lower = text.to_ascii_lowercase();
    let found = (1_u32..).zip(suffixes).find_map(|(power, suffix)| {
        lower.strip_suffix(suffix).map(|digits| (digits.to_owned(), power))
    });
    let (digits, power) = found.unwrap_or((lower, 0));
    let number: u64 = digits.parse().map_err(|_| {
        format!("{text:?} is not a number of bytes: write it as 67108864, 65536k or 64m")
    })?;
    number.checked_mul(1 << (10 * power)).ok_or_else(|| format!("{text:?} is too large"))
}

/// Parses a rate, in bytes per second.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("the rate must be at least 1 byte per second".to_owned()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("102400"), Ok(102_400));
        assert_eq!(bytes("100k"), Ok(102_400));
        assert_eq!(bytes("2G"), Ok(2 << 30));
        assert_eq!(bytes("15e"), Ok(15 << 60));
        for text in ["", "k", "-1", "1kk", "1x", "16e", "1.5g"] {
            bytes(text).unwrap_err();
        }
    }
}
