//! Patterns of keys: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a byte that stands for itself.

use super::Failed;

/// Longest pattern, in bytes: a match takes as many steps for each byte of a key.
const PATTERN_BYTES_MAX: usize = 1024;

/// Fails for a pattern that is too long.
pub(super) fn check(pattern: &[u8]) -> Result<(), Failed> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err("ERR a pattern is at most 1024 bytes long".into());
    }
    Ok(())
}

/// Returns whether a pattern matches all of `text`. Takes time of at most the product of their
/// lengths.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    // The last star, and the end of the text that it has taken.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(pattern_at) == Some(&b'*') {
            star = Some((pattern_at + 1, text_at));
            pattern_at += 1;
            continue;
        }
        match text.get(text_at) {
            None if pattern_at == pattern.len() => return true,
            None => return false,
            Some(byte) => {
                if let Some(next) = one(pattern, pattern_at, *byte) {
                    pattern_at = next;
                    text_at += 1;
                    continue;
                }
            }
        }
        // The star takes one byte more.
        let Some((after, taken)) = star else { return false };
        (pattern_at, text_at) = (after, taken + 1);
        star = Some((after, taken + 1));
    }
}

/// Returns the place in the pattern after the part at `at`, if that matches a byte.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match (pattern.get(at)?, pattern.get(at + 1)) {
        (b'?', _) => Some(at + 1),
        (b'\\', Some(next)) => (*next == byte).then_some(at + 2),
        (b'[', _) => {
            let (is_in, next) = set(pattern, at + 1, byte);
            is_in.then_some(next)
        }
        (other, _) => (*other == byte).then_some(at + 1),
    }
}

/// Returns whether a byte is in the set that begins at `at`, and the place after the set. As in
/// Redis, the end of the pattern ends a set.
fn set(pattern: &[u8], mut at: usize, byte: u8) -> (bool, usize) {
    let is_inverted = pattern.get(at) == Some(&b'^');
    at += usize::from(is_inverted);
    let mut is_in = false;
    loop {
        match (pattern.get(at), pattern.get(at + 1), pattern.get(at + 2)) {
            (None, ..) => return (is_in != is_inverted, at),
            (Some(b']'), ..) => return (is_in != is_inverted, at + 1),
            (Some(b'\\'), Some(next), _) => {
                is_in |= *next == byte;
                at += 2;
            }
            (Some(first), Some(b'-'), Some(last)) => {
                is_in |= (*first.min(last)..=*first.max(last)).contains(&byte);
                at += 3;
            }
            (Some(first), ..) => {
                is_in |= *first == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_matches_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*a*b*", "xxayybzz", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[a", "a", true),
            ("a\\", "a\\", true),
            ("[\\]]", "]", true),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time_without_bound() {
        let pattern = "a*".repeat(1000) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 10_000]));
    }
}
