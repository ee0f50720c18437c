//! Words of a column or an operand.

/// Separates the tokens of text: control characters, spaces and commas.
fn separates_text(byte: u8) -> bool {
    byte <= b' ' || byte == b','
}

/// Tokens of text, none of them empty, in their order.
pub(super) fn of_text(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| separates_text(byte)).filter(|token| !token.is_empty())
}

/// Tokens of a list of numbers, which spaces and commas separate.
pub(super) fn of_numbers(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| matches!(byte, b' ' | b',')).filter(|token| !token.is_empty())
}

/// Text up to its first NUL, as the C functions beneath Tokyo Cabinet's operators see it.
pub(super) fn before_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Whether `text` holds `part`.
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
    fn tokens_are_what_lies_between_separators() {
        let tokens: Vec<_> = of_text(b" one,two\tthree,, \n").collect();
        assert_eq!(tokens, [&b"one"[..], b"two", b"three"]);
        let numbers: Vec<_> = of_numbers(b"1, 2\t3").collect();
        assert_eq!(numbers, [&b"1"[..], b"2\t3"]);
        assert_eq!(of_text(b" ,").count(), 0);
        assert_eq!(before_nul(b"a\0b"), b"a");
    }

    proptest! {
        #[test]
        fn contains_finds_what_a_string_search_finds(text in "[ab]{0,12}", part in "[ab]{0,4}") {
            prop_assert_eq!(contains(text.as_bytes(), part.as_bytes()), text.contains(&part));
        }
    }
}
