//! The protocol of Redis (RESP): its requests are recognised, to refuse them in a form that its
//! clients show.

/// Most digits in the first line of a request: the number of its parts.
const DIGITS_MAX: usize = 10;

/// Returns whether a line, without its line feed, begins a request: `*N`, or `PING`.
pub(crate) fn is_request(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line {
        [b'*', digits @ ..] => {
            (1..=DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
        }
        line => line.eq_ignore_ascii_case(b"PING"),
    }
}

/// Appends an error reply with a text of one line.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"-ERR ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}
