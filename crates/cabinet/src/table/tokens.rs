//! Tokens of a column's value or an operand.

/// Returns whether a byte separates the tokens of text: control characters, spaces and commas do.
fn separates_text(byte: u8) -> bool {
    byte <= b' ' || byte == b','
}

/// Returns the tokens of text that are not empty, in order.
pub(super) fn of_text(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| separates_text(byte)).filter(|token| !token.is_empty())
}

/// Returns the tokens of a list of numbers, which spaces and commas separate.
pub(super) fn of_numbers(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| matches!(byte, b' ' | b',')).filter(|token| !token.is_empty())
}

/// Returns text up to its first NUL, like the C functions of Tokyo Cabinet's operators.
pub(super) fn before_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Returns whether `text` contains `part`.
pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    let Some((&first, rest)) = part.split_first() else { return true };
    let Some(last) = text.len().checked_sub(part.len()) else { return false };
    (0..=last).any(|at| text[at] == first && &text[at + 1..at + part.len()] == rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_are_the_parts_between_separators() {
        let tokens: Vec<_> = of_text(b" one,two\tthree,, \n").collect();
        assert_eq!(tokens, [&b"one"[..], b"two", b"three"]);
        let numbers: Vec<_> = of_numbers(b"1, 2\t3").collect();
        assert_eq!(numbers, [&b"1"[..], b"2\t3"]);
        assert_eq!(of_text(b" ,").count(), 0);
        assert_eq!(before_nul(b"a\0b"), b"a");
    }

    proptest! {
        #[test]
        fn contains_agrees_with_the_search_of_strings(text in "[ab]{0,12}", part in "[ab]{0,4}") {
            prop_assert_eq!(contains(text.as_bytes(), part.as_bytes()), text.contains(&part));
        }
    }
}
